# SPDX-License-Identifier: Apache-2.0
"""FASTQ files: found records, checked records, batches and pairs, plain or compressed."""

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
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from firsttouch.errors import BadInput, Missing
from firsttouch.execution.process_runner import child
from firsttouch.genomics.pipe_writer import enlarge
from firsttouch.units import format_bytes

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

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

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


# ----------------------------------------------------------------------
# The names of a pair's two reads: equal up to their comments and to the /1 and /2 at their ends.

#: What ends a name: a blank, a tab, the line's end, or any other control character.
_LAST_END = 32
_END = re.compile(rb"[\x00-\x20]")
_SLASH, _ONE, _TWO = b"/12"


class Names:
    """Names of reads: *data* (with SLACK bytes after the last), and where each line begins (@) and ends."""

    def __init__(self, data: Bytes, starts: Ints, ends: Ints) -> None:
        self.data, self.starts, self.ends = data, starts, ends

    def name(self, number: int) -> bytes:
        """Return the name *number*, without its comment."""
        return _END.split(self.data[self.starts[number] : self.ends[number]].tobytes(), maxsplit=1)[0]

    def width(self) -> int:
        """Return how many bytes, @ not counted, hold every name with what ends it, as far as that is usual."""
        return min(int((self.ends - self.starts).max()), SLACK)

    def rows(self, width: int) -> Bytes:
        """Return the *width* bytes after each @, as rows."""
        places = np.ndarray((len(self.data) - width + 1,), np.dtype((np.void, width)), self.data, 0, (1,))
        return places[self.starts + 1].view(np.uint8).reshape(-1, width)


def unlike(one: Names, other: Names) -> int | None:
    """Return the number of the first names that are none of a pair, or None where all are."""
    width = min(one.width(), other.width())
    first, second = one.rows(width), other.rows(width)
    stops, differ = first <= _LAST_END, first != second
    end, at = stops.argmax(1), differ.argmax(1)
    # Places in the rows one after the other: half the time of rows and columns.
    a, b, row = first.reshape(-1), second.reshape(-1), np.arange(0, first.size, width)
    place = row + end
    ended = (a[place] <= _LAST_END) & (b[place] <= _LAST_END)
    good = ended & ((at >= end) | ~differ.reshape(-1)[row + at])
    # Equal names with /1 or /2 at their ends are the same mate twice.
    before = np.maximum(place - 2, 0)
    good &= ~((end > 2) & (a[before] == _SLASH) & ((a[before + 1] == _ONE) | (a[before + 1] == _TWO)))
    if good.all():
        return None
    # Names that differ in their last character only may be those of mates 1 and 2.
    mates = ended & (at == end - 1) & (end > 2)
    last = np.where(mates, place - 1, 1)
    good |= mates & (a[last - 1] == _SLASH) & (a[last] == _ONE) & (b[last] == _TWO)
    if good.all():
        return None
    for number in np.flatnonzero(~good):
        if not _is_pair(one.name(int(number)), other.name(int(number))):
            return int(number)
    return None


def _is_pair(name: bytes, other: bytes) -> bool:
    return stem(name) == stem(other) and (name != other or stem(name) == name)


def stem(name: bytes) -> bytes:
    """Return a read's name without the /1 or /2 of a pair."""
    return name[:-2] if name[-2:] in {b"/1", b"/2"} else name


# ----------------------------------------------------------------------
# FASTQ records, checked a block at a time: where each begins and ends, and how many bases it has.

#: More than any sequencer's read: what goes on longer without a fourth newline is no FASTQ.
LONGEST = 1 << 26
#: SAM's limit for the name of a read.
LONGEST_NAME = 254
_BLANK = "begins without @: it is a blank line"
_AT, _PLUS, _SPACE = b"@+ "
_TAB, _DELETE = b"\t\x7f"
#: What SAM's SEQ and QUAL columns cannot hold, and no line with a name may hold.
_NO_BASE = re.compile(rb"[^A-Za-z.=]")
_NO_QUALITY = re.compile(rb"[^!-~]")
_NO_NAME = re.compile(rb"[^\t -~\x80-\xff]")


