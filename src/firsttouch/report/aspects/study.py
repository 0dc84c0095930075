# SPDX-License-Identifier: Apache-2.0
"""Studies of threads repeated on a host: seconds and throughput against threads, and the peaks.

A study file (:mod:`firsttouch.benchmarks.studies`) says which records belong together. Throughput is that of the
publication: reads per thread times threads, divided by the time of the slowest thread. Pairs count once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial

from msgspec import Struct, field
from msgspec.structs import astuple, replace

from firsttouch.benchmarks import studies as study_files
from firsttouch.benchmarks.studies import MATES, Family, Reads, Study
from firsttouch.benchmarks.studies import Table as PlannedTable
from firsttouch.judge.gains import Interval
from firsttouch.records.cases import grouped
from firsttouch.records.schema import Record
from firsttouch.report.aspect import Aspect, Chart, Draw, Result, measured, spread, value_table, without_unit
from firsttouch.report.document import Cell, Entry, Table
from firsttouch.report.figures.drawing import Point, draw_lines, wide
from firsttouch.report.model import HostView, dataset_of, whole
from firsttouch.report.speedups import Key, pivot, repetitions
from firsttouch.report.text import count, listed
from firsttouch.units import number, percent

CHECK = "weak_scaling"
_TITLE = "Time and throughput by threads"
_HOW = (
    "Each thread has the same number of reads, so perfect scaling is a flat line of seconds and a straight rising "
    "line of throughput. The time to load the index is excluded. A square is the peak of a line: the number of "
    "threads with the highest throughput. A line whose peak is far from the last thread has threads that wait for "
    "each other."
)


def aspect(view: HostView) -> Aspect:
    """Return the peaks of each study, dataset and kind of reads that the host has records of, and their charts."""
    studies = view.once(repeated)
    charts = [
        _chart(study, planned, reads, dataset)
        for study in studies
        for dataset in study.datasets
        for reads in study.study.reads
        for planned in study.figures
    ]
    # The tables of peaks that the figures of each study use.
    tables = [
        table
        for study in studies
        for planned in {t.name: t for figure in study.figures for t in figure.tables}.values()
        for table in _peak_table(study, planned)
    ]
    # The runs of a campaign that have no record, because they took longer than the limit of the study.
    left_out = [f"Left out: {p.name} ({p.reason})." for p in view.problems if p.reason.startswith("omitted:")]
    return Aspect(
        [_result(comparison, study.study) for study in studies for comparison in study.comparisons],
        [*filter(None, charts)],
        tables=tables,
        note=" ".join([_NORMALIZED, *left_out]) if tables else "",
    )


def _result(comparison: Comparison, study: Study) -> Result:
    peak = comparison.peaks(study.configurations)[0]
    label = f"{comparison.panel}, {comparison.dataset}, {comparison.reads} reads: highest throughput"
    compared = _beside_default(comparison, study.configurations)
    return Result(label, peak.record, compared, f"{peak.text}, {peak.line}")


# ----------------------------------------------------------------------
# The runs of studies among the records of a host


class Run(Struct, frozen=True, eq=False, dict=True):
    """A record of a study: its *line* in a figure is the *configuration* of a *family*."""

    record: Record
    family: Family
    configuration: str
    reads: Reads
    threads: int

    @property
    def line(self) -> str:
        """The name in a legend."""
        return self.family.name if self.configuration == "default" else self.configuration

    @property
    def is_default(self) -> bool:
        """Whether the aligner runs like this unless one asks for another configuration."""
        return self.configuration == self.family.default

    @cached_property
    def rate(self) -> Interval:
        """Thousands of reads (pairs) per second with the range of the repetitions."""
        rate = repetitions(self.record)
        mates = MATES[self.reads]
        return Interval(rate.value / mates, rate.low / mates, rate.high / mates)

    @cached_property
    def seconds(self) -> Interval:
        """The time for the reads of a thread, without that to load the index."""
        work = whole(self.record, "reads_per_thread") * self.threads / 1000
        return Interval(work / self.rate.value, work / self.rate.high, work / self.rate.low)

    @property
    def text(self) -> str:
        """Its throughput and threads in a sentence."""
        things = "pairs" if self.reads == "paired" else "reads"
        return f"{number(self.rate.value)} thousand {things} per second with {count(self.threads, 'thread')}"


class Comparison(Struct, frozen=True, eq=False):
    """Runs of one panel: of aligners that a study compares, on one dataset with one number of reads per thread."""

    panel: str
    dataset: str
    reads: Reads
    per_thread: int
    runs: tuple[Run, ...]

    @property
    def things(self) -> str:
        """What is counted: reads or pairs."""
        return "pairs" if self.reads == "paired" else "reads"

    @property
    def heading(self) -> str:
        """The heading of a panel."""
        return f"{self.panel}, {self.per_thread:,} {self.things} per thread"

    def lines(self, names: Iterable[str]) -> dict[str, list[Run]]:
        """Return the runs of the configurations *names* by line, fewest threads first."""
        return {
            run.line: sorted((r for r in self.runs if r.line == run.line), key=lambda r: r.threads)
            for name in names
            for run in self.runs
            if run.configuration == name
        }

    def peaks(self, names: Iterable[str]) -> list[Run]:
        """Return the run of each configuration with the highest throughput, the best first."""
        runs = [max(line, key=lambda r: r.rate.value) for line in self.lines(names).values()]
        return sorted(runs, key=lambda r: -r.rate.value)


class Comparisons(Struct, frozen=True, eq=False):
    """A figure: its *title*, the *tables* with its configurations, and its published *number* by kind of reads."""

    title: str
    tables: Sequence[PlannedTable]
    number: Mapping[Reads, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The configurations in it."""
        return list(dict.fromkeys(name for table in self.tables for name in table.configurations))


