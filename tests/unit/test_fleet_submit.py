# SPDX-License-Identifier: Apache-2.0
"""Submission with stand-ins for Slurm's commands: the arguments of sbatch, and the files of the campaign."""

import json
import shlex

import pytest

from factories.clocks import ManualClock
from factories.systems import system_file
from firsttouch.campaign import campaigns, journal, run, state, submit
from firsttouch.errors import BadInput, RunFailed, TimedOut
from firsttouch.execution import slurm
from firsttouch.systems import definition


@pytest.fixture
def campaign(tmp_path, monkeypatch):
    monkeypatch.setenv("FIRSTTOUCH_EFFORT", "smoke")
    fields = {"system": "amd-opteron", "dataset": "lambda", "aligners": (), "repetitions": 1}
    return campaigns.create(campaigns.plan("validate", tmp_path / "c", **fields, only=["topology"]))


@pytest.fixture
def sbatch(tmp_path, stand_in):
    """Replace sbatch by a script that refuses the host `nosuch`, and return a function that returns its calls."""
    calls, count = tmp_path / "calls", tmp_path / "count"
    count.write_text("100")
    for tool in ("sinfo", "squeue", "sacct"):
        stand_in(tool, "true")
    stand_in(
        "sbatch",
        f"""echo "$*" >>{calls}
case "$*" in *=nosuch*) echo "invalid node name specified" >&2; exit 1;; esac
exec 9>{count}.lock; flock 9; n=$(($(cat {count}) + 1)); echo $n >{count}; echo $n""",
    )
    return lambda: calls.read_text().splitlines()


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        (["-p", "all"], ["--partition=all"]),
        (
            ["-pall", "-Aproj", "-qhigh", "-Mx"],
            ["--partition=all", "--account=proj", "--qos=high", "--clusters=x"],
        ),
        (["--partition", "all", "--time=1:00"], ["--partition=all"]),
        (["--partition=all", "--reservation=r", "-n1"], ["--partition=all", "--reservation=r"]),
        (["-p all", "--account  proj"], ["--partition=all", "--account=proj"]),
        (["--exclusive", "--time", "5"], []),
    ],
)
def test_the_collector_gets_what_says_where_it_may_run(options, kept):
    assert submit.collector_options(submit.split_options(options)) == kept


@pytest.mark.parametrize("wait", [True, False])
def test_a_wrong_option_is_refused_before_anything_is_submitted(campaign, sbatch, tmp_path, wait):
    with pytest.raises(BadInput):
        submit.Again(options=["--partition"]).submit(campaign, ["n1"], wait=wait)
    assert not (tmp_path / "calls").exists()
    assert not (campaign.folder / "submissions").exists()


def test_one_refused_host_costs_neither_the_collector_nor_its_place(campaign, sbatch):
    again = submit.Again(options=["-p", "all"], drains=True)
    submission = again.submit(campaign, ["n1", "nosuch", "n2"])
    assert (submission.jobs, submission.collector) == (["101", "102"], "103")
    assert submission.refused == {"nosuch": "sbatch: invalid node name specified"}
    collector = sbatch()[-1]
    assert "--partition=all --dependency=afterany:10" in collector
    assert collector.endswith(f"collect.sbatch {campaign.folder} --drain")
    gaps = {gap.host: gap.reason for gap in state.state(campaign).gaps}
    assert gaps["nosuch"] == "it did not take part: sbatch: invalid node name specified"
    assert set(gaps) == {"n1", "n2", "nosuch"}


@pytest.fixture
def placed(tmp_path, monkeypatch):
    """A system whose hosts are in a separate partition."""
    monkeypatch.setenv("FIRSTTOUCH_SYSTEMS", str(tmp_path))
    monkeypatch.setenv("FIRSTTOUCH_EFFORT", "smoke")
    partitions = [{"name": "here", "scheduler": "local"}]
    partitions += [{"name": "all", "scheduler": "slurm", "access": ["--exclusive", "-p rome", "--account=ops"]}]
    return definition.load(system_file(tmp_path, "rome", hostnames=["cn[0-9]+$"], partitions=partitions))


