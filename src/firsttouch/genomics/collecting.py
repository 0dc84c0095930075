# SPDX-License-Identifier: Apache-2.0
"""Collects the alignments of instances while they are written, and delivers them in input order to a target."""

from __future__ import annotations

import collections
import os
import stat
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from firsttouch.clock import SYSTEM_CLOCK, Clock
from firsttouch.errors import RunFailed
from firsttouch.genomics import sam
from firsttouch.genomics.command_line import Command
from firsttouch.genomics.dealing import Ledger
from firsttouch.genomics.pipe_writer import Stopped, StopRequest, splice
from firsttouch.genomics.sam import ByteRange
from firsttouch.genomics.sinks import Sink
from firsttouch.tools import lean_numpy

if TYPE_CHECKING:  # they load NumPy, which a command in one instance does without
    from firsttouch.genomics.read_stream import Piece
    from firsttouch.genomics.sam_stream import OrderedTail, SamTail

#: Scratch space is released in multiples of this, and at this distance behind the sent text, to which a pipe may
#: still refer.
_HOLE = 4 << 20
#: Seconds between two reads of the scratch files: the first and the longest pause.
_PAUSES = 0.005, 0.1


class Target:
    """The destination of alignments. This target only counts them."""

    #: Whether the parts are needed after they were sent.
    keeps_files = False

    def begin(self, header: bytes) -> None:
        """Take the header, which comes first."""

    def send(self, part: ByteRange, stop: StopRequest) -> None:
        """Take the alignments of the next part."""


