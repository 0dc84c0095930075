# SPDX-License-Identifier: Apache-2.0
"""The natural spread between good hosts: bad hosts do not widen it, and few hosts do not narrow it."""

import numpy as np
import pytest

from firsttouch.judge.natural_spread import spread_of
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
