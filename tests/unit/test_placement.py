# SPDX-License-Identifier: Apache-2.0
"""Plans: of the thesis's machines, and of any machine there may be."""

import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from firsttouch.checks.cases import topology_of
from firsttouch.cpulist import parse_list
from firsttouch.errors import BadInput, CannotHere
from firsttouch.placement import Need, plan
from firsttouch.policies import policies
from firsttouch.systems import load
from firsttouch.topology import DEVICE_MEMORY, NumaNode, Pu, Topology

pytestmark = pytest.mark.unit

GIB = 2**30


def machine(*nodes, smt=1, limit=None, distances=None):
    """Make a topology of (number, cores, memory) triples; PUs are numbered node by node."""
    pus, found, core = [], [], 0
    for number, cores, memory in nodes:
        mine = []
        for _ in range(cores):
            core += 1
            mine += [Pu(len(pus) + len(mine) + i, core, number, number) for i in range(smt)]
        pus += mine
        found.append(NumaNode(number, tuple(p.index for p in mine), memory))
    numbers = frozenset(n for n, _, _ in nodes)
    everything = frozenset(p.index for p in pus)
    return Topology(tuple(found), tuple(pus), (), distances or {}, everything, numbers, limit)


@st.composite
def topologies(draw):
    """Any machine: uneven, memoryless and PU-less nodes, SMT, sparse numbers, parts that may not be used."""
    numbers = sorted(draw(st.sets(st.integers(0, 30), min_size=1, max_size=16)))
    even = draw(st.booleans())
    cores = draw(st.integers(1, 6))
    smt = draw(st.sampled_from((1, 1, 2, 4)))
    shapes = [
        (n, cores if even else draw(st.integers(0, 6)), draw(st.sampled_from((0, GIB, 8 * GIB)))) for n in numbers
    ]
    found = machine(*shapes, smt=smt)
    order = draw(st.permutations(range(len(found.pus))))
    gap = draw(st.sampled_from((0, 5)))
    number = {p.index: gap + (1 + gap) * order[p.index] for p in found.pus}
    subtypes = [draw(st.sampled_from(("", "", "", "DRAM", "HBM", "GPUMemory"))) for _ in numbers]
    nodes = tuple(
        replace(n, pus=tuple(sorted(number[p] for p in n.pus)), subtype=s)
        for n, s in zip(found.numa_nodes, subtypes, strict=True)
    )
    pus = tuple(sorted((replace(p, index=number[p.index]) for p in found.pus), key=lambda p: p.index))
    all_pus, all_nodes = frozenset(number.values()), frozenset(numbers)
    kept_pus = all_pus - (draw(st.frozensets(st.sampled_from(sorted(all_pus)))) if all_pus else frozenset())
    kept_nodes = all_nodes - draw(st.frozensets(st.sampled_from(numbers)))
    matrix = {(a, b): 10 if a == b else draw(st.integers(11, 40)) for a in numbers for b in numbers}
    return replace(
        found,
        numa_nodes=nodes,
        pus=pus,
        allowed_pus=draw(st.sampled_from((all_pus, kept_pus))),
        allowed_nodes=draw(st.sampled_from((all_nodes, kept_nodes))),
        distances=draw(st.sampled_from(({}, matrix))),
        memory_limit_bytes=draw(st.sampled_from((None, 4 * GIB))),
    )


def options(placement):
    """Return numactl's options by name, their values as sets of numbers (or ``all``, or True)."""
    found = {}
    for option in placement.numactl:
        name, _, value = option.partition("=")
        found[name] = (value if value == "all" else parse_list(value)) if value else True
    return found


def bound(topology, placement):
    """Return the PUs that numactl binds to: those of the kernel's NUMA nodes, or the ones that are named."""
    asked = options(placement)
    if "--cpunodebind" in asked:
        return {p for n in asked["--cpunodebind"] for p in topology.node(n).pus}
    return set(asked["--physcpubind"]) if "--physcpubind" in asked else set(topology.allowed_pus)


