# SPDX-License-Identifier: Apache-2.0
"""Runs an aligner under a scenario: instances start together, each with its placement and share of the reads.

The output equals that of a single instance: the same alignments, in input order, under one header.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from firsttouch import __version__
from firsttouch.errors import BadInput, RunFailed
from firsttouch.execution import counters, index_cache
from firsttouch.execution.jobs import Job, Outcome
from firsttouch.execution.process_runner import run_together
from firsttouch.execution.progress import say
from firsttouch.execution.sampling import Watching
from firsttouch.genomics import feed, sam
from firsttouch.genomics.aligners import Aligner, Steps
from firsttouch.genomics.command_line import UserCommand
from firsttouch.genomics.index_copies import OWN, IndexCopies, IndexUse
from firsttouch.genomics.outputs import Output
from firsttouch.genomics.reads import BatchRule, Reads, recall, remember
from firsttouch.records import atomic_files
from firsttouch.records.schema import Record, software
from firsttouch.scenarios.placement import Scenario
from firsttouch.tools import no_idle_threads

#: For each instance, the parts of its share as (number of the part in the input, part).
Shares = Sequence[Sequence[tuple[int, feed.Part]]]


@dataclass(frozen=True)
class Work:
    """What is aligned: the aligner, its index (prefix) and the checked reads.

    *dynamic*: dynamic load balancing instead of a static division. *per_thread*: reads (pairs) for each thread,
    repeated if there are too few; 0: all reads are aligned once. *counted*: every instance runs under perf stat.
    *summed*: the alignments' checksums are computed; those equal to *reference* are recognized faster. *command*
    is the user's command that every instance runs, with its own options (None: the aligner's templates).
    *copies* are those of the index that runs share (None: each run makes its own, if its scenario asks for them).
    *index_cache* is the state of the page cache before each run, one of :data:`index_cache.STATES` (empty: not
    looked at).
    """

    aligner: Aligner
    index: Path
    reads: Reads
    dynamic: bool = False
    per_thread: int = 0
    counted: bool = False
    summed: bool = False
    reference: Alignments | None = None
    command: UserCommand | None = None
    index_cache: str = ""
    copies: IndexCopies | None = field(default=None, compare=False)

    @property
    def steps(self) -> Steps:
        """The argv templates, in the order in which they run; a user's command is one step without a template."""
        return ((),) if self.command else self.aligner.steps(self.reads.mates)

    def mates_of(self, template: Sequence[str]) -> tuple[int, ...]:
        """Return the mates (0, 1) whose reads a step reads."""
        return tuple(range(self.command.mates)) if self.command else self.aligner.mates_of(template)

    def on_stdin(self, template: Sequence[str]) -> bool:
        """Return whether a step reads its reads, interleaved if paired, from standard input."""
        if self.command:
            return self.command.on_stdin or self.command.pipes < self.command.mates
        return self.aligner.on_stdin(template)

    def with_copies(self) -> Work:
        """Return this work with copies of the index, which the caller holds as a context (:attr:`copies`)."""
        name = self.command.index_name if self.command else ""
        return replace(self, copies=IndexCopies(self.aligner, self.index, name=name, say=say))

    def argv(
        self,
        template: Sequence[str],
        threads: int,
        files: Sequence[str | None],
        scratch: Path,
        use: IndexUse = OWN,
    ) -> list[str]:
        """Return the argv of one step that reads *files* (by mate) and uses the index as *use* says."""
        if self.command:
            stdin = ["-" if self.command.on_stdin else "/dev/stdin"]
            names = stdin if self.on_stdin(template) else [str(file) for file in files]
            return self.command.argv(threads=threads, reads=names, use=use)
        argv = self.aligner.argv(
            template,
            index=use.prefix or self.index,
            reads=files,
            threads=threads,
            batch_bases=self.reads.batch_bases,
            scratch=scratch,
        )
        return use.argv(self.aligner, argv)


@dataclass(frozen=True)
class Alignments:
    """What an output holds: primary records, how many of them are mapped, and checksums if requested."""

    primary: int
    mapped: int
    sums: sam.Checksums | None = None

    @property
    def mapped_fraction(self) -> float:
        """Fraction of the primary records that are mapped."""
        return self.mapped / self.primary if self.primary else 0.0


#: What an output holds, its header, and its alignments in input order.
Gathered = tuple[Alignments, sam.ByteRange, list[sam.ByteRange]]


