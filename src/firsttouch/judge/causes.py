# SPDX-License-Identifier: Apache-2.0
"""Names possible causes of a fail by matching the bad parts and metrics with the rules of causes.toml."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from firsttouch import documents
from firsttouch.documents import FileTable
from firsttouch.errors import first_of
from firsttouch.host.host_lists import natural
from firsttouch.judge.verdict import Finding, PartFinding
from firsttouch.records.drift import ABSENT, Deviation, absent_modules, different_modules
from firsttouch.records.parts import part_of
from firsttouch.records.samples_table import loss_state
from firsttouch.statistics import as_fraction
from firsttouch.systems.facts import Facts
from firsttouch.units import percent

#: The least share of the siblings that have the same module in a slot.
_SIBLINGS = 2 / 3
#: The most slots and PUs, and the most parts or metrics, in a text.
_NAMED, _FEW_NAMED = 16, 4
#: Chain of ``cores`` -> the part of a core that it shows if it is slow (:mod:`firsttouch.benchmarks.cores`). A
#: slow clock slows all chains; a slow cache slows the chains in later caches and memory.
_CORES = {"registers": "clock", "l1": "caches", "l2": "caches", "memory": "memory"}
#: The placeholders in the text of a rule.
_FIELDS = ("parts", "loss", "setting", "cases", "count", "expected", "which", "modules", "pus", "by")


class Rule(FileTable, frozen=True):
    """A cause: its *name*, the *text* that explains it, and its conditions, all of which must hold.

    Series are written ``PART KIND``, such as ``memory bandwidth``, and may have ``*``.
    """

    name: str
    text: str
    #: Series with a bad part, and series without one.
    bad: tuple[str, ...] = ()
    good: tuple[str, ...] = ()
    #: Whether all parts of the bad series must be bad, or only some.
    all: bool | None = None
    #: The smallest and the largest loss of the bad series (fractions).
    loss: tuple[float, float] = (0.0, 1.0)
    #: Metrics (CHECK.METRIC) of which one must be bad, and metrics of which none may be.
    metrics: tuple[str, ...] = ()
    good_metrics: tuple[str, ...] = ()
    #: A check with missing cases, and their parameters.
    missing: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    #: A setting of the host and its range.
    setting: str = ""
    at_least: float = -math.inf
    below: float = math.inf
    #: How the number of NUMA nodes or PUs differs from the system's facts.
    count: Literal["", "numa_nodes", "pus"] = ""
    is_: Literal["fewer", "more", "one", "halved"] = "fewer"
    #: Memory modules that differ from the siblings', and slow PUs by the first slow part of the core.
    modules: Literal["", "absent", "different"] = ""
    slow_pus: Literal["", "clock", "caches", "memory"] = ""
    #: The cause is not named if one of these causes is.
    unless: tuple[str, ...] = ()


class _File(FileTable, frozen=True):
    cause: Annotated[tuple[Rule, ...], Meta(min_length=1)]


class Symptoms(Struct, frozen=True, dict=True):
    """The input of the rules: findings about parts and metrics, the host's settings, and its system's facts.

    *missing* has check and parameters of cases that most hosts have and this host lacks, *modules* the usual
    modules by slot and their deviations, *places* the number of measured parts of each series.
    """

    findings: Sequence[Finding]
    parts: Sequence[PartFinding]
    values: Mapping[str, float]
    facts: Facts | None
    missing: Sequence[tuple[str, Mapping[str, Any]]] = ()
    usual_modules: Mapping[str, str] = {}
    modules: Sequence[Deviation] = ()
    places: Mapping[str, int] = {}
    #: Returns all metrics that were judged, if *findings* lack those that pass.
    judged: Callable[[], Iterable[Finding]] | None = None

    @functools.cached_property
    def bad(self) -> list[PartFinding]:
        """The parts that are suspect or fail by a loss."""
        return [part for part in self.parts if part.word in {"suspect", "fail"} and part.loss > 0]

    @functools.cached_property
    def failed(self) -> set[str]:
        """The parts that fail or have a failing metric; not empty if the host fails."""
        failed = {part_of(f.case).text for f in self.findings if f.verdict == "fail"}
        return failed | {part.part for part in self.parts if part.word == "fail"}

    @functools.cached_property
    def bad_metrics(self) -> list[Finding]:
        """The metrics that are suspect or fail."""
        return [f for f in self.findings if f.verdict in {"suspect", "fail"}]


@functools.cache
def rules() -> tuple[Rule, ...]:
    """Return the rules of causes.toml, in their order; the rules of a site's file come last."""
    return tuple(itertools.chain.from_iterable(documents.tables("causes.toml", parse)))


