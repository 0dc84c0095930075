# SPDX-License-Identifier: Apache-2.0
"""The documentation site: it builds without a warning, and opens from the disk without a network."""

from __future__ import annotations

import functools
import http.server
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from firsttouch import paths

pytestmark = pytest.mark.integration

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
#: What makes a browser fetch something.
FETCHES = {
    ("script", "src"),
    ("img", "src"),
    ("link", "href"),
    ("source", "src"),
    ("iframe", "src"),
    ("use", "href"),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("docs") / "site"
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", out]
    done = subprocess.run(argv, cwd=paths.ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return out


class Page(HTMLParser):
    """Collects what a page fetches, its links, its ids, and its formulas."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.tags: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.tags.append(tag)
        self.fetched += [known[name] or "" for t, name in FETCHES if t == tag and name in known]
        if tag == "a" and known.get("href"):
            self.links.append(known["href"] or "")
        if known.get("id"):
            self.ids.add(known["id"] or "")


def test_every_page_is_there_and_fetches_its_own_files_only(site: Path) -> None:
    pages = {file.name: Page(file) for file in site.glob("*.html")}
    assert {"index.html", "methodology.html", "figures.html", "troubleshooting.html", "commands.html"} <= set(
        pages
    )
    for name, page in pages.items():
        outside = [f for f in page.fetched if not f.startswith(("#", "data:,")) and not (site / f).is_file()]
        assert outside == [], name
        assert "script" not in page.tags
    for css in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?https?:|@import", css.read_text(encoding="utf-8")), css


def test_links_lead_somewhere(site: Path) -> None:
    pages = {file.name: Page(file) for file in site.glob("*.html")}
    for name, page in pages.items():
        for link in page.links:
            if re.match(r"https?:|mailto:", link):
                continue
            target, _, anchor = link.partition("#")
            assert (target or name) in pages, f"{name}: {link}"
            assert not anchor or anchor in pages[target or name].ids, f"{name}: {link}"


def test_figures_are_drawn_and_formulas_need_no_script(site: Path) -> None:
    figures = (site / "figures.html").read_text(encoding="utf-8")
    assert figures.count('<figure class="drawn">') == 8
    assert figures.count("<svg") >= 8
    assert "<!-- figure" not in figures
    fleet = re.findall(r'<div class="drawn fleet">', figures)
    assert len(fleet) == 4
    # The simulated fleet's faults are found, and nothing else is.
    (heat,) = re.findall(r'<table class="heat">.*?</table>', figures)
    failing = re.findall(r'<th scope="row" class="word-(?:fail|invalid|suspect)">(\w+)</th>', heat)
    assert sorted(failing) == ["cn05", "cn07", "cn13", "cn18", "cn21"]
    assert "Each point is a pass" in figures
    assert re.search(r"latency random_latency</th>.{0,80}worse in all 4 cases", figures)
    assert re.search(r"cn09 \(-1\d\.\d\d", figures)
    assert "simulated" in figures
    methodology = Page(site / "methodology.html")
    assert methodology.tags.count("math") == 5
    assert "$$" not in (site / "methodology.html").read_text(encoding="utf-8")
    assert "--series-1: #" in (site / "report.css").read_text(encoding="utf-8")


def test_the_command_reference_is_what_help_says(site: Path, firsttouch) -> None:
    shown = (site / "commands.html").read_text(encoding="utf-8")
    for command in (("report",), ("campaign", "run"), ("data", "get")):
        said = firsttouch(*command, "--help", COLUMNS="100").stdout
        lines = [line for line in said.splitlines() if re.fullmatch(r"[\w ,.:;-]+", line)]
        assert len(lines) > 5
        assert [line for line in lines if line not in shown] == []


@pytest.fixture
def proxy() -> Iterator[tuple[str, list[str]]]:
    """A proxy that refuses everything, and what it was asked for."""
    asked: list[str] = []

    class Refuse(http.server.BaseHTTPRequestHandler):
        def _refuse(self) -> None:
            asked.append(self.path)
            self.send_error(403)

        do_GET = do_HEAD = do_POST = do_CONNECT = _refuse  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Refuse))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}", asked
    server.shutdown()
    server.server_close()


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH (Debian: apt-get install chromium)")
@pytest.mark.parametrize("page", ["index.html", "figures.html"])
def test_it_opens_from_the_disk_without_a_word_on_the_console(
    site: Path, tmp_path: Path, proxy: tuple[str, list[str]], page: str
) -> None:
    address, asked = proxy
    argv = [
        str(CHROMIUM),
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        f"--proxy-server={address}",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--enable-logging=stderr",
        "--dump-dom",
        (site / page).as_uri(),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
    assert re.findall(r"CONSOLE.*", done.stderr) == []
    assert "<h1" in done.stdout
    # The browser may ask for things of its own; never for what a page of documentation would fetch.
    assert [a for a in asked if re.search(r"font|cdn|\.js|\.css|analytics|github", a)] == []
