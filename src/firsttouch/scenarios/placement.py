# SPDX-License-Identifier: Apache-2.0
"""Scenarios: N instances x T threads x policy, each instance with its placement (thesis section 5.2).

Planning needs a topology only, so it works for any stored topology.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import Any

from firsttouch.errors import BadInput, CannotHere, did_you_mean
from firsttouch.host.cpusets import format_list
from firsttouch.host.topology import Topology
from firsttouch.scenarios import policies
from firsttouch.scenarios.layout import SCALING_EIGHTHS, Layout, Share
from firsttouch.scenarios.memory_fit import Need, shortage
from firsttouch.scenarios.policies import Extent, Policy, chosen, refusal

__all__ = ["SCALING_EIGHTHS", "Need", "Placement", "Plan", "Scenario", "plan"]

#: The name of a scenario: instances, policy and, optionally, threads of each instance.
_NAME = re.compile(r"([1-9]\d{0,5})Inst_([a-z-]+?)(?:_([1-9]\d{0,5})t)?", re.IGNORECASE | re.ASCII)
#: Its alias: instances, threads of each instance, and the alias of the policy.
_ALIAS = re.compile(r"([1-9]\d{0,5})x([1-9]\d{0,5})-([a-z-]+)", re.IGNORECASE | re.ASCII)


def extent_of(instances: int) -> Extent:
    """Return whether each of *instances* has the whole host or a part of it."""
    return "whole" if instances == 1 else "part"


def name_of(instances: int, policy: Policy, threads: int | None = None) -> str:
    """Return the thesis's name of a scenario: 8Inst_Original, or with *threads* per instance 8Inst_Original_4t."""
    return f"{instances}Inst_{policy.name.capitalize()}" + (f"_{threads}t" if threads else "")


def alias_of(instances: int, policy: Policy, threads: int) -> str:
    """Return the readable name of a scenario, such as 8x16-bound."""
    return f"{instances}x{threads}-{policies.alias_of(policy, extent_of(instances))}"


def parse_name(text: str) -> tuple[int, Policy, int | None] | None:
    """Return instances, policy and threads of a scenario's name or alias, ignoring case; None if it is neither."""
    if match := _ALIAS.fullmatch(text):
        number, threads, word = match.groups()
        policy = policies.of_alias(word.lower(), extent_of(int(number)))
    elif match := _NAME.fullmatch(text):
        number, word, threads = match.groups()
        policy = policies.policies().get(word.lower())
    else:
        return None
    return (int(number), policy, int(threads) if threads else None) if policy else None


