# SPDX-License-Identifier: Apache-2.0
"""The published tables of the papers as rows of cells."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firsttouch.errors import BadInput
from firsttouch.systems import references

# ----------------------------------------------------------------------
# Names of aligners, systems and tables in the papers, for headings.

#: Aligner -> its name in the tables of the article and the thesis, the letter of its tables.
ALIGNERS = {"bowtie2": ("BOWTIE2", "A"), "bwa-mem": ("BWA-MEM", "B"), "gem": ("GEM", "C"), "snap": ("SNAP", "D")}
SYSTEMS = {"amd-opteron": "AMD", "intel-xeon": "INTEL"}
DATASETS = ("NA12878", "GCAT")
POLICIES = ("original", "localalloc", "interleave")
#: The article's table -> the thesis's.
THESIS = {"A1": "A3", "A2": "A4", "B1": "B5", "B2": "B6", "C1": "C7", "C2": "C8", "D1": "D9", "D2": "D10"}
#: Dataset -> what it is called in the captions of the figures.
CAPTIONS = {"GCAT": "GCAT synthetic input", "NA12878": "NA12878 real input"}
#: System -> its name and threads in the head of tables 2 to 4.
MACHINES = {
    "skylake": "Skylake (96 threads)",
    "broadwell": "Broadwell (112 threads)",
    "knl": "KNL (272 threads)",
}
READS = ("paired", "unpaired")


def printed(value: float | None) -> str:
    """Return a number as the tables print it: with at least two decimals; an empty text for None."""
    if value is None:
        return ""
    text = f"{value:.6f}".rstrip("0")
    return text if len(text.partition(".")[2]) > 2 else f"{value:.2f}"


# ----------------------------------------------------------------------
# The tables. A row's label names its place in a paper.


@dataclass(frozen=True)
class Spec:
    """A table: its file, the columns of text and of numbers, the column of the result, the format of labels."""

    file: str
    text: tuple[str, ...]
    numbers: tuple[str, ...]
    value: str
    label: str


#: Every published table. A number that a paper does not state is an empty cell.
SHEETS: dict[str, Spec] = {
    "times": Spec(
        "lenis2017_execution_times.csv",
        ("table", "aligner", "system", "dataset", "policy"),
        ("instances", "threads_per_instance", "mean_s", "error_pct"),
        "mean_s",
        "{table} {aligner}, {system}, {dataset}, {shape}",
    ),
    "aligners": Spec(
        "lenis2018_aligners.csv", ("aligner", "version", "file"), ("index_gb",), "index_gb", "table 1 {aligner}"
    ),
    "systems": Spec(
        "lenis2018_systems.csv",
        ("system", "source", "quantity"),
        ("value",),
        "value",
        "{source}, {system}: {quantity}",
    ),
    "peaks": Spec(
        "langmead2018_peak_throughput.csv",
        ("aligner", "configuration", "system", "reads"),
        ("threads_at_peak", "peak_kreads_per_s", "whole_human_40x_min"),
        "peak_kreads_per_s",
        "S2 {aligner}, {configuration}, {system}, {reads}",
    ),
    "main_peaks": Spec(
        "langmead2018_peak_tables.csv",
        ("table", "aligner", "configuration", "system", "reads"),
        ("threads_at_peak", "peak_kreads_per_s"),
        "peak_kreads_per_s",
        "{table} {aligner}, {configuration}, {system}, {reads}",
    ),
    "padding": Spec(
        "langmead2018_padding.csv",
        ("input_set",),
        ("fastq_gb", "blocked_gb", "change_pct", "gzip_fastq_gb", "gzip_blocked_gb", "gzip_change_pct"),
        "change_pct",
        "S3 {input_set}",
    ),
    "machines": Spec(
        "langmead2018_systems.csv",
        ("system",),
        ("packages", "cores_per_package", "threads_per_core", "threads"),
        "threads",
        "section 3.3, {system}",
    ),
}

Cell = str | float | None
#: The default run.
DEFAULT = "1Inst_Original"


@dataclass(frozen=True)
class Row:
    """A row: its cells by column (an empty number is None), and its *label*."""

    cells: Mapping[str, Cell]
    label: str

    def number(self, column: str) -> float | None:
        """Return the number in *column*, None if empty; raises BadInput for text."""
        cell = self.cells[column]
        if isinstance(cell, str):
            raise BadInput(f"{self.label}: column {column} holds no numbers")
        return cell

    def text(self, column: str) -> str:
        """Return the cell as text, whole numbers without a point."""
        return _text(self.cells[column])


Sheets = Mapping[str, tuple[Row, ...]]


def read(folder: Path) -> Sheets:
    """Return all sheets in *folder*; raises BadInput with file, line and reason."""
    sheets = {name: tuple(_rows(folder / spec.file, spec)) for name, spec in SHEETS.items()}
    return {**sheets, "times": _with_speedups(sheets["times"])}


def _with_speedups(runs: Sequence[Row]) -> tuple[Row, ...]:
    """Return the runs with a column *speedup* over the default run, None with another number of threads."""
    cell = ("aligner", "system", "dataset")
    most: dict[tuple[str, ...], Row] = {}
    for run in runs:
        key = tuple(run.text(c) for c in cell)
        if run.cells["scenario"] == DEFAULT and (
            key not in most or _of(run, "threads") > _of(most[key], "threads")
        ):
            most[key] = run
    result = []
    for run in runs:
        default = most.get(tuple(run.text(c) for c in cell))
        same = default is not None and _of(default, "threads") == _of(run, "threads")
        speedup = _of(default, "mean_s") / _of(run, "mean_s") if default and same else None
        result.append(Row({**run.cells, "speedup": speedup}, run.label))
    return tuple(result)


def _of(row: Row, column: str) -> float:
    return row.number(column) or 0.0


def _rows(file: Path, spec: Spec) -> Iterable[Row]:
    wanted = (*spec.text, *spec.numbers)
    have = references.columns(file)
    if lacking := [c for c in wanted if c not in have]:
        raise BadInput(f"no column {', '.join(lacking)}: needed are {', '.join(wanted)}", file=file, line=1)
    seen: dict[str, int] = {}
    for row in references.rows(file):
        cells: dict[str, Cell] = {c: row.cells[c] for c in spec.text}
        cells |= {c: row.number(c) for c in spec.numbers}
        cells |= _derived(cells)
        label = spec.label.format_map({name: _text(cell) for name, cell in cells.items()})
        if label in seen:
            raise BadInput(f"{label}: line {seen[label]} has it already", file=file, line=row.line)
        seen[label] = row.line
        yield Row(cells, label)
    if not seen:
        raise BadInput("no rows below the first line", file=file, line=1)


def _derived(cells: Mapping[str, Cell]) -> dict[str, Cell]:
    """Return the columns that follow from others: scenario, total threads and shape of a run."""
    instances, each = cells.get("instances"), cells.get("threads_per_instance")
    if not isinstance(instances, float) or not isinstance(each, float):
        return {}
    scenario = f"{instances:.0f}Inst_{_text(cells['policy']).capitalize()}"
    return {
        "scenario": scenario,
        "threads": instances * each,
        "shape": f"{scenario} ({instances:.0f} x {each:.0f})",
    }


def _text(cell: Cell) -> str:
    return f"{cell:g}" if isinstance(cell, float) else cell or ""


def matches(row: Row, wanted: Mapping[str, Any]) -> bool:
    """Return whether each column has its wanted value, one of a list, or not the value of ``{"not": ...}``."""
    return all(_matches(row, column, value) for column, value in wanted.items())


def _matches(row: Row, column: str, value: Any) -> bool:
    if column not in row.cells:
        raise BadInput(f"there is no column '{column}': there are {', '.join(row.cells)}")
    if isinstance(value, Mapping):
        return not _matches(row, column, value["not"])
    values = value if isinstance(value, list) else [value]
    return any(row.cells[column] == v for v in values)


def groups(rows: Sequence[Row], columns: Sequence[str]) -> dict[tuple[str, ...], list[Row]]:
    """Return *rows* by their text in *columns*, in the order of first appearance."""
    by_text: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        by_text.setdefault(tuple(row.text(c) for c in columns), []).append(row)
    return by_text


@dataclass(frozen=True)
class Taken:
    """A number computed from rows, and these rows (for a minimum or maximum: one)."""

    value: float
    rows: tuple[Row, ...]


def take(rows: Sequence[Row], column: str, how: str) -> Taken | None:
    """Return the minimum, maximum, mean or median of a column, or its ``only`` value; None if it is empty.

    Raises BadInput if ``only`` has several values.
    """
    cells = [(value, row) for row in rows if (value := row.number(column)) is not None]
    if not cells:
        return None
    if how == "only" and len(cells) > 1:
        raise BadInput(f"{cells[0][1].label} and {cells[1][1].label}: both match, select one")
    if how in {"mean", "median"}:
        value = (statistics.fmean if how == "mean" else statistics.median)(v for v, _ in cells)
        return Taken(value, tuple(row for _, row in cells))
    value, row = (max if how == "max" else min)(cells, key=lambda item: item[0])
    return Taken(value, (row,))
