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
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from verdict import below, paper, repository

from firsttouch.judge import samples_table
from firsttouch.judge.judging import MOST_REPETITIONS, Undescribed, judged
from firsttouch.judge.verdict import ORDER
from firsttouch.records.schema import Record

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
        slow = dict.fromkeys(hosts[: HOSTS * share // 100], memory(0.92))
        yield Fleet(f"firmware: {share} % of the hosts 8 % slower in memory", slow)
    third = [hosts[i : HOSTS * 3 // 10 : 3] for i in range(3)]
    kinds = (channel, cap, memory(0.9))
    faults = {host: kind for group, kind in zip(third, kinds, strict=True) for host in group}
    yield Fleet(
        "30 % of the hosts bad: missing channel, frequency cap, 10 % of memory speed",
        faults,
        causes=frozenset([*_CAUSE.values()]),
    )
    yield Fleet("one host with 8 times the noise", noisy={hosts[0]: 8.0})
    yield Fleet("one host without a metric", lack=frozenset(hosts[:1]))


#: Faults that have a cause.
_CAUSE: Mapping[Fault, str] = {channel: "memory channel missing", cap: "frequency or power cap"}


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


def main() -> None:
    """Print a Markdown table per fleet, or a JSON document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fleets", type=int, default=10, help="fleets of each kind")
    parser.add_argument("--seed", type=int, default=90210, help="the first seed")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--noise", type=float, default=100 * NOISE, metavar="PERCENT")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
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
