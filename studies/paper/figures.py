# SPDX-License-Identifier: Apache-2.0
"""The papers' figures, drawn from their published values, as the files of the studies describe them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, product
from math import hypot
from typing import Any

from firsttouch.errors import BadInput
from firsttouch.report.document import Cell, Entry, Figure, Panel, Table
from firsttouch.report.figures import drawing
from firsttouch.report.figures.drawing import Bar, Point
from firsttouch.report.text import count, times
from firsttouch.units import number
from paper.published_tables import Row, Sheets, heading, matches, rows_of
from paper.sheets import is_default
from study_files import OF_SCENARIO, Family, Reads, Sheet, Study
from study_files import Figure as Planned

_RATIO_ERRORS = " The error of a ratio is the square root of the sum of the squares of both errors."
_SPEEDUPS = ("aligner", "scenario", "instances and threads", "speedup", "error")
#: A panel with the sentence that describes it, and the rows that it adds to a table with the header _SPEEDUPS.
_Drawn = tuple[Panel, str, Sequence[tuple[Entry, ...]]]


def figures(study: Study, sheets: Sheets) -> list[Figure]:
    """Return the figures of a study: in the order of its file, those of one kind of reads after the other."""
    return [
        _KINDS[figure.shows](study, figure, reads, sheets)
        for reads in study.reads
        for figure in study.figures
        if reads in figure.number
    ]


def _rows(study: Study, figure: Planned, sheets: Sheets, needed: Sequence[str]) -> tuple[Sheet, list[Row]]:
    """Return the sheet of a figure, and its rows; raises BadInput if the sheet lacks a *needed* column."""
    described = [study.tables[name] for name in figure.tables]
    names = {table.sheet for table in described}
    sheet = sheets.specs[described[0].sheet]
    lacking = [column for column in needed if column not in sheet.columns]
    if len(names) > 1 or lacking:
        reason = f"needs column {lacking[0]}" if lacking else "needs tables of one sheet"
        raise BadInput(f"figure '{figure.title}': {figure.shows} {reason}", file=study.file)
    rows = [row for table in described for row in rows_of(table, sheets)]
    return sheet, [row for row in rows if matches(row, figure.select)]


# ----------------------------------------------------------------------
# Runs of scenarios: figures 5.4 to 5.12 of the thesis (4 to 12 of the article).

_SCALING = (
    "Lower is better. A line that halves with twice the threads scales perfectly. One that levels off or rises "
    "has run out of memory bandwidth. The gap between the lines is the effect of the policy."
)
_SPEEDUP = (
    "Longer is better. The dashed line at 1 is the default run with {threads} threads. A scenario whose error bar "
    "crosses it is not clearly faster or slower."
)
_SUMMARY = (
    "Shorter is better. For each system and dataset, with {threads} threads: the default run, the best policy for "
    "one instance, and the best of the runs with several instances."
)


class _Runs:
    """The published runs of one aligner, with *systems* and *datasets* of the study for titles."""

    def __init__(self, study: Study, family: Family, sheet: Sheet, rows: Sequence[Row]) -> None:
        self.systems = {name: title for name, (title, _) in study.systems.items()}
        self.datasets, self.heading, self.sheet = study.datasets, family.name, sheet
        self.rows = [row for row in rows if row["aligner"] == family.published]
        self.policies = list(dict.fromkeys(row["policy"] for row in rows))
        self.threads = max((row["threads"] for row in self.rows), default=0)

    def value(self, run: Row) -> float:
        return float(run[self.sheet.value])

    def error(self, run: Row) -> float:
        return float(run[self.sheet.error]) / 100 if self.sheet.error else 0.0

    def ends(self, run: Row) -> tuple[float, float, float]:
        """Return the mean of a run, and the ends of its error bar."""
        mean, error = self.value(run), self.error(run)
        return mean, mean * (1 - error), mean * (1 + error)

    def shown(self, run: Row) -> str:
        return f"{number(self.value(run))} {self.sheet.unit}"

    def widest(self, **wanted: Any) -> list[Row]:
        """Return the runs with the most threads that match *wanted*."""
        return [r for r in self.rows if r["threads"] == self.threads and matches(r, wanted)]


def _of_runs(how: str, draw: Callable[..., _Drawn]) -> Callable[..., Figure]:
    """Return the function of a kind of figures with a panel per aligner, which *draw* returns."""

    def figure(study: Study, planned: Planned, reads: Reads, sheets: Sheets) -> Figure:
        place = planned.number[reads]
        sheet, rows = _rows(study, planned, sheets, ("aligner", "system", "dataset", *OF_SCENARIO))
        name = f"{study.name}-figure-{place}"
        thesis = f" (thesis: {planned.thesis})" if planned.thesis else ""
        of = [study.datasets.get(v, heading(study, c, v)) for c, v in planned.select.items()]
        title = ": ".join(filter(None, (f"Figure {place}{thesis}. {planned.title}", ", ".join(of))))
        drawn, threads = [], 0
        for family in study.families.values():
            runs = _Runs(study, family, sheet, rows)
            threads = max(threads, runs.threads)
            if runs.rows:
                names = {"name": f"{name}-{family.published}", "title": f"{title}, {family.name}"}
                drawn.append(draw(runs, **names, heading=family.name))
        if not drawn:
            raise BadInput(f"study {study.name}: no published value is in figure {place}")
        panels, shows, speedups = zip(*drawn, strict=True)
        table = Table("Speedups", _SPEEDUPS, list(chain(*speedups)))
        below = (table,) if table.rows else ()
        how_to = how.format(threads=threads)
        return Figure(name, title, how_to, shows, sheet.measured + (_RATIO_ERRORS if below else ""), panels, below)

    return figure


def _scaling(runs: _Runs, *, heading: str, **names: Any) -> _Drawn:
    single = [r for r in runs.rows if r["instances"] == 1]
    best = min((r for r in single if r["threads"] == runs.threads), key=runs.value)
    fastest = min(single, key=runs.value)
    text = f"{heading}: with {runs.threads} threads {best['policy']} is fastest, {runs.shown(best)}"
    if fastest is not best:
        text += f"; of all runs {fastest['policy']} with {fastest['threads']} threads, {runs.shown(fastest)}"
    panel = drawing.draw_lines(
        {p: [Point(r["threads"], *runs.ends(r)) for r in single if r["policy"] == p] for p in runs.policies},
        label=runs.sheet.axis,
        description=f"{text}.",
        heading=heading,
        **names,
    )
    return panel, f"{text}.", ()


def _gain(runs: _Runs, run: Row, default: Row) -> Bar:
    gain = runs.value(default) / runs.value(run)
    error = gain * hypot(runs.error(run), runs.error(default))
    label = f"{run['scenario']}\n{run['instances']} x {run['threads_per_instance']} threads"
    return Bar(label, gain, gain - error, gain + error, times(gain), run["policy"])


def _speedups(runs: _Runs, *, heading: str, **names: Any) -> _Drawn:
    widest = runs.widest()
    (default,) = [r for r in widest if is_default(r)]
    gains = [_gain(runs, r, default) for r in widest if r is not default]
    best = max(gains, key=lambda bar: bar.value)
    shows = f"{heading}: {best.label.splitlines()[0]} is the fastest, {best.text} as fast as the default run."
    panel = drawing.draw_bars(
        gains,
        kinds=runs.policies,
        axis=f"speedup over the default run ({runs.value(default):g} {runs.sheet.unit})",
        line=1,
        description=shows,
        heading=heading,
        **names,
    )
    rows: list[tuple[Entry, ...]] = [
        (heading, *b.label.splitlines(), *(Cell(x, "{:.3f}".format) for x in (b.value, b.value - b.low)))
        for b in gains
    ]
    return panel, shows, rows


#: The bars of a dataset.
_OF_SUMMARY = ("default run", "best policy", "best partition")


def _summary(runs: _Runs, *, heading: str, **names: Any) -> _Drawn:
    bars, gains = [], []
    for dataset, (system, title) in product(runs.datasets, runs.systems.items()):
        widest = runs.widest(system=system, dataset=dataset)
        (default,) = [r for r in widest if is_default(r)]
        policy = min((r for r in widest if r["instances"] == 1 and r is not default), key=runs.value)
        several = min((r for r in widest if r["instances"] > 1), key=runs.value)
        for run, kind in zip((default, policy, several), _OF_SUMMARY, strict=True):
            text = f"{runs.value(run):g} {runs.sheet.unit}"
            text += f", {run['scenario']}" if run is not default else ""
            bars.append(Bar(f"{title}\n{dataset}", *runs.ends(run), text, kind))
        best = min(policy, several, key=runs.value)
        gain = times(runs.value(default) / runs.value(best))
        gains.append(f"{title} {dataset} {best['scenario']} ({gain})")
    shows = f"{heading}, best: {', '.join(gains)}."
    panel = drawing.draw_bars(
        bars, kinds=_OF_SUMMARY, axis=runs.sheet.axis, description=shows, heading=heading, **names
    )
    return panel, shows, ()


# ----------------------------------------------------------------------
# Peaks: figures 3 to 5, S1, S2 and S4 of the thread-scaling article.

_HOW = (
    "Only the peak of each configuration is published as numbers: these are the squares of the papers' figures, "
    "without the curves. Higher is more throughput, and farther to the right are more threads. If a peak is far "
    "from the last thread of the machine, threads wait for each other."
)


def together(study: Study) -> dict[str, list[Family]]:
    """Return the families of each panel: those that stand beside another family are in its panel."""
    families = study.families.values()
    return {f.name: [f, *(b for b in families if b.beside == f.name)] for f in families if not f.beside}


def _peaks(study: Study, planned: Planned, reads: Reads, sheets: Sheets) -> Figure:
    """Return a figure with a panel per aligner and system."""
    place = planned.number[reads]
    sheet, rows = _rows(study, planned, sheets, ("aligner", "configuration", "system", "reads"))
    name = f"{study.name}-figure-{place.lower()}"
    title = f"Figure {place}, its peaks. {planned.title}: {reads} reads"
    panels, shows = [], []
    for panel, families in together(study).items():
        for system, (machine, _) in study.systems.items():
            wanted = {"aligner": [f.published for f in families], "reads": reads, "system": system}
            drawn = [row for row in rows if matches(row, wanted)]
            if not drawn:
                continue
            best = max(drawn, key=lambda r: float(r[sheet.value]))
            shows.append(
                f"{panel}, {machine}: {_line(best)} peaks highest, {number(best[sheet.value])} {sheet.unit} "
                f"with {count(best[sheet.threads], 'thread')}."
            )
            panels.append(
                drawing.draw_lines(
                    {_line(r): [Point(r[sheet.threads], *[r[sheet.value]] * 3)] for r in drawn},
                    label=sheet.axis,
                    name=f"{name}-{panel.lower().replace(' ', '')}-{system}",
                    title=f"{title}, {panel}, {machine}",
                    description=shows[-1],
                    size=(320, 200),
                    heading=f"{panel}, {machine}",
                )
            )
    if not panels:
        raise BadInput(f"study {study.name}: no published value is in figure {place}")
    return Figure(name, title, _HOW, tuple(shows), sheet.measured, tuple(panels), ())


def _line(row: Row) -> str:
    return str(row["aligner"] if row["configuration"] == "default" else row["configuration"])


#: Kind of figure -> the function that returns one for a kind of reads.
_KINDS: Mapping[str, Callable[[Study, Planned, Reads, Sheets], Figure]] = {
    "peaks": _peaks,
    "policies": _of_runs(_SCALING, _scaling),
    "speedups": _of_runs(_SPEEDUP, _speedups),
    "summary": _of_runs(_SUMMARY, _summary),
}
