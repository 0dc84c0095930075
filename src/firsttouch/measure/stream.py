# SPDX-License-Identifier: Apache-2.0
"""STREAM (J. McCalpin), the real one, where a program ``stream`` is on PATH (thesis section 3.4)."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping

from firsttouch.errors import RunFailed

KERNELS = ("copy", "scale", "add", "triad")
_RATE = re.compile(r"^(Copy|Scale|Add|Triad):\s+([\d.]+)\s", re.MULTILINE)
_SIZE = re.compile(r"^Array size = (\d+) \(elements\)", re.MULTILINE)
_THREADS = re.compile(r"^Number of Threads counted = (\d+)", re.MULTILINE)


def installed() -> bool:
    """Tell whether a program ``stream`` is on PATH."""
    return shutil.which("stream") is not None


def environment(threads: int, pus: tuple[int, ...]) -> Mapping[str, str]:
    """Return OpenMP's variables for *threads* threads, one on each of *pus*."""
    places = ",".join(f"{{{pu}}}" for pu in sorted(pus)[:threads])
    return {"OMP_NUM_THREADS": str(threads), "OMP_PLACES": places, "OMP_PROC_BIND": "true"}


def parse(text: str, *, threads: int) -> tuple[dict[str, float], int]:
    """Return the four best rates in GB/s by kernel, and the bytes of one array; raises RunFailed."""
    rates = {m[1].lower(): float(m[2]) / 1000 for m in _RATE.finditer(text)}
    size, counted = _SIZE.search(text), _THREADS.search(text)
    if set(rates) != set(KERNELS) or size is None:
        raise RunFailed(f"stream printed no rates: {' | '.join(text.splitlines()[-2:]) or 'nothing'}")
    if "Solution Validates" not in text:
        raise RunFailed("stream's own check of its results failed")
    if counted is not None and int(counted[1]) != threads:
        raise RunFailed(f"stream used {counted[1]} threads, not {threads}")
    if counted is None and threads > 1:
        raise RunFailed("this stream has no OpenMP (it counts no threads): build it with -fopenmp")
    if any(not 0.001 < r < 100_000 for r in rates.values()):
        raise RunFailed(f"stream printed rates of {rates} GB/s")
    return rates, 8 * int(size[1])
