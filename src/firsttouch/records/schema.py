# SPDX-License-Identifier: Apache-2.0
"""The record: one measured value with everything needed to judge it.

Each check appends its records to a separate JSON-lines file (one writer per file, so that many hosts need no
lock). :func:`collect` reads any number of such files. :func:`to_frame` and :func:`write_table` make the table that
reports and verdicts are computed from.
"""

from __future__ import annotations

import datetime
import errno
import functools
import itertools
import json
import math
import os
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, cast

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct, field
from msgspec.structs import force_setattr

from firsttouch import __version__, documents
from firsttouch.errors import BadInput, RunFailed
from firsttouch.host import cpusets, emulation
from firsttouch.records import append_log, atomic_files, catalogue
from firsttouch.units import UNITS, Better

if TYPE_CHECKING:
    import polars as pl

SCHEMA = 1
#: The largest number in a record. Its square is finite, and so are the values that are computed from it.
LARGEST = 1e100
#: The largest value, because verdicts keep values in four bytes.
LARGEST_VALUE = 1e38
#: The deepest nesting of parameters.
_DEEPEST = 20
#: The fields that name the measurement and its place.
NAMES = ("check", "metric", "unit", "host", "system", "partition")
#: A session of a host ends if the host has no record for longer than this (ms). Several campaigns of a day are
#: separate sessions. A job that is requeued after hours is two sessions, which does no harm.
GAP = 3_600_000
#: The text in a row's software that states an emulated host (see :attr:`Record.judged`).
EMULATOR = '"emulator":'
#: From this number of PUs on that other programs use, they disturb a measurement.
BUSY = 0.5
#: A time as :func:`utc` returns it: such texts sort by time.
UTC = r"^\d{4}-\d\d-\d\dT\d\d:[0-5]\d:[0-5]\d(?:\.\d{1,9})?\+00:00$"


class Record(Struct, frozen=True):
    """One metric of one check on one host.

    ``value`` is the median of ``samples``; ``spread`` is (maximum - minimum) / median, a fraction. ``parameters``
    name the case within the check (kernel, PU-set, bank, threads, ...). ``placement_asked`` and
    ``placement_found``, the requested and the verified placement, have one entry per instance. ``status`` is
    ``valid``, or ``invalid`` with a ``reason`` (the placement did not hold, the output was wrong).
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
    #: The seed that drew the order of the measurements, the place of the step in its round, and that in the step.
    order: Mapping[str, int] = field(default_factory=dict)
    host: str = field(default_factory=emulation.host_name)
    system: str = field(default_factory=lambda: os.environ.get("FIRSTTOUCH_SYSTEM", "local"))
    partition: str = field(default_factory=lambda: os.environ.get("FIRSTTOUCH_PARTITION", "default"))
    time: str = field(
        default_factory=lambda: datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    )

    def __post_init__(self) -> None:
        """Raise BadInput without samples, or if one is not finite or a negative amount."""
        wrong = ""
        if not self.samples or not all(abs(s) <= LARGEST_VALUE for s in self.samples):
            wrong = "hold no number, or one that is not finite or too large"
        elif min(self.samples) < 0 and never_negative(self.unit):
            wrong = f"are negative, in {self.unit}"
        else:
            # Counts become floats, as they are when read back.
            force_setattr(self, "samples", tuple(map(float, self.samples)))
            if not math.isfinite(self.spread):
                wrong = "have no finite spread"
        if wrong:
            raise BadInput(f"record {self.check}/{self.metric}: samples {reprlib.repr(self.samples)} {wrong}")

    @property
    def judged(self) -> bool:
        """Whether references may judge it: on an emulated machine, only the counts of its topology.

        Its speed is the emulator's, also in ratios. Its memory has no distance, and is as small as possible.
        """
        return "emulator" not in self.software or catalogue.counts_if_emulated(self.check, self.unit)

    @property
    def limit(self) -> catalogue.Limit | None:
        """The limit of a metric that counts events, None for others."""
        is_whole = self.unit == "1" and not any(sample % 1 for sample in self.samples)
        return catalogue.limit_of(self.check, self.metric, self.unit, self.better, is_whole=is_whole)

    @property
    def is_proof(self) -> bool:
        """Whether it counts so many events that it alone fails its host."""
        return self.limit is not None and self.limit.is_proof and self.value > self.limit.most

    @property
    def value(self) -> float:
        """Median of the samples, in ``unit``; the largest one of a count of events, none of which is noise."""
        if len(self.samples) == 1:
            return self.samples[0]
        if self.limit is not None:
            return max(self.samples)
        import statistics  # noqa: PLC0415 - it imports many modules

        return statistics.median(self.samples)

    @property
    def repetitions(self) -> int:
        """Number of samples."""
        return len(self.samples)

    @property
    def spread(self) -> float:
        """(maximum - minimum) / median of the samples; 0 for a single sample or a median of 0."""
        if len(self.samples) == 1:
            return 0.0
        value = self.value
        return (max(self.samples) - min(self.samples)) / value if value else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of the record, with the derived figures."""
        derived = {"value": self.value, "repetitions": self.repetitions, "spread": self.spread}
        return {"schema": SCHEMA, **{name: getattr(self, name) for name in _FIELDS}, **derived}


