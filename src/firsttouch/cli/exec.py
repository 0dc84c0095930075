# SPDX-License-Identifier: Apache-2.0
"""``firsttouch exec``: runs any program, unmodified, under a verified placement, in the foreground or measured."""

from __future__ import annotations

import argparse
import itertools
import json
import operator
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from firsttouch.cli import options
from firsttouch.errors import BadInput, CannotHere, FirstTouchError, first_of
from firsttouch.execution import energy, host_lock, tasks
from firsttouch.execution.child_process import names_of_living, signal_text
from firsttouch.execution.foreground import run_in_foreground
from firsttouch.execution.jobs import Outcome
from firsttouch.execution.progress import say, write
from firsttouch.host import grant
from firsttouch.host.cpusets import format_list
from firsttouch.host.emulation import host_name
from firsttouch.host.topology import Topology, load
from firsttouch.records import atomic_files
from firsttouch.records.schema import CHOICES, Record, append, check_appendable
from firsttouch.scenarios import evidence
from firsttouch.scenarios.placement import Placement, Scenario, parse_name, plan, plan_tasks, with_threads
from firsttouch.units import UNITS

if TYPE_CHECKING:
    from firsttouch.benchmarks.site_checks import ProgramSpec

EXAMPLES = """\
  firsttouch exec 1Inst_Interleave -- ./program --its-option input > output
  cat x.tsv | firsttouch exec 1Inst_Interleave -- sort -k1,1 | head
  firsttouch exec 1x16-interleave -- ./openmp-program           OMP_NUM_THREADS is 16
  srun -n 8 -c 8 firsttouch exec -- ./mpi-program               each task on its own NUMA node of eight PUs
  firsttouch exec 1Inst_Localalloc -- samtools sort -@ {threads} -o out.bam in.bam
  firsttouch exec -- ./program          under the scenario that `firsttouch advise -- ./program` recommended
  firsttouch exec --check sleeper --records records.jsonl -- ./program --its-option          its run time
  firsttouch exec --check hpcg --metric rate --unit GB/s --regex 'GB/s=(\\S+)' -- xhpcg
  firsttouch exec --site-check hpcg --repetitions 5 --records records.jsonl       checks/hpcg.yaml"""
DESCRIPTION = """\
Run any program, unmodified, under a placement that is verified while it runs.

The program gets the standard streams, open descriptors, environment and folder of this command, and the signals
that this command gets; no byte of its data passes through firsttouch. The exit status is the program's own, and
128 plus the number of the signal that ended it. The result is the last line on standard error, with --json a JSON
document, because the standard output belongs to the program.

With --check or --site-check, the program is measured instead: it runs several times, its output is kept for
--regex, the record is printed, and the exit status is 1 if the placement did not hold."""
#: Options of a run in the foreground, and of a measurement.
_FOREGROUND = ("on", "threads_env", "verify", "scratch", "idle", "tsv", "joined")
_MEASURING = ("metric", "unit", "better", "regex", "file", "repetitions")
#: Tasks of a step, and processes that a program leaves, that are named.
_NAMED = 4
#: What is said of a task that is not known to have run its program to the end.
_NO_RESULT = "no result: it was killed, stopped by --timeout, or could not start the program"
#: The exit status of --verify by the state of the placement.
_OF_PLACEMENT = {"verified": 0, "invalid": 1, "unverified": 3}


