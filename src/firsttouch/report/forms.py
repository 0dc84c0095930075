# SPDX-License-Identifier: Apache-2.0
"""Writes documents as pages (HTML) and tickets (Markdown), and tables for a terminal."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import firsttouch
from firsttouch.execution.progress import tabular
from firsttouch.report.document import Block, Document, Table, spans
from firsttouch.report.text import clean, markdown
from firsttouch.units import UNITS

_BEFORE_UNIT = re.compile(rf"(?<=\d) (?=(?:%|{'|'.join(map(re.escape, UNITS))})(?![\w/]))")


def page(document: Document) -> str:
    """Return a document as a page that needs no other file."""
    return str(_macros("document.html.j2").page(document))


def part(blocks: Sequence[Block]) -> str:
    """Return blocks as a part of a page, which needs the :func:`style` sheet."""
    return str(_macros("document.html.j2").show(blocks, 3))


def ticket(document: Document) -> str:
    """Return the texts, lists and tables of a document as Markdown."""
    return str(_macros("document.md.j2").ticket(document))


def write(
    out: Path,
    page_of: Document,
    ticket_of: Document,
    summary: Mapping[str, Any],
    others: Mapping[str, str] = MappingProxyType({}),
    *,
    indent: int | None = 1,
) -> None:
    """Write index.html, summary.md, summary.json and the texts *others* by name into the folder *out*.

    *indent* makes Python ten times slower, which matters for ten thousand hosts.
    """
    files = {
        "index.html": page(page_of),
        "summary.md": ticket(ticket_of),
        "summary.json": json.dumps(summary, indent=indent, sort_keys=True, allow_nan=False) + "\n",
        **others,
    }
    for name, text in files.items():
        (out / name).write_text(text, encoding="utf-8")


def terminal(table: Table, most: int) -> str:
    """Return the first *most* rows of a table for a terminal."""
    rows = [[clean(text) for text in row] for row in table.texts[:most]]
    return tabular(rows, [cell.text for cell in table.head])


def style() -> str:
    """Return the style sheet of pages."""
    return _file("report.css")


def _file(name: str) -> str:
    """Return a file of the templates, which are in this package because a wheel installs nothing else."""
    return resources.files("firsttouch.report").joinpath("templates", name).read_text(encoding="utf-8")


@functools.cache
def _macros(name: str) -> Any:
    """Return the macros of a template, compiled once.

    They escape each value and remove unprintable characters. On a page, a number and its unit stay on one line.
    The page's policy permits its script by a hash.
    """
    script = Markup(_file("page.js"))  # noqa: S704
    templates = Environment(
        loader=PackageLoader("firsttouch.report"),
        autoescape=True,
        finalize=_on_page if name.endswith(".html.j2") else _in_markdown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.globals.update(
        kind_of=lambda block: type(block).__name__,
        spans=spans,
        version=firsttouch.__version__,
        style=Markup(style()),  # noqa: S704
        script=script,
        script_hash=f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
    )
    return templates.get_template(name).module


def _on_page(value: Any) -> Any:
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", clean(value))


def _in_markdown(value: Any) -> Any:
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return Markup(markdown(value))  # noqa: S704 - escaped for Markdown
