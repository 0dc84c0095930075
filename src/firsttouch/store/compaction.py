# SPDX-License-Identifier: Apache-2.0
"""Makes one file of a store's many small ones, at any time: hosts append and readers read meanwhile.

The new file names those that it stands for, so that from the moment it is there these are read no more. They are
deleted later, by another compaction: who listed them before may still be reading.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import polars as pl

from firsttouch import beside
from firsttouch.errors import RunFailed
from firsttouch.records import columns
from firsttouch.store.files import COMPACT, NAME, REPLACES, SUFFIX, covers, listing, put
from firsttouch.store.reading import check_columns, tables

#: Seconds that a reader may take from listing files to having read them.
PATIENCE = 3600.0
#: Files below this size are worth joining.
_SMALL = 64 << 20
#: Rows that lie together: a reader of one host's records skips the others.
_ROWS = 1 << 17


@dataclass(frozen=True)
class Compacted:
    """What a compaction did: the *file* it made of how many (*joined*), and how many it *deleted*."""

    file: Path | None
    joined: int
    deleted: int


def compact(folder: Path, *, patience: float = PATIENCE) -> Compacted:
    """Join the small files of the store in *folder* into one, and delete what was joined *patience* seconds ago.

    It may be killed at any moment and run again, also while another one runs. Tables that no store wrote, such as
    a report's, stay as they are. Raises BadInput for a file that is not a table of records.
    """
    before = listing(folder)
    small = [f for f in before.current if NAME.fullmatch(f.name) and f.stat().st_size < _SMALL]
    for file in small:
        check_columns(file, list(columns()))
    joined = _join(folder, small) if len(small) > 1 else None
    return Compacted(joined, len(small) if joined else 0, _delete(folder, patience))


def _join(folder: Path, small: list[Path]) -> Path:
    # A file that already stands for others hands them on: they may still be there.
    names = sorted({f.name for f in small}.union(*(covers(f) or () for f in small if f.name.startswith(COMPACT))))
    name = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
    table = tables(small)
    metadata = {REPLACES: json.dumps(names)}

    def write(out: IO[bytes]) -> None:
        # In the order of the files' names, which is by host and time: nothing has to be held to sort it.
        table.sink_parquet(out, metadata=metadata, row_group_size=_ROWS)

    def check(partial: Path) -> None:
        # The files that it stands for will be deleted: they are counted before.
        if (there := _count([partial])) != (wanted := _count(small)):
            raise RunFailed(
                f"{folder}: {there} of {wanted} records arrived in the joined file: nothing was changed"
            )

    return put(folder / f"{COMPACT}{name}{SUFFIX}", write, check)


def _written(file: Path) -> float:
    """Return when a file was written, never for one that has got its name meanwhile."""
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return math.inf


def _count(files: list[Path]) -> int:
    return int(tables(files).select(pl.len()).collect().item())


def _delete(folder: Path, patience: float) -> int:
    """Delete what is not read any more, and what a killed writer left."""
    old = time.time() - patience
    after = listing(folder)
    standing = [f for f in after.current if f.name.startswith(COMPACT)]
    joined = {name for f in standing if f.stat().st_mtime < old for name in covers(f) or ()}
    gone = [f for f in after.replaced if f.name in joined]
    # Of two compactions at once, the one that is not read.
    gone += [f for f in after.replaced if f.name.startswith(COMPACT) and (covers(f) or {""}) <= joined]
    gone += [f for f in folder.glob(f"{beside.PREFIX}*") if _written(f) < old]
    for file in set(gone):
        file.unlink(missing_ok=True)
    return len(set(gone))
