# SPDX-License-Identifier: Apache-2.0
"""Compares verdicts with the rules of others on simulated fleets with known faults, in the same run.

Method. Fleets are simulated by another model than the judge's. The logarithm of a value is the sum of

- the level of its metric and, if the host is bad, the loss by its fault
- the nature of the host: a deviation for each class (bandwidth, latency, clock) and one for each metric, of
  equal variance
- the session, and the repetition: noise of nine kinds, see NOISES

Hosts have two NUMA nodes and 20 metrics: four kernels in the memory of each bank, two over each link, and
the latencies of memory and of the first cache in two sizes each. No references judge the hosts, as in `report`.

Faults: all memory (bandwidth loses the share, latency half of it, links the same as the banks), two hosts with
this fault, one bank, one link, one metric, and the clock of all cores. A cell has the percentage of bad hosts
that fail; for firsttouch, the percentage that passes follows. A good host that fails is a false fail. Intervals
are Wilson's (95 %).

Rules of others. They know no other word than fail, and judge the mean of the repetitions of the newest session:

- ReFrame: a metric below its reference by more than 5 or 10 %. Its reference is the true level of good hosts,
  which the other rules have to find.
- SuperBench's repository: the mean of all hosts, again and again without those that lose more than 5 % of it, is
  the baseline (superbench/analyzer/baseline_generation.py, algorithm fix_threshold); a host fails by that rule.
- SuperBench's paper (Y. Xiong et al., USENIX ATC 2024): the same with the similarity of distributions: one minus
  the area between two cumulative distributions, as a share of the larger mean; the criterion is the host that is
  most similar to all others, hosts less similar than 0.95 are left out, again and again. The formula is this
  file's reading of a summary: there was no code of that method to compare with.
- class means: the mean loss of each class of metrics against the median of the hosts; a host fails beyond four
  deviations (1.4826 times the median of the absolute deviations), and 2.5 %.
- PELT (R. Killick et al., Optimal detection of changepoints with a linear computational cost, JASA 2012): the mean
  of each class of a host is divided by least squares with a penalty of 2 ln(n) variances for each change; a host
  fails if its newest level is worse than its best one by more than 2.5 %.

The table of weeks has half a year of weekly sessions. A session offset or a boot state is shared by all metrics
of a host, the summer by all hosts. An update reaches all hosts at five a week from week 8, or each in a random
week; with uneven noise, each metric has 0.2 to 8 times the noise. The fault of 10 % begins in week 14; an
alternating one is there every other week, an intermittent one of 15 % in 30 % of the weeks (judged from the fourth
bad week on). No test uses these seeds.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from firsttouch.judge.judging import judged
from firsttouch.judge.verdict import ORDER
from firsttouch.records.cases import Case
from firsttouch.records.samples_table import SamplesTable
from firsttouch.systems.definition import Undescribed

Array = NDArray[np.float64]
#: Noise of repetitions: normal, Student's t (3 degrees of freedom), autocorrelated, with an offset for each
#: session, rising by 2 % within a session, 1.5 % of the repetitions 5 to 30 % worse, hosts with one to all
#: repetitions, values rounded to 2 %, and hosts that are 2 % slower after half of their boots.
NOISES = ("normal", "t", "AR(1)", "session", "drift", "outliers", "unequal", "rounded", "boot")
#: The noise of the metrics of a host in units of the noise, for updates that some parts hide.
UNEVEN = (0.2, 0.5, 1.0, 2.0, 5.0, 8.0)
SYSTEM, KERNELS, LEVEL = "simulated", ("copy", "scale", "add", "triad"), 50.0
WEEKS, BEGIN, FAULT = 26, 8, 14
_WEEK, _START = 7 * 86_400_000, 1_767_225_600_000  # 2026-01-01
_MEMORY, _FIRST_CACHE = (1 << 27, 1 << 28), (1 << 12, 1 << 13)


def _cases() -> Iterator[Case]:
    for bank in range(2):
        for node, kernels in ((bank, KERNELS), (1 - bank, ("copy", "triad"))):
            for kernel in kernels:
                place = {"pu_nodes": [node], "bank": bank, "kernel": kernel}
                yield Case(SYSTEM, "bandwidth", f"{kernel}_bandwidth", place, "GB/s", "higher")
        for size in (*_MEMORY, *_FIRST_CACHE):
            place = {"pu_nodes": [bank], "bank": bank, "size_bytes": size}
            yield Case(SYSTEM, "latency", "random_latency", place, "ns", "lower")


CASES = list(_cases())
IS_RATE = np.array([case.better == "higher" for case in CASES])
IS_CLOCK = np.array([case.parameters.get("size_bytes", _MEMORY[0]) < _MEMORY[0] for case in CASES])
#: The class of each metric: bandwidth, latency, clock.
CLASSES = np.where(IS_RATE, 0, np.where(IS_CLOCK, 2, 1))
_IS_LATENCY = CLASSES == 1
_IS_FIRST = np.array([case.parameters["bank"] == 0 for case in CASES])
_IS_LINK = np.array([case.parameters["pu_nodes"] != [case.parameters["bank"]] for case in CASES])


def loss_by(kind: str, share: float) -> Array:
    """Return what each metric loses by a fault of a *kind* (logarithms); *share* is lost where it shows most."""
    lost, half = -math.log1p(-share), -math.log1p(-share / 2)
    if kind == "memory":
        return IS_RATE * lost + _IS_LATENCY * half
    if kind == "bank":
        return _IS_FIRST * (IS_RATE * lost + _IS_LATENCY * half)
    if kind == "link":
        return _IS_FIRST * _IS_LINK * lost
    if kind == "clock":
        return IS_CLOCK * lost
    return np.eye(len(CASES))[0] * lost


# ----------------------------------------------------------------------
# The model


@dataclass(frozen=True)
class Condition:
    """How fleets are simulated, by two deviations: *spread* between good hosts, *noise* between repetitions."""

    hosts: int = 8
    spread: float = 0.01
    noise: float = 0.01
    repetitions: int = 3
    kinds: Sequence[str] = NOISES

    def text(self) -> str:
        """Return the cells of a row."""
        kind = self.kinds[0] if len(self.kinds) == 1 else "all"
        return f"{self.hosts} | {100 * self.spread:g}, {100 * self.noise:g} %, {kind} | {self.repetitions}"


def simulated(losses: Array, condition: Condition, kind: str, rng: np.random.Generator) -> Array:
    """Return rates of metrics x hosts x sessions x repetitions with these *losses*; NaN: not measured."""
    metrics, hosts, sessions = losses.shape
    repetitions, noise = condition.repetitions, condition.noise
    size = (*losses.shape, repetitions)
    errors = rng.standard_t(3, size) / math.sqrt(3) if kind == "t" else rng.standard_normal(size)
    if kind == "AR(1)":
        for i in range(1, repetitions):
            errors[..., i] = 0.6 * errors[..., i - 1] + 0.8 * errors[..., i]
    if kind == "uneven":
        errors *= rng.choice(UNEVEN, metrics)[:, None, None, None]
    nature = rng.standard_normal((3, hosts))[CLASSES] + rng.standard_normal((metrics, hosts))
    values: Array = losses[..., None] + condition.spread / math.sqrt(2) * nature[..., None, None] + noise * errors
    if kind == "session":
        offsets = rng.standard_normal((metrics, hosts, sessions)) + rng.standard_normal((hosts, sessions))
        values += 0.7 * noise * offsets[..., None]
    elif kind == "drift":
        values += 0.02 * np.arange(repetitions) / repetitions
    elif kind == "outliers":
        values -= np.where(rng.random(size) < 0.015, np.log1p(-rng.uniform(0.05, 0.3, size)), 0.0)
    elif kind == "boot":
        values += 0.02 * (rng.random((hosts, sessions)) < 0.5)[..., None]
    elif kind == "unequal":
        counts = rng.integers(1, repetitions + 1, (hosts, sessions))
        values[:, np.arange(repetitions) >= counts[..., None]] = np.nan
    rates = LEVEL * np.exp(np.where(IS_RATE, -1, 1)[:, None, None, None] * values)
    return np.round(rates) if kind == "rounded" else rates


def table(rates: Array) -> SamplesTable:
    """Return the table of measurements that a store has of simulated rates."""
    _, hosts, sessions, _ = rates.shape
    case, host, session, _ = np.nonzero(np.isfinite(rates))
    rows = len(case)
    firsts = np.flatnonzero(np.diff(case * hosts + host, prepend=-1))
    return SamplesTable(
        hosts=[f"n{number:04d}" for number in range(hosts)],
        cases=CASES,
        case=case[firsts].astype(np.int32),
        host=host[firsts].astype(np.int32),
        counts=np.diff(firsts, append=rows),
        session_times=np.tile(_START + np.arange(sessions) * _WEEK, hosts),
        host_sessions=np.arange(hosts) * sessions,
        event_times={},
        settings={},
        replaced={},
        replaced_of={},
        value=rates[np.isfinite(rates)].astype(np.float32),
        valid=np.ones(rows, dtype=np.bool_),
        judged=np.ones(rows, dtype=np.bool_),
        reason=np.zeros(rows, dtype=np.uint8),
        ordinal=session.astype(np.uint16),
        busy_pus=None,
        reasons={0: ""},
    )


# ----------------------------------------------------------------------
# The rules. Each returns the word of each host.

Words = NDArray[np.str_]


def firsttouch(rates: Array) -> Words:
    """Return the words of the verdicts of all sessions."""
    verdicts = judged(table(rates), Undescribed(SYSTEM))
    return np.array([ORDER[verdicts.word(host)] for host in verdicts.hosts])


def _speeds(rates: Array) -> Array:
    """Return a row per metric with the repetitions of each host in the newest session, 1 for the level."""
    newest = rates[:, :, -1] / LEVEL
    speeds: Array = np.where(IS_RATE[:, None, None], newest, 1 / newest)
    return speeds


def _failing(is_bad: NDArray[np.bool_]) -> Words:
    """Return the words of hosts that fail if any metric (row) is bad."""
    return np.where(is_bad.any(axis=0), "fail", "pass")


def reframe(tolerance: float) -> Callable[[Array], Words]:
    """Return the rule of a reference with this *tolerance*."""
    return lambda rates: _failing(np.nanmean(_speeds(rates), axis=2) < 1 - tolerance)


def repository(rates: Array) -> Words:
    """Return the words by SuperBench's fixed threshold of 5 %."""

    def is_bad(speeds: Array) -> NDArray[np.bool_]:
        remaining = speeds
        while (kept := remaining[remaining >= 0.95 * remaining.mean()]).size < remaining.size:
            remaining = kept
        return speeds < 0.95 * remaining.mean()

    return _failing(np.array([is_bad(row) for row in np.nanmean(_speeds(rates), axis=2)]))


