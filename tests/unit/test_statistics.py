# SPDX-License-Identifier: Apache-2.0
"""Statistical inference, compared with SciPy."""

import math

import numpy as np
import pytest
import scipy  # its parts are imported when they are used, not while tests are collected
from hypothesis import given
from hypothesis import strategies as st

from firsttouch import statistics

SEEDS = st.integers(0, 2**32 - 1)


def samples(seed, size):
    return np.random.default_rng(seed).standard_t(4, size)


@given(SEEDS, st.integers(-3, 3), st.sampled_from([1, 2, 5]), st.integers(20, 99))
def test_decimal_step_of_rounded_values(seed, place, multiple, usual):
    step = multiple * 10.0**place
    values = (usual + np.resize([0, 1, 3], 60)) * step
    assert statistics.decimal_step(values) == pytest.approx(step)
    assert statistics.decimal_step(values.astype(np.float32)) == pytest.approx(step)
    assert statistics.decimal_step(values * (1 + 0.001 * samples(seed, 60))) == 0


@given(st.integers(1, 999_999), st.integers(-15, 15))
def test_decimal_numbers_are_the_same_in_four_bytes(digits, place):
    value = float(f"{digits}e{place}")
    assert statistics.seven_digits(np.array([value, -value, 0.0], dtype=np.float32)).tolist() == [
        value,
        -value,
        0.0,
    ]


@pytest.mark.parametrize(("values", "step"), [((92.0, 96.0), 4.0), ((32.0, 36.0), 1.0)])
def test_the_step_of_two_values_that_are_near_is_their_common_divisor(values, step):
    assert statistics.decimal_step(np.repeat(values, 9)) == step


def test_the_step_of_ticks_is_the_smallest_difference():
    ticks = np.repeat([37, 38, 40], 9) / math.pi
    assert statistics.decimal_step(ticks.astype(np.float32)) == pytest.approx(1 / math.pi, rel=1e-5)


@pytest.mark.parametrize("values", [[31.0], [31.0] * 9, [31.0, 32.0], [1 / 3, 1 / 7] * 8])
def test_values_that_show_no_step(values):
    assert statistics.decimal_step(np.array(values)) == 0


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
