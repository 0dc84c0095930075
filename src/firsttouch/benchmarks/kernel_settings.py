# SPDX-License-Identifier: Apache-2.0
"""Kernel settings of this host. They explain why a host is slow, and never fail it."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from firsttouch.host import kernel_files, topology
from firsttouch.records.schema import BUSY, Record, software

#: The kernel's mode of transparent huge pages -> the value of the record.
_HUGE = {"never": 0.0, "madvise": 1.0, "always": 2.0}
_SECONDS = 0.5
#: Programs that are named.
_NAMED = 3


def records(root: Path = Path("/"), since: Usage | None = None) -> Iterator[Record]:
    """Yield this host's settings, and how many PUs others use, or have used *since* then.

    A setting that the kernel does not show is left out; busy_pus is then 0.
    """
    settings = {
        "huge_pages": _HUGE.get(kernel_files.bracketed_word(root / "sys/kernel/mm/transparent_hugepage/enabled")),
        "numa_balancing": kernel_files.number(root / "proc/sys/kernel/numa_balancing"),
        "frequency_share": _frequency(root),
        "usable_share": _usable(root),
    }
    for metric, value in settings.items():
        if value is not None:
            yield Record("topology", metric, "1", "neither", (value,), software=software())
    yield busy_pus(since, root)


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


class Usage(Struct, frozen=True):
    """The *time* (s) of a clock, and the processor time (s) of *others* so far: of all, and *by_process*."""

    time: float
    others: float
    by_process: Mapping[tuple[str, str], float]


def usage(root: Path = Path("/")) -> Usage:
    """Return the processor time so far of all but this process and the children that it has waited for."""
    ticks = os.sysconf("SC_CLK_TCK")
    total = kernel_files.text(root / "proc/stat").partition("\n")[0].split()[1:4]
    by_process = {}
    for process in kernel_files.by_number(root / "proc", ""):
        name, _, fields = kernel_files.text(process / "stat").partition(" (")[2].rpartition(") ")
        if fields and process.name != str(os.getpid()):
            by_process[process.name, name] = sum(map(int, fields.split()[11:13])) / ticks
    return Usage(time.monotonic(), sum(map(int, total)) / ticks - sum(os.times()[:4]), by_process)


def busy_pus(since: Usage | None = None, root: Path = Path("/")) -> Record:
    """Return how many PUs others used *since* then (None: use for half a second), and the busiest programs.

    It is 0 if the kernel does not show it, because an earlier record would otherwise remain the latest.
    """
    if since is None:
        since = usage(root)
        time.sleep(_SECONDS)
    now = usage(root)
    seconds = max(now.time - since.time, _SECONDS)
    pus = round(max(now.others - since.others, 0.0) / seconds, 2)
    by_name: defaultdict[str, float] = defaultdict(float)
    for process in now.by_process.keys() & since.by_process.keys():
        by_name[process[1]] += (now.by_process[process] - since.by_process[process]) / seconds
    busiest = sorted(by_name.items(), key=lambda item: -item[1])[:_NAMED]
    programs = ", ".join(f"{name} {used:.1f}" for name, used in busiest if used >= BUSY / 5)
    parameters = {"programs": programs} if programs and pus >= BUSY else {}
    return Record("topology", "busy_pus", "1", "neither", (pus,), parameters, software=software())