def never_negative(unit: str) -> bool:
    """Return whether *unit* is the unit of an amount: a size, a rate, a time, a count."""
    return unit == "1" or unit in UNITS


def software(**versions: str) -> dict[str, str]:
    """Return *versions* of measured programs and of Linux, firsttouch, the emulator and the backend."""
    emulator = emulation.emulator()
    host = {"linux": os.uname().release, "firsttouch": __version__}
    optional = {"emulator": emulator, "backend": os.environ.get("FIRSTTOUCH_BACKEND")}
    return {**versions, **host, **{name: value for name, value in optional.items() if value}}


_FIELDS = Record.__struct_fields__
#: The keys that a record in a file must have: a new record's defaults describe this host.
_STATED = ("check", "metric", "unit", "better", "samples", "host", "system", "time")
_DERIVED = {"schema", "value", "repetitions", "spread"}
CHOICES = {"better": ("higher", "lower", "neither"), "status": ("valid", "invalid")}
_OBJECTS = {"parameters", "software", "order"}
JSON_COLUMNS = (*sorted(_OBJECTS), "placement_asked", "placement_found")


def _are_texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


class _CpuList(frozenset[int]):
    """Numbers as the kernel lists them."""

    parse = staticmethod(cpusets.parse_list)


_Whole = Annotated[int, Meta(ge=0)]
#: The types of parameters by the names that the catalogue gives them.
_TYPES: dict[str, Any] = {
    "text": str,
    "number": Annotated[float, Meta(ge=0)],
    "whole": _Whole,
    "wholes": list[_Whole],
    "whole_or_wholes": _Whole | list[_Whole],
    "cpu_list": _CpuList,
    "texts": dict[str, str],
    "places": list[dict[str, list[_Whole]]],
}


@functools.cache
def parameters_form() -> type[Struct]:
    """Return the structure of the parameters that have a type in the catalogue: a record may have others, too."""
    types = catalogue.catalogue().common.types
    by_name = {name: _TYPES[kind] | UnsetType for kind, names in types.items() for name in names}
    return defstruct("Parameters", [(name, kind, UNSET) for name, kind in by_name.items()])


def wrong_parameter(parameters: Mapping[str, Any]) -> str:
    """Return which of a record's *parameters* is not of the type that it has everywhere, or an empty string."""
    mistake = documents.mistake(parameters_form(), parameters)
    return f"have {mistake}" if mistake else ""


def from_dict(data: object) -> Record:
    """Return the record of a JSON object, its time in UTC; raises BadInput for anything else."""
    values = _values(data)
    return Record(**{**values, "time": utc(values["time"])})


def _values(data: object) -> dict[str, Any]:
    """Return the fields of the record of a JSON object; raises BadInput for anything else."""
    if not isinstance(data, Mapping):
        raise BadInput("not a record: no JSON object")
    if (schema := data.get("schema")) != SCHEMA or isinstance(schema, bool):
        raise BadInput(f"record of schema {reprlib.repr(schema)}, this version reads {SCHEMA}")
    if unknown := set(data).difference(_FIELDS, _DERIVED):
        raise BadInput(f"record with unknown keys {reprlib.repr(sorted(unknown))}")
    if lacking := [name for name in _STATED if name not in data]:
        raise BadInput(f"not a record: it has no {' and no '.join(lacking)}")
    values = {k: v for k, v in data.items() if k in _FIELDS}
    for name, value in values.items():
        if wrong := wrong_value(name, value):
            raise BadInput(f"not a record: {name} {wrong}")
    return {**values, "samples": tuple(values["samples"])}


