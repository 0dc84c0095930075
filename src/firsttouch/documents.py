# SPDX-License-Identifier: Apache-2.0
"""Data files in TOML, YAML and JSON: read, converted to structures, and every error with its file and line.

:func:`parse_toml` and :func:`parse_yaml` return a :class:`Document`, whose :meth:`~Document.convert` validates it.
Both raise BadInput for anything that cannot be read.
"""

from __future__ import annotations

import atexit
import bisect
import contextlib
import functools
import gc
import math
import operator
import re
import reprlib
import stat
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct, field, inspect

from firsttouch import paths, units
from firsttouch.errors import BadInput, did_you_mean, one_line

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    import yaml

# The garbage collection at the interpreter's exit crashes at random while it clears msgspec's types with a Meta
# (https://github.com/jcrist/msgspec/issues/717). Frozen objects are not collected.
atexit.register(gc.freeze)

#: The path of a value in a document: keys of mappings and indexes of lists.
Where = tuple[str | int, ...]
T = TypeVar("T")
#: The most characters of a value's path that a message has.
_LONGEST_NAME = 200
#: The most values of a YAML document. Aliases repeat values, so a document can be far larger than its text.
_MOST_VALUES = 100_000
#: Words for what else a path may be.
_SPECIAL = {stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


class ParsedFile(Struct, frozen=True):
    """A parsed file: its *text*, its *data*, and a function that returns the 1-based line of the value at a path.

    *problems* are the lines that are wrong, with the reasons.
    """

    file: str | Path
    text: str
    data: Any
    line_of: Callable[[Where], int]
    problems: list[tuple[int, str]] = field(default_factory=list)

    def line(self, *where: str | int) -> int:
        """Return the line of the value at *where*, or of the innermost value around it."""
        return self.line_of(where)

    def at(self, where: Where) -> Any:
        """Return the value at *where*."""
        return _at(self.data, where)

    def error(self, reason: str, *where: str | int) -> BadInput:
        """Return an error with *reason* for the value at *where*."""
        return BadInput(reason, file=self.file, line=self.line(*where))

    def problem(self, reason: str, *where: str | int) -> None:
        """Add a problem with *reason* at the line of the value at *where*."""
        self.problems.append((self.line(*where), reason))

    def refuse_problems(self) -> None:
        """Raise BadInput for the problem with the lowest line, if there is any."""
        if self.problems:
            line, reason = min(self.problems, key=lambda problem: problem[0])
            raise BadInput(" ".join(reason.split()), file=self.file, line=line)

    def convert(self, kind: type[T], *where: str | int, **given: Any) -> T:
        """Return the value at *where* as a *kind*, such as a :class:`Table`, with the additional fields *given*.

        Raises BadInput, with its line, for a value of another type, and for a key in *given*.
        """
        data = self.at(where)
        if given and isinstance(data, dict):
            for key in given.keys() & data.keys():
                raise self.error(f"unknown key '{key}'", *where, key)
            data = {**data, **given}
        try:
            return msgspec.convert(data, kind, dec_hook=_read)
        except msgspec.ValidationError as error:
            below, reason = _fault(kind, data, str(error), where)
            raise self.error(" ".join(reason.split()), *where, *below) from None
        except BadInput as error:
            raise self.error(error.reason, *where) from None

    def entries(self, kind: type[T], pattern: str) -> dict[str, T]:
        """Return the file's tables, each as a *kind* with its name, which matches *pattern*."""
        self.convert(dict[Annotated[str, Meta(pattern=pattern)], Any])
        return {name: self.convert(kind, name, name=name) for name in self.data}


def refuse_special(file: Path) -> None:
    """Raise BadInput for a device, a pipe or a socket; raises OSError if *file* does not exist.

    They may have no end, or no writer.
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
    """Return the result of *parse* for the text and the name of each file *name*, such as policies.toml.

    The built-in file comes first, then the site's and the user's. An invalid file of the site or the user is
    reported on standard error and ignored, because every command reads it.
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
# Types of values


class FileTable(Struct, frozen=True, forbid_unknown_fields=True, rename=lambda name: name.rstrip("_")):
    """The base of structures whose fields are the keys of a data file.

    A key that is a keyword of Python ends with an underscore. The ``description`` of a type's Meta completes the
    sentence "VALUE is not ...".
    """


Word = Annotated[str, Meta(min_length=1)]
Words = Annotated[tuple[Word, ...], Meta(min_length=1)]
Text = Annotated[str, Meta(pattern=r"\S", description="text")]
Count = Annotated[int, Meta(ge=1)]


class Seconds(float):
    """A duration, in a file with its unit."""

    parse = functools.partial(units.parse, dimension="seconds")


class Transfers(float):
    """Transfers per second, in a file with their unit."""

    parse = functools.partial(units.parse, dimension="transfers per second")


class Bytes(int):
    """A size, in a file usually with its unit."""

    parse = staticmethod(units.parse_bytes)


class Percentage(float):
    """A fraction of at least 0, in a file in percent."""

    @staticmethod
    def parse(text: str) -> float:
        """Return the fraction; raises BadInput."""
        if (share := units.parse_percent(text)) < 0:
            raise BadInput(f"'{text}' is below 0 %")
        return share


class Regex(str):
    """A regular expression."""

    __slots__ = ()

    @staticmethod
    def parse(text: str) -> str:
        """Return *text*; raises BadInput if it is not a regular expression, or blank."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # a future Python will read [a--z] as a set difference
                re.compile(text)
        except (re.error, OverflowError, RecursionError, FutureWarning) as error:
            raise BadInput(f"'{text}' is not a regular expression: {error}") from error
        if not text.strip():
            raise BadInput("a blank regular expression")
        return text


def _read(kind: Any, value: object) -> Any:
    """Convert a file's *value* to one of the types above."""
    if not isinstance(value, str) and (kind is Regex or type(value) not in {int, float}):
        raise ValueError(f"Expected `str`, got `{type(value).__name__}`")
    try:
        return kind(kind.parse(str(value)))
    except BadInput as error:
        raise ValueError(error.reason) from error


# ----------------------------------------------------------------------
# Errors in data that msgspec refuses


def _fault(kind: Any, data: Any, message: str, above: Where = ()) -> tuple[Where, str]:
    """Return the path of the value that msgspec's *message* is about, below *above*, and what is wrong with it."""
    at = re.search(r" - at `(key` in `)?\$([^`]*)`\Z", message)
    reason, in_key, path = (message[: at.start()], bool(at[1]), at[2]) if at else (message, False, "")
    where: Where = ()
    for key, index in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", path + "[...]" * in_key):
        step: str | int | None = int(index) if index.isdecimal() else key
        if index == "...":  # msgspec does not name the key of a mapping: convert each entry alone
            names = (name for name in _at(data, where) if _message(kind, _only(data, where, name)) == message)
            step = next(names, None)
        if step is None:
            break
        where = (*where, step)
    value = where[-1] if in_key else _at(data, where)
    name = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in (*above, *where)).lstrip(".")
    name = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."
    inside, name = f" in {name}" if name else "", name or "the file"
    words, description = _allowed(inspect.type_info(kind), where, in_key=in_key)
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", reason, re.DOTALL):
        key, keys = unknown[1], f"known are {', '.join(words)}"
        return (*where, key), f"unknown key {_shortened(key)}{inside}: {keys}{did_you_mean(key, words)}"
    if missing := re.fullmatch(r"Object missing required field `(.*)`", reason):
        return where, f"key '{missing[1]}' is missing{inside}"
    if reason.startswith("Invalid enum value"):
        reason = f"{_shortened(value)} is not one of {', '.join(words)}{did_you_mean(str(value), words)}"
    elif value in ([], {}) and "length" in reason:
        return where, f"{name} is empty"
    elif reason.startswith("Expected "):
        types = re.sub(r"^Expected |, got .*| \| null", "", reason)
        reason = f"{_shortened(value)} is not {description or types}"
    return where, f"{name}: {reason}"


