# SPDX-License-Identifier: Apache-2.0
"""The topology that hwloc reports: of this host, of an XML file, or of a stored file-system root."""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.parsers import expat

from msgspec import Struct, field
from msgspec.structs import replace

from firsttouch import documents
from firsttouch.errors import BadInput, Missing, RunFailed, TimedOut
from firsttouch.host.cpusets import TOO_HIGH, format_list, parse_hwloc, parse_list
from firsttouch.tools import run_tool
from firsttouch.units import format_bytes

# ----------------------------------------------------------------------
# The topology: NUMA nodes, PUs, memory, distances, caches, and the PUs of this process (thesis section 3.2).
#
# It is read from hwloc's XML, version 2 or 3. The native probe prints it for this host or for a stored root, and
# adds the kernel's further facts as info attributes (probe/src/host.c).

#: hwloc's subtypes (optionally with the prefix CXL-) of device memory, which never holds a program's data.
DEVICE_MEMORY = frozenset(p + kind for kind in ("GPUMemory", "NVIDIAGPUMemory", "SPM") for p in ("", "CXL-"))
ORDINARY_MEMORY = frozenset({"", "DRAM"})
#: hwloc's types of processor caches.
_CACHES = frozenset(f"L{level}Cache" for level in range(1, 6))
#: From this level on, several cores share a cache on every processor.
_LAST_LEVEL = 3
#: hwloc's type of memory-side caches, which may be as large as memory.
_SIDE_CACHE = "MemCache"
#: Info attributes with the tier of a NUMA node: hwloc's (0 has the highest bandwidth), and the probe's.
_TIERS = ("MemoryTier", "KernelMemoryTier")
#: The probe's info attributes. Of the host: the smallest memory limit of its cgroups (bytes), and the NUMA nodes
#: that hwloc leaves out, each as number:bytes. Of a NUMA node: the PUs that the kernel assigns to it, and its
#: offline PUs.
_LIMIT, _LEFT_OUT, _PUS, _OFFLINE = "MemoryLimit", "LeftOutNUMANode", "cpulist", "OfflinePUs"
#: hwloc's trees are about 20 deep; deeper ones than this are damaged or hostile.
_DEEPEST = 100
#: The firmware's distances are bytes (ACPI's SLIT); anything above this is damaged.
_FARTHEST = 65535
#: Time limit for the probe in seconds. It needs less than one, but would wait for ever on a FIFO in a stored root.
_PATIENCE = 300
PROBE = "firsttouch-probe"


class Pu(Struct, frozen=True):
    """A PU (hardware thread) with the numbers of its core, package and NUMA node in this topology."""

    index: int
    core: int
    package: int
    numa_node: int | None


class NumaNode(Struct, frozen=True):
    """A NUMA node by its kernel number, with its PUs; *memory_bytes* is 0 for a memoryless one.

    *huge_bytes* of its memory are reserved as huge pages (hugetlbfs) and not available to ordinary allocations.
    *near* are the PUs that hwloc attaches it to; for a NUMA node without PUs, those that reach it fastest.
    *side_cache_bytes* is the memory-side cache in front of its memory, such as HBM in cache mode. *tier* is the
    memory tier that hwloc or the kernel states (lower is faster), *bandwidth* the highest one (MiB/s) that the
    firmware states, and *offline* are its PUs that are switched off.
    """

    index: int
    pus: tuple[int, ...]
    memory_bytes: int
    subtype: str = ""
    huge_bytes: int = 0
    near: frozenset[int] = frozenset()
    side_cache_bytes: int = 0
    tier: int | None = None
    bandwidth: int | None = None
    offline: tuple[int, ...] = ()


class Cache(Struct, frozen=True):
    """A data or unified cache of one *level* and *size_bytes*, and the PUs that share it."""

    level: int
    size_bytes: int
    pus: frozenset[int]


