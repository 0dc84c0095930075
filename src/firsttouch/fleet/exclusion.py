# SPDX-License-Identifier: Apache-2.0
"""The hosts that their last verdicts blame, and the hosts that users' jobs should avoid.

In: the log of verdicts, the journal of actions, and the site's settings.

Hosts of a campaign with a common loss, and hosts that the present references do not blame, are not listed, because
`fleet tend` would not hold them.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from firsttouch.campaign import campaigns
from firsttouch.campaign.state import finished_records, state
from firsttouch.errors import BadInput, RunFailed
from firsttouch.execution import slurm
from firsttouch.fleet import verdict_log
from firsttouch.fleet.actions import Actions
from firsttouch.fleet.measuring import campaign_findings
from firsttouch.fleet.site_settings import Hold, SiteSettings, Why
from firsttouch.fleet.verdict_log import Logged
from firsttouch.host.host_lists import fold, natural
from firsttouch.judge.findings import Findings
from firsttouch.judge.verdict import ORDER, Word
from firsttouch.systems.definition import load

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

    def select(self, system: str) -> Exclusions:
        """Return the hosts of a *system* ("": all)."""
        return Exclusions(tuple(e for e in self.hosts if system in {"", e.system}))

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


def exclusions(journal: Actions, settings: SiteSettings) -> Exclusions:
    """Return the hosts to avoid by the log of verdicts and the *journal*."""
    now, seen = journal.clock.time(), Campaigns()
    avoided: dict[str, Excluded] = {}
    for life in journal.lives.values():
        if action := life.hold or life.drained:
            why: Why = "held" if life.hold else "drained"
            evidence = (action.time, action.system or life.system, action.reason, action.source)
            avoided[life.host] = Excluded(life.host, why, *evidence)
    for logged in _last(verdict_log.read(clock=journal.clock)).values():
        host = logged.host
        if host in avoided or logged.time < now - settings.exclude.max_age:
            continue
        if logged.verdict in settings.exclude.verdicts and not is_settled(journal, host, logged):
            word = seen.word(logged)
            if word in settings.exclude.verdicts and not seen.stop(logged.source):
                why = "fail" if word == "fail" else "suspect"
                avoided[host] = Excluded(host, why, logged.time, logged.system, logged.reason, logged.source)
    return Exclusions(tuple(avoided[host] for host in sorted(avoided, key=natural)))


def _last(logs: Mapping[str, Sequence[Logged]]) -> dict[str, Logged]:
    """Return the last verdict with a decision of each host."""
    decided = {host: [line for line in log if line.verdict not in _OPEN] for host, log in logs.items()}
    return {host: log[-1] for host, log in decided.items() if log}
