# SPDX-License-Identifier: Apache-2.0
"""The state of the page cache before a timed run: how much of an index is cached, and on which NUMA nodes.

Instances read or map an index through the page cache, and its first reader decides where the pages lie. Without a
defined state, the first run of a series is cold, and later ones depend on where the first one ran.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import mmap
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from firsttouch.errors import CannotHere, RunFailed
from firsttouch.execution import AS_IS, COLD, INTERLEAVE, LOCAL
from firsttouch.execution.child_process import child
from firsttouch.execution.progress import live
from firsttouch.host import pages
from firsttouch.host.cpusets import format_list
from firsttouch.host.topology import Topology
from firsttouch.scenarios import evidence
from firsttouch.scenarios.memory_fit import bank_bytes
from firsttouch.scenarios.placement import Placement
from firsttouch.tools import require
from firsttouch.units import format_bytes

if TYPE_CHECKING:
    import ctypes

#: The part of an index that may differ from the requested state.
TOLERANCE = 0.01
#: How often the files are read, because meanwhile the kernel may drop a few large folios again.
_ATTEMPTS = 3


class Restored(Struct, frozen=True):
    """The page cache before a run: the requested *state*, the *cached* part, and why the state did not hold."""

    state: str
    cached: Cached
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form: ``index_cache`` in a record's ``placement_found``."""
        return {"state": self.state, **self.cached.to_dict()}


def banks_of(state: str, placements: Sequence[Placement]) -> tuple[int, ...]:
    """Return the NUMA nodes of the index in *state*, for instances with these *placements*."""
    if state == LOCAL:
        return placements[0].numa_nodes[:1]
    return tuple(sorted({n for p in placements for n in p.numa_nodes})) if state == INTERLEAVE else ()


def check(files: Sequence[Path], state: str, placements: Sequence[Placement], host: Topology) -> None:
    """Raise CannotHere if this user or *host* cannot put the page cache of *files* into *state*."""
    size = sum(file.stat().st_size for file in files)
    banks = banks_of(state, placements)
    if banks and size > (room := sum(bank_bytes(host, n) for n in banks)):
        raise CannotHere(
            f"index cache {state}: the index has {format_bytes(size)}, NUMA nodes {format_list(banks)} have "
            f"{format_bytes(room)}"
        )
    if state == COLD and not is_visible(files):
        raise CannotHere(
            f"index cache {state}: Linux shows whether {files[0]} is cached only to those who own it or "
            f"may write it: use {INTERLEAVE} or {LOCAL}, or a copy of the index"
        )


def restore(files: Sequence[Path], state: str, placements: Sequence[Placement]) -> Restored:
    """Put the page cache of *files* into *state*, and return the state that the kernel shows.

    Raises CannotHere if the file system does not allow it, and RunFailed if the files cannot be read.
    """
    if state == AS_IS:
        return Restored(state, look(files))
    live(f"index cache: {state}")
    try:
        return _emptied(files) if state == COLD else _spread(files, state, banks_of(state, placements))
    finally:
        live("")


def _emptied(files: Sequence[Path]) -> Restored:
    drop(files)
    cached = look(files)
    stays = cached.size if cached.cached is None else cached.cached
    wrong = f"{format_bytes(stays)} of {format_bytes(cached.size)} stay in the page cache"
    reason = f"index cache {COLD}: {wrong}: {_why(files, COLD)}" if stays > TOLERANCE * cached.size else ""
    return Restored(COLD, cached, reason)


def _spread(files: Sequence[Path], state: str, banks: Sequence[int]) -> Restored:
    fill = not is_visible(files)
    cached = look(files)
    for _ in range(_ATTEMPTS):
        if not wrong(cached, banks):
            return Restored(state, cached)
        if _misplaced(cached, banks):  # reading does not move cached pages
            drop(files)
        read(files, banks)
        cached = look(files, fill=fill)
    if not (reason := wrong(cached, banks)):
        return Restored(state, cached)
    if cached.cached is not None and cached.cached < TOLERANCE * cached.size:
        raise CannotHere(
            f"index cache {state}: the file system of {files[0]} does not use the page cache: use {AS_IS}"
        )
    return Restored(state, cached, f"index cache {state}: {reason}: {_why(files, state)}")


def read(files: Sequence[Path], banks: Sequence[int]) -> None:
    """Read *files* to their ends, so that uncached pages lie on *banks*; evenly if there are several.

    Raises RunFailed if a file cannot be read, and Missing without numactl.
    """
    require("numactl", "cat")
    rule = "membind" if len(banks) == 1 else "interleave"
    argv = ["numactl", f"--{rule}={format_list(banks)}", "--", "cat", "--", *map(str, files)]
    with child(argv, stderr=subprocess.PIPE) as process:
        _, errors = process.communicate()
    if process.returncode:
        lines = errors.decode(errors="replace").strip().splitlines() or ["it printed nothing"]
        raise RunFailed(f"the index cannot be read: {lines[-1]}")


def wrong(cached: Cached, banks: Sequence[int]) -> str:
    """Return why *cached* is not all of the files, evenly on *banks*; an empty string if it is."""
    if cached.cached is None or cached.pages is None:
        return cached.unknown
    if cached.cached < (1 - TOLERANCE) * cached.size:
        return f"{format_bytes(cached.cached)} of {format_bytes(cached.size)} are cached"
    return _misplaced(cached, banks)


def _misplaced(cached: Cached, banks: Sequence[int]) -> str:
    """Return why the cached pages do not lie evenly on *banks*, or an empty string if they do or it is unknown."""
    return evidence.why_misplaced(cached.pages or {}, banks, outside=TOLERANCE, even=True)


def _why(files: Sequence[Path], state: str) -> str:
    """Return what may prevent *files* from having *state*; raises CannotHere for files in memory."""
    if in_memory := next((f for f in files if file_system(f) in IN_MEMORY), None):
        raise CannotHere(
            f"index cache {state}: {in_memory} is a file in memory ({file_system(in_memory)}), whose "
            f"pages stay where they were written: use {AS_IS}"
        )
    return f"another program uses it, the memory is too small, or its file system is in memory (then use {AS_IS})"


# ----------------------------------------------------------------------
# The page cache of this host
#
# look() does not read the disk: mincore(2) shows which pages are cached, madvise(2) maps only these, and this
# process's numa_maps shows their NUMA nodes. Linux answers mincore(2) only for a file that the caller owns or may
# write, and shows all pages of other files as cached (mm/mincore.c, since 5.2; cachestat(2) is restricted in the
# same way, mm/filemap.c). The state of such files is unknown.


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