@pytest.mark.parametrize(("options", "partition"), [([], "rome"), (["--partition=other"], "other")])
def test_jobs_go_where_the_system_s_file_says(placed, tmp_path, sbatch, options, partition):
    fields = {"system": "rome", "dataset": "lambda", "aligners": (), "repetitions": 1, "only": ["topology"]}
    campaign = campaigns.create(campaigns.plan("validate", tmp_path / "placed", **fields))
    submit.Again(options=options).submit(campaign, ["cn1"])
    submit.submit_alone(campaign, "cn1", options)
    job, collector, alone = (line.split() for line in sbatch())
    for words in (job, alone):
        given = words[: words.index(next(word for word in words if word.endswith("validate.sbatch")))]
        assert {"--exclusive", "--account=ops"} <= set(given)
        # Of two partitions, sbatch takes the last one.
        at = given.index("-p")
        assert [*given[at + 1 : at + 2], *(w.partition("=")[2] for w in given if w.startswith("--partition="))][
            -1
        ] == partition
    assert f"--partition={partition}" in collector


def test_what_contradicts_the_system_s_file_is_said(placed, monkeypatch, tmp_path, run_cli, sbatch):
    monkeypatch.setenv("FIRSTTOUCH_OUT", str(tmp_path / "out"))
    monkeypatch.setenv("SLURMD_NODENAME", "n7")
    job = slurm.SlurmJob("7", "7", 0, 1, 1)
    monkeypatch.setenv("SLURM_JOB_PARTITION", "batch")
    sentence = "n7 does not fit `hostnames` of the system rome (cn[0-9]+$): are these hosts of another kind?"
    partition = "this job is in the partition batch; the hosts of the system rome are in rome"
    assert list(run.contradictions(placed, job)) == [sentence, partition]
    monkeypatch.setenv("SLURM_JOB_PARTITION", "rome")
    monkeypatch.setenv("SLURMD_NODENAME", "cn7")
    assert list(run.contradictions(placed, job)) == []
    submitted = run_cli("campaign", "submit", "validate", "--system", "rome", "--hosts", "cn1,n[1-6]")
    assert submitted.status == 0
    assert "n1, n2, n3, n4 and 2 more do not fit `hostnames` of the system rome" in submitted.err
    due = run_cli("fleet", "due", "--system", "rome", "--hosts", "n7")
    assert sentence in due.err


def test_hosts_that_cannot_start_are_left_out_without_wait(campaign, sbatch, stand_in):
    stand_in("sinfo", "echo 'n1|idle|none'; echo 'n2|drained*|fan of psu 2'")
    submission = submit.Again().submit(campaign, ["n1", "n2"])
    assert (len(submission.jobs), list(submission.refused)) == (1, ["n2"])
    assert "fan of psu 2" in next(gap.reason for gap in state.state(campaign).gaps if gap.host == "n2")
    assert len(submit.Again().submit(campaign, ["n1", "n2"], wait=True).jobs) == 2


RESERVATIONS = """\
echo 'ReservationName=maint EndTime=2026-11-30T18:00:00 Nodes=n[2-4] Users=root State=ACTIVE'
echo 'ReservationName=later EndTime=2026-12-30T18:00:00 Nodes=n1 Users=root State=INACTIVE'
"""


