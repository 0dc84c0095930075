# SPDX-License-Identifier: Apache-2.0
"""The rounds of a job: what is measured again, in which order, until when, and who waits for whom."""

import random
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from factories.clocks import ManualClock
from firsttouch.campaign import campaigns, state
from firsttouch.campaign import run as running
from firsttouch.campaign.journal import Entry, now
from firsttouch.execution import slurm
from firsttouch.fleet import measuring
from firsttouch.fleet.measuring import JobJudge, cost_text
from firsttouch.judge.judging import judged
from firsttouch.judge.verdict import Finding, HostVerdict
from firsttouch.records import samples_table
from firsttouch.records.cases import Case
from firsttouch.records.schema import Record
from firsttouch.systems.definition import Undescribed, load
from firsttouch.systems.references import Reference

STEPS = ("latency-0", "bandwidth-1")
HOSTS = tuple(f"n{i}" for i in range(1, 7))
#: The most repetitions of an undecided metric.
MOST = 12
#: The metric of each step, with its usual value and the direction in which it is worse.
METRICS = {
    "latency-0": (
        "latency",
        "random_latency",
        "ns",
        "lower",
        90.0,
        {"size_bytes": 1 << 28, "pu_nodes": [0], "bank": 0},
    ),
    "bandwidth-1": (
        "bandwidth",
        "copy_bandwidth",
        "GB/s",
        "higher",
        30.0,
        {"kernel": "copy", "pu_nodes": [0], "bank": 0},
    ),
}


def record(host, step, loss=0.0):
    check, metric, unit, better, usual, parameters = METRICS[step]
    value = usual * (1 - loss if better == "higher" else 1 + loss)
    return Record(check, metric, unit, better, (value,), parameters=parameters, host=host, system="local")


def key(step):
    return Case.from_record(record("n1", step)).key


@pytest.fixture
def campaign(tmp_path, monkeypatch):
    monkeypatch.setenv("FIRSTTOUCH_EFFORT", "smoke")
    monkeypatch.setenv("FIRSTTOUCH_VERDICTS", str(tmp_path / "verdicts"))
    idle = Record("topology", "busy_pus", "1", "neither", (0.0,))
    monkeypatch.setattr(running.kernel_settings, "busy_pus", lambda: idle)
    monkeypatch.setattr(running, "GONE", 30.0)
    # Heartbeats follow the clocks of the test: a file that got none for long only shows that this machine is busy.
    monkeypatch.setattr(running.Leases, "_age", lambda leases, file: 0.0)
    fields = {"system": "local", "dataset": "lambda", "aligners": (), "repetitions": 1}
    return campaigns.create(campaigns.plan("validate", tmp_path / "c", only=STEPS, **fields))


class Ended(NamedTuple):
    """The verdicts of a host's job, the host's own verdict, the cost, and the hosts that it reports."""

    verdicts: Sequence[HostVerdict]
    verdict: HostVerdict
    cost: str
    speaks: bool
    stands_for: Sequence[str]


class Job:
    """A job of *hosts*, each of which is a thread with its own clock; *losses* are by host and step."""

    def __init__(
        self, campaign, monkeypatch, losses, hosts=HOSTS, *, number="77", absent=(), most=MOST, error=0.005
    ):
        monkeypatch.setenv("SLURM_JOB_ID", number)
        monkeypatch.setenv("SLURM_JOB_NUM_NODES", str(len(hosts)))
        monkeypatch.setenv("SLURM_STEP_NODELIST", ",".join(hosts))
        self.lines, self.measured = [], {host: [] for host in hosts}
        # The values of a step are the same in each order of the steps, which is drawn.
        noise = {(host, step): random.Random(f"{number} {host} {step}") for host in hosts for step in STEPS}  # noqa: S311

        def measure(runner, step):
            runner.beat()
            runner.clock.now += 60.0
            self.measured[runner.host].append(step.name)
            loss = losses.get((runner.host, step.name), 0.0) + noise[runner.host, step.name].gauss(0, error)
            return "measured", "", [record(runner.host, step.name, loss)]

        monkeypatch.setattr(running._Runner, "_measure", measure)
        self.runners = []
        for host in hosts:
            if host not in absent:
                monkeypatch.setattr(running, "host_name", lambda host=host: host)
                runner = running._Runner(campaign, self.lines.append, [], clock=ManualClock())
                runner.journal.open()
                self.runners.append(runner)
        self.judges = {host: JobJudge(load(campaign.system), campaign.name, most) for host in hosts}

    def run(self):
        """Run all hosts; return their ends by name."""
        ready = threading.Barrier(len(self.runners))

        def run(runner):
            with runner.taking_part():
                ready.wait()
                runner.go()
                runner.decide(self.judges[runner.host])

        with ThreadPoolExecutor(len(self.runners)) as pool:
            list(pool.map(run, self.runners))
        return {runner.host: self.ended(runner) for runner in self.runners}

    def ended(self, runner):
        """Return how a host ended the job."""
        outcome, judge = runner.outcome, self.judges[runner.host]
        cost = cost_text(judge.verdicts, outcome.seconds, outcome.limit)
        return Ended(judge.verdicts, judge.verdict, cost, outcome.speaks, outcome.stands_for)


