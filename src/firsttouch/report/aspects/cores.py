# SPDX-License-Identifier: Apache-2.0
"""The clock of the cores while all of them run, over minutes if that was measured, and the slow ones."""

from __future__ import annotations

from functools import partial

from firsttouch.benchmarks.cores import CHECK, CLOCK, SLOW, SUSTAINED
from firsttouch.records.schema import Record
from firsttouch.report.aspect import Aspect, Chart, Result, value
from firsttouch.report.document import Panel, Table
from firsttouch.report.figures import drawing
from firsttouch.report.model import Absent, HostView
from firsttouch.report.text import clean, count
from firsttouch.units import number, percent

_TITLE = "Cores that are slower than their siblings"
_HOW = (
    "A chain of dependent additions on every PU, all at once: its rate is the clock of the core. A PU that is "
    "more than 10 % slower than equal ones in every sample is a slow core."
)
_CURVE_TITLE = "Clock of the cores under a sustained load"
_CURVE_HOW = (
    "Each point is the median clock of all PUs, all at work. A step down in the first minute is the end of the "
    "processor's turbo budget; a slow decline afterwards is heat. The last quarter is compared with other hosts."
)


def aspect(view: HostView) -> Aspect:
    """Return the clock, its curve under a sustained load, and the slow cores."""
    records = view.of(CHECK)
    if not records:
        return Aspect(absent=[Absent(_TITLE, view.why_absent(CHECK))])
    slow = [r for r in records if r.metric == SLOW and r.value]
    clocks = [r for r in records if r.metric == CLOCK][:1]
    results = [Result("clock of the cores, all at work", r, _slowest(r)) for r in clocks]
    sustained = [r for r in records if r.metric == SUSTAINED]
    results += [Result(f"clock of the cores, after {_time(r)} of load", r, _slowest(r)) for r in sustained]
    charts = [chart for number, r in enumerate(sustained) if (chart := _chart(r, number))]
    if not slow:
        return Aspect(results, charts)
    named = ", ".join(f"PU {clean(str(r.parameters.get('pu')))}" for r in slow[:5])
    rows = [(f"PU {clean(str(r.parameters.get('pu')))}", _loss(r)) for r in slow]
    results.append(Result("slow cores", text=count(len(slow), "PU"), compared=named))
    return Aspect(results, charts, tables=[Table(_TITLE, ("PU", "slower by"), rows)], note=_HOW)


def _slowest(record: Record) -> str:
    slowest = record.parameters.get("slowest")
    return f"the slowest PU {number(slowest)} {record.unit}" if isinstance(slowest, (int, float)) else ""


def _loss(record: Record) -> str:
    loss = record.parameters.get("loss")
    return percent(loss) if isinstance(loss, (int, float)) else "unknown"


def _seconds(record: Record) -> float:
    seconds = record.parameters.get("sustain_s")
    return float(seconds) if isinstance(seconds, (int, float)) else 0.0


def _time(record: Record) -> str:
    return f"{number(_seconds(record))} s"


def _chart(record: Record, position: int) -> Chart | None:
    """Return the chart of a sustained load, None if the record has no curve."""
    curve = record.parameters.get("curve")
    if not isinstance(curve, list) or not curve or not all(isinstance(y, (int, float)) and y > 0 for y in curve):
        return None
    fell = 1 - record.value / curve[0]
    points = [(_seconds(record) * (i + 1) / len(curve), float(clock)) for i, clock in enumerate(curve)]
    change = f"{percent(fell)} below the first sample" if fell > 0 else "not below the first sample"
    return Chart(
        key=f"{CHECK}-{position}" if position else CHECK,
        title=_CURVE_TITLE,
        how=_CURVE_HOW,
        shows=[f"In the last quarter of {_time(record)} the clock is {value(record)}, {change}."],
        measured=f"{count(len(curve), 'sample')} without a pause.",
        panels={"": partial(_panel, points)},
        tables=[
            Table("Clock over time", ("time (s)", "clock (GHz)"), [(number(x), number(y)) for x, y in points])
        ],
    )


def _panel(points: list[tuple[float, float]], *, name: str, title: str, heading: str, description: str) -> Panel:
    look = drawing.series(0, radius=2)
    axes = drawing.Chart(
        name,
        (
            drawing.zero_based_scale(max(x for x, _ in points)),
            drawing.zero_based_scale(1.08 * max(y for _, y in points)),
        ),
        ("time under load (s)", "clock (GHz)"),
        {},
        heading=heading,
    )
    axes.draw_series(look, points, [f"{number(x)} s: {number(y)} GHz" for x, y in points])
    return axes.canvas.panel(title, description)