def parse(text: str, file: str) -> list[Rule]:
    """Return the rules of a TOML text; raises BadInput naming *file*, line and fault."""
    document = documents.parse_toml(text, file)
    rules = document.convert(_File).cause
    for number, rule in enumerate(rules):
        try:
            rule.text.format(**dict.fromkeys(_FIELDS, ""))
        except KeyError as error:
            placeholders = ", ".join(f"{{{name}}}" for name in _FIELDS)
            fault = f"unknown placeholder {{{error.args[0]}}}: there are {placeholders}"
            document.problem(fault, "cause", number, "text")
        except (ValueError, LookupError, AttributeError, TypeError) as error:
            document.problem(f"not a text with placeholders: {error}", "cause", number, "text")
        if rule == Rule(rule.name, rule.text, unless=rule.unless):
            document.problem("a cause needs a condition", "cause", number)
    document.refuse_problems()
    return list(rules)


def causes(symptoms: Symptoms) -> list[str]:
    """Return the causes whose pattern *symptoms* show, each as ``name: evidence``, the likeliest first."""
    texts: dict[str, str] = {}
    for rule in rules():
        # Without a fail, only the configuration is sufficient evidence.
        if texts.keys() & {rule.name, *rule.unless} or not (symptoms.failed or rule.modules):
            continue
        if (fields := _fields(rule, symptoms)) is not None:
            texts[rule.name] = f"{rule.name}: {rule.text.format(**dict.fromkeys(_FIELDS, '') | fields)}"
    return list(texts.values())


def _fields(rule: Rule, symptoms: Symptoms) -> dict[str, str] | None:
    """Return the values for the placeholders of a rule, None if one of its conditions does not hold."""
    fields: dict[str, str] = {}
    for condition in (_series, _metrics, _counts, _settings, _modules, _slow_pus):
        if (stated := condition(rule, symptoms)) is None:
            return None
        fields |= stated
    return fields


