# SPDX-License-Identifier: Apache-2.0
"""Scenarios: N instances x T threads x policy, each instance with its placement (thesis section 5.2).

Planned from a topology alone: no hardware is touched, so any stored topology can be planned for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firsttouch.cpulist import format_list
from firsttouch.errors import BadInput, CannotHere
from firsttouch.grouping import neighbours
from firsttouch.policies import Extent, Policy, policies
from firsttouch.topology import Topology
from firsttouch.units import format_bytes

#: Thread counts of the scaling study as parts of all PUs: 8, 16, 32, 48 and 64 of 64 (thesis section 5.2.1).
SCALING_EIGHTHS = (1, 2, 4, 6, 8)
#: What a scenario of some host may be called, with its policy.
_NAME = re.compile(r"[1-9]\d*Inst_([a-z-]+?)(?:_[1-9]\d*t)?", re.IGNORECASE)


@dataclass(frozen=True)
class Placement:
    """PUs of one instance, the NUMA nodes it may allocate on, and numactl's options that ask for both.

    *extent* says whether the instance has everything (``whole``) or a part of the host (``part``).
    """

    pus: tuple[int, ...]
    numa_nodes: tuple[int, ...]
    numactl: tuple[str, ...]
    policy: str
    extent: Extent

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of ``plan --json`` and of a record's ``placement_asked``."""
        return {
            "pus": list(self.pus),
            "numa_nodes": list(self.numa_nodes),
            "numactl": list(self.numactl),
            "policy": self.policy,
        }


