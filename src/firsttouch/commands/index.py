# SPDX-License-Identifier: Apache-2.0
"""``firsttouch index``: builds an aligner's index of a dataset once, and says where it is."""

from __future__ import annotations

import argparse

from firsttouch import datasets, index
from firsttouch.aligners import aligner
from firsttouch.commands import options
from firsttouch.datasets import store
from firsttouch.progress import say

EXAMPLES = """\
  firsttouch index --aligner bwa-mem --dataset lambda
  firsttouch index --aligner bwa-mem --dataset grch37 --json"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    made = options.command(subparsers, "index", "build an aligner's index of a dataset, once", EXAMPLES)
    made.add_argument("--aligner", required=True)
    made.add_argument("--dataset", required=True)
    made.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the index's prefix and its size."""
    one = aligner(args.aligner)
    data = datasets.get(args.dataset)
    prefix = index.built(one, data.reference, store.root() / "index", say=say)
    size = one.index_bytes(prefix)
    if args.json:
        options.print_json({"aligner": one.name, "dataset": args.dataset, "index": str(prefix), "bytes": size})
    else:
        print(prefix)
    return 0
