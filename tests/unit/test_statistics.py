# SPDX-License-Identifier: Apache-2.0
"""Statistical inference, compared with SciPy or with all possible cases."""

import itertools
import math
import sys

import numpy as np
import pytest
import scipy  # its parts are imported when they are used, not while tests are collected
from hypothesis import example, given, settings
from hypothesis import strategies as st

from firsttouch.judge import statistics

SEEDS = st.integers(0, 2**32 - 1)


def samples(seed, size):
    return np.random.default_rng(seed).standard_t(4, size)


# ----------------------------------------------------------------------
# Location and scale


@given(SEEDS, st.integers(1, 60))
def test_robust_deviation(seed, size):
    values = samples(seed, size)
    expected = scipy.stats.median_abs_deviation(values, scale="normal")
    # 0.6745 has four digits.
    assert statistics.robust_deviation(values - np.median(values)) == pytest.approx(expected, rel=2e-5)


@given(SEEDS, st.integers(2, 60))
def test_robust_variance_is_that_of_winsorised_values(seed, size):
    values = samples(seed, size)
    centre, deviation = np.median(values), scipy.stats.median_abs_deviation(values, scale="normal")
    near = np.clip(values, centre - 2.5 * deviation, centre + 2.5 * deviation)
    assert statistics.robust_variance(values) == pytest.approx(((near - centre) ** 2).mean(), rel=1e-4)


@given(SEEDS, st.integers(1, 5), st.integers(1, 60))
def test_robust_location_is_hubers(seed, count, size):
    rows = samples(seed, (count, size))
    centre = statistics.robust_location(rows, 1.0)
    assert centre.shape == (count,)
    for row, value in zip(rows, centre, strict=True):
        if size <= 2:
            assert value == np.median(row)
        else:  # Huber's estimate solves this equation; eight steps come near to it.
            assert abs(np.clip(row - value, -1.5, 1.5).mean()) < 0.02
    assert statistics.robust_location(np.full((1, 9), 3.0), 1.0) == [3.0]


@given(SEEDS, st.integers(-3, 3), st.sampled_from([1, 2, 5]), st.integers(20, 99))
def test_decimal_step_of_rounded_values(seed, place, multiple, usual):
    step = multiple * 10.0**place
    values = (usual + np.resize([0, 1, 3], 60)) * step
    assert statistics.decimal_step(values) == pytest.approx(step)
    assert statistics.decimal_step(values * (1 + 0.001 * samples(seed, 60))) == 0


@pytest.mark.parametrize("values", [[31.0], [31.0] * 9, [31.0, 32.0], [1 / 3, 1 / 7] * 8])
def test_values_that_show_no_step(values):
    assert statistics.decimal_step(np.array(values)) == 0


@given(SEEDS, st.lists(st.integers(1, 8), min_size=1, max_size=6))
def test_pooled_variance_is_that_of_an_analysis_of_variance(seed, sizes):
    groups = [samples(seed + i, size) for i, size in enumerate(sizes)]
    variance, freedom = statistics.pooled_variance([g.tolist() for g in groups])
    assert freedom == sum(sizes) - len(sizes)
    if freedom and len(sizes) > 1:
        means = np.array([g.mean() for g in groups])
        all_values = np.concatenate(groups)
        between = (np.array(sizes) * (means - all_values.mean()) ** 2).sum() / (len(sizes) - 1)
        assert between / variance == pytest.approx(scipy.stats.f_oneway(*groups).statistic, rel=1e-6)


# ----------------------------------------------------------------------
# Distributions


@pytest.mark.parametrize("share", [0.1, 0.5, 0.993, 1.0])
def test_truncated_deviation(share):
    end = scipy.stats.norm.ppf((1 + share) / 2)
    assert statistics.truncated_deviation(share) == pytest.approx(scipy.stats.truncnorm.std(-end, end), rel=1e-6)


def test_normal_tails_are_an_upper_bound():
    distance = np.linspace(0, 30, 601)
    bound, exact = statistics.normal_tails(distance), 2 * scipy.stats.norm.sf(distance)
    assert (bound >= exact * (1 - 1e-12)).all()
    assert (bound[distance > 3] <= 1.12 * exact[distance > 3]).all()


@pytest.mark.parametrize("freedom", [1, 2, 3, 5, 10, 30, 300])
def test_student_as_normal(freedom):
    distance = np.array([0.5, 2.0, 4.0, 8.0])
    exact = scipy.stats.norm.isf(scipy.stats.t.sf(distance, freedom))
    assert statistics.student_as_normal(distance, freedom) == pytest.approx(exact, rel=0.08 / freedom)


@pytest.mark.parametrize(
    ("tail", "freedom"),
    [(0.01, 4), (5e-4, 4), (5e-4, 8), (5e-6, 8), (5e-4, 30), (5e-6, 30), (5e-6, 300), (5e-4, 6.5)],
)
def test_student_quantile_errs_to_the_wide_side(tail, freedom):
    expected = scipy.stats.t.isf(tail, freedom)
    assert expected * 0.999 <= statistics.student_quantile(tail, freedom) <= expected * 1.05


