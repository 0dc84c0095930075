# SPDX-License-Identifier: Apache-2.0
"""The manual builds without a warning, and its pages fetch files of the site only."""

from __future__ import annotations

import functools
import html
import os
import re
from html.parser import HTMLParser
from pathlib import Path

from documented import ROOT

#: The benchmarks of the four aspects.
ASPECTS = ("topology", "latency", "bandwidth", "contention")
#: Elements and attributes that make a browser fetch a file.
FETCHES = {
    ("script", "src"),
    ("img", "src"),
    ("link", "href"),
    ("source", "src"),
    ("iframe", "src"),
    ("use", "href"),
}


@functools.cache
def pages(site: Path) -> dict[str, Page]:
    """Return the pages by their path below the site."""
    return {str(file.relative_to(site)): Page(file) for file in sorted(site.rglob("*.html"))}


class Page(HTMLParser):
    """Collects the files that a page fetches, its links, its ids and its tags."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.tags: list[str] = []
        #: Pages and indexes that are linked for the browser's menus; the browser does not fetch them.
        self.neighbours: set[str] = set()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append(tag)
        self.fetched += [attributes[name] or "" for t, name in FETCHES if t == tag and name in attributes]
        if tag == "link" and attributes.get("rel") in {"index", "search", "next", "prev"}:
            self.neighbours.add(attributes["href"] or "")
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"] or "")
        if attributes.get("id"):
            self.ids.add(attributes["id"] or "")


def below(site: Path, page: str, target: str) -> str:
    """Return the path below the site that a link or an address in *page* leads to."""
    return os.path.relpath((site / page).parent / target.partition("?")[0], site)


def test_every_page_is_there_and_fetches_its_own_files_only(manual: Path) -> None:
    assert {
        *("index.html", "explanation/methodology.html", "explanation/figures.html"),
        *("howto/troubleshooting.html", "reference/commands.html"),
    } <= set(pages(manual))
    for name, page in pages(manual).items():
        fetched = [f for f in page.fetched if not f.startswith(("#", "data:,")) and f not in page.neighbours]
        assert [f for f in fetched if not (manual / below(manual, name, f)).is_file()] == [], name
    for css in manual.rglob("*.css"):
        assert not re.search(r"url\(['\"]?https?:|@import", css.read_text(encoding="utf-8")), css


def test_links_lead_somewhere(manual: Path) -> None:
    by_name = pages(manual)
    for name, page in by_name.items():
        for link in page.links:
            if re.match(r"https?:|mailto:", link):
                continue
            target, _, anchor = link.partition("#")
            file = below(manual, name, target) if target else name
            assert file in by_name, f"{name}: {link}"
            assert not anchor or anchor in by_name[file].ids, f"{name}: {link}"


def test_manual_pages_are_made_of_the_same_source(manual: Path) -> None:
    text = (manual / "man" / "man1" / "firsttouch.1").read_text(encoding="utf-8")
    assert all(f"firsttouch {command}" in text for command in ("report", "campaign run", "data get"))


def test_figures_are_drawn_and_formulas_need_no_script(manual: Path) -> None:
    figures = (manual / "explanation" / "figures.html").read_text(encoding="utf-8")
    source = Path(ROOT, "docs", "explanation", "figures.md").read_text(encoding="utf-8")
    drawn = len(re.findall(r"^<!-- figure (?!fleet )", source, re.MULTILINE))
    assert figures.count('<figure class="drawn">') == drawn > 5
    assert figures.count("<svg") >= drawn
    assert "<!-- figure" not in figures
    fleet = re.findall(r'<div class="drawn fleet">', figures)
    assert len(fleet) == 3
    # The page shows the faults of the simulated fleet, and no others.
    (heat,) = re.findall(r'<table class="heat[^"]*">.*?</table>', figures)
    bad = r'<th scope="row" class="word-(?:fail|invalid|suspect)">(?:<span[^>]*>. </span>)?(\w+)</th>'
    failing = re.findall(bad, heat)
    assert sorted(failing) == ["cn05", "cn07", "cn13", "cn18", "cn21"]
    assert re.search(r">random latency</th>.{0,80}worse in all 4 cases", figures)
    assert re.search(r"cn09 \(-1\d\.\d\s%", figures)
    assert "simulated" in figures
    formulas = {
        name: Page(manual / f"{name}.html").tags.count("math")
        for name in ("explanation/methodology", *(f"reference/benchmarks/{n}" for n in ASPECTS))
    }
    assert list(formulas.values()) == [4, 1, 0, 1, 2]
    assert [name for name in formulas if "$$" in (manual / f"{name}.html").read_text(encoding="utf-8")] == []
    assert "--series-1: #" in (manual / "_static" / "report.css").read_text(encoding="utf-8")


def test_the_command_reference_is_what_help_says(manual: Path, run_here) -> None:
    shown = html.unescape((manual / "reference" / "commands.html").read_text(encoding="utf-8"))
    for command in (("report",), ("campaign", "run"), ("data", "get")):
        help_text = run_here(*command, "--help", COLUMNS="100").stdout
        lines = [line for line in help_text.splitlines() if re.fullmatch(r"[\w ,.:;-]+", line)]
        assert len(lines) > 5
        assert [line for line in lines if line not in shown] == []
