# SPDX-License-Identifier: Apache-2.0
"""Aligners as data: one TOML file each states how to index, to align and to find the version."""

from __future__ import annotations

import functools
import itertools
import re
import shlex
import shutil
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from firsttouch import documents, paths
from firsttouch.documents import Bytes, Count, FileTable, Regex, Word, Words
from firsttouch.errors import BadInput, Missing, RunFailed, none_such
from firsttouch.execution.child_process import child, last_lines
from firsttouch.genomics import command_syntax, messages
from firsttouch.genomics.reads import BatchRule
from firsttouch.records import atomic_files
from firsttouch.records.file_lock import lock_file
from firsttouch.scenarios.memory_fit import IndexUse, Need
from firsttouch.tools import run_tool

# ----------------------------------------------------------------------
# The TOML file of an aligner, and the placeholders of its argv templates

#: The fields that are equal in all scenarios: all, :func:`firsttouch.genomics.sam.unambiguous_fields`, or only the
#: scores.
Same = Literal["exact", "settled", "scored"]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")

_Url = Annotated[str, Meta(pattern=r"^https?://\S+$")]
_Steps = Annotated[tuple[Words, ...], Meta(min_length=1)]


class _VersionCommand(FileTable, frozen=True):
    argv: Words
    pattern: Regex


class _Mapped(FileTable, frozen=True):
    #: The words that make the program map the files, in place of the word *replaces*, if present.
    words: Words
    replaces: Word = ""


class _Index(FileTable, frozen=True):
    argv: Words
    #: The suffixes of the files; an index with 64-bit offsets adds *large* (empty: there is only one kind).
    files: Words
    #: The argv that prints the version of the program that builds it (empty: the aligner's).
    version: Words = ()
    large: Word = ""
    #: The prefix is the FASTA file, and the program writes the files next to it.
    with_reference: bool = False
    #: It may have several parts, see :meth:`Aligner.check_header`.
    parts: bool = False
    mapped: _Mapped = _Mapped(())
    #: The argv that loads an index into /dev/shm, where the program finds and maps it.
    loaded: Words = ()


class _Align(FileTable, frozen=True):
    #: The argv templates of the steps; the last one writes SAM to its standard output.
    single: _Steps
    #: The output keeps the order of the input with any number of threads.
    in_order: bool
    same: Same
    #: The same for pairs (empty: it aligns none), and whether these may have different names.
    paired: _Steps = ()
    any_names: bool = False
    batch_bases: Count | None = None
    batch_reads: Count | None = None
    batch_bytes: Count | None = None


class _MemoryNeed(FileTable, frozen=True):
    #: Of an instance and of each of its threads in addition to the index, and of each base of a batch.
    instance: Bytes
    thread: Bytes
    batch_base: Bytes = Bytes(0)
    #: The memory of the index as a multiple of its files.
    index: Annotated[float, Meta(ge=1)] = 1.0


class AlignerFile(FileTable, frozen=True):
    """The file of an aligner."""

    program: Word
    version: _VersionCommand
    index: _Index
    align: _Align
    memory: _MemoryNeed
    debian: Word = ""
    homepage: _Url = ""
    base: Word = ""
    command_of: Word = ""
    command: command_syntax.CommandTable | None = None  # type: ignore[valid-type]  # it is defined by a call
    summary: messages.SummaryTable = messages.SummaryTable()


#: Placeholders of the read files, by mate.
MATES = ("reads", "reads2")
#: Placeholders, with their mates, for programs that read pipes only from standard input.
STDIN = {"stdin": (0,), "interleaved": (0, 1)}


def _read(name: str, text: str, file: str) -> tuple[AlignerFile, Mapping[str, Any], dict[str, str]]:
    """Return an aligner's TOML *text* with its inherited keys, its keys, and the name of the file of each table.

    Raises BadInput naming *file*, line and fault.
    """
    document, places = _with_base(documents.parse_toml(text, file), (name,))
    described = document.convert(AlignerFile)
    for table, key, reason in _mistakes(described, document.data):
        raise document.error(f"{table}.{key}: {reason}", table, key)
    return described, document.data, places


