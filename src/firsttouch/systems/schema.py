# SPDX-License-Identifier: Apache-2.0
"""Checks a document against schema.json and says in plain words, with the line, what does not fit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
from jsonschema.exceptions import ValidationError

from firsttouch import units
from firsttouch.errors import BadInput
from firsttouch.systems.document import Document, Problems, Where

_PERCENT = re.compile(r"([+-]?[0-9]+(?:\.[0-9]+)?) ?%\Z")


def quantity(text: str, dimension: str) -> float:
    """Return *text* in the base unit of *dimension*; a size may be a plain number of bytes."""
    return float(units.parse_bytes(text)) if dimension == "bytes" else units.parse(text, dimension)


def percent(text: str) -> float:
    """Return a share such as ``-10 %`` as a fraction (-0.1); raises BadInput for anything else."""
    match = _PERCENT.match(text)
    if match is None or abs(float(match[1])) > 1e6:
        raise BadInput(f"'{text}' is not a share such as \"5 %\"")
    return float(match[1]) / 100


def check(document: Document) -> None:
    """Raise BadInput with the line and the reason of the first thing that does not fit the schema."""
    problems = Problems(document.file)
    for error in _validator().iter_errors(document.data):
        where: Where = tuple(error.absolute_path)
        if error.validator == "additionalProperties":
            known = error.schema.get("properties", {}) if isinstance(error.schema, dict) else {}
            for key in set(error.instance) - set(known):
                reason = f"unknown key '{key}'{_inside(where)}: known are {', '.join(known)}"
                problems.add(document.line(*where, key), reason)
        else:
            problems.add(document.line(*where), _reason(error, where))
    problems.check()


def _reason(error: ValidationError, where: Where) -> str:
    name = _name(where) or "the file"
    instance: Any = error.instance
    schema: dict[str, Any] = dict(error.schema) if isinstance(error.schema, dict) else {}
    if error.validator == "required":
        missing = [key for key in schema["required"] if key not in instance]
        return f"key '{missing[0]}' is missing{_inside(where)}"
    if error.validator in {"minItems", "minProperties"}:
        return f"{name} is empty"
    if error.validator in {"quantity", "percent", "regex"}:
        return f"{name}: {error.message}"
    return f"{name}: {_short(instance)} is not {schema['description']}"


def _name(where: Where) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in where).lstrip(".")


def _inside(where: Where) -> str:
    return f" in {_name(where)}" if where else ""


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = "null" if value is None else f"'{value}'"
    return text if len(text) <= 60 else text[:56] + "...'"


def _quantity(
    validator: Any,  # noqa: ARG001
    dimension: str,
    instance: Any,
    schema: Any,  # noqa: ARG001
) -> Iterator[ValidationError]:
    if isinstance(instance, str):
        try:
            quantity(instance, dimension)
        except BadInput as error:
            yield ValidationError(str(error))


def _percent(
    validator: Any,  # noqa: ARG001
    sign: str,
    instance: Any,
    schema: Any,  # noqa: ARG001
) -> Iterator[ValidationError]:
    if isinstance(instance, str):
        try:
            value = percent(instance)
        except BadInput as error:
            yield ValidationError(str(error))
        else:
            # ReFrame's references: the lower tolerance in [-1, 0], the upper at least 0.
            if sign == "negative" and not -1 <= value <= 0:
                yield ValidationError(f"'{instance}' is not between -100 % and 0 %")
            if sign == "positive" and value < 0:
                yield ValidationError(f"'{instance}' is below 0 %")


def _regex(
    validator: Any,  # noqa: ARG001
    wanted: bool,  # noqa: ARG001
    instance: Any,
    schema: Any,  # noqa: ARG001
) -> Iterator[ValidationError]:
    if isinstance(instance, str):
        try:
            re.compile(instance)
        except (re.error, OverflowError, RecursionError) as error:
            yield ValidationError(f"'{instance}' is not a regular expression: {error}")


@cache
def _validator() -> Any:
    schema = json.loads(Path(__file__).with_name("schema.json").read_text(encoding="utf-8"))
    keywords = {"quantity": _quantity, "percent": _percent, "regex": _regex}
    extended = jsonschema.validators.extend(jsonschema.Draft202012Validator, keywords)  # type: ignore[no-untyped-call]
    return extended(schema)
