# SPDX-License-Identifier: Apache-2.0
"""``firsttouch fleet``: which hosts to validate, hold, test, release, replace and exclude."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec.structs import asdict

from firsttouch.cli import options
from firsttouch.errors import BadInput, FirstTouchError, RunFailed, one_line
from firsttouch.execution import slurm
from firsttouch.execution.progress import say, tabular
from firsttouch.fleet import actions, exclusion, site_settings, tending, verdict_log
from firsttouch.fleet.verdict_log import Offender
from firsttouch.host.host_lists import fold, unfold
from firsttouch.records.samples_table import REPLACED
from firsttouch.records.schema import Record, append
from firsttouch.systems.definition import load
from firsttouch.tools import require_report
from firsttouch.units import day, iso

#: Rows of a table (--json has all).
_SHOWN = 40
_TIMES = ("first", "last")
EXAMPLES = """\
  firsttouch fleet status                                     (the hosts that are held, why, and what comes next)
  firsttouch fleet tend                                       (one pass, which acts if fleet.yaml says so)
  firsttouch fleet hold n7 --reason 'new DIMM in slot A2'     (test a repaired host before it returns)
  firsttouch fleet hold 'n[1-4]' --system amd-opteron
  firsttouch fleet release n7
  firsttouch fleet history                                    (the hosts that fail again and again)
  firsttouch fleet replaced n7 --system amd-opteron --records results/n7.jsonl --reason 'new board'"""
_DUE = """\
  firsttouch fleet due --system amd-opteron --why               which hosts to validate next, and why
  firsttouch fleet due --system amd-opteron --hosts 'n[001-200]' --max-age 14d
  firsttouch campaign submit validate --system S --hosts "$(firsttouch fleet due --system S --count 40)\""""
_EXCLUDE = """\
  sbatch --exclude=$(firsttouch fleet exclude) job.sh          (a job that avoids bad hosts)
  firsttouch fleet exclude --why                               (each host, the reason and its age)
  firsttouch fleet exclude --system amd-opteron"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command and its actions."""
    add_action = options.actions(subparsers, "fleet", EXAMPLES)
    parser = add_action("due", "list the hosts to validate next, as campaign submit takes them", print_due, _DUE)
    options.add(parser, "--system", required=True, help="the system whose hosts are validated")
    hosts = "only these hosts, such as n[1-8],m2 (default: the system's hosts in Slurm)"
    options.add(parser, "--hosts", help=hosts)
    options.add(parser, "--max-age", help="hosts with an older verdict are due (default: 7d)")
    first = "the first N hosts, also those with younger verdicts (default: all that are due)"
    parser.add_argument("--count", type=options.positive, metavar="N", help=first)
    table = "a table with the verdict of each host, and why hosts are left out"
    parser.add_argument("--why", action="store_true", help=table)
    summary = "reserve hosts without affecting running jobs, and test them in the reservation"
    holding = add_action("hold", summary, hold)
    options.add(holding, "hosts", "--reason")
    options.add(holding, "--system", help="the hosts' system (default: as in their last verdict, else local)")
    releasing = add_action("release", "remove the reservations of held hosts", release)
    options.add(releasing, "hosts", "--reason")
    summary = "one pass: hold hosts that failed, test held hosts, and release or drain them"
    add_action("tend", summary, tend)
    add_action("status", "list the hosts that are held or that we drained", show_status)
    summary = "note that a host has a new board or new processors, so its own level starts again"
    replaced = add_action("replaced", summary, note_replacement)
    replaced.add_argument("host", metavar="HOST", help="the host, as its records name it")
    options.add(replaced, "--system", required=True, help="the system of the host's records")
    options.add(replaced, "--records", required=True)
    replaced.add_argument("--reason", default="", metavar="TEXT", help="what was replaced")
    summary = "print the hosts that jobs should avoid, in the form for sbatch --exclude"
    parser = add_action("exclude", summary, print_excluded, _EXCLUDE)
    options.add(parser, "--system", help="only hosts of this system")
    table = "a table with the reason and the age of each host"
    parser.add_argument("--why", action="store_true", help=table)
    add_action("history", "list the hosts that fail again and again, or stay undecided", print_history)


def hold(args: argparse.Namespace) -> int:
    """Hold hosts by hand, and submit their first tests; return the worst status of the hosts."""
    reason, system = args.reason, args.system or ""
    return _by_hand(args.hosts, lambda work, host: work.hold_by_hand(host, reason, system), as_json=args.json)


def release(args: argparse.Namespace) -> int:
    """Release hosts by hand; return the worst status of the hosts."""
    return _by_hand(args.hosts, lambda work, host: work.release_by_hand(host, args.reason), as_json=args.json)


