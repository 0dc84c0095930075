# SPDX-License-Identifier: Apache-2.0
"""Where the bytes of parts come from: a file, a gzip file from its middle, or a gzip file from end to end."""

from __future__ import annotations

import collections
import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Protocol

from firsttouch.errors import BadInput
from firsttouch.reads import packed
from firsttouch.reads.outlet import Halt, Outlet, Stopped
from firsttouch.reads.scan import Layout

#: Bytes read at a time where they are looked at.
_BLOCK = 1 << 20


class Intake(Protocol):
    """Gives the bytes of one file of a part."""

    def pour(self, begin: int, end: int, outlet: Outlet) -> None:
        """Write the bytes *begin* to *end* - 1 to *outlet* as they are."""

    def blocks(self, begin: int, end: int) -> Iterator[bytes]:
        """Yield the bytes *begin* to *end* - 1."""

    def close(self) -> None:
        """Free what it holds; who reads from it meets its end."""


class Flow:
    """Bytes of a descriptor: a file's, or (*packed*) those of a pipe that gives them in order."""

    def __init__(self, layout: Layout, fd: int, *, from_pipe: bool, halt: Halt) -> None:
        self._layout, self._fd, self._pipe, self._halt = layout, fd, from_pipe, halt

    def pour(self, begin: int, end: int, outlet: Outlet) -> None:
        """Write bytes to *outlet* as they are."""
        at = begin
        while at < end:
            moved = outlet.splice(self._fd, None if self._pipe else at, end - at)
            if moved is None:
                for block in self.blocks(at, end):
                    outlet.write(block)
                return
            self._check(moved)
            at += moved

    def blocks(self, begin: int, end: int) -> Iterator[bytes]:
        """Yield bytes."""
        at = begin
        while at < end:
            size = min(_BLOCK, end - at)
            block = os.read(self._fd, size) if self._pipe else os.pread(self._fd, size, at)
            self._check(len(block))
            at += len(block)
            yield block

    def _check(self, moved: int) -> None:
        if self._halt.asked:
            raise Stopped
        if not moved:
            what = "the gzip data end too early" if self._pipe else "ends too early"
            raise BadInput(f"{what}: was it changed after it had been checked?", file=self._layout.source.file)

    def close(self) -> None:
        """Free what it holds."""
        if not self._pipe:
            os.close(self._fd)


class Plain(Flow):
    """A plain file: any part, in any order."""

    def __init__(self, layout: Layout, halt: Halt) -> None:
        super().__init__(layout, layout.source.open(), from_pipe=False, halt=halt)
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)


class Unpacked(Flow):
    """Bytes *begin* to *end* - 1 of what a gzip file unpacks to, in order."""

    def __init__(self, layout: Layout, halt: Halt, begin: int, end: int) -> None:
        assert layout.index is not None  # noqa: S101 (a gzip file that was checked has one)
        self._unpacker = packed.part(layout.source, layout.index, begin, end - begin)
        super().__init__(layout, self._unpacker.stream, from_pipe=True, halt=halt)

    def close(self) -> None:
        """Free what it holds."""
        self._unpacker.close()


class Anew:
    """A gzip file, unpacked anew from where each piece begins."""

    def __init__(self, layout: Layout, halt: Halt) -> None:
        self._layout, self._halt = layout, halt

    def pour(self, begin: int, end: int, outlet: Outlet) -> None:
        """Write bytes to *outlet* as they are."""
        with contextlib.closing(Unpacked(self._layout, self._halt, begin, end)) as unpacked:
            unpacked.pour(begin, end, outlet)

    def blocks(self, begin: int, end: int) -> Iterator[bytes]:
        """Yield bytes."""
        with contextlib.closing(Unpacked(self._layout, self._halt, begin, end)) as unpacked:
            yield from unpacked.blocks(begin, end)

    def close(self) -> None:
        """Free what it holds: nothing, between two pieces."""


class Shared:
    """A gzip file, unpacked once, from end to end, for all instances: each takes the pieces that are its own.

    A piece that nobody has taken when one behind it is wanted is kept in memory: it is a mate's whose instance
    still reads the other mate.
    """

    def __init__(self, layout: Layout, halt: Halt, pieces: Sequence[tuple[int, int]]) -> None:
        """Take *pieces* as bytes from, to: next to each other, each to be taken once."""
        self._flow = Unpacked(layout, halt, pieces[0][0], pieces[-1][1])
        self._lock = threading.Lock()
        self._coming = collections.deque(pieces)
        self._kept: dict[int, list[bytes]] = {}

    def pour(self, begin: int, end: int, outlet: Outlet) -> None:
        """Write bytes to *outlet* as they are."""
        for block in self.blocks(begin, end):
            outlet.write(block)

    def blocks(self, begin: int, end: int) -> Iterator[bytes]:  # noqa: ARG002 (where a piece ends is known)
        """Yield bytes."""
        with self._lock:
            while begin not in self._kept:
                first, last = self._coming.popleft()
                self._kept[first] = list(self._flow.blocks(first, last))
            piece = self._kept.pop(begin)
        yield from piece

    def close(self) -> None:
        """Free what it holds."""
        self._flow.close()
