# SPDX-License-Identifier: Apache-2.0
"""The facts of a system: sockets, NUMA nodes, PUs, caches and memory, and the metrics that checks may report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from firsttouch import units
from firsttouch.documents import Document, Problems

# ----------------------------------------------------------------------
# The checks, metrics and parameters that references may name. A reference with any other name is an error: it
# could never match a record.

#: How a NUMA node's PUs relate to a memory bank (see :meth:`firsttouch.systems.facts.Facts.relation`).
Relation = Literal["local", "neighbour", "near", "between", "farthest"]
RELATIONS: tuple[Relation, ...] = ("local", "neighbour", "near", "between", "farthest")

#: check -> metric -> unit of its records ("1": a plain count).
METRICS: dict[str, dict[str, str]] = {
    "topology": {
        "numa_nodes": "1",
        "pus": "1",
        "memory": "GiB",
        "theoretical_bandwidth": "GB/s",
        "theoretical_bandwidth_known": "1",
    },
    "latency": {"random_latency": "ns", "sequential_latency": "ns"},
    "bandwidth": {f"{kernel}_bandwidth": "GB/s" for kernel in ("copy", "scale", "add", "triad")},
    "contention": {"thread_bandwidth": "GB/s", "total_bandwidth": "GB/s"},
    "scaling": {"alignment_time": "s"},
    "placement": {"alignment_time": "s"},
    "weak_scaling": {"throughput": "kreads/s"},
}

_MEASURED = ("program", "pu_nodes", "bank", "banks", "relation", "threads", "policy", "pages")
_ALIGNED = ("aligner", "dataset", "scenario", "instances", "threads", "policy")

#: check -> the parameters of its records, and ``relation``, which follows from pu_nodes and bank.
PARAMETERS: dict[str, tuple[str, ...]] = {
    "topology": ("source",),
    "latency": (*_MEASURED, "size_bytes", "stride_bytes", "order"),
    "bandwidth": (*_MEASURED, "kernel", "instructions", "stores", "array_bytes"),
    "contention": (*_MEASURED, "kernel", "instructions", "stores", "array_bytes", "access", "mode"),
    "scaling": _ALIGNED,
    "placement": _ALIGNED,
    "weak_scaling": (*_ALIGNED, "reads_per_thread"),
}


# ----------------------------------------------------------------------
# The facts of a system's hosts, and figures derived from them

#: A DDR channel is 64 bits wide (thesis, formula 3.1: "word size").
CHANNEL_BYTES = 8


@dataclass(frozen=True)
class Cache:
    """A cache: level, type (data or unified), size (bytes) and how many PUs share it; None: unknown."""

    level: int
    type: str | None
    size_bytes: int
    pus: int | None
    source: str


@dataclass(frozen=True)
class Memory:
    """The memory modules: transfers per second and channels per package; None: unknown."""

    type: str
    transfer_rate: float | None
    channels_per_package: int | None
    source: str


@dataclass(frozen=True)
class Interconnect:
    """The links between packages: transfers per second and link width in bits; None: unknown."""

    type: str
    links_per_package: int | None
    transfer_rate: float | None
    width_bits: int | None
    source: str


@dataclass(frozen=True)
class Facts:
    """The facts of one host of a system.

    ``numa_node_numbers``, ``package_of_numa_node`` (None: of no package, or of several),
    ``cores_per_numa_node`` and ``memory_per_numa_node`` (bytes) have one entry per NUMA node, in ascending
    order of the kernel's numbers; so has ``distances`` (the firmware's, 10 is local; None: not known).
    """

    processor: str
    packages: int
    numa_nodes: int
    numa_node_numbers: tuple[int, ...]
    package_of_numa_node: tuple[int | None, ...]
    cores_per_numa_node: tuple[int, ...]
    threads_per_core: int
    pus: int
    memory_per_numa_node: tuple[int, ...]
    memory: Memory | None
    distances: tuple[tuple[int, ...], ...] | None
    caches: tuple[Cache, ...]
    interconnect: Interconnect | None
    source: str

    @property
    def cores(self) -> int:
        """Cores of the host."""
        return sum(self.cores_per_numa_node)

    @property
    def memory_bytes(self) -> int:
        """Memory of the host, in bytes."""
        return sum(self.memory_per_numa_node)

    def theoretical_bandwidth(self) -> float | None:
        """Return the theoretical bandwidth of one package's memory (bytes/s), None if it is unknown.

        Thesis section 3.2, formula 3.1: transfers per second x channels x word size. Every channel must have a
        module.
        """
        if self.memory is None or not self.memory.transfer_rate or not self.memory.channels_per_package:
            return None
        return self.memory.transfer_rate * self.memory.channels_per_package * CHANNEL_BYTES

    def relation(self, pu_node: int, bank: int) -> Relation | None:
        """Return how the PUs of NUMA node *pu_node* relate to the memory of NUMA node *bank*.

        ``local``: the same NUMA node. ``neighbour``: another one of the same package. Between packages the
        firmware's distances decide: ``near`` is the smallest one, ``farthest`` the largest one if it is larger,
        ``between`` any other. None if the facts do not have the distances or one of the NUMA nodes.
        """
        if pu_node not in self._position or bank not in self._position:
            return None
        if pu_node == bank:
            return "local"
        a, b = self._position[pu_node], self._position[bank]
        if self._same_package(a, b):
            return "neighbour"
        if self.distances is None:
            return None
        smallest, largest = self._remote_distances
        distance = self.distances[a][b]
        if distance == smallest:
            return "near"
        return "farthest" if distance == largest else "between"

    @cached_property
    def _position(self) -> dict[int, int]:
        return {number: i for i, number in enumerate(self.numa_node_numbers)}

    @cached_property
    def _remote_distances(self) -> tuple[int, int]:
        """The smallest and the largest distance between NUMA nodes of different packages."""
        distances = [
            distance
            for a, row in enumerate(self.distances or ())
            for b, distance in enumerate(row)
            if a != b and not self._same_package(a, b)
        ]
        return min(distances), max(distances)

    def _same_package(self, a: int, b: int) -> bool:
        package = self.package_of_numa_node[a]
        return package is not None and package == self.package_of_numa_node[b]


def build(document: Document, problems: Problems) -> Facts:
    """Return the facts of a document that fits the schema; contradictions are added to *problems*."""
    data = document.data["facts"]
    count = int(data["numa_nodes"])
    per_node: dict[str, tuple[Any, ...]] = {}
    for key, default in (
        ("numa_node_numbers", tuple(range(count))),
        ("package_of_numa_node", _packages(count, int(data["packages"]))),
        ("cores_per_numa_node", ()),
        ("memory_per_numa_node", ()),
    ):
        value = data.get(key, default)
        per_node[key] = tuple(value) if isinstance(value, (list, tuple)) else (value,) * count
        if len(per_node[key]) != count:
            reason = f"facts.{key} has {len(per_node[key])} entries for {count} NUMA nodes"
            problems.add(document.line("facts", key), reason)
    numbers = per_node["numa_node_numbers"]
    if list(numbers) != sorted(set(numbers)):
        line = document.line("facts", "numa_node_numbers")
        problems.add(line, "facts.numa_node_numbers are not ascending")
    if any(p is not None and p >= data["packages"] for p in per_node["package_of_numa_node"]):
        reason = f"facts.package_of_numa_node: packages are numbered from 0 to {data['packages'] - 1}"
        problems.add(document.line("facts", "package_of_numa_node"), reason)
    matrix = data.get("distances", {}).get("matrix")
    if matrix is not None and (len(matrix) != count or any(len(row) != count for row in matrix)):
        reason = f"facts.distances.matrix is not {count} x {count}, one row per NUMA node"
        problems.add(document.line("facts", "distances", "matrix"), reason)
    cores = tuple(int(c) for c in per_node["cores_per_numa_node"])
    threads = int(data["threads_per_core"])
    return Facts(
        processor=data["processor"],
        packages=int(data["packages"]),
        numa_nodes=count,
        numa_node_numbers=tuple(int(n) for n in numbers),
        package_of_numa_node=tuple(None if p is None else int(p) for p in per_node["package_of_numa_node"]),
        cores_per_numa_node=cores,
        threads_per_core=threads,
        pus=int(data.get("pus", sum(cores) * threads)),
        memory_per_numa_node=tuple(units.parse_bytes(m) for m in per_node["memory_per_numa_node"]),
        memory=_memory(data["memory"]) if "memory" in data else None,
        distances=None if matrix is None else tuple(tuple(int(d) for d in row) for row in matrix),
        caches=tuple(_cache(c) for c in data.get("caches", [])),
        interconnect=_interconnect(data["interconnect"]) if "interconnect" in data else None,
        source=data.get("source", ""),
    )


def _packages(numa_nodes: int, packages: int) -> Sequence[int | None]:
    """Return the package of each NUMA node if the firmware numbers them package by package."""
    if numa_nodes % packages:
        return (None,) * numa_nodes
    return tuple(i // (numa_nodes // packages) for i in range(numa_nodes))


def _rate(data: dict[str, Any]) -> float | None:
    return units.parse(data["transfer_rate"], "transfers per second") if "transfer_rate" in data else None


def _memory(data: dict[str, Any]) -> Memory:
    channels = data.get("channels_per_package")
    return Memory(
        data.get("type", ""), _rate(data), None if channels is None else int(channels), data.get("source", "")
    )


def _cache(data: dict[str, Any]) -> Cache:
    size = units.parse_bytes(data["size"])
    pus = None if data.get("pus") is None else int(data["pus"])
    return Cache(int(data["level"]), data.get("type"), size, pus, data.get("source", ""))


def _interconnect(data: dict[str, Any]) -> Interconnect:
    links, width = data.get("links_per_package"), data.get("width_bits")
    return Interconnect(
        type=data["type"],
        links_per_package=None if links is None else int(links),
        transfer_rate=_rate(data),
        width_bits=None if width is None else int(width),
        source=data.get("source", ""),
    )