def _by_hand(named: Sequence[str], do: Callable[[Any, str], None], *, as_json: bool) -> int:
    """Call a function for each named host under the lock of the journal; return the worst status."""
    hosts = list(dict.fromkeys(host for text in named for host in unfold(text)))
    worst = 0
    with _round(wait=True, as_json=as_json) as work:
        for host in hosts:
            try:
                do(work, host)
            except tending.Forbidden:
                raise
            except FirstTouchError as error:
                say(f"firsttouch: error: {error}")
                worst = max(worst, error.exit_status)
    return worst


def tend(args: argparse.Namespace) -> int:
    """Do one pass; return 1 if an action failed. While another process acts, the pass does nothing."""
    require_report()  # tests of held hosts are judged
    try:
        with _round(wait=False, as_json=args.json) as work:
            work.tend()
            if not work.hold_settings.act:
                say("firsttouch: the rules only observe, because fleet.yaml has no `act: true` under hold")
    except actions.Busy as error:
        say(f"firsttouch: {error}")
        _print([], [], as_json=args.json)
        return 0
    return 1 if work.failed else 0


@contextlib.contextmanager
def _round(*, wait: bool, as_json: bool) -> Iterator[tending.Round]:
    """Yield a pass under the lock of the journal, and print what it did; raises Busy without *wait*."""
    settings = site_settings.load()
    slurm.require("scontrol")
    lines: list[str] = []
    with actions.hold_lock(wait=wait) as (journal, lock):
        before = len(journal.lines)
        yield tending.Round(journal, lock, settings, _sayer(lines, as_json=as_json))
        _print(lines, journal.lines[before:], as_json=as_json)


def _sayer(lines: list[str], *, as_json: bool) -> Callable[[str], None]:
    """Return a function that prints a line at once; with --json on standard error."""

    def output(line: str) -> None:
        lines.append(line)
        if as_json or line.startswith("firsttouch: "):
            say(line)
        else:
            print(line, flush=True)

    return output


def _print(lines: Sequence[str], new: Sequence[Any], *, as_json: bool) -> None:
    if as_json:
        options.print_json({"lines": list(lines), "actions": [asdict(action) for action in new]})
    elif not lines:
        print("nothing to do")


def show_status(args: argparse.Namespace) -> int:
    """List held hosts and hosts that we drained; return 1 if a reservation has no entry or Slurm no answer."""
    settings = site_settings.load().hold
    journal = actions.Actions()
    rows = [_row(life, settings) for life in journal.lives.values() if life.hold or life.drained]
    rows.sort(key=lambda row: row["host"])
    strange, status = list[str](), 0
    try:
        ours = {n: r for n, r in slurm.reservations().items() if n.startswith(f"{settings.reservation}-")}
    except RunFailed as error:
        say(f"firsttouch: {error}: the reservations in Slurm are unknown")
        status = error.exit_status
    else:
        held = {f"{settings.reservation}-{row['host']}" for row in rows if row["state"] == "held"}
        begun = {f"{settings.reservation}-{life.host}" for life in journal.lives.values() if life.unfinished}
        strange = sorted(set(ours) - held - begun)
        for row in rows:
            if row["state"] == "held" and f"{settings.reservation}-{row['host']}" not in ours:
                row["next"] = "its reservation is gone: the next pass notes its release"
    stops = exclusion.stops(journal, settings)
    if args.json:
        document = {"journal": str(journal.file), "hosts": rows, "unknown_reservations": strange}
        options.print_json({**document, "stops": stops})
    else:
        shown = [{**row, "since": time.strftime("%F %H:%M", time.localtime(row["since"]))} for row in rows]
        table = [[row[key] for key in ("host", "state", "since", "reason", "next")] for row in shown]
        print(tabular(table, ("host", "state", "since", "why", "next")) if rows else "no host is held")
    for line in stops:
        print(one_line(line), file=sys.stderr if args.json else sys.stdout)
    for name in strange:
        command = f"scontrol delete reservation={name}"
        say(f"firsttouch: the reservation {name} is not in {journal.file}: end it with `{command}`")
    return 1 if strange else status


def _row(life: Any, settings: site_settings.Hold) -> dict[str, Any]:
    """Return a row of the status, by the journal."""
    action = life.hold or life.drained
    row = {"host": life.host, "state": "held" if life.hold else "drained", "since": action.time}
    row |= {"reason": action.reason, "source": action.source, "by": action.by}
    tests = [asdict(test) for test in life.tests] if life.hold else []
    return {**row, "passes": life.passes if life.hold else 0, "tests": tests, "next": _next(life, settings)}


def _next(life: Any, settings: site_settings.Hold) -> str:
    if not life.hold:
        return "somebody repairs it, then `firsttouch fleet hold` tests it"
    if life.is_stuck:
        return f"{len(life.tests)} tests did not decide: a person releases or drains it"
    passed = f"{life.passes} of {settings.passes} passes"
    last = life.tests[-1] if life.tests else None
    return (
        f"{passed}, test {len(life.tests)} is job {last.job}" if last and not last.ended else f"{passed}, a test"
    )


