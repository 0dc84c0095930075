# SPDX-License-Identifier: Apache-2.0
"""Verdicts in a report: the worst host first, with its cause; all text is escaped."""

import json
import re

import pytest
from test_verdict import COPIES, LIMITS, rates, system_of

from firsttouch.judge.judging import judge
from firsttouch.judge.verdict import HostVerdict
from firsttouch.report import pages, verdicts
from firsttouch.systems.expectation import Expectation


@pytest.fixture
def report(tmp_path):
    """A report of a good host, a slow one and one with a missing result."""
    system = system_of(tmp_path, {**COPIES, "source": "a <b> order", "tolerance": LIMITS["higher"]})
    records = [*rates(10.0, host="good"), *rates(1.0, 1.0, host="slow"), *rates(10.0, host="late")]
    verdicts = judge(records, system, missing={"late": ["latency-0: its <b> host | died"]})
    out = tmp_path / "report"
    out.mkdir()
    pages.build(records, out, verdicts=verdicts)
    return out


def test_the_worst_host_is_first_on_the_page(report):
    page = (report / "index.html").read_text()
    page = page[page.index("<main") :]
    table = page[page.index("Verdicts") : page.index("In short")]
    assert "Verdicts: 1 fail, 1 suspect, 1 pass" in table
    order = [table.index(f"<b>{host}</b>") for host in ("slow", "late", "good")]
    assert order == sorted(order)
    cards = re.findall(r'<section class="card is-(\w+)".*?>Verdict of (\w+): ', page, re.DOTALL)
    assert cards == [("fail", "slow"), ("suspect", "late"), ("pass", "good")]
    assert "its &lt;b&gt; host" in table


def test_the_ticket_and_the_document_have_the_verdicts(report):
    text = (report / "summary.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith("| late"))
    assert "host \\| died" in row
    assert "| slow | fail | 0 of 1 metrics pass |" in text
    document = json.loads((report / "summary.json").read_text())
    assert {v["host"]: v["verdict"] for v in document["verdicts"]} == {
        "good": "pass",
        "slow": "fail",
        "late": "suspect",
    }


def expectation(part, answer, kind="latency"):
    return Expectation(part, kind, answer, f"why {part}", 2.0, 1.0, 1.0, "ns")


@pytest.mark.parametrize(
    ("parts", "advice"),
    [
        (("clock of NUMA 0", "caches of NUMA 0", "caches of NUMA 1"), "Measure it again."),
        (("link from NUMA 0 to bank 1", "caches of NUMA 0", "caches of NUMA 1"), "link speed and width."),
        (("link from NUMA 0 to bank 1", "caches of NUMA 0", "memory of bank 1"), "memory modules and firmware."),
        (
            ("link from NUMA 0 to bank 1", "modules of package 0", "caches of NUMA 1"),
            "memory modules and firmware.",
        ),
    ],
)
def test_a_card_names_low_parts_first_and_counts_the_others(parts, advice):
    low = [expectation(part, "low") for part in parts]
    unknown = [expectation(f"memory of bank {bank}", "unknown", "bandwidth") for bank in range(2)]
    verdict = HostVerdict("n1", "s", (), 0, (), expected=(*unknown, *low))
    text = verdicts.part_answers(verdict)
    assert text.count(", low") == 3
    assert ", unknown" not in text
    assert "And 2 more." in text
    assert str(verdicts.next_step(verdict, is_judged=False)).endswith(advice)


def test_parts_with_one_reason_are_one_sentence():
    parts = [Expectation(f"memory of bank {n}", "bandwidth", "unknown", "no rate", needs="root") for n in range(8)]
    text = verdicts.part_answers(HostVerdict("n1", "s", (), 0, (), expected=tuple(parts)))
    assert text == "Memory of bank 0: bandwidth, unknown: no rate, and 7 more."


def test_a_host_that_only_lacks_results_is_to_measure_them():
    verdict = HostVerdict("n1", "s", (), 1, ("latency-0: its host died",))
    assert verdicts.next_step(verdict, is_judged=True) == "Measure what is missing."
