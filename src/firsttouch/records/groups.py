# SPDX-License-Identifier: Apache-2.0
"""Runs of equal values, and quantiles and sums of groups of values, one group after the other in an array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def run_begins(values: NDArray[Any]) -> NDArray[np.intp]:
    """Return the index of the first value of each run of equal values."""
    return np.flatnonzero(np.append(True, values[1:] != values[:-1])[: len(values)])


def quantiles(rows: NDArray[Any], quantile: float) -> NDArray[Any]:
    """Return a quantile of each row, linear between two values; sorting short rows beats numpy.quantile."""
    size = rows.shape[-1]
    ordered = _sorted(np.array(rows.T, order="C")) if rows.ndim > 1 else np.sort(rows)
    place = quantile * (size - 1)
    low, high = ordered[int(place)], ordered[min(int(place) + 1, size - 1)]
    result: NDArray[Any] = low * (1 - place % 1) + high * (place % 1)
    return result


def medians(rows: NDArray[Any]) -> NDArray[Any]:
    """Return the median of each row."""
    return quantiles(rows, 0.5)


def group_quantiles(values: NDArray[Any], counts: Ints, quantile: float) -> Floats:
    """Return a quantile of each group; *counts* are the sizes of the groups."""
    result = np.empty(len(counts))
    for which, rows in by_size(values, counts):
        result[which] = quantiles(rows, quantile)
    return result


def by_size(values: NDArray[Any], counts: Ints) -> Iterator[tuple[Ints, NDArray[Any]]]:
    """Yield the groups of each size (numbers) with a row of values for each; *counts* are the sizes of groups."""
    begins = np.cumsum(counts) - counts
    for size in np.flatnonzero(np.bincount(counts)).tolist():
        which = np.flatnonzero(counts == size)
        # A view is enough if all groups have one size.
        at_once = size * len(which) == len(values)
        if size:
            yield which, values.reshape(-1, size) if at_once else values[begins[which, None] + np.arange(size)]


def group_medians(values: NDArray[Any], counts: Ints) -> NDArray[Any]:
    """Return the median of each group; *counts* are the sizes of the groups."""
    return values.copy() if len(values) == len(counts) else group_quantiles(values, counts, 0.5)


def of_hosts(values: Floats, host: Ints, hosts: int, quantile: float = 0.5) -> Floats:
    """Return a *quantile* of the values of each host (sorted by host); NaN for a host without any."""
    of_each = np.full(hosts, np.nan)
    firsts = run_begins(host)
    of_each[host[firsts]] = group_quantiles(values, np.diff(firsts, append=len(host)), quantile)
    return of_each


def mean_of_hosts(values: NDArray[Any], counted: Bools, host: Ints, hosts: int) -> Floats:
    """Return the mean of the *counted* values of each host; NaN without finite ones."""
    chosen = np.flatnonzero(counted & np.isfinite(values))
    counts = np.bincount(host[chosen], minlength=hosts)
    sums = np.bincount(host[chosen], values[chosen], minlength=hosts)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def group_sums(values: NDArray[Any], begins: NDArray[np.integer]) -> Ints:
    """Return the sum of each group that begins at one of *begins*; of flags, how many are set."""
    sums: Ints = np.add.reduceat(values, begins, dtype=np.int64) if len(begins) else np.zeros(0, dtype=np.int64)
    return sums


#: Up to this number of rows, comparing them is faster than sorting each column.
_FEW_ROWS = 16


def _sorted(rows: NDArray[Any]) -> NDArray[Any]:
    """Sort each column in place, and return the rows."""
    if len(rows) > _FEW_ROWS:
        rows.sort(axis=0)
        return rows
    smaller = np.empty_like(rows[0]) if len(rows) else rows
    for low, high in _network(len(rows)):
        np.minimum(rows[low], rows[high], out=smaller)
        np.maximum(rows[low], rows[high], out=rows[high])
        rows[low] = smaller
    return rows


def middles(rows: NDArray[Any]) -> NDArray[Any]:
    """Return the median of each column without NaN."""
    is_finite = np.isfinite(rows)
    last = np.maximum(np.count_nonzero(is_finite, axis=0) - 1, 0)
    ordered = _sorted(np.where(is_finite, rows, np.inf))
    low, high = (ordered[place, np.arange(rows.shape[1])] for place in (last // 2, (last + 1) // 2))
    return np.where(is_finite.any(axis=0), (low + high) / 2, np.nan).astype(rows.dtype)


@lru_cache
def _network(size: int) -> Sequence[tuple[int, int]]:
    """Return which places to compare so that *size* values are sorted (K. E. Batcher, Sorting networks, 1968)."""
    pairs = []
    for power in (1 << bit for bit in range((size - 1).bit_length())):
        for step in (power >> bit for bit in range(power.bit_length())):
            for first in range(step % power, size - step, 2 * step):
                places = range(first, first + min(step, size - first - step))
                pairs += [(p, p + step) for p in places if p // (2 * power) == (p + step) // (2 * power)]
    return pairs
