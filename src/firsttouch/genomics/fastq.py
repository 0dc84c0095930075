# SPDX-License-Identifier: Apache-2.0
"""Checks FASTQ files in one pass before any program starts, and indexes the beginnings of their batches."""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import re
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from firsttouch.errors import BadInput
from firsttouch.genomics.reads import BatchIndex, BatchRule, FileLayout, ReadFile, Reads, template_name
from firsttouch.genomics.sources import Damaged, Decompressor, gunzip
from firsttouch.units import format_bytes

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

# ----------------------------------------------------------------------
# Whole files in blocks, read ahead by threads

#: Bytes of a block: small enough for the CPU's caches, large enough to make numpy's calls cheap.
BLOCK = 1 << 21
#: Room before a block for the incomplete record of the previous block, and after it for vectorized look-ahead.
HEAD, SLACK = 1 << 14, 1 << 8
NEWLINE, RETURN = 10, 13


#: Reads the next bytes of an input into a buffer and returns their number, 0 at the end.
Read = Callable[[memoryview], int]


class FastqBlock:
    """Bytes ``data[HEAD : HEAD + size]`` of an input, the offsets of the newlines, and whether a CR occurs."""

    def __init__(self) -> None:
        self._raw = bytearray(HEAD + BLOCK + SLACK)
        self._mask = np.empty(BLOCK, np.bool_)
        self.data: Bytes = np.frombuffer(self._raw, np.uint8)
        self.size = 0
        self.ends: Ints = np.empty(0, np.int64)
        self.returns = False

    def fill(self, read: Read) -> FastqBlock:
        """Read the next block; only the last one has less than BLOCK bytes."""
        room, size = memoryview(self._raw)[HEAD : HEAD + BLOCK], 0
        while size < BLOCK and (count := read(room[size:])):
            size += count
        self.size, mask = size, self._mask[:size]
        np.equal(self.data[HEAD : HEAD + size], NEWLINE, out=mask)
        self.ends = np.flatnonzero(mask)
        self.returns = self._raw.find(RETURN, HEAD, HEAD + size) >= 0
        return self

    def reclaim(self) -> bool:
        """Return whether only this object refers to the bytes, so that it can be reused."""
        self.data = np.empty(0, np.uint8)
        try:
            # A bytearray cannot be resized while anything refers to its bytes.
            self._raw.append(0)
            self._raw.pop()
        except BufferError:
            return False
        finally:
            self.data = np.frombuffer(self._raw, np.uint8)
        return True


@contextlib.contextmanager
def read_blocks(file: ReadFile, threads: int) -> Iterator[Iterator[FastqBlock]]:
    """Open *file* and yield an iterator of its blocks.

    *threads* threads read ahead; a gzip file is decompressed. The iterator raises Damaged.
    """
    with contextlib.ExitStack() as stack:
        fd = file.open()
        stack.callback(os.close, fd)
        decompressor = gunzip(fd) if file.gzipped else None
        if decompressor:
            stack.callback(decompressor.close)
            threads = 1
        pool = stack.enter_context(ThreadPoolExecutor(threads, thread_name_prefix="reads"))
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        if decompressor is None:
            yield read_ahead(pool, threads, file_reads(fd))
        else:
            stack.callback(decompressor.process.kill)  # ends a read in which a thread may wait
            reads = itertools.repeat(lambda room: os.readv(decompressor.stream, [room]))
            yield _check_gzip(read_ahead(pool, threads, reads), decompressor)


def file_reads(fd: int) -> Iterator[Read]:
    """Yield a function for each block of a regular file: it reads that block."""
    for offset in itertools.count(0, BLOCK):
        yield _FileBlock(fd, offset)


class _FileBlock:
    """Reads a file from an offset on."""

    def __init__(self, fd: int, offset: int) -> None:
        self._fd, self._offset = fd, offset

    def __call__(self, room: memoryview) -> int:
        count = os.preadv(self._fd, [room], self._offset)
        self._offset += count
        return count