@dataclass(frozen=True)
class Result:
    """One run of a scenario.

    *seconds* is the sum over the steps of the time from the first start to the last end. *aligning* is the same
    for the slowest instance of each step from when it began to read, after it had loaded the index. *steps* are
    the outcomes of all instances in each step. *counts* are sums over all instances by perf event, if counted.
    *index_cache* is the page cache before the run (None: not looked at). *copying* are the seconds that the copies
    of the index took, which no other time has (0: there are none).
    """

    seconds: float
    aligning: float
    steps: tuple[tuple[Outcome, ...], ...]
    alignments: Alignments
    counts: Mapping[str, int]
    index_cache: index_cache.Restored | None = None
    copying: float = 0.0

    @property
    def outcomes(self) -> list[Outcome]:
        """Each instance's outcome in its longest step."""
        return [max(instance, key=lambda o: o.seconds) for instance in zip(*self.steps, strict=True)]

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of all instances in all steps."""
        return sum(o.cpu_seconds for step in self.steps for o in step)

    @property
    def peak_bytes(self) -> int:
        """The largest sum, over the instances in one step, of peak memory."""
        return max(sum(o.peak_bytes for o in step) for step in self.steps)

    @property
    def misplaced(self) -> str:
        """Why the index cache, or the placement of the first misplaced instance, did not hold; or empty."""
        return self._wrong_cache or self._first_misplaced(lambda _: True)

    @property
    def unverified(self) -> str:
        """Why a placement is unknown if none is known to be wrong, or an empty string."""
        wrong = self._first_misplaced(lambda outcome: not outcome.unverified)
        return "" if wrong or self._wrong_cache else self.misplaced

    @property
    def _wrong_cache(self) -> str:
        return self.index_cache.reason if self.index_cache else ""

    def _first_misplaced(self, counts: Callable[[Outcome], bool]) -> str:
        reasons = (
            f"instance {number}: {reason}"
            for step in self.steps
            for number, outcome in enumerate(step)
            if counts(outcome) and (reason := outcome.misplaced)
        )
        return next(reasons, "")


def prepare(
    aligner: Aligner,
    index: Path,
    files: Sequence[Path],
    batch_bases: int | None = None,
    *,
    interleaved: bool = False,
    remembered: bool = False,
    say: Callable[[str], None] | None = None,
) -> Work:
    """Check the aligner, its index and the reads before a run; raises BadInput or Missing.

    *batch_bases* replaces the aligner's own batch size, if the aligner has one. *remembered*: the reads are a
    dataset's, which are checked once. *say* gets progress messages.
    """
    aligner.version()
    mates = 2 if interleaved else len(files)
    aligner.steps(mates)
    aligner.index_bytes(index)
    rule = aligner.batches(batch_bases)
    checked = recall(files, rule) if remembered else None
    if checked is None:
        with no_idle_threads():
            from firsttouch.genomics.fastq import inspect  # noqa: PLC0415 (slow to import, as it needs NumPy)

        checked = inspect(files, rule, interleaved=interleaved, say=say)
        if remembered:
            remember(checked)
    return Work(aligner, index, checked)


def check_dynamic(aligner: Aligner, mates: int) -> None:
    """Raise BadInput if *aligner* does not allow dynamic load balancing."""
    if (steps := len(aligner.steps(mates))) > 1:
        raise BadInput(
            f"{aligner.name} takes no --dynamic: it runs {steps} programs one after the other, each of which must "
            "read the same reads, so an instance's part is fixed before it starts; leave --dynamic out"
        )
    if aligner.files:
        raise BadInput(f"{aligner.name} takes no --dynamic: it reads files, which must be complete; leave it out")


def check_whole(aligner: Aligner, scenario: Scenario) -> None:
    """Raise BadInput if the aligner's options do not allow the instances of *scenario*."""
    if aligner.whole and scenario.instances > 1:
        raise BadInput(f"{scenario.name}: {aligner.whole}: choose a scenario of one instance")


