# SPDX-License-Identifier: Apache-2.0
"""Where the aspects are measured: PU-sets and banks that this process may use, or why it may not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from firsttouch.errors import BadInput
from firsttouch.measure.effort import Effort
from firsttouch.topology import Topology

Nodes = tuple[int, ...]


def pus_of(host: Topology, nodes: Sequence[int]) -> tuple[int, ...]:
    """Return the PUs of a PU-set that may be used; raises BadInput for a NUMA node without any."""
    for node in nodes:
        host.node(node)
        if not host.usable_pus(node):
            raise BadInput(f"NUMA node {node} has no PU that this process may use")
    return tuple(p for n in nodes for p in host.usable_pus(n))


def bank_bytes(host: Topology, bank: int) -> int:
    """Return the memory of a bank that data may lie on; raises BadInput for any other."""
    if bank not in host.memory_nodes:
        host.node(bank)
        raise BadInput(f"NUMA node {bank} has no memory that this process may use")
    size = host.node(bank).memory_bytes
    return min(size, host.memory_limit_bytes or size)


def filling(host: Topology, bank: int, threads: int) -> tuple[int, ...]:
    """Return *threads* PUs that fill the NUMA nodes from the nearest to *bank* on (thesis figures 3.6, 3.7).

    Raises BadInput where there are not so many.
    """
    near = sorted(host.cpu_nodes, key=lambda n: (host.distance(n, bank), n))
    pus = pus_of(host, near)
    if not 1 <= threads <= len(pus):
        raise BadInput(f"{threads} threads: this process may use 1 to {len(pus)} PUs")
    return pus[:threads]


def nearest(host: Topology, nodes: Sequence[int]) -> int:
    """Return the bank that is nearest to a PU-set: its own, unless that has no memory."""
    return min(host.memory_nodes, key=lambda bank: (sum(host.distance(n, bank) for n in nodes), bank))


def sets_of(nodes: Sequence[int], sizes: Sequence[int]) -> list[Nodes]:
    """Return all PU-sets of *sizes* of the *nodes*; raises BadInput for a size that there is not."""
    for size in sizes:
        if not 1 <= size <= len(nodes):
            raise BadInput(f"--set-sizes: {size}; there are {len(nodes)} NUMA nodes with PUs to choose from")
    return [found for size in sorted(sizes) for found in combinations(nodes, size)]


def rows(
    host: Topology, sets: Sequence[Nodes], banks: Sequence[int], effort: Effort
) -> Iterator[tuple[list[Nodes], list[int]]]:
    """Yield PU-sets of one size, and the banks that an effort measures all of them with.

    The PU-sets of a yield are all of that size of their NUMA nodes, so that one run of the probe does them.
    """
    groups: dict[tuple[int, Nodes], list[Nodes]] = {}
    for nodes in sets:
        groups.setdefault((len(nodes), tuple(effort.banks_of(host, nodes, banks))), []).append(nodes)
    for (size, chosen), members in groups.items():
        every = sorted({node for nodes in members for node in nodes})
        if set(members) == set(combinations(every, size)):
            yield members, list(chosen)
        else:
            yield from (([nodes], list(chosen)) for nodes in members)
