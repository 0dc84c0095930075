# SPDX-License-Identifier: Apache-2.0
"""``firsttouch measure``: one aspect of this host as records, with the placement verified."""

from __future__ import annotations

import argparse
from typing import Any

from firsttouch.benchmarks import drawn_order, measure, probe
from firsttouch.cli import options
from firsttouch.errors import first_of
from firsttouch.execution.progress import say
from firsttouch.records import step_outcome
from firsttouch.records.cases import Case

EXAMPLES = """\
  firsttouch measure latency --records records.jsonl            every NUMA node x every bank, the whole curve
  firsttouch measure latency --program lmbench --pu-nodes 0     the same by lat_mem_rd -t, on the nearest bank
  firsttouch measure latency --order sequential --pu-nodes 0 --banks 0-7
  firsttouch measure pages                                      latency and bandwidth by page size
  firsttouch measure bandwidth --pu-nodes 0-3 --set-sizes 2     every pair of four NUMA nodes x every bank
  firsttouch measure bandwidth --pu-nodes 0,1 --banks 0-7       one PU-set of two
  firsttouch measure bandwidth --program likwid-bench --set-sizes 1
  firsttouch measure contention --banks 0 --threads 1,8,64 --json
  firsttouch measure stores                                     by instruction set and store type
  firsttouch measure core-to-core --json                        time of a cache line between two PUs
  firsttouch measure loaded-latency --records records.jsonl     latency while other PUs load memory
  firsttouch measure locks --threads 1,8,64                     records/s from one reader by lock and batch
  firsttouch measure cores                                      clock, caches and memory of every PU, and slow PUs
  firsttouch measure cores --sustain 2min                       their clock under load, until fans and limits act
  firsttouch measure tails                                      the slowest accesses, idle and under load
  firsttouch measure correctness --records records.jsonl        known answers of every PU, patterns in every bank

The options of `firsttouch-probe ASPECT` choose more, such as `firsttouch-probe core-to-core --pairs=all`."""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "measure", run, EXAMPLES)
    arg = parser.add_argument
    arg("aspect", choices=tuple(measure.aspects()), metavar="ASPECT", help=", ".join(measure.aspects()))
    programs = dict.fromkeys(program for aspect in measure.aspects().values() for program in aspect.programs)
    name = f"measuring program (default: {probe.NAME})"
    arg("--program", dest="program_name", choices=tuple(programs), help=name)
    pus = "NUMA nodes of the PUs (default: all; stores: the first)"
    arg("--pu-nodes", type=options.numbers, metavar="LIST", help=pus)
    arg(
        "--set-sizes",
        type=options.numbers,
        metavar="LIST",
        help="bandwidth: NUMA nodes in a PU-set (default: one set of --pu-nodes; without it 1, 2, 4, ... and all)",
    )
    banks = "NUMA nodes of the data (default: all; stores, locks and other programs than the probe: the nearest)"
    arg("--banks", type=options.numbers, metavar="LIST", help=banks)
    threads = "contention, locks: numbers of threads (default: 1 to all)"
    options.add(parser, "--threads", type=options.numbers, metavar="LIST", help=threads)
    sustain = "cores: load all PUs for a time such as 2min, and measure the clock at its end (at most 10min)"
    arg("--sustain", type=options.duration, metavar="TIME", help=sustain)
    order = "latency: order of the accesses (default: random)"
    arg("--order", choices=("random", "sequential"), help=order)
    options.add(
        parser,
        "--repetitions",
        help="timed runs of each case; for the probe the least number (default: 3; topology, cores and "
        "correctness are measured once)",
    )
    options.add(parser, "--seed", "--records", "--share-host")


def run(args: argparse.Namespace) -> int:
    """Measure, and print the records or a line each; return 1 if one is invalid or proves a defect."""
    chosen = {name: getattr(args, name) for name in ("program_name", "repetitions", *measure.OPTIONS)}
    lists: dict[str, Any] = {
        name: sorted(value) if isinstance(value, list | set) else value for name, value in chosen.items()
    }
    asked = measure.AspectRequest(
        args.aspect,
        program=lists.pop("program_name"),
        **lists,
    )
    order = drawn_order.seed(args.seed)
    measured = measure.measure_aspect(asked, file=args.records, share_host=args.share_host, say=say)
    if args.json:
        options.print_json([r.to_dict() for r in measured])
    for line in measure.spread(measured):
        say(line)
    if asked.aspect in measure.IN_DRAWN_ORDER:
        say(drawn_order.sentence(order))
    wrong = [r for r in measured if r.status == "valid" and r.is_proof]
    findings = [f"{Case.from_record(record).title}: {record.value:g}, which fails a host" for record in wrong]
    for text in findings:
        say(f"firsttouch: {text}")
    invalid = [r for r in measured if r.status != "valid"]
    if invalid:
        say(f"firsttouch: {len(invalid)} of {len(measured)} records are invalid: {invalid[0].reason}")
        step_outcome.state("invalid", invalid[0].reason)
    elif findings:
        step_outcome.state("found", first_of(findings, 1, "; "))
    else:
        step_outcome.state("measured")
    return 1 if invalid or findings else 0
