# SPDX-License-Identifier: Apache-2.0
"""The tasks that srun or mpirun starts: each has its own PUs, and one result tells of all of them.

A step of srun with several tasks on a host starts this program once for each, as mpirun does for its ranks. The
tasks meet in a folder of the user on this host: each states which PUs it was granted, and waits for the others.
Tasks with the same grant divide it; what was bound to a task stays that task's. The last one that ends reports
what all of them left. The hosts of a step may meet too, in a folder that they share: one result tells of them all.
"""

from __future__ import annotations

import contextlib
import glob
import itertools
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from firsttouch import paths
from firsttouch.clock import SYSTEM_CLOCK, Clock
from firsttouch.errors import BadInput, RunFailed, first_of
from firsttouch.execution.child_process import name_of
from firsttouch.execution.host_lock import ancestors
from firsttouch.execution.progress import say
from firsttouch.host.cpusets import format_list
from firsttouch.host.emulation import host_name
from firsttouch.host.grant import number_of_job, numbers_of_job
from firsttouch.host.topology import Topology
from firsttouch.records import atomic_files
from firsttouch.records.file_lock import lock, locked, try_lock
from firsttouch.scenarios.placement import Placement

#: Seconds within which all tasks of a step must begin, and before the wait is reported.
_PATIENCE, _REPORTED = 120.0, 5.0
#: Seconds between looks for the others, at first and at most: many tasks look while one of them still starts.
_PAUSE, _LONGEST_PAUSE = 0.02, 0.25
#: Seconds after which a folder that no task holds any more is removed.
_LEFT_OVER = 3600.0
#: The most bytes of a line with the number of a meeting and a process.
_LINE = 64
#: Bytes that each member keeps for its result, because programs may fill the disk.
_ROOM = 64 << 10
#: Tasks or hosts that are printed.
_DESCRIBED = 16
#: Slurm's variables in each task.
_OF_SRUN = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_PROCID")
#: Those of Open MPI and of Hydra (MPICH, Intel MPI) in each rank: its number on this host, how many ranks are on
#: this host, its number among all ranks, and how many these are.
_OF_MPIRUN = (
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_RANK", "PMI_SIZE"),
)

#: The beginnings of the names of what starts ranks on a host: mpirun, and helpers of Open MPI, PRRTE and Hydra.
_MPIRUN = ("mpirun", "mpiexec", "orterun", "orted", "prterun", "prted", "hydra_")
#: The options by which launchers bind each task to its own cores, and none.
_BINDING = {
    "srun": ("--cpu-bind=cores", "--cpu-bind=none"),
    "mpirun": ("--bind-to core", "--bind-to none"),
}


