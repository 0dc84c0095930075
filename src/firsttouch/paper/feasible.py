# SPDX-License-Identifier: Apache-2.0
"""Which scenarios the papers' machines can carry: planned from their facts and the published index sizes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from firsttouch import systems
from firsttouch.aligners import aligner
from firsttouch.errors import BadInput
from firsttouch.paper.sheets import Sheets
from firsttouch.placement import Plan, plan
from firsttouch.systems import Facts
from firsttouch.topology import Cache, NumaNode, Pu, Topology

_GB = 1e9


@dataclass(frozen=True)
class Feasible:
    """A scenario of the whole host: its name, instances and threads of each, and why it cannot be run (or "")."""

    name: str
    instances: int
    threads: int
    reason: str


@cache
def host(system: str) -> Topology:
    """Return a host of *system* as its file's facts describe it; raises BadInput where there is no such system.

    PUs are numbered NUMA node by NUMA node, the second hardware threads after all first ones, as Linux does.
    """
    facts = systems.load(system).facts
    first: list[list[int]] = []
    for cores in facts.cores_per_numa_node:
        start = sum(map(len, first))
        first.append(list(range(start, start + cores)))
    nodes, pus = [], []
    for position, number in enumerate(facts.numa_node_numbers):
        mine = []
        for core in first[position]:
            for turn in range(facts.threads_per_core):
                index = core + turn * facts.cores
                package = facts.package_of_numa_node[position]
                pus.append(Pu(index, core, -1 if package is None else package, number))
                mine.append(index)
        nodes.append(NumaNode(number, tuple(sorted(mine)), facts.memory_per_numa_node[position]))
    return Topology(
        numa_nodes=tuple(nodes),
        pus=tuple(sorted(pus, key=lambda pu: pu.index)),
        caches=_caches(facts, nodes),
        distances=_distances(facts),
        allowed_pus=frozenset(pu.index for pu in pus),
        allowed_nodes=frozenset(facts.numa_node_numbers),
    )


def _caches(facts: Facts, nodes: list[NumaNode]) -> tuple[Cache, ...]:
    """Return the caches: those that *n* PUs share are dealt out along each NUMA node's PUs."""
    found = []
    for cache_ in facts.caches:
        for node in nodes:
            sharing = min(cache_.pus or 1, len(node.pus))
            # Hardware threads of one core are neighbours here, whatever their numbers.
            order = sorted(node.pus, key=lambda pu: (pu % facts.cores, pu))
            for at in range(0, len(order), sharing):
                found.append(Cache(cache_.level, cache_.size_bytes, frozenset(order[at : at + sharing])))
    return tuple(found)


def _distances(facts: Facts) -> dict[tuple[int, int], int]:
    numbers = facts.numa_node_numbers
    return {
        (a, b): distance
        for a, row in zip(numbers, facts.distances or (), strict=False)
        for b, distance in zip(numbers, row, strict=True)
    }


def planned(name: str, system: str, sheets: Sheets) -> Plan:
    """Return the plan of the aligner that the papers call *name*, with its published index, on *system*."""
    rows = [r for r in sheets["aligners"] if r.text("aligner") == name]
    if not rows:
        raise BadInput(f"no index size of '{name}' is published")
    size = rows[0].number("index_gb") or 0.0
    return plan(host(system), aligner(rows[0].text("file")).need(round(size * _GB)))


def whole_host(name: str, system: str, sheets: Sheets) -> list[Feasible]:
    """Return the scenarios that use every PU, fewest instances first; beyond one per core none is listed."""
    found = planned(name, system, sheets)
    threads = len(host(system).pus)
    fits = [
        Feasible(s.name, s.instances, s.threads, "") for s in found.scenarios if s.instances * s.threads == threads
    ]
    for scenario, reason in found.infeasible:
        count = int(scenario.split("Inst_")[0])
        if not scenario.endswith("t"):
            fits.append(Feasible(scenario, count, threads // count, reason))
    return sorted(fits, key=lambda f: f.instances)


def most_run(sheets: Sheets) -> float:
    """Return the most instances that the papers ran."""
    return max(row.number("instances") or 0.0 for row in sheets["times"])


def most_instances(name: str, system: str, sheets: Sheets) -> int:
    """Return the most instances that use every PU and whose indexes fit, up to the most that the papers ran."""
    most = most_run(sheets)
    return max(f.instances for f in whole_host(name, system, sheets) if not f.reason and f.instances <= most)
