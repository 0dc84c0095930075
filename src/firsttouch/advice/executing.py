# SPDX-License-Identifier: Apache-2.0
"""Any program under a placement that is verified while it runs, in the foreground: what `firsttouch exec` does."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from firsttouch.errors import BadInput, CannotHere, FirstTouchError, first_of
from firsttouch.execution import energy, host_lock, tasks
from firsttouch.execution.child_process import names_of_living
from firsttouch.execution.foreground import run_in_foreground
from firsttouch.execution.jobs import Outcome
from firsttouch.execution.progress import say
from firsttouch.execution.ram_scratch import InMemory, scratch_in
from firsttouch.host import grant
from firsttouch.host.cpusets import format_list
from firsttouch.host.emulation import host_name
from firsttouch.host.topology import Topology, load
from firsttouch.records import atomic_files
from firsttouch.records.schema import append, check_appendable
from firsttouch.scenarios import evidence
from firsttouch.scenarios.placement import Placement, Scenario, parse_name, plan, plan_tasks, with_threads

#: Takes what each host has left when the last program of a step ends: its name, and the results of its tasks.
Tell = Callable[[Sequence[Mapping[str, Any]]], None]
#: What is named of tasks, hosts, processes that a program leaves, and programs or scenarios that differ.
NAMED = 4


class ExecRequest(Struct, frozen=True):
    """How a program is run; the options of the same names describe the fields."""

    scenario: str = "auto"
    on: Sequence[int] | Literal["all"] | None = None
    threads: int | None = None
    threads_env: Sequence[str] | None = None
    timeout: float | None = None
    idle: float | None = None
    scratch: InMemory | Path | None = None
    records: Path | None = None
    tsv: Path | None = None
    joined: Path | None = None
    share_host: bool = False


def execute(words: Sequence[str], request: ExecRequest, tell: Tell) -> dict[str, Any]:
    """Run a program in the foreground, and return the JSON document of `firsttouch exec` for it.

    The program has the standard streams and descriptors of this process. Raises BadInput, CannotHere, Missing or
    TimedOut, and whatever else keeps the program from running.
    """
    if not words:
        raise BadInput("no program: give it after --, as in: firsttouch run 1Inst_Interleave -- sort file")
    _check_files(request)
    host, meter = load(), energy.Meter()
    with tasks.of_this_step(request.joined) as step:
        asked = grant.asked_threads(words)
        if not step and (lacking := grant.lacking_pus(asked, host)):
            say(f"firsttouch: warning: {lacking}")
        if request.joined and (step is None or step.is_first):
            _join(request.joined, _named(step.names if step else [host_name()], [None]))
        numbers, scenario, own = _scenario(request, words, host, step)
        if step:
            lacking = grant.lacking_pus(asked, host, len(own.pus))
            if lacking and step.tasks.local == 0:
                say(f"firsttouch: warning: {lacking}")
        ending = _Ending(request, tell, step, scenario, numbers)
        argv = with_threads(words, scenario.threads)
        # None, unless the user asks for a number.
        stated = parse_name(request.scenario)
        usual = ["OMP_NUM_THREADS"] if request.threads or (stated and stated.threads) else []
        environment = dict.fromkeys(request.threads_env or usual, str(scenario.threads))
        is_shared = not request.records or step is not None
        # Of one run, nothing is measured that another could disturb, unless it is recorded. Tasks run together.
        with (
            ending.also_without_result(),
            host_lock.holding(say, share_host=request.share_host, shared=is_shared),
            scratch_in(request.scratch, own.numa_nodes) as memory,
            # With a time limit, all that the program started ends with it. Without one, it may leave daemons.
            host_lock.no_process_left() if request.timeout else host_lock.new_descendants() as started,
        ):
            if memory:
                environment["TMPDIR"] = str(memory.folder)
            elif isinstance(request.scratch, Path):
                environment["TMPDIR"] = str(request.scratch.absolute())
            meter.begin(request.idle)
            outcome = run_in_foreground(
                argv, own, env=environment, timeout=request.timeout, watching=meter.watching()
            )
            used, detached = meter.end(), names_of_living(started())
        if detached:
            say(_left(detached, is_stopped=request.timeout is not None))
        document = _document(argv, scenario, own, outcome) | {
            "scratch": memory and memory.to_dict(),
            "lacking": [lacking] if lacking else [],
            "energy": used.to_dict(),
            "detached": [{"pid": pid, "name": name} for pid, name in detached.items()],
        }
        ending.end(document)
    return document


def _check_files(request: ExecRequest) -> None:
    """Raise BadInput if what the program leaves could not be written."""
    files = [file for file in (request.records, request.tsv, request.joined) if file]
    atomic_files.refuse_overwriting(files, [])
    if request.records:
        check_appendable(request.records)
    for file in filter(None, (request.tsv, request.joined)):
        atomic_files.check_place(file)
    if request.joined and atomic_files.is_stream(request.joined):
        raise BadInput("--joined is written more than once: name a file, not a stream", file=request.joined)
    if request.tsv and (hosts := len(grant.numbers_of_job("SLURM_STEP_TASKS_PER_NODE"))) > 1:
        raise BadInput(f"--tsv has one row, and each of {hosts} hosts would write its own: use --joined")


def _scenario(
    request: ExecRequest, words: Sequence[str], host: Topology, step: tasks.Step | None
) -> tuple[list[int], Scenario, Placement]:
    """Return the numbers of this host's tasks, their scenario, and the placement of the program in it."""
    name = "1Inst_Original" if request.scenario == "auto" else request.scenario
    granted = frozenset(host.allowed_pus)
    if request.on:
        nodes = host.cpu_nodes if request.on == "all" else request.on
        granted &= {pu for node in nodes for pu in host.node(node).pus}
        if not granted:
            raise CannotHere(f"--on {format_list(nodes)}: this process may use no PU of these NUMA nodes")
    grants = step.grants(granted) if step else {0: granted}
    numbers = [*grants]
    if request.on or len(grants) > 1:
        scenario = plan_tasks(host, tasks.shares([*grants.values()]), name, request.threads)
    elif request.scenario == "auto":
        from firsttouch.advice import saved  # noqa: PLC0415 - see the package

        scenario = saved.advised(host, words, request.threads, say)
    else:
        scenario = plan(host).of_one_instance(request.scenario, request.threads)
    if not step:
        return numbers, scenario, scenario.placements[0]
    if step.tasks.local == 0 and len(grants) > 1:
        for warning in (tasks.overlap(grants, step.launcher), tasks.crowded(grants, step.pus, host)):
            if warning:
                say(f"firsttouch: warning: {warning}")
        say(f"firsttouch: {tasks.described(dict(zip(numbers, scenario.placements, strict=True)), host)}")
    return numbers, scenario, scenario.placements[step.tasks.local]


