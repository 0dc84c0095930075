# SPDX-License-Identifier: Apache-2.0
"""Verdicts and causes on simulated fleets with known faults, beside the rules of others.

Method. A fleet has HOSTS hosts with NODES NUMA nodes. Its metrics are those of KERNELS in every pair of NUMA node
and bank, and the latency of cache and memory there. Good hosts differ by SPREAD in each (a normal deviation). One
repetition in a hundred is disturbed and 5 to 30 % worse. All hosts are judged without references, as `report` does
with a store: first after the given repetitions, then undecided and suspect ones with twice as many, up to as many
as a campaign makes. The seeds are those of no test.

A host with a fault is detected if its verdict is fail or suspect. Of two groups of hosts, the slower one counts as
having the fault, also if nothing shows which group is right. Any other host that fails or is suspect is a false
alarm. The rules of others (see verdict.py) have no other word than fail, and judge the first repetitions. The
threshold and ReFrame get the level of good hosts as their reference, which the other rules have to find.

Four more tables are simulated by another model than the judge's: level x host x session x drift x repetition.
Hosts have METRICS metrics and are judged together. A repetition's noise is normal, Student's t with 3 degrees
of freedom, autocorrelated (AR(1), 0.6), with an offset for each session, with a drift of 2 % within the day, or
with 1.5 % of the repetitions 5 to 30 % worse; "unequal" hosts have from one to all repetitions. A session has
up to IN_SESSION repetitions, and the sessions are a day apart.

- conditions: one host of each fleet loses 3, 5 or 10 % of one metric in turn, and is detected if that metric
  fails. All others are good.
- references: `baseline` learns from few hosts, and its references judge 300 others together with their fleet.
- year: a host with intermittent faults (15 % of its repetitions 15 to 30 % worse), half of the hosts 6 %
  slower, or an update in week 20 that slows hosts by 18 to 22 % and one by 8 % more, judged each week. The update
  reaches all hosts in one week, or one after the other in 16. Flaps are changes of a host's word in the year.

- own: fleets in sessions a week apart, each with one repetition. A tenth of the hosts lose a part of one metric,
  and have failed if that metric fails after 3, 4 or 6 sessions. All others are good, also by their own levels.

- natures: how good hosts differ is normal, exponential or log-normal towards slow hosts, uniform, half that of the
  rack (four of them), or half that of the host in all its metrics. Then fleets follow in which a group of hosts
  loses a part of one metric: they are named if each fails or is suspect.

Only fails count as false here, also of good hosts far from the others by nature, and rates have the 95 %
interval of Wilson.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from verdict import below, paper, repository

from firsttouch.judge import samples_table
from firsttouch.judge.baseline import learnt, put
from firsttouch.judge.constants import MOST_REPETITIONS
from firsttouch.judge.findings import Findings
from firsttouch.judge.judging import judged
from firsttouch.judge.verdict import ORDER
from firsttouch.records.schema import Record, columns
from firsttouch.systems.definition import System, Undescribed, load

HOSTS, NODES, KERNELS = 100, 2, ("copy", "scale", "triad")
SPREAD, NOISE, DISTURBED, BY = 0.004, 0.01, 0.01, (0.05, 0.30)
#: Share of the full speed that a host reaches in a case: the names of its check and kernel, NUMA node and bank.
Fault = Callable[[str, int, int], float]


@dataclass(frozen=True)
class Fleet:
    """Hosts with a *fault*, hosts whose noise is *noisy* times that of others, and hosts that *lack* a metric.

    *causes* may be named for hosts with a fault.
    """

    name: str
    fault: Mapping[int, Fault] = field(default_factory=dict)
    noisy: Mapping[int, float] = field(default_factory=dict)
    lack: frozenset[int] = frozenset()
    causes: frozenset[str] = frozenset()

    @property
    def bad(self) -> set[str]:
        """The names of the hosts that have a fault."""
        return {f"n{host}" for host in (*self.fault, *self.lack)}


def one_metric(check: str, node: int, bank: int) -> float:
    """Return the share of a host that loses 5 % of one metric."""
    return 0.95 if (check, node, bank) == ("copy", 0, 0) else 1.0


def memory(share: float) -> Fault:
    """Return a fault of all memory; caches are as fast as elsewhere."""
    return lambda check, *_: 1.0 if check == "cache" else share


#: Another setting of the firmware, and slow memory.
FIRMWARE, SLOW_MEMORY = memory(0.92), memory(0.9)


def channel(check: str, _node: int, bank: int) -> float:
    """Return the share of a host that lacks one of four memory channels of a bank."""
    return 0.75 if check in KERNELS and bank == 1 else 1.0


def cap(check: str, _node: int, _bank: int) -> float:
    """Return the share of a host with a cap of the frequency."""
    return 0.85 if check == "cache" else 0.97


def fleets(rng: np.random.Generator) -> Iterator[Fleet]:
    """Yield the fleets of one seed."""
    hosts = [int(host) for host in rng.permutation(HOSTS)]
    yield Fleet("healthy")
    yield Fleet("5 % loss of one metric on one host", {hosts[0]: one_metric})
    for share in (50, 30):
        slow = dict.fromkeys(hosts[: HOSTS * share // 100], FIRMWARE)
        yield Fleet(f"firmware: {share} % of the hosts 8 % slower in memory", slow)
    third = [hosts[i : HOSTS * 3 // 10 : 3] for i in range(3)]
    kinds = (channel, cap, SLOW_MEMORY)
    faults = {host: kind for group, kind in zip(third, kinds, strict=True) for host in group}
    yield Fleet(
        "30 % of the hosts bad: missing channel, frequency cap, 10 % of memory speed",
        faults,
        causes=frozenset([*_CAUSE.values()]),
    )
    yield Fleet("one host with 8 times the noise", noisy={hosts[0]: 8.0})
    yield Fleet("one host without a metric", lack=frozenset(hosts[:1]))


#: Faults that have a cause.
_CAUSE: Mapping[Fault, str] = {
    channel: "memory channel missing",
    cap: "frequency or power cap",
    FIRMWARE: "slower memory on all NUMA nodes",
    SLOW_MEMORY: "slower memory on all NUMA nodes",
}


def cases() -> Iterator[tuple[str, int, int]]:
    """Yield check or kernel, NUMA node and bank of each metric."""
    for node in range(NODES):
        for bank in range(NODES):
            for check in (*KERNELS, "cache", "memory"):
                yield check, node, bank


def rates(fleet: Fleet, rng: np.random.Generator, noise: float) -> dict[tuple[str, int, int], NDArray[np.float64]]:
    """Return a row per host with MOST_REPETITIONS repetitions of each case, 1 for the full speed."""
    values = {}
    for case in cases():
        level = 1 + SPREAD * rng.standard_normal(HOSTS)
        level *= [fleet.fault.get(host, memory(1.0))(*case) for host in range(HOSTS)]
        own = noise * np.array([fleet.noisy.get(host, 1.0) for host in range(HOSTS)])
        row = level[:, None] * (1 + own[:, None] * rng.standard_normal((HOSTS, MOST_REPETITIONS)))
        disturbed = rng.random(row.shape) < DISTURBED
        values[case] = np.maximum(row * np.where(disturbed, 1 - rng.uniform(*BY, row.shape), 1.0), 0.05)
    return values


def records(
    fleet: Fleet, values: Mapping[tuple[str, int, int], NDArray[np.float64]], count: Mapping[int, int]
) -> Iterator[Record]:
    """Yield the first repetitions of each host, as many as *count* has."""
    for (check, node, bank), rows in values.items():
        place = {"program": "firsttouch-probe", "pu_nodes": [node], "bank": bank}
        for host, repetitions in count.items():
            if host in fleet.lack and (check, node, bank) == ("triad", 1, 1):
                continue
            for number, rate in enumerate(rows[host, :repetitions]):
                common = {"host": f"n{host}", "system": "s", "time": f"2026-01-01T00:{number:02d}:00+00:00"}
                if check in KERNELS:
                    what = ("bandwidth", f"{check}_bandwidth", "GB/s", "higher", (30 * float(rate),))
                    yield Record(*what, parameters={**place, "kernel": check}, **common)
                else:
                    size, full = (4096, 1.5) if check == "cache" else (1 << 27, 90.0)
                    what = ("latency", "random_latency", "ns", "lower", (full / float(rate),))
                    yield Record(*what, parameters={**place, "size_bytes": size}, **common)


@dataclass
class Score:
    """What a rule says about the fleets of one kind."""

    bad: int = 0
    detected: int = 0
    good: int = 0
    alarms: int = 0
    words: Counter[str] = field(default_factory=Counter)
    right: int = 0
    wrong: int = 0
    expected: int = 0
    repetitions: list[float] = field(default_factory=list)

    def note(self, fleet: Fleet, blamed: Iterable[str]) -> None:
        """Count the hosts that a rule blames."""
        hosts = set(blamed)
        self.bad += len(fleet.bad)
        self.good += HOSTS - len(fleet.bad)
        self.detected += len(hosts & fleet.bad)
        self.alarms += len(hosts - fleet.bad)


def ours(fleet: Fleet, values: Mapping[tuple[str, int, int], NDArray[np.float64]], first: int, most: int) -> Score:
    """Return the score of the verdicts after *first* repetitions, and of undecided hosts after up to *most*."""
    count = dict.fromkeys(range(HOSTS), first)
    while True:
        verdicts = judged(samples_table.of_records(records(fleet, values, count), "s"), Undescribed("s"))
        words = {host: ORDER[verdicts.word(host)] for host in verdicts.hosts}
        again = [h for h in count if words[f"n{h}"] in {"undecided", "suspect"} and count[h] < most]
        if not again:
            break
        count.update({host: min(2 * count[host], most) for host in again})
    score = Score(words=Counter(words.values()), repetitions=[statistics.fmean(count.values())])
    score.note(fleet, (host for host, word in words.items() if word in {"suspect", "fail"}))
    for host, word in words.items():
        if word == "fail":
            names = {cause.split(":")[0] for cause in verdicts.of(host).causes}
            right = _CAUSE.get(fleet.fault.get(int(host[1:]), one_metric), "")
            score.right += right in names
            score.wrong += len(names - {right})
    score.expected = sum(kind in _CAUSE for kind in fleet.fault.values())
    return score


def others(
    fleet: Fleet, values: Mapping[tuple[str, int, int], NDArray[np.float64]], first: int
) -> dict[str, Score]:
    """Return the scores of the rules of others on the first repetitions."""
    scores: dict[str, Score] = {}
    blamed: dict[str, set[int]] = {}
    for rows in values.values():
        single, several = rows[:, 0].tolist(), rows[:, :first]
        means = several.mean(axis=1).tolist()
        for name, hosts in {
            "threshold, 1 repetition": below(single, 320 / 350),
            f"ReFrame 5 %, mean of {first}": below(means, 0.95),
            f"ReFrame 10 %, mean of {first}": below(means, 0.90),
            f"SuperBench's repository, mean of {first}": repository(means),
            f"SuperBench's paper, {first} repetitions": paper(several.tolist()),
        }.items():
            blamed.setdefault(name, set()).update(hosts)
    for name, hosts in blamed.items():
        scores[name] = Score()
        scores[name].note(fleet, (f"n{host}" for host in hosts))
    return scores


def run(seeds: Iterable[int], first: int, noise: float) -> dict[str, dict[str, Score]]:
    """Return the scores of each rule by the name of the fleet, summed over *seeds*."""
    sums: dict[str, dict[str, Score]] = {}
    for seed in seeds:
        rng = np.random.default_rng([seed, first])
        for fleet in fleets(rng):
            values = rates(fleet, rng, noise)
            scores = {
                f"firsttouch, {first} repetitions": ours(fleet, values, first, first),
                f"firsttouch, up to {MOST_REPETITIONS}": ours(fleet, values, first, MOST_REPETITIONS),
                **others(fleet, values, first),
            }
            for name, score in scores.items():
                total = sums.setdefault(fleet.name, {}).setdefault(name, Score())
                for key in ("bad", "detected", "good", "alarms", "right", "wrong", "expected"):
                    setattr(total, key, getattr(total, key) + getattr(score, key))
                total.words += score.words
                total.repetitions += score.repetitions
    return sums


# ----------------------------------------------------------------------
# Another model than the judge's

METRICS, IN_SESSION, SYSTEM = 100, 6, "amd-opteron"
NOISES = ("normal", "t", "AR(1)", "session", "drift", "outliers", "unequal")
LOSSES = (0.03, 0.05, 0.10)
_BEGIN = datetime.datetime(2026, 1, 1)


def _spread(shape: str, size: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return deviations of hosts with a standard deviation of 1."""
    if shape == "uniform":
        return rng.uniform(-math.sqrt(3), math.sqrt(3), size)
    return 1 - rng.exponential(size=size) if shape == "skewed" else rng.standard_normal(size)


