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

#: Fewer hosts than these say nothing about a fleet.
FEWEST_HOSTS = 5
#: The loss that has to be found; the limit, at which it is told from none, is half of it.
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

    *error* is the relative standard deviation of one pass, *spread* that of good hosts' own levels, *doubt* that
    of *value*. *hosts* are as many good ones with so many *passes* each on average, *outliers* the others with
    their relative differences from the value.
    """

    value: float
    error: float
    spread: float
    doubt: float
    hosts: int
    passes: float
    outliers: Mapping[str, float]

    def limit(self, loss: float = LOSS) -> float:
        """Return the relative difference beyond which a host is no good one: half of *loss*.

        More, where good hosts differ so much that half of it would condemn some.
        """
        return max(loss / 2, _WITHIN * self.spread)

    def more_passes(self, loss: float = LOSS) -> int:
        """Return how many passes per host are missing until the value is known well enough to find *loss*."""
        steady = 1.05 * self.spread / math.sqrt(self.hosts)
        wanted = math.sqrt(max((loss * _DOUBT) ** 2 - steady**2, (loss * _DOUBT / 2) ** 2))
        moving = math.sqrt(max(self.doubt**2 - steady**2, 0.0))
        return math.ceil(self.passes * ((moving / wanted) ** 2 - 1)) if moving > wanted else 0


def learn(passes: Mapping[str, Sequence[float]]) -> Level | None:
    """Return the level of a metric from its *passes* by host.

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
        beyond = _BEYOND * max(scale, 1e-6) * _few(len(levels))
        good = [host for host, level in levels.items() if abs(level - centre) <= beyond]
        # All passes count alike: who was measured again because he was slow at first does not count as slow.
        pooled = [v for host in good for v in found[host]]
        own = _deviation([levels[host] - centre for host in good]) if error is None else error
        centre = _location(pooled, own)
        scale = _deviation([levels[host] - centre for host in good])
    typical = statistics.median(len(found[host]) for host in good)
    # What the passes' error makes of the hosts' levels is no difference between hosts, nor is what it may make
    # of it (the variance of a deviation by medians of so many: 1.36 / hosts).
    noise = own**2 / typical * (1 + 2 * 2 * math.sqrt(1.36 / len(good)))
    spread = 0.0 if error is None else math.sqrt(max(0.0, scale**2 - noise))
    return Level(
        value=centre * unit,
        error=own * _few(len(good)),
        spread=spread,
        doubt=1.05 * math.hypot(own / math.sqrt(len(pooled)), spread / math.sqrt(len(good))),
        hosts=len(good),
        passes=len(pooled) / len(good),
        outliers={host: level / centre - 1 for host, level in levels.items() if host not in set(good)},
    )


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


def _few(count: int) -> float:
    """Return by how much a deviation of so few values may be too small."""
    return 1 + 3 / count
