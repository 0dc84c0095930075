# SPDX-License-Identifier: Apache-2.0
"""Feeds reads to the instances through pipes: equal parts, repeated reads, or batches on demand."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from firsttouch.errors import CannotHere
from firsttouch.genomics.fastq import Reads, stem
from firsttouch.genomics.pipe_writer import Halt, Outlet, Stopped
from firsttouch.genomics.sources import Anew, Intake, Plain, Shared, Unpacked

# ----------------------------------------------------------------------
# Bytes of FASTQ on their way: lines end with LF alone; pairs are taken apart, or put together.


def newlines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield *blocks* with LF for each CR LF, also where the two are in different blocks."""
    held = b""
    for block in blocks:
        text = held + block
        held = b"\r" if text.endswith(b"\r") else b""
        yield text[: len(text) - len(held)].replace(b"\r\n", b"\n")
    yield held


def one_mate(blocks: Iterable[bytes], mate: int) -> Iterator[bytes]:
    """Yield the records of mate *mate* (0 or 1) of *blocks* of interleaved pairs."""
    both = _Whole(blocks, together=2)
    while count := both.count():
        data, sizes = both.take(count)
        yield data[np.repeat(np.arange(count) % 2 == mate, sizes)].tobytes()


def in_turn(one: Iterable[bytes], other: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the records of two mates in turn, as interleaved pairs have them; there are as many of each."""
    mates = _Whole(one), _Whole(other)
    while count := min(mate.count() for mate in mates):
        (first, sizes), (second, others) = (mate.take(count) for mate in mates)
        is_first = np.repeat(np.arange(2 * count) % 2 == 0, np.stack((sizes, others), axis=1).reshape(-1))
        made = np.empty(len(is_first), np.uint8)
        made[is_first], made[~is_first] = first, second
        yield made.tobytes()


class _Whole:
    """Whole records of blocks, a multiple of *together* at a time."""

    def __init__(self, blocks: Iterable[bytes], *, together: int = 1) -> None:
        self._blocks, self._lines = iter(blocks), 4 * together
        self._data = np.empty(0, np.uint8)
        self._ends = np.empty(0, np.int64)

    def count(self) -> int:
        """Return how many records there are, 0 at the end only."""
        while not len(self._ends) and (block := next(self._blocks, None)) is not None:
            self._data = np.frombuffer(self._data.tobytes() + block, np.uint8)
            ends = np.flatnonzero(self._data == ord("\n")) + 1
            self._ends = ends[: len(ends) // self._lines * self._lines].reshape(-1, 4)[:, 3]
        return len(self._ends)

    def take(self, count: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """Return the first *count* records, as bytes, and how many bytes each has."""
        used = int(self._ends[count - 1])
        taken, sizes = self._data[:used], np.diff(self._ends[:count], prepend=0)
        self._data, self._ends = self._data[used:], self._ends[count:] - used
        return taken, sizes


# ----------------------------------------------------------------------
# Parts and pieces of the reads: whole batches, next to each other.

#: Bytes of a piece: an instance soon wants the next one, and the work of handing it out is small beside it.
PIECE = 1 << 20
#: An instance gets at least about as many, so that none waits long for the others at the end.
_EACH = 16
#: Not smaller for that: aligners read a file in portions too, and bowtie 1.3.1 with two threads or more loses all
#: reads of an input of less than one.
_LEAST = 1 << 16


@dataclass(frozen=True)
class Part:
    """Records *first* to *end* - 1, of pairs where reads are paired; bytes *begins* to *ends* - 1 of each file."""

    first: int
    end: int
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def records(self) -> int:
        """How many records these are."""
        return self.end - self.first


def divide(reads: Reads, parts: int) -> list[Part]:
    """Return *parts* parts that begin where batches begin, as equal as that allows.

    Raises CannotHere where there are fewer batches than parts.
    """
    marks = reads.marks
    if marks.batches < parts:
        if marks.batches == reads.records:
            raise CannotHere(f"{reads.records} records are too few for {parts} instances: use more reads")
        raise CannotHere(_too_few(reads, parts))
    count = len(marks.records) - 1
    return _between(reads, [round(number * count / parts) for number in range(parts + 1)])


def _too_few(reads: Reads, parts: int) -> str:
    """Return why there are too few batches for *parts* instances, and what would be enough."""
    batch = reads.marks.batch
    sizes = {"bases": batch.bases, "reads": batch.records * reads.mates, "bytes of the first file": batch.text}
    each = " and ".join(f"{size:,} {unit}" for unit, size in sizes.items() if size)
    have = f"{reads.bases:,} bases in {reads.records * reads.mates:,} reads"
    reason = (
        f"the reads are too few for {parts} instances with the output of one: the aligner works in batches of "
        f"{each}, each instance needs one, and {have} are {reads.marks.batches}; use {parts} times {each} or more"
    )
    if not batch.bases:
        return reason
    return f"{reason}, or smaller batches in all runs: --batch-bases {max(1, reads.bases // (2 * parts))}"


def pieces(reads: Reads, instances: int) -> list[Part]:
    """Return pieces of about PIECE bytes, or of one batch where that is larger, to be handed to *instances*.

    They are as many as the instances at least. Raises CannotHere where there are fewer batches than that.
    """
    total = int(reads.marks.offsets[0][-1])
    size = min(PIECE, max(_LEAST, total // (_EACH * instances)))
    return divide(reads, max(instances, min(total // size, len(reads.marks.records) - 1)))


def repeated(reads: Reads, instances: int, records: int) -> list[list[Part]]:
    """Return for each of *instances* parts of *records* in all, as near as batches allow.

    Each begins where the one before it ended, after the last record with the first one. Raises CannotHere where
    that leaves an instance without a batch.
    """
    marks = reads.marks.records
    last = len(marks) - 1
    # Numbers of marks, counted on through the repetitions.
    cuts = []
    for at in range(0, (instances + 1) * records, records):
        whole, rest = divmod(at, reads.records)
        nearest = int(np.abs(marks - rest).argmin())
        cuts.append(whole * last + nearest)
    if any(a == b for a, b in itertools.pairwise(cuts)):
        batch = reads.records / reads.marks.batches
        raise CannotHere(
            f"{records} records for each instance are too few: a batch of the aligner has {batch:.0f}"
        )
    return [
        [
            part
            for first in range(a // last * last, b, last)
            for part in _between(reads, [max(a - first, 0), min(b - first, last)])
        ]
        for a, b in itertools.pairwise(cuts)
    ]


def _between(reads: Reads, cuts: list[int]) -> list[Part]:
    """Return the parts between marks number *cuts*."""
    marks = reads.marks
    return [
        Part(
            int(marks.records[a]),
            int(marks.records[b]),
            tuple(int(o[a]) for o in marks.offsets),
            tuple(int(o[b]) for o in marks.offsets),
        )
        for a, b in itertools.pairwise(cuts)
    ]


# ----------------------------------------------------------------------
# Feeders: they write every instance's share of the reads to its pipes, one thread for each pipe.
#
# A thread for each, because a paired instance reads its two pipes in turn, in amounts of its own choosing: who
# waited for one pipe could not serve the other. The threads wait in the kernel, and copy nothing where bytes go
# through as they are.

#: The writing ends of each instance's pipes, one for each mate (None: that mate is not wanted).
Sinks = Sequence[Sequence[int | None]]
#: What goes through a pipe: one mate's reads, or those of both in turn.
Mates = tuple[int, ...]


class _Feeder:
    """What both feeders do.

    *parts* are the pieces of the reads, *runs* (n instances) those that each was given, as (number of the piece,
    its records). *begun* (n) is when each began to read (monotonic clock), None where that could not be seen.
    """

    parts: Sequence[Part]

    def __init__(self, reads: Reads, instances: int) -> None:
        self.runs: list[list[tuple[int, int]]] = [[] for _ in range(instances)]
        self.begun: list[float | None] = [None] * instances
        self._reads, self._instances = reads, instances
        self._halt: Halt | None = None
        self._threads: list[tuple[threading.Thread, threading.Event]] = []
        self._lock = threading.Lock()
        self._error: Exception | None = None

    def start(self, sinks: Sinks, *, in_turn: bool = False) -> None:
        """Begin to feed *sinks*, which are closed by the feeder, whatever happens; call join() afterwards.

        *in_turn*: the sink of mate 1 gets mate 2 as well, record by record, as interleaved files have it. Raises
        BadInput for a file that was changed, as join() does.
        """
        self.runs, self.begun = self._first(), [None] * self._instances
        self._error, self._halt, self._threads = None, Halt(), []
        wanted = [
            (i, (0, 1) if in_turn else (mate,), fd)
            for i, mates in enumerate(sinks)
            for mate, fd in enumerate(mates)
            if fd is not None
        ]
        try:
            self._prepare({mate for _, mates, _ in wanted for mate in mates}, self._halt)
            for one in wanted:
                ended = threading.Event()
                thread = threading.Thread(
                    target=self._run, args=(*one, self._halt, ended), name="feeder", daemon=True
                )
                thread.start()
                self._threads.append((thread, ended))
        except BaseException:
            for _, _, fd in wanted[len(self._threads) :]:
                os.close(fd)
            self.stop()
            raise

    def _first(self) -> list[list[tuple[int, int]]]:
        """Return the runs that there are before anything is fed."""
        raise NotImplementedError

    def _prepare(self, mates: set[int], halt: Halt) -> None:
        """Open what all instances share."""

    def join(self) -> None:
        """Wait until everything was fed, or nobody reads it any more.

        Raises the first error that is no reader's: BadInput for damage that was found meanwhile, or OSError.
        """
        self._wait()
        self._close()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Give up at once; no thread stays. What was found wrong meanwhile stays unsaid."""
        if self._halt is not None:
            self._halt.ask()
        self._wait()
        self._close()

    def _wait(self) -> None:
        # Python 3.11 takes a thread for ended whose join() was interrupted: an event does not.
        for thread, ended in self._threads:
            ended.wait()
            thread.join()

    def _close(self) -> None:
        self._threads = []
        if self._halt is not None:
            self._halt.close()
            self._halt = None

    def _run(self, instance: int, mates: Mates, fd: int, halt: Halt, ended: threading.Event) -> None:
        try:
            with contextlib.ExitStack() as stack:
                outlet = stack.enter_context(Outlet(fd, halt))
                # Interleaved pairs come from one file.
                sources = mates[:1] if self._reads.interleaved else mates
                intakes = [stack.enter_context(self._intake(instance, mate, halt)) for mate in sources]
                for piece in self._given(instance, outlet):
                    self._pour(piece, mates, intakes, outlet)
                    self._saw(instance, outlet)
        except (BrokenPipeError, Stopped):
            pass
        except Exception as error:
            with self._lock:
                self._error = self._error or error
            # Who was fed a part only must not be taken for done.
            halt.ask()
        finally:
            ended.set()

    def _saw(self, instance: int, outlet: Outlet) -> None:
        """Note when the instance began to read."""
        with self._lock:
            seen = [at for at in (self.begun[instance], outlet.begun) if at is not None]
            self.begun[instance] = min(seen, default=None)

    def _pour(self, piece: Part, mates: Mates, intakes: Sequence[Intake], outlet: Outlet) -> None:
        """Write the piece's reads of *mates* as plain FASTQ."""
        streams = []
        for mate, intake in zip(mates, intakes, strict=False):
            number = self._file(mate)
            layout = self._reads.layouts[number]
            begin, end = piece.begins[number], piece.ends[number]
            last = b"\n" if layout.unended and piece.end == self._reads.records else b""
            if len(intakes) == 1 and not layout.crlf and self._reads.interleaved == (len(mates) == 2):
                intake.pour(begin, end, outlet)
                outlet.write(last)
                return
            blocks: Iterator[bytes] = itertools.chain(intake.blocks(begin, end), [last])
            streams.append(newlines(blocks) if layout.crlf else blocks)
        blocks = streams[0]
        if len(streams) == 2:
            blocks = in_turn(*streams)
        elif self._reads.interleaved and len(mates) == 1:
            blocks = one_mate(blocks, mates[0])
        for block in blocks:
            outlet.write(block)

    def _file(self, mate: int) -> int:
        """Return in which file the reads of mate *mate* are."""
        return 0 if self._reads.interleaved else mate

    def _intake(self, instance: int, mate: int, halt: Halt) -> contextlib.AbstractContextManager[Intake]:
        raise NotImplementedError

    def _given(self, instance: int, outlet: Outlet) -> Iterator[Part]:
        raise NotImplementedError


class Static(_Feeder):
    """Every instance is fed one part of the reads, as in the thesis (section 5.2); may be started again."""

    def __init__(self, reads: Reads, instances: int, parts: Sequence[Part] | None = None) -> None:
        """Divide *reads*, where no *parts* are given; raises CannotHere for fewer batches than instances."""
        super().__init__(reads, instances)
        self.parts = divide(reads, instances) if parts is None else parts

    def _first(self) -> list[list[tuple[int, int]]]:
        return [[(number, part.records)] for number, part in enumerate(self.parts)]

    def _intake(self, instance: int, mate: int, halt: Halt) -> contextlib.AbstractContextManager[Intake]:
        number = self._file(mate)
        layout, part = self._reads.layouts[number], self.parts[instance]
        if not layout.source.packed:
            return contextlib.closing(Plain(layout, halt))
        return contextlib.closing(Unpacked(layout, halt, part.begins[number], part.ends[number]))

    def _given(self, instance: int, outlet: Outlet) -> Iterator[Part]:  # noqa: ARG002
        yield self.parts[instance]


class Repeated(_Feeder):
    """Every instance is fed as many reads, over again from the first where there are no more.

    So there can be as many reads per thread with any number of threads (Langmead et al. 2018, section 3.1).
    """

    def __init__(self, reads: Reads, instances: int, records: int) -> None:
        """Give each *records* of them, whole batches; raises CannotHere where that is less than a batch."""
        super().__init__(reads, instances)
        given = repeated(reads, instances, records)
        self.parts = [part for mine in given for part in mine]
        numbers = itertools.count()
        self._given_to = [[(next(numbers), part.records) for part in mine] for mine in given]

    def _first(self) -> list[list[tuple[int, int]]]:
        return self._given_to

    def _given(self, instance: int, outlet: Outlet) -> Iterator[Part]:  # noqa: ARG002
        for number, _ in self._given_to[instance]:
            yield self.parts[number]

    def _intake(self, instance: int, mate: int, halt: Halt) -> contextlib.AbstractContextManager[Intake]:  # noqa: ARG002
        layout = self._reads.layouts[self._file(mate)]
        return contextlib.closing((Anew if layout.source.packed else Plain)(layout, halt))


class Dynamic(_Feeder):
    """Pieces of the reads are given to whichever instance has room for more, as load balancers do (Langmead et al.

    2018, section 1.2, call that dynamic load balancing of several processes). Each gets one for a start: some
    aligners take an input without reads for a mistake.
    """

    def __init__(self, reads: Reads, instances: int) -> None:
        """Cut *reads* into pieces; raises CannotHere where they are fewer batches than instances."""
        super().__init__(reads, instances)
        self.parts = pieces(reads, instances)
        self._next = 0
        self._shared: dict[int, Shared] = {}

    def _first(self) -> list[list[tuple[int, int]]]:
        self._next = self._instances
        return [[(number, self.parts[number].records)] for number in range(self._instances)]

    def _given(self, instance: int, outlet: Outlet) -> Iterator[Part]:
        given = self.runs[instance]
        for number in itertools.count():
            # Who has room takes the next piece; its other mate follows.
            outlet.wait()
            with self._lock:
                if number == len(given):
                    if self._next == len(self.parts):
                        return
                    given.append((self._next, self.parts[self._next].records))
                    self._next += 1
            yield self.parts[given[number][0]]

    def _intake(self, instance: int, mate: int, halt: Halt) -> contextlib.AbstractContextManager[Intake]:  # noqa: ARG002
        number = self._file(mate)
        layout = self._reads.layouts[number]
        if not layout.source.packed:
            return contextlib.closing(Plain(layout, halt))
        return contextlib.nullcontext(self._shared[mate])

    def _prepare(self, mates: set[int], halt: Halt) -> None:
        # Who unpacks goes with the thread that started it: that must be none of the feeding ones.
        for mate in mates:
            number = self._file(mate)
            layout = self._reads.layouts[number]
            if layout.source.packed:
                bounds = [(p.begins[number], p.ends[number]) for p in self.parts]
                self._shared[mate] = Shared(layout, halt, bounds)

    def _close(self) -> None:
        super()._close()
        for shared in self._shared.values():
            shared.close()
        self._shared = {}


# ----------------------------------------------------------------------
# The pipes from a feeder of reads to the instances of a scenario.

Feeder = Static | Dynamic | Repeated


class Pipes:
    """The pipes of one step, from the feeder to each instance; without a feeder the read files themselves.

    An instance has a pipe for each of *mates*, or (*on_stdin*) one in all, with the records of both in turn.
    """

    def __init__(
        self, reads: Reads, instances: int, mates: Sequence[int], feeder: Feeder | None, *, on_stdin: bool = False
    ) -> None:
        self._reads, self._feeder, self._mates = reads, feeder, mates
        self._on_stdin, self._in_turn = on_stdin, on_stdin and len(mates) > 1
        self._into: list[list[int | None]] = [[None] * reads.mates for _ in range(instances)]
        self._out: list[list[int | None]] = [[None] * reads.mates for _ in range(instances)]
        self._started = False

    def __enter__(self) -> Pipes:
        if self._feeder is not None:
            try:
                for into, out in zip(self._into, self._out, strict=True):
                    for mate in self._mates[:1] if self._on_stdin else self._mates:
                        out[mate], into[mate] = os.pipe()
            except OSError:
                self._close(*self._into, *self._out)
                raise
        return self

    def of(self, number: int) -> tuple[list[str | None], tuple[int, ...], int | None]:
        """Return the files that an instance reads, by mate, descriptors to stay open in it, and its stdin."""
        if self._feeder is None:
            return [str(f) if m in self._mates else None for m, f in enumerate(self._reads.files)], (), None
        ends = self._out[number]
        if self._on_stdin:
            return [None] * len(ends), (), ends[self._mates[0]]
        names = [None if fd is None else f"/dev/fd/{fd}" for fd in ends]
        return names, tuple(fd for fd in ends if fd is not None), None

    def start(self) -> None:
        """Begin to feed."""
        if self._feeder is not None:
            self._started = True
            self._feeder.start(self._into, in_turn=self._in_turn)

    def __exit__(self, kind: object, *_: object) -> None:
        if self._feeder is None:
            return
        if not self._started:
            self._close(*self._into)
        # With the reading ends gone a feeder that is still at work meets a broken pipe and ends.
        self._close(*self._out)
        if kind is None:
            self._feeder.join()
        else:
            self._feeder.stop()

    def _close(self, *ends: list[int | None]) -> None:
        for fd in (fd for mates in ends for fd in mates if fd is not None):
            os.close(fd)


# ----------------------------------------------------------------------
# The names of reads, in the order in which an instance was fed them.


@contextlib.contextmanager
def names(reads: Reads, parts: Sequence[Part]) -> Generator[Iterator[bytes]]:
    """Yield an iterator of the names, of reads or pairs, without comments and without the /1 of a pair.

    Raises what a feeder raises.
    """

    def every() -> Generator[bytes]:
        for part in parts:
            feeder = Static(reads, 1, [part])
            out, into = os.pipe()
            with os.fdopen(out, "rb", buffering=1 << 20) as lines:
                feeder.start([[into]])
                try:
                    for line in itertools.islice(lines, 0, None, 4):
                        yield stem(line[1:].split(None, 1)[0])
                except BaseException:
                    feeder.stop()
                    raise
            feeder.join()

    iterator = every()
    try:
        yield iterator
    finally:
        iterator.close()
