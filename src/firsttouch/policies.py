# SPDX-License-Identifier: Apache-2.0
"""The memory policies, read from policies.toml: a new one is an entry there, no code."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal, get_args

import jsonschema

from firsttouch.errors import BadInput

Extent = Literal["whole", "part"]
PAGES = ("anywhere", "inside", "even")
_OPTIONS = {"type": "array", "items": {"type": "string"}}


def _both(value: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["whole", "part"],
        "properties": {"whole": value, "part": value},
    }


SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["title", "whole", "part", "mode", "pages", "tolerance"],
    "properties": {
        "title": {"type": "string"},
        "whole": _OPTIONS,
        "part": _OPTIONS,
        "mode": _both({"type": "string"}),
        "pages": _both({"enum": list(PAGES)}),
        "tolerance": {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
    },
}


@dataclass(frozen=True)
class Policy:
    """One policy: numactl's options and what the kernel must show, for one instance and for several."""

    name: str
    title: str
    whole: tuple[str, ...]
    part: tuple[str, ...]
    mode: Mapping[str, str]
    pages: Mapping[str, str]
    tolerance: float

    def numactl(self, extent: Extent, *, bind: str, numa_nodes: str) -> tuple[str, ...]:
        """Return numactl's options, with the placeholders of policies.toml filled in."""
        template = self.whole if extent == "whole" else self.part
        return tuple(t.format(bind=bind, numa_nodes=numa_nodes) for t in template)


def parse(text: str, file: str) -> dict[str, Policy]:
    """Return the policies of a TOML text; raises BadInput naming *file* and the entry."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(str(error), file=file) from error
    policies = {}
    for name, table in tables.items():
        try:
            jsonschema.validate(table, SCHEMA)
            one = Policy(**{**table, "name": name, "whole": tuple(table["whole"]), "part": tuple(table["part"])})
            for extent in get_args(Extent):
                one.numactl(extent, bind="", numa_nodes="")
        except jsonschema.ValidationError as error:
            where = ".".join(map(str, error.absolute_path)) or "the entry"
            raise BadInput(f"policy {name}: {where}: {error.message}", file=file) from error
        except (KeyError, IndexError, ValueError) as error:
            raise BadInput(f"policy {name}: unknown placeholder: {error}", file=file) from error
        policies[name] = one
    return policies


@functools.cache
def policies() -> dict[str, Policy]:
    """Return all policies by name, in the order of policies.toml."""
    file = resources.files("firsttouch") / "policies.toml"
    return parse(file.read_text(encoding="utf-8"), "policies.toml")


def policy(name: str) -> Policy:
    """Return the policy of that name; raises BadInput that lists the known ones."""
    try:
        return policies()[name]
    except KeyError:
        raise BadInput(f"no policy '{name}': there are {', '.join(policies())}") from None
