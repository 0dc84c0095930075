# SPDX-License-Identifier: Apache-2.0
"""Results without a value in a report: invalid, superseded and unreadable records, and missing checks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from msgspec.structs import replace

from factories.host_records import Machine, built_report, invalid
from firsttouch.errors import BadInput
from firsttouch.report.model import Problem
from firsttouch.report.pages import build


def test_an_invalid_record_is_listed_with_its_reason_and_never_a_value(tmp_path: Path) -> None:
    machine = Machine(1, 2)
    records = machine.everything()
    wrong = {
        r.metric: replace(invalid(r), samples=(987654.0, 987655.0, 987656.0))
        for r in (records[5], records[-2], machine.contention()[0], machine.counters()[0])
    }
    assert len(wrong) == 4
    summary, page, document = built_report(tmp_path, [*records, *wrong.values()])
    everything = page + summary.table() + (tmp_path / "summary.md").read_text() + json.dumps(document)
    assert "98765" not in everything
    metrics = [m for metrics in document["hosts"][0]["checks"].values() for m in metrics]
    refused = [m for m in metrics if m["status"] == "invalid"]
    assert [(m["value"], m["spread"], m["minimum"]) for m in refused] == [(None, None, None)] * 4
    assert {m["reason"] for m in refused} == {"11 % of the pages lie on NUMA node 3"}
    before_results = page.split("Results of")[0]
    assert before_results.count("<s>") == 4
    assert before_results.count("11 % of the pages lie on NUMA node 3") == 4
    assert "Invalid records: 4." in summary.table()


def test_only_invalid_records_make_a_report_without_figures(tmp_path: Path) -> None:
    records = [invalid(r) for r in Machine(2, 4).everything()]
    summary, page, document = built_report(tmp_path, records)
    assert "<svg" not in page
    # Figures that are missing for one reason are one line.
    assert page.count("all its records are invalid: 11 % of the pages lie on NUMA node 3") == 1
    assert document["records"] == {"valid": 0, "invalid": len(records), "superseded": 0}
    assert "This host has no valid result." in page
    for text in (summary.table(), (tmp_path / "summary.md").read_text()):
        assert f"Invalid records: {len(records)}." in text


def test_nothing_at_all_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no record to report"):
        build([], tmp_path, topology_xml=None)
    assert not list(tmp_path.iterdir())


def test_problems_alone_make_a_report(tmp_path: Path) -> None:
    problems = [Problem("latency_check", "failed", "lat_mem_rd ended with status 7", "latency", "n1")]
    summary, page, document = built_report(tmp_path, [], problems=problems)
    assert "lat_mem_rd ended with status 7" in page
    assert document["hosts"] == []
    assert "Checks: 1 failed. Invalid records: 0." in summary.table()
    assert pl.read_parquet(tmp_path / "records.parquet").height == 0


def test_problems_are_listed_first_and_say_why_a_figure_is_missing(tmp_path: Path) -> None:
    problems = [
        Problem("stream_check", "skipped", "no stream program on PATH", "bandwidth", "n1"),
        Problem("contention_check %threads=4", "failed", "the probe was killed by signal 9", "contention", "n1"),
    ]
    machine = Machine(1, 4)
    _, page, document = built_report(tmp_path, machine.topology() + machine.latency(), problems=problems)
    first, rest = page.split("Results of n1")
    assert "1 check failed: contention_check %threads=4." in first
    first = first.split("What was not measured</h2>")[1]
    assert first.index("the probe was killed by signal 9") < first.index("no stream program on PATH")
    assert "Bandwidth from PU-set to memory bank: skipped: no stream program on PATH" in first
    assert "Contention for one memory bank: failed: the probe was killed by signal 9" in first
    assert "the records of this report contain none of this check" in first
    assert "Contention" not in rest
    assert [p["kind"] for p in document["problems"]] == ["skipped", "failed"]


def test_the_failure_of_one_check_does_not_explain_another(tmp_path: Path) -> None:
    problems = [
        Problem("weak_scaling %threads=4", "failed", "it was killed", check="weak_scaling"),
        Problem("latency_lmbench", "skipped", "no lat_mem_rd on PATH", check="latency_lmbench"),
    ]
    _, page, _ = built_report(tmp_path, Machine(1, 4).topology(), problems=problems)
    shown = page.split("Missing values and figures")[1]
    assert "Latency of a load" in shown
    assert "no lat_mem_rd on PATH" not in shown
    # The figure of throughput, not the figures of scaling.
    assert re.findall("<li>(.+): failed: it was killed</li>", shown) == ["Throughput by threads"]


@pytest.mark.parametrize(
    ("check", "broken"),
    [
        ("latency", {"size_bytes": "many"}),
        ("bandwidth", {"bank": -1}),
        ("scaling", {"threads": 0}),
        ("placement", {"instances": float("inf")}),
        ("contention", {"threads": True}),
    ],
)
def test_a_record_that_fits_no_figure_is_listed_as_a_problem(
    tmp_path: Path, check: str, broken: dict[str, Any]
) -> None:
    records = [r for r in Machine(1, 2).everything() if r.check == check]
    whole = records[0]
    odd = replace(whole, parameters={**whole.parameters, **broken})
    _, page, document = built_report(tmp_path, [*records, odd])
    (name,) = broken
    (problem,) = document["problems"]
    assert (problem["kind"], problem["check"]) == ("invalid", check)
    assert f"parameter {name} is {broken[name]!r}" in problem["reason"]
    assert "the record cannot be shown" in page.split("Results of")[0]


def test_reruns_supersede_and_what_came_of_a_run_is_not_its_case(tmp_path: Path) -> None:
    first = Machine(1, 2).scaling()[0]
    later = replace(
        first,
        samples=(50.0,),
        time="2024-05-02T10:00:00.000+00:00",
        parameters={**first.parameters, "cpu_seconds": 1.5, "alignments_sha256": "ab" * 32},
    )
    events = replace(later, metric="cache_misses", unit="1", better="neither", samples=(12345.0,))
    _, page, document = built_report(tmp_path, [later, first, events])
    assert document["records"] == {"valid": 2, "invalid": 0, "superseded": 1}
    (choice,) = document["guidelines"][0]["choices"]
    assert [a["value"]["value"] for a in choice["alternatives"]] == [50.0]
    details = page.split("Details</h3>")[1]
    assert "cache_misses" in details
    assert "12345" in details
    assert "abab" not in page
