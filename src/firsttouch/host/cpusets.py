# SPDX-License-Identifier: Apache-2.0
"""Lists of CPUs and NUMA nodes, and the limits that affinity and cgroups set for this process."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from firsttouch.errors import BadInput

# ----------------------------------------------------------------------
# Sets of PUs or NUMA nodes in the notations of the kernel ("0-3,8") and of hwloc ("0x0000010f").

#: PU and NUMA node numbers stay below this; a larger one is a typing error, and its range would fill the memory.
TOO_HIGH = 1 << 20
_WORD = re.compile(r"(?:0x[0-9a-fA-F]{1,8})?")


def parse_list(text: str) -> frozenset[int]:
    """Return the members of a kernel list such as ``0-3,8``; raises BadInput for anything else.

    ClusterShell's RangeSet also accepts steps and padding, which the kernel does not, and is 30 times slower.
    """
    members: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last) < TOO_HIGH):
            raise BadInput(f"'{text.strip()}' is not a list of numbers such as 0-3,8")
        members.update(range(int(first), int(last) + 1))
    return frozenset(members)


def format_list(members: Iterable[int]) -> str:
    """Return *members* in the kernel's list notation, ascending, with ranges: ``0-3,8``."""
    # Within a range the members rise as their places do.
    groups = groupby(enumerate(sorted(set(members))), key=lambda pair: pair[1] - pair[0])
    runs = [[member for _, member in group] for _, group in groups]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def parse_hwloc(text: str) -> frozenset[int]:
    """Return the members of an hwloc bitmap: 32-bit words, comma-separated, highest first, an empty word is 0.

    Raises BadInput for anything else. Infinite bitmaps (``0xf...f``) are refused: no object of a topology has one.
    """
    mask = 0
    for word in text.strip().split(","):
        if not _WORD.fullmatch(word):
            raise BadInput(f"'{text}' is not an hwloc bitmap")
        mask = (mask << 32) | int(word or "0", 16)
    return frozenset(i for i in range(mask.bit_length()) if mask >> i & 1)


# ----------------------------------------------------------------------
# The limits of this process and the kernel's memory settings.
#
# /proc/self/status combines the affinity and the cgroup cpusets of both versions. The memory limit is read from
# the cgroup files (kernel documents admin-guide/cgroup-v2 and cgroup-v1/memory).

# "No limit" in cgroup v1 is the largest page-aligned signed 64-bit number.
_V1_UNLIMITED = 1 << 62


@dataclass(frozen=True)
class Limits:
    """PUs and NUMA nodes (kernel numbers) that may be used, and the memory limit in bytes or None."""

    pus: frozenset[int]
    numa_nodes: frozenset[int]
    memory_bytes: int | None


def status_list(status: str, key: str) -> frozenset[int]:
    """Return one list field, such as ``Cpus_allowed_list``, of the text of a /proc/PID/status."""
    for line in status.splitlines():
        if line.startswith(key + ":"):
            return parse_list(line.split(":", 1)[1])
    return frozenset()


def of_this_process(root: Path = Path("/")) -> Limits:
    """Return the limits of this process; *root* holds proc/ and sys/ (another one in tests)."""
    status = (root / "proc/self/status").read_text()
    return Limits(
        pus=status_list(status, "Cpus_allowed_list"),
        numa_nodes=status_list(status, "Mems_allowed_list"),
        memory_bytes=memory_limit(root),
    )


def memory_limit(root: Path = Path("/")) -> int | None:
    """Return the smallest memory limit (bytes) of this process's cgroup and all above it, or None."""
    limits = []
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except FileNotFoundError:
        return None  # a kernel without cgroups
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount, file = root / "sys/fs/cgroup", "memory.max"
            if not (mount / "cgroup.controllers").exists():
                mount = mount / "unified"
        elif "memory" in controllers.split(","):
            mount, file = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        folder = mount / path.lstrip("/")
        for level in (folder, *folder.parents):
            if not level.is_relative_to(mount):
                break
            limits.append(_read_limit(level / file))
    return min((limit for limit in limits if limit is not None), default=None)


def _read_limit(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None  # the root cgroup has no such file, and a namespace may hide the levels above this one
    if not text.isdecimal():
        return None  # "max"
    # 0 is a broken read-out: nothing could run under such a limit.
    return int(text) if 0 < int(text) < _V1_UNLIMITED else None


_MEMORY = re.compile(r"^Node [0-9]+ MemTotal: +([0-9]{1,15}) kB$", re.MULTILINE)


def node_memory(root: Path = Path("/")) -> dict[int, int]:
    """Return the memory (bytes) of the online NUMA nodes, by number; *root* holds sys/."""
    folder = root / "sys/devices/system/node"
    try:
        numbers = parse_list((folder / "online").read_text(encoding="utf-8"))
    except (OSError, ValueError, BadInput):  # an old kernel has no such file
        numbers = frozenset(int(f.name[4:]) for f in folder.glob("node*") if f.name[4:].isdecimal())
    memory = {}
    for number in sorted(numbers):
        with contextlib.suppress(OSError, ValueError):  # a NUMA node without memory may have no such file
            total = _MEMORY.search((folder / f"node{number}/meminfo").read_text(encoding="utf-8"))
            memory[number] = int(total[1]) * 1024 if total else 0
    return memory


#: Kernel files that decide, for every process of the host, where pages lie or how large they are.
_SETTINGS = {
    "transparent_hugepage": "sys/kernel/mm/transparent_hugepage/enabled",
    "numa_balancing": "proc/sys/kernel/numa_balancing",
    "zone_reclaim_mode": "proc/sys/vm/zone_reclaim_mode",
}


def memory_settings(root: Path = Path("/")) -> dict[str, str]:
    """Return the kernel's host-wide settings of the memory management, by name; absent ones are left out.

    ``transparent_hugepage`` is always, madvise or never; the others are the numbers of their sysctls. Only root
    can change them, so each record carries them as facts of the host.
    """
    settings = {}
    for name, file in _SETTINGS.items():
        try:
            text = (root / file).read_text(encoding="utf-8").strip()
        except OSError:
            continue
        chosen = re.search(r"\[(.*?)\]", text)
        settings[name] = chosen[1] if chosen else text
    return settings
