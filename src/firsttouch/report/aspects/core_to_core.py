# SPDX-License-Identifier: Apache-2.0
"""Core-to-core latency: a heat map of the pairs of PUs, and the medians by the part that both PUs share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median

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
)
from firsttouch.report.figures.drawing import draw_heatmap
from firsttouch.report.model import Absent, HostView
from firsttouch.report.text import clean, count, span
from firsttouch.units import number

CHECK = "core_to_core"
PAIR, TRANSFER = "pair_latency", "transfer_latency"
_TITLE = "Latency of a cache line between two PUs"
_HOW = (
    "A cell is the time that a cache line takes from one PU to another, one way. Darker is faster. Blocks on the "
    "diagonal are PUs that share a core, a cache or a NUMA node. Pairs that were not measured are empty."
)
#: With more PUs, the matrix has NUMA nodes instead.
_MOST_PUS = 24
#: The closest part that both PUs share, from near to far: the name in records, and the name in texts.
_SHARED = {"core": "core", "cache": "cache", "numa-node": "NUMA node", "package": "package", "host": "host"}

_Pair = tuple[int, int]


def aspect(view: HostView) -> Aspect:
    """Return the medians by the part that PUs share, and the chart of the pairs."""
    medians = sorted(view.select(CHECK, metric=TRANSFER), key=_near_first)
    results = [_result(name, records) for name, records in by_key(medians, _shared).items()]
    banks_of = by_key(filter(_pair, view.select(CHECK, metric=PAIR)), _pair)
    # If there are lines on several banks, the nearest is used.
    by_pair = {pair: min(of_pair, key=lambda r: r.value) for pair, of_pair in banks_of.items() if pair}
    if not by_pair:
        reason = "only medians were recorded, no pairs" if medians else view.why_absent(CHECK)
        return Aspect(results, absent=[Absent(_TITLE, reason)])
    unit = next(iter(by_pair.values())).unit
    pairs = [((f"{a} and {b}", _shared(r)), r) for (a, b), r in sorted(by_pair.items())]
    tables = [value_table(f"Pairs ({unit})", ("PUs", "what both share"), pairs)]
    if medians:
        rows = [((_shared(r), clean(str(r.parameters.get("line", "")))), r) for r in medians]
        tables.insert(0, value_table(f"Medians over pairs ({unit})", ("what both share", "line"), rows))
    chart = Chart(
        key="core-to-core",
        title=_TITLE,
        how=_HOW,
        shows=[r.sentence for r in results]
        or [f"{count(len(by_pair), 'pair')}: {span(r.value for r in by_pair.values())} {unit}."],
        measured=measured([*by_pair.values(), *medians]),
        panels={f"pair latency ({unit})": _matrix(view, by_pair, unit)} if len(by_pair) >= FEWEST_DRAWN else {},
        tables=tables,
    )
    return Aspect(results, [chart])


def _near_first(record: Record) -> tuple[int, str, bool]:
    """Return a key that sorts transfers by the shared part, transfers of a near line first."""
    ranks, name = list(_SHARED), str(record.parameters.get("shared", ""))
    rank = ranks.index(name) if name in ranks else len(ranks)
    return (rank, _shared(record), record.parameters.get("line") == "far")


def _shared(record: Record) -> str:
    """Return the part that both PUs share: ``core``, ``L3 cache``, ``NUMA node``, ``package`` or ``host``."""
    name = str(record.parameters.get("shared", ""))
    level = record.parameters.get("cache_level")
    return clean(f"L{level} cache" if name == "cache" and level else _SHARED.get(name, name))


def _pair(record: Record) -> _Pair | None:
    pus = record.parameters.get("pus")
    is_pair = isinstance(pus, (list, tuple)) and len(pus) == 2 and all(isinstance(p, int) for p in pus)
    return (min(pus), max(pus)) if is_pair and pus is not None else None


def _result(name: str, records: Sequence[Record]) -> Result:
    """Return the median of the pairs that share *name*; of several lines, the nearest one's."""
    record, p = records[0], records[0].parameters
    parts = [f"{p['pairs']} of {count(p['pairs_of'], 'pair')}"] if {"pairs", "pairs_of"} <= p.keys() else []
    parts += [
        clean(f"{p.get('line')} line, {value(r)} with a {r.parameters.get('line')} one") for r in records[1:2]
    ]
    return Result(f"{metric_title(record)}, same {name}", record, "; ".join(parts), is_detail=True)


def _matrix(view: HostView, by_pair: Mapping[_Pair, Record], unit: str) -> Draw:
    pus = sorted({pu for pair in by_pair for pu in pair})
    groups, axis = {pu: pu for pu in pus}, "PU"
    if len(pus) > _MOST_PUS and view.topology is not None:
        groups = {pu: node.index for node in view.topology.numa_nodes for pu in node.pus}
        axis = "PU of NUMA node"
    both_ways = {place: record.value for (a, b), record in by_pair.items() for place in ((a, b), (b, a))}
    by_groups = by_key(both_ways.items(), lambda item: tuple(groups.get(pu, -1) for pu in item[0]))
    cells = {place: [value for _, value in items] for place, items in by_groups.items()}
    order = sorted({row for row, _ in cells})
    values = [[median(cells[a, b]) if (a, b) in cells else None for b in order] for a in order]
    return partial(
        draw_heatmap,
        values,
        rows=[number(row) for row in order],
        columns=[number(row) for row in order],
        highest=max(v for row in values for v in row if v is not None),
        axes=(axis, axis),
        unit=unit,
        empty="",
    )
