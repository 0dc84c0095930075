# SPDX-License-Identifier: Apache-2.0
"""Where the pages of programs and files lie, and how large programs are, as the kernel shows it.

The only reader of numa_maps, maps, smaps and status in /proc/PID (proc(5); the kernel's documents
filesystems/proc and admin-guide/mm/numa_memory_policy). It does not judge: :mod:`firsttouch.scenarios.evidence`
does. Pages are counted in units of 4 KiB (:data:`UNIT`). A *process* is its folder in /proc.
"""

from __future__ import annotations

import functools
import mmap
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from firsttouch.errors import CannotHere
from firsttouch.host import kernel_files

#: The unit of pages (bytes).
UNIT = 4096
SELF = Path("/proc/self")
_HUGE_PAGE_FILE = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
#: A file is mapped in parts of this size (bytes), a multiple of any huge page's.
_PART = 1 << 30
_MAPPING = r"([0-9a-f]+)-[0-9a-f]+ \S+ [0-9a-f]+ ([0-9a-f]+):([0-9a-f]+) (\d+) *(.*)"
_NODES = r" N(\d+)=(\d+)"
#: The kernel's names for files without a directory entry: huge pages, shared memory, memfd_create(2).
_NAMELESS = r"(?: file=)?/(?:anon_hugepage|dev/zero|memfd:)"
_KILOBYTES = " kernelpagesize_kB="
#: A policy in numa_maps: mode (two contain a space), flags, and NUMA nodes (mm/mempolicy.c, mpol_to_str). The
#: policy is within this many bytes of the first line of numa_maps.
_FIRST_LINE = 160
_MODE = r"[0-9a-f]+ ((?:prefer \(many\)|weighted interleave|[a-z]+)(?:=[^: ]+)?)(\S*)"
_SIZE = r"(?m)^(\w+):\s+(\d+) kB"


# ----------------------------------------------------------------------
# Texts of one process; they are empty if it has ended


def status(process: Path) -> str:
    """Return the status of a process or thread; empty if it does not run any more."""
    text = kernel_files.text(process / "status", "replace")
    return "" if "\nState:\tZ" in text or "\nState:\tX" in text else text


def maps(process: Path) -> str:
    """Return the maps of a process."""
    return kernel_files.text(process / "maps", "replace")


def smaps_rollup(process: Path) -> str:
    """Return the sums of smaps of a process; also empty if the kernel has none (before Linux 4.14)."""
    return kernel_files.text(process / "smaps_rollup")


def numa_maps(process: Path) -> str:
    """Return the numa_maps of a process; raises OSError."""
    return (process / "numa_maps").read_text(encoding="utf-8", errors="replace")


def policy_of_thread(thread: Path) -> str:
    """Return the memory policy of a thread (``/proc/PID/task/TID``), an empty text if it has ended.

    numa_maps shows it for each mapping that has no other policy, such as the first one, the program's text. Only
    this line is read, because the kernel counts the pages of a mapping when its line is read.
    """
    try:
        with (thread / "numa_maps").open("rb", buffering=0) as file:
            return mode(file.read(_FIRST_LINE).decode(errors="replace"))
    except OSError:
        return ""


def has_numa_maps(proc: Path = Path("/proc")) -> bool:
    """Return whether this kernel shows where pages lie (CONFIG_NUMA)."""
    return (proc / "self/numa_maps").exists()


# ----------------------------------------------------------------------
# Sizes


class Sizes(Struct, frozen=True):
    """The sizes of a process (bytes): its peak resident set, and its resident pages by kind.

    The peak is the highest since the process started its program. *shared* includes shared memory and mapped files
    in memory, which the kernel does not distinguish here.
    """

    peak: int = 0
    anonymous: int = 0
    files: int = 0
    shared: int = 0


def sizes(status: str) -> Sizes:
    """Return the sizes that a process's *status* states; 0 if it has ended."""
    values = _kilobytes(status)
    return Sizes(*(values.get(name, 0) for name in ("VmHWM", "RssAnon", "RssFile", "RssShmem")))


