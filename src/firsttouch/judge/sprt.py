# SPDX-License-Identifier: Apache-2.0
"""Wald's sequential probability ratio test, on columns of samples."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

# ----------------------------------------------------------------------
# Groups of passes in columns: what is done with each group is done with all groups of one size at once.

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Groups:
    """Groups of values: *values* holds one group after the other, *counts* how many are in each (1 or more)."""

    values: Floats
    counts: Ints

    def __len__(self) -> int:
        return len(self.counts)

    @cached_property
    def begins(self) -> Ints:
        """Return where each group begins in ``values``."""
        return np.cumsum(self.counts) - self.counts

    @cached_property
    def alike(self) -> bool:
        """Tell whether all groups are of one size."""
        return bool(len(self.counts)) and bool((self.counts == self.counts[0]).all())

    def blocks(self) -> Iterator[tuple[Any, Floats]]:
        """Yield the groups of each size: which ones, and their values, a row per group."""
        if self.alike:
            yield slice(None), self.values.reshape(len(self.counts), -1)
            return
        for size in np.unique(self.counts):
            which = np.flatnonzero(self.counts == size)
            yield which, self.values[self.begins[which, None] + np.arange(size)]

    def of(self, function: Callable[[Floats], Floats]) -> Floats:
        """Return what *function* (rows of groups of one size to a value per row) gives of each group."""
        found = np.empty(len(self))
        for which, rows in self.blocks():
            found[which] = function(rows)
        return found

    def medians(self) -> Floats:
        """Return the median of each group."""
        return self.of(lambda rows: np.median(rows, axis=1) if rows.shape[1] > 1 else rows[:, 0])

    def sums(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the sum of *values* (one for each of ``values``) over each group."""
        return np.add.reduceat(values, self.begins) if len(self) < len(values) else values.copy()

    def chosen(self, which: Bools) -> Groups:
        """Return the groups of a mask (one for each group)."""
        if which.all():
            return self
        return Groups(self.values[np.repeat(which, self.counts)], self.counts[which])


def stable(keys: NDArray[np.int32]) -> NDArray[np.intp]:
    """Return the stable order of numbers from 0: digits of 16 bits are sorted in linear time."""
    order = np.argsort((keys & 0xFFFF).astype(np.uint16), kind="stable")
    if len(keys) and keys.max() > 0xFFFF:
        order = order[np.argsort((keys[order] >> 16).astype(np.uint16), kind="stable")]
    return order


# ----------------------------------------------------------------------
# How sure a verdict is: a sequential test of passes that no single noisy pass decides.
#
# Two hypotheses are weighed (A. Wald, Sequential tests of statistical hypotheses, 1945): that a host loses
# nothing of a metric, and that it loses as much as has to be found. A pass that loses more than the *limit*
# speaks for the second one, in proportion. What one pass can add is bounded (P. J. Huber, A robust version of
# the probability ratio test, 1965): a fail takes :data:`FEWEST_TO_FAIL` passes at least, a pass one.
#
# Passes are not normal: they are slow now and then, and never fast. So limit and error are made of real ones:
# whatever their distribution, Wald's bounds hold where the mean of exp(evidence) is 1 for a good host, and that
# of exp(-evidence) for a bad one.

#: A good metric fails in no more than this share of validations; a host may have thousands of metrics.
FALSE_ALARM = 1e-7
#: The loss that has to be found is overlooked in no more than this share.
OVERLOOKED = 2e-3
#: Passes that a fail takes at least. With so many, one in 25 may be disturbed, however badly.
FEWEST_TO_FAIL = 5
#: A smaller error than this share of the limit decides nothing more, and no error is known that well.
_LEAST_ERROR = 0.05
#: Passes are summed up by about so many values.
_VALUES = 96
#: As many passes of a standard normal distribution, at the middles of equal shares.
_EXPECTED = np.array([statistics.NormalDist().inv_cdf((i + 0.5) / 32) for i in range(32)])

