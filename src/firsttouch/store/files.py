# SPDX-License-Identifier: Apache-2.0
"""The files of a store: how one is written, and which of a folder's are to be read."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import polars as pl

from firsttouch import beside
from firsttouch.errors import BadInput
from firsttouch.records import Record, table_file, to_frame

SUFFIX = ".parquet"
#: A file that stands for others begins so, and names them under this key of its metadata.
COMPACT, REPLACES = "compact-", "firsttouch.replaces"
#: How :func:`append` and compaction name files.
NAME = re.compile(rf"(?:.+-\d+-\d+-[0-9a-f]{{8}}|{COMPACT}[0-9a-f]{{16}}){re.escape(SUFFIX)}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
#: Quick to write for a host that has better to do; compaction takes its time.
_QUICK = 1


def append(folder: Path, records: Iterable[Record]) -> Path | None:
    """Append *records* to the store in *folder* as a file of its own; return it, None where there are none.

    When this returns, they are on the disk. Any number of processes and hosts may append at once.
    """
    found = list(records)
    if not found:
        return None
    host = _UNSAFE.sub("_", found[0].host)[:80].lstrip(".") or "_"
    name = f"{host}-{time.time_ns()}-{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}"
    folder.mkdir(parents=True, exist_ok=True)
    table = to_frame(found)
    return put(folder / name, lambda out: table.write_parquet(out, compression_level=_QUICK))


def put(file: Path, write: Callable[[IO[bytes]], object], check: Callable[[Path], object] | None = None) -> Path:
    """Let *write* write a file beside *file*, force it to the disk and give it its name; return it.

    *check* looks at the file before it gets its name; nothing is left where one of them raises an error.
    """
    with beside.replacing(file, force=True) as partial:
        with table_file(partial) as out:
            write(out)
        if check is not None:
            check(partial)
    return file


@dataclass(frozen=True)
class Listing:
    """The files of one folder: those to read (*current*), and those that one of them stands for (*replaced*)."""

    current: Sequence[Path]
    replaced: Sequence[Path]


def listing(folder: Path, *, strict: bool = True) -> Listing:
    """Return the Parquet files of *folder* as they are to be read.

    A file that stands for others is read in their place. Of two that stand for some of the same files (two
    compactions at once) the one that stands for more is read. One that cannot be read raises BadInput if *strict*;
    otherwise it stands for no other, and is among those to read.
    """
    # A pipe, whatever its name, is no file: opening it would wait for ever.
    files = sorted(f for f in folder.iterdir() if f.suffix == SUFFIX and f.name[0] != "." and f.is_file())
    covering: dict[Path, frozenset[str]] = {}
    for file in files:
        if file.name.startswith(COMPACT):
            with contextlib.nullcontext() if strict else contextlib.suppress(BadInput):
                if (covered := covers(file)) is not None:
                    covering[file] = covered
    read: list[Path] = []
    done: set[str] = set()
    for file in sorted(covering, key=lambda f: (-len(covering[f]), f.name)):
        if file.name not in done and not covering[file] & done:
            read.append(file)
            done |= covering[file]
    others = [f for f in files if f not in covering and f.name not in done]
    # What stands for files that another one stands for, too, is not read: they would count twice.
    left = [f for f in files if f.name in done or (f in covering and f not in read)]
    return Listing(sorted([*read, *others]), left)


def covers(file: Path) -> frozenset[str] | None:
    """Return the names of the files that *file* stands for; None where it has gone meanwhile."""
    try:
        said = pl.read_parquet_metadata(file).get(REPLACES, "[]")
        return frozenset(map(str, json.loads(said)))
    except FileNotFoundError:
        return None
    except (pl.exceptions.PolarsError, OSError, ValueError, TypeError) as error:
        raise BadInput(f"not a table of records: {_line(error)}", file=file) from error


def _line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0]
