# SPDX-License-Identifier: Apache-2.0
"""Writes into a pipe: with splice(2) if the kernel can, and until a stop is requested."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import time

#: Capacity of a pipe: a larger pipe needs fewer context switches. This is the kernel's default limit for users.
PIPE_BYTES = 1 << 20
#: The kernel or the file system cannot splice.
_CANNOT_SPLICE = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}


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


class PipeWriter:
    """Writes into the pipe *fd*, and closes it at the end. A wait ends with Stopped when *stop* is set.

    *reading_since* is when the reader began to read (monotonic clock). A program loads its index before it reads:
    until the pipe has been full once, its capacity is one page, which makes the first read visible. It stays None
    if all data fit into that page.
    """

    def __init__(self, fd: int, stop: StopRequest) -> None:
        self.reading_since: float | None = None
        self._fd, self._stop, self._can_splice = fd, stop, True
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._poll.register(stop.fd, select.POLLIN)
        os.set_blocking(fd, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, select.PIPE_BUF)

    def __enter__(self) -> PipeWriter:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def wait(self) -> None:
        """Wait until the pipe has room; raises BrokenPipeError if its reader is gone, or Stopped."""
        events = dict(self._poll.poll())
        if self._stop.is_set:
            raise Stopped
        if events.get(self._fd, 0) & select.POLLERR:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def _wait_when_full(self) -> None:
        self.wait()
        if self.reading_since is None:
            self.reading_since = time.monotonic()
            enlarge_pipe(self._fd)

    def write(self, data: bytes | memoryview) -> None:
        """Write all of *data*."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:
                self._wait_when_full()

    def splice(self, fd: int, offset: int | None, size: int) -> int | None:
        """Move up to *size* bytes from a file at *offset*, or from a pipe (None), without copying them.

        Returns their number, 0 at the end of the file, or None if splice(2) cannot do it.
        """
        while self._can_splice:
            if offset is None:
                # splice reports an empty source and a full pipe with the same error: wait for the source first.
                self._stop.wait_for(fd, select.POLLIN)
            if self._stop.is_set:
                raise Stopped
            try:
                return os.splice(fd, self._fd, size, offset_src=offset, flags=os.SPLICE_F_NONBLOCK)
            except BlockingIOError:
                self._wait_when_full()
            except OSError as error:
                if error.errno not in _CANNOT_SPLICE:
                    raise
                self._can_splice = False
        return None
