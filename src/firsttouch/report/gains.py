# SPDX-License-Identifier: Apache-2.0
"""How many times as fast as the default run scenarios are that several hosts measured, and how sure that is.

Hosts differ, so every time is compared with the default run of its own host. Hosts are the blocks of an incomplete
block design, the default run is the treatment that all blocks share, and a host's own level cancels (R. A. Fisher,
The design of experiments, 1935; D. C. Montgomery, Design and analysis of experiments, chapter 4).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from firsttouch.report.choices import Interval

CONFIDENCE = 0.95

Scenario = TypeVar("Scenario", bound=Hashable)
#: The seconds of each repetition (or seconds per read), by host.
Times = Mapping[str, Sequence[float]]


def gains(times: Mapping[Scenario, Times], default: Scenario) -> dict[Scenario, Interval]:
    """Return the gain of every scenario, with the interval of all of them together (:data:`CONFIDENCE`).

    Every host of *times* has the *default*; all times are above 0. The gain of a scenario is the geometric mean
    over its hosts of (mean of the default's times / mean of its own), geometric means both. Two things widen the
    interval:

    * Noise. The variance of a gain is that of repetitions, pooled over all hosts and scenarios, or that of one
      scenario's gain between hosts, pooled over the scenarios that several hosts have, whichever is larger.
      Student's t is taken for as many comparisons with one control as there are (C. W. Dunnett, A multiple
      comparison procedure for comparing several treatments with a control, 1955; here by Bonferroni's inequality).
    * Hosts that did not measure the scenario. Their default runs tell how much slower they are. If that is a
      factor, their gain is the same; if it is a constant number of seconds, it is that of the times with this
      constant added. The interval holds both.

    Without a second repetition or host there is no noise to know: the ends are None.
    """
    means = {s: {h: _mean_log(some) for h, some in of_host.items()} for s, of_host in times.items()}
    base = means[default]
    ratios = {s: {h: base[h] - mean for h, mean in of.items()} for s, of in means.items() if s != default}
    level = 1 - (1 - CONFIDENCE) / max(1, len(ratios))
    repeated, of_repeated = _pooled(
        [np.log(some).tolist() for of_host in times.values() for some in of_host.values()]
    )
    between, of_between = _pooled([list(of_host.values()) for of_host in ratios.values()])
    found = {default: Interval(1.0, 1.0, 1.0)}
    for scenario, of_host in ratios.items():
        gain = float(np.mean(list(of_host.values())))
        hosts = len(of_host)
        parts = sum(1 / len(times[default][h]) + 1 / len(times[scenario][h]) for h in of_host)
        variances = [(repeated * parts / hosts**2, of_repeated), (between / hosts, of_between)]
        variance, freedom = max((v for v in variances if v[1]), default=(0.0, 0))
        if not freedom:
            found[scenario] = Interval(math.exp(gain), None, None)
            continue
        half = math.sqrt(variance) * student(level, freedom)
        elsewhere = [gain, *_elsewhere(base, means[scenario])]
        low, high = min(elsewhere) - half, max(elsewhere) + half
        found[scenario] = Interval(math.exp(gain), math.exp(low), math.exp(high))
    return found


def _mean_log(seconds: Sequence[float]) -> float:
    return float(np.mean(np.log(seconds)))


def _pooled(groups: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Return the variance within groups, pooled, and its degrees of freedom."""
    freedom = sum(len(some) - 1 for some in groups)
    squares = sum(float(np.sum(np.square(np.array(some) - np.mean(some)))) for some in groups)
    return (squares / freedom if freedom else 0.0), freedom


def _elsewhere(base: Mapping[str, float], mine: Mapping[str, float]) -> Iterator[float]:
    """Yield the logarithm of the gain on each host without the scenario if it differs by a constant of seconds."""
    for host, mean in mine.items():
        for other in base.keys() - mine.keys():
            seconds = math.exp(mean) + math.exp(base[other]) - math.exp(base[host])
            if seconds > 0:
                yield base[other] - math.log(seconds)


def student(confidence: float, freedom: int) -> float:
    """Return the two-sided quantile of Student's t with whole degrees of *freedom*, 1 or more."""
    low, high = 0.0, 1.0
    while _within(high, freedom) < confidence:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < confidence else (low, middle)
    return high


def _within(t: float, freedom: int) -> float:
    """Return the probability of a Student's t within plus and minus *t* (Abramowitz and Stegun, 26.7.3 and 4)."""
    angle = math.atan(t / math.sqrt(freedom))
    odd = freedom % 2
    term = total = math.cos(angle) if odd else 1.0
    if freedom == 1:
        total = 0.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= math.cos(angle) ** 2 * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total
