# SPDX-License-Identifier: Apache-2.0
"""Writes blocked FASTQ: every N records fill exactly B bytes, so that a program can read them with one call.

This is L-parsing of Langmead et al. 2018 (section 2.2, figure 2). Spaces after the name of a block's last record
pad the block. Names end at a space, so every aligner reads the file. The last block is not padded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from firsttouch.errors import BadInput
from firsttouch.genomics.feed import open_mates, static_parts
from firsttouch.genomics.reads import Reads
from firsttouch.records import atomic_files
from firsttouch.units import format_bytes

#: The paper's block size.
BLOCK_BYTES = 12288
#: Bytes that are read at once, and bytes of output between two progress messages.
_AT_ONCE = 1 << 20
_MESSAGE_BYTES = 1 << 30


@dataclass(frozen=True)
class Blocked:
    """*blocks* blocks of *reads* records in *block_bytes* bytes; the larger file has *size* bytes."""

    block_bytes: int
    reads: int
    blocks: int
    size: int


def block(
    reads: Reads,
    outs: list[Path],
    *,
    block_bytes: int = BLOCK_BYTES,
    per_block: int | None = None,
    say: Callable[[str], None] | None = None,
) -> Blocked:
    """Write *reads* in blocked form to *outs*, one file for each mate; all files appear together at the end.

    *per_block* is the number of records of a block (default: as many as fit whatever their length). Raises
    BadInput if records do not fit into their block.
    """
    longest = max(layout.longest for layout in reads.layouts)
    number = block_bytes // longest if per_block is None else per_block
    if number < 1:
        raise BadInput(f"the longest record has {longest} bytes: blocks of {block_bytes} bytes hold none")
    size = 0
    with contextlib.ExitStack() as stack:
        partials = [stack.enter_context(atomic_files.output(out, force=True)) for out in outs]
        for mate, (out, partial) in enumerate(zip(outs, partials, strict=True)):
            with partial.open("wb") as target, open_mates(reads, static_parts(reads, 1), [mate]) as (source,):
                for text in _padded(source, mate, number, block_bytes):
                    before = target.tell() // _MESSAGE_BYTES
                    target.writelines(text)
                    if say is not None and target.tell() // _MESSAGE_BYTES > before:
                        say(f"blocking reads: {out.name} {format_bytes(target.tell())}")
                size = max(size, target.tell())
    return Blocked(block_bytes, number, -(-reads.records // number), size)


def _padded(stream: IO[bytes], mate: int, number: int, block_bytes: int) -> Iterator[list[bytes]]:
    """Yield the blocks of *number* records, several at a time, as texts to write one after the other."""
    tail, done = b"", 0
    while data := stream.read(_AT_ONCE):
        data = tail + data
        ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
        blocks = len(ends) // (4 * number)
        lines = ends[: blocks * 4 * number].reshape(blocks, 4 * number)
        # Where the name of a block's last record ends, and where that record ends.
        begin, text = 0, []
        for at, (name, end) in enumerate(zip(lines[:, -4].tolist(), lines[:, -1].tolist(), strict=True)):
            spaces = block_bytes - (end + 1 - begin)
            if spaces < 0:
                first, size = (done + at) * number + 1, end + 1 - begin
                raise BadInput(
                    f"records {first} to {first + number - 1} of mate {mate + 1} take {size} bytes: "
                    f"blocks of {number} records need as many (--block-bytes) or fewer records (--reads-per-block)"
                )
            text += [data[begin:name], b" " * spaces, data[name : end + 1]]
            begin = end + 1
        done += blocks
        tail = data[begin:]
        yield text
    yield [tail]
