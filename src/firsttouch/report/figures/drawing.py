# SPDX-License-Identifier: Apache-2.0
"""How figures are drawn: style, lines, bars and heat maps, as SVG."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, floor, log10
from typing import Any

import matplotlib as mpl
from markupsafe import Markup, escape
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure as Drawing

from firsttouch.records.schema import Record
from firsttouch.report.model import Panel
from firsttouch.report.text import clean, number

# ----------------------------------------------------------------------
# A drawing as inline SVG: colours from the page's style sheet, own ids, a title and a description.
#
# The plots draw with stand-in colours (INK, MUTED, ...) that become CSS variables here, so that one drawing
# suits light, dark and paper.

_SVG = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"

#: Stand-in colours: none of them is in a colour map of the plots.
INK = "#0a0b01"
MUTED = "#0a0b02"
GRID = "#0a0b03"
PAPER = "#0a0b04"
SERIES = tuple(f"#0a0c{i:02x}" for i in range(1, 7))

_VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    PAPER: "var(--paper)",
    **{colour: f"var(--series-{i})" for i, colour in enumerate(SERIES, start=1)},
}
_COLOUR = re.compile("|".join(_VARIABLES))
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_FONT_FAMILY = re.compile(r"\s*font-family:[^;]*;?")
_LONG_NUMBER = re.compile(r"(-?\d+\.\d{2})\d+")


def inline(document: str, *, name: str, title: str, description: str) -> Markup:
    """Return matplotlib's SVG *document* for a place in an HTML page.

    *name* prefixes every id, so it must be unique in the page; *title* and *description* are the text
    alternative. The page's font replaces the drawing's own, and coordinates keep two decimals (1/100 px).
    """
    root = ET.fromstring(document)  # noqa: S314
    for child in list(root):
        # Neither metadata nor rules of style: in a page they would hold for all of it.
        if child.tag == f"{_SVG}metadata" or child.find(f"{_SVG}style") is not None:
            root.remove(child)
    used = {m for e in root.iter() for v in e.attrib.values() for m in _REFERENCE.findall(v)}
    used |= {e.get(_LINK, "").removeprefix("#") for e in root.iter()}
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        _rewrite(element, name, used)
        element.tail = None
        if element.tag not in {"text", "tspan"}:
            element.text = None
    _, _, width, height = root.attrib["viewBox"].split()
    attributes = {
        "role": "img",
        "aria-labelledby": f"{name}-title {name}-desc",
        "viewBox": root.attrib["viewBox"],
        "width": f"{float(width):.0f}",
        "height": f"{float(height):.0f}",
    }
    root.attrib.clear()
    root.attrib.update(attributes)
    for tag, text in (("desc", description), ("title", title)):
        child = ET.Element(tag, {"id": f"{name}-{tag}"})
        child.text = text
        root.insert(0, child)
    # Its own text, serialised by a writer that escapes it: safe to place in the page as it is.
    return Markup(ET.tostring(root, encoding="unicode"))  # noqa: S704


def _variables(style: str) -> str:
    return _COLOUR.sub(lambda found: _VARIABLES[found[0]], style)


def _rewrite(element: ET.Element, name: str, used: set[str]) -> None:
    # A hatch's colours are attributes, where a variable is no valid value: as a style it is.
    for key in ("fill", "stroke"):
        if element.get(key) in _VARIABLES:
            element.set("style", f"{key}: {element.attrib.pop(key)}; {element.get('style', '')}")
    link = element.attrib.pop(_LINK, None)
    if link is not None:
        element.set("href", f"#{name}-{link.removeprefix('#')}")
    identity = element.attrib.pop("id", None)
    if identity in used:
        element.set("id", f"{name}-{identity}")
    for key, value in element.attrib.items():
        if key in {"id", "href"}:
            continue
        text = _REFERENCE.sub(lambda m: f"url(#{name}-{m[1]})", value)
        if key == "style":
            text = _FONT_FAMILY.sub("", _variables(text)).strip()
        elif key in {"d", "x", "y", "transform", "points", "width", "height"}:
            text = _LONG_NUMBER.sub(r"\1", text).replace("\n", "")
        element.set(key, text)


# ----------------------------------------------------------------------
# The look that all plots share: sizes in CSS pixels, one font size, series told apart by more than colour.

#: CSS pixels; SVG written at 72 dots per inch has one user unit per point.
WIDTH = 480
_FONT = 13.0
_MARKERS = ("o", "s", "^", "D", "v", "P")
_DASHES = ("solid", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)), (0, (3, 1)), (0, (8, 3)))

_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",  # text stays text: it can be read aloud, searched and styled
    "text.parse_math": False,  # a dollar sign in a name is no formula
    "font.family": "DejaVu Sans",  # comes with matplotlib, so the layout is the same everywhere
    "font.size": _FONT,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.linewidth": 1.0,
    "figure.facecolor": "none",
    "grid.color": GRID,
    "grid.linewidth": 1.0,
    "lines.linewidth": 2.0,
    "lines.markersize": 6.0,
    "legend.frameon": False,
    "legend.fontsize": _FONT,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
}


def settings(name: str) -> Any:
    """Return the context in which to draw the panel *name*: its ids are derived from the name alone."""
    values: Any = {**_SETTINGS, "svg.hashsalt": name}
    return mpl.rc_context(values)


def axes(width: float, height: float, margins: tuple[float, float, float, float]) -> tuple[Drawing, Axes]:
    """Return a drawing of *width* x *height* px with one set of axes; *margins*: left, right, bottom, top."""
    left, right, bottom, top = margins
    drawing = Drawing(figsize=(width / 72, height / 72))
    inner = ((width - left - right) / width, (height - bottom - top) / height)
    return drawing, drawing.add_axes((left / width, bottom / height, *inner))


def panel(drawing: Drawing, *, name: str, title: str, description: str) -> Panel:
    """Return the drawing as a panel; to be called within :func:`settings`."""
    out = io.StringIO()
    drawing.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = inline(out.getvalue(), name=name, title=clean(title), description=clean(description))
    return Panel(svg, round(drawing.get_figwidth() * 72))


def series_style(position: int) -> dict[str, Any]:
    """Return colour, marker and dashes of the series at *position* (0-based); they repeat after six."""
    index = position % len(SERIES)
    return {"color": SERIES[index], "marker": _MARKERS[index], "linestyle": _DASHES[index]}


def error_bars(medians: Sequence[float], low: Sequence[float], high: Sequence[float]) -> list[list[float]]:
    """Return matplotlib's lengths below and above the medians."""
    return [
        [m - a for m, a in zip(medians, low, strict=True)],
        [b - m for m, b in zip(medians, high, strict=True)],
    ]


