# SPDX-License-Identifier: Apache-2.0
"""Studies of threads: seconds and throughput against threads (Langmead et al. 2018, figures 3 to 5)."""

from __future__ import annotations

from collections.abc import Sequence

from firsttouch.benchmarks.studies import Reads
from firsttouch.report import studies
from firsttouch.report.aspect import measured, value_table
from firsttouch.report.figures import drawing
from firsttouch.report.figures.drawing import Point
from firsttouch.report.model import Figure, HostView, Panel, Table
from firsttouch.report.speedups import Interval
from firsttouch.report.studies import Comparison, Comparisons, Repeated, Run
from firsttouch.report.text import number

_TITLE = "Time and throughput by threads"
_HOW = (
    "Each thread has the same number of reads, so perfect scaling is a flat line of seconds and a straight rising "
    "line of throughput. The time to load the index is excluded. A square is the peak of a line: the number of "
    "threads with the highest throughput. A line whose peak is far from the last thread has threads that wait for "
    "each other."
)


def figures(view: HostView) -> list[Figure]:
    """Return the figures of each study, dataset and kind of reads that the host has records of."""
    drawn = [
        _figure(view.key, study, planned, (reads, dataset))
        for study in studies.repeated(view)
        for dataset in study.datasets
        for reads in study.study.reads
        for planned in study.figures
    ]
    return [figure for figure in drawn if figure is not None]


def _figure(key: str, study: Repeated, planned: Comparisons, case: tuple[Reads, str]) -> Figure | None:
    """Return a figure of one kind of reads and one dataset (*case*), None without two lines to compare."""
    reads, dataset = case
    names = planned.names
    comparisons = [
        c for c in study.comparisons if (c.reads, c.dataset) == (reads, dataset) and len(c.lines(names)) > 1
    ]
    if not comparisons:
        return None
    where = f"-{study.datasets.index(dataset) + 1}" if len(study.datasets) > 1 else ""
    name = f"{key}-{study.study.name}-{study.figures.index(planned) + 1}-{reads}{where}"
    number = planned.number.get(reads)
    like = f", as in figure {number} of {study.study.short}" if number else ""
    title = f"{_TITLE}{like}: {planned.title}: {reads} reads" + (f", {dataset}" if where else "")
    panels, shows, runs = [], [], []
    for position, comparison in enumerate(comparisons, start=1):
        shows += studies.shows(comparison, names)
        panels += _panels(f"{name}-{position}", title, comparison, names)
        runs += [run for line in comparison.lines(names).values() for run in line]
    if omitted := studies.omitted(study, names, reads, dataset):
        shows.append(omitted)
    return Figure(
        name=name,
        title=title,
        how=_HOW,
        shows=tuple(shows),
        measured=measured([r.record for r in runs]),
        panels=tuple(panels),
        tables=tuple(_numbers(c, names) for c in comparisons),
    )


def _panels(name: str, title: str, comparison: Comparison, names: Sequence[str]) -> list[Panel]:
    lines = comparison.lines(names)
    squares = {run.line: run.threads for run in comparison.peaks(names)}
    quantities = (("seconds", "time (s)"), ("rate", f"thousands of {comparison.things} per second"))
    panels = []
    for kind, label in quantities:
        points = {line: [_point(run, kind) for run in runs] for line, runs in lines.items()}
        panels.append(
            drawing.draw_lines(
                points,
                label=label,
                name=f"{name}-{kind}",
                title=f"{title}, {comparison.heading}: {label}",
                description=" ".join(studies.shows(comparison, names)),
                size=(420, 230),
                heading=comparison.heading,
                logarithmic=drawing.wide(
                    [end for some in points.values() for p in some for end in (p.low, p.high)]
                ),
                squares=squares,
            )
        )
    return panels


def _point(run: Run, kind: str) -> Point:
    value: Interval = getattr(run, kind)
    return Point(run.threads, value.value, value.low, value.high)


def _numbers(comparison: Comparison, names: Sequence[str]) -> Table:
    peaks = comparison.peaks(names)
    rows = [
        ((line, str(run.threads), number(run.seconds.value), "peak" if run in peaks else ""), run.record)
        for line, runs in comparison.lines(names).items()
        for run in runs
    ]
    both = ", both mates counted" if comparison.reads == "paired" else ""
    caption = f"{comparison.heading}: throughput (thousands of reads per second{both})"
    return value_table(caption, ("configuration", "threads", "seconds", ""), rows)
