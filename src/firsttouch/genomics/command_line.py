# SPDX-License-Identifier: Apache-2.0
"""Interprets a user's command of an aligner, and makes the commands of its instances."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from firsttouch.errors import BadInput
from firsttouch.execution import counters
from firsttouch.genomics import aligners
from firsttouch.genomics.aligners import Aligner, Steps
from firsttouch.genomics.command_syntax import ROLES, Argument, Arguments, Syntax, divide
from firsttouch.genomics.index_copies import OWN, IndexUse, has_several_parts
from firsttouch.genomics.reads import BatchRule, is_fasta
from firsttouch.genomics.recognition import recognize
from firsttouch.genomics.sinks import with_indexes
from firsttouch.records import atomic_files

#: Names of standard output.
_STDOUT = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
#: The roles of options whose values are read files.
_INPUTS = ("single", "mates1", "mates2", "interleaved")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


class UserCommand(Struct, frozen=True):
    """A user's command that aligns reads.

    *words* is the command, unchanged. *index* is the prefix, folder or file of the index, where the program finds
    it; None if it is unknown. *lanes* are the inputs, each one file, or two files with mates; "-" is the standard
    input. *interleaved*: mates follow each other in one file. *threads* is the user's number, else the aligner's
    default. *batch* (also in *aligner*) is how this command divides its reads into batches. *output* is the file
    for its SAM; None if it writes to standard output, or writes the file itself because it cannot be divided.
    *whole* is why it must run as one instance (:meth:`unsplit`), or empty if its reads can be divided. Its
    *arguments* begin at word *first*.
    """

    aligner: Aligner
    words: tuple[str, ...]
    index: Path | None
    lanes: tuple[tuple[str, ...], ...]
    interleaved: bool
    threads: int
    batch: BatchRule
    output: Path | None
    whole: str
    arguments: Arguments
    first: int

    @property
    def mates(self) -> int:
        """The number of reads of a record: 2 for pairs, otherwise 1."""
        return 2 if self.interleaved or any(len(lane) == 2 for lane in self.lanes) else 1

    @property
    def pipes(self) -> int:
        """Number of pipes from which an instance reads: 2 for mates, 1 for single or interleaved reads."""
        return 1 + any("{reads2}" in word for word in self._inputs())

    @property
    def roles(self) -> frozenset[str]:
        """The roles of its arguments."""
        return self.arguments.roles

    @property
    def sam_option(self) -> str:
        """The option that the command needs to write SAM; empty if it does so anyway."""
        options = self._syntax.roles.get("sam", ())
        return options[0] if options and "sam" not in self.roles else ""

    @property
    def summary_file(self) -> Path | None:
        """The file for the aligner's summary, which instances of a divided command do not write."""
        argument = None if self.whole else self.arguments.last("summary")
        return Path(argument.values[-1]) if argument else None

    @property
    def on_stdin(self) -> bool:
        """Whether an instance reads its reads, interleaved if paired, from standard input."""
        return "pipe_on_stdin" in self._syntax.flags

    @property
    def own(self) -> tuple[str, ...]:
        """The options that concern alignments, in the form for :func:`with_options`."""
        kept = [a for a in self.arguments.items if a.name not in {"", "--"} and not a.role]
        return tuple(word for argument in kept for word in argument.alone(self._syntax.arity))

    @property
    def reads_files(self) -> bool:
        """Whether an instance reads files: a command that can be divided reads pipes."""
        return False

    def argvs(
        self,
        *,
        threads: int,
        reads: Sequence[str],
        use: IndexUse,
        scratch: Path,  # noqa: ARG002 - for commands of several programs
    ) -> list[list[str]]:
        """Return the argv of the only program of one instance, as :meth:`argv`."""
        return [self.argv(threads=threads, reads=reads, use=use)]

    def as_typed(self) -> str:
        """Return the command as typed into a shell."""
        return shlex.join(self.words)

    def argv(self, *, threads: int, reads: Sequence[str], use: IndexUse = OWN) -> list[str]:
        """Return the argv of one instance with *threads* threads, which reads the *reads*, one name for each pipe.

        *use* is how it uses the index. Options about anything but threads, reads, batches and output stay
        unchanged and in place. Raises ValueError if the command cannot be split, or for another number of pipes.
        """
        if self.whole or len(reads) != self.pipes:
            raise ValueError(self.whole or f"{self.pipes} pipes are needed, not {len(reads)}")
        names = {"reads": reads[0], "reads2": reads[-1]}
        inputs = [word.format(**names) for word in self._inputs()]
        replaced = self._numbers(threads) | self._other_index(use)
        for number, argument in enumerate(self.arguments.items):
            if argument.role == "interleaved" and not argument.values:
                # The flag for interleaved pairs in one pipe.
                if self.pipes == 2:
                    replaced[number] = []
            elif argument.role in {*_INPUTS, "reads", "reads2"}:
                replaced[number], inputs = inputs, []
            elif argument.role in {"output", "removes", "large", "summary"}:
                replaced[number] = []
        given = {argument.name for argument in self.arguments.items}
        further = self._absent(threads) + [word for word in self._syntax.adds if word not in given]
        further += [*self._syntax.stdout, *inputs]
        program = self._program(use.prefix)
        return use.argv(self.aligner, self._joined(program, replaced, further), len(program))

    def unsplit(self, threads: int | None = None, use: IndexUse = OWN) -> list[str]:
        """Return the argv of the unchanged command, but with SAM on standard output instead of in *output*.

        *threads* replaces the user's number; the batches stay the same. *use* is how it uses the index.
        """
        replaced = self._other_index(use)
        further: list[str] = []
        if threads not in {None, self.threads} and self._syntax.roles.get("threads"):
            replaced |= self._numbers(threads or 1)
            further = self._absent(threads or 1)
        if self.output is not None:
            replaced |= {number: [] for number, a in enumerate(self.arguments.items) if a.role == "output"}
            further += self._syntax.stdout
        argv = list(self.words)
        if replaced or further:
            argv = self._joined(self.words[: self.first], replaced, further)
        return use.argv(self.aligner, argv, self.first)

    def with_threads(self, threads: int) -> UserCommand:
        """Return the command with *threads* in place of the user's number, and the same batches.

        Raises BadInput for a program without an option for threads.
        """
        if not self._syntax.roles.get("threads"):
            raise BadInput(f"--threads: {shlex.join(self.words[: self.first])} has no option for threads")
        program = self.words[: self.first]
        return parse(self._joined(program, self._numbers(threads), self._absent(threads)))

    def files(self) -> list[Path]:
        """Return every file that the command may read: the program, the index, and files that its words name.

        Its output is not one of them.
        """
        return self._read_files(self._outputs())

    def written_files(self) -> list[Path]:
        """Return the files that the program itself writes: its output and the files of its options."""
        outputs = [v for a in self._outputs() for v in a.values[-1:] if self.output is None and v != "-"]
        names = [name for a in self.arguments.items for name in self._syntax.files_written(a.name, a.values)]
        return _paths([*outputs, *names])

    def refuse_overwriting(self, further: Iterable[Path] = ()) -> None:
        """Raise BadInput if the program would write into a file that the command reads, or one of *further*."""
        writing = [a for a in self.arguments.items if a.name in self._syntax.writes]
        _refuse_overwriting(self.written_files(), [*self._read_files([*self._outputs(), *writing]), *further])

    def _outputs(self) -> list[Argument]:
        """Return the arguments that name the output."""
        return [a for a in self.arguments.items if a.role == "output"]

    def _read_files(self, skipped: Iterable[Argument]) -> list[Path]:
        """Return the program, the index, and the files that the words without the *skipped* arguments may name."""
        numbers = {number for argument in skipped for number in range(argument.start, argument.end)}
        words = [word for number, word in enumerate(self.words) if number not in numbers]
        values = [value for a in self.arguments.items if a.start not in numbers for value in a.values]
        index = self.aligner.index_paths(self.index) if self.index else []
        return [*programs([self.words[0], self._program()[0]]), *index, *named_files([*words, *values])]

    @property
    def index_name(self) -> str:
        """The index as the command names it."""
        argument = self.arguments.last("index")
        return argument.values[-1] if argument else ""

    def _other_index(self, use: IndexUse) -> dict[int, list[str]]:
        """Return, by number, the new words of the arguments that name the index."""
        if use.prefix is None:
            return {}
        name = str(use.prefix) + self._syntax.index_suffix
        return {
            number: replace(argument, values=(*argument.values[:-1], name)).alone(self._syntax.arity)
            for number, argument in enumerate(self.arguments.items)
            if argument.role == "index"
        }

    # ------------------------------------------------------------------

    @property
    def _syntax(self) -> Syntax:
        return _syntax(self.aligner)

    def _inputs(self) -> tuple[str, ...]:
        """Return the template of the words that name an instance's pipes."""
        pipes = self._syntax.pipes
        if self.mates == 1:
            return pipes["single"]
        return pipes["interleaved"] if self.interleaved and "interleaved" in pipes else pipes["paired"]

    def _values(self, threads: int) -> dict[str, int]:
        return {"threads": threads} | ({"batch": self.batch.bases} if self.batch.bases else {})

    def _numbers(self, threads: int) -> dict[int, list[str]]:
        """Return, by number, the new words of the arguments for threads and batches."""
        values = self._values(threads)
        return {
            number: replace(argument, values=(str(values[argument.role]),)).alone(self._syntax.arity)
            for number, argument in enumerate(self.arguments.items)
            if argument.role in values
        }

    def _absent(self, threads: int) -> list[str]:
        """Return the options for threads and batches that the user did not give."""
        options = self._syntax.roles
        absent = [role for role in self._values(threads) if role in options and role not in self.roles]
        return [word for role in absent for word in (options[role][0], str(self._values(threads)[role]))]

    def _joined(
        self, program: Sequence[str], replaced: Mapping[int, list[str]], further: Sequence[str]
    ) -> list[str]:
        """Return the words of all arguments, with the *replaced* ones by number, and *further* options."""
        argv: list[str] = []
        items = enumerate(self.arguments.items)
        for (start, end), group in itertools.groupby(items, lambda item: (item[1].start, item[1].end)):
            cluster = list(group)
            if any(number in replaced for number, _ in cluster):
                for number, argument in cluster:
                    argv += replaced[number] if number in replaced else argument.alone(self._syntax.arity)
            else:
                argv += self.words[start:end]
        # Further options follow the operands if options are words, and precede "--" if the program uses getopt.
        return [*program, *argv, *further] if self._syntax.single_words else [*program, *further, *argv]

    def _program(self, index: Path | None = None) -> list[str]:
        """Return the first words, with a wrapper script replaced by the program that it runs.

        *index* is the prefix of a copy of the index, None for the index itself.
        """
        index = index or self.index
        script, *others = self.words[: self.first]
        if not self._syntax.program:
            return [script, *others]
        large = "large" in self.roles or (index is not None and self.aligner.is_large(index))
        name = self._syntax.program.format(size="l" if large else "s")
        file, on_path = shutil.which(script), shutil.which(name)
        # Scripts run the program in their own folder.
        beside = Path(file).resolve().with_name(name) if file else Path(script).with_name(name)
        if "/" not in script and (not file or (on_path and Path(on_path).resolve() == beside.resolve())):
            return [name, *others]
        return [str(beside), *others]


