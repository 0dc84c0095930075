# SPDX-License-Identifier: Apache-2.0
"""What is believed of a scenario's speed: the prior of physics, and the posterior after trials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# ----------------------------------------------------------------------
# What is expected before any trial: the article's rule of thumb, taken apart into its physics.
#
# The article (section 6.3) finds data partitioning best for an index much smaller than a bank, and interleaving
# where it fills more than one. Behind both stand the same two costs, contention for a bank and distance to it,
# and for a large index the cost of its replicas. They are the features of a linear model with uncertain
# weights.

Floats = NDArray[np.float64]

#: Mean and standard deviation of what a unit of each feature adds to the natural logarithm of the time.
#: Wide on purpose: they order the first trials, and the trials then say what they are here.
PRESSURE = (0.20, 0.20)  # per doubling of the threads that use one bank: it saturates sooner or later
REMOTE = (0.25, 0.25)  # with all accesses remote instead of none
REPLICAS = (0.35, 0.35)  # per doubling of the replicas; the mean where the index is larger than a bank, else 0
FEWER = (0.55, 0.30)  # per halving of the threads: ln 2 where a program scales perfectly, less where it does not
#: What the features do not say (standard deviations): of a policy, of a number of instances, of a scenario.
SAME_POLICY, SAME_INSTANCES, OWN = 0.20, 0.20, 0.35
#: The part of a program's time that waits for memory, where the host's aspects were measured.
MEMORY_BOUND = 0.5


@dataclass(frozen=True)
class Candidate:
    """A scenario as the model sees it.

    *spread*: each instance's data lie evenly on its banks; otherwise where they were first touched. *banks* are
    those of one instance, and *sharing* how many instances have each of them.
    """

    name: str
    instances: int
    threads: int
    policy: str
    spread: bool
    banks: int
    sharing: float = 1.0

    @property
    def total(self) -> int:
        """Threads of all instances."""
        return self.instances * self.threads


@dataclass(frozen=True)
class Prior:
    """Mean (m) and covariance (m x m) of the logarithms of *m* candidates' times, up to a common level."""

    mean: Floats
    covariance: Floats


@dataclass(frozen=True)
class Aspects:
    """What is known of the host (None: nothing): remote over local latency, and how a bank suffers from threads.

    *contention* is by how much the logarithm of a thread's bandwidth falls per doubling of the threads that use
    one bank: 0 for none, ln 2 where the bank gives no more in total.
    """

    latency_ratio: float | None = None
    contention: float | None = None

    def weights(self) -> Floats:
        """Return mean and standard deviation of the features' weights (4 x 2)."""
        pressure, remote = PRESSURE, REMOTE
        if self.contention is not None:
            pressure = (MEMORY_BOUND * max(0.0, self.contention), PRESSURE[1])
        if self.latency_ratio is not None:
            remote = (math.log1p(MEMORY_BOUND * max(0.0, self.latency_ratio - 1)), REMOTE[1])
        return np.array([pressure, remote, REPLICAS, FEWER])


def prior(candidates: Sequence[Candidate], index_banks: float, aspects: Aspects | None = None) -> Prior:
    """Return what is expected of *candidates* where the index fills *index_banks* banks (1.5: one and a half)."""
    most = max(c.total for c in candidates)
    features = np.array([_features(c, most, index_banks) for c in candidates])
    weights = (aspects or Aspects()).weights()
    if index_banks <= 1:
        weights[2, 0] = 0.0
    covariance = (features * weights[:, 1] ** 2) @ features.T
    covariance += SAME_POLICY**2 * _same([(c.policy, c.instances == 1) for c in candidates])
    covariance += SAME_INSTANCES**2 * _same([c.instances for c in candidates])
    covariance += OWN**2 * np.eye(len(candidates))
    return Prior(features @ weights[:, 0], covariance)


def _features(one: Candidate, most: int, index_banks: float) -> list[float]:
    # What is not spread lies where one thread put it: it fills one bank after the other.
    used = one.banks if one.spread else min(one.banks, max(1.0, index_banks))
    pressure = math.log2(one.threads * one.sharing / used)
    return [pressure, 1 - 1 / one.banks, math.log2(one.instances), math.log2(most / one.total)]


def _same(labels: Sequence[object]) -> Floats:
    return np.array([[float(a == b) for b in labels] for a in labels])


# ----------------------------------------------------------------------
# What trials have told so far: times of whole runs as normal distributions of their logarithms, correlated.
#
# A trial of a fraction f takes load + f * work seconds: what a program does once, as loading its index, does
# not shrink with the sample. A scenario's whole time is load + work; that, not the trial's time, is compared.

#: Relative standard deviation of a repeated trial where none has been repeated yet, and the repeats that this
#: guess is worth. High on purpose: a single lucky trial must not decide.
NOISE, NOISE_WORTH = 0.18, 4.0
#: What all repeats together say counts as so many repeats of a scenario's own.
POOL_WORTH = 3.0
#: The first trial's logarithm is known to be the level of all within this standard deviation.
LEVEL = 2.0
#: The prior's covariance is scaled to the differences seen so far: the prior's own scale is worth so many trials.
SCALE_WORTH = 4.0
#: Work is at least this part of what a trial took, whatever is believed of the load.
LEAST_WORK = 0.05


