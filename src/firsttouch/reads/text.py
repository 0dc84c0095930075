# SPDX-License-Identifier: Apache-2.0
"""Bytes of FASTQ on their way: lines end with LF alone, and of interleaved pairs only one mate goes on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np


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
    tail = b""
    for block in blocks:
        data = np.frombuffer(tail + block, np.uint8)
        ends = np.flatnonzero(data == ord("\n"))
        ends = ends[: len(ends) // 8 * 8].reshape(-1, 4)[:, 3] + 1
        used = int(ends[-1]) if len(ends) else 0
        tail = data[used:].tobytes()
        mine = np.arange(len(ends)) % 2 == mate
        yield data[:used][np.repeat(mine, np.diff(ends, prepend=0))].tobytes()
