# SPDX-License-Identifier: Apache-2.0
"""Options, types of options, and output that several commands share."""

from __future__ import annotations

import argparse
import math
import os
import shlex
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from firsttouch.cli import COMMANDS, ProgramWords
from firsttouch.errors import BadInput
from firsttouch.host.cpusets import parse_list
from firsttouch.units import parse, parse_bytes, parse_percent

if TYPE_CHECKING:
    from firsttouch.execution.ram_scratch import InMemory

T = TypeVar("T")


class Subparsers(Protocol):
    """The part of argparse's add_subparsers() object that commands use."""

    def add_parser(self, name: str, **kwargs: Any) -> argparse.ArgumentParser:
        """Add the parser of one command."""


#: Carries out a command, and returns its exit status.
Run = Callable[[argparse.Namespace], int]
AddAction = Callable[..., argparse.ArgumentParser]
#: Where --json prints.
_JSON = "print one JSON document"


def command(
    subparsers: Subparsers,
    name: str,
    run: Run,
    examples: str,
    description: str = "",
    *,
    json_help: str = _JSON,
) -> argparse.ArgumentParser:
    """Add a command that *run* carries out, with its help, its *examples* and --json."""
    parser = _added(subparsers, name, COMMANDS[name], run, description)
    parser.epilog = f"examples:\n{examples}"
    parser.add_argument("--json", action="store_true", help=json_help)
    return parser


def actions(subparsers: Subparsers, name: str, examples: str) -> AddAction:
    """Add a command with actions; return the function that adds an action by name, summary and function.

    An action has --json, and its own examples or the command's *examples* that show it.
    """
    parser = _added(subparsers, name, COMMANDS[name], None)
    parser.epilog = f"examples:\n{examples}"
    added = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def add_action(name: str, summary: str, run: Run, examples: str = examples) -> argparse.ArgumentParser:
        parser = _added(added, name, summary, run)
        parser.add_argument("--json", action="store_true", help=_JSON)
        shown = [line for line in examples.splitlines() if f"{line} ".startswith(f"  {parser.prog} ")]
        parser.epilog = "\n".join(["examples:", *shown])
        return parser

    return add_action


def _added(
    subparsers: Subparsers, name: str, summary: str, run: Run | None, description: str = ""
) -> argparse.ArgumentParser:
    sentence = description or f"{summary[0].upper()}{summary[1:]}."
    parser = subparsers.add_parser(name, help=summary, description=sentence)
    if run:
        parser.set_defaults(run=run)
    return parser


def add_user_command(
    parser: argparse.ArgumentParser,
    help: str,  # noqa: A002 - as argparse calls it
    what: str = "PROGRAM",
) -> None:
    """Add ``-- PROGRAM ...``: *program* is the list of words after the first ``--``."""
    parser.add_argument(
        "program", nargs="*", action=ProgramWords, const=[], default=[], metavar=f"-- {what}", help=help
    )


