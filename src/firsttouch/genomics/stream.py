# SPDX-License-Identifier: Apache-2.0
"""Aligns a stream of reads with several instances; the alignments come out in input order while the instances run.

The dealer (:mod:`firsttouch.genomics.dealing`) takes parts of the reads (whole batches of the aligner) and gives
each to one instance. A writer for each pipe feeds it. An instance writes SAM into a scratch file; the collector
(:mod:`firsttouch.genomics.collecting`) reads these files as they grow, sends finished parts to the target in input
order, and releases the disk space behind them. Memory is bounded by a few pieces of reads for each pipe. Disk
space is bounded too: the dealer waits while the target is slower than the instances. Each input is read once.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import os
import re
import select
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from firsttouch.errors import ProgramFailed, RunFailed
from firsttouch.execution import placement_check
from firsttouch.execution.child_process import end_of_log, ending
from firsttouch.execution.foreground import run_in_foreground
from firsttouch.execution.jobs import Job, Outcome
from firsttouch.execution.process_runner import Events, run_together
from firsttouch.execution.sampling import Watching
from firsttouch.execution.threads import WorkerThread
from firsttouch.genomics import sam
from firsttouch.genomics.collecting import Collector, InstanceOutput, Target, splice
from firsttouch.genomics.command_line import UserCommand
from firsttouch.genomics.dealing import Dealer, Feed, Ledger, reading
from firsttouch.genomics.index_copies import OWN, IndexUse
from firsttouch.genomics.pipe_writer import Stopped, StopRequest
from firsttouch.genomics.sinks import Sink
from firsttouch.records import atomic_files
from firsttouch.scenarios.placement import Scenario

if TYPE_CHECKING:  # they load NumPy, which a command in one instance does without
    from firsttouch.genomics.checkpoints import Stretch
    from firsttouch.genomics.read_stream import Piece, ReadStream

_PROGRESS_INTERVAL = 1.0
_RELAY_BYTES = 1 << 20
_DESCRIPTOR = re.compile(r"/(?:dev|proc/(?:thread-)?self)/fd/(\d+)(?!\d)")


@dataclass(frozen=True)
class Progress:
    """How far a run is: reads aligned, of them mapped, seconds, and the fraction of the input that is aligned.

    *instances* are the reads that each instance has aligned. *fraction* is None if the input's size is unknown.
    """

    reads: int
    mapped: int
    seconds: float
    fraction: float | None
    instances: tuple[int, ...]

    @property
    def rate(self) -> float:
        """Reads per second."""
        return self.reads / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the input is read at the rate so far; None if its size is unknown."""
        return self.seconds * (1 - self.fraction) / self.fraction if self.fraction else None


# ----------------------------------------------------------------------
# A whole run


