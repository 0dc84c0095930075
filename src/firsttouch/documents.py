# SPDX-License-Identifier: Apache-2.0
"""Data files in TOML, YAML and JSON: read, checked against a JSON Schema, and every error with its file and line.

:func:`parse_toml` and :func:`parse_yaml` return a :class:`Document`, whose :meth:`~Document.check` validates it.
Both raise BadInput for anything that cannot be read.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import json
import math
import re
import reprlib
import stat
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from msgspec import Struct, StructMeta, field, structs
from msgspec.structs import FieldInfo

from firsttouch import paths, units
from firsttouch.errors import BadInput, did_you_mean, one_line

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    import yaml
    from jsonschema.exceptions import ValidationError

#: The path of a value in a document: keys of mappings and indexes of lists.
Where = tuple[str | int, ...]
T = TypeVar("T")
#: The most characters of a validator's message that are printed.
_LONGEST_MESSAGE = 200
#: The most values of a YAML document. Aliases repeat values, so a document can be far larger than its text.
_MOST_VALUES = 100_000
#: What a name can stand for beside a file and a folder.
_SPECIAL = {stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


class Document(Struct, frozen=True):
    """A parsed file: its *text*, its *data*, and a function from the path of a value to its 1-based line.

    *problems* are the lines that are wrong, with the reasons.
    """

    file: str | Path
    text: str
    data: Any
    line_of: Callable[[Where], int]
    problems: list[tuple[int, str]] = field(default_factory=list)

    def line(self, *where: str | int) -> int:
        """Return the line of the value at *where*, or of the nearest value that holds it."""
        return self.line_of(where)

    def error(self, reason: str, *where: str | int) -> BadInput:
        """Return the error that the value at *where* is wrong because of *reason*."""
        return BadInput(reason, file=self.file, line=self.line(*where))

    def problem(self, reason: str, *where: str | int) -> None:
        """Note that the value at *where* is wrong because of *reason*."""
        self.problems.append((self.line(*where), reason))

    def refuse_problems(self) -> None:
        """Raise BadInput for the problem with the lowest line, if there is any."""
        if self.problems:
            line, reason = min(self.problems, key=lambda problem: problem[0])
            raise BadInput(" ".join(reason.split()), file=self.file, line=line)

    def check(self, schema: Mapping[str, Any]) -> None:
        """Raise BadInput for the first value, by line, that the JSON Schema *schema* does not allow.

        A schema's ``description`` completes the sentence "VALUE is not ...". Beyond JSON Schema there are the
        keywords ``quantity`` (a dimension of :data:`firsttouch.units.UNITS`), ``percent`` (the sign: "negative" or
        "positive") and ``regex``.
        """
        for error in _validator(schema).iter_errors(self.data):
            for where, reason in _reasons(error):
                self.problem(reason, *where)
        self.refuse_problems()


def refuse_special(file: Path) -> None:
    """Raise BadInput for a device, a pipe or a socket; raises OSError if there is no *file*.

    They may have no end, or nobody who writes into them.
    """
    if kind := _SPECIAL.get(stat.S_IFMT(file.stat().st_mode)):
        raise BadInput(f"{kind}, not a file", file=file)


def read_text(file: Path | Traversable) -> str:
    """Return the text of *file*; raises BadInput if it cannot be read or is not UTF-8."""
    name = file if isinstance(file, Path) else str(file)
    try:
        if isinstance(file, Path):
            refuse_special(file)
        raw = file.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", file=name) from error
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise BadInput(f"not UTF-8 text: {error.reason}", file=name, line=line) from error


def tables(name: str, parse: Callable[[str, str], T]) -> list[T]:
    """Return what *parse* returns for the text and the name of each file *name*, such as policies.toml.

    The built-in file comes first, then the site's and the user's. A file of these that is wrong is reported on
    standard error and ignored, because every command reads it.
    """
    built_in, *others = paths.tables_of(name)
    parsed = [parse(read_text(built_in), str(built_in))]
    for file in others:
        try:
            parsed.append(parse(read_text(file), str(file)))
        except BadInput as error:
            print(one_line(f"firsttouch: this file is ignored: {error}"), file=sys.stderr)
    return parsed


# ----------------------------------------------------------------------
# Validation


def table_schema(required: Mapping[str, Any], optional: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the JSON schema of a table with these keys and no others."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": {**required, **(optional or {})},
    }


def schema_of(kind: type[Any]) -> dict[str, Any]:
    """Return the JSON schema of a mapping whose keys are the fields of a Struct, so that these are stated once.

    A field without a default is required. Its type says which values it takes: text, numbers, true or false,
    ``Literal`` words, a tuple or a frozenset, a mapping with any keys, or another Struct; ``X | None`` is an X
    that may be missing. ``Annotated`` adds keywords of :meth:`Document.check`. A field whose key is a word of
    Python has an underscore behind it.
    """
    fields = _fields(kind)  # type: ignore[arg-type]  # mypy takes no class for hashable
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [key for key, field in fields.items() if field.required],
        "properties": {key: hint_schema(field.type) for key, field in fields.items()},
        "description": "a mapping",
    }


def entries_schema(kind: type[Any], pattern: str) -> dict[str, Any]:
    """Return the JSON schema of a table of Structs by their field ``name``, which matches *pattern*."""
    entry = schema_of(kind)
    entry["required"].remove("name")
    del entry["properties"]["name"]
    return {"type": "object", "propertyNames": {"pattern": pattern}, "additionalProperties": entry}


@functools.cache
def _fields(kind: type[Struct]) -> Mapping[str, FieldInfo]:
    """Return the fields of a Struct by key. Their types are texts that Python evaluates, which takes long."""
    return {field.name.rstrip("_"): field for field in structs.fields(kind)}


_SCALARS: dict[Any, dict[str, Any]] = {
    str: {"type": "string", "description": "text"},
    bool: {"type": "boolean", "description": "true or false"},
    int: {"type": "integer", "description": "a whole number"},
    float: {"type": "number", "description": "a number"},
    Any: {},
}


def hint_schema(hint: Any) -> dict[str, Any]:
    """Return the JSON schema of a type as :func:`schema_of` takes them."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return {**hint_schema(arguments[0]), **arguments[1]}
    if origin in {Union, UnionType}:
        schemas = [hint_schema(argument) for argument in arguments if argument is not NoneType]
        return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    if origin is Literal:
        return {"enum": list(arguments), "description": f"one of {', '.join(map(str, arguments))}"}
    if origin in {tuple, frozenset, Sequence}:
        return {"type": "array", "items": hint_schema(arguments[0]), "description": "a list"}
    if origin in {dict, Mapping}:
        values = hint_schema(arguments[1])
        return {"type": "object", "additionalProperties": values, "description": "a mapping"}
    return dict(_SCALARS[hint]) if hint in _SCALARS else schema_of(hint)


