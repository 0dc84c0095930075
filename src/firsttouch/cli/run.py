# SPDX-License-Identifier: Apache-2.0
"""``firsttouch run``: runs one scenario of an aligner and verifies its placement."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from firsttouch.benchmarks.recording import watching_health
from firsttouch.cli import options, read_inputs
from firsttouch.errors import NOT_INSTALLED, BadInput, CannotHere, Missing, TimedOut
from firsttouch.execution import energy, host_lock, index_cache
from firsttouch.execution.progress import Steps, live, say
from firsttouch.genomics import launch
from firsttouch.genomics.sam import Checksums
from firsttouch.genomics.sinks import AlignOutput, default_threads
from firsttouch.host.topology import load
from firsttouch.records import atomic_files
from firsttouch.records.schema import append, check_appendable
from firsttouch.scenarios import evidence
from firsttouch.scenarios.placement import Scenario, plan

EXAMPLES = """\
  firsttouch run -- bwa mem -t 64 ref.fa r1.fq.gz r2.fq.gz > out.sam         placed by saved advice, or by trials
  firsttouch run 8Inst_Original -o out.bam --sort -- bowtie2 -p 64 -x idx/hg -1 a_1.fq.gz -2 a_2.fq.gz
  firsttouch run 1Inst_Interleave -- ./program --its-option input > output   any program
  firsttouch run 1Inst_Interleave --aligner bwa-mem --index idx/hg --reads r1.fq.gz --reads2 r2.fq.gz -o out.sam
  firsttouch run 8Inst_Original --aligner bwa-mem --index idx/hg --reads a_1.fq.zst b_1.fq.zst -o out.sam
  firsttouch run 4x16-bound --aligner bowtie2 --index idx/hg --reads r.fq -o out.sam --json
  firsttouch run 8Inst_Original --aligner snap --index idx/hg --reads pairs.fq --interleaved --sort -o out.bam
  firsttouch run 2Inst_Original --aligner bwa-mem --index idx/hg --reads r.fq -o o.sam -- -R '@RG\\tID:a' -Y
  firsttouch run 2Inst_Original+node-index --aligner bowtie2 --index idx/hg --reads r.fq -o out.sam
  firsttouch run 4Inst_Unbound_16t --aligner bowtie2 --dataset lambda --reads-per-thread 100000
  firsttouch run 2Inst_Localalloc --aligner bwa-mem --dataset lambda --repetitions 3 --records records.jsonl
  firsttouch run 1Inst_Original --aligner bwa-mem --dataset lambda --repetitions 3 --index-cache interleave
  firsttouch run 1Inst_Original --aligner bwa-mem --dataset lambda --multiqc results/firsttouch_mqc.json"""

DESCRIPTION = """\
Run a command of yours, or an aligner on a dataset, under a placement that is verified while it runs.

  firsttouch run [SCENARIO] -- COMMAND            your command as it is: its options are those of
                                                  `firsttouch help align` for an aligner, else of `help exec`
  firsttouch run SCENARIO --aligner ALIGNER ...   an aligner on a dataset, or on an index and reads, timed and
                                                  recorded; the options below are for this form"""
_EXPECTED = re.compile(r"[0-9a-fA-F]{64}(,[0-9a-fA-F]{64},[0-9]{1,18},[0-9]{1,18})?")


_OPTIONS = """\
--dynamic             give batches to the instances as they take them, instead of one fixed part to each
--reads-per-thread N  measure throughput: N reads (pairs) per thread, repeated if there are too few; no output
--repetitions         timed runs (default: 1)
--counters            count events with perf stat (thesis section 2.5.2)
--if-installed        skip the run, instead of failing, if the aligner is not installed
--timeout --idle --records --share-host
--if-in-time          skip the run, instead of failing, if it takes longer than --timeout
--multiqc
--checksum            record SHA-256 sums of the alignments
--expect-sha256 SUM[,SUM,READS,MAPPED]
                      common_sha256 that the alignments must have; with alignments_sha256 and the numbers of reads
                      and mapped reads of a run that had it, equal alignments are recognized faster"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "run", run, EXAMPLES, DESCRIPTION)
    scenario_help = "a scenario of `firsttouch plan`, or NxT-unbound: N x T threads, not bound"
    parser.add_argument("scenario", metavar="SCENARIO", help=scenario_help)
    options.add(parser, "--aligner", required=True)
    read_inputs.add(parser)
    options.add_table(parser, "-o, --output FILE  the output file (default with --dataset: not kept)")
    form = parser.add_mutually_exclusive_group()
    options.add_table(form, "--striped  a SAM file per instance: out.0.sam, out.1.sam, ...")
    by_coordinate = {"dest": "sorted", "old": "--sorted"}
    options.add_table(form, "--sort  one BAM file, by `samtools sort`", sort=by_coordinate)
    sums = options.checked(_reference, "a SHA-256 in hexadecimal, or two of them and two numbers")
    options.add_table(parser, _OPTIONS, repetitions={"default": 1}, expect_sha256={"type": sums})
    options.add_user_command(parser, "the aligner's own options, for every instance", "OPTION")


