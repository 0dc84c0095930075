# SPDX-License-Identifier: Apache-2.0
"""Scenarios: N instances x T threads x policy, each instance with its placement (thesis section 5.2).

Planned from a topology alone: no hardware is touched, so any stored topology can be planned for.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import Any

from firsttouch.errors import BadInput, CannotHere
from firsttouch.host.cpusets import format_list
from firsttouch.host.topology import Topology
from firsttouch.scenarios.layout import SCALING_EIGHTHS, Layout, Share
from firsttouch.scenarios.memory_fit import Need, shortage
from firsttouch.scenarios.policies import Extent, Policy, chosen, policies, refusal

__all__ = ["SCALING_EIGHTHS", "Need", "Placement", "Plan", "Scenario", "plan"]

#: What a scenario of some host may be called: instances, policy, and the threads of each where it names them.
_NAME = re.compile(r"([1-9]\d{0,5})Inst_([a-z-]+?)(?:_([1-9]\d{0,5})t)?", re.IGNORECASE)


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
    """N *instances* of *threads* threads each under one *policy*; *name* as in the thesis (8Inst_Original).

    The bare name uses all PUs that this process may use. Where fewer are used, a suffix has the threads of each
    instance, as table 5.2 counts them (its 2x32t): 2Inst_Original_16t is 2 x 16 threads.
    """

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
class Plan:
    """The usual scenarios that can be run and, as (name, reason), those that cannot."""

    scenarios: tuple[Scenario, ...]
    infeasible: tuple[tuple[str, str], ...]
    _planner: _Planner | None = field(default=None, repr=False, compare=False)

    def scenario(self, name: str) -> Scenario:
        """Return the scenario of that name (letter case aside); raises CannotHere or BadInput with the reason.

        It may be any N x T under any policy that the host can carry, not only one that the plan lists.
        """
        for scenario in self.scenarios:
            if scenario.name.lower() == name.lower():
                return scenario
        for infeasible, reason in self.infeasible:
            if infeasible.lower() == name.lower():
                raise CannotHere(f"scenario {infeasible}: {reason}")
        have = f"this host has {', '.join(s.name for s in self.scenarios)}"
        found = _NAME.fullmatch(name)
        if not found or found[2].lower() not in policies():
            raise BadInput(f"no scenario '{name}': {have}")
        if self._planner is None:
            raise CannotHere(f"scenario {name}: {have}")
        policy = policies()[found[2].lower()]
        try:
            shares, threads = self._planner.layout.division(
                int(found[1]), int(found[3]) if found[3] else None, bound=policy.binds
            )
        except CannotHere as error:
            raise CannotHere(f"scenario {name}: {error}; {have}") from error
        scenario, reason = self._planner.scenario(shares, threads, policy)
        if reason:
            raise CannotHere(f"scenario {scenario.name}: {reason}")
        return scenario


def plan(
    topology: Topology,
    need: Need | None = None,
    *,
    threads: int | None = None,
    policies: str = "thesis",
    all_memory: bool = False,
) -> Plan:
    """Return the usual scenarios for *topology*: those of the thesis's study, scaled to it.

    *threads* limits their threads in total (default: all usable PUs). *policies* is ``thesis``, ``all`` or names
    with commas; on this very host one that it refuses makes its scenarios infeasible. *all_memory* puts data on
    high-bandwidth, persistent and CXL memory too. Raises BadInput where the topology leaves no PU or no memory
    to use, *threads* is not 1 … its PUs, or a policy is unknown.
    """
    planner = _Planner(Layout(topology, threads, all_memory=all_memory), need or Need())
    wanted = chosen(policies)
    found: list[Scenario] = []
    infeasible: list[tuple[str, str]] = []
    for shares, per_instance in planner.layout.divisions():
        for policy in wanted:
            scenario, reason = planner.scenario(shares, per_instance, policy)
            if reason:
                infeasible.append((scenario.name, reason))
            else:
                found.append(scenario)
    return Plan(tuple(found), tuple(infeasible), planner)


@dataclass(frozen=True)
class _Planner:
    """Makes scenarios of shares, and says why one cannot be run."""

    layout: Layout
    need: Need

    def scenario(self, shares: list[Share], threads: int, policy: Policy) -> tuple[Scenario, str]:
        topology = self.layout.topology
        extent: Extent = "whole" if len(shares) == 1 else "part"
        if not policy.binds:
            shares, _ = self.layout.division(len(shares), threads, bound=False)
        # Instances that are not bound share everything: one placement serves them all.
        first = self._placement(shares[0], extent, policy)
        placements = tuple(first if s is shares[0] else self._placement(s, extent, policy) for s in shares)
        suffix = "" if threads * len(shares) == self.layout.total else f"_{threads}t"
        name = f"{len(shares)}Inst_{policy.name.capitalize()}{suffix}"
        reason = refusal(policy, format_list(self.layout.banks)) if topology.here else ""
        banks = [p.numa_nodes for p in placements]
        even = policy.pages[extent] == "even"
        reason = reason or shortage(topology, banks, self.need, threads, even=even)
        return Scenario(name, len(shares), threads, policy.name, placements), reason

    @functools.cached_property
    def _all(self) -> frozenset[int]:
        """The NUMA nodes that numactl's "all" stands for, none of them where hwloc does not show them all.

        It has every memory that the process may use, that of a device as well.
        """
        topology = self.layout.topology
        banks = frozenset(n.index for n in topology.numa_nodes if n.memory_bytes) & topology.allowed_nodes
        return frozenset() if topology.left_out else banks

    def _placement(self, share: Share, extent: Extent, policy: Policy) -> Placement:
        topology = self.layout.topology
        complete = {p for n in share.cpu_nodes for p in topology.node(n).pus} == set(share.pus)
        bind = f"--cpunodebind={format_list(share.cpu_nodes)}"
        # numactl knows no NUMA node without memory that it may use, not even for its PUs.
        if not complete or not set(share.cpu_nodes) <= set(topology.memory_nodes):
            bind = f"--physcpubind={format_list(share.pus)}"
        every = extent == "whole" and set(share.numa_nodes) == self._all
        numactl = policy.numactl(extent, bind=bind, numa_nodes="all" if every else format_list(share.numa_nodes))
        return Placement(tuple(sorted(share.pus)), share.numa_nodes, numactl, policy.name, extent)
