# SPDX-License-Identifier: Apache-2.0
"""What a host did: its folder in a campaign, which that host alone writes, and a line for all that it began."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from firsttouch import records
from firsttouch.campaign.files import is_full
from firsttouch.errors import BadInput
from firsttouch.machine import name_among
from firsttouch.records import Record

State = Literal["began", "done", "invalid", "skipped", "failed", "stopped"]
#: States after which a step is not run again.
FINISHED = frozenset({"done", "skipped"})
#: Kept free for saying that the disk is full.
_RESERVE = 8192


@dataclass(frozen=True)
class Entry:
    """A line of steps.jsonl: a *step* came to *state* in a *job* (*array*: the one that was submitted).

    *begin* and *end* are where its records are in records.jsonl (bytes).
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
    """The folder of one *host* in a campaign, which is called like it or, in older campaigns, with its domain."""

    def __init__(self, folder: Path, host: str = "") -> None:
        self.folder = folder
        self.host = host or folder.name
        self.file = folder / "steps.jsonl"
        self.records = folder / "records.jsonl"

    def open(self) -> None:
        """Make the folder, with some room for saying that there is none left."""
        self.folder.mkdir(parents=True, exist_ok=True)
        reserve = self.folder / ".reserve"
        if not reserve.exists():
            reserve.write_bytes(b"\0" * _RESERVE)

    def entries(self) -> list[Entry]:
        """Return all lines, oldest first; a half-written last one of a killed host is none."""
        try:
            text = self.file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        found = []
        for number, line in enumerate(text.split("\n")[:-1], start=1):
            try:
                found.append(Entry(**json.loads(line)))
            except (ValueError, TypeError) as error:
                raise BadInput(f"not a line of a campaign: {error}", file=self.file, line=number) from error
        return found

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
        """Yield what ended with records, and these; records of what did not end are not among them."""
        try:
            content = self.records.read_bytes()
        except FileNotFoundError:
            return
        for entry in self.entries():
            if entry.end > entry.begin:
                lines = content[entry.begin : entry.end].decode("utf-8").splitlines()
                yield entry, [self._own(_record(self.records, line)) for line in lines]

    def _own(self, record: Record) -> Record:
        """Return *record* under this host's name."""
        return record if record.host == self.host else replace(record, host=name_among(record.host, {self.host}))


def _record(file: Path, line: str) -> Record:
    try:
        data: Any = json.loads(line)
    except ValueError as error:
        raise BadInput(f"not JSON: {error}", file=file) from error
    return records.from_dict(data, file=file)
