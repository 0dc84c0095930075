# SPDX-License-Identifier: Apache-2.0
"""Which hosts their last verdicts blame, and whether the present references and the fleet confirm it."""

from __future__ import annotations

from collections.abc import Iterator

from firsttouch.campaign import campaigns
from firsttouch.campaign.results import measured
from firsttouch.campaign.state import state
from firsttouch.errors import BadInput
from firsttouch.fleet.actions import Actions
from firsttouch.fleet.site_settings import Hold
from firsttouch.judge import verdict_log
from firsttouch.judge.findings import Findings
from firsttouch.judge.measuring import campaign_findings
from firsttouch.judge.verdict import ORDER, Word
from firsttouch.judge.verdict_log import Logged
from firsttouch.systems.definition import load


class Campaigns:
    """The campaigns that verdicts came from, each judged once by the present references."""

    def __init__(self) -> None:
        self._judged: dict[str, Findings | None] = {}

    def judged(self, name: str) -> Findings | None:
        """Return the verdicts of a campaign, None if it does not exist any more."""
        if name not in self._judged:
            self._judged[name] = _judged(name)
        return self._judged[name]

    def word(self, logged: Logged) -> Word:
        """Return the verdict of a host by the present references, or that of the log without its campaign."""
        fleet = self.judged(logged.source)
        return ORDER[fleet.word(logged.host)] if fleet and logged.host in fleet.number else logged.verdict

    def stop(self, name: str) -> str:
        """Return why no host of a campaign is to blame, "" if they may be: most of them lost alike."""
        fleet = self.judged(name)
        return f"{name}: {fleet.common_loss.text}" if fleet and fleet.common_loss else ""


def _judged(name: str) -> Findings | None:
    try:
        campaign = campaigns.existing(name)
        system = load(campaign.system)
    except BadInput:
        return None
    campaign_state = state(campaign)
    return campaign_findings(campaign_state, measured(campaign_state), system)


def unsettled(journal: Actions, settings: Hold) -> Iterator[Logged]:
    """Yield the last verdicts of hosts, oldest first, that are bad, not too old, and not acted on yet."""
    oldest, words = journal.clock.time() - settings.max_age, {*settings.verdicts, "fail"}
    latest = (log[-1] for log in verdict_log.read(clock=journal.clock).values())
    for logged in sorted(latest, key=lambda logged: logged.time):
        if logged.verdict in words and logged.time >= oldest and not is_settled(journal, logged.host, logged):
            yield logged


def is_settled(journal: Actions, host: str, logged: Logged) -> bool:
    """Return whether a host is held or drained, or was since this verdict."""
    life = journal.lives.get(host)
    return life is not None and (life.hold is not None or bool(life.drained) or logged.time <= life.ended)


def stops(journal: Actions, settings: Hold) -> list[str]:
    """Return a line for each campaign whose bad hosts are not held, because most of its hosts lost alike."""
    sources = dict.fromkeys(logged.source for logged in unsettled(journal, settings))
    seen = Campaigns()
    return [line for source in sources if (line := seen.stop(source))]
