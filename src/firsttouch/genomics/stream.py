# SPDX-License-Identifier: Apache-2.0
"""Aligns a stream of reads with several instances; the alignments come out in input order while the instances run.

The *dealer* takes parts of the reads (whole batches of the aligner) and gives each to one instance. A *writer* for
each pipe feeds it. An instance writes SAM into a scratch file; the *collector* reads these files as they grow,
sends finished parts to the target in input order, and releases the disk space behind them. Memory is bounded by a
few pieces of reads for each pipe. Disk space is bounded too: the dealer waits while the target is slower than the
instances. Each input is read once.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import functools
import itertools
import os
import queue
import re
import select
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from firsttouch.errors import ProgramFailed, RunFailed
from firsttouch.execution import placement_check
from firsttouch.execution.process_runner import Events, Job, Outcome, ending, run_in_foreground, run_together
from firsttouch.genomics import sam
from firsttouch.genomics.command_line import UserCommand
from firsttouch.genomics.pipe_writer import PipeWriter, Stopped, StopRequest
from firsttouch.genomics.reads import template_name
from firsttouch.genomics.sam import ByteRange
from firsttouch.genomics.sinks import Sink
from firsttouch.records import atomic_files
from firsttouch.scenarios.placement import Scenario
from firsttouch.tools import no_idle_threads

if TYPE_CHECKING:  # they load NumPy, which a command in one instance does without
    from firsttouch.genomics.read_stream import Piece, ReadStream
    from firsttouch.genomics.sam_stream import OrderedTail, SamTail

#: Least bytes of a part: small enough to balance the instances, large enough to make dealing cheap.
PART_BYTES = 1 << 20
#: A pipe's queue holds about this much. An aligner that reads one mate further than the other gets more of it.
_QUEUE_BYTES = 4 << 20
#: The dealer waits while this much lies in scratch files and the target takes no more.
_BACKLOG_BYTES = 4 << 30
#: Scratch space is released in multiples of this, and this far behind what was sent: a pipe may still refer to it.
_HOLE = 4 << 20
#: Seconds between two looks at the scratch files: the first and the longest pause.
_PAUSES = 0.005, 0.1
_PROGRESS_INTERVAL = 1.0
_RELAY_BYTES = 1 << 20
_LOG_BYTES = 1 << 16
_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")


class Target(Protocol):
    """Where the alignments go."""

    def begin(self, header: bytes) -> None:
        """Take the header, which comes first."""

    def send(self, part: ByteRange, stop: StopRequest) -> None:
        """Take the alignments of the next part."""

    def end_part(self, records: int, bases: int) -> None:
        """Learn that the part is complete, with its number of records (pairs) and bases."""


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


@dataclass(frozen=True)
class _Dealt:
    """A piece that was given to an instance: its records (pairs) and bases, and whether a part ends with it."""

    instance: int
    records: int
    bases: int
    last: bool


class _Ledger:
    """The pieces in input order, from the dealer to the collector."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pieces: collections.deque[_Dealt] = collections.deque()
        self.fed: set[int] = set()
        self.dealt_all = self._stopped = False
        #: Bytes in scratch files while the target takes no more, else 0.
        self._backlog = 0

    def add(self, piece: _Dealt) -> None:
        with self._changed:
            self._pieces.append(piece)
            self.fed.add(piece.instance)
            self._changed.notify_all()

    def close(self) -> None:
        """State that no further piece comes."""
        with self._changed:
            self.dealt_all = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Wake all who wait, with Stopped."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def take(self) -> _Dealt | None:
        """Wait for the next piece, and remove it; None: there are no more."""
        with self._changed:
            while not self._pieces and not self.dealt_all and not self._stopped:
                self._changed.wait()
            if self._stopped:
                raise Stopped
            return self._pieces.popleft() if self._pieces else None

    def set_backlog(self, size: int) -> None:
        with self._changed:
            self._backlog = size
            self._changed.notify_all()

    def wait_for_room(self) -> None:
        """Wait while the target is so slow that scratch files would grow without a limit."""
        with self._changed:
            while self._backlog > _BACKLOG_BYTES and not self._stopped:
                self._changed.wait()


