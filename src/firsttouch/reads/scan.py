# SPDX-License-Identifier: Apache-2.0
"""One pass over the reads before any program starts: every record checked, counted, and batches found."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from firsttouch.errors import BadInput
from firsttouch.reads import pairs
from firsttouch.reads.blocks import blocks
from firsttouch.reads.check import Checked, Chunk
from firsttouch.reads.marks import Batch, Marker, Marks
from firsttouch.reads.source import Source, source
from firsttouch.units import format_bytes

#: Seconds between two messages of a long pass.
_OFTEN = 10.0


@dataclass(frozen=True, eq=False)
class Layout:
    """How one file is written: see :class:`firsttouch.reads.check.Checked`; *index* is gzip's seek index."""

    source: Source
    crlf: bool
    unended: bool
    blank: bool
    longest: int
    index: IO[bytes] | None

    @property
    def notes(self) -> list[str]:
        """What is unusual about the file, in words."""
        every = {
            "gzip": self.source.packed,
            "CR LF": self.crlf,
            "no newline at the end": self.unended,
            "blank lines at the end": self.blank,
        }
        return [note for note, is_so in every.items() if is_so]

    @property
    def as_is(self) -> bool:
        """Whether a program reads the same from the file as from us; not all of them unpack gzip."""
        return not (self.crlf or self.unended or self.blank or self.source.packed)


@dataclass(frozen=True)
class Reads:
    """Reads that were checked: *records* (pairs, where they are paired), *bases* over both mates.

    *files* are one, or two of a pair; *interleaved*: the pairs are in one. A part begins at one of the *marks*.
    """

    files: tuple[Path, ...]
    interleaved: bool
    batch_bases: int
    records: int
    bases: int
    marks: Marks = field(repr=False)
    layouts: tuple[Layout, ...] = field(repr=False)

    @property
    def paired(self) -> bool:
        """Whether a record is a pair."""
        return self.interleaved or len(self.files) == 2

    @property
    def mates(self) -> int:
        """How many pipes an instance reads: 2 where reads are paired."""
        return 2 if self.paired else 1

    @property
    def as_is(self) -> bool:
        """Whether a program may read the files themselves."""
        return not self.interleaved and all(layout.as_is for layout in self.layouts)


def inspect(
    files: Sequence[Path],
    *,
    batch_bases: int = 0,
    batch_records: int = 0,
    batch_bytes: int = 0,
    interleaved: bool = False,
    say: Callable[[str], None] | None = None,
) -> Reads:
    """Read *files* (one, or two of a pair) once: check every record, count, and find where parts may begin.

    A batch ends with the first record (pair) at which its bases, over both mates, reach *batch_bases*, the text
    of its records of mate 1 reaches *batch_bytes* and their number is a multiple of *batch_records*; with 0 for
    all of them every record is one. *say* is told how far it is.
    Raises BadInput, which names file, record and line, for what is no FASTQ, for no record at all, and for pairs
    that are not in step.
    """
    if len(files) not in {1, 2} or (interleaved and len(files) == 2):
        raise BadInput(f"{len(files)} read files: one, or two of a pair that is not interleaved, are needed")
    sources = [source(file) for file in files]
    if len(files) == 2 and files[0].samefile(files[1]):
        raise BadInput("this is the file of mate 1 again: name the file of mate 2", file=files[1])
    indexes = [_unnamed() if s.packed else None for s in sources]
    marker = Marker(Batch(batch_bases, batch_records, batch_bytes), len(files))
    threads = max(1, min(4, len(os.sched_getaffinity(0))) // len(files))
    tell = _telling(say)
    with contextlib.ExitStack() as stack:
        checked = []
        for one, index in zip(sources, indexes, strict=True):
            given = stack.enter_context(blocks(one, threads, index))
            checked.append(Checked(one.file, given, together=1 + interleaved))
        for windows in _together(checked) if len(files) == 2 else _alone(checked[0], interleaved=interleaved):
            _compare(checked, windows, marker.records)
            bases = sum((w.chunk.bases[w.mine] for w in windows[1:]), windows[0].chunk.bases[windows[0].mine])
            places = [w.chunk.first + w.chunk.starts[w.mine] for w in windows[: len(files)]]
            marker.add(bases, windows[0].chunk.text[windows[0].mine], places)
            tell(checked)
    if not marker.records:
        raise BadInput("no reads", file=files[0])
    layouts = tuple(
        Layout(s, c.crlf, c.unended, c.blank, c.longest, i)
        for s, c, i in zip(sources, checked, indexes, strict=True)
    )
    marks = marker.marks([c.end for c in checked])
    return Reads(tuple(files), interleaved, batch_bases, marker.records, marker.bases, marks, layouts)


def _unnamed() -> IO[bytes]:
    """Return a file that is gone when nobody holds it any more."""
    return tempfile.TemporaryFile(prefix="firsttouch-")


@dataclass
class _Window:
    """Some of a chunk's records."""

    chunk: Chunk
    mine: slice

    def names(self) -> pairs.Names:
        return pairs.Names(self.chunk.data, self.chunk.starts[self.mine], self.chunk.ends[self.mine, 0])


def _alone(checked: Checked, *, interleaved: bool) -> Iterator[list[_Window]]:
    """Yield the chunks of one file; of interleaved pairs, mates 1 and 2."""
    for chunk in checked:
        yield [_Window(chunk, slice(mate, None, 1 + interleaved)) for mate in range(1 + interleaved)]


def _together(checked: Sequence[Checked]) -> Iterator[list[_Window]]:
    """Yield as many records of both files as are there of either."""
    streams = [iter(c) for c in checked]
    held = [next(s, None) for s in streams]
    used, done = [0, 0], 0
    while all(held):
        chunks = [chunk for chunk in held if chunk is not None]
        count = min(len(chunk.starts) - u for chunk, u in zip(chunks, used, strict=True))
        yield [_Window(chunk, slice(u, u + count)) for chunk, u in zip(chunks, used, strict=True)]
        done += count
        for number, chunk in enumerate(chunks):
            used[number] += count
            if used[number] == len(chunk.starts):
                held[number], used[number] = next(streams[number], None), 0
    for number in (0, 1):
        if held[number] is None and any(held):
            reason = f"ends after {done} records, the other file of the pair has more"
            raise BadInput(reason, file=checked[number].file)


def _compare(checked: Sequence[Checked], windows: Sequence[_Window], done: int) -> None:
    """Raise BadInput where the reads of two windows are no pairs; *done* pairs came before."""
    if len(windows) < 2:
        return
    one, other = (w.names() for w in windows)
    if (wrong := pairs.unlike(one, other)) is None:
        return
    both = [n.name(wrong).decode("ascii", "backslashreplace") for n in (one, other)]
    names, number = " and ".join(both), done + wrong
    reason = f"{names} are the same mate" if both[0] == both[1] else f"{names} are no pair"
    line = 4 * number + 1 if len(checked) == 2 else 8 * number + 5
    raise BadInput(f"record {number + 1}: {reason}", file=checked[-1].file, line=line)


def _telling(say: Callable[[str], None] | None) -> Callable[[Sequence[Checked]], None]:
    """Return what tells, now and then, how far the pass is."""
    last = time.monotonic()

    def tell(checked: Sequence[Checked]) -> None:
        nonlocal last
        if say is None or time.monotonic() - last < _OFTEN:
            return
        last = time.monotonic()
        done = ", ".join(f"{c.file.name} {c.records} records ({format_bytes(c.end)})" for c in checked)
        say(f"checking reads: {done}")

    return tell
