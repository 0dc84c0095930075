# SPDX-License-Identifier: Apache-2.0
"""Mates on their way to an aligner: two streams of FASTQ as interleaved pairs, and back. It loads NumPy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from firsttouch.genomics.fastq import Bytes, Ints


def deinterleave(blocks: Iterable[bytes], mate: int) -> Iterator[bytes]:
    """Yield the records of *mate* (0 or 1) from *blocks* of interleaved pairs."""
    pairs = _Records(blocks, multiple_of=2)
    while count := pairs.count():
        yield one_mate(*pairs.take(count), mate).tobytes()


def interleave(blocks_1: Iterable[bytes], blocks_2: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the records of two mates, equally many, as interleaved pairs."""
    mates = _Records(blocks_1), _Records(blocks_2)
    while count := min(mate.count() for mate in mates):
        yield both_mates(*mates[0].take(count), *mates[1].take(count)).tobytes()


def one_mate(data: Bytes, sizes: Ints, mate: int) -> Bytes:
    """Return the records of *mate* (0 or 1) in *data*, interleaved pairs whose records have *sizes* bytes."""
    records: Bytes = data[np.repeat(np.arange(len(sizes)) % 2 == mate, sizes)]
    return records


def both_mates(data_1: Bytes, sizes_1: Ints, data_2: Bytes, sizes_2: Ints) -> Bytes:
    """Return the records of two mates as interleaved pairs; *sizes* are the bytes of each record."""
    sizes = np.stack((sizes_1, sizes_2), axis=1).reshape(-1)
    is_first = np.repeat(np.arange(len(sizes)) % 2 == 0, sizes)
    pairs = np.empty(len(is_first), np.uint8)
    pairs[is_first], pairs[~is_first] = data_1, data_2
    return pairs


class _Records:
    """The records in blocks of FASTQ, in multiples of *multiple_of*."""

    def __init__(self, blocks: Iterable[bytes], *, multiple_of: int = 1) -> None:
        self._blocks, self._lines = iter(blocks), 4 * multiple_of
        self._data = np.empty(0, np.uint8)
        self._ends = np.empty(0, np.int64)

    def count(self) -> int:
        """Return the number of available records; 0 means the end of the blocks."""
        while not len(self._ends) and (block := next(self._blocks, None)) is not None:
            self._data = np.frombuffer(self._data.tobytes() + block, np.uint8)
            ends = np.flatnonzero(self._data == ord("\n")) + 1
            self._ends = ends[: len(ends) // self._lines * self._lines].reshape(-1, 4)[:, 3]
        return len(self._ends)

    def take(self, count: int) -> tuple[Bytes, Ints]:
        """Remove the first *count* records; return their bytes and the size of each."""
        used = int(self._ends[count - 1])
        data, sizes = self._data[:used], np.diff(self._ends[:count], prepend=0)
        self._data, self._ends = self._data[used:], self._ends[count:] - used
        return data, sizes
