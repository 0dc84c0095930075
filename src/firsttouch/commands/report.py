# SPDX-License-Identifier: Apache-2.0
"""``firsttouch report``: records in, a folder with the report out."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from firsttouch import records, topology
from firsttouch.errors import BadInput

_EXAMPLES = """examples:
  firsttouch report results/ -o report
      reports all records.jsonl files below results/; open report/index.html
  firsttouch report n1.jsonl n2.jsonl -o report --xml n1.xml
      two hosts; the topology (lstopo n1.xml) is shown for the host that it names
  firsttouch report results/ -o report --json | jq '.hosts[].scenarios'
      the summary as JSON on stdout
"""


def register(subparsers: Any) -> None:
    """Add the command to the command line's sub-parsers."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "report",
        help="write index.html, summary.md and summary.json of measured records",
        description="Writes a folder with a report of measured records: index.html (one page that needs no "
        "network), summary.md for a ticket, summary.json for machines and records.parquet with every sample.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "records",
        nargs="+",
        type=Path,
        metavar="RECORDS_OR_DIR",
        help="a JSON-lines file of records, or a folder: all records.jsonl below it",
    )
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        type=Path,
        metavar="DIR",
        help="the report's folder: made, or replaced as a whole if it holds an earlier report",
    )
    parser.add_argument("--xml", type=Path, metavar="F", help="the host's topology as hwloc XML (lstopo F)")
    parser.add_argument("--json", action="store_true", help="print summary.json to stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the report; print its headlines, or with --json the document. Returns the exit status."""
    from firsttouch import report  # noqa: PLC0415 - templates and tables only when a report is made

    out = args.output.resolve()
    _check_replaceable(out)
    found = _collect(args.records)
    xml = None
    if args.xml is not None:
        topology.load(xml=args.xml)  # names the file in its error
        xml = args.xml.read_text(encoding="utf-8", errors="replace")
    beside = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        summary = report.build(found, beside, topology_xml=xml)
        _publish(beside, out)
    except OSError as error:
        raise BadInput(f"the report cannot be written: {error.strerror}", file=error.filename or out) from error
    finally:
        if beside is not None:
            shutil.rmtree(beside, ignore_errors=True)
    if args.json:
        json.dump(summary.document, sys.stdout, indent=1, sort_keys=True)
        sys.stdout.write("\n")
    else:
        print(summary.table())
    page = args.output / "index.html"
    print(f"\nreport: {page}", file=sys.stderr if args.json else sys.stdout)
    return 0


def _collect(paths: list[Path]) -> list[records.Record]:
    for path in paths:
        if not path.exists():
            raise BadInput("no such file or folder", file=path)
    try:
        found = records.collect(paths)
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", file=error.filename) from error
    if not found:
        raise BadInput(f"no record in {', '.join(map(str, paths))}: a run writes them to records.jsonl")
    return found


def _check_replaceable(out: Path) -> None:
    """Refuse a folder with anything else in it than an earlier report."""
    from firsttouch import report  # noqa: PLC0415 - see run

    nearest = next(folder for folder in (out, *out.parents) if folder.exists())
    if not nearest.is_dir():
        raise BadInput("not a folder", file=nearest)
    if nearest != out:
        return
    there = {entry.name for entry in out.iterdir()}
    if not there:
        return
    strangers = sorted(there - report.FILES)
    try:
        earlier = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        earlier = None
    if strangers or not isinstance(earlier, dict) or earlier.get("document") != report.DOCUMENT:
        what = f"it holds {strangers[0]}" if strangers else "its summary.json is none of a report"
        raise BadInput(f"not an earlier report ({what}): give a new or an empty folder", file=out)


def _publish(beside: Path, out: Path) -> None:
    """Put the finished report *beside* in the place of *out*; it is never half the old and half the new one."""
    umask = os.umask(0)
    os.umask(umask)
    beside.chmod(0o777 & ~umask)  # mkdtemp makes folders that only their owner can read
    if not out.exists():
        beside.rename(out)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{out.name}.old.", dir=out.parent))
    out.rename(old)  # onto an empty folder: allowed, and atomic
    try:
        beside.rename(out)
    except OSError:
        old.rename(out)
        raise
    shutil.rmtree(old, ignore_errors=True)
