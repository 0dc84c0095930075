# SPDX-License-Identifier: Apache-2.0
"""What reports derive from records: contention, matrices, cache levels, agreement, theoretical bandwidth."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from firsttouch.benchmarks.probe import NAME
from firsttouch.host.cpusets import format_list
from firsttouch.host.topology import Topology
from firsttouch.records.schema import Record
from firsttouch.report.aspect import way_name
from firsttouch.report.model import HostView, Table, banks, pu_nodes, whole
from firsttouch.report.text import clean, number, percent, quantity
from firsttouch.units import format_bytes

# ----------------------------------------------------------------------
# Bandwidth as matrices of PU-sets by memory banks, one per kernel and way of measuring.

#: The order of STREAM; other kernels follow alphabetically.
KERNELS = ("copy", "scale", "add", "triad")
#: Parameters that vary within a matrix, so they do not identify one.
_WITHIN = ("kernel", "pu_nodes", "bank", "banks", "threads", "array_bytes", "pus", "stands_for")

Nodes = tuple[int, ...]
#: PU-set and bank, and the record.
Cell = tuple[tuple[Nodes, Nodes], Record]


@dataclass(frozen=True)
class Matrix:
    """The records of one kernel by (PU-set, bank)."""

    kernel: str
    cells: Mapping[tuple[Nodes, Nodes], Record]

    @property
    def rows(self) -> list[Nodes]:
        """The PU-sets: single NUMA nodes first."""
        return sorted({row for row, _ in self.cells}, key=lambda nodes: (len(nodes), nodes))

    @property
    def columns(self) -> list[Nodes]:
        """The banks."""
        return sorted({bank for _, bank in self.cells}, key=lambda nodes: (len(nodes), nodes))

    def local(self) -> list[Cell]:
        """Return the cells whose PUs and memory are on the same NUMA nodes, of the smallest PU-sets only.

        More PUs do not make a bank faster.
        """
        cells = [(place, r) for place, r in self.cells.items() if place[0] == place[1]]
        smallest = min((len(place[0]) for place, _ in cells), default=0)
        return [cell for cell in cells if len(cell[0][0]) == smallest]

    def remote(self) -> list[Cell]:
        """Return the cells whose PUs and memory share no NUMA node."""
        return [cell for cell in self.cells.items() if not set(cell[0][0]) & set(cell[0][1])]

    def best_local(self) -> Cell | None:
        """Return the local cell with the highest bandwidth."""
        return max(self.local(), key=_value, default=None)

    def worst_remote(self) -> Cell | None:
        """Return the cell with the lowest bandwidth among the remote ones."""
        return min(self.remote(), key=_value, default=None)


def _value(cell: Cell) -> float:
    return cell[1].value


@dataclass(frozen=True)
class Variant:
    """One way of measuring (program, instructions, stores, policy, ...) and its matrices."""

    parameters: Mapping[str, Any]
    matrices: tuple[Matrix, ...]

    @property
    def name(self) -> str:
        """The way of measuring as a title: ``likwid-bench, avx512 instructions, regular stores, membind``."""
        return way_name(self.parameters) or "bandwidth"

    @property
    def by_probe(self) -> bool:
        """Whether the probe measured."""
        return self.parameters.get("program") == NAME

    def records(self) -> Iterator[Record]:
        """Yield the records of all matrices."""
        for matrix in self.matrices:
            yield from matrix.cells.values()


def _rank(kernel: str) -> tuple[int, str]:
    return (KERNELS.index(kernel) if kernel in KERNELS else len(KERNELS), kernel)


def variants(view: HostView) -> list[Variant]:
    """Return every way of measuring bandwidth among the valid records of a host, in a stable order."""
    grouped: dict[str, list[Record]] = {}
    for record in view.of("bandwidth"):
        way = {k: v for k, v in record.parameters.items() if k not in _WITHIN}
        order = ("program", "instructions", "stores", "policy")
        ordered = {k: way[k] for k in (*order, *sorted(set(way) - set(order))) if k in way}
        grouped.setdefault(json.dumps(ordered, default=str), []).append(record)
    result = []
    for key, records in sorted(grouped.items()):
        kernels: dict[str, dict[tuple[Nodes, Nodes], Record]] = {}
        for record in records:
            # The metric names the kernel (copy_bandwidth); the parameter is the name that the program uses.
            kernel = record.metric.removesuffix("_bandwidth") or str(record.parameters["kernel"])
            kernels.setdefault(kernel, {})[pu_nodes(record), banks(record)] = record
        matrices = tuple(Matrix(k, kernels[k]) for k in sorted(kernels, key=_rank))
        result.append(Variant(json.loads(key), matrices))
    return result


def drawn(ways: list[Variant]) -> list[Variant]:
    """Return the ways with matrices: those of the probe, and others with more than local cells."""
    probe = [way for way in ways if way.by_probe]
    rest = [way for way in ways if way not in probe]
    return [
        *probe,
        *(way for way in rest if not probe or any(row != bank for m in way.matrices for row, bank in m.cells)),
    ]


def best_local(ways: list[Variant], kernel: str) -> tuple[Variant, Matrix, Cell] | None:
    """Return the way, matrix and cell of the highest local bandwidth of *kernel*.

    Of several ways of measuring, the one with the smallest PU-sets counts, then the one with the most cells.
    """
    candidates = [
        (way, matrix, cell)
        for way in ways
        for matrix in way.matrices
        if matrix.kernel == kernel and (cell := matrix.best_local())
    ]

    # A candidate is (way, matrix, ((PU-set, bank), record)).
    def order(item: tuple[Variant, Matrix, Cell]) -> tuple[int, int, bool, float]:
        return (-len(item[2][0][0]), len(item[1].cells), item[0].by_probe, _value(item[2]))

    return max(candidates, key=order, default=None)


#: The kernel that stands for the bandwidth of a host, in order of preference.
_STANDS = ("triad", "copy", "add", "scale")


def local_bandwidth(view: HostView) -> Record | None:
    """Return the record that stands for the bandwidth of local memory."""
    best = stands_for_bandwidth(view)
    return best[2][1] if best else None


def stands_for_bandwidth(view: HostView) -> tuple[Variant, Matrix, Cell] | None:
    """Return the way, matrix and cell that stand for the bandwidth of local memory: triad, or what there is."""
    ways = variants(view)
    return next(filter(None, (best_local(ways, kernel) for kernel in _STANDS)), None)


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
# The probe compared with other programs: the same case on the same host.

#: Store types that count as equal; the compiler chooses those of STREAM, and STREAM does not report which.
_REGULAR = frozenset({"regular", "compiler", None})
#: Parameters that identify a case, beside PU-set and bank.
_SAME = ("threads", "size_bytes")


def program(record: Record) -> str:
    """Return the program that measured, an empty text if not recorded."""
    return clean(str(record.parameters.get("program", "")))


def beside(view: HostView, record: Record) -> list[Record]:
    """Return the records of other programs that measured the same case as *record*, by program."""
    return _among(view.of(record.check, metric=record.metric), record)


def _among(records: Iterable[Record], record: Record) -> list[Record]:
    return sorted(
        (r for r in records if r.metric == record.metric and program(r) != program(record) and _alike(record, r)),
        key=program,
    )


def _alike(record: Record, other: Record) -> bool:
    a, b = record.parameters, other.parameters
    same = all(n not in a or n not in b or a[n] == b[n] for n in _SAME)
    regular = {a.get("stores"), b.get("stores")} <= _REGULAR
    return same and regular and (pu_nodes(record), banks(record)) == (pu_nodes(other), banks(other))


def table(view: HostView, records: Sequence[Record]) -> Table | None:
    """Return the probe's *records* beside those of other programs in the same case, None if there are none."""
    others = [r for check in {r.check for r in records} for r in view.of(check) if program(r) != NAME]
    rows = [
        (
            record.metric.replace("_", " "),
            format_list(pu_nodes(record)),
            format_list(banks(record)),
            number(record.value),
            percent(record.spread),
            program(other),
            number(other.value),
            percent(other.spread),
            f"{record.value / other.value:.2f}" if other.value else "",
        )
        for record in records
        if program(record) == NAME
        for other in _among(others, record)
    ]
    if not rows:
        return None
    unit = records[0].unit
    header = (
        "metric",
        "PU-set",
        "bank",
        "probe",
        "spread",
        "other program",
        "its value",
        "its spread",
        "probe / other",
    )
    return Table(f"The probe and other programs ({unit}, medians)", header, rows, frozenset({3, 4, 6, 7, 8}))


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
