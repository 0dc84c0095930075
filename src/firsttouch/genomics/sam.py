# SPDX-License-Identifier: Apache-2.0
"""SAM output of several instances: surveyed, put in input order under one header, and summed up.

Large outputs pass through here, so the work is done on blocks of bytes and not on lines.

"""

from __future__ import annotations

import hashlib
import itertools
import mmap
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from firsttouch.errors import RunFailed
from firsttouch.genomics.fastq import stem

# ----------------------------------------------------------------------
# Looks a SAM file through: is every line a record, how many are primary and mapped, where do shares end.

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


# ----------------------------------------------------------------------
# Joins the SAM files of several instances: the input's order, one header, no copy through this process.

#: sendfile moves at most 2 GiB at once.
_AT_ONCE = 1 << 30


@dataclass(frozen=True)
class Piece:
    """Bytes *start* … *end* - 1 of a file: the alignments of one share of the reads."""

    file: Path
    start: int
    end: int


def in_order(files: Sequence[Path], surveys: Sequence[Survey], shares: Sequence[Sequence[int]]) -> list[Piece]:
    """Return the pieces of all *files* in input order.

    *shares* says of each file which pieces of the input it holds, as their numbers in the file's order; the
    surveys were made with the records of these. Raises RunFailed where the files differ in references.
    """
    for file, found in zip(files, surveys, strict=True):
        if found.references != surveys[0].references:
            raise RunFailed(f"{file}: aligned to other references than {files[0]}")
    pieces = []
    for file, found, mine in zip(files, surveys, shares, strict=True):
        start = found.header_bytes
        for number, end in zip(mine, found.ends, strict=True):
            pieces.append((number, Piece(file, start, end)))
            start = end
    return [piece for _, piece in sorted(pieces, key=lambda p: p[0])]


def described(header: bytes, command: str, note: str) -> bytes:
    """Return *header* with *command* (empty: none) and *note* as what its last program (@PG) ran.

    The command that an instance of that program was started with names pipes, which say nothing afterwards.
    """
    lines = header.splitlines(keepends=True)
    programs = [number for number, line in enumerate(lines) if line.startswith(b"@PG\t")]
    if programs:
        fields = lines.pop(programs[-1]).rstrip(b"\r\n").split(b"\t")
        fields = [f for f in fields if not f.startswith((b"CL:", b"DS:"))]
    else:
        fields = [b"@PG", b"ID:firsttouch", b"PN:firsttouch"]
    # No field of a header may hold a tab or a line's end.
    more = {"CL": " ".join(command.split()), "DS": " ".join(note.split())}
    fields += [f"{key}:{text}".encode(errors="replace") for key, text in more.items() if text]
    lines.insert(programs[-1] if programs else len(lines), b"\t".join(fields) + b"\n")
    return b"".join(lines)


def write(header: Piece, pieces: Sequence[Piece], out: int) -> None:
    """Write a header and the pieces to the file descriptor *out*: a file, or a pipe of a program."""
    for file, group in _by_file([p for p in (header, *pieces) if p.start < p.end]):
        with file.open("rb") as stream:
            for piece in group:
                _send(stream.fileno(), out, piece.start, piece.end)


def _by_file(pieces: Sequence[Piece]) -> Iterator[tuple[Path, list[Piece]]]:
    """Yield runs of pieces of the same file, neighbours made one."""
    group: list[Piece] = []
    for piece in pieces:
        if group and group[-1].file != piece.file:
            yield group[0].file, group
            group = []
        if group and group[-1].end == piece.start:
            group[-1] = Piece(piece.file, group[-1].start, piece.end)
        else:
            group.append(piece)
    if group:
        yield group[0].file, group


def _send(source: int, out: int, start: int, end: int) -> None:
    while start < end:
        sent = os.sendfile(out, source, start, min(end - start, _AT_ONCE))
        if not sent:
            raise RunFailed(f"an output became {end - start} bytes shorter while it was joined")
        start += sent


