# SPDX-License-Identifier: Apache-2.0
"""The report and the documentation with a keyboard, a screen reader, a phone, on paper and in dark mode."""

from __future__ import annotations

import base64
import csv
import io
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from devtools import CHROMIUM, Page, browser

from factories.fleet_records import records_by_host
from factories.host_records import Machine
from firsttouch import paths
from firsttouch.judge import samples_table
from firsttouch.judge.judging import Undescribed, judged
from firsttouch.report.fleet import comparison, fleet_pages
from firsttouch.report.model import Problem
from firsttouch.report.pages import build

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH (Debian: apt-get install chromium)"),
]

#: The visible elements at which Tab stops.
STOPS = """[...document.querySelectorAll('a[href], summary, [tabindex], button, input')]
    .filter(e => e.tabIndex >= 0 && (e.checkVisibility() || e.classList.contains('skip')))"""


def _report(folder: Path) -> Path:
    machine = Machine(4, 4)
    records = machine.everything()
    wrong = replace(records[100], status="invalid", reason="9 % of the pages lie elsewhere")
    problems = [Problem("counters", "skipped", "perf_event_paranoid is 3", machine.host, check="counters")]
    build([*records, wrong], folder, topology_xml=machine.xml(), problems=problems)
    return folder / "index.html"


def _site(folder: Path) -> Path:
    argv = [sys.executable, "-m", "sphinx", "-qW", "-b", "html", paths.ROOT / "docs", folder]
    subprocess.run(argv, check=True, timeout=120)
    return folder / "explanation" / "figures.html"


def _simulated(day: str, slower: float) -> Any:
    """Return the samples of 60 simulated hosts."""
    by_host = records_by_host(day=day, slower=slower)
    return samples_table.of_records([record for records in by_host.values() for record in records])


def _fleet(folder: Path) -> Path:
    missing = {"n099": ["its job never started"]}
    fleet_pages.build([judged(_simulated("2026-01-01", 0.0), Undescribed("s"), missing=missing)], folder)
    return folder / "index.html"


def _comparison(folder: Path) -> Path:
    compared = comparison.compare(_simulated("2026-01-01", 0.0), _simulated("2026-02-01", 0.06))
    comparison.build(compared, folder, names=("before", "after"))
    return folder / "index.html"


PAGES = [_report, _site, _fleet, _comparison]


