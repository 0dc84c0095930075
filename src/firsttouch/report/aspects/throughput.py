# SPDX-License-Identifier: Apache-2.0
"""Throughput with the same number of reads per thread, as one process and as several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from firsttouch.records.cases import grouped
from firsttouch.records.schema import Record
from firsttouch.report.aspect import Aspect, Chart, measured, value, value_table
from firsttouch.report.figures.drawing import draw_lines, of
from firsttouch.report.model import Absent, HostView, dataset_of, reads_per_thread, whole
from firsttouch.report.speedups import scenario, total_threads
from firsttouch.report.text import count

#: Shown in the section of runs with different numbers of threads.
CHECK = "scaling"
_RECORDS = "weak_scaling"
_TITLE = "Throughput with the same number of reads per thread"
_HOW = (
    "Higher is better. Every thread has the same work, so a straight line through zero is perfect scaling. The "
    "time to load the index is excluded. Several unbound processes are the baseline: if they are faster than one "
    "process with the same number of threads, its threads wait for each other or for one memory bank."
)
#: Aligner, dataset and reads per thread.
_Input = tuple[str, str, str]
#: The runs of an input as one process, or as several.
_Lines = Mapping[str, Sequence[Record]]


def aspect(view: HostView) -> Aspect:
    """Return a chart per aligner, dataset and number of reads per thread."""
    by_input = grouped(sorted(view.of(_RECORDS), key=lambda r: r.time), _input)
    lines = {key: _lines(by_input[key]) for key in sorted(by_input)}
    if not lines:
        return Aspect(absent=[Absent(_TITLE, view.why_absent(_RECORDS))])
    return Aspect(charts=[_chart(f"throughput-{i}", key, lines[key]) for i, key in enumerate(lines, 1)])


def _input(record: Record) -> _Input:
    return str(record.parameters["aligner"]), dataset_of(record), reads_per_thread(record)


def _lines(runs: Sequence[Record]) -> _Lines:
    """Return the runs by line, fewest threads first; of several records of a run, the latest counts."""
    latest = sorted({scenario(r): r for r in runs}.values(), key=total_threads)
    return grouped(latest, lambda r: "one process" if whole(r, "instances") == 1 else "several, unbound")


def _peak(runs: Sequence[Record]) -> Record:
    return max(runs, key=lambda r: r.value)


def _chart(key: str, aligned: _Input, lines: _Lines) -> Chart:
    records = [r for runs in lines.values() for r in runs]
    unit = records[0].unit
    rows = [
        ((line, total_threads(r), scenario(r), "peak" if r is _peak(runs) else ""), r)
        for line, runs in lines.items()
        for r in runs
    ]
    return Chart(
        key=key,
        title=f"{_TITLE}: {', '.join(aligned)}",
        how=_HOW,
        shows=[
            f"{line}: {value(r)} at most, with {count(total_threads(r), 'thread')} ({scenario(r)})."
            for line, r in zip(lines, map(_peak, lines.values()), strict=True)
        ],
        measured=measured(records),
        panels={
            "": partial(
                draw_lines,
                {line: [of(total_threads(r), r) for r in runs] for line, runs in lines.items()},
                label=f"throughput ({unit})",
            )
        },
        tables=[value_table(f"Throughput ({unit})", ("run as", "threads", "scenario", ""), rows)],
    )
