# SPDX-License-Identifier: Apache-2.0
"""An admin's sequences: submit, collect, drain and read the verdicts, while hosts fail or are busy."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import cluster
from slurm_site import Site

from factories.processes import captured, started
from firsttouch import paths
from firsttouch.host.topology import load

NHC = 'die() { echo "died: ${*:2}"; }; HOSTNAME="$2"; . "$0"; check_firsttouch "$1"'


def _nhc(site: Site, hostname: str) -> str:
    """Return the message of the NHC check on a host with this hostname; empty if the host is healthy."""
    check = paths.ROOT / "slurm" / "nhc" / "firsttouch.nhc"
    env = {"FIRSTTOUCH_VERDICTS": str(site.folder / "verdicts")}
    return captured(["bash", "-c", NHC, check, "3600", hostname], env=env).stdout


def test_hosts_with_a_domain_are_validated_drained_and_unhealthy(site: Site) -> None:
    """Draining affects only failed hosts, only on request, and never a host that another user has drained."""
    host, change = site.slurm.node, ("scontrol", "update")
    argv = ("--hosts", "n[2-5]", "--system", "larger", "--step", "topology", "--campaign", "domain")
    site.submitted("validate", *argv)
    assert site.state("domain").hosts == ("n2", "n3", "n4", "n5")
    assert site.state("domain").whole
    assert site.verdicts() == dict.fromkeys(("n2", "n3", "n4", "n5"), "fail")
    for hostname in ("n4", "n5.cluster.example"):
        assert "pus: 2, 100.0 % below" in _nhc(site, hostname)
    site.slurm.until(lambda: {*site.slurm.states().values()} == {"idle"}, "idle hosts, of which none is drained")

    site.slurm.ask(*change, "nodename=n2", "state=drain", "reason=fan of psu 2")
    site.slurm.ask(*change, "nodename=n3", "state=fail", "reason=to be looked at")
    judged = ("validate", "--system", "larger", site.campaign("domain"), "--drain")
    shown = site.call(*judged, "--dry-run")
    assert shown.returncode == 1
    assert "would run: scontrol update nodename=n4 state=drain 'reason=firsttouch: pus" in shown.stdout
    assert host("n4")["State"] == "IDLE"

    done = site.call(*judged)
    assert done.returncode == 1, done.stderr
    assert "n2 is left alone, because it is DRAIN: fan of psu 2" in done.stdout
    assert "n3 is left alone, because it is FAIL: to be looked at" in done.stdout
    for name in ("n4", "n5"):
        assert host(name)["State"] == "IDLE+DRAIN"
        assert host(name)["Reason"].startswith("firsttouch: pus")
        assert "; domain" in host(name)["Reason"]
    assert host("n2")["Reason"].startswith("fan of psu 2")
    assert host("n3")["Reason"].startswith("to be looked at")
    assert "n4 is drained already" in site.call(*judged).stdout


def test_hosts_that_are_unknown_or_down_are_missed_and_nobody_waits_for_them(site: Site) -> None:
    site.slurm.ask("scontrol", "update", "nodename=n3", "state=drain", "reason=no fan")
    argv = ("--hosts", "n1,nosuch,n3,n2", "--sbatch=-p", "--sbatch=all", "--campaign", "some")
    document = site.submitted("validate", "--system", "sound", "--step", "topology", *argv, status=1)
    assert len(document["jobs"]) == 2
    for job in (*document["jobs"], document["collector"]):
        state = ("COMPLETED", "0:0") if job in document["jobs"] else ("FAILED", "4:0")
        assert site.slurm.ends(job) == {job: state}
    assert set(document["refused"]) == {"nosuch", "n3"}
    assert "no job for nosuch: sbatch: " in document["stderr"]
    done = site.call("campaign", "collect", "some")
    assert done.returncode == 4
    assert "n3: it did not take part: Slurm has it drained: no fan" in done.stdout
    assert "nosuch: it did not take part: sbatch: " in done.stdout
    assert site.verdicts() == {"n1": "pass", "n2": "pass"}
    assert "2 pass" in (site.campaign("some") / "report" / "overview.md").read_text()
    # With --wait the command waits, and prints the reason.
    waiting = site.call(
        "campaign", "submit", "validate", *argv[2:4], "--campaign", "some", "--hosts", "n3", "--wait"
    )
    assert waiting.returncode == 0, waiting.stderr
    site.slurm.until(lambda: "PENDING (it waits: " in str(site.state("some").gaps), "Slurm's reason")
    site.slurm.ask("scontrol", "update", "nodename=n3", "state=resume")


def test_without_references_the_fleets_verdict_reaches_files_nhc_and_drain(shimmed: Site) -> None:
    site = shimmed
    site.rates(n5=0.5)
    # Three repetitions are too few to fail a host, which takes five.
    site.env["FIRSTTOUCH_EFFORT"] = "full"
    argv = ("--system", "plain", "--step", "bandwidth-1", "--campaign", "new", "--hosts", "n[1-5]")
    document = site.submitted("validate", *argv, "--repetitions", "3", "--resubmit", "8", "--drain")
    assert site.verdicts()["n5"] != "pass"
    log = site.campaign("new") / "log" / f"collect-{document['collector']}.out"
    assert "References can be learned from four hosts or more" in log.read_text()
    # The collecting job submits further jobs and another collecting job until every verdict is decided.
    site.slurm.until(lambda: not site.slurm.ask("squeue", "-h").strip(), "the last round")
    assert len(list(log.parent.glob("collect-*.out"))) > 1
    assert site.verdicts() == {f"n{i}": "fail" if i == 5 else "pass" for i in range(1, 6)}
    assert _nhc(site, "n5.cluster.example").startswith("died: ")
    assert "memory of bank 0" in site.slurm.node("n5")["Reason"]
    assert not any("DRAIN" in site.slurm.node(f"n{i}")["State"] for i in range(1, 5))


@contextlib.contextmanager
def _busy(slurm: cluster.Slurm, host: str) -> Iterator[None]:
    """Let a host have the real /proc/stat of this machine, which a loop keeps busy."""
    spaces = Path(f"/proc/{slurm.running[f'slurmd.{host}'].pid}/ns")
    inside = ["nsenter", f"--mount={spaces}/mnt", f"--pid={spaces}/pid_for_children"]
    subprocess.run([*inside, "umount", "/proc/stat"], check=True)
    try:
        with started(["sh", "-c", "while :; do :; done"]):
            yield
    finally:
        subprocess.run([*inside, "mount", "--bind", slurm.folder / f"stat.{host}", "/proc/stat"], check=True)


def test_a_busy_host_is_neither_failed_nor_drained(shimmed: Site) -> None:
    site = shimmed
    site.rates(n2=0.5)
    argv = ("--nodelist=n2", "slurm/validate.sbatch", "--system", "rated", "--step", "bandwidth-1", "--drain")
    argv += ("--no-collect",)
    with _busy(site.slurm, "n2"):
        job = site.sbatch(*argv, "--campaign", "busy")
        assert site.slurm.ends(job)[job][0] == "FAILED", site.slurm.output(job)
    assert "PUs are busy with other programs: looking again" in site.slurm.output(job)
    assert site.verdicts()["n2"] == "invalid"
    assert "DRAIN" not in site.slurm.node("n2")["State"]
    # Once idle, it is measured again, and is as slow.
    job = site.sbatch(*argv, "--campaign", "busy")
    assert site.slurm.ends(job)[job] == ("FAILED", "1:0"), site.slurm.output(job)
    assert "measuring undecided steps again: bandwidth-1" in site.slurm.output(job)
    assert site.verdicts()["n2"] == "fail"
    assert "DRAIN" in site.slurm.node("n2")["State"]


def test_job_and_command_agree_on_a_host_in_a_reservation_which_the_job_drains(site: Site) -> None:
    reserve = ("reservation=burnin", "nodes=n4", "users=root", "starttime=now", "duration=10")
    site.slurm.ask("scontrol", "create", *reserve)
    trial = ("slurm/validate.sbatch", "--system=larger", "--step=topology", "--campaign=burnin", "--drain")
    try:
        job = site.sbatch("--reservation=burnin", "--nodelist=n4", *trial)
        assert site.slurm.ends(job)[job] == ("FAILED", "1:0")
        output = site.slurm.output(job)
        # A fact read from the host needs one repetition.
        assert "measuring undecided steps again" not in output
        pus = len(load().allowed_pus)
        cause = "(possible cause: wrong cpuset: .*; )?"  # on a host that may not use all of its PUs
        assert re.search(f"^verdict n4 fail: pus: {pus}, [^;]*; {cause}.*0 of 1 judged metrics pass", output, re.M)
        assert "n4 is drained: scontrol update nodename=n4" in output
        assert "DRAIN" in site.slurm.node("n4")["State"]
        assert site.slurm.node("n4")["Reason"].startswith("firsttouch: pus")
        done = site.call("validate", "--system", "larger", site.campaign("burnin"), "--json")
        assert done.returncode == 1
        document = json.loads(done.stdout)
        assert (document["verdict"], document["status"]) == ("fail", 1)
        assert document["hosts"][0]["line"] in output
        assert len(document["hosts"][0]["findings"][0]["passes"]) == 1
        site.slurm.ask("scontrol", "update", "nodename=n4", "state=resume")
        # Slurm shows a reservation in the states of its hosts some seconds later.
        site.slurm.until(lambda: "RESERVED" in site.slurm.node("n4")["State"], "n4 to be reserved")
        judged = ("validate", "--system", "larger", site.campaign("burnin"), "--drain", "--dry-run")
        assert "n4 is left alone, because it is " in site.call(*judged).stdout
        assert "would run: scontrol update nodename=n4" in site.call(*judged, "--reservation", "burnin").stdout
    finally:
        site.slurm.until(lambda: not site.slurm.ask("squeue", "-h").strip(), "the end of all jobs")
        site.slurm.ask("scontrol", "delete", "reservation=burnin")


def test_a_checkout_that_is_none_or_was_moved_is_named(site: Site, tmp_path: Path) -> None:
    job = site.sbatch(f"--chdir={tmp_path}", f"--export=ALL,FIRSTTOUCH_ROOT={tmp_path}", "slurm/validate.sbatch")
    assert site.slurm.ends(job) == {job: ("FAILED", "3:0")}
    output = site.slurm.output(job)
    assert all(name in output for name in ("FIRSTTOUCH_ROOT", "FIRSTTOUCH_OUT", "FIRSTTOUCH_DATA"))
    done = site.call("campaign", "collect", f"validate-{job}")
    assert done.returncode == 2
    assert f"job {job} FAILED with 3:0" in done.stderr
