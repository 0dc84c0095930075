# SPDX-License-Identifier: Apache-2.0
"""``firsttouch measure``: one aspect of this host as records, with the placement verified."""

from __future__ import annotations

import argparse
import contextlib
import statistics
from collections.abc import Iterator, Sequence

from firsttouch.benchmarks import measure, probe
from firsttouch.cli import options
from firsttouch.errors import BadInput
from firsttouch.execution.progress import say
from firsttouch.host.topology import load
from firsttouch.records.cases import Case
from firsttouch.records.schema import Record, append, check_appendable

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
  firsttouch measure core-to-core --pu-pairs all --json         every pair of PUs
  firsttouch measure loaded-latency --records records.jsonl     latency while other PUs load memory
  firsttouch measure locks --threads 1,8,64                     records/s from one reader by lock and batch"""

#: The options that only some aspects take. With others they are an error.
_OPTIONS = ("pu_nodes", "set_sizes", "banks", "interleave", "threads", "pu_pairs")


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "measure", EXAMPLES)
    parser.add_argument(
        "aspect", metavar="ASPECT", choices=tuple(measure.aspects()), help=", ".join(measure.aspects())
    )
    programs = dict.fromkeys(program for aspect in measure.aspects().values() for program in aspect.programs)
    parser.add_argument(
        "--program",
        choices=tuple(programs),
        help=f"measuring program (default: {probe.NAME})",
    )
    parser.add_argument(
        "--pu-nodes",
        type=options.numbers,
        metavar="LIST",
        help="NUMA nodes of the PUs (default: all; stores: the first)",
    )
    parser.add_argument(
        "--set-sizes",
        type=options.numbers,
        metavar="LIST",
        help="bandwidth: NUMA nodes in a PU-set (default: one set of --pu-nodes; without it 1, 2, 4, ... and all)",
    )
    parser.add_argument(
        "--banks",
        type=options.numbers,
        metavar="LIST",
        help="NUMA nodes of the data (default: all; stores, locks and other programs than the probe: the nearest)",
    )
    parser.add_argument(
        "--interleave",
        metavar="SETS",
        help="bandwidth: data also interleaved, as firsttouch-probe --help says (default: first/all)",
    )
    parser.add_argument(
        "--threads",
        type=options.numbers,
        metavar="LIST",
        help="contention, locks: numbers of threads (default: 1 to all)",
    )
    parser.add_argument(
        "--pu-pairs",
        type=_pairs,
        metavar="N|all",
        help="core-to-core: pairs of PUs at most (default: the effort's)",
    )
    parser.add_argument(
        "--order", choices=("random", "sequential"), default="random", help="order of the accesses of latency"
    )
    help_repetitions = "timed runs of each case; for the probe the least number (default: 3)"
    options.add(parser, "--repetitions", default=3, help=help_repetitions)
    options.add(parser, "--records", "--share-host")
    parser.set_defaults(run=run)


def _pairs(text: str) -> str:
    try:
        return text if text == "all" else str(options.positive(text))
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, or 'all'") from None


def run(args: argparse.Namespace) -> int:
    """Measure, and print the records or a line for each; 1 if a placement did not hold."""
    asked = _asked(args)
    if args.records:
        check_appendable(args.records)
    measured = []
    watched = args.aspect != "topology"
    with (
        options.holding(args) if watched else contextlib.nullcontext(),
        options.watching_health(args.records if watched else None),
    ):
        for records in measure.measure(load(), asked, say=say):
            measured.extend(records)
            if args.records:
                append(args.records, records)
    if args.json:
        options.print_json([r.to_dict() for r in measured])
    for line in _spread(measured):
        say(line)
    invalid = [r for r in measured if r.status != "valid"]
    if invalid:
        say(f"firsttouch: {len(invalid)} of {len(measured)} records are invalid: {invalid[0].reason}")
    return 1 if invalid else 0


def _spread(measured: Sequence[Record]) -> Iterator[str]:
    """Yield the spread of the repetitions of *measured*, and a warning if it is too wide for a comparison."""
    repeated = sorted((r for r in measured if r.status == "valid" and r.repetitions > 1), key=lambda r: r.spread)
    if not repeated:
        return
    widest = repeated[-1]
    spread = f"{widest.spread:.1%}"
    if len(repeated) > 1:
        median = statistics.median(r.spread for r in repeated)
        spread = f"median {median:.1%}, widest {spread} ({Case.of(widest).title})"
    yield f"spread of {widest.repetitions} repetitions: {spread}"
    if wide := [r for r in repeated if r.spread > measure.WIDE]:
        yield (
            f"firsttouch: {len(wide)} of {len(repeated)} values spread by more than {measure.WIDE:.0%}: this host "
            "was not idle. Measure again when it is"
        )


def _asked(args: argparse.Namespace) -> measure.Asked:
    """Return the request of the options; raises BadInput for an option of another aspect."""
    for name in _OPTIONS:
        takers = sorted(aspect for aspect, how in measure.aspects().items() if name in how.options)
        if getattr(args, name) is not None and args.aspect not in takers:
            raise BadInput(
                f"--{name.replace('_', '-')} is not an option of {args.aspect}, but of {' and '.join(takers)}"
            )
    lists = {n: getattr(args, n) for n in ("pu_nodes", "set_sizes", "banks", "threads")}
    return measure.Asked(
        args.aspect,
        program=args.program,
        pairs=args.pu_pairs,
        interleave=args.interleave or "first/all",
        random=args.order == "random",
        repetitions=args.repetitions,
        **{n: sorted(v) if v else None for n, v in lists.items()},
    )
