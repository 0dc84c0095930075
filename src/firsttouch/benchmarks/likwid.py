# SPDX-License-Identifier: Apache-2.0
"""likwid-bench: copy and triad in the widest vector instructions that processor and program have.

Of STREAM's kernels, likwid has these two. Bytes are counted as STREAM counts them: without write-allocate.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path

from firsttouch.errors import RunFailed
from firsttouch.host.kernel_files import processor_values
from firsttouch.tools import require, run_tool

#: STREAM's name of a kernel -> likwid's name, and the arrays that it moves.
KERNELS = {"copy": ("copy", 2), "triad": ("stream", 3)}
#: Passes over the arrays in one run: twice the number of STREAM's. If likwid-bench chooses it itself (-s), a
#: run takes twice as long for the same rate.
PASSES = 20
#: likwid's suffix -> the processor flag of /proc/cpuinfo that it needs, widest first.
INSTRUCTIONS = {"avx512": "avx512f", "avx": "avx", "sse": "sse2"}
_FIELD = re.compile(
    r"^(Time|MByte/s|Data volume \(Byte\)):\s+(\d+(?:\.\d+)?(?:e[+-]\d+)?)(?: sec)?$", re.MULTILINE
)


def processor_flags(root: Path = Path("/")) -> frozenset[str]:
    """Return the flags of the first processor (empty if /proc/cpuinfo has none, as on Arm)."""
    return frozenset(next(processor_values("flags", root), "").split())


def available() -> frozenset[str]:
    """Return the names of the kernels of the installed likwid-bench; raises Missing or RunFailed."""
    require("likwid-bench")
    done = run_tool(["likwid-bench", "-a"])
    names = re.findall(r"^(\w+) - ", done.stdout, re.MULTILINE)
    if done.returncode or not names:
        raise RunFailed(f"likwid-bench -a lists no kernel: {done.stderr.strip()[:200]}")
    return frozenset(names)


@functools.cache
def version() -> str:
    """Return likwid-bench's version, or an empty string if it prints none."""
    done = run_tool(["likwid-bench", "-v"])
    match = re.search(r"Version ([\w.]+)", done.stdout + done.stderr)
    return match[1] if match else ""


def widest(flags: Iterable[str], kernels: Iterable[str]) -> str:
    """Return likwid's suffix of the widest vector instructions that *flags* and *kernels* share, or ''."""
    flags, kernels = set(flags), set(kernels)
    for suffix, flag in INSTRUCTIONS.items():
        if flag in flags and {f"copy_{suffix}", f"stream_{suffix}"} <= kernels:
            return suffix
    return ""


def argv(kernel: str, *, instructions: str, threads: int, array_bytes: int) -> list[str]:
    """Return the argv of one run with *threads* threads on the PUs that the process is bound to.

    The domain N has exactly these PUs. (The domains M0, M1, ... have been observed to number them wrongly.)
    """
    name, arrays = KERNELS[kernel]
    name += f"_{instructions}" if instructions else ""
    kilobytes = arrays * array_bytes // 1000
    return ["likwid-bench", "-t", name, "-i", str(PASSES), "-W", f"N:{kilobytes}kB:{threads}"]


def parse(text: str, *, threads: int) -> float:
    """Return the rate in GB/s; raises RunFailed unless the output belongs to a complete run."""
    if f"Using {threads} threads" not in text:
        raise RunFailed(f"likwid-bench did not use {threads} threads: {_said(text)}")
    if not re.search(r"\n-{80}\s*\Z", text):
        raise RunFailed(f"likwid-bench stopped in the middle of its output: {_said(text)}")
    by_name = {m[1]: float(m[2]) for m in _FIELD.finditer(text)}
    try:
        seconds, rate = by_name["Time"], by_name["MByte/s"] / 1000
        counted = by_name["Data volume (Byte)"] / seconds / 1e9
    except (KeyError, ZeroDivisionError):
        raise RunFailed(f"likwid-bench printed no rate: {_said(text)}") from None
    # The rate must agree with bytes and time: truncated or garbled output is an error.
    if not 0.001 < rate < 100_000 or abs(counted - rate) > 0.01 * rate:
        raise RunFailed(f"likwid-bench printed {rate} GB/s, but its bytes and time give {counted:.3f}")
    return rate


def _said(text: str) -> str:
    return " | ".join(line.strip() for line in text.splitlines()[-2:]) or "nothing"
