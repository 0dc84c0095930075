# SPDX-License-Identifier: Apache-2.0
"""Submission with stand-ins for Slurm's commands: the arguments of sbatch, and the files of the campaign."""

import json

import pytest

from firsttouch.errors import BadInput, RunFailed
from firsttouch.fleet import campaigns, slurm, state, submit

pytestmark = pytest.mark.unit


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


def test_an_option_without_its_value_is_refused():
    with pytest.raises(BadInput, match=r"--sbatch: .*expected one argument"):
        submit.collector_options(["--partition"])


def test_one_refused_host_costs_neither_the_collector_nor_its_place(campaign, sbatch):
    submission = submit.submit(campaign, ["n1", "nosuch", "n2"], ["-p", "all"], [], collecting=["--drain"])
    assert (submission.jobs, submission.collector) == (["101", "102"], "103")
    assert submission.refused == {"nosuch": "sbatch: invalid node name specified"}
    collector = sbatch()[-1]
    assert "--partition=all --dependency=afterany:10" in collector
    assert collector.endswith(f"collect.sbatch {campaign.folder} --drain")
    gaps = {gap.host: gap.reason for gap in state.state(campaign).gaps}
    assert gaps["nosuch"] == "it did not take part: sbatch: invalid node name specified"
    assert set(gaps) == {"n1", "n2", "nosuch"}


def test_hosts_that_cannot_start_are_left_out_without_wait(campaign, sbatch, stand_in):
    stand_in("sinfo", "echo 'n1|idle|none'; echo 'n2|drained*|fan of psu 2'")
    submission = submit.submit(campaign, ["n1", "n2"], [], [])
    assert (len(submission.jobs), list(submission.refused)) == (1, ["n2"])
    assert "fan of psu 2" in next(gap.reason for gap in state.state(campaign).gaps if gap.host == "n2")
    assert len(submit.submit(campaign, ["n1", "n2"], [], [], wait=True).jobs) == 2


def test_nobody_is_forgotten_where_submission_is_interrupted(campaign, sbatch, monkeypatch):
    def interrupted(*_argv, **_more):
        raise KeyboardInterrupt

    monkeypatch.setattr(slurm, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        submit.submit(campaign, ["n1", "n2"], [], [])
    assert {gap.host for gap in state.state(campaign).gaps} == {"n1", "n2"}


def test_a_job_that_sbatch_did_not_live_to_name_is_found_by_its_comment(tmp_path, stand_in, monkeypatch):
    monkeypatch.setattr(slurm, "_PATIENCE", 1)
    monkeypatch.setattr(slurm, "_LOOKS", (0,))
    stand_in(
        "sbatch", f'for a; do case "$a" in --comment=*) echo "${{a#*=}}" >{tmp_path}/mark;; esac; done; sleep 9'
    )
    stand_in("squeue", f"echo 41 another; echo 42 $(cat {tmp_path}/mark)")
    assert slurm.submit(["x.sbatch"]) == "42"
    stand_in("squeue", "true")
    with pytest.raises(RunFailed, match="no answer"):
        slurm.submit(["x.sbatch"])


def test_a_waiting_job_has_slurms_reason(stand_in):
    stand_in("sacct", "echo '7|7|PENDING|0:0|None assigned'")
    stand_in("squeue", "echo '7|ReqNodeNotAvail, UnavailableNodes:n3'")
    (ended,) = slurm.accounted(["7"])
    assert ended.text == "job 7 PENDING (it waits: ReqNodeNotAvail, UnavailableNodes:n3)"


def test_submissions_of_before_are_read(campaign):
    file = campaign.folder / "submissions" / "7.named.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"job": "7", "count": 1, "hosts": ["n1"], "time": "2026-01-01T00:00:00+00:00"}))
    assert [gap.host for gap in state.state(campaign).gaps] == ["n1"]
