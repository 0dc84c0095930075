# SPDX-License-Identifier: Apache-2.0
"""Draws the picture of README.md: ``python docs/extensions/picture.py`` writes docs/speedups.svg.

The figure takes its colours from the style sheet of reports, which an image in a README does not have. They are
replaced by those of the light scheme.
"""

from __future__ import annotations

import re
from pathlib import Path

import figures

from firsttouch.report import forms

FILE = Path(__file__).resolve().parents[1] / "speedups.svg"


def svg() -> str:
    """Return the speed-ups of BWA-MEM's scenarios as an SVG document."""
    figure, _ = figures.draw("placement")
    (panel,) = figure.panels
    colours = dict(reversed(re.findall(r"(--[\w-]+): ([^;]+);", forms.style())))
    drawing = re.sub(r"var\((--[\w-]+)\)", lambda match: colours[match[1]], panel.svg)
    alone = '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif"'
    paper = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return re.sub(r"<svg([^>]*>)", rf"{alone}\1{paper}", drawing, count=1)


if __name__ == "__main__":
    FILE.write_text(svg() + "\n", encoding="utf-8")
