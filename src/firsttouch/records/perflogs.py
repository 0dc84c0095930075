# SPDX-License-Identifier: Apache-2.0
"""Records from ReFrame's performance logs or stored sessions, of any check: each performance variable is a case.

ReFrame 4 writes the names of the columns first, with a row for each variable or with all variables in one row. The
partition stands for the host where a log does not name hosts. Rows of jobs on several hosts are left out.

ReFrame 4's database of stored sessions (``results.db``, SQLite) repeats the content of the logs: it is read if
named itself, and not as a part of a folder.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from firsttouch.errors import BadInput
from firsttouch.records.catalogue import FROM_LOGS
from firsttouch.records.schema import Record, Unread
from firsttouch.units import Better

_TIME = r"(s|sec|seconds?|m?secs?|[mun]s|[un]secs?|t\[[un]?secs?\]|min|minutes?|h|hours?|d|days?)"
_PER_TIME = re.compile(r".*(/(s|sec|second|min|minute|h|hour|d|day)|flops?|gups)", re.IGNORECASE)
#: The first bytes of a database of SQLite (its "Database File Format", 1.3.1).
_SQLITE = b"SQLite format 3\0"
#: The keys that are read of a stored test case.
_COLUMNS = {
    *("display_name", "environ", "job_completion_time_unix", "job_nodelist", "num_tasks", "partition", "system"),
}
_NOTHING = {"", "null", "None"}


def read(paths: Sequence[Path]) -> tuple[list[Record], list[Unread], int]:
    """Return the records of logs below *paths*, unreadable parts, and how many values are of several hosts.

    A path may also be a database of stored sessions.
    """
    records: list[Record] = []
    unread: list[Unread] = []
    several = 0
    files = {f: path for path in paths for f in (sorted(path.rglob("*.log*")) if path.is_dir() else [path])}
    for file in files:
        wrong: list[BadInput] = []
        try:
            with file.open("rb") as stream:
                stored = stream.read(len(_SQLITE)) == _SQLITE
            rows = _sessions(file) if stored else _rows(file.read_text("utf-8", errors="replace").splitlines())
        except (OSError, sqlite3.Error, LookupError, ValueError, TypeError, AttributeError) as error:
            unread.append(Unread(BadInput(str(getattr(error, "strerror", None) or error), file=file)))
            continue
        for number, row in rows:
            try:
                values = list(_records(_complete(row, file)))
            except BadInput as error:
                wrong.append(BadInput(str(error), file=file, line=number))
                continue
            several += sum(record is None for record in values)
            records += [record for record in values if record is not None]
        if wrong:
            unread.append(Unread(wrong[0], len(wrong)))
    return records, unread, several


def _sessions(file: Path) -> list[tuple[int, dict[str, str]]]:
    """Return a row for each value of each test case in a database, with the number of its session."""
    rows = []
    with contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
        stored = database.execute("SELECT json_blob FROM sessions ORDER BY session_start_unix").fetchall()
    for number, (text,) in enumerate(stored, 1):
        session = json.loads(text)
        version = {"version": session["session_info"]["version"]}
        for case in (case for run in session["runs"] for case in run["testcases"]):
            row = {key: str(value) for key, value in case.items() if key in _COLUMNS} | version
            for name, (value, _, lower, upper, unit, *_) in case["perfvalues"].items():
                facts = {"var": name, "value": value, "lower_thres": lower, "upper_thres": upper, "unit": unit}
                rows.append((number, row | {f"perf_{key}": str(fact) for key, fact in facts.items()}))
    return rows


def _rows(lines: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the number and the columns of each row; the columns of an unreadable row are empty."""
    header: list[str] = []
    for number, line in enumerate(lines, 1):
        fields = [field.strip() for field in line.split("|")]
        names = [field.removeprefix("check_") for field in fields]
        if "job_completion_time" in names:
            header = names
        elif header:
            # ReFrame does not quote the texts of checks, which may hold the separator.
            yield number, dict(zip(header, fields, strict=True)) if len(header) == len(fields) else {}
        elif line.strip():
            yield number, {}


def _complete(row: Mapping[str, str], file: Path) -> dict[str, str]:
    """Return a row with the names that the log's folders state: SYSTEM/PARTITION/NAME.log."""
    if not row:
        raise BadInput("not a row of a performance log")
    stated = {key: value for key, value in row.items() if value not in _NOTHING}
    name = stated.get("display_name") or stated.get("name") or stated.get("info") or file.name.split(".log")[0]
    # The name of a fixture ends with its scope, and an older text with its place.
    name = re.split(r" (?:~|@|on \S+:|/[0-9a-f]{8})", name)[0]
    places = {"partition": file.parent.name, "system": file.parent.parent.name}
    return {**places, **stated, "name": name}


def _records(row: Mapping[str, str]) -> Iterator[Record | None]:
    """Yield the records of a row, None for each that is of several hosts; raises BadInput for a wrong value."""
    several = bool(re.search(r"[\[\],]", host := row.get("job_nodelist", row["partition"]).strip("[]'\"")))
    name, *parameters = row["name"].split(" ")
    facts = {
        # ReFrame adds %.nid=HOST and %.repeat_no=N, which are not parameters of a check.
        "test": " ".join(p for p in parameters if not p.startswith("%.")),
        "environ": row.get("environ", ""),
        "num_tasks": row.get("num_tasks", ""),
    }
    variables = [key.removesuffix("_value") for key in row if key.endswith("_value") and key != "perf_value"]
    if "perf_value" in row and "perf_var" in row:
        # "triad=GB" is written for a variable without the columns of its name.
        variables = [row["perf_var"].rpartition(":")[2]]
    for variable in variables:
        column = "perf" if "perf_var" in row else variable
        unit = row.get(f"{column}_unit", "1")
        better = _better(unit, row.get(f"{column}_lower_thres", ""), row.get(f"{column}_upper_thres", ""))
        try:
            value = float(row[f"{column}_value"])
        except ValueError:
            raise BadInput(f"{variable} is {row[f'{column}_value']!r}, not a number") from None
        yield (
            None
            if several
            else Record(
                FROM_LOGS + name,
                variable,
                unit,
                better,
                (value,),
                {key: text for key, text in facts.items() if text and text != "builtin"},
                software={"reframe": row["version"]} if "version" in row else {},
                host=host,
                system=row["system"],
                partition=row["partition"],
                time=_time(row),
            )
        )


def _time(row: Mapping[str, str]) -> str:
    """Return the end of the job in UTC; without an offset it is in the time zone of this host."""
    try:
        if "job_completion_time_unix" in row:
            moment = datetime.datetime.fromtimestamp(float(row["job_completion_time_unix"]), datetime.UTC)
        else:
            moment = datetime.datetime.fromisoformat(row["job_completion_time"]).astimezone(datetime.UTC)
    except (KeyError, ValueError, OverflowError, OSError):
        raise BadInput(f"not a time: {row.get('job_completion_time')!r}") from None
    return moment.isoformat(timespec="milliseconds")


def _better(unit: str, lower: str, upper: str) -> Better:
    """Return which values are better: by the only limit of the reference, or by the unit; "neither" if unknown."""
    limits = [float(text) if re.fullmatch(r"-?[0-9.]+", text) else 0.0 for text in (lower, upper)]
    if bool(limits[0]) != bool(limits[1]):
        return "higher" if limits[0] else "lower"
    if _PER_TIME.fullmatch(unit):
        return "higher"
    return "lower" if re.fullmatch(f"{_TIME}(/.*)?", unit) else "neither"
