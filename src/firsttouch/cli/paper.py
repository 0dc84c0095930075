# SPDX-License-Identifier: Apache-2.0
"""``firsttouch paper``: the papers' tables and figures from published values, and where the prose disagrees."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from firsttouch import paths
from firsttouch.cli import options
from firsttouch.errors import BadInput
from firsttouch.records import atomic_files

EXAMPLES = """\
  firsttouch paper -o reports/out/paper      open reports/out/paper/index.html
  firsttouch paper -o reports/out/paper --json | jq '.outcomes[] | select(.agrees | not)'"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "paper", EXAMPLES)
    parser.add_argument("-o", "--output", required=True, type=Path, metavar="DIR", help="the page's folder")
    parser.add_argument(
        "--tables",
        type=Path,
        default=paths.TABLES,
        metavar="DIR",
        help="the published tables (default: reports/published of the checkout)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the page; print how many statements agree, or with --json all of them."""
    from firsttouch.report.paper import page  # noqa: PLC0415 - the report's machinery only where it is needed

    if args.output.exists() and not args.output.is_dir():
        raise BadInput("not a folder", file=args.output)
    files, outcomes = page.build(args.tables)
    try:
        args.output.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            atomic_files.write(args.output / name, text)
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror}", file=args.output) from error
    if args.json:
        options.print_json(page.document(outcomes))
    else:
        agree = sum(o.agrees for o in outcomes)
        print(
            f"{len(outcomes)} statements of the papers: "
            f"{agree} agree with their tables, {len(outcomes) - agree} do not"
        )
    print(f"page: {args.output / 'index.html'}", file=sys.stderr if args.json else sys.stdout)
    return 0
