# SPDX-License-Identifier: Apache-2.0
"""One job of new hosts without references decides: its hosts judge each other in rounds."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from modelled_probe import FACTS, topology_xml
from slurm_site import Site

from factories.processes import write_program

SYSTEM = f"""\
name: rome
description: "hosts of the modelled probe"
hostnames: ["n[0-9]+"]
{FACTS}partitions:
  - {{name: all, description: Slurm, scheduler: slurm, launcher: local,
     access: [--exclusive], environs: [builtin]}}
"""


@pytest.fixture
def modelled(site: Site, tmp_path: Path, systems: Path) -> Site:
    """A site whose hosts have the values of modelled_probe.py; n3 lacks a memory channel of bank 0."""
    (systems / "rome.yaml").write_text(SYSTEM)
    model = {"seed": 1, "noise": 0.003, "spread": 0.001, "lacking": {"n3": {"0": 0.75}}}
    (tmp_path / "model.json").write_text(json.dumps(model))
    probe = tmp_path / "probe"
    topology = tmp_path / "topology.xml"
    topology.write_text(topology_xml())
    program = f"{sys.executable} -SE {Path(__file__).with_name('modelled_probe.py')}"
    write_program(probe, f'if [ "$1" = topology ]; then exec cat {topology}; fi\nexec {program} "$@"')
    site.env |= {"FIRSTTOUCH_PROBE": str(probe), "FIRSTTOUCH_MODEL": str(tmp_path)}
    return site


def test_one_job_of_new_hosts_fails_only_the_bad_one(modelled: Site) -> None:
    site = modelled
    steps = ("--step=topology", "--step=core-to-core", "--step=bandwidth-1")
    job = site.sbatch("-N5", "slurm/validate.sbatch", "--system", "rome", *steps)
    assert site.slurm.ends(job) == {job: ("FAILED", "1:0")}, site.slurm.output(job)
    output = site.slurm.output(job)
    verdicts = re.findall(r"^verdict (\S+) (\w+): (.*)", output, re.MULTILINE)
    # A line for each host, once, the worst first.
    assert [verdict[:2] for verdict in verdicts] == [("n3", "fail"), *((f"n{i}", "pass") for i in (1, 2, 4, 5))]
    assert "NUMA 0 to bank 0" in verdicts[0][2]
    assert "possible cause: memory channel missing: " in verdicts[0][2]
    assert re.search(
        r"^firsttouch: \d+ to \d+ repetitions of each metric in .*; nothing is undecided$", output, re.M
    )
    assert site.verdicts() == {f"n{i}": "fail" if i == 3 else "pass" for i in range(1, 6)}
    # A job drains only if it is asked to.
    assert "DRAIN" not in site.slurm.node("n3")["State"]
    # The collecting job judges the same records.
    site.collected(job, state="FAILED")
    report = site.campaign(f"validate-{job}") / "report" / "overview.md"
    assert "## Verdicts: 1 fail, 4 pass" in report.read_text()
