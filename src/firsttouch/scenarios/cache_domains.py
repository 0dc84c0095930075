# SPDX-License-Identifier: Apache-2.0
"""Divides PUs among equal parts so that the parts cross and share as few last-level caches as possible.

PUs that share a last-level cache are a domain (:attr:`firsttouch.host.topology.Topology.domains`). The rules, in
order: no core is shared while another one is idle; the parts cross as few borders of domains as possible; as few
parts as possible share a domain with another one; within a domain they share few cores.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

#: Up to these numbers of states and parts the search is exact and takes at most a second. Beyond (domains of many
#: sizes), parts are laid one after the other through all domains.
EXACT = 40_000


class _Size(Struct, frozen=True, order=True):
    """The fewest PUs of a domain that must be used so that no core is idle, and the most that may be used."""

    least: int
    most: int


class _Joined(Struct, frozen=True, order=True):
    """A group of domains that *parts* divide among them: the number of domains of each size."""

    domains: tuple[int, ...]
    parts: int


def divide(
    domains: Sequence[Sequence[int]], core: Mapping[int, int], rank: Mapping[int, int], parts: int, size: int
) -> list[tuple[int, ...]]:
    """Return *parts* tuples of *size* PUs, best first, in the order of the *domains*.

    *domains* have their PUs best first: the first of each core, then the second ones. *core* and *rank* return the
    number of a PU's core and its place in the core. At least parts * size PUs are needed.
    """
    ranks = Counter(rank[pu] for domain in domains for pu in domain)
    level = next(level for level in itertools.count(1) if sum(ranks[r] for r in range(level)) >= parts * size)
    usable = [[pu for pu in domain if rank[pu] < level] for domain in domains]
    sizes = [_Size(sum(rank[pu] < level - 1 for pu in pus), len(pus)) for pus in usable]
    result = []
    for members, count in _components(sizes, parts, size):
        pus = sorted((pu for domain in members for pu in usable[domain]), key=lambda pu: (rank[pu], pu))
        if len(members) == 1:
            result += split(core, pus, count, size)
            continue
        kept = {*pus[: count * size]}
        of_domains = (kept.intersection(usable[domain]) for domain in members)
        ordered = [pu for of_domain in of_domains for pu in sorted(of_domain, key=lambda pu: (core[pu], pu))]
        runs = (ordered[i * size : (i + 1) * size] for i in range(count))
        result += [tuple(sorted(run, key=lambda pu: (rank[pu], pu))) for run in runs]
    return result


def _components(sizes: Sequence[_Size], parts: int, size: int) -> list[tuple[list[int], int]]:
    """Return groups of domains (indexes of *sizes*), each with the number of parts that divide it.

    Consecutive parts in d domains cross d - 1 borders, so the fewest possible domains are joined, in the largest
    possible number of groups.
    """
    least = [math.ceil(s.least / size) for s in sizes]
    most = [s.most // size for s in sizes]
    if all(low <= high for low, high in zip(least, most, strict=True)) and sum(least) <= parts <= sum(most):
        counts, left = least, parts - sum(least)
        while left:
            fewest = min(counts[i] for i in range(len(sizes)) if counts[i] < most[i])
            place = next(i for i in range(len(sizes)) if counts[i] == fewest and counts[i] < most[i])
            counts[place] += 1
            left -= 1
        return [([place], count) for place, count in enumerate(counts) if count]
    kinds = sorted({*sizes}, reverse=True)
    available = tuple(sizes.count(kind) for kind in kinds)
    if math.prod(n + 1 for n in available) * parts > EXACT:
        return [([*range(len(sizes))], parts)]
    places = {kind: [i for i, s in enumerate(sizes) if s == kind] for kind in kinds}
    chosen = []
    for joined in sorted(_cheapest(tuple(kinds), available, parts, size)[2], reverse=True):
        members = sorted(
            places[kind].pop(0) for kind, n in zip(kinds, joined.domains, strict=True) for _ in range(n)
        )
        chosen.append((members, joined.parts))
    return sorted(chosen)


@functools.lru_cache(maxsize=1 << 17)
def _cheapest(
    kinds: tuple[_Size, ...], available: tuple[int, ...], parts: int, size: int
) -> tuple[float, int, tuple[_Joined, ...]]:
    """Return the best division: the crossed borders minus the number of groups, and the groups."""
    best: tuple[float, int, tuple[_Joined, ...]] = (math.inf, 0, ())
    least, most = _bounds(kinds, available)
    if not least <= parts * size <= most:
        return best
    first = next((i for i, count in enumerate(available) if count), None)
    if first is None:
        return 0, 0, ()
    for taken, counts in _choices(kinds, available, first, parts, size):
        left = tuple(map(operator.sub, available, taken))
        for count in counts:
            borders, groups, joined = _cheapest(kinds, left, parts - count, size)
            if count:
                borders, groups = borders + sum(taken) - 1, groups - 1
            if (borders, groups) < best[:2]:
                best = borders, groups, (_Joined(taken, count), *joined) if count else joined
    return best


def _bounds(kinds: Sequence[_Size], numbers: Sequence[int]) -> tuple[int, int]:
    """Return the fewest and the most PUs to be used of domains, by their *numbers* of each kind."""
    return (
        sum(n * kind.least for n, kind in zip(numbers, kinds, strict=True)),
        sum(n * kind.most for n, kind in zip(numbers, kinds, strict=True)),
    )


def _choices(
    kinds: tuple[_Size, ...], available: tuple[int, ...], first: int, parts: int, size: int
) -> Iterator[tuple[tuple[int, ...], Iterable[int]]]:
    """Yield the possible groups with a domain of the *first* kind, each with its numbers of parts (0: idle)."""
    alone = tuple(int(i == first) for i in range(len(kinds)))
    if not kinds[first].least:
        yield alone, (0,)
    for taken in itertools.product(*(range(int(i == first), count + 1) for i, count in enumerate(available))):
        least, most = _bounds(kinds, taken)
        yield taken, range(max(1, math.ceil(least / size)), min(parts, most // size) + 1)


def split(core: Mapping[int, int], pus: Sequence[int], parts: int, size: int) -> list[tuple[int, ...]]:
    """Split the PUs of one domain, best first, into *parts* of *size* PUs that share few cores.

    The last PUs are left over, which are second hardware threads if there are any. Neighbouring PUs stay together,
    unless parts of whole cores share fewer cores.
    """
    kept = sorted(pus[: parts * size], key=lambda p: (core[p], p))
    runs = [kept[i * size : (i + 1) * size] for i in range(parts)]
    chunks = min(
        runs, _whole_cores(core, kept, size), key=lambda chunks: sum(len({core[p] for p in c}) for c in chunks)
    )
    place = {pu: i for i, pu in enumerate(pus)}
    return [tuple(sorted(c, key=place.__getitem__)) for c in chunks]


def _whole_cores(core: Mapping[int, int], pus: Sequence[int], size: int) -> list[list[int]]:
    """Divide *pus* into parts of *size*, largest cores first, so that small cores fill the gaps."""
    by_core: dict[int, list[int]] = {}
    for pu in pus:
        by_core.setdefault(core[pu], []).append(pu)
    cores = sorted(by_core.values(), key=len, reverse=True)
    chunks = []
    while cores:
        chunk: list[int] = []
        for own in cores:
            if len(own) <= size - len(chunk):
                chunk += own
                own.clear()
        cores = [own for own in cores if own]
        if missing := size - len(chunk):
            # The rest of the core keeps its place in the order and goes to the next part.
            chunk += cores[0][:missing]
            del cores[0][:missing]
        chunks.append(chunk)
    return chunks
