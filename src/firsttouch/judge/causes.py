# SPDX-License-Identifier: Apache-2.0
"""Names possible causes of a fail: the part and the pattern of its kinds, by the rules of causes.toml."""

from __future__ import annotations

import functools
import itertools
import math
import re
import string
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from firsttouch import documents
from firsttouch.documents import Table
from firsttouch.errors import first_of
from firsttouch.host.memory_modules import channel_of, without_channel
from firsttouch.judge.drift import ABSENT, ModuleDeviation, ModuleDeviations
from firsttouch.judge.samples_table import loss_state
from firsttouch.judge.statistics import as_fraction
from firsttouch.judge.verdict import Finding, PartFinding, natural
from firsttouch.records.cases import grouped
from firsttouch.systems.facts import Facts
from firsttouch.units import percent

#: The least share of the siblings that have the same module in a slot.
_SIBLINGS = 2 / 3
#: Most slots that are named, and most parts or metrics.
_NAMED, _FEW_NAMED = 16, 4
#: The part of a core that a slow chain of it shows (:mod:`firsttouch.benchmarks.cores`). A slow clock slows all
#: chains, and slow caches those behind them.
_CORES = {"registers": "clock", "l1": "caches", "l2": "caches", "memory": "memory"}
#: What the text of a rule may state.
_FIELDS = ("parts", "loss", "setting", "cases", "count", "expected", "which", "modules", "pus", "by")


class Rule(Table, frozen=True):
    """A cause: its *name*, the *text* that explains it, and its conditions, all of which must hold.

    Series are written ``PART KIND``, such as ``memory bandwidth``, and may have ``*``.
    """

    name: str
    text: str
    #: Series of which some part is bad, and series of which none is.
    bad: tuple[str, ...] = ()
    good: tuple[str, ...] = ()
    #: Whether all parts of the bad series are bad, or only some.
    all: bool | None = None
    #: The smallest and the largest loss of the bad series (fractions).
    loss: tuple[float, float] = (0.0, 1.0)
    #: Metrics (CHECK.METRIC) of which one is bad, and of which none is.
    metrics: tuple[str, ...] = ()
    good_metrics: tuple[str, ...] = ()
    #: A check of which a count fails, and one of which cases are missing, with parameters.
    fails: str = ""
    missing: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    #: A setting of the host with its range.
    setting: str = ""
    at_least: float = -math.inf
    below: float = math.inf
    #: The number of NUMA nodes or PUs beside that of the system's facts.
    count: Literal["", "numa_nodes", "pus"] = ""
    is_: Literal["fewer", "more", "one", "halved"] = "fewer"
    #: Memory modules unlike those of the siblings, and slow PUs by the first part of the core that is slow.
    modules: Literal["", "absent", "different"] = ""
    slow_pus: Literal["", "clock", "caches", "memory"] = ""
    #: The cause is not named if one of these is.
    unless: tuple[str, ...] = ()


class _File(Table, frozen=True):
    cause: Annotated[tuple[Rule, ...], Meta(min_length=1)]


class Symptoms(Struct, frozen=True, dict=True):
    """The input of the rules: findings about parts and metrics, the host's settings, and its system's facts.

    *missing* are check and parameters of the cases that most hosts have and that this host lacks, *modules* how
    its memory modules deviate from those of the others, *places* how many parts of each series were measured.
    """

    findings: Sequence[Finding]
    parts: Sequence[PartFinding]
    values: Mapping[str, float]
    facts: Facts | None
    missing: Sequence[tuple[str, Mapping[str, Any]]] = ()
    modules: ModuleDeviations | None = None
    places: Mapping[str, int] = {}

    @functools.cached_property
    def bad(self) -> list[PartFinding]:
        """The parts that are suspect or fail."""
        return [part for part in self.parts if part.word in {"suspect", "fail"}]

    @functools.cached_property
    def bad_metrics(self) -> dict[str, list[Finding]]:
        """The metrics that are suspect or fail, as CHECK.METRIC."""
        bad = [f for f in self.findings if f.verdict in {"suspect", "fail"}]
        return grouped(bad, lambda f: f"{f.check}.{f.metric}")


