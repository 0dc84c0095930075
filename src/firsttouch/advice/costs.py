# SPDX-License-Identifier: Apache-2.0
"""The NUMA costs of scenarios by a rule of thumb, before anything runs.

The features of a scenario come from the rule of thumb of the article (section 6.3): data partitioning for an index
much smaller than a bank, interleaving for an index larger than a bank. The distances that the firmware states
adjust the weight of remote accesses.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from firsttouch.errors import BadInput
from firsttouch.host.topology import Topology
from firsttouch.scenarios import memory_options
from firsttouch.scenarios.memory_fit import bank_bytes
from firsttouch.scenarios.memory_options import Kind
from firsttouch.scenarios.placement import Scenario
from firsttouch.scenarios.policies import policy

#: Mean and standard deviation of each feature's weight. They are wide: they order the first trials only.
PRESSURE = (0.20, 0.20)  # per doubling of the threads that use one bank
REMOTE = (0.25, 0.25)  # all accesses remote instead of none
REPLICAS = (0.35, 0.35)  # per doubling of the replicas; the mean is 0 for an index that fits into one bank
FEWER = (0.55, 0.30)  # per halving of the threads: ln 2 if a program scales perfectly
#: Standard deviations of the effects that the features do not explain: of a policy, of a number of instances, and
#: of a single scenario.
SAME_POLICY, SAME_INSTANCES, OWN = 0.20, 0.20, 0.35
#: Mean and standard deviation of the effect of each memory option, by kind. The deviations come from published
#: measurements, so that one bad trial does not exclude an option.
OPTION: dict[Kind, tuple[float, float]] = {"pages": (0.0, 0.10), "allocator": (0.0, 0.10), "index": (0.0, 0.15)}
#: Standard deviations of the effect of a combination of options (each allocator requests huge pages in its own
#: way), and of a single scenario with options.
COMBINED, OWN_OPTIONS = 0.08, 0.03
#: Half the width of the 90 % interval of a normal distribution, in standard deviations.
Z90 = 1.645
#: Bases per second and thread of the fastest and the slowest aligner, which bound a run's time before any trial.
FASTEST, SLOWEST = 4e6, 5e4
#: The shortest budget (s) for a trial whose placement can be verified.
LEAST_SECONDS = 0.5
#: The part of a program's time that waits for memory, used to turn a ratio of latencies into a weight.
MEMORY_BOUND = 0.5


class ModelledScenario(Struct, frozen=True):
    """A scenario as the model sees it.

    *spread*: each instance's data are interleaved over its banks, instead of placed by first touch. *banks* is the
    number of banks of one instance, and *sharing* the mean number of instances that use one bank. *options* are
    the memory options, and *copies* is the number of copies of the index (0: each instance has one).
    """

    name: str
    instances: int
    threads: int
    policy: str
    spread: bool
    banks: int
    sharing: float = 1.0
    options: tuple[str, ...] = ()
    copies: int = 0

    @property
    def base_name(self) -> str:
        """The name without the memory options."""
        return self.name.removesuffix(memory_options.suffix(self.options))

    @property
    def total(self) -> int:
        """Threads of all instances."""
        return self.instances * self.threads


class Features(NamedTuple):
    """The costs of a scenario that the model weighs, in this order.

    *pressure*: log2 of the threads that use one bank. *remote*: the remote part of the accesses. *replicas*: log2
    of the replicas of the index. *fewer*: log2 of (the most threads of any scenario / its threads).
    """

    pressure: float
    remote: float
    replicas: float
    fewer: float


def features_of(candidates: Sequence[ModelledScenario], index_banks: float) -> list[Features]:
    """Return the features of *candidates* for an index that fills *index_banks* banks (1.5: one and a half)."""
    most = max(c.total for c in candidates)
    rows = []
    for c in candidates:
        # First touch by one thread fills one bank after the other.
        used = c.banks if c.spread else min(c.banks, max(1.0, index_banks))
        pressure = math.log2(c.threads * c.sharing / used)
        replicas = math.log2(c.copies or c.instances)
        rows.append(Features(pressure, 1 - 1 / c.banks, replicas, math.log2(most / c.total)))
    return rows


def weights_of(index_banks: float, latency_ratio: float | None) -> list[tuple[float, float]]:
    """Return mean and standard deviation of each feature's weight; *latency_ratio* is remote over local."""
    remote, replicas = REMOTE, REPLICAS
    if latency_ratio is not None:
        remote = (math.log1p(MEMORY_BOUND * max(0.0, latency_ratio - 1)), REMOTE[1])
    if index_banks <= 1:
        replicas = (0.0, REPLICAS[1])
    return [PRESSURE, remote, replicas, FEWER]


def interval(mean: float, sd: float) -> dict[str, float]:
    """Return median and 90 % interval of exp(x), x normal with *mean* and *sd*."""
    low, high = math.exp(mean - Z90 * sd), math.exp(mean + Z90 * sd)
    return {"expected": math.exp(mean), "low": low, "high": high}


# ----------------------------------------------------------------------
# The input: a host and its scenarios


def latency_ratio(host: Topology) -> float | None:
    """Return the remote over the local latency by the firmware's distances, None if it states none."""
    if not host.distances:
        return None
    nodes = host.data_nodes
    remote = [host.distance(a, b) / host.distance(a, a) for a, b in itertools.permutations(nodes, 2)]
    return statistics.mean(remote) if remote else None


def candidates(scenarios: Sequence[Scenario]) -> list[ModelledScenario]:
    """Return the candidates of *scenarios*, in their order."""
    return [_candidate(s) for s in scenarios]


def _candidate(scenario: Scenario) -> ModelledScenario:
    first = scenario.placements[0]
    users = Counter(n for p in scenario.placements for n in p.numa_nodes)
    banks, sharing = len(first.numa_nodes), statistics.mean(users.values())
    spread, copies = policy(scenario.policy).pages[first.extent] in {"even", "weighted"}, 0
    of_index = memory_options.index_copies(scenario.options)
    if of_index == "node":
        # The copy is interleaved over the banks of its instances.
        spread, copies = True, len({p.numa_nodes for p in scenario.placements})
    elif of_index != "own":
        # Most accesses are to the index, which all instances share.
        banks, sharing, copies = len(users), scenario.instances, 1
        spread = spread or of_index == "all"
    return ModelledScenario(
        scenario.name,
        scenario.instances,
        scenario.threads,
        scenario.policy,
        spread=spread,
        banks=banks,
        sharing=sharing,
        options=scenario.options,
        copies=copies,
    )


def index_banks(host: Topology, index_bytes: int) -> float:
    """Return how many of the host's banks an index of *index_bytes* fills."""
    return index_bytes / max(1.0, statistics.median(bank_bytes(host, n) for n in host.data_nodes))


def default(scenarios: Sequence[Scenario]) -> int:
    """Return the number of the default run: one instance with the most threads, without policy and memory options.

    Raises BadInput without one.
    """
    plain = (not s.placements[0].numactl and not s.options for s in scenarios)
    single = [i for i, (s, usual) in enumerate(zip(scenarios, plain, strict=True)) if usual and s.instances == 1]
    if not single:
        raise BadInput("--policies must include 'original': the gain is over the run without a policy")
    return max(single, key=lambda i: scenarios[i].threads)