# ----------------------------------------------------------------------
# Puts alignments back into the order of the reads, for aligners whose threads write as they finish.

_LAST_OF_PAIR = 0x80


@dataclass
class _Read:
    """The lines (start, end, flag) of one read, or of both mates."""

    primary: int = 0
    lines: list[tuple[int, int, int]] = field(default_factory=list)


def restore(file: Path, header_bytes: int, names: Iterable[bytes], mates: int, made: Path) -> None:
    """Write *file* to *made* with its alignments in the order of *names* (of reads, or of pairs).

    A read's lines stay as they are, mate 1 first, its primary record before others. What has come too early is
    remembered by its place in the file: the memory needed grows with how far the program's threads are apart.
    Raises RunFailed for a read without its records, or records of a read that is not there.
    """
    with file.open("rb") as stream, made.open("wb") as out:
        out.write(stream.read(header_bytes))
        size = stream.seek(0, 2)
        if size == header_bytes:
            return
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            waiting: dict[bytes, deque[_Read]] = {}
            at = header_bytes
            for name in names:
                while name not in waiting or waiting[name][0].primary < mates or _goes_on(data, at, name):
                    if at >= size:
                        read = name.decode(errors="replace")
                        raise RunFailed(f"{file}: read {read} has no record, or too few")
                    at = _take(data, at, waiting, mates)
                queue = waiting[name]
                for start, end, _ in sorted(queue.popleft().lines, key=_place):
                    out.write(data[start:end])
                if not queue:
                    del waiting[name]
            if at < size or waiting:
                raise RunFailed(f"{file}: has records of reads that it was not given")


def _goes_on(data: mmap.mmap, at: int, name: bytes) -> bool:
    """Tell whether the line at *at* is a further record of that read."""
    if data[at : at + len(name)] != name:
        return False
    found, flag = data[at : data.find(b"\t", data.find(b"\t", at) + 1)].split(b"\t")
    return stem(found) == name and bool(int(flag) & SECONDARY_OR_SUPPLEMENTARY)


def _take(data: mmap.mmap, at: int, waiting: dict[bytes, deque[_Read]], mates: int) -> int:
    """Remember the line at *at*, and return where the next one begins."""
    end = data.find(b"\n", at) + 1
    tab = data.find(b"\t", at)
    name = stem(data[at:tab])
    flag = int(data[tab + 1 : data.find(b"\t", tab + 1)])
    queue = waiting.setdefault(name, deque())
    is_primary = not flag & SECONDARY_OR_SUPPLEMENTARY
    # Reads of one name are told apart by their primary records.
    if not queue or (is_primary and queue[-1].primary == mates):
        queue.append(_Read())
    queue[-1].primary += is_primary
    queue[-1].lines.append((at, end, flag))
    return end


def _place(line: tuple[int, int, int]) -> tuple[bool, bool, int]:
    start, _, flag = line
    return bool(flag & _LAST_OF_PAIR), bool(flag & SECONDARY_OR_SUPPLEMENTARY), start


# ----------------------------------------------------------------------
# SHA-256 of alignments: equal sums mean that two runs gave the same ones.

#: Properly paired, and the mate's strand.
_MATES = 0x22
#: Unmapped, first or last of its pair.
_READ = 0xC4
#: Tags with the places of other records.
_PLACES = {b"XA:", b"SA:"}
_SCORE = re.compile(rb"\tAS:i:(-?\d+)")
_ALONE = re.compile(rb"\tSM:i:(\d+)")
_BLOCK_BYTES = 4 << 20


@dataclass(frozen=True)
class Sums:
    """Two SHA-256 of the alignments of an output.

    *exact* covers every alignment line in order and no header line: equal sums mean the same alignments for
    the same reads in the same order (timing and program lines aside). *common* covers what all scenarios of an
    aligner have in common: the same, or for aligners that choose among equally good places, what is left
    without these choices (see :func:`settled`): equal sums mean that no read fares worse.
    """

    exact: str
    common: str


