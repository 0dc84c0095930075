# SPDX-License-Identifier: Apache-2.0
"""The command line: ``firsttouch COMMAND``, one module per command.

:func:`main` runs a command and returns its exit status; :func:`parser` is for completion and documentation. A
command's module has ``register(subparsers)``, which adds its options, and ``run(args)``. Start-up must be short,
so modules that plan and topology need import what they do not need inside of functions.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import io
import os
import re
import shlex
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NoReturn, TextIO

from firsttouch import __version__, installed_version
from firsttouch.errors import (
    CANNOT_HERE,
    MORE_THREADS,
    NO_THREAD,
    STOPPING,
    CannotHere,
    FirstTouchError,
    did_you_mean,
    one_line,
    os_reason,
)
from firsttouch.records import step_outcome
from firsttouch.tools import defer_signals, lacking_package, lean_numpy

#: Task -> command -> its line in the help. `firsttouch COMMAND` imports the module of that command only.
TASKS = {
    "place a program": {
        "run": "run a command, or an aligner on a dataset, under a verified placement",
        "advise": "recommend a scenario, after short trials",
        "plan": "list the placement scenarios of a host",
        "topology": "show NUMA nodes, PUs, memory and distances",
    },
    "measure this host": {
        "characterize": "run all checks on this host and write a report",
        "measure": "measure one aspect of this host's memory, such as latency",
        "check": "judge this host in a given time, for prologs and health checks",
        "report": "write index.html, summary.md and summary.json of measured records",
    },
    "judge many hosts": {
        "campaign": "measure many hosts through Slurm, continue, and collect the results",
        "validate": "judge hosts by their system's references and the fleet",
        "baseline": "learn references of a system or a processor from records",
        "fleet": "hold bad hosts back, test them again, release or drain them",
    },
    "set up": {
        "doctor": "list what this host lacks, and what does not work without it",
        "init": "create a folder with the sbatch templates and the site's own files",
        "system": "systems and aligners: list them, check their files, draft a system from this host",
        "data": "list, get and index datasets",
    },
}
#: The commands that only ``firsttouch help --all`` lists.
MORE_TASKS = {
    "more": {
        "store": "append records to a store of many hosts",
        "inside": "run a command in an Apptainer image or with the programs of a Spack view",
        "path": "print the folders of firsttouch: checks, systems, results and others",
    },
}
COMMANDS = {
    name: summary
    for tasks in (TASKS, MORE_TASKS)
    for commands in tasks.values()
    for name, summary in commands.items()
}
#: Exit status after Ctrl-C. After another signal it is 128 plus its number.
INTERRUPTED = 128 + signal.SIGINT
DESCRIPTION = """\
Validates NUMA hosts, and finds the fastest placement of memory-bound programs on them.

Every command takes --json: one JSON document on standard output, while messages go to standard error. The
standard output of `run` is its program's, so its document is the last line on standard error. Every command
ends with 0 if all is well, 1 if a program or a verdict failed, 2 for bad input, 3 if something needed is
missing here, 4 for a suspect."""
EXAMPLES = """\
start here:
  firsttouch characterize                                      measure this host, and write a report
  firsttouch run -- bwa mem -t 64 ref.fa r1.fq r2.fq > a.sam   the same alignments, placed as advised
  firsttouch campaign submit validate --system SYSTEM --hosts 'n[1-8]'        measure and judge eight hosts"""


class ProgramWords(argparse.Action):
    """The words after the first ``--``: another program's command line, which is never interpreted."""

    def __call__(self, top: argparse.ArgumentParser, namespace: Any, words: Any, _option: Any = None) -> None:
        """Do nothing, because the parser has already set aside the words after ``--``."""
        if words:
            # The name of the program is in the place of a scenario, whose name begins with a number.
            before = getattr(namespace, "scenario", None)
            if before and before != "auto" and not before[0].isdigit():
                words = [before, *words]
            top.error(f"put -- before the program: -- {shlex.join(words)}")
        setattr(namespace, self.dest, self.const)


