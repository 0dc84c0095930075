# SPDX-License-Identifier: Apache-2.0
"""Kernel settings of this host. They explain why a host is slow, and never fail it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from firsttouch.host import kernel_files, topology
from firsttouch.records.schema import Record, software

#: The kernel's mode of transparent huge pages -> the value of the record.
_HUGE = {"never": 0.0, "madvise": 1.0, "always": 2.0}
_SECONDS = 0.5


def records(root: Path = Path("/")) -> Iterator[Record]:
    """Yield this host's settings. A setting that the kernel does not show is left out; busy_pus is 0 instead."""
    settings = {
        "huge_pages": _huge_pages(root),
        "numa_balancing": kernel_files.number(root / "proc/sys/kernel/numa_balancing"),
        "frequency_share": _frequency(root),
        "usable_share": _usable(root),
        "busy_pus": _busy(root),
    }
    for metric, value in settings.items():
        if value is not None:
            yield Record("topology", metric, "1", "neither", (value,), software=software())


def _huge_pages(root: Path) -> float | None:
    """Return 0 if transparent huge pages are never used, 1 if programs ask for them, 2 if always."""
    return _HUGE.get(kernel_files.bracketed_word(root / "sys/kernel/mm/transparent_hugepage/enabled"))


def _frequency(root: Path) -> float | None:
    """Return the lowest ratio of the allowed to the maximum frequency among all PUs."""
    shares = []
    for folder in (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq"):
        allowed, designed = (
            kernel_files.number(folder / "scaling_max_freq"),
            kernel_files.number(folder / "cpuinfo_max_freq"),
        )
        if allowed and designed:
            shares.append(allowed / designed)
    return min(shares, default=None)


def _usable(root: Path) -> float | None:
    """Return the fraction of the online PUs that this process may use."""
    if root != Path("/"):
        return None
    host = topology.read_host()
    return len(host.allowed_pus) / len(host.pus) if host.pus else None


def _busy(root: Path) -> float:
    """Return how many PUs were busy during half a second.

    It is 0 if the kernel does not show it, because an earlier record would otherwise remain the latest.
    """
    before = _spent(root)
    time.sleep(_SECONDS)
    after = _spent(root)
    if before is None or after is None or after[1] <= before[1]:
        return 0.0
    return round((after[0] - before[0]) / (after[1] - before[1]) * after[2], 2)


def _spent(root: Path) -> tuple[float, float, int] | None:
    """Return (busy ticks, all ticks, PUs) so far."""
    lines = [line.split() for line in kernel_files.text(root / "proc/stat").splitlines() if line.startswith("cpu")]
    if not lines:
        return None
    ticks = [float(t) for t in lines[0][1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks), len(lines) - 1