def words(outcome):
    return {verdict.host: verdict.verdict for verdict in outcome.verdicts}


def test_a_job_of_new_hosts_measures_until_the_bad_one_fails(campaign, monkeypatch):
    job = Job(campaign, monkeypatch, {("n3", "bandwidth-1"): 0.25})
    outcomes = job.run()
    expected = {host: "fail" if host == "n3" else "pass" for host in HOSTS}
    assert all(words(outcome) == expected for outcome in outcomes.values()), job.lines
    assert next(iter(words(outcomes["n1"]))) == "n3"  # the worst first
    assert [host for host, outcome in outcomes.items() if outcome.speaks] == ["n1"]
    assert {outcomes[host].verdict.host for host in HOSTS} == set(HOSTS)
    # Once a loss is seen, its metric is repeated until it is decided.
    bad = job.measured["n3"]
    assert {*bad[:2]} == {*STEPS}
    assert bad[-1] == "bandwidth-1"
    assert 2 <= bad.count("bandwidth-1") < MOST
    assert bad.count("latency-0") <= bad.count("bandwidth-1")
    # The siblings have the same number of repetitions.
    assert {steps.count("bandwidth-1") for steps in job.measured.values()} == {bad.count("bandwidth-1")}
    text = outcomes["n1"].cost
    assert "repetitions of each metric in " in text
    assert text.endswith("; nothing is undecided")


def test_good_hosts_are_soon_done(campaign, monkeypatch):
    job = Job(campaign, monkeypatch, {})
    outcomes = job.run()
    assert set(words(outcomes["n1"]).values()) == {"pass"}
    assert max(map(len, job.measured.values())) < 2 * MOST


def test_no_more_than_the_wanted_repetitions_are_made(campaign, monkeypatch):
    job = Job(campaign, monkeypatch, {("n3", "bandwidth-1"): 0.25}, most=2, error=0.08)
    outcome = job.run()["n1"]
    assert words(outcome)["n3"] in {"undecided", "suspect"}
    assert {steps.count("bandwidth-1") for steps in job.measured.values()} == {2}
    assert "; at most 2 repetitions are made; still undecided: n3: copy" in outcome.cost


def test_hosts_that_cannot_be_compared_are_not_measured_again_in_vain(campaign, monkeypatch):
    """Six hosts that differ by up to 40 % show no level; their latencies do."""
    losses = {(host, "bandwidth-1"): 0.08 * number for number, host in enumerate(HOSTS)}
    job = Job(campaign, monkeypatch, losses, most=4)
    outcome = job.run()["n1"]
    assert set(words(outcome).values()) == {"undecided"}
    assert max(steps.count("bandwidth-1") for steps in job.measured.values()) < 4
    assert "; still undecided: " in outcome.cost


@pytest.mark.parametrize("host", ["n2", "n1"])
def test_a_host_that_never_comes_is_not_waited_for_and_the_next_job_measures_it(campaign, monkeypatch, host):
    job = Job(campaign, monkeypatch, {("n3", "bandwidth-1"): 0.25}, absent=[host])
    outcomes = job.run()
    present = next(name for name in HOSTS if name != host)
    assert outcomes[present].speaks
    assert outcomes[present].stands_for == [present, host]
    assert outcomes["n4"].stands_for == ["n4"]
    assert words(outcomes[present])["n3"] == "fail"
    assert words(outcomes[present])[host] == "suspect"
    (verdict,) = (v for v in outcomes[present].verdicts if v.host == host)
    assert verdict.missing == ("it measured nothing in this job",)
    again = Job(campaign, monkeypatch, {("n3", "bandwidth-1"): 0.25}, number="78")
    outcomes = again.run()
    assert words(outcomes["n4"]) == {name: "fail" if name == "n3" else "pass" for name in HOSTS}
    assert {*again.measured[host][:2]} == {*STEPS}
    # The others have their repetitions from the job before.
    assert all(len(steps) <= len(again.measured[host]) for steps in again.measured.values())


