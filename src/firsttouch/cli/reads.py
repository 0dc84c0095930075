# SPDX-License-Identifier: Apache-2.0
"""``firsttouch reads``: checks FASTQ files."""

from __future__ import annotations

import argparse

from tabulate import tabulate

from firsttouch.cli import options
from firsttouch.execution.progress import say
from firsttouch.genomics.fastq import inspect
from firsttouch.genomics.reads import BatchRule, Reads

EXAMPLES = """\
  firsttouch reads check r1.fq.gz r2.fq.gz
  firsttouch reads check --interleaved pairs.fq --batch-bases 10000000 --json"""

_FILES = """\
files FILE...  FASTQ, plain or gzip; or a pair
--interleaved  the pairs are in one file"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    add_action = options.actions(subparsers, "reads", EXAMPLES)
    check = add_action("check", "check every record, count reads and bases", _check)
    options.add_table(check, "--batch-bases BASES  count batches as well", batch_bases={"default": 0})
    options.add_table(check, _FILES)


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
