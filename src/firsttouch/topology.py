# SPDX-License-Identifier: Apache-2.0
"""The topology of a host: NUMA nodes, PUs, memory, distances, caches, and what this process may use.

Read from hwloc's XML (version 2 or 3 of the format), which lstopo writes for this host, for a stored /sys
(HWLOC_FSROOT) or for another machine's file: thesis section 3.2, the first of the four aspects.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from firsttouch import fsroots, limits
from firsttouch.cpulist import parse_hwloc
from firsttouch.errors import BadInput, Missing

#: hwloc subtypes (each with CXL- before it as well) of memory of a device: never used for a program's data.
DEVICE_MEMORY = frozenset(p + kind for kind in ("GPUMemory", "NVIDIAGPUMemory", "SPM") for p in ("", "CXL-"))
ORDINARY_MEMORY = frozenset({"", "DRAM"})


@dataclass(frozen=True)
class Pu:
    """A hardware thread: its number, and the numbers of its core, package and NUMA node in this topology."""

    index: int
    core: int
    package: int
    numa_node: int | None


@dataclass(frozen=True)
class NumaNode:
    """A NUMA node as the kernel numbers it; *pus* are its own, *memory_bytes* is 0 for a memoryless one.

    *huge_bytes* of them are set aside as huge pages (hugetlbfs): no ordinary allocation gets those.
    """

    index: int
    pus: tuple[int, ...]
    memory_bytes: int
    subtype: str = ""
    huge_bytes: int = 0


@dataclass(frozen=True)
class Cache:
    """A data or unified cache of one *level* and *size_bytes*, and the PUs that share it."""

    level: int
    size_bytes: int
    pus: frozenset[int]


@dataclass(frozen=True)
class Topology:
    """A host as hwloc sees it.

    *distances* maps (from, to) NUMA node to the firmware's relative latency (10 is local), empty where the
    firmware tells none. *allowed_pus* and *allowed_nodes* are what the observed process may use;
    *memory_limit_bytes* its cgroup's limit, or None. *here* says that it is the host that this process runs on.
    """

    numa_nodes: tuple[NumaNode, ...]
    pus: tuple[Pu, ...]
    caches: tuple[Cache, ...]
    distances: dict[tuple[int, int], int]
    allowed_pus: frozenset[int]
    allowed_nodes: frozenset[int]
    memory_limit_bytes: int | None = None
    info: dict[str, str] = field(default_factory=dict)
    here: bool = False

    def node(self, index: int) -> NumaNode:
        """Return the NUMA node of that number; raises BadInput where there is none."""
        for node in self.numa_nodes:
            if node.index == index:
                return node
        have = ",".join(str(n.index) for n in self.numa_nodes)
        raise BadInput(f"there is no NUMA node {index}: this topology has {have}")

    def usable_pus(self, node: int) -> tuple[int, ...]:
        """Return the PUs of a NUMA node that may be used: first PUs of all cores, then the second ones."""
        by_core: dict[int, list[int]] = {}
        for pu in self.pus:
            if pu.numa_node == node and pu.index in self.allowed_pus:
                by_core.setdefault(pu.core, []).append(pu.index)
        ranked = [(rank, pu) for pus in by_core.values() for rank, pu in enumerate(sorted(pus))]
        return tuple(pu for _, pu in sorted(ranked))

    @property
    def cpu_nodes(self) -> tuple[int, ...]:
        """NUMA nodes with at least one PU that may be used."""
        return tuple(n.index for n in self.numa_nodes if self.usable_pus(n.index))

    @property
    def memory_nodes(self) -> tuple[int, ...]:
        """NUMA nodes whose memory may be used for data: not memoryless, allowed, no device memory."""
        return tuple(
            n.index
            for n in self.numa_nodes
            if n.memory_bytes and n.index in self.allowed_nodes and n.subtype not in DEVICE_MEMORY
        )

    @property
    def data_nodes(self) -> tuple[int, ...]:
        """The :attr:`memory_nodes` where a program's data go unless somebody asks for others.

        High-bandwidth, persistent and CXL memory is left out, unless it is all there is or has PUs of its own.
        """
        memory = [self.node(n) for n in self.memory_nodes]
        return tuple(n.index for n in memory if n.subtype in ORDINARY_MEMORY or n.pus) or self.memory_nodes

    def distance(self, origin: int, target: int) -> int:
        """Return the firmware's distance; where it tells none, Linux's 10 to itself and 20 to others."""
        return self.distances.get((origin, target), 10 if origin == target else 20)

    def last_cache_bytes(self) -> int:
        """Return the size of the largest cache that one PU reaches (bytes), 0 where none is known."""
        return max((c.size_bytes for c in self.caches), default=0)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form that ``firsttouch topology --json`` and ``plan --json`` print."""
        order = [n.index for n in self.numa_nodes]
        return {
            "numa_nodes": [
                {
                    "index": n.index,
                    "pus": list(n.pus),
                    "usable_pus": sorted(self.usable_pus(n.index)),
                    "memory_bytes": n.memory_bytes,
                    "huge_bytes": n.huge_bytes,
                    "subtype": n.subtype,
                    "allowed": n.index in self.allowed_nodes,
                }
                for n in self.numa_nodes
            ],
            "distances": [[self.distance(a, b) for b in order] for a in order] if self.distances else None,
            "caches": sorted({(c.level, c.size_bytes) for c in self.caches}),
            "allowed_pus": sorted(self.allowed_pus),
            "memory_limit_bytes": self.memory_limit_bytes,
            "info": self.info,
        }


