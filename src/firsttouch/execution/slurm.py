# SPDX-License-Identifier: Apache-2.0
"""Slurm's commands: the job of this process, active and ended jobs, hosts, reservations, and sbatch."""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from firsttouch import paths
from firsttouch.clock import SYSTEM_CLOCK, Clock
from firsttouch.errors import BadInput, Missing, RunFailed, TimedOut
from firsttouch.host.grant import number_of_job
from firsttouch.host.host_lists import fold, unfold
from firsttouch.tools import run_tool

#: Seconds that a busy controller may take to answer.
_PATIENCE = 60
#: Delays (s) before each search for a job whose sbatch did not return in time.
_LOOKS = (0, 5, 20)
#: Slurm's message for a job that it does not know any more.
_UNKNOWN = re.compile(r"invalid job id|job/step already completing", re.IGNORECASE)
#: Slurm's messages about a controller that does not answer.
_UNANSWERED = re.compile("timed out|unable to contact|communication|connection", re.IGNORECASE)
#: The prefix of Slurm's messages, and messages of a host that finds no controller.
_SEVERITY = re.compile(r"^\w+: (?:error|fatal): ")
_UNREACHABLE = re.compile("unable to contact slurm controller|establish a configuration source", re.IGNORECASE)
#: The text of a reason, its author and its time.
_REASON = re.compile(r".*?\[[^\s\]]+@[^\]]*\]")
#: Slurm's message while jobs still use a reservation, and the delays (s) before further tries.
_IN_USE = re.compile(r"in use", re.IGNORECASE)
_LETS_GO = (0.2, 0.5, 1, 2, 4)
#: More hosts than this are written as ranges, because the length of an argument is limited.
_MOST_LISTED = 500
#: Variables that a job passes on to the jobs that it submits.
_KEPT = frozenset(
    {"SLURM_CONF", "SBATCH_PARTITION", "SBATCH_ACCOUNT", "SBATCH_QOS", "SBATCH_RESERVATION", "SBATCH_TIMELIMIT"}
)
#: States of a job that has ended or is about to.
ENDING = frozenset({"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL"})


def require(program: str = "sbatch", *, instead: str = "") -> None:
    """Raise Missing if *program* of Slurm is not on PATH; *instead* names an alternative."""
    if shutil.which(program) is None:
        raise Missing(_no_slurm(program) + (f"; {instead}" if instead else ""))


def require_answer() -> None:
    """Raise RunFailed if the controller does not answer; without sinfo it is not asked."""
    if shutil.which("sinfo") is not None:
        _lines(["sinfo", "-h", "-o", "%v"])


def _no_slurm(program: str) -> str:
    return f"there is no Slurm here: '{program}' is not on PATH"


class SlurmJob(Struct, frozen=True):
    """The job of this process.

    *job* is its number, *array* the number of the whole array (or of the job), which sacct and dependencies use.
    *restarts* counts its requeues, *elements* the elements of the array.
    """

    job: str
    array: str
    restarts: int
    elements: int
    hosts: int

    @classmethod
    def here(cls) -> SlurmJob | None:
        """Return the job of this process, None outside of Slurm; raises BadInput for odd SLURM_* variables."""
        if "SLURM_JOB_ID" not in os.environ:
            return None
        job = number_of_job("SLURM_JOB_ID", 0)
        return cls(
            job=str(job),
            array=str(number_of_job("SLURM_ARRAY_JOB_ID", job)),
            restarts=number_of_job("SLURM_RESTART_COUNT", 0),
            elements=number_of_job("SLURM_ARRAY_TASK_COUNT", 1),
            hosts=number_of_job("SLURM_JOB_NUM_NODES", 1),
        )

    @property
    def alone(self) -> bool:
        """Whether it is a job of one host and not part of an array."""
        return self.elements == 1 and self.hosts == 1


def hosts_of_step() -> list[str]:
    """Return the hosts on which srun started this command, none outside of srun."""
    listed = os.environ.get("SLURM_STEP_NODELIST", "")
    return unfold(listed) if listed else []


