# SPDX-License-Identifier: Apache-2.0
"""Trials on a host with invented times: the scenarios tried and dropped, the messages, and the time spent."""

import itertools
import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from factories.clocks import ManualClock
from firsttouch.advice import advice_text, comparison, trials
from firsttouch.advice.costs import candidates, default
from firsttouch.advice.posterior import Load, Trial, prior
from firsttouch.errors import RunFailed
from firsttouch.genomics import fastq, launch
from firsttouch.genomics.aligners import aligner
from firsttouch.genomics.launch import Work
from firsttouch.host.pages import Memory
from firsttouch.host.topology import load
from firsttouch.scenarios import evidence, memory_options
from firsttouch.scenarios.placement import distinct, parse_name, plan

ONE_BANK = Path(__file__).parents[1] / "golden/lstopo_host.xml"


@pytest.fixture(scope="module")
def checked_reads(tmp_path_factory):
    """Return 100,000 checked reads in batches."""
    file = tmp_path_factory.mktemp("reads") / "r.fq"
    file.write_text("".join(f"@r{i}\nACGTACGTAC\n+\nIIIIIIIIII\n" for i in range(100_000)))
    return fastq.inspect([file], fastq.BatchRule(100_000))


@pytest.fixture(scope="module")
def synthetic():
    """Return the plan of the synthetic host."""
    return plan(load(xml=ONE_BANK.with_name("lstopo_synthetic.xml")))


@pytest.fixture
def host(tmp_path, monkeypatch, checked_reads, synthetic):
    """Return a function that advises on scenarios of load + work seconds; *odd* returns the fault of one."""
    clock, messages, limits = ManualClock(now=0.0), [], []

    def advise(
        work,
        loading=2.0,
        budget=0.03,
        odd=lambda _: "",
        *,
        noise=(1.0,),
        head=None,
        sets=(),
        memory=None,
        planned=synthetic,
        reads=checked_reads,
    ):
        scenarios = planned.with_each(sets).scenarios
        noises = itertools.cycle(noise) if isinstance(noise, tuple) else noise

        def run(given, scenario, output, *, timeout):
            assert output is None
            assert given.reads.batches.count >= scenario.instances
            limits.append(timeout)
            part = given.reads.records / 100_000 * (head.part if head else 1)
            seconds = (loading + part * work(scenario)) * next(noises)
            if head and seconds > timeout:
                clock.now += timeout
                raise RunFailed("bwa did not end in time")
            clock.now += seconds
            if odd(scenario) == "fails":
                raise RunFailed("bwa ended with status 9")
            shown = memory(scenario) if memory else Memory()
            observed = SimpleNamespace(pages={} if seconds < 0.1 else {0: 1}, memory=shown)
            steps = [[SimpleNamespace(observed=observed)]]
            unverified = "" if odd(scenario) or observed.pages else "ended before it could be sampled"
            misplaced = odd(scenario) or unverified or evidence.wrong_memory(scenario.options, shown)
            aligning = seconds - loading
            placed = {"misplaced": misplaced, "unverified": unverified}
            return SimpleNamespace(seconds=seconds, aligning=aligning, steps=steps, **placed)

        monkeypatch.setattr(launch, "run", run)
        advice = trials.advise(
            Work(aligner("bwa-mem"), tmp_path / "i", reads),
            scenarios,
            prior(candidates(scenarios), 0.2),
            budget,
            default=default(scenarios),
            say=messages.append,
            head=head,
            clock=clock,
        )
        return advice, advice_text.document(advice, default(scenarios), (), {"huge": "memory option huge: none"})

    advise.messages, advise.limits, advise.clock = messages, limits, clock
    return advise


def times(best, whole=3600.0):
    """Return times that grow with the distance from *best* in instances, threads and policy."""
    wanted = parse_name(best)

    def work(scenario):
        away = 0.4 * abs(math.log2(scenario.instances / wanted.instances))
        away += 0.8 * math.log2(64 / (scenario.instances * scenario.threads))
        return whole * (1 + away) * (1.0 if scenario.policy == wanted.policy.name else 1.5)

    return work


