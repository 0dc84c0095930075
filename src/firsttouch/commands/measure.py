# SPDX-License-Identifier: Apache-2.0
"""``firsttouch measure``: one aspect of this host, measured with the field's programs, placement verified."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from firsttouch import machine
from firsttouch.commands import options
from firsttouch.measure import aspects, emulated
from firsttouch.progress import say
from firsttouch.records import Record, append
from firsttouch.topology import Topology, load

EXAMPLES = """\
  firsttouch measure latency --pu-nodes 0 --banks 0 --records records.jsonl
  firsttouch measure latency --pu-nodes 0 --banks 0-7 --order sequential
  firsttouch measure bandwidth --pu-nodes 0,1 --banks 0-7
  firsttouch measure contention --banks 0 --threads 8 --json"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    made = options.command(
        subparsers, "measure", "measure latency, bandwidth or contention of this host", EXAMPLES
    )
    made.add_argument("aspect", choices=("topology", "latency", "bandwidth", "contention"))
    made.add_argument(
        "--pu-nodes", type=options.numbers, metavar="LIST", help="NUMA nodes of the PUs (default: all)"
    )
    made.add_argument(
        "--banks", type=options.numbers, metavar="LIST", help="NUMA nodes of the data (default: all)"
    )
    made.add_argument("--threads", type=options.positive, help="threads of the contention aspect (default: all)")
    made.add_argument("--order", choices=("random", "sequential"), default="random", help="of latency's accesses")
    made.add_argument("--repetitions", type=options.positive, default=3, help="timed runs of each (default: 3)")
    made.add_argument("--records", type=Path, metavar="FILE", help="append the records to this JSON-lines file")
    made.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, and print the records or a line for each; 1 where a placement did not hold."""
    if machine.emulator() and args.aspect in {"bandwidth", "contention"}:  # those with many threads
        emulated.look_at_leisure()
    found = []
    for record in measure(load(), args):
        found.append(record)
        if args.records:
            append(args.records, [record])
    if args.json:
        options.print_json([r.to_dict() for r in found])
    invalid = [r for r in found if r.status != "valid"]
    if invalid:
        say(f"firsttouch: {len(invalid)} of {len(found)} records are invalid: {invalid[0].reason}")
    return 1 if invalid else 0


def measure(host: Topology, args: argparse.Namespace) -> Iterator[Record]:
    """Yield the records of one aspect."""
    nodes = sorted(args.pu_nodes) if args.pu_nodes else list(host.cpu_nodes)
    banks = sorted(args.banks) if args.banks else list(host.memory_nodes)
    if args.aspect == "topology":
        yield from aspects.topology(host)
        return
    for bank in banks:
        if args.aspect == "latency":
            for node in nodes:
                random = args.order == "random"
                repetitions = args.repetitions
                yield from aspects.latency(host, node, bank, random=random, repetitions=repetitions, say=say)
        elif args.aspect == "bandwidth":
            yield from aspects.bandwidth(host, nodes, bank, repetitions=args.repetitions, say=say)
        else:
            threads = args.threads or len(host.allowed_pus)
            yield from aspects.contention(host, bank, threads, repetitions=args.repetitions, say=say)
