# SPDX-License-Identifier: Apache-2.0
"""The guideline in the report shows the results of real runs and real advice."""

import json

import pytest

from firsttouch.advice import advice_text
from firsttouch.records import schema


def test_runs_and_advice_become_a_guideline(run_here, lambda_part, tmp_path):
    data = {**lambda_part, "FIRSTTOUCH_SYSTEM": "amd-opteron"}
    file, saved = tmp_path / "runs" / "records.jsonl", tmp_path / "runs" / "bwa.advice.json"
    file.parent.mkdir()
    options = ("--aligner=bwa-mem", "--dataset=lambda")
    for scenario in ("1x-default", "2x-bound"):
        done = run_here("run", scenario, *options, "--repetitions=2", f"--records={file}", **data)
        assert done.returncode == 0, done.stderr
    done = run_here("advise", *options, "--budget=1", f"--save={saved}", "--json", **data)
    assert done.returncode == 0, done.stderr
    advice = json.loads(done.stdout)
    assert advice_text.read(saved) == advice

    out = tmp_path / "report"
    done = run_here("report", file.parent, "-o", out, **data)
    assert done.returncode == 0, done.stderr
    (guide,) = json.loads((out / "summary.json").read_text())["guidelines"]
    assert (guide["system"], guide["aligner"]) == ("amd-opteron", "bwa-mem")
    by_source = {c["source"]: c for c in guide["choices"]}
    assert set(by_source) == {"measured", "advised"}
    times = {r.parameters["scenario"]: r.value for r in schema.collect([file])}
    shown = {a["scenario"]: a["value"]["value"] for a in by_source["measured"]["alternatives"]}
    assert shown == pytest.approx(times)
    assert by_source["advised"]["recommended"] == advice["recommended"]
    names = {r["name"] for r in advice["scenarios"]}
    advised = by_source["advised"]
    assert {a["scenario"] for a in advised["alternatives"]} | {d["scenario"] for d in advised["dropped"]} == names
    assert "Which scenario to use" in (out / "index.html").read_text()
