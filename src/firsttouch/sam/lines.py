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
Bytes = npt.NDArray[np.uint8]
#: Large enough that numpy's calls cost little, small enough for caches to hold it and what is made of it.
BLOCK_BYTES = 1 << 20
#: SAM's names have 254 characters at most; what has no tab in so many is no record.
_LONGEST_NAME = 1 << 10
#: Room after a block for what is looked at from the start of its last line: a name, and eight bytes of the flag.
_SLACK = _LONGEST_NAME + 8
SECONDARY_OR_SUPPLEMENTARY = 0x900
UNMAPPED = 0x4
#: A record has eleven fields at least.
_TABS = 10
_TAB, _NEWLINE, _ZERO = 9, 10, 48
#: A flag is below 65,536: five digits and a tab, in eight bytes.
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
            starts, flags = _flags(*block, file, header_lines + lines)
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


def _blocks(stream: BinaryIO, file: Path, offset: int) -> Iterator[tuple[tuple[Bytes, int], int]]:
    """Yield the rest of a file as ((buffer, bytes of whole lines in it), their offset in the file)."""
    buffer = bytearray(BLOCK_BYTES + _SLACK)
    kept = 0
    while True:
        got = stream.readinto(memoryview(buffer)[kept:-_SLACK])  # type: ignore[attr-defined]
        filled = kept + got
        if not got:
            if kept:
                rest = bytes(buffer[:kept])
                lines = _count_lines(file)
                raise RunFailed(f"{file}:{lines + 1}: not a SAM record, the line has no end: {rest[:60]!r}")
            return
        end = buffer.rfind(b"\n", 0, filled) + 1
        if end:
            yield (np.frombuffer(buffer, np.uint8), end), offset
        elif filled == len(buffer) - _SLACK:
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


def _flags(buffer: Bytes, size: int, file: Path, lines_before: int) -> tuple[Ints, Ints]:
    """Return where the lines in the first *size* bytes start (and, last, *size*), and the flag of each."""
    data = buffer[:size]
    ends = np.flatnonzero(data == _NEWLINE) + 1
    starts = np.concatenate(([0], ends))
    first = starts[:-1]
    # In the narrowest integers, several times faster; what a line of 256 tabs wraps to is looked at again.
    tabs = np.add.reduceat((data == _TAB).view(np.uint8), first, dtype=np.uint8)
    flags, fine = _numbers(buffer, _after_name(buffer, first))
    for at in np.flatnonzero(~(fine & (tabs >= _TABS))):
        line = bytes(data[starts[at] : starts[at + 1]])
        if not fine[at] or line.count(b"\t") < _TABS:
            raise RunFailed(f"{file}:{lines_before + at + 1}: not a SAM record: {line[:60]!r}")
    return starts, flags


def _after_name(buffer: Bytes, starts: Ints) -> Ints:
    """Return where the second field of each line begins; anywhere for one without such a field."""
    width = 32
    while True:
        is_tab = _windows(buffer, width, starts).view(np.uint8).reshape(-1, width) == _TAB
        length = is_tab.argmax(axis=1)
        if width == _LONGEST_NAME or is_tab[np.arange(len(starts)), length].all():
            begins: Ints = starts + length + 1
            return begins
        width *= 2


def _numbers(buffer: Bytes, begins: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Return the numbers that begin at some places, and which are numbers of at most _FLAG_DIGITS and a tab."""
    text = _windows(buffer, 8, begins).view("<u8")
    numbers = np.zeros(len(text), np.int64)
    ended = text & 0xFF == _TAB
    fine = ~ended
    for _ in range(_FLAG_DIGITS):
        digit = (text & 0xFF).astype(np.int64) - _ZERO
        fine &= ended | ((digit >= 0) & (digit <= 9))
        numbers = np.where(ended, numbers, numbers * 10 + digit)
        text = text >> np.uint64(8)
        ended |= text & 0xFF == _TAB
    return numbers, fine & ended


def _windows(buffer: Bytes, width: int, starts: Ints) -> npt.NDArray[np.void]:
    """Return a copy of the *width* bytes from each of *starts*, each as one item: a row of bytes is far slower."""
    return np.ndarray(len(buffer) - width + 1, f"V{width}", buffer, strides=1)[starts]


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
        fields = line.split(b"\t", 2)
        # The next read may have the same name: its primary record begins it.
        if fields[0] != name or not int(fields[1]) & SECONDARY_OR_SUPPLEMENTARY:
            break
        offset += len(line)
    return offset