@dataclass(frozen=True)
class Load:
    """Seconds that a program takes whatever the number of reads, and their standard deviation."""

    seconds: float = 0.0
    sd: float = 0.0


@dataclass(frozen=True)
class Trial:
    """One trial: the fraction of the reads and the seconds that it took."""

    fraction: float
    seconds: float


@dataclass(frozen=True)
class Belief:
    """Means (m) and covariance (m x m) of the logarithms of m whole times (s); *noise* (m): a trial's variance.

    *tried* (m) tells which of them have a trial.
    """

    mean: Floats
    covariance: Floats
    noise: Floats
    tried: np.ndarray

    @property
    def best(self) -> int:
        """The candidate of the least expected time, of those that were tried."""
        return int(np.argmin(np.where(self.tried, self.mean, np.inf)))

    def ratio(self, one: int, other: int) -> tuple[float, float]:
        """Mean and standard deviation of log(time of *one* / time of *other*)."""
        c = self.covariance
        variance = c[one, one] + c[other, other] - 2 * c[one, other]
        return float(self.mean[one] - self.mean[other]), math.sqrt(max(0.0, float(variance)))


def update(prior: Prior, trials: Sequence[Sequence[Trial]], load: Load) -> Belief:
    """Return the belief after *trials*, a sequence for each candidate; at least one of them has a trial."""
    tried = [i for i, own in enumerate(trials) if own]
    noise = _noise(trials)
    found = [_whole(trials[i], load, float(noise[i])) for i in tried]
    variance = np.log1p([v for _, v in found])
    # The logarithm of a noisy mean is low by half its variance.
    logs = np.log([seconds for seconds, _ in found]) + np.minimum(variance, NOISE**2) / 2
    rest = logs - prior.mean[tried]
    covariance = _scale(prior.covariance[np.ix_(tried, tried)], variance, rest) * prior.covariance + LEVEL**2
    seen = covariance[np.ix_(tried, tried)] + np.diag(variance)
    gain = np.linalg.solve(seen, covariance[tried]).T
    mean = prior.mean + rest[0] + gain @ (rest - rest[0])
    after = covariance - gain @ covariance[tried]
    mask = np.zeros(len(trials), bool)
    mask[tried] = True
    return Belief(mean, (after + after.T) / 2, noise, mask)


def _work(own: Sequence[Trial], load: Load) -> list[float]:
    """Return what each trial says of the seconds of the whole work."""
    return [max(t.seconds - load.seconds, LEAST_WORK * t.seconds) / t.fraction for t in own]


def _noise(trials: Sequence[Sequence[Trial]]) -> Floats:
    """Return each candidate's relative variance of a trial: its own repeats', drawn to those of all."""
    sums, free = np.zeros(len(trials)), np.zeros(len(trials))
    for i, own in enumerate(trials):
        # Repeats are those of the same size: what the load is cannot matter then.
        for fraction in {t.fraction for t in own}:
            seconds = [t.seconds for t in own if t.fraction == fraction]
            mean = math.fsum(seconds) / len(seconds)
            sums[i] += math.fsum((s / mean - 1) ** 2 for s in seconds)
            free[i] += len(seconds) - 1
    pool = (NOISE_WORTH * NOISE**2 + sums.sum()) / (NOISE_WORTH + free.sum())
    noise: Floats = (POOL_WORTH * pool + sums) / (POOL_WORTH + free)
    return noise


def _whole(own: Sequence[Trial], load: Load, noise: float) -> tuple[float, float]:
    """Return the seconds of the whole run by its own trials, and their relative variance.

    Least squares of load and work, with what is known of the load; errors are relative to a trial's time.
    """
    work = _work(own, load)
    mean = math.fsum(work) / len(work)
    expected = np.array([load.seconds + mean * t.fraction for t in own])
    rows = np.array([[1.0, t.fraction] for t in own]) / expected[:, None]
    seen = np.array([t.seconds for t in own]) / expected
    if load.sd == 0:
        slope = rows[:, 1]
        fitted = float(slope @ (seen - load.seconds / expected) / (slope @ slope))
        whole = load.seconds + max(fitted, LEAST_WORK * mean)
        return whole, noise / float(slope @ slope) / whole**2
    precision = rows.T @ rows / noise + np.diag([1 / load.sd**2, 0.0])
    inverse = np.linalg.inv(precision)
    fitted = inverse @ (rows.T @ seen / noise + np.array([load.seconds / load.sd**2, 0.0]))
    whole = max(float(fitted.sum()), *(t.seconds for t in own))
    return whole, float(inverse.sum()) / whole**2


def _scale(covariance: Floats, variance: Floats, rest: Floats) -> float:
    """Return by what the prior's covariance is to be multiplied, after the differences seen so far."""
    inverse = np.linalg.inv(covariance + np.diag(variance))
    centred = rest - inverse.sum(axis=0) @ rest / inverse.sum()
    return float((SCALE_WORTH + centred @ inverse @ centred) / (SCALE_WORTH + len(rest) - 1))
