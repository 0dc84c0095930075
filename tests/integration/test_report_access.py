# SPDX-License-Identifier: Apache-2.0
"""The report and the documentation with a keyboard, a screen reader, a phone, on paper and in dark mode."""

from __future__ import annotations

import base64
import csv
import io
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from devtools import CHROMIUM, Page, browser
from msgspec.structs import replace

from factories import http_server
from factories.fleet_records import records_by_host
from factories.host_records import Machine
from firsttouch.judge.comparison import compare
from firsttouch.judge.judging import judged
from firsttouch.records import samples_table
from firsttouch.records.schema import Record
from firsttouch.report.figures import svg
from firsttouch.report.fleet import comparison, fleet_pages
from firsttouch.report.model import Problem
from firsttouch.report.pages import build
from firsttouch.systems.definition import Undescribed

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH (Debian: apt-get install chromium)")
]

#: The visible elements at which Tab stops.
STOPS = """[...document.querySelectorAll('a[href], summary, [tabindex], button, input')]
    .filter(e => e.tabIndex >= 0 && (e.checkVisibility() || e.classList.contains('skip')))"""


def _report(folder: Path) -> None:
    machine = Machine(8, 8)
    records = machine.everything()
    wrong = replace(records[100], status="invalid", reason="9 % of the pages lie elsewhere")
    problems = [Problem("counters", "skipped", "perf_event_paranoid is 3", "counters", machine.host)]
    build([*records, wrong], folder, topology_xml=machine.xml(), problems=problems)


def _simulated(day: str, slower: float) -> list[Record]:
    """Return the records of 20 simulated hosts."""
    by_host = records_by_host(hosts=20, repetitions=4, day=day, slower=slower)
    return [record for host_records in by_host.values() for record in host_records]


def _fleet(folder: Path) -> None:
    records = [*_simulated("2026-01-01", 0.0), *_simulated("2026-02-01", 0.06)]
    missing = {"n099": ["its job never started"]}
    fleet_pages.build([judged(samples_table.of_records(records), Undescribed("s"), missing=missing)], folder)


def _comparison(folder: Path) -> None:
    before, after = _simulated("2026-01-01", 0.0), _simulated("2026-02-01", 0.06)
    compared = compare(samples_table.of_records(before), samples_table.of_records(after))
    comparison.build(compared, folder, names=("before", "after"))


BUILDERS = {"report": _report, "fleet": _fleet, "comparison": _comparison}


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The one page of the one browser of this module."""
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module", params=["site", *BUILDERS])
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of the page; the site is the manual."""
    return request.param


