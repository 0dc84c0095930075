# SPDX-License-Identifier: Apache-2.0
"""``firsttouch plan``: all scenarios of a host with their numactl options, or why they cannot be run."""

from __future__ import annotations

import argparse
import textwrap

from firsttouch.cli import options
from firsttouch.genomics.aligners import aligner
from firsttouch.scenarios.placement import Plan, Scenario, plan

EXAMPLES = """\
  firsttouch plan --aligner bwa-mem --index-size 5.1GB
  firsttouch plan --aligner bwa-mem --index-size 5.1GB --threads 32 --json
  firsttouch plan --aligner bwa-mem --policies original,preferred-many
  firsttouch plan --aligner bwa-mem --index-size 5.1GB --xml host.xml
  firsttouch plan --aligner bwa-mem --fsroot 64amd64-4s2n4ca2co.tar.bz2

names: 8Inst_Original uses all PUs. 2Inst_Original_16t uses fewer: each of its two
instances has 16 threads. `firsttouch run` takes any number of instances and
threads that the host can carry, listed here or not."""

#: Up to this number of instances, all are listed; otherwise the first two and the last.
_LISTED = 8
_WIDTH = 80


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "plan", EXAMPLES)
    options.add(parser, "--aligner", required=True, help="plan for the memory that this aligner needs")
    parser.add_argument(
        "--index-size",
        type=options.size,
        default=0,
        metavar="SIZE",
        help="size of one replica of the index, such as 5.1GB (default: 0)",
    )
    options.add(parser, "--threads", "--policies")
    parser.add_argument(
        "--all-memory", action="store_true", help="place data on high-bandwidth, persistent and CXL memory, too"
    )
    options.add_topology(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the plan."""
    need = aligner(args.aligner).need(args.index_size)
    host = options.topology(args)
    planned = plan(host, need, threads=args.threads, policies=args.policies, all_memory=args.all_memory)
    if args.json:
        options.print_json(
            {
                "topology": host.to_dict(),
                "scenarios": [s.to_dict() for s in planned.scenarios],
                "infeasible": [{"name": n, "reason": r} for n, r in planned.infeasible],
            }
        )
    else:
        print(_text(planned, host.remarks()))
    return 0


def _text(planned: Plan, remarks: list[str]) -> str:
    """Return the plan as a table, and below it the *remarks* and each scenario that cannot be run."""
    from tabulate import tabulate  # noqa: PLC0415 - see the package

    rows = [row for scenario in planned.scenarios for row in _rows(scenario)]
    width = _WIDTH - 2 - max((len(r[0]) for r in rows), default=0) - 2 - len("instance") - 2
    wrapped = [(*r[:2], "\n".join(textwrap.wrap(r[2], width, break_on_hyphens=False))) for r in rows]
    table = tabulate(wrapped, ("scenario", "instance", "numactl"), disable_numparse=True)
    notes = [f"note: {remark}" for remark in remarks]
    notes += [f"cannot be run: {name}: {reason}" for name, reason in planned.infeasible]
    wrapped_notes = (textwrap.fill(n, _WIDTH, subsequent_indent="  ", break_on_hyphens=False) for n in notes)
    return "\n".join([table, *wrapped_notes])


def _rows(scenario: Scenario) -> list[tuple[str, str, str]]:
    rows = [(str(i), " ".join(p.numactl) or "(no numactl)") for i, p in enumerate(scenario.placements)]
    if len(rows) > _LISTED:
        rows = [*rows[:2], ("...", "(--json has them all)"), rows[-1]]
    return [(scenario.name if i == 0 else "", *row) for i, row in enumerate(rows)]