_OPTIONS = f"""\
--on NODES          use only the PUs and the memory of these NUMA nodes, such as 0, 0-3 or all; pages elsewhere
                    are a wrong placement
--threads           threads of the program (default: the scenario's, or all usable PUs)
--threads-env NAME  set this variable to the number of threads; may be repeated (default: OMP_NUM_THREADS, if a
                    number was asked for by --threads or SCENARIO, else none)
--verify            if the program succeeds: end with 1 if its placement did not hold, with 3 if it could not be
                    seen
--timeout           stop the program and all that it started after this time, such as 90 (seconds) or 12h
--idle
--scratch           set TMPDIR: {options.SHARED["--scratch"]["help"]}
--records           append a record of its run time to this JSON-lines file if it succeeds
--tsv               write its time, placement and energy as a table of one row (TSV) if it succeeds
--joined FILE       write one result of the tasks on all hosts of a step of srun to this JSON file, in a folder
                    that these hosts share
--share-host"""
_MEASURING_OPTIONS = """\
--check NAME        name of the check in the record
--site-check CHECK  a check of the site, or its YAML file, instead of SCENARIO, PROGRAM and the next five options
--metric NAME       name of the metric (default: time)
--unit UNIT         unit of the metric (default: s)
--better            whether higher or lower values are better (default: lower for times)
--regex REGEX       its group is the value; the last match counts (--timeout limits its search as well)
--file FILE         search this file, which the program writes, not its output
--repetitions       runs (default: 3)"""


def register(subparsers: options.Subparsers) -> None:
    """Add the command."""
    json_help = "print one JSON document: as the last line of standard error, with --check on standard output"
    parser = options.command(subparsers, "exec", run, EXAMPLES, DESCRIPTION, json_help=json_help)
    scenario_help = (
        "a scenario of one instance, or auto (default): the one that was advised, else the program as it is; "
        "with --check: 1Inst_Original"
    )
    options.add_table(parser, f"scenario [SCENARIO]  {scenario_help}", scenario={"default": "auto"})
    options.add_user_command(parser, "the program and its arguments; {threads} in them becomes a number")
    variable = options.checked(
        str, "the name of a variable", lambda name: bool(name) and not {"=", "\0"} & {*name}
    )
    repeated = {"action": "append", "type": variable}
    options.add_table(parser, _OPTIONS, on={"type": options.numbers_or_all}, threads_env=repeated)
    measuring = parser.add_argument_group("measure the program, several times")
    better = {"choices": CHOICES["better"]}
    options.add_table(
        measuring, _MEASURING_OPTIONS, unit={"choices": ["1", *UNITS]}, better=better, file={"type": str}
    )


def run(args: argparse.Namespace) -> int:
    """Run the program and return its exit status, or measure it."""
    is_measured = bool(args.check or args.site_check)
    wrong = (name for name in (_FOREGROUND if is_measured else _MEASURING) if getattr(args, name))
    for name in wrong:
        why = "not for a measurement (--check, --site-check)" if is_measured else "for a measurement: --check NAME"
        raise BadInput(f"--{name.replace('_', '-')} is {why}{'' if is_measured else ' is needed'}")
    if is_measured:
        from firsttouch.benchmarks import site_checks  # noqa: PLC0415 - see the package
        from firsttouch.benchmarks.recording import recording  # noqa: PLC0415

        keys = ("check", "metric", "unit", "better", "regex", "file", "program")
        given: dict[str, Any] = {key: getattr(args, key) for key in keys if getattr(args, key)}
        given |= {} if args.scenario == "auto" else {"scenario": args.scenario}
        with recording(args.records, share_host=args.share_host, say=say) as keep:
            record = site_checks.measure_program(
                _spec(args.site_check, given),
                repetitions=args.repetitions or 3,
                timeout=args.timeout,
                threads=args.threads,
            )
            keep([record])
        return _print_record(record, as_json=args.json)
    if not args.program:
        raise BadInput("no program: give it after --, as in: firsttouch run 1Inst_Interleave -- sort file")
    _check_files(args)
    host, meter = load(), energy.Meter()
    with tasks.of_this_step(args.joined) as step:
        asked = grant.asked_threads(args.program)
        if not step and (lacking := grant.lacking_pus(asked, host)):
            say(f"firsttouch: warning: {lacking}")
        if args.joined and (step is None or step.is_first):
            _join(args.joined, _named(step.names if step else [host_name()], [None]))
        numbers, scenario, own = _scenario(args, host, step)
        if step:
            lacking = grant.lacking_pus(asked, host, len(own.pus))
            if lacking and step.tasks.local == 0:
                say(f"firsttouch: warning: {lacking}")
        words = with_threads(args.program, scenario.threads)
        # None, unless the user asks for a number.
        stated = parse_name(args.scenario)
        usual = ["OMP_NUM_THREADS"] if args.threads or (stated and stated.threads) else []
        environment = dict.fromkeys(args.threads_env or usual, str(scenario.threads))
        # Of one run, nothing is measured that another could disturb, unless it is recorded. Tasks run together.
        with (
            host_lock.holding(say, share_host=args.share_host, shared=not args.records or step is not None),
            options.scratch(args.scratch, own.numa_nodes) as memory,
            # With a time limit, all that the program started ends with it. Without one, it may leave daemons.
            host_lock.no_process_left() if args.timeout else host_lock.new_descendants() as started,
        ):
            if args.scratch:
                environment["TMPDIR"] = str(memory.folder if memory else args.scratch.absolute())
            meter.begin(args.idle)
            try:
                outcome = run_in_foreground(
                    words, own, env=environment, timeout=args.timeout, watching=meter.watching()
                )
            except FirstTouchError:
                _end(args, step, scenario, numbers, None)
                raise
            used, detached = meter.end(), names_of_living(started())
        if detached:
            say(_left(detached, is_stopped=args.timeout is not None))
        document = _document(words, scenario, own, outcome) | {
            "scratch": memory and memory.to_dict(),
            "lacking": [lacking] if lacking else [],
            "energy": used.to_dict(),
            "detached": [{"pid": pid, "name": name} for pid, name in detached.items()],
        }
        _end(args, step, scenario, numbers, document)
    status = outcome.exit_status
    return _OF_PLACEMENT[evidence.state(outcome)] if args.verify and status == 0 else status