def note_replacement(args: argparse.Namespace) -> int:
    """Append the record that ends the use of a host's earlier measurements."""
    system = load(args.system)
    if unfold(args.host) != [args.host]:
        raise BadInput(f"'{args.host}' is not the name of one host")
    if strangers := system.strangers([args.host]):
        say(f"firsttouch: {strangers}")
    record = Record(
        *("configuration", REPLACED, "1", "neither", (1.0,)),
        parameters={"reason": args.reason},
        host=args.host,
        system=system.name,
    )
    append(args.records, [record])
    if args.json:
        options.print_json({"host": args.host, "system": system.name, "time": record.time, "reason": args.reason})
    else:
        print(one_line(f"{args.host}: sessions before {record.time} are no longer used"))
    return 0


def print_due(args: argparse.Namespace) -> int:
    """Print the hosts that are due; return 1 if Slurm does not answer, but 0 on a host without Slurm."""
    require_report()  # the log of verdicts is read as a table
    system = load(args.system)
    hosts = unfold(args.hosts) if args.hosts else ()
    if hosts and (strangers := system.strangers(hosts)):
        say(f"firsttouch: {strangers}")
    due = tending.due(system, hosts, args.count, args.max_age or tending.MAX_AGE)
    names = [candidate.host for candidate in due.hosts]
    hostlist = fold(names) if names else ""
    if args.json:
        options.print_json({"hostlist": hostlist, **asdict(due), "hosts": [*map(asdict, due.hosts)]})
    elif args.why:
        _print_table(due)
    else:
        print(hostlist)
        if due.note:
            say(f"firsttouch: {due.note}")
    return 1 if due.note and shutil.which("sinfo") else 0


def _print_table(due: tending.Due) -> None:
    """Print a line for each due host, and the number of hosts that are left out."""
    rows = [
        [c.host, c.verdict or "-", "-" if c.age is None else tending.days(c.age), one_line(c.reason)]
        for c in due.hosts[:_SHOWN]
    ]
    if rows:
        print(tabular(rows, ["host", "verdict", "age", "why"]))
    if len(due.hosts) > _SHOWN:
        print(f"and {len(due.hosts) - _SHOWN} more (--json lists all)")
    print(f"{due.system}: {len(due.hosts)} due now" + (f", {due.later} later" if due.later else ""))
    for why, count in Counter(due.left_out.values()).most_common():
        print(one_line(f"left out: {count} ({why})"))
    if due.note:
        print(one_line(due.note))


def print_excluded(args: argparse.Namespace) -> int:
    """Print the hosts to avoid by the log of verdicts and the journal; return 0.

    Raises BadInput for a system that has neither a file nor a verdict.
    """
    require_report()  # the campaigns of bad verdicts are judged again
    settings = site_settings.load()
    if not verdict_log.log_folder().is_dir():
        raise BadInput(
            f"no verdict is logged in {verdict_log.log_folder()}: FIRSTTOUCH_OUT names the site's results"
        )
    avoided = exclusion.exclusions(actions.Actions(), settings, args.system).existing()
    if args.json:
        options.print_json(avoided.to_dict())
    elif args.why:
        now = time.time()
        rows = [
            [e.host, e.why, f"{(now - e.since) / 86400:.1f} d", e.system, one_line(e.reason)]
            for e in avoided.hosts
        ]
        heads = ("host", "why", "age", "system", "reason")
        print(tabular(rows, heads) if rows else "no host is listed")
    else:
        print(avoided.hostlist)
    return 0


def print_history(args: argparse.Namespace) -> int:
    """Print the hosts that fail again and again, as a table or as the document."""
    require_report()  # the log has verdicts of the judge
    offenders = verdict_log.repeat_offenders(verdict_log.read())
    rows = [(o.host, _how_often(o), day(int(o.last * 1000)), o.verdict, one_line(o.reason)) for o in offenders]
    if args.json:
        times = [{name: iso(int(getattr(o, name) * 1000)) for name in _TIMES} for o in offenders]
        options.print_json({"repeat_offenders": [asdict(o) | t for o, t in zip(offenders, times, strict=True)]})
    elif not rows:
        print("no host failed again after it had passed, and none stays undecided")
    else:
        print(tabular(rows[:_SHOWN], ("host", "how often", "last", "now", "reason")))
        if len(rows) > _SHOWN:
            print(f"and {len(rows) - _SHOWN} more (--json lists all)")
    return 0


def _how_often(offender: Offender) -> str:
    parts = [f"failed {offender.fails} times"] if offender.fails else []
    return ", ".join([*parts, *([f"open {offender.open_verdicts} times"] if offender.open_verdicts else [])])
