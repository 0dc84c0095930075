# SPDX-License-Identifier: Apache-2.0
"""What Slurm is asked and told: which job this is, which jobs are active, how others ended, and sbatch."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firsttouch.errors import BadInput, Missing, RunFailed, TimedOut
from firsttouch.tools import run_tool

#: Seconds that a busy controller may take for an answer.
_PATIENCE = 60
_NO_ANSWER = f"no answer within {_PATIENCE} s"
#: Seconds before each look for a job that sbatch did not live to tell of.
_LOOKS = (0, 5, 20)
#: What Slurm says where it knows no such job any more.
_UNKNOWN = re.compile(r"invalid job id|job/step already completing", re.IGNORECASE)


NO_SLURM = "there is no Slurm here: 'sbatch' is not on PATH"


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
        if "SLURM_JOB_ID" not in os.environ:
            return None
        job = _number("SLURM_JOB_ID", 0)
        return cls(
            job=str(job),
            array=str(_number("SLURM_ARRAY_JOB_ID", job)),
            restarts=_number("SLURM_RESTART_COUNT", 0),
            elements=_number("SLURM_ARRAY_TASK_COUNT", 1),
            hosts=_number("SLURM_JOB_NUM_NODES", 1),
        )

    @property
    def alone(self) -> bool:
        """Tell whether no other job or host was asked for together with this one."""
        return self.elements == 1 and self.hosts == 1


def _number(variable: str, otherwise: int) -> int:
    text = os.environ.get(variable, str(otherwise))
    if not text.isdecimal():
        raise BadInput(f"{variable} is {text!r}, not a number: Slurm sets it in its jobs, nobody else should")
    return int(text)


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
    """How Slurm accounts for one try of a job (of an *array*): its state (``NODE_FAIL``), exit code and hosts.

    *waits_for* is Slurm's reason why it has not begun.
    """

    job: str
    array: str
    state: str
    exit_code: str
    hosts: str
    waits_for: str = ""

    @property
    def text(self) -> str:
        """The state in words, with what a person does not see from it."""
        meaning = _MEANINGS.get(self.state, "") + (f": {self.waits_for}" if self.waits_for else "")
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
    rows = [row for row in (line.split("|") for line in said) if len(row) == 5 and row[0].isdecimal()]
    reasons = waiting(row[0] for row in rows if row[2] == "PENDING")
    return [
        Ended(row[0], row[1].split("_")[0], row[2].split(" ")[0], row[3], row[4], reasons.get(row[0], ""))
        for row in rows
    ]


def submit(argv: Sequence[str], *, cwd: Any = None) -> str:
    """Run ``sbatch --parsable`` with *argv* and return the job's number; raises RunFailed with its reason.

    A job that a slow controller took, though sbatch did not live to say so, is found by its comment.
    """
    mark = f"firsttouch-{secrets.token_hex(8)}"
    said = _ask(["sbatch", "--parsable", f"--comment={mark}", *argv], cwd=cwd, env=_outside())
    if said == _NO_ANSWER and (job := _marked(mark)):
        return job
    if isinstance(said, str):
        raise RunFailed(f"sbatch: {said}")
    number = said[-1].split(";")[0] if said else ""
    if not number.isdecimal():
        raise RunFailed(f"sbatch: it printed no job number but {' '.join(said)!r}")
    return number


def _marked(mark: str) -> str:
    """Return the number of our job with this comment, or an empty text."""
    for wait in _LOOKS:
        time.sleep(wait)
        said = _ask(["squeue", "-h", "-t", "all", "-u", str(os.getuid()), "-O", "JobID:32,Comment:64"])
        rows = [] if isinstance(said, str) else [line.split() for line in said]
        if job := next((row[0] for row in rows if row[1:] == [mark]), ""):
            return job
    return ""


def waiting(jobs: Iterable[str]) -> Mapping[str, str]:
    """Return why those of *jobs* wait that do, as far as squeue says so."""
    wanted = sorted(set(jobs))
    said = _ask(["squeue", "-h", "-t", "PENDING", "-j", ",".join(wanted), "-o", "%A|%r"]) if wanted else []
    rows = [] if isinstance(said, str) else [line.split("|", 1) for line in said]
    return {row[0]: row[1] for row in rows if len(row) == 2}


def unavailable(hosts: Sequence[str]) -> Mapping[str, str]:
    """Return state and reason of those of *hosts* on which no job can start until somebody does something."""
    said = _ask(["sinfo", "-h", "-N", "-n", ",".join(hosts), "-o", "%N|%T|%E"])
    rows = [] if isinstance(said, str) else [line.split("|", 2) for line in said]
    return {
        row[0]: row[1] + (f": {row[2]}" if row[2] != "none" else "")
        for row in rows
        if len(row) == 3 and row[0] in hosts and re.match("down|drain|fail|error|future|inval", row[1])
    }


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
        done = run_tool(argv, cwd=cwd, env=env, timeout=_PATIENCE)
    except Missing as error:
        if argv[0] == "sbatch":
            raise Missing(NO_SLURM) from error
        return f"'{argv[0]}' is not on PATH"
    except TimedOut:
        return _NO_ANSWER
    if done.returncode:
        return " ".join((done.stderr or done.stdout).split()) or f"status {done.returncode}"
    return done.stdout.splitlines()