@pytest.mark.parametrize("best", ["8x8-bound", "1x64-interleave", "4x16-interleave"])
def test_the_fastest_scenario_is_recommended_within_the_budget(host, best):
    advice, document = host(times(best), budget=0.05, noise=(1.0, 1.03, 0.98))
    assert document["recommended"] == best
    assert document["budget"]["within"]
    assert advice.spent == document["budget"]["spent_s"] == host.clock.now
    assert document["predicted_s"]["low"] < 3602 < document["predicted_s"]["high"]
    default = 2 + times(best)(next(s for s in advice.scenarios if s.name == "1x64-default"))
    assert document["gain"]["low"] <= default / 3602 <= document["gain"]["high"]
    assert all(r["reason"] for r in document["scenarios"] if r["state"] != "recommended")
    # No trial may run longer than the rest of the budget.
    assert all(limit is not None for limit in host.limits[4:])


def test_the_first_load_from_disk_does_not_count(host):
    _, document = host(times("8x8-bound"), loading=5.0, noise=itertools.chain([8.0], itertools.repeat(1.0)))
    assert document["predicted_s"]["low"] <= 3605 <= document["predicted_s"]["high"]
    assert any("warm-up" in m for m in host.messages)


@pytest.mark.parametrize("factor", [0.97, 1.0, 1.03])
def test_a_gain_that_may_be_chance_is_not_recommended(host, factor):
    """Repeats differ by far more than the memory option; its trials end with the budget or after a few."""

    def work(scenario):
        return 3600.0 * (factor if scenario.options else 1.0)

    noise = (1.0, 1.3, 0.8, 0.9, 1.15)
    planned = plan(load(xml=ONE_BANK))
    alone = (planned.scenario("1x-default"),)
    planned = planned.with_listing(alone, planned.infeasible)
    advice, document = host(
        work, loading=0.1, budget=0.1, noise=noise, sets=[("mimalloc",)], memory=shown, planned=planned
    )
    assert (document["recommended"], document["clear"]) == (alone[0].name, False)
    assert (document["compared"], document["budget"]["within"]) == (True, True)
    tried = {advice.scenarios[i].name: own for i, own in enumerate(advice.trials)}
    assert tried[f"{alone[0].name}+mimalloc"]
    text = "\n".join(advice_text.lines(document))
    assert ("but that may be chance" in text) == (document["fastest_in_trials"] != alone[0].name)


def test_trials_that_hardly_last_longer_than_a_start_show_no_gain():
    """Two trials of 20 to 70 ms differed by half for two runs of the same work."""
    planned = plan(load(xml=ONE_BANK)).with_each([("mimalloc",)])
    expected, usual = prior(candidates(planned.scenarios), 0.1), default(planned.scenarios)
    fast = next(i for i, s in enumerate(planned.scenarios) if s.options)

    def rival(seconds):
        time_of = {fast: seconds, usual: 1.6 * seconds}
        samples = [[Trial(0.003, time_of[i])] * 6 if i in time_of else [] for i in range(len(planned.scenarios))]
        return trials._Gains(expected, samples, Load()).rival(fast, planned.scenarios, usual)

    assert (rival(0.02), rival(2.0)) == (usual, fast)


def test_without_a_second_scenario_nothing_was_compared(host):
    odd = {"1x64-default": ""}
    advice, document = host(times("1x64-default"), odd=lambda s: odd.get(s.name, "fails"))
    assert (advice.compared, document["compared"], document["clear"]) == (False, False, False)
    assert "only 1x64-default was tried, so nothing was compared: no advice is saved" in advice_text.lines(
        document
    )


def test_instances_without_a_batch_of_reads_are_not_tried(host, checked_reads):
    few = fastq.inspect(checked_reads.files, fastq.BatchRule(400_000))  # three batches
    advice, document = host(times("8x8-bound"), reads=few, budget=0.05)
    assert document["bases"] == advice.bases == 1_000_000
    assert all(s.instances <= 3 for s, own in zip(advice.scenarios, advice.trials, strict=True) if own)
    reason = next(row["reason"] for row in document["scenarios"] if row["name"] == "8x8-bound")
    assert reason == "not tried: its 8 instances need a batch of reads each, and the reads fill 3"


def test_a_load_is_not_taken_for_work(host):
    _, document = host(times("8x8-bound"), loading=10.0, budget=0.1)
    assert document["recommended"] == "8x8-bound"
    assert document["predicted_s"]["low"] <= 3610 <= document["predicted_s"]["high"]


