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


@pytest.mark.parametrize(
    ("others", "result", "share"),
    [([0.0], 0, 0.0), ([0.5, 0.02], 1, 0.02), ([0.5, 0.2, 0.4, 0.0], 1, 0.2)],
    ids=["quiet at once", "quiet the second time", "never quiet: the quietest of three"],
)
def test_a_disturbed_run_is_repeated(bench, monkeypatch, others, result, share):
    """Each run takes 10 s of all PUs; our programs are busy for 2 s of them, others for their share."""
    looks = [
        look
        for i, part in enumerate(others)
        for look in ((20.0 * i, 0.0, 0.0), (20.0 * i + 10, 2 + 10 * part, 2.0))
    ]
    monkeypatch.setitem(bench["quietest"].__globals__, "pu_seconds", iter(looks).__next__)
    shares, runs = [], iter(range(len(others)))
    assert bench["quietest"](lambda: next(runs), shares) == result
    assert shares == [pytest.approx(share)]