class _Feed:
    """The queues and writers of one instance's pipes (one, or one for each mate)."""

    def __init__(self, fds: Sequence[int], stop: StopRequest) -> None:
        self._changed = threading.Condition()
        self._queues: list[collections.deque[bytes | memoryview]] = [collections.deque() for _ in fds]
        self._sizes = [0] * len(fds)
        self._gone = [False] * len(fds)
        self._closed = False
        self._stop = stop
        self._threads = [
            threading.Thread(target=self._write, args=(number, fd), name="writer", daemon=True)
            for number, fd in enumerate(fds)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Bytes that wait for the pipe that has the fewest."""
        return min(self._sizes)

    def put(self, data: Sequence[bytes | memoryview]) -> None:
        """Add a piece for each pipe; waits while all queues are full. Raises Stopped."""
        with self._changed:
            while min(self._sizes) >= _QUEUE_BYTES and not self._stop.is_set and not all(self._gone):
                self._changed.wait()
            if self._stop.is_set:
                raise Stopped
            for number, block in enumerate(data):
                if not self._gone[number]:
                    self._queues[number].append(block)
                    self._sizes[number] += len(block)
            self._changed.notify_all()

    def close(self) -> None:
        """State that no more pieces come."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def wake(self) -> None:
        """Let all who wait see that a stop was requested."""
        with self._changed:
            self._changed.notify_all()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _next(self, number: int) -> bytes | memoryview | None:
        with self._changed:
            while not self._queues[number] and not self._closed and not self._stop.is_set:
                self._changed.wait()
            if self._stop.is_set or not self._queues[number]:
                return None
            return self._queues[number][0]

    def _write(self, number: int, fd: int) -> None:
        try:
            with PipeWriter(fd, self._stop) as writer:
                while (block := self._next(number)) is not None:
                    writer.write(block)
                    with self._changed:
                        self._queues[number].popleft()
                        self._sizes[number] -= len(block)
                        self._changed.notify_all()
        except Stopped:
            pass
        except BrokenPipeError:  # the program has ended: its exit status or its output shows what is wrong
            pass
        finally:
            with self._changed:
                self._gone[number] = True
                self._queues[number].clear()
                self._sizes[number] = _QUEUE_BYTES
                self._changed.notify_all()


class _Dealer:
    """Gives the parts of the reads to the instances: in turn, or (*dynamic*) to the one with the most room."""

    def __init__(
        self,
        pieces: Iterator[Piece],
        feeds: Sequence[_Feed],
        outputs: Sequence[_Output],
        ledger: _Ledger,
        run: Run,
    ) -> None:
        self._pieces, self._feeds, self._outputs, self._ledger, self._run = pieces, feeds, outputs, ledger, run

    def deal(self) -> None:
        """Deal all parts, or those of this launch."""
        part, instance, bases, begins = -1, -1, 0, True
        for piece in self._pieces:
            if begins:
                part += 1
                instance = self._choose(part)
            self._ledger.wait_for_room()
            # What an output will hold must be known before it can be written.
            self._outputs[instance].want(piece)
            self._ledger.add(_Dealt(instance, piece.records, piece.bases, piece.last))
            self._feeds[instance].put(piece.data)
            bases += piece.bases
            begins = piece.last
            if piece.last and self._run.relaunch_bases is not None and bases >= self._run.relaunch_bases:
                return

    def _choose(self, part: int) -> int:
        # At first each instance gets a part: some aligners fail on an input without reads.
        if not self._run.dynamic or part < len(self._feeds):
            return part % len(self._feeds)
        return min(range(len(self._feeds)), key=lambda instance: self._feeds[instance].waiting)


class _Output:
    """The SAM file of an instance, while it grows."""

    def __init__(self, folder: Path, number: int, command: UserCommand) -> None:
        self._number = number
        self.file = folder / f"{number}.sam"
        self.file.touch()
        with no_idle_threads():
            from firsttouch.genomics.sam_stream import OrderedTail, SamTail  # noqa: PLC0415 - it loads NumPy

        self._tail: SamTail | OrderedTail
        self._want: Callable[[Piece], None]
        if command.aligner.in_order:
            self._tail = tail = SamTail(self.file)
            self._want = lambda piece: tail.want(piece.records * command.mates)
        else:
            self._tail = ordered = OrderedTail(self.file, folder / f"{number}.restored.sam", command.mates)
            step = command.mates // command.pipes  # mates in one text
            self._want = lambda piece: ordered.want(_names(piece.data[0], step))
        #: Alignments of pieces that are complete.
        self._ready: collections.deque[ByteRange] = collections.deque()
        self._freed: dict[Path, int] = {}
        self._sent = 0
        self.finished = False

    @property
    def reads(self) -> int:
        """Reads in the file."""
        return self._tail.primary

    @property
    def mapped(self) -> int:
        """Mapped reads in the file."""
        return self._tail.mapped

    @property
    def header(self) -> bytes:
        """The header, which is complete with the first alignments."""
        return self._tail.header or b""

    def want(self, piece: Piece) -> None:
        """Expect the alignments of a piece."""
        self._want(piece)

    def look(self, *, ended: bool) -> None:
        """Read what was written; raises RunFailed for a damaged output, or (*ended*) one that lacks reads."""
        if self.finished:
            return
        try:
            self._ready.extend(self._tail.finish() if ended else self._tail.look())
        except RunFailed as error:
            raise RunFailed(f"instance {self._number}: {error}") from error
        self.finished = ended

    def next(self) -> ByteRange | None:
        """Return the alignments of the next piece if they are complete."""
        return self._ready.popleft() if self._ready else None

    @property
    def waiting(self) -> int:
        """Bytes that were written and not sent."""
        return self.file.stat().st_size - self._sent

    def release(self, sent: ByteRange) -> None:
        """Free the scratch space of alignments that were sent, and of what was restored."""
        self._sent += sent.end - sent.start
        self._free(sent.file, sent.end)
        if sent.file != self.file:
            self._free(self.file, self._tail.size)

    def _free(self, file: Path, size: int) -> None:
        begin, end = self._freed.get(file, 0), max(0, (size - _HOLE) // _HOLE * _HOLE)
        if begin < end:
            self._freed[file] = end
            _punch(file, begin, end)

    def close(self) -> None:
        self._tail.close()


def _names(text: bytes | memoryview, step: int) -> list[bytes]:
    """Return the names of the templates in a text of FASTQ or FASTA that has *step* records for each."""
    lines = bytes(text).split(b"\n")
    is_fasta = lines[0].startswith(b">")
    heads = [line for line in lines if line.startswith(b">")] if is_fasta else lines[:-1:4]
    return [template_name(head[1:].split(None, 1)[0]) for head in heads[::step]]


class _Collector:
    """Sends finished alignments to the target in input order."""

    def __init__(self, outputs: Sequence[_Output], ledger: _Ledger, run: Run) -> None:
        self._outputs, self._ledger, self._run = outputs, ledger, run
        #: Set when all instances have ended: the scratch files grow no more.
        self.ended = threading.Event()

    def collect(self) -> None:
        """Send all alignments; returns after the last ones. Raises RunFailed if some are missing."""
        target, stop = self._run.target, self._run.stop
        headers: dict[int, bytes] = {}
        records = bases = 0
        while (piece := self._ledger.take()) is not None:
            output = self._outputs[piece.instance]
            place = self._wait(output)
            if not headers:
                self._run.command.aligner.check_header(output.header)
                target.begin(self._run.describe(output.header))
            if piece.instance not in headers:
                headers[piece.instance] = output.header
                sam.check_same(headers)
            self._ledger.set_backlog(sum(each.waiting for each in self._outputs))
            target.send(place, stop)
            self._ledger.set_backlog(0)
            output.release(place)
            records, bases = records + piece.records, bases + piece.bases
            if piece.last:
                target.end_part(records, bases)
                records = bases = 0
        while not all(self._outputs[number].finished for number in self._ledger.fed):
            self._look_after(_PAUSES[0])

    def _wait(self, output: _Output) -> ByteRange:
        """Return the alignments of the next piece of an output, as soon as they are complete."""
        pause = 0.0
        while (place := output.next()) is None:
            self._look_after(pause)
            pause = min(2 * pause or _PAUSES[0], _PAUSES[1])
        return place

    def _look_after(self, pause: float) -> None:
        """Read what the instances wrote, after so many seconds."""
        if self._run.stop.wait(pause):
            raise Stopped
        ended = self.ended.is_set()
        for number in list(self._ledger.fed):
            self._outputs[number].look(ended=ended)


class SinkTarget:
    """A target that writes into a sink; a reader that takes nothing does not keep a run from being stopped."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def begin(self, header: bytes) -> None:
        """Write the header."""
        self._sink.begin(header)

    def send(self, part: ByteRange, stop: StopRequest) -> None:
        """Write a part; raises Stopped if *stop* is set while the reader of a pipe takes nothing."""
        if not stat.S_ISFIFO(os.fstat(self._sink.fd).st_mode):
            self._sink.send([part])
            return
        at = part.start
        with part.file.open("rb") as file:
            while at < part.end:
                at += _splice(file.fileno(), self._sink.fd, at, part.end - at, stop)

    def end_part(self, records: int, bases: int) -> None:
        """Nothing is kept of a part."""


def _splice(source: int, target: int, offset: int | None, size: int, stop: StopRequest) -> int:
    """Move up to *size* bytes from a file at *offset*, or from a pipe (None), into the pipe *target*.

    Waits for both ends without changing their flags, which other processes share. Returns 0 at the end of the
    source; raises Stopped, or BrokenPipeError if the reader of the target has gone.
    """
    for fd, wanted in ((source, select.POLLIN), (target, select.POLLOUT)):
        waiting = select.poll()
        waiting.register(fd, wanted)
        waiting.register(stop.fd, select.POLLIN)
        waiting.poll()
        if stop.is_set:
            raise Stopped
    try:
        return os.splice(source, target, size, offset_src=offset, flags=os.SPLICE_F_NONBLOCK)
    except BlockingIOError:
        return _splice(source, target, offset, size, stop)


#: fallocate(2): free the blocks of a range, and leave the file's size.
_KEEP_SIZE_PUNCH_HOLE = 3
_libc = ctypes.CDLL(None, use_errno=True)


def _punch(file: Path, begin: int, end: int) -> None:
    """Free the disk space of the bytes *begin* to *end* - 1 of *file*, if its file system can do that.

    Both are multiples of any block size: the kernel removes whole pages only, and a pipe that still refers to one
    of them keeps its content.
    """
    fd = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        _libc.fallocate(fd, _KEEP_SIZE_PUNCH_HOLE, ctypes.c_long(begin), ctypes.c_long(end - begin))
    finally:
        os.close(fd)


# ----------------------------------------------------------------------
# A whole run


@dataclass(frozen=True)
class Result:
    """One run: *reads* in the output, *mapped* of them, wall seconds, and the outcome of each instance.

    *fed* are the instances that got reads. *launches* is how often the instances were started.
    """

    reads: int
    mapped: int
    seconds: float
    outcomes: tuple[Outcome, ...]
    fed: frozenset[int]
    launches: int

    @property
    def misplaced(self) -> str:
        """Why the placement of the first misplaced instance did not hold, or an empty string."""
        return self._reason(lambda _: True)

    @property
    def unverified(self) -> str:
        """Why a placement is unknown if none is known to be wrong, or an empty string."""
        wrong = self._reason(lambda outcome: not placement_check.unverified(outcome.observed))
        return "" if wrong else self.misplaced

    @property
    def peak_bytes(self) -> int:
        """The largest sum, over the instances of one launch, of peak memory."""
        count = max(1, len(self.outcomes) // max(1, self.launches))
        launches = (self.outcomes[at : at + count] for at in range(0, len(self.outcomes), count))
        return max((sum(outcome.peak_bytes for outcome in launch) for launch in launches), default=0)

    def _reason(self, counts: Callable[[Outcome], bool]) -> str:
        count = len(self.outcomes) // max(1, self.launches)
        reasons = (
            f"instance {number % count}: {reason}"
            for number, outcome in enumerate(self.outcomes)
            if number % count in self.fed and counts(outcome) and (reason := outcome.misplaced())
        )
        return next(reasons, "")


@dataclass
class Run:
    """A command under a scenario, fed with *reads*; the alignments go to *target*.

    *describe* makes the header of the output of the aligner's. *relaunch_bases*: the instances are started anew
    after so many bases, for an aligner whose output depends on what an instance aligned before. *scratch* is the
    folder for the instances' outputs. *timeout* is in seconds.
    """

    command: UserCommand
    scenario: Scenario
    reads: ReadStream
    target: Target
    scratch: Path
    describe: Callable[[bytes], bytes]
    stop: StopRequest
    dynamic: bool = False
    relaunch_bases: int | None = None
    timeout: float | None = None
    on_progress: Callable[[Progress], None] = lambda _: None
    logs: list[str] = field(default_factory=list)

    def run(self) -> Result:
        """Align all reads. Raises BadInput for the reads, ProgramFailed, or RunFailed for an incomplete output.

        BrokenPipeError means that the reader of the output has ended.
        """
        began = time.monotonic()
        outcomes: list[Outcome] = []
        fed: set[int] = set()
        launches = reads = mapped = 0
        with _reading(self.reads) as pieces:
            while (first := next(pieces, None)) is not None:
                with atomic_files.workspace(self.scratch) as folder:
                    launch = _Launch(self, folder, reads, mapped, began)
                    outcomes += launch.run(itertools.chain([first], pieces))
                launches += 1
                fed |= launch.ledger.fed
                reads, mapped = launch.reads, launch.mapped
        return Result(reads, mapped, time.monotonic() - began, tuple(outcomes), frozenset(fed), launches)


#: Pieces that are read ahead.
_AHEAD = 8


@contextlib.contextmanager
def _reading(reads: ReadStream) -> Iterator[Iterator[Piece]]:
    """Yield the pieces of *reads*, which one thread reads from the first to the last: its children end with it."""
    pieces: queue.Queue[Piece | BaseException | None] = queue.Queue(_AHEAD)
    left = threading.Event()

    def put(item: Piece | BaseException | None) -> None:
        while not left.is_set():
            with contextlib.suppress(queue.Full):
                pieces.put(item, timeout=0.5)
                return

    def read() -> None:
        try:
            for piece in reads:
                put(piece)
                if left.is_set():
                    return
            put(None)
        except BaseException as error:
            put(error)

    def taken() -> Iterator[Piece]:
        while (item := pieces.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    thread = threading.Thread(target=read, name="reader", daemon=True)
    thread.start()
    try:
        yield taken()
    finally:
        left.set()
        reads.stop()
        thread.join()


class _Threads:
    """Threads that work for running programs; their first error stops the programs."""

    def __init__(self) -> None:
        self.events = Events()
        self._errors: list[BaseException] = []
        self._threads: dict[str, tuple[threading.Thread, threading.Event]] = {}

    def start(self, name: str, work: Callable[[], None]) -> None:
        """Start a thread."""
        ended = threading.Event()

        def body() -> None:
            try:
                work()
            except Stopped:
                pass
            except BaseException as error:
                self._errors.append(error)
                self.events.fail(error)
            finally:
                ended.set()

        thread = threading.Thread(target=body, name=name, daemon=True)
        self._threads[name] = thread, ended
        thread.start()

    def wait(self, name: str) -> None:
        """Wait for the end of a thread; raises the first error of all threads."""
        self._threads[name][1].wait()
        if self._errors:
            raise self._errors[0]

    def join(self) -> None:
        """Wait for all threads; raises nothing."""
        # In Python 3.11 an interrupted Thread.join() takes the thread for ended; an event does not.
        for thread, ended in self._threads.values():
            ended.wait()
            thread.join()


def _end_of(log: Path) -> str:
    """Return the end of an instance's log."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _LOG_BYTES))
            return stream.read().decode(errors="replace")
    except OSError:  # the instance was not started
        return ""


class _Launch:
    """The instances from their start to their end."""

    def __init__(self, run: Run, folder: Path, reads: int, mapped: int, began: float) -> None:
        self._run, self._folder = run, folder
        self._before = reads, mapped
        self._began = began
        self._left = None if run.timeout is None else max(0.0, began + run.timeout - time.monotonic())
        self._threads = _Threads()
        self.ledger = _Ledger()
        self._outputs = [_Output(folder, number, run.command) for number in range(run.scenario.instances)]
        self._feeds: list[_Feed] = []
        self._done = threading.Event()

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
        jobs = self._jobs()
        dealer = _Dealer(pieces, self._feeds, self._outputs, self.ledger, run)
        collector = _Collector(self._outputs, self.ledger, run)
        try:
            for feed in self._feeds:
                feed.start()
            self._threads.start("dealer", lambda: self._deal(dealer))
            self._threads.start("collector", collector.collect)
            self._threads.start("progress", self._tell)
            outcomes = run_together(jobs, timeout=self._left, events=self._threads.events)
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

    def _jobs(self) -> list[Job]:
        run = self._run
        jobs = []
        for number, placement in enumerate(run.scenario.placements):
            pipes = [os.pipe() for _ in range(run.command.pipes)]
            reading = tuple(fd for fd, _ in pipes)
            self._feeds.append(_Feed([fd for _, fd in pipes], run.stop))
            names = [f"/dev/fd/{fd}" for fd in reading]
            on_stdin = run.command.on_stdin
            job = Job(
                run.command.argv(threads=run.scenario.threads, reads=["-"] if on_stdin else names),
                self._outputs[number].file,
                self._folder / f"{number}.log",
                placement,
                run.scenario.threads,
                fds=() if on_stdin else reading,
                stdin=reading[0] if on_stdin else None,
                handed=reading,
                excused=functools.partial(self._is_unfed, number),
            )
            jobs.append(job)
        return jobs

    def _is_unfed(self, number: int) -> bool:
        """Return whether an instance got no reads: some aligners fail on an empty input."""
        return self.ledger.dealt_all and number not in self.ledger.fed

    def _deal(self, dealer: _Dealer) -> None:
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
            self._run.logs.append(_end_of(self._folder / f"{number}.log"))


# ----------------------------------------------------------------------
# The user's command as it is


def unsplit(
    command: UserCommand,
    scenario: Scenario,
    sink: Sink | None,
    describe: Callable[[bytes], bytes],
    stop: StopRequest,
    *,
    timeout: float | None = None,
) -> Result:
    """Run the user's own command in one instance with this process's standard input and error.

    Without a *sink* it writes to this process's standard output; no byte passes through this process.
    """
    (placement,) = scenario.placements
    usable = sum(len(placement.pus) for placement in scenario.placements)
    argv = command.unsplit(min(command.threads, scenario.threads) if scenario.threads < usable else None)
    if sink is None:
        outcome = run_in_foreground(argv, placement, threads=scenario.threads, timeout=timeout)
        if outcome.status:
            raise ProgramFailed(ending(argv[0], outcome.status), outcome.status)
        return Result(0, 0, outcome.seconds, (outcome,), frozenset({0}), 1)
    inherited = tuple(int(match[1]) for word in argv if (match := _DESCRIPTOR.fullmatch(word)))
    fds = tuple(fd for fd in inherited if fd > 2)
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
    return Result(0, 0, time.monotonic() - began, (outcome,), frozenset({0}), 1)


def _relay(source: IO[bytes], sink: Sink, describe: Callable[[bytes], bytes], stop: StopRequest) -> None:
    """Move SAM from a pipe into *sink*: the header described, the alignments as they are."""
    held = b""
    while True:
        waiting = select.poll()
        waiting.register(source, select.POLLIN)
        waiting.register(stop.fd, select.POLLIN)
        waiting.poll()
        if stop.is_set:
            raise Stopped
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
        while _splice(source.fileno(), sink.fd, None, _RELAY_BYTES, stop):
            pass
        return
    while block := source.read(_RELAY_BYTES):
        sink.write(block)
