# SPDX-License-Identifier: Apache-2.0
"""Learns a system's references of a fleet's records, and puts them into the system's file."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firsttouch.errors import BadInput
from firsttouch.records import Record
from firsttouch.systems import Reference, System
from firsttouch.systems.vocabulary import METRICS, PARAMETERS
from firsttouch.verdict.fleet import FEWEST_HOSTS, LOSS, Level, learn
from firsttouch.verdict.model import case_name

BEGIN = "  # Learnt by `firsttouch baseline`, which writes these lines anew: do not change them."
END = "  # End of what was learnt."
#: A list without an entry, and what it becomes.
_EMPTY, _LIST = "references: []", "references:"


@dataclass(frozen=True)
class Learnt:
    """What is to be expected in one case: the parameters that name it, a record of it, and the fleet's level."""

    case: Mapping[str, Any]
    sample: Record
    level: Level

    @property
    def name(self) -> str:
        """The metric, with what tells its case from others."""
        return case_name(self.sample.check, self.sample.metric, self.case)

    def line(self) -> str:
        """Return the reference as an item of the list in the system's file."""
        one, level = self.sample, self.level
        value = f"{level.value:.6g}" if one.unit == "1" else f'"{level.value:.6g} {one.unit}"'
        share = f"{100 * level.limit:.3f} %"
        sides = {"lower": f"-{share}"} if one.better != "lower" else {}
        sides |= {"upper": share} if one.better != "higher" else {}
        source = (
            f"fleet of {level.hosts} hosts, {level.passes:.1f} passes each, {datetime.date.today().isoformat()}"
        )
        fields = {
            "check": one.check,
            "metric": one.metric,
            "parameters": json.dumps(dict(self.case)),
            "value": value,
            "tolerance": json.dumps(sides),
            "error": f'"{100 * level.error:.4f} %"',
            "source": json.dumps(source),
        }
        return "- {" + ", ".join(f"{k}: {v}" for k, v in fields.items() if v != "{}") + "}"


@dataclass(frozen=True)
class Baseline:
    """What was learnt of a fleet; *not_learnt* are cases with the reason, *outliers* (case, share) by host."""

    learnt: tuple[Learnt, ...]
    not_learnt: Mapping[str, str]
    outliers: Mapping[str, Sequence[tuple[str, float]]]


def baseline(records: Iterable[Record], system: System, *, loss: float = LOSS) -> Baseline:
    """Learn of each case of *records* what good hosts reach, and how to find hosts that lose a share of it.

    *system* is without what was learnt before; what it has a reference of its own for is left to that.
    """
    cases: dict[str, dict[str, list[Record]]] = {}
    for record in sorted(records, key=lambda r: r.time):
        if record.status == "valid" and record.judged and record.metric in METRICS.get(record.check, ()):
            key = json.dumps([record.check, record.metric, _case(record)], sort_keys=True)
            cases.setdefault(key, {}).setdefault(record.host, []).append(record)
    learnt, not_learnt = [], {}
    outliers: dict[str, list[tuple[str, float]]] = {}
    for hosts in _ends_of_curves(cases):
        sample = next(iter(hosts.values()))[0]
        case = _case(sample)
        level = learn({h: [r.value for r in mine] for h, mine in hosts.items()}, sample.better, loss)
        why = _why_not(level, sample, case, hosts, system)
        if level is None or why:
            not_learnt[case_name(sample.check, sample.metric, case)] = why
            continue
        found = Learnt(case, sample, level)
        learnt.append(found)
        for host, share in level.outliers.items():
            outliers.setdefault(host, []).append((found.name, share))
    return Baseline(tuple(learnt), not_learnt, outliers)


def _case(record: Record) -> dict[str, Any]:
    return {k: record.parameters[k] for k in PARAMETERS[record.check] if k in record.parameters}


def _ends_of_curves(cases: Mapping[str, dict[str, list[Record]]]) -> list[dict[str, list[Record]]]:
    """Return the cases; of a curve over sizes its ends: between them, a small shift of a cache's edge is a lot."""
    sizes: dict[str, list[tuple[int, dict[str, list[Record]]]]] = {}
    found = []
    for key, hosts in cases.items():
        parameters = next(iter(hosts.values()))[0].parameters
        if (size := parameters.get("size_bytes")) is None:
            found.append(hosts)
        else:
            rest = key.replace(f'"size_bytes": {size}', "")
            sizes.setdefault(rest, []).append((size, hosts))
    for curve in sizes.values():
        ordered = [hosts for _, hosts in sorted(curve, key=lambda c: c[0])]
        found += ordered if len(ordered) == 1 else [ordered[0], ordered[-1]]
    return found


def _why_not(
    level: Level | None, sample: Record, case: Mapping[str, Any], hosts: Mapping[str, Any], system: System
) -> str:
    """Return why there is no reference of a case, or an empty string."""
    own: Reference | None = system.reference(sample.check, sample.metric, case)
    if own is not None and len(own.parameters) >= len(case):
        return f"the system's file has a reference of its own for it (line {own.line})"
    if level is None and len(hosts) < FEWEST_HOSTS:
        return f"{len(hosts)} hosts have it, {FEWEST_HOSTS} are needed"
    if level is None:
        return "its values are not above 0"
    if level.more_passes:
        return f"its passes differ too much: {level.more_passes} more of each host are needed"
    return ""


def without(text: str) -> str:
    """Return the text of a system's file without what was learnt before."""
    lines = text.split("\n")
    if BEGIN not in lines or END not in lines:
        return text
    begin, end = lines.index(BEGIN), lines.index(END)
    following = next((line for line in lines[end + 1 :] if line.strip() and line.strip()[0] != "#"), "")
    if lines[begin - 1] == _LIST and following.strip()[:1] != "-":  # nothing else is in the list
        lines[begin - 1] = _EMPTY
    return "\n".join([*lines[:begin], *lines[end + 1 :]])


def put(text: str, found: Baseline) -> str:
    """Return the text of a system's file, :func:`without` what was learnt before, with *found*'s references."""
    lines = text.rstrip("\n").split("\n")
    begin = next((i for i, line in enumerate(lines) if line.startswith(_LIST)), None)
    if begin is None:
        lines.append(_LIST)
        begin = len(lines) - 1
    rest = lines[begin].removeprefix(_LIST).split("#")[0].strip()
    if rest not in {"", "[]"}:
        raise BadInput("its references are on one line: give each a line of its own, that others can be added")
    if rest:
        lines[begin] = _LIST
    # First in the list, indented as the others are.
    after = next((line for line in lines[begin + 1 :] if line.lstrip().startswith("- ")), "  - ")
    indent = after[: len(after) - len(after.lstrip())] if rest == "" else "  "
    block = [BEGIN, *(indent + one.line() for one in found.learnt), END]
    return "\n".join([*lines[: begin + 1], *block, *lines[begin + 1 :]]) + "\n"
