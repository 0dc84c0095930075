# SPDX-License-Identifier: Apache-2.0
"""Files that a run of an aligner writes for pipelines: a section of MultiQC and a table of one row."""

import csv
import json

import pytest


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
