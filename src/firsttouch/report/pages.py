# SPDX-License-Identifier: Apache-2.0
"""The pages of a report: the templates filled in.

The templates lie in this package, not in reports/, because an installed wheel holds only the package.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import BaseLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from firsttouch.report import guidelines
from firsttouch.report.headlines import HEADER, not_measured
from firsttouch.report.text import clean, count, markdown
from firsttouch.units import UNITS

_BEFORE_UNIT = re.compile(rf"(?<=\d) (?=(?:%|{'|'.join(map(re.escape, UNITS))})(?![\w/]))")

_LOADER = PackageLoader("firsttouch.report")


def html(facts: Mapping[str, Any], template: str = "report.html.j2") -> str:
    """Return index.html: *template* filled in."""
    filled = environment(_LOADER, autoescape=True, finalize=_clean)
    source, _, _ = _LOADER.get_source(filled, "report.css")
    # The style sheet is the package's own text: nothing of the records is in it.
    return filled.get_template(template).render(**facts, css=Markup(source))  # noqa: S704


def ticket(facts: Mapping[str, Any]) -> str:
    """Return summary.md."""
    filled = environment(_LOADER, autoescape=False, finalize=_markdown)
    return filled.get_template("summary.md.j2").render(**facts)


def environment(loader: BaseLoader, *, autoescape: bool, finalize: Callable[[Any], Any]) -> Environment:
    """Return what fills in the templates of *loader*; *finalize* makes each value fit for the page."""
    made = Environment(
        loader=loader,
        autoescape=autoescape,  # noqa: S701 - off for Markdown only, which has its own escaping
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.globals.update(
        count=count,
        not_measured=not_measured,
        header=HEADER,
        said=guidelines.said,
        alternatives=guidelines.table,
        dropped=guidelines.dropped,
    )
    return made


def _clean(value: Any) -> Any:
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    # A line must not end between a number and its unit.
    return _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", clean(value))


def _markdown(value: Any) -> Any:
    return markdown(value) if isinstance(value, str) else value