@dataclass(frozen=True)
class Result:
    """One run: *reads* in the output, *mapped* of them, and wall seconds.

    *launches* are the outcomes of all instances, for each time that these were started. *fed* are the instances
    that got reads. *earlier* are the parts of the output that earlier runs have finished.
    """

    reads: int
    mapped: int
    seconds: float
    launches: tuple[tuple[Outcome, ...], ...]
    fed: frozenset[int]
    earlier: tuple[Stretch, ...] = ()

    @property
    def misplaced(self) -> str:
        """Why the placement of the first misplaced instance did not hold or is unknown, or an empty string."""
        return self._wrong() or self._unknown()

    @property
    def unverified(self) -> str:
        """Why a placement is unknown if none is known to be wrong, or an empty string."""
        return "" if self._wrong() else self._unknown()

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of all instances."""
        return sum(outcome.cpu_seconds for launch in self.launches for outcome in launch)

    @property
    def peak_bytes(self) -> int:
        """The largest sum, over the instances of one launch, of peak memory."""
        return max((sum(outcome.peak_bytes for outcome in launch) for launch in self.launches), default=0)

    def _of_instances(self) -> Iterator[tuple[int, tuple[Outcome, ...]]]:
        """Yield the number and the outcomes of each instance that got reads."""
        return ((n, each) for n, each in enumerate(zip(*self.launches, strict=True)) if n in self.fed)

    def _wrong(self) -> str:
        for number, outcomes in self._of_instances():
            for outcome in outcomes:
                if (reason := outcome.misplaced) and not outcome.unverified:
                    return f"instance {number}: {reason}"
        for part, stretch in enumerate(self.earlier):
            if stretch.misplaced and not stretch.unverified:
                return f"part {part} of an earlier run: {stretch.misplaced}"
        return ""

    def _unknown(self) -> str:
        # An instance is always started in the same way, so samples of one launch tell about the others, if they
        # show most of the memory of all.
        for number, outcomes in self._of_instances():
            if all(outcome.unverified for outcome in outcomes):
                return f"instance {number}: {outcomes[0].unverified}"
            if reason := functools.reduce(operator.add, (o.observed.coverage for o in outcomes)).reason():
                return f"instance {number}: {reason}"
        for part, stretch in enumerate(self.earlier):
            if stretch.unverified:
                return f"part {part} of an earlier run: {stretch.unverified}"
        return "" if self.launches or self.earlier else "no instance was started"


@dataclass
class Run:
    """A command under a scenario, fed with *reads*; the alignments go to *target*.

    *describe* makes the header of the output of the aligner's. *relaunch_bases*: the instances are started anew
    after so many bases, for an aligner whose output depends on what an instance aligned before. *scratch* is the
    folder for the instances' outputs. *uses* is how each instance uses the index. *timeout* is in seconds.
    """

    command: UserCommand
    scenario: Scenario
    reads: ReadStream
    target: Target
    scratch: Path
    describe: Callable[[bytes], bytes]
    stop: StopRequest
    uses: Sequence[IndexUse]
    dynamic: bool = False
    relaunch_bases: int | None = None
    timeout: float | None = None
    on_progress: Callable[[Progress], None] = lambda _: None
    #: The end of the log of each instance in each launch, with the instance's number.
    logs: list[tuple[int, str]] = field(default_factory=list)
    _launch: _Launch | None = field(default=None, init=False)
    _ended: list[tuple[Outcome, ...]] = field(default_factory=list, init=False)
    _fed: set[int] = field(default_factory=set, init=False)

    def run(self) -> Result:
        """Align all reads. Raises BadInput for the reads, ProgramFailed, or RunFailed for an incomplete output.

        BrokenPipeError means that the reader of the output has ended.
        """
        began = time.monotonic()
        reads = mapped = 0
        with reading(self.reads) as pieces:
            while (first := next(pieces, None)) is not None:
                with atomic_files.workspace(self.scratch) as folder:
                    self._launch = launch = _Launch(self, folder, reads, mapped, began)
                    self._ended.append(tuple(launch.run(itertools.chain([first], pieces))))
                self._fed |= launch.ledger.fed
                reads, mapped = launch.reads, launch.mapped
        return Result(reads, mapped, time.monotonic() - began, tuple(self._ended), frozenset(self._fed))

    def placement(self) -> tuple[str, str]:
        """Return why the placement did not hold or is unknown, and why it is unknown, up to now."""
        assert self._launch is not None  # noqa: S101 - it is asked about parts of the output
        with self._launch.observing:
            outcomes = tuple(self._launch.outcomes)
            launches = (*self._ended, outcomes) if len(outcomes) == self.scenario.instances else (outcomes,)
            result = Result(0, 0, 0.0, launches, frozenset(self._fed | self._launch.ledger.fed))
            return result.misplaced, result.unverified


class _Threads:
    """Threads that work for running programs; their first error stops the programs."""

    def __init__(self) -> None:
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

        self._threads[name] = WorkerThread(name, body)
        self._threads[name].start()

    def wait(self, name: str) -> None:
        """Wait for the end of a thread; raises the first error of all threads."""
        self._threads[name].join()
        if self._errors:
            raise self._errors[0]

    def join(self) -> None:
        """Wait for all threads; raises nothing."""
        for thread in self._threads.values():
            thread.join()


class _Launch:
    """The instances from their start to their end."""

    def __init__(self, run: Run, folder: Path, reads: int, mapped: int, began: float) -> None:
        self._run, self._folder = run, folder
        self._before = reads, mapped
        self._began = began
        self._threads = _Threads()
        self.ledger = Ledger(folder)
        self._outputs = [InstanceOutput(folder, number, run.command) for number in range(run.scenario.instances)]
        self._feeds: list[Feed] = []
        self._done = threading.Event()
        #: Those of the instances that have started, while they run.
        self.outcomes: list[Outcome] = []
        #: Held while what the instances do is observed, or judged.
        self.observing = threading.Lock()

    @property
    def reads(self) -> int:
        """Reads in the output so far, with those of earlier launches."""
        return self._before[0] + sum(output.reads for output in self._outputs)

    @property
    def mapped(self) -> int:
        """Mapped reads in the output so far, with those of earlier launches."""
        return self._before[1] + sum(output.mapped for output in self._outputs)

    def run(self, pieces: Iterator[Piece]) -> list[Outcome]:
        """Align *pieces* up to the end, or to the end of this launch."""
        run = self._run
        with contextlib.ExitStack() as unread:  # closes the ends of pipes that no program gets
            try:
                jobs = self._jobs(unread)
                expect = [output.want for output in self._outputs]
                dealer = Dealer(
                    pieces, self._feeds, expect, self.ledger, dynamic=run.dynamic, most_bases=run.relaunch_bases
                )
                collector = Collector(self._outputs, self.ledger, run.target, self._described, run.stop)
                for feed in self._feeds:
                    feed.start()
                self._threads.start("dealer", lambda: self._deal(dealer))
                self._threads.start("collector", collector.collect)
                self._threads.start("progress", self._tell)
                unread.pop_all()
                outcomes = run_together(
                    jobs,
                    timeout=run.timeout,
                    since=self._began,
                    watching=Watching(look=self._look),
                    events=self._threads.events,
                    on_start=self.outcomes.append,
                )
                if not self.ledger.dealt_all:
                    raise RunFailed(f"{jobs[0].argv[0]} ended before it had read all its reads")
                collector.ended.set()
                self._threads.wait("collector")
            except BaseException:
                run.stop.set()
                run.reads.stop()
                raise
            finally:
                self._end()
        return outcomes

    def _look(self, pid: int, observed: placement_check.Observed) -> None:
        with self.observing:
            placement_check.look(pid, observed)

    def _jobs(self, unread: contextlib.ExitStack) -> list[Job]:
        """Return the jobs, whose pipes are open; *unread* closes the ends that they read."""
        run = self._run
        jobs = []
        for number, (placement, use) in enumerate(zip(run.scenario.placements, run.uses, strict=True)):
            with contextlib.ExitStack() as unfed:
                pipes = []
                for _ in range(run.command.pipes):
                    pipes.append(os.pipe())
                    unread.callback(os.close, pipes[-1][0])
                    unfed.callback(os.close, pipes[-1][1])
                self._feeds.append(Feed([fd for _, fd in pipes], run.stop))
                unfed.pop_all()
            reading = tuple(fd for fd, _ in pipes)
            names = [f"/dev/fd/{fd}" for fd in reading]
            on_stdin = run.command.on_stdin
            job = Job(
                run.command.argv(threads=run.scenario.threads, reads=["-"] if on_stdin else names, use=use),
                self._outputs[number].file,
                self._folder / f"{number}.log",
                placement,
                run.scenario.threads,
                fds=() if on_stdin else reading,
                stdin=reading[0] if on_stdin else None,
                handed=reading,
                excused=functools.partial(self._is_unfed, number),
                entering=use.entering,
                index=use.pages,
            )
            jobs.append(job)
        return jobs

    def _described(self, header: bytes) -> bytes:
        self._run.command.aligner.check_header(header)
        return self._run.describe(header)

    def _is_unfed(self, number: int) -> bool:
        """Return whether an instance got no reads: some aligners fail on an empty input."""
        return self.ledger.dealt_all and number not in self.ledger.fed

    def _deal(self, dealer: Dealer) -> None:
        dealer.deal()
        self.ledger.close()
        for feed in self._feeds:
            feed.close()

    def _tell(self) -> None:
        """Report the progress until the launch ends."""
        while not self._done.wait(_PROGRESS_INTERVAL):
            run = self._run
            instances = tuple(output.reads for output in self._outputs)
            seconds = time.monotonic() - self._began
            run.on_progress(Progress(self.reads, self.mapped, seconds, self._fraction(), instances))

    def _fraction(self) -> float | None:
        """Return the fraction of the input that is aligned; the reads that wait in pipes and programs are not."""
        read = self._run.reads.progress
        if read.fraction is None or not read.records:
            return None
        return read.fraction * min(1.0, self.reads / self._run.command.mates / read.records)

    def _end(self) -> None:
        """Wait for all threads; after a failure they have been asked to stop."""
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
        for number in range(len(self._feeds)):
            self._run.logs.append((number, end_of_log(self._folder / f"{number}.log")))


# ----------------------------------------------------------------------
# The user's command as it is


def unsplit(
    command: UserCommand,
    scenario: Scenario,
    sink: Sink | None,
    describe: Callable[[bytes], bytes],
    stop: StopRequest,
    *,
    use: IndexUse = OWN,
    timeout: float | None = None,
) -> Result:
    """Run the user's own command in one instance with this process's standard input and error.

    Without a *sink* it writes to this process's standard output; no byte passes through this process. A *use* of
    another index than the user's needs a sink.
    """
    (placement,) = scenario.placements
    fewer = scenario.threads < len(placement.pus)
    argv = command.unsplit(min(command.threads, scenario.threads) if fewer else None, use)
    if sink is None:
        outcome = run_in_foreground(argv, placement, threads=scenario.threads, timeout=timeout)
        if outcome.status:
            raise ProgramFailed(ending(argv[0], outcome.status), outcome.status)
        return Result(0, 0, outcome.seconds, ((outcome,),), frozenset({0}))
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
            (outcome,) = run_together([job], timeout=timeout, events=threads.events)
            threads.wait("relay")
        except BaseException:
            stop.set()
            raise
        finally:
            threads.join()
    return Result(0, 0, time.monotonic() - began, ((outcome,),), frozenset({0}))


def _descriptors(argv: Sequence[str]) -> set[int]:
    """Return the open descriptors that the words of *argv* name, also in lists and behind options."""
    named = {int(number) for word in argv for number in _DESCRIPTOR.findall(word)}
    return {fd for fd in named if Path(f"/proc/self/fd/{fd}").exists()}


def _relay(source: IO[bytes], sink: Sink, describe: Callable[[bytes], bytes], stop: StopRequest) -> None:
    """Move SAM from a pipe into *sink*: the header described, the alignments as they are."""
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
