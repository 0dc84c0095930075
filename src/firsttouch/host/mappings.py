# SPDX-License-Identifier: Apache-2.0
"""What the lines of maps, smaps and numa_maps in /proc/PID say of a mapping (proc(5), filesystems/proc)."""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import NamedTuple

_MAPPING = re.compile(r"([0-9a-f]+)-[0-9a-f]+ \S+ [0-9a-f]+ ([0-9a-f]+):([0-9a-f]+) (\d+) *(.*)")
_NODES = re.compile(r" N(\d+)=(\d+)")
_KILOBYTES = re.compile(r" kernelpagesize_kB=(\d+)")


class Mapping(NamedTuple):
    """The first address of a mapping, and the device and inode and the path of its file."""

    address: int
    file: tuple[int, int]
    path: str


def mapping_of(line: str) -> Mapping | None:
    """Return the mapping that a line of maps or smaps describes, or None."""
    if not (match := _MAPPING.match(line)):
        return None
    begin, major, minor, inode, path = match.groups()
    return Mapping(int(begin, 16), (os.makedev(int(major, 16), int(minor, 16)), int(inode)), path)


def file_bytes(maps: str) -> int:
    """Return the sum of the sizes (bytes) of all mappings of files in a process's maps."""
    ranges = (line.split(" ", 1)[0] for line in maps.splitlines() if (m := mapping_of(line)) and m.file[1])
    return sum(int(end, 16) - int(begin, 16) for begin, _, end in (text.partition("-") for text in ranges))


def address_of(line: str) -> int:
    """Return the first address of the mapping in a line of numa_maps."""
    return int(line.split(" ", 1)[0], 16)


def node_pages(line: str) -> Counter[int]:
    """Return the pages per NUMA node in a line of numa_maps, in units of 4 KiB."""
    size = _KILOBYTES.search(line)
    unit = int(size[1]) // 4 if size else 1
    return Counter({int(node): int(count) * unit for node, count in _NODES.findall(line)})
