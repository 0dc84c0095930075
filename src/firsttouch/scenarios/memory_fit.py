# SPDX-License-Identifier: Apache-2.0
"""Check that a scenario fits into the memory of a host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from firsttouch.host.cpusets import format_list
from firsttouch.host.topology import Topology
from firsttouch.units import format_bytes

#: Part of a bank that the kernel uses. On a host like the thesis's (hwloc's 64amd64-4s2n4ca2co), 3.2 to 3.9 % of
#: each bank are neither free nor cached files (sys/devices/system/node/node*/meminfo).
KERNEL_SHARE = 0.05


class Need(NamedTuple):
    """Memory (bytes) that one instance needs: its copy of the index and the program's buffers."""

    index_bytes: int = 0
    instance_bytes: int = 0
    thread_bytes: int = 0

    def of(self, threads: int) -> int:
        """Return the bytes that one instance of *threads* threads needs."""
        return self.index_bytes + self.instance_bytes + threads * self.thread_bytes


def bank_bytes(topology: Topology, node: int) -> int:
    """Return the bytes of a NUMA node that programs can use: without huge pages and the kernel's share."""
    bank = topology.node(node)
    return max(0, int((bank.memory_bytes - bank.huge_bytes) * (1 - KERNEL_SHARE)))


def shortage(topology: Topology, banks: Sequence[Sequence[int]], need: Need, threads: int, *, even: bool) -> str:
    """Return why the memory does not suffice, with the arithmetic, or an empty string.

    *banks* are the NUMA nodes of each instance's data; instances that share a bank share its memory equally. With
    *even*, an instance puts the same amount on each of its banks, so the smallest bank decides. Otherwise the sum
    of its banks counts.

    Several instances must also leave room for one copy of the index file, because all read it through the page
    cache on the same banks. If a bank is full, the kernel takes another bank before it drops cached files
    (sysctl vm.zone_reclaim_mode is 0).
    """
    each = need.of(threads)
    parts = f"index {format_bytes(need.index_bytes)} + {format_bytes(each - need.index_bytes)} of buffers"
    users = Counter(n for nodes in banks for n in nodes)
    room = {n: bank_bytes(topology, n) // count for n, count in users.items()}
    for number, nodes in enumerate(banks):
        begin = f"instance {number} needs {format_bytes(each)} ({parts}), "
        if even and len(nodes) > 1 and each > len(nodes) * (least := min(room[n] for n in nodes)):
            smallest = next(n for n in nodes if room[n] == least)
            share = format_bytes(each / len(nodes))
            return (
                f"{begin}{share} on each of NUMA nodes {format_list(nodes)}: {smallest} has {format_bytes(least)}"
            )
        if each > (have := sum(room[n] for n in nodes)):
            return f"{begin}its NUMA nodes {format_list(nodes)} have {format_bytes(have)} for it"
    total = len(banks) * each
    sums = f"{len(banks)} x {format_bytes(each)} ({parts})"
    limit = topology.memory_limit_bytes
    if limit is not None and total > limit:
        return f"{sums} = {format_bytes(total)} exceed the cgroup's memory limit of {format_bytes(limit)}"
    have = sum(bank_bytes(topology, n) for n in topology.data_nodes)
    if len(banks) > 1 and total + need.index_bytes > have:
        return (
            f"{sums} + one cached copy of the index file = {format_bytes(total + need.index_bytes)} "
            f"exceed the {format_bytes(have)} of all NUMA nodes"
        )
    return ""
