# SPDX-License-Identifier: Apache-2.0
"""Tasks that the real srun starts: each has its own PUs, and its own result."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import asdict
from slurm_site import Site

import documented
from factories import held_programs, mpi
from factories.processes import write_program
from firsttouch import paths
from firsttouch.execution import build_info
from firsttouch.records import schema

needs_two_pus = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two PUs")


def srun(
    site: Site, folder: Path, command: list[str], *, pmi: str = "none", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command by two tasks each on n1 and n2, in the folder of held programs of each host."""
    # Processes of two hosts may have the same number, which names what they wait for.
    for host in ("n1", "n2"):
        (folder / host).mkdir()
    in_folder_of_host = f'cd {folder}/$SLURMD_NODENAME && exec "$@"'
    return site.slurm.call(
        *("srun", "-N2", "-n4", "--ntasks-per-node=2", "--nodelist=n[1-2]", f"--mpi={pmi}"),
        *("sh", "-c", in_folder_of_host, "sh", *command),
        env={**site.env, **mpi.VARIABLES, **(env or {}), "TMPDIR": str(folder)},
    )


def results(done: subprocess.CompletedProcess[str]) -> list[tuple[int, str]]:
    """Return the tasks and hosts that report a verified placement."""
    (shown,) = [c for c in documented.commands(documented.ROOT / "docs" / "howto" / "any-program.md") if c.output]
    assert shown.unprinted(done.stderr) == []
    line = r"^firsttouch: task (\d) on (\w+), PU.*: 2x\d+-bound: .* s, placement verified$"
    return sorted((int(task), host) for task, host in re.findall(line, done.stderr, re.MULTILINE))


@needs_two_pus
def test_tasks_of_two_hosts(site: Site, tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    program = ["sh", "-c", held_programs.shell_wait(Path())]
    words = ("run", "--verify", "--records", records, "--", *program)
    done = srun(site, tmp_path, held_programs.command(Path(), *words))
    assert done.returncode == 0, done.stderr
    assert results(done) == [(task, "n1" if task < 2 else "n2") for task in range(4)], done.stderr
    kept = schema.read(records)
    for host in ("n1", "n2"):
        first, second = (
            set(placement["pus"]) for record in kept if record.host == host for placement in record.placement_found
        )
        assert first.isdisjoint(second)


def borrowing_image(folder: Path) -> tuple[Path, dict[str, str]]:
    """Return an image without programs, and the variables by which a user binds the host's, Open MPI's too.

    The ``firsttouch`` in it lets held programs go on.
    """
    file = folder / "opt/firsttouch/share/firsttouch/origin.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(asdict(build_info.copied_origin(paths.ROOT, os.uname().machine))))
    for name in ("dev", "etc", "proc", "root", "sbin", "sys", "tmp", "usr", "var"):
        (folder / name).mkdir()
    for name in ("bin", "lib", "lib64"):
        (folder / name).symlink_to(f"usr/{name}")
    write_program(folder / "sbin/firsttouch", f'exec {" ".join(held_programs.command(Path()))} "$@"')
    return folder, {"APPTAINER_BIND": f"/usr,{sys.base_prefix},/etc/alternatives,/etc/openmpi"}


@needs_two_pus
@pytest.mark.parametrize(("pmi", "library"), [("pmi2", "mpich"), ("pmix", "openmpi")])
def test_ranks_of_mpi_on_two_hosts(site: Site, tmp_path: Path, pmi: str, library: str) -> None:
    """firsttouch passes on what ranks need to find each other, such as PMI_FD."""
    check_ranks(site, tmp_path, held_programs.command(Path()), pmi, library)


@needs_two_pus
@pytest.mark.parametrize(("pmi", "library"), [("pmi2", "mpich"), ("pmix", "openmpi")])
def test_ranks_of_mpi_in_containers_of_two_hosts(
    site: Site, tmp_path: Path, apptainer: str, pmi: str, library: str
) -> None:
    """It reaches a program in a container, too: variables, file descriptors, and the folder of PMIx."""
    image, env = borrowing_image(tmp_path / "image")
    inside = [
        str(Path(sys.executable).with_name("firsttouch")),
        "inside",
        "--image",
        str(image),
        "apptainer",
        "--",
    ]
    check_ranks(site, tmp_path, inside, pmi, library, env=env)


def check_ranks(
    site: Site, folder: Path, command: list[str], pmi: str, library: str, *, env: Mapping[str, str] | None = None
) -> None:
    """Check four ranks on two hosts that *command* starts, a firsttouch that lets held programs go on."""
    program, records = mpi.program(library, folder), folder / "r.%t.jsonl"
    words = ("run", "--verify", "--records", str(records), "--", str(program), ".")
    done = srun(site, folder, [*command, *words], pmi=pmi, env=env)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} of 4: the sum is 10" for rank in range(4)]
    assert results(done) == [(task, "n1" if task < 2 else "n2") for task in range(4)], done.stderr
    task_records = [schema.read(folder / f"r.{task}.jsonl") for task in range(4)]
    assert [(record.host, record.status) for (record,) in task_records] == [
        (host, "valid") for _, host in results(done)
    ]
