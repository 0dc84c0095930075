# SPDX-License-Identifier: Apache-2.0
"""Throughput with as many reads for each thread (Langmead et al. 2018, figures 3 to 5; peaks: tables 2 to 4)."""

from __future__ import annotations

from itertools import groupby

from firsttouch.records import Record
from firsttouch.report.hosts import HostView, whole
from firsttouch.report.model import Absent, Figure, Panel, Table
from firsttouch.report.plots import style
from firsttouch.report.speedups import scenario, total_threads
from firsttouch.report.tables import VALUE_HEADER, measured, values
from firsttouch.report.text import count, quantity

_TITLE = "Throughput with as many reads for each thread"
_HOW = (
    "Higher is better. Every thread has the same work, so a straight line through zero is perfect scaling. The "
    "index is loaded when the clock starts. Several processes that nobody binds are the baseline: where they are "
    "faster than one process with as many threads, its threads wait for each other, or for one memory bank."
)
_HEIGHT = 320
_ONE, _SEVERAL = "one process", "several, bound by nobody"


def figures(view: HostView) -> list[Figure | Absent]:
    """Return one figure per aligner, dataset and number of reads for each thread, or why there is none."""
    records = sorted(view.of("weak_scaling"), key=lambda r: (*_study(r), r.time))
    found: list[Figure | Absent] = []
    for position, (study, group) in enumerate(groupby(records, _study), start=1):
        # Of several records of one run the latest counts.
        runs = {scenario(r): r for r in group}
        found.append(_figure(f"{view.key}-throughput-{position}", study, sorted(runs.values(), key=total_threads)))
    return found or [Absent(_TITLE, view.why_absent("weak_scaling"))]


def _study(record: Record) -> tuple[str, str, int]:
    p = record.parameters
    return str(p["aligner"]), str(p["dataset"]), whole(record, "reads_per_thread")


def _lines(runs: list[Record]) -> dict[str, list[Record]]:
    lines: dict[str, list[Record]] = {}
    for record in runs:
        lines.setdefault(_ONE if whole(record, "instances") == 1 else _SEVERAL, []).append(record)
    return lines


def _figure(name: str, study: tuple[str, str, int], runs: list[Record]) -> Figure:
    aligner, dataset, each = study
    title = f"{_TITLE}: {aligner}, {dataset}, {each} for each thread"
    peaks = {line: max(records, key=lambda r: r.value) for line, records in _lines(runs).items()}
    shows = tuple(
        f"{line}: {quantity(r.value, r.unit)} at most, with {count(total_threads(r), 'thread')} ({scenario(r)})."
        for line, r in peaks.items()
    )
    return Figure(
        name=name,
        title=title,
        how=_HOW,
        shows=shows,
        measured=measured(runs, "the bars show all of them"),
        panels=(_panel(name, title, runs, " ".join(shows)),),
        tables=(_table(runs, peaks),),
    )


def _panel(name: str, title: str, runs: list[Record], shows: str) -> Panel:
    lines = _lines(runs)
    with style.settings(name):
        drawing, ax = style.axes(style.WIDTH, _HEIGHT, (64, 12, 50, 34.0))
        for position, (line, records) in enumerate(lines.items()):
            medians = [r.value for r in records]
            low, high = [min(r.samples) for r in records], [max(r.samples) for r in records]
            ax.errorbar(
                [total_threads(r) for r in records],
                medians,
                yerr=style.error_bars(medians, low, high),
                capsize=4,
                label=line,
                **style.series_style(position),
            )
        style.threads_axis(ax, [total_threads(r) for r in runs])
        style.zero_based(ax, max(max(r.samples) for r in runs))
        ax.set_ylabel(f"throughput ({runs[0].unit})")
        style.legend(ax, columns=len(lines))
        return style.panel(drawing, name=name, title=title, description=shows)


def _table(runs: list[Record], peaks: dict[str, Record]) -> Table:
    rows = [
        (line, str(total_threads(r)), scenario(r), "peak" if r is peaks[line] else "", *values(r))
        for line, records in _lines(runs).items()
        for r in records
    ]
    header = ("run as", "threads", "scenario", "", *VALUE_HEADER)
    return Table(f"Throughput ({runs[0].unit})", header, rows, frozenset({1, *range(4, len(header))}))
