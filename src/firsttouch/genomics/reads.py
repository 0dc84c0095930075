# SPDX-License-Identifier: Apache-2.0
"""Checked reads: their files and line endings, and where the aligner's batches begin."""

from __future__ import annotations

import contextlib
import os
import stat
import zlib
from array import array
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from firsttouch.errors import BadInput

# ----------------------------------------------------------------------
# Files

#: The first bytes of files of reads that are not plain text. BAM begins like gzip.
_FORMS = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x50\x2a\x4d\x18": "zstd",
    b"CRAM": "CRAM",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"PK\x03\x04": "zip",
}
_BAM = b"BAM\x01"
#: The number of bytes of decompressed gzip data that identify their format.
_BEGIN_BYTES = 1 << 9
#: The programs that decompress forms other than gzip.
PROGRAMS = {"zstd": "zstd", "bzip2": "bzip2", "xz": "xz", "zip": "unzip"}
#: Forms that aligners are not trusted to read, and the number of bytes that show the form.
_NOT_FOR_ALIGNERS, PEEK = {"zstd", "BAM", "CRAM"}, 1 << 12
_ALIGN = "or use `firsttouch run`, which reads"


def form_of(head: bytes) -> str:
    """Return the form of reads by their first bytes: "plain", or the name of the compression or format."""
    form = next((form for begin, form in _FORMS.items() if head.startswith(begin)), "plain")
    return "BAM" if form == "gzip" and _begin_of_gzip(head).startswith(_BAM) else form


def _begin_of_gzip(head: bytes) -> bytes:
    """Return the first bytes of gzip data, decompressed."""
    with contextlib.suppress(zlib.error):
        return zlib.decompressobj(wbits=31).decompress(head, _BEGIN_BYTES)
    return b""


def is_for_no_aligner(path: str) -> bool:
    """Return whether *path* is a file of a form that aligners are not trusted to read."""
    return form_of(_head_of(path)) in _NOT_FOR_ALIGNERS


def is_fasta(path: str) -> bool:
    """Return whether *path* is a file of FASTA, plain or gzip."""
    head = _head_of(path)
    return (_begin_of_gzip(head) or head).startswith(b">")


def _head_of(path: str) -> bytes:
    """Return the first bytes of a file; none of anything else."""
    with contextlib.suppress(OSError, ValueError):
        if Path(path).is_file():  # opening a FIFO would start its writer
            with Path(path).open("rb") as file:
                return file.read(PEEK)
    return b""


class NoReads(BadInput):
    """The inputs have no reads."""


class ReadFile(Struct, frozen=True):
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
                reason = f"is not a regular file, and is read more than once: save the reads in one, {_ALIGN} it"
                raise BadInput(reason, file=path)
            form = form_of(os.pread(fd, PEEK, 0))
        finally:
            os.close(fd)
        if form in {"BAM", "CRAM"}:
            raise BadInput(f"is {form}: convert it with `samtools fastq`", file=path)
        if form not in {"plain", "gzip"}:
            raise BadInput(f"is compressed, but not with gzip: decompress it with {PROGRAMS[form]}", file=path)
        return cls(path, form == "gzip", state.st_size, state.st_mtime_ns)

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
        raise BadInput(
            "reads cannot come from standard input, because they are read more than once: save them in a file, "
            f"{_ALIGN} them once"
        )
    try:
        # O_NONBLOCK: a FIFO without a writer is refused instead of waited for.
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", file=path) from error


class FileLayout(Struct, frozen=True, eq=False):
    """The line endings and sizes of a checked file.

    *crlf*: a line ends with CR LF. *unended*: the last line has no newline. *blank*: blank lines follow the last
    record. *longest*: bytes of the longest record.
    """

    file: ReadFile
    crlf: bool
    unended: bool
    blank: bool
    longest: int

    @property
    def as_is(self) -> bool:
        """Whether every aligner can read the file directly (not all of them decompress gzip)."""
        return not (self.file.gzipped or self.crlf or self.unended or self.blank)


def template_name(name: bytes) -> bytes:
    """Return the name of a read's template: the name without the /1 or /2 of its mate."""
    return name[:-2] if name[-2:] in {b"/1", b"/2"} else name


# ----------------------------------------------------------------------
# Checked reads and their batches


class BatchRule(Struct, frozen=True):
    """The rule for the end of a batch: the first record (pair) at which all conditions hold (0: no condition).

    The batch has at least *bases* bases in all mates and *text* bytes of text of mate 1, and its number of records
    is a multiple of *records*. *names*: consecutive records of one name stay together, because the aligner treats
    them as one template.
    """

    bases: int = 0
    records: int = 0
    text: int = 0
    names: bool = False

    @property
    def is_conditional(self) -> bool:
        """Whether it has conditions; otherwise batches can end anywhere."""
        return bool(self.bases or self.records or self.text)

    def for_mates(self, mates: int) -> BatchRule:
        """Return the rule for reads of *mates* mates; single reads may be pairs, which a batch must not divide."""
        return replace(self, records=2) if mates == 1 and self.names and self.bases else self


class BatchIndex(Struct, frozen=True, eq=False):
    """Where batches begin: marks at every *stride*-th of *count* batches, and a last one at the end of the input.

    *records* (m + 1) are the marks' numbers of records (pairs), *offsets* (m + 1 for each file) their offsets in
    the decompressed files.
    """

    records: array[int]
    offsets: tuple[array[int], ...]
    count: int
    stride: int
    rule: BatchRule


class Reads(Struct, frozen=True):
    """Checked reads: *records* (pairs if they are paired) with *bases* bases in all mates.

    *files* are one file, or the two of a pair; *interleaved*: one file holds the pairs. *batches* is the index of
    where a part may begin. *empty_mates* are the records whose last mate has no bases.
    """

    files: tuple[Path, ...]
    interleaved: bool
    records: int
    bases: int
    batches: BatchIndex
    layouts: tuple[FileLayout, ...]
    empty_mates: int = 0

    @classmethod
    def without_check(
        cls,
        files: Sequence[Path],
        rule: BatchRule,
        *,
        interleaved: bool = False,
    ) -> Reads:
        """Return the reads of *files* without checking them; the run itself checks and counts them."""
        nothing = BatchIndex(array("q"), (), 0, 1, rule)
        return cls(tuple(files), interleaved, 0, 0, nothing, ())

    @property
    def is_checked(self) -> bool:
        """Whether the reads are checked and counted."""
        return bool(self.layouts)

    @property
    def batch_bases(self) -> int:
        """Bases of a batch; 0 if batches do not depend on bases."""
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
        """Whether every aligner can read the checked files directly."""
        return self.is_checked and not self.interleaved and all(layout.as_is for layout in self.layouts)
