# SPDX-License-Identifier: Apache-2.0
"""Whole runs of a program under policies and memory options, with invented times."""

import math
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from firsttouch.advice import advising, comparison
from firsttouch.advice.costs import candidates, default
from firsttouch.advice.posterior import prior
from firsttouch.errors import RunFailed
from firsttouch.host.pages import Memory
from firsttouch.host.topology import load
from firsttouch.scenarios import evidence, memory_options
from firsttouch.scenarios.placement import distinct, plan

HOST = load(xml=Path(__file__).parents[1] / "golden/lstopo_synthetic.xml")
NAMES = ("thp", "no-thp", "mimalloc", "jemalloc")
SCENARIOS = [
    s.with_options(names)
    for names in ((), *memory_options.combinations(NAMES)[0])
    for s in plan(HOST).scenarios
    if s.instances == 1 and s.threads == 64
]


def shown(options):
    """Return the memory of a program whose allocator gets huge pages if mimalloc is asked for them."""
    huge = 900 << 20 if set(options) >= {"thp", "mimalloc"} else 0
    libraries = frozenset(memory_options.option(name).library for name in options)
    return Memory(1000 << 20, huge, libraries=libraries, thp_disabled="no-thp" in options)


@pytest.fixture
def compared(monkeypatch):
    """Return a function that compares scenarios by *seconds*, with *noise* and a *drift* of the host."""

    def compare(seconds, noise=0.01, drift=0.0, *, scenarios=SCENARIOS, rounds=3, unseen=0):
        rng = np.random.default_rng(7)
        runs, slow = [], [0.0]

        def run(jobs, timeout):
            place = jobs[0].placement
            runs.append(place)
            if len(runs) % 5 == 0:
                slow[0] = drift * rng.standard_normal()
            memory = shown(place.options)
            took = seconds(place) * math.exp(slow[0] + noise * rng.standard_normal())
            reason = evidence.wrong_memory(place.options, memory)
            reason = "ended before it could be sampled" if len(runs) <= unseen else reason
            observed = SimpleNamespace(memory=memory)
            return [SimpleNamespace(seconds=took, misplaced=reason, unverified="", observed=observed)]

        monkeypatch.setattr(comparison, "run_together", run)
        result = comparison.compare(
            ["x"],
            scenarios,
            prior(candidates(scenarios), 0),
            usual=default(scenarios),
            rounds=rounds,
            timeout=None,
            say=lambda _: None,
        )
        assert result.runs == len(runs)
        return result, scenarios[result.best].name

    return compare


def test_what_is_clearly_faster_is_combined_and_confirmed(compared):
    def seconds(place):
        factor = 0.8 if place.policy == "interleave" else 1.0
        factor *= 0.92 if "mimalloc" in place.options else 1.1 if "jemalloc" in place.options else 1.0
        return 100 * factor * (0.9 if "thp" in place.options else 1.0)

    result, name = compared(seconds, drift=0.1)
    assert (name, result.clear) == ("1x64-interleave+thp+mimalloc", True)
    assert len(result.costs[result.best]) >= 3
    assert result.runs <= 24
    mean, sd = result.belief.ratio(default(SCENARIOS), result.best)
    assert mean == pytest.approx(-math.log(0.8 * 0.92 * 0.9), abs=3 * sd)
    assert result.memory[result.best].huge == 900 << 20
    # glibc's malloc gets no huge pages, and there are none to switch off.
    by_name = dict(zip((s.name for s in SCENARIOS), result.costs, strict=True))
    assert not by_name["1x64-default+thp"]
    assert not any(own for scenario, own in by_name.items() if "no-thp" in scenario)
    assert "thp was requested, but" in result.dropped[[s.name for s in SCENARIOS].index("1x64-default+thp")]


@pytest.mark.parametrize("noise", [0.005, 0.03])
def test_without_a_clear_difference_nothing_is_recommended(compared, noise):
    result, name = compared(lambda place: 100 * 1.01 ** len(place.options), noise)
    assert (name, result.clear) == ("1x64-default", False)


def test_an_option_that_brings_nothing_is_left_out(compared):
    _, name = compared(lambda place: 70.0 if place.policy == "interleave" else 100.0)
    assert name == "1x64-interleave"


def test_slow_rounds_do_not_hide_a_difference(compared):
    """Other programs slow the host down by up to a half, longer than a round."""
    result, name = compared(lambda place: 80.0 if "mimalloc" in place.options else 100.0, 0.01, drift=0.2)
    assert (name, result.clear) == ("1x64-default+mimalloc", True)


def test_short_runs_that_are_not_seen_are_made_again(compared):
    plain = [s for s in SCENARIOS if not s.options]
    result, name = compared(lambda _: 1.0, scenarios=plain, rounds=1, unseen=1 + len(plain))
    assert (name, len(result.costs[default(plain)])) == ("1x64-default", 1)
    with pytest.raises(RunFailed, match="sampled"):
        compared(lambda _: 1.0, scenarios=plain, rounds=1, unseen=99)


def test_policies_on_a_single_bank_are_alike():
    eight = [s for s in plan(HOST).scenarios if s.instances == 8]
    assert {s.policy for s in eight} == {"original", "localalloc", "interleave"}
    assert {s.policy for s in distinct(eight)} == {"original"}
    whole = [s for s in SCENARIOS if not s.options]
    assert distinct(whole) == whole


@pytest.mark.parametrize("left_behind", [False, True])
def test_output_is_discarded_as_it_is_written(left_behind):
    """More than a pipe holds goes nowhere, also if a program still has the pipe at the end."""
    with comparison.discard_output() as out:
        copy = os.open(out, os.O_WRONLY)
        for _ in range(8):
            assert os.write(copy, bytes(1 << 20)) == 1 << 20
        assert stat.S_ISFIFO(os.fstat(copy).st_mode)
        if not left_behind:
            os.close(copy)
    if left_behind:
        os.close(copy)


@pytest.mark.parametrize("pus", [0.2, 2.0])
def test_other_programs_during_the_trials_are_a_warning(monkeypatch, pus):
    use = SimpleNamespace(
        usage=list, busy_pus=lambda _: SimpleNamespace(value=pus, parameters={"programs": "sh 2.0"})
    )
    monkeypatch.setattr(advising, "kernel_settings", use)
    messages = []
    with advising._holding_host(advising.Choices(share_host=True), messages.append):
        messages.clear()
    assert [m.partition(", which")[0] for m in messages] == [
        "warning: this host was not idle: other programs used 2.0 PUs (sh 2.0)"
    ] * (pus >= 0.5)
