# SPDX-License-Identifier: Apache-2.0
"""Any program, unmodified, under a verified placement: `firsttouch run -- PROGRAM`, or measured: `run --check`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from firsttouch.cli import options
from firsttouch.errors import SUSPECT, BadInput, CannotHere, first_of
from firsttouch.execution import host_lock, pu_claims
from firsttouch.execution.child_process import names_of_living, signal_text
from firsttouch.execution.process_runner import Outcome, run_in_foreground
from firsttouch.execution.progress import say, write
from firsttouch.execution.ram_scratch import InMemory, scratch_in
from firsttouch.execution.tasks import Task, this_task
from firsttouch.host import grant
from firsttouch.host.cpusets import format_list
from firsttouch.host.emulation import host_name
from firsttouch.host.topology import Topology, load
from firsttouch.scenarios import evidence
from firsttouch.scenarios.placement import Scenario, TaskShare, parse_name, plan, plan_task, with_threads

#: Takes the document of a program, after its record and table were written or failed to be.
Tell = Callable[[Mapping[str, Any]], None]
#: The most processes, left behind by a program, that are named.
_NAMED = 4
#: State of the placement -> exit status of --verify.
_OF_PLACEMENT = {"verified": 0, "invalid": 1, "unverified": SUSPECT}


class ExecRequest(Struct, frozen=True):
    """How a program is run; the options of the same names describe the fields."""

    scenario: str = "auto"
    on: str = ""
    threads: int | None = None
    timeout: float | None = None
    scratch: InMemory | Path | None = None
    records: Path | None = None
    share_host: bool = False


def run(args: argparse.Namespace) -> int:
    """Run the program and return its exit status, with --verify the status of its placement."""
    request = options.request(ExecRequest, args)
    document = execute(args.program, request, lambda result: _tell(result, as_json=args.json))
    status: int = document["exit_status"]
    return _OF_PLACEMENT[document["placement"]] if args.verify and status == 0 else status


def run_check(args: argparse.Namespace) -> int:
    """Measure a check of the site and print its record; 1 if the placement did not hold."""
    from firsttouch.benchmarks import site_checks  # noqa: PLC0415 - see the package
    from firsttouch.benchmarks.recording import hold_and_record  # noqa: PLC0415

    spec = site_checks.load(args.check)
    spec = replace(spec, scenario=args.scenario) if args.scenario else spec
    with hold_and_record(args.records, share_host=args.share_host, say=say) as keep:
        record = site_checks.measure_program(
            spec, repetitions=args.repetitions or 3, timeout=args.timeout, threads=args.threads
        )
        keep([record])
    if args.json:
        options.print_json(record.to_dict())
    else:
        spread = f", spread {record.spread:.1%}" if record.repetitions > 1 else ""
        print(f"{record.check} {record.metric}: {record.value:g} {record.unit}{spread}")
    if record.status == "valid":
        return 0
    say(f"firsttouch: invalid: {record.reason}")
    return 1


def _tell(result: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the result of the program."""
    if as_json:
        import json  # noqa: PLC0415 - only with --json

        write(json.dumps(result) + "\n")
        return
    where, ending = "", ""
    if result["task"] is not None:
        (asked,) = result["placement_asked"]
        pus = f"PU{'s' * (len(asked['pus']) > 1)} {format_list(asked['pus'])}"
        where = f"task {result['task']} on {result['host']}, {pus}: "
    if result["signal"]:
        ending = f"ended by {signal_text(result['signal'])}, "
    elif result["exit_status"]:
        ending = f"ended with status {result['exit_status']}, "
    held = evidence.in_words(result["placement"], result["reason"], unverified="")
    say(f"firsttouch: {where}{result['scenario']}: {result['seconds']:.3f} s, {ending}{held}")


