# SPDX-License-Identifier: Apache-2.0
"""``firsttouch advise``: recommends a scenario from trials within a budget, or from stored times."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from tabulate import tabulate

from firsttouch.advice import advice_text, auto, saved
from firsttouch.advice.comparison import Comparison, Goal, compare
from firsttouch.advice.costs import aspects, candidates, default, index_banks, interval
from firsttouch.advice.posterior import Prior, prior
from firsttouch.advice.replay import read, replay
from firsttouch.advice.trials import advise
from firsttouch.cli import options, read_inputs
from firsttouch.errors import BadInput, one_line
from firsttouch.execution import host_lock, index_cache
from firsttouch.execution.progress import say
from firsttouch.genomics import launch
from firsttouch.genomics.command_line import UserCommand, calls_aligner, parse
from firsttouch.genomics.sinks import AlignOutput
from firsttouch.host.topology import load
from firsttouch.records import atomic_files
from firsttouch.records.schema import collect
from firsttouch.scenarios import evidence
from firsttouch.scenarios.memory_options import chosen, combinations, of_aligners
from firsttouch.scenarios.placement import Plan, Scenario, distinct, plan, with_threads
from firsttouch.units import format_bytes

EXAMPLES = """\
  firsttouch advise --aligner bwa-mem --index idx/hg --reads r1.fq.gz --reads2 r2.fq.gz
  firsttouch advise --aligner bowtie2 --index idx/hg --reads r.fq --budget 0.05 --apply -o out.sam --json
  firsttouch advise --aligner bwa-mem --dataset lambda --budget 1 --save results/bwa-mem.advice.json
  firsttouch advise --aligner bwa-mem --index idx/hg --reads r.fq.gz --index-cache interleave
  firsttouch advise --aligner bwa-mem --index idx/hg --reads r.fq.gz -- -Y -R '@RG\\tID:a\\tSM:b'
  firsttouch advise --replay times.csv --seed 7 --json
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
--replay FILE               choose from the times in this CSV file instead
--for GOAL                  with -- PROGRAM: what should be least, time (default) or energy, which is that of the
                            whole host and needs whole runs
--seed N                    seed of the noise of --replay (default: 0)
--repetitions               runs of PROGRAM under each promising scenario (default: 3)
--timeout                   stop a run of PROGRAM after this time, such as 90 (seconds) or 12h
--share-host"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    parser = options.command(subparsers, "advise", run, EXAMPLES)
    options.add(parser, "--aligner")
    read_inputs.add(parser)
    part = options.checked(options.part, "a part of the whole run: above 0, at most 1", lambda part: 0 < part <= 1)
    goals = {"dest": "goal", "choices": get_args(Goal), "default": "time"}
    options.add_table(
        parser,
        _OPTIONS,
        budget={"type": part, "default": auto.BUDGET},
        measured={"default": ()},
        seed={"type": options.natural, "default": 0},
        repetitions={"default": 3},
        **{"for": goals},
    )
    options.add_user_command(
        parser, "an aligner's command, or any program and its arguments; with --aligner: the aligner's own options"
    )


def run(args: argparse.Namespace) -> int:
    """Advise from a replay, for a program, or for an aligner on this host."""
    program = args.program if not args.aligner else ()
    ways = {"--aligner": args.aligner, "--replay": args.replay, "-- PROGRAM": program}
    given = [name for name, value in ways.items() if value]
    if len(given) != 1:
        raise BadInput(f"one of {', '.join(ways)} is needed" + (f", not {' and '.join(given)}" if given else ""))
    if args.save and not args.aligner:
        raise BadInput("--save stores the advice for an aligner: it needs --aligner")
    if args.index_cache != index_cache.AS_IS and not args.aligner:
        raise BadInput("--index-cache is for trials of an aligner: it needs --aligner")
    if args.goal == "energy" and not program:
        raise BadInput("--for energy compares whole runs: put the program, or the aligner's command, after --")
    if args.replay:
        return _replay(args)
    if program:
        command = parse(program) if calls_aligner(program) else None
        if command:
            command.refuse_overwriting()
        if command and not command.whole and args.goal == "time":
            return _command(args, command)
        args.threads = args.threads or (command and min(command.threads, load().usable_pu_count))
        return _program(args)
    return _aligner(args)


def _replay(args: argparse.Namespace) -> int:
    replayed = [replay(cell, args.seed, args.budget) for cell in read(args.replay)]
    if args.json:
        options.print_json({"cells": [c.to_dict() for c in replayed]})
        return 0
    rows = [
        (
            *map(one_line, (c.cell.aligner, c.cell.system, c.cell.dataset, c.row.name)),
            c.row.seconds,
            *(c.row.seconds / c.best.seconds, c.cell.default and c.cell.default.seconds / c.row.seconds),
            f"{c.spent:.2%}",
        )
        for c in replayed
    ]
    heads = ("aligner", "system", "dataset", "chosen", "s", "/ best", "default /", "spent")
    print(tabulate(rows, heads, floatfmt=("", "", "", "", ".2f", ".3f", ".2f"), missingval="-"))
    return 0


