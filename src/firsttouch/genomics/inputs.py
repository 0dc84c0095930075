# SPDX-License-Identifier: Apache-2.0
"""Inputs of reads in pipelines: files, pipes and standard input, decompressed according to their content."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import stat
from collections.abc import Iterator
from pathlib import Path

from firsttouch.errors import BadInput
from firsttouch.execution.threads import WorkerThread
from firsttouch.genomics.fastq import FastqBlock, Read, file_reads
from firsttouch.genomics.pipe_writer import (
    CANNOT_SPLICE,
    PipeWriter,
    Stopped,
    StopRequest,
    enlarge_pipe,
    splice,
)
from firsttouch.genomics.reads import PEEK, form_of
from firsttouch.genomics.sources import Damaged, Decompressor, gunzip

#: Refused formats, and the programs that convert them to FASTQ.
_REFUSED = {
    **{"BAM": "samtools fastq -n", "CRAM": "samtools fastq -n"},
    **{"zstd": "zstd -dc", "bzip2": "bzip2 -dc", "xz": "xz -dc", "zip": "unzip -p"},
}
_SPLICE = 1 << 20
STDIN = "-"


class Input:
    """One input of reads: a file, a FIFO, an inherited descriptor, or standard input ("-").

    It is opened at once, and read after :meth:`start`. *label* names it in messages. *size* (bytes) is None if it
    is not a regular file. *identity* is equal for two names of the same file.
    """

    def __init__(self, path: str, stop: StopRequest, *, mate: int = 0) -> None:
        """Open *path*; *mate* (1 or 2) is part of a pipe's label, because the name of a pipe is arbitrary."""
        self.form = ""
        self._stop, self._path = stop, Path(path)
        self._stack, self._running = contextlib.ExitStack(), contextlib.ExitStack()
        self._decompressor: Decompressor | None = None
        self._pump: _Pump | None = None
        self._head = b""
        self.label = Path("standard input") if path == STDIN else self._path
        try:
            self._fd = os.dup(0) if path == STDIN else _open(self._path)
        except OSError as error:
            raise BadInput(f"cannot be read: {error.strerror}", file=self.label) from error
        self._stack.callback(os.close, self._fd)
        with contextlib.ExitStack() as undo:
            undo.callback(self._stack.close)
            self._state = os.fstat(self._fd)
            self.identity = self._state.st_dev, self._state.st_ino
            # Standard input may be a file whose beginning another program has read.
            is_file = stat.S_ISREG(self._state.st_mode) and os.lseek(self._fd, 0, os.SEEK_CUR) == 0
            self.size = self._state.st_size if is_file else None
            if self.size is None and mate:
                self.label = Path(f"{self.label} (mate {mate})")
            if stat.S_ISDIR(self._state.st_mode):
                raise BadInput("cannot be read: Is a directory", file=self.label)
            if os.isatty(self._fd):
                raise BadInput("is a terminal: name a file, or pipe the reads into it", file=self.label)
            if self.size is not None:
                self._head = self._first_bytes(next(file_reads(self._fd)))
                self._identify()
            undo.pop_all()

    def _first_bytes(self, read: Read) -> bytes:
        """Return the first bytes, which show the format."""
        room, size = memoryview(bytearray(PEEK)), 0
        try:
            while size < PEEK and (count := read(room[size:])):
                size += count
            return bytes(room[:size])
        except OSError as error:
            raise BadInput(f"cannot be read: {error.strerror}", file=self.label) from error

    def _identify(self) -> None:
        """Set the form; raises BadInput for one that is refused."""
        self.form = form_of(self._head)
        if program := _REFUSED.get(self.form):
            how = f"give <({program} {self._path})" if self.size is not None else f"pipe it through `{program}`"
            raise BadInput(f"is {self.form}, which is not supported: {how}", file=self.label)

    # ------------------------------------------------------------------
    # Reading

    def start(self) -> None:
        """Begin to decompress, after the first bytes of a pipe. Raises BadInput for a refused form, Stopped."""
        poller = _Poller(self._fd, self._stop)
        if self.size is None:
            self._head = self._first_bytes(poller.read)
            self._identify()
        if self.form == "plain":
            self._poller = _Poller(self._fd, self._stop, self._head)
            return
        self._start_decompressor()

    def _start_decompressor(self) -> None:
        with contextlib.ExitStack() as stack:
            stdin = self._fd if self.size is not None else self._start_pump(stack)
            self._decompressor = gunzip(stdin)
        self._running.callback(self._decompressor.close)
        self._poller = _Poller(self._decompressor.stream, self._stop)

    def _start_pump(self, stack: contextlib.ExitStack) -> int:
        """Start to move a pipe's bytes to the decompressor; return its standard input, which *stack* closes."""
        stdin, into = os.pipe2(os.O_CLOEXEC)
        stack.callback(os.close, stdin)
        self._pump = _Pump(self._fd, self._head, into, self._stop)
        return stdin

    @property
    def threads(self) -> int:
        """Number of threads that can read at the same time: 0 means any number."""
        return 0 if self.form == "plain" and self.size is not None else 1

    def reads(self) -> Iterator[Read]:
        """Return the reader of the blocks of the text; it raises Stopped, and BadInput for pairs not grouped."""
        if not self.threads:
            return map(self._stoppable, file_reads(self._fd))
        return itertools.repeat(self._poller.read)

    def _stoppable(self, read: Read) -> Read:
        if self._stop.is_set:
            raise Stopped
        return read

    def check(self, blocks: Iterator[FastqBlock]) -> Iterator[FastqBlock]:
        """Yield *blocks*; at the end raise Damaged or BadInput if they are not the whole input."""
        try:
            yield from blocks
        except OSError as error:
            raise BadInput(f"cannot be read: {error.strerror}", file=self.label) from error
        if self._decompressor is not None:
            self._check_decompressor(self._decompressor)
        state = os.fstat(self._fd)
        if self.size is not None and (state.st_size, state.st_mtime_ns) != (self.size, self._state.st_mtime_ns):
            raise BadInput("was changed while it was read", file=self.label)
        self._running.close()

    def _check_decompressor(self, decompressor: Decompressor) -> None:
        """Raise Damaged or BadInput if *decompressor* ends without having read the whole input."""
        damage = decompressor.damage()
        if self._pump is not None and self._pump.error is not None:
            raise BadInput(f"cannot be read: {self._pump.error.strerror}", file=self.label)
        if damage:
            raise Damaged(damage)

    def position(self, end: int) -> int | None:
        """Return how many bytes of the input were read; *end* is the position in the text."""
        if self.size is None:
            return None
        if self._decompressor is None:
            return end
        # The process shares the file offset.
        return os.lseek(self._fd, 0, os.SEEK_CUR)

    def close(self) -> None:
        """Stop the decompression; the stop request must be set unless the input was read to its end."""
        self._running.close()
        if self._pump is not None:
            self._pump.join()
        self._stack.close()


