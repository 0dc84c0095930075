# SPDX-License-Identifier: Apache-2.0
"""The guideline in the report shows the results of real runs."""

import json

import pytest

from firsttouch.records import schema


def test_runs_become_a_guideline(run_here, lambda_part, tmp_path):
    data = {**lambda_part, "FIRSTTOUCH_SYSTEM": "amd-opteron"}
    file, out = tmp_path / "records.jsonl", tmp_path / "report"
    for scenario in ("1x-default", "2x-bound"):
        options = ("--aligner=bwa-mem", "--dataset=lambda", "--repetitions=2", f"--records={file}")
        done = run_here("run", scenario, *options, **data)
        assert done.returncode == 0, done.stderr
    done = run_here("report", file, "-o", out, **data)
    assert done.returncode == 0, done.stderr
    (guide,) = json.loads((out / "summary.json").read_text())["guidelines"]
    assert (guide["system"], guide["aligner"]) == ("amd-opteron", "bwa-mem")
    (choice,) = guide["choices"]
    times = {r.parameters["scenario"]: r.value for r in schema.collect([file])}
    shown = {a["scenario"]: a["value"]["value"] for a in choice["alternatives"]}
    assert shown == pytest.approx(times)
    assert "Which scenario to use" in (out / "index.html").read_text()
