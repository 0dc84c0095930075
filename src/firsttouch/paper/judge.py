# SPDX-License-Identifier: Apache-2.0
"""Whether a paper's prose agrees with its tables: each claim computed from the cells that it is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from firsttouch.errors import BadInput
from firsttouch.paper import arithmetic, feasible
from firsttouch.paper.claims import TOLERANCE, Claim
from firsttouch.paper.sheets import SHEETS, Row, Sheets, Taken, groups, matches, take
from firsttouch.report.text import count, listed


@dataclass(frozen=True)
class Outcome:
    """What came of a claim: whether the tables agree, what they say instead (*found*), and the *cells*."""

    claim: Claim
    agrees: bool
    found: str
    cells: tuple[str, ...]


def judge(claims: Sequence[Claim], sheets: Sheets) -> list[Outcome]:
    """Return the outcome of each claim; raises BadInput with the claim's line where it fits no cells."""
    return [_outcome(claim, sheets) for claim in claims]


def _outcome(claim: Claim, sheets: Sheets) -> Outcome:
    try:
        agrees, found, cells = _JUDGES[claim.kind](claim.body, sheets)
    except BadInput as error:
        raise BadInput(f"claim '{claim.id}': {error}", file=claim.file, line=claim.line) from error
    return Outcome(claim, agrees, found, tuple(cells))


#: Whether it holds, what was found, the cells that say so.
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
    """One case of a claim: its name, and the numbers on its two sides."""

    name: str
    left: Taken
    right: Taken | None


def _cases(body: Mapping[str, Any], sheets: Sheets) -> list[_Case]:
    found = []
    for key, rows in groups(_rows(body, sheets), body["each"]).items():
        left = _pick(body["left"], rows, _column(body))
        right = _pick(body["right"], rows, _column(body)) if "right" in body else None
        if left is not None and (right is not None or "right" not in body):
            found.append(_Case(", ".join(key), left, right))
    if not found:
        raise BadInput("no cells fit it")
    return found


def _shown(taken: Taken) -> str:
    name = taken.rows[0].label if len(taken.rows) == 1 else f"{count(len(taken.rows), 'cell')}"
    return f"{name}: {_exact(taken.value)}"


def _exact(value: float) -> str:
    """Return a cell as the papers print it: all its digits, but none of binary fractions."""
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
    """Return whether as many cases hold as expected, with the cells that decide it."""
    total = len(holding) + len(failing)
    agrees = _met(expect, len(holding), total)
    # "None" and "some" are decided by those that hold, the others by those that do not.
    first, second = (holding, failing) if expect in {"none", "some"} else (failing, holding)
    found = f"so in {len(holding)} of {count(total, 'case')} (said: {_WORDS.get(str(expect), f'in {expect}')})"
    return agrees, found, first or second


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
        found = f"{_computed(low[0])} to {_computed(high[0])}{unit} (said: {least:g} to {most:g}{unit})"
        return agrees, found, [_sides(low[1]), _sides(high[1])]
    value, case = high if body["take"] == "max" else low
    return *_against(value, body, unit), [_sides(case)]


def _against(value: float, body: Mapping[str, Any], unit: str) -> tuple[bool, str]:
    """Return whether a computed number agrees with the claimed one, or is above or below it; and both in words."""
    claimed, relation = body["value"], body.get("relation")
    if relation is None:
        agrees, word = _near(value, claimed, body.get("tolerance", TOLERANCE)), ""
    else:
        agrees = value > claimed if relation == ">" else value < claimed
        word = "more than " if relation == ">" else "less than "
    return agrees, f"{_computed(value)}{unit} (said: {word}{claimed:g}{unit})"


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
        mine, first = next((r for r in order if matches(r, body["who"])), None), order[0]
        if mine is None:
            raise BadInput(f"nothing in {rows[0].label} and its like is who it is about")
        own, best = mine.number(column) or 0.0, first.number(column) or 0.0
        # Equal ones share a place.
        place = 1 + sum(sign * (r.number(column) or 0.0) < sign * own for r in order)
        text = f"{mine.label}: {_exact(own)}, place {place} of {len(order)}"
        if place > 1:
            text += f" behind {first.label}: {_exact(best)}"
        (holding if place in body["places"] else failing).append(text)
    return _counted(body["expect"], holding, failing)


def _formula(body: Mapping[str, Any], sheets: Sheets) -> _Result:
    taken: dict[str, Taken] = {}
    for name, pick in body["cells"].items():
        sheet = pick.get("sheet", body.get("sheet", ""))
        found = _pick(pick, sheets[sheet], SHEETS[sheet].value) if sheet in sheets else None
        if found is None:
            raise BadInput(f"no cell is its '{name}'")
        taken[name] = found
    value = arithmetic.evaluate(body["formula"], {name: found.value for name, found in taken.items()})
    return *_against(value, body, body.get("unit", "")), [_shown(found) for found in taken.values()]


def _each_row(body: Mapping[str, Any], sheets: Sheets) -> _Result:
    holding: list[str] = []
    failing: list[str] = []
    for row in _rows(body, sheets):
        names = {c: v for c, v in row.cells.items() if isinstance(v, float)}
        value, cell = arithmetic.evaluate(body["formula"], names), names[body["column"]]
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
    most = {name: feasible.most_instances(name, body["system"], sheets) for name in body["aligners"]}
    said = [f"{name}: up to {count(found, 'instance')} by memory" for name, found in most.items()]
    agrees = all(found == body["instances"] for found in most.values())
    return agrees, listed(said), [_index(name, sheets) for name in body["aligners"]]


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
