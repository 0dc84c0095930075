# SPDX-License-Identifier: Apache-2.0
"""A drawing as inline SVG: colours from the page's style sheet, own ids, a title and a description.

The plots draw with stand-in colours (INK, MUTED, ...) that become CSS variables here, so that one drawing
suits light, dark and paper.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from markupsafe import Markup

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