def wrong_value(name: str, value: object) -> str:
    """Return the defect of the *value*, from JSON, of the field *name*, or an empty string."""
    match name:
        case "samples":
            kind, right = "a list of numbers", _is_list(value, lambda v: type(v) in {int, float})
        case "placement_asked" | "placement_found":
            kind, right = "a list of JSON objects", _is_list(value, lambda v: isinstance(v, dict))
        case "parameters" | "software" | "order":
            kind, right = "a JSON object", isinstance(value, dict)
        case "host":
            kind, right = "the name of a host", isinstance(value, str) and bool(value.strip())
        case _:
            kind, right = "a text", isinstance(value, str)
    if not right:
        return f"is {reprlib.repr(value)}, not {kind}"
    if name in CHOICES and value not in CHOICES[name]:
        return f"is {reprlib.repr(value)}, not {' or '.join(CHOICES[name])}"
    if name in NAMES and "\0" in str(value):
        return f"is {reprlib.repr(value)}, with a NUL character"
    if name == "time" and utc(str(value)) is None:
        return f"is {reprlib.repr(value)}, not a time as 2026-01-31T12:00:00+00:00"
    if name == "software" and not _are_texts(value):
        return "has a version that is not a text"
    wrong = wrong_parameter(value) if name == "parameters" and isinstance(value, dict) else ""
    return wrong or ("" if name == "samples" else _unusable(value))


def _is_list(value: object, right: Callable[[object], bool]) -> bool:
    return isinstance(value, list) and all(map(right, value))


def wrong_json(name: str, text: str) -> str:
    """Return the defect of the JSON *text* of the field *name*, or an empty string."""
    try:
        return wrong_value(name, json.loads(text))
    except (ValueError, RecursionError) as error:
        return f"is not JSON: {error}"


def utc(text: str) -> str | None:
    """Return a date and a time of day in ISO 8601 as a time in UTC that sorts as text; None for another text.

    A time without an offset is in UTC.
    """
    if re.match(UTC, text):
        return text if _moment(text) else None
    if len(text) <= len("2026-01-31") or (moment := _moment(text)) is None:
        return None
    return _stated(moment)


def _stated(moment: datetime.datetime) -> str:
    return moment.isoformat(timespec="microseconds" if moment.microsecond % 1000 else "milliseconds")


def _moment(text: str) -> datetime.datetime | None:
    try:
        moment = datetime.datetime.fromisoformat(text)
        return moment.replace(tzinfo=datetime.UTC) if moment.tzinfo is None else moment.astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        return None


def _unusable(value: object, depth: int = 0) -> str:
    """Return why *value*, parsed from JSON, cannot be written to other files, or an empty string."""
    if isinstance(value, str):
        try:
            value.isascii() or value.encode()
        except UnicodeEncodeError:
            return "holds half of a UTF-16 pair, which is not a character"
    elif isinstance(value, (int, float)):
        if not abs(value) <= LARGEST:
            return "holds a number that is not finite or too large"
    elif isinstance(value, (Mapping, list, tuple)):
        if depth == _DEEPEST:
            return f"is nested more than {_DEEPEST} levels deep"
        for inner in [*value, *value.values()] if isinstance(value, Mapping) else value:
            if wrong := _unusable(inner, depth + 1):
                return wrong
    return ""


class Unread(Struct, frozen=True):
    """The records of a file that cannot be read: their *count*, and the *error* of the first one.

    *hosts* are the hosts that they may be of, None if that is unknown.
    """

    error: BadInput
    count: int = 1
    hosts: frozenset[str] | None = None

    def __str__(self) -> str:
        return f"{self.error}" + (f" (and {self.count - 1} more in this file)" if self.count > 1 else "")


def append(path: Path, records: Iterable[Record]) -> None:
    """Append *records* to the JSON-lines file *path* and force them to the disk.

    A part of a last line, left by a killed writer, is removed, or it would spoil the first new line. Raises
    BadInput for a file that does not hold records, and leaves it unchanged.
    """
    check_appendable(path)
    text = "".join(json.dumps(r.to_dict(), sort_keys=True) + "\n" for r in records)
    path.parent.mkdir(parents=True, exist_ok=True)
    append_log.append(path, text)


