# SPDX-License-Identifier: Apache-2.0
"""The metrics and parameters of all checks, from metrics.toml; adding one needs an entry there and no code.

References may name no others: they could never match a record. Records may; a report lists them as other metrics.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Annotated, Literal

from firsttouch import documents
from firsttouch.units import UNITS

Unit = Annotated[str, {"enum": ["1", *UNITS], "description": "the unit of a record"}]


@dataclass(frozen=True)
class Limit:
    """The verdict of a host with more events than *most*, in one session or per hour."""

    verdict: Literal["suspect", "fail"]
    most: Annotated[float, {"minimum": 0, "description": "a number of at least 0"}]
    per_hour: bool = False


@dataclass(frozen=True)
class Check:
    """A check: the units of its *metrics* by name, and the *parameters* that name a case, in their order.

    *data* are the units of the metrics that nothing judges, *limits* those of metrics that count events.
    """

    metrics: dict[str, Unit]
    parameters: tuple[str, ...]
    data: dict[str, Unit] = field(default_factory=dict)
    limits: dict[str, Limit] = field(default_factory=dict)


#: The form of metrics.toml: the checks by name.
SCHEMA = {"type": "object", "additionalProperties": documents.schema_of(Check)}


@functools.cache
def checks() -> dict[str, Check]:
    """Return the checks by name, in the order of metrics.toml; a site's file adds to them and may set limits."""
    merged: dict[str, Check] = {}
    for table in documents.tables("metrics.toml", parse):
        for name, added in table.items():
            check = merged.get(name, Check({}, ()))
            parameters = tuple(dict.fromkeys((*check.parameters, *added.parameters)))
            data = {**added.data, **check.data}
            judged = {metric: unit for metric, unit in added.metrics.items() if metric not in data}
            limits = {**check.limits, **added.limits}
            merged[name] = Check({**judged, **check.metrics}, parameters, data, limits)
    return merged


def parse(text: str, file: str) -> dict[str, Check]:
    """Return the checks of a TOML text; raises BadInput naming *file*, the line and the entry."""
    document = documents.parse_toml(text, file)
    document.check(SCHEMA)
    return {name: documents.build(Check, table) for name, table in document.data.items()}