@given(topologies(), st.sampled_from((None, 1, 2, 3, 8, 1000)))
@settings(max_examples=80, deadline=None)
def test_any_machine_has_a_valid_plan_or_a_clear_reason(topology, threads):
    usable = {p for n in topology.cpu_nodes for p in topology.usable_pus(n)}
    banks = {
        n.index
        for n in topology.numa_nodes
        if n.memory_bytes and n.index in topology.allowed_nodes and n.subtype not in DEVICE_MEMORY
    }
    if not usable or not banks or not 1 <= (threads or 1) <= len(usable):
        with pytest.raises(BadInput, match=r"no PU that|no NUMA node has memory|--threads"):
            plan(topology, threads=threads)
        return
    found = plan(topology, threads=threads)
    assert not found.infeasible
    names = [s.name for s in found.scenarios]
    assert len({n.lower() for n in names}) == len(names)
    for scenario in found.scenarios:
        assert re.fullmatch(
            rf"{scenario.instances}Inst_{scenario.policy.capitalize()}(_{scenario.threads}t)?", scenario.name
        )
        assert len(scenario.placements) == scenario.instances
        assert scenario.instances * scenario.threads <= (threads or len(usable))
        partly = scenario.instances * scenario.threads != len(usable)
        assert (re.search(r"_\d+t$", scenario.name) is not None) == partly
        taken = Counter(p for placement in scenario.placements for p in placement.pus)
        assert set(taken) <= usable
        assert max(taken.values()) == 1
        for placement in scenario.placements:
            single = scenario.instances == 1
            assert len(placement.pus) == (len(usable) if single else scenario.threads)
            assert placement.extent == ("whole" if single else "part")
            assert placement.numa_nodes
            assert set(placement.numa_nodes) <= banks
            assert placement.pus == tuple(sorted(placement.pus))
            check_numactl(topology, placement, scenario.policy)


def check_numactl(topology, placement, policy):
    asked = options(placement)
    if placement.extent == "whole":
        expected = {"original": {}, "localalloc": {"--localalloc": True}, "interleave": {"--interleave": "all"}}
        assert asked == expected[policy]
        return
    assert bound(topology, placement) == set(placement.pus)
    data = set(placement.numa_nodes)
    expected = {
        "original": ("--membind", data),
        "localalloc": ("--localalloc", True),
        "interleave": ("--interleave", data),
    }
    name, value = expected[policy]
    assert asked[name] == value
    assert len(asked) == 2


@given(topologies())
@settings(max_examples=40, deadline=None)
def test_no_core_is_shared_while_another_one_idles(topology):
    core = {p.index: p.core for p in topology.pus}
    try:
        found = plan(topology)
    except BadInput:
        assume(False)
    for scenario in found.scenarios:
        if scenario.instances == 1 or scenario.instances > len(topology.cpu_nodes):
            continue
        for placement in scenario.placements:
            used = Counter(core[p] for p in placement.pus)
            nodes = {p.numa_node for p in topology.pus if p.index in placement.pus}
            mine = {core[p] for n in nodes for p in topology.usable_pus(n)}
            if max(used.values()) > 1 and len(mine) > len(used):
                # Only the second threads of cores that are all in use already may be taken.
                assert len(used) == len(mine)


