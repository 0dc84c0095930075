# SPDX-License-Identifier: Apache-2.0
"""One measurement at a time on a host, and no process left behind by it."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from firsttouch.watch import family

_PR_SET_CHILD_SUBREAPER = 36


@contextlib.contextmanager
def measuring(say: Callable[[str], None]) -> Iterator[None]:
    """Hold this host for one measurement of this user; wait, and say so, while another one is under way."""
    # With the host's name: where all hosts share TMPDIR, each is measured by itself all the same.
    file = Path(tempfile.gettempdir()) / f"firsttouch-{os.getuid()}-{platform.node()}.lock"
    # No-follow: in a folder that others may write to, the name could be somebody's link.
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        waiting = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waiting:
                    holder = os.pread(handle, 20, 0).decode(errors="replace").strip() or "?"
                    say(f"another measurement (process {holder}) is under way on this host: waiting for its end")
                waiting = True
                time.sleep(0.2)
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def no_process_left() -> Iterator[None]:
    """Adopt every process that is started meanwhile, even by others of them, and end those that are left."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before = set(family(os.getpid()))
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            _end(before, number)
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _end(before: set[int], number: int, patience: float = 3.0) -> None:
    """Send a signal to all our descendants that are not of *before* and wait a while for their end."""
    for pid in set(family(os.getpid())) - before:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    deadline = time.monotonic() + patience
    while set(family(os.getpid())) - before and time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
        time.sleep(0.02)
