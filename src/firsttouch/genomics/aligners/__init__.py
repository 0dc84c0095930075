# SPDX-License-Identifier: Apache-2.0
"""Aligners as data: one TOML file each says how to index, to align and to find the version.

A file may describe variants, which differ in the program, in options, or in how they read and write.
"""

from __future__ import annotations

import functools
import itertools
import re
import shlex
import shutil
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from firsttouch import documents, paths
from firsttouch.documents import table_schema
from firsttouch.errors import BadInput, Missing, RunFailed, none_such
from firsttouch.execution.child_process import child, last_lines
from firsttouch.genomics import command_syntax, messages
from firsttouch.genomics.reads import BatchRule
from firsttouch.records import atomic_files
from firsttouch.records.file_lock import locked
from firsttouch.scenarios.memory_fit import IndexUse, Need
from firsttouch.tools import run_tool
from firsttouch.units import parse_bytes

# ----------------------------------------------------------------------
# The TOML file of an aligner, and the placeholders of its argv templates

#: What all scenarios have in common: every alignment, or what :func:`firsttouch.genomics.sam.settled` keeps, with
#: the scores only.
SAME = ("exact", "settled", "scored")
_WORDS = {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}
_STEPS = {"type": "array", "items": _WORDS, "minItems": 1}
_WORD = {"type": "string", "minLength": 1}
_BYTES = _WORD | {"quantity": "bytes"}
_COUNT = {"type": "integer", "minimum": 1}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


_URL = {"type": "string", "pattern": r"^https?://\S+$"}
_VARIANT = table_schema(
    {},
    {
        "program": _WORD,
        "homepage": _URL,
        "words": _WORDS,
        "blocked": table_schema({"bytes": _COUNT, "reads": _COUNT}),
        "outputs": table_schema({"file": _WORD, "number": _COUNT}),
        "make": _WORD,
    },
)
SCHEMA: dict[str, Any] = table_schema(
    {
        "program": _WORD,
        "version": table_schema({"argv": _WORDS, "pattern": _WORD | {"regex": True}}),
        "index": table_schema(
            {"argv": _WORDS, "files": _WORDS},
            {
                "version": _WORDS,
                "large": _WORD,
                "with_reference": {"type": "boolean"},
                "parts": {"type": "boolean"},
                "mapped": table_schema({"words": _WORDS}, {"replaces": _WORD}),
                "loaded": _WORDS,
            },
        ),
        "align": table_schema(
            {"single": _STEPS, "in_order": {"type": "boolean"}, "same": {"enum": list(SAME)}},
            {
                "paired": _STEPS,
                "files": {"type": "boolean"},
                "any_names": {"type": "boolean"},
                "output": _WORD,
                "batch_bases": _COUNT,
                "batch_reads": _COUNT,
                "batch_bytes": _COUNT,
            },
        ),
        "memory": table_schema(
            {"instance": _BYTES, "thread": _BYTES},
            {"batch_base": _BYTES, "index": {"type": "number", "minimum": 1}},
        ),
    },
    {
        "debian": _WORD,
        "homepage": _URL,
        "base": _WORD,
        "only_variants": {"type": "boolean"},
        "variants": {"type": "object", "additionalProperties": _VARIANT, "minProperties": 1},
        "command_of": _WORD,
        "command": command_syntax.SCHEMA,
        "summary": messages.SCHEMA,
    },
)
SCHEMA["dependentRequired"] = {"only_variants": ["variants"]}
#: Placeholders of the read files, by mate.
MATES = ("reads", "reads2")
#: Placeholders, with their mates, for programs that read pipes only as standard input.
STDIN = {"stdin": (0,), "interleaved": (0, 1)}


def read(name: str, text: str, file: str) -> tuple[documents.Document, dict[str, str]]:
    """Return an aligner's TOML *text* with what it inherits, and the name of the file that has each table.

    Raises BadInput naming *file*, line and fault.
    """
    document, places = _with_base(documents.parse_toml(text, file), (name,))
    document.check(SCHEMA)
    for table, key, reason in _mistakes(document.data):
        raise document.error(f"{table}.{key}: {reason}", table, key)
    return document, places