def paper(rates: Array) -> Words:
    """Return the words by the similarity of distributions."""

    def is_bad(repetitions: Array) -> NDArray[np.bool_]:
        # Quantiles: hosts may have different numbers of repetitions.
        ordered = np.nanquantile(repetitions, np.linspace(0, 1, repetitions.shape[1]), axis=1).T
        means = ordered.mean(axis=1)
        areas = np.abs(ordered[:, None] - ordered[None]).mean(axis=2)
        similarity = 1 - areas / np.maximum(means[:, None], means[None])
        kept = np.arange(len(ordered))
        while True:
            centre = kept[np.argmax(similarity[np.ix_(kept, kept)].sum(axis=1))]
            remaining = kept[similarity[centre, kept] >= 0.95]
            if len(remaining) == len(kept):
                break
            kept = remaining
        # A faster host has no defect.
        bad: NDArray[np.bool_] = (similarity[centre] < 0.95) & (means < means[centre])
        return bad

    return _failing(np.array([is_bad(row) for row in _speeds(rates)]))


def class_means(rates: Array) -> Words:
    """Return the words by the mean loss of each class of metrics."""
    losses = -np.log(np.nanmedian(_speeds(rates), axis=2))
    losses -= np.median(losses, axis=1, keepdims=True)
    means = np.array([losses[number == CLASSES].mean(axis=0) for number in range(3)])
    away = means - np.median(means, axis=1, keepdims=True)
    limits = 4 * 1.4826 * np.median(np.abs(away), axis=1, keepdims=True)
    return _failing(away > np.maximum(limits, 0.025))


