# SPDX-License-Identifier: Apache-2.0
"""Plans: of the thesis's machines, and of any machine there may be."""

import re
from collections import Counter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from factories.topologies import host_of
from firsttouch.errors import BadInput, CannotHere
from firsttouch.host.cpusets import parse_list
from firsttouch.host.topology import Cache
from firsttouch.scenarios.memory_fit import Need
from firsttouch.scenarios.placement import ScenarioName, name_of, parse_name, plan
from firsttouch.scenarios.policies import policies, refusal, select_policies

GIB = 2**30


def machine(*nodes, smt=1, limit=None, distances=None):
    """Make a topology of (number, cores, memory) triples; PUs are numbered node by node."""
    cores = [number for number, count, _ in nodes for _ in range(count)]
    pus = ((core, number, number) for core, number in enumerate(cores, start=1) for _ in range(smt))
    banks = {number: memory for number, _, memory in nodes}
    return host_of(pus, banks, distances=distances or {}, memory_limit_bytes=limit)


@st.composite
def topologies(draw):
    """Any machine: uneven, memoryless and PU-less nodes, SMT, sparse numbers, parts that may not be used."""
    numbers = sorted(draw(st.sets(st.integers(0, 30), min_size=1, max_size=10)))
    even = draw(st.booleans())
    cores = draw(st.integers(1, 6))
    smt = draw(st.sampled_from((1, 1, 2, 4)))
    shapes = [
        (n, cores if even else draw(st.integers(0, 6)), draw(st.sampled_from((0, GIB, 8 * GIB)))) for n in numbers
    ]
    host = machine(*shapes, smt=smt)
    # A draw for each PU or pair of NUMA nodes would take longer than a plan.
    chance = draw(st.randoms(use_true_random=False))
    order = chance.sample(range(len(host.pus)), len(host.pus))
    gap = draw(st.sampled_from((0, 5)))
    number = {p.index: gap + (1 + gap) * order[p.index] for p in host.pus}
    subtypes = [draw(st.sampled_from(("", "", "", "DRAM", "HBM", "GPUMemory", "CXL-DRAM"))) for _ in numbers]
    nodes = tuple(
        replace(n, pus=tuple(sorted(number[p] for p in n.pus)), subtype=s)
        for n, s in zip(host.numa_nodes, subtypes, strict=True)
    )
    pus = tuple(sorted((replace(p, index=number[p.index]) for p in host.pus), key=lambda p: p.index))
    all_pus, all_nodes = frozenset(number.values()), frozenset(numbers)
    kept_pus = all_pus - (draw(st.frozensets(st.sampled_from(sorted(all_pus)))) if all_pus else frozenset())
    kept_nodes = all_nodes - draw(st.frozensets(st.sampled_from(numbers)))
    # Last-level caches of one to three cores; some cores may have none.
    cores, width = sorted({p.core for p in pus}), draw(st.sampled_from((0, 1, 2, 3)))
    groups = [{*cores[i : i + width]} for i in range(draw(st.integers(0, 2)), len(cores), width)] if width else []
    caches = [Cache(3, 1 << 25, frozenset(p.index for p in pus if p.core in group)) for group in groups]
    hops = draw(st.binary(min_size=len(numbers) ** 2, max_size=len(numbers) ** 2))
    pairs = [(a, b) for a in numbers for b in numbers]
    matrix = {(a, b): 10 if a == b else 11 + hop % 30 for (a, b), hop in zip(pairs, hops, strict=True)}
    return replace(
        host,
        numa_nodes=nodes,
        pus=pus,
        caches=tuple(caches),
        allowed_pus=draw(st.sampled_from((all_pus, kept_pus))),
        allowed_nodes=draw(st.sampled_from((all_nodes, kept_nodes))),
        distances=draw(st.sampled_from(({}, matrix))),
        memory_limit_bytes=draw(st.sampled_from((None, 4 * GIB))),
    )


def options(placement):
    """Return numactl's options by name, their values as sets of numbers (or ``all``, or True)."""
    values = {}
    for option in placement.numactl:
        name, _, value = option.partition("=")
        values[name] = (value if value == "all" else parse_list(value)) if value else True
    return values


