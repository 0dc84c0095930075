# SPDX-License-Identifier: Apache-2.0
"""The section about history: a table of changes and their times."""

from __future__ import annotations

from collections.abc import Sequence

from firsttouch.judge.history import Change
from firsttouch.report.document import Block, Cell, Entry, Paragraph, Table
from firsttouch.report.text import count
from firsttouch.units import signed_percent

#: The most changes in the table, and in summary.json.
MOST_ROWS, MOST_KEPT = 60, 1000
_HEADER = ("when", "hosts", "part", "change", "configuration")
_NO_CHANGE = "No part changed. A change is visible with at least three sessions before and after it."
_SEEN = (
    "A change has at least three sessions before it and after it. Changes of many hosts come first, then the "
    "newest."
)


def blocks(changes: Sequence[Change]) -> list[Block]:
    """Return the section of the *changes* of a system's hosts."""
    if not changes:
        return [Paragraph(_NO_CHANGE)]
    return [Paragraph(f"{_line(changes)}. {_SEEN}"), *change_table(changes).first(MOST_ROWS, "summary.json")]


def change_table(changes: Sequence[Change]) -> Table:
    """Return the table of *changes*, in the same order."""
    return Table(f"Changes over time: {len(changes)}", _HEADER, [*map(_row, changes)], kind="stack changes")


def _row(change: Change) -> tuple[Entry, ...]:
    size = Cell(change.change, signed_percent)
    return (change.when, change.who, change.parts, size, "; ".join(change.causes))


def _line(changes: Sequence[Change]) -> str:
    shared = sum(len(c.hosts) > 1 for c in changes)
    worse_hosts = len({host for c in changes if len(c.hosts) == 1 and c.worse for host in c.hosts})
    parts = [f"{count(shared, 'change')} of many hosts at once"] if shared else []
    parts += [f"{count(len(changes) - shared, 'change')} of single hosts"] if len(changes) > shared else []
    parts += [f"{count(worse_hosts, 'host')} became worse alone"] if worse_hosts else []
    return "; ".join(parts)