def _check_files(args: argparse.Namespace) -> None:
    """Raise BadInput if what the program leaves could not be written."""
    files = [file for file in (args.records, args.tsv, args.joined) if file]
    atomic_files.refuse_overwriting(files, [])
    if args.records:
        check_appendable(args.records)
    for file in filter(None, (args.tsv, args.joined)):
        atomic_files.check_place(file)
    if args.tsv and (hosts := len(grant.numbers_of_job("SLURM_STEP_TASKS_PER_NODE"))) > 1:
        raise BadInput(f"--tsv has one row, and each of {hosts} hosts would write its own: use --joined")


def _scenario(
    args: argparse.Namespace, host: Topology, step: tasks.Step | None
) -> tuple[list[int], Scenario, Placement]:
    """Return the numbers of this host's tasks, their scenario, and the placement of the program in it."""
    name = "1Inst_Original" if args.scenario == "auto" else args.scenario
    granted = frozenset(host.allowed_pus)
    if args.on:
        nodes = host.cpu_nodes if args.on == "all" else args.on
        granted &= {pu for node in nodes for pu in host.node(node).pus}
        if not granted:
            raise CannotHere(f"--on {format_list(nodes)}: this process may use no PU of these NUMA nodes")
    grants = step.grants(granted) if step else {0: granted}
    numbers = [*grants]
    if args.on or len(grants) > 1:
        scenario = plan_tasks(host, tasks.shares([*grants.values()]), name, args.threads)
    elif args.scenario == "auto":
        from firsttouch.advice import saved  # noqa: PLC0415 - see the package

        scenario = saved.advised(host, args.program, args.threads, say)
    else:
        scenario = plan(host).of_one_instance(args.scenario, args.threads)
    if not step:
        return numbers, scenario, scenario.placements[0]
    if step.tasks.local == 0 and len(grants) > 1:
        for warning in (tasks.overlap(grants, step.launcher), tasks.crowded(grants, step.pus, host)):
            if warning:
                say(f"firsttouch: warning: {warning}")
        say(f"firsttouch: {tasks.described(dict(zip(numbers, scenario.placements, strict=True)), host)}")
    return numbers, scenario, scenario.placements[step.tasks.local]


