# SPDX-License-Identifier: Apache-2.0
"""How figures are drawn with matplotlib, as SVG: style, lines, bars, heat maps."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from math import ceil, floor, log10
from typing import Any, Literal

import matplotlib as mpl
from markupsafe import Markup
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import RendererSVG
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure as Drawing
from matplotlib.font_manager import FontProperties
from matplotlib.patches import BoxStyle
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.transforms import IdentityTransform

from firsttouch.records.schema import Record
from firsttouch.report.model import Panel
from firsttouch.report.text import clean, count, number

# ----------------------------------------------------------------------
# A drawing as inline SVG: colours from the page's style sheet, unique ids, a title and a description.
#
# Figures are drawn in stand-in colours (INK, MUTED, ...), which become CSS variables here. One drawing then suits
# the light page, the dark page and paper.

_SVG = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"

#: Stand-in colours: none of them is in a colour map of the plots.
INK = "#0a0b01"
MUTED = "#0a0b02"
GRID = "#0a0b03"
PAPER = "#0a0b04"
RAISED = "#0a0b05"
WARN = "#0a0b06"
SERIES = tuple(f"#0a0c{i:02x}" for i in range(1, 7))

_VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    PAPER: "var(--paper)",
    RAISED: "var(--raised)",
    WARN: "var(--warn)",
    **{colour: f"var(--series-{i})" for i, colour in enumerate(SERIES, start=1)},
}
_COLOUR = re.compile("|".join(_VARIABLES))
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_FONT_FAMILY = re.compile(r"\s*font-family:[^;]*;?")
#: A group whose id begins with this has tooltips: one for each of its markers, or a single one for its shape.
_TIPS, _NEXT_TIP = "tips:", "\N{SYMBOL FOR UNIT SEPARATOR}"
#: The decimals of a number after the second.
_SURPLUS_DECIMALS = re.compile(r"(?<=\.\d\d)\d+")
#: Prefix of the ids that become classes.
_CLASS = "class-"
_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


def inline(document: str, *, name: str, title: str, description: str, kind: str = "") -> Markup:
    """Return matplotlib's SVG *document* as an element of an HTML page, of the class *kind*.

    *name* prefixes every id, so it must be unique in the page. *title* and *description* are the text alternative;
    a drawing without a title repeats what stands beside it, and screen readers skip it. The page's font replaces
    that of the drawing, and coordinates keep two decimals (1/100 px).
    """
    root = ET.fromstring(document)  # noqa: S314
    for child in list(root):
        # A rule of style would apply to the whole page, and metadata is not shown.
        if child.tag == f"{_SVG}metadata" or child.find(f"{_SVG}style") is not None:
            root.remove(child)
    used = {m for e in root.iter() for v in e.attrib.values() for m in _REFERENCE.findall(v)}
    used |= {e.get(_LINK, "").removeprefix("#") for e in root.iter()}
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        _rewrite(element, name, used)
        element.tail = None
        if element.tag not in {"text", "tspan", "title"}:
            element.text = None
    for element in list(root.iter()):
        _place_tips(element)
    _, _, width, height = root.attrib["viewBox"].split()
    attributes = {"class": kind} if kind else {}
    attributes |= (
        {"role": "img", "aria-labelledby": f"{name}-title {name}-desc"} if title else {"aria-hidden": "true"}
    )
    attributes |= {
        "viewBox": root.attrib["viewBox"],
        "width": f"{float(width):.0f}",
        "height": f"{float(height):.0f}",
    }
    root.attrib.clear()
    root.attrib.update(attributes)
    for tag, text in (("desc", description), ("title", title)) if title else ():
        child = ET.Element(tag, {"id": f"{name}-{tag}"})
        child.text = clean(text)
        root.insert(0, child)
    # The writer escapes every text, so the page can take it as it is.
    return Markup(ET.tostring(root, encoding="unicode"))  # noqa: S704


def _place_tips(element: ET.Element) -> None:
    """Put the tooltips of a group into its shapes: browsers show the title of the shape under the pointer."""
    if texts := element.attrib.pop("tips", ""):
        tips = texts.split(_NEXT_TIP)
        shapes = list(element.iter("use")) if len(tips) > 1 or element.find(".//use") is not None else [element]
        # matplotlib leaves out markers beyond the drawing, after which the others cannot be told apart.
        for shape, tip in zip(shapes, tips, strict=True) if len(shapes) == len(tips) else ():
            title = ET.Element("title")
            title.text = tip
            shape.insert(0, title)
    before: ET.Element | None = None
    for child in list(element):
        if child.tag == "title" and before is not None:
            element.remove(child)
            before.append(child)
        else:
            before = child


def tips(texts: Iterable[str]) -> str:
    """Return the id that gives the markers of a matplotlib line, or a bar, these tooltips (``set_gid``)."""
    return _TIPS + _NEXT_TIP.join(map(clean, texts))


def _variables(style: str) -> str:
    return _COLOUR.sub(lambda match: _VARIABLES[match[0]], style)


def _rewrite(element: ET.Element, name: str, used: set[str]) -> None:
    # A hatch's colours are attributes, which cannot refer to a variable; a style can.
    for key in ("fill", "stroke"):
        if element.get(key) in _VARIABLES:
            element.set("style", f"{key}: {element.attrib.pop(key)}; {element.get('style', '')}")
    link = element.attrib.pop(_LINK, None)
    if link is not None:
        element.set("href", f"#{name}-{link.removeprefix('#')}")
    identity = element.attrib.pop("id", "")
    if identity.startswith(_TIPS):
        element.set("tips", identity.removeprefix(_TIPS))
    elif identity.startswith(_CLASS):
        element.set("class", identity.removeprefix(_CLASS))
    elif identity and identity in used:
        element.set("id", f"{name}-{identity}")
    for key, value in element.attrib.items():
        if key in {"id", "href"}:
            continue
        text = _REFERENCE.sub(lambda m: f"url(#{name}-{m[1]})", value)
        if key == "style":
            text = _FONT_FAMILY.sub("", _variables(text)).strip()
        elif key in {"d", "x", "y", "transform", "points", "width", "height"}:
            text = _SURPLUS_DECIMALS.sub("", text).replace("\n", "")
        element.set(key, text)


# ----------------------------------------------------------------------
# The look of all figures. Sizes are in CSS pixels, and series differ in more than colour.

#: Width in CSS pixels: at 72 dots per inch, a point of matplotlib is a pixel of the SVG.
WIDTH = 480
_FONT = 13.0
_MARKERS = ("o", "s", "^", "D", "v", "P")
_DASHES = ("solid", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)), (0, (3, 1)), (0, (8, 3)))

_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",  # keep text as text, to be read aloud, searched and styled
    "text.parse_math": False,  # a dollar sign in a name starts no formula
    "font.family": "DejaVu Sans",  # matplotlib brings it, so the layout is the same everywhere
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
    "axes.titley": 1.0,  # where it is anyway, as no label is above the axes: matplotlib need not look for one
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
}


def settings(name: str) -> Any:
    """Return the context in which to draw the panel *name*; its ids depend on the name alone."""
    values: Any = {**_SETTINGS, "svg.hashsalt": name}
    return mpl.rc_context(values)


def axes(width: float, height: float, margins: tuple[float, float, float, float]) -> tuple[Drawing, Axes]:
    """Return a drawing of *width* x *height* px with one set of axes; *margins*: left, right, bottom, top."""
    left, right, bottom, top = margins
    drawing = Drawing(figsize=(width / 72, height / 72))
    inner = ((width - left - right) / width, (height - bottom - top) / height)
    return drawing, drawing.add_axes((left / width, bottom / height, *inner))


def panel(drawing: Drawing, *, name: str, title: str, description: str) -> Panel:
    """Return the drawing as a panel; call it within :func:`settings`."""
    out = io.StringIO()
    drawing.savefig(out, format="svg", metadata=_NO_METADATA)
    svg = inline(out.getvalue(), name=name, title=title, description=description)
    return Panel(svg, round(drawing.get_figwidth() * 72))


def series_style(position: int) -> dict[str, Any]:
    """Return colour, marker and dashes of the series at *position* (from 0); they repeat after six."""
    index = position % len(SERIES)
    return {"color": SERIES[index], "marker": _MARKERS[index], "linestyle": _DASHES[index]}


def error_bars(medians: Sequence[float], low: Sequence[float], high: Sequence[float]) -> list[list[float]]:
    """Return matplotlib's lengths below and above the medians."""
    return [
        [m - a for m, a in zip(medians, low, strict=True)],
        [b - m for m, b in zip(medians, high, strict=True)],
    ]


