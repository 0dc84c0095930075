# SPDX-License-Identifier: Apache-2.0
"""The data of a report: references, problems, and the records of each host."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from firsttouch.host.topology import Topology
from firsttouch.records.cases import Case, by_key, identifiers
from firsttouch.records.catalogue import Check, checks
from firsttouch.records.schema import BUSY, Record
from firsttouch.report.text import list_names
from firsttouch.systems.definition import System
from firsttouch.systems.references import Reference

# ----------------------------------------------------------------------
# Problems and references.

Kind = Literal["failed", "skipped", "invalid"]


class Problem(Struct, frozen=True):
    """A check that failed, was skipped (the host lacks something) or gave an invalid result.

    *check* is the check as records name it (``latency``), or "" if the problem belongs to no single check.
    """

    name: str
    kind: Kind
    reason: str
    check: str
    host: str = ""


#: Returns the reference of a record, or None.
References = Callable[[Record], Reference | None]


def references_of(system: System | None) -> References | None:
    """Return the references of *system* for its own judged records; None without a system."""
    if system is None:
        return None

    def reference(record: Record) -> Reference | None:
        if not record.judged or record.system != system.name:
            return None
        return system.reference(record.check, record.metric, record.parameters)

    return reference


class Absent(Struct, frozen=True):
    """A figure that could not be drawn, with the reason."""

    title: str
    reason: str


# ----------------------------------------------------------------------
# The records of each host: current, superseded, invalid, and unsuitable for figures.


class HostView(Struct, frozen=True):
    """One host of one system and partition, and its records.

    *valid* has the latest valid record of each case, in a stable order; *superseded* is the number of older ones.
    *key* is unique in the report.
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

    def select(self, *checks: str, metric: str | None = None) -> list[Record]:
        """Return the valid records of *checks*, or of one *metric* of them."""
        return [r for r in self.valid if r.check in checks and metric in {None, r.metric}]

    def metric(self, check: str, name: str) -> Record | None:
        """Return the valid record of a metric that a check reports once per host."""
        return next(iter(self.select(check, metric=name)), None)

    @property
    def others_use(self) -> str:
        """How many PUs other programs used, and the names of some; an empty text if they used hardly any."""
        busy = self.metric("topology", "busy_pus")
        if busy is None or busy.value < BUSY:
            return ""
        programs = busy.parameters.get("programs")
        return f"others used {busy.value:.1f} PUs" + (f" ({programs})" if programs else "")

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings of the host by name, as texts; empty if they were not recorded."""
        record = self.metric("configuration", "settings")
        settings = record.parameters.get("settings") if record else None
        return {str(k): str(v) for k, v in settings.items()} if isinstance(settings, Mapping) else {}

    def why_absent(self, *checks: str) -> str:
        """Return why *checks* have no valid record."""
        for problem in self.problems:
            if problem.check in checks:
                return f"{problem.kind}: {problem.reason}"
        reasons = sorted({r.reason for r in self.invalid if r.check in checks})
        if reasons:
            return f"all its records are invalid: {list_names(reasons, most=3)}"
        return "the records of this report contain none of this check"


def titles(views: Sequence[HostView]) -> dict[str, str]:
    """Return, by the key of each view, its host, with system and partition if a host has several views."""
    counts = Counter(view.host for view in views)
    return {
        view.key: f"{view.host} ({view.system}, {view.partition})" if counts[view.host] > 1 else view.host
        for view in views
    }


def dataset_of(record: Record) -> str:
    """Return the dataset of an aligner's run, with the state of the index cache if one was requested."""
    state = record.parameters.get("index_cache")
    return str(record.parameters.get("dataset", "")) + (f", index cache {state}" if state else "")


def reads_per_thread(record: Record) -> str:
    """Return the reads per thread of a run with a fixed number: ``100 pairs per thread``; else ""."""
    p = record.parameters
    each, reads = p.get("reads_per_thread"), p.get("reads")
    if not each:
        return ""
    # Each mate of a pair is one read.
    paired = bool(reads) and reads > 1.5 * each * p["instances"] * p["threads"]
    return f"{each} {'pairs' if paired else 'reads'} per thread"


