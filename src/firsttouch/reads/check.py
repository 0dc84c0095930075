# SPDX-License-Identifier: Apache-2.0
"""FASTQ records, checked a block at a time: where each begins and ends, and how many bases it has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from firsttouch.errors import BadInput
from firsttouch.reads import pairs
from firsttouch.reads.blocks import HEAD, SLACK, Block, Bytes, Damaged, Ints

#: More than any sequencer's read: what goes on longer without a fourth newline is no FASTQ.
LONGEST = 1 << 26
#: SAM's limit for the name of a read.
LONGEST_NAME = 254
_BLANK = "begins without @: it is a blank line"
_AT, _PLUS, _SPACE = b"@+ "
_TAB, _NEWLINE, _RETURN, _DELETE = b"\t\n\r\x7f"
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
        names = pairs.Names(data, starts[long], ends[long])
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
