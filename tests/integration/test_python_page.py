# SPDX-License-Identifier: Apache-2.0
"""The example of the manual's page "From Python", and the names that it lists."""

import re
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

import documented
import firsttouch
from factories.processes import captured

PAGE = (documented.ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")


def test_the_example_runs_as_it_stands(tmp_path, monkeypatch):
    monkeypatch.setenv("FIRSTTOUCH_EFFORT", "smoke")
    (example,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    done = captured([sys.executable, "-c", example], cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^1x\d+-default: \d+\.\d\d s, (valid|invalid) ", done.stdout, re.MULTILINE)
    assert "summing" in (tmp_path / "report" / "index.html").read_text()
    names = {record.check for record in firsttouch.read_records(tmp_path / "records.jsonl")}
    assert {"topology", "summing"} <= names


def test_the_page_lists_the_public_names():
    assert set(firsttouch.__all__) <= set(re.findall(r"\w+", PAGE))
    for name in firsttouch.__all__:
        assert getattr(firsttouch, name).__doc__
        # As notebooks show them.
        assert get_type_hints(getattr(firsttouch, name)) is not None


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: firsttouch.measure_aspect(firsttouch.AspectRequest("latencies")), "did you mean 'latency'"),
        (lambda: firsttouch.ProgramSpec([], "x"), "no program is named"),
        (lambda: firsttouch.measure_program(firsttouch.ProgramSpec(["true"], "x"), repetitions=0), "at least 1"),
        (lambda: firsttouch.read_records(Path("none.jsonl")), "none.jsonl: cannot be read: No such file"),
        (lambda: firsttouch.align([], firsttouch.AlignRequest()), "no command"),
    ],
)
def test_wrong_requests_are_errors_of_this_package(call, reason):
    with pytest.raises(firsttouch.BadInput, match=reason):
        call()
