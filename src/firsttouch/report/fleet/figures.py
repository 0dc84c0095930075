# SPDX-License-Identifier: Apache-2.0
"""Figures of a fleet: heat map, spread and history."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from firsttouch.judge import sprt
from firsttouch.judge.sprt import Floats
from firsttouch.judge.verdict import ORDER
from firsttouch.report.fleet.ranks import Ranks, worse
from firsttouch.report.text import count, listed, number, percent, quantity
from firsttouch.systems.references import Reference

# ----------------------------------------------------------------------
# Hosts x metrics: the worst hosts and the worst metrics one by one, the others summed up beside them.

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
    return {"steps": STEPS, "marks": MARKS, "surest": sprt.certainty_text(sprt.FAIL_AT)}


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


# ----------------------------------------------------------------------
# How a metric is distributed over the hosts: a drawing with the outliers named, or a line of a table.

#: Metrics that are drawn; the others have a line in the table.
MOST_DRAWN = 24
#: Outliers that are named.
_NAMED = 6
_BINS, _WIDTH, _HEIGHT = 41, 330, 96
HEADER = ("metric", "hosts", "expected", "lowest", "5 %", "median", "95 %", "highest", "not pass", "worst host")


@dataclass(frozen=True)
class Spread:
    """A metric over the hosts: its *name*, *sentences* that say it, and the drawing."""

    name: str
    sentences: Sequence[str]
    svg: Markup


def spreads(ranks: Ranks) -> list[Spread]:
    """Return the distributions of the metrics that stand out most."""
    return [_drawn(ranks, case, f"spread{i}") for i, case in enumerate(ranks.cases[:MOST_DRAWN])]


def rows(ranks: Ranks) -> list[tuple[str, ...]]:
    """Return a line of the table for each metric that hosts are judged by, in the same order."""
    return [_row(ranks, case) for case in ranks.cases]


def _values(ranks: Ranks, case: int) -> tuple[Floats, list[int], Reference | None]:
    """Return the changes of the hosts from what is expected, their groups of passes, and what that is."""
    known = ranks.judged.passes
    where = known.groups(case)
    changes = ranks.judged.change[where]
    there = np.isfinite(changes)
    groups = np.arange(where.start, where.stop)[there]
    return changes[there], groups.tolist(), ranks.reference(case)


def _row(ranks: Ranks, case: int) -> tuple[str, ...]:
    changes, groups, reference = _values(ranks, case)
    known = ranks.judged.passes
    one = known.cases[case]
    bad = np.count_nonzero(ranks.judged.words[known.groups(case)])
    if not len(changes) or reference is None:
        return (one.name, str(len(groups)), *[""] * 6, str(bad), "")
    low, first, middle, last, high = np.quantile(changes, (0, 0.05, 0.5, 0.95, 1)).tolist()
    shown = [number(reference.value * (1 + x)) for x in (low, first, middle, last, high)]
    worst = int(np.argmax([worse(x, one.better) for x in (low, high)]))
    at = int(np.argmin(changes) if worst == 0 else np.argmax(changes))
    named = f"{known.hosts[known.host[groups[at]]]} ({100 * float(changes[at]):+.1f} %)"
    return (one.name, str(len(groups)), quantity(reference.value, one.unit), *shown, str(bad), named)


def _drawn(ranks: Ranks, case: int, name: str) -> Spread:
    changes, groups, reference = _values(ranks, case)
    known = ranks.judged.passes
    one = known.cases[case]
    called = ranks.names.of[case]
    where = known.groups(case)
    words = np.bincount(ranks.judged.words[where], minlength=len(ORDER)).tolist()
    told = [f"{n} {w}" for w, n in zip(ORDER, words, strict=True) if n]
    sentences = [f"{count(where.stop - where.start, 'host')}: {', '.join(told)}."]
    if reference is None or not len(changes):
        return Spread(called, [*sentences, *_invalid(ranks, where)], Markup(""))
    limit = max(abs(reference.lower or 0.0), abs(reference.upper or 0.0))
    expected = f"Expected {quantity(reference.value, one.unit)} within {percent(limit)} ({reference.source})."
    order = np.argsort([-worse(float(c), one.better) for c in changes], kind="stable")
    bad = ranks.judged.words[groups] > 0
    beyond = [i for i in order.tolist() if bad[i] or worse(float(changes[i]), one.better) > limit]
    outliers = [_outlier(ranks, groups[i], float(changes[i]), reference) for i in beyond]
    if outliers:
        sentences.append(f"Outside: {listed(outliers, most=_NAMED)}.")
    sentences += _invalid(ranks, where)
    sentences.append(expected)
    return Spread(called, sentences, _histogram(changes, limit, one.better, name, (called, *sentences)))


def _outlier(ranks: Ranks, group: int, change: float, reference: Reference) -> str:
    """Return a host with its value, how far that is from what is expected, its verdict, and how sure that is."""
    judged = ranks.judged
    value = quantity(reference.value * (1 + change), judged.passes.cases[judged.passes.case[group]].unit)
    evidence = float(judged.evidence[group])
    certain = f", {sprt.certainty_text(evidence)}" if np.isfinite(evidence) else ""
    word = ORDER[judged.words[group]]
    return f"{judged.passes.hosts[judged.passes.host[group]]} {value} ({100 * change:+.1f} %, {word}{certain})"


def _invalid(ranks: Ranks, where: slice) -> list[str]:
    """Return which hosts have no valid pass, as a sentence."""
    judged = ranks.judged
    wrong = np.flatnonzero(judged.words[where] == ORDER.index("invalid")) + where.start
    hosts = [judged.passes.hosts[judged.passes.host[group]] for group in wrong.tolist()]
    return [f"Invalid: {listed(hosts, most=_NAMED)}."] if hosts else []


def _histogram(changes: Floats, limit: float, better: str, name: str, told: Sequence[str]) -> Markup:
    """Return hosts by their change: bars (their heights as square roots, that a single host is seen)."""
    reach = max(2 * limit, float(np.abs(changes).max()) * 1.02, 0.01)
    reach = min(reach, 1.0)
    counts, edges = np.histogram(np.clip(changes, -reach, reach), bins=_BINS, range=(-reach, reach))
    tops = np.sqrt(counts / max(1, counts.max())) * (_HEIGHT - 22)
    width = _WIDTH / _BINS
    bars = []
    for i, top in enumerate(tops.tolist()):
        if top:
            middle = float(edges[i] + edges[i + 1]) / 2
            kind = "out" if worse(middle, better) > limit else "in"
            y, x = _HEIGHT - 18 - top, i * width
            bars.append(
                f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width - 1:.1f}" height="{top:.1f}"/>'
            )
    sides = {"higher": (-limit,), "lower": (limit,), "neither": (-limit, limit)}[better]
    lines = [_line(_WIDTH * (0.5 + at / 2 / reach), "limit") for at in sides if abs(at) <= reach]
    axis = f'<text x="0" y="{_HEIGHT - 4}">{-100 * reach:.3g} %</text>'
    axis += f'<text class="middle" x="{_WIDTH / 2}" y="{_HEIGHT - 4}">expected</text>'
    axis += f'<text class="end" x="{_WIDTH}" y="{_HEIGHT - 4}">+{100 * reach:.3g} %</text>'
    head = f'<title id="{name}t">{escape(told[0])}</title><desc id="{name}d">{escape(" ".join(told[1:]))}</desc>'
    body = "".join([*bars, _line(_WIDTH / 2, "middle"), *lines, axis])
    # Every text in it is escaped above, the rest are numbers.
    return Markup(  # noqa: S704
        f'<svg class="spread" role="img" aria-labelledby="{name}t {name}d" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}">{head}{body}</svg>'
    )


def _line(x: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{_HEIGHT - 18}"/>'


# ----------------------------------------------------------------------
# How hosts changed over time: all their passes, of all campaigns.

#: Hosts whose passes are drawn, and metrics of each.
MOST_HISTORIES, _METRICS = 24, 3
#: Days that the table shows, the last ones.
_DAYS = 14
_HISTORY_WIDTH, _HISTORY_HEIGHT = 330, 124
#: Room (px) above the drawing for what its top means, below it for its bottom and for the days.
_TOP, _BOTTOM = 16, 32
#: How the lines of a drawing look, in the order of its metrics (fleet.css).
_LOOKS = ("solid", "dashed", "dotted")
_DAY = 86_400_000


@dataclass(frozen=True)
class Line:
    """The passes of one host: *sentences* that say what happened, and the drawing."""

    host: str
    word: str
    sentences: Sequence[str]
    svg: Markup


@dataclass(frozen=True)
class Days:
    """Metrics outside their limits, by host and day: a row per host, cells as ``outside of measured``."""

    days: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]


def days(ranks: Ranks) -> Days:
    """Return on which days how many passes of the worst hosts that do not pass were outside."""
    judged = ranks.judged
    known = judged.passes
    every = np.unique(known.time // _DAY)[-_DAYS:].tolist() if len(known.time) else []
    rows = []
    for host in [h for h in ranks.hosts if h in judged.number and ranks.words[h]][:MOST_HISTORIES]:
        parts = [_passes(ranks, int(g)) for g in judged.groups(host)]
        day = np.concatenate([times // _DAY for times, _, _ in parts])
        outside = np.concatenate([bad > limit for _, bad, limit in parts])
        cells = []
        for number_of_day in every:
            mine = day == number_of_day
            total = np.count_nonzero(mine)
            cells.append(f"{np.count_nonzero(outside & mine)} of {total}" if total else "")
        rows.append((host, cells))
    return Days([_date(d * _DAY) for d in every], rows)


def lines(ranks: Ranks) -> list[Line]:
    """Return the drawings of the worst hosts that were measured more than once."""
    judged = ranks.judged
    found: list[Line] = []
    for host in ranks.hosts:
        if len(found) == MOST_HISTORIES or ranks.words[host] == 0:
            break
        mine = judged.groups(host)
        mine = mine[(judged.passes.counts[mine] > 1) & np.isfinite(judged.change[mine])]
        if len(mine):
            worst = sorted(mine.tolist(), key=lambda g: (-int(judged.words[g]), -_bad(ranks, g)))
            found.append(_history_line(ranks, host, worst[:_METRICS], f"line{len(found)}"))
    return found


def _bad(ranks: Ranks, group: int) -> float:
    known = ranks.judged.passes
    return worse(float(ranks.judged.change[group]), known.cases[known.case[group]].better)


def _passes(ranks: Ranks, group: int) -> tuple[np.ndarray, Floats, float]:
    """Return the times of a group's valid passes, how much worse each is, and the limit of that."""
    known = ranks.judged.passes
    case = int(known.case[group])
    begin, size = int(known.begins[group]), int(known.counts[group])
    part = slice(begin, begin + size)
    valid = known.valid[part]
    reference = ranks.reference(case)
    if reference is None or not reference.value:
        return known.time[part][:0], known.value[part][:0], 0.0
    better = known.cases[case].better
    change = known.value[part][valid] / reference.value - 1
    bad = -change if better == "higher" else change if better == "lower" else np.abs(change)
    side = reference.lower if better == "higher" else reference.upper
    return known.time[part][valid], bad, abs(side) if side is not None else np.inf