class Topology(Struct, frozen=True, dict=True):
    """A host as hwloc reports it.

    *distances* maps pairs (from, to) of NUMA nodes to the firmware's relative latency (10 is local); it is empty
    if the firmware reports none. The observed process may use *allowed_pus* and *allowed_nodes*;
    *memory_limit_bytes* is its cgroup's limit or None. *here* is true for the host that this process runs on.
    *left_out* maps NUMA nodes that are in /sys but not in hwloc's topology to their memory (bytes). *file* is the
    source, None for this host.
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
    left_out: dict[int, int] = field(default_factory=dict)
    file: Path | None = None
    #: The PUs of each die of a package with several.
    dies: tuple[frozenset[int], ...] = ()

    def node(self, index: int) -> NumaNode:
        """Return the NUMA node *index*; raises BadInput if it does not exist."""
        if index in self._by_index:
            return self._by_index[index]
        have = ",".join(str(n.index) for n in self.numa_nodes)
        raise BadInput(f"there is no NUMA node {index}: this topology has {have}")

    @functools.cached_property
    def _by_index(self) -> dict[int, NumaNode]:
        return {n.index: n for n in self.numa_nodes}

    def usable_pus(self, node: int) -> tuple[int, ...]:
        """Return the PUs of a NUMA node that may be used: the first of each core, then the second ones."""
        return self._usable.get(node, ())

    @functools.cached_property
    def _usable(self) -> dict[int, tuple[int, ...]]:
        by_core: dict[int, dict[int, list[int]]] = {}
        for pu in self.pus:
            if pu.numa_node is not None and pu.index in self.allowed_pus:
                by_core.setdefault(pu.numa_node, {}).setdefault(pu.core, []).append(pu.index)
        usable = {}
        for node, cores in by_core.items():
            ranked = [(rank, pu) for pus in cores.values() for rank, pu in enumerate(sorted(pus))]
            usable[node] = tuple(pu for _, pu in sorted(ranked))
        return usable

    @functools.cached_property
    def usable_pu_count(self) -> int:
        """The number of PUs of NUMA nodes that may be used."""
        return sum(len(self.usable_pus(node)) for node in self.cpu_nodes)

    @functools.cached_property
    def cpu_nodes(self) -> tuple[int, ...]:
        """NUMA nodes with at least one PU that may be used."""
        return tuple(n.index for n in self.numa_nodes if self.usable_pus(n.index))

    @functools.cached_property
    def domains(self) -> tuple[frozenset[int], ...]:
        """The PUs of each last-level cache within a NUMA node, by their lowest PU; () if no node has several.

        The last level is hwloc's L3 or a later one; without any, dies are used instead. All PUs of a
        NUMA node without this cache are one domain.
        """
        level = max((c.level for c in self.caches), default=0)
        caches = [c.pus for c in self.caches if c.level == level >= _LAST_LEVEL] or self.dies
        domains: set[frozenset[int]] = set()
        for node in self.numa_nodes:
            pus = frozenset(node.pus)
            domains |= {pus & cache for cache in caches} | {pus.difference(*caches)}
        domains.discard(frozenset())
        nodes = sum(bool(node.pus) for node in self.numa_nodes)
        return tuple(sorted(domains, key=min)) if caches and len(domains) > nodes else ()

    def pus_on(self, place: str) -> frozenset[int]:
        """Return the PUs of NUMA nodes (``0-3``), of last-level caches (``cache:3``), or of all (``all``).

        Raises BadInput for a NUMA node or a last-level cache that does not exist.
        """
        if not place.startswith("cache:"):
            nodes = self.cpu_nodes if place == "all" else parse_list(place)
            return frozenset(pu for node in nodes for pu in self.node(node).pus)
        if not self.domains:
            raise BadInput(f"{place}: no NUMA node of this host has several last-level caches")
        numbers = parse_list(place.removeprefix("cache:"))
        if absent := [number for number in numbers if number >= len(self.domains)]:
            raise BadInput(f"there is no last-level cache {min(absent)}: this host has 0-{len(self.domains) - 1}")
        return frozenset(pu for number in numbers for pu in self.domains[number])

    @functools.cached_property
    def memory_nodes(self) -> tuple[int, ...]:
        """NUMA nodes whose memory may be used for data: not memoryless, allowed, no device memory."""
        return tuple(
            n.index
            for n in self.numa_nodes
            if n.memory_bytes and n.index in self.allowed_nodes and n.subtype not in DEVICE_MEMORY
        )

    @functools.cached_property
    def data_nodes(self) -> tuple[int, ...]:
        """The :attr:`memory_nodes` that hold a program's data by default.

        A node without PUs is left out if its memory is high-bandwidth, persistent or CXL memory, or of another
        tier than the nodes with PUs, unless there is no other memory.
        """
        memory = [self.node(n) for n in self.memory_nodes]
        working = {n.tier for n in memory if n.pus}
        ordinary = (n for n in memory if n.subtype in ORDINARY_MEMORY and (not working or n.tier in working))
        return tuple(sorted({n.index for n in (*ordinary, *(n for n in memory if n.pus))})) or self.memory_nodes

    def distance(self, origin: int, target: int) -> int:
        """Return the firmware's distance, or Linux's default: 10 to the node itself, 20 to others."""
        return self.distances.get((origin, target), 10 if origin == target else 20)

    def last_cache_bytes(self) -> int:
        """Return the size (bytes) of the largest cache of any PU, 0 if unknown."""
        return max((c.size_bytes for c in self.caches), default=0)

    def remarks(self) -> list[str]:
        """Return a line for each part of the host that is described wrongly, and therefore in no scenario."""
        remarks = []
        if self.left_out:
            lost, listed = sum(self.left_out.values()), sum(n.memory_bytes for n in self.numa_nodes)
            remarks.append(
                f"hwloc leaves out NUMA nodes {format_list(self.left_out)} of /sys, which have "
                f"{format_bytes(lost)} of the {format_bytes(lost + listed)} of memory: no scenario uses them "
                "(firmware that lists a PU in several NUMA nodes is a known cause)"
            )
        if stray := [p.index for p in self.pus if p.numa_node is None and p.index in self.allowed_pus]:
            remarks.append(f"PUs {format_list(stray)} belong to no NUMA node: no scenario uses them")
        return remarks

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
                    "memory_side_cache_bytes": n.side_cache_bytes,
                    "allowed": n.index in self.allowed_nodes,
                }
                for n in self.numa_nodes
            ],
            "distances": [[self.distance(a, b) for b in order] for a in order] if self.distances else None,
            "caches": sorted({(c.level, c.size_bytes) for c in self.caches}),
            **({"last_level_caches": [sorted(pus) for pus in self.domains]} if self.domains else {}),
            "allowed_pus": sorted(self.allowed_pus),
            "memory_limit_bytes": self.memory_limit_bytes,
            "info": self.info,
            "remarks": self.remarks(),
        }


class _Element(dict[str, str]):
    """The attributes of an XML element. Loading ElementTree would take a twentieth of a short command's time."""

    package = core = -1  # unique numbers of the objects around it; the kernel's repeat between packages
    side_caches = 0  # bytes of the memory-side caches around it

    def __init__(self, tag: str, attributes: dict[str, str], around: _Element | None = None) -> None:
        super().__init__(attributes)
        self.tag, self.text, self.children = tag, list[str](), list[_Element]()
        if around is not None:
            self.package, self.core, self.side_caches = around.package, around.core, around.side_caches

    def findall(self, tag: str, **attributes: str) -> list[_Element]:
        """Return the children with that tag and those attributes."""
        return [child for child in self.children if child.tag == tag and attributes.items() <= child.items()]