def repeated(
    levels: NDArray[np.float64], repetitions: int, noise: float, kind: str, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return rates of hosts x metrics x repetitions about their *levels*; NaN is one that was not measured."""
    size = (*levels.shape, repetitions)
    errors = rng.standard_t(3, size) / math.sqrt(3) if kind == "t" else rng.standard_normal(size)
    if kind == "AR(1)":
        for i in range(1, repetitions):
            errors[..., i] = 0.6 * errors[..., i - 1] + 0.8 * errors[..., i]
    values = levels[..., None] * (1 + noise * errors)
    session = np.arange(repetitions) // IN_SESSION
    if kind == "session":
        values *= 1 + noise * rng.standard_normal((*levels.shape, session[-1] + 1))[..., session]
    elif kind == "drift":
        values *= 1 - 0.02 * (np.arange(repetitions) % IN_SESSION) / IN_SESSION
    elif kind == "outliers":
        values *= np.where(rng.random(size) < 0.015, 1 - rng.uniform(*BY, size), 1.0)
    elif kind == "unequal":
        count = rng.integers(1, repetitions + 1, len(levels))
        values[np.broadcast_to(np.arange(repetitions) >= count[:, None, None], size)] = np.nan
    return np.maximum(values, 0.05)


def frame(values: NDArray[np.float64], days: NDArray[np.int64], prefix: str = "n") -> pl.DataFrame:
    """Return the table of records of rates (see :func:`repeated`); *days* has the day of each repetition."""
    hosts, metrics, _ = values.shape
    host, metric, number = (index.ravel() for index in np.indices(values.shape))
    kernels = ("copy", "scale", "add", "triad")
    parameters = [
        json.dumps({"bank": m // 4, "kernel": kernels[m % 4], "pu_nodes": [m // 4], "relation": "local"})
        for m in range(metrics)
    ]
    times = [
        (_BEGIN + datetime.timedelta(days=int(day), minutes=i)).replace(tzinfo=datetime.UTC)
        for i, day in enumerate(days)
    ]
    common = {"system": SYSTEM, "check": "bandwidth", "unit": "GB/s", "better": "higher", "status": "valid"}
    return (
        pl.DataFrame(
            {
                "host": pl.Series([f"{prefix}{h}" for h in range(hosts)]).gather(host),
                "metric": pl.Series([f"{kernels[m % 4]}_bandwidth" for m in range(metrics)]).gather(metric),
                "parameters": pl.Series(parameters).gather(metric),
                "time": pl.Series(times).gather(number),
                "value": 30 * values.ravel(),
            }
        )
        .filter(pl.col("value").is_not_nan())
        .with_columns(*(pl.lit(value).alias(name) for name, value in common.items()))
        .with_columns(reason=pl.lit(""), software=pl.lit("{}"))
        .select(pl.col(name).cast(kind) for name, kind in columns().items() if name in samples_table.READ)
    )


def verdicts_of(frames: Iterable[pl.DataFrame], system: System | Undescribed | None = None) -> Findings:
    """Return the verdicts of tables of records, as `report` gives them."""
    return judged(samples_table.of_frames(frames, SYSTEM), system or Undescribed(SYSTEM))


def words_of(verdicts: Findings) -> dict[str, str]:
    """Return the word of each host."""
    return {host: ORDER[verdicts.word(host)] for host in verdicts.hosts}


def rate(count: int, of: int, scale: int = 1000) -> str:
    """Return a rate with the interval of Wilson (95 %)."""
    if not of:
        return "-"
    z = 1.96
    share, n = count / of, of
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    return f"{scale * share:.1f} ({scale * low:.1f} to {scale * high:.1f})"


def _days(repetitions: int) -> NDArray[np.int64]:
    return np.arange(repetitions) // IN_SESSION


def conditions(seed: int, *, quick: bool) -> Iterator[str]:
    """Yield the lines of a table: false fails and detection by noise, spread, size of the fleet, repetitions."""
    yield (
        "| hosts | noise | spread | repetitions | false fails per 1,000 | false suspects | 3 % | 5 % | 10 % |"
        + (" ReFrame 5 %, SuperBench: false per 1,000 |")
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    base = (16, "normal", 0.01, "normal", 5)
    cases = [base]
    cases += [
        (16, kind, 0.01, "normal", count) for kind in NOISES for count in ((3, 12) if quick else (1, 3, 5, 12, 24))
    ]
    cases += [(16, "normal", s, "normal", 12) for s in (0.0, 0.004, 0.02, 0.03, 0.04)]
    cases += [(16, "normal", 0.01, shape, 12) for shape in ("uniform", "skewed")]
    cases += [(hosts, "normal", 0.01, "normal", count) for hosts in (5, 8, 50, 300) for count in (1, 3, 12)]
    at_least = 48 if quick else 1200
    for number, (hosts, kind, spread, shape, count) in enumerate(cases):
        fails = suspects = good = theirs = superbench = 0
        hits: dict[float, list[bool]] = {loss: [] for loss in LOSSES}
        for fleet in range(max(3, at_least // hosts) if hosts < 300 or not quick else 1):
            rng = np.random.default_rng([seed, number, fleet])
            levels = 1 + spread * _spread(shape, (hosts, METRICS), rng)
            loss = LOSSES[fleet % len(LOSSES)]
            levels[0, 0] *= 1 - loss
            values = repeated(levels, count, 0.01, kind, rng)
            verdicts = verdicts_of([frame(values, _days(count))])
            words = words_of(verdicts)
            del words["n0"]
            findings = [f for f in verdicts.of("n0").findings if f.verdict == "fail"]
            hits[loss].append(any((f.metric, f.case["bank"]) == ("copy_bandwidth", 0) for f in findings))
            good += len(words)
            fails += sum(word == "fail" for word in words.values())
            suspects += sum(word == "suspect" for word in words.values())
            means = np.nanmean(values, axis=2)
            theirs += int((means[1:] < 0.95).any(axis=1).sum())
            blamed = set().union(*(repository(column.tolist()) for column in means.T))
            superbench += len(blamed - {0})
        detected = " | ".join(f"{sum(h)} of {len(h)}" for h in hits.values())
        yield (
            f"| {hosts} | {kind} | {100 * spread:g} %, {shape} | {count} | {rate(fails, good)} | "
            f"{rate(suspects, good)} | {detected} | {1000 * theirs / good:.0f}, {1000 * superbench / good:.0f} |"
        )


def references(seed: int, *, quick: bool) -> Iterator[str]:
    """Yield the lines of a table: references of few hosts applied to 300 others."""
    yield "| learned from | spread | noise | references | repetitions | false fails per 1,000 | false suspects |"
    yield "|---|---|---|---|---|---|---|"
    text = (load(SYSTEM).path or Path()).read_text(encoding="utf-8").split("references:")[0] + "references: []\n"
    sizes = ((8, 5),) if quick else tuple((hosts, n) for hosts in (8, 20, 50) for n in (3, 5))
    kinds = ("normal",) if quick else ("normal", "t", "AR(1)", "session")
    spreads = (0.01,) if quick else (0.0, 0.004, 0.01, 0.02, 0.03, 0.04)
    for hosts, repetitions in sizes:
        for kind in kinds:
            for spread in spreads:
                rng = np.random.default_rng([seed, hosts, repetitions, kinds.index(kind), round(1e4 * spread)])
                first = repeated(1 + spread * rng.standard_normal((hosts, METRICS)), repetitions, 0.01, kind, rng)
                with tempfile.TemporaryDirectory() as folder:
                    file = Path(folder) / f"{SYSTEM}.yaml"
                    file.write_text(text, encoding="utf-8")
                    table = samples_table.of_frames([frame(first, _days(repetitions), "r")], SYSTEM)
                    learned = learnt(table, load(file))
                    file.write_text(put(text, learned), encoding="utf-8")
                    system = load(file)
                levels = 1 + spread * rng.standard_normal((300, METRICS))
                values = repeated(levels, 24, 0.01, kind, rng)
                for count in (1, 5, 12) if quick else (1, 3, 5, 12, 24):
                    words = words_of(verdicts_of([frame(values[..., :count], _days(count))], system))
                    total = Counter(words.values())
                    yield (
                        f"| {hosts} hosts x {repetitions} | {100 * spread:g} % | {kind} | "
                        f"{len(learned.learnt)} | {count} | "
                        f"{rate(total['fail'], 300)} | {rate(total['suspect'], 300)} |"
                    )


def year(seed: int, *, quick: bool) -> Iterator[str]:
    """Yield the lines of a table: a year of weekly verdicts."""
    yield "| fleet | weeks until named, failed | words of bad hosts | false fails per 1,000 | flaps per host |"
    yield "|---|---|---|---|---|"
    count, metrics = 3, 10
    fleets = ((16, "intermittent"), (8, "divided"), (50, "divided"), (32, "update"), (32, "rolling update"))
    for hosts, name in fleets:
        for fleet in range(1 if quick else 5):
            rng = np.random.default_rng([seed, hosts, fleet])
            levels = 1 + 0.01 * rng.standard_normal((hosts, metrics))
            bad = {f"n{h}" for h in range(hosts // 2 if name == "divided" else 1)}
            if name == "divided":
                levels[: hosts // 2] *= 0.94
            values = repeated(levels, 52 * count, 0.01, "normal", rng)
            if name == "intermittent":
                hit = rng.random(values.shape[2]) < 0.15
                values[0][:, hit] *= 1 - rng.uniform(0.15, 0.30, int(hit.sum()))
            if name.endswith("update"):
                slower = 1 - rng.uniform(0.18, 0.22, (hosts, metrics))
                slower[0] *= 0.92
                weeks = np.arange(52 * count) // count
                begins = 20 + (np.arange(hosts) * 16 // hosts if name == "rolling update" else np.zeros(hosts))
                values *= np.where(weeks >= begins[:, None, None], slower[..., None], 1)
            history: dict[str, list[str]] = {}
            for week in range(1, 53):
                days = 7 * (np.arange(week * count) // count)
                for host, word in words_of(verdicts_of([frame(values[..., : week * count], days)])).items():
                    history.setdefault(host, []).append(word)
            named = [
                next((str(i + 1) for i, word in enumerate(history[host]) if word in wanted), "never")
                for wanted in ({"suspect", "fail"}, {"fail"})
                for host in sorted(bad)[:1]
            ]
            words = Counter(word for host in bad for word in history[host])
            good = [word for host, series in history.items() if host not in bad for word in series]
            flaps = statistics.fmean(sum(a != b for a, b in pairwise(series)) for series in history.values())
            listed = ", ".join(f"{n} {word}" for word, n in words.most_common())
            yield (
                f"| {name}, {hosts} hosts | {', '.join(named)} | {listed} | "
                f"{rate(good.count('fail'), len(good))} | {flaps:.1f} |"
            )


NATURES = ("normal", "exponential", "log-normal", "uniform", "racks", "shared")


def nature(kind: str, size: tuple[int, int], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return how far hosts x metrics differ, with a standard deviation of 1."""
    normal = rng.exponential(size=size) if kind == "exponential" else rng.standard_normal(size)
    if kind == "exponential":
        return 1 - normal
    if kind == "log-normal":
        return (math.exp(0.125) - np.exp(0.5 * normal)) / 0.604
    if kind == "racks":
        return (rng.standard_normal((4, size[1]))[np.arange(size[0]) * 4 // size[0]] + normal) / math.sqrt(2)
    if kind == "shared":
        return (rng.standard_normal((size[0], 1)) + normal) / math.sqrt(2)
    return rng.uniform(-math.sqrt(3), math.sqrt(3), size) if kind == "uniform" else normal


def natures(seed: int, *, quick: bool) -> Iterator[str]:
    """Yield the lines of a table: false words by the nature of hosts, and groups of bad hosts that are named."""
    rng, count, fleets = np.random.default_rng(seed), 5, 4 if quick else 40

    def judged_levels(levels: NDArray[np.float64]) -> Findings:
        return verdicts_of([frame(repeated(levels, count, 0.01, "normal", rng), np.zeros(count, dtype=np.int64))])

    yield "| good hosts | metrics | nature | false fails per 1,000 | false suspects | fleets in two groups |"
    yield "|---|---|---|---|---|---|"
    for hosts in (8, 16) if quick else (8, 12, 16, 24, 50):
        for metrics in (1, 8):
            for kind in NATURES:
                for spread in (0.01, 0.03):
                    words, divided = Counter[str](), 0
                    number = max(6, fleets * 16 // hosts // (1 if metrics == 1 else 3))
                    for _ in range(number):
                        verdicts = judged_levels(1 + spread * nature(kind, (hosts, metrics), rng))
                        words.update(words_of(verdicts).values())
                        divided += bool(verdicts.divided)
                    fails, suspects = (rate(words[word], words.total()) for word in ("fail", "suspect"))
                    of_kind = f"{hosts} | {metrics} | {kind}, {100 * spread:g} %"
                    yield f"| {of_kind} | {fails} | {suspects} | {divided} of {number} |"
    yield "| hosts, bad ones | metrics | loss of one metric | all named | words of bad hosts | of good hosts |"
    yield "|---|---|---|---|---|---|"
    groups = ((16, 6, 0.1), (12, 4, 0.1), (12, 4, 0.15), (8, 3, 0.15), (8, 3, 0.25), (20, 8, 0.08))
    for hosts, bad, loss in groups:
        for metrics in (1, 8):
            of_bad, of_good, named = Counter[str](), Counter[str](), 0
            for _ in range(fleets):
                levels = 1 + 0.01 * nature("normal", (hosts, metrics), rng)
                levels[:bad, 0] *= 1 - loss
                listed = words_of(judged_levels(levels))
                words_bad = [listed.pop(f"n{host}") for host in range(bad)]
                named += {"fail", "suspect"}.issuperset(words_bad)
                of_bad.update(words_bad)
                of_good.update(listed.values())
            texts = [", ".join(f"{n} {word}" for word, n in of.most_common()) for of in (of_bad, of_good)]
            yield f"| {hosts}, {bad} | {metrics} | {100 * loss:g} % | {named} of {fleets} | {' | '.join(texts)} |"


def own(seed: int, *, quick: bool) -> Iterator[str]:
    """Yield the lines of a table: false fails and detection by own levels, by noise and number of sessions."""
    after = (3, 4, 6)
    yield (
        "| hosts | noise of a session | sessions | false fails per 1,000 | false suspects | loss | "
        f"failed after {', '.join(map(str, after))} sessions |"
    )
    yield "|---|---|---|---|---|---|---|"
    cases = [
        (hosts, kind, noise, sessions)
        for hosts in ((100,) if quick else (100, 1000))
        for kind, noise in (("normal", 0.01), ("normal", 0.03), ("normal", 0.05), ("normal", 0.12), ("t", 0.03))
        for sessions in ((12,) if quick else (12, 24, 52))
    ]
    for number, (hosts, kind, noise, sessions) in enumerate(cases):
        loss = max(0.05, min(5 * noise, 0.4))
        words: Counter[str] = Counter()
        failed, bad = Counter[int](), 0
        for fleet in range(3 if quick else 2000 // hosts):
            for count in after:
                rng = np.random.default_rng([seed, number, fleet, count])
                levels = 1 + 0.01 * rng.standard_normal((hosts, METRICS))
                values = repeated(levels, sessions, noise, kind, rng)
                values[::10, 0, -count:] *= 1 - loss
                verdicts = verdicts_of([frame(values, 7 * np.arange(sessions))])
                bad_hosts = {f"n{host}" for host in range(0, hosts, 10)}
                good = words_of(verdicts)
                for host in bad_hosts:
                    del good[host]
                    findings = [f for f in verdicts.of(host).findings if f.verdict == "fail"]
                    failed[count] += any((f.metric, f.case["bank"]) == ("copy_bandwidth", 0) for f in findings)
                words.update(good.values())
            bad += len(bad_hosts)
        of_good = sum(words.values())
        shares = ", ".join(f"{100 * failed[count] / bad:.0f} %" for count in after)
        yield (
            f"| {hosts} | {100 * noise:g} %, {kind} | {sessions} | {rate(words['fail'], of_good)} | "
            f"{rate(words['suspect'], of_good)} | {100 * loss:g} % | {shares} |"
        )


TABLES = {"conditions": conditions, "references": references, "year": year, "own": own, "natures": natures}


def main() -> None:
    """Print Markdown tables, or a JSON document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fleets", type=int, default=10, help="fleets of each kind")
    parser.add_argument("--seed", type=int, default=90210, help="the first seed")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--noise", type=float, default=100 * NOISE, metavar="PERCENT")
    parser.add_argument("--table", choices=["faults", *TABLES], help="only this table (default: all)")
    parser.add_argument("--quick", action="store_true", help="fewer fleets and cases: about two minutes")
    parser.add_argument("--json", action="store_true", help="the table of faults as JSON")
    args = parser.parse_args()
    if args.quick:
        args.fleets = min(args.fleets, 1)
    if args.table in {None, "faults"}:
        faults(args)
    for name, table in TABLES.items():
        if args.table in {None, name} and not args.json:
            print(
                f"\n{name}, hosts with {METRICS} metrics (year: 10, natures: 1 and 8), noise 1 %, seed {args.seed}"
            )
            for line in table(args.seed, quick=args.quick):
                print(line, flush=True)


def faults(args: argparse.Namespace) -> None:
    """Print the table of fleets with known faults, or a JSON document."""
    sums = run(range(args.seed, args.seed + args.fleets), args.repetitions, args.noise / 100)
    if args.json:
        print(json.dumps({f: {n: vars(s) for n, s in by.items()} for f, by in sums.items()}, indent=2))
        return
    metrics = len(list(cases()))
    print(
        f"{args.fleets} fleets each of {HOSTS} hosts x {metrics} metrics, noise {args.noise:g} %, seed {args.seed}"
    )
    print("| fleet | rule | detected | false alarms per 1,000 | undecided | causes right, wrong |")
    print("|---|---|---|---|---|---|")
    for fleet, by in sums.items():
        for name, s in by.items():
            detected = f"{s.detected} of {s.bad}" if s.bad else "-"
            is_ours = name.startswith("firsttouch")
            undecided = f"{s.words['undecided']} of {s.bad + s.good}" if is_ours else "-"
            causes = f"{s.right} of {s.expected}, {s.wrong}" if is_ours else "-"
            alarms = f"{1000 * s.alarms / s.good:.1f}" if s.good else "-"
            print(f"| {fleet} | {name} | {detected} | {alarms} | {undecided} | {causes} |")


if __name__ == "__main__":
    main()
