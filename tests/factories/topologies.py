# SPDX-License-Identifier: Apache-2.0
"""Topologies of many shapes as hwloc's XML: made-up hosts, and the hosts of hwloc's test corpus of these shapes.

The corpus (github.com/open-mpi/hwloc, tests/hwloc/linux and tests/hwloc/xml) is not part of this repository. Its
files are read from the folder CORPUS; where that is absent, the tests that need it are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from factories import caches
from firsttouch.host.topology import NumaNode, Pu, Topology
from firsttouch.paths import ROOT
from firsttouch.records import atomic_files
from firsttouch.records.file_lock import lock_file

CORPUS = ROOT.parent / "shared" / "topologies"
#: Four packages of two NUMA nodes with eight cores each, as the article's host; NUMA node 5 has half the memory.
OPTERON = ROOT / "docs" / "examples" / "opteron.xml"

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
_MEMORY = frozenset({"NUMANode", "MemCache"})
#: The variables that make hwloc read a file as the topology of this host.
SMALL_CACHES = ("HWLOC_XMLFILE", "HWLOC_THISSYSTEM")

# ----------------------------------------------------------------------
# The objects of a made-up host. A bank and its memory-side cache belong to the object that contains them.


def format_hwloc(members: Iterable[int]) -> str:
    """Return *members* as an hwloc bitmap."""
    mask = sum(1 << member for member in set(members))
    words = [mask >> low & 0xFFFFFFFF for low in range(0, max(1, mask.bit_length()), 32)]
    return ",".join(f"0x{word:08x}" for word in reversed(words))


def _object(kind: str, *children: ET.Element, **attributes: object) -> ET.Element:
    element = ET.Element("object", {"type": kind, **{name: str(value) for name, value in attributes.items()}})
    element.extend(children)
    return element


def _core(*pus: int) -> ET.Element:
    return _object("Core", *(_object("PU", os_index=pu) for pu in pus))


def _cache(level: int, size: int, *children: ET.Element) -> ET.Element:
    """Return a cache of *size* bytes, for data (level 1) or unified."""
    return _object(f"L{level}Cache", *children, depth=level, cache_size=size, cache_type=int(level == 1))


def _bank(index: int, size: int, **attributes: object) -> ET.Element:
    """Return a NUMA node with *size* bytes of memory."""
    return _object("NUMANode", os_index=index, gp_index=1000 + index, local_memory=size, **attributes)


def _set_cpusets(element: ET.Element, outer: frozenset[int] = frozenset()) -> frozenset[int]:
    """Set the cpuset of *element* and of the objects in it, and return its PUs; a bank has those *outer* to it."""
    inside = [child for child in element.findall("object") if child.get("type") not in _MEMORY]
    pus = frozenset[int]().union(*map(_set_cpusets, inside))
    if element.get("type") == "PU":
        pus |= {int(element.get("os_index", ""))}
    elif element.get("type") in _MEMORY:
        pus = outer
    for child in element.findall("object"):
        if child.get("type") in _MEMORY:
            _set_cpusets(child, pus)
    element.set("cpuset", format_hwloc(pus))
    return pus


def _host(
    *children: ET.Element,
    distances: Sequence[Sequence[int]] = (),
    allowed_pus: Sequence[int] | None = None,
    allowed_nodes: Sequence[int] | None = None,
    attributes: Sequence[ET.Element] = (),
) -> str:
    """Return a host's XML; all its PUs and NUMA nodes may be used if the allowed ones are not given.

    *distances* are in the order of the NUMA nodes' numbers, *attributes* are hwloc's memory attributes.
    """
    machine = _object("Machine", *children)
    pus = _set_cpusets(machine)
    nodes = sorted(int(e.get("os_index", "")) for e in machine.iter("object") if e.get("type") == "NUMANode")
    machine.set("nodeset", format_hwloc(nodes))
    machine.set("allowed_cpuset", format_hwloc(pus if allowed_pus is None else allowed_pus))
    machine.set("allowed_nodeset", format_hwloc(nodes if allowed_nodes is None else allowed_nodes))
    root = ET.Element("topology", version="2.0")
    root.append(machine)
    if distances:
        matrix = ET.SubElement(root, "distances2", type="NUMANode", name="NUMALatency", indexing="os")
        ET.SubElement(matrix, "indexes").text = " ".join(map(str, nodes))
        ET.SubElement(matrix, "u64values").text = " ".join(str(d) for row in distances for d in row)
    root.extend(attributes)
    return ET.tostring(root, encoding="unicode")


def _near_and_far(count: int, near: int, far: int, group: int = 1) -> list[list[int]]:
    """Return a matrix of distances: *near* within groups of *group* NUMA nodes, *far* between them."""
    numbers = range(count)
    return [[10 if a == b else near if a // group == b // group else far for b in numbers] for a in numbers]


def host_of_packages(
    packages: int, nodes: int, cores: int, memory: int, threads: int = 1, *, caches: int = 1, hbm: int = 0
) -> str:
    """Return *packages* of *nodes* NUMA nodes each as XML, with *cores* and *memory* (bytes) in each NUMA node.

    The first PU of each core comes before the second ones of all, as Linux numbers them. The cores of a NUMA node
    share *caches* last-level caches. With *hbm*, each has this amount of high-bandwidth memory in a separate NUMA
    node.
    """
    total = packages * nodes * cores

    def core(number: int) -> ET.Element:
        return _core(*(number + thread * total for thread in range(threads)))

    objects = (
        _object(
            "Package",
            *(
                _object(
                    "Group",
                    _bank(node, memory),
                    *([_bank(packages * nodes + node, hbm, subtype="HBM")] if hbm else []),
                    *(
                        _cache(
                            3, 32 * MIB, *(core(node * cores + i) for i in range(first, first + cores // caches))
                        )
                        for first in range(0, cores, cores // caches)
                    ),
                )
                for node in range(package * nodes, (package + 1) * nodes)
            ),
        )
        for package in range(packages)
    )
    return _host(*objects, distances=[] if hbm else _near_and_far(packages * nodes, 12, 32, nodes))


# ----------------------------------------------------------------------
# The made-up hosts.


def _partial_cpuset() -> str:
    """Eight packages of two cores, PU 4 offline; a cgroup allows 10 of 15 PUs and four of eight NUMA nodes."""
    packages = (
        _object(
            "Package",
            _bank(n, 8 * GIB),
            *(_cache(2, MIB, _cache(1, 64 * KIB, _core(pu))) for pu in (2 * n, 2 * n + 1) if pu != 4),
        )
        for n in range(8)
    )
    return _host(
        *packages,
        distances=_near_and_far(8, 20, 20),
        allowed_pus=[0, 1, 2, 3, 5, 6, 12, 13, 14, 15],
        allowed_nodes=range(1, 5),
    )


def _huge_pages() -> str:
    """One core of two PUs; half of the memory is set aside for huge pages."""
    bank = _bank(0, 32 * GIB)
    for size, count in ((4 * KIB, 4 << 20), (2 * MIB, 8 << 10)):
        ET.SubElement(bank, "page_type", size=str(size), count=str(count))
    return _host(_object("Package", bank, _cache(2, 2 * MIB, _cache(1, 16 * KIB, _core(0, 1)))))


def _smt() -> str:
    """Two packages of eight cores; the second hardware threads are numbered after all first ones."""
    packages = (
        _object(
            "Package",
            _bank(n, 32 * GIB),
            _cache(
                3,
                20 * MIB,
                *(_cache(2, 256 * KIB, _cache(1, 32 * KIB, _core(c, c + 16))) for c in range(8 * n, 8 * n + 8)),
            ),
        )
        for n in range(2)
    )
    return _host(*packages, distances=_near_and_far(2, 20, 20))


def _sparse() -> str:
    """Four packages of two NUMA nodes, whose numbers have gaps."""

    def die(place: int, index: int) -> ET.Element:
        pus = range(6 * place, 6 * place + 6)
        bank = _bank(index, 16 * GIB if place % 2 else 8 * GIB)
        return _cache(3, 5 * MIB, bank, *(_cache(2, 512 * KIB, _cache(1, 64 * KIB, _core(pu))) for pu in pus))

    dies = [die(place, index) for place, index in enumerate((0, 1, 2, 33, 34, 45, 72, 73))]
    packages = (_object("Package", *pair) for pair in zip(dies[::2], dies[1::2], strict=True))
    return _host(*packages, distances=_near_and_far(8, 16, 22, group=2))


def _memory_attributes() -> str:
    """Groups of two PUs without cores; the firmware states the bandwidth of one bank."""
    groups = (
        _object("Group", _bank(n, GIB), *(_object("PU", os_index=pu) for pu in (2 * n, 2 * n + 1)))
        for n in range(4)
    )
    bandwidth = ET.Element("memattr", name="Bandwidth")
    ET.SubElement(bandwidth, "memattr_value", target_obj_type="NUMANode", target_obj_gp_index="1001", value="20")
    return _host(*groups, attributes=[bandwidth])


def _packages_in_a_node() -> str:
    """Four NUMA nodes of four packages, whose PUs are numbered in turn."""

    def package(node: int, number: int) -> ET.Element:
        pus = [24 * node + number + 4 * place for place in range(6)]
        cores = [_cache(1, 32 * KIB, _core(pu)) for pu in pus]
        shared = (_cache(2, 3 * MIB, *cores[first : first + 2]) for first in range(0, 6, 2))
        return _object("Package", _cache(3, 16 * MIB, *shared))

    groups = (_object("Group", _bank(n, 126 * GIB), *(package(n, p) for p in range(4))) for n in range(4))
    return _host(*groups, distances=_near_and_far(4, 26, 26))


def _devices() -> str:
    """One package, and devices of which one holds memory that is no NUMA node."""
    cores = (_cache(2, 4 * MIB, _cache(1, 32 * KIB, _core(pu))) for pu in range(4))
    package = _object("Package", _bank(0, 2920 * MIB), _cache(3, 16 * MIB, *cores))
    return _host(package, _object("Bridge", _object("PCIDev", _object("OSDev", subtype="CXLMem"))))


def _side_caches() -> str:
    """Two packages of two NUMA nodes with DRAM as a cache of persistent memory; the PUs are numbered in turn."""

    def cluster(index: int) -> ET.Element:
        cores = (_cache(2, MIB, _core(pu, pu + 40)) for pu in range(index, 40, 4))
        bank = _object("MemCache", _bank(index, 372 * GIB), depth=1, cache_size=96 * GIB, cache_type=0)
        return _object("Group", bank, *cores)

    packages = (_object("Package", _cache(3, 28160 * KIB, cluster(n), cluster(n + 2))) for n in range(2))
    matrix = [[10, 21, 11, 21], [21, 10, 21, 11], [11, 21, 10, 21], [21, 11, 21, 10]]
    return _host(*packages, distances=matrix)


def _gpu_memory() -> str:
    """Two packages with the memory of three GPUs each; cores of four PUs."""

    def package(index: int, first: int, gpus: Sequence[int]) -> ET.Element:
        cores = [_cache(1, 32 * KIB, _core(*range(pu, pu + 4))) for pu in range(first, first + 16, 4)]
        banks = (_bank(gpu, 15 * GIB, subtype="GPUMemory") for gpu in gpus)
        caches = (_cache(3, 10 * MIB, _cache(2, 512 * KIB, *pair)) for pair in (cores[:2], cores[2:]))
        return _object("Package", _bank(index, 127 * GIB), *banks, *caches)

    matrix = [[10 if a == b else 40 if {a, b} == {0, 1} else 80 for b in range(8)] for a in range(8)]
    return _host(package(0, 0, (253, 254, 255)), package(8, 88, (250, 251, 252)), distances=matrix)


def _hybrid() -> str:
    """Six cores of two PUs, and eight of one that share caches by four."""
    fast = (_cache(2, 1280 * KIB, _cache(1, 48 * KIB, _core(2 * c, 2 * c + 1))) for c in range(6))
    slow = (_cache(2, 2 * MIB, *(_cache(1, 32 * KIB, _core(p)) for p in range(f, f + 4))) for f in (12, 16))
    return _host(_object("Package", _bank(0, 31 * GIB), _cache(3, 24 * MIB, *fast, *slow)))


def _offline_node() -> str:
    """Two packages, of which the first one's NUMA node is offline, so that its PUs have none."""

    def package(pus: range, *banks: ET.Element) -> ET.Element:
        cores = (_cache(2, 256 * KIB, _cache(1, 32 * KIB, _core(pu))) for pu in pus)
        return _object("Package", *banks, _cache(3, 30 * MIB, *cores))

    return _host(package(range(4, 21, 2)), package(range(5, 20, 2), _bank(1, 64 * GIB)))