def settled(lines: Iterable[bytes], mates: int) -> Iterator[bytes]:
    """Yield what of each read (or pair, with 2 *mates*) does not depend on choices among equally good places.

    BWA-MEM chooses by the number of the read within its own run (a hash of it), and every instance counts from 0;
    bwa samse and sampe draw lots. A mapping quality of 0 says that another place is as good. Where no primary
    record has it, all records with a better one count with all their columns and tags, but for two things: columns
    of the mate, which follow its own record, and lists of other places (XA, SA), whose order is chosen too. Else a
    mate's choice may have led to the other's, and it only counts whether each is mapped and what the pair scores
    (AS) together.
    """
    for fields in _together(lines, mates):
        primary = [f for f in fields if not int(f[1]) & SECONDARY_OR_SUPPLEMENTARY]
        if all(_quality(f) for f in primary):
            kept = [(int(f[1]) & ~_MATES, *f[2:6], *_own(f)) for f in fields if _quality(f)]
            yield b"%b\t%b\n" % (fields[0][0], repr(kept).encode())
        else:
            flags = [int(f[1]) & _READ for f in primary]
            yield b"%b\t%b\t%d\n" % (fields[0][0], repr(flags).encode(), sum(map(_score, primary)))


def _own(fields: Sequence[bytes]) -> list[bytes]:
    """Return the columns and tags behind the CIGAR string that tell of the record alone."""
    # RNEXT, PNEXT and TLEN are of the mate.
    return [f for f in fields[6].rstrip(b"\n").split(b"\t")[3:] if f[:3] not in _PLACES]


def _together(lines: Iterable[bytes], mates: int) -> Iterator[list[list[bytes]]]:
    """Yield the lines, as fields, of one read or pair after the other."""
    held: list[list[bytes]] = []
    primary = 0
    for line in lines:
        fields = line.split(b"\t", 6)
        is_primary = not int(fields[1]) & SECONDARY_OR_SUPPLEMENTARY
        # Reads of one name may follow each other.
        if held and (fields[0] != held[0][0] or (is_primary and primary == mates)):
            yield held
            held, primary = [], 0
        held.append(fields)
        primary += is_primary
    if held:
        yield held


def _quality(fields: Sequence[bytes]) -> int:
    """Return the mapping quality of the read by itself, where the record has it (SM): a mate may lend its own."""
    alone = _ALONE.search(fields[6])
    return int(alone[1] if alone else fields[4])


def _score(fields: Sequence[bytes]) -> int:
    score = _SCORE.search(fields[6])
    return int(score[1]) if score else 0


def sums(pieces: Sequence[Piece], *, settle: int | None) -> Sums:
    """Return the sums of all alignments in *pieces*, in that order.

    *settle* is how many mates a read has where *common* is of what is settled, None where it is of all.
    """
    exact, sure = hashlib.sha256(), hashlib.sha256()
    for piece in pieces:
        if settle is None:
            for block in _blocks_of_lines(piece):
                exact.update(block)
            continue
        for text in settled(_lines(piece, exact), settle):
            sure.update(text)
    return Sums(exact.hexdigest(), sure.hexdigest() if settle else exact.hexdigest())


def _lines(piece: Piece, exact: hashlib._Hash) -> Iterator[bytes]:
    """Yield the lines of a piece, which go into *exact* as well."""
    for block in _blocks_of_lines(piece):
        exact.update(block)
        yield from block.splitlines(keepends=True)


def _blocks_of_lines(piece: Piece) -> Iterator[bytes]:
    """Yield a piece as blocks of whole lines."""
    left = piece.end - piece.start
    rest = b""
    with piece.file.open("rb") as stream:
        stream.seek(piece.start)
        while left and (block := stream.read(min(left, _BLOCK_BYTES))):
            left -= len(block)
            end = block.rfind(b"\n") + 1
            if end:
                yield rest + block[:end]
                rest = block[end:]
            else:
                rest += block
    if rest:
        yield rest