@dataclass(frozen=True)
class Placement:
    """PUs of one instance, the NUMA nodes it may allocate on, and numactl's options that request both.

    *extent* is ``whole`` if the instance has the whole host, else ``part``.
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

    Without a suffix it uses all usable PUs. With fewer, a suffix has the threads of each instance, as in table 5.2
    (its 2x32t): 2Inst_Original_16t is 2 x 16 threads. The *alias* always has the threads: 2x16-bound.
    """

    name: str
    instances: int
    threads: int
    policy: str
    placements: tuple[Placement, ...]

    @property
    def alias(self) -> str:
        """The readable name."""
        return alias_of(self.instances, policies.policy(self.policy), self.threads)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of ``plan --json``."""
        return {
            "name": self.name,
            "alias": self.alias,
            "instances": self.instances,
            "threads": self.threads,
            "policy": self.policy,
            "placements": [p.to_dict() for p in self.placements],
        }


@dataclass(frozen=True)
class Plan:
    """The usual scenarios that can be run, and the others as (name, reason)."""

    scenarios: tuple[Scenario, ...]
    infeasible: tuple[tuple[str, str], ...]
    _planner: _Planner | None = field(default=None, repr=False, compare=False)

    def scenario(self, name: str) -> Scenario:
        """Return a scenario by name or alias, ignoring case; raises CannotHere or BadInput with the reason.

        Any N x T under any policy is accepted, not only the listed scenarios.
        """
        for scenario in self.scenarios:
            if name.lower() in {scenario.name.lower(), scenario.alias}:
                return scenario
        parts = parse_name(name)
        same = {name.lower()}
        if parts and parts[2] and self._planner:
            same.add(self._planner.name(parts[0], parts[1], parts[2]).lower())
        for infeasible, reason in self.infeasible:
            if infeasible.lower() in same:
                raise CannotHere(f"scenario {infeasible}: {reason}")
        have = f"this host has {', '.join(s.name for s in self.scenarios)}"
        if not parts:
            names = [text for s in self.scenarios for text in (s.name, s.alias)]
            raise BadInput(f"no scenario '{name}': {have}{did_you_mean(name, names)}")
        if self._planner is None:
            raise CannotHere(f"scenario {name}: {have}")
        instances, policy, each = parts
        try:
            shares, threads = self._planner.layout.division(instances, each, bound=policy.binds)
        except CannotHere as error:
            raise CannotHere(f"scenario {name}: {error}; {have}") from error
        scenario, reason = self._planner.scenario(shares, threads, policy)
        if reason:
            raise CannotHere(f"scenario {scenario.name}: {reason}")
        return scenario

    def of_one_instance(self, name: str, threads: int | None = None) -> Scenario:
        """Return a scenario as :meth:`scenario` does; raises BadInput if it has several instances.

        *threads* is for a name that does not state them; BadInput if it states others.
        """
        parts = parse_name(name)
        if parts and threads and parts[2] not in {None, threads}:
            raise BadInput(f"{name} has {parts[2]} threads, --threads asks for {threads}: leave one of them out")
        scenario = self.scenario(name_of(parts[0], parts[1], threads) if parts and threads else name)
        if scenario.instances != 1:
            raise BadInput(
                f"{scenario.name} has {scenario.instances} instances: this program is not split, so it runs under "
                "scenarios of one instance only, such as 1Inst_Interleave"
            )
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

    *need* is the memory of one instance. *threads* limits the threads in total (default: all usable PUs).
    *policies* is ``thesis``, ``all`` or a comma-separated list; scenarios of a policy that this host refuses are
    infeasible. *all_memory* also puts data on high-bandwidth, persistent and CXL memory. Raises BadInput if no PU
    or no memory may be used, *threads* is out of range, or a policy is unknown.
    """
    planner = _Planner(Layout(topology, threads, all_memory=all_memory), need or Need())
    wanted = chosen(policies)
    scenarios: list[Scenario] = []
    infeasible: list[tuple[str, str]] = []
    for shares, per_instance in planner.layout.divisions():
        for policy in wanted:
            scenario, reason = planner.scenario(shares, per_instance, policy)
            if reason:
                infeasible.append((scenario.name, reason))
            else:
                scenarios.append(scenario)
    return Plan(tuple(scenarios), tuple(infeasible), planner)


@dataclass(frozen=True)
class _Planner:
    """Turns shares into scenarios, with the reason if one cannot be run."""

    layout: Layout
    need: Need

    def name(self, instances: int, policy: Policy, threads: int) -> str:
        """Return the thesis's name of a scenario on this host."""
        return name_of(instances, policy, None if threads * instances == self.layout.total else threads)

    def scenario(self, shares: list[Share], threads: int, policy: Policy) -> tuple[Scenario, str]:
        topology = self.layout.topology
        extent = extent_of(len(shares))
        if not policy.binds:
            shares, _ = self.layout.division(len(shares), threads, bound=False)
        # Unbound instances share everything, and thus one placement.
        first = self._placement(shares[0], extent, policy)
        placements = tuple(first if s is shares[0] else self._placement(s, extent, policy) for s in shares)
        name = self.name(len(shares), policy, threads)
        reason = refusal(policy, format_list(self.layout.banks)) if topology.here else ""
        banks = [p.numa_nodes for p in placements]
        even = policy.pages[extent] == "even"
        reason = reason or shortage(topology, banks, self.need, threads, even=even)
        return Scenario(name, len(shares), threads, policy.name, placements), reason

    @functools.cached_property
    def _all(self) -> frozenset[int]:
        """The NUMA nodes of numactl's "all": every usable memory, including device memory.

        Empty if hwloc leaves out some NUMA nodes.
        """
        topology = self.layout.topology
        banks = frozenset(n.index for n in topology.numa_nodes if n.memory_bytes) & topology.allowed_nodes
        return frozenset() if topology.left_out else banks

    def _placement(self, share: Share, extent: Extent, policy: Policy) -> Placement:
        topology = self.layout.topology
        complete = {p for n in share.cpu_nodes for p in topology.node(n).pus} == set(share.pus)
        bind = f"--cpunodebind={format_list(share.cpu_nodes)}"
        # numactl refuses a NUMA node without usable memory, even for its PUs.
        if not complete or not set(share.cpu_nodes) <= set(topology.memory_nodes):
            bind = f"--physcpubind={format_list(share.pus)}"
        is_all = extent == "whole" and set(share.numa_nodes) == self._all
        numa_nodes = "all" if is_all else format_list(share.numa_nodes)
        numactl = policy.numactl(extent, bind=bind, numa_nodes=numa_nodes)
        return Placement(tuple(sorted(share.pus)), share.numa_nodes, numactl, policy.name, extent)
