# SPDX-License-Identifier: Apache-2.0
"""``firsttouch check``: the verdict of this host within a given time, for prologs and health checks."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import asdict, replace

from firsttouch import paths
from firsttouch.cli import options
from firsttouch.clock import SYSTEM_CLOCK
from firsttouch.errors import SUSPECT, BadInput, CannotHere, FirstTouchError, one_line
from firsttouch.execution.progress import say
from firsttouch.tools import require_report

if TYPE_CHECKING:
    from firsttouch.campaign.timekeeper import Checked, CheckState
    from firsttouch.records.schema import Record

EXAMPLES = """\
  firsttouch check --seconds 60 --system amd-opteron
  firsttouch check --seconds 50 --system amd-opteron --strict
  firsttouch check --seconds 30 --records /var/log/firsttouch.jsonl --json
  firsttouch check --system local --against reports/out/latest

Measured are the facts of the host, known answers and the clock of all PUs, then bandwidth and latency: first those
that the system's references judge, the narrowest first, then of each NUMA node with its own bank and with the
farthest one, in an order that FIRSTTOUCH_SEED draws. Undecided cases are measured again while there is time. The
command ends in time whatever happens: a measurement that hangs is killed, and what was not measured is named.
Exit status: 0 no metric is worse than undecided, 1 the host fails, 2 bad input, 3 it could not be measured here:
other processes used it, a placement did not hold, something is missing or failed; 4 suspect (with --strict, also
undecided, or not measured in time)."""
_LEAST, _MOST = 5.0, 3600.0
#: Time (s) reserved for the output and the end of this process; less for a reader that takes no output.
_MARGIN, _FOR_OUTPUT = 0.75, 0.5
#: The most missing measurements that are named.
_NAMED = 3


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "check", run, EXAMPLES)
    seconds = options.accept(
        options.seconds, f"a time of {_LEAST:g} s to 1 h, such as 60 or 2min", lambda t: _LEAST <= t <= _MOST
    )
    parser.add_argument(
        "--seconds", type=seconds, default=60.0, metavar="TIME", help="the time, from 5 s to 1 h (default: 60)"
    )
    options.add(parser, "--system", default=paths.LOCAL, help="the system whose references judge (default: local)")
    options.add(parser, "--records", "--share-host", "--strict")
    past = "earlier records (file, folder, store) of this host, or of others of its type, which judge it, too"
    parser.add_argument("--against", type=Path, metavar="PAST", help=past)
    parser.add_argument("--measuring", action="store_true", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Measure until everything is decided or the time is over, and print the verdict.

    Only a failing host gives 1.
    """
    if args.measuring:
        return _measure(args)
    from firsttouch.campaign import timekeeper  # noqa: PLC0415 - the help needs no more
    from firsttouch.records.schema import check_appendable  # noqa: PLC0415

    until = timekeeper.process_start() + args.seconds - _MARGIN
    if args.records:
        check_appendable(args.records)
    argv = [sys.executable, "-m", "firsttouch", "check", "--measuring", "--system", args.system]
    argv += ["--records", str(args.records)] if args.records else []
    argv += ["--against", str(args.against)] if args.against else []
    argv += [option for option in ("--share-host", "--strict") if getattr(args, option[2:].replace("-", "_"))]
    try:
        checked = timekeeper.follow(argv, until)
    except FirstTouchError as error:
        raise CannotHere(str(error)) from error
    if checked.state is None and checked.status == 2:  # it has printed the error
        return 2
    state = _final(checked)
    status = state.status
    if not status and state.troubles:
        status = CannotHere.exit_status
    elif not status and args.strict and state.left:
        status = SUSPECT
    with _output_until(until + _FOR_OUTPUT - SYSTEM_CLOCK.monotonic(), status):
        _print(args, state, status, in_time=checked.status == 0)
    return status


def _final(checked: Checked) -> CheckState:
    """Return the last state, and how the measuring process failed, if it did."""
    from firsttouch.campaign.timekeeper import CheckState  # noqa: PLC0415
    from firsttouch.execution.child_process import describe_ending  # noqa: PLC0415

    state = checked.state or CheckState(None, 0, [], ["all"], [])
    if not checked.status:
        return state
    return replace(state, troubles=[*state.troubles, describe_ending("the measuring process", checked.status)])


@contextmanager
def _output_until(seconds: float, status: int) -> Iterator[None]:
    """End this process with *status* if its output is not read within some seconds."""
    signal.signal(signal.SIGALRM, lambda *_: os._exit(status))
    # Repeated, because a single signal just before a blocking write would be lost.
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.01), 0.05)
    yield
    sys.stdout.flush()
    signal.setitimer(signal.ITIMER_REAL, 0)


def _measure(args: argparse.Namespace) -> int:
    require_report()
    from firsttouch.campaign import host_check  # noqa: PLC0415
    from firsttouch.fleet.measuring import CheckJudge  # noqa: PLC0415
    from firsttouch.systems.definition import load  # noqa: PLC0415

    system = load(args.system)
    past: list[Record] = []
    if args.against:
        from firsttouch.report.inputs import gather  # noqa: PLC0415

        given = gather([args.against])
        past = [record for record in given.records() if record.system == system.name]
        given.refuse_unread()
        if not past:
            raise BadInput(f"no record of system {system.name}", file=args.against)
    judge = CheckJudge(system, args.strict, past)
    states = host_check.states(system, args.records, judge, share_host=args.share_host, say=say)
    try:
        for state in states:
            print(json.dumps(asdict(state)), flush=True)
    except (FirstTouchError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # libraries fail in any way under limits of memory or processes
        raise CannotHere(f"the check failed: {type(error).__name__}: {error}") from error
    return 0


def _print(args: argparse.Namespace, state: CheckState, status: int, *, in_time: bool) -> None:
    verdict, left = state.verdict, state.left
    if args.json:
        options.print_json(
            {
                "verdict": verdict["verdict"] if verdict else "undecided",
                "status": status,
                "reason": verdict["reason"] if verdict else "",
                "seconds": args.seconds,
                "in_time": in_time,
                "not_measured": left,
                "measured": state.measured,
                "troubles": state.troubles,
                "host": verdict,
            }
        )
        return
    for measured in state.measured:
        print(one_line(f"{measured['metric']}: {measured['value']:.4g} {measured['unit']}"))
    parts = [verdict["line"] if verdict else "verdict undecided: this host is unknown", *state.troubles]
    if left:
        others = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
        parts.append(f"not measured in {args.seconds:g} s: {', '.join(left[:_NAMED])}{others}")
    print(one_line("; ".join(parts)))