def end_of_job() -> float | None:
    """Return when Slurm ends this job (seconds since 1970); None without a job, a limit or an answer."""
    if "SLURM_JOB_ID" not in os.environ:
        return None
    if (end := os.environ.get("SLURM_JOB_END_TIME", "")).isdecimal():
        return float(end)
    with contextlib.suppress(RunFailed, ValueError):
        lines = _lines(["squeue", "-h", "-j", os.environ["SLURM_JOB_ID"], "-o", "%e"])
        return datetime.datetime.fromisoformat(lines[0].strip()).timestamp() if lines else None
    return None


class Ended(Struct, frozen=True):
    """Slurm's accounting of one try of a job (of an *array*): state (``NODE_FAIL``), exit code and hosts.

    *waits_for* is Slurm's reason why the job is pending.
    """

    job: str
    array: str
    state: str
    exit_code: str
    hosts: str
    waits_for: str = ""

    @property
    def text(self) -> str:
        """The state with its meaning, as ``job 7 NODE_FAIL (its host died)``."""
        meaning = _MEANINGS.get(self.state, "") + (f": {self.waits_for}" if self.waits_for else "")
        code = f" with {self.exit_code}" if self.state == "FAILED" else ""
        return f"job {self.job} {self.state}{code}" + (f" ({meaning})" if meaning else "")


_MEANINGS = {
    "NODE_FAIL": "its host died",
    "TIMEOUT": "its time limit",
    "CANCELLED": "a user cancelled it",
    "PREEMPTED": "another job took its host",
    "REQUEUED": "it was requeued",
    "OUT_OF_MEMORY": "it used more memory than it had",
    "PENDING": "it waits",
    "RUNNING": "it is running",
}


def active(jobs: Iterable[str]) -> Mapping[str, tuple[str, int]] | None:
    """Return (state, restarts) of the *jobs* that have not ended, None if Slurm does not answer."""
    if not (numbers := ",".join(sorted(set(jobs)))):
        return {}
    try:
        rows = _rows(["squeue", "-h", "-j", numbers, "-O", "JobID:32,State:32,RestartCnt:16"], None, 3)
    except RunFailed as error:
        return {} if _UNKNOWN.search(str(error)) else None
    return {job: (state, int(restarts)) for job, state, restarts in rows if restarts.isdecimal()}


def active_jobs(jobs: Iterable[str]) -> Mapping[str, str] | None:
    """Return the states of pending and running *jobs* (arrays: of all elements), None without an answer."""
    states = active(jobs)
    if states is None:
        return None
    return {job: state for job, (state, _) in states.items() if job.isdecimal() and state not in ENDING}


def job_tries(jobs: Iterable[str]) -> list[Ended] | None:
    """Return every try of *jobs* (for arrays: of all elements), oldest first; None if sacct does not answer."""
    if not (numbers := ",".join(sorted(set(jobs)))):
        return []
    fields = "JobIDRaw,JobID,State,ExitCode,NodeList"
    try:
        rows = _rows(["sacct", "-nPXD", "-S", "now-365days", "-j", numbers, "-o", fields], "|", 5)
    except RunFailed:
        return None
    rows = [row for row in rows if row[0].isdecimal()]
    reasons = _reasons(row[0] for row in rows if row[2] == "PENDING")
    return [
        Ended(job, element.split("_")[0], state.split(" ")[0], code, hosts, reasons.get(job, ""))
        for job, element, state, code, hosts in rows
    ]


def _reasons(jobs: Iterable[str]) -> Mapping[str, str]:
    """Return Slurm's reasons why *jobs* are pending."""
    if not (numbers := ",".join(sorted(set(jobs)))):
        return {}
    with contextlib.suppress(RunFailed):
        return dict(_rows(["squeue", "-h", "-t", "PENDING", "-j", numbers, "-o", "%A|%r"], "|", 2))
    return {}


