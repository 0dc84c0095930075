# SPDX-License-Identifier: Apache-2.0
"""Inline SVG: shapes and texts placed in pixels, in the colours of the page's style sheet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate
from math import cos, inf, pi, sin
from typing import Literal
from unicodedata import combining, east_asian_width

from markupsafe import Markup, escape

from firsttouch.report.document import Panel
from firsttouch.report.text import clean

#: Variables of the style sheet, so that a drawing suits the light page, the dark page and paper.
INK, MUTED, GRID, PAPER = "var(--ink)", "var(--muted)", "var(--grid)", "var(--paper)"
SERIES = tuple(f"var(--series-{i})" for i in range(1, 7))

#: A point of a drawing: px from its left and its upper edge.
Place = tuple[float, float]

# ----------------------------------------------------------------------
# Sizes of texts. The reader's font is unknown, so widths are taken from DejaVu Sans, which is wider than most.

#: Font size (px) of the labels.
SIZE = 13.0
_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
#: Width in font sizes: of most characters, and of the exceptions.
_EM = 0.64
_EMS = {
    letter: em
    for em, letters in (
        (0.35, " ,.'ijlIJ/:;\\|f"),
        (0.42, "-t()[]!r"),
        (0.56, '"*_`?szcLF'),
        (0.72, "KAVBRXZCU"),
        (0.85, "w#+<=>^~HNDGOQ&\N{MINUS SIGN}"),
        (1.0, f"mMW%@{_ELLIPSIS}"),
    )
    for letter in letters
}


@cache
def _em(letter: str) -> float:
    if letter in _EMS:
        return _EMS[letter]
    if letter.isascii():
        return _EM
    return 0.0 if combining(letter) else 1.05 if east_asian_width(letter) in "WF" else 0.8


def width(text: str, size: float = SIZE) -> float:
    """Return about how wide a text is, px."""
    return size * sum(map(_em, text))


def shorten(text: str, room: float, size: float = SIZE) -> str:
    """Return a text, or its beginning with an ellipsis if it is wider than *room* px."""
    if width(text, size) <= room:
        return text
    ends = accumulate(map(_em, text), initial=_em(_ELLIPSIS))
    return text[: max(sum(size * end <= room for end in ends) - 1, 0)].rstrip() + _ELLIPSIS


def wrap(text: str, room: float, size: float = SIZE) -> list[str]:
    """Return the lines of a text in *room* px; a longer word is shortened. An empty text has no lines."""
    lines: list[str] = []
    for word in clean(text).split():
        if lines and width(f"{lines[-1]} {word}", size) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(shorten(word, room, size))
    return lines


# ----------------------------------------------------------------------
# Markers and hatches, so that series differ in more than colour.


def _ring(corners: int, size: float = 1, *, inner: float = 1, turn: float = 0) -> list[Place]:
    """Return the corners of a regular shape of the radius *size*; a star has another *inner* radius."""
    angles = [(2 * pi * i / corners + turn, size * (inner if i % 2 else 1)) for i in range(corners)]
    return [(radius * sin(angle), -radius * cos(angle)) for angle, radius in angles]


#: Marker -> its corners around (0, 0); a circle has none.
_MARKERS: Mapping[str, Sequence[Place]] = {
    "circle": (),
    "square": _ring(4, 1.2, turn=pi / 4),
    "triangle": _ring(3, 1.25),
    "diamond": _ring(4, 1.15),
    "down": _ring(3, 1.25, turn=pi),
    "plus": _ring(8, 1.3, inner=0.45),
    "star": _ring(10, inner=0.4),
}
#: The hatch of each colour of SERIES, in squares of 8 px: none, rising, dotted, crossed, falling, upright and
#: level.
_RISING, _FALLING = "M-2 2 2-2M0 8 8 0M6 10 10 6", "M-2 6 2 10M0 0 8 8M6-2 10 2"
_HATCHES = ("", _RISING, "M1 2h1.5M5 6h1.5", _RISING + _FALLING, _FALLING, "M4 0v8M0 4h8")

# ----------------------------------------------------------------------
# The drawing.


def _path(points: Iterable[Place]) -> str:
    """Return a line through *points*, to 1/100 px."""
    return "M" + " ".join(f"{round(x, 2):g} {round(y, 2):g}" for x, y in points)


def _element(tag: str, content: str = "", **attributes: str | float) -> str:
    """Return an element of SVG; a name such as ``font_size`` or ``class_`` names an attribute."""
    written = ""
    for name, value in attributes.items():
        text = value if isinstance(value, str) else f"{round(value, 2):g}"
        if text:
            written += f' {name.rstrip("_").replace("_", "-")}="{escape(text)}"'
    return f"<{tag}{written}>{content}</{tag}>" if content else f"<{tag}{written}/>"


class Canvas:
    """A drawing of *width* x *height* px; x runs to the right and y down, from the upper left corner.

    *name* prefixes every id, so it must be unique in the page. A *tip* is a tooltip, and *attributes* are SVG's,
    such as ``stroke_dasharray="4 3"`` or ``class_="cell"``.
    """

    def __init__(self, width: float, height: float, name: str = "") -> None:
        self.width, self.height = round(width), round(height)
        self._name = name
        self._shapes: list[str] = []
        self._definitions: dict[str, str] = {}

    def _add(self, tag: str, tip: str, text: str = "", /, **attributes: str | float) -> None:
        title = f"<title>{escape(clean(tip))}</title>" if tip else ""
        self._shapes.append(_element(tag, f"{title}{escape(clean(text))}", **attributes))

    def rectangle(
        self, corner: Place, size: Place, fill: str, *, tip: str = "", **attributes: str | float
    ) -> None:
        """Draw a rectangle with its upper left *corner*."""
        place = {"x": corner[0], "y": corner[1], "width": size[0], "height": size[1]}
        self._add("rect", tip, **place, fill=fill, **attributes)

    def line(self, points: Iterable[Place], colour: str, **attributes: str | float) -> None:
        """Draw a line through *points*."""
        self._add("path", "", d=_path(points), fill="none", stroke=colour, **attributes)

    def area(self, points: Iterable[Place], fill: str, **attributes: str | float) -> None:
        """Fill the area within *points*."""
        self._add("path", "", d=f"{_path(points)}z", fill=fill, **attributes)

    def error_bars(
        self, spans: Iterable[tuple[Place, Place]], colour: str, *, cap: float, **attributes: str | float
    ) -> None:
        """Draw vertical or horizontal bars between two points each, with caps of *cap* px on both sides."""
        path = ""
        for start, end in spans:
            if start != end:
                aside, down = (cap, 0.0) if start[0] == end[0] else (0.0, cap)
                caps = ([(x - aside, y - down), (x + aside, y + down)] for x, y in (start, end) if cap)
                path += "".join(map(_path, ((start, end), *caps)))
        if path:
            self._add("path", "", d=path, fill="none", stroke=colour, stroke_width=1.5, **attributes)

    def marker(
        self, shape: str, centre: Place, radius: float, fill: str, *, tip: str = "", **attributes: str | float
    ) -> None:
        """Draw a marker of about *radius* px."""
        x, y = centre
        if corners := _MARKERS[shape]:
            path = _path((x + radius * a, y + radius * b) for a, b in corners)
            self._add("path", tip, d=f"{path}z", fill=fill, **attributes)
        else:
            self._add("circle", tip, cx=x, cy=y, r=radius, fill=fill, **attributes)

    def text(
        self,
        place: Place,
        text: str,
        anchor: Literal["start", "middle", "end"] = "start",
        *,
        size: float = SIZE,
        room: float = inf,
        **attributes: str | float,
    ) -> None:
        """Draw a text with the start, middle or end (*anchor*) of its base line at *place*.

        A text that is wider than *room* px is shortened, and its tooltip is the whole text.
        """
        shown = shorten(text, room, size)
        attributes |= {
            "text_anchor": anchor if anchor != "start" else "",
            "font_size": size if size != SIZE else "",
        }
        self._add("text", text if shown != text else "", shown, x=place[0], y=place[1], **attributes)

    def bar_fill(self, position: int) -> str:
        """Return the fill of a bar of the series at *position* (from 0): its colour, hatched after the first."""
        index = position % len(SERIES)
        if not _HATCHES[index]:
            return SERIES[index]
        tile = _element("rect", width=8, height=8, fill=SERIES[index])
        tile += _element("path", d=_HATCHES[index], fill="none", stroke=PAPER, stroke_width=1.2)
        return self._define("pattern", f"hatch-{index}", tile, width=8, height=8, patternUnits="userSpaceOnUse")

    def gradient(self, colours: Iterable[tuple[float, str]]) -> str:
        """Return a fill with *colours* from left to right, each with its position (0 to 1)."""
        stops = (_element("stop", offset=f"{place:.3g}", stop_color=colour) for place, colour in colours)
        return self._define("linearGradient", "gradient", "".join(stops))

    def _define(self, tag: str, suffix: str, content: str, **attributes: str | float) -> str:
        identity = f"{self._name}-{suffix}"
        self._definitions[identity] = _element(tag, content, id=identity, **attributes)
        return f"url(#{identity})"

    def panel(self, title: str, description: str, kind: str = "") -> Panel:
        """Return the drawing as a panel of the class *kind*; the title and the description are read aloud."""
        content, attributes = "", {"class_": kind, "viewBox": f"0 0 {self.width} {self.height}"}
        attributes |= {"role": "img", "aria_labelledby": f"{self._name}-title {self._name}-desc"}
        for tag, text in (("title", title), ("desc", description)):
            content += _element(tag, escape(clean(text)), id=f"{self._name}-{tag}")
        if self._definitions:
            content += _element("defs", "".join(self._definitions.values()))
        content += "".join(self._shapes)
        size = {"width": self.width, "height": self.height, "font_size": SIZE}
        svg = _element("svg", content, **attributes, **size, fill=INK)
        return Panel(Markup(svg), self.width)  # noqa: S704 - every text and attribute is escaped