class TemplateCommand(Struct, frozen=True):
    """The commands of an aligner's file for reads of *mates* mates, with the index of that prefix.

    *is_counted*: every program runs under perf stat, which writes its counts into the scratch folder.
    """

    aligner: Aligner
    index: Path
    mates: int
    batch_bases: int
    is_counted: bool = False

    @property
    def _steps(self) -> Steps:
        return self.aligner.steps(self.mates)

    @property
    def reads_files(self) -> bool:
        """Whether an instance reads files, as several programs do."""
        return len(self._steps) > 1

    @property
    def on_stdin(self) -> bool:
        """Whether an instance reads its reads, interleaved if paired, from standard input."""
        return self.aligner.on_stdin(self._steps[0])

    @property
    def pipes(self) -> int:
        """Number of pipes or files from which an instance reads."""
        return 1 if self.on_stdin else self.mates

    def argvs(self, *, threads: int, reads: Sequence[str], use: IndexUse, scratch: Path) -> list[list[str]]:
        """Return the argv of each program of an instance, in the order in which they run."""
        argvs = []
        for number, template in enumerate(self._steps):
            argv = self.aligner.argv(
                template,
                index=use.prefix or self.index,
                reads=reads,
                threads=threads,
                batch_bases=self.batch_bases,
                scratch=scratch,
            )
            if "index" in aligners.fields(template):
                argv = use.argv(self.aligner, argv)
            argvs.append(counters.wrap(argv, scratch / f"{number}.counts") if self.is_counted else argv)
        return argvs


