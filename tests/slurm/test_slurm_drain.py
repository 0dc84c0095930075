# SPDX-License-Identifier: Apache-2.0
"""Draining affects only failed hosts, only on request, and never a host that another user has drained."""

from __future__ import annotations

from slurm_site import Site

TRIAL = ("--system", "larger", "--step", "topology", "--campaign", "trial")


def test_drain_only_when_asked_and_never_somebody_elses(site: Site) -> None:
    host = site.slurm.node
    job = site.sbatch("-N3", "slurm/validate.sbatch", *TRIAL)
    assert site.slurm.ends(job)[job][0] == "FAILED"
    assert not any("DRAIN" in host(name)["State"] for name in site.slurm.names)
    site.collected(job, state="FAILED")
    site.slurm.until(lambda: {host(name)["State"] for name in site.slurm.names} == {"IDLE"}, "idle hosts")

    site.slurm.ask("scontrol", "update", "nodename=n2", "state=drain", "reason=fan of psu 2")
    site.slurm.ask("scontrol", "update", "nodename=n3", "state=fail", "reason=to be looked at")
    judged = ("validate", "--system", "larger", site.campaign("trial"), "--drain")
    shown = site.call(*judged, "--dry-run")
    assert shown.returncode == 1
    assert "would run: scontrol update nodename=n1 state=drain 'reason=firsttouch: pus" in shown.stdout
    assert host("n1")["State"] == "IDLE"

    done = site.call(*judged)
    assert done.returncode == 1, done.stderr
    assert "n2 is left alone, because it is DRAIN: fan of psu 2" in done.stdout
    assert "n3 is left alone, because it is FAIL: to be looked at" in done.stdout
    assert host("n1")["State"] == "IDLE+DRAIN"
    assert host("n1")["Reason"].startswith("firsttouch: pus")
    assert host("n2")["Reason"].startswith("fan of psu 2")
    assert host("n3")["Reason"].startswith("to be looked at")
    assert "n1 is drained already" in site.call(*judged).stdout
    site.slurm.ask("scontrol", "update", "nodename=n3", "state=resume")
