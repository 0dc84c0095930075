# SPDX-License-Identifier: Apache-2.0
"""Contention: bandwidth per thread and in total over the number of threads (thesis, figures 3.6 and 3.7)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import partial

from msgspec import Struct

from firsttouch.host.cpusets import format_list
from firsttouch.records.cases import by_key
from firsttouch.records.schema import Record
from firsttouch.report.aspect import (
    FEWEST_DRAWN,
    Aspect,
    Chart,
    Draw,
    Result,
    measured,
    metric_title,
    value,
    value_table,
    way_name,
    way_of,
)
from firsttouch.report.figures import drawing
from firsttouch.report.model import Absent, HostView, banks, pu_nodes, varying_parameters, whole
from firsttouch.report.text import case, count
from firsttouch.units import percent

CHECK = "contention"
EACH = "thread_bandwidth"
TOTAL = "total_bandwidth"
#: The order of the parameters in the name of a way of measuring; others follow.
_ORDER = ("program", "access", "pages", "policy", "effort")
#: Parameters that follow from the number of threads and therefore do not identify a series.
_FOLLOWING = ("threads", "array_bytes", "pu_nodes")

#: Records by threads, ascending; and such series by name.
Points = dict[int, Record]
Series = dict[str, Points]

_TITLE = "Contention for one memory bank"
_HOW = (
    "The line per thread is level if the threads do not disturb each other, and falls if they share the bandwidth "
    "of the bank. The total stops rising where the bank, or the path to it, is saturated."
)
_NEAREST = " Threads that were measured on several NUMA nodes are drawn for the one nearest to the bank."


def aspect(view: HostView) -> Aspect:
    """Return the bandwidth of few and of many threads by the first way of measuring, and a chart per way."""
    ways = ways_of(view)
    if not ways:
        return Aspect(absent=[Absent(_TITLE, view.why_absent(CHECK))])
    charts = [_chart(f"contention-{position}", way) for position, way in enumerate(ways, start=1)]
    return Aspect(_results(ways[0]), charts)


def _results(way: Way) -> list[Result]:
    return [r for key, points in way.each.items() for r in _of_series(key, points, way.total.get(key, {}))]


def _of_series(key: str, each: Points, total: Points) -> Iterator[Result]:
    few, many = min(each), max(each)
    for threads in dict.fromkeys((few, many)):
        record = each[threads]
        compared = [f"bank {format_list(banks(record))}"] if banks(record) else []
        if threads != few and each[few].value > 0:
            compared.append(f"{percent(record.value / each[few].value)} of {count(few, 'thread')}")
        if threads in total and threads > 1:
            compared.append(f"{value(total[threads])} in total")
        label = ", ".join(filter(None, (metric_title(record), key, count(threads, "thread"))))
        yield Result(label, record, ", ".join(compared), f"{value(record)} per thread", is_detail=threads != many)


# ----------------------------------------------------------------------
# The ways of measuring.


class Way(Struct, frozen=True):
    """One way of measuring (kind of accesses, pages, ...): bandwidth per thread (*each*) and in *total*.

    *positions* are the records per thread of PUs on several NUMA nodes with the same bank.
    """

    name: str
    each: Series
    total: Series
    positions: tuple[Record, ...]


def ways_of(view: HostView) -> list[Way]:
    """Return every way of measuring contention among the host's valid records."""

    def name_of_way(record: Record) -> str:
        """Return a text that identifies a way of measuring, and sorts by its name."""
        way = way_of(record, _ORDER)
        return json.dumps([(way.get(name, ""), name) for name in dict.fromkeys((*_ORDER, *way))], default=str)

    by_way = by_key(view.select(CHECK), name_of_way)
    result = []
    for _, records in sorted(by_way.items()):
        each = [r for r in records if r.metric == EACH]
        total = [r for r in records if r.metric == TOTAL]
        name = way_name(way_of(records[0], _ORDER))
        by_bank = by_key(each, lambda r: (whole(r, "threads"), banks(r)))
        positions = tuple(r for members in by_bank.values() if len(members) > 1 for r in members)
        result.append(Way(name, _series(view, each), _series(view, total), positions))
    return [way for way in result if way.each or way.total]


def _series(view: HostView, records: Iterable[Record]) -> Series:
    """Return the series, from the NUMA node nearest to the bank if threads were measured on several."""
    ordered = sorted(records, key=lambda r: (whole(r, "threads"), _distance(view, r), pu_nodes(r)))
    names = varying_parameters(ordered, ignore=_FOLLOWING)
    series: Series = {}
    for record in ordered:
        key = case({n: record.parameters.get(n) for n in names})
        series.setdefault(key, {}).setdefault(whole(record, "threads"), record)
    return dict(sorted(series.items()))


def _distance(view: HostView, record: Record) -> float:
    """Return the mean distance from PUs to memory according to the firmware, else the share of remote pairs."""
    pairs = [(node, bank) for node in pu_nodes(record) for bank in banks(record)]
    if not pairs:
        return 0.0
    if view.topology is None or not view.topology.distances:
        return sum(node != bank for node, bank in pairs) / len(pairs)
    return sum(view.topology.distance(node, bank) for node, bank in pairs) / len(pairs)


# ----------------------------------------------------------------------
# The chart.


def _chart(key: str, way: Way) -> Chart:
    parts = {title: s for title, s in (("Per thread", way.each), ("All threads together", way.total)) if s}
    tables = [
        value_table(
            f"{', '.join(filter(None, (title, name)))} ({_unit(series)})",
            ("threads",),
            [((threads,), r) for threads, r in points.items()],
        )
        for title, series in parts.items()
        for name, points in series.items()
    ]
    if way.positions:
        rows = [
            ((format_list(pu_nodes(r)), format_list(banks(r)), r.parameters["threads"]), r)
            for r in sorted(way.positions, key=lambda r: (r.parameters["threads"], pu_nodes(r), banks(r)))
        ]
        caption = f"Few threads on one NUMA node, per thread ({way.positions[0].unit})"
        tables.append(value_table(caption, ("NUMA node", "bank", "threads"), rows))
    return Chart(
        key=key,
        title=": ".join(filter(None, (_TITLE, way.name))),
        how=_HOW + (_NEAREST if way.positions else ""),
        shows=[r.sentence for r in _results(way)] or ["Only totals were measured."],
        measured=measured(r for series in parts.values() for points in series.values() for r in points.values()),
        panels={
            title: _panel(series)
            for title, series in parts.items()
            if max(map(len, series.values())) >= FEWEST_DRAWN
        },
        tables=tables,
    )


def _panel(series: Series) -> Draw:
    lines = {
        key: [drawing.as_point(threads, r) for threads, r in points.items()] for key, points in series.items()
    }
    return partial(drawing.draw_lines, lines, label=f"bandwidth ({_unit(series)})", size=(440, 250))


def _unit(series: Series) -> str:
    return next(r.unit for points in series.values() for r in points.values())
