# SPDX-License-Identifier: Apache-2.0
"""The latency of loads over the size of the memory, with the cache levels marked (thesis, figure 3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from math import ceil, floor, log2
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from firsttouch.benchmarks.probe import NAME
from firsttouch.host.cpusets import format_list
from firsttouch.host.topology import Topology
from firsttouch.records.schema import Record
from firsttouch.report.aspect import (
    FEWEST_DRAWN,
    Aspect,
    Chart,
    Result,
    measured,
    metric_title,
    others_text,
    value,
    value_table,
    way_of,
)
from firsttouch.report.aspects.topology import level_name
from firsttouch.report.document import Cell, Panel, Table
from firsttouch.report.figures import drawing, svg
from firsttouch.report.figures.drawing import Scale
from firsttouch.report.model import Absent, HostView, banks, pu_nodes, whole
from firsttouch.report.text import clean, count, nodes, span, times
from firsttouch.systems.expectation import AS_MEMORY
from firsttouch.units import format_bytes

CHECK = "latency"
RANDOM = "random_latency"
SEQUENTIAL = "sequential_latency"
#: Parameters and values that all records of a curve share.
MemoryWay = tuple[tuple[str, Any], ...]
#: The order of the parameters in the name of a way of measuring; others follow.
_ORDER = ("stride_bytes", "order", "pages", "effort")
Nodes = tuple[int, ...]
#: Names and sizes (bytes) of caches, ascending.
Caches = Sequence[tuple[str, int]]

_TITLE = "Latency of a load, by size of the memory it walks"
_HOW = (
    "Each step up is a level of the memory hierarchy that is too small for the data; the plateau at the right is "
    "memory. Random loads show the true latency; prefetchers hide part of the latency of sequential loads."
)
#: Height of a row of cache labels, and their font size (px).
_ROW, _LABEL = 18, 12
#: The shortest length of the axis of sizes (px).
_LENGTH = 380


def aspect(view: HostView) -> Aspect:
    """Return the latency of each level of the local memory hierarchy, and the chart of the curves."""
    random, sequential = curves(view, RANDOM), curves(view, SEQUENTIAL)
    if not random:
        return Aspect(absent=[Absent(_TITLE, view.why_absent(CHECK))])
    first, remote = random[0], worst_remote(random, random[0])
    caches = cache_levels(view.topology, first.pu_nodes)
    drawn = _chosen(random, sequential)
    local = [c for c in random if c.local and (c.program, c.way) == (first.program, first.way)]
    where = _where(local) if first.local else first.pair
    results = [_result(view, level, remote if first.local else None, where) for level in by_level(first, caches)]
    shows = [result.sentence for result in results]
    if hidden := len(random) + len(sequential) - len(drawn):
        shows.append(f"The tables below have {count(hidden, 'more curve')}.")
    if not caches:
        shows.append("Cache sizes are not marked, because the topology of this host was not given.")
    chart = Chart(
        key=CHECK,
        title=_TITLE,
        how=_HOW,
        shows=shows,
        measured=measured((r for c in drawn for _, r in c.points)),
        panels={"": partial(_panel, drawn, caches)} if len(first.points) >= FEWEST_DRAWN else {},
        tables=[_table(c) for c in (*random, *sequential)],
    )
    return Aspect(results if first.local else [], [chart])


def _where(local: Sequence[Curve]) -> str:
    """Return the NUMA node that represents the host (the first one), and the latencies of all nodes."""
    where, ends = nodes(local[0].pu_nodes), span(c.largest[1].value for c in local)
    return f"{where}, all local ones {ends}" if len(local) > 1 else where


def _result(view: HostView, level: Level, remote: Curve | None, where: str) -> Result:
    label = f"{metric_title(level.record)}, {level.name}"
    at = f"at {format_bytes(level.size_bytes)}"
    if not level.seen:
        return Result(label, compared=level.why_unseen(), text="not seen", is_detail=True)
    if level.cache_bytes is not None:
        return Result(f"{label} ({format_bytes(level.cache_bytes)})", level.record, at, is_detail=True)
    parts = [where] if at == f"at {level.name}" else [where, at]
    if remote is not None:
        size, far = remote.largest
        text = f"worst remote {value(far)}, {remote.pair}{_as_long(far, level.record)}"
        parts.insert(0, text + (f" (at {format_bytes(size)})" if size != level.size_bytes else ""))
    return Result(label, level.record, "; ".join(filter(None, (*parts, others_text(view, level.record)))))


def _as_long(far: Record, near: Record) -> str:
    return f", {times(far.value / near.value)} as long" if near.value > 0 else ""


# ----------------------------------------------------------------------
# The curves of a host, and the sizes that represent caches and memory.


class Curve(Struct, frozen=True):
    """Latency over size (bytes, ascending) for loads from the PUs of some NUMA nodes to one bank.

    Curves of the same *program* and *way* (stride, order of the accesses, pages, ...) are comparable.
    """

    metric: str
    pu_nodes: Nodes
    bank: Nodes
    program: str
    way: MemoryWay
    points: tuple[tuple[int, Record], ...]

    @property
    def local(self) -> bool:
        """Whether the memory is on the NUMA node of the PUs."""
        return self.pu_nodes == self.bank

    @property
    def stride_bytes(self) -> int | None:
        """Bytes between neighbouring addresses, None if not recorded."""
        stride = dict(self.way).get("stride_bytes")
        return stride if isinstance(stride, int) else None

    @property
    def largest(self) -> tuple[int, Record]:
        """The largest size (bytes) and its record."""
        return self.points[-1]

    @property
    def place(self) -> tuple[Nodes, Nodes]:
        """The NUMA nodes of the PUs, and the bank."""
        return self.pu_nodes, self.bank

    @property
    def pair(self) -> str:
        """The place in a sentence: ``NUMA node 0 to bank 1``."""
        return f"{nodes(self.pu_nodes)} to bank {format_list(self.bank)}"


class Level(Struct, frozen=True):
    """A cache level, or memory (*cache_bytes* None), and the measured size that represents it.

    A level is not *seen* if this size fits into it but is as slow as memory: the host has only part of the cache.
    """

    name: str
    cache_bytes: int | None
    size_bytes: int
    record: Record
    seen: bool = True

    def why_unseen(self) -> str:
        """Return what was measured instead of the level."""
        why = "as from memory: the cache is shared with others, or a part of it is reserved"
        return f"{value(self.record)} at {format_bytes(self.size_bytes)}, {why}"


def curves(view: HostView, metric: str) -> list[Curve]:
    """Return the latency curves of *metric*: local ones first, the probe's first, then by NUMA nodes and way."""
    by_curve: dict[tuple[Nodes, Nodes, str, MemoryWay], dict[int, Record]] = {}
    for record in view.select(CHECK, metric=metric):
        way = way_of(record, _ORDER)
        by = str(way.pop("program", ""))
        comparable = tuple((k, v) for k, v in way.items() if isinstance(v, (int, str)))
        key = (pu_nodes(record), banks(record), by, comparable)
        by_curve.setdefault(key, {})[whole(record, "size_bytes")] = record
    unordered = [Curve(metric, *key, tuple(sorted(points.items()))) for key, points in by_curve.items()]
    return sorted(unordered, key=lambda c: (not c.local, c.program != NAME, *c.place, c.program, str(c.way)))


