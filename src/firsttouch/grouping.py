# SPDX-License-Identifier: Apache-2.0
"""Groups of neighbouring NUMA nodes, chosen by the distance matrix.

The firmware's numbering says nothing about neighbourhood: on the thesis's Opteron the NUMA nodes 0 and 3 are
two hops apart (distance 22) while 0 and 2 are one (16).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product

from firsttouch.topology import Topology

Costs = dict[tuple[int, int], int]


def neighbours(topology: Topology, nodes: Sequence[int], groups: int) -> list[tuple[int, ...]]:
    """Return *groups* disjoint groups of len(nodes) // groups of *nodes*, each as close together as possible.

    The cost is the sum of the distances within the groups; among equals, NUMA nodes of one package stay
    together, then low numbers come first. Greedy, then improved by exchanges until none helps: the best there
    is on the Opteron's matrix (test), not proven so on every other. Nodes beyond a multiple of *groups* are
    left out.
    """
    cost = _costs(topology, nodes)
    size = len(nodes) // groups
    free = sorted(nodes)
    result: list[list[int]] = []
    while len(result) < groups:
        group = [free.pop(0)]
        while len(group) < size:
            best = min(free, key=lambda n: (sum(cost[n, g] for g in group), n))
            free.remove(best)
            group.append(best)
        result.append(group)
    _exchange(cost, result, free)
    return sorted(tuple(sorted(g)) for g in result)


def _exchange(cost: Costs, groups: list[list[int]], unused: list[int]) -> None:
    """Exchange single nodes between two groups, or with the unused ones, while that lowers the cost."""
    pools = [*groups, unused] if unused else groups
    improved = True
    while improved:
        improved = False
        for one, other in combinations(pools, 2):
            for i in range(len(one)):
                for j in range(len(other)):
                    a, b = one[i], other[j]
                    gain = _change(cost, one, a, b) + (0 if other is unused else _change(cost, other, b, a))
                    if gain < 0:
                        one[i], other[j] = b, a
                        improved = True


def _change(cost: Costs, group: list[int], gone: int, come: int) -> int:
    """Return by how much the cost of *group* rises when *come* takes the place of *gone*."""
    return sum(cost[come, n] - cost[gone, n] for n in group if n != gone)


def _costs(topology: Topology, nodes: Sequence[int]) -> Costs:
    """Return the distance of every pair both ways, plus a handicap for different packages.

    The handicap is so small that no number of pairs adds up to a step of the distance.
    """
    packages = {n: {p.package for p in topology.pus if p.numa_node == n} for n in nodes}
    cost = {}
    for a, b in product(nodes, repeat=2):
        both = topology.distance(a, b) + topology.distance(b, a)
        cost[a, b] = 1_000_000 * both + int(not packages[a] & packages[b])
    return cost
