# SPDX-License-Identifier: Apache-2.0
"""Distributions that several rooms of the judgement need."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from firsttouch.judge.sprt import Floats

#: Median of the absolute value of a standard normal variable.
NORMAL_MEDIAN = 0.6745


def student_as_normal(distance: Floats, freedom: Floats) -> Floats:
    """Return the standard normal variable with about the tail of Student's variable *distance*.

    D. L. Wallace's approximation (Bounds on normal approximations to Student's and the chi-square distributions,
    1959). *freedom* are the degrees of freedom.
    """
    normal: Floats = (8 * freedom + 1) / (8 * freedom + 3) * np.sqrt(freedom * np.log1p(distance**2 / freedom))
    return normal


def student_quantile(tail: float, freedom: float) -> float:
    """Return the quantile of Student's distribution with this upper *tail* probability.

    The inverse of :func:`student_as_normal`. For a tail of 0.0005 it is too large by 9 % with 3 degrees of
    freedom, by 1.2 % with 6 and by 0.3 % with 10.
    """
    z = -NormalDist().inv_cdf(tail) * (8 * freedom + 3) / (8 * freedom + 1)
    return math.sqrt(freedom * math.expm1(min(z * z / freedom, 700.0)))
