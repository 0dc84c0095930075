# SPDX-License-Identifier: Apache-2.0
"""Summaries of the large tables of a store: what judging and the history need of them, in a fraction of the time.

The summary of ``STORE/NAME.parquet`` is ``STORE/.summaries/NAME.summary``. It has nothing that the table does not
have. It can be deleted at any time, and the next command that reads the table writes it anew. It counts only if
the table is still the file that it was made of (the kernel sets the time of a file's last change, no program can),
if the program that made it has the same :data:`SOURCES`, and if it is owned by somebody who may replace the table
as well.

A summary has the rows of some cases together, in the order of cases. They stay in the file until these cases are
judged (:class:`firsttouch.judge.samples_table.Joined`), so a file that fits is checked as a whole and kept open.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import os
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict
from numpy.typing import NDArray

from firsttouch.judge import drift, reduced
from firsttouch.judge.reduced import Reduced
from firsttouch.records import atomic_files

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")
FOLDER, SUFFIX = ".summaries", ".summary"
#: Smaller tables (bytes) are read as fast as a summary would be.
LEAST = 1 << 20
#: The source, in this package, that decides what a summary of a table says.
SOURCES = (
    "benchmarks/kernel_settings.py",
    "judge/drift.py",
    "judge/reduced.py",
    "judge/summaries.py",
    "records/cases.py",
    "records/catalogue.py",
    "records/metrics.toml",
    "records/schema.py",
    "records/store.py",
)
#: The members of a file, and of each part.
_FACTS, _CONFIGURED, _ROWS = "facts.json", "configured", "rows"
#: The lists of a piece of a part.
_LISTS = ("hosts", "namings", "reasons")
#: What makes a file no summary. A member with a wrong flag or method is a RuntimeError or an error of zlib.
_BAD_FILE = (OSError, ValueError, KeyError, TypeError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile)


class Facts(Struct, frozen=True):
    """What is known of a table without its rows.

    *hosts* and *checks* are those of all records, *records* the number of records of each system, *first* and
    *last* the earliest and the latest time (ms since 1970).
    """

    hosts: Sequence[str]
    checks: Sequence[str]
    records: Mapping[str, int]
    first: int
    last: int


class Summary(Struct, frozen=True):
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
        self._parts.append(reduced.reduced(frame))
        return self._parts[-1]

    def summary(self) -> Summary:
        """Return the summary of the records so far."""
        import polars as pl  # noqa: PLC0415 - a large import

        spans = pl.concat([part.spans for part in self._parts or [reduced.nothing()]])
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
    """Return a digest of what decides the content of summaries, which many versions of the program share."""
    package, digest = resources.files("firsttouch"), hashlib.sha256()
    for source in SOURCES:
        digest.update(package.joinpath(source).read_bytes())
    return digest.hexdigest()


def write(table: Path, of_table: Mapping[str, Any], summary: Summary) -> bool:
    """Write the *summary* of a *table* with this :func:`identity`; return whether that was possible.

    Somebody who may not write into the store reads its tables without summaries.
    """
    import polars as pl  # noqa: PLC0415 - a large import

    file = path_of(table)
    pieces: list[dict[str, Any]] = []
    tables = {_CONFIGURED: summary.configured}
    for number, part in enumerate(summary.parts):
        tables |= {f"{number}/{name}": getattr(part, name) for name in reduced.TABLES}
        for piece in part.divided():
            rows = f"{number}/{_ROWS}/{len(pieces)}"
            lists = {name: list(getattr(piece, name)) for name in _LISTS}
            pieces.append({"part": number, "rows": rows, **lists, "counts": piece.counts.tolist()})
            tables[rows] = pl.DataFrame(dict(piece.rows()))
    document = {"identity": of_table, "facts": asdict(summary.facts), "pieces": pieces}
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


def read(table: Path, *, keep_open: bool = True) -> Summary | None:
    """Return the summary of a *table* if it fits it, None without one.

    Its rows are read when they are needed, from the open file, or from its content without *keep_open*.
    """
    import polars as pl  # noqa: PLC0415 - a large import

    with contextlib.suppress(*_BAD_FILE, pl.exceptions.PolarsError), contextlib.ExitStack() as stack:
        file = stack.enter_context(_opened(table))
        document = _document(file, table)
        if file.testzip() is not None:
            raise ValueError("damaged")
        if not keep_open and file.fp is not None:
            file.fp.seek(0)
            file = zipfile.ZipFile(io.BytesIO(file.fp.read()))
        parts, part = [], -1
        tables: dict[str, Any] = {}
        shared: dict[tuple[str, ...], list[str]] = {}
        for piece in document["pieces"]:
            if piece["part"] != part:
                part = piece["part"]
                tables = {name: _content(file, f"{part}/{name}") for name in reduced.TABLES}
            counts = np.array(piece["counts"], dtype=np.int64)
            # Parts share their lists: most have the same hosts.
            lists: dict[str, Any] = {name: shared.setdefault(tuple(piece[name]), piece[name]) for name in _LISTS}
            # A damaged directory may lack it, which raises KeyError here, not while cases are judged.
            rows = functools.partial(_columns, file, file.getinfo(piece["rows"]))
            parts.append(Reduced(**lists, counts=counts, rows=rows, **tables))
            tables = {name: content.clear() for name, content in tables.items()}
        configurations = _content(file, _CONFIGURED)
        if keep_open:
            stack.pop_all()
        return Summary(Facts(**document["facts"]), parts, configurations)
    return None


def _opened(table: Path) -> zipfile.ZipFile:
    """Open the summary of a *table*; raises OSError if it is not a file."""
    if not (file := path_of(table)).is_file():  # opening a pipe would block forever
        raise FileNotFoundError(file)
    return zipfile.ZipFile(file)


def _content(file: zipfile.ZipFile, name: str | zipfile.ZipInfo) -> pl.DataFrame:
    import polars as pl  # noqa: PLC0415 - a large import

    return pl.read_ipc(io.BytesIO(file.read(name)))


def _columns(file: zipfile.ZipFile, name: zipfile.ZipInfo) -> dict[str, NDArray[Any]]:
    rows = _content(file, name)
    return {column: rows[column].to_numpy() for column in reduced.COLUMNS}


def _read(table: Path, convert: Callable[[dict[str, Any], Callable[[str], pl.DataFrame]], T]) -> T | None:
    """Return what *convert* makes of a summary that fits its *table*, None without one.

    *convert* gets the document, and a function that returns the content of a member.
    """
    import polars as pl  # noqa: PLC0415 - a large import

    with contextlib.suppress(*_BAD_FILE, pl.exceptions.PolarsError), _opened(table) as file:
        return convert(_document(file, table), functools.partial(_content, file))
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
