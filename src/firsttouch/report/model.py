# SPDX-License-Identifier: Apache-2.0
"""What a report is made of: hosts, their records, references and problems."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from markupsafe import Markup

from firsttouch.host.topology import Topology
from firsttouch.records.schema import Record
from firsttouch.report.text import listed

# ----------------------------------------------------------------------
# What a report is made of: problems, references, tables, figures, and figures that could not be drawn.

Kind = Literal["failed", "skipped", "invalid"]


@dataclass(frozen=True)
class Problem:
    """A check that failed, was skipped (something is missing on the host) or whose result is invalid.

    *check* is the check's word in the records (``latency``), "" where the problem is none of one check.
    """

    name: str
    kind: Kind
    reason: str
    host: str = ""
    check: str = field(kw_only=True)

    def concerns(self, check: str) -> bool:
        """Tell whether this is why the figure of *check* may be missing."""
        return self.check == check


@dataclass(frozen=True)
class Reference:
    """What a system is expected to reach, in the record's unit, between *lower* and *upper*; its *source*."""

    value: float
    lower: float | None
    upper: float | None
    source: str


#: Finds the reference of a record, or None: how the two are matched belongs to the system's description.
References = Callable[[Record], Reference | None]


@dataclass(frozen=True)
class Table:
    """A table: *numeric* names the columns (by position) that are aligned as numbers.

    *groups* are rows above the header: what each heading says (or ``""``), and how many columns it spans.
    """

    caption: str
    header: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    numeric: frozenset[int] = frozenset()
    groups: tuple[tuple[tuple[str, int], ...], ...] = ()


@dataclass(frozen=True)
class Panel:
    """One drawing: inline SVG that carries its own title and description; *width* in CSS pixels."""

    svg: Markup
    width: int


@dataclass(frozen=True)
class Figure:
    """A figure: its panels, how to read it, what it *shows* here (sentences), how it was measured, its numbers."""

    name: str
    title: str
    how: str
    shows: tuple[str, ...]
    measured: str
    panels: tuple[Panel, ...]
    tables: tuple[Table, ...]


@dataclass(frozen=True)
class Absent:
    """A figure that could not be drawn, and why."""

    title: str
    reason: str


# ----------------------------------------------------------------------
# The records of each host, sorted out: current, superseded, invalid, and those that name no usable case.

#: The parameters that name a record's place in a figure: numbers, NUMA nodes (one or a list), or text.
NEEDED: dict[str, dict[str, str]] = {
    "latency": {"size_bytes": "number", "pu_nodes": "nodes", "bank": "nodes"},
    "bandwidth": {"kernel": "text", "pu_nodes": "nodes", "bank": "nodes"},
    "contention": {"threads": "number"},
    "scaling": {
        "aligner": "text",
        "dataset": "text",
        "policy": "text",
        "instances": "number",
        "threads": "number",
    },
}
NEEDED["placement"] = NEEDED["scaling"]
NEEDED["weak_scaling"] = {**NEEDED["scaling"], "reads_per_thread": "number"}

#: What names a run of an aligner; its other parameters tell what came of it (a checksum, CPU seconds).
_RUN = (*NEEDED["weak_scaling"], "scenario", "reads", "batch_bases")


@dataclass(frozen=True)
class HostView:
    """One host of one system and partition, and its records.

    *valid* holds the latest valid record of each case, in a stable order; *superseded* counts older ones.
    """

    key: str
    host: str
    system: str
    partition: str
    valid: tuple[Record, ...]
    invalid: tuple[Record, ...]
    superseded: int
    problems: tuple[Problem, ...]
    topology: Topology | None

    def of(self, *checks: str, metric: str | None = None) -> list[Record]:
        """Return the valid records of those checks (and that metric)."""
        return [r for r in self.valid if r.check in checks and metric in {None, r.metric}]

    def metric(self, check: str, name: str) -> Record | None:
        """Return the valid record of a metric that a check has once per host."""
        return next(iter(self.of(check, metric=name)), None)

    def why_absent(self, *checks: str) -> str:
        """Return the reason why there is nothing valid to show of the first of *checks* (or the others)."""
        for problem in self.problems:
            if any(problem.concerns(check) for check in checks):
                return f"{problem.kind}: {problem.reason}"
        reasons = sorted({r.reason for r in self.invalid if r.check in checks})
        if reasons:
            return f"all its records are invalid: {listed(reasons, most=3)}"
        return "no record of it is among those that this report was made from"


def case_of(record: Record) -> dict[str, Any]:
    """Return the parameters that tell the record's case from others: two records of one case compare."""
    known = record.parameters
    # A counted run is one too, other than what `firsttouch-probe` was counted doing.
    if record.check in {"scaling", "placement", "weak_scaling"} or "scenario" in known:
        return {name: known[name] for name in _RUN if name in known}
    return dict(known)


