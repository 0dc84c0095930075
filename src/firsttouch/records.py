# SPDX-License-Identifier: Apache-2.0
"""The record: one measured value with all that is needed to judge it (DESIGN: Words).

A check appends its records to a JSON-lines file of its own (one writer per file, so that many hosts need
no lock); :func:`collect` reads any number of such files, :func:`to_frame` and :func:`write_table` give the
table that reports and verdicts work on.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from firsttouch import __version__, beside, machine
from firsttouch.errors import BadInput

if TYPE_CHECKING:
    import polars as pl

SCHEMA = 1
Better = Literal["higher", "lower", "neither"]


@dataclass(frozen=True)
class Record:
    """One metric of one check on one host.

    ``value`` is the median of ``samples``; ``spread`` is (maximum - minimum) / median, a fraction.
    ``parameters`` name the case within the check (kernel, PU-set, bank, threads, ...), ``placement_asked``
    and ``placement_found`` hold one entry per instance. ``status`` is ``valid``, or ``invalid`` with a
    ``reason`` (the placement did not hold, the output was wrong): an invalid record is never a slow one.
    """

    check: str
    metric: str
    unit: str
    better: Better
    samples: tuple[float, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    placement_asked: Sequence[Mapping[str, Any]] = ()
    placement_found: Sequence[Mapping[str, Any]] = ()
    status: Literal["valid", "invalid"] = "valid"
    reason: str = ""
    software: Mapping[str, str] = field(default_factory=dict)
    host: str = field(default_factory=machine.host_name)
    system: str = field(default_factory=lambda: os.environ.get("FIRSTTOUCH_SYSTEM", "local"))
    partition: str = field(default_factory=lambda: os.environ.get("FIRSTTOUCH_PARTITION", "default"))
    time: str = field(
        default_factory=lambda: datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    )

    def __post_init__(self) -> None:
        """Refuse a record without a finite sample: such a thing is no measurement."""
        if not self.samples or not all(math.isfinite(s) for s in self.samples):
            raise BadInput(f"record {self.check}/{self.metric}: samples {self.samples} are not finite numbers")
        # A count is written as it is read back, a float.
        object.__setattr__(self, "samples", tuple(map(float, self.samples)))

    @property
    def judged(self) -> bool:
        """Tell whether references may judge it: of an emulated machine, only how many of something it has.

        Its speed is the emulator's, its memory has no distance, and it has as little of it as will do.
        """
        return self.unit == "1" or "emulator" not in self.software

    @property
    def value(self) -> float:
        """Median of the samples, in ``unit``."""
        return statistics.median(self.samples)

    @property
    def repetitions(self) -> int:
        """Number of samples."""
        return len(self.samples)

    @property
    def spread(self) -> float:
        """(maximum - minimum) / median of the samples; 0 for a single sample or a median of 0."""
        return (max(self.samples) - min(self.samples)) / self.value if self.value else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of the record, with the derived figures beside the samples."""
        derived = {"value": self.value, "repetitions": self.repetitions, "spread": self.spread}
        return {"schema": SCHEMA, **asdict(self), **derived}


def software(**versions: str) -> dict[str, str]:
    """Return *versions* of measured programs, with those of Linux and firsttouch, an emulator and a backend."""
    emulator = machine.emulator()
    below = {"emulator": emulator} if emulator else {}
    if backend := os.environ.get("FIRSTTOUCH_BACKEND"):
        below["backend"] = backend
    return {**versions, "linux": platform.release(), "firsttouch": __version__, **below}


_FIELDS = {f.name for f in fields(Record)}
_DERIVED = {"schema", "value", "repetitions", "spread"}
_CHOICES = {"better": ("higher", "lower", "neither"), "status": ("valid", "invalid")}


def from_dict(data: object, *, file: str | Path | None = None, line: int | None = None) -> Record:
    """Make a record of a JSON object; raises BadInput (with *file* and *line*) for anything else."""
    if not isinstance(data, Mapping):
        raise BadInput("not a record: no JSON object", file=file, line=line)
    if data.get("schema") != SCHEMA:
        raise BadInput(
            f"record of schema {data.get('schema')!r}, this version reads {SCHEMA}", file=file, line=line
        )
    if unknown := set(data) - _FIELDS - _DERIVED:
        raise BadInput(f"record with unknown keys {sorted(unknown)}", file=file, line=line)
    known = {k: v for k, v in data.items() if k in _FIELDS}
    for name in ("parameters", "software"):
        if not isinstance(known.get(name, {}), Mapping):
            raise BadInput(f"not a record: {name} is no JSON object", file=file, line=line)
    for name, values in _CHOICES.items():
        if data.get(name, values[0]) not in values:
            raise BadInput(f"not a record: {name} is {data[name]!r}", file=file, line=line)
    if not isinstance(data.get("samples"), list):
        raise BadInput("not a record: samples are no list", file=file, line=line)
    try:
        return Record(**{**known, "samples": tuple(data["samples"])})
    except (KeyError, TypeError, ValueError, BadInput) as error:
        raise BadInput(f"not a record: {error}", file=file, line=line) from error


