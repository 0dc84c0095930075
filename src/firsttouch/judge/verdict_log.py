# SPDX-License-Identifier: Apache-2.0
"""The log of verdicts: ``log/HOST.jsonl`` in the folder of the last verdicts, a JSON line for each measurement.

A host's file has one writer at a time: the host's own job, or the job that collects. A lock keeps two of them
apart where the file system has locks. Others may have written to the folder, so a line counts only if it has all
values in their types, and the name of the file's host.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from firsttouch.clock import MOST_SKEW, SYSTEM_CLOCK, Clock
from firsttouch.errors import BadInput
from firsttouch.execution.progress import say
from firsttouch.host.emulation import HOST
from firsttouch.judge import verdict_file
from firsttouch.judge.verdict import HostVerdict, Word
from firsttouch.records import append_log, file_lock

#: Most characters of a reason or a source.
_LONGEST = 400
#: The end of a host's log that is read (bytes): some thousands of verdicts.
_MOST_BYTES = 1 << 20


class Logged(Struct, frozen=True):
    """A verdict of a *host* of a *system*: the *time* of the measurement (seconds since 1970), why, and by what.

    *source* is a campaign or the files that were judged. *reason* is "" for a host that passes.
    """

    time: float
    host: str
    system: str
    verdict: Word
    reason: str
    source: str


_DECODER = msgspec.json.Decoder(Logged)


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
            append_log.append(file, msgspec.json.encode(logged).decode() + "\n")


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
    logs = {host: _once(_logged_lines(lines, host, now)) for host, lines in _ends(of or folder(), sample)}
    return {host: lines for host, lines in logs.items() if lines}


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
        with contextlib.suppress(msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            line = _DECODER.decode(text)
            if line.host == host and 0 < line.time <= now + MOST_SKEW:
                logged.append(line)
    return logged
