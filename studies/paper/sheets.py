# SPDX-License-Identifier: Apache-2.0
"""The numbers of the papers: the rows of all published tables, and what is computed from them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

import study_files
from firsttouch.errors import BadInput
from paper import published_tables
from paper.published_tables import Row, Sheets, groups
from study_files import FOLDER, Sheet, Study


def published(folder: Path = FOLDER) -> list[Study]:
    """Return the studies of *folder* with published values, by name; raises BadInput for two sheets of a name."""
    readable = (study_files.read(folder / f"{name}.toml") for name in study_files.names(folder))
    having = [study for study in readable if study.sheets]
    owners: dict[str, str] = {}
    for study in having:
        for name in study.sheets:
            if name in owners:
                raise BadInput(f"study {owners[name]} has a sheet '{name}', too", file=study.file)
            owners[name] = study.name
    return having


def specs(having: Iterable[Study]) -> dict[str, Sheet]:
    """Return the sheets of all studies by name."""
    return {name: sheet for study in having for name, sheet in study.sheets.items()}


def read(folder: Path, having: Sequence[Study]) -> Sheets:
    """Return the sheets of the studies, in which runs of scenarios have a column *speedup*."""
    sheets = published_tables.read(folder, having)
    for name, sheet in sheets.specs.items():
        _add_speedups(sheets[name], sheet)
    return sheets


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


def number(row: Row, column: str) -> float:
    """Return the number in *column*; raises BadInput if there is none."""
    cell = row.get(column)
    if not isinstance(cell, (int, float)):
        raise BadInput(f"{row['label']}: column {column} holds no numbers")
    return cell


class Taken(Struct, frozen=True):
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
