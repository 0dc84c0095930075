# SPDX-License-Identifier: Apache-2.0
"""The files of a campaign: the journal of each host (steps and records) and the submitted jobs."""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, convert
from msgspec.structs import asdict, replace

from firsttouch.errors import BadInput, Missing
from firsttouch.records import append_log, atomic_files, schema, step_outcome
from firsttouch.records.append_log import AppendLog
from firsttouch.records.schema import Record

# ----------------------------------------------------------------------
# Files on a shared file system


def create_exclusive(file: Path, content: Mapping[str, Any]) -> bool:
    """Write JSON to *file* atomically if it does not exist; return whether this process created it.

    Exactly one of several hosts succeeds, because link(2) is atomic on NFS, too. Raises Missing if the file system
    is full.
    """
    with full_disk_as_missing(file.parent), contextlib.ExitStack() as stack:
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = stack.enter_context(atomic_files.scratch(file))
        with partial.open("w", encoding="utf-8") as out:
            json.dump(content, out, indent=1)
            out.flush()
            os.fsync(out.fileno())
        with contextlib.suppress(FileExistsError):
            file.hardlink_to(partial)
            return True
    return False


def is_full(error: BaseException) -> bool:
    """Return whether *error* is a full file system or an exhausted quota."""
    return isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}


@contextlib.contextmanager
def full_disk_as_missing(folder: Path) -> Iterator[None]:
    """Raise Missing, which names *folder*, if its file system is full."""
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        raise Missing(f"{folder}: its file system is full; finished results are kept") from error


# ----------------------------------------------------------------------
# The journal of a host

#: The outcome of a step, and parameters that its command does not state.
State = Literal["began", step_outcome.Word, "stopped", "lost"]
#: States of steps that are not run again.
FINISHED = frozenset({"measured", "found", "skipped"})

#: The number of a job, or an empty string.
_Job = Annotated[str, Meta(pattern=r"\A[0-9]*\Z")]
_Offset = Annotated[int, Meta(ge=0)]


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """A line of steps.jsonl: a *step* reached *state* at *time* in a *job* of an *array* (the submitted job).

    *begin* and *end* are the byte offsets of its records in records.jsonl. "lost" means that these records have
    disappeared, and the step is treated as not run.
    """

    step: str
    state: State
    time: str
    host: str
    job: _Job = ""
    array: _Job = ""
    reason: str = ""
    seconds: float = 0.0
    begin: _Offset = 0
    end: _Offset = 0

    def __post_init__(self) -> None:
        if self.end < self.begin:
            raise ValueError(f"its records are from {self.begin} to {self.end}")

    @property
    def place(self) -> tuple[str, int, int]:
        """Step and offsets, which identify one measurement."""
        return self.step, self.begin, self.end


#: Step, job and reason of a line.
Mark = tuple[str, str, str]