def run(
    work: Work,
    scenario: Scenario,
    output: Output | None,
    *,
    timeout: float | None = None,
    watching: Watching | None = None,
) -> Result:
    """Run *scenario* once, within *timeout* seconds; the complete *output* appears at the end (None: not kept).

    Raises RunFailed if an instance fails or its output is incomplete, BadInput for an index to which hardly any
    read maps, and CannotHere for too few reads. An error leaves no incomplete output.
    """
    folder_of_output = None
    if output is not None:
        output.check(scenario.instances)
        folder_of_output = output.scratch()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(atomic_files.workspace(folder_of_output or Path(tempfile.gettempdir())))
        if work.copies is None:
            work = work.with_copies()
            assert work.copies is not None  # noqa: S101 - for mypy
            stack.enter_context(work.copies)
        uses = work.copies.uses(scenario)
        cache = _restored(work, scenario)
        steps, aligning, shares = _align(work, scenario, uses, folder, timeout=timeout, watching=watching)
        counts = Counter[str]()
        for log in folder.glob("*/*.counts"):
            counts.update(counters.parse(log.read_text()))
        parts = [o.job.stdout for o in steps[-1]]
        if not work.command:
            for number, part in enumerate(parts):
                _collect(work.aligner, number, part)
        alignments, header, ranges = _gather(work, parts, shares)
        if output is not None:
            header = _restored_header(work.copies, header, folder / "restored.sam")
            if output.form == "sorted" or (output.form == "sam" and scenario.instances > 1):
                header = _describe(work, scenario, output.command, header, folder / "header.sam")
            elif output.form == "striped":
                parts = [_restored_part(work.copies, part) for part in parts]
            output.deliver(parts, header, ranges, folder)
        copying = work.copies.seconds
    times = sum(map(_span, steps)), aligning
    return Result(*times, tuple(map(tuple, steps)), alignments, counts, cache, copying)


def _collect(aligner: Aligner, number: int, output: Path) -> None:
    """Move the files that instance *number* wrote in place of its *output* there; raises RunFailed."""
    files = aligner.output_files(output.parent)
    if missing := [file.name for file in files if not file.is_file()]:
        raise RunFailed(f"instance {number}: {aligner.name} did not write {missing[0]}")
    for earlier, file in enumerate(files):
        if not earlier:
            file.replace(output)
            continue
        with output.open("r+b") as whole:
            whole.seek(0, os.SEEK_END)
            sam.concatenate([sam.ByteRange(file, 0, file.stat().st_size)], whole.fileno())
        file.unlink()


def _restored_header(copies: IndexCopies, header: sam.ByteRange, target: Path) -> sam.ByteRange:
    """Return a header that names the index, by a file *target* if the instances had copies of other names."""
    if not copies.renamed:
        return header
    with header.file.open("rb") as stream:
        text = copies.restored(stream.read(header.end))
    target.write_bytes(text)
    return sam.ByteRange(target, 0, len(text))


def _restored_part(copies: IndexCopies, part: Path) -> Path:
    """Return the output of an instance with a header that names the index."""
    if not copies.renamed:
        return part
    with part.open("rb") as stream:
        size = len(sam.read_header(stream))
    header = _restored_header(copies, sam.ByteRange(part, 0, size), part.with_suffix(".header"))
    target = part.with_suffix(".sam")
    with target.open("wb") as out:
        sam.concatenate([header, sam.ByteRange(part, size, part.stat().st_size)], out.fileno())
    return target


def _restored(work: Work, scenario: Scenario) -> index_cache.Restored | None:
    """Put the page cache into the state that was asked for, if any."""
    if not work.index_cache:
        return None
    return index_cache.restore(work.aligner.index_paths(work.index), work.index_cache, scenario.placements)