class Repeated(Struct, frozen=True, dict=True):
    """A study of which a host has at least two configurations to compare, and the runs that took *too_long*.

    *pus* are the PUs of the host for a heading, if its records have them.
    """

    study: Study
    comparisons: tuple[Comparison, ...]
    too_long: tuple[Run, ...]
    pus: str = ""

    @cached_property
    def figures(self) -> list[Comparisons]:
        """What to draw: the study's figures, else a figure for each table, else one of all configurations."""
        study = self.study
        if study.figures:
            return [
                Comparisons(f.title, [study.tables[name] for name in f.tables], f.number) for f in study.figures
            ]
        everything = PlannedTable("", "Peak throughputs", tuple(study.families), tuple(study.configurations))
        tabled = [t for t in study.tables.values() if not t.planned]
        return [Comparisons(t.title, [t]) for t in tabled] or [Comparisons(study.title, [everything])]

    @property
    def datasets(self) -> list[str]:
        """The datasets of its records."""
        return sorted({c.dataset for c in self.comparisons})


def repeated(view: HostView) -> list[Repeated]:
    """Return the studies of which the host has records to compare, by name."""
    records = view.of(CHECK, metric="throughput")
    if not records:
        return []
    pus = view.metric("topology", "pus")
    of_host = f" ({count(round(pus.value), 'PU')})" if pus else ""
    repeated = (_repeated(study, records) for study in study_files.readable())
    return [replace(study, pus=of_host) for study in repeated if study.comparisons]


def _repeated(study: Study, records: Sequence[Record]) -> Repeated:
    panels = {f.name: f.beside or f.name for f in study.families.values()}
    grouped: dict[tuple[str, str, Reads, int], dict[tuple[str, int], Run]] = {}
    # If several records describe one run, the latest counts.
    for record in sorted(records, key=lambda r: r.time):
        seen = study.recognized(record.parameters)
        if seen is None or not seen.family.reads_per_thread:
            continue
        run = Run(record, seen.family, seen.configuration.name, seen.reads, seen.threads)
        case = (panels[seen.family.name], dataset_of(record), seen.reads, whole(record, "reads_per_thread"))
        grouped.setdefault(case, {})[run.line, run.threads] = run
    limit = study.time_limit or math.inf
    too_long = []
    comparisons = []
    order = [*panels.values()]
    for case in sorted(grouped, key=lambda c: (order.index(c[0]), c)):
        runs = grouped[case].values()
        if len({r.line for r in runs}) > 1:
            too_long += [r for r in runs if r.seconds.value > limit]
            comparisons.append(Comparison(*case, tuple(r for r in runs if r.seconds.value <= limit)))
    return Repeated(study, tuple(c for c in comparisons if c.runs), tuple(too_long))


def compared(view: HostView) -> list[Record]:
    """Return the records that figures of studies show."""
    return [
        run.record
        for study in view.once(repeated)
        for runs in (*(c.runs for c in study.comparisons), study.too_long)
        for run in runs
    ]


# ----------------------------------------------------------------------
# Sentences.


def _clearly_faster(run: Run, other: Run) -> bool:
    """Return whether all of several repetitions of *run* are faster than those of *other*."""
    several = min(run.record.repetitions, other.record.repetitions) > 1
    return several and run.rate.low > other.rate.high


