# SPDX-License-Identifier: Apache-2.0
"""Reads from an index file of minimap2 whether it has several parts."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

#: The magic number of a part, and the flag of a part without sequences (minimap2, index.c, mm_idx_dump).
_MAGIC, _NO_SEQUENCES = b"MMI\x02", 2
_HEAD = struct.Struct("<4x5I")  # w, k, bits of the buckets' numbers, sequences, flags
_NUMBER = struct.Struct("<I")


def has_several_parts(file: Path) -> bool:
    """Return whether another part follows the first one; False for any other file.

    Of each of the first part's buckets (2^14 by default) only the two sizes are read.
    """
    try:
        with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[: len(_MAGIC)] != _MAGIC:
                return False
            end = _end_of_part(data)
            return data[end : end + len(_MAGIC)] == _MAGIC
    except (OSError, ValueError, IndexError, struct.error):  # an empty or a damaged file, which minimap2 refuses
        return False


def _end_of_part(data: mmap.mmap) -> int:
    """Return the first byte behind the first part."""
    _, _, bits, sequences, flags = _HEAD.unpack_from(data)
    if bits >= 32:
        raise ValueError("a bucket's number has 32 bits at most")
    at, bases = _HEAD.size, 0
    for _ in range(sequences):
        at += 1 + data[at]
        bases += _NUMBER.unpack_from(data, at)[0]
        at += _NUMBER.size
    for _ in range(1 << bits):
        at += _NUMBER.size + 8 * _NUMBER.unpack_from(data, at)[0]
        at += _NUMBER.size + 16 * _NUMBER.unpack_from(data, at)[0]
    return at if flags & _NO_SEQUENCES else at + 4 * -(-bases // 8)