def _planned(
    args: argparse.Namespace,
    need: Any,
    index_bytes: int,
    sets: Sequence[Sequence[str]],
    whole: str = "",
) -> tuple[Plan, Prior, int]:
    """Return this host's plan, the prior of its scenarios, and the number of the default scenario.

    Scenarios also get each of *sets* of memory options. *whole* says why only scenarios of one instance are
    possible (empty: all are).
    """
    host = load()
    rates = options.measured_rates(host, args.measured)
    planned = plan(host, need, threads=args.threads, policies=args.policies, rates=rates)
    planned = planned.with_each(sets)
    if whole:
        rest = tuple((s.name, whole) for s in planned.scenarios if s.instances > 1 and not s.options)
        alone = tuple(s for s in planned.scenarios if s.instances == 1)
        planned = replace(planned, scenarios=alone, infeasible=(*planned.infeasible, *rest))
    try:
        usual = default(planned.scenarios)
    except ValueError:
        raise BadInput("--policies must include 'original': the gain is over the run without a policy") from None
    measured = aspects(host, collect(args.measured))
    return planned, prior(candidates(planned.scenarios), index_banks(host, index_bytes), measured), usual


def _aligner(args: argparse.Namespace) -> int:
    if args.apply != (args.output is not None):
        raise BadInput("--apply and --output go together: the whole run needs a place for the alignments")
    if args.save:
        advice_text.check(args.save)
    program = read_inputs.program(args)
    program.version()
    given = read_inputs.chosen(args, program)
    given.check(program)
    size = program.index_bytes(given.index)
    sets, refused = combinations(of_aligners(args.options), program.program)
    need = program.need(size, given.batch_bases)
    planned, expected, usual = _planned(args, need, size, sets, program.whole)
    outputs = [file for file in (args.output, args.save) if file]
    atomic_files.refuse_overwriting(outputs, [*given.paths(program), *args.measured])
    if args.output:
        AlignOutput(args.output, "sam").check(inputs=given.paths(program))
    work = launch.prepare(
        program, given.index, given.files, given.batch_bases, interleaved=args.interleaved, say=say
    )
    if args.index_cache != index_cache.AS_IS:
        files = program.index_paths(given.index)
        for scenario in planned.scenarios:
            index_cache.check(files, args.index_cache, scenario.placements, load())
        work = replace(work, index_cache=args.index_cache)
    with options.holding(share_host=args.share_host), host_lock.no_process_left():
        advice = advise(work, planned.scenarios, expected, args.budget, default=usual, say=say)
        document = advice_text.document(advice, usual, planned.infeasible, refused)
        for line in advice_text.lines(document):
            say(line)
        document = {**advice_text.header(), "aligner": program.label, "dataset": args.dataset, **document}
        if args.save:
            advice_text.write(document, args.save)
        if advice.belief is not None and advice.compared:
            total = max(s.instances * s.threads for s in planned.scenarios)
            key = saved.of_aligner(load(), program, given.index, threads=total, mates=work.reads.mates)
            saved.keep(
                key, document["recommended"], document["gain"] if document["clear"] else None, document, say
            )
        applied = None
        if args.apply:
            applied = _apply(
                replace(work, index_cache=""), planned.scenarios[advice.best], args.output, document["predicted_s"]
            )
    _print({**document, "applied": applied}, as_json=args.json)
    return 1 if applied and applied["status"] == "invalid" else 0


def gain_text(gain: dict[str, float] | None) -> str | None:
    """Return the gain of a scenario for a table; None if it is unknown."""
    return f"{gain['expected']:.2f} ({gain['low']:.2f} to {gain['high']:.2f})" if gain else None


def _command(args: argparse.Namespace, command: UserCommand) -> int:
    """Advise on a user's aligner command, which `firsttouch align` then runs as advised."""
    if args.apply:
        raise BadInput(f"--apply: `firsttouch run -- {command.described()}` follows the advice")
    if command.index is None:
        raise BadInput(f"the command names no index: {command.described()}")
    host = load()
    need = command.aligner.need(command.aligner.index_bytes(command.index))
    threads = min(args.threads or command.threads, host.usable_pu_count)
    rates = options.measured_rates(host, args.measured)
    planned = plan(host, need, threads=threads, policies=args.policies, rates=rates)
    measured = aspects(host, collect(args.measured))
    choosing = auto.Auto(command, host, planned, args.budget, measured=measured, options=args.options, say=say)
    with options.holding(share_host=args.share_host), host_lock.no_process_left():
        document = choosing.advise(say, strict=False)
    for line in advice_text.lines(document):
        say(line)
    _print(document, as_json=args.json)
    return 0