def _end(
    args: argparse.Namespace,
    step: tasks.Step | None,
    scenario: Scenario,
    numbers: Sequence[int],
    document: Mapping[str, Any] | None,
) -> None:
    """Leave the result of this program (None: it has none), and tell of all tasks that end with it."""
    results = step.tasks.ended(document) if step else [document]
    if results is None or (not step and document is None):
        return
    _keep(args, scenario, numbers, results)
    part = {"host": host_name(), "scenario": scenario.name, "numbers": numbers, "tasks": results}
    if step and step.hosts:
        names = step.hosts.hosts
        parts = step.hosts.ended(part, lambda parts: _join(args.joined, _named(names, parts)))
        if parts is not None:
            _tell(args, _named(names, parts))
        return
    if args.joined:
        _join(args.joined, [part])
    _tell(args, [part])


def _named(names: Sequence[str], parts: Sequence[dict[str, Any] | None]) -> list[dict[str, Any]]:
    """Return what each of the hosts *names* has left; one that left nothing has no tasks."""
    nothing = {"scenario": None, "numbers": None, "tasks": None}
    return [part or {"host": name, **nothing} for name, part in itertools.zip_longest(names, parts)]


def _join(file: Path, parts: Sequence[Mapping[str, Any]]) -> None:
    """Write the document of all hosts."""
    atomic_files.write(file, json.dumps({"hosts": parts}) + "\n")


def _tell(args: argparse.Namespace, parts: Sequence[Mapping[str, Any]]) -> None:
    """Print how the program went, in one or several tasks on each host; None is what was killed."""
    results = [
        (number, part["host"], result)
        for part in parts
        if part["tasks"]
        for number, result in zip(part["numbers"], part["tasks"], strict=True)
    ]
    if args.json:
        document = {"hosts": parts} if len(parts) > 1 else parts[0] if len(results) > 1 else results[0][2]
        write(json.dumps(document) + "\n")
        return
    scenarios = ", ".join(dict.fromkeys(part["scenario"] for part in parts if part["tasks"]))
    if len(parts) == len(results) == 1:
        ((_, _, only),) = results
        spent = f"{only['seconds']:.3f} s, {energy.in_words(only['energy'])}"
        say(f"firsttouch: {scenarios}: {spent}{_ending(only)}{_held(only)}")
        return
    seconds = sorted(result["seconds"] for _, _, result in results if result)
    odd = [
        f"task {number}{f' on {name}' * (len(parts) > 1)}: "
        f"{_NO_RESULT if result is None else _ending(result) + _held(result)}"
        for number, name, result in sorted(results, key=operator.itemgetter(0))
        if result is None or result["exit_status"] or result["placement"] != "verified"
    ]
    span = f"{seconds[0]:.3f} to {seconds[-1]:.3f} s, " if seconds else ""
    how = "all placements verified"
    if odd:
        good = len(results) - len(odd)
        how = f"{good} of {len(results)} succeeded with a verified placement; {first_of(odd, _NAMED, '; ')}"
    if silent := [part["host"] for part in parts if not part["tasks"]]:
        how += f"; no result of {first_of(silent, _NAMED)}"
    where = first_of([part["host"] for part in parts if part["tasks"]], _NAMED)
    number_of_tasks = f"{len(results)} task{'s' * (len(results) != 1)}"
    say(f"firsttouch: {scenarios}, {number_of_tasks} on {where}: {span}{how}")