def _kilobytes(text: str) -> dict[str, int]:
    """Return the sizes (bytes) in the lines "Name: 12 kB" of a text."""
    return {name: int(size) << 10 for name, size in re.findall(_SIZE, text)}


class Memory(Struct):
    """The memory of a program and its children by kind of page (bytes; smaps_rollup in proc(5))."""

    #: All anonymous memory without hugetlbfs, and the part of it in transparent huge pages.
    anonymous: int = 0
    huge: int = 0
    #: Shared memory (tmpfs) that is mapped by huge pages.
    shared_huge: int = 0
    hugetlb: int = 0
    #: The requested libraries that are mapped, by name.
    libraries: frozenset[str] = frozenset()
    #: Whether a process has switched transparent huge pages off by prctl(2).
    thp_disabled: bool = False

    @classmethod
    def total(cls, parts: Iterable[Memory]) -> Memory:
        """Return the memory of several programs together."""
        memory = cls()
        for part in parts:
            memory.anonymous += part.anonymous
            memory.huge += part.huge
            memory.shared_huge += part.shared_huge
            memory.hugetlb += part.hugetlb
            memory.libraries |= part.libraries
            memory.thp_disabled = memory.thp_disabled or part.thp_disabled
        return memory

    def add(self, rollup: str, maps: str, status: str, libraries: Collection[str]) -> None:
        """Add one process by its smaps_rollup, its numa_maps or maps, and its status; look for *libraries*."""
        values = _kilobytes(rollup)
        self.anonymous += values.get("Anonymous", 0)
        self.huge += values.get("AnonHugePages", 0)
        self.shared_huge += values.get("ShmemPmdMapped", 0)
        self.hugetlb += values.get("Private_Hugetlb", 0) + values.get("Shared_Hugetlb", 0)
        self.libraries |= {name for name in libraries if f"/{name}" in maps}
        self.thp_disabled = self.thp_disabled or "\nTHP_enabled:\t0" in status

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, a part of a record's ``placement_found``."""
        return {
            "anonymous_bytes": self.anonymous,
            "huge_bytes": self.huge,
            "shared_huge_bytes": self.shared_huge,
            "hugetlb_bytes": self.hugetlb,
            "allocators": sorted(self.libraries),
            "thp_disabled": self.thp_disabled,
        }


@functools.cache
def huge_page() -> int:
    """Return the 4 KiB pages of a transparent huge page, which lies on one NUMA node (512 without any)."""
    try:
        return int(_HUGE_PAGE_FILE.read_text(encoding="ascii")) // UNIT
    except OSError:
        return 512


# ----------------------------------------------------------------------
# Mappings


class FileMapping(Struct, frozen=True):
    """The first address of a mapping, and the device and inode and the path of its file."""

    address: int
    file: tuple[int, int]
    path: str


def file_mapping(line: str) -> FileMapping | None:
    """Return the mapping that a line of maps or smaps describes, or None."""
    if not (match := re.match(_MAPPING, line)):
        return None
    begin, major, minor, inode, path = match.groups()
    return FileMapping(int(begin, 16), (os.makedev(int(major, 16), int(minor, 16)), int(inode)), path)


def file_bytes(maps: str) -> int:
    """Return the sum of the sizes (bytes) of all mappings of files in a process's maps."""
    ranges = (
        line.split(" ", 1)[0]
        for line in maps.splitlines()
        if (m := file_mapping(line)) and m.file[1] and not re.match(_NAMELESS, m.path)
    )
    return sum(int(end, 16) - int(begin, 16) for begin, _, end in (text.partition("-") for text in ranges))


def node_pages(line: str) -> Counter[int]:
    """Return the pages per NUMA node in a line of numa_maps."""
    unit = _unit(line)
    return Counter({int(node): int(count) * unit for node, count in re.findall(_NODES, line)})


