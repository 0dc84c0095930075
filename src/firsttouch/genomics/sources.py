# SPDX-License-Identifier: Apache-2.0
"""Byte sources of reads: plain and gzip files, read in ranges to feed them; rapidgzip decompresses."""

from __future__ import annotations

import collections
import contextlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Iterator, Sequence
from typing import IO

from firsttouch.errors import BadInput, Missing
from firsttouch.execution.child_process import child, signal_name
from firsttouch.genomics.pipe_writer import PipeWriter, Stopped, StopRequest, enlarge_pipe
from firsttouch.genomics.reads import Layout, ReadFile

# ----------------------------------------------------------------------
# Gzip files, decompressed by rapidgzip in a separate process, which ends with all its memory and threads

_RAPIDGZIP = (sys.executable, "-I", "-c", "import sys, rapidgzip; sys.exit(rapidgzip.cli())", "--quiet")
#: Without an index, the parallel decoder guesses what precedes a block: twice the work, and with two threads five
#: times slower than one thread on FASTQ. From this number of CPUs on it is faster.
_PARALLEL_CPUS = 8
_MEMBER = re.compile(rb"\x1f\x8b\x08[\x00-\x1f]", re.DOTALL)
_WINDOW = 1 << 20
_CHANCE = 1 << 10
#: Bytes of an empty gzip member: header, one block, checksum and size.
_SMALLEST_MEMBER = 20


class Damaged(Exception):
    """Compressed data that cannot be decompressed to their end."""


