# SPDX-License-Identifier: Apache-2.0
"""What the papers' prose says in numbers, as data: one TOML file per paper in claims/.

A claim names its place in the paper, says in own words what is claimed there, and states it as a comparison of
cells of the published tables. No claim is a verdict: whether it holds is computed (see judge.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from firsttouch import tomldoc
from firsttouch.errors import BadInput
from firsttouch.paper.sheets import SHEETS

#: How far a computed number may be from the one in the prose, as a part of it: prose rounds.
TOLERANCE = 0.05

_SELECT = {
    "type": "object",
    "additionalProperties": {
        "anyOf": [
            {"type": ["string", "number"]},
            {"type": "array", "items": {"type": ["string", "number"]}, "minItems": 1},
            {"type": "object", "properties": {"not": {}}, "required": ["not"], "additionalProperties": False},
        ]
    },
}
_PICK = {
    **_SELECT,
    "properties": {
        "take": {"enum": ["only", "min", "max", "mean", "median"]},
        "sheet": {"enum": sorted(SHEETS)},
        "column": {"type": "string"},
    },
}
_EXPECT = {
    "anyOf": [
        {"enum": ["all", "nearly all", "most", "some", "not all", "none"]},
        {"type": "integer", "minimum": 0},
    ]
}
_COLUMNS = {"type": "array", "items": {"type": "string"}}
#: kind -> the keys that it must have beside those of all claims.
_KINDS: dict[str, tuple[str, ...]] = {
    "compare": ("sheet", "each", "left", "relation", "expect"),
    "value": ("sheet", "each", "left", "take"),
    "falls": ("sheet", "each", "along", "expect"),
    "rank": ("sheet", "each", "who", "places", "expect"),
    "formula": ("formula", "cells", "value"),
    "rows": ("sheet", "formula", "column"),
    "same": ("sheet", "other", "each"),
    "plan": ("system", "aligners", "instances"),
}
#: kind -> keys of which it must have one.
_ONE_OF = {"compare": {"right", "bound"}, "value": {"value", "between"}}
_CLAIM = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^[a-z0-9-]+$"},
        "where": {"type": "string"},
        "says": {"type": "string"},
        "note": {"type": "string"},
        "kind": {"enum": list(_KINDS)},
        "sheet": {"enum": sorted(SHEETS)},
        "other": {"enum": sorted(SHEETS)},
        "select": _SELECT,
        "except": _SELECT,
        "each": _COLUMNS,
        "left": _PICK,
        "right": _PICK,
        "who": _SELECT,
        "places": {"type": "array", "items": {"type": "integer", "minimum": 1}},
        "best": {"enum": ["highest", "lowest"]},
        "relation": {"enum": ["<", ">"]},
        "factor": {"type": "number", "exclusiveMinimum": 0},
        "bound": {"type": "number"},
        "expect": _EXPECT,
        "along": {"type": "string"},
        "take": {"enum": ["min", "max", "range"]},
        "form": {"enum": ["left", "ratio", "percent", "difference"]},
        "unit": {"type": "string"},
        "per": {"type": "number", "exclusiveMinimum": 0},
        "value": {"type": "number"},
        "between": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
        "tolerance": {"type": "number", "minimum": 0},
        "formula": {"type": "string"},
        "cells": {"type": "object", "additionalProperties": _PICK},
        "column": {"type": "string"},
        "system": {"type": "string"},
        "aligners": {"type": "array", "items": {"type": "string"}},
        "instances": {"type": "integer", "minimum": 1},
    },
    "required": ["id", "where", "says", "kind"],
    "additionalProperties": False,
}
_SCHEMA = {
    "type": "object",
    "properties": {"paper": {"type": "string"}, "claim": {"type": "array", "items": _CLAIM, "minItems": 1}},
    "required": ["paper", "claim"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Claim:
    """One claim: of which *paper*, *where* in it, what it *says* (own words), and the comparison *body*.

    *source* names file and line of the claim, for errors.
    """

    id: str
    paper: str
    where: str
    says: str
    note: str
    kind: str
    file: str
    line: int
    body: Mapping[str, Any] = field(default_factory=dict)


def load() -> list[Claim]:
    """Return the claims of all papers, in the order of their files and places."""
    folder = resources.files("firsttouch.paper").joinpath("claims")
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    found = [claim for f in files for claim in parse(f.read_text(encoding="utf-8"), f.name)]
    seen: dict[str, Claim] = {}
    for claim in found:
        if claim.id in seen:
            raise BadInput(f"a second claim '{claim.id}': name it otherwise", file=claim.file, line=claim.line)
        seen[claim.id] = claim
    return found


def parse(text: str, file: str) -> list[Claim]:
    """Return the claims of a TOML text; raises BadInput naming *file*, the line and what is wrong."""
    data = tomldoc.loads(text, file)
    tomldoc.check(data, _SCHEMA, text, file)
    found = []
    for number, entry in enumerate(data["claim"]):
        line = tomldoc.line_of(text, ["claim", number])
        lacking = [key for key in _KINDS[entry["kind"]] if key not in entry]
        for kind, keys in _ONE_OF.items():
            if entry["kind"] == kind and not keys & entry.keys():
                lacking.append(" or ".join(sorted(keys)))
        if lacking:
            reason = f"claim '{entry['id']}' of kind {entry['kind']} needs {', '.join(lacking)}"
            raise BadInput(reason, file=file, line=line)
        own = {"id", "where", "says", "note", "kind"}
        found.append(
            Claim(
                id=entry["id"],
                paper=data["paper"],
                where=entry["where"],
                says=entry["says"],
                note=entry.get("note", ""),
                kind=entry["kind"],
                file=file,
                line=line,
                body={k: v for k, v in entry.items() if k not in own},
            )
        )
    return found
