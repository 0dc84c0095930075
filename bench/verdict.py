# SPDX-License-Identifier: Apache-2.0
"""How well verdicts find a host that loses 5 % of one metric, and how often they blame good ones.

Method. A fleet of HOSTS hosts, each with METRICS metrics; good hosts differ by SPREAD in each (a normal deviation;
--spread: another one); one host loses LOSS of one metric. The scatter of a metric's repetitions is drawn from the
320 errors of the published tables (median 4.9 %, up to 26 %). Its shape is that of real repetitions by the probe
on a busy virtual machine (bench/data/repetitions.csv, scaled to the same deviation) for every other metric, and
normal for the rest. One repetition in a hundred is disturbed and 5 to 30 % worse.

firsttouch: `baseline` asks for repetitions of the fleet until it knows a metric well enough; the reference that it
learns judges every host afresh, which is measured again until the verdict is sure. The others, as they are used:

- threshold: Azure's node health checks compare one repetition of STREAM with a constant: 320 GB/s in
  conf/hb120rs_v3.conf of Azure/azurehpc-health-checks, taken here as 320/350 of what a good host reaches.
- ReFrame: one repetition against a reference with a tolerance of 5 %; and of 10 %.
- SuperBench's repository: the mean of all hosts, again and again without those that lose more than 5 % of it, is
  the baseline (superbench/analyzer/baseline_generation.py, algorithm fix_threshold); a host fails by that rule.
- SuperBench's paper (Y. Xiong et al., USENIX ATC 2024): the same with the similarity of distributions: one minus
  the area between two cumulative distributions, as a share of the larger mean; the criterion is the host that is
  most similar to all others, hosts less similar than 0.95 are left out, again and again. The formula is this
  file's reading of a summary: no code of that method was there to compare with.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from firsttouch.judge.fleet_level import LOSS, Level

from firsttouch.judge import fleet_level, sprt
from firsttouch.judge.judging import MOST_REPETITIONS

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = ROOT / "reframe" / "systems" / "lenis2017_execution_times.csv"
REPEATED = Path(__file__).with_name("data") / "repetitions.csv"
HOSTS, METRICS, SPREAD = 100, 6, 0.005
DISTURBED, BY = 0.01, (0.05, 0.30)
FIRST_REPETITIONS = 5
#: As many repetitions a metric gets at most, however unsure it still is.
MOST = 5000
Draw = Callable[[], float]


@dataclass
class Metric:
    """A metric of a trial: levels of its hosts (1: good), how one repetition is drawn, and which host is bad."""

    error: float
    levels: Sequence[float]
    noise: Draw
    rng: random.Random
    bad: int | None

    def repetition(self, host: int) -> float:
        """Return one repetition of a host, as a rate."""
        value = self.levels[host] * (1 + self.error * self.noise())
        if self.rng.random() < DISTURBED:
            value *= 1 - self.rng.uniform(*BY)
        return max(value, 0.05)


@dataclass
class Score:
    """The result of one rule: hosts detected, hosts blamed, and repetitions per host and metric."""

    detected: int = 0
    trials: int = 0
    blamed: int = 0
    validations: int = 0
    repetitions: list[float] = field(default_factory=list)

    def to_dict(self) -> dict[str, float]:
        """Return the figures that count."""
        return {
            "found_pct": 100 * self.detected / self.trials,
            "false_alarms_per_1000_validations": 1000 * self.blamed / self.validations,
            "repetitions_per_metric": statistics.fmean(self.repetitions),
            "trials": self.trials,
        }


def errors() -> list[float]:
    """Return the published errors as fractions."""
    with PUBLISHED.open(encoding="utf-8") as lines:
        return [float(row["error_pct"]) / 100 for row in csv.DictReader(lines) if row["error_pct"]]


def shapes() -> list[list[float]]:
    """Return series of real repetitions: deviations from the median in standard deviations, negative if worse."""
    series: dict[tuple[str, ...], list[float]] = {}
    with REPEATED.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            series.setdefault((row["better"], row["metric"], row["case"]), []).append(float(row["value"]))
    deviations = []
    for (better, *_), values in series.items():
        middle, deviation = statistics.median(values), statistics.stdev(values)
        sign = 1 if better == "higher" else -1
        deviations.append([sign * (v - middle) / deviation for v in values])
    return deviations


def fleet(rng: random.Random, most_error: float = 1.0, spread: float = SPREAD) -> list[Metric]:
    """Return the metrics of a trial, with published errors of at most *most_error*.

    *spread* is the standard deviation between good hosts.
    """
    published, real = [e for e in errors() if e <= most_error], shapes()
    bad = rng.randrange(METRICS)
    metrics = []
    for number in range(METRICS):
        levels = [1 + rng.gauss(0, spread) for _ in range(HOSTS)]
        host = rng.randrange(HOSTS) if number == bad else None
        if host is not None:
            levels[host] *= 1 - LOSS
        series = rng.choice(real)
        noise: Draw = (lambda: rng.gauss(0, 1)) if number % 2 else (lambda s=series: rng.choice(s))
        metrics.append(Metric(rng.choice(published), levels, noise, rng, host))
    return metrics


def baseline(metric: Metric) -> tuple[Level, list[list[float]]]:
    """Return the reference level that `baseline` learns of a metric, and the repetitions of each host."""
    repetitions = [[metric.repetition(host) for _ in range(FIRST_REPETITIONS)] for host in range(HOSTS)]
    while True:
        samples = sprt.Groups(np.array(repetitions).ravel(), np.full(HOSTS, len(repetitions[0])))
        level = fleet_level.level(samples, [str(host) for host in range(HOSTS)], "higher")
        if level is None:
            raise SystemExit("the fleet's repetitions give no reference level")
        more = level.more_repetitions
        if not more or len(repetitions[0]) > MOST:
            return level, repetitions
        for host, values in enumerate(repetitions):
            values += [metric.repetition(host) for _ in range(more)]


def ours(metric: Metric, level: Level, most: int) -> tuple[set[int], float]:
    """Return the hosts that fail by the sequential test, and its repetitions per host."""
    failing, repetitions = set(), 0
    for host in range(HOSTS):
        evidence = 0.0
        for _ in range(most):
            repetitions += 1
            loss = np.array([1 - metric.repetition(host) / level.value])
            evidence += float(sprt.weights(loss, level.limit, level.error)[0])
            if not sprt.PASS_AT < evidence < sprt.FAIL_AT:
                break
        if evidence >= sprt.FAIL_AT:
            failing.add(host)
    return failing, repetitions / HOSTS


def below(values: Sequence[float], least: float) -> set[int]:
    """Return the hosts whose value is below *least*."""
    return {host for host, value in enumerate(values) if value < least}


def repository(values: Sequence[float]) -> set[int]:
    """Return the hosts that fail by SuperBench's fixed threshold of 5 %."""
    kept = list(values)
    while True:
        mean = statistics.fmean(kept)
        remaining = [v for v in kept if v >= mean * (1 - LOSS)]
        if len(remaining) == len(kept):
            return below(values, mean * (1 - LOSS))
        kept = remaining


