# SPDX-License-Identifier: Apache-2.0
"""Latency of memory under load at rising rates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from msgspec import Struct

from firsttouch.benchmarks.loaded_latency import CHECK, LATENCY, LOAD, PEAK, SATURATION, UNLOADED
from firsttouch.records.cases import Case, by_key
from firsttouch.records.schema import Record
from firsttouch.report.aspect import FEWEST_DRAWN, Aspect, Chart, Result, measured, metric_title, spread, value
from firsttouch.report.aspects import topology
from firsttouch.report.document import Cell, Entry, Panel, Table
from firsttouch.report.figures import drawing
from firsttouch.report.figures.svg import INK
from firsttouch.report.model import Absent, HostView, banks, pu_nodes
from firsttouch.report.text import clean, count, plain
from firsttouch.units import number, percent

#: The source of the load, as seen from the measuring NUMA node, in the order of figures.
LOADS = ("local", "outgoing", "incoming")

_TITLE = "Latency of memory while it is loaded"
_HOW = (
    "The load grows to the right. A good curve is flat for long and ends far to the right; the star is where "
    "latency has doubled, which is called saturation. Stores move their lines twice, so curves with fewer reads "
    "saturate earlier."
)
#: Load -> heading of its panel.
_HEADINGS = {
    "local": "PUs of NUMA node {node} load its own bank",
    "outgoing": "PUs of NUMA node {node} load bank {bank}",
    "incoming": "Other NUMA nodes load bank {bank}",
}

_HEIGHT = 250
_SATURATION = drawing.Look(INK, marker="star", radius=7)
_THEORY = drawing.Look(INK, line=1.5, dashes="6 4")


def aspect(view: HostView) -> Aspect:
    """Return the saturation of the weakest curve of each kind of load, and the chart of these curves."""
    curves = load_curves(view)
    theory = topology.bank_bandwidth(view)
    results = [r for load in LOADS if (c := weakest(curves, load)) and (r := _result(c, curves, theory))]
    first = [curve for load in dict.fromkeys(c.load for c in curves) if (curve := weakest(curves, load))]
    by_load = [of_load for c in first if (of_load := [o for o in curves if _place(o) == _place(c) and o.points])]
    if not by_load:
        return Aspect(results, absent=[Absent(_TITLE, view.why_absent(CHECK))])
    chart = Chart(
        key="loaded-latency",
        title=_TITLE,
        how=_HOW,
        shows=[r.sentence for r in results] or ["No curve states where it saturates."],
        measured=measured(r for of_load in by_load for c in of_load for r in c.records()),
        panels={
            _heading(of_load[0]): partial(_panel, of_load, theory)
            for of_load in by_load
            if max(len(curve.points) for curve in of_load) >= FEWEST_DRAWN
        },
        tables=[
            _merits(curves, theory),
            *(_points(c) for of_load in by_load for c in of_load),
        ],
    )
    return Aspect(results, [chart])


def _result(curve: LoadCurve, curves: Sequence[LoadCurve], theory: float | None) -> Result | None:
    if curve.saturation is None:
        return None
    of_load = [c for c in curves if (c.load, c.read_share) == (curve.load, curve.read_share)]
    saturated = sum(c.saturation is not None for c in of_load)
    parts = [f"bank {curve.load_bank}" + (f", the first of {saturated} to saturate" if saturated > 1 else "")]
    parts += [f"{percent(curve.saturation.value / theory)} of theory"] if theory else []
    if not curve.saturates:
        parts.append("its peak, as latency does not double")
    elif curve.peak:
        parts.append(f"peak {value(curve.peak)}")
    parts += [f"{value(curve.unloaded)} without load"] if curve.unloaded else []
    return Result(
        f"{metric_title(curve.saturation)}, {curve.load} load, {curve.name}", curve.saturation, "; ".join(parts)
    )


# ----------------------------------------------------------------------
# The curves of a host.


class LoadPoint(Struct, frozen=True):
    """A point of a curve: the latency at a bandwidth of the load (None: no load)."""

    latency: Record
    bandwidth: Record | None

    @property
    def x(self) -> float:
        """The bandwidth of the load."""
        return self.bandwidth.value if self.bandwidth else 0.0


class LoadCurve(Struct, frozen=True):
    """The latency curve of a NUMA node's own bank under a kind of *load* on *load_bank*.

    *read_share* is the part of reads in the traffic. *points* have rising rates. *unloaded*, *saturation* and
    *peak* are its figures of merit, None if they were not recorded.
    """

    load: str
    read_share: float
    node: int
    load_bank: int
    program: str
    points: tuple[LoadPoint, ...]
    unloaded: Record | None
    saturation: Record | None
    peak: Record | None

    @property
    def saturates(self) -> bool:
        """Whether the load doubles the latency in most repetitions; otherwise the saturation is the peak."""
        if self.saturation is None or self.peak is None:
            return self.saturation is not None
        pairs = list(zip(self.saturation.samples, self.peak.samples, strict=False))
        return 2 * sum(saturation < peak for saturation, peak in pairs) > len(pairs)

    @property
    def name(self) -> str:
        """``reads 75 %``, the name of the curve within its load."""
        return f"reads {round(100 * self.read_share)} %"

    def records(self) -> list[Record]:
        """Return the records of all points, latencies first."""
        return [*(p.latency for p in self.points), *(p.bandwidth for p in self.points if p.bandwidth)]

    def latency_at(self, bandwidth: float) -> float | None:
        """Return the latency (ns) at a *bandwidth* (GB/s) by interpolation, None beyond the last point."""
        for low, high in pairwise(self.points):
            if low.x <= bandwidth <= high.x and high.x > low.x:
                part = (bandwidth - low.x) / (high.x - low.x)
                return low.latency.value + part * (high.latency.value - low.latency.value)
        return None


def load_curves(view: HostView) -> list[LoadCurve]:
    """Return the curves of a host by load, NUMA node and bank of the load; only reads come first."""
    by_curve = by_key(view.select(CHECK), lambda r: json.dumps(Case.from_record(r).way, default=str))

    def order(curve: LoadCurve) -> tuple[object, ...]:
        rank = LOADS.index(curve.load) if curve.load in LOADS else len(LOADS)
        return (rank, curve.node, curve.load_bank, curve.program, -curve.read_share)

    return sorted(filter(None, map(_curve, by_curve.values())), key=order)


def _curve(records: Sequence[Record]) -> LoadCurve | None:
    by_metric: dict[str, dict[float, Record]] = {}
    for record in records:
        rate = record.parameters.get("rate")
        by_metric.setdefault(record.metric, {})[float(rate) if isinstance(rate, (int, float)) else -1.0] = record
    latencies, rates = by_metric.get(LATENCY, {}), by_metric.get(LOAD, {})
    merits = {metric: next(iter(by_rate.values())) for metric, by_rate in by_metric.items()}
    first = records[0]
    if not pu_nodes(first) or not (latencies or merits.keys() & {UNLOADED, SATURATION, PEAK}):
        return None
    node = pu_nodes(first)[0]
    bank = first.parameters.get("load_bank")
    return LoadCurve(
        load=clean(str(first.parameters["load"])),
        read_share=float(first.parameters["read_share"]),
        node=node,
        load_bank=bank if isinstance(bank, int) else (banks(first) or (node,))[0],
        program=clean(str(first.parameters.get("program", ""))),
        # Points are ordered by rate even where the bandwidth decreases again.
        points=tuple(LoadPoint(latencies[rate], rates.get(rate)) for rate in sorted(latencies)),
        unloaded=merits.get(UNLOADED),
        saturation=merits.get(SATURATION),
        peak=merits.get(PEAK),
    )


def weakest(curves: Sequence[LoadCurve], load: str) -> LoadCurve | None:
    """Return the read-only curve of a load that saturates first."""
    saturations = [(-c.read_share, c.saturation.value, c) for c in curves if c.load == load and c.saturation]
    return min(saturations, key=lambda item: item[:2], default=(0, 0, None))[2]


# ----------------------------------------------------------------------
# The chart.


def _place(curve: LoadCurve) -> tuple[str, int, int, str]:
    return (curve.load, curve.node, curve.load_bank, curve.program)


def _heading(curve: LoadCurve) -> str:
    return _HEADINGS.get(curve.load, curve.load).format(node=curve.node, bank=curve.load_bank)


def _panel(
    curves: Sequence[LoadCurve],
    theory: float | None,
    *,
    name: str,
    title: str,
    heading: str,
    description: str,
) -> Panel:
    latencies = [v for c in curves for p in c.points for v in p.latency.samples]
    rates = [s for c in curves for p in c.points if p.bandwidth for s in p.bandwidth.samples]
    looks = [drawing.series(position) for position in range(len(curves))]
    legend: dict[str, drawing.Look | None] = {
        **{curve.name: look for curve, look in zip(curves, looks, strict=True)},
        "saturation": _SATURATION if any(c.saturates for c in curves) else None,
        "theoretical bandwidth": _THEORY if theory else None,
    }
    axes = drawing.Axes(
        name,
        (
            drawing.zero_based_scale(1.05 * max([theory or 0.0, *rates])),
            drawing.logarithmic_scale(latencies)
            if drawing.wide(latencies)
            else drawing.zero_based_scale(1.08 * max(latencies)),
        ),
        ("bandwidth of the load (GB/s)", "latency (ns)"),
        {label: look for label, look in legend.items() if look},
        heading=heading,
        size=(drawing.WIDTH, _HEIGHT),
    )
    if theory:
        axes.draw_upright(theory, _THEORY)
    for curve, look in zip(curves, looks, strict=True):
        _draw(axes, curve, look)
    places = [
        (c.saturation.value, c.latency_at(c.saturation.value) or c.points[-1].latency.value)
        for c in curves
        if c.saturation and c.saturates
    ]
    tips = [f"saturation: {number(rate)} GB/s, {number(latency)} ns" for rate, latency in places]
    axes.draw_series(_SATURATION, places, tips)
    return axes.canvas.panel(title, description)


def _draw(axes: drawing.Axes, curve: LoadCurve, look: drawing.Look) -> None:
    points = [(p.x, p.latency.value) for p in curve.points]
    spans = []
    for (x, y), p in zip(points, curve.points, strict=True):
        loads, latencies = p.bandwidth.samples if p.bandwidth else (0.0,), p.latency.samples
        spans += [((min(loads), y), (max(loads), y)), ((x, min(latencies)), (x, max(latencies)))]
    # On a busy host the bars would hide the curve.
    axes.draw_error_bars(spans, look.colour, cap=0, stroke_opacity=0.45)
    tips = [f"{curve.name}: {number(x)} GB/s, {number(y)} ns" for x, y in points]
    axes.draw_series(look, points, tips)


def _merits(curves: Sequence[LoadCurve], theory: float | None) -> Table:
    rows = [
        (
            curve.load,
            curve.node,
            curve.load_bank,
            Cell(curve.read_share, percent),
            *(Cell(r.value, number) if r else "" for r in (curve.unloaded, curve.saturation, curve.peak)),
            Cell(curve.saturation.value / theory, percent) if curve.saturation and theory else "unknown",
            spread(curve.saturation) if curve.saturation else "",
        )
        for curve in curves
    ]
    header = (
        *("load", "NUMA node", "loaded bank", "reads", "unloaded (ns)", "saturation (GB/s)", "peak (GB/s)"),
        *("saturation of theory", "its spread"),
    )
    return Table(f"All {count(len(curves), 'curve')}", header, rows)


def _points(curve: LoadCurve) -> Table:
    rows: list[tuple[Entry, ...]] = [
        (
            Cell(p.latency.parameters.get("rate"), plain),
            *(Cell(x, number) for x in (p.x, p.latency.value, min(p.latency.samples), max(p.latency.samples))),
            p.latency.repetitions,
        )
        for p in curve.points
    ]
    header = ("wanted rate", "bandwidth (GB/s)", "latency (ns)", "fastest", "slowest", "n")
    return Table(f"{_heading(curve)}, {curve.name}", header, rows)
