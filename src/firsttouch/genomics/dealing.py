# SPDX-License-Identifier: Apache-2.0
"""Deals the reads of a stream to instances: whole batches in turn, through bounded queues into their pipes."""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import queue
import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from firsttouch.errors import RunFailed
from firsttouch.execution.threads import WorkerThread
from firsttouch.genomics.pipe_writer import PipeWriter, Stopped, StopRequest
from firsttouch.units import format_bytes

if TYPE_CHECKING:  # they load NumPy, which a command in one instance does without
    from firsttouch.genomics.read_stream import GivenFiles, Piece, ReadStream

#: The usual size of a pipe's queue. It may grow if an aligner reads one mate further than the other.
_QUEUE_BYTES = 4 << 20
#: The largest growth, in memory.
_MOST_AHEAD_BYTES = 2 << 30
#: The dealer waits while scratch files hold this much, or this part of the free space, and the target is blocked.
_BACKLOG_BYTES, _BACKLOG_SHARE = 4 << 30, 0.25


#: The number of pieces that are read ahead.
_AHEAD = 8


@contextlib.contextmanager
def read_pieces(reads: ReadStream | GivenFiles, pus: Collection[int] = ()) -> Iterator[Iterator[Piece]]:
    """Yield the pieces of *reads*, all read by one thread, because its children end with it.

    It runs on *pus* (empty: on any).
    """
    pieces: queue.Queue[Piece | BaseException | None] = queue.Queue(_AHEAD)
    left = threading.Event()

    def put(item: Piece | BaseException | None) -> None:
        while not left.is_set():
            with contextlib.suppress(queue.Full):
                pieces.put(item, timeout=0.5)
                return

    def read() -> None:
        try:
            for piece in reads:
                put(piece)
                if left.is_set():
                    return
            put(None)
        except BaseException as error:
            put(error)

    def taken() -> Iterator[Piece]:
        while (item := pieces.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    thread = WorkerThread("reader", read, pus=pus)
    try:
        thread.start()
        yield taken()
    finally:
        left.set()
        reads.stop()
        thread.join()


class Ledger:
    """Records in input order which instance got each piece; alignments wait in *scratch* for the collector."""

    def __init__(self, scratch: Path) -> None:
        self._changed = threading.Condition()
        self._pieces: collections.deque[int] = collections.deque()
        self.fed: set[int] = set()
        self.dealt_all = self._stopped = False
        #: Bytes in scratch files while the target is blocked, else 0.
        self._backlog = 0
        self._most_backlog = min(_BACKLOG_BYTES, int(_BACKLOG_SHARE * shutil.disk_usage(scratch).free))

    def add(self, instance: int) -> None:
        """Add the piece that *instance* got."""
        with self._changed:
            self._pieces.append(instance)
            self.fed.add(instance)
            self._changed.notify_all()

    def close(self) -> None:
        """Announce that no further piece follows."""
        with self._changed:
            self.dealt_all = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Wake all who wait, with Stopped."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def take(self) -> int | None:
        """Wait for the next piece, remove it, and return its instance; None after the last piece."""
        with self._changed:
            while not self._pieces and not self.dealt_all and not self._stopped:
                self._changed.wait()
            if self._stopped:
                raise Stopped
            return self._pieces.popleft() if self._pieces else None

    def set_backlog(self, size: int) -> None:
        """Set the number of bytes that wait in scratch files for the target, 0 if the target waits."""
        with self._changed:
            self._backlog = size
            self._changed.notify_all()

    def wait_for_room(self) -> None:
        """Wait while the target is so slow that scratch files would grow without a limit."""
        with self._changed:
            while self._backlog > self._most_backlog and not self._stopped:
                self._changed.wait()


class Feed:
    """Queues and writers of an instance's pipes (one, or one per mate); *pus* are the writers' PUs."""

    def __init__(self, fds: Sequence[int], stop: StopRequest, pus: Collection[int] = ()) -> None:
        self._changed = threading.Condition()
        self._queues: list[collections.deque[bytes | memoryview]] = [collections.deque() for _ in fds]
        self._sizes = [0] * len(fds)
        self._gone = [False] * len(fds)
        self._closed = False
        self._stop = stop
        #: When the program began to read (monotonic clock); None if this could not be observed.
        self.reading_since: float | None = None
        self._fds = list(fds)
        self._threads = [
            WorkerThread("writer", functools.partial(self._write, number, fd), pus=pus)
            for number, fd in enumerate(fds)
        ]

    def start(self) -> None:
        """Start the writers."""
        for thread in self._threads:
            thread.start()

    @property
    def is_left(self) -> bool:
        """Whether the program stopped reading before the end."""
        return any(self._gone)

    def put(self, data: Sequence[bytes | memoryview]) -> None:
        """Add a piece for each pipe; waits while all queues are full. Raises Stopped.

        Raises RunFailed if the program reads one pipe so far ahead of the other that memory would run out.
        """
        with self._changed:
            while min(self._sizes) >= _QUEUE_BYTES and not self._stop.is_set and not all(self._gone):
                self._changed.wait()
            if self._stop.is_set:
                raise Stopped
            if max(self._sizes) > _MOST_AHEAD_BYTES:
                ahead = format_bytes(max(self._sizes) - min(self._sizes))
                raise RunFailed(
                    f"an instance reads one file of mates {ahead} further than the other, so it cannot be fed"
                )
            for number, block in enumerate(data):
                if not self._gone[number]:
                    self._queues[number].append(block)
                    self._sizes[number] += len(block)
            self._changed.notify_all()

    def close(self) -> None:
        """State that no more pieces come."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def join(self) -> None:
        """Wait for the end of the writers."""
        for thread, fd in zip(self._threads, self._fds, strict=True):
            thread.join()
            if not thread.is_started and fd >= 0:
                os.close(fd)
        self._threads, self._fds = [], []

    def _next(self, number: int) -> bytes | memoryview | None:
        with self._changed:
            while not self._queues[number] and not self._closed and not self._stop.is_set:
                self._changed.wait()
            if self._stop.is_set or not self._queues[number]:
                return None
            return self._queues[number][0]

    def _write(self, number: int, fd: int) -> None:
        try:
            with PipeWriter(fd, self._stop) as writer:
                while (block := self._next(number)) is not None:
                    writer.write(block)
                    with self._changed:
                        times = [t for t in (self.reading_since, writer.reading_since) if t is not None]
                        self.reading_since = min(times, default=None)
                        self._queues[number].popleft()
                        self._sizes[number] -= len(block)
                        self._changed.notify_all()
        except Stopped:
            pass
        except BrokenPipeError:  # the program has ended: its exit status or its output shows the error
            pass
        finally:
            with self._changed:
                self._gone[number] = True
                self._queues[number].clear()
                self._sizes[number] = _QUEUE_BYTES
                self._changed.notify_all()


class InstanceFiles:
    """The *files* that one instance reads instead of pipes; :meth:`put` writes its pieces.

    *are_given*: the files belong to the user and must not be written.
    """

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


class Dealer:
    """Gives the parts of the reads to the instances in turn."""

    def __init__(
        self,
        pieces: Iterator[Piece],
        feeds: Sequence[Feed] | Sequence[InstanceFiles],
        expect: Sequence[Callable[[Piece], None]],
        ledger: Ledger,
    ) -> None:
        """Prepare to deal *pieces* to *feeds*, one for each instance.

        The functions *expect* are called with each piece before the instance can write its alignments.
        """
        self._pieces, self._feeds, self._expect, self._ledger = pieces, feeds, expect, ledger

    def deal(self) -> None:
        """Deal all parts."""
        instance, begins = -1, True
        for piece in self._pieces:
            if begins and not piece.is_remainder:
                instance = (instance + 1) % len(self._feeds)
            self._ledger.wait_for_room()
            # The output must be told what to expect before it can be written.
            self._expect[instance](piece)
            self._ledger.add(instance)
            self._feeds[instance].put(piece.data)
            begins = piece.last
