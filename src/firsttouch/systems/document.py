# SPDX-License-Identifier: Apache-2.0
"""System files as YAML with line numbers, checked against the schema."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from jsonschema.exceptions import ValidationError

from firsttouch import units
from firsttouch.errors import BadInput

# ----------------------------------------------------------------------
# YAML with line numbers: every value knows its line, duplicate keys and surprises are errors.

Where = tuple[str | int, ...]

# Aliases may repeat a value, so the finished document can be far larger than its text.
_MOST_VALUES = 100_000
_MAP, _SEQ = "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"


@dataclass
class Problems:
    """Collects what is wrong with a file, to report the first by line."""

    file: Path
    found: list[tuple[int, str]] = field(default_factory=list)

    def add(self, line: int, reason: str) -> None:
        """Note that *line* is wrong because of *reason*."""
        self.found.append((line, reason))

    def check(self) -> None:
        """Raise BadInput for the problem with the lowest line, if there is any."""
        if self.found:
            line, reason = min(self.found, key=lambda problem: problem[0])
            raise BadInput(" ".join(reason.split()), file=self.file, line=line)


@dataclass(frozen=True)
class Document:
    """The *data* of a YAML file, and the line (1-based) of each value by its path of keys and indexes."""

    file: Path
    data: Any
    lines: Mapping[Where, int]

    def line(self, *where: str | int) -> int:
        """Return the line of the value at *where*: of its key, or of what holds it where it is missing."""
        while where not in self.lines and where:
            where = where[:-1]
        return self.lines[where]


def read(file: Path) -> Document:
    """Return the YAML document in *file*; raises BadInput (with the line) where there is none."""
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", file=file) from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput("not UTF-8 text", file=file, line=raw[: error.start].count(b"\n") + 1) from error
    return parse(text, file)


def parse(text: str, file: Path) -> Document:
    """Return the YAML document *text*, which errors call *file*; raises BadInput where there is none."""
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                raise BadInput("an empty file", file=file, line=1)
            builder = _Builder(file, loader)
            data = builder.build(node, ())
        finally:
            loader.dispose()
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise BadInput(f"not YAML: {error.reason}", file=file, line=line) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = " ".join(f"not YAML: {error.problem or error.context}".split())
        raise BadInput(reason, file=file, line=mark.line + 1 if mark else 1) from error
    except RecursionError as error:
        raise BadInput("not a system file: nested too deeply", file=file, line=1) from error
    return Document(file, data, builder.lines)


class _Builder:
    """Turns YAML nodes into Python values and remembers their lines."""

    def __init__(self, file: Path, loader: yaml.SafeLoader) -> None:
        self.file = file
        self.loader = loader
        self.lines: dict[Where, int] = {}

    def build(self, node: yaml.Node, where: Where, line: int | None = None) -> Any:
        own = node.start_mark.line + 1
        # An alias's node stands at its anchor; the line to repair is the one that a reader sees here.
        self.lines[where] = line or own
        if len(self.lines) > _MOST_VALUES:
            raise BadInput("too large for a system file", file=self.file, line=own)
        if isinstance(node, yaml.MappingNode) and node.tag == _MAP:
            return self._mapping(node, where)
        if isinstance(node, yaml.SequenceNode) and node.tag == _SEQ:
            return [self.build(child, (*where, i)) for i, child in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        raise BadInput(f"the YAML tag '{node.tag}' is not used here", file=self.file, line=own)

    def _mapping(self, node: yaml.MappingNode, where: Where) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value in node.value:
            line = key_node.start_mark.line + 1
            key = self._scalar(key_node) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                raise BadInput("a key that is not text: write it in quotes", file=self.file, line=line)
            if key in found:
                first = self.lines[(*where, key)]
                raise BadInput(f"duplicate key '{key}', first on line {first}", file=self.file, line=line)
            found[key] = self.build(value, (*where, key), line)
        return found

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        line = node.start_mark.line + 1
        # PyYAML knows no value for the merge key and "=", which mean nothing here: they stay text.
        if node.tag in {"tag:yaml.org,2002:merge", "tag:yaml.org,2002:value"}:
            return node.value
        try:
            value = self.loader.construct_object(node)
            if isinstance(value, str):
                value.encode()
            elif isinstance(value, float) and not math.isfinite(value):
                raise ValueError("not a finite number")
        except ValueError as error:  # also a date without such a day, half a surrogate pair
            raise BadInput(f"'{node.value!a}' cannot be read: {error}", file=self.file, line=line) from error
        return value


# ----------------------------------------------------------------------
# Checks a document against schema.json and says in plain words, with the line, what does not fit.

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
