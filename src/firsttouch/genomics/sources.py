# SPDX-License-Identifier: Apache-2.0
"""Sources of reads: decompressing programs, and lines of checked files from any record on."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

from firsttouch.execution.child_process import child, signal_name
from firsttouch.genomics.pipe_writer import enlarge_pipe
from firsttouch.genomics.reads import Reads
from firsttouch.tools import require_package

# ----------------------------------------------------------------------
# Programs that decompress

_IGZIP = (sys.executable, "-I", "-m", "isal.igzip", "-d", "-c")
#: Bytes that are read at a time.
_READ_BYTES = 1 << 20


class Damaged(Exception):
    """Compressed data that cannot be decompressed completely."""


class Decompressor:
    """A running program that decompresses; *stream* is the reading end of a pipe with its output."""

    def __init__(self, argv: Sequence[str], *, stdin: int) -> None:
        with contextlib.ExitStack() as stack:
            self._log = stack.enter_context(tempfile.TemporaryFile())
            self.process = stack.enter_context(child(argv, stdin=stdin, stdout=subprocess.PIPE, stderr=self._log))
            self._stack = stack.pop_all()
        assert self.process.stdout is not None  # noqa: S101 (for mypy: it was asked for)
        self._stack.callback(self.process.stdout.close)
        self.stream = self.process.stdout.fileno()
        enlarge_pipe(self.stream)

    def failure(self) -> str:
        """Wait for the process; return the last line of its log if it failed, else an empty string."""
        status = self.process.wait()
        if status == 0:
            return ""
        lines = [line.strip() for line in self.log().splitlines()]
        silent = f"signal {signal_name(-status)}" if status < 0 else "it printed nothing"
        return next(filter(None, reversed(lines)), silent)

    def damage(self) -> str:
        """Wait for the process; return what is wrong with the gzip data if it failed, else an empty string."""
        if not (failure := self.failure()):
            return ""
        if "Not a gzipped file" in failure:  # the beginning of the file was recognized as gzip
            return f"data that are not gzip follow the gzip data; `gzip -dc` leaves them out ({failure})"
        # igzip reports fewer bytes than a header has after the last member as such an end, too.
        few = ", or a few other bytes follow them: `gzip -t` tells which" if failure.startswith("EOFError") else ""
        return f"the gzip data are truncated or damaged{few} ({failure})"

    def log(self) -> str:
        """Return the standard error of the process."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def close(self) -> None:
        """Stop the process."""
        self._stack.close()


def gunzip(stdin: int) -> Decompressor:
    """Return a running igzip that decompresses the descriptor *stdin*; raises Missing."""
    require_package("isal")
    return Decompressor(_IGZIP, stdin=stdin)


# ----------------------------------------------------------------------
# Lines of checked files, from any record on


#: A stretch of records (pairs): the offset in each decompressed file, and the number of records.
Stretch = tuple[Sequence[int], int]


@contextlib.contextmanager
def mate_lines(reads: Reads, stretches: Iterable[Stretch], mate: int) -> Iterator[Iterator[bytes]]:
    """Yield the lines of *mate* (0 or 1) in *stretches* of checked *reads*, as plain FASTQ.

    Stretches are in the order of the input, because a gzip file is decompressed up to each. Raises BadInput for a
    file that was changed.
    """
    number = 0 if reads.interleaved else mate
    file = reads.layouts[number].file
    with os.fdopen(file.open(), "rb", _READ_BYTES) as packed, contextlib.ExitStack() as stack:
        stream: IO[bytes] = packed
        if file.gzipped:
            from isal import igzip  # noqa: PLC0415 - plain files need no such package

            stream = stack.enter_context(igzip.open(packed, "rb"))  # type: ignore[no-untyped-call]
        yield itertools.chain.from_iterable(
            _lines(stream, begins[number], records, mate if reads.interleaved else None)
            for begins, records in stretches
        )


def _lines(stream: IO[bytes], begin: int, records: int, mate: int | None) -> Iterator[bytes]:
    """Yield the lines of *records* records from byte *begin* on; for pairs, only the lines of the *mate*."""
    stream.seek(begin)
    lines: Iterator[bytes] = (line.removesuffix(b"\n").removesuffix(b"\r") + b"\n" for line in stream)
    # If the last record has no bases and no final newline, its line of qualities is missing.
    lines = itertools.chain(lines, [b"\n"])
    if mate is not None:
        lines = (line for at, line in enumerate(lines) if at // 4 % 2 == mate)
    return itertools.islice(lines, 4 * records)
