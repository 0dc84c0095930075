# SPDX-License-Identifier: Apache-2.0
"""Drains hosts that failed in Slurm, but never a host that is already out of service.

Host names come from records, which others may have written. Slurm expands ``ALL`` and expressions such as
``n[1-100]`` to lists of hosts, so only a text that must be the name of one host is passed to scontrol.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from msgspec import Struct

from firsttouch.errors import BadInput, FirstTouchError, RunFailed
from firsttouch.execution import slurm
from firsttouch.fleet.verdict_log import shell_safe
from firsttouch.host.emulation import HOST
from firsttouch.judge.verdict import HostVerdict

#: Prefix of our drain reasons.
OURS = "firsttouch: "
#: The most characters of a reason that slurmdbd stores.
_LONGEST = 250
#: Slurm's messages for missing permission.
_FORBIDDEN = re.compile("invalid user id|permission denied|access", re.IGNORECASE)


class Drain(Struct, frozen=True):
    """The command that drains a host, or *why_not*."""

    argv: tuple[str, ...]
    why_not: str = ""

    @property
    def command(self) -> str:
        """The command as typed in a shell."""
        return shlex.join(self.argv)


def plan_host(host: str, text: str, source: str, reservation: str = "") -> Drain:
    """Return how to drain a host because of *text*.

    Reserved hosts are left alone unless they are in *reservation*. The drain reason names the *source* of the
    verdict: its campaign or records. Raises BadInput for a name that is not one host's, RunFailed or Missing if
    Slurm cannot be asked.
    """
    node = node_of(host)
    reserved = node.reserved
    if reservation and reserved and node.name in slurm.reserved_hosts(reservation):
        reserved = []
    if node.reason.startswith(OURS):
        return Drain((), f"{node.name} is drained already: {node.reason}")
    if taken := sorted([*node.out_of_service, *reserved]):
        unnamed = not node.out_of_service and not reservation
        hint = "; if the reservation is yours, name it with --reservation" if unnamed else ""
        return Drain((), f"{node.name} is left alone, because it is {node.text(taken)}{hint}")
    origin = f"; {source}"[: _LONGEST // 2]
    text = f"{OURS}{text}"[: _LONGEST - len(origin)] + origin
    return Drain(("scontrol", "update", f"nodename={node.name}", "state=drain", f"reason={shell_safe(text)}"))


def node_of(host: str) -> slurm.Node:
    """Return a host as Slurm knows it.

    Raises BadInput for a name that is not one host's, RunFailed if Slurm does not know it.
    """
    if not HOST.fullmatch(host) or host.upper() == "ALL":
        raise BadInput(f"{host!r} is not the name of one host: nothing is drained")
    return slurm.node(host)


def is_forbidden(error: RunFailed) -> bool:
    """Return whether Slurm refused because the user is neither operator nor administrator."""
    return _FORBIDDEN.search(str(error)) is not None


def apply(verdict: HostVerdict, source: str, *, dry_run: bool, reservation: str = "") -> str:
    """Drain a host that failed and return a line about it; with *dry_run*, the line has the command.

    Arguments and errors are as in :func:`plan_host`; RunFailed is raised if Slurm refuses.
    """
    drain = plan_host(verdict.host, verdict.reason(), source, reservation)
    if drain.why_not:
        return drain.why_not
    if dry_run:
        return f"would run: {drain.command}"
    try:
        slurm.run(drain.argv)
    except RunFailed as error:
        if not is_forbidden(error):
            raise
        raise RunFailed(f"only an administrator of Slurm may drain a host ({error})") from error
    return f"{verdict.host} is drained: {drain.command}"


def apply_all(
    verdicts: Sequence[HostVerdict], source: str, *, dry_run: bool, reservation: str = "", stop: str = ""
) -> Iterator[tuple[str, int]]:
    """Drain every host that failed; yield a line and an exit status for each.

    If draining a host fails, the others are still drained. If *stop* has a reason, no host is drained.
    """
    if stop:
        yield f"no host is drained: {stop}", 1
        return
    for verdict in verdicts:
        if verdict.verdict == "fail":
            try:
                yield apply(verdict, source, dry_run=dry_run, reservation=reservation), 0
            except FirstTouchError as error:
                yield f"{verdict.host} is not drained: {error}", error.exit_status
