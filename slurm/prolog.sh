#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A prolog or epilog for slurm.conf: Prolog=/path/prolog.sh, or Epilog=. A host that fails is drained, and the job is
# queued again; jobs start on all others. Edit the two values. Slurm's PrologEpilogTimeout must be larger than seconds.
set -uo pipefail
seconds=40
system=local

# Only exit status 1 proves something against the host: not one that others use, or a check that could not be made.
text=$("${FIRSTTOUCH:-firsttouch}" check --seconds "$seconds" --system "$system" 2>/dev/null)
(($? == 1)) || exit 0
reason="firsttouch: ${text##*$'\n'}"
echo "$reason" >&2
if [[ -n ${SLURMD_NODENAME:-} ]]; then
    scontrol update "NodeName=$SLURMD_NODENAME" State=DRAIN "Reason=${reason:0:200}" || true
fi
exit 1