def common(records: Sequence[Record]) -> dict[str, Any]:
    """Return the parameters of the case that all *records* share."""
    first, *rest = [case_of(r) for r in records]
    return {k: v for k, v in first.items() if all(k in other and other[k] == v for other in rest)}


def whole(record: Record, name: str) -> int:
    """Return a parameter that was checked to be a number (see NEEDED)."""
    return int(record.parameters[name])


def node_set(value: Any) -> tuple[int, ...] | None:
    """Return the NUMA nodes of a parameter, which is a number or a list of them; None for anything else."""
    items = value if isinstance(value, (list, tuple)) else [value]
    if items and all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in items):
        return tuple(sorted(items))
    return None


def pu_nodes(record: Record) -> tuple[int, ...]:
    """Return the NUMA nodes whose PUs the threads of the record ran on; empty where it does not say."""
    return node_set(record.parameters.get("pu_nodes")) or ()


def banks(record: Record) -> tuple[int, ...]:
    """Return the NUMA nodes that held the record's memory; empty where it does not say."""
    return node_set(_bank(record)) or ()


def _bank(record: Record) -> Any:
    """Return the parameter that names the memory: one bank, or those that it is interleaved over."""
    return record.parameters.get("bank", record.parameters.get("banks"))


def varying(records: Iterable[Record], *, ignore: Iterable[str] = ()) -> list[str]:
    """Return the parameters that differ between *records*, ascending: what tells one case from another."""
    values: dict[str, set[str]] = {}
    known = list(records)
    for record in known:
        for name, value in record.parameters.items():
            values.setdefault(name, set()).add(json.dumps(value, sort_keys=True, default=str))
    absent = {n for n in values if any(n not in r.parameters for r in known)}
    return sorted(n for n, seen in values.items() if n not in set(ignore) and (len(seen) > 1 or n in absent))


def split(records: Sequence[Record], problems: Sequence[Problem], topology: Topology | None) -> list[HostView]:
    """Return one view per host, system and partition, ascending.

    *topology* is that of the only host, or, among several, of the one that it names (hwloc's HostName).
    """
    grouped: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        grouped.setdefault((record.host, record.system, record.partition), []).append(record)
    named = topology.info.get("HostName") if topology else None
    views = []
    for number, (place, mine) in enumerate(sorted(grouped.items()), start=1):
        placed = [(r, _malformed(r) or (_misplaced(r) if r.status == "valid" else "")) for r in mine]
        current, superseded = _latest(r for r, wrong in placed if r.status == "valid" and not wrong)
        invalid = sorted((r for r, wrong in placed if r.status == "invalid" and not wrong), key=_order)
        lost = dict.fromkeys(
            Problem(f"{r.check}/{r.metric}", "invalid", wrong, place[0], check=r.check)
            for r, wrong in placed
            if wrong
        )
        views.append(
            HostView(
                key=f"host{number}",
                host=place[0],
                system=place[1],
                partition=place[2],
                valid=current,
                invalid=tuple(invalid),
                superseded=superseded,
                problems=(*(p for p in problems if p.host in {"", place[0]}), *lost),
                topology=topology if len(grouped) == 1 or named == place[0] else None,
            )
        )
    return views


def _case(record: Record) -> tuple[str, str, str]:
    return (record.check, record.metric, json.dumps(case_of(record), sort_keys=True, default=str))


def _order(record: Record) -> tuple[Any, ...]:
    return (*_case(record), record.time, record.samples)


def _latest(records: Iterable[Record]) -> tuple[tuple[Record, ...], int]:
    latest: dict[tuple[str, str, str], Record] = {}
    total = 0
    for record in sorted(records, key=_order):
        latest[_case(record)] = record
        total += 1
    return tuple(latest.values()), total - len(latest)


def _malformed(record: Record) -> str:
    """Return what makes the record unreadable, whatever its status, or an empty text."""
    lists = {"placement_asked": record.placement_asked, "placement_found": record.placement_found}
    for name, value in lists.items():
        if not isinstance(value, (list, tuple)) or not all(isinstance(v, Mapping) for v in value):
            return f"the record cannot be read: {name} is no list of mappings"
    for name, mapping in (("parameters", record.parameters), ("software", record.software)):
        if not isinstance(mapping, Mapping):
            return f"the record cannot be read: {name} is no mapping"
    return ""


def _misplaced(record: Record) -> str:
    """Return what keeps the record out of its figure, or an empty text."""
    for name, kind in NEEDED.get(record.check, {}).items():
        value = _bank(record) if name == "bank" else record.parameters.get(name)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and 1 <= value < math.inf
        good = {"number": is_number, "nodes": node_set(value) is not None, "text": isinstance(value, str)}
        if not good[kind]:
            return f"the record cannot be shown: parameter {name} is {value!r}"
    return ""
