# SPDX-License-Identifier: Apache-2.0
"""The shared test data keep what they promise."""

import os
import sys
from pathlib import Path

import pytest

from factories import huge_pages
from factories.processes import captured

#: Tests that fail if their name is in FAILING; those with the marker timing pass when they run alone.
FAILING_TESTS = """
import os, pytest
from factories.processes import captured
failing, alone = os.environ["FAILING"].split(), "FIRSTTOUCH_ALONE" in os.environ
@pytest.mark.timing
def test_busy(): assert alone or "busy" not in failing
@pytest.mark.timing
def test_broken(): assert "broken" not in failing
@pytest.mark.timing
def test_skipped():
    if alone: pytest.skip("unknown")
    assert "skipped" not in failing
def test_wrong(): assert "wrong" not in failing
def test_stopped():
    if "stopped" in failing: raise KeyboardInterrupt
"""


@pytest.mark.parametrize(
    ("failing", "status", "result"),
    [
        ("busy", 0, "1 failed; alone: passed, so the run passes"),
        ("busy broken", 1, "2 failed; alone: failed again"),
        ("busy stopped", 2, ""),
    ],
)
def test_failures_that_depend_on_time_are_repeated_alone(
    tmp_path: Path, failing: str, status: int, result: str
) -> None:
    (tmp_path / "conftest.py").write_text("from factories.repetition import *")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = timing: depends on time")
    (tmp_path / "test_times.py").write_text(FAILING_TESTS)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment |= {"FAILING": failing, "PYTHONPATH": str(Path(__file__).parents[1])}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = captured([sys.executable, "-m", "pytest", "-q", "-p", "no:xdist"], cwd=tmp_path, env=environment)
    assert done.returncode == status, done.stdout
    last = done.stdout.splitlines()[-1]
    assert last == f"with others: {result}" if result else "with others" not in done.stdout


@pytest.mark.parametrize(
    ("counter", "is_excused"), [("thp_fault_fallback", True), ("thp_file_fallback", True), ("x", False)]
)
def test_a_failure_is_excused_only_if_the_kernel_lacked_huge_pages(tmp_path, monkeypatch, counter, is_excused):
    monkeypatch.setattr(huge_pages, "VMSTAT", tmp_path / "vmstat")
    counts = dict.fromkeys(("nr_free_pages", "thp_fault_fallback", "thp_file_fallback"), 7)

    @huge_pages.needed()
    def fail():
        huge_pages.VMSTAT.write_text("".join(f"{name} {n}\n" for name, n in (counts | {counter: 9}).items()))
        raise AssertionError

    huge_pages.VMSTAT.write_text("".join(f"{name} {number}\n" for name, number in counts.items()))
    with pytest.raises(pytest.skip.Exception if is_excused else AssertionError):
        fail()
