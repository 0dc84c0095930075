# SPDX-License-Identifier: Apache-2.0
"""The hosts that their last verdicts blame, the hosts that users' jobs should avoid, and how hosts are drained.

In: the log of verdicts, the journal of actions, and the site's settings.

Hosts of a campaign with a common loss, and hosts that the present references do not blame, are not listed, because
`fleet tend` would not hold them.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from firsttouch.campaign import campaigns
from firsttouch.campaign.state import finished_records, state
from firsttouch.errors import BadInput, FirstTouchError, RunFailed, none_such
from firsttouch.execution import slurm
from firsttouch.fleet import verdict_log
from firsttouch.fleet.actions import Actions
from firsttouch.fleet.measuring import campaign_findings
from firsttouch.fleet.site_settings import Hold, SiteSettings, Why
from firsttouch.fleet.verdict_log import Logged, shell_safe
from firsttouch.host.emulation import HOST
from firsttouch.host.host_lists import fold, natural
from firsttouch.judge.findings import Findings
from firsttouch.judge.verdict import ORDER, HostVerdict, Word
from firsttouch.systems.definition import available, load

#: Verdicts without a decision, which leave the previous verdict in force.
_OPEN = frozenset({"undecided", "invalid"})


# ----------------------------------------------------------------------
# Blamed hosts


class Campaigns:
    """The campaigns of some verdicts, each judged once by the present references."""

    def __init__(self) -> None:
        self._judged: dict[str, Findings | None] = {}

    def judged(self, name: str) -> Findings | None:
        """Return the verdicts of a campaign, None if it does not exist any more."""
        if name not in self._judged:
            self._judged[name] = _judged(name)
        return self._judged[name]

    def word(self, logged: Logged) -> Word:
        """Return the verdict of a host by the present references, or the logged one if its campaign is gone."""
        fleet = self.judged(logged.source)
        return ORDER[fleet.word(logged.host)] if fleet and logged.host in fleet.number else logged.verdict

    def stop(self, name: str) -> str:
        """Return why no host of a campaign is to blame (most of them share a loss), or ""."""
        fleet = self.judged(name)
        return f"{name}: {fleet.common_loss.text}" if fleet and fleet.common_loss else ""


def _judged(name: str) -> Findings | None:
    try:
        campaign = campaigns.find_campaign(name)
        system = load(campaign.system)
    except BadInput:
        return None
    campaign_state = state(campaign)
    return campaign_findings(campaign_state, finished_records(campaign_state), system)


def unsettled_verdicts(journal: Actions, settings: Hold) -> Iterator[Logged]:
    """Yield the last verdicts for which hosts are held, oldest first, if not too old, and not acted on yet."""
    oldest = journal.clock.time() - settings.max_age
    latest = (log[-1] for log in verdict_log.read(clock=journal.clock).values())
    for logged in sorted(latest, key=lambda logged: logged.time):
        is_bad = logged.verdict in settings.verdicts and logged.time >= oldest
        if is_bad and not is_settled(journal, logged.host, logged):
            yield logged


def is_settled(journal: Actions, host: str, logged: Logged) -> bool:
    """Return whether a host is held, drained by us, or has returned since this verdict."""
    life = journal.lives.get(host)
    return life is not None and (life.hold is not None or bool(life.drained) or logged.time <= life.ended)


def stops(journal: Actions, settings: Hold) -> list[str]:
    """Return a line for each campaign whose bad hosts are not held, because most of its hosts share a loss."""
    sources = dict.fromkeys(logged.source for logged in unsettled_verdicts(journal, settings))
    seen = Campaigns()
    return [line for source in sources if (line := seen.stop(source))]


# ----------------------------------------------------------------------
# The list of hosts to avoid


class Excluded(Struct, frozen=True):
    """A *host* that jobs should avoid, *why* and since when (seconds since 1970), and the evidence."""

    host: str
    why: Why
    since: float
    system: str
    reason: str
    source: str


class Exclusions(Struct, frozen=True):
    """The hosts that jobs should avoid."""

    hosts: tuple[Excluded, ...]

    @property
    def hostlist(self) -> str:
        """The hosts as Slurm writes them: ``n[3,7]``; "" for none."""
        return fold([excluded.host for excluded in self.hosts]) if self.hosts else ""

    def existing(self) -> Exclusions:
        """Return the hosts that Slurm still has: sbatch refuses a list with a removed one."""
        if shutil.which("sinfo"):
            with contextlib.suppress(RunFailed):
                nodes = slurm.nodes()
                return Exclusions(tuple(excluded for excluded in self.hosts if excluded.host in nodes))
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"hostlist": self.hostlist, "hosts": [asdict(excluded) for excluded in self.hosts]}


# ----------------------------------------------------------------------
# The list


def exclusions(journal: Actions, settings: SiteSettings, system: str | None = None) -> Exclusions:
    """Return the hosts to avoid by the log of verdicts and the *journal*, or only those of a *system*.

    Raises BadInput for a system that has neither a file nor a host in the log or in the journal.
    """
    now, seen, logs = journal.clock.time(), Campaigns(), verdict_log.read(clock=journal.clock)
    avoided: dict[str, Excluded] = {}
    for life in journal.lives.values():
        if action := life.hold or life.drained:
            why: Why = "held" if life.hold else "drained"
            evidence = (action.time, action.system or life.system, action.reason, action.source)
            avoided[life.host] = Excluded(life.host, why, *evidence)
    for logged in _last(logs).values():
        host = logged.host
        if host in avoided or logged.time < now - settings.exclude.max_age:
            continue
        if logged.verdict in settings.exclude.verdicts and not is_settled(journal, host, logged):
            word = seen.word(logged)
            if word in settings.exclude.verdicts and not seen.stop(logged.source):
                why = "fail" if word == "fail" else "suspect"
                avoided[host] = Excluded(host, why, logged.time, logged.system, logged.reason, logged.source)
    chosen = [avoided[host] for host in sorted(avoided, key=natural)]
    if system:
        logged_systems = (line.system for log in logs.values() for line in log)
        systems = {*available(), *logged_systems, *(excluded.system for excluded in chosen)}
        if system not in systems:
            raise BadInput(none_such("system", system, sorted(systems)))
        chosen = [excluded for excluded in chosen if excluded.system == system]
    return Exclusions(tuple(chosen))


def _last(logs: Mapping[str, Sequence[Logged]]) -> dict[str, Logged]:
    """Return the last verdict with a decision of each host."""
    decided = {host: [line for line in log if line.verdict not in _OPEN] for host, log in logs.items()}
    return {host: log[-1] for host, log in decided.items() if log}


# ----------------------------------------------------------------------
# Drains hosts that failed in Slurm, but never a host that is already out of service
#
# Host names come from records, which others may have written. Slurm expands ALL and expressions such as n[1-100]
# to lists of hosts, so only a text that must be the name of one host is passed to scontrol.

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


def drain_host(verdict: HostVerdict, source: str, *, dry_run: bool, reservation: str = "") -> str:
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


def drain_hosts(
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
                yield drain_host(verdict, source, dry_run=dry_run, reservation=reservation), 0
            except FirstTouchError as error:
                yield f"{verdict.host} is not drained: {error}", error.exit_status
