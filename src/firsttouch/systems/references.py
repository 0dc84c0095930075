# SPDX-License-Identifier: Apache-2.0
"""References: the values that a system is expected to reach."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations_with_replacement, product
from operator import itemgetter
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from firsttouch import units
from firsttouch.documents import FileTable, ParsedFile, Percentage, Text, Where
from firsttouch.errors import BadInput
from firsttouch.records.catalogue import checks
from firsttouch.systems.facts import RELATIONS, Facts

# ----------------------------------------------------------------------
# References by check, metric and parameters


class Reference(Struct, frozen=True):
    """The expected value of one metric of a check for all records that have these *parameters*.

    *value* is in *unit*, the record's. *lower* (<= 0) and *upper* (>= 0) are fractions of it, as in ReFrame; None:
    no limit on that side. *line* is the line of the system's file, 0 for a reference learnt from the fleet.
    *error* is the relative standard deviation of one measurement, None if it is unknown.
    """

    check: str
    metric: str
    parameters: Mapping[str, Any]
    value: float
    lower: float | None
    upper: float | None
    unit: str
    source: str
    line: int
    error: float | None = None

    @property
    def minimum(self) -> float | None:
        """The smallest value within the tolerance, None without a lower limit."""
        return None if self.lower is None else self.value * (1 + self.lower)

    @property
    def maximum(self) -> float | None:
        """The largest value within the tolerance, None without an upper limit."""
        return None if self.upper is None else self.value * (1 + self.upper)

    @property
    def ends(self) -> tuple[float, float]:
        """The smallest and the largest value within the tolerance; without a limit, the value itself."""
        ends = [self.value, *(end for end in (self.minimum, self.maximum) if end is not None)]
        return min(ends), max(ends)

    def as_tuple(self) -> tuple[float, float | None, float | None, str]:
        """Return the reference in ReFrame's form: (value, lower, upper, unit)."""
        return (self.value, self.lower, self.upper, self.unit)


def normalise(parameters: Mapping[str, Any], facts: Facts) -> dict[str, Any]:
    """Return *parameters* with tuples instead of lists, and with the relation of PUs and bank.

    PUs of several NUMA nodes have no relation, because some are nearer to a bank than others.
    """
    given = _tuples(parameters)
    nodes, bank = given.get("pu_nodes"), given.get("bank")
    if "relation" not in given and isinstance(nodes, tuple) and len(nodes) == 1 and isinstance(bank, int):
        relation = facts.relation(nodes[0], bank)
        if relation is not None:
            given["relation"] = relation
    return given


_Scalar = str | int | float


class _Drop(float):
    """ReFrame's lower tolerance, which a file states in percent."""

    @staticmethod
    def parse(text: str) -> float:
        if not -1 <= (share := units.parse_percent(text)) <= 0:
            raise BadInput(f"'{text}' is not between -100 % and 0 %")
        return share


class _Alternatives(FileTable, frozen=True):
    any_: Annotated[tuple[_Scalar, ...], Meta(min_length=1)]


class _Tolerance(FileTable, frozen=True):
    lower: _Drop | None = None
    upper: Percentage | None = None


class ReferenceEntry(FileTable, frozen=True):
    """An entry of a file's references; its value is in the entry or among the facts."""

    check: Text | Annotated[tuple[Text, ...], Meta(min_length=1)]
    metric: Text | Annotated[tuple[Text, ...], Meta(min_length=1)]
    tolerance: _Tolerance
    source: Text
    parameters: Mapping[str, _Scalar | tuple[_Scalar, ...] | _Alternatives] = field(default_factory=dict)
    value: _Scalar | None = None
    fact: Literal["numa_nodes", "pus", "memory"] | None = None
    error: Percentage | None = None


def _tuples(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, (list, tuple)) else v for k, v in parameters.items()}


