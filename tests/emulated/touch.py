# SPDX-License-Identifier: Apache-2.0
"""Touches memory and says where the kernel put it: `touch.py MIB [SECONDS [THREADS]]` prints one JSON document.

With SECONDS it holds the memory for so long, with as many THREADS, so that others can look at it.

Runs inside the guest, under numactl or whatever else places it. Pages are those of one mapping of MIB
mebibytes, in pages of 4 KiB per NUMA node; the interpreter's own memory is not counted.
"""

import ctypes
import json
import mmap
import os
import re
import sys
import threading
import time
from pathlib import Path

PAGE = mmap.PAGESIZE
PROT_NONE = 0


def main(mebibytes: int, seconds: float = 0, threads: int = 1) -> None:
    size = mebibytes << 20
    mapping = mmap.mmap(-1, size + 2 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    first = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    begin = first + PAGE
    libc = ctypes.CDLL(None, use_errno=True)
    # Without a forbidden page on either side the kernel may join the mapping with its neighbours.
    for edge in (first, begin + size):
        if libc.mprotect(ctypes.c_void_p(edge), ctypes.c_size_t(PAGE), PROT_NONE):
            raise OSError(ctypes.get_errno(), "mprotect")
    ctypes.memset(begin, 1, size)
    pages: dict[str, int] = {}
    for line in Path("/proc/self/numa_maps").read_text().splitlines():
        if begin <= int(line.split()[0], 16) < begin + size:
            for node, count in re.findall(r" N(\d+)=(\d+)", line):
                pages[node] = pages.get(node, 0) + int(count)
    print(json.dumps({"pages": pages, "pus": sorted(os.sched_getaffinity(0))}))
    others = [threading.Thread(target=time.sleep, args=(seconds,)) for _ in range(threads - 1)]
    for other in others:
        other.start()
    time.sleep(seconds)


if __name__ == "__main__":
    main(int(sys.argv[1]), *map(float, sys.argv[2:3]), *map(int, sys.argv[3:4]))
