# SPDX-License-Identifier: Apache-2.0
"""The section for MultiQC; tests/workflows/test_multiqc.py gives it to the real program."""

from __future__ import annotations

import json

import pytest

from firsttouch.cli.run_command import Aligned, multiqc_section


@pytest.mark.parametrize(("file", "says"), [("x.json", "must end with _mqc.json")])
def test_a_name_that_multiqc_does_not_find_is_refused_before_any_work(run_cli, file, says):
    done = run_cli("run", "--multiqc", file, "--", "bwa", "mem", "index", "reads")
    assert (done.status, done.out) == (2, "")
    assert says in done.err


def test_a_run_has_columns_of_the_general_statistics_without_html():
    run = {"seconds": 3.5, "scenario": {"name": "2x-<b>"}, "placement": "verified"}
    section = json.loads(multiqc_section(Aligned(run, "a<b")))
    assert section["plot_type"] == "generalstats"
    row = {"seconds": 3.5, "scenario": "2x-&lt;b&gt;", "placement": "verified"}
    assert section["data"] == {"a&lt;b": row}
    assert [key for head in section["pconfig"] for key in head] == [*row]