def test_a_host_that_decides_late_decides_as_the_others(campaign, monkeypatch):
    """They measure again meanwhile: of these records it would learn that all is decided, and leave too early."""
    job = Job(campaign, monkeypatch, {("n3", "bandwidth-1"): 0.25})
    rounds_of, changed = dict.fromkeys(HOSTS, 0), threading.Condition()
    end_round, decide, open_steps = running.Meeting.end_round, running._Runner.decide, running._Runner._open_steps

    def note(host, number):
        with changed:
            rounds_of[host] = number
            changed.notify_all()

    def noted_end(meeting, number, **options):
        note(meeting.journal.host, number)
        return end_round(meeting, number, **options)

    def noted_decide(runner, judge):
        decide(runner, judge)
        note(runner.host, 1000)

    def late(runner, *argv):
        if runner.host == "n6":
            ended = rounds_of["n6"]
            with changed:
                changed.wait_for(
                    lambda: all(n > ended for host, n in rounds_of.items() if host != "n6"), timeout=60
                )
        return open_steps(runner, *argv)

    monkeypatch.setattr(running.Meeting, "end_round", noted_end)
    monkeypatch.setattr(running._Runner, "decide", noted_decide)
    monkeypatch.setattr(running._Runner, "_open_steps", late)
    outcomes = job.run()
    expected = {host: "fail" if host == "n3" else "pass" for host in HOSTS}
    assert all(words(outcome) == expected for outcome in outcomes.values()), job.lines
    assert outcomes["n1"].stands_for == ["n1"]
    assert len({steps.count("bandwidth-1") for steps in job.measured.values()}) == 1


def died_in_its_second_round(campaign, monkeypatch):
    """Return a job whose n5 was killed in its second round: neither its lease nor its last step has an end."""
    job = Job(campaign, monkeypatch, {("n3", "bandwidth-1"): 0.25})
    (dead,) = (runner for runner in job.runners if runner.host == "n5")
    job.runners.remove(dead)
    dead.leases.take("n5")
    with dead.progress:
        dead.go()
    dead.journal.write(Entry(running.ROUND, "measured", now(), "n5", "77", "77", "0 0"))
    dead.journal.write(Entry("bandwidth-1", "began", now(), "n5", "77", "77"))
    return job


SILENT = "it stopped answering during bandwidth-1"


def missing_after(campaign):
    return state.missing_results(state.state(campaign))["n5"]


@pytest.mark.parametrize("sign", ["no heartbeat", "down"])
def test_a_host_that_died_in_a_round_is_suspect_until_it_is_measured_again(campaign, monkeypatch, stand_in, sign):
    stand_in("sacct", "true")
    stand_in("squeue", "echo 77 RUNNING 0")
    job = died_in_its_second_round(campaign, monkeypatch)
    if sign == "down":
        stand_in("sinfo", "echo 'n5|down*|Not responding'")
    else:
        is_old = {"n5": 1e9}
        monkeypatch.setattr(
            running.Leases, "_age", lambda leases, file: is_old.get(file.name.partition(".")[0], 0.0)
        )
    outcome = job.run()["n1"]
    assert words(outcome) == {host: {"n3": "fail", "n5": "suspect"}.get(host, "pass") for host in HOSTS}
    (verdict,) = (v for v in outcome.verdicts if v.host == "n5")
    assert verdict.missing == (SILENT,)
    assert outcome.stands_for == ["n1", "n5"]
    # While the job runs, only its hosts can know.
    assert missing_after(campaign) == []
    stand_in("squeue", "true")
    stand_in("sacct", "echo '77|77|FAILED|1:0|n[1-6]'")
    assert missing_after(campaign) == [f"{SILENT}: job 77 FAILED with 1:0"]
    (gap,) = state.state(campaign).gaps
    assert (gap.host, gap.step) == ("n5", "bandwidth-1")
    again = Job(campaign, monkeypatch, {("n3", "bandwidth-1"): 0.25}, number="78")
    assert words(again.run()["n1"])["n5"] == "pass"
    assert missing_after(campaign) == []
    assert campaign.host("n5").entries()[-1].step == running.ROUND


