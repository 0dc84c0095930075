# SPDX-License-Identifier: Apache-2.0
"""Groups of neighbouring NUMA nodes, chosen by the distance matrix.

The firmware's numbering says nothing about neighbourhood: on the thesis's Opteron the NUMA nodes 0 and 3 are
two hops apart (distance 22) while 0 and 2 are one (16).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from firsttouch.host.topology import Topology

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

#: Up to this many NUMA nodes all groupings are weighed (of 16 within about a second); more take exchanges.
EXACT = 16
_NEVER = 1 << 62


class Neighbours:
    """The NUMA nodes of a topology that are to be grouped, and what each pair of them costs."""

    def __init__(self, topology: Topology, nodes: Sequence[int]) -> None:
        self._nodes = sorted(nodes)
        self._cost = _costs(topology, self._nodes)

    def groups(self, count: int) -> list[tuple[int, ...]]:
        """Return *count* disjoint groups of equally many NUMA nodes, each as close together as possible.

        The cost is the sum of the distances within the groups, the least there is for up to EXACT nodes; among
        equals, NUMA nodes of one package stay together, then low numbers come first. Nodes beyond a multiple of
        *count* are left out. More nodes are grouped greedily, then improved by exchanges until none helps, which
        need not find the least.
        """
        if count == 1:
            return [tuple(self._nodes)]
        if count == len(self._nodes):
            return [(n,) for n in self._nodes]
        groups = (_best if len(self._nodes) <= EXACT else _improved)(self._cost, count)
        return sorted(tuple(sorted(self._nodes[i] for i in group)) for group in groups)


def _best(cost: list[list[int]], groups: int) -> Sequence[Sequence[int]]:
    """Return the cheapest groups: each set of nodes that is left over is solved once (Bellman's principle)."""
    size = len(cost) // groups
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
            # The cheapest pairs of all bound what the other groups cost at least.
            if own + (wanted - 1) * least >= best[0]:
                break
            after, tail = solve(tuple(n for n in rest if n not in group), wanted - 1)
            best = min(best, (own + after, (group, *tail)))
        return min(best, solve(rest, wanted)) if len(free) > wanted * size else best

    return solve(tuple(range(len(cost))), groups)[1]


def _improved(cost: list[list[int]], groups: int) -> Sequence[Sequence[int]]:
    """Return groups that grow greedily from their lowest node and are then improved by exchanges."""
    import numpy as np  # noqa: PLC0415 (hosts with so many NUMA nodes are rare, and it takes a while to load)

    matrix = np.array(cost)
    size = len(matrix) // groups
    free = np.ones(len(matrix), dtype=bool)
    result = []
    for _ in range(groups):
        group: list[int] = []
        near = np.zeros(len(matrix), dtype=np.int64)
        while len(group) < size:
            node = int(np.where(free, near, _NEVER).argmin())  # of equals the lowest
            free[node] = False
            near += matrix[node]
            group.append(node)
        result.append(np.array(group))
    _exchange(matrix, [*result, np.flatnonzero(free)], groups)
    return [group.tolist() for group in result]


def _exchange(cost: Array, pools: list[Array], groups: int) -> None:
    """Exchange single nodes between two *pools* while that lowers the cost; those behind *groups* cost nothing."""
    import numpy as np  # noqa: PLC0415

    # What a node costs beside all members of each pool: kept up to date, so that no exchange has to add them up.
    beside = np.array([cost[pool].sum(axis=0) if i < groups else 0 * cost[0] for i, pool in enumerate(pools)])

    def helps(own: int, nodes: Array, pool: Array | int, others: Array) -> Array:
        """Tell which exchanges of *nodes* of the pool *own* with *others* of *pool* lower the cost."""
        a, b = nodes[:, None], others[None, :]
        both = 1 + (np.asarray(pool) < groups)
        rise = beside[own, b] - beside[own, a] + beside[pool, a] - beside[pool, b] - both * cost[a, b]
        return np.asarray(rise < 0)

    def exchange_between(own: int, pool: int) -> None:
        for i in range(len(pools[own])):
            j = 0
            while (better := helps(own, pools[own][i : i + 1], pool, pools[pool][j:])[0]).any():
                j += int(better.argmax())
                a, b = int(pools[own][i]), int(pools[pool][j])
                pools[own][i], pools[pool][j] = b, a
                beside[own] += cost[b] - cost[a]
                if pool < groups:
                    beside[pool] += cost[a] - cost[b]
                j += 1

    improved = True
    while improved:
        improved = False
        for own in range(len(pools) - 1):
            pool = own
            while pool + 1 < len(pools):
                later = pools[pool + 1 :]
                where = np.repeat(np.arange(pool + 1, len(pools)), [len(p) for p in later])
                better = helps(own, pools[own], where, np.concatenate(later)).any(axis=0)
                if not better.any():
                    break
                pool = int(where[better.argmax()])
                exchange_between(own, pool)
                improved = True


def _costs(topology: Topology, nodes: Sequence[int]) -> list[list[int]]:
    """Return the distance of every pair both ways, plus a handicap for different packages; 0 to itself.

    The handicap is so small that no number of pairs adds up to a step of the distance.
    """
    packages: dict[int, set[int]] = {n: set() for n in nodes}
    for pu in topology.pus:
        if pu.numa_node in packages:
            packages[pu.numa_node].add(pu.package)
    cost = []
    for i, a in enumerate(nodes):
        both = [topology.distance(a, b) + topology.distance(b, a) for b in nodes[:i]]
        cost.append(
            [1_000_000 * d + packages[a].isdisjoint(packages[b]) for d, b in zip(both, nodes, strict=False)]
        )
    return [[*row, 0, *(cost[j][i] for j in range(i + 1, len(nodes)))] for i, row in enumerate(cost)]