def read_ahead(
    pool: ThreadPoolExecutor, threads: int, reads: Iterator[Read], *, lasting: bool = False
) -> Iterator[FastqBlock]:
    """Yield the blocks that *reads* read, each with the next one; the *threads* of *pool* work ahead at once.

    One program may write both mates in turn, and waits until both are read. All blocks but the last have BLOCK
    bytes. A block is reused when the next one is requested, or, if *lasting*, once nothing refers to its bytes.
    Reading stops with the iterator, because the caller may then close the file, and its descriptor may be reused.
    """
    blocks: list[FastqBlock] = []

    def submit() -> Future[FastqBlock]:
        free = next((number for number, block in enumerate(blocks) if not lasting or block.reclaim()), None)
        return pool.submit((FastqBlock() if free is None else blocks.pop(free)).fill, next(reads))

    pending = collections.deque(submit() for _ in range(threads + 1))

    def filled() -> Iterator[FastqBlock]:
        while True:
            block = pending.popleft().result()
            if block.size:
                yield block
            if block.size < BLOCK:
                wait(pending)
                pool.shutdown(wait=False)
                return
            blocks.append(block)
            pending.append(submit())

    return filled()


def _check_gzip(blocks: Iterator[FastqBlock], decompressor: Decompressor) -> Iterator[FastqBlock]:
    yield from blocks
    if reason := decompressor.damage():
        raise Damaged(reason)


# ----------------------------------------------------------------------
# Names. The mates of a pair have the same name, apart from comments and from /1 and /2 at the end.

_SPACE = ord(" ")
#: A name ends at a space or any control character.
_NAME_END = re.compile(rb"[\x00-\x20]")
_SLASH, _ONE, _TWO = b"/12"
_ZERO, _NINE = b"09"
_NUMBER = re.compile(rb"(?<=.)/[0-9]\Z", re.DOTALL)


class ReadNames:
    """Names of reads: their bytes with SLACK further ones, and where the lines begin (at @) and end."""

    def __init__(self, data: Bytes, starts: Ints, ends: Ints) -> None:
        self.data, self.starts, self.ends = data, starts, ends

    def name(self, number: int) -> bytes:
        """Return a name without its comment."""
        return _NAME_END.split(self.data[self.starts[number] : self.ends[number]].tobytes(), maxsplit=1)[0]

    def width(self) -> int:
        """Return the bytes after @ that hold the longest line, at most SLACK."""
        return min(int((self.ends - self.starts).max()), SLACK)

    def rows(self, width: int) -> Bytes:
        """Return the *width* bytes after each @ (n x width)."""
        windows = np.ndarray((len(self.data) - width + 1,), np.dtype((np.void, width)), self.data, 0, (1,))
        return windows[self.starts + 1].view(np.uint8).reshape(-1, width)


def first_mismatch(names_1: ReadNames, names_2: ReadNames) -> int | None:
    """Return the index of the first names that do not belong to mates 1 and 2, or None."""
    width = min(names_1.width(), names_2.width())
    rows_1, rows_2 = names_1.rows(width), names_2.rows(width)
    stops, differ = rows_1 <= _SPACE, rows_1 != rows_2
    end, at = stops.argmax(1), differ.argmax(1)
    # Flat positions take half the time of row and column indexes.
    a, b, row = rows_1.reshape(-1), rows_2.reshape(-1), np.arange(0, rows_1.size, width)
    place = row + end
    ended = (a[place] <= _SPACE) & (b[place] <= _SPACE)
    good = ended & ((at >= end) | ~differ.reshape(-1)[row + at])
    # Equal names that end with /1 or /2 are the same mate twice.
    before = np.maximum(place - 2, 0)
    good &= ~((end > 2) & (a[before] == _SLASH) & ((a[before + 1] == _ONE) | (a[before + 1] == _TWO)))
    if good.all():
        return None
    # Names that differ in the last character only: /1 and /2.
    mates = ended & (at == end - 1) & (end > 2)
    last = np.where(mates, place - 1, 1)
    good |= mates & (a[last - 1] == _SLASH) & (a[last] == _ONE) & (b[last] == _TWO)
    pairs = ((int(n), names_1.name(int(n)), names_2.name(int(n))) for n in np.flatnonzero(~good))
    return next((number for number, name_1, name_2 in pairs if not _is_pair(name_1, name_2)), None)