def pelt(rates: Array) -> Words:
    """Return the words by the changes of each class of metrics."""
    logs = np.log(np.nanmedian(rates / LEVEL, axis=3)) * np.where(IS_RATE, -1, 1)[:, None, None]
    means = np.array([logs[number == CLASSES].mean(axis=0) for number in range(3)])
    is_bad = np.zeros(means.shape[:2], dtype=np.bool_)
    for place in np.ndindex(*is_bad.shape):
        ends = [0, *_changes(means[place]), means.shape[2]]
        segments = [means[place][first:last].mean() for first, last in itertools.pairwise(ends)]
        is_bad[place] = segments[-1] - min(segments) > 0.025
    return _failing(is_bad)


def _changes(values: Array) -> list[int]:
    """Return where the mean of *values* changes: the least squares with a penalty for each change."""
    count = len(values)
    if count < 4:
        return []
    sums, squares = (np.concatenate([[0.0], np.cumsum(values**power)]) for power in (1, 2))
    penalty = 2 * math.log(count) * (1.4826 * float(np.median(np.abs(np.diff(values)))) / math.sqrt(2)) ** 2
    costs, before, open_ends = np.full(count + 1, -penalty), np.zeros(count + 1, dtype=np.int64), np.array([0])
    for end in range(1, count + 1):
        length, total = end - open_ends, sums[end] - sums[open_ends]
        of_each = costs[open_ends] + squares[end] - squares[open_ends] - total**2 / length
        best = int(np.argmin(of_each))
        costs[end], before[end] = of_each[best] + penalty, open_ends[best]
        open_ends = np.append(open_ends[of_each <= costs[end]], end)
    places = [int(before[count])]
    while places[-1] > 0:
        places.append(int(before[places[-1]]))
    return places[-2::-1]