def _with_base(
    document: documents.ParsedFile, names: tuple[str, ...]
) -> tuple[documents.ParsedFile, dict[str, str]]:
    """Return *document* with its inherited keys, and the name of the file that has each table.

    *names* are the files from the aligner to this document, which is the last one.
    """
    own, base = document.data, document.data.get("base")
    places = dict.fromkeys(own, names[-1])
    if base is None:
        return document, places
    files = _files()
    if not isinstance(base, str) or base not in files:
        raise document.error(f"base: {none_such('aligner', str(base), files)}", "base")
    if base in names:
        raise document.error(f"base: {' is based on '.join([*names, base])}", "base")
    text = documents.read_text(files[base])
    inherited, inherited_places = _with_base(documents.parse_toml(text, str(files[base])), (*names, base))
    inherited.convert(AlignerFile)
    # Another program is not in that package.
    data = {key: value for key, value in inherited.data.items() if not (key == "debian" and "program" in own)}
    for key, value in own.items():
        both = isinstance(value, dict) and isinstance(data.get(key), dict)
        data[key] = {**data[key], **value} if both else value
    # A different use of an index does not change the index.
    index = own.get("index", {})
    if isinstance(index, dict) and set(index) <= {"mapped", "loaded"}:
        places.pop("index", None)
    # The text identifies the validated content.
    whole = replace(document, text=f"{document.text}\0{inherited.text}", data=data)
    return whole, inherited_places | places


def fields(template: Sequence[str]) -> list[str]:
    """Return the placeholders of an argv template; raises ValueError for braces that do not match."""
    parsed = [part for argument in template for part in string.Formatter().parse(argument)]
    if odd := [field for _, field, spec, conversion in parsed if spec or conversion]:
        raise ValueError(f"{{{odd[0]}}} must be written without : or !")
    return [field for _, field, _, _ in parsed if field is not None]


def mates_placeholder(template: Sequence[str]) -> tuple[int, ...]:
    """Return the mates (0, 1) whose reads a step reads."""
    used = fields(template)
    named = {mate for mate, name in enumerate(MATES) if name in used}
    return tuple(sorted(named.union(*(mates for name, mates in STDIN.items() if name in used))))


