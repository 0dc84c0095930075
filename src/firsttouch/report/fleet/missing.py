# SPDX-License-Identifier: Apache-2.0
"""What is not there: hosts that did not come, steps that were not finished, metrics that only some hosts have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firsttouch.report import Problem
from firsttouch.report.fleet.names import Names, names
from firsttouch.report.text import count, listed
from firsttouch.verdict import Judged
from firsttouch.verdict.model import natural

#: Lines that a page shows.
MOST = 60
#: Metrics of a host that are named.
_NAMED = 2


@dataclass(frozen=True)
class Lost:
    """What is missing: *every* line as what and why.

    Of as many *hosts* something is missing, as many of these did not come at all (*whole*).
    """

    every: Sequence[tuple[str, str]]
    hosts: int
    whole: int

    @property
    def shown(self) -> Sequence[tuple[str, str]]:
        """The lines that a page shows."""
        return self.every[:MOST]

    @property
    def left_out(self) -> int:
        """How many it does not show."""
        return len(self.every) - len(self.shown)


def table(judged: Sequence[Judged], problems: Sequence[Problem]) -> Lost:
    """Return all that is missing, whole hosts first, then steps and checks, then single metrics."""
    whole: list[tuple[str, str]] = [(p.host or p.name, p.reason) for p in problems if not p.check and not p.host]
    steps: list[tuple[str, str]] = []
    metrics: list[tuple[str, str]] = []
    hosts: set[str] = set()
    gone = 0
    for one in judged:
        called = names(one.passes.cases)
        for host, reasons in sorted(one.missing.items(), key=lambda item: natural(item[0])):
            if reasons:
                hosts.add(host)
                gone += host not in one.number
                (whole if host not in one.number else steps).append((host, "; ".join(reasons)))
        for number in np.flatnonzero(one.absent > 0).tolist():
            host = one.passes.hosts[number]
            hosts.add(host)
            metrics.append((host, _absent(one, host, called)))
    found = {(p.host, p.name) for p in problems if p.check or p.host}
    steps += [(" ".join(filter(None, key)), _why(problems, key)) for key in sorted(found)]
    metrics.sort(key=lambda item: natural(item[0]))
    return Lost([*whole, *steps, *metrics], len(hosts), gone)


def _absent(one: Judged, host: str, called: Names) -> str:
    lost = one.judging.copy()
    lost[one.passes.case[one.groups(host)]] = False
    some = np.flatnonzero(lost).tolist()
    told = listed((called.of[case] for case in some), most=_NAMED)
    return f"{count(len(some), 'metric')} that other hosts were judged by: {told}"


def _why(problems: Sequence[Problem], key: tuple[str, str]) -> str:
    return "; ".join(dict.fromkeys(f"{p.kind}: {p.reason}" for p in problems if (p.host, p.name) == key))