def _read_elements(text: str) -> list[_Element]:
    """Return all elements of an XML document, beginning with the root; raises ExpatError and BadInput."""
    elements, path, numbers = list[_Element](), [_Element("", {})], itertools.count()

    def begin(tag: str, attributes: dict[str, str]) -> None:
        if len(path) > _DEEPEST:
            raise BadInput(f"its objects are nested more than {_DEEPEST} deep")
        element = _Element(tag, attributes, path[-1])
        if attributes.get("type") == "Package":
            element.package = next(numbers)
        elif attributes.get("type") == "Core":
            element.core = next(numbers)
        elif attributes.get("type") == _SIDE_CACHE:
            element.side_caches += _count(element, "cache_size")
        path[-1].children.append(element)
        elements.append(element)
        path.append(element)

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = begin, lambda _tag: path.pop()
    parser.CharacterDataHandler = lambda text: path[-1].text.extend([text])
    parser.ExternalEntityRefHandler = lambda *_: 0  # an entity in another file is an error
    parser.Parse(text, True)
    return elements


def parse_xml(text: str, *, file: str | Path | None = None) -> Topology:
    """Return the topology of an hwloc XML document; raises BadInput, naming *file*, for anything else."""
    try:
        root, *elements = _read_elements(text)
        machines = root.findall("object", type="Machine")
        if root.tag != "topology" or not machines:
            raise BadInput("no Machine object")
        if root.get("version", "1").split(".")[0] == "1":
            raise BadInput("it is XML of version 1: convert it with `lstopo --input FILE out.xml`")
        objects = [element for element in elements if element.tag == "object"]
        return replace(_assemble(root, machines[0], objects), file=None if file is None else Path(file))
    except expat.ExpatError as error:
        raise BadInput(f"not XML: {error}", file=file) from error
    except (BadInput, ValueError) as error:
        raise BadInput(f"not an hwloc topology: {error}", file=file) from error