def test_failed_and_misplaced_scenarios_are_dropped_with_a_message(host):
    bad = {"8x8-bound": "fails", "8x8-interleave": "threads may run on PUs 1", "8x8-local": "fails"}
    advice, document = host(times("4x16-bound"), odd=lambda s: bad.get(s.name, ""))
    assert document["recommended"] not in bad
    rows = {r["name"]: r for r in document["scenarios"]}
    tried = {advice.scenarios[n].name for n in advice.dropped}
    assert tried & set(bad)
    for name in tried:
        assert rows[name]["trials"] == 0
        expected = "bwa ended with status 9" if bad[name] == "fails" else "invalid, threads may run on PUs 1"
        assert rows[name]["reason"] == expected
    assert any("does not count" in m or "the trial failed" in m for m in host.messages)


def test_where_none_can_be_tried(host):
    with pytest.raises(RunFailed, match=r"bwa .*status 9"):
        host(times("1x64-default"), odd=lambda _: "fails")


def test_too_short_trials_are_made_longer(host):
    advice, _ = host(times("8x8-bound", whole=40.0), loading=0.0, budget=0.2)
    assert all(t.seconds >= 0.1 for own in advice.trials for t in own)
    assert any("could be sampled" in m for m in host.messages)


def test_a_long_load_that_exceeds_the_budget_is_reported(host):
    _, document = host(times("8x8-bound", whole=30.0), loading=30.0)
    assert not document["budget"]["within"]
    assert any("OVER the budget" in line for line in advice_text.lines(document))


def test_too_few_reads_for_a_trial(host):
    advice, document = host(times("8x8-bound"), budget=0.001)
    assert (advice.stop, advice.belief, host.limits) == ("short", None, [])
    needs = "too few reads: the first trials take 0.5%, the budget is 0.1%: --budget must be at least 0.5%"
    assert host.messages == [needs]
    assert "rule of thumb" in " ".join(advice_text.lines(document))
    assert document["budget"]["within"]


@pytest.mark.parametrize("loading", [0.2, 1.0, 5.0, 30.0, 200.0])
@pytest.mark.parametrize("whole", [100.0, 1000.0, 10_000.0])
def test_trials_on_the_first_reads_never_exceed_the_budget(host, monkeypatch, loading, whole):
    # The fastest and the slowest aligner would take 100 s and 10,000 s.
    monkeypatch.setattr(trials, "FASTEST", 1e8 / 64 / 100)
    monkeypatch.setattr(trials, "SLOWEST", 1e8 / 64 / 10_000)
    noise = (1.0, 1.03, 0.98)
    head = trials.Head(0.01, host.clock.now)
    advice, document = host(times("8x8-bound", whole), loading, budget=0.03, noise=noise, head=head)
    best = loading + whole
    assert advice.spent == host.clock.now <= 1.05 * 0.03 * best
    # Before the first trial ends, the run may be as short as 100 s.
    assert (document["stop"] == "short") == (loading > 3 or (loading, whole) == (1.0, 100.0))
    if document["stop"] != "short":
        assert document["budget"]["within"]
        assert document["recommended"] == "8x8-bound"
        assert document["predicted_s"]["low"] < best < document["predicted_s"]["high"]


def test_a_run_that_is_too_short_for_any_trial_has_none(host):
    advice, _ = host(times("8x8-bound", 1.0), head=trials.Head(0.01, host.clock.now))
    assert (advice.belief, advice.spent) == (None, 0.0)
    # In half a second, the least of a trial, 64 threads of the fastest aligner take 128 million bases.
    reads = math.ceil(128e6 / 0.03 / 10)
    needs = f"the budget is 3.0%: at least {reads:,} reads are needed"
    assert host.messages == [f"too few reads: the first trials take less than a second, {needs}"]


