# SPDX-License-Identifier: Apache-2.0
"""Staged files: copies in memory that stay for later commands of this user, until they are dropped.

A kept RAM store describes itself: the record of its files lies in the store, and its holder is found in /proc.
There is no state on any disk, so nothing is listed or served that has gone. A copy is served only while its source
is what it was when it was copied.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from firsttouch.errors import BadInput, RunFailed, none_such
from firsttouch.execution import ram_store
from firsttouch.execution.file_copies import Identity, Source, identity_of, name_of, sources_of
from firsttouch.execution.foreground import run_in_foreground
from firsttouch.execution.jobs import Outcome
from firsttouch.execution.ram_store import RamStore, Residence, Space
from firsttouch.host.cpusets import format_list
from firsttouch.records import atomic_files
from firsttouch.records.file_lock import lock_folder
from firsttouch.tools import require

#: The variable that names the folder of the copies for a command.
VARIABLE = "FIRSTTOUCH_STAGED"
_PLACEHOLDER = re.compile(r"\{(folder|[1-9]\d*)\}")
#: Seconds until the kernel has ended a process that was killed.
_PATIENCE = 10.0


class Staged(Struct, frozen=True):
    """The files of one kept store. *copies* maps names in *folder* to the source and what was copied of it.

    *links* maps the names of files that did not fit to the files on disk. Times are seconds since the epoch;
    *until* is None without an end.
    """

    pid: int
    folder: Path
    space: Space
    created: float
    until: float | None
    copies: Mapping[str, tuple[Path, Identity]]
    links: Mapping[str, Path]

    @property
    def id(self) -> str:
        """The name by which it is dropped."""
        return self.folder.name.removeprefix("firsttouch-")

    @property
    def size_bytes(self) -> int:
        """The size of all copies."""
        return sum(identity.size for _, identity in self.copies.values())

    def stale(self) -> list[Path]:
        """Return the sources that are no longer what was copied."""
        return [
            source
            for name, (source, identity) in self.copies.items()
            if not self._is_fresh(name, source, identity)
        ]

    def has(self, source: Source) -> bool:
        """Return whether the store has a fresh copy of *source* under its name, which this user made."""
        copied = self.copies.get(str(source.name))
        return copied is not None and self._is_fresh(str(source.name), source.file, copied[1])

    def _is_fresh(self, name: str, source: Path, identity: Identity) -> bool:
        try:
            copy = (self.folder / name).lstat()
            now = identity_of(source.stat())
        except OSError:
            return False
        is_unchanged = (copy.st_size, copy.st_mtime_ns) == (identity.size, identity.mtime_ns)
        return now == identity and is_unchanged and copy.st_uid == os.geteuid()

    def residence(self) -> Residence:
        """Return where the pages of the copies lie now."""
        return ram_store.residence(self.space, [self.folder / name for name in self.copies])

    def to_dict(self, residence: Residence) -> dict[str, Any]:
        """Return the JSON object; *residence* is that of the copies now."""
        stale = self.stale()
        return {
            "id": self.id,
            "folder": str(self.folder),
            "pid": self.pid,
            "size_bytes": self.size_bytes,
            **residence.to_dict(self.space.numa_nodes),
            "state": "stale" if stale else "fresh",
            "stale": [str(file) for file in stale],
            "files": {name: str(source) for name, (source, _) in self.copies.items()},
            "on_disk": {name: str(file) for name, file in self.links.items()},
            "created": _iso(self.created),
            "until": self.until and _iso(self.until),
        }


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")


class Copies(Struct, frozen=True):
    """Verified copies of files in *store*: *copied* are in memory, *linked* are files on disk that did not fit."""

    store: RamStore
    copied: Sequence[Source]
    identities: Sequence[Identity]
    linked: Sequence[Source]
    residence: Residence
    seconds: float

    @property
    def size_bytes(self) -> int:
        """The size of all copies."""
        return sum(source.bytes for source in self.copied)

    def keep(self, seconds: float) -> Staged:
        """Keep the copies for so many *seconds* (perhaps infinite), and let later commands find them."""
        store, now, copied = self.store, time.time(), zip(self.copied, self.identities, strict=True)
        staged = Staged(
            store.pid,
            store.folder,
            store.space,
            now,
            None if seconds == float("inf") else now + seconds,
            {str(source.name): (source.file.absolute(), identity) for source, identity in copied},
            {str(source.name): source.file.absolute() for source in self.linked},
        )
        document = {
            "space": staged.space,
            "created": staged.created,
            "until": staged.until,
            "copies": {name: [os.fspath(file), identity] for name, (file, identity) in staged.copies.items()},
            "links": {name: os.fspath(file) for name, file in staged.links.items()},
        }
        with atomic_files.replacing(_record(store.folder)) as partial:
            partial.write_text(json.dumps(document), encoding="utf-8")
        store.keep(seconds)
        return staged

    def run(self, words: Sequence[str], files: Sequence[Path]) -> tuple[list[str], Outcome]:
        """Run a command in the foreground; return its words, with the copies of *files*, and how it ended.

        {1}, {2}, … in *words* become the paths of the copies, and {folder} becomes their folder, which VARIABLE
        names too.
        """
        places = {str(n): str(self.store.folder / name_of(file)) for n, file in enumerate(files, 1)}
        places["folder"] = str(self.store.folder)
        argv = [_PLACEHOLDER.sub(lambda match: places[match[1]], word) for word in words]
        return argv, run_in_foreground(argv, None, env={VARIABLE: str(self.store.folder)})


def check_words(words: Sequence[str], count: int) -> None:
    """Raise BadInput or Missing for a command that cannot run with the copies of *count* files."""
    numbers = (word for text in words for word in _PLACEHOLDER.findall(text) if word != "folder")
    if unknown := {int(n) for n in numbers} - set(range(1, count + 1)):
        raise BadInput(f"the command has {{{min(unknown)}}}, and the last file is {{{count}}}")
    if words and not _PLACEHOLDER.search(words[0]):
        require(words[0])


@contextlib.contextmanager
def copies_of(
    files: Iterable[Path],
    numa_nodes: Sequence[int],
    *,
    spill: bool = False,
    threads: int | None = None,
    progress: Callable[[Sequence[Source]], Callable[[int], None]] | None = None,
) -> Iterator[Copies]:
    """Hold copies of *files* in the memory of *numa_nodes*, in equal parts; they go with the block.

    With *spill*, files that do not fit stay on disk, and are links. *progress* gets the sources, and returns what
    is called with the bytes copied so far. Raises RunFailed if a page does not lie where it should.
    """
    sources = sources_of(files)
    fitting, linked = _divided(sources, numa_nodes) if spill else (sources, [])
    began = time.monotonic()
    size = ram_store.needed_bytes(sources) - sum(source.bytes for source in linked)
    with ram_store.hold(numa_nodes, size, even=len(numa_nodes) > 1) as store:
        shown = progress(fitting) if progress else lambda _: None
        identities = store.copy(fitting, threads=threads, on_progress=shown)
        store.link(linked)
        residence = store.verify()
        if residence.reason:
            raise RunFailed(f"the copies do not lie on NUMA node {format_list(numa_nodes)}: {residence.reason}")
        yield Copies(store, fitting, identities, linked, residence, time.monotonic() - began)


def _divided(sources: Sequence[Source], numa_nodes: Sequence[int]) -> tuple[list[Source], list[Source]]:
    """Return the files that fit into memory, taken in order, and the others."""
    copied: list[Source] = []
    linked: list[Source] = []
    for source in sources:
        size = ram_store.needed_bytes([*copied, source]) + len(sources) * ram_store.PAGE
        space = ram_store.Space(tuple(numa_nodes), size, even=len(numa_nodes) > 1)
        (linked if ram_store.shortage([space]) else copied).append(source)
    return copied, linked


def _record(folder: Path) -> Path:
    return folder.parent / f"{folder.name}.json"


def all_staged() -> list[Staged]:
    """Return what this user has staged on this host, the oldest first."""
    staged = []
    for pid, folder in ram_store.holders():
        # A store without a record is that of a command that runs. What is not a record was not written by keep().
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            staged.append(_read(pid, folder))
    return sorted(staged, key=lambda each: each.created)


def _read(pid: int, folder: Path) -> Staged:
    document: dict[str, Any] = json.loads(_record(folder).read_text(encoding="utf-8"))
    numa_nodes, *limits = document["space"]
    copies = {name: (Path(file), Identity(*identity)) for name, (file, identity) in document["copies"].items()}
    links = {name: Path(file) for name, file in document["links"].items()}
    space = Space(tuple(numa_nodes), *limits)
    return Staged(pid, folder, space, document["created"], document["until"], copies, links)


def staged(files: Iterable[Path], numa_nodes: Iterable[int]) -> Path | None:
    """Return a folder with fresh copies of all *files* on exactly *numa_nodes*, staged by this user, or None.

    Use it within :func:`in_use`. Raises BadInput if a file cannot be read.
    """
    files, nodes = list(files), tuple(sorted(set(numa_nodes)))
    sources = sources_of(files)
    names = {source.name for source in sources}
    for each in all_staged():
        # A file that is a folder now, or has gone from a folder, must not be served.
        copies = {name for name in map(Path, each.copies) if name.parts[0] in map(name_of, files)}
        if sources and names == copies and each.space.numa_nodes == nodes and all(map(each.has, sources)):
            return each.folder
    return None


@contextlib.contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Keep others from dropping the staged copies in *folder*; raises RunFailed if they have gone."""
    handle = lock_folder(folder, shared=True)
    if handle is None:
        raise RunFailed(f"{folder}: the staged copies have been dropped: repeat the command")
    try:
        yield
    finally:
        os.close(handle)


def chosen(ids: Sequence[str]) -> list[Staged]:
    """Return what is staged with these *ids*, or all without any; raises BadInput for an unknown one."""
    there = all_staged()
    by_id = {each.id: each for each in there}
    for name in ids:
        if name not in by_id:
            raise BadInput(none_such("staged files", name, by_id))
    return [by_id[name] for name in dict.fromkeys(ids)] if ids else there


def drop(each: Staged) -> None:
    """End the holder of staged files, and wait until that is done; raises RunFailed while a command uses them."""
    handle = lock_folder(each.folder)
    if handle is None:
        if not each.folder.exists():
            return
        raise RunFailed(f"{each.id}: a command uses these copies: drop them when it has ended")
    try:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each.pid, signal.SIGKILL)
    finally:
        os.close(handle)
    deadline = time.monotonic() + _PATIENCE
    while each.folder.exists() and time.monotonic() < deadline:
        time.sleep(0.005)
