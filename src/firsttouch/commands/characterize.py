# SPDX-License-Identifier: Apache-2.0
"""``firsttouch characterize``: the main job, all checks on this host and the report (``make run``)."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from firsttouch import characterize, folders
from firsttouch.commands import options
from firsttouch.measure import effort
from firsttouch.progress import say

EXAMPLES = """\
  firsttouch characterize
  firsttouch characterize --system local --dataset synthetic
  firsttouch characterize --aligner all
  firsttouch characterize --backend apptainer            (the programs of containers/firsttouch.sif)
  firsttouch characterize -- -n latency -n bandwidth      (options after -- are ReFrame's)"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    made = options.command(subparsers, "characterize", "run all checks on this host and write a report", EXAMPLES)
    made.add_argument(
        "--system", default=folders.LOCAL, help="the system that this host belongs to (default: local)"
    )
    made.add_argument(
        "--dataset", default=effort.default_dataset(), help="what the aligners work on (default: %(default)s)"
    )
    made.add_argument(
        "--aligner",
        action="append",
        metavar="A",
        help=f"an aligner's scenarios; may be repeated; 'all' (default: ${effort.ALIGNERS_VARIABLE} or "
        f"{effort.default_aligner()})",
    )
    options.add_backend(made)
    made.add_argument("-o", "--output", type=Path, help="folder of reports (default: reports/out)")
    made.add_argument("reframe_options", nargs="*", metavar="OPTION", help="options for ReFrame, after --")
    made.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Characterize this host; 1 where a check failed."""
    # ReFrame and its checks are processes of their own.
    os.environ[effort.ALIGNERS_VARIABLE] = _aligners(args.aligner)
    effort.chosen()  # says what there is not, before any work
    out = args.output or folders.results()
    folder, table, passed = characterize.characterize(
        args.system,
        out,
        dataset=args.dataset,
        programs=args.backend,
        image=args.image,
        options=args.reframe_options,
        say=say,
    )
    if args.json:
        print((folder / "summary.json").read_text(encoding="utf-8"), end="")
    else:
        print(table)
        print(f"\nreport: {folder / 'index.html'}")
    return 0 if passed else 1


def _aligners(given: list[str] | None) -> str:
    return ",".join(given or ()) or os.environ.get(effort.ALIGNERS_VARIABLE) or effort.default_aligner()
