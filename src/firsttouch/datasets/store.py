# SPDX-License-Identifier: Apache-2.0
"""The store: the folder of fetched datasets, and the streams of bytes that are written to it."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

from firsttouch.datasets.manifest import DataFile
from firsttouch.errors import BadInput, Missing, RunFailed
from firsttouch.records import atomic_files, file_lock
from firsttouch.tools import lean_numpy
from firsttouch.units import format_bytes

# ----------------------------------------------------------------------
# Streams of bytes: decompressed, cut, counted and hashed

#: Called with the name of the work, the bytes done and the total bytes (None: unknown).
Progress = Callable[[str, int, int | None], None]

_CHUNK = 1 << 18


class Corrupt(Exception):
    """Unexpected bytes; the text is the reason, in one line."""


class FileFacts(NamedTuple):
    """Facts of a file that was written."""

    sha256: str
    size: int  #: bytes
    records: int  #: reads, or contigs of a reference
    read_length: int | None = None  #: bases of the first read


def unpacked(
    path: Path, what: str, progress: Progress, *, partial: bool = False, tail_ignored: bool = False
) -> Iterator[bytes]:
    """Yield the bytes of *path*, decompressed if they are gzip, with progress as *what*.

    *partial*: the file may end early. *tail_ignored*: bytes that follow the last member and are not gzip are
    dropped (razip appends its index there), which is safe only with a checksum of the decompressed data. Raises
    Corrupt, and RunFailed if the file cannot be read.
    """
    with _readable(path) as file:
        total = os.fstat(file.fileno()).st_size
        is_packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        content = gzip.GzipFile(fileobj=file) if is_packed else file
        while True:
            try:
                chunk = content.read1(_CHUNK)
            except EOFError:
                if partial:
                    return
                raise Corrupt("the gzip data end early: the file is truncated") from None
            except (gzip.BadGzipFile, zlib.error) as error:
                if tail_ignored and isinstance(error, gzip.BadGzipFile):
                    return
                raise Corrupt(f"corrupt gzip data ({error})") from None
            if not chunk:
                return
            progress(what, file.tell(), total)
            yield chunk


@contextmanager
def _readable(path: Path) -> Iterator[BufferedReader]:
    """Open a file; raises RunFailed if it cannot be read."""
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise RunFailed(f"{path}: cannot be read: {error.strerror}") from None


def digest_of(path: Path, algorithm: str) -> str:
    """Return the hex digest of a file; raises RunFailed if it cannot be read."""
    # Some archives publish MD5. It protects against accidents here, not against attackers.
    with _readable(path) as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def cut_reads(chunks: Iterable[bytes], first: int | None, truncate: int | None) -> Iterator[bytes]:
    """Yield the *first* reads of a FASTQ stream, each cut to its first *truncate* bases (None: all).

    Blank lines at the end are dropped, and every line gets its newline. Raises Corrupt if the stream ends before
    or inside a requested record.
    """
    rest = b""
    kept = 0
    for chunk in _trimmed(chunks):
        lines = (rest + chunk).split(b"\n")
        complete = (len(lines) - 1) // 4 * 4
        rest = b"\n".join(lines[complete:])
        del lines[complete if first is None else min(complete, 4 * (first - kept)) :]
        if truncate:
            bases, qualities = ([line.rstrip(b"\r") for line in lines[part::4]] for part in (1, 3))
            if list(map(len, bases)) != list(map(len, qualities)):
                raise Corrupt("a read has different numbers of bases and qualities")
            lines[1::4], lines[3::4] = ([line[:truncate] for line in part] for part in (bases, qualities))
        if lines:
            kept += len(lines) // 4
            yield b"\n".join(lines) + b"\n"
        if kept == first:
            return
    if first is not None:
        raise Corrupt(f"holds {kept} whole reads, not the first {first}")
    if rest:
        raise Corrupt("the last read is incomplete")


def _trimmed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a FASTQ stream without blank lines at its end, and with a newline after its last line."""
    held, lines = b"", 0
    for chunk in chunks:
        text = held + chunk
        kept = text.rstrip()
        held = text[len(kept) :]
        lines += kept.count(b"\n")
        yield kept
    if lines:
        # A read without bases ends with an empty line.
        yield b"\n" * max(1, min(held.count(b"\n"), 4 - lines % 4))


def write(chunks: Iterable[bytes], target: Path, role: str) -> FileFacts:
    """Write *chunks*, a FASTA (role "reference") or FASTQ ("reads") text, to *target*; return its facts.

    Raises Corrupt if the text is not complete.
    """
    digest = hashlib.sha256()
    size = contigs = 0
    head = last = b""
    with target.open("wb") as file:
        for chunk in chunks:
            digest.update(chunk)
            if role == "reference":
                contigs += chunk.count(b"\n>") + ((last or b"\n") == b"\n" and chunk[:1] == b">")
            size += len(chunk)
            head, last = head or chunk[:1], chunk[-1:] or last
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    if role == "reads":
        return FileFacts(digest.hexdigest(), size, *_check_fastq(target))
    if head != b">":
        raise Corrupt("not a FASTA file: it does not begin with '>'")
    return FileFacts(digest.hexdigest(), size, contigs)


