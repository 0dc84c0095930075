# SPDX-License-Identifier: Apache-2.0
"""Formulas between $$ become MathML, which browsers draw by themselves: no script, no font, no network."""

from __future__ import annotations

import re
from typing import Any

from latex2mathml.converter import convert

_FORMULA = re.compile(r"^\$\$\s*(.+?)\s*\$\$$", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page with its formulas as MathML."""
    return _FORMULA.sub(lambda found: convert(found[1], display="block"), markdown)
