# SPDX-License-Identifier: Apache-2.0
"""The names of reads, in the order in which an instance was fed them."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Generator, Iterator, Sequence

from firsttouch.reads.feed import Static
from firsttouch.reads.pairs import stem
from firsttouch.reads.parts import Part
from firsttouch.reads.scan import Reads


@contextlib.contextmanager
def names(reads: Reads, parts: Sequence[Part]) -> Generator[Iterator[bytes]]:
    """Yield an iterator of the names, of reads or pairs, without comments and without the /1 of a pair.

    Raises what a feeder raises.
    """

    def every() -> Generator[bytes]:
        for part in parts:
            feeder = Static(reads, 1, [part])
            out, into = os.pipe()
            with os.fdopen(out, "rb", buffering=1 << 20) as lines:
                feeder.start([[into]])
                try:
                    for line in itertools.islice(lines, 0, None, 4):
                        yield stem(line[1:].split(None, 1)[0])
                except BaseException:
                    feeder.stop()
                    raise
            feeder.join()

    iterator = every()
    try:
        yield iterator
    finally:
        iterator.close()
