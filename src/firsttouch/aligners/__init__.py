# SPDX-License-Identifier: Apache-2.0
"""The aligners, one TOML file each: how to index, to align and to find the version. No code knows their names."""

from __future__ import annotations

import functools
import re
import string
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from firsttouch import tomldoc
from firsttouch.errors import BadInput, Missing, RunFailed
from firsttouch.placement import Need
from firsttouch.supervise import last_lines, require
from firsttouch.units import parse_bytes

#: What is equal between scenarios: every alignment line, or what :func:`firsttouch.sam.settled` keeps of it.
SAME = ("exact", "settled")
_WORDS = {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}
_STEPS = {"type": "array", "items": _WORDS, "minItems": 1}
_WORD = {"type": "string", "minLength": 1}
_COUNT = {"type": "integer", "minimum": 1}


def _table(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": required | (optional or {}),
    }


SCHEMA: dict[str, Any] = _table(
    {
        "program": _WORD,
        "version": _table({"argv": _WORDS, "pattern": _WORD}),
        "index": _table({"argv": _WORDS, "files": _WORDS}, {"large": _WORD}),
        "align": _table(
            {"single": _STEPS, "paired": _STEPS, "in_order": {"type": "boolean"}, "same": {"enum": list(SAME)}},
            {"batch_bases": _COUNT, "batch_reads": _COUNT},
        ),
        "memory": _table({"instance": _WORD, "thread": _WORD}),
    },
    {"debian": _WORD},
)
#: The placeholders of the read files, by mate.
_MATES = ("reads", "reads2")
Steps = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Aligner:
    """An aligner as its TOML file describes it.

    *index_files* are suffixes of the index's prefix, to which an index of 64-bit offsets adds *index_large* (empty:
    there is one kind only). *single* and *paired* are argv templates, run one after the other: the last one's
    standard output is the SAM.

    *in_order*: with any number of threads, the output has the reads in the order of the input. *same*: see
    :data:`SAME`. The output depends on where batches begin, which is after *batch_bases* bases or at multiples
    of *batch_reads* records (0: it does not depend on them). *instance_bytes* and *thread_bytes* are what an
    instance and each of its threads need of memory beside the index.
    """

    name: str
    program: str
    package: str
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
    instance_bytes: int
    thread_bytes: int

    def steps(self, mates: int) -> Steps:
        """Return the argv templates for one read file, or two of a pair, in the order in which they run."""
        return self.paired if mates == 2 else self.single

    def mates_of(self, template: Sequence[str]) -> tuple[int, ...]:
        """Return which read files (0, 1) a step reads, each of them once."""
        used = _fields(template)
        return tuple(mate for mate, name in enumerate(_MATES) if name in used)

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
        the step needs and that is None.
        """
        values = {"index": str(index), "threads": str(threads), "batch_bases": str(batch_bases)}
        values |= {"scratch": str(scratch), "size": "l" if self._is_large(index) else "s"}
        values |= {mate: file for mate, file in zip(_MATES, reads, strict=False) if file is not None}
        return [a.format(**values) for a in template]

    def index_bytes(self, index: Path) -> int:
        """Return the size of the index with that prefix (bytes); raises BadInput naming the first absent file."""
        large = self.index_large if self._is_large(index) else ""
        files = [Path(f"{index}{suffix}{large}") for suffix in self.index_files]
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
        require(self.program, self.index_argv[0])
        argv = [a.format(reference=reference, index=index) for a in self.index_argv]
        with log.open("wb") as out:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False)
        if done.returncode:
            raise RunFailed(f"{' '.join(argv)} ended with status {done.returncode}: {last_lines(log)}")


def parse(name: str, text: str, file: str) -> Aligner:
    """Return the aligner that a TOML text describes; raises BadInput naming *file*, the line and what is wrong."""
    data = tomldoc.loads(text, file)
    tomldoc.check(data, SCHEMA, text, file)
    for table, key, reason in _mistakes(data):
        raise BadInput(f"{table}.{key}: {reason}", file=file, line=tomldoc.line_of(text, [table, key]))
    align: Mapping[str, Any] = data["align"]
    return Aligner(
        name=name,
        program=data["program"],
        package=f"Debian: apt-get install {data['debian']}" if "debian" in data else "",
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
        instance_bytes=parse_bytes(data["memory"]["instance"]),
        thread_bytes=parse_bytes(data["memory"]["thread"]),
    )


def _mistakes(data: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (table, key, what is wrong) of values that are right by themselves but say nothing sensible."""
    try:
        groups = re.compile(data["version"]["pattern"]).groups
        if groups != 1:
            yield "version", "pattern", f"has {groups} groups, one is needed (the version)"
    except re.error as error:
        yield "version", "pattern", str(error)
    for key in ("instance", "thread"):
        try:
            parse_bytes(data["memory"][key])
        except BadInput as error:
            yield "memory", key, str(error)
    for reason in _wrong_steps([data["index"]["argv"]], {"index", "reference"}, needed={"index", "reference"}):
        yield "index", "argv", reason
    align = data["align"]
    batches = {"batch_bases"} if "batch_bases" in align else set()
    known = {"index", "threads", "scratch", *batches, *(["size"] if "large" in data["index"] else [])}
    for key, mates in (("single", _MATES[:1]), ("paired", _MATES)):
        for reason in _wrong_steps(align[key], {*known, *mates}, needed={"index", "threads", *mates, *batches}):
            yield "align", key, reason


def _wrong_steps(steps: Sequence[Sequence[str]], known: set[str], *, needed: set[str]) -> Iterator[str]:
    """Yield what is wrong with the placeholders of argv templates that run one after the other."""
    found: set[str] = set()
    for step in steps:
        try:
            fields = _fields(step)
        except ValueError as error:
            yield f"{error} in {' '.join(step)}"
            return
        found.update(fields)
        if unknown := sorted(set(fields) - known):
            yield f"unknown placeholder {{{unknown[0]}}} in {' '.join(step)}: known are {_names(known)}"
        # A pipe is read once.
        if twice := [mate for mate in _MATES if fields.count(mate) > 1]:
            yield f"a step can read {{{twice[0]}}} once only: {' '.join(step)}"
    if lacking := needed - found:
        yield f"no step has {_names(lacking)}"


def _names(placeholders: set[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(placeholders))


def _fields(template: Sequence[str]) -> list[str]:
    """Return the placeholders of an argv template; raises ValueError where braces do not match."""
    parsed = [part for argument in template for part in string.Formatter().parse(argument)]
    if odd := [field for _, field, spec, conversion in parsed if spec or conversion]:
        raise ValueError(f"{{{odd[0]}}} stands alone, without : or !")
    return [field for _, field, _, _ in parsed if field is not None]


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
