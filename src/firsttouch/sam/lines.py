# SPDX-License-Identifier: Apache-2.0
"""Looks a SAM file through: is every line a record, how many are primary and mapped, where do shares end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from firsttouch.errors import RunFailed

Ints = npt.NDArray[np.int64]
#: Large enough that Python's share of the work does not count, small enough for a launcher of 200 MB.
BLOCK_BYTES = 4 << 20
SECONDARY_OR_SUPPLEMENTARY = 0x900
UNMAPPED = 0x4
#: A record has eleven fields at least.
_TABS = 10
_TAB, _NEWLINE, _ZERO = 9, 10, 48
#: A flag is below 65,536: five digits.
_FLAG_DIGITS = 5


@dataclass(frozen=True)
class Survey:
    """What one SAM file holds.

    *references* are its @SQ lines, *header_bytes* the length of its whole header. *primary* records are one per
    read, *mapped* those of them that are. *ends* are the offsets (bytes) at which the shares end that were
    asked for, empty where there are fewer primary records than that.
    """

    references: tuple[bytes, ...]
    header_bytes: int
    size: int
    primary: int
    mapped: int
    ends: tuple[int, ...] = ()


def survey(file: Path, shares: Sequence[int] = ()) -> Survey:
    """Look *file* through; *shares* are the primary records of each share of the reads, in the file's order.

    A share ends before the first line of another read: what else a program says of a read (secondary,
    supplementary) stays with it. Raises RunFailed, naming file and line, for a line that is no SAM record.
    """
    with file.open("rb") as stream:
        references, header_bytes, header_lines = _header(stream)
        wanted = list(itertools.accumulate(shares))
        ends: list[int] = []
        primary = mapped = lines = 0
        for block, offset in _blocks(stream, file, header_bytes):
            starts, flags = _flags(block, file, header_lines + lines)
            is_primary = (flags & SECONDARY_OR_SUPPLEMENTARY) == 0
            if wanted:
                counts = primary + np.cumsum(is_primary)
                while len(ends) < len(wanted) and counts[-1] >= wanted[len(ends)]:
                    last = int(np.searchsorted(counts, wanted[len(ends)])) if wanted[len(ends)] else -1
                    ends.append(offset + int(starts[last + 1]))
            primary += int(is_primary.sum())
            mapped += int((is_primary & ((flags & UNMAPPED) == 0)).sum())
            lines += len(flags)
        size = stream.tell()
        # Shares without a read, behind the last one that has any.
        ends += [size for records in wanted[len(ends) :] if records <= primary]
        whole = [_whole_read(stream, end, size) for end in ends]
    # The last share has the rest, whatever its last read's further records are.
    complete = len(whole) == len(wanted) and (not wanted or primary == wanted[-1])
    found = (*whole[:-1], size) if complete and whole else ()
    return Survey(references, header_bytes, size, primary, mapped, found)


def _header(stream: BinaryIO) -> tuple[tuple[bytes, ...], int, int]:
    """Read the header; return its @SQ lines, its bytes and its number of lines."""
    references: list[bytes] = []
    size = number = 0
    for line in stream:
        # A read's name may begin with @ too: a header has a tab after its two letters.
        if not line.startswith(b"@") or line[3:4] != b"\t":
            break
        if line.startswith(b"@SQ"):
            references.append(line)
        size += len(line)
        number += 1
    stream.seek(size)
    return tuple(references), size, number


def _blocks(stream: BinaryIO, file: Path, offset: int) -> Iterator[tuple[memoryview, int]]:
    """Yield the rest of a file as (whole lines, their offset in the file)."""
    buffer = bytearray(BLOCK_BYTES)
    kept = 0
    while True:
        got = stream.readinto(memoryview(buffer)[kept:])  # type: ignore[attr-defined]
        filled = kept + got
        if not got:
            if kept:
                rest = bytes(buffer[:kept])
                lines = _count_lines(file)
                raise RunFailed(f"{file}:{lines + 1}: not a SAM record, the line has no end: {rest[:60]!r}")
            return
        end = buffer.rfind(b"\n", 0, filled) + 1
        if end:
            yield memoryview(buffer)[:end], offset
        elif filled == len(buffer):
            # One line that is longer than the buffer.
            buffer = buffer + bytearray(len(buffer))
            kept = filled
            continue
        offset += end
        kept = filled - end
        if kept:
            buffer[:kept] = buffer[end:filled]


def _count_lines(file: Path) -> int:
    with file.open("rb") as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(BLOCK_BYTES), b""))


def _flags(block: memoryview, file: Path, lines_before: int) -> tuple[Ints, Ints]:
    """Return where the lines of a block start (and, last, where the block ends), and the flag of each."""
    data = np.frombuffer(block, np.uint8)
    newlines = np.flatnonzero(data == _NEWLINE)
    starts = np.concatenate(([0], newlines + 1))
    tabs = np.concatenate((np.flatnonzero(data == _TAB), [len(data)] * 2))
    first = np.searchsorted(tabs, starts)
    fine = np.diff(first) >= _TABS
    begin, end = tabs[first[:-1]] + 1, tabs[np.minimum(first[:-1] + 1, len(tabs) - 1)]
    digits = end - begin
    fine &= (digits >= 1) & (digits <= _FLAG_DIGITS)
    flags = np.zeros(len(newlines), np.int64)
    for place in range(_FLAG_DIGITS):
        there = fine & (place < digits)
        character = data[np.minimum(begin + place, len(data) - 1)].astype(np.int64) - _ZERO
        fine &= ~there | ((character >= 0) & (character <= 9))
        flags = np.where(there, flags * 10 + character, flags)
    if not fine.all():
        at = int(np.argmin(fine))
        line = bytes(block[starts[at] : starts[at + 1]])
        raise RunFailed(f"{file}:{lines_before + at + 1}: not a SAM record: {line[:60]!r}")
    return starts, flags


def _whole_read(stream: BinaryIO, offset: int, size: int) -> int:
    """Return the offset moved behind the further records of the read whose record ends at *offset*."""
    if not 0 < offset < size:
        return offset
    back = min(offset, 1 << 16)
    while True:
        stream.seek(offset - back)
        before = stream.read(back)
        start = before.rfind(b"\n", 0, -1) + 1
        if start or back == offset:
            break
        back = min(offset, back * 2)
    name = before[start:].split(b"\t", 1)[0]
    stream.seek(offset)
    for line in stream:
        if line.split(b"\t", 1)[0] != name:
            break
        offset += len(line)
    return offset
