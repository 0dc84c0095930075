# SPDX-License-Identifier: Apache-2.0
"""Claims of the papers' prose, checked against their tables."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from firsttouch import documents
from firsttouch.benchmarks.cases import topology_of
from firsttouch.errors import BadInput, none_such
from firsttouch.genomics.aligners import aligner
from firsttouch.report.published_tables import Row, Sheets, groups, matches
from firsttouch.report.text import count, listed
from firsttouch.scenarios.placement import plan
from firsttouch.systems import definition
from paper import sheets as published
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


@dataclass(frozen=True)
class Feasible:
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
        instances, _, rest = scenario.partition("Inst_")
        if "_" not in rest:  # a suffix means fewer threads
            fits.append(Feasible(scenario, int(instances), len(host.pus) // int(instances), reason))
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

_SELECT = {
    "type": "object",
    "additionalProperties": {
        "anyOf": [
            {"type": ["string", "number"]},
            {"type": "array", "items": {"type": ["string", "number"]}, "minItems": 1},
            {"type": "object", "properties": {"not": {}}, "required": ["not"], "additionalProperties": False},
        ]
    },
}
_PICK = {
    **_SELECT,
    "properties": {
        "take": {"enum": ["only", "min", "max", "mean", "median"]},
        "sheet": {"type": "string"},
        "column": {"type": "string"},
    },
}
_EXPECT = {
    "anyOf": [
        {"enum": ["all", "nearly all", "most", "some", "not all", "none"]},
        {"type": "integer", "minimum": 0},
    ]
}
_COLUMNS = {"type": "array", "items": {"type": "string"}}
#: Kind -> its required keys, or one of several, beside those of all claims.
_KINDS: dict[str, tuple[str, ...]] = {
    "compare": ("sheet", "each", "left", "relation", "bound or right", "expect"),
    "value": ("sheet", "each", "left", "take", "between or value"),
    "falls": ("sheet", "each", "along", "expect"),
    "rank": ("sheet", "each", "who", "places", "expect"),
    "formula": ("formula", "cells", "value"),
    "rows": ("sheet", "formula", "column"),
    "same": ("sheet", "other", "each"),
    "plan": ("sheet", "other", "system", "aligners", "instances"),
}
_CLAIM = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^[a-z0-9-]+$"},
        "where": {"type": "string"},
        "says": {"type": "string"},
        "note": {"type": "string"},
        "kind": {"enum": list(_KINDS)},
        "sheet": {"type": "string"},
        "other": {"type": "string"},
        "select": _SELECT,
        "except": _SELECT,
        "each": _COLUMNS,
        "left": _PICK,
        "right": _PICK,
        "who": _SELECT,
        "places": {"type": "array", "items": {"type": "integer", "minimum": 1}},
        "best": {"enum": ["highest", "lowest"]},
        "relation": {"enum": ["<", ">"]},
        "factor": {"type": "number", "exclusiveMinimum": 0},
        "bound": {"type": "number"},
        "expect": _EXPECT,
        "along": {"type": "string"},
        "take": {"enum": ["min", "max", "range"]},
        "form": {"enum": ["left", "ratio", "percent", "difference"]},
        "unit": {"type": "string"},
        "per": {"type": "number", "exclusiveMinimum": 0},
        "value": {"type": "number"},
        "between": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
        "tolerance": {"type": "number", "minimum": 0},
        "formula": {"type": "string"},
        "cells": {"type": "object", "additionalProperties": _PICK},
        "column": {"type": "string"},
        "system": {"type": "string"},
        "aligners": {"type": "array", "items": {"type": "string"}},
        "instances": {"type": "integer", "minimum": 1},
    },
    "required": ["id", "where", "says", "kind"],
    "additionalProperties": False,
}
_SCHEMA = {
    "type": "object",
    "properties": {"paper": {"type": "string"}, "claim": {"type": "array", "items": _CLAIM, "minItems": 1}},
    "required": ["paper", "claim"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Claim:
    """A claim: entry *number* (from 0) of a paper's *document*, as it stands there (*body*)."""

    document: documents.Document
    number: int
    body: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The name of the claim."""
        return str(self.body["id"])

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
    document.check(_SCHEMA)
    claims = [Claim(document, position, entry) for position, entry in enumerate(document.data["claim"])]
    there = published.specs(published.published())
    for claim in claims:
        for *place, name in _sheets_of(claim.body):
            if name not in there:
                raise document.error(none_such("sheet", name, there), "claim", claim.number, *place)
        kind = claim.body["kind"]
        if lacking := [keys for keys in _KINDS[kind] if claim.body.keys().isdisjoint(keys.split(" or "))]:
            raise claim.error(f"claim '{claim.id}' of kind {kind} needs {', '.join(lacking)}")
    return claims


def _sheets_of(body: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the sheets that a claim names, each after its place in the claim."""
    yield from ((key, body[key]) for key in ("sheet", "other") if key in body)
    cells: Mapping[str, Any] = body.get("cells", {})
    yield from (("cells", cell, "sheet", pick["sheet"]) for cell, pick in cells.items() if "sheet" in pick)


