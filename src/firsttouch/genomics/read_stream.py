# SPDX-License-Identifier: Apache-2.0
"""Reads each input once, in turn; checks the records, and cuts them into parts for the instances."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from firsttouch.errors import BadInput
from firsttouch.genomics.division import Division
from firsttouch.genomics.fastq import (
    BatchBorders,
    Bytes,
    Chunk,
    FastqParser,
    Ints,
    Mate,
    check_names,
    mates_of,
    read_ahead,
)
from firsttouch.genomics.inputs import Input
from firsttouch.genomics.pipe_writer import StopRequest
from firsttouch.genomics.reads import BatchRule, NoReads, Reads, template_name

#: The approximate number of parts per instance for small inputs, which bounds how unequal the shares are.
PARTS_EACH = 16


class Piece(Struct, frozen=True):
    """Consecutive records (pairs) of a part, which is one or more whole batches.

    *part* is the number of the part (from 0). *data* is the text for each pipe, with LF for each CR LF: one text
    (single or interleaved), or one for each mate. *bases* is the sum over all mates. *last*: it ends the part.
    *empty_mates* are the records whose last mate has no bases. *is_remainder*: it is a last part so small that the
    instance of the previous part gets it, too.

    A text is a view of memory that is reused once nothing refers to it, so no copy is needed.
    """

    part: int
    data: tuple[bytes | memoryview, ...]
    records: int
    bases: int
    last: bool
    empty_mates: int = 0
    is_remainder: bool = False

    def names(self, step: int) -> Iterable[bytes]:
        """Return the names of the templates, if the first text has *step* records per template."""
        lines = bytes(self.data[0]).split(b"\n")
        return [template_name(head[1:].split(None, 1)[0]) for head in lines[: -1 : 4 * step]]


class _WholeFiles(Piece, frozen=True):
    """All of the checked reads in *files*, which a program reads itself."""

    files: tuple[Path, ...] = ()

    def names(self, step: int) -> Iterator[bytes]:  # noqa: ARG002 - its files have one mate each
        """Yield the names of the templates."""
        with self.files[0].open("rb") as lines:
            for head in itertools.islice(lines, 0, 4 * self.records, 4):
                yield template_name(head[1:].split(None, 1)[0])


class InputProgress(Struct, frozen=True):
    """The progress of reading: records (pairs), bases, and the fraction of the inputs' bytes (None: unknown).

    *batches* is the number that began in these records, unless a :class:`Division` divides them.
    """

    records: int = 0
    bases: int = 0
    fraction: float | None = None
    batches: int = 0


class GivenFiles:
    """Checked reads whose *files* one program reads itself, as in everyday use."""

    def __init__(self, reads: Reads) -> None:
        """Create the stream of *reads*, which any program can read directly."""
        self.files, self._reads = reads.files, reads
        self.rule = reads.batches.rule
        self.progress = InputProgress(reads.records, reads.bases)

    def __iter__(self) -> Iterator[Piece]:
        reads = self._reads
        yield _WholeFiles(0, (), reads.records, reads.bases, True, reads.empty_mates, files=reads.files)

    def close(self) -> None:
        """Do nothing, because no file is open."""

    def stop(self) -> None:
        """Do nothing, because no thread runs."""


class ReadStream:
    """The reads of *lanes*, for each mate one after the other, as an iterator of pieces (and a context manager).

    Other threads read ahead, and child processes decompress. The iterating thread checks the records, so other
    threads should write. It must outlive the iteration, because the kernel ends the child processes with it.
    """

    #: The files that programs read themselves: none.
    files: tuple[Path, ...] = ()

    def __init__(
        self,
        lanes: Sequence[Sequence[str]],
        *,
        interleaved: bool = False,
        rule: BatchRule = BatchRule(),  # noqa: B008 (it is frozen)
        least_part_bytes: int = 1,
        instances: int = 0,
        smallest_part_bytes: int = 1,
        merged: bool = False,
        any_names: bool = False,
        division: Division | None = None,
    ) -> None:
        """Open all inputs of *lanes*: each has one, or two with the mates. "-" is standard input.

        *interleaved*: an input has both mates of each pair. *rule* says when the aligner's batches end; they are
        counted through all lanes. A part has whole batches with at least *least_part_bytes* bytes of text of all
        mates. A part may be smaller, down to *smallest_part_bytes*, so that each of *instances* gets several parts
        of the files, or, if their size is unknown, of the text so far. *merged*: both mates are interleaved in one
        pipe; otherwise each has its own. *any_names*: the names of mates may differ. *division* says where parts
        end, instead of *rule* and *least_part_bytes*, and how often files are read.

        Raises BadInput for an input that cannot be read, and for a file that is refused by its content.
        """
        self.mates = 2 if interleaved or any(len(lane) == 2 for lane in lanes) else 1
        self._interleaved, self._merged = interleaved, merged
        self.rule, self._any_names = rule, any_names
        self._usual, self._smallest = max(1, least_part_bytes), smallest_part_bytes
        self._shares = PARTS_EACH * instances
        self._borders = BatchBorders(rule)
        #: The bytes of all previous parts.
        self._bytes = 0
        self._part = self._part_bytes = 0
        self._division, self._counts = division, iter(division.parts if division else ())
        #: The last record of each part, and the last used record of a pass.
        self._part_left = self._pass_left = 0
        self._is_divided = False
        self._stop = StopRequest()
        self._lanes = lanes
        self._inputs: list[list[Input]] = []
        self._stack = contextlib.ExitStack()
        self._stack.callback(self._stop.close)
        try:
            self._open(lanes)
        except BaseException:
            self.close()
            raise
        sizes = [source.size for lane_inputs in self._inputs for source in lane_inputs]
        is_repeated = division is not None and division.passes > 1
        self._size = None if None in sizes or is_repeated else sum(size or 0 for size in sizes)
        self.progress = InputProgress(fraction=None if self._size is None else 0.0)
        self._pieces = self._whole_parts()

    def _open(self, lanes: Sequence[Sequence[str]]) -> None:
        pipes = set()
        self._inputs = []
        for lane in lanes:
            if len(lane) not in {1, 2} or len(lane) != len(lanes[0]) or (self._interleaved and len(lane) == 2):
                raise BadInput(
                    f"{len(lane)} read files: one, or two of a pair that is not interleaved, are needed"
                )
            self._inputs.append([])
            for number, path in enumerate(lane, start=1):
                source = Input(path, self._stop, mate=number if len(lane) == 2 else 0)
                self._stack.callback(source.close)
                self._inputs[-1].append(source)
                if source.size is None and source.identity in pipes:
                    raise BadInput("is named twice, but a pipe can be read only once", file=source.label)
                pipes.add(source.identity)
            if len({source.identity for source in self._inputs[-1]}) < len(lane):
                raise BadInput(
                    "this is the file of mate 1 again: name the file of mate 2", file=self._inputs[-1][1].label
                )

    def __enter__(self) -> ReadStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the iteration and all processes and threads; call it when no thread iterates."""
        self._stop.set()
        if hasattr(self, "_pieces"):
            self._pieces.close()
        self._stack.close()

    def stop(self) -> None:
        """End the iteration with Stopped, from any thread."""
        self._stop.set()

    def __iter__(self) -> Iterator[Piece]:
        return self._pieces

    # ------------------------------------------------------------------
    # Parts

    def _whole_parts(self) -> Generator[Piece, None, None]:
        """Yield the pieces, and mark the last one of each part."""
        held: Piece | None = None
        is_first = False
        for piece in self._cut():
            if held is not None:
                yield replace(held, last=piece.part > held.part)
                is_first = piece.part > held.part
            held = piece
        if held is not None:
            size = sum(map(len, held.data))
            # Some aligners lose reads if the input is smaller than the amount that they read at once.
            yield replace(held, last=True, is_remainder=is_first and 2 * size < self._smallest)

    def _cut(self) -> Iterator[Piece]:
        """Yield the pieces of all lanes."""
        for number in range(self._division.passes if self._division else 1):
            if number:
                for source in itertools.chain.from_iterable(self._inputs):
                    source.close()
                self._open(self._lanes)
            self._pass_left = (self._division.pass_records if self._division else 0) or sys.maxsize
            with contextlib.ExitStack() as stack:
                try:
                    yield from self._records(stack)
                except BaseException:
                    self._stop.set()  # otherwise the threads that wait for a pipe would never end
                    raise
            if self._is_divided:
                return
        if not self.progress.records:
            raise NoReads("no reads", file=self._inputs[0][0].label)

    def _records(self, stack: contextlib.ExitStack) -> Iterator[Piece]:
        """Yield the pieces of one pass."""
        parsers: list[list[FastqParser]] = []

        def chunks(mate: int) -> Iterator[Chunk]:
            for number, lane in enumerate(self._inputs):
                if number == len(parsers):
                    for source in lane:
                        source.start()
                    parsers.append([self._parser(source, len(lane), stack) for source in lane])
                yield from parsers[number][mate]

        files = [chunks(mate) for mate in range(len(self._inputs[0]))]
        for mates in mates_of(files, interleaved=self._interleaved):
            if not self._any_names:
                check_names(mates)
            count, bases = len(mates[0].chunk.bases[mates[0].records]), 0
            for piece in self._pieces_of(mates):
                bases += piece.bases
                yield piece
            self._report(parsers, count, bases)
            if self._is_divided:
                return

    def _parser(self, source: Input, mates: int, stack: contextlib.ExitStack) -> FastqParser:
        """Start to read an input, and return the parser of its text."""
        threads = source.threads or max(1, min(4, len(os.sched_getaffinity(0))) // mates)
        pool = stack.enter_context(ThreadPoolExecutor(threads, thread_name_prefix="reads"))
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        blocks = source.check(read_ahead(pool, threads, source.reads(), lasting=True))
        return FastqParser(source.label, blocks, multiple_of=1 + self._interleaved)

    def _report(self, parsers: Sequence[Sequence[FastqParser]], records: int, bases: int) -> None:
        """Add to the progress after a chunk."""
        fraction = None
        if self._size is not None:
            begun = zip(itertools.chain(*self._inputs), itertools.chain(*parsers), strict=False)
            done = sum(source.position(parser.end) or 0 for source, parser in begun)
            fraction = min(1.0, done / max(1, self._size))
        self.progress = replace(
            self.progress,
            records=self.progress.records + records,
            bases=self.progress.bases + bases,
            fraction=fraction,
        )

    def _pieces_of(self, mates: Sequence[Mate]) -> Iterator[Piece]:
        """Yield the pieces of equally many records of all mates."""
        bases = np.sum([mate.chunk.bases[mate.records] for mate in mates], axis=0)
        last_mate = mates[-1].chunk.bases[mates[-1].records]
        has_empty = not last_mate.all()
        for at, end in self._counted(len(bases)) if self._division else self._batches(mates, bases):
            if end > at:
                data = self._texts(mates, at, end)
                empty = int(np.count_nonzero(last_mate[at:end] == 0)) if has_empty else 0
                yield Piece(self._part, data, end - at, int(bases[at:end].sum()), last=False, empty_mates=empty)
            else:
                self._part += 1

    def _batches(self, mates: Sequence[Mate], bases: Ints) -> Iterator[tuple[int, int]]:
        """Yield begin and end of each piece of a part, and (n, n) where a part ends, by bytes of text."""
        text = [mate.chunk.text[mate.records] for mate in mates]
        starts = self._borders.starts(bases, text[0], mates[0].names())
        self.progress = replace(self.progress, batches=self.progress.batches + len(starts))
        size = np.concatenate(([0], np.cumsum(np.sum(text, axis=0))))
        at = 0
        while at < len(bases):
            # The first batch that begins after enough text ends the part.
            number = int(np.searchsorted(size[starts], size[at] + self._part_size() - self._part_bytes))
            end = int(starts[number]) if number < len(starts) else len(bases)
            if end > at:
                self._part_bytes += int(size[end] - size[at])
                yield at, end
            if number < len(starts):
                self._bytes += self._part_bytes
                self._part_bytes = 0
                yield end, end
            at = end

    def _part_size(self) -> int:
        """Return the least bytes of the present part."""
        if not self._shares:
            return self._usual
        total = self._bytes if self._size is None else self._size
        return min(self._usual, max(self._smallest, total // self._shares))

    def _counted(self, count: int) -> Iterator[tuple[int, int]]:
        """Yield the same as :meth:`_batches` for *count* records, by the division's numbers of records."""
        at, last = 0, min(count, self._pass_left)
        self._pass_left -= last
        while at < last:
            if not self._part_left:
                self._part_left = next(self._counts, 0)
                if not self._part_left:
                    self._is_divided = True
                    return
            end = min(last, at + self._part_left)
            self._part_left -= end - at
            yield at, end
            if not self._part_left:
                yield end, end
            at = end

    def _texts(self, mates: Sequence[Mate], begin: int, end: int) -> tuple[memoryview, ...]:
        """Return the text of records *begin* to *end* - 1 for each pipe."""
        if self._interleaved:
            both = mates[0]
            data, sizes = _span(Mate(both.chunk, slice(None)), 2 * begin, 2 * end)
            if self._merged:
                return (data.data,)
            turns = np.arange(len(sizes)) % 2
            return tuple(data[np.repeat(turns == mate, sizes)].data for mate in range(2))
        spans = [_span(mate, begin, end) for mate in mates]
        if self._merged and len(spans) == 2:
            return (_both_mates(*spans[0], *spans[1]).data,)
        return tuple(data.data for data, _ in spans)


def _span(mate: Mate, begin: int, end: int) -> tuple[Bytes, Ints]:
    """Return the text of adjacent records, with LF for CR LF, and the bytes of each record."""
    chunk, records = mate.chunk, mate.records
    starts, ends = chunk.starts[records][begin:end], chunk.ends[records, 3][begin:end]
    sizes = chunk.text[records][begin:end]
    data = chunk.data[int(starts[0]) : int(ends[-1]) + 1]
    if len(data) > int(sizes.sum()):
        data = np.frombuffer(data.tobytes().replace(b"\r\n", b"\n"), np.uint8)
    return data, sizes


def _both_mates(data_1: Bytes, sizes_1: Ints, data_2: Bytes, sizes_2: Ints) -> Bytes:
    """Return the records of two mates as interleaved pairs; *sizes* are the bytes of each record."""
    sizes = np.stack((sizes_1, sizes_2), axis=1).reshape(-1)
    is_first = np.repeat(np.arange(len(sizes)) % 2 == 0, sizes)
    pairs = np.empty(len(is_first), np.uint8)
    pairs[is_first], pairs[~is_first] = data_1, data_2
    return pairs
