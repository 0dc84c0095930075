# SPDX-License-Identifier: Apache-2.0
"""Aligns a stream of reads with several instances, and delivers the alignments in input order meanwhile.

The dealer (:mod:`firsttouch.genomics.dealing`) takes parts of the reads (whole batches of the aligner) and gives
each to one instance. A writer for each pipe feeds it; a program that reads files, or several that read one after
the other, get their share as files before they start. An instance writes SAM into a scratch file; the collector
(:mod:`firsttouch.genomics.collecting`) reads these files as they grow, sends finished parts to the target in input
order, and releases the disk space behind them. Memory is bounded by a few pieces of reads for each pipe. Disk
space is bounded too: the dealer waits while the target is slower than the instances. Each input is read once.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import select
import stat
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from msgspec import Struct, field

from firsttouch import __version__
from firsttouch.errors import CannotHere, ProgramFailed, RunFailed
from firsttouch.execution.child_process import describe_ending
from firsttouch.execution.process_runner import Events, Job, Outcome, Watching, run_in_foreground, run_together
from firsttouch.execution.progress import time_left
from firsttouch.execution.threads import WorkerThread
from firsttouch.genomics import sam
from firsttouch.genomics.collecting import Collector, InstanceOutput, Target
from firsttouch.genomics.command_line import Command, UserCommand
from firsttouch.genomics.dealing import Dealer, Feed, InstanceFiles, Ledger, read_pieces
from firsttouch.genomics.division import too_few_reads
from firsttouch.genomics.index_copies import OWN, IndexUse
from firsttouch.genomics.messages import Messages
from firsttouch.genomics.pipe_writer import Stopped, StopRequest, splice
from firsttouch.genomics.sinks import AlignOutput, Sink
from firsttouch.scenarios.placement import Scenario

if TYPE_CHECKING:  # they load NumPy, which a command in one instance does without
    from firsttouch.genomics.read_stream import GivenFiles, Piece, ReadStream

_PROGRESS_INTERVAL = 1.0
_RELAY_BYTES = 1 << 20
_DESCRIPTOR = re.compile(r"/(?:dev|proc/(?:thread-)?self)/fd/(\d+)(?!\d)")


class Progress(Struct, frozen=True):
    """The progress of a run: aligned reads, seconds, and the aligned part of the input (None: unknown)."""

    reads: int
    seconds: float
    fraction: float | None

    def text(self) -> str:
        """Return the progress in words."""
        rate = self.reads / self.seconds if self.seconds > 0 else 0.0
        text = f"{self.reads:,} reads, {rate:,.0f} reads/s"
        if self.fraction is not None:
            text += f", {self.fraction:.0%} of the input"
        if self.fraction:
            text += f", {time_left(self.seconds * (1 - self.fraction) / self.fraction)}"
        return text


def note(scenario: Scenario, output: AlignOutput | None, programs: str = "") -> str:
    """Return the note for the header: the scenario, its *programs*, and the steps on the *output*."""
    text = (
        f"firsttouch {__version__}: {scenario.name}, {scenario.instances} x {scenario.threads} threads{programs}"
    )
    done = output.description() if output else ""
    return f"{text}; {done}" if done else text


# ----------------------------------------------------------------------
# A whole run


class StreamResult(Struct, frozen=True):
    """One run: *reads* in the output, *mapped* of them, and wall seconds.

    *steps* are the outcomes of all instances, for each program that an instance runs. *fed* are the instances that
    got reads. *aligning* is the sum over the programs of the slowest instance's seconds since it began to read its
    pipe, after loading the index (for a program that reads files: since its start).
    """

    reads: int
    mapped: int
    seconds: float
    steps: tuple[tuple[Outcome, ...], ...]
    fed: frozenset[int]
    aligning: float = 0.0

    @property
    def span(self) -> float:
        """Sum over the programs of the wall seconds from the first start to the last end."""
        return sum(max(o.started + o.seconds for o in step) - min(o.started for o in step) for step in self.steps)

    @property
    def outcomes(self) -> list[Outcome]:
        """The outcome of each instance's longest program."""
        return [max(instance, key=lambda o: o.seconds) for instance in zip(*self.steps, strict=True)]

    @property
    def misplaced(self) -> str:
        """Why the placement of the first misplaced instance did not hold or is unknown, or an empty string."""
        return self._wrong() or self._unknown()

    @property
    def unverified(self) -> str:
        """Why a placement is unknown, if none is known to be wrong; else empty."""
        return "" if self._wrong() else self._unknown()

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of all instances."""
        return sum(outcome.cpu_seconds for step in self.steps for outcome in step)

    @property
    def peak_bytes(self) -> int:
        """The largest sum, over the instances of one program, of peak memory."""
        return max((sum(outcome.peak_bytes for outcome in step) for step in self.steps), default=0)

    def _of_instances(self) -> Iterator[tuple[int, Outcome]]:
        """Yield the number and the outcome of each instance that got reads, for each program."""
        for step in self.steps:
            yield from ((number, outcome) for number, outcome in enumerate(step) if number in self.fed)

    def _wrong(self) -> str:
        for number, outcome in self._of_instances():
            if (reason := outcome.misplaced) and not outcome.unverified:
                return f"instance {number}: {reason}"
        return ""

    def _unknown(self) -> str:
        for number, outcome in self._of_instances():
            if reason := outcome.unverified or outcome.observed.coverage.reason():
                return f"instance {number}: {reason}"
        return "" if self.steps else "no instance was started"


class Run(Struct):
    """A command under a scenario, fed with *reads*; the alignments go to *target*.

    *repeated*: the reads are repeated, so their alignments have no order. *feeds_all*: every instance gets reads.
    *describe* turns the aligner's header into the output's. *scratch* is the empty folder for the instances'
    outputs. *uses* is how each instance uses the index. *timeout* is in seconds.
    """

    command: Command
    scenario: Scenario
    reads: ReadStream | GivenFiles
    target: Target
    scratch: Path
    describe: Callable[[bytes], bytes]
    stop: StopRequest
    uses: Sequence[IndexUse]
    repeated: bool = False
    feeds_all: bool = False
    timeout: float | None = None
    watching: Watching = field(default_factory=Watching)
    on_progress: Callable[[Progress], None] = lambda _: None
    #: Gets the instances' standard error at the end; None discards it.
    messages: Messages | None = None

    def run(self) -> StreamResult:
        """Align all reads. Raises BadInput for the reads, ProgramFailed, or RunFailed for an incomplete output.

        Raises BrokenPipeError if the reader of the output has ended.
        """
        began = time.monotonic()
        with read_pieces(self.reads, self.spare_pus) as pieces:
            # No program starts before the first reads are checked.
            first = [piece for piece in (next(pieces, None),) if piece is not None]
            launch = _Launch(self, self.scratch, began)
            steps = tuple(map(tuple, launch.run(itertools.chain(first, pieces))))
        seconds = time.monotonic() - began
        return StreamResult(
            launch.reads, launch.mapped, seconds, steps, frozenset(launch.ledger.fed), aligning=launch.aligning
        )

    @property
    def spare_pus(self) -> frozenset[int]:
        """The PUs that no instance uses, for this process; none if instances use all."""
        return frozenset(os.sched_getaffinity(0) - self.scenario.pus)


class _Threads:
    """Threads that work for running programs, on *pus* (empty: any); their first error stops the programs."""

    def __init__(self, pus: Collection[int] = ()) -> None:
        self._pus = pus
        self.events = Events()
        self._errors: list[BaseException] = []
        self._threads: dict[str, WorkerThread] = {}

    def start(self, name: str, work: Callable[[], None]) -> None:
        """Start a thread."""

        def body() -> None:
            try:
                work()
            except Stopped:
                pass
            except BaseException as error:
                self._errors.append(error)
                self.events.fail(error)

        self._threads[name] = WorkerThread(name, body, pus=self._pus)
        self._threads[name].start()

    def wait(self, name: str) -> None:
        """Wait for the end of a thread; raises the first error of all threads."""
        self._threads[name].join()
        if self._errors:
            raise self._errors[0]

    def join(self) -> None:
        """Wait for all threads; never raises."""
        for thread in self._threads.values():
            thread.join()


class _Input(Struct, frozen=True):
    """The input of one instance: *pipes*, or files that were written for it, or the user's files (*given*)."""

    files: tuple[Path, ...] = ()
    given: tuple[Path, ...] = ()
    pipes: tuple[int, ...] = ()

    @property
    def names(self) -> list[str]:
        """The names that the program gets."""
        return [f"/dev/fd/{fd}" for fd in self.pipes] or [str(file) for file in self.files or self.given]


