# SPDX-License-Identifier: Apache-2.0
"""Where the instances of a scenario find their index: in their own memory, in the page cache, or in copies in RAM.

:class:`IndexCopies` makes the copies that a scenario's memory option asks for, in RAM stores on the NUMA nodes of
its instances, and says for each instance with which command it uses its copy (:class:`IndexUse`). The copies serve
all runs of a scenario within a block, and are removed at its end, or with this process.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Self

from msgspec import Struct

from firsttouch.errors import BadInput, CannotHere, RunFailed
from firsttouch.execution import ram_store
from firsttouch.execution.child_process import child, last_lines
from firsttouch.execution.placement_check import IndexPages
from firsttouch.execution.progress import live
from firsttouch.execution.ram_store import Residence, Space, identity_of, sources_of
from firsttouch.genomics.aligners import Aligner
from firsttouch.host.cpusets import format_list
from firsttouch.scenarios import memory_options
from firsttouch.scenarios.memory_fit import copy_banks
from firsttouch.scenarios.memory_options import MemoryOption
from firsttouch.scenarios.placement import Scenario
from firsttouch.units import format_bytes

#: The most memory of a loaded index: this multiple of its files, plus this number of bytes.
_LOADED, _MORE = 1.25, 8 << 20
#: The folders that a store hides from programs that look into /dev/shm.
_SHM = Path("/dev/shm")  # noqa: S108 - the host's own


class IndexUse(Struct, frozen=True):
    """How one instance uses the index.

    *prefix* is the copy's, None for the index itself. *maps*: the program's options make it map the files. The
    words *entering* precede its argv. *pages* are sampled during the run (None: not sampled).
    """

    prefix: Path | None = None
    maps: bool = False
    entering: tuple[str, ...] = ()
    pages: IndexPages | None = None

    def argv(self, aligner: Aligner, argv: Sequence[str], first: int | None = None) -> list[str]:
        """Return *argv* with the words that map the index; *first* is as in :meth:`Aligner.mapping`."""
        return aligner.mapping_argv(argv, first) if self.maps else [*argv]

    def hides(self, files: Iterable[str | Path]) -> bool:
        """Return whether one of *files* is invisible to the program, whose namespace has another /dev/shm."""
        return bool(self.entering) and any(map(_in_shm, files))


#: Each instance loads the index itself.
OWN = IndexUse()


class IndexCopies:
    """The copies of the index *prefix* for one scenario after the other, within a block.

    *name* is the index in the program's argv, if it differs from the prefix. :meth:`uses` makes the copies, not
    entering the block. *say* gets progress messages. *seconds* is the time that the present copies took.
    """

    def __init__(
        self, aligner: Aligner, prefix: Path | None, *, name: str = "", say: Callable[[str], None] = lambda _: None
    ) -> None:
        self._aligner, self._prefix, self._say = aligner, prefix, say
        self._name = name or str(prefix)
        self._stack = contextlib.ExitStack()
        self._key: object = None
        #: How instances use each copy, by the NUMA nodes of its store.
        self._copies: dict[tuple[int, ...], IndexUse] = {}
        self.seconds = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._drop()

    def uses(self, scenario: Scenario) -> list[IndexUse]:
        """Return how each instance of *scenario* uses the index, and make the missing copies.

        Copies of another scenario are removed first. Raises CannotHere without memory for the copies or without
        RAM stores, and BadInput for an index that is absent or changes.
        """
        index = memory_options.option_of_kind(scenario.options, "index")
        if index is None or index.copies == "own":
            self._drop()
            return [OWN] * scenario.instances
        if self._prefix is None:
            raise BadInput(f"memory option {index.name}: the command does not say which index it uses")
        if index.copies == "none":
            self._drop()
            return [self._in_page_cache(index)] * scenario.instances
        banks = [tuple(sorted(set(p.numa_nodes))) for p in scenario.placements]
        places = copy_banks(banks, index.copies)
        files = self._files()
        key = index.name, places, [identity_of(file.stat()) for file in files]
        if key != self._key:
            self._drop()
            before = time.monotonic()
            try:
                if self._aligner.index_use == "loaded":
                    for place in places:
                        self._add(place, self._loaded(index, place, files))
                else:
                    self._copy(index, places, files)
            except BaseException:
                self._drop()
                raise
            self._key, self.seconds = key, time.monotonic() - before
        if index.copies == "all":
            return [*self._copies.values()] * scenario.instances
        return [self._copies[nodes] for nodes in banks]

    def restore_header(self, header: bytes) -> bytes:
        """Return a SAM header that names the index instead of its copies."""
        for use in self._copies.values():
            if use.prefix is not None:
                header = header.replace(os.fsencode(use.prefix), os.fsencode(self._name))
        return header

    def _drop(self) -> None:
        self._key, self._copies, self.seconds = None, {}, 0.0
        self._stack.close()

    def _files(self) -> list[Path]:
        assert self._prefix is not None  # noqa: S101 - for mypy
        self._aligner.index_bytes(self._prefix)
        return self._aligner.index_paths(self._prefix)

    def _in_page_cache(self, index: MemoryOption) -> IndexUse:
        if self._aligner.index_use != "mapped":
            raise CannotHere(f"memory option {index.name}: {self._aligner.name} cannot map the files of its index")
        files = self._files()
        paths = frozenset(os.path.realpath(file) for file in files)
        return IndexUse(maps=True, pages=IndexPages(index.name, _ids(files), paths, must_map=True))

    def _add(self, banks: tuple[int, ...], use: IndexUse) -> None:
        self._copies[banks] = use
        nodes = f"NUMA node{'s' * (len(banks) > 1)} {format_list(banks)}"
        size = format_bytes(sum(use.pages.copy_pages.values()) * ram_store.PAGE if use.pages else 0)
        self._say(f"a copy of the index ({size}) is on {nodes}")

    def _copy(self, index: MemoryOption, places: Sequence[tuple[int, ...]], files: Sequence[Path]) -> None:
        size = ram_store.needed_bytes(sources_of(files))
        spaces = [Space(banks, size, even=len(banks) > 1) for banks in places]
        assert self._prefix is not None  # noqa: S101 - for mypy
        total = sum(file.stat().st_size for file in files)
        if reason := ram_store.shortage(spaces):
            raise CannotHere(reason)
        for store in [self._stack.enter_context(ram_store.hold(s.numa_nodes, size, even=s.even)) for s in spaces]:
            nodes = format_list(store.space.numa_nodes)

            def progress(done: int, nodes: str = nodes) -> None:
                live(f"copy of the index on NUMA nodes {nodes}: {format_bytes(done)} of {format_bytes(total)}")

            # The first copy is in memory; the files may be on a slow disk.
            before = next((use.prefix for use in self._copies.values()), None)
            try:
                sources = sources_of(self._aligner.index_paths(before) if before else files)
                store.copy(sources, on_progress=progress)
            finally:
                live("")
            # A suffix that begins with a slash names a file in the prefix, which is a folder then.
            is_folder = self._aligner.index.files[0].startswith("/")
            prefix = store.folder if is_folder else store.folder / self._prefix.name
            copied, maps = self._aligner.index_paths(prefix), self._aligner.index_use == "mapped"
            index_pages = _pages(index, store.verify(), copied, must_map=maps)
            self._add(store.space.numa_nodes, IndexUse(prefix, maps, pages=index_pages))

    def _loaded(self, index: MemoryOption, banks: tuple[int, ...], files: Sequence[Path]) -> IndexUse:
        """Let the program load the index into the /dev/shm of a namespace, on *banks*."""
        for file in files:
            if _in_shm(file):
                raise BadInput(f"{self._aligner.name} cannot load it from {_SHM}: keep it elsewhere", file=file)
        size = int(sum(file.stat().st_size for file in files) * _LOADED) + _MORE
        hold = ram_store.hold(banks, size, even=len(banks) > 1, private_shm=True)
        store = self._stack.enter_context(hold)
        entering = tuple(store.prefix_argv())
        argv = [word.format(index=self._name) for word in self._aligner.index.loaded]
        live(f"{' '.join(argv)}")
        with tempfile.TemporaryDirectory(prefix="firsttouch-") as folder:
            log = Path(folder, "log")
            with log.open("wb") as out, child([*entering, *argv], stdout=out, stderr=out) as process:
                status = process.wait()
            live("")
            if status:
                raise RunFailed(f"{' '.join(argv)} ended with status {status}: {last_lines(log)}")
        loaded = [file for file in Path(f"/proc/{store.pid}/root{_SHM}").iterdir() if file.is_file()]
        if not loaded:
            raise RunFailed(f"{' '.join(argv)} left nothing in {_SHM}")
        return IndexUse(entering=entering, pages=_pages(index, store.verify(loaded), loaded, must_map=True))


def _in_shm(file: str | Path) -> bool:
    return Path(os.path.realpath(file)).is_relative_to(_SHM)


def _ids(files: Sequence[Path]) -> frozenset[tuple[int, int]]:
    states = [file.stat() for file in files]
    return frozenset((state.st_dev, state.st_ino) for state in states)


def _pages(index: MemoryOption, residence: Residence, files: Sequence[Path], *, must_map: bool) -> IndexPages:
    """Return where a copy lies, as the kernel shows it, and which of *files* the instances map."""
    return IndexPages(
        index.name,
        _ids(files),
        must_map=must_map,
        copy_pages=dict(residence.pages),
        copy_huge=residence.huge_bytes,
        misplaced=residence.reason,
    )


#: The magic number of a part, and the flag of a part without sequences (minimap2, index.c, mm_idx_dump).
_MAGIC, _NO_SEQUENCES = b"MMI\x02", 2
_HEAD = struct.Struct("<4x5I")  # w, k, bits of the buckets' numbers, sequences, flags
_NUMBER = struct.Struct("<I")


def has_several_parts(file: Path) -> bool:
    """Return whether another part follows the first one; False for any other file.

    Of each of the first part's buckets (2^14 by default) only the two sizes are read.
    """
    try:
        with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[: len(_MAGIC)] != _MAGIC:
                return False
            end = _end_of_part(data)
            return data[end : end + len(_MAGIC)] == _MAGIC
    except (OSError, ValueError, IndexError, struct.error):  # an empty or a damaged file, which minimap2 refuses
        return False


def _end_of_part(data: mmap.mmap) -> int:
    """Return the first byte behind the first part."""
    _, _, bits, sequences, flags = _HEAD.unpack_from(data)
    if bits >= 32:
        raise ValueError("a bucket's number has 32 bits at most")
    at, bases = _HEAD.size, 0
    for _ in range(sequences):
        at += 1 + data[at]
        bases += _NUMBER.unpack_from(data, at)[0]
        at += _NUMBER.size
    for _ in range(1 << bits):
        at += _NUMBER.size + 8 * _NUMBER.unpack_from(data, at)[0]
        at += _NUMBER.size + 16 * _NUMBER.unpack_from(data, at)[0]
    return at if flags & _NO_SEQUENCES else at + 4 * -(-bases // 8)
