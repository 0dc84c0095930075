# SPDX-License-Identifier: Apache-2.0
"""The store: two tables in one folder, to which many hosts append without a lock or a server.

The files ``sessions-*.parquet`` are a table with a row per session, ``values-*.parquet`` have a row per record.
:func:`append` writes a file of each. Files are written atomically and never changed. The values are written
first: they are stored as soon as the file of the sessions has its name.

A session is identified by its content, and files are named after their sessions. So repeated records are used
once.

The folder decides whose files are read: files of root, of its owner and of this user, and files of everybody who
may write to it if it has the sticky bit.
"""

from __future__ import annotations

import datetime
import hashlib
import itertools
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from operator import or_
from pathlib import Path
from typing import IO

import numpy as np
import polars as pl
import polars.selectors as cs
from msgspec import Struct
from numpy.typing import NDArray

from firsttouch import paths
from firsttouch.errors import BadInput
from firsttouch.records import atomic_files, schema
from firsttouch.records.schema import Record, Unread, table_file, to_frame
from firsttouch.records.tables import (
    LEFT_OUT,
    SESSIONS,
    SHARED,
    TEXT,
    VALUES,
    Tables,
    fields_of,
    split,
    wrong_case,
)

# ----------------------------------------------------------------------
# The files of a store: how they are written, and which ones of a folder are read

_SESSIONS, _VALUES = "sessions-", "values-"
#: The names of the files with sessions.
NAME = re.compile(rf"{_SESSIONS}[0-9a-f]{{16}}(-[0-9a-f]{{8}})?\.parquet")
#: The columns of sessions that reading needs.
_READ_SESSIONS = ("session", *SHARED, "end", "configuration")


def values_of(file: Path) -> Path:
    """Return the file with the values of the sessions in *file*."""
    return file.with_name(_VALUES + file.name.removeprefix(_SESSIONS))


def append(folder: Path, records: Iterable[Record] | pl.DataFrame) -> Path | None:
    """Append *records* to the store in *folder*; return the file with their sessions, None without records.

    The records are on the disk on return. Any number of processes and hosts may append at once. Raises BadInput if
    *folder* is something else, or if readers of it would ignore files of this user.
    """
    table = records if isinstance(records, pl.DataFrame) else to_frame(records)
    if table.is_empty():
        return None
    if folder.is_symlink() and not folder.exists():
        raise BadInput("a link to nothing: a store is a folder", file=folder)
    if folder.exists() and not folder.is_dir():
        raise BadInput("a store is a folder", file=folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o755, exist_ok=True)
    if reason := _Rights(folder).refusal():
        raise BadInput(reason, file=folder)
    sessions, values = files_content(table)
    names = hashlib.sha256(sessions["session"].sort().to_numpy().tobytes()).hexdigest()
    file = folder / f"{_SESSIONS}{names[:16]}.parquet"
    owners = {_owner(file), _owner(values_of(file))}
    if owners == {os.geteuid()}:
        return file  # The same sessions were written before.
    if owners - {os.geteuid(), _NOBODY}:  # Another user has taken the name.
        file = file.with_stem(f"{file.stem}-{os.urandom(4).hex()}")
    try:
        # Values hardly shrink, and this compression is the fastest to read.
        put(values_of(file), lambda out: values.write_parquet(out, compression="lz4"))
    except OSError as error:
        # Without its sessions it is ignored, even if it has been written.
        message = error.strerror if error.errno is None else os.strerror(error.errno)
        raise OSError(error.errno, message, str(folder)) from error
    return put(file, sessions.write_parquet)


