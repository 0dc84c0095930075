# SPDX-License-Identifier: Apache-2.0
"""The benchmark of simulated fleets: each rule names a bad host, and the model has what it says."""

import numpy as np
import pytest
import simulated_fleets as bench


def test_every_rule_names_a_host_that_loses_a_third_of_all_memory():
    losses = np.zeros((len(bench.CASES), 8, 1))
    losses[:, 5] = bench.loss_by("memory", 0.33)[:, None]
    rates = bench.simulated(losses, bench.Condition(), "normal", np.random.default_rng(7))
    for rule, words_of in bench.RULES.items():
        assert np.flatnonzero(words_of(rates) == "fail").tolist() == [5], rule
        assert "suspect" not in words_of(rates), rule


def test_a_link_and_a_clock_lose_nothing_else():
    for kind, metrics in (("link", 2), ("clock", 4), ("metric", 1), ("bank", 8), ("memory", 16)):
        assert np.count_nonzero(bench.loss_by(kind, 0.1)) == metrics


@pytest.mark.parametrize("noise", ["unequal", "rounded"])
def test_a_table_has_what_was_measured(noise):
    rates = bench.simulated(np.zeros((len(bench.CASES), 4, 2)), bench.Condition(), noise, np.random.default_rng(7))
    table = bench.table(rates)
    assert table.counts.sum() == len(table.value) == np.isfinite(rates).sum()
    assert np.isfinite(rates).all() == (noise == "rounded")


def test_pelt_finds_the_changes_of_a_level():
    noise = np.random.default_rng(1)
    values = np.repeat([0.0, 0.06, 0.0], [10, 12, 8]) + noise.normal(0, 0.005, 30)
    assert {10, 22} <= {*bench._changes(values)}