def worst_remote(curves: Sequence[Curve], local: Curve) -> Curve | None:
    """Return the curve to a remote bank with the highest latency at its largest size, comparable with *local*."""
    remote = [c for c in curves if not c.local and (c.program, c.way) == (local.program, local.way)]
    return max(remote, key=lambda c: c.largest[1].value, default=None)


def local_latency(view: HostView) -> Record | None:
    """Return the record that represents the latency of local memory: the largest size of the first local curve."""
    return next((c.largest[1] for c in curves(view, RANDOM) if c.local), None)


def cache_levels(topology: Topology | None, nodes: Sequence[int]) -> list[tuple[str, int]]:
    """Return (name, bytes) of the data caches that the PUs of *nodes* reach, smallest first.

    A host with several kinds of cores may have several sizes of a level; all are returned.
    """
    if topology is None:
        return []
    pus = {pu for node in topology.numa_nodes if node.index in nodes for pu in node.pus}
    sizes = {(c.level, c.size_bytes) for c in topology.caches if c.pus & pus and c.size_bytes}
    return sorted(((level_name(level), size) for level, size in sizes), key=lambda item: item[1])


def by_level(curve: Curve, caches: Sequence[tuple[str, int]]) -> list[Level]:
    """Return the levels that a measured size of the curve represents.

    A cache also holds code and other data (thesis, section 3.3), so the largest size up to half of the cache
    represents it, else the largest that fits. The largest size represents memory if no cache holds it; levels that
    are nearly as slow are not seen.
    """
    levels = []
    for (_, below), (name, size) in pairwise([("", 0), *caches]):
        fitting = [p for p in curve.points if below < p[0] <= size]
        inner = [p for p in fitting if p[0] <= size / 2] or fitting
        if inner:
            levels.append(Level(name, size, *inner[-1]))
    size, record = curve.largest
    if caches and size > caches[-1][1]:
        levels = [replace(level, seen=level.record.value < AS_MEMORY * record.value) for level in levels]
        levels.append(Level("memory", None, size, record))
    elif not caches:
        levels.append(Level(format_bytes(size), None, size, record))
    return levels


