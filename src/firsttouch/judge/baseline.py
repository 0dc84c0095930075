# SPDX-License-Identifier: Apache-2.0
"""Learns a system's references of a fleet's records, and puts them into the system's file."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firsttouch.errors import BadInput
from firsttouch.judge import samples_table
from firsttouch.judge.fleet_level import FEWEST_HOSTS, LOSS, Level, divided, level
from firsttouch.judge.samples_table import Case, SamplesTable
from firsttouch.judge.verdict import case_name
from firsttouch.records.schema import Record
from firsttouch.systems.definition import System
from firsttouch.systems.facts import METRICS, PARAMETERS
from firsttouch.systems.references import Reference

BEGIN = "  # Learnt by `firsttouch baseline`, which writes these lines anew: do not change them."
END = "  # End of what was learnt."
#: A reference that finds only losses larger than so many times the one that is asked for hides it.
_LARGEST = 2.0
#: A list without an entry, and what it becomes.
_EMPTY, _LIST = "references: []", "references:"


@dataclass(frozen=True)
class Learnt:
    """What is to be expected in one case: the parameters that name it, a case of it, and the fleet's level."""

    case: Mapping[str, Any]
    sample: Case
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

    def weak(self, loss: float) -> dict[str, float]:
        """Return the references that do not find *loss* but only a larger one, with that, by their names."""
        return {one.name: 2 * one.level.limit for one in self.learnt if 2 * one.level.limit > loss * 1.001}


def baseline(records: Iterable[Record], system: System, *, loss: float = LOSS) -> Baseline:
    """Learn of each case of *records* what good hosts reach, and how to find hosts that lose a share of it.

    *system* is without what was learnt before; what it has a reference of its own for is left to that.
    """
    return learnt(samples_table.of_records(records), system, loss=loss)


def learnt(passes: SamplesTable, system: System, *, loss: float = LOSS) -> Baseline:
    """Learn as :func:`baseline` does, of passes in columns."""
    alike: dict[str, list[int]] = {}
    for number, one in enumerate(passes.cases):
        if one.metric in METRICS.get(one.check, ()):
            key = json.dumps([one.check, one.metric, _case(one)], sort_keys=True)
            alike.setdefault(key, []).append(number)
    found, not_learnt = [], {}
    outliers: dict[str, list[tuple[str, float]]] = {}
    for numbers in _ends_of_curves(list(alike.values()), passes.cases):
        sample = passes.cases[numbers[0]]
        known, hosts = passes.good(numbers)
        if not len(known):
            continue
        case = _case(sample)
        names = [passes.hosts[h] for h in hosts]
        reached = level(known, names, sample.better, loss)
        why = _why_not(reached, sample, case, len(known), system)
        if not why and (two := divided(known, names, sample.better)) is not None:
            why = f"two groups of hosts, say which one is right with --hosts: {two.text(sample.unit)}"
        elif not why and reached is not None and 2 * reached.limit > _LARGEST * loss:
            why = f"good hosts differ too much: only a loss of {200 * reached.limit:.0f} % would be seen"
        if reached is None or why:
            not_learnt[case_name(sample.check, sample.metric, case)] = why
            continue
        found.append(Learnt(case, sample, reached))
        for host, share in reached.outliers.items():
            outliers.setdefault(host, []).append((found[-1].name, share))
    return Baseline(tuple(found), not_learnt, outliers)


def _case(case: Case) -> dict[str, Any]:
    return {k: case.parameters[k] for k in PARAMETERS[case.check] if k in case.parameters}


def _ends_of_curves(alike: Sequence[Sequence[int]], cases: Sequence[Case]) -> list[Sequence[int]]:
    """Return the cases; of a curve over sizes its ends: between them, a small shift of a cache's edge is a lot."""
    sizes: dict[str, list[tuple[int, Sequence[int]]]] = {}
    found = []
    for numbers in alike:
        case = cases[numbers[0]]
        if (size := case.parameters.get("size_bytes")) is None:
            found.append(numbers)
        else:
            rest = {k: v for k, v in _case(case).items() if k != "size_bytes"}
            key = json.dumps([case.check, case.metric, rest], sort_keys=True)
            sizes.setdefault(key, []).append((size, numbers))
    for curve in sizes.values():
        ordered = [numbers for _, numbers in sorted(curve, key=lambda c: c[0])]
        found += ordered if len(ordered) == 1 else [ordered[0], ordered[-1]]
    return found


def _why_not(reached: Level | None, sample: Case, case: Mapping[str, Any], hosts: int, system: System) -> str:
    """Return why there is no reference of a case, or an empty string."""
    own: Reference | None = system.reference(sample.check, sample.metric, case)
    if own is not None and len(own.parameters) >= len(case):
        return f"the system's file has a reference of its own for it (line {own.line})"
    if reached is None and hosts < FEWEST_HOSTS:
        return f"{hosts} hosts have it, {FEWEST_HOSTS} are needed"
    if reached is None:
        return "its values are not above 0"
    if reached.more_passes:
        return f"its passes differ too much: {reached.more_passes} more of each host are needed"
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