@dataclass
class Chunk:
    """Whole records: *data* (with SLACK bytes after the last), *first* is the file's offset of ``data[0]``.

    *starts* (n) and *ends* (n x 4, the lines' newlines) are places in *data*. Of each record *bases* (n) counts
    the bases, *text* (n) the bytes, those of its carriage returns left out.
    """

    data: Bytes
    first: int
    starts: Ints
    ends: Ints
    bases: Ints
    text: Ints


class Checked:
    """The records of one file, as chunks; then what is known of the whole file.

    *records* were read, the longest has *longest* bytes; *crlf*: a line ended with CR LF; *unended*: the last
    line has no newline; *end* is the offset after the last record, without blank lines that
    follow (*blank*) and the newline that is missing.
    """

    def __init__(self, file: Path, blocks: Iterator[Block], *, together: int = 1) -> None:
        """Take the file's *blocks*; a chunk holds a multiple of *together* records (2: interleaved pairs)."""
        self.file = file
        self.records = self.end = self.longest = 0
        self.crlf = self.unended = self.blank = False
        self._blocks, self._lines = blocks, 4 * together
        self._room = np.empty(0, np.uint8)

    def __iter__(self) -> Iterator[Chunk]:
        """Yield the chunks; each holds until the next one. Raises BadInput naming file, record and line."""
        tail, ends_of_tail = np.empty(0, np.uint8), np.empty(0, np.int64)
        for block in self._in_turn():
            data = _joined(tail, block)
            size = len(tail) + block.size
            if self.blank:
                self._only_blank(data[:size].tobytes())
                continue
            returns = block.returns or bool((tail == _RETURN).any())
            ends = np.concatenate((ends_of_tail, block.ends + len(tail)))
            whole = len(ends) // self._lines * self._lines
            if whole and (chunk := self._chunk(data, size, ends[:whole].reshape(-1, 4), returns=returns)):
                yield chunk
            used = int(ends[whole - 1]) + 1 if whole else 0
            tail, ends_of_tail = data[used:size].copy(), ends[whole:] - used
            if len(tail) > LONGEST:
                raise self._error(f"is longer than {LONGEST >> 20} MiB: is this FASTQ?", 1)
        if chunk := self._last(tail.tobytes(), ends_of_tail):
            yield chunk

    def _in_turn(self) -> Iterator[Block]:
        try:
            yield from self._blocks
        except Damaged as error:
            raise BadInput(f"record {self.records + 1}: {error}", file=self.file) from error

    def _chunk(self, data: Bytes, size: int, ends: Ints, *, returns: bool) -> Chunk | None:
        """Check the records whose lines end at *ends*; None: there is none, but blank lines."""
        starts = np.concatenate(([0], ends[:-1, 3] + 1))
        bases = ends[:, 1] - ends[:, 0] - 1
        qualities = ends[:, 3] - ends[:, 2] - 1
        text = ends[:, 3] - starts + 1
        if returns:
            begins = (starts, *(ends[:, line] + 1 for line in range(3)))
            found = [self._returns(data, begin, ends[:, line]) for line, begin in enumerate(begins)]
            bases, qualities, text = bases - found[1], qualities - found[3], text - sum(found)
        good = (data[starts] == _AT) & (data[ends[:, 1] + 1] == _PLUS) & (bases == qualities)
        if len(self._room) < size:
            self._room = np.empty(size, np.uint8)
        good &= _named(data, starts, ends[:, 0]) & _fit(data, ends, self._room)
        count = len(good)
        if not good.all():
            count = int(good.argmin())
        self.records += count
        if count < len(good):
            self._only_blank(data[starts[count] : size].tobytes())
        if count:
            self.longest = max(self.longest, int((ends[:count, 3] - starts[:count]).max()) + 1)
            first, self.end = self.end, self.end + int(ends[count - 1, 3]) + 1
            return Chunk(data, first, starts[:count], ends[:count], bases[:count], text[:count])
        return None

    def _returns(self, data: Bytes, begins: Ints, ends: Ints) -> Ints:
        """Return 1 for each line that ends with CR LF; it is the line's then, even when nothing else is in it."""
        found: Ints = ((data[ends - 1] == _RETURN) & (ends > begins)).astype(np.int64)
        self.crlf |= bool(found.any())
        return found

    def _last(self, tail: bytes, ends: Ints) -> Chunk | None:
        """Return the last record where its last newline is missing; what is left over else is an error."""
        if not tail.strip():
            self.blank |= bool(tail)
            return None
        if len(ends) == self._lines - 1:
            self.unended = True
            data = np.frombuffer(tail + b"\n" + bytes(SLACK), np.uint8)
            ends = np.append(ends, len(tail)).reshape(-1, 4)
            chunk = self._chunk(data, len(tail) + 1, ends, returns=b"\r" in tail)
            self.end -= 1
            return chunk
        raise self._wrong(tail, mate=len(ends) >= 4)

    def _only_blank(self, rest: bytes) -> None:
        """Take blank lines at the end of the file; anything else is a bad record."""
        if rest.strip():
            raise self._error(_BLANK, 1) if self.blank else self._wrong(rest)
        self.blank = True

    def _wrong(self, rest: bytes, *, mate: bool = False) -> BadInput:
        """Return what is wrong with the record that *rest* begins with; *mate*: it may be that it has none."""
        reason = _reason([line.removesuffix(b"\r") for line in rest.split(b"\n", 4)[:4]])
        if reason is None:
            reason = ("has no mate, and the file of interleaved pairs ends" if mate else "is truncated", 1)
        return self._error(*reason)

    def _error(self, reason: str, line: int) -> BadInput:
        return BadInput(f"record {self.records + 1} {reason}", file=self.file, line=4 * self.records + line)


