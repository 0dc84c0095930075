# SPDX-License-Identifier: Apache-2.0
"""Core-to-core latency: figures of a matrix of pairs of PUs, and the host's structure that it shows.

:func:`summary` makes the records of a whole matrix. PUs that share a core, a cache or a package are recovered from
the latencies alone (:func:`levels`) and held against what hwloc reports (:func:`compare`).
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from firsttouch.benchmarks import probe, profiles, programs
from firsttouch.benchmarks.cases import Cases
from firsttouch.benchmarks.measure import AspectRequest, Benchmark, ReframeTest, run
from firsttouch.host.cpusets import format_list
from firsttouch.host.topology import Topology
from firsttouch.records.schema import Record

#: Two levels of closeness are apart if the latency grows by at least this factor from one to the next. On
#: published matrices it doubles from the threads of a core to a shared cache, and again to another cache or
#: package. Within a mesh of cores, neighbouring latencies differ by less.
GAP = 4 / 3
#: hwloc's levels that always show, because what is shared is a cache. Transfers between the NUMA nodes of a
#: package, or between packages, may be as fast as others.
ALWAYS_SEEN = ("core", "cache")
#: The most contradicting pairs that a record lists.
_LISTED = 20

#: The parameter ``line`` of figures whose line is on the bank nearest to one of the two PUs.
NEAR = "near"

Pair = tuple[int, int]
Groups = frozenset[frozenset[int]]


class Level(Struct, frozen=True):
    """A level of closeness that a matrix shows: *groups* of PUs that are close to each other.

    Groups hang together by latencies of at most *within*, and are at least *between* apart (ns).
    """

    groups: Groups
    within: float
    between: float


class Comparison(Struct, frozen=True):
    """The levels of a matrix held against hwloc's.

    *names* has hwloc's name of each level of the matrix, empty if hwloc has no such groups. *contradicting* are
    the measured pairs that the one puts into one group and the other into two. *unseen* are hwloc's levels that
    the matrix does not show and need not show.
    """

    names: tuple[str, ...]
    contradicting: tuple[Pair, ...]
    unseen: tuple[str, ...]


def levels(latencies: Mapping[Pair, float]) -> list[Level]:
    """Return the levels of closeness that the latencies (ns) of measured pairs show, the closest first.

    Single linkage: pairs join their PUs' groups in the order of their latencies. Where the next latency that joins
    two groups is larger by the factor :data:`GAP`, the groups so far are a level. Not all pairs need be measured.
    """
    group_of = {pu: frozenset([pu]) for pair in latencies for pu in pair}
    shown: list[Level] = []
    last = math.inf
    for (a, b), latency in sorted(latencies.items(), key=lambda item: (item[1], item[0])):
        if group_of[a] is group_of[b]:
            continue
        if latency >= GAP * last:
            shown.append(Level(frozenset(group_of.values()), last, latency))
        joined = group_of[a] | group_of[b]
        group_of |= dict.fromkeys(joined, joined)
        last = latency
    return shown


def levels_of_host(host: Topology, pus: Iterable[int]) -> dict[str, Groups]:
    """Return hwloc's groups of *pus* by the name of what they share, the closest first.

    Groups that are all alone, or all together, are left out. Equal ones have the name of the closest.
    """
    chosen = frozenset(pus)
    of = {pu.index: pu for pu in host.pus if pu.index in chosen}
    sharing: list[tuple[str, list[frozenset[int]]]] = [("core", _alike({i: p.core for i, p in of.items()}))]
    sharing += [
        (f"L{level} cache", [c.pus for c in host.caches if c.level == level])
        for level in sorted({c.level for c in host.caches})
    ]
    sharing.append(("NUMA node", _alike({i: p.numa_node for i, p in of.items()})))
    sharing.append(("package", _alike({i: p.package for i, p in of.items()})))
    named: dict[str, Groups] = {}
    for name, sets in sharing:
        groups = {s & chosen for s in sets if s & chosen}
        groups |= {frozenset([pu]) for pu in chosen.difference(*groups)}
        if 1 < len(groups) < len(chosen) and frozenset(groups) not in named.values():
            named[name] = frozenset(groups)
    return named


def _alike(of: Mapping[int, int | None]) -> list[frozenset[int]]:
    members: dict[int | None, set[int]] = defaultdict(set)
    for pu, number in of.items():
        members[number].add(pu)
    return [frozenset(m) for m in members.values()]


def compare(shown: Sequence[Level], hwloc: Mapping[str, Groups], pairs: Iterable[Pair]) -> Comparison:
    """Hold the levels of a matrix of *pairs* against hwloc's."""
    measured = sorted(pairs)
    of_hwloc = {name: _together(groups, measured) for name, groups in hwloc.items()}
    of_matrix = [_together(level.groups, measured) for level in shown]
    names: list[str] = []
    contradicting: set[Pair] = set()
    for together in of_matrix:
        differing = {name: together ^ pairs_of for name, pairs_of in of_hwloc.items()}
        nearest = min(differing, key=lambda name: len(differing[name]), default="")
        wrong = differing[nearest] if nearest else together
        names.append("" if wrong else nearest)
        contradicting |= wrong
    unseen = [name for name, together in of_hwloc.items() if together and together not in of_matrix]
    for name in unseen:
        if name.endswith(ALWAYS_SEEN):
            differing_levels = [of_hwloc[name] ^ together for together in of_matrix]
            contradicting |= min([of_hwloc[name], *differing_levels], key=len)
    need_not = tuple(name for name in unseen if not name.endswith(ALWAYS_SEEN))
    return Comparison(tuple(names), tuple(sorted(contradicting)), need_not)