def mistake(kind: Any, data: Any) -> str:
    """Return why *data* is not a valid *kind*, or an empty string."""
    message = _message(kind, data)
    return _fault(kind, data, message)[1] if message else ""


def _message(kind: Any, data: Any) -> str:
    try:
        msgspec.convert(data, kind, dec_hook=_read)
    except ValueError as error:
        return str(error)
    return ""


def _at(data: Any, where: Where) -> Any:
    return functools.reduce(operator.getitem, where, data)


def _only(data: Any, where: Where, key: str) -> Any:
    """Return *data* with only the key *key* in the mapping at *where*."""
    if not where:
        return {key: data[key]}
    changed = data.copy()
    changed[where[0]] = _only(data[where[0]], where[1:], key)
    return changed


def _allowed(node: Any, where: Where, description: str = "", *, in_key: bool = False) -> tuple[list[str], str]:
    """Return the keys or words that the type *node* allows at *where*, and its description."""
    if isinstance(node, inspect.Metadata):
        return _allowed(node.type, where, (node.extra_json_schema or {}).get("description", ""), in_key=in_key)
    if isinstance(node, inspect.UnionType):
        parts = [_allowed(each, where, description, in_key=in_key) for each in node.types]
        texts = [text for _, text in parts if text]
        is_whole = len(texts) == sum(not isinstance(each, inspect.NoneType) for each in node.types)
        return [word for words, _ in parts for word in words], " or ".join(texts) if is_whole else ""
    fields = {field.encode_name: field.type for field in getattr(node, "fields", ())}
    if not where:
        return [*fields] or [*map(str, getattr(node, "values", ()))], description
    items = dict(enumerate(getattr(node, "item_types", ())))
    values = getattr(node, "value_type", getattr(node, "item_type", None))
    child = node.key_type if in_key and len(where) == 1 else {**fields, **items}.get(where[0]) or values
    return _allowed(child, where[1:], in_key=in_key)