class _Launch:
    """The instances from their start to their end."""

    def __init__(self, run: Run, folder: Path, began: float) -> None:
        self._run, self._folder, self._began = run, folder, began
        self._threads = _Threads(run.spare_pus)
        self.ledger = Ledger(folder)
        self._folders = [folder / str(number) for number in range(run.scenario.instances)]
        for each in self._folders:
            each.mkdir()
        self._outputs = [
            InstanceOutput(folder, number, run.command, repeated=run.repeated)
            for number in range(run.scenario.instances)
        ]
        self._feeds: list[Feed] = []
        self._done = threading.Event()
        self.aligning = 0.0

    @property
    def reads(self) -> int:
        """Reads in the output so far."""
        return sum(output.reads for output in self._outputs)

    @property
    def mapped(self) -> int:
        """Mapped reads in the output so far."""
        return sum(output.mapped for output in self._outputs)

    def run(self, pieces: Iterator[Piece]) -> list[list[Outcome]]:
        """Align *pieces*; return the outcomes of each program."""
        try:
            if self._run.command.reads_files or self._run.reads.files:
                inputs = self._as_files(pieces)
                *earlier, last = range(len(self._argvs(inputs)[0]))
                outcomes = [self._run_jobs(self._jobs(inputs, step, is_last=False), inputs) for step in earlier]
                return [*outcomes, self._collected(inputs, last)]
            with contextlib.ExitStack() as unread:  # closes the ends of pipes that no program has taken
                inputs = self._pipes(unread)
                dealer = self._dealer(pieces, self._feeds)
                for feed in self._feeds:
                    feed.start()
                self._threads.start("dealer", lambda: self._deal(dealer, self._feeds))
                return [self._collected(inputs, 0, unread)]
        except BaseException:
            self._run.stop.set()
            self._run.reads.stop()
            raise
        finally:
            self._end()

    def _dealer(self, pieces: Iterator[Piece], feeds: Sequence[Feed] | Sequence[InstanceFiles]) -> Dealer:
        expect = [output.want for output in self._outputs]
        return Dealer(pieces, feeds, expect, self.ledger)

    def _collected(
        self, inputs: Sequence[_Input], step: int, unread: contextlib.ExitStack | None = None
    ) -> list[Outcome]:
        """Run the last program, collect the alignments meanwhile, and return the outcomes."""
        run = self._run
        collector = Collector(self._outputs, self.ledger, run.target, self._described, run.stop)
        self._threads.start("collector", collector.collect)
        self._threads.start("progress", self._tell)
        jobs = self._jobs(inputs, step, is_last=True)
        if unread:
            unread.pop_all()
        outcomes = self._run_jobs(jobs, inputs)
        if not self.ledger.dealt_all:
            raise self._ended_early()
        collector.ended.set()
        self._threads.wait("collector")
        return outcomes

    def _ended_early(self) -> RunFailed:
        """Return the error for programs that ended before reading all their reads, or raise its cause."""
        self._run.stop.set()
        self._run.reads.stop()
        self.ledger.stop()
        self._threads.wait("collector")
        for output in self._outputs:
            output.look(ended=False)
        number = next((number for number, feed in enumerate(self._feeds) if feed.is_left), 0)
        program = self._run.command.aligner.name
        return RunFailed(f"instance {number}: {program} ended before it had read all its reads")

    def _run_jobs(self, jobs: Sequence[Job], inputs: Sequence[_Input]) -> list[Outcome]:
        run = self._run
        files = [file for each in inputs for file in each.files]
        outcomes = run_together(
            jobs,
            timeout=run.timeout,
            since=self._began,
            watching=run.watching,
            events=self._threads.events,
        )
        begun = [feed.reading_since for feed in self._feeds] or [None] * len(outcomes)
        # A program that only copies the output of another one is not the cause.
        words = [word for job in jobs for word in job.argv]
        if not files or any(str(file) in word for file in files for word in words):
            self.aligning += max(
                o.started + o.seconds - (at or o.started) for o, at in zip(outcomes, begun, strict=True)
            )
        return outcomes

    def _pipes(self, unread: contextlib.ExitStack) -> list[_Input]:
        """Return the pipes of each instance; *unread* closes the ends that it reads."""
        inputs = []
        for _ in self._outputs:
            with contextlib.ExitStack() as unfed:
                pipes = []
                for _ in range(self._run.command.pipes):
                    pipes.append(os.pipe())
                    unread.callback(os.close, pipes[-1][0])
                    unfed.callback(os.close, pipes[-1][1])
                self._feeds.append(Feed([fd for _, fd in pipes], self._run.stop, self._run.spare_pus))
                unfed.pop_all()
            inputs.append(_Input(pipes=tuple(fd for fd, _ in pipes)))
        return inputs

    def _as_files(self, pieces: Iterator[Piece]) -> list[_Input]:
        """Write the share of each instance to files, unless one reads the files themselves, and return them."""
        given = self._run.reads.files
        files = []
        for folder in self._folders:
            names = given or [folder / f"{number}.fq" for number in range(1, 1 + self._run.command.pipes)]
            files.append(InstanceFiles(names, are_given=bool(given)))
        self._deal(self._dealer(pieces, files), files)
        return [_Input(() if given else each.files, given) for each in files]

    def _argvs(self, inputs: Sequence[_Input]) -> list[list[list[str]]]:
        """Return the argv of each program of each instance."""
        run = self._run
        return [
            run.command.argvs(
                threads=run.scenario.threads,
                reads=["-"] if run.command.on_stdin else each.names,
                use=use,
                scratch=folder,
            )
            for each, use, folder in zip(inputs, run.uses, self._folders, strict=True)
        ]

    def _jobs(self, inputs: Sequence[_Input], step: int, *, is_last: bool) -> list[Job]:
        """Return the jobs of one step."""
        run = self._run
        jobs = []
        for number, (argvs, each) in enumerate(zip(self._argvs(inputs), inputs, strict=True)):
            use, on_stdin = run.uses[number], run.command.on_stdin and bool(each.pipes)
            job = Job(
                argvs[step],
                self._outputs[number].file if is_last else self._folders[number] / f"{step}.out",
                self._folder / f"{number}.log",
                run.scenario.placements[number],
                run.scenario.threads,
                fds=() if on_stdin else each.pipes,
                stdin=each.pipes[0] if on_stdin else None,
                handed=each.pipes,
                excused=functools.partial(self._is_unfed, number),
                entering=use.entering,
                index=use.pages,
            )
            jobs.append(job)
            if run.messages:
                run.messages.commands[number] = " ".join(argvs[step])
        return jobs

    def _described(self, header: bytes) -> bytes:
        self._run.command.aligner.check_header(header)
        return self._run.describe(header)

    def _is_unfed(self, number: int) -> bool:
        """Return whether an instance got no reads: some aligners fail on an empty input."""
        return self.ledger.dealt_all and number not in self.ledger.fed

    def _deal(self, dealer: Dealer, feeds: Sequence[Feed] | Sequence[InstanceFiles]) -> None:
        dealer.deal()
        run, fed = self._run, len(self.ledger.fed)
        if run.feeds_all and fed < run.scenario.instances:
            read = run.reads.progress
            counts = {"records": read.records, "bases": read.bases, "batches": max(fed, read.batches)}
            raise CannotHere(
                too_few_reads(run.reads.rule, run.scenario.instances, mates=run.command.mates, **counts)
            )
        self.ledger.close()
        for feed in feeds:
            feed.close()

    def _tell(self) -> None:
        """Report the progress until the run ends."""
        while not self._done.wait(_PROGRESS_INTERVAL):
            seconds = time.monotonic() - self._began
            self._run.on_progress(Progress(self.reads, seconds, self._fraction()))

    def _fraction(self) -> float | None:
        """Return the aligned fraction of the input, without the reads that wait in pipes and programs."""
        read = self._run.reads.progress
        if read.fraction is None or not read.records:
            return None
        return read.fraction * min(1.0, self.reads / self._run.command.mates / read.records)

    def _end(self) -> None:
        """Wait for all threads, which have been asked to stop if there was a failure."""
        self._done.set()
        if self._run.stop.is_set:
            self.ledger.stop()
        for feed in self._feeds:
            feed.close()
        self._threads.join()
        for feed in self._feeds:
            feed.join()
        for output in self._outputs:
            output.close()
        if self._run.messages and self._feeds and not isinstance(sys.exception(), BrokenPipeError):
            failed = self._run.stop.is_set
            # An instance without reads would print messages about its empty input.
            numbers = range(len(self._feeds)) if failed else sorted(self.ledger.fed)
            logs = {number: self._folder / f"{number}.log" for number in numbers}
            self._run.messages.add(logs, failed=failed)


