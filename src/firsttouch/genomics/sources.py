# SPDX-License-Identifier: Apache-2.0
"""Byte sources of reads: plain and gzip files, read in blocks to check them and in ranges to feed them."""

from __future__ import annotations

import collections
import contextlib
import importlib.util
import itertools
import os
import re
import stat
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from firsttouch.errors import BadInput, Missing
from firsttouch.execution.process_runner import child
from firsttouch.genomics.pipe_writer import PipeWriter, Stopped, StopRequest, enlarge_pipe

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

# ----------------------------------------------------------------------
# Files

_GZIP = b"\x1f\x8b"
#: Compressions that are not supported: how their files begin, and the program that decompresses them.
_UNSUPPORTED = {b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "unzip"}


@dataclass(frozen=True)
class ReadFile:
    """A file of reads, plain or gzip; *size* (bytes) and *modified* (ns) reveal later changes."""

    path: Path
    gzipped: bool
    size: int
    modified: int

    @classmethod
    def identify(cls, path: Path) -> ReadFile:
        """Identify a file by its content; raises BadInput if it is not a regular file, plain or gzip."""
        fd = _open(path)
        try:
            state = os.fstat(fd)
            if stat.S_ISDIR(state.st_mode):
                raise BadInput("cannot be read: Is a directory", file=path)
            if not stat.S_ISREG(state.st_mode):
                reason = "is not a regular file: reads are read more than once, save them in a file"
                raise BadInput(reason, file=path)
            magic = os.pread(fd, 6, 0)
        finally:
            os.close(fd)
        for begin, program in _UNSUPPORTED.items():
            if magic.startswith(begin):
                raise BadInput(f"is compressed, but not with gzip: decompress it with {program}", file=path)
        return cls(path, magic.startswith(_GZIP), state.st_size, state.st_mtime_ns)

    def open(self) -> int:
        """Return a descriptor of the file; raises BadInput if the file is gone or has changed."""
        fd = _open(self.path)
        state = os.fstat(fd)
        if (state.st_size, state.st_mtime_ns) != (self.size, self.modified):
            os.close(fd)
            raise BadInput("was changed after it had been checked", file=self.path)
        return fd


def _open(path: Path) -> int:
    if str(path) == "-":
        raise BadInput("reads cannot come from standard input: they are read more than once, save them in a file")
    try:
        # O_NONBLOCK: a FIFO without a writer is refused instead of waited for.
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", file=path) from error


@dataclass(frozen=True, eq=False)
class Layout:
    """How a checked file is written.

    *crlf*: a line ends with CR LF. *unended*: the last line has no newline. *blank*: blank lines follow the last
    record. *longest*: bytes of the longest record. *index*: rapidgzip's seek index of a gzip file.
    """

    file: ReadFile
    crlf: bool
    unended: bool
    blank: bool
    longest: int
    index: IO[bytes] | None

    @property
    def notes(self) -> list[str]:
        """How the file differs from plain FASTQ."""
        differences = {
            "gzip": self.file.gzipped,
            "CR LF": self.crlf,
            "no newline at the end": self.unended,
            "blank lines at the end": self.blank,
        }
        return [note for note, applies in differences.items() if applies]

    @property
    def as_is(self) -> bool:
        """Whether every aligner can read the file itself (not all of them decompress gzip)."""
        return not self.notes


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


class DamagedGzip(Exception):
    """Gzip data that cannot be decompressed to their end."""


class Rapidgzip:
    """A running rapidgzip; *stream* is the reading end of a pipe with the decompressed bytes."""

    def __init__(self, file: ReadFile, index: IO[bytes], argv: Sequence[str]) -> None:
        if importlib.util.find_spec("rapidgzip") is None:
            raise Missing("the Python package rapidgzip is not installed: `make setup` installs it")
        fd = file.open()
        self._stack = contextlib.ExitStack()
        self._log = self._stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        try:
            self.process = self._stack.enter_context(
                child(
                    [*_RAPIDGZIP, "-d", "-c", *argv, f"/dev/fd/{fd}"],
                    stdout=subprocess.PIPE,
                    stderr=self._log,
                    fds=(fd, index.fileno()),
                )
            )
        except BaseException:
            self._stack.close()
            raise
        finally:
            os.close(fd)
        assert self.process.stdout is not None  # noqa: S101 (for mypy: it was asked for)
        self._stack.callback(self.process.stdout.close)
        self.stream = self.process.stdout.fileno()
        enlarge_pipe(self.stream)

    @classmethod
    def whole(cls, file: ReadFile, index: IO[bytes]) -> Rapidgzip:
        """Decompress all of *file*, and write its seek index to *index*."""
        cpus = len(os.sched_getaffinity(0))
        threads = str(cpus if cpus >= _PARALLEL_CPUS else 1)
        # The gztool format compresses its windows: a tenth of the size of indexed_gzip's.
        export = ["--index-format", "gztool", "-f", "--export-index", f"/dev/fd/{index.fileno()}"]
        return cls(file, index, ["-P", threads, *export])

    @classmethod
    def range(cls, file: ReadFile, index: IO[bytes], begin: int, size: int) -> Rapidgzip:
        """Decompress *size* bytes from byte *begin* of the decompressed data on."""
        seek = ["--ranges", f"{size}@{begin}", "--import-index", f"/dev/fd/{index.fileno()}"]
        return cls(file, index, ["-P", "1", *seek])

    def failure(self) -> str:
        """Wait for the process; return the last line of its log if it failed, else an empty string."""
        if self.process.wait() == 0:
            return ""
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().decode(errors="replace").splitlines()]
        return next(filter(None, reversed(lines)), "it printed nothing")

    def close(self) -> None:
        """Stop the process."""
        self._stack.close()


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
# Whole files in blocks, read ahead by threads

