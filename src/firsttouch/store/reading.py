# SPDX-License-Identifier: Apache-2.0
"""Reads records wherever they are: stores, tables of reports, and the JSON lines that checks write."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path

import polars as pl

from firsttouch import records
from firsttouch.errors import BadInput
from firsttouch.records import Unread
from firsttouch.store.files import NAME, SUFFIX, listing

LINES, TABLE, CAMPAIGN = "records.jsonl", "records.parquet", "campaign.json"
#: Rows that are worked on at a time.
ROWS = 1 << 19
#: About so many bytes of a table's file are as many rows.
_BYTES = 16 << 20
#: Told of a file with records that cannot be read.
Tell = Callable[[Unread], object]


@dataclass(frozen=True)
class Sources:
    """The files that hold records, *tables* (Parquet) and *lines* (JSON lines), and the *campaigns*.

    *piped* are the records of pipes, which can be read only once.
    """

    tables: Sequence[Path]
    lines: Sequence[Path]
    campaigns: Sequence[Path]
    piped: Sequence[pl.DataFrame] = ()


def refuse(unread: Unread) -> None:
    """Raise the error of the first record that cannot be read."""
    raise unread.error


def find(paths: Iterable[Path], tell: Tell = refuse) -> Sources:
    """Return the files with records among *paths* and below the folders among them.

    Of a folder these are all records.jsonl, records.parquet and files of stores; a folder with a campaign.json is
    a campaign, which knows its own records. A file that is named itself holds a table if it ends in .parquet, and
    lines otherwise; a pipe holds lines, which are read at once. Raises BadInput for what is not there and for
    devices. *tell* is called for folders and files below one that cannot be read.
    """
    tables: dict[Path, None] = {}
    lines: dict[Path, None] = {}
    campaigns: dict[Path, None] = {}
    piped: list[pl.DataFrame] = []

    def failed(error: OSError) -> None:
        tell(Unread(_cannot(error, path), 1, None))

    for path in paths:
        if not path.exists():
            raise BadInput("no such file or folder", file=path)
        kind = path.stat().st_mode
        if stat.S_ISFIFO(kind):
            good, unread = records.read_good(path)
            piped.append(records.to_frame(good))
            if unread is not None:
                tell(unread)
        elif stat.S_ISREG(kind):
            (tables if path.suffix == SUFFIX else lines)[path] = None
        elif not stat.S_ISDIR(kind):
            raise BadInput("a device or a socket, not a file with records", file=path)
        for folder, below, names in os.walk(path, onerror=failed) if stat.S_ISDIR(kind) else ():
            below.sort()
            if CAMPAIGN in names:
                campaigns[Path(folder)] = None
                below.clear()
                continue
            if LINES in names and Path(folder, LINES).is_file():
                lines[Path(folder, LINES)] = None
            if any(name.endswith(SUFFIX) for name in names):
                current = listing(Path(folder), strict=False).current
                tables.update(dict.fromkeys(f for f in current if f.name == TABLE or NAME.fullmatch(f.name)))
    for file in [f for f in tables if not _is_utf8(f)]:
        del tables[file]
        tell(Unread(BadInput("a table whose path is not UTF-8 cannot be read: rename it", file=file), 1, None))
    return Sources(list(tables), list(lines), list(campaigns), piped)


def _is_utf8(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def tables(files: Sequence[Path]) -> pl.LazyFrame:
    """Return the Parquet *files* as one table."""
    return pl.scan_parquet(list(files), glob=False)


def scan(paths: Iterable[Path]) -> pl.LazyFrame:
    """Return all records of *paths* (see :func:`find`) as one table of :func:`firsttouch.records.columns`.

    Those of campaigns are among them as far as their hosts wrote them.
    """
    found = find(paths)
    wanted = records.columns()
    parts = [tables(found.tables).select(list(wanted))] if found.tables else []
    lines = [*found.lines, *(f for c in found.campaigns for f in sorted(c.glob(f"hosts/*/{LINES}")))]
    parts += [records.to_frame(records.read(file)).lazy() for file in lines]
    return pl.concat(parts) if parts else pl.LazyFrame(schema=wanted)


def batches(found: Sources, columns: Sequence[str], tell: Tell = refuse) -> Iterator[pl.DataFrame]:
    """Yield the records of *found* as tables of some of their *columns*, of about :data:`ROWS` rows each.

    *tell* is called for each file that is no table of records, or holds what no record has; what is good of it is
    among the records all the same. The default raises BadInput.
    """
    for file in found.lines:
        try:
            good, unread = records.read_good(file)
        except OSError as error:
            good, unread = [], Unread(_cannot(error, file), 1, None)
        if unread is not None:
            tell(unread)
        yield records.to_frame(good).select(columns)
    for frame in found.piped:
        yield frame.select(columns)
    judge = _Judge()
    for some in _together(found.tables):
        if len(some) > 1 and (rows := _all_good(some, columns, judge)) is not None:
            yield rows
            continue
        for file in some:
            yield from _of_table(file, columns, judge, tell)


def _all_good(files: Sequence[Path], columns: Sequence[str], judge: _Judge) -> pl.DataFrame | None:
    """Return the rows of small tables; None where one of them is not good."""
    try:
        rows = tables(files).select(_looked_at(columns)).collect()
    except (pl.exceptions.PolarsError, OSError):
        return None
    return rows.select(columns) if rows.schema == _schema(rows.columns) and judge.of(rows) is None else None


def _of_table(file: Path, columns: Sequence[str], judge: _Judge, tell: Tell) -> Iterator[pl.DataFrame]:
    """Yield the good rows of a table, and tell of the others."""
    wanted = _looked_at(columns)
    bad, hosts, reason, unnamed = 0, set[str](), "", False
    begin = 0
    try:
        check_columns(file, wanted)
        while True:
            rows = tables([file]).slice(begin, ROWS).select(wanted).collect()
            begin += ROWS
            last = len(rows) < ROWS
            if (wrong := judge.of(rows)) is not None:
                mask, first = wrong
                named = rows.filter(mask)["host"]
                hosts.update(named.drop_nulls())
                unnamed = unnamed or named.null_count() > 0
                bad, reason = bad + len(named), reason or first
                rows = rows.filter(~mask)
            if len(rows):
                yield rows.select(columns)
            if last:
                break
    except BadInput as error:
        tell(Unread(error, 1, None))
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).split("\n", 1)[0]
        tell(Unread(BadInput(f"not a table of records: {reason}", file=file), 1, None))
    if bad:
        tell(Unread(BadInput(reason, file=file), bad, None if unnamed else frozenset(hosts)))


def check_columns(file: Path, columns: Iterable[str]) -> None:
    """Raise BadInput where *file* is not a table with these *columns* of records."""
    try:
        there = pl.read_parquet_schema(file)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).split("\n", 1)[0]
        raise BadInput(f"not a table of records: {reason}", file=file) from error
    for name in columns:
        if there.get(name) != (kind := records.columns()[name]):
            was = there.get(name, "not there")
            raise BadInput(f"not a table of records: column {name} is {was}, not {kind}", file=file)


def _together(files: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield files that are read at once: many small ones, or a large one."""
    some: list[Path] = []
    size = 0
    for file in files:
        try:
            here = file.stat().st_size
        except OSError:  # who reads it alone says so
            here = _BYTES
        if some and size + here > _BYTES:
            yield some
            some, size = [], 0
        some.append(file)
        size += here
    if some:
        yield some


