# SPDX-License-Identifier: Apache-2.0
"""The cases in which a host is measured, by step of the methodology."""

from __future__ import annotations

import functools

from msgspec import Struct

from firsttouch.benchmarks import profiles, programs
from firsttouch.benchmarks.profiles import Effort
from firsttouch.errors import BadInput
from firsttouch.host.cpusets import format_list
from firsttouch.host.topology import NumaNode, Pu, Topology
from firsttouch.scenarios.layout import SCALING_EIGHTHS
from firsttouch.scenarios.placement import plan
from firsttouch.systems.definition import System, load
from firsttouch.systems.facts import Facts

#: Threads of each process of the multiprocessing baseline.
BASELINE_THREADS = 16
#: The key among the extras of ReFrame's partitions that names a system.
EXTRA = "firsttouch_system"


class Cases(Struct, frozen=True, dict=True):
    """The cases measured on a *host* with an *effort*, by the checks of ReFrame and the steps of campaigns.

    The topology may come from a system's facts (:func:`topology_of`), so that a login host can list the cases. The
    host that runs a scenario plans it again from its own topology.
    """

    host: Topology
    effort: Effort

    def pu_nodes(self) -> list[int]:
        """Return the NUMA nodes with PUs that are measured one by one."""
        return self.effort.some(self.effort.pu_nodes, self.host.cpu_nodes)

    def banks(self, *nodes: int) -> list[int]:
        """Return the NUMA nodes with memory that the PU-set of *nodes* is measured with."""
        return self.effort.banks_of(self.host, nodes, self.host.memory_nodes)

    def bank_options(self) -> list[str]:
        """Return the options of ``firsttouch measure`` for all banks; none if the effort chooses banks by PU-set.

        A host that lacks a named bank fails, instead of being measured without it.
        """
        return ["--banks", format_list(self.host.memory_nodes)] if self.effort.banks == "all" else []

    def set_sizes(self) -> list[int]:
        """Return the sizes of PU-sets in NUMA nodes: 1, 2, 4, … and all of them."""
        nodes = len(self.host.cpu_nodes)
        sizes = sorted({2**i for i in range(nodes.bit_length())} | {nodes})
        return self.effort.some(self.effort.pu_sets, (size for size in sizes if size <= nodes))

    @functools.cached_property
    def pu_sets(self) -> list[tuple[int, ...]]:
        """The PU-sets of these sizes (thesis section 3.4, algorithm 1), see programs.sets_of."""
        alone = self.pu_nodes()
        sets = programs.sets_of(self.host, self.host.cpu_nodes, self.set_sizes())
        return [members for members in sets if len(members) > 1 or members[0] in alone]

    def contention_threads(self) -> list[int]:
        """Return the thread counts of the contention step: 1, and the counts of the scaling study."""
        pus = len(self.host.allowed_pus)
        return self.effort.some(self.effort.threads, sorted({1} | {max(1, pus * e // 8) for e in SCALING_EIGHTHS}))

    def loads(self, node: int) -> list[str]:
        """Return from where PUs can load memory while one PU of a NUMA node measures latency.

        The names are values of the probe's option --loads; a host with one PU has none.
        """
        local = len(self.host.usable_pus(node)) > 1
        return [
            *(["local"] if local else []),
            *(["outgoing"] if local and len(self.host.memory_nodes) > 1 else []),
            *(["incoming"] if len(self.host.cpu_nodes) > 1 else []),
        ]

    def scenarios(self, *, single: bool) -> list[str]:
        """Return the names of the scenarios with one instance, or of those with several."""
        scenarios = [s for s in plan(self.host).scenarios if (s.instances == 1) == single]
        if single:
            threads = self.effort.some(self.effort.threads, sorted({s.threads for s in scenarios}))
            return [s.name for s in scenarios if s.threads in threads]
        instances = self.effort.some(self.effort.instances, sorted({s.instances for s in scenarios}))
        return [s.name for s in scenarios if s.instances in instances]

    def weak_scaling(self) -> list[str]:
        """Return the names of the scenarios with a fixed number of reads per thread.

        They are one process, and several unbound processes of BASELINE_THREADS threads (Langmead et al. 2018,
        sections 2.5 and 3.1). On a host with too few PUs for two of these processes, each gets half of the PUs.
        """
        if not self.effort.weak_scaling:
            return []
        pus = len(self.host.allowed_pus)
        each = min(BASELINE_THREADS, max(1, pus // 2))
        counts = self.effort.some(self.effort.threads, sorted({max(1, pus * e // 8) for e in SCALING_EIGHTHS}))
        names = [f"1x{threads}-default" for threads in counts]
        names += [f"{t // each}x{each}-unbound" for t in counts if t > each and t % each == 0]
        planned = plan(self.host)
        return [planned.scenario(name).name for name in names]

    def aligners(self) -> list[str]:
        """Return the names of the aligners whose scenarios are run."""
        return aligners_of(self.effort)


def aligners_of(effort: Effort) -> list[str]:
    """Return the names of the aligners whose scenarios an effort runs; "all" means those that align pairs.

    "All" excludes variants, which must be named.
    """
    if effort.aligners:
        return sorted(effort.aligners)
    from firsttouch.genomics import aligners  # noqa: PLC0415 - measuring memory needs none

    return [name for name in aligners.names() if _aligns_pairs(name)]


def _aligns_pairs(name: str) -> bool:
    """Return whether an aligner aligns pairs. True for an invalid file, which its run then reports."""
    from firsttouch.genomics.aligners import aligner  # noqa: PLC0415 - measuring memory needs none

    try:
        return bool(aligner(name).align.paired)
    except BadInput:
        return True


def topology_of(facts: Facts) -> Topology:
    """Return the topology that a system's facts describe; its PUs are numbered NUMA node by NUMA node."""
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


@functools.cache
def system() -> System:
    """Return the system that ReFrame was started for; ends ReFrame with one line if the system is unknown.

    A site's own configuration (``reframe -C``) may give it another name, and name the system's file by
    ``firsttouch_system`` among the extras of a partition.
    """
    from reframe.core.runtime import runtime  # noqa: PLC0415 - campaigns and measurements do without ReFrame

    here = runtime().system
    names = dict.fromkeys(p.extras[EXTRA] for p in here.partitions if EXTRA in p.extras)
    try:
        if len(names) > 1:
            raise BadInput(f"the partitions of {here.name} name several systems: {', '.join(names)}")
        return load(next(iter(names), here.name))
    except BadInput as error:
        # ReFrame shows a traceback for any other exception.
        raise SystemExit(
            f"firsttouch: error: {error}; ReFrame's system '{here.name}' needs a system file"
        ) from None


@functools.cache
def cases() -> Cases:
    """Return the cases of the system that ReFrame was started for."""
    return Cases(topology_of(system().facts), profiles.chosen_effort())
