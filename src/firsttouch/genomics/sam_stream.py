# SPDX-License-Identifier: Apache-2.0
"""Reads SAM files, also while they grow: checks every line, counts records, and locates or restores parts.

:class:`SamTail` finds where the parts of the input end in the output of one instance. :class:`OrderedTail` does so
for an aligner whose threads write as they finish, and restores the order of the reads. :func:`survey` reads a
finished file. Outputs are large, so numpy works on blocks of bytes instead of lines.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from firsttouch.errors import RunFailed
from firsttouch.genomics.reads import template_name
from firsttouch.genomics.sam import (
    LAST_OF_PAIR,
    SECONDARY_OR_SUPPLEMENTARY,
    UNMAPPED,
    ByteRange,
    Survey,
    is_header,
    is_primary,
    shared_lines,
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
_TAB, _NEWLINE, _ZERO = 9, 10, 48
#: Digits of the largest flag, 65,535.
_FLAG_DIGITS = 5


class _Block(NamedTuple):
    """Whole alignment lines: their bytes, the offset of these in the file, where each line starts, and its flag.

    *starts* has the end of the last line as well. *data* is valid until the next block is read.
    """

    data: memoryview
    offset: int
    starts: Ints
    flags: Ints

    def name(self, line: int) -> bytes:
        """Return the name of the read of a line."""
        start = int(self.starts[line])
        text = bytes(self.data[start : start + _LONGEST_NAME])
        return text[: text.index(b"\t")]


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
        """Yield what was written since the last call; *ended*: nothing will follow.

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
        # The narrowest integers are several times faster. Counts that wrap (at 256) are repeated below.
        tabs = np.add.reduceat((data == _TAB).view(np.uint8), lines, dtype=np.uint8)
        flags, valid = _read_numbers(whole, _after_names(whole, lines))
        for at in np.flatnonzero(~(valid & (tabs >= _TABS))):
            line = bytes(data[starts[at] : starts[at + 1]])
            if not valid[at] or line.count(b"\t") < _TABS:
                raise self._not_sam(int(at), line)
        primaries = (flags & SECONDARY_OR_SUPPLEMENTARY) == 0
        self.primary += int(primaries.sum())
        self.mapped += int((primaries & ((flags & UNMAPPED) == 0)).sum())
        self._lines += len(flags)
        return _Block(memoryview(self._buffer)[first:end], self._offset + first, starts, flags)

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

    The ranges follow each other, the first one begins after the header, and *header* is set before the first range
    is returned. A part ends with all secondary and supplementary records of its last read, so it is returned when
    the next line was read. A look reads each byte once; half a line at the end waits for the next look.
    """

    def __init__(self, file: Path) -> None:
        """Open *file*, which exists."""
        super().__init__(file)
        #: The numbers of primary records up to the end of each part that is not complete, and of those that are.
        self._ends: deque[int] = deque()
        self._complete = self._wanted = 0
        self._begin: int | None = None
        #: The last read of the first of these parts, once its primary record was read.
        self._last_read: bytes | None = None

    def want(self, records: int) -> None:
        """Add a part of so many primary records: its reads, or twice its pairs."""
        self._wanted += records
        self._ends.append(self._wanted)

    @property
    def pending(self) -> int:
        """Number of parts that are not complete."""
        return len(self._ends)

    def look(self, *, ended: bool = False) -> list[ByteRange]:
        """Read what was written since the last call; return the parts that are complete now, in their order.

        *ended*: the file is finished. Raises RunFailed, naming file and line, for a line that is not a SAM record.
        """
        ranges: list[ByteRange] = []
        before = self.primary
        for block in self._blocks(ended=ended):
            self._locate(block, before, ranges)
            before = self.primary
        if ended and self._last_read is not None:
            self._end_part(self.size, ranges)
        if self.header is not None:
            self._end_empty_parts(ranges)
        return ranges

    def finish(self) -> list[ByteRange]:
        """Read the rest of the finished file, and return the parts that are left.

        Raises RunFailed as :meth:`look` does, and if there are fewer or more records than the parts have.
        """
        ranges = self.look(ended=True)
        if self.primary != self._wanted:
            raise RunFailed(f"{self.file}: has {self.primary} of {self._wanted} reads")
        if self._part_begins() != self.size:
            raise RunFailed(f"{self.file}: has records of reads that it was not given")
        return ranges

    def _locate(self, block: _Block, before: int, ranges: list[ByteRange]) -> None:
        """Add the parts that end in *block*; *before* is the number of primary records before it."""
        self._end_empty_parts(ranges)
        primaries = (block.flags & SECONDARY_OR_SUPPLEMENTARY) == 0
        counts = before + np.cumsum(primaries)
        line = 0
        while self._ends:
            if self._last_read is None:
                if counts[-1] < self._ends[0]:
                    return
                line = int(np.searchsorted(counts, self._ends[0]))
                self._last_read = block.name(line)
                line += 1
            while line < len(counts) and not primaries[line] and block.name(line) == self._last_read:
                line += 1
            if line == len(counts):
                return
            self._end_part(block.offset + int(block.starts[line]), ranges)

    def _part_begins(self) -> int:
        return len(self.header or b"") if self._begin is None else self._begin

    def _end_part(self, end: int, ranges: list[ByteRange]) -> None:
        ranges.append(ByteRange(self.file, self._part_begins(), end))
        self._begin, self._complete, self._last_read = end, self._ends.popleft(), None
        self._end_empty_parts(ranges)

    def _end_empty_parts(self, ranges: list[ByteRange]) -> None:
        while self._ends and self._ends[0] == self._complete:
            self._ends.popleft()
            ranges.append(ByteRange(self.file, self._part_begins(), self._part_begins()))


def survey(file: Path, shares: Sequence[int] = ()) -> Survey:
    """Survey a finished *file*; *shares* are the numbers of primary records of the shares, in the file's order.

    A share includes the secondary and supplementary records of its last read. Raises RunFailed, naming file and
    line, for a line that is not a SAM record.
    """
    with SamTail(file) as tail:
        for records in shares:
            tail.want(records)
        ends = [part.end for part in tail.look(ended=True)]
    header = tail.header or b""
    if len(ends) != len(shares) or (shares and tail.primary != sum(shares)):
        ends = []
    # The last share has all that is left.
    whole = (*ends[:-1], tail.size) if ends else ()
    return Survey(shared_lines(header), len(header), tail.size, tail.primary, tail.mapped, whole)


# ----------------------------------------------------------------------
# Restoring the order of the reads


@dataclass
class _Template:
    """The lines of one read or pair with their flags; *primary* of them are primary records."""

    primary: int = 0
    lines: list[tuple[int, bytes]] = field(default_factory=list)


class OrderedTail(_GrowingSam):
    """Restores the order of the reads in a SAM file that still grows, for aligners that do not keep it.

    It is used as :class:`SamTail`, but :meth:`want` takes the names of a part's templates (without /1 and /2). The
    ranges are those of another file, *restored*, which gets the header and the alignments in the order of the
    names: mate 1 first, and the primary record before other records of a mate. What was read of the SAM file
    itself, up to *size*, is not needed any more. Records that come early are kept in memory, which grows with the
    distance between the program's threads.
    """

    def __init__(self, file: Path, restored: Path, mates: int) -> None:
        """Open *file*, which exists and whose templates have *mates* reads, and create *restored*."""
        super().__init__(file)
        self._mates, self._restored = mates, restored
        self._out = restored.open("wb", buffering=BLOCK_BYTES)
        self._parts: deque[Iterator[bytes]] = deque()
        #: The template that is written next.
        self._name: bytes | None = None
        self._begin = 0
        self._waiting: dict[bytes, deque[_Template]] = {}
        #: The template of the last line: the next line may belong to it, too.
        self._last: _Template | None = None

    def close(self) -> None:
        """Close both files."""
        super().close()
        self._out.close()

    def want(self, names: Iterable[bytes]) -> None:
        """Add a part of the templates *names*, in their order."""
        self._parts.append(iter(names))

    @property
    def pending(self) -> int:
        """Number of parts that are not complete."""
        return len(self._parts)

    def look(self, *, ended: bool = False) -> list[ByteRange]:
        """Read what was written since the last call; return the parts that are complete now, in their order.

        *ended*: the file is finished. Raises RunFailed, naming file and line, for a line that is not a SAM record.
        """
        ranges: list[ByteRange] = []
        for block in self._blocks(ended=ended):
            self._remember(block)
            self._write(ranges)
        if ended:
            self._last = None
        self._write(ranges)
        self._out.flush()
        return ranges

    def finish(self) -> list[ByteRange]:
        """Read the rest of the finished file, and return the parts that are left.

        Raises RunFailed as :meth:`look` does, for a read that lacks records, and for records of other reads.
        """
        ranges = self.look(ended=True)
        if self._name is not None:
            read = self._name.decode(errors="replace")
            raise RunFailed(f"{self.file}: read {read} has no record, or too few")
        if self._waiting:
            raise RunFailed(f"{self.file}: has records of reads that it was not given")
        return ranges

    def _remember(self, block: _Block) -> None:
        """Add the lines of *block* to their templates."""
        text, starts = bytes(block.data), block.starts.tolist()
        for start, end, flag in zip(starts[:-1], starts[1:], block.flags.tolist(), strict=True):
            name = template_name(text[start : text.index(b"\t", start)])
            primary = is_primary(flag)
            queue = self._waiting.setdefault(name, deque())
            # Primary records separate reads of the same name.
            if not queue or (primary and queue[-1].primary == self._mates):
                queue.append(_Template())
            self._last = queue[-1]
            self._last.primary += primary
            self._last.lines.append((flag, text[start:end]))

    def _write(self, ranges: list[ByteRange]) -> None:
        """Write the templates whose turn it is, and add the parts that end with them to *ranges*."""
        if self.header is None:
            return
        if self._begin == 0:
            self._begin = self._out.write(self.header)
        while self._parts:
            self._name = self._name or next(self._parts[0], None)
            if self._name is None:
                self._parts.popleft()
                end = self._out.tell()
                ranges.append(ByteRange(self._restored, self._begin, end))
                self._begin = end
                continue
            queue = self._waiting.get(self._name)
            if not queue or queue[0].primary < self._mates or queue[0] is self._last:
                return
            self._out.writelines(line for _, line in sorted(queue.popleft().lines, key=_rank))
            if not queue:
                del self._waiting[self._name]
            self._name = None


def _rank(line: tuple[int, bytes]) -> tuple[bool, bool]:
    flag, _ = line
    return bool(flag & LAST_OF_PAIR), not is_primary(flag)


def restore_order(file: Path, names: Iterable[bytes], mates: int, restored: Path) -> None:
    """Write a finished *file* to *restored* with its alignments in the order of *names* (see OrderedTail)."""
    with OrderedTail(file, restored, mates) as tail:
        tail.want(names)
        tail.finish()


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
