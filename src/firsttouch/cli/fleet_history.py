# SPDX-License-Identifier: Apache-2.0
"""``firsttouch fleet history``: when parts of hosts changed, and which hosts fail again and again."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from firsttouch.cli import options
from firsttouch.errors import BadInput, did_you_mean, first_of
from firsttouch.fleet import verdict_log
from firsttouch.report import inputs
from firsttouch.systems.definition import Undescribed
from firsttouch.units import day, iso

if TYPE_CHECKING:
    from firsttouch.fleet.verdict_log import Offender
    from firsttouch.judge.history import Change

#: Rows of a table (--json has all), and parts in a message.
_SHOWN, _NAMED = 40, 5
_TIMES = ("first", "last")
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
    from firsttouch.judge.history import changes  # noqa: PLC0415 - the light installation has its help
    from firsttouch.judge.judging import judged  # noqa: PLC0415

    listed: list[Change] = []
    gathered = inputs.gather(args.records) if args.records else None
    if gathered is not None:
        samples = gathered.samples()
        if not samples.hosts:
            raise gathered.nothing()
        if args.host and args.host not in samples.hosts:
            raise BadInput(f"no record of host '{args.host}'{did_you_mean(args.host, samples.hosts)}")
        fleets = [
            judged(table, Undescribed(name), configurations=gathered.configurations)
            for name, table in samples.by_system().items()
        ]
        parts = sorted({each.series.title for f in fleets for each in f.fleet.series})
        if args.part and not any(args.part in title for title in parts):
            raise BadInput(f"no record of a part with '{args.part}': there are {first_of(parts, _NAMED)}")
        listed = [c for fleet in fleets for c in changes(fleet)]
    elif args.part:
        raise BadInput("--part chooses changes of records: give the records, or a store of them")
    listed = [
        c
        for c in listed
        if args.host in {None, *c.hosts} and any((args.part or "") in title for title in (c.part, *c.others))
    ]
    offenders = [o for o in verdict_log.repeat_offenders(verdict_log.read()) if args.host in {None, o.host}]
    if args.json:
        repeat = [asdict(o) | {name: iso(int(getattr(o, name) * 1000)) for name in _TIMES} for o in offenders]
        options.print_json({"changes": [c.to_dict() for c in listed], "repeat_offenders": repeat})
    else:
        print("\n\n".join(_texts(listed if gathered is not None else None, offenders)))
    if gathered is not None:
        gathered.print_unread()
    return 0


def _texts(listed: Sequence[Change] | None, offenders: Sequence[Offender]) -> Iterator[str]:
    from firsttouch.judge.history import FEWEST_SESSIONS  # noqa: PLC0415 - see run
    from firsttouch.report import forms  # noqa: PLC0415
    from firsttouch.report.document import Table  # noqa: PLC0415
    from firsttouch.report.fleet.history import change_table  # noqa: PLC0415

    if listed:
        yield forms.terminal(change_table(listed), _SHOWN)
    elif listed is not None:
        yield f"No change of any host: it takes {FEWEST_SESSIONS} sessions before it and after it."
    rows = [(o.host, _how_often(o), day(int(o.last * 1000)), o.verdict, o.reason) for o in offenders]
    if rows:
        offending = Table("", ("host", "how often", "last", "now", "reason"), rows)
        yield forms.terminal(offending, _SHOWN)
    else:
        yield "No host failed again after it had passed, and none stays undecided."
    hidden = {"changes": len(listed or ()) - _SHOWN, "hosts": len(rows) - _SHOWN}
    if texts := [f"{count} more {what}" for what, count in hidden.items() if count > 0]:
        yield f"and {' and '.join(texts)}: --json has all"


def _how_often(offender: Offender) -> str:
    parts = [f"failed {offender.fails} times"] if offender.fails else []
    return ", ".join([*parts, *([f"open {offender.open_verdicts} times"] if offender.open_verdicts else [])])
