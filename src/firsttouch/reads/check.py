# SPDX-License-Identifier: Apache-2.0
"""FASTQ records, checked a block at a time: where each begins and ends, and how many bases it has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from firsttouch.errors import BadInput
from firsttouch.reads.blocks import HEAD, SLACK, Block, Bytes, Damaged, Ints

#: More than any sequencer's read: what goes on longer without a fourth newline is no FASTQ.
LONGEST = 1 << 26
_BLANK = "begins without @: it is a blank line"
_AT, _PLUS, _RETURN = ord("@"), ord("+"), ord("\r")


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


def _joined(tail: Bytes, block: Block) -> Bytes:
    """Return the block with *tail* before it."""
    if len(tail) > HEAD:
        return np.concatenate((tail, block.data[HEAD:]))
    block.data[HEAD - len(tail) : HEAD] = tail
    return block.data[HEAD - len(tail) :]


def _reason(lines: list[bytes]) -> tuple[str, int] | None:
    """Return what is wrong with a record and in which of its lines (1 to 4), or None."""
    name, bases, plus, quality = (*lines, b"", b"", b"")[:4]
    if not name.startswith(b"@"):
        fasta = "begins without @" + (": this is FASTA, FASTQ is needed" if name.startswith(b">") else "")
        return fasta if name.strip() else _BLANK, 1
    if not plus.startswith(b"+"):
        if bases and plus and plus.isalpha():
            return "has no + line (is it truncated?): bases on several lines are not taken, join them", 3
        return "has no + line (is it truncated?)", 3
    if len(bases) != len(quality):
        return f"has {len(bases)} bases but {len(quality)} qualities (is it truncated?)", 4
    return None
