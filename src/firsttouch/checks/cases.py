# SPDX-License-Identifier: Apache-2.0
"""The cases of each step of the methodology on the system that ReFrame runs on, from its facts alone."""

from __future__ import annotations

import functools
from itertools import combinations

from reframe.core.runtime import runtime

from firsttouch import aligners as aligners_module
from firsttouch.measure import effort as effort_module
from firsttouch.measure.effort import Effort
from firsttouch.placement import SCALING_EIGHTHS, plan
from firsttouch.systems import Facts, System, load
from firsttouch.topology import NumaNode, Pu, Topology


@functools.cache
def system() -> System:
    """Return the system that ReFrame was started for."""
    return load(runtime().system.name)


def effort() -> Effort:
    """Return how thorough ReFrame was asked to be."""
    return effort_module.chosen()


def topology_of(facts: Facts) -> Topology:
    """Return a topology with the facts' NUMA nodes, cores and distances; its PUs are numbered node by node.

    It serves to name a system's scenarios where the system itself is not at hand (``reframe -l`` on a login
    host); the host that runs one plans it anew from its own topology.
    """
    pus: list[Pu] = []
    core = 0
    for node, package, cores in zip(
        facts.numa_node_numbers, facts.package_of_numa_node, facts.cores_per_numa_node, strict=True
    ):
        for _ in range(cores):
            core += 1
            for _ in range(facts.threads_per_core):
                pus.append(Pu(len(pus), core, -1 if package is None else package, node))
    numbers = facts.numa_node_numbers
    matrix = facts.distances or ()
    return Topology(
        numa_nodes=tuple(
            NumaNode(n, tuple(p.index for p in pus if p.numa_node == n), memory)
            for n, memory in zip(numbers, facts.memory_per_numa_node, strict=True)
        ),
        pus=tuple(pus),
        caches=(),
        distances={
            (a, b): d for a, row in zip(numbers, matrix, strict=False) for b, d in zip(numbers, row, strict=True)
        },
        allowed_pus=frozenset(range(len(pus))),
        allowed_nodes=frozenset(numbers),
    )


def cpu_nodes() -> list[int]:
    """Return the NUMA nodes that have PUs."""
    return list(topology_of(system().facts).cpu_nodes)


def pu_nodes() -> list[int]:
    """Return the NUMA nodes with PUs that are measured one by one."""
    return effort().some(effort().pu_nodes, cpu_nodes())


def banks(*nodes: int) -> list[int]:
    """Return the NUMA nodes with memory that the PU-set of *nodes* is measured with."""
    host = topology_of(system().facts)
    return effort().banks_of(host, nodes, host.memory_nodes)


def pu_sets() -> list[tuple[int, ...]]:
    """Return the PU-sets of 1, 2, 4, … NUMA nodes and of all of them (thesis section 3.4, algorithm 1)."""
    nodes = cpu_nodes()
    sizes = sorted({2**i for i in range(len(nodes).bit_length())} | {len(nodes)})
    sizes = effort().some(effort().pu_sets, (size for size in sizes if size <= len(nodes)))
    alone = pu_nodes()
    return [s for size in sizes for s in combinations(nodes, size) if size > 1 or s[0] in alone]


def contention_threads() -> list[int]:
    """Return the thread counts of the contention step: 1, and those of the scaling study."""
    pus = len(topology_of(system().facts).allowed_pus)
    return effort().some(effort().threads, sorted({1} | {max(1, pus * e // 8) for e in SCALING_EIGHTHS}))


def scenarios(*, single: bool) -> list[str]:
    """Return the names of the scenarios with one instance, or of those with several."""
    found = [s for s in plan(topology_of(system().facts)).scenarios if (s.instances == 1) == single]
    if single:
        threads = effort().some(effort().threads, sorted({s.threads for s in found}))
        return [s.name for s in found if s.threads in threads]
    instances = effort().some(effort().instances, sorted({s.instances for s in found}))
    return [s.name for s in found if s.instances in instances]


def aligners() -> list[str]:
    """Return the names of the aligners whose scenarios are run."""
    return [name for name in aligners_module.aligners() if name in (effort().aligners or (name,))]
