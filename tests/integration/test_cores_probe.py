# SPDX-License-Identifier: Apache-2.0
"""The probe's cores aspect on this host: a PU that gets half as fast is named, and no other one is blamed."""

import contextlib
import itertools
import json
import os
from itertools import chain

import pytest

from factories.processes import captured
from firsttouch.benchmarks import cores, probe
from firsttouch.errors import BadInput
from firsttouch.host import topology
from firsttouch.judge.judging import judge
from firsttouch.records.schema import Record
from firsttouch.systems.definition import Undescribed

PUS = sorted(topology.load().allowed_pus)


#: The least speed of a PU, as a share of the others', at which the loss of an injected fault is known.
STEADY = 0.85
#: The options of a short run.
SHORT = ["--seconds=0.01", "--array-bytes=128MiB"]


def results(*options, run=SHORT):
    """Return the records of a *run*, short by default, with these options."""
    return [*chain.from_iterable(probe.follow("cores", [*run, *options]))]


@contextlib.contextmanager
def on_steady_pus():
    """Turns a failure into a skip if the PUs differ without a fault, too, as in a guest next to busy ones."""
    try:
        yield
    except (AssertionError, LookupError):
        slowest = min((r.value for _ in range(3) for r in results() if r.metric == cores.SLOWEST), default=1.0)
        if slowest < STEADY:
            pytest.skip(f"NOT TESTED: a PU of this host has {100 * slowest:.0f} % of the speed of the others now")
        raise


@on_steady_pus()
def test_the_clock_of_all_pus_is_one_record_and_no_pu_is_blamed():
    by_metric = {record.metric: record for record in results(*cores.ONLY_CLOCK)}
    assert by_metric.keys() == {cores.SLOW, cores.CLOCK, cores.SLOWEST} - (
        {cores.SLOWEST} if len(PUS) < 2 else set()
    )
    assert by_metric[cores.SLOW].value == 0
    clock = by_metric[cores.CLOCK].parameters
    assert 0.05 < clock["slowest"] < 20
    assert {*map(int, clock["by_pu"])} == {*PUS}
    # It is the case of records from before there were other chains.
    assert not {"chain", "running"} & clock.keys()


@on_steady_pus()
def test_each_chain_is_measured_at_once_and_alone_and_the_farther_one_is_slower():
    records = results()
    steps = {tuple(r.parameters[k] for k in ("chain", "running")): r for r in records if r.metric == cores.STEP}
    assert {*steps} == {*itertools.product(("l1", "l2", "memory"), ("all", "alone"))}
    for running in ("all", "alone"):
        first, second, memory = (steps[chain, running].value for chain in ("l1", "l2", "memory"))
        assert first < second < memory
    alone = [r for r in records if r.metric == cores.CLOCK and "running" in r.parameters]
    assert [r.parameters["chain"] for r in alone] == ["registers"]
    clear = [(r.parameters.get("chain"), r.value) for r in records if r.metric == cores.SLOW]
    assert clear == [(chain, 0.0) for chain in (None, "l1", "l2", "memory")[: 4 if len(PUS) > 1 else 1]]
    assert {r.status for r in records} == {"valid"}


@pytest.mark.skipif(len(PUS) < 2, reason="a PU has no sibling here")
@pytest.mark.parametrize(("pu", "chain"), [(PUS[0], "l1"), (PUS[-1], "l2"), (PUS[0], "memory")])
@on_steady_pus()
def test_a_pu_that_is_slow_in_one_chain_is_named_with_it(pu, chain):
    slow = [r for r in results(f"--inject={pu},{chain}") if r.metric == cores.SLOW and r.value]
    assert [(r.parameters["pu"], r.parameters["chain"], r.value) for r in slow] == [(pu, chain, 1.0)]
    assert slow[0].parameters["loss"] == pytest.approx(0.5, abs=0.15)
    assert slow[0].parameters["loss_alone"] == pytest.approx(0.5, abs=0.15)


@pytest.mark.skipif(len(PUS) < 2, reason="a PU has no sibling here")
@pytest.mark.parametrize("pu", {PUS[0], PUS[-1]})
@on_steady_pus()
def test_a_pu_at_half_speed_is_named_with_its_loss(pu):
    records = results(f"--inject={pu}", *cores.ONLY_CLOCK)
    slow = [r for r in records if r.metric == cores.SLOW and "chain" not in r.parameters]
    assert [(record.parameters["pu"], record.value) for record in slow] == [(pu, 1.0)]
    assert slow[0].parameters["loss"] == pytest.approx(0.5, abs=0.15)
    # Records of a drill judge nobody.
    assert {record.status for record in records} == {"invalid"}


@pytest.mark.skipif(len(PUS) < 2, reason="a PU has no sibling here")
@pytest.mark.parametrize(("after", "named"), [(0.1, [PUS[-1]]), (0.28, [])])
@on_steady_pus()
def test_a_pu_that_slows_down_under_load_is_named_if_it_is_slow_in_the_last_quarter(after, named):
    records = results(f"--inject={PUS[-1]},{after}", run=["--sustain=0.3"])
    assert [r.parameters["pu"] for r in records if r.metric == cores.SLOW and r.value] == named
    clock = next(r for r in records if r.metric == cores.SUSTAINED)
    assert (len(clock.samples), len(clock.parameters["curve"])) == (25, 100)


