# SPDX-License-Identifier: Apache-2.0
"""Names of metrics on a page: without the parameters that are the same in all cases of a metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firsttouch.verdict.model import case_name
from firsttouch.verdict.passes import Case


@dataclass(frozen=True)
class Names:
    """The names *of* cases, in their order, and what they leave out as it is *shared*: a line for each metric."""

    of: Sequence[str]
    shared: Sequence[str]


def names(cases: Sequence[Case]) -> Names:
    """Return the names of *cases* among each other."""
    same: dict[tuple[str, str], dict[str, Any]] = {}
    for case in cases:
        known = same.setdefault((case.check, case.metric), dict(case.parameters))
        for key in [k for k, v in known.items() if case.parameters.get(k) != v]:
            del known[key]
    found = [case_name(c.check, c.metric, _without(c.parameters, same[c.check, c.metric])) for c in cases]
    told = (case_name(*metric, shared) for metric, shared in same.items() if shared)
    plain = {case_name(*metric, {}) for metric in same}
    return Names(found, [text for text in told if text not in plain])


def _without(parameters: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in parameters.items() if k not in shared}