def _with_base(document: documents.Document, names: tuple[str, ...]) -> tuple[documents.Document, dict[str, str]]:
    """Return *document* with what it inherits, and the name of the file that has each table.

    *names* are those of the files on the way to it, the last one its own.
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
    inherited.check(SCHEMA)
    # Another program is not in that package.
    dropped = {"variants", "only_variants", *(["debian"] if "program" in own else [])}
    data = {key: value for key, value in inherited.data.items() if key not in dropped}
    for key, value in own.items():
        both = isinstance(value, dict) and isinstance(data.get(key), dict)
        data[key] = {**data[key], **value} if both else value
    # Another way to use an index does not make it another index.
    index = own.get("index", {})
    if isinstance(index, dict) and set(index) <= {"mapped", "loaded"}:
        places.pop("index", None)
    # The text identifies what has been validated.
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


def _mistakes(data: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (table, key, reason) for values that match the schema but cannot work."""
    if (groups := re.compile(data["version"]["pattern"]).groups) != 1:
        yield "version", "pattern", f"has {groups} groups, one is needed (the version)"
    required = {"index"} if data["index"].get("with_reference") else {"index", "reference"}
    for reason in _wrong_placeholders([data["index"]["argv"]], allowed=required, required=required):
        yield "index", "argv", reason
    if "loaded" in data["index"]:
        for reason in _wrong_placeholders([data["index"]["loaded"]], allowed={"index"}, required={"index"}):
            yield "index", "loaded", reason
        if "mapped" in data["index"]:
            yield (
                "index",
                "loaded",
                "the program either maps the files of its index or has loaded the index before",
            )
    align = data["align"]
    required = {"index", "threads", *(["batch_bases"] if "batch_bases" in align else [])}
    allowed = required | {"scratch", *(["size"] if "large" in data["index"] else [])}
    for key, mates, stdin in (("single", MATES[:1], "stdin"), ("paired", MATES, "interleaved")):
        steps = align.get(key, [])
        for reason in (
            itertools.chain(
                _wrong_placeholders(steps, allowed=allowed.union(mates, [stdin]), required=required),
                _wrong_reads(steps, len(mates)),
            )
            if steps
            else ()
        ):
            yield "align", key, reason
    yield from _mistakes_of_files(align)
    for key, reason in command_syntax.mistakes(data.get("command", {"refused": ""})):
        yield "command", key, reason
    if mistake := messages.mistake(data.get("summary", {})):
        yield ("summary", *mistake)
    for name, variant in data.get("variants", {}).items():
        for reason in _mistakes_of_variant(name, variant, align):
            yield "variants", name, reason


