# SPDX-License-Identifier: Apache-2.0
"""The pages about many hosts: the templates of this folder, with the report's own style and macros."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import ChoiceLoader, PackageLoader
from markupsafe import Markup

from firsttouch.report import pages as report_pages

_LOADER = ChoiceLoader([PackageLoader("firsttouch.report.fleet"), PackageLoader("firsttouch.report")])


def html(template: str, facts: Mapping[str, Any]) -> str:
    """Return a page."""
    # The style sheets are the package's own text: nothing of the records is in them.
    return part(template, {**facts, "css": Markup(style())})  # noqa: S704


def part(template: str, facts: Mapping[str, Any]) -> str:
    """Return a part of a page, to be shown elsewhere with the page's :func:`style`."""
    return report_pages.environment(_LOADER, html=True).get_template(template).render(**facts)


def style() -> str:
    """Return the style sheet of these pages, which begins with that of all reports."""
    environment = report_pages.environment(_LOADER, html=True)
    return "\n".join(_LOADER.get_source(environment, name)[0] for name in ("report.css", "fleet.css"))


def ticket(template: str, facts: Mapping[str, Any]) -> str:
    """Return a Markdown text."""
    return report_pages.environment(_LOADER, html=False).get_template(template).render(**facts)