#: The programs of an aligner, which the instances run one after the other.
Command = UserCommand | TemplateCommand


def _refuse_overwriting(outputs: Iterable[Path], inputs: Sequence[Path]) -> None:
    # Checked one by one, because a program may write several files of one name, such as /dev/null.
    for output in outputs:
        atomic_files.refuse_overwriting([output], with_indexes(inputs))


def programs(names: Iterable[str]) -> list[Path]:
    """Return the files of the programs *names* that exist."""
    return [Path(file) for name in names if (file := shutil.which(name))]


def named_files(words: Iterable[str]) -> list[Path]:
    """Return all names in *words*: each word, the text after an option in it, and the parts of lists in it."""
    texts = [
        text for word in words for text in (word, word.partition("=")[2], word[2:] if word[0:1] == "-" else "")
    ]
    names = dict.fromkeys(name for text in texts for name in (text, *text.split(",")) if name)
    return _paths(names)


def _paths(names: Iterable[str]) -> list[Path]:
    """Return the *names* that may be names of files."""
    return [file for name in names if _can_be_file(file := Path(name))]


def _can_be_file(name: Path) -> bool:
    try:
        return not name.is_dir()
    except OSError:  # it is too long, or in a folder that this user may not search
        return False


def parse(words: Sequence[str]) -> UserCommand:
    """Return the meaning of the command *words*; raises BadInput if it is not an aligner's command that aligns."""
    if not words:
        raise BadInput("no command behind --: give the aligner's own command, such as bwa mem ref.fa reads.fq")
    aligner, first = _recognized(words)
    syntax = _syntax(aligner)
    called = shlex.join(words[:first])
    if syntax.refused:
        raise BadInput(f"{called} {syntax.refused}")
    paired = (Path(words[0]).name, *words[1:first]) in syntax.begins_paired
    arguments = _with_roles(syntax, divide(syntax, words, first, paired=paired))
    threads, odd = _threads(syntax, arguments)
    batch, odd_batch = _batch(aligner, syntax, threads, arguments)
    lanes, interleaved, odd_lanes = _lanes(syntax, arguments)
    reasons = [*_reasons(aligner, syntax, arguments), *odd, *odd_batch, *odd_lanes]
    named = [a.values[-1] for a in arguments.items if a.role == "index"]
    if named and "index_made" in syntax.flags and not named[-1].endswith(syntax.index_suffix):
        reasons.append(f"each instance would index {named[-1]}: index it once, in a file *{syntax.index_suffix}")
    batch = batch.for_mates(2 if interleaved or (lanes and len(lanes[0]) == 2) else 1)
    index = _index(aligner, syntax, named[-1]) if named else None
    if reasons and ("index_made" in syntax.flags or aligner.index.with_reference):
        # The program may be given a FASTA file and build the index itself.
        index = index if index and all(path.is_file() for path in aligner.index_paths(index)) else None
    sam = syntax.roles.get("sam", ())
    if sam and "sam" not in arguments.roles:
        reasons.append(f"it does not write SAM without {sam[0]}")
    output = None if reasons else _output(syntax, arguments)
    if not reasons:
        if not named:
            raise BadInput(f"the command names no index: {shlex.join(words)}")
        if not lanes:
            raise BadInput(f"the command names no reads: {shlex.join(words)}")
        if [name for lane in lanes for name in lane].count("-") > 1:
            raise BadInput(f"the command reads standard input twice: {shlex.join(words)}")
    return UserCommand(
        replace(aligner, batch=batch),
        tuple(words),
        index,
        lanes,
        interleaved,
        threads,
        batch,
        output,
        "; ".join(dict.fromkeys(reasons)),
        arguments,
        first,
    )


