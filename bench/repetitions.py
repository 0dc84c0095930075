# SPDX-License-Identifier: Apache-2.0
"""How well the median of a probe's result is known when its repetitions end, simulated.

Method. RUNS series of repetitions are drawn for each kind of noise, and each series is ended by the probe's rule
(probe/src/samples.c): from the fifth repetition on, if the interval of the median is within 5 % of the median, or
at the largest number. The rule looks again after every repetition, so it may stop because of chance, and the
interval then holds the true median less often than it would for a fixed number. Two figures say what a result is
worth: how often median +- interval holds the true median, and how often the median is within 5 % of it.

Independent kinds of noise are normal, skewed (a time with an exponential delay), and bimodal (some repetitions are
15 % slower). Dependent ones rise over the first ten repetitions to their true level, or carry over 70 % of the
deviation of a repetition to the next one.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tabulate import tabulate

Floats = NDArray[np.float64]
#: The probe's SAMPLES_LEAST, and the largest accepted interval (--confidence).
LEAST, WITHIN = 5, 0.05
MOST = (3, 10, 100)
RUNS = 4000
#: Deviation of a repetition in each of the modes, and around a rise.
FINE = 0.01


def outside(count: int) -> int:
    """Return how many of the smallest of *count* samples are outside of the interval of the sign test."""
    below, total = 0, 1
    while 64 * total <= 2**count:
        below += 1
        total += math.comb(count, below)
    return max(0, below - 1)


def intervals(samples: Floats) -> tuple[Floats, Floats]:
    """Return the medians of rows of *samples*, and the half-widths of their intervals relative to the medians."""
    count = samples.shape[1]
    ordered = np.sort(samples, axis=1)
    medians = (ordered[:, (count - 1) // 2] + ordered[:, count // 2]) / 2
    if count < LEAST:
        return medians, np.full(len(medians), math.inf)
    end = outside(count)
    return medians, np.maximum(medians - ordered[:, end], ordered[:, -1 - end] - medians) / medians


@dataclass
class Ended:
    """How series ended: their *medians*, the *widths* of the intervals, and the numbers of *repetitions*."""

    medians: Floats
    widths: Floats
    repetitions: Floats

    def shares(self, true: float) -> tuple[float, float, float, float]:
        """Return the shares of series whose interval holds *true*, with a median near it, and ended as narrow.

        The last figure is the mean number of repetitions.
        """
        off = np.abs(self.medians - true)
        holds = off <= self.widths * self.medians
        shares = (holds, off <= WITHIN * true, self.widths <= WITHIN, self.repetitions)
        return tuple(float(share.mean()) for share in shares)  # type: ignore[return-value]


def ended(samples: Floats) -> Ended:
    """End each row of *samples* by the probe's rule; its length is the largest number of repetitions."""
    runs, most = samples.shape
    result = Ended(np.empty(runs), np.empty(runs), np.empty(runs))
    going = np.arange(runs)
    for count in range(min(LEAST, most), most + 1):
        medians, widths = intervals(samples[going, :count])
        end = (widths <= WITHIN) | (count == most)
        for values, now in ((result.medians, medians), (result.widths, widths), (result.repetitions, count)):
            values[going[end]] = now[end] if isinstance(now, np.ndarray) else now
        going = going[~end]
    return result


#: Draws the samples of a shape (series, repetitions); returns them with their true median.
Kind = Callable[[np.random.Generator, tuple[int, int]], tuple[Floats, float]]


def normal(deviation: float) -> Kind:
    """Return normal noise."""
    return lambda rng, shape: (1 + deviation * rng.standard_normal(shape), 1.0)


def skewed(delay: float) -> Kind:
    """Return rates whose times have an exponential delay."""
    return lambda rng, shape: (1 / (1 + delay * rng.exponential(size=shape)), 1 / (1 + delay * math.log(2)))


def bimodal(share: float) -> Kind:
    """Return rates of which a *share* (below one half) is 15 % lower."""

    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Floats, float]:
        fast = rng.random(shape) >= share
        # Among the fast ones, the median is the quantile that leaves half of all above it.
        quantile = np.quantile(rng.standard_normal(1_000_000), 1 - 0.5 / (1 - share))
        return (0.85 + 0.15 * fast) * (1 + FINE * rng.standard_normal(shape)), 1 + FINE * float(quantile)

    return draw


def rising(by: float) -> Kind:
    """Return rates that rise by *by* over the first ten repetitions, to the true level."""
    return lambda rng, shape: (
        1 - by * np.maximum(0, 1 - np.arange(shape[1]) / 9) + FINE * rng.standard_normal(shape),
        1.0,
    )


def carried(deviation: float, over: float = 0.7) -> Kind:
    """Return normal noise of which *over* carries over to the next repetition."""

    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Floats, float]:
        noise = rng.standard_normal(shape)
        for i in range(1, shape[1]):
            noise[:, i] = over * noise[:, i - 1] + math.sqrt(1 - over**2) * noise[:, i]
        return 1 + deviation * noise, 1.0

    return draw


#: The rows of the table.
KINDS: dict[str, Kind] = {
    "normal, 1 %": normal(0.01),
    "normal, 3 %": normal(0.03),
    "normal, 5 %": normal(0.05),
    "normal, 10 %": normal(0.10),
    "skewed, delay of 3 %": skewed(0.03),
    "skewed, delay of 10 %": skewed(0.10),
    "bimodal, 30 % are slow": bimodal(0.30),
    "bimodal, 45 % are slow": bimodal(0.45),
    "rising by 5 %": rising(0.05),
    "rising by 15 %": rising(0.15),
    "carried over, 3 %": carried(0.03),
    "carried over, 10 %": carried(0.10),
}


def simulate(kind: Kind, most: int, runs: int = RUNS) -> tuple[float, float, float, float]:
    """Return Ended.shares of *runs* series of at most *most* repetitions."""
    samples, true = kind(np.random.default_rng(most), (runs, most))
    return ended(samples).shares(true)


def table(runs: int = RUNS) -> str:
    """Return the table of the manual (docs/reference/benchmarks/statistics.md)."""
    heads = ["noise of a repetition", f"{MOST[0]}: near"]
    for most in MOST[1:]:
        heads += [f"{most}: holds", "near", "narrow", "repetitions"]
    rows: list[list[Any]] = []
    for name, kind in KINDS.items():
        row = [name, f"{simulate(kind, MOST[0], runs)[1]:.0%}"]
        for most in MOST[1:]:
            *shares, repetitions = simulate(kind, most, runs)
            row += [*(f"{share:.0%}" for share in shares), f"{repetitions:.1f}"]
        rows.append([str(cell).replace("%", " %").replace("  ", " ") for cell in row])
    return tabulate(rows, heads, tablefmt="github", disable_numparse=True)


def main() -> None:
    """Simulate and print."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--runs", type=int, default=RUNS)
    print(table(options.parse_args().runs))


if __name__ == "__main__":
    main()
