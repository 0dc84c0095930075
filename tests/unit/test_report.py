# SPDX-License-Identifier: Apache-2.0
"""The report's files: its numbers, their order, and records that are never shown as values."""

from __future__ import annotations

import datetime
import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from msgspec.structs import replace

from factories import memory_records
from factories.host_records import Machine, built_report, invalid
from firsttouch.execution import progress
from firsttouch.judge.judging import judge
from firsttouch.records.cases import Case
from firsttouch.records.schema import Record
from firsttouch.report.model import Problem
from firsttouch.report.pages import FILES
from firsttouch.report.render import Summary
from firsttouch.scenarios.placement import name_of
from firsttouch.systems.definition import Undescribed
from firsttouch.systems.references import Reference
from firsttouch.units import quantity

NOON = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Report:
    """A report of a whole machine at NOON: its records, folder and summary."""

    machine: Machine
    records: list[Record]
    folder: Path
    summary: Summary
    page: str
    document: dict[str, Any]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Report:
    machine = Machine(2, 4)
    records, folder = machine.everything(), tmp_path_factory.mktemp("whole")
    return Report(
        machine, records, folder, *built_report(folder, records, topology_xml=machine.xml(), generated=NOON)
    )


def test_the_files_of_a_report(whole: Report) -> None:
    names = {p.name for p in whole.folder.iterdir()}
    assert names == FILES
    assert (whole.folder / "topology.xml").read_text(encoding="utf-8") == whole.machine.xml()
    assert pl.read_parquet(whole.folder / "records.parquet").height == len(whole.records)


def test_the_numbers_of_summary_json_are_the_medians(whole: Report) -> None:
    records, document = whole.records, whole.document
    (host,) = document["hosts"]
    shown = {
        (check, m["metric"], json.dumps(m["parameters"], sort_keys=True)): m
        for check, metrics in host["checks"].items()
        for m in metrics
    }
    assert len(shown) == len(records)
    for record in records:
        metric = shown[record.check, record.metric, json.dumps(record.parameters, sort_keys=True)]
        assert metric["value"] == statistics.median(record.samples)
        assert (metric["minimum"], metric["maximum"]) == (min(record.samples), max(record.samples))
        spread = (max(record.samples) - min(record.samples)) / statistics.median(record.samples)
        assert metric["spread"] == pytest.approx(spread)
        assert (metric["unit"], metric["repetitions"]) == (record.unit, len(record.samples))
        assert metric["status"] == "valid"


def test_the_gains_of_scenarios_are_bars_against_the_default_run(tmp_path: Path) -> None:
    def run(instances: int, threads: int, policy: str, *samples: float) -> Record:
        parameters = {
            "aligner": "bwa-mem",
            "dataset": "lambda",
            "instances": instances,
            "threads": threads,
            "policy": policy,
            "scenario": name_of(instances, threads, policy),
        }
        check = "scaling" if instances == 1 else "placement"
        return Record(check, "alignment_time", "s", "lower", samples, parameters, host="n1")

    records = [
        run(1, 8, "original", 39.0, 40.0, 44.0),
        run(1, 4, "original", 70.0, 71.0, 72.0),
        run(1, 8, "interleave", 20.0, 21.0, 22.0),
        run(2, 4, "original", 9.0, 10.0, 11.0),
        run(8, 1, "original", 30.0, 31.0, 32.0),
        invalid(run(4, 2, "original", 1.0, 1.0, 1.0)),
    ]
    summary, page, document = built_report(tmp_path, records)
    (choice,) = document["guidelines"][0]["choices"]
    assert (choice["default"], choice["recommended"]) == ("1x8-default", "2x4-bound")
    assert choice["gain"] == {"value": 4.0, "low": pytest.approx(39 / 11), "high": pytest.approx(44 / 9)}
    assert "4.00x as fast as 1x8-default (3.55x to 4.89x" in summary.table()
    assert "The default run is 1x8-default with 8 threads: 40 s." in page
    drawing = page.partition("<svg")[2].partition("</svg>")[0]
    shown = [name for name in ("2x4-bound", "1x8-interleave", "8x1-bound", "1x4-default") if name in drawing]
    assert len(shown) == 4
    assert "4x2-bound" not in drawing


@pytest.mark.parametrize("columns", [80, 200])
def test_a_terminal_gets_a_line_for_each_result_and_problem(tmp_path, monkeypatch, columns):
    """With four other lines of characterize, a busy host of many results without five programs has at most 25."""
    loaded = memory_records.Host(Machine().host, at_once=True).loaded()
    listed = [*Machine(8, 8).everything(), *Machine(8, 8).scaling(dataset="gcat"), *loaded]
    names = {"system": listed[0].system, "partition": "all"}
    records = [replace(r, samples=(1.0, 2.0, 3.0), **names) for r in listed]
    problems = [Problem(f"check{i}", "failed", "there is no such program " * 5, f"check{i}") for i in range(5)]
    verdicts = judge(records, Undescribed(records[0].system))
    summary, _, _ = built_report(tmp_path, records, problems=problems, alone=verdicts)
    in_file = summary.table()
    monkeypatch.setattr(progress, "columns", lambda: columns)
    lines = summary.table().split("\n")
    assert max(map(len, lines)) <= columns
    assert len(lines) <= 25 - 4
    labels = tuple(result.label for result in summary.hosts[0][1] if not result.is_detail)
    starts = [line.removesuffix(" ...") for line in lines if line.startswith(labels)]
    (more,) = [line for line in lines if line.endswith("more results on the page")] or ["and 0 more"]
    assert len(starts) + int(more.split()[1]) == len(labels) > 4
    assert all(start in in_file for start in starts)
    # In a file, the bandwidth on the card is among the results, with the lines that copies read.
    rows = [line for line in in_file.split("\n") if line.startswith(labels)]
    assert len(rows) == len(labels)
    assert sum(quantity(verdicts[0].expected[0].reaches, "GB/s") in row for row in rows) == 1


