# SPDX-License-Identifier: Apache-2.0
"""The store: Parquet files in one folder that many hosts append records to, without a lock or a server.

Files are written atomically: after a crash a file is complete or missing, and no other file has changed. Everybody
can read them, and only their owner can change them. :func:`scan` reads all of them as one lazy table, and
:func:`compact` joins many small files.

The folder decides whose files are read: those of root, of its owner and of this user, and those of everybody who
may write to it if it has the sticky bit.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from operator import or_
from pathlib import Path
from typing import IO, TypeVar

import polars as pl
from msgspec import Struct

from firsttouch import paths
from firsttouch.errors import BadInput, RunFailed
from firsttouch.records import atomic_files, schema
from firsttouch.records.schema import Record, Unread, columns, table_file, to_frame

# ----------------------------------------------------------------------
# The files of a store: how they are written, and which ones of a folder are read

SUFFIX = ".parquet"
#: The beginning of the name of a file that replaces others, and the key of its metadata that names them.
COMPACT, REPLACES = "compact-", "firsttouch.replaces"
#: The names of files of :func:`append` and compaction.
NAME = re.compile(rf"(?:.+-\d+-\d+-[0-9a-f]{{8}}|{COMPACT}[0-9a-f]{{16}}){re.escape(SUFFIX)}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
#: The compression level of appended files: a host must not spend time on it. Compaction compresses better.
_QUICK = 1


def append(folder: Path, records: Iterable[Record]) -> Path | None:
    """Append *records* to the store in *folder* as a new file; return the file, None if there is no record.

    The records are on the disk on return. Any number of processes and hosts may append at once. Raises BadInput if
    *folder* is something else, or if others would not read the files of this user there.
    """
    listed = list(records)
    if not listed:
        return None
    host = _UNSAFE.sub("_", listed[0].host)[:80].lstrip(".") or "_"
    name = f"{host}-{time.time_ns()}-{os.getpid()}-{os.urandom(4).hex()}{SUFFIX}"
    if folder.is_symlink() and not folder.exists():
        raise BadInput("a link to nothing: a store is a folder", file=folder)
    if folder.exists() and not folder.is_dir():
        raise BadInput("a store is a folder", file=folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o755, exist_ok=True)
    if reason := _Rights(folder).refusal():
        raise BadInput(reason, file=folder)
    table = to_frame(listed)
    return put(folder / name, lambda out: table.write_parquet(out, compression_level=_QUICK))


def put(file: Path, write: Callable[[IO[bytes]], object], check: Callable[[Path], object] | None = None) -> Path:
    """Write *file* atomically by *write*, force it to the disk and return it.

    Everybody may read it, whatever the umask is, and only its owner may change it. *check* is called with the
    written file before it gets its name. An error of either leaves nothing.
    """
    with atomic_files.replacing(file, force=True) as partial:
        with table_file(partial) as out:
            write(out)
        atomic_files.set_mode(partial, 0o644)
        if check is not None:
            check(partial)
    return file


class Listing(Struct, frozen=True):
    """The files of one folder: those to read (*current*), and those that these replace (*replaced*).

    *covering* are the names that each joined file replaces, as far as its owner may delete these files.
    """

    current: Sequence[Path]
    replaced: Sequence[Path]
    covering: Mapping[Path, frozenset[str]]


def listing(
    folder: Path, rights: _Rights | None = None, *, strict: bool = True, on_ignored: OnUnread | None = None
) -> Listing:
    """Return the Parquet files of *folder*: which to read, and which are replaced.

    Files of strangers (:class:`_Rights`) are ignored, and *on_ignored* is called for each. A file replaces only
    those of the same owner, and all if the owner is root or the folder's. It has at least as many records as it
    replaces files.

    If two files replace some of the same files (two compactions at once), the one that replaces more is read. A
    file that cannot be read raises BadInput if *strict*. Otherwise it replaces no other, and is to be read.
    """
    # Opening a pipe would block forever.
    rights = rights or _Rights(folder)
    files = sorted(f for f in folder.iterdir() if f.suffix == SUFFIX and f.name[0] != "." and f.is_file())
    files = [f for f in files if rights.may_read(f, on_ignored)]
    names = {f.name: f for f in files}
    covering: dict[Path, frozenset[str]] = {}
    for file in files:
        if file.name.startswith(COMPACT):
            with contextlib.nullcontext() if strict else contextlib.suppress(BadInput):
                # A name without a file is kept: another machine may have deleted the file.
                claimed = covers(file) or ()
                if allowed := frozenset(n for n in claimed if n not in names or rights.has(file, names[n])):
                    covering[file] = allowed
    read: list[Path] = []
    done: set[str] = set()
    for file in sorted(covering, key=lambda f: (not rights.has_all(f), -len(covering[f]), f.name)):
        overlap = any(covering[file] & covering[other] and rights.has(other, file) for other in read)
        if file.name not in done and not overlap:
            read.append(file)
            done |= covering[file]
    others = [f for f in files if f not in covering and f.name not in done]
    # A file that replaces files of another one is not read: these would count twice.
    left = [f for f in files if f.name in done or (f in covering and f not in read)]
    return Listing(sorted([*read, *others]), left, covering)


class _Rights:
    """Whose entries of a folder are read, and which files the owner of another one may replace."""

    def __init__(self, folder: Path, above: _Rights | None = None) -> None:
        """Find the rights in *folder*, which was read because of the rights in the folder *above*, if any."""
        status = folder.stat()
        self._masters: set[int] = {0, status.st_uid}
        # Whoever may create a folder in a shared one decides about this folder's files, but not what else is read.
        is_given: bool = above is None or above._is_closed or status.st_uid in above._deciders
        self._deciders: set[int] = paths.deciders(folder) if is_given else {0, os.geteuid()}
        self._is_closed: bool = not status.st_mode & 0o022
        # The sticky bit keeps users who share a folder from removing the files of each other.
        self._is_shared = not self._is_closed and bool(status.st_mode & stat.S_ISVTX)

    def may_read(self, entry: Path, on_ignored: OnUnread | None = None) -> bool:
        """Return whether an entry of the folder is read, and call *on_ignored* if it is not.

        Whoever owns a link or the description of a campaign chooses other files: in a shared folder, only those of
        root, of the folder's owner and of this user are followed, and no link into /proc.
        """
        try:
            status = entry.lstat()
        except FileNotFoundError:  # deleted meanwhile
            return False
        is_link, is_decider = stat.S_ISLNK(status.st_mode), status.st_uid in self._deciders
        reason = ""
        if is_link and Path(os.path.realpath(entry)).is_relative_to("/proc"):
            reason = "a link into /proc"
        elif is_link or entry.name == CAMPAIGN:
            kind = "link" if is_link else "campaign"
            reason = "" if is_decider else f"a {kind} of another user ({status.st_uid}), {_NO_DECIDER}"
        elif not (
            is_decider
            or self._is_shared
            or status.st_uid in self._masters
            or (self._is_closed and stat.S_ISDIR(status.st_mode))
        ):
            reason = f"of another user ({status.st_uid}), who does not own the folder: {_SHARING}"
        if reason and on_ignored is not None:
            on_ignored(Unread(BadInput(f"ignored: {reason}", file=entry), hosts=frozenset()))
        return not reason

    def refusal(self) -> str:
        """Return why others would not read a file of this user, an empty text if they would."""
        is_read = self._is_shared or os.geteuid() in self._masters
        return "" if is_read else f"the store of another user, where records of this user do not count: {_SHARING}"

    def has_all(self, file: Path) -> bool:
        """Return whether the owner of *file* may replace all files."""
        return _owner(file) in self._masters

    def has(self, file: Path, other: Path) -> bool:
        """Return whether the owner of *file* may replace *other*."""
        return self.has_all(file) or _owner(file) == _owner(other)

    def here(self, file: Path) -> bool:
        """Return whether this user may replace *file*."""
        return os.geteuid() in {*self._masters, _owner(file)}


_NO_DECIDER = "who does not decide what this store reads"
#: How several users share a folder.
_SHARING = "its owner shares it by mode 3775"


def _owner(file: Path) -> int:
    """Return the user id of the owner of a file, -1 if it has been deleted meanwhile."""
    try:
        return file.lstat().st_uid
    except FileNotFoundError:
        return -1


def covers(file: Path) -> frozenset[str] | None:
    """Return the names of the files that *file* says it replaces; None if it has been deleted meanwhile.

    There are none if it has fewer records than these files, each of which has one.
    """
    try:
        names = frozenset(map(str, json.loads(pl.read_parquet_metadata(file).get(REPLACES, "[]"))))
        appended = sum(not name.startswith(COMPACT) for name in names)
        return names if appended <= _count([file]) else frozenset()
    except FileNotFoundError:
        return None
    except (pl.exceptions.PolarsError, OSError, ValueError, TypeError) as error:
        raise _no_table(error, file) from error


def _no_table(error: BaseException, file: Path) -> BadInput:
    reason = str(error).split("\n", 1)[0]
    if (number := schema.kernel_error(error)) is not None:
        return BadInput(f"cannot be read: {os.strerror(number)}", file=file)
    return BadInput(f"not a table of records: {reason}", file=file)


# ----------------------------------------------------------------------
# Reading records from stores, tables of reports, and the JSON lines of checks

LINES, TABLE, CAMPAIGN = "records.jsonl", "records.parquet", "campaign.json"
#: The number of rows that are processed at a time.
ROWS = 1 << 19
#: About how many bytes of a table's file these are.
_BYTES = 16 << 20
#: The fewest bytes of a file per row. Equal rows take almost no room in a file, and as much memory as any others.
_LEAST_PER_ROW = 4
#: Smaller files (bytes) are read whatever their age: asking for it takes as long.
_LEAST = 1 << 20
#: Called for a file with records that cannot be read.
OnUnread = Callable[[Unread], object]


class Sources(Struct, frozen=True):
    """The files with records, *tables* (Parquet) and *lines* (JSON lines), and the folders of *campaigns*.

    *piped* are the records of pipes, which can be read only once.
    """

    tables: Sequence[Path]
    lines: Sequence[Path]
    campaigns: Sequence[Path]
    piped: Sequence[pl.DataFrame] = ()


def refuse(unread: Unread) -> None:
    """Raise the error of the first record that cannot be read."""
    raise unread.error


def find(paths: Iterable[Path], on_unread: OnUnread = refuse) -> Sources:
    """Return the files with records among *paths* and below the folders among them.

    In a folder these are all records.jsonl, records.parquet and files of stores; in a store, also Parquet files
    with other names. Links to folders are followed, each folder once, but neither into /proc nor those of
    strangers (:class:`_Rights`). A folder with a campaign.json is a campaign, which lists its own records. A path
    to a file is a table if it ends in .parquet, or else JSON lines. A pipe has JSON lines and is read at once.
    Raises BadInput for a missing path and for devices.
    *on_unread* is called for folders, and entries below them, that cannot be read or are ignored.
    """
    tables: dict[Path, None] = {}
    lines: dict[Path, None] = {}
    campaigns: dict[Path, None] = {}
    piped: list[pl.DataFrame] = []
    seen: set[tuple[int, int]] = set()
    rights_in: dict[Path, _Rights] = {}

    def failed(error: OSError) -> None:
        on_unread(Unread(_cannot(error, path)))

    for path in paths:
        if not path.exists():
            raise BadInput("no such file or folder", file=path)
        kind = path.stat().st_mode
        if stat.S_ISFIFO(kind):
            good, unread = schema.read_good(path)
            piped.append(schema.to_frame(good))
            if unread is not None:
                on_unread(unread)
        elif stat.S_ISREG(kind):
            (tables if path.suffix == SUFFIX else lines)[path] = None
        elif not stat.S_ISDIR(kind):
            raise BadInput("a device or a socket, not a file with records", file=path)
        for folder, below, names in _walk(path, seen, failed) if stat.S_ISDIR(kind) else ():
            # Who follows a link trusts whoever made it.
            above = None if folder.is_symlink() else rights_in.get(folder.parent)
            rights = rights_in[folder] = _Rights(folder, above)
            if CAMPAIGN in names and rights.may_read(folder / CAMPAIGN, on_unread):
                campaigns[folder] = None
                below.clear()
                continue
            below[:] = [name for name in below if rights.may_read(folder / name, on_unread)]
            if LINES in names and (folder / LINES).is_file() and rights.may_read(folder / LINES, on_unread):
                lines[folder / LINES] = None
            if any(name.endswith(SUFFIX) for name in names):
                tables.update(dict.fromkeys(_tables_of(folder, rights, on_unread)))
    for file in [f for f in tables if not _is_utf8(f)]:
        del tables[file]
        on_unread(Unread(BadInput("a table whose path is not UTF-8 cannot be read: rename it", file=file)))
    return Sources(list(tables), list(lines), list(campaigns), piped)


def _walk(
    path: Path, seen: set[tuple[int, int]], failed: Callable[[OSError], None]
) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Walk a folder as :func:`os.walk` does, with the folders that links lead to.

    Folders that were *seen* are left out, and those of /proc: its links lead to the folders of all processes.
    """
    processes = Path("/proc").stat().st_dev
    for folder, below, names in os.walk(path, onerror=failed, followlinks=True):
        below.sort()
        try:
            status = Path(folder).stat()
        except OSError:  # deleted meanwhile
            below.clear()
            continue
        key = (status.st_dev, status.st_ino)
        if key in seen or status.st_dev == processes:
            below.clear()
            continue
        seen.add(key)
        yield Path(folder), below, names


