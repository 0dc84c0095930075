# SPDX-License-Identifier: Apache-2.0
"""The files of a campaign: written once, by one process, and readable after any process died."""

import errno
import json
import os
import random
import re
import shlex
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec.structs import replace

from factories.clocks import ManualClock
from firsttouch import cli
from firsttouch.campaign import campaigns, run, state
from firsttouch.campaign import run as running
from firsttouch.campaign.journal import Entry, Journal, note, now
from firsttouch.campaign.leases import BEAT, GONE, Holder, Leases, abandoned_holders, last
from firsttouch.campaign.state import overview
from firsttouch.cli.campaign import conclude
from firsttouch.errors import BadInput
from firsttouch.fleet import verdict_log
from firsttouch.fleet.measuring import JobJudge
from firsttouch.judge.verdict import HostVerdict
from firsttouch.records.catalogue import checks
from firsttouch.records.schema import Record
from firsttouch.report import inputs, writing
from firsttouch.scenarios.placement import parse_name
from firsttouch.systems.definition import load


@pytest.fixture(autouse=True)
def smoke(monkeypatch):
    monkeypatch.setenv("FIRSTTOUCH_EFFORT", "smoke")


def planned(folder, kind="characterize", **more):
    fields = {"system": "amd-opteron", "dataset": "lambda", "aligners": (), "repetitions": 3, **more}
    return campaigns.plan(kind, folder, **fields)


def record(host="n1", value=1.0, **more):
    return Record("topology", "pus", "1", "neither", (value,), host=host, system="amd-opteron", **more)


def finish(campaign, host, *steps, ended="measured", job=""):
    """Write the journal of a host as a run does."""
    journal = campaign.host(host)
    journal.open()
    for step in steps:
        journal.write(Entry(step, "began", now(), host, job, job))
        if ended != "began":
            begin, end = journal.add([record(host)]) if ended == "measured" else (0, 0)
            journal.write(
                Entry(step, ended, now(), host, job, job, "" if ended == "measured" else "why", 1.0, begin, end)
            )
    return journal


class TestPlan:
    def test_the_steps_of_a_host_are_of_checks_of_the_catalogue(self, tmp_path):
        measured = {s.check for s in planned(tmp_path, "characterize").steps}
        assert measured == {name for name, c in checks().items() if c.kind == "measured" and c.metrics} | {
            "topology"
        }

    @pytest.mark.parametrize("kind", ["characterize", "validate"])
    def test_only_aspects_that_are_measured_several_times_have_repetitions(self, tmp_path, kind):
        steps = planned(tmp_path, kind).steps
        once = {step.argv[1] for step in steps if "--repetitions" not in step.argv}
        assert once == {"topology", "cores", "correctness"}

    def test_validate_leaves_out_pu_sets_of_some_numa_nodes(self, tmp_path, monkeypatch):
        monkeypatch.setenv("FIRSTTOUCH_EFFORT", "full")
        characterize, validate = (planned(tmp_path, kind) for kind in ("characterize", "validate"))
        sets = [[s.name for s in c.steps if s.name.startswith("bandwidth")] for c in (characterize, validate)]
        assert sets == [[f"bandwidth-{size}" for size in sizes] for sizes in ((1, 2, 4, 8), (1, 8))]

    def test_strategy_has_the_scenarios_of_its_aligners(self, tmp_path, monkeypatch):
        monkeypatch.setenv("FIRSTTOUCH_EFFORT", "full")
        names = {s.name for s in planned(tmp_path, "strategy", aligners=["bwa-mem"]).steps}
        assert {"bwa-mem-1x64-default", "bwa-mem-8x8-bound"} <= names

    @pytest.mark.parametrize(("named", "skips"), [((), True), (("all",), True), (("gem3", "snap"), False)])
    def test_only_named_aligners_have_to_be_installed(self, tmp_path, monkeypatch, named, skips):
        monkeypatch.delenv("FIRSTTOUCH_MEASURED_ALIGNERS", raising=False)
        monkeypatch.setenv("FIRSTTOUCH_EFFORT", "full")
        steps = planned(tmp_path, "strategy", aligners=named).steps
        assert {"--if-installed" in step.argv for step in steps} == {skips}

    @pytest.mark.parametrize(
        "wrong",
        [
            {"system": "nowhere"},
            {"aligners": ["nothing"]},
            {"only": ["no-such-*"]},
            {"kind": "strategy", "dataset": "x", "aligners": ["bwa-mem"]},
        ],
    )
    def test_unknown_names_are_reported_before_any_work(self, tmp_path, wrong):
        with pytest.raises(BadInput):
            planned(tmp_path / "c", **wrong)
        assert not (tmp_path / "c").exists()


