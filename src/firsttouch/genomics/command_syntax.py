# SPDX-License-Identifier: Apache-2.0
"""How users call an aligner: the table ``[command]`` of its TOML file, and the parsing of commands.

The table describes the aligner's real option parser: getopt(3), GNU getopt_long(3) with its abbreviations, or
options that are separate words (SNAP). :mod:`firsttouch.genomics.command_line` gives the arguments a meaning.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, Struct, defstruct, field

from firsttouch.documents import Count, FileTable, Word, Words
from firsttouch.errors import BadInput

# ----------------------------------------------------------------------
# The table [command]

_Commands = Annotated[tuple[Words, ...], Meta(min_length=1)]
#: Options, separated by spaces, by a reason or the template of a name.
_Reasons = Mapping[str, Word]
#: The kinds of operands (words without an option).
_Operand = Literal["index", "reads", "reads2", "output"]
OPERANDS: tuple[_Operand, ...] = get_args(_Operand)
#: The files that follow a type of SNAP.
_Type = Literal["mates", "interleaved", "records"]
#: The suffix of an option's name that selects the compression of its files.
_COMPRESSION = re.compile("-(gz|bz2|lz4|zst)$")
#: The placeholders in names of files that an option makes the program write.
_NAME_PARTS = ("name", "stem", "mate", "suffix", "folder", "option")
#: The keys that hold options with a meaning.
ROLES = (
    *("threads", "index", "single", "mates1", "mates2", "interleaved", "batch"),
    *("output", "sam", "removes", "large", "summary"),
)


class Pipes(FileTable, frozen=True):
    """The words that pass reads as pipes to an instance."""

    single: Words
    paired: Words
    interleaved: Words = ()


#: The types of the keys and their defaults, which :func:`syntax` does not need: it reads the table.
_KEYS: dict[str, tuple[Any, Any]] = {
    **dict.fromkeys(ROLES, (Words, ())),
    **dict.fromkeys(("mates_with", "adds", "stdout", "harmless", "index_variants"), (Words, ())),
    **dict.fromkeys(("refused", "short", "long", "script", "words"), (Word, "")),
    **dict.fromkeys(("index_suffix", "index_folder", "program"), (Word, "")),
    **dict.fromkeys(("all_threads", "comma", "several", "units", "stdin", "dash_output"), (bool, False)),
    **dict.fromkeys(("pipe_on_stdin", "index_made", "mates_by_name"), (bool, False)),
    **dict.fromkeys(("batch_thread", "threads_default"), (Count, 1)),
    **dict.fromkeys(("writes", "whole", "needs"), (_Reasons, MappingProxyType({}))),
    "begins_paired": (_Commands, ()),
    "operands": (Annotated[tuple[_Operand, ...], Meta(min_length=1)], ()),
    "types": (Annotated[Mapping[str, _Type], Meta(min_length=1)] | None, None),
    "pipes": (Pipes | None, None),
}
#: The table ``[command]``.
CommandTable = defstruct(
    "CommandTable",
    [("begins", _Commands), *((key, *typed) for key, typed in _KEYS.items())],
    bases=(FileTable,),
    frozen=True,
)


class Syntax(Struct, frozen=True):
    """The table ``[command]``; docs/reference/data-files.md describes the keys.

    *arity* has the number of values of every option, None for an optional value, which is part of the option's
    word. *roles* has the options by the key that gives them a meaning, *writes* the templates of the names of
    files that the program writes and *whole* the reasons by option, and *needs* the options by reason.
    """

    begins: tuple[tuple[str, ...], ...]
    arity: Mapping[str, int | None]
    single_words: bool
    roles: Mapping[str, tuple[str, ...]]
    writes: Mapping[str, tuple[str, ...]]
    whole: Mapping[str, str]
    needs: Mapping[str, tuple[str, ...]]
    of_script: frozenset[str]
    flags: frozenset[str]
    begins_paired: tuple[tuple[str, ...], ...] = ()
    refused: str = ""
    operands: tuple[str, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    adds: tuple[str, ...] = ()
    stdout: tuple[str, ...] = ()
    pipes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    harmless: frozenset[str] = frozenset()
    index_variants: tuple[str, ...] = ()
    index_suffix: str = ""
    index_folder: str = ""
    program: str = ""
    batch_thread: int = 0
    threads_default: int = 1
    mates_with: tuple[str, ...] = ()

    def length_of_call(self, words: Sequence[str]) -> int:
        """Return how many of the first *words* call this aligner, 0 if they do not."""
        name = [*(word.rpartition("/")[2] for word in words[:1]), *words[1:]]
        return next((len(b) for b in (*self.begins, *self.begins_paired) if name[: len(b)] == list(b)), 0)

    def has_role(self, option: str, *roles: str) -> bool:
        """Return whether *option* has one of the *roles*."""
        return any(option in self.roles.get(role, ()) for role in roles)

    def files_written(self, option: str, values: Sequence[str]) -> Iterator[str]:
        """Yield the names of the files that the program writes for *option*, in addition to its alignments."""
        for template in self.writes.get(option, ()):
            for value in values:
                yield from _filled(template, option, value)


def _filled(template: str, option: str, value: str) -> Iterator[str]:
    """Yield the names that *template* gives for an *option* and its *value*, of both mates if it has {mate}.

    In a value for both mates, % may mark the place of the mate's number. A template with {folder} is for values
    that are folders.
    """
    of_folder = "{folder}" in template
    if of_folder and not os.path.isdir(value or "."):  # noqa: PTH112 - a value need not be a path
        return
    stem, suffix = os.path.splitext(value)  # noqa: PTH122 - a path loses ./
    for mate in ("1", "2") if "{mate}" in template else ("",):
        if mate and "%" in value and not of_folder:
            yield value.replace("%", mate)
        else:
            parts = {"name": value, "stem": stem, "suffix": suffix, "mate": mate, "folder": value or "."}
            yield template.format(**parts, option=_COMPRESSION.sub("", option.lstrip("-")))


def syntax(data: Mapping[str, Any]) -> Syntax:
    """Return the syntax that a valid table ``[command]`` describes."""
    writes = _templates(data.get("writes", {}))
    derived = {
        "arity": _arity(data),
        "single_words": "words" in data,
        "roles": {role: tuple(data[role]) for role in ROLES if role in data},
        "writes": writes,
        "whole": dict.fromkeys(writes.keys() - set(data.get("summary", ())), "writes a further file")
        | {option: reason for reason, options in data.get("whole", {}).items() for option in options.split()},
        "needs": {reason: tuple(options.split()) for reason, options in data.get("needs", {}).items()},
        "of_script": frozenset(_arity({"script": data.get("script", "")})),
        "flags": frozenset(key for key, value in data.items() if value is True),
    }
    names = set(Syntax.__struct_fields__) - derived.keys()
    return msgspec.convert({key: data[key] for key in data.keys() & names} | derived, Syntax)


def _templates(data: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the templates of names by option, from the options by template."""
    options = dict.fromkeys(option for names in data.values() for option in names.split())
    return {o: tuple(t for key, names in data.items() if o in names.split() for t in key.split()) for o in options}