def test_reserved_hosts_are_named_in_one_line_and_nothing_waits_for_them(
    sbatch, stand_in, tmp_path, monkeypatch, run_cli
):
    monkeypatch.setenv("FIRSTTOUCH_OUT", str(tmp_path / "out"))
    monkeypatch.setenv("FIRSTTOUCH_EFFORT", "smoke")
    stand_in("scontrol", RESERVATIONS)
    stand_in("sinfo", "echo 'n1|idle|none'; echo 'n4|reserved|none'; echo 'n5|down*|fan of psu 2'")
    argv = ["campaign", "submit", "validate", "--system", "amd-opteron", "--hosts", "n[1-5]", "--step", "topology"]
    lines = [
        "n[2-4]: Slurm has it reserved (maint) until 2026-11-30T18:00:00; --wait submits a job that waits for it",
        "n5: Slurm has it down: fan of psu 2; --wait submits a job that waits for it",
    ]
    shown = run_cli(*argv, "--dry-run")
    assert shown.err.splitlines()[1:] == [f"firsttouch: no job for {line}" for line in lines]
    done = run_cli(*argv)
    assert done.status == 1
    assert done.err.splitlines()[1:] == [f"firsttouch: error: no job for {line}" for line in lines]
    job, collector = sbatch()
    assert "--nodelist=n1" in job
    assert "--dependency=afterany:101 " in collector
    # Who may use the reservation names it.
    assert run_cli(*argv, "--sbatch=--reservation=maint").err.count("no job for") == 1
    monkeypatch.setenv("SBATCH_RESERVATION", "other,maint")
    assert run_cli(*argv).err.count("no job for") == 1
    assert run_cli(*argv, "--wait").status == 0


#: What Slurm 22.05 prints without a configuration.
UNREACHABLE = """\
sinfo: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host
sinfo: error: fetch_config: DNS SRV lookup failed
sinfo: error: _establish_config_source: failed to fetch config
sinfo: fatal: Could not establish a configuration source
"""


def test_nothing_is_submitted_or_left_where_slurm_does_not_answer(
    sbatch, stand_in, tmp_path, monkeypatch, run_cli
):
    monkeypatch.setenv("FIRSTTOUCH_OUT", str(tmp_path / "out"))
    stand_in("sinfo", f"printf '{UNREACHABLE}' >&2; exit 1")
    done = run_cli("campaign", "submit", "validate", "--system", "amd-opteron", "--hosts", "n[1-65537]")
    why = "Slurm cannot be reached from this host: Could not establish a configuration source"
    assert (done.status, done.err) == (1, f"firsttouch: error: sinfo: {why}\n")
    assert not (tmp_path / "calls").exists()
    assert not (tmp_path / "out").exists()


def test_a_dry_run_shows_what_is_submitted_and_submits_nothing(sbatch, stand_in, tmp_path, monkeypatch, run_cli):
    monkeypatch.setenv("FIRSTTOUCH_OUT", str(tmp_path / "out"))
    monkeypatch.setenv("FIRSTTOUCH_EFFORT", "smoke")
    stand_in("sinfo", "echo 'n1|idle|none'; echo 'n2|drained*|fan of psu 2'")
    argv = ["campaign", "submit", "validate", "--system", "amd-opteron", "--hosts", "n[1-2]", "--campaign", "c"]
    argv += ["--step", "topology", "--resubmit", "8", "--drain"]
    text, document = (run_cli(*argv, "--dry-run", *more) for more in ([], ["--json"]))
    assert (text.status, document.status) == (0, 0)
    assert not (tmp_path / "calls").exists()
    assert not (tmp_path / "out").exists()
    shown = [shlex.split(line) for line in text.out.splitlines()]
    assert json.loads(document.out)["commands"] == shown
    run_cli(*argv)  # the host without a job makes it fail
    # The real ones have a comment by which the job is found, and the numbers of jobs.
    called = [[w for w in line.split() if w != "--parsable" and "--comment" not in w] for line in sbatch()]
    assert [" ".join(words[1:]) for words in shown] == [
        " ".join(words).replace("afterany:101", "afterany:JOBS") for words in called
    ]


