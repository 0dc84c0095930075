# SPDX-License-Identifier: Apache-2.0
"""The guideline of a system and an aligner: which scenario to use, what it gains, and every alternative."""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
# The data of a guideline: scenarios with their times or rates, and the choice.

#: The notes of the recommended scenario and of the default run.
USE, DEFAULT = "use this", "default"


@dataclass(frozen=True)
class Interval:
    """A value with the ends of its interval (None: unknown)."""

    value: float
    low: float | None
    high: float | None

    @property
    def clear(self) -> bool:
        """Return whether a gain is certain: the whole interval is above 1."""
        return self.low is not None and self.low > 1

    def to_dict(self) -> dict[str, float | None]:
        """Return the JSON form."""
        return asdict(self)


@dataclass(frozen=True)
class Alternative:
    """A scenario with its time or rate (*value*) and its *gain*, the speed-up over the default run.

    *repetitions* counts runs or trials (None: unknown) on all *hosts*. The value of an untried scenario is its
    prediction.
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
    """The scenario to use for one input: *chosen*, the *reason*, its *gain*, all alternatives and dropped ones.

    *interval* describes the ends of the gain, *quantity* and *unit* the values of the alternatives.
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
    """Return the note of a scenario: the recommended one, the default run, or neither."""
    return USE if name == chosen else DEFAULT if name == default else ""


# ----------------------------------------------------------------------
# The gains of scenarios that several hosts measured, with their intervals.
#
# Hosts differ, so every time is compared with the default run of the same host. Hosts are the blocks of an
# incomplete block design, and the default run is the treatment that all blocks share, so the level of a host
# cancels (R. A. Fisher, The design of experiments, 1935; D. C. Montgomery, Design and analysis of experiments,
# chapter 4).

CONFIDENCE = 0.95

Scenario = TypeVar("Scenario", bound=Hashable)
#: The seconds of each repetition (or seconds per read), by host.
Times = Mapping[str, Sequence[float]]


def gains(times: Mapping[Scenario, Times], default: Scenario) -> dict[Scenario, Interval]:
    """Return the gain of every scenario with its simultaneous interval (:data:`CONFIDENCE`).

    Every host of *times* has the *default*, and all times are above 0. The gain of a scenario is the geometric
    mean over its hosts of the ratio of the geometric means (default / scenario). Two things widen the interval:

    * Noise. The variance of a gain is the larger of two: that of repetitions, pooled over all hosts and scenarios,
      and that of a scenario's gain between hosts, pooled over the scenarios of several hosts. Student's t allows
      for the number of comparisons with one control (C. W. Dunnett, A multiple comparison procedure for comparing
      several treatments with a control, 1955; here by Bonferroni's inequality).
    * Hosts that did not measure the scenario. Their default runs show how much slower they are. If the
      difference is a factor, they have the same gain; if it is a constant number of seconds, they have the gain of
      the times with this constant added. The interval covers both.

    With a single repetition and host the noise is unknown, and the ends are None.
    """
    means = {s: {h: _mean_log(some) for h, some in of_host.items()} for s, of_host in times.items()}
    base = means[default]
    ratios = {s: {h: base[h] - mean for h, mean in of.items()} for s, of in means.items() if s != default}
    level = 1 - (1 - CONFIDENCE) / max(1, len(ratios))
    repeated, of_repeated = _pooled_noise(
        [np.log(some).tolist() for of_host in times.values() for some in of_host.values()]
    )
    between, of_between = _pooled_noise([list(of_host.values()) for of_host in ratios.values()])
    result = {default: Interval(1.0, 1.0, 1.0)}
    for scenario, of_host in ratios.items():
        gain = float(np.mean(list(of_host.values())))
        hosts = len(of_host)
        parts = sum(1 / len(times[default][h]) + 1 / len(times[scenario][h]) for h in of_host)
        variances = [(repeated * parts / hosts**2, of_repeated), (between / hosts, of_between)]
        variance, freedom = max((v for v in variances if v[1]), default=(0.0, 0))
        if not freedom:
            result[scenario] = Interval(math.exp(gain), None, None)
            continue
        half = math.sqrt(variance) * student(level, freedom)
        elsewhere = [gain, *_elsewhere(base, means[scenario])]
        low, high = min(elsewhere) - half, max(elsewhere) + half
        result[scenario] = Interval(math.exp(gain), math.exp(low), math.exp(high))
    return result


def _mean_log(seconds: Sequence[float]) -> float:
    return float(np.mean(np.log(seconds)))


