# SPDX-License-Identifier: Apache-2.0
"""Samples of reads: pieces spread over the whole input, written to files that a scenario is tried on."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from firsttouch import reads
from firsttouch.launch import Work
from firsttouch.reads import Part, Reads

#: Pieces of a sample: reads of one tile of a sequencer are alike, and files are often sorted by it.
PIECES = 16
#: Batches of each instance in a trial at least, so that none waits for a single one.
_BATCHES = 2


@dataclass(frozen=True)
class Sample:
    """Some of the reads, in files: *fraction* of all records, *records* and *bases* of them."""

    files: tuple[Path, ...]
    fraction: float
    records: int
    bases: int


def write(whole: Reads, fraction: float, folder: Path) -> Sample:
    """Write about *fraction* of the records to files in *folder*, one for each mate, packed as the input is."""
    wanted = max(1, round(fraction * whole.records))
    packed = whole.layouts[0].source.packed
    names = tuple(folder / f"sample-{wanted}-{m + 1}.fq{'.gz' if packed else ''}" for m in range(whole.mates))
    with contextlib.ExitStack() as stack:
        outs = [stack.enter_context(_writing(name, packed=packed)) for name in names]
        for part, count in _pieces(whole, wanted):
            _copy(whole, part, count, outs)
    found = reads.inspect(names)
    return Sample(names, found.records / whole.records, found.records, found.bases)


def work(of: Work, sample: Sample, instances: int) -> Work:
    """Return the work of a trial on *sample* with so many instances.

    Every instance gets some batches, smaller ones than the whole run's where the sample has too few.
    """
    batch = min(of.reads.batch_bases, max(1, sample.bases // (_BATCHES * instances)))
    # Where parts begin changes the output of some aligners; a trial's is not kept.
    return replace(of, reads=reads.inspect(sample.files, batch_bases=batch), summed=False, counted=False)


def _writing(name: Path, *, packed: bool) -> io.BufferedIOBase:
    return gzip.GzipFile(name, "wb", compresslevel=1) if packed else name.open("wb")


def _pieces(whole: Reads, wanted: int) -> Iterator[tuple[Part, int]]:
    """Yield the parts in which pieces begin, and how many records to take of each."""
    marks = whole.marks
    last = len(marks.records) - 1
    count = min(PIECES, last, wanted)
    # The middle of equal shares, as far as marks go; each piece ends before the next one begins.
    begins = sorted({int(i) for i in np.linspace(0, last, 2 * count + 1)[1::2]})
    ends = [*begins[1:], last]
    left = wanted
    for number, (a, b) in enumerate(zip(begins, ends, strict=True)):
        part = Part(
            int(marks.records[a]),
            int(marks.records[b]),
            tuple(int(o[a]) for o in marks.offsets),
            tuple(int(o[b]) for o in marks.offsets),
        )
        take = min(part.records, -(-left // (len(begins) - number)))
        left -= take
        if take:
            yield part, take


def _copy(whole: Reads, part: Part, count: int, outs: Sequence[io.BufferedIOBase]) -> None:
    """Write the first *count* records of a part, each mate to its file."""
    feeder = reads.Static(whole, 1, [part])
    with contextlib.ExitStack() as stack:
        ends = [os.pipe() for _ in outs]
        sources = [stack.enter_context(os.fdopen(reading, "rb", 1 << 20)) for reading, _ in ends]
        feeder.start([[writing for _, writing in ends]])
        try:
            for source, out in zip(sources, outs, strict=True):
                out.writelines(itertools.islice(source, 4 * count))
        except BaseException:
            stack.close()
            feeder.stop()
            raise
    # Nobody reads on: the feeder ends.
    feeder.join()
