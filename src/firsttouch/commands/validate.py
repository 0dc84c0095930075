# SPDX-License-Identifier: Apache-2.0
"""``firsttouch validate``: the verdict of each host by its system's references."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from firsttouch import records
from firsttouch.campaign import collect, drain, model
from firsttouch.campaign.state import state
from firsttouch.commands import options
from firsttouch.errors import BadInput
from firsttouch.systems import System, load
from firsttouch.verdict import HostVerdict, exit_status, judge, worst

EXAMPLES = """\
  firsttouch validate --system amd-opteron results/               all records.jsonl below a folder
  firsttouch validate --system amd-opteron reports/out/campaigns/validate-77
  firsttouch validate --system amd-opteron n1.jsonl n2.jsonl --json
  firsttouch validate --system amd-opteron results/ --drain --dry-run
(`firsttouch campaign run validate` measures this host first.)

Exit status: 0 pass, 1 a host fails or is invalid, 3 suspect: what would decide it was not measured."""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    made = options.command(subparsers, "validate", "judge hosts by their system's references", EXAMPLES)
    made.add_argument("--system", required=True, help="the system whose references judge")
    made.add_argument(
        "records", nargs="+", type=Path, metavar="RECORDS_OR_DIR", help="records, folders of them, or a campaign"
    )
    made.add_argument("--drain", action="store_true", help="drain the hosts that fail in Slurm")
    made.add_argument("--dry-run", action="store_true", help="with --drain: show the commands, run none")
    made.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print a line per host and one for all, or the document; return the verdict's status."""
    system = load(args.system)
    hosts = _judged(args.records, system)
    if args.json:
        options.print_json(
            {
                "system": system.name,
                "verdict": worst(h.verdict for h in hosts),
                "status": exit_status(hosts),
                "hosts": [h.to_dict() for h in hosts],
            }
        )
    else:
        for host in hosts:
            print(host.line())
            for line in host.evidence if len(hosts) == 1 else ():
                print(f"  {line}")
    if args.drain:
        for host in hosts:
            if host.verdict == "fail":
                said = drain.apply(host, host.host, dry_run=args.dry_run)
                print(said, file=sys.stderr if args.json else sys.stdout)
    return exit_status(hosts)


def _judged(paths: list[Path], system: System) -> list[HostVerdict]:
    """Return the verdicts of all hosts among *paths*; of a campaign, also of what is missing of it."""
    for path in paths:
        if not path.exists():
            raise BadInput("no such file or folder", file=path)
    campaigns = [path for path in paths if (path / "campaign.json").exists()]
    found = records.collect(path for path in paths if path not in campaigns)
    missing: dict[str, list[str]] = {}
    for path in campaigns:
        seen = state(model.read(path.absolute()))
        found += collect.measured(seen)
        for host, lost in collect.missing(seen).items():
            missing.setdefault(host, []).extend(lost)
    if others := sorted({r.system for r in found} - {system.name}):
        raise BadInput(f"records of system {', '.join(others)} among them: --system {system.name} judges its own")
    if not found and not missing:
        raise BadInput(f"no record in {', '.join(map(str, paths))}: a run writes them to records.jsonl")
    return judge(found, system, missing=missing)
