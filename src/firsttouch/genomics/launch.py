# SPDX-License-Identifier: Apache-2.0
"""Runs an aligner under a scenario as a measurement: the work, one run, and the records of several runs.

:mod:`firsttouch.genomics.stream` does the run itself. The output equals the output of a single instance: the same
alignments, in input order, under one header.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from firsttouch.errors import BadInput
from firsttouch.execution import AS_IS, counters, index_cache
from firsttouch.execution.process_runner import Watching
from firsttouch.execution.progress import say
from firsttouch.genomics import division, sam, stream
from firsttouch.genomics.aligners import Aligner
from firsttouch.genomics.collecting import FileTarget, SinkTarget, Target
from firsttouch.genomics.command_line import Command, TemplateCommand, UserCommand
from firsttouch.genomics.index_copies import IndexCopies, IndexUse
from firsttouch.genomics.pipe_writer import StopRequest
from firsttouch.genomics.reads import Reads
from firsttouch.genomics.sinks import AlignOutput, open_sink
from firsttouch.records import atomic_files
from firsttouch.records.schema import Record, software
from firsttouch.scenarios.placement import Scenario
from firsttouch.tools import lean_numpy

if TYPE_CHECKING:
    from firsttouch.genomics.read_stream import GivenFiles, ReadStream


class Work(Struct, frozen=True):
    """The input of a run: the aligner, its index (prefix) and the reads.

    *per_thread*: reads (pairs) for each thread, repeated if there are too few; 0: all reads are aligned once.
    *counted*: every instance runs under perf stat. *summed*: checksums of the alignments are computed, faster if
    they equal *reference*. *command* is the user's command, which every instance runs (None: the aligner's
    templates). *copies* are index copies that runs share (None: each run makes the copies of its scenario).
    *index_cache* is the state of the page cache before each run, one of :data:`execution.INDEX_STATES` (empty: not
    checked).
    """

    aligner: Aligner
    index: Path
    reads: Reads
    per_thread: int = 0
    counted: bool = False
    summed: bool = False
    reference: Alignments | None = None
    command: UserCommand | None = None
    index_cache: str = ""
    copies: IndexCopies | None = None

    @property
    def programs(self) -> Command:
        """The programs that the instances run."""
        reads = self.reads
        return self.command or TemplateCommand(
            self.aligner, self.index, reads.mates, reads.batch_bases, self.counted
        )

    def with_copies(self) -> Work:
        """Return this work with copies of the index (:attr:`copies`), which the caller enters as a context."""
        name = self.command.index_name if self.command else ""
        return replace(self, copies=IndexCopies(self.aligner, self.index, name=name, say=say))


class Alignments(Struct, frozen=True):
    """The content of an output: the number of primary and of mapped records, and checksums if requested."""

    primary: int
    mapped: int
    sums: sam.Checksums | None = None

    @property
    def mapped_fraction(self) -> float:
        """Fraction of the primary records that are mapped."""
        return self.mapped / self.primary if self.primary else 0.0


class ScenarioRun(stream.StreamResult, frozen=True):
    """One run of a scenario; *seconds* are the times of its programs.

    *sums* are the checksums if requested. *counts* are sums over all instances by perf event, if counted.
    *index_cache* is the page cache before the run (None: not checked). *copying* is the time of copying the index
    (s), which no other time includes (0: no copies). *launcher_seconds* is the CPU time of this process.
    """

    sums: sam.Checksums | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    index_cache: index_cache.Restored | None = None
    copying: float = 0.0
    launcher_seconds: float = 0.0

    @property
    def alignments(self) -> Alignments:
        """The contents of the output."""
        return Alignments(self.reads, self.mapped, self.sums)

    def _wrong(self) -> str:
        return (self.index_cache.reason if self.index_cache else "") or super()._wrong()


def prepare(
    aligner: Aligner,
    index: Path,
    files: Sequence[Path],
    batch_bases: int | None = None,
    *,
    interleaved: bool = False,
    read_once: bool = False,
    say: Callable[[str], None] | None = None,
) -> Work:
    """Check the aligner, its index and the reads before a run; raises BadInput or Missing.

    *batch_bases* replaces the aligner's own batch size, if the aligner has one. *read_once*: the reads are checked
    while they are aligned, not before. *say* gets progress messages.
    """
    aligner.version()
    mates = 2 if interleaved else len(files)
    aligner.steps(mates)
    aligner.index_bytes(index)
    rule = aligner.batches(batch_bases).for_mates(mates)
    if read_once:
        return Work(aligner, index, Reads.without_check(files, rule, interleaved=interleaved))
    with lean_numpy():
        from firsttouch.genomics.fastq import inspect  # noqa: PLC0415 (slow to import, as it needs NumPy)

    checked = inspect(files, rule, interleaved=interleaved, any_names=aligner.align.any_names, say=say)
    return Work(aligner, index, checked)


def check_whole(aligner: Aligner, scenario: Scenario) -> None:
    """Raise BadInput if the aligner's options do not allow the instances of *scenario*."""
    if aligner.whole and scenario.instances > 1:
        raise BadInput(f"{scenario.name}: {aligner.whole}: choose a scenario of one instance")


