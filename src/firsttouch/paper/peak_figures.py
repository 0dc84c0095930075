# SPDX-License-Identifier: Apache-2.0
"""Figures 3 to 5, S1, S2 and S4 of the thread-scaling article, as far as published: their peaks."""

from __future__ import annotations

from firsttouch.paper.names import MACHINES, READS
from firsttouch.paper.sheets import Row, Sheets
from firsttouch.report.model import Figure
from firsttouch.report.plots import lines
from firsttouch.report.plots.lines import Point
from firsttouch.report.text import count, number

_HOW = (
    "Only each configuration's peak is published as numbers: these are the squares of the papers' figures, not "
    "the curves between them. Higher is more throughput; farther to the right, it took more threads to reach it. "
    "A peak far from the machine's last thread tells of threads that wait for each other."
)
_MEASURED = "Highest of single runs with as many reads for each thread; the papers give no spread."
#: Table -> what it compares, and its figures with paired and unpaired reads.
_FIGURES = {
    "T2": ("four lock types and the multiprocessing baseline", {"unpaired": "3", "paired": "S1"}),
    "T3": ("three parsing strategies and the multiprocessing baseline", {"unpaired": "4", "paired": "S2"}),
    "T4": ("B-parsing, L-parsing, the multiprocessing baseline and BWA-MEM", {"unpaired": "5", "paired": "S4"}),
}
#: Aligner -> those of the table that are drawn with it: BWA-MEM is compared with Bowtie 2.
_TOGETHER = {"Bowtie": ("Bowtie",), "Bowtie 2": ("Bowtie 2", "BWA-MEM"), "HISAT": ("HISAT",)}


def figures(sheets: Sheets) -> list[Figure]:
    """Return six figures, a panel per aligner and machine."""
    return [_figure(table, reads, sheets) for reads in reversed(READS) for table in _FIGURES]


def _figure(table: str, reads: str, sheets: Sheets) -> Figure:
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
            said = _said(aligner, machine, rows)
            shows.append(said)
            panels.append(
                lines.draw(
                    {_line(r): [_point(r)] for r in rows},
                    label="thousands of reads per second",
                    name=f"peaks-{place.lower()}-{aligner.lower().replace(' ', '')}-{system}",
                    title=f"{title}, {aligner}, {machine}",
                    description=said,
                    size=(320, 250),
                    heading=f"{aligner}, {machine}",
                    columns=1,
                )
            )
    return Figure(f"peaks-{place.lower()}", title, _HOW, tuple(shows), _MEASURED, tuple(panels), ())


def _line(row: Row) -> str:
    return row.text("aligner") if row.text("configuration") == "default" else row.text("configuration")


def _point(row: Row) -> Point:
    value = row.number("peak_kreads_per_s") or 0.0
    return Point(round(row.number("threads_at_peak") or 0.0), value, value, value)


def _said(aligner: str, machine: str, rows: list[Row]) -> str:
    best = max(rows, key=lambda r: _point(r).value)
    point = _point(best)
    return (
        f"{aligner}, {machine}: {_line(best)} peaks highest, {number(point.value)} thousand reads per second with "
        f"{count(point.threads, 'thread')}."
    )
