# SPDX-License-Identifier: Apache-2.0
"""The sections for MultiQC; tests/workflows/test_multiqc.py gives them to the real program."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from factories.host_records import Machine, invalid
from firsttouch.judge.verdict import Finding, HostVerdict
from firsttouch.report import model, multiqc
from firsttouch.report.speedups import METRIC


def test_a_host_has_its_values_and_its_scenarios_their_times() -> None:
    records = Machine(2, 4).everything()
    files = multiqc.of_hosts(model.split(records, (), None), [])
    hosts, scenarios = (json.loads(files[name]) for name in (multiqc.HOSTS, multiqc.SCENARIOS))
    (row,) = hosts["data"].values()
    assert row.keys() == hosts["headers"].keys() == {"latency", "bandwidth"}
    times = [time for runs in scenarios["data"].values() for time in runs.values()]
    assert sorted(times) == sorted(r.value for r in records if r.metric == METRIC)


def test_no_name_is_html() -> None:
    name = "<img src=x onerror=alert(1)>\"'&"
    records = [
        replace(
            r,
            host=name,
            parameters={k: name if k in {"aligner", "scenario"} else v for k, v in r.parameters.items()},
        )
        for r in Machine(2, 4).everything()
    ]
    files = multiqc.of_hosts(model.split(records, (), None), [])
    fault = Finding("latency", "random_latency", {"bank": 0}, "ns", (1.0,), None, "fail", name)
    files["fleet"] = multiqc.of_hosts([], [HostVerdict(name, "s", (fault,), 0, ()).summary])[multiqc.HOSTS]
    (files["run"],) = multiqc.of_records(records).values()
    assert len(files) == 4
    for text in files.values():
        assert "img src" in text
        assert not set("<>'") & set(text)


def test_only_valid_times_make_a_section() -> None:
    (run, *_) = Machine(1, 2).scaling()
    times = {f"{run.parameters['scenario']}, 1 thread": run.value}
    assert json.loads(multiqc.of_records([run])[multiqc.SCENARIOS])["data"] == {"bwa-mem, lambda": times}
    assert multiqc.of_records([invalid(run)]) == {}
    assert multiqc.of_hosts([], []) == {}


@pytest.mark.parametrize(("file", "says"), [("x.json", "must end with _mqc.json")])
def test_a_name_that_multiqc_does_not_find_is_refused_before_any_work(run_cli, file, says):
    done = run_cli("run", "1x-default", "--multiqc", file)
    assert (done.status, done.out) == (2, "")
    assert says in done.err


def test_a_run_of_a_command_has_columns_of_the_general_statistics():
    run = {"seconds": 3.5, "scenario": {"name": "2x-<b>"}, "placement": "verified"}
    section = json.loads(multiqc.of_run("a<b", run))
    assert section["plot_type"] == "generalstats"
    row = {"seconds": 3.5, "scenario": "2x-&lt;b&gt;", "placement": "verified"}
    assert section["data"] == {"a&lt;b": row}
    assert [key for head in section["pconfig"] for key in head] == [*row]