RULES: Mapping[str, Callable[[Array], Words]] = {
    "firsttouch": firsttouch,
    "ReFrame, -5 %": reframe(0.05),
    "ReFrame, -10 %": reframe(0.10),
    "SuperBench's repository": repository,
    "SuperBench's paper": paper,
    "class means": class_means,
}
#: Those that need weeks, too.
RULES_OF_WEEKS = {**RULES, "PELT": pelt}


# ----------------------------------------------------------------------
# Tables


@dataclass
class Score:
    """The words that a rule gives good hosts, and bad ones by their fault."""

    good: Counter[str] = field(default_factory=Counter)
    bad: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def cell(self, fault: str, *, others: Sequence[str] = ()) -> str:
        """Return the percentages of bad hosts that fail, and that have *others* of the words."""
        words = self.bad[fault]
        shares = [f"{100 * words[word] / words.total():.0f}" for word in ("fail", *others) if words.total()]
        return " / ".join(shares) or "-"


def rate(count: int, total: int) -> str:
    """Return how many of 1,000, with the interval of Wilson (95 %)."""
    if not total:
        return "-"
    z, share = 1.96, count / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    low, high = 1000 * max(0.0, middle - half), 1000 * (middle + half)
    return f"{1000 * share:.1f} ({low:.1f} to {high:.1f})"


