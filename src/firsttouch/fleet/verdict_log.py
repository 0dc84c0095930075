# SPDX-License-Identifier: Apache-2.0
"""The verdicts of hosts in files: the last one of each host for shells, and a log of all.

The last verdict is one line, ``WORD TIME HOST SYSTEM TEXT``, in a file with the name of the host. TIME is in
seconds since 1970. TEXT has no quotes or other characters that a shell interprets.

The log, ``log/HOST.jsonl`` in the same folder, has a JSON line for each measurement. One process at a time writes
a host's file (its own job or the collecting job), which a lock enforces if the file system has locks. Other users
may have written to the folder, so only files of root, its owner and this user are read. A line is used only if all
values have their types, and if it names the file's host. Damaged lines are reported. A host whose newest line is
damaged is suspect, unless it failed before.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise, takewhile
from pathlib import Path

import msgspec
from msgspec import Struct

from firsttouch import paths
from firsttouch.clock import MOST_SKEW, SYSTEM_CLOCK, Clock
from firsttouch.errors import BadInput, first_of
from firsttouch.execution.progress import say
from firsttouch.host.emulation import HOST
from firsttouch.judge.verdict import HostVerdict, Word
from firsttouch.records import append_log, atomic_files, file_lock

#: The most characters of TEXT, and of a reason or a source.
_LONGEST = 400
#: How much of the end of a host's log is read (bytes): some thousands of verdicts.
_MOST_BYTES = 1 << 20
#: The reason of a suspicion because of the log itself.
_UNREADABLE = "its newest verdict in the log cannot be read"
#: Prints a message once, because a process reads the logs repeatedly.
_say_once = cache(say)
#: The fewest verdicts in a row after which a host is listed as staying undecided or suspect.
FEWEST_OPEN = 4


def folder() -> Path:
    """Return the folder of the last verdicts, one file per host: FIRSTTOUCH_VERDICTS, or one below the results."""
    return Path(os.environ.get("FIRSTTOUCH_VERDICTS") or paths.results() / "verdicts").absolute()


def log_folder() -> Path:
    """Return the folder of the logs."""
    return folder() / "log"


def publish(verdict: HostVerdict, measured: float, source: str, *files: Path) -> None:
    """Write the verdict of a measurement to the host's verdict file and to *files*, and append it to the log.

    *measured* is the time of the measurement (seconds since 1970), *source* its campaign or files. Raises BadInput
    if *verdict* has no name of a host, OSError if a verdict file cannot be written. A log that cannot be written,
    such as another user's, is only reported.
    """
    _check_name(verdict)
    write(verdict, measured, *files, folder() / verdict.host)
    try:
        append(verdict, measured, source)
    except OSError as error:
        file = error.filename or log_folder()
        say(f"firsttouch: {file}: {error.strerror}: the verdict of {verdict.host} is not logged")


def _check_name(verdict: HostVerdict) -> None:
    if not HOST.fullmatch(verdict.host):
        raise BadInput(f"{verdict.host!r} is not the name of a host: its verdict is not logged")


# ----------------------------------------------------------------------
# The last verdict


def shell_safe(text: str) -> str:
    """Return *text* with each character that a shell may interpret replaced by an underscore."""
    return re.sub(r"[^A-Za-z0-9 .,:;%/()=+_-]", "_", text)


def line(verdict: HostVerdict, measured: float) -> str:
    """Return the line of a verdict's file, without its newline; *measured* is in seconds since 1970."""
    host, system = (shell_safe(name).replace(" ", "_") for name in (verdict.host, verdict.system))
    return f"{verdict.verdict} {int(measured)} {host} {system} {shell_safe(verdict.outcome())[:_LONGEST]}"


def write(verdict: HostVerdict, measured: float, *files: Path) -> None:
    """Write the verdict of a measurement at the time *measured* to each of *files* without a later one."""
    for file in files:
        if _time_in(file) <= int(measured):
            file.parent.mkdir(parents=True, exist_ok=True)
            # Anything with this name is replaced, because writing to a FIFO would block.
            with atomic_files.replace(file) as partial:
                partial.write_text(line(verdict, measured) + "\n", encoding="utf-8")


def _time_in(file: Path) -> int:
    """Return the time of the verdict in a file; 0 if it is absent, damaged or in the future."""
    try:
        stated = int(file.read_bytes().split()[1]) if file.is_file() else 0
    except (OSError, IndexError, ValueError):
        return 0
    return stated if stated <= time.time() else 0


# ----------------------------------------------------------------------
# The log


class Logged(Struct, frozen=True):
    """A verdict of a *host* of a *system*: the *time* of the measurement (seconds since 1970) and the evidence.

    *source* is a campaign or the files that were judged. *reason* is "" for a host that passes.
    """

    time: float
    host: str
    system: str
    verdict: Word
    reason: str
    source: str


_DECODER = msgspec.json.Decoder(Logged)


def append(verdict: HostVerdict, measured: float, source: str, to: Path | None = None) -> None:
    """Append the verdict of a measurement to its host's log in the folder *to* (default: :func:`log_folder`).

    Nothing is appended if the log already has the line, or if the host was not measured (*measured* is 0). Raises
    BadInput if *verdict* has no name of a host, OSError if the log cannot be written.
    """
    _check_name(verdict)
    if measured <= 0:
        return
    texts = (verdict.host, verdict.system, verdict.verdict, verdict.reason()[:_LONGEST], source[:_LONGEST])
    logged = Logged(round(measured, 3), *texts)
    file = (to or log_folder()) / f"{verdict.host}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # a file system without locks
            stack.enter_context(file_lock.lock_file(file))
        if logged not in _logged(append_log.end_of(file, _MOST_BYTES), verdict.host, SYSTEM_CLOCK.time()):
            append_log.append(file, msgspec.json.encode(logged).decode() + "\n")


