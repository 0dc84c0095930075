# SPDX-License-Identifier: Apache-2.0
"""The page of a fleet in a real browser, by the same means as the page of a host."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from firsttouch.judge import samples_table
from firsttouch.judge.judging import Undescribed, judged
from firsttouch.report.fleet import comparison, fleet_pages


def loaded(name: str, file: Path) -> ModuleType:
    """Load a module of a test folder, whichever of the folders are collected."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


HERE = Path(__file__).parent
browser = loaded("test_report_browser", HERE / "test_report_browser.py")
pytestmark = browser.pytestmark
PAGES = ("fleet", "comparison")


def records(day: str, slower: float) -> list[object]:
    """Return the records of the unit tests' 60 hosts."""
    sys.path.insert(0, str(HERE.parent / "unit"))
    try:
        unit = loaded("test_report_fleet", HERE.parent / "unit" / "test_report_fleet.py")
    finally:
        sys.path.pop(0)
    return [r for mine in unit.fleet(day=day, slower=slower).values() for r in mine]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {name: tmp_path_factory.mktemp(name) for name in PAGES}
    before, after = records("2026-01-01", 0.0), records("2026-02-01", 0.06)
    fleet_pages.build([judged(samples_table.of_records([*before, *after]), Undescribed("s"))], made["fleet"])
    compared = comparison.compare(samples_table.of_records(before), samples_table.of_records(after))
    comparison.build(compared, made["comparison"], names=("before", "after"))
    return made


@pytest.fixture(params=PAGES)
def report(request: pytest.FixtureRequest, folders: dict[str, Path]) -> Iterator[object]:
    site = browser.Site(folders[request.param])
    yield site
    site.server.shutdown()
    site.server.server_close()


def test_the_page_loads_without_a_word_on_the_console_and_without_a_request(report, tmp_path: Path) -> None:
    visit = browser.browse(report, tmp_path / "profile", report.address)
    assert visit.console == []
    assert visit.requests == []
    assert "<svg" in visit.document
    from_file = browser.browse(report, tmp_path / "file", (report.folder / "index.html").as_uri())
    assert from_file.console == []


def measured(report, tmp_path: Path, width: int, script: str) -> str:
    """Return what a script finds in the page, which runs none itself: a frame of that width around it does."""
    frame = (
        f'<!DOCTYPE html><iframe id="f" src="index.html" style="width:{width}px;height:800px"></iframe>'
        f"<script>onload = () => {{ const d = document.getElementById('f').contentDocument;"
        f" document.title = {script} }}</script>"
    )
    (report.folder / "frame.html").write_text(frame)
    address = report.address.replace("index", "frame")
    visit = browser.browse(report, tmp_path / "profile", address, "--window-size=1400,900")
    found = re.search(r"<title>(.*?)</title>", visit.document)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_window(report, tmp_path: Path, width: int) -> None:
    assert int(measured(report, tmp_path, width, "d.documentElement.scrollWidth")) <= width


def test_a_keyboard_reaches_everything_that_scrolls_and_every_link_leads_somewhere(report, tmp_path: Path) -> None:
    # Whatever is wider than its box has to take the focus, or a keyboard cannot move it.
    stuck = (
        "[...d.querySelectorAll('*')].filter(e => e.scrollWidth > e.clientWidth + 1"
        " && ['auto', 'scroll'].includes(getComputedStyle(e).overflowX) && e.tabIndex < 0).length"
    )
    assert measured(report, tmp_path, 360, stuck) == "0"
    dead = "[...d.querySelectorAll('a[href^=\"#\"]')].filter(a => !d.getElementById(a.hash.slice(1))).length"
    assert measured(report, tmp_path / "links", 1280, dead) == "0"
    unnamed = (
        "[...d.querySelectorAll('svg:not([aria-hidden=true]), [role=region], table')]"
        ".filter(e => !(e.getAttribute('aria-label') || e.getAttribute('aria-labelledby')"
        " || e.querySelector('caption'))).length"
    )
    assert measured(report, tmp_path / "names", 1280, unnamed) == "0"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_colour_schemes_paint_the_page(report, tmp_path: Path, scheme: str) -> None:
    browser.assert_painted(report, tmp_path, scheme)


def test_on_paper_the_page_has_some_pages_and_not_hundreds(report, tmp_path: Path) -> None:
    printed = tmp_path / "page.pdf"
    browser.browse(report, tmp_path / "profile", report.address, f"--print-to-pdf={printed}")
    pages = len(re.findall(rb"/Type\s*/Page\b", printed.read_bytes()))
    assert 1 <= pages <= 12
