# SPDX-License-Identifier: Apache-2.0
"""The aligners, one TOML file each: how to index, to align and to find the version. No code knows their names."""

from __future__ import annotations

import functools
import re
import string
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema

from firsttouch.errors import BadInput, Missing, RunFailed
from firsttouch.placement import Need
from firsttouch.supervise import last_lines, require
from firsttouch.units import parse_bytes

_ARGV = {"type": "array", "items": {"type": "string"}, "minItems": 1}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["program", "version", "index", "align", "memory"],
    "properties": {
        "program": {"type": "string"},
        "debian": {"type": "string"},
        "version": {
            "type": "object",
            "additionalProperties": False,
            "required": ["argv", "pattern"],
            "properties": {"argv": _ARGV, "pattern": {"type": "string"}},
        },
        "index": {
            "type": "object",
            "additionalProperties": False,
            "required": ["argv", "files"],
            "properties": {"argv": _ARGV, "files": _ARGV},
        },
        "align": {
            "type": "object",
            "additionalProperties": False,
            "required": ["single", "paired", "batch_bases"],
            "properties": {"single": _ARGV, "paired": _ARGV, "batch_bases": {"type": "integer", "minimum": 0}},
        },
        "memory": {
            "type": "object",
            "additionalProperties": False,
            "required": ["instance", "thread"],
            "properties": {"instance": {"type": "string"}, "thread": {"type": "string"}},
        },
    },
}
_ALIGN = {"index", "threads", "reads", "batch_bases"}


@dataclass(frozen=True)
class Aligner:
    """An aligner as its TOML file describes it.

    *index_files* are suffixes of the index's prefix. *batch_bases* is the number of bases after which the
    aligner's batch ends (0: its output does not depend on batches), *memory* the bytes that an instance and
    each of its threads need beside the index.
    """

    name: str
    program: str
    package: str
    version_argv: tuple[str, ...]
    version_pattern: str
    index_argv: tuple[str, ...]
    index_files: tuple[str, ...]
    single: tuple[str, ...]
    paired: tuple[str, ...]
    batch_bases: int
    instance_bytes: int
    thread_bytes: int

    def align_argv(self, *, index: Path, reads: Sequence[str], threads: int, batch_bases: int) -> list[str]:
        """Return the argv that aligns one read file, or two of a pair, to standard output."""
        values = {"index": str(index), "threads": str(threads), "batch_bases": str(batch_bases)}
        values |= dict(zip(("reads", "reads2"), reads, strict=False))
        return [a.format(**values) for a in (self.paired if len(reads) == 2 else self.single)]

    def index_bytes(self, index: Path) -> int:
        """Return the size of the index with that prefix (bytes); raises BadInput naming the first absent file."""
        total = 0
        for suffix in self.index_files:
            file = Path(f"{index}{suffix}")
            if not file.is_file():
                raise BadInput(f"no index of {self.name} there: build it with `firsttouch index`", file=file)
            total += file.stat().st_size
        return total

    def need(self, index_bytes: int) -> Need:
        """Return what one instance needs of memory."""
        return Need(index_bytes, self.instance_bytes, self.thread_bytes)

    def version(self) -> str:
        """Return the installed program's version; raises Missing, or RunFailed where it does not say one."""
        try:
            require(self.program)
        except Missing as error:
            raise Missing(f"{error}" + (f" ({self.package})" if self.package else "")) from error
        try:
            done = subprocess.run(
                self.version_argv,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=60,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RunFailed(f"{' '.join(self.version_argv)} does not say its version: {error}") from error
        found = re.search(self.version_pattern, done.stdout + done.stderr)
        if not found:
            raise RunFailed(f"{' '.join(self.version_argv)} does not say its version")
        return found[1]

    def build_index(self, reference: Path, index: Path, log: Path) -> None:
        """Build the index with prefix *index* from a FASTA file; raises RunFailed with the log's end."""
        require(self.program)
        argv = [a.format(reference=reference, index=index) for a in self.index_argv]
        with log.open("wb") as out:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False)
        if done.returncode:
            raise RunFailed(f"{' '.join(argv)} ended with status {done.returncode}: {last_lines(log)}")


def parse(name: str, text: str, file: str) -> Aligner:
    """Return the aligner that a TOML text describes; raises BadInput naming *file* and what is wrong."""
    try:
        data = tomllib.loads(text)
        jsonschema.validate(data, SCHEMA)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(str(error), file=file) from error
    except jsonschema.ValidationError as error:
        where = ".".join(map(str, error.absolute_path)) or "the file"
        raise BadInput(f"{where}: {error.message}", file=file) from error
    align: Mapping[str, Any] = data["align"]
    _check_placeholders(data["index"]["argv"], {"index", "reference"}, file)
    _check_placeholders(align["single"], _ALIGN, file)
    _check_placeholders(align["paired"], {*_ALIGN, "reads2"}, file)
    try:
        groups = re.compile(data["version"]["pattern"]).groups
    except re.error as error:
        raise BadInput(f"version.pattern: {error}", file=file) from error
    if groups != 1:
        raise BadInput(f"version.pattern: has {groups} groups, one is needed", file=file)
    try:
        instance_bytes, thread_bytes = (parse_bytes(data["memory"][k]) for k in ("instance", "thread"))
    except BadInput as error:
        raise BadInput(f"memory: {error}", file=file) from error
    return Aligner(
        name=name,
        program=data["program"],
        package=f"Debian: apt-get install {data['debian']}" if "debian" in data else "",
        version_argv=tuple(data["version"]["argv"]),
        version_pattern=data["version"]["pattern"],
        index_argv=tuple(data["index"]["argv"]),
        index_files=tuple(data["index"]["files"]),
        single=tuple(align["single"]),
        paired=tuple(align["paired"]),
        batch_bases=align["batch_bases"],
        instance_bytes=instance_bytes,
        thread_bytes=thread_bytes,
    )


def _check_placeholders(argv: Sequence[str], known: set[str], file: str) -> None:
    try:
        used = {f for a in argv for _, f, _, _ in string.Formatter().parse(a) if f is not None}
    except ValueError as error:
        raise BadInput(f"{error} in {' '.join(argv)}", file=file) from error
    if unknown := sorted(used - known):
        raise BadInput(f"unknown placeholder {{{unknown[0]}}} in {' '.join(argv)}", file=file)


@functools.cache
def aligners() -> dict[str, Aligner]:
    """Return all aligners by name."""
    files = sorted(
        (f for f in resources.files(__name__).iterdir() if f.name.endswith(".toml")), key=lambda f: f.name
    )
    names = [(f.name.removesuffix(".toml"), f) for f in files]
    return {name: parse(name, f.read_text(encoding="utf-8"), f.name) for name, f in names}


def aligner(name: str) -> Aligner:
    """Return the aligner of that name; raises BadInput that lists the known ones."""
    try:
        return aligners()[name]
    except KeyError:
        raise BadInput(f"no aligner '{name}': there are {', '.join(aligners())}") from None
