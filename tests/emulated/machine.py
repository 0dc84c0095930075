# SPDX-License-Identifier: Apache-2.0
"""The emulated machines: one TOML file each in machines/, validated when it is read."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from firsttouch.errors import BadInput
from firsttouch.units import parse_bytes

MACHINES = Path(__file__).resolve().parent / "machines"
MIB = 1 << 20
#: With less than this, the kernel, whose own memory is on NUMA node 0, cannot start its first process.
LEAST_MEMORY_OF_NODE_0 = 256 * MIB

#: key -> type, for all keys of a machine's file; the first five are required, in the file itself or in the
#: machine that it names as its base.
KEYS: dict[str, type | tuple[type, ...]] = {
    "description": str,
    "cpu": str,
    "pus": (int, list),
    "memory": (str, list),
    "distances": list,
    "dies_per_socket": int,
    "threads_per_core": int,
    "offline_pus": list,
    "allowed_nodes": list,
    "base": str,
    "bandwidth": list,
    "latency": list,
}
REQUIRED = tuple(KEYS)[:5]


@dataclasses.dataclass(frozen=True)
class Machine:
    """The machine that the guest must see; index i of a tuple is NUMA node i."""

    name: str
    description: str
    #: QEMU's CPU model with its features.
    cpu: str
    #: Number of PUs of each NUMA node; PUs are numbered consecutively, starting with node 0.
    pus: tuple[int, ...]
    #: Bytes of each NUMA node.
    memory: tuple[int, ...]
    distances: tuple[tuple[int, ...], ...]
    dies_per_socket: int = 1
    threads_per_core: int = 1
    #: PUs that are set offline before the first command runs.
    offline_pus: tuple[int, ...] = ()
    #: NUMA nodes that the cpuset of every command allows; empty: no cpuset.
    allowed_nodes: tuple[int, ...] = ()
    #: What the firmware states in its HMAT, from each NUMA node with PUs to each NUMA node: GB/s and ns. Empty: no
    #: HMAT. A NUMA node without PUs has as its initiator the NUMA node of the highest bandwidth.
    bandwidth: tuple[tuple[int, ...], ...] = ()
    latency: tuple[tuple[int, ...], ...] = ()

    @property
    def nodes(self) -> range:
        return range(len(self.distances))

    def pus_of(self, node: int) -> range:
        """Return the numbers of the PUs of NUMA node *node*, offline ones included."""
        first = sum(self.pus[:node])
        return range(first, first + self.pus[node])

    def with_memory_per_node(self, size: int) -> Machine:
        """Return this machine with *size* bytes on every NUMA node that has memory."""
        return dataclasses.replace(self, memory=tuple(size if old else 0 for old in self.memory))

    def qemu_arguments(self) -> list[str]:
        """Return the QEMU arguments for this machine's processors, memory and distances."""
        dies = sum(1 for count in self.pus if count)
        cores = max(self.pus) // self.threads_per_core
        topology = (
            f"{sum(self.pus)},sockets={dies // self.dies_per_socket},dies={self.dies_per_socket},"
            f"cores={cores},threads={self.threads_per_core}"
        )
        arguments = ["-cpu", self.cpu, "-smp", topology, "-m", f"{sum(self.memory) // MIB}M"]
        for node in self.nodes:
            numa = f"node,nodeid={node}"
            if self.pus[node]:
                numa += f",cpus={self.pus_of(node)[0]}-{self.pus_of(node)[-1]}"
            if self.memory[node]:
                size = self.memory[node] // MIB
                arguments += ["-object", f"memory-backend-ram,id=bank{node},size={size}M"]
                numa += f",memdev=bank{node}"
            if self.bandwidth:
                numa += f",initiator={self.initiator(node)}"
            arguments += ["-numa", numa]
        for source, row in enumerate(self.distances):
            for target, distance in enumerate(row):
                arguments += ["-numa", f"dist,src={source},dst={target},val={distance}"]
        return arguments + (["-machine", "hmat=on", *self._hmat()] if self.bandwidth else [])

    def initiator(self, node: int) -> int:
        """Return the NUMA node with PUs that reaches *node* fastest, itself if it has PUs."""
        return node if self.pus[node] else max(range(len(self.bandwidth)), key=lambda n: self.bandwidth[n][node])

    def _hmat(self) -> Iterator[str]:
        for (kind, unit), rows in ((("bandwidth", "G"), self.bandwidth), (("latency", ""), self.latency)):
            for source, row in enumerate(rows):
                for target, value in enumerate(row):
                    pair = f"hmat-lb,initiator={source},target={target},hierarchy=memory"
                    yield from ("-numa", f"{pair},data-type=access-{kind},{kind}={value}{unit}")


def names() -> list[str]:
    """Return the names of all machines."""
    return sorted(path.stem for path in MACHINES.glob("*.toml"))


def load(name: str) -> Machine:
    """Return the machine called *name*; raises BadInput for an unknown name or an invalid file."""
    if name not in names():
        raise BadInput(f"no emulated machine is called '{name}': there are {', '.join(names())}")
    return read(MACHINES / f"{name}.toml")