def _pooled_noise(groups: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Return the pooled variance within groups, and its degrees of freedom."""
    freedom = sum(len(some) - 1 for some in groups)
    squares = sum(float(np.sum(np.square(np.array(some) - np.mean(some)))) for some in groups)
    return (squares / freedom if freedom else 0.0), freedom


def _elsewhere(base: Mapping[str, float], means: Mapping[str, float]) -> Iterator[float]:
    """Yield the log gain on each host without the scenario, if hosts differ by a constant number of seconds."""
    for host, mean in means.items():
        for other in base.keys() - means.keys():
            seconds = math.exp(mean) + math.exp(base[other]) - math.exp(base[host])
            if seconds > 0:
                yield base[other] - math.log(seconds)


def student(confidence: float, freedom: int) -> float:
    """Return the two-sided quantile of Student's t; *freedom* is an integer above 0."""
    low, high = 0.0, 1.0
    while _within(high, freedom) < confidence:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < confidence else (low, middle)
    return high


def _within(t: float, freedom: int) -> float:
    """Return the probability that Student's t is within +-*t* (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
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
# Choices from records, stored advice and published times.

#: (system, aligner), and a choice for them.
Keyed = tuple[tuple[str, str], Choice]

#: Instances, threads and policy of a run.
_Run = tuple[str, ...]
#: The records of a run by host (the key of its view).
_ByHost = dict[str, list[Record]]

_REPETITIONS = "between any two repetitions"
_NOISE = "by the published errors"
#: The most hosts without a default run that are named.
_NAMED = 4
_UNSURE = "with one repetition each, the uncertainty is unknown"


@dataclass(frozen=True)
class _Scenario:
    """A scenario on a number of *hosts*: its value with the range of its repetitions, and its gain.

    Times of several hosts are scaled to the same default run, because hosts differ.
    """

    record: Record
    value: Interval
    gain: Interval | None
    hosts: int

    @property
    def name(self) -> str:
        return speedups.scenario(self.record)


def measured(views: Iterable[HostView]) -> Iterator[Keyed]:
    """Yield a choice for each system, aligner and dataset from the records of all hosts."""
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
    p = record.parameters
    names = (plain(p.get(name)) for name in ("aligner", "dataset", "reads_per_thread"))
    # With a fixed number of reads per thread, scenarios have different numbers of reads.
    reads = "" if record.check == "weak_scaling" else plain(p.get("reads"))
    return (system, *names, reads, record.metric)


def _pooled(records: Sequence[Record]) -> Record:
    """Return one record with the samples of all *records*."""
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
        scenarios = {run: _alone(record, alone.get(default) if default else None) for run, record in alone.items()}
        interval = _REPETITIONS
    else:
        scenarios = _of_hosts(kept, default)
        interval = f"{100 * CONFIDENCE:.0f} % interval over {len(hosts)} hosts"
    usual = scenarios.get(default) if default else None
    record = next(iter(scenarios.values())).record
    lower = record.better == "lower"
    ordered = sorted(scenarios.values(), key=lambda s: s.value.value if lower else -s.value.value)
    best = ordered[0]
    chosen = best if usual is None or best.gain is None or best.gain.clear else usual
    why = [_why(ordered, chosen, usual, interval)]
    if left_out:
        hosts_left_out = listed([names[h] for h in left_out], most=_NAMED)
        why.append(f"{hosts_left_out} left out, because hosts are comparable only by their default runs")
    return Choice(
        "measured",
        _title(record, len(hosts)),
        chosen.name,
        usual.name if usual else "",
        "; ".join(why),
        chosen.gain,
        interval,
        ("time" if lower else "rate") + (" on the mean host" if len(hosts) > 1 else ""),
        record.unit,
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
    """Return the default run: one instance, the default policy, the most threads."""
    records = {run: next(iter(of_host.values())) for run, of_host in runs.items()}
    singles = [
        run
        for run, r in records.items()
        if whole(r, "instances") == 1 and r.parameters["policy"] == speedups.DEFAULT_POLICY
    ]
    return max(singles, key=lambda run: whole(records[run], "threads"), default=None)


def _comparable(runs: Mapping[_Run, Mapping[str, Record]], default: _Run | None) -> set[str]:
    """Return the hosts with comparable times: those with a default run, else the one with the most scenarios."""
    hosts = {h for h, r in runs[default].items() if min(r.samples) > 0} if default is not None else set()
    if hosts:
        return hosts
    counts = Counter(sorted(h for of_host in runs.values() for h in of_host))
    return {host for host, _ in counts.most_common(1)}


def _alone(record: Record, default: Record | None) -> _Scenario:
    """Return a scenario that one host measured."""
    value = Interval(record.value, min(record.samples), max(record.samples))
    return _Scenario(record, value, _gain(record, default), 1)


def _of_hosts(runs: Mapping[_Run, Mapping[str, Record]], default: _Run) -> dict[_Run, _Scenario]:
    """Return the scenarios of several hosts, which all have the default run, by their gains within each host."""
    # A time of 0 gives no ratio.
    good = {run: {h: r for h, r in of_host.items() if min(r.samples) > 0} for run, of_host in runs.items()}
    seconds = {run: {h: _seconds(r) for h, r in of_host.items()} for run, of_host in good.items() if of_host}
    level = {h: geometric_mean(some) for h, some in seconds[default].items()}
    mean_host = geometric_mean(level.values())
    scenarios = {}
    for run, gain in gains(seconds, default).items():
        record = _pooled(list(good[run].values()))
        scaled = [x / level[h] * mean_host for h, some in seconds[run].items() for x in some]
        ends = (mean_host / gain.value, min(scaled), max(scaled))
        if record.better == "higher":
            ends = (1 / ends[0], 1 / ends[2], 1 / ends[1])
        scenarios[run] = _Scenario(record, Interval(*ends), gain, len(good[run]))
    return scenarios


def _seconds(record: Record) -> list[float]:
    """Return the repetitions as times (of a rate: the time per unit)."""
    return [x if record.better == "lower" else 1 / x for x in record.samples]


def _title(record: Record, hosts: int) -> str:
    p = case_of(record)
    each = p.get("reads_per_thread")
    reads = f"{plain(each)} reads per thread" if each else f"{plain(p['reads'])} reads" if "reads" in p else ""
    return clean(", ".join(filter(None, ("measured", plain(p["dataset"]), reads, count(hosts, "host")))))


def _gain(run: Record, default: Record | None) -> Interval | None:
    """Return the speed-up of *run* over *default* on the same host, by time or by rate."""
    if default is None:
        return None
    pair = (run, default) if run.better == "lower" else (default, run)
    gain = speedups.speedup(*pair)
    if gain is None:
        return None
    if run is default:
        return Interval(1.0, 1.0, 1.0)
    if min(run.repetitions, default.repetitions) == 1:
        return Interval(gain.value, None, None)
    return Interval(gain.value, gain.low, gain.high)


def _why(ordered: Sequence[_Scenario], chosen: _Scenario, default: _Scenario | None, interval: str) -> str:
    best = ordered[0]
    if chosen is not best and best.gain is not None:
        reason = f"{best.name} has the best median, {times(best.gain.value)} as fast as the default run, but "
        if best.gain.low is None or best.gain.high is None:
            return reason + _UNSURE
        ends = f"{times(best.gain.low)} to {times(best.gain.high)}"
        return f"{reason}from {ends} ({interval}): no scenario is clearly faster"
    reason = f"the best median of {count(len(ordered), 'scenario')}"
    if default is None:
        reason += "; its gain is unknown, as there is no valid default run (1 instance, original)"
    if best.record.repetitions == 1:
        return f"{reason}; {_UNSURE}"
    rivals = [s.name for s in ordered[1:] if _as_fast(s, best)]
    if rivals:
        return f"{reason}; some repetitions of {listed(rivals, most=3)} were as fast"
    return f"{reason}; no repetition of another scenario was as fast"


def _as_fast(scenario: _Scenario, best: _Scenario) -> bool:
    """Return whether a repetition of *scenario* was as fast as one of the *best* one."""
    if best.record.better == "higher":
        return (scenario.value.high or 0.0) >= (best.value.low or 0.0)
    return (scenario.value.low or 0.0) <= (best.value.high or 0.0)


def advised(documents: Iterable[Mapping[str, Any]]) -> Iterator[Keyed]:
    """Yield the choice of each stored advice (see firsttouch.advice.advice_text)."""
    for d in sorted(documents, key=lambda d: (d["aligner"], d["host"], d["time"])):
        yield (str(d["system"]), str(d["aligner"])), _of_advice(d)


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
        f"the shortest expected time; {STOPS.get(document['stop'], document['stop'])}",
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


def _interval(value: Mapping[str, float] | None) -> Interval | None:
    return None if value is None else Interval(value["expected"], value["low"], value["high"])


def _expected_gain(seconds: Mapping[str, float] | None, usual: Mapping[str, float] | None) -> Interval | None:
    """Return the gain of a scenario; its ends pair opposite ends of the two times, which is conservative."""
    if not seconds or not usual:
        return None
    if seconds is usual:
        return Interval(1.0, 1.0, 1.0)
    ends = (usual["low"] / seconds["high"], usual["high"] / seconds["low"])
    return Interval(usual["expected"] / seconds["expected"], *ends)


def published() -> dict[tuple[str, str], list[Choice]]:
    """Return the choices from published times by system and aligner; empty without the tables."""
    choices: dict[tuple[str, str], list[Choice]] = {}
    index = paths.TABLES / "guidelines.toml"
    sources = tomllib.loads(index.read_text(encoding="utf-8")) if index.is_file() else {}
    for name, source in sources.items():
        for cell in replay.read(paths.TABLES / name):
            choices.setdefault((cell.system, cell.aligner), []).append(_of_cell(cell, source))
    return choices


def _of_cell(cell: Cell, source: str) -> Choice:
    ordered = sorted(cell.rows, key=lambda r: r.seconds)
    best, default = ordered[0], cell.default
    return Choice(
        "published",
        f"published, {cell.dataset} ({source})",
        best.name,
        default.name if default else "",
        f"the shortest mean time of {count(len(ordered), 'scenario')} with all threads",
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
# Guidelines. Measured scenarios, stored advice and published times stay separate, because their inputs differ.


@dataclass(frozen=True)
class Guideline:
    """The choices for an aligner on a system, one for each dataset and source, the most certain source first."""

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
        return [f"{c.title}: {sentence(c)}" for c in self.choices]


def guidelines(views: Sequence[HostView], advice: Sequence[Mapping[str, Any]]) -> list[Guideline]:
    """Return the guideline of every system and aligner with measurements or advice, ascending.

    Published times of the same system and aligner are added.
    """
    by_key: dict[tuple[str, str], list[Choice]] = {}
    for key, choice in (*measured(views), *advised(advice)):
        by_key.setdefault(key, []).append(choice)
    papers = published()
    return [Guideline(*key, (*choices, *papers.get(key, ()))) for key, choices in sorted(by_key.items())]


def sentence(choice: Choice) -> str:
    """Return the scenario to use, and its gain with the interval, as a sentence."""
    what = f"use {choice.chosen}"
    if choice.gain is None:
        return what
    if choice.chosen == choice.default:
        return f"{what}, the default run"
    gain = f"{times(choice.gain.value)} as fast as {choice.default}"
    low, high = choice.gain.low, choice.gain.high
    ends = "uncertainty unknown" if low is None or high is None else f"{times(low)} to {times(high)}"
    return f"{what}: {gain} ({ends}, {choice.interval})"


def table(choice: Choice) -> Table:
    """Return every alternative with its time or rate, the best first."""
    rows = [_row(alternative) for alternative in choice.alternatives]
    header = ("scenario", "instances", "policy", f"{choice.quantity} ({choice.unit})", "from", "to", "n", "hosts")
    gain = ("gain", "from", "to", "")
    return Table(f"Alternatives: {choice.title}", (*header, *gain), rows, frozenset(range(3, 11)))


def dropped(choice: Choice) -> Table | None:
    """Return the dropped scenarios with the reasons, None if there are none."""
    if not choice.dropped:
        return None
    caption = f"{count(len(choice.dropped), 'scenario')} dropped: {choice.title}"
    return Table(caption, ("scenario", "why"), [(clean(n), clean(why)) for n, why in choice.dropped])


def _row(a: Alternative) -> tuple[str, ...]:
    counts = ("", "") if a.repetitions is None else (str(a.repetitions), str(a.hosts))
    return (a.scenario, a.shape, a.policy, *_cells(a.value, number), *counts, *_cells(a.gain, times), a.note)


def _cells(interval: Interval | None, shown: Callable[[float], str]) -> tuple[str, ...]:
    """Return a value and the ends of its interval, each "" if unknown."""
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
                "scenario": a.scenario,
                "value": a.value.to_dict() if a.value else None,
                "repetitions": a.repetitions,
                "hosts": a.hosts,
                "gain": a.gain.to_dict() if a.gain else None,
                "note": a.note,
            }
            for a in choice.alternatives
        ],
        "dropped": [{"scenario": name, "reason": why} for name, why in choice.dropped],
    }
