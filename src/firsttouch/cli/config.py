# SPDX-License-Identifier: Apache-2.0
"""``firsttouch config``: the configuration of hosts, and how hosts differ."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tabulate import tabulate

from firsttouch import paths
from firsttouch.cli import options
from firsttouch.errors import BadInput, one_line

if TYPE_CHECKING:
    from firsttouch.judge.drift import Configuration

EXAMPLES = """\
  firsttouch config show                               the settings and the error counters of this host
  firsttouch config show n7 results/                   the newest settings of a host in records
  firsttouch config diff n7 n8 results/ --json         what two hosts differ in
  firsttouch config diff --golden n7 results/          what a host differs in from most hosts
  firsttouch config drift results/                     the hosts that differ from most hosts, by setting
  firsttouch config replaced n7 --system amd-opteron --records results/n7.jsonl --reason 'new board'

Records of `firsttouch measure topology` have the configuration, so those of every campaign and of `characterize`
do. Without RECORDS_OR_DIR, all results in the folder for results are read (`firsttouch path`). `diff` ends with 0
if the hosts are configured alike, and with 1 if they differ. What differs on every host by its nature, such as
the UUID of its root file system, is left out."""
#: The widest column of values on a terminal.
_WIDE = 60


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    add_action = options.actions(subparsers, "config", EXAMPLES)
    show = add_action("show", "list the settings of this host, or of a host in records", _show)
    show.add_argument("host", nargs="?", metavar="HOST", help="a host in the records (default: this host, now)")
    options.add(show, "records", nargs="*")
    diff = add_action("diff", "list the settings in which two hosts differ", _diff)
    diff.add_argument("--golden", metavar="HOST", help="compare this host with what most hosts have")
    diff.add_argument(
        "words", nargs="*", metavar="HOST HOST [RECORDS_OR_DIR ...]", help="two hosts, and records to read"
    )
    drift = add_action("drift", "list the hosts that differ from most hosts, by setting", _drift)
    options.add(drift, "records", nargs="*")
    summary = "note that a host has got another board or other processors, so that its own level begins anew"
    replaced = add_action("replaced", summary, _replaced)
    replaced.add_argument("host", metavar="HOST", help="the host, as its records name it")
    options.add(replaced, "--system", required=True, help="the system of the host's records")
    options.add(replaced, "--records", required=True)
    replaced.add_argument("--reason", default="", metavar="TEXT", help="what was replaced")


def _configurations(given: Sequence[Path]) -> dict[str, Configuration]:
    """Return the newest configurations in the records; raises BadInput if there is none."""
    from firsttouch.report import inputs  # noqa: PLC0415 - see the package

    gathered = inputs.gather([*given] or [paths.results()])
    configurations = gathered.newest_configurations()
    gathered.refuse_unread()
    if not configurations:
        where = ", ".join(map(str, gathered.paths))
        raise BadInput(f"no configuration of a host in {where}: `firsttouch measure topology` records it")
    return configurations


def _of(host: str, configurations: Mapping[str, Configuration]) -> Configuration:
    from firsttouch.judge.drift import none_of  # noqa: PLC0415 - see the package

    if host not in configurations:
        raise none_of(host, configurations)
    return configurations[host]


def _table(rows: Sequence[tuple[str, ...]], header: Sequence[str]) -> str:
    printable = [[one_line(text) for text in row] for row in (*rows, header)]
    *wrapped, heads = [[first, *(textwrap.fill(text, _WIDE) for text in rest)] for first, *rest in printable]
    return tabulate(wrapped, heads, "simple", disable_numparse=True)


def _show(args: argparse.Namespace) -> int:
    if args.host is None:
        return _show_this_host(json=args.json)
    from firsttouch.judge.history import iso  # noqa: PLC0415 - see the package

    now = _of(args.host, _configurations(args.records))
    measured = iso(now.time) if now.time else None
    if args.json:
        document = {"host": args.host, "time": measured, "settings": now.settings, "provenance": now.provenance}
        options.print_json(document)
    else:
        print(_table(sorted(now.settings.items()), (f"{args.host}, {measured or 'time unknown'}", "value")))
    return 0


def _show_this_host(*, json: bool) -> int:
    """Print the settings of this host, and what its error counters show since it was started."""
    from firsttouch.host import configuration, health_counters  # noqa: PLC0415 - see the package
    from firsttouch.host.emulation import host_name  # noqa: PLC0415
    from firsttouch.host.topology import load  # noqa: PLC0415

    now = configuration.read(load())
    counters = health_counters.read()
    if json:
        health: dict[str, dict[str, int]] = {}
        for counter, count in counters.items():
            health.setdefault(counter.metric, {})[counter.module] = count
        document = {"host": host_name(), "settings": now.settings, "provenance": now.provenance, "health": health}
        options.print_json(document)
        return 0
    print(_table(sorted(now.settings.items()), (host_name(), "value")))
    print()
    if counters:
        rows = [(c.metric.replace("_", " "), c.module, str(count)) for c, count in sorted(counters.items())]
        print(_table(rows, ("counted since the start", "module", "events")))
    else:
        print("no counter of errors can be read: no EDAC driver, no machine checks, no thermal throttling")
    return 0


def _replaced(args: argparse.Namespace) -> int:
    """Append the record that ends what a host's measurements before now say about it."""
    from firsttouch.judge.samples_table import REPLACED  # noqa: PLC0415 - see the package
    from firsttouch.records.schema import Record, append  # noqa: PLC0415

    record = Record(
        *("configuration", REPLACED, "1", "neither", (1.0,)),
        parameters={"reason": args.reason},
        host=args.host,
        system=args.system,
    )
    append(args.records, [record])
    if args.json:
        options.print_json({"host": args.host, "system": args.system, "time": record.time, "reason": args.reason})
    else:
        print(one_line(f"{args.host}: sessions before {record.time} do not count any more"))
    return 0