def check_appendable(path: Path) -> None:
    """Raise BadInput if records cannot be appended to *path*: it is not writable, or not a file of records."""
    if not path.exists():
        atomic_files.check_place(path, creates=True)
        return
    if not path.is_file():
        raise BadInput("records can only be appended to a file", file=path)
    if not os.access(path, os.W_OK):
        raise BadInput("records cannot be appended: it is not writable", file=path)
    with path.open("rb") as file:
        # A line that begins like a record may have any length. Of other lines only a part is read.
        begin = file.readline(_LONGEST)
        if begin.startswith(_BEGIN) and not begin.endswith(b"\n"):
            begin += file.readline()
    if not begin.endswith(b"\n") and _BEGIN.startswith(begin[: len(_BEGIN)]):
        return  # empty, or the incomplete first record of a killed writer
    try:
        from_dict(json.loads(begin))
    except (ValueError, RecursionError, BadInput) as error:
        raise BadInput(
            "records can only be appended to a file of records, and its first line is not a record", file=path
        ) from error


#: The beginning of each record that append writes: its keys are sorted.
_BEGIN = b'{"better": "'
#: Most bytes that are read of a line that begins unlike our records.
_LONGEST = 1 << 24


def read(path: Path) -> list[Record]:
    """Return the records of one JSON-lines file.

    A part of a last line, which a killed writer leaves, is ignored. Any other bad line raises BadInput with file
    and line, and so does a file that cannot be read.
    """
    try:
        records, unread = read_good(path)
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", file=path) from error
    if unread is not None:
        raise unread.error
    return records


def read_good(path: Path) -> tuple[list[Record], Unread | None]:
    """Return the records of one JSON-lines file as :func:`read` does, and those that cannot be read.

    Raises OSError if the file cannot be opened.
    """
    records: list[Record] = []
    unread: list[Unread] = []
    for part in read_parts(path, unread.append):
        records += part
    return records, unread[0] if unread else None


#: The number of records of a file that are handed on at a time.
_PART = 1 << 14


def read_parts(path: Path, on_unread: Callable[[Unread], object]) -> Iterator[list[Record]]:
    """Yield the records of one JSON-lines file, some at a time, and call *on_unread* if others cannot be read.

    Raises OSError if the file cannot be opened.
    """
    records: list[Record] = []
    errors: list[BadInput] = []
    hosts: set[str | None] = set()
    good_hosts: set[str] = set()
    for number, text in enumerate(append_log.whole_lines(path.read_bytes()), start=1):
        host = None
        if len(records) == _PART:
            yield records
            records = []
        try:
            data = json.loads(text.decode("utf-8"))
            host = data.get("host") if isinstance(data, dict) else None
            records.append(from_dict(data))
            good_hosts.add(records[-1].host)
            continue
        except BadInput as error:
            reason = str(error)
        except UnicodeDecodeError as error:
            reason = f"not text in UTF-8: {error.reason}"
        except RecursionError:
            reason = "not a record: nested too deep"
        except ValueError as error:
            what = error.msg if isinstance(error, json.JSONDecodeError) else str(error).split(";")[0]
            reason = f"not JSON: {what}"
        errors.append(BadInput(reason, file=path, line=number))
        hosts.add(host if isinstance(host, str) and host.strip() else None)
    yield records
    if errors:
        if None in hosts:  # a record without a host may be of any host in the file
            hosts |= good_hosts
        on_unread(Unread(errors[0], len(errors), frozenset(h for h in hosts if h is not None) or None))


def collect(paths: Iterable[Path]) -> list[Record]:
    """Return the records of the files among *paths* and of all ``records.jsonl`` below the folders among them."""
    files = (sorted(path.rglob("records.jsonl")) if path.is_dir() else [path] for path in paths)
    return [record for file in itertools.chain.from_iterable(files) for record in read(file)]


def columns() -> dict[str, pl.DataType]:
    """Return the columns of a table of records with their types, the same in every table.

    Texts of which there are few are categories. Times are in UTC.
    """
    import polars as pl  # noqa: PLC0415 - a large import that measuring does without

    types: dict[str, pl.DataType] = dict.fromkeys(_FIELDS, pl.Categorical())
    return {**types, "samples": pl.List(pl.Float64()), "time": pl.Datetime("us", "UTC"), "value": pl.Float64()}


