# SPDX-License-Identifier: Apache-2.0
"""The store: the folder where datasets land, what is known of each file in it, and who may write.

It is FIRSTTOUCH_DATA, or store/ in the manifest's folder. Every dataset has a folder of its own (a generated
one a folder for each set of options), with the files, a lock and state.json, which records of every file
its digest and where it is from. Files appear in it by renaming only.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firsttouch import beside
from firsttouch.datasets import manifest
from firsttouch.datasets.manifest import DataFile
from firsttouch.datasets.stream import Progress, digests_of
from firsttouch.errors import BadInput, Missing
from firsttouch.units import format_bytes


class NoRoom(Missing):
    """The store's disk is full (exit 3)."""


def root() -> Path:
    """Return the store's folder (which may not exist yet)."""
    named = os.environ.get("FIRSTTOUCH_DATA")
    return Path(named).absolute() if named else manifest.folder() / "store"


@dataclass(frozen=True)
class Place:
    """The folder of one dataset in the store."""

    folder: Path

    def path(self, name: str) -> Path:
        """Return where the file *name* is or will be."""
        return self.folder / name

    @property
    def state_path(self) -> Path:
        """Where the records of this place are."""
        return self.folder / "state.json"

    def record(self, name: str) -> dict[str, Any]:
        """Return what is recorded of the file *name* ({}: nothing); raises BadInput on a damaged record."""
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
            raise BadInput("not a record of datasets: remove it to start over", file=self.state_path) from None

    def keep(self, temporary: Path, file: DataFile, sha256: str, origin: str) -> None:
        """Rename *temporary* to the name of *file* and record its digest and origin."""
        temporary.replace(self.path(file.name))
        self._write(file.name, {"recipe": file.recipe, "sha256": sha256, "from": origin})

    def untouched(self, file: DataFile) -> bool:
        """Say whether *file* lies here and nothing wrote to it since it was hashed last.

        The kernel sets the change time at every write, and no program can set it back.
        """
        entry, path = self.record(file.name), self.path(file.name)
        return entry.get("recipe") == file.recipe and path.is_file() and entry["stamp"] == _stamp(path)

    def intact(self, file: DataFile, progress: Progress) -> bool:
        """Say whether *file* lies here with the content that was recorded; call it with the place locked."""
        if self.untouched(file):
            return True
        entry, path = self.record(file.name), self.path(file.name)
        if entry.get("recipe") != file.recipe or not path.is_file():
            return False
        if digests_of(path, ["sha256"], f"checking {file.name}", progress)["sha256"] != entry["sha256"]:
            return False
        with suppress(OSError):  # a shared store may be read-only
            self._write(file.name, entry)
        return True

    def _write(self, name: str, entry: dict[str, Any]) -> None:
        records = {}
        with suppress(FileNotFoundError):
            records = json.loads(self.state_path.read_text(encoding="utf-8"))
        records[name] = {**entry, "stamp": _stamp(self.path(name))}
        write_json(self.state_path, records)

    @contextmanager
    def temporary(self) -> Iterator[Path]:
        """Give a new empty folder inside this one, removed at the end."""
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=".tmp-") as name:
            yield Path(name)

    @contextmanager
    def locked(self, progress: Progress) -> Iterator[None]:
        """Make this place, wait until no other process writes here, and clear what a killed one left."""
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / ".lock"
            mode = "a" if os.access(self.folder, os.W_OK) or not path.exists() else "r"
            with path.open(mode) as lock:  # in a read-only store a complete dataset can still be checked
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    progress(f"waiting for another process that writes {self.folder}", 0, None)
                    fcntl.flock(lock, fcntl.LOCK_EX)
                for left in self.folder.glob(".tmp-*"):
                    shutil.rmtree(left, ignore_errors=True)
                beside.clear(self.folder, all_hosts=True)
                yield


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_ino, status.st_ctime_ns]


def write_json(path: Path, value: object) -> None:
    """Write *value* to *path* so that a reader sees the old content or the new, never a part."""
    beside.write(path, json.dumps(value, indent=1) + "\n")


def version_path(part: Path) -> Path:
    """Return the file that says of what the download *part* is the beginning."""
    return part.with_name(part.name + ".json")


def discard(part: Path) -> None:
    """Remove the download *part* and what is known of it."""
    part.unlink(missing_ok=True)
    version_path(part).unlink(missing_ok=True)


def need_space(folder: Path, need: int, what: str) -> None:
    """Raise NoRoom where *folder*'s disk has not *need* bytes left for *what*."""
    free = shutil.disk_usage(folder).free
    if free < need:
        raise NoRoom(
            f"disk full at {folder}: {what} needs {need} bytes ({format_bytes(need)}), "
            f"{free} ({format_bytes(free)}) are free; free some or set FIRSTTOUCH_DATA to another disk"
        )


@contextmanager
def writing(folder: Path, need: int | None = None) -> Iterator[None]:
    """Turn what the system says of writing into *folder* into one line; *need*: bytes in all, if known."""
    try:
        yield
    except OSError as error:
        advice = "set FIRSTTOUCH_DATA to a folder that you may write, on a disk with room"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            needs = f" ({need} bytes are needed)" if need else ""
            raise NoRoom(f"disk full at {folder}{needs}: free some or {advice}") from None
        raise Missing(f"cannot write the store {folder}: {error.strerror or error}; {advice}") from None
