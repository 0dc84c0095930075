# SPDX-License-Identifier: Apache-2.0
"""Names possible causes of a fail if the findings of the host fit a signature, by the rules of causes.toml."""

from __future__ import annotations

import functools
import itertools
import math
import re
import statistics
import string
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from firsttouch import documents
from firsttouch.documents import Table
from firsttouch.errors import first_of
from firsttouch.host.memory_modules import channel_of, socket_of_slot, without_channel
from firsttouch.judge.drift import ABSENT, ModuleDeviation, ModuleDeviations
from firsttouch.judge.samples_table import loss_state
from firsttouch.judge.verdict import Finding, natural
from firsttouch.records.cases import grouped
from firsttouch.records.catalogue import Check, checks
from firsttouch.systems.facts import Facts
from firsttouch.units import percent, percent_range, text_range

#: Sizes in bytes: up to the first fits every processor's first cache, from the second on no cache fits.
_CACHE, _MEMORY = 32 << 10, 32 << 20
#: The bandwidth of k of n memory channels is between k/n and (k/n) to this power, within these factors of noise.
_SATURATION, _LOWEST, _HIGHEST = 0.85, 0.95, 1.03
#: Without the number of channels, a loss that is smaller names none of them.
_NEAR_ALL = 0.93
#: The least share of metrics of other banks, and of latencies to other banks, beside a bank without a channel.
_SPILL, _REMOTE_SPILL = 0.96, 0.8
#: The shares of metrics that follow the clock if cooling or power is at fault.
_THROTTLED = 0.75, 0.975
#: The least share of the siblings that have the same module in a slot.
_SIBLINGS = 2 / 3
#: Most slots that are named, and most metrics.
_NAMED, _FEW_NAMED = 16, 3
#: Loads that use no link between NUMA nodes.
_LOCAL_LOADS = {"none", "local"}
#: The least share of all other groups if a condition is about some of the groups.
_HEALTHY = 0.97
_HEALTHY_LOSS = 1 - _HEALTHY
#: The part of a core that a slow chain of it shows (:mod:`firsttouch.benchmarks.cores`). A slow clock slows all
#: chains, and slow caches those behind them.
_PARTS = {"registers": "clock", "l1": "caches", "l2": "caches", "memory": "memory"}

# ----------------------------------------------------------------------
# The conditions of a rule, a class for each kind. Its first field is the key that tells the kind.


class _Condition(Table, frozen=True):
    """A kind of condition; *FIELDS* are the fields that it gives to the text of a cause."""

    FIELDS: ClassVar[tuple[str, ...]] = ()

    @property
    def gives(self) -> tuple[str, ...]:
        """The names of all fields."""
        return self.FIELDS


class _Count(_Condition, frozen=True):
    """The number of NUMA nodes or PUs, beside that of the system."""

    count: Literal["numa_nodes", "pus"]
    is_: Literal["fewer", "more", "one", "halved"]

    FIELDS = ("found", "expected", "which")


class _Slow(_Condition, frozen=True):
    """Whether a metric with a unit fails."""

    slow: bool


class _Fails(_Condition, frozen=True):
    """A check that fails."""

    fails: str

    FIELDS = ("cases",)


class _Missing(_Condition, frozen=True):
    """A check without a result."""

    missing: str
    where: dict[str, Any] = field(default_factory=dict)


class _Modules(_Condition, frozen=True):
    """Memory modules unlike those of the siblings."""

    modules: Literal["absent", "different"]

    FIELDS = ("modules",)


class _Clock(_Condition, frozen=True):
    """Metrics that follow the clock."""

    clock: Literal["slow", "good"]

    FIELDS = ("clock_share",)


class _SlowPus(_Condition, frozen=True):
    """PUs that are slower than their siblings, by the first part of the core that is."""

    slow_pus: Literal["clock", "caches", "memory"]

    FIELDS = ("slow_pus", "by")


class _Setting(_Condition, frozen=True):
    """A setting with a number."""

    setting: str
    at_least: float = -math.inf
    below: float = math.inf

    FIELDS = ("setting",)


