# SPDX-License-Identifier: Apache-2.0
"""An aligner under a scenario, timed and recorded: `firsttouch run SCENARIO --aligner`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from msgspec import Struct
from msgspec.structs import replace

from firsttouch.advice.aligner_inputs import InputRequest, Inputs
from firsttouch.benchmarks.recording import watching_health
from firsttouch.cli import options
from firsttouch.errors import BadInput, CannotHere, Missing
from firsttouch.execution import AS_IS, host_lock, index_cache, pu_claims
from firsttouch.execution.progress import Steps, live, say
from firsttouch.genomics import Form, launch
from firsttouch.genomics.sinks import AlignOutput, default_threads
from firsttouch.host.topology import Topology, load
from firsttouch.records import atomic_files, step_outcome
from firsttouch.records.schema import Record, append, check_appendable
from firsttouch.scenarios import evidence
from firsttouch.scenarios.placement import Plan, Scenario, plan

#: Suffixes that state the content of a file of alignments.
_SUFFIXES = (*(f".{form}" for form in get_args(Form)), ".gz")


class RunRequest(InputRequest, frozen=True, kw_only=True):
    """How an aligner is run; the options of the same names describe the fields.

    *command_line* is the user's, for the header of the output.
    """

    scenario: str
    threads: int | None = None
    output: Path | None = None
    sort: bool = False
    reads_per_thread: int | None = None
    repetitions: int = 1
    counters: bool = False
    if_installed: bool = False
    timeout: float | None = None
    records: Path | None = None
    share_host: bool = False
    checksum: bool = False
    expect_sha256: launch.Alignments | None = None
    command_line: str = ""
    index_cache: str = AS_IS

    @property
    def is_production(self) -> bool:
        """Whether the run is for its alignments, not for its time: alignments are valid under any placement."""
        measured = (self.records, self.repetitions > 1, self.checksum, self.expect_sha256, self.counters)
        return self.output is not None and not any(measured)


class TimedRuns(Struct, frozen=True):
    """The *records* of a scenario, the *files* with its alignments, and why it failed (*fault*, or empty).

    A run for its alignments does not fail because its placement could not be verified.
    """

    records: Sequence[Record]
    files: Sequence[Path]
    fault: str


def run(args: argparse.Namespace) -> int:
    """Run the scenario and print the result; 1 if the run failed."""
    ran = run_aligner(options.request(RunRequest, args, command_line=options.command_line()))
    if args.json:
        options.print_json([r.to_dict() for r in ran.records] if args.counters else ran.records[0].to_dict())
    else:
        options.print_files(ran.files)
    if ran.fault:
        say(f"firsttouch: invalid: {ran.fault}")
    step_outcome.state("invalid" if ran.fault else "measured", ran.fault)
    return 1 if ran.fault else 0


def run_aligner(request: RunRequest) -> TimedRuns:
    """Run an aligner under a scenario as requested, and report the result on standard error.

    Raises BadInput, Missing, CannotHere, RunFailed, or TimedOut.
    """
    host, scenario, work, given, output = _prepared(request)
    production = request.is_production
    if production and work.index_cache == AS_IS:
        work = replace(work, index_cache="")  # alignments do not depend on it
    results = []
    work = work.with_copies()
    assert work.copies is not None  # noqa: S101 - for mypy
    watching = watching_health(request.records, say=say)
    holding = host_lock.hold_unless_shared(say, share_host=request.share_host, shared=production)
    name = scenario.name
    claiming = pu_claims.claim_pus(scenario, host, lambda free: _planned(request, given, free).scenario(name), say)
    with holding, claiming as (scenario, warning), watching, work.copies, Steps() as steps:
        if warning:
            say(f"warning: {warning}")
        for number in range(request.repetitions):
            steps.begin(scenario.name, request.repetitions - number)
            result = launch.run(
                work,
                scenario,
                output,
                command_line=request.command_line,
                timeout=request.timeout,
                on_progress=lambda now: live(f"{scenario.name}: {now.text()}"),
            )
            steps.end()
            results.append(result)
            work = replace(work, reference=result.alignments if work.summed else None)
            state = evidence.describe(result, unverified=evidence.COMPLETE if production else evidence.INVALID)
            say(f"{scenario.name} ({number + 1}/{request.repetitions}): {result.seconds:.3f} s, {state}")
    records = launch.records(
        work,
        scenario,
        results,
        dataset=given.dataset or "",
        least_mapped=given.least_mapped,
        wanted=request.expect_sha256,
    )
    if request.records:
        append(request.records, records)
    files = [output.named] if output else []
    is_good = records[0].status == "valid" or (production and results[0].unverified == records[0].reason)
    return TimedRuns(records, files, "" if is_good else records[0].reason)


def _prepared(request: RunRequest) -> tuple[Topology, Scenario, launch.Work, Inputs, AlignOutput | None]:
    """Return this host, the scenario, the work, its inputs, and its output."""
    aligner = request.with_options
    try:
        aligner.version()
    except Missing as error:
        if request.if_installed:
            raise CannotHere(f"{aligner.name} is not installed: {error}") from error
        raise
    if request.reads_per_thread:
        for name in ("output", "checksum", "expect_sha256", "counters"):
            if getattr(request, name):
                option = f"--{name.replace('_', '-')}"
                raise BadInput(f"--reads-per-thread repeats reads to measure throughput: leave {option} out")
    elif not (request.dataset or request.output):
        raise BadInput("--index, --reads and --output are needed (or --dataset)")
    given = request.inputs()
    # Report wrong options before all reads are checked, which takes long.
    host = load()
    scenario = _planned(request, given, host).scenario(request.scenario)
    launch.check_whole(aligner, scenario)
    index_cache.check(aligner.index_paths(given.index), request.index_cache, scenario.placements, host)
    output = _output(request, scenario, given.paths())
    read_once = not (given.dataset or request.reads_per_thread) and request.repetitions == 1
    work = launch.prepare(
        aligner,
        given.index,
        given.files,
        given.batch_bases,
        interleaved=given.interleaved,
        read_once=read_once,
        say=say,
    )
    work = replace(
        work,
        per_thread=request.reads_per_thread or 0,
        counted=request.counters,
        summed=bool(request.checksum or request.expect_sha256),
        reference=request.expect_sha256,
        index_cache=request.index_cache,
    )
    return host, scenario, work, given, output


def _planned(request: RunRequest, given: Inputs, host: Topology) -> Plan:
    """Return the scenarios of *host*; raises BadInput if it has no PU that may be used."""
    aligner = request.with_options
    need = aligner.need(aligner.index_bytes(given.index), given.batch_bases)
    return plan(host, need, threads=request.threads)


def _output(request: RunRequest, scenario: Scenario, files: Sequence[Path]) -> AlignOutput | None:
    """Return the output, None if alignments are discarded; raises BadInput if it cannot be written.

    *files* are the inputs of the run, which no output may overwrite.
    """
    atomic_files.refuse_overwriting([], files)  # by the standard output
    if request.records:
        check_appendable(request.records)
        atomic_files.refuse_overwriting([request.records], files)
    if request.output is None:
        if request.sort:
            raise BadInput("--sort needs --output")
        return None
    form: Form = "bam" if request.sort else "sam"
    if (suffix := request.output.suffix.lower()) in _SUFFIXES and suffix != f".{form}":
        other = "leave --sort out for SAM" if request.sort else "add --sort for BAM"
        raise BadInput(f"the output is {form.upper()}: name it *.{form}, or {other}", file=request.output)
    output = AlignOutput(
        request.output,
        form,
        sort=request.sort,
        threads=default_threads(scenario.instances * scenario.threads),
    )
    output.check(records=request.records, inputs=files)
    return output
