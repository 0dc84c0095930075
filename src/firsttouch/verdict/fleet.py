# SPDX-License-Identifier: Apache-2.0
"""What the majority of a fleet's hosts reach of one metric, how far good hosts differ, and which ones are no such.

Robust by construction: it starts from the shortest half of the hosts (P. J. Rousseeuw, Least median of squares
regression, 1984), so that up to half of the hosts may be bad, and in any direction.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from firsttouch.records import Better
from firsttouch.verdict import sure

#: Fewer hosts than these say nothing about a fleet.
FEWEST_HOSTS = 5
#: The loss that has to be found.
LOSS = 0.05
#: Standard deviations beyond which a host is no good one, and within which good hosts have to be of the limit:
#: of a million good ones, as many as 1 lie beyond 4.9.
_BEYOND = 4.0
_WITHIN = 4.3
#: The value's doubt may be as large a share of the loss that has to be found.
_DOUBT = 1 / 16
#: Median of the absolute value of a standard normal variable.
_NORMAL = 0.6745
#: As many hosts measured twice tell the error of a pass from the difference between hosts.
_TWICE = 5


@dataclass(frozen=True)
class Level:
    """A metric of a fleet: the *value* that good hosts reach, in the metric's unit.

    A host is no good one beyond the relative difference *limit*; *error* is that of one pass (see
    :func:`firsttouch.verdict.sure.fitted`). *spread* is the relative standard deviation of good hosts' own
    levels, *doubt* that of *value*. *hosts* are as many good ones with so many *passes* each on average,
    *outliers* the others with their relative differences from the value. *more_passes* per host are missing until
    the value is known well enough.
    """

    value: float
    limit: float
    error: float
    spread: float
    doubt: float
    hosts: int
    passes: float
    outliers: Mapping[str, float]
    more_passes: int


def learn(passes: Mapping[str, Sequence[float]], better: Better, loss: float = LOSS) -> Level | None:
    """Return the level of a metric from its *passes* by host, and how to find a *loss* of it.

    None for too few hosts, or for values of which none can be a share (0 or less).
    """
    mine = {host: list(values) for host, values in passes.items() if values}
    if len(mine) < FEWEST_HOSTS or any(v <= 0 for values in mine.values() for v in values):
        return None
    unit = statistics.median(statistics.median(values) for values in mine.values())
    found = {host: [v / unit for v in values] for host, values in mine.items()}
    error = _error(found)
    levels = {host: _location(values, error or 0.0) for host, values in found.items()}
    centre, scale = _half(sorted(levels.values()))
    for _ in range(3):
        beyond = max(_BEYOND * scale * _few(len(levels)), loss / 2)
        good = [host for host, level in levels.items() if abs(level - centre) <= beyond]
        # All passes count alike: who was measured again because he was slow at first does not count as slow.
        pooled = [v for host in good for v in found[host]]
        own = _deviation([levels[host] - centre for host in good]) if error is None else error
        centre = _location(pooled, own)
        scale = _deviation([levels[host] - centre for host in good])
    typical = statistics.median(len(found[host]) for host in good)
    spread = 0.0 if error is None else _spread({host: found[host] for host in good}, own)
    # Where good hosts differ so much that the loss would be one of theirs, a larger one is looked for.
    wanted = max(loss, 2 * _WITHIN * spread)
    centre, moving, fitted, wanted = _centred(pooled, centre, own * _few(len(good)), better, wanted)
    steady = spread / math.sqrt(len(good))
    return Level(
        value=centre * unit,
        limit=wanted / 2,
        error=fitted,
        spread=spread,
        doubt=math.hypot(moving, steady),
        hosts=len(good),
        passes=len(pooled) / len(good),
        outliers={host: level / centre - 1 for host, level in levels.items() if host not in set(good)},
        more_passes=max(0, math.ceil(typical * ((moving / (wanted * _DOUBT)) ** 2 - 1))),
    )


def _centred(
    pooled: Sequence[float], centre: float, error: float, better: Better, loss: float
) -> tuple[float, float, float, float]:
    """Return the value about which passes are no evidence either way, its doubt, their error, and the loss.

    Passes are not alike on both sides: of what most of them reach, their mean may be far. The loss is a larger
    one where no number of such passes would tell it.
    """
    found = None
    for _ in range(4):
        changes = [v / centre - 1 for v in pooled]
        found = _fitted(changes, error, better, loss)
        most = sure.reach(loss / 2, found or error)
        near = [min(max(c, -most), most) for c in changes]
        centre *= 1 + statistics.fmean(near)
        doubt = statistics.pstdev(near) / math.sqrt(len(near))
    while (found := _fitted([v / centre - 1 for v in pooled], error, better, loss)) is None:
        loss *= 1.25
    return centre, doubt, found, loss


def _fitted(changes: Sequence[float], error: float, better: Better, loss: float) -> float | None:
    """Return the error that counts in the worse direction, or the larger one where both are bad."""
    found = []
    if better != "lower":
        found.append(sure.fitted([-c for c in changes], error, loss))
    if better != "higher":
        found.append(sure.fitted(changes, error, loss))
    return None if None in found else max(f for f in found if f is not None)


def _half(ordered: Sequence[float]) -> tuple[float, float]:
    """Return middle and standard deviation of the shortest half of *ordered* values."""
    size = len(ordered) // 2 + 1
    begin = min(range(len(ordered) - size + 1), key=lambda i: ordered[i + size - 1] - ordered[i])
    first, last = ordered[begin], ordered[begin + size - 1]
    return (first + last) / 2, (last - first) / 2 / _NORMAL


def _location(values: Sequence[float], error: float) -> float:
    """Return Huber's location: the mean, with what is far from the middle for this *error* drawn near."""
    centre = statistics.median(values)
    if len(values) > 2:
        for _ in range(5):
            low, high = centre - 1.5 * error, centre + 1.5 * error
            centre = statistics.fmean(min(max(v, low), high) for v in values)
    return centre


def _deviation(differences: Sequence[float]) -> float:
    return statistics.median(map(abs, differences)) / _NORMAL


def _error(found: Mapping[str, Sequence[float]]) -> float | None:
    """Return the standard deviation of a pass, by differences of neighbours; None where few were repeated."""
    steps = [b - a for values in found.values() for a, b in pairwise(values)]
    if sum(len(values) > 1 for values in found.values()) < _TWICE:
        return None
    return _deviation(steps) / math.sqrt(2)


def _spread(found: Mapping[str, Sequence[float]], error: float) -> float:
    """Return the standard deviation of good hosts' own levels.

    A host's passes are halved: what both halves have in common is the host's, what they differ by is chance. What
    chance may also make of the halves' sum, four of its standard deviations, is no difference between hosts.
    """
    halves = [
        (_location(values[::2], error), _location(values[1::2], error))
        for values in found.values()
        if len(values) > 1
    ]
    common = _variance([(a + b) / 2 for a, b in halves])
    chance = _variance([(a - b) / 2 for a, b in halves])
    return math.sqrt(max(0.0, common - chance * math.exp(4 * math.sqrt(2 * 2.2 / len(halves)))))


def _variance(values: Sequence[float]) -> float:
    """Return the variance about the median, of far values that of nearer ones."""
    middle = statistics.median(values)
    far = 2.5 * _deviation([v - middle for v in values])
    return statistics.fmean(min(abs(v - middle), far) ** 2 for v in values)


def _few(count: int) -> float:
    """Return by how much a deviation of so few values may be too small."""
    return 1 + 3 / count