def _looked_at(columns: Sequence[str]) -> list[str]:
    """Return *columns* with those by which rows are judged."""
    return list(dict.fromkeys([*columns, "schema", "host", "unit", "samples", "value"]))


def _schema(columns: Iterable[str]) -> pl.Schema:
    return pl.Schema({name: kind for name, kind in records.columns().items() if name in set(columns)})


class _Judge:
    """Tells which rows of tables hold what no record has."""

    def __init__(self) -> None:
        self._right: dict[str, set[str]] = {}

    def of(self, table: pl.DataFrame) -> tuple[pl.Series, str] | None:
        """Return which rows are wrong, and what is wrong with the first of these; None where all are right."""
        samples = pl.col("samples")
        amount = pl.col("unit").is_in([u for u in table["unit"].unique() if u and records.never_negative(u)])
        wrong = {f"column {name} has no value": pl.col(name).is_null() for name in table.columns}
        wrong |= {
            f"record of another schema than {records.SCHEMA}": pl.col("schema") != records.SCHEMA,
            "samples are not finite numbers": (samples.list.len() == 0)
            | samples.list.eval(pl.element().is_null() | ~(pl.element().abs() <= records.LARGEST)).list.any(),
            "the value is not the median of the samples": pl.col("value") != samples.list.median(),
            "samples are negative": amount & (samples.list.min() < 0),
        }
        for name, words in records.CHOICES.items():
            if name in table.columns:
                wrong[f"column {name} holds another word than {', '.join(words)}"] = ~pl.col(name).is_in(words)
        for name in {*records.JSON_COLUMNS, "time"} & {*table.columns}:
            if texts := self._wrong_texts(name, table[name]):
                wrong[f"{name} {next(iter(texts.values()))}"] = pl.col(name).is_in(list(texts))
        masks = table.select(mask.fill_null(value=False).alias(reason) for reason, mask in wrong.items())
        present = [reason for reason in masks.columns if masks[reason].any()]
        return (reduce(or_, (masks[reason] for reason in present)), present[0]) if present else None

    def _wrong_texts(self, name: str, column: pl.Series) -> dict[str, str]:
        """Return those texts of the column of field *name* that are wrong, and why."""
        if name == "time":
            # Few of many are left to look at one by one.
            column = column.filter(column.str.to_datetime("%+", time_zone="UTC", strict=False).is_null())
        right = self._right.setdefault(name, set())
        wrong = {}
        for text in set(column.drop_nulls().unique()) - right:
            check = records.wrong_value if name == "time" else records.wrong_json
            if reason := check(name, text):
                wrong[text] = reason
            else:
                right.add(text)
        return wrong


def _cannot(error: OSError, path: Path) -> BadInput:
    return BadInput(f"cannot be read: {error.strerror or error}", file=error.filename or path)
