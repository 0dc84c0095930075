# SPDX-License-Identifier: Apache-2.0
"""``firsttouch check``: the verdict of this host within a given time, for prologs and health checks."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from firsttouch import paths
from firsttouch.cli import options
from firsttouch.errors import one_line
from firsttouch.execution.progress import say
from firsttouch.tools import require_report

if TYPE_CHECKING:
    from firsttouch.campaign.host_check import State

EXAMPLES = """\
  firsttouch check --seconds 60 --system amd-opteron
  firsttouch check --seconds 50 --system amd-opteron --strict
  firsttouch check --seconds 30 --records /var/log/firsttouch.jsonl --json

Measured are the facts of the host, and bandwidth and latency of each NUMA node with its own bank, then with the
farthest one; first those that the system's references judge, the narrowest first. Undecided cases are measured
again while there is time. The command ends in time whatever happens: a measurement that hangs is killed, and what
was not measured is named.
Exit status: 0 no metric is worse than undecided, 1 the host fails, 2 bad input, 3 suspect, or not measured: other
processes used the host, a placement did not hold, something is missing (with --strict, also undecided, or not
measured in time)."""
_LEAST, _MOST = 5.0, 3600.0
#: Time (s) that is left for the output, and for the end of this process.
_MARGIN = 0.75
#: The most measurements that are named as not done.
_NAMED = 3


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "check", EXAMPLES)
    seconds = options.checked(
        options.seconds, f"a time of {_LEAST:g} s to 1 h, such as 60 or 2min", lambda t: _LEAST <= t <= _MOST
    )
    parser.add_argument("--seconds", type=seconds, default=60.0, metavar="TIME", help="the time (default: 60)")
    options.add(parser, "--system", default=paths.LOCAL, help="the system whose references judge (default: local)")
    options.add(parser, "--records", "--share-host", "--strict")
    parser.add_argument("--measuring", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure until all is decided or the time is over; print the verdict."""
    require_report()
    from firsttouch.campaign import host_check  # noqa: PLC0415 - the help needs no libraries

    until = host_check.started() + args.seconds - _MARGIN
    if args.measuring:
        return _measure(args)
    argv = [sys.executable, "-m", "firsttouch", "check", "--measuring", "--system", args.system]
    argv += ["--records", str(args.records)] if args.records else []
    argv += ["--share-host"] if args.share_host else []
    checked = host_check.follow(argv, until)
    if checked.state is None and checked.status:
        return checked.status
    state = checked.state or host_check.State(None, [], ["all"], [])
    return _print(args, state, is_over=checked.status is None)


def _measure(args: argparse.Namespace) -> int:
    from firsttouch.campaign import host_check  # noqa: PLC0415
    from firsttouch.systems.definition import load  # noqa: PLC0415

    for state in host_check.states(load(args.system), args.records, share_host=args.share_host, say=say):
        print(json.dumps(asdict(state)), flush=True)
    return 0


def _print(args: argparse.Namespace, state: State, *, is_over: bool) -> int:
    """Print a state; return the exit status."""
    from firsttouch.judge.verdict import STATUS, Word  # noqa: PLC0415
    from firsttouch.judge.verdict import status as status_of  # noqa: PLC0415

    verdict, left = state.verdict, state.left if is_over else []
    word: Word = verdict["verdict"] if verdict else "undecided"
    # Only a fail proves something against the host.
    proves_nothing = STATUS["suspect"]
    status = proves_nothing if word == "invalid" else status_of([word], strict=args.strict)
    if state.troubles or (left and args.strict):
        status = status or proves_nothing
    if args.json:
        options.print_json(
            {
                "verdict": word,
                "status": status,
                "reason": verdict["reason"] if verdict else "",
                "seconds": args.seconds,
                "in_time": not is_over,
                "not_measured": left,
                "measured": state.measured,
                "troubles": state.troubles,
                "host": verdict,
            }
        )
        return status
    for measured in state.measured:
        print(one_line(f"{measured['metric']}: {measured['value']:.4g} {measured['unit']}"))
    parts = [verdict["line"] if verdict else "verdict undecided: nothing is known of this host", *state.troubles]
    if left:
        others = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
        parts.append(f"not measured in {args.seconds:g} s: {', '.join(left[:_NAMED])}{others}")
    print(one_line("; ".join(parts)))
    return status
