# SPDX-License-Identifier: Apache-2.0
"""Throughput with as many reads for each thread (Langmead et al. 2018, figures 3 to 5; peaks: tables 2 to 4)."""

from __future__ import annotations

from itertools import groupby

from firsttouch.records.schema import Record
from firsttouch.report.figures import drawing
from firsttouch.report.model import Absent, Figure, HostView, Panel, Table, whole
from firsttouch.report.speedups import Key, pivot, scenario, total_threads
from firsttouch.report.tables import VALUE_HEADER, measured, values
from firsttouch.report.text import count, number, quantity

_TITLE = "Throughput with as many reads for each thread"
_HOW = (
    "Higher is better. Every thread has the same work, so a straight line through zero is perfect scaling. The "
    "index is loaded when the clock starts. Several processes that nobody binds are the baseline: where they are "
    "faster than one process with as many threads, its threads wait for each other, or for one memory bank."
)
_ONE, _SEVERAL = "one process", "several, bound by nobody"


def figures(view: HostView) -> list[Figure | Absent]:
    """Return one figure per aligner, dataset and number of reads for each thread, or why there is none."""
    records = sorted(view.of("weak_scaling"), key=lambda r: (*_study(r), r.time))
    # Of several records of one run the latest counts.
    studies = {
        study: sorted({scenario(r): r for r in group}.values(), key=total_threads)
        for study, group in groupby(records, _study)
    }
    all_peaks = _all_peaks(studies)
    found: list[Figure | Absent] = []
    for position, (study, runs) in enumerate(studies.items(), start=1):
        found.append(_figure(f"{view.key}-throughput-{position}", study, runs, all_peaks))
    return found or [Absent(_TITLE, view.why_absent("weak_scaling"))]


def _study(record: Record) -> tuple[str, str, int]:
    p = record.parameters
    return str(p["aligner"]), str(p["dataset"]), whole(record, "reads_per_thread")


def _lines(runs: list[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in runs:
        found.setdefault(_ONE if whole(record, "instances") == 1 else _SEVERAL, []).append(record)
    return found


def _peaks(runs: list[Record]) -> dict[str, Record]:
    return {line: max(records, key=lambda r: r.value) for line, records in _lines(runs).items()}


def _figure(name: str, study: tuple[str, str, int], runs: list[Record], all_peaks: Table) -> Figure:
    aligner, dataset, each = study
    title = f"{_TITLE}: {aligner}, {dataset}, {each} for each thread"
    peaks = _peaks(runs)
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
        tables=(_table(runs, peaks), all_peaks),
    )


def _panel(name: str, title: str, runs: list[Record], shows: str) -> Panel:
    return drawing.draw_lines(
        {line: [drawing.of(total_threads(r), r) for r in records] for line, records in _lines(runs).items()},
        label=f"throughput ({runs[0].unit})",
        name=name,
        title=title,
        description=shows,
    )


def _table(runs: list[Record], peaks: dict[str, Record]) -> Table:
    rows = [
        (line, str(total_threads(r)), scenario(r), "peak" if r is peaks[line] else "", *values(r))
        for line, records in _lines(runs).items()
        for r in records
    ]
    header = ("run as", "threads", "scenario", "", *VALUE_HEADER)
    return Table(f"Throughput ({runs[0].unit})", header, rows, frozenset({1, *range(4, len(header))}))


def _all_peaks(studies: dict[tuple[str, str, int], list[Record]]) -> Table:
    """Return the peaks of all aligners and datasets of the host: laid out as tables 2 to 4."""
    cells: dict[tuple[Key, Key], tuple[str, ...]] = {}
    for (aligner, dataset, each), runs in studies.items():
        for line, record in _peaks(runs).items():
            spread = f"{100 * record.spread:.1f}" if record.repetitions > 1 else ""
            column = (f"{dataset}, {each} for each thread",)
            cells[(aligner, line), column] = (str(total_threads(record)), number(record.value), spread)
    units = sorted({r.unit for runs in studies.values() for r in runs})
    return pivot(
        "Peaks on this host, laid out as tables 2 to 4 of the thread-scaling article: median and spread",
        corner=("aligner", "run as"),
        rows=sorted({row for row, _ in cells}),
        columns=sorted({column for _, column in cells}),
        cells=cells,
        heads=("threads", ", ".join(units), "spread (%)"),
    )
