# SPDX-License-Identifier: Apache-2.0
"""Claims of the papers' prose, checked against their tables."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from itertools import pairwise
from typing import Any

from firsttouch import documents
from firsttouch.benchmarks.cases import topology_of
from firsttouch.errors import BadInput
from firsttouch.genomics.aligners import aligner
from firsttouch.report.paper.sheets import SHEETS, Row, Sheets, Taken, groups, matches, take
from firsttouch.report.text import count, listed
from firsttouch.scenarios.placement import Plan, plan
from firsttouch.systems import definition

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


def planned(name: str, system: str, sheets: Sheets) -> Plan:
    """Return the plan for the aligner that the papers call *name*, with its published index size, on *system*."""
    rows = [r for r in sheets["aligners"] if r.text("aligner") == name]
    if not rows:
        raise BadInput(f"no index size of '{name}' is published")
    size = rows[0].number("index_gb") or 0.0
    return plan(topology_of(definition.load(system).facts), aligner(rows[0].text("file")).need(round(size * _GB)))


def whole_host(name: str, system: str, sheets: Sheets) -> list[Feasible]:
    """Return the scenarios that use every PU, fewest instances first."""
    candidates = planned(name, system, sheets)
    threads = definition.load(system).facts.pus
    fits = [
        Feasible(s.name, s.instances, s.threads, "")
        for s in candidates.scenarios
        if s.instances * s.threads == threads
    ]
    for scenario, reason in candidates.infeasible:
        instances = int(scenario.split("Inst_")[0])
        if not scenario.endswith("t"):
            fits.append(Feasible(scenario, instances, threads // instances, reason))
    return sorted(fits, key=lambda f: f.instances)


def most_run(sheets: Sheets) -> float:
    """Return the most instances that the papers ran."""
    return max(row.number("instances") or 0.0 for row in sheets["times"])


def most_instances(name: str, system: str, sheets: Sheets) -> int:
    """Return the most instances that use every PU and whose indexes fit, up to the most that the papers ran."""
    most = most_run(sheets)
    return max(f.instances for f in whole_host(name, system, sheets) if not f.reason and f.instances <= most)


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
        "sheet": {"enum": sorted(SHEETS)},
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
#: Kind -> its required keys, beside those of all claims.
_KINDS: dict[str, tuple[str, ...]] = {
    "compare": ("sheet", "each", "left", "relation", "expect"),
    "value": ("sheet", "each", "left", "take"),
    "falls": ("sheet", "each", "along", "expect"),
    "rank": ("sheet", "each", "who", "places", "expect"),
    "formula": ("formula", "cells", "value"),
    "rows": ("sheet", "formula", "column"),
    "same": ("sheet", "other", "each"),
    "plan": ("system", "aligners", "instances"),
}
#: Kind -> keys of which it requires one.
_ONE_OF = {"compare": {"right", "bound"}, "value": {"value", "between"}}
_CLAIM = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^[a-z0-9-]+$"},
        "where": {"type": "string"},
        "says": {"type": "string"},
        "note": {"type": "string"},
        "kind": {"enum": list(_KINDS)},
        "sheet": {"enum": sorted(SHEETS)},
        "other": {"enum": sorted(SHEETS)},
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
    """A claim: its *paper*, *where* in it, what it *says* (paraphrased), and the comparison (*body*).

    It is entry *number* of *document*, from 0.
    """

    id: str
    paper: str
    where: str
    says: str
    note: str
    kind: str
    document: documents.Document
    number: int
    body: Mapping[str, Any] = field(default_factory=dict)

    def error(self, reason: str) -> BadInput:
        """Return the error that the claim is wrong because of *reason*, with its file and line."""
        return self.document.error(reason, "claim", self.number)


def load() -> list[Claim]:
    """Return the claims of all papers, in the order of their files and places."""
    folder = resources.files("firsttouch.report.paper").joinpath("claims")
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    claims = [claim for f in files for claim in parse(f.read_text(encoding="utf-8"), f.name)]
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
    claims = []
    for number, entry in enumerate(document.data["claim"]):
        lacking = [key for key in _KINDS[entry["kind"]] if key not in entry]
        for kind, keys in _ONE_OF.items():
            if entry["kind"] == kind and not keys & entry.keys():
                lacking.append(" or ".join(sorted(keys)))
        if lacking:
            reason = f"claim '{entry['id']}' of kind {entry['kind']} needs {', '.join(lacking)}"
            raise document.error(reason, "claim", number)
        own = {"id", "where", "says", "note", "kind"}
        claims.append(
            Claim(
                id=entry["id"],
                paper=document.data["paper"],
                where=entry["where"],
                says=entry["says"],
                note=entry.get("note", ""),
                kind=entry["kind"],
                document=document,
                number=number,
                body={k: v for k, v in entry.items() if k not in own},
            )
        )
    return claims


# ----------------------------------------------------------------------
# Outcomes: each claim computed from its cells.


@dataclass(frozen=True)
class Outcome:
    """The outcome of a claim: whether the tables agree, what they say (*found*), and the *cells*."""

    claim: Claim
    agrees: bool
    found: str
    cells: tuple[str, ...]


def judge(claims: Sequence[Claim], sheets: Sheets) -> list[Outcome]:
    """Return the outcome of each claim; raises BadInput with the line of a claim without cells."""
    return [_outcome(claim, sheets) for claim in claims]


def _outcome(claim: Claim, sheets: Sheets) -> Outcome:
    try:
        agrees, actual, cells = _JUDGES[claim.kind](claim.body, sheets)
    except BadInput as error:
        raise claim.error(f"claim '{claim.id}': {error}") from error
    return Outcome(claim, agrees, actual, tuple(cells))


#: Whether it holds, what the tables say, the deciding cells.
_Result = tuple[bool, str, Sequence[str]]


def _rows(body: Mapping[str, Any], sheets: Sheets, sheet: str = "") -> list[Row]:
    rows = [r for r in sheets[sheet or body["sheet"]] if matches(r, body.get("select", {}))]
    dropped = body.get("except")
    return [r for r in rows if dropped is None or not matches(r, dropped)]


def _pick(pick: Mapping[str, Any], rows: Sequence[Row], column: str) -> Taken | None:
    wanted = {k: v for k, v in pick.items() if k not in {"take", "column", "sheet"}}
    return take([r for r in rows if matches(r, wanted)], pick.get("column", column), pick.get("take", "only"))


def _column(body: Mapping[str, Any]) -> str:
    return str(body.get("column", SHEETS[body["sheet"]].value))


@dataclass(frozen=True)
class _Case:
    """One case of a claim: its name, and the numbers of both sides."""

    name: str
    left: Taken
    right: Taken | None


def _cases(body: Mapping[str, Any], sheets: Sheets) -> list[_Case]:
    cases = []
    for key, rows in groups(_rows(body, sheets), body["each"]).items():
        left = _pick(body["left"], rows, _column(body))
        right = _pick(body["right"], rows, _column(body)) if "right" in body else None
        if left is not None and (right is not None or "right" not in body):
            cases.append(_Case(", ".join(key), left, right))
    if not cases:
        raise BadInput("it matches no cells")
    return cases


def _shown(taken: Taken) -> str:
    name = taken.rows[0].label if len(taken.rows) == 1 else f"{count(len(taken.rows), 'cell')}"
    return f"{name}: {_exact(taken.value)}"


def _exact(value: float) -> str:
    """Return a cell with all the digits that the papers print."""
    return f"{round(value, 3):.10g}"


def _computed(value: float) -> str:
    return f"{value:.4g}"


def _met(expect: str | int, holding: int, total: int) -> bool:
    if isinstance(expect, int):
        return holding == expect
    return {
        "all": holding == total,
        "nearly all": 6 * holding >= 5 * total,
        "most": 2 * holding > total,
        "some": holding > 0,
        "not all": holding < total,
        "none": holding == 0,
    }[expect]


_WORDS = {"nearly all": "in nearly all", "not all": "not in all"} | {
    word: f"in {word}" for word in ("all", "most", "some", "none")
}


def _counted(expect: str | int, holding: Sequence[str], failing: Sequence[str]) -> _Result:
    """Return whether the expected number of cases hold, and the deciding cells."""
    total = len(holding) + len(failing)
    agrees = _met(expect, len(holding), total)
    # "None" and "some" depend on the cases that hold, the others on those that do not.
    first, second = (holding, failing) if expect in {"none", "some"} else (failing, holding)
    text = f"true in {len(holding)} of {count(total, 'case')} (paper: {_WORDS.get(str(expect), f'in {expect}')})"
    return agrees, text, first or second


def _compare(body: Mapping[str, Any], sheets: Sheets) -> _Result:
    factor = body.get("factor", 1.0)
    holding: list[str] = []
    failing: list[str] = []
    for case in _cases(body, sheets):
        bound = factor * case.right.value if case.right else body["bound"]
        true = case.left.value < bound if body["relation"] == "<" else case.left.value > bound
        (holding if true else failing).append(_sides(case))
    return _counted(body["expect"], holding, failing)


def _number(case: _Case, form: str, per: float) -> float:
    left = case.left.value
    if form == "left" or case.right is None:
        return left / per
    right = case.right.value
    return {"ratio": right / left, "percent": 100 * (right / left - 1), "difference": (right - left) / per}[form]


def _value(body: Mapping[str, Any], sheets: Sheets) -> _Result:
    form = body.get("form", "ratio" if "right" in body else "left")
    numbers = [(_number(case, form, body.get("per", 1.0)), case) for case in _cases(body, sheets)]
    low, high = (pick(numbers, key=lambda item: item[0]) for pick in (min, max))
    unit = body.get("unit", "x" if form == "ratio" else "")
    if body["take"] == "range":
        slack, (least, most) = body.get("tolerance", TOLERANCE), body["between"]
        agrees = low[0] >= least * (1 - slack) and high[0] <= most * (1 + slack)
        text = f"{_computed(low[0])} to {_computed(high[0])}{unit} (paper: {least:g} to {most:g}{unit})"
        return agrees, text, [_sides(low[1]), _sides(high[1])]
    value, case = high if body["take"] == "max" else low
    return *_against(value, body, unit), [_sides(case)]


def _against(value: float, body: Mapping[str, Any], unit: str) -> tuple[bool, str]:
    """Return whether a computed number agrees with the claimed one (or is above or below it), and both as text."""
    claimed, relation = body["value"], body.get("relation")
    if relation is None:
        agrees, word = _near(value, claimed, body.get("tolerance", TOLERANCE)), ""
    else:
        agrees = value > claimed if relation == ">" else value < claimed
        word = "more than " if relation == ">" else "less than "
    return agrees, f"{_computed(value)}{unit} (paper: {word}{claimed:g}{unit})"


def _sides(case: _Case) -> str:
    return _shown(case.left) + (f", against {_shown(case.right)}" if case.right else "")


def _near(value: float, claimed: float, slack: float) -> bool:
    return abs(value - claimed) <= slack * abs(claimed) + 1e-9


def _falls(body: Mapping[str, Any], sheets: Sheets) -> _Result:
    column, along = _column(body), body["along"]
    holding: list[str] = []
    failing: list[str] = []
    for rows in groups(_rows(body, sheets), body["each"]).values():
        points = sorted((row.number(along) or 0.0, row.number(column) or 0.0, row) for row in rows)
        rises = [(a, b) for a, b in pairwise(points) if b[1] >= a[1]]
        for (_, before, first), (_, after, second) in rises[:1]:
            failing.append(f"{first.label}: {_exact(before)}, then {second.label}: {_exact(after)}")
        if not rises:
            holding.append(f"{points[0][2].label}: {_exact(points[0][1])}, at last {_exact(points[-1][1])}")
    return _counted(body["expect"], holding, failing)


def _rank(body: Mapping[str, Any], sheets: Sheets) -> _Result:
    column = _column(body)
    sign = 1 if body.get("best") == "lowest" else -1
    holding: list[str] = []
    failing: list[str] = []
    for rows in groups(_rows(body, sheets), body["each"]).values():
        order = sorted(rows, key=lambda r: sign * (r.number(column) or 0.0))
        subject, first = next((r for r in order if matches(r, body["who"])), None), order[0]
        if subject is None:
            raise BadInput(f"no row like {rows[0].label} matches 'who'")
        own, best = subject.number(column) or 0.0, first.number(column) or 0.0
        # Equal values share a place.
        place = 1 + sum(sign * (r.number(column) or 0.0) < sign * own for r in order)
        text = f"{subject.label}: {_exact(own)}, place {place} of {len(order)}"
        if place > 1:
            text += f" behind {first.label}: {_exact(best)}"
        (holding if place in body["places"] else failing).append(text)
    return _counted(body["expect"], holding, failing)


def _formula(body: Mapping[str, Any], sheets: Sheets) -> _Result:
    taken: dict[str, Taken] = {}
    for name, pick in body["cells"].items():
        sheet = pick.get("sheet", body.get("sheet", ""))
        cell = _pick(pick, sheets[sheet], SHEETS[sheet].value) if sheet in sheets else None
        if cell is None:
            raise BadInput(f"no cell matches '{name}'")
        taken[name] = cell
    value = evaluate(body["formula"], {name: cell.value for name, cell in taken.items()})
    return *_against(value, body, body.get("unit", "")), [_shown(cell) for cell in taken.values()]


def _each_row(body: Mapping[str, Any], sheets: Sheets) -> _Result:
    holding: list[str] = []
    failing: list[str] = []
    for row in _rows(body, sheets):
        names = {c: v for c, v in row.cells.items() if isinstance(v, float)}
        value, cell = evaluate(body["formula"], names), names[body["column"]]
        near = _near(value, cell, body.get("tolerance", TOLERANCE))
        (holding if near else failing).append(f"{row.label}: {_exact(cell)}, computed {_computed(value)}")
    return _counted(body.get("expect", "all"), holding, failing)


def _same(body: Mapping[str, Any], sheets: Sheets) -> _Result:
    column = _column(body)
    others = {tuple(r.text(c) for c in body["each"]): r for r in sheets[body["other"]]}
    holding: list[str] = []
    failing: list[str] = []
    for row in _rows(body, sheets):
        other = others.get(tuple(row.text(c) for c in body["each"]))
        if other is None:
            raise BadInput(f"{row.label} is not in {body['other']}")
        here, there = row.number(column), other.number(column)
        text = f"{row.label}: {_exact(here or 0.0)}, there {_exact(there or 0.0)}"
        (holding if here == there else failing).append(text)
    return _counted(body.get("expect", "all"), holding, failing)


def _plan(body: Mapping[str, Any], sheets: Sheets) -> _Result:
    most = {name: most_instances(name, body["system"], sheets) for name in body["aligners"]}
    limits = [f"{name}: up to {count(instances, 'instance')} by memory" for name, instances in most.items()]
    agrees = all(instances == body["instances"] for instances in most.values())
    return agrees, listed(limits), [_index(name, sheets) for name in body["aligners"]]


def _index(aligner: str, sheets: Sheets) -> str:
    (row,) = [r for r in sheets["aligners"] if r.text("aligner") == aligner]
    return f"index in {row.label}: {_exact(row.number('index_gb') or 0.0)} GB"


_JUDGES = {
    "compare": _compare,
    "value": _value,
    "falls": _falls,
    "rank": _rank,
    "formula": _formula,
    "rows": _each_row,
    "same": _same,
    "plan": _plan,
}
