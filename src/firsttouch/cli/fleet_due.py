# SPDX-License-Identifier: Apache-2.0
"""``firsttouch fleet due``: the hosts to validate next, and their jobs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from firsttouch.cli import options
from firsttouch.errors import RunFailed, one_line
from firsttouch.execution.progress import say
from firsttouch.host.host_lists import unfolded
from firsttouch.units import parse

if TYPE_CHECKING:
    from firsttouch.fleet.screening import Due
    from firsttouch.fleet.site_settings import Screening

#: Hosts that the table shows; --json has all.
_SHOWN = 40
EXAMPLES = """\
  firsttouch fleet due --system amd-opteron                     whom to validate next, and why
  firsttouch fleet due --system amd-opteron --max-age 14d --node-hours 200h
  firsttouch fleet due --system amd-opteron --hosts 'n[001-200]' --json
  firsttouch fleet due --system amd-opteron store/              (also hosts with a new configuration)
  firsttouch fleet due --system amd-opteron --submit            (regularly, by scrontab)"""


_OPTIONS = """\
--system            the system whose hosts are validated
--hosts             only these hosts, such as n[1-8],m2 (default: the system's hosts in Slurm)
--max-age TIME      older verdicts are due first (default: fleet.yaml's, 7d)
--node-hours HOURS  node hours in a period, such as 40h (default: the budget of fleet.yaml, 40h in 7d)
records             records, folders or stores with the configurations of hosts: one that has changed is due
--submit            submit a job with low priority for each of them"""


def register(add_action: options.AddAction) -> None:
    """Add the action."""
    duration = options.checked(lambda text: parse(text, "seconds"), "a time above 0, such as 36h or 7d")
    options.add_table(
        add_action("due", "list the hosts to validate next, and submit their validation", run, EXAMPLES),
        _OPTIONS,
        system={"required": True},
        max_age={"type": duration},
        node_hours={"dest": "budget", "type": duration},
        records={"nargs": "*"},
    )


def run(args: argparse.Namespace) -> int:
    """Print what is due, and submit it with --submit; 0, or 1 if Slurm refuses a job."""
    from firsttouch.execution import slurm  # noqa: PLC0415 - import numpy and others
    from firsttouch.fleet import screening, site_settings  # noqa: PLC0415 - import numpy and others
    from firsttouch.systems.definition import load  # noqa: PLC0415

    given = {"max_age": args.max_age, "budget": args.budget}
    settings = replace(
        site_settings.load().screening, **{name: value for name, value in given.items() if value is not None}
    )
    system = load(args.system)
    hosts = unfolded(args.hosts) if args.hosts else ()
    if hosts and (strangers := system.strangers(hosts)):
        say(f"firsttouch: {strangers}")
    changed = _changed(args.records)
    if not args.submit:
        due = screening.due(system, settings, hosts, changed)
        if args.json:
            options.print_json(due.to_dict())
        else:
            _print(due, settings)
        return 0
    slurm.require(instead="without --submit the hosts are listed")
    with screening.alone():
        due = screening.due(system, settings, hosts, changed)
        if due.notes:
            raise RunFailed(f"nothing is submitted {due.notes[0]}")
        campaign, submitted = screening.submit(due, settings) if due.hosts else (None, None)
    refused = dict(submitted.refused) if submitted else {}
    if args.json:
        jobs = {"jobs": submitted.jobs, "collector": submitted.collector} if submitted else {"jobs": []}
        folder = str(campaign.folder) if campaign else None
        options.print_json({**due.to_dict(), "campaign": folder, **jobs, "refused": refused})
    else:
        _print(due, settings)
        if submitted and campaign:
            print(f"jobs: {len(submitted.jobs)}, and {submitted.collector} collects; results: {campaign.folder}")
        for host, why in refused.items():
            print(one_line(f"no job for {host}: {why}"))
    return 1 if refused else 0


def _changed(paths: Sequence[Path]) -> dict[str, float]:
    """Return when the configurations of hosts changed last, by host (seconds since 1970)."""
    from firsttouch.campaign import inputs  # noqa: PLC0415

    if not paths:
        return {}
    gathered = inputs.gather(paths)
    sequences = gathered.configurations()
    gathered.refuse_unread()
    return {host: its[-1].time / 1000 for host, its in sequences.items() if len(its) > 1}


def _hosts(count: int) -> str:
    return f"{count} host" if count == 1 else f"{count} hosts"


def _print(due: Due, settings: Screening) -> None:
    """Print a line for each host that is due, and what is not validated now, with the reasons."""
    from tabulate import tabulate  # noqa: PLC0415

    from firsttouch.fleet.screening import counted, days  # noqa: PLC0415

    rows = [
        [
            c.host,
            c.verdict or "-",
            "-" if c.age is None else days(c.age),
            f"{c.probability:.1%}",
            "-" if c.bad_hours is None else f"{c.bad_hours:.1f}",
            one_line("; ".join(c.reasons)),
        ]
        for c in due.hosts[:_SHOWN]
    ]
    if rows:
        heads = ["host", "verdict", "age", "bad by now", "bad hours", "why"]
        print(tabulate(rows, heads, disable_numparse=True))
    if len(due.hosts) > _SHOWN:
        print(f"and {len(due.hosts) - _SHOWN} more (--json lists all)")
    cost = len(due.hosts) * due.node_hours
    print(
        f"{due.system}, due now: {_hosts(len(due.hosts))}, {cost:.1f} node hours ({due.node_hours:.2f} each); "
        f"used before in {days(settings.period)}: {due.spent:.1f} of {due.budget:g} node hours"
    )
    if due.later:
        print(f"due, but beyond the budget: {_hosts(due.later)}")
    if due.over_age:
        print(f"  without a verdict, or with one older than {days(settings.max_age)}: {_hosts(due.over_age)}")
    if due.fresh:
        print(f"not due: {_hosts(due.fresh)}")
    if due.left_out:
        print(f"left out, because out of service: {_hosts(len(due.left_out))} ({counted(due.left_out)})")
    if due.busy:
        print(f"with a validation job already: {_hosts(len(due.busy))}")
    for line in due.late:
        print(one_line(f"waits too long: {line}"))
    for note in due.notes:
        print(one_line(note))
