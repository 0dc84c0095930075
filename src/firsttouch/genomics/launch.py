# SPDX-License-Identifier: Apache-2.0
"""Runs an aligner's instances under a scenario, and describes the run in records."""

from __future__ import annotations

import contextlib
import shlex
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from firsttouch import __version__
from firsttouch.errors import BadInput, RunFailed
from firsttouch.execution import counters, placement_check
from firsttouch.execution.process_runner import Job, Outcome, Watching, run_together
from firsttouch.genomics import fastq, feed, sam
from firsttouch.genomics.aligners import Aligner
from firsttouch.genomics.fastq import Reads
from firsttouch.genomics.feed import DynamicFeeder, Feeder, InstancePipes, StaticFeeder, WeakScalingFeeder
from firsttouch.genomics.outputs import Output
from firsttouch.records import atomic_files
from firsttouch.records.schema import Record, software
from firsttouch.scenarios.placement import Scenario

# ----------------------------------------------------------------------
# Runs a scenario for real: instances started at once, each with its placement and its share of the reads.
#
# The output equals that of the single-instance run: same alignments, in input order, one header.

#: Below this part of mapped reads the index is most likely another genome's.
HARDLY_ANY = 0.01
#: What each instance was given, in its order: (number of the part in the input, the part).
Shares = Sequence[Sequence[tuple[int, feed.Part]]]


@dataclass(frozen=True)
class Work:
    """What is aligned: the aligner, its index (prefix) and the reads, which were checked.

    *dynamic*: instances get batches as they have room for them, instead of one part each. *per_thread*: how many
    reads (pairs) each thread aligns, the same ones again and again if need be; 0: all reads are aligned once.
    *counted*: every instance runs under perf stat. *summed*: the alignments' checksums are wanted.
    """

    aligner: Aligner
    index: Path
    reads: Reads
    dynamic: bool = False
    per_thread: int = 0
    counted: bool = False
    summed: bool = False


@dataclass(frozen=True)
class Alignments:
    """What an output holds: primary records, how many of them are mapped, and checksums where they are wanted."""

    primary: int
    mapped: int
    sums: sam.Checksums | None = None

    @property
    def mapped_fraction(self) -> float:
        """Part of the primary records that are mapped."""
        return self.mapped / self.primary if self.primary else 0.0


@dataclass(frozen=True)
class Result:
    """One run of a scenario.

    *seconds* are those of its steps, each from the first start to the last end; *aligning* those of the instance
    that took longest in each, from when it began to read: the index was loaded then. *steps* are the outcomes of
    all instances in each. *counts* are the sums over all of them by perf's event names, empty where nothing was
    counted.
    """

    seconds: float
    aligning: float
    steps: tuple[tuple[Outcome, ...], ...]
    alignments: Alignments
    counts: Mapping[str, int]

    @property
    def outcomes(self) -> list[Outcome]:
        """Of each instance the outcome of the step that took most of its time."""
        return [max(instance, key=lambda o: o.seconds) for instance in zip(*self.steps, strict=True)]

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of all instances in all steps."""
        return sum(o.cpu_seconds for step in self.steps for o in step)

    @property
    def peak_bytes(self) -> int:
        """The largest sum of the instances' peak memory in one step."""
        return max(sum(o.peak_bytes for o in step) for step in self.steps)

    @property
    def misplaced(self) -> str:
        """Why the placement did not hold, of the first instance where it did not, or an empty string."""
        return next(self._misplaced(self._outcomes()), "")

    @property
    def unverified(self) -> str:
        """Why the placement of an instance is unknown, where none is known to be wrong, or an empty string."""
        seen = [
            (number, outcome)
            for number, outcome in self._outcomes()
            if not placement_check.unverified(outcome.found)
        ]
        return "" if any(self._misplaced(seen)) else self.misplaced

    def _outcomes(self) -> Iterator[tuple[int, Outcome]]:
        return ((number, outcome) for step in self.steps for number, outcome in enumerate(step))

    def _misplaced(self, outcomes: Iterable[tuple[int, Outcome]]) -> Iterator[str]:
        return (f"instance {number}: {reason}" for number, o in outcomes if (reason := o.misplaced()))


