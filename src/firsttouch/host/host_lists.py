# SPDX-License-Identifier: Apache-2.0
"""Lists of host names as Slurm writes them, such as ``n[1-8],m2``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException  # type: ignore[import-untyped]

from firsttouch.errors import BadInput, first_of

#: The most hosts of a range: a longer one is a mistake.
_MOST_HOSTS = 100_000
#: The longest list of hosts in a sentence, and how many hosts of a longer one are named.
_LONGEST, _NAMED = 200, 8
_DIGITS = re.compile(r"(\d+)")


def fold(hosts: Sequence[str]) -> str:
    """Return host names as Slurm writes them, ``n[1-8],m2``, or one by one if that is not possible."""
    try:
        return str(NodeSet.fromlist(list(hosts), resolver=RESOLVER_NOGROUP))
    except NodeSetException:
        return ",".join(hosts)


def named(hosts: Sequence[str]) -> str:
    """Return host names for a sentence: all of them, or the first ones of a long list."""
    names = fold(hosts)
    return names if len(names) < _LONGEST else first_of(hosts, _NAMED)


def unfold(text: str) -> list[str]:
    """Return the host names of a list such as ``n[1-8],m2``; raises BadInput for anything else."""
    if any(int(end) - int(begin) > _MOST_HOSTS for begin, end in re.findall(r"(\d{1,18})-(\d{1,18})", text)):
        raise BadInput(f"{text}: more than {_MOST_HOSTS} hosts")
    try:
        hosts = list(NodeSet(text, resolver=RESOLVER_NOGROUP))
    except NodeSetException as error:
        raise BadInput(f"'{text}' is not a list of hosts, such as n[1-8],m2: {error}") from error
    if not hosts:
        raise BadInput(f"'{text}' names no host")
    return hosts


def natural(host: str) -> list[tuple[int, int | str]]:
    """Return a key that sorts hosts by the numbers in their names: n9 before n10."""
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in _DIGITS.split(host)]