def _opteron() -> str:
    return OPTERON.read_text(encoding="utf-8")


#: Shape -> what makes up a host of it, and the name of the host of this shape in hwloc's corpus.
_SHAPES: Mapping[str, tuple[Callable[[], str], str]] = {
    "partial-cpuset": (_partial_cpuset, "16amd64-8n2c-cpusets"),
    "huge-pages": (_huge_pages, "2i386-2t-hugepagesizecount"),
    "smt": (_smt, "32em64t-2n8c2t-pci-noio"),
    "sparse": (_sparse, "48amd64-4pa2n6c-sparse"),
    "opteron": (_opteron, "64amd64-4s2n4ca2co"),
    "memory-attributes": (_memory_attributes, "8intel64-4n2t-memattrs"),
    "packages-in-a-node": (_packages_in_a_node, "96em64t-4no4pa3ca2co"),
    "devices": (_devices, "cxlmem+dax.v2"),
    "side-caches": (_side_caches, "memorysidecaches"),
    "gpu-memory": (_gpu_memory, "nvidiagpunumanodes"),
    "hybrid": (_hybrid, "20em64t-hybrid-1p6c2t+2ca4co1t"),
    "offline-node": (_offline_node, "offline-cpu0-node0"),
}
SHAPES = tuple(_SHAPES)


