# SPDX-License-Identifier: Apache-2.0
"""The charts of all figures: lines, bars and heat maps, with axes and legends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from math import ceil, floor, log10
from typing import NamedTuple

from msgspec import Struct

from firsttouch.records.schema import Record
from firsttouch.report.document import Panel
from firsttouch.report.figures.svg import GRID, INK, MUTED, SERIES, SIZE, Canvas, Place, width, wrap
from firsttouch.report.text import clean, count
from firsttouch.units import number

#: Width (px) of a chart.
WIDTH = 480
#: Height of a line of text (px), font size of a heading, and the plain font size with the width of its bold
#: letters.
_LINE, _HEADING, _WIDE_AS_BOLD = 20.0, 14.0, 16.0
#: Length of a sign in a legend, its distance from the text, and the distance of columns (px).
_SIGN, _TO_TEXT, _GAP = 30, 38, 16
#: Distance from the middle of letters to their base line, in font sizes.
_MIDDLE = 0.35

# ----------------------------------------------------------------------
# Scales: values to places on an axis, and its ticks.


class Scale(Struct, frozen=True):
    """An axis from *low* to *high* (positive if *logarithmic*), with *ticks* (value and label)."""

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    logarithmic: bool = False

    def share(self, value: float) -> float:
        """Return the position of a value on the axis, from 0 to 1; values beyond the axis are at its end."""
        if value <= self.low:
            return 0.0
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = log10(low), log10(high), log10(value)
        return min((value - low) / (high - low), 1.0)

    def spaced_ticks(self, length: float, size: Callable[[str], float]) -> list[tuple[float, str]]:
        """Return positions (0 to 1) and labels of the ticks that fit on *length* px, always with the last one.

        *size* returns the length of a label (px).
        """
        kept: list[tuple[float, str]] = []
        for value, label in reversed(self.ticks):
            share = self.share(value)
            if not kept or (kept[-1][0] - share) * length >= (size(label) + size(kept[-1][1])) / 2:
                kept.append((share, label))
        return kept


def steps(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """Return at most *most* ticks, at multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / most
    unit = 10.0 ** floor(log10(rough))
    step = next(factor * unit for factor in (1, 2, 2.5, 5, 10) if factor * unit >= rough * (1 - 1e-9))
    values = [step * i for i in range(ceil(low / step), floor(high / step * (1 + 1e-9)) + 1)]
    return [(value, f"{value:g}") for value in values]


def zero_based_scale(highest: float, most: int = 9) -> Scale:
    """Return an axis from 0 up to *highest*, so that lengths are proportional to the values."""
    high = min(max(highest, 0.0), sys.float_info.max / 2)
    high = high if high > sys.float_info.min / sys.float_info.epsilon else 1.0
    return Scale(0.0, high, steps(0.0, high, most))


def logarithmic_scale(values: Iterable[float]) -> Scale:
    """Return a logarithmic axis over the positive *values*, with ticks at 1, 2 and 5 of each decade, or at 1."""
    positive = [value for value in values if value > 2 * sys.float_info.min] or [1.0]
    low, high = min(positive) / 1.15, min(max(positive) * 1.15, sys.float_info.max)
    decades = range(floor(log10(low)), floor(log10(high)) + 1)
    factors = (1, 2, 5) if len(decades) < 6 else (1,)
    ticks = [tick for d in decades for factor in factors if low <= (tick := factor * 10.0**d) <= high]
    # A narrow range contains none of these.
    labelled = [(tick, f"{tick:g}") for tick in ticks] if len(ticks) > 2 else steps(low, high, 5)
    return Scale(low, high, labelled, logarithmic=True)


def counts_scale(counts: Iterable[int]) -> Scale:
    """Return a logarithmic axis of *counts*, with a tick at each."""
    ordered = sorted(set(counts))
    lowest = next((c for c in ordered if c > 0), 1)
    ticks = [(float(c), str(c)) for c in ordered]
    return Scale(lowest / 1.2, max(ordered[-1], lowest) * 1.2, ticks, logarithmic=True)


# ----------------------------------------------------------------------
# Legends, which stand above the axes, where they cover no data.

_MARKERS = ("circle", "square", "triangle", "diamond", "down", "plus")
_DASHES = ("", "10 4", "3 3", "12 4 3 4", "6 2", "16 6")


