# SPDX-License-Identifier: Apache-2.0
"""Finished steps are kept, missing steps are listed with the reason, and a new submission runs only these."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

from slurm_site import SMALL, Site

from firsttouch.records import schema

#: Two steps; tests hold the second, a measurement.
STEPS = ("--step", "topology", "--step", "latency-0")


def _missing(site: Site, name: str) -> dict[str, str]:
    return {gap.step: gap.reason for gap in site.state(name).gaps}


def _resumed(site: Site, name: str, job: str) -> None:
    """Check that *job* ran exactly the missing steps of a campaign."""
    assert site.slurm.ends(job) == {job: ("COMPLETED", "0:0")}, site.slurm.output(job)
    campaign = site.state(name)
    assert campaign.whole
    lines = [line for host in campaign.hosts for line in site.lines(name, host)]
    assert [line["state"] for line in lines if line["step"] == "topology"] == ["began", "measured"]
    assert len(schema.collect([site.campaign(name) / "hosts"])) > 3


def test_died_cancelled_timed_out_and_requeued(shimmed: Site) -> None:
    """Three failures on three hosts at once, because Slurm notices two of them late."""
    site = shimmed
    fates = {"cancelled": "n1", "late": "n2", "died": "n3"}
    site.hold(*fates.values())
    jobs = {}
    for fate, host in fates.items():
        options = (f"--nodelist={host}", "--no-requeue", "slurm/characterize.sbatch", "--campaign", fate, *STEPS)
        jobs[fate] = site.sbatch(*options)
    for fate, host in fates.items():
        site.begun(fate, host, "latency-0")
    site.slurm.ask("scancel", jobs["cancelled"])
    # Slurm checks time limits every half minute.
    site.slurm.ask("scontrol", "update", f"jobid={jobs['late']}", "timelimit=0")
    site.slurm.kill("n3")
    again = {"cancelled": _again(site, "n1", "cancelled", jobs)}

    assert site.slurm.ends(jobs["died"])[jobs["died"]][0] == "NODE_FAIL"
    lost = _missing(site, "died")
    assert set(lost) == {"latency-0"}
    assert "NODE_FAIL (its host died)" in lost["latency-0"]
    done = site.call("campaign", "collect", "died")
    assert done.returncode == 1
    assert done.stdout.index("## Missing") < done.stdout.index("NODE_FAIL")
    page = (site.campaign("died") / "report" / "index.html").read_text()
    assert "its host died" in page
    site.release("n3")
    site.slurm.revive("n3")
    again["died"] = _submitted_again(site, "n3", "died")

    assert site.slurm.ends(jobs["late"])[jobs["late"]][0] == "TIMEOUT"
    assert "TIMEOUT (its time limit)" in _missing(site, "late")["latency-0"]
    assert set(_missing(site, "late")) == {"latency-0"}
    site.release("n2")
    again["late"] = _submitted_again(site, "n2", "late")
    for name, job in again.items():
        _resumed(site, name, job)


def test_the_living_hosts_of_a_job_are_judged_when_one_dies(shimmed: Site) -> None:
    site = shimmed
    site.hold("n3")
    steps = ("--step=topology", "--step=bandwidth-1")
    nodes = ("-N3", "--nodelist=n[1-3]", "--no-requeue")
    job = site.sbatch(*nodes, "slurm/validate.sbatch", "--system", "sound", *steps)
    name = f"validate-{job}"
    site.begun(name, "n3", "bandwidth-1")
    site.slurm.kill("n3")
    state, code = site.slurm.ends(job)[job]
    output = site.slurm.output(job)
    assert (state, code) == ("FAILED", "4:0"), output
    verdicts = dict(re.findall(r"^verdict (\S+) (\w+: .*)", output, re.MULTILINE))
    assert verdicts["n3"].startswith("suspect: ")
    assert "missing: it stopped answering during bandwidth-1" in verdicts["n3"]
    assert all(not verdicts[host].startswith(("suspect", "fail")) for host in ("n1", "n2"))
    assert {e["state"] for e in site.lines(name, "n1") if e["step"] == "bandwidth-1"} == {"began", "measured"}
    site.collected(job, state="FAILED")
    assert site.verdicts()["n3"] == "suspect"
    overview = (site.campaign(name) / "report" / "overview.md").read_text()
    assert "- n3 bandwidth-1: it stopped answering during bandwidth-1: " in overview


def _again(site: Site, host: str, name: str, jobs: dict[str, str]) -> str:
    """Check the reason of a cancelled job, and submit its campaign again."""
    assert site.slurm.ends(jobs[name])[jobs[name]][0] == "CANCELLED"
    lost = _missing(site, name)
    assert set(lost) == {"latency-0"}
    assert "CANCELLED (a user cancelled it)" in lost["latency-0"]
    site.release(host)
    return _submitted_again(site, host, name)


def _submitted_again(site: Site, host: str, name: str) -> str:
    """Submit the missing steps of a campaign, without a report, and return the job."""
    return site.sbatch(f"--nodelist={host}", "slurm/characterize.sbatch", "--campaign", name, "--no-collect")


def test_a_requeued_job_goes_on_where_it_was(shimmed: Site) -> None:
    site = shimmed
    site.hold("n1")
    job = site.sbatch("--nodelist=n1", "slurm/characterize.sbatch", *STEPS, "--no-collect")
    name = f"characterize-{job}"
    site.begun(name, "n1", "latency-0")
    site.slurm.ask("scontrol", "requeue", job)
    site.slurm.until(lambda: site.job_state(job) == "PENDING", "the queue")
    assert "latency-0" in _missing(site, name)
    site.release("n1")
    # A host refuses the credential of a job that is requeued and starts within the same second. Slurm waits two
    # minutes instead.
    site.slurm.until(lambda: site.slurm.node("n1")["State"] == "IDLE", "the end of the first run")
    time.sleep(1.1)
    site.slurm.ask("scontrol", "update", f"jobid={job}", "starttime=now")
    _resumed(site, name, job)


def test_two_campaigns_at_once_do_not_touch_each_other(shimmed: Site) -> None:
    site = shimmed
    jobs = [site.sbatch("slurm/characterize.sbatch", "--step", "bandwidth-1", "--no-collect") for _ in "ab"]
    for job in jobs:
        assert site.slurm.ends(job) == {job: ("COMPLETED", "0:0")}, site.slurm.output(job)
        campaign = site.state(f"characterize-{job}")
        assert campaign.whole
        assert {line["job"] for line in site.lines(f"characterize-{job}", campaign.hosts[0])} == {job}


def test_a_full_file_system_is_the_reason_and_what_was_finished_stays(shimmed: Site) -> None:
    site = shimmed
    small = site.slurm.folder.parent / "small"
    folder = small / "campaign"
    # The records of the latency curve need more space than there is.
    (small / "filler").write_bytes(b"\0" * (int(SMALL[:-1]) * 1024 - 44 * 1024))
    job = site.sbatch("slurm/characterize.sbatch", "--campaign", folder, *STEPS, "--repetitions", 1)
    state, code = site.slurm.ends(job)[job]
    assert (state, code) == ("FAILED", "3:0"), site.slurm.output(job)
    assert f"{folder}: its file system is full; finished results are kept" in site.slurm.output(job)
    done = site.call("campaign", "collect", folder, "--json")
    (small / "filler").unlink()
    done = site.call("campaign", "collect", folder)
    assert "latency-0: failed on" in done.stdout
    assert "the file system of the results is full" in done.stdout
    assert {r.check for r in schema.collect([folder / "hosts"])} == {"topology", "configuration"}
    again = site.sbatch("slurm/characterize.sbatch", "--campaign", folder, "--no-collect")
    assert site.slurm.ends(again) == {again: ("COMPLETED", "0:0")}, site.slurm.output(again)


def test_ctrl_c_is_a_reason_and_the_campaign_goes_on(shimmed: Site) -> None:
    site = shimmed
    # A background process ignores the signal, and so would its children.
    argv = ["env", "--default-signal=INT", sys.executable, "-m", "firsttouch"]
    argv += ["campaign", "run", "characterize", "--campaign", "mine"]
    host = os.uname().nodename
    site.hold(host)
    env = {**site.slurm.env, **site.env}
    process = subprocess.Popen([*argv, *STEPS], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    site.begun("mine", host, "latency-0")
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 130
    site.release(host)
    assert "it was stopped (Ctrl-C" in _missing(site, "mine")["latency-0"]
    done = site.call("campaign", "run", "characterize", "--campaign", "mine", "--no-collect")
    assert done.returncode == 0, done.stderr
    assert "topology" not in done.stderr.replace("system", "")
    assert site.state("mine").whole
