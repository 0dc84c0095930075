# SPDX-License-Identifier: Apache-2.0
"""Writes blocked FASTQ: every N records fill exactly B bytes, so that a program can read them with one call.

    PYTHONPATH=studies python -m blocked_fastq r1.fq.gz r2.fq.gz -o b1.fq b2.fq

This is L-parsing of Langmead et al. 2018 (section 2.2, figure 2). Spaces after the name of a block's last record
pad the block. Names end at a space, so every aligner reads the file. A last block with fewer records is not
padded.
The aligners *-2018-blocked and *-2018-striped read a block at a time.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

from firsttouch.errors import BadInput, FirstTouchError
from firsttouch.execution.progress import say as print_message
from firsttouch.genomics.fastq import inspect
from firsttouch.genomics.reads import Reads
from firsttouch.genomics.sources import mate_lines
from firsttouch.records import atomic_files
from firsttouch.units import format_bytes

#: The paper's block size.
BLOCK_BYTES = 12288
#: The bytes of the smallest record: @, + and four ends of lines.
_LEAST = 6
#: Bytes that are read at once, and bytes of output between two progress messages.
_LINES_AT_ONCE = 1 << 14
_MESSAGE_BYTES = 1 << 30
#: A block has to fit into memory.
_MOST_BYTES = 1 << 30


class Blocked(Struct, frozen=True):
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
    whole: bool = False,
    say: Callable[[str], None] | None = None,
) -> Blocked:
    """Write *reads* in blocked form to *outs*, one file for each mate; all files appear together at the end.

    *per_block* is the number of records of a block (default: as many as fit whatever their length). *whole* leaves
    out a last block with fewer records, so that the first block can follow it. Raises BadInput if records do not
    fit into their block, or do not fill a whole one.
    """
    longest = max(layout.longest for layout in reads.layouts)
    number = block_bytes // longest if per_block is None else per_block
    if number < 1:
        raise BadInput(f"the longest record has {longest} bytes: blocks of {block_bytes} bytes hold none")
    if number * _LEAST > block_bytes:
        raise BadInput(f"blocks of {block_bytes} bytes have no room for {number} records (--reads-per-block)")
    if whole and reads.records < number:
        raise BadInput(f"{reads.records} records do not fill a block of {number}: use more reads")
    size = 0
    with contextlib.ExitStack() as stack:
        partials = [stack.enter_context(atomic_files.output(out, force=True)) for out in outs]
        for mate, (out, partial) in enumerate(zip(outs, partials, strict=True)):
            with (
                atomic_files.name_in_errors(out),
                partial.open("wb") as target,
                mate_lines(reads, [([0] * len(reads.files), reads.records)], mate) as source,
            ):
                for text in _padded(source, reads, mate, number, block_bytes, whole=whole):
                    before = target.tell() // _MESSAGE_BYTES
                    target.writelines(text)
                    if say is not None and target.tell() // _MESSAGE_BYTES > before:
                        say(f"blocking reads: {out.name} {format_bytes(target.tell())}")
                size = max(size, target.tell())
    return Blocked(block_bytes, number, reads.records // number if whole else -(-reads.records // number), size)


def _padded(
    lines: Iterator[bytes], reads: Reads, mate: int, number: int, block_bytes: int, *, whole: bool
) -> Iterator[list[bytes]]:
    """Yield the blocks of *number* records, several at a time, as texts to write one after the other."""
    tail, done = b"", 0

    def too_large(first: int, last: int, size: int) -> BadInput:
        fitting = block_bytes // max(layout.longest for layout in reads.layouts)
        return BadInput(
            f"records {first} to {last} of mate {mate + 1} take {size} bytes: "
            f"blocks of {number} records need as many (--block-bytes) or fewer records (--reads-per-block"
            f"{f' {fitting} always fits' if fitting else ''})",
            file=reads.files[0 if reads.interleaved else mate],
        )

    while data := b"".join(itertools.islice(lines, _LINES_AT_ONCE)):
        # Only padding ends a line with spaces: that of other blocks is not wanted in these.
        data = re.sub(rb" +\n", b"\n", tail + data)
        ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
        blocks = len(ends) // (4 * number)
        places = ends[: blocks * 4 * number].reshape(blocks, 4 * number)
        # Where the name of a block's last record ends, and where that record ends.
        begin, text = 0, []
        for at, (name, end) in enumerate(zip(places[:, -4].tolist(), places[:, -1].tolist(), strict=True)):
            spaces = block_bytes - (end + 1 - begin)
            if spaces < 0:
                first = (done + at) * number + 1
                raise too_large(first, first + number - 1, end + 1 - begin)
            text += [data[begin:name], b" " * spaces, data[name : end + 1]]
            begin = end + 1
        done += blocks
        tail = data[begin:]
        yield text
    # A program that got a whole block would expect all of its records.
    if len(tail) >= block_bytes:
        raise too_large(done * number + 1, reads.records, len(tail))
    yield [] if whole else [tail]


# ----------------------------------------------------------------------
# The command


def main(argv: Sequence[str] | None = None) -> int:
    """Write the blocked files that the command line asks for and print their names; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="blocked_fastq",
        description="Write reads in blocks of a fixed number of bytes: FASTQ that every aligner takes.",
        epilog="example: PYTHONPATH=studies python -m blocked_fastq r1.fq.gz r2.fq.gz -o b1.fq b2.fq",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="FASTQ, plain or gzip; or a pair")
    parser.add_argument("--interleaved", action="store_true", help="the pairs are in one file")
    parser.add_argument(
        "-o", "--output", nargs="+", required=True, type=Path, metavar="FILE", help="one for each mate"
    )
    parser.add_argument(
        "--block-bytes", type=int, default=BLOCK_BYTES, metavar="N", help="bytes of a block (default: %(default)s)"
    )
    parser.add_argument(
        "--reads-per-block", type=int, metavar="N", help="records of a block (default: as many as always fit)"
    )
    parser.add_argument("--whole", action="store_true", help="leave out a last block with fewer records")
    args = parser.parse_args(argv)
    try:
        blocks = _write(args)
    except FirstTouchError as error:
        print(f"blocked_fastq: error: {error}", file=sys.stderr)
        return error.exit_status
    for file in args.output:
        print(file)
    print_message(f"{blocks.blocks} blocks: --block-bytes {blocks.block_bytes} --reads-per-block {blocks.reads}")
    return 0


def _write(args: argparse.Namespace) -> Blocked:
    """Check the arguments and the reads, and write the blocked files."""
    mates = 2 if args.interleaved or len(args.files) == 2 else 1
    if len(args.output) != mates:
        raise BadInput(f"{len(args.output)} output files, but the reads have {mates} mates: name {mates} (-o)")
    if args.block_bytes > _MOST_BYTES:
        raise BadInput(f"--block-bytes {args.block_bytes}: a block has {_MOST_BYTES} bytes at most")
    for file in args.output:
        atomic_files.check_place(file)
    atomic_files.refuse_overwriting(args.output, args.files)
    reads = inspect(args.files, interleaved=args.interleaved, say=print_message)
    return block(
        reads,
        args.output,
        block_bytes=args.block_bytes,
        per_block=args.reads_per_block,
        whole=args.whole,
        say=print_message,
    )


if __name__ == "__main__":
    sys.exit(main())
