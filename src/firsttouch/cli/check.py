# SPDX-License-Identifier: Apache-2.0
"""``firsttouch check``: the verdict of this host within a given time, for prologs and health checks."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from firsttouch import paths
from firsttouch.cli import options
from firsttouch.errors import one_line
from firsttouch.execution.progress import say
from firsttouch.tools import require_report
from firsttouch.units import parse

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


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "check", EXAMPLES)
    seconds = options.checked(
        _seconds, f"a time of {_LEAST:g} s to 1 h, such as 60 or 2min", lambda t: _LEAST <= t <= _MOST
    )
    parser.add_argument("--seconds", type=seconds, default=60.0, metavar="TIME", help="the time (default: 60)")
    options.add(parser, "--system", default=paths.LOCAL, help="the system whose references judge (default: local)")
    options.add(parser, "--records", "--share-host", "--strict")
    parser.add_argument("--measuring", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return parse(text, "seconds")


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
    if checked.state is None:
        if checked.status:
            return checked.status
        state: dict[str, Any] = {"verdict": None, "measured": [], "left": ["all"], "troubles": []}
    else:
        state = checked.state
    is_over = checked.status is None
    word = state["verdict"]["verdict"] if state["verdict"] else "undecided"
    return _print(args, state, word, is_over=is_over)


def _measure(args: argparse.Namespace) -> int:
    from firsttouch.campaign import host_check  # noqa: PLC0415
    from firsttouch.systems.definition import load  # noqa: PLC0415

    for state in host_check.states(load(args.system), args.records, share_host=args.share_host, say=say):
        print(json.dumps(state), flush=True)
    return 0


def _print(args: argparse.Namespace, state: dict[str, Any], word: Any, *, is_over: bool) -> int:
    """Print a state; return the exit status."""
    from firsttouch.judge.verdict import status as status_of  # noqa: PLC0415

    left = state["left"] if is_over else []
    problems = [*state["troubles"]]
    if left:
        more = f" and {len(left) - 3} more" if len(left) > 3 else ""
        problems.append(f"not measured in {args.seconds:g} s: {', '.join(left[:3])}{more}")
    # Only a fail proves something against the host.
    status = 3 if word == "invalid" else status_of([word], strict=args.strict)
    if state["troubles"] or (left and args.strict):
        status = status or 3
    if args.json:
        reason = state["verdict"]["reason"] if state["verdict"] else ""
        document = {
            "verdict": word,
            "status": status,
            "reason": reason,
            "seconds": args.seconds,
            "in_time": not is_over,
        }
        options.print_json(
            {
                **document,
                "not_measured": left,
                **{k: state[k] for k in ("measured", "troubles")},
                "host": state["verdict"],
            }
        )
        return status
    for measured in state["measured"]:
        print(one_line(f"{measured['metric']}: {measured['value']:.4g} {measured['unit']}"))
    line = state["verdict"]["line"] if state["verdict"] else "verdict undecided: nothing is known of this host"
    print(one_line("; ".join([line, *problems])))
    return status
