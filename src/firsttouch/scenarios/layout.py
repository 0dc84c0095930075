# SPDX-License-Identifier: Apache-2.0
"""Divide a host's usable PUs and NUMA nodes among equal instances."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations

from msgspec import Struct

from firsttouch.errors import BadInput, CannotHere
from firsttouch.host import grant
from firsttouch.host.topology import Topology
from firsttouch.scenarios.cache_domains import divide, split

#: Thread counts of the scaling study in eighths of all PUs: 8, 16, 32, 48 and 64 of 64 (thesis section 5.2.1).
SCALING_EIGHTHS = (1, 2, 4, 6, 8)


class Share(Struct, frozen=True):
    """The resources of one instance: PUs, best first, their NUMA nodes, and the NUMA nodes for its data."""

    pus: tuple[int, ...]
    cpu_nodes: tuple[int, ...]
    numa_nodes: tuple[int, ...]


class Layout:
    """Divides a topology's usable PUs among instances.

    *threads* limits the threads in total (default: all usable PUs). Data go to :attr:`Topology.data_nodes`. Raises
    BadInput if no PU or no memory may be used, or if *threads* is out of range.
    """

    def __init__(self, topology: Topology, threads: int | None) -> None:
        self.topology = topology
        self.pus = {n: topology.usable_pus(n) for n in topology.cpu_nodes}
        self.total = sum(map(len, self.pus.values()))
        self.banks = topology.data_nodes
        if not self.total:
            raise BadInput("no PU that may be used belongs to a NUMA node", file=topology.file)
        if not self.banks:
            stated = any(n.memory_bytes for n in topology.numa_nodes)
            reason = "that may be used" if stated else "here: their sizes are not stated"
            raise BadInput(f"no NUMA node has memory {reason}", file=topology.file)
        if threads is not None and not 1 <= threads <= self.total:
            remedy = grant.more_pus(threads, topology)
            raise BadInput(f"--threads {threads}: this process may use 1 to {self.total} PUs{remedy}")
        self.threads = threads or self.total
        self._groups: dict[int, list[tuple[int, ...]]] = {}
        self._node = {pu: n for n, pus in self.pus.items() for pu in pus}
        self._core = {p.index: p.core for p in topology.pus}
        #: The rank of a PU within its core, 0 for the first.
        self._rank: dict[int, int] = {}
        seen = Counter[int]()
        for pu in (p for pus in self.pus.values() for p in pus):
            self._rank[pu] = seen[self._core[pu]]
            seen[self._core[pu]] += 1
        #: The PUs of each NUMA node by last-level cache.
        self.domains = {
            n: [of_cache for d in topology.domains if (of_cache := [pu for pu in pus if pu in d])] or [list(pus)]
            for n, pus in self.pus.items()
        }

    @functools.cached_property
    def _neighbours(self) -> Neighbours:
        return Neighbours(self.topology, tuple(self.pus))

    def divisions(self) -> Iterator[tuple[list[Share], int]]:
        """Yield (the instances' shares, threads per instance) of the usual scenarios, one instance first."""
        for threads in sorted({max(1, self.threads * e // 8) for e in SCALING_EIGHTHS}):
            yield [self._everything()], threads
        for instances in self._counts():
            shares = self._shares(instances)
            room = min(len(s.pus) for s in shares)
            cores = min(len({self._core[p] for p in s.pus}) for s in shares)
            for threads in sorted({min(t, self.threads // instances) for t in (room, cores)}):
                yield self._shares(instances, threads), threads

    def divisions_by_cache(self) -> Iterator[tuple[list[Share], int]]:
        """Yield shares and threads for one instance per last-level cache; raises CannotHere without caches."""
        instances = sum(map(len, self.domains.values()))
        by_threads = {len(s[0].pus): s for w in (True, False) for s in [self.caches(instances, whole_cores=w)]}
        yield from ((shares, threads) for threads, shares in sorted(by_threads.items()))

    def division(self, instances: int, threads: int | None, *, bound: bool = True) -> tuple[list[Share], int]:
        """Return the shares of *instances* with *threads* threads each (None: all usable PUs), and the threads.

        *bound* instances share no PU; otherwise each may use all PUs. Raises CannotHere with the reason if the
        host has no room for them.
        """
        if threads is None and self.total % instances:
            remedy = grant.more_pus(instances, self.topology)
            raise CannotHere(
                f"the {self.total} PUs that may be used do not divide into {instances} equal parts{remedy}"
            )
        each = threads or self.total // instances
        if instances * each > self.threads:
            remedy = grant.more_pus(instances * each, self.topology)
            raise CannotHere(
                f"{instances} x {each} threads are more than the {self.threads} PUs to be used{remedy}"
            )
        if instances == 1 or not bound:
            return [self._everything()] * instances, each
        if instances <= len(self.pus) and each <= min(len(s.pus) for s in self._shares(instances)):
            return self._shares(instances, each), each
        if instances > (most := sum(len(p) // each for p in self.pus.values())):
            raise CannotHere(
                f"only {most} instances of {each} threads fit within single NUMA nodes, not {instances}"
            )
        return self._packed(instances, each), each

    def caches(self, instances: int, threads: int | None = None, *, whole_cores: bool = False) -> list[Share]:
        """Return shares that own whole last-level caches, the same number each, within a NUMA node.

        Each instance has *threads* threads (None: all PUs of its caches, or with *whole_cores* one of each core).
        Raises CannotHere if there are too few caches or PUs.
        """
        total = sum(map(len, self.domains.values()))
        if total == len(self.pus):
            raise CannotHere("no NUMA node of this host has several last-level caches")
        # Smaller caches stay idle if enough are left without them: then no instance crosses a border.
        least, core = threads or 1, self._core
        large = {n: [d for d in ds if len({core[p] for p in d}) >= least] for n, ds in self.domains.items()}
        owned = large if sum(map(len, large.values())) >= instances else self.domains
        fits = (g for g in range(total, 0, -1) if sum(len(d) // g for d in owned.values()) >= instances)
        if not (each := next(fits, 0)):
            raise CannotHere(f"{instances} instances need a last-level cache each, and {total} may be used")
        turns = [(turn, n) for n, domains in owned.items() for turn in range(len(domains) // each)]
        groups = []
        for node, count in sorted(Counter(n for _, n in sorted(turns)[:instances]).items()):
            largest = sorted(owned[node], key=len, reverse=True)[: count * each]
            kept = [domain for domain in owned[node] if domain in largest][: count * each]
            groups += [(node, kept[i * each : (i + 1) * each]) for i in range(count)]
        all_pus = [[pu for domain in group for pu in domain] for _, group in groups]
        room = min(len({self._core[pu] for pu in pus} if whole_cores else pus) for pus in all_pus)
        if (threads or room) > room:
            raise CannotHere(f"the last-level caches of an instance have {room} PUs, and {threads} are asked for")
        size = threads or min(room, self.threads // instances)
        if not size or instances * size > self.threads:
            raise CannotHere(f"{instances} x {size} threads are more than the {self.threads} PUs to be used")
        divided = ((n, divide(group, self._core, self._rank, 1, size)[0]) for n, group in groups)
        return [self._share(pus, self._nearest((node,))) for node, pus in divided]

    def parts(self, count: int, threads: int | None) -> list[Share]:
        """Return the shares of *count* programs of *threads* threads (None: an equal part of all PUs).

        Each has its data on the NUMA nodes of its PUs, even if there is only one program. A grant need not align
        with NUMA nodes: a share may then have neighbouring PUs of two nodes. Raises CannotHere if there are too
        few PUs.
        """
        each = threads or max(1, self.total // count)
        try:
            shares, _ = self.division(count, each)
        except CannotHere:
            if count * each > self.threads:
                raise
            pus = split(self._core, self._everything().pus, count, each)
            return [self._share(part, self._nearest(sorted({self._node[pu] for pu in part}))) for part in pus]
        return shares if count > 1 else [self._share(shares[0].pus[:each], self._nearest(tuple(self.pus)))]

    def _everything(self) -> Share:
        return Share(tuple(p for pus in self.pus.values() for p in pus), tuple(self.pus), self.banks)

    def _counts(self) -> list[int]:
        nodes = len(self.pus)
        fewer = {n for n in range(2, nodes + 1) if nodes % n == 0 or n & (n - 1) == 0}
        narrowest = min(map(len, self.pus.values()))
        more = {nodes * k for k in range(2, narrowest + 1) if narrowest % k == 0}
        return sorted(n for n in fewer | more if n <= self.threads)

    def _shares(self, instances: int, threads: int | None = None) -> list[Share]:
        """Return the instances' shares of *threads* PUs each, by default the most possible.

        Instances are equal, so PUs that do not divide evenly stay idle. If there are more instances than NUMA
        nodes, their number is a multiple of the nodes.
        """
        nodes = tuple(self.pus)
        if instances > len(nodes):
            parts = instances // len(nodes)
            return self._packed(instances, threads or min(map(len, self.pus.values())) // parts)
        if instances not in self._groups:
            self._groups[instances] = self._neighbours.groups(instances)
        return [self._share(self._of_group(g, threads), self._nearest(g)) for g in self._groups[instances]]

    def _of_group(self, group: Sequence[int], threads: int | None) -> tuple[int, ...]:
        """Return *threads* PUs of a group of NUMA nodes (None: all), in the fewest last-level caches of each."""
        pus = self._merge(group)[:threads]
        if threads is None or all(len(self.domains[n]) == 1 for n in group):
            return pus
        counts = Counter(self._node[pu] for pu in pus)
        return tuple(pu for n, count in counts.items() for pu in self._within(n, 1, count)[0])

    def _within(self, node: int, parts: int, size: int) -> list[tuple[int, ...]]:
        """Return *parts* of *size* PUs of one NUMA node."""
        if len(self.domains[node]) == 1:
            return split(self._core, self.pus[node], parts, size)
        return divide(self.domains[node], self._core, self._rank, parts, size)

    def _packed(self, instances: int, threads: int) -> list[Share]:
        """Return shares of *threads* PUs within one NUMA node, dealt out in turn while a node has PUs left."""
        turns = [(turn, n) for n, pus in self.pus.items() for turn in range(len(pus) // threads)]
        counts = Counter(n for _, n in sorted(turns)[:instances])
        return [
            self._share(pus, self._nearest((node,)))
            for node in sorted(counts)
            for pus in self._within(node, counts[node], threads)
        ]

    def _share(self, pus: tuple[int, ...], banks: tuple[int, ...]) -> Share:
        return Share(pus, tuple(sorted({self._node[p] for p in pus})), banks)

    def _merge(self, group: Sequence[int]) -> tuple[int, ...]:
        """Return the PUs of a group, the first of each core first, alternating between its NUMA nodes.

        The first PUs are thus spread over the group, and no core is shared while another one is idle.
        """
        ranked = [(self._rank[p], i, n) for n in group for i, p in enumerate(self.pus[n])]
        return tuple(self.pus[n][i] for _, i, n in sorted(ranked))

    def _nearest(self, group: Sequence[int]) -> tuple[int, ...]:
        """Return the group's NUMA nodes that have memory, or the nearest node with memory."""
        own = tuple(n for n in group if n in self.banks)
        if own:
            return own
        return (min(self.banks, key=lambda bank: (sum(self._fallback(n, bank) for n in group), bank)),)

    def _fallback(self, node: int, bank: int) -> int:
        """Return the distance of *bank* in the kernel's fallback order of *node*, a node without memory.

        At equal distance the kernel prefers a bank without PUs, then a higher number (Linux, mm/page_alloc.c,
        find_next_best_node). --localalloc follows the same order.
        """
        return self.topology.distance(node, bank) + int(bank < node) + int(bank in self.pus)


#: Up to this many NUMA nodes the best grouping is found exactly (16 nodes take about a second).
EXACT = 16
_NEVER = 1 << 62


class Neighbours:
    """Groups neighbouring NUMA nodes by the distance matrix.

    Node numbers do not reflect distance: on the thesis's Opteron, NUMA nodes 0 and 3 are two hops apart (distance
    22), and 0 and 2 only one (16).
    """

    def __init__(self, topology: Topology, nodes: Sequence[int]) -> None:
        self._nodes = sorted(nodes)
        self._cost = _costs(topology, self._nodes)

    def groups(self, count: int) -> list[tuple[int, ...]]:
        """Return *count* disjoint groups of equal size with the smallest sum of distances within the groups.

        Ties prefer NUMA nodes of one package, then low numbers. Nodes beyond a multiple of *count* are left out.
        More than EXACT nodes are grouped greedily and improved by exchanges, which may miss the minimum.
        """
        return self.groups_of(len(self._nodes) // count, count)

    def groups_of(self, size: int, count: int = 0) -> list[tuple[int, ...]]:
        """Return *count* groups (0: the most possible) of *size* NUMA nodes, chosen as :meth:`groups` does."""
        count = count or len(self._nodes) // size
        if size == len(self._nodes):
            return [tuple(self._nodes)]
        if size == 1 and count == len(self._nodes):
            return [(n,) for n in self._nodes]
        groups = (_best if len(self._nodes) <= EXACT else _improved)(self._cost, count, size)
        return sorted(tuple(sorted(self._nodes[i] for i in group)) for group in groups)


def _best(cost: list[list[int]], groups: int, size: int) -> Sequence[Sequence[int]]:
    """Return the cheapest groups by dynamic programming over the set of nodes that are left."""
    least = min(cost[a][b] for a, b in combinations(range(len(cost)), 2)) * size * (size - 1) // 2

    @functools.cache
    def within(group: tuple[int, ...]) -> int:
        return sum(cost[a][b] for a, b in combinations(group, 2))

    @functools.cache
    def solve(free: tuple[int, ...], wanted: int) -> tuple[float, tuple[tuple[int, ...], ...]]:
        if not wanted:
            return 0, ()
        first, rest = free[0], free[1:]
        best: tuple[float, tuple[tuple[int, ...], ...]] = (math.inf, ())
        for own, group in sorted((within((first, *o)), (first, *o)) for o in combinations(rest, size - 1)):
            # The other groups cost at least as much as if all their pairs were the cheapest pair.
            if own + (wanted - 1) * least >= best[0]:
                break
            after, tail = solve(tuple(n for n in rest if n not in group), wanted - 1)
            best = min(best, (own + after, (group, *tail)))
        return min(best, solve(rest, wanted)) if len(free) > wanted * size else best

    return solve(tuple(range(len(cost))), groups)[1]


def _improved(cost: list[list[int]], groups: int, size: int) -> Sequence[Sequence[int]]:
    """Return groups that are grown greedily from their lowest node and improved by exchanges of two nodes."""
    import numpy as np  # noqa: PLC0415 (slow to load, and such hosts are rare)

    matrix = np.array(cost)
    # The group of each node. Nodes of the last group are left over and cost nothing.
    group_of = np.full(len(matrix), groups)
    # The cost of each node to all members of each group, updated at each exchange.
    beside = np.zeros((len(matrix), groups + 1), dtype=np.int64)
    for group in range(groups):
        for _ in range(size):
            node = int(np.where(group_of == groups, beside[:, group], _NEVER).argmin())  # of equals the lowest
            group_of[node] = group
            beside[:, group] += matrix[node]
    nodes = np.arange(len(matrix))
    improved = True
    while improved:
        improved = False
        for a in range(len(nodes)):
            own = group_of[a]
            both = int(own < groups) + (group_of < groups)
            rise = beside[nodes, own] - beside[a, own] + beside[a, group_of] - beside[nodes, group_of]
            rise = np.where(group_of == own, 0, rise - both * matrix[a])
            b = int((rise < 0).argmax())
            if rise[b] < 0:
                improved = True
                for node, pool, other in ((a, own, b), (b, group_of[b], a)):
                    if pool < groups:
                        beside[:, pool] += matrix[other] - matrix[node]
                group_of[a], group_of[b] = group_of[b], own
    return [np.flatnonzero(group_of == group).tolist() for group in range(groups)]


def _costs(topology: Topology, nodes: Sequence[int]) -> list[list[int]]:
    """Return for each pair the distance both ways plus a penalty for different packages; 0 to itself.

    The penalty is too small for any number of pairs to outweigh a difference in distance.
    """
    packages: dict[int, set[int]] = {n: set() for n in nodes}
    for pu in topology.pus:
        if pu.numa_node in packages:
            packages[pu.numa_node].add(pu.package)

    def cost(a: int, b: int) -> int:
        both = topology.distance(a, b) + topology.distance(b, a)
        return 1_000_000 * both + packages[a].isdisjoint(packages[b]) if a != b else 0

    return [[cost(a, b) for b in nodes] for a in nodes]
