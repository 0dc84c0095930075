# SPDX-License-Identifier: Apache-2.0
"""Shapes and texts of drawings: their extents, and the texts that touch others or the edge."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import combinations

from firsttouch.report import render
from firsttouch.report.aspect import Aspect
from firsttouch.report.document import Figure
from firsttouch.report.figures import svg
from firsttouch.report.model import Absent, HostView

#: Left, top, right and bottom, px.
Extent = tuple[float, float, float, float]


def figures(view: HostView, aspect: Aspect) -> list[Figure | Absent]:
    """Return the charts of an aspect as figures, and what is absent."""
    return [*(render.figure(view, chart) for chart in aspect.charts), *aspect.absent]


def tree(page: str) -> ET.Element:
    """Parse the page as XML: a stricter reader than any browser, which takes unclosed or crossed tags."""
    assert page.startswith("<!DOCTYPE html>")
    return ET.fromstring(page)  # noqa: S314


def local(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def tip(element: ET.Element) -> str:
    """Return the tooltip of a shape, or an empty text."""
    return next((e.text or "" for e in element if local(e) == "title"), "")


def text(element: ET.Element) -> str:
    """Return what a text shows, without its tooltip."""
    return (element.text or "") + "".join(e.tail or "" for e in element)


def extent(element: ET.Element) -> Extent:
    """Return the extent of a shape; estimated for texts."""
    of = {name: float(element.get(name, 0)) for name in ("x", "y", "width", "height", "cx", "cy", "r")}
    if local(element) == "rect":
        return of["x"], of["y"], of["x"] + of["width"], of["y"] + of["height"]
    if local(element) == "circle":
        return of["cx"] - of["r"], of["cy"] - of["r"], of["cx"] + of["r"], of["cy"] + of["r"]
    if local(element) == "text":
        size = float(element.get("font-size", svg.SIZE))
        width = svg.width(text(element), size * (1.14 if element.get("font-weight") else 1))
        left = of["x"] - {"start": 0.0, "middle": 0.5, "end": 1.0}[element.get("text-anchor", "start")] * width
        return left, of["y"] - 0.75 * size, left + width, of["y"] + 0.2 * size
    numbers = [float(n) for n in re.findall(r"-?[\d.]+", element.get("d", ""))]
    return min(numbers[::2]), min(numbers[1::2]), max(numbers[::2]), max(numbers[1::2])


def texts(root: ET.Element) -> list[ET.Element]:
    return [e for e in root.iter() if local(e) == "text"]


def misplaced(root: ET.Element) -> list[str]:
    """Return the texts that leave their drawing, and the pairs of texts that overlap."""
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    placed = [(text(e), extent(e)) for e in texts(root) if text(e)]
    outside = [
        shown
        for shown, (left, top, right, bottom) in placed
        if min(left, top) < -0.5 or right > width + 0.5 or bottom > height + 0.5
    ]
    touching = [
        f"{first} | {second}"
        for (first, a), (second, b) in combinations(placed, 2)
        if min(a[2], b[2]) - max(a[0], b[0]) > 0.5 and min(a[3], b[3]) - max(a[1], b[1]) > 0.5
    ]
    return outside + touching