def _assemble(root: _Element, machine: _Element, objects: Sequence[_Element]) -> Topology:
    pus: list[Pu] = []
    nodes: list[NumaNode] = []
    bandwidths = _bandwidths(root)
    caches: list[Cache] = []
    dies: list[frozenset[int]] = []
    for element in objects:
        kind = element.get("type", "")
        if kind == "PU":
            # A hypervisor may hide the Core objects: then each PU is treated as a core.
            index = _number(element)
            pus.append(Pu(index, element.core if element.core >= 0 else 1_000_000 + index, element.package, None))
        elif kind == "NUMANode":
            near = cpuset = _cpuset(element)
            if listed := element.findall("info", name=_PUS):
                cpuset = parse_list(listed[0].get("value", ""))
            absent = element.findall("info", name=_OFFLINE)
            offline = tuple(sorted(parse_list(absent[0].get("value", "")))) if absent else ()
            memory, subtype = _count(element, "local_memory"), element.get("subtype", "")
            node = NumaNode(_number(element), tuple(sorted(cpuset)), memory, subtype, _huge(element), near)
            rate, cached = bandwidths.get(element.get("gp_index", "")), element.side_caches
            nodes.append(
                replace(node, side_cache_bytes=cached, tier=_tier(element), bandwidth=rate, offline=offline)
            )
        elif kind == "Die":
            dies.append(_cpuset(element))
        elif kind in _CACHES and element.get("cache_type") in {"0", "1"}:
            caches.append(Cache(_count(element, "depth"), _count(element, "cache_size"), _cpuset(element)))
    if not nodes or not pus:
        raise BadInput("it has no NUMA nodes or no PUs")
    for kind, numbers in (("PU", [p.index for p in pus]), ("NUMANode", [n.index for n in nodes])):
        if repeated := sorted(n for n, count in Counter(numbers).items() if count > 1):
            raise BadInput(f"{kind} {repeated[0]} occurs more than once")
    infos = [*machine.findall("info"), *root.findall("info")]
    named = [(info.get("name", ""), info.get("value", "")) for info in infos]
    online = frozenset(pu.index for pu in pus)
    owner = _owners(nodes)
    return Topology(
        numa_nodes=tuple(
            replace(n, pus=tuple(p for p in n.pus if p in online and owner.get(p) == n.index))
            for n in sorted(nodes, key=lambda node: node.index)
        ),
        pus=tuple(replace(p, numa_node=owner.get(p.index)) for p in sorted(pus, key=lambda pu: pu.index)),
        caches=tuple(caches),
        dies=tuple(dies),
        distances=_distances(root),
        allowed_pus=_allowed(machine, "cpuset") & online,
        allowed_nodes=_allowed(machine, "nodeset"),
        memory_limit_bytes=min((_count(i, "value") for i in infos if i.get("name") == _LIMIT), default=None),
        info={name: value for name, value in named if name not in {_LIMIT, _LEFT_OUT}},
        left_out={
            int(n): int(size) for n, _, size in (v.partition(":") for name, v in named if name == _LEFT_OUT)
        },
    )


def _bandwidths(root: _Element) -> dict[str, int]:
    """Return the highest bandwidth (MiB/s) of hwloc's memory attribute of each NUMA node by its gp_index."""
    values: dict[str, int] = {}
    attributes = root.findall("memattr", name="Bandwidth")
    for value in (v for a in attributes for v in a.findall("memattr_value", target_obj_type="NUMANode")):
        target = value.get("target_obj_gp_index", "")
        values[target] = max(values.get(target, 0), _count(value, "value"))
    return values


def _tier(element: _Element) -> int | None:
    """Return the memory tier of a NUMA node, None if it is not stated."""
    stated = (info for name in _TIERS for info in element.findall("info", name=name))
    return next((_count(info, "value") for info in stated), None)


def _owners(nodes: Sequence[NumaNode]) -> dict[int, int]:
    """Return the NUMA node of each PU, as the kernel assigns them.

    Without the kernel's lists they are inferred, because hwloc also attaches high-bandwidth, CXL and device memory
    to nearby PUs: ordinary memory (DRAM) is preferred, then the node with fewest PUs, then the lowest number.
    """
    ranked = sorted(nodes, key=lambda n: (n.subtype not in ORDINARY_MEMORY, len(n.pus), n.index))
    owner: dict[int, int] = {}
    for node in ranked:
        if node.subtype not in DEVICE_MEMORY:
            for pu in node.pus:
                owner.setdefault(pu, node.index)
    return owner


def _huge(element: _Element) -> int:
    """Return the bytes of a NUMA node that are reserved as huge pages: all page sizes but the smallest."""
    pages = [(_count(t, "size"), _count(t, "count")) for t in element.findall("page_type")]
    return sum(size * count for size, count in sorted(pages)[1:])


