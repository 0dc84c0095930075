# SPDX-License-Identifier: Apache-2.0
"""Files that a run writes for pipelines (a section of MultiQC, a table of one row), and the guideline of runs."""

import csv
import json

import pytest

from firsttouch.records import schema


@pytest.mark.parametrize("scenario", ["1x2-default", "2x1-interleave"])
def test_an_aligner_states_its_time_and_placement(run_here, lambda_work, tmp_path, scenario):
    # Batches that two instances share: bwa reads ten million bases a thread by default.
    prefix, reads, _ = lambda_work
    section, table = tmp_path / "a_mqc.json", tmp_path / "run.tsv"
    written = ("-o", tmp_path / "out.sam", "--multiqc", section, "--tsv", table)
    argv = ("run", "--json", *written, scenario, "--", "bwa", "mem", "-K", "100000", "-t", "2", prefix, *reads)
    done = run_here(*argv)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    columns = json.loads(section.read_text())["data"]["out"]
    assert (columns["scenario"], columns["placement"]) == (document["scenario"]["name"], "verified")
    with table.open(newline="") as text:
        (row,) = csv.DictReader(text, delimiter="\t")
    assert (row["sample"], row["scenario"], row["placement"]) == ("out", scenario, "verified")
    assert float(row["seconds"]) == pytest.approx(document["seconds"], abs=0.001)


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