class Look(Struct, frozen=True):
    """The look of a series, a mark or a bar, on the chart and in the legend."""

    colour: str
    marker: str = ""
    #: Radius (px) of the marker.
    radius: float = 4
    #: Width (px) of the line, 0 for none, and lengths of its dashes and gaps.
    line: float = 0
    dashes: str = ""
    #: The index of the series, which determines a bar's colour and hatch.
    bar: int | None = None


def series(position: int, *, line: float = 2, radius: float = 4) -> Look:
    """Return the look of line *position* (from 0); colours repeat after six, with other markers."""
    index = position % len(SERIES)
    marker = _MARKERS[(position + position // len(SERIES)) % len(_MARKERS)]
    return Look(SERIES[index], marker, radius, line, _DASHES[index])


def _draw_sign(canvas: Canvas, look: Look, corner: Place) -> None:
    """Draw a sign of the legend; *corner* is the middle of its left end."""
    x, y = corner
    if look.bar is not None:
        canvas.rectangle((x, y - 5), (_SIGN, 10), canvas.bar_fill(look.bar))
    if look.line:
        canvas.line([(x, y), (x + _SIGN, y)], look.colour, stroke_width=look.line, stroke_dasharray=look.dashes)
    if look.marker:
        canvas.marker(look.marker, (x + _SIGN / 2, y), look.radius, look.colour)


def _columns(labels: Sequence[str], room: float) -> tuple[int, list[float]]:
    """Return the rows of a legend and the widths of the columns that fit into *room* px."""
    for rows in range(1, len(labels)):
        columns = [labels[start : start + rows] for start in range(0, len(labels), rows)]
        widths = [_TO_TEXT + max(map(width, column)) + _GAP for column in columns]
        if sum(widths) <= room + _GAP:
            return rows, widths
    return len(labels), [room]


class _Head:
    """The heading and the legend above a chart; *width* and *height* (px) are their size."""

    def __init__(self, room: float, heading: str, looks: Mapping[str, Look]) -> None:
        self._lines = wrap(heading, room, _WIDE_AS_BOLD)
        self._looks = {clean(label): look for label, look in looks.items()}
        self._rows, self._widths = _columns(list(self._looks), room)
        self.width = max([0.0, *(width(line, _WIDE_AS_BOLD) for line in self._lines)])
        self.height = _LINE * (len(self._lines) + self._rows)

    def draw(self, canvas: Canvas) -> None:
        for row, line in enumerate(self._lines):
            canvas.text((0, _LINE * row + 15), line, size=_HEADING, font_weight=600)
        top = _LINE * len(self._lines)
        for position, (label, look) in enumerate(self._looks.items()):
            column, row = divmod(position, self._rows)
            x, y = sum(self._widths[:column]), top + _LINE * (row + 0.5)
            _draw_sign(canvas, look, (x, y))
            canvas.text((x + _TO_TEXT, y + _MIDDLE * SIZE), label, room=canvas.width - x - _TO_TEXT)


# ----------------------------------------------------------------------
# Axes.


class _Frame(NamedTuple):
    """The edges of the axes, px."""

    left: float
    top: float
    right: float
    bottom: float


def _draw_across(canvas: Canvas, frame: _Frame, scale: Scale, name: str, *, grid: bool) -> None:
    """Draw the ticks of the x axis below the frame, perhaps with lines of a *grid*, and the *name* of the axis."""
    length = frame.right - frame.left
    for share, label in scale.spaced_ticks(length, lambda text: width(text) + 6):
        x = frame.left + share * length
        if grid:
            canvas.line([(x, frame.top), (x, frame.bottom)], GRID)
        canvas.line([(x, frame.bottom), (x, frame.bottom + 4)], MUTED)
        if x + width(label) / 2 <= canvas.width:
            canvas.text((x, frame.bottom + 18), label, "middle")
    middle = frame.left + length / 2
    canvas.text((middle, frame.bottom + 37), name, "middle", room=2 * min(middle, canvas.width - middle))


class Axes:
    """Axes with ticks on a canvas, below heading and legend; its methods draw data.

    *scales* and *names* belong to the x axis and the y axis, *looks* has the labels of the legend. *height* is the
    height of the axes, *above* the room above them (px).
    """

    def __init__(
        self,
        name: str,
        scales: tuple[Scale, Scale],
        names: tuple[str, str],
        looks: Mapping[str, Look],
        *,
        heading: str = "",
        size: Place = (WIDTH, 250),
        above: float = 0,
    ) -> None:
        self._across, self._up = scales
        across, height = size
        head = _Head(across, heading, looks)
        rows = self._up.spaced_ticks(height, lambda _: _LINE)
        left = 12 + max([20.0, *(width(label) for _, label in rows)])
        right = max([12.0, *(width(label) / 2 for _, label in self._across.ticks[-1:])])
        # The name of the y axis is above it, where there is more room than to the left of it.
        top = head.height + _LINE + 10 + above
        self.frame = _Frame(left, top, across - right, top + height)
        self.canvas = Canvas(across, top + height + 46, name)
        head.draw(self.canvas)
        self.canvas.text((0, head.height + 17), names[1], room=across)
        for share, label in rows:
            y = self.frame.bottom - share * height
            self.canvas.line([(left, y), (self.frame.right, y)], GRID)
            self.canvas.text((left - 7, y + _MIDDLE * SIZE), label, "end")
        edges = ((left, top), (left, self.frame.bottom), (self.frame.right, self.frame.bottom))
        self.canvas.line(edges, MUTED)
        _draw_across(self.canvas, self.frame, self._across, names[0], grid=False)

    def place(self, x: float, y: float) -> Place:
        """Return the position of a point of the axes on the canvas."""
        frame = self.frame
        return (
            frame.left + self._across.share(x) * (frame.right - frame.left),
            frame.bottom - self._up.share(y) * (frame.bottom - frame.top),
        )

    def draw_series(self, look: Look, points: Sequence[Place], tips: Iterable[str]) -> None:
        """Draw a line through points of the axes, and a marker with its tooltip at each."""
        places = [self.place(*point) for point in points]
        if look.line and len(places) > 1:
            self.canvas.line(places, look.colour, stroke_width=look.line, stroke_dasharray=look.dashes)
        for place, tip in zip(places, tips, strict=True):
            self.canvas.marker(look.marker, place, look.radius, look.colour, tip=tip)

    def draw_error_bars(
        self, spans: Iterable[tuple[Place, Place]], colour: str, *, cap: float, **attributes: float
    ) -> None:
        """Draw an error bar between each pair of points."""
        placed = [(self.place(*a), self.place(*b)) for a, b in spans]
        self.canvas.error_bars(placed, colour, cap=cap, **attributes)

    def draw_upright(self, value: float, look: Look) -> None:
        """Draw a line over the whole height at a *value* of the x axis."""
        x, _ = self.place(value, self._up.low)
        ends = [(x, self.frame.top), (x, self.frame.bottom)]
        self.canvas.line(ends, look.colour, stroke_width=look.line, stroke_dasharray=look.dashes)


# ----------------------------------------------------------------------
# Lines of points with error bars over the number of threads.


class Point(Struct, frozen=True):
    """A value at a number of *threads*, and the ends of its error bar."""

    threads: int
    value: float
    low: float
    high: float


def as_point(threads: int, record: Record) -> Point:
    """Return a record's median as a point; its error bar spans the repetitions."""
    return Point(threads, record.value, min(record.samples), max(record.samples))


def wide(values: Collection[float]) -> bool:
    """Return whether values span too wide a range for a linear axis."""
    return min(values) > 0 and max(values) / min(values) > 8


def ends(value: float, low: float, high: float) -> str:
    """Return the tooltip of a value with the smallest and the largest repetition: ``3.1 (3 to 3.2)``."""
    return number(value) if low == high else f"{number(value)} ({number(low)} to {number(high)})"


#: The most points of a line with markers of the usual size.
_FEW_POINTS = 16


def draw_lines(
    lines: Mapping[str, Sequence[Point]],
    *,
    label: str,
    name: str,
    title: str,
    description: str,
    size: Place = (WIDTH, 250),
    heading: str = "",
    logarithmic: bool = False,
) -> Panel:
    """Return a panel of *lines* by their name in the legend.

    *label* names the y axis, *heading* is above. A single line with an empty name has no legend.
    """
    all_points = [p for points in lines.values() for p in points]
    few = max(map(len, lines.values())) <= _FEW_POINTS
    looks = {key: series(i, radius=4 if few else 2) for i, key in enumerate(lines)}
    values = [end for p in all_points for end in (p.low, p.high)]
    chart = Axes(
        name,
        (
            counts_scale(p.threads for p in all_points),
            logarithmic_scale(values) if logarithmic else zero_based_scale(1.08 * max(values)),
        ),
        ("threads", label),
        looks if any(lines) else {},
        heading=heading,
        size=size,
    )
    for key, points in lines.items():
        spans = [((p.threads, p.low), (p.threads, p.high)) for p in points]
        chart.draw_error_bars(spans, looks[key].colour, cap=4 if few else 2)
    for key, points in lines.items():
        line = f"{key}, " if key else ""
        tips = [f"{line}{count(p.threads, 'thread')}: {ends(p.value, p.low, p.high)}" for p in points]
        chart.draw_series(looks[key], [(p.threads, p.value) for p in points], tips)
    return chart.canvas.panel(title, description)


# ----------------------------------------------------------------------
# Horizontal bars with error bars.


class Bar(Struct, frozen=True):
    """A bar of a *kind*: its label (lines), value, ends of the error bar, and the *text* at its end."""

    label: str
    value: float
    low: float
    high: float
    text: str
    kind: str


#: Sizes (px): height of a row, height of a bar, font and distance of a bar's text, and font of the labels.
_ROW, _BAR, _TEXT, _AWAY, _LABEL, _WIDEST_LABEL = 34, 21, 13.0, 7, 12.0, 220


def draw_bars(
    bars: Sequence[Bar],
    *,
    kinds: Sequence[str],
    axis: str,
    name: str,
    title: str,
    description: str,
    line: float | None = None,
    heading: str = "",
) -> Panel:
    """Return horizontal bars, one below the other; each of *kinds* has its own look, in that order.

    *axis* names the values, *heading* is above, and a dashed line marks the value *line*.
    """
    positions = {kind: i for i, kind in enumerate(kinds)}
    used = {bar.kind for bar in bars}
    head = _Head(WIDTH, heading, {kind: Look("", bar=i) for kind, i in positions.items() if kind in used})
    parts = [clean(part) for bar in bars for part in bar.label.split("\n")]
    left = 10 + min(max(width(part, _LABEL) for part in parts), _WIDEST_LABEL)
    frame = _Frame(left, head.height + 8, WIDTH - 12, head.height + 14 + _ROW * len(bars))
    scale = zero_based_scale(max(_axis_end(bars, frame.right - left), 1.2 * (line or 0)))
    canvas = Canvas(WIDTH, frame.bottom + 46, name)
    head.draw(canvas)
    _draw_across(canvas, frame, scale, axis, grid=True)

    def at(value: float) -> float:
        return left + scale.share(value) * (frame.right - left)

    for number_of_bar, bar in enumerate(bars):
        middle = frame.top + 3 + _ROW * (number_of_bar + 0.5)
        labels = [clean(part) for part in bar.label.split("\n")]
        base = middle + _MIDDLE * _LABEL - 7 * (len(labels) - 1)
        for row, text in enumerate(labels):
            canvas.text((left - 7, base + 14 * row), text, "end", size=_LABEL, room=left - 8)
        name_of_bar = ", ".join(dict.fromkeys((*labels, bar.kind)))
        canvas.rectangle(
            (left, middle - _BAR / 2),
            (at(bar.value) - left, _BAR),
            canvas.bar_fill(positions[bar.kind]),
            tip=f"{name_of_bar}: {ends(bar.value, bar.low, bar.high)}",
        )
        canvas.error_bars([((at(bar.low), middle), (at(bar.high), middle))], INK, cap=4)
        x, room = at(bar.high) + _AWAY, width(bar.text, _TEXT)
        if line is not None and x < at(line) + 2 < x + room:
            x = at(line) + _AWAY  # otherwise the line would cross the text
        canvas.text((x, middle + _MIDDLE * _TEXT), bar.text, size=_TEXT, room=WIDTH - x)
    canvas.line([(left, frame.top), (left, frame.bottom), (frame.right, frame.bottom)], MUTED)
    if line is not None:
        upright = [(at(line), frame.top), (at(line), frame.bottom)]
        canvas.line(upright, INK, stroke_width=1.5, stroke_dasharray="6 4")
    return canvas.panel(title, description)


def _axis_end(bars: Sequence[Bar], length: float) -> float:
    """Return the end of an axis of *length* px that leaves room for the texts next to the *bars*."""
    ends = [1.05 * max(bar.high for bar in bars)]
    for bar in bars:
        beside = min(width(bar.text, _TEXT) + 2 * _AWAY, 0.8 * length)
        ends.append(bar.high * length / (length - beside))
    return max(ends)


# ----------------------------------------------------------------------
# Heat maps: a matrix of coloured cells with their values.

#: Width (px) of the narrowest cell, and height of a cell in a matrix of few rows and of many.
_CELL_WIDTH, _CELL_HEIGHTS = 48, (30, 22)
_FEW_ROWS = 16
#: cividis, dark to bright, by the share of the highest value. It is perceptually uniform, and its order of
#: brightness is the same for every kind of colour vision (Nuñez, Anderton and Renslow 2018,
#: doi:10.1371/journal.pone.0199239). Between these steps, its colours are a straight line.
_SCALE = tuple(
    (step / 255, colour)
    for step, colour in (
        *((0, 0x00224E), (21, 0x003170), (23, 0x013271), (28, 0x123570), (34, 0x1E3A6F), (52, 0x36466C)),
        *((147, 0x8F8A78), (179, 0xAEA371), (205, 0xC9B965), (232, 0xE7D150), (251, 0xFDE334), (255, 0xFEE838)),
    )
)


def _colours(share: float) -> tuple[str, str]:
    """Return the colours of a cell and of the text on it."""
    (start, dark), (end, bright) = next((a, b) for a, b in pairwise(_SCALE) if share <= b[0])
    part = (share - start) / (end - start)
    channels = [round((1 - part) * (dark >> bits & 255) + part * (bright >> bits & 255)) for bits in (16, 8, 0)]
    # Relative luminance (WCAG 2.2): above 0.18 black has the better contrast, below it white.
    linear = [c / 3294.6 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#" + "".join(f"{c:02x}" for c in channels), "#000000" if luminance > 0.18 else "#ffffff"


def draw_heatmap(
    cells: Sequence[Sequence[float | None]],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    highest: float,
    axes: tuple[str, str],
    unit: str,
    name: str,
    title: str,
    heading: str,
    description: str,
    empty: str = "none",
) -> Panel:
    """Return the matrix; colours run from 0 to *highest* (in *unit*), None is an *empty* cell.

    *axes* label the rows and the columns. *name* prefixes the ids. *heading* is above the matrix, *title* and
    *description* are its text alternative.
    """
    left = 9 + max(map(width, rows))
    cell_height = _CELL_HEIGHTS[len(rows) > _FEW_ROWS]
    shown = [[empty if value is None else number(value) for value in values] for values in cells]
    widest = max(width(text) for texts in (*shown, columns) for text in texts)
    narrowest = max(width(axes[1]), width(f"0    {number(highest)} {unit}"))
    cell_width = max(_CELL_WIDTH, widest + 8, narrowest / len(columns))
    right = left + cell_width * len(columns)
    head = _Head(max(right, 360), heading, {})
    top = head.height + _LINE + 6
    bottom = top + cell_height * len(rows)
    canvas = Canvas(max(right, head.width, width(axes[0])) + 2, bottom + 82, name)
    head.draw(canvas)
    canvas.text((0, top - 8), axes[0])
    for y, (label, values) in enumerate(zip(rows, cells, strict=True)):
        base = top + cell_height * (y + 0.5) + _MIDDLE * SIZE
        canvas.text((left - 7, base), label, "end")
        for x, (column, value) in enumerate(zip(columns, values, strict=True)):
            middle = (left + (x + 0.5) * cell_width, base)
            if value is None:
                canvas.text(middle, empty, "middle")
                continue
            fill, ink = _colours(min(max(value / highest, 0.0), 1.0) if highest > 0 else 0.0)
            tip = f"{label} to {column}: {number(value)} {unit}".rstrip()
            corner = (left + x * cell_width, top + y * cell_height)
            canvas.rectangle(corner, (cell_width - 1, cell_height - 1), fill, class_="cell", tip=tip)
            canvas.text(middle, number(value), "middle", fill=ink)
    for x, label in enumerate(columns):
        canvas.text((left + (x + 0.5) * cell_width, bottom + 17), label, "middle")
    canvas.text(((left + right) / 2, bottom + 37), axes[1], "middle")
    scale = canvas.gradient((at, f"#{colour:06x}") for at, colour in _SCALE)
    canvas.rectangle((left, bottom + 48), (right - left - 1, 9), scale)
    canvas.text((left, bottom + 74), "0")
    canvas.text((right - 1, bottom + 74), f"{number(highest)} {unit}", "end")
    return canvas.panel(title, description, "matrix")
