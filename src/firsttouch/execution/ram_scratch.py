# SPDX-License-Identifier: Apache-2.0
"""A folder for temporary files in memory on chosen NUMA nodes: a tmpfs of a fixed size.

Writing to a full one fails with ENOSPC, as on a full disk.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from firsttouch.errors import BadInput, CannotHere
from firsttouch.host.available_memory import available_bytes

#: The default size as a part of the free memory.
_SHARE = 0.5
#: Least size (bytes), unless the user requests one.
_LEAST = 16 << 20


class InMemory(Struct, frozen=True):
    """A request for a scratch in memory of a size (bytes; None: half of the free memory)."""

    size_bytes: int | None = None


class RamScratch(Struct, frozen=True):
    """A scratch folder in memory; *policy* is the memory policy of its mount as the kernel shows it, or empty."""

    folder: Path
    numa_nodes: tuple[int, ...]
    size_bytes: int
    policy: str

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"numa_nodes": list(self.numa_nodes), "size_bytes": self.size_bytes, "policy": self.policy}


@contextlib.contextmanager
def ram_scratch(numa_nodes: Iterable[int], *, size_bytes: int | None = None) -> Iterator[RamScratch]:
    """Hold a scratch folder in memory of *size_bytes* (default: half of the free memory of the nodes).

    Pages lie on the one of *numa_nodes* that is nearest to the program that writes them. Raises CannotHere if
    there is too little memory.
    """
    from firsttouch.execution import ram_store  # noqa: PLC0415 - most runs have no scratch in memory

    nodes = tuple(sorted(set(numa_nodes)))
    if size_bytes is None:
        amounts = [sum(map(ram_store.room, nodes)), available_bytes()]
        size_bytes = int(_SHARE * min(amount for amount in amounts if amount is not None))
        if size_bytes < _LEAST:
            raise CannotHere("too little memory is free for a scratch in memory: leave --scratch ram out")
    with ram_store.hold(nodes, size_bytes, huge=False) as store:
        yield RamScratch(store.folder, nodes, size_bytes, store.policy())


@contextlib.contextmanager
def scratch_in(where: InMemory | Path | None, numa_nodes: Iterable[int]) -> Iterator[RamScratch | None]:
    """Hold the scratch in memory that *where* requests; None if it is a folder.

    Raises BadInput if it is not a folder.
    """
    if not isinstance(where, InMemory):
        if where and not where.is_dir():
            reason = "is not a folder" if where.exists() else "this folder does not exist"
            raise BadInput(f"--scratch: {reason}", file=where)
        yield None
        return
    with ram_scratch(numa_nodes, size_bytes=where.size_bytes) as memory:
        yield memory
