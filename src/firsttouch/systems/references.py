# SPDX-License-Identifier: Apache-2.0
"""References: the values that a system is expected to reach, and the tables of such values."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations_with_replacement, product
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from firsttouch import units
from firsttouch.documents import FileTable, ParsedFile, Percentage, Text, Where, refuse_special
from firsttouch.errors import BadInput
from firsttouch.paths import SYSTEMS
from firsttouch.records.catalogue import checks
from firsttouch.systems.facts import RELATIONS, Facts

# ----------------------------------------------------------------------
# Tables of published figures: CSV files that references name, so that each figure is written once


class Row(Struct, frozen=True):
    """One row: its cells by column, and its file and line."""

    file: Path
    line: int
    cells: dict[str, str]

    def number(self, column: str) -> float | None:
        """Return the number in *column*, None if the cell is empty; raises BadInput for anything else."""
        text = self.cells[column]
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < 0:
            raise BadInput(f"column {column}: '{text}' is not a number from 0", file=self.file, line=self.line)
        return value


def find(name: str, system_file: Path) -> Path | None:
    """Return the table *name* from the folder of the system's file or of the built-in systems, or None."""
    return next((f for f in (system_file.parent / name, SYSTEMS / name) if f.is_file()), None)


def read(table: Path) -> tuple[list[str], list[Row]]:
    """Return the names in a table's first line, and its rows; raises BadInput with the line of a wrong one."""
    try:
        refuse_special(table)
        with table.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            lines = [(reader.line_num, cells) for cells in reader if cells]
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", file=table) from error
    except UnicodeDecodeError as error:
        raise BadInput(f"not text in UTF-8: {error.reason}", file=table) from error
    except csv.Error as error:
        raise BadInput(f"not CSV: {error}", file=table, line=reader.line_num) from error
    header = lines[0][1] if lines else []
    for number, cells in lines:
        if len(cells) != len(header):
            raise BadInput(f"not {len(header)} values, as the first line has", file=table, line=number)
    return header, [Row(table, number, dict(zip(header, cells, strict=True))) for number, cells in lines[1:]]


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
    #: A limit is at least this multiple of the standard deviation of a table's row.
    errors: Annotated[float, Meta(gt=0, le=1000)] | None = None


class _Entry(FileTable, frozen=True):
    check: Text | Annotated[tuple[Text, ...], Meta(min_length=1)]
    metric: Text | Annotated[tuple[Text, ...], Meta(min_length=1)]
    tolerance: _Tolerance
    source: Text


class DirectEntry(_Entry, frozen=True):
    """An entry of a file's references whose value is in the entry or among the facts."""

    parameters: Mapping[str, _Scalar | tuple[_Scalar, ...] | _Alternatives] = field(default_factory=dict)
    value: _Scalar | None = None
    fact: Literal["numa_nodes", "pus", "memory"] | None = None
    error: Percentage | None = None


class _Value(FileTable, frozen=True):
    column: Text
    unit: Text


class TableEntry(_Entry, frozen=True, kw_only=True):
    """An entry whose values are in a table: the column of each parameter, and names for the column's values."""

    table: Annotated[
        str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*\.csv\Z", description="the name of a .csv file")
    ]
    parameters: Annotated[Mapping[str, Text], Meta(min_length=1)]
    value: _Value
    where: Mapping[str, _Scalar] = field(default_factory=dict)
    error_pct: Text = ""
    names: Mapping[str, Mapping[str, _Scalar]] = field(default_factory=dict)


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
    entries = [(key, i, e) for key in ("references", "learnt") for i, e in enumerate(document.data.get(key, []))]
    for key, i, entry in entries:
        builder = _ReferenceBuilder(document, facts, (key, i))
        if "table" in entry:
            references.extend(builder.from_table(document.convert(TableEntry, *builder.where)))
        else:
            references.extend(builder.direct(document.convert(DirectEntry, *builder.where)))
    document.problems.extend(_ambiguous(references, facts))
    return tuple(references)