def submit(
    argv: Sequence[str], *, cwd: Path | None = None, fds: Sequence[int] = (), clock: Clock = SYSTEM_CLOCK
) -> str:
    """Run ``sbatch --parsable`` with *argv* and return the job's number; raises RunFailed with sbatch's reason.

    *fds* stay open in sbatch. If it does not return in time, the job is searched by its comment, because the
    controller may have accepted it.
    """
    comment = f"firsttouch-{secrets.token_hex(8)}"
    # The new job is not part of this one.
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_")) or k in _KEPT}
    env |= paths.for_jobs()
    try:
        lines = _lines(["sbatch", "--parsable", f"--comment={comment}", *argv], cwd=cwd, env=env, fds=fds)
    except TimedOut:
        if job := _job_with(comment, clock):
            return job
        raise
    number = lines[-1].split(";")[0] if lines else ""
    if not number.isdecimal():
        raise RunFailed(f"sbatch printed {' '.join(lines)!r} instead of a job number")
    return number


def _job_with(comment: str, clock: Clock) -> str:
    """Return the number of this user's job with *comment*, "" without one."""
    argv = ["squeue", "-h", "-t", "all", "-u", str(os.getuid()), "-O", "JobID:32,Comment:64"]
    for wait in _LOOKS:
        clock.sleep(wait)
        with contextlib.suppress(RunFailed):
            for job, text in _rows(argv, None, 2):
                if text == comment:
                    return job
    return ""


#: States of a host that accepts no jobs, of a reserved one, and of one that Slurm does not reach now.
_OUT_OF_SERVICE = re.compile("DOWN|DRAIN|FAIL|ERROR|FUTURE|INVAL")
_RESERVED = re.compile("MAINT|RESERVED|RESV")
_AWAY = re.compile("UNK|NOT_RESP|POWER(ED|ING)_DOWN|REBOOT")


class Node(Struct, frozen=True):
    """A host as Slurm knows it: its *name*, *states*, such as IDLE and DRAIN, and the *reason* of its state."""

    name: str
    states: frozenset[str]
    reason: str = ""

    @classmethod
    def from_state(cls, name: str, state: str, reason: str = "") -> Node:
        """Return the host by the text of its *state*, such as ``IDLE+DRAIN`` or ``down*``."""
        words = frozenset(re.split(r"[+*~#!%$@^-]", state.upper())) - {""}
        return cls(name, words, "" if reason == "none" else reason)

    @property
    def out_of_service(self) -> list[str]:
        """The states in which the host accepts no jobs, except reservations."""
        return sorted(filter(_OUT_OF_SERVICE.match, self.states))

    @property
    def reserved(self) -> list[str]:
        """The states of its reservations."""
        return sorted(filter(_RESERVED.match, self.states))

    @property
    def away(self) -> list[str]:
        """The states in which Slurm does not reach the host now."""
        return sorted(filter(_AWAY.match, self.states))

    @property
    def is_drained(self) -> bool:
        """Whether somebody has drained it."""
        return any(state.startswith("DRAIN") for state in self.states)

    def text(self, states: Sequence[str]) -> str:
        """Return *states* with their reason, "" for none."""
        return "+".join(states) + (f": {self.reason}" if states and self.reason else "")


def unavailable(hosts: Sequence[str], reservation: str = "") -> Mapping[str, str]:
    """Return why some of *hosts* accept no jobs: they are down, drained, or reserved.

    Jobs that may use a *reservation* (or several, comma-separated) can run on its hosts.
    """
    reasons: dict[str, str] = {}
    with contextlib.suppress(RunFailed):
        for name, held in reservations().items():
            if held.active and name not in reservation.split(","):
                reasons |= dict.fromkeys(held.hosts, f"reserved ({name}) until {held.end or 'it is released'}")
    for node in _states(hosts):
        if node.out_of_service:
            reasons[node.name] = node.text([state.lower() for state in node.out_of_service])
    return {host: reasons[host] for host in hosts if host in reasons}