def prepare(
    aligner: Aligner,
    index: Path,
    files: Sequence[Path],
    batch_bases: int | None = None,
    *,
    interleaved: bool = False,
    say: Callable[[str], None] | None = None,
) -> Work:
    """Check everything that a run needs, before it starts, and return it; raises BadInput or Missing."""
    aligner.version()
    aligner.index_bytes(index)
    # The batch of an aligner that knows none changes nothing.
    size = batch_bases if batch_bases is not None and aligner.batch_bases else aligner.batch_bases
    batches = {
        "batch_bases": size,
        "batch_records": aligner.batch_reads,
        "batch_bytes": aligner.batch_bytes,
    }
    found = fastq.inspect(files, **batches, interleaved=interleaved, say=say)
    return Work(aligner, index, found)


def check_dynamic(aligner: Aligner, mates: int) -> None:
    """Raise BadInput where instances of *aligner* cannot be handed batches as they have room for them."""
    if (steps := len(aligner.steps(mates))) > 1:
        raise BadInput(
            f"{aligner.name} takes no --dynamic: it runs {steps} programs one after the other, each of which must "
            "read the same reads, so an instance's part is fixed before it starts; leave --dynamic out"
        )


def run(
    work: Work,
    scenario: Scenario,
    output: Output | None,
    *,
    timeout: float | None = None,
    watching: Watching | None = None,
) -> Result:
    """Run *scenario* once; the *output* appears when all of it is there (None: it is not kept).

    Raises RunFailed where an instance fails or the output is not whole, BadInput for an index that maps hardly
    any read, CannotHere for too few reads; whatever goes wrong, nothing half-written is left.
    """
    place = None
    if output is not None:
        output.check(scenario.instances)
        place = output.scratch()
    with atomic_files.workspace(place or Path(tempfile.gettempdir())) as folder:
        steps, aligning, shares = _align(work, scenario, folder, timeout, watching)
        counts = Counter[str]()
        for log in folder.glob("*/*.counts"):
            counts.update(counters.parse(log.read_text()))
        parts = [o.job.stdout for o in steps[-1]]
        alignments, header, pieces = _gather(work, parts, shares)
        if output is not None:
            if output.form == "sorted" or (output.form == "sam" and scenario.instances > 1):
                header = _header(work, scenario, output, header, folder / "header.sam")
            output.deliver(parts, header, pieces, folder)
    return Result(sum(map(_span, steps)), aligning, tuple(map(tuple, steps)), alignments, counts)


def _align(
    work: Work, scenario: Scenario, folder: Path, timeout: float | None, watching: Watching | None
) -> tuple[list[list[Outcome]], float, Shares]:
    """Run all steps of all instances; return the outcomes, the seconds without set-up, and what each was given."""
    templates = work.aligner.steps(work.reads.mates)
    if work.dynamic:
        check_dynamic(work.aligner, work.reads.mates)
    for number in range(scenario.instances):
        (folder / str(number)).mkdir()
    end = None if timeout is None else time.monotonic() + timeout
    # The program as its users run it reads the files itself.
    alone = scenario.instances == 1 and work.reads.as_is and not work.per_thread
    alone = alone and not any(map(work.aligner.on_stdin, templates))
    feeder = _feeder(work, scenario, alone=alone)
    steps, aligning = [], 0.0
    for step, template in enumerate(templates):
        left = None if end is None else max(0.0, end - time.monotonic())
        mates, on_stdin = work.aligner.mates_of(template), work.aligner.on_stdin(template)
        fed = None if alone else feeder
        with InstancePipes(work.reads, scenario.instances, mates, fed, on_stdin=on_stdin) as pipes:
            jobs = []
            for number, placement in enumerate(scenario.placements):
                files, fds, stdin = pipes.of(number)
                scratch = folder / str(number)
                argv = work.aligner.argv(
                    template,
                    index=work.index,
                    reads=files,
                    threads=scenario.threads,
                    batch_bases=work.reads.batch_bases,
                    scratch=scratch,
                )
                if work.counted:
                    argv = counters.wrap(argv, scratch / f"{step}.counts")
                out, log = scratch / f"{step}.out", scratch / f"{step}.log"
                jobs.append(Job(argv, out, log, placement, scenario.threads, fds=fds, stdin=stdin))
            pipes.start()
            steps.append(run_together(jobs, timeout=left, watching=watching))
        begun = [None] * scenario.instances if alone else feeder.reading_since
        aligning += max(o.started + o.seconds - (at or o.started) for o, at in zip(steps[-1], begun, strict=True))
    shares = [[0]] if alone else feeder.shares
    return steps, aligning, [[(number, feeder.parts[number]) for number in share] for share in shares]