def files_content(records: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the tables of sessions and of values that a store has of *records*.

    The number of a session follows from its content, whatever the order of its records is.
    """
    tables = split(records.drop(*LEFT_OUT, strict=False).unique(maintain_order=True))
    values = tables.values.sort("case", "session", maintain_order=True)
    texts = (
        pl.col("case", "time", "value", "invalid").cast(pl.String),
        pl.col("samples").cast(pl.List(pl.String)).list.join(" "),
    )
    lines = values.select("session", line=pl.concat_str(*texts, separator="\0", ignore_nulls=True))
    lines_of = lines.group_by("session", maintain_order=True).agg(pl.col("line").sort())["line"]
    heads = tables.sessions.select(pl.concat_str(*SHARED, "configuration", separator="\0")).to_series()
    contents = ("\n".join([head, *of_session]) for head, of_session in zip(heads, lines_of, strict=True))
    digests = [hashlib.sha256(content.encode()).digest() for content in contents]
    numbers = pl.Series("session", [int.from_bytes(d[:8]) for d in digests], dtype=pl.UInt64)
    return (
        tables.sessions.with_columns(numbers).select(*SESSIONS),
        values.with_columns(numbers.gather(values["session"])).select(*VALUES).cast(VALUES),  # type: ignore[arg-type]
    )


def put(file: Path, write: Callable[[IO[bytes]], object]) -> Path:
    """Write *file* atomically by *write*, force it to the disk and return it.

    Everybody may read it, whatever the umask is, and only its owner may change it. An error leaves no file.
    """
    with atomic_files.replace(file, force=True) as partial:
        with table_file(partial) as out:
            write(out)
        atomic_files.set_mode(partial, 0o644)
    return file


def files_of(folder: Path, rights: _Rights | None = None, on_ignored: OnUnread | None = None) -> list[Path]:
    """Return the files with sessions in *folder* that are read, and call *on_ignored* for the others."""
    rights = rights or _Rights(folder)
    # Opening a pipe would block forever.
    files = sorted(f for f in folder.iterdir() if NAME.fullmatch(f.name) and f.is_file())
    return [
        f for f in files if all(rights.may_read(each, on_ignored) for each in (f, values_of(f)) if each.exists())
    ]


class _Rights:
    """Whose entries of a folder are read."""

    def __init__(self, folder: Path, above: _Rights | None = None) -> None:
        """Find the rights in *folder*, which was read because of the rights in the folder *above*, if any."""
        status = folder.stat()
        self._masters: set[int] = {0, status.st_uid}
        # Whoever may create a folder in a shared one decides about this folder's files, but not about other files.
        is_given: bool = above is None or above._is_closed or status.st_uid in above._deciders
        self._deciders: set[int] = paths.deciders(folder) if is_given else {0, os.geteuid()}
        self._is_closed: bool = not status.st_mode & 0o022
        # The sticky bit keeps users who share a folder from removing the files of each other.
        self._is_shared = not self._is_closed and bool(status.st_mode & stat.S_ISVTX)

    def may_read(self, entry: Path, on_ignored: OnUnread | None = None) -> bool:
        """Return whether an entry of the folder is read, and call *on_ignored* if it is not.

        The owner of a link or of the description of a campaign chooses other files: in a shared folder, only files
        of root, of the folder's owner and of this user are followed, and no link into /proc.
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


_NO_DECIDER = "who does not decide what this store reads"
#: How several users share a folder.
_SHARING = "its owner shares it by mode 3775"


#: The owner of a file that does not exist.
_NOBODY = -1


def _owner(file: Path) -> int:
    """Return the user id of the owner of a file, :data:`_NOBODY` if the file is absent or deleted."""
    try:
        return file.lstat().st_uid
    except FileNotFoundError:
        return _NOBODY


# ----------------------------------------------------------------------
# Reading records from stores, and from the JSON lines of checks

LINES, CAMPAIGN = "records.jsonl", "campaign.json"
#: The number of rows that are processed at a time.
ROWS = 1 << 19
#: About how many bytes of a file these are.
_BYTES = 16 << 20
#: The bytes of a file in which a record shows.
_BEGIN = 1 << 16
#: Called for a file with records that cannot be read.
OnUnread = Callable[[Unread], object]


class Sources(Struct, frozen=True):
    """The files with *sessions* of stores, those with JSON *lines*, and the folders of *campaigns*.

    *piped* are records that were read before, such as from pipes, which can be read only once.
    """

    sessions: Sequence[Path]
    lines: Sequence[Path]
    campaigns: Sequence[Path]
    piped: Sequence[Tables] = ()


def refuse(unread: Unread) -> None:
    """Raise the error of the first record that cannot be read."""
    raise unread.error


def find(paths: Iterable[Path], on_unread: OnUnread = refuse) -> Sources:
    """Return the files with records among *paths* and below the folders among them.

    In a folder these are all files of stores, records.jsonl, and other ``*.jsonl`` with records. Links to folders
    are followed, each folder once, except into /proc and links of other users (:class:`_Rights`). A folder with
    a campaign.json is a campaign, which lists its own records. A path to a file, or to a pipe, has JSON lines; a
    pipe is read at once. Raises BadInput for a missing path, for a single file of a store and for devices.
    *on_unread* is called for folders, and entries below them, that cannot be read or are ignored.
    """
    sessions: dict[Path, None] = {}
    lines: dict[Path, None] = {}
    campaigns: dict[Path, None] = {}
    piped: list[Tables] = []
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
            piped.append(split(schema.to_frame(good)))
            if unread is not None:
                on_unread(unread)
        elif stat.S_ISREG(kind):
            if path.suffix == ".parquet":
                raise BadInput("a Parquet file: give the folder of its store", file=path)
            lines[path] = None
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
            files = sorted(folder / name for name in names if name.endswith(".jsonl"))
            readable = [f for f in files if f.is_file() and rights.may_read(f, on_unread)]
            lines.update(dict.fromkeys(filter(_may_hold_records, readable)))
            if any(map(NAME.fullmatch, names)):
                sessions.update(dict.fromkeys(files_of(folder, rights, on_unread)))
    is_utf8 = {f: str(f).encode(errors="replace") == os.fsencode(f) for f in sessions}
    for folder in {f.parent for f in sessions if not is_utf8[f]}:
        on_unread(Unread(BadInput("a store whose path is not UTF-8 cannot be read: rename it", file=folder)))
    return Sources([f for f in sessions if is_utf8[f]], list(lines), list(campaigns), piped)


def _may_hold_records(file: Path) -> bool:
    """Return whether records are read from a file in a folder: unlike journals and logs, it begins with some."""
    try:
        with file.open("rb") as stream:
            begin = stream.read(_BEGIN)
    except OSError:  # it is named when it is read
        return True
    return file.name == LINES or (b'"check"' in begin and b'"metric"' in begin)


def _walk(
    path: Path, seen: set[tuple[int, int]], failed: Callable[[OSError], None]
) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Walk a folder as :func:`os.walk` does, with the folders that links lead to.

    Folders that were *seen* are left out, and folders of /proc: its links lead to the folders of all processes.
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


def tables(
    sources: Sources,
    on_unread: OnUnread = refuse,
    *,
    hosts: Sequence[str] | None = None,
    since: datetime.datetime | None = None,
    columns: Iterable[str] = VALUES,
) -> Iterator[Tables]:
    """Yield the records of *sources*, of about :data:`ROWS` rows each.

    Of stores, only the sessions of *hosts* are yielded that end at the time *since* or later, and only some
    *columns* of their values. *on_unread* is called for each file that cannot be read or has wrong rows. Its good
    rows are yielded. The default raises BadInput.
    """
    yield from of_lines(sources.lines, on_unread)
    yield from sources.piped
    sessions = _sessions(sources.sessions, on_unread)
    wanted = pl.lit(value=True) if hosts is None else pl.col("host").is_in(hosts)
    wanted &= pl.lit(value=True) if since is None else pl.col("end") >= since
    for files, of_files in _once(sessions, wanted):
        sessions_of = {values_of(file): str(file) for file in files}
        for together in _together([*sessions_of]):
            in_order = of_files.filter(pl.col("file").is_in([sessions_of[f] for f in together])).sort("session")
            numbers = in_order["session"].to_numpy()
            for rows in _Reader(VALUES, list(columns), on_unread, in_order).good(together):
                yield Tables(in_order, _placed(rows, numbers))


def _placed(values: pl.DataFrame, numbers: NDArray[np.uint64]) -> pl.DataFrame:
    """Return the values of the sessions with these sorted *numbers*, with their places instead."""
    session = values["session"].to_numpy()
    # In large files, the same sessions have measured each case.
    period = int(np.argmax(session[1:] == session[:1])) + 1 if len(session) > 1 else 1
    is_periodic = not len(session) % period and (session.reshape(-1, period) == session[:period]).all()
    place = np.searchsorted(numbers, session[:period] if is_periodic else session)
    place = np.minimum(np.tile(place, len(session) // max(len(place), 1)), len(numbers) - 1)
    is_there = numbers[place] == session
    placed = values.with_columns(session=place.astype(np.uint32))
    return placed if is_there.all() else placed.filter(is_there)


def _categorical(values: pl.DataFrame) -> pl.DataFrame:
    """Return a table with categories instead of texts; polars takes three times as long to read categories."""
    # In large files, the values of a case are next to each other.
    runs = values["case"].rle().struct.unnest()
    cases = runs["value"].cast(TEXT).gather(np.repeat(np.arange(len(runs)), runs["len"].to_numpy()))
    return values.with_columns(cases.alias("case"), cs.by_name("invalid", require_all=False).cast(TEXT))


def of_lines(files: Iterable[Path], on_unread: OnUnread) -> Iterator[Tables]:
    """Yield the good records of files with JSON lines."""
    for file in files:
        try:
            yield from (split(to_frame(part)) for part in schema.read_parts(file, on_unread))
        except OSError as error:
            on_unread(Unread(_cannot(error, file)))


def _sessions(files: Sequence[Path], on_unread: OnUnread) -> pl.DataFrame:
    """Return the sessions in *files*; the column *size* has the number of sessions in the *file*."""
    reader = _Reader(SESSIONS, _READ_SESSIONS, on_unread)
    empty = pl.DataFrame(schema={**{name: SESSIONS[name] for name in reader.columns}, "file": pl.String()})
    table = pl.concat([empty, *reader.good(files)])
    owners = pl.DataFrame(
        {"file": [str(f) for f in files], "owner": [_owner(f) for f in files]},
        schema={"file": pl.String, "owner": pl.Int64},
    )
    return table.join(owners, on="file").with_columns(size=pl.len().over("file"))


def _once(sessions: pl.DataFrame, wanted: pl.Expr) -> Iterator[tuple[list[Path], pl.DataFrame]]:
    """Yield files to read together, with the *wanted* sessions in them, each session of an owner once.

    Records of another user never replace any: sessions that seem to be equal are of two owners, or are equal.
    """
    # A session is read from the file with the most sessions.
    by_size = sessions.sort("size", "file", descending=[True, False])
    first = by_size.unique(["owner", "session"], keep="first", maintain_order=True)
    first = first.with_columns(is_whole=pl.len().over("file") == pl.col("size")).filter(wanted)
    for _, of_owner in first.group_by("owner", maintain_order=True):
        whole = of_owner.filter("is_whole")
        # A file with sessions that are read from another one is read alone.
        for part in (whole, *(part for _, part in of_owner.filter(~pl.col("is_whole")).group_by("file"))):
            if len(part):
                yield sorted(map(Path, part["file"].unique())), part


class _Reader(Struct, frozen=True):
    """Reads one of the two tables: some of its *columns* of *types*.

    *on_unread* is called for each file that cannot be read or has wrong rows. *sessions* have the host of each
    session; without them, the table itself has, and its rows have the column *file*.
    """

    types: Mapping[str, pl.DataType]
    columns: Sequence[str]
    on_unread: OnUnread
    sessions: pl.DataFrame | None = None

    def good(self, files: Sequence[Path]) -> Iterator[pl.DataFrame]:
        """Yield the good rows of *files*."""
        for together in _together(files):
            parts = self._all_good(together) if len(together) > 1 else None
            yield from itertools.chain.from_iterable(map(self._good_of, together)) if parts is None else parts

    def _all_good(self, files: Sequence[Path]) -> list[pl.DataFrame] | None:
        """Return the rows of several files, None if one of them is wrong."""
        try:
            parts = [*self.parts(files)]
        except (BadInput, pl.exceptions.PolarsError, OSError):
            return None
        return parts if all(_first_fault(part) is None for part in parts) else None

    def _good_of(self, file: Path) -> Iterator[pl.DataFrame]:
        """Yield the good rows of one file."""
        bad, reason, hosts = 0, "", set[str | None]()
        try:
            for rows in self.parts([file]):
                if (wrong := _first_fault(rows)) is None:
                    yield rows
                    continue
                mask, first = wrong
                bad, reason = bad + int(mask.sum()), reason or first
                wrong_rows = rows.filter(mask)
                if self.sessions is not None:
                    wrong_rows = wrong_rows.join(self.sessions, on="session", how="left")
                hosts.update(wrong_rows["host"])
                yield rows.filter(~mask)
        except BadInput as error:
            self.on_unread(Unread(error))
        except (pl.exceptions.PolarsError, OSError) as error:
            self.on_unread(Unread(_no_table(error, file)))
        if bad:
            of_hosts = None if None in hosts else frozenset(h for h in hosts if h is not None)
            self.on_unread(Unread(BadInput(reason, file=file), bad, of_hosts))

    def parts(self, files: Sequence[Path]) -> Iterator[pl.DataFrame]:
        """Yield the rows of *files*; raises BadInput for another table, and for more rows than bytes can hold."""
        table = pl.scan_parquet(list(files), glob=False, include_file_paths="file")
        there = table.collect_schema()
        for name in self.columns:
            if there.get(name) != self.types[name]:
                actual = f"{there.get(name, 'not there')}, not {self.types[name]}"
                raise BadInput(f"not a table of a store: column {name} is {actual}", file=files[0])
        count = sum(map(_rows_in, files))
        for begin in range(0, count, ROWS):
            with_file = [] if self.sessions is not None else ["file"]
            rows = table.slice(begin, ROWS).select(*self.columns, *with_file).collect()
            yield rows if with_file else _categorical(rows)


def _rows_in(file: Path) -> int:
    """Return the number of rows of a table; raises BadInput for too many for its size.

    Equal rows take almost no room in a file, and as much memory as any others.
    """
    count, size = pl.scan_parquet(file, glob=False).select(pl.len()).collect().item(), file.stat().st_size
    if count > size:
        raise BadInput(f"{count} rows in {size} bytes: a store has a byte or more per row", file=file)
    return int(count)


def _together(files: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield lists of files to read at once: many small ones, or a large one."""
    sizes = itertools.accumulate(file.stat().st_size if file.exists() else 0 for file in files)
    for _, together in itertools.groupby(zip(files, sizes, strict=True), lambda pair: pair[1] // _BYTES):
        yield [file for file, _ in together]


#: The columns that may be null.
_NULLABLE = frozenset(["samples", "invalid"])


def _first_fault(table: pl.DataFrame) -> tuple[pl.Series, str] | None:
    """Return which rows :func:`append` never writes, and the defect of the first of these; None: all are right."""
    wrong: dict[str, pl.Expr] = {}
    for name, column in zip(table.columns, table, strict=True):
        if name not in _NULLABLE and column.null_count():
            wrong[f"column {name} has no value"] = pl.col(name).is_null()
        texts = column.drop_nulls().unique() if column.dtype == TEXT else ()
        if defects := {text: defect for text in texts if (defect := _wrong_text(name, text))}:
            wrong[f"{name} {next(iter(defects.values()))}"] = pl.col(name).is_in([*defects])
        if name == "case" and (table["value"].to_numpy() < 0).any():
            right = (text for text in texts if text not in defects)
            amounts = [text for text in right if schema.never_negative(fields_of(text)["unit"])]
            wrong["the value is negative"] = pl.col("case").is_in(amounts) & (pl.col("value") < 0)
    if "value" in table.columns:
        wrong["the value is not finite or too large"] = ~(pl.col("value").abs() <= schema.LARGEST_VALUE)
    if "samples" in table.columns:
        samples = pl.col("samples")
        amiss = pl.element().is_null() | ~(pl.element().abs() <= schema.LARGEST_VALUE)
        wrong["samples hold no number, or one that is not finite or too large"] = (
            samples.list.len() == 0
        ) | samples.list.eval(amiss).list.any()
    for name in {"time", "end"} & {*table.columns}:
        wrong[f"column {name} is of no year from 1 to 9999"] = ~pl.col(name).is_between(*_YEARS)
    masks = table.select(mask.fill_null(value=False).alias(reason) for reason, mask in wrong.items())
    present = [reason for reason in masks.columns if masks[reason].any()]
    return (reduce(or_, (masks[reason] for reason in present)), present[0]) if present else None


@lru_cache(maxsize=1 << 16)
def _wrong_text(name: str, text: str) -> str:
    """Return the defect of a *text* in the column *name*, or an empty string."""
    if name == "case":
        return wrong_case(text)
    field = {"configuration": "parameters", "invalid": "reason"}.get(name, name)
    check = schema.wrong_json if field in schema.JSON_COLUMNS else schema.wrong_value
    return check(field, text)


_YEARS = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC), datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC)


def _no_table(error: BaseException, file: Path) -> BadInput:
    reason = str(error).split("\n", 1)[0]
    if (number := schema.kernel_error(error)) is not None:
        return BadInput(f"cannot be read: {os.strerror(number)}", file=file)
    return BadInput(f"not a table of a store: {reason}", file=file)


def _cannot(error: OSError, path: Path) -> BadInput:
    return BadInput(f"cannot be read: {error.strerror or error}", file=error.filename or path)