def down(hosts: Sequence[str]) -> set[str]:
    """Return the *hosts* that are down and run no jobs. The list is empty if Slurm does not answer."""
    return {node.name for node in _states(hosts) if "DOWN" in node.states}


def _states(hosts: Sequence[str]) -> list[Node]:
    """Return the states of *hosts* by sinfo, none without an answer."""
    rows: list[list[str]] = []
    wanted = set(hosts)
    listed = ",".join(hosts) if len(hosts) < _MOST_LISTED else fold(hosts)
    with contextlib.suppress(RunFailed):
        rows = _rows(["sinfo", "-h", "-N", "-n", listed, "-o", "%N|%T|%E"], "|", 3)
    return [Node.from_state(*row) for row in rows if row[0] in wanted]


def nodes(partition: str = "") -> Mapping[str, Node]:
    """Return all hosts (of a *partition*); raises RunFailed."""
    only = ["-p", partition] if partition else []
    rows = _rows(["sinfo", "-h", "-N", *only, "-O", "NodeList:256,StateComplete:256"], None, 2)
    return {name: Node.from_state(name, state) for name, state in rows}


def states_by_host(name: str) -> dict[str, str]:
    """Return the states of all users' pending and running jobs of a *name*, by the requested hosts.

    Raises RunFailed.
    """
    hosts: dict[str, str] = {}
    for state, asked, allocated in _rows(["squeue", "-h", "-r", "-n", name, "-o", "%T|%n|%N"], "|", 3):
        with contextlib.suppress(BadInput):  # a job without hosts
            hosts |= dict.fromkeys(unfold(allocated or asked), state)
    return hosts


def node(name: str) -> Node:
    """Return a host; raises RunFailed if Slurm does not know it."""
    argv = ["scontrol", "--oneliner", "show", "node", name]
    lines = _lines(argv, title=f"scontrol show node {name}")
    if len(lines) != 1 or (facts := _fields(lines[0])).get("NodeName") != name:
        raise RunFailed(f"scontrol show node {name}: the answer has {len(lines)} hosts")
    return Node.from_state(name, facts.get("State", ""), facts.get("Reason", ""))


def reserved_hosts(reservation: str) -> list[str]:
    """Return the hosts of a reservation; raises RunFailed if Slurm does not know it."""
    argv = ["scontrol", "--oneliner", "show", "reservation", reservation]
    facts = map(_fields, _lines(argv, title=f"scontrol show reservation {reservation}"))
    return [host for r in facts if r.get("ReservationName") == reservation for host in unfold(r["Nodes"])]


class Reservation(Struct, frozen=True):
    """A reservation: its *hosts*, whether it is active now, and when it ends ("": unknown)."""

    hosts: tuple[str, ...]
    active: bool
    end: str = ""


def reservations() -> dict[str, Reservation]:
    """Return all reservations by name; raises RunFailed if Slurm does not answer."""
    lines = _lines(["scontrol", "--oneliner", "show", "reservation"], title="scontrol show reservation")
    return {
        facts["ReservationName"]: Reservation(
            () if facts.get("Nodes", "(null)") in {"", "(null)"} else tuple(unfold(facts["Nodes"])),
            facts.get("State", "ACTIVE") == "ACTIVE",
            facts.get("EndTime", ""),
        )
        for facts in map(_fields, lines)
        if "ReservationName" in facts
    }


def reserve(name: str, host: str, user: str, *, fds: Sequence[int] = ()) -> None:
    """Reserve a host for the jobs of *user*, without an end; running jobs continue. Raises RunFailed."""
    what = (f"reservation={name}", f"nodes={host}", f"users={user}")
    when = ("starttime=now", "duration=unlimited", "flags=maint,ignore_jobs")
    run(("scontrol", "create", *what, *when), fds=fds)


