# SPDX-License-Identifier: Apache-2.0
"""Pages of a local web server, loaded once by a headless Chromium; devtools.py drives a browser step by step."""

from __future__ import annotations

import functools
import http.server
import json
import re
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

from devtools import CHROMIUM


class Site:
    """A web server on this host for one folder. As the browser's proxy it refuses every other host."""

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


@dataclass(frozen=True)
class Visit:
    """The document of a loaded page, the messages on the console, and the URLs that the page requested."""

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
    # The browser itself requests its clock and its updates; requests of the page carry the page's origin.
    origin = address.removesuffix("/index.html").removesuffix("/frame.html")
    requests = [p["url"] for p in started if p["initiator"] == origin]
    return Visit(done.stdout, re.findall(r"CONSOLE.*", done.stderr), requests)


def evaluated(site: Site, profile: Path, width: int, script: str) -> str:
    """Return the value of JavaScript's *script* about the document *d*, in a window of *width* pixels.

    The page itself runs no script: a frame of that width around it evaluates the expression.
    """
    frame = (
        f'<!DOCTYPE html><iframe id="f" src="index.html" style="width:{width}px;height:800px"></iframe>'
        f"<script>onload = () => {{ const d = document.getElementById('f').contentDocument;"
        f" document.title = {script} }}</script>"
    )
    (site.folder / "frame.html").write_text(frame)
    visit = browse(site, profile, site.address.replace("index", "frame"), "--window-size=1400,900")
    title = re.search(r"<title>(.*?)</title>", visit.document)
    assert title is not None
    return title[1]


def scroll_width(site: Site, profile: Path, width: int) -> int:
    """Return the width of the page's content (px) in a window of *width* pixels."""
    return int(evaluated(site, profile, width, "d.documentElement.scrollWidth"))


def assert_painted(site: Site, folder: Path, scheme: str) -> None:
    """Check the pixels of the page in the colour *scheme*, light or dark."""
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
