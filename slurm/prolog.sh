#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A prolog or epilog for slurm.conf: Prolog=/path/prolog.sh, or Epilog=. A host that fails is drained, and its job is queued
# again. slurm.conf needs SchedulerParameters=nohold_on_prolog_fail: otherwise Slurm holds that job until somebody releases
# it. PrologEpilogTimeout must be longer than the seconds of the check.
# /etc/firsttouch/prolog.env sets these variables for the site, and FIRSTTOUCH, the path of the program.
set -uo pipefail
seconds=40
system=local
settings=${FIRSTTOUCH_SITE:-/etc/firsttouch}/prolog.env
# shellcheck source=/dev/null
if [[ -r $settings ]]; then . "$settings"; fi

# Only a verdict of fail proves something against the host: not that others use it, or that the check could not be made.
text=$("${FIRSTTOUCH:-firsttouch}" check --seconds "$seconds" --system "$system" 2>/dev/null)
status=$? text=${text##*$'\n'}
[[ $status == 1 && $text =~ ^verdict\ [^\ ]+\ fail: ]] || exit 0
reason="firsttouch: $text"
echo "$reason" >&2
if [[ -n ${SLURMD_NODENAME:-} ]]; then
    scontrol update "NodeName=$SLURMD_NODENAME" State=DRAIN "Reason=${reason:0:200}" || true
fi
exit 1
