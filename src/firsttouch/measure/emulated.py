# SPDX-License-Identifier: Apache-2.0
"""Measuring on an emulated host: placements are what counts there, and nobody learns anything from the times."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from firsttouch import machine, watch
from firsttouch.supervise import Watching

#: Seconds that a program runs between two looks: a benchmark is at work for half a second at least.
BETWEEN = 0.2
#: After so many seconds of looking, whoever waits for the program sees whether its time is up.
AT_ONCE = 20.0
#: Aspect -> the native probe's option for small arrays. Emulated caches hold nothing that there is to get past,
#: and memory of the usual size takes minutes to be touched; as many sizes of a curve as a check wants to see.
_SMALL = {
    "latency": f"--sizes={','.join(f'{4 << doubled}KiB' for doubled in range(12))}",
    "bandwidth": "--array-bytes=4MiB",
    "contention": "--array-bytes=4MiB",
}


def probe_options(aspect: str) -> list[str]:
    """Return the options by which the probe is to differ here: none on a real host."""
    return [_SMALL[aspect]] if machine.emulator() else []


def watching() -> Watching:
    """Return how a benchmark of many threads is watched here: at leisure, and stopped while it is looked at.

    One thread of the emulator runs all PUs in turn: with 64 of them at work, a program has ended before the
    one who looks has had the time to read what 64 threads are doing. On a real host it is watched as usual.
    """
    return Watching(100.0, _look_at_stopped) if machine.emulator() else Watching()


def _look_at_stopped(pid: int, found: watch.Found) -> None:
    # Programs are started as the first of a process group of their own; without one, it has ended.
    end = time.monotonic() + AT_ONCE
    with contextlib.suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < end:
            os.killpg(pid, signal.SIGSTOP)
            try:
                seen = watch.Found()
                watch.look(pid, seen)
                # Fewer threads than before: it is ending. (Stopped, it shows the same at a second look.)
                if seen.threads >= found.threads:
                    watch.look(pid, found)
            finally:
                os.killpg(pid, signal.SIGCONT)
            time.sleep(BETWEEN)
