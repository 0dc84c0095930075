# SPDX-License-Identifier: Apache-2.0
"""The log of verdicts: ``log/HOST.jsonl`` in the folder of the last verdicts, a JSON line for each measurement.

A host's file has one writer at a time: the host's own job, or the job that collects. A lock keeps two of them
apart where the file system has locks. Others may have written to the folder, so a line counts only if it has all
values in their types, and the name of the file's host.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from firsttouch.clock import MOST_SKEW, SYSTEM_CLOCK, Clock
from firsttouch.errors import BadInput
from firsttouch.execution.progress import say
from firsttouch.host.emulation import HOST
from firsttouch.judge import verdict_file
from firsttouch.judge.verdict import ORDER, HostVerdict, Word
from firsttouch.records import append_log, file_lock

if TYPE_CHECKING:
    import polars as pl

#: Most characters of a reason or a source.
_LONGEST = 400
#: The end of a host's log that is read (bytes): some thousands of verdicts.
_MOST_BYTES = 1 << 20
#: Logs that are read as one table: a foreign line delays only the others of its table.
_AT_ONCE = 500


class Logged(NamedTuple):
    """A verdict of a *host* of a *system*: the *time* of the measurement (seconds since 1970), why, and by what.

    *source* is a campaign or the files that were judged. *reason* is "" for a host that passes.
    """

    time: float
    host: str
    system: str
    verdict: Word
    reason: str
    source: str


class Sample(NamedTuple):
    """A part of the logs, to read it in a moment: the last *most_bytes* of that of a *host* and of *others*.

    The others, about so many, are evenly spaced among all.
    """

    host: str
    others: int = 250
    most_bytes: int = 1 << 13


def folder() -> Path:
    """Return the folder of the logs."""
    return verdict_file.folder() / "log"


def publish(verdict: HostVerdict, measured: float, source: str, *files: Path) -> None:
    """Write the verdict of a measurement to the host's verdict file and to *files*, and append it to the log.

    *measured* is the time of the measurement (seconds since 1970), *source* its campaign or files. Raises BadInput
    if *verdict* has no name of a host, OSError if a verdict file cannot be written. A log that cannot be written,
    such as another user's, is only reported.
    """
    _check_name(verdict)
    verdict_file.write(verdict, measured, *files, verdict_file.folder() / verdict.host)
    try:
        append(verdict, measured, source)
    except OSError as error:
        say(f"firsttouch: {error.filename or folder()}: {error.strerror}: the log has no line for {verdict.host}")


def append(verdict: HostVerdict, measured: float, source: str, to: Path | None = None) -> None:
    """Append the verdict of a measurement to its host's log in the folder *to* (default: :func:`folder`).

    A line that the log has already is not appended again, nor is the verdict of a host that was not measured
    (*measured* is 0). Raises BadInput if *verdict* has no name of a host, OSError if the log cannot be written.
    """
    _check_name(verdict)
    if measured <= 0:
        return
    reason = verdict.why()
    texts = (verdict.host, verdict.system, verdict.verdict, reason[:_LONGEST], source[:_LONGEST])
    logged = Logged(round(measured, 3), *texts)
    file = (to or folder()) / f"{verdict.host}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # a file system without locks
            stack.enter_context(file_lock.locked(file))
        if logged not in _logged_lines(append_log.end_of(file, _MOST_BYTES), verdict.host, SYSTEM_CLOCK.time()):
            append_log.append(file, json.dumps(logged._asdict()) + "\n")


def _check_name(verdict: HostVerdict) -> None:
    if not HOST.fullmatch(verdict.host):
        raise BadInput(f"{verdict.host!r} is not the name of a host: its verdict is not logged")


def read(
    of: Path | None = None, *, clock: Clock = SYSTEM_CLOCK, sample: Sample | None = None
) -> dict[str, list[Logged]]:
    """Return the verdicts of each host in the folder *of* (default: :func:`folder`), sorted by time.

    With a *sample*, only the newest of a host and of some others are read.

    A measurement counts once: of several verdicts of one time and source, the one that was appended last counts,
    such as the fleet's after that of the host's own job. Foreign files and lines are left out. The result is empty
    if there is no such folder.
    """
    now = clock.time()
    logs: dict[str, list[Logged]] = {}
    ends = _ends(of or folder(), sample)
    while batch := list(itertools.islice(ends, _AT_ONCE)):
        logs |= _logs(batch, now)
    return logs


def _ends(of: Path, sample: Sample | None) -> Iterator[tuple[str, list[bytes]]]:
    """Yield each host with a log in the folder *of*, in order, and the lines at the end of its log."""
    most_bytes = sample.most_bytes if sample else _MOST_BYTES
    try:
        entries = sorted(os.scandir(of), key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    if sample:
        step = max(1, math.ceil(len(entries) / sample.others))
        entries = [e for i, e in enumerate(entries) if i % step == 0 or e.name == f"{sample.host}.jsonl"]
    for entry in entries:
        host, _, suffix = entry.name.rpartition(".")
        if suffix == "jsonl" and HOST.fullmatch(host) and entry.is_file():
            with contextlib.suppress(OSError):  # of another user
                yield host, append_log.end_of(Path(entry.path), most_bytes)


def _logs(ends: Sequence[tuple[str, list[bytes]]], now: float) -> dict[str, list[Logged]]:
    """Return the verdicts of some hosts by the lines of their logs.

    All lines are read as one table, which takes a third of the time. It is refused if any line is foreign; then
    each line is read by itself.
    """
    logs: dict[str, list[Logged]] = {}
    table = _table(ends, now)
    if table is None:
        return {host: _once(logged) for host, lines in ends if (logged := _logged_lines(lines, host, now))}
    rows = map(Logged._make, zip(*(table[name].to_list() for name in Logged._fields), strict=True))
    for host, count in table["host"].rle().struct.unnest().select("value", "len").iter_rows():
        logs[host] = list(itertools.islice(rows, count))
    return logs


def _table(ends: Sequence[tuple[str, list[bytes]]], now: float) -> pl.DataFrame | None:
    """Return the lines of *ends* as a table, by host and time, each measurement once; None if a line is wrong."""
    import polars as pl  # noqa: PLC0415 - a large import

    schema = {name: pl.Float64 if name == "time" else pl.String for name in Logged._fields}
    hosts = [host for host, lines in ends for _ in lines]
    text = b"\n".join(line for _, lines in ends for line in lines)
    try:
        table = pl.read_ndjson(io.BytesIO(text), schema=schema)
    except pl.exceptions.PolarsError:
        return None
    column = pl.col
    right = (column("host") == pl.Series(hosts, dtype=pl.String)) & column("verdict").is_in(ORDER)
    right &= column("time").is_between(0, now + MOST_SKEW, closed="right")
    right &= pl.all_horizontal(column("system", "reason", "source").is_not_null())
    if table.height != len(hosts) or not table.select(right.fill_null(value=False).all()).item():
        return None
    keys = ("host", "time", "source")
    return table.unique(keys, keep="last", maintain_order=True).sort("host", "time", maintain_order=True)


def _once(lines: Sequence[Logged]) -> list[Logged]:
    """Return the last line of each time and source, sorted by time."""
    last: dict[tuple[float, str], Logged] = {}
    for line in lines:
        last.pop((line.time, line.source), None)
        last[line.time, line.source] = line
    return sorted(last.values(), key=lambda line: line.time)


def _logged_lines(lines: Sequence[bytes], host: str, now: float) -> list[Logged]:
    """Return the verdicts of a *host* among *lines*, in their order."""
    logged = []
    for text in lines:
        with contextlib.suppress(TypeError, KeyError, ValueError, RecursionError):
            value = json.loads(text)
            line = Logged(*(value[name] for name in Logged._fields))
            are_texts = all(isinstance(text, str) for text in (line.system, line.reason, line.source))
            if line.host == host and line.verdict in ORDER and 0 < line.time <= now + MOST_SKEW and are_texts:
                logged.append(line)
    return logged
