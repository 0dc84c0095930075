# SPDX-License-Identifier: Apache-2.0
"""The facts of a system: sockets, NUMA nodes, PUs, caches and memory, and figures derived from them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal

from msgspec import Struct

from firsttouch import units
from firsttouch.documents import Document

#: How a NUMA node's PUs relate to a memory bank (see :meth:`firsttouch.systems.facts.Facts.relation`).
Relation = Literal["local", "neighbour", "near", "between", "farthest"]
RELATIONS: tuple[Relation, ...] = ("local", "neighbour", "near", "between", "farthest")

#: A DDR channel is 64 bits wide (thesis, formula 3.1: "word size").
CHANNEL_BYTES = 8


class Cache(Struct, frozen=True):
    """A cache: level, size, and how many PUs share it; None: unknown."""

    level: int
    size_bytes: int
    pus: int | None


class Facts(Struct, frozen=True, dict=True):
    """The facts of one host of a system.

    ``numa_node_numbers``, ``package_of_numa_node`` (None: of no package, or of several),
    ``cores_per_numa_node`` and ``memory_per_numa_node`` (bytes) have one entry per NUMA node, in ascending
    order of the kernel's numbers; so has ``distances`` (the firmware's, 10 is local; None: not known).
    ``transfer_rate`` (per second) and ``channels_per_package`` are those of the memory; None: unknown.
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
    transfer_rate: float | None
    channels_per_package: int | None
    distances: tuple[tuple[int, ...], ...] | None
    caches: tuple[Cache, ...]

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
        if not self.transfer_rate or not self.channels_per_package:
            return None
        return self.transfer_rate * self.channels_per_package * CHANNEL_BYTES

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


def build(document: Document) -> Facts:
    """Return the facts of a document that fits the schema, and note contradictions as its problems."""
    data = document.data["facts"]
    count, packages = int(data["numa_nodes"]), int(data["packages"])

    def problem(reason: str, *where: str) -> None:
        document.problem(f"facts.{'.'.join(where)}{reason}", "facts", *where)

    def per_node(key: str, default: Sequence[Any] = ()) -> tuple[Any, ...]:
        value = data.get(key, default)
        values = (value,) * count if isinstance(value, (str, int, float)) else tuple(value)
        if len(values) != count:
            problem(f" has {len(values)} entries for {count} NUMA nodes", key)
        return values

    numbers = per_node("numa_node_numbers", range(count))
    if list(numbers) != sorted(set(numbers)):
        problem(" are not ascending", "numa_node_numbers")
    package_of = per_node("package_of_numa_node", _packages(count, packages))
    if any(p is not None and p >= packages for p in package_of):
        problem(f": packages are numbered from 0 to {packages - 1}", "package_of_numa_node")
    matrix = data.get("distances", {}).get("matrix")
    if matrix is not None and (len(matrix) != count or any(len(row) != count for row in matrix)):
        problem(f" is not {count} x {count}, one row per NUMA node", "distances", "matrix")
    cores = tuple(map(int, per_node("cores_per_numa_node")))
    threads = int(data["threads_per_core"])
    memory = data.get("memory", {})
    rate = memory.get("transfer_rate")
    return Facts(
        processor=data["processor"],
        packages=packages,
        numa_nodes=count,
        numa_node_numbers=tuple(map(int, numbers)),
        package_of_numa_node=tuple(map(_whole, package_of)),
        cores_per_numa_node=cores,
        threads_per_core=threads,
        pus=int(data.get("pus", sum(cores) * threads)),
        memory_per_numa_node=tuple(map(units.parse_bytes, per_node("memory_per_numa_node"))),
        transfer_rate=None if rate is None else units.parse(rate, "transfers per second"),
        channels_per_package=_whole(memory.get("channels_per_package")),
        distances=None if matrix is None else tuple(tuple(map(int, row)) for row in matrix),
        caches=tuple(
            Cache(int(cache["level"]), units.parse_bytes(cache["size"]), _whole(cache.get("pus")))
            for cache in data.get("caches", [])
        ),
    )


def _packages(numa_nodes: int, packages: int) -> Sequence[int | None]:
    """Return the package of each NUMA node if the firmware numbers them package by package."""
    if numa_nodes % packages:
        return (None,) * numa_nodes
    return tuple(i // (numa_nodes // packages) for i in range(numa_nodes))


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)