def _syntax(aligner: Aligner) -> Syntax:
    if aligner.command is None:
        raise BadInput(f"{aligner.name}.toml has no table [command]")
    return aligner.command


def _recognized(words: Sequence[str]) -> tuple[Aligner, int]:
    """Return the aligner that *words* call, with the program in them, and the number of the program's words."""
    if call := recognize(words):
        aligner, length = call
        version = aligner.version_command
        if words[0] != aligner.program and version.argv[0] == aligner.program:
            version = replace(version, argv=(words[0], *version.argv[1:]))
            aligner = replace(aligner, program=words[0], version_command=version)
        return aligner, length
    syntaxes = [a.command for name, a in aligners.aligners().items() if a.command_of == name]
    names = [" ".join(syntax.begins[0]) for syntax in syntaxes if syntax and not syntax.refused]
    raise BadInput(
        f"'{shlex.join(words[:2])}' is not the command of an aligner: there are {', '.join(names)}; "
        "`firsttouch run` places any program"
    )


# ----------------------------------------------------------------------
# Options for the aligner of `firsttouch run`

#: The replacement for an aligner's option, by the option's role.
_INSTEAD = {
    "threads": "use --threads, or the scenario",
    "index": "use --index",
    "single": "use --reads",
    "mates1": "use --reads",
    "mates2": "use --reads2",
    "interleaved": "use --interleaved",
    "batch": "use --batch-bases",
    "output": "use -o",
    "removes": "firsttouch places threads and index",
    "large": "the files of the index determine it",
    "summary": "use `firsttouch run`, which writes it",
}


