# SPDX-License-Identifier: Apache-2.0
"""Parts and last-level caches: against the best of all divisions of small hosts, and on hosts of any shape."""

import functools
import itertools
import math
from collections import Counter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from factories import topologies
from firsttouch.errors import BadInput, CannotHere
from firsttouch.host.topology import Cache, parse_xml
from firsttouch.scenarios.cache_domains import divide
from firsttouch.scenarios.layout import Layout
from firsttouch.scenarios.placement import TaskShare, plan, plan_task


def domains_of(shapes):
    """Return domains of (cores, PUs of a core), and the core and the rank of each PU."""
    core, rank, domains = {}, {}, []
    for cores, threads in shapes:
        first = len(set(core.values()))
        pus = [(thread, first + number) for thread in range(threads) for number in range(cores)]
        numbers = range(len(core), len(core) + len(pus))
        core |= {pu: number for pu, (_, number) in zip(numbers, pus, strict=True)}
        rank |= {pu: thread for pu, (thread, _) in zip(numbers, pus, strict=True)}
        domains.append([*numbers])
    return domains, core, rank


def measure(domains, parts):
    """Return the borders that *parts* cross, and how often a domain has a part more."""
    touched = [[i for i, domain in enumerate(domains) if not {*domain}.isdisjoint(part)] for part in parts]
    shared = Counter(i for members in touched for i in members)
    return sum(len(members) - 1 for members in touched), sum(count - 1 for count in shared.values())


def optimum(bounds, parts, size):
    """Return the same of the best of all divisions; *bounds* are the fewest and the most PUs of each domain."""

    @functools.cache
    def least(left, used, remaining):
        if not remaining:
            fits = all(most - n >= low for n, (low, most) in zip(left, bounds, strict=True))
            return (0, 0) if fits else (math.inf, math.inf)
        results = [(math.inf, math.inf)]
        for taken in itertools.product(*(range(min(n, size) + 1) for n in left)):
            if sum(taken) == size:
                own = [bool(n) for n in taken]
                rest = tuple(a - b for a, b in zip(left, taken, strict=True))
                both = tuple(map(max, used, own))
                borders, shared = least(rest, both, remaining - 1)
                again = sum(map(min, used, own))
                results.append((borders + sum(own) - 1, shared + again))
        return min(results)

    return least(tuple(most for _, most in bounds), (False,) * len(bounds), parts)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from((1, 1, 2))), min_size=1, max_size=4),
    st.integers(1, 4),
    st.integers(1, 6),
)
@settings(max_examples=150, deadline=None)
def test_no_division_is_better(shapes, parts, size):
    domains, core, rank = domains_of(shapes)
    assume(parts * size <= len(core))
    divided = divide(domains, core, rank, parts, size)
    taken = Counter(pu for part in divided for pu in part)
    assert [len(part) for part in divided] == [size] * parts
    assert max(taken.values()) == 1
    # Second PUs of cores only if all first ones are used.
    firsts = sum(place == 0 for place in rank.values())
    is_full = parts * size > firsts
    bounds = [(cores, cores * threads) if is_full else (0, cores) for cores, threads in shapes]
    assert measure(domains, divided) == optimum(tuple(bounds), parts, size)
    cores = Counter(core[pu] for pu in taken)
    assert max(cores.values()) == 1 or len(cores) == firsts