def _print(document: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        options.print_json(document)
    else:
        rows = [(r["name"], r["trials"], r["reason"] or r["state"]) for r in document["scenarios"]]
        print(tabulate(rows, ("scenario", "trials", "why"), maxcolwidths=[None, None, 70]))


def _apply(
    work: launch.Work, scenario: Scenario, output: Path, predicted: dict[str, float] | None
) -> dict[str, Any]:
    """Run the scenario with all reads, and compare the time with the predicted one."""
    result = launch.run(work, scenario, AlignOutput(output, "sam"), command_line=read_inputs.command_line())
    against = f", predicted were {predicted['expected']:.1f} s" if predicted else ""
    description = evidence.describe(result, unverified=evidence.COMPLETE)
    say(f"{scenario.name}: {result.seconds:.3f} s, {description}{against}")
    state = evidence.state(result)
    return {
        "seconds": result.seconds,
        "status": "valid" if state == "verified" else state,
        "reason": result.misplaced,
        "output": str(output),
        "measured_over_predicted": result.seconds / predicted["expected"] if predicted else None,
    }


def _program(args: argparse.Namespace) -> int:
    sets, refused = combinations(chosen(args.options), args.program[0])
    planned, expected, _ = _planned(args, None, 0, sets)
    most = max(s.threads for s in planned.scenarios if s.instances == 1)
    whole = [i for i, s in enumerate(planned.scenarios) if s.instances == 1 and s.threads == most]
    listed = [planned.scenarios[i] for i in whole]
    scenarios = distinct(listed)
    whole = [i for i in whole if planned.scenarios[i] in scenarios]
    usual = default(scenarios)
    part = Prior(expected.mean[whole], expected.covariance[whole][:, whole])
    with options.holding(share_host=args.share_host), host_lock.no_process_left():
        words = with_threads(args.program, most)
        began = time.monotonic()
        result = compare(
            words,
            scenarios,
            part,
            usual=usual,
            rounds=args.repetitions,
            timeout=args.timeout,
            say=say,
            goal=args.goal,
        )
        spent = time.monotonic() - began
    rows = [_row(result, i, usual) for i in range(len(scenarios))]
    if args.goal == "energy":
        rows = [row | {"seconds": None, "joules": row["seconds"]} for row in rows]
    alike = [_alike(s, scenarios[usual]) for s in listed if s not in scenarios]
    best = result.best
    skipped = [{"name": n, "reason": r} for n, r in planned.infeasible if n.startswith("1Inst_")]
    document = {
        "program": args.program,
        "scenario": scenarios[best].name,
        "recommended": scenarios[best].policy,
        "clear": result.clear,
        "interval": 0.9,
        "runs": result.runs,
        "spent_s": spent,
        "policies": [row for row in rows if not row["memory_options"]] + alike,
        "scenarios": [row for row in rows if row["memory_options"] and (row["samples"] or row["reason"])],
        "memory_options": advice_text.option_rows(
            result.belief,
            [s.options for s in scenarios],
            [len(own) for own in result.costs],
            {**result.needless, **result.dropped},
            refused,
        ),
        "infeasible": skipped,
    }
    if args.goal == "energy":
        say("advice for energy is not saved: `run` follows what is fastest; name the scenario to use it")
    elif result.compared:
        key = saved.of_program(load(), args.program, most)
        saved.keep(key, scenarios[best].name, rows[best]["gain"] if best != usual else None, document, say)
    else:
        say(f"only {scenarios[best].name} was tried, so nothing was compared: no advice is saved")
    if args.json:
        options.print_json(document)
    else:
        _table(document, scenarios[best])
    return 0


def _row(result: Comparison, number: int, usual: int) -> dict[str, Any]:
    """Return the JSON object of a scenario of a program."""
    scenario, own = result.scenarios[number], result.costs[number]
    memory = result.memory.get(number)
    return {
        "name": scenario.name,
        "policy": scenario.policy,
        "memory_options": list(scenario.options),
        "numactl": list(scenario.placements[0].numactl),
        "samples": list(own),
        "seconds": statistics.median(own) if own else None,
        "gain": interval(*result.belief.ratio(usual, number)) if own and result.costs[usual] else None,
        "memory": memory and memory.to_dict(),
        "status": "invalid" if number in result.dropped else "valid" if own else "not tried",
        "reason": result.dropped.get(number, ""),
    }


def _alike(scenario: Scenario, usual: Scenario) -> dict[str, Any]:
    """Return the JSON object of a scenario that was not tried because it is like the default run."""
    reason = f"like {usual.policy}: all memory is on one NUMA node"
    return {
        "name": scenario.name,
        "policy": scenario.policy,
        "memory_options": [],
        "numactl": list(scenario.placements[0].numactl),
        "samples": [],
        "seconds": None,
        "gain": None,
        "memory": None,
        "status": "not tried",
        "reason": reason,
    }


def _table(document: dict[str, Any], best: Scenario) -> None:
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
        f"use {best.name}"
        + ("" if document["clear"] else f": nothing is clearly {better} than no policy and no option")
    )
    print(f"{document['runs']} runs took {document['spent_s']:.3g} s")
