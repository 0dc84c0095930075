# SPDX-License-Identifier: Apache-2.0
"""Bandwidth-latency curves: the latency of memory while others load it at rising rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from firsttouch.report import load_curves, metrics
from firsttouch.report.aspect import measured
from firsttouch.report.figures import drawing
from firsttouch.report.figures.drawing import Chart, Look
from firsttouch.report.figures.svg import INK, MUTED, WARN
from firsttouch.report.load_curves import LoadCurve, Program, stated
from firsttouch.report.model import Absent, Figure, HostView, Panel, Reference, References, Table
from firsttouch.report.text import count, number, percent, plain, quantity, times

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
#: Programs in a drawing; the table has all of them.
_MOST_PROGRAMS = 3
_PROGRAMS = tuple(Look(WARN, marker=marker, radius=6) for marker in ("cross", "plus", "rhomb"))
_SATURATION = Look(INK, marker="star", radius=7)
_THEORY = Look(INK, line=1.5, dashes="6 4")
_EXPECTED = Look(MUTED, area=0.22)


def figures(view: HostView, expected: References) -> list[Figure | Absent]:
    """Return the figure of the host's curves, or why there is none; *expected* gives the bands."""
    curves = load_curves.load_curves(view)
    loads = [w for load in dict.fromkeys(c.load for c in curves) if (w := load_curves.weakest(curves, load))]
    shown = [[c for c in curves if _place(c) == _place(worst) and c.points] for worst in loads]
    if not any(shown):
        return [Absent(_TITLE, view.why_absent(load_curves.CHECK))]
    theory = metrics.bank_bandwidth(view)
    name = f"{view.key}-loaded-latency"
    programs = load_curves.programs(view)
    shows = [*(_shows(c, theory, expected) for c in loads), _of_programs(view, programs, curves)]
    panels = [
        _panel(f"{name}-{i}", some, _marks(some, theory, expected, programs), " ".join(shows))
        for i, some in enumerate(filter(None, shown), start=1)
    ]
    return [
        Figure(
            name=name,
            title=_TITLE,
            how=_HOW,
            shows=tuple(shows),
            measured=measured(r for some in shown for c in some for r in c.records()),
            panels=tuple(panels),
            tables=(
                _merits(curves, theory),
                *(_points(c) for some in shown for c in some),
                *([_program_table(programs, curves, theory)] if programs else []),
            ),
        )
    ]


def _place(curve: LoadCurve) -> tuple[str, int, int, str]:
    return (curve.load, curve.node, curve.load_bank, curve.program)


def _heading(curve: LoadCurve) -> str:
    return _HEADINGS.get(curve.load, curve.load).format(node=curve.node, bank=curve.load_bank)


def _shows(curve: LoadCurve, theory: float | None, expected: References) -> str:
    text = f"{_heading(curve)} ({curve.name}): {stated(curve, theory)}"
    if curve.saturation and (reference := expected(curve.saturation)):
        low, high = _ends(reference)
        text += f"; the reference is {_range(low, high, theory)}"
    if curve.unloaded:
        text += f"; {quantity(curve.unloaded.value, curve.unloaded.unit)} without load"
        if curve.points:
            highest = max(curve.points, key=lambda p: p.latency.value)
            text += f", at most {quantity(highest.latency.value, highest.latency.unit)}"
            if curve.unloaded.value > 0:
                text += f" ({times(highest.latency.value / curve.unloaded.value)})"
    return f"{text}."


def _ends(reference: Reference) -> tuple[float, float]:
    ends = [reference.value, *(e for e in (reference.lower, reference.upper) if e is not None)]
    return min(ends), max(ends)


def _range(low: float, high: float, theory: float | None) -> str:
    if theory:
        return f"{100 * low / theory:.0f} to {100 * high / theory:.0f} %"
    return f"{number(low)} to {number(high)} GB/s"


def _of_programs(view: HostView, programs: Sequence[Program], curves: Sequence[LoadCurve]) -> str:
    """Return where programs are on the curve, or why none is drawn."""
    if not programs:
        none = "this host counts no cache misses, as many virtual machines"
        why = none if view.of("counters") else view.why_absent("counters")
        return f"No program is drawn, because its memory traffic is unknown: {why}."
    local = load_curves.weakest(curves, "local")
    texts = []
    for program in programs[:_MOST_PROGRAMS]:
        at = local.latency_at(program.bandwidth) if local else None
        where = f", where latency is {quantity(at, 'ns')}" if at else ""
        texts.append(f"{program.name} moves at least {quantity(program.bandwidth, 'GB/s')} per bank{where}")
    return f"{'; '.join(texts)}."


@dataclass(frozen=True)
class _Marks:
    """What a panel has beside its curves: the theoretical bandwidth, the expected saturation, and programs."""

    theory: float | None
    band: Reference | None
    programs: Sequence[Program]


def _marks(
    curves: Sequence[LoadCurve], theory: float | None, expected: References, programs: Sequence[Program]
) -> _Marks:
    """Return the marks of a panel; programs use their own bank, and are drawn where the curve has latencies."""
    first = curves[0]
    drawn = [p for p in programs[:_MOST_PROGRAMS] if first.load == "local" and first.latency_at(p.bandwidth)]
    return _Marks(theory, expected(first.saturation) if first.saturation else None, drawn)


