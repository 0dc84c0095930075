# SPDX-License-Identifier: Apache-2.0
"""A folder for temporary files in memory on chosen NUMA nodes, which spills to disk when it fills up.

Files that no process has open, such as the parts of an external sort, are moved to a folder on disk and become
symbolic links to it. A process of its own (this module as a program) does so while programs write. A lease
(fcntl(2), F_SETLEASE) says that a file is closed and not mapped, and when somebody opens it for writing.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import stat
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from firsttouch.errors import CannotHere
from firsttouch.execution import ram_store
from firsttouch.execution.process_runner import child
from firsttouch.host.available_memory import available_bytes
from firsttouch.records import atomic_files
from firsttouch.units import format_bytes

#: The scratch takes at most this part of the memory that is left.
SHARE = 0.5
#: Least size of a scratch (bytes).
_LEAST = 16 << 20
#: So much more (bytes) is there for programs that write faster than files can be moved.
_RESERVE = 2 << 30
#: Files move to disk from this part of the limit on.
_SPILL = 0.25
#: Seconds between two looks at the space, and between two searches for files on disk that nothing links to.
_PAUSE, _SWEEP = 0.01, 0.5
_BLOCK = 1 << 20
#: No programs write faster than this (bytes per second).
_FASTEST = 20e9


@dataclass
class RamScratch:
    """A scratch folder in memory; *spilled* and *pages* are final after the block of :func:`ram_scratch`.

    *spilled_files* and *spilled_bytes* were moved to disk. *pages* are 4 KiB pages per NUMA node of samples of the
    files, and *reason* says if they lie elsewhere than on *numa_nodes*, or why files could not be moved.
    """

    folder: Path
    numa_nodes: tuple[int, ...]
    limit_bytes: int
    spilled_files: int = 0
    spilled_bytes: int = 0
    pages: dict[int, int] | None = None
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "numa_nodes": list(self.numa_nodes),
            "limit_bytes": self.limit_bytes,
            "spilled_files": self.spilled_files,
            "spilled_bytes": self.spilled_bytes,
            "pages": {str(node): count for node, count in sorted((self.pages or {}).items())},
            "reason": self.reason,
        }

    def described(self) -> str:
        """Return what was spilled, or an empty string."""
        if not self.spilled_files and not self.reason:
            return ""
        moved = f"{format_bytes(self.spilled_bytes)} in {self.spilled_files} files moved from memory to disk"
        return f"{moved}; {self.reason}" if self.reason else moved


def limit_of(numa_nodes: Iterable[int]) -> int:
    """Return the usual limit (bytes) of a scratch on *numa_nodes*: half of the memory that is left there."""
    amounts = [sum(map(ram_store.room, numa_nodes)), available_bytes()]
    return int(SHARE * min(amount for amount in amounts if amount is not None))


@contextlib.contextmanager
def ram_scratch(numa_nodes: Iterable[int], disk: Path, *, size_bytes: int | None = None) -> Iterator[RamScratch]:
    """Hold a scratch folder in memory of at most *size_bytes* (default: half of what is left on the nodes).

    Pages lie on the NUMA node nearest to the program that writes them, of *numa_nodes*. Files spill to a folder in
    *disk*. Raises CannotHere if the memory does not suffice.
    """
    nodes = tuple(sorted(set(numa_nodes)))
    limit = limit_of(nodes) if size_bytes is None else size_bytes
    if limit < _LEAST:
        raise CannotHere(f"{format_bytes(limit)} are too little for a scratch in memory: leave --scratch ram out")
    reserve = max(0, min(_RESERVE, int(limit_of(nodes) / SHARE) - limit))
    with (
        ram_store.hold(nodes, limit + reserve, huge=False) as store,
        atomic_files.workspace(disk) as spill,
        _mover(store.folder, spill, limit) as mover,
    ):
        scratch = RamScratch(store.folder, nodes, limit)
        try:
            yield scratch
        finally:
            _finish(mover, scratch)


@contextlib.contextmanager
def _mover(folder: Path, spill: Path, limit: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run the process that moves files for the length of the block."""
    argv = [sys.executable, "-P", "-m", __spec__.name, str(folder), str(spill), str(limit)]
    pipe = subprocess.PIPE
    with child(argv, stop=signal.SIGTERM, stdin=pipe, stdout=pipe, stderr=2) as process:
        assert process.stdin is not None  # noqa: S101 - for mypy
        assert process.stdout is not None  # noqa: S101
        with process.stdin, process.stdout:
            process.stdout.readline()
            yield process


def _finish(mover: subprocess.Popen[bytes], scratch: RamScratch) -> None:
    """End the mover, and take its report."""
    assert mover.stdin is not None  # noqa: S101 - for mypy
    assert mover.stdout is not None  # noqa: S101
    with contextlib.suppress(BrokenPipeError):
        mover.stdin.close()
    try:
        report = json.loads(mover.stdout.read())
    except ValueError:
        scratch.reason = "the process that moves files from memory to disk was killed"
        return
    scratch.spilled_files, scratch.spilled_bytes = report["files"], report["bytes"]
    scratch.pages = {int(node): count for node, count in report["pages"].items()}
    scratch.reason = report["reason"]
    if stray := set(scratch.pages) - set(scratch.numa_nodes):
        scratch.reason = scratch.reason or f"files lie on NUMA node {min(stray)} too (pages {scratch.pages})"


# ----------------------------------------------------------------------
# The process that moves files


