# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of README.md and the manual, and the example pages of reports/, for ``make docs``.

Each picture has the style sheet of reports, whose colours follow the reader's choice of light or dark. The report
and the verdicts are those of the simulated hosts of the tutorial "Eight new hosts". The picture of the report
shows a part of its page, and the picture of the terminal shows what commands print.

One page shows the same eight hosts, and another one simulated host with all aspects. The pages say that they are
simulated, and leave out the files that a report has next to its page.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import os
import re
import shlex
import tempfile
import textwrap
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from unittest import mock

import replay
import simulated
import simulated_host
from markupsafe import escape

from firsttouch import cli
from firsttouch.advice.auto import BUDGET
from firsttouch.judge.judging import judge, judged
from firsttouch.records import samples_table, schema
from firsttouch.report import forms, pages
from firsttouch.report.fleet import fleet_pages
from firsttouch.systems import definition

DOCS = Path(__file__).resolve().parents[1]
REPORTS = DOCS.parent / "reports"
#: The published hosts and aligners, as their publications name them; the height of a row, the width of a factor of
#: 1, and where the scenarios stand (px).
_HOSTS = {
    "amd-opteron": "4 x AMD Opteron 6376, 8 NUMA nodes",
    "intel-xeon": "4 x Intel Xeon E5-4620, 4 NUMA nodes",
}
_ALIGNERS = {"bowtie2": "Bowtie2", "bwa-mem": "BWA-MEM", "gem": "GEM", "snap": "SNAP"}
_ROW, _TIMES, _SCENARIOS = 21, 58, 650
_COMMANDS = (
    "firsttouch validate --system rome results/new-hosts",
    "firsttouch plan --aligner bwa-mem --index-size 5.1GB --xml docs/examples/opteron.xml 8x8-bound",
)
#: The size of the report's picture (px), whose text wraps as on a screen.
_WIDTH, _HEIGHT = 1000, 1066
#: The columns of the terminal, and the size of a character and a line (px).
_COLUMNS, _CHARACTER, _LINE = 104, 8, 19
#: Control sequences of a terminal, a coloured text, and the names of its colours in the style sheet.
_CODE, _COLOURED = re.compile(r"\x1b\[\d+m"), re.compile(r"\x1b\[(\d+)m(.*?)\x1b\[0m")
_COLOURS = {"31": "fail", "32": "good", "33": "suspect"}
_SCHEMES = re.compile(r"^:root \{.*?^\}|^@media \(prefers.*?^\}", re.MULTILINE | re.DOTALL)


def speedups() -> str:
    """Return the speed-up of the recommended scenario in each of the 16 published cells."""
    rows = []
    for system, title in _HOSTS.items():
        rows.append(f'<text x="0" y="{_ROW * (len(rows) + 1)}" font-weight="bold">{title}</text>')
        for cell in (c for c in replay.read(replay.TIMES) if c.system == system):
            chosen = replay.replay(cell, 0, BUDGET).row
            gain, y = cell.default.seconds / chosen.seconds, _ROW * (len(rows) + 1)
            name = f"{_ALIGNERS[cell.aligner]}, {cell.dataset}"
            rows.append(
                f'<text x="150" y="{y}" text-anchor="end">{name}</text>'
                f'<rect x="160" y="{y - 12}" width="{gain * _TIMES:.1f}" height="15" fill="var(--link)"/>'
                f'<text x="{160 + gain * _TIMES + 6:.1f}" y="{y}">{gain:.2f}x</text>'
                f'<text x="{_SCENARIOS}" y="{y}" fill="var(--muted)">{chosen.name}</text>'
            )
    drawing = f'<g font-size="13" fill="var(--ink)" transform="translate(12 6)">{"".join(rows)}</g>'
    height = _ROW * (len(rows) + 1)
    return _picture(_SCENARIOS + 140, height, drawing, "\n".join(_SCHEMES.findall(forms.style())))


def fleet_page() -> str:
    """Return the page of the eight hosts."""
    with _example() as folder:
        findings = judged(samples_table.of_records(_records()), definition.load("rome"))
        title = "Example with simulated values: eight hosts"
        fleet_pages.build([findings], folder, title=title, generated=_time(simulated.BEFORE[-1]))
        return _page(folder)


def host_page() -> str:
    """Return the page of one host."""
    records, topology = simulated_host.records()
    with tempfile.TemporaryDirectory() as name:
        pages.build(
            records,
            Path(name),
            topology_xml=topology,
            alone=judge(records, definition.Undescribed(simulated_host.SYSTEM)),
            title="Example with simulated values: one host",
            generated=_time(simulated_host.DAY),
        )
        return _page(Path(name))


