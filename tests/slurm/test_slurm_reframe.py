# SPDX-License-Identifier: Apache-2.0
"""ReFrame on several hosts: one run measures one host, for which it waits, unless it must use all hosts."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from slurm_site import Site

from factories.processes import REFRAME, reported_cases, write_program
from firsttouch import paths
from firsttouch.host import topology
from firsttouch.records import schema
from firsttouch.systems import draft

Run = Callable[..., dict[str, dict[str, str]]]


@pytest.fixture
def reframe(site: Site) -> Run:
    """Returns a function that runs checks on a system of Slurm's hosts and gives ReFrame's results by name."""
    systems = site.folder / "systems"
    systems.mkdir()
    text = draft.draft_host("lab").replace("scheduler: local", 'scheduler: slurm\n    access: ["--exclusive"]')
    text = text.replace("max_jobs: 1", "max_jobs: 64")
    (systems / "lab.yaml").write_text(text)
    (systems / "stepping.yaml").write_text(
        text.replace("launcher: local", "launcher: srun").replace("name: lab", "name: stepping")
    )
    more = re.sub("cores_per_numa_node: [0-9]+", "cores_per_numa_node: 256", text)
    (systems / "wide.yaml").write_text(more.replace("name: lab", "name: wide"))
    site.env |= {"FIRSTTOUCH_SYSTEMS": str(systems), "RFM_CONFIG_FILES": str(paths.SETTINGS)}

    def run(
        *options: object, checks: str = "topology", path: str = "reframe/aspects.py", system: str = "lab"
    ) -> dict[str, dict[str, str]]:
        report = site.folder / "report.json"
        # One file of checks is loaded in a third of the time of all.
        argv = [REFRAME, "--nocolor", "-c", path, "-r", "--system", system]
        argv += ["-n", checks, "--report-file", report, *options]
        done = site.slurm.call(*argv, env=site.env)
        cases = reported_cases(report)
        assert cases, done.stdout
        return cases

    return run


def hosts(site: Site) -> set[str]:
    return {r.host for r in schema.collect([site.folder / "reframe" / "output"])}


def test_a_run_waits_for_its_host_and_stays_on_it(site: Site, reframe: Run) -> None:
    """Jobs that wait for a busy host have the reason ReqNodeNotAvail, for which ReFrame would cancel them."""
    busy, fifo = site.occupy("n2")
    with ThreadPoolExecutor() as pool:
        run = pool.submit(reframe, "-S", "host=n2")
        try:
            site.slurm.until(
                lambda: run.done() or "PENDING" in site.slurm.ask("squeue", "-h", "-o", "%T"), "a job that waits"
            )
        finally:
            fifo.write_text("")
    cases = run.result()
    assert {c["result"] for c in cases.values()} <= {"pass", "skip"}, cases
    assert {host for c in cases.values() for host in c["job_nodelist"]} == {"n2"}
    assert site.slurm.ends(busy) == {busy: ("COMPLETED", "0:0")}
    assert hosts(site) == {"n2"}


def test_the_first_host_is_that_of_all_checks(site: Site, reframe: Run) -> None:
    """All hosts but one are idle, and Slurm would spread jobs without a host name over them."""
    site.occupy("n1")
    cases = reframe(checks="topology|bandwidth%set_size=1|stores", path="reframe/")
    assert len(cases) == 1 + 1 + 2, cases  # the host's, topology, and two measurements
    assert hosts(site) == {"n2"}


def test_a_step_of_srun_has_all_cpus_of_its_host(site: Site, reframe: Run) -> None:
    cases = reframe(system="stepping")
    assert {c["result"] for c in cases.values()} == {"pass"}, cases
    (pus,) = [r.value for r in schema.collect([site.folder / "reframe" / "output"]) if r.metric == "pus"]
    assert pus == len(topology.load().pus)


def test_several_hosts_on_purpose(site: Site, reframe: Run) -> None:
    site.slurm.ask("scontrol", "update", "nodename=n[4-5],n6X", "state=drain", "reason=no fan")
    cases = reframe("--distribute")
    assert {c["result"] for c in cases.values()} == {"pass"}, cases
    assert hosts(site) == {"n1", "n2", "n3"}


@pytest.mark.parametrize("system", ["amd-opteron", "wide"])
def test_a_host_of_another_system_is_one_failure(site: Site, reframe: Run, system: str) -> None:
    """Slurm accepts the jobs of a system with more PUs than it has CPUs: they ask for whole hosts.

    On a busy controller sacct knows that a job has failed before it knows the exit code.
    """
    script = f"{shutil.which('sacct')} \"$@\" | sed 's/|[0-9]*:[0-9]*|/|0:0|/'"
    sacct = write_program(site.folder / "sacct", script)
    site.env["PATH"] = f"{sacct.parent}:{os.environ['PATH']}"
    cases = reframe(system=system)
    (failed,) = [c for c in cases.values() if c["result"] == "fail"]
    assert re.search(rf"this host has \d+ .*, {system} has ", failed["fail_reason"])
    assert {c["result"] for c in cases.values()} == {"fail", "fail_deps"}


def test_the_partition_is_chosen_by_the_environment(site: Site, reframe: Run) -> None:
    site.env["SBATCH_PARTITION"] = "nowhere"
    (failed,) = [c for c in reframe().values() if c["result"] == "fail"]
    assert "invalid partition specified: nowhere" in failed["fail_reason"]
