# SPDX-License-Identifier: Apache-2.0
"""The model of the advice: the expectation before trials, their effect on it, and the choice of the next trial."""

import gzip
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttouch.advice import trials
from firsttouch.advice.costs import candidates, default, index_banks
from firsttouch.advice.posterior import Load, Trial, prior, update
from firsttouch.advice.search import Rules, search
from firsttouch.advice.trials import split
from firsttouch.errors import RunFailed
from firsttouch.genomics import fastq
from firsttouch.host.topology import load
from firsttouch.scenarios.memory_fit import Need, bank_bytes
from firsttouch.scenarios.placement import plan

HOST = load(xml=Path(__file__).parents[1] / "golden/lstopo_synthetic.xml")
SCENARIOS = plan(HOST).scenarios
CANDIDATES = candidates(SCENARIOS)
NAMES = [s.name for s in SCENARIOS]


def expected(banks):
    """Return the scenario that is expected to be best if the index fills *banks* banks."""
    return NAMES[int(prior(CANDIDATES, banks).mean.argmin())]


def test_the_rule_of_thumb_is_the_start():
    assert expected(0.2).startswith(("8x", "16x"))
    assert expected(1.8) == "1x64-interleave"


def test_fewer_threads_and_one_crowded_bank_are_expected_to_be_slower():
    mean = dict(zip(NAMES, prior(CANDIDATES, 0.2).mean, strict=True))
    assert mean["1x64-interleave"] < mean["1x64-default"]
    fewer = [n for n in NAMES if n.endswith("-default") and n != "1x64-default"]
    assert fewer
    assert all(mean[n] > mean["1x64-default"] for n in fewer)


def test_the_default_run_has_no_policy_and_uses_all_pus():
    assert NAMES[default(SCENARIOS)] == "1x64-default"
    assert index_banks(HOST, 0) == 0


def test_a_trial_with_an_option_moves_the_scenario_without_it_and_the_option_elsewhere():
    eight, single = (SCENARIOS[NAMES.index(name)] for name in ("8x8-bound", "1x64-default"))
    sets = ((), ("thp",), ("mimalloc",), ("thp", "mimalloc"))
    modelled = [s.with_options(names) for s in (eight, single) for names in sets]
    assert default(modelled) == 4
    before = prior(candidates(modelled), 0.2)
    assert before.mean[:4] == pytest.approx([before.mean[0]] * 4)
    after = update(before, [[Trial(0.001, 0.5)], [Trial(0.001, 0.4)], *([] for _ in modelled[2:])], Load())
    # The gain of an option is expected in other scenarios and combinations, too.
    assert after.mean[5] < after.mean[4]
    assert after.mean[3] < after.mean[2]
    assert after.best == 1
    # One bad trial does not exclude an option.
    bad = update(before, [[Trial(0.001, 0.4)], [Trial(0.001, 0.6)], *([] for _ in modelled[2:])], Load())
    mean, sd = bad.ratio(5, 4)
    assert 0 < mean < 2 * sd
    # The scenario without options is known as well as from the same number of its own trials.
    assert after.ratio(0, 1)[1] < before.covariance[0, 0] ** 0.5


def test_scenarios_that_fit_only_with_a_shared_index_are_offered():
    size = round(1.5 * bank_bytes(HOST, 0))
    need = Need(size, 0, 0, size, "mapped")
    planned = plan(HOST, need)
    assert "8x8-bound" not in {s.name for s in planned.scenarios}
    offered = {s.name for s in planned.with_each([("thp",), ("interleaved-index",)]).scenarios}
    assert "8x8-bound+interleaved-index" in offered
    assert "8x8-bound+thp" not in offered


def test_a_shared_index_is_one_copy_for_the_model():
    eight = SCENARIOS[NAMES.index("8x8-bound")]
    own, node, single = candidates(
        [eight, *(eight.with_options([n]) for n in ("node-index", "interleaved-index"))]
    )
    assert (own.copies, node.copies, single.copies) == (0, 8, 1)
    assert (own.banks, node.banks, single.banks, single.spread) == (1, 1, 8, True)


@settings(max_examples=50, deadline=None)
@given(st.floats(0.1, 100), st.floats(10, 10_000), st.floats(0.001, 0.01))
def test_load_and_work_are_separated(loading, work, fraction):
    own = [Trial(f, loading + f * work) for f in (fraction, 4 * fraction)]
    load, rest = split(own)
    if 4 * fraction * work > 0.06 * own[1].seconds:
        assert load.seconds == pytest.approx(loading, rel=1e-6)
        assert rest == pytest.approx(work, rel=1e-6)
    trials = [own, [], *([] for _ in CANDIDATES[2:])]
    whole = update(prior(CANDIDATES, 0.2), trials, load).mean[0]
    assert math.exp(whole) >= own[1].seconds * 0.9


def test_a_failed_scenario_is_dropped_and_the_best_one_is_tried_again():
    first = prior(CANDIDATES, 0.2)
    seen = []

    def run(number):
        seen.append(number)
        return None if CANDIDATES[number].instances > 1 else Trial(0.001, 0.1 * (1 + number))

    outcome = search(first, run, Rules(0.001, 0.03))
    assert CANDIDATES[outcome.belief.best].instances == 1
    assert len(outcome.trials[outcome.belief.best]) >= 2
    failed = [n for n in seen if CANDIDATES[n].instances > 1]
    assert len(failed) == len(set(failed))
    with pytest.raises(RunFailed):
        search(first, lambda _: None, Rules(0.001, 0.03))


@pytest.fixture
def pairs(tmp_path):
    files = []
    for mate in (1, 2):
        files.append(tmp_path / f"r{mate}.fq")
        files[-1].write_text("".join(f"@r{i}/{mate}\n{'ACGT' * 5}\n+\n{'I' * 20}\n" for i in range(5000)))
    return files


@pytest.mark.parametrize("gz", [False, True])
@pytest.mark.parametrize("batch", [0, 20_000])
@pytest.mark.parametrize("fraction", [0.0002, 0.003, 0.05, 0.9, 1.0])
def test_samples_are_spread_and_keep_pairs_together(pairs, tmp_path, fraction, batch, gz):
    """Those of gzip files, which are decompressed up to the last piece, are spread over the first reads."""
    for file in pairs if gz else ():
        file.write_bytes(gzip.compress(file.read_bytes()))
    whole = fastq.inspect(pairs, fastq.BatchRule(batch))
    folder = tmp_path / "s"
    folder.mkdir()
    sample = trials.write_sample(whole, fraction, folder)
    assert sample.records <= round(5000 * fraction)
    assert sample.records >= round(5000 * fraction) * (0.9 if fraction < 0.5 else 0.4)
    texts = [gzip.decompress(f.read_bytes()) if gz else f.read_bytes() for f in sample.files]
    names = [[line.split("/")[0] for line in text.decode().splitlines()[::4]] for text in texts]
    assert names[0] == names[1]
    numbers = [int(n[2:]) for n in names[0]]
    assert numbers == sorted(set(numbers))
    if sample.records >= 100:
        most = min(5000, 16 * 5000 * fraction) if gz else 5000
        assert numbers[0] < 0.2 * most
        assert 0.8 * most < numbers[-1] < most + 500
