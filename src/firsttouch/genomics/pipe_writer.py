# SPDX-License-Identifier: Apache-2.0
"""Writes into a pipe, by write(2) or splice(2), until a stop is requested."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import time

#: Capacity of a pipe: a larger pipe needs fewer context switches. This is the kernel's default limit for users.
PIPE_BYTES = 1 << 20
#: Errors if the kernel or the file system cannot splice.
CANNOT_SPLICE = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}


def enlarge_pipe(fd: int) -> None:
    """Give a pipe the capacity PIPE_BYTES if the user's limits allow it."""
    with contextlib.suppress(OSError):  # beyond the user's limit of pages in pipes
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


class Stopped(Exception):
    """Writing was stopped on request."""


class StopRequest:
    """A request to stop that wakes every thread that waits for a pipe."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.is_set = False

    def set(self) -> None:
        """End every wait with Stopped."""
        self.is_set = True
        os.eventfd_write(self.fd, 1)

    def wait(self, timeout: float) -> bool:
        """Wait for the request, at most *timeout* seconds; return whether it is set."""
        waiting = select.poll()
        waiting.register(self.fd, select.POLLIN)
        waiting.poll(1000 * timeout)
        return self.is_set

    def wait_for(self, fd: int, event: int) -> None:
        """Wait until poll(2) reports *event* or an end for *fd*; raises Stopped if the request is set."""
        waiting = select.poll()
        waiting.register(fd, event)
        waiting.register(self.fd, select.POLLIN)
        waiting.poll()
        if self.is_set:
            raise Stopped

    def close(self) -> None:
        """Close the descriptor; no thread may wait any more."""
        os.close(self.fd)


def splice(source: int, target: int, offset: int | None, size: int, stop: StopRequest) -> int:
    """Move up to *size* bytes from a file at *offset*, or from a pipe (None), into the pipe *target*.

    Waits for both ends without changing their flags, which other processes share. Returns 0 at the end of the
    source; raises Stopped, or BrokenPipeError if the reader of the target has gone.
    """
    while True:
        stop.wait_for(source, select.POLLIN)
        stop.wait_for(target, select.POLLOUT)
        with contextlib.suppress(BlockingIOError):
            return os.splice(source, target, size, offset_src=offset, flags=os.SPLICE_F_NONBLOCK)


class PipeWriter:
    """Writes into the pipe *fd*, and closes it at the end. A wait ends with Stopped when *stop* is set.

    *reading_since* is when the reader began to read (monotonic clock). A program loads its index before it reads.
    Until the pipe has been full once, its capacity is one page, which makes the first read visible;
    *reading_since* stays None if all data fit into that page.
    """

    def __init__(self, fd: int, stop: StopRequest) -> None:
        self.reading_since: float | None = None
        self._fd, self._stop = fd, stop
        os.set_blocking(fd, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, select.PIPE_BUF)

    def __enter__(self) -> PipeWriter:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def write(self, data: bytes | memoryview) -> None:
        """Write all of *data*; raises BrokenPipeError if the reader is gone, or Stopped."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:
                self._stop.wait_for(self._fd, select.POLLOUT)
                if self.reading_since is None:
                    self.reading_since = time.monotonic()
                    enlarge_pipe(self._fd)
