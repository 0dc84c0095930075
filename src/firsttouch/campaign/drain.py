# SPDX-License-Identifier: Apache-2.0
"""Takes a host that failed out of Slurm's service, and never one that somebody else has a hand on.

Host names come from records, which others may have written. Slurm takes ``ALL`` and expressions such as
``n[1-100]`` for many hosts, so a name reaches scontrol only if it can be nothing but one host.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from firsttouch.campaign import slurm
from firsttouch.errors import BadInput, FirstTouchError, RunFailed
from firsttouch.machine import HOST, short_name
from firsttouch.verdict import HostVerdict

#: How a reason of ours begins.
OURS = "firsttouch: "
#: Characters of a reason: what slurmdbd keeps of one.
_LONGEST = 250
#: States in which a host is somebody's business already.
_TAKEN = frozenset(
    {"DRAIN", "DRAINED", "DRAINING", "DOWN", "FAIL", "FAILING", "MAINT", "ERROR", "RESERVED", "FUTURE"}
)
_RESERVED = frozenset({"RESERVED", "MAINT"})
#: Slurm's words to a user who may not.
_FORBIDDEN = re.compile("invalid user id|permission denied|access", re.IGNORECASE)


@dataclass(frozen=True)
class Drain:
    """What is to be done about a host: a command, or *why_not*."""

    argv: tuple[str, ...]
    why_not: str = ""

    @property
    def command(self) -> str:
        """The command as a person would type it."""
        return shlex.join(self.argv)


def plan(found: HostVerdict, source: str, reservation: str = "") -> Drain:
    """Return how to drain a host that failed; one in the admin's own *reservation* is nobody else's.

    The reason names the *source* of the verdict: its campaign or records.

    Raises BadInput for a name that is not one host's, RunFailed or Missing where Slurm cannot be asked.
    """
    if found.verdict != "fail":
        return Drain((), f"{found.host} is not drained: its verdict is {found.verdict}")
    node, facts = _node(found.host)
    states = set(re.split(r"[+*~#!%$@^-]", facts.get("State", "")))
    if reservation and states & _RESERVED and node in slurm.reserved(reservation):
        states -= _RESERVED
    reason = facts.get("Reason", "")
    if reason.startswith(OURS):
        return Drain((), f"{node} is drained already: {reason}")
    if taken := sorted(states & _TAKEN):
        why = f": {reason}" if reason else ""
        hint = "; --reservation names one of yours" if set(taken) <= _RESERVED and not reservation else ""
        return Drain((), f"{node} is left alone: somebody else has it {'+'.join(taken)}{why}{hint}")
    whose = f"; {source}"[: _LONGEST // 2]
    text = f"{OURS}{found.reason()}"[: _LONGEST - len(whose)] + whose
    text = re.sub(r"[^A-Za-z0-9 .,:;%/()=+_-]", "_", text)
    return Drain(("scontrol", "update", f"nodename={node}", "state=drain", f"reason={text}"))


def _node(host: str) -> tuple[str, Mapping[str, str]]:
    """Return Slurm's name of a host, which records may name with its domain, and what Slurm says of it."""
    if not HOST.fullmatch(host) or host.upper() == "ALL":
        raise BadInput(f"{host!r} is not the name of one host: Slurm would not be asked to drain one")
    try:
        return host, slurm.node(host)
    except RunFailed:
        if short_name(host) == host:
            raise
        return short_name(host), slurm.node(short_name(host))


def apply(found: HostVerdict, source: str, *, dry_run: bool, reservation: str = "") -> str:
    """Drain a host that failed (or only say how) and return what was done, as a line."""
    wanted = plan(found, source, reservation)
    if wanted.why_not:
        return wanted.why_not
    if dry_run:
        return f"would run: {wanted.command}"
    try:
        slurm.run(wanted.argv)
    except RunFailed as error:
        if _FORBIDDEN.search(str(error)):
            raise RunFailed(f"only an administrator of Slurm may drain a host ({error})") from error
        raise
    return f"{found.host} is drained: {wanted.command}"


def apply_all(
    verdicts: Sequence[HostVerdict], source: str, *, dry_run: bool, reservation: str = ""
) -> Iterator[tuple[str, int]]:
    """Drain every host that failed; yield a line for each and the exit status that it asks for.

    A host that cannot be drained does not keep the others in service.
    """
    for found in verdicts:
        if found.verdict == "fail":
            try:
                yield apply(found, source, dry_run=dry_run, reservation=reservation), 0
            except FirstTouchError as error:
                # Slurm that is not here is no verdict that is not decided.
                yield f"{found.host} is not drained: {error}", 2 if isinstance(error, BadInput) else 1
