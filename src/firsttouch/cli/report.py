# SPDX-License-Identifier: Apache-2.0
"""``firsttouch report``: writes a report of records into a folder."""

from __future__ import annotations

import argparse
import json
import sys

from firsttouch.cli import options
from firsttouch.errors import BadInput
from firsttouch.report import FEW_HOSTS
from firsttouch.tools import lean_numpy, require_report

EXAMPLES = """\
  firsttouch report results/ -o report
      reports all records below results/, of one host or of ten thousand; open report/index.html
  firsttouch report reports/out/campaigns/validate-77 store/ -o report --system amd-opteron
      a campaign and a store that hosts append to, judged by the references of their system
  firsttouch report n1.jsonl n2.jsonl -o report --xml n1.xml
      two hosts; the topology (lstopo n1.xml) is shown for the host that it names
  firsttouch report store/ -o report --details 5
      with a page for each of the five worst hosts
  firsttouch report --compare before/ after/ -o report
      what a firmware update changed on these hosts, metric by metric
  firsttouch report results/ -o report --json | jq '.guidelines[].recommended'
      the summary as JSON on stdout"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(
        subparsers,
        "report",
        run,
        EXAMPLES,
        "Write a report of measured records into a folder: index.html (one page that needs no network),\n"
        "summary.md for a ticket, summary.json for programs.\n\n"
        f"Of up to {FEW_HOSTS} hosts it shows all figures, of more hosts those that do not pass, a map of hosts\n"
        "and metrics, the history, and what is missing. Records and advice that cannot be read are named and\n"
        "left out, with exit status 2; --compare then writes nothing.\n"
        "A failing host changes the exit status of validate, not of report. With --compare\n"
        "it is 1 if a metric or a host became worse.",
    )
    options.add(parser, "records")
    folder = "the report's folder: created, or replaced if it holds an earlier report"
    options.add(parser, "--output", required=True, metavar="DIR", help=folder)
    system = "the system whose references judge its hosts (default for many hosts: those that the records name)"
    options.add(parser, "--system", help=system)
    compared = "compare two RECORDS_OR_DIR: before and after"
    parser.add_argument("--compare", action="store_true", help=compared)
    pages = "for many hosts: add a page for each of the N worst"
    parser.add_argument("--details", type=options.natural, default=0, metavar="N", help=pages)
    options.add(parser, "--max-age")
    options.add(parser, "--xml", help="the host's topology as hwloc XML (lstopo FILE)")


def run(args: argparse.Namespace) -> int:
    """Write the report; print its summary, or with --json the document."""
    require_report()
    with lean_numpy():
        from firsttouch.report import writing  # noqa: PLC0415 - templates and tables only when a report is made

    if args.compare and len(args.records) != 2:
        raise BadInput(f"--compare takes two, before and after: {len(args.records)} were given")
    if args.compare and args.max_age:
        raise BadInput("--max-age is not for --compare: give two folders with the records to compare")
    if args.compare:
        written = writing.write_comparison(
            args.records[0], args.records[1], args.output, system=args.system, xml=args.xml
        )
    else:
        written = writing.write_report(
            args.records,
            args.output,
            system=args.system,
            details=args.details,
            xml=args.xml,
            max_age=args.max_age,
        )
    if args.json:
        json.dump(written.summary.document, sys.stdout, indent=1, sort_keys=True)
        sys.stdout.write("\n")
    else:
        print(written.summary.table())
    page = args.output / "index.html"
    print(f"\nreport: {page}", file=sys.stderr if args.json else sys.stdout, flush=True)
    if written.inputs is not None:
        written.inputs.print_unread()
    return int(written.is_worse)
