# SPDX-License-Identifier: Apache-2.0
"""ReFrame's checks run inside the emulated Opteron as on a cluster: through a real Slurm, on its one host."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from firsttouch import folders
from firsttouch.records import Record, collect

from . import services
from .guest import Guest

SYSTEM = "amd-opteron"
#: A check of each step, as ReFrame's option -n takes names: without spaces.
STEPS = {
    "topology": "^topology$",
    "latency": "^latency%pu_node=7$",
    "bandwidth": "^bandwidth%pu_set=7$",
    "contention": "^contention%threads=64$",
    "scaling": "^scaling%scenario=1Inst_Interleave%",
    "placement": "^placement%scenario=2Inst_Original%",
}

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.timeout(900),
    pytest.mark.parametrize("guest", [SYSTEM], indirect=True),
]


@pytest.fixture(scope="module")
def inside(guest: Guest) -> Mapping[str, str]:
    """The environment of a user of the guest's Slurm, which is up."""
    return {**services.settle(guest), **services.start_slurm(guest)}


def test_slurm_runs_a_job_on_the_whole_host(guest: Guest, inside: Mapping[str, str]) -> None:
    assert guest.run(["sinfo", "-h", "-o", "%N %C"], env=inside, check=True).text == f"{SYSTEM} 0/64/0/64\n"
    out = guest.shared / "job.out"
    wrapped = ["--wait", "--exclusive", "--cpus-per-task=64", f"--output={out}", "--wrap=nproc; hostname; exit 7"]
    done = guest.run(["sbatch", *wrapped], env=inside, timeout=120)
    assert done.returncode == 7, done.error_text
    assert out.read_text().split() == ["64", SYSTEM]
    told = guest.run(["sacct", "-nPX", "-o", "State,ExitCode,NodeList"], env=inside, check=True).text
    assert told == f"FAILED|7:0|{SYSTEM}\n"


def test_a_check_of_each_step_passes_with_its_placement_verified(guest: Guest, inside: Mapping[str, str]) -> None:
    chosen = [option for step in STEPS.values() for option in ("-n", step)]
    argv = ["reframe", "-c", "reframe/", "-r", "--system", SYSTEM, *chosen]
    done = guest.run(argv, env=inside, cwd=folders.ROOT, timeout=800)
    # The steps, and the run whose alignments those of the scenarios have to equal.
    assert f"Ran {len(STEPS) + 1}/{len(STEPS) + 1} test case(s)" in done.text, done.text + done.error_text
    assert "0 failure(s), 0 expected failure(s), 0 skipped" in done.text, done.text
    assert done.returncode == 0
    assert "is emulated (QEMU with" in done.text

    (report,) = (guest.shared / "reports" / "reframe" / "reports").glob("run-*.json")
    cases = json.loads(report.read_text())["runs"][0]["testcases"]
    assert {case["job_nodelist"][0] for case in cases} == {SYSTEM}
    assert all(case["scheduler"] == "slurm" and case["job_exitcode"] == 0 for case in cases)

    records = collect([guest.shared / "reports" / "reframe" / "output"])
    assert {record.check for record in records} == set(STEPS)
    for record in records:
        assert record.status == "valid", record.reason
        assert (record.host, record.system, record.partition) == (SYSTEM, SYSTEM, "exclusive")
        assert record.software["emulator"].startswith("QEMU with")
        check_placement(record)


def check_placement(record: Record) -> None:
    """Look at what was found once more; and what is no count of something is not judged."""
    assert record.judged == (record.check == "topology" and record.metric != "memory")
    assert bool(record.placement_found) == (record.check != "topology")
    for asked, found in zip(record.placement_asked, record.placement_found, strict=True):
        assert set(found["held"]) <= set(asked["pus"])
        if "bank" in record.parameters or record.parameters.get("instances", 1) > 1:
            total = sum(found["pages"].values())
            assert sum(found["pages"].get(str(n), 0) for n in asked["numa_nodes"]) >= 0.95 * total
    if record.check in {"latency", "bandwidth", "contention"}:
        assert record.parameters["effort"] == "smoke"
