# SPDX-License-Identifier: Apache-2.0
"""Compares two campaigns of the same hosts: direction, size and certainty of each change."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from markupsafe import Markup
from tabulate import tabulate

from firsttouch.judge.fleet_level import LOSS
from firsttouch.judge.samples_table import SamplesTable
from firsttouch.judge.sprt import Floats
from firsttouch.judge.statistics import holm, median_interval, robust_deviation, sign_test
from firsttouch.judge.verdict import natural
from firsttouch.records.cases import Case
from firsttouch.report.figures.svg import MUTED, SERIES, WARN, Canvas
from firsttouch.report.fleet import fleet_pages
from firsttouch.report.fleet.ranks import worse
from firsttouch.report.text import clean, count, listed, quantity

# ----------------------------------------------------------------------
# The changes of each metric.
#
# Each host is compared with itself, so differences between hosts do not matter. The size is the median of the
# relative changes, its interval lies between two order statistics, and p is that of the sign test. Both are exact
# for any distribution. p is corrected for the number of metrics by Holm's method.

Word = Literal["worse", "better", "changed", "undecided", "unchanged"]
#: In order of urgency.
ORDER: Sequence[Word] = ("worse", "changed", "better", "undecided", "unchanged")
CONFIDENCE = 0.99
#: Fewer hosts have no such interval: even the extremes of 7 cover only 98.4 %.
FEWEST = 8
#: A change below the first limit is none, however certain. One below the second is none if its interval holds 0.
NEGLIGIBLE, WITHIN = 0.005, LOSS / 2
#: Deviations from the median beyond which a host changed unlike the others: one in a million by chance.
_UNLIKE = 4.9


@dataclass(frozen=True)
class Change:
    """The change of a metric: its medians *before* and *after* (in the unit of the case) on a number of *hosts*.

    *size* is the median relative change, between *low* and *high* with :data:`CONFIDENCE` (None: too few hosts).
    *p* is corrected. *unlike* are the hosts that changed unlike most, with their changes.
    """

    case: Case
    hosts: int
    before: float
    after: float
    size: float
    low: float | None
    high: float | None
    p: float
    unlike: Sequence[tuple[str, float]]
    word: Word = "undecided"


@dataclass(frozen=True)
class Host:
    """A host of both campaigns that changed unlike the others.

    *changes* are its unusual changes, the worst first, *lost* the metrics that only this host lost, *new* those
    that it gained.
    """

    name: str
    changes: Sequence[tuple[Case, float]]
    lost: Sequence[Case]
    new: Sequence[Case]

    @property
    def worst(self) -> tuple[float, int, int]:
        """The size of its worst change (1 for a lost metric), and its numbers of lost and of changed metrics."""
        worst = max((worse(size, case.better) for case, size in self.changes), default=0.0)
        return (max(worst, float(bool(self.lost))), len(self.lost), len(self.changes))


@dataclass(frozen=True)
class Comparison:
    """All changes in order of urgency, and what only one of the campaigns has.

    *changed* are the hosts that changed unlike the others, the worst first.
    """

    changes: Sequence[Change]
    hosts: int
    changed: Sequence[Host]
    only_before: Sequence[str]
    only_after: Sequence[str]
    cases_before: Sequence[str]
    cases_after: Sequence[str]


def compare(before: SamplesTable, after: SamplesTable) -> Comparison:
    """Compare the valid samples of two campaigns."""
    shared = sorted({*before.hosts} & {*after.hosts})
    first, second = (np.searchsorted(samples.hosts, shared) for samples in (before, after))
    numbers = {_key(case): number for number, case in enumerate(after.cases)}
    lost: dict[str, list[Case]] = {}
    new: dict[str, list[Case]] = {}
    changes, alone = [], []
    for number, case in enumerate(before.cases):
        other = numbers.pop(_key(case), None)
        if other is None:
            alone.append(case.title)
            continue
        old, values = _levels(before, number)[first], _levels(after, other)[second]
        had, has = np.isfinite(old), np.isfinite(values)
        if (had & has).any():
            for by_host, changed in ((lost, had & ~has), (new, has & ~had)):
                for host in np.flatnonzero(changed).tolist():
                    by_host.setdefault(shared[host], []).append(case)
        both = had & has & (old != 0)
        if both.any():
            hosts = [shared[host] for host in np.flatnonzero(both).tolist()]
            changes.append(_change(case, hosts, old[both], values[both]))
        else:
            alone.append(case.title)
    return Comparison(
        changes=sorted(_decided(changes), key=lambda c: (ORDER.index(c.word), -abs(c.size), c.case.name)),
        hosts=len(shared),
        changed=_hosts(changes, lost, new),
        only_before=sorted({*before.hosts} - {*shared}),
        only_after=sorted({*after.hosts} - {*shared}),
        cases_before=alone,
        cases_after=[after.cases[number].title for number in numbers.values()],
    )


def _levels(samples: SamplesTable, case: int) -> Floats:
    """Return the median of the valid samples of each host in a case, NaN for a host without any."""
    groups, hosts, _, _ = samples.good([case])
    levels = np.full(len(samples.hosts), np.nan)
    levels[hosts] = groups.medians()
    return levels


def _hosts(
    changes: Sequence[Change], lost: Mapping[str, Sequence[Case]], new: Mapping[str, Sequence[Case]]
) -> list[Host]:
    """Return the hosts that changed unlike the others, the worst first."""
    of: dict[str, list[tuple[Case, float]]] = {}
    for change in changes:
        for host, size in change.unlike:
            of.setdefault(host, []).append((change.case, size))
    hosts = [
        Host(
            name,
            sorted(of.get(name, ()), key=lambda c: (-worse(c[1], c[0].better), c[0].name)),
            lost.get(name, ()),
            new.get(name, ()),
        )
        for name in sorted({*of, *lost, *new}, key=natural)
    ]
    return sorted(hosts, key=lambda h: h.worst, reverse=True)


def _key(case: Case) -> str:
    return json.dumps(
        [case.system, case.check, case.metric, case.unit, case.better, case.parameters], sort_keys=True
    )


def _change(case: Case, hosts: Sequence[str], before: Floats, after: Floats) -> Change:
    changes = after / before - 1
    size = float(np.median(changes))
    low, high = median_interval(changes, CONFIDENCE) or (None, None)
    far = np.abs(changes - size)
    limit = max(_UNLIKE * robust_deviation(far), WITHIN)
    beyond = np.flatnonzero(far > limit).tolist() if len(hosts) >= FEWEST else []
    unlike = [(hosts[i], float(changes[i])) for i in sorted(beyond, key=lambda i: -far[i])]
    medians = float(np.median(before)), float(np.median(after))
    return Change(case, len(hosts), *medians, size, low, high, sign_test(changes), unlike)


def _decided(changes: Sequence[Change]) -> list[Change]:
    """Return the changes with their words and with p corrected by Holm's method."""
    ordered = sorted(changes, key=lambda c: c.p)
    corrected = holm(np.array([c.p for c in ordered])).tolist()
    return [replace(c, p=p, word=_word(c, p)) for c, p in zip(ordered, corrected, strict=True)]


