# SPDX-License-Identifier: Apache-2.0
"""``firsttouch fleet due``: the hosts to validate next, and their jobs."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict, replace

from firsttouch.cli import options
from firsttouch.errors import RunFailed, one_line
from firsttouch.execution.progress import say
from firsttouch.host.host_lists import unfolded
from firsttouch.tools import require_report

if TYPE_CHECKING:
    from firsttouch.fleet.screening import Due

#: Hosts that the table shows; --json has all.
_SHOWN = 40
EXAMPLES = """\
  firsttouch fleet due --system amd-opteron                     which hosts to validate next, and why
  firsttouch fleet due --system amd-opteron --max-age 14d
  firsttouch fleet due --system amd-opteron --hosts 'n[001-200]' --json
  firsttouch fleet due --system amd-opteron --count 40 --submit     (regularly, by scrontab)"""


def register(add_action: options.AddAction) -> None:
    """Add the action."""
    parser = add_action("due", "list the hosts to validate next, and submit their validation", run, EXAMPLES)
    options.add(parser, "--system", required=True, help="the system whose hosts are validated")
    hosts = "only these hosts, such as n[1-8],m2 (default: the system's hosts in Slurm)"
    options.add(parser, "--hosts", help=hosts)
    options.add(parser, "--max-age", help="hosts with an older verdict are due (default: fleet.yaml's, 7d)")
    first = "the first N hosts, also those with younger verdicts (default: all that are due)"
    parser.add_argument("--count", type=options.positive, metavar="N", help=first)
    submit = "submit a job with low priority for each of them"
    parser.add_argument("--submit", action="store_true", help=submit)


def run(args: argparse.Namespace) -> int:
    """Print what is due, and submit it with --submit; 0, or 1 if Slurm refuses a job."""
    from firsttouch.execution import slurm  # noqa: PLC0415 - import numpy and others
    from firsttouch.fleet import screening, site_settings  # noqa: PLC0415 - import numpy and others
    from firsttouch.systems.definition import load  # noqa: PLC0415

    require_report()  # the log of verdicts is read as a table
    settings = site_settings.load().screening
    if args.max_age is not None:
        settings = replace(settings, max_age=args.max_age)
    system = load(args.system)
    hosts = unfolded(args.hosts) if args.hosts else ()
    if hosts and (strangers := system.strangers(hosts)):
        say(f"firsttouch: {strangers}")
    if not args.submit:
        due = screening.due(system, settings, hosts, args.count)
        _print(due, {}, as_json=args.json)
        return 0
    slurm.require(instead="without --submit the hosts are listed")
    with screening.alone():
        due = screening.due(system, settings, hosts, args.count)
        if due.note:
            raise RunFailed(f"nothing is submitted {due.note}")
        campaign, submitted = screening.submit(due, settings) if due.hosts else (None, None)
    jobs = asdict(submitted) if submitted else {"jobs": [], "refused": {}}
    _print(due, jobs | {"campaign": str(campaign.folder) if campaign else None}, as_json=args.json)
    if submitted and campaign and not args.json:
        print(f"jobs: {len(submitted.jobs)}, and {submitted.collector} collects; results: {campaign.folder}")
        for host, why in submitted.refused.items():
            print(one_line(f"no job for {host}: {why}"))
    return 1 if jobs["refused"] else 0


def _print(due: Due, jobs: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a line for each host that is due, and how many are left out; or all as JSON, with the *jobs*."""
    if as_json:
        options.print_json(asdict(due) | {"hosts": [*map(asdict, due.hosts)]} | dict(jobs))
        return
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
