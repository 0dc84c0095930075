# SPDX-License-Identifier: Apache-2.0
"""Bars with error bars: speedups of scenarios, and times side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from firsttouch.report.model import Panel
from firsttouch.report.plots import style
from firsttouch.report.svg import INK, PAPER, SERIES
from firsttouch.report.text import clean

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


def draw(
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
    with style.settings(name):
        height = top + bottom + _BAR * len(bars) + 12
        left = min(left, 220)
        drawing, ax = style.axes(style.WIDTH, height, (left, 12, bottom, top))
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
            drawing.text(8 / style.WIDTH, 8 / height, clean(footer), fontsize=12)
        if heading:
            ax.set_title(clean(heading), loc="left", fontsize=14, pad=top - 22)
        style.legend(ax, min(4, len(shown)), _edge(left))
        return style.panel(drawing, name=name, title=title, description=description)


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
    with style.settings(name):
        height = top + bottom + (_BESIDE_BAR + 2) * rows
        left = min(left, 200)
        drawing, ax = style.axes(style.WIDTH, height, (left, 12, bottom, top))
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
        style.legend(ax, 3, _edge(left))
        return style.panel(drawing, name=name, title=title, description=description)


def _edge(left: float) -> float:
    """Return where a legend starts that has the drawing's whole width: beside long labels, axes are narrow."""
    return -(left - 8) / (style.WIDTH - left - 12)


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