def _align(
    work: Work,
    scenario: Scenario,
    uses: Sequence[IndexUse],
    folder: Path,
    *,
    timeout: float | None,
    watching: Watching | None,
) -> tuple[list[list[Outcome]], float, Shares]:
    """Run all steps of all instances; return the outcomes, the seconds of aligning, and the shares."""
    templates = work.steps
    if work.dynamic:
        check_dynamic(work.aligner, work.reads.mates)
    for number in range(scenario.instances):
        (folder / str(number)).mkdir()
    began = time.monotonic()
    # A single instance reads the files itself, as the program does in everyday use.
    unfed = scenario.instances == 1 and work.reads.as_is and not work.per_thread
    unfed = unfed and not work.command and not any(map(work.on_stdin, templates))
    unfed = unfed and not uses[0].hides(work.reads.files)
    # Programs may tell plain files by their names.
    unfed = unfed and (not work.aligner.files or all(f.suffix in {".fq", ".fastq"} for f in work.reads.files))
    feeder: feed.Feeder
    if work.per_thread:
        feeder = feed.WeakScalingFeeder(work.reads, scenario.instances, work.per_thread * scenario.threads)
    else:
        kind = feed.DynamicFeeder if work.dynamic and not unfed else feed.StaticFeeder
        feeder = kind(work.reads, scenario.instances)
    steps, aligning = [], 0.0
    for step, template in enumerate(templates):
        mates, on_stdin = work.mates_of(template), work.on_stdin(template)
        step_feeder = None if unfed else feeder
        pipes: feed.InstanceFiles | feed.InstancePipes
        if step_feeder and work.aligner.files and not work.command:
            pipes = feed.InstanceFiles(work.reads, mates, step_feeder, folder)
        else:
            pipes = feed.InstancePipes(work.reads, scenario.instances, mates, step_feeder, on_stdin=on_stdin)
        with pipes:
            jobs = []
            for number, (placement, use) in enumerate(zip(scenario.placements, uses, strict=True)):
                files, fds, stdin = pipes.of(number)
                scratch = folder / str(number)
                argv = work.argv(template, scenario.threads, files, scratch, use)
                if work.counted:
                    argv = counters.wrap(argv, scratch / f"{step}.counts")
                out, log = scratch / f"{step}.out", scratch / f"{step}.log"
                job = Job(argv, out, log, placement, scenario.threads, fds=fds, stdin=stdin)
                jobs.append(replace(job, entering=use.entering, index=use.pages))
            pipes.start()
            outcomes = run_together(jobs, timeout=timeout, since=began, watching=watching)
        steps.append(outcomes)
        begun = [None] if unfed else feeder.reading_since
        aligning += max(o.started + o.seconds - (at or o.started) for o, at in zip(outcomes, begun, strict=True))
    return steps, aligning, [[(number, feeder.parts[number]) for number in share] for share in feeder.shares]


def _gather(work: Work, parts: Sequence[Path], shares: Shares) -> Gathered:
    """Check the instances' outputs; return what they hold, the header, and the alignments in input order."""
    alignments, header, ranges = _recognized(work, parts, shares) or _surveyed(work, parts, shares)
    if reason := sam.hardly_mapped(alignments.mapped, alignments.primary):
        raise BadInput(reason, file=work.index)
    if work.summed and not alignments.sums:
        same = work.aligner.same
        sums = sam.checksums(
            ranges,
            settle=None if same == "exact" else work.reads.mates,
            scores_only=same == "scored",
            reference=work.reference.sums if work.reference else None,
        )
        alignments = replace(alignments, sums=sums)
    return alignments, header, ranges


def _recognized(work: Work, parts: Sequence[Path], shares: Shares) -> Gathered | None:
    """Return the alignments of the only instance if they are those of the reference: their lines were checked."""
    reference, wanted = work.reference, sum(part.records for share in shares for _, part in share)
    if reference is None or reference.sums is None or len(parts) > 1 or not work.aligner.in_order:
        return None
    with parts[0].open("rb") as stream:
        header_bytes = len(sam.read_header(stream))
    alignments = sam.ByteRange(parts[0], header_bytes, parts[0].stat().st_size)
    if reference.primary != wanted * work.reads.mates or sam.exact_sum([alignments]) != reference.sums.exact:
        return None
    return reference, sam.ByteRange(parts[0], 0, header_bytes), [alignments]


def _surveyed(work: Work, parts: Sequence[Path], shares: Shares) -> Gathered:
    surveys = [
        _survey(work, number, file, [part for _, part in share])
        for number, (file, share) in enumerate(zip(parts, shares, strict=True))
    ]
    work.aligner.check_header(b"\n".join(surveys[0].shared))
    alignments = Alignments(sum(s.primary for s in surveys), sum(s.mapped for s in surveys))
    ranges = sam.in_input_order(parts, surveys, [[number for number, _ in share] for share in shares])
    return alignments, sam.ByteRange(parts[0], 0, surveys[0].header_bytes), ranges


