# SPDX-License-Identifier: Apache-2.0
"""Wald's sequential probability ratio test, on columns of samples.

Two hypotheses are weighed (A. Wald, Sequential tests of statistical hypotheses, 1945): that a host loses nothing
of a metric, and that it loses as much as must be detected. A repetition that loses more than the *limit* is
evidence for the second hypothesis, in proportion. The evidence of one repetition is bounded (P. J. Huber, A robust
version of the probability ratio test, 1965): a fail takes at least :data:`FEWEST_TO_FAIL` repetitions, a pass
takes one.

Samples are not normally distributed: a host is slow now and then, and never fast. Limit and error are therefore
learnt from real samples. Wald's bounds hold for any distribution if the mean of exp(evidence) is 1 for a good
host, and so is the mean of exp(-evidence) for a bad one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


#: Rows that are longer are not sorted as a whole. A single row of at least so many values is huge.
_LONG, _HUGE = 64, 1 << 14
#: The most values of a block of groups.
_BLOCK = 1 << 14


def _with_places(rows: Floats, *places: int) -> Floats:
    """Return rows (the last axis) in which what sorting puts at *places* is there."""
    return np.partition(rows, places, axis=-1) if rows.shape[-1] > _LONG else np.sort(rows, axis=-1)


def medians(rows: Floats) -> Floats:
    """Return the median of each row (the last axis). To sort short rows takes a third of numpy.median's time."""
    if rows.shape[-1] == 1:
        return rows[..., 0]
    middle = rows.shape[-1] // 2
    if rows.shape[-1] == rows.size >= _HUGE:
        import polars as pl  # noqa: PLC0415 - a large import

        # A third of the time of numpy.partition, or less.
        series = pl.Series(rows.ravel())
        ends = np.array([series.quantile(0.5, "lower"), series.quantile(0.5, "higher")], dtype=np.float64)
        return np.full(rows.shape[:-1], ends.sum() / 2)
    ordered = _with_places(rows, middle - 1, middle)
    if rows.shape[-1] % 2:
        return ordered[..., middle]
    result: Floats = (ordered[..., middle - 1] + ordered[..., middle]) / 2
    return result


def quantiles(rows: Floats, share: float) -> Floats:
    """Return the quantile of each row (the last axis) as numpy.quantile does, faster for short rows."""
    place = share * (rows.shape[-1] - 1)
    below = min(int(place), max(rows.shape[-1] - 2, 0))
    ordered = _with_places(rows, below, min(below + 1, rows.shape[-1] - 1))[..., below : below + 2]
    low, high, part = ordered[..., 0], ordered[..., -1], place - below
    result: Floats = low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part)
    return result


