# SPDX-License-Identifier: Apache-2.0
"""Summaries of the large tables of a store: what judging and the history need of them, in a fraction of the time.

The summary of ``STORE/NAME.parquet`` is ``STORE/.summaries/NAME.summary``. It has nothing that the table does not
have. It can be deleted at any time, and the next command that reads the table writes it anew. It counts only if
the table is still the file that it was made of (the kernel sets the time of a file's last change, no program can),
if this version of the program made it, and if it is owned by somebody who may replace the table as well.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import os
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import firsttouch
from firsttouch.judge import drift, samples_table
from firsttouch.judge.samples_table import Reduced
from firsttouch.records import atomic_files

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")
FOLDER, SUFFIX = ".summaries", ".summary"
#: Smaller tables (bytes) are read as fast as a summary would be.
LEAST = 1 << 20
#: Changed whenever :func:`firsttouch.judge.samples_table.reduced` or the members of the file change.
_FORMAT = 1
#: The members of a file, and of each part.
_FACTS, _CONFIGURED, _ROWS, _NAMINGS = "facts.json", "configured", "rows", "namings"
#: What makes a file no summary.
_BAD_FILE = (OSError, ValueError, KeyError, TypeError, EOFError, NotImplementedError, zipfile.BadZipFile)


@dataclass(frozen=True)
class Facts:
    """What is known of a table without its rows.

    *hosts* and *checks* are those of all records, *records* the number of records of each system, *first* and
    *last* the earliest and the latest time (ms since 1970).
    """

    hosts: Sequence[str]
    checks: Sequence[str]
    records: Mapping[str, int]
    first: int
    last: int


@dataclass(frozen=True)
class Summary:
    """What judging needs of some records, in *parts*, and their configurations (see :func:`drift.changes`)."""

    facts: Facts
    parts: Sequence[Reduced]
    configured: pl.DataFrame


class Summariser:
    """Makes the summary of a table, of whose records it gets one part after the other."""

    def __init__(self) -> None:
        self._checks: dict[str, None] = {}
        self._records: Counter[str] = Counter()
        self._parts: list[Reduced] = []
        self._configured: list[pl.DataFrame] = [drift.nothing()]

    def add(self, frame: pl.DataFrame) -> Reduced:
        """Add a part of the records; return what judging needs of it."""
        self._checks |= dict.fromkeys(frame["check"].unique().sort())
        self._records.update(dict(frame["system"].value_counts().iter_rows()))
        self._configured.append(drift.changes(frame))
        self._parts.append(samples_table.reduced(frame))
        return self._parts[-1]

    def summary(self) -> Summary:
        """Return the summary of the records so far."""
        import polars as pl  # noqa: PLC0415 - a large import

        spans = pl.concat([part.spans for part in self._parts or [samples_table.nothing()]])
        hosts = spans["host"].unique().sort().to_list()
        first, last = (time or 0 for time in spans.select(pl.col("time").min(), pl.col("end").max()).row(0))
        facts = Facts(hosts, list(self._checks), dict(self._records), first, last)
        return Summary(facts, self._parts, drift.changes(pl.concat(self._configured)))


# ----------------------------------------------------------------------
# Files


def path_of(table: Path) -> Path:
    """Return the file of a table's summary."""
    return table.parent / FOLDER / f"{table.name}{SUFFIX}"


def identity(table: Path) -> dict[str, Any] | None:
    """Return what tells a large *table* from any other file; None for a small one, or without a file.

    Read it before the records: a table that changes meanwhile has another one.
    """
    with contextlib.suppress(OSError):
        status = table.stat()
        if status.st_size >= LEAST:
            return {
                "version": _version(),
                "table": table.name,
                "size": status.st_size,
                "inode": status.st_ino,
                "modified": status.st_mtime_ns,
                "changed": status.st_ctime_ns,
            }
    return None


@functools.cache
def _version() -> str:
    catalogue = resources.files("firsttouch.records").joinpath("metrics.toml").read_bytes()
    return f"{_FORMAT} {firsttouch.__version__} {hashlib.sha256(catalogue).hexdigest()}"


