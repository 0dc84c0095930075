# SPDX-License-Identifier: Apache-2.0
"""README.md and the manual agree with the source: messages, files and commands that they name exist."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import replay
from parsed_sources import source

import documented
from documented import ROOT
from firsttouch import cli
from firsttouch.advice.auto import BUDGET
from firsttouch.judge.judging import explain, judged
from firsttouch.records import samples_table
from firsttouch.systems.definition import Undescribed

DOCS = ROOT / "docs"
SOURCES = sorted((ROOT / "src").rglob("*.py"))
#: A heading that is a message: between backticks, or between two each if the message contains backticks.
_MESSAGE = re.compile(r"^### (?:`([^`]+)`|`` (.+?) ``)$", re.MULTILINE)
#: Paths that exist only after an example has run, or on other hosts.
_CREATED = (
    *("reports/out", "reframe/systems/NAME.yaml", "datasets/NAME.toml"),
    *("src/firsttouch/genomics/aligners/NAME.toml", "reframe/nearest.py", "reframe/systems/lab.yaml"),
    *("reframe/systems/rome.yaml", "reframe/systems/myhosts.yaml"),
)


def messages() -> list[str]:
    text = (DOCS / "howto" / "troubleshooting.md").read_text(encoding="utf-8")
    return [single or double for single, double in _MESSAGE.findall(text)]


@pytest.mark.parametrize("message", messages())
def test_a_message_that_is_explained_is_in_the_source(message: str) -> None:
    assert any(message in text for file in SOURCES for text in source(file).strings)


def test_messages_about_missing_programs_are_explained() -> None:
    assert len(messages()) > 25
    assert sum("on PATH" in m or "is not installed" in m or "cannot be" in m for m in messages()) > 5


@pytest.mark.parametrize("page", documented.PAGES, ids=documented.name)
def test_each_output_is_compared_with_what_is_printed(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    outputs = {command.output for command in documented.commands(page)}
    for test, output in re.findall(
        r"(?:<!-- compared in (\S+) -->\n)?^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL
    ):
        strings = source(ROOT / "tests" / test).strings if test else []
        for line in output.splitlines():
            assert output in outputs or any(_shows(string, line) for string in strings), line


def _shows(string: str, line: str) -> bool:
    """Return whether a string of a test contains a line, or is most of it without what is filled in."""
    is_most = len(string.replace("…", "")) > len(line) / 2
    return line in string or (is_most and bool(re.search(".+".join(map(re.escape, string.split("…"))), line)))


@pytest.mark.parametrize("page", documented.PAGES, ids=documented.name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    tops = "|".join(sorted({p.name for p in ROOT.iterdir() if p.is_dir() and not p.name.startswith(".")}))
    named = set(re.findall(rf"(?<![\w/.-])((?:{tops})/[\w./-]*\w)", text))
    missing = [n for n in named if not n.startswith(_CREATED) and not list(ROOT.glob(n)) and "." in Path(n).name]
    assert missing == [f for f in missing if f.endswith(".sif")]


def test_pictures_and_example_pages_are_what_the_program_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS / "extensions")
    import picture  # noqa: PLC0415 - a program of the manual, not of a package

    readme = documented.README.read_text(encoding="utf-8")
    shown = re.findall(r"^!\[.+\]\(docs/(\w+)\.svg\)$", readme, re.MULTILINE)
    assert sorted(shown) == sorted(file.stem for file in picture.FILES if file.suffix == ".svg")
    contents = {file: content() for file, content in picture.FILES.items()}
    stale = [file.name for file, text in contents.items() if file.read_text(encoding="utf-8") != text]
    assert stale == [], "these files are out of date: make docs"
    drawn = {file.stem: text for file, text in contents.items()}
    for cell in replay.read(replay.TIMES):
        gain = cell.default.seconds / replay.replay(cell, 0, BUDGET).row.seconds
        assert f">{gain:.2f}x<" in drawn["speedups"]
    assert "Verdict of the fleet: fail" in drawn["report"]
    assert "memory channel missing" in drawn["terminal"]
    for name in ("example-fleet", "example-host"):
        assert "<h1>Example with simulated values: " in drawn[name]
        assert len(drawn[name]) < 500_000
        assert "In the same folder" not in drawn[name]


def test_every_figure_of_the_manual_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs" / "extensions")
    import figures  # noqa: PLC0415 - a program of the manual, not of a package

    drawn = {name: figures.draw(name)[0] for name in figures._SOURCES}
    assert all(figure.panels and figure.shows for figure in drawn.values())


def test_commands_that_a_page_names_exist() -> None:
    (below,) = [a for a in cli.parser()._actions if a.dest == "command"]
    for page in documented.PAGES:
        for name in re.findall(r"`firsttouch ([a-z]+)", page.read_text(encoding="utf-8")):
            assert name in {*below.choices, "help"}, f"{page.name}: firsttouch {name}"


def test_every_kind_of_figure_has_a_title_that_is_explained() -> None:
    report = ROOT / "src" / "firsttouch" / "report"
    texts = [
        file.read_text(encoding="utf-8")
        for room in ("figures", "aspects")
        for file in (report / room).glob("*.py")
    ]
    drawing = [text for text in texts if "\ndef figures(" in text or "\ndef aspect(" in text]
    titles = [re.findall(r'^_(?:\w+_)?TITLE = "(.+)"$', text, re.MULTILINE) for text in drawing]
    assert all(titles)
    assert len(titles) >= 9
    explained = "|".join(documented.report_contents("The page of a few hosts"))
    assert [
        title
        for of_file in titles
        for title in of_file
        if not any(re.fullmatch(explained, text) for text in (title, f"{title}: x"))
    ] == []


def test_a_host_is_followed_by_hand_with_the_numbers_of_its_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS / "extensions")
    import simulated  # noqa: PLC0415 - a program of the manual, not of a package

    page = (DOCS / "explanation" / "methodology.md").read_text(encoding="utf-8")
    text = page.split("### One host by hand\n")[1].split("\n### ")[0]
    records = [record for record in simulated.records() if record.host <= "cn08"]
    for check, row in (("bandwidth", "copy"), ("contention", "total")):
        values = [r.value for r in records if (r.host, r.check, r.parameters["bank"]) == ("cn07", check, 1)]
        assert f"| {row}, GB/s | {' | '.join(f'{value:.2f}' for value in values)} |" in text
    findings = judged(samples_table.of_records(records, "rome"), Undescribed("rome"))
    answers = explain(findings, findings.number["cn07"])
    (bad,) = [a for a in answers if (a.part, a.kind) == ("memory of bank 1", "bandwidth")]
    (latency,) = [a for a in answers if (a.part, a.kind) == ("memory of bank 1", "latency")]
    shares = [f"{-100 * math.expm1(-loss):.1f} %" for loss in (bad.limit, bad.sight, bad.loss, latency.loss)]
    assert re.search(r".*".join(map(re.escape, shares)), text, re.DOTALL)
