# SPDX-License-Identifier: Apache-2.0
"""The section Configuration of a fleet's report: settings that deviate, and settings that divide the hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from firsttouch.documents import attributes
from firsttouch.host.host_lists import fold
from firsttouch.judge.findings import Findings
from firsttouch.judge.verdict import Divided
from firsttouch.records.drift import Configuration, Deviation, Drift, described, dividing_settings, drift
from firsttouch.report.document import Block, Fold, Paragraph, Span, Table, how_to_read
from firsttouch.report.text import clean, count

#: The most groups of deviating hosts on the page, in the ticket and in summary.json, and the most settings of
#: each.
_ON_PAGE, _IN_TICKET, _KEPT, _NAMED = 40, 10, 500, 8


_HOW = "The golden value is the one that most hosts have. A row lists the deviations that its hosts share."


class Drifted(Struct, frozen=True):
    """The configurations of a system's hosts: their *drift*, the *groups* that deviate, and *divisions*.

    A division is two groups of hosts and the settings that differ between them.
    """

    drift: Drift
    groups: Mapping[tuple[str, ...], Sequence[Deviation]]
    divisions: Sequence[tuple[Divided, Sequence[str]]]

    def blocks(self, system: str) -> list[Block]:
        """Return the section of a page: settings that divide hosts, that deviate, and the golden configuration."""
        sentence = f"The {count(self.drift.hosts, 'host')} with a known configuration have the same settings."
        deviations: list[Block] = [Paragraph(sentence, "good")]
        if self.groups:
            caption = f"Deviations from the golden configuration: {count(len(self.groups), 'group')} of hosts"
            rows = [(_settings(deviations), _hosts(hosts)) for hosts, deviations in self.groups.items()]
            table = Table(caption, ("deviation", "hosts"), rows, kind="stack")
            deviations = table.first(_ON_PAGE, "summary.json")
        golden = Table(
            f"Golden configuration of system {system}",
            ("setting", "value of most hosts"),
            list(self.drift.golden.items()),
        )
        return [
            *(Paragraph([Span(f"{text[0].upper()}{text[1:]}.", "b")]) for text in self.divided()),
            *deviations,
            Fold(f"The golden configuration: {count(len(self.drift.golden), 'setting')}", [golden]),
            how_to_read(_HOW),
        ]

    def lines(self) -> list[str]:
        """Return the sentences of the ticket and the terminal: settings that divide hosts, then deviations."""
        lines = self.divided()
        for hosts, deviations in [*self.groups.items()][:_IN_TICKET]:
            lines.append(f"{_settings(deviations)}: {clean(_hosts(hosts))}")
        more = len(self.groups) - _IN_TICKET
        return [*lines, *([f"and {count(more, 'more group')} of deviating hosts"] if more > 0 else [])]

    def divided(self) -> list[str]:
        """Return the settings in which the two groups of a divided fleet differ."""
        return [
            f"the two groups of hosts in {count(len(groups.parts), 'part')} "
            f"differ in {clean('; '.join(settings[:_NAMED])) or 'no setting'}"
            for groups, settings in self.divisions
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "hosts": self.drift.hosts,
            "golden": dict(self.drift.golden),
            "deviations": [
                {
                    "hosts": list(hosts),
                    "settings": {d.setting: {"value": d.value, "golden": d.golden} for d in deviations},
                }
                for hosts, deviations in [*self.groups.items()][:_KEPT]
            ],
            "divisions": [
                {**attributes(groups, "better", "worse"), "settings": list(settings)}
                for groups, settings in self.divisions
            ],
        }


def host_drift(configurations: Mapping[str, Configuration], findings: Findings) -> Drifted | None:
    """Return the configurations of a system's hosts; None if all of them are unknown."""
    own = {host: configurations[host] for host in findings.hosts if host in configurations}
    if not own:
        return None
    apart = drift(own)
    return Drifted(
        apart, apart.by_hosts(), [(two, dividing_settings(own, two.better, two.worse)) for two in findings.divided]
    )


def _settings(deviations: Sequence[Deviation]) -> str:
    texts = described(deviations)
    more = len(texts) - _NAMED
    return clean("; ".join(texts[:_NAMED]) + (f"; and {count(more, 'more setting')}" if more > 0 else ""))


def _hosts(hosts: Sequence[str]) -> str:
    return f"{count(len(hosts), 'host')}, {fold(hosts)}"
