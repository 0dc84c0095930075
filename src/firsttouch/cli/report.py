# SPDX-License-Identifier: Apache-2.0
"""``firsttouch report``: writes a report of records into a folder."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from firsttouch import paths
from firsttouch.cli import options
from firsttouch.errors import BadInput
from firsttouch.host import topology
from firsttouch.records import atomic_files
from firsttouch.units import parse

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
  firsttouch report results/ -o report --json | jq '.hosts[].scenarios'
      the summary as JSON on stdout"""
#: The largest age of records (seconds): about 300 years.
_MOST_AGE = 1e10
#: With more hosts than this, the page is that of a fleet.
FEW = 4


class Short(Protocol):
    """The summary of a report."""

    @property
    def document(self) -> dict[str, Any]:
        """The document for machines."""

    def table(self) -> str:
        """Return the table for a terminal."""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(
        subparsers,
        "report",
        EXAMPLES,
        "Writes a folder with a report of measured records: index.html (one page that needs no "
        "network), summary.md for a ticket, summary.json for machines. For a few hosts it shows all figures. For "
        f"more than {FEW} it shows missing results, the hosts that do not pass, a map of hosts and metrics, the "
        "distribution of each metric and the history of hosts. If some records or advice cannot be read, the "
        "report covers the others, the files are named, and the exit status is 2 (--compare then writes none).",
    )
    options.add(parser, "records")
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        type=Path,
        metavar="DIR",
        help="the report's folder: created, or replaced if it holds an earlier report",
    )
    judges = "the system whose references judge its hosts (default for many hosts: those that the records name)"
    options.add(parser, "--system", help=judges)
    parser.add_argument("--compare", action="store_true", help="compare two RECORDS_OR_DIR: before and after")
    detailed = "for many hosts: add a page for each of the N worst"
    parser.add_argument("--details", type=options.natural, default=0, metavar="N", help=detailed)
    age = options.checked(
        lambda text: parse(text, "seconds"),
        "a time above 0, such as 36h or 7d",
        lambda value: 0 < value < _MOST_AGE,
    )
    parser.add_argument("--max-age", type=age, metavar="TIME", help="leave out older records, such as 90d")
    parser.add_argument("--xml", type=Path, metavar="FILE", help="the host's topology as hwloc XML (lstopo FILE)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the report; print its summary, or with --json the document."""
    from firsttouch.campaign import reporting  # noqa: PLC0415 - templates and tables only when a report is made

    out = paths.resolved(args.output)
    atomic_files.refuse_overwriting([out], [*args.records, *([args.xml] if args.xml else [])])
    _check_replaceable(out)
    if args.compare and len(args.records) != 2:
        raise BadInput(f"--compare takes two, before and after: {len(args.records)} were given")
    if args.compare and args.max_age:
        raise BadInput("--max-age is not for --compare: give two folders with the records to compare")
    xml = None
    if args.xml is not None:
        topology.load(xml=args.xml)  # names the file in its error
        xml = args.xml.read_text(encoding="utf-8", errors="replace")
    make: Callable[[Path], Short]
    unread: Callable[[], None] | None = None
    if args.compare:
        make = reporting.comparison(args.records[0], args.records[1], args.system)
    else:
        make, unread = reporting.report_of(
            args.records, args.system, few=FEW, details=args.details, topology_xml=xml, max_age=args.max_age
        )
    with _in_place_of(out) as partial:
        summary = make(partial)
    if args.json:
        json.dump(summary.document, sys.stdout, indent=1, sort_keys=True)
        sys.stdout.write("\n")
    else:
        print(summary.table())
    page = args.output / "index.html"
    print(f"\nreport: {page}", file=sys.stderr if args.json else sys.stdout, flush=True)
    if unread is not None:
        unread()
    return 0


def _check_replaceable(out: Path) -> None:
    """Raise BadInput if the folder holds anything but an earlier report."""
    from firsttouch.report import pages, summary  # noqa: PLC0415 - see run
    from firsttouch.report.fleet import fleet_pages  # noqa: PLC0415 - see run

    nearest = next(folder for folder in (out, *out.parents) if folder.exists())
    if not nearest.is_dir():
        raise BadInput("not a folder", file=nearest)
    if nearest != out:
        return
    there = {entry.name for entry in out.iterdir()}
    if not there:
        return
    strangers = sorted(there - pages.FILES - fleet_pages.FILES)
    try:
        earlier = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        earlier = None
    if strangers or not isinstance(earlier, dict) or earlier.get("document") != summary.DOCUMENT:
        what = f"it holds {strangers[0]}" if strangers else "its summary.json is not a report's"
        raise BadInput(f"not an earlier report ({what}): give a new or an empty folder", file=out)


@contextmanager
def _in_place_of(out: Path) -> Iterator[Path]:
    """Yield a folder beside *out* that replaces it in the end; an incomplete one is removed."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with atomic_files.scratch(out) as partial:
            partial.mkdir()
            yield partial
            _publish(partial, out)
    except OSError as error:
        raise BadInput(f"the report cannot be written: {error.strerror}", file=error.filename or out) from error


def _publish(partial: Path, out: Path) -> None:
    """Replace *out* by the finished report *partial*, as a whole."""
    if not out.exists():
        partial.rename(out)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{out.name}.old.", dir=out.parent))
    out.rename(old)  # onto an empty folder: allowed, and atomic
    try:
        partial.rename(out)
    except OSError:
        old.rename(out)
        raise
    shutil.rmtree(old, ignore_errors=True)
