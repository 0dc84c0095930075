# SPDX-License-Identifier: Apache-2.0
"""Sets of PUs or NUMA nodes in the notations of the kernel ("0-3,8") and of hwloc ("0x0000010f")."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

from firsttouch.errors import BadInput

#: PU and NUMA node numbers stay below this; a larger one is a typing error, and its range would fill the memory.
TOO_HIGH = 1 << 20
_BITMAP = re.compile(r"(?:0x[0-9a-fA-F]{1,8})?(?:,(?:0x[0-9a-fA-F]{1,8})?)*")


def parse_list(text: str) -> frozenset[int]:
    """Return the members of a kernel list such as ``0-3,8``; raises BadInput for anything else.

    ClusterShell's RangeSet also accepts steps and padding, which the kernel does not, and is 30 times slower.
    """
    members: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last) < TOO_HIGH):
            raise BadInput(f"'{text.strip()}' is not a list of numbers such as 0-3,8")
        members.update(range(int(first), int(last) + 1))
    return frozenset(members)


def format_list(members: Iterable[int]) -> str:
    """Return *members* in the kernel's list notation, ascending, with ranges: ``0-3,8``."""
    # Within a range, the difference of member and index is constant.
    groups = groupby(enumerate(sorted(set(members))), key=lambda pair: pair[1] - pair[0])
    runs = [[member for _, member in group] for _, group in groups]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def parse_hwloc(text: str) -> frozenset[int]:
    """Return the members of an hwloc bitmap: 32-bit words, comma-separated, highest first, an empty word is 0.

    Raises BadInput for anything else. Infinite bitmaps (``0xf...f``) are refused: no object of a topology has one.
    """
    if not _BITMAP.fullmatch(text.strip()):
        raise BadInput(f"'{text}' is not an hwloc bitmap")
    members: list[int] = []
    # The bitmap of a PU has a single bit, and hundreds of empty words on the largest hosts.
    for place, word in enumerate(reversed(text.strip().split(","))):
        bits = int(word, 16) if word else 0
        members += (32 * place + bit for bit in range(bits.bit_length()) if bits >> bit & 1)
    return frozenset(members)


def status_list(status: str, key: str) -> frozenset[int]:
    """Return one list field, such as ``Cpus_allowed_list``, of the text of a /proc/PID/status."""
    for line in status.splitlines():
        if line.startswith(key + ":"):
            return parse_list(line.split(":", 1)[1])
    return frozenset()