def _tables_of(folder: Path, rights: _Rights, on_ignored: OnUnread) -> Iterator[Path]:
    """Yield the tables of records in a folder: those with the names of a store, and others in a store."""
    current = listing(folder, rights, strict=False, on_ignored=on_ignored).current
    is_store = any(NAME.fullmatch(file.name) for file in current)
    for file in current:
        if file.name == TABLE or NAME.fullmatch(file.name) or (is_store and _is_renamed(file)):
            yield file


def _is_renamed(file: Path) -> bool:
    """Return whether a file with another name than those of a store is a table of records."""
    try:
        return schema.columns().keys() <= pl.read_parquet_schema(file).keys()
    except (pl.exceptions.PolarsError, OSError):
        return False


def _is_utf8(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def newer(files: Sequence[Path], since: str) -> list[Path]:
    """Return the Parquet *files* that may have a record of the time *since* (ISO 8601, UTC) or later.

    The statistics of a large file usually tell without its rows. Small files and unreadable ones are among them.
    """

    def may_have(file: Path) -> bool:
        try:
            if file.stat().st_size < _LEAST:
                return True
            check_rows(file)
            return _count([file], pl.col("time") >= since) > 0
        except (BadInput, pl.exceptions.PolarsError, OSError):  # the reader reports it
            return True

    return [file for file in files if may_have(file)]


def tables(files: Sequence[Path]) -> pl.LazyFrame:
    """Return the Parquet *files* as one table."""
    return pl.scan_parquet(list(files), glob=False)


def scan(paths: Iterable[Path]) -> pl.LazyFrame:
    """Return all records of *paths* (see :func:`find`) as one table of :func:`firsttouch.records.schema.columns`.

    Each record is there once. Records that hosts of campaigns have written so far are included.
    """
    sources = find(paths)
    wanted = schema.columns()
    parts = [tables(sources.tables).select(list(wanted))] if sources.tables else []
    lines = [*sources.lines, *(f for c in sources.campaigns for f in sorted(c.glob(f"hosts/*/{LINES}")))]
    parts += [schema.to_frame(schema.read(file)).lazy() for file in lines]
    return pl.concat(parts).unique(maintain_order=True) if parts else pl.LazyFrame(schema=wanted)


def batches(
    sources: Sources, columns: Sequence[str], on_unread: OnUnread = refuse, where: pl.Expr | None = None
) -> Iterator[pl.DataFrame]:
    """Yield the records of *sources* as tables of some of their *columns*, of about :data:`ROWS` rows each.

    Only rows are yielded for which *where* holds: tables are read only where their statistics leave it open.

    *on_unread* is called for each file that is not a table of records or has wrong rows. Its good rows are
    yielded. The default raises BadInput.
    """
    for file in sources.lines:
        try:
            good, unread = schema.read_good(file)
        except OSError as error:
            good, unread = [], Unread(_cannot(error, file))
        if unread is not None:
            on_unread(unread)
        yield _filtered(schema.to_frame(good), where).select(columns)
    for frame in sources.piped:
        yield _filtered(frame, where).select(columns)
    judge = _Judge()
    for files in _together(sources.tables):
        if len(files) > 1 and (rows := _all_good(files, columns, judge, where)) is not None:
            yield _in_utc(rows)
            continue
        for file in files:
            yield from map(_in_utc, _of_table(file, columns, judge, on_unread, where))


def _in_utc(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(schema.in_utc(rows["time"])) if "time" in rows.columns else rows


_Frame = TypeVar("_Frame", pl.DataFrame, pl.LazyFrame)


def _filtered(rows: _Frame, where: pl.Expr | None) -> _Frame:
    return rows if where is None else rows.filter(where)


def _all_good(
    files: Sequence[Path], columns: Sequence[str], judge: _Judge, where: pl.Expr | None
) -> pl.DataFrame | None:
    """Return the rows of small tables, None if one of them is wrong."""
    try:
        rows = _filtered(tables(files), where).select(_looked_at(columns)).collect()
    except (pl.exceptions.PolarsError, OSError):
        return None
    kinds = schema.columns()
    is_good = all(kinds[name] == kind for name, kind in rows.schema.items()) and judge.of(rows) is None
    return rows.select(columns) if is_good else None


def _of_table(
    file: Path, columns: Sequence[str], judge: _Judge, on_unread: OnUnread, where: pl.Expr | None
) -> Iterator[pl.DataFrame]:
    """Yield the good rows of a table, and call *on_unread* for the others."""
    wanted = _looked_at(columns)
    bad, reason, hosts = 0, "", set[str | None]()
    begin, last = 0, False
    try:
        check_columns(file, wanted)
        while not last:
            rows = _filtered(tables([file]), where).slice(begin, ROWS).select(wanted).collect()
            begin, last = begin + ROWS, len(rows) < ROWS
            if (wrong := judge.of(rows)) is not None:
                mask, first = wrong
                named = rows.filter(mask)["host"]
                bad, reason = bad + len(named), reason or first
                hosts.update(named)
                rows = rows.filter(~mask)
            if len(rows):
                yield rows.select(columns)
    except BadInput as error:
        on_unread(Unread(error))
    except (pl.exceptions.PolarsError, OSError) as error:
        on_unread(Unread(_no_table(error, file)))
    if bad:
        of_hosts = None if None in hosts else frozenset(h for h in hosts if h is not None)
        on_unread(Unread(BadInput(reason, file=file), bad, of_hosts))


def check_rows(file: Path) -> int:
    """Return the number of rows that the metadata of a table state; raises BadInput for too many for its size."""
    count, size = _count([file]), file.stat().st_size
    if count * _LEAST_PER_ROW > size:
        reason = f"{count} rows in {size} bytes: a table of records has {_LEAST_PER_ROW} bytes or more per row"
        raise BadInput(reason, file=file)
    return count


def check_columns(file: Path, columns: Iterable[str]) -> None:
    """Raise BadInput if *file* is not a table with these *columns* of records, or has too many rows."""
    try:
        check_rows(file)
        there = pl.read_parquet_schema(file)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _no_table(error, file) from error
    for name in columns:
        if there.get(name) != (kind := schema.columns()[name]):
            actual = there.get(name, "not there")
            raise BadInput(f"not a table of records: column {name} is {actual}, not {kind}", file=file)


def _together(files: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield lists of files to read at once: many small ones, or a large one."""
    together: list[Path] = []
    size = rows = 0
    for file in files:
        try:
            here, count = file.stat().st_size, check_rows(file)
        except (BadInput, pl.exceptions.PolarsError, OSError):  # it is read alone, which reports the error
            here, count = _BYTES, ROWS
        if together and (size + here > _BYTES or rows + count > ROWS):
            yield together
            together, size, rows = [], 0, 0
        together.append(file)
        size, rows = size + here, rows + count
    if together:
        yield together


def _looked_at(columns: Sequence[str]) -> list[str]:
    """Return *columns* with those that are checked."""
    return list(dict.fromkeys([*columns, "schema", "host", "unit", "samples", "value"]))


class _Judge:
    """Finds the rows of tables that no record has. It remembers the texts that it has checked."""

    def __init__(self) -> None:
        self._right: dict[str, set[str]] = {}

    def of(self, table: pl.DataFrame) -> tuple[pl.Series, str] | None:
        """Return which rows are wrong, and what is wrong with the first of these; None if all are right."""
        samples = pl.col("samples")
        amount = pl.col("unit").is_in([u for u in table["unit"].unique() if u and schema.never_negative(u)])
        wrong = {f"column {name} has no value": pl.col(name).is_null() for name in table.columns}
        wrong |= {
            f"record of another schema than {schema.SCHEMA}": pl.col("schema") != schema.SCHEMA,
            "samples are not finite numbers": (samples.list.len() == 0)
            | samples.list.eval(pl.element().is_null() | ~(pl.element().abs() <= schema.LARGEST)).list.any(),
            "the value is not the median of the samples": pl.col("value") != samples.list.median(),
            "samples are negative": amount & (samples.list.min() < 0),
        }
        for name in schema.NAMES:
            if name in table.columns:
                wrong[f"column {name} holds a NUL character"] = pl.col(name).str.contains("\0", literal=True)
        for name, words in schema.CHOICES.items():
            if name in table.columns:
                wrong[f"column {name} holds a value other than {', '.join(words)}"] = ~pl.col(name).is_in(words)
        for name in {*schema.JSON_COLUMNS, "time"} & {*table.columns}:
            if texts := self._wrong_texts(name, table[name]):
                wrong[f"{name} {next(iter(texts.values()))}"] = pl.col(name).is_in(list(texts))
        masks = table.select(mask.fill_null(value=False).alias(reason) for reason, mask in wrong.items())
        present = [reason for reason in masks.columns if masks[reason].any()]
        return (reduce(or_, (masks[reason] for reason in present)), present[0]) if present else None

    def _wrong_texts(self, name: str, column: pl.Series) -> dict[str, str]:
        """Return the wrong texts in the column of field *name*, and why they are wrong."""
        if name == "time":
            # Few of many are left to check one by one.
            read = column.str.to_datetime("%+", time_zone="UTC", strict=False)
            column = column.filter(read.is_null() | ~column.str.contains(schema.UTC))
        right = self._right.setdefault(name, set())
        wrong = {}
        for text in set(column.drop_nulls().unique()) - right:
            check = schema.wrong_value if name == "time" else schema.wrong_json
            if reason := check(name, text):
                wrong[text] = reason
            else:
                right.add(text)
        return wrong


def _cannot(error: OSError, path: Path) -> BadInput:
    return BadInput(f"cannot be read: {error.strerror or error}", file=error.filename or path)


# ----------------------------------------------------------------------
# Joining the small files of a store, while hosts append and readers read
#
# The new file names the files that it replaces, which are no longer read as soon as it exists. A later compaction
# deletes them: a reader that listed them before may still be reading.

#: The longest time in seconds from listing files to having read them.
PATIENCE = 3600.0
#: Files below this size (bytes) are joined.
_SMALL = 64 << 20
#: Rows per row group: a reader of one host's records skips the other groups.
_ROWS = 1 << 17


class Compacted(Struct, frozen=True):
    """The result of a compaction: the new *file*, and how many files were *joined* and *deleted*."""

    file: Path | None
    joined: int
    deleted: int


def compact(folder: Path, *, patience: float = PATIENCE) -> Compacted:
    """Join the small files of the store in *folder*, and delete files that were joined *patience* seconds ago.

    It may be killed at any moment and run again, even while another one runs. Other tables, such as a report's,
    are not changed. Raises BadInput for a file that is not a table of records.
    """
    before, rights = listing(folder), _Rights(folder)
    small = [
        file
        for file in before.current
        if NAME.fullmatch(file.name) and rights.here(file) and file.stat().st_size < _SMALL
    ]
    for file in small:
        check_columns(file, list(columns()))
    if len(small) < 2:
        return Compacted(None, 0, _delete(folder, patience))
    new = _replace(folder, small, before.covering)
    return Compacted(new, len(small), _delete(folder, patience))


def _replace(folder: Path, small: Sequence[Path], covering: Mapping[Path, frozenset[str]]) -> Path:
    """Write a file that replaces some others, and return it."""
    # A file that replaces others passes them on: they may still exist.
    names = sorted({f.name for f in small}.union(*(covering.get(f, ()) for f in small)))
    name = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]

    def check(written: Path) -> None:
        # The files that it replaces will be deleted, so the records are counted before.
        if (joined := _count([written])) != (wanted := _count(small)):
            raise RunFailed(f"{folder}: {joined} of {wanted} records are in the new file: nothing was changed")

    # The files' names sort by host and time, so the rows need no sorting.
    metadata = {REPLACES: json.dumps(names)}
    write = partial(tables(small).sink_parquet, metadata=metadata, row_group_size=_ROWS)
    return put(folder / f"{COMPACT}{name}{SUFFIX}", write, check)


def _written(file: Path) -> float:
    """Return when a file was written, infinity if it has been renamed meanwhile."""
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return math.inf


def _count(files: Sequence[Path], where: pl.Expr | None = None) -> int:
    return int(_collected(_filtered(tables(files), where).select(pl.len()), files[0].parent).item())


def _collected(rows: pl.LazyFrame, folder: Path) -> pl.DataFrame:
    """Return the *rows* of files in *folder*; raises OSError with the kernel's number, which polars hides."""
    try:
        return rows.collect(engine="streaming")
    except OSError as error:
        if (number := schema.kernel_error(error)) is None:
            raise
        raise OSError(number, os.strerror(number), str(folder)) from error


def _delete(folder: Path, patience: float) -> int:
    """Delete files that are no longer read, and partial files of killed writers.

    Raises RunFailed for a file with a record that none of those that replace it has; it is not deleted.
    """
    old = time.time() - patience
    after, rights = listing(folder), _Rights(folder)
    standing = [f for f in after.current if f in after.covering and _written(f) < old]
    joined = frozenset[str]().union(*(after.covering[f] for f in standing))
    # Of two compactions at once, the file that is not read.
    doubled = {f for f, names in after.covering.items() if f in after.replaced and names <= joined}
    replaced = [f for f in after.replaced if (f.name in joined or f in doubled) and rights.here(f)]
    try:
        lacking = _lacking(replaced, standing)
    except FileNotFoundError:  # another compaction has deleted one
        return 0
    deletable = {f for f in replaced if f not in lacking}
    deletable |= {f for f in folder.glob(f"{atomic_files.PREFIX}*") if _written(f) < old and rights.here(f)}
    for file in deletable:
        file.unlink(missing_ok=True)
    for file in lacking:
        wrong = next((f for f in standing if file.name in after.covering[f]), standing[0])
        raise RunFailed(
            f"{wrong}: it does not have all records of {file.name}, which it says it replaces: delete it"
        )
    return len(deletable)


def _lacking(files: Sequence[Path], standing: Sequence[Path]) -> list[Path]:
    """Return those of *files* with a record that none of *standing* has."""
    if not files:
        return []
    for file in (*files, *standing):
        check_rows(file)
    digest = pl.struct(list(columns())).hash()
    held = _collected(tables(standing).select(digest=digest).unique(), standing[0].parent)["digest"]
    rows = pl.scan_parquet(list(files), glob=False, include_file_paths="file")
    unmatched = rows.filter(~digest.is_in(held.implode())).select(pl.col("file").unique())
    return sorted(map(Path, _collected(unmatched, standing[0].parent)["file"]))
