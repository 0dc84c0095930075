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
from functools import reduce
from operator import or_
from pathlib import Path
from typing import IO

import numpy as np
import polars as pl
from msgspec import Struct

from firsttouch import paths
from firsttouch.errors import BadInput
from firsttouch.records import atomic_files, schema
from firsttouch.records.schema import GAP, Record, Unread, table_file, to_frame

# ----------------------------------------------------------------------
# The two tables, and how records are split into them

_TEXT, _TIME = pl.Categorical(), pl.Datetime("us", "UTC")
#: The columns of the table of sessions; *values* is the number of rows in the other table.
SESSIONS: dict[str, pl.DataType] = {
    **dict.fromkeys(("session", "host", "system", "partition"), _TEXT),
    **dict.fromkeys(("begin", "end"), _TIME),
    **dict.fromkeys(("software", "configuration"), _TEXT),
    "values": pl.UInt32(),
}
#: The columns of the table of values; *samples* is null if the value is the only one.
VALUES: dict[str, pl.DataType] = {
    **dict.fromkeys(("session", "host", "check", "metric", "parameters", "unit", "better"), _TEXT),
    "time": _TIME,
    "repetition": pl.UInt32(),
    "value": pl.Float64(),
    "samples": pl.List(pl.Float64),
    **dict.fromkeys(("status", "reason"), _TEXT),
}
#: The columns that a session's records share, besides the configuration and the time.
_SHARED = ("system", "partition", "host", "software")
_IS_CONFIGURATION = (pl.col("check") == "configuration") & (pl.col("metric") == "settings")
_NOTHING = pl.lit("{}").cast(_TEXT)


