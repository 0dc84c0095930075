# SPDX-License-Identifier: Apache-2.0
"""The natural spread: how far good hosts differ from each other for ever, and how well that is known.

Good hosts differ in silicon, Turbo and memory: by about 1 % in memory rates, by several percent in clock-bound
metrics (B. Acun et al., Variation among processors under Turbo Boost, ICS 2016). A few hosts show this spread
badly. Its estimate therefore has degrees of freedom, and a limit that rests on few hosts is wide: the quantile of
Student's distribution instead of that of the normal one.

Bad hosts must not widen the spread. The estimate starts from the half of the hosts that lie nearest to each other
(P. J. Rousseeuw, Least median of squares regression, 1984), and grows while the next hosts can be good ones (A. S.
Hadi, Identifying multiple outliers in multivariate data, 1992). Up to 40 % of the hosts may be bad, in any
direction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from firsttouch.judge.sprt import Bools, Floats
from firsttouch.judge.statistics import digamma, student_quantile, trigamma, trigamma_inverse, truncated_deviation

#: Deviations of the hosts so far up to which another one is good, and the number of hosts below which it is more.
_REACH, _FEW = 2.8, 12.0
#: The share of good hosts of a large fleet that are taken for good ones, and the least size of such a fleet.
_KEPT, _MANY = 0.993, 24
#: In a larger fleet, a few good hosts that are left out matter little.
_LARGE = 100
#: Degrees of freedom per good host, and those that each host costs that is left out and near: a few hosts may be
#: near to each other by chance. Fitted to the tail probabilities of simulated good fleets of 5 to 300 hosts.
_FREEDOM, _CHOICE = 0.8, 1.2
#: Deviations up to which a host that is left out is near: for many hosts, and more for few ones (divided by their
#: number, or by its square if that is less). The fewer hosts, the nearer are some of them by chance.
_NEAR, _NEAR_LEAST, _NEAR_FEW, _NEAR_SOME = 6.5, 4.0, 90.0, 1100.0
#: The tail at which spreads are compared with each other.
_TYPICAL = 1e-4
#: The least degrees of freedom.
_LEAST_FREEDOM = 1.0
#: Metrics of one kind are taken together if there are at least this many.
_FEWEST_ALIKE = 6
#: Quantile of the upper bound of a spread between metrics.
_UPPER = 1.645


class Spread(Struct, frozen=True):
    """The spread among the *good* ones of some hosts (a mask).

    *centre* is their mean, *deviation* their standard deviation, and *freedom* the degrees of freedom of the
    latter.
    """

    centre: float
    deviation: float
    freedom: float
    good: Bools

    @property
    def hosts(self) -> int:
        """The number of good hosts."""
        return int(np.count_nonzero(self.good))


def variance_without(deviation: float, freedom: float, chance: float) -> float:
    """Return the variance between good hosts without the part that is surely *chance* (a variance).

    The fewer degrees of *freedom* the *deviation* has, the less of it is certain to be chance.
    """
    return deviation**2 - min(chance * max(0.0, 1 - 2 * math.sqrt(2 / freedom)), deviation**2)


def spread_of(levels: Floats, least: float = 0.0) -> Spread:
    """Return the spread among good hosts of which these are the *levels* (two or more).

    *least* is the standard deviation that chance alone gives them.
    """
    count = len(levels)
    ordered = np.sort(levels)
    offset = float(ordered[count // 2])
    ordered = ordered - offset
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    squares = np.concatenate([[0.0], np.cumsum(ordered**2)])
    half = count // 2 + 1
    reach = _REACH * (1 + (_FEW / count) ** 2)
    means = (sums[half:] - sums[:-half]) / half
    begin = int(np.argmin((squares[half:] - squares[:-half]) / half - means**2))
    end = begin + half

    def of_part(begin: int, end: int) -> tuple[float, float]:
        """Return the mean and the standard deviation of a part of the ordered levels."""
        size = end - begin
        centre = float(sums[end] - sums[begin]) / size
        variance = max(float(squares[end] - squares[begin]) / size - centre**2, 0.0) * size / (size - 1)
        return centre, max(math.sqrt(variance), least)

    while True:
        centre, deviation = of_part(begin, end)
        nearest = reach * deviation * (1 + 1e-9)
        low = min(begin, int(np.searchsorted(ordered, centre - nearest)))
        high = max(end, int(np.searchsorted(ordered, centre + nearest, "right")))
        if (low, high) == (begin, end):
            break
        begin, end = low, high
    # The hosts so far may be near to each other by chance, and the next ones be good, too: the best known spread
    # counts. A bad host far off makes none of them wider.
    near_distance = max(_NEAR, _NEAR_LEAST + min(_NEAR_FEW / count, _NEAR_SOME / count**2))
    best: Spread | None = None
    typical = math.inf
    while True:
        size = end - begin
        centre, deviation = of_part(begin, end)
        distances = np.abs(ordered - centre)
        near = distances < near_distance * deviation
        near[begin:end] = False
        doubtful = int(np.count_nonzero(near))
        freedom = max(_LEAST_FREEDOM, _FREEDOM * (size - 1) - _CHOICE * doubtful)
        if count >= _MANY and (best is None or size < count):  # some good hosts are always left out
            deviation /= truncated_deviation(_KEPT)
        limit = student_quantile(_TYPICAL, freedom) * deviation
        if best is None or limit < typical:
            good = (levels - offset >= ordered[begin]) & (levels - offset <= ordered[end - 1])
            best, typical = Spread(centre + offset, deviation, freedom, good), limit
        if not doubtful or size == count:
            return best
        if count > _LARGE:
            begin, end = 0, count
        elif begin > 0 and (end == count or distances[begin - 1] < distances[end]):
            begin -= 1
        else:
            end += 1


def pooled(spreads: Sequence[Spread], levels: Sequence[Floats]) -> list[tuple[float, float]]:
    """Return deviation and degrees of freedom of each of some *spreads* of alike metrics of the same hosts.

    A few hosts show the spread of one metric badly, and that of many metrics well if these do not depend on each
    other. How much they depend on each other is estimated from the *levels* (one array per metric, a value per
    host, NaN: none), and how far their spreads differ from their deviations (G. K. Smyth, Linear models and
    empirical Bayes methods, 2004). Both estimates have errors, and both are taken at their worse end.
    """
    result = [(s.deviation, s.freedom) for s in spreads]
    usable = [i for i, s in enumerate(spreads) if s.deviation > 0 and s.freedom >= 2]
    if len(usable) < _FEWEST_ALIKE:
        return result
    independent = _independent([spreads[i] for i in usable], [levels[i] for i in usable])
    if independent < 2:
        return result
    freedom = np.array([spreads[i].freedom for i in usable])
    logs = 2 * np.log([spreads[i].deviation for i in usable])
    # Mean and variance of the logarithm of a mean square with these degrees of freedom.
    means, variances = digamma(freedom / 2) - np.log(freedom / 2), trigamma(freedom / 2)
    centred = logs - means
    common = float(np.median(centred))
    excess = float(np.var(centred, ddof=1)) - float(variances.mean())
    error = math.sqrt(2 / (independent - 1)) * float(variances.mean())
    between = max(excess, 0.0) + _UPPER * error
    prior = 2 * trigamma_inverse(between)
    # The common spread has an error, too.
    prior = min(prior, float(freedom.mean()) * independent)
    for place, i in enumerate(usable):
        total = prior + freedom[place]
        variance = (prior * math.exp(common) + freedom[place] * spreads[i].deviation ** 2) / total
        result[i] = (math.sqrt(variance), float(total))
    return result


def _independent(spreads: Sequence[Spread], levels: Sequence[Floats]) -> float:
    """Return how many independent metrics tell as much about the spread as these do."""
    scores = np.array([(x - s.centre) / s.deviation for x, s in zip(levels, spreads, strict=True)])
    scores = np.where(np.isfinite(scores) & (np.abs(scores) < 4), scores, 0.0)
    norms = np.sqrt((scores**2).sum(axis=1, keepdims=True))
    scores = scores / np.maximum(norms, 1e-12)
    correlations = scores @ scores.T
    count, hosts = len(scores), scores.shape[1]
    squares = (float((correlations**2).sum()) - count) / (count * (count - 1))
    chance = 1 / max(hosts - 1, 2)
    shared = max(0.0, (squares - chance) / (1 - chance))
    return float(count / (1 + (count - 1) * shared))