def run(
    work: Work,
    scenario: Scenario,
    output: AlignOutput | None,
    *,
    command_line: str = "",
    timeout: float | None = None,
    watching: Watching | None = None,
    on_progress: Callable[[stream.Progress], None] = lambda _: None,
) -> ScenarioRun:
    """Run *scenario* once, within *timeout* seconds; the complete *output* appears at the end (None: not kept).

    *command_line* is the user's, for the header. Raises RunFailed if an instance fails or its output is
    incomplete, BadInput for wrong reads or an index to which few reads map, and CannotHere for too few reads. An
    error leaves no incomplete output.
    """
    place = Path(tempfile.gettempdir())
    if output:
        output.check()
        if output.is_file:
            place = Path(os.path.realpath(output.named)).parent
    began = time.process_time()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(atomic_files.workspace(place))
        if work.copies is None:
            work = work.with_copies()
            assert work.copies is not None  # noqa: S101 - for mypy
            stack.enter_context(work.copies)
        copies, uses = work.copies, work.copies.uses(scenario)
        cache = None
        if work.index_cache:
            index_files = work.aligner.index_paths(work.index)
            cache = index_cache.restore(index_files, work.index_cache, scenario.placements)
        stop = StopRequest()
        stack.callback(stop.close)
        pus = sorted(scenario.pus)
        sink = stack.enter_context(open_sink(output, scratch=folder, pus=pus, stop=stop)) if output else None
        final = SinkTarget(sink) if sink else Target()
        # Checksums are computed when no program is running, because they would slow it down.
        held = FileTarget() if work.summed else None
        note = _note(work, scenario, output)
        reads = _open_reads(work, scenario, uses)
        stack.callback(reads.close)
        aligned = stream.Run(
            work.programs,
            scenario,
            reads,
            held or final,
            folder,
            lambda header: sam.describe_program(copies.restore_header(header), command_line, note),
            stop,
            uses,
            repeated=work.per_thread > 0,
            feeds_all=True,
            timeout=timeout,
            watching=watching or Watching(),
            on_progress=on_progress,
        ).run()
        if reason := sam.hardly_mapped(aligned.mapped, aligned.reads):
            raise BadInput(reason, file=work.index)
        sums = _checksums(work, held.ranges) if held else None
        counts = Counter[str]()
        for log in folder.glob("*/*.counts"):
            counts.update(counters.parse(log.read_text()))
        if held and sink:
            final.begin(held.header)
            for part in held.ranges:
                final.send(part, stop)
        if sink:
            sink.finish()
    values = asdict(aligned) | {"seconds": aligned.span}
    spent = time.process_time() - began
    return ScenarioRun(
        **values,
        sums=sums,
        counts=counts,
        index_cache=cache,
        copying=copies.seconds,
        launcher_seconds=spent,
    )


def _open_reads(work: Work, scenario: Scenario, uses: Sequence[IndexUse]) -> ReadStream | GivenFiles:
    """Open the reads for the instances, divided if their number is known."""
    with lean_numpy():
        from firsttouch.genomics.read_stream import GivenFiles, ReadStream  # noqa: PLC0415 - it loads NumPy

    reads, parts = work.reads, None
    for layout in reads.layouts:
        os.close(layout.file.open())  # it may have changed
    if _reads_itself(work, scenario, uses):
        return GivenFiles(reads)
    if work.per_thread:
        parts = division.repeated_division(reads, scenario.instances, work.per_thread * scenario.threads)
    elif reads.is_checked:
        parts = division.static_division(reads, scenario.instances)
    return ReadStream(
        [[str(file) for file in reads.files]],
        interleaved=reads.interleaved,
        rule=reads.batches.rule,
        least_part_bytes=division.PART_BYTES,
        instances=scenario.instances,
        merged=work.programs.pipes == 1,
        any_names=work.aligner.align.any_names,
        division=parts,
    )


def _reads_itself(work: Work, scenario: Scenario, uses: Sequence[IndexUse]) -> bool:
    """Return whether a single instance reads checked files itself, as in everyday use."""
    if scenario.instances > 1 or work.per_thread or work.command or not work.reads.as_is:
        return False
    return not work.programs.on_stdin and not uses[0].hides(work.reads.files)


def _checksums(work: Work, ranges: Sequence[sam.ByteRange]) -> sam.Checksums:
    criterion = work.aligner.align.same
    return sam.checksums(
        ranges,
        settle=None if criterion == "exact" else work.reads.mates,
        scores_only=criterion == "scored",
        reference=work.reference.sums if work.reference else None,
    )