class Meeting(Struct, frozen=True):
    """Tasks of a host, or hosts of a step, which meet in *folder*: this is number *local* of *count*.

    *hosts* are the names of the members if they are hosts, so that they share the folder.
    """

    local: int
    count: int
    folder: Path
    hosts: tuple[str, ...] = ()

    @contextlib.contextmanager
    def attended(self) -> Iterator[None]:
        """Be a living member. Several processes may be the same member; the kernel notices when all have ended."""
        handle = _opened(self.folder / f"task.{self.local}")
        try:
            lock(handle, shared=True)
            yield
        finally:
            os.close(handle)
            # On NFS, files that are open here cannot go, so every member tries.
            shutil.rmtree(self._over, ignore_errors=True)

    @property
    def _over(self) -> Path:
        """What the folder is called when all members have ended."""
        return self.folder.with_name(f"{self.folder.name}.ended")

    def exchanged(
        self, statement: object, clock: Clock = SYSTEM_CLOCK, *, patience: float = _PATIENCE
    ) -> list[Any]:
        """Leave a *statement* (JSON) for the others, and return those of all members.

        Raises RunFailed if a member has not left any within *patience* (s).
        """
        (self.folder / f"room.{self.local}").write_bytes(bytes(_ROOM))
        atomic_files.write(self.folder / f"statement.{self.local}", json.dumps(statement))
        files = [self.folder / f"statement.{number}" for number in range(self.count)]
        begun, reported, pause = clock.monotonic(), False, _PAUSE
        missing = [*range(self.count)]
        while missing := [number for number in missing if not files[number].exists()]:
            waited = clock.monotonic() - begun
            if waited > patience:
                # The members that come later must not start without this one.
                files[self.local].unlink(missing_ok=True)
                raise RunFailed(self._absent(missing, patience))
            if waited > _REPORTED and not reported and self.local == min({*range(self.count)} - {*missing}):
                say(f"firsttouch: waiting for {self._named(missing)}")
                reported = True
            clock.sleep(pause)
            pause = min(1.5 * pause, max(_PAUSE, _LONGEST_PAUSE))
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]

    def _named(self, numbers: Sequence[int]) -> str:
        if self.hosts:
            return f"host{'s' * (len(numbers) > 1)} {first_of([self.hosts[n] for n in numbers], _DESCRIBED)}"
        return f"task{'s' * (len(numbers) > 1)} {format_list(numbers)} of this host"

    def _absent(self, missing: Sequence[int], patience: float) -> str:
        if self.hosts:
            return (
                f"{self._named(missing)} did not appear in {self.folder.parent.absolute()} within {patience:g} s: "
                "let all tasks of a step start firsttouch, with --joined in a folder that their hosts share"
            )
        return (
            f"{self._named(missing)} did not start firsttouch within {patience:g} s: let all tasks of a step "
            "start it, with the same TMPDIR"
        )

    def ended(
        self, result: Mapping[str, Any] | None, keep: Callable[[list[Any]], None] = lambda _: None
    ) -> list[Any] | None:
        """Leave the *result* of this member, and *keep* those that are there; the last one gets all results.

        None is a member without a result: it was killed, exceeded its time, or (to be kept) has not ended yet.
        """
        files = [self.folder / f"result.{number}" for number in range(self.count)]
        (self.folder / f"room.{self.local}").unlink(missing_ok=True)
        atomic_files.write(files[self.local], json.dumps(result))
        try:
            with locked(self.folder / "report.lock"):
                # Another member has reported this result while this one waited.
                if not files[self.local].exists() or (self.folder / f"told.{self.local}").exists():
                    return None
                has_ended = all(self._has_ended(number) for number in range(self.count))
                results = [json.loads(f.read_text(encoding="utf-8")) if f.exists() else None for f in files]
                keep(results)
                if not has_ended:
                    return None
                # On file systems without locks between hosts, a host that lives may seem to have ended.
                if not self.hosts or all(file.exists() for file in files):
                    # At once: a member that opens the lock while files are removed would create it anew.
                    self.folder.rename(self._over)
                else:
                    for number, file in enumerate(files):
                        if file.exists():
                            (self.folder / f"told.{number}").touch()
        except FileNotFoundError:  # another member has reported
            return None
        return results

    def _has_ended(self, number: int) -> bool:
        return (self.folder / f"result.{number}").exists() or not _is_held(self.folder / f"task.{number}")


