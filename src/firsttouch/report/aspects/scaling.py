# SPDX-License-Identifier: Apache-2.0
"""Time against threads, one line per policy, with error bars (thesis, figures 5.4 to 5.7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from firsttouch.records.cases import by_key
from firsttouch.records.schema import Record
from firsttouch.report import speedups
from firsttouch.report.aspect import FEWEST_DRAWN, Aspect, Chart, measured, value, value_table
from firsttouch.report.figures import drawing
from firsttouch.report.model import Absent, HostView, whole
from firsttouch.report.speedups import Study
from firsttouch.report.text import count, times
from firsttouch.units import number

CHECK = "scaling"
_TITLE = "Time of one instance by threads and memory policy"
_HOW = (
    "Lower is better. A line that halves with twice the threads scales perfectly. One that levels off or rises "
    "has run out of memory bandwidth, PUs or work. The gap between the lines is the effect of the policy."
)
_LOGARITHMIC = " The axes are logarithmic: perfect scaling is a straight falling line."


def aspect(view: HostView) -> Aspect:
    """Return a chart per aligner and dataset."""
    charts = [
        _chart(f"scaling-{position}", study)
        for position, study in enumerate(speedups.studies(view), start=1)
        if study.single
    ]
    return Aspect(charts=charts, absent=[] if charts else [Absent(_TITLE, view.why_absent(CHECK))])


def _chart(key: str, study: Study) -> Chart:
    by_policy = by_key(sorted(study.single, key=speedups.policy_rank), lambda r: str(r.parameters["policy"]))
    wide = drawing.wide([sample for r in study.single for sample in r.samples])
    unit = study.single[0].unit
    lines = {
        policy: [drawing.as_point(whole(r, "threads"), r) for r in runs] for policy, runs in by_policy.items()
    }
    label = f"time ({unit}, logarithmic)" if wide else f"time ({unit})"
    draw = partial(drawing.draw_lines, lines, label=label, logarithmic=wide)
    rows = [
        ((policy, whole(r, "threads"), speedups.scenario(r)), r)
        for policy, runs in by_policy.items()
        for r in runs
    ]
    return Chart(
        key=key,
        title=f"{_TITLE}: {study.name}",
        how=_HOW + (_LOGARITHMIC if wide else ""),
        shows=list(_sentences(study, by_policy)),
        measured=measured(study.single),
        panels={"": draw} if max(map(len, lines.values())) >= FEWEST_DRAWN else {},
        tables=[value_table(f"Time ({unit})", ("policy", "threads", "scenario"), rows)],
    )


def _sentences(study: Study, by_policy: Mapping[str, Sequence[Record]]) -> Iterator[str]:
    most = max(whole(r, "threads") for r in study.single)
    widest = [r for r in study.single if whole(r, "threads") == most]
    fastest, slowest = (pick(widest, key=lambda r: r.value) for pick in (min, max))
    text = f"With {count(most, 'thread')}, {fastest.parameters['policy']} is fastest at {value(fastest)}"
    if slowest is not fastest:
        text += f", {slowest.parameters['policy']} slowest at {value(slowest)}"
        gain = speedups.speedup(fastest, slowest)
        if gain is not None and max(fastest.samples) >= min(slowest.samples):
            text += "; their repetitions overlap, so the difference is not clear"
        elif gain is not None:
            text += f", {times(gain.value)} as long"
    yield f"{text}."
    for policy, runs in by_policy.items():
        gain = speedups.speedup(runs[-1], runs[0])
        if len(runs) > 1 and gain is not None:
            few, many = whole(runs[0], "threads"), whole(runs[-1], "threads")
            text = f"{policy}: {number(many / few)} times the threads make it {times(gain.value)} as fast"
            fastest = min(runs, key=lambda r: r.value)
            if fastest is not runs[-1]:
                text += f" (fastest with {count(whole(fastest, 'threads'), 'thread')})"
            yield f"{text}."