@given(topologies(), st.integers(0, 10), st.integers(0, 2))
@settings(max_examples=25, deadline=None)
def test_what_is_feasible_fits(topology, index, buffers):
    need = Need(index * GIB // 2, buffers * GIB // 8, buffers * GIB // 16)
    try:
        found = plan(topology, need)
    except BadInput:
        assume(False)
    everything = plan(topology)
    assert {s.name for s in found.scenarios} | {n for n, _ in found.infeasible} == {
        s.name for s in everything.scenarios
    }
    for scenario in found.scenarios:
        each = need.of(scenario.threads)
        used = Counter(n for p in scenario.placements for n in p.numa_nodes)
        for placement in scenario.placements:
            assert each <= sum(topology.node(n).memory_bytes / used[n] for n in placement.numa_nodes)
        assert scenario.instances * each <= (topology.memory_limit_bytes or 10**18)
    for name, reason in found.infeasible:
        assert "index" in reason
        with pytest.raises(CannotHere, match=f"scenario {name}: "):
            found.scenario(name.upper())


@pytest.fixture(scope="module")
def opteron():
    return topology_of(load("amd-opteron").facts)


def numactl(plan_, name):
    return [" ".join(p.numactl) for p in plan_.scenario(name).placements]


def test_table_5_2(opteron):
    found = plan(opteron)
    assert numactl(found, "8Inst_Original") == [f"--cpunodebind={n} --membind={n}" for n in range(8)]
    pairs = ("0-1", "2-3", "4-5", "6-7")
    assert numactl(found, "4Inst_Interleave") == [f"--cpunodebind={n} --interleave={n}" for n in pairs]
    halves = numactl(found, "2Inst_Localalloc")
    assert [re.fullmatch(r"--cpunodebind=(\S+) --localalloc", h) is not None for h in halves] == [True, True]
    nodes = [parse_list(h.split("=")[1].split()[0]) for h in halves]
    assert nodes[0] | nodes[1] == set(range(8))
    assert [len(n) for n in nodes] == [4, 4]
    # One hop (16) wherever the matrix allows it: two pairs of two hops in all, of 12.
    far = [(a, b) for n in nodes for a in n for b in n if a < b and opteron.distance(a, b) == 22]
    assert len(far) == 2
    assert numactl(found, "1Inst_Original") == [""]
    assert numactl(found, "1Inst_Localalloc") == ["--localalloc"]
    assert numactl(found, "1Inst_Interleave") == ["--interleave=all"]
    assert [found.scenario(f"{n}Inst_Original").threads for n in (1, 2, 4, 8)] == [64, 32, 16, 8]


@pytest.mark.parametrize("name", ["amd-opteron", "intel-xeon"])
def test_thread_counts_of_the_scaling_study(name):
    found = plan(topology_of(load(name).facts))
    for policy in policies():
        threads = [s.threads for s in found.scenarios if s.instances == 1 and s.policy == policy]
        assert threads == [8, 16, 32, 48, 64]


def test_smt_is_used_and_left_alone():
    """4 NUMA nodes x 8 cores x 2: four instances of 16 threads, and of 8, each with a core of its own."""
    topology = topology_of(load("intel-xeon").facts)
    found = plan(topology)
    assert {s.threads for s in found.scenarios if s.instances == 4} == {8, 16}
    core = {p.index: p.core for p in topology.pus}
    for placement in found.scenario("4Inst_Original_8t").placements:
        assert len({core[p] for p in placement.pus}) == 8
        assert placement.numactl[0].startswith("--physcpubind=")
    assert numactl(found, "4Inst_Original")[3] == "--cpunodebind=3 --membind=3"


def test_more_instances_than_nodes_share_a_bank():
    found = plan(machine((0, 4, GIB), (1, 4, GIB)))
    assert numactl(found, "4Inst_Original") == [
        "--physcpubind=0-1 --membind=0",
        "--physcpubind=2-3 --membind=0",
        "--physcpubind=4-5 --membind=1",
        "--physcpubind=6-7 --membind=1",
    ]
    assert {s.instances for s in found.scenarios} == {1, 2, 4, 8}


def test_a_memoryless_node_uses_the_nearest_bank():
    near = {(a, b): 10 if a == b else 40 for a in range(3) for b in range(3)} | {(0, 2): 15}
    found = plan(machine((0, 2, 0), (1, 2, GIB), (2, 2, GIB), distances=near))
    assert [p.numa_nodes for p in found.scenario("3Inst_Original").placements] == [(2,), (1,), (2,)]


def test_a_node_that_is_partly_taken_is_bound_by_pus():
    topology = machine((0, 4, GIB), (1, 4, GIB))
    found = plan(replace(topology, allowed_pus=topology.allowed_pus - {5}))
    assert numactl(found, "2Inst_Original_3t") == [
        "--physcpubind=0-2 --membind=0",
        "--physcpubind=4,6-7 --membind=1",
    ]


def test_memory_is_counted_per_bank_and_the_reason_has_the_sums():
    topology = machine((0, 2, 10 * GIB), (1, 2, 10 * GIB))
    found = plan(topology, Need(6 * GIB, GIB, GIB // 2))
    names = [s.name for s in found.scenarios]
    assert "2Inst_Original" in names
    assert "4Inst_Original" not in names
    reason = dict(found.infeasible)["4Inst_Original"]
    assert reason == (
        "instance 0 needs 7.5 GiB (index 6 GiB + 1.5 GiB of buffers), its NUMA nodes 0 have 5 GiB for it"
    )


def test_the_limit_of_the_cgroup():
    topology = machine((0, 2, 10 * GIB), (1, 2, 10 * GIB), limit=11 * GIB)
    found = plan(topology, Need(6 * GIB))
    assert [s.name for s in found.scenarios if s.instances > 1] == []
    assert dict(found.infeasible)["2Inst_Localalloc"] == (
        "2 x 6 GiB (index 6 GiB + 0 B of buffers) = 12 GiB exceed the cgroup's memory limit of 11 GiB"
    )
    with pytest.raises(CannotHere, match="scenario 2Inst_Localalloc: 2 x 6 GiB"):
        found.scenario("2inst_localalloc")


def test_a_scenario_that_needs_another_host_is_no_bad_input():
    found = plan(machine((0, 2, GIB)))
    for name in ("64Inst_Original", "64inst_interleave", "1Inst_Original_48t"):
        with pytest.raises(CannotHere, match=name):
            found.scenario(name)
    for name in ("64Inst_Best", "Original", "", "64Inst_Original_x", "0Inst_Original"):
        with pytest.raises(BadInput, match="no scenario"):
            found.scenario(name)


@pytest.mark.parametrize("threads", [-1, 0, 3])
def test_threads_that_are_not_there(threads):
    with pytest.raises(BadInput, match="--threads"):
        plan(machine((0, 2, GIB)), threads=threads)