#: Column, fault, share, and the number of bad hosts.
FAULTS = (
    ("none", "memory", 0.0, 0),
    ("memory 5 %", "memory", 0.05, 1),
    ("memory 10 %", "memory", 0.10, 1),
    ("memory 15 %", "memory", 0.15, 1),
    ("two of 10 %", "memory", 0.10, 2),
    ("bank 10 %", "bank", 0.10, 1),
    ("link 10 %", "link", 0.10, 1),
    ("metric 10 %", "metric", 0.10, 1),
    ("clock 10 %", "clock", 0.10, 1),
)
_COLUMNS = [name for name, *_ in FAULTS[1:]]


def scores(condition: Condition, fleets: int, seed: int) -> dict[str, Score]:
    """Return the score of each rule over *fleets* with each fault."""
    result = {rule: Score() for rule in RULES}
    rng = np.random.default_rng([seed, condition.hosts, condition.repetitions, round(1e4 * condition.spread)])
    for number in range(fleets):
        kind = condition.kinds[number % len(condition.kinds)]
        for name, fault, share, bad in FAULTS:
            if bad > 0.4 * condition.hosts:
                continue
            losses = np.zeros((len(CASES), condition.hosts, 1))
            losses[:, :bad] += loss_by(fault, share)[:, None, None]
            rates = simulated(losses, condition, kind, rng)
            for rule, words_of in RULES.items():
                words = words_of(rates)
                result[rule].bad[name].update(words[:bad].tolist())
                result[rule].good.update(words[bad:].tolist())
    return result


def faults(conditions: Sequence[Condition], validations: int, seed: int) -> Iterator[str]:
    """Yield the lines of a table with about *validations* trials of each fault in each condition."""
    yield f"| hosts | spread, noise | repetitions | rule | false fails per 1,000 | {' | '.join(_COLUMNS)} |"
    yield f"|{'---|' * (5 + len(_COLUMNS))}"
    for condition in conditions:
        fleets = math.ceil(validations / condition.hosts / len(condition.kinds)) * len(condition.kinds)
        for rule, score in scores(condition, fleets, seed).items():
            false = rate(score.good["fail"], score.good.total())
            if rule == "firsttouch":
                others = [f"{score.good[word]} {word}" for word in ("suspect", "undecided") if score.good[word]]
                false += f" of {score.good.total()}; {', '.join(others) or 'all others pass'}"
            cells = [score.cell(name, others=["pass"] if rule == "firsttouch" else []) for name in _COLUMNS]
            yield f"| {condition.text()} | {rule} | {false} | {' | '.join(cells)} |"


HEALTHY = (
    *("healthy", "session offsets", "boot states", "summer", "rolling -4 %", "unequal -2 to -8 %"),
    *("at random -4 %", "rolling -4 %, uneven noise", "replaced"),
)
BAD = ("10 % within rolling -4 %", "step of 6 %", "alternating 10 %", "intermittent 15 %")