def _word(change: Change, p: float) -> Word:
    if change.low is None or change.high is None:
        return "undecided"
    reach = max(abs(change.low), abs(change.high))
    holds_zero = change.low <= 0 <= change.high
    if reach <= NEGLIGIBLE or (holds_zero and reach <= WITHIN):
        return "unchanged"
    if holds_zero or p > 1 - CONFIDENCE:
        return "undecided"
    if change.case.better == "neither":
        return "changed"
    return "better" if (change.size > 0) == (change.case.better == "higher") else "worse"


# ----------------------------------------------------------------------
# Changes as rows of tables.

#: The sign of a word, for readers who do not see its colour.
SIGNS: Mapping[Word, str] = {
    "worse": "\N{BLACK DOWN-POINTING TRIANGLE}",
    "changed": "\N{BLACK DIAMOND}",
    "better": "\N{BLACK UP-POINTING TRIANGLE}",
    "undecided": "?",
    "unchanged": "=",
}
HEADER = (
    "metric",
    "verdict",
    "before",
    "after",
    "change",
    "99 % interval",
    "p",
    "hosts",
    "hosts unlike the others",
)
IN_SHORT = ("metric", "what changed", "by how much (medians)", "how sure")
HOSTS = ("host", "metrics that changed", "the worst of them", "metrics that are gone", "new metrics")
_WIDTH, _HEIGHT = 120, 16
#: The most hosts or metrics in a cell.
_NAMED = 5
_DECIDED = frozenset({"worse", "changed", "better"})


@dataclass(frozen=True)
class Row:
    """A change as *cells* (see HEADER), with its *word* and its *bar*."""

    cells: Sequence[str]
    word: Word
    bar: Markup


def rows(changes: Sequence[Change]) -> list[Row]:
    """Return a row for each change, in the same order."""
    ends = [x for c in changes for x in (c.size, c.low, c.high) if x is not None]
    reach = max((abs(x) for x in ends), default=0.0) * 1.05 or 1.0
    return [Row(_cells(c), c.word, _bar(c, reach)) for c in changes]


