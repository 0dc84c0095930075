# SPDX-License-Identifier: Apache-2.0
"""Mates on their way to an aligner: records of two mates as interleaved pairs, and back. It loads NumPy."""

from __future__ import annotations

import numpy as np

from firsttouch.genomics.fastq import Bytes, Ints


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
