# SPDX-License-Identifier: Apache-2.0
"""What identifies a measurement: records of one case are repetitions of the same thing.

metrics.toml names the parameters that identify the cases of a check. All other parameters of a record are results,
or follow from these. The cases of a check without an entry, such as a site's, are identified by all parameters.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from firsttouch.records.schema import Better
from firsttouch.systems.metrics import checks
from firsttouch.units import format_bytes

#: The parameters that identify a case of any check, although no reference may name them.
_BESIDE = ("effort", "division", "reads", "batch_bases")
#: The parameters that a name shows, and those that it shows for the cases of a check.
_SHOWN = frozenset(
    [
        *("pu_nodes", "bank", "banks", "threads", "size_bytes", "program", "kernel"),
        *("aligner", "dataset", "scenario", "index_cache", "mode"),
    ]
)
_SHOWN_OF: Mapping[str, frozenset[str]] = {
    "health": frozenset(["module"]),
    "loaded_latency": frozenset(["load", "load_bank", "read_share"]),
    "core_to_core": frozenset(["shared", "cache_level", "line"]),
    "locks": frozenset(["lock", "parsing", "batch", "work_ns", "placement"]),
    "pages": frozenset(["pages"]),
    "stores": frozenset(["instructions", "stores"]),
}
#: Further parameters that are shown where they distinguish cases, the most telling first; others follow.
_TELLING = ("effort", "policy", "instructions", "stores", "pages", "order", "relation", "source")
_PROBE = frozenset(["firsttouch-probe", "probe"])


@dataclass(frozen=True)
class Case:
    """A metric of a check in one case: *parameters* are those that identify it. Values are in *unit*.

    *distinctive* are those of the parameters that its name shows beside the usual ones, because another case of
    the same records differs in nothing else.
    """

    system: str
    check: str
    metric: str
    parameters: Mapping[str, Any]
    unit: str
    better: Better
    distinctive: tuple[str, ...] = field(default=(), compare=False)

    @cached_property
    def name(self) -> str:
        """The metric with the parameters that distinguish its case from others of the check, for programs."""
        return case_name(self.check, self.metric, self.parameters, self.distinctive)

    @cached_property
    def title(self) -> str:
        """The same in words, for readers."""
        return case_in_words(self.check, self.metric, self.parameters, self.distinctive)

    @property
    def key(self) -> str:
        """A text that is the same for all records of the case (see :func:`case_key`)."""
        return case_key(self.check, self.metric, self.parameters)

    @property
    def exact(self) -> bool:
        """Whether values are read from the host and not measured: a single one is as good as many."""
        return self.check in {"topology", "health"}


def case_of(check: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return those *parameters* of a record that identify its case among others of the check."""
    names = (*checks()[check].parameters, *_BESIDE) if check in checks() else parameters
    return {name: parameters[name] for name in names if name in parameters}


def case_key(check: str, metric: str, parameters: Mapping[str, Any]) -> str:
    """Return a text that is the same for all records of a case of one host, and for no others."""
    return json.dumps([check, metric, case_of(check, parameters)], sort_keys=True, default=str)


# ----------------------------------------------------------------------
# Names


def distinguished(cases: Sequence[Case]) -> list[Case]:
    """Return *cases* with names that differ: each shows the fewest further parameters that tell it apart."""
    alike: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, case in enumerate(cases):
        alike[case.system, case.name].append(number)
    result = list(cases)
    for numbers in alike.values():
        if len(numbers) > 1:
            names = _distinctive([cases[number].parameters for number in numbers])
            for number in numbers:
                result[number] = replace(cases[number], distinctive=names)
    return result


def _distinctive(alike: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the names of parameters in which cases differ that otherwise have the same name."""
    present = {name for parameters in alike for name in parameters}
    order = [*(name for name in _TELLING if name in present), *sorted(present.difference(_TELLING))]
    chosen: list[str] = []
    texts = [""] * len(alike)
    for name in order:
        longer = [
            f"{text} {name}={_text(p[name])}" if name in p else text for text, p in zip(texts, alike, strict=True)
        ]
        if len({*longer}) > len({*texts}):
            chosen.append(name)
            texts = longer
        if len({*texts}) == len(texts):
            break
    return tuple(chosen)


def case_name(check: str, metric: str, case: Mapping[str, Any], distinctive: Sequence[str] = ()) -> str:
    """Return a metric with the parameters that distinguish its case from others of the check."""
    shown = _shown(check, distinctive)
    return " ".join([check, metric, *(f"{k}={_text(v)}" for k, v in case.items() if k in shown)])


def _shown(check: str, distinctive: Sequence[str]) -> frozenset[str]:
    return _SHOWN | _SHOWN_OF.get(check, frozenset()) | {*distinctive}


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def case_in_words(check: str, metric: str, case: Mapping[str, Any], distinctive: Sequence[str] = ()) -> str:
    """Return a metric with its case in a few words: ``copy, NUMA 1 to bank 1``.

    The check is named if it is not the first one in metrics.toml that has the metric.
    """
    name = metric.removesuffix("_bandwidth") if check == "bandwidth" else metric
    first = next((other for other, c in checks().items() if metric in c.metrics or metric in c.data), "")
    prefix = "" if first == check or check in metric else f"{check} "
    parts = [f"{prefix}{name}".replace("_", " ")]
    nodes, bank = case.get("pu_nodes"), case.get("bank", case.get("banks"))
    if nodes is not None:
        where = f"NUMA {_text(nodes)}"
        parts.append(where if bank is None else f"{where} to bank {_text(bank)}")
    elif bank is not None:
        parts.append(f"bank {_text(bank)}")
    if "size_bytes" in case:
        size = case["size_bytes"]
        parts.append(format_bytes(size) if isinstance(size, (int, float)) else _text(size))
    if "threads" in case:
        parts.append(f"{_text(case['threads'])} thread{'s' * (case['threads'] != 1)}")
    if "load" in case:
        parts.append(f"{_text(case['load'])} load")
    if "pages" in case:
        parts.append(f"{_text(case['pages'])} pages")
    words = ("module", "shared", "stores", "instructions", "aligner", "dataset", "scenario")
    parts += [_text(case[k]) for k in words if k in case]
    if case.get("program", "probe") not in _PROBE:
        parts.append(_text(case["program"]))
    in_words = {*words, *("pu_nodes", "bank", "banks", "size_bytes", "threads", "load", "pages", "program")}
    in_words |= {"kernel"} if metric.startswith(_text(case.get("kernel", "")) or metric) else set()
    others = _shown(check, distinctive) - in_words
    parts += [f"{k.replace('_', ' ')} {_text(v)}" for k, v in case.items() if k in others]
    return ", ".join(parts)
