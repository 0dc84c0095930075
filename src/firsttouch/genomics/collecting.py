# SPDX-License-Identifier: Apache-2.0
"""Collects the alignments of instances in input order while these write them, and delivers them to a target."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import os
import select
import stat
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from firsttouch.clock import SYSTEM_CLOCK, Clock
from firsttouch.errors import RunFailed
from firsttouch.genomics import sam
from firsttouch.genomics.command_line import UserCommand
from firsttouch.genomics.dealing import Ledger
from firsttouch.genomics.pipe_writer import Stopped, StopRequest
from firsttouch.genomics.reads import empty_mates, template_name
from firsttouch.genomics.sam import ByteRange
from firsttouch.genomics.sinks import Sink
from firsttouch.tools import no_idle_threads

if TYPE_CHECKING:  # they load NumPy, which a command in one instance does without
    from firsttouch.genomics.read_stream import Piece
    from firsttouch.genomics.sam_stream import OrderedTail, SamTail

#: Scratch space is released in multiples of this, and this far behind what was sent: a pipe may still refer to it.
_HOLE = 4 << 20
#: Seconds between two looks at the scratch files: the first and the longest pause.
_PAUSES = 0.005, 0.1


class Target(Protocol):
    """Where the alignments go."""

    def begin(self, header: bytes) -> None:
        """Take the header, which comes first."""

    def send(self, part: ByteRange, stop: StopRequest) -> None:
        """Take the alignments of the next part."""

    def end_part(self, records: int, bases: int) -> None:
        """Learn that the part is complete, with its number of records (pairs) and bases."""


class InstanceOutput:
    """The SAM file of an instance, while it grows."""

    def __init__(self, folder: Path, number: int, command: UserCommand) -> None:
        self._number = number
        self.file = folder / f"{number}.sam"
        self.file.touch()
        with no_idle_threads():
            from firsttouch.genomics.sam_stream import OrderedTail, SamTail  # noqa: PLC0415 - it loads NumPy

        self._tail: SamTail | OrderedTail
        self._want: Callable[[Piece], None]
        if command.aligner.in_order:
            self._tail = tail = SamTail(self.file)
            step = command.mates // command.pipes  # mates in one text
            self._want = lambda piece: tail.want(
                piece.records * command.mates, _empty_mates(piece.data[-1], step) if command.mates > 1 else 0
            )
        else:
            self._tail = ordered = OrderedTail(self.file, folder / f"{number}.restored.sam", command.mates)
            step = command.mates // command.pipes
            self._want = lambda piece: ordered.want(_names(piece.data[0], step))
        #: Alignments of pieces that are complete.
        self._ready: collections.deque[ByteRange] = collections.deque()
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
        """Read what was written; raises RunFailed for a damaged output, or (*ended*) one that lacks reads."""
        if self.finished:
            return
        try:
            self._ready.extend(self._tail.finish() if ended else self._tail.look())
        except RunFailed as error:
            raise RunFailed(f"instance {self._number}: {error}") from error
        self.finished = ended

    def next(self) -> ByteRange | None:
        """Return the alignments of the next piece if they are complete."""
        return self._ready.popleft() if self._ready else None

    @property
    def waiting(self) -> int:
        """Bytes that were written and not sent."""
        return self.file.stat().st_size - self._sent

    def release(self, sent: ByteRange) -> None:
        """Free the scratch space of alignments that were sent, and of what was restored."""
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


def _names(text: bytes | memoryview, step: int) -> list[bytes]:
    """Return the names of the templates in a text of FASTQ or FASTA that has *step* records for each."""
    lines = bytes(text).split(b"\n")
    is_fasta = lines[0].startswith(b">")
    heads = [line for line in lines if line.startswith(b">")] if is_fasta else lines[:-1:4]
    return [template_name(head[1:].split(None, 1)[0]) for head in heads[::step]]


def _empty_mates(text: bytes | memoryview, step: int) -> int:
    """Return how many last mates have no bases in a text of FASTQ that has *step* records for each template."""
    data = bytes(text)
    return empty_mates(data.split(b"\n"), step) if b"\n\n+" in data else 0


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
        #: Set when all instances have ended: the scratch files grow no more.
        self.ended = threading.Event()

    def collect(self) -> None:
        """Send all alignments; returns after the last ones. Raises RunFailed if some are missing."""
        headers: dict[int, bytes] = {}
        records = bases = 0
        while (piece := self._ledger.take()) is not None:
            output = self._outputs[piece.instance]
            place = self._wait(output)
            if not headers:
                self._target.begin(self._describe(output.header))
            if piece.instance not in headers:
                headers[piece.instance] = output.header
                sam.check_same(headers)
            self._ledger.set_backlog(sum(each.waiting for each in self._outputs))
            self._target.send(place, self._stop)
            self._ledger.set_backlog(0)
            output.release(place)
            records, bases = records + piece.records, bases + piece.bases
            if piece.last:
                self._target.end_part(records, bases)
                records = bases = 0
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
        """Read what the instances wrote, after so many seconds."""
        if self._clock.wait(self._stop, pause):
            raise Stopped
        ended = self.ended.is_set()
        for number in list(self._ledger.fed):
            self._outputs[number].look(ended=ended)


class SinkTarget:
    """A target that writes into a sink; a reader that takes nothing does not keep a run from being stopped."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def begin(self, header: bytes) -> None:
        """Write the header."""
        self._sink.begin(header)

    def send(self, part: ByteRange, stop: StopRequest) -> None:
        """Write a part; raises Stopped if *stop* is set while the reader of a pipe takes nothing."""
        if not stat.S_ISFIFO(os.fstat(self._sink.fd).st_mode):
            self._sink.send([part])
            return
        at = part.start
        with part.file.open("rb") as file:
            while at < part.end:
                at += splice(file.fileno(), self._sink.fd, at, part.end - at, stop)

    def end_part(self, records: int, bases: int) -> None:
        """Nothing is kept of a part."""


def splice(source: int, target: int, offset: int | None, size: int, stop: StopRequest) -> int:
    """Move up to *size* bytes from a file at *offset*, or from a pipe (None), into the pipe *target*.

    Waits for both ends without changing their flags, which other processes share. Returns 0 at the end of the
    source; raises Stopped, or BrokenPipeError if the reader of the target has gone.
    """
    while True:
        stop.wait_for(source, select.POLLIN)
        stop.wait_for(target, select.POLLOUT)
        with contextlib.suppress(BlockingIOError):
            return os.splice(source, target, size, offset_src=offset, flags=os.SPLICE_F_NONBLOCK)


#: fallocate(2): free the blocks of a range, and leave the file's size.
_KEEP_SIZE_PUNCH_HOLE = 3
_libc = ctypes.CDLL(None, use_errno=True)


def _punch(file: Path, begin: int, end: int) -> None:
    """Free the disk space of the bytes *begin* to *end* - 1 of *file*, if its file system can do that.

    Both are multiples of any block size: the kernel removes whole pages only, and a pipe that still refers to one
    of them keeps its content.
    """
    fd = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        _libc.fallocate(fd, _KEEP_SIZE_PUNCH_HOLE, ctypes.c_long(begin), ctypes.c_long(end - begin))
    finally:
        os.close(fd)