def in_short(changes: Sequence[Change]) -> list[tuple[Word, Sequence[str]]]:
    """Return a row (see IN_SHORT) for each metric of a check with its worst word, in order of urgency."""
    by_metric: dict[tuple[str, str], list[Change]] = {}
    for change in changes:
        by_metric.setdefault((change.case.check, change.case.metric), []).append(change)
    rows = [(min((c.word for c in cases), key=ORDER.index), cases) for cases in by_metric.values()]
    rows.sort(key=lambda row: (ORDER.index(row[0]), -max(abs(c.size) for c in row[1])))
    return [(word, (cases[0].case.title_of_metric, *_summary(word, cases))) for word, cases in rows]


def host_rows(changed: Sequence[Host]) -> list[tuple[str, ...]]:
    """Return a row (see HOSTS) for each host that changed unlike the others."""

    def named(cases: Sequence[Case]) -> str:
        return f"{len(cases)}: {listed([case.title for case in cases], most=2)}" if cases else ""

    rows: list[tuple[str, ...]] = []
    for host in changed:
        worst = [f"{case.title} {_directed(case, size)}" for case, size in host.changes]
        number = str(len(host.changes)) if host.changes else ""
        rows.append((host.name, number, listed(worst, most=3), named(host.lost), named(host.new)))
    return rows


def percent(fraction: float) -> str:
    """Return a change in percent, with its sign."""
    return f"{100 * fraction:+.2f} %"


def _directed(case: Case, size: float) -> str:
    """Return a change in percent and whether it is for the better: ``+9.91 % (worse)``."""
    if case.better == "neither" or not size:
        return percent(size)
    return f"{percent(size)} ({'worse' if worse(size, case.better) > 0 else 'better'})"


def _summary(word: Word, changes: Sequence[Change]) -> Iterator[str]:
    counts = Counter(c.word for c in changes)
    words = ", ".join(f"{w} {counts[w]}" for w in ORDER if counts[w])
    yield f"{word} in all {len(changes)} cases" if len(counts) == 1 else f"{words} of {len(changes)} cases"
    of_word = [c for c in changes if c.word == word]
    low, high = (percent(pick(c.size for c in of_word)) for pick in (min, max))
    yield low if low == high else f"{low} to {high}"
    p = max(c.p for c in of_word)
    yield "" if word not in _DECIDED else "p below 1e-6" if p < 1e-6 else f"p at most {p:.2g}"


def _cells(change: Change) -> tuple[str, ...]:
    interval = "too few hosts" if change.low is None else f"{percent(change.low)} to {percent(change.high or 0.0)}"
    p = "below 1e-6" if change.p < 1e-6 else f"{change.p:.2g}"
    unlike = listed([f"{host} ({percent(size)})" for host, size in change.unlike], most=_NAMED)
    values = quantity(change.before, change.case.unit), quantity(change.after, change.case.unit)
    return (change.case.title, change.word, *values, percent(change.size), interval, p, str(change.hosts), unlike)


def _bar(change: Change, reach: float) -> Markup:
    """Return a drawing of the change and its interval: no change in the middle, better to the right.

    Screen readers skip it, because the row states the same in words.
    """
    side = -1 if change.case.better == "lower" else 1
    middle, height = _WIDTH / 2, _HEIGHT / 2
    low, high, at = (
        middle + side * (change.size if x is None else x) / reach * (middle - 5)
        for x in (change.low, change.high, change.size)
    )
    colour = {"worse": WARN, "better": SERIES[0]}.get(change.word, SERIES[5])
    canvas = Canvas(_WIDTH, _HEIGHT)
    canvas.line([(middle, 0), (middle, _HEIGHT)], MUTED)
    canvas.line([(middle, height), (at, height)], colour, stroke_width=2)
    interval = (max(1.0, abs(high - low)), 8)
    canvas.rectangle((min(low, high), 4), interval, colour, fill_opacity=0.4, class_="interval")
    canvas.marker("circle", (at, height), 4, colour, class_="size", tip=percent(change.size))
    return canvas.panel(kind="change").svg


# ----------------------------------------------------------------------
# The files of a comparison.

#: Lines on a terminal or in a ticket.
_SHORT = 20
#: Widths of the columns of hosts on a terminal, in characters.
_WIDTHS = [24, 8, 48, 32, 32]
_LOST = 40


@dataclass(frozen=True)
class Compared:
    """The summary of a comparison: summary.json (*document*), and the rows of changes and of hosts."""

    document: dict[str, Any]
    rows: Sequence[Sequence[str]]
    hosts: Sequence[Sequence[str]]

    def table(self) -> str:
        """Return the summary line, the worst hosts, and the most urgent changes."""
        worst = [[clean(cell) for cell in row] for row in self.hosts[:_SHORT]]
        first = [tabulate(worst, HOSTS, "simple", disable_numparse=True, maxcolwidths=_WIDTHS)]
        shown = [r[:8] for r in self.rows if r[1] != "unchanged"][:_SHORT]
        body = [tabulate(shown, HEADER[:8], "simple", disable_numparse=True)] if shown else []
        return "\n\n".join([self.document["line"], *(first if worst else []), *body])


