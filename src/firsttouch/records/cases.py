# SPDX-License-Identifier: Apache-2.0
"""The identity of a measurement: records of one case are repetitions of the same measurement.

The catalogue (:mod:`firsttouch.records.catalogue`) states the roles of the parameters of each check. The cases of
a check without an entry are identified by all parameters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import astuple, replace

from firsttouch.records.catalogue import Limit, better_of, catalogue, checks, limit_of
from firsttouch.units import Better, format_bytes

if TYPE_CHECKING:
    from firsttouch.records.groups import Floats
    from firsttouch.records.schema import Record

Item = TypeVar("Item")
Key = TypeVar("Key")
#: A relative change, or several.
Change = TypeVar("Change", float, "Floats")
#: Parameters that titles state in words.
_IN_TITLES = ("pu_nodes", "bank", "banks", "size_bytes", "threads", "load", "pages", "program")
_PROBE = frozenset(["firsttouch-probe", "probe"])


class Case(Struct, frozen=True, dict=True):  # noqa: PLW1641 - its parameters are not hashable
    """A metric of a check in one case: *parameters* are those that identify it. Values are in *unit*.

    *distinctive* are the parameters that its name shows in addition to the usual ones, because another case of
    the same records has the same usual ones. *details* are further facts with their texts, if the name or the
    title would still fit another case. *has_fractions*: some of its values are not whole numbers, so they count
    nothing. None of these is part of its identity.
    """

    system: str
    check: str
    metric: str
    parameters: Mapping[str, Any]
    unit: str
    better: Better
    distinctive: tuple[str, ...] = ()
    details: tuple[tuple[str, str], ...] = ()
    has_fractions: bool = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Case) and astuple(self)[:-3] == astuple(other)[:-3]

    @classmethod
    def from_record(cls, record: Record) -> Case:
        """Return the case of a record."""
        parameters = identifiers(record.check, record.parameters)
        better = better_of(record.check, record.metric, record.better)
        return cls(record.system, record.check, record.metric, parameters, record.unit, better)

    @cached_property
    def key(self) -> str:
        """A text that is the same for all records of the case, of any system, and for no others."""
        facts = [self.check, self.metric, self.unit, self.better, self.parameters]
        return json.dumps(facts, sort_keys=True, default=str)

    @property
    def way(self) -> dict[str, Any]:
        """The parameters that are not an axis: they are equal for the cases of one curve or matrix."""
        return without_axes(self.check, self.parameters)

    @property
    def loss_sign(self) -> float:
        """The factor that turns the logarithm of a value into a loss: 1.0 if less is better, and else -1.0."""
        return 1.0 if self.better == "lower" else -1.0

    def worsening(self, change: Change) -> Change:
        """Return how much worse a relative change of a value, or each of several, makes it (below 0: better)."""
        return abs(change) if self.better == "neither" else self.loss_sign * change

    @property
    def of_references(self) -> Case:
        """The case as references name it: without the conditions under which it was measured."""
        conditions = catalogue().common.conditions
        parameters = {k: v for k, v in self.parameters.items() if k not in conditions}
        return replace(self, parameters=parameters, distinctive=(), details=())

    @property
    def exact(self) -> bool:
        """Whether values are read from the host and not measured: a single value is enough."""
        return self.check in checks() and checks()[self.check].kind == "read"

    @property
    def limit(self) -> Limit | None:
        """The limit of a metric that counts events, None for others."""
        return limit_of(self.check, self.metric, self.unit, self.better, is_whole=not self.has_fractions)

    @cached_property
    def name(self) -> str:
        """The metric with the parameters that distinguish its case from others of the check, for programs."""
        shown = self._shown
        texts = [f"{k}={_text(v)}" for k, v in self.parameters.items() if k in shown]
        return " ".join([self.check, self.metric, *texts, *(f"{k}={text}" for k, text in self.details)])

    @property
    def title_of_metric(self) -> str:
        """The metric in words, such as ``random latency``. Bandwidths have the name of their kernel: ``copy``.

        The check is named if it is not the first one of the catalogue that has the metric.
        """
        check, metric = self.check, self.metric
        first = next((other for other, c in checks().items() if metric in c.metrics or metric in c.data), "")
        prefix = "" if first == check or check in metric else f"{check} "
        words = f"{prefix}{metric}".replace("_", " ")
        return words.removesuffix(" bandwidth") if check == "bandwidth" else words

    @cached_property
    def title(self) -> str:
        """The same as :attr:`name` in words, for readers: ``copy, NUMA 1 to bank 1``."""
        metric, case = self.metric, self.parameters
        parts = [self.title_of_metric]
        nodes, bank = case.get("pu_nodes"), case.get("bank", case.get("banks"))
        if nodes is not None:
            where = f"NUMA {_text(nodes)}"
            parts.append(where if bank is None else f"{where} to bank {_text(bank)}")
        elif bank is not None:
            parts.append(f"bank {_text(bank)}")
        if "size_bytes" in case:
            size = case["size_bytes"]
            parts.append(format_bytes(size) if isinstance(size, (int, float)) else _text(size))
        if "threads" in case:
            parts.append(f"{_text(case['threads'])} thread{'s' * (case['threads'] != 1)}")
        if "load" in case:
            parts.append(f"{_text(case['load'])} load")
        if "pages" in case:
            parts.append(f"{_text(case['pages'])} pages")
        unlabelled = catalogue().common.unlabelled
        parts += [_text(case[k]) for k in unlabelled if k in case]
        if _text(case.get("program", "probe")) not in _PROBE:
            parts.append(_text(case["program"]))
        in_words = {*unlabelled, *_IN_TITLES}
        in_words |= {"kernel"} if metric.startswith(_text(case.get("kernel", "")) or metric) else set()
        shown = self._shown - in_words
        parts += [f"{k.replace('_', ' ')} {_text(v)}" for k, v in case.items() if k in shown]
        return ", ".join([*parts, *(f"{k.replace('_', ' ')} {text}" for k, text in self.details)])

    @property
    def _shown(self) -> set[str]:
        named = checks()[self.check].named if self.check in checks() else ()
        return {*catalogue().common.named, *named, *self.distinctive}


def by_key(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return the items by their key, in the order in which keys occur first."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def in_order(case: Case) -> tuple[Any, ...]:
    """Return a key that sorts cases by system, in the order of the catalogue and by their parameters.

    The order of records in files is not kept: it differs between the hosts and stores that they come from.
    """
    of_check = checks().get(case.check)
    position = list(checks()).index(case.check) if of_check else len(checks())
    metrics = [*of_check.metrics, *of_check.data] if of_check else []
    metric = metrics.index(case.metric) if case.metric in metrics else len(metrics)
    parameters = [(name, _sortable(value)) for name, value in case.parameters.items()]
    names = {name: number for number, name in enumerate(of_check.parameters)} if of_check else {}
    parameters.sort(key=lambda item: (names.get(item[0], len(names)), item[0]))
    return (case.system, position, case.check, metric, case.metric, parameters, case.key)


def _sortable(value: Any) -> tuple[Any, ...]:
    """Return a key that sorts values of any kind: numbers, texts, lists, and others."""
    if isinstance(value, (int, float)):
        return (0, value)
    if isinstance(value, str):
        return (1, value)
    return (2, [_sortable(v) for v in value]) if isinstance(value, (list, tuple)) else (3, str(value))


def identifiers(check: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return those *parameters* of a record that identify its case among others of the check."""
    names = (*checks()[check].parameters, *catalogue().common.conditions) if check in checks() else parameters
    return {name: parameters[name] for name in names if name in parameters}


