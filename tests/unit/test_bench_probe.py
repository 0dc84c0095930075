# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the probe: what makes its rates comparable."""

import runpy
import subprocess

import pytest

from firsttouch.paths import ROOT


@pytest.fixture(scope="module")
def bench():
    return runpy.run_path(str(ROOT / "bench" / "probe.py"))


def test_other_programs_get_no_transparent_huge_pages(bench):
    def enabled():
        status = subprocess.run(["cat", "/proc/self/status"], check=True, capture_output=True, text=True).stdout
        return [line.split()[1] for line in status.splitlines() if line.startswith("THP_enabled:")]

    before = enabled()
    if not before:
        pytest.skip("this kernel does not state it")
    with bench["base_pages"]():
        assert enabled() == ["0"]
    assert enabled() == before
