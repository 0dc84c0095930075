# SPDX-License-Identifier: Apache-2.0
"""``firsttouch reads``: checks FASTQ files, and writes them in blocked form."""

from __future__ import annotations

import argparse
from pathlib import Path

from tabulate import tabulate

from firsttouch import paths
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


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "reads", EXAMPLES)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = options.action(actions, "check", "check every record, count reads and bases", EXAMPLES)
    check.add_argument(
        "--batch-bases", type=options.positive, default=0, metavar="N", help="count batches as well"
    )
    check.set_defaults(run=_check)
    blocking = options.action(actions, "block", "write reads in blocks of a fixed number of bytes", EXAMPLES)
    blocking.add_argument(
        "-o", "--output", type=Path, nargs="+", required=True, metavar="FILE", help="one for each mate"
    )
    blocking.add_argument(
        "--block-bytes", type=options.size, default=BLOCK_BYTES, metavar="SIZE", help=f"default: {BLOCK_BYTES}"
    )
    blocking.add_argument(
        "--reads-per-block", type=options.positive, metavar="N", help="default: as many as always fit"
    )
    blocking.set_defaults(run=_block)
    for action in (check, blocking):
        action.add_argument("files", type=Path, nargs="+", metavar="FILE", help="FASTQ, plain or gzip; or a pair")
        action.add_argument("--interleaved", action="store_true", help="the pairs are in one file")


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
        if out.is_dir():
            raise BadInput("the output is a folder", file=out)
        if not paths.resolved(out).parent.is_dir():
            raise BadInput("the folder of the output does not exist", file=out)
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
