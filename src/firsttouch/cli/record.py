# SPDX-License-Identifier: Apache-2.0
"""``firsttouch record``: measures any program under a verified placement and writes a record."""

from __future__ import annotations

import argparse
from typing import Any

from firsttouch.benchmarks import site_checks
from firsttouch.benchmarks.site_checks import Spec
from firsttouch.cli import options
from firsttouch.errors import BadInput
from firsttouch.execution.progress import say
from firsttouch.records.schema import CHOICES, append, check_appendable
from firsttouch.units import UNITS

EXAMPLES = """\
  firsttouch record --check sleeper --records records.jsonl -- ./program --its-option          its run time
  firsttouch record --check hpcg --metric rate --unit GB/s --regex 'GB/s=(\\S+)' -- xhpcg
  firsttouch record --site-check hpcg --repetitions 5 --records records.jsonl       checks/hpcg.yaml"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "record", EXAMPLES)
    parser.add_argument(
        "--site-check",
        dest="source",
        metavar="CHECK",
        help="a check of the site, or its YAML file, instead of the options",
    )
    parser.add_argument("--check", metavar="NAME", help="name of the check in the record")
    parser.add_argument("--metric", metavar="NAME", help="name of the metric (default: time)")
    parser.add_argument("--unit", choices=["1", *UNITS], metavar="UNIT", help="unit of the metric (default: s)")
    better = "whether higher or lower values are better (default: lower for times)"
    parser.add_argument("--better", choices=CHOICES["better"], help=better)
    parser.add_argument(
        "--regex",
        metavar="REGEX",
        help="its group is the value; the last match counts (--timeout limits its search as well)",
    )
    parser.add_argument(
        "--file", metavar="FILE", help="search this file, which the program writes, not its output"
    )
    parser.add_argument(
        "--scenario", metavar="SCENARIO", help="scenario of one instance (default: 1Inst_Original)"
    )
    options.add(parser, "--repetitions", default=3, help="runs (default: 3)")
    options.add(parser, "--timeout", "--records", "--share-host")
    options.add_user_command(parser, "the program and its arguments")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, print the record, and append it to the file; 1 if the placement did not hold."""
    keys = ("check", "metric", "unit", "better", "regex", "file", "scenario", "program")
    given: dict[str, Any] = {key: getattr(args, key) for key in keys if getattr(args, key)}
    if args.source and given:
        raise BadInput(f"--site-check brings the check: leave {', '.join(given)} out")
    if not args.source and not {"check", "program"} <= given.keys():
        raise BadInput("--check NAME and -- PROGRAM are needed (or --site-check CHECK)")
    spec = site_checks.load(args.source) if args.source else Spec(**given)
    if args.records:
        check_appendable(args.records)
    with options.holding(args), options.watching_health(args.records):
        record = site_checks.measure(spec, repetitions=args.repetitions, timeout=args.timeout)
    if args.records:
        append(args.records, [record])
    if args.json:
        options.print_json(record.to_dict())
    else:
        spread = f", spread {record.spread:.1%}" if record.repetitions > 1 else ""
        print(f"{record.check} {record.metric}: {record.value:g} {record.unit}{spread}")
    if record.status == "valid":
        return 0
    say(f"firsttouch: invalid: {record.reason}")
    return 1
