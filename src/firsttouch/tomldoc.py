# SPDX-License-Identifier: Apache-2.0
"""Data files in TOML: read, checked against a JSON schema, and every complaint with its line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema

from firsttouch.errors import BadInput


def loads(text: str, file: str | Path) -> dict[str, Any]:
    """Return what the TOML *text*, the content of *file*, says; raises BadInput with the line."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"line (\d+)", str(error))
        line = int(at[1]) if at else text.count("\n") + 1
        reason = str(error).split(" (at ")[0]
        raise BadInput(f"not TOML: {reason}", file=file, line=line) from None


def check(data: Mapping[str, Any], schema: Mapping[str, Any], text: str, file: str | Path) -> None:
    """Raise BadInput, with the line, for the first key or value in *data* that *schema* does not allow."""
    errors = jsonschema.Draft202012Validator(schema).iter_errors(data)
    error = min(errors, key=lambda e: (line_of(text, list(e.absolute_path)), str(e.message)), default=None)
    if error is None:
        return
    where = list(error.absolute_path)
    if error.validator == "additionalProperties":
        known = error.schema["properties"]
        where.append(min(set(error.instance) - set(known)))
        reason = f"unknown key {where[-1]!r}: known here are {', '.join(known)}"
    elif error.validator == "required":
        lacking = [key for key in error.validator_value if key not in error.instance]
        reason = f"key {lacking[0]!r} is missing"
    else:
        reason = f"{'.'.join(str(part) for part in where)}: {error.message}"
    raise BadInput(reason, file=file, line=line_of(text, where))


def line_of(text: str, where: Sequence[str | int]) -> int:
    """Return the 1-based line of the TOML *text* that holds the key *where*, or its table's, or 1."""
    table: list[str | int] = []
    counts: dict[str, int] = {}
    best = 1
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[(\[?)\s*([A-Za-z0-9_-]+)\s*\]", line):
            table = [header[2]]
            if header[1]:
                counts[header[2]] = counts.get(header[2], -1) + 1
                table.append(counts[header[2]])
            if list(where[: len(table)]) == table:
                best = number
        elif (key := re.match(r"""\s*["']?([A-Za-z0-9_-]+)["']?\s*[=.]""", line)) and list(
            where[: len(table) + 1]
        ) == [*table, key[1]]:
            return number
    return best