def _shortened(value: Any) -> str:
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = "null" if value is None else f"'{value}'"
    return text if len(text) <= 60 else text[:56] + "...'"


# ----------------------------------------------------------------------
# TOML


def parse_toml(text: str, file: str | Path) -> ParsedFile:
    """Return the TOML document *text*, the content of *file*; raises BadInput with the line."""
    import tomllib  # noqa: PLC0415 - its loading is a twentieth of a short command

    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise BadInput("not TOML: it is nested too deeply", file=file) from None
    except ValueError as error:
        reason, _, place = str(error).partition(" (at ")
        at = re.match(r"line (\d+)", place)
        # Python refuses a number with too many digits without stating where it is.
        line = int(at[1]) if at else text.count("\n") + 1 if place else None
        raise BadInput(f"not TOML: {reason}", file=file, line=line) from None
    return ParsedFile(file, text, data, functools.partial(_toml_line, text))


def _toml_line(text: str, where: Where) -> int:
    """Return the line on which the key *where*, or the nearest table that holds it, begins.

    tomllib reports no positions. The first lines of a TOML text are TOML, too, if they end with a complete
    statement: the key is on the last line of the shortest such part that has it.
    """
    lines = text.replace("\r\n", "\n").split("\n")

    def has(count: int) -> bool:
        """Return whether the statements that begin on the first *count* lines have the key."""
        beginnings = (_parsed(lines[:end]) for end in range(count, len(lines) + 1))
        return _has(next(data for data in beginnings if data is not None), where)

    while where and not _has(_parsed(lines), where):
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
    import tomllib  # noqa: PLC0415 - see parse_toml

    try:
        return tomllib.loads("\n".join(lines))
    except tomllib.TOMLDecodeError:
        return None


# ----------------------------------------------------------------------
# JSON: built-in tables that most commands read, and what firsttouch writes and reads again


def parse_table(text: str, file: str) -> ParsedFile:
    """Return the document *text* in TOML, or in JSON if it is built in; raises BadInput with the line."""
    if file.endswith(".json"):
        return ParsedFile(file, text, msgspec.json.decode(text), lambda _where: 1)
    return parse_toml(text, file)


def attributes(thing: object, *names: str) -> dict[str, Any]:
    """Return attributes of an object by name, for its JSON form."""
    return {name: getattr(thing, name) for name in names}


def read_json(file: Path, what: str, *, document: str, schema: int, form: type[Any], again: str) -> dict[str, Any]:
    """Return the JSON document in *file*, with the keys "document" and "schema"; raises BadInput if it is not one.

    *what* names such a document in messages, *form* is its structure, and *again* says how to write it again.
    """
    try:
        data = msgspec.json.decode(read_text(file))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"not {what}, because it is not JSON: {again}", file=file) from error
    if not isinstance(data, dict) or data.get("document") != document:
        raise BadInput(f"not {what}: {again}", file=file)
    if (number := data.get("schema")) != schema:
        raise BadInput(f"{what} of schema {reprlib.repr(number)}, this version reads {schema}: {again}", file=file)
    if reason := mistake(form, data):
        raise BadInput(f"not {what}, {reason}: {again}", file=file)
    return data


# ----------------------------------------------------------------------
# YAML: duplicate keys, tags and values that JSON cannot express are errors


def parse_yaml(text: str, file: str | Path) -> ParsedFile:
    """Return the YAML document *text*, the content of *file*; raises BadInput with the line."""
    import yaml  # noqa: PLC0415 - most commands read no YAML

    # libyaml is ten times as fast, and accepts tabs within words, which YAML forbids. A text that it refuses is
    # read again in Python, so that the messages are the same on hosts without libyaml.
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


def _built_yaml(loader: yaml.SafeLoader, text: str, file: str | Path) -> ParsedFile:
    try:
        node = loader.get_single_node()
        if node is None:
            raise BadInput("an empty file", file=file, line=1)
        builder = _Builder(file, loader)
        return ParsedFile(file, text, builder.build(node, ()), builder.line)
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
        # The node of an alias has the line of its anchor; the line to correct is the alias's.
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
        # PyYAML has no value for the merge key and "=". Here they are plain text.
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
