# SPDX-License-Identifier: Apache-2.0
"""The files of a campaign: what each host began and finished, and what was submitted."""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from firsttouch.errors import BadInput, Missing
from firsttouch.fleet import slurm
from firsttouch.host.emulation import name_among
from firsttouch.records import atomic_files, schema
from firsttouch.records.schema import Record

# ----------------------------------------------------------------------
# Files that several hosts want to write at once, and exactly one does: by link(2), which holds on NFS too.


def once(file: Path, content: Mapping[str, Any]) -> bool:
    """Write JSON to *file* where nobody did yet, whole or not at all; return whether it was us."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_files.scratch(file) as partial:
        with partial.open("w", encoding="utf-8") as out:
            json.dump(content, out, indent=1)
            out.flush()
            os.fsync(out.fileno())
        with contextlib.suppress(FileExistsError):
            file.hardlink_to(partial)
            return True
    return False


def is_full(error: BaseException) -> bool:
    """Tell whether *error* says that there is no room left."""
    return isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}


@contextlib.contextmanager
def room(folder: Path) -> Iterator[None]:
    """Raise Missing, naming *folder*, where what is done meanwhile finds its file system full."""
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        raise Missing(f"{folder}: its file system is full; what was finished before is kept") from error


# ----------------------------------------------------------------------
# What a host did: its folder in a campaign, which that host alone writes, and a line for all that it began.

State = Literal["began", "done", "invalid", "skipped", "failed", "stopped", "lost"]
#: States after which a step is not run again.
FINISHED = frozenset({"done", "skipped"})
#: Kept free for saying that the disk is full.
_RESERVE = 8192


@dataclass(frozen=True)
class Entry:
    """A line of steps.jsonl: a *step* came to *state* in a *job* (*array*: the one that was submitted).

    *begin* and *end* are where its records are in records.jsonl (bytes). The state "lost" of a step says that
    its records were there and are not any more: it is as if it had not been run.
    """

    step: str
    state: State
    time: str
    host: str
    job: str = ""
    array: str = ""
    reason: str = ""
    seconds: float = 0.0
    begin: int = 0
    end: int = 0


def now() -> str:
    """Return the present time as journals and records write it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


class Journal:
    """The folder of one *host* in a campaign, which is called like it or, in older campaigns, with its domain.

    *damage* names the lines of steps.jsonl that are none, which :meth:`entries` leaves out.
    """

    def __init__(self, folder: Path, host: str = "") -> None:
        self.folder = folder
        self.host = host or folder.name
        self.file = folder / "steps.jsonl"
        self.records = folder / "records.jsonl"
        self.damage: list[str] = []
        self._lines: list[Entry] = []
        self._offset = self._count = 0
        self._parsed: dict[tuple[int, int], list[Record] | str] = {}

    def open(self) -> None:
        """Make the folder, with some room for saying that there is none left."""
        self.folder.mkdir(parents=True, exist_ok=True)
        reserve = self.folder / ".reserve"
        if not reserve.exists():
            # Random bytes: a file system that compresses would keep no room for others.
            reserve.write_bytes(os.urandom(_RESERVE))

    def entries(self, *, whole: bool = False) -> list[Entry]:
        """Return all lines, oldest first; a half-written last one of a killed host is none.

        What ended with records that are not there any more is lost; with *whole*, what they hold is read as well.
        """
        self._read_on()
        size = self.records.stat().st_size if self.records.exists() else 0
        noted = set()
        entries = []
        for line in reversed(self._lines):
            where = (line.step, line.begin, line.end)
            reason = ""
            if line.state == "lost":
                noted.add(where)
            elif where in noted or line.end > size:
                reason = f"its records are gone from {self.records}"
            elif whole and line.end and isinstance(problem := self._records_at(line.begin, line.end), str):
                reason = f"its records in {self.records} are damaged: {problem}"
            entries.append(replace(line, state="lost", reason=reason) if reason else line)
        return entries[::-1]

    def measured_at(self) -> float:
        """Return when something was measured here last (seconds since 1970; 0: never)."""
        times = [entry.time for entry in self.entries() if entry.end]
        try:
            return datetime.datetime.fromisoformat(max(times)).timestamp()
        except ValueError:  # nothing was, or a time is none
            return 0.0

    def _read_on(self) -> None:
        """Read the lines that were appended since the last time."""
        try:
            with self.file.open("rb") as file:
                if file.seek(0, os.SEEK_END) < self._offset:
                    self._lines, self.damage, self._offset, self._count = [], [], 0, 0
                file.seek(self._offset)
                text = file.read()
        except FileNotFoundError:
            return
        text = text[: text.rfind(b"\n") + 1]
        self._offset += len(text)
        for line in text.split(b"\n")[:-1]:
            self._count += 1
            try:
                self._lines.append(_entry(json.loads(line)))
            except (ValueError, TypeError, RecursionError) as error:
                reason = f"not a line of a campaign ({error}): what it says counts as not done"
                self.damage.append(f"{self.file}:{self._count}: {reason}")

    def note_lost(self) -> None:
        """Write down what is lost, so that other records that get the same place are not taken for it."""
        entries = self.entries(whole=True)
        for before, entry in zip(list(self._lines), entries, strict=True):
            if entry.state == "lost" != before.state and not self._is_noted(before):
                self.write(replace(entry, time=now()))

    def _is_noted(self, line: Entry) -> bool:
        where = (line.step, line.begin, line.end)
        return any(e.state == "lost" and (e.step, e.begin, e.end) == where for e in self._lines)

    def write(self, entry: Entry) -> None:
        """Append a line and force it to the disk, into the room that was kept for it where there is no other."""
        try:
            self._append(self.file, json.dumps(asdict(entry)) + "\n")
        except OSError as error:
            if not is_full(error):
                raise
            (self.folder / ".reserve").unlink(missing_ok=True)
            self._append(self.file, json.dumps(asdict(entry)) + "\n")

    def add(self, found: Sequence[Record]) -> tuple[int, int]:
        """Append records, all or none; return where they are."""
        text = "".join(json.dumps(r.to_dict(), sort_keys=True) + "\n" for r in found)
        return self._append(self.records, text)

    @staticmethod
    def _append(file: Path, text: str) -> tuple[int, int]:
        data = text.encode()
        with file.open("ab"):  # makes it
            pass
        with file.open("r+b") as out:
            begin = out.seek(0, os.SEEK_END)
            if begin and out.seek(begin - 1) is not None and out.read(1) != b"\n":
                # Behind the last whole line: a killed writer left part of one.
                out.seek(0)
                begin = out.read().rfind(b"\n") + 1
            try:
                out.truncate(begin)
                out.seek(begin)
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            except OSError:
                os.truncate(file, begin)
                raise
        return begin, begin + len(data)

    def measured(self) -> Iterator[tuple[Entry, list[Record]]]:
        """Yield what ended with records, and these; records of what did not end or is lost are not among them."""
        for entry in self.entries(whole=True):
            if entry.end > entry.begin and entry.state != "lost":
                measured = self._records_at(entry.begin, entry.end)
                if not isinstance(measured, str):
                    yield entry, measured

    def _records_at(self, begin: int, end: int) -> list[Record] | str:
        """Return the records in these bytes of records.jsonl, or what is wrong with them."""
        if (begin, end) not in self._parsed:
            with self.records.open("rb") as file:
                file.seek(begin)
                text = file.read(end - begin)
            try:
                if not text.endswith(b"\n"):
                    raise ValueError("a line has no end")
                parsed = [self._own(schema.from_dict(json.loads(line))) for line in text.split(b"\n")[:-1]]
            except (ValueError, RecursionError, BadInput) as error:
                return str(error)
            self._parsed[begin, end] = parsed
        return self._parsed[begin, end]

    def _own(self, record: Record) -> Record:
        """Return *record* under this host's name."""
        return record if record.host == self.host else replace(record, host=name_among(record.host, {self.host}))