def _diff(args: argparse.Namespace) -> int:
    from firsttouch.judge import drift  # noqa: PLC0415 - see the package

    words = list(args.words)
    if args.golden is not None:
        configurations = _configurations([Path(word) for word in words])
        names = args.golden, "most hosts"
        ours = _of(args.golden, configurations)
        most = drift.drift(configurations)
        apart = {d.setting: (d.value, d.golden) for d in most.deviations if args.golden in d.hosts}
        configured = [ours]
    else:
        if len(words) < 2:
            raise BadInput(f"config diff compares two hosts: {len(words)} given (or --golden HOST)")
        names = words[0], words[1]
        configurations = _configurations([Path(word) for word in words[2:]])
        configured = [_of(host, configurations) for host in names]
        apart = drift.differences(names[0], configured[0], names[1], configured[1])
    if args.json:
        options.print_json({"hosts": list(names), "differences": {name: list(v) for name, v in apart.items()}})
    elif apart:
        print(_table([(name, *values) for name, values in apart.items()], ("setting", *names)))
    else:
        print(one_line(f"{names[0]} and {names[1]} are configured alike"))
    return 1 if apart else 0


def _drift(args: argparse.Namespace) -> int:
    from firsttouch.host.host_lists import folded  # noqa: PLC0415 - see the package
    from firsttouch.judge import drift  # noqa: PLC0415

    apart = drift.drift(_configurations(args.records))
    groups = apart.by_hosts()
    if args.json:
        options.print_json(
            {
                "hosts": apart.hosts,
                "golden": apart.golden,
                "everywhere": apart.everywhere,
                "deviations": [
                    {"hosts": hosts, "settings": {d.setting: [d.value, d.golden] for d in its}}
                    for hosts, its in groups.items()
                ],
            }
        )
        return 0
    for hosts, its in groups.items():
        print(one_line(f"{len(hosts)} host{'s' * (len(hosts) > 1)}: {folded(hosts)}"))
        for text in drift.described(its):
            print(
                textwrap.fill(
                    one_line(text), 100, initial_indent="  ", subsequent_indent="    ", break_long_words=False
                )
            )
    if apart.everywhere:
        print(one_line(f"differs everywhere: {', '.join(apart.everywhere)}"))
    if not groups:
        print(f"{apart.hosts} hosts are configured alike")
    return 0