def now(timespec: str = "milliseconds") -> str:
    """Return the current time in the format of journals and records."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec=timespec)


class Journal:
    """The folder of one host in a campaign, which has its name; only that host writes to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = folder.name
        self.file = folder / "steps.jsonl"
        self.records = folder / "records.jsonl"
        self._log = AppendLog(
            self.file,
            partial(convert, type=Entry),
            lambda error: f"not a line of a campaign ({error}): its step is treated as not run",
        )
        self._parsed: dict[tuple[int, int], list[Record] | str] = {}

    def open(self) -> None:
        """Create the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)

    def entries(self, *, whole: bool = False) -> list[Entry]:
        """Return all lines, oldest first, without those that cannot be read.

        A step whose records have disappeared is "lost". *whole* also checks the records themselves.
        """
        size = self.records.stat().st_size if self.records.exists() else 0
        noted = set()
        entries = []
        for line in reversed(self._read()):
            reason = ""
            if line.state == "lost":
                noted.add(line.place)
            elif line.place in noted or line.end > size:
                reason = f"its records are gone from {self.records}"
            elif whole and line.end and isinstance(problem := self._records_at(line.begin, line.end), str):
                reason = f"its records in {self.records} are damaged: {problem}"
            entries.append(replace(line, state="lost", reason=reason) if reason else line)
        return entries[::-1]

    def measured_at(self) -> float:
        """Return the time of the newest records (seconds since 1970; 0 without any)."""
        times = [entry.time for entry in self.entries() if entry.end]
        try:
            return datetime.datetime.fromisoformat(max(times)).timestamp()
        except ValueError:  # no records, or a malformed time
            return 0.0

    @property
    def damage(self) -> list[str]:
        """The lines of steps.jsonl that cannot be read, with their file and number."""
        return [str(line) for line in self._log.lines() if isinstance(line, BadInput)]

    def _read(self) -> list[Entry]:
        return [line for line in self._log.lines() if not isinstance(line, BadInput)]

    def note_lost(self) -> None:
        """Append a line for each lost step, because new records may be written to its old offsets."""
        lines, entries = self._read(), self.entries(whole=True)
        noted = {line.place for line in lines if line.state == "lost"}
        for before, entry in zip(lines, entries, strict=True):
            if entry.state == "lost" != before.state and before.place not in noted:
                self.write(replace(entry, time=now()))

    def write(self, entry: Entry) -> None:
        """Append a line and sync it to disk."""
        self._log.append(asdict(entry))

    def add(self, records: Sequence[Record]) -> tuple[int, int]:
        """Append records, all or none; return their byte offsets."""
        text = "".join(json.dumps(r.to_dict(), sort_keys=True) + "\n" for r in records)
        return append_log.append(self.records, text)

    def finished_steps(self, until: Mark | None = None) -> Iterator[tuple[Entry, list[Record]]]:
        """Yield each step that ended with records, and its records; not unfinished and lost steps.

        Lines after the line with the mark *until*, if it exists, are ignored.
        """
        for entry in self.entries(whole=True):
            if (entry.step, entry.job, entry.reason) == until:
                return
            if entry.end > entry.begin and entry.state != "lost":
                measured = self._records_at(entry.begin, entry.end)
                if not isinstance(measured, str):
                    yield entry, measured

    def all_records(self, until: Mark | None = None) -> list[Record]:
        """Return all records of :meth:`measured`."""
        return [record for _, records in self.finished_steps(until) for record in records]

    def _records_at(self, begin: int, end: int) -> list[Record] | str:
        """Return the records between two offsets of records.jsonl, or a description of their defect."""
        if (begin, end) not in self._parsed:
            with self.records.open("rb") as file:
                file.seek(begin)
                text = file.read(end - begin)
            try:
                if not text.endswith(b"\n"):
                    raise ValueError("the last line is incomplete")
                parsed = [schema.from_dict(json.loads(line)) for line in text.split(b"\n")[:-1]]
            except (ValueError, RecursionError, BadInput) as error:
                return str(error)
            self._parsed[begin, end] = parsed
        return self._parsed[begin, end]


# ----------------------------------------------------------------------
# Submitted jobs, by which hosts that never ran are listed as missing


class Submission(Struct, frozen=True, forbid_unknown_fields=True):
    """A *job* (or array) that was submitted for *count* hosts; *hosts* are their names, if stated.

    If no job was submitted, *job* is empty and *problem* has the reason.
    """

    job: _Job
    count: int
    hosts: tuple[str, ...]
    time: str
    problem: str = ""


def note(folder: Path, job: str, count: int, hosts: Sequence[str] = ()) -> bool:
    """Store a submission; return whether this process was the first (each element of an array tries to).

    The submitter, who names the hosts, and the job write different files, because the job may begin before sbatch
    returns.
    """
    name = f"{job}.named.json" if hosts else f"{job}.json"
    return create_exclusive(folder / "submissions" / name, asdict(Submission(job, count, tuple(hosts), now())))


def note_without_job(folder: Path, hosts: Sequence[str], problem: str) -> None:
    """Store hosts without a job, and why."""
    name = f"{secrets.token_hex(8)}.named.json"
    create_exclusive(
        # Refusals may follow each other within a millisecond, and the last one is used.
        folder / "submissions" / name,
        asdict(Submission("", len(hosts), tuple(hosts), now("microseconds"), problem)),
    )


def submissions(folder: Path, damage: list[str] | None = None) -> list[Submission]:
    """Return all submissions, oldest first; malformed files are left out and appended to *damage*."""
    by_job: dict[str, Submission] = {}
    for file in sorted((folder / "submissions").glob("[!.]*.json")):
        try:
            submission = msgspec.json.decode(file.read_bytes(), type=Submission)
        except (ValueError, RecursionError) as error:
            if damage is not None:
                damage.append(f"{file}: not a submission ({error}): remove it")
            continue
        key = submission.job or file.name
        if submission.hosts or key not in by_job:
            by_job[key] = submission
    return sorted(by_job.values(), key=lambda s: s.time)


def jobs(folder: Path) -> set[str]:
    """Return the numbers of the jobs that were submitted to measure."""
    return {submission.job for submission in submissions(folder) if submission.job}