def build(
    comparison: Comparison, out: Path, *, names: tuple[str, str], generated: datetime.datetime | None = None
) -> Compared:
    """Write the report of a comparison into the existing folder *out*; *names* are those of the campaigns."""
    stated = (generated or datetime.datetime.now(datetime.UTC)).isoformat(timespec="seconds")
    counts = {word: sum(c.word == word for c in comparison.changes) for word in ORDER}
    words = ", ".join(f"{n} {w}" for w, n in counts.items() if n) or "none to compare"
    both = f"{count(len(comparison.changes), 'metric')} of {count(comparison.hosts, 'host')} in both"
    lost, hosts = _lost(comparison, names), host_rows(comparison.changed)
    facts = {"lost": lost, "short": _SHORT, "hosts": hosts, "hosts_header": HOSTS, **shown(comparison.changes)}
    document = fleet_pages.write(
        out,
        {
            "kind": "comparison",
            "title": f"What changed from {clean(names[0])} to {clean(names[1])}",
            "generated": stated,
            "line": f"{both}: {words}. {_unlike(comparison)}",
            "counts": counts,
            "missing": [{"what": what, "reason": why} for what, why in lost],
            "hosts": [_host(host) for host in comparison.changed],
            "changes": [_change_entry(change) for change in comparison.changes],
        },
        facts,
        indent=1,
    )
    return Compared(document, [row.cells for row in facts["rows"]], hosts)


def _unlike(comparison: Comparison) -> str:
    """Return the sentence that counts the hosts that changed unlike the others, with the worst change."""
    if not comparison.changed:
        return "No single host changed unlike the others." if comparison.hosts >= FEWEST else ""
    changed = sum(bool(h.changes) for h in comparison.changed)
    lost = sum(bool(h.lost) for h in comparison.changed)
    new = sum(bool(h.new) for h in comparison.changed)
    parts = [f"{count(changed, 'host')} changed unlike the others"] if changed else []
    parts += [f"{count(lost, 'host')} lost metrics that others have"] if lost else []
    parts += [f"{count(new, 'host')} {'has' if new == 1 else 'have'} new metrics"] if new else []
    worst = comparison.changed[0]
    what = [f"{worst.changes[0][0].title} {_directed(*worst.changes[0])}"] if worst.changes else []
    what += [f"{count(len(worst.lost), 'metric')} gone"] if worst.lost else []
    which = "the worst is" if worst.worst[0] > 0 else "such as"
    example = f"; {which} {worst.name}: {', '.join(what)}" if what else ""
    return f"{', '.join(parts)}{example}."


def _host(host: Host) -> dict[str, Any]:
    return {
        "host": host.name,
        "changes": [{"metric": case.name, "change": size} for case, size in host.changes],
        "lost": [case.name for case in host.lost],
        "new": [case.name for case in host.new],
    }


def shown(changes: Sequence[Change]) -> dict[str, Any]:
    """Return the variables of changes.html.j2."""
    return {
        "rows": rows(changes),
        "header": HEADER,
        "in_short": in_short(changes),
        "short_header": IN_SHORT,
        "signs": SIGNS,
        "confidence": CONFIDENCE,
        "fewest": FEWEST,
        "negligible": NEGLIGIBLE,
        "within": WITHIN,
    }


def _change_entry(change: Change) -> dict[str, Any]:
    return {
        "metric": change.case.name,
        "unit": change.case.unit,
        "better": change.case.better,
        "verdict": change.word,
        "hosts": change.hosts,
        "before": change.before,
        "after": change.after,
        "change": change.size,
        "low": change.low,
        "high": change.high,
        "p": change.p,
        "unlike": [{"host": host, "change": size} for host, size in change.unlike],
    }


def _lost(comparison: Comparison, names: tuple[str, str]) -> list[tuple[str, str]]:
    """Return what only one of the campaigns has, hosts first."""
    lost = []
    for of_campaigns, noun, why in (
        ((comparison.only_before, comparison.only_after), "host", ""),
        ((comparison.cases_before, comparison.cases_after), "metric", "no host has it in both: "),
    ):
        for items, (there, other) in zip(of_campaigns, (names, names[::-1]), strict=True):
            reason = f"{why}in {there}, not in {other}"
            lost += [(item, reason) for item in items[:_LOST]]
            if len(items) > _LOST:
                lost.append((count(len(items) - _LOST, f"more {noun}"), reason))
    return lost
