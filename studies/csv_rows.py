# SPDX-License-Identifier: Apache-2.0
"""Rows of a CSV file of published figures, with their lines for error messages."""

from __future__ import annotations

import csv
import math
from pathlib import Path

from msgspec import Struct

from firsttouch.documents import refuse_special
from firsttouch.errors import BadInput


class Row(Struct, frozen=True):
    """One row: its cells by column, and its file and line."""

    file: Path
    line: int
    cells: dict[str, str]

    def number(self, column: str) -> float | None:
        """Return the number in *column*, None if the cell is empty; raises BadInput for anything else."""
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


def read(table: Path) -> tuple[list[str], list[Row]]:
    """Return the names in a table's first line, and its rows; raises BadInput with the line of a wrong one."""
    try:
        refuse_special(table)
        with table.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            lines = [(reader.line_num, cells) for cells in reader if cells]
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", file=table) from error
    except UnicodeDecodeError as error:
        raise BadInput(f"not text in UTF-8: {error.reason}", file=table) from error
    except csv.Error as error:
        raise BadInput(f"not CSV: {error}", file=table, line=reader.line_num) from error
    header = lines[0][1] if lines else []
    for number, cells in lines:
        if len(cells) != len(header):
            raise BadInput(f"not {len(header)} values, as the first line has", file=table, line=number)
    return header, [Row(table, number, dict(zip(header, cells, strict=True))) for number, cells in lines[1:]]