def common(records: Sequence[Record]) -> dict[str, Any]:
    """Return the case parameters that all *records* share."""
    first, *rest = [identifiers(r.check, r.parameters) for r in records]
    return {k: v for k, v in first.items() if all(k in other and other[k] == v for other in rest)}


def whole(record: Record, name: str) -> int:
    """Return a numeric parameter as an integer (the catalogue ensures that required ones are numbers)."""
    return int(record.parameters[name])


def node_set(value: Any) -> tuple[int, ...] | None:
    """Return the NUMA nodes of a parameter (a number or a list), None if it is neither."""
    items = value if isinstance(value, (list, tuple)) else [value]
    if items and all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in items):
        return tuple(sorted(items))
    return None


def pu_nodes(record: Record) -> tuple[int, ...]:
    """Return the NUMA nodes on whose PUs the threads of the record ran; empty if not recorded."""
    return node_set(record.parameters.get("pu_nodes")) or ()


def banks(record: Record) -> tuple[int, ...]:
    """Return the NUMA nodes that held the record's memory; empty if not recorded."""
    return node_set(_bank(record)) or ()


def _bank(record: Record) -> Any:
    """Return the parameter that names the memory: one bank, or the banks that it is interleaved over."""
    return record.parameters.get("bank", record.parameters.get("banks"))


def varying_parameters(records: Iterable[Record], *, ignore: Iterable[str] = ()) -> list[str]:
    """Return the names of the parameters in which the cases of *records* differ, ascending."""
    cases = [Case.from_record(r).parameters for r in records]
    names = {name for case in cases for name in case} - set(ignore)
    # The default is not a JSON text, so a parameter that some records lack differs.
    texts = {n: {json.dumps(c[n], sort_keys=True, default=str) if n in c else "" for c in cases} for n in names}
    return sorted(name for name, values in texts.items() if len(values) > 1)


def split(records: Sequence[Record], problems: Sequence[Problem], topology: Topology | None) -> list[HostView]:
    """Return one view per host, system and partition, ascending.

    *topology* belongs to the only host, or to the one of several hosts that it names (hwloc's HostName).
    """
    places = by_key(records, lambda r: (r.host, r.system, r.partition))
    named = topology.info.get("HostName") if topology else None
    views = []
    for number, (place, host_records) in enumerate(sorted(places.items()), start=1):
        placed = [(r, _misplaced(r) if r.status == "valid" else "") for r in host_records]
        good = sorted((r for r, wrong in placed if r.status == "valid" and not wrong), key=_order)
        latest = {Case.from_record(record).key: record for record in good}
        invalid = sorted((r for r in host_records if r.status == "invalid"), key=_order)
        lost = dict.fromkeys(
            Problem(f"{r.check}/{r.metric}", "invalid", wrong, r.check, place[0]) for r, wrong in placed if wrong
        )
        views.append(
            HostView(
                key=f"host{number}",
                host=place[0],
                system=place[1],
                partition=place[2],
                valid=tuple(latest.values()),
                invalid=tuple(invalid),
                superseded=len(good) - len(latest),
                problems=(*(p for p in problems if p.host in {"", place[0]}), *lost),
                topology=topology if len(places) == 1 or named == place[0] else None,
            )
        )
    return views


def _order(record: Record) -> tuple[Any, ...]:
    return (Case.from_record(record).key, record.time, record.samples)


def _misplaced(record: Record) -> str:
    """Return why no figure can show the record, or ""."""
    for name, form in checks().get(record.check, Check({}, ())).needed.items():
        value = _bank(record) if name == "bank" else record.parameters.get(name)
        amount = value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0
        good = {
            "number": 1 <= amount < math.inf,
            "share": 0 < amount <= 1,
            "nodes": node_set(value) is not None,
            "text": isinstance(value, str),
        }
        if not good[form]:
            return f"the record cannot be shown: parameter {name} is {value!r}"
    return ""
