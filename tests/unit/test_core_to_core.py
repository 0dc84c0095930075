# SPDX-License-Identifier: Apache-2.0
"""Groups of PUs that are recovered from synthetic matrices of latencies, and their comparison with hwloc."""

import itertools
import random

import pytest
from msgspec.structs import replace

from firsttouch.benchmarks import core_to_core
from firsttouch.host.topology import Cache, NumaNode, Pu, Topology
from firsttouch.records.schema import Record

GIB = 1 << 30
#: Latencies (ns) by what two PUs share, of the kind that published matrices show.
TIMES = {"core": 9.0, "L2 cache": 14.0, "L3 cache": 23.0, "NUMA node": 90.0, "package": 105.0, "host": 210.0}


def machine(packages, nodes, caches, cores, threads=1, *, l2_pus=0):
    """Return a regular host; each count is that within the next larger thing. PUs are numbered core by core."""
    pus, l3, members = [], {}, {}
    shape = itertools.product(*map(range, (packages, nodes, caches, cores, threads)))
    for index, (package, node, cache, *_) in enumerate(shape):
        numa_node = package * nodes + node
        pus.append(Pu(index, index // threads, package, numa_node))
        members.setdefault(numa_node, []).append(index)
        l3.setdefault((package, node, cache), set()).add(index)
    shared = [Cache(3, 32 << 20, frozenset(of)) for of in l3.values()]
    if l2_pus:
        shared += [Cache(2, 2 << 20, frozenset(range(i, i + l2_pus))) for i in range(0, len(pus), l2_pus)]
    everything = frozenset(range(len(pus)))
    banks = tuple(NumaNode(n, tuple(of), 16 * GIB) for n, of in members.items())
    return Topology(banks, tuple(pus), tuple(shared), {}, everything, frozenset(members))


def closeness(host, a, b):
    first, second = host.pus[a], host.pus[b]
    if first.core == second.core:
        return "core"
    for level in (2, 3):
        if any({a, b} <= cache.pus for cache in host.caches if cache.level == level):
            return f"L{level} cache"
    if first.numa_node == second.numa_node:
        return "NUMA node"
    return "package" if first.package == second.package else "host"


def matrix(host, *, share=1.0, noise=0.06, times=TIMES):
    """Return latencies of the neighbours and of a share of the other pairs."""
    chance = random.Random(len(host.pus))  # noqa: S311
    return {
        (a, b): times[closeness(host, a, b)] * chance.uniform(1 - noise, 1 + noise)
        for a, b in itertools.combinations(range(len(host.pus)), 2)
        if b == a + 1 or chance.random() < share
    }


def compared(host, latencies):
    shown = core_to_core.levels(latencies)
    pus = {pu for pair in latencies for pu in pair}
    return shown, core_to_core.compare(shown, core_to_core.levels_of_host(host, pus), latencies)


MACHINES = {
    "Xeon with two threads per core": (machine(2, 1, 1, 8, 2), ["core", "L3 cache"]),
    "EPYC": (machine(2, 1, 8, 4, 2), ["core", "L3 cache", "NUMA node"]),
    "EPYC with four NUMA nodes per package": (machine(2, 4, 2, 4), ["L3 cache", "package"]),
    "cores in clusters with an L2 cache": (machine(1, 1, 1, 16, l2_pus=4), ["L2 cache"]),
    "one cache": (machine(1, 1, 1, 6), []),
}


@pytest.mark.parametrize("share", [1.0, 0.1])
@pytest.mark.parametrize(("host", "names"), MACHINES.values(), ids=MACHINES)
def test_what_pus_share_is_recovered(host, names, share):
    shown, against = compared(host, matrix(host, share=share))
    assert list(against.names) == names
    assert against.contradicting == ()
    of_host = core_to_core.levels_of_host(host, range(len(host.pus)))
    assert [level.groups for level in shown] == [of_host[name] for name in names]
    assert all(level.between >= core_to_core.GAP * level.within for level in shown)


def test_numa_nodes_of_a_package_need_not_show():
    host = machine(2, 4, 2, 4)
    assert compared(host, matrix(host))[1].unseen == ("NUMA node",)


def test_groups_that_hwloc_does_not_know_contradict():
    """A virtual machine whose firmware hides the threads of a core."""
    host = machine(1, 1, 1, 4, 2)
    flat = replace(host, pus=tuple(replace(pu, core=pu.index) for pu in host.pus))
    _, against = compared(flat, matrix(host))
    assert against.contradicting == ((0, 1), (2, 3), (4, 5), (6, 7))


def test_cores_that_the_matrix_does_not_show_contradict():
    """A virtual machine whose firmware invents the threads of a core."""
    host = machine(1, 1, 1, 4, 2)
    _, against = compared(host, matrix(host, times={**TIMES, "core": TIMES["L3 cache"]}))
    assert against.contradicting == ((0, 1), (2, 3), (4, 5), (6, 7))


def test_a_slow_pu_contradicts():
    host = machine(1, 1, 2, 4)
    slow = {pair: ns * 3 if 5 in pair else ns for pair, ns in matrix(host).items()}
    assert {pu for pair in compared(host, slow)[1].contradicting for pu in pair} == {4, 5, 6, 7}


def records(host, latencies, *, bank=0, samples=3):
    names = {"core": "core", "L2 cache": "cache", "L3 cache": "cache", "NUMA node": "numa-node"}
    made_of = []
    for (a, b), ns in latencies.items():
        kind = closeness(host, a, b)
        nodes = sorted({host.pus[pu].numa_node for pu in (a, b)})
        parameters = {"program": "firsttouch-probe", "pus": [a, b], "pu_nodes": nodes, "bank": bank, "threads": 2}
        parameters |= {"shared": names.get(kind, kind), "policy": "membind", "pairs": 3, "pairs_of": 4}
        if kind.endswith("cache"):
            parameters["cache_level"] = int(kind[1])
        times = tuple(ns + k for k in range(samples + (a == 0)))
        made_of.append(Record("core_to_core", "pair_latency", "ns", "lower", times, parameters))
    return made_of


def test_summary():
    host = machine(2, 1, 1, 2, 2)
    measured = records(host, matrix(host, noise=0.0))
    broken = replace(measured[0], samples=(1e6,), status="invalid", reason="moved")
    *transfers, agreement = core_to_core.summary([broken, *measured], host)
    assert {r.parameters["shared"]: r.samples for r in transfers if r.parameters["line"] == "near"} == {
        "core": (9.0, 10.0, 11.0),
        "cache": (23.0, 24.0, 25.0),
        "host": (210.0, 211.0, 212.0),
    }
    assert {r.parameters["shared"] for r in transfers if r.parameters["line"] == "far"} == {"core", "cache"}
    assert (agreement.metric, agreement.value, agreement.better) == ("clusters_agree", 1.0, "neither")
    assert core_to_core.describe(agreement) == "the matrix shows what hwloc reports: core, L3 cache"
    assert "L3 cache: 24.0 ns (3 of 4 pairs)" in core_to_core.describe(transfers[1])