def with_options(aligner: Aligner, words: Sequence[str]) -> Aligner:
    """Return *aligner* with the user's options *words* in its commands.

    Its field *whole* is why it can then run as one instance only. Raises BadInput for words that are not options,
    and for options that firsttouch sets.
    """
    if not words:
        return aligner
    syntax = aligner.command
    if syntax is None or syntax.refused:
        why = "runs several programs" if syntax else f"has no table [command] in {aligner.name}.toml"
        raise BadInput(f"options behind --: {aligner.name} {why}, so its options cannot be recognized")
    # The index, which must be the first word, is not one of the options.
    options = replace(syntax, operands=())
    arguments = _with_roles(options, divide(options, words, 0))
    for argument in arguments.items:
        if not argument.name or argument.name in {"--", *syntax.types}:
            if not arguments.unclear:
                raise BadInput(f"'{(*argument.values, '--')[0]}' behind -- is not an option of {aligner.name}")
        elif argument.role in _INSTEAD:
            raise BadInput(f"{argument.name} behind --: {_INSTEAD[argument.role]}")
        elif argument.name in {text.split()[0] for text in syntax.mates_with}:
            raise BadInput(
                f"{argument.name} behind --: {aligner.name} is for one value of it; there are other aligners for "
                "others (`firsttouch system aligners`), and `firsttouch run` takes any"
            )
        elif argument.name in syntax.of_script:
            raise BadInput(
                f"{argument.name} behind --: firsttouch runs no script, and the program does not know it"
            )
    reasons = "; ".join(dict.fromkeys(_reasons(aligner, replace(syntax, needs={}), arguments)))
    own = tuple(word.replace("{", "{{").replace("}", "}}") for word in words)
    single, paired = (
        tuple(_inserted(syntax, step, own) for step in steps)
        for steps in (aligner.align.single, aligner.align.paired)
    )
    align = replace(aligner.align, single=single, paired=paired)
    return replace(aligner, align=align, own=tuple(words), whole=reasons)


def check_own_outputs(aligner: Aligner, inputs: Sequence[Path]) -> None:
    """Raise BadInput if the user's options make *aligner* write into one of its *inputs*."""
    if aligner.own and aligner.command is not None:
        syntax = aligner.command
        arguments = divide(replace(syntax, operands=()), aligner.own, 0).items
        reading = [value for a in arguments if a.name not in syntax.writes for value in a.values]
        names = [name for a in arguments for name in syntax.files_written(a.name, a.values)]
        _refuse_overwriting(_paths(names), [*inputs, *named_files(reading)])


def _inserted(syntax: Syntax, template: Sequence[str], own: Sequence[str]) -> tuple[str, ...]:
    """Return the template of a command with the words *own* behind its options, so that *own* takes precedence."""
    at = len(template)
    if not syntax.single_words:
        items = divide(syntax, template, len(syntax.begins[0])).items
        for argument in itertools.takewhile(lambda a: not a.name, reversed(items)):
            at = argument.start
    return (*template[:at], *own, *template[at:])


