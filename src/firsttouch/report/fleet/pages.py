# SPDX-License-Identifier: Apache-2.0
"""The pages about many hosts: the templates of this folder, with the report's own style and macros."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader
from markupsafe import Markup

from firsttouch.report import pages as report_pages
from firsttouch.report.text import clean, markdown

_LOADER = ChoiceLoader([PackageLoader("firsttouch.report.fleet"), PackageLoader("firsttouch.report")])


def html(template: str, facts: Mapping[str, Any]) -> str:
    """Return a page."""
    environment = _environment(html=True)
    sheets = [_LOADER.get_source(environment, name)[0] for name in ("report.css", "fleet.css")]
    # The style sheets are the package's own text: nothing of the records is in them.
    return environment.get_template(template).render(**facts, css=Markup("\n".join(sheets)))  # noqa: S704


def ticket(template: str, facts: Mapping[str, Any]) -> str:
    """Return a Markdown text."""
    return _environment(html=False).get_template(template).render(**facts)


def _environment(*, html: bool) -> Environment:
    def finalize(value: Any) -> Any:
        if not isinstance(value, str) or isinstance(value, Markup):
            return value
        return clean(value) if html else markdown(value)

    return report_pages.environment(_LOADER, autoescape=html, finalize=finalize)
