# SPDX-License-Identifier: Apache-2.0
"""Groups of passes in columns: what is done with each group is done with all groups of one size at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Groups:
    """Groups of values: *values* holds one group after the other, *counts* how many are in each (1 or more)."""

    values: Floats
    counts: Ints

    def __len__(self) -> int:
        return len(self.counts)

    @cached_property
    def begins(self) -> Ints:
        """Return where each group begins in ``values``."""
        return np.cumsum(self.counts) - self.counts

    @cached_property
    def alike(self) -> bool:
        """Tell whether all groups are of one size."""
        return bool(len(self.counts)) and bool((self.counts == self.counts[0]).all())

    def blocks(self) -> Iterator[tuple[Any, Floats]]:
        """Yield the groups of each size: which ones, and their values, a row per group."""
        if self.alike:
            yield slice(None), self.values.reshape(len(self.counts), -1)
            return
        for size in np.unique(self.counts):
            which = np.flatnonzero(self.counts == size)
            yield which, self.values[self.begins[which, None] + np.arange(size)]

    def of(self, function: Callable[[Floats], Floats]) -> Floats:
        """Return what *function* (rows of groups of one size to a value per row) gives of each group."""
        found = np.empty(len(self))
        for which, rows in self.blocks():
            found[which] = function(rows)
        return found

    def medians(self) -> Floats:
        """Return the median of each group."""
        return self.of(lambda rows: np.median(rows, axis=1) if rows.shape[1] > 1 else rows[:, 0])

    def sums(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the sum of *values* (one for each of ``values``) over each group."""
        return np.add.reduceat(values, self.begins) if len(self) < len(values) else values.copy()

    def chosen(self, which: Bools) -> Groups:
        """Return the groups of a mask (one for each group)."""
        if which.all():
            return self
        return Groups(self.values[np.repeat(which, self.counts)], self.counts[which])


def stable(keys: NDArray[np.int32]) -> NDArray[np.intp]:
    """Return the stable order of numbers from 0: digits of 16 bits are sorted in linear time."""
    order = np.argsort((keys & 0xFFFF).astype(np.uint16), kind="stable")
    if len(keys) and keys.max() > 0xFFFF:
        order = order[np.argsort((keys[order] >> 16).astype(np.uint16), kind="stable")]
    return order