def to_frame(records: Iterable[Record]) -> pl.DataFrame:
    """Return a table with a row per record; nested fields are columns of JSON, ``samples`` is a list of floats."""
    import polars as pl  # noqa: PLC0415 - see columns

    listed = list(records)
    data: dict[str, Any] = {name: [getattr(r, name) for r in listed] for name in (*_FIELDS, "value")}
    encoded = json.JSONEncoder(sort_keys=True).encode  # json.dumps makes an encoder for each value
    for name in JSON_COLUMNS:
        empty = "{}" if name in _OBJECTS else "[]"
        data[name] = [encoded(value) if value else empty for value in data[name]]
    data["time"] = _times(pl.Series(data["time"], dtype=pl.String))
    # To group all samples takes a tenth of the time of a list for each record.
    rows = [number for number, r in enumerate(listed) for _ in r.samples]
    flat = {"row": rows, "samples": [sample for r in listed for sample in r.samples]}
    lists = pl.DataFrame(flat, schema={"row": pl.Int64, "samples": pl.Float64}).group_by(
        "row", maintain_order=True
    )
    data["samples"] = lists.agg("samples")["samples"]
    types = columns()
    return pl.DataFrame({name: data[name] for name in types}, schema=types)


#: Stands for the time of a record that has none.
_UNKNOWN_TIME = "1970-01-01T00:00:00+00:00"


def _times(texts: pl.Series) -> pl.Series:
    """Return times of records, 1970 for an empty text; raises BadInput for a text that is not a time."""
    import polars as pl  # noqa: PLC0415 - see columns

    times = texts.replace("", _UNKNOWN_TIME).str.to_datetime("%+", time_zone="UTC", time_unit="us", strict=False)
    for text in texts.filter(times.is_null()).unique():
        if (moment := utc(text)) is None:
            raise BadInput(f"not a time: {reprlib.repr(text)}")
        moments = pl.lit(datetime.datetime.fromisoformat(moment)).cast(times.dtype)
        times = pl.select(pl.when(texts == text).then(moments).otherwise(times)).to_series()
    return times


def from_frame(frame: pl.DataFrame) -> list[Record]:
    """Return the records of a table of :func:`to_frame`; raises BadInput for any other table."""
    records = []
    for row in frame.select(_FIELDS).iter_rows(named=True):
        try:
            nested = {name: json.loads(row[name]) for name in JSON_COLUMNS}
        except (TypeError, ValueError, RecursionError) as error:
            raise BadInput(f"not a record: {error}") from error
        records.append(Record(**_values({**row, **nested, "time": _stated(row["time"]), "schema": SCHEMA})))
    return records


def write_table(records: Iterable[Record], path: Path) -> None:
    """Write the records as Parquet to *path*, atomically."""
    with atomic_files.replace(path) as partial, table_file(partial) as out:
        to_frame(records).write_parquet(out)


def kernel_error(error: BaseException) -> int | None:
    """Return the number of the kernel's error that an *error* of polars states, None if it states none."""
    stated = re.search(r"\(os error (\d+)\)", str(error))
    return int(stated[1]) if stated else getattr(error, "errno", None)


class _TableFile:
    """A file for polars, which hides the kernel's *error*."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        """Write *data*."""
        try:
            return self._out.write(data)
        except OSError as error:
            self.error = error
            raise


@contextmanager
def table_file(path: Path) -> Iterator[IO[bytes]]:
    """Open *path*, whose name may have any bytes, for polars to write; a full disk raises OSError."""
    import polars as pl  # noqa: PLC0415 - see columns

    try:
        with path.open("wb") as out:
            table = _TableFile(out)
            try:
                yield cast("IO[bytes]", table)
            except pl.exceptions.PolarsError as error:
                reason = str(error).splitlines()[0]
                raise table.error or RunFailed(f"{path.parent}: no table was written: {reason}") from error
    except OSError as error:
        # polars raises FileNotFoundError without a number.
        number = errno.ENOENT if isinstance(error, FileNotFoundError) else kernel_error(error)
        raise OSError(number, str(error) if number is None else os.strerror(number), str(path.parent)) from error
