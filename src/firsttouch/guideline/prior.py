# SPDX-License-Identifier: Apache-2.0
"""What is expected before any trial: the article's rule of thumb, taken apart into its physics.

The article (section 6.3) finds data partitioning best for an index much smaller than a bank, and interleaving
where it fills more than one. Behind both stand the same two costs, contention for a bank and distance to it,
and for a large index the cost of its replicas. They are the features of a linear model with uncertain weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