class _ReferenceBuilder:
    """Makes references of one entry of a file's list."""

    def __init__(self, document: ParsedFile, facts: Facts, where: Where) -> None:
        self.document, self.facts, self.where = document, facts, where

    def problem(self, reason: str, *where: str | int) -> None:
        self.document.problem(reason, *self.where, *where)

    def _targets(self, entry: _Entry, parameters: Iterable[str]) -> Iterator[tuple[str, str, str]]:
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
            for parameter in parameters:
                if parameter not in check.parameters:
                    names = ", ".join(check.parameters) or "none"
                    reason = f"unknown parameter '{parameter}' of {name}: known are {names}"
                    self.problem(reason, "parameters", parameter)

    def _items(self, entry: _Entry, key: str) -> list[tuple[str, Where]]:
        """Return the names under *key*, one or a list, each with its path."""
        value = getattr(entry, key)
        return [(v, (key, i)) for i, v in enumerate(value)] if isinstance(value, tuple) else [(value, (key,))]

    def direct(self, entry: DirectEntry) -> Iterator[Reference]:
        """Yield the references of an entry whose value is in the entry or among the facts."""
        targets = list(self._targets(entry, entry.parameters))
        cases = list(_alternatives(entry.parameters))
        for relation in {case.get("relation") for case in cases} - {None, *RELATIONS}:
            reason = f"unknown relation '{relation}': known are {', '.join(RELATIONS)}"
            self.problem(reason, "parameters", "relation")
        lower, upper, source = entry.tolerance.lower, entry.tolerance.upper, entry.source
        if entry.tolerance.errors:
            self.problem("a tolerance of errors needs a table", "tolerance")
        for check, metric, unit in targets:
            value = self._value(entry, unit)
            if value is not None:
                line = self.document.line(*self.where)
                for case in cases:
                    yield Reference(check, metric, case, value, lower, upper, unit, source, line, entry.error)

    def _value(self, entry: DirectEntry, unit: str) -> float | None:
        """Return the entry's value in *unit*; without one None, and note a problem."""
        if (entry.value is None) == (entry.fact is None):
            self.problem("a reference needs exactly one of value, fact and table")
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

    def from_table(self, entry: TableEntry) -> Iterator[Reference]:
        """Yield the references of the rows of the entry's table that its ``where`` selects."""
        table = find(entry.table, Path(self.document.file))
        if table is None:
            self.problem(f"there is no table {entry.table} next to the file or the built-in systems", "table")
            return
        if not (targets := list(self._targets(entry, entry.parameters))):
            return
        try:
            factor = convert(f"1 {entry.value.unit}", targets[0][2])
        except BadInput as error:
            self.problem(f"value.unit: {error}", "value", "unit")
            return
        header, rows = read(table)
        if not self._has_columns(entry, header):
            return
        selected = [
            row for row in rows if all(row.cells[column] == str(cell) for column, cell in entry.where.items())
        ]
        for row in selected:
            yield from self._of_row(entry, targets, row, factor)
        if not selected:
            self.problem(f"`where` selects no row of {entry.table}", "where")

    def _has_columns(self, entry: TableEntry, header: list[str]) -> bool:
        wanted: list[tuple[Where, str]] = [
            *((("where", column), column) for column in entry.where),
            *((("parameters", name), column) for name, column in entry.parameters.items()),
            (("value", "column"), entry.value.column),
        ]
        if entry.error_pct:
            wanted.append((("error_pct",), entry.error_pct))
        missing = [(where, column) for where, column in wanted if column not in header]
        for where, column in missing:
            self.problem(f"{entry.table} has no column '{column}': it has {', '.join(header)}", *where)
        if entry.tolerance.errors and not entry.error_pct:
            self.problem("a tolerance of errors needs error_pct, the column with the error", "tolerance")
        for name in entry.names:
            if name not in entry.parameters:
                self.problem(f"names: '{name}' is not among the entry's parameters", "names", name)
        return not missing

    def _of_row(
        self, entry: TableEntry, targets: Iterable[tuple[str, str, str]], row: Row, factor: float
    ) -> Iterator[Reference]:
        parameters = {}
        for name, column in entry.parameters.items():
            cell = row.cells[column]
            value_of_cell = int(cell) if cell.isdecimal() and len(cell) < 19 else cell
            parameters[name] = entry.names.get(name, {}).get(cell, value_of_cell)
        value = row.number(entry.value.column)
        if not value:
            reason = f"column {entry.value.column}: no value above 0"
            raise BadInput(reason, file=row.file, line=row.line)
        error = row.number(entry.error_pct) if entry.error_pct else None
        lower, upper, times = entry.tolerance.lower, entry.tolerance.upper, entry.tolerance.errors or 0.0
        least = times * (error or 0.0) / 100
        for check, metric, unit in targets:
            yield Reference(
                check=check,
                metric=metric,
                parameters=parameters,
                value=value * factor,
                lower=None if lower is None else max(min(lower, -least), -1.0),
                upper=None if upper is None else max(upper, least),
                unit=unit,
                source=f"{entry.source} ({row.file.name}, line {row.line})",
                line=self.document.line(*self.where),
                error=None if error is None else error / 100,
            )


def convert(text: str, unit: str) -> float:
    """Return the quantity *text* in *unit*; raises BadInput if it is of another dimension."""
    if unit == "1":
        raise BadInput("the metric is a plain count, which no table has")
    dimension, factor = units.UNITS[unit]
    return units.parse(text, dimension) / factor


def _number(value: _Scalar | None, unit: str) -> float:
    """Return the *value* of an entry in *unit*; raises BadInput if it has another one."""
    if (unit == "1") != isinstance(value, (int, float)):
        wanted = "a plain number" if unit == "1" else f'a number with a unit, such as "11 {unit}"'
        raise BadInput(f"'{value}' is not {wanted}")
    return convert(value, unit) if isinstance(value, str) else float(value or 0)


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