def _named(data: Bytes, starts: Ints, ends: Ints) -> npt.NDArray[np.bool_]:
    """Tell which of the header lines have a name that SAM can hold: 1 to LONGEST_NAME bytes, without @ first."""
    first = data[starts + 1]
    good: npt.NDArray[np.bool_] = (first > _SPACE) & (first != _AT)
    long = np.flatnonzero(ends - starts - 1 > LONGEST_NAME)
    if len(long):
        names = Names(data, starts[long], ends[long])
        good[long] &= (names.rows(LONGEST_NAME + 1) <= _SPACE).any(axis=1)
    return good


def _fit(data: Bytes, ends: Ints, room: Bytes) -> npt.NDArray[np.bool_]:
    """Tell which records have only bytes that SAM can hold in their names, bases and qualities.

    *room* has space for all bytes of *data*: it is faster than new arrays.
    """
    size, lines = int(ends[-1, 3]) + 1, ends.reshape(-1)
    text, room = data[:size], room[:size]
    odd = room.view(np.bool_)
    good = np.ones(len(ends), np.bool_)
    # Bytes other than ! to ~ are rare but for the newlines: each is looked at with the line that it is in.
    np.subtract(text, ord("!"), out=room)
    np.greater(room, ord("~") - ord("!"), out=odd)
    if np.count_nonzero(odd) > len(lines):
        at = np.flatnonzero(odd)
        byte = text[at]
        more = (byte != _NEWLINE) & ~((byte == _RETURN) & (data[at + 1] == _NEWLINE))
        at, byte = at[more], byte[more]
        line = np.searchsorted(lines, at)
        fine = (line % 4 == 0) & ((byte == _TAB) | ((byte >= _SPACE) & (byte != _DELETE)))
        good[line[~fine & (line % 4 != 2)] // 4] = False
    # Lines with something else than letters: those of bases may have . and =, and end with CR.
    np.bitwise_or(text, 0x20, out=room)
    np.subtract(room, ord("a"), out=room)
    np.greater_equal(room, 26, out=odd)
    odd[lines] = False
    odd[lines - 1] &= text[lines - 1] != _RETURN
    marked = np.bitwise_or.reduceat(room, np.concatenate(([0], lines[:-1] + 1)))[1::4]
    for record in np.flatnonzero(marked):
        bases = data[ends[record, 0] + 1 : ends[record, 1]].tobytes().removesuffix(b"\r")
        good[record] &= not _NO_BASE.search(bases)
    return good


def _joined(tail: Bytes, block: Block) -> Bytes:
    """Return the block with *tail* before it."""
    if len(tail) > HEAD:
        return np.concatenate((tail, block.data[HEAD:]))
    block.data[HEAD - len(tail) : HEAD] = tail
    return block.data[HEAD - len(tail) :]


def _reason(lines: list[bytes]) -> tuple[str, int] | None:
    """Return what is wrong with a record and in which of its lines (1 to 4), or None."""
    name, bases, plus, quality = (*lines, b"", b"", b"")[:4]
    if reason := _wrong_name(name):
        return reason, 1
    if not plus.startswith(b"+"):
        if bases and plus and plus.isalpha():
            return "has no + line (is it truncated?): bases on several lines are not taken, join them", 3
        return "has no + line (is it truncated?)", 3
    if wrong := _wrong_bytes(bases, quality):
        return wrong
    if len(bases) != len(quality):
        return f"has {len(bases)} bases but {len(quality)} qualities (is it truncated?)", 4
    return None


def _wrong_name(line: bytes) -> str:
    """Return what is wrong with the line of a name, or an empty string."""
    if not line.startswith(b"@"):
        fasta = "begins without @" + (": this is FASTA, FASTQ is needed" if line.startswith(b">") else "")
        return fasta if line.strip() else _BLANK
    name = re.split(rb"[\x00-\x20]", line[1:], maxsplit=1)[0]
    if odd := _NO_NAME.search(line):
        return f"has {_shown(odd[0])} in the line of its name"
    if not name:
        return "has no name"
    if name.startswith(b"@"):
        return "has a name that begins with @, which SAM cannot hold"
    if len(name) > LONGEST_NAME:
        return f"has a name of {len(name)} bytes, SAM's limit is {LONGEST_NAME}"
    return ""


def _wrong_bytes(bases: bytes, quality: bytes) -> tuple[str, int] | None:
    """Return which byte SAM cannot hold and in which of a record's lines it is, or None."""
    if odd := _NO_BASE.search(bases):
        return f"has {_shown(odd[0])} among its bases", 2
    if len(bases) == len(quality) and (odd := _NO_QUALITY.search(quality)):
        return f"has {_shown(odd[0])} among its qualities, which are ! to ~", 4
    return None


def _shown(byte: bytes) -> str:
    """Return a byte as a message shows it."""
    return repr(byte.decode("ascii")) if b"!" <= byte <= b"~" else f"the byte {byte[0]:#04x}"


# ----------------------------------------------------------------------
# Marks: where in the files a part may begin. They stay few whatever the input.

#: With twice as many, every second one is dropped: parts are equal to a part in 65536 then.
ENOUGH = 1 << 16


@dataclass(frozen=True)
class Batch:
    """When a batch is full: with the first record (pair) at which all of this holds.

    Its bases are at least *bases*, the text of its records of mate 1 has at least *text* bytes, and their number
    is a multiple of *records*. 0 is no condition.
    """

    bases: int = 0
    records: int = 0
    text: int = 0


@dataclass(frozen=True, eq=False)
class Marks:
    """Where batches begin, and at last where the input ends.

    *records* (m + 1) are numbers of records (of pairs, where reads are paired), *offsets* (m + 1 each) their
    places in each file, or in what it unpacks to. Of *batches* batches every *stride*-th is marked; *batch* is
    when one is full.
    """

    records: Ints
    offsets: tuple[Ints, ...]
    batches: int
    stride: int
    batch: Batch


class Marker:
    """Finds the batches while records go by."""

    def __init__(self, batch: Batch, files: int) -> None:
        self.records = self.bases = self.batches = 0
        self._batch, self._stride = batch, 1
        # Records, bases and text of the batch that is open; None: the last one is full.
        self._open: tuple[int, int, int] | None = None
        self._kept = [np.empty((files + 1, 0), np.int64)]
        self._count = 0

    def add(self, bases: Ints, text: Ints, offsets: list[Ints]) -> None:
        """Take further records: the bases of each, over both mates, its text (mate 1), its place in each file."""
        starts = self._starts(bases, text)
        numbers = np.arange(self.batches, self.batches + len(starts))
        starts = starts[numbers % self._stride == 0]
        if len(starts):
            self._kept.append(np.stack([self.records + starts, *(places[starts] for places in offsets)]))
            self._count += len(starts)
        self.batches += len(numbers)
        self.records += len(bases)
        self.bases += int(bases.sum())
        while self._count > 2 * ENOUGH:
            self._kept = [np.concatenate(self._kept, axis=1)[:, ::2]]
            self._count = self._kept[0].shape[1]
            self._stride *= 2

    def _starts(self, bases: Ints, text: Ints) -> Ints:
        """Return which of the records begin a batch."""
        full, count = self._batch, len(bases)
        each = full.records < 2 and int(bases.min()) >= full.bases and int(text.min()) >= full.text
        if self._open is None and each:
            return np.arange(count)
        sums, texts = np.cumsum(bases), np.cumsum(text)
        found = []
        at = 0
        # Records, bases and text before the batch, counted from the first record here.
        before = (0, 0, 0)
        if self._open is None:
            found.append(0)
        else:
            before = (-self._open[0], -self._open[1], -self._open[2])
        while True:
            enough = np.searchsorted(sums, before[1] + full.bases), np.searchsorted(texts, before[2] + full.text)
            last = max(at, *map(int, enough))
            last += -(last + 1 - before[0]) % max(1, full.records)
            if last >= count:
                self._open = (count - before[0], int(sums[-1]) - before[1], int(texts[-1]) - before[2])
                break
            at = last + 1
            if at == count:
                self._open = None
                break
            found.append(at)
            before = (at, int(sums[last]), int(texts[last]))
        return np.array(found, np.int64)

    def marks(self, ends: list[int]) -> Marks:
        """Return what was found, with the *ends* of the files."""
        kept = np.concatenate([*self._kept, np.array([[self.records], *([e] for e in ends)])], axis=1)
        return Marks(kept[0], tuple(kept[1:]), self.batches, self._stride, self._batch)


# ----------------------------------------------------------------------
# One pass over the reads before any program starts: every record checked, counted, and batches found.

#: Seconds between two messages of a long pass.
_OFTEN = 10.0


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


@dataclass(frozen=True)
class Reads:
    """Reads that were checked: *records* (pairs, where they are paired), *bases* over both mates.

    *files* are one, or two of a pair; *interleaved*: the pairs are in one. A part begins at one of the *marks*.
    """

    files: tuple[Path, ...]
    interleaved: bool
    batch_bases: int
    records: int
    bases: int
    marks: Marks = field(repr=False)
    layouts: tuple[Layout, ...] = field(repr=False)

    @property
    def paired(self) -> bool:
        """Whether a record is a pair."""
        return self.interleaved or len(self.files) == 2

    @property
    def mates(self) -> int:
        """How many pipes an instance reads: 2 where reads are paired."""
        return 2 if self.paired else 1

    @property
    def as_is(self) -> bool:
        """Whether a program may read the files themselves."""
        return not self.interleaved and all(layout.as_is for layout in self.layouts)


def inspect(
    files: Sequence[Path],
    *,
    batch_bases: int = 0,
    batch_records: int = 0,
    batch_bytes: int = 0,
    interleaved: bool = False,
    say: Callable[[str], None] | None = None,
) -> Reads:
    """Read *files* (one, or two of a pair) once: check every record, count, and find where parts may begin.

    A batch ends with the first record (pair) at which its bases, over both mates, reach *batch_bases*, the text
    of its records of mate 1 reaches *batch_bytes* and their number is a multiple of *batch_records*; with 0 for
    all of them every record is one. *say* is told how far it is.
    Raises BadInput, which names file, record and line, for what is no FASTQ, for no record at all, and for pairs
    that are not in step.
    """
    if len(files) not in {1, 2} or (interleaved and len(files) == 2):
        raise BadInput(f"{len(files)} read files: one, or two of a pair that is not interleaved, are needed")
    sources = [source(file) for file in files]
    if len(files) == 2 and files[0].samefile(files[1]):
        raise BadInput("this is the file of mate 1 again: name the file of mate 2", file=files[1])
    indexes = [_unnamed() if s.packed else None for s in sources]
    marker = Marker(Batch(batch_bases, batch_records, batch_bytes), len(files))
    threads = max(1, min(4, len(os.sched_getaffinity(0))) // len(files))
    tell = _telling(say)
    with contextlib.ExitStack() as stack:
        checked = []
        for one, index in zip(sources, indexes, strict=True):
            given = stack.enter_context(blocks(one, threads, index))
            checked.append(Checked(one.file, given, together=1 + interleaved))
        for windows in _together(checked) if len(files) == 2 else _alone(checked[0], interleaved=interleaved):
            _compare(checked, windows, marker.records)
            bases = sum((w.chunk.bases[w.mine] for w in windows[1:]), windows[0].chunk.bases[windows[0].mine])
            places = [w.chunk.first + w.chunk.starts[w.mine] for w in windows[: len(files)]]
            marker.add(bases, windows[0].chunk.text[windows[0].mine], places)
            tell(checked)
    if not marker.records:
        raise BadInput("no reads", file=files[0])
    layouts = tuple(
        Layout(s, c.crlf, c.unended, c.blank, c.longest, i)
        for s, c, i in zip(sources, checked, indexes, strict=True)
    )
    marks = marker.marks([c.end for c in checked])
    return Reads(tuple(files), interleaved, batch_bases, marker.records, marker.bases, marks, layouts)


def _unnamed() -> IO[bytes]:
    """Return a file that is gone when nobody holds it any more."""
    return tempfile.TemporaryFile(prefix="firsttouch-")


@dataclass
class _Window:
    """Some of a chunk's records."""

    chunk: Chunk
    mine: slice

    def names(self) -> Names:
        return Names(self.chunk.data, self.chunk.starts[self.mine], self.chunk.ends[self.mine, 0])


def _alone(checked: Checked, *, interleaved: bool) -> Iterator[list[_Window]]:
    """Yield the chunks of one file; of interleaved pairs, mates 1 and 2."""
    for chunk in checked:
        yield [_Window(chunk, slice(mate, None, 1 + interleaved)) for mate in range(1 + interleaved)]


def _together(checked: Sequence[Checked]) -> Iterator[list[_Window]]:
    """Yield as many records of both files as are there of either."""
    streams = [iter(c) for c in checked]
    held = [next(s, None) for s in streams]
    used, done = [0, 0], 0
    while all(held):
        chunks = [chunk for chunk in held if chunk is not None]
        count = min(len(chunk.starts) - u for chunk, u in zip(chunks, used, strict=True))
        yield [_Window(chunk, slice(u, u + count)) for chunk, u in zip(chunks, used, strict=True)]
        done += count
        for number, chunk in enumerate(chunks):
            used[number] += count
            if used[number] == len(chunk.starts):
                held[number], used[number] = next(streams[number], None), 0
    for number in (0, 1):
        if held[number] is None and any(held):
            reason = f"ends after {done} records, the other file of the pair has more"
            raise BadInput(reason, file=checked[number].file)


def _compare(checked: Sequence[Checked], windows: Sequence[_Window], done: int) -> None:
    """Raise BadInput where the reads of two windows are no pairs; *done* pairs came before."""
    if len(windows) < 2:
        return
    one, other = (w.names() for w in windows)
    if (wrong := unlike(one, other)) is None:
        return
    both = [n.name(wrong).decode("ascii", "backslashreplace") for n in (one, other)]
    names, number = " and ".join(both), done + wrong
    reason = f"{names} are the same mate" if both[0] == both[1] else f"{names} are no pair"
    line = 4 * number + 1 if len(checked) == 2 else 8 * number + 5
    raise BadInput(f"record {number + 1}: {reason}", file=checked[-1].file, line=line)


def _telling(say: Callable[[str], None] | None) -> Callable[[Sequence[Checked]], None]:
    """Return what tells, now and then, how far the pass is."""
    last = time.monotonic()

    def tell(checked: Sequence[Checked]) -> None:
        nonlocal last
        if say is None or time.monotonic() - last < _OFTEN:
            return
        last = time.monotonic()
        done = ", ".join(f"{c.file.name} {c.records} records ({format_bytes(c.end)})" for c in checked)
        say(f"checking reads: {done}")

    return tell
