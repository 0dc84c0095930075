# SPDX-License-Identifier: Apache-2.0
"""The pages of a report: the templates filled in.

The templates lie in this package, not in reports/, because an installed wheel holds only the package.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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
    filled = environment(_LOADER, html=True)
    source, _, _ = _LOADER.get_source(filled, "report.css")
    # The style sheet is the package's own text: nothing of the records is in it.
    return filled.get_template(template).render(**facts, css=Markup(source))  # noqa: S704


def ticket(facts: Mapping[str, Any]) -> str:
    """Return summary.md."""
    return environment(_LOADER, html=False).get_template("summary.md.j2").render(**facts)


def environment(loader: BaseLoader, *, html: bool) -> Environment:
    """Return what fills in the templates of *loader*, of pages (*html*) or of Markdown.

    Each value is made fit for them: escaped, without what no page may carry, and on a page so that no line ends
    between a number and its unit.
    """
    made = Environment(
        loader=loader,
        autoescape=html,  # noqa: S701 - off for Markdown only, which has its own escaping
        finalize=_on_page if html else _in_markdown,
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


def _on_page(value: Any) -> Any:
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", clean(value))


def _in_markdown(value: Any) -> Any:
    return markdown(value) if isinstance(value, str) else value
