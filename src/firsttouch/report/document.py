# SPDX-License-Identifier: Apache-2.0
"""The content of a page or a ticket, independent of its format: sections of texts, lists, tables and drawings.

Every page and every ticket is a :class:`Document`; :mod:`firsttouch.report.forms` writes it as HTML or Markdown. A
cell of a table keeps its value and its format, so that colour, alignment and text follow from the value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Self

from markupsafe import Markup
from msgspec import Struct
from msgspec.structs import replace

import firsttouch
from firsttouch.report.text import SIGNS

# ----------------------------------------------------------------------
# Texts.


class Span(str):
    """A part of a text. *kind* is the name of an HTML element (b, code, s, time) or empty.

    *tone* is the class of its colour, and *sign* precedes it for readers who do not see colours. A *link* is an
    address.
    """

    kind: str
    tone: str
    sign: str
    link: str

    def __new__(cls, text: str, kind: str = "", *, tone: str = "", sign: str = "", link: str = "") -> Self:
        """Return *text* as a part."""
        span = super().__new__(cls, text)
        span.kind, span.tone, span.sign, span.link = kind, tone, sign, link
        return span


#: A text, plain or of several parts, some of which are spans.
Text = str | Sequence[str]


def word_span(word: str, text: str = "") -> Span:
    """Return a verdict (or *text* for it) in its colour with its sign."""
    return Span(text or word, tone=f"word-{word}", sign=SIGNS[word])


def spans(text: Text) -> list[Span]:
    """Return the parts of a text."""
    parts = [text] if isinstance(text, str) else text
    return [part if isinstance(part, Span) else Span(part) for part in parts]


class Block(Struct, frozen=True):
    """A part of a document: a paragraph, a list, a table, a drawing, or several of them."""


# ----------------------------------------------------------------------
# Tables.


class Cell(NamedTuple):
    """A *value* of a table with its *format*, which turns it into text; None has no text.

    *tone* is the class of its colour. *sign* precedes the text; if it stands alone, *meaning* explains it. *tip*
    is a tooltip, *key* the cell's address in the page, *link* the address that it links to.
    """

    value: Any = None
    format: Callable[[Any], str] = str
    tone: str = ""
    sign: str = ""
    meaning: str = ""
    tip: str = ""
    key: str = ""
    link: str = ""

    @property
    def text(self) -> str:
        """The visible text."""
        return "" if self.value is None else self.format(self.value)


#: A cell; a plain text or number needs no format.
Entry = str | int | Cell


def anchored_cell(text: str, key: str) -> Cell:
    """Return a text that is an address in the page and links to itself."""
    return Cell(text, key=key, link=f"#{key}")


def cell_of(entry: Entry) -> Cell:
    """Return an entry of a table as a cell."""
    return entry if isinstance(entry, Cell) else Cell(entry)


class Table(Block, frozen=True, dict=True):
    """A table: the first cell of a row is its header. *kind* is its class in HTML.

    *groups* are headings (or ``""``) above the header, each with the number of columns that it spans.
    """

    caption: str
    header: Sequence[Entry]
    rows: Sequence[Sequence[Entry]]
    groups: Sequence[Sequence[tuple[str, int]]] = ()
    kind: str = ""

    @cached_property
    def cells(self) -> list[list[Cell]]:
        """The rows as cells."""
        return [[cell_of(entry) for entry in row] for row in self.rows]

    @cached_property
    def head(self) -> list[Cell]:
        """The header as cells."""
        return [cell_of(entry) for entry in self.header]

    @cached_property
    def texts(self) -> list[tuple[str, ...]]:
        """The rows as texts."""
        return [tuple(cell.text for cell in row) for row in self.cells]

    @cached_property
    def numeric(self) -> frozenset[int]:
        """The positions of the columns with numbers or intervals, which are right-aligned."""
        kinds = (int, float, tuple)
        return frozenset(
            place for row in self.cells for place, cell in enumerate(row) if isinstance(cell.value, kinds)
        )

    def columns(self, *places: int) -> Table:
        """Return the table with some of its columns."""
        rows = [[row[place] for place in places] for row in self.rows]
        return replace(self, header=[self.header[place] for place in places], rows=rows)

    def first(self, most: int, where: str) -> list[Block]:
        """Return its first rows, and a last row with the number of others and *where* they are."""
        more = len(self.rows) - most
        if more <= 0:
            return [self]
        return [replace(self, rows=self.rows[:most]), Paragraph(f"and {more} more ({where})")]


# ----------------------------------------------------------------------
# Drawings.


class Panel(Struct, frozen=True):
    """One drawing: inline SVG with a title and a description; *width* is in CSS pixels."""

    svg: Markup
    width: int


class Figure(Block, frozen=True):
    """A figure: *how* to read it, its sentences (*shows*), how it was *measured*, its panels and numbers."""

    name: str
    title: str
    how: str
    shows: Sequence[str]
    measured: str
    panels: Sequence[Panel]
    tables: Sequence[Table]


# ----------------------------------------------------------------------
# Blocks.


class Paragraph(Block, frozen=True):
    """A paragraph; *kind* is its class in HTML (small, good, absent), the *key* its address in the page."""

    text: Text
    kind: str = ""
    key: str = ""


class Listing(Block, frozen=True):
    """A list of texts, perhaps *numbered*; *kind* is its class in HTML."""

    items: Sequence[Text]
    kind: str = ""
    numbered: bool = False


class Card(Block, frozen=True):
    """The card of a host or of a fleet (*title*): its verdict (*word*, empty: not judged) and *warnings*.

    *answer* replaces the verdict of a host that is not judged. *lines* have a name and a text each: the reason,
    the recommendation, the next step. *key* is unique in the page. *facts* state the measurements and their time.
    """

    key: str
    title: str
    word: str
    lines: Mapping[str, Text]
    warnings: Sequence[str] = ()
    facts: Sequence[str] = ()
    answer: str = ""

    @property
    def heading(self) -> str:
        """The title with the answer or the verdict."""
        return (
            f"Memory speed of {self.title}: {self.answer}"
            if self.answer
            else f"Verdict of {self.title}: {self.word or 'not judged'}"
        )

    @property
    def sign(self) -> str:
        """The sign of its verdict."""
        return SIGNS.get(self.word, "-")


class Fold(Block, frozen=True):
    """Blocks that are folded below their *summary*, unless *is_open*; *kind* is the class in HTML."""

    summary: Text
    blocks: Sequence[Block]
    kind: str = ""
    is_open: bool = False


class Group(Block, frozen=True):
    """Blocks that belong together; *kind* is the class in HTML (hosts, results)."""

    kind: str
    blocks: Sequence[Block]


class Section(Block, frozen=True):
    """Blocks below a *heading*, which may include sections; the *key* is its address in the page."""

    heading: str
    blocks: Sequence[Block]
    key: str = ""


class Document(Struct, frozen=True):
    """A page or a ticket: *lead*, *blocks*, *foot*. *name* is its title in a browser's tab."""

    title: str
    lead: Sequence[Block]
    blocks: Sequence[Block]
    foot: Sequence[Block] = ()
    name: str = ""

    @property
    def contents(self) -> list[Section]:
        """Its sections, and in their place the sections of its only host or system."""
        sections = [block for block in self.blocks if isinstance(block, Section)]
        parts = {s.key: [b for b in s.blocks if isinstance(b, Section) and b.key] for s in sections}
        if sum(map(bool, parts.values())) == 1:
            sections = [part for section in sections for part in parts[section.key] or [section]]
        return sections


# ----------------------------------------------------------------------
# Blocks that many documents have.


def when_made(stated: str) -> Text:
    """Return the sentence with the time and the version that made a document."""
    return ["Generated ", Span(stated, "time"), f" by firsttouch {firsttouch.__version__}."]


def how_to_read(text: Text) -> Fold:
    """Return the explanation of a drawing or a table, folded."""
    return Fold("How to read it", [Paragraph(text, "small")])


def not_shown(reason: Text) -> Paragraph:
    """Return the paragraph that states why something is not shown."""
    return Paragraph([Span("Not shown:", "b"), " ", *spans(reason)], "absent")


def linked_files(files: Mapping[str, str]) -> Paragraph:
    """Return the paragraph that names the files next to a page, with their purposes."""
    parts = ["In the same folder: "]
    for number, (name, purpose) in enumerate(files.items(), start=1):
        parts += [Span(name, link=name), f" {purpose}{', ' if number < len(files) else ''}"]
    return Paragraph([*parts, "."], "small")
