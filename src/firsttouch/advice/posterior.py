# SPDX-License-Identifier: Apache-2.0
"""The model of the scenarios' run times: a Gaussian prior from NUMA costs, and its posterior after trials.

Each scenario i has one unknown, y_i, the natural logarithm of the time (s) of the whole run. All y_i together have
a multivariate normal distribution, that is, a Gaussian process on a finite set (Rasmussen and Williams, Gaussian
Processes for Machine Learning, 2006, chapter 2)::

    y_i = level + sum_k x_ik w_k + policy effect + instance effect + own effect + option effects

The x_ik are the scenario's :class:`firsttouch.advice.costs.Features`, and the w_k their weights. Scenarios with
the same policy share the policy effect, and those with the same number of instances share the instance effect, so
a trial of one scenario also moves the expectation of the similar ones. A scenario shares its own effect with its
variants with memory options. There is an option effect for each option, for each combination of options, and a
small one for each scenario with options.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from statistics import NormalDist

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from firsttouch.advice.costs import (
    COMBINED,
    OPTION,
    OWN,
    OWN_OPTIONS,
    SAME_INSTANCES,
    SAME_POLICY,
    ModelledScenario,
    features_of,
    interval,
    weights_of,
)
from firsttouch.scenarios.memory_options import option

Floats = NDArray[np.float64]

#: Relative standard deviation of a trial before any is repeated, and the weight of this guess in repeats. It is
#: high so that one lucky trial does not decide.
NOISE, NOISE_WORTH = 0.18, 4.0
#: The weight of the noise pooled over all scenarios, in repeats of a single scenario.
POOL_WORTH = 3.0
#: The accepted probability that the default run is replaced by chance.
CHANCE = 0.01
#: Standard deviation of the common level around the first trial.
LEVEL = 2.0
#: The weight of the prior's scale, in trials, when the covariance is scaled to the data.
SCALE_WORTH = 4.0
#: Work is at least this part of a trial's seconds, regardless of the estimated load.
LEAST_WORK = 0.05


class Prior(Struct, frozen=True):
    """Mean (m) and covariance (m x m) of the log times of *m* candidates, up to the common level."""

    mean: Floats
    covariance: Floats


def prior(candidates: Sequence[ModelledScenario], index_banks: float, latency_ratio: float | None = None) -> Prior:
    """Return the prior of *candidates* for an index that fills *index_banks* banks (1.5: one and a half)."""
    features = np.array(features_of(candidates, index_banks))
    weights = np.array(weights_of(index_banks, latency_ratio))
    covariance = (features * weights[:, 1] ** 2) @ features.T
    covariance += SAME_POLICY**2 * _same([(c.policy, c.instances == 1) for c in candidates])
    covariance += SAME_INSTANCES**2 * _same([c.instances for c in candidates])
    covariance += OWN**2 * _same([c.base_name for c in candidates])
    mean, of_options = _options(candidates)
    return Prior(features @ weights[:, 0] + mean, covariance + of_options)


def _options(candidates: Sequence[ModelledScenario]) -> tuple[Floats, Floats]:
    """Return mean (m) and covariance (m x m) of the effects of memory options on the log times."""
    names = sorted({name for c in candidates for name in c.options})
    effects = np.array([OPTION[option(name).kind] for name in names]).reshape(-1, 2)
    has = np.array([[float(name in c.options) for name in names] for c in candidates])
    has = has.reshape(len(candidates), len(names))
    count = has.sum(axis=1)
    covariance = (has * effects[:, 1] ** 2) @ has.T
    covariance += COMBINED**2 * _same([c.options for c in candidates]) * (count > 1)
    covariance += OWN_OPTIONS**2 * np.diag(np.minimum(count, 1))
    return has @ effects[:, 0], covariance


def _same(labels: Sequence[Hashable]) -> Floats:
    """Return a matrix: 1 where two labels are equal, else 0."""
    numbers: dict[Hashable, int] = {}
    codes = np.array([numbers.setdefault(label, len(numbers)) for label in labels])
    same: Floats = (codes[:, None] == codes).astype(np.float64)
    return same


class Load(Struct, frozen=True):
    """Seconds that a program takes to load its index, independent of the number of reads, and their deviation."""

    seconds: float = 0.0
    sd: float = 0.0


class Trial(Struct, frozen=True):
    """One trial: the fraction of the reads and the seconds that it took."""

    fraction: float
    seconds: float


class Belief(Struct, frozen=True):
    """The posterior: means (m) and covariance (m x m) of the log times (s) of *m* candidates.

    *noise* (m) is the relative variance of one trial, *tried* (m) is true for candidates with a trial.
    """

    mean: Floats
    covariance: Floats
    noise: Floats
    tried: np.ndarray

    @property
    def best(self) -> int:
        """The tried candidate with the least expected time."""
        return int(np.argmin(np.where(self.tried, self.mean, np.inf)))

    def ratio(self, a: int, b: int) -> tuple[float, float]:
        """Return mean and standard deviation of log(time of candidate *a* / time of candidate *b*)."""
        c = self.covariance
        variance = c[a, a] + c[b, b] - 2 * c[a, b]
        return float(self.mean[a] - self.mean[b]), math.sqrt(max(0.0, float(variance)))

    def seconds(self, number: int) -> dict[str, float]:
        """Return the expected time (s) of the whole run of candidate *number* and its 90 % interval."""
        variance = float(self.covariance[number, number])
        return interval(float(self.mean[number]), math.sqrt(max(0.0, variance)))

    def faster(self, fast: int, slow: int, chance: float = 0.05) -> bool:
        """Return whether candidate *fast* is faster than *slow* at this error probability."""
        mean, sd = self.ratio(slow, fast)
        return mean - NormalDist().inv_cdf(1 - chance) * sd > 0

    def replaces(self, fast: int, default: int) -> bool:
        """Return whether a tried candidate is faster than the *default* run beyond chance.

        The fastest of several tried candidates is partly the luckiest: the probability that any of them looks
        faster by chance is at most CHANCE (C. E. Bonferroni's bound, 1936).
        """
        return self.faster(fast, default, CHANCE / max(1, int(np.count_nonzero(self.tried)) - 1))


def update(
    prior: Prior,
    trials: Sequence[Sequence[Trial]],
    load: Load,
    noise_prior: tuple[float, float] = (NOISE, NOISE_WORTH),
    start_sd: float = 0.0,
) -> Belief:
    """Return the posterior after *trials*, one sequence per candidate, at least one of them not empty.

    *noise_prior* is the relative standard deviation of a trial before any is repeated, and its weight in repeats.
    The start of a program adds a deviation of *start_sd* seconds to each trial.

    With S the tried candidates, z their observed log times of the whole run and V the covariance of these::

        mean' = mean + K[:, S] (K[S, S] + V)^-1 (z - mean[S])
        K'    = K    - K[:, S] (K[S, S] + V)^-1 K[S, :]

    (Rasmussen and Williams 2006, equations 2.25 and 2.26). K is the prior's covariance, scaled to the differences
    observed so far, plus the variance of the common level. V is diagonal except for the load. All candidates have
    the same load, so an error of it moves all whole runs in one direction, by the standard deviations s::

        V = diag(v - s^2) + s s'
    """
    tried = [i for i, own in enumerate(trials) if own]
    noise = _noise(trials, *noise_prior)
    noise += [(start_sd / max((t.seconds for t in own), default=np.inf)) ** 2 for own in trials]
    whole = [_whole_run(trials[i], load, float(noise[i])) for i in tried]
    variance = np.log1p([v for _, v, _ in whole])
    shared = np.array([s for _, _, s in whole])
    shared = np.sign(shared) * np.minimum(np.abs(shared), np.sqrt(variance))
    errors = np.diag(variance - shared**2) + np.outer(shared, shared)
    # E[log of a noisy mean] is below the log of the true mean by half of the variance.
    logs = np.log([seconds for seconds, _, _ in whole]) + np.minimum(variance, noise_prior[0] ** 2) / 2
    residual = logs - prior.mean[tried]
    covariance = _scale(prior.covariance[np.ix_(tried, tried)], errors, residual) * prior.covariance + LEVEL**2
    observed = covariance[np.ix_(tried, tried)] + errors
    gain = np.linalg.solve(observed, covariance[tried]).T
    # The prior is centred on the first trial, because its level is arbitrary.
    mean = prior.mean + residual[0] + gain @ (residual - residual[0])
    after = covariance - gain @ covariance[tried]
    mask = np.zeros(len(trials), bool)
    mask[tried] = True
    return Belief(mean, (after + after.T) / 2, noise, mask)


def _noise(trials: Sequence[Sequence[Trial]], usual: float, worth: float) -> Floats:
    """Return the relative variance of a trial of each candidate, from its repeats, shrunk towards all repeats."""
    sums, free = np.zeros(len(trials)), np.zeros(len(trials))
    for i, own in enumerate(trials):
        # Only trials of the same size are repeats: the load cancels.
        for fraction in {t.fraction for t in own}:
            seconds = np.array([t.seconds for t in own if t.fraction == fraction])
            sums[i] += float(((seconds / seconds.mean() - 1) ** 2).sum())
            free[i] += len(seconds) - 1
    pool = (worth * usual**2 + sums.sum()) / (worth + free.sum())
    noise: Floats = (POOL_WORTH * pool + sums) / (POOL_WORTH + free)
    return noise


def _whole_run(own: Sequence[Trial], load: Load, noise: float) -> tuple[float, float, float]:
    """Return the seconds of the whole run by a candidate's trials, their relative variance, and their slope.

    The slope is their relative change if the load is one standard deviation longer.

    A trial of a fraction f takes load + f * work seconds, the whole run load + work. Load and work are fitted by
    weighted least squares with the load's prior; errors are relative to a trial's time.
    """
    work = [max(t.seconds - load.seconds, LEAST_WORK * t.seconds) / t.fraction for t in own]
    mean = math.fsum(work) / len(work)
    expected = np.array([load.seconds + mean * t.fraction for t in own])
    rows = np.array([[1.0, t.fraction] for t in own]) / expected[:, None]
    observed = np.array([t.seconds for t in own]) / expected
    if load.sd == 0:
        slope = rows[:, 1]
        fitted = float(slope @ (observed - load.seconds / expected) / (slope @ slope))
        whole = load.seconds + max(fitted, LEAST_WORK * mean)
        return whole, noise / float(slope @ slope) / whole**2, 0.0
    precision = rows.T @ rows / noise + np.diag([1 / load.sd**2, 0.0])
    inverse = np.linalg.inv(precision)
    estimate = inverse @ (rows.T @ observed / noise + np.array([load.seconds / load.sd**2, 0.0]))
    whole = max(float(estimate.sum()), *(t.seconds for t in own))
    return whole, float(inverse.sum()) / whole**2, float(inverse[:, 0].sum()) / load.sd / whole


def _scale(covariance: Floats, errors: Floats, residual: Floats) -> float:
    """Return the factor by which the prior's covariance is scaled to the observed residuals.

    It is (c + r' K^-1 r) / (c + n - 1) with c = SCALE_WORTH, r the n residuals minus their generalized least
    squares mean, and K the covariance with their *errors* included: a variance estimate with c prior degrees of
    freedom.
    """
    inverse = np.linalg.inv(covariance + errors)
    centred = residual - inverse.sum(axis=0) @ residual / inverse.sum()
    return float((SCALE_WORTH + centred @ inverse @ centred) / (SCALE_WORTH + len(residual) - 1))