class _Ending(Struct, frozen=True):
    """What a program leaves; *numbers* are those of this host's tasks, and *step* is None without other tasks."""

    request: ExecRequest
    tell: Tell
    step: tasks.Step | None
    scenario: Scenario
    numbers: Sequence[int]

    @contextlib.contextmanager
    def also_without_result(self) -> Iterator[None]:
        """Tell of all tasks also if this is the last one, and an error keeps its program from a result."""
        try:
            yield
        except FirstTouchError:
            self.end(None)
            raise

    def end(self, document: Mapping[str, Any] | None) -> None:
        """Leave the result of this program (None: it has none), and tell of all tasks that end with it."""
        results = self.step.tasks.ended(document) if self.step else [document]
        if results is None:
            return
        try:
            self._keep(results)
        finally:  # the other hosts wait for this result, also if the disk of the records is full
            self._report(results)

    def _report(self, results: Sequence[Mapping[str, Any] | None]) -> None:
        """Tell of the tasks of this host, or of all hosts if this one ends last."""
        step, joined = self.step, self.request.joined
        part = {"host": host_name(), "scenario": self.scenario.name, "numbers": self.numbers, "tasks": results}
        if step and step.hosts and joined:
            names = step.hosts.hosts
            parts = step.hosts.ended(part, lambda parts: _join(joined, _named(names, parts)))
            if parts is not None:
                self.tell(_named(names, parts))
            return
        if joined:
            _join(joined, [part])
        if step or results != [None]:
            self.tell([part])

    def _keep(self, results: Sequence[Mapping[str, Any] | None]) -> None:
        """Write the record and the table of a program, in one or several tasks that ran side by side here."""
        done = [result for result in results if result is not None]
        programs = dict.fromkeys(Path(result["program"][0]).name for result in done)
        scenarios = dict.fromkeys(result["scenario"] for result in done)
        for what, different in (("different programs", programs), ("under different scenarios", scenarios)):
            if len(different) > 1:
                no_record = ", so there is no record" if self.request.records or self.request.tsv else ""
                say(f"firsttouch: warning: tasks ran {what} ({first_of([*different], NAMED)}){no_record}")
                return
        if len(done) < len(results) or any(result["exit_status"] for result in done):
            return
        seconds = max(result["seconds"] for result in done)
        # Each task counted the whole host.
        longest = max((result["energy"] for result in done), key=lambda used: used.get("seconds", 0.0))
        if self.request.tsv:
            unlike = (result["placement"] for result in done if result["placement"] != "verified")
            run = {"seconds": seconds, "placement": next(unlike, "verified"), "energy": longest}
            atomic_files.write(
                self.request.tsv, energy.table(Path(done[0]["program"][0]).name, self.scenario.name, run)
            )
        if not self.request.records:
            return
        from firsttouch.benchmarks import site_checks  # noqa: PLC0415 - see the package

        spec = site_checks.ProgramSpec(done[0]["program"], "exec")
        reasons = [result["reason"] for result in done]
        if len(done) > 1:
            reasons = [
                reason and f"task {number}: {reason}" for number, reason in zip(self.numbers, reasons, strict=True)
            ]
        record = site_checks.record_of(
            spec,
            self.scenario,
            [seconds],
            next(filter(None, reasons), ""),
            [result["placement_found"][0] for result in done],
            lacking=done[0]["lacking"],
        )
        append(self.request.records, [record, *energy.records(record, [longest])])


def _named(names: Sequence[str], parts: Sequence[dict[str, Any] | None]) -> list[dict[str, Any]]:
    """Return what each of the hosts *names* has left; one that left nothing has no tasks."""
    nothing = {"scenario": None, "numbers": None, "tasks": None}
    return [part or {"host": name, **nothing} for name, part in itertools.zip_longest(names, parts)]


def _join(file: Path, parts: Sequence[Mapping[str, Any]]) -> None:
    """Write the document of all hosts."""
    atomic_files.write(file, json.dumps({"hosts": parts}) + "\n")


def _left(names: Mapping[int, str], *, is_stopped: bool) -> str:
    """Return the warning about processes, by number, that outlive the program."""
    named = first_of([f"{name} ({pid})" for pid, name in names.items()], NAMED)
    then = "--timeout has stopped them" if is_stopped else "they go on"
    return f"firsttouch: warning: the program left processes ({named}): {then}, and the result is without them"


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
