# SPDX-License-Identifier: Apache-2.0
"""The papers' figures, drawn from their published values."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot

from firsttouch.report.figures import drawing
from firsttouch.report.figures.drawing import Bar, Point
from firsttouch.report.figures.summary import KINDS
from firsttouch.report.model import Figure, Panel, Table
from firsttouch.report.paper.sheets import (
    ALIGNERS,
    CAPTIONS,
    DEFAULT,
    MACHINES,
    POLICIES,
    READS,
    SYSTEMS,
    Row,
    Sheets,
)
from firsttouch.report.text import count, number, times

# ----------------------------------------------------------------------
# Figures 5.4 to 5.12 of the thesis (4 to 12 of the article).

_MEASURED = "Published means of ten runs with their errors in percent (tables A1 to D2)."
_SCALING = (
    "Lower is better. A line that halves with twice the threads scales perfectly. One that levels off or rises "
    "has run out of memory bandwidth. The gap between the lines is the effect of the policy."
)
_SPEEDUP = (
    "Longer is better. The dashed line at 1 is the default run with 64 threads. A scenario whose error bar "
    "crosses it is not clearly faster or slower."
)
_SUMMARY = (
    "Shorter is better. For each system and dataset, with 64 threads: the default run, the best policy for one "
    "instance, and the best of the runs with several instances."
)
_RATIO_ERRORS = " The error of a ratio is the square root of the sum of the squares of both errors."
#: The figures of each kind, in the papers' order: (number, system, dataset).
_ORDER = [("amd-opteron", "GCAT"), ("intel-xeon", "GCAT"), ("amd-opteron", "NA12878"), ("intel-xeon", "NA12878")]
_THREADS = 64


def figures(sheets: Sheets) -> list[Figure]:
    """Return the nine figures with four panels each, one per aligner."""
    return [
        *(_scaling(4 + i, system, dataset, sheets) for i, (system, dataset) in enumerate(_ORDER)),
        *(_speedups(8 + i, system, dataset, sheets) for i, (system, dataset) in enumerate(_ORDER)),
        _summary(sheets),
    ]


def _title(place: int, what: str, system: str, dataset: str) -> str:
    return f"Figure {place} (thesis: 5.{place}). {what}: {SYSTEMS[system]}, {CAPTIONS[dataset]}"


def _runs(sheets: Sheets, aligner: str, system: str, dataset: str) -> list[Row]:
    wanted = (aligner, system, dataset)
    return [r for r in sheets["times"] if tuple(r.text(c) for c in ("aligner", "system", "dataset")) == wanted]


def _mean(run: Row) -> float:
    return run.number("mean_s") or 0.0


def _error(run: Row) -> float:
    return (run.number("error_pct") or 0.0) / 100


def _scaling(place: int, system: str, dataset: str, sheets: Sheets) -> Figure:
    title = _title(place, "Memory allocation policies", system, dataset)
    panels, shows = [], []
    for aligner, (name, _) in ALIGNERS.items():
        runs = [r for r in _runs(sheets, aligner, system, dataset) if r.number("instances") == 1]
        shows.append(_sentence(name, runs))
        panels.append(
            drawing.draw_lines(
                {policy: [_point(r) for r in runs if r.text("policy") == policy] for policy in POLICIES},
                label="time (s)",
                name=f"figure-{place}-{aligner}",
                title=f"{title}, {name}",
                description=shows[-1],
                heading=name,
            )
        )
    return _figure(f"figure-{place}", title, _SCALING, shows, panels)


def _point(run: Row) -> Point:
    return Point(
        round(run.number("threads") or 0.0),
        _mean(run),
        _mean(run) * (1 - _error(run)),
        _mean(run) * (1 + _error(run)),
    )


def _sentence(name: str, runs: Sequence[Row]) -> str:
    widest = [r for r in runs if r.number("threads") == _THREADS]
    best = min(widest, key=_mean)
    fewer = min(runs, key=_mean)
    text = f"{name}: with {_THREADS} threads {best.text('policy')} is fastest, {number(_mean(best))} s"
    if fewer is not best:
        text += (
            f"; of all runs {fewer.text('policy')} with {fewer.text('threads')} threads, {number(_mean(fewer))} s"
        )
    return f"{text}."


def _gain(run: Row, default: Row) -> Bar:
    gain = _mean(default) / _mean(run)
    error = gain * hypot(_error(run), _error(default))
    shape = f"{run.text('instances')} x {run.text('threads_per_instance')} threads"
    label = f"{run.text('scenario')}\n{shape}"
    return Bar(label, gain, gain - error, gain + error, times(gain), run.text("policy"))


def _speedups(place: int, system: str, dataset: str, sheets: Sheets) -> Figure:
    title = _title(place, "Speedups of all strategies with 64 threads", system, dataset)
    panels, shows, rows = [], [], []
    for aligner, (name, _) in ALIGNERS.items():
        runs = [r for r in _runs(sheets, aligner, system, dataset) if r.number("threads") == _THREADS]
        (default,) = [r for r in runs if r.text("scenario") == DEFAULT]
        gains = [_gain(r, default) for r in runs if r is not default]
        best = max(gains, key=lambda bar: bar.value)
        scenario = best.label.splitlines()[0]
        shows.append(f"{name}: {scenario} is the fastest, {best.text} as fast as the default run.")
        rows += [
            (name, *bar.label.splitlines(), f"{bar.value:.3f}", f"{bar.value - bar.low:.3f}") for bar in gains
        ]
        panels.append(
            drawing.draw_bars(
                gains,
                kinds=POLICIES,
                axis="speedup (times)",
                footer=f"dashed line: default run, {_mean(default):g} s",
                line=1,
                name=f"figure-{place}-{aligner}",
                title=f"{title}, {name}",
                description=shows[-1],
                heading=name,
            )
        )
    header = ("aligner", "scenario", "instances and threads", "speedup", "error")
    table = Table("Speedups", header, rows, frozenset({3, 4}))
    return _figure(f"figure-{place}", title, _SPEEDUP, shows, panels, table)


def _summary(sheets: Sheets) -> Figure:
    title = "Figure 12 (thesis: 5.12). Summary for all aligners, 64 threads"
    panels, shows = [], []
    for aligner, (name, _) in ALIGNERS.items():
        groups, gains = [], []
        for system, dataset in _ORDER:
            runs = [r for r in _runs(sheets, aligner, system, dataset) if r.number("threads") == _THREADS]
            single = [r for r in runs if r.number("instances") == 1]
            (default,) = [r for r in single if r.text("scenario") == DEFAULT]
            policy = min((r for r in single if r is not default), key=_mean)
            several = min((r for r in runs if r not in single), key=_mean)
            drawn = [_time_bar(r, kind) for r, kind in zip((default, policy, several), KINDS, strict=True)]
            groups.append((f"{SYSTEMS[system]}\n{dataset}", drawn))
            best = min(policy, several, key=_mean)
            gain = times(_mean(default) / _mean(best))
            gains.append(f"{SYSTEMS[system]} {dataset} {best.text('scenario')} ({gain})")
        shows.append(f"{name}, best: {', '.join(gains)}.")
        panels.append(
            drawing.grouped(
                groups,
                kinds=KINDS,
                axis="time (s)",
                name=f"figure-12-{aligner}",
                title=f"{title}, {name}",
                description=shows[-1],
                heading=name,
            )
        )
    return _figure("figure-12", title, _SUMMARY, shows, panels)


def _time_bar(run: Row, kind: str) -> Bar:
    text = f"{_mean(run):g} s" + (f", {run.text('scenario')}" if kind != KINDS[0] else "")
    return Bar("", _mean(run), _mean(run) * (1 - _error(run)), _mean(run) * (1 + _error(run)), text, kind)


def _figure(
    name: str, title: str, how: str, shows: Sequence[str], panels: Sequence[Panel], *tables: Table
) -> Figure:
    measured = _MEASURED + (_RATIO_ERRORS if tables else "")
    return Figure(name, title, how, tuple(shows), measured, tuple(panels), tables)


# ----------------------------------------------------------------------
# The peaks of figures 3 to 5, S1, S2 and S4 of the thread-scaling article.

_HOW = (
    "Only the peak of each configuration is published as numbers: these are the squares of the papers' figures, "
    "without the curves. Higher is more throughput, and farther to the right are more threads. If a peak is far "
    "from the last thread of the machine, threads wait for each other."
)
_PEAK_MEASURED = "Published peaks of single runs with the same number of reads per thread, without spread."
#: Table -> what it compares, and its figures with paired and unpaired reads.
_FIGURES = {
    "T2": ("four lock types and the multiprocessing baseline", {"unpaired": "3", "paired": "S1"}),
    "T3": ("three parsing strategies and the multiprocessing baseline", {"unpaired": "4", "paired": "S2"}),
    "T4": ("B-parsing, L-parsing, the multiprocessing baseline and BWA-MEM", {"unpaired": "5", "paired": "S4"}),
}
#: Panel -> the aligners in it: BWA-MEM is compared with Bowtie 2.
_TOGETHER = {"Bowtie": ("Bowtie",), "Bowtie 2": ("Bowtie 2", "BWA-MEM"), "HISAT": ("HISAT",)}


def peak_figures(sheets: Sheets) -> list[Figure]:
    """Return six figures, a panel per aligner and machine."""
    return [_peak_figure(table, reads, sheets) for reads in reversed(READS) for table in _FIGURES]


def _peak_figure(table: str, reads: str, sheets: Sheets) -> Figure:
    what, places = _FIGURES[table]
    place = places[reads]
    title = f"Figure {place}, its peaks. Comparison of {what}: {reads} reads"
    panels, shows = [], []
    for aligner, members in _TOGETHER.items():
        for system, machine in MACHINES.items():
            rows = [
                r
                for r in sheets["main_peaks"]
                if (r.text("table"), r.text("reads"), r.text("system")) == (table, reads, system)
                and r.text("aligner") in members
            ]
            sentence = _peak_sentence(aligner, machine, rows)
            shows.append(sentence)
            panels.append(
                drawing.draw_lines(
                    {_line(r): [_peak_point(r)] for r in rows},
                    label="thousands of reads per second",
                    name=f"peaks-{place.lower()}-{aligner.lower().replace(' ', '')}-{system}",
                    title=f"{title}, {aligner}, {machine}",
                    description=sentence,
                    size=(320, 250),
                    heading=f"{aligner}, {machine}",
                    columns=1,
                )
            )
    return Figure(f"peaks-{place.lower()}", title, _HOW, tuple(shows), _PEAK_MEASURED, tuple(panels), ())


def _line(row: Row) -> str:
    return row.text("aligner") if row.text("configuration") == "default" else row.text("configuration")


def _peak_point(row: Row) -> Point:
    value = row.number("peak_kreads_per_s") or 0.0
    return Point(round(row.number("threads_at_peak") or 0.0), value, value, value)


def _peak_sentence(aligner: str, machine: str, rows: list[Row]) -> str:
    best = max(rows, key=lambda r: _peak_point(r).value)
    point = _peak_point(best)
    return (
        f"{aligner}, {machine}: {_line(best)} peaks highest, {number(point.value)} thousand reads per second with "
        f"{count(point.threads, 'thread')}."
    )
