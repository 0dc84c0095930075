# SPDX-License-Identifier: Apache-2.0
"""Scenarios: N instances x T threads x policy, each instance with its placement (thesis section 5.2).

Planning needs nothing but a topology, so it works with stored ones.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from firsttouch.errors import BadInput, CannotHere, did_you_mean
from firsttouch.host.cpusets import format_list
from firsttouch.host.topology import Topology
from firsttouch.scenarios import memory_options, policies, tiers
from firsttouch.scenarios.layout import Layout, Share
from firsttouch.scenarios.memory_fit import Need, shortage, why_unshared
from firsttouch.scenarios.memory_options import Copies
from firsttouch.scenarios.policies import GROUPS, Extent, Policy, refusal, select_policies

#: The name of a scenario: instances, threads of each instance (none: all PUs are divided), and the policy.
_NAME = re.compile(r"([1-9][0-9]{0,5})[xX]([1-9][0-9]{0,5})?-([a-zA-Z-]+)")


#: Where shared copies of an index may lie, the nearest memory first.
_SAVING: tuple[Copies, ...] = ("node", "all", "none")


def extent_of(instances: int) -> Extent:
    """Return whether each of *instances* has the whole host or a part of it."""
    return "whole" if instances == 1 else "part"


class ScenarioName(Struct, frozen=True):
    """The parts of a scenario's name; *threads* (per instance) is None if the name does not state it."""

    instances: int
    policy: Policy
    threads: int | None = None
    options: tuple[str, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether it is one instance without policy and options, the baseline of comparisons."""
        return self.instances == 1 and not self.policy.whole and not self.options

    def __str__(self) -> str:
        """Return the name: 8x16-bound, with memory options 8x16-bound+thp; without threads 8x-bound."""
        word = policies.word_of(self.policy, extent_of(self.instances))
        return f"{self.instances}x{self.threads or ''}-{word}{memory_options.suffix(self.options)}"


def parse_name(text: str) -> ScenarioName | None:
    """Return the parts of a scenario's name, ignoring case; None if it is not a name.

    Raises BadInput for a name whose memory options are wrong.
    """
    base, _, suffix = text.partition("+")
    match = _NAME.fullmatch(base)
    if match is None:
        return None
    number, threads, word = match.groups()
    policy = policies.policy_of_word(word.lower(), extent_of(int(number)))
    if policy is None:
        return None
    options = memory_options.parse_suffix(suffix)
    return ScenarioName(int(number), policy, int(threads) if threads else None, options)


def name_of(instances: int, threads: int, policy: str) -> str:
    """Return the name of a scenario under the *policy* of that name, which need not be installed here."""
    described = policies.policies().get(policy)
    word = policies.word_of(described, extent_of(instances)) if described else policy
    return f"{instances}x{threads}-{word}"


class Placement(Struct, frozen=True):
    """PUs of one instance, the NUMA nodes it may allocate on, and numactl's options that request both.

    *extent* is ``whole`` if the instance has the whole host, else ``part``. *options* are its memory options.
    """

    pus: tuple[int, ...]
    numa_nodes: tuple[int, ...]
    numactl: tuple[str, ...]
    policy: str
    extent: Extent
    options: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of ``plan --json`` and of a record's ``placement_asked``."""
        return {
            "pus": list(self.pus),
            "numa_nodes": list(self.numa_nodes),
            "numactl": list(self.numactl),
            "policy": self.policy,
            "memory_options": list(self.options),
        }


class Scenario(Struct, frozen=True):
    """N *instances* of *threads* threads each under one *policy*; *name* is 2x16-bound.

    Memory *options* are a suffix of the name: 2x16-bound+thp.
    """

    name: str
    instances: int
    threads: int
    policy: str
    placements: tuple[Placement, ...]
    options: tuple[str, ...] = ()

    @property
    def pus(self) -> frozenset[int]:
        """The PUs of all instances."""
        return frozenset(pu for placement in self.placements for pu in placement.pus)

    @property
    def base_name(self) -> str:
        """The name without the memory options."""
        return self.name.removesuffix(memory_options.suffix(self.options))

    def with_options(self, options: Sequence[str]) -> Scenario:
        """Return this scenario with other memory options."""
        options = tuple(options)
        placements = tuple(replace(placement, options=options) for placement in self.placements)
        name = self.base_name + memory_options.suffix(options)
        return replace(self, name=name, placements=placements, options=options)

    def with_instances(self, count: int) -> Scenario:
        """Return *count* instances of this scenario, spread evenly over their placements."""
        placements = tuple(self.placements[i * self.instances // count] for i in range(count))
        name = f"{count}{self.name.removeprefix(str(self.instances))}"
        return replace(self, name=name, instances=count, placements=placements)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of ``plan --json``."""
        return {
            "name": self.name,
            "instances": self.instances,
            "threads": self.threads,
            "policy": self.policy,
            "memory_options": list(self.options),
            "placements": [p.to_dict() for p in self.placements],
        }


def distinct(scenarios: Sequence[Scenario]) -> list[Scenario]:
    """Return *scenarios* without duplicates: policies differ only if there are several NUMA nodes.

    An instance on a single NUMA node has its pages there under every policy. Of duplicates, the one without a
    policy stays, or else the first.
    """
    first: dict[object, Scenario] = {}
    for s in scenarios:
        places = [(p.pus, p.numa_nodes) for p in s.placements]
        single = all(len(nodes) == 1 for _, nodes in places)
        key = (s.threads, tuple(places), s.options) if single else s.name
        if key not in first or not s.placements[0].numactl:
            first[key] = s
    return list(first.values())


#: The usual scenarios that can be run, and the infeasible ones as (name, reason).
Listing = tuple[tuple[Scenario, ...], tuple[tuple[str, str], ...]]


class Plan(Struct, frozen=True, dict=True):
    """The usual scenarios of a host, listed at their first use, and any scenario by name.

    Large hosts have more than a hundred usual scenarios, and most runs need one.
    """

    _planner: _Planner
    _list: Callable[[], Listing]

    @functools.cached_property
    def _listing(self) -> Listing:
        return self._list()

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        """The usual scenarios that can be run."""
        return self._listing[0]

    @property
    def infeasible(self) -> tuple[tuple[str, str], ...]:
        """The usual scenarios that cannot be run, as (name, reason)."""
        return self._listing[1]

    def with_listing(self, scenarios: Iterable[Scenario], infeasible: Iterable[tuple[str, str]]) -> Plan:
        """Return this plan with other usual scenarios."""
        listing = (tuple(scenarios), tuple(infeasible))
        return Plan(self._planner, lambda: listing)

    def scenario(self, name: str) -> Scenario:
        """Return a scenario by name, ignoring case; raises CannotHere or BadInput with the reason.

        Any N x T under any policy and with any memory options is accepted, not only the listed scenarios. A name
        without T divides all PUs.
        """
        parts = parse_name(name)
        if parts is None:
            have = f"this host has {', '.join(s.name for s in self.scenarios)}"
            names = [s.name for s in self.scenarios]
            raise BadInput(f"no scenario '{name}': {have}{did_you_mean(name, names)}")
        scenario = self._division(name.partition("+")[0], parts)
        scenario, reason = self.with_options(scenario, parts.options)
        if reason:
            other = self.with_fitting_index(scenario)
            remedy = f"; it fits as {other.name}" if other else ""
            raise CannotHere(f"scenario {scenario.name}: {reason}{remedy}")
        return scenario

    def with_fitting_index(self, scenario: Scenario | str) -> Scenario | None:
        """Return a scenario, or a usual one by name, with an index option that makes it fit into memory, or None.

        Instances then share copies of the index, as near as possible.
        """
        if isinstance(scenario, str):
            parts = parse_name(scenario)
            listed = parts and self._listed(parts)
            return self.with_fitting_index(listed) if listed else None
        return self._planner.with_fitting_index(scenario)

    def with_options(self, scenario: Scenario, options: Sequence[str]) -> tuple[Scenario, str]:
        """Return *scenario* with memory *options*, and why it cannot be run, or an empty string."""
        scenario = scenario.with_options(options)
        return scenario, self._planner.reason(scenario)

    def with_each(self, sets: Sequence[Sequence[str]]) -> Plan:
        """Return this plan with its scenarios also under each of *sets* of memory options, if they can be run.

        Some fit only if their instances share an index. Of equal scenarios, only the first gets options.
        """
        usual = distinct((*self.scenarios, *self._planner.refused.values()))
        variants = [self.with_options(s, names) for names in sets for s in usual]
        possible = (scenario for scenario, reason in variants if not reason)
        return self.with_listing((*self.scenarios, *possible), self.infeasible)

    def _listed(self, parts: ScenarioName) -> Scenario | None:
        """Return a usual scenario without memory options, feasible or not."""
        threads = parts.threads or self._planner.layout.total / parts.instances
        wanted = (parts.instances, threads, parts.policy.name, ())
        usual = (*self.scenarios, *self._planner.refused.values())
        return next((s for s in usual if (s.instances, s.threads, s.policy, s.options) == wanted), None)

    def _division(self, name: str, parts: ScenarioName) -> Scenario:
        """Return a scenario by its parts, without memory options."""
        layout = self._planner.layout
        if parts.policy.caches and parts.instances == 1:
            raise BadInput(
                f"{name}: one instance has the whole host; `run --on cache:0` chooses a last-level cache"
            )
        try:
            if parts.policy.caches:
                shares = layout.caches(parts.instances, parts.threads)
                threads = len(shares[0].pus)
            else:
                shares, threads = layout.division(parts.instances, parts.threads, bound=parts.policy.binds)
        except CannotHere as error:
            have = f"this host has {', '.join(s.name for s in self.scenarios)}"
            raise CannotHere(f"scenario {name}: {error}; {have}") from error
        return self._planner.scenario(shares, threads, parts.policy)

    def single_instance(self, name: str, threads: int | None = None) -> Scenario:
        """Return a scenario as :meth:`scenario` does; raises BadInput if it has several instances.

        *threads* applies to a name that does not state them; raises BadInput if the name states other ones.
        """
        parts = parse_name(name)
        _refuse_other_threads(name, parts, threads)
        scenario = self.scenario(str(replace(parts, threads=threads)) if parts and threads else name)
        _refuse_several(scenario.name, scenario.instances)
        return scenario


def _refuse_other_threads(name: str, parts: ScenarioName | None, threads: int | None) -> None:
    """Raise BadInput if *name* and --threads state different numbers of threads."""
    if parts and threads and parts.threads not in {None, threads}:
        raise BadInput(f"{name} has {parts.threads} threads, --threads asks for {threads}: leave one of them out")


def _refuse_several(name: str, instances: int) -> None:
    """Raise BadInput for a scenario of several *instances* of a program whose input is not split."""
    if instances != 1:
        raise BadInput(
            f"{name} has {instances} instances: this program is not split, so it runs under "
            "scenarios of one instance only, such as 1x-interleave"
        )


class TaskShare(Struct, frozen=True):
    """The PUs that tasks divide, the place of this task among them, and their number."""

    pus: frozenset[int]
    place: int = 0
    dividing: int = 1


def with_threads(words: Iterable[str], threads: int) -> list[str]:
    """Return the *words* of a command with {threads} replaced by the number of threads."""
    return [word.replace("{threads}", str(threads)) for word in words]


def plan(
    topology: Topology,
    need: Need | None = None,
    *,
    threads: int | None = None,
    policies: str = "thesis",
) -> Plan:
    """Return the usual scenarios for *topology*: the scenarios of the thesis's study, scaled to it.

    *need* is the memory of one instance. *threads* limits the threads in total (default: all usable PUs).
    *policies* is a group (:data:`~policies.GROUPS`) or a comma-separated list; scenarios of a policy that this
    host refuses are infeasible.

    Raises BadInput if no PU or no memory may be used, *threads* is out of range, or a policy is unknown.
    """
    planner = _Planner(Layout(topology, threads), need or Need())
    wanted = select_policies(policies)
    if policies in GROUPS and not planner.several_tiers:
        wanted = tuple(policy for policy in wanted if not policy.tiers)
    return Plan(planner, functools.partial(planner.usual, wanted, is_group=policies in GROUPS))


def plan_task(topology: Topology, share: TaskShare, tasks: int, name: str, threads: int | None = None) -> Scenario:
    """Return the scenario of *tasks* that start together on this host, and the placement of the one with *share*.

    *name* is a scenario of one instance, whose policy each task gets, or of all tasks. *threads* are per task, if
    the name does not state them. Raises BadInput and CannotHere as :meth:`Plan.single_instance` does.
    """
    parts = parse_name(name)
    if parts is None:
        raise BadInput(f"no scenario '{name}' for {tasks} tasks: use a name such as 1x-local")
    if tasks == 1:
        _refuse_several(name, parts.instances)
    if parts.instances not in {1, tasks}:
        raise BadInput(f"{name} has {parts.instances} instances, and {tasks} tasks were started on this host")
    _refuse_other_threads(name, parts, threads)
    if not parts.policy.binds:
        raise BadInput(f"{name} leaves the PUs to the kernel: --on and the tasks of srun state them")
    layout = Layout(replace(topology, allowed_pus=share.pus), None)
    each = threads or parts.threads
    divide = layout.caches if parts.policy.caches else layout.parts
    part = divide(share.dividing, each)[share.place]
    planner = _Planner(layout, Need(), {})
    placement = planner.placement(part, "part", parts.policy)
    base = str(ScenarioName(tasks, parts.policy, len(part.pus)))
    scenario = Scenario(base, tasks, len(part.pus), parts.policy.name, (placement,)).with_options(parts.options)
    if reason := planner.reason(scenario):
        raise CannotHere(f"scenario {scenario.name}: {reason}")
    return scenario


class _Planner(Struct, frozen=True, dict=True):
    """Turns shares into scenarios, and says why one cannot be run; *refused* are infeasible usual ones."""

    layout: Layout
    need: Need
    refused: dict[str, Scenario] = field(default_factory=dict)

    @functools.cached_property
    def several_tiers(self) -> bool:
        return len(tiers.tiers(self.layout.topology)) > 1

    def usual(self, wanted: Sequence[Policy], *, is_group: bool) -> Listing:
        """Return the usual scenarios of the policies *wanted*; policies that are not named may be impossible."""
        scenarios: list[Scenario] = []
        infeasible: list[tuple[str, str]] = []
        by_nodes = [policy for policy in wanted if not policy.caches]
        divisions = [(shares, size, policy) for shares, size in self.layout.divisions() for policy in by_nodes]
        for policy in (policy for policy in wanted if policy.caches):
            try:
                divisions += [(shares, size, policy) for shares, size in self.layout.divisions_by_cache()]
            except CannotHere as error:
                infeasible += [] if is_group else [(policy.name, str(error))]
        for shares, per_instance, policy in divisions:
            scenario = self.scenario(shares, per_instance, policy)
            if reason := self.reason(scenario):
                infeasible.append((scenario.name, reason))
                self.refused[scenario.name] = scenario
            else:
                scenarios.append(scenario)
        return tuple(scenarios), tuple(infeasible)

    def scenario(self, shares: list[Share], threads: int, policy: Policy) -> Scenario:
        extent = extent_of(len(shares))
        if not policy.binds:
            shares, _ = self.layout.division(len(shares), threads, bound=False)
        if policy.tiers:
            shares = [self._on_tiers(share, policy) for share in shares]
        # Unbound instances share all PUs, and therefore one placement.
        first = self.placement(shares[0], extent, policy)
        placements = tuple(first if s == shares[0] else self.placement(s, extent, policy) for s in shares)
        name = str(ScenarioName(len(shares), policy, threads))
        return Scenario(name, len(shares), threads, policy.name, placements)

    def reason(self, scenario: Scenario) -> str:
        """Return why *scenario* cannot be run, or an empty string."""
        topology, policy = self.layout.topology, policies.policy(scenario.policy)
        if policy.tiers and not self.several_tiers:
            return f"policy {policy.name} is for several memory tiers, and this host has one"
        if topology.here:
            usable = format_list(self.layout.banks)
            if reason := refusal(policy, usable) or memory_options.refusal(scenario.options):
                return reason
        banks = [p.numa_nodes for p in scenario.placements]
        even = policy.pages[extent_of(scenario.instances)] == "even"
        index = memory_options.option_of_kind(scenario.options, "index")
        copies = index.copies if index else "own"
        if index and (reason := why_unshared(self.need, copies)):
            return f"memory option {index.name}: {reason}"
        return shortage(topology, banks, self.need, scenario.threads, even=even, copies=copies)

    def with_fitting_index(self, scenario: Scenario) -> Scenario | None:
        """Return *scenario* with an index option that makes it fit into memory, or None."""
        options_of_all = memory_options.options().values()
        for copies in _SAVING:
            for index in (o for o in options_of_all if o.kind == "index" and o.copies == copies):
                options = tuple(
                    o.name
                    for o in options_of_all
                    if o is index or (o.kind != "index" and o.name in scenario.options)
                )
                other = scenario.with_options(options)
                if not self.reason(other):
                    return other
        return None

    def _on_tiers(self, share: Share, policy: Policy) -> Share:
        """Return *share* with its data on the fastest or on all memory tiers of its NUMA nodes."""
        topology = self.layout.topology
        own = tiers.own_banks(topology, share.cpu_nodes) or share.numa_nodes
        if policy.tiers == "fast":
            fastest = next(t for t in tiers.tiers(topology) if set(own) & set(t.banks))
            own = tuple(bank for bank in own if bank in fastest.banks)
        return replace(share, numa_nodes=own)

    @functools.cached_property
    def _all(self) -> frozenset[int]:
        """The NUMA nodes that numactl's "all" means: all usable memory, including device memory.

        Empty if hwloc leaves out some NUMA nodes.
        """
        topology = self.layout.topology
        banks = frozenset(n.index for n in topology.numa_nodes if n.memory_bytes) & topology.allowed_nodes
        return frozenset() if topology.left_out else banks

    def placement(self, share: Share, extent: Extent, policy: Policy) -> Placement:
        """Return the placement of one share."""
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
