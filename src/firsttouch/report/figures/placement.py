# SPDX-License-Identifier: Apache-2.0
"""Speed-ups of the scenarios over the default run (thesis, figures 5.8 to 5.11)."""

from __future__ import annotations

from firsttouch.records.schema import Record
from firsttouch.report import speedups
from firsttouch.report.aspect import VALUE_HEADER, measured, values
from firsttouch.report.figures import drawing
from firsttouch.report.figures.drawing import Bar
from firsttouch.report.model import Absent, Figure, HostView, Panel, Table
from firsttouch.report.speedups import Interval, Study
from firsttouch.report.text import count, quantity, times

_TITLE = "Speedup of the scenarios against the default run"
_HOW = (
    "Longer is better. The line at 1 is the default run, without any placement options. A scenario whose error "
    "bar crosses that line is not clearly faster or slower."
)


def figures(view: HostView) -> list[Figure | Absent]:
    """Return a figure per aligner and dataset, or why there is none."""
    result: list[Figure | Absent] = []
    for position, study in enumerate(speedups.studies(view), start=1):
        title = f"{_TITLE}: {study.name}"
        default = study.default
        if default is None:
            result.append(Absent(title, _why_no_default(view, study)))
            continue
        others = [r for r in study.compared() if r is not default]
        if not others:
            result.append(Absent(title, "there is no valid scenario besides the default run"))
            continue
        gains = [(r, speedups.speedup(r, default)) for r in others]
        positive = [(r, g) for r, g in gains if g is not None]
        if not positive:
            result.append(Absent(title, "a time of 0 has no ratio"))
            continue
        result.append(_figure(f"{view.key}-placement-{position}", study, default, positive))
    return result or [Absent(_TITLE, view.why_absent("placement", "scaling"))]


def _why_no_default(view: HostView, study: Study) -> str:
    reasons = sorted(
        {
            r.reason
            for r in view.invalid
            if r.metric == speedups.METRIC
            and r.parameters.get("aligner") == study.aligner
            and r.parameters.get("instances") == 1
            and r.parameters.get("policy") == speedups.DEFAULT_POLICY
        }
    )
    why = f": invalid, {reasons[0]}" if reasons else ""
    return f"there is no valid default run (1 instance, {speedups.DEFAULT_POLICY}) to compare with{why}"


def _figure(name: str, study: Study, default: Record, gains: list[tuple[Record, Interval]]) -> Figure:
    shows = _shows(study, default, gains)
    records = [default, *(r for r, _ in gains)]
    bars = "the error bars pair the fastest repetition of one run with the slowest of the other"
    spread = measured(records, "the table has their spread")
    return Figure(
        name=name,
        title=f"{_TITLE}: {study.name}",
        how=_HOW,
        shows=shows,
        measured=f"Ratio of medians; {bars}. {spread}",
        panels=(_panel(name, study, default, gains, " ".join(shows)),),
        tables=(_table(default, gains),),
    )


def _baseline(default: Record) -> str:
    time = quantity(default.value, default.unit)
    return f"{speedups.scenario(default)} with {speedups.shape(default)}: {time}"


def _shows(study: Study, default: Record, gains: list[tuple[Record, Interval]]) -> tuple[str, ...]:
    best, gain = max(gains, key=lambda item: item[1].value)
    sentences = [f"The default run is {_baseline(default)}."]
    if gain.value <= 1:
        sentences.append("No scenario is faster.")
    else:
        text = (
            f"The fastest scenario is {speedups.scenario(best)} ({speedups.shape(best)}) with "
            f"{quantity(best.value, best.unit)}: {times(gain.value)}, between {times(gain.low)} and "
            f"{times(gain.high)}"
        )
        sentences.append(text + ("." if gain.clear else "; the repetitions overlap, so the gain is not clear."))
    slower = [r for r, g in gains if g.high < 1]
    if slower:
        verb = "is" if len(slower) == 1 else "are"
        sentences.append(f"{count(len(slower), 'scenario')} {verb} clearly slower than the default run.")
    threads = speedups.total_threads(default)
    if study.pus and threads < study.pus:
        sentences.append(f"The default run used {threads} of {study.pus} PUs; no run with more was measured.")
    return tuple(sentences)


def _panel(name: str, study: Study, default: Record, gains: list[tuple[Record, Interval]], shows: str) -> Panel:
    return drawing.draw_bars(
        [
            Bar(
                f"{speedups.scenario(r)}\n{speedups.shape(r)}",
                gain.value,
                gain.low,
                gain.high,
                times(gain.value),
                str(r.parameters["policy"]),
            )
            for r, gain in gains
        ],
        kinds=speedups.policies((*study.single, *study.several)),
        axis="speedup (times)",
        footer=f"dashed line: default run, {_baseline(default)}",
        line=1,
        name=name,
        title=f"{_TITLE}: {study.name}",
        description=shows,
    )


def _table(default: Record, gains: list[tuple[Record, Interval]]) -> Table:
    header = ("scenario", "instances and threads", *VALUE_HEADER, "speedup", "from", "to")
    rows: list[tuple[str, ...]] = [
        (speedups.scenario(default), speedups.shape(default), *values(default), "1 (default run)", "", "")
    ]
    for record, gain in gains:
        ratios = (times(gain.value), times(gain.low), times(gain.high))
        rows.append((speedups.scenario(record), speedups.shape(record), *values(record), *ratios))
    caption = f"Time ({default.unit}) and speedup"
    return Table(caption, header, rows, frozenset(range(2, len(header))))
