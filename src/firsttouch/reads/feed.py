# SPDX-License-Identifier: Apache-2.0
"""Feeders: they write every instance's share of the reads to its pipes, one thread for each pipe.

A thread for each, because a paired instance reads its two pipes in turn, in amounts of its own choosing: who
waited for one pipe could not serve the other. The threads wait in the kernel, and copy nothing where bytes go
through as they are.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Iterator, Sequence

from firsttouch.reads import text
from firsttouch.reads.intake import Anew, Intake, Plain, Shared, Unpacked
from firsttouch.reads.outlet import Halt, Outlet, Stopped
from firsttouch.reads.parts import Part, divide, pieces, repeated
from firsttouch.reads.scan import Reads

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
            streams.append(text.newlines(blocks) if layout.crlf else blocks)
        blocks = streams[0]
        if len(streams) == 2:
            blocks = text.in_turn(*streams)
        elif self._reads.interleaved and len(mates) == 1:
            blocks = text.one_mate(blocks, mates[0])
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
