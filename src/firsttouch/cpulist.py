# SPDX-License-Identifier: Apache-2.0
"""Sets of PUs or NUMA nodes in the notations of the kernel ("0-3,8") and of hwloc ("0x0000010f")."""

from __future__ import annotations

import re
from collections.abc import Iterable

from firsttouch.errors import BadInput

#: No kernel numbers its PUs or NUMA nodes this high: what does is a slip, and would fill the memory.
TOO_HIGH = 1 << 20
_WORD = re.compile(r"(?:0x[0-9a-fA-F]{1,8})?")


def parse_list(text: str) -> frozenset[int]:
    """Return the members of a kernel list such as ``0-3,8``; raises BadInput for anything else."""
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
    runs: list[list[int]] = []
    for member in sorted(set(members)):
        if runs and runs[-1][1] == member - 1:
            runs[-1][1] = member
        else:
            runs.append([member, member])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def parse_hwloc(text: str) -> frozenset[int]:
    """Return the members of an hwloc bitmap: 32-bit words, comma-separated, highest first, empty ones 0.

    A finite bitmap only: hwloc writes infinite ones (``0xf...f``) for no object of a topology.
    """
    mask = 0
    for word in text.strip().split(","):
        if not _WORD.fullmatch(word):
            raise BadInput(f"'{text}' is not an hwloc bitmap")
        mask = (mask << 32) | int(word or "0", 16)
    return frozenset(i for i in range(mask.bit_length()) if mask >> i & 1)
