# SPDX-License-Identifier: Apache-2.0
"""summary.prom in base units, as the parsers of OpenMetrics and of node exporter read it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as classic
from test_verdict import of_copies, rates

from factories.host_records import Machine
from firsttouch import cli
from firsttouch.judge.judging import judge
from firsttouch.records.schema import append
from firsttouch.report import model
from firsttouch.report import openmetrics as module


def text(records, verdicts=()):
    return module.summary(model.split(records, (), None), verdicts, generated=1.7e9)


def samples(content, parse=openmetrics):
    return [sample for family in parse(content) for sample in family.samples]


def test_the_parser_of_node_exporter_reads_the_same():
    # It supports only the types of Prometheus's text format and no timestamps, and takes # EOF for a comment.
    content = text(Machine(1, 2).everything())
    assert content.endswith("# EOF\n")
    assert {line.split()[3] for line in content.splitlines() if line.startswith("# TYPE")} == {"gauge"}
    assert all(s.timestamp is None for s in samples(content))
    assert [(s.name, s.labels, s.value) for s in samples(content, classic)] == [
        (s.name, s.labels, s.value) for s in samples(content)
    ]


def test_the_verdict_is_one_of_five(tmp_path):
    system = of_copies(tmp_path)
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
    verdicts = judge(rates(1.0, 1.0, host="n1"), of_copies(tmp_path))
    judged = samples(module.summary([], [v.summary for v in verdicts], generated=1.7e9))
    assert [s.labels["verdict"] for s in judged if s.name == "firsttouch_verdict" and s.value] == ["fail"]


def test_the_summary_of_a_fleet_has_verdicts_losses_and_times_and_no_parameters(tmp_path):
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
    document = json.loads((out / "summary.json").read_text())
    assert document["kind"] == "fleet"
    verdicts = {
        s.labels["host"]: s.labels["verdict"] for s in series if s.name == "firsttouch_verdict" and s.value
    }
    (system,) = document["systems"]
    assert verdicts == {h["host"]: h["verdict"] for h in system["hosts"]}
    assert len(set(verdicts.values())) > 1


def test_the_speed_of_an_emulated_host_is_not_exported():
    records = [replace(r, software={"emulator": "QEMU"}) for r in Machine(1, 2).everything()]
    names = {s.name for s in samples(text(records))}
    assert not [n for n in names if n.endswith("_second") or n.endswith("latency_seconds")]
    assert "firsttouch_measured_timestamp_seconds" in names


@given(st.text(min_size=1, max_size=12))
def test_any_name_of_a_host_can_be_read_back(name):
    records = [
        replace(r, host=host) for host in (name, 'quote " slash \\ line\n') for r in Machine(1, 2).topology()
    ]
    series = [s for s in samples(text(records)) if "host" in s.labels]
    assert len(series) == len({view.host for view in model.split(records, (), None)})
    assert len([s for s in samples(text(records), classic) if "host" in s.labels]) == len(series)
