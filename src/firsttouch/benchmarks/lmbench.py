# SPDX-License-Identifier: Apache-2.0
"""lmbench's lat_mem_rd: memory read latency over array sizes from 512 B (thesis section 3.3, figure 3.1)."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from firsttouch.errors import Missing, RunFailed
from firsttouch.units import UNITS

MIB = int(UNITS["MiB"][1])
#: The exact format, so that a truncated number is an error.
_POINT = re.compile(r"(\d+\.\d{5}) (\d+\.\d{3})")
#: Bytes from one access to the next, as in the thesis; with -t the order of the accesses is random.
STRIDE_BYTES = 256


def program() -> str:
    """Return the path of lat_mem_rd: on PATH, or in the folder of Debian's lmbench; raises Missing."""
    in_package = map(str, sorted(Path("/usr/lib/lmbench/bin").glob("*/lat_mem_rd")))
    if path := shutil.which("lat_mem_rd") or next(in_package, None):
        return path
    raise Missing("lat_mem_rd is not there: `make setup` installs lmbench (Debian: non-free)")


def environment(point_microseconds: int) -> Mapping[str, str]:
    """Return lmbench's variables; ENOUGH is the time of each point of the curve (microseconds).

    Without them lmbench calibrates this time and the cost of its clock and loop, and on a busy host takes a second
    per point. In a few milliseconds, clock and loop cost less than a thousandth.
    """
    return {"ENOUGH": str(point_microseconds), "TIMING_O": "0", "LOOP_O": "0"}


def argv(*, largest_bytes: int, random: bool) -> list[str]:
    """Return the argv of one curve up to *largest_bytes* (rounded up to MiB), in random or sequential order."""
    order = ["-t"] if random else []
    # One repetition per run: the record's repetitions are separate runs, because only these show the real spread.
    return [program(), "-W", "0", "-N", "1", *order, str(-(-largest_bytes // MIB)), str(STRIDE_BYTES)]


def largest_bytes(last_cache_bytes: int, bank_bytes: int) -> int:
    """Return the last array size: a power of two well past the last cache, at most a quarter of the bank."""
    wanted = max(64 * MIB, 3 * last_cache_bytes)
    rounded = 1 << (wanted - 1).bit_length()
    while rounded > max(bank_bytes // 4, MIB):
        rounded //= 2
    return rounded


def parse(text: str, *, largest_bytes: int) -> dict[int, float]:
    """Return latency in ns by array size in bytes; raises RunFailed unless the curve is complete and plausible."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines or not re.fullmatch(r'"stride=\d+', lines[0]):
        raise RunFailed(f"lat_mem_rd printed no curve: {' | '.join(lines[:2]) or 'nothing'}")
    curve: dict[int, float] = {}
    for line in lines[1:]:
        point = _POINT.fullmatch(line)
        if point is None:
            raise RunFailed(f"lat_mem_rd printed '{line}', not a size and a latency")
        # Sizes are printed in MiB with five decimals; all are multiples of 512 B.
        curve[round(float(point[1]) * MIB / 512) * 512] = float(point[2])
    steady = len(curve) == len(lines) - 1 and all(a < b for a, b in pairwise(curve))
    if list(curve)[:1] != [512] or list(curve)[-1] != largest_bytes or not steady:
        reason = f"it ends at {list(curve)[-1:]} of {largest_bytes} bytes"
        raise RunFailed(f"lat_mem_rd's curve is incomplete: {reason}")
    if bad := [v for v in curve.values() if not 0.05 < v < 100_000]:
        raise RunFailed(f"lat_mem_rd printed a latency of {bad[0]} ns")
    return curve