class _Groups(_Condition, frozen=True):
    """The shares that groups of metrics reach; the group is a field, too, by the name of *by*."""

    check: str
    by: Literal["bank", "pu_node", "pair", "shared", "host"]
    groups: Literal["some", "any", "all"]
    share: tuple[float, float]
    metric: str | None = None
    where: dict[str, Any] = field(default_factory=dict)
    relation: Literal["local", "remote"] | None = None
    size: Literal["cache", "memory"] | None = None
    channels: bool = False
    alike: float = math.inf
    every: bool = False
    only: bool = False
    if_measured: bool = False

    FIELDS = ("share", "losses", "selected")

    @property
    def gives(self) -> tuple[str, ...]:
        """The names of all fields, with the group's."""
        return (*self.FIELDS, self.by)


_KINDS: dict[str, type[_Condition]] = {kind.__struct_fields__[0]: kind for kind in _Condition.__subclasses__()}


class Rule(Table, frozen=True):
    """A cause: its *name*, the *text* that explains it, and the conditions that must all hold.

    A cause is not named if one of the causes in *unless* is, which explain the same.
    """

    name: str
    text: str
    when: Annotated[tuple[Any, ...], Meta(min_length=1)]
    unless: tuple[str, ...] = ()


class _File(Table, frozen=True):
    cause: tuple[Rule, ...]


class _Place(Struct, frozen=True):
    """Where a finding was measured: NUMA nodes, bank, their relation, and the size in bytes.

    *check*, *metric*, *unit* and *case* are the finding's. *left* is the share of the expected value (1: all,
    below: worse), *bad* whether it is worse beyond chance, *fails* whether its verdict is fail.
    """

    nodes: Sequence[int]
    bank: Any
    size: int
    left: float | None
    bad: bool
    fails: bool
    check: str
    metric: str
    unit: str
    case: Mapping[str, Any]

    @property
    def relation(self) -> str:
        if len(self.nodes) != 1 or self.bank is None:
            return "?"
        return "local" if self.nodes[0] == self.bank else "remote"

    @property
    def of_memory(self) -> bool:
        """Whether it is a rate of memory, or a latency beyond the caches."""
        return self.unit == "GB/s" or (self.unit == "ns" and self.size >= _MEMORY)

    @property
    def of_clock(self) -> bool:
        """Whether it follows the clock of the cores and of their caches, and not memory."""
        if self.unit == "1" or self.of_memory:
            return False
        cache = self.check == "latency" and 0 < self.size <= _CACHE
        follows = checks().get(self.check, Check({}, ())).follows_clock
        return cache or follows or "flop" in f"{self.unit} {self.metric}".lower()

    def key(self, by: str) -> str:
        """Return the group of the place: its bank, its NUMA node, their pair, what its PUs share, or the host."""
        if by == "host":
            return by
        if by == "shared":
            return f"{self.case.get('shared', '')}{self.case.get('cache_level', '')}"
        if self.relation == "?":
            return ""
        if by == "pair":  # a link has two directions
            return " and ".join(map(str, sorted({self.nodes[0], self.bank})))
        return str(self.bank if by == "bank" else self.nodes[0])

    def is_in(self, keys: Collection[str], by: str) -> bool:
        """Return whether the place belongs to one of the groups *keys*, or whether that is unknown."""
        if by == "bank":
            return self.bank is None or not {str(b) for b in _listed(self.bank)}.isdisjoint(keys)
        if by == "pu_node":
            return not self.nodes or not {str(n) for n in self.nodes}.isdisjoint(keys)
        if by == "pair" and self.case.get("load", "none") not in _LOCAL_LOADS:
            return True
        return self.key(by) in {"", *keys}


class Symptoms(Struct, frozen=True, dict=True):
    """The input of the rules: findings, the host's counts and settings by metric, and its system's facts.

    *missing* are check and parameters of the cases that most hosts have and that this host lacks,
    *modules* how its memory modules deviate from those of the others.
    """

    findings: Sequence[Finding]
    values: Mapping[str, float]
    facts: Facts | None
    missing: Sequence[tuple[str, Mapping[str, Any]]] = ()
    modules: ModuleDeviations | None = None

    @functools.cached_property
    def places(self) -> Mapping[str, Sequence[_Place]]:
        """The places of the findings with values, by check."""
        places: dict[str, list[_Place]] = {}
        for f in self.findings:
            if f.values:
                nodes, bank, size = f.case.get("pu_nodes", ()), f.case.get("bank"), f.case.get("size_bytes", 0)
                bad, fails = f.verdict in {"suspect", "fail"}, f.verdict == "fail"
                place = _Place(nodes, bank, size, _left(f), bad, fails, f.check, f.metric, f.unit, f.case)
                places.setdefault(f.check, []).append(place)
        return places


