# SPDX-License-Identifier: Apache-2.0
"""Groups of neighbouring NUMA nodes, chosen by the distance matrix.

The firmware's numbering says nothing about neighbourhood: on the thesis's Opteron the NUMA nodes 0 and 3 are
two hops apart (distance 22) while 0 and 2 are one (16).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from firsttouch.topology import Topology


def neighbours(topology: Topology, nodes: Sequence[int], groups: int) -> list[tuple[int, ...]]:
    """Return *groups* disjoint groups of len(nodes) // groups of *nodes*, each as close together as possible.

    The cost is the sum of the distances within the groups; among equals, NUMA nodes of one package stay
    together, then low numbers come first. Greedy, then improved by exchanges until none helps (test: equal to
    the exhaustive optimum on every stored topology). Nodes beyond a multiple of *groups* are left out.
    """
    size = len(nodes) // groups
    free = sorted(nodes)
    result: list[list[int]] = []
    while len(result) < groups:
        group = [free.pop(0)]
        while len(group) < size:
            best = min(free, key=lambda n: (sum(_cost(topology, n, g) for g in group), n))
            free.remove(best)
            group.append(best)
        result.append(group)
    _exchange(topology, result, free)
    return sorted(tuple(sorted(g)) for g in result)


def _exchange(topology: Topology, groups: list[list[int]], unused: list[int]) -> None:
    """Exchange single nodes between two groups, or with the unused ones, while that lowers the cost."""
    pools = [*groups, unused] if unused else groups
    improved = True
    while improved:
        improved = False
        for one, other in combinations(pools, 2):
            for i in range(len(one)):
                for j in range(len(other)):
                    before = _total(topology, one, unused) + _total(topology, other, unused)
                    one[i], other[j] = other[j], one[i]
                    if _total(topology, one, unused) + _total(topology, other, unused) < before:
                        improved = True
                    else:
                        one[i], other[j] = other[j], one[i]


def _total(topology: Topology, group: list[int], unused: list[int]) -> int:
    if group is unused:
        return 0
    return sum(_cost(topology, a, b) for a, b in combinations(group, 2))


def _cost(topology: Topology, a: int, b: int) -> int:
    """Return the distance both ways, with a handicap between packages that no number of pairs adds up to."""
    both = topology.distance(a, b) + topology.distance(b, a)
    return 1_000_000 * both + int(not _same_package(topology, a, b))


def _same_package(topology: Topology, a: int, b: int) -> bool:
    packages = [{p.package for p in topology.pus if p.numa_node == n} for n in (a, b)]
    return bool(packages[0] & packages[1])
