# SPDX-License-Identifier: Apache-2.0
"""Lists of CPUs and NUMA nodes, and what the cgroups of this process leave of them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from firsttouch.errors import BadInput

# ----------------------------------------------------------------------
# Sets of PUs or NUMA nodes in the notations of the kernel ("0-3,8") and of hwloc ("0x0000010f").

#: No kernel numbers its PUs or NUMA nodes this high: what does is a slip, and would fill the memory.
TOO_HIGH = 1 << 20
_WORD = re.compile(r"(?:0x[0-9a-fA-F]{1,8})?")


def parse_list(text: str) -> frozenset[int]:
    """Return the members of a kernel list such as ``0-3,8``; raises BadInput for anything else."""
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
    runs: list[list[int]] = []
    for member in sorted(set(members)):
        if runs and runs[-1][1] == member - 1:
            runs[-1][1] = member
        else:
            runs.append([member, member])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def parse_hwloc(text: str) -> frozenset[int]:
    """Return the members of an hwloc bitmap: 32-bit words, comma-separated, highest first, empty ones 0.

    A finite bitmap only: hwloc writes infinite ones (``0xf...f``) for no object of a topology.
    """
    mask = 0
    for word in text.strip().split(","):
        if not _WORD.fullmatch(word):
            raise BadInput(f"'{text}' is not an hwloc bitmap")
        mask = (mask << 32) | int(word or "0", 16)
    return frozenset(i for i in range(mask.bit_length()) if mask >> i & 1)


# ----------------------------------------------------------------------
# What this process may use: PUs, NUMA nodes and memory, as the kernel enforces it, and how it places memory.
#
# /proc/self/status already combines affinity and cgroup cpusets of both versions; the memory limit is read from
# the cgroup files (kernel documents admin-guide/cgroup-v2 and cgroup-v1/memory).

# cgroup v1 says "no limit" as the largest page-aligned signed 64-bit number.
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
    found = []
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
            found.append(_read_limit(level / file))
    limits = [f for f in found if f is not None]
    return min(limits) if limits else None


def _read_limit(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None  # the root cgroup has no such file, and a namespace may hide the levels above ours
    if not text.isdecimal():
        return None  # "max"
    # A limit that reads as 0 is a broken read-out, not a limit: nothing could run under it.
    return int(text) if 0 < int(text) < _V1_UNLIMITED else None


_MEMORY = re.compile(r"^Node [0-9]+ MemTotal: +([0-9]{1,15}) kB$", re.MULTILINE)


def node_memory(root: Path = Path("/")) -> dict[int, int]:
    """Return the memory (bytes) of the NUMA nodes that /sys below *root* has online, by number."""
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


#: Kernel files that change where pages lie, or how large they are, for every process of the host.
_SETTINGS = {
    "transparent_hugepage": "sys/kernel/mm/transparent_hugepage/enabled",
    "numa_balancing": "proc/sys/kernel/numa_balancing",
    "zone_reclaim_mode": "proc/sys/vm/zone_reclaim_mode",
}


def memory_settings(root: Path = Path("/")) -> dict[str, str]:
    """Return the host-wide settings of the memory management that this kernel has, by name.

    ``transparent_hugepage`` is always, madvise or never; the others are the numbers of their sysctls. Only root
    can change them, so they are facts of the host, to be carried with what was measured under them.
    """
    found = {}
    for name, file in _SETTINGS.items():
        try:
            text = (root / file).read_text(encoding="utf-8").strip()
        except OSError:
            continue
        chosen = re.search(r"\[(.*?)\]", text)
        found[name] = chosen[1] if chosen else text
    return found