def parse_xml(text: str, *, file: str | Path | None = None) -> Topology:
    """Return the topology of an hwloc XML document; raises BadInput (naming *file*) where it is none."""
    try:
        root = ET.fromstring(text)  # noqa: S314
    except ET.ParseError as error:
        raise BadInput(f"not XML: {error}", file=file) from error
    machine = root.find("object[@type='Machine']")
    if root.tag != "topology" or machine is None:
        raise BadInput("not an hwloc topology: no Machine object", file=file)
    if root.get("version", "1").split(".")[0] == "1":
        raise BadInput("hwloc XML of version 1: convert it with `lstopo --input FILE out.xml`", file=file)
    try:
        return _assemble(root, machine)
    except (BadInput, ValueError) as error:
        raise BadInput(f"not an hwloc topology: {error}", file=file) from error


def _assemble(root: ET.Element, machine: ET.Element) -> Topology:
    reader = _Reader()
    reader.walk(machine, package=-1, core=-1)
    if not reader.nodes or not reader.pus:
        raise BadInput("it is without NUMA nodes or without PUs")
    online = frozenset(pu for pu, _, _ in reader.pus)
    owner = reader.owners()
    return Topology(
        numa_nodes=tuple(
            NumaNode(i, tuple(sorted(p for p in cpuset & online if owner.get(p) == i)), memory, subtype, huge)
            for i, cpuset, memory, subtype, huge in sorted(reader.nodes)
        ),
        pus=tuple(sorted((Pu(p, c, k, owner.get(p)) for p, c, k in reader.pus), key=lambda pu: pu.index)),
        caches=tuple(reader.caches),
        distances=_distances(root),
        allowed_pus=_allowed(machine, "cpuset") & online,
        allowed_nodes=_allowed(machine, "nodeset"),
        info={i.get("name", ""): i.get("value", "") for i in (*machine.findall("info"), *root.findall("info"))},
    )


