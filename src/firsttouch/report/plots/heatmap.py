# SPDX-License-Identifier: Apache-2.0
"""A matrix as SVG: coloured cells with their values, written directly.

matplotlib lays out every text that it draws: the 106 x 8 cells of a host with eight NUMA nodes would take
it seconds per kernel. Its colour map is used; the cells are plain rectangles and texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from markupsafe import Markup, escape
from matplotlib import colormaps
from matplotlib.colors import to_hex

from firsttouch.report.model import Panel
from firsttouch.report.text import clean, number

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


def draw(
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