@functools.cache
def rules() -> tuple[Rule, ...]:
    """Return the rules of causes.toml, in their order; those of a site's file come last."""
    return tuple(itertools.chain.from_iterable(documents.tables("causes.toml", parse)))


def parse(text: str, file: str) -> list[Rule]:
    """Return the rules of a TOML text; raises BadInput naming *file*, line and fault."""
    document = documents.parse_toml(text, file)
    rules = []
    for number, rule in enumerate(document.convert(_File).cause):
        places = [("cause", number, "when", position) for position in range(len(rule.when))]
        conditions = [_condition(document, *place) for place in places]
        fields = {name for condition in conditions for name in condition.gives}
        _check_text(document, rule.text, fields, "cause", number, "text")
        rules.append(replace(rule, when=tuple(conditions)))
    document.refuse_problems()
    return rules


def _condition(document: documents.Document, *where: str | int) -> _Condition:
    """Return the condition at *where*; raises BadInput if it is of no kind."""
    keys = document.convert(dict[str, Any], *where)
    kind = next((kind for name, kind in _KINDS.items() if name in keys), None)
    if kind is None:
        raise document.error(f"a condition needs one of the keys {', '.join(_KINDS)}", *where)
    return document.convert(kind, *where)


def _check_text(document: documents.Document, text: str, fields: Collection[str], *where: str | int) -> None:
    """Note a problem if *text* has other placeholders than the *fields* that its conditions give."""
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
        if unknown := [name for name in names if name not in fields]:
            fields_text = ", ".join(f"{{{name}}}" for name in sorted(fields)) or "none"
            document.problem(f"unknown placeholder {{{unknown[0]}}}: its conditions give {fields_text}", *where)
            return
        text.format(**dict.fromkeys(fields, ""))
    except ValueError as error:
        document.problem(f"not a text with placeholders: {error}", *where)


def causes(symptoms: Symptoms) -> list[str]:
    """Return the causes whose signature *symptoms* show, each as ``name: evidence``, the likeliest first."""
    texts: dict[str, str] = {}
    fails = any(f.verdict == "fail" for f in symptoms.findings)
    for rule in rules():
        # Without a fail, only the configuration is evidence enough.
        if texts.keys() & set(rule.unless) or not (fails or any(isinstance(c, _Modules) for c in rule.when)):
            continue
        fields: dict[str, Any] = {}
        for condition in rule.when:
            values = _holds(condition, symptoms)
            if values is None:
                break
            fields = {**values, **fields}
        else:
            texts.setdefault(rule.name, f"{rule.name}: {rule.text.format(**fields)}")
    return list(texts.values())


@functools.singledispatch
def _holds(condition: _Condition, symptoms: Symptoms) -> dict[str, Any] | None:
    """Return the fields that a condition gives to the text of its rule, None if it does not hold."""
    raise NotImplementedError(type(condition))


@_holds.register
def _slow(condition: _Slow, symptoms: Symptoms) -> dict[str, Any] | None:
    slow = any(f.verdict == "fail" and f.unit != "1" for f in symptoms.findings)
    return {} if slow == condition.slow else None


@_holds.register
def _fails(condition: _Fails, symptoms: Symptoms) -> dict[str, Any] | None:
    titles = [f.title for f in symptoms.findings if f.check == condition.fails and f.verdict == "fail"]
    return {"cases": first_of(titles, _FEW_NAMED)} if titles else None


@_holds.register
def _missing(condition: _Missing, symptoms: Symptoms) -> dict[str, Any] | None:
    where = condition.where.items()
    lacks = any(
        check == condition.missing and all(case.get(name) == value for name, value in where)
        for check, case in symptoms.missing
    )
    return {} if lacks else None


@_holds.register
def _setting(condition: _Setting, symptoms: Symptoms) -> dict[str, Any] | None:
    value = symptoms.values.get(condition.setting)
    holds = value is not None and condition.at_least <= value < condition.below
    return {"setting": f"{value:.3g}"} if holds else None


