# SPDX-License-Identifier: Apache-2.0
"""Measures how much the order of measurements changes them here, and how many good hosts it makes suspect.

Here: six aspects are measured in six orders, the rows of a balanced Latin square (E. J. Williams, Experimental
designs balanced for the estimation of residual effects of treatments, 1949): each aspect is once in each place,
and once behind each other one. A case's values are compared with their own mean. Two effects are tested, of the
place and of the previous aspect, by the variance of their means; its distribution without an effect comes from
permutations of each case's values (scipy.stats.permutation_test).

Modelled: fleets of eight good hosts with the 20 metrics of simulated_fleets.py. One host of each has memory that
keeps something of one of its cases: the case that is measured next loses 8 %. All rounds of a host take its cases
in the same order, or each round in a newly drawn one (firsttouch.benchmarks.drawn_order). Words are from the judge
after some rounds of three repetitions.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from simulated_fleets import CASES, Condition, firsttouch, rate, simulated

from firsttouch.benchmarks import probe
from firsttouch.benchmarks.drawn_order import shuffle
from firsttouch.records.cases import Case

Array = NDArray[np.float64]
_REPETITIONS = ("--min-repetitions=3", "--max-repetitions=3")
#: The probe's options of each aspect, for a few seconds.
ASPECTS = {
    "latency": ("--sizes=memory",),
    "bandwidth": ("--set-sizes=1", "--interleave=none"),
    "contention": (),
    "loaded-latency": ("--read-shares=1", "--rates=0.5"),
    "core-to-core": ("--pairs=64",),
    "tails": (),
}
#: The share that the case behind the kept one loses (OrderSage's mean), and the hosts of a fleet.
LOSS, HOSTS, REPETITIONS = 0.08, 8, 3


def williams(count: int) -> list[list[int]]:
    """Return the rows of a Latin square of an even size in which each number follows each other one once."""
    first = [
        0,
        *(number for pair in zip(range(1, count), range(count - 1, 0, -1), strict=True) for number in pair),
    ]
    return [[(number + row) % count for number in first[:count]] for row in range(count)]


def effects(values: Sequence[tuple[str, int, str, float]], seed: int) -> Iterator[str]:
    """Yield a line of a table for each effect; *values* have case, place, aspect before, and loss."""
    of_case: dict[str, list[tuple[int, str, float]]] = defaultdict(list)
    for case, place, before, value in values:
        of_case[case].append((place, before, value))
    rows = [np.array([value for *_, value in row]) for row in of_case.values()]
    residuals = tuple(row - row.mean() for row in rows)
    for effect, column in (("place", 0), ("aspect before", 1)):
        labels = [str(entry[column]) for row in of_case.values() for entry in row]
        names, numbers = np.unique(labels, return_inverse=True)

        def means(*data: Array, numbers: NDArray[np.intp] = numbers) -> Array:
            return np.bincount(numbers, np.concatenate(data)) / np.bincount(numbers)

        test = stats.permutation_test(
            residuals,
            lambda *data, means=means: float(np.var(means(*data))),
            permutation_type="pairings",
            vectorized=False,
            n_resamples=1999,
            alternative="greater",
            rng=np.random.default_rng(seed),
        )
        of_label = 100 * means(*residuals)
        ends = [f"{names[at]} {of_label[at]:+.1f} %" for at in (int(of_label.argmin()), int(of_label.argmax()))]
        yield f"| {effect} | {len(rows)} | {' to '.join(ends)} | {test.pvalue:.3f} |"


def here(squares: int, seed: int) -> Iterator[str]:
    """Yield the table of this host."""
    names, values = [*ASPECTS], []
    for square in range(squares):
        for row in shuffle(williams(len(names)), seed + square):
            before = "none"
            for place, aspect in enumerate([names[number] for number in row], start=1):
                options = [*ASPECTS[aspect], *_REPETITIONS, "--quiet"]
                for record in probe.run(aspect, options, say=lambda _: None).records():
                    if record.value > 0:
                        case = Case.from_record(record)
                        values.append((case.key, place, before, case.loss_sign * math.log(record.value)))
                before = aspect
    yield "| effect | cases | mean losses | p |"
    yield "|---|---|---|---|"
    yield from effects(values, seed)


def losses(host: int, orders: Sequence[Sequence[int]], kept: int) -> Array:
    """Return what each metric loses on each host in each round, in which *host* measures in one of *orders*."""
    result = np.zeros((len(CASES), HOSTS, len(orders)))
    for number, order in enumerate(orders):
        for before, behind in itertools.pairwise(order):
            if before == kept:
                result[behind, host, number] = -math.log1p(-LOSS)
    return result


def modelled(hosts: int, seed: int) -> Iterator[str]:
    """Yield the table of words of modelled hosts."""
    yield "| order | rounds | hosts | false suspects and fails per 1,000 | words |"
    yield "|---|---|---|---|---|"
    numbers = range(len(CASES))
    words: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for fleet in range(hosts):
        rng = np.random.default_rng([seed, fleet])
        host, kept = int(rng.integers(HOSTS)), int(rng.integers(len(CASES)))
        seeds = [int(number) for number in rng.integers(1, 2**31, 4)]
        for rounds in (1, 2, 4):
            noise = np.random.default_rng([seed, fleet, rounds])
            condition = Condition(HOSTS, repetitions=REPETITIONS * rounds)
            rates = simulated(np.zeros((len(CASES), HOSTS, 1)), condition, "normal", noise)
            for name, orders in {
                "the same": [shuffle(numbers, seeds[0])] * rounds,
                "drawn anew": [shuffle(numbers, by) for by in seeds[:rounds]],
            }.items():
                lost = np.repeat(losses(host, orders, kept), REPETITIONS, axis=2)[:, :, None, :]
                signs = np.array([case.loss_sign for case in CASES])
                words[name, rounds][firsttouch(rates * np.exp(signs[:, None, None, None] * lost))[host]] += 1
    for (name, rounds), counts in words.items():
        false = rate(counts["suspect"] + counts["fail"], counts.total())
        texts = ", ".join(f"{word} {count}" for word, count in counts.most_common())
        yield f"| {name} | {rounds} | {counts.total()} | {false} | {texts} |"


def main() -> None:
    """Print Markdown tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", choices=["here", "modelled"], help="only this table (default: both)")
    parser.add_argument(
        "--squares", type=int, default=2, help="Latin squares, each of 36 measurements (default: 2)"
    )
    parser.add_argument("--hosts", type=int, default=1000, help="modelled hosts (default: 1000)")
    parser.add_argument("--seed", type=int, default=58)
    args = parser.parse_args()
    tables = {"here": here(args.squares, args.seed), "modelled": modelled(args.hosts, args.seed)}
    for name, lines in tables.items():
        if args.table in {None, name}:
            print(f"\n{name}, seed {args.seed}")
            for line in lines:
                print(line, flush=True)


if __name__ == "__main__":
    main()