def test_a_job_stops_in_time(campaign, monkeypatch):
    """A host alone, with a reference that needs many repetitions; each step takes a minute."""
    check, metric, unit, _, usual, _ = METRICS["bandwidth-1"]
    reference = Reference(check, metric, {"kernel": "copy"}, usual, -0.05, 0.05, unit, "order", 0, 0.02)
    system = replace(load("local"), references=(reference,))
    for minutes, repetitions in ((60, 5), (8, 4), (0, 1)):
        clock = ManualClock()
        monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(clock.time() + 60 * minutes)))
        for file in (campaign.folder / "hosts").rglob("*.jsonl"):
            file.unlink()
        job = Job(campaign, monkeypatch, {("n1", "bandwidth-1"): 0.055}, hosts=["n1"], error=0.0)
        (runner,) = job.runners
        runner.clock, judge = clock, JobJudge(system, campaign.name)
        with runner.taking_part():
            runner.go()
            runner.decide(judge)
        assert clock.now - 1000 <= 60 * max(minutes, 2)
        assert job.measured["n1"].count("bandwidth-1") == repetitions
        text = cost_text(judge.verdicts, runner.outcome.seconds, runner.outcome.limit)
        late = "; the job has too little time left; " in text
        assert late == (repetitions < 5)


@pytest.mark.parametrize(
    ("words_of_hosts", "stands_for", "expected"),
    [
        ({"n1": "pass", "n2": "pass"}, ["n1"], 0),
        ({"n1": "pass", "n2": "fail"}, ["n1"], 0),
        ({"n1": "pass", "n2": "fail"}, ["n2"], 1),
        ({"n1": "suspect", "n2": "pass"}, ["n1"], 4),
        ({"n1": "suspect", "n2": "fail"}, ["n1"], 1),  # srun returns the highest status
        ({"n1": "pass", "n2": "suspect", "n3": "fail"}, ["n1", "n2"], 1),  # n2 is absent
    ],
)
def test_the_highest_status_of_the_tasks_of_a_job_is_that_of_its_worst_host(words_of_hosts, stands_for, expected):
    verdicts = [HostVerdict(host, "local", (finding(word),), 0, ()) for host, word in words_of_hosts.items()]
    judge = JobJudge(load("local"), "c")
    judge.verdicts = verdicts
    assert judge.exit_status(stands_for, strict=False) == expected


def finding(word):
    check, metric, unit, _, usual, parameters = METRICS["bandwidth-1"]
    return Finding(Case("s", check, metric, parameters, unit, "higher"), (usual,), None, word, "")


class TestPlan:
    def fleet(self, repetitions=1, loss=0.25, **more):
        """Return the findings of hosts with *repetitions* of each step, and *more* of bandwidth on some."""
        noise = random.Random(1)  # noqa: S311
        records = [
            record(host, step, (loss if (host, step) == ("n3", "bandwidth-1") else 0) + noise.gauss(0, 0.005))
            for host in HOSTS
            for step in STEPS
            for _ in range(repetitions + (more.get(host, 0) if step == "bandwidth-1" else 0))
        ]
        return judged(samples_table.of_records(records, "local"), Undescribed("local"))

    def test_siblings_repeat_what_a_host_is_undecided_in(self):
        planned = measuring.plan(self.fleet(), HOSTS, 12)
        assert {host for host, keys in planned.items() if key("bandwidth-1") in keys} == set(HOSTS)
        assert planned["n3"][0] == key("bandwidth-1")

    def test_of_many_siblings_those_with_the_fewest_repetitions_take_part(self, monkeypatch):
        monkeypatch.setattr(measuring, "SIBLINGS", 2)
        planned = measuring.plan(self.fleet(n1=1, n2=1), HOSTS, 12)
        assert {h for h, keys in planned.items() if key("bandwidth-1") in keys} == {"n3", "n4", "n5"}

    def test_a_host_that_has_more_repetitions_does_not_take_part(self):
        assert key("bandwidth-1") not in measuring.plan(self.fleet(n6=1), HOSTS, 12)["n6"]

    def test_nothing_is_planned_for_a_decided_fleet(self):
        assert not any(measuring.plan(self.fleet(repetitions=8), HOSTS, 12).values())


@pytest.mark.parametrize(
    ("variables", "answer", "expected"),
    [
        ({}, "", None),
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": "1700000000"}, "", 1.7e9),
        ({"SLURM_JOB_ID": "7"}, "2023-11-14T22:13:20+00:00", 1.7e9),
        ({"SLURM_JOB_ID": "7"}, "NONE", None),
    ],
)
def test_the_end_of_the_job_is_slurms(monkeypatch, variables, answer, expected):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.delenv("SLURM_JOB_END_TIME", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(slurm, "_lines", lambda argv: [answer])
    assert slurm.end_of_job() == expected
