# SPDX-License-Identifier: Apache-2.0
"""Names and messages of a source file for the checks; each file is parsed once."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """The contents of one Python file."""

    docstring: str
    #: Each variable or parameter and its line, without the fields of records, which are a file format.
    variables: list[tuple[str, int]]
    #: The strings, with an ellipsis for each part that is filled in.
    strings: list[str]


@cache
def source(file: Path) -> Source:
    """Parse a file."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    fields: set[int] = set()
    variables, strings = [], []
    for node in ast.walk(tree):  # a class comes before its fields
        if isinstance(node, ast.ClassDef):
            fields |= {id(field.target) for field in node.body if isinstance(field, ast.AnnAssign)}
        elif isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store) and id(node) not in fields:
                variables.append((node.id, node.lineno))
        elif isinstance(node, ast.arg):
            variables.append((node.arg, node.lineno))
        elif isinstance(node, ast.JoinedStr):
            strings.append("".join(str(v.value) if isinstance(v, ast.Constant) else "…" for v in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            strings.append(re.sub(r"\{\w*\}", "…", node.value))
    return Source(ast.get_docstring(tree) or "", variables, strings)
