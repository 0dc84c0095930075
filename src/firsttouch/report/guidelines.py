# SPDX-License-Identifier: Apache-2.0
"""The guideline of a system and an aligner: alternatives, choices, and the advice in words."""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean
from typing import Any, TypeVar

import numpy as np

from firsttouch import paths
from firsttouch.advice import replay
from firsttouch.advice.replay import Cell, Row
from firsttouch.records.schema import Record
from firsttouch.report import speedups
from firsttouch.report.model import HostView, Table, case_of, whole
from firsttouch.report.text import clean, count, listed, number, plain, times

# ----------------------------------------------------------------------
# What a guideline is made of: scenarios to choose from with their times or rates, and the choice.

#: What is said of the scenario to use, and of the default run.
USE, DEFAULT = "use this", "default"


@dataclass(frozen=True)
class Interval:
    """A value, and the ends of where it may as well lie (None: nothing tells how sure it is)."""

    value: float
    low: float | None
    high: float | None

    @property
    def clear(self) -> bool:
        """Tell whether a gain is one for sure: the whole interval is above 1."""
        return self.low is not None and self.low > 1

    def to_dict(self) -> dict[str, float | None]:
        """Return the JSON form."""
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Alternative:
    """A scenario with its time or rate and its *gain*, how many times as fast as the default run it is.

    *repetitions* are runs, or trials (None: not told), on as many *hosts*; the value of a scenario that was not
    tried is what is expected of it.
    """

    scenario: str
    shape: str
    policy: str
    value: Interval | None
    repetitions: int | None
    gain: Interval | None
    note: str = ""
    hosts: int = 1


@dataclass(frozen=True)
class Choice:
    """What to use for one input: *chosen*, the *reason*, its *gain*, every alternative, and the dropped ones.

    *interval* says what the ends of the gain are; *quantity* and *unit* those of the alternatives' values.
    """

    source: str
    title: str
    chosen: str
    default: str
    reason: str
    gain: Interval | None
    interval: str
    quantity: str
    unit: str
    alternatives: tuple[Alternative, ...]
    dropped: tuple[tuple[str, str], ...] = ()


def mark(name: str, chosen: str, default: str) -> str:
    """Return what is said of a scenario by its name: that it is the one to use, or the default run."""
    return USE if name == chosen else DEFAULT if name == default else ""


# ----------------------------------------------------------------------
# How many times as fast as the default run scenarios are that several hosts measured, and how sure that is.
#
# Hosts differ, so every time is compared with the default run of its own host. Hosts are the blocks of an
# incomplete block design, the default run is the treatment that all blocks share, and a host's own level
# cancels (R. A. Fisher, The design of experiments, 1935; D. C. Montgomery, Design and analysis of experiments,
# chapter 4).

CONFIDENCE = 0.95

Scenario = TypeVar("Scenario", bound=Hashable)
#: The seconds of each repetition (or seconds per read), by host.
Times = Mapping[str, Sequence[float]]


