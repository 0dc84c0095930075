# SPDX-License-Identifier: Apache-2.0
"""``firsttouch fleet exclude``: the hosts that jobs should avoid."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, get_args

from firsttouch.cli import options
from firsttouch.errors import BadInput, one_line
from firsttouch.fleet import site_settings
from firsttouch.tools import require_report

if TYPE_CHECKING:
    from firsttouch.fleet.exclusion import Exclusions

EXAMPLES = """\
  sbatch --exclude=$(firsttouch fleet exclude) job.sh          (a job that avoids bad hosts)
  firsttouch fleet exclude --why                               (each host, the reason and its age)
  firsttouch fleet exclude --only fail --system amd-opteron"""


def register(add_action: options.AddAction) -> None:
    """Add the action."""
    summary = "print the hosts that jobs should avoid, as sbatch --exclude takes them"
    parser = add_action("exclude", summary, run, EXAMPLES)
    options.add(parser, "--system", help="only hosts of this system")
    only = "only hosts that are listed for this reason (again for another)"
    parser.add_argument("--only", action="append", choices=get_args(site_settings.Why), help=only)
    table = "a table with the reason and the age of each host"
    parser.add_argument("--why", action="store_true", help=table)


def run(args: argparse.Namespace) -> int:
    """Print the hosts to avoid by the log of verdicts and the journal; 0."""
    require_report()  # the campaigns of bad verdicts are judged again
    from firsttouch.fleet import actions, exclusion, verdict_log  # noqa: PLC0415 - import numpy and others

    settings = site_settings.load()
    if not verdict_log.log_folder().is_dir():
        raise BadInput(
            f"no verdict is logged in {verdict_log.log_folder()}: FIRSTTOUCH_OUT names the site's results"
        )
    avoided = exclusion.exclusions(actions.Actions(), settings).of(args.system or "", args.only or ())
    if args.json:
        options.print_json(avoided.to_dict())
    elif args.why:
        _print(avoided)
    else:
        print(avoided.hostlist)
    return 0


def _print(avoided: Exclusions) -> None:
    from tabulate import tabulate  # noqa: PLC0415 - see run

    now = time.time()
    rows = [
        [e.host, e.why, f"{(now - e.since) / 86400:.1f} d", e.system, one_line(e.reason)] for e in avoided.hosts
    ]
    heads = ("host", "why", "age", "system", "reason")
    print(tabulate(rows, heads, disable_numparse=True) if rows else "no host is listed")
