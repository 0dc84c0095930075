# SPDX-License-Identifier: Apache-2.0
"""Groups of neighbouring NUMA nodes, chosen by the distance matrix.

Node numbers do not reflect distance: on the thesis's Opteron, NUMA nodes 0 and 3 are two hops apart (distance 22),
and 0 and 2 only one (16).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from itertools import combinations

from firsttouch.host.topology import Topology

#: Up to this many NUMA nodes the best grouping is found exactly (16 nodes take about a second).
EXACT = 16
_NEVER = 1 << 62


class Neighbours:
    """The NUMA nodes to group, and the cost of each pair."""

    def __init__(self, topology: Topology, nodes: Sequence[int]) -> None:
        self._nodes = sorted(nodes)
        self._cost = _costs(topology, self._nodes)

    def groups(self, count: int) -> list[tuple[int, ...]]:
        """Return *count* disjoint groups of equal size with the smallest sum of distances within the groups.

        Ties prefer NUMA nodes of one package, then low numbers. Nodes beyond a multiple of *count* are left out.
        More than EXACT nodes are grouped greedily and improved by exchanges, which may miss the minimum.
        """
        return self.groups_of(len(self._nodes) // count, count)

    def groups_of(self, size: int, count: int = 0) -> list[tuple[int, ...]]:
        """Return *count* groups (0: the most possible) of *size* NUMA nodes, chosen as :meth:`groups` does."""
        count = count or len(self._nodes) // size
        if size == len(self._nodes):
            return [tuple(self._nodes)]
        if size == 1 and count == len(self._nodes):
            return [(n,) for n in self._nodes]
        groups = (_best if len(self._nodes) <= EXACT else _improved)(self._cost, count, size)
        return sorted(tuple(sorted(self._nodes[i] for i in group)) for group in groups)


def _best(cost: list[list[int]], groups: int, size: int) -> Sequence[Sequence[int]]:
    """Return the cheapest groups by dynamic programming over the set of nodes that are left."""
    least = min(cost[a][b] for a, b in combinations(range(len(cost)), 2)) * size * (size - 1) // 2

    @functools.cache
    def within(group: tuple[int, ...]) -> int:
        return sum(cost[a][b] for a, b in combinations(group, 2))

    @functools.cache
    def solve(free: tuple[int, ...], wanted: int) -> tuple[float, tuple[tuple[int, ...], ...]]:
        if not wanted:
            return 0, ()
        first, rest = free[0], free[1:]
        best: tuple[float, tuple[tuple[int, ...], ...]] = (math.inf, ())
        for own, group in sorted((within((first, *o)), (first, *o)) for o in combinations(rest, size - 1)):
            # The other groups cost at least as much as if all their pairs were the cheapest pair.
            if own + (wanted - 1) * least >= best[0]:
                break
            after, tail = solve(tuple(n for n in rest if n not in group), wanted - 1)
            best = min(best, (own + after, (group, *tail)))
        return min(best, solve(rest, wanted)) if len(free) > wanted * size else best

    return solve(tuple(range(len(cost))), groups)[1]


def _improved(cost: list[list[int]], groups: int, size: int) -> Sequence[Sequence[int]]:
    """Return groups that are grown greedily from their lowest node and improved by exchanges of two nodes."""
    import numpy as np  # noqa: PLC0415 (slow to load, and such hosts are rare)

    matrix = np.array(cost)
    # The group of each node. Nodes of the last group are left over and cost nothing.
    group_of = np.full(len(matrix), groups)
    # The cost of each node to all members of each group, updated at each exchange.
    beside = np.zeros((len(matrix), groups + 1), dtype=np.int64)
    for group in range(groups):
        for _ in range(size):
            node = int(np.where(group_of == groups, beside[:, group], _NEVER).argmin())  # of equals the lowest
            group_of[node] = group
            beside[:, group] += matrix[node]
    nodes = np.arange(len(matrix))
    improved = True
    while improved:
        improved = False
        for a in range(len(nodes)):
            own = group_of[a]
            both = int(own < groups) + (group_of < groups)
            rise = beside[nodes, own] - beside[a, own] + beside[a, group_of] - beside[nodes, group_of]
            rise = np.where(group_of == own, 0, rise - both * matrix[a])
            b = int((rise < 0).argmax())
            if rise[b] < 0:
                improved = True
                for node, pool, other in ((a, own, b), (b, group_of[b], a)):
                    if pool < groups:
                        beside[:, pool] += matrix[other] - matrix[node]
                group_of[a], group_of[b] = group_of[b], own
    return [np.flatnonzero(group_of == group).tolist() for group in range(groups)]


def _costs(topology: Topology, nodes: Sequence[int]) -> list[list[int]]:
    """Return for each pair the distance both ways plus a penalty for different packages; 0 to itself.

    The penalty is too small for any number of pairs to outweigh a difference in distance.
    """
    packages: dict[int, set[int]] = {n: set() for n in nodes}
    for pu in topology.pus:
        if pu.numa_node in packages:
            packages[pu.numa_node].add(pu.package)

    def cost(a: int, b: int) -> int:
        both = topology.distance(a, b) + topology.distance(b, a)
        return 1_000_000 * both + packages[a].isdisjoint(packages[b]) if a != b else 0

    return [[cost(a, b) for b in nodes] for a in nodes]