def _feeder(work: Work, scenario: Scenario, *, alone: bool) -> Feeder:
    if work.per_thread:
        return WeakScalingFeeder(work.reads, scenario.instances, work.per_thread * scenario.threads)
    return (DynamicFeeder if work.dynamic and not alone else StaticFeeder)(work.reads, scenario.instances)


def _gather(
    work: Work, parts: Sequence[Path], shares: Shares
) -> tuple[Alignments, sam.ByteRange, list[sam.ByteRange]]:
    """Look the instances' outputs through; return what they hold, the header, and all alignments in order."""
    surveys = [
        _survey(work, number, part, [p for _, p in mine])
        for number, (part, mine) in enumerate(zip(parts, shares, strict=True))
    ]
    found = Alignments(sum(s.primary for s in surveys), sum(s.mapped for s in surveys))
    if found.mapped_fraction < HARDLY_ANY:
        raise BadInput(
            f"{found.mapped} of {found.primary} reads map: is this the index of another genome?", file=work.index
        )
    pieces = sam.in_input_order(parts, surveys, [[number for number, _ in mine] for mine in shares])
    if work.summed:
        found = Alignments(found.primary, found.mapped, _sums(work, pieces))
    return found, sam.ByteRange(parts[0], 0, surveys[0].header_bytes), pieces


def _header(work: Work, scenario: Scenario, output: Output, header: sam.ByteRange, made: Path) -> sam.ByteRange:
    """Write the header of all instances to *made*: its @PG line says what the user ran, and the scenario."""
    files = [str(file) for file in work.reads.files] * (2 if work.reads.interleaved else 1)
    argvs = (
        work.aligner.argv(
            step,
            index=work.index,
            reads=files,
            threads=scenario.threads,
            batch_bases=work.reads.batch_bases,
            scratch=Path(),
        )
        for step in work.aligner.steps(work.reads.mates)
    )
    each = "; ".join(map(shlex.join, argvs))
    note = (
        f"firsttouch {__version__}: {scenario.name}, {scenario.instances} x {scenario.threads} threads of: {each}"
    )
    with header.file.open("rb") as stream:
        text = sam.describe_program(stream.read(header.end), output.command, note)
    made.write_bytes(text)
    return sam.ByteRange(made, 0, len(text))


def _sums(work: Work, pieces: Sequence[sam.ByteRange]) -> sam.Checksums:
    """Return the checksums of alignments that are kept by these pieces."""
    return sam.checksums(pieces, settle=work.reads.mates if work.aligner.same == "settled" else None)


