# SPDX-License-Identifier: Apache-2.0
"""The guideline compared with other methods of choosing a scenario, on published times and on random cells.

Method. Each method chooses a scenario in each cell, with the seeds 0 to SEEDS - 1. A trial runs a thousandth of
the reads; it costs this part of the scenario's mean time, and its time has the scenario's error as noise. The
table has the time of the chosen scenario over the best one (geometric mean over seeds and cells, and that of the
worst cell), the cost of the trials as a part of the chosen scenario's time (mean and maximum), and the number of
runs that exceed the budget. Successive halving and uniform allocation get the same budget, but must try every
scenario once.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import numpy as np
from msgspec.structs import replace
from replay import TIMES, Cell, Row, Simulated, expected, read, replay
from tabulate import tabulate

from firsttouch.advice import trials
from firsttouch.advice.posterior import Trial

#: Returns the index of the chosen row, and the cost of the trials as a part of its time.
Method = Callable[[Cell, int, float], tuple[int, float]]


def by_default(cell: Cell, _seed: int, _budget: float) -> tuple[int, float]:
    """One instance with the default policy."""
    return _row(cell, 1, "original"), 0.0


def interleave(cell: Cell, _seed: int, _budget: float) -> tuple[int, float]:
    """One instance with interleave."""
    return _row(cell, 1, "interleave"), 0.0


def rule_of_thumb(cell: Cell, _seed: int, _budget: float) -> tuple[int, float]:
    """Use an instance per bank if replicas fit, else one with interleave (the article, section 6.3)."""
    most = max(r.instances for r in cell.rows)
    return (_row(cell, most, "original") if most >= 4 else _row(cell, 1, "interleave")), 0.0


def ours(cell: Cell, seed: int, budget: float) -> tuple[int, float]:
    """`firsttouch advise`."""
    choice = replay(cell, seed, budget)
    return cell.rows.index(choice.row), choice.spent


def halving(cell: Cell, seed: int, budget: float) -> tuple[int, float]:
    """Successive halving: each round gets an equal part of the budget and keeps the faster half."""
    simulated, times, remaining = Simulated(cell.rows, seed), _nothing(cell), list(range(len(cell.rows)))
    rounds = math.ceil(math.log2(len(remaining)))
    for number in range(1, rounds + 1):
        _round(simulated, times, remaining)
        while _spent(times) + _cost(times, remaining) <= budget * _mean(times, remaining) * number / rounds:
            _round(simulated, times, remaining)
        remaining = sorted(remaining, key=lambda i: np.mean(times[i]))[: math.ceil(len(remaining) / 2)]
        if _spent(times) + _cost(times, remaining) > budget * _mean(times, remaining):
            break
    chosen = min(remaining, key=lambda i: np.mean(times[i]))
    return chosen, simulated.cost / cell.rows[chosen].seconds


def uniform(cell: Cell, seed: int, budget: float) -> tuple[int, float]:
    """Uniform allocation: each scenario gets the same number of trials."""
    simulated, times, remaining = Simulated(cell.rows, seed), _nothing(cell), list(range(len(cell.rows)))
    _round(simulated, times, remaining)
    while _spent(times) + _cost(times, remaining) <= budget * _mean(times, remaining):
        _round(simulated, times, remaining)
    chosen = min(remaining, key=lambda i: np.mean(times[i]))
    return chosen, simulated.cost / cell.rows[chosen].seconds


def _row(cell: Cell, instances: int, policy: str) -> int:
    return next(i for i, r in enumerate(cell.rows) if (r.instances, r.policy) == (instances, policy))


def _nothing(cell: Cell) -> list[list[float]]:
    return [[] for _ in cell.rows]


def _round(simulated: Simulated, times: list[list[float]], remaining: Sequence[int]) -> None:
    for i in remaining:
        trial = simulated.trial(i)
        times[i].append(trial.seconds / trial.fraction)


def _spent(times: list[list[float]]) -> float:
    return sum(map(sum, times)) / 1000


def _cost(times: list[list[float]], remaining: Sequence[int]) -> float:
    return float(sum(np.mean(times[i]) for i in remaining)) / 1000


def _mean(times: list[list[float]], remaining: Sequence[int]) -> float:
    return float(min(np.mean(times[i]) for i in remaining))


def random_cells(seed: int, kind: str, count: int) -> list[Cell]:
    """Return *count* cells with random times and errors of 0.5 to 30 %, for hosts and indexes of several sizes.

    *kind* is ``additive`` (instances and policy have independent effects), ``mixed`` (the effect of a policy
    depends on the instances) or ``none`` (the time of each scenario is independent of the others).
    """
    rng = np.random.default_rng([seed, len(kind)])
    cells = []
    for number in range(count):
        top = int(rng.choice([2, 4, 8]))
        slope, deviation = rng.normal(0, 0.35), float(rng.choice([0.03, 0.1, 0.2]))
        effects = {p: rng.normal(0, 0.35) for p in ("interleave", "localalloc", "original")}
        error = math.exp(rng.uniform(math.log(0.005), math.log(0.3)))
        rows = []
        for instances in (n for n in (1, 2, 4, 8) if n <= top):
            for policy, effect in effects.items():
                part = rng.normal(0.5, 0.5) if kind == "mixed" and instances > 1 else 1.0
                log = slope * math.log2(instances) + effect * part + rng.normal(0, deviation)
                log = rng.normal(0, 0.4) if kind == "none" else log
                noise = float(np.clip(error * math.exp(rng.normal(0, 0.5)), 0.005, 0.3))
                rows.append(Row(instances, 64 // instances, policy, 100 * math.exp(log), noise))
        cells.append(Cell(kind, "made", str(number), tuple(rows)))
    return cells


def table(cells: Sequence[Cell], methods: dict[str, Method], seeds: int, budget: float) -> str:
    """Return the table of *methods* over *cells*."""
    rows = []
    for title, method in methods.items():
        start = time.monotonic()
        logs, spent = np.empty((len(cells), seeds)), np.empty((len(cells), seeds))
        for i, cell in enumerate(cells):
            best = min(r.seconds for r in cell.rows)
            for seed in range(seeds):
                chosen, spent[i, seed] = method(cell, seed, budget)
                logs[i, seed] = math.log(cell.rows[chosen].seconds / best)
        means = logs.mean(axis=1)
        rows.append(
            (
                title,
                math.exp(means.mean()),
                math.exp(means.max()),
                spent.mean(),
                spent.max(),
                (spent > budget).sum(),
            )
        )
        print(f"  {title}: {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)
    heads = ("method", "mean / best", "worst cell", "cost, mean", "cost, maximum", "runs over budget")
    return tabulate(rows, heads, floatfmt=("", ".4f", ".4f", ".4f", ".4f", ""))


class Trials:
    """Trials of the whole of `firsttouch advise`, without programs: each takes its part of the row's time.

    The times have the relative *noise* of repeated runs.
    """

    def __init__(self, rows: Sequence[Row], noise: float, seed: int) -> None:
        self.scenarios = [Scenario(r.name, r.options, r.name.partition("+")[0]) for r in rows]
        self.dropped: dict[int, str] = {}
        self.options = SimpleNamespace(failed={}, needless={}, memory={})
        self.part, self.brief, self.hopeless, self.bases, self.spent = 1.0, False, False, {}, 0.0
        self._rows, self._noise = rows, noise
        self._random = [np.random.default_rng([seed, number]) for number in range(len(rows))]

    def say(self, _text: str) -> None:
        """Say nothing."""

    def smallest(self) -> float:
        """Return the fraction of a first trial."""
        return trials.LEAST

    def lack(self) -> tuple[str, int]:
        """Lack nothing: the published runs are long enough for trials."""
        return "", 0

    def make(self, number: int, fraction: float) -> Trial:
        """Return a trial."""
        noise = math.exp(self._noise * self._random[number].standard_normal() - self._noise**2 / 2)
        seconds = fraction * self._rows[number].seconds * noise
        self.spent += seconds
        return Trial(fraction, seconds)


@dataclass(frozen=True)
class Scenario:
    """The features of a scenario that the model reads."""

    name: str
    options: tuple[str, ...]
    base_name: str


def advised(cell: Cell, noise: float, seed: int, budget: float) -> Row:
    """Return the row that the whole of `firsttouch advise` recommends, trials that confirm it included."""
    measured = Trials(cell.rows, noise, seed)
    usual = cell.rows.index(cell.default)
    return cell.rows[trials._advise(measured, tuple(measured.scenarios), expected(cell.rows), budget, usual).best]


def harm(cells: Sequence[Cell], seeds: int, budget: float) -> str:
    """Return how often the recommended scenario is worse than the default run by more than 2 %.

    Runs are 10 and 100 times as long as the published ones, and the default run is 2 % faster than the others.
    """
    rows = []
    for noise, longer in itertools.product((0.03, 0.10, 0.25), (10, 100)):
        ratios = []
        for cell, seed in itertools.product(cells, range(seeds)):
            least = 0.98 * longer * min(r.seconds for r in cell.rows)
            scaled = tuple(
                replace(r, seconds=least if r is cell.default else longer * r.seconds) for r in cell.rows
            )
            ratios.append(advised(replace(cell, rows=scaled), noise, seed, budget).seconds / least)
        worse = sum(ratio > 1.02 for ratio in ratios)
        rows.append((f"{noise:.0%}", f"{longer} x", f"{worse} of {len(ratios)}", max(ratios)))
    return tabulate(rows, ("noise", "runs", "worse by 2 %", "worst"), floatfmt=".3f")


def main() -> None:
    """Print the tables."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seeds", type=int, default=100)
    options.add_argument("--budget", type=float, default=0.03)
    args = options.parse_args()
    blind: dict[str, Method] = {"ours": ours, "successive halving": halving, "uniform allocation": uniform}
    fixed: dict[str, Method] = {"default run": by_default, "interleave always": interleave}
    published = {**fixed, "rule of thumb": rule_of_thumb, **blind}
    show = partial(table, budget=args.budget)
    print(f"published times, seeds 0 to {args.seeds - 1}, budget {args.budget:.1%}")
    print(show(read(TIMES), published, args.seeds), flush=True)
    print("\nall of advise, where the default run is the best")
    print(harm(read(TIMES), max(1, args.seeds // 12), args.budget), flush=True)
    for kind in ("additive", "mixed", "none"):
        seeds = max(1, args.seeds // 20)
        print(f"\n60 random cells, effects {kind}, seeds 0 to {seeds - 1}")
        print(show(random_cells(1, kind, 60), {**fixed, **blind}, seeds), flush=True)


if __name__ == "__main__":
    main()
