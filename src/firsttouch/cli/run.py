# SPDX-License-Identifier: Apache-2.0
"""``firsttouch run``: an aligner's command, any other program, or an aligner on a dataset under a placement."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from firsttouch.advice import BUDGET
from firsttouch.cli import options
from firsttouch.errors import BadInput
from firsttouch.execution import AS_IS, INDEX_STATES
from firsttouch.execution.progress import say
from firsttouch.genomics import Form
from firsttouch.genomics.recognition import recognize, undivided_because

EXAMPLES = """\
  firsttouch run -- bwa mem -t 64 ref.fa r1.fq.gz r2.fq.gz > out.sam         placed by saved advice, or by trials
  firsttouch run -- bwa mem -t 64 ref.fa r1.fq.gz r2.fq.gz | samtools sort -o out.bam
  firsttouch run 8x-bound -o out.bam --sort -- bowtie2 -p 64 -x idx/hg -1 a_1.fq.gz -2 a_2.fq.gz
  firsttouch run 8x-bound -o out.cram --reference ref.fa -- bwa mem -t 64 ref.fa r1.fq r2.fq
  zcat lanes/*.fq.gz | firsttouch run 4x16-bound -- minimap2 -ax map-ont -t 64 ref.mmi - > out.sam
  firsttouch run 1x-interleave -- ./program --its-option input > output   any program
  firsttouch run 1x16-interleave -- ./openmp-program           OMP_NUM_THREADS is 16
  firsttouch run 1x-local -- samtools sort -@ {threads} -o out.bam in.bam
  srun -n 8 -c 8 firsttouch run -- ./mpi-program               each task on its own NUMA node of eight PUs
  firsttouch run --check hpcg --repetitions 5 --records records.jsonl        checks/hpcg.yaml
  firsttouch run 1x-interleave --aligner bwa-mem --index idx/hg --reads r1.fq.gz --reads2 r2.fq.gz -o out.sam
  firsttouch run 2x-bound --aligner bwa-mem --index idx/hg --reads r.fq -o o.sam -- -R '@RG\\tID:a' -Y
  firsttouch run 2x-local --aligner bwa-mem --dataset lambda --repetitions 3 --records records.jsonl"""

DESCRIPTION = """\
Run a command of yours, or an aligner on a dataset, under a placement that is verified while it runs.

  firsttouch run [SCENARIO] -- COMMAND            your command as it is
  firsttouch run --check CHECK                    a program of the site, several times, as a record
  firsttouch run SCENARIO --aligner ALIGNER ...   an aligner on a dataset, or on an index and reads, timed and
                                                  recorded

The command of an aligner keeps its options; its reads and threads are divided among the instances. Standard
output is one SAM file in the order of the input. Any other program runs in one instance, with the standard
streams, open descriptors, environment and folder of this command, and gets the signals that this command gets;
the result is the last line on standard error. The exit status is the command's, or 128 plus the number of the
signal that ended a program.

Without SCENARIO, or with auto, saved advice for this kind of host and this command decides; else an aligner's
command gets what trials with its first reads recommend, within the budget, and any other program runs as it is."""

#: The kinds of runs, as words after "is" and after "for" in messages.
COMMAND, PROGRAM, CHECK, DATASET = (
    "the command of an aligner",
    "a program that is not an aligner",
    "--check",
    "--aligner",
)
#: Groups of options for only some kinds: title in the help -> the kinds.
_ALIGNERS, _COMMANDS, _RECORDS, _REPEATED = (
    "for aligners",
    "for the command of an aligner, or any other program",
    "for all but the command of an aligner",
    "for --check and --aligner",
)
_FITTING = {
    _COMMANDS: (COMMAND, PROGRAM),
    _ALIGNERS: (COMMAND, DATASET),
    _RECORDS: (PROGRAM, CHECK, DATASET),
    _REPEATED: (CHECK, DATASET),
    "for the command of an aligner": (COMMAND,),
    "for any other program": (PROGRAM,),
    "for an aligner on a dataset": (DATASET,),
}
_EXPECTED = r"[0-9a-fA-F]{64}(,[0-9a-fA-F]{64},[0-9]{1,18},[0-9]{1,18})?"


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    json_help = "print one JSON document; any other program has it on standard error, as the last line"
    parser = options.command(subparsers, "run", run, EXAMPLES, DESCRIPTION, json_help=json_help)
    options.add(
        parser,
        "scenario",
        nargs="?",
        help="a scenario of `firsttouch plan`, NxT-unbound (N x T threads, not bound), or auto (default)",
    )
    options.add(
        parser,
        "--threads",
        help="threads in total (default: as COMMAND states, else all usable PUs); any other program gets it in "
        "OMP_NUM_THREADS, if --threads or SCENARIO states it",
    )
    options.add(parser, "--timeout", "--share-host")
    source = parser.add_mutually_exclusive_group()
    options.add(source, "--aligner", help="run this aligner on --dataset, or on --index and --reads")
    source.add_argument("--check", metavar="CHECK", help="measure this check of the site, or its YAML file")
    groups = {title: parser.add_argument_group(title) for title in _FITTING}
    _add_shared(groups)
    _add_for_command(groups["for the command of an aligner"])
    _add_for_program(groups["for any other program"])
    _add_for_dataset(groups["for an aligner on a dataset"])
    options.add_user_command(
        parser,
        "an aligner's command, or any program and its arguments, in which {threads} becomes a number; with "
        "--aligner: the aligner's own options, for every instance",
        "COMMAND",
    )
    parser.set_defaults(groups=groups)


def _add_shared(groups: dict[str, argparse._ArgumentGroup]) -> None:
    options.add(groups[_COMMANDS], "--scratch")
    arg = groups[_ALIGNERS].add_argument
    options.add(
        groups[_ALIGNERS],
        "--output",
        help="the output file (default: standard output; with --dataset: not kept)",
    )
    arg("--sort", action="store_true", help="sort by coordinate")
    options.add(
        groups[_RECORDS],
        "--records",
        help="append the records to this JSON-lines file; %%t in the name is the number of the task that srun or "
        "mpirun started (0 without them)",
    )
    options.add(groups[_REPEATED], "--repetitions", help="timed runs (default: 1; with --check: 3)")


def _add_for_command(group: argparse._ArgumentGroup) -> None:
    arg = group.add_argument
    arg("-O", "--output-format", choices=get_args(Form), help="the output's format (default: by its suffix)")
    arg("--reference", type=Path, metavar="FASTA", help="the reference of CRAM output")
    arg(
        "--output-threads",
        type=options.positive,
        metavar="N",
        help="threads of each samtools, on the PUs of the scenario, at most the PUs that this process may use "
        "(default: an eighth of its threads)",
    )
    arg("--tsv", type=Path, metavar="FILE", help="write the run's time and placement as a table of one row (TSV)")
    options.add(group, "--multiqc")
    arg("--progress", choices=("text", "none"), help="messages about the progress (default: text)")
    options.add(group, "--budget", help=f"part of the whole run that trials of auto may cost (default: {BUDGET})")


def _add_for_program(group: argparse._ArgumentGroup) -> None:
    arg = group.add_argument
    arg(
        "--on",
        type=options.place,
        metavar="NODES",
        help="use only the PUs and the memory of these NUMA nodes, such as 0, 0-3 or all, or only the PUs of "
        "last-level caches, such as cache:3, and the nearest memory; pages elsewhere are a wrong placement",
    )
    arg(
        "--verify",
        action="store_true",
        help="if the program succeeds: end with 1 if its placement did not hold, with 4 if it could not be seen",
    )


def _add_for_dataset(group: argparse._ArgumentGroup) -> None:
    arg = group.add_argument
    options.add_inputs(group)
    states = ", ".join(f"{state} ({meaning})" for state, meaning in INDEX_STATES.items())
    cache = f"the index in the page cache before each timed run: {states}; default: {AS_IS}"
    arg("--index-cache", choices=tuple(INDEX_STATES), help=cache)
    arg(
        "--reads-per-thread",
        type=options.positive,
        metavar="N",
        help="measure throughput with N reads (pairs) per thread, repeating them if there are too few; no output",
    )
    arg("--counters", action="store_true", help="count events with perf stat (thesis section 2.5.2)")
    arg(
        "--if-installed",
        action="store_true",
        help="skip the run, instead of failing, if the aligner is not installed",
    )
    arg("--checksum", action="store_true", help="record SHA-256 sums of the alignments")
    arg(
        "--expect-sha256",
        type=options.accept(_reference, "a SHA-256 in hexadecimal, or two of them and two numbers"),
        metavar="SUM[,SUM,READS,MAPPED]",
        help="common_sha256 that the alignments must have; with alignments_sha256 and the numbers of reads and "
        "mapped reads of a run that had it, equal alignments are recognized faster",
    )


def _reference(text: str) -> object:
    from firsttouch.genomics.launch import Alignments  # noqa: PLC0415 - only for this option
    from firsttouch.genomics.sam import Checksums  # noqa: PLC0415

    if not re.fullmatch(_EXPECTED, text):
        raise ValueError(text)
    common, exact, reads, mapped = [*text.lower().split(","), "0", "0", "0"][:4]
    return Alignments(int(reads), int(mapped), Checksums(exact, common))


def run(args: argparse.Namespace) -> int:
    """Run the words after ``--``, --aligner or --check, and return the exit status."""
    kind = _kind(args.program, args)
    _refuse_unfit(kind, args)
    if kind == DATASET:
        from firsttouch.cli import run_dataset  # noqa: PLC0415 - each kind loads what the others need not

        return run_dataset.run(args)
    if kind == COMMAND:
        from firsttouch.cli import run_command  # noqa: PLC0415

        return run_command.run(args)
    from firsttouch.cli import run_program  # noqa: PLC0415

    if kind == CHECK:
        return run_program.run_check(args)
    if args.program and (why := undivided_because(args.program)):
        say(f"note: {why}")
    return run_program.run(args)


def _kind(words: Sequence[str], args: argparse.Namespace) -> str:
    if args.aligner is not None:
        return DATASET
    if args.check is not None:
        return CHECK
    return COMMAND if recognize(words) else PROGRAM


def _refuse_unfit(kind: str, args: argparse.Namespace) -> None:
    """Raise BadInput for an option that does not fit the kind of run."""
    for title, group in args.groups.items():
        for action in group._group_actions if kind not in _FITTING[title] else ():
            value = getattr(args, action.dest)
            if value is not None and value is not False:
                called = f"'{args.program[0]}' is {kind}" if args.program else "no command after --"
                given = f"{kind} is given" if kind in {CHECK, DATASET} else called
                raise BadInput(f"{action.option_strings[-1]} is {title}, and {given}")
    if kind == DATASET and not args.scenario:
        raise BadInput("--aligner needs a scenario before it, such as 1x-default")
    if kind == CHECK and args.program:
        raise BadInput("--check names the program: leave the words after -- out")
