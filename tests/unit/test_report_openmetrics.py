# SPDX-License-Identifier: Apache-2.0
"""metrics.prom in base units, as the parsers of OpenMetrics and of node exporter read it."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from junitparser import JUnitXml
from msgspec.structs import replace
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as classic
from test_verdict import LIMITS, rates, system_of

from factories.host_records import Machine
from firsttouch import cli
from firsttouch.judge.judging import judge
from firsttouch.records.schema import append
from firsttouch.report import model
from firsttouch.report import openmetrics as module
from firsttouch.units import UNITS


def text(records, verdicts=()):
    return module.text(model.split(records, (), None), verdicts, generated=1.7e9)


def samples(content, parse=openmetrics):
    return [sample for family in parse(content) for sample in family.samples]


def test_every_case_is_a_series_in_base_units():
    machine = Machine(2, 4)
    records = machine.everything()
    series = samples(text(records))
    latency = next(
        s for s in series if s.name == "firsttouch_random_latency_seconds" and s.labels["size_bytes"] == "512"
    )
    assert {k: latency.labels[k] for k in ("host", "system", "partition", "check", "pu_nodes", "bank")} == {
        "host": "n1",
        "system": "example",
        "partition": "all",
        "check": "latency",
        "pu_nodes": "0",
        "bank": "0",
    }
    expected = [r for r in machine.latency() if r.metric == "random_latency" and r.parameters["size_bytes"] == 512]
    assert latency.value == pytest.approx(expected[0].value * 1e-9, rel=0.05)
    rate = next(s for s in series if s.name == "firsttouch_copy_bandwidth_bytes_per_second")
    assert 1e9 < rate.value < 1e11
    values = [s for s in series if s.name not in {"firsttouch_spread_ratio", "firsttouch_records"}]
    assert len(values) == len(records) + 1  # and the time
    spreads = [s for s in series if s.name == "firsttouch_spread_ratio"]
    assert all(0 <= s.value < 1 and s.labels["metric"] for s in spreads)


def test_the_parser_of_node_exporter_reads_the_same():
    # It supports only the types of Prometheus's text format and no timestamps, and takes # EOF for a comment.
    content = text(Machine(1, 2).everything())
    assert content.endswith("# EOF\n")
    assert {line.split()[3] for line in content.splitlines() if line.startswith("# TYPE")} == {"gauge"}
    assert all(s.timestamp is None for s in samples(content))
    assert [(s.name, s.labels, s.value) for s in samples(content, classic)] == [
        (s.name, s.labels, s.value) for s in samples(content)
    ]


@pytest.mark.parametrize(
    ("unit", "base"),
    [
        ("ns", ("seconds", 1e-9)),
        ("GB/s", ("bytes_per_second", 1e9)),
        ("GiB", ("bytes", 2.0**30)),
        ("kreads/s", ("reads_per_second", 1e3)),
        ("1", ("", 1.0)),
        ("MHz", ("hertz", 1e6)),
        ("faults per read", ("faults_per_read", 1.0)),
    ],
)
def test_units_become_base_units(unit, base):
    assert module.base_unit(unit) == base


@pytest.mark.parametrize("unit", UNITS)
def test_every_unit_of_records_has_a_base_unit(unit):
    name, factor = module.base_unit(unit)
    assert re.fullmatch("[a-z_]+", name)
    assert factor > 0


def test_the_verdict_is_one_of_five(tmp_path):
    entry = {"check": "bandwidth", "metric": "copy_bandwidth", "value": "10 GB/s", "source": "an order"}
    system = system_of(tmp_path, {**entry, "tolerance": LIMITS["higher"]})
    records = [*rates(10.0, host="good"), *rates(1.0, 1.0, host="slow")]
    series = samples(text(records, [v.summary for v in judge(records, system)]))
    verdicts = {(s.labels["host"], s.labels["verdict"]): s.value for s in series if s.name == "firsttouch_verdict"}
    assert {key for key, value in verdicts.items() if value == 1} == {("good", "pass"), ("slow", "fail")}
    assert len(verdicts) == 10
    judged = {
        (s.labels["host"], s.labels["verdict"]): s.value for s in series if s.name.endswith("judged_metrics")
    }
    assert judged == {("slow", "fail"): 1, ("good", "pass"): 1}


def test_the_summary_of_a_host_has_few_series_without_parameters(tmp_path):
    machine = Machine(2, 4)
    records = machine.everything()
    some = model.split(records, (), None)
    content = module.summary(some, [], generated=1.7e9)
    series = {s.name: s for s in samples(content, classic)}
    assert len(series) == len(samples(content)) == 4
    assert {label for s in series.values() for label in s.labels} == {"host", "system", "version"}
    assert 50e-9 < series["firsttouch_local_latency_seconds"].value < 200e-9
    assert 1e9 < series["firsttouch_local_bandwidth_bytes_per_second"].value < 1e11
    entry = {"check": "bandwidth", "metric": "copy_bandwidth", "value": "10 GB/s", "source": "an order"}
    verdicts = judge(rates(1.0, 1.0, host="n1"), system_of(tmp_path, {**entry, "tolerance": LIMITS["higher"]}))
    judged = samples(module.summary([], [v.summary for v in verdicts], generated=1.7e9))
    assert [s.labels["verdict"] for s in judged if s.name == "firsttouch_verdict" and s.value] == ["fail"]


def test_the_summary_of_a_fleet_has_losses_and_times_and_no_parameters(tmp_path):
    append(tmp_path / "records.jsonl", [r for n in range(6) for r in rates(1.0 if n == 5 else 10.0, host=f"n{n}")])
    out = tmp_path / "report"
    assert cli.main(["report", str(tmp_path / "records.jsonl"), "-o", str(out)]) == 0
    series = samples((out / "summary.prom").read_text())
    losses = {s.labels["host"]: s.value for s in series if s.name == "firsttouch_worst_loss_ratio"}
    assert losses["n5"] == pytest.approx(0.9, abs=0.01)
    assert {host for host, loss in losses.items() if loss == 0} == {f"n{n}" for n in range(5)}
    assert {s.labels["host"] for s in series if s.name == "firsttouch_measured_timestamp_seconds"} == {*losses}
    assert {label for s in series for label in s.labels} == {"host", "system", "verdict", "version"}
    assert len(series) <= 15 * 6 + 1
    section = json.loads((out / "firsttouch_hosts_mqc.json").read_text())
    assert section["data"]["n5"]["loss"] == pytest.approx(90, abs=1)
    assert section["headers"].keys() == section["data"]["n5"].keys()


def test_invalid_records_are_counted_and_have_no_value():
    records = Machine(1, 2).contention()
    lost = [replace(r, status="invalid", reason="elsewhere") for r in records]
    series = samples(text(lost))
    counts = {s.labels["status"]: s.value for s in series if s.name == "firsttouch_records"}
    assert counts == {"valid": 0, "invalid": len(records)}
    assert not [s for s in series if "bandwidth" in s.name]


def test_the_speed_of_an_emulated_host_is_not_exported():
    records = [replace(r, software={"emulator": "QEMU"}) for r in Machine(1, 2).everything()]
    names = {s.name for s in samples(text(records))}
    assert not [n for n in names if n.endswith("_second") or n.endswith("latency_seconds")]
    assert "firsttouch_records" in names


def test_too_many_cases_are_only_counted(monkeypatch):
    monkeypatch.setattr(module, "MOST_CASES", 3)
    names = {s.name for s in samples(text(Machine(1, 2).everything()))}
    assert names == {"firsttouch_report_generated_timestamp_seconds", "firsttouch_records"}


def test_a_fleet_exports_its_verdicts(tmp_path):
    append(tmp_path / "records.jsonl", [r for n in range(6) for r in rates(1.0 if n == 5 else 10.0, host=f"n{n}")])
    out = tmp_path / "report"
    assert cli.main(["report", str(tmp_path / "records.jsonl"), "-o", str(out)]) == 0
    document = json.loads((out / "summary.json").read_text())
    assert document["kind"] == "fleet"
    series = samples((out / "summary.prom").read_text())
    verdicts = {
        s.labels["host"]: s.labels["verdict"] for s in series if s.name == "firsttouch_verdict" and s.value
    }
    (system,) = document["systems"]
    assert verdicts == {h["host"]: h["verdict"] for h in system["hosts"]}
    assert len(set(verdicts.values())) > 1
    suites = {suite.name: suite for suite in JUnitXml.fromfile(str(out / "junit.xml"))}
    assert {name: not [r for case in suite for r in case.result] for name, suite in suites.items()} == {
        host: word == "pass" for host, word in verdicts.items()
    }


@given(
    st.dictionaries(st.text(max_size=8), st.one_of(st.text(), st.integers(), st.none(), st.lists(st.integers()))),
    st.text(min_size=1, max_size=12),
    st.text(max_size=12),
)
def test_any_name_value_and_unit_can_be_read_back(parameters, metric, unit):
    record = replace(Machine(1, 2).counters()[0], parameters=parameters, metric=metric, unit=unit)
    other = replace(record, parameters={**parameters, "host": "x", "x": 'quote " slash \\ line\n'})
    content = text([record, other])
    series = samples(content)
    assert len([s for s in series if s.labels.get("check") == "counters"]) >= 2
    assert all(s.labels["host"] in {"n1"} for s in series if "host" in s.labels)
    assert len(samples(content, classic)) == len(series)
    json.dumps([s.labels for s in series])
