# SPDX-License-Identifier: Apache-2.0
"""``firsttouch staged``: lists the files that ``firsttouch stage`` has copied into memory, and drops them."""

from __future__ import annotations

import argparse

from tabulate import tabulate

from firsttouch.cli import options
from firsttouch.execution import staging
from firsttouch.execution.progress import say
from firsttouch.host.cpusets import format_list
from firsttouch.units import format_bytes

EXAMPLES = """\
  firsttouch staged list
  firsttouch staged drop             everything of this user
  firsttouch staged drop 0c8f2d11"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command and its actions."""
    add_action = options.actions(subparsers, "staged", EXAMPLES)
    add_action("list", "list what is staged, where, and whether it is fresh", list_staged)
    dropping = add_action("drop", "drop what is staged", drop)
    dropping.add_argument(
        "ids",
        nargs="*",
        metavar="ID",
        help="an id of `firsttouch staged list` (default: all of this user)",
    )


def list_staged(args: argparse.Namespace) -> int:
    """List what is staged; where the pages lie is read from the kernel now."""
    documents = []
    for staged in staging.all_staged():
        try:
            documents.append(staged.to_dict(staged.residence()))
        except FileNotFoundError:  # dropped in the meantime
            continue
    if args.json:
        options.print_json({"staged": documents})
        return 0
    if not documents:
        print("nothing is staged on this host")
        return 0
    rows = [
        (
            *(d["id"], format_list(d["numa_nodes"]), format_bytes(d["size_bytes"]), format_bytes(d["huge_bytes"])),
            ", ".join(f"{node}: {count}" for node, count in d["pages"].items()),
            "misplaced" if d["reason"] else d["state"],
            d["until"] and d["until"][:16].replace("T", " "),
            d["folder"],
        )
        for d in documents
    ]
    heads = ("id", "NUMA nodes", "size", "huge", "pages per NUMA node", "state", "until", "folder")
    print(tabulate(rows, heads, missingval="-", disable_numparse=True))
    return 0


def drop(args: argparse.Namespace) -> int:
    """Drop what is staged with these ids, or everything."""
    dropped = staging.chosen(args.ids)
    for staged in dropped:
        staging.drop(staged)
    if args.json:
        options.print_json({"dropped": [staged.id for staged in dropped]})
    else:
        freed = format_bytes(sum(staged.size_bytes for staged in dropped))
        say(
            f"firsttouch: dropped {len(dropped)} ({freed})"
            if dropped
            else "firsttouch: nothing is staged on this host"
        )
    return 0
