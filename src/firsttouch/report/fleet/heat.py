# SPDX-License-Identifier: Apache-2.0
"""Hosts x metrics: the worst hosts and the worst metrics one by one, the others summed up beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from firsttouch.report.fleet.ranks import Ranks
from firsttouch.report.text import count
from firsttouch.verdict import sure
from firsttouch.verdict.model import ORDER

#: Hosts and metrics that have a row or a column of their own.
MOST_HOSTS, MOST_METRICS = 60, 30
#: Where there are more hosts than rows, those that pass have as many beside the others, to compare with.
_PASSING = 8
#: Relative differences at which a cell's colour changes.
STEPS = (0.01, 0.025, 0.05, 0.1, 0.2)


@dataclass(frozen=True)
class Cell:
    """A cell: the *text* is the change in percent, *mark* a sign of the verdict, *tone* names its colour."""

    text: str
    mark: str = ""
    tone: str = ""


@dataclass(frozen=True)
class Heat:
    """The map: a row of cells per host (*rows*), columns named by *metrics*; *others* are the hosts left over.

    The last column sums up the metrics that have none.
    """

    metrics: Sequence[str]
    rows: Sequence[tuple[str, str, Sequence[Cell]]]
    others: int
    left_out: int


_SIGNS = {"pass": "", "suspect": "?", "invalid": "!", "fail": "x"}
#: What the sign in a cell means.
MARKS = {sign: word for word, sign in _SIGNS.items() if sign} | {"-": "not measured"}


def legend() -> dict[str, Any]:
    """Return what a template says of the map's colours and signs."""
    return {"steps": STEPS, "marks": MARKS, "surest": sure.told(sure.FAIL_AT)}


def heat(ranks: Ranks) -> Heat | None:
    """Return the map of a fleet, None where nothing is judged."""
    judged = ranks.judged
    known = judged.passes
    hosts = [h for h in ranks.hosts if h in judged.number]
    if len(hosts) > MOST_HOSTS:
        hosts = hosts[: min(MOST_HOSTS, sum(ranks.words[h] > 0 for h in hosts) + _PASSING)]
    cases = _columns(ranks, hosts)
    if not cases or not hosts:
        return None
    better = [known.cases[c].better for c in cases]
    column = {c: i for i, c in enumerate(cases)}
    rows: list[tuple[str, str, Sequence[Cell]]] = []
    for host in hosts:
        cells = [Cell("", "-")] * len(cases)
        rest = []
        for group in judged.groups(host):
            case = int(known.case[group])
            change, word = float(judged.change[group]), ORDER[judged.words[group]]
            if case in column:
                cells[column[case]] = _cell(change, better[column[case]], _SIGNS[word])
            elif np.isfinite(change):
                rest.append(change if known.cases[case].better == "higher" else -change)
        cells.append(_summed(rest) if len(ranks.cases) > len(cases) else Cell(""))
        rows.append((host, ORDER[ranks.words[host]], cells))
    others = len(known.hosts) - len(hosts)
    if others:
        rows.append((count(others, "other"), "", _others(ranks, hosts, cases)))
    return Heat([ranks.names.of[c] for c in cases], rows, others, len(ranks.cases) - len(cases))


def _columns(ranks: Ranks, hosts: Sequence[str]) -> list[int]:
    """Return the cases with a column: of each host's reasons one or more, then those with the worst hosts."""
    chosen: set[int] = set()
    for host in hosts:
        reasons = ranks.reason(host)
        if reasons and len(chosen) < MOST_METRICS and chosen.isdisjoint(reasons):
            chosen.add(reasons[0])
    for case in ranks.cases:
        if len(chosen) == MOST_METRICS:
            break
        chosen.add(case)
    return [case for case in ranks.cases if case in chosen]


def _others(ranks: Ranks, hosts: Sequence[str], cases: Sequence[int]) -> list[Cell]:
    """Return the median of the other hosts in each case, and over all other cases."""
    judged = ranks.judged
    known = judged.passes
    named = np.zeros(len(known.hosts), dtype=np.bool_)
    named[[judged.number[h] for h in hosts]] = True
    cells = []
    for case in cases:
        where = known.groups(case)
        changes = judged.change[where][~named[known.host[where]]]
        changes = changes[np.isfinite(changes)]
        cells.append(_cell(float(np.median(changes)), known.cases[case].better, "") if len(changes) else Cell(""))
    return [*cells, Cell("")]


def _summed(changes: Sequence[float]) -> Cell:
    """Return the median of the changes in the other cases, where more is better."""
    return _cell(float(np.median(changes)), "higher", "") if changes else Cell("")


def _cell(change: float, better: str, mark: str) -> Cell:
    if not np.isfinite(change):
        return Cell("", mark or "-")
    step = sum(abs(change) >= s for s in STEPS)
    good = change > 0 if better == "higher" else change < 0
    tone = f"{'g' if good and better != 'neither' else 'b'}{step}" if step else ""
    shown = f"{100 * change:+.1f}"
    text = "0.0" if float(shown) == 0 else shown.replace("-", "\N{MINUS SIGN}")
    return Cell(text, mark, tone)
