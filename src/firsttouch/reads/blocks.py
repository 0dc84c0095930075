# SPDX-License-Identifier: Apache-2.0
"""The bytes of a file of reads in blocks, with where lines end in each, read and searched ahead."""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO

import numpy as np
import numpy.typing as npt

from firsttouch.reads import packed
from firsttouch.reads.source import Source

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

#: Bytes of a block: small enough for caches to help, large enough for numpy's calls to cost little.
BLOCK = 1 << 21
#: Room before a block for the record that the block before it did not end, and after it, so that a look at
#: the bytes that follow a name needs no care.
HEAD, SLACK = 1 << 14, 1 << 8
_NEWLINE, _RETURN = 10, 13


class Damaged(Exception):
    """Gzip data that cannot be unpacked to their end."""


class Block:
    """Bytes ``data[HEAD : HEAD + size]`` (*room*), where newlines are among them (from 0), and whether a CR is.

    *data* is used again for a later block: it holds until the next one is asked for.
    """

    def __init__(self) -> None:
        self._raw = bytearray(HEAD + BLOCK + SLACK)
        self._mask = np.empty(BLOCK, np.bool_)
        self.data: Bytes = np.frombuffer(self._raw, np.uint8)
        self.room = memoryview(self._raw)[HEAD : HEAD + BLOCK]
        self.size = 0
        self.ends: Ints = np.empty(0, np.int64)
        self.returns = False

    def search(self, size: int) -> Block:
        """Find the lines' ends in the first *size* bytes."""
        self.size = size
        mask = self._mask[:size]
        np.equal(self.data[HEAD : HEAD + size], _NEWLINE, out=mask)
        self.ends = np.flatnonzero(mask)
        self.returns = self._raw.find(_RETURN, HEAD, HEAD + size) >= 0
        return self


@contextlib.contextmanager
def blocks(source: Source, threads: int, index: IO[bytes] | None) -> Iterator[Iterator[Block]]:
    """Open *source* and give its blocks in order, all but the last BLOCK bytes large.

    Up to *threads* threads read and search ahead of who asks. Of a gzip file the blocks are of what it unpacks
    to, and its seek index is written to *index*. Raises Damaged (with the blocks).
    """
    with contextlib.ExitStack() as stack:
        fill: Callable[[Block, int], Block]
        if index is not None:
            unpacker = packed.whole(source, index)
            stack.callback(unpacker.close)
            fill, threads = _Stream(unpacker.stream).fill, 1
        else:
            fd = source.open()
            stack.callback(os.close, fd)
            fill = _Plain(fd).fill
        pool = stack.enter_context(ThreadPoolExecutor(threads, thread_name_prefix="reads"))
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        if source.packed:
            # What a thread waits for comes to an end with who sends it.
            stack.callback(unpacker.process.kill)
        given = _ahead(pool, fill, threads)
        yield _unpacked(given, unpacker, source) if source.packed else given


def _ahead(pool: ThreadPoolExecutor, fill: Callable[[Block, int], Block], threads: int) -> Iterator[Block]:
    waiting: collections.deque[Future[Block]] = collections.deque()
    numbers = itertools.count()
    waiting.extend(pool.submit(fill, Block(), next(numbers)) for _ in range(threads + 1))
    while True:
        block = waiting.popleft().result()
        if block.size:
            yield block
        if block.size < BLOCK:
            return
        waiting.append(pool.submit(fill, block, next(numbers)))


def _unpacked(given: Iterator[Block], unpacker: packed.Unpacker, source: Source) -> Iterator[Block]:
    size = 0
    for block in given:
        size += block.size
        yield block
    reason = unpacker.failure()
    if reason or not packed.intact(source, size):
        raise Damaged("the gzip data are truncated or damaged" + (f" ({reason})" if reason else ""))


class _Plain:
    """Fills blocks from a file, by their number."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fill(self, block: Block, number: int) -> Block:
        size = 0
        while size < BLOCK:
            got = os.preadv(self._fd, [block.room[size:]], number * BLOCK + size)
            if not got:
                break
            size += got
        return block.search(size)


class _Stream:
    """Fills blocks from a pipe, one after the other."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fill(self, block: Block, _number: int) -> Block:
        size = 0
        while size < BLOCK and (got := os.readv(self._fd, [block.room[size:]])):
            size += got
        return block.search(size)
