# SPDX-License-Identifier: Apache-2.0
"""Compares two campaigns: what changed, by how much, and how surely."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from markupsafe import Markup
from tabulate import tabulate

import firsttouch
from firsttouch.judge.fleet_level import LOSS
from firsttouch.judge.samples_table import Case, SamplesTable
from firsttouch.judge.sprt import Floats
from firsttouch.judge.verdict import natural
from firsttouch.report.document import DOCUMENT, SCHEMA
from firsttouch.report.fleet import fleet_pages
from firsttouch.report.fleet.ranks import names, worse
from firsttouch.report.text import clean, count, listed, quantity

# ----------------------------------------------------------------------
# What changed between two campaigns of the same hosts, metric by metric: direction, size and certainty.
#
# Hosts are paired, so that what they differ by among themselves does not matter. The size is the median of
# their relative changes, its interval that between two of their order statistics, and p that of the sign test:
# both are exact whatever the distribution (W. J. Conover, Practical nonparametric statistics, 1971). Over all
# metrics, p is corrected by Holm's method (S. Holm, A simple sequentially rejective multiple test procedure,
# 1979).

Word = Literal["worse", "better", "changed", "undecided", "unchanged"]
#: From what has to be looked at first.
ORDER: Sequence[Word] = ("worse", "changed", "better", "undecided", "unchanged")
CONFIDENCE = 0.99
#: With fewer hosts there is no such interval: that between the extremes of 7 covers 98.4 %.
FEWEST = 8
#: A smaller change is none, however certain it is; one within the other figure is none where it may as well be 0.
NEGLIGIBLE, WITHIN = 0.005, LOSS / 2
#: Deviations beyond which a host changed unlike the others: of a million, as many as 1.
_UNLIKE = 4.9
#: From so many hosts on, the binomial distribution is as good as normal.
_EXACT = 1000


@dataclass(frozen=True)
class Change:
    """How a metric changed: medians over *hosts* that have it *before* and *after* (in the case's unit).

    *size* is the median relative change, between *low* and *high* with :data:`CONFIDENCE` (None: too few hosts),
    *p* that of no change (Holm's). *unlike* are hosts that changed otherwise than most, with their changes.
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
    """A host that is in both campaigns and changed unlike the others.

    *changes* are the metrics in which it did, the worst first; *lost* are those that others still have, and *new*
    those that it had not before.
    """

    name: str
    changes: Sequence[tuple[Case, float]]
    lost: Sequence[Case]
    new: Sequence[Case]

    @property
    def worst(self) -> tuple[float, int, int]:
        """How bad its worst change is (a lost metric: 1), and how many metrics it lost and changed in."""
        worst = max((worse(size, case.better) for case, size in self.changes), default=0.0)
        return (max(worst, float(bool(self.lost))), len(self.lost), len(self.changes))


@dataclass(frozen=True)
class Comparison:
    """All changes, what has to be looked at first, and what only one of the campaigns has.

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
    """Compare the valid passes of two campaigns."""
    second = {_key(case): number for number, case in enumerate(after.cases)}
    names = {name: i for i, name in enumerate(after.hosts)}
    to_after = np.array([names.get(name, -1) for name in before.hosts], dtype=np.int64)
    shared = set(before.hosts) & set(after.hosts)
    lost: dict[str, list[Case]] = {}
    new: dict[str, list[Case]] = {}
    found, alone = [], []
    for number, case in enumerate(before.cases):
        other = second.pop(_key(case), None)
        if other is None:
            alone.append(case.name)
            continue
        mine, theirs = _levels(before, number), _levels(after, other)
        there = np.full(len(after.hosts) + 1, np.nan)
        there[theirs[0]] = theirs[1]
        values = there[to_after[mine[0]]]  # -1 is the last one: no such host
        both = np.isfinite(values) & (mine[1] != 0)
        if np.isfinite(values).any():
            had = {before.hosts[i] for i in mine[0]} & shared
            has = {after.hosts[i] for i in theirs[0]} & shared
            for host in had - has:
                lost.setdefault(host, []).append(case)
            for host in has - had:
                new.setdefault(host, []).append(case)
        if both.any():
            hosts = [before.hosts[i] for i in mine[0][both]]
            found.append(_change(case, hosts, mine[1][both], values[both]))
        else:
            alone.append(case.name)
    return Comparison(
        changes=sorted(_decided(found), key=lambda c: (ORDER.index(c.word), -abs(c.size), c.case.name)),
        hosts=int((to_after >= 0).sum()),
        changed=_hosts(found, lost, new),
        only_before=sorted(set(before.hosts) - set(after.hosts)),
        only_after=sorted(set(after.hosts) - set(before.hosts)),
        cases_before=alone,
        cases_after=[after.cases[number].name for number in second.values()],
    )


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


def _levels(passes: SamplesTable, case: int) -> tuple[np.ndarray, Floats]:
    """Return the hosts of a case and the median of each one's valid passes."""
    known, hosts = passes.good([case])
    return hosts, known.medians()


def _change(case: Case, hosts: Sequence[str], before: Floats, after: Floats) -> Change:
    changes = after / before - 1
    size = float(np.median(changes))
    low, high = interval(changes)
    deviation = float(np.median(np.abs(changes - size))) / 0.6745
    far = np.abs(changes - size)
    beyond = np.flatnonzero(far > max(_UNLIKE * deviation, WITHIN)) if len(hosts) >= FEWEST else np.array([], int)
    order = beyond[np.argsort(-far[beyond], kind="stable")]
    unlike = [(hosts[i], float(changes[i])) for i in order.tolist()]
    middles = float(np.median(before)), float(np.median(after))
    return Change(case, len(hosts), *middles, size, low, high, sign_test(changes), unlike)


def interval(changes: Floats) -> tuple[float, float] | tuple[None, None]:
    """Return the interval of the median with :data:`CONFIDENCE`, Nones where there are too few for one."""
    count = len(changes)
    if count < FEWEST:
        return None, None
    # The largest k of which as few as k - 1 or less below the median are improbable enough.
    if count <= _EXACT:
        k, tail = 0, 0
        while 2 * (tail + math.comb(count, k)) <= (1 - CONFIDENCE) * 2**count:
            tail += math.comb(count, k)
            k += 1
    else:
        k = math.floor((count - 2.5758 * math.sqrt(count)) / 2)
    ordered = np.sort(changes)
    return float(ordered[k - 1]), float(ordered[count - k])


def sign_test(changes: Floats) -> float:
    """Return the two-sided p of no change: as many hosts went up as down (those that did neither aside)."""
    up, down = int((changes > 0).sum()), int((changes < 0).sum())
    count, fewer = up + down, min(up, down)
    if not count:
        return 1.0
    if count <= _EXACT:
        tail = sum(math.comb(count, k) for k in range(fewer + 1))
        return float(min(1.0, 2 * tail / 2**count))
    return float(min(1.0, math.erfc((count / 2 - fewer - 0.5) / math.sqrt(count / 2))))


def _decided(changes: Sequence[Change]) -> list[Change]:
    """Return the changes with their words, and p corrected for how many there are."""
    found: list[Change] = []
    most = 0.0
    for rank, one in enumerate(sorted(changes, key=lambda c: c.p)):
        most = max(most, min(1.0, one.p * (len(changes) - rank)))
        found.append(replace(one, p=most, word=_word(one, most)))
    return found


def _word(one: Change, p: float) -> Word:
    if one.low is None or one.high is None:
        return "undecided"
    reach = max(abs(one.low), abs(one.high))
    if reach <= NEGLIGIBLE or (one.low <= 0 <= one.high and reach <= WITHIN):
        return "unchanged"
    if one.low <= 0 <= one.high or p > 1 - CONFIDENCE:
        return "undecided"
    if one.case.better == "neither":
        return "changed"
    return "better" if (one.size > 0) == (one.case.better == "higher") else "worse"


# ----------------------------------------------------------------------
# How the page of a comparison shows changes: in short for each metric, and a row with a bar for each case.

#: What stands before a word, so that no colour has to be seen.
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
#: Hosts or metrics that a cell names.
_NAMED = 5
_DECIDED = frozenset({"worse", "changed", "better"})


@dataclass(frozen=True)
class Row:
    """A change as *cells* by HEADER, with its *word* and its *bar*."""

    cells: Sequence[str]
    word: Word
    bar: Markup


def rows(changes: Sequence[Change]) -> list[Row]:
    """Return a row for each change, in the same order."""
    called = names([c.case for c in changes]).of
    ends = [x for c in changes for x in (c.size, c.low, c.high) if x is not None]
    reach = max((abs(x) for x in ends), default=0.0) * 1.05 or 1.0
    return [Row(_cells(c, name), c.word, _bar(c, reach)) for c, name in zip(changes, called, strict=True)]


def in_short(changes: Sequence[Change]) -> list[tuple[Word, Sequence[str]]]:
    """Return a row by IN_SHORT for each metric of a check, with its worst word, what has to be looked at first."""
    found: dict[tuple[str, str], list[Change]] = {}
    for one in changes:
        found.setdefault((one.case.check, one.case.metric), []).append(one)
    made = [(min((c.word for c in some), key=ORDER.index), key, some) for key, some in found.items()]
    made.sort(key=lambda item: (ORDER.index(item[0]), -max(abs(c.size) for c in item[2])))
    return [(word, (" ".join(key), *_said(word, some))) for word, key, some in made]


def host_rows(changed: Sequence[Host]) -> list[tuple[str, ...]]:
    """Return a row by HOSTS for each host that changed unlike the others."""
    cases = {id(case): case for host in changed for case in (*(c for c, _ in host.changes), *host.lost, *host.new)}
    called = dict(zip(cases, names(list(cases.values())).of, strict=True))

    def named(some: Sequence[Case]) -> str:
        told = listed([called[id(case)] for case in some], most=2)
        return f"{len(some)}: {told}" if some else ""

    rows: list[tuple[str, ...]] = []
    for host in changed:
        worst = [f"{called[id(case)]} {percent(size)}" for case, size in host.changes]
        number = str(len(host.changes)) if host.changes else ""
        rows.append((host.name, number, listed(worst, most=3), named(host.lost), named(host.new)))
    return rows


def percent(fraction: float) -> str:
    """Return a change in percent, with its sign."""
    return f"{100 * fraction:+.2f} %"


def _said(word: Word, some: Sequence[Change]) -> Iterator[str]:
    counts = {w: sum(c.word == w for c in some) for w in ORDER}
    told = [f"{w} {n}" for w, n in counts.items() if n]
    yield f"{word} in all {len(some)} cases" if len(told) == 1 else f"{', '.join(told)} of {len(some)} cases"
    mine = [c for c in some if c.word == word]
    low, high = min(c.size for c in mine), max(c.size for c in mine)
    yield percent(low) if percent(low) == percent(high) else f"{percent(low)} to {percent(high)}"
    yield _p(max(c.p for c in mine)) if word in _DECIDED else ""


def _p(p: float) -> str:
    return "p below 1e-6" if p < 1e-6 else f"p at most {p:.2g}"


def _cells(one: Change, name: str) -> tuple[str, ...]:
    between = "too few hosts" if one.low is None else f"{percent(one.low)} to {percent(one.high or 0.0)}"
    p = "below 1e-6" if one.p < 1e-6 else f"{one.p:.2g}"
    unlike = listed([f"{host} ({percent(size)})" for host, size in one.unlike], most=_NAMED)
    values = quantity(one.before, one.case.unit), quantity(one.after, one.case.unit)
    return (name, one.word, *values, percent(one.size), between, p, str(one.hosts), unlike)


def _bar(change: Change, reach: float) -> Markup:
    """Return a drawing of the change and its interval: no change in the middle, better to the right.

    Screen readers skip it, because the row states the same in words.
    """
    from firsttouch.report.figures import drawing  # noqa: PLC0415 - imports matplotlib

    side = -1 if change.case.better == "lower" else 1
    middle, height = _WIDTH / 2, _HEIGHT / 2
    low, high, at = (
        middle + side * (change.size if x is None else x) / reach * (middle - 5)
        for x in (change.low, change.high, change.size)
    )
    colour = {"worse": drawing.WARN, "better": drawing.SERIES[0]}.get(change.word, drawing.SERIES[5])
    with drawing.settings("change"):
        canvas = drawing.Canvas(_WIDTH, _HEIGHT)
        canvas.line([(middle, 0), (middle, _HEIGHT)], drawing.MUTED)
        canvas.line([(middle, height), (at, height)], colour, width=2)
        with canvas.group("interval"):
            canvas.rectangle((min(low, high), 4), (max(1.0, abs(high - low)), 8), fill=colour)
        with canvas.group("size"):
            canvas.dot((at, height), 4, colour)
        return canvas.panel("change").svg


# ----------------------------------------------------------------------
# The report of two campaigns compared, before and after something was changed.

#: Lines of a terminal or a ticket.
_SHORT = 20
#: How wide a terminal's columns of hosts are.
_WIDTHS = [24, 8, 48, 32, 32]
_LOST = 40


@dataclass(frozen=True)
class Compared:
    """The *document* of a comparison, and its table for a terminal."""

    document: dict[str, Any]
    rows: Sequence[Sequence[str]]
    hosts: Sequence[Sequence[str]]

    def table(self) -> str:
        """Return the line that counts, the worst hosts, and the changes that have to be looked at first."""
        worst = [[clean(cell) for cell in row] for row in self.hosts[:_SHORT]]
        first = [tabulate(worst, HOSTS, "simple", disable_numparse=True, maxcolwidths=_WIDTHS)]
        shown = [r[:8] for r in self.rows if r[1] != "unchanged"][:_SHORT]
        body = [tabulate(shown, HEADER[:8], "simple", disable_numparse=True)] if shown else []
        return "\n\n".join([self.document["line"], *(first if worst else []), *body])


def build(
    found: Comparison, out: Path, *, names: tuple[str, str], generated: datetime.datetime | None = None
) -> Compared:
    """Write the report of a comparison into the existing folder *out*; *names* are those of the two campaigns."""
    stated = (generated or datetime.datetime.now(datetime.UTC)).isoformat(timespec="seconds")
    counts = {word: sum(c.word == word for c in found.changes) for word in ORDER}
    told = ", ".join(f"{n} {w}" for w, n in counts.items() if n) or "none to compare"
    line = (
        f"{count(len(found.changes), 'metric')} of {count(found.hosts, 'host')} in both: {told}. {_unlike(found)}"
    )
    title = f"What changed from {clean(names[0])} to {clean(names[1])}"
    lost = _lost(found, names)
    machine = {
        "document": DOCUMENT,
        "schema": SCHEMA,
        "kind": "comparison",
        "firsttouch": firsttouch.__version__,
        "title": title,
        "generated": stated,
        "line": line,
        "counts": counts,
        "missing": [{"what": what, "reason": why} for what, why in lost],
        "hosts": [_host(one) for one in found.changed],
        "changes": [_machine(one) for one in found.changes],
    }
    facts: dict[str, Any] = {
        "title": title,
        "generated": stated,
        "version": firsttouch.__version__,
        "line": line,
        "counts": counts,
    }
    hosts = host_rows(found.changed)
    facts |= {
        "lost": lost,
        "short": _SHORT,
        "hosts": hosts,
        "hosts_header": HOSTS,
        **shown(found.changes),
    }
    rows = [row.cells for row in facts["rows"]]
    (out / "index.html").write_text(fleet_pages.html("compare.html.j2", facts), encoding="utf-8")
    (out / "summary.md").write_text(fleet_pages.ticket("compare.md.j2", facts), encoding="utf-8")
    text = json.dumps(machine, indent=1, sort_keys=True, allow_nan=False) + "\n"
    (out / "summary.json").write_text(text, encoding="utf-8")
    return Compared(machine, rows, hosts)


def _unlike(found: Comparison) -> str:
    """Return the sentence that counts hosts that changed unlike the others, with the worst one."""
    if not found.changed:
        return "No single host changed unlike the others." if found.hosts >= FEWEST else ""
    changed = sum(bool(h.changes) for h in found.changed)
    lost = sum(bool(h.lost) for h in found.changed)
    new = sum(bool(h.new) for h in found.changed)
    parts = [f"{count(changed, 'host')} changed unlike the others"] if changed else []
    parts += [f"{count(lost, 'host')} lost metrics that others have"] if lost else []
    parts += [f"{count(new, 'host')} {'has' if new == 1 else 'have'} new metrics"] if new else []
    worst = found.changed[0]
    what = [f"{worst.changes[0][0].name} {percent(worst.changes[0][1])}"] if worst.changes else []
    what += [f"{count(len(worst.lost), 'metric')} gone"] if worst.lost else []
    told = f"; the worst is {worst.name}: {', '.join(what)}" if what else ""
    return f"{', '.join(parts)}{told}."


def _host(one: Host) -> dict[str, Any]:
    return {
        "host": one.name,
        "changes": [{"metric": case.name, "change": size} for case, size in one.changes],
        "lost": [case.name for case in one.lost],
        "new": [case.name for case in one.new],
    }


def shown(changes: Sequence[Change]) -> dict[str, Any]:
    """Return what changes.html.j2 wants."""
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


def _machine(one: Change) -> dict[str, Any]:
    return {
        "metric": one.case.name,
        "unit": one.case.unit,
        "better": one.case.better,
        "verdict": one.word,
        "hosts": one.hosts,
        "before": one.before,
        "after": one.after,
        "change": one.size,
        "low": one.low,
        "high": one.high,
        "p": one.p,
        "unlike": [{"host": host, "change": size} for host, size in one.unlike],
    }


def _lost(found: Comparison, names: tuple[str, str]) -> list[tuple[str, str]]:
    """Return what only one of the campaigns has, hosts first."""
    lost = []
    for hosts, there, other in ((found.only_before, *names), (found.only_after, *reversed(names))):
        lost += [(host, f"in {there}, not in {other}") for host in hosts[:_LOST]]
        if len(hosts) > _LOST:
            lost.append((count(len(hosts) - _LOST, "more host"), f"in {there}, not in {other}"))
    for cases, there, other in ((found.cases_before, *names), (found.cases_after, *reversed(names))):
        lost += [(case, f"no host has it in both: in {there}, not in {other}") for case in cases[:_LOST]]
        if len(cases) > _LOST:
            lost.append((count(len(cases) - _LOST, "more metric"), f"in {there}, not in {other}"))
    return lost