def _mistakes_of_files(align: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (table, key, reason) for the faults of how a program reads and writes files."""
    steps = [*align["single"], *align.get("paired", [])]
    reads_files = align.get("files") or any(len(align.get(key, ())) > 1 for key in ("single", "paired"))
    if reads_files and any(STDIN.keys() & set(fields(step)) for step in steps):
        key = "files" if align.get("files") else "single"
        yield "align", key, "a step reads its standard input, and programs that read several times read files"
    if "output" in align:
        for reason in _wrong_placeholders([[align["output"]]], allowed={"scratch"}, required={"scratch"}):
            yield "align", "output", reason


def _mistakes_of_variant(name: str, variant: Mapping[str, Any], align: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults of a variant that match the schema but cannot work."""
    if not _NAME.fullmatch(name):
        yield "a variant's name has letters, digits, and _ . - between them"
    if not variant:
        yield "it differs in nothing"
    if any(len(align.get(key, [0])) > 1 for key in ("single", "paired")):
        yield "an aligner that runs several programs has no variants"
    blocked = {"block_bytes", "block_reads"} if "blocked" in variant else set()
    outputs = {"outputs"} if "outputs" in variant else set()
    words = variant.get("words", [])
    allowed = blocked | outputs | ({"scratch"} if outputs else set())
    for reason in _wrong_placeholders([words], allowed=allowed, required=blocked | outputs):
        yield f"words: {reason}"
    if outputs:
        file = variant["outputs"]["file"]
        both = {"scratch", "output"}
        for reason in _wrong_placeholders([[file]], allowed=both, required=both):
            yield f"outputs.file: {reason}"


def _wrong_placeholders(steps: Sequence[Sequence[str]], *, allowed: set[str], required: set[str]) -> Iterator[str]:
    """Yield the faults of the placeholders in argv templates that run one after the other."""
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
    """Yield the faults of how the steps read their *mates* read files (1 or 2)."""
    covered: set[int] = set()
    for step in steps:
        used = [field for field in fields(step) if field in {*MATES, *STDIN}]
        covered.update(mates_placeholder(step))
        # A pipe can be read once.
        if twice := [field for field in used if used.count(field) > 1]:
            yield f"a step can read {{{twice[0]}}} once only: {' '.join(step)}"
        if not STDIN.keys().isdisjoint(used) and len(used) > 1:
            yield f"a step that reads its standard input reads nothing else: {' '.join(step)}"
    if lacking := set(range(mates)) - covered:
        yield f"no step reads {_names({MATES[mate] for mate in lacking})}"


def _names(placeholders: set[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(placeholders)) or "none"


# ----------------------------------------------------------------------
# Aligners

Steps = tuple[tuple[str, ...], ...]


class Blocks(Struct, frozen=True):
    """Blocked input: a file has *reads* reads, that of a mate as many mates, in each *size* bytes."""

    size: int
    reads: int


class Aligner(Struct, frozen=True):
    """An aligner as its TOML file describes it.

    *package* is its Debian package (empty: none), and *origin* says how to get the program. *index_files* are the
    suffixes of the index files; an index with 64-bit offsets adds *index_large* (empty: there is only one kind).
    *with_reference*: the index's prefix is the FASTA file, beside which the program writes the index files.
    With the words *index_mapped*, in place of the word *index_replaced* if a command has that, the program maps
    these files. *index_loaded* is the argv that loads an index into /dev/shm, where the program finds and maps it.
    *index_parts*: an index may have several parts, see :meth:`check_header`.
    *single* and *paired* (empty: it aligns no pairs) are the argv templates of the steps; the last step writes SAM
    to its standard output.

    *in_order*: the output keeps the order of the input with any number of threads. *same* is one of SAME. The
    output depends on where batches begin by the rule *batch* (without conditions: it does not).
    *instance_bytes* and *thread_bytes* are the memory of an instance and of each of its threads in addition to
    the index, which takes *index_times* the size of its files, and *batch_base_bytes* that of each base of a
    batch. *command* is how users call it, or the aligner *command_of* with the same options. *own* are options
    that the user adds to the templates' (:func:`firsttouch.genomics.command_line.extended`), and *whole* is why
    these allow one instance only (empty: any number).

    *index_of* is the aligner whose index it uses, and *index_version_argv* the argv that prints the version of the
    program that builds it (empty: the aligner's). *blocks*: the program reads blocked input, and *files*: it reads
    no pipes. *any_names*: it aligns mates whose names differ. *output* is the template of the name of the file, or
    of *outputs* files, that it writes (empty: it writes its standard output). *summary* describes what it prints
    about its alignments on standard error.
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
    with_reference: bool
    single: Steps
    paired: Steps
    in_order: bool
    same: str
    batch: BatchRule
    instance_bytes: int
    thread_bytes: int
    batch_base_bytes: int = 0
    index_times: float = 1
    index_parts: bool = False
    index_mapped: tuple[str, ...] = ()
    index_replaced: str = ""
    index_loaded: tuple[str, ...] = ()
    command: command_syntax.Syntax | None = None
    command_of: str = ""
    own: tuple[str, ...] = ()
    whole: str = ""
    index_of: str = ""
    index_version_argv: tuple[str, ...] = ()
    blocks: Blocks | None = None
    files: bool = False
    any_names: bool = False
    output: str = ""
    outputs: int = 1
    summary: messages.Summary = messages.Summary()

    @property
    def label(self) -> str:
        """The name with the user's own options, in records and reports: other options are other cases."""
        return shlex.join([self.name, *self.own])

    def steps(self, mates: int) -> Steps:
        """Return the argv templates for single (1) or paired (2) reads, in the order in which they run.

        Raises BadInput for pairs if the aligner aligns single reads only.
        """
        if mates == 2 and not self.paired:
            raise BadInput(f"{self.name} aligns single reads only: give one file of reads")
        return self.paired if mates == 2 else self.single

    def batches(self, bases: int | None = None) -> BatchRule:
        """Return the rule of the batches; *bases* replaces the own number."""
        rule = self.batch
        if bases is not None and rule.bases:
            rule = replace(rule, bases=bases)
        return replace(rule, records=self.blocks.reads, block=self.blocks.size) if self.blocks else rule

    def output_files(self, scratch: Path) -> list[Path]:
        """Return the files of an instance that the program writes in place of its standard output."""
        numbers = range(1, self.outputs + 1) if self.output else ()
        return [Path(self.output.format(scratch=scratch, output=number)) for number in numbers]

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
        standard input. *scratch* is a folder of the instance for files that one step leaves to the next. Raises
        KeyError if a read file that the step needs is None.
        """
        values = {"index": str(index), "threads": str(threads), "batch_bases": str(batch_bases)}
        values |= {"scratch": str(scratch), "size": "l" if self.is_large(index) else "s"}
        values |= dict.fromkeys(STDIN, "-")
        if self.blocks:
            values |= {"block_bytes": str(self.blocks.size), "block_reads": str(self.blocks.reads)}
        values["outputs"] = str(self.outputs)
        values |= {mate: file for mate, file in zip(MATES, reads, strict=False) if file is not None}
        return [a.format(**values) for a in template]

    def index_paths(self, index: Path) -> list[Path]:
        """Return the files of the index with that prefix, whether they exist or not."""
        large = self.index_large if self.is_large(index) else ""
        reference = [index] if self.with_reference else []
        return reference + [Path(f"{index}{suffix}{large}") for suffix in self.index_files]

    def index_bytes(self, index: Path) -> int:
        """Return the size (bytes) of the index with that prefix; raises BadInput naming the first missing file."""
        files = self.index_paths(index)
        for file in files:
            if not file.is_file():
                raise BadInput(f"no index of {self.name} there: build it with `firsttouch data index`", file=file)
        return sum(file.stat().st_size for file in files)

    def is_large(self, index: Path) -> bool:
        """Return whether only a large index exists; programs prefer the small one."""
        first = f"{index}{self.index_files[0]}"
        return bool(self.index_large) and not Path(first).is_file() and Path(first + self.index_large).is_file()

    @property
    def index_use(self) -> IndexUse:
        """How the program uses the files of its index, which says what memory instances can share."""
        return "mapped" if self.index_mapped else "loaded" if self.index_loaded else "read"

    def mapping(self, argv: Sequence[str], first: int | None = None) -> list[str]:
        """Return *argv* with the words that let the program map its index.

        *first* is the number of words before its options (None: as the argv templates have them).
        """
        words, replaced = self.index_mapped, self.index_replaced
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
        batch = self.batch_base_bytes * (batch_bases or self.batch.bases)
        return Need(
            round(index_bytes * self.index_times),
            self.instance_bytes + batch,
            self.thread_bytes,
            file_bytes=index_bytes,
            index_use=self.index_use,
        )

    def check_header(self, header: bytes) -> None:
        """Raise BadInput if *header*, of an instance that reads pipes, belongs to an index of several parts.

        The program reads all reads again for each part, which a pipe does not give, and writes no references.
        """
        if self.index_parts and not any(line.startswith(b"@SQ\t") for line in header.splitlines()):
            raise BadInput(
                f"{self.name} wrote no @SQ lines: its index has several parts, for each of which it reads all "
                "reads; make an index of one part, with a larger -I"
            )

    def version(self) -> str:
        """Return the installed program's version; raises Missing, or RunFailed if it does not print one."""
        return _version(self.version_argv, self.version_pattern, *map(_identity, self._require(self.program)))

    def index_version(self) -> str:
        """Return the version of the program that builds the index; raises what :meth:`version` raises."""
        if not self.index_version_argv:
            return self.version()
        identities = map(_identity, self._require(self.index_version_argv[0]))
        return _version(self.index_version_argv, self.version_pattern, *identities)

    def _require(self, *programs: str) -> list[str]:
        """Return the files of *programs*; raises Missing, with the aligner's origin, for one not on PATH."""
        files = [shutil.which(program) for program in programs]
        for program, file in zip(programs, files, strict=True):
            if file is None:
                raise Missing(f"'{program}' is not on PATH: {self.origin}")
        return list(filter(None, files))

    def build_index(self, reference: Path, index: Path, log: Path) -> None:
        """Build the index with prefix *index* from a FASTA file; raises RunFailed with the log's end."""
        self._require(self.program, self.index_argv[0])
        if self.with_reference:
            shutil.copyfile(reference, index)
        argv = [a.format(reference=reference, index=index) for a in self.index_argv]
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
    """Return the version that *argv* prints; it is asked once, unless the program's file has changed."""
    try:
        done = run_tool(argv)
    except RunFailed as error:
        raise RunFailed(f"{' '.join(argv)} does not print its version: {error}") from error
    match = re.search(pattern, done.stdout + done.stderr)
    if not match:
        raise RunFailed(f"{' '.join(argv)} does not print its version")
    return match[1]


def _origin(data: Mapping[str, Any]) -> str:
    """Return how to install the program, as the end of a message."""
    if "debian" in data:
        return f"`make setup` installs it (Debian: apt-get install {data['debian']})"
    if "make" in data:
        return f"`make {data['make']}` builds it"
    return "install it" + (f" from {data['homepage']}" if "homepage" in data else "")


def _command(data: Mapping[str, Any]) -> command_syntax.Syntax | None:
    if "command_of" in data:
        return aligner(data["command_of"]).command
    return command_syntax.syntax(data["command"]) if "command" in data else None


def _summary(data: Mapping[str, Any]) -> messages.Summary:
    table = data.get("summary", {})
    return aligner(table["of"]).summary if "of" in table else messages.summary(table)


def parse(name: str, text: str, file: str) -> Aligner:
    """Return the aligner that a TOML text describes; raises BadInput naming *file*, line and fault."""
    described = family(name, text, file)
    if name not in described:
        raise BadInput(f"{name} has only variants: name one of {', '.join(described)}", file=file)
    return described[name]


def family(name: str, text: str, file: str) -> dict[str, Aligner]:
    """Return the aligner that a TOML text describes, and its variants, by name.

    Raises BadInput naming *file*, line and fault.
    """
    document, places = read(name, text, file)
    data = document.data
    align: Mapping[str, Any] = data["align"]
    templates = {key: tuple(map(tuple, align.get(key, []))) for key in ("single", "paired")}
    sized = any("size" in fields(step) for steps in templates.values() for step in steps)
    command = _command(data)
    batch = BatchRule(*(align.get(f"batch_{unit}", 0) for unit in ("bases", "reads", "bytes")))
    main = Aligner(
        name=name,
        program=data["program"],
        package=data.get("debian", ""),
        origin=_origin(data),
        version_argv=tuple(data["version"]["argv"]),
        version_pattern=data["version"]["pattern"],
        index_argv=tuple(data["index"]["argv"]),
        index_files=tuple(data["index"]["files"]),
        index_large=data["index"].get("large", "") if sized else "",
        with_reference=data["index"].get("with_reference", False),
        single=templates["single"],
        paired=templates["paired"],
        in_order=align["in_order"],
        same=align["same"],
        batch=replace(batch, names=command is not None and "mates_by_name" in command.flags),
        instance_bytes=parse_bytes(data["memory"]["instance"]),
        thread_bytes=parse_bytes(data["memory"]["thread"]),
        batch_base_bytes=parse_bytes(data["memory"].get("batch_base", "0 B")),
        index_times=data["memory"].get("index", 1),
        index_parts=data["index"].get("parts", False),
        index_mapped=tuple(data["index"].get("mapped", {}).get("words", ())),
        index_replaced=data["index"].get("mapped", {}).get("replaces", ""),
        index_loaded=tuple(data["index"].get("loaded", ())),
        command=command,
        files=align.get("files", False),
        # An order that is restored is restored by the names.
        any_names=align.get("any_names", False) and align["in_order"],
        output=align.get("output", ""),
        command_of=data.get("command_of", places.get("command", name)),
        index_of=places["index"],
        index_version_argv=tuple(data["index"].get("version", ())),
        summary=_summary(data),
    )
    variants = {f"{name}-{key}": table for key, table in data.get("variants", {}).items()}
    return {
        **({} if data.get("only_variants") else {name: main}),
        **{variant: _variant(main, variant, table) for variant, table in variants.items()},
    }


def _variant(main: Aligner, name: str, table: Mapping[str, Any]) -> Aligner:
    """Return the variant *name* of an aligner: its *program*, with its *words* as the last ones."""
    program, words = table.get("program"), tuple(table.get("words", ()))
    blocked, outputs = table.get("blocked", {}), table.get("outputs", {})
    single, paired = (
        tuple((program or step[0], *step[1:], *words) for step in steps) for steps in (main.single, main.paired)
    )
    variant = replace(
        main,
        name=name,
        single=single,
        paired=paired,
        in_order=main.in_order and not outputs,
        blocks=Blocks(blocked["bytes"], blocked["reads"]) if blocked else None,
        output=outputs.get("file", main.output),
        outputs=outputs.get("number", 1),
    )
    if program is None:
        return variant
    sized = any("size" in fields(step) for step in (*single, *paired))
    return replace(
        variant,
        program=program,
        package="",
        origin=_origin(table),
        version_argv=(program, *main.version_argv[1:]),
        index_large=main.index_large if sized else "",
    )


def names() -> list[str]:
    """Return the names of all aligners, sorted, without variants: these are used only if they are named."""
    return [name for name, file in _files().items() if not _has_only_variants(file)]


def families() -> list[str]:
    """Return the names of the aligners' files, sorted."""
    return list(_files())


def all_names() -> list[str]:
    """Return the names of all aligners and variants; of a file that is wrong, its own name."""
    listed: list[str] = []
    for name in families():
        try:
            listed += family_of(name)
        except BadInput:
            listed.append(name)
    return listed


def _files() -> dict[str, Path]:
    return paths.data_files("aligners", ".toml")


def _has_only_variants(file: Path) -> bool:
    """Return whether a file has variants only; a file that is wrong is reported when its aligner is used."""
    try:
        return _states_only_variants(documents.read_text(file), str(file))
    except BadInput:
        return False


@functools.cache
def _states_only_variants(text: str, source: str) -> bool:
    return bool(documents.parse_toml(text, source).data.get("only_variants"))


def file_of(name: str) -> Path:
    """Return the file that describes the aligner or variant *name*; raises BadInput for an unknown name."""
    files = _files()
    # A file is preferred to a variant of that name.
    if name in files:
        return files[name]
    parts = name.split("-")
    stems = ["-".join(parts[:count]) for count in range(len(parts) - 1, 0, -1)]
    for stem in filter(files.__contains__, stems):
        described = family_of(stem)
        if name in described:
            return files[stem]
        if len(described) > 1:
            raise BadInput(none_such("aligner", name, described))
    raise BadInput(none_such("aligner", name, names()))


def family_of(name: str) -> dict[str, Aligner]:
    """Return the aligners that the file *name* describes, by name; raises BadInput."""
    file = _files()[name]
    return family(name, documents.read_text(file), str(file))


@functools.cache
def aligner(name: str) -> Aligner:
    """Return the aligner or variant *name*; raises BadInput for an unknown name or an invalid file."""
    file = file_of(name)
    if name == file.stem:
        return parse(name, documents.read_text(file), str(file))
    return family_of(file.stem)[name]


def aligners() -> dict[str, Aligner]:
    """Return all aligners by name, without variants; raises BadInput for the first invalid file."""
    return {name: aligner(name) for name in names()}


# ----------------------------------------------------------------------
# Indexes, built once for each aligner, version and reference


def index_prefix(aligner: Aligner, reference: Path, store: Path, sha256: str = "") -> Path:
    """Return the prefix that *aligner*'s index of the FASTA file *reference* has in *store*, built or not.

    The folder's name has the version of the program that builds it and the reference's *sha256* (computed if
    empty), which excludes an index of another genome or program. Variants share an index. Raises Missing or
    RunFailed for the aligner.
    """
    checksum = sha256 or atomic_files.digest(reference)
    return store / f"{aligner.index_of}-{aligner.index_version()}-{checksum[:16]}" / "index"


def built(
    aligner: Aligner, reference: Path, store: Path, *, sha256: str = "", say: Callable[[str], None] = print
) -> Path:
    """Return the prefix of *aligner*'s index of the FASTA file *reference* in *store*, and build it if needed.

    A lock prevents concurrent builds, and a killed build leaves no index. An index that lacks a file is built
    again. *say* gets progress messages. Raises Missing or RunFailed.
    """
    prefix = index_prefix(aligner, reference, store, sha256)
    folder = prefix.parent
    store.mkdir(parents=True, exist_ok=True)
    with locked(store / f".{folder.name}.lock"):
        if folder.is_dir():
            try:
                aligner.index_bytes(prefix)
            except BadInput as error:
                say(f"building the index again, as it is damaged: {error}")
                shutil.rmtree(folder)
            else:
                return prefix
        say(f"building the index of {reference.name} for {aligner.name}")
        with atomic_files.replacing(folder) as partial:
            partial.mkdir()
            aligner.build_index(reference, partial / "index", partial / "build.log")
            aligner.index_bytes(partial / "index")
    return prefix
