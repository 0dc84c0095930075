# SPDX-License-Identifier: Apache-2.0
"""The tasks that srun starts on this host: each has its own PUs, and one result tells of all of them.

A step of srun with several tasks on a host starts this program once for each. The tasks meet in a folder of the
user on this host: each states which PUs it was granted, and waits for the others. Tasks with the same grant divide
it; what Slurm bound to a task stays that task's. The last one that ends reports what all of them left.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firsttouch import paths
from firsttouch.clock import SYSTEM_CLOCK, Clock
from firsttouch.errors import BadInput, RunFailed, first_of
from firsttouch.execution.host_lock import ancestors
from firsttouch.execution.progress import say
from firsttouch.host.cpusets import format_list
from firsttouch.host.emulation import host_name
from firsttouch.host.grant import number_of_job, numbers_of_job
from firsttouch.host.topology import Topology
from firsttouch.records import atomic_files
from firsttouch.records.file_lock import lock, locked, try_lock
from firsttouch.scenarios.placement import Placement

#: Seconds within which all tasks of a step must begin, before the wait is reported, and between looks.
_PATIENCE, _REPORTED, _PAUSE = 120.0, 5.0, 0.02
#: Seconds after which a folder that no task holds any more is removed.
_LEFT_OVER = 3600.0
#: The most bytes of a line with the number of a meeting and a process.
_LINE = 64
#: Tasks whose PUs are printed.
_DESCRIBED = 16


@dataclass(frozen=True)
class Step:
    """The tasks of a step of srun on this host: this one is number *local* of *count*, *number* in the whole step.

    *folder* is where they meet.
    """

    local: int
    count: int
    number: int
    folder: Path

    def grants(self, own: frozenset[int], clock: Clock = SYSTEM_CLOCK) -> list[frozenset[int]]:
        """State the PUs that this task may use, and return those of all tasks.

        Raises RunFailed if a task has not begun after two minutes.
        """
        atomic_files.write(self.folder / f"grant.{self.local}", json.dumps(sorted(own)))
        begun, reported = clock.monotonic(), False
        while missing := [n for n in range(self.count) if not (self.folder / f"grant.{n}").exists()]:
            waited = clock.monotonic() - begun
            names = f"task{'s' * (len(missing) > 1)} {format_list(missing)} of this host"
            if waited > _PATIENCE:
                raise RunFailed(
                    f"{names} did not start firsttouch within {_PATIENCE:g} s: let all tasks of a step start it"
                )
            if waited > _REPORTED and not reported and self.local == min({*range(self.count)} - {*missing}):
                say(f"firsttouch: waiting for {names}")
                reported = True
            clock.sleep(_PAUSE)
        texts = ((self.folder / f"grant.{n}").read_text(encoding="utf-8") for n in range(self.count))
        return [frozenset(json.loads(text)) for text in texts]

    def ended(self, result: dict[str, Any] | None) -> list[dict[str, Any] | None] | None:
        """Leave the *result* of this task; the last one gets the results of all.

        None is a task without a result: it was killed, or exceeded its time.
        """
        atomic_files.write(self.folder / f"result.{self.local}", json.dumps(result))
        try:
            with locked(self.folder / "report.lock"):
                if not all(self._has_ended(n) for n in range(self.count)):
                    return None
                files = [self.folder / f"result.{n}" for n in range(self.count)]
                results = [json.loads(f.read_text(encoding="utf-8")) if f.exists() else None for f in files]
                shutil.rmtree(self.folder)
        except FileNotFoundError:  # another task has reported
            return None
        return results

    def _has_ended(self, local: int) -> bool:
        return (self.folder / f"result.{local}").exists() or not _is_held(self.folder / f"task.{local}")


@contextlib.contextmanager
def of_this_step() -> Iterator[Step | None]:
    """Take part in the step of srun that this process is a task of; None without other tasks on this host.

    Raises BadInput for odd SLURM_* variables, and if this task already takes part, as in a pipe of two programs.
    """
    names = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_PROCID")
    counts = os.environ.get("SLURM_STEP_TASKS_PER_NODE", "")
    if not counts or any(name not in os.environ for name in names):
        yield None
        return
    job, step, local, node, number = map(number_of_job, names)
    each = numbers_of_job("SLURM_STEP_TASKS_PER_NODE")
    if node >= len(each) or local >= each[node]:
        raise BadInput(f"SLURM_STEP_TASKS_PER_NODE is {counts!r}: it has no task {local} of host {node}")
    if each[node] == 1:
        yield None
        return
    base = paths.private(f"firsttouch-tasks-{os.getuid()}-{os.uname().nodename}")
    _remove_left_over(base)
    folder = base / f"{job}.{number_of_job('SLURM_RESTART_COUNT')}.{step}.{node}"
    folder.mkdir(exist_ok=True)
    with _meeting(folder, local) as place:
        handle = _opened(place / f"task.{local}")
        try:
            lock(handle)
            yield Step(local, each[node], number, place)
        finally:
            os.close(handle)


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
        if not {*map(int, holder)} & ancestors():
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


def _remove_left_over(base: Path) -> None:
    """Remove what tasks that were killed have left."""
    for folder in base.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if time.time() - folder.stat().st_mtime > _LEFT_OVER and not any(
                map(_is_held, folder.glob("*/task.*"))
            ):
                shutil.rmtree(folder, ignore_errors=True)


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


def overlap(grants: Sequence[frozenset[int]]) -> str:
    """Return which tasks have different PUs that overlap, so that they disturb each other; or ""."""
    for (number, first), (other, second) in itertools.combinations(enumerate(grants), 2):
        if first != second and first & second:
            return (
                f"tasks {number} and {other} may both use PUs {format_list(first & second)}, and each keeps its "
                "own: srun --cpu-bind=cores gives each its own, --cpu-bind=none lets firsttouch divide them"
            )
    return ""


def described(placements: Sequence[Placement], host: Topology) -> str:
    """Return in one line which PUs each task has, and on which NUMA nodes they lie."""
    node_of = {pu.index: pu.numa_node for pu in host.pus}
    texts = []
    for number, placement in enumerate(placements):
        nodes = sorted({node for pu in placement.pus if (node := node_of[pu]) is not None})
        on = f"NUMA node{'s' * (len(nodes) > 1)} {format_list(nodes)}"
        texts.append(f"task {number} on PU{'s' * (len(placement.pus) > 1)} {format_list(placement.pus)} ({on})")
    return f"{len(placements)} tasks on {host_name()}: {first_of(texts, _DESCRIBED)}"