def same_templates(names: ReadNames) -> Bools:
    """Return which records have the name of the previous one, ignoring a final slash and digit (n - 1)."""
    rows = names.rows(names.width())
    end = (rows <= _SPACE).argmax(1)
    row = np.arange(len(rows))
    digit, slash = rows[row, np.maximum(end - 1, 0)], rows[row, np.maximum(end - 2, 0)]
    end = end - 2 * ((end > 2) & (slash == _SLASH) & (digit >= _ZERO) & (digit <= _NINE))
    differ = rows[1:] != rows[:-1]
    is_same: Bools = (end[1:] == end[:-1]) & (~differ.any(1) | (differ.argmax(1) >= end[1:]))
    return is_same


def _is_pair(name_1: bytes, name_2: bytes) -> bool:
    template = template_name(name_1)
    return template == template_name(name_2) and (name_1 != name_2 or template == name_1)


# ----------------------------------------------------------------------
# Records, found and checked a block at a time

#: No sequencer's read is longer (bytes): a record without a fourth newline up to here is not FASTQ.
LONGEST = 1 << 26
#: SAM's limit for the name of a read.
LONGEST_NAME = 254
_BLANK = "begins without @: it is a blank line"
_AT, _PLUS = b"@+"
_TAB, _DELETE = b"\t\x7f"
#: Bytes that SAM's SEQ and QUAL columns cannot hold, and those that no name line may have.
_NO_BASE = re.compile(rb"[^A-Za-z.=]")
_NO_QUALITY = re.compile(rb"[^!-~]")
_NO_NAME = re.compile(rb"[^\t -~\x80-\xff]")


class Chunk(Struct):
    """Complete records in *data*, which SLACK further bytes follow.

    In the file *path*, *first* is the offset of ``data[0]``, and *before* the number of earlier records. *starts*
    (n) and *ends* (n x 4, the newlines) are positions in *data*. *bases* (n) and *text* (n, without carriage
    returns) are each record's number of bases and of bytes.
    """

    path: Path
    before: int
    data: Bytes
    first: int
    starts: Ints
    ends: Ints
    bases: Ints
    text: Ints

    def error(self, number: int, reason: str) -> BadInput:
        """Return an error in record *number* (from 0) of the chunk."""
        number += self.before
        return BadInput(f"record {number + 1}: {reason}", file=self.path, line=4 * number + 1)


