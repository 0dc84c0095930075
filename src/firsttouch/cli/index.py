# SPDX-License-Identifier: Apache-2.0
"""``firsttouch index``: builds an aligner's index of a dataset once, and prints its prefix."""

from __future__ import annotations

import argparse

from firsttouch import paths
from firsttouch.cli import options
from firsttouch.datasets import fetch
from firsttouch.execution.progress import say
from firsttouch.genomics import aligners
from firsttouch.genomics.aligners import aligner

EXAMPLES = """\
  firsttouch index --aligner bwa-mem --dataset lambda
  firsttouch index --aligner bwa-mem --dataset grch37 --json"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "index", run, EXAMPLES)
    options.add(parser, "--aligner", "--dataset", required=True)


def run(args: argparse.Namespace) -> int:
    """Print the index's prefix, with --json also its size."""
    program = aligner(args.aligner)
    data = fetch.get(args.dataset)
    prefix = aligners.built(program, data.reference, paths.data() / "index", sha256=data.sha256, say=say)
    size = program.index_bytes(prefix)
    if args.json:
        options.print_json({"aligner": program.name, "dataset": args.dataset, "index": str(prefix), "bytes": size})
    else:
        print(prefix)
    return 0