def _note(work: Work, scenario: Scenario, output: AlignOutput | None) -> str:
    """Return the note for the header: the scenario, and the commands with the names of the user's files."""
    files = [*map(str, work.reads.files)] * (2 if work.reads.interleaved else 1)
    programs = TemplateCommand(work.aligner, work.index, work.reads.mates, work.reads.batch_bases)
    argvs = programs.argvs(threads=scenario.threads, reads=files, use=IndexUse(), scratch=Path())
    return stream.note(scenario, output, f" of: {'; '.join(map(shlex.join, argvs))}")


# ----------------------------------------------------------------------
# Records of the runs of a scenario


def records(
    work: Work,
    scenario: Scenario,
    results: Sequence[ScenarioRun],
    *,
    dataset: str,
    least_mapped: float = 0.0,
    wanted: Alignments | None = None,
) -> list[Record]:
    """Return the record of the repetitions' times (s), and the records of the events that they counted.

    The record is invalid if a placement or the index cache did not hold, if a smaller fraction than *least_mapped*
    of the reads maps, or if alignments differ between repetitions or from the common checksum of those *wanted*.
    """
    record = _times(work, scenario, results, dataset, _reason(results, least_mapped, wanted))
    if work.per_thread:
        return [_throughput(work, record, results)]
    if not work.counted:
        return [record]
    # A counted run takes longer, so its time is excluded from the scenario's times.
    record = replace(record, check="counters")
    return [record, *_counts(record, results)]


def _reason(results: Sequence[ScenarioRun], least_mapped: float, wanted: Alignments | None) -> str:
    """Return why the run is invalid, or an empty string."""
    outputs = [*(r.alignments for r in results), *([wanted] if wanted else [])]
    sums = {output.sums.common for output in outputs if output.sums}
    if len(sums) > 1:
        return "the alignments differ from the reference run's or between repetitions"
    fraction = results[-1].alignments.mapped_fraction
    if fraction < least_mapped:
        return (
            f"{fraction:.1%} of the reads map, at least {least_mapped:.1%} must: another genome's index or reads?"
        )
    return next(filter(None, (r.misplaced for r in results)), "")


def _times(work: Work, scenario: Scenario, results: Sequence[ScenarioRun], dataset: str, reason: str) -> Record:
    last = results[-1]
    sums = last.alignments.sums
    return Record(
        check="scaling" if scenario.instances == 1 else "placement",
        metric="alignment_time",
        unit="s",
        better="lower",
        samples=tuple(r.seconds for r in results),
        parameters={
            "aligner": work.aligner.label,
            "dataset": dataset,
            "scenario": scenario.name,
            "instances": scenario.instances,
            "threads": scenario.threads,
            "policy": scenario.policy,
            "division": "static",
            "reads": last.alignments.primary,
            "mapped_fraction": last.alignments.mapped_fraction,
            "index_bytes": work.aligner.index_bytes(work.index),
            "batch_bases": work.reads.batch_bases,
            **_cache_parameters(results),
            **({"alignments_sha256": sums.exact, "common_sha256": sums.common} if sums else {}),
            "cpu_seconds": last.cpu_seconds,
            "launcher_cpu_seconds": last.launcher_seconds,
            "peak_bytes": last.peak_bytes,
            "instance_cpu_seconds": [o.cpu_seconds for o in last.outcomes],
            **({"index_copy_seconds": last.copying} if last.copying else {}),
            "instance_peak_bytes": [o.peak_bytes for o in last.outcomes],
        },
        placement_asked=[p.to_dict() for p in scenario.placements],
        placement_found=[
            o.observed.to_dict() | ({"index_cache": last.index_cache.to_dict()} if last.index_cache else {})
            for o in last.outcomes
        ],
        status="invalid" if reason else "valid",
        reason=reason,
        software=software(**{work.aligner.name: work.aligner.version()}),
    )


def _cache_parameters(results: Sequence[ScenarioRun]) -> dict[str, Any]:
    """Return the page cache's state, unless it is as-is, and the cached bytes of the index before each run."""
    caches = [r.index_cache for r in results if r.index_cache]
    if not caches:
        return {}
    state = {} if caches[0].state == AS_IS else {"index_cache": caches[0].state}
    return {**state, "index_cached_bytes": [c.cached.cached for c in caches]}


def _throughput(work: Work, record: Record, results: Sequence[ScenarioRun]) -> Record:
    """Return the record of thousands of reads (of either mate) per second, without the time to load the index."""
    seconds = {"seconds": [r.seconds for r in results], "aligning_seconds": [r.aligning for r in results]}
    return replace(
        record,
        check="weak_scaling",
        metric="throughput",
        unit="kreads/s",
        better="higher",
        samples=tuple(r.alignments.primary / 1000 / r.aligning for r in results),
        parameters={**record.parameters, "reads_per_thread": work.per_thread, "division": "repeated", **seconds},
    )


def _counts(record: Record, results: Sequence[ScenarioRun]) -> list[Record]:
    events = [e for e in results[0].counts if all(e in r.counts for r in results)]
    return [
        replace(
            record,
            metric=event.lower().replace("-", "_"),
            unit="1",
            better="neither",
            samples=tuple(float(r.counts[event]) for r in results),
        )
        for event in events
    ]
