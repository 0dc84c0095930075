# SPDX-License-Identifier: Apache-2.0
"""The frequency of this host's time stamp counter, which QEMU's emulated processors use.

A guest that calibrates the counter itself on a busy host may get it wrong: its clock can run eight times too fast,
and then every time limit in the guest comes eight times too early.
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
    """Return the counter's frequency in kHz, or 0 on other processors and if it cannot be read."""
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
    """Return nanoseconds and the counter at the same moment, from the shortest of several readings."""
    readings = []
    for _ in range(100):
        before = time.monotonic_ns()
        count = counter()
        after = time.monotonic_ns()
        readings.append((after - before, (before + after) // 2, count))
    _, nanoseconds, count = min(readings)
    return nanoseconds, count
