# SPDX-License-Identifier: Apache-2.0
"""The templates, submitted without changes."""

from __future__ import annotations

import sys
from pathlib import Path

from slurm_site import Site

from firsttouch.records import schema


def test_characterize_measures_all_aspects_of_one_host(shimmed: Site) -> None:
    site = shimmed
    job = site.sbatch("slurm/characterize.sbatch")
    assert site.slurm.ends(job) == {job: ("COMPLETED", "0:0")}, site.slurm.output(job)
    campaign = site.campaign(f"characterize-{job}")
    assert f"results: {campaign}" in site.slurm.output(job)
    records = schema.collect([campaign / "hosts"])
    assert {(r.host, r.partition, r.status) for r in records} == {("n1", "all", "valid")}
    assert "<svg" in (campaign / "report" / "index.html").read_text()
    assert site.state(campaign.name).whole


def test_an_installed_copy_submits_from_the_folder_that_init_makes(site: Site, installed: Path) -> None:
    """The program is not on PATH, and neither the job nor the one that collects has a checkout."""
    jobs = site.folder / "jobs"
    assert site.slurm.call(installed / "bin" / "firsttouch", "init", jobs).returncode == 0
    env = {name: value for name, value in site.env.items() if name != "FIRSTTOUCH_OUT"}
    env["FIRSTTOUCH_PROBE"] = str(Path(sys.executable).with_name("firsttouch-probe"))
    submit = ("bash", "-c", 'cd "$0" && exec sbatch "$@"', jobs, "--parsable", "-N2", "--nodelist=n[4-5]")
    options = (f"--output={site.slurm.folder}/%A_%a.out", "slurm/validate.sbatch")
    job = site.slurm.ask(*submit, *options, "--system", "sound", "--step", "topology", env=env).strip()
    assert site.slurm.ends(job) == {job: ("COMPLETED", "0:0")}, site.slurm.output(job)
    site.collected(job)
    verdicts = jobs / "reports" / "verdicts"
    assert {file.name for file in verdicts.iterdir()} == {"n4", "n5", "log"}
    for host in ("n4", "n5"):
        assert f"verdict {host} pass: 1 of 1 judged metrics pass" in site.slurm.output(job)
        assert (verdicts / host).read_text().startswith("pass ")
    campaign = jobs / "reports" / "campaigns" / f"validate-{job}"
    assert "## Verdicts: 2 pass" in (campaign / "report" / "overview.md").read_text()
    assert site.call("validate", "--system", "sound", campaign).returncode == 0


def test_every_host_of_an_array_runs_all_scenarios(aligning: Site) -> None:
    site = aligning
    steps = ("--step=bwa-mem-*-bound", "--step=bwa-mem-*-default", "--step=bwa-mem-1x*-interleave")
    options = ("--aligner", "bwa-mem", "--dataset", "lambda", *steps)
    job = site.sbatch("--array=1-2", "slurm/strategy.sbatch", *options)
    assert set(site.slurm.ends(job).values()) == {("COMPLETED", "0:0")}
    site.collected(job)
    name = f"strategy-{job}"
    state = site.state(name)
    assert state.whole
    assert len(state.hosts) == 2
    for host in state.hosts:
        ran = [line["step"] for line in site.lines(name, host) if line["state"] == "began"]
        assert sorted(ran) == sorted(step.name for step in state.campaign.steps)
    measured = schema.collect([site.campaign(name) / "hosts"])
    assert {r.status for r in measured} == {"valid"}
    assert {r.host for r in measured} == set(state.hosts)
    assert len({r.parameters["common_sha256"] for r in measured if r.check != "health"}) == 1
    assert (site.campaign(name) / "report" / "index.html").is_file()


def test_two_measurements_on_a_host_wait_for_each_other(shimmed: Site) -> None:
    """The lock applies to the host, whatever the folders for temporary files."""
    site = shimmed
    site.hold("n1")
    run = "firsttouch measure latency --pu-nodes 0 --banks 0 --repetitions 1 --records"
    root = Path(sys.executable).parent
    both = [f"mkdir {name}; TMPDIR=$PWD/{name} {root}/{run} {name}/records.jsonl &" for name in ("a", "b")]
    script = "unset FIRSTTOUCH_LOCK; " + " ".join(both) + " wait %1 && wait %2"
    job = site.sbatch("--nodelist=n1", "--exclusive", f"--chdir={site.folder}", "--wrap", script)
    waiting = "waiting for another run on this host to end: process "
    log = site.slurm.folder / f"{job}_4294967294.out"
    site.slurm.until(lambda: log.exists() and waiting in log.read_text(), "one to wait")
    site.release("n1")
    assert site.slurm.ends(job) == {job: ("COMPLETED", "0:0")}, site.slurm.output(job)
    assert site.slurm.output(job).count(waiting) == 1
    first, second = (schema.read(site.folder / name / "records.jsonl") for name in ("a", "b"))
    assert first
    assert second


def test_a_container_that_is_not_there_is_named(site: Site) -> None:
    site.env["BACKEND"] = "apptainer"
    job = site.sbatch("slurm/strategy.sbatch")
    assert site.slurm.ends(job) == {job: ("FAILED", "3:0")}
    output = site.slurm.output(job)
    assert "image not found" in output or "neither 'apptainer' nor 'singularity' is on PATH" in output