def add_topology(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose a topology."""
    source = parser.add_mutually_exclusive_group()
    add(source, "--xml")
    source.add_argument("--fsroot", type=Path, metavar="DIR", help="a stored file-system root (sys/, proc/)")


def accept(convert: Callable[[str], T], what: str = "", fits: Callable[[T], bool] = bool) -> Callable[[str], T]:
    """Return the type of an option: *convert* parses its text, *fits* tests the value, *what* describes it."""

    def parsed(text: str) -> T:
        try:
            if fits(value := convert(text)):
                return value
        except BadInput as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        except ValueError:
            pass
        raise argparse.ArgumentTypeError(f"'{text}' is not {what}")

    return parsed


#: The type of an age of records: text such as 90d, at most about 300 years (seconds).
age = accept(
    lambda text: parse(text, "seconds"), "a time above 0, such as 36h or 7d", lambda value: 0 < value < 1e10
)


def _whole(text: str) -> int:
    # int() also accepts "1_000", " 7" and digits of other scripts.
    return int(text if text.isascii() and text.isdecimal() else "")


def number(text: str) -> float:
    """Return a number; raises ValueError for 1_0, " 7" and digits of other scripts, which float() accepts."""
    if not text.isascii() or "_" in text or text != text.strip():
        raise ValueError
    return float(text)


def seconds(text: str) -> float:
    """Return a time in seconds, from text such as 90, 30min or 12h; raises BadInput for others."""
    try:
        return number(text)
    except ValueError:
        return parse(text, "seconds")


def _bases(text: str) -> int:
    factor = {"K": 10**3, "M": 10**6, "G": 10**9}.get(text[-1:].upper(), 1)
    return _whole(text if factor == 1 else text[:-1]) * factor


def part(text: str) -> float:
    """Return a part of the whole, from text such as 0.1 or 10%; raises ValueError or BadInput for others."""
    return parse_percent(text) if text.endswith("%") else number(text)


def _policies(text: str) -> str:
    from firsttouch.scenarios.policies import select_policies  # noqa: PLC0415 - see the package

    select_policies(text)
    return text


def _options(text: str) -> str:
    from firsttouch.scenarios.memory_options import select_options  # noqa: PLC0415 - see the package

    select_options(text, ("pages", "allocator", "index"))
    return text


def _scratch(text: str) -> InMemory | Path:
    if not text:
        raise BadInput("'' is not a path")
    if text != "ram" and not text.startswith("ram:"):
        return Path(text)
    from firsttouch.execution.ram_scratch import InMemory  # noqa: PLC0415 - see the package

    if text == "ram":
        return InMemory()
    if not (size_bytes := parse_bytes(text[4:])):  # a tmpfs of size 0 has no limit
        raise BadInput("a scratch of 0 bytes holds nothing: give a size such as ram:4GiB")
    return InMemory(size_bytes)


def _section(text: str) -> Path:
    """Return the path of a file that MultiQC finds by its name."""
    if not text.endswith("_mqc.json"):
        raise BadInput(f"'{text}' must end with _mqc.json, or MultiQC does not find it")
    return Path(text)


#: A size in bytes, such as 5.1GB.
size = accept(parse_bytes, fits=lambda _: True)
#: A list of numbers such as 0-3,8.
numbers = accept(parse_list, "a list with a number")
#: The text of NUMA nodes, of last-level caches, or of all: 0-3, cache:3, all.
place = accept(
    lambda text: text if text == "all" or parse_list(text.removeprefix("cache:")) else "",
    "a list with a number, such a list behind cache:, or all",
)
#: A time in seconds, from text such as 90, 30min or 12h.
duration = accept(
    seconds, "a time above 0, such as 90 (seconds), 30min or 12h", lambda value: 0 < value < math.inf
)
positive = accept(_whole, "a whole number of at least 1")
bases = accept(_bases, "a number of bases above 0, such as 5G")
natural = accept(_whole, "a whole number of at least 0", lambda _: True)

#: Arguments of several commands, which :func:`add` adds. A name has one meaning, type and placeholder everywhere.
SHARED: dict[str, dict[str, Any]] = {
    "records": {
        "nargs": "+",
        "type": Path,
        "metavar": "RECORDS_OR_DIR",
        "help": "records (JSON lines or Parquet), folders or stores of them, campaigns, ReFrame's run reports",
    },
    "--perflogs": {
        "action": "store_true",
        "help": "the paths hold ReFrame's performance logs or stored sessions, of any checks",
    },
    "--max-age": {"type": age, "metavar": "TIME", "help": "leave out older records, such as 90d"},
    "--records": {"type": Path, "metavar": "FILE", "help": "append the records to this JSON-lines file"},
    "--xml": {"type": Path, "metavar": "FILE", "help": "an hwloc XML file instead of this host"},
    "--system": {"metavar": "SYSTEM", "help": "the system that the hosts belong to (default: local)"},
    "--aligner": {"metavar": "ALIGNER", "help": "the aligner, such as bwa-mem"},
    "scenario": {"metavar": "SCENARIO"},
    "--index": {"type": Path, "metavar": "PREFIX", "help": "prefix of the aligner's index, or one of its files"},
    "--dataset": {"metavar": "DATASET", "help": "a dataset from `firsttouch data list`"},
    "hosts": {"nargs": "+", "metavar": "HOSTS", "help": "hosts in Slurm's notation: n[1-8],m2"},
    "--hosts": {"metavar": "HOSTS", "help": "hosts in Slurm's notation: n[1-8],m2"},
    "--strict": {"action": "store_true", "help": "exit status 4 also if a host is undecided"},
    "--backend": {"default": "", "help": "where the programs come from (default: the partition's backend)"},
    "--image": {
        "default": "",
        "type": lambda text: text and str(Path(text).absolute()),
        "metavar": "PATH",
        "help": "the backend's image or view",
    },
    "--output": {"type": Path, "metavar": "FILE", "help": "the output file"},
    "--budget": {
        "type": accept(part, "a part of the whole run: 0 to 1", lambda part: 0 <= part <= 1),
        "metavar": "BUDGET",
        "help": "part of the whole run that trials may cost, such as 0.1 or 10%%",
    },
    "--repetitions": {"type": positive, "metavar": "N"},
    "--max-repetitions": {"type": positive, "metavar": "N"},
    "--seed": {
        "type": positive,
        "metavar": "N",
        "help": "number that draws the order of the measurements (default: $FIRSTTOUCH_SEED, or a new one; the "
        "records have it)",
    },
    "--threads": {"type": positive, "metavar": "N", "help": "threads in total (default: all usable PUs)"},
    "--timeout": {
        "type": duration,
        "metavar": "TIME",
        "help": "stop a run after this time, such as 90 (s) or 12h",
    },
    "--scratch": {
        "type": accept(_scratch, fits=lambda _: True),
        "metavar": "WHERE",
        "help": "folder for temporary files, or ram or ram:SIZE: memory on the scenario's NUMA nodes (half of the "
        "memory that is left, or SIZE; when it is full, writing fails as on a full disk)",
    },
    "--multiqc": {
        "type": accept(_section, fits=lambda _: True),
        "metavar": "FILE",
        "help": "write a section of MultiQC: FILE must end with _mqc.json",
    },
    "--policies": {
        "type": accept(_policies, fits=lambda _: True),
        "default": "usual",
        "metavar": "LIST",
        "help": "usual (default: the thesis's policies, and on hosts with several memory tiers also the tiers'), "
        "thesis, all, or a comma-separated list",
    },
    "--options": {
        "type": accept(_options, fits=lambda _: True),
        "default": "all",
        "metavar": "LIST",
        "help": "memory options to try: none, all that are available (default), or a comma-separated list",
    },
    "campaign": {"metavar": "CAMPAIGN", "help": "name or folder of the campaign"},
    "--campaign": {"metavar": "CAMPAIGN", "help": "name or folder of the campaign (default: a new one)"},
    "--step": {
        "action": "append",
        "metavar": "PATTERN",
        "help": "only steps whose names match (--dry-run lists them)",
    },
    "--dry-run": {"action": "store_true", "help": "show the commands, run none"},
    "--reason": {"default": "", "metavar": "TEXT", "help": "why, for the journal"},
    "--force": {"action": "store_true", "help": "overwrite the file"},
    "--drain": {"action": "store_true", "help": "drain the hosts that fail in Slurm"},
    "--reservation": {
        "default": os.environ.get("SLURM_JOB_RESERVATION", ""),
        "metavar": "RESERVATION",
        "help": "with --drain: also drain hosts in this reservation (default: the job's)",
    },
    "--share-host": {
        "action": "store_true",
        "help": "do not wait for other runs and measurements on this host",
    },
}


def add(parser: argparse._ActionsContainer, *names: str, **changes: Any) -> None:
    """Add the arguments *names* of :data:`SHARED`, with *changes* of their keywords."""
    for name in names:
        parser.add_argument(*(["-o"] if name == "--output" else []), name, **{**SHARED[name], **changes})


def add_inputs(parser: argparse._ActionsContainer) -> None:
    """Add the options of an aligner's input (:class:`firsttouch.advice.aligner_inputs.InputRequest`)."""
    add(parser, "--dataset", help="take index and reads from this dataset")
    add(parser, "--index")
    arg = parser.add_argument
    files = "FASTQ file, plain or gzip; a single run takes pipes and - (standard input), too"
    arg("--reads", type=Path, metavar="FILE", help=files)
    arg("--reads2", type=Path, metavar="FILE", help="the second file of a pair")
    arg("--unpaired", action="store_true", help="leave the second file of the dataset out")
    arg("--interleaved", action="store_true", help="--reads has interleaved pairs")
    size = "the aligner's batch size in bases, such as 10M, the same in all scenarios"
    arg("--batch-bases", type=bases, metavar="BASES", help=size)


def request(kind: Callable[..., T], args: argparse.Namespace, **others: Any) -> T:
    """Return a *kind* (a Struct) with its fields from the options of the same names, and from *others*."""
    names: tuple[str, ...] = getattr(kind, "__struct_fields__")  # noqa: B009 - mypy knows no such attribute
    stated = {name: value for name, value in vars(args).items() if name in names and value is not None}
    return kind(**stated, **others)


def command_line() -> str:
    """Return the user's command line, for the headers of outputs."""
    return shlex.join(["firsttouch", *sys.argv[1:]])


def print_json(document: Any) -> None:
    """Print the command's one JSON document."""
    import json  # noqa: PLC0415 - only with --json

    print(json.dumps(document, indent=2, sort_keys=False))


def print_files(files: Iterable[Path]) -> None:
    """Print the names of written files, except devices and pipes, one of which may be standard output."""
    from firsttouch.records import atomic_files  # noqa: PLC0415 - see the package

    for file in files:
        if not atomic_files.is_stream(file):
            print(file)