def _matches(name: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _series(rule: Rule, symptoms: Symptoms) -> dict[str, str] | None:
    if any(_matches(part.series, rule.good) for part in symptoms.bad):
        return None
    if not rule.bad:
        return {}
    bad = [part for part in symptoms.bad if _matches(part.series, rule.bad)]
    # Suspect parts do not cause fails of other parts.
    if not bad or (symptoms.failed and symptoms.failed.isdisjoint(part.part for part in bad)):
        return None
    places = max(symptoms.places.get(part.series, 1) for part in bad)
    is_all = len(bad) >= places or any(part.is_together for part in bad)
    loss = as_fraction(max(part.loss for part in bad))
    if rule.all not in {None, is_all} or not rule.loss[0] <= loss <= rule.loss[1]:
        return None
    bad.sort(key=lambda part: natural(part.part))
    texts = [f"{part.part} ({percent(as_fraction(part.loss))})" for part in bad]
    return {"parts": first_of(texts, _FEW_NAMED), "loss": percent(loss)}


def _metrics(rule: Rule, symptoms: Symptoms) -> dict[str, str] | None:
    def is_there(case: Mapping[str, Any]) -> bool:
        return all(case.get(name) == value for name, value in rule.where.items())

    def bad(patterns: Collection[str]) -> list[str]:
        metrics = [f for f in symptoms.bad_metrics if _matches(f"{f.case.check}.{f.case.metric}", patterns)]
        return [f.case.title for f in metrics if is_there(f.case.parameters)]

    titles = bad(rule.metrics)
    if bad(rule.good_metrics) or (rule.metrics and not titles):
        return None
    if rule.missing and not any(check == rule.missing and is_there(case) for check, case in symptoms.missing):
        return None
    return {"cases": first_of(titles, _FEW_NAMED)} if titles else {}


def _settings(rule: Rule, symptoms: Symptoms) -> dict[str, str] | None:
    if not rule.setting:
        return {}
    value = symptoms.values.get(rule.setting, math.nan)
    return {"setting": f"{value:.3g}"} if rule.at_least <= value < rule.below else None


def _counts(rule: Rule, symptoms: Symptoms) -> dict[str, str] | None:
    """Return the fields of a condition on the host's number of NUMA nodes or PUs."""
    if not rule.count:
        return {}
    count, facts = symptoms.values.get(rule.count), symptoms.facts
    if count is None or facts is None:
        return None
    expected: int = getattr(facts, rule.count)
    holds = {
        "fewer": count < expected,
        "more": count > expected,
        "one": count == 1 < expected,
        "halved": facts.threads_per_core > 1 and count * facts.threads_per_core == expected,
    }[rule.is_]
    if not holds:
        return None
    # The metrics of the other NUMA nodes may show which nodes are missing.
    judged = symptoms.judged() if symptoms.judged else symptoms.findings
    seen = {node for f in judged if f.values for node in f.case.parameters.get("pu_nodes", ())}
    missing = sorted({*facts.numa_node_numbers} - seen) if len(seen) == count else []
    plural, numbers = len(missing) > 1, ", ".join(map(str, missing))
    which = f"NUMA node{'s' * plural} {numbers} {'are' if plural else 'is'} missing: " if missing else ""
    return {"count": str(int(count)), "expected": str(expected), "which": which}


def _slow_pus(rule: Rule, symptoms: Symptoms) -> dict[str, str] | None:
    """Return the fields of a condition on slow PUs: their numbers, and the largest loss."""
    if not rule.slow_pus:
        return {}
    cores: dict[int, dict[str, float]] = {}
    for case in (finding.case for finding in symptoms.bad_metrics):
        if (case.check, case.metric) == ("cores", "slow_cores") and "pu" in case.parameters:
            pu, chain = case.parameters["pu"], str(case.parameters.get("chain", "registers"))
            of_pu, core_part = cores.setdefault(pu, {}), _CORES.get(chain, "")
            of_pu[core_part] = max(of_pu.get(core_part, 0.0), symptoms.values.get(loss_state(pu, chain), 0.0))
    first = {pu: next((p for p in _CORES.values() if p in of_pu), "") for pu, of_pu in cores.items()}
    pus = sorted(pu for pu, core_part in first.items() if core_part == rule.slow_pus)
    if not pus:
        return None
    loss, plural = max(cores[pu][rule.slow_pus] for pu in pus), len(pus) > 1
    return {
        "pus": f"PU{'s' * plural} {first_of([*map(str, pus)], _NAMED)} {'are' if plural else 'is'}",
        "by": f" by {'up to ' * plural}{percent(loss)}" if loss > 0 else "",
    }


# ----------------------------------------------------------------------
# Memory modules


def _modules(rule: Rule, symptoms: Symptoms) -> dict[str, str] | None:
    """Return the fields of a condition on memory modules, from the deviations that explain a loss of speed."""
    if not rule.modules:
        return {}
    is_slow = any(part.series.startswith(("memory", "link", "banks", "traffic")) for part in symptoms.bad)
    is_slow |= any(f.case.unit in {"GB/s", "GiB"} for f in symptoms.bad_metrics)
    deviations = [
        d
        for d in symptoms.modules
        if (d.value == ABSENT) == (rule.modules == "absent") and d.siblings >= max(2, _SIBLINGS * d.of)
    ]
    if not deviations or not is_slow:
        return None
    text = absent_modules if rule.modules == "absent" else different_modules
    return {"modules": text(deviations, symptoms.usual_modules)}