def _panel(name: str, curves: Sequence[LoadCurve], marks: _Marks, shows: str) -> Panel:
    latencies = [v for c in curves for p in c.points for v in p.latency.samples]
    rates = [s for c in curves for p in c.points if p.bandwidth for s in p.bandwidth.samples]
    band = _ends(marks.band) if marks.band else ()
    looks = [drawing.series(position) for position in range(len(curves))]
    legend: dict[str, Look | None] = {
        **{curve.name: look for curve, look in zip(curves, looks, strict=True)},
        "saturation": _SATURATION if any(c.saturates for c in curves) else None,
        "theoretical bandwidth": _THEORY if marks.theory else None,
        f"expected saturation, {curves[0].name}": _EXPECTED if band else None,
        **{program.name: look for program, look in zip(marks.programs, _PROGRAMS, strict=False)},
    }
    chart = drawing.Chart(
        name,
        (
            drawing.zero_based_scale(1.05 * max([marks.theory or 0.0, *rates, *band])),
            drawing.logarithmic_scale(latencies)
            if drawing.wide(latencies)
            else drawing.zero_based_scale(1.08 * max(latencies)),
        ),
        ("bandwidth of the load (GB/s)", "latency (ns)"),
        {label: look for label, look in legend.items() if look},
        heading=_heading(curves[0]),
        size=(drawing.WIDTH, _HEIGHT),
    )
    if band:
        low, high = (chart.place(end, 0)[0] for end in band)
        size = (max(1.0, high - low), _HEIGHT)
        chart.canvas.rectangle((low, chart.frame.top), size, MUTED, fill_opacity=_EXPECTED.area)
    if marks.theory:
        chart.draw_upright(marks.theory, _THEORY)
    for curve, look in zip(curves, looks, strict=True):
        _draw(chart, curve, look)
    places = [
        (c.saturation.value, c.latency_at(c.saturation.value) or c.points[-1].latency.value)
        for c in curves
        if c.saturation and c.saturates
    ]
    tips = [f"saturation: {number(rate)} GB/s, {number(latency)} ns" for rate, latency in places]
    chart.draw_series(_SATURATION, places, tips)
    for program, look in zip(marks.programs, _PROGRAMS, strict=False):
        place = (program.bandwidth, curves[0].latency_at(program.bandwidth) or 0.0)
        tip = f"{program.name}: {number(program.bandwidth)} GB/s"
        chart.draw_series(look, [place], [tip])
    return chart.canvas.panel(f"{_TITLE}: {_heading(curves[0])}", shows)


def _draw(chart: Chart, curve: LoadCurve, look: Look) -> None:
    points = [(p.x, p.latency.value) for p in curve.points]
    spans = []
    for (x, y), p in zip(points, curve.points, strict=True):
        loads, latencies = p.bandwidth.samples if p.bandwidth else (0.0,), p.latency.samples
        spans += [((min(loads), y), (max(loads), y)), ((x, min(latencies)), (x, max(latencies)))]
    # On a busy host the bars would hide the curve.
    chart.draw_error_bars(spans, look.colour, cap=0, stroke_opacity=0.45)
    tips = [f"{curve.name}: {number(x)} GB/s, {number(y)} ns" for x, y in points]
    chart.draw_series(look, points, tips)


def _merits(curves: Sequence[LoadCurve], theory: float | None) -> Table:
    rows = [
        (
            curve.load,
            str(curve.node),
            str(curve.load_bank),
            percent(curve.read_share),
            *(number(r.value) if r else "" for r in (curve.unloaded, curve.saturation, curve.peak)),
            percent(curve.saturation.value / theory) if curve.saturation and theory else "unknown",
            percent(curve.saturation.spread) if curve.saturation and curve.saturation.repetitions > 1 else "",
        )
        for curve in curves
    ]
    header = (
        *("load", "NUMA node", "loaded bank", "reads", "unloaded (ns)", "saturation (GB/s)", "peak (GB/s)"),
        *("saturation of theory", "its spread"),
    )
    return Table(f"All {count(len(curves), 'curve')}", header, rows, frozenset(range(1, len(header))))


def _points(curve: LoadCurve) -> Table:
    rows = [
        (
            plain(p.latency.parameters.get("rate")),
            number(p.x),
            number(p.latency.value),
            number(min(p.latency.samples)),
            number(max(p.latency.samples)),
            str(p.latency.repetitions),
        )
        for p in curve.points
    ]
    header = ("wanted rate", "bandwidth (GB/s)", "latency (ns)", "fastest", "slowest", "n")
    return Table(f"{_heading(curve)}, {curve.name}", header, rows, frozenset(range(len(header))))


def _program_table(programs: Sequence[Program], curves: Sequence[LoadCurve], theory: float | None) -> Table:
    local = load_curves.weakest(curves, "local")
    rows = []
    for program in programs:
        at = local.latency_at(program.bandwidth) if local else None
        share = percent(program.bandwidth / theory) if theory else "unknown"
        rows.append((program.name, number(program.bandwidth), share, number(at) if at else "beyond the curve"))
    header = ("program", "at least (GB/s per bank)", "of theory", "latency there (ns)")
    return Table("Programs, by hardware counters", header, rows, frozenset({1, 2, 3}))
