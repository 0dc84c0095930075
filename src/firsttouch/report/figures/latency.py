# SPDX-License-Identifier: Apache-2.0
"""The latency curve with the cache levels marked (thesis, figure 3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, floor, log2

from matplotlib.axes import Axes

from firsttouch.report import metrics
from firsttouch.report.figures import drawing as style
from firsttouch.report.figures.drawing import INK, MUTED, SERIES
from firsttouch.report.metrics import Curve
from firsttouch.report.model import Absent, Figure, HostView, Panel, Table
from firsttouch.report.tables import measured, value_table
from firsttouch.report.text import clean, count, listed, nodes, quantity, times
from firsttouch.units import format_bytes

_TITLE = "Latency of a load, by size of the memory it walks"
_HOW = (
    "Each step up is a level of the memory hierarchy that is too small for the data; the plateau at the right is "
    "memory. Random loads show the true latency; prefetchers hide part of the latency of sequential loads."
)
_HEIGHT = 360


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
                        metrics.table(view, [c.largest[1] for c in random]),
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
    top = 20.0 + 20 * len(drawn) + 20 * _rows(caches)
    with style.settings(name):
        drawing, ax = style.axes(style.WIDTH, _HEIGHT + top, (56, 30, 50, top))
        for position, curve in enumerate(drawn):
            sizes = [s for s, _ in curve.points]
            look = {**style.series_style(position), "linewidth": 1.8, "markersize": 3.5}
            (line,) = ax.plot(sizes, [r.value for _, r in curve.points], label=_label(curve), **look)
            low = [min(r.samples) for _, r in curve.points]
            high = [max(r.samples) for _, r in curve.points]
            line.set_gid(
                style.tips(
                    f"{format_bytes(size)}: {style.ends(r.value, a, b)} {r.unit}"
                    for (size, r), a, b in zip(curve.points, low, high, strict=True)
                )
            )
            ax.fill_between(sizes, low, high, color=SERIES[position], alpha=0.22, linewidth=0)
        _axes(ax, drawn)
        _mark(ax, caches)
        ax.legend(
            loc="lower left",
            bbox_to_anchor=(0, 1 + (6 + 20 * _rows(caches)) / (_HEIGHT - 50)),
            borderaxespad=0,
            borderpad=0,
            handlelength=2.6,
        )
        return style.panel(drawing, name=name, title=_TITLE, description=shows)


def _axes(ax: Axes, drawn: Sequence[Curve]) -> None:
    sizes = [s for c in drawn for s, _ in c.points]
    ax.set_xscale("log", base=2)
    first, last = floor(log2(min(sizes))), ceil(log2(max(sizes)))
    ticks = [2**e for e in range(first, last + 1, max(1, ceil((last - first) / 7)))]
    ax.set_xticks(ticks, [format_bytes(t) for t in ticks])
    ax.set_xticks([], minor=True)
    ax.set_xlim(min(sizes) / 1.3, max(sizes) * 1.3)
    ax.set_xlabel("size of the memory walked (bytes, powers of two)")
    ax.set_ylabel("latency (ns, logarithmic)")
    style.logarithmic_axis(ax, (v for c in drawn for _, r in c.points for v in r.samples))


def _label_rows(caches: Sequence[tuple[str, int]]) -> list[int]:
    """Return the row of each cache's label: the next row if the previous label is too close."""
    rows = [0] if caches else []
    for (_, before), (_, size) in pairwise(caches):
        # A label is as wide as a factor of about 16 on the axis.
        rows.append((rows[-1] + 1) % 3 if size < before * 16 else 0)
    return rows


def _rows(caches: Sequence[tuple[str, int]]) -> int:
    return max(_label_rows(caches), default=-1) + 1


def _mark(ax: Axes, caches: Sequence[tuple[str, int]]) -> None:
    low, high = ax.get_xlim()
    for (name, size), row in zip(caches, _label_rows(caches), strict=True):
        if low <= size <= high:
            ax.axvline(size, color=MUTED, linewidth=1.0, linestyle=(0, (2, 3)), zorder=0.5)
            height = 1 + (5 + 20 * row) / (_HEIGHT - 50)
            ax.text(
                size,
                height,
                f"{name} {format_bytes(size)}",
                transform=ax.get_xaxis_transform(),
                ha="center",
                color=INK,
                fontsize=12,
            )


def _table(curve: Curve) -> Table:
    stride = f", stride {format_bytes(curve.stride_bytes)}" if curve.stride_bytes else ""
    caption = f"{_label(curve)}{stride} ({curve.largest[1].unit})"
    return value_table(caption, ("size",), [((format_bytes(size),), record) for size, record in curve.points])
