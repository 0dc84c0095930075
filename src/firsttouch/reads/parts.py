# SPDX-License-Identifier: Apache-2.0
"""Parts and pieces of the reads: whole batches, next to each other."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from firsttouch.errors import CannotHere
from firsttouch.reads.scan import Reads

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
