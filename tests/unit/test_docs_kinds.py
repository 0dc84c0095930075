# SPDX-License-Identifier: Apache-2.0
"""docs/reference/report-contents.md names every figure, table and section of a report, and nothing else."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec.structs import replace

import documented
from documented import ROOT
from factories.fleet_records import records_by_host
from factories.host_records import Machine, invalid
from factories.memory_records import Host, slow_caches
from firsttouch.judge.comparison import compare
from firsttouch.judge.history import Change
from firsttouch.judge.judging import judged
from firsttouch.judge.verdict import Finding, HostVerdict
from firsttouch.records import samples_table, schema
from firsttouch.records.cases import Case
from firsttouch.records.drift import Configuration
from firsttouch.records.schema import Record
from firsttouch.report.fleet import comparison, fleet_pages
from firsttouch.report.model import Problem
from firsttouch.report.pages import build
from firsttouch.systems.definition import Undescribed
from firsttouch.systems.references import Reference

PAGES = ("The page of a few hosts", "The page of a fleet", "Two campaigns compared")


class Kinds(HTMLParser):
    """Collect headings, names of lines, and captions of tables that are not the numbers of a figure or a line."""

    def __init__(self, text: str, levels: str) -> None:
        super().__init__()
        self.wanted = re.compile(f"h[{levels}]|caption")
        self.texts: list[str] = []
        self._inside, self._last, self._open = "", "", False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        is_line = (self._last, tag) == ("summary", "b")
        self._inside = "figure" if tag == "figure" else "details" if is_line else self._inside
        self._last = tag
        if is_line or (self.wanted.fullmatch(tag) and not (self._inside and tag == "caption")):
            self._open = True
            self.texts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = "" if tag == self._inside else self._inside
        self._open &= tag != "b" and not self.wanted.fullmatch(tag)

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[-1] += data


def kinds(text: str, levels: str = "2-4") -> list[str]:
    return [" ".join(shown.split()) for shown in Kinds(text, levels).texts]


def of_a_host(out: Path) -> list[str]:
    machine = Machine(2, 4)
    vm = schema.read(ROOT / "docs" / "examples" / "vm.jsonl")
    some = machine.everything()
    like = {"host": some[0].host, "system": some[0].system, "partition": some[0].partition}
    throughput = [replace(r, **like) for r in vm if r.metric == "throughput"]
    assert throughput
    wrong = [invalid(r) for r in machine.placement("bowtie2", "GCAT") if r.parameters["instances"] == 2]
    finding = Finding(
        Case("", "latency", "random_latency", {}, "ns", "lower"), (99.0,), None, "suspect", "too slow"
    )
    memory = Host(like["host"], at_once=True)
    loads = [*memory.loaded((1.0,)), *memory.pairs(2), *memory.locks(2), *memory.pages(), *memory.stores()]
    slow = Host(like["host"], at_once=True, fault=slow_caches)
    word = ("correctness", "wrong_words", "1", "lower", 1.0)
    wrong_word = memory.add(*word, bank=1, physical_address="0x4e600ef38", units=5)
    loads += [*slow.cores(), *memory.tails(), *wrong_word]
    build(
        [
            *some,
            *machine.scaling("bowtie2", "GCAT"),
            *throughput,
            *wrong,
            *(replace(r, **like) for r in loads),
            Record(*("configuration", "settings", "1", "neither", (1,)), {"settings": {"cpu.smt": "on"}}, **like),
        ],
        out,
        topology_xml=machine.xml(),
        problems=[Problem("counters", "skipped", "perf_event_paranoid is 4", check="counters")],
        references=lambda record: Reference(
            record.check, record.metric, {}, record.value, None, None, record.unit, "a test", 0
        ),
        verdicts=[HostVerdict(like["host"], like["system"], (finding,), 0, ())],
    )
    return kinds((out / "index.html").read_text(encoding="utf-8"))


def of_a_fleet(out: Path) -> list[str]:
    both = [
        r for day in ("2026-01-01", "2026-01-02") for m in records_by_host(hosts=20, day=day).values() for r in m
    ]
    table = samples_table.of_records(both)
    days = int(table.session_times[1]), int(table.session_times[-1])
    change = Change("s", "memory", ("n003",), 1, *days, -0.08, worse=True)
    settings = {f"n{i:03}": Configuration(0, {"cpu.smt": "off" if i else "on"}) for i in range(20)}
    histories = {"s": [change]}
    fleet_pages.build([judged(table, Undescribed("s"))], out, histories=histories, configurations=settings)
    return kinds((out / "index.html").read_text(encoding="utf-8"), "23")  # below are metrics and hosts


def of_a_comparison(out: Path) -> list[str]:
    before, after = (
        [r for host_records in records_by_host(hosts=hosts, day=day).values() for r in host_records]
        for hosts, day in ((20, "2026-01-01"), (19, "2026-02-01"))
    )
    after = [r for r in after if (r.host, r.check) != ("n003", "latency")]
    compared = compare(samples_table.of_records(before), samples_table.of_records(after))
    comparison.build(compared, out, names=("before", "after"))
    return kinds((out / "index.html").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("page", "shown"), [*zip(PAGES, (of_a_host, of_a_fleet, of_a_comparison), strict=True)], ids=PAGES
)
def test_what_a_page_shows_is_explained_and_what_is_explained_is_shown(page, shown, tmp_path) -> None:
    headings, patterns = shown(tmp_path), documented.report_contents(page)
    assert len(headings) > 4
    assert [text for text in headings if not re.fullmatch("|".join(patterns), text)] == []
    assert [p for p in patterns if not any(re.fullmatch(p, text) for text in headings)] == []
