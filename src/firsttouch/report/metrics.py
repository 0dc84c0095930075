# SPDX-License-Identifier: Apache-2.0
"""What reports derive from records: contention, matrices, cache levels, agreement, theoretical bandwidth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from firsttouch.benchmarks.probe import NAME
from firsttouch.host.topology import Topology
from firsttouch.records.schema import Record
from firsttouch.report.model import HostView, banks, pu_nodes, whole
from firsttouch.report.text import percent, quantity
from firsttouch.units import format_bytes

# ----------------------------------------------------------------------
# The levels of a latency curve: which of its sizes represent which cache, and memory.

RANDOM = "random_latency"
SEQUENTIAL = "sequential_latency"


#: Parameters and values that the records of a curve share.
MemoryWay = tuple[tuple[str, Any], ...]
#: A size that fits into a cache and takes this share of the time of memory is not in the cache.
_AS_MEMORY = 0.8
_MEMORY_WAY = ("stride_bytes", "order", "pages", "effort")


@dataclass(frozen=True)
class Curve:
    """Latency over size (bytes, ascending) for loads from the PUs of some NUMA nodes to one bank.

    Curves of the same *program* and *way* (stride, order of the accesses, pages) are comparable.
    """

    metric: str
    pu_nodes: tuple[int, ...]
    bank: tuple[int, ...]
    program: str
    way: MemoryWay
    points: tuple[tuple[int, Record], ...]

    @property
    def local(self) -> bool:
        """Whether the memory is on the NUMA node of the PUs."""
        return self.pu_nodes == self.bank

    @property
    def stride_bytes(self) -> int | None:
        """Bytes between neighbouring addresses, None if not recorded."""
        stride = dict(self.way).get("stride_bytes")
        return stride if isinstance(stride, int) else None

    @property
    def largest(self) -> tuple[int, Record]:
        """The largest size (bytes) and its record."""
        return self.points[-1]


@dataclass(frozen=True)
class Level:
    """A cache level, or memory (*cache_bytes* None), and the measured size that represents it.

    A level is not *seen* if this size fits, but is as slow as memory: the host has a part of the cache only.
    """

    name: str
    cache_bytes: int | None
    size_bytes: int
    record: Record
    seen: bool = True

    def why_unseen(self) -> str:
        """Return what was measured in place of the level."""
        value = quantity(self.record.value, self.record.unit)
        return (
            f"{value} at {format_bytes(self.size_bytes)}, as from memory: the cache is shared with others, "
            "or a part of it is reserved"
        )


def curves(view: HostView, metric: str) -> list[Curve]:
    """Return the latency curves of *metric*: local ones first, the probe's first, then by NUMA nodes and way."""
    grouped: dict[tuple[tuple[int, ...], tuple[int, ...], str, MemoryWay], dict[int, Record]] = {}
    for record in view.of("latency", metric=metric):
        p = record.parameters
        way = tuple((name, p[name]) for name in _MEMORY_WAY if isinstance(p.get(name), (int, str)))
        key = (pu_nodes(record), banks(record), str(p.get("program", "")), way)
        grouped.setdefault(key, {})[whole(record, "size_bytes")] = record
    unordered = [Curve(metric, *key, tuple(sorted(points.items()))) for key, points in grouped.items()]
    return sorted(unordered, key=_curve_order)


def _curve_order(curve: Curve) -> tuple[Any, ...]:
    by_others = curve.program != NAME
    return (not curve.local, by_others, curve.pu_nodes, curve.bank, curve.program, str(curve.way))


def worst_remote_latency(curves: Sequence[Curve], local: Curve) -> Curve | None:
    """Return the curve to a remote bank with the highest latency at its largest size, measured as *local* was."""
    remote = [c for c in curves if not c.local and (c.program, c.way) == (local.program, local.way)]
    return max(remote, key=lambda c: c.largest[1].value, default=None)


def local_latency(view: HostView) -> Record | None:
    """Return the record that stands for the latency of local memory: the largest size of the first local curve."""
    return next((c.largest[1] for c in curves(view, RANDOM) if c.local), None)


def cache_levels(topology: Topology | None, nodes: Sequence[int]) -> list[tuple[str, int]]:
    """Return (name, bytes) of the data caches that the PUs of *nodes* reach, smallest first.

    A host with several kinds of core may have several sizes of a level; all of them are returned.
    """
    if topology is None:
        return []
    pus = {pu for node in topology.numa_nodes if node.index in nodes for pu in node.pus}
    sizes = {(c.level, c.size_bytes) for c in topology.caches if c.pus & pus and c.size_bytes}
    return sorted(
        ((f"L{level}{'d' if level == 1 else ''}", size) for level, size in sizes), key=lambda item: item[1]
    )


def by_level(curve: Curve, caches: Sequence[tuple[str, int]]) -> list[Level]:
    """Return the levels that a measured size of the curve represents.

    A cache is shared with code and other data (thesis, section 3.3), so the largest size up to half of it
    represents it, else the largest that fits. The largest size represents memory if no cache holds it, and a level
    that is nearly as slow is not seen.
    """
    levels = []
    for (_, below), (name, size) in pairwise([("", 0), *caches]):
        fitting = [p for p in curve.points if below < p[0] <= size]
        inner = [p for p in fitting if p[0] <= size / 2] or fitting
        if inner:
            levels.append(Level(name, size, *inner[-1]))
    size, record = curve.largest
    if caches and size > caches[-1][1]:
        levels = [replace(level, seen=level.record.value < _AS_MEMORY * record.value) for level in levels]
        levels.append(Level("memory", None, size, record))
    elif not caches:
        levels.append(Level(f"at {format_bytes(size)}", None, size, record))
    return levels


# ----------------------------------------------------------------------
# Measured bandwidth as a fraction of the theoretical one (thesis, section 3.2, formula 3.1).

METRIC = "theoretical_bandwidth"
KNOWN = "theoretical_bandwidth_known"


def fraction(view: HostView, record: Record) -> float | None:
    """Return the record's rate over the theoretical bandwidth of its banks, None if that is unknown.

    Formula 3.1 gives the theoretical bandwidth of a package, and all banks are assumed to be alike.
    """
    bank = bank_bandwidth(view)
    if bank is None or record.unit != "GB/s" or not banks(record):
        return None
    return record.value / (bank * len(banks(record)))


def of_theory(view: HostView, record: Record) -> str:
    """Return the record's rate as a share of the theoretical one, an empty text if that is unknown."""
    share = fraction(view, record)
    return "" if share is None else f"{percent(share)} of theory"


def bank_bandwidth(view: HostView) -> float | None:
    """Return the theoretical bandwidth of one bank (GB/s), None if it is unknown; all are assumed to be alike."""
    theory = theoretical(view)
    if theory is None or theory.unit != "GB/s":
        return None
    packages, all_banks = theory.parameters.get("packages"), theory.parameters.get("banks")
    if not isinstance(packages, int) or not isinstance(all_banks, int) or not all_banks or theory.value <= 0:
        return None
    return theory.value * packages / all_banks


def theoretical(view: HostView) -> Record | None:
    """Return the newest record of the theoretical bandwidth, whatever its source: verdicts take the same one."""
    return max(view.of("topology", metric=METRIC), key=lambda r: (r.time, r.value), default=None)


def unknown(view: HostView) -> str:
    """Return why the theoretical bandwidth of the host is unknown, an empty text if any record has it."""
    if theoretical(view) is not None:
        return ""
    record = max(view.of("topology", metric=KNOWN), key=lambda r: r.time, default=None)
    return str(record.parameters.get("reason", "")) if record is not None and not record.value else ""