def threads_axis(ax: Axes, counts: Sequence[int], labels: int = 14, name: str = "threads") -> None:
    """Scale the x axis to *counts* of *name* in powers of two, with ticks where *labels* of them have room."""
    threads_counts = sorted(set(counts))
    lowest, most = threads_counts[0], threads_counts[-1]
    ax.set_xscale("log", base=2)
    shown: list[int] = []
    # From the largest down, so that "all PUs" keeps its tick; *room* is the width of a label, as a ratio.
    room = max(1.12, (most / lowest) ** (1 / labels))
    for threads in reversed(threads_counts):
        if not shown or shown[-1] / threads >= room:
            shown.append(threads)
    ax.set_xticks([float(t) for t in shown], [str(t) for t in shown])
    ax.set_xticks([], minor=True)
    ax.set_xlim(lowest / 1.2, most * 1.2)
    ax.set_xlabel(name)


def zero_based(ax: Axes, highest: float) -> None:
    """Start the y axis at 0, so that heights are proportional to the values."""
    ax.set_ylim(0, highest * 1.08 if highest > 0 else 1)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.grid(axis="y")


def logarithmic_axis(ax: Axes, values: Iterable[float]) -> None:
    """Make the y axis logarithmic over the positive *values*, with ticks at 1, 2 and 5 of each decade."""
    positive = [v for v in values if v > 0] or [1.0]
    low, high = min(positive) / 1.15, max(positive) * 1.15
    ax.set_yscale("log")
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    ticks = [t for d in decades for m in (1, 2, 5) if low <= (t := m * 10.0**d) <= high]
    ax.set_yticks(ticks, [f"{t:g}" for t in ticks])
    ax.set_yticks([], minor=True)
    ax.set_ylim(low, high)
    ax.grid(axis="y")


