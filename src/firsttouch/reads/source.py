# SPDX-License-Identifier: Apache-2.0
"""Read files as they lie on disk: what they are by their content, and whether they are still the same."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from firsttouch.errors import BadInput

_GZIP = b"\x1f\x8b"
#: Compressions that no aligner here reads by itself, by how their files begin, with what unpacks them.
_OTHERS = {b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "unzip"}


@dataclass(frozen=True)
class Source:
    """A file of reads, plain or gzip (*packed*), with what tells that it was changed since (bytes, ns)."""

    file: Path
    packed: bool
    size: int
    changed: int

    def open(self) -> int:
        """Return a descriptor of the file; raises BadInput where it is gone or was changed meanwhile."""
        fd = _open(self.file)
        now = os.fstat(fd)
        if (now.st_size, now.st_mtime_ns) != (self.size, self.changed):
            os.close(fd)
            raise BadInput("was changed after it had been checked", file=self.file)
        return fd


def source(file: Path) -> Source:
    """Return what *file* is; raises BadInput where it cannot be read, and read again, or is packed otherwise."""
    fd = _open(file)
    try:
        state = os.fstat(fd)
        if not stat.S_ISREG(state.st_mode):
            if stat.S_ISDIR(state.st_mode):
                raise BadInput("cannot be read: Is a directory", file=file)
            raise BadInput("is no regular file: reads are read more than once, save them in a file", file=file)
        magic = os.pread(fd, 6, 0)
    finally:
        os.close(fd)
    for begin, program in _OTHERS.items():
        if magic.startswith(begin):
            raise BadInput(f"is compressed with something else than gzip: unpack it with {program}", file=file)
    return Source(file, magic.startswith(_GZIP), state.st_size, state.st_mtime_ns)


def _open(file: Path) -> int:
    if str(file) == "-":
        raise BadInput("reads on standard input are not taken: they are read more than once, save them in a file")
    try:
        # Nobody may be at the other end of a FIFO: it is to be refused, not waited for.
        return os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", file=file) from error
