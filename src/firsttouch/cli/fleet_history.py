# SPDX-License-Identifier: Apache-2.0
"""``firsttouch fleet history``: when parts of hosts changed, and which hosts fail again and again."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from firsttouch.cli import options
from firsttouch.errors import BadInput, did_you_mean, first_of, one_line
from firsttouch.report import inputs
from firsttouch.systems.definition import Undescribed
from firsttouch.units import day, iso

if TYPE_CHECKING:
    from firsttouch.fleet.verdict_log import Offender
    from firsttouch.judge.history import Change

#: Rows of a table (--json has all), and parts in a message.
_SHOWN, _NAMED = 40, 5
EXAMPLES = """\
  firsttouch fleet history shared/store                          all changes, and hosts that fail again and again
  firsttouch fleet history shared/store --host n17 --part memory
  firsttouch fleet history shared/store --json
  firsttouch fleet history                                       only the hosts that fail again and again"""


def register(add_action: options.AddAction) -> None:
    """Add the action."""
    parser = add_action(
        "history", "list when parts of hosts changed, and which hosts fail again and again", run, EXAMPLES
    )
    options.add(parser, "records", nargs="*")
    parser.add_argument("--host", metavar="HOST", help="only changes of this host, and of the fleet with it")
    parser.add_argument("--part", metavar="TEXT", help="only changes of parts with this text, such as memory")


def run(args: argparse.Namespace) -> int:
    """Print the tables, or the document."""
    from firsttouch.fleet import verdict_log  # noqa: PLC0415 - imports numpy
    from firsttouch.judge import history  # noqa: PLC0415
    from firsttouch.judge.judging import judged  # noqa: PLC0415

    changes: list[Change] = []
    gathered = inputs.gather(args.records) if args.records else None
    if gathered is not None:
        samples = gathered.samples()
        if not samples.hosts:
            raise gathered.nothing()
        if args.host and args.host not in samples.hosts:
            raise BadInput(f"no record of host '{args.host}'{did_you_mean(args.host, samples.hosts)}")
        configurations = gathered.configurations()
        fleets = [judged(table, Undescribed(name)) for name, table in samples.by_system().items()]
        parts = sorted({each.series.title for f in fleets if f.fleet for each in f.fleet.series})
        if args.part and not any(args.part in title for title in parts):
            raise BadInput(f"no record of a part with '{args.part}': there are {first_of(parts, _NAMED)}")
        changes = [c for fleet in fleets for c in history.changes(fleet, configurations)]
    elif args.part:
        raise BadInput("--part chooses changes of records: give the records, or a store of them")
    offenders = verdict_log.repeat_offenders(verdict_log.read())
    changes = [
        c
        for c in changes
        if args.host in {None, *c.hosts} and any((args.part or "") in title for title in (c.part, *c.others))
    ]
    offenders = [o for o in offenders if args.host in {None, o.host}]
    if args.json:
        times = [{name: iso(int(getattr(o, name) * 1000)) for name in ("first", "last")} for o in offenders]
        repeat = [asdict(o) | of_host for o, of_host in zip(offenders, times, strict=True)]
        options.print_json({"changes": [c.to_dict() for c in changes], "repeat_offenders": repeat})
    else:
        print("\n\n".join(_texts(changes if gathered is not None else None, offenders)))
    if gathered is not None:
        gathered.print_unread()
    return 0


def _printable(rows: Iterable[Iterable[str]]) -> list[list[str]]:
    """Return the cells of a table without characters that a terminal obeys: they have texts of records."""
    return [[one_line(cell) for cell in row] for row in rows]


def _texts(changes: Sequence[Change] | None, offenders: Sequence[Offender]) -> Iterator[str]:
    from tabulate import tabulate  # noqa: PLC0415 - only for people

    from firsttouch.judge import history  # noqa: PLC0415 - imports numpy

    if changes:
        rows = [
            (
                c.when,
                c.who,
                c.parts,
                f"{100 * c.change:+.1f} %",
                f"{c.levels[0]:.4g} -> {c.levels[1]:.4g} {c.case.unit}",
                "; ".join(c.causes),
            )
            for c in changes[:_SHOWN]
        ]
        header = ("when", "hosts", "part", "change", "values", "configuration")
        yield tabulate(_printable(rows), header, "simple", maxcolwidths=[24, 24, 44, 10, 28, 40])
        if len(changes) > _SHOWN:
            yield f"and {len(changes) - _SHOWN} more changes: --json has all"
    elif changes is not None:
        yield f"No change of any host: it takes {history.FEWEST_SESSIONS} sessions before it and after it."
    if offenders:
        offending = [
            (o.host, _how_often(o), day(int(o.last * 1000)), o.verdict, o.reason) for o in offenders[:_SHOWN]
        ]
        yield tabulate(
            _printable(offending),
            ("host", "how often", "last", "now", "reason"),
            "simple",
            maxcolwidths=[24, 16, 10, 10, 60],
        )
        if len(offenders) > _SHOWN:
            yield f"and {len(offenders) - _SHOWN} more hosts: --json has all"
    else:
        yield "No host failed again after it had passed, and none stays undecided."


def _how_often(offender: Offender) -> str:
    parts = [f"failed {offender.fails} times"] if offender.fails else []
    return ", ".join([*parts, *([f"open {offender.open_verdicts} times"] if offender.open_verdicts else [])])
