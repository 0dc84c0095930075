# SPDX-License-Identifier: Apache-2.0
"""Feeds reads to instances through pipes: static division, dynamic load balancing, or weak scaling."""

from __future__ import annotations

import bisect
import contextlib
import functools
import importlib
import itertools
import os
import select
import shutil
import struct
import threading
import time
from array import array
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from firsttouch.errors import CannotHere
from firsttouch.execution.progress import say
from firsttouch.execution.threads import WorkerThread
from firsttouch.genomics.pipe_writer import PipeWriter, Stopped, StopRequest
from firsttouch.genomics.reads import Reads, empty_mates, template_name
from firsttouch.genomics.sources import ByteSource, PlainFile, SeekableGzip, SharedGzip
from firsttouch.tools import no_idle_threads

# ----------------------------------------------------------------------
# Changes to FASTQ on its way: line ends (mates: see firsttouch.genomics.mates)


def crlf_to_lf(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield *blocks* with LF for each CR LF; a CR LF may lie across two blocks."""
    held = b""
    for block in blocks:
        text = held + block
        held = b"\r" if text.endswith(b"\r") else b""
        yield text[: len(text) - len(held)].replace(b"\r\n", b"\n")
    yield held


# ----------------------------------------------------------------------
# Parts of the reads: adjacent whole batches

#: Bytes of a dynamic part: small enough for an instance to ask again soon, large enough to make that cheap.
PART_BYTES = 1 << 20
#: An instance gets about this many dynamic parts or more, which bounds the wait for the last one.
_PARTS_EACH = 16
#: Minimum bytes of a dynamic part: aligners read their input in portions, and bowtie 1.3.1 with several threads
#: loses all reads of an input that is smaller than one.
_LEAST_BYTES = 1 << 16


@dataclass(frozen=True)
class Part:
    """Records (pairs) *first* to *end* - 1, which are the bytes *begins* to *ends* - 1 of each file."""

    first: int
    end: int
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def records(self) -> int:
        """Number of records (pairs)."""
        return self.end - self.first


def parts_between(reads: Reads, marks: Iterable[int]) -> list[Part]:
    """Return the parts between neighbours of *marks*, positions in the batch index of *reads*."""
    index = reads.batches
    places = [(index.records[mark], tuple(offsets[mark] for offsets in index.offsets)) for mark in marks]
    return [Part(first, end, begins, ends) for (first, begins), (end, ends) in itertools.pairwise(places)]


def static_parts(reads: Reads, count: int) -> list[Part]:
    """Divide *reads* into *count* parts, as equal as whole batches allow; raises CannotHere for fewer batches."""
    index = reads.batches
    if index.count < count:
        if index.count == reads.records:
            raise CannotHere(f"{reads.records} records are too few for {count} instances: use more reads")
        raise CannotHere(_too_few(reads, count))
    last = len(index.records) - 1
    return parts_between(reads, [round(number * last / count) for number in range(count + 1)])


def _too_few(reads: Reads, parts: int) -> str:
    """Explain why *reads* have too few batches for *parts* instances, and how many reads suffice."""
    batch = reads.batches.rule
    sizes = {"bases": batch.bases, "reads": batch.records * reads.mates, "bytes of the first file": batch.text}
    each = " and ".join(f"{size:,} {unit}" for unit, size in sizes.items() if size)
    have = f"{reads.bases:,} bases in {reads.records * reads.mates:,} reads"
    reason = (
        f"the reads are too few for {parts} instances with the same output as one: the aligner works in batches "
        f"of {each}, each instance needs one, and {have} fill {reads.batches.count}; "
        f"use {parts} times {each} or more"
    )
    if not batch.bases:
        return reason
    return f"{reason}, or smaller batches in all runs: --batch-bases {max(1, reads.bases // (2 * parts))}"


def dynamic_parts(reads: Reads, instances: int) -> list[Part]:
    """Divide *reads* into parts of about PART_BYTES (or one larger batch), at least one for each instance.

    Raises CannotHere if there are fewer batches than instances.
    """
    total = reads.batches.offsets[0][-1]
    size = min(PART_BYTES, max(_LEAST_BYTES, total // (_PARTS_EACH * instances)))
    return static_parts(reads, max(instances, min(total // size, len(reads.batches.records) - 1)))


def weak_scaling_parts(reads: Reads, instances: int, records: int) -> list[list[Part]]:
    """Return for each instance parts with *records* records in total, as near as whole batches allow.

    Each instance goes on where the one before it ended. The first record follows the last, or the last whole block
    of blocked reads. Raises CannotHere if an instance gets no batch.
    """
    reads = _whole_blocks(reads)
    starts = reads.batches.records
    last = len(starts) - 1
    # Marks are counted on through the repetitions of the reads.
    marks = []
    for at in range(0, (instances + 1) * records, records):
        repetition, rest = divmod(at, reads.records)
        after = bisect.bisect_left(starts, rest)
        nearest = min(range(max(after - 1, 0), after + 1), key=lambda mark: abs(starts[mark] - rest))
        marks.append(repetition * last + nearest)
    if any(a == b for a, b in itertools.pairwise(marks)):
        batch = reads.records / reads.batches.count
        raise CannotHere(
            f"{records} records for each instance are too few: a batch of the aligner has {batch:.0f}"
        )
    return [
        [
            part
            for first in range(a // last * last, b, last)
            for part in parts_between(reads, [max(a - first, 0), min(b - first, last)])
        ]
        for a, b in itertools.pairwise(marks)
    ]


def _whole_blocks(reads: Reads) -> Reads:
    """Return blocked *reads* without an incomplete last block, as nothing can follow it; raises CannotHere."""
    index, rule = reads.batches, reads.batches.rule
    if not rule.block or not reads.records % rule.records:
        return reads
    blocks = reads.records // rule.records
    if not blocks:
        raise CannotHere(f"{reads.records} records do not fill a block of {rule.records}: use more reads")
    kept = bisect.bisect_left(index.records, blocks * rule.records)
    ends = blocks * rule.records, *[blocks * rule.block] * len(index.offsets)
    records, *offsets = (
        array("q", [*row[:kept], end]) for row, end in zip((index.records, *index.offsets), ends, strict=True)
    )
    whole = replace(index, records=records, offsets=tuple(offsets), count=blocks)
    return replace(reads, records=blocks * rule.records, batches=whole)


# ----------------------------------------------------------------------
# Feeders. One thread writes each pipe: a paired aligner drains its two pipes unevenly, and a thread that waits for
# one pipe could not fill the other. The threads wait in the kernel and move bytes with splice(2) if possible.

#: The writing ends of each instance's pipes by mate; None: the instance does not read that mate.
Sinks = Sequence[Sequence[int | None]]
#: The mates whose reads go through one pipe: (0,), (1,), or (0, 1) interleaved.
Mates = tuple[int, ...]


class Feeder:
    """Feeds each instance the *parts* of the reads whose numbers are in its share.

    *shares* (n instances) are these numbers, in the order in which they are fed. *reading_since* (n) is when each
    instance began to read (monotonic clock), or None if that was not visible.
    """

    def __init__(self, reads: Reads, parts: Sequence[Part], shares: Sequence[Sequence[int]]) -> None:
        self.parts = parts
        self.shares = [list(share) for share in shares]
        self.reading_since: list[float | None] = [None] * len(shares)
        self._reads = reads
        self._stop: StopRequest | None = None
        self._threads: list[WorkerThread] = []
        self._lock = threading.Lock()
        self._error: Exception | None = None

    def start(self, sinks: Sinks, *, interleaved: bool = False) -> None:
        """Start to feed *sinks*, which the feeder closes in any case; call join() or stop() afterwards.

        *interleaved*: the sink of mate 1 gets both mates. Raises BadInput for a file that has changed, as join()
        does. A feeder can be started again after join().
        """
        if interleaved or self._reads.interleaved:
            with no_idle_threads():  # before a feeding thread imports it
                importlib.import_module("firsttouch.genomics.mates")
        self._reset()
        self._error, self._stop, self._threads = None, StopRequest(), []
        jobs = [
            (instance, (0, 1) if interleaved else (mate,), fd)
            for instance, mates in enumerate(sinks)
            for mate, fd in enumerate(mates)
            if fd is not None
        ]
        try:
            self._open_shared({mate for _, mates, _ in jobs for mate in mates}, self._stop)
            for job in jobs:
                self._threads.append(WorkerThread("feeder", functools.partial(self._run, *job, self._stop)))
                self._threads[-1].start()
        except BaseException:
            for number, (_, _, fd) in enumerate(jobs):
                if number >= len(self._threads) or not self._threads[number].is_started:
                    os.close(fd)
            self.stop()
            raise

    def join(self) -> None:
        """Wait until every pipe is fed or its reader is gone; raises the first BadInput or OSError."""
        self._wait()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Stop at once and end all threads; raises nothing."""
        if self._stop is not None:
            self._stop.set()
        self._wait()

    def _wait(self) -> None:
        for thread in self._threads:
            thread.join()
        self._close()

    def _close(self) -> None:
        self._threads = []
        if self._stop is not None:
            self._stop.close()
            self._stop = None

    def _reset(self) -> None:
        """Prepare the shares for a start."""
        self.reading_since = [None] * len(self.shares)

    def _open_shared(self, mates: set[int], stop: StopRequest) -> None:
        """Open what all instances share."""

    def _open(self, mate: int, stop: StopRequest) -> contextlib.AbstractContextManager[ByteSource]:
        """Open the bytes of a mate's file for one pipe."""
        layout = self._reads.layouts[self._file(mate)]
        return contextlib.closing((SeekableGzip if layout.file.gzipped else PlainFile)(layout, stop))

    def _share(self, instance: int, writer: PipeWriter) -> Iterator[int]:  # noqa: ARG002 (for the dynamic feeder)
        """Yield the numbers of an instance's parts, for each of its pipes."""
        yield from self.shares[instance]

    def _file(self, mate: int) -> int:
        """Return the number of the file that has the reads of *mate*."""
        return 0 if self._reads.interleaved else mate

    def _run(self, instance: int, mates: Mates, fd: int, stop: StopRequest) -> None:
        try:
            with contextlib.ExitStack() as stack:
                writer = stack.enter_context(PipeWriter(fd, stop))
                files = mates[:1] if self._reads.interleaved else mates
                sources = [stack.enter_context(self._open(mate, stop)) for mate in files]
                for number in self._share(instance, writer):
                    self._write(self.parts[number], mates, sources, writer)
                    with self._lock:
                        seen = [t for t in (self.reading_since[instance], writer.reading_since) if t is not None]
                        self.reading_since[instance] = min(seen, default=None)
        except (BrokenPipeError, Stopped):
            pass
        except Exception as error:
            with self._lock:
                self._error = self._error or error
            # An instance whose input is cut short must not be taken for done.
            stop.set()

    def _write(self, part: Part, mates: Mates, sources: Sequence[ByteSource], writer: PipeWriter) -> None:
        """Write the reads of *mates* in *part* as plain FASTQ, interleaved if there are two."""
        streams = []
        for mate, source in zip(mates, sources, strict=False):
            number = self._file(mate)
            layout = self._reads.layouts[number]
            begin, end = part.begins[number], part.ends[number]
            final = b"\n" if layout.unended and part.end == self._reads.records else b""
            if len(sources) == 1 and not layout.crlf and self._reads.interleaved == (len(mates) == 2):
                source.copy(begin, end, writer)
                writer.write(final)
                return
            blocks: Iterator[bytes] = itertools.chain(source.read(begin, end), [final])
            streams.append(crlf_to_lf(blocks) if layout.crlf else blocks)
        blocks = streams[0]
        if len(streams) == 2 or (self._reads.interleaved and len(mates) == 1):
            from firsttouch.genomics.mates import deinterleave, interleave  # noqa: PLC0415 - loads NumPy

            blocks = interleave(*streams) if len(streams) == 2 else deinterleave(blocks, mates[0])
        for block in blocks:
            writer.write(block)


class StaticFeeder(Feeder):
    """Static division: every instance gets one part, as in the thesis (section 5.2)."""

    def __init__(self, reads: Reads, instances: int) -> None:
        """Divide *reads*; raises CannotHere if there are fewer batches than instances."""
        super().__init__(reads, static_parts(reads, instances), [[number] for number in range(instances)])


class WeakScalingFeeder(Feeder):
    """Every instance gets the same number of reads, which are repeated as often as needed.

    That keeps the reads per thread constant for any number of threads (Langmead et al. 2018, section 3.1).
    """

    def __init__(self, reads: Reads, instances: int, records: int) -> None:
        """Give each instance *records* records, in whole batches; raises CannotHere for less than one batch."""
        parts = weak_scaling_parts(reads, instances, records)
        numbers = itertools.count()
        shares = [[next(numbers) for _ in share] for share in parts]
        super().__init__(reads, list(itertools.chain.from_iterable(parts)), shares)


class DynamicFeeder(Feeder):
    """Dynamic load balancing (Langmead et al. 2018, section 1.2): an instance that has room gets the next part.

    Each instance starts with one part, because some aligners fail on an input without reads.
    """

    def __init__(self, reads: Reads, instances: int) -> None:
        """Divide *reads* into small parts; raises CannotHere if there are fewer batches than instances."""
        super().__init__(reads, dynamic_parts(reads, instances), [[]] * instances)
        self._next = 0
        self._shared: dict[int, SharedGzip] = {}

    def _reset(self) -> None:
        super()._reset()
        self._next = len(self.shares)
        self.shares = [[number] for number in range(self._next)]

    def _share(self, instance: int, writer: PipeWriter) -> Iterator[int]:
        share = self.shares[instance]
        for position in itertools.count():
            # The first pipe of an instance that has room takes the next part; the pipe of the other mate follows.
            writer.wait()
            with self._lock:
                if position == len(share):
                    if self._next == len(self.parts):
                        return
                    share.append(self._next)
                    self._next += 1
            yield share[position]

    def _open(self, mate: int, stop: StopRequest) -> contextlib.AbstractContextManager[ByteSource]:
        return contextlib.nullcontext(self._shared[mate]) if mate in self._shared else super()._open(mate, stop)

    def _open_shared(self, mates: set[int], stop: StopRequest) -> None:
        # The kernel kills rapidgzip when the thread that started it ends: no feeding thread may start it.
        for mate in mates:
            number = self._file(mate)
            layout = self._reads.layouts[number]
            if layout.file.gzipped:
                ranges = [(part.begins[number], part.ends[number]) for part in self.parts]
                self._shared[mate] = SharedGzip(layout, stop, ranges)

    def _close(self) -> None:
        super()._close()
        for shared in self._shared.values():
            shared.close()
        self._shared = {}


class InstancePipes:
    """The pipes between a feeder and the instances in one step; without a feeder, instances read the files.

    An instance has one pipe for each of *mates*, or (*on_stdin*) one pipe with the interleaved mates.
    """

    def __init__(
        self, reads: Reads, instances: int, mates: Sequence[int], feeder: Feeder | None, *, on_stdin: bool = False
    ) -> None:
        self._reads, self._feeder, self._mates, self._on_stdin = reads, feeder, mates, on_stdin
        self._writing: list[list[int | None]] = [[None] * reads.mates for _ in range(instances)]
        self._reading: list[list[int | None]] = [[None] * reads.mates for _ in range(instances)]
        self._started = False

    def __enter__(self) -> InstancePipes:
        if self._feeder is not None:
            try:
                for writing, reading in zip(self._writing, self._reading, strict=True):
                    for mate in self._mates[:1] if self._on_stdin else self._mates:
                        reading[mate], writing[mate] = os.pipe()
            except OSError:
                _close_all(self._writing)
                _close_all(self._reading)
                raise
        return self

    def of(self, instance: int) -> tuple[list[str | None], tuple[int, ...], int | None]:
        """Return the files that an instance reads (by mate), the descriptors it inherits, and its stdin."""
        if self._feeder is None:
            return [str(f) if m in self._mates else None for m, f in enumerate(self._reads.files)], (), None
        ends = self._reading[instance]
        if self._on_stdin:
            return [None] * len(ends), (), ends[self._mates[0]]
        names = [None if fd is None else f"/dev/fd/{fd}" for fd in ends]
        return names, tuple(fd for fd in ends if fd is not None), None

    def start(self) -> None:
        """Start to feed."""
        if self._feeder is not None:
            self._started = True
            self._feeder.start(self._writing, interleaved=self._on_stdin and len(self._mates) > 1)

    def __exit__(self, kind: object, *_: object) -> None:
        if self._feeder is None:
            return
        if not self._started:
            _close_all(self._writing)
        # Without a reading end a feeder that still writes ends with a broken pipe.
        _close_all(self._reading)
        if kind is None:
            self._feeder.join()
        else:
            self._feeder.stop()


class InstanceFiles:
    """The files that the instances of one step read in place of pipes: each one's share for each of *mates*.

    They are written to the instances' folders in *folder* before the instances start. The *feeder* has the shares
    and gets the times when instances began to read.
    """

    def __init__(self, reads: Reads, mates: Sequence[int], feeder: Feeder, folder: Path) -> None:
        self._reads, self._mates, self._feeder = reads, mates, feeder
        self._files = [
            [folder / str(number) / f"{mate + 1}.fq" if mate in mates else None for mate in range(reads.mates)]
            for number in range(len(feeder.shares))
        ]
        self._opened: _FirstReads | None = None

    def __enter__(self) -> InstanceFiles:
        for share, files in zip(self._feeder.shares, self._files, strict=True):
            parts = [self._feeder.parts[number] for number in share]
            for mate, file in enumerate(files):
                if file is not None:
                    with open_mates(self._reads, parts, [mate]) as (source,), file.open("wb") as out:
                        shutil.copyfileobj(source, out, 1 << 20)
        return self

    def of(self, instance: int) -> tuple[list[str | None], tuple[int, ...], int | None]:
        """Return the files that an instance reads (by mate); it inherits no descriptors and no stdin."""
        return [None if file is None else str(file) for file in self._files[instance]], (), None

    def start(self) -> None:
        """Start to watch when the instances begin to read."""
        self._opened = _FirstReads([file for files in self._files for file in files if file is not None])

    def __exit__(self, *_: object) -> None:
        times = self._opened.stop() if self._opened else {}
        for number, files in enumerate(self._files):
            began = [times[file] for file in files if file in times]
            self._feeder.reading_since[number] = min(began, default=None)
        for file in itertools.chain.from_iterable(self._files):
            if file is not None:
                file.unlink(missing_ok=True)


class _FirstReads:
    """Notes when each of *files* is read for the first time (monotonic clock), as inotify(7) reports it.

    Nothing is noted where the user's limits allow no such watch.
    """

    _ACCESS, _ONCE, _EVENT = 0x1, 0x80000000, struct.Struct("iIII")

    def __init__(self, files: Sequence[Path]) -> None:
        import ctypes  # noqa: PLC0415 - few aligners need it

        libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = libc.inotify_init1(os.O_CLOEXEC)
        self._files: dict[int, Path] = {}
        self._times: dict[Path, float] = {}
        self._stop = StopRequest()
        self._thread = WorkerThread("first reads", self._run)
        if self._fd < 0:
            return
        for file in files:
            watch = libc.inotify_add_watch(self._fd, os.fsencode(file), self._ACCESS | self._ONCE)
            if watch < 0:
                reason = os.strerror(ctypes.get_errno())
                say(f"note: when an instance begins to read is not known for all ({file}: inotify: {reason})")
                break
            self._files[watch] = file
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(Stopped):
            while True:
                self._stop.wait_for(self._fd, select.POLLIN)
                self._note()

    def _note(self) -> None:
        events = os.read(self._fd, 1 << 12)  # files have no names in their events
        for watch, mask, _, _ in self._EVENT.iter_unpack(events):
            if mask & self._ACCESS:
                self._times[self._files[watch]] = time.monotonic()

    def stop(self) -> dict[Path, float]:
        """Stop, and return the times."""
        self._stop.set()
        if self._fd >= 0:
            self._thread.join()
            # On a busy host the thread may stop before it has seen the last ones.
            while select.select([self._fd], [], [], 0)[0]:
                self._note()
            os.close(self._fd)
        self._stop.close()
        return self._times


def _close_all(ends: Sequence[Sequence[int | None]]) -> None:
    for fd in itertools.chain.from_iterable(ends):
        if fd is not None:
            os.close(fd)


# ----------------------------------------------------------------------
# Reading the reads back, as an instance gets them


@contextlib.contextmanager
def open_mates(reads: Reads, parts: Sequence[Part], mates: Sequence[int] = (0,)) -> Iterator[Sequence[IO[bytes]]]:
    """Open the reads of *mates* in *parts* as streams of plain FASTQ; raises what Feeder.join raises.

    A stream need not be read to its end.
    """
    feeder = Feeder(reads, parts, [range(len(parts))])
    sinks: list[int | None] = [None] * reads.mates
    with contextlib.ExitStack() as stack:
        streams = []
        for mate in mates:
            reading, sinks[mate] = os.pipe()
            streams.append(stack.enter_context(os.fdopen(reading, "rb", 1 << 20)))
        feeder.start([sinks])
        try:
            yield streams
        except BaseException:
            stack.close()
            feeder.stop()
            raise
    feeder.join()


def empty_mates_of(reads: Reads, parts: Sequence[Part]) -> list[int]:
    """Return for each of *parts* how many second mates have no bases; raises what Feeder.join raises."""
    with open_mates(reads, parts, [reads.mates - 1]) as (lines,):
        return [empty_mates(itertools.islice(lines, 4 * part.records), 1) for part in parts]


def read_names(reads: Reads, parts: Sequence[Part]) -> Generator[bytes]:
    """Yield the template names of the reads or pairs in *parts*; raises what Feeder.join raises."""
    with open_mates(reads, parts) as (lines,):
        for line in itertools.islice(lines, 0, None, 4):
            yield template_name(line[1:].split(None, 1)[0])
