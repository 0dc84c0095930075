# SPDX-License-Identifier: Apache-2.0
"""Check that a scenario fits into the memory of a host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from firsttouch.host.cpusets import format_list
from firsttouch.host.topology import Topology
from firsttouch.scenarios.memory_options import Copies
from firsttouch.units import format_bytes

#: Part of a bank that the kernel uses. On a host like the thesis's (hwloc's 64amd64-4s2n4ca2co), 3.2 to 3.9 % of
#: each bank are neither free nor cached files (sys/devices/system/node/node*/meminfo).
KERNEL_SHARE = 0.05
#: How a program uses the files of its index: it has none, reads them into its memory, maps them, or maps those
#: that another command has loaded.
IndexUse = Literal["none", "read", "mapped", "loaded"]


class Need(Struct, frozen=True):
    """Memory (bytes) that one instance needs: its copy of the index and the program's buffers.

    *file_bytes* is the size of the index's files, and *index_use* the program's use of them.
    """

    index_bytes: int = 0
    instance_bytes: int = 0
    thread_bytes: int = 0
    file_bytes: int = 0
    index_use: IndexUse = "none"

    def bytes_for(self, threads: int, copies: Copies = "own") -> int:
        """Return the bytes that one instance of *threads* threads needs, without shared copies of the index."""
        shared = copies != "own" and self.index_use in {"mapped", "loaded"}
        return (0 if shared else self.index_bytes) + self.instance_bytes + threads * self.thread_bytes


def bank_bytes(topology: Topology, node: int) -> int:
    """Return the bytes of a NUMA node that programs can use, which excludes huge pages and the kernel's share."""
    bank = topology.node(node)
    return max(0, int((bank.memory_bytes - bank.huge_bytes) * (1 - KERNEL_SHARE)))


def copy_banks(banks: Sequence[Sequence[int]], copies: Copies) -> list[tuple[int, ...]]:
    """Return the NUMA nodes of each copy of the index; *banks* are the NUMA nodes of each instance's data."""
    if copies == "node":
        return list(dict.fromkeys(tuple(sorted(set(nodes))) for nodes in banks))
    if copies == "all":
        return [tuple(sorted({node for nodes in banks for node in nodes}))]
    return []


def why_unshared(need: Need, copies: Copies) -> str:
    """Return why the program cannot share its index in this way, or an empty string."""
    if copies == "own":
        return ""
    if need.index_use == "none":
        return "firsttouch knows no index of this program"
    if copies == "none" and need.index_use != "mapped":
        return "the program cannot map the files of its index, so instances cannot share them in the page cache"
    return ""


def shortage(
    topology: Topology,
    banks: Sequence[Sequence[int]],
    need: Need,
    threads: int,
    *,
    even: bool,
    copies: Copies = "own",
) -> str:
    """Return why the memory is too small, with the arithmetic, or an empty string.

    *banks* are the NUMA nodes of each instance's data; instances that share a bank share its memory equally. With
    *even*, an instance puts the same amount on each of its banks, so the smallest bank decides. Otherwise the sum
    of its banks decides. *copies* says where copies of the index lie. A copy lies evenly on its banks, and an
    instance that maps it needs memory for its buffers only.

    Several instances that load the index must also leave room for one copy of its file, because all read it
    through the page cache on the same banks. If a bank is full, the kernel takes another bank before it drops
    cached files (sysctl vm.zone_reclaim_mode is 0).
    """
    each = need.bytes_for(threads, copies)
    buffers = need.bytes_for(threads) - need.index_bytes
    parts = f"{format_bytes(buffers)} of buffers"
    if each > buffers or copies == "own":
        parts = f"index {format_bytes(need.index_bytes)} + {parts}"
    held, places = Counter[int](), copy_banks(banks, copies)
    for place in places:
        share = -(-need.file_bytes // len(place))
        held.update(dict.fromkeys(place, share))
        for node in place:
            if held[node] > (have := bank_bytes(topology, node)):
                on = f" on each of NUMA nodes {format_list(place)}" if len(place) > 1 else f" on NUMA node {node}"
                return (
                    f"a copy of the index needs {format_bytes(share)}{on}: {node} has "
                    f"{format_bytes(max(0, have - held[node] + share))}"
                )
    users = Counter(n for nodes in banks for n in nodes)
    room = {n: (bank_bytes(topology, n) - held[n]) // count for n, count in users.items()}
    beside = " next to the copy of the index" if places else ""
    for number, nodes in enumerate(banks):
        begin = f"instance {number} needs {format_bytes(each)} ({parts}), "
        if even and len(nodes) > 1 and each > len(nodes) * (least := min(room[n] for n in nodes)):
            smallest = next(n for n in nodes if room[n] == least)
            part = format_bytes(each / len(nodes))
            return (
                f"{begin}{part} on each of NUMA nodes {format_list(nodes)}: {smallest} has "
                f"{format_bytes(least)}{beside}"
            )
        if each > (have := sum(room[n] for n in nodes)):
            return f"{begin}its NUMA nodes {format_list(nodes)} have {format_bytes(have)} for it{beside}"
    # The default banks for data, and the banks of these instances, which may be of other memory tiers.
    have = sum(bank_bytes(topology, n) for n in users.keys() | set(topology.data_nodes))
    limit = topology.memory_limit_bytes
    return _too_much(have, limit, each, need, instances=len(banks), parts=parts, copies=copies, number=len(places))


def _too_much(
    have: int, limit: int | None, each: int, need: Need, *, instances: int, parts: str, copies: Copies, number: int
) -> str:
    """Return why all instances and *number* copies together exceed *have* or *limit* bytes, or an empty string."""
    total = instances * each + number * need.file_bytes
    sums = f"{instances} x {format_bytes(each)} ({parts})"
    if number:
        sums += f" + {number} {'copies' if number > 1 else 'copy'} of the index of {format_bytes(need.file_bytes)}"
    if limit is not None and total > limit:
        return f"{sums} = {format_bytes(total)} exceed the cgroup's memory limit of {format_bytes(limit)}"
    cached = need.file_bytes if copies == "none" else need.index_bytes if copies == "own" and instances > 1 else 0
    if total + cached > have and (cached or number):
        if cached:
            sums += " + one cached copy of the index file"
        return f"{sums} = {format_bytes(total + cached)} exceed the {format_bytes(have)} of all NUMA nodes"
    return ""
