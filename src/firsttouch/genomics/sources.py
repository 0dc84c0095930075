# SPDX-License-Identifier: Apache-2.0
"""Sources of reads: programs that decompress, whether gzip files are complete, and lines from any record on."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from typing import IO

from firsttouch.execution.child_process import child, signal_name
from firsttouch.genomics.pipe_writer import enlarge_pipe
from firsttouch.genomics.reads import ReadFile, Reads
from firsttouch.tools import require_package

# ----------------------------------------------------------------------
# Gzip files, decompressed by rapidgzip in a separate process, which ends with all its memory and threads

_RAPIDGZIP = (sys.executable, "-I", "-c", "import sys, rapidgzip; sys.exit(rapidgzip.cli())", "--quiet")
#: Without an index, the parallel decoder guesses what precedes a block: twice the work, and with two threads five
#: times slower than one thread on FASTQ. From this number of CPUs on it is faster.
_PARALLEL_CPUS = 8
_MEMBER = re.compile(rb"\x1f\x8b\x08[\x00-\x1f]", re.DOTALL)
_WINDOW = 1 << 20
_CHANCE = 1 << 10
#: Bytes that are read at a time.
_READ_BYTES = 1 << 20
#: Bytes of an empty gzip member: header, one block, checksum and size.
_SMALLEST_MEMBER = 20


class Damaged(Exception):
    """Compressed data that cannot be decompressed to their end."""


class Decompressor:
    """A running program that decompresses; *stream* is the reading end of a pipe with its output."""

    def __init__(self, argv: Sequence[str], *, stdin: int = subprocess.DEVNULL, fds: Sequence[int] = ()) -> None:
        self._stack = contextlib.ExitStack()
        self._log = self._stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        try:
            self.process = self._stack.enter_context(
                child(argv, stdin=stdin, stdout=subprocess.PIPE, stderr=self._log, fds=fds)
            )
        except BaseException:
            self._stack.close()
            raise
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

    def log(self) -> str:
        """Return what the process printed to standard error."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def close(self) -> None:
        """Stop the process."""
        self._stack.close()


class Rapidgzip(Decompressor):
    """A running rapidgzip."""

    def __init__(self, file: ReadFile, argv: Sequence[str], index: IO[bytes] | None = None) -> None:
        require_package("rapidgzip")
        fd = file.open()
        try:
            fds = [fd] if index is None else [fd, index.fileno()]
            super().__init__([*_RAPIDGZIP, "-d", "-c", *argv, f"/dev/fd/{fd}"], fds=fds)
        finally:
            os.close(fd)

    @classmethod
    def whole(cls, file: ReadFile, index: IO[bytes] | None = None) -> Rapidgzip:
        """Decompress all of *file*, and write its seek index to *index*."""
        threads = str(len(os.sched_getaffinity(0)) if is_parallel() else 1)
        if index is None:
            return cls(file, ["-P", threads])
        # The gztool format compresses its windows: a tenth of the size of indexed_gzip's.
        export = ["--index-format", "gztool", "-f", "--export-index", f"/dev/fd/{index.fileno()}"]
        return cls(file, ["-P", threads, *export], index)

    @classmethod
    def range(cls, file: ReadFile, index: IO[bytes], begin: int, size: int) -> Rapidgzip:
        """Decompress *size* bytes from byte *begin* of the decompressed data on."""
        seek = ["--ranges", f"{size}@{begin}", "--import-index", f"/dev/fd/{index.fileno()}"]
        return cls(file, ["-P", "1", *seek], index)


def is_parallel() -> bool:
    """Return whether rapidgzip decompresses faster with all CPUs than with one."""
    return len(os.sched_getaffinity(0)) >= _PARALLEL_CPUS


def is_complete_gzip(file: ReadFile, size: int) -> bool:
    """Return whether the last member of a gzip file, which holds *size* decompressed bytes, is complete.

    rapidgzip 0.16.1 takes a truncated file for a complete one. A member ends with its decompressed size modulo
    2^32, which decides for a file of one member. In a file of several, the last member is searched for from the
    end: it is the one that ends with the file.
    """
    fd = file.open()
    try:
        stated = int.from_bytes(os.pread(fd, 4, max(file.size - 4, 0)), "little")
        if file.size >= _SMALLEST_MEMBER and stated == size & 0xFFFFFFFF:
            return True
        verdicts = (_ends_file(fd, at, file.size) for at in _member_candidates(fd, file.size))
        return next((verdict for verdict in verdicts if verdict is not None), False)
    finally:
        os.close(fd)


def _member_candidates(fd: int, size: int) -> Iterator[int]:
    """Yield the offsets at which a further gzip member may begin, the last one first."""
    end = size
    while end > 1:
        begin = max(end - _WINDOW, 1)
        offsets = [begin + m.start() for m in _MEMBER.finditer(os.pread(fd, end - begin + 3, begin))]
        yield from (offset for offset in reversed(offsets) if offset < end)
        end = begin


def _ends_file(fd: int, begin: int, size: int) -> bool | None:
    """Return whether the gzip member at byte *begin* ends with the file, apart from zeros; None: not a member."""
    decompressor = zlib.decompressobj(wbits=31)
    at = begin
    try:
        while not decompressor.eof:
            data = decompressor.unconsumed_tail
            if not data:
                data = os.pread(fd, _WINDOW, at)
                at += len(data)
            if not data:
                # Bytes just before the end of the file may look like the beginning of a member by chance.
                return False if at - begin > _CHANCE else None
            decompressor.decompress(data, _WINDOW)
    except zlib.error:
        return None
    return at == size and not decompressor.unused_data.strip(b"\0")


# ----------------------------------------------------------------------
# Lines of checked files, from any record on


@contextlib.contextmanager
def mate_lines(reads: Reads, begins: Sequence[int], records: int, mate: int) -> Iterator[Iterator[bytes]]:
    """Yield the lines of *mate* (0 or 1) of checked *reads*, as plain FASTQ.

    They are those of so many *records* (pairs) from byte *begins* of each file on; of a gzip file, of its
    decompressed data. Raises BadInput for a file that was changed.
    """
    number = 0 if reads.interleaved else mate
    layout, begin = reads.layouts[number], begins[number]
    with contextlib.ExitStack() as stack:
        if layout.index is None:
            stream = stack.enter_context(os.fdopen(layout.file.open(), "rb", _READ_BYTES))
            stream.seek(begin)
        else:
            size = reads.batches.offsets[number][-1] - begin
            rapidgzip = stack.enter_context(
                contextlib.closing(Rapidgzip.range(layout.file, layout.index, begin, size))
            )
            stream = stack.enter_context(os.fdopen(os.dup(rapidgzip.stream), "rb", _READ_BYTES))
        lines: Iterator[bytes] = (line.removesuffix(b"\n").removesuffix(b"\r") + b"\n" for line in stream)
        # A last record without bases ends before the line of its qualities if that has no end.
        lines = itertools.chain(lines, [b"\n"])
        if reads.interleaved:
            lines = (line for at, line in enumerate(lines) if at // 4 % 2 == mate)
        yield itertools.islice(lines, 4 * records)
