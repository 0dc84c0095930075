# SPDX-License-Identifier: Apache-2.0
"""A new check needs an entry of the catalogue, a module that measures it and one that shows it, and no more."""

import json
import sys

import pytest
from msgspec.structs import replace

from firsttouch import benchmarks, paths
from firsttouch.benchmarks import measure
from firsttouch.benchmarks.cases import topology_of
from firsttouch.campaign import campaigns
from firsttouch.judge import baseline
from firsttouch.records import catalogue, samples_table
from firsttouch.records.cases import Case
from firsttouch.report import aspects, pages
from firsttouch.systems.definition import Undescribed, load

ENTRY = """
[first_touch]
title = "First touch"
parameters = ["program", "bank", "pages"]
named = ["pages"]
needed = { bank = "nodes" }
drawn = true
metrics = { fault_time = { unit = "us", better = "lower" } }

["odd.name"]
metrics = { x = "1" }
parameters = []
"""
MEASURING = """
from firsttouch.benchmarks.measure import Benchmark
from firsttouch.records.schema import Record


def _measure(host, asked, say):
    for bank in asked.banks or host.memory_nodes:
        parameters = {"program": "touch", "bank": bank, "pages": "base"}
        yield [Record("first_touch", "fault_time", "us", "lower", (0.5, 0.6), parameters, host="n1", system="s")]


BENCHMARK = Benchmark(_measure, frozenset({"banks"}), ("touch",), validates=False)
"""
SHOWING = """
from firsttouch.report.aspect import Aspect, Chart, Result
from firsttouch.report.document import Table
from firsttouch.report.model import Absent


def aspect(view):
    records = view.select("first_touch")
    if not records:
        return Aspect(absent=[Absent("Faults of all banks", view.why_absent("first_touch"))])
    tables = [Table("Banks with a fault", ("bank",), [("0",)])]
    chart = Chart("faults", "Faults of all banks", "Short is good.", ["It is shown."], tables=tables)
    return Aspect(
        [Result("first touch", record) for record in records],
        [chart],
    )
"""


@pytest.fixture
def new_check(tmp_path, monkeypatch):
    caches = (catalogue.catalogue, measure.aspects)
    (tmp_path / "metrics.toml").write_text(ENTRY)
    built_in, *others = paths.tables_of("metrics.toml")
    monkeypatch.setattr(paths, "tables_of", lambda _name: [built_in, *others, tmp_path / "metrics.toml"])
    for package, text in ((benchmarks, MEASURING), (aspects, SHOWING)):
        folder = tmp_path / package.__name__
        folder.mkdir()
        (folder / "first_touch.py").write_text(text)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    for function in caches:
        function.cache_clear()
    yield
    for function in caches:
        function.cache_clear()
    for package in (benchmarks, aspects):
        sys.modules.pop(f"{package.__name__}.first_touch", None)


@pytest.fixture
def records(new_check):
    host = topology_of(load("intel-xeon").facts)
    return [
        record
        for step in measure.measure(host, measure.AspectRequest("first-touch", banks=[0, 1]))
        for record in step
    ]


def test_it_is_measured_and_planned(records, tmp_path, run_cli):
    assert [r.parameters["bank"] for r in records] == [0, 1]
    done = run_cli("measure", "first-touch", "--threads", "1")
    assert done.status == 2
    assert "--threads is not an option of first-touch" in done.err
    planned = {"system": "amd-opteron", "dataset": "lambda", "aligners": (), "repetitions": 3}
    steps = {
        kind: {s.name for s in campaigns.plan(kind, tmp_path / kind, **planned).steps}
        for kind in ("characterize", "validate")
    }
    assert "first-touch" in steps["characterize"] - steps["validate"]


def test_it_is_reported_in_a_section_with_headlines(records, tmp_path):
    pages.build(records, tmp_path)
    page = (tmp_path / "index.html").read_text()
    section = page.split("More results</h3>")[1].split("<h3")[0]
    assert "Faults of all banks" in section
    assert "Banks with a fault" in section
    assert "Short is good." in section
    assert "Counters and other metrics" not in page
    (host,) = json.loads((tmp_path / "summary.json").read_text())["hosts"]
    assert [line["label"] for line in host["headlines"]] == ["first touch"] * 2
    without_bank = [replace(r, parameters={"program": "touch"}) for r in records]
    pages.build(without_bank, tmp_path)
    assert "the record cannot be shown: parameter bank is None" in (tmp_path / "index.html").read_text()


def test_its_cases_have_names_and_references(records):
    cases = samples_table.of_records(records, "s").cases
    assert [c.title for c in cases] == [f"fault time, bank {bank}, base pages, touch" for bank in (0, 1)]
    learnt = baseline.learnt(samples_table.of_records(records, "s"), Undescribed("s"))
    assert {case.name for case, _ in learnt.not_learnt} == {c.name for c in cases}
    assert Case.from_record(records[0]).key == cases[0].key