#: Bytes of a block: small enough for the CPU's caches, large enough to make numpy's calls cheap.
BLOCK = 1 << 21
#: Room before a block for the incomplete record of the block before, and after it for vectorised look-ahead.
HEAD, SLACK = 1 << 14, 1 << 8
NEWLINE, RETURN = 10, 13


class Block:
    """Bytes ``data[HEAD : HEAD + size]`` of a file, the offsets of the newlines in them, and whether a CR occurs.

    The next block reuses *data*.
    """

    def __init__(self) -> None:
        self._raw = bytearray(HEAD + BLOCK + SLACK)
        self._mask = np.empty(BLOCK, np.bool_)
        self.data: Bytes = np.frombuffer(self._raw, np.uint8)
        self.size = 0
        self.ends: Ints = np.empty(0, np.int64)
        self.returns = False

    def fill(self, fd: int, offset: int | None) -> Block:
        """Read the next block of a pipe (*offset* None) or the block at *offset* of a file."""
        room, size = memoryview(self._raw)[HEAD : HEAD + BLOCK], 0
        while size < BLOCK:
            rest = [room[size:]]
            count = os.readv(fd, rest) if offset is None else os.preadv(fd, rest, offset + size)
            if not count:
                break
            size += count
        self.size, mask = size, self._mask[:size]
        np.equal(self.data[HEAD : HEAD + size], NEWLINE, out=mask)
        self.ends = np.flatnonzero(mask)
        self.returns = self._raw.find(RETURN, HEAD, HEAD + size) >= 0
        return self


@contextlib.contextmanager
def read_blocks(file: ReadFile, threads: int, index: IO[bytes] | None) -> Iterator[Iterator[Block]]:
    """Open *file* and yield an iterator of its blocks; all but the last have BLOCK bytes.

    *threads* threads read ahead. A gzip file is decompressed, and its seek index is written to *index*. The
    iterator raises DamagedGzip.
    """
    with contextlib.ExitStack() as stack:
        rapidgzip = None
        if index is None:
            fd = file.open()
            stack.callback(os.close, fd)
        else:
            rapidgzip = Rapidgzip.whole(file, index)
            stack.callback(rapidgzip.close)
            fd, threads = rapidgzip.stream, 1
        pool = stack.enter_context(ThreadPoolExecutor(threads, thread_name_prefix="reads"))
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        if rapidgzip is None:
            yield _read_ahead(pool, fd, threads, seekable=True)
        else:
            stack.callback(rapidgzip.process.kill)  # ends the read in which a thread may wait
            yield _check_gzip(_read_ahead(pool, fd, threads, seekable=False), rapidgzip, file)


def _read_ahead(pool: ThreadPoolExecutor, fd: int, threads: int, *, seekable: bool) -> Iterator[Block]:
    offsets = itertools.count(0, BLOCK)

    def submit(block: Block) -> Future[Block]:
        return pool.submit(block.fill, fd, next(offsets) if seekable else None)

    pending = collections.deque(submit(Block()) for _ in range(threads + 1))
    while True:
        block = pending.popleft().result()
        if block.size:
            yield block
        if block.size < BLOCK:
            return
        pending.append(submit(block))


def _check_gzip(blocks: Iterator[Block], rapidgzip: Rapidgzip, file: ReadFile) -> Iterator[Block]:
    size = 0
    for block in blocks:
        size += block.size
        yield block
    reason = rapidgzip.failure()
    if reason or not is_complete_gzip(file, size):
        raise DamagedGzip("the gzip data are truncated or damaged" + (f" ({reason})" if reason else ""))


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
