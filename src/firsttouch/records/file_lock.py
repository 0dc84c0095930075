# SPDX-License-Identifier: Apache-2.0
"""Locks between processes: flock(2) on a file or a folder.

The kernel releases a lock when its holder ends, however it ends. On shared file systems flock works between hosts
if the file system is mounted with locks.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def try_lock(handle: int, *, shared: bool = False) -> bool:
    """Lock an open file without waiting; return False if another process holds it.

    Raises OSError if the file system has no locks.
    """
    try:
        _flock(handle, fcntl.LOCK_NB, shared=shared)
    except BlockingIOError:
        return False
    return True


def lock(handle: int, *, shared: bool = False) -> None:
    """Lock an open file; wait while another process holds its lock. Raises OSError if it cannot be locked."""
    _flock(handle, 0, shared=shared)


def _flock(handle: int, flags: int, *, shared: bool) -> None:
    try:
        fcntl.flock(handle, flags | (fcntl.LOCK_SH if shared else fcntl.LOCK_EX))
    except BlockingIOError:
        raise
    except OSError as error:  # the kernel's names no file
        file = Path(f"/proc/self/fd/{handle}").readlink()
        raise OSError(error.errno, f"cannot be locked: {error.strerror}", str(file)) from error


@contextmanager
def lock_file(file: Path, *, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the exclusive lock of *file*, which is created if need be; call *on_wait* once before waiting.

    *file* may be read-only, or a folder. Raises OSError if it cannot be opened or locked.
    """
    read_only = file.is_dir() or (file.exists() and not os.access(file, os.W_OK))
    # NFS grants an exclusive lock only on a file that is open for writing.
    flags = os.O_RDONLY if read_only else os.O_RDWR | os.O_CREAT
    handle = os.open(file, flags | os.O_CLOEXEC, 0o666)
    try:
        if not try_lock(handle):
            on_wait()
            lock(handle)
        yield
    finally:
        os.close(handle)


def lock_folder(folder: Path, *, shared: bool = False) -> int | None:
    """Return a descriptor that holds the lock of *folder* until it is closed.

    None if another process holds the lock, if the file system has no locks, or if *folder* is not a folder.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if try_lock(handle, shared=shared):
            return handle
    except OSError:
        pass
    os.close(handle)
    return None
