# SPDX-License-Identifier: Apache-2.0
"""The scenarios that there are to choose from, and the choice: of records, stored advice and published times."""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean
from typing import Any

from firsttouch import folders
from firsttouch.guideline import tables
from firsttouch.guideline.tables import Cell, Row
from firsttouch.records import Record
from firsttouch.report import speedups
from firsttouch.report.choices import DEFAULT, USE, Alternative, Choice, Interval, mark
from firsttouch.report.gains import CONFIDENCE, gains
from firsttouch.report.hosts import HostView, case_of, whole
from firsttouch.report.text import clean, count, listed, plain, times

#: (system, aligner) and a choice for them.
Keyed = tuple[tuple[str, str], Choice]

#: Instances, threads and policy of a run.
_Run = tuple[str, ...]
#: The records of a run by host (the key of its view).
_ByHost = dict[str, list[Record]]

_REPETITIONS = "between any two repetitions"
_NOISE = "by the published errors"
#: Hosts that are named of those left out.
_NAMED = 4
_UNSURE = "with one repetition each, how sure that is is not known"


@dataclass(frozen=True)
class _Scenario:
    """A scenario of *hosts* hosts: its value, where its repetitions lie, and its gain.

    Over several hosts, times are scaled to the same default run, as hosts differ.
    """

    record: Record
    value: Interval
    gain: Interval | None
    hosts: int

    @property
    def name(self) -> str:
        return speedups.scenario(self.record)


def measured(views: Iterable[HostView]) -> Iterator[Keyed]:
    """Yield a choice of each system, aligner and dataset by the records of all its hosts."""
    runs: dict[tuple[str, ...], dict[_Run, _ByHost]] = {}
    lost: dict[tuple[str, ...], dict[_Run, Record]] = {}
    names: dict[str, str] = {}
    for view in sorted(views, key=lambda v: v.system):
        names[view.key] = view.host
        for record in view.of("scaling", "placement", metric=speedups.METRIC) + view.of("weak_scaling"):
            of_host = runs.setdefault(_input(view.system, record), {}).setdefault(_run(record), {})
            of_host.setdefault(view.key, []).append(record)
        for record in view.invalid:
            if {"aligner", "instances", "threads", "policy"} <= record.parameters.keys():
                lost.setdefault(_input(view.system, record), {})[_run(record)] = record
    for key, scenarios in sorted(runs.items()):
        gone = [r for run, r in lost.get(key, {}).items() if run not in scenarios]
        yield (key[0], key[1]), _of_records(scenarios, names, gone)


def _run(record: Record) -> _Run:
    return tuple(plain(record.parameters[name]) for name in ("instances", "threads", "policy"))


def _input(system: str, record: Record) -> tuple[str, ...]:
    known = record.parameters
    told = (plain(known.get(name)) for name in ("aligner", "dataset", "reads_per_thread"))
    # With as many reads for each thread, scenarios have different numbers of reads.
    reads = "" if record.check == "weak_scaling" else plain(known.get("reads"))
    return (system, *told, reads, record.metric)


def _pooled(records: Sequence[Record]) -> Record:
    """Return the record of a scenario with all samples; its value is their median."""
    latest = max(records, key=lambda r: r.time)
    return replace(latest, samples=tuple(s for r in records for s in r.samples))


def _of_records(runs: Mapping[_Run, _ByHost], names: Mapping[str, str], gone: Iterable[Record]) -> Choice:
    each = {run: {h: _pooled(some) for h, some in of_host.items()} for run, of_host in runs.items()}
    default = _default_run(each)
    hosts = _comparable(each, default)
    left_out = sorted({h for of_host in each.values() for h in of_host} - hosts)
    kept = {run: {h: r for h, r in of_host.items() if h in hosts} for run, of_host in each.items()}
    kept = {run: of_host for run, of_host in kept.items() if of_host}
    if len(hosts) == 1 or default is None:
        alone = {run: record for run, of_host in kept.items() for record in of_host.values()}
        found = {run: _alone(record, alone.get(default) if default else None) for run, record in alone.items()}
        interval = _REPETITIONS
    else:
        found = _of_hosts(kept, default)
        interval = f"{100 * CONFIDENCE:.0f} % interval over {len(hosts)} hosts"
    usual = found.get(default) if default else None
    one = next(iter(found.values())).record
    lower = one.better == "lower"
    ordered = sorted(found.values(), key=lambda s: s.value.value if lower else -s.value.value)
    best = ordered[0]
    chosen = best if usual is None or best.gain is None or best.gain.clear else usual
    why = [_why(ordered, chosen, usual, interval)]
    if left_out:
        told = listed([names[h] for h in left_out], most=_NAMED)
        why.append(f"{told} left out, as times of other hosts compare only where these have a default run as well")
    return Choice(
        "measured",
        _title(one, len(hosts)),
        chosen.name,
        usual.name if usual else "",
        "; ".join(why),
        chosen.gain,
        interval,
        ("time" if lower else "rate") + (" on the mean host" if len(hosts) > 1 else ""),
        one.unit,
        tuple(
            Alternative(
                s.name,
                speedups.shape(s.record),
                plain(s.record.parameters["policy"]),
                s.value,
                s.record.repetitions,
                s.gain,
                USE if s is chosen else DEFAULT if s is usual else "",
                s.hosts,
            )
            for s in ordered
        ),
        tuple(sorted((speedups.scenario(r), f"invalid: {r.reason}") for r in gone)),
    )