def _cpuset(element: _Element) -> frozenset[int]:
    return parse_hwloc(element.get("cpuset") or "0x0")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 20  # at most 64 bits


def _number(element: _Element) -> int:
    """Return the kernel's number of a PU or NUMA node; raises BadInput."""
    text = element.get("os_index", "")
    if not (_is_number(text) and int(text) < TOO_HIGH):
        raise BadInput(f"{element.get('type')} of number '{text}'")
    return int(text)


def _count(element: _Element, name: str) -> int:
    """Return a numeric attribute, 0 if it is absent; raises BadInput."""
    text = element.get(name, "0")
    if not _is_number(text):
        of = " ".join(filter(None, (element.get("type", element.tag), element.get("os_index"))))
        raise BadInput(f"{of}: {name} is '{text[:40]}', not a number from 0 on")
    return int(text)


def _allowed(machine: _Element, name: str) -> frozenset[int]:
    return parse_hwloc(machine.get("allowed_" + name) or machine.get(name) or "0x0")


def _distances(root: _Element) -> dict[tuple[int, int], int]:
    for matrix in root.findall("distances2"):
        # NUMALatency is the firmware's SLIT; other matrices were measured or added by a user.
        if matrix.get("type") != "NUMANode" or matrix.get("name", "NUMALatency") != "NUMALatency":
            continue
        order = [int(i) for e in matrix.findall("indexes") for i in "".join(e.text).split()]
        values = [int(v) for e in matrix.findall("u64values") for v in "".join(e.text).split()]
        if matrix.get("indexing") == "os" and len(values) == len(order) ** 2:
            if wrong := [v for v in values if not 0 < v <= _FARTHEST]:
                raise BadInput(f"distances2 of NUMA nodes: {str(wrong[0])[:40]} is not within 1 to {_FARTHEST}")
            pairs = [(a, b) for a in order for b in order]
            return dict(zip(pairs, values, strict=True))
    return {}


def probe_program() -> Path:
    """Return the probe: FIRSTTOUCH_PROBE, the one installed next to Python, or on PATH; raises Missing."""
    if given := os.environ.get("FIRSTTOUCH_PROBE"):
        if not (Path(given).is_file() and os.access(given, os.X_OK)):
            raise Missing(f"FIRSTTOUCH_PROBE names {given}, which is not a program")
        return Path(given)
    beside = Path(sys.executable).with_name(PROBE)
    path = beside if os.access(beside, os.X_OK) else shutil.which(PROBE)
    if not path:
        raise Missing(f"{PROBE} is not installed: `make setup` builds it, or build it with cmake -S probe")
    return Path(path)


def probe_xml(fsroot: Path | None = None) -> str:
    """Return the probe's XML of this host, or of a stored root; raises Missing, RunFailed or BadInput."""
    if fsroot and not (fsroot / "sys").is_dir():
        raise BadInput("not a file-system root: it has no sys/ folder", file=fsroot)
    argv = [str(probe_program()), "topology", f"--xml={fsroot}" if fsroot else "--xml"]
    try:
        done = run_tool(argv, timeout=_PATIENCE)
    except TimedOut as error:
        failure = f"{PROBE} did not end within {_PATIENCE} s"
        raise (BadInput(failure, file=fsroot) if fsroot else RunFailed(failure)) from error
    if done.returncode or not done.stdout.strip():
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1].removeprefix(f"{PROBE}: error: ")
        failure = f"{PROBE} topology failed with status {done.returncode}: {reason}"
        raise BadInput(failure, file=fsroot) if fsroot else RunFailed(failure)
    return done.stdout


def read_host() -> Topology:
    """Return this host's topology, restricted to the PUs and memory of this process."""
    return replace(parse_xml(probe_xml()), here=True)


def read_xml(*, xml: Path | None = None, fsroot: Path | None = None) -> str:
    """Return the hwloc XML that :func:`load` reads: of a file, a stored root or, by default, this host."""
    if xml is None:
        return probe_xml(fsroot)
    try:
        documents.refuse_special(xml)
        return xml.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", file=xml) from error


def load(*, xml: Path | None = None, fsroot: Path | None = None) -> Topology:
    """Return the topology of an hwloc XML file, a stored file-system root or, by default, this host.

    Raises BadInput for input that is not a topology, Missing without the probe.
    """
    topology = parse_xml(read_xml(xml=xml, fsroot=fsroot), file=xml or fsroot)
    return topology if xml or fsroot else replace(topology, here=True)