def build(kind: type[T], data: Mapping[str, Any], **given: Any) -> T:
    """Return a Struct with the values of *data*, which have been checked with its :func:`schema_of`.

    Lists become tuples or frozensets, text with the keyword ``quantity`` a number of its unit, and ``percent`` a
    fraction. *given* are the values of fields that are not those of a file.
    """
    fields = _fields(kind)  # type: ignore[arg-type]  # mypy takes no class for hashable
    return kind(**{fields[key].name: _built(fields[key].type, value) for key, value in data.items()}, **given)


def _built(hint: Any, value: Any) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        if isinstance(value, str) and (dimension := arguments[1].get("quantity")):
            quantity = units.parse(value, dimension)
            return round(quantity) if arguments[0] is int else quantity
        return units.parse_percent(value) if "percent" in arguments[1] else _built(arguments[0], value)
    if origin in {Union, UnionType}:
        suited = [hint for hint in arguments if isinstance(value, _form(hint))]
        return _built(suited[0], value)
    if origin in {tuple, frozenset, Sequence}:
        collection = frozenset if origin is frozenset else tuple
        return collection(_built(arguments[0], item) for item in value)
    if origin in {dict, Mapping}:
        return {name: _built(arguments[1], item) for name, item in value.items()}
    has_fields = isinstance(hint, StructMeta)
    return build(hint, value) if has_fields else value


def _form(hint: Any) -> Any:
    """Return what a file has for a type."""
    forms = {tuple: list, frozenset: list, Mapping: dict, float: (int, float), Literal: object}
    return dict if isinstance(hint, StructMeta) else forms.get(get_origin(hint) or hint, hint)


