# SPDX-License-Identifier: Apache-2.0
"""Fills in what pages of the manual take from the program: its figures and its command reference.

In the source of a page, ``<!-- figure NAME -->`` stands for a figure, ``<!-- figure fleet NAME -->`` for a part of
a fleet report, and ``<!-- commands -->`` for the help texts of all commands.
"""

from __future__ import annotations

import re
from pathlib import Path

import commands
import figures
import fleet
from sphinx.application import Sphinx

from firsttouch.report import forms

_MARKER = re.compile(r"^<!-- (figure|figure fleet|commands)(?: (\w+))? -->$", re.MULTILINE)
_GENERATORS = {"figure": figures.html, "figure fleet": fleet.html, "commands": lambda _: commands.markdown()}


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to the reading of pages and to the writing of style sheets."""
    app.connect("source-read", _fill_in)
    app.connect("html-collect-pages", _write_style)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _fill_in(_app: Sphinx, _docname: str, source: list[str]) -> None:
    source[0] = _MARKER.sub(lambda match: _GENERATORS[match[1]](match[2]), source[0])


def _write_style(app: Sphinx) -> list[tuple[str, dict[str, object], str]]:
    """Write the style sheet of the figures; returns no pages."""
    folder = Path(app.outdir, "_static")
    folder.mkdir(exist_ok=True)
    (folder / "report.css").write_text(scoped(forms.style()), encoding="utf-8")
    return []


def scoped(style: str) -> str:
    """Return the reports' style sheet for figures only; it follows the theme's switch between light and dark."""
    light = "".join(re.findall(r"^:root \{(.*?)\}", style, re.MULTILINE | re.DOTALL))
    dark = "".join(
        re.findall(r"^@media \(prefers-color-scheme: dark\) \{\s*:root \{(.*?)\}", style, re.MULTILINE | re.DOTALL)
    )
    light = light.replace("color-scheme: light dark;", "")
    return (
        f"body {{{light}}}\n"
        f'body[data-theme="dark"] {{{dark}}}\n'
        f'@media (prefers-color-scheme: dark) {{ body:not([data-theme="light"]) {{{dark}}} }}\n'
        f".drawn {{\n{style}\n}}\n"
    )
