# SPDX-License-Identifier: Apache-2.0
"""Drains hosts that failed in Slurm, but never a host that is already out of service.

Host names come from records, which others may have written. Slurm reads ``ALL`` and expressions such as
``n[1-100]`` as many hosts, so a name reaches scontrol only if it can only be the name of one host.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from firsttouch.errors import BadInput, FirstTouchError, RunFailed
from firsttouch.fleet import slurm
from firsttouch.host.emulation import HOST, short_name
from firsttouch.judge.verdict import HostVerdict
from firsttouch.judge.verdict_file import shell_safe

#: Prefix of our drain reasons.
OURS = "firsttouch: "
#: Most characters of a reason that slurmdbd stores.
_LONGEST = 250
#: States of hosts that are already out of service.
_RESERVED = frozenset({"RESERVED", "MAINT", "MAINTENANCE"})
_TAKEN = _RESERVED | {"DRAIN", "DRAINED", "DRAINING", "DOWN", "FAIL", "FAILING", "ERROR", "FUTURE"}
#: Slurm's messages to a user without permission.
_FORBIDDEN = re.compile("invalid user id|permission denied|access", re.IGNORECASE)


@dataclass(frozen=True)
class Drain:
    """The command that drains a host, or *why_not*."""

    argv: tuple[str, ...]
    why_not: str = ""

    @property
    def command(self) -> str:
        """The command as typed in a shell."""
        return shlex.join(self.argv)


def plan(verdict: HostVerdict, source: str, reservation: str = "") -> Drain:
    """Return how to drain a host that failed.

    Reserved hosts are left alone unless they are in *reservation*. The drain reason names the *source* of the
    verdict: its campaign or records. Raises BadInput for a name that is not one host's, RunFailed or Missing if
    Slurm cannot be asked.
    """
    if verdict.verdict != "fail":
        return Drain((), f"{verdict.host} is not drained: its verdict is {verdict.verdict}")
    return plan_host(verdict.host, verdict.reason(), source, reservation)


def plan_host(host: str, text: str, source: str, reservation: str = "") -> Drain:
    """Return how to drain a host because of *text*; arguments and errors are otherwise those of :func:`plan`."""
    node, facts = node_of(host)
    states = states_of(facts)
    if reservation and states & _RESERVED and node in slurm.reserved(reservation):
        states -= _RESERVED
    reason = facts.get("Reason", "")
    if reason.startswith(OURS):
        return Drain((), f"{node} is drained already: {reason}")
    if taken := sorted(states & _TAKEN):
        why = f": {reason}" if reason else ""
        unnamed = set(taken) <= _RESERVED and not reservation
        hint = "; if the reservation is yours, name it with --reservation" if unnamed else ""
        return Drain((), f"{node} is left alone, because it is {'+'.join(taken)}{why}{hint}")
    origin = f"; {source}"[: _LONGEST // 2]
    text = f"{OURS}{text}"[: _LONGEST - len(origin)] + origin
    return Drain(("scontrol", "update", f"nodename={node}", "state=drain", f"reason={shell_safe(text)}"))


def states_of(facts: Mapping[str, str]) -> set[str]:
    """Return the states in Slurm's *facts* about a host, such as IDLE and DRAIN."""
    return set(re.split(r"[+*~#!%$@^-]", facts.get("State", "")))


def is_drained(facts: Mapping[str, str]) -> bool:
    """Return whether a host is drained, by whomever."""
    return any(state.startswith("DRAIN") for state in states_of(facts))


def out_of_service(facts: Mapping[str, str]) -> str:
    """Return the states, except reservations, that keep jobs from a host, and their reason; "" if none does."""
    taken = sorted(states_of(facts) & (_TAKEN - _RESERVED))
    reason = facts.get("Reason", "")
    return "+".join(taken) + (f": {reason}" if taken and reason else "")


def node_of(host: str) -> tuple[str, Mapping[str, str]]:
    """Return Slurm's name of a host, whose name in records may have its domain, and Slurm's facts about it.

    Raises BadInput for a name that is not one host's, RunFailed if Slurm does not know it.
    """
    if not HOST.fullmatch(host) or host.upper() == "ALL":
        raise BadInput(f"{host!r} is not the name of one host: nothing is drained")
    try:
        return host, slurm.node(host)
    except RunFailed:
        if short_name(host) == host:
            raise
        return short_name(host), slurm.node(short_name(host))


def is_forbidden(error: RunFailed) -> bool:
    """Return whether Slurm refused because the user is no operator or administrator."""
    return _FORBIDDEN.search(str(error)) is not None


def apply(verdict: HostVerdict, source: str, *, dry_run: bool, reservation: str = "") -> str:
    """Drain a host that failed and return a line about it; with *dry_run*, the line has the command.

    Arguments and errors are those of :func:`plan`; RunFailed is raised if Slurm refuses.
    """
    drain = plan(verdict, source, reservation)
    if drain.why_not:
        return drain.why_not
    if dry_run:
        return f"would run: {drain.command}"
    try:
        slurm.run(drain.argv)
    except RunFailed as error:
        if is_forbidden(error):
            raise RunFailed(f"only an administrator of Slurm may drain a host ({error})") from error
        raise
    return f"{verdict.host} is drained: {drain.command}"


def apply_all(
    verdicts: Sequence[HostVerdict], source: str, *, dry_run: bool, reservation: str = "", stop: str = ""
) -> Iterator[tuple[str, int]]:
    """Drain every host that failed; yield a line and an exit status for each.

    A host that cannot be drained does not prevent the others from being drained. With *stop*, a reason, no host is
    drained.
    """
    if stop:
        yield f"no host is drained: {stop}", 1
        return
    for verdict in verdicts:
        if verdict.verdict == "fail":
            try:
                yield apply(verdict, source, dry_run=dry_run, reservation=reservation), 0
            except FirstTouchError as error:
                # Missing's status 3 would mean "suspect" here.
                yield f"{verdict.host} is not drained: {error}", 2 if isinstance(error, BadInput) else 1