def bound(topology, placement):
    """Return the PUs that numactl binds to: all PUs of the kernel's NUMA nodes, or the named ones."""
    asked = options(placement)
    if "--cpunodebind" in asked:
        return {p for n in asked["--cpunodebind"] for p in topology.node(n).pus}
    return set(asked["--physcpubind"]) if "--physcpubind" in asked else set(topology.allowed_pus)


def with_memory(topology):
    return {n.index for n in topology.numa_nodes if n.memory_bytes and n.index in topology.allowed_nodes}


GROUPS = ("original,localalloc,interleave", "original,localalloc,interleave,cache")


@given(topologies(), st.sampled_from((None, 1, 2, 3, 8, 1000)), st.sampled_from(GROUPS))
@settings(max_examples=100, deadline=None)
def test_any_machine_has_a_valid_plan_or_a_clear_reason(topology, threads, group):
    usable = {p for n in topology.cpu_nodes for p in topology.usable_pus(n)}
    banks = {n for n in with_memory(topology) if topology.node(n).subtype != "GPUMemory"}
    ordinary = {n for n in banks if topology.node(n).subtype not in {"HBM", "CXL-DRAM"} or topology.node(n).pus}
    banks = ordinary or banks
    if not usable or not banks or not 1 <= (threads or 1) <= len(usable):
        with pytest.raises(BadInput, match=r"no PU|no NUMA node|--threads"):
            plan(topology, threads=threads)
        return
    planned = plan(topology, threads=threads, policies=group)
    assert [name for name, _ in planned.infeasible if name != "cache"] == []
    names = [s.name for s in planned.scenarios]
    assert len({n.lower() for n in names}) == len(names)
    for scenario in planned.scenarios:
        assert scenario.name.startswith(f"{scenario.instances}x{scenario.threads}-")
        assert len(scenario.placements) == scenario.instances
        assert scenario.instances * scenario.threads <= (threads or len(usable))
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
    data = set(placement.numa_nodes)
    if placement.extent == "whole":
        # numactl's "all" has the memory of devices too.
        all_nodes = "all" if data == with_memory(topology) else data
        expected = {
            "original": {},
            "localalloc": {"--localalloc": True},
            "interleave": {"--interleave": all_nodes},
        }
        assert asked == expected[policy]
        return
    assert bound(topology, placement) == set(placement.pus)
    expected = {
        "cache": ("--membind", data),
        "original": ("--membind", data),
        "localalloc": ("--localalloc", True),
        "interleave": ("--interleave", data),
    }
    name, value = expected[policy]
    assert asked[name] == value
    assert len(asked) == 2


def check_cores(topology, scenario):
    """Several instances of one NUMA node: no two threads have one core while another one is idle."""
    core = {p.index: p.core for p in topology.pus}
    for node in topology.cpu_nodes:
        usable = set(topology.usable_pus(node))
        used = Counter(core[p] for placement in scenario.placements for p in placement.pus if p in usable)
        # A node may be too small for any of them.
        assert max(used.values(), default=1) == 1 or len(used) == len({core[p] for p in usable})


@given(topologies())
@settings(max_examples=40, deadline=None)
def test_no_core_is_shared_while_another_one_idles(topology):
    core = {p.index: p.core for p in topology.pus}
    try:
        planned = plan(topology)
    except BadInput:
        assume(False)
    for scenario in planned.scenarios:
        if scenario.instances == 1:
            continue
        if scenario.instances > len(topology.cpu_nodes):
            check_cores(topology, scenario)
            continue
        for placement in scenario.placements:
            used = Counter(core[p] for p in placement.pus)
            nodes = {p.numa_node for p in topology.pus if p.index in placement.pus}
            cores = {core[p] for n in nodes for p in topology.usable_pus(n)}
            if max(used.values()) > 1 and len(cores) > len(used):
                # Only the second threads of cores that are all in use already may be taken.
                assert len(used) == len(cores)


