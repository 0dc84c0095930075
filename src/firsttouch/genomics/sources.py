# SPDX-License-Identifier: Apache-2.0
"""Where the bytes of reads come from: plain and gzip files, whole or in part."""

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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

import numpy as np
import numpy.typing as npt

from firsttouch.errors import BadInput, Missing
from firsttouch.execution.process_runner import child
from firsttouch.genomics.pipe_writer import Halt, Outlet, Stopped, enlarge

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

# ----------------------------------------------------------------------
# Read files as they lie on disk: what they are by their content, and whether they are still the same.

_GZIP = b"\x1f\x8b"
#: Compressions that no aligner here reads by itself, by how their files begin, with what unpacks them.
_OTHERS = {b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "unzip"}


@dataclass(frozen=True)
class Source:
    """A file of reads, plain or gzip (*packed*), with what tells that it was changed since (bytes, ns)."""

    file: Path
    packed: bool
    size: int
    changed: int

    def open(self) -> int:
        """Return a descriptor of the file; raises BadInput where it is gone or was changed meanwhile."""
        fd = _open(self.file)
        now = os.fstat(fd)
        if (now.st_size, now.st_mtime_ns) != (self.size, self.changed):
            os.close(fd)
            raise BadInput("was changed after it had been checked", file=self.file)
        return fd


def source(file: Path) -> Source:
    """Return what *file* is; raises BadInput where it cannot be read, and read again, or is packed otherwise."""
    fd = _open(file)
    try:
        state = os.fstat(fd)
        if not stat.S_ISREG(state.st_mode):
            if stat.S_ISDIR(state.st_mode):
                raise BadInput("cannot be read: Is a directory", file=file)
            raise BadInput("is no regular file: reads are read more than once, save them in a file", file=file)
        magic = os.pread(fd, 6, 0)
    finally:
        os.close(fd)
    for begin, program in _OTHERS.items():
        if magic.startswith(begin):
            raise BadInput(f"is compressed with something else than gzip: unpack it with {program}", file=file)
    return Source(file, magic.startswith(_GZIP), state.st_size, state.st_mtime_ns)


def _open(file: Path) -> int:
    if str(file) == "-":
        raise BadInput("reads on standard input are not taken: they are read more than once, save them in a file")
    try:
        # Nobody may be at the other end of a FIFO: it is to be refused, not waited for.
        return os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", file=file) from error


# ----------------------------------------------------------------------
# Gzip files, through rapidgzip: unpacked as a whole with its seek index made, or from any place with it.
#
# rapidgzip runs as a program of its own: its memory is its own, and so are its threads; nothing of it stays.

_PROGRAM = (sys.executable, "-I", "-c", "import sys, rapidgzip; sys.exit(rapidgzip.cli())", "--quiet")
#: Without an index its parallel decoder does twice the work (it has to guess what came before a block), and
#: more: two threads were five times slower than one on FASTQ. From here on more threads are worth it.
_MANY = 8
_MEMBER = re.compile(rb"\x1f\x8b\x08[\x00-\x1f]", re.DOTALL)
_WINDOW = 1 << 20
_CHANCE = 1 << 10
#: Bytes of a member of nothing: header, one block, checksum and size.
_LEAST = 20


class Unpacker:
    """A running rapidgzip: *stream* is a pipe's reading end, with all bytes or a range of the unpacked ones."""

    def __init__(self, source: Source, argv: list[str], keep: tuple[int, ...] = ()) -> None:
        if importlib.util.find_spec("rapidgzip") is None:
            raise Missing("the Python package rapidgzip is not installed: `make setup` installs it")
        fd = source.open()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed with this)
        self._running = contextlib.ExitStack()
        try:
            self.process = self._running.enter_context(
                child(
                    [*_PROGRAM, *argv, f"/dev/fd/{fd}"],
                    stdout=subprocess.PIPE,
                    stderr=self._said,
                    fds=(fd, *keep),
                )
            )
        finally:
            os.close(fd)
        assert self.process.stdout is not None  # noqa: S101 (for mypy: it was asked for)
        self.stream = self.process.stdout.fileno()
        enlarge(self.stream)

    def failure(self) -> str:
        """Wait for its end and return what it said of a failure, or an empty string."""
        if self.process.wait() == 0:
            return ""
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")

    def close(self) -> None:
        """Stop it, wherever it is."""
        assert self.process.stdout is not None  # noqa: S101
        self._running.close()
        self.process.stdout.close()
        self._said.close()