def test_the_reads_that_are_said_to_be_needed_suffice(host, tmp_path):
    def reads_of(count):
        file = tmp_path / "r.fq"
        file.write_text("".join(f"@r{i}\nACGTACGTAC\n+\nIIIIIIIIII\n" for i in range(count)))
        return fastq.inspect([file], fastq.BatchRule(100))

    few, _ = host(times("8x8-bound"), reads=reads_of(1000))
    assert (few.stop, few.least_reads) == ("short", -(-64 * 5 * 100 // 3))
    assert host(times("8x8-bound"), reads=reads_of(few.least_reads - 100))[0].stop == "short"
    assert host(times("8x8-bound"), reads=reads_of(few.least_reads + 100))[0].stop != "short"


def shown(scenario):
    """Return the memory of a program whose allocator gets huge pages if mimalloc is asked for them."""
    huge = 900 << 20 if set(scenario.options) >= {"thp", "mimalloc"} else 0
    libraries = frozenset(f"lib{name}.so.2" for name in scenario.options if name.endswith("malloc"))
    return Memory(1000 << 20, huge, libraries=libraries, thp_disabled="no-thp" in scenario.options)


def test_memory_options_are_found_and_judged_by_what_the_kernel_shows(host):
    """thp never holds with glibc's malloc, and no-thp cannot matter; thp with mimalloc is the fastest."""
    sets = memory_options.combinations(("thp", "no-thp", "mimalloc", "jemalloc"))[0]
    base = times("8x8-bound")

    def work(scenario):
        factors = {("mimalloc",): 0.95, ("thp", "mimalloc"): 0.85, ("jemalloc",): 1.1}
        return base(scenario) * factors.get(scenario.options, 1.0)

    advice, document = host(work, loading=0.2, noise=(1.0, 1.02, 0.99), sets=sets, memory=shown)
    assert len(advice.scenarios) > 100
    assert document["recommended"] == "8x8-bound+thp+mimalloc"
    assert document["budget"]["within"]
    rows = {row["name"]: row for row in document["memory_options"]}
    assert list(rows) == ["thp", "huge", "no-thp", "mimalloc", "jemalloc"]
    assert rows["no-thp"] == {
        "name": "no-thp",
        "trials": 0,
        "gain": None,
        "state": "dropped",
        "reason": "no-thp: no memory is in transparent huge pages without it",
    }
    assert (rows["huge"]["state"], rows["huge"]["reason"]) == ("refused", "memory option huge: none")
    assert rows["thp"]["gain"]["low"] < 0.95 / 0.85 < rows["thp"]["gain"]["high"]
    assert rows["mimalloc"]["gain"]["low"] < 1 / 0.85 < rows["mimalloc"]["gain"]["high"]
    best = next(row for row in document["scenarios"] if row["state"] == "recommended")
    assert best["memory"]["huge_bytes"] == 900 << 20
    # Two invalid trials are enough to drop thp with glibc's malloc in all scenarios.
    assert sum("thp was requested, but" in m for m in host.messages) <= 2 * 2
    assert all(row["trials"] for row in document["scenarios"] if row.get("memory_options"))
    text = advice_text.lines(document)
    assert any(line.startswith("thp: 1.") and line.endswith("as the best scenario without it") for line in text)
    assert "huge: not tried: none" in text


@pytest.mark.parametrize(
    ("memory", "left"),
    [
        (Memory(anonymous=1 << 20), {"mimalloc", "jemalloc"}),
        (Memory(anonymous=1000 << 20, huge=960 << 20), {"no-thp", "mimalloc", "jemalloc"}),
        (Memory(anonymous=1000 << 20, huge=500 << 20), {"thp", "no-thp", "mimalloc", "jemalloc"}),
        (Memory(anonymous=1000 << 20), {"thp", "mimalloc", "jemalloc"}),
    ],
)
def test_options_that_cannot_matter(memory, left):
    names = ("thp", "no-thp", "mimalloc", "jemalloc")
    assert {name for name in names if not comparison.needless([name], (), memory)} == left
    # With mimalloc the memory may be another one, except for its size.
    other = comparison.needless(("thp", "mimalloc"), (), memory)
    assert (other == "") == (memory.anonymous > 8 << 20)
    other = comparison.needless(("no-thp", "mimalloc"), (), memory)
    assert (other == "") == bool(memory.huge)
    assert comparison.needless(("thp", "jemalloc"), ("thp",), memory) == ""


def test_policies_are_not_tried_where_they_are_alike(host):
    planned = plan(load(xml=ONE_BANK), policies="interleave,localalloc,original")
    different = distinct(planned.scenarios)
    assert {s.policy for s in different if s.instances == 1} == {"original"}
    advice, document = host(times("1x-default"), planned=planned)
    tried = {s.name for s, own in zip(advice.scenarios, advice.trials, strict=True) if own}
    assert tried <= {s.name for s in different}
    rows = {r["name"]: r for r in document["scenarios"]}
    assert (
        rows[planned.scenario("1x-interleave").name]["reason"]
        == "not tried: like another policy: all memory is on one NUMA node"
    )
