# SPDX-License-Identifier: Apache-2.0
"""``firsttouch plan``: all scenarios of a host, each with numactl's argv, or why it cannot be run."""

from __future__ import annotations

import argparse

from tabulate import tabulate

from firsttouch.aligners import aligner
from firsttouch.commands import options
from firsttouch.placement import plan

EXAMPLES = """\
  firsttouch plan --aligner bwa-mem --index-size 5.1GB
  firsttouch plan --aligner bwa-mem --threads 32 --json
  firsttouch plan --aligner bwa-mem --index-size 5.1GB --xml host.xml"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    made = options.command(subparsers, "plan", "list the placement scenarios of a host", EXAMPLES)
    made.add_argument("--aligner", required=True, help="whose memory needs count")
    made.add_argument(
        "--index-size", type=options.size, default=0, metavar="SIZE", help="of one replica, as 5.1GB (default: 0)"
    )
    made.add_argument("--threads", type=options.positive, help="threads in total (default: all usable PUs)")
    options.add_topology(made)
    made.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the plan."""
    host = options.topology(args)
    found = plan(host, aligner(args.aligner).need(args.index_size), threads=args.threads)
    if args.json:
        options.print_json(
            {
                "topology": host.to_dict(),
                "scenarios": [s.to_dict() for s in found.scenarios],
                "infeasible": [{"name": n, "reason": r} for n, r in found.infeasible],
            }
        )
        return 0
    rows = []
    for scenario in found.scenarios:
        for number, placement in enumerate(scenario.placements):
            name = scenario.name if number == 0 else ""
            shape = f"{scenario.instances} x {scenario.threads}" if number == 0 else ""
            rows.append((name, shape, number, " ".join(placement.numactl) or "(no numactl)"))
    print(tabulate(rows, ("scenario", "instances x threads", "instance", "numactl")))
    for name, reason in found.infeasible:
        print(f"cannot be run: {name}: {reason}")
    return 0