def whole(source: Source, index: IO[bytes]) -> Unpacker:
    """Start unpacking all of *source*; its seek index is written to the file *index*."""
    pus = len(os.sched_getaffinity(0))
    argv = ["-d", "-c", "-P", str(pus if pus >= _MANY else 1)]
    # This format packs its windows: a tenth of the size of the other.
    argv += ["--index-format", "gztool", "-f", "--export-index", f"/dev/fd/{index.fileno()}"]
    return Unpacker(source, argv, (index.fileno(),))


def part(source: Source, index: IO[bytes], begin: int, size: int) -> Unpacker:
    """Start unpacking *size* bytes of *source*, from byte *begin* of what it unpacks to."""
    argv = ["-d", "-c", "-P", "1", "--ranges", f"{size}@{begin}", "--import-index", f"/dev/fd/{index.fileno()}"]
    return Unpacker(source, argv, (index.fileno(),))


def intact(source: Source, unpacked: int) -> bool:
    """Tell whether the last member of a gzip file, which unpacks to *unpacked* bytes, is there to its end.

    rapidgzip 0.16.1 takes a file that was cut for one that ends there, without a word. A member ends with the
    size of what it holds (modulo 2^32): that decides for a file of one member. Of several, the last one is
    looked for from the end: it is the one that unpacks to the file's very end.
    """
    fd = source.open()
    try:
        size = int.from_bytes(os.pread(fd, 4, max(source.size - 4, 0)), "little")
        if source.size >= _LEAST and size == unpacked & 0xFFFFFFFF:
            return True
        verdicts = (_ends(fd, at, source.size) for at in _members(fd, source.size))
        return next((verdict for verdict in verdicts if verdict is not None), False)
    finally:
        os.close(fd)


def _members(fd: int, size: int) -> Iterator[int]:
    """Yield where a further gzip member may begin, the last place first."""
    end = size
    while end > 1:
        begin = max(end - _WINDOW, 1)
        found = [m.start() for m in _MEMBER.finditer(os.pread(fd, end - begin + 3, begin))]
        yield from (begin + at for at in reversed(found) if begin + at < end)
        end = begin


def _ends(fd: int, begin: int, size: int) -> bool | None:
    """Tell whether the gzip member at byte *begin* ends with the file, zeros aside; None: there is none."""
    unpack = zlib.decompressobj(wbits=31)
    at = begin
    try:
        while not unpack.eof:
            data = unpack.unconsumed_tail
            if not data:
                data = os.pread(fd, _WINDOW, at)
                at += len(data)
            if not data:
                # Bytes that look like a beginning, just before the end, may get this far by chance.
                return False if at - begin > _CHANCE else None
            unpack.decompress(data, _WINDOW)
    except zlib.error:
        return None
    return at == size and not unpack.unused_data.strip(b"\0")


# ----------------------------------------------------------------------
# The bytes of a file of reads in blocks, with where lines end in each, read and searched ahead.


#: Bytes of a block: small enough for caches to help, large enough for numpy's calls to cost little.
BLOCK = 1 << 21
#: Room before a block for the record that the block before it did not end, and after it, so that a look at
#: the bytes that follow a name needs no care.
HEAD, SLACK = 1 << 14, 1 << 8
_NEWLINE, _RETURN = 10, 13


class Damaged(Exception):
    """Gzip data that cannot be unpacked to their end."""


class Block:
    """Bytes ``data[HEAD : HEAD + size]`` (*room*), where newlines are among them (from 0), and whether a CR is.

    *data* is used again for a later block: it holds until the next one is asked for.
    """

    def __init__(self) -> None:
        self._raw = bytearray(HEAD + BLOCK + SLACK)
        self._mask = np.empty(BLOCK, np.bool_)
        self.data: Bytes = np.frombuffer(self._raw, np.uint8)
        self.room = memoryview(self._raw)[HEAD : HEAD + BLOCK]
        self.size = 0
        self.ends: Ints = np.empty(0, np.int64)
        self.returns = False

    def search(self, size: int) -> Block:
        """Find the lines' ends in the first *size* bytes."""
        self.size = size
        mask = self._mask[:size]
        np.equal(self.data[HEAD : HEAD + size], _NEWLINE, out=mask)
        self.ends = np.flatnonzero(mask)
        self.returns = self._raw.find(_RETURN, HEAD, HEAD + size) >= 0
        return self


