# SPDX-License-Identifier: Apache-2.0
"""The memory policies, read from policies.toml: a new one is an entry there, no code."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import resources
from typing import Literal, cast

from firsttouch.errors import BadInput

Extent = Literal["whole", "part"]
PAGES = ("anywhere", "inside", "even")


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
    wanted = {f.name for f in fields(Policy)} - {"name"}
    policies = {}
    for name, table in tables.items():
        if not isinstance(table, dict) or set(table) != wanted:
            raise BadInput(f"policy {name}: needs exactly {', '.join(sorted(wanted))}", file=file)
        if any(set(table[k]) != {"whole", "part"} for k in ("mode", "pages")):
            raise BadInput(f"policy {name}: mode and pages need whole and part", file=file)
        if bad := set(table["pages"].values()) - set(PAGES):
            raise BadInput(f"policy {name}: pages may be {', '.join(PAGES)}, not {', '.join(bad)}", file=file)
        table |= {"whole": tuple(table["whole"]), "part": tuple(table["part"])}
        policies[name] = Policy(name=name, **cast(dict[str, object], table))  # type: ignore[arg-type]
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