def threads_axis(ax: Axes, counts: Sequence[int]) -> None:
    """Scale the x axis to thread *counts* in powers of two, with a tick at each count that has room."""
    known = sorted(set(counts))
    ax.set_xscale("log", base=2)
    shown: list[int] = []
    # From the largest down, so that "all PUs" keeps its tick; 0.8 is the room of a label, as a ratio.
    room = max(1.12, (known[-1] / known[0]) ** (1 / 14))
    for threads in reversed(known):
        if not shown or shown[-1] / threads >= room:
            shown.append(threads)
    ax.set_xticks(shown, [str(t) for t in shown])
    ax.set_xticks([], minor=True)
    ax.set_xlim(known[0] / 1.2, known[-1] * 1.2)
    ax.set_xlabel("threads")


def zero_based(ax: Axes, highest: float) -> None:
    """Start the y axis at 0, so that lengths compare as the numbers do, and number it plainly."""
    ax.set_ylim(0, highest * 1.08 if highest > 0 else 1)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.grid(axis="y")


def logarithmic_axis(ax: Axes, values: Iterable[float]) -> None:
    """Make the y axis logarithmic over the positive *values*, with ticks at 1, 2 and 5 of each decade."""
    known = [v for v in values if v > 0] or [1.0]
    low, high = min(known) / 1.15, max(known) * 1.15
    ax.set_yscale("log")
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    ticks = [t for d in decades for m in (1, 2, 5) if low <= (t := m * 10.0**d) <= high]
    ax.set_yticks(ticks, [f"{t:g}" for t in ticks])
    ax.set_yticks([], minor=True)
    ax.set_ylim(low, high)
    ax.grid(axis="y")


def legend(ax: Axes, columns: int, left: float = 0.0) -> None:
    """Place the legend above the axes, where it covers no data; *left* is where it starts, in widths of them."""
    ax.legend(
        loc="lower left",
        bbox_to_anchor=(left, 1.0),
        ncols=columns,
        borderaxespad=0.2,
        handlelength=2.6,
        columnspacing=1.4,
        borderpad=0,
    )


# ----------------------------------------------------------------------
# Lines of points with error bars over the number of threads: the drawing that several figures share.


