# SPDX-License-Identifier: Apache-2.0
"""``firsttouch run``: runs one scenario of an aligner and verifies its placement."""

from __future__ import annotations

import argparse
import re

from firsttouch.advice.timed_runs import RunRequest, run_aligner
from firsttouch.cli import options
from firsttouch.execution.progress import say
from firsttouch.genomics import launch
from firsttouch.genomics.sam import Checksums
from firsttouch.records import atomic_files, step_outcome

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

  firsttouch run [SCENARIO] -- COMMAND            your command as it is; `firsttouch help align` has all options
                                                  for the command of an aligner, `firsttouch help exec` for others
  firsttouch run SCENARIO --aligner ALIGNER ...   an aligner on a dataset, or on an index and reads, timed and
                                                  recorded"""
_EXPECTED = re.compile(r"[0-9a-fA-F]{64}(,[0-9a-fA-F]{64},[0-9]{1,18},[0-9]{1,18})?")


_COMMON = """\
--threads  threads in total (default: those of COMMAND, else all usable PUs)
--timeout --idle --share-host"""
_OPTIONS = """\
--dynamic             give batches to the instances as they take them, instead of one fixed part to each
--reads-per-thread N  measure throughput: N reads (pairs) per thread, repeated if there are too few; no output
--repetitions         timed runs (default: 1)
--counters            count events with perf stat (thesis section 2.5.2)
--if-installed        skip the run, instead of failing, if the aligner is not installed
--records
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
    options.add_table(parser, _COMMON)
    measuring = parser.add_argument_group("with --aligner only")
    options.add(measuring, "--aligner", required=True)
    options.add_inputs(measuring, threads=False)
    options.add_table(measuring, "-o, --output FILE  the output file (default with --dataset: not kept)")
    form = measuring.add_mutually_exclusive_group()
    options.add_table(form, "--striped  a SAM file per instance: out.0.sam, out.1.sam, ...")
    options.add_table(form, "--sort  one BAM file, by `samtools sort`")
    sums = options.checked(_reference, "a SHA-256 in hexadecimal, or two of them and two numbers")
    options.add_table(measuring, _OPTIONS, repetitions={"default": 1}, expect_sha256={"type": sums})
    options.add_user_command(parser, "the aligner's own options, for every instance", "OPTION")


def _reference(text: str) -> launch.Alignments:
    if not _EXPECTED.fullmatch(text):
        raise ValueError(text)
    common, exact, reads, mapped = [*text.lower().split(","), "0", "0", "0"][:4]
    return launch.Alignments(int(reads), int(mapped), Checksums(exact, common))


def run(args: argparse.Namespace) -> int:
    """Run the scenario and print the result; 1 if the run failed."""
    tables = (args.multiqc,) if args.multiqc else ()
    ran = run_aligner(options.request(RunRequest, args, tables=tables, command_line=options.command_line()))
    if args.multiqc:
        from firsttouch.report import multiqc  # noqa: PLC0415 - a run without a report needs no tables

        sections = multiqc.of_records(ran.records)  # an invalid run has no time to show
        energy_file = args.multiqc.with_name(args.multiqc.name.replace("_mqc.json", "_energy_mqc.json"))
        places = {multiqc.SCENARIOS: args.multiqc, multiqc.ENERGY: energy_file}
        for name, section in sections.items():
            atomic_files.write(places[name], section)
    if args.json:
        options.print_json([r.to_dict() for r in ran.records] if args.counters else ran.records[0].to_dict())
    else:
        options.print_files(ran.files)
    if ran.fault:
        say(f"firsttouch: invalid: {ran.fault}")
    step_outcome.state("invalid" if ran.fault else "measured", ran.fault)
    return 1 if ran.fault else 0