def _keep(
    args: argparse.Namespace,
    scenario: Scenario,
    numbers: Sequence[int],
    results: Sequence[Mapping[str, Any] | None],
) -> None:
    """Write the record and the table of a program, in one or several tasks that ran side by side on this host."""
    done = [result for result in results if result is not None]
    programs = dict.fromkeys(Path(result["program"][0]).name for result in done)
    scenarios = dict.fromkeys(result["scenario"] for result in done)
    for what, different in (("different programs", programs), ("under different scenarios", scenarios)):
        if len(different) > 1:
            no_record = ", so there is no record" if args.records or args.tsv else ""
            say(f"firsttouch: warning: tasks ran {what} ({first_of([*different], _NAMED)}){no_record}")
            return
    if len(done) < len(results) or any(result["exit_status"] for result in done):
        return
    seconds = max(result["seconds"] for result in done)
    # Each task counted the whole host.
    longest = max((result["energy"] for result in done), key=lambda used: used.get("seconds", 0.0))
    if args.tsv:
        unlike = (result["placement"] for result in done if result["placement"] != "verified")
        run = {"seconds": seconds, "placement": next(unlike, "verified"), "energy": longest}
        atomic_files.write(args.tsv, energy.table(Path(done[0]["program"][0]).name, scenario.name, run))
    if not args.records:
        return
    from firsttouch.benchmarks import site_checks  # noqa: PLC0415 - see the package

    spec = site_checks.ProgramSpec(done[0]["program"], "exec")
    reasons = [result["reason"] for result in done]
    if len(done) > 1:
        reasons = [reason and f"task {number}: {reason}" for number, reason in zip(numbers, reasons, strict=True)]
    record = site_checks.record_of(
        spec,
        scenario,
        [seconds],
        next(filter(None, reasons), ""),
        [result["placement_found"][0] for result in done],
        lacking=done[0]["lacking"],
    )
    append(args.records, [record, *energy.records(record, [longest])])


def _ending(result: Mapping[str, Any]) -> str:
    """Return how a program ended if not with 0, as the beginning of a sentence."""
    status, number = result["exit_status"], result["signal"]
    if number:
        return f"ended by {signal_text(number)}, "
    return f"ended with status {status}, " if status else ""


def _left(names: Mapping[int, str], *, is_stopped: bool) -> str:
    """Return the warning about processes, by number, that outlive the program."""
    named = first_of([f"{name} ({pid})" for pid, name in names.items()], _NAMED)
    then = "--timeout has stopped them" if is_stopped else "they go on"
    return f"firsttouch: warning: the program left processes ({named}): {then}, and the result is without them"


def _held(result: Mapping[str, Any]) -> str:
    """Return in a few words whether a placement held."""
    return evidence.in_words(result["placement"], result["reason"], unverified="")


def _spec(site_check: str | None, given: Mapping[str, Any]) -> ProgramSpec:
    """Return the check that the options describe, or the site's."""
    from firsttouch.benchmarks import site_checks  # noqa: PLC0415 - see the package

    if site_check and given:
        raise BadInput(f"--site-check brings the check: leave {', '.join(given)} out")
    if not site_check and "program" not in given:
        raise BadInput("--check NAME and -- PROGRAM are needed (or --site-check CHECK)")
    return site_checks.load(site_check) if site_check else site_checks.ProgramSpec(**given)


def _print_record(record: Record, *, as_json: bool) -> int:
    """Print the record of a measurement; 1 if the placement did not hold."""
    if as_json:
        options.print_json(record.to_dict())
    else:
        spread = f", spread {record.spread:.1%}" if record.repetitions > 1 else ""
        print(f"{record.check} {record.metric}: {record.value:g} {record.unit}{spread}")
    if record.status == "valid":
        return 0
    say(f"firsttouch: invalid: {record.reason}")
    return 1


def _document(words: Sequence[str], scenario: Scenario, placement: Placement, outcome: Outcome) -> dict[str, Any]:
    return {
        "program": list(words),
        "scenario": scenario.name,
        "threads": scenario.threads,
        "exit_status": outcome.exit_status,
        "signal": max(0, -outcome.status),
        "seconds": outcome.seconds,
        "cpu_seconds": outcome.cpu_seconds,
        "user_seconds": outcome.user_seconds,
        "peak_bytes": outcome.peak_bytes,
        "placement": evidence.state(outcome),
        "reason": outcome.misplaced,
        "placement_asked": [placement.to_dict()],
        "placement_found": [outcome.observed.to_dict()],
    }