class Groups(Struct, frozen=True, dict=True):
    """Groups of samples: *values* holds one group after the other, *counts* the size of each (1 or more).

    Statistics are computed for all groups of one size at once.
    """

    values: Floats
    counts: Ints

    def __len__(self) -> int:
        return len(self.counts)

    @cached_property
    def begins(self) -> Ints:
        """Where each group begins in ``values``."""
        return np.cumsum(self.counts) - self.counts

    @property
    def ends(self) -> Ints:
        """Where the last value of each group is in ``values``."""
        return self.begins + self.counts - 1

    def rows(self, group: int) -> slice:
        """Return the rows of one group in ``values``."""
        return slice(int(self.begins[group]), int(self.begins[group] + self.counts[group]))

    @cached_property
    def _sizes(self) -> list[tuple[int, Ints]]:
        """Each size that groups have, ascending, and the numbers of the groups that have it."""
        sizes = np.flatnonzero(np.bincount(self.counts)).tolist()
        return [(size, np.flatnonzero(self.counts == size)) for size in sizes]

    def blocks(self) -> Iterator[tuple[Any, Floats]]:
        """Yield the index of groups of one size and their values (a row per group), the smallest sizes first.

        Blocks are small enough for a processor's caches.
        """
        for size, which in self._sizes:
            step, is_alike = max(1, _BLOCK // size), len(which) == len(self)
            if is_alike:
                rows = self.values.reshape(-1, size)
            else:  # windows, without the checks of sliding_window_view, which take as long as a block
                (stride,) = self.values.strides
                shape = (len(self.values) - size + 1, size)
                rows = as_strided(self.values, shape, (stride, stride), writeable=False)
            for first in range(0, len(which), step):
                part = slice(first, first + step)
                yield (part, rows[part]) if is_alike else (which[part], rows[self.begins[which[part]]])

    def apply(self, function: Callable[[Floats], Floats]) -> Floats:
        """Return a value per group; *function* computes those of groups of one size, given as rows."""
        result = np.empty(len(self))
        for which, rows in self.blocks():
            result[which] = function(rows)
        return result

    @cached_property
    def medians(self) -> Floats:
        """The median of each group."""
        return self.apply(medians)

    def sums(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the sum of *values* (one for each of ``values``) over each group."""
        return np.add.reduceat(values, self.begins) if len(self) < len(values) else values.copy()

    def chosen(self, which: Bools) -> Groups:
        """Return the groups of a mask (one flag per group)."""
        if which.all():
            return self
        return Groups(self.values[np.repeat(which, self.counts)], self.counts[which])


#: The largest share of validations in which a good metric fails. A host may have thousands of metrics.
FALSE_ALARM = 1e-7
#: The largest share of validations that miss the loss that must be detected.
OVERLOOKED = 2e-3
#: The fewest repetitions for a fail. With these, one repetition in 25 may be disturbed, however badly.
FEWEST_TO_FAIL = 5
#: The fewest sessions for a fail by comparison with a host's own level, if each has a single repetition.
FEWEST_SESSIONS_TO_FAIL = 3
#: A smaller error than this share of the limit changes no decision, and no error is known that well.
_LEAST_ERROR = 0.05
#: About how many values stand for a sample, and how many of a normal distribution are added to it: the middles of
#: equal shares.
_VALUES = 96
_EXPECTED = np.array([statistics.NormalDist().inv_cdf((i + 0.5) / 32) for i in range(32)])

FAIL_AT = math.log((1 - OVERLOOKED) / FALSE_ALARM)
PASS_AT = -math.log((1 - FALSE_ALARM) / OVERLOOKED)
_MOST = FAIL_AT / FEWEST_TO_FAIL * (1 + 1e-9)
#: A host changed between two sessions if the repetitions before and after are evidence for opposite hypotheses,
#: this much each. A single repetition that is clearly bad or clearly good is enough. A good host's repetitions
#: reach it by chance in at most exp(-CHANGED), one of 22 validations.
CHANGED = -PASS_AT / 2
#: The largest share of good hosts on which evidence that is short of a fail is called beyond chance, whatever the
#: number of their metrics; see :func:`firsttouch.judge.statistics.beyond_chance`.
CHANCE = 0.01


def weights(losses: Floats, limit: float | Floats, error: float | Floats) -> Floats:
    """Return the evidence of each of some repetitions: a sum of FAIL_AT is a fail, one of PASS_AT a pass.

    *losses* and *limit* are fractions of the expected value (above 0: worse). *error* is the relative standard
    deviation of one repetition, or what :func:`fitted` returns in its place. Both may be columns.
    """
    gain = 2 * limit / np.maximum(error, _LEAST_ERROR * limit) ** 2
    return _bounded(gain * (losses - limit))


def reach(limit: float, error: float) -> float:
    """Return the loss above which a repetition adds no more evidence."""
    return limit + _MOST * max(error, _LEAST_ERROR * limit) ** 2 / (2 * limit)


def repetitions_to_fail(evidence: Floats, limit: float | Floats, error: float | Floats) -> Floats:
    """Return how many more repetitions, on average, fail a host that loses twice the *limit*."""
    limit, error = np.asarray(limit)[..., None], np.asarray(error)[..., None]
    each = weights(2 * limit + error * _EXPECTED, limit, error).mean(axis=-1)
    count: Floats = np.ceil((FAIL_AT - evidence) / np.maximum(each, 1e-9))
    return count


def certainty(evidence: float) -> float:
    """Return the probability of the likelier hypothesis if both were equally likely before."""
    return 1 / (1 + math.exp(-min(abs(evidence), 700)))


def certainty_text(evidence: float) -> str:
    """Return the certainty as text; it never says 100 %."""
    share = 100 * certainty(evidence)
    if share > 99.9999:
        return "over 99.9999 % sure"
    return f"{share:.{4 if share > 99.99 else 2}f} % sure"


def fitted(losses: Floats, error: float, loss: float) -> float | None:
    """Return the error with which repetitions such as *losses* of good hosts detect *loss*, twice the limit.

    *error* is the standard deviation of *losses* without outliers. The result is the standard deviation of a
    normal distribution whose repetitions are as informative, or None if no number of repetitions would detect the
    loss.
    """
    deviation = max(error, _LEAST_ERROR * loss / 2)
    # A few repetitions show little of their distribution, so expected ones are added.
    sample, shares = _summarised(np.concatenate([losses, deviation * _EXPECTED]))
    best, most = 0.0, loss / deviation**2
    gain, step = most, most / 2
    for _ in range(10):
        if _holds(sample, shares, gain, loss / 2):
            best = gain
            gain += step
        else:
            gain -= step
        step /= 2
        if best == most:
            break
    return math.sqrt(loss / best) if best else None


def _bounded(evidence: Floats) -> Floats:
    return _clipped(evidence, PASS_AT, _MOST)


def _clipped(values: Floats, low: float, high: float) -> Floats:
    return np.minimum(np.maximum(values, low), high)  # a third of numpy.clip's time for few values


def _summarised(values: Floats) -> tuple[Floats, Floats]:
    """Return about :data:`_VALUES` values of a sample and their shares. Its ends stay exact: they matter most."""
    ordered = np.sort(values, kind="stable")  # which is fast if they are sorted but for a few
    ends = _VALUES // 4
    if len(ordered) <= _VALUES:
        return ordered, np.full(len(ordered), 1 / len(ordered))
    inner = ordered[ends:-ends]
    begins = np.arange(0, len(inner), math.ceil(len(inner) / (2 * ends)))
    counts = np.diff(begins, append=len(inner))
    means = np.add.reduceat(inner, begins) / counts
    alone = np.ones(2 * ends)
    return np.concatenate([ordered[:ends], ordered[-ends:], means]), np.concatenate([alone, counts]) / len(ordered)


def _holds(sample: Floats, shares: Floats, gain: float, limit: float) -> bool:
    """Return whether exp(evidence) of good repetitions and exp(-evidence) of bad ones are at most 1 on average."""
    good = np.exp(_bounded(gain * (sample - limit)))
    bad = np.exp(_clipped(-gain * (sample + limit), -_MOST, -PASS_AT))
    return bool(shares @ good <= 1 and shares @ bad <= 1)
