# SPDX-License-Identifier: Apache-2.0
"""``firsttouch fleet exclude``: the hosts that jobs should avoid."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, get_args

from firsttouch.cli import options
from firsttouch.errors import BadInput, one_line
from firsttouch.execution.progress import say
from firsttouch.fleet import site_settings

if TYPE_CHECKING:
    from firsttouch.fleet.exclusion import Exclusions
    from firsttouch.fleet.site_settings import SiteSettings

#: A list that is older than this (s) is doubtful: passes renew it.
_OLD = 2 * 86400.0
EXAMPLES = """\
  sbatch --exclude=$(firsttouch fleet exclude) job.sh          (a job that avoids bad hosts)
  firsttouch fleet exclude --why                               (each host, the reason and its age)
  firsttouch fleet exclude --only fail --system amd-opteron
  firsttouch fleet exclude --publish                           (for all users; every pass of tend does it)"""


def register(add_action: options.AddAction) -> None:
    """Add the action."""
    summary = "print the hosts that jobs should avoid, as sbatch --exclude takes them"
    parser = add_action("exclude", summary, run, EXAMPLES)
    options.add(parser, "--system", help="only hosts of this system")
    only = "only hosts that are listed for this reason (again for another)"
    parser.add_argument("--only", action="append", choices=get_args(site_settings.Why), help=only)
    table = "a table with the reason and the age of each host"
    parser.add_argument("--why", action="store_true", help=table)
    parser.add_argument("--publish", action="store_true", help="make the list anew and publish it first")


def run(args: argparse.Namespace) -> int:
    """Print the published list; 0."""
    from firsttouch.fleet import exclusion  # noqa: PLC0415 - imports numpy and others

    settings = site_settings.load()
    file = exclusion.place(settings)
    if args.publish:
        avoided = _found(settings)
        exclusion.publish(avoided, file)
    elif not (settings.exclude.file or file.exists()):
        avoided = _found(settings)
    else:
        avoided = exclusion.read(file)
        if (age := time.time() - avoided.written) > _OLD:
            say(f"firsttouch: {file} is {age / 86400:.1f} d old: `firsttouch fleet tend` renews it")
    avoided = avoided.of(args.system or "", args.only or ())
    if args.json:
        options.print_json(avoided.to_dict())
    elif args.why:
        _print(avoided)
    else:
        print(avoided.hostlist)
    return 0


def _found(settings: SiteSettings) -> Exclusions:
    """Return the hosts to avoid by the log of verdicts and the journal."""
    from firsttouch.fleet import (  # noqa: PLC0415 - see run
        actions,
        exclusion,
        verdict_log,
    )

    if not verdict_log.log_folder().is_dir():
        raise BadInput(
            f"no list is published in {exclusion.place(settings)}, and no verdict is logged in "
            f"{verdict_log.log_folder()}: fleet.yaml's exclude.file names the site's list"
        )
    return exclusion.exclusions(actions.Actions(), settings)


def _print(avoided: Exclusions) -> None:
    from tabulate import tabulate  # noqa: PLC0415 - see run

    now = time.time()
    rows = [
        [e.host, e.why, f"{(now - e.since) / 86400:.1f} d", e.system, one_line(e.reason)] for e in avoided.hosts
    ]
    heads = ("host", "why", "age", "system", "reason")
    print(tabulate(rows, heads, disable_numparse=True) if rows else "no host is listed")