FAIL_AT = math.log((1 - OVERLOOKED) / FALSE_ALARM)
PASS_AT = -math.log((1 - FALSE_ALARM) / OVERLOOKED)
_MOST = FAIL_AT / FEWEST_TO_FAIL * (1 + 1e-9)
#: A host changed between two of its sessions where the passes before and after speak for opposite sides, each with
#: this much evidence. A single pass that is clearly bad, or clearly good, is as much; a good host's passes come to
#: it by chance in exp(-CHANGED), one of 22 validations, at most.
CHANGED = -PASS_AT / 2


def weight(losses: Sequence[float], limit: float, error: float) -> float:
    """Return the evidence of some passes: at FAIL_AT or above it is a fail, at PASS_AT or below a pass.

    *losses* are fractions of what is expected (above 0: worse); the *error* is the relative standard deviation
    of one pass, or what takes its place (see :func:`fitted`).
    """
    return float(weights(np.asarray(losses, dtype=float), limit, error).sum())


def weights(losses: Floats, limit: float, error: float) -> Floats:
    """Return the evidence of each of some passes (see :func:`weight`)."""
    gain = 2 * limit / max(error, _LEAST_ERROR * limit) ** 2
    return _bounded(gain * (losses - limit))


def reach(limit: float, error: float) -> float:
    """Return the loss from which on a pass adds no more evidence."""
    return limit + _MOST * max(error, _LEAST_ERROR * limit) ** 2 / (2 * limit)


def certainty(evidence: float) -> float:
    """Return the probability of the likelier hypothesis, where both were as likely before."""
    return 1 / (1 + math.exp(-min(abs(evidence), 700)))


def told(evidence: float) -> str:
    """Return the certainty as a text: a whole one there is not."""
    share = 100 * certainty(evidence)
    if share > 99.9999:
        return "over 99.9999 % sure"
    return f"{share:.{4 if share > 99.99 else 2}f} % sure"


def fitted(losses: Floats, error: float, loss: float) -> float | None:
    """Return the error with which passes such as *losses* of good hosts find *loss*, half of which is the limit.

    *error* is their standard deviation, far ones aside. What is returned is that of a normal distribution of which
    a pass would tell as much; None where no number of passes would tell.
    """
    deviation = max(error, _LEAST_ERROR * loss / 2)
    # Few passes tell little of the shape: as many more as one would expect.
    sample, shares = _summed(np.concatenate([losses, deviation * _EXPECTED]))
    best, gain = 0.0, loss / deviation**2
    step = gain / 2
    for _ in range(10):
        if _holds(sample, shares, gain, loss / 2):
            best = gain
            gain += step
        else:
            gain -= step
        step /= 2
        if best == loss / deviation**2:
            break
    return math.sqrt(loss / best) if best else None


def _bounded(evidence: Floats) -> Floats:
    return _clipped(evidence, PASS_AT, _MOST)


def _clipped(values: Floats, low: float, high: float) -> Floats:
    return np.minimum(np.maximum(values, low), high)  # a third of numpy.clip's time for few values


def _summed(values: Floats) -> tuple[Floats, Floats]:
    """Return values and shares of a sample; those at the ends, which matter most, one by one."""
    ordered = np.sort(values)
    ends = _VALUES // 4
    if len(ordered) <= _VALUES:
        return ordered, np.full(len(ordered), 1 / len(ordered))
    inner = ordered[ends:-ends]
    begins = np.arange(0, len(inner), math.ceil(len(inner) / (2 * ends)))
    counts = np.diff(begins, append=len(inner))
    middles = np.add.reduceat(inner, begins) / counts
    alone = np.ones(ends)
    found = np.concatenate([ordered[:ends], ordered[-ends:], middles])
    return found, np.concatenate([alone, alone, counts]) / len(ordered)


def _holds(sample: Floats, shares: Floats, gain: float, limit: float) -> bool:
    """Tell whether exp(evidence) of good passes, and exp(-evidence) of bad ones, is at most 1 on average."""
    good = np.exp(_bounded(gain * (sample - limit)))
    bad = np.exp(_clipped(-gain * (sample + limit), -_MOST, -PASS_AT))
    return bool(shares @ good <= 1 and shares @ bad <= 1)