@pytest.fixture(scope="module", params=PAGES, ids=[page.__name__.strip("_") for page in PAGES])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The page, loaded in a separate browser."""
    file = request.param(tmp_path_factory.mktemp("page"))
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        opened.load(file)
        yield opened


@pytest.fixture(autouse=True)
def _as_it_was(page: Page) -> None:
    page.media()
    page.width(1280)


def named(page: Page, *roles: str) -> list[str]:
    """Return the names of all nodes with one of these roles, as a screen reader reads them."""
    return [n.get("name", {}).get("value", "") for n in page.tree() if n["role"]["value"] in roles]


def test_nothing_is_fetched_or_said(page: Page) -> None:
    kinds = Counter(e["method"] for e in page.events)
    fetched = [e["params"]["request"]["url"] for e in page.events if e["method"] == "Network.requestWillBeSent"]
    assert set(kinds) <= {"Network.requestWillBeSent"}
    assert all(url.startswith(("file:", "data:")) for url in fetched)
    scripts = (".js",) if "/_static/" in "".join(fetched) else ()  # the manual's search and colour switch
    files = [url.partition("?")[0] for url in fetched if not url.startswith("data:")]
    assert [url for url in files if not url.endswith((".css", ".html", *scripts))] == []


def test_landmarks_have_names_that_differ(page: Page) -> None:
    tree = [n["role"]["value"] for n in page.tree()]
    assert tree.count("main") == 1
    assert tree.count("banner") == 1
    assert tree.count("contentinfo") == 1
    navigations = named(page, "navigation")
    assert navigations
    assert all(navigations)
    assert len(set(navigations)) == len(navigations)
    assert all(named(page, "region"))


def test_tables_have_headers_and_regions_that_scroll_have_names(page: Page) -> None:
    lacking = page.ask(
        "[...document.querySelectorAll('table')].filter(t => !t.tHead || !t.tHead.querySelector('th')).length"
    )
    assert lacking == 0
    unnamed = page.ask("[...document.querySelectorAll('[role=region]')].filter(e => !e.ariaLabel).length")
    assert unnamed == 0


def test_drawings_say_what_they_show(page: Page) -> None:
    # Let the browser lay out the page below the window, as for a screen reader; the protocol's tree would omit it.
    everywhere = "* { content-visibility: visible !important }"
    page.ask(f"document.head.insertAdjacentHTML('beforeend', '<style>{everywhere}</style>')")
    drawn = page.ask("document.querySelectorAll(':is(main, [role=main]) svg:not([aria-hidden=true])').length")
    names = [n for n in named(page, "image", "img", "SvgRoot", "graphics-document") if n]
    signs = page.ask("[...document.querySelectorAll('b[role=img]')].map(e => e.ariaLabel)")
    assert len(names) >= drawn + len(signs)
    # A sign in a cell of a map has one word as its name.
    assert set(signs) <= {"fail", "invalid", "suspect", "undecided", "not measured"}
    assert all(len(name) > 8 for name in names if name not in signs)
    bare = (
        "[...document.querySelectorAll('svg[aria-hidden=true]')]"
        ".filter(e => !e.closest('tr, button, label, a')).length"
    )
    assert page.ask(bare) == 0  # hidden drawings have the same in words beside them


def test_columns_of_a_map_are_told_by_their_metric(page: Page) -> None:
    numbers = page.ask("document.querySelectorAll('.heat thead abbr').length")
    headers = [name for name in named(page, "columnheader") if "bank=" in name]
    assert len(headers) == numbers


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_letters_are_readable_on_every_colour_of_a_map(page: Page, scheme: str) -> None:
    page.media(prefers_color_scheme=scheme)
    page.ask(
        "document.body.insertAdjacentHTML('beforeend', '<table class=\"heat\" id=\"tones\"><tbody><tr>' + "
        "['b', 'g'].flatMap(t => [1, 2, 3, 4, 5].map(n => `<td class=\"${t}${n}\">1</td>`)).join('') + "
        "'</tr></tbody></table>')"
    )
    cells = page.ask(
        "[...document.querySelectorAll('#tones td')].map(e => (s => [s.backgroundColor, s.color])"
        "(getComputedStyle(e)))"
    )
    under: Any = page.ask("getComputedStyle(document.body).backgroundColor")
    page.ask("document.getElementById('tones').remove()")
    assert len(cells) == 10
    if page.ask("document.querySelectorAll('.heat').length") == 0:
        return  # its style sheet has no rules for maps
    for background, ink in cells:
        low, high = sorted((luminance(over(background, under)), luminance(ink)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (background, ink)


def over(colour: str, paper: str) -> str:
    """Return a colour, perhaps transparent, as it appears on *paper*."""
    *parts, alpha = [float(p) for p in re.findall(r"[\d.]+", colour)] + (
        [1.0] if colour.startswith("rgb(") else []
    )
    base = [float(p) for p in re.findall(r"[\d.]+", paper)][:3]
    mixed = (round(alpha * a + (1 - alpha) * b) for a, b in zip(parts[:3], base, strict=True))
    return f"rgb({', '.join(map(str, mixed))})"


def test_links_and_buttons_have_names(page: Page) -> None:
    assert all(named(page, "link", "button", "DisclosureTriangle"))


def test_tab_goes_through_all_of_it_in_its_order(page: Page) -> None:
    wanted = page.ask(f"{STOPS}.length")
    page.ask("document.activeElement.blur(); getSelection().removeAllRanges(); scrollTo(0, 0)")
    seen = []
    for _ in range(wanted):
        page.press("Tab", 9)
        seen.append(page.ask(f"{STOPS}.indexOf(document.activeElement)"))
    assert seen == list(range(wanted))
    assert page.ask("document.activeElement.getBoundingClientRect().height") > 0


def test_focus_is_seen_and_the_first_stop_skips_to_the_content(page: Page) -> None:
    page.reload()
    page.press("Tab", 9)
    style = page.ask(
        "(s => [s.outlineStyle, parseFloat(s.outlineWidth)])(getComputedStyle(document.activeElement))"
    )
    assert style[0] != "none"
    assert style[1] >= 2
    box = page.ask("(r => [r.left, r.top])(document.activeElement.getBoundingClientRect())")
    assert min(box) >= 0
    page.press("Enter", 13)
    assert page.ask("location.hash") == "#content"


def test_a_table_is_sorted_filtered_and_exported(page: Page) -> None:
    if page.ask("document.querySelector('link[href*=_static]') !== null"):
        return  # the manual has no tables to work with
    page.reload()
    table = "[...document.querySelectorAll('table')].find(t => t.querySelector('.sort'))"
    column = f"[...({table}).tBodies[0].rows].filter(r => !r.hidden).map(r => r.cells[0].textContent.trim())"
    before = page.ask(column)
    assert len(before) > 5
    press = f"({table}).querySelector('.sort').click()"
    page.ask(press)
    up = page.ask(column)
    page.ask(press)
    assert up != page.ask(column)
    assert sorted(up) == sorted(before)
    first = up[0].split()[-1]
    tools = f"(({table}).closest('.scroll') || {table}).previousElementSibling"
    page.ask(
        f"(i => {{ i.value = {first!r}; i.dispatchEvent(new Event('input')) }})({tools}.querySelector('input'))"
    )
    left = page.ask(column)
    assert 0 < len(left) < len(before)
    page.ask(
        "(make => { URL.createObjectURL = blob => { window.saved = blob; return make.call(URL, blob) } })"
        "(URL.createObjectURL)"
    )
    page.ask(f"{tools}.querySelectorAll('button')[1].click()")
    read: Any = page.call(
        "Runtime.evaluate", expression="window.saved.text()", awaitPromise=True, returnByValue=True
    )
    rows = list(csv.reader(io.StringIO(read["result"]["value"])))
    assert [row[0] for row in rows[1:]] == [" ".join(text.split()) for text in left]
    page.reload()


def test_a_phone_scrolls_down_only_and_letters_are_large_enough(page: Page) -> None:
    page.width(360, phone=True)
    assert page.ask("document.scrollingElement.scrollWidth") <= 360
    smallest = page.ask(
        "Math.min(...[...document.querySelectorAll('p, li')].map(e => parseFloat(getComputedStyle(e).fontSize)))"
    )
    assert smallest >= 13


def luminance(colour: str) -> float:
    parts = [int(p) / 255 for p in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def colours(page: Page) -> tuple[float, float]:
    """Return the luminance of the paper and of the ink."""
    pair: Any = page.ask("(s => [s.backgroundColor, s.color])(getComputedStyle(document.body))")
    return luminance(pair[0]), luminance(pair[1])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_scheme_is_the_readers(page: Page, scheme: str) -> None:
    page.media(prefers_color_scheme=scheme)
    paper, ink = colours(page)
    low, high = sorted((paper, ink))
    assert (paper < ink) == (scheme == "dark")
    assert (high + 0.05) / (low + 0.05) > 7


def test_paper_is_white_without_what_is_for_the_screen(page: Page) -> None:
    page.media("print", prefers_color_scheme="dark")
    page.width(718)  # A4 less its margins
    paper, ink = colours(page)
    assert (paper, ink) == (1.0, 0.0)
    assert page.ask("[...document.querySelectorAll('nav')].filter(e => e.checkVisibility()).length") == 0
    assert page.ask("document.scrollingElement.scrollWidth") <= 718
    # Closed sections cannot be opened on paper, so a guideline's alternatives are printed.
    hidden = (
        "[...document.querySelectorAll('#guidelines ~ details table')].filter(e => !e.checkVisibility()).length"
    )
    assert page.ask(hidden) == 0
    printed = base64.b64decode(page.call("Page.printToPDF", printBackground=False)["data"])
    assert printed.startswith(b"%PDF")
    assert len(printed) > 20_000