def read(path: Path) -> Machine:
    """Return the machine of the file *path*; raises BadInput with file, line and reason of an error."""
    text = path.read_text()
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = re.search(r"at line (\d+)", str(error))
        raise BadInput(str(error), file=path, line=int(where[1]) if where else None) from error
    reader = _Reader(path, text)
    reader.check_types(data)
    if "base" in data:
        base = path.with_name(f"{data['base']}.toml")
        if not base.is_file() or base == path:
            raise reader.fail("base", f"there is no {base.name} next to this file")
        read(base)
        data = tomllib.loads(base.read_text()) | data
    reader.check_complete(data)
    distances = reader.matrix(data["distances"])
    machine = Machine(
        name=path.stem,
        description=data["description"],
        cpu=data["cpu"],
        pus=reader.per_node("pus", data["pus"], len(distances)),
        memory=reader.sizes(data["memory"], len(distances)),
        distances=distances,
        dies_per_socket=data.get("dies_per_socket", 1),
        threads_per_core=data.get("threads_per_core", 1),
        offline_pus=reader.integers("offline_pus", data.get("offline_pus", [])),
        allowed_nodes=reader.integers("allowed_nodes", data.get("allowed_nodes", [])),
        bandwidth=reader.rows("bandwidth", data.get("bandwidth", [])),
        latency=reader.rows("latency", data.get("latency", [])),
    )
    reader.check_shape(machine)
    return machine


@dataclasses.dataclass
class _Reader:
    """Checks one file's values; each error names the line of the key."""

    path: Path
    text: str

    def fail(self, key: str, reason: str) -> BadInput:
        """Return the error with *reason* about *key*."""
        line = next(
            (n for n, s in enumerate(self.text.splitlines(), 1) if re.match(rf"\s*{re.escape(key)}\s*=", s)),
            None,
        )
        return BadInput(f"{key}: {reason}", file=self.path, line=line)

    def check_types(self, data: dict[str, object]) -> None:
        for key, value in data.items():
            if key not in KEYS:
                raise self.fail(key, f"unknown; a machine has {', '.join(KEYS)}")
            if not isinstance(value, KEYS[key]) or isinstance(value, bool):
                raise self.fail(key, f"{value!r} is of the wrong type")

    def check_complete(self, data: dict[str, object]) -> None:
        for key in REQUIRED:
            if key not in data:
                raise self.fail(key, "missing")

    def integers(self, key: str, values: Iterable[object]) -> tuple[int, ...]:
        numbers = tuple(value for value in values if type(value) is int and value >= 0)
        if len(numbers) != len(tuple(values)):
            raise self.fail(key, f"{values!r} is not a list of whole numbers")
        return numbers

    def rows(self, key: str, rows: list[object]) -> tuple[tuple[int, ...], ...]:
        return tuple(self.integers(key, row if isinstance(row, list) else [row]) for row in rows)

    def matrix(self, rows: list[object]) -> tuple[tuple[int, ...], ...]:
        matrix = self.rows("distances", rows)
        for node, row in enumerate(matrix):
            if len(row) != len(matrix):
                raise self.fail("distances", f"row {node} has {len(row)} figures, of {len(matrix)} rows")
            for other, distance in enumerate(row):
                # ACPI: 10 is the NUMA node itself, 255 is unreachable.
                if (distance == 10) != (other == node) or not 10 <= distance <= 254:
                    raise self.fail("distances", f"{distance} between NUMA nodes {node} and {other}")
        return matrix

    def per_node(self, key: str, value: int | list[object], nodes: int) -> tuple[int, ...]:
        numbers = self.integers(key, value if isinstance(value, list) else [value] * nodes)
        if len(numbers) != nodes:
            raise self.fail(key, f"{len(numbers)} figures for {nodes} NUMA nodes")
        return numbers

    def sizes(self, value: str | list[object], nodes: int) -> tuple[int, ...]:
        try:
            listed = [parse_bytes(str(size)) for size in (value if isinstance(value, list) else [value] * nodes)]
        except BadInput as error:
            raise self.fail("memory", str(error)) from error
        sizes = self.per_node("memory", [*listed], nodes)
        if any(size % MIB for size in sizes):
            raise self.fail("memory", "a size that is not a multiple of 1 MiB")
        if sizes and sizes[0] < LEAST_MEMORY_OF_NODE_0:
            raise self.fail("memory", f"NUMA node 0 needs {LEAST_MEMORY_OF_NODE_0 // MIB} MiB for the kernel")
        return sizes

    def check_shape(self, machine: Machine) -> None:
        for key in ("dies_per_socket", "threads_per_core"):
            if getattr(machine, key) < 1:
                raise self.fail(key, "must be at least 1")
        counts = {count for count in machine.pus if count}
        if len(counts) != 1:
            raise self.fail("pus", "NUMA nodes that have PUs must have equally many (a limit of QEMU)")
        if counts.pop() % machine.threads_per_core:
            raise self.fail("threads_per_core", "does not divide the PUs of a NUMA node")
        if sum(1 for count in machine.pus if count) % machine.dies_per_socket:
            raise self.fail("dies_per_socket", "does not divide the number of NUMA nodes with PUs")
        # NUMA nodes with PUs come first.
        for key in ("bandwidth", "latency"):
            rows = getattr(machine, key)
            shape = [len(machine.nodes)] * sum(1 for count in machine.pus if count)
            if bool(rows) != bool(machine.bandwidth) or (rows and [len(row) for row in rows] != shape):
                raise self.fail(key, f"must have {len(shape)} rows of {len(machine.nodes)} figures")
            if any(value < 1 for row in rows for value in row) or (rows and 0 in machine.pus[: len(shape)]):
                raise self.fail(key, "must be above 0, with the NUMA nodes with PUs first")
        if not set(machine.offline_pus) <= set(range(1, sum(machine.pus))):
            raise self.fail("offline_pus", "must be PUs of this machine other than 0, which Linux keeps")
        if not set(machine.allowed_nodes) <= set(machine.nodes):
            raise self.fail("allowed_nodes", "must be NUMA nodes of this machine")