def gains(times: Mapping[Scenario, Times], default: Scenario) -> dict[Scenario, Interval]:
    """Return the gain of every scenario, with the interval of all of them together (:data:`CONFIDENCE`).

    Every host of *times* has the *default*; all times are above 0. The gain of a scenario is the geometric mean
    over its hosts of (mean of the default's times / mean of its own), geometric means both. Two things widen the
    interval:

    * Noise. The variance of a gain is that of repetitions, pooled over all hosts and scenarios, or that of one
      scenario's gain between hosts, pooled over the scenarios that several hosts have, whichever is larger.
      Student's t is taken for as many comparisons with one control as there are (C. W. Dunnett, A multiple
      comparison procedure for comparing several treatments with a control, 1955; here by Bonferroni's inequality).
    * Hosts that did not measure the scenario. Their default runs tell how much slower they are. If that is a
      factor, their gain is the same; if it is a constant number of seconds, it is that of the times with this
      constant added. The interval holds both.

    Without a second repetition or host there is no noise to know: the ends are None.
    """
    means = {s: {h: _mean_log(some) for h, some in of_host.items()} for s, of_host in times.items()}
    base = means[default]
    ratios = {s: {h: base[h] - mean for h, mean in of.items()} for s, of in means.items() if s != default}
    level = 1 - (1 - CONFIDENCE) / max(1, len(ratios))
    repeated, of_repeated = _pooled_noise(
        [np.log(some).tolist() for of_host in times.values() for some in of_host.values()]
    )
    between, of_between = _pooled_noise([list(of_host.values()) for of_host in ratios.values()])
    found = {default: Interval(1.0, 1.0, 1.0)}
    for scenario, of_host in ratios.items():
        gain = float(np.mean(list(of_host.values())))
        hosts = len(of_host)
        parts = sum(1 / len(times[default][h]) + 1 / len(times[scenario][h]) for h in of_host)
        variances = [(repeated * parts / hosts**2, of_repeated), (between / hosts, of_between)]
        variance, freedom = max((v for v in variances if v[1]), default=(0.0, 0))
        if not freedom:
            found[scenario] = Interval(math.exp(gain), None, None)
            continue
        half = math.sqrt(variance) * student(level, freedom)
        elsewhere = [gain, *_elsewhere(base, means[scenario])]
        low, high = min(elsewhere) - half, max(elsewhere) + half
        found[scenario] = Interval(math.exp(gain), math.exp(low), math.exp(high))
    return found


def _mean_log(seconds: Sequence[float]) -> float:
    return float(np.mean(np.log(seconds)))