def _path(text: str) -> Path:
    """Return a path; raises for an empty one (such as an unset variable), which would be the working folder."""
    if not text:
        raise argparse.ArgumentTypeError("'' is not a path")
    return Path(text)


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Formats help for the width of the terminal: prose is filled, examples and tables are wrapped."""

    #: An indented line: a command or name, and after two blanks a comment.
    _ROW = r"( +)(\S.*?)(?:( {2,})(\S.*))?"
    #: The column of a comment below its command; a line that is indented deeper continues a comment.
    _BELOW = 10
    #: A word of a shell, which may have blanks within quotes.
    _WORD = r"(?:'[^']*'|\"[^\"]*\"|\S)+"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        width -= len(indent)
        filled: list[str] = []
        for is_row, lines in groupby(text.splitlines(), key=lambda line: not line or line[0].isspace()):
            block = [*lines]
            filled += self._rows(block, width) if is_row else textwrap.wrap(" ".join(block), width)
        return "\n".join(f"{indent}{line}".rstrip() for line in filled)

    def _format_usage(self, *args: Any) -> str:
        # argparse indents all lines by the name of the command, even if they do not fit then.
        lines = super()._format_usage(*args).split("\n")
        spare = [self._width - len(line.strip()) for line in lines]
        indents = [
            min(len(line) - len(line.lstrip()), max(2, room)) for line, room in zip(lines, spare, strict=True)
        ]
        return "\n".join(" " * indent + line.strip() for indent, line in zip(indents, lines, strict=True))

    def _rows(self, lines: Sequence[str], width: int) -> Iterator[str]:
        if max(map(len, lines)) <= width:
            yield from lines
            return
        rows: list[str] = []
        for line in lines:
            if rows and line.startswith(" " * self._BELOW):
                rows[-1] += f" {line.strip()}"
            else:
                rows.append(line)
        for row in rows:
            yield from self._wrapped(row, width) if len(row) > width else [row]

    def _wrapped(self, row: str, width: int) -> Iterator[str]:
        match = re.fullmatch(self._ROW, row)
        margin, command, gap, comment = match.groups(default="") if match else ("", row, "", "")
        column = len(margin + command + gap)
        if comment and column <= width // 2:
            yield from textwrap.wrap(comment, width, initial_indent=row[:column], subsequent_indent=" " * column)
            return
        line = margin
        for word in re.findall(self._WORD, command):
            if line.strip() and len(line) + len(word) + 2 >= width:
                yield f"{line} \\"
                line = f"{margin}    {word}"
            else:
                line += f" {word}" if line.strip() else word
        yield line
        indent = " " * self._BELOW
        yield from textwrap.wrap(comment, width, initial_indent=indent, subsequent_indent=indent)


class Parser(argparse.ArgumentParser):
    """A parser that takes no abbreviated options, and whose errors are one line with a suggestion."""

    def __init__(self, **kwargs: Any) -> None:
        """Create the parser; sub-commands get parsers of the same kind."""
        super().__init__(allow_abbrev=False, formatter_class=_HelpFormatter, **kwargs)
        self.register("type", Path, _path)  # of every argument with type=Path
        self._given: Sequence[str] = ()

    def error(self, message: str) -> NoReturn:
        """Print the error and where the help is, and exit."""
        if message.startswith("the following arguments are required") and not self._subparsers:
            # argparse looks for missing arguments before it reports unknown ones.
            names = (word.partition("=")[0] for word in self._given if word.startswith("--"))
            if unknown := [name for name in names if name not in self._option_string_actions]:
                message = self._unrecognized(unknown)
        self.exit(2, f"{self.prog}: error: {one_line(message)} (help: {self.prog} --help)\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse like argparse, but let the parser of a sub-command refuse unknown arguments.

        argparse would assign words after ``--`` to an optional argument before it, such as a scenario.
        """
        given = [*(sys.argv[1:] if args is None else args)]
        user = next((action for action in self._actions if isinstance(action, ProgramWords)), None)
        words = None
        end = given.index("--") if "--" in given else len(given)
        self._given = given[:end]
        if user and end < len(given):
            given, words = given[:end], given[end + 1 :]
        parsed, unknown = super().parse_known_args(given, namespace)
        if user and words is not None:
            setattr(parsed, user.dest, words)
        if unknown:
            self.error(self._unrecognized(unknown))
        return parsed, unknown

    def _unrecognized(self, words: Sequence[str]) -> str:
        near = did_you_mean(words[0].partition("=")[0], self._option_string_actions)
        return f"unrecognized arguments: {' '.join(words)}{near}"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.dest == "command" and value not in COMMANDS:
            # `firsttouch --help`, which the error mentions, lists them by task.
            raise argparse.ArgumentError(None, f"no command '{value}'{did_you_mean(str(value), COMMANDS)}")
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += did_you_mean(str(value), map(str, action.choices or ()))
            raise