@_holds.register
def _count(condition: _Count, symptoms: Symptoms) -> dict[str, Any] | None:
    """Return the fields of a condition on the host's number of NUMA nodes or PUs."""
    metric, relation = condition.count, condition.is_
    count = symptoms.values.get(metric)
    if count is None or symptoms.facts is None:
        return None
    expected, threads = int(getattr(symptoms.facts, metric)), symptoms.facts.threads_per_core
    holds = {
        "fewer": count < expected,
        "more": count > expected,
        "one": count == 1 < expected,
        "halved": threads > 1 and count * threads == expected,
    }[relation]
    return (
        {"found": int(count), "expected": expected, "which": _lost_nodes(int(count), symptoms)} if holds else None
    )


def _lost_nodes(count: int, symptoms: Symptoms) -> str:
    """Return which NUMA nodes are missing, if the metrics of the other ones show it."""
    seen = {n for places in symptoms.places.values() for p in places for n in p.nodes}
    missing = sorted(set(symptoms.facts.numa_node_numbers if symptoms.facts else ()) - seen)
    if len(seen) != count or not missing:
        return ""
    numbers = ", ".join(map(str, missing))
    return f"NUMA node {numbers} is missing: " if len(missing) == 1 else f"NUMA nodes {numbers} are missing: "


@_holds.register
def _groups(condition: _Groups, symptoms: Symptoms) -> dict[str, Any] | None:
    """Return the fields of a condition on the shares of groups of metrics."""
    relation, size, by, metric = condition.relation, condition.size, condition.by, condition.metric
    grouped: dict[str, list[_Place]] = {}
    for place in symptoms.places.get(condition.check, ()):
        if (
            relation in {None, place.relation}
            and metric in {None, place.metric}
            and all(place.case.get(name) == value for name, value in condition.where.items())
            and (size != "cache" or 0 < place.size <= _CACHE)
            and (size != "memory" or place.size >= _MEMORY)
            and place.left is not None
            and (key := place.key(by))
        ):
            grouped.setdefault(key, []).append(place)
    if not grouped and condition.if_measured:
        return {by: "", "share": "", "losses": "", "selected": ""}
    low, high = condition.share
    shares = {key: [p.left for p in places if p.left is not None] for key, places in grouped.items()}
    medians = {key: statistics.median(values) for key, values in shares.items()}
    meant = {
        key: median
        for key, median in medians.items()
        if low <= median < high
        # A slow group must be judged slow: the median of a few noisy repetitions shows no cause.
        and (high > 1 or _is_slow(grouped[key], throughout=condition.every))
        and (not condition.channels or _fits_channels(median, _channels(key, symptoms.facts)))
        and max(shares[key]) - min(shares[key]) <= condition.alike
    }
    if condition.groups == "all":
        holds = bool(meant) and len(meant) == len(grouped)
    elif condition.groups == "any":
        holds = bool(meant)
    else:
        healthy = all(median >= _HEALTHY for key, median in medians.items() if key not in meant)
        holds = 0 < len(meant) < len(grouped) and healthy
    if not holds or (condition.only and not _only(meant, by, symptoms, spill=condition.channels)):
        return None
    key = min(meant, key=lambda k: meant[k])
    losses = _channel_losses(meant, symptoms.facts) if condition.channels else ""
    return {by: key, "share": percent(meant[key]), "losses": losses, "selected": ", ".join(sorted(meant))}


def _is_slow(places: Sequence[_Place], *, throughout: bool) -> bool:
    """Return whether a metric of a group fails, and half of them (*throughout*: all) are bad."""
    bad = sum(place.bad for place in places)
    return any(place.fails for place in places) and (bad == len(places) if throughout else 2 * bad >= len(places))


def _only(keys: Collection[str], by: str, symptoms: Symptoms, *, spill: bool) -> bool:
    """Return whether nothing fails outside of the groups *keys*; *spill*: beyond what full banks cost others."""
    places = itertools.chain.from_iterable(symptoms.places.values())
    return all(
        place.is_in(keys, by) or (spill and _is_spill(place, symptoms.places[place.check]))
        for place in places
        if place.fails
    )


def _is_spill(place: _Place, places: Sequence[_Place]) -> bool:
    """Return whether a loss of another bank, measured at *places*, follows from a bank with fewer channels."""
    if not place.of_memory:
        return False
    least = _REMOTE_SPILL if place.unit == "ns" and place.relation == "remote" else _SPILL
    # Of noisy metrics a few lose more.
    of_bank = (p for p in places if (p.bank, p.relation, p.of_memory) == (place.bank, place.relation, True))
    return statistics.median(p.left or 0.0 for p in of_bank) >= least


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)