def made_up(shape: str) -> str:
    """Return the XML of a made-up host."""
    return _SHAPES[shape][0]()


def host_of(pus: Iterable[tuple[int, int, int]], banks: Mapping[int, int], **fields: Any) -> Topology:
    """Return a host of PUs, each (core, package, NUMA node), and of *banks*: the bytes of each NUMA node."""
    numbered = tuple(Pu(index, *place) for index, place in enumerate(pus))
    nodes = (NumaNode(n, tuple(p.index for p in numbered if p.numa_node == n), size) for n, size in banks.items())
    allowed = {"allowed_pus": frozenset(p.index for p in numbered), "allowed_nodes": frozenset(banks)}
    return Topology(tuple(nodes), numbered, **{"caches": (), "distances": {}, **allowed, **fields})


def variables_of_small_caches(folder: Path) -> dict[str, str]:
    """Return the variables by which hwloc reports this host with last caches of 16 MiB at most, all together.

    Arrays are several times the last caches, and some virtual machines report hundreds of MiB.
    """
    lstopo = shutil.which("lstopo-no-graphics")
    if lstopo is None:
        return {}
    argv = [lstopo, "--of", "xml", "--disallowed", "-"]
    root = ET.fromstring(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)  # noqa: S314
    last = [cache for cache in root.iter("object") if cache.get("type") == "L3Cache"]
    for cache in last:
        cache.set("cache_size", str(min(int(cache.get("cache_size", "")), 16 * MIB // len(last))))
    file = folder / "small-caches.xml"
    file.write_bytes(ET.tostring(root))
    return dict(zip(SMALL_CACHES, (str(file), "1"), strict=True))


# ----------------------------------------------------------------------
# The hosts of the corpus.


def stored_root(shape: str, folder: Path) -> Path:
    """Unpack the stored root of the corpus's host of this shape in *folder* and return it."""
    subprocess.run(["tar", "-xf", _corpus_file(shape, "tar.bz2"), "-C", folder], check=True)
    return next(folder.glob("*/sys")).parent


def _corpus_file(shape: str, suffix: str) -> Path:
    if not CORPUS.is_dir():
        pytest.skip(f"hwloc's test corpus is not here: there is no folder {CORPUS}")
    return CORPUS / f"{_SHAPES[shape][1]}.{suffix}"


def of_corpus(shape: str) -> str:
    """Return the XML of the corpus's host of this shape; of a stored root, as hwloc's lstopo prints it."""
    stored = _corpus_file(shape, "xml")
    if stored.exists():
        return stored.read_text(encoding="utf-8")
    if not (lstopo := shutil.which("lstopo-no-graphics")):
        pytest.skip("hwloc's lstopo-no-graphics is not on PATH")
    kept = caches.folder("topologies") / stored.name
    with lock_file(kept.with_suffix(".lock")):
        if not kept.exists():
            with tempfile.TemporaryDirectory() as folder, atomic_files.replace(kept) as partial:
                variables = {"HWLOC_FSROOT": str(stored_root(shape, Path(folder)))}
                # The same as lstopo's option --fsroot.
                variables |= {"HWLOC_COMPONENTS": "linux,stop", "HWLOC_THISSYSTEM": "0"}
                variables["HWLOC_KEEP_NVIDIA_GPU_NUMA_NODES"] = "1"
                argv = [lstopo, "--of", "xml", "--disallowed", str(partial)]
                subprocess.run(argv, env={**os.environ, **variables}, check=True)
    return kept.read_text(encoding="utf-8")
