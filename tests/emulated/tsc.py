# SPDX-License-Identifier: Apache-2.0
"""How fast this host's time stamp counter runs: QEMU's emulated processors count with it.

A guest that has to find it out by itself, while its host is busy with other things, gets it wrong now and then:
its clock was seen to run eight times too fast, and every time limit in there came eight times too soon.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import platform
import time
from collections.abc import Callable

#: rdtsc; shl rdx, 32; or rax, rdx; ret
_READ_COUNTER = bytes.fromhex("0f31 48c1e220 4809d0 c3")
_SECONDS = 0.05


@functools.cache
def kilohertz() -> int:
    """Return the counter's frequency, or 0 where it cannot be read: on other processors, or forbidden to us."""
    if platform.machine() != "x86_64":
        return 0
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:  # a hardened host
        return 0
    page.write(_READ_COUNTER)
    counter = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    first = _moment(counter)
    time.sleep(_SECONDS)
    last = _moment(counter)
    return round((last[1] - first[1]) * 1_000_000 / (last[0] - first[0]))


def _moment(counter: Callable[[], int]) -> tuple[int, int]:
    """Return nanoseconds and the counter at the same moment: of several readings the least interrupted one."""
    readings = []
    for _ in range(100):
        before = time.monotonic_ns()
        count = counter()
        after = time.monotonic_ns()
        readings.append((after - before, (before + after) // 2, count))
    _, nanoseconds, count = min(readings)
    return nanoseconds, count