def _open(path: Path) -> int:
    # O_NONBLOCK: a FIFO opens before its writer does. Reads wait for the writer with poll(2).
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


class _Poller:
    """Reads *head* and then the descriptor *fd*; a wait ends with Stopped."""

    def __init__(self, fd: int, stop: StopRequest, head: bytes = b"") -> None:
        self._fd, self._stop, self._head = fd, stop, head
        self._poll = select.poll()
        for descriptor in (fd, stop.fd):
            self._poll.register(descriptor, select.POLLIN)

    def read(self, room: memoryview) -> int:
        if self._head:
            count = min(len(room), len(self._head))
            room[:count], self._head = self._head[:count], self._head[count:]
            return count
        while True:
            events = dict(self._poll.poll())
            if self._stop.is_set:
                raise Stopped
            if self._fd in events:
                with contextlib.suppress(BlockingIOError):
                    return os.readv(self._fd, [room])


class _Pump:
    """A thread that moves *head* and the bytes of the descriptor *source* into a pipe, which it closes."""

    def __init__(self, source: int, head: bytes, into: int, stop: StopRequest) -> None:
        self.error: OSError | None = None
        self._source, self._head, self._into, self._stop = source, head, into, stop
        self._thread = WorkerThread("reads", self._run)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            with PipeWriter(self._into, self._stop) as writer:
                enlarge_pipe(self._into)
                writer.write(self._head)
                self._head = b""
                try:
                    while splice(self._source, self._into, None, _SPLICE, self._stop):
                        pass
                except OSError as error:
                    if error.errno not in CANNOT_SPLICE:
                        raise
                    self._copy(writer)
        except (BrokenPipeError, Stopped):
            pass  # the process has ended, and its status says why
        except OSError as error:
            self.error = error

    def _copy(self, writer: PipeWriter) -> None:
        poller, room = _Poller(self._source, self._stop), memoryview(bytearray(_SPLICE))
        while count := poller.read(room):
            writer.write(room[:count])
