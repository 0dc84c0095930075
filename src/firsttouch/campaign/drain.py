# SPDX-License-Identifier: Apache-2.0
"""Takes a host that failed out of Slurm's service, and never one that somebody else has a hand on."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from firsttouch.campaign import slurm
from firsttouch.verdict import HostVerdict

#: How a reason of ours begins.
OURS = "firsttouch: "
#: States in which a host is somebody's business already.
_TAKEN = frozenset(
    {"DRAIN", "DRAINED", "DRAINING", "DOWN", "FAIL", "FAILING", "MAINT", "ERROR", "RESERVED", "FUTURE"}
)


@dataclass(frozen=True)
class Drain:
    """What is to be done about a host: a command, or *why_not*."""

    argv: tuple[str, ...]
    why_not: str = ""

    @property
    def command(self) -> str:
        """The command as a person would type it."""
        return shlex.join(self.argv)


def plan(found: HostVerdict, node: str) -> Drain:
    """Return how to drain the host that Slurm calls *node*; raises RunFailed where Slurm cannot be asked."""
    if found.verdict != "fail":
        return Drain((), f"{node} is not drained: its verdict is {found.verdict}")
    known = slurm.node(node)
    states = set(re.split(r"[+*~#!%$@^-]", known.get("State", "")))
    reason = known.get("Reason", "")
    if reason.startswith(OURS):
        return Drain((), f"{node} is drained already: {reason}")
    if taken := sorted(states & _TAKEN):
        why = f": {reason}" if reason else ""
        return Drain((), f"{node} is left alone: somebody else has it {'+'.join(taken)}{why}")
    evidence = found.evidence[0] if found.evidence else "see its verdict"
    text = OURS + re.sub(r"[^A-Za-z0-9 .,:;%/()=+_-]", "_", evidence)[:200]
    return Drain(("scontrol", "update", f"nodename={node}", "state=drain", f"reason={text}"))


def apply(found: HostVerdict, node: str, *, dry_run: bool) -> str:
    """Drain a host that failed (or only say how) and return what was done, as a line."""
    wanted = plan(found, node)
    if wanted.why_not:
        return wanted.why_not
    if dry_run:
        return f"would run: {wanted.command}"
    slurm.run(wanted.argv)
    return f"{node} is drained: {wanted.command}"