def test_each_host_has_its_section_and_the_topology_goes_to_the_host_that_it_names(tmp_path: Path) -> None:
    first, second = Machine(2, 4, host="n1"), Machine(2, 4, host="n2")
    records = [*first.topology(), *first.latency(), *second.topology(), *second.latency()]
    _, page, document = built_report(tmp_path, records, topology_xml=second.xml())
    assert [h["host"] for h in document["hosts"]] == ["n1", "n2"]
    assert [h["topology"] is None for h in document["hosts"]] == [True, False]
    assert "Cache sizes are not marked, because the topology of this host was not given." in page
    assert page.count("<caption>NUMA nodes</caption>") == 1
    assert page.count("L3 16 MiB</text>") == 1
    assert "Topology on n1: no topology (hwloc XML) of this host was given" in page


def test_a_single_repetition_has_no_spread(tmp_path: Path) -> None:
    record = Machine().contention()[0]
    summary, page, _ = built_report(tmp_path, [replace(record, samples=(1.0,))])
    assert "Measured once each, so the spread is unknown." in page
    assert "%" not in summary.table()


def test_references_are_beside_what_was_measured(tmp_path: Path) -> None:
    def find(record: Record) -> Reference | None:
        if record.metric != "theoretical_bandwidth":
            return None
        return Reference(record.check, record.metric, {}, 51.2, -0.0625, None, "GB/s", "data sheet, page 3", 0)

    _, page, document = built_report(tmp_path, Machine().topology(), references=find)
    metrics = {m["metric"]: m["reference"] for m in document["hosts"][0]["checks"]["topology"]}
    stated = {"value": 51.2, "lower": 48.0, "upper": None, "source": "data sheet, page 3"}
    assert metrics["theoretical_bandwidth"] == stated
    assert metrics["pus"] is None
    assert "data sheet, page 3" in page


def test_only_the_stated_time_differs_between_reports_whatever_the_order_of_the_records(
    whole: Report, tmp_path: Path
) -> None:
    later = NOON.replace(hour=13)
    built_report(tmp_path, whole.records[::-1], topology_xml=whole.machine.xml(), generated=later)
    for name in ("index.html", "summary.md", "summary.json"):
        texts = [
            (folder / name).read_text(encoding="utf-8").replace(when.isoformat(timespec="seconds"), "WHEN")
            for folder, when in ((whole.folder, NOON), (tmp_path, later))
        ]
        assert texts[0] == texts[1], name
        assert "WHEN" in texts[0]


def test_a_ticket_names_a_metric_as_verdicts_do(tmp_path: Path) -> None:
    """Results, invalid records and references have the names of Case.title, as the evidence of verdicts."""
    records = [r for r in Machine(2, 4).everything() if r.check in {"latency", "bandwidth", "contention"}]
    wrong = next(r for r in records if r.metric == "triad_bandwidth")
    records += [replace(wrong, status="invalid", reason="pages elsewhere")]
    order = Reference("", "", {}, 1.0, -0.1, None, "", "order", 0)
    summary, page, _ = built_report(tmp_path, records, references=lambda _: order)
    ticket = (tmp_path / "summary.md").read_text()
    (view,) = [view for view, _ in summary.hosts]
    titles = {Case.from_record(r).title_of_metric for r in view.valid}
    for _, lines in summary.hosts:
        for line in lines:
            assert line.label.split(",")[0] in titles
    assert "triad, NUMA 0 to bank 0, 4 threads" in ticket.partition("Invalid records")[2].partition("\n## ")[0]
    references = page.partition(">References<")[2].partition("</table>")[0]
    assert "copy, NUMA 0 to bank 1, 4 threads" in references
    for raw in ("copy_bandwidth", "triad_bandwidth", "random_latency", "copy bandwidth"):
        assert raw not in ticket.replace("\\_", "_")
        assert raw not in references


def test_a_value_that_stands_for_several_says_so(tmp_path: Path) -> None:
    """The latency of the lowest NUMA node is shown, with the range of all local ones."""
    records = [
        replace(r, samples=(80.0 + 5 * node,), parameters={**r.parameters, "pu_nodes": [node], "bank": node})
        for node in range(3)
        for r in Machine(1, 4).latency()
        if r.metric == "random_latency" and r.parameters["size_bytes"] == 1 << 27
    ]
    assert records
    summary, page, _ = built_report(tmp_path, records)
    (line,) = [line for _, lines in summary.hosts for line in lines if line.record]
    assert (line.label, line.compared) == ("random latency, 128 MiB", "NUMA node 0, all local ones 80 to 90")
    assert "Random latency, 128 MiB: 80 ns; NUMA node 0, all local ones 80 to 90." in page