@contextlib.contextmanager
def blocks(source: Source, threads: int, index: IO[bytes] | None) -> Iterator[Iterator[Block]]:
    """Open *source* and give its blocks in order, all but the last BLOCK bytes large.

    Up to *threads* threads read and search ahead of who asks. Of a gzip file the blocks are of what it unpacks
    to, and its seek index is written to *index*. Raises Damaged (with the blocks).
    """
    with contextlib.ExitStack() as stack:
        fill: Callable[[Block, int], Block]
        if index is not None:
            unpacker = whole(source, index)
            stack.callback(unpacker.close)
            fill, threads = _Stream(unpacker.stream).fill, 1
        else:
            fd = source.open()
            stack.callback(os.close, fd)
            fill = _Plain(fd).fill
        pool = stack.enter_context(ThreadPoolExecutor(threads, thread_name_prefix="reads"))
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        if source.packed:
            # What a thread waits for comes to an end with who sends it.
            stack.callback(unpacker.process.kill)
        given = _ahead(pool, fill, threads)
        yield _unpacked(given, unpacker, source) if source.packed else given


def _ahead(pool: ThreadPoolExecutor, fill: Callable[[Block, int], Block], threads: int) -> Iterator[Block]:
    waiting: collections.deque[Future[Block]] = collections.deque()
    numbers = itertools.count()
    waiting.extend(pool.submit(fill, Block(), next(numbers)) for _ in range(threads + 1))
    while True:
        block = waiting.popleft().result()
        if block.size:
            yield block
        if block.size < BLOCK:
            return
        waiting.append(pool.submit(fill, block, next(numbers)))


def _unpacked(given: Iterator[Block], unpacker: Unpacker, source: Source) -> Iterator[Block]:
    size = 0
    for block in given:
        size += block.size
        yield block
    reason = unpacker.failure()
    if reason or not intact(source, size):
        raise Damaged("the gzip data are truncated or damaged" + (f" ({reason})" if reason else ""))


class _Plain:
    """Fills blocks from a file, by their number."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fill(self, block: Block, number: int) -> Block:
        size = 0
        while size < BLOCK:
            got = os.preadv(self._fd, [block.room[size:]], number * BLOCK + size)
            if not got:
                break
            size += got
        return block.search(size)


class _Stream:
    """Fills blocks from a pipe, one after the other."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fill(self, block: Block, _number: int) -> Block:
        size = 0
        while size < BLOCK and (got := os.readv(self._fd, [block.room[size:]])):
            size += got
        return block.search(size)


@dataclass(frozen=True, eq=False)
class Layout:
    """How one file is written: see :class:`firsttouch.genomics.fastq.Checked`; *index* is gzip's seek index."""

    source: Source
    crlf: bool
    unended: bool
    blank: bool
    longest: int
    index: IO[bytes] | None

    @property
    def notes(self) -> list[str]:
        """What is unusual about the file, in words."""
        every = {
            "gzip": self.source.packed,
            "CR LF": self.crlf,
            "no newline at the end": self.unended,
            "blank lines at the end": self.blank,
        }
        return [note for note, is_so in every.items() if is_so]

    @property
    def as_is(self) -> bool:
        """Whether a program reads the same from the file as from us; not all of them unpack gzip."""
        return not (self.crlf or self.unended or self.blank or self.source.packed)


# ----------------------------------------------------------------------
# Where the bytes of parts come from: a file, a gzip file from its middle, or a gzip file from end to end.

#: Bytes read at a time where they are looked at.
_BLOCK = 1 << 20


class Intake(Protocol):
    """Gives the bytes of one file of a part."""

    def pour(self, begin: int, end: int, outlet: Outlet) -> None:
        """Write the bytes *begin* to *end* - 1 to *outlet* as they are."""

    def blocks(self, begin: int, end: int) -> Iterator[bytes]:
        """Yield the bytes *begin* to *end* - 1."""

    def close(self) -> None:
        """Free what it holds; who reads from it meets its end."""


