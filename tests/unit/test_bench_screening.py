# SPDX-License-Identifier: Apache-2.0
"""The simulation of screening: costs that keep to the budget, and detection where hosts differ."""

import math
import runpy
from dataclasses import replace
from types import SimpleNamespace

import pytest

from firsttouch.paths import ROOT

bench = SimpleNamespace(**runpy.run_path(str(ROOT / "bench" / "screening.py")))
SMALL = replace(bench.REGIMES[1], hosts=400, hours=120 * bench.DAY)


def test_no_policy_exceeds_its_budget_and_due_is_faster_than_a_sweep_where_hosts_differ():
    budget = bench.weekly(SMALL)
    scores = {policy: bench.simulate(SMALL, 1, 1.0, policy, budget) for policy in (bench.due, bench.sweep, None)}
    for score in scores.values():
        assert score.node_hours <= budget * 365 * 1.01
        assert score.incidents > 50
    assert scores[bench.due].median < 0.6 * scores[bench.sweep].median
    assert scores[bench.sweep].p95 < 7.5 * bench.DAY < scores[None].p95
    assert scores[bench.sweep] == bench.simulate(SMALL, 1, 1.0, bench.sweep, budget)


def test_unlimited_scavenging_takes_all_idle_time():
    score = bench.simulate(SMALL, 1, 0.9, None)
    assert score.node_hours == pytest.approx(400 * (1 - bench.BUSY) * bench.YEAR)
    # Mean time until an idle time is long enough and the bad host is detected, as computed by hand.
    assert score.median == pytest.approx(math.log(2) * (6 + 2 / 3) / (0.9 * math.exp(-0.75)), rel=0.2)