def _validator(schema: Mapping[str, Any]) -> Any:
    import jsonschema  # noqa: PLC0415 - the import takes longer than most commands

    def keyword(check: Callable[[Any, str], object]) -> Callable[..., Iterator[ValidationError]]:
        def errors(_validator: Any, wanted: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
            if isinstance(instance, str):
                try:
                    check(wanted, instance)
                except BadInput as error:
                    yield jsonschema.ValidationError(str(error))

        return errors

    keywords = {
        "quantity": keyword(lambda dimension, text: units.parse(text, dimension)),
        "percent": keyword(_check_percent),
        "regex": keyword(lambda _, text: check_regex(text)),
    }
    return jsonschema.validators.extend(jsonschema.Draft202012Validator, keywords)(schema)  # type: ignore[no-untyped-call]


def _check_percent(sign: str, text: str) -> None:
    value = units.parse_percent(text)
    # ReFrame's range: the lower tolerance is in [-1, 0], the upper one is at least 0.
    if sign == "negative" and not -1 <= value <= 0:
        raise BadInput(f"'{text}' is not between -100 % and 0 %")
    if sign == "positive" and value < 0:
        raise BadInput(f"'{text}' is below 0 %")


def check_regex(text: str) -> None:
    """Raise BadInput if *text* is not a regular expression."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a later Python will read [a--z] as a difference
            re.compile(text)
    except (re.error, OverflowError, RecursionError, FutureWarning) as error:
        raise BadInput(f"'{text}' is not a regular expression: {error}") from error


def _reasons(error: ValidationError) -> Iterator[tuple[Where, str]]:
    """Yield the path and the reason of each mistake that a validator's *error* stands for."""
    where: Where = tuple(error.absolute_path)
    name = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in where).lstrip(".")
    inside, name = f" in {name}" if name else "", name or "the file"
    schema: dict[str, Any] = dict(error.schema) if isinstance(error.schema, dict) else {}
    instance: Any = error.instance
    match error.validator:
        case "additionalProperties":
            allowed = schema.get("properties", {})
            for key in sorted(set(instance) - set(allowed)):
                yield (
                    (*where, key),
                    f"unknown key '{key}'{inside}: known are {', '.join(allowed)}{did_you_mean(key, allowed)}",
                )
        case "required":
            missing = next(key for key in schema["required"] if key not in instance)
            yield where, f"key '{missing}' is missing{inside}"
        case "minItems" | "minProperties" if not instance:
            yield where, f"{name} is empty"
        case "enum" if "description" in schema:
            nearest = did_you_mean(str(instance), map(str, schema["enum"]))
            yield where, f"{name}: {_shortened(instance)} is not {schema['description']}{nearest}"
        case "quantity" | "percent" | "regex":
            yield where, f"{name}: {error.message}"
        case _ if "description" in schema:
            yield where, f"{name}: {_shortened(instance)} is not {schema['description']}"
        case _:
            yield where, f"{name}: {_cut(error.message)}"


def _cut(message: str) -> str:
    """Return the beginning of a validator's message, which quotes the value."""
    return message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]}..."


def _shortened(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = "null" if value is None else f"'{value}'"
    return text if len(text) <= 60 else text[:56] + "...'"


# ----------------------------------------------------------------------
# TOML


def parse_toml(text: str, file: str | Path) -> Document:
    """Return the TOML document *text*, the content of *file*; raises BadInput with the line."""
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise BadInput("not TOML: it is nested too deeply", file=file) from None
    except ValueError as error:
        reason, _, place = str(error).partition(" (at ")
        at = re.match(r"line (\d+)", place)
        # A number with too many digits is refused without its place.
        line = int(at[1]) if at else text.count("\n") + 1 if place else None
        raise BadInput(f"not TOML: {reason}", file=file, line=line) from None
    return Document(file, text, data, functools.partial(_toml_line, text))


def _toml_line(text: str, where: Where) -> int:
    """Return the line on which the key *where*, or the nearest table that holds it, begins.

    tomllib reports no positions. The beginning of a text up to the end of a statement is TOML, too, so the key is
    on the last line of the shortest beginning that has it.
    """
    lines = text.replace("\r\n", "\n").split("\n")

    def has(count: int) -> bool:
        """Return whether the statements that begin on the first *count* lines have the key."""
        beginnings = (_parsed(lines[:end]) for end in range(count, len(lines) + 1))
        return _has(next(data for data in beginnings if data is not None), where)

    while where and not _has(tomllib.loads(text), where):
        where = where[:-1]
    return bisect.bisect_left(range(len(lines)), True, key=has) if where else 1


def _has(data: Any, where: Where) -> bool:
    for step in where:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def _parsed(lines: Sequence[str]) -> dict[str, Any] | None:
    """Return the data of some lines, None if they end within a statement."""
    try:
        return tomllib.loads("\n".join(lines))
    except tomllib.TOMLDecodeError:
        return None


# ----------------------------------------------------------------------
# JSON that firsttouch writes and reads again


def attributes(thing: object, *names: str) -> dict[str, Any]:
    """Return attributes of an object by name, for its JSON form."""
    return {name: getattr(thing, name) for name in names}


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text[:20]} is not finite")
    return value


