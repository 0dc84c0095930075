# SPDX-License-Identifier: Apache-2.0
"""Throughput with the same number of reads per thread (Langmead et al. 2018, figures 3 to 5, tables 2 to 4)."""

from __future__ import annotations

from itertools import groupby

from firsttouch.records.schema import Record
from firsttouch.report import studies
from firsttouch.report.aspect import measured, value_table
from firsttouch.report.figures import drawing
from firsttouch.report.model import Absent, Figure, HostView, Panel, Table, dataset_of, reads_per_thread, whole
from firsttouch.report.speedups import Key, pivot, scenario, total_threads
from firsttouch.report.text import count, number, quantity

_TITLE = "Throughput with the same number of reads per thread"
_HOW = (
    "Higher is better. Every thread has the same work, so a straight line through zero is perfect scaling. The "
    "time to load the index is excluded. Several unbound processes are the baseline: if they are faster than one "
    "process with the same number of threads, its threads wait for each other or for one memory bank."
)
_ONE, _SEVERAL = "one process", "several, unbound"


def figures(view: HostView) -> list[Figure | Absent]:
    """Return a figure per aligner, dataset and number of reads per thread, or why there is none.

    The figures of studies show the runs of their configurations.
    """
    compared = {id(r) for r in studies.compared(view)}
    others = [r for r in view.of("weak_scaling") if id(r) not in compared]
    records = sorted(others, key=lambda r: (*_study(r), r.time))
    # If a run has several records, the latest counts.
    runs_of = {
        study: sorted({scenario(r): r for r in group}.values(), key=total_threads)
        for study, group in groupby(records, _study)
    }
    all_peaks = _all_peaks(runs_of)
    result: list[Figure | Absent] = []
    for position, (study, runs) in enumerate(runs_of.items(), start=1):
        result.append(_figure(f"{view.key}-throughput-{position}", study, runs, all_peaks))
    return result or ([] if compared else [Absent(_TITLE, view.why_absent("weak_scaling"))])


def _study(record: Record) -> tuple[str, str, str]:
    return str(record.parameters["aligner"]), dataset_of(record), reads_per_thread(record)


def _lines(runs: list[Record]) -> dict[str, list[Record]]:
    by_line: dict[str, list[Record]] = {}
    for record in runs:
        by_line.setdefault(_ONE if whole(record, "instances") == 1 else _SEVERAL, []).append(record)
    return by_line


def _peaks(runs: list[Record]) -> dict[str, Record]:
    return {line: max(records, key=lambda r: r.value) for line, records in _lines(runs).items()}


def _figure(name: str, study: tuple[str, str, str], runs: list[Record], all_peaks: Table) -> Figure:
    aligner, dataset, each = study
    title = f"{_TITLE}: {aligner}, {dataset}, {each}"
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
        measured=measured(runs),
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
        ((line, str(total_threads(r)), scenario(r), "peak" if r is peaks[line] else ""), r)
        for line, records in _lines(runs).items()
        for r in records
    ]
    return value_table(f"Throughput ({runs[0].unit})", ("run as", "threads", "scenario", ""), rows)


def _all_peaks(studies: dict[tuple[str, str, str], list[Record]]) -> Table:
    """Return the peaks of all aligners and datasets of the host, in the layout of tables 2 to 4."""
    cells: dict[tuple[Key, Key], tuple[str, ...]] = {}
    for (aligner, dataset, each), runs in studies.items():
        for line, record in _peaks(runs).items():
            spread = f"{100 * record.spread:.1f}" if record.repetitions > 1 else ""
            column = (f"{dataset}, {each}",)
            cells[(aligner, line), column] = (str(total_threads(record)), number(record.value), spread)
    units = sorted({r.unit for runs in studies.values() for r in runs})
    return pivot(
        "Peaks on this host (median and spread), in the layout of tables 2 to 4 of the thread-scaling article",
        corner=("aligner", "run as"),
        rows=sorted({row for row, _ in cells}),
        columns=sorted({column for _, column in cells}),
        cells=cells,
        heads=("threads", ", ".join(units), "spread (%)"),
    )
