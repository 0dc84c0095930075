# SPDX-License-Identifier: Apache-2.0
"""FASTQ files: found records, checked records, batches and pairs, plain or compressed."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from firsttouch.errors import BadInput
from firsttouch.genomics.sources import (
    _NEWLINE,
    _RETURN,
    HEAD,
    SLACK,
    Block,
    Bytes,
    Damaged,
    Ints,
    Layout,
    blocks,
    source,
)
from firsttouch.units import format_bytes

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
