# SPDX-License-Identifier: Apache-2.0
"""Charts with long texts and with values of every size."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest

from factories import drawings
from factories.drawings import extent, local
from firsttouch.report.document import Panel
from firsttouch.report.figures import drawing as charts


def lines(*, named: str = "a policy", lines: int = 3, points: int = 5, **options: Any) -> Panel:
    """Return a chart of lines that rise to high values."""
    return charts.draw_lines(
        {
            f"{named} {i}": [charts.Point(3**k, 10.0**k * i, 9.0**k, 11.0**k * i) for k in range(points)]
            for i in range(1, lines + 1)
        },
        **{"label": "time (s)", "name": "x", "title": "x", "description": "x", **options},
    )


def bars(*values: float, label: str = "b", text: str = "{} s", **options: Any) -> Panel:
    """Return a chart of bars with different labels and kinds."""
    drawn = [
        charts.Bar(f"{label} {i}", v, 0.95 * v, 1.1 * v, text.format(f"{v:.2f}"), f"kind {i}")
        for i, v in enumerate(values)
    ]
    kinds = [bar.kind for bar in drawn]
    options = {"axis": "time (s)", "name": "x", "title": "x", "description": "x", **options}
    return charts.draw_bars(drawn, kinds=kinds, **options)


def heatmap(*cells: float | None, columns: int = 2, **options: Any) -> Panel:
    """Return a square matrix."""
    names = [f"{i}-{i + 3},{i + 8}" for i in range(columns)]
    options = {"unit": "GB/s", "name": "x", "title": "x", "heading": "copy (GB/s)", "description": "x", **options}
    rows = [list(cells) * (columns // len(cells)) for _ in names]
    return charts.draw_heatmap(
        rows, rows=names, columns=names, highest=max(filter(None, cells), default=0.0), axes=AXES, **options
    )


AXES = ("PU-set (NUMA nodes)", "memory bank (NUMA node)")
LONG = "a name that is a good deal longer than the drawing is wide, so one line cannot hold it"
#: Description -> the panel: few and many of everything, long names, and values of every size.
CHARTS = {
    "lines": lines,
    "one point": lambda: lines(lines=1, points=1),
    "many lines": lambda: lines(lines=14),
    "many points": lambda: lines(points=40, logarithmic=True),
    "long names": lambda: lines(named=LONG, heading=LONG, label=LONG),
    "wide characters": lambda: lines(named="\u6e2c\u5b9a" * 9, heading="\u6e2c\u5b9a" * 40),
    "narrow chart": lambda: lines(size=(320, 200), named="L-parsing, 16 outputs"),
    "logarithmic": lambda: lines(logarithmic=True),
    "bars": lambda: bars(0.51, 0.3, 0.1),
    "bars with long texts": lambda: bars(0.1, 0.1, 0.51, text="{} s, 2x32-local", heading="Copy"),
    "one value": lambda: bars(1e9, axis="bytes"),
    "no value": lambda: bars(0.0, 0.0),
    "many kinds": lambda: bars(*[1.0 + i for i in range(12)], heading=LONG),
    "two lines of a label": lambda: bars(1.0, 2.0, label="HG002 chromosome 20\n100000 pairs per thread"),
    "long texts": lambda: bars(3.0, 0.2, label=LONG, text=LONG, line=1, axis=LONG),
    "matrix": lambda: heatmap(1.0, None, 1234567.0, 0.000012, columns=8),
    "small matrix": lambda: heatmap(0.0, columns=1),
    "long title": lambda: heatmap(0.0, 9.0, heading=LONG),
}


@pytest.mark.parametrize("name", CHARTS)
def test_texts_are_inside_their_drawing_and_apart(name: str) -> None:
    root = ET.fromstring(str(CHARTS[name]().svg))  # noqa: S314
    assert drawings.misplaced(root) == []
    assert len(drawings.texts(root)) >= 4


@pytest.mark.parametrize("name", CHARTS)
def test_shapes_are_inside_their_drawing(name: str) -> None:
    root = ET.fromstring(str(CHARTS[name]().svg))  # noqa: S314
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for shape in (e for e in root if local(e) in {"rect", "circle", "path"}):
        left, top, right, bottom = extent(shape)
        assert min(left, top) >= -0.5, shape.attrib
        assert right <= width + 0.5, shape.attrib
        assert bottom <= height + 0.5, shape.attrib


def test_a_line_crosses_no_text_beside_a_bar() -> None:
    panel = bars(0.55, 0.7, 0.9, 0.98, 1.6, text="{}x", line=1)
    root = ET.fromstring(str(panel.svg))  # noqa: S314
    (line,) = [extent(e) for e in root if e.get("stroke-dasharray")]
    gains = [e for e in drawings.texts(root) if drawings.text(e).endswith("x")]
    assert len(gains) == 5
    for text in gains:
        left, _, right, _ = extent(text)
        assert not left < line[0] < right
        assert right <= panel.width


def test_a_text_that_has_no_room_is_whole_in_its_tooltip() -> None:
    root = ET.fromstring(str(bars(1.0, label=LONG).svg))  # noqa: S314
    (label,) = [e for e in drawings.texts(root) if drawings.tip(e)]
    assert drawings.text(label).endswith("\u2026")
    assert drawings.tip(label) == f"{LONG} 0"


def test_lengths_and_heights_are_proportional_to_the_values() -> None:
    root = ET.fromstring(str(bars(1.0, 2.0, 4.0).svg))  # noqa: S314
    first, second, third = (float(e.get("width", 0)) for e in root if drawings.tip(e))
    assert [round(w / first, 2) for w in (second, third)] == [2, 4]
    points = {"": [charts.Point(2**k, v, v, v) for k, v in enumerate((0.0, 1.0, 2.0))]}
    root = ET.fromstring(str(charts.draw_lines(points, label="y", name="x", title="x", description="x").svg))  # noqa: S314
    (x, y), (x1, y1), (x2, y2) = ((float(e.get("cx", 0)), float(e.get("cy", 0))) for e in root if e.get("cx"))
    assert (round(x2 - x1, 1), round(y1 - y2, 1)) == (round(x1 - x, 1), round(y - y1, 1))


@pytest.mark.parametrize(
    ("scale", "labels"),
    [
        (charts.zero_based_scale(365.0), ["0", "50", "100", "150", "200", "250", "300", "350"]),
        (charts.zero_based_scale(0.0007), ["0", *(f"0.000{n}" for n in range(1, 8))]),
        (charts.zero_based_scale(0.0), ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (charts.logarithmic_scale([0.3, 40.0]), ["0.5", "1", "2", "5", "10", "20"]),
        (charts.logarithmic_scale([3.0, 3.1]), ["2.8", "3", "3.2", "3.4"]),
        (charts.logarithmic_scale([1e-6, 1.0]), ["1e-06", "1e-05", "0.0001", "0.001", "0.01", "0.1", "1"]),
        (charts.counts_scale([8, 1, 2, 8]), ["1", "2", "8"]),
    ],
)  # fmt: skip
def test_ticks_are_round_numbers(scale: charts.Scale, labels: list[str]) -> None:
    assert [label for _, label in scale.ticks] == labels
    assert [float(label) for label in labels] == pytest.approx([value for value, _ in scale.ticks])
    assert all(scale.low <= value <= scale.high for value, _ in scale.ticks)