def split(records: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the tables of sessions and of values of *records* (:func:`firsttouch.records.schema.columns`).

    A session has the records of one host with the same software and configuration, without a longer gap than
    :data:`GAP`. The configuration is the host's last one before each record, or else the first one after it. The
    parameters of its own record are in the session only. Where threads and pages were placed, and the order of the
    measurements, are left out.
    """
    rows = records.drop("placement_asked", "placement_found", "order", strict=False).unique(maintain_order=True)
    rows = rows.sort("time", maintain_order=True)
    gap = (pl.col("time").diff() > pl.duration(milliseconds=GAP)).fill_null(value=False)
    rows = rows.with_columns(visit=gap.cum_sum().over("system", "host"))
    stated = pl.when(_IS_CONFIGURATION).then("parameters")
    rows = rows.with_columns(configuration=stated.forward_fill().over("system", "host", "visit"))
    rows = rows.with_columns(pl.col("configuration").backward_fill().over("system", "host", "visit"))
    rows = rows.with_columns(pl.col("configuration").fill_null(_NOTHING))
    key = [*_SHARED, "configuration", "visit"]
    sessions = rows.group_by(key, maintain_order=True).agg(
        begin=pl.col("time").first(), end=pl.col("time").last(), values=pl.len()
    )
    sessions = sessions.with_row_index("number")
    rows = rows.join(sessions.select("number", *key), on=key, how="left", maintain_order="left")
    case = ("number", "check", "metric", "parameters", "unit")
    rows = rows.with_columns(
        parameters=pl.when(_IS_CONFIGURATION).then(_NOTHING).otherwise("parameters"),
        samples=pl.when(pl.col("samples").list.len() > 1).then("samples"),
        repetition=pl.int_range(pl.len(), dtype=pl.UInt32).over(case),
    ).sort("number", maintain_order=True)
    sessions = sessions.with_columns(session=_identities(sessions, rows))
    named = rows.join(sessions.select("number", "session"), on="number", how="left", maintain_order="left")
    return _in_columns(sessions, SESSIONS), _in_columns(named, VALUES)


def _in_columns(table: pl.DataFrame, types: Mapping[str, pl.DataType]) -> pl.DataFrame:
    return table.select(pl.col(name).cast(kind) for name, kind in types.items())


def _identities(sessions: pl.DataFrame, rows: pl.DataFrame) -> pl.Series:
    """Return a text for each session that follows from its content, whatever the order of its records is."""
    content = [name for name in VALUES if name not in {"session", "host", "repetition"}]
    texts = (
        pl.col(content).exclude("samples").cast(pl.String),
        pl.col("samples").cast(pl.List(pl.String)).list.join(" "),
    )
    lines = rows.select("number", line=pl.concat_str(*texts, separator="\0", ignore_nulls=True))
    of_session = lines.group_by("number", maintain_order=True).agg(pl.col("line").sort())["line"]
    names = []
    for session, lines_of_session in zip(sessions.iter_rows(named=True), of_session, strict=True):
        head = "\0".join(session[name] for name in (*_SHARED, "configuration"))
        digest = hashlib.sha256("\n".join([head, *lines_of_session]).encode()).hexdigest()
        names.append(f"{session['begin']:%Y%m%dT%H%M%SZ}-{digest[:16]}")
    return pl.Series(names, dtype=_TEXT)


# ----------------------------------------------------------------------
# The files of a store: how they are written, and which ones of a folder are read

_SESSIONS, _VALUES = "sessions-", "values-"
#: The names of the files with sessions.
NAME = re.compile(rf"{_SESSIONS}[0-9a-f]{{16}}(-[0-9a-f]{{8}})?\.parquet")
#: The compression level of values: a host must not spend time on it.
_QUICK = 1
#: The columns of sessions that reading needs.
_READ_SESSIONS = ("session", *_SHARED, "end", "configuration", "values")


def values_of(file: Path) -> Path:
    """Return the file with the values of the sessions in *file*."""
    return file.with_name(_VALUES + file.name.removeprefix(_SESSIONS))


def append(folder: Path, records: Iterable[Record] | pl.DataFrame) -> Path | None:
    """Append *records* to the store in *folder*; return the file with their sessions, None without records.

    The records are on the disk on return. Any number of processes and hosts may append at once. Raises BadInput if
    *folder* is something else, or if others would not read the files of this user there.
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
    sessions, values = split(table)
    names = "\n".join(sorted(sessions["session"]))
    file = folder / f"{_SESSIONS}{hashlib.sha256(names.encode()).hexdigest()[:16]}.parquet"
    owners = {_owner(file), _owner(values_of(file))}
    if owners == {os.geteuid()}:
        return file  # The same sessions were written before.
    if owners - {os.geteuid(), _NOBODY}:  # Another user has taken the name.
        file = file.with_stem(f"{file.stem}-{os.urandom(4).hex()}")
    try:
        put(values_of(file), lambda out: values.write_parquet(out, compression_level=_QUICK))
    except OSError as error:
        # Without its sessions it is ignored, even if it has been written.
        message = error.strerror if error.errno is None else os.strerror(error.errno)
        raise OSError(error.errno, message, str(folder)) from error
    return put(file, sessions.write_parquet)


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
    piped: Sequence[pl.DataFrame] = ()


def refuse(unread: Unread) -> None:
    """Raise the error of the first record that cannot be read."""
    raise unread.error


def find(paths: Iterable[Path], on_unread: OnUnread = refuse) -> Sources:
    """Return the files with records among *paths* and below the folders among them.

    In a folder these are all files of stores, records.jsonl, and other ``*.jsonl`` with records. Links to folders
    are followed, each folder once, but neither into /proc nor from strangers (:class:`_Rights`). A folder with
    a campaign.json is a campaign, which lists its own records. A path to a file, or to a pipe, has JSON lines; a
    pipe is read at once. Raises BadInput for a missing path, for a single file of a store and for devices.
    *on_unread* is called for folders, and entries below them, that cannot be read or are ignored.
    """
    sessions: dict[Path, None] = {}
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


def batches(
    sources: Sources,
    columns: Sequence[str],
    on_unread: OnUnread = refuse,
    where: pl.Expr | None = None,
    since: datetime.datetime | None = None,
) -> Iterator[pl.DataFrame]:
    """Yield the records of *sources* as tables of some of their *columns*, of about :data:`ROWS` rows each.

    Only rows are yielded for which *where* holds, a condition about hosts and checks, and of stores only sessions
    that end at the time *since* or later. *on_unread* is called for each file that cannot be read or has wrong
    rows. Its good rows are yielded. The default raises BadInput.
    """
    for frame in itertools.chain(of_lines(sources.lines, on_unread), sources.piped):
        yield (frame if where is None else frame.filter(where)).select(columns)
    judge = _Judge()
    sessions = _sessions(sources.sessions, _READ_SESSIONS, judge, on_unread)
    read = [name for name in dict.fromkeys((*_CHECKED, *columns)) if name in VALUES]
    reader = _Reader(VALUES, read, judge, on_unread, where)
    for files, of_files in _once(sessions, since):
        for rows in reader.good([*map(values_of, files)]):
            joined = _joined(rows, of_files)
            yield joined.select(_RESTORED.get(name, pl.col(name)) for name in columns)


def _joined(rows: pl.DataFrame, sessions: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of *sessions* with their columns. Finding each by its code takes less time than hashing."""
    codes, of_rows = (table["session"].to_physical().to_numpy() for table in (sessions, rows))
    places = np.full(max(codes.max(initial=0), of_rows.max(initial=0)) + 1, -1)
    places[codes] = np.arange(len(codes))
    place = places[of_rows]
    if not (is_there := place >= 0).all():
        rows, place = rows.filter(is_there), place[is_there]
    return rows.hstack(sessions.drop("session")[place])


#: The columns of values that are read to check them and to join them with their sessions.
_CHECKED = ("session", "host", "check", "metric", "unit", "value")
#: How columns of a table of records follow from sessions and values, if they are in neither.
_RESTORED = {
    "parameters": pl.when(_IS_CONFIGURATION).then("configuration").otherwise("parameters").alias("parameters"),
    "samples": pl.coalesce("samples", pl.concat_list("value")),
    **{name: pl.lit("[]").cast(_TEXT).alias(name) for name in ("placement_asked", "placement_found")},
    "order": _NOTHING.alias("order"),
}


def of_lines(files: Iterable[Path], on_unread: OnUnread) -> Iterator[pl.DataFrame]:
    """Yield the good records of files with JSON lines."""
    for file in files:
        try:
            yield from map(to_frame, schema.read_parts(file, on_unread))
        except OSError as error:
            on_unread(Unread(_cannot(error, file)))


def _sessions(files: Sequence[Path], columns: Iterable[str], judge: _Judge, on_unread: OnUnread) -> pl.DataFrame:
    """Return the sessions in *files*; the column *size* has the number of sessions in the *file*."""
    reader = _Reader(SESSIONS, [*columns], judge, on_unread, with_file=True)
    empty = pl.DataFrame(schema={**{name: SESSIONS[name] for name in reader.columns}, "file": pl.String()})
    table = pl.concat([empty, *reader.good(files)])
    owners = pl.DataFrame(
        {"file": [str(f) for f in files], "owner": [_owner(f) for f in files]},
        schema={"file": pl.String, "owner": pl.Int64},
    )
    return table.join(owners, on="file").with_columns(size=pl.len().over("file"))


def _once(
    sessions: pl.DataFrame, since: datetime.datetime | None = None
) -> Iterator[tuple[list[Path], pl.DataFrame]]:
    """Yield files to read together, with the sessions to read of them, each session of an owner once.

    Records of another user never replace any: sessions that seem to be equal are of two owners, or are equal.
    """
    # A session is read from the file with the most sessions.
    by_size = sessions.sort("size", "file", descending=[True, False])
    first = by_size.unique(["owner", "session"], keep="first", maintain_order=True)
    first = first.with_columns(is_whole=pl.len().over("file") == pl.col("size"))
    if since is not None:
        first = first.filter(pl.col("end") >= since)
    for _, of_owner in first.group_by("owner", maintain_order=True):
        whole = of_owner.filter("is_whole")
        # A file with sessions that are read from another one is read alone.
        for part in (whole, *(part for _, part in of_owner.filter(~pl.col("is_whole")).group_by("file"))):
            if len(part):
                yield (
                    sorted(map(Path, part["file"].unique())),
                    part.drop("host", "file", "owner", "size", "is_whole"),
                )


class _Reader(Struct, frozen=True):
    """Reads one of the two tables: some of its *columns* of *types*, rows for which *where* holds.

    *on_unread* is called for each file that cannot be read or has wrong rows.
    """

    types: Mapping[str, pl.DataType]
    columns: Sequence[str]
    judge: _Judge
    on_unread: OnUnread
    where: pl.Expr | None = None
    with_file: bool = False

    def good(self, files: Sequence[Path]) -> Iterator[pl.DataFrame]:
        """Yield the good rows of *files*, with the column *file* if it is wanted."""
        for together in _together(files):
            if len(together) > 1 and (parts := self._all_good(together)) is not None:
                yield from parts
                continue
            for file in together:
                yield from self._good_of(file)

    def _all_good(self, files: Sequence[Path]) -> list[pl.DataFrame] | None:
        """Return the rows of several files, None if one of them is wrong."""
        try:
            parts = [*self.parts(files)]
        except (BadInput, pl.exceptions.PolarsError, OSError):
            return None
        return parts if all(self.judge.first_fault(part) is None for part in parts) else None

    def _good_of(self, file: Path) -> Iterator[pl.DataFrame]:
        """Yield the good rows of one file."""
        bad, reason, hosts = 0, "", set[str | None]()
        try:
            for rows in self.parts([file]):
                if (wrong := self.judge.first_fault(rows)) is None:
                    yield rows
                    continue
                mask, first = wrong
                bad, reason = bad + int(mask.sum()), reason or first
                hosts.update(rows.filter(mask)["host"])
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
            rows = table.slice(begin, ROWS)
            chosen = rows if self.where is None else rows.filter(self.where)
            yield chosen.select(*self.columns, *(["file"] if self.with_file else [])).collect()


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


class _Judge:
    """Finds rows of the two tables that :func:`append` does not write. It remembers the texts that are right."""

    def __init__(self) -> None:
        self._right: set[tuple[str, str]] = set()

    def first_fault(self, table: pl.DataFrame) -> tuple[pl.Series, str] | None:
        """Return which rows are wrong, and the defect of the first of these; None if all are right."""
        wrong = {
            f"column {name} has no value": pl.col(name).is_null() for name in table.columns if name != "samples"
        }
        if "value" in table.columns:
            amounts = [unit for unit in table["unit"].unique() if unit and schema.never_negative(unit)]
            wrong |= {
                "the value is not finite or too large": ~(pl.col("value").abs() <= schema.LARGEST),
                "the value is negative": pl.col("unit").is_in(amounts) & (pl.col("value") < 0),
            }
        if "samples" in table.columns:
            samples = pl.col("samples")
            amiss = pl.element().is_null() | ~(pl.element().abs() <= schema.LARGEST)
            wrong["samples hold no number, or one that is not finite or too large"] = (
                samples.list.len() == 0
            ) | samples.list.eval(amiss).list.any()
        for name in {"time", "end"} & {*table.columns}:
            wrong[f"column {name} is of no year from 1 to 9999"] = ~pl.col(name).is_between(*_YEARS)
        for name in table.columns:
            if table.schema[name] == _TEXT and (texts := self._wrong_texts(name, table[name])):
                wrong[f"{name} {next(iter(texts.values()))}"] = pl.col(name).is_in(list(texts))
        masks = table.select(mask.fill_null(value=False).alias(reason) for reason, mask in wrong.items())
        present = [reason for reason in masks.columns if masks[reason].any()]
        return (reduce(or_, (masks[reason] for reason in present)), present[0]) if present else None

    def _wrong_texts(self, name: str, column: pl.Series) -> dict[str, str]:
        """Return the wrong texts in the column of field *name*, and why they are wrong."""
        wrong = {}
        field = "parameters" if name == "configuration" else name
        check = schema.wrong_json if field in schema.JSON_COLUMNS else schema.wrong_value
        for text in column.drop_nulls().unique():
            if (name, text) not in self._right:
                if reason := check(field, text):
                    wrong[text] = reason
                else:
                    self._right.add((name, text))
        return wrong


_YEARS = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC), datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC)


def _no_table(error: BaseException, file: Path) -> BadInput:
    reason = str(error).split("\n", 1)[0]
    if (number := schema.kernel_error(error)) is not None:
        return BadInput(f"cannot be read: {os.strerror(number)}", file=file)
    return BadInput(f"not a table of a store: {reason}", file=file)


def _cannot(error: OSError, path: Path) -> BadInput:
    return BadInput(f"cannot be read: {error.strerror or error}", file=error.filename or path)