def legend(ax: Axes, columns: int, left: float = 0.0) -> None:
    """Place the legend above the axes, where it covers no data; it starts at *left* (in widths of the axes)."""
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
# Lines of points with error bars over the number of threads.


@dataclass(frozen=True)
class Point:
    """A value at a number of *threads* (or of what else the x axis counts), and the ends of its error bar."""

    threads: int
    value: float
    low: float
    high: float


def of(threads: int, record: Record) -> Point:
    """Return a record's median as a point; its error bar spans the repetitions."""
    return Point(threads, record.value, min(record.samples), max(record.samples))


def wide(points: Iterable[Point]) -> bool:
    """Return whether the values span too wide a range for a linear axis."""
    ends = [(p.low, p.high) for p in points]
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    return low > 0 and high / low > 8


def _tip(line: str, point: Point, counted: str) -> str:
    name = f"{line}, " if line else ""
    return f"{name}{count(point.threads, counted)}: {ends(point.value, point.low, point.high)}"


def ends(value: float, low: float, high: float) -> str:
    """Return a value with the smallest and the largest repetition, for a tooltip: ``3.1 (3 to 3.2)``."""
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
    size: tuple[float, float] = (WIDTH, 320),
    heading: str = "",
    columns: int = 4,
    logarithmic: bool = False,
    squares: Mapping[str, int] | None = None,
    counted: str = "thread",
    across: str = "",
    scale: Sequence[Point] = (),
) -> Panel:
    """Return a panel of *lines* by their name in the legend, which has *columns*.

    *label* names the y axis, *heading* stands above. A single line with an empty name has no legend. *squares* are
    the threads of the point of each line that has a square around it. The x axis counts *counted*, and *across*
    names it. The y axis has room for the values of *scale*, too.
    """
    all_points = [p for points in lines.values() for p in points]
    named = any(lines)
    rows = -(-len(lines) // columns) if named else 0
    dense = max(map(len, lines.values())) > _FEW_POINTS
    # The margin of every drawing has room for a legend of one row.
    top = 34.0 + (20 * rows if heading else 20 * max(0, rows - 1))
    width, height = size
    with settings(name):
        drawing, ax = axes(width, height + top - 34 * (not heading), (64, 12, 50, top))
        for position, (key, points) in enumerate(lines.items()):
            values = [p.value for p in points]
            line, *_ = ax.errorbar(
                [float(p.threads) for p in points],  # a record may have any number
                values,
                yerr=error_bars(values, [p.low for p in points], [p.high for p in points]),
                capsize=2 if dense else 4,
                label=clean(key),
                **series_style(position) | ({"markersize": 3.0} if dense else {}),
            )
            line.set_gid(tips(_tip(key, p, counted) for p in points))
            around = [p for p in points if p.threads == (squares or {}).get(key)]
            colour = series_style(position)["color"]
            for p in around:
                ax.plot(
                    p.threads, p.value, "s", color=colour, markersize=12, markerfacecolor="none", clip_on=False
                )
        counts = [p.threads for p in all_points]
        threads_axis(ax, counts, labels=10 if squares else 14, name=across or f"{counted}s")
        if logarithmic:
            logarithmic_axis(ax, (end for p in (*all_points, *scale) for end in (p.low, p.value, p.high)))
        else:
            zero_based(ax, max(p.high for p in (*all_points, *scale)))
        ax.set_ylabel(label)
        if heading:
            ax.set_title(heading, loc="left", fontsize=14, pad=top - 22)
        if named:
            legend(ax, columns=min(columns, len(lines)))
        return panel(drawing, name=name, title=title, description=description)


# ----------------------------------------------------------------------
# Horizontal bars with error bars, single and in groups.

_HATCHES = ("", "///", "...", "xxx", "\\\\\\", "+++")
#: Room (px) for a heading above the legend.
_HEADING = 22


@dataclass(frozen=True)
class Bar:
    """A bar of a *kind*: its label (lines), value, ends of the error bar, and the *text* at its end."""

    label: str
    value: float
    low: float
    high: float
    text: str
    kind: str


@dataclass(frozen=True)
class _Look:
    """Sizes of bars: *height* is a part of *pitch* (px), *text* the size of the texts at their ends (px)."""

    pitch: int
    height: float
    cap: int
    line: float
    text: int
    gap: int
    widest_label: int

    def beside(self, bar: Bar) -> float:
        """Return the width of the text beside a bar, px."""
        return _WIDTH_OF_CHARACTER * self.text * len(bar.text)

    def axis(self, bars: Sequence[Bar], highest: float, width: float) -> float:
        """Return the end of an axis of *width* px that has room for the texts beside the *bars*."""
        ends = [1.05 * highest]
        for bar in bars:
            ends.append((bar.high + _AWAY * highest) * width / (width - min(self.beside(bar), 0.8 * width)))
        return max(ends)


_WIDE_BARS = _Look(34, 0.62, cap=4, line=1.5, text=13, gap=0, widest_label=220)
# Groups of thin bars are a bar apart.
_THIN_BARS = _Look(18, 0.86, cap=3, line=1.2, text=11, gap=1, widest_label=200)
#: The width of a character over its height, and the distance of a text from its bar over the longest bar.
_WIDTH_OF_CHARACTER, _AWAY = 0.62, 0.02


def draw_records(
    records: Sequence[Record],
    *,
    label: Callable[[Record], str],
    kind: str,
    kinds: Sequence[str],
    what: str,
    name: str,
    title: str,
    description: str,
) -> Panel:
    """Return thin bars of the *records* of one metric, which is named *what*.

    *label* returns the name of a record's group, and the parameter *kind* is one of *kinds*.
    """
    bars = []
    for record in records:
        look = str(record.parameters[kind])
        ends = (record.value, min(record.samples), max(record.samples))
        bars.append(Bar(label(record), *ends, f"{look} {number(record.value)}", look))
    return draw_bars(
        bars,
        kinds=kinds,
        axis=f"{what} ({records[0].unit})",
        name=name,
        title=f"{title}: {what}",
        description=description,
        heading=what.capitalize(),
        thin=True,
    )


def draw_bars(
    bars: Sequence[Bar],
    *,
    kinds: Sequence[str],
    axis: str,
    name: str,
    title: str,
    description: str,
    footer: str = "",
    line: float | None = None,
    heading: str = "",
    thin: bool = False,
) -> Panel:
    """Return horizontal bars, one below the other; each of *kinds* has its own look, in that order.

    *axis* names the values, *footer* stands below, *heading* above, and a dashed line marks the value *line*.
    *thin* bars with the same label are a group, which has the label beside it.
    """
    look = _THIN_BARS if thin else _WIDE_BARS
    groups = [list(group) for _, group in groupby(bars, lambda bar: bar.label)] if thin else [[b] for b in bars]
    rows = len(bars) + look.gap * len(groups)
    highest = max(bar.high for bar in bars)
    left = min(24 + 7.4 * max(len(part) for bar in bars for part in bar.label.split("\n")), look.widest_label)
    top, bottom = 34.0 + _HEADING * bool(heading), 66.0 if footer else 50.0
    height = top + bottom + look.pitch * rows + (0 if thin else 12)
    plot = WIDTH - left - 12
    end = max(look.axis(bars, highest, plot), 1.2 * (line or 0)) or 1
    with settings(name):
        drawing, ax = axes(WIDTH, height, (left, 12, bottom, top))
        y, ticks = 0.0, {}
        for group in groups:
            ticks[y + (len(group) - 1) / 2] = "\n".join(map(clean, group[0].label.split("\n")))
            for bar in group:
                (shape,) = ax.barh(
                    y, bar.value, height=look.height, edgecolor=PAPER, **_bar_style(kinds, bar.kind)
                )
                named = ", ".join(dict.fromkeys((*bar.label.split("\n"), bar.kind)))
                shape.set_gid(tips([f"{named}: {ends(bar.value, bar.low, bar.high)}"]))
                errors = [[bar.value - bar.low], [bar.high - bar.value]]
                ax.errorbar(bar.value, y, xerr=errors, color=INK, capsize=look.cap, linewidth=look.line)
                text_at = bar.high + highest * _AWAY
                if line is not None and text_at < line < text_at + look.beside(bar) * end / plot:
                    text_at = line + highest * _AWAY  # the line would cross the text
                ax.text(text_at, y, bar.text, va="center", fontsize=look.text)
                y += 1
            y += look.gap
        ax.set(xlim=(0, end))
        ax.set(ylim=(y - 1.2, -0.8) if thin else (y - 0.4, -0.6))
        if line is not None:
            ax.axvline(line, color=INK, linewidth=1.5, linestyle=(0, (4, 3)))
        used = [kind for kind in kinds if kind in {bar.kind for bar in bars}]
        for kind in used:
            ax.barh(0, 0, edgecolor=PAPER, label=clean(kind), **_bar_style(kinds, kind))
        ax.set_yticks(list(ticks), list(ticks.values()), fontsize=12, linespacing=1.1)
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.grid(axis="x")
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel(axis)
        if heading:
            ax.set_title(clean(heading), loc="left", fontsize=14, pad=12 + _HEADING)
        # The legend has the whole width of the drawing, because the axes are narrow beside long labels.
        legend(ax, min(4, len(used)), -(left - 8) / (WIDTH - left - 12))
        if footer:
            # From the left edge of the drawing, because the axes are too narrow for it.
            drawing.text(8 / WIDTH, 8 / height, clean(footer), fontsize=12)
        return panel(drawing, name=name, title=title, description=description)


def _bar_style(kinds: Sequence[str], kind: str) -> dict[str, Any]:
    index = list(kinds).index(kind) % len(SERIES)
    return {"color": SERIES[index], "hatch": _HATCHES[index]}


# ----------------------------------------------------------------------
# Drawings placed in pixels, without axes: heat maps, the topology, and the small figures of a fleet.


class Canvas:
    """A drawing of *width* x *height* px; x runs to the right and y down, from the top left corner.

    It calls matplotlib's SVG renderer directly, because matplotlib takes about a millisecond to lay out a text,
    and the matrix of a host with eight NUMA nodes has hundreds. Use it within :func:`settings`.
    """

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = round(width), round(height)
        self._out = io.StringIO()
        self._renderer = RendererSVG(self.width, self.height, self._out, image_dpi=72, metadata=_NO_METADATA)

    @contextmanager
    def group(self, kind: str) -> Iterator[None]:
        """Put what is drawn inside into a group of the class *kind*."""
        self._renderer.open_group("", gid=f"{_CLASS}{kind}")
        yield
        self._renderer.close_group("")

    def rectangle(
        self,
        corner: tuple[float, float],
        size: tuple[float, float],
        *,
        fill: str = "",
        line: str = "",
        dashed: bool = False,
        radius: float = 0,
        tip: str = "",
    ) -> None:
        """Draw a rectangle with its upper left *corner*; *fill* and *line* are colours, *tip* is a tooltip."""
        x, y = corner[0], self.height - corner[1] - size[1]
        shape = BoxStyle.Round(pad=0, rounding_size=radius) if radius else BoxStyle.Square(pad=0)
        self._path(shape(x, y, *size, 1), fill=fill, line=line, dashes=(3, 2) if dashed else None)
        self._tip(tip)

    def line(
        self, points: Sequence[tuple[float, float]], color: str, *, width: float = 1, dashes: Any = None
    ) -> None:
        """Draw a line through *points*; *dashes* are the lengths (px) of dashes and gaps."""
        self._path(Path([(x, self.height - y) for x, y in points]), line=color, width=width, dashes=dashes)

    def dot(self, centre: tuple[float, float], radius: float, color: str, *, tip: str = "") -> None:
        """Draw a filled circle; *tip* is a tooltip."""
        self._path(Path.circle((centre[0], self.height - centre[1]), radius), fill=color)
        self._tip(tip)

    def _tip(self, text: str) -> None:
        if text:
            self._renderer.writer.element("title", clean(text))  # inline() moves it into the shape before it

    def _path(self, path: Path, *, fill: str = "", line: str = "", width: float = 1, dashes: Any = None) -> None:
        context = self._renderer.new_gc()
        context.set_linewidth(width if line else 0)
        context.set_foreground(line or fill)
        if dashes:
            context.set_dashes(0, dashes)
        self._renderer.draw_path(context, path, IdentityTransform(), to_rgba(fill) if fill else None)

    def text(
        self,
        place: tuple[float, float],
        text: str,
        *,
        color: str = INK,
        anchor: Literal["left", "center", "right"] = "left",
        size: float = _FONT,
        bold: bool = False,
        upwards: bool = False,
    ) -> None:
        """Draw a text whose base line begins, has its middle or ends (*anchor*) at *place*."""
        x, y = place
        context = self._renderer.new_gc()
        context.set_foreground(color)
        label = Text(x, self.height - y, ha=anchor, rotation_mode="anchor")
        self._renderer.draw_text(context, x, y, clean(text), _font(size, bold), 90 * upwards, mtext=label)

    def panel(self, kind: str, *, name: str = "", title: str = "", description: str = "") -> Panel:
        """Return the drawing as a panel of the class *kind*; nothing can be added to it afterwards."""
        self._renderer.finalize()
        document = self._out.getvalue()
        return Panel(inline(document, name=name, title=title, description=description, kind=kind), self.width)


@cache
def _font(size: float, bold: bool) -> FontProperties:
    return FontProperties(size=size, weight=600 if bold else 400)


# ----------------------------------------------------------------------
# Heat maps: a matrix of coloured cells with their values.

_CELL_WIDTH = 48
#: Height of a cell (px) in a matrix of few rows and of many.
_CELL_HEIGHTS = (30, 22)
_FEW_ROWS = 16
#: Space (px) above the cells for the title, below them for numbers, axis label and colour scale.
_TOP, _BOTTOM = 30, 92
#: Width (px) of the narrowest matrix, which has room for the label below the cells.
_NARROWEST = 180
#: Width (px) of a character of a row's label, and what the axis label and the gaps beside it take.
_CHARACTER, _BESIDE = 7.5, 36
_STEPS = 256


@cache
def _scale() -> tuple[tuple[str, str], ...]:
    """Return (colour of the cell, colour of the text on it) for each step of the scale, dark to bright.

    cividis is perceptually uniform, and its order of brightness is the same for every kind of colour vision.
    """
    steps = []
    scale = colormaps["cividis"]  # each access copies it
    for step in range(_STEPS):
        colour = scale(step / (_STEPS - 1))[:3]
        # Relative luminance (WCAG 2.2): above 0.18 black has the better contrast, below it white.
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
        luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        steps.append((to_hex(colour), "#000000" if luminance > 0.18 else "#ffffff"))
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
    empty: str = "none",
) -> Panel:
    """Return the matrix; colours run from 0 to *highest* (in *unit*), None is an *empty* cell.

    *axes* label the rows and the columns. *name* prefixes the ids. *title* stands above the matrix and, with
    *description*, is its text alternative.
    """
    left = _BESIDE + _CHARACTER * max(map(len, rows))
    height = _CELL_HEIGHTS[len(rows) > _FEW_ROWS]
    across, down = max(_CELL_WIDTH * len(columns), _NARROWEST), height * len(rows)
    width, bottom = across / len(columns), _TOP + down
    with settings(name):
        canvas = Canvas(left + across + 12, bottom + _BOTTOM)
        canvas.text((left, 16), title, size=14, bold=True)
        for y, (label, values) in enumerate(zip(rows, cells, strict=True)):
            base = _TOP + height * (y + 0.5) + 4.5
            canvas.text((left - 7, base), label, anchor="right")
            places = [(left + x * width, value) for x, value in enumerate(values)]
            for x in (x for x, value in places if value is None):
                canvas.text((x + width / 2, base), empty, anchor="center")
            with canvas.group("cells"):
                for x, value in ((x, value) for x, value in places if value is not None):
                    part = min(max(value / highest, 0.0), 1.0) if highest > 0 else 0.0
                    colour, ink = _scale()[round(part * (_STEPS - 1))]
                    to = columns[round((x - left) / width)]
                    tip = f"{label} to {to}: {number(value)} {unit}".rstrip()
                    canvas.rectangle((x, _TOP + y * height), (width - 1, height - 1), fill=colour, tip=tip)
                    canvas.text((x + width / 2, base), number(value), color=ink, anchor="center")
        for x, label in enumerate(columns):
            canvas.text((left + (x + 0.5) * width, bottom + 17), label, anchor="center")
        canvas.text((left + across / 2, bottom + 37), axes[1], anchor="center")
        # Along a short side, a centred label would run out of the drawing.
        if down > _CHARACTER * len(axes[0]):
            canvas.text((14, _TOP + down / 2), axes[0], anchor="center", upwards=True)
        else:
            canvas.text((14, _TOP - 6), axes[0], anchor="right", upwards=True)
        _draw_scale(canvas, (left, bottom + 50), across, f"{number(highest)} {unit}")
        return canvas.panel("matrix", name=name, title=title, description=description)


def _draw_scale(canvas: Canvas, corner: tuple[float, float], width: float, highest: str) -> None:
    """Draw the colours of a heat map from left to right."""
    x, y = corner
    for step in range(0, _STEPS, 4):
        # Each reaches to the right end, or gaps would be seen between them.
        start = width * step / _STEPS
        canvas.rectangle((x + start, y), (width - start, 9), fill=_scale()[step][0])
    canvas.text((x, y + 26), "0")
    canvas.text((x + width, y + 26), highest, anchor="right")
