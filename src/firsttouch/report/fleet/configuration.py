# SPDX-License-Identifier: Apache-2.0
"""The section Configuration of a fleet's report: what deviates, and what goes with a loss of performance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firsttouch.host.host_lists import folded
from firsttouch.judge.associations import Division, Group, divisions, groups
from firsttouch.judge.drift import Configuration, Drift, drift
from firsttouch.judge.findings import Findings
from firsttouch.report.text import clean, count

#: Groups of deviating hosts on the page, in the ticket and in summary.json, and settings that are named of each.
_ON_PAGE, _IN_TICKET, _KEPT, _NAMED = 40, 10, 500, 8


@dataclass(frozen=True)
class Section:
    """The configurations of a system's hosts: their *drift*, the *groups* that deviate, and *divisions*."""

    drift: Drift
    groups: Sequence[Group]
    divisions: Sequence[Division]

    def golden(self) -> list[tuple[str, str]]:
        """Return the rows of the golden configuration."""
        return [(clean(name), clean(value)) for name, value in self.drift.golden.items()]

    def rows(self) -> list[tuple[str, str, str]]:
        """Return what deviates, on which hosts, and what it goes with."""
        return [
            (_settings(group), clean(_hosts(group.hosts)), "; ".join(loss.text() for loss in group.losses) or "-")
            for group in self.groups[:_ON_PAGE]
        ]

    @property
    def more(self) -> int:
        """How many groups the page does not show."""
        return max(0, len(self.groups) - _ON_PAGE)

    def lines(self) -> list[str]:
        """Return the sentences of the ticket and of the terminal: what divides the hosts, then what deviates."""
        lines = self.divided()
        for group in self.groups[:_IN_TICKET]:
            goes = f"; go with {' and '.join(loss.text() for loss in group.losses)}" if group.losses else ""
            lines.append(f"{_settings(group)}: {clean(_hosts(group.hosts))}{goes}")
        more = len(self.groups) - _IN_TICKET
        return [*lines, *([f"and {count(more, 'more group')} of deviating hosts"] if more > 0 else [])]

    def divided(self) -> list[str]:
        """Return what the two groups of a divided fleet differ in."""
        return [
            f"the two groups of hosts in {count(two.metrics, 'metric')} "
            + (f"differ in {clean('; '.join(two.settings[:_NAMED]))}" if two.settings else "differ in no setting")
            for two in self.divisions
        ]

    @property
    def everywhere(self) -> str:
        """What differs on most hosts, as a sentence, or an empty string."""
        return f"Differs everywhere: {clean(', '.join(self.drift.everywhere))}." if self.drift.everywhere else ""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "hosts": self.drift.hosts,
            "golden": dict(self.drift.golden),
            "everywhere": list(self.drift.everywhere),
            "deviations": [
                {
                    "hosts": list(group.hosts),
                    "settings": {d.setting: {"value": d.value, "golden": d.golden} for d in group.deviations},
                    "losses": [
                        {
                            "check": loss.case.check,
                            "metric": loss.case.metric,
                            "share": loss.share,
                            "chance": loss.chance,
                        }
                        for loss in group.losses
                    ],
                }
                for group in self.groups[:_KEPT]
            ],
            "divisions": [
                {"better": list(two.better), "worse": list(two.worse), "settings": list(two.settings)}
                for two in self.divisions
            ],
        }


def section(configurations: Mapping[str, Configuration], findings: Findings) -> Section | None:
    """Return the section of a system's hosts; None if the configuration of none of them is known."""
    own = {host: configurations[host] for host in findings.hosts if host in configurations}
    if not own:
        return None
    apart = drift(own)
    return Section(apart, groups(apart, findings), divisions(own, findings))


def _settings(group: Group) -> str:
    texts = group.settings()
    more = len(texts) - _NAMED
    return clean("; ".join(texts[:_NAMED]) + (f"; and {count(more, 'more setting')}" if more > 0 else ""))


def _hosts(hosts: Sequence[str]) -> str:
    return f"{count(len(hosts), 'host')}, {folded(hosts)}"