class _Top(Parser):
    """The parser of ``firsttouch``, whose help groups the commands by task."""

    def format_help(self) -> str:
        """Return the first screen: the usual commands."""
        more = sum(map(len, MORE_TASKS.values()))
        return self._help(
            TASKS, f"`firsttouch help --all` lists {more} more, `firsttouch help COMMAND` explains one."
        )

    def format_all(self) -> str:
        """Return the help with all commands."""
        return self._help({**TASKS, **MORE_TASKS}, "`firsttouch help COMMAND` explains one of them.")

    def _help(self, tasks: Mapping[str, Mapping[str, str]], note: str) -> str:
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, [])
        formatter.add_text(self.description)
        formatter.add_text(EXAMPLES)
        for task, commands in tasks.items():
            formatter.start_section(task)
            for name, summary in commands.items():
                formatter.add_argument(argparse.Action((), name, metavar=name, help=summary))
            formatter.end_section()
        formatter.start_section("options")
        formatter.add_arguments(action for action in self._actions if action.option_strings)
        formatter.end_section()
        formatter.add_text(note)
        return formatter.format_help()


class _PrintVersions(argparse.Action):
    """Prints the versions, which are read only here, and ends the program."""

    def __call__(self, top: argparse.ArgumentParser, *_: Any) -> NoReturn:
        versions = {
            "firsttouch": __version__,
            "firsttouch-probe": installed_version("firsttouch_probe"),
            "ReFrame": installed_version("reframe_hpc"),
        }
        for name, version in versions.items():
            print(name, version or "(not installed)")
        top.exit()


class _PrintCompletion(argparse.Action):
    """Prints the completion script for a shell, and ends the program."""

    def __call__(self, top: argparse.ArgumentParser, _namespace: Any, shell: Any, _option: Any = None) -> NoReturn:
        print(completion_script(parser(), shell), flush=True)
        top.exit()


def parser(commands: Iterable[str] = COMMANDS) -> _Top:
    """Return the parser of *commands*; without any, it knows all names, and can print help and errors."""
    top = _Top(prog="firsttouch", description=DESCRIPTION)
    top.add_argument(
        "-V",
        "--version",
        action=_PrintVersions,
        nargs=0,
        dest=argparse.SUPPRESS,
        default=argparse.SUPPRESS,
        help="show program's version number and exit",
    )
    top.add_argument(
        "--print-completion",
        action=_PrintCompletion,
        choices=("bash", "zsh", "fish", "tcsh"),
        metavar="SHELL",
        help="print the script that completes commands and options in bash, zsh, fish or tcsh, and exit",
    )
    subparsers = top.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    loaded = [importlib.import_module(f"firsttouch.cli.{name}").register(subparsers) for name in commands]
    for name, summary in COMMANDS.items() if not loaded else ():
        subparsers.add_parser(name, help=summary)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    given = sys.argv[1:] if argv is None else list(argv)
    _open_streams()
    received: list[int] = []
    try:
        with _signals(received):
            status = _run(given)
        # A command that returns a partial result early does not know which signal stopped it.
        return 128 + received[0] if status == INTERRUPTED and received else status
    except CannotHere as error:
        _print_error(f"{CANNOT_HERE}{error}")
        step_outcome.state("skipped", str(error))
        return error.exit_status
    except FirstTouchError as error:
        _print_error(f"firsttouch: error: {error}")
        step_outcome.state("failed", str(error))
        return error.exit_status
    except KeyboardInterrupt:
        _print_error("firsttouch: interrupted")
        return 128 + received[0] if received else INTERRUPTED
    except BrokenPipeError:  # the reader of our output has ended (`firsttouch plan | head`)
        return 141
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _print_error(f"firsttouch: error: {where}{os_reason(error)}")
        return 2