def test_the_hosts_of_a_large_cluster_are_asked_for_as_ranges(stand_in, tmp_path):
    stand_in("sinfo", f'echo "$*" >{tmp_path}/words; echo "n7|down|fan"')
    hosts = [f"n{number}" for number in range(1, 65_538)]
    assert slurm.unavailable(hosts) == {"n7": "down: fan"}
    assert "-n n[1-65537] -o" in (tmp_path / "words").read_text()


def test_nobody_is_forgotten_where_submission_is_interrupted(campaign, sbatch, monkeypatch):
    def interrupted(*_argv, **_more):
        raise KeyboardInterrupt

    monkeypatch.setattr(slurm, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        submit.Again().submit(campaign, ["n1", "n2"])
    assert {gap.host for gap in state.state(campaign).gaps} == {"n1", "n2"}


def test_a_job_that_sbatch_did_not_live_to_name_is_found_by_its_comment(tmp_path, stand_in, monkeypatch):
    run_tool = slurm.run_tool

    def too_late(argv, **options):
        """Run a command; sbatch does its work and ends too late."""
        done = run_tool(argv, **options)
        if argv[0] == "sbatch":
            raise TimedOut("sbatch: no answer in time")
        return done

    monkeypatch.setattr(slurm, "run_tool", too_late)
    stand_in("sbatch", f'for a; do case "$a" in --comment=*) echo "${{a#*=}}" >{tmp_path}/mark;; esac; done')
    stand_in("squeue", f"echo 41 another; echo 42 $(cat {tmp_path}/mark)")
    clock = ManualClock()
    assert slurm.submit(["x.sbatch"], clock=clock) == "42"
    assert clock.sleeps == [0]
    stand_in("squeue", "true")
    clock = ManualClock()
    with pytest.raises(RunFailed, match="no answer"):
        slurm.submit(["x.sbatch"], clock=clock)
    assert clock.sleeps == [0, 5, 20]


def test_a_reservation_is_deleted_once_its_jobs_have_ended(stand_in, tmp_path):
    calls = tmp_path / "calls"
    refuse = "echo 'scontrol: error: the reservation is in use' >&2; exit 1"
    stand_in("scontrol", f"echo x >>{calls}; [ $(wc -l <{calls}) -gt 3 ] || {{ {refuse}; }}")
    clock = ManualClock()
    slurm.unreserve("firsttouch-n1", clock=clock)
    assert clock.sleeps == [0.2, 0.5, 1]
    stand_in("scontrol", f"echo x >>{calls}; {refuse}")
    with pytest.raises(RunFailed, match="in use"):
        slurm.unreserve("firsttouch-n1", clock=clock)
    assert len(clock.sleeps) == 8
    stand_in("scontrol", "echo 'scontrol: error: Invalid user id' >&2; exit 1")
    with pytest.raises(RunFailed, match="Invalid user"):
        slurm.unreserve("firsttouch-n1", clock=clock)
    assert len(clock.sleeps) == 8


def test_a_waiting_job_has_slurms_reason(stand_in):
    stand_in("sacct", "echo '7|7|PENDING|0:0|None assigned'")
    stand_in("squeue", "echo '7|ReqNodeNotAvail, UnavailableNodes:n3'")
    (ended,) = slurm.job_tries(["7"])
    assert ended.text == "job 7 PENDING (it waits: ReqNodeNotAvail, UnavailableNodes:n3)"


@pytest.mark.parametrize(
    ("line", "state", "reason"),
    [
        (
            "State=IDLE+DRAIN Reason=ticket 7: State=IDLE after reboot [root@2026-01-01T00:00:00]",
            "IDLE+DRAIN",
            None,
        ),
        ("State=IDLE+DRAIN Reason=ticket 7: State=IDLE after reboot", "IDLE+DRAIN", None),
        (
            "State=DOWN* Comment=State=IDLE NodeName=n2 Reason=fan [ops@now] Extra=State=IDLE",
            "DOWN*",
            "fan [ops@now]",
        ),
        ("State=IDLE OS=Linux 6.1.0 #1 SMP Weight=1", "IDLE", ""),
    ],
)
def test_what_people_write_changes_no_fact_about_a_host(stand_in, line, state, reason):
    stand_in("scontrol", f"echo 'NodeName=n1 Arch=x86_64 {line}'")
    expected = line.partition("Reason=")[2] if reason is None else reason
    assert slurm.node("n1") == slurm.Node.from_state("n1", state, expected)


@pytest.fixture
def named(monkeypatch, tmp_path):
    """A campaign called c in the folder for results, with jobs 101 and 102 for n1 and n2."""
    monkeypatch.setenv("FIRSTTOUCH_EFFORT", "smoke")
    monkeypatch.setenv("FIRSTTOUCH_OUT", str(tmp_path))
    fields = {"system": "amd-opteron", "dataset": "lambda", "aligners": (), "repetitions": 1}
    folder = tmp_path / "campaigns" / "c"
    campaign = campaigns.create(campaigns.plan("validate", folder, **fields, only=["topology"]))
    for job, host in (("101", "n1"), ("102", "n2")):
        journal.note(folder, job, 1, [host])
    return campaign


def test_campaigns_are_listed_with_an_error_for_an_unreadable_one(named, run_cli):
    status, out, err = run_cli("campaign", "list", "--json")
    assert (status, err) == (0, "")
    (row,) = json.loads(out)["campaigns"]
    assert row == {"name": "c", "kind": "validate", "system": "amd-opteron", "created": named.created, "hosts": []}
    (named.folder.parent / "broken").mkdir()
    (named.folder.parent / "broken" / "campaign.json").write_text("{")
    status, out, err = run_cli("campaign", "list")
    assert (status, "amd-opteron" in out, err.count("\n")) == (2, True, 1)
    assert "broken/campaign.json: not a campaign" in err


def test_the_status_has_the_jobs_and_what_is_missing(named, run_cli, stand_in):
    stand_in("sacct", "true")
    stand_in("squeue", "echo 101 RUNNING 0; echo 102 COMPLETED 0")
    status, out, err = run_cli("campaign", "status", "c")
    assert (status, err) == (1, "")
    assert "0 of 0 steps are finished" in out
    assert "- n2: it did not take part: job 102" in out
    assert out.endswith("\njobs: 1 running\n")
    document = json.loads(run_cli("campaign", "status", "c", "--json")[1])
    assert document["jobs"] == {"101": "RUNNING"}
    assert not list(named.folder.glob("report*"))
    stand_in("squeue", "exit 1")
    assert "does not answer" in run_cli("campaign", "status", "c")[1]


def test_cancel_ends_the_jobs_that_wait_or_run_and_no_others(named, run_cli, stand_in, tmp_path):
    stand_in("squeue", "echo 101 RUNNING 0; echo 102 PENDING 0; echo 103 COMPLETED 0")
    stand_in("scancel", f'echo "$*" >>{tmp_path}/cancelled')
    assert run_cli("campaign", "cancel", "c", "--dry-run") == (0, "scancel 101 102\n", "")
    assert not (tmp_path / "cancelled").exists()
    status, out, _ = run_cli("campaign", "cancel", "c", "--json")
    assert (status, json.loads(out)["cancelled"]) == (0, ["101", "102"])
    assert (tmp_path / "cancelled").read_text() == "101 102\n"
    stand_in("squeue", "true")
    assert run_cli("campaign", "cancel", "c") == (0, "no job of c waits or runs\n", "")
    stand_in("squeue", "exit 1")
    assert run_cli("campaign", "cancel", "c")[0] == 1
    assert (tmp_path / "cancelled").read_text() == "101 102\n"


def test_an_unknown_campaign_is_answered_with_those_there_are(named, run_cli):
    for action in ("status", "cancel", "collect"):
        status, _, err = run_cli("campaign", action, "d")
        assert (status, err) == (2, "firsttouch: error: no campaign 'd': there are c\n")
