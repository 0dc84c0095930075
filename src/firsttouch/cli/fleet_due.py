# SPDX-License-Identifier: Apache-2.0
"""``firsttouch fleet due``: the hosts to validate next."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from firsttouch.cli import options
from firsttouch.errors import one_line
from firsttouch.execution.progress import say
from firsttouch.host.host_lists import folded, unfolded
from firsttouch.tools import require_report

if TYPE_CHECKING:
    from firsttouch.fleet.screening import Due

#: Hosts that the table shows; --json has all.
_SHOWN = 40
EXAMPLES = """\
  firsttouch fleet due --system amd-opteron --why               which hosts to validate next, and why
  firsttouch fleet due --system amd-opteron --hosts 'n[001-200]' --max-age 14d
  firsttouch campaign submit validate --system S --hosts "$(firsttouch fleet due --system S --count 40)\""""


def register(add_action: options.AddAction) -> None:
    """Add the action."""
    parser = add_action("due", "list the hosts to validate next, as campaign submit takes them", run, EXAMPLES)
    options.add(parser, "--system", required=True, help="the system whose hosts are validated")
    hosts = "only these hosts, such as n[1-8],m2 (default: the system's hosts in Slurm)"
    options.add(parser, "--hosts", help=hosts)
    options.add(parser, "--max-age", help="hosts with an older verdict are due (default: 7d)")
    first = "the first N hosts, also those with younger verdicts (default: all that are due)"
    parser.add_argument("--count", type=options.positive, metavar="N", help=first)
    table = "a table with the verdict of each host, and why hosts are left out"
    parser.add_argument("--why", action="store_true", help=table)


def run(args: argparse.Namespace) -> int:
    """Print what is due; 0."""
    from firsttouch.fleet import screening  # noqa: PLC0415 - imports numpy and others
    from firsttouch.systems.definition import load  # noqa: PLC0415

    require_report()  # the log of verdicts is read as a table
    system = load(args.system)
    hosts = unfolded(args.hosts) if args.hosts else ()
    if hosts and (strangers := system.strangers(hosts)):
        say(f"firsttouch: {strangers}")
    due = screening.due(system, hosts, args.count, args.max_age or screening.MAX_AGE)
    names = [candidate.host for candidate in due.hosts]
    hostlist = folded(names) if names else ""
    if args.json:
        options.print_json({"hostlist": hostlist, **asdict(due), "hosts": [*map(asdict, due.hosts)]})
    elif args.why:
        _print(due)
    else:
        print(hostlist)
        if due.note:
            say(f"firsttouch: {due.note}")
    return 0


def _print(due: Due) -> None:
    """Print a line for each host that is due, and how many are left out."""
    from tabulate import tabulate  # noqa: PLC0415

    from firsttouch.fleet.screening import days  # noqa: PLC0415

    rows = [
        [c.host, c.verdict or "-", "-" if c.age is None else days(c.age), one_line(c.reason)]
        for c in due.hosts[:_SHOWN]
    ]
    if rows:
        print(tabulate(rows, ["host", "verdict", "age", "why"], disable_numparse=True))
    if len(due.hosts) > _SHOWN:
        print(f"and {len(due.hosts) - _SHOWN} more (--json lists all)")
    print(f"{due.system}: {len(due.hosts)} due now" + (f", {due.later} later" if due.later else ""))
    for why, count in Counter(due.left_out.values()).most_common():
        print(one_line(f"left out: {count} ({why})"))
    if due.note:
        print(one_line(due.note))
