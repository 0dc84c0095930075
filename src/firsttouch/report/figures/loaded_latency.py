# SPDX-License-Identifier: Apache-2.0
"""Bandwidth-latency curves: the latency of memory while others load it at rising rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from firsttouch.report import load_curves, metrics
from firsttouch.report.figures import drawing
from firsttouch.report.figures.drawing import INK, MUTED, WARN
from firsttouch.report.load_curves import LoadCurve, Program, stated
from firsttouch.report.model import Absent, Figure, HostView, Panel, Reference, References, Table
from firsttouch.report.tables import measured
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
_HEIGHT = 300
#: Programs in a drawing; the table has all of them.
_MOST_PROGRAMS = 3
#: The longest name of a program in a legend of two columns.
_LABEL = 34


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
            measured=measured(
                (r for some in shown for c in some for r in c.records()), "the bars show all of them"
            ),
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

    def __len__(self) -> int:
        return bool(self.theory) + (self.band is not None) + len(self.programs)


def _marks(
    curves: Sequence[LoadCurve], theory: float | None, expected: References, programs: Sequence[Program]
) -> _Marks:
    """Return the marks of a panel; programs use their own bank, and are drawn where the curve has latencies."""
    first = curves[0]
    drawn = [p for p in programs[:_MOST_PROGRAMS] if first.load == "local" and first.latency_at(p.bandwidth)]
    return _Marks(theory, expected(first.saturation) if first.saturation else None, drawn)


def _panel(name: str, curves: Sequence[LoadCurve], marks: _Marks, shows: str) -> Panel:
    entries = len(curves) + any(c.saturates for c in curves) + len(marks)
    columns = 2
    top = 34.0 + 20 * -(-entries // columns)
    with drawing.settings(name):
        canvas, ax = drawing.axes(drawing.WIDTH, _HEIGHT + top, (64, 16, 50, top))
        if marks.band is not None:
            ax.axvspan(
                *_ends(marks.band),
                color=MUTED,
                alpha=0.22,
                linewidth=0,
                label=f"expected saturation, {curves[0].name}",
            )
        if marks.theory:
            ax.axvline(
                marks.theory, color=INK, linewidth=1.5, linestyle=(0, (4, 3)), label="theoretical bandwidth"
            )
        for position, curve in enumerate(curves):
            _draw(ax, curve, position)
        _mark(ax, curves)
        for program, marker in zip(marks.programs, ("X", "P", "d"), strict=False):
            at = curves[0].latency_at(program.bandwidth) or 0.0
            label = program.name if len(program.name) <= _LABEL else f"{program.name[: _LABEL - 1]}…"
            (mark,) = ax.plot([program.bandwidth], [at], marker, color=WARN, markersize=10, label=label, zorder=5)
            mark.set_gid(drawing.tips([f"{program.name}: {number(program.bandwidth)} GB/s"]))
        _axes(ax, curves, marks.theory)
        ax.set_title(_heading(curves[0]), loc="left", fontsize=14, pad=top - 22)
        # From the left edge of the drawing: labels are long.
        drawing.legend(ax, columns, -56 / (drawing.WIDTH - 80))
        return drawing.panel(canvas, name=name, title=f"{_TITLE}: {_heading(curves[0])}", description=shows)


def _draw(ax: Axes, curve: LoadCurve, position: int) -> None:
    latencies = [p.latency for p in curve.points]
    rates = [p.bandwidth.samples if p.bandwidth else (0.0,) for p in curve.points]
    x, y = [p.x for p in curve.points], [r.value for r in latencies]
    look = drawing.series_style(position)
    line, *_ = ax.errorbar(
        x,
        y,
        xerr=drawing.error_bars(x, [min(s) for s in rates], [max(s) for s in rates]),
        yerr=drawing.error_bars(y, [min(r.samples) for r in latencies], [max(r.samples) for r in latencies]),
        elinewidth=1,
        # On a busy host the bars would hide the curve.
        ecolor=(look["color"], 0.45),
        label=curve.name,
        **look,
    )
    line.set_gid(
        drawing.tips(f"{curve.name}: {number(a)} GB/s, {number(b)} ns" for a, b in zip(x, y, strict=True))
    )


def _mark(ax: Axes, curves: Sequence[LoadCurve]) -> None:
    """Mark where each curve saturates."""
    places = [
        (c.saturation.value, c.latency_at(c.saturation.value) or c.points[-1].latency.value)
        for c in curves
        if c.saturation and c.saturates
    ]
    if places:
        x, y = zip(*places, strict=True)
        (stars,) = ax.plot(x, y, "*", color=INK, markersize=12, label="saturation", zorder=4, linestyle="none")
        stars.set_gid(drawing.tips(f"saturation: {number(a)} GB/s, {number(b)} ns" for a, b in places))


def _axes(ax: Axes, curves: Sequence[LoadCurve], theory: float | None) -> None:
    values = [v for c in curves for p in c.points for v in p.latency.samples]
    if min(values) > 0 and max(values) / min(values) > 8:
        drawing.logarithmic_axis(ax, values)
    else:
        drawing.zero_based(ax, max(values))
    rates = [s for c in curves for p in c.points if p.bandwidth for s in p.bandwidth.samples]
    ax.set_xlim(0, 1.05 * max([theory or 0.0, *rates]) or 1)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.set_xlabel("bandwidth of the load (GB/s)")
    ax.set_ylabel("latency (ns)")


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