@functools.cache
def rules() -> tuple[Rule, ...]:
    """Return the rules of causes.toml, in their order; those of a site's file come last."""
    return tuple(itertools.chain.from_iterable(documents.tables("causes.toml", parse)))


def parse(text: str, file: str) -> list[Rule]:
    """Return the rules of a TOML text; raises BadInput naming *file*, line and fault."""
    document = documents.parse_toml(text, file)
    rules = document.convert(_File).cause
    for number, rule in enumerate(rules):
        _check_text(document, rule.text, "cause", number, "text")
        if rule == Rule(rule.name, rule.text, unless=rule.unless):
            document.problem("a cause needs a condition", "cause", number)
    document.refuse_problems()
    return list(rules)


def _check_text(document: documents.Document, text: str, *where: str | int) -> None:
    """Note a problem if *text* has placeholders that no condition gives."""
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
        if unknown := [name for name in names if name not in _FIELDS]:
            placeholders = ", ".join(f"{{{name}}}" for name in _FIELDS)
            document.problem(f"unknown placeholder {{{unknown[0]}}}: there are {placeholders}", *where)
            return
        text.format(**dict.fromkeys(_FIELDS, ""))
    except ValueError as error:
        document.problem(f"not a text with placeholders: {error}", *where)


def causes(symptoms: Symptoms) -> list[str]:
    """Return the causes whose pattern *symptoms* show, each as ``name: evidence``, the likeliest first."""
    texts: dict[str, str] = {}
    words = [*(f.verdict for f in symptoms.findings), *(part.word for part in symptoms.parts)]
    for rule in rules():
        # Without a fail, only the configuration is evidence enough.
        if texts.keys() & set(rule.unless) or not ("fail" in words or rule.modules):
            continue
        if rule.name not in texts and (fields := _fields(rule, symptoms)) is not None:
            texts[rule.name] = f"{rule.name}: {rule.text.format(**dict.fromkeys(_FIELDS, '') | fields)}"
    return list(texts.values())


def _fields(rule: Rule, symptoms: Symptoms) -> dict[str, str] | None:
    """Return what the text of a rule states, None if one of its conditions does not hold."""
    fields: dict[str, str] = {}
    for condition in (_series, _metrics, _counts, _settings, _modules, _slow_pus):
        stated = condition(rule, symptoms)
        if stated is None:
            return None
        fields |= stated
    return fields


def _matches(part: PartFinding, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(part.series, pattern) for pattern in patterns)


def _series(rule: Rule, symptoms: Symptoms) -> dict[str, str] | None:
    if any(_matches(part, rule.good) for part in symptoms.bad):
        return None
    if not rule.bad:
        return {}
    bad = [part for part in symptoms.bad if _matches(part, rule.bad)]
    if not bad:
        return None
    is_all = any(part.is_together for part in bad) or len(bad) >= max(
        (symptoms.places.get(part.series, 1) for part in bad), default=1
    )
    losses = [as_fraction(part.loss) for part in bad]
    if rule.all not in {None, is_all} or not rule.loss[0] <= max(losses) <= rule.loss[1]:
        return None
    order = sorted(zip(losses, (part.part for part in bad), strict=True), key=lambda item: natural(item[1]))
    texts = [f"{name} {percent(loss)}" for loss, name in order]
    return {"parts": first_of(texts, _FEW_NAMED), "loss": percent(max(losses))}


def _metrics(rule: Rule, symptoms: Symptoms) -> dict[str, str] | None:
    def bad(names: Collection[str]) -> list[Finding]:
        return [
            f
            for name, of in symptoms.bad_metrics.items()
            if any(fnmatchcase(name, n) for n in names)
            for f in of
            if all(f.case.get(k) == v for k, v in rule.where.items())
        ]

    if bad(rule.good_metrics):
        return None
    titles = [f.title for f in bad(rule.metrics)]
    if rule.metrics and not titles:
        return None
    if rule.fails:
        titles = [f.title for f in symptoms.findings if f.check == rule.fails and f.verdict == "fail"]
        if not titles:
            return None
    if rule.missing and not any(
        check == rule.missing and all(case.get(name) == value for name, value in rule.where.items())
        for check, case in symptoms.missing
    ):
        return None
    return {"cases": first_of(titles, _FEW_NAMED)} if titles else {}


