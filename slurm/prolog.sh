#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A prolog or epilog for slurm.conf: Prolog=/path/prolog.sh, or Epilog=. A host that fails is drained, and the job is
# queued again; jobs start on all others. Edit the two values. Slurm's PrologEpilogTimeout must be larger than seconds.
set -uo pipefail
seconds=40
system=local

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
