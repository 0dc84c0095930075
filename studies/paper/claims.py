# SPDX-License-Identifier: Apache-2.0
"""Claims of the papers' prose, checked against their tables."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from firsttouch import documents
from firsttouch.benchmarks.cases import topology_of
from firsttouch.documents import Count, FileTable
from firsttouch.errors import BadInput, none_such
from firsttouch.genomics.aligners import aligner
from firsttouch.report.text import count, list_names
from firsttouch.scenarios.placement import parse_name, plan
from firsttouch.systems import definition
from paper import sheets as published
from paper.published_tables import Row, Sheets, groups, matches, papers_name
from paper.sheets import Taken, number, take

#: The claims: a TOML file per paper.
FOLDER = Path(__file__).with_name("claims")

# ----------------------------------------------------------------------
# Formulas of claims: arithmetic with names.

_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


def evaluate(formula: str, names: Mapping[str, float]) -> float:
    """Return the value of a *formula* of numbers, *names* and ``+ - * / // ( )``; raises BadInput for others."""
    try:
        return _arithmetic_value(ast.parse(formula, mode="eval").body, names)
    except (SyntaxError, ZeroDivisionError) as error:
        raise BadInput(f"formula '{formula}': {error}") from error


def _arithmetic_value(part: ast.expr, names: Mapping[str, float]) -> float:
    if isinstance(part, ast.Constant) and isinstance(part.value, (int, float)):
        return float(part.value)
    if isinstance(part, ast.Name):
        if part.id not in names:
            raise BadInput(f"formula: there is no '{part.id}': there are {', '.join(names)}")
        return names[part.id]
    if isinstance(part, ast.BinOp) and type(part.op) in _OPERATORS:
        return _OPERATORS[type(part.op)](_arithmetic_value(part.left, names), _arithmetic_value(part.right, names))
    raise BadInput(f"formula: '{ast.unparse(part)}' is not arithmetic")


# ----------------------------------------------------------------------
# The scenarios that fit the papers' machines, planned from their facts and the published index sizes.

_GB = 1e9


class Feasible(Struct, frozen=True):
    """A scenario of the whole host: name, instances, threads of each, and why it is infeasible (or "")."""

    name: str
    instances: int
    threads: int
    reason: str