def read_json(
    file: Path, what: str, *, document: str, schema: int, form: Mapping[str, Any], again: str
) -> dict[str, Any]:
    """Return the JSON document in *file*, with the keys "document" and "schema"; raises BadInput if it is none.

    *what* names such a document in messages, *form* is its JSON Schema, and *again* says how to write it again.
    """
    try:
        text = read_text(file)
        data = json.loads(
            text, parse_int=lambda n: int(n) if _finite(n) else 0, parse_float=_finite, parse_constant=_finite
        )
    except (ValueError, RecursionError) as error:
        raise BadInput(f"not {what}, because it is not JSON: {again}", file=file) from error
    if not isinstance(data, dict) or data.get("document") != document:
        raise BadInput(f"not {what}: {again}", file=file)
    if (number := data.get("schema")) != schema:
        raise BadInput(f"{what} of schema {reprlib.repr(number)}, this version reads {schema}: {again}", file=file)
    import jsonschema  # noqa: PLC0415 - a large import that most commands do without

    for wrong in jsonschema.Draft202012Validator(form).iter_errors(data):
        where = ".".join(map(str, wrong.absolute_path)) or "the document"
        raise BadInput(f"not {what}, {_cut(f'{where}: {wrong.message}')}: {again}", file=file)
    return data


# ----------------------------------------------------------------------
# YAML: duplicate keys, tags and values that no JSON has are errors


def has_only_comments(text: str) -> bool:
    """Return whether a YAML text has no data."""
    return not any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines())


def parse_yaml(text: str, file: str | Path) -> Document:
    """Return the YAML document *text*, the content of *file*; raises BadInput with the line."""
    import yaml  # noqa: PLC0415 - most commands read no YAML

    # libyaml is ten times as fast, and takes tabs in words, which YAML forbids. What it refuses is read again in
    # Python: the messages are the same on hosts without libyaml.
    compiled = None if "\t" in text else getattr(yaml, "CSafeLoader", None)
    try:
        if compiled is not None:
            with contextlib.suppress(yaml.YAMLError):
                return _built_yaml(compiled(text), text, file)
        return _built_yaml(yaml.SafeLoader(text), text, file)
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise BadInput(f"not YAML: {error.reason}", file=file, line=line) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = " ".join(f"not YAML: {error.problem or error.context}".split())
        raise BadInput(reason, file=file, line=mark.line + 1 if mark else 1) from error
    except RecursionError as error:
        raise BadInput("YAML nested too deeply", file=file, line=1) from error


def _built_yaml(loader: yaml.SafeLoader, text: str, file: str | Path) -> Document:
    try:
        node = loader.get_single_node()
        if node is None:
            raise BadInput("an empty file", file=file, line=1)
        builder = _Builder(file, loader)
        return Document(file, text, builder.build(node, ()), builder.line)
    finally:
        loader.dispose()


class _Builder:
    """Turns YAML nodes into Python values and remembers the line of each."""

    def __init__(self, file: str | Path, loader: yaml.SafeLoader) -> None:
        self.file = file
        self.loader = loader
        self.lines: dict[Where, int] = {}

    def line(self, where: Where) -> int:
        while where not in self.lines:
            where = where[:-1]
        return self.lines[where]

    def build(self, node: yaml.Node, where: Where, line: int | None = None) -> Any:
        own = node.start_mark.line + 1
        # An alias's node is at its anchor; the line to repair is that of the alias.
        self.lines[where] = line or own
        if len(self.lines) > _MOST_VALUES:
            raise BadInput(f"too large: more than {_MOST_VALUES} values", file=self.file, line=own)
        match type(node).__name__, node.tag:
            case "MappingNode", "tag:yaml.org,2002:map":
                return self._mapping(node, where)
            case "SequenceNode", "tag:yaml.org,2002:seq":
                return [self.build(child, (*where, i)) for i, child in enumerate(node.value)]
            case "ScalarNode", _:
                return self._scalar(node)
        raise BadInput(f"the YAML tag '{node.tag}' is not allowed", file=self.file, line=own)

    def _mapping(self, node: yaml.Node, where: Where) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value in node.value:
            line = key_node.start_mark.line + 1
            key = self._scalar(key_node) if type(key_node).__name__ == "ScalarNode" else None
            if not isinstance(key, str):
                raise BadInput("a key that is not text: write it in quotes", file=self.file, line=line)
            if key in mapping:
                first = self.lines[(*where, key)]
                raise BadInput(f"duplicate key '{key}', first on line {first}", file=self.file, line=line)
            mapping[key] = self.build(value, (*where, key), line)
        return mapping

    def _scalar(self, node: yaml.Node) -> Any:
        # PyYAML has no value for the merge key and "=". They mean nothing here and stay text.
        if node.tag in {"tag:yaml.org,2002:merge", "tag:yaml.org,2002:value"}:
            return node.value
        try:
            value = self.loader.construct_object(node)
            if isinstance(value, str):
                value.encode()
            elif isinstance(value, float) and not math.isfinite(value):
                raise ValueError("not a finite number")
        except ValueError as error:  # also a date that does not exist, or half of a surrogate pair
            line = node.start_mark.line + 1
            raise BadInput(f"'{node.value!a}' cannot be read: {error}", file=self.file, line=line) from error
        return value
