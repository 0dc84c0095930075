# SPDX-License-Identifier: Apache-2.0
"""Who measures what: claims that are safe between hosts, and free again when their holder is gone.

A claim of a task is a file ``TASK.N`` that is made by link(2), which one of several wins, on NFS too. Files are
never removed, so nobody can remove another's: who finds that the holder of number N is gone makes N + 1. A
holder that is done renames its claim to ``TASK.N.free``.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from firsttouch.fleet import slurm
from firsttouch.fleet.journal import once

#: Seconds between two signs of life of a holder, and after how many without one it is gone where Slurm cannot
#: be asked: by then, hosts' caches of a shared file system are long written back.
BEAT = 20.0
GONE = 600.0
_FILE = re.compile(r"(.+)\.(\d+)(\.free)?")
_ENDING = frozenset({"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL"})


@dataclass(frozen=True)
class Holder:
    """Who holds a claim: a host, and its job with the number of times that this was requeued ("": no job).

    *hosts* is how many the job has.
    """

    host: str
    job: str
    restarts: int
    hosts: int = 1

    @classmethod
    def here(cls, host: str) -> Holder:
        """Return this process on *host*."""
        job = slurm.Job.here()
        return cls(host, job.job, job.restarts, job.hosts) if job else cls(host, "", 0)


@dataclass(frozen=True)
class Claim:
    """A claim that we hold: its file."""

    file: Path

    def beat(self) -> None:
        """Give a sign of life, on the file server's clock."""
        os.utime(self.file)

    def release(self) -> None:
        """Let others have the task."""
        self.file.replace(self.file.with_name(f"{self.file.name}.free"))


class Claims:
    """The claims in *folder*, seen by the holder *mine*, who alone measures on its host (see exclusive)."""

    def __init__(self, folder: Path, mine: Holder) -> None:
        self.folder, self.mine = folder, mine
        folder.mkdir(parents=True, exist_ok=True)

    def take(self, task: str) -> Claim | None:
        """Return a claim of *task*, None where a living holder has it or somebody else was faster."""
        number, held = self._last().get(task, (0, False))
        if held and self.is_alive(self.folder / f"{task}.{number}"):
            return None
        file = self.folder / f"{task}.{number + 1}"
        if not once(file, asdict(self.mine)):
            return None
        return Claim(file)

    def is_alive(self, file: Path) -> bool:
        """Tell whether the holder of a claim is still there.

        A holder on this host is not: we are the only one to measure here. One with a job is as long as squeue
        lists the job, not requeued since. Where squeue does not answer, for a holder without a job, and for one
        of a job's many hosts (which outlives each of them), the last sign of life counts.
        """
        try:
            holder = Holder(**json.loads(file.read_text(encoding="utf-8")))
        except FileNotFoundError:  # it was released just now
            return False
        if holder.host == self.mine.host:
            return False
        if holder.job and (known := slurm.active([holder.job])) is not None:
            state, restarts = known.get(holder.job, ("", 0))
            if not state or state == "PENDING" or state in _ENDING or restarts != holder.restarts:
                return False
            if holder.hosts == 1:
                return True
        return self._age(file) < GONE

    def _age(self, file: Path) -> float:
        """Return the seconds since a claim's last sign of life; both times are the file server's."""
        with tempfile.NamedTemporaryFile(dir=self.folder, prefix=".") as now:
            try:
                return os.fstat(now.fileno()).st_mtime - file.stat().st_mtime
            except FileNotFoundError:
                return GONE

    def _last(self) -> dict[str, tuple[int, bool]]:
        """Return, by task, the highest number and whether it is held."""
        return last(entry.name for entry in os.scandir(self.folder))


def last(names: Iterable[str]) -> dict[str, tuple[int, bool]]:
    """Return the highest number of each task among the *names* of claims' files, and whether it is held."""
    found: dict[str, tuple[int, bool]] = {}
    for name in names:
        if (parts := _FILE.fullmatch(name)) and not name.startswith("."):
            number, held = int(parts[2]), not parts[3]
            best = found.get(parts[1], (0, False))
            # A file may be seen under both names while it is renamed: the free one is the later.
            if number > best[0] or (number == best[0] and not held):
                found[parts[1]] = (number, held)
    return found


class Beating:
    """Gives a claim's signs of life, as often as it is called and not more often than need be."""

    def __init__(self, claim: Claim) -> None:
        self.claim, self.next = claim, time.monotonic() + BEAT

    def __call__(self) -> None:
        """Give a sign of life where one is due."""
        if time.monotonic() >= self.next:
            self.claim.beat()
            self.next = time.monotonic() + BEAT
