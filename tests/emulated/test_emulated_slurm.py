# SPDX-License-Identifier: Apache-2.0
"""A job of a real Slurm inside an emulated machine: the placements of its measurement hold on NUMA nodes.

ReFrame submits the same command: tests/slurm runs it through a Slurm of several hosts, and tests/integration its
checks. On an emulated processor, its start would take longer than everything else here.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping

import pytest

from firsttouch.records.schema import read

from . import services
from .guest import Guest

SYSTEM = "amd-opteron"
PUS = 16
#: Threads that fill only the NUMA nodes that are nearest to a bank.
FEW = 4
#: The nearest and the farthest bank of all NUMA nodes together, which the effort "smoke" measures.
BANKS = (2, 7)

pytestmark = [pytest.mark.timeout(900), pytest.mark.parametrize("guest", [SYSTEM], indirect=True)]


@pytest.fixture(scope="module")
def environment(guest: Guest) -> Iterator[Mapping[str, str]]:
    """The environment of a user of the guest's running Slurm."""
    yield {**services.settle(guest), **services.start_slurm(guest)}
    services.stop_slurm(guest)


def test_a_job_measures_the_whole_host_with_its_placement_verified(
    guest: Guest, environment: Mapping[str, str]
) -> None:
    answer = guest.run(["sinfo", "-h", "-o", "%N %C"], env=environment, check=True).text
    assert answer == f"{SYSTEM} 0/{PUS}/0/{PUS}\n"
    out, file = guest.shared / "job.out", guest.shared / "records.jsonl"
    cases = ["--threads", f"{FEW},{PUS}", "--repetitions", "1"]
    messages = guest.shared / "job.err"
    measure = ["measure", "contention", *cases, "--records", str(file)]
    script = f"nproc; hostname; firsttouch {shlex.join(measure)} >/dev/null && exit 7"
    whole = ["--exclusive", f"--cpus-per-task={PUS}", f"--output={out}", f"--error={messages}"]
    argv = ["sbatch", "--wait", *whole, f"--wrap={script}"]
    names = {"FIRSTTOUCH_SYSTEM": SYSTEM, "FIRSTTOUCH_PARTITION": "default"}
    done = guest.run(argv, env={**environment, **names}, timeout=300)
    assert done.returncode == 7, done.error_text + messages.read_text()
    assert out.read_text().split() == [str(PUS), SYSTEM]
    answer, deadline = "", time.monotonic() + 60  # slurmctld informs slurmdbd later
    while not answer and time.monotonic() < deadline:
        answer = guest.run(["sacct", "-nPX", "-o", "State,ExitCode,NodeList"], env=environment, check=True).text
    assert answer == f"FAILED|7:0|{SYSTEM}\n"

    records = [record for record in read(file) if record.check == "contention"]
    measured = {(record.parameters["threads"], record.parameters["bank"]) for record in records}
    assert measured == {(threads, bank) for threads in (FEW, PUS) for bank in BANKS}
    for record in records:
        assert record.status == "valid", record.reason
        assert (record.host, record.system, record.partition) == (SYSTEM, SYSTEM, "default")
        assert record.software["emulator"].startswith("QEMU with")
        assert not record.judged
        # The placements, read from the kernel, are compared again.
        assert record.placement_found
        for requested, actual in zip(record.placement_asked, record.placement_found, strict=True):
            assert actual["pus"]
            assert set(actual["pus"]) <= set(requested["pus"])
            assert set(actual["pages"]) == {str(record.parameters["bank"])} == {str(requested["numa_nodes"][0])}
