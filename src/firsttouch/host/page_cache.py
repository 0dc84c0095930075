# SPDX-License-Identifier: Apache-2.0
"""The page cache of this host: how much of a file is cached, on which NUMA nodes, and how to drop it.

:func:`look` does not read the disk: mincore(2) shows which pages are cached, madvise(2) maps only these, and
this process's numa_maps shows their NUMA nodes. Linux answers mincore(2) only for a file that the caller owns or
may write, and shows all pages of other files as cached (mm/mincore.c, since 5.2; cachestat(2) is restricted in
the same way, mm/filemap.c). The state of such files is unknown.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import mmap
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from firsttouch.errors import RunFailed
from firsttouch.host import pages

if TYPE_CHECKING:
    import ctypes

#: Bytes that are mapped at a time. Mapped pages add to this process's memory, which is compared with the
#: instances'.
WINDOW = 1 << 26
#: File systems whose files exist in memory only, so their pages cannot be dropped.
IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})
_PAGE = mmap.PAGESIZE
_MADV_RANDOM, _MADV_POPULATE_READ = 1, 22
#: mincore(2) defines the lowest bit of each byte only.
_LOWEST_BIT = bytes(value & 1 for value in range(256))


class Cached(Struct, frozen=True):
    """How much of some files the page cache holds.

    *size* covers all files and *cached* the part in the page cache (bytes), None if it is unknown. *pages* are
    the cached pages per NUMA node in units of 4 KiB, None if they are unknown. *unknown* says why.
    """

    size: int
    cached: int | None
    pages: Mapping[int, int] | None
    unknown: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        nodes = None if self.pages is None else pages.by_node(self.pages)
        return {"size": self.size, "cached": self.cached, "pages": nodes, "unknown": self.unknown}


class _Sum(Struct):
    """The observed state of the files so far."""

    size: int = 0
    cached: int = 0
    pages: Counter[int] = field(default_factory=Counter)
    unknown: str = ""
    unplaced: str = ""


def look(files: Iterable[Path], *, fill: bool = False) -> Cached:
    """Return how much of *files* is cached, and on which NUMA nodes.

    *fill*: read uncached pages instead of querying the state, for files whose state Linux hides. Raises RunFailed
    if a file cannot be read.
    """
    seen = _Sum()
    for file in files:
        with _opened(file) as fd:
            size = os.fstat(fd).st_size
            seen.size += size
            if not fill and _restricted(fd, size):
                seen.unknown = f"{file}: Linux shows what is cached only to those who own a file or may write it"
                continue
            for offset in range(0, size, WINDOW):
                _add(seen, fd, offset, min(WINDOW, size - offset), fill=fill)
    return Cached(
        seen.size,
        None if seen.unknown else seen.cached,
        None if seen.unknown or seen.unplaced else dict(seen.pages),
        seen.unknown or seen.unplaced,
    )


def drop(files: Iterable[Path]) -> None:
    """Drop *files* from the page cache, as far as possible; dirty pages are written first.

    Pages that a process maps stay, and so do files in memory (tmpfs).
    """
    for file in files:
        with _opened(file) as fd:
            with contextlib.suppress(OSError):  # a read-only file system has no pages to write
                os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def is_visible(files: Iterable[Path]) -> bool:
    """Return whether Linux shows this process the cached pages of *files*."""
    for file in files:
        with _opened(file) as fd:
            if _restricted(fd, os.fstat(fd).st_size):
                return False
    return True


def file_system(file: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> str:
    """Return the type of the file system of *file*, such as ext4; an empty string if it is unknown."""
    device = file.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mountinfo.read_text(errors="replace").splitlines():
        words = line.split()
        if words[2] == number:
            return words[words.index("-") + 1]
    return ""


# ----------------------------------------------------------------------
# Mappings


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[int]:
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise RunFailed(f"{file}: {error.strerror}") from error
    try:
        yield fd
    finally:
        os.close(fd)


@functools.cache
def _libc() -> ctypes.CDLL:
    import ctypes  # noqa: PLC0415 - most commands do without

    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_ssize_t]
    for function, last in ((libc.mincore, ctypes.c_char_p), (libc.madvise, ctypes.c_int)):
        function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, last]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc


@contextlib.contextmanager
def _mapped(fd: int, offset: int, length: int) -> Iterator[tuple[ctypes.CDLL, int]]:
    libc = _libc()
    address = libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, fd, offset)
    if address == (1 << 64) - 1:  # MAP_FAILED
        raise _failed("mmap", fd)
    try:
        yield libc, address
    finally:
        libc.munmap(address, length)


def _errno() -> int:
    import ctypes  # noqa: PLC0415 - see _libc

    return ctypes.get_errno()


def _failed(call: str, fd: int) -> RunFailed:
    reason = os.strerror(_errno())
    return RunFailed(f"{Path(f'/proc/self/fd/{fd}').readlink()}: {call}: {reason}")


def _resident(libc: ctypes.CDLL, fd: int, address: int, length: int) -> bytes:
    """Return a byte for each page: 1 if it is cached, else 0."""
    import ctypes  # noqa: PLC0415 - see _libc

    states = ctypes.create_string_buffer(-(-length // _PAGE))
    if libc.mincore(address, length, states):
        raise _failed("mincore", fd)
    return states.raw.translate(_LOWEST_BIT)


def _restricted(fd: int, size: int) -> bool:
    """Return whether mincore(2) hides the state: it then reports even the page behind the end as cached."""
    with _mapped(fd, -(-size // _PAGE) * _PAGE, _PAGE) as (libc, address):
        return _resident(libc, fd, address, _PAGE) == b"\1"


def _add(seen: _Sum, fd: int, offset: int, length: int, *, fill: bool) -> None:
    """Add a part of a file to *seen*."""
    with _mapped(fd, offset, length) as (libc, address):
        if fill:
            seen.cached += length
            ranges = [(0, -(-length // _PAGE))]
        else:
            # Mapping a cached page must not make the kernel read others ahead.
            libc.madvise(address, length, _MADV_RANDOM)
            resident = _resident(libc, fd, address, length)
            seen.cached += resident.count(1) * _PAGE - (-length % _PAGE if resident[-1] else 0)
            ranges = [match.span() for match in re.finditer(b"\1+", resident)]
        for begin, end in ranges:
            if libc.madvise(address + begin * _PAGE, (end - begin) * _PAGE, _MADV_POPULATE_READ):
                if _errno() != errno.EINVAL:
                    raise _failed("madvise", fd)
                seen.unplaced = "where cached pages lie is unknown: this needs Linux 5.14"
                return
        _add_nodes(seen, address)


def _add_nodes(seen: _Sum, address: int) -> None:
    """Add the NUMA nodes of the pages of this process's mapping at *address*."""
    try:
        seen.pages.update(pages.mapped_pages(pages.numa_maps(pages.SELF), {address}))
    except OSError as error:
        seen.unplaced = f"where cached pages lie is unknown: {error.filename}: {error.strerror}"
