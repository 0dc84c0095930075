# SPDX-License-Identifier: Apache-2.0
"""Marks: where in the files a part may begin. They stay few whatever the input."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from firsttouch.reads.blocks import Ints

#: With twice as many, every second one is dropped: parts are equal to a part in 65536 then.
ENOUGH = 1 << 16


@dataclass(frozen=True)
class Batch:
    """When a batch is full: with the first record (pair) at which all of this holds.

    Its bases are at least *bases*, the text of its records of mate 1 has at least *text* bytes, and their number
    is a multiple of *records*. 0 is no condition.
    """

    bases: int = 0
    records: int = 0
    text: int = 0


@dataclass(frozen=True, eq=False)
class Marks:
    """Where batches begin, and at last where the input ends.

    *records* (m + 1) are numbers of records (of pairs, where reads are paired), *offsets* (m + 1 each) their
    places in each file, or in what it unpacks to. Of *batches* batches every *stride*-th is marked; *batch* is
    when one is full.
    """

    records: Ints
    offsets: tuple[Ints, ...]
    batches: int
    stride: int
    batch: Batch


class Marker:
    """Finds the batches while records go by."""

    def __init__(self, batch: Batch, files: int) -> None:
        self.records = self.bases = self.batches = 0
        self._batch, self._stride = batch, 1
        # Records, bases and text of the batch that is open; None: the last one is full.
        self._open: tuple[int, int, int] | None = None
        self._kept = [np.empty((files + 1, 0), np.int64)]
        self._count = 0

    def add(self, bases: Ints, text: Ints, offsets: list[Ints]) -> None:
        """Take further records: the bases of each, over both mates, its text (mate 1), its place in each file."""
        starts = self._starts(bases, text)
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

    def _starts(self, bases: Ints, text: Ints) -> Ints:
        """Return which of the records begin a batch."""
        full, count = self._batch, len(bases)
        each = full.records < 2 and int(bases.min()) >= full.bases and int(text.min()) >= full.text
        if self._open is None and each:
            return np.arange(count)
        sums, texts = np.cumsum(bases), np.cumsum(text)
        found = []
        at = 0
        # Records, bases and text before the batch, counted from the first record here.
        before = (0, 0, 0)
        if self._open is None:
            found.append(0)
        else:
            before = (-self._open[0], -self._open[1], -self._open[2])
        while True:
            enough = np.searchsorted(sums, before[1] + full.bases), np.searchsorted(texts, before[2] + full.text)
            last = max(at, *map(int, enough))
            last += -(last + 1 - before[0]) % max(1, full.records)
            if last >= count:
                self._open = (count - before[0], int(sums[-1]) - before[1], int(texts[-1]) - before[2])
                break
            at = last + 1
            if at == count:
                self._open = None
                break
            found.append(at)
            before = (at, int(sums[last]), int(texts[last]))
        return np.array(found, np.int64)

    def marks(self, ends: list[int]) -> Marks:
        """Return what was found, with the *ends* of the files."""
        kept = np.concatenate([*self._kept, np.array([[self.records], *([e] for e in ends)])], axis=1)
        return Marks(kept[0], tuple(kept[1:]), self.batches, self._stride, self._batch)
