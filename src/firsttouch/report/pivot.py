# SPDX-License-Identifier: Apache-2.0
"""Tables laid out as those of the thesis: runs down, datasets and policies across, a value and its error each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from firsttouch.report.model import Table

#: What names a row (threads, or scenario and threads), and what names a column, outermost heading first.
Key = tuple[str, ...]


def pivot(
    caption: str,
    *,
    corner: Key,
    rows: Sequence[Key],
    columns: Sequence[Key],
    cells: Mapping[tuple[Key, Key], tuple[str, ...]],
    heads: Key,
) -> Table:
    """Return the table of *cells* by (row, column), each of as many texts as *heads* has; absent ones are empty.

    *corner* heads the columns of the row's own key; *columns* of the same first headings must stand together.
    """
    depth = len(columns[0]) if columns else 0
    groups = []
    for level in range(depth):
        found = [("", len(corner))]
        for path, members in groupby(columns, key=lambda c: c[: level + 1]):
            found.append((path[-1], len(list(members)) * len(heads)))
        groups.append(tuple(found))
    none = ("",) * len(heads)
    body = [(*row, *(text for c in columns for text in cells.get((row, c), none))) for row in rows]
    header = (*corner, *heads * len(columns))
    return Table(caption, header, body, frozenset(range(len(corner), len(header))), tuple(groups))
