# SPDX-License-Identifier: Apache-2.0
"""``firsttouch fleet history``: when metrics of hosts changed, and which hosts fail again and again."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from firsttouch.cli import options
from firsttouch.errors import BadInput, did_you_mean, one_line
from firsttouch.report import inputs

if TYPE_CHECKING:
    from firsttouch.judge.history import Change, Offender
    from firsttouch.judge.samples_table import SamplesTable

#: Rows of a table; --json has all.
_SHOWN = 40
EXAMPLES = """\
  firsttouch fleet history shared/store                          all changes, and hosts that fail again and again
  firsttouch fleet history shared/store --host n17 --metric copy_bandwidth
  firsttouch fleet history shared/store --json
  firsttouch fleet history                                       only the hosts that fail again and again"""


def register(add_action: options.AddAction) -> None:
    """Add the action."""
    parser = add_action(
        "history", "list when metrics of hosts changed, and which hosts fail again and again", run, EXAMPLES
    )
    options.add(parser, "records", nargs="*")
    parser.add_argument("--host", metavar="HOST", help="only changes of this host, and of the fleet with it")
    parser.add_argument("--metric", metavar="NAME", help="only changes of this metric, such as copy_bandwidth")


def run(args: argparse.Namespace) -> int:
    """Print the tables, or the document."""
    from firsttouch.judge import history, verdict_log  # noqa: PLC0415 - import numpy

    changes: list[Change] = []
    gathered = inputs.gather(args.records) if args.records else None
    if gathered is not None:
        samples = gathered.samples()
        if not samples.hosts:
            raise gathered.nothing()
        _check_names(samples, args.host, args.metric)
        configurations = gathered.configurations()
        parts = samples.by_system().values()
        changes = [c for part in parts for c in history.changes(part, configurations)]
    elif args.metric:
        raise BadInput("--metric chooses changes of records: give the records, or a store of them")
    offenders = history.repeat_offenders(verdict_log.read())
    changes = [
        c
        for c in changes
        if args.host in {None, *c.hosts} and args.metric in {None, *(case.metric for case in (c.case, *c.others))}
    ]
    offenders = [o for o in offenders if args.host in {None, o.host}]
    if args.json:
        repeat = [
            {
                **asdict(o),
                "first": history.iso(int(o.first * 1000)),
                "last": history.iso(int(o.last * 1000)),
            }
            for o in offenders
        ]
        options.print_json({"changes": [c.to_dict() for c in changes], "repeat_offenders": repeat})
    else:
        print("\n\n".join(_texts(changes if gathered is not None else None, offenders)))
    if gathered is not None:
        gathered.print_unread()
    return 0


def _check_names(samples: SamplesTable, host: str | None, metric: str | None) -> None:
    metrics = sorted({case.metric for case in samples.cases})
    if host and host not in samples.hosts:
        raise BadInput(f"no record of host '{host}'{did_you_mean(host, samples.hosts)}")
    if metric and metric not in metrics:
        raise BadInput(f"no record of metric '{metric}'{did_you_mean(metric, metrics)}")


def _printable(rows: Iterable[Iterable[str]]) -> list[list[str]]:
    """Return the cells of a table without characters that a terminal obeys: they have texts of records."""
    return [[one_line(cell) for cell in row] for row in rows]


def _texts(changes: Sequence[Change] | None, offenders: Sequence[Offender]) -> Iterator[str]:
    from tabulate import tabulate  # noqa: PLC0415 - only for people

    from firsttouch.judge import history  # noqa: PLC0415 - imports numpy

    if changes:
        rows = [
            (
                c.when.removeprefix("on ").removeprefix("between ").replace(" and ", " to "),
                c.who,
                c.metrics,
                f"{100 * c.change:+.1f} %",
                f"{c.levels[0]:.4g} -> {c.levels[1]:.4g} {c.case.unit}",
                c.certainty,
                "; ".join(c.causes),
            )
            for c in changes[:_SHOWN]
        ]
        header = ("when", "hosts", "metric", "change", "values", "certainty", "configuration")
        widths = [24, 24, 44, 10, 28, 12, 40]
        yield tabulate(_printable(rows), header, "simple", maxcolwidths=widths)
        if len(changes) > _SHOWN:
            yield f"and {len(changes) - _SHOWN} more changes: --json has all"
    elif changes is not None:
        yield f"No change of any host: it takes {history.FEWEST_SESSIONS} sessions before it and after it."
    if offenders:
        offending = [
            (o.host, _how_often(o), history.day(int(o.last * 1000)), o.verdict, o.reason)
            for o in offenders[:_SHOWN]
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
