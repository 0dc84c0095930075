# SPDX-License-Identifier: Apache-2.0
"""Losses as logarithms, the step of rounded values, limits, and the tails of distributions.

The tests compare the tails with SciPy, which is not needed at run time.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from firsttouch.records.groups import Bools, Floats, Ints
from firsttouch.units import Better

FloatOrFloats = TypeVar("FloatOrFloats", float, Floats)
#: The most decimal places of a value that is treated as rounded.
_MOST_DECIMALS = 6


def as_logarithm(loss: float) -> float:
    """Return a loss (a fraction) as a logarithm; at most 99.9 % is assumed."""
    return -math.log1p(-min(loss, 0.999))


def as_fraction(loss: float) -> float:
    """Return a loss (a logarithm) as a fraction."""
    return -math.expm1(-loss)


def seven_digits(values: NDArray[Any]) -> Floats:
    """Return *values* of four bytes as decimal numbers of seven digits, or of six if they are the same."""
    wide = values.astype(np.float64)
    with np.errstate(divide="ignore"):
        place = np.where(wide == 0, 5, 5 - np.floor(np.log10(np.abs(wide)))).astype(np.int64)
    six, seven = (_rounded(wide, places) for places in (place, place + 1))
    return np.where(six.astype(np.float32) == values, six, seven)


def _rounded(values: Floats, places: Ints) -> Floats:
    """Return values with some decimal places each."""
    # Powers of ten above 1 are exact, their reciprocals are not.
    unit = 10.0 ** np.abs(places)
    return np.where(places >= 0, np.rint(values * unit) / unit, np.rint(values / unit) * unit)


def decimal_step(values: NDArray[Any]) -> float:
    """Return the step in which positive *values* are given, 0.0 if they are not rounded.

    Values are rounded if at least half of them are equal to others. The step is their last decimal place, or a
    multiple of it by which three or more distinct values differ, or of which two are multiples that are near. Of
    values with many decimals, such as ticks of a timer, it is the smallest difference.
    """
    distinct = np.unique(values)
    if not 1 < len(distinct) <= len(values) / 2:
        return 0.0
    first = math.floor(math.log10(distinct[-1]))
    for place in range(first, first - _MOST_DECIMALS, -1):
        scaled = distinct / 10.0**place
        if (np.abs(scaled - np.rint(scaled)) < np.maximum(1e-6, 2e-7 * scaled)).all():
            integers = np.rint(scaled).astype(np.int64)
            multiples = np.diff(integers) if len(integers) > 2 else integers
            # Two values further apart are of unequal hosts.
            multiple = 1 if len(integers) == 2 and integers[1] > 1.05 * integers[0] else np.gcd.reduce(multiples)
            return float(multiple) * 10.0**place
    gaps = np.diff(distinct)
    gap = float(gaps[gaps > 1e-5 * distinct[1:]].min(initial=math.inf))
    return gap if gap < 0.1 * distinct[-1] else 0.0


def normal_tails(distance: Floats) -> Floats:
    """Return an upper bound of the probability that a standard normal variable is beyond +-*distance* (above 0).

    Each tail is at most the density divided by the distance (R. D. Gordon, Values of Mills' ratio, 1941), and at
    most half of exp(-distance**2 / 2).
    """
    bound: Floats = np.exp(-(distance**2) / 2) * np.minimum(
        1.0, math.sqrt(2 / math.pi) / np.maximum(distance, 1e-9)
    )
    return bound


def student_as_normal(distance: Floats, freedom: Floats | float) -> Floats:
    """Return the standard normal variable with about the tail of Student's variable *distance*.

    D. L. Wallace's approximation (Bounds on normal approximations to Student's and the chi-square distributions,
    1959). *freedom* are the degrees of freedom.
    """
    normal: Floats = (8 * freedom + 1) / (8 * freedom + 3) * np.sqrt(freedom * np.log1p(distance**2 / freedom))
    return normal


def chance_of_change(distance: Floats, freedom: float, places: Floats | Ints | int) -> Floats:
    """Return an upper bound of the probability that chance causes a change in a stable series of values.

    *distance* (0 or more) is the distance of both sides in standard deviations, which have *freedom* degrees of
    freedom. The change is the clearest of *places* possible ones.
    """
    chance: Floats = np.minimum(normal_tails(student_as_normal(distance, freedom)) * places, 1.0)
    return chance


def student_quantile(tail: float, freedom: FloatOrFloats) -> FloatOrFloats:
    """Return the quantile of Student's distribution with this upper *tail* probability, for any *freedom*.

    The inverse of :func:`student_as_normal`. It is too large: for a tail of 0.0005 by 9 % with 3 degrees of
    freedom, 1.2 % with 6 and 0.3 % with 10; for a tail of 0.025 by 38 % with 1 degree and 4 % with 2.
    """
    z = -NormalDist().inv_cdf(tail) * (8 * freedom + 3) / (8 * freedom + 1)
    quantile: FloatOrFloats = np.sqrt(freedom * np.expm1(np.minimum(z * z / freedom, 700.0)))
    return quantile


def beyond_limits(values: Floats, better: Better, minimum: float | None, maximum: float | None) -> Floats:
    """Return by how much values are worse than their limits allow (logarithms); -1.0 where nothing limits them."""
    beyond = np.full(len(values), -1.0)
    is_positive = values > 0
    if better != "lower" and minimum and minimum > 0:
        beyond[is_positive] = math.log(minimum) - np.log(values[is_positive])
    if better != "higher" and maximum and maximum > 0:
        beyond[is_positive] = np.maximum(beyond[is_positive], np.log(values[is_positive]) - math.log(maximum))
    return beyond


def out_of_limits(
    values: Floats, better: Better, minimum: float | None, maximum: float | None
) -> tuple[Bools, Bools]:
    """Return which values are worse than their limits allow, and which are better than these allow."""
    none = np.zeros(len(values), dtype=np.bool_)
    low = none if minimum is None else values < minimum
    high = none if maximum is None else values > maximum
    return {"higher": (low, high), "lower": (high, low)}.get(better, (low | high, none))