def _arity(data: Mapping[str, Any]) -> dict[str, int | None]:
    """Return the number of values of every option; raises ValueError for text that is not a list of options."""
    arity: dict[str, int | None] = {}
    short = data.get("short", "")
    if re.sub(r"[^:;\s-]:{0,2}", "", short):
        raise ValueError(f"short: '{short}' is not a list of letters, each with : for a value")
    for letter, colons in re.findall(r"([^:])(:{0,2})", short):
        arity[f"-{letter}"] = (0, 1, None)[len(colons)]
    for key, dashes in (("long", "--"), ("script", "--"), ("words", "")):
        for item in data.get(key, "").split():
            match = re.fullmatch(r"([^:]+)(:(\d?)|::)?", item)
            if not match:
                raise ValueError(f"{key}: '{item}' is not a name, with : for a value or :2 for two")
            values = None if match[2] == "::" else int(match[3] or 1) if match[2] else 0
            arity[dashes + match[1]] = values
    return arity


def mistakes(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (key, reason) for values that match the schema but cannot work."""
    try:
        arity = _arity(data)
    except ValueError as error:
        key, _, reason = str(error).partition(": ")
        yield key, reason
        return
    if "refused" in data:
        return
    named = [(key, data[key]) for key in ROLES if key in data]
    named += [
        (key, options.split()) for key in ("writes", "whole", "needs") for options in data.get(key, {}).values()
    ]
    named += [("harmless", [text.split()[0] for text in data.get("harmless", ())])]
    for key, options in named:
        if strange := [option for option in options if option not in arity]:
            yield key, f"'{strange[0]}' is not among the options in short, long or words"
    for template in " ".join(data.get("writes", {})).split():
        try:
            template.format(**dict.fromkeys(_NAME_PARTS, ""))
        except (AttributeError, IndexError, KeyError, ValueError):
            placeholders = ", ".join(f"{{{part}}}" for part in _NAME_PARTS)
            yield "writes", f"'{template}' is not a file's name with {placeholders}"
    if "pipes" not in data:
        yield "begins", "pipes is missing, which states how an instance gets its reads"
    allowed = {"single": {"{reads}"}, "paired": {"{reads}", "{reads2}"}, "interleaved": {"{reads}"}}
    for way, words in data.get("pipes", {}).items():
        wrong = [p for word in words for p in re.findall(r"\{.*?\}", word) if p not in allowed[way]]
        if wrong or not any("{reads}" in word for word in words):
            yield "pipes", f"{way}: {wrong[0] if wrong else 'none'} is not one of {', '.join(allowed[way])}"
    if "index" not in data and "index" not in data.get("operands", ()):
        yield "begins", "index or operands must state where the index is"


# ----------------------------------------------------------------------
# A command's arguments


class Argument(Struct, frozen=True):
    """An option with its *values*, or an operand, whose *name* is empty.

    It spans the words *start* to *end* of the command, which a cluster of short options shares. *unknown*: the
    option is not in the table. *role* is one of ROLES or OPERANDS, "extra" for an extra operand, or empty.
    """

    name: str
    values: tuple[str, ...]
    start: int
    end: int
    unknown: bool = False
    role: str = ""

    def alone(self, arity: Mapping[str, int | None]) -> list[str]:
        """Return the words of this argument outside of a cluster."""
        if self.name and self.values and arity.get(self.name, 1) is None:
            return [self.name + ("=" if self.name.startswith("--") else "") + self.values[0]]
        return [word for word in (self.name, *self.values) if word]


class Arguments(Struct, frozen=True):
    """The arguments of a command. *unclear*: an unknown option makes it unclear which words are operands."""

    items: tuple[Argument, ...]
    unclear: bool = False

    @property
    def unknown(self) -> list[str]:
        """The options that are not in the table."""
        return [argument.name for argument in self.items if argument.unknown]

    @property
    def roles(self) -> frozenset[str]:
        """The roles of all arguments."""
        return frozenset(argument.role for argument in self.items)

    def last(self, role: str) -> Argument | None:
        """Return the last argument of that role."""
        return next((argument for argument in reversed(self.items) if argument.role == role), None)


def divide(syntax: Syntax, words: Sequence[str], first: int, *, paired: bool = False) -> Arguments:
    """Divide *words* from number *first* on into arguments; raises BadInput for an option without its value.

    *paired*: a file name without a type is the first of two (SNAP).
    """
    if syntax.single_words:
        items = list(_single_words(syntax, words, first, paired))
    else:
        items = list(_getopt(syntax, words, first))
    # A word behind an unknown option may be its value.
    unclear = any(
        a.unknown and a.end < len(words) and not words[a.end].startswith("-") and "=" not in words[a.end - 1]
        for a in items
    )
    return Arguments(tuple(items), unclear)


def _values(words: Sequence[str], at: int, count: int, option: str) -> tuple[str, ...]:
    if at + count > len(words):
        raise BadInput(f"{option} needs {count} value{'s' * (count > 1)}")
    return tuple(words[at : at + count])


def _getopt(syntax: Syntax, words: Sequence[str], first: int) -> Iterator[Argument]:
    at = first
    while at < len(words):
        word = words[at]
        if word == "--":
            yield Argument("--", (), at, at + 1)
            yield from (Argument("", (word,), at + n, at + n + 1) for n, word in enumerate(words[at + 1 :], 1))
            return
        if word.startswith("--"):
            option = _long(syntax, words, at)
            yield option
            at = option.end
        elif word.startswith("-") and word != "-":
            cluster = list(_cluster(syntax, words, at))
            yield from cluster
            at = cluster[-1].end
        else:
            yield Argument("", (word,), at, at + 1)
            at += 1


def _long(syntax: Syntax, words: Sequence[str], at: int) -> Argument:
    """Return the long option at word *at*; GNU getopt_long also takes an unambiguous beginning of its name."""
    given, equals, attached = words[at].partition("=")
    candidates = [given] if given in syntax.arity else [name for name in syntax.arity if name.startswith(given)]
    if len(candidates) != 1:
        return Argument(given, (attached,) if equals else (), at, at + 1, unknown=True)
    name, count = candidates[0], syntax.arity[candidates[0]]
    if equals:
        return Argument(name, (attached,), at, at + 1)
    values = _values(words, at + 1, count or 0, name)
    values += _further(syntax, name, words, at + 1 + len(values))
    return Argument(name, values, at, at + 1 + len(values))


def _cluster(syntax: Syntax, words: Sequence[str], at: int) -> Iterator[Argument]:
    """Yield the short options of the word *at*: flags, and up to one option with a value."""
    word = words[at]
    parsed: list[tuple[str, tuple[str, ...], bool]] = []
    end = at + 1
    for number, letter in enumerate(word[1:], 1):
        name, rest = f"-{letter}", word[number + 1 :]
        if name not in syntax.arity:
            parsed.append((name, (rest,) if rest else (), True))
            break
        count = syntax.arity[name]
        if count == 0:
            parsed.append((name, (), False))
            continue
        values: tuple[str, ...] = (rest,) if rest else ()
        if count and not rest:
            values = _values(words, at + 1, count, name)
            values += _further(syntax, name, words, at + 1 + len(values))
            end += len(values)
        parsed.append((name, values, False))
        break
    yield from (Argument(name, values, at, end, unknown) for name, values, unknown in parsed)


def _further(syntax: Syntax, name: str, words: Sequence[str], at: int) -> tuple[str, ...]:
    """Return the further values of an option with several values (Perl's Getopt::Long)."""
    if "several" not in syntax.flags or not syntax.has_role(name, "single", "mates1", "mates2", "interleaved"):
        return ()
    end = at
    while end < len(words) and (words[end] == "-" or not words[end].startswith("-")):
        end += 1
    return tuple(words[at:end])


def _single_words(syntax: Syntax, words: Sequence[str], first: int, paired: bool) -> Iterator[Argument]:
    """Yield the arguments of a command whose options are words, and whose files may follow their type."""
    operands = list(syntax.operands)
    at = first
    while at < len(words):
        word = words[at]
        name, count = "", 1
        if operands[:1] == ["index"]:
            operands.pop(0)
        elif word in syntax.types:
            name, count = word, 2 if paired and syntax.types[word] == "mates" else 1
        elif word in syntax.arity:
            name, count = word, syntax.arity[word] or 0
            typed = words[at + 1 : at + 2] and words[at + 1].startswith("-") and words[at + 1] != "-"
            count += bool(typed and syntax.has_role(word, "output"))
        elif word.startswith("-"):
            name, count = word, 0
        elif paired and not word.endswith((".sam", ".bam")):
            count = 2
        begin = at + bool(name)
        unknown = bool(name) and name not in syntax.types and name not in syntax.arity
        yield Argument(name, _values(words, begin, count, word), at, begin + count, unknown)
        at = begin + count
