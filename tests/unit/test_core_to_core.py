# SPDX-License-Identifier: Apache-2.0
"""The medians of a synthetic matrix of latencies by what two PUs share."""

import itertools

from msgspec.structs import replace

from firsttouch.benchmarks import core_to_core
from firsttouch.host.topology import Cache, NumaNode, Pu, Topology
from firsttouch.records.schema import Record

#: Latencies (ns) by what two PUs share.
TIMES = {"core": 9.0, "cache": 23.0, "host": 210.0}


def machine():
    """Return a host of two packages with a NUMA node and a cache each: two cores of two threads."""
    pus = tuple(Pu(index, index // 2, index // 4, index // 4) for index in range(8))
    caches = tuple(Cache(3, 32 << 20, frozenset(range(first, first + 4))) for first in (0, 4))
    banks = tuple(NumaNode(n, tuple(range(4 * n, 4 * n + 4)), 16 << 30) for n in (0, 1))
    return Topology(banks, pus, caches, {}, frozenset(range(8)), frozenset({0, 1}))


def closeness(host, a, b):
    if host.pus[a].core == host.pus[b].core:
        return "core"
    return "cache" if host.pus[a].numa_node == host.pus[b].numa_node else "host"


def records(host, *, bank=0, samples=3):
    """Return records of all pairs of PUs; the first PU's have another repetition."""
    measured = []
    for a, b in itertools.combinations(range(len(host.pus)), 2):
        kind = closeness(host, a, b)
        nodes = sorted({host.pus[pu].numa_node for pu in (a, b)})
        parameters = {"program": "firsttouch-probe", "pus": [a, b], "pu_nodes": nodes, "bank": bank, "threads": 2}
        parameters |= {"shared": kind, "policy": "membind", "pairs": 3, "pairs_of": 4}
        parameters |= {"cache_level": 3} if kind == "cache" else {}
        times = tuple(TIMES[kind] + k for k in range(samples + (a == 0)))
        measured.append(Record("core_to_core", "pair_latency", "ns", "lower", times, parameters))
    return measured


def test_summary():
    host = machine()
    measured = records(host)
    broken = replace(measured[0], samples=(1e6,), status="invalid", reason="moved")
    transfers = list(core_to_core.summary([broken, *measured], host))
    assert {r.parameters["shared"]: r.samples for r in transfers if r.parameters["line"] == "near"} == {
        "core": (9.0, 10.0, 11.0),
        "cache": (23.0, 24.0, 25.0),
        "host": (210.0, 211.0, 212.0),
    }
    assert {r.parameters["shared"] for r in transfers if r.parameters["line"] == "far"} == {"core", "cache"}
    assert "L3 cache: 24.0 ns (3 of 4 pairs)" in core_to_core.describe(transfers[1])
