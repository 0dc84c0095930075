# SPDX-License-Identifier: Apache-2.0
"""Tasks that the real srun starts: each has its own PUs, and its own result."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from slurm_site import Site

from factories import held_programs, mpi
from firsttouch.records import schema

needs_two_pus = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two PUs")


def srun(site: Site, folder: Path, *words: object, pmi: str = "none") -> subprocess.CompletedProcess[str]:
    """Run held programs (their folder is "." for each host) by two tasks each on n1 and n2."""
    # Processes of two hosts may have the same number, which names what they wait for.
    for host in ("n1", "n2"):
        (folder / host).mkdir()
    in_folder_of_host = f'cd {folder}/$SLURMD_NODENAME && exec "$@"'
    return site.slurm.call(
        *("srun", "-N2", "-n4", "--ntasks-per-node=2", "--nodelist=n[1-2]", f"--mpi={pmi}"),
        *("sh", "-c", in_folder_of_host, "sh", *held_programs.command(Path(), *words)),
        env={**site.env, **mpi.VARIABLES, "TMPDIR": str(folder)},
    )


def results(done: subprocess.CompletedProcess[str]) -> list[tuple[int, str]]:
    """Return the tasks and hosts that report a verified placement."""
    line = r"^firsttouch: task (\d) on (\w+), PU.*: 2x\d+-bound: .* s, placement verified$"
    return sorted((int(task), host) for task, host in re.findall(line, done.stderr, re.MULTILINE))


@needs_two_pus
def test_tasks_of_two_hosts(site: Site, tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    program = ["sh", "-c", held_programs.shell_wait(Path())]
    done = srun(site, tmp_path, "run", "--verify", "--records", records, "--", *program)
    assert done.returncode == 0, done.stderr
    assert results(done) == [(task, "n1" if task < 2 else "n2") for task in range(4)], done.stderr
    kept = schema.read(records)
    for host in ("n1", "n2"):
        first, second = (
            set(placement["pus"]) for record in kept if record.host == host for placement in record.placement_found
        )
        assert first.isdisjoint(second)


@needs_two_pus
@pytest.mark.parametrize(("pmi", "library"), [("pmi2", "mpich"), ("pmix", "openmpi")])
def test_ranks_of_mpi_on_two_hosts(site: Site, tmp_path: Path, pmi: str, library: str) -> None:
    """What srun gives the ranks to find each other, such as PMI_FD, reaches the program through firsttouch."""
    program, records = mpi.program(library, tmp_path), tmp_path / "r.%t.jsonl"
    done = srun(site, tmp_path, "run", "--verify", "--records", records, "--", program, ".", pmi=pmi)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} of 4: the sum is 10" for rank in range(4)]
    assert results(done) == [(task, "n1" if task < 2 else "n2") for task in range(4)], done.stderr
    records = [schema.read(tmp_path / f"r.{task}.jsonl") for task in range(4)]
    assert [(record.host, record.status) for (record,) in records] == [
        (host, "valid") for _, host in results(done)
    ]
