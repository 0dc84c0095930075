# SPDX-License-Identifier: Apache-2.0
"""``firsttouch advise``: recommends a scenario from trials within a budget."""

from __future__ import annotations

import argparse
import shlex
from typing import Any, get_args

from msgspec.structs import replace
from tabulate import tabulate

from firsttouch.advice import advice_text, advising, auto
from firsttouch.advice.aligner_inputs import InputRequest
from firsttouch.advice.comparison import Goal
from firsttouch.cli import options
from firsttouch.errors import BadInput
from firsttouch.execution.progress import say
from firsttouch.genomics.command_line import calls_aligner, parse
from firsttouch.genomics.sinks import AlignOutput
from firsttouch.host.topology import load
from firsttouch.records import atomic_files
from firsttouch.records.schema import collect
from firsttouch.units import format_bytes

EXAMPLES = """\
  firsttouch advise --aligner bwa-mem --index idx/hg --reads r1.fq.gz --reads2 r2.fq.gz
  firsttouch advise --aligner bowtie2 --index idx/hg --reads r.fq --budget 0.05 --apply -o out.sam --json
  firsttouch advise --aligner bwa-mem --dataset lambda --budget 1 --save results/bwa-mem.advice.json
  firsttouch advise --aligner bwa-mem --index idx/hg --reads r.fq.gz --index-cache interleave
  firsttouch advise --aligner bwa-mem --index idx/hg --reads r.fq.gz -- -Y -R '@RG\\tID:a\\tSM:b'
  firsttouch advise -- bwa mem -t 64 idx/hg r1.fq.gz r2.fq.gz
  firsttouch advise --repetitions 5 -- ./program --its-option

Trials take parts of the reads. Together they cost at most the budget: a part of the whole run that is predicted
for the recommended scenario, including the loading of the index. `firsttouch advice list` shows the saved advice,
which `firsttouch run -- COMMAND` follows."""


_OPTIONS = f"""\
--policies --options
--budget BUDGET             part of the whole run that trials may cost, such as 0.1 or 10%% (default:
                            {auto.BUDGET})
--measured RECORDS_OR_DIR...
                            take the aspects of this host from these records, folders or stores
--apply                     run the recommended scenario; needs --output
-o, --output FILE           the output file of --apply
--save FILE                 store the advice as …advice.json, for `firsttouch report`
--for GOAL                  with -- PROGRAM: what should be least, time (default) or energy, which is that of the
                            whole host and needs whole runs
--repetitions               runs of PROGRAM under each promising scenario (default: 3)
--timeout                   stop a run of PROGRAM after this time, such as 90 (seconds) or 12h
--share-host"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "advise", run, EXAMPLES)
    options.add(parser, "--aligner")
    options.add_inputs(parser)
    options.add(parser, "--threads")
    part = options.checked(options.part, "a part of the whole run: above 0, at most 1", lambda part: 0 < part <= 1)
    goals = {"dest": "goal", "choices": get_args(Goal), "default": "time"}
    options.add_table(
        parser,
        _OPTIONS,
        budget={"type": part, "default": auto.BUDGET},
        measured={"default": ()},
        repetitions={"default": 3},
        **{"for": goals},
    )
    options.add_user_command(
        parser, "an aligner's command, or any program and its arguments; with --aligner: the aligner's own options"
    )


def run(args: argparse.Namespace) -> int:
    """Advise for a program, or for an aligner on this host."""
    program = args.program if not args.aligner else ()
    if not args.aligner and not program:
        raise BadInput("--aligner or -- PROGRAM is needed")
    if args.save and not args.aligner:
        raise BadInput("--save stores the advice for an aligner: it needs --aligner")
    if args.index_cache and not args.aligner:
        raise BadInput("--index-cache is for trials of an aligner: it needs --aligner")
    if args.goal == "energy" and not program:
        raise BadInput("--for energy compares whole runs: put the program, or the aligner's command, after --")
    if not program:
        return _aligner(args)
    if args.apply or args.output:
        raise BadInput(
            f"--apply and --output are for --aligner: `firsttouch run -- {shlex.join(program)}` follows the advice"
        )
    command = parse(program) if calls_aligner(program) else None
    if command:
        command.refuse_overwriting()
    if command and not command.whole and args.goal == "time":
        _print(advising.of_command(command, _choices(args), args.budget, say=say), as_json=args.json)
        return 0
    choices = _choices(args)
    if command and not choices.threads:
        choices = replace(choices, threads=min(command.threads, load().usable_pu_count))
    document = advising.of_program(
        program, choices, say=say, goal=args.goal, rounds=args.repetitions, timeout=args.timeout
    )
    if args.json:
        options.print_json(document)
    else:
        _table(document)
    return 0


def _aligner(args: argparse.Namespace) -> int:
    if args.apply != (args.output is not None):
        raise BadInput("--apply and --output go together: the whole run needs a place for the alignments")
    if args.save:
        advice_text.check(args.save)
    asked = options.request(InputRequest, args)
    asked.with_options.version()
    given = asked.inputs()
    outputs = [file for file in (args.output, args.save) if file]
    atomic_files.refuse_overwriting(outputs, [*given.paths(), *args.measured])
    output = AlignOutput(args.output, "sam") if args.output else None
    if output:
        output.check(inputs=given.paths())
    document = advising.of_aligner(
        given,
        _choices(args),
        args.budget,
        say=say,
        save=args.save,
        output=output,
        command_line=options.command_line(),
    )
    _print(document, as_json=args.json)
    return 1 if document["applied"] and document["applied"]["status"] == "invalid" else 0


def _choices(args: argparse.Namespace) -> advising.Choices:
    """Return what is tried; reads the measured records."""
    return advising.Choices(
        policies=args.policies,
        options=args.options,
        threads=args.threads,
        measured=collect(args.measured),
        rates=options.measured_rates(load(), args.measured),
        share_host=args.share_host,
    )


def gain_text(gain: dict[str, float] | None) -> str | None:
    """Return the gain of a scenario for a table; None if it is unknown."""
    return f"{gain['expected']:.2f} ({gain['low']:.2f} to {gain['high']:.2f})" if gain else None


def _print(document: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        options.print_json(document)
    else:
        rows = [(r["name"], r["trials"], r["reason"] or r["state"]) for r in document["scenarios"]]
        print(tabulate(rows, ("scenario", "trials", "why"), maxcolwidths=[None, None, 70]))


def _table(document: dict[str, Any]) -> None:
    by_energy = any("joules" in row for row in document["policies"])
    better = "more frugal" if by_energy else "faster"
    shown = [
        (
            r["name"],
            r.get("joules") or r["seconds"],
            gain_text(r["gain"]),
            f"{format_bytes(r['memory']['huge_bytes'])} of {format_bytes(r['memory']['anonymous_bytes'])}"
            if r["memory"]
            else None,
            r["reason"] or " ".join(r["numactl"]),
        )
        for r in (*document["policies"], *document["scenarios"])
    ]
    costs = ("median J", "times less energy (90 %)") if by_energy else ("median s", "times as fast (90 %)")
    heads = ("scenario", *costs, "in huge pages", "")
    print(tabulate(shown, heads, missingval="-", maxcolwidths=[None, None, None, None, 60]))
    gain = "times less energy than" if by_energy else "times as fast as"
    for line in advice_text.option_lines(document["memory_options"], gain):
        print(line)
    print(
        f"use {document['scenario']}"
        + ("" if document["clear"] else f": nothing is clearly {better} than no policy and no option")
    )
    print(f"{document['runs']} runs took {document['spent_s']:.3g} s")
