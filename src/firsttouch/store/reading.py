# SPDX-License-Identifier: Apache-2.0
"""Reads records wherever they are: stores, tables of reports, and the JSON lines that checks write."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from firsttouch import records
from firsttouch.errors import BadInput
from firsttouch.store.files import NAME, SUFFIX, listing

LINES, TABLE, CAMPAIGN = "records.jsonl", "records.parquet", "campaign.json"
#: Rows that are worked on at a time.
ROWS = 1 << 19
#: About so many bytes of a table's file are as many rows.
_BYTES = 16 << 20


@dataclass(frozen=True)
class Sources:
    """The files that hold records, *tables* (Parquet) and *lines* (JSON lines), and the *campaigns*."""

    tables: Sequence[Path]
    lines: Sequence[Path]
    campaigns: Sequence[Path]


def find(paths: Iterable[Path]) -> Sources:
    """Return the files with records among *paths* and below the folders among them.

    Of a folder these are all records.jsonl, records.parquet and files of stores; a folder with a campaign.json is
    a campaign, which knows its own records. A file that is named itself holds a table if it ends in .parquet, and
    lines otherwise. Raises BadInput for what is not there.
    """
    tables: dict[Path, None] = {}
    lines: dict[Path, None] = {}
    campaigns: dict[Path, None] = {}
    for path in paths:
        if not path.exists():
            raise BadInput("no such file or folder", file=path)
        if not path.is_dir():
            (tables if path.suffix == SUFFIX else lines)[path] = None
            continue
        for folder, below, names in os.walk(path):
            below.sort()
            if CAMPAIGN in names:
                campaigns[Path(folder)] = None
                below.clear()
                continue
            if LINES in names:
                lines[Path(folder, LINES)] = None
            if any(name.endswith(SUFFIX) for name in names):
                mine = [f for f in listing(Path(folder)).current if f.name == TABLE or NAME.fullmatch(f.name)]
                tables.update(dict.fromkeys(mine))
    return Sources(list(tables), list(lines), list(campaigns))


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


def batches(found: Sources, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Yield the records of *found* as tables of some of their *columns*, of about :data:`ROWS` rows each.

    Raises BadInput with the file for one that is no table of records, or holds what no record has.
    """
    for file in found.lines:
        yield records.to_frame(records.read(file)).select(columns)
    for some in _together(found.tables):
        begin = 0
        while True:
            try:
                table = tables(some).select(columns)
                rows = (table if len(some) > 1 else table.slice(begin, ROWS)).collect()
            except (pl.exceptions.PolarsError, OSError) as error:
                raise _bad(some, columns) or BadInput(f"no tables of records: {error}", file=some[0]) from error
            _check(rows, some)
            if len(rows):
                yield rows
            if len(some) > 1 or len(rows) < ROWS:
                break
            begin += ROWS


def _together(files: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield files that are read at once: many small ones, or a large one."""
    some: list[Path] = []
    size = 0
    for file in files:
        here = file.stat().st_size
        if some and size + here > _BYTES:
            yield some
            some, size = [], 0
        some.append(file)
        size += here
    if some:
        yield some


def _bad(files: Sequence[Path], columns: Sequence[str]) -> BadInput | None:
    """Return which of *files* cannot be read, and why."""
    wanted = records.columns()
    for file in files:
        try:
            there = pl.read_parquet_schema(file)
        except (pl.exceptions.PolarsError, OSError) as error:
            return BadInput(f"not a table of records: {str(error).splitlines()[0]}", file=file)
        for name in columns:
            if there.get(name) != wanted[name]:
                known = there.get(name, "not there")
                return BadInput(f"not a table of records: column {name} is {known}", file=file)
    return None


def _check(table: pl.DataFrame, files: Sequence[Path]) -> None:
    """Refuse values that no record has."""
    wrong = table.null_count().row(0)
    if any(wrong):
        name = next(n for n, count in zip(table.columns, wrong, strict=True) if count)
        raise BadInput(f"column {name} has rows without a value", file=files[0] if len(files) == 1 else None)
    if "value" in table.columns and not table["value"].is_finite().all():
        raise BadInput("a value is not a finite number", file=files[0])
    for name, known in (("better", ("higher", "lower", "neither")), ("status", ("valid", "invalid"))):
        if name in table.columns and not table[name].is_in(known).all():
            raise BadInput(f"column {name} holds another word than {', '.join(known)}", file=files[0])
