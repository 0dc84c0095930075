# SPDX-License-Identifier: Apache-2.0
"""Ranks of MPI libraries that mpirun starts without Slurm: each has its own PUs, and they find each other."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from factories import held_programs, mpi
from factories.processes import captured
from firsttouch.host.topology import load
from firsttouch.records import schema

needs_two_pus = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two PUs")


@needs_two_pus
@pytest.mark.parametrize("library", ["mpich", "openmpi"])
def test_ranks_of_mpirun_divide_the_host(library: str, tmp_path: Path) -> None:
    program = mpi.program(library, tmp_path)
    mpirun = shutil.which(f"mpirun.{library}")
    if mpirun is None:
        pytest.skip(f"missing here: mpirun.{library}")
    firsttouch = held_programs.command(tmp_path, "run", "--verify", "--records", tmp_path / "r.%t.jsonl")
    done = captured(
        [mpirun, "--bind-to", "none", "-n", "2", *firsttouch, "--", program, tmp_path],
        env=os.environ | mpi.VARIABLES | {"TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} of 2: the sum is 3" for rank in range(2)]
    line = r"^firsttouch: task [01] on .*: 2x\d+-bound: .* s, placement verified$"
    assert len(re.findall(line, done.stderr, re.MULTILINE)) == 2
    records = [schema.read(tmp_path / f"r.{rank}.jsonl") for rank in range(2)]
    first, second = (set(placement["pus"]) for (record,) in records for placement in record.placement_asked)
    assert first.isdisjoint(second)
    assert len(first) == len(second) == load().usable_pu_count // 2