def _history_line(ranks: Ranks, host: str, groups: Sequence[int], name: str) -> Line:
    known = ranks.judged.passes
    parts = [(ranks.names.of[int(known.case[g])], *_passes(ranks, g)) for g in groups]
    times = np.concatenate([t for _, t, _, _ in parts])
    first, last = int(times.min()), int(times.max())
    reach = max(0.02, *(float(np.abs(bad).max()) * 1.05 for _, _, bad, _ in parts))
    body, sentences = [], []
    half = (_HISTORY_HEIGHT - _TOP - _BOTTOM) / 2
    middle = _TOP + half
    for i, (metric, when, bad, limit) in enumerate(parts, start=1):
        x = 6 + (when - first) / max(1, last - first) * (_HISTORY_WIDTH - 12)
        y = middle + np.clip(bad / reach, -1, 1) * (half - 3)
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))
        body.append(f'<polyline class="s{i}" points="{points}"/>')
        body += [
            f'<circle class="s{i}" cx="{p.split(",")[0]}" cy="{p.split(",")[1]}" r="2.5"/>' for p in points.split()
        ]
        if limit <= reach and i == 1:
            at = middle + limit / reach * (half - 3)
            body.append(f'<line class="limit" x1="0" x2="{_HISTORY_WIDTH}" y1="{at:.1f}" y2="{at:.1f}"/>')
        moved = f"from {-100 * bad[0]:+.1f} % to {-100 * bad[-1]:+.1f} %"
        sentences.append(f"{_LOOKS[i - 1].capitalize()}: {metric}, {moved} over {len(bad)} passes")
    word = ORDER[ranks.words[host]]
    desc = f"{host}, {_date(first)} to {_date(last)}: " + "; ".join(sentences)
    head = f'<title id="{name}t">{escape(host)}</title><desc id="{name}d">{escape(desc)}</desc>'
    zero = f'<line class="middle" x1="0" x2="{_HISTORY_WIDTH}" y1="{middle}" y2="{middle}"/>'
    axis = f'<text x="0" y="{_HISTORY_HEIGHT - 4}">{_date(first)}</text>'
    axis += f'<text class="end" x="{_HISTORY_WIDTH}" y="{_HISTORY_HEIGHT - 4}">{_date(last)}</text>'
    axis += f'<text x="0" y="10">+{100 * reach:.3g} % better</text>'
    axis += f'<text x="0" y="{_HISTORY_HEIGHT - 18}">{-100 * reach:.3g} % worse</text>'
    svg = (
        f'<svg class="line" role="img" aria-labelledby="{name}t {name}d" width="{_HISTORY_WIDTH}" '
        f'height="{_HISTORY_HEIGHT}" viewBox="0 0 {_HISTORY_WIDTH} {_HISTORY_HEIGHT}">'
        f"{head}{zero}{''.join(body)}{axis}</svg>"
    )
    # Every text in it is escaped above, the rest are numbers.
    return Line(host, word, sentences, Markup(svg))  # noqa: S704


def _date(milliseconds: int) -> str:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC).strftime("%Y-%m-%d")
