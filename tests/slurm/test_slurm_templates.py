# SPDX-License-Identifier: Apache-2.0
"""The templates, submitted as they are."""

from __future__ import annotations

import json

import pytest
from slurm_site import Site

from firsttouch import records

pytestmark = pytest.mark.slurm


def test_characterize_measures_the_four_aspects_of_one_host(site: Site) -> None:
    job = site.sbatch("slurm/characterize.sbatch")
    assert site.slurm.ends(job) == {job: ("COMPLETED", "0:0")}, site.slurm.said(job)
    campaign = site.campaign(f"characterize-{job}")
    assert f"results: {campaign}" in site.slurm.said(job)
    found = records.collect([campaign / "hosts"])
    assert {r.check for r in found} == {"topology", "latency", "bandwidth", "contention"}
    assert {(r.host, r.partition, r.status) for r in found} == {("n1", "all", "valid")}
    assert "<svg" in (campaign / "report" / "index.html").read_text()
    assert site.state(campaign.name).whole


def test_validate_judges_every_host_inside_one_job(site: Site) -> None:
    job = site.sbatch("-N6", "slurm/validate.sbatch", "--system", "sound", "--step", "topology")
    assert site.slurm.ends(job) == {job: ("COMPLETED", "0:0")}, site.slurm.said(job)
    said = site.slurm.said(job)
    for host in site.slurm.names:
        assert f"verdict {host} pass: 1 of 1 judged metrics pass" in said
        assert (site.folder / "verdicts" / host).read_text().startswith("pass ")
    site.collected(job)
    campaign = site.campaign(f"validate-{job}")
    assert "## Verdicts: 6 pass" in (campaign / "report" / "overview.md").read_text()
    assert site.call("validate", "--system", "sound", campaign).returncode == 0


def test_an_array_of_validate_collects_once_when_all_have_ended(site: Site) -> None:
    job = site.sbatch("--array=1-3", "slurm/validate.sbatch", "--system", "sound", "--step", "topology")
    assert set(site.slurm.ends(job).values()) == {("COMPLETED", "0:0")}
    said = site.collected(job)
    hosts = site.state(f"validate-{job}").hosts
    # Which hosts an array gets is Slurm's choice; what did not come is told.
    assert len(hosts) == 3 or "3 were asked for" in said


def test_job_line_and_command_agree_on_a_host_that_fails(site: Site) -> None:
    job = site.sbatch("--nodelist=n2", "slurm/validate.sbatch", "--system", "larger", "--step", "topology")
    assert site.slurm.ends(job) == {job: ("FAILED", "1:0")}
    said = site.slurm.said(job)
    # What is read of the host and not measured needs one pass.
    assert "measuring again" not in said
    assert "verdict n2 fail: 0 of 1 judged metrics pass; fail: topology pus:" in said
    done = site.call("validate", "--system", "larger", site.campaign(f"validate-{job}"), "--json")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert (document["verdict"], document["status"]) == ("fail", 1)
    assert document["hosts"][0]["line"] in said
    assert len(document["hosts"][0]["findings"][0]["passes"]) == 1


def test_strategy_is_spread_over_hosts_and_each_scenario_runs_once(aligning: Site) -> None:
    site = aligning
    job = site.sbatch("--array=1-3", "slurm/strategy.sbatch", "--aligner", "bwa-mem", "--dataset", "lambda")
    assert set(site.slurm.ends(job).values()) == {("COMPLETED", "0:0")}
    site.collected(job)
    name = f"strategy-{job}"
    found = site.state(name)
    assert found.whole
    ran = [[line["step"] for line in site.lines(name, host) if line["state"] == "began"] for host in found.hosts]
    # Each host measures the default scenario first, by which its other scenarios are compared.
    bridge = "bwa-mem-1Inst_Original"
    assert {steps[0] for steps in ran if steps} == {bridge}
    others = [step for steps in ran for step in steps[1:]]
    assert sorted([bridge, *others]) == sorted(step.name for step in found.campaign.steps)
    assert len(found.hosts) > 1
    measured = records.collect([site.campaign(name) / "hosts"])
    assert {r.status for r in measured} == {"valid"}
    assert {r.host for r in measured} == set(found.hosts)
    assert len({r.parameters["common_sha256"] for r in measured}) == 1
    assert (site.campaign(name) / "report" / "index.html").is_file()


def test_a_container_that_is_not_there_is_said(site: Site) -> None:
    site.env["BACKEND"] = "apptainer"
    job = site.sbatch("slurm/strategy.sbatch")
    assert site.slurm.ends(job) == {job: ("FAILED", "3:0")}
    said = site.slurm.said(job)
    assert "there is no such image" in said or "neither 'apptainer' nor 'singularity' is on PATH" in said


def test_named_hosts_get_a_job_each(site: Site) -> None:
    argv = ("--hosts", "n[4-6]", "--system", "sound", "--step", "topology", "--campaign", "fleet", "--json")
    done = site.call("campaign", "submit", "validate", *argv)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    for job in (*document["jobs"], document["collector"]):
        assert site.slurm.ends(job) == {job: ("COMPLETED", "0:0")}
    assert site.state("fleet").hosts == ("n4", "n5", "n6")
    assert "3 pass" in (site.campaign("fleet") / "report" / "overview.md").read_text()
