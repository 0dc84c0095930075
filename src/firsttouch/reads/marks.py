# SPDX-License-Identifier: Apache-2.0
"""Marks: where in the files a part may begin. They stay few whatever the input."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from firsttouch.reads.blocks import Ints

#: With twice as many, every second one is dropped: parts are equal to a part in 65536 then.
ENOUGH = 1 << 16


@dataclass(frozen=True, eq=False)
class Marks:
    """Where batches begin, and at last where the input ends.

    *records* (m + 1) are numbers of records (of pairs, where reads are paired), *offsets* (m + 1 each) their
    places in each file, or in what it unpacks to. Of *batches* batches every *stride*-th is marked.
    """

    records: Ints
    offsets: tuple[Ints, ...]
    batches: int
    stride: int


class Marker:
    """Finds the batches while records go by.

    A batch ends with the record (pair) at which its bases reach *batch_bases*, or (where that is not 0) holds
    *batch_records* of them; with 0 for both every record is one.
    """

    def __init__(self, batch_bases: int, batch_records: int, files: int) -> None:
        self.records = self.bases = self.batches = 0
        self._size, self._filled, self._stride = batch_bases, batch_bases, 1
        self._batch_records = batch_records
        self._kept = [np.empty((files + 1, 0), np.int64)]
        self._count = 0

    def add(self, bases: Ints, offsets: list[Ints]) -> None:
        """Take further records: the bases of each, over both mates, and where it begins in each file."""
        starts = self._starts(bases)
        numbers = np.arange(self.batches, self.batches + len(starts))
        starts = starts[numbers % self._stride == 0]
        if len(starts):
            self._kept.append(np.stack([self.records + starts, *(places[starts] for places in offsets)]))
            self._count += len(starts)
        self.batches += len(numbers)
        self.records += len(bases)
        self.bases += int(bases.sum())
        while self._count > 2 * ENOUGH:
            self._kept = [np.concatenate(self._kept, axis=1)[:, ::2]]
            self._count = self._kept[0].shape[1]
            self._stride *= 2

    def _starts(self, bases: Ints) -> Ints:
        """Return which of the records begin a batch."""
        count = len(bases)
        if self._batch_records:
            return np.arange(-self.records % self._batch_records, count, self._batch_records)
        if self._filled >= self._size and int(bases.min()) >= self._size:
            self._filled = int(bases[-1])
            return np.arange(count)
        sums = np.cumsum(bases)
        found = []
        before = -self._filled  # of the sums: where the batch that is open began
        at = 0 if self._filled >= self._size else int(np.searchsorted(sums, before + self._size)) + 1
        while at < count:
            found.append(at)
            before = int(sums[at - 1]) if at else 0
            at = int(np.searchsorted(sums, before + self._size)) + 1
        self._filled = int(sums[-1]) - before
        return np.array(found, np.int64)

    def marks(self, ends: list[int]) -> Marks:
        """Return what was found, with the *ends* of the files."""
        kept = np.concatenate([*self._kept, np.array([[self.records], *([e] for e in ends)])], axis=1)
        return Marks(kept[0], tuple(kept[1:]), self.batches, self._stride)
