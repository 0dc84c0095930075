# SPDX-License-Identifier: Apache-2.0
"""Bytes of FASTQ on their way: lines end with LF alone; pairs are taken apart, or put together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt


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
