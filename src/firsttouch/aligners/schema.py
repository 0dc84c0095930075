# SPDX-License-Identifier: Apache-2.0
"""What an aligner's TOML file may say, and what its argv templates hold."""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from firsttouch import tomldoc
from firsttouch.errors import BadInput
from firsttouch.units import parse_bytes

#: What is equal between scenarios: every alignment line, or what :func:`firsttouch.sam.settled` keeps of it.
SAME = ("exact", "settled")
_WORDS = {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}
_STEPS = {"type": "array", "items": _WORDS, "minItems": 1}
_WORD = {"type": "string", "minLength": 1}
_COUNT = {"type": "integer", "minimum": 1}


def _table(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": required | (optional or {}),
    }


SCHEMA: dict[str, Any] = _table(
    {
        "program": _WORD,
        "version": _table({"argv": _WORDS, "pattern": _WORD}),
        "index": _table({"argv": _WORDS, "files": _WORDS}, {"large": _WORD}),
        "align": _table(
            {"single": _STEPS, "paired": _STEPS, "in_order": {"type": "boolean"}, "same": {"enum": list(SAME)}},
            {"batch_bases": _COUNT, "batch_reads": _COUNT, "batch_bytes": _COUNT},
        ),
        "memory": _table({"instance": _WORD, "thread": _WORD}),
    },
    {"debian": _WORD, "homepage": {"type": "string", "pattern": r"^https?://\S+$"}},
)
#: The placeholders of the read files, by mate.
MATES = ("reads", "reads2")
#: Those for programs that read no pipe but their standard input: one read file, or both of a pair in turn.
STDIN = {"stdin": (0,), "interleaved": (0, 1)}


def read(text: str, file: str) -> dict[str, Any]:
    """Return what an aligner's TOML *text* says; raises BadInput naming *file*, the line and what is wrong."""
    data = tomldoc.loads(text, file)
    tomldoc.check(data, SCHEMA, text, file)
    for table, key, reason in _mistakes(data):
        raise BadInput(f"{table}.{key}: {reason}", file=file, line=tomldoc.line_of(text, [table, key]))
    return data


def fields(template: Sequence[str]) -> list[str]:
    """Return the placeholders of an argv template; raises ValueError where braces do not match."""
    parsed = [part for argument in template for part in string.Formatter().parse(argument)]
    if odd := [field for _, field, spec, conversion in parsed if spec or conversion]:
        raise ValueError(f"{{{odd[0]}}} stands alone, without : or !")
    return [field for _, field, _, _ in parsed if field is not None]


def mates_of(template: Sequence[str]) -> tuple[int, ...]:
    """Return which read files (0, 1) a step reads."""
    used = fields(template)
    named = {mate for mate, name in enumerate(MATES) if name in used}
    return tuple(sorted(named.union(*(mates for name, mates in STDIN.items() if name in used))))


def _mistakes(data: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (table, key, what is wrong) of values that are right by themselves but say nothing sensible."""
    try:
        groups = re.compile(data["version"]["pattern"]).groups
        if groups != 1:
            yield "version", "pattern", f"has {groups} groups, one is needed (the version)"
    except re.error as error:
        yield "version", "pattern", str(error)
    for key in ("instance", "thread"):
        try:
            parse_bytes(data["memory"][key])
        except BadInput as error:
            yield "memory", key, str(error)
    for reason in _wrong_steps([data["index"]["argv"]], {"index", "reference"}, needed={"index", "reference"}):
        yield "index", "argv", reason
    align = data["align"]
    batches = {"batch_bases"} if "batch_bases" in align else set()
    known = {"index", "threads", "scratch", *batches, *(["size"] if "large" in data["index"] else [])}
    for key, mates, stdin in (("single", MATES[:1], "stdin"), ("paired", MATES, "interleaved")):
        wrong = itertools.chain(
            _wrong_steps(align[key], {*known, *mates, stdin}, needed={"index", "threads", *batches}),
            _wrong_reads(align[key], len(mates)),
        )
        yield from (("align", key, reason) for reason in wrong)


def _wrong_steps(steps: Sequence[Sequence[str]], known: set[str], *, needed: set[str]) -> Iterator[str]:
    """Yield what is wrong with the placeholders of argv templates that run one after the other."""
    found: set[str] = set()
    for step in steps:
        try:
            used = fields(step)
        except ValueError as error:
            yield f"{error} in {' '.join(step)}"
            return
        found.update(used)
        if unknown := sorted(set(used) - known):
            yield f"unknown placeholder {{{unknown[0]}}} in {' '.join(step)}: known are {_names(known)}"
    if lacking := needed - found:
        yield f"no step has {_names(lacking)}"


def _wrong_reads(steps: Sequence[Sequence[str]], mates: int) -> Iterator[str]:
    """Yield what is wrong with how the steps read their *mates* read files (1 or 2)."""
    covered: set[int] = set()
    for step in steps:
        used = [field for field in fields(step) if field in {*MATES, *STDIN}]
        covered.update(mates_of(step))
        # A pipe is read once.
        if twice := [field for field in used if used.count(field) > 1]:
            yield f"a step can read {{{twice[0]}}} once only: {' '.join(step)}"
        if not STDIN.keys().isdisjoint(used) and len(used) > 1:
            yield f"a step that reads its standard input reads nothing else: {' '.join(step)}"
    if lacking := set(range(mates)) - covered:
        yield f"no step reads {_names({MATES[mate] for mate in lacking})}"


def _names(placeholders: set[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(placeholders))