class FastqParser:
    """Parses and checks one file, as an iterator of chunks.

    At the end, the attributes describe the whole file: number of *records*, bytes of the *longest*, the offset
    *end* of the last record's end, and *crlf*, *unended* and *blank* as in FileLayout.
    """

    def __init__(self, path: Path, blocks: Iterator[FastqBlock], *, multiple_of: int = 1) -> None:
        """Parse *blocks* of the file; a chunk has a multiple of *multiple_of* records (2: interleaved pairs)."""
        self.path = path
        self.records = self.end = self.longest = 0
        self.crlf = self.unended = self.blank = False
        self._blocks, self._lines = blocks, 4 * multiple_of
        self._scratch = np.empty(0, np.uint8)

    def __iter__(self) -> Iterator[Chunk]:
        """Yield the chunks; the next one invalidates it. Raises BadInput naming file, record and line."""
        tail, tail_ends = np.empty(0, np.uint8), np.empty(0, np.int64)
        for block in self._undamaged():
            data = _prepend(tail, block)
            size = len(tail) + block.size
            if self.blank:
                self._require_blank(data[:size].tobytes())
                continue
            returns = block.returns or bool((tail == RETURN).any())
            ends = np.concatenate((tail_ends, block.ends + len(tail)))
            complete = len(ends) // self._lines * self._lines
            if complete and (chunk := self._check(data, size, ends[:complete].reshape(-1, 4), returns=returns)):
                yield chunk
            used = int(ends[complete - 1]) + 1 if complete else 0
            tail, tail_ends = data[used:size].copy(), ends[complete:] - used
            if len(tail) > LONGEST:
                raise self._error(f"is longer than {LONGEST >> 20} MiB: is this FASTQ?", 1)
        if chunk := self._last(tail.tobytes(), tail_ends):
            yield chunk

    def _undamaged(self) -> Iterator[FastqBlock]:
        """Yield the blocks; raises BadInput for damaged data.

        The message names the first record that the decompressor did not print, which may come before the damage.
        """
        try:
            yield from self._blocks
        except Damaged as error:
            raise BadInput(f"record {self.records + 1} or later: {error}", file=self.path) from error

    def _check(self, data: Bytes, size: int, ends: Ints, *, returns: bool) -> Chunk | None:
        """Check the records whose lines end at *ends*; None: only blank lines are left."""
        starts = np.concatenate(([0], ends[:-1, 3] + 1))
        bases = ends[:, 1] - ends[:, 0] - 1
        qualities = ends[:, 3] - ends[:, 2] - 1
        text = ends[:, 3] - starts + 1
        if returns:
            begins = np.column_stack((starts, ends[:, :3] + 1))
            # A CR belongs to its line, even if the line is otherwise empty.
            carriage = ((data[ends - 1] == RETURN) & (ends > begins)).astype(np.int64)
            self.crlf |= bool(carriage.any())
            bases, qualities = bases - carriage[:, 1], qualities - carriage[:, 3]
            text = text - carriage.sum(axis=1)
        good = (data[starts] == _AT) & (data[ends[:, 1] + 1] == _PLUS) & (bases == qualities)
        if len(self._scratch) < size:
            self._scratch = np.empty(size, np.uint8)
        good &= _valid_names(data, starts, ends[:, 0]) & _valid_bytes(data, ends, self._scratch)
        count = len(good) if good.all() else int(good.argmin())
        self.records += count
        if count < len(good):
            self._require_blank(data[starts[count] : size].tobytes())
        if not count:
            return None
        self.longest = max(self.longest, int((ends[:count, 3] - starts[:count]).max()) + 1)
        first, self.end = self.end, self.end + int(ends[count - 1, 3]) + 1
        before = self.records - count
        return Chunk(self.path, before, data, first, starts[:count], ends[:count], bases[:count], text[:count])

    def _last(self, tail: bytes, ends: Ints) -> Chunk | None:
        """Return the last record if only its newline is missing; raises BadInput for any other rest."""
        if not tail.strip():
            self.blank |= bool(tail)
            return None
        if len(ends) != self._lines - 1:
            raise self._wrong(tail, lacks_mate=len(ends) >= 4)
        self.unended = True
        data = np.frombuffer(tail + b"\n" + bytes(SLACK), np.uint8)
        ends = np.append(ends, len(tail)).reshape(-1, 4)
        chunk = self._check(data, len(tail) + 1, ends, returns=b"\r" in tail)
        self.end -= 1
        return chunk

    def _require_blank(self, rest: bytes) -> None:
        """Accept blank lines at the end of the file; raises BadInput for anything else."""
        if rest.strip():
            raise self._error(_BLANK, 1) if self.blank else self._wrong(rest)
        self.blank = True

    def _wrong(self, rest: bytes, *, lacks_mate: bool = False) -> BadInput:
        """Return the error in the first record of *rest*; *lacks_mate*: at least its mate is missing."""
        fault = _fault([line.removesuffix(b"\r") for line in rest.split(b"\n", 4)[:4]])
        if fault is None:
            fault = ("has no mate, and the file of interleaved pairs ends" if lacks_mate else "is truncated", 1)
        return self._error(*fault)

    def _error(self, reason: str, line: int) -> BadInput:
        return BadInput(f"record {self.records + 1} {reason}", file=self.path, line=4 * self.records + line)


def _prepend(tail: Bytes, block: FastqBlock) -> Bytes:
    """Return the bytes of *block* with *tail* before them."""
    if len(tail) > HEAD:
        return np.concatenate((tail, block.data[HEAD:]))
    block.data[HEAD - len(tail) : HEAD] = tail
    return block.data[HEAD - len(tail) :]


def _valid_names(data: Bytes, starts: Ints, ends: Ints) -> Bools:
    """Return which name lines have a name for SAM: 1 to LONGEST_NAME bytes that do not begin with @."""
    first = data[starts + 1]
    good: Bools = (first > _SPACE) & (first != _AT)
    long = np.flatnonzero(ends - starts - 1 > LONGEST_NAME)
    if len(long):
        names = ReadNames(data, starts[long], ends[long])
        good[long] &= (names.rows(LONGEST_NAME + 1) <= _SPACE).any(axis=1)
    return good