def _channels(bank: str, facts: Facts | None) -> int | None:
    """Return the number of memory channels of a bank; None if the facts do not tell."""
    if facts is None or not facts.channels_per_package:
        return None
    packages = dict(zip(map(str, facts.numa_node_numbers), facts.package_of_numa_node, strict=True))
    package = packages.get(bank)
    nodes = sum(p == package for p in packages.values()) if package is not None else 1
    return max(1, facts.channels_per_package // nodes)


def _working(share: float, channels: int) -> list[int]:
    """Return how many of a bank's channels may work if it has this *share* of its bandwidth."""
    return [
        k
        for k in range(1, channels)
        if _LOWEST * k / channels <= share <= _HIGHEST * (k / channels) ** _SATURATION
    ]


def _fits_channels(share: float, channels: int | None) -> bool:
    """Return whether *share* of a bank's bandwidth is that of less than its *channels* (None: unknown)."""
    return share <= _NEAR_ALL if channels is None else bool(_working(share, channels))


def _channel_losses(shares: Mapping[str, float], facts: Facts | None) -> str:
    """Return the shares of banks with what they say about their channels."""

    def working_text(bank: str) -> str:
        if (channels := _channels(bank, facts)) is None:
            return "fewer memory channels than the others (the system's file has no number of channels)"
        working = _working(shares[bank], channels)
        return f"about {text_range(str(working[0]), str(working[-1]))} of {channels} memory channels"

    texts = []
    for text, names in grouped(sorted(shares, key=natural), working_text).items():
        of_banks = [shares[name] for name in names]
        share = percent_range(min(of_banks), max(of_banks))
        nodes = f"NUMA node{'s' * (len(names) > 1)} {', '.join(names)}"
        texts.append(f"{nodes}: {share} of the bandwidth in all kernels, as with {text}")
    return "; ".join(texts)


# ----------------------------------------------------------------------
# The clock


@_holds.register
def _clock(condition: _Clock, symptoms: Symptoms) -> dict[str, Any] | None:
    share = _clock_share(symptoms)
    if (share is not None) != (condition.clock == "slow"):
        return None
    return {"clock_share": "" if share is None else percent(share)}


def _clock_share(symptoms: Symptoms) -> float | None:
    """Return the share that metrics of the clock have left if they fall together; None if they do not.

    They do on NUMA nodes, or on the whole host, if all of them lie within :data:`_THROTTLED` there, no such metric
    is slow elsewhere, and no metric of memory has lost more.
    """

    def processor(place: _Place) -> str:
        return ",".join(map(str, place.nodes)) or str(place.case.get("cpu", place.case.get("package", "")))

    places = list(itertools.chain.from_iterable(symptoms.places.values()))
    groups = grouped((place for place in places if place.of_clock and place.left is not None), processor)
    low, high = _THROTTLED
    slow = []
    for group in groups.values():
        shares = [p.left for p in group if p.left is not None]
        median = statistics.median(shares)
        if all(low <= share < high for share in shares) and _is_slow(group, throughout=False):
            slow.append(median)
        elif median < _HEALTHY or any(p.fails for p in group):
            return None
    if not slow or any(p.of_memory and p.fails and (p.left or 0) < min(slow) - _HEALTHY_LOSS for p in places):
        return None
    return min(slow)


@_holds.register
def _slow_pus(condition: _SlowPus, symptoms: Symptoms) -> dict[str, Any] | None:
    """Return the fields of a condition on slow PUs: which they are, and how much the slowest of them loses."""
    parts: dict[int, dict[str, float]] = {}
    for place in symptoms.places.get("cores", ()):
        if place.metric == "slow_cores" and place.fails and "pu" in place.case:
            pu, chain = place.case["pu"], str(place.case.get("chain", "registers"))
            of_pu, part = parts.setdefault(pu, {}), _PARTS.get(chain, "")
            of_pu[part] = max(of_pu.get(part, 0.0), symptoms.values.get(loss_state(pu, chain), 0.0))
    first = {pu: next((p for p in _PARTS.values() if p in of_pu), "") for pu, of_pu in parts.items()}
    pus = sorted(pu for pu, part in first.items() if part == condition.slow_pus)
    if not pus:
        return None
    loss = max(parts[pu][condition.slow_pus] for pu in pus)
    plural = len(pus) > 1
    return {
        "slow_pus": f"PU{'s' * plural} {first_of([*map(str, pus)], _NAMED)} {'are' if plural else 'is'}",
        "by": f" by {'up to ' * plural}{percent(loss)}" if loss > 0 else "",
    }


# ----------------------------------------------------------------------
# Memory modules


@_holds.register
def _modules(condition: _Modules, symptoms: Symptoms) -> dict[str, Any] | None:
    """Return the fields of a condition on the memory modules: those that explain a loss of memory's speed."""
    if symptoms.modules is None:
        return None
    slow = [p for places in symptoms.places.values() for p in places if p.bad and (p.of_memory or p.unit == "GiB")]
    packages = _package_of_socket(symptoms.modules, symptoms.facts)
    deviations = [
        d
        for d in symptoms.modules.deviations
        if (d.value == ABSENT) == (condition.modules == "absent")
        and d.siblings >= 2
        and d.siblings >= _SIBLINGS * d.hosts
        and any(_is_of_package(place, packages.get(d.socket), symptoms.facts) for place in slow)
    ]
    if not deviations:
        return None
    text = _absent if condition.modules == "absent" else _different
    return {"modules": text(deviations, symptoms.modules.usual)}


def _package_of_socket(modules: ModuleDeviations, facts: Facts | None) -> Mapping[int | None, int]:
    """Return the package of each socket that slots name; nothing if that is not sure."""
    sockets = {socket_of_slot(slot, text) for slot, text in modules.usual.items()}
    numbers = sorted(socket for socket in sockets if socket is not None)
    if None in sockets or facts is None or len(numbers) != facts.packages:
        return {}
    return {socket: package for package, socket in enumerate(numbers)}


def _is_of_package(place: _Place, package: int | None, facts: Facts | None) -> bool:
    """Return whether a metric has used memory of a *package*, or may have."""
    if package is None or facts is None or place.bank is None:
        return True
    packages = dict(zip(facts.numa_node_numbers, facts.package_of_numa_node, strict=True))
    return any(packages.get(bank) in {package, None} for bank in _listed(place.bank))


def _absent(deviations: Sequence[ModuleDeviation], usual: Mapping[str, str]) -> str:
    """Return which slots are empty, as how many of the channels if all of their names are known."""
    empty = {d.slot for d in deviations}
    channels = grouped(usual, lambda slot: channel_of(usual[slot]))
    silent = [name for name, slots in channels.items() if empty.issuperset(slots)]
    if "" not in channels and silent:
        what = f"{len(silent)} of {len(channels)} channels"
    else:
        what = f"{len(empty)} of {len(usual)} modules"
    plural = len(empty) > 1
    siblings = min(d.siblings for d in deviations)
    return (
        f"{what}: slot{'s' * plural} {_slots(empty)} {'are' if plural else 'is'} empty here, "
        f"filled on {siblings} siblings"
    )


def _different(deviations: Sequence[ModuleDeviation], usual: Mapping[str, str]) -> str:
    """Return which slots have other modules than those of the siblings, and how all of them differ."""
    by_module = grouped(deviations, lambda d: (without_channel(d.value), without_channel(d.usual)))
    siblings = f"on {min(d.siblings for d in deviations)} siblings"
    if len(by_module) == 1 and len(deviations) == len(usual) > 1:
        here, there = (set(text.split(", ")) for text in next(iter(by_module)))
        apart = [", ".join(sorted(parts)) for parts in (here - there, there - here)]
        if all(apart):
            return f"all {len(usual)} modules: {apart[0]} instead of {apart[1]} {siblings}"
    return "; ".join(
        f"slot{'s' * (len(slots) > 1)} {_slots([d.slot for d in slots])}: {value} here, {usual_text} {siblings}"
        for (value, usual_text), slots in by_module.items()
    )


def _slots(names: Collection[str]) -> str:
    """Return the names of slots, with what the one before begins with only once: ``PROC 1 DIMM 3, 6``."""
    texts, last = [], ""
    for name in sorted((" ".join(name.split()) for name in names), key=natural):
        number = re.search(r"\d+\Z", name)
        stem = name[: number.start()] if number else name
        texts.append(number[0] if number and stem == last else name)
        last = stem
    return first_of(texts, _NAMED)


def _left(finding: Finding) -> float | None:
    """Return the share of the expected value that a metric reaches (1: all of it, below: worse)."""
    if finding.reference is None or not finding.reference.value:
        return None
    share = statistics.median(finding.values) / finding.reference.value
    return share if finding.better != "lower" else 1 / share if share else None
