# SPDX-License-Identifier: Apache-2.0
"""Contention curves: bandwidth per thread and in total over the number of threads (figures 3.6 and 3.7)."""

from __future__ import annotations

from firsttouch.host.cpusets import format_list
from firsttouch.records.schema import Record
from firsttouch.report import metrics
from firsttouch.report.aspect import measured, value_table
from firsttouch.report.figures import drawing
from firsttouch.report.metrics import Series, Way
from firsttouch.report.model import Absent, Figure, HostView, Panel, Table, banks, pu_nodes
from firsttouch.report.text import count, number, percent, quantity, times

_TITLE = "Contention for one memory bank"
_HOW = (
    "The line per thread is level if the threads do not disturb each other, and falls if they share the bandwidth "
    "of the bank. The total stops rising where the bank, or the path to it, is saturated."
)
_HEIGHT = 250


def figures(view: HostView) -> list[Figure | Absent]:
    """Return a figure per way of measuring the host's contention, or why there is none."""
    ways = metrics.ways(view)
    if not ways:
        return [Absent(_TITLE, view.why_absent("contention"))]
    return [_figure(f"{view.key}-contention-{i}", way) for i, way in enumerate(ways, start=1)]


def _figure(name: str, way: Way) -> Figure:
    parts = ((1, "Per thread", way.each), (2, "All threads together", way.total))
    shows = _shows(way.each, way.total)
    by_position = [_positions(way)] if way.positions else []
    return Figure(
        name=name,
        title=f"{_TITLE}: {way.name}" if way.name else _TITLE,
        how=_HOW,
        shows=shows,
        measured=measured(
            (r for s in (way.each, way.total) for points in s.values() for r in points.values()),
        ),
        panels=tuple(_panel(f"{name}-{i}", title, s, " ".join(shows)) for i, title, s in parts if s),
        tables=(
            *(_table(title, key, points) for _, title, s in parts for key, points in s.items()),
            *by_position,
        ),
    )


def _positions(way: Way) -> Table:
    """Return the table of the threads that were measured on several NUMA nodes, for every bank."""
    rows = [
        ((format_list(pu_nodes(r)), format_list(banks(r)), str(r.parameters["threads"])), r)
        for r in sorted(way.positions, key=lambda r: (r.parameters["threads"], pu_nodes(r), banks(r)))
    ]
    caption = f"Few threads on one NUMA node, per thread ({way.positions[0].unit})"
    return value_table(caption, ("NUMA node", "bank", "threads"), rows)


def _shows(each: Series, total: Series) -> tuple[str, ...]:
    parts = []
    for key, points in each.items():
        few, many = min(points), max(points)
        start, end = points[few], points[many]
        text = f"{key}: " if key else ""
        if few == many:
            parts.append(f"{text}{quantity(end.value, end.unit)} per thread with {count(many, 'thread')}.")
            continue
        text += f"with {count(many, 'thread')} each gets {quantity(end.value, end.unit)}"
        if start.value > 0:
            text += (
                f", {percent(end.value / start.value)} of the {quantity(start.value, start.unit)} "
                f"with {count(few, 'thread')}"
            )
        sums = total.get(key, {})
        if few in sums and many in sums and sums[few].value > 0:
            peak = max(sums, key=lambda t: sums[t].value)
            growth = times(sums[many].value / sums[few].value)
            text += f"; {number(many / few)} times the threads give {growth} the total"
            text += f", whose highest value is {quantity(sums[peak].value, sums[peak].unit)} "
            text += f"with {count(peak, 'thread')}"
        parts.append(f"{text}.")
    if not parts:
        parts = ["Only totals were measured."]
    return tuple(p[0].upper() + p[1:] for p in parts)


def _panel(name: str, title: str, series: Series, shows: str) -> Panel:
    unit = next(iter(next(iter(series.values())).values())).unit
    return drawing.draw_lines(
        {key: [drawing.of(threads, r) for threads, r in points.items()] for key, points in series.items()},
        label=f"bandwidth ({unit})",
        name=name,
        title=f"{_TITLE}: {title}",
        description=shows,
        size=(440, _HEIGHT),
        heading=title,
    )


def _table(title: str, key: str, points: dict[int, Record]) -> Table:
    unit = next(iter(points.values())).unit
    caption = f"{title}{', ' + key if key else ''} ({unit})"
    return value_table(caption, ("threads",), [((str(threads),), record) for threads, record in points.items()])
