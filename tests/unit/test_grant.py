# SPDX-License-Identifier: Apache-2.0
"""Requests beyond this process's grant, and the remedy in the message."""

import pytest
from msgspec.structs import replace

from firsttouch.errors import BadInput, CannotHere
from firsttouch.host import grant
from firsttouch.scenarios.layout import Layout

VARIABLES = (
    *("SLURM_JOB_ID", "SLURM_JOB_CPUS_PER_NODE", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE"),
    *("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_CPUS_PER_TASK", "OMP_NUM_THREADS"),
)


@pytest.fixture(autouse=True)
def no_job(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def host(opteron):
    """This host, of 64 PUs, of which this process may use four."""
    return replace(opteron, here=True, allowed_pus=frozenset(range(4)))


@pytest.mark.parametrize(
    ("job", "end"),
    [
        ({}, "a cpuset or an affinity mask excludes the others"),
        ({"SLURM_JOB_ID": "7"}, "sbatch --cpus-per-task=16 grants them"),
        # A batch script may use all PUs of its job.
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_CPUS_PER_NODE": "16"}, "an affinity mask excludes others of the job"),
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_CPUS_PER_NODE": "15"}, "sbatch --cpus-per-task=16 grants them"),
        # Each task of the step would need the same number.
        (
            {
                "SLURM_JOB_ID": "7",
                "SLURM_JOB_CPUS_PER_NODE": "16",
                "SLURM_STEP_NODELIST": "n1",
                "SLURM_STEP_TASKS_PER_NODE": "2",
            },
            "sbatch --cpus-per-task=16 grants them",
        ),
        (
            {"SLURM_JOB_ID": "7", "SLURM_JOB_CPUS_PER_NODE": "32(x2),16", "SLURM_STEP_NODELIST": "n1"},
            "srun --cpus-per-task=16 grants them",
        ),
        (
            {"SLURM_JOB_ID": "7", "SLURM_JOB_CPUS_PER_NODE": "32(x2),8", "SLURM_STEP_NODELIST": "n1"},
            "sbatch --cpus-per-task=16 grants them",
        ),
    ],
)
def test_what_grants_more_pus(monkeypatch, host, job, end):
    for name, value in job.items():
        monkeypatch.setenv(name, value)
    lacking = f"16 threads are asked for, and this process may use 4 of the host's 64 PUs: {end}"
    assert grant.lacking_pus(16, host) == lacking
    assert grant.lacking_pus(4, host) == ""
    with pytest.raises(BadInput, match=f"--threads 16: .*4 PUs: {end}"):
        Layout(host, 16)
    with pytest.raises(CannotHere, match=f"4 x 4 .*4 PUs .*: {end}"):
        Layout(host, None).division(4, 4)


def test_a_task_lacks_what_its_share_lacks(monkeypatch, host):
    for name in ("SLURM_JOB_ID", "SLURM_CPUS_PER_TASK"):
        monkeypatch.delenv(name, raising=False)
    assert grant.lacking_pus(4, host) == ""
    # Nothing excludes the others: its siblings have them.
    lacking = "4 threads are asked for, and this process may use 2 of the host's 64 PUs"
    divided = f"{lacking}: the tasks of this host divide 4 PUs, start fewer tasks"
    assert grant.lacking_pus(4, host, 2) == divided
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "4")
    assert grant.lacking_pus(4, host, 2) == divided
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "2")
    assert grant.lacking_pus(4, host, 2) == f"{lacking}: sbatch --cpus-per-task=4 grants them"


def test_a_host_has_no_more_than_it_has(monkeypatch, opteron):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    whole = replace(opteron, here=True)
    assert (
        grant.lacking_pus(65, whole)
        == "65 threads are asked for, and this process may use 64 PUs, all of this host"
    )
    part = replace(whole, allowed_pus=frozenset({0}))
    assert grant.lacking_pus(128, part).endswith(": sbatch --cpus-per-task=64 grants 64 of them")
    # Of another host, which a plan is for, nobody can be granted more.
    assert grant.more_pus(16, replace(part, here=False)) == ""


@pytest.mark.parametrize(
    ("command", "variables", "threads"),
    [
        ([], {}, 0),
        (["sort", "file"], {"OMP_NUM_THREADS": "8,2"}, 8),
        (["sort"], {"OMP_NUM_THREADS": "8", "SLURM_CPUS_PER_TASK": "16"}, 16),
        (["sort"], {"OMP_NUM_THREADS": "many"}, 0),
        (["x", "--threads", "64", "-t", "128"], {}, 64),
        (["x", "--num-threads=32"], {"OMP_NUM_THREADS": "2"}, 32),
        (["samtools", "sort", "-@", "12"], {}, 12),
        (["samtools", "sort", "-@12"], {}, 12),
        (["x", "--threads"], {}, 0),
        (["x", "--threads", "²"], {}, 0),
        (["x", "--threads-env", "8", "--cores8"], {}, 0),
    ],
)
def test_threads_that_are_asked_for(monkeypatch, command, variables, threads):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert grant.asked_threads(command) == threads


def test_what_grants_more_memory(monkeypatch):
    lacking = "about 28 GiB of memory are needed, and this process may take 4 GiB"
    assert grant.lacking_memory(28 << 30, 4 << 30) == lacking
    assert grant.lacking_memory(4 << 30, 4 << 30) == ""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert grant.lacking_memory(28 << 30, 4 << 30) == f"{lacking}: sbatch --mem=31G grants it"
    assert grant.lacking_memory(28 << 30, None) == ""


@pytest.mark.parametrize(
    "granted", [{"SLURM_MEM_PER_NODE": "4096"}, {"SLURM_MEM_PER_CPU": "2048", "SLURM_JOB_CPUS_PER_NODE": "2(x3)"}]
)
def test_what_slurm_granted_counts_where_it_enforces_nothing(monkeypatch, granted):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    for name, value in granted.items():
        monkeypatch.setenv(name, value)
    lacking = "about 28 GiB of memory are needed, and this process may take 4 GiB: sbatch --mem=31G grants it"
    assert grant.lacking_memory(28 << 30, 64 << 30) == lacking
    assert grant.lacking_memory(28 << 30, None) == lacking
    assert grant.lacking_memory(3 << 30, 64 << 30) == ""
