# SPDX-License-Identifier: Apache-2.0
"""Memory tiers (HBM, DRAM, CXL): the banks of each NUMA node and tier, and the kernel's interleave weights."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from firsttouch.host.topology import NumaNode, Topology

#: The kernel's interleave weights are the files nodeN in this folder; each is a byte (mm/mempolicy.c, since Linux
#: 6.9).
WEIGHTS = Path("/sys/kernel/mm/mempolicy/weighted_interleave")
#: hwloc's subtypes of memory that is faster and slower than DRAM.
_FAST, _SLOW = ("HBM", "MCDRAM", "high-bandwidth memory"), ("CXL-DRAM", "NVM", "CXL-NVM")
#: A bank without PUs is faster memory if its bandwidth, as the firmware states it, exceeds DRAM's by this factor.
_MUCH = 1.5


class Tier(Struct, frozen=True):
    """Banks of one kind and speed."""

    name: str
    banks: tuple[int, ...]


def tiers(host: Topology) -> tuple[Tier, ...]:
    """Return the memory tiers of a host, the fastest first, as hwloc, the kernel and the firmware state them.

    A bank without PUs and a stated kind is not DRAM if the PUs next to it have other memory. It is a faster tier
    if the firmware states a bandwidth well above DRAM's, else a slower one.
    """
    ordinary = max((n.bandwidth or 0 for n in map(host.node, host.cpu_nodes) if n.subtype not in _FAST), default=0)
    kinds: dict[tuple[int, int, str], list[int]] = {}
    for node in map(host.node, host.memory_nodes):
        name = node.subtype or "DRAM"
        if not (node.subtype or node.pus or node.offline) and any(
            host.node(n).memory_bytes for n in _beside(host, node)
        ):
            high = ordinary and (node.bandwidth or 0) > _MUCH * ordinary
            name = _FAST[-1] if high else "memory without PUs"
        rank = 0 if name in _FAST else 1 if name == "DRAM" else 3 if name in _SLOW else 2
        kinds.setdefault((node.tier or 0, rank, name), []).append(node.index)
    return tuple(Tier(name, tuple(banks)) for (_, _, name), banks in sorted(kinds.items()))


def _beside(host: Topology, node: NumaNode) -> list[int]:
    """Return the NUMA nodes whose PUs are next to a bank; all of them if hwloc does not say."""
    return [n for n in host.cpu_nodes if not node.near or node.near & set(host.node(n).pus)]


def own_banks(host: Topology, nodes: Iterable[int]) -> tuple[int, ...]:
    """Return the banks of *nodes*, and the banks without PUs that are nearest to one of them.

    A bank without PUs belongs to the nearest of the NUMA nodes that hwloc puts next to it (or of all nodes, if
    hwloc does not say).
    """
    wanted = set(nodes)
    own = []
    for bank in host.memory_nodes:
        node = host.node(bank)
        beside = _beside(host, node)
        nearest = min((host.distance(n, bank) for n in beside), default=0)
        if bank in wanted if node.pus else any(n in wanted and host.distance(n, bank) == nearest for n in beside):
            own.append(bank)
    return tuple(own)


def kernel_weights(banks: Iterable[int]) -> tuple[int, ...]:
    """Return the kernel's interleave weights of *banks*; none if it does not state all of them."""
    try:
        return tuple(int((WEIGHTS / f"node{bank}").read_text(encoding="ascii")) for bank in banks)
    except (OSError, ValueError):
        return ()