def write(table: Path, of_table: Mapping[str, Any], summary: Summary) -> bool:
    """Write the *summary* of a *table* with this :func:`identity`; return whether that was possible.

    Somebody who may not write into the store reads its tables without summaries.
    """
    import polars as pl  # noqa: PLC0415 - a large import

    file = path_of(table)
    names = [{"hosts": list(part.hosts), "reasons": list(part.reasons)} for part in summary.parts]
    document = {"identity": of_table, "facts": asdict(summary.facts), "parts": names}
    tables = {_CONFIGURED: summary.configured}
    for number, part in enumerate(summary.parts):
        tables[f"{number}/{_ROWS}"] = pl.DataFrame({n: getattr(part, n) for n in samples_table.COLUMNS})
        namings = pl.Series("naming", part.namings, pl.String)
        tables[f"{number}/{_NAMINGS}"] = pl.DataFrame([namings, pl.Series("count", part.counts)])
        tables |= {f"{number}/{name}": getattr(part, name) for name in samples_table.TABLES}
    if file.parent.is_symlink():
        return False
    try:
        file.parent.mkdir(exist_ok=True)
        with atomic_files.replacing(file) as partial, zipfile.ZipFile(partial, "w") as out:
            out.writestr(_FACTS, json.dumps(document))
            for name, content in tables.items():
                buffer = io.BytesIO()
                content.write_ipc(buffer, compression="lz4")
                out.writestr(name, buffer.getvalue())
    except OSError:
        return False
    return True


def facts(table: Path) -> Facts | None:
    """Return the facts of a *table* with a summary that fits it, None without one."""
    return _read(table, lambda document, _: Facts(**document["facts"]))


def configured(table: Path) -> pl.DataFrame | None:
    """Return the configurations of a *table* with a summary that fits it, None without one."""
    return _read(table, lambda _, content: content(_CONFIGURED))


def read(table: Path) -> Summary | None:
    """Return the summary of a *table* if it fits it, None without one."""

    def whole(document: dict[str, Any], content: Callable[[str], pl.DataFrame]) -> Summary:
        parts = []
        for number, names in enumerate(document["parts"]):
            rows, namings = content(f"{number}/{_ROWS}"), content(f"{number}/{_NAMINGS}")
            columns: dict[str, Any] = {name: rows[name].to_numpy() for name in samples_table.COLUMNS}
            columns |= {name: content(f"{number}/{name}") for name in samples_table.TABLES}
            counts = namings["count"].to_numpy()
            parts.append(Reduced(**names, namings=namings["naming"].to_list(), counts=counts, **columns))
        return Summary(Facts(**document["facts"]), parts, content(_CONFIGURED))

    return _read(table, whole)


def _read(table: Path, convert: Callable[[dict[str, Any], Callable[[str], pl.DataFrame]], T]) -> T | None:
    """Return what *convert* makes of a summary that fits its *table*, None without one.

    *convert* gets the document, and a function that returns the content of a member.
    """
    import polars as pl  # noqa: PLC0415 - a large import

    with contextlib.suppress(*_BAD_FILE, pl.exceptions.PolarsError), zipfile.ZipFile(path_of(table)) as file:
        return convert(_document(file, table), lambda name: pl.read_ipc(io.BytesIO(file.read(name))))
    return None


def _document(file: zipfile.ZipFile, table: Path) -> dict[str, Any]:
    """Return the document of a summary; raises ValueError if it does not fit its *table*, or is a stranger's."""
    document: dict[str, Any] = json.loads(file.read(_FACTS))
    if document["identity"] != identity(table):
        raise ValueError("another table")
    owners = {0, os.geteuid(), table.stat().st_uid, table.parent.stat().st_uid}
    # Of the open file: another one may have got its name meanwhile.
    if file.fp is None or os.fstat(file.fp.fileno()).st_uid not in owners:
        raise ValueError("a file of somebody who may not replace the table")
    return document


def prune(folder: Path) -> None:
    """Delete the summaries of tables that a store in *folder* does not have any more, and those half written."""
    if (folder / FOLDER).is_symlink():  # another folder, which somebody else may have chosen
        return
    for file in (folder / FOLDER).glob("*"):
        is_ours = file.name.endswith(SUFFIX) or file.name.startswith(atomic_files.PREFIX)
        if is_ours and not (folder / file.name.removesuffix(SUFFIX)).exists():
            with contextlib.suppress(OSError):
                file.unlink()
