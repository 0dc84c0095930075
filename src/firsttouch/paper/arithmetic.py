# SPDX-License-Identifier: Apache-2.0
"""Formulas of claims: plain arithmetic with names, and nothing else that Python could do."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from firsttouch.errors import BadInput

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
        return _value(ast.parse(formula, mode="eval").body, names)
    except (SyntaxError, ZeroDivisionError) as error:
        raise BadInput(f"formula '{formula}': {error}") from error


def _value(part: ast.expr, names: Mapping[str, float]) -> float:
    if isinstance(part, ast.Constant) and isinstance(part.value, (int, float)):
        return float(part.value)
    if isinstance(part, ast.Name):
        if part.id not in names:
            raise BadInput(f"formula: there is no '{part.id}': there are {', '.join(names)}")
        return names[part.id]
    if isinstance(part, ast.BinOp) and type(part.op) in _OPERATORS:
        return _OPERATORS[type(part.op)](_value(part.left, names), _value(part.right, names))
    raise BadInput(f"formula: '{ast.unparse(part)}' is no arithmetic")
