# SPDX-License-Identifier: Apache-2.0
"""``firsttouch advise``: recommends a scenario from trials within a budget, and lists or deletes saved advice."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from firsttouch import paths
from firsttouch.advice import BUDGET, advice_text, advising, saved
from firsttouch.advice.aligner_inputs import InputRequest
from firsttouch.cli import options
from firsttouch.errors import BadInput
from firsttouch.execution.progress import say, tabular
from firsttouch.genomics.command_line import parse
from firsttouch.genomics.recognition import recognize
from firsttouch.host.topology import load
from firsttouch.records import atomic_files
from firsttouch.units import format_bytes

EXAMPLES = """\
  firsttouch advise --aligner bwa-mem --index idx/hg --reads r1.fq.gz --reads2 r2.fq.gz
  firsttouch advise --aligner bowtie2 --index idx/hg --reads r.fq --budget 0.05 --json
  firsttouch advise --aligner bwa-mem --dataset lambda --budget 1
  firsttouch advise --aligner bwa-mem --index idx/hg --reads r.fq.gz -- -Y -R '@RG\\tID:a\\tSM:b'
  firsttouch advise -- bwa mem -t 64 idx/hg r1.fq.gz r2.fq.gz
  firsttouch advise --repetitions 5 -- ./program --its-option
  firsttouch advise --list                    the saved advice, and whether it applies here
  firsttouch advise --forget 0c8f2d11

Trials take parts of the reads. Together they cost at most the budget: a part of the whole run that is predicted
for the recommended scenario, including the loading of the index. The advice is saved, and `firsttouch run --
COMMAND` follows it."""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "advise", run, EXAMPLES)
    instead = parser.add_mutually_exclusive_group()
    options.add(instead, "--aligner")
    instead.add_argument("--list", action="store_true", help="list the saved advice, and whether it applies here")
    ids = "delete saved advice: an id, as --list shows it"
    instead.add_argument("--forget", nargs="+", metavar="ID", help=ids)
    options.add_inputs(parser)
    options.add(parser, "--threads", "--policies", "--options")
    part = options.accept(options.part, "a part of the whole run: above 0, at most 1", lambda part: 0 < part <= 1)
    budget = f"part of the whole run that trials may cost, such as 0.1 or 10%% (default: {BUDGET})"
    options.add(parser, "--budget", type=part, default=BUDGET, help=budget)
    runs = "runs of PROGRAM under each promising scenario (default: 3)"
    options.add(parser, "--repetitions", default=3, help=runs)
    options.add(parser, "--timeout", "--share-host")
    options.add_user_command(
        parser, "an aligner's command, or any program and its arguments; with --aligner: the aligner's own options"
    )


def run(args: argparse.Namespace) -> int:
    """Advise for a program, or for an aligner on this host; or list or delete saved advice."""
    if args.list:
        return _list(as_json=args.json)
    if args.forget:
        return _forget(args.forget, as_json=args.json)
    atomic_files.check_place(paths.advice() / "advice.json", creates=True)
    if args.aligner:
        return _aligner(args)
    if not args.program:
        raise BadInput("--aligner or -- PROGRAM is needed")
    return _program(args.program, args)


def _program(program: Sequence[str], args: argparse.Namespace) -> int:
    command = parse(program) if recognize(program) else None
    if command:
        command.refuse_overwriting()
    if command and not command.whole:
        _print(advising.advise_command(command, _choices(args), args.budget, say=say), as_json=args.json)
        return 0
    choices = _choices(args)
    if command and not choices.threads:
        choices = replace(choices, threads=min(command.threads, load().usable_pu_count))
    document = advising.advise_program(program, choices, say=say, rounds=args.repetitions, timeout=args.timeout)
    if args.json:
        options.print_json(document)
    else:
        _table(document)
    return 0


def _aligner(args: argparse.Namespace) -> int:
    asked = options.request(InputRequest, args)
    asked.with_options.version()
    given = asked.inputs()
    atomic_files.refuse_overwriting([], given.paths())  # by the standard output
    document = advising.advise_aligner(given, _choices(args), args.budget, say=say)
    _print(document, as_json=args.json)
    return 0


def _choices(args: argparse.Namespace) -> advising.Choices:
    """Return the scenarios and options to try."""
    return advising.Choices(
        policies=args.policies,
        options=args.options,
        threads=args.threads,
        share_host=args.share_host,
    )


def _gain_text(gain: dict[str, float] | None) -> str | None:
    """Return the gain of a scenario for a table; None if unknown."""
    return f"{gain['expected']:.2f} ({gain['low']:.2f} to {gain['high']:.2f})" if gain else None


def _print(document: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        options.print_json(document)
    else:
        rows = [(r["name"], r["trials"], r["reason"] or r["state"]) for r in document["scenarios"]]
        print(tabular(rows, ("scenario", "trials", "why")))


def _table(document: dict[str, Any]) -> None:
    shown = [
        (
            r["name"],
            r["seconds"],
            _gain_text(r["gain"]),
            f"{format_bytes(r['memory']['huge_bytes'])} of {format_bytes(r['memory']['anonymous_bytes'])}"
            if r["memory"]
            else None,
            r["reason"] or " ".join(r["numactl"]),
        )
        for r in (*document["policies"], *document["scenarios"])
    ]
    heads = ("scenario", "median s", "times as fast (90 %)", "in huge pages", "")
    print(tabular(shown, heads))
    for line in advice_text.option_lines(document["memory_options"]):
        print(line)
    print(
        f"use {document['scenario']}"
        + ("" if document["clear"] else ": no scenario is clearly faster than the default run")
    )
    print(f"{document['runs']} runs took {document['spent_s']:.3g} s")


def _forget(ids: Sequence[str], *, as_json: bool) -> int:
    """Delete advice; with --json print the deleted advice."""
    for number in ids:
        saved.forget(number)
    if as_json:
        options.print_json({"forgotten": ids})
    return 0


def _list(*, as_json: bool) -> int:
    """Print the saved advice."""
    here = saved.describe_host(load())
    stored = list(saved.entries(say))
    if as_json:
        options.print_json([{**s.to_dict(), "applies_here": not s.refusal(here)} for s in stored])
        return 0
    if not stored:
        print("no advice: `firsttouch advise -- PROGRAM` or the trials of `firsttouch run -- COMMAND` save some")
        return 0
    rows = [
        (
            s.key.id,
            " ".join([s.key.program, *s.key.words]),
            s.key.index.partition(",")[0],
            s.key.threads,
            s.scenario,
            _gain_text(s.gain),
            s.time[:10],
            "no: " + reason if (reason := s.refusal(here)) else "yes",
        )
        for s in stored
    ]
    heads = ("id", "program", "index", "threads", "scenario", "gain (90 %)", "date", "applies here")
    print(tabular(rows, heads))
    return 0
