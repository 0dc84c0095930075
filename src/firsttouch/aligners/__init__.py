# SPDX-License-Identifier: Apache-2.0
"""The aligners, one TOML file each: how to index, to align and to find the version. No code knows their names."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from firsttouch import tomldoc
from firsttouch.aligners import schema
from firsttouch.errors import BadInput, Missing, RunFailed
from firsttouch.placement import Need
from firsttouch.supervise import last_lines, run_tool
from firsttouch.units import parse_bytes

Steps = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Aligner:
    """An aligner as its TOML file describes it.

    *package* is its package in Debian (empty: Debian has none) and *origin* says how to get the program.
    *index_files* are suffixes of the index's prefix, to which an index of 64-bit offsets adds *index_large*
    (empty: there is one kind only). *single* and *paired* are argv templates, run one after the other: the
    last one's standard output is the SAM.

    *in_order*: with any number of threads, the output has the reads in the order of the input. *same*: see
    :data:`schema.SAME`. The output depends on where batches begin: a batch ends with the first record (pair) at
    which its bases reach *batch_bases*, the text of its records of the first file reaches *batch_bytes*, and their
    number is a multiple of *batch_reads* (0: no condition; with all 0, it does not depend on them).
    *instance_bytes* and *thread_bytes* are what an instance and each of its threads need of memory beside the
    index.
    """

    name: str
    program: str
    package: str
    origin: str
    version_argv: tuple[str, ...]
    version_pattern: str
    index_argv: tuple[str, ...]
    index_files: tuple[str, ...]
    index_large: str
    single: Steps
    paired: Steps
    in_order: bool
    same: str
    batch_bases: int
    batch_reads: int
    batch_bytes: int
    instance_bytes: int
    thread_bytes: int

    def steps(self, mates: int) -> Steps:
        """Return the argv templates for one read file, or two of a pair, in the order in which they run."""
        return self.paired if mates == 2 else self.single

    def mates_of(self, template: Sequence[str]) -> tuple[int, ...]:
        """Return which read files (0, 1) a step reads, each of them once."""
        return schema.mates_of(template)

    def on_stdin(self, template: Sequence[str]) -> bool:
        """Tell whether a step reads its standard input: the records of its mates, in turn where it has two."""
        return not schema.STDIN.keys().isdisjoint(schema.fields(template))

    def argv(
        self,
        template: Sequence[str],
        *,
        index: Path,
        reads: Sequence[str | None],
        threads: int,
        batch_bases: int,
        scratch: Path,
    ) -> list[str]:
        """Return the argv of one step.

        *reads* are the read files (or pipes) by mate, None where the step does not read that one; *scratch* is a
        folder of the instance's own, for what one step leaves to the next. Raises KeyError for a read file that
        the step needs and that is None; a step that reads its standard input needs none.
        """
        values = {"index": str(index), "threads": str(threads), "batch_bases": str(batch_bases)}
        values |= {"scratch": str(scratch), "size": "l" if self._is_large(index) else "s"}
        values |= dict.fromkeys(schema.STDIN, "-")
        values |= {mate: file for mate, file in zip(schema.MATES, reads, strict=False) if file is not None}
        return [a.format(**values) for a in template]

    def index_paths(self, index: Path) -> list[Path]:
        """Return the files that the index with that prefix has, or should have."""
        large = self.index_large if self._is_large(index) else ""
        return [Path(f"{index}{suffix}{large}") for suffix in self.index_files]

    def index_bytes(self, index: Path) -> int:
        """Return the size of the index with that prefix (bytes); raises BadInput naming the first absent file."""
        files = self.index_paths(index)
        for file in files:
            if not file.is_file():
                raise BadInput(f"no index of {self.name} there: build it with `firsttouch index`", file=file)
        return sum(file.stat().st_size for file in files)

    def _is_large(self, index: Path) -> bool:
        """Tell whether only a large index has that prefix: programs that know both take the small one first."""
        first = f"{index}{self.index_files[0]}"
        return bool(self.index_large) and not Path(first).is_file() and Path(first + self.index_large).is_file()

    def need(self, index_bytes: int) -> Need:
        """Return what one instance needs of memory."""
        return Need(index_bytes, self.instance_bytes, self.thread_bytes)

    def version(self) -> str:
        """Return the installed program's version; raises Missing, or RunFailed where it does not say one."""
        self._require(self.program)
        try:
            done = run_tool(self.version_argv)
        except RunFailed as error:
            raise RunFailed(f"{' '.join(self.version_argv)} does not say its version: {error}") from error
        found = re.search(self.version_pattern, done.stdout + done.stderr)
        if not found:
            raise RunFailed(f"{' '.join(self.version_argv)} does not say its version")
        return found[1]

    def _require(self, *programs: str) -> None:
        """Raise Missing, saying where to get the aligner, for the first of *programs* that is not on PATH."""
        for program in programs:
            if shutil.which(program) is None:
                raise Missing(f"'{program}' is not on PATH: {self.origin}")

    def build_index(self, reference: Path, index: Path, log: Path) -> None:
        """Build the index with prefix *index* from a FASTA file; raises RunFailed with the log's end."""
        self._require(self.program, self.index_argv[0])
        argv = [a.format(reference=reference, index=index) for a in self.index_argv]
        with log.open("wb") as out:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False)
        if done.returncode:
            raise RunFailed(f"{' '.join(argv)} ended with status {done.returncode}: {last_lines(log)}")


def _origin(data: Mapping[str, Any]) -> str:
    """Return how to get the program, as the end of a message."""
    if "debian" in data:
        return f"`make setup` installs it (Debian: apt-get install {data['debian']})"
    return "install it" + (f" from {data['homepage']}" if "homepage" in data else "")


def parse(name: str, text: str, file: str) -> Aligner:
    """Return the aligner that a TOML text describes; raises BadInput naming *file*, the line and what is wrong."""
    data = schema.read(text, file)
    align: Mapping[str, Any] = data["align"]
    return Aligner(
        name=name,
        program=data["program"],
        package=data.get("debian", ""),
        origin=_origin(data),
        version_argv=tuple(data["version"]["argv"]),
        version_pattern=data["version"]["pattern"],
        index_argv=tuple(data["index"]["argv"]),
        index_files=tuple(data["index"]["files"]),
        index_large=data["index"].get("large", ""),
        single=tuple(map(tuple, align["single"])),
        paired=tuple(map(tuple, align["paired"])),
        in_order=align["in_order"],
        same=align["same"],
        batch_bases=align.get("batch_bases", 0),
        batch_reads=align.get("batch_reads", 0),
        batch_bytes=align.get("batch_bytes", 0),
        instance_bytes=parse_bytes(data["memory"]["instance"]),
        thread_bytes=parse_bytes(data["memory"]["thread"]),
    )


def names() -> list[str]:
    """Return the names of all aligners, in order."""
    files = (f.name for f in resources.files(__name__).iterdir())
    return sorted(name.removesuffix(".toml") for name in files if name.endswith(".toml"))


@functools.cache
def aligner(name: str) -> Aligner:
    """Return the aligner of that name; raises BadInput that lists the others, or says what its file lacks."""
    if name not in names():
        raise BadInput(f"no aligner '{name}': there are {', '.join(names())}")
    file = resources.files(__name__) / f"{name}.toml"
    return parse(name, tomldoc.read(file), str(file))


def aligners() -> dict[str, Aligner]:
    """Return all aligners by name; raises BadInput for the first file that is wrong."""
    return {name: aligner(name) for name in names()}
