# SPDX-License-Identifier: Apache-2.0
"""The papers' figures, drawn from their published values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from math import hypot
from typing import Any

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
    groups,
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
#: The figures of each kind, in the papers' order: (system, dataset).
_ORDER = [("amd-opteron", "GCAT"), ("intel-xeon", "GCAT"), ("amd-opteron", "NA12878"), ("intel-xeon", "NA12878")]
_THREADS = 64
_SPEEDUPS = ("aligner", "scenario", "instances and threads", "speedup", "error")

#: A panel with the sentence that describes it, and the rows that it adds to a table with the header _SPEEDUPS.
_Drawn = tuple[Panel, str, Sequence[tuple[str, ...]]]


def figures(sheets: Sheets) -> list[Figure]:
    """Return the nine figures with four panels each, one per aligner."""
    runs = groups(sheets["times"], ("aligner", "system", "dataset"))
    kinds = (
        (4, "Memory allocation policies", _SCALING, _scaling),
        (8, "Speedups of all strategies with 64 threads", _SPEEDUP, _speedups),
    )
    result = []
    for first, what, how, draw in kinds:
        for place, (system, dataset) in enumerate(_ORDER, start=first):
            title = f"{what}: {SYSTEMS[system]}, {CAPTIONS[dataset]}"
            of_aligner = {aligner: runs[aligner, system, dataset] for aligner in ALIGNERS}
            result.append(_figure(place, title, how, draw, of_aligner))
    runs = groups(sheets["times"], ("aligner",))
    title = "Summary for all aligners, 64 threads"
    result.append(_figure(12, title, _SUMMARY, _summary, {aligner: runs[aligner,] for aligner in ALIGNERS}))
    return result


def _figure(
    place: int, what: str, how: str, draw: Callable[..., _Drawn], runs: Mapping[str, Sequence[Row]]
) -> Figure:
    """Return a figure with the panel that *draw* returns for the *runs* of each aligner."""
    name, title = f"figure-{place}", f"Figure {place} (thesis: 5.{place}). {what}"
    drawn = []
    for aligner, (heading, _) in ALIGNERS.items():
        names = {"name": f"{name}-{aligner}", "title": f"{title}, {heading}", "heading": heading}
        drawn.append(draw(runs[aligner], **names))
    panels, shows, rows = zip(*drawn, strict=True)
    table = Table("Speedups", _SPEEDUPS, list(chain(*rows)), frozenset({3, 4}))
    tables = (table,) if table.rows else ()
    return Figure(name, title, how, shows, _MEASURED + (_RATIO_ERRORS if tables else ""), panels, tables)


def _ends(run: Row) -> tuple[float, float, float]:
    """Return the mean of a run, and the ends of its error bar."""
    mean, error = run["mean_s"], run["error_pct"] / 100
    return mean, mean * (1 - error), mean * (1 + error)


def _mean(run: Row) -> float:
    return float(run["mean_s"])


def _scaling(runs: Sequence[Row], *, heading: str, **names: Any) -> _Drawn:
    single = [r for r in runs if r["instances"] == 1]
    best, fastest = min((r for r in single if r["threads"] == _THREADS), key=_mean), min(single, key=_mean)
    text = f"{heading}: with {_THREADS} threads {best['policy']} is fastest, {number(_mean(best))} s"
    if fastest is not best:
        text += f"; of all runs {fastest['policy']} with {fastest['threads']} threads, {number(_mean(fastest))} s"
    panel = drawing.draw_lines(
        {p: [Point(r["threads"], *_ends(r)) for r in single if r["policy"] == p] for p in POLICIES},
        label="time (s)",
        description=f"{text}.",
        heading=heading,
        **names,
    )
    return panel, f"{text}.", ()


def _gain(run: Row, default: Row) -> Bar:
    gain = _mean(default) / _mean(run)
    error = gain * hypot(run["error_pct"] / 100, default["error_pct"] / 100)
    label = f"{run['scenario']}\n{run['instances']} x {run['threads_per_instance']} threads"
    return Bar(label, gain, gain - error, gain + error, times(gain), run["policy"])


def _speedups(runs: Sequence[Row], *, heading: str, **names: Any) -> _Drawn:
    widest = [r for r in runs if r["threads"] == _THREADS]
    (default,) = [r for r in widest if r["scenario"] == DEFAULT]
    gains = [_gain(r, default) for r in widest if r is not default]
    best = max(gains, key=lambda bar: bar.value)
    shows = f"{heading}: {best.label.splitlines()[0]} is the fastest, {best.text} as fast as the default run."
    panel = drawing.draw_bars(
        gains,
        kinds=POLICIES,
        axis="speedup (times)",
        footer=f"dashed line: default run, {_mean(default):g} s",
        line=1,
        description=shows,
        heading=heading,
        **names,
    )
    rows = [(heading, *b.label.splitlines(), f"{b.value:.3f}", f"{b.value - b.low:.3f}") for b in gains]
    return panel, shows, rows


def _summary(runs: Sequence[Row], *, heading: str, **names: Any) -> _Drawn:
    bars, gains = [], []
    for system, dataset in _ORDER:
        widest = [r for r in runs if (r["system"], r["dataset"], r["threads"]) == (system, dataset, _THREADS)]
        (default,) = [r for r in widest if r["scenario"] == DEFAULT]
        policy = min((r for r in widest if r["instances"] == 1 and r is not default), key=_mean)
        several = min((r for r in widest if r["instances"] > 1), key=_mean)
        for run, kind in zip((default, policy, several), KINDS, strict=True):
            text = f"{_mean(run):g} s" + (f", {run['scenario']}" if run is not default else "")
            bars.append(Bar(f"{SYSTEMS[system]}\n{dataset}", *_ends(run), text, kind))
        best = min(policy, several, key=_mean)
        gain = times(_mean(default) / _mean(best))
        gains.append(f"{SYSTEMS[system]} {dataset} {best['scenario']} ({gain})")
    shows = f"{heading}, best: {', '.join(gains)}."
    panel = drawing.draw_bars(
        bars, kinds=KINDS, axis="time (s)", description=shows, heading=heading, thin=True, **names
    )
    return panel, shows, ()


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
    name, title = (
        f"peaks-{places[reads].lower()}",
        f"Figure {places[reads]}, its peaks. Comparison of {what}: {reads} reads",
    )
    peaks = groups(sheets["main_peaks"], ("table", "reads", "system"))
    panels, shows = [], []
    for aligner, members in _TOGETHER.items():
        for system, machine in MACHINES.items():
            rows = [r for r in peaks[table, reads, system] if r["aligner"] in members]
            best = max(rows, key=lambda r: float(r["peak_kreads_per_s"]))
            shows.append(
                f"{aligner}, {machine}: {_line(best)} peaks highest, {number(best['peak_kreads_per_s'])} thousand "
                f"reads per second with {count(best['threads_at_peak'], 'thread')}."
            )
            panels.append(
                drawing.draw_lines(
                    {_line(r): [Point(r["threads_at_peak"], *[r["peak_kreads_per_s"]] * 3)] for r in rows},
                    label="thousands of reads per second",
                    name=f"{name}-{aligner.lower().replace(' ', '')}-{system}",
                    title=f"{title}, {aligner}, {machine}",
                    description=shows[-1],
                    size=(320, 250),
                    heading=f"{aligner}, {machine}",
                    columns=1,
                )
            )
    return Figure(name, title, _HOW, tuple(shows), _PEAK_MEASURED, tuple(panels), ())


def _line(row: Row) -> str:
    return str(row["aligner"] if row["configuration"] == "default" else row["configuration"])