def _behind(best: Run, other: Run) -> str:
    return percent(1 - other.rate.value / best.rate.value)


def _sentence(comparison: Comparison, names: Sequence[str]) -> str:
    """Return which configuration is best, how far the default and the others are behind, and where peaks are."""
    best, *others = comparison.peaks(names)
    sentences = [f"{comparison.panel}: {best.line} peaks highest, {best.text}{_second(best, others)}."]
    if default := _beside_default(comparison, names):
        sentences.append(f"{default[0].upper()}{default[1:]}.")
    falling = []
    for line, runs in comparison.lines(names).items():
        peak, last = max(runs, key=lambda r: r.rate.value), runs[-1]
        if _clearly_faster(peak, last):
            falling.append(f"{line} (peak with {peak.threads} of {last.threads} threads)")
    sentences += [f"More threads than at the peak slow down {listed(falling)}."] if falling else []
    return " ".join(sentences)


def _beside_default(comparison: Comparison, names: Iterable[str]) -> str:
    """Return how the best configuration compares with the aligner's default; nothing if that was not run."""
    best, *others = comparison.peaks(names)
    of_panel = (run for run in (best, *others) if run.is_default and run.family.name == comparison.panel)
    default = next(of_panel, None)
    if default is None:
        return ""
    if default is best:
        return f"this is the default of {comparison.panel}"
    if _clearly_faster(best, default):
        return f"the default, {default.line}, is {_behind(best, default)} behind"
    return f"the default, {default.line}, is not clearly slower"


def _second(best: Run, others: Sequence[Run]) -> str:
    alike = [run.line for run in others if not _clearly_faster(best, run)]
    if not others:
        return ""
    if alike and min(r.record.repetitions for r in (best, *others)) == 1:
        return f", {_behind(best, others[0])} before {others[0].line} (single repetitions)"
    if alike:
        return f", but its repetitions overlap with those of {listed(alike)}"
    second = others[0]
    return f"; {second.line} is second, {_behind(best, second)} behind"


def _omitted(study: Repeated, names: Sequence[str], reads: Reads, dataset: str) -> str:
    """Return which runs are left out because they took longer than the limit of the study."""
    too_long = [
        run
        for run in study.too_long
        if run.configuration in names and (run.reads, dataset_of(run.record)) == (reads, dataset)
    ]
    if not too_long:
        return ""
    runs = grouped(too_long, lambda run: f"{run.family.name}, {run.configuration}")
    threads = {
        name: listed(str(t) for t in sorted(run.threads for run in of_name)) for name, of_name in runs.items()
    }
    which = listed((f"{name} (threads: {text})" for name, text in threads.items()), most=12)
    return f"Left out, because they took longer than {(study.study.time_limit or 0) / 60:g} min: {which}."


# ----------------------------------------------------------------------
# Peaks in the layout of the published tables

#: The marks replace the colours of the publications.
MARKED = " ((1) and (2): highest and second highest of the aligner)"

_NORMALIZED = (
    "Th is the number of threads at the peak, Krd/s its thousands of reads per second: threads times reads per "
    "thread, divided by the time of the slowest thread. For paired reads it counts pairs, as the scripts of the "
    "study did. Cells are medians of n repetitions, with spread (largest - smallest) / median."
)


def _peak_table(study: Repeated, described: PlannedTable) -> list[Table]:
    """Return the table of peaks, or none without a peak."""
    names = described.configurations
    here = {(c, run.line): run for c in study.comparisons for run in c.peaks(names)}
    if not here:
        return []
    ran, order = {(run.family.name, run.configuration) for run in here.values()}, list(study.study.families)
    rows = [
        (family.name, configuration.name)
        for family, configuration in sorted(study.study.pairs(), key=lambda pair: order.index(pair[0].name))
        if (family.name, configuration.name) in ran
    ]
    title = f"{described.title}, on this host"
    if described.number:
        title = caption(described).replace(". ", " on this host. ", 1)
    columns = {_column(study, c) for c in study.comparisons if any(run in c.runs for run in here.values())}
    table = pivot(
        title + MARKED,
        corner=("Aligner", "Configuration"),
        rows=rows,
        columns=sorted(columns),
        cells=_cells(study, here),
        heads=("Th", "Krd/s", "spread (%)", "n"),
    )
    return [table]