def test_many_domains_of_all_sizes_are_divided_in_a_moment():
    """Beyond what can be tried, parts still cross few borders: they follow each other through the domains."""
    domains, core, rank = domains_of([(1 + 7 * i % 13, 1) for i in range(24)])
    total = len(core)
    for parts, size in ((3, total // 3), (11, total // 11), (total // 2, 2)):
        divided = divide(domains, core, rank, parts, size)
        assert len({pu for part in divided for pu in part}) == parts * size
        assert measure(domains, divided)[0] <= len(domains) - 1


def cached(topology, groups):
    """Return *topology* with last-level caches of these PUs."""
    return replace(topology, caches=tuple(Cache(3, 1 << 25, frozenset(pus)) for pus in groups))


def machine(*cores, caches=None):
    """Return a host with a NUMA node for each number of *cores*, and last-level caches of consecutive PUs."""
    nodes = (node for node, count in enumerate(cores) for _ in range(count))
    pus = ((core, node, node) for core, node in enumerate(nodes))
    host = topologies.host_of(pus, dict.fromkeys(range(len(cores)), 1 << 35))
    ends = [*itertools.accumulate(caches or ())]
    return cached(host, [range(end - count, end) for end, count in zip(ends, caches or (), strict=True)])


def placed(scenario):
    return [placement.pus for placement in scenario.placements]


def test_the_example_of_four_caches():
    """4 x 3 threads on four caches of four cores: none is idle, and none is shared."""
    host = machine(16, caches=[4, 4, 4, 4])
    assert placed(plan(host).scenario("4x3-bound")) == [(0, 1, 2), (4, 5, 6), (8, 9, 10), (12, 13, 14)]
    assert placed(plan(host).scenario("2x2-local")) == [(0, 1), (4, 5)]
    assert placed(plan(host).scenario("1x3-default")) == [tuple(range(16))]
    without = replace(host, caches=())
    assert placed(plan(without).scenario("4x3-bound")) == [(0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11)]


@pytest.mark.parametrize("source", [topologies.made_up, topologies.of_corpus])
@pytest.mark.parametrize("shape", topologies.SHAPES)
def test_instances_in_a_node_cross_no_cache_if_they_need_not(source, shape):
    host = parse_xml(source(shape))
    rank = Layout(host, None)._rank
    for scenario in plan(host, policies="usual").scenarios:
        nodes = (n for p in scenario.placements for n in host.cpu_nodes if {*p.pus} <= {*host.usable_pus(n)})
        by_node = Counter(nodes)
        if scenario.instances == 1 or by_node.total() < scenario.instances or not host.domains:
            continue
        for node, parts in by_node.items():
            usable = host.usable_pus(node)
            firsts = [pu for pu in usable if rank[pu] == 0]
            if parts * scenario.threads > len(firsts):
                continue  # where cores are shared, every core is used: the oracle above has this rule
            rooms = [len(domain.intersection(firsts)) // scenario.threads for domain in host.domains]
            inside = [p.pus for p in scenario.placements if {*p.pus} <= {*usable}]
            borders, _ = measure(host.domains, inside)
            assert (borders == 0) == (sum(rooms) >= parts)


SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@given(st.lists(SIZES, min_size=1, max_size=2), st.integers(2, 4), st.integers(1, 4))
def test_instances_with_caches_of_their_own_cross_none_if_they_need_not(nodes, instances, threads):
    sizes = [*itertools.chain(*nodes)]
    host = machine(*map(sum, nodes), caches=sizes)
    assume(host.domains and sum(size >= threads for size in sizes) >= instances)
    shares = Layout(host, None).caches(instances, threads)
    assert measure(host.domains, [share.pus for share in shares]) == (0, 0)


@pytest.mark.parametrize("shape", topologies.SHAPES)
def test_a_plan_without_several_caches_in_a_node_is_as_without_caches(shape):
    host = parse_xml(topologies.made_up(shape))
    one_each = cached(host, [node.pus for node in host.numa_nodes])
    plans = [plan(h, policies="usual").scenarios for h in (replace(host, caches=()), one_each)]
    assert plans[0] == plans[1]
    assert not one_each.domains


def test_uneven_and_missing_caches_and_dies():
    # Seven and five cores share a cache, and four of the other NUMA node have none.
    host = machine(12, 6, caches=[7, 5, 2])
    assert [sorted(pus) for pus in host.domains] == [[*range(7)], [*range(7, 12)], [12, 13], [*range(14, 18)]]
    assert placed(plan(host, policies="cache").scenario("2x4-cache")) == [(0, 1, 2, 3), (14, 15, 16, 17)]
    assert placed(plan(host, policies="cache").scenario("4x-cache")) == [(0, 1), (7, 8), (12, 13), (14, 15)]
    assert {s.name for s in plan(host, policies="cache").scenarios} == {"4x2-cache"}
    # Dies stand for caches that are not stated, and a cache of two NUMA nodes is one in each.
    dies = replace(machine(4, 4), dies=(frozenset({0, 1}), frozenset({2, 3}), frozenset(range(4, 8))))
    assert [sorted(pus) for pus in dies.domains] == [[0, 1], [2, 3], [4, 5, 6, 7]]
    assert cached(machine(4, 4), [range(8)]).domains == ()
    # A cpuset may leave parts of caches.
    part = replace(machine(8, caches=[4, 4]), allowed_pus=frozenset({0, 3, 4, 5}))
    assert placed(plan(part).scenario("2x2-bound")) == [(0, 3), (4, 5)]


@pytest.mark.parametrize(
    ("host", "name", "reason"),
    [
        (machine(16, caches=[4] * 4), "5x2-cache", "5 instances need a last-level cache each"),
        (machine(16, caches=[4] * 4), "4x5-cache", "have 4 PUs"),
        (machine(16, caches=[4] * 4), "1x4-cache", "one instance has the whole host"),
        (machine(16), "2x2-cache", "no NUMA node of this host has several"),
        (machine(8, 8, caches=[8, 8]), "2x2-cache", "no NUMA node of this host has several"),
    ],
)
def test_caches_that_are_not_there(host, name, reason):
    with pytest.raises((BadInput, CannotHere), match=reason):
        plan(host).scenario(name)
    if not host.domains:
        assert not plan(host, policies="cache").scenarios
        assert reason in plan(host, policies="cache").infeasible[0][1]


def test_a_program_on_a_cache_and_tasks_on_caches():
    host = machine(16, 16, caches=[4] * 8)
    pus = host.pus_on("cache:1,5")
    assert sorted(pus) == [*range(4, 8), *range(20, 24)]
    alone = plan_task(host, TaskShare(host.pus_on("cache:5")), 1, "1x-default")
    assert (placed(alone), alone.placements[0].numa_nodes) == ([(20, 21, 22, 23)], (1,))
    everything = frozenset(host.allowed_pus)
    for name, expected in {"1x3-local": (4, 5, 6), "8x-cache": (4, 5, 6, 7), "1x4-cache": (4, 5, 6, 7)}.items():
        task = plan_task(host, TaskShare(everything, 1, 8), 8, name)
        assert placed(task) == [expected]
    with pytest.raises(BadInput, match="no last-level cache 8"):
        host.pus_on("cache:2,8")
    with pytest.raises(BadInput, match="cache:0"):
        machine(4).pus_on("cache:0")