def _valid_bytes(data: Bytes, ends: Ints, scratch: Bytes) -> Bools:
    """Return which records have only bytes that SAM can hold in their names, bases and qualities.

    *scratch* is as large as *data*; reusing it is faster than new arrays.
    """
    size, lines = int(ends[-1, 3]) + 1, ends.reshape(-1)
    text, scratch = data[:size], scratch[:size]
    odd = scratch.view(np.bool_)
    good = np.ones(len(ends), np.bool_)
    # Apart from newlines, bytes outside of ! to ~ are rare, so each is checked by its line.
    np.subtract(text, ord("!"), out=scratch)
    np.greater(scratch, ord("~") - ord("!"), out=odd)
    if np.count_nonzero(odd) > len(lines):
        at = np.flatnonzero(odd)
        byte = text[at]
        more = (byte != NEWLINE) & ~((byte == RETURN) & (data[at + 1] == NEWLINE))
        at, byte = at[more], byte[more]
        line = np.searchsorted(lines, at)
        fine = (line % 4 == 0) & ((byte == _TAB) | ((byte >= _SPACE) & (byte != _DELETE)))
        good[line[~fine & (line % 4 != 2)] // 4] = False
    # Lines with other bytes than letters. Lines of bases may also have . and =, and a CR at the end.
    np.bitwise_or(text, 0x20, out=scratch)
    np.subtract(scratch, ord("a"), out=scratch)
    np.greater_equal(scratch, 26, out=odd)
    odd[lines] = False
    odd[lines - 1] &= text[lines - 1] != RETURN
    marked = np.bitwise_or.reduceat(scratch, np.concatenate(([0], lines[:-1] + 1)))[1::4]
    for record in np.flatnonzero(marked):
        bases = data[ends[record, 0] + 1 : ends[record, 1]].tobytes().removesuffix(b"\r")
        good[record] &= not _NO_BASE.search(bases)
    return good


def _fault(lines: list[bytes]) -> tuple[str, int] | None:
    """Return the first error of a record and its line (1 to 4), or None."""
    name, bases, plus, quality = (*lines, b"", b"", b"")[:4]
    if reason := _name_fault(name):
        return reason, 1
    if not plus.startswith(b"+"):
        several = ": bases on several lines are not supported, join them" if bases and plus.isalpha() else ""
        return f"has no + line (is it truncated?){several}", 3
    if odd := _NO_BASE.search(bases):
        return f"has {_shown(odd[0])} among its bases", 2
    if len(bases) != len(quality):
        return f"has {len(bases)} bases but {len(quality)} qualities (is it truncated?)", 4
    if odd := _NO_QUALITY.search(quality):
        return f"has {_shown(odd[0])} among its qualities, which are ! to ~", 4
    return None


def _name_fault(line: bytes) -> str:
    """Return the error of a name line, or an empty string."""
    if not line.startswith(b"@"):
        fasta = ": this is FASTA, FASTQ is needed" if line.startswith(b">") else ""
        return f"begins without @{fasta}" if line.strip() else _BLANK
    name = _NAME_END.split(line[1:], maxsplit=1)[0]
    if odd := _NO_NAME.search(line):
        return f"has {_shown(odd[0])} in the line of its name"
    if not name:
        return "has no name"
    if name.startswith(b"@"):
        return "has a name that begins with @, which SAM cannot hold"
    if len(name) > LONGEST_NAME:
        return f"has a name of {len(name)} bytes, SAM's limit is {LONGEST_NAME}"
    return ""


def _shown(byte: bytes) -> str:
    """Return a byte as messages show it."""
    return repr(byte.decode("ascii")) if b"!" <= byte <= b"~" else f"the byte {byte[0]:#04x}"


# ----------------------------------------------------------------------
# Batches. An aligner's output may depend on where its batches begin, so each part of the reads begins with a
# batch.

#: An index with twice the number of marks drops every second one; parts are then equal to 1/65536 of a part.
ENOUGH_MARKS = 1 << 16


class BatchBorders:
    """Finds where batches begin in consecutive records."""

    def __init__(self, rule: BatchRule) -> None:
        self._rule = rule
        # Records, bases and text of the unfinished batch; None: the last batch is complete.
        self._open: tuple[int, int, int] | None = None
        #: The name of the last record, without its number.
        self._last = b""

    def starts(self, bases: Ints, text: Ints, names: ReadNames | None = None) -> Ints:
        """Add records (pairs) by their bases in all mates, their bytes of text and the *names* of mate 1.

        Returns the indexes of the added records that begin a batch, where a part may begin.
        """
        starts = self._starts(bases, text)
        if names is None or not self._rule.names:
            return starts
        first, last = (_NUMBER.sub(b"", names.name(number)) for number in (0, len(bases) - 1))
        is_same, self._last = np.append(first == self._last, same_templates(names)), last
        chosen: Ints = starts[~is_same[starts]]
        return chosen

    def _starts(self, bases: Ints, text: Ints) -> Ints:
        rule, count = self._rule, len(bases)
        every_record = rule.records < 2 and int(bases.min()) >= rule.bases and int(text.min()) >= rule.text
        if self._open is None and every_record:
            return np.arange(count)
        sums, texts = np.cumsum(bases), np.cumsum(text)
        starts = []
        at = 0
        # Records, bases and text before the batch, relative to the first added record.
        before = (0, 0, 0)
        if self._open is None:
            starts.append(0)
        else:
            before = (-self._open[0], -self._open[1], -self._open[2])
        while True:
            enough = np.searchsorted(sums, before[1] + rule.bases), np.searchsorted(texts, before[2] + rule.text)
            last = max(at, *map(int, enough))
            last += -(last + 1 - before[0]) % max(1, rule.records)
            if last >= count:
                self._open = (count - before[0], int(sums[-1]) - before[1], int(texts[-1]) - before[2])
                break
            at = last + 1
            if at == count:
                self._open = None
                break
            starts.append(at)
            before = (at, int(sums[last]), int(texts[last]))
        return np.array(starts, np.int64)


class BatchIndexer:
    """Builds a BatchIndex from the records of *files* files, in bounded memory."""

    def __init__(self, rule: BatchRule, files: int) -> None:
        self.records = self.bases = self.batches = self.empty_mates = 0
        self._rule, self._stride, self._borders = rule, 1, BatchBorders(rule)
        self._kept = [np.empty((files + 1, 0), np.int64)]
        self._count = 0

    def add(self, bases: Ints, text: Ints, offsets: list[Ints], names: ReadNames | None = None) -> None:
        """Add records (pairs): bases in all mates, text and *names* of mate 1, and the offset in each file."""
        starts = self._borders.starts(bases, text, names)
        numbers = np.arange(self.batches, self.batches + len(starts))
        starts = starts[numbers % self._stride == 0]
        if len(starts):
            self._kept.append(np.stack([self.records + starts, *(places[starts] for places in offsets)]))
            self._count += len(starts)
        self.batches += len(numbers)
        self.records += len(bases)
        self.bases += int(bases.sum())
        while self._count > 2 * ENOUGH_MARKS:
            self._kept = [np.concatenate(self._kept, axis=1)[:, ::2]]
            self._count = self._kept[0].shape[1]
            self._stride *= 2

    def index(self, ends: list[int]) -> BatchIndex:
        """Return the index; *ends* are the offsets at which the files' records end."""
        kept = np.concatenate([*self._kept, np.array([[self.records], *([end] for end in ends)])], axis=1)
        marks = [array("q", row.tobytes()) for row in kept]
        return BatchIndex(marks[0], tuple(marks[1:]), self.batches, self._stride, self._rule)


# ----------------------------------------------------------------------
# The pass over the reads before any program starts

#: Seconds between two messages of a long pass.
_MESSAGE_INTERVAL = 10.0


def inspect(
    files: Sequence[Path],
    rule: BatchRule = BatchRule(),  # noqa: B008 (it is frozen)
    *,
    interleaved: bool = False,
    any_names: bool = False,
    say: Callable[[str], None] | None = None,
) -> Reads:
    """Read *files* (one, or two of a pair) once: check and count the records, and index the batches.

    Without conditions in *rule*, every record (pair) is a batch. *any_names*: the names of mates may differ. *say*
    gets progress messages. Raises BadInput, naming file, record and line, for anything but FASTQ, for a file
    without reads, and for mates that differ.
    """
    if len(files) not in {1, 2} or (interleaved and len(files) == 2):
        raise BadInput(f"{len(files)} read files: one, or two of a pair that is not interleaved, are needed")
    identified = [ReadFile.identify(path) for path in files]
    if len(files) == 2 and files[0].samefile(files[1]):
        raise BadInput("this is the file of mate 1 again: name the file of mate 2", file=files[1])
    indexer = BatchIndexer(rule, len(files))
    threads = max(1, min(4, len(os.sched_getaffinity(0))) // len(files))
    last_message = time.monotonic()
    with contextlib.ExitStack() as stack:
        parsers = []
        for file in identified:
            data = stack.enter_context(read_blocks(file, threads))
            parsers.append(FastqParser(file.path, data, multiple_of=1 + interleaved))
        for mates in mates_of(parsers, interleaved=interleaved):
            if not any_names:
                check_names(mates)
            bases = sum((m.chunk.bases[m.records] for m in mates[1:]), mates[0].chunk.bases[mates[0].records])
            indexer.empty_mates += int((mates[-1].chunk.bases[mates[-1].records] == 0).sum())
            offsets = [m.chunk.first + m.chunk.starts[m.records] for m in mates[: len(files)]]
            indexer.add(bases, mates[0].chunk.text[mates[0].records], offsets, mates[0].names())
            if say is not None and time.monotonic() - last_message >= _MESSAGE_INTERVAL:
                last_message = time.monotonic()
                done = (f"{p.path.name} {p.records} records ({format_bytes(p.end)})" for p in parsers)
                say(f"checking reads: {', '.join(done)}")
    if not indexer.records:
        raise BadInput("no reads", file=files[0])
    layouts = tuple(
        FileLayout(file, parser.crlf, parser.unended, parser.blank, parser.longest)
        for file, parser in zip(identified, parsers, strict=True)
    )
    batches = indexer.index([parser.end for parser in parsers])
    return Reads(tuple(files), interleaved, indexer.records, indexer.bases, batches, layouts, indexer.empty_mates)


class Mate(Struct):
    """The records of one mate in a chunk."""

    chunk: Chunk
    records: slice

    def names(self) -> ReadNames:
        """Return the records' names."""
        return ReadNames(self.chunk.data, self.chunk.starts[self.records], self.chunk.ends[self.records, 0])


def mates_of(files: Sequence[Iterable[Chunk]], *, interleaved: bool) -> Iterator[list[Mate]]:
    """Yield the records of single reads, of interleaved pairs as mates 1 and 2, or of the files of two mates.

    *files* are the chunks of each mate. Raises BadInput if there are more of one mate.
    """
    if len(files) == 2:
        yield from _mates_of_two(files)
        return
    for chunk in files[0]:
        yield [Mate(chunk, slice(mate, None, 1 + interleaved)) for mate in range(1 + interleaved)]


def _mates_of_two(files: Sequence[Iterable[Chunk]]) -> Iterator[list[Mate]]:
    streams = list(map(iter, files))
    chunks = [next(stream, None) for stream in streams]
    used = [0, 0]
    while all(chunks):
        mates = [(held, start) for held, start in zip(chunks, used, strict=True) if held is not None]
        count = min(len(held.starts) - start for held, start in mates)
        yield [Mate(held, slice(start, start + count)) for held, start in mates]
        for number, (held, _) in enumerate(mates):
            used[number] += count
            if used[number] == len(held.starts):
                chunks[number], used[number] = next(streams[number], None), 0
    for chunk, start in zip(chunks, used, strict=True):
        if chunk is not None:
            raise chunk.error(start, "no mate, the other file of the pair ends before it")


def check_names(mates: Sequence[Mate]) -> None:
    """Raise BadInput if the names of two mates do not match."""
    if len(mates) < 2:
        return
    names = [mate.names() for mate in mates]
    if (at := first_mismatch(*names)) is None:
        return
    both = [n.name(at).decode("ascii", "backslashreplace") for n in names]
    reason = f"{' and '.join(both)} are {'the same mate' if both[0] == both[1] else 'no pair'}"
    chunk = mates[-1].chunk
    raise chunk.error(range(len(chunk.starts))[mates[-1].records][at], reason)
