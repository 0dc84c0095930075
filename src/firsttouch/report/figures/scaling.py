# SPDX-License-Identifier: Apache-2.0
"""Time against threads, one line per policy, with error bars (thesis, figures 5.4 to 5.7)."""

from __future__ import annotations

from firsttouch.records.schema import Record
from firsttouch.report import speedups
from firsttouch.report.aspect import measured, value_table
from firsttouch.report.figures import drawing
from firsttouch.report.model import Absent, Figure, HostView, Panel, Table, whole
from firsttouch.report.speedups import Study
from firsttouch.report.text import count, number, quantity, times

_TITLE = "Time of one instance by threads and memory policy"
_HOW = (
    "Lower is better. A line that halves with twice the threads scales perfectly. One that levels off or rises "
    "has run out of memory bandwidth, PUs or work. The gap between the lines is the effect of the policy."
)
_LOGARITHMIC = " The axes are logarithmic: perfect scaling is a straight falling line."


def figures(view: HostView) -> list[Figure | Absent]:
    """Return a figure per aligner and dataset, or why there is none."""
    result: list[Figure | Absent] = []
    for position, study in enumerate(speedups.studies(view), start=1):
        if study.single:
            result.append(_figure(f"{view.key}-scaling-{position}", study))
    return result or [Absent(_TITLE, view.why_absent("scaling"))]


def _figure(name: str, study: Study) -> Figure:
    shows = _shows(study)
    how = _HOW + (_LOGARITHMIC if _wide(study) else "")
    return Figure(
        name=name,
        title=f"{_TITLE}: {study.name}",
        how=how,
        shows=shows,
        measured=measured(study.single),
        panels=(_panel(name, study, " ".join(shows)),),
        tables=(_table(study),),
    )


def _wide(study: Study) -> bool:
    return drawing.wide([value for r in study.single for value in r.samples])


def _lines(study: Study) -> dict[str, list[Record]]:
    return {
        policy: [r for r in study.single if str(r.parameters["policy"]) == policy]
        for policy in speedups.policies(study.single)
    }


def _shows(study: Study) -> tuple[str, ...]:
    most = max(whole(r, "threads") for r in study.single)
    widest = [r for r in study.single if whole(r, "threads") == most]
    fastest, slowest = (pick(widest, key=lambda r: r.value) for pick in (min, max))
    time = quantity(fastest.value, fastest.unit)
    policy = fastest.parameters["policy"]
    text = f"With {count(most, 'thread')}, {policy} is fastest at {time}"
    if slowest is not fastest:
        gain = speedups.speedup(fastest, slowest)
        text += f", {slowest.parameters['policy']} slowest at {quantity(slowest.value, slowest.unit)}"
        if gain is not None and max(fastest.samples) >= min(slowest.samples):
            text += "; their repetitions overlap, so the difference is not clear"
        elif gain is not None:
            text += f", {times(gain.value)} as long"
    sentences = [f"{text}."]
    for name, records in _lines(study).items():
        gain = speedups.speedup(records[-1], records[0])
        if len(records) > 1 and gain is not None:
            few, many = whole(records[0], "threads"), whole(records[-1], "threads")
            text = f"{name}: {number(many / few)} times the threads make it {times(gain.value)} as fast"
            best = min(records, key=lambda r: r.value)
            if best is not records[-1]:
                text += f" (fastest with {count(whole(best, 'threads'), 'thread')})"
            sentences.append(f"{text}.")
    if study.pus and most < study.pus:
        sentences.append(f"The host has {count(study.pus, 'PU')}; the most threads measured are {most}.")
    return tuple(sentences)


def _panel(name: str, study: Study, shows: str) -> Panel:
    unit = study.single[0].unit
    wide = _wide(study)
    return drawing.draw_lines(
        {policy: [drawing.of(whole(r, "threads"), r) for r in runs] for policy, runs in _lines(study).items()},
        label=f"time ({unit}, logarithmic)" if wide else f"time ({unit})",
        name=name,
        title=f"{_TITLE}: {study.name}",
        description=shows,
        logarithmic=wide,
    )


def _table(study: Study) -> Table:
    rows = [
        ((policy, str(whole(r, "threads")), speedups.scenario(r)), r)
        for policy, records in _lines(study).items()
        for r in records
    ]
    return value_table(f"Time ({study.single[0].unit})", ("policy", "threads", "scenario"), rows)
