# SPDX-License-Identifier: Apache-2.0
"""The scenarios of a plan as the model sees them."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from firsttouch.guideline.prior import Candidate
from firsttouch.placement import Scenario
from firsttouch.policies import policy
from firsttouch.room import bank_bytes
from firsttouch.topology import Topology


def candidates(scenarios: Sequence[Scenario]) -> list[Candidate]:
    """Return the candidates of *scenarios*, in their order."""
    return [_candidate(s) for s in scenarios]


def index_banks(host: Topology, index_bytes: int) -> float:
    """Return how many of the host's banks an index of that size fills."""
    return index_bytes / max(1.0, statistics.median(bank_bytes(host, n) for n in host.data_nodes))


def default(scenarios: Sequence[Scenario]) -> int:
    """Return the number of the default run: one instance of the most threads, with nothing asked for.

    Raises ValueError where there is none.
    """
    single = [i for i, s in enumerate(scenarios) if s.instances == 1 and not s.placements[0].numactl]
    return max(single, key=lambda i: scenarios[i].threads)


def _candidate(scenario: Scenario) -> Candidate:
    first = scenario.placements[0]
    users = Counter(n for p in scenario.placements for n in p.numa_nodes)
    return Candidate(
        scenario.name,
        scenario.instances,
        scenario.threads,
        scenario.policy,
        spread=policy(scenario.policy).pages[first.extent] == "even",
        banks=len(first.numa_nodes),
        sharing=statistics.mean(users.values()),
    )
