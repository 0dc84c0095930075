# SPDX-License-Identifier: Apache-2.0
"""Groups of neighbouring NUMA nodes against the exhaustive optimum."""

import functools
import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factories.topologies import host_of
from firsttouch.scenarios.layout import Neighbours


def topology(matrix, packages=None):
    nodes = range(len(matrix))
    distances = {(a, b): matrix[a][b] for a in nodes for b in nodes}
    pus = ((i, packages[i] if packages else i, i) for i in nodes)
    return host_of(pus, dict.fromkeys(nodes, 1), distances=distances)


def symmetric(count, draw):
    matrix = [[10] * count for _ in range(count)]
    for a, b in combinations(range(count), 2):
        matrix[a][b] = matrix[b][a] = draw()
    return matrix


def neighbours(topology, nodes, groups):
    return Neighbours(topology, nodes).groups(groups)


def cost(matrix, group):
    return sum(matrix[a][b] + matrix[b][a] for a, b in combinations(group, 2))


def optimum(matrix, groups):
    """Return the least cost of all ways to choose that many equal groups."""
    size = len(matrix) // groups

    @functools.cache
    def least(free, wanted, spare):
        if not wanted:
            return 0
        first, rest = free[0], free[1:]
        costs = [least(rest, wanted, spare - 1)] if spare else []
        for others in combinations(rest, size - 1):
            left = tuple(n for n in rest if n not in others)
            costs.append(cost(matrix, (first, *others)) + least(left, wanted - 1, spare))
        return min(costs)

    return least(tuple(range(len(matrix))), groups, len(matrix) - size * groups)


def test_pairs_and_fours_on_the_opteron(opteron):
    """Pairs are the dies of one package; no pair is two hops apart."""
    assert neighbours(opteron, range(8), 4) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert neighbours(opteron, range(8), 8) == [(n,) for n in range(8)]
    assert neighbours(opteron, range(8), 1) == [tuple(range(8))]


def test_packages_stay_together_where_distances_are_equal():
    matrix = symmetric(4, lambda: 20)
    assert neighbours(topology(matrix, packages=[0, 1, 1, 0]), range(4), 2) == [(0, 3), (1, 2)]


@given(
    st.integers(2, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))),
    st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None)
def test_groups_are_disjoint_equal_and_the_closest(shape, rng):
    count, groups = shape
    matrix = symmetric(count, lambda: rng.randint(11, 40))
    chosen = neighbours(topology(matrix), range(count), groups)
    members = [n for g in chosen for n in g]
    assert len(members) == len(set(members))
    assert [len(g) for g in chosen] == [count // groups] * groups
    assert chosen == sorted(tuple(sorted(g)) for g in chosen)
    assert sum(cost(matrix, g) for g in chosen) == optimum(matrix, groups)


@pytest.mark.parametrize("groups", [2, 4, 8])
def test_sixteen_nodes_of_two_boards(groups):
    """No group has successive numbers: within a quarter, the four numbers differ by multiples of 4."""
    near = {True: 12, False: 30}
    matrix = [
        [10 if a == b else near[a % 4 == b % 4] + (a % 2 != b % 2) * 9 for b in range(16)] for a in range(16)
    ]
    chosen = neighbours(topology(matrix), range(16), groups)
    boards = [(0, 2, 4, 6, 8, 10, 12, 14), (1, 3, 5, 7, 9, 11, 13, 15)]
    if groups == 2:
        assert chosen == boards
    if groups == 4:
        assert chosen == [tuple(range(q, 16, 4)) for q in range(4)]
    assert all(len({n % min(groups, 4) for n in g}) == 1 for g in chosen)


def test_more_numa_nodes_than_the_exhaustive_search_takes():
    rng = random.Random(1)  # noqa: S311
    matrix = symmetric(24, lambda: 30)
    for quarter in range(4):
        for a, b in combinations(range(quarter, 24, 4), 2):
            matrix[a][b] = matrix[b][a] = 12 + rng.randint(0, 3)
    chosen = neighbours(topology(matrix), range(24), 4)
    assert chosen == [tuple(range(q, 24, 4)) for q in range(4)]
    assert [len(g) for g in neighbours(topology(matrix), range(24), 5)] == [4] * 5
