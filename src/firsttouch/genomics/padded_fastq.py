# SPDX-License-Identifier: Apache-2.0
"""The blocked form of FASTQ: every N records fill exactly B bytes, so that a program reads them with one call.

Langmead et al. 2018 (section 2.2, figure 2: L-parsing). Spaces after the name of each block's last record fill it
up; names end at blanks, so that every aligner takes the file. The last block is as short as its records are.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from firsttouch.errors import BadInput
from firsttouch.genomics.fastq import Reads
from firsttouch.genomics.feed import Static
from firsttouch.records import atomic_files
from firsttouch.units import format_bytes

#: The paper's block.
BLOCK_BYTES = 12288
#: How much of a pipe is looked at together, and after how much of the output a message says how far it is.
_AT_ONCE = 1 << 20
_OFTEN = 1 << 30


@dataclass(frozen=True)
class Blocked:
    """What was written: *size* bytes in each of the files, blocks of *reads* records in *block_bytes* bytes."""

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
    """Write *reads* in blocked form to *outs*, one file for each mate.

    *per_block*: records of a block (None: as many as the longest read leaves room for). The files appear when
    all of them are there. Raises BadInput where records do not fit into their block.
    """
    longest = max(layout.longest for layout in reads.layouts)
    number = block_bytes // longest if per_block is None else per_block
    if number < 1:
        raise BadInput(f"the longest record has {longest} bytes: blocks of {block_bytes} bytes hold none")
    size = 0
    with contextlib.ExitStack() as stack:
        # All of them take their places in the end.
        for mate, (out, partial) in enumerate(
            [(o, stack.enter_context(atomic_files.output(o, force=True))) for o in outs]
        ):
            with partial.open("wb") as stream:
                for text in _blocks(reads, mate, number, block_bytes):
                    before = stream.tell() // _OFTEN
                    stream.writelines(text)
                    if say is not None and stream.tell() // _OFTEN > before:
                        say(f"blocking reads: {out.name} {format_bytes(stream.tell())}")
                size = max(size, stream.tell())
    return Blocked(block_bytes, number, -(-reads.records // number), size)


def _blocks(reads: Reads, mate: int, number: int, block_bytes: int) -> Iterator[list[bytes]]:
    """Yield the blocks of mate *mate* as what has to be written, several at a time."""
    feeder = Static(reads, 1)
    out, into = os.pipe()
    with os.fdopen(out, "rb", buffering=0) as stream:
        feeder.start([[into if m == mate else None for m in range(reads.mates)]])
        try:
            yield from _padded(stream, mate, number, block_bytes)
        except BaseException:
            feeder.stop()
            raise
    feeder.join()


def _padded(stream: IO[bytes], mate: int, number: int, block_bytes: int) -> Iterator[list[bytes]]:
    tail, done = b"", 0
    while data := stream.read(_AT_ONCE):
        data = tail + data
        ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
        blocks = len(ends) // (4 * number)
        lines = ends[: blocks * 4 * number].reshape(blocks, 4 * number)
        # The last record of a block: where its name ends, and where it does.
        names, begin, text = lines[:, -4].tolist(), 0, []
        for at, (name, end) in enumerate(zip(names, lines[:, -1].tolist(), strict=True)):
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