@given(topologies(), st.integers(0, 10), st.integers(0, 2))
@settings(max_examples=25, deadline=None)
def test_what_is_feasible_fits(topology, index, buffers):
    need = Need(index * GIB // 2, buffers * GIB // 8, buffers * GIB // 16)
    try:
        planned = plan(topology, need)
    except BadInput:
        assume(False)
    everything = plan(topology)
    assert {s.name for s in planned.scenarios} | {n for n, _ in planned.infeasible} == {
        s.name for s in everything.scenarios
    }
    for scenario in planned.scenarios:
        each = need.bytes_for(scenario.threads)
        load = Counter()
        users = Counter(n for p in scenario.placements for n in p.numa_nodes)
        for placement in scenario.placements:
            banks = placement.numa_nodes
            assert each <= sum(topology.node(n).memory_bytes / users[n] for n in banks)
            load.update({n: each / len(banks) for n in banks})
        if scenario.policy == "interleave":
            assert all(bytes_ <= topology.node(n).memory_bytes for n, bytes_ in load.items())
        assert scenario.instances * each <= (topology.memory_limit_bytes or 10**18)
    for name, reason in planned.infeasible:
        assert "index" in reason
        with pytest.raises(CannotHere, match=f"scenario {name}: "):
            planned.scenario(name.upper())


@given(topologies(), st.integers(1, 40), st.integers(1, 9), st.sampled_from(("original", "interleave")))
@settings(max_examples=60, deadline=None)
def test_any_number_of_instances_and_threads_by_name(topology, instances, threads, policy):
    try:
        planned = plan(topology)
    except BadInput:
        assume(False)
    usable = {p for n in topology.cpu_nodes for p in topology.usable_pus(n)}
    name = f"{instances}x{threads}-{policy}"
    try:
        scenario = planned.scenario(name)
    except CannotHere:
        # Instances within one NUMA node each are never refused.
        places = sum(len(topology.usable_pus(n)) // threads for n in topology.cpu_nodes)
        assert instances * threads > len(usable) or instances > places
        return
    assert (scenario.instances, scenario.threads, scenario.policy) == (instances, threads, policy)
    assert planned.scenario(scenario.name) == scenario
    if instances > len(topology.cpu_nodes):
        check_cores(topology, scenario)
    taken = Counter(p for placement in scenario.placements for p in placement.pus)
    assert set(taken) <= usable
    assert max(taken.values()) == 1
    for placement in scenario.placements:
        assert len(placement.pus) == (threads if instances > 1 else len(usable))
        check_numactl(topology, placement, policy)


def numactl(plan_, name):
    return [" ".join(p.numactl) for p in plan_.scenario(name).placements]


def test_table_5_2(opteron):
    planned = plan(opteron)
    assert numactl(planned, "8x-bound") == [f"--cpunodebind={n} --membind={n}" for n in range(8)]
    pairs = ("0-1", "2-3", "4-5", "6-7")
    assert numactl(planned, "4x-interleave") == [f"--cpunodebind={n} --interleave={n}" for n in pairs]
    halves = numactl(planned, "2x-local")
    assert [re.fullmatch(r"--cpunodebind=(\S+) --localalloc", h) is not None for h in halves] == [True, True]
    nodes = [parse_list(h.split("=")[1].split()[0]) for h in halves]
    assert nodes[0] | nodes[1] == set(range(8))
    assert [len(n) for n in nodes] == [4, 4]
    # One hop (16) wherever the matrix allows it: two pairs of two hops in all, of 12.
    far = [(a, b) for n in nodes for a in n for b in n if a < b and opteron.distance(a, b) == 22]
    assert len(far) == 2
    assert numactl(planned, "1x-default") == [""]
    assert numactl(planned, "1x-local") == ["--localalloc"]
    assert numactl(planned, "1x-interleave") == ["--interleave=all"]
    assert [planned.scenario(f"{n}x-original").threads for n in (1, 2, 4, 8)] == [64, 32, 16, 8]


def test_a_memoryless_node_uses_the_nearest_bank():
    near = {(a, b): 10 if a == b else 40 for a in range(3) for b in range(3)} | {(0, 2): 15}
    planned = plan(machine((0, 2, 0), (1, 2, GIB), (2, 2, GIB), distances=near))
    assert [p.numa_nodes for p in planned.scenario("3x-bound").placements] == [(2,), (1,), (2,)]


def test_neither_device_memory_nor_other_kinds_are_used():
    """POWER9 with two GPUs and CXL memory, whose NUMA nodes have memory and no PUs."""
    topology = machine((0, 4, 8 * GIB), (8, 4, 8 * GIB), (254, 0, 16 * GIB), (255, 0, 16 * GIB), (9, 0, 8 * GIB))
    kinds = {254: "GPUMemory", 255: "GPUMemory", 9: "CXL-DRAM"}
    topology = replace(
        topology, numa_nodes=tuple(replace(n, subtype=kinds.get(n.index, "")) for n in topology.numa_nodes)
    )
    planned = plan(topology)
    assert numactl(planned, "1x-interleave") == ["--interleave=0,8"]
    assert numactl(planned, "2x-interleave") == [f"--cpunodebind={n} --interleave={n}" for n in (0, 8)]
    only = tuple(replace(n, subtype="HBM" if n.pus else "GPUMemory") for n in topology.numa_nodes)
    assert numactl(plan(replace(topology, numa_nodes=only)), "1x-interleave") == ["--interleave=0,8"]


def test_any_number_by_name():
    planned = plan(machine((0, 4, GIB), (1, 4, GIB), smt=2))
    assert numactl(planned, "5X2-Original") == [
        *("--physcpubind=0-1 --membind=0", "--physcpubind=2-3 --membind=0", "--physcpubind=4,6 --membind=0"),
        *("--physcpubind=8,10 --membind=1", "--physcpubind=12,14 --membind=1"),
    ]
    assert planned.scenario("5X2-Original").name == "5x2-bound"
    assert planned.scenario("2X8-INTERLEAVE").name == "2x8-interleave"
    assert numactl(planned, "1x3-preferred") == ["--preferred-many=all"]
    assert numactl(planned, "2x-balancing")[1] == "--cpunodebind=1 --balancing --membind=1"
    for name, reason in {
        "3x-bound": "the 16 PUs .* 3 ",
        "3x5-bound": "only 2 .* 5 threads .* 3",
        "17x1-bound": "17 x 1 .* 16 PUs",
        "1x17-default": "1 x 17 .* 16 PUs",
    }.items():
        with pytest.raises(CannotHere, match=f"scenario {name}: {reason}"):
            planned.scenario(name)
    with pytest.raises(CannotHere, match=r"2 x 4 .*6 PUs"):
        plan(machine((0, 4, GIB), (1, 4, GIB)), threads=6).scenario("2x4-bound")


def test_uneven_nodes_are_filled_in_turn():
    planned = plan(machine((0, 2, GIB), (1, 6, GIB)))
    assert [p.pus for p in planned.scenario("3x2-bound").placements] == [(0, 1), (2, 3), (4, 5)]
    assert [p.pus for p in planned.scenario("2x3-bound").placements] == [(2, 3, 4), (5, 6, 7)]
    assert len(planned.scenario("8x-bound").placements) == 8


def test_policies_by_choice():
    topology = machine((0, 2, GIB), (1, 2, GIB))
    usual = plan(topology)
    assert {s.policy for s in usual.scenarios} == {"original", "localalloc", "interleave"}
    listed = plan(topology, policies="original,localalloc,interleave")
    assert (listed.scenarios, listed.infeasible) == (usual.scenarios, usual.infeasible)
    with_all = plan(topology, policies="all")
    assert len(with_all.scenarios) == 2 * len(usual.scenarios)
    assert {s.policy for s in plan(topology, policies="balancing").scenarios} == {"balancing"}
    with pytest.raises(BadInput, match="no policy 'best'"):
        plan(topology, policies="original,best")


@pytest.fixture
def untried_policies():
    """Forget what this process knows of the host's policies, before and after a test."""
    refusal.cache_clear()
    yield
    refusal.cache_clear()


@pytest.mark.usefixtures("untried_policies")
def test_a_policy_that_this_host_refuses(stand_in):
    """Only this very host is asked; a stored topology's kernel cannot be."""
    stand_in("numactl", "echo no such thing >&2; exit 1")
    topology = machine((0, 2, GIB))
    assert not plan(topology, policies="preferred-many").infeasible
    here = plan(replace(topology, here=True), policies="original,weighted-interleave")
    assert {s.policy for s in here.scenarios} == {"original"}
    assert {n.partition("-")[2] for n, _ in here.infeasible} == {"weighted"}
    for name in ("1x2-weighted", "1x1-weighted"):
        with pytest.raises(CannotHere, match=f"scenario {name}: .*no such thing"):
            here.scenario(name)


def test_the_limit_of_the_cgroup():
    topology = machine((0, 2, 20 * GIB), (1, 2, 20 * GIB), limit=11 * GIB)
    planned = plan(topology, Need(6 * GIB))
    assert [s.name for s in planned.scenarios if s.instances > 1] == []
    assert dict(planned.infeasible)["2x2-local"] == (
        "2 x 6 GiB (index 6 GiB + 0 B of buffers) = 12 GiB exceed the cgroup's memory limit of 11 GiB"
    )
    with pytest.raises(CannotHere, match="scenario 2x2-local: 2 x 6 GiB"):
        planned.scenario("2x-localalloc")


def test_a_scenario_that_needs_another_host_is_no_bad_input():
    planned = plan(machine((0, 2, GIB)))
    for name in ("64x-bound", "64x-interleave", "1x48-default"):
        with pytest.raises(CannotHere, match=name):
            planned.scenario(name)
    for name in ("64x-best", "Original", "", "64x1-original_x", "0x-bound"):
        with pytest.raises(BadInput, match="no scenario"):
            planned.scenario(name)
    with pytest.raises(BadInput, match=r"'2x1-boud': .*'2x1-bound'"):
        planned.scenario("2x1-boud")


@pytest.mark.parametrize("threads", [-1, 0, 3])
def test_threads_that_are_not_there(threads):
    with pytest.raises(BadInput, match="--threads"):
        plan(machine((0, 2, GIB)), threads=threads)


def test_instances_that_nobody_binds(opteron):
    """The multiprocessing baseline: T/16 processes of 16 threads that may go anywhere."""
    planned = plan(opteron)
    for name, instances in (("2x16-unbound", 2), ("4x-unbound", 4), ("4x16-unbound", 4)):
        scenario = planned.scenario(name)
        assert (scenario.instances, scenario.threads, scenario.policy) == (instances, 16, "unbound")
        assert {(p.pus, p.numa_nodes, p.numactl) for p in scenario.placements} == {
            (tuple(range(64)), tuple(range(8)), ())
        }
    # Six of ten threads have no place within NUMA nodes of eight PUs: they need none.
    assert planned.scenario("6x10-unbound").instances == 6
    with pytest.raises(CannotHere, match=r"5 x 16 .*64 PUs"):
        planned.scenario("5x16-unbound")
    assert not any("Unbound" in s.name for s in planned.scenarios)
    assert all(p.name != "unbound" for p in (*select_policies("thesis"), *select_policies("all")))


@given(st.integers(1, 999_999), st.integers(1, 999_999), st.sampled_from(list(policies())), st.booleans())
def test_a_name_gives_back_what_it_was_made_of(instances, threads, name, upper):
    policy = policies()[name]
    for text, each in (
        (name_of(instances, threads, name), threads),
        (f"{instances}x{threads}-{name}", threads),
        (str(ScenarioName(instances, policy, threads)), threads),
        (str(ScenarioName(instances, policy)), None),
    ):
        assert parse_name(text.upper() if upper else text) == ScenarioName(instances, policy, each)


@given(topologies(), st.sampled_from(["thesis", "original,unbound", "all"]), st.integers(0, 9))
@settings(deadline=None, max_examples=50)
def test_a_listed_scenario_is_that_of_its_name(host, wanted, threads):
    try:
        planned, unlisted = (plan(host, policies=wanted, threads=threads or None) for _ in range(2))
    except BadInput:
        assume(False)
    assert len({s.name for s in planned.scenarios}) == len(planned.scenarios)
    for scenario in planned.scenarios:
        assert unlisted.scenario(scenario.name) == scenario
        if scenario.instances * scenario.threads == host.usable_pu_count:
            assert unlisted.scenario(re.sub(r"x\d+", "x", scenario.name)) == scenario
    # Listing takes seconds on the largest hosts, and a run needs one scenario.
    assert "_listing" not in vars(unlisted)
