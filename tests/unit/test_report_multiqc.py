# SPDX-License-Identifier: Apache-2.0
"""The sections for MultiQC; tests/workflows/test_multiqc.py gives them to the real program."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from factories.host_records import Machine, invalid
from firsttouch.report import multiqc


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
    text = multiqc.of_records(records)
    assert "img src" in text
    assert not set("<>'") & set(text)


def test_only_valid_times_make_a_section() -> None:
    (run, *_) = Machine(1, 2).scaling()
    times = {f"{run.parameters['scenario']}, 1 thread": run.value}
    assert json.loads(multiqc.of_records([run]))["data"] == {"bwa-mem, lambda": times}
    assert not multiqc.of_records([invalid(run)])


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