def _survey(work: Work, number: int, file: Path, share: Sequence[feed.Part]) -> sam.Survey:
    """Survey one instance's output, and restore the order of its reads if the aligner does not keep it.

    Raises RunFailed if reads of its *share* are missing.
    """
    with no_idle_threads():
        from firsttouch.genomics.sam_stream import (  # noqa: PLC0415 (slow to import, as it needs NumPy)
            restore_order,
            survey,
        )

    if work.aligner.whole:
        # Its options may leave reads out, or write more than one record of a read.
        result = survey(file)
        return result._replace(ends=(result.size,) * len(share))
    wanted = [part.records * work.reads.mates for part in share]
    result = survey(file, wanted)
    if result.primary < sum(wanted) and work.reads.mates == 2:
        result = survey(file, wanted, feed.empty_mates_of(work.reads, share))
    if not result.ends:
        raise RunFailed(f"instance {number}: {work.aligner.name} aligned {result.primary} of {sum(wanted)} reads")
    if work.aligner.in_order or work.per_thread:  # repeated reads have no order, and their output is not kept
        return result
    restored = file.with_suffix(".restored")
    with contextlib.closing(feed.read_names(work.reads, share)) as names:
        restore_order(file, names, work.reads.mates, restored)
    restored.replace(file)
    return survey(file, wanted)


def _describe(work: Work, scenario: Scenario, command: str, header: sam.ByteRange, target: Path) -> sam.ByteRange:
    """Write the header for all instances to *target*: its @PG line has the user's *command* and the scenario."""
    files = [str(file) for file in work.reads.files] * (2 if work.reads.interleaved else 1)
    steps = work.aligner.steps(work.reads.mates)
    argvs = "; ".join(shlex.join(work.argv(step, scenario.threads, files, Path())) for step in steps)
    note = (
        f"firsttouch {__version__}: {scenario.name}, {scenario.instances} x {scenario.threads} threads of: {argvs}"
    )
    with header.file.open("rb") as stream:
        text = sam.describe_program(stream.read(header.end), command, note)
    target.write_bytes(text)
    return sam.ByteRange(target, 0, len(text))


def _span(outcomes: Sequence[Outcome]) -> float:
    """Return the wall seconds from the first instance's start to the last one's end."""
    return max(o.started + o.seconds for o in outcomes) - min(o.started for o in outcomes)


# ----------------------------------------------------------------------
# Records of the runs of a scenario


def records(
    work: Work,
    scenario: Scenario,
    results: Sequence[Result],
    *,
    dataset: str,
    least_mapped: float = 0.0,
    wanted: str | None = None,
) -> list[Record]:
    """Return the record of the repetitions' times (s), and a record of each event that all of them counted.

    The record is invalid if a placement or the index cache did not hold, if a smaller fraction than *least_mapped*
    of the reads maps, or if alignments differ between repetitions or from the checksum *wanted*.
    """
    record = _times(work, scenario, results, dataset, _reason(results, least_mapped, wanted))
    if work.per_thread:
        return [_throughput(work, record, results)]
    if not work.counted:
        return [record]
    # A counted run takes longer, so its time is not one of the scenarios' times.
    record = replace(record, check="counters")
    return [record, *_counts(record, results)]


def _reason(results: Sequence[Result], least_mapped: float, wanted: str | None) -> str:
    """Return why the run is invalid, or an empty string."""
    sums = {r.alignments.sums.common for r in results if r.alignments.sums} | ({wanted} if wanted else set())
    if len(sums) > 1:
        return "the alignments differ from those of the reference run or between repetitions"
    fraction = results[-1].alignments.mapped_fraction
    if fraction < least_mapped:
        return (
            f"{fraction:.1%} of the reads map, at least {least_mapped:.1%} must: another genome's index or reads?"
        )
    return next(filter(None, (r.misplaced for r in results)), "")


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
            "aligner": work.aligner.label,
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
            **_block_parameters(work.reads.batches.rule),
            **_cache_parameters(results),
            **({"alignments_sha256": sums.exact, "common_sha256": sums.common} if sums else {}),
            "cpu_seconds": last.cpu_seconds,
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


def _block_parameters(rule: BatchRule) -> dict[str, int]:
    """Return the bytes and the records of a block of blocked reads."""
    return {"block_bytes": rule.block, "reads_per_block": rule.records} if rule.block else {}


def _cache_parameters(results: Sequence[Result]) -> dict[str, Any]:
    """Return the state of the page cache, unless it is as-is, and the bytes of the index in it before each run."""
    caches = [r.index_cache for r in results if r.index_cache]
    if not caches:
        return {}
    state = {} if caches[0].state == index_cache.AS_IS else {"index_cache": caches[0].state}
    return {**state, "index_cached_bytes": [c.cached.cached for c in caches]}


def _throughput(work: Work, record: Record, results: Sequence[Result]) -> Record:
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
