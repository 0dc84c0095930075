# SPDX-License-Identifier: Apache-2.0
"""The pipes from a feeder of reads to the instances of a scenario."""

from __future__ import annotations

import os
from collections.abc import Sequence

from firsttouch.reads import Dynamic, Reads, Repeated, Static

Feeder = Static | Dynamic | Repeated


class Pipes:
    """The pipes of one step, from the feeder to each instance; without a feeder the read files themselves.

    An instance has a pipe for each of *mates*, or (*on_stdin*) one in all, with the records of both in turn.
    """

    def __init__(
        self, reads: Reads, instances: int, mates: Sequence[int], feeder: Feeder | None, *, on_stdin: bool = False
    ) -> None:
        self._reads, self._feeder, self._mates = reads, feeder, mates
        self._on_stdin, self._in_turn = on_stdin, on_stdin and len(mates) > 1
        self._into: list[list[int | None]] = [[None] * reads.mates for _ in range(instances)]
        self._out: list[list[int | None]] = [[None] * reads.mates for _ in range(instances)]
        self._started = False

    def __enter__(self) -> Pipes:
        if self._feeder is not None:
            try:
                for into, out in zip(self._into, self._out, strict=True):
                    for mate in self._mates[:1] if self._on_stdin else self._mates:
                        out[mate], into[mate] = os.pipe()
            except OSError:
                self._close(*self._into, *self._out)
                raise
        return self

    def of(self, number: int) -> tuple[list[str | None], tuple[int, ...], int | None]:
        """Return the files that an instance reads, by mate, descriptors to stay open in it, and its stdin."""
        if self._feeder is None:
            return [str(f) if m in self._mates else None for m, f in enumerate(self._reads.files)], (), None
        ends = self._out[number]
        if self._on_stdin:
            return [None] * len(ends), (), ends[self._mates[0]]
        names = [None if fd is None else f"/dev/fd/{fd}" for fd in ends]
        return names, tuple(fd for fd in ends if fd is not None), None

    def start(self) -> None:
        """Begin to feed."""
        if self._feeder is not None:
            self._started = True
            self._feeder.start(self._into, in_turn=self._in_turn)

    def __exit__(self, kind: object, *_: object) -> None:
        if self._feeder is None:
            return
        if not self._started:
            self._close(*self._into)
        # With the reading ends gone a feeder that is still at work meets a broken pipe and ends.
        self._close(*self._out)
        if kind is None:
            self._feeder.join()
        else:
            self._feeder.stop()

    def _close(self, *ends: list[int | None]) -> None:
        for fd in (fd for mates in ends for fd in mates if fd is not None):
            os.close(fd)