class Flow:
    """Bytes of a descriptor: a file's, or (*packed*) those of a pipe that gives them in order."""

    def __init__(self, layout: Layout, fd: int, *, from_pipe: bool, halt: Halt) -> None:
        self._layout, self._fd, self._pipe, self._halt = layout, fd, from_pipe, halt

    def pour(self, begin: int, end: int, outlet: Outlet) -> None:
        """Write bytes to *outlet* as they are."""
        at = begin
        while at < end:
            moved = outlet.splice(self._fd, None if self._pipe else at, end - at)
            if moved is None:
                for block in self.blocks(at, end):
                    outlet.write(block)
                return
            self._check(moved)
            at += moved

    def blocks(self, begin: int, end: int) -> Iterator[bytes]:
        """Yield bytes."""
        at = begin
        while at < end:
            size = min(_BLOCK, end - at)
            block = os.read(self._fd, size) if self._pipe else os.pread(self._fd, size, at)
            self._check(len(block))
            at += len(block)
            yield block

    def _check(self, moved: int) -> None:
        if self._halt.asked:
            raise Stopped
        if not moved:
            what = "the gzip data end too early" if self._pipe else "ends too early"
            raise BadInput(f"{what}: was it changed after it had been checked?", file=self._layout.source.file)

    def close(self) -> None:
        """Free what it holds."""
        if not self._pipe:
            os.close(self._fd)


class Plain(Flow):
    """A plain file: any part, in any order."""

    def __init__(self, layout: Layout, halt: Halt) -> None:
        super().__init__(layout, layout.source.open(), from_pipe=False, halt=halt)
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)


class Unpacked(Flow):
    """Bytes *begin* to *end* - 1 of what a gzip file unpacks to, in order."""

    def __init__(self, layout: Layout, halt: Halt, begin: int, end: int) -> None:
        assert layout.index is not None  # noqa: S101 (a gzip file that was checked has one)
        self._unpacker = part(layout.source, layout.index, begin, end - begin)
        super().__init__(layout, self._unpacker.stream, from_pipe=True, halt=halt)

    def close(self) -> None:
        """Free what it holds."""
        self._unpacker.close()


class Anew:
    """A gzip file, unpacked anew from where each piece begins."""

    def __init__(self, layout: Layout, halt: Halt) -> None:
        self._layout, self._halt = layout, halt

    def pour(self, begin: int, end: int, outlet: Outlet) -> None:
        """Write bytes to *outlet* as they are."""
        with contextlib.closing(Unpacked(self._layout, self._halt, begin, end)) as unpacked:
            unpacked.pour(begin, end, outlet)

    def blocks(self, begin: int, end: int) -> Iterator[bytes]:
        """Yield bytes."""
        with contextlib.closing(Unpacked(self._layout, self._halt, begin, end)) as unpacked:
            yield from unpacked.blocks(begin, end)

    def close(self) -> None:
        """Free what it holds: nothing, between two pieces."""


class Shared:
    """A gzip file, unpacked once, from end to end, for all instances: each takes the pieces that are its own.

    A piece that nobody has taken when one behind it is wanted is kept in memory: it is a mate's whose instance
    still reads the other mate.
    """

    def __init__(self, layout: Layout, halt: Halt, pieces: Sequence[tuple[int, int]]) -> None:
        """Take *pieces* as bytes from, to: next to each other, each to be taken once."""
        self._flow = Unpacked(layout, halt, pieces[0][0], pieces[-1][1])
        self._lock = threading.Lock()
        self._coming = collections.deque(pieces)
        self._kept: dict[int, list[bytes]] = {}

    def pour(self, begin: int, end: int, outlet: Outlet) -> None:
        """Write bytes to *outlet* as they are."""
        for block in self.blocks(begin, end):
            outlet.write(block)

    def blocks(self, begin: int, end: int) -> Iterator[bytes]:  # noqa: ARG002 (where a piece ends is known)
        """Yield bytes."""
        with self._lock:
            while begin not in self._kept:
                first, last = self._coming.popleft()
                self._kept[first] = list(self._flow.blocks(first, last))
            piece = self._kept.pop(begin)
        yield from piece

    def close(self) -> None:
        """Free what it holds."""
        self._flow.close()