def whole_host(index: Row, system: str) -> list[Feasible]:
    """Return the scenarios of *system* that use every PU, fewest instances first.

    They are planned for the aligner file and the size of the published *index*. Raises BadInput for an unknown
    aligner or system.
    """
    host = topology_of(definition.load(system).facts)
    planned = plan(host, aligner(index["file"]).need(round(index["index_gb"] * _GB)))
    reasons = dict.fromkeys((s.name for s in planned.scenarios), "") | dict(planned.infeasible)
    fits = []
    for scenario, reason in reasons.items():
        name = parse_name(scenario)
        if name and name.instances * (name.threads or 0) == len(host.pus):
            label = papers_name(name.instances, name.policy.name)
            fits.append(Feasible(label, name.instances, len(host.pus) // name.instances, reason))
    return sorted(fits, key=lambda f: f.instances)


def most_run(runs: Sequence[Row]) -> int:
    """Return the most instances of some published runs."""
    return max(int(row["instances"]) for row in runs)


def index_of(name: str, indexes: Sequence[Row]) -> Row:
    """Return the published index of the aligner *name*; raises BadInput if there is none."""
    for row in indexes:
        if row["aligner"] == name:
            return row
    raise BadInput(f"no index size of '{name}' is published")


# ----------------------------------------------------------------------
# Claims as data: one TOML file per paper in claims/. A claim names its place in the paper, paraphrases it, and
# states it as a comparison of cells of the published tables. Whether it holds is computed.

#: The accepted relative difference between a computed number and the one in the prose, which is rounded.
TOLERANCE = 0.05

_Cell = str | int | float
#: Rows by column: those with a value, with one of several, or with any but a value.
Select = Mapping[str, _Cell | list[_Cell] | dict[Literal["not"], _Cell]]
#: Rows as in Select, how their number is taken ("take"), and its "column" and "sheet" if not those of the claim.
Pick = Select
_Positive = Annotated[float, Meta(gt=0)]
_Amount = Literal["all", "nearly all", "most", "some", "not all", "none"]
_Expect = _Amount | int
_Relation = Literal["<", ">"]
#: Whether the tables agree, what they say, the deciding cells.
_Result = tuple[bool, str, Sequence[str]]


class Statement(FileTable, frozen=True, kw_only=True):
    """What a claim of any kind states. There is a class for each *kind*."""

    id: Annotated[str, Meta(pattern=r"^[a-z0-9-]+\Z")]
    where: str
    says: str
    kind: str
    note: str = ""

    def result(self, sheets: Sheets) -> _Result:
        """Return whether the tables agree; raises BadInput if no cell decides."""
        raise NotImplementedError

    def sheets(self) -> Iterator[tuple[str, ...]]:
        """Yield the sheets that the claim names, each after its place in the claim."""
        yield from ((key, name) for key in ("sheet", "other") if (name := getattr(self, key, "")))


class _OfRows(Statement, frozen=True, kw_only=True):
    """A claim about the rows of a sheet, and one of their columns: that of its values unless it is stated."""

    sheet: str
    select: Select = field(default_factory=dict)
    except_: Select = field(default_factory=dict)
    column: str = ""

    def rows(self, sheets: Sheets) -> list[Row]:
        rows = [r for r in sheets[self.sheet] if matches(r, self.select)]
        return [r for r in rows if not self.except_ or not matches(r, self.except_)]

    def value_column(self, sheets: Sheets) -> str:
        return self.column or sheets.specs[self.sheet].value


class _Counted(_OfRows, frozen=True, kw_only=True):
    """A claim that holds in a number of cases, one for each combination of the columns *each*."""

    each: tuple[str, ...]
    expect: _Expect = "all"

    def cases(self, sheets: Sheets) -> Iterator[tuple[bool, str]]:
        """Yield whether each case holds, and its cells."""
        raise NotImplementedError

    def result(self, sheets: Sheets) -> _Result:
        return _counted(self.expect, list(self.cases(sheets)))


# ----------------------------------------------------------------------
# Claims that hold in a number of cases.

_HOLDS = {"<": operator.lt, ">": operator.gt}


def _counted(expect: str | int, cases: Sequence[tuple[bool, str]]) -> _Result:
    """Return whether the expected number of *cases* hold, and the deciding cells."""
    if not cases:
        raise BadInput("it matches no cells")
    holding, failing = ([text for holds, text in cases if holds is wanted] for wanted in (True, False))
    true, total = len(holding), len(cases)
    met = {
        "all": true == total,
        "nearly all": 6 * true >= 5 * total,
        "most": 2 * true > total,
        "some": true > 0,
        "not all": true < total,
        "none": true == 0,
    }
    agrees = met[expect] if isinstance(expect, str) else true == expect
    words = "not in all" if expect == "not all" else f"in {expect}"
    text = f"true in {true} of {count(total, 'case')} (paper: {words})"
    # "None" and "some" depend on the cases that hold, the others on those that do not.
    first, second = (holding, failing) if expect in {"none", "some"} else (failing, holding)
    return agrees, text, first or second


def _shown(left: Taken, right: Taken | None = None) -> str:
    name = left.rows[0]["label"] if len(left.rows) == 1 else count(len(left.rows), "cell")
    return f"{name}: {_exact(left.value)}" + (f", against {_shown(right)}" if right else "")


def _exact(value: float) -> str:
    """Return a cell with all the digits that the papers print."""
    return f"{round(value, 3):.10g}"


def _computed(value: float) -> str:
    return f"{value:.4g}"


def _near(value: float, claimed: float, tolerance: float) -> bool:
    return abs(value - claimed) <= tolerance * abs(claimed) + 1e-9


def _pick(pick: Mapping[str, Any], rows: Sequence[Row], column: str) -> Taken | None:
    wanted = {k: v for k, v in pick.items() if k not in {"take", "column", "sheet"}}
    return take([r for r in rows if matches(r, wanted)], pick.get("column", column), pick.get("take", "only"))


def _sides(claim: _Compare | _Value, sheets: Sheets) -> Iterator[tuple[Taken, Taken | None]]:
    """Yield both sides of each case that has them; the right one is None if the claim names none."""
    column = claim.value_column(sheets)
    for rows in groups(claim.rows(sheets), claim.each).values():
        left = _pick(claim.left, rows, column)
        right = None if claim.right is None else _pick(claim.right, rows, column)
        if left is not None and (right is not None or claim.right is None):
            yield left, right


class _Compare(_Counted, frozen=True, kw_only=True):
    """The left number of a case is below or above the right one times a factor, or a bound."""

    left: Pick
    right: Pick | None = None
    relation: _Relation
    factor: _Positive = 1.0
    bound: float = math.nan

    def __post_init__(self) -> None:
        if self.right is None and math.isnan(self.bound):
            raise BadInput("needs bound or right")

    def cases(self, sheets: Sheets) -> Iterator[tuple[bool, str]]:
        for left, right in _sides(self, sheets):
            bound = self.factor * right.value if right else self.bound
            yield _HOLDS[self.relation](left.value, bound), _shown(left, right)


class _Falls(_Counted, frozen=True, kw_only=True):
    """The numbers of a case fall along a column."""

    along: str

    def cases(self, sheets: Sheets) -> Iterator[tuple[bool, str]]:
        column = self.value_column(sheets)
        for rows in groups(self.rows(sheets), self.each).values():
            ordered = sorted(rows, key=lambda row: number(row, self.along))
            points = [(number(row, column), row["label"]) for row in ordered]
            for (before, first), (after, second) in pairwise(points):
                if after >= before:
                    yield False, f"{first}: {_exact(before)}, then {second}: {_exact(after)}"
                    break
            else:
                yield True, f"{points[0][1]}: {_exact(points[0][0])}, at last {_exact(points[-1][0])}"


class _Rank(_Counted, frozen=True, kw_only=True):
    """The row *who* of a case has one of some places, 1 for the best. Equal values share a place."""

    who: Select
    places: tuple[Count, ...]
    best: Literal["highest", "lowest"] = "highest"

    def cases(self, sheets: Sheets) -> Iterator[tuple[bool, str]]:
        column = self.value_column(sheets)
        sign = 1 if self.best == "lowest" else -1
        for rows in groups(self.rows(sheets), self.each).values():
            order = sorted(rows, key=lambda r: sign * number(r, column))
            subject, first = next((r for r in order if matches(r, self.who)), None), order[0]
            if subject is None:
                raise BadInput(f"no row like {rows[0]['label']} matches 'who'")
            value = number(subject, column)
            place = 1 + sum(sign * number(r, column) < sign * value for r in order)
            text = f"{subject['label']}: {_exact(value)}, place {place} of {len(order)}"
            if place > 1:
                text += f" behind {first['label']}: {_exact(number(first, column))}"
            yield place in self.places, text


class _EachRow(_Counted, frozen=True, kw_only=True):
    """A column of each row is what a formula of the other columns gives."""

    each: tuple[str, ...] = ()
    formula: str
    column: str
    tolerance: float = TOLERANCE

    def cases(self, sheets: Sheets) -> Iterator[tuple[bool, str]]:
        for row in self.rows(sheets):
            value = evaluate(self.formula, {c: v for c, v in row.items() if not isinstance(v, str)})
            cell = number(row, self.column)
            near = _near(value, cell, self.tolerance)
            yield near, f"{row['label']}: {_exact(cell)}, computed {_computed(value)}"


class _Same(_Counted, frozen=True, kw_only=True):
    """The rows have the same numbers in another sheet."""

    other: str

    def cases(self, sheets: Sheets) -> Iterator[tuple[bool, str]]:
        column = self.value_column(sheets)
        others = groups(sheets[self.other], self.each)
        for key, (row,) in groups(self.rows(sheets), self.each).items():
            if key not in others:
                raise BadInput(f"{row['label']} is not in {self.other}")
            here, there = number(row, column), number(others[key][-1], column)
            yield here == there, f"{row['label']}: {_exact(here)}, there {_exact(there)}"


# ----------------------------------------------------------------------
# Claims of a number.

#: Form of a number -> how it follows from the left and the right side of a case.
_FORMS: dict[str, Callable[[float, float], float]] = {
    "left": lambda left, _: left,
    "ratio": lambda left, right: right / left,
    "percent": lambda left, right: 100 * (right / left - 1),
    "difference": lambda left, right: right - left,
}


class _Value(_OfRows, frozen=True, kw_only=True):
    """The least or greatest number of all cases is a value, or all are between two values."""

    each: tuple[str, ...]
    left: Pick
    right: Pick | None = None
    take: Literal["min", "max", "range"]
    form: Literal["left", "ratio", "percent", "difference"] = "ratio"
    per: _Positive = 1.0
    unit: str | None = None
    value: float = math.nan
    between: tuple[float, float] | None = None
    relation: _Relation | None = None
    tolerance: float = TOLERANCE

    def __post_init__(self) -> None:
        if self.take == "range" and not self.between:
            raise BadInput("needs between")
        if self.take != "range" and math.isnan(self.value):
            raise BadInput("needs value")

    def result(self, sheets: Sheets) -> _Result:
        form = "left" if self.right is None else self.form
        values = [
            (_FORMS[form](left.value, (right or left).value) / self.per, _shown(left, right))
            for left, right in _sides(self, sheets)
        ]
        if not values:
            raise BadInput("it matches no cells")
        low, high = (pick(values, key=lambda item: item[0]) for pick in (min, max))
        unit = self.unit if self.unit is not None else "x" * (form == "ratio")
        if self.take == "range":
            least, most = self.between or (math.nan, math.nan)
            agrees = low[0] >= least * (1 - self.tolerance) and high[0] <= most * (1 + self.tolerance)
            text = f"{_computed(low[0])} to {_computed(high[0])}{unit} (paper: {least:g} to {most:g}{unit})"
            return agrees, text, [low[1], high[1]]
        value, cells = high if self.take == "max" else low
        return *_against(value, self, unit), [cells]


class _Formula(Statement, frozen=True, kw_only=True):
    """What a formula gives of some cells is a value."""

    formula: str
    cells: Mapping[str, Pick]
    value: float
    sheet: str = ""
    relation: _Relation | None = None
    tolerance: float = TOLERANCE
    unit: str = ""

    def sheets(self) -> Iterator[tuple[str, ...]]:
        yield from super().sheets()
        yield from (("cells", cell, "sheet", str(p["sheet"])) for cell, p in self.cells.items() if "sheet" in p)

    def result(self, sheets: Sheets) -> _Result:
        taken: dict[str, Taken] = {}
        for name, pick in self.cells.items():
            sheet = str(pick.get("sheet", self.sheet))
            cell = _pick(pick, sheets[sheet], sheets.specs[sheet].value) if sheet in sheets else None
            if cell is None:
                raise BadInput(f"no cell matches '{name}'")
            taken[name] = cell
        value = evaluate(self.formula, {name: cell.value for name, cell in taken.items()})
        return *_against(value, self, self.unit), [_shown(cell) for cell in taken.values()]


def _against(value: float, claim: _Value | _Formula, unit: str) -> tuple[bool, str]:
    """Return whether a computed number agrees with the claimed one (or is above or below it), and both as text."""
    claimed, relation = claim.value, claim.relation
    agrees = _HOLDS[relation](value, claimed) if relation else _near(value, claimed, claim.tolerance)
    word = {"<": "less than ", ">": "more than ", None: ""}[relation]
    return agrees, f"{_computed(value)}{unit} (paper: {word}{claimed:g}{unit})"


class _Plan(Statement, frozen=True, kw_only=True):
    """Each aligner can be run in as many instances, of those that the papers ran."""

    sheet: str
    other: str
    system: str
    aligners: tuple[str, ...]
    instances: Count

    def result(self, sheets: Sheets) -> _Result:
        limits, cells, agrees = [], [], True
        for name in self.aligners:
            row = index_of(name, sheets[self.other])
            fits = (f.instances for f in whole_host(row, self.system) if not f.reason)
            most = max(instances for instances in fits if instances <= most_run(sheets[self.sheet]))
            limits.append(f"{name}: up to {count(most, 'instance')} by memory")
            cells.append(f"index in {row['label']}: {_exact(row['index_gb'])} GB")
            agrees = agrees and most == self.instances
        return agrees, list_names(limits), cells


# ----------------------------------------------------------------------
# The files of claims

_KINDS: dict[str, type[Statement]] = {
    "compare": _Compare,
    "value": _Value,
    "falls": _Falls,
    "rank": _Rank,
    "formula": _Formula,
    "rows": _EachRow,
    "same": _Same,
    "plan": _Plan,
}


class _File(FileTable, frozen=True):
    paper: str
    claim: Annotated[tuple[dict[str, Any], ...], Meta(min_length=1)]


class Claim(Struct, frozen=True):
    """A claim: entry *number* (from 0) of a paper's *document*, and what it states there."""

    document: documents.ParsedFile
    number: int
    body: Statement

    @property
    def id(self) -> str:
        """The name of the claim."""
        return self.body.id

    @property
    def paper(self) -> str:
        """The paper that makes the claim."""
        return str(self.document.data["paper"])

    def error(self, reason: str) -> BadInput:
        """Return the error that the claim is wrong because of *reason*, with its file and line."""
        return self.document.error(reason, "claim", self.number)


def load() -> list[Claim]:
    """Return the claims of all papers, in the order of their files and places."""
    claims = [
        claim for f in sorted(FOLDER.glob("*.toml")) for claim in parse(f.read_text(encoding="utf-8"), f.name)
    ]
    seen: dict[str, Claim] = {}
    for claim in claims:
        if claim.id in seen:
            raise claim.error(f"a second claim '{claim.id}': use another id")
        seen[claim.id] = claim
    return claims


def parse(text: str, file: str) -> list[Claim]:
    """Return the claims of a TOML text; raises BadInput with *file*, line and reason."""
    document = documents.parse_toml(text, file)
    stated = document.convert(_File)
    there = published.specs(published.published())
    claims = []
    for position, entry in enumerate(stated.claim):
        if (kind := entry.get("kind")) not in _KINDS:
            raise document.error(none_such("kind", str(kind), _KINDS), "claim", position, "kind")
        claim = Claim(document, position, document.convert(_KINDS[kind], "claim", position))
        for *place, name in claim.body.sheets():
            if name not in there:
                raise document.error(none_such("sheet", name, there), "claim", position, *place)
        claims.append(claim)
    return claims


# ----------------------------------------------------------------------
# Outcomes: each claim computed from its cells.


class Outcome(Struct, frozen=True):
    """The outcome of a claim: whether the tables agree, what they say (*found*), and the deciding *cells*."""

    claim: Claim
    agrees: bool
    found: str
    cells: Sequence[str]


def judge(claims: Sequence[Claim], sheets: Sheets) -> list[Outcome]:
    """Return the outcome of each claim; raises BadInput with the line of a claim without cells."""
    return [_outcome(claim, sheets) for claim in claims]


def _outcome(claim: Claim, sheets: Sheets) -> Outcome:
    try:
        return Outcome(claim, *claim.body.result(sheets))
    except BadInput as error:
        raise claim.error(f"claim '{claim.id}': {error}") from error