def _open_streams() -> None:
    """Make all standard streams accept any text in any encoding, and replace closed ones by /dev/null.

    Otherwise a file that is opened later would become a standard stream, which programs inherit. Reading from an
    input or writing to an output that was closed is still an error, so no input looks empty and no output is lost.
    """
    for number, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_RDWR)):
        try:
            os.fstat(number)
        except OSError:
            fd = os.open(os.devnull, mode)  # gets the lowest free number
            os.set_inheritable(fd, True)
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(number, "w", errors="backslashreplace", closefd=False))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _print_error(text: str) -> None:
    """Print one line to standard error, which may not exist any more after a hang-up."""
    try:
        print(one_line(text), file=sys.stderr, flush=True)
    except OSError:
        _drop(sys.stderr)


@contextlib.contextmanager
def _signals(received: list[int]) -> Iterator[None]:
    """During the block, raise KeyboardInterrupt for signals that stop a command, and add them to *received*.

    A signal that is ignored, as under nohup, stays ignored, except SIGCHLD, without which exit statuses of
    children are lost.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handled = [n for n in STOPPING if n != signal.SIGINT and signal.getsignal(n) == signal.SIG_DFL]
    before = {n: signal.getsignal(n) for n in (*handled, signal.SIGCHLD)}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def interrupt(number: int, _frame: object) -> None:
        received.append(number)
        # The shell and the kernel both send SIGHUP when a terminal closes; the second must not stop the clean-up.
        if number == signal.SIGHUP:
            signal.signal(number, lambda *_: None)  # not SIG_IGN, which programs that are started inherit
        raise KeyboardInterrupt

    for number in handled:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(given: Sequence[str]) -> int:
    listed = given[:1] == ["help"] and "--all" in given
    if given[:1] == ["help"]:
        given = [*given[1:2], "--help"]
    try:
        # Python drops a KeyboardInterrupt in a callback of a weak reference, and loading modules runs many.
        with lean_numpy(), defer_signals():
            top = parser(given[:1] if given and given[0] in COMMANDS else ())
        if listed:
            print(top.format_all(), end="")
            return 0
        if not given:
            top.print_help(sys.stderr)
            top.error("the following arguments are required: COMMAND")
        args = top.parse_args(given)
        return int(args.run(args))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("firsttouch"):
            raise
        raise lacking_package(error.name.partition(".")[0]) from error
    except MemoryError as error:
        raise CannotHere("out of memory: raise the limit of memory (ulimit -v) or take less input") from error
    except RuntimeError as error:
        if str(error) == NO_THREAD:  # of a pool
            raise CannotHere(f"{error}: {MORE_THREADS}") from error
        raise
    finally:
        _flush()


def _flush() -> None:
    """Write the end of the output and of the messages; only lost output is an error."""
    try:
        sys.stderr.flush()
    except OSError:
        _drop(sys.stderr)
    try:
        sys.stdout.flush()
    except OSError as error:
        _drop(sys.stdout)
        if error.errno == errno.EBADF:
            error.filename = "standard output"
        raise


def _drop(stream: TextIO) -> None:
    """Drop text that could not be written to a stream, because Python would fail again at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


# ----------------------------------------------------------------------
# Completion: the script by which a shell completes commands, names and files


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script for a *shell*, with the names in this installation."""
    import shtab  # noqa: PLC0415 - only for this option

    from firsttouch.datasets import manifest  # noqa: PLC0415
    from firsttouch.genomics import aligners  # noqa: PLC0415
    from firsttouch.systems import definition  # noqa: PLC0415

    # By placeholder of an argument, the functions that list its possible names.
    names: dict[str, Callable[[], Collection[str]]] = {
        "SYSTEM": definition.available,
        "ALIGNER": aligners.names,
        "DATASET": manifest.files,
    }
    for action in _actions(parser):
        shown = str(action.metavar)
        if shown in names and not action.choices:
            action.choices = list(names[shown]())
        elif isinstance(action.choices, dict) and not isinstance(action, argparse._SubParsersAction):
            action.choices = list(action.choices)  # shtab mistakes a mapping for sub-commands
        elif action.type is Path:
            action.complete = shtab.DIRECTORY if shown in {"DIR", "STORE"} else shtab.FILE  # type: ignore[attr-defined]
    return str(shtab.complete(parser, shell))


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from _actions(subparser)
