# SPDX-License-Identifier: Apache-2.0
"""A pipe's writing end: filled without copies where the kernel can, and given up at once when that is asked."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import time
from types import TracebackType

#: A larger pipe means fewer changes between who writes and who reads; the kernel's usual limit for users.
PIPE_BYTES = 1 << 20
#: Where the kernel (or the file system) cannot splice.
_CANNOT = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}


def enlarge(fd: int) -> None:
    """Make a pipe as large as its user may have it."""
    with contextlib.suppress(OSError):  # over the user's limit of pages in pipes
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


class Stopped(Exception):
    """Feeding was given up on request."""


class Halt:
    """A request to stop that wakes who waits for a pipe."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.asked = False

    def ask(self) -> None:
        """Make every wait end with Stopped."""
        self.asked = True
        os.eventfd_write(self.fd, 1)

    def close(self) -> None:
        """Free the descriptor, when nobody waits any more."""
        os.close(self.fd)


class Outlet:
    """The writing end *fd* of a pipe, owned: it is closed at the end. Waiting ends with Stopped on *halt*.

    *begun* is when its reader began to read (monotonic clock), None as long as a page was enough for it. A
    program loads its index first: until it reads, the pipe is the smallest there is, or nobody would see it.
    """

    def __init__(self, fd: int, halt: Halt) -> None:
        self.begun: float | None = None
        self._fd, self._halt, self._splices = fd, halt, True
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._poll.register(halt.fd, select.POLLIN)
        os.set_blocking(fd, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, select.PIPE_BUF)

    def __enter__(self) -> Outlet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def wait(self) -> None:
        """Wait until there is room; raises BrokenPipeError where nobody reads any more, or Stopped."""
        events = dict(self._poll.poll())
        if self._halt.asked:
            raise Stopped
        if events.get(self._fd, 0) & select.POLLERR:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def _wait_for_room(self) -> None:
        """Wait as the pipe is full."""
        self.wait()
        if self.begun is None:
            self.begun = time.monotonic()
            enlarge(self._fd)

    def _wait_for(self, fd: int) -> None:
        waiting = select.poll()
        waiting.register(fd, select.POLLIN)
        waiting.register(self._halt.fd, select.POLLIN)
        waiting.poll()

    def write(self, data: bytes) -> None:
        """Write all of *data*."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:
                self._wait_for_room()

    def splice(self, fd: int, offset: int | None, size: int) -> int | None:
        """Move up to *size* bytes from a file's *offset* (or from a pipe) without copying them.

        Returns how many they were, 0 at the end of the file, or None where that cannot be done.
        """
        while self._splices:
            if offset is None:
                # An empty pipe and a full one look the same below.
                self._wait_for(fd)
            if self._halt.asked:
                raise Stopped
            try:
                return os.splice(fd, self._fd, size, offset_src=offset, flags=os.SPLICE_F_NONBLOCK)
            except BlockingIOError:
                self._wait_for_room()
            except OSError as error:
                if error.errno not in _CANNOT:
                    raise
                self._splices = False
        return None