@dataclass(frozen=True)
class Scenario:
    """N *instances* of *threads* threads each under one *policy*; *name* as in the thesis (8Inst_Original)."""

    name: str
    instances: int
    threads: int
    policy: str
    placements: tuple[Placement, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of ``plan --json``."""
        return {
            "name": self.name,
            "instances": self.instances,
            "threads": self.threads,
            "policy": self.policy,
            "placements": [p.to_dict() for p in self.placements],
        }


@dataclass(frozen=True)
class Need:
    """Memory (bytes) that one instance needs: its replica of the index and the program's own buffers."""

    index_bytes: int = 0
    instance_bytes: int = 0
    thread_bytes: int = 0

    def of(self, threads: int) -> int:
        """Return the bytes that one instance of *threads* threads needs."""
        return self.index_bytes + self.instance_bytes + threads * self.thread_bytes


@dataclass(frozen=True)
class Plan:
    """The scenarios that can be run and, as (name, reason), those that cannot."""

    scenarios: tuple[Scenario, ...]
    infeasible: tuple[tuple[str, str], ...]

    def scenario(self, name: str) -> Scenario:
        """Return the scenario of that name (letter case aside); raises CannotHere or BadInput with the reason."""
        for scenario in self.scenarios:
            if scenario.name.lower() == name.lower():
                return scenario
        for infeasible, reason in self.infeasible:
            if infeasible.lower() == name.lower():
                raise CannotHere(f"scenario {infeasible}: {reason}")
        have = f"this host has {', '.join(s.name for s in self.scenarios)}"
        found = _NAME.fullmatch(name)
        if found and found[1].lower() in policies():
            raise CannotHere(f"scenario {name}: {have}")
        raise BadInput(f"no scenario '{name}': {have}")


def plan(topology: Topology, need: Need | None = None, *, threads: int | None = None) -> Plan:
    """Return all scenarios for *topology*; *threads* limits their threads in total (default: all usable PUs).

    Raises BadInput where the topology leaves no PU or no memory to use, or *threads* is not 1 … its PUs.
    """
    need = need or Need()
    layout = _Layout(topology, threads)
    found: list[Scenario] = []
    infeasible: list[tuple[str, str]] = []
    for shares, per_instance in layout.divisions():
        for policy in policies().values():
            scenario = _scenario(layout, shares, per_instance, policy)
            if reason := _shortage(topology, scenario, need):
                infeasible.append((scenario.name, reason))
            else:
                found.append(scenario)
    return Plan(tuple(found), tuple(infeasible))


@dataclass(frozen=True)
class _Share:
    """What one instance gets: PUs, best first, their NUMA nodes, and those for data."""

    pus: tuple[int, ...]
    cpu_nodes: tuple[int, ...]
    numa_nodes: tuple[int, ...]


class _Layout:
    """The ways to divide a topology's usable PUs among instances."""

    def __init__(self, topology: Topology, threads: int | None) -> None:
        self.topology = topology
        self.pus = {n: topology.usable_pus(n) for n in topology.cpu_nodes}
        self.total = sum(map(len, self.pus.values()))
        if not self.total:
            raise BadInput("no PU that this process may use belongs to a NUMA node")
        if not topology.memory_nodes:
            raise BadInput("no NUMA node has memory that this process may use")
        if threads is not None and not 1 <= threads <= self.total:
            raise BadInput(f"--threads {threads}: this process may use 1 to {self.total} PUs")
        self.threads = threads or self.total
        self.core = {p.index: p.core for p in topology.pus}
        #: How many PUs of its core come before a PU: 0 for the first hardware thread of each.
        self.rank: dict[int, int] = {}
        seen = Counter[int]()
        for pu in (p for pus in self.pus.values() for p in pus):
            self.rank[pu] = seen[self.core[pu]]
            seen[self.core[pu]] += 1

    def divisions(self) -> Iterator[tuple[list[_Share], int]]:
        """Yield (the instances' shares, threads per instance), one instance first."""
        everything = _Share(
            tuple(p for pus in self.pus.values() for p in pus), tuple(self.pus), self.topology.memory_nodes
        )
        for threads in sorted({max(1, self.threads * e // 8) for e in SCALING_EIGHTHS}):
            yield [everything], threads
        for instances in self._counts():
            shares = self._shares(instances)
            room = min(len(s.pus) for s in shares)
            cores = min(self._cores(s) for s in shares)
            for threads in sorted({min(t, self.threads // instances) for t in (room, cores)}):
                # Instances are equal: what one has more than the others stays idle.
                yield [_trim(s, threads, self.pus) for s in shares], threads

    def _counts(self) -> list[int]:
        nodes = len(self.pus)
        fewer = {n for n in range(2, nodes + 1) if nodes % n == 0 or n & (n - 1) == 0}
        narrowest = min(map(len, self.pus.values()))
        more = {nodes * k for k in range(2, narrowest + 1) if narrowest % k == 0}
        return sorted(n for n in fewer | more if n <= self.threads)

    def _shares(self, instances: int) -> list[_Share]:
        nodes = tuple(self.pus)
        if instances <= len(nodes):
            groups = neighbours(self.topology, nodes, instances)
            return [_Share(self._merge(g), g, self._banks(g)) for g in groups]
        parts = instances // len(nodes)
        return [
            _Share(pus, (node,), self._banks((node,)))
            for node in nodes
            for pus in _split(self.core, self.pus[node], parts)
        ]

    def _merge(self, group: Sequence[int]) -> tuple[int, ...]:
        """Return the PUs of a group, whole cores first and taking turns over its NUMA nodes.

        So what a trim keeps is spread over the group, and no core is shared while another one idles.
        """
        ranked = [(self.rank[p], i, n) for n in group for i, p in enumerate(self.pus[n])]
        return tuple(self.pus[n][i] for _, i, n in sorted(ranked))

    def _banks(self, group: Sequence[int]) -> tuple[int, ...]:
        """Return the group's NUMA nodes that have memory, or the nearest one where none has."""
        memory = self.topology.memory_nodes
        own = tuple(n for n in group if n in memory)
        if own:
            return own
        return (min(memory, key=lambda bank: (sum(self._fallback(n, bank) for n in group), bank)),)

    def _fallback(self, node: int, bank: int) -> int:
        """Return how far *bank* is from *node* for the kernel, which takes the nearest where *node* has none.

        Of two at the same distance it takes one without PUs, then one with a higher number (Linux,
        mm/page_alloc.c, find_next_best_node): the order that --localalloc follows as well.
        """
        return self.topology.distance(node, bank) + int(bank < node) + int(bank in self.pus)

    def _cores(self, share: _Share) -> int:
        return len({self.core[p] for p in share.pus})


def _split(core: Mapping[int, int], pus: Sequence[int], parts: int) -> list[tuple[int, ...]]:
    """Split the PUs of one NUMA node into equal parts that share as few cores as possible."""
    by_core = sorted(pus, key=lambda p: (core[p], p))
    size = len(by_core) // parts
    chunks = [by_core[i * size : (i + 1) * size] for i in range(parts)]
    return [tuple(sorted(c, key=list(pus).index)) for c in chunks]


def _trim(share: _Share, threads: int, pus: dict[int, tuple[int, ...]]) -> _Share:
    kept = share.pus[:threads]
    return _Share(kept, tuple(n for n in share.cpu_nodes if set(pus[n]) & set(kept)), share.numa_nodes)


def _scenario(layout: _Layout, shares: list[_Share], threads: int, policy: Policy) -> Scenario:
    extent: Extent = "whole" if len(shares) == 1 else "part"
    suffix = "" if threads * len(shares) == layout.total else f"_{threads}t"
    nodes = {n.index: n.pus for n in layout.topology.numa_nodes}
    placements = []
    for share in shares:
        complete = {p for n in share.cpu_nodes for p in nodes[n]} == set(share.pus)
        bind = f"--cpunodebind={format_list(share.cpu_nodes)}"
        # numactl knows no NUMA node without memory that it may use, not even for its PUs.
        if not complete or not set(share.cpu_nodes) <= set(layout.topology.memory_nodes):
            bind = f"--physcpubind={format_list(share.pus)}"
        numactl = policy.numactl(extent, bind=bind, numa_nodes=format_list(share.numa_nodes))
        pus = tuple(sorted(share.pus))
        placements.append(Placement(pus, share.numa_nodes, numactl, policy.name, extent))
    name = f"{len(shares)}Inst_{policy.name.capitalize()}{suffix}"
    return Scenario(name, len(shares), threads, policy.name, tuple(placements))


def _shortage(topology: Topology, scenario: Scenario, need: Need) -> str:
    """Return why the scenario's memory does not suffice, with the arithmetic, or an empty string."""
    each = need.of(scenario.threads)
    parts = f"index {format_bytes(need.index_bytes)} + {format_bytes(each - need.index_bytes)} of buffers"
    users = [n for p in scenario.placements for n in p.numa_nodes]
    for number, placement in enumerate(scenario.placements):
        # A bank that several instances share is divided among them.
        room = sum(topology.node(n).memory_bytes // users.count(n) for n in placement.numa_nodes)
        if each > room:
            return (
                f"instance {number} needs {format_bytes(each)} ({parts}), its NUMA nodes "
                f"{format_list(placement.numa_nodes)} have {format_bytes(room)} for it"
            )
    limit = topology.memory_limit_bytes
    if limit is not None and each * scenario.instances > limit:
        total = format_bytes(each * scenario.instances)
        return (
            f"{scenario.instances} x {format_bytes(each)} ({parts}) = {total} "
            f"exceed the cgroup's memory limit of {format_bytes(limit)}"
        )
    return ""
