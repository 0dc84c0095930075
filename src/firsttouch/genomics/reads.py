# SPDX-License-Identifier: Apache-2.0
"""Checked reads: their files, how these are written, and where the aligner's batches begin."""

from __future__ import annotations

import os
import stat
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from firsttouch.errors import BadInput

# ----------------------------------------------------------------------
# Files

_GZIP = b"\x1f\x8b"
#: Compressions that are not supported: how their files begin, and the program that decompresses them.
_UNSUPPORTED = {b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "unzip"}


@dataclass(frozen=True)
class ReadFile:
    """A file of reads, plain or gzip; *size* (bytes) and *modified* (ns) reveal later changes."""

    path: Path
    gzipped: bool
    size: int
    modified: int

    @classmethod
    def identify(cls, path: Path) -> ReadFile:
        """Identify a file by its content; raises BadInput if it is not a regular file, plain or gzip."""
        fd = _open(path)
        try:
            state = os.fstat(fd)
            if stat.S_ISDIR(state.st_mode):
                raise BadInput("cannot be read: Is a directory", file=path)
            if not stat.S_ISREG(state.st_mode):
                reason = "is not a regular file: reads are read more than once, save them in a file"
                raise BadInput(reason, file=path)
            magic = os.pread(fd, 6, 0)
        finally:
            os.close(fd)
        for begin, program in _UNSUPPORTED.items():
            if magic.startswith(begin):
                raise BadInput(f"is compressed, but not with gzip: decompress it with {program}", file=path)
        return cls(path, magic.startswith(_GZIP), state.st_size, state.st_mtime_ns)

    def open(self) -> int:
        """Return a descriptor of the file; raises BadInput if the file is gone or has changed."""
        fd = _open(self.path)
        state = os.fstat(fd)
        if (state.st_size, state.st_mtime_ns) != (self.size, self.modified):
            os.close(fd)
            raise BadInput("was changed after it had been checked", file=self.path)
        return fd


def _open(path: Path) -> int:
    if str(path) == "-":
        raise BadInput("reads cannot come from standard input: they are read more than once, save them in a file")
    try:
        # O_NONBLOCK: a FIFO without a writer is refused instead of waited for.
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", file=path) from error


@dataclass(frozen=True, eq=False)
class Layout:
    """How a checked file is written.

    *crlf*: a line ends with CR LF. *unended*: the last line has no newline. *blank*: blank lines follow the last
    record. *longest*: bytes of the longest record. *index*: rapidgzip's seek index of a gzip file.
    """

    file: ReadFile
    crlf: bool
    unended: bool
    blank: bool
    longest: int
    index: IO[bytes] | None = None

    @property
    def notes(self) -> list[str]:
        """How the file differs from plain FASTQ."""
        differences = {
            "gzip": self.file.gzipped,
            "CR LF": self.crlf,
            "no newline at the end": self.unended,
            "blank lines at the end": self.blank,
        }
        return [note for note, applies in differences.items() if applies]

    @property
    def as_is(self) -> bool:
        """Whether every aligner can read the file itself (not all of them decompress gzip)."""
        return not self.notes


def template_name(name: bytes) -> bytes:
    """Return the name of a read's template: the name without the /1 or /2 of its mate."""
    return name[:-2] if name[-2:] in {b"/1", b"/2"} else name


# ----------------------------------------------------------------------
# Checked reads, and the batches that they consist of


@dataclass(frozen=True)
class BatchRule:
    """When a batch ends: with the first record (pair) at which all conditions hold (0: no condition).

    The batch has at least *bases* bases in all mates and *text* bytes of text of mate 1, and its number of records
    is a multiple of *records*.
    """

    bases: int = 0
    records: int = 0
    text: int = 0


@dataclass(frozen=True, eq=False)
class BatchIndex:
    """Where batches begin: marks at every *stride*-th of *count* batches, and a last one at the end of the input.

    *records* (m + 1) are the marks' numbers of records (pairs), *offsets* (m + 1 for each file) their offsets in
    the decompressed files.
    """

    records: array[int]
    offsets: tuple[array[int], ...]
    count: int
    stride: int
    rule: BatchRule


@dataclass(frozen=True)
class Reads:
    """Checked reads: *records* (pairs if they are paired) with *bases* bases in all mates.

    *files* are one file, or the two of a pair; *interleaved*: one file holds the pairs. *batches* is the index of
    where a part may begin.
    """

    files: tuple[Path, ...]
    interleaved: bool
    records: int
    bases: int
    batches: BatchIndex = field(repr=False)
    layouts: tuple[Layout, ...] = field(repr=False)

    @property
    def batch_bases(self) -> int:
        """Bases of a batch; 0: it does not depend on them."""
        return self.batches.rule.bases

    @property
    def paired(self) -> bool:
        """Whether a record is a pair."""
        return self.interleaved or len(self.files) == 2

    @property
    def mates(self) -> int:
        """Number of mates: 2 if the reads are paired, else 1."""
        return 2 if self.paired else 1

    @property
    def as_is(self) -> bool:
        """Whether every aligner can read the files themselves."""
        return not self.interleaved and all(layout.as_is for layout in self.layouts)