def test_a_sustained_load_has_its_own_cases(run_here):
    done = run_here("measure", "cores", "--sustain", "0.2", "--json")
    records = json.loads(done.stdout)
    assert {(r["metric"], r["parameters"]["sustain_s"]) for r in records} >= {(cores.SUSTAINED, 0.2)}
    assert "0.2 of 0.2 s" in done.stderr


def test_a_sustained_load_has_one_chain():
    with pytest.raises(BadInput, match="--sustain"):
        list(probe.follow("cores", ["--sustain=1", "--chains=l2"]))


def record(host, slow, day=1, **parameters):
    """Return a record of a host's slow cores."""
    time = f"2026-01-{day:02}T00:00:00Z"
    shared = {"program": "firsttouch-probe", **parameters}
    return Record(cores.CHECK, cores.SLOW, "1", "lower", (slow,), shared, system="s", host=host, time=time)


def test_only_the_chain_in_which_a_core_was_slow_clears_it():
    records = [record("n1", 1.0, pu=37, loss=0.4, chain="l2"), record("n1", 0.0, day=2)]
    assert [verdict.verdict for verdict in judge(records, Undescribed("s"))] == ["fail"]
    records += [record("n1", 0.0, day=3, chain="l1"), record("n1", 0.0, day=4, chain="l2")]
    assert [verdict.verdict for verdict in judge(records[:-1], Undescribed("s"))] == ["fail"]
    assert [verdict.verdict for verdict in judge(records, Undescribed("s"))] != ["fail"]


def test_a_session_clears_only_the_pus_that_it_has_measured():
    slow, others = record("n1", 1.0, pu=37, loss=0.4), record("n1", 0.0, day=2, measured_pus="0-31")
    assert [verdict.verdict for verdict in judge([slow, others], Undescribed("s"))] == ["fail"]
    # Nor does another slow core among others.
    blaming = record("n1", 1.0, day=3, pu=3, loss=0.4, measured_pus="0-31")
    (verdict,) = judge([slow, others, blaming], Undescribed("s"))
    assert {f.case.parameters["pu"] for f in verdict.findings if f.verdict == "fail"} == {3, 37}
    for clear in (record("n1", 0.0, day=4), record("n1", 0.0, day=4, measured_pus="32-63")):
        (verdict,) = judge([slow, others, clear], Undescribed("s"))
        assert verdict.verdict != "fail"


@pytest.mark.skipif(len(PUS) < 2, reason="a PU has no sibling here")
def test_a_run_on_some_pus_names_them(monkeypatch):
    usable = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {PUS[0]})
    try:
        records = results(*cores.ONLY_CLOCK)
    finally:
        os.sched_setaffinity(0, usable)
    assert [r.parameters["measured_pus"] for r in records if r.metric == cores.SLOW] == [str(PUS[0])]


def test_the_slowest_pu_is_the_same_in_all_results_and_lines(native_probe):
    argv = [native_probe, "cores", "--seconds=0.005", "--array-bytes=8MiB", "--jsonl"]
    done = captured(argv, check=True)
    rows = [row for line in done.stdout.splitlines() if (row := json.loads(line)).get("type") == "result"]
    of_way = {(r["chain"], r["running"]): r["slowest_pu"] for r in rows if r["metric"] == cores.SLOWEST}
    words = {"all": "at once", "alone": "one by one"}
    for row in rows:
        if row["metric"] not in {cores.CLOCK, cores.STEP}:
            continue
        way = row.get("chain", "registers"), row.get("running", "all")
        slowest = of_way.get(way, PUS[0])
        assert row["slowest"] == row["by_pu"][str(slowest)]
        (line,) = (text for text in done.stderr.splitlines() if f"{words[way[1]]}, {way[0]}:" in text)
        assert f"the slowest, PU {slowest}, " in line


def test_a_limited_address_space_leaves_the_memory_chain_out(native_probe):
    argv = [native_probe, "cores", "--seconds=0.005", "--jsonl"]
    limit = f"ulimit -v $((100000 + 8192 * {len(PUS)}))"
    done = captured(["bash", "-c", f'{limit}; exec "$@"', "bash", *argv])
    assert done.returncode == 0, done.stderr
    assert "the chain through memory is left out" in done.stderr
    assert '"l2"' in done.stdout


@pytest.mark.skipif(len(PUS) < 2, reason="a PU has no sibling here")
@pytest.mark.parametrize("running", ["all", "alone"])
@on_steady_pus()
def test_one_way_of_a_chain_neither_blames_nor_clears(running):
    records = results("--chains=l2", f"--running={running}", f"--inject={PUS[0]},l2")
    assert {r.metric for r in records} == {cores.STEP, cores.SLOWEST}