def _settings(rule: Rule, symptoms: Symptoms) -> dict[str, str] | None:
    if not rule.setting:
        return {}
    value = symptoms.values.get(rule.setting)
    holds = value is not None and rule.at_least <= value < rule.below
    return {"setting": f"{value:.3g}"} if holds else None


def _counts(rule: Rule, symptoms: Symptoms) -> dict[str, str] | None:
    """Return the fields of a condition on the host's number of NUMA nodes or PUs."""
    if not rule.count:
        return {}
    count = symptoms.values.get(rule.count)
    if count is None or symptoms.facts is None:
        return None
    expected, threads = int(getattr(symptoms.facts, rule.count)), symptoms.facts.threads_per_core
    holds = {
        "fewer": count < expected,
        "more": count > expected,
        "one": count == 1 < expected,
        "halved": threads > 1 and count * threads == expected,
    }[rule.is_]
    if not holds:
        return None
    return {"count": str(int(count)), "expected": str(expected), "which": _lost_nodes(int(count), symptoms)}


def _lost_nodes(count: int, symptoms: Symptoms) -> str:
    """Return which NUMA nodes are missing, if the metrics of the other ones show it."""
    seen = {n for f in symptoms.findings for n in f.case.get("pu_nodes", ()) if f.values}
    missing = sorted(set(symptoms.facts.numa_node_numbers if symptoms.facts else ()) - seen)
    if len(seen) != count or not missing:
        return ""
    numbers = ", ".join(map(str, missing))
    return f"NUMA node {numbers} is missing: " if len(missing) == 1 else f"NUMA nodes {numbers} are missing: "


def _slow_pus(rule: Rule, symptoms: Symptoms) -> dict[str, str] | None:
    """Return the fields of a condition on slow PUs: which they are, and how much the slowest of them loses."""
    if not rule.slow_pus:
        return {}
    cores: dict[int, dict[str, float]] = {}
    for finding in symptoms.findings:
        is_slow = (finding.check, finding.metric, finding.verdict) == ("cores", "slow_cores", "fail")
        if is_slow and "pu" in finding.case:
            pu, chain = finding.case["pu"], str(finding.case.get("chain", "registers"))
            of_pu, core_part = cores.setdefault(pu, {}), _CORES.get(chain, "")
            of_pu[core_part] = max(of_pu.get(core_part, 0.0), symptoms.values.get(loss_state(pu, chain), 0.0))
    first = {pu: next((p for p in _CORES.values() if p in of_pu), "") for pu, of_pu in cores.items()}
    pus = sorted(pu for pu, core_part in first.items() if core_part == rule.slow_pus)
    if not pus:
        return None
    loss = max(cores[pu][rule.slow_pus] for pu in pus)
    plural = len(pus) > 1
    return {
        "pus": f"PU{'s' * plural} {first_of([*map(str, pus)], _NAMED)} {'are' if plural else 'is'}",
        "by": f" by {'up to ' * plural}{percent(loss)}" if loss > 0 else "",
    }


# ----------------------------------------------------------------------
# Memory modules


def _modules(rule: Rule, symptoms: Symptoms) -> dict[str, str] | None:
    """Return the fields of a condition on the memory modules: those that explain a loss of memory's speed."""
    if not rule.modules:
        return {}
    if symptoms.modules is None:
        return None
    is_slow = any(part.series.startswith(("memory", "link", "banks", "traffic")) for part in symptoms.bad)
    is_slow |= any(f.unit in {"GB/s", "GiB"} for of in symptoms.bad_metrics.values() for f in of)
    deviations = [
        d
        for d in symptoms.modules.deviations
        if (d.value == ABSENT) == (rule.modules == "absent")
        and d.siblings >= 2
        and d.siblings >= _SIBLINGS * d.hosts
    ]
    if not deviations or not is_slow:
        return None
    text = _absent if rule.modules == "absent" else _different
    return {"modules": text(deviations, symptoms.modules.usual)}


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
