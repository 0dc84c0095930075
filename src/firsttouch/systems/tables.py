# SPDX-License-Identifier: Apache-2.0
"""Tables of published figures: CSV files that references point into, so that no figure stands twice."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from firsttouch.errors import BadInput
from firsttouch.folders import TABLES


@dataclass(frozen=True)
class Row:
    """One row: its cells by column, and the file and line that they stand on."""

    file: Path
    line: int
    cells: dict[str, str]

    def number(self, column: str) -> float | None:
        """Return the number in *column*, None where the cell is empty; raises BadInput otherwise."""
        text = self.cells[column]
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < 0:
            raise BadInput(f"column {column}: '{text}' is not a number from 0", file=self.file, line=self.line)
        return value


def find(name: str, system_file: Path) -> Path | None:
    """Return the table *name*: beside the system's file, or among the published ones; None if in neither."""
    return next((f for f in (system_file.parent / name, TABLES / name) if f.is_file()), None)


def columns(table: Path) -> list[str]:
    """Return the names in a table's first line; raises BadInput where it cannot be read."""
    return next(_lines(table), (0, []))[1]


def rows(table: Path) -> Iterator[Row]:
    """Yield the rows of a table; raises BadInput (with the line) where one is too long or too short."""
    lines = _lines(table)
    _, header = next(lines, (0, []))
    for number, cells in lines:
        if len(cells) != len(header):
            raise BadInput(f"{len(cells)} columns where the header has {len(header)}", file=table, line=number)
        yield Row(table, number, dict(zip(header, cells, strict=True)))


def _lines(table: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            for cells in reader:
                if cells:
                    yield reader.line_num, cells
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", file=table) from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise BadInput(f"not a CSV table: {error}", file=table) from error
