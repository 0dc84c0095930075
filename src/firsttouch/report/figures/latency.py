# SPDX-License-Identifier: Apache-2.0
"""The latency curve with the cache levels marked (thesis, figure 3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, log2

from firsttouch.report import metrics
from firsttouch.report.aspect import comparison_table, measured, value_table
from firsttouch.report.figures import drawing, svg
from firsttouch.report.figures.drawing import Scale
from firsttouch.report.metrics import Curve
from firsttouch.report.model import Absent, Figure, HostView, Panel, Table
from firsttouch.report.text import clean, count, listed, nodes, quantity, times
from firsttouch.units import format_bytes

_TITLE = "Latency of a load, by size of the memory it walks"
_HOW = (
    "Each step up is a level of the memory hierarchy that is too small for the data; the plateau at the right is "
    "memory. Random loads show the true latency; prefetchers hide part of the latency of sequential loads."
)
_HEIGHT = 310
#: Height (px) of a row of labels of caches, and the size of their letters.
_ROW, _LABEL = 18, 12
#: Length (px) of the shortest axis of sizes.
_LENGTH = 380


def figures(view: HostView) -> list[Figure | Absent]:
    """Return the host's latency figure, or why there is none."""
    random = metrics.curves(view, metrics.RANDOM)
    if not random:
        return [Absent(_TITLE, view.why_absent("latency"))]
    sequential = metrics.curves(view, metrics.SEQUENTIAL)
    drawn = _chosen(random, sequential)
    caches = metrics.cache_levels(view.topology, drawn[0].pu_nodes)
    shows = _shows(random, sequential, caches)
    left_out = len(random) + len(sequential) - len(drawn)
    if left_out:
        shows.append(f"The tables below have {count(left_out, 'more curve')}.")
    if not caches:
        shows.append("Cache sizes are not marked, because the topology of this host was not given.")
    return [
        Figure(
            name=f"{view.key}-latency",
            title=_TITLE,
            how=_HOW,
            shows=tuple(shows),
            measured=measured((r for c in drawn for _, r in c.points), "the bands show all of them"),
            panels=(_panel(f"{view.key}-latency", drawn, caches, " ".join(shows)),),
            tables=tuple(
                filter(
                    None,
                    (
                        comparison_table(view, [c.largest[1] for c in random]),
                        *(_table(c) for c in (*random, *sequential)),
                    ),
                )
            ),
        )
    ]


def _chosen(random: Sequence[Curve], sequential: Sequence[Curve]) -> list[Curve]:
    """Return the curves to draw: the first local one, the worst remote one, and two more of the first place.

    These two are one by another program and the first sequential one.
    """
    first = random[0]
    remote = metrics.worst_remote_latency(random, first)
    here = [c for c in (*random, *sequential) if (c.pu_nodes, c.bank) == (first.pu_nodes, first.bank)]
    others = [c for c in here if c.metric == metrics.RANDOM and c.program != first.program]
    hidden = [c for c in here if c.metric == metrics.SEQUENTIAL]
    return [first, *([remote] if remote and remote is not first else []), *others[:1], *hidden[:1]]


def _label(curve: Curve) -> str:
    kind = "random" if curve.metric == metrics.RANDOM else "sequential"
    by = f"; {clean(curve.program)}" if curve.program else ""
    if curve.local:
        return f"{kind}, local ({nodes(curve.bank)}{by})"
    return f"{kind}, {nodes(curve.pu_nodes)} to bank {listed(map(str, curve.bank))}{by}"


def _shows(random: Sequence[Curve], sequential: Sequence[Curve], caches: Sequence[tuple[str, int]]) -> list[str]:
    first = random[0]
    levels = metrics.by_level(first, caches)
    steps = [level for level in levels if level.seen]
    if caches and steps:
        latencies = listed(
            (
                f"{quantity(s.record.value, s.record.unit)} "
                f"{'from' if s.cache_bytes is None else 'in'} {s.name} (at {format_bytes(s.size_bytes)})"
                for s in steps
            ),
            most=9,
        )
        text = [f"A random load takes {latencies}."]
        text += [f"{s.name} is not seen: {s.why_unseen()}." for s in levels if not s.seen]
        if steps[-1].cache_bytes is not None:
            text.append("No size beyond the last cache was measured, so the latency of memory is unknown.")
    else:
        (small, low), (large, high) = first.points[0], first.points[-1]
        text = [
            f"A random load takes {quantity(low.value, low.unit)} at {format_bytes(small)} "
            f"and {quantity(high.value, high.unit)} at {format_bytes(large)}."
        ]
    here = dict(first.points)
    remote = metrics.worst_remote_latency(random, first)
    if remote is not None and first.local:
        size, far = remote.largest
        if size in here and here[size].value > 0:
            text.append(
                f"The farthest pair, {nodes(remote.pu_nodes)} to bank {listed(map(str, remote.bank))}, takes "
                f"{quantity(far.value, far.unit)} at {format_bytes(size)}: "
                f"{times(far.value / here[size].value)} the local latency."
            )
    elif first.local:
        text.append("Only local memory was measured.")
    for curve in sequential:
        size, hidden = curve.largest
        if (curve.pu_nodes, curve.bank) == (first.pu_nodes, first.bank) and size in here:
            text.append(f"Sequential loads take {quantity(hidden.value, hidden.unit)} at {format_bytes(size)}.")
            break
    return text


def _panel(name: str, drawn: Sequence[Curve], caches: Sequence[tuple[str, int]], shows: str) -> Panel:
    looks = [drawing.series(position, line=1.8, radius=2.5) for position in range(len(drawn))]
    sizes = _sizes(drawn)
    marked = {f"{name} {format_bytes(size)}": size for name, size in caches if sizes.low <= size <= sizes.high}
    rows = _rows(marked, sizes)
    chart = drawing.Chart(
        name,
        (sizes, drawing.logarithmic_scale(v for c in drawn for _, r in c.points for v in r.samples)),
        ("size of the memory walked (bytes, powers of two)", "latency (ns, logarithmic)"),
        {_label(curve): look for curve, look in zip(drawn, looks, strict=True)},
        size=(drawing.WIDTH, _HEIGHT),
        above=_ROW * (max(rows, default=-1) + 1),
    )
    for (label, size), row in zip(marked.items(), rows, strict=True):
        x, _ = chart.place(size, 0)
        chart.canvas.text((x, chart.frame.top - 5 - _ROW * row), label, "middle", size=_LABEL)
        chart.draw_upright(size, drawing.Look(svg.MUTED, line=1, dashes="2 3"))
    for curve, look in zip(drawn, looks, strict=True):
        low = [(size, min(r.samples)) for size, r in curve.points]
        high = [(size, max(r.samples)) for size, r in curve.points]
        band = [chart.place(*point) for point in (*low, *reversed(high))]
        chart.canvas.area(band, look.colour, fill_opacity=0.22)
        tips = [
            f"{format_bytes(size)}: {drawing.ends(r.value, a, b)} {r.unit}"
            for (size, r), (_, a), (_, b) in zip(curve.points, low, high, strict=True)
        ]
        chart.draw_series(look, [(size, r.value) for size, r in curve.points], tips)
    return chart.canvas.panel(_TITLE, shows)


def _rows(marked: Mapping[str, int], sizes: Scale) -> list[int]:
    """Return the row of the label of each cache: the lowest in which it does not touch another one."""
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
    return value_table(caption, ("size",), [((format_bytes(size),), record) for size, record in curve.points])