def _alternatives(parameters: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield *parameters* with each combination of the alternatives that a file gives as ``{any: [...]}``."""
    choices = [v.any_ if isinstance(v, _Alternatives) else [v] for v in parameters.values()]
    for values in product(*choices):
        yield _tuples(dict(zip(parameters, values, strict=True)))


#: The source of references that are facts of a system.
FACTS = "facts"
#: How far a host's value may be below a fact, because kernel and firmware reserve some memory.
_BELOW = {"numa_nodes": 0.0, "pus": 0.0, "memory": -0.05}


def fact_reference(check: str, metric: str, facts: Facts) -> Reference | None:
    """Return the reference that follows from the facts of a system, None if the metric is not a fact."""
    if check != "topology" or metric not in _BELOW:
        return None
    value, unit = _value_of(metric, facts)
    return Reference(check, metric, {}, value, _BELOW[metric], None, unit, FACTS, 0) if value > 0 else None


def _value_of(fact: str, facts: Facts) -> tuple[float, str]:
    """Return the value and the unit of a fact."""
    values = {
        "numa_nodes": (float(facts.numa_nodes), "1"),
        "pus": (float(facts.pus), "1"),
        "memory": (facts.memory_bytes / 2**30, "GiB"),
    }
    return values[fact]


#: A reference with its parameters, normalised.
_Given = tuple[dict[str, Any], Reference]


def build(document: ParsedFile, facts: Facts) -> tuple[Reference, ...]:
    """Return all references of a document that fits the schema, and note contradictions as its problems."""
    references: list[Reference] = []
    entries = [(key, i) for key in ("references", "learnt") for i in range(len(document.data.get(key, [])))]
    for where in entries:
        entry = document.convert(ReferenceEntry, *where)
        references.extend(_ReferenceBuilder(document, facts, where).references(entry))
    document.problems.extend(_ambiguous(references, facts))
    return tuple(references)


class _ReferenceBuilder:
    """Makes references of one entry of a file's list."""

    def __init__(self, document: ParsedFile, facts: Facts, where: Where) -> None:
        self.document, self.facts, self.where = document, facts, where

    def problem(self, reason: str, *where: str | int) -> None:
        self.document.problem(reason, *self.where, *where)

    def _targets(self, entry: ReferenceEntry) -> Iterator[tuple[str, str, str]]:
        """Yield (check, metric, unit) of the entry's metrics."""
        for name, at_check in self._items(entry, "check"):
            check = checks().get(name)
            if check is None:
                self.problem(f"unknown check '{name}': known are {', '.join(checks())}", *at_check)
                continue
            for metric, at_metric in self._items(entry, "metric"):
                if metric not in check.metrics:
                    metrics = ", ".join(check.metrics)
                    self.problem(f"unknown metric '{metric}' of {name}: known are {metrics}", *at_metric)
                else:
                    yield name, metric, check.metrics[metric].unit
            for parameter in entry.parameters:
                if parameter not in check.parameters:
                    names = ", ".join(check.parameters) or "none"
                    reason = f"unknown parameter '{parameter}' of {name}: known are {names}"
                    self.problem(reason, "parameters", parameter)

    def _items(self, entry: ReferenceEntry, key: str) -> list[tuple[str, Where]]:
        """Return the names under *key*, one or a list, each with its path."""
        value = getattr(entry, key)
        return [(v, (key, i)) for i, v in enumerate(value)] if isinstance(value, tuple) else [(value, (key,))]

    def references(self, entry: ReferenceEntry) -> Iterator[Reference]:
        """Yield the references of an entry: one for each metric and case."""
        targets = list(self._targets(entry))
        cases = list(_alternatives(entry.parameters))
        for relation in {case.get("relation") for case in cases} - {None, *RELATIONS}:
            reason = f"unknown relation '{relation}': known are {', '.join(RELATIONS)}"
            self.problem(reason, "parameters", "relation")
        lower, upper, source = entry.tolerance.lower, entry.tolerance.upper, entry.source
        for check, metric, unit in targets:
            value = self._value(entry, unit)
            if value is not None:
                line = self.document.line(*self.where)
                for case in cases:
                    yield Reference(check, metric, case, value, lower, upper, unit, source, line, entry.error)

    def _value(self, entry: ReferenceEntry, unit: str) -> float | None:
        """Return the entry's value in *unit*; without one None, and note a problem."""
        if (entry.value is None) == (entry.fact is None):
            self.problem("a reference needs either a value or a fact")
            return None
        key = "value" if entry.value is not None else "fact"
        try:
            value = self._fact(entry.fact, unit) if entry.fact else _number(entry.value, unit)
            if value <= 0:
                raise BadInput(f"'{getattr(entry, key)}' is not above 0")
        except (BadInput, OverflowError) as error:
            self.problem(f"{key}: {error}", key)
            return None
        return value

    def _fact(self, name: str, unit: str) -> float:
        value, fact_unit = _value_of(name, self.facts)
        if fact_unit != unit:
            raise BadInput(f"'{name}' is not in the metric's unit, {unit}")
        return value


def _number(value: _Scalar | None, unit: str) -> float:
    """Return the *value* of an entry in *unit*; raises BadInput if it has another one."""
    if (unit == "1") != isinstance(value, (int, float)):
        wanted = "a plain number" if unit == "1" else f'a number with a unit, such as "11 {unit}"'
        raise BadInput(f"'{value}' is not {wanted}")
    if not isinstance(value, str):
        return float(value or 0)
    dimension, factor = units.UNITS[unit]
    return units.parse(value, dimension) / factor


def _ambiguous(references: Iterable[Reference], facts: Facts) -> Iterator[tuple[int, str]]:
    """Yield line and reason if two references match one record with the same number of parameters."""
    by_target: dict[tuple[str, str, int], dict[tuple[frozenset[str], frozenset[str]], list[_Given]]] = {}
    for reference in references:
        target = (reference.check, reference.metric, len(reference.parameters))
        given = normalise(reference.parameters, facts)
        names = frozenset(reference.parameters), frozenset(given)
        by_target.setdefault(target, {}).setdefault(names, []).append((given, reference))
    for by_names in by_target.values():
        for (names, some), (other_names, others) in combinations_with_replacement(by_names.items(), 2):
            if some is not others and names[0] == other_names[0]:
                continue
            values = itemgetter(*shared) if (shared := names[1] & other_names[1]) else lambda _: None
            first: dict[Any, Reference] = {}
            for given, reference in some:
                first.setdefault(values(given), reference)
            for given, reference in others:
                if (other := first.get(values(given), reference)) is not reference:
                    earlier, later = sorted((other, reference), key=lambda r: r.line)
                    yield (
                        later.line,
                        f"matches the same records of {later.check}/{later.metric} as the reference on line "
                        f"{earlier.line}, equally specifically: give one of them another parameter",
                    )


# ----------------------------------------------------------------------
# Learnt references in a system's file

#: The lines around learnt references, which mark them for later runs.
_BEGIN = "# Learnt by `firsttouch baseline`, which rewrites these lines: do not change them.\n"
_END = "# End of what was learnt.\n"


def without_learnt(text: str) -> str:
    """Return the text of a system's file without the references that were learnt before."""
    head, _, rest = text.partition(_BEGIN)
    _, end, tail = rest.partition(_END)
    return head + tail if end else text


def with_learnt(text: str, learnt: Iterable[Reference]) -> str:
    """Return the text of a system's file with *learnt* references instead of earlier ones."""
    lines = "".join(f"- {json.dumps(_fields(reference))}\n" for reference in learnt)
    return f"{without_learnt(text).rstrip()}\n{_BEGIN}learnt:\n{lines}{_END}"


def _fields(reference: Reference) -> dict[str, Any]:
    value, sides = f"{reference.value:.6g}", {"lower": reference.lower, "upper": reference.upper}
    fields = {
        "check": reference.check,
        "metric": reference.metric,
        "parameters": reference.parameters,
        "value": float(value) if reference.unit == "1" else f"{value} {reference.unit}",
        "tolerance": {name: f"{100 * side:.3f} %" for name, side in sides.items() if side is not None},
        "error": f"{100 * (reference.error or 0):.4f} %",
        "source": reference.source,
    }
    return {name: value for name, value in fields.items() if value}