def _check_fastq(file: Path) -> tuple[int, int]:
    """Return the number of reads in *file* and the length of the first; raises Corrupt if it is not FASTQ."""
    with lean_numpy():
        from firsttouch.genomics.fastq import inspect  # noqa: PLC0415 (slow to import, as it needs NumPy)

    try:
        reads = inspect([file])
    except BadInput as error:
        where = "" if error.line is None else f"line {error.line}: "
        raise Corrupt(f"unusable FASTQ: {where}{error.reason}") from None
    if reads.layouts[0].file.gzipped:
        raise Corrupt("unusable FASTQ: it is gzip within gzip")
    with file.open("rb") as stream:
        return reads.records, len([stream.readline(), stream.readline()][1].rstrip(b"\r\n"))


# ----------------------------------------------------------------------
# The store is the folder paths.data(). It has a folder for each dataset (and each set of options of a generated
# one), with the files, a lock, and state.json: the files' digests and origins. Files appear in it by renaming
# only.


class NoRoom(Missing):
    """The store's disk is full (exit 3)."""


class Place(NamedTuple):
    """The folder of one dataset in the store."""

    folder: Path

    def path(self, name: str) -> Path:
        """Return the path of the file *name*, which may not exist yet."""
        return self.folder / name

    @property
    def state_path(self) -> Path:
        """The file with this folder's records."""
        return self.folder / "state.json"

    def record(self, name: str) -> dict[str, Any]:
        """Return the record of the file *name*, or {}; raises BadInput for a damaged record."""
        try:
            entry = json.loads(self.state_path.read_text(encoding="utf-8")).get(name, {})
            return {key: entry[key] for key in ("recipe", "sha256", "from", "stamp")} if entry else {}
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            raise Missing(
                f"cannot read the store: {self.state_path}: {error.strerror}; set FIRSTTOUCH_DATA to another"
            ) from None
        except (ValueError, LookupError, AttributeError, TypeError):
            raise BadInput("not the state of a dataset: remove it to start over", file=self.state_path) from None

    def keep(self, temporary: Path, file: DataFile, sha256: str, origin: str) -> None:
        """Rename *temporary* to the name of *file* and record its digest and origin."""
        temporary.replace(self.path(file.name))
        self._write(file.name, {"recipe": file.recipe, "sha256": sha256, "from": origin})

    def is_untouched(self, file: DataFile) -> bool:
        """Return whether *file* exists and was not written to since it was hashed.

        The kernel sets the change time at every write, and no program can set it back.
        """
        entry, path = self.record(file.name), self.path(file.name)
        return entry.get("recipe") == file.recipe and path.is_file() and entry["stamp"] == _stamp(path)

    def intact(self, file: DataFile, progress: Progress) -> bool:
        """Return whether *file* exists with the recorded content; the caller holds the lock."""
        if self.is_untouched(file):
            return True
        entry, path = self.record(file.name), self.path(file.name)
        if entry.get("recipe") != file.recipe or not path.is_file():
            return False
        progress(f"checking {file.name}", 0, None)
        if digest_of(path, "sha256") != entry["sha256"]:
            return False
        with suppress(OSError):  # a shared store may be read-only
            self._write(file.name, entry)
        return True

    def _write(self, name: str, entry: dict[str, Any]) -> None:
        records = {}
        with suppress(FileNotFoundError):
            records = json.loads(self.state_path.read_text(encoding="utf-8"))
        records[name] = {**entry, "stamp": _stamp(self.path(name))}
        atomic_files.write(self.state_path, json.dumps(records, indent=1) + "\n")

    @contextmanager
    def temporary(self) -> Iterator[Path]:
        """Yield a new folder inside this one, which is removed at the end."""
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=".tmp-") as name:
            yield Path(name)

    @contextmanager
    def lock(self, progress: Progress) -> Iterator[None]:
        """Create this folder, lock it against other processes, and remove what killed ones left behind."""
        with name_disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            message = f"waiting for another process that writes {self.folder}"
            # Even in a read-only store, a complete dataset can be checked.
            with file_lock.lock_file(self.folder / ".lock", on_wait=lambda: progress(message, 0, None)):
                for left in self.folder.glob(".tmp-*"):
                    shutil.rmtree(left, ignore_errors=True)
                atomic_files.clear(self.folder, all_hosts=True)
                yield


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_ino, status.st_ctime_ns]


def need_space(folder: Path, need: int, what: str) -> None:
    """Raise NoRoom if the disk of *folder* has less than *need* bytes left for *what*."""
    free = shutil.disk_usage(folder).free
    if free < need:
        raise NoRoom(
            f"disk full at {folder}: {what} needs {need} bytes ({format_bytes(need)}), "
            f"{free} ({format_bytes(free)}) are free; free some space or set FIRSTTOUCH_DATA to another disk"
        )


@contextmanager
def name_disk_errors(folder: Path, need: int | None = None) -> Iterator[None]:
    """Turn an OSError of writing into *folder* into NoRoom or Missing; *need*: total bytes, if known."""
    try:
        yield
    except OSError as error:
        advice = "set FIRSTTOUCH_DATA to a folder that you may write, on a disk with room"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            needs = f" ({need} bytes are needed)" if need else ""
            raise NoRoom(f"disk full at {folder}{needs}: free some space or {advice}") from None
        raise Missing(f"cannot write the store {folder}: {error.strerror or error}; {advice}") from None