# ----------------------------------------------------------------------
# The user's unchanged command


def unsplit(
    command: UserCommand,
    scenario: Scenario,
    sink: Sink | None,
    describe: Callable[[bytes], bytes],
    stop: StopRequest,
    *,
    use: IndexUse = OWN,
    timeout: float | None = None,
    watching: Watching | None = None,
) -> StreamResult:
    """Run the user's own command in one instance with this process's standard input and error.

    Without a *sink* it writes to this process's standard output directly. A *use* of a copy of the index needs a
    sink.
    """
    (placement,) = scenario.placements
    fewer = scenario.threads < len(placement.pus)
    argv = command.unsplit(min(command.threads, scenario.threads) if fewer else None, use)
    if sink is None:
        outcome = run_in_foreground(argv, placement, threads=scenario.threads, timeout=timeout, watching=watching)
        if outcome.status:
            raise ProgramFailed(describe_ending(argv[0], outcome.status), outcome.status)
        return StreamResult(0, 0, outcome.seconds, ((outcome,),), frozenset({0}))
    fds = tuple(fd for fd in sorted(_descriptors(argv)) if fd > 2)
    began = time.monotonic()
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", 0) as source:
        job = Job(
            argv,
            placement=placement,
            threads=scenario.threads,
            fds=fds,
            stdin=0,
            streams=(writing, 2),
            handed=(writing,),
            entering=use.entering,
            index=use.pages,
        )
        threads = _Threads()
        try:
            threads.start("relay", lambda: _relay(source, sink, describe, stop))
            (outcome,) = run_together([job], timeout=timeout, events=threads.events, watching=watching)
            threads.wait("relay")
        except BaseException:
            stop.set()
            raise
        finally:
            threads.join()
    return StreamResult(0, 0, time.monotonic() - began, ((outcome,),), frozenset({0}))


def _descriptors(argv: Sequence[str]) -> set[int]:
    """Return the open descriptors that the words of *argv* name, also within lists and after options."""
    named = {int(number) for word in argv for number in _DESCRIPTOR.findall(word)}
    return {fd for fd in named if Path(f"/proc/self/fd/{fd}").exists()}


def _relay(source: IO[bytes], sink: Sink, describe: Callable[[bytes], bytes], stop: StopRequest) -> None:
    """Move SAM from a pipe into *sink*, with the described header and unchanged alignments."""
    held = b""
    while True:
        stop.wait_for(source.fileno(), select.POLLIN)
        block = source.read(_RELAY_BYTES)
        held += block
        size = sam.header_size(held)
        if size is not None or not block:
            break
    size = len(held) if size is None else size
    sink.begin(describe(held[:size]))
    sink.write(held[size:])
    if not block:
        return
    is_pipe = stat.S_ISFIFO(os.fstat(sink.fd).st_mode)
    if is_pipe:
        while splice(source.fileno(), sink.fd, None, _RELAY_BYTES, stop):
            pass
        return
    while block := source.read(_RELAY_BYTES):
        sink.write(block)
