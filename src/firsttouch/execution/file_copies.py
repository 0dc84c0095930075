# SPDX-License-Identifier: Apache-2.0
"""Copy files by several threads, and tell whether a file is still what it was."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from firsttouch.errors import BadInput

#: Files are copied in blocks of this size (bytes), and dealt to the threads in chunks.
_BLOCK, _CHUNK = 1 << 20, 64 << 20
_MOST_THREADS = 8
#: The kernel may date two changes within one timer tick alike (seconds).
_TICK = 0.02


class Identity(NamedTuple):
    """What tells one content of a file from another.

    No program can set the time of its last change (*ctime_ns*) back. The *device* of a file server differs between
    hosts.
    """

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


def identity_of(status: os.stat_result) -> Identity:
    """Return the identity of a file of that *status*."""
    return Identity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def content_of(file: Path) -> tuple[int, ...]:
    """Return the identity of a *file* for all hosts: without its device."""
    return identity_of(file.stat())[1:]


class Source(NamedTuple):
    """A file that is copied: its path, its name in the store, and its size."""

    file: Path
    name: Path
    bytes: int


def sources_of(files: Iterable[Path]) -> list[Source]:
    """Return what the copies of *files* consist of; a folder stands for all files below it.

    Raises BadInput for a file that is missing, unreadable or not a regular one, and for two of one name.
    """
    sources: list[Source] = []
    names: dict[str, Path] = {}
    for file in files:
        name = name_of(file)
        if name in names:
            reason = f"{names[name]} has the same name: stage one of them by a link of another name"
            raise BadInput(reason, file=file)
        names[name] = file
        try:
            sources += [_source(each, Path(name, each.relative_to(file))) for each in _files_of(file)]
        except OSError as error:
            raise BadInput(f"cannot be copied: {error.strerror}", file=error.filename or file) from error
    return sources


def name_of(file: Path) -> str:
    """Return the name of the copy of *file*."""
    return file.name if file.name not in {"", ".."} else file.resolve().name


def _files_of(file: Path) -> list[Path]:
    if not file.is_dir():
        return [file]

    def failed(error: OSError) -> None:
        raise error

    walk = os.walk(file, onerror=failed)
    return [Path(folder, name) for folder, _, names in walk for name in sorted(names)]


def _source(file: Path, name: Path) -> Source:
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise BadInput("not a regular file: only files and folders can be copied", file=file)
    with file.open("rb", buffering=0) as stream:  # it can be read
        if not status.st_size and stream.read(1) and not os.fstat(stream.fileno()).st_size:
            raise BadInput(
                "its size is not known before it is read: copy it into a file of a disk first", file=file
            )
    return Source(file, name, status.st_size)


class _Copy(Struct):
    """A copy that is being made."""

    source: Source
    reading: int
    writing: int
    identity: Identity


def copy_all(
    sources: Sequence[Source],
    folder: Path,
    *,
    threads: int | None = None,
    on_progress: Callable[[int], None] = lambda _: None,
) -> list[Identity]:
    """Copy *sources* into *folder* by so many *threads*, and return the identity of what was copied of each.

    *on_progress* gets the number of bytes copied. Copies have the times of their sources, and can only be read.
    Raises BadInput if a source is not what it was before, and OSError.
    """
    threads = threads or min(_MOST_THREADS, len(os.sched_getaffinity(0)))
    done, identities = 0, []
    with ThreadPoolExecutor(threads, thread_name_prefix="copy") as pool:
        for source in sources:
            with _opened(source, folder) as copy, contextlib.closing(_copy_file(copy, pool)) as sizes:
                for size in sizes:
                    done += size
                    on_progress(done)
            identities.append(copy.identity)
    return identities


def _copy_file(copy: _Copy, pool: ThreadPoolExecutor) -> Generator[int, None, None]:
    """Copy a file by the threads of *pool*, and yield the sizes of the chunks that are done."""
    end, stop = copy.source.bytes, threading.Event()
    # What was not cached before is not cached afterwards: a second copy would fill the NUMA nodes.
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
def _opened(source: Source, folder: Path) -> Iterator[_Copy]:
    """Open source and copy; at the end the source must be unchanged."""
    target = folder / source.name
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with contextlib.ExitStack() as stack:
        try:
            reading = os.open(source.file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise _unreadable(source, error) from error
        stack.callback(os.close, reading)
        # Programs that map the file and write to it change its times only at the first write to a clean page.
        with contextlib.suppress(OSError):
            os.fdatasync(reading)
        before = _settled(reading)
        if before.st_size != source.bytes:
            raise _changed(source)
        writing = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
        stack.callback(os.close, writing)
        os.ftruncate(writing, source.bytes)
        yield _Copy(source, reading, writing, identity_of(before))
        try:
            now = source.file.stat()
        except OSError as error:
            raise _changed(source) from error
        if {identity_of(os.fstat(reading)), identity_of(now)} != {identity_of(before)}:
            raise _changed(source)
        os.utime(writing, ns=(before.st_atime_ns, before.st_mtime_ns))


def _settled(handle: int) -> os.stat_result:
    """Return the status of an open file, once a change after it would have another time."""
    while True:
        status = os.fstat(handle)
        age = time.time() - max(status.st_mtime, status.st_ctime)
        if not 0 <= age < _TICK:
            return status
        time.sleep(_TICK - age)


def _changed(source: Source) -> BadInput:
    return BadInput("it changed while it was copied: repeat when nothing writes to it", file=source.file)


def _unreadable(source: Source, error: OSError) -> BadInput:
    return BadInput(f"cannot be copied: {error.strerror}", file=source.file)


def _is_cached(handle: int, offset: int) -> bool:
    """Return whether the page at *offset* is in the page cache; False if the file system does not say."""
    try:
        return os.preadv(handle, [bytearray(1)], offset, os.RWF_NOWAIT) == 1
    except OSError:
        return False


def _copy_chunk(copy: _Copy, begin: int, keep: bool, stop: threading.Event) -> int:
    """Copy the chunk that begins at *begin* and return its size; it stays in the page cache if *keep*."""
    block = memoryview(bytearray(_BLOCK))
    offset, end = begin, min(begin + _CHUNK, copy.source.bytes)
    while offset < end and not stop.is_set():
        try:
            size = os.preadv(copy.reading, [block[: end - offset]], offset)
        except OSError as error:
            raise _unreadable(copy.source, error) from error
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