# ----------------------------------------------------------------------
# Outcomes: each claim computed from its cells.


@dataclass(frozen=True)
class Outcome:
    """The outcome of a claim: whether the tables agree, what they say (*found*), and the deciding *cells*."""

    claim: Claim
    agrees: bool
    found: str
    cells: Sequence[str]


_Body = Mapping[str, Any]
#: Whether the tables agree, what they say, the deciding cells.
_Result = tuple[bool, str, Sequence[str]]


def judge(claims: Sequence[Claim], sheets: Sheets) -> list[Outcome]:
    """Return the outcome of each claim; raises BadInput with the line of a claim without cells."""
    return [_outcome(claim, sheets) for claim in claims]


def _outcome(claim: Claim, sheets: Sheets) -> Outcome:
    body, kind = claim.body, claim.body["kind"]
    try:
        if kind in _COUNTED:
            return Outcome(claim, *_counted(body.get("expect", "all"), list(_COUNTED[kind](body, sheets))))
        return Outcome(claim, *_COMPUTED[kind](body, sheets))
    except BadInput as error:
        raise claim.error(f"claim '{claim.id}': {error}") from error


def _rows(body: _Body, sheets: Sheets) -> list[Row]:
    rows = [r for r in sheets[body["sheet"]] if matches(r, body.get("select", {}))]
    return [r for r in rows if "except" not in body or not matches(r, body["except"])]


def _column(body: _Body, sheets: Sheets) -> str:
    return str(body.get("column", sheets.specs[body["sheet"]].value))


def _pick(pick: Mapping[str, Any], rows: Sequence[Row], column: str) -> Taken | None:
    wanted = {k: v for k, v in pick.items() if k not in {"take", "column", "sheet"}}
    return take([r for r in rows if matches(r, wanted)], pick.get("column", column), pick.get("take", "only"))


def _sides(body: _Body, sheets: Sheets) -> Iterator[tuple[Taken, Taken | None]]:
    """Yield both sides of each case that has them; the right one is None if the claim names none."""
    for rows in groups(_rows(body, sheets), body["each"]).values():
        left = _pick(body["left"], rows, _column(body, sheets))
        right = _pick(body["right"], rows, _column(body, sheets)) if "right" in body else None
        if left is not None and (right is not None or "right" not in body):
            yield left, right


def _shown(left: Taken, right: Taken | None = None) -> str:
    name = left.rows[0]["label"] if len(left.rows) == 1 else count(len(left.rows), "cell")
    return f"{name}: {_exact(left.value)}" + (f", against {_shown(right)}" if right else "")


def _exact(value: float) -> str:
    """Return a cell with all the digits that the papers print."""
    return f"{round(value, 3):.10g}"


def _computed(value: float) -> str:
    return f"{value:.4g}"


def _near(value: float, claimed: float, body: _Body) -> bool:
    slack: float = body.get("tolerance", TOLERANCE)
    return abs(value - claimed) <= slack * abs(claimed) + 1e-9


# ----------------------------------------------------------------------
# Claims that hold in a number of cases: each function yields whether a case holds, and its cells.

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


def _compare(body: _Body, sheets: Sheets) -> Iterator[tuple[bool, str]]:
    for left, right in _sides(body, sheets):
        bound = body.get("factor", 1.0) * right.value if right else body["bound"]
        yield _HOLDS[body["relation"]](left.value, bound), _shown(left, right)


def _falls(body: _Body, sheets: Sheets) -> Iterator[tuple[bool, str]]:
    for rows in groups(_rows(body, sheets), body["each"]).values():
        ordered = sorted(rows, key=lambda row: number(row, body["along"]))
        points = [(number(row, _column(body, sheets)), row["label"]) for row in ordered]
        for (before, first), (after, second) in pairwise(points):
            if after >= before:
                yield False, f"{first}: {_exact(before)}, then {second}: {_exact(after)}"
                break
        else:
            yield True, f"{points[0][1]}: {_exact(points[0][0])}, at last {_exact(points[-1][0])}"


