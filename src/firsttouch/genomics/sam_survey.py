# SPDX-License-Identifier: Apache-2.0
"""Surveys SAM files: checks every line, counts records, and locates where shares of the reads end.

Outputs are large, so numpy works on blocks of bytes instead of lines.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from firsttouch.errors import RunFailed
from firsttouch.genomics.sam import SECONDARY_OR_SUPPLEMENTARY, UNMAPPED, Survey, is_primary, read_header

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


def survey(file: Path, shares: Sequence[int] = ()) -> Survey:
    """Survey *file*; *shares* are the numbers of primary records of the shares, in the file's order.

    A share includes the secondary and supplementary records of its last read. Raises RunFailed, naming file and
    line, for a line that is not a SAM record.
    """
    with file.open("rb") as stream:
        references, header_bytes, header_lines = read_header(stream)
        wanted = list(itertools.accumulate(shares))
        ends: list[int] = []
        primary = mapped = lines = 0
        for block, offset in _read_blocks(stream, file, header_bytes):
            starts, flags = _read_flags(*block, file, header_lines + lines)
            primaries = (flags & SECONDARY_OR_SUPPLEMENTARY) == 0
            if wanted:
                counts = primary + np.cumsum(primaries)
                while len(ends) < len(wanted) and counts[-1] >= wanted[len(ends)]:
                    last = int(np.searchsorted(counts, wanted[len(ends)])) if wanted[len(ends)] else -1
                    ends.append(offset + int(starts[last + 1]))
            primary += int(primaries.sum())
            mapped += int((primaries & ((flags & UNMAPPED) == 0)).sum())
            lines += len(flags)
        size = stream.tell()
        # Shares without reads after the last share that has any
        ends += [size for records in wanted[len(ends) :] if records <= primary]
        ends = [_skip_read(stream, end, size) for end in ends]
    if len(ends) != len(wanted) or (wanted and primary != wanted[-1]):
        ends = []
    # The last share has all that is left.
    return Survey(references, header_bytes, size, primary, mapped, (*ends[:-1], size) if ends else ())


def _read_blocks(stream: BinaryIO, file: Path, offset: int) -> Iterator[tuple[tuple[Bytes, int], int]]:
    """Yield the rest of a file as ((buffer, bytes of whole lines in it), their offset in the file)."""
    buffer = bytearray(BLOCK_BYTES + _SLACK)
    kept = 0
    while True:
        count = stream.readinto(memoryview(buffer)[kept:-_SLACK])  # type: ignore[attr-defined]
        filled = kept + count
        if not count:
            if kept:
                rest, line = bytes(buffer[:kept]), _count_lines(file) + 1
                raise RunFailed(f"{file}:{line}: not a SAM record, the line has no end: {rest[:60]!r}")
            return
        end = buffer.rfind(b"\n", 0, filled) + 1
        if end:
            yield (np.frombuffer(buffer, np.uint8), end), offset
        elif filled == len(buffer) - _SLACK:
            # One line is longer than the buffer.
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


def _read_flags(buffer: Bytes, size: int, file: Path, lines_before: int) -> tuple[Ints, Ints]:
    """Return where the lines in the first *size* bytes start (and, last, *size*), and the flag of each."""
    data = buffer[:size]
    starts = np.concatenate(([0], np.flatnonzero(data == _NEWLINE) + 1))
    first = starts[:-1]
    # The narrowest integers are several times faster; lines whose count wraps (at 256) are counted again below.
    tabs = np.add.reduceat((data == _TAB).view(np.uint8), first, dtype=np.uint8)
    flags, valid = _read_numbers(buffer, _after_names(buffer, first))
    for at in np.flatnonzero(~(valid & (tabs >= _TABS))):
        line = bytes(data[starts[at] : starts[at + 1]])
        if not valid[at] or line.count(b"\t") < _TABS:
            raise RunFailed(f"{file}:{lines_before + at + 1}: not a SAM record: {line[:60]!r}")
    return starts, flags


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


def _skip_read(stream: BinaryIO, offset: int, size: int) -> int:
    """Return the offset after all records of the read whose primary record ends at *offset*."""
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
        # The next read may have the same name; it begins with a primary record.
        if fields[0] != name or is_primary(fields[1]):
            break
        offset += len(line)
    return offset
