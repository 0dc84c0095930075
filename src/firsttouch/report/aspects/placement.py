# SPDX-License-Identifier: Apache-2.0
"""Scenarios against the default run (thesis, figures 5.8 to 5.11)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from firsttouch.records.schema import Record
from firsttouch.report import speedups
from firsttouch.report.aspect import FEWEST_DRAWN, VALUE_HEADER, Aspect, Chart, Result, measured, value, values
from firsttouch.report.document import Cell, Entry, Table
from firsttouch.report.figures.drawing import Bar, draw_bars
from firsttouch.report.gains import Interval
from firsttouch.report.model import Absent, HostView
from firsttouch.report.speedups import Study
from firsttouch.report.text import times

CHECK = "placement"
_TITLE = "Speedup of the scenarios against the default run"
_HOW = (
    "Longer is better. The line at 1 is the default run, without any placement options. A scenario whose error "
    "bar crosses that line is not clearly faster or slower."
)


def aspect(view: HostView) -> Aspect:
    """Return the fastest scenario per aligner and dataset, and the gains of all."""
    studies = speedups.studies(view)
    charts, absent = [], []
    for position, study in enumerate(studies, start=1):
        reason = _why_absent(study)
        if reason or study.default is None:
            absent.append(Absent(f"{_TITLE}: {study.name}", reason))
        else:
            charts.append(_chart(f"placement-{position}", study, study.default))
    if not studies:
        absent.append(Absent(_TITLE, view.why_absent(CHECK, "scaling")))
    return Aspect([*filter(None, map(_result, studies))], charts, absent)


def _named(record: Record) -> str:
    return f"{speedups.scenario(record)} ({speedups.shape(record)})"


def _result(study: Study) -> Result | None:
    fastest, default = study.best, study.default
    if fastest is None:
        return None
    if default is None:
        compared = f"no valid default run (1 instance, {speedups.DEFAULT_POLICY})"
    elif fastest is default:
        compared = "this is the default run"
    else:
        compared = f"default {value(default)}, {_named(default)}"
        if gain := speedups.speedup(fastest, default):
            compared += f": {times(gain.value)} ({times(gain.low)} to {times(gain.high)})"
            compared += "" if gain.clear else "; the repetitions overlap, so the gain is not clear"
    return Result(f"{study.name}: fastest", fastest, compared, f"{value(fastest)}, {_named(fastest)}")


# ----------------------------------------------------------------------
# The gains of the scenarios of a study.


def _gains(study: Study) -> list[tuple[Record, Interval]]:
    """Return the scenarios except the default run, and their speed-ups over it."""
    others = (r for r in study.compared() if r is not study.default)
    return [(r, gain) for r in others if study.default and (gain := speedups.speedup(r, study.default))]


def _why_absent(study: Study) -> str:
    """Return why the gains of a study cannot be drawn, or an empty text."""
    if study.default is None:
        return f"there is no valid default run (1 instance, {speedups.DEFAULT_POLICY}) to compare with"
    if len(study.compared()) == 1:
        return "there is no valid scenario besides the default run"
    return "" if _gains(study) else "a time of 0 has no ratio"


def _chart(key: str, study: Study, default: Record) -> Chart:
    gains = _gains(study)
    spread = measured([default, *(r for r, _ in gains)])
    bars = "the error bars pair the fastest repetition of one run with the slowest of the other"
    baseline = f"{speedups.scenario(default)} with {speedups.shape(default)}: {value(default)}"
    labels = [f"{speedups.scenario(r)}\n{speedups.shape(r)}" for r, _ in gains]
    ends = [(gain.value, gain.low, gain.high, times(gain.value)) for _, gain in gains]
    draw = partial(
        draw_bars,
        [
            Bar(label, *end, str(r.parameters["policy"]))
            for label, end, (r, _) in zip(labels, ends, gains, strict=True)
        ],
        kinds=speedups.policies((*study.single, *study.several)),
        axis=f"speedup over the default run ({value(default)})",
        line=1,
    )
    return Chart(
        key=key,
        title=f"{_TITLE}: {study.name}",
        how=_HOW,
        shows=[f"The default run is {baseline}.", *_fastest(study)],
        measured=f"Ratio of medians; {bars}. {spread}",
        panels={"": draw} if len(gains) >= FEWEST_DRAWN else {},
        tables=[_table(default, gains)],
    )


def _fastest(study: Study) -> list[str]:
    result = _result(study)
    return [f"The fastest is {result.value}; {result.compared}."] if result else []


def _table(default: Record, gains: list[tuple[Record, Interval]]) -> Table:
    header = ("scenario", "instances and threads", *VALUE_HEADER, "speedup", "from", "to")
    rows: list[Sequence[Entry]] = [
        (speedups.scenario(default), speedups.shape(default), *values(default), "1 (default run)", "", "")
    ]
    for record, gain in gains:
        ratios = (Cell(x, times) for x in (gain.value, gain.low, gain.high))
        rows.append((speedups.scenario(record), speedups.shape(record), *values(record), *ratios))
    caption = f"Time ({default.unit}) and speedup"
    return Table(caption, header, rows)
