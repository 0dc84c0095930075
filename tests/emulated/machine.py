# SPDX-License-Identifier: Apache-2.0
"""The emulated machines: one TOML file each in machines/, validated when it is read."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from firsttouch.errors import BadInput
from firsttouch.units import parse_bytes

MACHINES = Path(__file__).resolve().parent / "machines"
MIB = 1 << 20
#: With less than this, the kernel, whose own memory is on NUMA node 0, cannot start its first process.
LEAST_MEMORY_OF_NODE_0 = 256 * MIB

Row = tuple[int, ...]


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The machine that the guest must see; index i of a tuple is NUMA node i.

    A file takes the keys that it lacks from its base, another machine. It may state one number of PUs and one size
    for all NUMA nodes, and sizes with units.
    """

    name: str
    description: str
    #: QEMU's CPU model with its features.
    cpu: str
    #: Number of PUs of each NUMA node; PUs are numbered consecutively, starting with node 0.
    pus: Row
    #: Bytes of each NUMA node.
    memory: Row
    distances: tuple[Row, ...]
    dies_per_socket: int = 1
    threads_per_core: int = 1
    #: PUs that are set offline before the first command runs.
    offline_pus: Row = ()
    #: NUMA nodes that the cpuset of every command allows; empty: no cpuset.
    allowed_nodes: Row = ()
    #: The firmware's HMAT, from each NUMA node with PUs to each NUMA node: GB/s and ns. Empty: no HMAT. A NUMA
    #: node without PUs has as its initiator the NUMA node of the highest bandwidth.
    bandwidth: tuple[Row, ...] = ()
    latency: tuple[Row, ...] = ()

    @property
    def nodes(self) -> range:
        return range(len(self.distances))

    def pus_of(self, node: int) -> range:
        """Return the numbers of the PUs of NUMA node *node*, offline ones included."""
        first = sum(self.pus[:node])
        return range(first, first + self.pus[node])

    def with_memory_per_node(self, size: int) -> Machine:
        """Return this machine with *size* bytes on every NUMA node that has memory."""
        return msgspec.structs.replace(self, memory=tuple(size if old else 0 for old in self.memory))

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
    """Return the machine of the file *path*; raises BadInput with the file and the reason of an error."""
    try:
        data = tomllib.loads(path.read_text())
        if base := data.pop("base", ""):
            data = tomllib.loads(path.with_name(f"{base}.toml").read_text()) | data
        for key in {"pus", "memory"} & data.keys():
            of_nodes = data[key] if isinstance(data[key], list) else [data[key]] * len(data.get("distances", ()))
            data[key] = [parse_bytes(of_node) if key == "memory" else of_node for of_node in of_nodes]
        machine = msgspec.convert({**data, "name": path.stem}, Machine)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, OSError) as error:
        raise BadInput(str(error), file=path) from error
    if wrong := [reason for reason, is_right in _checks(machine) if not is_right]:
        raise BadInput(wrong[0], file=path)
    return machine


def _checks(machine: Machine) -> Iterator[tuple[str, bool]]:
    """Yield what must hold of a machine, each with whether it does; the later checks rest on the first."""
    count, with_pus = len(machine.distances), [pus for pus in machine.pus if pus]
    lengths = {len(machine.pus), len(machine.memory), *map(len, machine.distances)}
    yield "pus, memory and distances must be of the same NUMA nodes", lengths == {count}
    if lengths != {count}:
        return
    # ACPI: 10 is the NUMA node itself, 255 is unreachable.
    own = [machine.distances[node][node] for node in machine.nodes]
    others = [d for a, row in enumerate(machine.distances) for b, d in enumerate(row) if a != b]
    yield (
        "a distance is 10 to the NUMA node itself, and 11 to 254 to others",
        ({*own} == {10} and all(10 < distance < 255 for distance in others)),
    )
    yield (
        "memory must be in MiB, and enough on NUMA node 0 for the kernel",
        (not any(size % MIB for size in machine.memory) and machine.memory[0] >= LEAST_MEMORY_OF_NODE_0),
    )
    yield "NUMA nodes that have PUs must have equally many (a limit of QEMU)", len({*with_pus}) == 1
    yield (
        "cores and dies must divide PUs and NUMA nodes",
        not (with_pus[:1] and (with_pus[0] % machine.threads_per_core or len(with_pus) % machine.dies_per_socket)),
    )
    shapes = {tuple(map(len, rows)) for rows in (machine.bandwidth, machine.latency)}
    yield (
        "bandwidth and latency must be from each NUMA node with PUs, the first ones, to all",
        (shapes in ({()}, {(count,) * len(with_pus)}) and all(machine.pus[: len(with_pus)])),
    )
    yield "PUs other than 0 can be offline", {*machine.offline_pus} <= {*range(1, sum(machine.pus))}
    yield "a cpuset allows NUMA nodes of the machine", {*machine.allowed_nodes} <= {*machine.nodes}