def append(path: Path, records: Iterable[Record]) -> None:
    """Append *records* to the JSON-lines file *path* and force them to the disk.

    A last line without its newline, of a writer that was killed, goes: it would spoil the first of ours.
    """
    text = "".join(json.dumps(r.to_dict(), sort_keys=True) + "\n" for r in records)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as out:
        if out.seek(0, os.SEEK_END):
            out.seek(-1, os.SEEK_END)
            if out.read(1) != b"\n":
                out.seek(0)
                out.truncate(out.read().rfind(b"\n") + 1)
        out.write(text.encode())
        out.flush()
        os.fsync(out.fileno())


def read(path: Path) -> list[Record]:
    """Return the records of one JSON-lines file.

    A last line without its newline is what a killed writer leaves: it is dropped. Any other bad line raises
    BadInput with file and line.
    """
    found = []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise BadInput(f"not text in UTF-8: {error.reason}", file=path) from error
    for number, text in enumerate(lines[:-1], start=1):
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise BadInput(f"not JSON: {error.msg}", file=path, line=number) from error
        found.append(from_dict(data, file=path, line=number))
    return found


def collect(paths: Iterable[Path]) -> list[Record]:
    """Return the records of all files, and of all ``**/records.jsonl`` below the folders, among *paths*."""
    found: list[Record] = []
    for path in paths:
        files = sorted(path.rglob("records.jsonl")) if path.is_dir() else [path]
        for file in files:
            found.extend(read(file))
    return found


_JSON_COLUMNS = ("parameters", "placement_asked", "placement_found", "software")


def columns() -> dict[str, pl.DataType]:
    """Return the columns of a table of records with their types, the same in every table."""
    import polars as pl  # noqa: PLC0415  (the largest import of all, and measuring needs no table)

    text, number, whole = pl.String(), pl.Float64(), pl.Int64()
    first = {"schema": whole, **{f.name: text for f in fields(Record)}, "samples": pl.List(pl.Float64())}
    return {**first, "value": number, "repetitions": whole, "spread": number, "minimum": number, "maximum": number}


def to_frame(records: Iterable[Record]) -> pl.DataFrame:
    """Return one row per record; the nested fields are JSON text columns, ``samples`` a list of floats."""
    import polars as pl  # noqa: PLC0415 - see columns

    found = list(records)
    data: dict[str, list[Any]] = {f.name: [getattr(r, f.name) for r in found] for f in fields(Record)}
    for name in _JSON_COLUMNS:
        data[name] = [json.dumps(value, sort_keys=True) for value in data[name]]
    data["schema"] = [SCHEMA] * len(found)
    data |= {name: [getattr(r, name) for r in found] for name in ("value", "repetitions", "spread")}
    data["minimum"] = [min(r.samples) for r in found]
    data["maximum"] = [max(r.samples) for r in found]
    wanted = columns()
    return pl.DataFrame({name: data[name] for name in wanted}, schema=wanted)


def from_frame(frame: pl.DataFrame, *, file: str | Path | None = None) -> list[Record]:
    """Return the records of a table of :func:`to_frame`; raises BadInput (with *file*) for what is none."""
    found = []
    for row in frame.select(["schema", *(f.name for f in fields(Record))]).iter_rows(named=True):
        try:
            nested = {name: json.loads(row[name]) for name in _JSON_COLUMNS}
        except (TypeError, ValueError) as error:
            raise BadInput(f"not a record: {error}", file=file) from error
        found.append(from_dict({**row, **nested}, file=file))
    return found


def write_table(records: Iterable[Record], path: Path) -> None:
    """Write the records as Parquet to *path* (beside it first, then renamed)."""
    with beside.replacing(path) as partial:
        to_frame(records).write_parquet(partial)
