# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser: no console messages, no requests, both colour schemes, any width."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from browsing import Site, assert_painted, browse, scroll_width
from devtools import CHROMIUM

from factories.host_records import Machine
from firsttouch import cli
from firsttouch.report.model import Problem
from firsttouch.report.pages import build

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH (Debian: apt-get install chromium)"),
]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    folder = tmp_path / "site"
    folder.mkdir()
    site = Site(folder)
    yield site
    site.server.shutdown()
    site.server.server_close()


@pytest.fixture
def report(site: Site) -> Site:
    machine = Machine(8, 8)
    records = machine.everything()
    wrong = replace(records[100], status="invalid", reason="9 % of the pages lie elsewhere")
    problems = [Problem("counters", "skipped", "perf_event_paranoid is 3", machine.host, check="counters")]
    build([*records, wrong], site.folder, topology_xml=machine.xml(), problems=problems)
    return site


def test_the_page_loads_without_a_word_on_the_console_and_without_a_request(report: Site, tmp_path: Path) -> None:
    visit = browse(report, tmp_path / "profile", report.address)
    assert visit.console == []
    assert visit.requests == []
    assert visit.document.count("<figure") == 8
    assert "perf_event_paranoid is 3" in visit.document


def test_the_page_loads_from_a_file(report: Site, tmp_path: Path) -> None:
    assert browse(report, tmp_path / "profile", (report.folder / "index.html").as_uri()).console == []


def test_the_papers_page_loads_without_a_word_on_the_console_and_without_a_request(
    site: Site, tmp_path: Path
) -> None:
    assert cli.main(["paper", "-o", str(site.folder)]) == 0
    visit = browse(site, tmp_path / "profile", site.address)
    assert visit.console == []
    assert visit.requests == []
    assert visit.document.count("<figure") == 15
    assert scroll_width(site, tmp_path / "phone", 360) <= 360


def test_the_harness_sees_what_it_looks_for(site: Site, tmp_path: Path) -> None:
    page = '<!DOCTYPE html><img src="x.png"><img src="http://cluster.example/y.png">'
    page += '<img src="https://cluster.example/z.png"><script>nothing()</script>'
    (site.folder / "index.html").write_text(page)
    visit = browse(site, tmp_path / "profile", site.address)
    own = site.address.replace("index.html", "x.png")
    assert {own, "http://cluster.example/y.png", "https://cluster.example/z.png"} <= set(visit.requests)
    assert any("nothing is not defined" in line for line in visit.console)


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_window(report: Site, tmp_path: Path, width: int) -> None:
    assert scroll_width(report, tmp_path / "profile", width) <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_colour_schemes_paint_the_page(report: Site, tmp_path: Path, scheme: str) -> None:
    assert_painted(report, tmp_path, scheme)