def life(name: str, hosts: int, rng: np.random.Generator) -> tuple[Array, int | None, int]:
    """Return the losses of all weeks, the bad host, and from which week on it counts."""
    losses = np.zeros((len(CASES), hosts, WEEKS))
    weeks = np.arange(WEEKS)
    if name == "session offsets":
        losses += 0.02 * rng.standard_normal((hosts, WEEKS))
    elif name == "boot states":
        losses += 0.03 * (rng.random((hosts, WEEKS)) < 0.3)
    elif name == "summer":
        losses += 0.03 * np.sin(weeks / WEEKS * math.pi)
    elif name == "replaced":
        for host in rng.permutation(hosts)[: max(1, hosts // 10)]:
            nature = rng.standard_normal(len(CASES)) + rng.standard_normal(3)[CLASSES]
            losses[:, host, FAULT:] += 0.01 * nature[:, None]
    elif name == "at random -4 %":
        losses -= math.log1p(-0.04) * (weeks >= rng.integers(3, WEEKS - 1, hosts)[:, None])
    elif "rolling" in name or "unequal" in name:
        for place, host in enumerate(rng.permutation(hosts)):
            share = rng.uniform(0.02, 0.08) if "unequal" in name else 0.04
            losses[:, host, BEGIN + place // 5 :] -= math.log1p(-share)
    if name not in BAD:
        return losses, None, 0
    bad = int(rng.integers(hosts))
    share, is_bad, counts = 0.06 if "step" in name else 0.10, weeks >= FAULT, FAULT
    if "alternating" in name:
        is_bad, counts = is_bad & (weeks % 2 == 0), FAULT + 7
    elif "intermittent" in name:
        share, is_bad = 0.15, (rng.random(WEEKS) < 0.3) & (weeks >= BEGIN)
        times = np.flatnonzero(is_bad)
        counts = int(times[3]) + 1 if len(times) > 3 else WEEKS
    losses[:, bad] += np.outer(loss_by("memory", share), is_bad)
    return losses, bad, counts


def weeks(seed: int, fleets: int) -> Iterator[str]:
    """Yield the lines of the table of half a year, for *fleets* of 8 hosts and a quarter of them with 50."""
    yield "| hosts | weeks | rule | false fails per 1,000 | weeks of the bad host: fail / suspect / pass, % |"
    yield "|---|---|---|---|---|"
    for hosts, count in ((8, fleets), (50, max(1, fleets // 4))):
        for name in (*HEALTHY, *BAD):
            result = {rule: Score() for rule in RULES_OF_WEEKS}
            for fleet in range(count):
                rng = np.random.default_rng([seed, hosts, fleet])
                losses, bad, counts = life(name, hosts, rng)
                rates = simulated(losses, Condition(hosts), "uneven" if "uneven" in name else "normal", rng)
                for week in range(BEGIN, WEEKS, 3) if bad is None else range(FAULT, WEEKS):
                    for rule, words_of in RULES_OF_WEEKS.items():
                        words = words_of(rates[:, :, : week + 1]).tolist()
                        if bad is not None:
                            word = words.pop(bad)
                            result[rule].bad[name].update([word] * (week >= counts))
                        result[rule].good.update(words)
            for rule, score in result.items():
                false = rate(score.good["fail"], score.good.total())
                yield f"| {hosts} | {name} | {rule} | {false} | {score.cell(name, others=['suspect', 'pass'])} |"


def main() -> None:
    """Print Markdown tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", choices=["faults", "noises", "weeks"], help="only this table (default: all)")
    parser.add_argument("--validations", type=int, default=1800, help="of each fault in each condition")
    parser.add_argument("--seed", type=int, default=90210)
    parser.add_argument("--quick", action="store_true", help="few fleets and conditions: about a minute")
    args = parser.parse_args()
    validations = 200 if args.quick else args.validations
    conditions = [Condition(hosts) for hosts in ((5, 8, 50) if args.quick else (3, 4, 5, 8, 16, 50, 300))]
    conditions += [Condition(repetitions=count) for count in (1, 6, 12)]
    if not args.quick:
        conditions += [Condition(spread=s, noise=n) for s, n in ((0.003, 0.005), (0.02, 0.02), (0.04, 0.03))]
    noises = [Condition(kinds=[kind]) for kind in (NOISES[:2] if args.quick else NOISES)]
    for name, lines in {
        "faults": faults(conditions, validations, args.seed),
        "noises": faults(noises, validations, args.seed),
        "weeks": weeks(args.seed, 1 if args.quick else 8),
    }.items():
        if args.table in {None, name}:
            print(f"\n{name}: % of bad hosts that fail (firsttouch: fail / pass), seed {args.seed}")
            for line in lines:
                print(line, flush=True)


if __name__ == "__main__":
    main()