@dataclass(frozen=True)
class Point:
    """A value at a number of *threads*, and the ends of its error bar."""

    threads: int
    value: float
    low: float
    high: float


def of(threads: int, record: Record) -> Point:
    """Return a record's median as a point, with an error bar from its smallest to its largest repetition."""
    return Point(threads, record.value, min(record.samples), max(record.samples))


def wide(points: Iterable[Point]) -> bool:
    """Return whether values differ so much that on a linear axis the small ones could not be told apart."""
    ends = [(p.low, p.high) for p in points]
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    return low > 0 and high / low > 8


def draw_lines(
    lines: Mapping[str, Sequence[Point]],
    *,
    label: str,
    name: str,
    title: str,
    description: str,
    size: tuple[float, float] = (WIDTH, 320),
    heading: str = "",
    columns: int = 4,
    logarithmic: bool = False,
) -> Panel:
    """Return the lines; *label* names the y axis, *heading* stands above; the legend has *columns*.

    A single line of an empty name has no legend.
    """
    known = [p for points in lines.values() for p in points]
    named = any(lines)
    rows = -(-len(lines) // columns) if named else 0
    # A legend of one row has its place in the margin of every drawing.
    top = 34.0 + (20 * rows if heading else 20 * max(0, rows - 1))
    width, height = size
    with settings(name):
        drawing, ax = axes(width, height + top - 34 * (not heading), (64, 12, 50, top))
        for position, (key, points) in enumerate(lines.items()):
            values = [p.value for p in points]
            ax.errorbar(
                [p.threads for p in points],
                values,
                yerr=error_bars(values, [p.low for p in points], [p.high for p in points]),
                capsize=4,
                label=clean(key),
                **series_style(position),
            )
        threads_axis(ax, [p.threads for p in known])
        if logarithmic:
            logarithmic_axis(ax, (end for p in known for end in (p.low, p.value, p.high)))
        else:
            zero_based(ax, max(p.high for p in known))
        ax.set_ylabel(label)
        if heading:
            ax.set_title(heading, loc="left", fontsize=14, pad=top - 22)
        if named:
            legend(ax, columns=min(columns, len(lines)))
        return panel(drawing, name=name, title=title, description=description)


# ----------------------------------------------------------------------
# Bars with error bars: speedups of scenarios, and times side by side.

_HATCHES = ("", "///", "...", "xxx", "\\\\\\", "+++")
_BAR = 34
_BESIDE_BAR = 16
#: Room (px) for a heading above the legend.
_HEADING = 22


@dataclass(frozen=True)
class Bar:
    """A bar: its label (lines), its value with the ends of its error bar, what stands at its end, its *kind*."""

    label: str
    value: float
    low: float
    high: float
    text: str
    kind: str


def draw_bars(
    bars: Sequence[Bar],
    *,
    kinds: Sequence[str],
    axis: str,
    footer: str,
    name: str,
    title: str,
    description: str,
    line: float | None = None,
    heading: str = "",
) -> Panel:
    """Return horizontal bars, one below the other; *kinds* have one look each, in that order.

    *axis* names the values, *footer* stands below; a *line* marks a value, and *heading* stands above.
    """
    left = 24.0 + 7.4 * max(len(part) for bar in bars for part in bar.label.split("\n"))
    top, bottom = 34.0 + _HEADING * bool(heading), 66.0 if footer else 50.0
    highest = max(bar.high for bar in bars)
    with settings(name):
        height = top + bottom + _BAR * len(bars) + 12
        left = min(left, 220)
        drawing, ax = axes(WIDTH, height, (left, 12, bottom, top))
        for y, bar in enumerate(bars):
            look = list(kinds).index(bar.kind) % len(SERIES)
            ax.barh(y, bar.value, height=0.62, color=SERIES[look], hatch=_HATCHES[look], edgecolor=PAPER)
            ax.errorbar(
                bar.value,
                y,
                xerr=[[bar.value - bar.low], [bar.high - bar.value]],
                color=INK,
                capsize=4,
                linewidth=1.5,
            )
            ax.text(bar.high + highest * 0.02, y, bar.text, va="center")
        shown = [kind for kind in kinds if any(bar.kind == kind for bar in bars)]
        _key(ax, kinds, shown)
        if line is not None:
            ax.axvline(line, color=INK, linewidth=1.5, linestyle=(0, (4, 3)))
        ax.set_yticks(range(len(bars)), [_clean_lines(bar.label) for bar in bars], fontsize=12, linespacing=1.1)
        ax.set(xlim=(0, max(highest * 1.16, 1.2 * (line or 0))), ylim=(len(bars) - 0.4, -0.6))
        _finish(ax, axis)
        if footer:
            # From the left edge of the drawing: below the axes alone it would not fit.
            drawing.text(8 / WIDTH, 8 / height, clean(footer), fontsize=12)
        if heading:
            ax.set_title(clean(heading), loc="left", fontsize=14, pad=top - 22)
        legend(ax, min(4, len(shown)), _edge(left))
        return panel(drawing, name=name, title=title, description=description)


def grouped(
    groups: Sequence[tuple[str, Sequence[Bar]]],
    *,
    kinds: Sequence[str],
    axis: str,
    name: str,
    title: str,
    description: str,
    heading: str = "",
) -> Panel:
    """Return groups of thin bars, each group with its name beside it; a bar's text stands at its end."""
    left = 24.0 + 7.4 * max(len(part) for label, _ in groups for part in label.split("\n"))
    top, bottom = 34.0 + _HEADING * bool(heading), 50.0
    highest = max(bar.high for _, bars in groups for bar in bars)
    rows = sum(len(bars) + 1 for _, bars in groups)
    with settings(name):
        height = top + bottom + (_BESIDE_BAR + 2) * rows
        left = min(left, 200)
        drawing, ax = axes(WIDTH, height, (left, 12, bottom, top))
        y, ticks = 0.0, []
        for _, bars in groups:
            ticks.append(y + (len(bars) - 1) / 2)
            for bar in bars:
                look = list(kinds).index(bar.kind) % len(SERIES)
                ax.barh(y, bar.value, height=0.86, color=SERIES[look], hatch=_HATCHES[look], edgecolor=PAPER)
                ends = [[bar.value - bar.low], [bar.high - bar.value]]
                ax.errorbar(bar.value, y, xerr=ends, color=INK, capsize=3, linewidth=1.2)
                ax.text(bar.high + highest * 0.02, y, bar.text, va="center", fontsize=11)
                y += 1
            y += 1
        _key(ax, kinds, [k for k in kinds if any(b.kind == k for _, bars in groups for b in bars)])
        ax.set_yticks(ticks, [_clean_lines(label) for label, _ in groups], fontsize=12, linespacing=1.1)
        # The texts at the bars' ends have their room to the right.
        ax.set(xlim=(0, highest * 1.75), ylim=(y - 1.2, -0.8))
        _finish(ax, axis)
        if heading:
            ax.set_title(clean(heading), loc="left", fontsize=14, pad=top - 22)
        legend(ax, 3, _edge(left))
        return panel(drawing, name=name, title=title, description=description)


def _edge(left: float) -> float:
    """Return where a legend starts that has the drawing's whole width: beside long labels, axes are narrow."""
    return -(left - 8) / (WIDTH - left - 12)


def _clean_lines(label: str) -> str:
    """Return a label of several lines, each of them printable."""
    return "\n".join(clean(part) for part in label.split("\n"))


def _key(ax: Axes, kinds: Sequence[str], shown: Sequence[str]) -> None:
    for kind in shown:
        look = list(kinds).index(kind) % len(SERIES)
        ax.barh(0, 0, color=SERIES[look], hatch=_HATCHES[look], edgecolor=PAPER, label=clean(kind))


def _finish(ax: Axes, axis: str) -> None:
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.grid(axis="x")
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(axis)


# ----------------------------------------------------------------------
# A matrix as SVG: coloured cells with their values, written directly.
#
# matplotlib lays out every text that it draws: the 106 x 8 cells of a host with eight NUMA nodes would take it
# seconds per kernel. Its colour map is used; the cells are plain rectangles and texts.

_CELL_WIDTH = 48
#: Height of a cell (px) in a matrix of few rows and of many.
_CELL_HEIGHTS = (30, 22)
_FEW_ROWS = 16
#: Space (px) above the cells for the title, below them for numbers, axis label and colour scale.
_TOP, _BOTTOM = 30, 92
# Room for the label below the cells.
_NARROWEST = 180
#: Width (px) of a character of a row's label, and what the axis label and the gaps beside it take.
_CHARACTER, _BESIDE = 7.5, 36
_STEPS = 256


@cache
def _scale() -> tuple[tuple[str, str], ...]:
    """Return (colour, class of the text on it) for each step of the scale, dark to bright.

    cividis is perceptually uniform, and its order of brightness is the same for every kind of colour vision.
    """
    steps = []
    for step in range(_STEPS):
        colour = colormaps["cividis"](step / (_STEPS - 1))[:3]
        # Relative luminance (WCAG 2.2): above 0.18 black has the better contrast, below it white.
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
        luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        steps.append((to_hex(colour), "dark" if luminance > 0.18 else "bright"))
    return tuple(steps)


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
    description: str,
) -> Panel:
    """Return the matrix; colours run from 0 to *highest* (in *unit*), a cell of None was not measured.

    *axes* label the rows and the columns; *name* prefixes the ids; *title* stands above the matrix and, with
    *description*, is its text alternative.
    """
    left = _BESIDE + _CHARACTER * max(map(len, rows))
    height = _CELL_HEIGHTS[len(rows) > _FEW_ROWS]
    across, down = max(_CELL_WIDTH * len(columns), _NARROWEST), height * len(rows)
    width = across / len(columns)
    right, bottom = left + across, _TOP + down
    parts = [Markup('<text class="heading" x="{:g}" y="16">{}</text>').format(left, clean(title))]
    for y, values in enumerate(cells):
        middle = _TOP + height * (y + 0.5) + 4.5
        parts.append(Markup('<text class="end" x="{:g}" y="{:g}">{}</text>').format(left - 7, middle, rows[y]))
        for x, value in enumerate(values):
            parts.append(_cell(value, highest, (left + x * width, _TOP + y * height), (width, height)))
    for x, label in enumerate(columns):
        place = (left + (x + 0.5) * width, bottom + 17)
        parts.append(Markup('<text class="middle" x="{:g}" y="{:g}">{}</text>').format(*place, label))
    middle = left + across / 2
    parts += [
        Markup('<text class="middle" x="{:g}" y="{:g}">{}</text>').format(middle, bottom + 37, axes[1]),
        # A label along a short side would run out of the drawing: it is centred where there is room only.
        Markup('<text class="{}" transform="translate(14 {:g}) rotate(-90)">{}</text>').format(
            "middle" if down > _CHARACTER * len(axes[0]) else "end",
            _TOP + down / 2 if down > _CHARACTER * len(axes[0]) else _TOP - 6,
            axes[0],
        ),
        _legend(name, (left, bottom + 50), across, f"{number(highest)} {unit}"),
    ]
    total = (round(right + 12), round(bottom + _BOTTOM))
    head = Markup(
        '<svg class="matrix" role="img" aria-labelledby="{0}-title {0}-desc" viewBox="0 0 {1} {2}" width="{1}" '
        'height="{2}"><title id="{0}-title">{3}</title><desc id="{0}-desc">{4}</desc>'
    ).format(name, *total, clean(title), clean(description))
    return Panel(head + Markup("").join(parts) + Markup("</svg>"), total[0])


