# SPDX-License-Identifier: Apache-2.0
"""``firsttouch align``: runs the user's own aligner command under a placement, as part of any pipeline."""

from __future__ import annotations

import argparse
from typing import get_args

from firsttouch.advice.aligning import CHECKPOINT, AlignRequest, align
from firsttouch.advice.auto import BUDGET
from firsttouch.cli import options
from firsttouch.errors import ProgramFailed
from firsttouch.execution import energy
from firsttouch.execution.child_process import exit_status
from firsttouch.execution.progress import say
from firsttouch.genomics.sinks import Form
from firsttouch.records import atomic_files

EXAMPLES = """\
  firsttouch align -- bwa mem -t 64 -R '@RG\\tID:a\\tSM:b' -Y ref.fa r1.fq.gz r2.fq.gz > out.sam
  firsttouch align -- bwa mem -t 64 ref.fa r1.fq.gz r2.fq.gz | samtools sort -o out.bam
  firsttouch align -o out.bam --sort -- bowtie2 --very-sensitive -p 64 -x idx/hg -1 a_1.fq.gz -2 a_2.fq.gz
  firsttouch align 8Inst_Original -o out.cram --reference ref.fa --resume -- bwa mem -t 64 ref.fa r1.fq r2.fq
  firsttouch align 8Inst_Original+node-index -- bowtie2 -p 64 -x idx/hg -1 a_1.fq.gz -2 a_2.fq.gz > out.sam
  zcat lanes/*.fq.gz | firsttouch align 4x16-bound -- minimap2 -ax map-ont -t 64 ref.mmi - > out.sam

The words behind -- are your own command, unchanged: its options go to each instance, its threads are divided among
them. Standard output is one SAM file in the order of the input, and the exit status is the aligner's. The default
scenario, auto, is that of saved advice for this kind of host, program and index; else the one that trials with the
first reads recommend, within the budget; else your command runs as it is."""


_OPTIONS = f"""\
scenario [SCENARIO]         a scenario of `firsttouch plan`, or auto (default)
-o, --output FILE           the output file (default: standard output)
-O, --output-format         its format (default: by its suffix)
--sort                      sort by coordinate, and write the index
--markdup                   sort, and mark duplicates
--reference FASTA           the reference of CRAM output and input
--output-threads N          threads of each samtools, on the PUs of the scenario, at most the PUs that this
                            process may use (default: an eighth of its threads)
--resume                    keep finished parts of the output, and use those of the same command if it was
                            stopped; needs -o
--checkpoint BASES          with --resume: bases of a part that is kept (default: 20G)
--dynamic                   give reads to the instance with the most room, instead of in turn
--threads                   threads in total, in place of the command's own number
--progress {{text,json,none}}
                            messages about the progress (default: text)
--per-instance              show the progress of each instance too
--budget BUDGET             part of the whole run that trials of auto may cost, such as 10%%; 0: none (default:
                            {BUDGET})
--multiqc                   write this run's time, placement and energy as columns of MultiQC
--tsv --scratch --policies --options --timeout --idle --share-host"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "align", run, EXAMPLES)
    part = options.checked(options.part, "a part of the whole run: 0 to 1", lambda part: 0 <= part <= 1)
    options.add_table(
        parser,
        _OPTIONS,
        scenario={"default": "auto"},
        output_format={"choices": get_args(Form)},
        checkpoint={"default": CHECKPOINT},
        budget={"type": part, "default": BUDGET},
    )
    options.add_user_command(parser, "the aligner's command, as it is run without firsttouch")


def run(args: argparse.Namespace) -> int:
    """Align, print or write what is asked for of the run, and return the aligner's exit status."""
    tables = tuple(file for file in (args.multiqc, args.tsv) if file)
    try:
        aligned = align(args.program, options.request(AlignRequest, args, tables=tables))
    except ProgramFailed as error:
        if str(error):
            say(f"firsttouch: error: {error}")
        return exit_status(error.status)
    if args.json:
        options.print_json(aligned.document)
    if args.tsv:
        text = energy.table(aligned.sample, aligned.document["scenario"]["name"], aligned.summary)
        atomic_files.write(args.tsv, text)
    if args.multiqc:
        from firsttouch.report import multiqc  # noqa: PLC0415 - a run without a report needs no tables

        atomic_files.write(args.multiqc, multiqc.of_run(aligned.sample, aligned.summary))
    return 0
