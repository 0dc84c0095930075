# SPDX-License-Identifier: Apache-2.0
"""The page of a fleet in a real browser, checked like the page of a host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import Site, assert_painted, browse, evaluated, scroll_width
from devtools import CHROMIUM

from factories.fleet_records import records_by_host
from firsttouch.judge import samples_table
from firsttouch.judge.judging import Undescribed, judged
from firsttouch.records.schema import Record
from firsttouch.report.fleet import comparison, fleet_pages

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH (Debian: apt-get install chromium)"),
]
PAGES = ("fleet", "comparison")


def records(day: str, slower: float) -> list[Record]:
    """Return the records of 60 simulated hosts."""
    by_host = records_by_host(day=day, slower=slower)
    return [record for host_records in by_host.values() for record in host_records]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    by_page = {name: tmp_path_factory.mktemp(name) for name in PAGES}
    before, after = records("2026-01-01", 0.0), records("2026-02-01", 0.06)
    fleet_pages.build([judged(samples_table.of_records([*before, *after]), Undescribed("s"))], by_page["fleet"])
    compared = comparison.compare(samples_table.of_records(before), samples_table.of_records(after))
    comparison.build(compared, by_page["comparison"], names=("before", "after"))
    return by_page


@pytest.fixture(params=PAGES)
def report(request: pytest.FixtureRequest, folders: dict[str, Path]) -> Iterator[object]:
    site = Site(folders[request.param])
    yield site
    site.server.shutdown()
    site.server.server_close()


def test_the_page_loads_without_a_word_on_the_console_and_without_a_request(report, tmp_path: Path) -> None:
    visit = browse(report, tmp_path / "profile", report.address)
    assert visit.console == []
    assert visit.requests == []
    assert "<svg" in visit.document
    from_file = browse(report, tmp_path / "file", (report.folder / "index.html").as_uri())
    assert from_file.console == []


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_window(report, tmp_path: Path, width: int) -> None:
    assert scroll_width(report, tmp_path / "profile", width) <= width


def test_a_keyboard_reaches_everything_that_scrolls_and_every_link_leads_somewhere(report, tmp_path: Path) -> None:
    # An element wider than its box must be focusable, so that a keyboard can scroll it.
    stuck = (
        "[...d.querySelectorAll('*')].filter(e => e.scrollWidth > e.clientWidth + 1"
        " && ['auto', 'scroll'].includes(getComputedStyle(e).overflowX) && e.tabIndex < 0).length"
    )
    assert evaluated(report, tmp_path / "stuck", 360, stuck) == "0"
    dead = "[...d.querySelectorAll('a[href^=\"#\"]')].filter(a => !d.getElementById(a.hash.slice(1))).length"
    assert evaluated(report, tmp_path / "links", 1280, dead) == "0"
    unnamed = (
        "[...d.querySelectorAll('svg:not([aria-hidden=true]), [role=region], table')]"
        ".filter(e => !(e.getAttribute('aria-label') || e.getAttribute('aria-labelledby')"
        " || e.querySelector('caption'))).length"
    )
    assert evaluated(report, tmp_path / "names", 1280, unnamed) == "0"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_colour_schemes_paint_the_page(report, tmp_path: Path, scheme: str) -> None:
    assert_painted(report, tmp_path, scheme)


def test_on_paper_the_page_has_some_pages_and_not_hundreds(report, tmp_path: Path) -> None:
    printed = tmp_path / "page.pdf"
    browse(report, tmp_path / "profile", report.address, f"--print-to-pdf={printed}")
    pages = len(re.findall(rb"/Type\s*/Page\b", printed.read_bytes()))
    assert 1 <= pages <= 12