def _together(groups: Groups, pairs: Iterable[Pair]) -> frozenset[Pair]:
    """Return the pairs whose PUs are in one group."""
    number = {pu: i for i, group in enumerate(groups) for pu in group}
    return frozenset(pair for pair in pairs if number[pair[0]] == number[pair[1]])


# ----------------------------------------------------------------------
# Records


def summary(matrix: Sequence[Record], host: Topology) -> Iterator[Record]:
    """Yield the records that summarize a whole matrix: *matrix* are the records of its pairs.

    ``transfer_latency`` (ns) of each closeness is the median over its pairs in each repetition. ``clusters_agree``
    is 1 if the groups of PUs that pairs with a near line show are hwloc's, else 0. Fewer than three PUs show no
    groups.
    """
    valid = [r for r in matrix if r.status == "valid"]
    kinds: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
    for record in valid:
        p = record.parameters
        kinds[p["shared"], p.get("cache_level", 0), _line(record, host)].append(record)
    for (_, _, line), records in kinds.items():
        yield _transfer(records, line)
    yield from _agreement([r for (*_, line), records in kinds.items() if line == NEAR for r in records], host)


def _line(record: Record, host: Topology) -> str:
    """Return NEAR if the line is on the bank nearest to one of the two PUs, else "far"."""
    bank, nodes = record.parameters["bank"], record.parameters["pu_nodes"]
    nearest = {min(host.memory_nodes, key=lambda b: (host.distance(node, b), b)) for node in nodes}
    return NEAR if bank in nearest else "far"


def _transfer(records: Sequence[Record], line: str) -> Record:
    first = records[0]
    repetitions = min(len(r.samples) for r in records)
    samples = tuple(statistics.median(r.samples[k] for r in records) for k in range(repetitions))
    names = ("program", "policy", "shared", "cache_level", "pairs", "pairs_of", "effort")
    parameters = {name: first.parameters[name] for name in names if name in first.parameters}
    return replace(
        first,
        metric="transfer_latency",
        samples=samples,
        parameters={**parameters, "line": line},
        placement_asked=(),
        placement_found=(),
    )


def _agreement(records: Sequence[Record], host: Topology) -> Iterator[Record]:
    latencies: dict[Pair, float] = {}
    for record in records:
        a, b = sorted(record.parameters["pus"])
        latencies[a, b] = min(record.value, latencies.get((a, b), math.inf))
    pus = {pu for pair in latencies for pu in pair}
    if len(pus) < 3:
        return
    shown = levels(latencies)
    against = compare(shown, levels_of_host(host, pus), latencies)
    first = records[0]
    parameters = {name: first.parameters[name] for name in ("program", "effort") if name in first.parameters}
    parameters |= {
        "levels": [
            {
                "hwloc": name,
                "groups": sorted(format_list(group) for group in level.groups if len(group) > 1),
                "within_ns": level.within,
                "between_ns": level.between,
            }
            for name, level in zip(against.names, shown, strict=True)
        ],
        "contradictions": len(against.contradicting),
        "contradicting": [list(pair) for pair in against.contradicting[:_LISTED]],
        "unseen": list(against.unseen),
    }
    agree = (float(not against.contradicting),)
    yield Record(
        *("core_to_core", "clusters_agree", "1", "neither", agree), parameters=parameters, software=first.software
    )


def describe(record: Record) -> str:
    """Return the line of progress of a record of :func:`summary`."""
    p = record.parameters
    if record.metric == "transfer_latency":
        what = f"L{p['cache_level']} cache" if p["shared"] == "cache" else p["shared"]
        coverage = f"{p['pairs']} of {p['pairs_of']} pairs"
        return f"transfer between PUs that share the {what}: {record.value:.1f} ns ({coverage})"
    shown = ", ".join(level["hwloc"] or f"groups {' '.join(level['groups'])}" for level in p["levels"])
    if record.value:
        return f"the matrix shows what hwloc reports: {shown or 'no groups of PUs'}"
    pairs = ", ".join(f"{a}-{b}" for a, b in p["contradicting"][:5])
    return f"the matrix contradicts hwloc at {p['contradictions']} pairs: {pairs}; it shows {shown or 'no groups'}"


def _measure(host: Topology, asked: AspectRequest, say: probe.Say) -> Iterator[list[Record]]:
    """Measure pairs of PUs, with the line on the bank nearest to the first of them unless banks are given."""
    nodes = tuple(asked.pu_nodes or host.cpu_nodes)
    options = [f"--pairs={profiles.chosen().pairs}"]
    options += programs.place(host, nodes, asked.banks or ())
    matrix: list[Record] = []
    for records in run(asked, options, say):
        matrix.extend(records)
        yield records
    figures = list(summary(matrix, host))
    for record in figures:
        say(describe(record))
    yield figures


def _steps(cases: Cases) -> list[list[str]]:
    return [[]] if len(cases.host.allowed_pus) > 1 else []


def _label(record: Record, _cases: Cases) -> str | None:
    """Name a variable per kind of closeness. The pairs are in the records only."""
    p = record.parameters
    if record.metric != "transfer_latency":
        return None
    return f"transfer_{p['shared']}{p.get('cache_level', '')}"


_TEST = ReframeTest(
    "core_to_core",
    lambda _: "latency between pairs of PUs",
    least_records=lambda _: 2,  # one pair, and the figure of its kind
    label=_label,
    refused=lambda cases: "" if _steps(cases) else "one PU has no other to exchange a line with",
)
BENCHMARK = Benchmark(
    _measure,
    frozenset({"pu_nodes", "banks"}),
    steps=_steps,
    small=("--pairs=8",),  # one thread of an emulator may run all PUs in turn
    tests=(_TEST,),
)