def _time(day: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(f"{day}T18:00:00+00:00")


def _page(folder: Path) -> str:
    page = (folder / "index.html").read_text(encoding="utf-8")
    return re.sub(r'<p class="small">In the same folder: .*</p>', "<p>All values are simulated.</p>", page)


def report() -> str:
    """Return the page of eight hosts: its title, its card, the bad hosts, and the map of hosts and metrics."""
    page = fleet_page()
    body = ET.fromstring(page[page.index("<body>") : page.index("<script>")] + "</body>")  # noqa: S314 - ours
    header, main = body.find("header"), body.find("main")
    card, system = main.findall("section")[:2]
    # Left out: the time and the version, what explains the words and the map, and what follows the map.
    header.remove(header.find("p"))
    bad, the_map, *others = system.findall("div")
    for part in others:
        system.remove(part)
    for part, shown in ((bad, ("h3", "div[@class='hosts']")), (the_map, ("h3", "div[@class='scroll']"))):
        for block in [block for block in part if block not in [part.find(name) for name in shown]]:
            part.remove(block)
    shown = "".join(ET.tostring(part, encoding="unicode") for part in (header, card, system))
    body_text = f'<body xmlns="http://www.w3.org/1999/xhtml">{shown}</body>'
    page_in_svg = f'<foreignObject width="100%" height="100%">{body_text}</foreignObject>'
    return _picture(_WIDTH, _HEIGHT, page_in_svg, forms.style())


def terminal() -> str:
    """Return what the commands print on a terminal, verdicts in colour."""
    lines = [line for command in _COMMANDS for line in (f"$ {command}", *_printed(command), "")][:-1]
    texts = []
    for number, line in enumerate(lines, start=1):
        shown = _COLOURED.sub(_tspan, str(escape(line))).replace("  ", "\N{NO-BREAK SPACE} ")
        place = f'x="16" y="{_LINE * (number + 1)}" textLength="{_CHARACTER * len(_CODE.sub("", line))}"'
        texts += [f'<text {place} lengthAdjust="spacingAndGlyphs">{shown}</text>'] if line else []
    drawing = f'<g font-family="monospace" font-size="13" fill="var(--ink)">{"".join(texts)}</g>'
    size = _CHARACTER * (_COLUMNS + 4), _LINE * (len(lines) + 2)
    return _picture(*size, drawing, "\n".join(_SCHEMES.findall(forms.style())))


def _tspan(match: re.Match[str]) -> str:
    return f'<tspan fill="var(--{_COLOURS[match[1]]})" font-weight="bold">{match[2]}</tspan>'


def _printed(command: str) -> list[str]:
    """Return the lines that a command prints on a terminal, wrapped at its width."""
    printed = io.StringIO()
    printed.isatty = lambda: True  # type: ignore[method-assign]
    with _example(), contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        cli.main(shlex.split(command)[1:])
    return [part for line in printed.getvalue().splitlines() for part in textwrap.wrap(line, _COLUMNS)]


@contextlib.contextmanager
def _example() -> Iterator[Path]:
    """Yield a folder, the current one meanwhile, with the system and the records of the tutorial."""
    tutorial = (DOCS / "tutorials" / "eight-hosts.md").read_text(encoding="utf-8")
    (system,) = re.findall(r"^# reframe/systems/rome\.yaml\n(.*?)^```", tutorial, re.MULTILINE | re.DOTALL)
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        folder = Path(name)
        (folder / "rome.yaml").write_text(system, encoding="utf-8")
        (folder / "docs").symlink_to(DOCS)
        records = folder / "results" / "new-hosts" / "records.jsonl"
        records.parent.mkdir(parents=True)
        schema.append(records, _records())
        settings = {"FIRSTTOUCH_SYSTEMS": name, "FIRSTTOUCH_OUT": name, "NO_COLOR": "", "TERM": "xterm"}
        with mock.patch.dict(os.environ, settings):
            yield folder


def _records() -> list[schema.Record]:
    return [record for record in simulated.records() if record.host <= "cn08"]


def _picture(width: str | int, height: str | int, drawing: str, style: str) -> str:
    """Return an SVG document of this size (px), on the paper of the style sheet."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif"><style>{escape(style)}</style>'
        f'<rect width="100%" height="100%" fill="var(--paper)"/>{drawing}</svg>\n'
    )


#: File -> the function that returns its content.
FILES: Mapping[Path, Callable[[], str]] = {
    DOCS / "speedups.svg": speedups,
    DOCS / "report.svg": report,
    DOCS / "terminal.svg": terminal,
    REPORTS / "example-fleet.html": fleet_page,
    REPORTS / "example-host.html": host_page,
}

if __name__ == "__main__":
    for file, content in FILES.items():
        file.write_text(content(), encoding="utf-8")