def _rank(body: _Body, sheets: Sheets) -> Iterator[tuple[bool, str]]:
    column = _column(body, sheets)
    sign = 1 if body.get("best") == "lowest" else -1
    for rows in groups(_rows(body, sheets), body["each"]).values():
        order = sorted(rows, key=lambda r: sign * number(r, column))
        subject, first = next((r for r in order if matches(r, body["who"])), None), order[0]
        if subject is None:
            raise BadInput(f"no row like {rows[0]['label']} matches 'who'")
        own = number(subject, column)
        # Equal values share a place.
        place = 1 + sum(sign * number(r, column) < sign * own for r in order)
        text = f"{subject['label']}: {_exact(own)}, place {place} of {len(order)}"
        if place > 1:
            text += f" behind {first['label']}: {_exact(number(first, column))}"
        yield place in body["places"], text


def _each_row(body: _Body, sheets: Sheets) -> Iterator[tuple[bool, str]]:
    for row in _rows(body, sheets):
        value = evaluate(body["formula"], {c: v for c, v in row.items() if not isinstance(v, str)})
        cell = number(row, body["column"])
        yield _near(value, cell, body), f"{row['label']}: {_exact(cell)}, computed {_computed(value)}"


def _same(body: _Body, sheets: Sheets) -> Iterator[tuple[bool, str]]:
    column = _column(body, sheets)
    others = groups(sheets[body["other"]], body["each"])
    for key, (row,) in groups(_rows(body, sheets), body["each"]).items():
        if key not in others:
            raise BadInput(f"{row['label']} is not in {body['other']}")
        here, there = number(row, column), number(others[key][-1], column)
        yield here == there, f"{row['label']}: {_exact(here)}, there {_exact(there)}"


_COUNTED = {"compare": _compare, "falls": _falls, "rank": _rank, "rows": _each_row, "same": _same}


# ----------------------------------------------------------------------
# Claims of a number.

#: Form of a number -> how it follows from the left and the right side of a case.
_FORMS: dict[str, Callable[[float, float], float]] = {
    "left": lambda left, _: left,
    "ratio": lambda left, right: right / left,
    "percent": lambda left, right: 100 * (right / left - 1),
    "difference": lambda left, right: right - left,
}


def _value(body: _Body, sheets: Sheets) -> _Result:
    form = body.get("form", "ratio") if "right" in body else "left"
    values = [
        (_FORMS[form](left.value, (right or left).value) / body.get("per", 1.0), _shown(left, right))
        for left, right in _sides(body, sheets)
    ]
    if not values:
        raise BadInput("it matches no cells")
    low, high = (pick(values, key=lambda item: item[0]) for pick in (min, max))
    unit = body.get("unit", "x" if form == "ratio" else "")
    if body["take"] == "range":
        slack, (least, most) = body.get("tolerance", TOLERANCE), body["between"]
        agrees = low[0] >= least * (1 - slack) and high[0] <= most * (1 + slack)
        text = f"{_computed(low[0])} to {_computed(high[0])}{unit} (paper: {least:g} to {most:g}{unit})"
        return agrees, text, [low[1], high[1]]
    value, cells = high if body["take"] == "max" else low
    return *_against(value, body, unit), [cells]


def _formula(body: _Body, sheets: Sheets) -> _Result:
    taken: dict[str, Taken] = {}
    for name, pick in body["cells"].items():
        sheet = pick.get("sheet", body.get("sheet", ""))
        cell = _pick(pick, sheets[sheet], sheets.specs[sheet].value) if sheet in sheets else None
        if cell is None:
            raise BadInput(f"no cell matches '{name}'")
        taken[name] = cell
    value = evaluate(body["formula"], {name: cell.value for name, cell in taken.items()})
    return *_against(value, body, body.get("unit", "")), [_shown(cell) for cell in taken.values()]


def _against(value: float, body: _Body, unit: str) -> tuple[bool, str]:
    """Return whether a computed number agrees with the claimed one (or is above or below it), and both as text."""
    claimed, relation = body["value"], body.get("relation", "")
    agrees = _HOLDS[relation](value, claimed) if relation else _near(value, claimed, body)
    word = {"<": "less than ", ">": "more than "}.get(relation, "")
    return agrees, f"{_computed(value)}{unit} (paper: {word}{claimed:g}{unit})"


def _plan(body: _Body, sheets: Sheets) -> _Result:
    """Return whether each aligner can be run in the claimed number of instances, of those that the papers ran."""
    limits, cells, agrees = [], [], True
    for name in body["aligners"]:
        row = index_of(name, sheets[body["other"]])
        fits = (f.instances for f in whole_host(row, body["system"]) if not f.reason)
        most = max(instances for instances in fits if instances <= most_run(sheets[body["sheet"]]))
        limits.append(f"{name}: up to {count(most, 'instance')} by memory")
        cells.append(f"index in {row['label']}: {_exact(row['index_gb'])} GB")
        agrees = agrees and most == body["instances"]
    return agrees, listed(limits), cells


_COMPUTED = {"value": _value, "formula": _formula, "plan": _plan}