def _default_run(runs: Mapping[_Run, Mapping[str, Record]]) -> _Run | None:
    """Return the run that others are compared with: one instance, the default policy, the most threads."""
    records = {run: next(iter(of_host.values())) for run, of_host in runs.items()}
    singles = [
        run
        for run, r in records.items()
        if whole(r, "instances") == 1 and r.parameters["policy"] == speedups.DEFAULT_POLICY
    ]
    return max(singles, key=lambda run: whole(records[run], "threads"), default=None)


def _comparable(runs: Mapping[_Run, Mapping[str, Record]], default: _Run | None) -> set[str]:
    """Return the hosts whose times compare: those with a default run, else the one with the most scenarios."""
    hosts = {h for h, r in runs[default].items() if min(r.samples) > 0} if default is not None else set()
    if hosts:
        return hosts
    counts = Counter(sorted(h for of_host in runs.values() for h in of_host))
    return {host for host, _ in counts.most_common(1)}


def _alone(record: Record, default: Record | None) -> _Scenario:
    """Return a scenario of the only host."""
    value = Interval(record.value, min(record.samples), max(record.samples))
    return _Scenario(record, value, _gain(record, default), 1)


def _of_hosts(runs: Mapping[_Run, Mapping[str, Record]], default: _Run) -> dict[_Run, _Scenario]:
    """Return scenarios of several hosts that have the default run all, by their gains within each host."""
    # Nothing can be said of a time that is not above 0.
    good = {run: {h: r for h, r in of_host.items() if min(r.samples) > 0} for run, of_host in runs.items()}
    seconds = {run: {h: _seconds(r) for h, r in of_host.items()} for run, of_host in good.items() if of_host}
    level = {h: geometric_mean(some) for h, some in seconds[default].items()}
    mean_host = geometric_mean(level.values())
    found = {}
    for run, gain in gains(seconds, default).items():
        record = _pooled(list(good[run].values()))
        scaled = [x / level[h] * mean_host for h, some in seconds[run].items() for x in some]
        ends = (mean_host / gain.value, min(scaled), max(scaled))
        if record.better == "higher":
            ends = (1 / ends[0], 1 / ends[2], 1 / ends[1])
        found[run] = _Scenario(record, Interval(*ends), gain, len(good[run]))
    return found


def _seconds(record: Record) -> list[float]:
    """Return the repetitions as times, of rates as the times of a unit."""
    return [x if record.better == "lower" else 1 / x for x in record.samples]


def _title(record: Record, hosts: int) -> str:
    known = case_of(record)
    each = known.get("reads_per_thread")
    reads = (
        f"{plain(each)} reads per thread" if each else f"{plain(known['reads'])} reads" if "reads" in known else ""
    )
    what = ", ".join(filter(None, (plain(known["dataset"]), reads, count(hosts, "host"))))
    return clean(f"measured, {what}")


def _gain(run: Record, default: Record | None) -> Interval | None:
    """Return how many times as fast *run* is as *default* on the same host, by time or by rate."""
    if default is None:
        return None
    pair = (run, default) if run.better == "lower" else (default, run)
    found = speedups.speedup(*pair)
    if found is None:
        return None
    if run is default:
        return Interval(1.0, 1.0, 1.0)
    if min(run.repetitions, default.repetitions) == 1:
        return Interval(found.value, None, None)
    return Interval(found.value, found.low, found.high)


def _why(ordered: Sequence[_Scenario], chosen: _Scenario, default: _Scenario | None, interval: str) -> str:
    best = ordered[0]
    if chosen is not best and best.gain is not None:
        told = f"{best.name} has the best median, {times(best.gain.value)} as fast as the default run, but "
        if best.gain.low is None or best.gain.high is None:
            return told + _UNSURE
        ends = f"{times(best.gain.low)} to {times(best.gain.high)}"
        return f"{told}from {ends} ({interval}): no scenario is clearly faster"
    told = f"the best median of {count(len(ordered), 'scenario')}"
    if default is None:
        told += "; what it gains is not known, as there is no valid default run (1 instance, original)"
    if best.record.repetitions == 1:
        return f"{told}; {_UNSURE}"
    rivals = [s for s in ordered[1:] if _as_fast(s, best)]
    if rivals:
        names = listed([s.name for s in rivals], most=3)
        return f"{told}; repetitions of {names} were as fast, so these may do as well"
    return f"{told}; no repetition of another one was as fast"


def _as_fast(one: _Scenario, best: _Scenario) -> bool:
    """Tell whether a repetition of a scenario was as fast as one of the best scenario."""
    ends = one.value, best.value
    if best.record.better == "higher":
        return (ends[0].high or 0.0) >= (ends[1].low or 0.0)
    return (ends[0].low or 0.0) <= (ends[1].high or 0.0)


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
    index = folders.TABLES / "guidelines.toml"
    sources = tomllib.loads(index.read_text(encoding="utf-8")) if index.is_file() else {}
    for name, source in sources.items():
        for cell in tables.read(folders.TABLES / name):
            found.setdefault((cell.system, cell.aligner), []).append(_of_cell(cell, source))
    return found


def _of_cell(cell: Cell, source: str) -> Choice:
    ordered = sorted(cell.rows, key=lambda r: r.seconds)
    best, default = ordered[0], cell.default
    return Choice(
        "published",
        f"published, {cell.dataset} ({source})",
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
