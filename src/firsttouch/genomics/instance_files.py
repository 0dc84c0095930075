# SPDX-License-Identifier: Apache-2.0
"""The files that instances read in place of pipes: their shares, written before they start."""

from __future__ import annotations

import contextlib
import os
import select
import struct
import time
from collections.abc import Sequence
from pathlib import Path

from firsttouch.execution.progress import say
from firsttouch.execution.threads import WorkerThread
from firsttouch.genomics.pipe_writer import Stopped, StopRequest


class InstanceFiles:
    """The *files* that one instance reads; :meth:`put` writes the pieces that it is given into them.

    *are_given*: they are the user's, and nothing is written.
    """

    waiting = 0

    def __init__(self, files: Sequence[Path], *, are_given: bool = False) -> None:
        """Create the files."""
        self.files = tuple(files)
        self._streams = [] if are_given else [file.open("wb") for file in files]

    def put(self, data: Sequence[bytes | memoryview]) -> None:
        """Add a piece for each file."""
        for stream, block in zip(self._streams, data, strict=False):
            stream.write(block)

    def close(self) -> None:
        """State that no more pieces come."""
        for stream in self._streams:
            stream.close()


class FirstReads:
    """Notes when each of *files* is read for the first time (monotonic clock), as inotify(7) reports it.

    Nothing is noted where the user's limits allow no such watch.
    """

    _ACCESS, _ONCE, _EVENT = 0x1, 0x80000000, struct.Struct("iIII")

    def __init__(self, files: Sequence[Path]) -> None:
        import ctypes  # noqa: PLC0415 - few aligners need it

        libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = libc.inotify_init1(os.O_CLOEXEC)
        self._files: dict[int, Path] = {}
        self._times: dict[Path, float] = {}
        self._stop = StopRequest()
        self._thread = WorkerThread("first reads", self._run)
        if self._fd < 0:
            return
        for file in files:
            watch = libc.inotify_add_watch(self._fd, os.fsencode(file), self._ACCESS | self._ONCE)
            if watch < 0:
                reason = os.strerror(ctypes.get_errno())
                say(f"note: when an instance begins to read is not known for all ({file}: inotify: {reason})")
                break
            self._files[watch] = file
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(Stopped):
            while True:
                self._stop.wait_for(self._fd, select.POLLIN)
                self._note()

    def _note(self) -> None:
        events = os.read(self._fd, 1 << 12)  # files have no names in their events
        for watch, mask, _, _ in self._EVENT.iter_unpack(events):
            if mask & self._ACCESS:
                self._times[self._files[watch]] = time.monotonic()

    def stop(self) -> dict[Path, float]:
        """Stop, and return the times."""
        self._stop.set()
        if self._fd >= 0:
            self._thread.join()
            # On a busy host the thread may stop before it has seen the last ones.
            while select.select([self._fd], [], [], 0)[0]:
                self._note()
            os.close(self._fd)
        self._stop.close()
        return self._times
