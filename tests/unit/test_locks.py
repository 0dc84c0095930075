# SPDX-License-Identifier: Apache-2.0
"""Locks: the runs of the probe, and its output."""

from __future__ import annotations

from typing import Any

import pytest

from firsttouch.benchmarks import locks, probe, profiles


@pytest.mark.parametrize(
    ("most", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (128, [1, 2, 4, 8, 16, 32, 64, 128])]
)
def test_threads_and_the_runs_that_measure_them(most: int, counts: list[int]) -> None:
    assert locks.thread_counts(most) == counts
    *fewer, widest = locks.runs(counts, profiles.efforts()["full"])
    assert widest[:2] == [f"--threads={most}", "--batch=1,2,4,8,16,32,64,128,256"]
    assert len(fewer) == (most > 1)
    assert all("--batch=32" in options for options in fewer)


def test_rates_and_waiting_from_the_output_of_the_probe(golden: Any) -> None:
    records = probe.Report().take(golden("probe_locks.jsonl").encode())
    assert {r.metric for r in records} == {"lock_records", "lock_waiting"}
    assert {(r.check, r.status) for r in records} == {("locks", "valid")}
    waiting = {r.parameters["lock"] for r in records if r.metric == "lock_waiting"}
    assert waiting == {"spin", "queue"}