def _reference(text: str) -> launch.Alignments:
    if not _EXPECTED.fullmatch(text):
        raise ValueError(text)
    common, exact, reads, mapped = [*text.lower().split(","), "0", "0", "0"][:4]
    return launch.Alignments(int(reads), int(mapped), Checksums(exact, common))


def run(args: argparse.Namespace) -> int:
    """Run the scenario and print the result; 1 if its placement did not hold.

    A run for its alignments, not for its time, ends with 0 if its placement could not be verified.
    """
    scenario, work, least_mapped = _prepared(args)
    output = _output(args, scenario, [*work.reads.all_files, *work.aligner.index_paths(work.index)])
    # Alignments are valid even if their placement could not be verified. A measurement is not.
    measured = (args.records, args.repetitions > 1, args.checksum, args.expect_sha256, args.counters)
    production = output is not None and not any(measured)
    if production and work.index_cache == index_cache.AS_IS:
        work = replace(work, index_cache="")  # the alignments do not depend on it
    results = []
    work = work.with_copies()
    assert work.copies is not None  # noqa: S101 - for mypy
    watching = watching_health(args.records, say=say)
    holding = host_lock.holding(say, share_host=args.share_host, shared=production)
    with holding, watching, work.copies, Steps() as steps:
        for number in range(args.repetitions):
            steps.begin(scenario.name, args.repetitions - number)
            try:
                result = launch.run(
                    work,
                    scenario,
                    output,
                    command_line=read_inputs.command_line(),
                    timeout=args.timeout,
                    on_progress=lambda now: live(f"{scenario.name}: {now.text()}"),
                    idle=args.idle,
                )
            except TimedOut as error:
                if args.if_in_time:
                    raise CannotHere(f"omitted: {error}") from error
                raise
            steps.end()
            results.append(result)
            work = replace(work, reference=result.alignments if work.summed else None)
            state = evidence.describe(result, unverified=evidence.COMPLETE if production else evidence.INVALID)
            spent = f"{result.seconds:.3f} s, {energy.in_words(result.energy)}"
            say(f"{scenario.name} ({number + 1}/{args.repetitions}): {spent}{state}")
    if (caches := [r.index_cache for r in results if r.index_cache]) and (note := index_cache.difference(caches)):
        say(f"note: {note}")
    records = launch.records(
        work,
        scenario,
        results,
        dataset=args.dataset or "",
        least_mapped=least_mapped,
        wanted=args.expect_sha256.sums.common if args.expect_sha256 else None,
    )
    if args.records:
        append(args.records, records)
    if args.multiqc:
        from firsttouch.report import multiqc  # noqa: PLC0415 - a run without a report needs no tables

        sections = multiqc.of_records(records)  # an invalid run has no time to show
        energy_file = args.multiqc.with_name(args.multiqc.name.replace("_mqc.json", "_energy_mqc.json"))
        places = {multiqc.SCENARIOS: args.multiqc, multiqc.ENERGY: energy_file}
        for name, section in sections.items():
            atomic_files.write(places[name], section)
    if args.json:
        options.print_json([r.to_dict() for r in records] if args.counters else records[0].to_dict())
    elif output:
        options.print_files([each.named for each in output.stripes(scenario.instances)])
    if records[0].status == "valid" or (production and results[0].unverified == records[0].reason):
        return 0
    say(f"firsttouch: invalid: {records[0].reason}")
    return 1


