# SPDX-License-Identifier: Apache-2.0
"""Tasks that the real srun starts: each has its own PUs, and one result tells of all tasks of a host."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from slurm_site import Site

from factories import held_programs
from firsttouch.records import schema


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two PUs")
def test_tasks_of_two_hosts(site: Site, tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    # Processes of two hosts may have the same number, which names what they wait for.
    for host in ("n1", "n2"):
        (tmp_path / host).mkdir()
    firsttouch = held_programs.command(Path(), "exec", "--verify", "--records", records)
    program = ["sh", "-c", held_programs.shell_wait(Path())]
    done = site.slurm.call(
        *("srun", "-N2", "-n4", "--ntasks-per-node=2", "--nodelist=n[1-2]"),
        *("sh", "-c", f'cd {tmp_path}/$SLURMD_NODENAME && exec "$@"', "sh"),
        *firsttouch,
        "--",
        *program,
        env={**site.env, "TMPDIR": str(tmp_path)},
    )
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