def unreserve(name: str, *, fds: Sequence[int] = (), clock: Clock = SYSTEM_CLOCK) -> None:
    """Delete a reservation, once its last jobs have ended; raises RunFailed."""
    for wait in (*_LETS_GO, None):
        try:
            return run(("scontrol", "delete", f"reservation={name}"), fds=fds)
        except RunFailed as error:
            if wait is None or not _IN_USE.search(str(error)):
                raise
            clock.sleep(wait)
    return None


def jobs_called(name: str, since: float) -> list[str]:
    """Return the numbers of the jobs with this name that were submitted after *since* (seconds since 1970).

    Raises RunFailed if squeue does not answer; sacct is optional.
    """
    jobs = {row[0] for row in _rows(["squeue", "-h", "-t", "all", f"--name={name}", "-O", "JobID:32"], None, 1)}
    begin = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since - 60))
    with contextlib.suppress(RunFailed):
        jobs |= {
            row[0] for row in _rows(["sacct", "-nPX", "-S", begin, f"--name={name}", "-o", "JobIDRaw"], "|", 1)
        }
    return sorted((job for job in jobs if job.isdecimal()), key=int)


def _fields(line: str) -> dict[str, str]:
    """Return the fields of a line of ``scontrol --oneliner``.

    A value may hold spaces and ends before the next KEY=. Text of users (Reason=a b [user@time], Comment=…) comes
    last and may contain KEY=, so the first value of a key is used, and a reason ends with its user and time.
    """
    head, mark, tail = line.partition(" Reason=")
    facts: dict[str, str] = {}
    if mark:
        reason = _REASON.match(tail)
        end = reason.end() if reason else len(tail)
        facts["Reason"] = tail[:end].strip()
        head += tail[end:]
    for field in re.finditer(r"(\w+)=(.*?)(?=\s\w+=|$)", head):
        facts.setdefault(field[1], field[2].strip())
    return facts


def partition() -> str:
    """Return the partition of this job, "default" without one."""
    return os.environ.get("SLURM_JOB_PARTITION", "default")


def run(argv: Sequence[str], *, fds: Sequence[int] = ()) -> None:
    """Run a command of Slurm, in which *fds* stay open; raises RunFailed with its reason."""
    _lines(argv, fds=fds)


def is_unanswered(error: RunFailed) -> bool:
    """Return whether a command failed without an answer, so that Slurm may have executed it."""
    return _UNANSWERED.search(str(error)) is not None


def _rows(argv: Sequence[str], separator: str | None, columns: int) -> list[list[str]]:
    """Return the output of a command as rows; lines with another number of columns are left out."""
    rows = (line.strip().split(separator, columns - 1) for line in _lines(argv))
    return [row for row in rows if len(row) == columns]


def _lines(
    argv: Sequence[str],
    *,
    title: str = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    fds: Sequence[int] = (),
) -> list[str]:
    """Return the lines that a command of Slurm prints; raises RunFailed as ``title: reason``.

    *title* is the command's name by default. Raises Missing without sbatch.
    """
    title = title or argv[0]
    try:
        done = run_tool(argv, cwd=cwd, env=env, timeout=_PATIENCE, fds=fds)
    except Missing as error:
        if argv[0] == "sbatch":
            raise Missing(_no_slurm("sbatch")) from error
        raise RunFailed(f"{title}: '{argv[0]}' is not on PATH") from error
    except TimedOut as error:
        raise TimedOut(f"{title}: no answer within {_PATIENCE} s") from error
    if done.returncode:
        raise RunFailed(f"{title}: {_message(done.stderr or done.stdout) or f'status {done.returncode}'}")
    return done.stdout.splitlines()


def _message(text: str) -> str:
    """Return the messages of a Slurm command as one line; without Slurm, only that it cannot be reached."""
    lines = [" ".join(_SEVERITY.sub("", line).split()) for line in text.splitlines() if line.strip()]
    if unreachable := next((line for line in lines if _UNREACHABLE.search(line)), ""):
        return f"Slurm cannot be reached from this host: {unreachable}"
    return "; ".join(dict.fromkeys(lines))