def _mistakes(described: AlignerFile, data: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (table, key, reason) for values of the right types that cannot work."""
    index, align = described.index, described.align
    if (groups := re.compile(described.version.pattern).groups) != 1:
        yield "version", "pattern", f"has {groups} groups, one is needed (the version)"
    required = {"index"} if index.with_reference else {"index", "reference"}
    for reason in _wrong_placeholders([index.argv], allowed=required, required=required):
        yield "index", "argv", reason
    if index.loaded:
        for reason in _wrong_placeholders([index.loaded], allowed={"index"}, required={"index"}):
            yield "index", "loaded", reason
        if index.mapped.words:
            yield (
                "index",
                "loaded",
                "the program either maps the files of its index or has loaded the index before",
            )
    required = {"index", "threads", *(["batch_bases"] if align.batch_bases else [])}
    allowed = required | {"scratch", *(["size"] if index.large else [])}
    ways = ("single", align.single, MATES[:1], "stdin"), ("paired", align.paired, MATES, "interleaved")
    for key, steps, mates, stdin in (way for way in ways if way[1]):
        for reason in itertools.chain(
            _wrong_placeholders(steps, allowed=allowed.union(mates, [stdin]), required=required),
            _wrong_reads(steps, len(mates)),
        ):
            yield "align", key, reason
    several = len(align.single) > 1 or len(align.paired) > 1
    if several and any(STDIN.keys() & set(fields(step)) for step in (*align.single, *align.paired)):
        yield "align", "single", "a step reads its standard input, and programs that read several times read files"
    for key, reason in command_syntax.mistakes(data.get("command", {"refused": ""})):
        yield "command", key, reason
    if mistake := messages.mistake(described.summary):
        yield ("summary", *mistake)


def _wrong_placeholders(steps: Sequence[Sequence[str]], *, allowed: set[str], required: set[str]) -> Iterator[str]:
    """Yield the errors of the placeholders in consecutive argv templates."""
    used: set[str] = set()
    for step in steps:
        try:
            in_step = set(fields(step))
        except ValueError as error:
            yield f"{error} in {' '.join(step)}"
            return
        used |= in_step
        if unknown := sorted(in_step - allowed):
            yield f"unknown placeholder {{{unknown[0]}}} in {' '.join(step)}: known are {_names(allowed)}"
    if lacking := required - used:
        yield f"no step has {_names(lacking)}"


def _wrong_reads(steps: Sequence[Sequence[str]], mates: int) -> Iterator[str]:
    """Yield the errors in how the steps read *mates* read files (1 or 2)."""
    covered: set[int] = set()
    for step in steps:
        used = [field for field in fields(step) if field in {*MATES, *STDIN}]
        covered.update(mates_placeholder(step))
        # A pipe can be read once.
        if twice := [field for field in used if used.count(field) > 1]:
            yield f"a step can read {{{twice[0]}}} once only: {' '.join(step)}"
        if not STDIN.keys().isdisjoint(used) and len(used) > 1:
            yield f"a step that reads standard input must read nothing else: {' '.join(step)}"
    if lacking := set(range(mates)) - covered:
        yield f"no step reads {_names({MATES[mate] for mate in lacking})}"


def _names(placeholders: set[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(placeholders)) or "none"


# ----------------------------------------------------------------------
# Aligners

Steps = tuple[tuple[str, ...], ...]


class Aligner(Struct, frozen=True):
    """An aligner as its TOML file describes it, in the tables *index*, *align* and *memory*.

    *package* is its Debian package (empty: none), and *origin* says how to get the program. *batch* is the rule of
    batches, on whose limits the output depends (without conditions: it does not). *command* describes how users
    call it, or the aligner *command_of* with the same options. *own* are the user's options
    (:func:`firsttouch.genomics.command_line.with_options`), and *whole* is why these allow one instance only
    (empty: any number). *index_of* is the aligner whose index it uses. *summary* describes its summary on standard
    error.
    """

    name: str
    program: str
    package: str
    origin: str
    version_command: _VersionCommand
    index: _Index
    align: _Align
    memory: _MemoryNeed
    batch: BatchRule
    command: command_syntax.Syntax | None = None
    command_of: str = ""
    own: tuple[str, ...] = ()
    whole: str = ""
    index_of: str = ""
    summary: messages.AlignerSummary = messages.AlignerSummary()

    @property
    def label(self) -> str:
        """The name with the user's options, for records and reports, because other options are other cases."""
        return shlex.join([self.name, *self.own])

    def steps(self, mates: int) -> Steps:
        """Return the argv templates for single (1) or paired (2) reads, in the order in which they run.

        Raises BadInput for pairs if the aligner aligns single reads only.
        """
        if mates == 2 and not self.align.paired:
            raise BadInput(f"{self.name} aligns single reads only: give one file of reads")
        return self.align.paired if mates == 2 else self.align.single

    def batches(self, bases: int | None = None) -> BatchRule:
        """Return the rule of the batches; *bases* replaces its number of bases."""
        rule = self.batch
        if bases is not None and rule.bases:
            rule = replace(rule, bases=bases)
        return rule

    def on_stdin(self, template: Sequence[str]) -> bool:
        """Return whether a step reads its reads, interleaved if paired, from standard input."""
        return not STDIN.keys().isdisjoint(fields(template))

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

        *reads* are the read files or pipes by mate, None for a mate that the step does not read or reads from
        standard input. *scratch* is a folder of the instance for files that a step passes to the next one. Raises
        KeyError if a read file that the step needs is None.
        """
        values = {"index": str(index), "threads": str(threads), "batch_bases": str(batch_bases)}
        values |= {"scratch": str(scratch), "size": "l" if self.is_large(index) else "s"}
        values |= dict.fromkeys(STDIN, "-")
        values |= {mate: file for mate, file in zip(MATES, reads, strict=False) if file is not None}
        return [a.format(**values) for a in template]

    def index_paths(self, index: Path) -> list[Path]:
        """Return the files of the index with that prefix, whether they exist or not."""
        large = self.index.large if self.is_large(index) else ""
        reference = [index] if self.index.with_reference else []
        return reference + [Path(f"{index}{suffix}{large}") for suffix in self.index.files]

    def index_named(self, path: Path) -> Path:
        """Return the prefix of the index that *path* names: by its prefix, or by one of its files."""
        for suffix in sorted(self.index.files, key=len, reverse=True) if path.is_file() else ():
            name = str(path).removesuffix(self.index.large)
            if name.endswith(suffix) and not Path(f"{path}{suffix}").exists():
                return Path(name.removesuffix(suffix))
        return path

    def index_bytes(self, index: Path) -> int:
        """Return the size (bytes) of the index with that prefix; raises BadInput naming the first missing file."""
        files = self.index_paths(index)
        for file in files:
            if not file.is_file():
                raise BadInput(f"no index of {self.name}: build it with `firsttouch data index`", file=file)
        return sum(file.stat().st_size for file in files)

    def is_large(self, index: Path) -> bool:
        """Return whether only a large index exists; programs prefer the small one."""
        first = f"{index}{self.index.files[0]}"
        return bool(self.index.large) and not Path(first).is_file() and Path(first + self.index.large).is_file()

    @property
    def index_use(self) -> IndexUse:
        """How the program uses the files of its index, which decides what memory instances can share."""
        return "mapped" if self.index.mapped.words else "loaded" if self.index.loaded else "read"

    def mapping_argv(self, argv: Sequence[str], first: int | None = None) -> list[str]:
        """Return *argv* with the words that make the program map its index.

        *first* is the number of words before its options (None: as in the argv templates).
        """
        words, replaced = self.index.mapped.words, self.index.mapped.replaces
        if not words:
            return [*argv]
        if replaced in argv:
            return [word for old in argv for word in (words if old == replaced else (old,))]
        if self.command and self.command.single_words:
            return [*argv, *words]
        if first is None:
            first = len(self.command.begins[0]) if self.command else 1
        return [*argv[:first], *words, *argv[first:]]

    def need(self, index_bytes: int, batch_bases: int | None = None) -> Need:
        """Return the memory that an instance needs; *batch_bases* replaces the aligner's own batch size."""
        batch = self.memory.batch_base * (batch_bases or self.batch.bases)
        return Need(
            round(index_bytes * self.memory.index),
            self.memory.instance + batch,
            self.memory.thread,
            file_bytes=index_bytes,
            index_use=self.index_use,
        )

    def check_header(self, header: bytes) -> None:
        """Raise BadInput if *header*, of an instance that reads pipes, belongs to an index of several parts.

        For each part the program reads all reads again, which a pipe cannot provide, and it writes no references.
        """
        if self.index.parts and not any(line.startswith(b"@SQ\t") for line in header.splitlines()):
            raise BadInput(
                f"{self.name} wrote no @SQ lines: its index has several parts, for each of which it reads all "
                "reads; make an index of one part, with a larger -I"
            )

    def version(self) -> str:
        """Return the installed program's version; raises Missing, or RunFailed if it does not print one."""
        command = self.version_command
        return _version(command.argv, command.pattern, *map(_identity, self._require(self.program)))

    def index_version(self) -> str:
        """Return the version of the program that builds the index; raises what :meth:`version` raises."""
        if not self.index.version:
            return self.version()
        identities = map(_identity, self._require(self.index.version[0]))
        return _version(self.index.version, self.version_command.pattern, *identities)

    def _require(self, *programs: str) -> list[str]:
        """Return the files of *programs*; raises Missing, with the aligner's origin, for one not on PATH."""
        files = [shutil.which(program) for program in programs]
        for program, file in zip(programs, files, strict=True):
            if file is None:
                raise Missing(f"'{program}' is not on PATH: {self.origin}")
        return list(filter(None, files))

    def build_index(self, reference: Path, index: Path, log: Path) -> None:
        """Build the index with prefix *index* from a FASTA file; raises RunFailed with the log's end."""
        self._require(self.program, self.index.argv[0])
        if self.index.with_reference:
            shutil.copyfile(reference, index)
        argv = [a.format(reference=reference, index=index) for a in self.index.argv]
        with log.open("wb") as out, child(argv, stdout=out, stderr=out) as process:
            status = process.wait()
        if status:
            reason = last_lines(log) or "it printed nothing"
            full = atomic_files.full_disk([log, index])
            raise RunFailed(f"{' '.join(argv)} ended with status {status}: {reason}{full and f'; {full}'}")


def _identity(file: str) -> tuple[str, int, int]:
    state = Path(file).stat()
    return file, state.st_size, state.st_mtime_ns


@functools.cache
def _version(argv: Sequence[str], pattern: str, _program: tuple[str, int, int]) -> str:
    """Return the version that *argv* prints; it runs once, unless the program's file changes."""
    try:
        done = run_tool(argv)
    except RunFailed as error:
        raise RunFailed(f"{' '.join(argv)} does not print its version: {error}") from error
    match = re.search(pattern, done.stdout + done.stderr)
    if not match:
        raise RunFailed(f"{' '.join(argv)} does not print its version")
    return match[1]


def _origin(homepage: str, debian: str) -> str:
    """Return how to install the program, as the end of a message."""
    if debian:
        return f"`make setup` installs it (Debian: apt-get install {debian})"
    return f"install it from {homepage}" if homepage else "install it"


def parse(name: str, text: str, file: str) -> Aligner:
    """Return the aligner that a TOML text describes; raises BadInput naming *file*, line and fault."""
    described, data, places = _read(name, text, file)
    index, align = described.index, described.align
    sized = any("size" in fields(step) for step in (*align.single, *align.paired))
    command = command_syntax.syntax(data["command"]) if described.command else None
    if described.command_of:
        command = aligner(described.command_of).command
    summary = described.summary
    batch = BatchRule(align.batch_bases or 0, align.batch_reads or 0, align.batch_bytes or 0)
    return Aligner(
        name,
        described.program,
        described.debian,
        _origin(described.homepage, described.debian),
        described.version,
        replace(index, large=index.large if sized else ""),
        # Restoring the order needs the names.
        replace(align, any_names=align.any_names and align.in_order),
        described.memory,
        replace(batch, names=command is not None and "mates_by_name" in command.flags),
        command,
        command_of=described.command_of or places.get("command", name),
        index_of=places["index"],
        summary=aligner(summary.of).summary if summary.of else messages.summary(summary),
    )


def names() -> list[str]:
    """Return the names of all aligners, sorted."""
    return list(_files())


def _files() -> dict[str, Path]:
    return paths.data_files("aligners", ".toml")


def file_of(name: str) -> Path:
    """Return the file that describes the aligner *name*; raises BadInput for an unknown name."""
    files = _files()
    if name not in files:
        raise BadInput(none_such("aligner", name, files))
    return files[name]


@functools.cache
def aligner(name: str) -> Aligner:
    """Return the aligner *name*; raises BadInput for an unknown name or an invalid file."""
    file = file_of(name)
    return parse(name, documents.read_text(file), str(file))


def aligners() -> dict[str, Aligner]:
    """Return all aligners by name; raises BadInput for the first invalid file."""
    return {name: aligner(name) for name in names()}


# ----------------------------------------------------------------------
# Indexes, built once for each aligner, version and reference


def index_prefix(aligner: Aligner, reference: Path, store: Path, sha256: str = "") -> Path:
    """Return the prefix that *aligner*'s index of the FASTA file *reference* has in *store*, built or not.

    The folder's name has the version of the program that builds it and the reference's *sha256* (computed if
    empty), which excludes an index of another genome or program. Raises Missing or RunFailed for the aligner.
    """
    checksum = sha256 or atomic_files.digest(reference)
    return store / f"{aligner.index_of}-{aligner.index_version()}-{checksum[:16]}" / "index"


def get_index(
    aligner: Aligner, reference: Path, store: Path, *, sha256: str = "", say: Callable[[str], None] = print
) -> Path:
    """Return the prefix of *aligner*'s index of the FASTA file *reference* in *store*, and build it if needed.

    A lock prevents concurrent builds, and a killed build leaves no index. An index that lacks a file is built
    again. *say* gets progress messages. Raises Missing or RunFailed.
    """
    prefix = index_prefix(aligner, reference, store, sha256)
    folder = prefix.parent
    store.mkdir(parents=True, exist_ok=True)
    with lock_file(store / f".{folder.name}.lock"):
        if folder.is_dir():
            try:
                aligner.index_bytes(prefix)
            except BadInput as error:
                say(f"building the index again, because it is damaged: {error}")
                shutil.rmtree(folder)
            else:
                return prefix
        say(f"building the index of {reference.name} for {aligner.name}")
        with atomic_files.replace(folder) as partial:
            partial.mkdir()
            aligner.build_index(reference, partial / "index", partial / "build.log")
            aligner.index_bytes(partial / "index")
    return prefix