def without_axes(check: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return those *parameters* that tell the ways apart in which a check was measured."""
    axes = checks()[check].axes if check in checks() else ()
    return {k: v for k, v in identifiers(check, parameters).items() if k not in axes}


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


# ----------------------------------------------------------------------
# Names that differ


def with_distinct_names(cases: Sequence[Case]) -> list[Case]:
    """Return *cases* with names and titles that differ between all cases of one system.

    Each shows the fewest further parameters that tell it apart.
    """
    result = list(cases)
    for numbers in _alike(result, attrgetter("name")):
        names = _distinctive([{k: _text(v) for k, v in cases[n].parameters.items()} for n in numbers])
        for number in numbers:
            result[number] = replace(cases[number], distinctive=names)
    # Different values may have the same text, a title leaves some out, and no parameter states the unit.
    for text in (attrgetter("name"), attrgetter("title")):
        for numbers in _alike(result, text):
            facts = [_facts(cases[n]) for n in numbers]
            names = _distinctive(facts)
            for number, facts_of_case in zip(numbers, facts, strict=True):
                texts = tuple((name, facts_of_case[name]) for name in names if name in facts_of_case)
                result[number] = replace(result[number], details=(*result[number].details, *texts))
    return result


def _alike(cases: Sequence[Case], text: Callable[[Case], str]) -> list[list[int]]:
    """Return the numbers of the cases of one system that have the same text, group by group."""
    groups = by_key(range(len(cases)), lambda number: (cases[number].system, text(cases[number])))
    return [numbers for numbers in groups.values() if len(numbers) > 1]


def _facts(case: Case) -> dict[str, str]:
    """Return everything that identifies a case, as texts that are equal for equal values only."""
    stated = {"unit": case.unit, "better": case.better, "check": case.check, "metric": case.metric}
    values = {k: json.dumps(v, sort_keys=True, default=str) for k, v in case.parameters.items()}
    return {**{f"parameter {k}" if k in stated else k: text for k, text in values.items()}, **stated}


def _distinctive(alike: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """Return the names of the facts that tell cases apart which otherwise have the same name."""
    present = {name for facts in alike for name in facts}
    telling = catalogue().common.distinctive
    order = [*(name for name in telling if name in present), *sorted(present.difference(telling))]
    chosen: list[str] = []
    texts = [""] * len(alike)
    for name in order:
        longer = [f"{text} {name}={f[name]}" if name in f else text for text, f in zip(texts, alike, strict=True)]
        if len({*longer}) > len({*texts}):
            chosen.append(name)
            texts = longer
        if len({*texts}) == len(texts):
            break
    return tuple(chosen)
