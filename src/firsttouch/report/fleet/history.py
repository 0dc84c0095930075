# SPDX-License-Identifier: Apache-2.0
"""The section about history: a table of what changed when, and a drawing over time of each change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct, field

from firsttouch.judge.drift import Configuration
from firsttouch.judge.history import Change, day, settings_changed
from firsttouch.judge.samples_table import SamplesTable
from firsttouch.judge.sprt import Floats, Groups, Ints
from firsttouch.records.cases import grouped
from firsttouch.report.document import Block, Cell, Drawing, Drawings, Entry, Paragraph, Table, how_to_read
from firsttouch.report.figures.svg import MUTED, SERIES, WARN, Canvas
from firsttouch.report.text import count
from firsttouch.units import quantity, signed_percent

#: Changes that the table has, and those that are drawn; summary.json has more.
MOST_ROWS, MOST_DRAWN, MOST_KEPT = 60, 12, 1000
_HEADER = ("when", "hosts", "metric", "change", "before", "after", "certainty", "configuration")
_NO_CHANGE = (
    "No metric changed for good. It takes at least three sessions before a change and after it to see one."
)
_SEEN = (
    "A change has at least three sessions before it and after it. Changes of many hosts come first, then the "
    "newest."
)
_HOW = (
    "Each point is a session, and up is better; 0 is the level before the change. For many hosts it is their "
    "median, and the line through it spans the middle half of them. The upright dashes are the change, the dots "
    "changes of the configuration."
)
_WIDTH, _HEIGHT = 330, 146
#: Room (px) above the drawing for the meaning of its top and the last change of the configuration, and below it
#: for the meaning of its bottom and for the days.
_TOP, _BOTTOM = 30, 32
_SMALL = 11.0
#: Points of a drawing: sessions of many hosts are put together by time.
_POINTS = 60


class History(Struct, frozen=True):
    """The *changes* of a system's hosts, and their *configurations*, oldest first."""

    changes: Sequence[Change] = ()
    configurations: Mapping[str, Sequence[Configuration]] = field(default_factory=dict)


class Timeline(Struct, frozen=True):
    """What changed: the *blocks* of its section, and the *documents* of the changes."""

    blocks: Sequence[Block]
    documents: Sequence[dict[str, Any]]


def of_fleet(samples: SamplesTable, history: History | None, key: str = "change") -> Timeline:
    """Return the section of the *history* of *samples*; *key* begins the names of its drawings."""
    history = history or History()
    changes = history.changes
    if not changes:
        return Timeline([Paragraph(_NO_CHANGE)], ())
    drawn = changes[:MOST_DRAWN]
    drawings = [
        _drawn(samples, change, history.configurations, f"{key}{number}") for number, change in enumerate(drawn)
    ]
    blocks: list[Block] = [
        Paragraph(f"{_line(changes)}. {_SEEN}"),
        *Table(f"Changes over time: {len(changes)}", _HEADER, [*map(_row, changes)], kind="stack changes").first(
            MOST_ROWS, "summary.json"
        ),
        how_to_read(_HOW),
        Drawings(drawings),
    ]
    return Timeline(blocks, [change.to_dict() for change in changes[:MOST_KEPT]])


def _row(change: Change) -> tuple[Entry, ...]:
    before, after = (Cell(level, partial(quantity, unit=change.case.unit)) for level in change.levels)
    return (
        change.when.removeprefix("on ").removeprefix("between ").replace(" and ", " to "),
        change.who,
        change.metrics,
        Cell(change.change, signed_percent),
        before,
        after,
        change.certainty,
        "; ".join(change.causes),
    )


def _line(changes: Sequence[Change]) -> str:
    of_fleet = sum(len(c.hosts) > 1 for c in changes)
    worse_hosts = len({host for c in changes if len(c.hosts) == 1 and c.worse for host in c.hosts})
    parts = [f"{count(of_fleet, 'change')} of many hosts at once"] if of_fleet else []
    parts += [f"{count(len(changes) - of_fleet, 'change')} of single hosts"] if len(changes) > of_fleet else []
    parts += [f"{count(worse_hosts, 'host')} became worse alone"] if worse_hosts else []
    return "; ".join(parts)