class Step(Struct, frozen=True):
    """What srun or mpirun started: this task is number *number* of all, and meets the *tasks* of this host.

    *hosts* is the meeting of the step's hosts, if there is one result for all of them. *launcher* is ``srun`` or
    ``mpirun``; *pus* are those that mpirun itself may use, None for srun. *joined* is the file of one result.
    """

    tasks: Meeting
    number: int
    hosts: Meeting | None = None
    launcher: str = "srun"
    pus: frozenset[int] | None = None
    joined: Path | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the hosts whose results are joined."""
        return self.hosts.hosts if self.hosts else (host_name(),)

    @property
    def is_first(self) -> bool:
        """Whether no other task states anything for the others before this one does."""
        return self.tasks.local == 0 and (self.hosts is None or self.hosts.local == 0)

    def grants(self, own: frozenset[int]) -> dict[int, frozenset[int]]:
        """State the PUs that this task may use, and return those of each task of this host by its number.

        Raises RunFailed if a task or a host has not begun after two minutes, and BadInput if the tasks name
        different files of one result.
        """
        absent = ""
        if self.hosts and self.tasks.local == 0:
            try:
                self.hosts.exchanged(host_name())
            except RunFailed as error:  # the other tasks of this host wait for this one
                absent = str(error)
        stated = [self.number, sorted(own), self.joined and str(self.joined.absolute()), absent]
        # The first task may wait for other hosts, and says so itself.
        statements = self.tasks.exchanged(stated, patience=(2 if self.hosts else 1) * _PATIENCE)
        if absent := next(filter(None, (absent for *_, absent in statements)), ""):
            raise RunFailed(absent)
        if len(files := {file for *_, file, _ in statements}) > 1:
            named = ", ".join(sorted(file or "none" for file in files))
            raise BadInput(f"--joined has one file for all tasks, and they name {named}")
        return {number: frozenset(pus) for number, pus, *_ in statements}


class _Launched(Struct, frozen=True):
    """What the variables of srun or mpirun state about this task; *name* differs between steps on a host.

    *nodes* has the tasks of each host, and *node* is the number of this one. *pus* as in Step.
    """

    local: int
    number: int
    nodes: Sequence[int]
    node: int
    name: str
    launcher: str
    pus: frozenset[int] | None = None


@contextlib.contextmanager
def of_this_step(joined: Path | None = None) -> Iterator[Step | None]:
    """Take part in what srun or mpirun started with this process; None without other tasks on this host.

    With *joined*, the file of one result for all hosts, tasks on other hosts count too. Raises BadInput for odd
    variables, if this task already takes part, as in a pipe of two programs, and if the hosts cannot be known.
    """
    launched = _by_mpirun(is_joined=joined is not None) or _by_srun()
    if not launched or launched.nodes[launched.node] == 1 >= (len(launched.nodes) if joined else 1):
        yield None
        return
    base = paths.private(f"firsttouch-tasks-{os.getuid()}-{os.uname().nodename}")
    folder = base / f"{launched.name}.{launched.node}"
    # Of an old folder of this step, other tasks may make use at this moment.
    _remove_left_over({*base.iterdir()} - {folder}, "*/task.*")
    folder.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(_meeting(folder, launched.local))
        tasks, hosts = Meeting(launched.local, launched.nodes[launched.node], place), None
        if joined and len(launched.nodes) > 1:
            # Those of jobs: the user may have hidden folders that begin in the same way.
            of_steps = joined.parent.glob(f".{glob.escape(joined.name)}{'.[0-9]*' * 4}")
            _remove_left_over([*of_steps, *atomic_files.unfinished(joined)], "task.*")
            from firsttouch.execution.slurm import hosts_of_step  # noqa: PLC0415 - most steps have one host

            names = tuple(hosts_of_step())
            if len(names) != len(launched.nodes):
                raise BadInput(f"SLURM_STEP_NODELIST has {len(names)} hosts, SLURM_STEP_TASKS_PER_NODE others")
            shared = joined.parent / f".{joined.name}.{launched.name}.{place.name}"
            shared.mkdir(exist_ok=True)
            hosts = Meeting(launched.node, len(names), shared, names)
            stack.enter_context(hosts.attended())
        stack.enter_context(tasks.attended())
        yield Step(tasks, launched.number, hosts, launched.launcher, launched.pus, joined)


def _by_srun() -> _Launched | None:
    """Return what srun states; None outside of its steps."""
    counts = os.environ.get("SLURM_STEP_TASKS_PER_NODE", "")
    if not counts or any(name not in os.environ for name in _OF_SRUN):
        return None
    job, step, local, node, number = map(number_of_job, _OF_SRUN)
    each = numbers_of_job("SLURM_STEP_TASKS_PER_NODE")
    if node >= len(each) or local >= each[node]:
        raise BadInput(f"SLURM_STEP_TASKS_PER_NODE is {counts!r}: it has no task {local} of host {node}")
    return _Launched(local, number, each, node, f"{job}.{number_of_job('SLURM_RESTART_COUNT')}.{step}", "srun")


def _by_mpirun(*, is_joined: bool) -> _Launched | None:
    """Return what mpirun states, which may have been started by srun; None without other ranks on this host."""
    names = next((names for names in _OF_MPIRUN if all(name in os.environ for name in names)), None)
    if names is None:
        return None
    # mpirun on one host has no number: its process, or that of its helper on this host, tells ranks of two apart.
    started_by = next((pid for pid in ancestors() if not _has_variable(pid, names[0])), 0)
    # A job or a shell that a rank has started has its variables as well.
    if started_by and not _is_mpirun(started_by):
        return None
    local, count, number, size = map(number_of_job, names)
    if local >= count:
        raise BadInput(f"{names[1]} is {count}: there is no rank {local} of this host")
    if is_joined and count < size:
        raise BadInput("mpirun does not state the hosts of its ranks: start them by srun, or leave --joined out")
    if count == 1:
        return None
    pus = frozenset[int]()
    with contextlib.suppress(OSError):
        pus = frozenset(os.sched_getaffinity(started_by)) if started_by else pus
    return _Launched(local, number, [count], 0, f"mpirun.{started_by}", "mpirun", pus)


def _is_mpirun(pid: int) -> bool:
    """Return whether a process starts ranks, by its name; False if it has ended."""
    try:
        return name_of(pid).startswith(_MPIRUN)
    except OSError:
        return False


def _has_variable(pid: int, name: str) -> bool:
    """Return whether a process was started with a variable; False if this cannot be read."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(variable.startswith(f"{name}=".encode()) for variable in variables)


