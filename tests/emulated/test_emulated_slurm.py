# SPDX-License-Identifier: Apache-2.0
"""ReFrame's checks run inside an emulated machine as on a cluster: through a real Slurm, on its one host.

Only two checks run, on the small machine: on an emulated processor, starting ReFrame takes longer than many
checks, and aligning the dataset takes longer still. `make emulate SYSTEM=amd-opteron` can run all checks on the
Opteron.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping

import pytest

from firsttouch import paths
from firsttouch.records.schema import Record, collect

from . import services
from .guest import Guest

SYSTEM = "small"
PUS = 8
STEPS = ("topology", "contention")
#: A reference that holds, and one that does not hold but must not be judged on an emulated machine.
REFERENCES = """\
references:
  - {check: topology, metric: numa_nodes, value: 4, tolerance: {lower: "0 %", upper: "0 %"}, source: "machines/"}
  - {check: topology, metric: memory, value: "512 GiB", tolerance: {lower: "-3 %"}, source: "a larger host"}
"""

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.parametrize("guest", [SYSTEM], indirect=True),
]


@pytest.fixture(scope="module")
def inside(guest: Guest) -> Iterator[Mapping[str, str]]:
    """The environment of a user of the guest's running Slurm, with a system drafted in the guest."""
    env = {**services.settle(guest), **services.start_slurm(guest)}
    guest.run(["firsttouch", "system", "draft", SYSTEM], env=env, check=True, timeout=200)
    drafted = guest.run(["cat", paths.SYSTEMS / f"{SYSTEM}.yaml"], check=True).text
    assert 'scheduler: slurm\n    launcher: local\n    access: ["--exclusive"]\n' in drafted
    changed = drafted.replace("references: []\n", REFERENCES)
    assert changed.endswith(REFERENCES)
    systems = guest.shared / "systems"
    systems.mkdir()
    (systems / f"{SYSTEM}.yaml").write_text(changed)
    yield {**env, "FIRSTTOUCH_SYSTEMS": str(systems)}
    services.stop_slurm(guest)


def test_slurm_runs_a_job_on_the_whole_host(guest: Guest, inside: Mapping[str, str]) -> None:
    answer = guest.run(["sinfo", "-h", "-o", "%N %C"], env=inside, check=True).text
    assert answer == f"{SYSTEM} 0/{PUS}/0/{PUS}\n"
    out = guest.shared / "job.out"
    wrapped = [
        "--wait",
        "--exclusive",
        f"--cpus-per-task={PUS}",
        f"--output={out}",
        "--wrap=nproc; hostname; exit 7",
    ]
    done = guest.run(["sbatch", *wrapped], env=inside, timeout=120)
    assert done.returncode == 7, done.error_text
    assert out.read_text().split() == [str(PUS), SYSTEM]
    answer, deadline = "", time.monotonic() + 60  # slurmctld informs slurmdbd later
    while not answer and time.monotonic() < deadline:
        answer = guest.run(["sacct", "-nPX", "-o", "State,ExitCode,NodeList"], env=inside, check=True).text
    assert answer == f"FAILED|7:0|{SYSTEM}\n"


def test_checks_pass_with_their_placement_verified(guest: Guest, inside: Mapping[str, str]) -> None:
    chosen = [option for step in STEPS for option in ("-n", f"^{step}$")]
    argv = ["reframe", "-c", "reframe/", "-r", "--system", SYSTEM, *chosen]
    done = guest.run(argv, env=inside, cwd=paths.ROOT, timeout=800)
    count = len(STEPS) + 1  # and the choice of the host
    assert f"Ran {count}/{count} test case(s)" in done.text, done.text + done.error_text
    assert "0 failure(s), 0 expected failure(s), 0 skipped" in done.text, done.text
    assert done.returncode == 0
    assert "is emulated (QEMU with" in done.text

    (report,) = (guest.shared / "reports" / "reframe" / "reports").glob("run-*.json")
    cases = json.loads(report.read_text())["runs"][0]["testcases"]
    assert {case["job_nodelist"][0] for case in cases} == {SYSTEM}
    assert all(case["scheduler"] == "slurm" and case["job_exitcode"] == 0 for case in cases)

    records = collect([guest.shared / "reports" / "reframe" / "output"])
    assert {record.check for record in records} - {"health"} == {*STEPS, "configuration"}
    for record in (record for record in records if record.check in STEPS):
        assert record.status == "valid", record.reason
        assert (record.host, record.system, record.partition) == (SYSTEM, SYSTEM, "default")
        assert record.software["emulator"].startswith("QEMU with")
        # Only counts are judged.
        assert record.judged == (record.unit == "1")
        check_placement(record)


def check_placement(record: Record) -> None:
    """Check the observed placements again."""
    assert bool(record.placement_found) == (record.check != "topology")
    for asked, actual in zip(record.placement_asked, record.placement_found, strict=True):
        assert actual["pus"]
        assert set(actual["pus"]) <= set(asked["pus"])
        total = sum(actual["pages"].values())
        assert total > 0
        assert sum(actual["pages"].get(str(n), 0) for n in asked["numa_nodes"]) >= 0.95 * total