def read(of: Path | None = None, *, clock: Clock = SYSTEM_CLOCK, only: str = "") -> dict[str, list[Logged]]:
    """Return the verdicts of hosts, or *only* of one, in the folder *of* (default: :func:`log_folder`), by time.

    Of several verdicts with one time and source, only the last one is returned, such as the fleet's after the
    verdict of the host's own job. Foreign files and lines are left out, damaged lines with a message. After a
    damaged newest line, the last verdict is a suspicion or the earlier fail. The result is empty if the folder
    does not exist.
    """
    logs: dict[str, list[Logged]] = {}
    for host, file, lines in _ends(of or log_folder(), only):
        verdicts = list(_logged(lines, host, clock.time()))
        last: dict[tuple[float, str], Logged] = {}
        for logged in filter(None, verdicts):
            last.pop((logged.time, logged.source), None)
            last[logged.time, logged.source] = logged
        log = sorted(last.values(), key=lambda logged: logged.time)
        if damaged := verdicts.count(None):
            lines_text = f"{damaged} line{'s' * (damaged > 1)}"
            _say_once(f"firsttouch: {file}: left out: {lines_text} that cannot be read")
        decided = [logged.verdict for logged in log if logged.verdict not in {"undecided", "invalid"}]
        if verdicts[-1:] == [None] and decided[-1:] != ["fail"]:
            newest = max([file.stat().st_mtime, *(logged.time for logged in log)])
            system = log[-1].system if log else ""
            log.append(Logged(newest, host, system, "suspect", _UNREADABLE, file.name))
        if log:
            logs[host] = log
    return logs


def _ends(of: Path, only: str) -> Iterator[tuple[str, Path, list[bytes]]]:
    """Yield each host with a log in the folder *of*, in order, its log, and the lines at the end of it."""
    try:
        entries, trusted = sorted(os.scandir(of), key=lambda entry: entry.name), paths.deciders(of)
    except FileNotFoundError:
        return
    ignored = []
    for entry in entries:
        host, _, suffix = entry.name.rpartition(".")
        if suffix == "jsonl" and host == (only or host) and HOST.fullmatch(host) and entry.is_file():
            with contextlib.suppress(OSError):  # of another user
                if {entry.stat().st_uid, entry.stat(follow_symlinks=False).st_uid} <= trusted:
                    yield host, Path(entry.path), append_log.end_of(Path(entry.path), _MOST_BYTES)
                else:
                    ignored.append(entry.name)
    if ignored:
        _say_once(f"firsttouch: {of}: ignored, because other users wrote them: {first_of(ignored, 3)}")


def _logged(lines: Sequence[bytes], host: str, now: float) -> Iterator[Logged | None]:
    """Yield the verdicts of a *host* among *lines*, in their order, and None for each damaged line."""
    for text in filter(bytes.strip, lines):
        try:
            logged = _DECODER.decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            yield None
        else:
            if logged.host == host and 0 < logged.time <= now + MOST_SKEW:
                yield logged


# ----------------------------------------------------------------------
# Hosts that fail repeatedly


class Offender(Struct, frozen=True):
    """A *host* of a *system* that failed again after a pass, or that stays undecided or suspect.

    *fails* is how often it began to fail; *open_verdicts* is the number of newest verdicts in a row that are
    undecided or suspect for the same part (0: fewer than :data:`FEWEST_OPEN`), out of all *verdicts*. *first* and
    *last* are the times of the first and last of these (s since 1970). *reason* comes from the last one; *verdict*
    is the newest verdict.
    """

    host: str
    system: str
    fails: int
    open_verdicts: int
    verdicts: int
    first: float
    last: float
    reason: str
    verdict: str


def repeat_offenders(logs: Mapping[str, Sequence[Logged]]) -> list[Offender]:
    """Return the hosts that failed, passed, and failed again, and those that stay undecided or suspect.

    Hosts with the most fails come first; *logs* are by host.
    """
    offenders = []
    for host, log in logs.items():
        decided = [logged for logged in log if logged.verdict in {"pass", "fail"}]
        fails = [logged for logged in decided if logged.verdict == "fail"]
        begins = sum(
            pair == ("pass", "fail") for pair in pairwise(["pass", *(logged.verdict for logged in decided)])
        )
        newest = list(takewhile(lambda logged: logged.verdict in {"undecided", "suspect"}, reversed(log)))
        newest = [logged for logged in newest if _subject(logged) == _subject(newest[0])]
        still_open = newest[::-1] if len(newest) >= FEWEST_OPEN else []
        if counted := still_open or (fails if begins > 1 else []):
            figures = (begins if begins > 1 else 0, len(still_open), len(log), counted[0].time, counted[-1].time)
            offenders.append(Offender(host, counted[-1].system, *figures, counted[-1].reason, log[-1].verdict))
    return sorted(offenders, key=lambda o: (-o.fails, -o.open_verdicts, -o.last, o.host))


def _subject(logged: Logged) -> str:
    """Return the part or metric of a reason: ``undecided: PART: why``."""
    return ": ".join(logged.reason.split(": ")[1:2])
