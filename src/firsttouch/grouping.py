# SPDX-License-Identifier: Apache-2.0
"""Groups of neighbouring NUMA nodes, chosen by the distance matrix.

The firmware's numbering says nothing about neighbourhood: on the thesis's Opteron the NUMA nodes 0 and 3 are
two hops apart (distance 22) while 0 and 2 are one (16).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from itertools import combinations, product

from firsttouch.topology import Topology

Costs = dict[tuple[int, int], int]

#: Up to this many NUMA nodes all groupings are weighed (of 16 within about a second); more take exchanges.
EXACT = 16


def neighbours(topology: Topology, nodes: Sequence[int], groups: int) -> list[tuple[int, ...]]:
    """Return *groups* disjoint groups of len(nodes) // groups of *nodes*, each as close together as possible.

    The cost is the sum of the distances within the groups, the least there is for up to EXACT nodes; among
    equals, NUMA nodes of one package stay together, then low numbers come first. Nodes beyond a multiple of
    *groups* are left out. More nodes are grouped greedily, then improved by exchanges until none helps, which
    need not find the least.
    """
    cost = _costs(topology, nodes)
    find = _best if 1 < groups < len(nodes) <= EXACT else _improved
    return sorted(tuple(sorted(g)) for g in find(cost, sorted(nodes), groups))


def _best(cost: Costs, nodes: Sequence[int], groups: int) -> Sequence[Sequence[int]]:
    """Return the cheapest groups: each set of nodes that is left over is solved once (Bellman's principle)."""
    size = len(nodes) // groups
    least = min(cost[a, b] for a, b in combinations(nodes, 2)) * size * (size - 1) // 2

    @functools.cache
    def within(group: tuple[int, ...]) -> int:
        return sum(cost[a, b] for a, b in combinations(group, 2))

    @functools.cache
    def solve(free: tuple[int, ...], wanted: int) -> tuple[float, tuple[tuple[int, ...], ...]]:
        if not wanted:
            return 0, ()
        first, rest = free[0], free[1:]
        best: tuple[float, tuple[tuple[int, ...], ...]] = (math.inf, ())
        for own, group in sorted((within((first, *o)), (first, *o)) for o in combinations(rest, size - 1)):
            # The cheapest pairs of all bound what the other groups cost at least.
            if own + (wanted - 1) * least >= best[0]:
                break
            after, tail = solve(tuple(n for n in rest if n not in group), wanted - 1)
            best = min(best, (own + after, (group, *tail)))
        return min(best, solve(rest, wanted)) if len(free) > wanted * size else best

    return solve(tuple(nodes), groups)[1]


def _improved(cost: Costs, nodes: Sequence[int], groups: int) -> Sequence[Sequence[int]]:
    """Return groups that grow greedily from their lowest node and are then improved by exchanges."""
    size = len(nodes) // groups
    free = list(nodes)
    result: list[list[int]] = []
    while len(result) < groups:
        group = [free.pop(0)]
        while len(group) < size:
            best = min(free, key=lambda n: (sum(cost[n, g] for g in group), n))
            free.remove(best)
            group.append(best)
        result.append(group)
    _exchange(cost, result, free)
    return result


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
