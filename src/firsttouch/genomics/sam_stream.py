# SPDX-License-Identifier: Apache-2.0
"""Reads SAM files, even while they grow: checks every line, counts records, and locates or reorders parts.

:class:`SamTail` finds where the parts of the input end in the output of one instance. :class:`OrderedTail` does so
for an aligner whose threads write as they finish, and restores the order of the reads. Outputs are large, so numpy
works on blocks of bytes instead of lines.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from firsttouch.errors import RunFailed
from firsttouch.genomics.reads import template_name
from firsttouch.genomics.sam import (
    LAST_OF_PAIR,
    PAIRED,
    SECONDARY_OR_SUPPLEMENTARY,
    UNMAPPED,
    ByteRange,
    is_header,
)

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

#: Large enough to make numpy's calls cheap, small enough for the CPU's caches.
BLOCK_BYTES = 1 << 20
#: SAM's names have at most 254 characters: a line without a tab in this many bytes is not a record.
_LONGEST_NAME = 1 << 10
#: Room after a block for vectorised access from the start of its last line: a name and eight bytes of flag.
_SLACK = _LONGEST_NAME + 8
#: Tabs in a record, which has at least eleven fields.
_TABS = 10
_TAB, _NEWLINE, _SLASH, _ZERO = 9, 10, 47, 48
#: Digits of the largest flag, 65,535.
_FLAG_DIGITS = 5


class _Block(NamedTuple):
    """Whole alignment lines: their bytes, the offset of these in the file, where each line starts, and its flag.

    *starts* has the end of the last line as well, *name_ends* where each name ends. *data* is valid until the next
    block is read.
    """

    data: memoryview
    offset: int
    starts: Ints
    name_ends: Ints
    flags: Ints

    def name(self, line: int) -> bytes:
        """Return the name of the read of a line."""
        return bytes(self.data[int(self.starts[line]) : int(self.name_ends[line])])

    def template_names(self) -> list[bytes]:
        """Return the name of the template of each line."""
        text, ends = bytes(self.data), self.name_ends
        names = [text[begin:end] for begin, end in zip(self.starts.tolist(), ends.tolist(), strict=False)]
        data = np.frombuffer(text, np.uint8)
        if (data[np.maximum(ends - 2, 0)] == _SLASH).any():
            names = [template_name(name) for name in names]
        return names


class _GrowingSam:
    """The checked lines of a SAM file that another process may still write; a context manager that closes it.

    *header* is None until the first alignment was read. *primary* and *mapped* count the records so far.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.header: bytes | None = None
        self.primary = self.mapped = 0
        self._stream = file.open("rb", buffering=0)
        self._buffer = bytearray(BLOCK_BYTES + _SLACK)
        #: The buffer begins with *_kept* bytes of a line without end, which is at *_offset* in the file.
        self._kept = self._offset = self._lines = 0
        self._header_lines: list[bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    @property
    def size(self) -> int:
        """Bytes of the whole lines so far."""
        return self._offset

    def _blocks(self, *, ended: bool) -> Iterator[_Block]:
        """Yield the text since the last call; *ended*: this is the last call.

        Raises RunFailed, naming file and line, for a line that is not a SAM record.
        """
        while count := self._stream.readinto(memoryview(self._buffer)[self._kept : -_SLACK]):
            filled = self._kept + count
            end = self._buffer.rfind(b"\n", self._kept, filled) + 1
            if end:
                first = self._take_header(end) if self.header is None else 0
                if first < end:
                    yield self._checked(first, end)
                self._buffer[: filled - end] = self._buffer[end:filled]
                self._offset += end
            self._kept = filled - end
            if self._kept == len(self._buffer) - _SLACK:
                # One line is longer than the buffer.
                self._buffer = self._buffer + bytearray(len(self._buffer))
        if ended and self._kept:
            raise self._not_sam(0, bytes(self._buffer[: self._kept]), ", the line has no end")
        if ended and self.header is None:
            self.header = b"".join(self._header_lines)

    def _take_header(self, end: int) -> int:
        """Take the lines of the header from the buffer's first *end* bytes; return where the alignments begin."""
        at = 0
        while at < end:
            line = bytes(self._buffer[at : self._buffer.index(b"\n", at) + 1])
            if not is_header(line):
                self.header = b"".join(self._header_lines)
                break
            self._header_lines.append(line)
            at += len(line)
            self._lines += 1
        return at

    def _checked(self, first: int, end: int) -> _Block:
        """Return the lines from *first* to *end* of the buffer, and count them."""
        whole = np.frombuffer(self._buffer, np.uint8)[first:]
        data = whole[: end - first]
        starts = np.concatenate(([0], np.flatnonzero(data == _NEWLINE) + 1))
        lines = starts[:-1]
        # The narrowest integers are several times faster. Counts that may have wrapped (at 256) are repeated
        # below.
        tabs = np.add.reduceat((data == _TAB).view(np.uint8), lines, dtype=np.uint8)
        fields = _after_names(whole, lines)
        flags, valid = _read_numbers(whole, fields)
        for at in np.flatnonzero(~(valid & (tabs >= _TABS))):
            line = bytes(data[starts[at] : starts[at + 1]])
            if not valid[at] or line.count(b"\t") < _TABS:
                raise self._not_sam(int(at), line)
        primaries = (flags & SECONDARY_OR_SUPPLEMENTARY) == 0
        self.primary += int(primaries.sum())
        self.mapped += int((primaries & ((flags & UNMAPPED) == 0)).sum())
        self._lines += len(flags)
        return _Block(memoryview(self._buffer)[first:end], self._offset + first, starts, fields - 1, flags)

    def _not_sam(self, line: int, text: bytes, why: str = "") -> RunFailed:
        return RunFailed(f"{self.file}:{self._lines + line + 1}: not a SAM record{why}: {text[:60]!r}")


class SamTail(_GrowingSam):
    """Finds where parts of the input end in a SAM file that still grows.

    Call :meth:`want` for each part that its program is given, before it can have written the part's alignments;
    :meth:`look` from time to time; and :meth:`finish` once the program has ended::

        with SamTail(file) as tail:
            tail.want(2000)             # 1,000 pairs
            tail.look()                 # [] or [ByteRange(file, 523, 771240)]
            ...
            tail.finish()               # the rest

    The ranges are consecutive, the first one begins after the header, and *header* is set before the first range
    is returned. A part includes all secondary and supplementary records of its last read, so it is returned when
    the next line has been read. Each byte is read once; an incomplete line waits for the next call.

    For a pair whose second mate has no bases, Bowtie 2 writes one record without the flag of a pair. It replaces
    both records if such pairs are expected.
    """

    def __init__(self, file: Path) -> None:
        """Open *file*, which exists."""
        super().__init__(file)
        #: Counts of primary records: up to the end of each incomplete part, in complete parts, in all parts.
        self._ends: deque[int] = deque()
        self._complete = self._wanted = 0
        #: Reads with records so far, pairs with an empty mate so far, and records that replaced such a pair.
        self._counted = self._empty = self._lone = 0
        self._begin: int | None = None
        #: The names of the last mates of the first of these parts, once the last primary record was read.
        self._last_mates: tuple[bytes, ...] = ()
        #: The name in the last primary record of previous blocks.
        self._primary_name = b""

    def want(self, records: int, empty: int = 0) -> None:
        """Add a part of *records* primary records (twice its pairs); *empty* pairs may have only one."""
        self._wanted += records
        self._empty += empty
        self._ends.append(self._wanted)

    @property
    def wanted(self) -> int:
        """Number of primary records of all parts."""
        return self._wanted

    @property
    def has_all(self) -> bool:
        """Whether the records so far are exactly the records of the parts."""
        return self._counted == self._wanted and self._lone <= self._empty

    def look(self, *, ended: bool = False) -> list[ByteRange]:
        """Read the text since the last call; return the parts that are complete now, in their order.

        *ended*: the file is finished. Raises RunFailed, naming file and line, for a line that is not a SAM record.
        """
        ranges: list[ByteRange] = []
        for block in self._blocks(ended=ended):
            self._locate(block, ranges)
        if ended and self._last_mates:
            self._end_part(self.size, ranges)
        if self.header is not None:
            self._end_empty_parts(ranges)
        return ranges

    def finish(self) -> list[ByteRange]:
        """Read the rest of the finished file, and return the parts that are left.

        Raises RunFailed as :meth:`look` does, and if there are fewer or more records than the parts have.
        """
        ranges = self.look(ended=True)
        if not self.has_all:
            raise RunFailed(f"{self.file}: has {self.primary} of {self._wanted} reads")
        if self._part_begins() != self.size:
            raise RunFailed(f"{self.file}: has records of reads that it was not given")
        return ranges

    def _locate(self, block: _Block, ranges: list[ByteRange]) -> None:
        """Add the parts that end in *block*."""
        self._end_empty_parts(ranges)
        primaries = (block.flags & SECONDARY_OR_SUPPLEMENTARY) == 0
        lone = primaries & ((block.flags & PAIRED) == 0) if self._empty else np.zeros(len(primaries), bool)
        counts = self._counted + np.cumsum(primaries) + np.cumsum(lone)
        self._counted = int(counts[-1])
        self._lone += int(lone.sum())
        line = 0
        while self._ends:
            if not self._last_mates:
                if counts[-1] < self._ends[0]:
                    break
                line = int(np.searchsorted(counts, self._ends[0]))
                # Mates may have names that differ.
                self._last_mates = block.name(line), self._name_before(block, primaries, line)
                line += 1
            while line < len(counts) and not primaries[line] and block.name(line) in self._last_mates:
                line += 1
            if line == len(counts):
                break
            self._end_part(block.offset + int(block.starts[line]), ranges)
        self._primary_name = self._name_before(block, primaries, len(primaries))

    def _name_before(self, block: _Block, primaries: npt.NDArray[np.bool_], line: int) -> bytes:
        """Return the name in the last primary record before a *line* of *block*."""
        before = np.flatnonzero(primaries[:line])
        return block.name(int(before[-1])) if len(before) else self._primary_name

    def _part_begins(self) -> int:
        return len(self.header or b"") if self._begin is None else self._begin

    def _end_part(self, end: int, ranges: list[ByteRange]) -> None:
        ranges.append(ByteRange(self.file, self._part_begins(), end))
        self._begin, self._complete, self._last_mates = end, self._ends.popleft(), ()
        self._end_empty_parts(ranges)

    def _end_empty_parts(self, ranges: list[ByteRange]) -> None:
        while self._ends and self._ends[0] == self._complete:
            self._ends.popleft()
            ranges.append(ByteRange(self.file, self._part_begins(), self._part_begins()))


# ----------------------------------------------------------------------
# Restoring the order of the reads


class OrderedTail(_GrowingSam):
    """Restores the order of the reads in a SAM file that still grows, for aligners that do not keep it.

    It is used as :class:`SamTail`, but :meth:`want` takes the names of a part's templates (without /1 and /2). The
    ranges belong to another file, *restored*, which gets the header and the alignments in the order of the names:
    mate 1 first, and the primary record before other records of a mate. The first *size* bytes of the SAM file are
    no longer needed. Early records are kept in memory, which grows with the distance between the program's
    threads.
    """

    def __init__(self, file: Path, restored: Path, mates: int) -> None:
        """Open *file*, which exists and whose templates have *mates* reads, and create *restored*."""
        super().__init__(file)
        self._mates, self._restored = mates, restored
        self._out = restored.open("wb", buffering=BLOCK_BYTES)
        self._begin = 0
        self._parts: deque[Iterator[bytes]] = deque()
        #: The next template of the first part, if it is not yet complete.
        self._next: bytes | None = None
        #: The texts of complete templates by name, and of further ones, because reads may have the same name.
        self._complete: dict[bytes, bytes] = {}
        self._further: defaultdict[bytes, deque[bytes]] = defaultdict(deque)
        #: The ranks and lines of incomplete templates, whose lines need not follow each other.
        self._incomplete: dict[bytes, list[tuple[int, bytes]]] = {}
        #: The template of the last line: the next line may belong to it, too.
        self._last = b""

    def close(self) -> None:
        """Close both files."""
        super().close()
        self._out.close()

    def want(self, names: Iterable[bytes]) -> None:
        """Add a part of the templates *names*, in their order."""
        self._parts.append(iter(names))

    def look(self, *, ended: bool = False) -> list[ByteRange]:
        """Read the text since the last call; return the parts that are complete now, in their order.

        *ended*: the file is finished. Raises RunFailed, naming file and line, for a line that is not a SAM record.
        """
        ranges: list[ByteRange] = []
        for block in self._blocks(ended=ended):
            self._take(block)
            self._write(ranges)
        if ended:
            self._end_template(self._last)
        self._write(ranges)
        self._out.flush()
        return ranges

    def finish(self) -> list[ByteRange]:
        """Read the rest of the finished file, and return the parts that are left.

        Raises RunFailed as :meth:`look` does, for a read that lacks records, and for records of other reads.
        """
        ranges = self.look(ended=True)
        if self._next is not None:
            raise RunFailed(f"{self.file}: read {self._next.decode(errors='replace')} has no record, or too few")
        if self._complete or self._incomplete:
            raise RunFailed(f"{self.file}: has records of reads that it was not given")
        return ranges

    def _take(self, block: _Block) -> None:
        """Add the lines of *block* to their templates, whole templates at once if the block has nothing else."""
        text, starts, names = bytes(block.data), block.starts, block.template_names()
        primaries = (block.flags & SECONDARY_OR_SUPPLEMENTARY) == 0
        ranks = 2 * ((block.flags & LAST_OF_PAIR) > 0) + ~primaries
        first = next((n for n, name in enumerate(names) if name != self._last), len(names))
        self._collect(text, names[:first], ranks, starts)
        if first < len(names) and primaries[first]:
            self._end_template(self._last)
            numbers = (np.cumsum(primaries[first:]) - 1) // self._mates
            changes = np.diff(numbers)
            firsts = np.concatenate(([0], np.flatnonzero(changes) + 1)) + first
            heads = [names[n] for n in firsts.tolist()]
            in_order = ((changes > 0) | (np.diff(ranks[first:]) >= 0)).all()
            if in_order and not self._incomplete and names[first:] == [heads[n] for n in numbers.tolist()]:
                self._add(heads, (text[begin:end] for begin, end in pairwise(starts[firsts].tolist())))
                first = int(firsts[-1])
        self._collect(text, names[first:], ranks[first:], starts[first:])

    def _collect(self, text: bytes, names: list[bytes], ranks: Ints, starts: Ints) -> None:
        """Add lines of *text* one by one to their templates: a line per name."""
        bounds = starts[: len(names) + 1].tolist()
        for name, rank, begin, end in zip(names, ranks.tolist(), bounds, bounds[1:], strict=False):
            # Primary records separate templates, even if these have the same name.
            if name != self._last or not rank & 1:
                self._end_template(self._last)
                self._last = name
            self._incomplete.setdefault(name, []).append((rank, text[begin:end]))

    def _end_template(self, name: bytes) -> None:
        """Complete the template of that name if all its primary records have been read."""
        lines = self._incomplete.get(name, ())
        if len(lines) >= self._mates and [rank & 1 for rank, _ in lines].count(0) == self._mates:
            text = b"".join([line for _, line in sorted(self._incomplete.pop(name), key=itemgetter(0))])
            self._add([name], [text])

    def _add(self, names: Iterable[bytes], texts: Iterable[bytes]) -> None:
        """Add complete templates."""
        for name, text in zip(names, texts, strict=False):
            if self._complete.setdefault(name, text) is not text:
                self._further[name].append(text)

    def _write(self, ranges: list[ByteRange]) -> None:
        """Write the templates that are next in order, and add the parts that end with them to *ranges*."""
        if self.header is None:
            return
        if self._begin == 0:
            self._begin = self._out.write(self.header)
        while self._parts:
            if self._next is None:
                self._next = next(self._parts[0], None)
            if self._next is None:
                self._parts.popleft()
                ranges.append(ByteRange(self._restored, self._begin, self._out.tell()))
                self._begin = ranges[-1].end
                continue
            if (text := self._complete.pop(self._next, None)) is None:
                return
            self._out.write(text)
            if self._next in self._further:
                self._complete[self._next] = self._further[self._next].popleft()
                if not self._further[self._next]:
                    del self._further[self._next]
            self._next = None


# ----------------------------------------------------------------------
# Fields of many lines at once


def _after_names(buffer: Bytes, starts: Ints) -> Ints:
    """Return where the second field of each line begins (undefined for a line without one)."""
    width = 32
    while True:
        is_tab = _windows(buffer, width, starts).view(np.uint8).reshape(-1, width) == _TAB
        length = is_tab.argmax(axis=1)
        if width == _LONGEST_NAME or is_tab[np.arange(len(starts)), length].all():
            begins: Ints = starts + length + 1
            return begins
        width *= 2


def _read_numbers(buffer: Bytes, begins: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Return the numbers at *begins*, and which of them are valid: up to _FLAG_DIGITS digits and a tab."""
    text = _windows(buffer, 8, begins).view("<u8")
    numbers = np.zeros(len(text), np.int64)
    ended = text & 0xFF == _TAB
    valid = ~ended
    for _ in range(_FLAG_DIGITS):
        digit = (text & 0xFF).astype(np.int64) - _ZERO
        valid &= ended | ((digit >= 0) & (digit <= 9))
        numbers = np.where(ended, numbers, numbers * 10 + digit)
        text = text >> np.uint64(8)
        ended |= text & 0xFF == _TAB
    return numbers, valid & ended


def _windows(buffer: Bytes, width: int, starts: Ints) -> npt.NDArray[np.void]:
    """Copy the *width* bytes from each of *starts*, each as one item (copying rows of bytes is far slower)."""
    return np.ndarray(len(buffer) - width + 1, f"V{width}", buffer, strides=1)[starts]
