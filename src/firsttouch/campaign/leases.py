# SPDX-License-Identifier: Apache-2.0
"""Leases, by which hosts divide the measurements. A lease is exclusive, and ends when its holder has died.

The lease of a task is a file ``TASK.N``, created by link(2), which succeeds for one host only, on NFS too. Lease
files are never deleted, so no host can delete another's. When the holder of number N has died, another host
creates N + 1. A holder that finishes renames its file to ``TASK.N.free``.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from firsttouch.campaign.journal import create_exclusive
from firsttouch.clock import SYSTEM_CLOCK, Clock
from firsttouch.execution import slurm

#: Seconds between two heartbeats of a holder, and seconds without one after which it is considered dead if Slurm
#: does not answer. By then, the caches of a shared file system have been written back.
BEAT = 20.0
GONE = 600.0
_FILE = re.compile(r"(.+)\.(\d+)(\.free)?")


class Holder(Struct, frozen=True):
    """The holder of a lease: a host, its *job* ("" outside of Slurm), that job's requeues and number of hosts."""

    host: str
    job: str
    restarts: int
    hosts: int = 1

    @classmethod
    def here(cls, host: str) -> Holder:
        """Return the holder for this process on *host*."""
        job = slurm.SlurmJob.here()
        return cls(host, job.job, job.restarts, job.hosts) if job else cls(host, "", 0)

    def is_over(self, jobs: Mapping[str, tuple[str, int]]) -> bool:
        """Return whether its run of the job has ended, by the (state, restarts) of the active *jobs*."""
        state, restarts = jobs.get(self.job, ("", 0))
        return not state or state == "PENDING" or state in slurm.ENDING or restarts != self.restarts


class Lease:
    """A lease that this process holds; as a context it is released at the end."""

    def __init__(self, file: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self.file, self._clock = file, clock
        self._next = clock.monotonic() + BEAT

    def beat(self) -> None:
        """Write a heartbeat, with the time of the file server."""
        os.utime(self.file)
        self._next = self._clock.monotonic() + BEAT

    def beat_if_due(self) -> None:
        """Write a heartbeat if the last one is BEAT seconds old."""
        if self._clock.monotonic() >= self._next:
            self.beat()

    def release(self) -> None:
        """Let other hosts take the task."""
        self.file.replace(self.file.with_name(f"{self.file.name}.free"))

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Leases:
    """The leases in *folder*, as seen by *holder*, the only process that measures on its host (see host_lock)."""

    def __init__(self, folder: Path, holder: Holder, clock: Clock = SYSTEM_CLOCK) -> None:
        self.folder, self.holder, self.clock = folder, holder, clock
        folder.mkdir(parents=True, exist_ok=True)

    def take(self, task: str) -> Lease | None:
        """Return a lease of *task*, None if a living holder has it or another host took it first."""
        number, held = last(entry.name for entry in os.scandir(self.folder)).get(task, (0, False))
        if held and self.is_alive(self.folder / f"{task}.{number}"):
            return None
        file = self.folder / f"{task}.{number + 1}"
        return Lease(file, self.clock) if create_exclusive(file, asdict(self.holder)) else None

    def is_alive(self, file: Path) -> bool:
        """Return whether the holder of a lease is alive.

        A holder on this host is not, because only this process measures here. A holder with a job is while squeue
        lists the job with the same number of requeues. The last heartbeat decides if the holder has no job, if
        squeue does not answer, and for a job of several hosts, which may outlive a host.
        """
        if (holder := _holder(file)) is None:  # it has just been released
            return False
        if holder.host == self.holder.host:
            return False
        if holder.job and (jobs := slurm.active([holder.job])) is not None:
            if holder.is_over(jobs):
                return False
            if holder.hosts == 1:
                return True
        return self._age(file) < GONE

    def has_left(self, task: str) -> bool:
        """Return whether a holder in this job had the lease of *task* and released it."""
        holder, is_held, _ = self._last_holder(task)
        return holder is not None and self._is_of_this_job(holder) and not is_held

    def silence(self, task: str, waited: float) -> float:
        """Return the seconds since a heartbeat for *task* by a holder in this job; *waited* if there was none."""
        holder, _, file = self._last_holder(task)
        return self._age(file) if holder is not None and self._is_of_this_job(holder) else waited

    def _is_of_this_job(self, holder: Holder) -> bool:
        return (holder.job, holder.restarts) == (self.holder.job, self.holder.restarts)

    def _last_holder(self, task: str) -> tuple[Holder | None, bool, Path]:
        """Return the last holder of a lease (None: never taken), whether it is still held, and its file."""
        number, is_held = last(entry.name for entry in os.scandir(self.folder)).get(task, (0, False))
        file = self.folder / f"{task}.{number}{'' if is_held else '.free'}"
        return _holder(file), is_held, file

    def _age(self, file: Path) -> float:
        """Return the seconds since a lease's last heartbeat, by the clock of the file server."""
        with tempfile.NamedTemporaryFile(dir=self.folder, prefix=".") as now:
            try:
                return os.fstat(now.fileno()).st_mtime - file.stat().st_mtime
            except FileNotFoundError:
                return GONE


def _holder(file: Path) -> Holder | None:
    """Return the holder of a lease, None without its file (never taken, or just released)."""
    try:
        return Holder(**json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def abandoned_holders(folder: Path) -> dict[str, Holder]:
    """Return, by task, the holders in *folder* whose job has ended without releasing the lease.

    They were killed, or their host died. If Slurm does not answer, those without a heartbeat for GONE seconds are
    returned.
    """
    names = [entry.name for entry in os.scandir(folder)] if folder.is_dir() else []
    files = {task: folder / f"{task}.{number}" for task, (number, is_held) in last(names).items() if is_held}
    holders: dict[str, Holder] = {}
    for task, file in files.items():
        with contextlib.suppress(OSError, ValueError, TypeError):  # a damaged file is not evidence
            if (holder := _holder(file)) and str(holder.job).isdecimal():
                holders[task] = holder
    jobs = slurm.active(holder.job for holder in holders.values())
    if jobs is None:
        now = SYSTEM_CLOCK.time()
        return {task: holder for task, holder in holders.items() if now - files[task].stat().st_mtime >= GONE}
    return {task: holder for task, holder in holders.items() if holder.is_over(jobs)}


def last(names: Iterable[str]) -> dict[str, tuple[int, bool]]:
    """Return, by task, the highest number among the *names* of lease files, and whether it is held."""
    tasks: dict[str, tuple[int, bool]] = {}
    for name in names:
        if (parts := _FILE.fullmatch(name)) and not name.startswith("."):
            number, held = int(parts[2]), not parts[3]
            highest = tasks.get(parts[1], (0, False))
            # During a rename both names may be visible; the free one is newer.
            if number > highest[0] or (number == highest[0] and not held):
                tasks[parts[1]] = (number, held)
    return tasks