def _column(study: Repeated, comparison: Comparison) -> Key:
    parts = ["This host", *([comparison.dataset] if len(study.datasets) > 1 else [])]
    return ", ".join(parts) + study.pus, comparison.reads.capitalize()


def _cells(study: Repeated, here: Mapping[tuple[Comparison, str], Run]) -> dict[tuple[Key, Key], Sequence[Entry]]:
    cells: dict[tuple[Key, Key], Sequence[Entry]] = {}
    for comparison in study.comparisons:
        runs = {line: run for (of, line), run in here.items() if of is comparison}
        place_of = places([((line,), run.rate.value) for line, run in runs.items()])
        for line, run in runs.items():
            rate = Cell(run.rate.value, marked("{:,.2f}".format, place_of.get((line,))))
            peak = (run.threads, rate, spread(run.record, without_unit), run.record.repetitions)
            cells[(run.family.name, run.configuration), _column(study, comparison)] = peak
    return cells


def caption(described: PlannedTable) -> str:
    """Return the caption of a table, with its number and that in the thesis."""
    thesis = f" (thesis: {described.thesis})" if described.thesis else ""
    return f"Table {described.number}{thesis}. {described.title}" if described.number else described.title


def marked(form: Callable[[float], str], place: int | None) -> Callable[[float], str]:
    """Return the format of a number with its *place* behind it, if it has one."""
    return form if place is None else lambda value: f"{form(value)} ({place})"


def places(rivals: Sequence[tuple[Key, float]]) -> dict[Key, int]:
    """Return the place, 1 or 2, of the highest two values; equal values share a place, and one has no rival."""
    ranks = {key: 1 + sum(other > value for _, other in rivals) for key, value in rivals}
    return {key: rank for key, rank in ranks.items() if rank <= 2 and len(rivals) > 1}


# ----------------------------------------------------------------------
# The charts.


def _chart(study: Repeated, planned: Comparisons, reads: Reads, dataset: str) -> Chart | None:
    """Return the chart of one kind of reads and one dataset, None without two lines to compare."""
    names = planned.names
    comparisons = [
        c for c in study.comparisons if (c.reads, c.dataset) == (reads, dataset) and len(c.lines(names)) > 1
    ]
    if not comparisons:
        return None
    where = f"-{study.datasets.index(dataset) + 1}" if len(study.datasets) > 1 else ""
    published = planned.number.get(reads)
    like = f", as in figure {published} of {study.study.short}" if published else ""
    sentences = {c: _sentence(c, names) for c in comparisons}
    panels = {heading: (c, draw) for c in comparisons for heading, draw in _panels(c, names)}
    return Chart(
        key=f"{study.study.name}-{study.figures.index(planned) + 1}-{reads}{where}",
        title=f"{_TITLE}{like}: {planned.title}: {reads} reads" + (f", {dataset}" if where else ""),
        how=_HOW,
        shows=[*filter(None, (*sentences.values(), _omitted(study, names, reads, dataset)))],
        measured=measured(r.record for c in comparisons for runs in c.lines(names).values() for r in runs),
        panels={heading: draw for heading, (_, draw) in panels.items()},
        descriptions={heading: sentences[comparison] for heading, (comparison, _) in panels.items()},
        tables=[_numbers(c, names) for c in comparisons],
    )


def _panels(comparison: Comparison, names: Sequence[str]) -> Iterator[tuple[str, Draw]]:
    lines = comparison.lines(names)
    for quantity, label in (("time", "time (s)"), ("throughput", f"thousands of {comparison.things} per second")):
        points = {
            line: [Point(run.threads, *astuple(run.seconds if quantity == "time" else run.rate)) for run in runs]
            for line, runs in lines.items()
        }
        yield (
            f"{comparison.heading}: {quantity}",
            partial(
                draw_lines,
                points,
                label=label,
                size=(420, 230),
                logarithmic=wide([end for line in points.values() for p in line for end in (p.low, p.high)]),
                squares={run.line: run.threads for run in comparison.peaks(names)},
            ),
        )


def _numbers(comparison: Comparison, names: Sequence[str]) -> Table:
    peaks = comparison.peaks(names)
    rows = [
        ((line, run.threads, Cell(run.seconds.value, number), "peak" if run in peaks else ""), run.record)
        for line, runs in comparison.lines(names).items()
        for run in runs
    ]
    both = ", both mates counted" if comparison.reads == "paired" else ""
    caption = f"{comparison.heading}: throughput (thousands of reads per second{both})"
    return value_table(caption, ("configuration", "threads", "seconds", ""), rows)
