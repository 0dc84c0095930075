# SPDX-License-Identifier: Apache-2.0
"""Data files in TOML: read, checked against a JSON schema, and every complaint with its line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import jsonschema

from firsttouch.errors import BadInput

#: The longest part of a schema's complaint that is printed: it quotes the value.
_LONGEST = 200


def read(file: Path | Traversable) -> str:
    """Return the text of *file*; raises BadInput where it cannot be read or is not UTF-8."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"not UTF-8 text: {error.reason} at byte {error.start}", file=str(file)) from None
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", file=str(file)) from None


def loads(text: str, file: str | Path) -> dict[str, Any]:
    """Return what the TOML *text*, the content of *file*, says; raises BadInput with the line."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise BadInput("not TOML: it is nested too deeply", file=file) from None
    except ValueError as error:
        reason, _, place = str(error).partition(" (at ")
        at = re.match(r"line (\d+)", place)
        # Numbers of too many digits are refused without a place.
        line = int(at[1]) if at else text.count("\n") + 1 if place else None
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
        message = error.message if len(error.message) <= _LONGEST else f"{error.message[:_LONGEST]}..."
        reason = f"{'.'.join(str(part) for part in where)}: {message}"
    raise BadInput(reason, file=file, line=line_of(text, where))


def line_of(text: str, where: Sequence[str | int]) -> int:
    """Return the 1-based line of the TOML *text* on which the key *where*, or its nearest table, begins; or 1.

    The beginning of a text up to the end of a statement is TOML, too: the key is on the first line of the shortest
    beginning that has it.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    for count in range(len(where), 0, -1):
        if _holds(tomllib.loads(text), where[:count]):
            # The first *low* lines lack the key, and the first *high* lines have it; both are TOML.
            low, high = 0, len(lines)
            while (middle := _statement_end(lines, (low + high) // 2, low, high)) is not None:
                if _holds(_beginning(lines, middle) or {}, where[:count]):
                    high = middle
                else:
                    low = middle
            return low + 1
    return 1


def _holds(data: Any, where: Sequence[str | int]) -> bool:
    for part in where:
        if isinstance(part, int):
            if not isinstance(data, list) or part >= len(data):
                return False
        elif not isinstance(data, dict) or part not in data:
            return False
        data = data[part]
    return True


def _beginning(lines: Sequence[str], count: int) -> dict[str, Any] | None:
    """Return what the first *count* lines say, None where they end within a statement."""
    try:
        return tomllib.loads("\n".join(lines[:count]))
    except tomllib.TOMLDecodeError:
        return None


def _statement_end(lines: Sequence[str], near: int, low: int, high: int) -> int | None:
    """Return how many lines end with a statement: more than *low*, fewer than *high*, about *near*; or None."""
    counts = (*range(max(near, low + 1), high), *range(near - 1, low, -1))
    return next((count for count in counts if _beginning(lines, count) is not None), None)
