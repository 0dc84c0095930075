# SPDX-License-Identifier: Apache-2.0
"""The natural spread between good hosts: bad hosts do not widen it, and few hosts do not narrow it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttouch.judge.natural_spread import pooled, spread_of
from firsttouch.judge.statistics import student_quantile


@pytest.mark.parametrize("count", [5, 8, 16, 50, 300])
def test_a_good_host_is_beyond_the_limit_as_rarely_as_stated(count):
    """The probability is exact for each simulated fleet: that of a normal distribution below its limit."""
    rng = np.random.default_rng(count)
    tail, normal = 5e-4, []
    for _ in range(2000 if count < 100 else 400):
        spread = spread_of(rng.standard_normal(count))
        reach = student_quantile(tail, spread.freedom) * spread.deviation * np.sqrt(1 + 1 / spread.hosts)
        normal.append(0.5 * _erfc((reach - spread.centre) / np.sqrt(2)))
    assert np.mean(normal) < 2 * tail


def _erfc(x):
    import math  # noqa: PLC0415

    return math.erfc(x)


@pytest.mark.parametrize("share", [0.1, 0.25, 0.4])
@pytest.mark.parametrize("count", [10, 20, 50, 300])
def test_bad_hosts_do_not_widen_the_spread(share, count):
    rng = np.random.default_rng(count)
    levels = 1 + 0.01 * rng.standard_normal(count)
    bad = int(share * count)
    levels[:bad] -= rng.uniform(0.2, 0.5, bad)
    spread = spread_of(levels)
    assert not spread.good[:bad].any()
    assert spread.deviation < 0.02
    assert abs(spread.centre - 1) < 0.02
    # A host that loses a quarter is beyond the limit.
    assert student_quantile(5e-4, spread.freedom) * spread.deviation < 0.25


def test_a_few_hosts_that_are_near_each_other_do_not_make_the_others_bad():
    """Six of eight good hosts within 0.2 % of each other: the limit is wide, as they may be so by chance."""
    spread = spread_of(np.array([1.0, 1.0005, 1.001, 1.0005, 1.0015, 1.002, 0.99, 1.012]))
    assert student_quantile(5e-4, spread.freedom) * spread.deviation > 0.01


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0.5, 2), min_size=3, max_size=60), st.floats(1e-3, 1e3), st.randoms())
def test_the_spread_depends_on_neither_unit_nor_order(levels, unit, random):
    spread = spread_of(np.array(levels))
    order = list(range(len(levels)))
    random.shuffle(order)
    other = spread_of(unit * np.array(levels)[order])
    assert spread.hosts >= len(levels) // 2 + 1
    assert other.deviation == pytest.approx(unit * spread.deviation, rel=1e-4, abs=1e-6 * unit)


class TestPooled:
    @staticmethod
    def spreads(shared, deviations, hosts=8):
        """Return spreads and levels of metrics that share a part of what the hosts differ."""
        rng = np.random.default_rng(3)
        common = rng.standard_normal(hosts)
        levels = [
            1 + d * (np.sqrt(shared) * common + np.sqrt(1 - shared) * rng.standard_normal(hosts))
            for d in deviations
        ]
        return [spread_of(x) for x in levels], levels

    def test_independent_metrics_teach_more_than_one(self):
        spreads, levels = self.spreads(0.0, [0.01] * 60)
        for deviation, freedom in pooled(spreads, levels):
            assert freedom > 12 > spreads[0].freedom
            assert deviation == pytest.approx(0.01, rel=0.4)

    def test_metrics_that_share_what_hosts_differ_teach_no_more_than_one(self):
        spreads, levels = self.spreads(1.0, [0.01] * 60)
        assert pooled(spreads, levels) == [(s.deviation, s.freedom) for s in spreads]

    def test_metrics_with_other_spreads_keep_them(self):
        spreads, levels = self.spreads(0.0, [0.001, 0.1] * 30, hosts=30)
        deviations = [deviation for deviation, _ in pooled(spreads, levels)]
        assert max(deviations[::2]) < 0.005
        assert min(deviations[1::2]) > 0.02

    def test_few_metrics_are_left_alone(self):
        spreads, levels = self.spreads(0.0, [0.01] * 3)
        assert pooled(spreads, levels) == [(s.deviation, s.freedom) for s in spreads]
