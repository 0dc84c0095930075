# SPDX-License-Identifier: Apache-2.0
"""The state of the page cache before a timed run: how much of an index is cached, and on which NUMA nodes.

Instances read or map an index through the page cache, and its first reader decides where the pages lie. Without a
defined state, the first run of a series is cold, and later ones depend on where the first one ran.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from firsttouch.errors import CannotHere, RunFailed
from firsttouch.execution import AS_IS, COLD, INTERLEAVE, LOCAL
from firsttouch.execution.child_process import child
from firsttouch.execution.progress import live
from firsttouch.host import page_cache
from firsttouch.host.cpusets import format_list
from firsttouch.host.page_cache import Cached
from firsttouch.host.topology import Topology
from firsttouch.scenarios import evidence
from firsttouch.scenarios.memory_fit import bank_bytes
from firsttouch.scenarios.placement import Placement
from firsttouch.tools import require
from firsttouch.units import format_bytes

#: The part of an index that may differ from the requested state.
TOLERANCE = 0.01
#: How often the files are read, because meanwhile the kernel may drop a few large folios again.
_ATTEMPTS = 3


class Restored(Struct, frozen=True):
    """The page cache before a run: the requested *state*, the *cached* part, and why the state did not hold."""

    state: str
    cached: Cached
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form: ``index_cache`` in a record's ``placement_found``."""
        return {"state": self.state, **self.cached.to_dict()}


def banks_of(state: str, placements: Sequence[Placement]) -> tuple[int, ...]:
    """Return the NUMA nodes of the index in *state*, for instances with these *placements*."""
    if state == LOCAL:
        return placements[0].numa_nodes[:1]
    return tuple(sorted({n for p in placements for n in p.numa_nodes})) if state == INTERLEAVE else ()


def check(files: Sequence[Path], state: str, placements: Sequence[Placement], host: Topology) -> None:
    """Raise CannotHere if this user or *host* cannot put the page cache of *files* into *state*."""
    size = sum(file.stat().st_size for file in files)
    banks = banks_of(state, placements)
    if banks and size > (room := sum(bank_bytes(host, n) for n in banks)):
        raise CannotHere(
            f"index cache {state}: the index has {format_bytes(size)}, NUMA nodes {format_list(banks)} have "
            f"{format_bytes(room)}"
        )
    if state == COLD and not page_cache.is_visible(files):
        raise CannotHere(
            f"index cache {state}: Linux shows whether {files[0]} is cached only to those who own it or "
            f"may write it: use {INTERLEAVE} or {LOCAL}, or a copy of the index"
        )


def restore(files: Sequence[Path], state: str, placements: Sequence[Placement]) -> Restored:
    """Put the page cache of *files* into *state*, and return the state that the kernel shows.

    Raises CannotHere if the file system does not allow it, and RunFailed if the files cannot be read.
    """
    if state == AS_IS:
        return Restored(state, page_cache.look(files))
    live(f"index cache: {state}")
    try:
        return _emptied(files) if state == COLD else _spread(files, state, banks_of(state, placements))
    finally:
        live("")


def difference(restored: Sequence[Restored]) -> str:
    """Return in words how the cached part of the index differed between first and last repetition, or ""."""
    first, last = restored[0].cached, restored[-1].cached
    if first.cached is None or last.cached is None or last.cached - first.cached <= TOLERANCE * last.size:
        return ""
    return (
        f"{format_bytes(first.cached)} of the index were cached before the first repetition, "
        f"{format_bytes(last.cached)} before the last: --index-cache {INTERLEAVE} makes them equal"
    )


def _emptied(files: Sequence[Path]) -> Restored:
    page_cache.drop(files)
    cached = page_cache.look(files)
    stays = cached.size if cached.cached is None else cached.cached
    wrong = f"{format_bytes(stays)} of {format_bytes(cached.size)} stay in the page cache"
    reason = f"index cache {COLD}: {wrong}: {_why(files, COLD)}" if stays > TOLERANCE * cached.size else ""
    return Restored(COLD, cached, reason)


def _spread(files: Sequence[Path], state: str, banks: Sequence[int]) -> Restored:
    fill = not page_cache.is_visible(files)
    cached = page_cache.look(files)
    for _ in range(_ATTEMPTS):
        if not wrong(cached, banks):
            return Restored(state, cached)
        if _misplaced(cached, banks):  # reading does not move cached pages
            page_cache.drop(files)
        read(files, banks)
        cached = page_cache.look(files, fill=fill)
    if not (reason := wrong(cached, banks)):
        return Restored(state, cached)
    if cached.cached is not None and cached.cached < TOLERANCE * cached.size:
        raise CannotHere(
            f"index cache {state}: the file system of {files[0]} does not use the page cache: use {AS_IS}"
        )
    return Restored(state, cached, f"index cache {state}: {reason}: {_why(files, state)}")


def read(files: Sequence[Path], banks: Sequence[int]) -> None:
    """Read *files* to their ends, so that uncached pages lie on *banks*; evenly if there are several.

    Raises RunFailed if a file cannot be read, and Missing without numactl.
    """
    require("numactl", "cat")
    rule = "membind" if len(banks) == 1 else "interleave"
    argv = ["numactl", f"--{rule}={format_list(banks)}", "--", "cat", "--", *map(str, files)]
    with child(argv, stderr=subprocess.PIPE) as process:
        _, errors = process.communicate()
    if process.returncode:
        lines = errors.decode(errors="replace").strip().splitlines() or ["it printed nothing"]
        raise RunFailed(f"the index cannot be read: {lines[-1]}")


def wrong(cached: Cached, banks: Sequence[int]) -> str:
    """Return why *cached* is not all of the files, evenly on *banks*; an empty string if it is."""
    if cached.cached is None or cached.pages is None:
        return cached.unknown
    if cached.cached < (1 - TOLERANCE) * cached.size:
        return f"{format_bytes(cached.cached)} of {format_bytes(cached.size)} are cached"
    return _misplaced(cached, banks)


def _misplaced(cached: Cached, banks: Sequence[int]) -> str:
    """Return why the cached pages do not lie evenly on *banks*, or an empty string if they do or it is unknown."""
    return evidence.why_misplaced(cached.pages or {}, banks, outside=TOLERANCE, even=True)


def _why(files: Sequence[Path], state: str) -> str:
    """Return what may prevent *files* from having *state*; raises CannotHere for files in memory."""
    if in_memory := next((f for f in files if page_cache.file_system(f) in page_cache.IN_MEMORY), None):
        raise CannotHere(
            f"index cache {state}: {in_memory} is a file in memory ({page_cache.file_system(in_memory)}), whose "
            f"pages stay where they were written: use {AS_IS}"
        )
    return f"another program uses it, the memory is too small, or its file system is in memory (then use {AS_IS})"
