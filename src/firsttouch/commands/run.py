# SPDX-License-Identifier: Apache-2.0
"""``firsttouch run``: runs one scenario of an aligner for real and verifies its placement."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from firsttouch import datasets, index, launch
from firsttouch.aligners import aligner
from firsttouch.commands import options
from firsttouch.datasets import store
from firsttouch.errors import BadInput
from firsttouch.placement import Scenario, plan
from firsttouch.progress import say
from firsttouch.records import Record, append, software
from firsttouch.topology import load

EXAMPLES = """\
  firsttouch run 1Inst_Interleave --aligner bwa-mem --index idx/hg --reads r1.fq.gz --reads2 r2.fq.gz -o out.sam
  firsttouch run 4Inst_Original --aligner bwa-mem --index idx/hg --reads r.fq -o out.sam --json
  firsttouch run 2Inst_Localalloc --aligner bwa-mem --dataset lambda --repetitions 3 --records records.jsonl"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    made = options.command(subparsers, "run", "run one placement scenario for real", EXAMPLES)
    made.add_argument("scenario", help="as `firsttouch plan` names them")
    made.add_argument("--aligner", required=True)
    made.add_argument("--dataset", help="take index and reads from this dataset")
    made.add_argument("--index", type=Path, help="prefix of the aligner's index")
    made.add_argument("--reads", type=Path, help="FASTQ file, plain or gzip")
    made.add_argument("--reads2", type=Path, help="the second file of a pair")
    made.add_argument("--threads", type=options.positive, help="threads in total, as for `firsttouch plan`")
    made.add_argument("-o", "--output", type=Path, help="SAM file (default with --dataset: not kept)")
    made.add_argument("--repetitions", type=options.positive, default=1, help="timed runs (default: 1)")
    made.add_argument("--batch-bases", type=int, help="the aligner's batch size in bases, fixed in all scenarios")
    made.add_argument("--counters", action="store_true", help="count events with perf stat (thesis section 2.5.2)")
    made.add_argument("--timeout", type=options.seconds, help="seconds after which a run is stopped")
    made.add_argument("--records", type=Path, metavar="FILE", help="append the records to this JSON-lines file")
    made.add_argument("--expect-sha256", metavar="SUM", help="settled_sha256 that the alignments must have")
    made.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the scenario and print what came out; 1 where its placement did not hold."""
    work, expect = _work(args)
    work = replace(work, counted=args.counters)
    need = work.aligner.need(work.aligner.index_bytes(work.index))
    scenario = plan(load(), need, threads=args.threads).scenario(args.scenario)
    results = []
    for number in range(args.repetitions):
        result = launch.run(work, scenario, args.output, timeout=args.timeout)
        results.append(result)
        state = f"INVALID: {result.misplaced}" if result.misplaced else "placement verified"
        say(f"{scenario.name} ({number + 1}/{args.repetitions}): {result.seconds:.3f} s, {state}")
    record = to_record(
        work, scenario, results, dataset=args.dataset or "", expect=expect, wanted=args.expect_sha256
    )
    if args.counters:
        # A counted run takes longer than the scenario does: its time stays out of the scenarios' times.
        record = replace(record, check="counters")
    found = [record, *counts(record, results)]
    if args.records:
        append(args.records, found)
    if args.json:
        options.print_json([r.to_dict() for r in found] if args.counters else record.to_dict())
    elif args.output:
        print(args.output)
    if record.status != "valid":
        say(f"firsttouch: invalid: {record.reason}")
    return 0 if record.status == "valid" else 1


def _work(args: argparse.Namespace) -> tuple[launch.Work, float]:
    """Return what is to be aligned, and the part of the reads that must map at least."""
    one = aligner(args.aligner)
    # Aligners keep it in a C int.
    if args.batch_bases is not None and not 1 <= args.batch_bases < 1 << 31:
        raise BadInput(f"--batch-bases {args.batch_bases}: 1 to {(1 << 31) - 1}")
    if args.dataset:
        if args.index or args.reads or args.reads2:
            raise BadInput("--dataset brings index and reads: leave --index, --reads and --reads2 out")
        data = datasets.get(args.dataset)
        prefix = index.built(one, data.reference, store.root() / "index", say=say)
        batch = args.batch_bases or data.expect.get("batch_bases")
        least = float(data.expect.get("mapped_fraction_min", 0.0))
        return launch.prepare(one, prefix, data.reads, None if batch is None else int(batch)), least
    if not (args.index and args.reads and args.output):
        raise BadInput("--index, --reads and --output are needed (or --dataset)")
    reads = [args.reads, args.reads2] if args.reads2 else [args.reads]
    return launch.prepare(one, args.index, reads, args.batch_bases), 0.0


def to_record(
    work: launch.Work,
    scenario: Scenario,
    results: list[launch.Result],
    *,
    dataset: str,
    expect: float,
    wanted: str | None,
) -> Record:
    """Return the record of the repetitions of one scenario: its time, and whether it counts."""
    last = results[-1]
    sums = {r.alignments.settled_sha256 for r in results} | ({wanted} if wanted else set())
    fraction = last.alignments.mapped_fraction
    reason = next(filter(None, (r.misplaced for r in results)), "")
    if len(sums) > 1:
        reason = "the alignments differ from those of the reference run or between repetitions"
    elif fraction < expect:
        reason = f"{fraction:.1%} of the reads map, at least {expect:.1%} must: another genome's index or reads?"
    return Record(
        check="scaling" if scenario.instances == 1 else "placement",
        metric="alignment_time",
        unit="s",
        better="lower",
        samples=tuple(r.seconds for r in results),
        parameters={
            "aligner": work.aligner.name,
            "dataset": dataset,
            "scenario": scenario.name,
            "instances": scenario.instances,
            "threads": scenario.threads,
            "policy": scenario.policy,
            "reads": last.alignments.primary,
            "mapped_fraction": fraction,
            "index_bytes": work.aligner.index_bytes(work.index),
            "batch_bases": work.batch_bases,
            "alignments_sha256": last.alignments.sha256,
            "settled_sha256": last.alignments.settled_sha256,
            "cpu_seconds": sum(o.cpu_seconds for o in last.outcomes),
            "peak_bytes": sum(o.peak_bytes for o in last.outcomes),
        },
        placement_asked=[p.to_dict() for p in scenario.placements],
        placement_found=[o.found.to_dict() for o in last.outcomes],
        status="invalid" if reason else "valid",
        reason=reason,
        software=software(**{work.aligner.name: work.aligner.version()}),
    )


def counts(record: Record, results: list[launch.Result]) -> list[Record]:
    """Return a record, like that of the time, for each event that was counted in all repetitions."""
    events = [e for e in results[0].counts if all(e in r.counts for r in results)]
    return [
        replace(
            record,
            metric=event.lower().replace("-", "_"),
            unit="1",
            better="neither",
            samples=tuple(float(r.counts[event]) for r in results),
        )
        for event in events
    ]
