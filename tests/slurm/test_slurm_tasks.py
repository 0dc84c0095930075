# SPDX-License-Identifier: Apache-2.0
"""Tasks that the real srun starts: each has its own PUs, and one result tells of those of a host, or of all."""

from __future__ import annotations

import json
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


@needs_two_pus
def test_tasks_of_two_hosts(site: Site, tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    program = ["sh", "-c", held_programs.shell_wait(Path())]
    done = srun(site, tmp_path, "exec", "--verify", "--records", records, "--", *program)
    assert done.returncode == 0, done.stderr
    joined = re.findall(
        r"^firsttouch: 2Inst_Original, 2 tasks on (\S+): .* all placements verified$", done.stderr, re.M
    )
    assert sorted(joined) == ["n1", "n2"], done.stderr
    kept = schema.read(records)
    assert sorted(record.host for record in kept) == ["n1", "n2"]
    for record in kept:
        pus = [set(placement["pus"]) for placement in record.placement_found]
        assert len(pus) == 2
        assert pus[0].isdisjoint(pus[1])


@needs_two_pus
@pytest.mark.parametrize(("pmi", "library"), [("pmi2", "mpich"), ("pmix", "openmpi")])
def test_ranks_of_mpi_on_two_hosts_have_one_result(site: Site, tmp_path: Path, pmi: str, library: str) -> None:
    """What srun gives the ranks to find each other, such as PMI_FD, reaches the program through firsttouch."""
    program, joined = mpi.program(library, tmp_path), tmp_path / "joined.json"
    done = srun(site, tmp_path, "exec", "--verify", "--joined", joined, "--", program, ".", pmi=pmi)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} of 4: the sum is 10" for rank in range(4)]
    (line,) = [line for line in done.stderr.splitlines() if " s, " in line]
    assert line.startswith("firsttouch: 2Inst_Original, 4 tasks on n1, n2: ")
    assert line.endswith(" s, all placements verified")
    hosts = json.loads(joined.read_text())["hosts"]
    assert [(host["host"], host["numbers"]) for host in hosts] == [("n1", [0, 1]), ("n2", [2, 3])]
    assert [task["placement"] for host in hosts for task in host["tasks"]] == ["verified"] * 4
    assert not list(tmp_path.glob(".joined.json.*"))
