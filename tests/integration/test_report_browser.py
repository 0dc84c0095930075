# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser: nothing on its console, nothing requested, both colour schemes, any width."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import pytest

from firsttouch import cli
from firsttouch.report.model import Problem
from firsttouch.report.pages import build

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH (Debian: apt-get install chromium)"),
]


def machines() -> ModuleType:
    """Load the made-up hosts of the unit tests, whichever of the test folders are collected."""
    path = Path(__file__).parents[1] / "unit" / "test_report_machines.py"
    spec = importlib.util.spec_from_file_location("report_machines", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Site:
    """A web server on this host for one folder; as the browser's proxy it refuses every other host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

        class Handler(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

        handler = functools.partial(Handler, directory=str(folder))
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/index.html"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    folder = tmp_path / "site"
    folder.mkdir()
    site = Site(folder)
    yield site
    site.server.shutdown()
    site.server.server_close()


@dataclass(frozen=True)
class Visit:
    """What came of loading a page: its document, what the console said, and what the page requested."""

    document: str
    console: list[str]
    requests: list[str]


def browse(site: Site, profile: Path, address: str, *options: str) -> Visit:
    """Load a page in a browser with an empty profile."""
    assert CHROMIUM is not None
    proxy = f"127.0.0.1:{site.server.server_address[1]}"
    argv = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--proxy-server={proxy}",
        f"--user-data-dir={profile}",
        "--enable-logging=stderr",
        f"--log-net-log={profile.with_suffix('.netlog')}",
        "--dump-dom",
        *options,
        address,
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
    events = json.loads(profile.with_suffix(".netlog").read_text(encoding="utf-8"))["events"]
    started = [e["params"] for e in events if {"url", "initiator"} <= e.get("params", {}).keys()]
    # The browser has requests of its own (its clock, its updates); a page's carry the page's origin.
    origin = address.removesuffix("/index.html").removesuffix("/frame.html")
    requests = [p["url"] for p in started if p["initiator"] == origin]
    return Visit(done.stdout, re.findall(r"CONSOLE.*", done.stderr), requests)


@pytest.fixture
def report(site: Site) -> Site:
    machine = machines().Machine(8, 8)
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


def scroll_width(site: Site, profile: Path, width: int) -> int:
    """Return how wide the page is (px) in a window of that width."""
    # The page runs no script, so a frame around it measures it; the frame is as wide as a phone or a desk.
    frame = (
        f'<!DOCTYPE html><iframe id="f" src="index.html" style="width:{width}px;height:800px"></iframe>'
        "<script>onload = () => { document.title = document.getElementById('f')"
        ".contentDocument.documentElement.scrollWidth }</script>"
    )
    (site.folder / "frame.html").write_text(frame)
    address = site.address.replace("index", "frame")
    visit = browse(site, profile, address, "--window-size=1400,900")
    found = re.search(r"<title>(\d+)</title>", visit.document)
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_window(report: Site, tmp_path: Path, width: int) -> None:
    assert scroll_width(report, tmp_path / "profile", width) <= width


def assert_painted(site: Site, folder: Path, scheme: str) -> None:
    """Look at the pixels of the page in that colour scheme."""
    from PIL import Image  # noqa: PLC0415 - comes with matplotlib; only this looks at pixels

    shot = folder / f"{scheme}.png"
    # Blink's setting: 0 is dark, 1 is light.
    setting = f"--blink-settings=preferredColorScheme={int(scheme == 'light')}"
    browse(site, folder / "profile", site.address, setting, f"--screenshot={shot}", "--window-size=1280,1600")
    with Image.open(shot) as image:
        pixels = image.convert("L")
        corner = pixels.getpixel((2, 2))
        darkest, brightest = pixels.getextrema()
    assert corner == (255 if scheme == "light" else 23)
    assert darkest < 60
    assert brightest > 200


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_colour_schemes_paint_the_page(report: Site, tmp_path: Path, scheme: str) -> None:
    assert_painted(report, tmp_path, scheme)
