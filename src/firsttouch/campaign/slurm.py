# SPDX-License-Identifier: Apache-2.0
"""What Slurm is asked and told: which job this is, which jobs are active, how others ended, and sbatch."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firsttouch.errors import Missing, RunFailed

#: Seconds that a busy controller may take for an answer.
_PATIENCE = 60
#: What Slurm says where it knows no such job any more.
_UNKNOWN = re.compile(r"invalid job id|job/step already completing", re.IGNORECASE)


@dataclass(frozen=True)
class Job:
    """The job that this process is part of.

    *job* is its own number, *array* that of the whole array (its own where it is of none): what sacct and a
    dependency name. *restarts* counts how often it was requeued.
    """

    job: str
    array: str
    restarts: int
    elements: int
    hosts: int

    @classmethod
    def here(cls) -> Job | None:
        """Return the job of this process, None outside of Slurm."""
        env = os.environ
        if "SLURM_JOB_ID" not in env:
            return None
        return cls(
            job=env["SLURM_JOB_ID"],
            array=env.get("SLURM_ARRAY_JOB_ID", env["SLURM_JOB_ID"]),
            restarts=int(env.get("SLURM_RESTART_COUNT", "0")),
            elements=int(env.get("SLURM_ARRAY_TASK_COUNT", "1")),
            hosts=int(env.get("SLURM_JOB_NUM_NODES", "1")),
        )

    @property
    def alone(self) -> bool:
        """Tell whether no other job or host was asked for together with this one."""
        return self.elements == 1 and self.hosts == 1


def active(jobs: Iterable[str]) -> Mapping[str, tuple[str, int]] | None:
    """Return (state, restarts) of those of *jobs* that have not ended, or None where Slurm cannot be asked."""
    wanted = sorted(set(jobs))
    if not wanted:
        return {}
    said = _ask(["squeue", "-h", "-j", ",".join(wanted), "-O", "JobID:32,State:32,RestartCnt:16"])
    if isinstance(said, str):
        return {} if _UNKNOWN.search(said) else None
    rows = [line.split() for line in said]
    return {row[0]: (row[1], int(row[2])) for row in rows if len(row) == 3 and row[2].isdecimal()}


@dataclass(frozen=True)
class Ended:
    """How Slurm accounts for one try of a job (of an *array*): its state (``NODE_FAIL``), exit code and hosts."""

    job: str
    array: str
    state: str
    exit_code: str
    hosts: str

    @property
    def text(self) -> str:
        """The state in words, with what a person does not see from it."""
        meaning = _MEANINGS.get(self.state, "")
        code = f" with {self.exit_code}" if self.state == "FAILED" else ""
        return f"job {self.job} {self.state}{code}" + (f" ({meaning})" if meaning else "")


_MEANINGS = {
    "NODE_FAIL": "its host died",
    "TIMEOUT": "its time limit",
    "CANCELLED": "somebody cancelled it",
    "PREEMPTED": "another job took its host",
    "REQUEUED": "it was put back into the queue",
    "OUT_OF_MEMORY": "it used more memory than it had",
    "PENDING": "it waits",
    "RUNNING": "it is under way",
}


def accounted(jobs: Iterable[str]) -> list[Ended] | None:
    """Return every try of *jobs* (arrays: of all elements), oldest first; None where sacct does not answer."""
    wanted = sorted(set(jobs))
    if not wanted:
        return []
    fields = "JobIDRaw,JobID,State,ExitCode,NodeList"
    said = _ask(["sacct", "-nPXD", "-S", "now-365days", "-j", ",".join(wanted), "-o", fields])
    if isinstance(said, str):
        return None
    rows = [line.split("|") for line in said]
    return [
        Ended(row[0], row[1].split("_")[0], row[2].split(" ")[0], row[3], row[4]) for row in rows if len(row) == 5
    ]


def submit(argv: Sequence[str], *, cwd: Any = None) -> str:
    """Run ``sbatch --parsable`` with *argv* and return the job's number; raises RunFailed with its reason."""
    said = _ask(["sbatch", "--parsable", *argv], cwd=cwd, env=_outside())
    if isinstance(said, str):
        raise RunFailed(f"sbatch: {said}")
    return said[-1].split(";")[0]


def node(name: str) -> Mapping[str, str]:
    """Return what Slurm says of a host: State, Reason and so on; raises RunFailed where it does not answer."""
    said = _ask(["scontrol", "--oneliner", "show", "node", name])
    if isinstance(said, str):
        raise RunFailed(f"scontrol show node {name}: {said}")
    if len(said) != 1 or (facts := _fields(said[0])).get("NodeName") != name:
        raise RunFailed(f"scontrol show node {name}: it answers with {len(said)} hosts")
    return facts


def reserved(reservation: str) -> list[str]:
    """Return the hosts of a reservation; raises RunFailed where Slurm knows none of that name."""
    said = _ask(["scontrol", "--oneliner", "show", "reservation", reservation])
    if isinstance(said, str):
        raise RunFailed(f"scontrol show reservation {reservation}: {said}")
    named = (_fields(line) for line in said)
    return [host for r in named if r.get("ReservationName") == reservation for host in hostnames(r["Nodes"])]


def _fields(line: str) -> dict[str, str]:
    # Values hold spaces (Reason=a b [user@time]): one ends where the next KEY= begins.
    return {m[1]: m[2].strip() for m in re.finditer(r"(\w+)=(.*?)(?=\s\w+=|$)", line)}


def run(argv: Sequence[str]) -> None:
    """Run a command of Slurm; raises RunFailed with its reason."""
    said = _ask(argv)
    if isinstance(said, str):
        raise RunFailed(f"{argv[0]}: {said}")


def hostnames(expression: str) -> list[str]:
    """Return the hosts of an expression such as n[1-8]; raises RunFailed."""
    said = _ask(["scontrol", "show", "hostnames", expression])
    if isinstance(said, str):
        raise RunFailed(f"scontrol show hostnames: {said}")
    return [line for line in said if line]


def _outside() -> dict[str, str]:
    """Return the environment without this job's own: a job that it submits is not part of it."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_")) or k in _KEPT}


_KEPT = frozenset(
    {"SLURM_CONF", "SBATCH_PARTITION", "SBATCH_ACCOUNT", "SBATCH_QOS", "SBATCH_RESERVATION", "SBATCH_TIMELIMIT"}
)


def _ask(argv: Sequence[str], *, cwd: Any = None, env: Mapping[str, str] | None = None) -> list[str] | str:
    """Return the lines that a command of Slurm printed, or why it failed as a text."""
    try:
        done = subprocess.run(
            argv,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    except FileNotFoundError as error:
        if argv[0] == "sbatch":
            raise Missing("there is no Slurm here: 'sbatch' is not on PATH") from error
        return f"'{argv[0]}' is not on PATH"
    except subprocess.TimeoutExpired:
        return f"no answer within {_PATIENCE} s"
    if done.returncode:
        return " ".join((done.stderr or done.stdout).split()) or f"status {done.returncode}"
    return done.stdout.splitlines()
