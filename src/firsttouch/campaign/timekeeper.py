# SPDX-License-Identifier: Apache-2.0
"""Keeps the time of a check: starts the measuring process, reads its progress, and kills it in time.

It loads no numerical library, so that even where these cannot be loaded (as under a limit of memory or processes)
the check ends, without a proof.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from firsttouch.clock import SYSTEM_CLOCK, Clock
from firsttouch.errors import RunFailed
from firsttouch.execution import child_process
from firsttouch.execution.host_lock import no_process_left, start_ticks

#: Time (s) to wait for a killed process, and between two checks of the clock.
_PATIENCE, _LOOK = 0.2, 0.5
#: The most pieces of output that are read after the end of the time.
_MOST_LATE = 64


class CheckState(Struct, frozen=True):
    """The progress of a check: the *verdict* so far (see :meth:`HostVerdict.to_dict`; None: not known yet).

    *status* is the exit status of that verdict. *measured* has metric, value, unit and status of each measurement,
    *left* the titles of the remaining steps, *troubles* why steps failed.
    """

    verdict: dict[str, Any] | None
    status: int
    measured: list[dict[str, Any]]
    left: list[str]
    troubles: list[str]


class Checked(Struct, frozen=True):
    """The end of a check: its last *state* (None: not even the facts of the host), and how its process ended.

    *status* is the exit status of the process (negative: the signal), None if the time was over first.
    """

    state: CheckState | None
    status: int | None


def process_start(clock: Clock = SYSTEM_CLOCK) -> float:
    """Return when this process was started, on the clock of :meth:`Clock.monotonic`."""
    begun = start_ticks(os.getpid()) / os.sysconf("SC_CLK_TCK")
    return clock.monotonic() - max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - begun)


def follow(argv: Sequence[str], until: float, clock: Clock = SYSTEM_CLOCK) -> Checked:
    """Run the measuring process until a time (see :func:`process_start`), and return how far it got.

    It prints a state per line. At the end it is killed with all its children, without waiting long, because a
    process that hangs in the kernel does not end. Raises RunFailed if it cannot be started.
    """
    with no_process_left(signals=[signal.SIGKILL], patience=_PATIENCE):
        try:
            process = child_process.start(
                child_process.guarded_argv(argv), env={}, fds=(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
            )
        except OSError as error:
            raise RunFailed(f"{argv[0]} cannot be started: {error.strerror}") from error
        try:
            last = _last_line(process, until, clock)
            status = process.wait() if child_process.has_ended(process.pid, _PATIENCE, clock) else None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            child_process.has_ended(process.pid, _PATIENCE, clock)
    return Checked(CheckState(**json.loads(last)) if last else None, status)


def _last_line(process: subprocess.Popen[bytes], until: float, clock: Clock) -> bytes:
    """Return the last whole line that a process prints until a time, or until it ends."""
    if process.stdout is None:
        return b""
    last = text = b""
    late = 0
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        # Text that is in the pipe when the time is over was printed in time.
        while (seconds_left := until - clock.monotonic()) > 0 or late < _MOST_LATE:
            late += seconds_left <= 0
            if not selector.select(max(0.0, min(seconds_left, _LOOK))):
                if seconds_left <= 0:
                    break
                continue
            if not (piece := os.read(process.stdout.fileno(), 1 << 16)):
                break
            *lines, text = (text + piece).split(b"\n")
            last = lines[-1] if lines else last
    return last
