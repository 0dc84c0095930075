# SPDX-License-Identifier: Apache-2.0
"""Checks FASTA queries, with sequences on one line or several, in the same chunks as FASTQ."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from firsttouch.errors import BadInput
from firsttouch.genomics.fastq import (
    NEWLINE,
    NO_BASE,
    RETURN,
    SLACK,
    Block,
    Bools,
    Bytes,
    Chunk,
    Ints,
    name_fault,
    prepend,
    shown,
    undamaged,
    valid_names,
)

MARK = b">"
#: No query is longer (bytes): the largest chromosomes have 2 Gb, but not even they are one read.
LONGEST = 1 << 30


def _table(allowed: bytes) -> Bools:
    """Return for each byte whether it is not one of *allowed*."""
    odd = np.ones(256, np.bool_)
    odd[list(allowed)] = False
    return odd


_LETTERS = bytes(range(ord("A"), ord("Z") + 1)) + bytes(range(ord("a"), ord("z") + 1))
_ODD_BASE = _table(_LETTERS + b".=\n")
_ODD_NAME = _table(b"\t\n" + bytes(range(0x20, 0x7F)) + bytes(range(0x80, 0x100)))


class FastaParser:
    """Parses and checks one file, as an iterator of chunks; a chunk's *ends* are those of its names and records.

    *records* and *end* (offset) are those of the chunks so far.
    """

    lines = 0

    def __init__(self, path: Path, blocks: Iterator[Block], *, multiple_of: int = 1) -> None:
        """Parse *blocks* of the file; a chunk has a multiple of *multiple_of* records (2: interleaved pairs)."""
        self.path = path
        self.records = self.end = 0
        self._blocks, self._multiple, self._lines = blocks, multiple_of, 0

    def __iter__(self) -> Iterator[Chunk]:
        """Yield the chunks. Raises BadInput naming file, record and line."""
        tail, tail_ends = np.empty(0, np.uint8), np.empty(0, np.int64)
        for block in undamaged(self._blocks, self):
            data = prepend(tail, block)
            size = len(tail) + block.size
            ends = np.concatenate((tail_ends, block.ends + len(tail)))
            begins = np.concatenate(([0], ends + 1))
            begins = begins[begins < size]
            heads = np.flatnonzero(data[begins] == MARK[0])
            # The last record may go on in the next block.
            if not len(heads) or heads[0]:
                raise self._error(name_fault(bytes(data[:size]).split(b"\n")[0], MARK), 1)
            complete = (len(heads) - 1) // self._multiple * self._multiple
            lines = int(heads[complete])
            used = int(begins[lines])
            if complete:
                yield self._check(data, ends[:lines])
            tail, tail_ends = data[used:size].copy(), ends[lines:] - used
            if len(tail) > LONGEST:
                raise self._error(f"is longer than {LONGEST >> 20} MiB: is this FASTA?", 1)
        yield from self._last(tail.tobytes())

    def _last(self, tail: bytes) -> Iterator[Chunk]:
        """Yield the last record, without blank lines after it; its newline may be missing."""
        if not tail:
            return
        tail += b"\n"
        end = tail.index(b"\n", len(tail.rstrip())) + 1
        data = np.frombuffer(tail[:end] + bytes(SLACK), np.uint8)
        ends = np.flatnonzero(data == NEWLINE)
        chunk = self._check(data, ends)
        if len(chunk.starts) % self._multiple:
            lines = int((ends > chunk.starts[-1]).sum())
            raise self._error("has no mate, and the file of interleaved pairs ends", 1 - lines, of=self.records)
        yield chunk

    def _check(self, data: Bytes, ends: Ints) -> Chunk:
        """Check the lines that end at *ends* and return their records."""
        begins = np.concatenate(([0], ends[:-1] + 1))
        is_name = data[begins] == MARK[0]
        heads = np.flatnonzero(is_name)
        content = ends - begins
        content = content - ((data[ends - 1] == RETURN) & (content > 0))
        starts, name_ends = begins[heads], ends[heads]
        self._require_valid(data, begins, ends, is_name)
        if not (good := valid_names(data, starts, name_ends)).all():
            self._refuse(data, begins, ends, int(heads[good.argmin()]), is_name)
        record_ends = np.append(ends[heads[1:] - 1], ends[-1])
        chunk = Chunk(
            data,
            self.end,
            starts,
            np.column_stack((name_ends, record_ends, record_ends, record_ends)),
            np.add.reduceat(content, heads) - content[heads],
            np.add.reduceat(content + 1, heads),
        )
        self.records += len(heads)
        self.end += int(ends[-1]) + 1
        self._lines += len(ends)
        return chunk

    def _require_valid(self, data: Bytes, begins: Ints, ends: Ints, is_name: Bools) -> None:
        """Raise BadInput for the first byte that SAM cannot hold."""
        text = data[: int(ends[-1]) + 1]
        at = np.flatnonzero(_ODD_BASE[text])
        line = np.searchsorted(ends, at)
        odd = np.where(is_name[line], _ODD_NAME[text[at]], True)
        odd &= ~((text[at] == RETURN) & (at + 1 == ends[line]))
        if odd.any():
            self._refuse(data, begins, ends, int(line[odd.argmax()]), is_name)

    def _refuse(self, data: Bytes, begins: Ints, ends: Ints, line: int, is_name: Bools) -> None:
        text = data[int(begins[line]) : int(ends[line])].tobytes().removesuffix(b"\r")
        reason = name_fault(text, MARK) if is_name[line] else ""
        if not is_name[line] and (odd := NO_BASE.search(text)):
            reason = f"has {shown(odd[0])} among its bases"
        raise self._error(reason, line + 1, of=self.records + int(is_name[: line + 1].sum()))

    def _error(self, reason: str, line: int, *, of: int = 0) -> BadInput:
        return BadInput(f"record {of or self.records + 1} {reason}", file=self.path, line=self._lines + line)