class Decompressor:
    """A running program that decompresses; *stream* is the reading end of a pipe with its output."""

    def __init__(self, argv: Sequence[str], *, stdin: int = subprocess.DEVNULL, fds: Sequence[int] = ()) -> None:
        self._stack = contextlib.ExitStack()
        self._log = self._stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        try:
            self.process = self._stack.enter_context(
                child(argv, stdin=stdin, stdout=subprocess.PIPE, stderr=self._log, fds=fds)
            )
        except BaseException:
            self._stack.close()
            raise
        assert self.process.stdout is not None  # noqa: S101 (for mypy: it was asked for)
        self._stack.callback(self.process.stdout.close)
        self.stream = self.process.stdout.fileno()
        enlarge_pipe(self.stream)

    def failure(self) -> str:
        """Wait for the process; return the last line of its log if it failed, else an empty string."""
        status = self.process.wait()
        if status == 0:
            return ""
        lines = [line.strip() for line in self.log().splitlines()]
        silent = f"signal {signal_name(-status)}" if status < 0 else "it printed nothing"
        return next(filter(None, reversed(lines)), silent)

    def log(self) -> str:
        """Return what the process printed to standard error."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def close(self) -> None:
        """Stop the process."""
        self._stack.close()


class Rapidgzip(Decompressor):
    """A running rapidgzip."""

    def __init__(self, file: ReadFile, argv: Sequence[str], index: IO[bytes] | None = None) -> None:
        require_package("rapidgzip")
        fd = file.open()
        try:
            fds = [fd] if index is None else [fd, index.fileno()]
            super().__init__([*_RAPIDGZIP, "-d", "-c", *argv, f"/dev/fd/{fd}"], fds=fds)
        finally:
            os.close(fd)

    @classmethod
    def whole(cls, file: ReadFile, index: IO[bytes] | None = None) -> Rapidgzip:
        """Decompress all of *file*, and write its seek index to *index*."""
        threads = str(len(os.sched_getaffinity(0)) if is_parallel() else 1)
        if index is None:
            return cls(file, ["-P", threads])
        # The gztool format compresses its windows: a tenth of the size of indexed_gzip's.
        export = ["--index-format", "gztool", "-f", "--export-index", f"/dev/fd/{index.fileno()}"]
        return cls(file, ["-P", threads, *export], index)

    @classmethod
    def range(cls, file: ReadFile, index: IO[bytes], begin: int, size: int) -> Rapidgzip:
        """Decompress *size* bytes from byte *begin* of the decompressed data on."""
        seek = ["--ranges", f"{size}@{begin}", "--import-index", f"/dev/fd/{index.fileno()}"]
        return cls(file, ["-P", "1", *seek], index)


def is_parallel() -> bool:
    """Return whether rapidgzip decompresses faster with all CPUs than with one."""
    return len(os.sched_getaffinity(0)) >= _PARALLEL_CPUS


def require_package(name: str) -> None:
    """Raise Missing if a Python package is not installed."""
    if importlib.util.find_spec(name) is None:
        raise Missing(f"the Python package {name} is not installed: `make setup` installs it")


def is_complete_gzip(file: ReadFile, size: int) -> bool:
    """Return whether the last member of a gzip file, which holds *size* decompressed bytes, is complete.

    rapidgzip 0.16.1 takes a truncated file for a complete one. A member ends with its decompressed size modulo
    2^32, which decides for a file of one member. In a file of several, the last member is searched for from the
    end: it is the one that ends with the file.
    """
    fd = file.open()
    try:
        stated = int.from_bytes(os.pread(fd, 4, max(file.size - 4, 0)), "little")
        if file.size >= _SMALLEST_MEMBER and stated == size & 0xFFFFFFFF:
            return True
        verdicts = (_ends_file(fd, at, file.size) for at in _member_candidates(fd, file.size))
        return next((verdict for verdict in verdicts if verdict is not None), False)
    finally:
        os.close(fd)


def _member_candidates(fd: int, size: int) -> Iterator[int]:
    """Yield the offsets at which a further gzip member may begin, the last one first."""
    end = size
    while end > 1:
        begin = max(end - _WINDOW, 1)
        offsets = [begin + m.start() for m in _MEMBER.finditer(os.pread(fd, end - begin + 3, begin))]
        yield from (offset for offset in reversed(offsets) if offset < end)
        end = begin


def _ends_file(fd: int, begin: int, size: int) -> bool | None:
    """Return whether the gzip member at byte *begin* ends with the file, apart from zeros; None: not a member."""
    decompressor = zlib.decompressobj(wbits=31)
    at = begin
    try:
        while not decompressor.eof:
            data = decompressor.unconsumed_tail
            if not data:
                data = os.pread(fd, _WINDOW, at)
                at += len(data)
            if not data:
                # Bytes just before the end of the file may look like the beginning of a member by chance.
                return False if at - begin > _CHANCE else None
            decompressor.decompress(data, _WINDOW)
    except zlib.error:
        return None
    return at == size and not decompressor.unused_data.strip(b"\0")


# ----------------------------------------------------------------------
# Ranges of bytes for the feeders. Offsets in a gzip file are those of the decompressed data.

#: Bytes of one read if splice(2) cannot move them.
_READ_BYTES = 1 << 20


class ByteSource:
    """The bytes of one file of reads; every read ends with Stopped when *stop* is set."""

    def __init__(self, layout: Layout, stop: StopRequest) -> None:
        self._layout, self._stop = layout, stop

    def read(self, begin: int, end: int) -> Iterator[bytes]:
        """Yield the bytes *begin* to *end* - 1 in blocks; raises BadInput if the file ends before."""
        raise NotImplementedError

    def copy(self, begin: int, end: int, writer: PipeWriter) -> None:
        """Write the bytes *begin* to *end* - 1 to *writer*."""
        for block in self.read(begin, end):
            writer.write(block)

    def close(self) -> None:
        """Release the file or the process; a thread that still reads from it meets its end."""


class _Descriptor(ByteSource):
    """The bytes of a file or (*is_pipe*) those that come through a pipe."""

    def __init__(self, layout: Layout, stop: StopRequest, fd: int, *, is_pipe: bool) -> None:
        super().__init__(layout, stop)
        self._fd, self._is_pipe = fd, is_pipe

    def copy(self, begin: int, end: int, writer: PipeWriter) -> None:
        at = begin
        while at < end:
            moved = writer.splice(self._fd, None if self._is_pipe else at, end - at)
            if moved is None:
                super().copy(at, end, writer)
                return
            self._check(moved)
            at += moved

    def read(self, begin: int, end: int) -> Iterator[bytes]:
        at = begin
        while at < end:
            size = min(_READ_BYTES, end - at)
            block = os.read(self._fd, size) if self._is_pipe else os.pread(self._fd, size, at)
            self._check(len(block))
            at += len(block)
            yield block

    def _check(self, size: int) -> None:
        if self._stop.is_set:
            raise Stopped
        if not size:
            what = "the gzip data end too early" if self._is_pipe else "ends too early"
            raise BadInput(f"{what}: was it changed after it had been checked?", file=self._layout.file.path)


class PlainFile(_Descriptor):
    """A plain file: any range in any order."""

    def __init__(self, layout: Layout, stop: StopRequest) -> None:
        super().__init__(layout, stop, layout.file.open(), is_pipe=False)
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


class _GzipRange(_Descriptor):
    """One range of a gzip file, read from its begin to its end."""

    def __init__(self, layout: Layout, stop: StopRequest, begin: int, end: int) -> None:
        assert layout.index is not None  # noqa: S101 (inspect makes one for every gzip file)
        self._rapidgzip = Rapidgzip.range(layout.file, layout.index, begin, end - begin)
        super().__init__(layout, stop, self._rapidgzip.stream, is_pipe=True)

    def close(self) -> None:
        self._rapidgzip.close()


class SeekableGzip(ByteSource):
    """A gzip file: any range in any order, each decompressed by a new process."""

    def copy(self, begin: int, end: int, writer: PipeWriter) -> None:
        """Decompress and write a range."""
        with contextlib.closing(_GzipRange(self._layout, self._stop, begin, end)) as source:
            source.copy(begin, end, writer)

    def read(self, begin: int, end: int) -> Iterator[bytes]:
        """Decompress and yield a range."""
        with contextlib.closing(_GzipRange(self._layout, self._stop, begin, end)) as source:
            yield from source.read(begin, end)


class SharedGzip(ByteSource):
    """A gzip file that is decompressed once for all instances; each takes the ranges that are given to it.

    A range that is passed before its instance asks for it is kept in memory: that instance still reads the other
    mate.
    """

    def __init__(self, layout: Layout, stop: StopRequest, ranges: Sequence[tuple[int, int]]) -> None:
        """Prepare adjacent *ranges* (begin, end), each of which is read once."""
        super().__init__(layout, stop)
        self._source = _GzipRange(layout, stop, ranges[0][0], ranges[-1][1])
        self._lock = threading.Lock()
        self._coming = collections.deque(ranges)
        self._kept: dict[int, list[bytes]] = {}

    def read(self, begin: int, end: int) -> Iterator[bytes]:  # noqa: ARG002 (known from *ranges*)
        """Yield a range, after decompressing all that precede it."""
        with self._lock:
            while begin not in self._kept:
                first, last = self._coming.popleft()
                self._kept[first] = list(self._source.read(first, last))
            blocks = self._kept.pop(begin)
        yield from blocks

    def close(self) -> None:
        """Stop the decompression."""
        self._source.close()
