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


def printed(value: float) -> str:
    """Return a number as the tables print it: with at least two decimals."""
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


#: Every published table.
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

#: A row: its cells by column, and its ``label``, which names its place in a paper.
Row = dict[str, Any]
Sheets = Mapping[str, Sequence[Row]]
#: The default run.
DEFAULT = "1Inst_Original"


def read(folder: Path) -> Sheets:
    """Return all sheets in *folder*; raises BadInput with file, line and reason."""
    sheets = {name: list(_rows(folder / spec.file, spec)) for name, spec in SHEETS.items()}
    _add_speedups(sheets["times"])
    return sheets


def _add_speedups(runs: Sequence[Row]) -> None:
    """Add a column *speedup* over the default run to the runs with as many threads as that."""
    for cell in groups(runs, ("aligner", "system", "dataset")).values():
        default = max((r for r in cell if r["scenario"] == DEFAULT), key=lambda r: r["threads"], default=None)
        for run in cell:
            if default is not None and run["threads"] == default["threads"]:
                run["speedup"] = default["mean_s"] / run["mean_s"]


def _rows(file: Path, spec: Spec) -> Iterable[Row]:
    wanted = (*spec.text, *spec.numbers)
    have, rows = references.read(file)
    if lacking := [c for c in wanted if c not in have]:
        raise BadInput(f"no column {', '.join(lacking)}: needed are {', '.join(wanted)}", file=file, line=1)
    seen: dict[str, int] = {}
    for row in rows:
        cells: dict[str, Any] = {c: row.cells[c] for c in spec.text} | {c: _number(row, c) for c in spec.numbers}
        if "instances" in cells:
            scenario = f"{cells['instances']}Inst_{cells['policy'].capitalize()}"
            threads = cells["instances"] * cells["threads_per_instance"]
            shape = f"{scenario} ({cells['instances']} x {cells['threads_per_instance']})"
            cells |= {"scenario": scenario, "threads": threads, "shape": shape}
        label = spec.label.format_map(cells)
        if label in seen:
            raise BadInput(f"{label}: line {seen[label]} has it already", file=file, line=row.line)
        seen[label] = row.line
        yield {**cells, "label": label}
    if not seen:
        raise BadInput("no rows below the first line", file=file, line=1)


def _number(row: references.Row, column: str) -> float:
    """Return a cell as a number, an integer if it is whole; raises BadInput if it is empty."""
    value = row.number(column)
    if value is None:
        raise BadInput(f"column {column} is empty", file=row.file, line=row.line)
    return int(value) if value.is_integer() else value


def matches(row: Row, wanted: Mapping[str, Any]) -> bool:
    """Return whether each column has its wanted value, one of a list, or not the value of ``{"not": ...}``."""
    return all(_matches(row, column, value) for column, value in wanted.items())


def _matches(row: Row, column: str, value: Any) -> bool:
    if column not in row:
        raise BadInput(f"there is no column '{column}': there are {', '.join(row)}")
    if isinstance(value, Mapping):
        return not _matches(row, column, value["not"])
    return row[column] in (value if isinstance(value, list) else [value])


def groups(rows: Iterable[Row], columns: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    """Return *rows* by their cells in *columns*, in the order of first appearance."""
    by_cells: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        by_cells.setdefault(tuple(row[c] for c in columns), []).append(row)
    return by_cells


def number(row: Row, column: str) -> float:
    """Return the number in *column*; raises BadInput if there is none."""
    cell = row.get(column)
    if not isinstance(cell, (int, float)):
        raise BadInput(f"{row['label']}: column {column} holds no numbers")
    return cell


@dataclass(frozen=True)
class Taken:
    """A number computed from rows, and these rows (for a minimum or maximum: one)."""

    value: float
    rows: Sequence[Row]


def take(rows: Iterable[Row], column: str, how: str) -> Taken | None:
    """Return the minimum, maximum, mean or median of the rows that have a column, or its ``only`` value.

    Returns None if no row has it. Raises BadInput if ``only`` has several values.
    """
    having = [row for row in rows if column in row]
    if not having:
        return None
    if how == "only" and len(having) > 1:
        raise BadInput(f"{having[0]['label']} and {having[1]['label']}: both match, select one")
    if how in {"mean", "median"}:
        average = statistics.fmean if how == "mean" else statistics.median
        return Taken(average([number(row, column) for row in having]), having)
    row = (max if how == "max" else min)(having, key=lambda r: number(r, column))
    return Taken(number(row, column), (row,))
