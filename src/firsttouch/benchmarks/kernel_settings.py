# SPDX-License-Identifier: Apache-2.0
"""Settings of this host that explain its speed: they condemn nobody, but name the cause of what is slow."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from firsttouch.host import topology
from firsttouch.records.schema import Record, software

#: How many pages of memory are huge where programs do not ask: by the kernel's word for it.
_HUGE = {"never": 0.0, "madvise": 1.0, "always": 2.0}
_SECONDS = 0.5
#: A host is busy with something else where that takes as many PUs.
BUSY = 0.5
METRICS = frozenset({"huge_pages", "numa_balancing", "frequency_share", "usable_share", "busy_pus"})


def records(root: Path = Path("/")) -> Iterator[Record]:
    """Yield this host's settings; what the kernel does not tell is left out, but for busy_pus, which is 0 then."""
    settings = {
        "huge_pages": _huge_pages(root),
        "numa_balancing": _number(root / "proc/sys/kernel/numa_balancing"),
        "frequency_share": _frequency(root),
        "usable_share": _usable(root),
        "busy_pus": _busy(root),
    }
    for metric, value in settings.items():
        if value is not None:
            yield Record("topology", metric, "1", "neither", (value,), software=software())


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _number(file: Path) -> float | None:
    text = _text(file)
    return float(text) if text.isdecimal() else None


def _huge_pages(root: Path) -> float | None:
    """Return 0 where huge pages are never used, 1 where programs ask for them, 2 always."""
    text = _text(root / "sys/kernel/mm/transparent_hugepage/enabled")
    return next((value for word, value in _HUGE.items() if f"[{word}]" in text), None)


def _frequency(root: Path) -> float | None:
    """Return the lowest share that a PU may run at of the frequency that it is made for."""
    shares = []
    for folder in (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq"):
        allowed, designed = _number(folder / "scaling_max_freq"), _number(folder / "cpuinfo_max_freq")
        if allowed and designed:
            shares.append(allowed / designed)
    return min(shares, default=None)


def _usable(root: Path) -> float | None:
    """Return which share of the PUs that are online this process may use."""
    if root != Path("/"):
        return None
    host = topology.of_this_host()
    return len(host.allowed_pus) / len(host.pus) if host.pus else None


def _busy(root: Path) -> float:
    """Return how many PUs others keep busy, looked at for half a second.

    Where the kernel does not tell, that is 0: a look that is left out would keep an earlier one in force.
    """
    before = _spent(root)
    time.sleep(_SECONDS)
    after = _spent(root)
    if before is None or after is None or after[1] <= before[1]:
        return 0.0
    return round((after[0] - before[0]) / (after[1] - before[1]) * after[2], 2)


def _spent(root: Path) -> tuple[float, float, int] | None:
    """Return (busy ticks, all ticks, PUs) so far."""
    lines = [line.split() for line in _text(root / "proc/stat").splitlines() if line.startswith("cpu")]
    if not lines:
        return None
    ticks = [float(t) for t in lines[0][1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks), len(lines) - 1