@pytest.fixture(scope="module")
def file(kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's file."""
    if kind == "site":
        return request.getfixturevalue("manual") / "explanation" / "figures.html"
    folder = tmp_path_factory.mktemp("page")
    BUILDERS[kind](folder)
    return folder / "index.html"


@pytest.fixture(scope="module")
def page(file: Path, chromium: Page) -> Page:
    """The page, loaded."""
    chromium.load(file.as_uri())
    return chromium


@pytest.fixture(scope="module")
def names(page: Page) -> dict[str, list[str]]:
    """The names of the nodes of each role, as a screen reader reads them."""
    # Let the browser lay out the page below the window, as for a screen reader; the protocol's tree would omit it.
    everywhere = "* { content-visibility: visible !important }"
    page.ask(f"document.head.insertAdjacentHTML('beforeend', '<style id=\"laid-out\">{everywhere}</style>')")
    by_role: dict[str, list[str]] = {}
    for node in page.tree():
        by_role.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", ""))
    page.ask("document.getElementById('laid-out').remove()")
    return by_role


@pytest.fixture(autouse=True)
def _as_it_was(chromium: Page) -> None:
    chromium.media()
    chromium.width(1280)


def named(names: dict[str, list[str]], *roles: str) -> list[str]:
    """Return the names of all nodes with one of these roles."""
    return [name for role in roles for name in names.get(role, ())]


def test_nothing_is_fetched_or_said(page: Page, kind: str) -> None:
    assert page.messages() == []
    assert all(url.startswith("file:") for url in page.requests())
    scripts = (".js",) if kind == "site" else ()  # the manual's search and colour switch
    files = [url.partition("?")[0] for url in page.requests()]
    assert [url for url in files if not url.endswith((".css", ".html", *scripts))] == []


def test_every_figure_is_there(page: Page, kind: str) -> None:
    if kind == "report":
        assert page.ask("document.querySelectorAll('figure').length") == 6
        assert page.ask("document.body.textContent.includes('perf_event_paranoid is 3')")
    # The pages of fleets have tables only.
    assert (page.ask("document.querySelectorAll('svg').length") > 0) == (kind not in {"comparison", "fleet"})


def test_landmarks_have_names_that_differ(names: dict[str, list[str]]) -> None:
    for landmark in ("main", "banner", "contentinfo"):
        assert len(names[landmark]) == 1
    navigations = names["navigation"]
    assert navigations
    assert all(navigations)
    assert len(set(navigations)) == len(navigations)
    assert all(named(names, "region"))


def test_tables_have_headers_and_regions_that_scroll_have_names(page: Page) -> None:
    lacking = page.ask(
        "[...document.querySelectorAll('table')].filter(t => !t.tHead || !t.tHead.querySelector('th')).length"
    )
    assert lacking == 0
    unnamed = page.ask("[...document.querySelectorAll('[role=region]')].filter(e => !e.ariaLabel).length")
    assert unnamed == 0


def test_drawings_say_what_they_show(page: Page, names: dict[str, list[str]]) -> None:
    drawn = page.ask("document.querySelectorAll(':is(main, [role=main]) svg:not([aria-hidden=true])').length")
    images = [n for n in named(names, "image", "img", "SvgRoot", "graphics-document") if n]
    signs = page.ask("[...document.querySelectorAll('b[role=img]')].map(e => e.ariaLabel)")
    assert len(images) >= drawn + len(signs)
    # A sign in a cell of a map has one word as its name.
    assert set(signs) <= {"fail", "invalid", "suspect", "undecided", "not measured"}
    assert all(len(name) > 8 for name in images if name not in signs)
    bare = (
        "[...document.querySelectorAll('svg[aria-hidden=true]')]"
        ".filter(e => !e.closest('tr, button, label, a')).length"
    )
    assert page.ask(bare) == 0  # hidden drawings have the same in words next to them


#: Each text of a drawing: the text, its font size and weight, its length, and its edges in px of the drawing.
TEXTS = """[...document.querySelectorAll('svg[viewBox]')].map(svg => [
    svg.viewBox.baseVal.width, svg.viewBox.baseVal.height,
    [...svg.querySelectorAll('text')].filter(e => e.checkVisibility()).map(e => (b => [
        [...e.childNodes].filter(n => n.nodeType === 3).map(n => n.data).join(''),
        parseFloat(getComputedStyle(e).fontSize), parseFloat(getComputedStyle(e).fontWeight),
        e.getComputedTextLength(), b.x, b.y, b.x + b.width, b.y + b.height])(e.getBBox()))])"""


def misplaced(page: Page) -> list[str]:
    """Return the texts that leave their drawing, overlap, or are longer than the program takes them to be."""
    wrong = []
    for width, height, texts in page.ask(TEXTS):
        for shown, size, weight, length, left, _, right, bottom in texts:
            # The box of a text has room above and below its letters.
            if left < -1 or right > width + 1 or bottom > height + 0.3 * size:
                wrong.append(shown)
            if length > svg.width(shown, size * (1.15 if weight >= 600 else 1)) + 1:
                wrong.append(f"{shown} is {length} px")
        for (shown, size, _, _, *a), (other, _, _, _, *b) in combinations(texts, 2):
            across, down = (min(a[i + 2], b[i + 2]) - max(a[i], b[i]) for i in (0, 1))
            if across > 1 and down > 0.35 * size:
                wrong.append(f"{shown} | {other}")
    return wrong


def test_texts_are_inside_their_drawing_and_apart(page: Page, kind: str) -> None:
    # The pages of fleets have no drawings.
    assert any(texts for _, _, texts in page.ask(TEXTS)) == (kind not in {"comparison", "fleet"})
    assert misplaced(page) == []


def test_columns_of_a_map_are_told_by_their_metric(page: Page, names: dict[str, list[str]]) -> None:
    numbers = page.ask("document.querySelectorAll('.heat thead abbr').length")
    headers = [name for name in named(names, "columnheader") if "to bank" in name]
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


def test_links_and_buttons_have_names(names: dict[str, list[str]]) -> None:
    assert all(named(names, "link", "button", "DisclosureTriangle"))


def test_tab_goes_through_all_of_it_in_its_order(page: Page) -> None:
    page.ask("document.activeElement.blur(); getSelection().removeAllRanges(); scrollTo(0, 0)")
    wanted = page.ask(
        f"window.stops = {STOPS}, window.seen = [],"
        " document.addEventListener('focusin', event => window.seen.push(window.stops.indexOf(event.target))),"
        " window.stops.length"
    )
    for _ in range(wanted):
        page.press("Tab", 9)
    assert page.ask("window.seen") == list(range(wanted))
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


def test_a_table_is_sorted_filtered_and_exported(page: Page, kind: str) -> None:
    if kind == "site":
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
    first = up[0]
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


def test_every_link_leads_somewhere_and_a_keyboard_reaches_what_scrolls(page: Page, kind: str) -> None:
    if kind not in {"fleet", "comparison"}:
        return  # other tests check the ids of the other pages
    dead = (
        "[...document.querySelectorAll('a[href^=\"#\"]')]"
        ".filter(a => !document.getElementById(a.hash.slice(1))).length"
    )
    assert page.ask(dead) == 0
    unnamed = (
        "[...document.querySelectorAll('svg:not([aria-hidden=true]), [role=region], table')]"
        ".filter(e => !(e.getAttribute('aria-label') || e.getAttribute('aria-labelledby')"
        " || e.querySelector('caption'))).length"
    )
    assert page.ask(unnamed) == 0
    page.width(360)
    # An element wider than its box, or a link in it, must be focusable, so that a keyboard can scroll it.
    stuck = (
        "[...document.querySelectorAll('*')].filter(e => e.scrollWidth > e.clientWidth + 1"
        " && ['auto', 'scroll'].includes(getComputedStyle(e).overflowX)"
        " && e.tabIndex < 0 && !e.querySelector('a[href]')).length"
    )
    assert page.ask(stuck) == 0


def test_nothing_is_wider_than_the_window(page: Page, kind: str) -> None:
    for width in (1280, 360):
        page.width(width)
        assert page.ask("document.scrollingElement.scrollWidth") <= width


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


def brightness(page: Page) -> list[int]:
    """Return the brightness (0 to 255) of a corner of the window, of its darkest and its brightest pixel."""
    screenshot = page.call("Page.captureScreenshot")["data"]
    # The weights of ITU-R BT.601.
    pixels: Any = page.ask(f"""(async () => {{
        const bytes = Uint8Array.from(atob("{screenshot}"), c => c.charCodeAt(0));
        const image = await createImageBitmap(new Blob([bytes], {{type: "image/png"}}));
        const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
        context.drawImage(image, 0, 0);
        const data = context.getImageData(0, 0, image.width, image.height).data;
        const grey = i => Math.round(0.299 * data[i] + 0.587 * data[i + 1] + 0.114 * data[i + 2]);
        let [low, high] = [255, 0];
        for (let i = 0; i < data.length; i += 4) {{
            low = Math.min(low, grey(i)); high = Math.max(high, grey(i));
        }}
        return [grey(4 * (2 * image.width + 2)), low, high];
    }})()""")
    return pixels


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_scheme_is_the_readers(page: Page, scheme: str, kind: str) -> None:
    page.media(prefers_color_scheme=scheme)
    paper, ink = colours(page)
    low, high = sorted((paper, ink))
    assert (paper < ink) == (scheme == "dark")
    assert (high + 0.05) / (low + 0.05) > 7
    if kind == "site":
        return  # its theme has other colours
    page.ask("scrollTo(0, 0)")
    corner, darkest, brightest = brightness(page)
    assert corner == (255 if scheme == "light" else 23)
    assert darkest < 60
    assert brightest > 200


def test_paper_is_white_without_what_is_for_the_screen(page: Page, kind: str) -> None:
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
    if kind in {"fleet", "comparison"}:
        assert 1 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 12


def test_a_web_server_is_asked_for_the_page_only(page: Page, file: Path, kind: str) -> None:
    if kind == "site":
        return  # other files of the manual are style sheets and scripts
    with http_server.folder(file.parent) as address:
        page.load(f"{address}/index.html")
        assert page.messages() == []
        assert page.requests() == [f"{address}/index.html"]


def test_the_manual_opens_and_is_searched_from_the_disk_without_a_word_on_the_console(
    manual: Path, chromium: Page
) -> None:
    link = "document.querySelector('#search-results a[href*=\"explanation/methodology.html\"]') !== null"
    searched = (
        f"new Promise(done => {{ const check = () => {link} && done(true); check();"
        " new MutationObserver(check).observe(document, { childList: true, subtree: true }) })"
    )
    for name, wanted in (
        ("index.html", "document.querySelector('h1') !== null"),
        ("search.html?q=interleave", searched),
    ):
        chromium.load(f"{manual.as_uri()}/{name}")
        assert chromium.ask(wanted)
        assert chromium.messages() == []
        assert [url for url in chromium.requests() if not url.startswith(manual.as_uri())] == []


def test_the_papers_page(papers: Path, chromium: Page) -> None:
    with http_server.folder(papers) as address:
        chromium.load(f"{address}/index.html")
    assert chromium.messages() == []
    assert chromium.requests() == [f"{address}/index.html"]
    assert chromium.ask("document.querySelectorAll('figure').length") == 15
    assert misplaced(chromium) == []
    chromium.width(360)
    assert chromium.ask("document.scrollingElement.scrollWidth") <= 360