# ----------------------------------------------------------------------
# The meaning of the arguments


def _with_roles(syntax: Syntax, arguments: Arguments) -> Arguments:
    """Return *arguments* with their roles."""
    by_name = {name: role for role in reversed(ROLES) for name in syntax.roles.get(role, ())}
    options = {by_name.get(argument.name, "") for argument in arguments.items}
    operands = [name for name in syntax.operands if name not in options]
    if not options.isdisjoint(_INPUTS) and any(
        argument.values and by_name.get(argument.name) in _INPUTS for argument in arguments.items
    ):
        operands = [name for name in operands if name not in {"reads", "reads2"}]
    mates = not syntax.mates_with or _has_mates(syntax, arguments)
    items = []
    for argument in arguments.items:
        if argument.name in syntax.types:
            role = "reads"
        elif argument.name:
            role = by_name.get(argument.name, "")
        elif arguments.unclear:
            role = ""
        elif syntax.single_words:
            role = operands.pop(0) if operands[:1] == ["index"] else "reads"
        elif operands == ["reads2"] and not mates:
            role = "reads"
        else:
            role = operands.pop(0) if operands else "extra"
        items.append(replace(argument, role=role))
    return replace(arguments, items=tuple(items))


def _has_mates(syntax: Syntax, arguments: Arguments) -> bool:
    """Return whether an option states that two files have mates."""
    return any(shlex.join([a.name, *a.values]) in syntax.mates_with for a in arguments.items if a.name)


def _reasons(aligner: Aligner, syntax: Syntax, arguments: Arguments) -> Iterator[str]:
    """Yield why the command must run as one instance."""
    file = f"{aligner.name}.toml"
    for name in arguments.unknown:
        yield f"{name} is unknown to {file}" + (", so the index and reads are, too" if arguments.unclear else "")
    for argument in arguments.items:
        if argument.role == "extra":
            yield f"'{argument.values[0]}' is one word more than {file} describes"
        if argument.name in syntax.whole and shlex.join([argument.name, *argument.values]) not in syntax.harmless:
            yield f"{argument.name} {syntax.whole[argument.name]}"
        if argument.role == "output" and syntax.types:
            yield from (f"{argument.name} {v} is not SAM" for v in argument.values if re.search("bam$|samNoSQ", v))
        if argument.role in {"", "index", "sam"}:
            yield from (f"{value} can be read only once" for value in argument.values if _is_pipe(value))
        if argument.role == "index" and aligner.index.parts:
            for value in argument.values:
                if not _is_pipe(value) and has_several_parts(Path(value)):
                    yield f"{value} has several parts, which need all reads each: build an index of one part by -I"
    names = {argument.name for argument in arguments.items}
    for reason, options in syntax.needs.items():
        if names.isdisjoint(options):
            yield f"without {options[0]}, {reason}"


def _is_pipe(name: str) -> bool:
    try:
        return stat.S_ISFIFO(Path(name).stat().st_mode)
    except (OSError, ValueError):
        return False


def _number(text: str, *, units: bool = False) -> int | None:
    """Return *text* as a number, None if it is not one. *units*: it may end with k, m or g."""
    match = re.fullmatch(r"\+?(\d{1,18}(?:\.\d+)?)([kmgKMG]?)", text)
    if not match or ((match[2] or "." in match[1]) and not units):
        return None
    return int(float(match[1]) * _UNITS[match[2].lower()]) if units else int(match[1])


def _threads(syntax: Syntax, arguments: Arguments) -> tuple[int, list[str]]:
    """Return the number of threads, and why it is unclear."""
    usual = len(os.sched_getaffinity(0)) if "all_threads" in syntax.flags else syntax.threads_default
    argument = arguments.last("threads")
    if argument is None:
        return usual, []
    number = _number(argument.values[0]) if argument.values else None
    if number is None:
        return usual, [f"{argument.name} {' '.join(argument.values)} is not a number of threads"]
    return max(1, number), []


