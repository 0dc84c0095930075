# SPDX-License-Identifier: Apache-2.0
"""Texts in cells of CSV: a spreadsheet must not compute them."""

import re
from importlib import resources

import pytest

#: A cell -> whether a spreadsheet would compute it.
CELLS = {
    **dict.fromkeys(
        ("=1+1", "@SUM(1)", "\t=1", "\r=1", "+1+cmd|x", "-2+3+cmd|' /C calc'!A0", "-n1", "+", "\uff1d1"), True
    ),
    **dict.fromkeys(
        ("", "n1", "n-1", "a=b", "1e-5", "-3", "+2.5", "-24.8 %", "-1.5e-7", "-3 GB/s", "+12 ns"), False
    ),
}


def page_rule():
    """Return the rule of the page's CSV button, which is also a valid regular expression of Python."""
    script = resources.files("firsttouch.report").joinpath("templates", "page.js").read_text(encoding="utf-8")
    (rule,) = re.findall(r"const formula = /(.+)/i;", script)
    return re.compile(rule, re.IGNORECASE)


@pytest.mark.parametrize(("cell", "computed"), CELLS.items())
def test_no_cell_is_a_formula(cell, computed):
    assert bool(page_rule().match(cell)) == computed
