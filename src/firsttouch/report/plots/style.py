# SPDX-License-Identifier: Apache-2.0
"""The look that all plots share: sizes in CSS pixels, one font size, series told apart by more than colour."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from math import ceil, floor, log10
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from firsttouch.report.model import Panel
from firsttouch.report.svg import GRID, INK, MUTED, SERIES, inline
from firsttouch.report.text import clean

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


def logarithmic(ax: Axes, values: Iterable[float]) -> None:
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