def _batch(aligner: Aligner, syntax: Syntax, threads: int, arguments: Arguments) -> tuple[BatchRule, list[str]]:
    """Return how the command divides its reads into batches, and why this is unclear."""
    if "batch" not in syntax.roles:
        return aligner.batch, []
    usual = syntax.batch_thread * threads or aligner.batch.bases
    argument = arguments.last("batch")
    if argument is None:
        return replace(aligner.batch, bases=usual), []
    number = _number(argument.values[0], units="units" in syntax.flags)
    odd = [] if number is not None else [f"{argument.name} {argument.values[0]} is not a number of bases"]
    return replace(aligner.batch, bases=number or usual), odd


def _output(syntax: Syntax, arguments: Arguments) -> Path | None:
    """Return the file that the program writes."""
    argument = arguments.last("output")
    if argument is None or not argument.values:
        return None
    name = argument.values[-1]
    return None if name in _STDOUT or (name == "-" and "dash_output" in syntax.flags) else Path(name)


def _index(aligner: Aligner, syntax: Syntax, name: str) -> Path:
    """Return the index that the program finds under *name*."""
    name = name.removesuffix(syntax.index_suffix) if syntax.index_suffix else name
    candidates = [*(name + variant for variant in syntax.index_variants), name]
    if folder := os.environ.get(syntax.index_folder):
        candidates.append(str(Path(folder, name)))
    paths = map(Path, candidates)
    return next((path for path in paths if aligner.index_paths(path)[0].is_file()), Path(name))


def _lanes(syntax: Syntax, arguments: Arguments) -> tuple[tuple[tuple[str, ...], ...], bool, list[str]]:
    """Return the lanes, whether they are interleaved, and why the reads cannot be divided."""
    if arguments.unclear and arguments.roles.isdisjoint(_INPUTS):
        return (), False, []
    files_of = _typed_files if syntax.single_words else _files
    pairs, interleaved, single, reasons = files_of(syntax, arguments)
    if sum(map(bool, (single, interleaved, pairs))) > 1:
        reasons.append("it has reads of several kinds: pairs, interleaved pairs or single reads")
    lanes = (*pairs, *((file,) for file in [*interleaved, *single]))
    reasons += [f"{file} is FASTA" for lane in lanes for file in lane if is_fasta(file)]
    return lanes, bool(interleaved) and not pairs, reasons


#: Files of pairs, files of interleaved pairs, files of single reads, and why these cannot be divided.
_Files = tuple[list[tuple[str, ...]], list[str], list[str], list[str]]


def _files(syntax: Syntax, arguments: Arguments) -> _Files:
    reasons: list[str] = []
    files: dict[str, list[str]] = {}
    for argument in arguments.items:
        names = [
            f for value in argument.values for f in (value.split(",") if "comma" in syntax.flags else [value])
        ]
        files.setdefault(argument.role, []).extend(filter(None, names))
    single, interleaved = files.get("single", []), files.get("interleaved", [])
    pairs: list[tuple[str, ...]] = []
    flag = any(a.role == "interleaved" and not a.values for a in arguments.items)
    reads, reads2 = files.get("reads", []), files.get("reads2", [])
    if reads2 and not flag:
        pairs += zip(reads, reads2, strict=True)
    else:
        single += reads
    first, second = files.get("mates1", []), files.get("mates2", [])
    if len(first) != len(second):
        raise BadInput(f"{len(first)} files with first mates, but {len(second)} with second mates")
    pairs += zip(first, second, strict=True)
    if "stdin" in syntax.flags and not (single or interleaved or pairs):
        single = ["-"]
    if flag:
        single, interleaved = [], interleaved + single
    return pairs, interleaved, single, reasons


def _typed_files(syntax: Syntax, arguments: Arguments) -> _Files:
    result: _Files = ([], [], [], [])
    pairs, interleaved, single, reasons = result
    for argument in arguments.items:
        if argument.role != "reads":
            continue
        kind, files = syntax.types.get(argument.name, "mates"), argument.values
        if kind == "records" or (not argument.name and files[0].endswith((".sam", ".bam"))):
            reasons.append(f"tags of the records in {files[0]} are kept")
        if len(files) == 2:
            pairs.append(files)
        else:
            (interleaved if kind == "interleaved" else single).extend(files)
    return result
