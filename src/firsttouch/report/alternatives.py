# SPDX-License-Identifier: Apache-2.0
"""The scenarios that there are to choose from, and the choice: of records, stored advice and published times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from firsttouch import folders
from firsttouch.guideline import tables
from firsttouch.guideline.tables import Cell, Row
from firsttouch.records import Record
from firsttouch.report import speedups
from firsttouch.report.choices import DEFAULT, USE, Alternative, Choice, Interval, mark
from firsttouch.report.hosts import HostView, case_of, whole
from firsttouch.report.text import clean, count, plain, times

#: (system, aligner) and a choice for them.
Keyed = tuple[tuple[str, str], Choice]

#: Instances, threads and policy of a run.
_Run = tuple[str, ...]

_RANGE = "between any two repetitions"
_NOISE = "by the published errors"


def measured(views: Iterable[HostView]) -> Iterator[Keyed]:
    """Yield a choice of each system, aligner and dataset by the records of all its hosts."""
    systems: dict[str, list[HostView]] = {}
    for view in views:
        systems.setdefault(view.system, []).append(view)
    runs: dict[tuple[str, ...], dict[_Run, list[Record]]] = {}
    lost: dict[tuple[str, ...], dict[_Run, Record]] = {}
    for system, mine in sorted(systems.items()):
        for view in mine:
            for record in view.of("scaling", "placement", metric=speedups.METRIC) + view.of("weak_scaling"):
                runs.setdefault(_input(system, record), {}).setdefault(_run(record), []).append(record)
            for record in view.invalid:
                if {"aligner", "instances", "threads", "policy"} <= record.parameters.keys():
                    lost.setdefault(_input(system, record), {})[_run(record)] = record
    for key, scenarios in sorted(runs.items()):
        pooled = [_pooled(records) for records in scenarios.values()]
        hosts = len({r.host for records in scenarios.values() for r in records})
        gone = [r for run, r in lost.get(key, {}).items() if run not in scenarios]
        yield (key[0], key[1]), _of_records(pooled, hosts, gone)


def _run(record: Record) -> _Run:
    return tuple(plain(record.parameters[name]) for name in ("instances", "threads", "policy"))


def _input(system: str, record: Record) -> tuple[str, ...]:
    known = record.parameters
    told = (plain(known.get(name)) for name in ("aligner", "dataset", "reads_per_thread"))
    # With as many reads for each thread, scenarios have different numbers of reads.
    reads = "" if record.check == "weak_scaling" else plain(known.get("reads"))
    return (system, *told, reads, record.metric)


def _named(record: Record) -> str:
    return speedups.scenario(record)


def _pooled(records: Sequence[Record]) -> Record:
    """Return the record of a scenario with the samples of all hosts; its value is their median."""
    latest = max(records, key=lambda r: r.time)
    return replace(latest, samples=tuple(s for r in records for s in r.samples))


def _of_records(records: Sequence[Record], hosts: int, gone: Iterable[Record]) -> Choice:
    one = records[0]
    lower = one.better == "lower"
    ordered = sorted(records, key=lambda r: r.value if lower else -r.value)
    singles = [
        r for r in ordered if whole(r, "instances") == 1 and r.parameters["policy"] == speedups.DEFAULT_POLICY
    ]
    default = max(singles, key=lambda r: whole(r, "threads"), default=None)
    best = ordered[0]
    gain = _gain(best, default)
    clear = default is None or gain is None or gain.low > 1
    chosen = best if clear or default is None else default
    return Choice(
        "measured",
        _title(one, hosts),
        _named(chosen),
        _named(default) if default else "",
        _why(ordered, chosen, default, gain),
        _gain(chosen, default),
        _RANGE,
        "time" if lower else "rate",
        one.unit,
        tuple(
            Alternative(
                _named(r),
                speedups.shape(r),
                plain(r.parameters["policy"]),
                Interval(r.value, min(r.samples), max(r.samples)),
                r.repetitions,
                _gain(r, default),
                USE if r is chosen else DEFAULT if r is default else "",
            )
            for r in ordered
        ),
        tuple(sorted((_named(r), f"invalid: {r.reason}") for r in gone)),
    )


def _title(record: Record, hosts: int) -> str:
    known = case_of(record)
    each = known.get("reads_per_thread")
    reads = (
        f"{plain(each)} reads per thread" if each else f"{plain(known['reads'])} reads" if "reads" in known else ""
    )
    what = ", ".join(filter(None, (plain(known["dataset"]), reads, count(hosts, "host"))))
    return clean(f"measured, {what}")


def _gain(run: Record, default: Record | None) -> Interval | None:
    """Return how many times as fast *run* is as *default*, by time or by rate."""
    if default is None:
        return None
    pair = (run, default) if run.better == "lower" else (default, run)
    found = speedups.speedup(*pair)
    if found is None:
        return None
    return Interval(1.0, 1.0, 1.0) if run is default else Interval(found.value, found.low, found.high)


def _why(ordered: Sequence[Record], chosen: Record, default: Record | None, gain: Interval | None) -> str:
    best = ordered[0]
    if chosen is not best and gain is not None:
        return (
            f"{_named(best)} has the best median, {times(gain.value)} as fast as the default run, but from "
            f"{times(gain.low)} to {times(gain.high)} {_RANGE}: no scenario is clearly faster"
        )
    told = f"the best median of {count(len(ordered), 'scenario')}"
    if default is None:
        told += "; what it gains is not known, as there is no valid default run (1 instance, original)"
    rivals = [r for r in ordered[1:] if (lead := _gain(best, r)) is not None and lead.low <= 1]
    if best.repetitions == 1:
        return f"{told}; with one repetition each, how sure that is is not known"
    if rivals:
        names = ", ".join(_named(r) for r in rivals[:3]) + (
            f" and {len(rivals) - 3} more" if len(rivals) > 3 else ""
        )
        return f"{told}; repetitions of {names} were as fast, so these may do as well"
    return f"{told}; no repetition of another one was as fast"


def advised(documents: Iterable[Mapping[str, Any]]) -> Iterator[Keyed]:
    """Yield the choice of each stored advice (see firsttouch.guideline.stored)."""
    for one in sorted(documents, key=lambda d: (d["aligner"], d["host"], d["time"])):
        yield (str(one["system"]), str(one["aligner"])), _of_advice(one)


def _of_advice(document: Mapping[str, Any]) -> Choice:
    from firsttouch.guideline.said import STOPS  # noqa: PLC0415 - imports what trials need

    rows = document["scenarios"]
    kept = [r for r in rows if r["state"] in {"recommended", "dropped"}]
    kept.sort(key=lambda r: (r["state"] != "recommended", r["seconds"]["expected"] if r["seconds"] else math.inf))
    usual = next((r["seconds"] for r in rows if r["name"] == document["default"]), None)
    day = str(document["time"])[:10]
    return Choice(
        "advised",
        clean(f"advised, {document['dataset'] or 'own reads'}, host {document['host']}, {day}"),
        document["recommended"],
        document["default"],
        f"the least expected time; {STOPS.get(document['stop'], document['stop'])}",
        _interval(document["gain"]),
        "90 % interval",
        "expected time",
        "s",
        tuple(
            Alternative(
                clean(row["name"]),
                f"{row['instances']} x {row['threads']}" if "threads" in row else "",
                clean(str(row.get("policy", ""))),
                _interval(row["seconds"]),
                row["trials"],
                _expected_gain(row["seconds"], usual),
                mark(row["name"], document["recommended"], document["default"])
                or ("" if row["trials"] else "not tried"),
            )
            for row in kept
        ),
        tuple((r["name"], r["reason"]) for r in rows if r["state"] in {"failed", "infeasible"}),
    )


def _interval(found: Mapping[str, float] | None) -> Interval | None:
    return None if found is None else Interval(found["expected"], found["low"], found["high"])


def _expected_gain(seconds: Mapping[str, float] | None, usual: Mapping[str, float] | None) -> Interval | None:
    """Return the gain of one scenario; its ends are on the safe side, as if the two times were independent."""
    if not seconds or not usual:
        return None
    if seconds is usual:
        return Interval(1.0, 1.0, 1.0)
    ends = (usual["low"] / seconds["high"], usual["high"] / seconds["low"])
    return Interval(usual["expected"] / seconds["expected"], *ends)


def published() -> dict[tuple[str, str], list[Choice]]:
    """Return the choices by the published times, by system and aligner; none where the tables are not there."""
    found: dict[tuple[str, str], list[Choice]] = {}
    file = folders.TABLES / "lenis2017_execution_times.csv"
    for cell in tables.read(file) if file.is_file() else ():
        found.setdefault((cell.system, cell.aligner), []).append(_of_cell(cell))
    return found


def _of_cell(cell: Cell) -> Choice:
    ordered = sorted(cell.rows, key=lambda r: r.seconds)
    best, default = ordered[0], cell.default
    return Choice(
        "published",
        f"published, {cell.dataset} (Lenis and Senar 2017)",
        best.name,
        default.name if default else "",
        f"the least mean time of {count(len(ordered), 'scenario')} with all threads",
        _published_gain(best, default),
        _NOISE,
        "mean time",
        "s",
        tuple(
            Alternative(
                row.name,
                f"{row.instances} x {row.threads}",
                row.policy,
                Interval(row.seconds, row.seconds * (1 - row.error), row.seconds * (1 + row.error)),
                None,
                _published_gain(row, default),
                mark(row.name, best.name, default.name if default else ""),
            )
            for row in ordered
        ),
    )


def _published_gain(row: Row, default: Row | None) -> Interval | None:
    if default is None:
        return None
    if row is default:
        return Interval(1.0, 1.0, 1.0)
    ratio, error = default.seconds / row.seconds, math.hypot(row.error, default.error)
    return Interval(ratio, ratio * (1 - error), ratio * (1 + error))