class _Mover:
    """Moves files from *folder* to *spill* while it runs; *ending* becomes readable when it has to end."""

    def __init__(self, folder: Path, spill: Path, limit: int, ending: IO[bytes]) -> None:
        self._folder, self._spill, self._limit, self._ending = folder, spill, limit, ending
        self._count = self.files = self.bytes = 0
        self.pages = Counter[int]()
        self.reason = ""
        self._next_move = 0.0
        #: Files on disk that had no link at the last search.
        self._unlinked: set[Path] = set()

    def run(self) -> None:
        """Move files until the end."""
        swept = time.monotonic()
        while not self._has_ended(self._pause()):
            if self._used() > _SPILL and time.monotonic() > self._next_move:
                self._relieve()
            if time.monotonic() - swept > _SWEEP:
                self._sweep()
                swept = time.monotonic()

    def _pause(self) -> float:
        """Return the seconds in which no program can fill the rest of the first part."""
        return max(_PAUSE, min(_SWEEP, (_SPILL - self._used()) * self._limit / _FASTEST))

    def _has_ended(self, seconds: float = 0.0) -> bool:
        return bool(select.select([self._ending], [], [], seconds)[0])

    def _used(self) -> float:
        """Return the part of the limit that is used."""
        space = os.statvfs(self._folder)
        return (space.f_blocks - space.f_bfree) * space.f_frsize / self._limit

    def _relieve(self) -> None:
        """Move closed files, the oldest first, until there is room or none is left."""
        for file in self._candidates():
            if self._used() <= _SPILL or self._has_ended() or time.monotonic() < self._next_move:
                return
            self._move(file)

    def _candidates(self) -> list[Path]:
        """Return the regular files in the folder, the oldest first."""
        files = []
        for place, _, names in os.walk(self._folder):
            for name in names:
                file = Path(place, name)
                with contextlib.suppress(FileNotFoundError):
                    status = file.lstat()
                    if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_blocks:
                        files.append((status.st_mtime_ns, file))
        return [file for _, file in sorted(files)]

    def _move(self, file: Path) -> None:
        """Move *file* to disk, unless a process has it open or opens it for writing meanwhile."""
        try:
            source = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # it was removed, or its writer may not read it
            return
        self._count += 1
        target = self._spill / str(self._count)
        # In the same file system, but not where the program may look.
        link, kept = (self._folder.parent / f"{kind}-{self._count}" for kind in ("link", "kept"))
        try:
            # Only one descriptor, ours: then readers may come, and a writer breaks the lease.
            fcntl.fcntl(source, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            fcntl.fcntl(source, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            status = os.fstat(source)
            self._sample(file)
            if not self._copied(source, target, status):
                return
            link.symlink_to(target)
            kept.hardlink_to(file)
            link.replace(file)
            # A writer that came just now waits for the lease, and has the file in memory.
            if _is_broken(source):
                kept.replace(file)
                return
            self.files, self.bytes = self.files + 1, self.bytes + status.st_size
            target = Path()
        except BlockingIOError:
            pass
        except OSError as error:
            # The file was removed or renamed meanwhile, or the disk is full.
            if error.filename not in {str(file), str(link), str(kept)}:
                self.reason = f"{self._spill}: {error.strerror}"
                self._next_move = time.monotonic() + _SWEEP
        finally:
            for left in (link, kept, target):
                if left != Path():
                    with contextlib.suppress(OSError):
                        left.unlink()
            os.close(source)

    def _copied(self, source: int, target: Path, status: os.stat_result) -> bool:
        """Copy an open file; return False if a writer opens it, or at the end of the run."""
        block = memoryview(bytearray(_BLOCK))
        with target.open("xb", buffering=0) as out:
            target.chmod(stat.S_IMODE(status.st_mode))
            offset = 0
            while size := os.preadv(source, [block], offset):
                rest = block[:size]
                while rest:
                    rest = rest[out.write(rest) :]
                offset += size
                if _is_broken(source) or self._has_ended():
                    return False
            os.utime(out.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
        return True

    def _sample(self, file: Path) -> None:
        """Add where the pages of *file* lie."""
        with contextlib.suppress(OSError, ValueError, CannotHere):
            self.pages.update(ram_store.resident(file)[0])

    def _sweep(self) -> None:
        """Sample a file, and remove those on disk whose links are gone.

        A link that is being renamed is there the second time.
        """
        if files := self._candidates():
            self._sample(files[-1])
        moved = set(self._spill.iterdir())
        if not moved:
            return
        linked = set()
        for place, _, names in os.walk(self._folder):
            for name in names:
                with contextlib.suppress(OSError):
                    linked.add(Path(place, name).readlink())
        for file in (moved - linked) & self._unlinked:
            file.unlink(missing_ok=True)
        self._unlinked = moved - linked


def _is_broken(handle: int) -> bool:
    """Return whether a process waits to open a leased file for writing."""
    return fcntl.fcntl(handle, fcntl.F_GETLEASE) != fcntl.F_RDLCK


def main(argv: Sequence[str]) -> None:
    """Move files until standard input ends, and print what was moved."""
    for number in (signal.SIGIO, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a broken lease, a terminal
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    folder, spill, limit = argv
    mover = _Mover(Path(folder), Path(spill), int(limit), sys.stdin.buffer)
    print("ready", flush=True)
    mover.run()
    report = {"files": mover.files, "bytes": mover.bytes, "pages": mover.pages, "reason": mover.reason}
    with contextlib.suppress(BrokenPipeError):  # the process that would read it was killed
        os.write(sys.stdout.fileno(), json.dumps(report).encode())


if __name__ == "__main__":
    main(sys.argv[1:])