@contextlib.contextmanager
def _meeting(folder: Path, local: int) -> Iterator[Path]:
    """Yield the place of the next meeting that task *local* takes part in.

    A task that starts this program again takes part in the next meeting. What it starts below this program has
    meetings of its own. Two at a time in one task, as in a pipe, would meet those of other tasks in any order.
    """
    level = ""
    while not try_lock(handle := _opened(folder / f"begun.{local}{level}")):
        holder = os.read(handle, _LINE).split()[1:]
        os.close(handle)
        if not {*map(int, holder)}.intersection(ancestors()):
            raise BadInput(
                f"task {local} of this host already runs a program by firsttouch, and it is unknown which program "
                "of the other tasks belongs to which: start firsttouch once, as in: exec -- sh -c 'A | B'"
            )
        level += ".inner"
    try:
        meeting = int((os.read(handle, _LINE).split() or [b"0"])[0])
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{meeting + 1} {os.getpid()}".encode(), 0)
        place = folder / f"{meeting}{level}"
        place.mkdir(exist_ok=True)
        yield place
    finally:
        os.close(handle)


def _opened(file: Path) -> int:
    """Return the descriptor of a file that is to be locked."""
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _remove_left_over(folders: Iterable[Path], members: str) -> None:
    """Remove those of *folders*, or files, that killed tasks have left; *members* matches their locks."""
    for folder in folders:
        with contextlib.suppress(OSError):  # they are gone, or another user's
            if time.time() - folder.stat().st_mtime > _LEFT_OVER and not any(map(_is_held, folder.glob(members))):
                atomic_files.remove(folder)


def _is_held(file: Path) -> bool:
    """Return whether a living task holds the lock on its *file*; one that has not begun counts as living."""
    try:
        handle = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        return not try_lock(handle)
    finally:
        os.close(handle)


def shares(grants: Sequence[frozenset[int]]) -> list[tuple[frozenset[int], int, int]]:
    """Return, for each task, its PUs, its place among the tasks with the same PUs, and how many these are."""
    return [
        (grant, sum(earlier == grant for earlier in grants[:number]), sum(same == grant for same in grants))
        for number, grant in enumerate(grants)
    ]


def overlap(grants: Mapping[int, frozenset[int]], launcher: str) -> str:
    """Return which tasks, by number, have different PUs that overlap, so that they disturb each other; or ""."""
    option = _BINDING[launcher]
    for (number, first), (other, second) in itertools.combinations(grants.items(), 2):
        if first != second and first & second:
            return (
                f"tasks {number} and {other} may both use PUs {format_list(first & second)}, and each keeps its "
                f"own: {launcher} {option[0]} gives each its own, {option[1]} lets firsttouch divide them"
            )
    return ""


def crowded(grants: Mapping[int, frozenset[int]], pus: frozenset[int] | None, host: Topology) -> str:
    """Return that mpirun has bound its ranks to fewer NUMA nodes than it could; or "".

    *pus* are those that mpirun itself may use. Open MPI binds each of two ranks to a core of NUMA node 0.
    """
    ranks, free = (_nodes(chosen, host) for chosen in (frozenset().union(*grants.values()), pus or frozenset()))
    if len(ranks) >= min(len(grants), len(free)):
        return ""
    return (
        f"mpirun has bound its {len(grants)} ranks to {_nodes_text(ranks)}, and may use {len(free)} NUMA nodes: "
        f"mpirun {_BINDING['mpirun'][1]} lets firsttouch divide them"
    )


def described(placements: Mapping[int, Placement], host: Topology) -> str:
    """Return in one line which PUs each task, by number, has, and on which NUMA nodes they lie."""
    texts = [
        f"task {number} on PU{'s' * (len(placement.pus) > 1)} {format_list(placement.pus)} "
        f"({_nodes_text(_nodes(placement.pus, host))})"
        for number, placement in placements.items()
    ]
    return f"{len(placements)} tasks on {host_name()}: {first_of(texts, _DESCRIBED)}"


def _nodes(pus: Iterable[int], host: Topology) -> set[int]:
    node_of = {pu.index: pu.numa_node for pu in host.pus}
    return {node for pu in pus if (node := node_of.get(pu)) is not None}


def _nodes_text(nodes: set[int]) -> str:
    return f"NUMA node{'s' * (len(nodes) > 1)} {format_list(nodes)}"
