# SPDX-License-Identifier: Apache-2.0
"""The site's settings for the life of its fleet, from fleet.yaml: notices, mail, held hosts and screening.

:func:`load` merges the site's file and the user's, key by key, over the defaults of the dataclasses below. A wrong
file is an error and not ignored, because it decides about hosts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from firsttouch import documents, paths
from firsttouch.units import parse, parse_percent

NAME = "fleet.yaml"
#: What a notice may be about.
EVENTS = ("fail", "hold", "release", "drain")
#: A fraction, which is text such as "5 %" in the file.
Share = float


@dataclass(frozen=True)
class Notify:
    """The site's own *command* for notices: it gets a line in *format* about the *events*, and *timeout* s."""

    command: tuple[str, ...] = ()
    format: str = "text"
    events: tuple[str, ...] = EVENTS
    timeout: float = 10.0


@dataclass(frozen=True)
class Hold:
    """Which hosts are held, and how they are tested again.

    Without *act*, `fleet tend` only prints what it would do. Hosts with one of *verdicts* that is younger than
    *max_age* are held, with at most *per_hour* actions in an hour and a *cool_down* between two holds of a host.
    At most the share *max_out* of a system's hosts is held or drained by the rules, but one host in any case. A
    held host is released after *passes* in a row, and left to a person after *tries* tests without a decision.
    *reservation* begins the names of the reservations. *effort*, *repetitions*, *steps* (patterns; none: all) and
    *sbatch* (options) describe the tests. Times are in seconds.
    """

    act: bool = False
    verdicts: tuple[str, ...] = ("fail",)
    max_age: float = 7 * 86400.0
    per_hour: int = 3
    max_out: Share = 0.05
    cool_down: float = 86400.0
    passes: int = 2
    tries: int = 6
    reservation: str = "firsttouch"
    effort: str = "full"
    repetitions: int = 5
    steps: tuple[str, ...] = ()
    sbatch: tuple[str, ...] = ()


@dataclass(frozen=True)
class Screening:
    """Which hosts are due for validation: older than *max_age* (s), within *budget* (s of one host's time).

    The budget is that of a *period* (s). Jobs that wait longer than *patience* (s) are reported. *qos*,
    *partition* and *nice* are Slurm's options of the jobs, *sbatch* further ones.
    """

    max_age: float = 7 * 86400.0
    budget: float = 40 * 3600.0
    period: float = 7 * 86400.0
    patience: float = 2 * 86400.0
    qos: str = ""
    partition: str = ""
    nice: int = 10_000
    sbatch: tuple[str, ...] = ()


@dataclass(frozen=True)
class SiteSettings:
    """All settings; *mail* is the user or the address that Slurm mails about the jobs of held hosts."""

    mail: str = ""
    notify: Notify = field(default_factory=Notify)
    hold: Hold = field(default_factory=Hold)
    screening: Screening = field(default_factory=Screening)


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": dict(properties),
        "description": "a mapping",
    }


def _texts(what: str, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": f"a list of {what}", **more}


def _one_of(*words: str) -> dict[str, Any]:
    return {"enum": list(words), "description": f"one of {', '.join(words)}"}


_TEXT = {"type": "string", "description": "text"}
_COUNT = {"type": "integer", "minimum": 1, "description": "a whole number of at least 1"}
_DURATION = {
    "allOf": [{"type": "string", "description": 'a time such as "24h"'}, {"type": "string", "quantity": "seconds"}]
}
_SHARE = {"type": "string", "percent": "positive", "description": 'a share such as "5 %"'}
_EVENTS = {"type": "array", "items": _one_of(*EVENTS), "description": "a list of events"}
#: Text that is one word in a command of Slurm, and no option.
_WORD = {"type": "string", "pattern": r"\A[A-Za-z0-9_][A-Za-z0-9_.@+-]*\Z", "description": "one word"}
SCHEMA: dict[str, Any] = _object(
    {
        "mail": _WORD,
        "notify": _object(
            {
                "command": _texts("arguments, the program first", minItems=1),
                "format": _one_of("text", "json"),
                "events": _EVENTS,
                "timeout": _DURATION,
            }
        ),
        "hold": _object(
            {
                "act": {"type": "boolean", "description": "true or false"},
                "verdicts": {
                    "type": "array",
                    "items": _one_of("suspect", "fail"),
                    "description": "a list of verdicts",
                },
                "max_age": _DURATION,
                "per_hour": _COUNT,
                "max_out": _SHARE,
                "cool_down": _DURATION,
                "passes": _COUNT,
                "tries": _COUNT,
                "reservation": {
                    "type": "string",
                    "pattern": r"\A[A-Za-z][A-Za-z0-9_]{0,30}\Z",
                    "description": "a letter, then letters, digits and '_', 31 at most",
                },
                "effort": _TEXT,
                "repetitions": _COUNT,
                "steps": _texts("patterns of step names"),
                "sbatch": _texts("options for sbatch"),
            }
        ),
        "screening": _object(
            {
                "max_age": _DURATION,
                "budget": _DURATION,
                "period": _DURATION,
                "patience": _DURATION,
                "qos": _WORD,
                "partition": _WORD,
                "nice": {"type": "integer", "minimum": 0, "description": "a whole number of at least 0"},
                "sbatch": _texts("options for sbatch"),
            }
        ),
    }
)
_SECTIONS = {"notify": Notify, "hold": Hold, "screening": Screening}


def load() -> SiteSettings:
    """Return the site's settings; raises BadInput, with the line, for a file that is wrong."""
    merged: dict[str, Any] = {name: {} for name in _SECTIONS}
    for file in paths.tables_of(NAME):
        for key, value in _parsed(documents.read_text(file), file).items():
            if key in _SECTIONS:
                merged[key] |= value
            else:
                merged[key] = value
    sections = {name: _section(kind, merged.pop(name)) for name, kind in _SECTIONS.items()}
    return SiteSettings(**merged, **sections)


def _parsed(text: str, file: Path) -> dict[str, Any]:
    """Return the data of one file; one with comments only is empty."""
    if not any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines()):
        return {}
    document = documents.parse_yaml(text, file)
    document.check(SCHEMA)
    return dict(document.data)


def _section(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """Return a section: lists as tuples, durations in seconds, and shares as fractions."""
    kinds = {f.name: f.type for f in fields(kind)}
    return kind(**{name: _value(str(kinds[name]), value) for name, value in values.items()})


def _value(kind: str, value: Any) -> Any:
    if kind == "float":
        return parse(value, "seconds")
    if kind == "Share":
        return parse_percent(value)
    return tuple(value) if isinstance(value, list) else value
