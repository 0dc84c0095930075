# SPDX-License-Identifier: Apache-2.0
"""Finished stretches of alignments, kept beside an output until it is complete: a killed run can be resumed.

The hidden folder ``.NAME.firsttouch`` holds a SAM file without header for each stretch, the header, and a journal
(JSON lines): first what the run depends on, then each finished stretch with its size, its SHA-256 and whether its
placement held. When the last stretch is finished, an empty file says so. Only its owner may use the folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from firsttouch.errors import BadInput, CannotHere
from firsttouch.genomics import sam
from firsttouch.genomics.pipe_writer import StopRequest
from firsttouch.genomics.sam import ByteRange
from firsttouch.records import append_log, atomic_files
from firsttouch.records.file_lock import lock_folder

#: The names of finished stretches.
_NAME = re.compile(r"\d{6,}\.sam")
_JOURNAL, _HEADER, _COMPLETE = "journal.jsonl", "header.sam", "complete"
#: What a journal says of a placement that its run did not record.
_UNRECORDED = "the run that made it did not record it"


class Stretch(Struct, frozen=True):
    """A finished stretch of the output: its file, size, checksum, and the records (pairs) and bases in it.

    *misplaced* is why the placement of its instances did not hold or is unknown, *unverified* why it is unknown,
    and *time* (UTC) when that was observed.
    """

    file: str
    size: int
    sha256: str
    records: int
    bases: int
    misplaced: str = _UNRECORDED
    unverified: str = _UNRECORDED
    time: str = ""

    @classmethod
    def parse(cls, line: bytes) -> Stretch:
        """Return the stretch of a line of the journal; raises ValueError."""
        fields = json.loads(line)
        kinds = {name: type(value) for name, value in fields.items()} if isinstance(fields, dict) else {}
        expected = {"file": str, "size": int, "sha256": str, "records": int, "bases": int}
        texts = dict.fromkeys(("misplaced", "unverified", "time"), str)
        if kinds not in (expected, expected | texts) or not _NAME.fullmatch(fields["file"]):
            raise ValueError(repr(line))
        return cls(**fields)


def folder_of(output: Path) -> Path:
    """Return the folder that keeps the finished stretches of *output*."""
    place = Path(os.path.realpath(output))
    return place.with_name(f".{place.name}.firsttouch")


def refuse_finished(output: Path) -> None:
    """Raise BadInput if an earlier run, which was stopped, left finished stretches of *output*."""
    folder = folder_of(output)
    try:
        finished = sum(_NAME.fullmatch(file.name) is not None for file in folder.iterdir())
    except OSError:  # there is no such folder, or it is another user's
        return
    if finished:
        parts = f"{finished} finished part{'s' * (finished > 1)}"
        raise BadInput(
            f"{parts} of {output} from a run that was stopped: use them with --resume and that run's command, "
            f"or {_remedy(folder)}",
            file=folder,
        )


def _remedy(folder: Path) -> str:
    return f"begin anew by rm -r {shlex.quote(str(folder))}"


def discard(output: Path) -> None:
    """Remove the stretches of an earlier run, unless a run that lives writes them."""
    folder = folder_of(output)
    if (handle := lock_folder(folder)) is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def scenario_of(output: Path) -> str:
    """Return the name of the scenario of an earlier run that was not completed, or an empty string."""
    journal = folder_of(output) / _JOURNAL
    try:
        if not journal.is_file():
            return ""
        with journal.open(encoding="utf-8") as lines:
            return str(json.loads(lines.readline())["scenario"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


class Checkpoints:
    """The stretches of one output; a target of :mod:`firsttouch.genomics.stream`.

    A stretch ends with the first part at which it has *least* bases. *records* and *bases* are those of all
    finished stretches: the input from there on is still to be aligned. *placement* returns the last two texts of a
    :class:`Stretch` for the instances that run.

    Raises BadInput if finished parts are there that are another user's, or of a run that differs in *identity*.
    """

    #: The parts are copied.
    keeps_files = False

    def __init__(self, output: Path, identity: dict[str, Any], least: int, say: Callable[[str], None]) -> None:
        self._folder, self._least = folder_of(output), least
        self._identity: dict[str, Any] = json.loads(json.dumps(identity))
        self._handle = self._lock(output)
        self._current: int | None = None
        self._part_records = self._part_bases = 0
        self.placement: Callable[[], tuple[str, str]] = lambda: (_UNRECORDED, _UNRECORDED)
        self.stretches: list[Stretch] = []
        #: Whether the stretches are the whole output.
        self.complete = False
        try:
            self._recall(say)
        except BaseException:
            os.close(self._handle)
            raise

    @property
    def records(self) -> int:
        """Records (pairs) in the finished stretches."""
        return sum(stretch.records for stretch in self.stretches)

    @property
    def bases(self) -> int:
        """Bases in the finished stretches."""
        return sum(stretch.bases for stretch in self.stretches)

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *_: object) -> None:
        if self._current is not None:
            os.close(self._current)
        os.close(self._handle)

    def _lock(self, output: Path) -> int:
        folder = self._folder
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        if not stat.S_ISDIR(folder.lstat().st_mode):
            raise BadInput(
                f"not a folder, but --resume keeps finished parts there: {_remedy(self._folder)}", file=folder
            )
        self._check_owner([folder])
        handle = lock_folder(folder)
        if handle is None:
            raise CannotHere(
                f"{output}: another run writes this output, or its file system has no locks: wait for it, "
                "or leave --resume out"
            )
        try:
            self._check_owner(folder.iterdir())
            folder.chmod(0o700)
        except BaseException:
            os.close(handle)
            raise
        return handle

    def _check_owner(self, paths: Iterable[Path]) -> None:
        """Raise BadInput for one of *paths* that does not belong to who owns new files here."""
        with atomic_files.scratch(self._folder.with_name("owner")) as file:
            file.touch()
            user = file.stat().st_uid
        for path in paths:
            if (owner := path.lstat().st_uid) != user:
                why = f"it belongs to another user ({owner}), who may have changed finished parts"
                raise BadInput(f"{why}: {_remedy(self._folder)}", file=path)

    def _recall(self, say: Callable[[str], None]) -> None:
        """Take over the finished stretches of an earlier run; leftovers of an unfinished one are removed."""
        journal = self._folder / _JOURNAL
        if journal.is_file() and (recorded := self._recorded(journal)):
            self.stretches = list(self._sound(recorded))
            self.complete = len(self.stretches) == len(recorded) and (self._folder / _COMPLETE).is_file()
            if damaged := len(recorded) - len(self.stretches):
                say(f"the last {damaged} of {len(recorded)} finished parts are damaged, and are aligned again")
        kept = {stretch.file for stretch in self.stretches}
        kept |= ({_HEADER} if self.stretches else set()) | ({_COMPLETE} if self.complete else set())
        for file in self._folder.iterdir():
            if file.name not in kept:
                file.unlink()
        text = "".join(json.dumps(line) + "\n" for line in [self._identity, *map(asdict, self.stretches)])
        atomic_files.write(journal, text)
        if self.stretches:
            say(f"resuming: {self.records:,} records are aligned, in {len(self.stretches)} finished parts")

    def _recorded(self, journal: Path) -> list[Stretch]:
        """Return the stretches in *journal*; raises BadInput if they are of another run, or a line is damaged."""
        identity: Any = None
        stretches = []
        for number, line in enumerate(append_log.whole_lines(journal.read_bytes()), 1):
            try:
                if number == 1:
                    identity = dict(json.loads(line))
                else:
                    stretches.append(Stretch.parse(line))
            except (ValueError, TypeError) as error:
                message = f"this line of the journal of finished parts is damaged: {_remedy(self._folder)}"
                raise BadInput(message, file=journal, line=number) from error
        if stretches and (changed := [key for key in self._identity if identity.get(key) != self._identity[key]]):
            raise BadInput(
                f"--resume: the {len(stretches)} finished parts are of a run that differs in "
                f"{', '.join(_difference(key, identity.get(key), self._identity[key]) for key in changed)}: "
                f"repeat that run's command to use them, or {_remedy(self._folder)}",
                file=self._folder,
            )
        return stretches

    def _sound(self, stretches: Iterable[Stretch]) -> Iterator[Stretch]:
        """Yield the stretches up to the first one whose file is missing or damaged."""
        if not (self._folder / _HEADER).is_file():
            return
        for stretch in stretches:
            file = self._folder / stretch.file
            if not file.is_file() or file.stat().st_size != stretch.size:
                return
            if atomic_files.digest(file) != stretch.sha256:
                return
            yield stretch

    # As a target

    def begin(self, header: bytes) -> None:
        """Keep the header; raises BadInput if it is not that of the earlier stretches."""
        file = self._folder / _HEADER
        if self.stretches and file.read_bytes() != header:
            raise BadInput(
                "the aligner's header differs from that of the finished parts: was the index changed? "
                f"If so, {_remedy(self._folder)}",
                file=self._folder,
            )
        with atomic_files.replacing(file, force=True) as partial:
            partial.write_bytes(header)

    def send(self, part: ByteRange, stop: StopRequest) -> None:  # noqa: ARG002 - a file takes all at once
        """Append the alignments of a part to the stretch."""
        if self._current is None:
            self._current = os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            sam.concatenate([part], self._current)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._partial)) from error

    def end_part(self, records: int, bases: int) -> None:
        """End the stretch if it is large enough."""
        self._part_records += records
        self._part_bases += bases
        if self._part_bases >= self._least:
            self.end_stretch()

    def end_stretch(self) -> None:
        """Make the alignments since the last stretch a finished one."""
        if self._current is None:
            return
        with atomic_files.naming(self._partial):
            os.fsync(self._current)
        os.close(self._current)
        self._current = None
        name = f"{len(self.stretches):06}.sam"
        file = self._folder / name
        self._partial.rename(file)
        size, digest = file.stat().st_size, atomic_files.digest(file)
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        stretch = Stretch(name, size, digest, self._part_records, self._part_bases, *self.placement(), now)
        append_log.append(self._folder / _JOURNAL, json.dumps(asdict(stretch)) + "\n")
        self.stretches.append(stretch)
        self._part_records = self._part_bases = 0

    def end(self) -> None:
        """End the last stretch, and keep that the output is complete."""
        self.end_stretch()
        with atomic_files.replacing(self._folder / _COMPLETE, force=True) as partial:
            partial.touch()
        self.complete = True

    @property
    def _partial(self) -> Path:
        return self._folder / "unfinished.sam"

    # The complete output

    @property
    def header(self) -> bytes:
        """The header of all stretches."""
        return (self._folder / _HEADER).read_bytes()

    def ranges(self) -> list[ByteRange]:
        """Return the alignments of all stretches, in input order."""
        return [ByteRange(self._folder / stretch.file, 0, stretch.size) for stretch in self.stretches]

    def remove(self) -> None:
        """Remove the stretches, after the output is complete."""
        with contextlib.suppress(OSError):
            shutil.rmtree(self._folder)


def _difference(key: str, before: Any, now: Any) -> str:
    """Return the name of what differs between two runs, with both values if they are short."""
    return f"{key} ({before}, now {now})" if isinstance(now, str | int) else key