class InstanceOutput:
    """The SAM file of an instance, while it grows.

    *repeated*: the reads are repeated, so the records are counted at the end and have no order. Records of a
    program whose options allow one instance only are not counted, because it may omit reads.
    """

    def __init__(self, folder: Path, number: int, command: Command, *, repeated: bool = False) -> None:
        self._number, self._aligner = number, command.aligner
        self.file = folder / f"{number}.sam"
        self.file.touch()
        with lean_numpy():
            from firsttouch.genomics.sam_stream import OrderedTail, SamTail  # noqa: PLC0415 - it loads NumPy

        self._tail: SamTail | OrderedTail
        self._want: Callable[[Piece], None]
        self._counted: SamTail | None = None
        self._is_divided = not (command.aligner.whole or repeated)
        step = command.mates // command.pipes  # mates in one text
        if command.aligner.align.in_order or not self._is_divided:
            self._tail = tail = SamTail(self.file)
            self._counted = None if command.aligner.whole else tail
            self._want = lambda piece: tail.want(
                piece.records * command.mates, piece.empty_mates if command.mates > 1 else 0
            )
        else:
            self._tail = ordered = OrderedTail(self.file, folder / f"{number}.restored.sam", command.mates)
            self._want = lambda piece: ordered.want(piece.names(step))
        #: Alignments of complete pieces.
        self._ready: collections.deque[ByteRange] = collections.deque()
        self._ready_from = 0
        self._freed: dict[Path, int] = {}
        self._sent = 0
        self.finished = False

    @property
    def reads(self) -> int:
        """Reads in the file."""
        return self._tail.primary

    @property
    def mapped(self) -> int:
        """Mapped reads in the file."""
        return self._tail.mapped

    @property
    def header(self) -> bytes:
        """The header, which is complete with the first alignments."""
        return self._tail.header or b""

    def want(self, piece: Piece) -> None:
        """Expect the alignments of a piece."""
        self._want(piece)

    def look(self, *, ended: bool) -> None:
        """Read the new output; raises RunFailed for a damaged output, or (*ended*) one that lacks reads."""
        if self.finished:
            return
        try:
            self._ready.extend(self._tail.look(ended=ended))
            if ended:
                self._check()
        except RunFailed as error:
            raise RunFailed(f"instance {self._number}: {error}") from error
        self.finished = ended

    def _check(self) -> None:
        """Raise RunFailed unless the finished file has exactly the records of all reads."""
        if self._counted and not self._counted.has_all:
            reads = f"{self._counted.primary} of {self._counted.wanted} reads"
            raise RunFailed(f"{self._aligner.name} aligned {reads}")
        if self._is_divided:
            self._ready.extend(self._tail.finish())

    def next(self) -> ByteRange | None:
        """Return the alignments of the next piece if they are complete."""
        if self._is_divided:
            return self._ready.popleft() if self._ready else None
        if not self.finished:
            return None
        begin, self._ready_from = max(self._ready_from, len(self.header)), self._tail.size
        return ByteRange(self.file, begin, self._tail.size)

    @property
    def waiting(self) -> int:
        """Bytes that were written and not sent."""
        return self.file.stat().st_size - self._sent

    def release(self, sent: ByteRange) -> None:
        """Free the scratch space of sent alignments, and of the restored ones."""
        self._sent += sent.end - sent.start
        self._free(sent.file, sent.end)
        if sent.file != self.file:
            self._free(self.file, self._tail.size)

    def _free(self, file: Path, size: int) -> None:
        begin, end = self._freed.get(file, 0), max(0, (size - _HOLE) // _HOLE * _HOLE)
        if begin < end:
            self._freed[file] = end
            _punch(file, begin, end)

    def close(self) -> None:
        """Close the file."""
        self._tail.close()


class Collector:
    """Sends finished alignments to the target in input order."""

    def __init__(
        self,
        outputs: Sequence[InstanceOutput],
        ledger: Ledger,
        target: Target,
        describe: Callable[[bytes], bytes],
        stop: StopRequest,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._outputs, self._ledger, self._target, self._stop = outputs, ledger, target, stop
        self._describe, self._clock = describe, clock
        #: Set when all instances have ended, so the scratch files do not grow any more.
        self.ended = threading.Event()

    def collect(self) -> None:
        """Send all alignments; returns after the last ones. Raises RunFailed if some are missing."""
        headers: dict[int, bytes] = {}
        while (number := self._ledger.take()) is not None:
            output = self._outputs[number]
            place = self._wait(output)
            if not headers:
                self._target.begin(self._describe(output.header))
            if number not in headers:
                headers[number] = output.header
                sam.check_same(headers)
            self._ledger.set_backlog(sum(each.waiting for each in self._outputs))
            self._target.send(place, self._stop)
            self._ledger.set_backlog(0)
            if not self._target.keeps_files:
                output.release(place)
        while not all(self._outputs[number].finished for number in self._ledger.fed):
            self._look_after(_PAUSES[0])

    def _wait(self, output: InstanceOutput) -> ByteRange:
        """Return the alignments of the next piece of an output, as soon as they are complete."""
        pause = 0.0
        while (place := output.next()) is None:
            self._look_after(pause)
            pause = min(2 * pause or _PAUSES[0], _PAUSES[1])
        return place

    def _look_after(self, pause: float) -> None:
        """Read the output of the instances, after that number of seconds."""
        if self._clock.wait(self._stop, pause):
            raise Stopped
        ended = self.ended.is_set()
        for number in list(self._ledger.fed):
            self._outputs[number].look(ended=ended)


class FileTarget(Target):
    """A target that stores the *header* and the positions of the alignments, in input order."""

    keeps_files = True

    def __init__(self) -> None:
        self.header = b""
        self.ranges: list[ByteRange] = []

    def begin(self, header: bytes) -> None:
        """Keep the header."""
        self.header = header

    def send(self, part: ByteRange, stop: StopRequest) -> None:  # noqa: ARG002 - it waits for nothing
        """Keep the place of a part."""
        self.ranges.append(part)


class SinkTarget(Target):
    """A target that writes into a sink. The run can be stopped even if the sink's reader does not read."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def begin(self, header: bytes) -> None:
        """Write the header."""
        self._sink.begin(header)

    def send(self, part: ByteRange, stop: StopRequest) -> None:
        """Write a part; raises Stopped if *stop* is set while the reader of a pipe is not reading."""
        if not stat.S_ISFIFO(os.fstat(self._sink.fd).st_mode):
            self._sink.send([part])
            return
        at = part.start
        with part.file.open("rb") as file:
            while at < part.end:
                at += splice(file.fileno(), self._sink.fd, at, part.end - at, stop)


#: fallocate(2): free the blocks of a range, and leave the file's size.
_KEEP_SIZE_PUNCH_HOLE = 3


def _punch(file: Path, begin: int, end: int) -> None:
    """Free the disk space of the bytes *begin* to *end* - 1 of *file*, if its file system can do that.

    Both are multiples of any block size, because the kernel removes whole pages only. A page to which a pipe still
    refers keeps its content.
    """
    import ctypes  # noqa: PLC0415 - few commands need it

    fd = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        ctypes.CDLL(None).fallocate(fd, _KEEP_SIZE_PUNCH_HOLE, ctypes.c_long(begin), ctypes.c_long(end - begin))
    finally:
        os.close(fd)
