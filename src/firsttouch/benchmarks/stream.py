# SPDX-License-Identifier: Apache-2.0
"""STREAM (J. McCalpin) by the author's program (thesis section 3.4)."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from firsttouch.errors import RunFailed

#: Kernel -> the arrays that it moves.
ARRAYS = {"copy": 2, "scale": 2, "add": 3, "triad": 3}
KERNELS = tuple(ARRAYS)
#: Kernel, best rate (MB/s), average, least and greatest time (s).
_RATE = re.compile(
    r"^(Copy|Scale|Add|Triad):\s+(\d+\.\d)\s+\d+\.\d{6}\s+(\d+\.\d{6})\s+\d+\.\d{6}\s*$", re.MULTILINE
)
_SIZE = re.compile(r"^Array size = (\d+) \(elements\)", re.MULTILINE)
_ELEMENT = re.compile(r"^This system uses (\d+) bytes per array element", re.MULTILINE)
_END = re.compile(r"^Solution Validates: .*\n-{20,}\s*\Z", re.MULTILINE)
_THREADS = re.compile(r"^Number of Threads counted = (\d+)", re.MULTILINE)


def program() -> str | None:
    """Return the program ``stream`` on PATH, else the one that `make setup` built next to Python, or None."""
    return shutil.which("stream") or shutil.which("stream", path=Path(sys.executable).parent)


def environment(threads: int, pus: tuple[int, ...]) -> Mapping[str, str]:
    """Return OpenMP's variables for *threads* threads, one on each of *pus*."""
    places = ",".join(f"{{{pu}}}" for pu in sorted(pus)[:threads])
    return {"OMP_NUM_THREADS": str(threads), "OMP_PLACES": places, "OMP_PROC_BIND": "true"}


def parse(text: str, *, threads: int) -> tuple[dict[str, float], int]:
    """Return the four best rates in GB/s by kernel, and the bytes of one array; raises RunFailed."""
    lines = list(_RATE.finditer(text))
    rates = {m[1].lower(): float(m[2]) / 1000 for m in lines}
    size, element, counted = _SIZE.search(text), _ELEMENT.search(text), _THREADS.search(text)
    if set(rates) != set(KERNELS) or len(lines) != len(KERNELS) or size is None or element is None:
        raise RunFailed(f"stream printed no rates: {' | '.join(text.splitlines()[-2:]) or 'nothing'}")
    if not _END.search(text):
        raise RunFailed("stream's own check of its results failed")
    if counted is not None and int(counted[1]) != threads:
        raise RunFailed(f"stream used {counted[1]} threads, not {threads}")
    if counted is None and threads > 1:
        raise RunFailed("this stream has no OpenMP (it counts no threads): build it with -fopenmp")
    if any(not 0.001 < r < 100_000 for r in rates.values()):
        raise RunFailed(f"stream printed rates of {rates} GB/s")
    array = int(element[1]) * int(size[1])
    for line in lines:
        # The rate must agree with bytes and time. Times are printed in whole microseconds.
        seconds, expected = float(line[3]), ARRAYS[line[1].lower()] * array / 1e6 / float(line[2])
        if abs(seconds - expected) > 0.01 * expected + 1e-6:
            raise RunFailed(
                f"stream printed {line[2]} MB/s for {line[1]}, but its bytes and time give another rate"
            )
    return rates, array
