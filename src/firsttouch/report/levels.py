# SPDX-License-Identifier: Apache-2.0
"""The latency curve read by its levels: which of its sizes stand for which cache, and for memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from firsttouch.probe_program import NAME
from firsttouch.records import Record
from firsttouch.report.hosts import HostView, banks, pu_nodes, whole
from firsttouch.topology import Topology
from firsttouch.units import format_bytes

RANDOM = "random_latency"
SEQUENTIAL = "sequential_latency"


#: What a curve's records have in common: parameter and value.
Way = tuple[tuple[str, Any], ...]
_WAY = ("stride_bytes", "order", "pages", "effort")


@dataclass(frozen=True)
class Curve:
    """Latency over size (bytes, ascending) for loads from the PUs of some NUMA nodes to one bank.

    *program* measured it; *way* is how (stride, order of the accesses, pages): curves of one way compare.
    """

    metric: str
    pu_nodes: tuple[int, ...]
    bank: tuple[int, ...]
    program: str
    way: Way
    points: tuple[tuple[int, Record], ...]

    @property
    def local(self) -> bool:
        """Whether the memory is on the NUMA node of the PUs."""
        return self.pu_nodes == self.bank

    @property
    def stride_bytes(self) -> int | None:
        """Bytes from one load to the next in the order of the addresses, None where the records do not say."""
        stride = dict(self.way).get("stride_bytes")
        return stride if isinstance(stride, int) else None

    def compares(self, other: Curve) -> bool:
        """Tell whether two curves were measured in the same way."""
        return (self.program, self.way) == (other.program, other.way)

    @property
    def largest(self) -> tuple[int, Record]:
        """The largest size (bytes) and its record: memory, where it is well past the last cache."""
        return self.points[-1]


@dataclass(frozen=True)
class Level:
    """A cache level (or memory, of *cache_bytes* None) and the measured size that stands for it."""

    name: str
    cache_bytes: int | None
    size_bytes: int
    record: Record


def curves(view: HostView, metric: str) -> list[Curve]:
    """Return the latency curves of *metric*: local ones first, the probe's first, then by NUMA nodes and way."""
    grouped: dict[tuple[tuple[int, ...], tuple[int, ...], str, Way], dict[int, Record]] = {}
    for record in view.of("latency", metric=metric):
        known = record.parameters
        way = tuple((name, known[name]) for name in _WAY if isinstance(known.get(name), (int, str)))
        key = (pu_nodes(record), banks(record), str(known.get("program", "")), way)
        grouped.setdefault(key, {})[whole(record, "size_bytes")] = record
    found = [Curve(metric, *key, tuple(sorted(points.items()))) for key, points in grouped.items()]
    return sorted(found, key=lambda c: (not c.local, c.program != NAME, c.pu_nodes, c.bank, c.program, str(c.way)))


def worst_remote(known: Sequence[Curve]) -> Curve | None:
    """Return the curve to a remote bank with the highest latency at its largest size."""
    remote = [c for c in known if not c.local]
    return max(remote, key=lambda c: c.largest[1].value, default=None)


def cache_levels(topology: Topology | None, nodes: Sequence[int]) -> list[tuple[str, int]]:
    """Return (name, bytes) of the data caches that the PUs of *nodes* reach, smallest first.

    A host with several kinds of core has several sizes of one level: all of them are returned.
    """
    if topology is None:
        return []
    mine = {pu for node in topology.numa_nodes if node.index in nodes for pu in node.pus}
    sizes = {(c.level, c.size_bytes) for c in topology.caches if c.pus & mine and c.size_bytes}
    return sorted(
        ((f"L{level}{'d' if level == 1 else ''}", size) for level, size in sizes), key=lambda item: item[1]
    )


def by_level(curve: Curve, caches: Sequence[tuple[str, int]]) -> list[Level]:
    """Return what the curve says of each level: levels without a measured size of their own are left out.

    A cache is shared with code and other data (thesis, section 3.3), so the largest size up to half of it
    stands for it, else the largest that fits; memory is the largest size, if it is past the last cache.
    """
    levels = []
    for (_, below), (name, size) in pairwise([("", 0), *caches]):
        own = [p for p in curve.points if below < p[0] <= size]
        inner = [p for p in own if p[0] <= size / 2] or own
        if inner:
            levels.append(Level(name, size, *inner[-1]))
    size, record = curve.largest
    if caches and size > caches[-1][1]:
        levels.append(Level("memory", None, size, record))
    elif not caches:
        levels.append(Level(f"at {format_bytes(size)}", None, size, record))
    return levels
