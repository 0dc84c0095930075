# SPDX-License-Identifier: Apache-2.0
"""The commands that README.md and the pages of docs/ show, and the files that their examples write.

Commands are the lines of blocks that are indented by four spaces, and of blocks ```console that begin with ``$ ``.
A block of another language whose first line is ``# FILE`` or ``# append to FILE`` is that file. The comment
``<!-- not run: REASON -->`` before a block says why its commands are not run. A block ```text directly after a
block ```console with one command shows lines that the command prints. The comment ``<!-- differs: GB/s, date -->``
before it names what differs between runs: numbers before a unit, or a kind of text in DIFFERING. A message that
another test compares has ``<!-- compared in unit/test_NAME.py -->``.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PAGES = (README, *sorted((ROOT / "docs").rglob("*.md")))


def name(page: Path) -> str:
    """Return the name of a page in the names of tests."""
    return str(page.relative_to(ROOT))


_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OUTPUT = re.compile(r"\s*(?:<!-- differs: ([^>]+?) -->\s*)?^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^ {4,}\S.*\n(?:\n(?= {4}))?)+", re.MULTILINE)
_MARK = re.compile(r"<!-- not run: ([^>]+?) -->\s*\Z")
_FILE = re.compile(r"# (append to )?([\w./-]+\.\w+)\n(.*)\Z", re.DOTALL)
#: The texts that may differ between two runs of a command, besides numbers.
DIFFERING = {
    "date": r"\w{3} \w{3} +\d+ \d\d:\d\d:\d\d \d{4}",
    "PUs": r"PUs? [\d,-]+",
    "hash": r"\b[0-9a-f]{8,}\b",
    "scenario": r"\b\d+x\d+-\w+(?:\+[\w-]+)*",
}


@dataclass(frozen=True)
class Command:
    """One line of a shell; *reason* says why it is not run (empty: it is)."""

    page: Path
    line: int
    text: str
    reason: str = ""
    #: The lines that the page shows, and what differs in them between runs.
    output: str = ""
    differs: tuple[str, ...] = ()

    def unprinted(self, printed: str) -> list[str]:
        """Return the lines that the page shows and the command did not print."""
        lines = self._comparable(printed)
        return [line for line in self._comparable(self.output) if line not in lines]

    def _comparable(self, text: str) -> list[str]:
        for kind in self.differs:
            text = re.sub(DIFFERING.get(kind, rf"[\d.]*\d(?= ?{re.escape(kind)})"), kind, text)
        return text.splitlines()

    @property
    def place(self) -> str:
        """Where it is shown."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Written:
    """A file of an example: its path in the checkout, its text, and whether the text is appended."""

    path: str
    text: str
    behind: bool


def read(page: Path) -> list[Command | Written]:
    """Return the commands and files of a page, in order."""
    return list(_read(page, page.read_text(encoding="utf-8")))


def commands(page: Path) -> list[Command]:
    """Return the commands of a page."""
    return [c for c in read(page) if isinstance(c, Command)]


def _read(page: Path, text: str) -> Iterator[Command | Written]:
    blocks = [(m.start(), m.end(), m[1], m[2]) for m in _FENCE.finditer(text)]
    # Indented lines within a fence are not a block.
    rest = _FENCE.sub(lambda m: re.sub(r"[^\n]", "x", m[0]), text)
    blocks += [(m.start(), m.end(), "indented", m[0]) for m in _INDENTED.finditer(rest)]
    for start, end, language, body in sorted(blocks):
        mark = _MARK.search(text[:start])
        if language in {"console", "indented"}:
            shown = _OUTPUT.match(text, end) if language == "console" and body.count("\n") == 1 else None
            first = text.count("\n", 0, start) + 1 + (language == "console")
            for line, typed in enumerate(body.splitlines(), start=first):
                if command := _command(typed, language):
                    differs, output = shown.groups(default="") if shown else ("", "")
                    kinds = tuple(filter(None, differs.split(", ")))
                    yield Command(page, line, command, mark[1] if mark else "", output, kinds)
        elif file := _FILE.match(body):
            yield Written(file[2], file[3], bool(file[1]))


def _command(shown: str, language: str) -> str:
    if language == "console":
        return shown[2:].strip() if shown.startswith("$ ") else ""
    # A comment is separated by three spaces, or by two and #.
    return re.split(r" {2,}#| {3,}", shown.strip())[0].strip()


def report_contents(page: str) -> list[str]:
    """Return the patterns of the figures, tables and sections that the reference describes for a kind of page."""
    text = (ROOT / "docs" / "reference" / "report-contents.md").read_text(encoding="utf-8")
    part = text.split(f"## {page}\n", 1)[1].split("\n## ", 1)[0]
    names = re.findall(r"^\| (?!name \||---)(.+?) \|", part, re.MULTILINE)
    return [".+".join(map(re.escape, name.split("…"))) for name in names]


def actions(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the commands below a parser that do something, such as ``fleet due``."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield name, parser
    for action in below:
        for word, command in action.choices.items():
            yield from actions(command, f"{name} {word}".strip())
