# SPDX-License-Identifier: Apache-2.0
"""The page itself: well-formed, self-contained, accessible, and safe with hostile names.

Also texts where a value would mislead, and cells of CSV, which a spreadsheet must not compute.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from collections import Counter
from importlib import resources
from pathlib import Path

import pytest
from msgspec.structs import replace

from factories.drawings import local, tree
from factories.host_records import KIB, MIB, Machine, built_report
from firsttouch.judge.judging import judge
from firsttouch.records.schema import Record
from firsttouch.report.aspects import latency
from firsttouch.report.aspects.latency import Curve, by_level
from firsttouch.report.model import Problem
from firsttouch.report.pages import FILES, build
from firsttouch.report.text import markdown
from firsttouch.systems.definition import Undescribed
from firsttouch.units import quantity

HOSTILE = "<script>alert('x')</script>\"&$x^2$|`\x00\x1b[31m\u2028\n- _*~"


def page_of(out: Path, records: list[Record], xml: str | None = None, **options: object) -> str:
    build(records, out, topology_xml=xml, **options)  # type: ignore[arg-type]
    return (out / "index.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> str:
    machine = Machine(8, 8)
    records = machine.everything() + machine.scaling("bowtie2", "GCAT") + machine.placement("bowtie2", "GCAT")
    return page_of(tmp_path_factory.mktemp("large"), records, machine.xml())


def test_the_page_is_well_formed_and_its_ids_are_unique(large: str) -> None:
    ids = Counter(e.get("id") for e in tree(large).iter() if e.get("id"))
    assert [i for i, n in ids.items() if n > 1] == []


def test_every_reference_within_the_page_leads_somewhere(large: str) -> None:
    root = tree(large)
    ids = {e.get("id") for e in root.iter()}
    for element in root.iter():
        for target in element.get("aria-labelledby", "").split():
            assert target in ids
        link = element.get("href", "")
        assert link in {"", "data:,"} | FILES or link[1:] in ids
        for value in element.attrib.values():
            for target in re.findall(r"url\(#([^)]+)\)", value):
                assert target in ids


def test_no_request_can_leave_the_page(large: str) -> None:
    without_namespaces = re.sub(r'xmlns(:\w+)?="[^"]*"', "", large)
    for text in ("http:", "https:", "src=", "@import", "url(http", "<script ", "<iframe", "<object", "<img"):
        assert text not in without_namespaces
    assert "default-src 'none'" in large


def test_only_the_script_of_this_package_may_run(large: str) -> None:
    (script,) = re.findall(r"<script>(.*?)</script>", large, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert re.findall(r"script-src ([^;]+);", large) == [f"'sha256-{digest}'"]
    assert len(script) < 6_000
    assert not re.search(r"[<&]|fetch|XMLHttp|import\(|eval|innerHTML", script)


def test_headings_are_in_order_and_the_page_says_its_language(large: str) -> None:
    root = tree(large)
    assert root.get("lang") == "en"
    levels = [int(local(e)[1]) for e in root.iter() if re.fullmatch("h[1-6]", local(e))]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


@pytest.mark.parametrize("scheme", [0, 1, 2])
def test_text_contrast_is_aa(large: str, scheme: int) -> None:
    """WCAG 2.2: 4.5 for text, 3 for the lines of a figure; light, dark and paper."""
    block = re.findall(r":root \{(.*?)\}", large, re.S)[scheme]
    colours = dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", block))

    def luminance(name: str) -> float:
        parts = [int(colours[name][i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(name: str, behind: str) -> float:
        low, high = sorted((luminance(name), luminance(behind)))
        return (high + 0.05) / (low + 0.05)

    for name in ("ink", "muted", "link", "warn", "good", "fail", "suspect", "invalid"):
        assert contrast(name, "paper") >= 4.5, name
    for name in ("ink", "muted", "warn"):
        assert contrast(name, "warn-paper") >= 4.5, name
    for number in range(1, 7):
        assert contrast(f"series-{number}", "paper") >= 3, number


@pytest.mark.parametrize(("nodes", "sizes", "rows"), [(4, (1,), 4), (8, (1, 2, 4), 106)])
def test_matrices_show_every_value(tmp_path: Path, nodes: int, sizes: tuple[int, ...], rows: int) -> None:
    machine = Machine(nodes, 4)
    records = [
        r
        for r in machine.bandwidth(sizes)
        if r.parameters["kernel"] == "copy" and r.parameters["program"] == "stream"
    ]
    # 8 + 28 + 70 PU-sets of one, two and four NUMA nodes.
    assert len(records) == rows * nodes
    page = page_of(tmp_path, records)
    (matrix,) = (e for e in tree(page).iter() if e.get("class") == "matrix")
    cells = [text for cell, text in itertools.pairwise(matrix) if cell.get("class") == "cell"]
    assert len(cells) == rows * nodes
    highest = max(r.value for r in records)
    shown = [float(e.text or "nan") for e in cells]
    assert max(shown) == pytest.approx(highest, rel=0.01)


@pytest.mark.parametrize(("per_node", "drawn"), [(2, 2), (4, 5)])
def test_two_values_are_a_line_with_a_table(tmp_path: Path, per_node: int, drawn: int) -> None:
    """The host has one bank, and two or more numbers of threads; latency and scenarios are drawn on both hosts."""
    machine = Machine(1, per_node)
    records = [*machine.latency(), *machine.bandwidth(), *machine.contention(), *machine.scaling()]
    root = tree(page_of(tmp_path, records))
    drawings = [e for e in root.iter() if local(e) == "svg"]
    assert len(drawings) == drawn
    captions = [e.text or "" for e in root.iter() if local(e) == "caption"]
    for shown in ("GB/s, medians", "Per thread", "Time (s)"):
        assert any(shown in caption for caption in captions)


def test_hostile_names_are_text(tmp_path: Path) -> None:
    records = []
    for record in Machine(2, 4).everything():
        words = {k: HOSTILE if isinstance(v, str) else v for k, v in record.parameters.items()}
        odd = replace(record, host=HOSTILE, system=HOSTILE, parameters={**words, "extra": HOSTILE})
        records.append(replace(odd, software={HOSTILE: HOSTILE}))
    records += [replace(r, status="invalid", reason=HOSTILE) for r in records[:3]]
    page = page_of(
        tmp_path, records, title=HOSTILE, problems=[Problem(HOSTILE, "failed", HOSTILE, HOSTILE, HOSTILE)]
    )
    root = tree(page)
    assert len([e for e in root.iter() if local(e) == "script"]) == 1
    assert "alert('x')" in "".join(root.itertext())
    assert page.count("<script") == 1
    ticket = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert "<script" not in ticket.replace(r"\<script", "")
    # A name must neither end the cell of a table nor start a line.
    assert not [line for line in ticket.splitlines() if line.startswith("- _")]
    assert "\x1b" not in page + ticket
    assert "\x00" not in page + ticket


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("2x32-local", "2x32-local"),
        ("_emphasis_ and __strong__", "\\_emphasis\\_ and \\_\\_strong\\_\\_"),
        ("*a* `b` [c](d)", "\\*a\\* \\`b\\` \\[c\\](d)"),
    ],
)
def test_a_ticket_escapes_what_is_markup(text, escaped):
    assert markdown(text) == escaped


CACHES = [("L1d", 32 * KIB), ("L2", MIB), ("L3", 32 * MIB)]


def curve(**ns_at):
    """A curve with a latency (ns) at each size: kib32=1.5, mib16=186."""
    sizes = {int(name[3:]) * {"kib": KIB, "mib": MIB}[name[:3]]: ns for name, ns in ns_at.items()}
    record = Machine(1, 1).latency()[0]
    points = [
        (n, replace(record, samples=(ns,), parameters={**record.parameters, "size_bytes": n}))
        for n, ns in sorted(sizes.items())
    ]
    return Curve(latency.RANDOM, (0,), (0,), "firsttouch-probe", (), tuple(points))


@pytest.mark.parametrize(
    ("ns_at", "seen"),
    [
        ({"kib16": 1.3, "kib512": 5.0, "mib16": 40.0, "mib128": 110.0}, ["L1d", "L2", "L3", "memory"]),
        # A virtual machine with a share of the L3 cache: at half of its size, loads come from memory.
        ({"kib16": 1.3, "kib512": 5.0, "mib3": 16.0, "mib16": 161.0, "mib128": 170.0}, ["L1d", "L2", "memory"]),
        # Nothing was measured beyond the caches.
        ({"kib16": 1.3, "kib512": 5.0, "mib16": 40.0}, ["L1d", "L2", "L3"]),
    ],
)
def test_a_cache_level_as_slow_as_memory_is_not_seen(ns_at, seen):
    levels = by_level(curve(**ns_at), CACHES)
    assert [level.name for level in levels if level.seen] == seen


def test_the_bandwidth_on_the_card_is_among_the_results(tmp_path):
    """It includes the lines that stores read first: the results name the measured value that it rests on."""
    records = Machine(1, 4).bandwidth()
    verdicts = judge(records, Undescribed(records[0].system))
    _, _, document = built_report(tmp_path, records, alone=verdicts)
    (expected,) = verdicts[0].expected
    (line,) = [h for h in document["hosts"][0]["headlines"] if h["text"] == quantity(expected.reaches, "GB/s")]
    copy = max(r.value for r in records if r.metric == "copy_bandwidth" and r.parameters["stores"] == "regular")
    assert expected.reaches == pytest.approx(1.5 * copy)
    assert quantity(copy, "GB/s") in line["compared"]


@pytest.mark.parametrize("others", ["", "others used 2.9 PUs (sh 2.9), and "])
def test_a_busy_host_is_named_on_the_page_the_terminal_and_in_a_ticket(tmp_path, others):
    records = [replace(r, samples=(1.0, 2.0, 3.0)) for r in Machine(1, 4).contention()]
    busy = replace(
        records[0], check="topology", metric="busy_pus", samples=(2.9,), parameters={"programs": "sh 2.9"}
    )
    summary, page, _ = built_report(tmp_path, [*records, *([busy] if others else [])])
    for text in (page, summary.table(), (tmp_path / "summary.md").read_text()):
        assert f"This host was not idle: {others}2 of 2 metrics vary" in " ".join(text.split())
        assert ("Do not use its rates, latencies and times." in " ".join(text.split())) == bool(others)
    assert summary.table().endswith("Measure again when it is idle.")


#: A cell -> whether a spreadsheet would compute it.
CELLS = {
    **dict.fromkeys(
        ("=1+1", "@SUM(1)", "\t=1", "\r=1", "+1+cmd|x", "-2+3+cmd|' /C calc'!A0", "-n1", "+", "\uff1d1"), True
    ),
    **dict.fromkeys(
        ("", "n1", "n-1", "a=b", "1e-5", "-3", "+2.5", "-24.8 %", "-1.5e-7", "-3 GB/s", "+12 ns"), False
    ),
}


def page_rule():
    """Return the rule of the page's CSV button, which is also a valid regular expression of Python."""
    script = resources.files("firsttouch.report").joinpath("templates", "page.js").read_text(encoding="utf-8")
    (rule,) = re.findall(r"const formula = /(.+)/i;", script)
    return re.compile(rule, re.IGNORECASE)


@pytest.mark.parametrize(("cell", "computed"), CELLS.items())
def test_no_cell_is_a_formula(cell, computed):
    assert bool(page_rule().match(cell)) == computed
