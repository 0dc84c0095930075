# SPDX-License-Identifier: Apache-2.0
"""The facts of a system: sockets, NUMA nodes, PUs, caches and memory, and figures derived from them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from firsttouch import units
from firsttouch.documents import Bytes, FileTable, ParsedFile, Text, Transfers
from firsttouch.errors import BadInput
from firsttouch.systems import processors

#: How a NUMA node's PUs relate to a memory bank (see :meth:`firsttouch.systems.facts.Facts.relation`).
Relation = Literal["local", "neighbour", "near", "between", "farthest"]
RELATIONS: tuple[Relation, ...] = ("local", "neighbour", "near", "between", "farthest")

#: A DDR channel is 64 bits wide (thesis, formula 3.1: "word size").
CHANNEL_BYTES = 8


_Count = Annotated[int, Meta(ge=1, le=65536, description="a whole number from 1 to 65536")]
_Index = Annotated[int, Meta(ge=0)]
#: One value for all NUMA nodes, or a list with one for each.
_Cores = _Count | tuple[Annotated[int, Meta(ge=0, le=65536)], ...]


class CacheFacts(FileTable, frozen=True):
    """A cache: level, size, and how many PUs share it; None: unknown."""

    level: _Count
    size_bytes: Bytes = field(name="size")
    pus: _Count | None = None
    type: Literal["data", "unified"] | None = None
    source: Text = ""


class _Memory(FileTable, frozen=True):
    #: "all": every channel of the processor has a module of the highest rate.
    modules: Literal["all"] | None = None
    type: Text = ""
    transfer_rate: Transfers | None = None
    channels_per_package: _Count | None = None
    source: Text = ""


class _Distances(FileTable, frozen=True):
    matrix: tuple[tuple[Annotated[int, Meta(ge=1)], ...], ...]
    source: Text = ""


class FactsTable(FileTable, frozen=True):
    """The facts as a system's file states them."""

    processor: Text
    packages: _Count
    numa_nodes: _Count
    cores_per_numa_node: _Cores
    threads_per_core: _Count
    memory_per_numa_node: str | tuple[str, ...]
    numa_node_numbers: tuple[_Index, ...] | None = None
    package_of_numa_node: tuple[_Index | None, ...] | None = None
    pus: _Count | None = None
    memory: _Memory = _Memory()
    distances: _Distances | None = None
    caches: tuple[CacheFacts, ...] = ()
    source: Text = ""


class Facts(Struct, frozen=True, dict=True):
    """The facts of one host of a system.

    ``numa_node_numbers``, ``package_of_numa_node`` (None: of no package, or of several), ``cores_per_numa_node``,
    ``memory_per_numa_node`` (bytes) and ``distances`` (the firmware's, 10 is local; None: unknown) have an entry
    per NUMA node, in ascending order of the kernel's numbers. ``transfer_rate`` (per second) and
    ``channels_per_package`` describe the memory; None: unknown.
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
    caches: tuple[CacheFacts, ...]

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
        firmware's distances decide: ``near`` is the smallest, ``farthest`` a larger largest one, ``between`` any
        other. None if the facts lack the distances or a NUMA node.
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


def build(document: ParsedFile, stated: FactsTable) -> Facts:
    """Return the facts that a document has *stated*, and note contradictions as its problems."""
    count, packages = stated.numa_nodes, stated.packages

    def problem(reason: str, *where: str) -> None:
        document.problem(f"facts.{'.'.join(where)}{reason}", "facts", *where)

    def per_node(key: str, default: Sequence[Any] = ()) -> tuple[Any, ...]:
        value = default if (value := getattr(stated, key)) is None else value
        values = (value,) * count if isinstance(value, (str, int)) else tuple(value)
        if len(values) != count:
            problem(f" has {len(values)} entries for {count} NUMA nodes", key)
        return values

    def size_of(text: str) -> int:
        try:
            if text.strip().isdecimal():
                raise BadInput(f"'{text}' has no unit, such as GiB")
            return units.parse_bytes(text)
        except BadInput as error:
            problem(f": {error}", "memory_per_numa_node")
            return 0

    numbers = per_node("numa_node_numbers", range(count))
    if list(numbers) != sorted(set(numbers)):
        problem(" are not ascending", "numa_node_numbers")
    package_of = per_node("package_of_numa_node", _packages(count, packages))
    if any(p is not None and p >= packages for p in package_of):
        problem(f": packages are numbered from 0 to {packages - 1}", "package_of_numa_node")
    matrix = stated.distances.matrix if stated.distances else None
    if matrix is not None and (len(matrix) != count or any(len(row) != count for row in matrix)):
        problem(f" is not {count} x {count}, one row per NUMA node", "distances", "matrix")
    cores = per_node("cores_per_numa_node")
    processor, memory = processors.find(stated.processor), stated.memory
    if memory.modules and processor is None:
        problem(f": no file of processors describes '{stated.processor}'", "memory", "modules")
    elif memory.modules and processor:
        of_processor = processor.family.memory
        memory = _Memory(transfer_rate=of_processor.transfer_rate, channels_per_package=of_processor.channels)
    return Facts(
        processor=stated.processor,
        packages=packages,
        numa_nodes=count,
        numa_node_numbers=numbers,
        package_of_numa_node=package_of,
        cores_per_numa_node=cores,
        threads_per_core=stated.threads_per_core,
        pus=stated.pus or sum(cores) * stated.threads_per_core,
        memory_per_numa_node=tuple(map(size_of, per_node("memory_per_numa_node"))),
        transfer_rate=memory.transfer_rate,
        channels_per_package=memory.channels_per_package,
        distances=matrix,
        caches=stated.caches,
    )


def _packages(numa_nodes: int, packages: int) -> Sequence[int | None]:
    """Return the package of each NUMA node if the firmware numbers them package by package."""
    if numa_nodes % packages:
        return (None,) * numa_nodes
    return tuple(i // (numa_nodes // packages) for i in range(numa_nodes))