@given(st.floats(0.5, 0.9999), st.integers(1, 200))
def test_student_interval(confidence, freedom):
    expected = scipy.stats.t.ppf((1 + confidence) / 2, freedom)
    assert statistics.student_interval(confidence, freedom) == pytest.approx(expected, rel=1e-8)


@given(st.floats(0.25, 1e4))
def test_digamma_and_trigamma(x):
    assert statistics.digamma(np.array(x)) == pytest.approx(scipy.special.digamma(x), rel=1e-5, abs=1e-6)
    assert statistics.trigamma(np.array(x)) == pytest.approx(scipy.special.polygamma(1, x), rel=1e-5)
    inverse = statistics.trigamma_inverse(float(scipy.special.polygamma(1, x)))
    assert inverse == pytest.approx(x, rel=1e-4)


# ----------------------------------------------------------------------
# Signs


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 3))
def test_sign_test(up, down, zeros):
    p = statistics.sign_test(np.array([0.1] * up + [-0.2] * down + [0.0] * zeros))
    assert p == pytest.approx(scipy.stats.binomtest(up, up + down).pvalue if up + down else 1.0, rel=1e-9)


@pytest.mark.parametrize("count", [1000, 1001, 20_000])
def test_sign_test_of_many(count):
    up = count // 2 - 2 * math.isqrt(count)
    p = statistics.sign_test(np.arange(count) - up + 0.5)
    assert p == pytest.approx(2 * scipy.stats.binom.cdf(up, count, 0.5), rel=1e-8)


@given(SEEDS, st.integers(1, 400), st.sampled_from([0.9, 0.95, 0.99]))
def test_median_interval(seed, size, confidence):
    values = samples(seed, size)
    interval = statistics.median_interval(values, confidence)
    exact = scipy.stats.quantile_test(values, q=0, p=0.5).confidence_interval(confidence)
    if interval is None:
        assert math.isnan(exact.low) or math.isnan(exact.high)
    else:
        assert interval == (exact.low, exact.high)


@settings(max_examples=20)
@given(SEEDS, st.sampled_from([8, 9, 30, 1200]), st.floats(-0.05, 0.05))
def test_the_interval_holds_the_median_as_often_as_it_says(seed, hosts, true):
    rng = np.random.default_rng(seed)
    missed = 0
    for _ in range(100):
        low, high = statistics.median_interval(true + 0.02 * rng.standard_t(2, hosts), 0.99)
        missed += not low <= true <= high
    # 1 of 100 is expected; 9 or more have a probability below 1e-5.
    assert missed < 9


@given(st.integers(0, 200), st.integers(1, 200), st.floats(1e-6, 0.999))
def test_binomial_tail_is_an_upper_bound(count, trials, probability):
    count = min(count, trials)
    bound = statistics.binomial_tail(np.array([count]), np.array([trials]), np.array([probability]))[0]
    exact = scipy.stats.binom.sf(count - 1, trials, probability)
    # Below the smallest normal number a double has too few digits to be compared.
    assert exact * (1 - 1e-6) <= bound <= 1 or exact < sys.float_info.min
    # Chernoff's bound misses at most a factor that grows with the square root of the number of trials.
    if count > probability * trials:
        assert bound <= exact * 10 * (1 + trials) * (1 + 1e-6)


# ----------------------------------------------------------------------
# Corrections


@given(st.lists(st.floats(0, 1), max_size=7))
def test_holm_is_bonferronis_correction_of_every_subset(chances):
    """Holm's procedure is the closed test with Bonferroni's correction of every intersection of hypotheses."""
    corrected = statistics.holm(np.array(chances, dtype=float)).tolist()
    places = range(len(chances))
    subsets = [s for size in places for s in itertools.combinations(places, size + 1)]
    for place, result in enumerate(corrected):
        closed = max(min(1.0, len(s) * min(chances[i] for i in s)) for s in subsets if place in s)
        assert result == pytest.approx(closed)


@given(st.lists(st.floats(-6, 20), min_size=1, max_size=30), st.lists(st.floats(-6, 20), max_size=30))
@example([8.6, 8.6, *[-6.0] * 98], [4.7])
def test_beyond_chance_is_the_procedure_of_benjamini_and_hochberg(evidence, of_other):
    """exp(-evidence) takes the place of a probability; each owner is tested alone."""
    owners = np.array([0] * len(evidence) + [1] * len(of_other))
    beyond = statistics.beyond_chance(np.array([*evidence, *of_other]), owners, 0.01)
    for owner, values in enumerate((evidence, of_other)):
        if values:
            corrected = scipy.stats.false_discovery_control(np.minimum(1, np.exp(-np.array(values))))
            decided = np.abs(corrected - 0.01) > 1e-12
            assert (beyond[owners == owner] == (corrected <= 0.01))[decided].all()
