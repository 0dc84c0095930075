# SPDX-License-Identifier: Apache-2.0
"""What a report is made of: problems, references, tables, figures, and figures that could not be drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from markupsafe import Markup

from firsttouch.records import Record

Kind = Literal["failed", "skipped", "invalid"]


@dataclass(frozen=True)
class Problem:
    """A check that failed, was skipped (something is missing on the host) or whose result is invalid.

    *check* is the check's word in the records (``latency``), "" where the problem is none of one check.
    """

    name: str
    kind: Kind
    reason: str
    host: str = ""
    check: str = field(kw_only=True)

    def concerns(self, check: str) -> bool:
        """Tell whether this is why the figure of *check* may be missing."""
        return self.check == check


@dataclass(frozen=True)
class Reference:
    """What a system is expected to reach, in the record's unit, between *lower* and *upper*; its *source*."""

    value: float
    lower: float | None
    upper: float | None
    source: str


#: Finds the reference of a record, or None: how the two are matched belongs to the system's description.
References = Callable[[Record], Reference | None]


@dataclass(frozen=True)
class Table:
    """A table: *numeric* names the columns (by position) that are aligned as numbers.

    *groups* are rows above the header: what each heading says (or ``""``), and how many columns it spans.
    """

    caption: str
    header: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    numeric: frozenset[int] = frozenset()
    groups: tuple[tuple[tuple[str, int], ...], ...] = ()


@dataclass(frozen=True)
class Panel:
    """One drawing: inline SVG that carries its own title and description; *width* in CSS pixels."""

    svg: Markup
    width: int


@dataclass(frozen=True)
class Figure:
    """A figure: its panels, how to read it, what it *shows* here (sentences), how it was measured, its numbers."""

    name: str
    title: str
    how: str
    shows: tuple[str, ...]
    measured: str
    panels: tuple[Panel, ...]
    tables: tuple[Table, ...]


@dataclass(frozen=True)
class Absent:
    """A figure that could not be drawn, and why."""

    title: str
    reason: str
