# SPDX-License-Identifier: Apache-2.0
"""Lines of points with error bars over the number of threads: the drawing that several figures share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from firsttouch.records import Record
from firsttouch.report.model import Panel
from firsttouch.report.plots import style
from firsttouch.report.text import clean


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


def draw(
    lines: Mapping[str, Sequence[Point]],
    *,
    label: str,
    name: str,
    title: str,
    description: str,
    size: tuple[float, float] = (style.WIDTH, 320),
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
    with style.settings(name):
        drawing, ax = style.axes(width, height + top - 34 * (not heading), (64, 12, 50, top))
        for position, (key, points) in enumerate(lines.items()):
            values = [p.value for p in points]
            ax.errorbar(
                [p.threads for p in points],
                values,
                yerr=style.error_bars(values, [p.low for p in points], [p.high for p in points]),
                capsize=4,
                label=clean(key),
                **style.series_style(position),
            )
        style.threads_axis(ax, [p.threads for p in known])
        if logarithmic:
            style.logarithmic(ax, (end for p in known for end in (p.low, p.value, p.high)))
        else:
            style.zero_based(ax, max(p.high for p in known))
        ax.set_ylabel(label)
        if heading:
            ax.set_title(heading, loc="left", fontsize=14, pad=top - 22)
        if named:
            style.legend(ax, columns=min(columns, len(lines)))
        return style.panel(drawing, name=name, title=title, description=description)
