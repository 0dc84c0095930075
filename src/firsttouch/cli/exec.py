# SPDX-License-Identifier: Apache-2.0
"""``firsttouch exec``: runs any program, unmodified, under a verified placement, in the foreground or measured."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from firsttouch.advice.executing import ExecRequest, execute
from firsttouch.cli import options
from firsttouch.errors import BadInput
from firsttouch.execution import energy
from firsttouch.execution.child_process import signal_text
from firsttouch.execution.progress import say, write
from firsttouch.host.cpusets import format_list
from firsttouch.records.schema import CHOICES, Record
from firsttouch.scenarios import evidence
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
_FOREGROUND = ("on", "threads_env", "verify", "scratch", "idle", "tsv")
_MEASURING = ("metric", "unit", "better", "regex", "file", "repetitions")
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
--records           append a record of its run time to this JSON-lines file if it succeeds; %%t in the name is the
                    number of the task that srun or mpirun started (0 without them)
--tsv               write its time, placement and energy as a table of one row (TSV) if it succeeds; %%t as above
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
    is_measured = args.check is not None or args.site_check is not None
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
    request = options.request(ExecRequest, args)
    document = execute(args.program, request, lambda result: _tell(result, as_json=args.json))
    status: int = document["exit_status"]
    return _OF_PLACEMENT[document["placement"]] if args.verify and status == 0 else status


def _tell(result: Mapping[str, Any], *, as_json: bool) -> None:
    """Print how the program went."""
    if as_json:
        write(json.dumps(result) + "\n")
        return
    where, used = "", ""
    if result["task"] is None:
        used = energy.in_words(result["energy"])
    else:  # each task counts the energy of the whole host
        (asked,) = result["placement_asked"]
        pus = f"PU{'s' * (len(asked['pus']) > 1)} {format_list(asked['pus'])}"
        where = f"task {result['task']} on {result['host']}, {pus}: "
    spent = f"{result['seconds']:.3f} s, {used}"
    say(f"firsttouch: {where}{result['scenario']}: {spent}{_ending(result)}{_held(result)}")


def _ending(result: Mapping[str, Any]) -> str:
    """Return how a program ended if not with 0, as the beginning of a sentence."""
    status, number = result["exit_status"], result["signal"]
    if number:
        return f"ended by {signal_text(number)}, "
    return f"ended with status {status}, " if status else ""


def _held(result: Mapping[str, Any]) -> str:
    """Return in a few words whether a placement held."""
    return evidence.in_words(result["placement"], result["reason"], unverified="")


def _spec(site_check: str | None, given: Mapping[str, Any]) -> ProgramSpec:
    """Return the check that the options describe, or the site's."""
    from firsttouch.benchmarks import site_checks  # noqa: PLC0415 - see the package

    if site_check and given:
        raise BadInput(f"--site-check brings the check: leave {', '.join(given)} out")
    if not site_check and not {"check", "program"} <= given.keys():
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
