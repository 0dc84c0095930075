# SPDX-License-Identifier: Apache-2.0
"""``firsttouch fleet exclude``: the hosts that jobs should avoid."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from firsttouch.cli import options
from firsttouch.errors import BadInput, RunFailed, one_line
from firsttouch.execution.progress import say

if TYPE_CHECKING:
    from firsttouch.quarantine.exclusion import Exclusions
    from firsttouch.quarantine.site_settings import SiteSettings

#: A list that is older than this (s) is doubtful: passes renew it.
_OLD = 2 * 86400.0
EXAMPLES = """\
  sbatch --exclude=$(firsttouch fleet exclude) job.sh          (a job that avoids bad hosts)
  firsttouch fleet exclude --why                               (each host, the reason and its age)
  firsttouch fleet exclude --only fail --system amd-opteron
  firsttouch fleet exclude --publish                           (for all users; every pass of tend does it)
  firsttouch fleet exclude --features                          (the feature of fleet.yaml's exclude.feature)"""


def register(actions: options.Subparsers) -> None:
    """Add the action."""
    summary = "print the hosts that jobs should avoid, as sbatch --exclude takes them"
    parser = options.action(actions, "exclude", summary, EXAMPLES)
    options.add(parser, "--system", help="only hosts of this system")
    parser.add_argument(
        "--only",
        action="append",
        choices=("fail", "suspect", "held", "drained"),
        help="only hosts that are listed for this reason (again for another)",
    )
    parser.add_argument("--why", action="store_true", help="a table with the reason and the age of each host")
    parser.add_argument("--publish", action="store_true", help="make the list anew and publish it first")
    parser.add_argument(
        "--features", action="store_true", help="publish, and give and take the feature of fleet.yaml in Slurm"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the published list; 1 if a feature could not be changed."""
    from firsttouch.quarantine import exclusion, site_settings  # noqa: PLC0415 - import numpy and others

    settings = site_settings.load()
    status = 0
    if args.features:
        status = _mark(settings)
    file = exclusion.place(settings)
    if args.publish or args.features or not (settings.exclude.file or file.exists()):
        avoided = _found(settings)
        if args.publish or args.features:
            exclusion.publish(avoided, file)
    else:
        avoided = exclusion.read(file)
        if (age := time.time() - avoided.written) > _OLD:
            say(f"firsttouch: {file} is {age / 86400:.1f} d old: `firsttouch fleet tend` renews it")
    some = avoided.of(args.system or "", args.only) if args.only else avoided.of(args.system or "")
    if args.json:
        options.print_json(some.to_dict())
    elif args.why:
        _print(some)
    else:
        print(some.hostlist)
    return status


def _found(settings: SiteSettings) -> Exclusions:
    """Return the hosts to avoid by the log of verdicts and the journal."""
    from firsttouch.execution import slurm  # noqa: PLC0415 - see run
    from firsttouch.judge import verdict_log  # noqa: PLC0415 - see run
    from firsttouch.quarantine import actions, exclusion  # noqa: PLC0415 - see run

    if not verdict_log.folder().is_dir():
        raise BadInput(
            f"no list is published in {exclusion.place(settings)}, and no verdict is logged in "
            f"{verdict_log.folder()}: fleet.yaml's exclude.file names the site's list"
        )
    try:
        named = list(slurm.nodes())
    except RunFailed as error:
        say(f"firsttouch: {error}: hosts are named as in their verdicts")
        named = []
    return exclusion.exclusions(actions.Actions(), settings, named)


def _mark(settings: SiteSettings) -> int:
    from firsttouch.execution import slurm  # noqa: PLC0415 - see run
    from firsttouch.quarantine import actions, exclusion  # noqa: PLC0415 - see run

    if not settings.exclude.feature:
        raise BadInput("fleet.yaml names no feature: `exclude: {feature: ft_pass}`")
    slurm.require("scontrol")
    failed = False
    with actions.acting(wait=True) as (journal, lock):
        avoided = exclusion.exclusions(journal, settings, slurm.nodes())
        for line, is_error in exclusion.mark(avoided, journal, settings, act=True, fds=(lock,)):
            failed |= is_error
            say(one_line(line))
    return int(failed)


def _print(avoided: Exclusions) -> None:
    from tabulate import tabulate  # noqa: PLC0415 - see run

    now = time.time()
    rows = [
        [e.host, e.why, f"{(now - e.since) / 86400:.1f} d", e.system, one_line(e.reason)] for e in avoided.hosts
    ]
    heads = ("host", "why", "age", "system", "reason")
    print(tabulate(rows, heads, disable_numparse=True) if rows else "no host is listed")