def paper(series: Sequence[Sequence[float]]) -> set[int]:
    """Return the hosts that fail by the similarity of distributions (series of one length)."""
    ordered = [sorted(s) for s in series]
    means = [statistics.fmean(s) for s in ordered]

    def similarity(a: int, b: int) -> float:
        area = statistics.fmean(abs(x - y) for x, y in zip(ordered[a], ordered[b], strict=True))
        return 1 - area / max(means[a], means[b])

    kept = list(range(len(ordered)))
    while True:
        centre = max(kept, key=lambda a: sum(similarity(a, b) for b in kept))
        remaining = [h for h in kept if similarity(centre, h) >= 1 - LOSS]
        if len(remaining) == len(kept):
            break
        kept = remaining
    # A faster host has no defect.
    return {h for h in range(len(ordered)) if similarity(centre, h) < 1 - LOSS and means[h] < means[centre]}


def run(trials: int, seed: int, most_error: float, spread: float, *, similarity: int) -> dict[str, Score]:
    """Return the score of each rule over *trials* fleets; of SuperBench's paper, over the first *similarity*."""
    scores: dict[str, Score] = {}

    def note(name: str, failing: set[tuple[int, int]], bad: tuple[int, int], repetitions: float) -> None:
        score = scores.setdefault(name, Score())
        score.trials += 1
        score.detected += bad in failing
        score.blamed += len({host for number, host in failing if (number, host) != bad})
        score.validations += HOSTS
        score.repetitions.append(repetitions)

    for trial in range(trials):
        rng = random.Random(f"{seed}/{trial}")  # noqa: S311
        metrics = fleet(rng, most_error, spread)
        failing: dict[str, set[tuple[int, int]]] = {}
        repetitions: dict[str, list[float]] = {}
        bad = next((n, m.bad) for n, m in enumerate(metrics) if m.bad is not None)
        for number, metric in enumerate(metrics):
            level, of_hosts = baseline(metric)
            first = [values[0] for values in of_hosts]
            good = level.value
            ways: dict[str, tuple[set[int], float]] = {
                "firsttouch": ours(metric, level, MOST),
                f"firsttouch, {MOST_REPETITIONS} repetitions at most": ours(metric, level, MOST_REPETITIONS),
                "its baseline": (set(), len(of_hosts[0])),
                "threshold, 1 repetition": (below(first, good * 320 / 350), 1),
                "ReFrame 5 %, 1 repetition": (below(first, good * (1 - LOSS)), 1),
                "ReFrame 10 %, 1 repetition": (below(first, good * 0.9), 1),
                "ReFrame 5 %, mean of 10 repetitions": (
                    below(
                        [statistics.fmean(metric.repetition(h) for _ in range(10)) for h in range(HOSTS)],
                        good * 0.95,
                    ),
                    10,
                ),
                "SuperBench's repository, 1 repetition": (repository(first), 1),
                "SuperBench's repository, mean of 5 repetitions": (
                    repository([statistics.fmean(values[:FIRST_REPETITIONS]) for values in of_hosts]),
                    FIRST_REPETITIONS,
                ),
            }
            if trial < similarity:
                ways["SuperBench's paper, 5 repetitions"] = (
                    paper([v[:FIRST_REPETITIONS] for v in of_hosts]),
                    FIRST_REPETITIONS,
                )
            for name, (hosts, cost) in ways.items():
                failing.setdefault(name, set()).update((number, host) for host in hosts)
                repetitions.setdefault(name, []).append(cost)
        for name, hosts in failing.items():
            note(name, hosts, bad, statistics.fmean(repetitions[name]))
    return scores


def main() -> None:
    """Print a line per rule, or a JSON document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--most-error", type=float, default=100, metavar="PERCENT", help="leave out published errors above this"
    )
    parser.add_argument("--spread", type=float, default=100 * SPREAD, metavar="PERCENT")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rules = run(args.trials, args.seed, args.most_error / 100, args.spread / 100, similarity=args.trials // 10)
    scores = {name: score.to_dict() for name, score in rules.items()}
    if args.json:
        print(json.dumps({"loss": LOSS, "hosts": HOSTS, "metrics": METRICS, "ways": scores}, indent=2))
        return
    print(f"{'':44}{'detected':>9}{'false alarms':>15}{'repetitions':>12}")
    print(
        f"{LOSS:.0%} loss of one metric on one host of {HOSTS}".ljust(44)
        + f"{'%':>9}{'per 1000 hosts':>15}{'per metric':>12}"
    )
    for name, score in scores.items():
        share = "" if "baseline" in name else f"{score['found_pct']:.1f}"
        blamed = "" if "baseline" in name else f"{score['false_alarms_per_1000_validations']:.2f}"
        print(f"{name:44}{share:>9}{blamed:>15}{score['repetitions_per_metric']:>12.1f}")


if __name__ == "__main__":
    main()