def _survey(work: Work, number: int, file: Path, given: Sequence[feed.Part]) -> sam.Survey:
    """Look one instance's output through; raises RunFailed where it is not what the reads given to it make.

    An output in another order than the reads is put right first.
    """
    mates = work.reads.mates
    wanted = [part.records * mates for part in given]
    found = sam.survey(file, wanted)
    if found.primary != sum(wanted):
        raise RunFailed(f"instance {number}: {work.aligner.name} aligned {found.primary} of {sum(wanted)} reads")
    if work.aligner.in_order:
        return found
    restored = file.with_suffix(".restored")
    with contextlib.closing(feed.read_names(work.reads, given)) as names:
        sam.restore_order(file, found.header_bytes, names, mates, restored)
    restored.replace(file)
    return sam.survey(file, wanted)


def _span(outcomes: Sequence[Outcome]) -> float:
    """Return the wall seconds from the first instance's start to the last one's end."""
    return max(o.started + o.seconds for o in outcomes) - min(o.started for o in outcomes)


# ----------------------------------------------------------------------
# The records of a scenario that was run: its time, and what was counted meanwhile.


def records(
    work: Work,
    scenario: Scenario,
    results: Sequence[Result],
    *,
    dataset: str,
    least_mapped: float = 0.0,
    wanted: str | None = None,
) -> list[Record]:
    """Return the record of the repetitions' times (s), and one of each event that was counted in all of them.

    The run is invalid where a placement did not hold, less than *least_mapped* of the reads map, or alignments
    differ: between repetitions, or from the checksum *wanted*.
    """
    record = _times(work, scenario, results, dataset, _reason(results, least_mapped, wanted))
    if work.per_thread:
        return [_throughput(work, record, results)]
    if not work.counted:
        return [record]
    # A counted run takes longer than the scenario does: its time stays out of the scenarios' times.
    record = replace(record, check="counters")
    return [record, *_counts(record, results)]


def _reason(results: Sequence[Result], least_mapped: float, wanted: str | None) -> str:
    """Return why the run is invalid, or an empty string."""
    misplaced = next(filter(None, (r.misplaced for r in results)), "")
    sums = {r.alignments.sums.common for r in results if r.alignments.sums} | ({wanted} if wanted else set())
    if len(sums) > 1:
        return "the alignments differ from those of the reference run or between repetitions"
    fraction = results[-1].alignments.mapped_fraction
    if fraction < least_mapped:
        return (
            f"{fraction:.1%} of the reads map, at least {least_mapped:.1%} must: another genome's index or reads?"
        )
    return misplaced


def _times(work: Work, scenario: Scenario, results: Sequence[Result], dataset: str, reason: str) -> Record:
    last = results[-1]
    sums = last.alignments.sums
    return Record(
        check="scaling" if scenario.instances == 1 else "placement",
        metric="alignment_time",
        unit="s",
        better="lower",
        samples=tuple(r.seconds for r in results),
        parameters={
            "aligner": work.aligner.name,
            "dataset": dataset,
            "scenario": scenario.name,
            "instances": scenario.instances,
            "threads": scenario.threads,
            "policy": scenario.policy,
            "division": "dynamic" if work.dynamic else "static",
            "reads": last.alignments.primary,
            "mapped_fraction": last.alignments.mapped_fraction,
            "index_bytes": work.aligner.index_bytes(work.index),
            "batch_bases": work.reads.batch_bases,
            **({"alignments_sha256": sums.exact, "common_sha256": sums.common} if sums else {}),
            "cpu_seconds": last.cpu_seconds,
            "peak_bytes": last.peak_bytes,
            "instance_cpu_seconds": [o.cpu_seconds for o in last.outcomes],
            "instance_peak_bytes": [o.peak_bytes for o in last.outcomes],
        },
        placement_asked=[p.to_dict() for p in scenario.placements],
        placement_found=[o.found.to_dict() for o in last.outcomes],
        status="invalid" if reason else "valid",
        reason=reason,
        software=software(**{work.aligner.name: work.aligner.version()}),
    )


def _throughput(work: Work, record: Record, results: Sequence[Result]) -> Record:
    """Return the record of thousands of reads per second, each mate counted, from when the indexes were loaded."""
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


def _counts(record: Record, results: Sequence[Result]) -> list[Record]:
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