def _cell(value: float | None, highest: float, corner: tuple[float, float], size: tuple[float, float]) -> Markup:
    x, y = corner
    width, height = size
    middle = f'x="{x + width / 2:g}" y="{y + height / 2 + 4.5:g}"'
    if value is None:
        return Markup(f'<text class="middle" {middle}>none</text>')  # noqa: S704 - numbers only
    part = min(max(value / highest, 0.0), 1.0) if highest > 0 else 0.0
    colour, ink = _scale()[round(part * (_STEPS - 1))]
    return Markup(  # noqa: S704 - numbers only
        f'<rect x="{x:g}" y="{y:g}" width="{width - 1:g}" height="{height - 1:g}" fill="{colour}"/>'
        f'<text class="middle {ink}" {middle}>{escape(number(value))}</text>'
    )


def _legend(name: str, corner: tuple[float, float], width: float, highest: str) -> Markup:
    x, y = corner
    stops = Markup("").join(
        Markup('<stop offset="{:g}" stop-color="{}"/>').format(i / 8, _scale()[i * (_STEPS - 1) // 8][0])
        for i in range(9)
    )
    return Markup(
        '<defs><linearGradient id="{0}-scale">{1}</linearGradient></defs>'
        '<rect x="{2:g}" y="{3:g}" width="{4:g}" height="9" fill="url(#{0}-scale)"/>'
        '<text x="{2:g}" y="{5:g}">0</text><text class="end" x="{6:g}" y="{5:g}">{7}</text>'
    ).format(name, stops, x, y, width, y + 26, x + width, highest)