_TYPES = {"seconds": (int, float), "begin": (int,), "end": (int,)}
_JOB = re.compile(r"\d*")


def _entry(data: Any) -> Entry:
    """Return the line that *data* is; raises ValueError or TypeError for anything else."""
    entry = Entry(**data)
    for key, value in asdict(entry).items():
        if isinstance(value, bool) or not isinstance(value, _TYPES.get(key, (str,))):
            raise TypeError(f"{key} is {value!r}")
    if entry.state not in get_args(State):
        raise ValueError(f"state is {entry.state!r}")
    if not _JOB.fullmatch(entry.job) or not _JOB.fullmatch(entry.array):
        raise ValueError(f"job is {entry.job!r} of {entry.array!r}")
    if not 0 <= entry.begin <= entry.end:
        raise ValueError(f"its records are from {entry.begin} to {entry.end}")
    return entry


# ----------------------------------------------------------------------
# Which jobs were submitted for a campaign, so that hosts that never came are missed.


@dataclass(frozen=True)
class Submission:
    """A *job* (or array) that was submitted for *count* hosts; *hosts* are those that were named, if any.

    Where no job was submitted, *job* is empty and *problem* says why.
    """

    job: str
    count: int
    hosts: tuple[str, ...]
    time: str
    problem: str = ""


def note(folder: Path, job: str, count: int, hosts: Sequence[str] = ()) -> bool:
    """Write down a submission; return whether we were the first to (each element of an array tries).

    Who named the hosts and the job itself write different files: the job may begin before sbatch has returned.
    """
    name = f"{job}.named.json" if hosts else f"{job}.json"
    return once(folder / "submissions" / name, asdict(Submission(job, count, tuple(hosts), now())))


def note_without_job(folder: Path, hosts: Sequence[str], problem: str) -> None:
    """Write down hosts that are to be measured and have no job (yet)."""
    name = f"{secrets.token_hex(8)}.named.json"
    once(folder / "submissions" / name, asdict(Submission("", len(hosts), tuple(hosts), now(), problem)))


def note_this(folder: Path, job: slurm.Job) -> bool:
    """Write down the job that we are part of; return whether we were the first to."""
    return note(folder, job.array, max(job.elements, job.hosts))


def submissions(folder: Path, damage: list[str] | None = None) -> list[Submission]:
    """Return all submissions, oldest first; files that are none are left out and named in *damage*."""
    by_job: dict[str, Submission] = {}
    for file in sorted((folder / "submissions").glob("[!.]*.json")):
        try:
            submission = _read(file)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            if damage is not None:
                damage.append(f"{file}: not a submission ({error}): remove it")
            continue
        key = submission.job or file.name
        if submission.hosts or key not in by_job:
            by_job[key] = submission
    return sorted(by_job.values(), key=lambda s: s.time)


def _read(file: Path) -> Submission:
    data = json.loads(file.read_bytes())
    submission = Submission(**{**data, "hosts": tuple(data["hosts"])})
    texts = (submission.job, submission.time, submission.problem, *submission.hosts)
    if not all(isinstance(text, str) for text in texts) or type(submission.count) is not int:
        raise TypeError("a value is of another type")
    if not re.fullmatch(r"\d*", submission.job):
        raise ValueError(f"job is {submission.job!r}")
    return submission