def _pooled_noise(groups: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Return the variance within groups, pooled, and its degrees of freedom."""
    freedom = sum(len(some) - 1 for some in groups)
    squares = sum(float(np.sum(np.square(np.array(some) - np.mean(some)))) for some in groups)
    return (squares / freedom if freedom else 0.0), freedom


def _elsewhere(base: Mapping[str, float], mine: Mapping[str, float]) -> Iterator[float]:
    """Yield the logarithm of the gain on each host without the scenario if it differs by a constant of seconds."""
    for host, mean in mine.items():
        for other in base.keys() - mine.keys():
            seconds = math.exp(mean) + math.exp(base[other]) - math.exp(base[host])
            if seconds > 0:
                yield base[other] - math.log(seconds)


def student(confidence: float, freedom: int) -> float:
    """Return the two-sided quantile of Student's t with whole degrees of *freedom*, 1 or more."""
    low, high = 0.0, 1.0
    while _within(high, freedom) < confidence:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < confidence else (low, middle)
    return high


def _within(t: float, freedom: int) -> float:
    """Return the probability of a Student's t within plus and minus *t* (Abramowitz and Stegun, 26.7.3 and 4)."""
    angle = math.atan(t / math.sqrt(freedom))
    odd = freedom % 2
    term = total = math.cos(angle) if odd else 1.0
    if freedom == 1:
        total = 0.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= math.cos(angle) ** 2 * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total


# ----------------------------------------------------------------------
# The scenarios that there are to choose from, and the choice: of records, stored advice and published times.

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
    """Yield the choice of each stored advice (see firsttouch.advice.advice_text)."""
    for one in sorted(documents, key=lambda d: (d["aligner"], d["host"], d["time"])):
        yield (str(one["system"]), str(one["aligner"])), _of_advice(one)


def _of_advice(document: Mapping[str, Any]) -> Choice:
    from firsttouch.advice.advice_text import STOPS  # noqa: PLC0415 - imports what trials need

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
    index = paths.TABLES / "guidelines.toml"
    sources = tomllib.loads(index.read_text(encoding="utf-8")) if index.is_file() else {}
    for name, source in sources.items():
        for cell in replay.read(paths.TABLES / name):
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


# ----------------------------------------------------------------------
# The guideline of each system and aligner: which scenario to use, what it gains, and every alternative.
#
# It rests on measured scenarios, stored advice and published times, each by itself: their inputs are not the
# same.


@dataclass(frozen=True)
class Guideline:
    """What is known of an aligner on a system: a choice for each dataset and source, the surest source first."""

    system: str
    aligner: str
    choices: tuple[Choice, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "system": self.system,
            "aligner": self.aligner,
            "choices": [_choice(choice) for choice in self.choices],
        }

    def lines(self) -> list[str]:
        """Return a line for each choice, for a ticket."""
        return [f"{c.title}: {said(c)}" for c in self.choices]


def guidelines(views: Sequence[HostView], advice: Sequence[Mapping[str, Any]]) -> list[Guideline]:
    """Return the guideline of every system and aligner that was measured or advised on, ascending.

    Published times are shown beside these where they are of the same system and aligner.
    """
    found: dict[tuple[str, str], list[Choice]] = {}
    for key, choice in (*measured(views), *advised(advice)):
        found.setdefault(key, []).append(choice)
    known = published()
    return [Guideline(*key, (*choices, *known.get(key, ()))) for key, choices in sorted(found.items())]


def said(choice: Choice) -> str:
    """Return what to use, and the gain with its uncertainty, as a sentence."""
    what = f"use {choice.chosen}"
    if choice.gain is None:
        return what
    if choice.chosen == choice.default:
        return f"{what}, the default run"
    gain = f"{times(choice.gain.value)} as fast as {choice.default}"
    low, high = choice.gain.low, choice.gain.high
    ends = "how sure that is is not known" if low is None or high is None else f"{times(low)} to {times(high)}"
    return f"{what}: {gain} ({ends}, {choice.interval})"


def table(choice: Choice) -> Table:
    """Return every alternative with its time or rate, the best first."""
    rows = [_row(one) for one in choice.alternatives]
    header = ("scenario", "instances", "policy", f"{choice.quantity} ({choice.unit})", "from", "to", "n", "hosts")
    told = ("gain", "from", "to", "")
    return Table(f"Alternatives: {choice.title}", (*header, *told), rows, frozenset(range(3, 11)))


def dropped(choice: Choice) -> Table | None:
    """Return what is no alternative, and why; None where nothing was dropped."""
    if not choice.dropped:
        return None
    caption = f"{count(len(choice.dropped), 'scenario')} dropped: {choice.title}"
    return Table(caption, ("scenario", "why"), [(clean(n), clean(why)) for n, why in choice.dropped])


def _row(one: Alternative) -> tuple[str, ...]:
    runs = "" if one.repetitions is None else str(one.repetitions)
    hosts = "" if one.repetitions is None else str(one.hosts)
    values, gains = _cells(one.value, number), _cells(one.gain, times)
    return (one.scenario, one.shape, one.policy, *values, runs, hosts, *gains, one.note)


def _cells(interval: Interval | None, shown: Callable[[float], str]) -> tuple[str, ...]:
    """Return a value and the ends of its interval, each "" where it is not known."""
    ends = (None,) * 3 if interval is None else (interval.value, interval.low, interval.high)
    return tuple("" if end is None else shown(end) for end in ends)


def _choice(choice: Choice) -> dict[str, Any]:
    return {
        "source": choice.source,
        "title": choice.title,
        "recommended": choice.chosen,
        "default": choice.default,
        "reason": choice.reason,
        "gain": choice.gain.to_dict() if choice.gain else None,
        "interval": choice.interval,
        "unit": choice.unit,
        "alternatives": [
            {
                "scenario": one.scenario,
                "value": one.value.to_dict() if one.value else None,
                "repetitions": one.repetitions,
                "hosts": one.hosts,
                "gain": one.gain.to_dict() if one.gain else None,
                "note": one.note,
            }
            for one in choice.alternatives
        ],
        "dropped": [{"scenario": name, "reason": why} for name, why in choice.dropped],
    }
