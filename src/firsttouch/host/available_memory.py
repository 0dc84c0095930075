# SPDX-License-Identifier: Apache-2.0
"""The available memory of this host: in total, as huge pages, and within the cgroups of this process."""

from __future__ import annotations

import os
import re
from pathlib import Path

from msgspec import Struct

from firsttouch.host import kernel_files


class _Names(Struct, frozen=True):
    """The files of a memory cgroup, and the field of memory.stat with the cached files that can be dropped."""

    limit: str
    usage: str
    cache: str


_FIRST = _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_SECOND = _Names("memory.max", "memory.current", "inactive_file")


def available_bytes(root: Path = Path("/")) -> int | None:
    """Return the bytes that programs can take without swapping; None if the kernel does not say.

    It equals the kernel's available memory, or less if a cgroup of this process has a lower limit. *root* is the
    root of a stored host.
    """
    amounts = []
    if (kilobytes := _field(root / "proc/meminfo", "MemAvailable:")) is not None:
        amounts.append(kilobytes << 10)
    for folder, names in _memory_cgroups(root):
        limit, usage = _field(folder / names.limit), _field(folder / names.usage)
        if limit is not None and usage is not None:
            cache = _field(folder / "memory.stat", names.cache) or 0
            amounts.append(max(0, limit - usage + cache))
    return min(amounts, default=None)


def available_on(node: int, root: Path = Path("/")) -> tuple[int, int]:
    """Return the available bytes of a NUMA node (free memory and cached files), and its total memory.

    Both cover the whole host if the kernel has no NUMA support, and are 0 for a node that does not exist.
    """
    meminfo = root / f"sys/devices/system/node/node{node}/meminfo"
    begin = f"Node {node} "
    if not meminfo.exists():
        if (root / "sys/devices/system/node").exists():
            return 0, 0
        meminfo, begin = root / "proc/meminfo", ""
    free, active, inactive, total = (
        (_field(meminfo, f"{begin}{name}:") or 0) << 10
        for name in ("MemFree", "Active(file)", "Inactive(file)", "MemTotal")
    )
    return free + active + inactive, total


def huge_pages_free(root: Path = Path("/"), page_bytes: int = os.sysconf("SC_PAGESIZE")) -> dict[int, int] | None:
    """Return the bytes of each NUMA node that the kernel could give as huge pages at once; None if unknown.

    These are the free blocks of the buddy allocator that are at least as large as a huge page. Compaction may
    merge smaller ones into more. Pages reserved for hugetlbfs are excluded. *page_bytes* is a base page's size.
    """
    if (kilobytes := _field(root / "proc/meminfo", "Hugepagesize:")) is None:
        return None
    least = (kilobytes << 10).bit_length() - page_bytes.bit_length()
    free: dict[int, int] = {}
    buddies = kernel_files.text(root / "proc/buddyinfo")
    for node, blocks in re.findall(r"^Node\s+(\d+), zone\s+\S+((?: +\d+)+)\s*$", buddies, re.M):
        counts = list(map(int, blocks.split()))
        if len(counts) <= least:
            return None  # the largest free blocks are smaller than a huge page
        pages = sum(count << order for order, count in enumerate(counts) if order >= least)
        free[int(node)] = free.get(int(node), 0) + pages * page_bytes
    return free or None


def _memory_cgroups(root: Path) -> list[tuple[Path, _Names]]:
    """Return the folders of this process's memory cgroups and of all above them."""
    cgroups = root / "sys/fs/cgroup"
    unified = cgroups if (cgroups / "cgroup.controllers").exists() else cgroups / "unified"
    folders = []
    for line in kernel_files.text(root / "proc/self/cgroup", "replace").splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers or "memory" in controllers.split(","):
            mount, names = (cgroups / "memory", _FIRST) if controllers else (unified, _SECOND)
            folder = Path(f"{mount}{group}")
            levels = [folder, *folder.parents]
            folders += [(level, names) for level in levels if level.is_relative_to(mount)]
    return folders


def _field(file: Path, name: str = "") -> int | None:
    """Return the number after *name* at the beginning of a line of *file*, or None ("max" is not a number)."""
    match = re.search(rf"^{re.escape(name)}\s*(\d+)\b", kernel_files.text(file), re.MULTILINE)
    return int(match[1]) if match else None
