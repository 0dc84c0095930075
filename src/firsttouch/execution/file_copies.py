# SPDX-License-Identifier: Apache-2.0
"""Copies files by several threads, and detects whether a file has changed."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from firsttouch.errors import BadInput

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

#: Files are copied in blocks of this size (bytes); each thread copies one chunk at a time.
_BLOCK, _CHUNK = 1 << 20, 64 << 20
_MOST_THREADS = 8
#: Two changes within this time (s), a timer tick of the kernel, may have the same time stamp.
_TICK = 0.02


def identity_of(status: os.stat_result) -> tuple[int, ...]:
    """Return a key of a file's content. It includes the change time, which no program can set back."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class Source(NamedTuple):
    """A file that is copied, and its size."""

    file: Path
    bytes: int


def sources_of(files: Iterable[Path]) -> list[Source]:
    """Return *files* with their sizes; raises BadInput for one that is not a readable regular file."""
    return [_source(file) for file in files]


def _source(file: Path) -> Source:
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise BadInput("not a regular file: only files can be copied", file=file)
        file.open("rb").close()
    except OSError as error:
        raise _unreadable(file, error) from error
    return Source(file, status.st_size)


class _PendingCopy(Struct):
    """A copy that is being made."""

    source: Source
    reading: int
    writing: int


def copy_all(sources: Sequence[Source], folder: Path, *, on_progress: Callable[[int], None]) -> None:
    """Copy *sources* into *folder*; *on_progress* gets the number of bytes copied.

    Copies keep the times of their sources, and are read-only. Raises BadInput if a source has changed, and
    OSError.
    """
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - it loads logging

    done = 0
    threads = min(_MOST_THREADS, len(os.sched_getaffinity(0)))
    with ThreadPoolExecutor(threads, thread_name_prefix="copy") as pool:
        for source in sources:
            with _opened(source, folder) as copy, contextlib.closing(_copy_file(copy, pool)) as sizes:
                for size in sizes:
                    done += size
                    on_progress(done)


def _copy_file(copy: _PendingCopy, pool: ThreadPoolExecutor) -> Generator[int, None, None]:
    """Copy a file by the threads of *pool*, and yield the sizes of the chunks that are done."""
    from concurrent.futures import wait  # noqa: PLC0415

    end, stop = copy.source.bytes, threading.Event()
    # Pages that were not cached before are dropped afterwards, because a second copy would fill the NUMA nodes.
    cached = [_is_cached(copy.reading, min(begin + _CHUNK // 2, end - 1)) for begin in range(0, end, _CHUNK)]
    chunks = zip(range(0, end, _CHUNK), cached, strict=True)
    parts = [pool.submit(_copy_chunk, copy, begin, keep, stop) for begin, keep in chunks]
    try:
        for part in parts:
            yield part.result()
    finally:
        stop.set()
        # The descriptors stay open until no thread uses them.
        wait([part for part in parts if not part.cancel()])


@contextlib.contextmanager
def _opened(source: Source, folder: Path) -> Iterator[_PendingCopy]:
    """Open source and copy; at the end the source must be unchanged."""
    with contextlib.ExitStack() as stack:
        try:
            reading = os.open(source.file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise _unreadable(source.file, error) from error
        stack.callback(os.close, reading)
        # A program that maps the file and writes to it changes its times only at the first write to a clean page.
        with contextlib.suppress(OSError):
            os.fdatasync(reading)
        before = _settled(reading)
        if before.st_size != source.bytes:
            raise _changed(source)
        writing = os.open(folder / source.file.name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
        stack.callback(os.close, writing)
        os.ftruncate(writing, source.bytes)
        yield _PendingCopy(source, reading, writing)
        try:
            now = source.file.stat()
        except OSError as error:
            raise _changed(source) from error
        if {identity_of(os.fstat(reading)), identity_of(now)} != {identity_of(before)}:
            raise _changed(source)
        os.utime(writing, ns=(before.st_atime_ns, before.st_mtime_ns))


def _settled(handle: int) -> os.stat_result:
    """Return the status of an open file, when any later change would have another time stamp."""
    while True:
        status = os.fstat(handle)
        age = time.time() - max(status.st_mtime, status.st_ctime)
        if not 0 <= age < _TICK:
            return status
        time.sleep(_TICK - age)


def _changed(source: Source) -> BadInput:
    return BadInput("it changed while it was copied: repeat when no program writes to it", file=source.file)


def _unreadable(file: Path, error: OSError) -> BadInput:
    return BadInput(f"cannot be copied: {error.strerror}", file=file)


def _is_cached(handle: int, offset: int) -> bool:
    """Return whether the page at *offset* is in the page cache; False if the file system does not say."""
    try:
        return os.preadv(handle, [bytearray(1)], offset, os.RWF_NOWAIT) == 1
    except OSError:
        return False


def _copy_chunk(copy: _PendingCopy, begin: int, keep: bool, stop: threading.Event) -> int:
    """Copy the chunk that begins at *begin* and return its size; it stays in the page cache if *keep*."""
    block = memoryview(bytearray(_BLOCK))
    offset, end = begin, min(begin + _CHUNK, copy.source.bytes)
    while offset < end and not stop.is_set():
        try:
            size = os.preadv(copy.reading, [block[: end - offset]], offset)
        except OSError as error:
            raise _unreadable(copy.source.file, error) from error
        if not size:
            raise _changed(copy.source)
        rest = block[:size]
        while rest:
            written = os.pwrite(copy.writing, rest, offset)
            rest, offset = rest[written:], offset + written
    if not keep:
        with contextlib.suppress(OSError):
            os.posix_fadvise(copy.reading, begin, end - begin, os.POSIX_FADV_DONTNEED)
    return offset - begin
