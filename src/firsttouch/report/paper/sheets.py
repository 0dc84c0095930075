# SPDX-License-Identifier: Apache-2.0
"""The published tables of studies as rows of cells."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firsttouch.benchmarks import studies
from firsttouch.benchmarks.studies import Sheet, Study
from firsttouch.errors import BadInput
from firsttouch.scenarios.placement import parse_name
from firsttouch.systems import references

#: A row: its cells by column, and its ``label``, which names its place in a paper.
Row = dict[str, Any]


@dataclass(frozen=True)
class Sheets:
    """The rows of each sheet of some studies by its name, and what the studies say of the sheets (*specs*)."""

    rows: Mapping[str, Sequence[Row]]
    specs: Mapping[str, Sheet]

    def __getitem__(self, name: str) -> Sequence[Row]:
        return self.rows[name]

    def __contains__(self, name: str) -> bool:
        return name in self.rows


def published() -> list[Study]:
    """Return the studies with published values, by name; raises BadInput for two sheets of one name."""
    having = [study for study in studies.readable() if study.sheets]
    owners: dict[str, str] = {}
    for study in having:
        for name in study.sheets:
            if name in owners:
                raise study.document.error(f"study {owners[name]} has a sheet '{name}', too", "sheet", name)
            owners[name] = study.name
    return having


def specs(having: Iterable[Study]) -> dict[str, Sheet]:
    """Return the sheets of all studies by name."""
    return {name: sheet for study in having for name, sheet in study.sheets.items()}


def read(folder: Path, having: Sequence[Study]) -> Sheets:
    """Return the sheets of the studies, whose files are in *folder* or beside the file of a study.

    Raises BadInput with file, line and reason.
    """
    rows = {}
    for study in having:
        for name, sheet in study.sheets.items():
            file, beside = folder / sheet.file, Path(study.document.file).parent / sheet.file
            rows[name] = list(_rows(beside if beside.exists() and not file.exists() else file, sheet, study))
            _add_speedups(rows[name], sheet)
    return Sheets(rows, specs(having))


def _rows(file: Path, sheet: Sheet, study: Study) -> Iterable[Row]:
    wanted = (*sheet.text, *sheet.numbers)
    have, rows = references.read(file)
    if lacking := [c for c in wanted if c not in have]:
        raise BadInput(f"no column {', '.join(lacking)}: needed are {', '.join(wanted)}", file=file, line=1)
    seen: dict[str, int] = {}
    for row in rows:
        cells: dict[str, Any] = {c: row.cells[c] for c in sheet.text} | {c: _number(row, c) for c in sheet.numbers}
        if {"instances", "threads_per_instance", "policy"} <= cells.keys():
            cells |= _of_scenario(cells, study)
        label = sheet.label.format_map(cells)
        if label in seen:
            raise BadInput(f"{label}: line {seen[label]} has it already", file=file, line=row.line)
        seen[label] = row.line
        yield {**cells, "label": label}
    if not seen:
        raise BadInput("no rows below the first line", file=file, line=1)


def _of_scenario(cells: Row, study: Study) -> Row:
    """Return the columns that follow from instances, threads per instance and policy."""
    instances, each, policy = (cells[c] for c in ("instances", "threads_per_instance", "policy"))
    scenario = f"{instances}Inst_{policy.capitalize()}"
    name = parse_name(scenario)
    configuration = next((c.name for c in study.configurations.values() if name and c.has(name, instances)), "")
    shape = f"{scenario} ({instances} x {each})"
    return {"scenario": scenario, "threads": instances * each, "shape": shape, "configuration": configuration}


def is_default(row: Row) -> bool:
    """Return whether a run has a single instance with the default policy."""
    return bool(row["instances"] == 1 and row["policy"] == "original")


def _add_speedups(runs: Sequence[Row], sheet: Sheet) -> None:
    """Add a column *speedup* over the default run to the runs of scenarios with as many threads as that."""
    runs = [r for r in runs if "scenario" in r]
    for cell in groups(runs, [c for c in ("aligner", "system", "dataset") if c in sheet.text]).values():
        default = max((r for r in cell if is_default(r)), key=lambda r: r["threads"], default=None)
        for run in cell:
            if default is not None and run["threads"] == default["threads"]:
                run["speedup"] = default[sheet.value] / run[sheet.value]


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
