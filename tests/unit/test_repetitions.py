# SPDX-License-Identifier: Apache-2.0
"""The rule that ends the probe's repetitions: what its simulation shows, and what the manual says about it."""

import math
import runpy

import numpy as np
import pytest

from firsttouch.paths import ROOT

BENCH = runpy.run_path(str(ROOT / "bench" / "repetitions.py"))
MANUAL = ROOT / "docs" / "reference" / "benchmarks" / "statistics.md"
INDEPENDENT = [name for name in BENCH["KINDS"] if name.split(",")[0].split()[0] in {"normal", "skewed", "bimodal"}]


@pytest.mark.parametrize("count", [5, 6, 9, 10, 20, 100])
def test_the_interval_has_its_level(count):
    """Without looking repeatedly, the interval misses the median with at most twice the probability of a tail."""
    tail = sum(math.comb(count, k) for k in range(BENCH["outside"](count) + 1)) / 2**count
    assert tail <= (1 / 32 if count == 5 else 1 / 64)
    samples = np.random.default_rng(count).exponential(size=(4000, count))
    medians, widths = BENCH["intervals"](samples)
    assert np.mean(np.abs(medians - math.log(2)) <= widths * medians) >= 1 - 2 * tail - 0.01


@pytest.mark.parametrize("most", [10, 100])
@pytest.mark.parametrize("name", INDEPENDENT)
def test_intervals_of_independent_repetitions_hold_the_median(name, most):
    holds, near, narrow, repetitions = BENCH["simulate"](BENCH["KINDS"][name], most, 1000)
    assert holds >= (0.90 if "45 %" in name else 0.935)
    assert near >= (0.95 if most == 100 else 0.98) or narrow < 0.5
    assert 5 <= repetitions <= most


def test_the_manual_has_the_table_of_the_simulation():
    rows = {}
    for text in (BENCH["table"](), MANUAL.read_text(encoding="utf-8")):
        lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
        cells = {line[0].strip(): [cell.strip() for cell in line[1:]] for line in lines}
        rows[text] = {name: cells.get(name) for name in BENCH["KINDS"]}
    simulated, printed = rows.values()
    assert printed == simulated