def _unit(line: str) -> int:
    """Return the 4 KiB pages in one page of the mapping in a line of numa_maps."""
    kilobytes = line.partition(_KILOBYTES)[2]
    return int(kilobytes.split(" ", 1)[0]) // 4 if kilobytes else 1


def mode(line: str) -> str:
    """Return the memory policy in a line of numa_maps: ``bind:0-1``, ``prefer (many):0``, ``default``."""
    match = re.match(_MODE, line)
    return match[1] + match[2] if match else ""


class AnonymousPages(Struct, frozen=True):
    """Anonymous pages per NUMA node and per memory policy; *copied* are pages of files that were written to.

    *shared* pages, which the counts per NUMA node include, belong to memory that processes share.
    """

    nodes: Counter[int]
    modes: Counter[str]
    copied: int
    shared: int


def anonymous_pages(numa_maps: str) -> AnonymousPages:
    """Return the anonymous pages in a text of numa_maps, among them memory that processes share.

    Mappings of files are left out: their pages lie where their first reader put them, not where this policy says,
    and the kernel does not show where copied pages lie.
    """
    nodes, modes, copied, shared = Counter[int](), Counter[str](), 0, 0
    for line in numa_maps.splitlines():
        is_file, is_private = " file=" in line and not re.search(_NAMELESS, line), " anon=" in line
        if is_file and is_private:
            copied += int(line.partition(" anon=")[2].split(" ", 1)[0]) * _unit(line)
        # A mapping without pages does not affect the policies.
        elif not is_file and (counts := node_pages(line)):
            nodes.update(counts)
            modes[mode(line)] += counts.total()
            shared += 0 if is_private else counts.total()
    return AnonymousPages(nodes, modes, copied, shared)


def mapped_pages(numa_maps: str, addresses: Collection[int]) -> Counter[int]:
    """Return the pages per NUMA node of the mappings that begin at *addresses*."""
    pages = Counter[int]()
    for line in numa_maps.splitlines():
        if int(line.split(" ", 1)[0], 16) in addresses:
            pages.update(node_pages(line))
    return pages


def by_node(pages: Mapping[int, int]) -> dict[str, int]:
    """Return the JSON form of pages per NUMA node."""
    return {str(node): count for node, count in sorted(pages.items())}


# ----------------------------------------------------------------------
# Files


class FilePages(Struct, frozen=True):
    """The pages of files per NUMA node, and the bytes of them that huge pages map."""

    nodes: Counter[int] = field(default_factory=Counter)
    huge_bytes: int = 0

    def __add__(self, other: FilePages) -> FilePages:
        return FilePages(self.nodes + other.nodes, self.huge_bytes + other.huge_bytes)


def resident(file: Path) -> FilePages:
    """Return the pages of a file by mapping all of it. Raises CannotHere if the kernel has no numa_maps."""
    total = FilePages()
    with file.open("rb") as stream:
        state = os.fstat(stream.fileno())
        for offset in range(0, state.st_size, _PART):
            flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
            size = min(_PART, state.st_size - offset)
            with mmap.mmap(stream.fileno(), size, flags=flags, prot=mmap.PROT_READ, offset=offset):
                total += _of_this_process((state.st_dev, state.st_ino))
    return total


def _of_this_process(file: tuple[int, int]) -> FilePages:
    """Return the pages that this process maps of the file with a device and inode, as stat(2) has them."""
    addresses, huge, inside = set[int](), 0, False
    with (SELF / "smaps").open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if mapping := file_mapping(line):
                inside = mapping.file == file
                if inside:
                    addresses.add(mapping.address)
            elif inside and line.startswith(("ShmemPmdMapped:", "FilePmdMapped:")):
                huge += int(line.split()[1]) << 10
    try:
        return FilePages(mapped_pages(numa_maps(SELF), addresses), huge)
    except FileNotFoundError as error:
        raise CannotHere("this kernel has no numa_maps (CONFIG_NUMA is off): pages cannot be verified") from error