def execute(words: Sequence[str], request: ExecRequest, tell: Tell) -> dict[str, Any]:
    """Run a program in the foreground, and return the JSON document of `firsttouch run` for it.

    The program has the standard streams and descriptors of this process. Raises BadInput, CannotHere, Missing,
    TimedOut, and any other error that prevents the program from running.
    """
    if not words:
        raise BadInput("no program: give it after --, as in: firsttouch run 1x-interleave -- sort file")
    task = this_task()
    request = _with_task_number(request, task)
    _check_files(request)
    host = load()
    scenario = _scenario(request, words, host, task)
    placement = scenario.placements[0]
    is_alone = task is None or task.count == 1
    lacking = grant.lacking_pus(grant.asked_threads(words), host, None if is_alone else len(placement.pus))
    # All tasks of a host lack the same, so only one of them reports it.
    if task is None or task.local == 0:
        for warning in filter(None, (lacking, task.crowding(host) if task else "")):
            say(f"firsttouch: warning: {warning}")
    argv = with_threads(words, scenario.threads)
    # None, unless the user requests a number.
    stated = parse_name(request.scenario)
    usual = ["OMP_NUM_THREADS"] if request.threads or (stated and stated.threads) else []
    environment = dict.fromkeys(usual, str(scenario.threads))
    # A run that is not recorded has no measurements that others could disturb. Tasks run together.
    is_shared = not request.records or not is_alone
    # The user chose the PUs of --on, and the tasks of a host divide it.
    alone = pu_claims.claim_pus(scenario, host, lambda _: scenario, say)
    claiming = alone if is_alone else nullcontext((scenario, ""))
    with (
        host_lock.hold_unless_shared(say, share_host=request.share_host, shared=is_shared),
        claiming as (_, warning),
        scratch_in(request.scratch, placement.numa_nodes) as memory,
        # With a time limit, everything that the program started ends with it. Without one, it may leave daemons
        # behind.
        host_lock.no_process_left() if request.timeout else host_lock.new_descendants() as started,
    ):
        if warning:
            say(f"firsttouch: warning: {warning}")
        if memory:
            environment["TMPDIR"] = str(memory.folder)
        elif isinstance(request.scratch, Path):
            environment["TMPDIR"] = str(request.scratch.absolute())
        outcome = run_in_foreground(argv, placement, env=environment, timeout=request.timeout)
        detached = names_of_living(started())
    if detached:
        say(_left(detached, is_stopped=request.timeout is not None))
    document = _document(argv, scenario, outcome) | {
        "host": host_name(),
        "task": task and task.number,
        "scratch": memory and memory.to_dict(),
        "lacking": [lacking] if lacking else [],
        "detached": [{"pid": pid, "name": name} for pid, name in detached.items()],
    }
    try:
        if outcome.exit_status == 0:
            _keep(request, scenario, document, task)
    finally:  # even if the disk of the records is full
        tell(document)
    return document


def _with_task_number(request: ExecRequest, task: Task | None) -> ExecRequest:
    """Return the request with %t in names of files replaced by the number of this task, as srun does."""
    if not request.records:
        return request
    return replace(request, records=Path(str(request.records).replace("%t", str(task.number if task else 0))))


def _check_files(request: ExecRequest) -> None:
    """Raise BadInput if the program's results could not be written."""
    if request.records:
        from firsttouch.records import atomic_files, schema  # noqa: PLC0415 - most runs keep none

        atomic_files.refuse_overwriting([request.records], [])
        schema.check_appendable(request.records)


def _scenario(request: ExecRequest, words: Sequence[str], host: Topology, task: Task | None) -> Scenario:
    """Return the scenario of a program, with its placement."""
    count = task.count if task else 1
    if request.on or count > 1:
        share = task.share(host) if task and count > 1 else TaskShare(frozenset(host.allowed_pus))
        if request.on:
            share = replace(share, pus=share.pus & host.pus_on(request.on))
            if not share.pus:
                raise CannotHere(f"--on {request.on}: this process may use no PU there")
        name = "1x-default" if request.scenario == "auto" else request.scenario
        return plan_task(host, share, count, name, request.threads)
    if request.scenario == "auto":
        from firsttouch.advice import saved  # noqa: PLC0415 - see the package

        return saved.advised_scenario(host, words, request.threads, say)
    return plan(host).single_instance(request.scenario, request.threads)


def _keep(request: ExecRequest, scenario: Scenario, document: Mapping[str, Any], task: Task | None) -> None:
    """Write the record of a successful program."""
    if not request.records:
        return
    from firsttouch.benchmarks import site_checks  # noqa: PLC0415 - see the package
    from firsttouch.records import schema  # noqa: PLC0415

    reason = document["reason"]
    record = site_checks.record_of(
        site_checks.ProgramSpec(document["program"], "run"),
        scenario,
        [document["seconds"]],
        f"task {task.number}: {reason}" if task and reason else reason,
        document["placement_found"],
        lacking=document["lacking"],
    )
    schema.append(request.records, [record])


def _left(names: Mapping[int, str], *, is_stopped: bool) -> str:
    """Return the warning about processes, by number, that outlive the program."""
    named = first_of([f"{name} ({pid})" for pid, name in names.items()], _NAMED)
    then = "--timeout has stopped them" if is_stopped else "they go on"
    return f"firsttouch: warning: the program left processes ({named}): {then}, and the result is without them"


def _document(words: Sequence[str], scenario: Scenario, outcome: Outcome) -> dict[str, Any]:
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
        "placement_asked": [placement.to_dict() for placement in scenario.placements],
        "placement_found": [outcome.observed.to_dict()],
    }