# ----------------------------------------------------------------------
# The chart.


def _chosen(random: Sequence[Curve], sequential: Sequence[Curve]) -> list[Curve]:
    """Return the curves to draw: the first local one, the worst remote one, and two more of the first place.

    These two are a curve by another program and the first sequential one.
    """
    first = random[0]
    remote = worst_remote(random, first)
    others = [c for c in random if c.place == first.place and c.program != first.program]
    hidden = [c for c in sequential if c.place == first.place]
    return [first, *([remote] if remote and remote is not first else []), *others[:1], *hidden[:1]]


def _label(curve: Curve) -> str:
    kind = "random" if curve.metric == RANDOM else "sequential"
    by = f"; {clean(curve.program)}" if curve.program else ""
    return f"{kind}, local ({nodes(curve.bank)}{by})" if curve.local else f"{kind}, {curve.pair}{by}"


def _panel(
    drawn: Sequence[Curve], caches: Caches, *, name: str, title: str, heading: str, description: str
) -> Panel:
    looks = [drawing.series(position, line=1.8, radius=2.5) for position in range(len(drawn))]
    sizes = _sizes(drawn)
    marked = {f"{level} {format_bytes(size)}": size for level, size in caches if sizes.low <= size <= sizes.high}
    rows = _rows(marked, sizes)
    axes = drawing.Axes(
        name,
        (sizes, drawing.logarithmic_scale(v for c in drawn for _, r in c.points for v in r.samples)),
        ("size of the memory walked (bytes, powers of two)", "latency (ns, logarithmic)"),
        {_label(curve): look for curve, look in zip(drawn, looks, strict=True)},
        heading=heading,
        size=(drawing.WIDTH, 310),
        above=_ROW * (max(rows, default=-1) + 1),
    )
    for (label, size), row in zip(marked.items(), rows, strict=True):
        x, _ = axes.place(size, 0)
        axes.canvas.text((x, axes.frame.top - 5 - _ROW * row), label, "middle", size=_LABEL)
        axes.draw_upright(size, drawing.Look(svg.MUTED, line=1, dashes="2 3"))
    for curve, look in zip(drawn, looks, strict=True):
        low = [(size, min(r.samples)) for size, r in curve.points]
        high = [(size, max(r.samples)) for size, r in curve.points]
        band = [axes.place(*point) for point in (*low, *reversed(high))]
        axes.canvas.area(band, look.colour, fill_opacity=0.22)
        tips = [
            f"{format_bytes(size)}: {drawing.ends(r.value, a, b)} {r.unit}"
            for (size, r), (_, a), (_, b) in zip(curve.points, low, high, strict=True)
        ]
        axes.draw_series(look, [(size, r.value) for size, r in curve.points], tips)
    return axes.canvas.panel(title, description)


def _rows(marked: Mapping[str, int], sizes: Scale) -> list[int]:
    """Return the row of each cache's label: the lowest one where it touches no other label."""
    rows, ends = [], list[float]()
    for label, size in marked.items():
        middle, half = sizes.share(size) * _LENGTH, svg.width(label, _LABEL) / 2 + 4
        row = next((i for i, end in enumerate(ends) if end <= middle - half), len(ends))
        ends[row : row + 1] = [middle + half]
        rows.append(row)
    return rows


def _sizes(drawn: Sequence[Curve]) -> Scale:
    """Return the axis of sizes, with ticks at powers of two."""
    sizes = [s for c in drawn for s, _ in c.points]
    first, last = floor(log2(min(sizes))), ceil(log2(max(sizes)))
    ticks = [2**e for e in range(first, last + 1, max(1, ceil((last - first) / 7)))]
    low, high = min(sizes) / 1.3, max(sizes) * 1.3
    labelled = [(float(t), format_bytes(t)) for t in ticks if low <= t <= high]
    return Scale(low, high, labelled, logarithmic=True)


def _table(curve: Curve) -> Table:
    stride = f", stride {format_bytes(curve.stride_bytes)}" if curve.stride_bytes else ""
    caption = f"{_label(curve)}{stride} ({curve.largest[1].unit})"
    rows = [((Cell(size, format_bytes),), record) for size, record in curve.points]
    return value_table(caption, ("size",), rows)