class TestCreate:
    def test_many_creators_at_once_get_the_same_campaign(self, tmp_path):
        with ThreadPoolExecutor(8) as pool:
            created = [*pool.map(lambda _: campaigns.create(planned(tmp_path)), range(8))]
        assert len({c.created for c in created}) == 1 == len({c.steps for c in created})
        assert [p.name for p in tmp_path.iterdir()] == ["campaign.json"]

    def test_a_full_disk_is_named_before_anything_runs(self, tmp_path, monkeypatch, run_cli):
        monkeypatch.setenv("FIRSTTOUCH_OUT", str(tmp_path))

        def full(_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", full)
        done = run_cli("campaign", "run", "characterize", "--step", "topology", "--campaign", "new")
        reason = f"firsttouch: error: {tmp_path}/campaigns/new: its file system is full; "
        assert (done.status, done.err.startswith(reason), done.err.count("\n")) == (3, True, 1)

    def test_another_campaign_in_its_folder_is_refused(self, tmp_path):
        campaigns.create(planned(tmp_path))
        with pytest.raises(BadInput, match=r"amd-opteron.*intel-xeon"):
            campaigns.create(planned(tmp_path, system="intel-xeon"))

    @pytest.mark.parametrize("effort", ["quick", "full"])
    def test_every_task_of_a_job_takes_the_repetitions_that_the_first_one_planned(
        self, tmp_path, monkeypatch, effort
    ):
        monkeypatch.setenv("FIRSTTOUCH_EFFORT", "quick")
        folder = str(tmp_path / "c")
        request = run.CampaignRequest("validate", folder, system="amd-opteron", repetitions=6, steps=["topology"])
        first = request.prepare()
        # The effort that limits them is the campaign's, whatever a later task's environment says.
        monkeypatch.setenv("FIRSTTOUCH_EFFORT", effort)
        assert request.prepare() == first
        with pytest.raises(BadInput, match="repetitions"):
            replace(request, repetitions=0).prepare()


class TestLeases:
    def test_one_of_many_wins(self, tmp_path):
        with ThreadPoolExecutor(16) as pool:
            taken = pool.map(lambda i: Leases(tmp_path, Holder(f"n{i}", "", 0)).take("step"), range(16))
            assert [lease.file.name for lease in taken if lease] == ["step.1"]

    def test_a_released_lease_is_free_and_a_held_one_is_not(self, tmp_path):
        ours, theirs = (Leases(tmp_path, Holder(h, "", 0)) for h in ("n1", "n2"))
        lease = ours.take("a.b-1")
        assert theirs.take("a.b-1") is None
        lease.release()
        assert theirs.take("a.b-1").file.name == "a.b-1.2"
        assert ours.take("a.b-1") is None

    def test_a_holder_gives_a_sign_of_life_every_twenty_seconds(self, tmp_path):
        clock = ManualClock()
        with Leases(tmp_path, Holder("n1", "", 0), clock).take("step") as lease:
            signs = []
            for _ in range(10):
                os.utime(lease.file, (0, 0))
                clock.sleep(BEAT / 2 + 0.001)
                lease.beat_if_due()
                signs.append(lease.file.stat().st_mtime > 0)
        assert signs == [False, True] * 5

    @pytest.mark.parametrize(("job", "hosts"), [("", 1), ("7", 8)], ids=["without Slurm", "a job of many hosts"])
    def test_a_host_has_to_give_signs_of_life(self, tmp_path, stand_in, job, hosts):
        stand_in("squeue", "echo 7 RUNNING 0")
        lease = Leases(tmp_path, Holder("n1", job, 0, hosts=hosts)).take("step")
        other = Leases(tmp_path, Holder("n2", job, 0, hosts=hosts))
        os.utime(lease.file, (time.time() - GONE - 5,) * 2)
        assert not other.is_alive(lease.file)
        lease.beat()
        assert other.take("step") is None
        os.utime(lease.file, (time.time() - GONE - 5,) * 2)
        assert other.take("step")

    @pytest.mark.parametrize(
        ("answer", "free"),
        [
            ("echo 7 RUNNING 0", False),
            ("echo 7 COMPLETING 0", False),
            ("echo 7 RUNNING 1", True),
            ("echo 7 PENDING 0", True),
            ("echo slurm_load_jobs error: Invalid job id specified >&2; exit 1", True),
            ("echo slurm_load_jobs error: Unable to contact slurm controller >&2; exit 1", False),
            ("true", True),
        ],
    )
    def test_a_job_that_squeue_knows_as_it_was_or_cannot_ask_for_is_alive(self, tmp_path, stand_in, answer, free):
        stand_in("squeue", answer)
        Leases(tmp_path, Holder("n1", "7", 0)).take("step")
        assert bool(Leases(tmp_path, Holder("n2", "8", 0)).take("step")) == free

    def test_a_lease_of_an_earlier_start_of_the_job_is_free(self, tmp_path):
        Leases(tmp_path, Holder("n1", "7", 0)).take("step")
        assert Leases(tmp_path, Holder("n1", "7", 1)).take("step")

    def test_a_lease_without_an_end_is_abandoned_when_its_job_is_over(self, tmp_path, stand_in):
        for host, job in (("n1", "7"), ("n2", "8"), ("n3", ""), ("n4", "7")):
            lease = Leases(tmp_path, Holder(host, job, 0, hosts=4)).take(host)
            if host == "n4":
                lease.release()
        (tmp_path / "n5.1").write_text('{"host": "n5", "job": ["7"], "restarts": 0}')
        (tmp_path / "n6.1").write_text("{")
        stand_in("squeue", "echo 8 RUNNING 0")
        assert set(abandoned_holders(tmp_path)) == {"n1"}
        stand_in("squeue", "echo 8 RUNNING 1")  # it was put back into the queue
        assert set(abandoned_holders(tmp_path)) == {"n1", "n2"}
        stand_in("squeue", "exit 1")
        assert not abandoned_holders(tmp_path)
        os.utime(tmp_path / "n2.1", (time.time() - GONE - 5,) * 2)
        assert set(abandoned_holders(tmp_path)) == {"n2"}
        assert not abandoned_holders(tmp_path / "none")

    def test_the_last_number_counts(self):
        names = ["a.1.free", "a.2", "a.10.free", "b.1", "b.1.free", ".c.5"]
        assert last(names) == {"a": (10, False), "b": (1, False)}


class TestJournal:
    def test_a_step_that_did_not_end_has_no_records(self, tmp_path):
        journal = Journal(tmp_path / "n1")
        journal.open()
        journal.add([record()])
        assert list(journal.finished_steps()) == []

    @pytest.mark.parametrize("left", ["none", "empty", "short", "rubbish"])
    def test_a_step_that_lost_its_records_is_unfinished_until_it_is_measured_again(self, tmp_path, left):
        campaign = campaigns.create(planned(tmp_path, only=["topology", "latency-0"]))
        journal = finish(campaign, "n1", "topology", "latency-0")
        whole = journal.records.read_bytes()
        texts = {"none": b"", "empty": b"", "short": whole[: len(whole) // 2], "rubbish": b"?" * len(whole)}
        journal.records.write_bytes(texts[left])
        if left == "none":
            journal.records.unlink()
        gone = {"latency-0"} if left == "short" else {"latency-0", "topology"}
        again = campaigns.read(tmp_path).host("n1")
        assert {m.split(": ")[0] for m in state.missing_of(campaign, again)} == gone
        assert {g.step for g in state.state(campaign).gaps} == gone
        again = campaigns.read(tmp_path).host("n1")
        again.note_lost()
        assert "lost" in journal.file.read_text()
        # Later records at the same place in the file do not count for the lost step.
        finish(campaign, "n1", *["settings"] * 4)
        assert {m.split(": ")[0] for m in state.missing_of(campaign, again)} == gone
        lines = len(again.entries())
        again.note_lost()
        assert len(again.entries()) == lines
        finish(campaign, "n1", *gone)
        assert state.state(campaign).whole

    def test_lines_are_read_once(self, tmp_path, monkeypatch):
        journal = Journal(tmp_path / "n1")
        journal.open()
        journal.write(Entry("a", "measured", now(), "n1"))
        reader = Journal(tmp_path / "n1")
        assert len(reader.entries()) == 1
        read = []
        monkeypatch.setattr(reader._log, "_parse", lambda data: read.append(data) or Entry(**data))
        journal.write(Entry("b", "measured", now(), "n1"))
        assert [e.step for e in reader.entries()] == ["a", "b"]
        assert [data["step"] for data in read] == ["b"]


class TestRunHere:
    def test_a_dry_run_shows_the_steps_that_are_left_for_this_host(self, tmp_path, monkeypatch, capsys):
        monkeypatch.setenv("SLURMD_NODENAME", "n9")
        campaign = campaigns.create(planned(tmp_path / "c", "strategy", aligners=["bwa-mem"]))
        first, *others = campaign.steps
        finish(campaign, "n9", first.name)
        finish(campaign, "n1", *(step.name for step in others))
        assert cli.main(["campaign", "run", "strategy", "--campaign", str(campaign.folder), "--dry-run"]) == 0
        shown = capsys.readouterr().out.splitlines()
        assert shown == [shlex.join(["firsttouch", *step.argv]) for step in others]

    def test_the_overview_at_the_end_of_a_job_has_its_lines(self, tmp_path, capsys):
        campaign = campaigns.create(planned(tmp_path / "c", only=["topology"]))
        finish(campaign, "n1", "topology", ended="skipped")
        conclude(campaign, running.HostRun(), JobJudge(load("local"), "c"), collects=True, as_json=False)
        lines = capsys.readouterr().err.splitlines()
        assert "## Skipped" in lines
        assert "- n1 topology: why" in lines

    def test_a_host_of_another_system_is_named_if_no_topology_is_planned(self, tmp_path, capsys):
        argv = ["campaign", "run", "validate", "--system", "amd-opteron", "--step", "bandwidth-1"]
        assert cli.main([*argv, "--campaign", str(tmp_path / "c")]) == 2
        error = capsys.readouterr().err
        assert re.search(r"this host has \d+ .*, amd-opteron has .*: --system names another one", error)
        assert "no step is called" not in error


class TestState:
    def test_every_gap_has_its_reason(self, tmp_path):
        campaign = campaigns.create(planned(tmp_path, only=["topology", "latency-*"]))
        finish(campaign, "n1", "topology")
        finish(campaign, "n1", "latency-0", ended="failed")
        finish(campaign, "n1", "latency-7", ended="began")
        finish(campaign, "n1", "latency-sequential-0", ended="skipped")
        campaign_state = state.state(campaign)
        reasons = {g.step: g.reason for g in campaign_state.gaps}
        assert set(reasons) == {"latency-0", "latency-7", "latency-sequential-7"}
        assert reasons["latency-0"].startswith("failed on n1: why")
        assert reasons["latency-7"].startswith("started on n1")
        assert reasons["latency-sequential-7"].startswith("not started")
        assert [g.step for g in campaign_state.skipped] == ["latency-sequential-0"]

    def test_steps_skipped_for_the_same_reason_are_one_line(self, tmp_path):
        campaign = campaigns.create(planned(tmp_path, only=["latency-*"]))
        finish(campaign, "n1", *(s.name for s in campaign.steps), ended="skipped")
        assert len(campaign.steps) > 2
        assert overview(state.state(campaign)).count(": why") == 1

    @pytest.mark.parametrize("text", ["x\n::error::y", "x\n##[error]y", "x\r- n2: forged", "x\x1b[2J"])
    def test_texts_of_records_forge_no_line_of_the_overview(self, tmp_path, text):
        campaign = campaigns.create(planned(tmp_path, only=["topology"]))
        finish(campaign, "n1", "topology")
        gaps = (state.Gap("n1", "topology", text),)
        verdicts = [HostVerdict("n1", "lab", (), 0, (text,))]
        shown = overview(replace(state.state(campaign), gaps=gaps, skipped=gaps))
        shown += "\n\n" + writing.verdicts_text(campaign, verdicts, [text])
        lines = shown.splitlines()
        assert not [line for line in lines if line.startswith(("::", "##[", "- n2")) or "##[" in line]
        assert "".join(lines).isprintable()

    def test_a_later_failure_does_not_undo_a_finished_step(self, tmp_path):
        campaign = campaigns.create(planned(tmp_path, only=["topology"]))
        finish(campaign, "n1", "topology")
        finish(campaign, "n1", "topology", ended="stopped")
        assert state.state(campaign).whole

    def test_hosts_that_never_came_are_first(self, tmp_path):
        campaign = campaigns.create(planned(tmp_path, only=["topology", "latency-0"]))
        finish(campaign, "n1", "topology")
        note(tmp_path, "12", 1, ["n1"])
        note(tmp_path, "13", 1)  # by the job itself, which was faster
        note(tmp_path, "13", 1, ["n2"])
        campaign_state = state.state(campaign)
        assert [(g.host, g.step) for g in campaign_state.gaps] == [("n2", ""), ("n1", "latency-0")]
        text = overview(campaign_state)
        assert text.index("n2: it did not take part") < text.index("n1 latency-0")

    @pytest.mark.parametrize(
        ("days", "later", "open_hosts"),
        [
            # n2 lacks a step of the first campaign, n3 did not take part; the second one completes both.
            ((1, 2), (("topology", "latency-0"), ("topology", "latency-0")), []),
            ((2, 1), (("topology", "latency-0"), ("topology", "latency-0")), ["n2", "n3"]),
            ((1, 2), (("latency-0",), ("latency-0",)), ["n3"]),
            ((1, 2), (("topology",), ("topology",)), ["n2", "n3"]),
        ],
    )
    def test_a_later_campaign_fills_gaps_of_an_earlier_one(self, tmp_path, days, later, open_hosts):
        stored = []
        for day in days:
            plan = planned(tmp_path / f"c{day}", "validate", only=["topology", "latency-0"])
            stored.append(campaigns.create(replace(plan, created=f"2026-01-0{day}T00:00:00.000+00:00")))
        note(stored[0].folder, "7", 3, ["n1", "n2", "n3"])
        finish(stored[0], "n1", "topology", "latency-0")
        finish(stored[0], "n2", "topology")
        finish(stored[0], "n2", "latency-0", ended="failed")
        for host, steps in zip(("n2", "n3"), later, strict=True):
            finish(stored[1], host, *steps)
        gathered = inputs.gather([tmp_path / f"c{day}" for day in days])
        missing = {host for host, reasons in gathered.missing_of["amd-opteron"].items() if reasons}
        of_second = {host for host, steps in zip(("n2", "n3"), later, strict=True) if len(steps) < 2}
        assert missing == {*open_hosts, *of_second}
        assert all(state.missing_results(gathered.campaigns[0])[host] for host in open_hosts)
        # By itself, the campaign still lacks them.
        alone = inputs.gather([stored[0].folder])
        assert {host for host, reasons in alone.missing_of["amd-opteron"].items() if reasons} == {"n2", "n3"}

    def test_fewer_hosts_than_asked_for(self, tmp_path):
        campaign = campaigns.create(planned(tmp_path, only=["topology"]))
        finish(campaign, "n1", "topology")
        note(tmp_path, "12", 3)
        (gap,) = state.state(campaign).gaps
        assert gap.text.startswith("hosts: 3 were requested, 1 took part")


class TestCollect:
    def test_a_later_report_has_the_new_results(self, tmp_path):
        campaign = campaigns.create(planned(tmp_path, only=["topology", "latency-0"]))
        finish(campaign, "n1", "topology")
        first = writing.collect(campaign).report.resolve()
        finish(campaign, "n1", "latency-0")
        collected = writing.collect(campaign)
        assert collected.state.whole
        assert collected.report.resolve() != first
        assert "missing: " in (first / "index.html").read_text()
        assert "missing: " not in (collected.report / "index.html").read_text()
        assert json.loads((collected.report / "state.json").read_text())["missing"] == []
        assert not [p for p in (tmp_path / "reports").iterdir() if p.name.startswith(".")]

    def test_a_verdict_is_logged_once_however_often_it_is_collected(self, tmp_path, monkeypatch, capsys):
        monkeypatch.setenv("FIRSTTOUCH_VERDICTS", str(tmp_path / "verdicts"))
        campaign = campaigns.create(planned(tmp_path / "c", "validate", only=["topology"]))
        finish(campaign, "n1", "topology")
        for _ in range(2):
            writing.collect(campaign)
        (line,) = verdict_log.read()["n1"]
        assert (line.source, line.time) == ("c", pytest.approx(campaign.host("n1").measured_at(), abs=0.01))
        assert (tmp_path / "verdicts" / "log" / "n1.jsonl").read_text().count("\n") == 1
        # A log that cannot be written does not prevent the report.
        (tmp_path / "verdicts" / "log" / "n1.jsonl").unlink()
        (tmp_path / "verdicts" / "log" / "n1.jsonl").mkdir()
        writing.collect(campaign)
        assert "the verdict of n1 is not logged" in capsys.readouterr().err

    def test_a_clock_that_goes_back_never_removes_the_newest_report(self, tmp_path):
        campaign = campaigns.create(planned(tmp_path, only=["topology"]))
        (tmp_path / "reports" / "2099-01-01T00-00-00.000000").mkdir(parents=True)
        for number in range(writing.KEPT + 2):
            clock = ManualClock(date=1.7e9 - 3600 * number)
            report = writing.collect(campaign, clock=clock).report.resolve()
            assert report.name == f"2023-11-14T{22 - number}-13-20.000000"
            assert (report / "overview.md").exists()
        assert len(list((tmp_path / "reports").iterdir())) == writing.KEPT

    def test_a_campaign_without_results_has_a_report(self, tmp_path):
        campaign = campaigns.create(planned(tmp_path, "strategy", aligners=["bwa-mem"]))
        note(tmp_path, "12", 1, ["n1"])
        collected = writing.collect(campaign)
        assert [(gap.host, gap.step) for gap in collected.state.gaps] == [("n1", "")]
        assert "did not take part" in (collected.report / "index.html").read_text()

    @pytest.mark.parametrize(
        ("defaults", "others", "invalid"),
        [
            # The alignments of each host's default run and of another run; * is an invalid record.
            ("xxxw", "xxxw", [(3, "default"), (3, "other")]),
            ("wxxx", "xxxx", [(0, "default")]),
            ("xxww*w*w*", "xxxxxx", [(host, "default") for host in (2, 3, 4, 5)]),
            ("xw", "xw", [(0, "default"), (0, "other"), (1, "default"), (1, "other")]),
            ("x*w*", "xw", []),
            ("xxw", "xwx", [(2, "default"), (1, "other")]),
        ],
    )
    def test_one_bad_host_makes_no_other_invalid(self, defaults, others, invalid):
        def run(host, scenario, digest, star):
            parameters = {"aligner": "a", "dataset": "d", "scenario": scenario, "common_sha256": digest}
            status = {"status": "invalid", "reason": "pages"} if star else {}
            return Record(
                "placement", "alignment_time", "s", "lower", (1.0,), parameters, host=f"n{host}", **status
            )

        runs = [
            (host, name, run(host, scenario, digest, bool(star)))
            for name, scenario, text in (("default", "1x64-default", defaults), ("other", "8x8-bound", others))
            for host, (digest, star) in enumerate(re.findall(r"(\w)(\*?)", text))
        ]
        checked = state.agree([record for _, _, record in runs])
        differing = [
            (host, name) for (host, name, _), r in zip(runs, checked, strict=True) if "alignments" in r.reason
        ]
        assert sorted(differing) == sorted(invalid)


def test_a_host_whose_records_have_another_name_gets_its_verdict(tmp_path, monkeypatch):
    """Slurm's name of the host is not its hostname, which programs in a container see."""
    monkeypatch.setenv("FIRSTTOUCH_VERDICTS", str(tmp_path / "verdicts"))
    monkeypatch.setenv("SLURMD_NODENAME", "nid001")
    campaign = campaigns.create(planned(tmp_path / "c", "validate", only=["topology"]))
    journal = finish(campaign, "nid001", "topology")
    begin, end = journal.add([record("login7"), record("nid001")])
    journal.write(Entry("topology", "measured", now(), "nid001", begin=begin, end=end))
    runner = running._Runner(campaign, print, ["firsttouch"])
    judge = JobJudge(load(campaign.system), campaign.name, 1)
    runner.decide(judge)
    assert judge.verdict.host == "nid001"
    assert (tmp_path / "verdicts" / "nid001").exists()


@pytest.mark.parametrize(
    ("effort", "busy", "pauses"),
    [
        ("full", [0.0], []),
        ("full", [9.0, 9.0, 0.0], [30, 60]),
        ("full", [9.0] * 6, [30, 60, 120, 240, 480]),
        ("smoke", [9.0] * 3, [1, 2]),
    ],
)
def test_a_busy_host_is_looked_at_again_after_longer_and_longer_pauses(
    tmp_path, monkeypatch, effort, busy, pauses
):
    monkeypatch.setenv("FIRSTTOUCH_EFFORT", effort)
    clock, lines = ManualClock(), []
    campaign = campaigns.create(planned(tmp_path, "validate", only=["topology"]))
    runner = running._Runner(campaign, lines.append, ["firsttouch"], clock=clock)
    looks = iter(Record("topology", "busy_pus", "1", "neither", (pus,)) for pus in busy)
    monkeypatch.setattr(running.kernel_settings, "busy_pus", lambda: next(looks))
    assert runner.is_quiet() == (busy[-1] == 0)
    assert clock.sleeps == pauses
    assert (len(lines), list(looks)) == (len(pauses), [])


def test_a_step_states_the_seconds_that_it_took(tmp_path, monkeypatch):
    clock = ManualClock()
    campaign = campaigns.create(planned(tmp_path, "validate", only=["topology"]))
    runner = running._Runner(campaign, print, ["firsttouch"], clock=clock)
    runner.journal.open()

    def measure(step):
        clock.sleep(4711)
        return "measured", "", [record(runner.host)]

    monkeypatch.setattr(runner, "_measure", measure)
    with runner.progress:
        runner.step(campaign.steps[0])
    assert [entry.seconds for entry in runner.journal.entries()] == [0, 4711]


def aligned(host, step):
    """Return the record of a scenario on a host, on which 8x8-bound is 1.3 times as fast as the others."""
    scenario = step.argv[1]
    name = parse_name(scenario)
    chance = random.Random(f"{host} {step.name}")  # noqa: S311
    base = 10.0 / (1.3 if scenario == "8x8-bound" else 1.0)
    return Record(
        "scaling" if name.instances == 1 else "placement",
        "alignment_time",
        "s",
        "lower",
        tuple(base * chance.lognormvariate(0, 0.01) for _ in range(3)),
        {
            "aligner": "bwa-mem",
            "dataset": "lambda",
            "scenario": scenario,
            "instances": name.instances,
            "threads": name.threads,
            "policy": name.policy.name,
            "reads": 10000,
        },
        host=host,
        system="amd-opteron",
    )


def test_the_report_of_many_hosts_has_their_guideline(tmp_path, monkeypatch):
    monkeypatch.setenv("FIRSTTOUCH_EFFORT", "full")
    campaign = campaigns.create(planned(tmp_path / "c", "strategy", aligners=["bwa-mem"]))
    for host in (f"h{number}" for number in range(8)):
        journal = campaign.host(host)
        journal.open()
        for step in campaign.steps:
            begin, end = journal.add([aligned(host, step)])
            journal.write(Entry(step.name, "measured", now(), host, begin=begin, end=end))
    report = writing.collect(campaign).report
    document = json.loads((report / "summary.json").read_text())
    assert (document["kind"], document["title"]) == ("fleet", "strategy c")
    choice = document["guidelines"][0]["choices"][0]
    assert choice["recommended"] == "8x8-bound"
    assert len(choice["alternatives"]) == len(campaign.steps)
    assert choice["title"].endswith("8 hosts")
    assert not re.search("suspect|undecided", document["line"])
    for name in ("index.html", "summary.md"):
        assert "use 8x8-bound" in (report / name).read_text()