def _prepared(args: argparse.Namespace) -> tuple[Scenario, launch.Work, float]:
    """Return the scenario, the work, and the least fraction of the reads that must map."""
    if args.if_in_time and not args.timeout:
        raise BadInput("--if-in-time needs --timeout, the seconds that a run may take")
    program = read_inputs.program(args)
    try:
        program.version()
    except Missing as error:
        if args.if_installed:
            raise CannotHere(f"{program.name}{NOT_INSTALLED}{error}") from error
        raise
    if args.reads_per_thread:
        _refuse(args, "output", "dynamic", "checksum", "expect_sha256", "counters")
    elif not (args.dataset or args.output):
        raise BadInput("--index, --reads and --output are needed (or --dataset)")
    given = read_inputs.chosen(args, program)
    given.check(program)
    if args.dynamic:
        launch.check_dynamic(program, 2 if args.interleaved or len(given.lanes[0]) == 2 else 1)
    # Report wrong options before all reads are checked, which takes long.
    host = load()
    scenario = plan(
        host, program.need(program.index_bytes(given.index), given.batch_bases), threads=args.threads
    ).scenario(args.scenario)
    launch.check_whole(program, scenario)
    index_cache.check(program.index_paths(given.index), args.index_cache, scenario.placements, host)
    _output(args, scenario, given.paths(program))
    read_once = not (args.dataset or args.reads_per_thread) and args.repetitions == 1
    work = launch.prepare(
        program,
        given.index,
        given.lanes[0] if read_once else given.files,
        given.batch_bases,
        interleaved=args.interleaved,
        remembered=bool(args.dataset),
        read_once=read_once,
        more_lanes=given.lanes[1:],
        say=say,
    )
    summed = bool(args.checksum or args.expect_sha256)
    per_thread = args.reads_per_thread or 0
    work = replace(work, dynamic=args.dynamic, per_thread=per_thread, counted=args.counters, summed=summed)
    work = replace(work, reference=args.expect_sha256, index_cache=args.index_cache)
    return scenario, work, given.least_mapped


def _refuse(args: argparse.Namespace, *names: str) -> None:
    """Raise BadInput for options that have no effect on a run of repeated reads."""
    for name in names:
        if getattr(args, name):
            raise BadInput(
                f"--reads-per-thread repeats reads to measure throughput: leave --{name.replace('_', '-')} out"
            )


def _output(args: argparse.Namespace, scenario: Scenario, files: Sequence[Path]) -> AlignOutput | None:
    """Return the output, or None if the alignments are not kept; raises BadInput if it cannot be written.

    *files* are what the run reads, which no output may overwrite.
    """
    atomic_files.refuse_overwriting([], files)  # by the standard output
    if args.multiqc:
        atomic_files.refuse_overwriting([args.multiqc], [*files, *([args.records] if args.records else [])])
        atomic_files.check_place(args.multiqc)
    if args.records:
        check_appendable(args.records)
        atomic_files.refuse_overwriting([args.records], files)
    if args.output is None:
        if args.striped or args.sorted:
            raise BadInput(f"{'--sort' if args.sorted else '--striped'} needs --output")
        return None
    output = AlignOutput(
        args.output,
        "bam" if args.sorted else "sam",
        sort=args.sorted,
        index=False,
        threads=default_threads(scenario.instances * scenario.threads),
        striped=args.striped,
    )
    for each in output.stripes(scenario.instances):
        each.check(records=args.records, inputs=files)
    return output
