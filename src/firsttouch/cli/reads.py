# SPDX-License-Identifier: Apache-2.0
"""``firsttouch reads``: checks FASTQ files, and writes them in blocked form."""

from __future__ import annotations

import argparse

from tabulate import tabulate

from firsttouch.cli import options
from firsttouch.errors import BadInput
from firsttouch.execution.progress import say
from firsttouch.genomics.fastq import inspect
from firsttouch.genomics.padded_fastq import BLOCK_BYTES, block
from firsttouch.genomics.reads import BatchRule, Reads
from firsttouch.records import atomic_files

EXAMPLES = """\
  firsttouch reads check r1.fq.gz r2.fq.gz
  firsttouch reads check --interleaved pairs.fq --batch-bases 10000000 --json
  firsttouch reads block r1.fq.gz r2.fq.gz -o b1.fq b2.fq
  firsttouch reads block r.fq -o b.fq --block-bytes 12288 --reads-per-block 44

The blocked form is FASTQ that every aligner takes. The variants -blocked and -striped of bowtie-2018, bowtie2-2018
and hisat-2018 read a block at a time, with the same two options; no release does."""

#: A block has to fit into memory.
_MOST_BYTES = 1 << 30


_BLOCK = f"""\
-o, --output FILE...  one for each mate
--block-bytes SIZE    default: {BLOCK_BYTES}
--reads-per-block N   default: as many as always fit"""
_FILES = """\
files FILE...  FASTQ, plain or gzip; or a pair
--interleaved  the pairs are in one file"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    add_action = options.actions(subparsers, "reads", EXAMPLES)
    check = add_action("check", "check every record, count reads and bases", _check)
    options.add_table(check, "--batch-bases BASES  count batches as well", batch_bases={"default": 0})
    blocking = add_action("block", "write reads in blocks of a fixed number of bytes", _block)
    options.add_table(blocking, _BLOCK, output={"required": True}, block_bytes={"default": BLOCK_BYTES})
    for parser in (check, blocking):
        options.add_table(parser, _FILES)


def _check(args: argparse.Namespace) -> int:
    """Print what the files hold."""
    reads = inspect(args.files, BatchRule(args.batch_bases), interleaved=args.interleaved, say=say)
    if args.json:
        options.print_json(_document(reads))
        return 0
    rows = [("pairs" if reads.paired else "reads", reads.records), ("bases", reads.bases)]
    if args.batch_bases:
        rows.append(("batches", reads.batches.count))
    print(tabulate(rows, tablefmt="plain", intfmt=","))
    for layout in reads.layouts:
        print(f"{layout.file.path}: {', '.join(layout.notes) or 'plain'}")
    return 0


def _document(reads: Reads) -> dict[str, object]:
    return {
        "files": [{"file": str(lay.file.path), "layout": lay.notes} for lay in reads.layouts],
        "paired": reads.paired,
        "interleaved": reads.interleaved,
        "records": reads.records,
        "bases": reads.bases,
        "batches": reads.batches.count,
        "as_is": reads.as_is,
    }


def _block(args: argparse.Namespace) -> int:
    """Write the blocked files and print their names."""
    mates = 2 if args.interleaved or len(args.files) == 2 else 1
    if len(args.output) != mates:
        raise BadInput(f"{len(args.output)} output files, but the reads have {mates} mates: name {mates} (-o)")
    if args.block_bytes > _MOST_BYTES:
        raise BadInput(f"--block-bytes {args.block_bytes}: a block has {_MOST_BYTES} bytes at most")
    for out in args.output:
        atomic_files.check_place(out)
    atomic_files.refuse_overwriting(args.output, args.files)
    reads = inspect(args.files, interleaved=args.interleaved, say=say)
    blocks = block(reads, args.output, block_bytes=args.block_bytes, per_block=args.reads_per_block, say=say)
    if args.json:
        options.print_json(
            {
                "files": [str(out) for out in args.output],
                "records": reads.records,
                "block_bytes": blocks.block_bytes,
                "reads_per_block": blocks.reads,
                "blocks": blocks.blocks,
            }
        )
    else:
        options.print_files(args.output)
        say(f"{blocks.blocks} blocks: --block-bytes {blocks.block_bytes} --reads-per-block {blocks.reads}")
    return 0
