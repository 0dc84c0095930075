# SPDX-License-Identifier: Apache-2.0
"""``firsttouch advice``: lists the saved advice, and deletes it."""

from __future__ import annotations

import argparse

from tabulate import tabulate

from firsttouch.advice import saved
from firsttouch.cli import options
from firsttouch.cli.advise import gain_text
from firsttouch.errors import one_line
from firsttouch.execution.progress import say
from firsttouch.host.topology import load

EXAMPLES = """\
  firsttouch advice list          what `firsttouch run -- COMMAND` follows, and whether it applies here
  firsttouch advice forget 0c8f2d11a9b3"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command and its actions."""
    add_action = options.actions(subparsers, "advice", EXAMPLES)
    add_action("list", "list the saved advice, and whether it applies here", list_advice)
    forgetting = add_action("forget", "delete saved advice", forget)
    forgetting.add_argument("ids", nargs="+", metavar="ID", help="an id, as `firsttouch advice list` shows it")


def list_advice(args: argparse.Namespace) -> int:
    """Print the saved advice."""
    here = saved.described(load())
    stored = list(saved.entries(say))
    if args.json:
        options.print_json([{**s.to_dict(), "applies_here": s.key.host == here} for s in stored])
        return 0
    if not stored:
        print("no advice: `firsttouch advise -- PROGRAM` or the trials of `firsttouch run -- COMMAND` save some")
        return 0
    rows = [
        (
            s.key.id,
            one_line(" ".join([s.key.program, *s.key.words])),
            one_line(s.key.index.partition(",")[0]),
            s.key.threads,
            one_line(s.scenario),
            gain_text(s.gain),
            one_line(s.time[:10]),
            "yes" if s.key.host == here else one_line(f"no: {s.key.host}"),
        )
        for s in stored
    ]
    heads = ("id", "program", "index", "threads", "scenario", "gain (90 %)", "date", "applies here")
    print(tabulate(rows, heads, missingval="-", maxcolwidths=[None, 40, 20, *[None] * 4, 40]))
    return 0


def forget(args: argparse.Namespace) -> int:
    """Delete advice; with --json print what was deleted."""
    for number in args.ids:
        saved.forget(number)
    if args.json:
        options.print_json({"forgotten": args.ids})
    return 0