def _drawn(
    samples: SamplesTable, change: Change, configurations: Mapping[str, Sequence[Configuration]], key: str
) -> Drawing:
    """Return the drawing of a change: up is better, 0 is the level before."""
    when, median, low, high = _points(samples, change)
    better = change.case.better
    sign = -1 if better == "lower" else 1
    value, lower, upper, after = (
        sign * (values / change.levels[0] - 1) for values in (median, low, high, np.array(change.levels[1:]))
    )
    first, last = int(when[0]), int(when[-1])
    reach = max(0.02, 1.05 * float(np.abs(np.concatenate([value, after])).max()))
    half = (_HEIGHT - _TOP - _BOTTOM) / 2
    middle = _TOP + half

    def x(time: float) -> float:
        return 6 + (time - first) / max(1, last - first) * (_WIDTH - 12)

    def y(share: float) -> float:
        return middle - float(np.clip(share / reach, -1, 1)) * (half - 3)

    begin = x((change.after + change.before) / 2)
    canvas = Canvas(_WIDTH, _HEIGHT, key)
    canvas.line([(0, middle), (_WIDTH, middle)], MUTED)
    canvas.line([(begin, _TOP), (begin, _HEIGHT - _BOTTOM)], WARN, stroke_dasharray="4 3")
    canvas.line([(begin, y(float(after[0]))), (_WIDTH, y(float(after[0])))], SERIES[0], stroke_width=1.5)
    marks = _marks(change, configurations, first, last)
    for time, _ in marks:
        canvas.line([(x(time), _TOP), (x(time), _HEIGHT - _BOTTOM)], MUTED, stroke_dasharray="2 3")
    for time, v, a, b in zip(when.tolist(), value.tolist(), lower.tolist(), upper.tolist(), strict=True):
        if a != b:
            canvas.line([(x(time), y(a)), (x(time), y(b))], SERIES[0])
        canvas.marker("circle", (x(time), y(v)), 2.5, SERIES[0])
    small = partial(canvas.text, fill=MUTED, size=_SMALL)
    small((0, _HEIGHT - 4), day(first))
    small((_WIDTH, _HEIGHT - 4), day(last), "end")
    sides = ("higher", "lower") if better == "neither" else ("better", "worse")
    small((0, 10), f"{signed_percent(reach)} {sides[0]}")
    small((0, _HEIGHT - 18), f"{signed_percent(-reach)} {sides[1]}")
    if marks:
        place, text = x(marks[-1][0]), marks[-1][1]
        right = place > _WIDTH / 2
        small((place, _TOP - 6), text, "end" if right else "start", room=place if right else _WIDTH - place)
    text = change.text()
    noted = [f"{day(time)}: {text}" for time, text in marks]
    description = ". ".join([text, *noted])
    panel = canvas.panel(f"{change.who}: {change.case.title}", description, "line")
    direction = "" if change.worse is None else ": worse" if change.worse else ": better"
    return Drawing(change.who + direction, panel.svg, [text])


def _points(samples: SamplesTable, change: Change) -> tuple[Ints, Floats, Floats, Floats]:
    """Return times (ms) with the median of the hosts of a change, and the quartiles if these are several."""
    number = samples.cases.index(change.case)
    groups = samples.groups(number)
    rows = samples.rows_of(groups)
    wanted = np.isin(np.array(samples.hosts)[samples.host[groups]], change.hosts)
    good = np.repeat(wanted, samples.counts[groups]) & samples.valid[rows]
    time, value, session = samples.time[rows][good], samples.value[rows][good], samples.session(groups)[good]
    if len(change.hosts) == 1:
        keys = session
    else:
        # Each host is compared with its own level.
        numbers = np.repeat(samples.host[groups], samples.counts[groups])[good]
        host: Ints = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
        before = time <= change.after
        order = np.argsort(host, kind="stable")
        value = value / _levels(host[order], value[order], before[order])[host] * change.levels[0]
        keys = (time - time.min()) * _POINTS // (time.max() - time.min() + 1)
    order = np.argsort(keys, kind="stable")
    _, counts = np.unique(keys, return_counts=True)
    values, times = Groups(value[order], counts), Groups(time[order].astype(float), counts)
    middle = values.medians
    if len(change.hosts) == 1:
        return times.medians.astype(np.int64), middle, middle, middle
    low, high = (values.apply(partial(np.quantile, q=q, axis=1)) for q in (0.25, 0.75))
    return times.medians.astype(np.int64), middle, low, high


def _levels(host: Ints, value: Floats, before: np.ndarray) -> Floats:
    """Return the median of each host before a change, or of all its values if it has none."""
    numbers = np.arange(int(host.max()) + 1)
    ends = np.searchsorted(host, numbers, side="right")
    begins = np.searchsorted(host, numbers)
    parts = [(value[a:b], before[a:b]) for a, b in zip(begins.tolist(), ends.tolist(), strict=True)]
    return np.array([np.median(v[m]) if m.any() else np.median(v) for v, m in parts])


def _marks(
    change: Change, configurations: Mapping[str, Sequence[Configuration]], first: int, last: int
) -> list[tuple[int, str]]:
    """Return when settings of the first host of a change changed, and how; settings of one time are one mark."""
    host = next((h for h in change.hosts if h in configurations), None)
    if host is None:
        return []
    changed = [mark for mark in settings_changed(host, configurations[host]) if first <= mark[0] <= last]
    marks = grouped(changed, lambda mark: mark[0])
    return [
        (time, of_time[0][1] + (f" and {len(of_time) - 1} more" if len(of_time) > 1 else ""))
        for time, of_time in marks.items()
    ]