class _Reader:
    """Collects the objects of an hwloc XML tree."""

    def __init__(self) -> None:
        self.nodes: list[tuple[int, frozenset[int], int, str, int]] = []
        self.pus: list[tuple[int, int, int]] = []
        self.caches: list[Cache] = []
        self.groups = 0

    def walk(self, element: ET.Element, package: int, core: int) -> None:
        kind = element.get("type", "")
        cpuset = parse_hwloc(element.get("cpuset") or "0x0")
        if kind == "PU":
            # Without a Core object (hidden by a hypervisor) every PU is a core of its own.
            index = _number(element)
            self.pus.append((index, core if core >= 0 else 1_000_000 + index, package))
        elif kind == "NUMANode":
            memory = int(element.get("local_memory", "0"))
            self.nodes.append((_number(element), cpuset, memory, element.get("subtype", ""), _huge(element)))
        elif kind.endswith("Cache") and element.get("cache_type") in {"0", "1"}:
            self.caches.append(Cache(int(element.get("depth", "0")), int(element.get("cache_size", "0")), cpuset))
        if kind in {"Package", "Core"}:
            # Kernel numbers of cores repeat between packages, so cores are counted here.
            self.groups += 1
            package, core = (self.groups, core) if kind == "Package" else (package, self.groups)
        for child in element.findall("object"):
            self.walk(child, package, core)

    def owners(self) -> dict[int, int]:
        """Return the NUMA node of each PU.

        hwloc attaches high-bandwidth, CXL and device memory to the PUs near it, but for the kernel a PU has
        one NUMA node: the narrowest, ordinary (DRAM) before others, then the lowest number.
        """
        ranked = sorted(self.nodes, key=lambda n: (n[3] not in ORDINARY_MEMORY, len(n[1]), n[0]))
        owner: dict[int, int] = {}
        for index, cpuset, _, subtype, _ in ranked:
            if subtype not in DEVICE_MEMORY:
                for pu in cpuset:
                    owner.setdefault(pu, index)
        return owner


def _huge(element: ET.Element) -> int:
    """Return the bytes of a NUMA node that are huge pages: its pages of all sizes but the smallest."""
    pages = [(int(t.get("size", "0")), int(t.get("count", "0"))) for t in element.findall("page_type")]
    return sum(size * count for size, count in sorted(pages)[1:])


def _number(element: ET.Element) -> int:
    """Return the kernel's number of a PU or NUMA node."""
    text = element.get("os_index", "")
    if not text.isdecimal():
        raise BadInput(f"{element.get('type')} of number '{text}'")
    return int(text)


def _allowed(machine: ET.Element, name: str) -> frozenset[int]:
    return parse_hwloc(machine.get("allowed_" + name) or machine.get(name) or "0x0")


def _distances(root: ET.Element) -> dict[tuple[int, int], int]:
    for matrix in root.findall("distances2"):
        # Kind 5 (from the OS, a latency) is the firmware's SLIT; others are measured or added by a user.
        if matrix.get("type") != "NUMANode" or matrix.get("name", "NUMALatency") != "NUMALatency":
            continue
        order = [int(i) for e in matrix.findall("indexes") for i in (e.text or "").split()]
        values = [int(v) for e in matrix.findall("u64values") for v in (e.text or "").split()]
        if matrix.get("indexing") == "os" and len(values) == len(order) ** 2:
            pairs = [(a, b) for a in order for b in order]
            return dict(zip(pairs, values, strict=True))
    return {}


def lstopo_xml(*, fsroot: Path | None = None) -> str:
    """Return hwloc's XML of this host, or of a stored file-system root; raises Missing or BadInput."""
    program = shutil.which("lstopo-no-graphics") or shutil.which("lstopo")
    if program is None:
        raise Missing("lstopo is not on PATH: install hwloc (Debian: apt-get install hwloc)")
    argv = [program, "--of", "xml", "--disallowed"]
    with fsroots.environment(fsroot) as environment:
        env = {**os.environ, "HWLOC_HIDE_ERRORS": "2", **environment}
        done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode or not done.stdout.strip():
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise BadInput(f"lstopo failed with status {done.returncode}: {reason}", file=fsroot)
    return done.stdout


def of_this_host() -> Topology:
    """Return this host's topology, restricted to what this process may use."""
    found = parse_xml(lstopo_xml())
    mine = limits.of_this_process()
    return replace(
        found,
        allowed_pus=found.allowed_pus & mine.pus,
        allowed_nodes=found.allowed_nodes & mine.numa_nodes,
        memory_limit_bytes=mine.memory_bytes,
        info={**found.info, **limits.memory_settings()},
        here=True,
    )


def load(*, xml: Path | None = None, fsroot: Path | None = None) -> Topology:
    """Return the topology of an hwloc XML file, a stored file-system root, or (by default) this host."""
    if xml is not None:
        try:
            return parse_xml(xml.read_text(encoding="utf-8", errors="replace"), file=xml)
        except OSError as error:
            raise BadInput(f"cannot be read: {error.strerror}", file=xml) from error
    return of_this_host() if fsroot is None else parse_xml(lstopo_xml(fsroot=fsroot), file=fsroot)
