# SPDX-License-Identifier: Apache-2.0
"""Options, types of options, and output that several commands share."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from firsttouch.cli import COMMANDS
from firsttouch.errors import BadInput
from firsttouch.execution.progress import say
from firsttouch.units import parse_bytes

if TYPE_CHECKING:
    from firsttouch.genomics.launch import Result
    from firsttouch.host.topology import Topology


class Subparsers(Protocol):
    """The part of argparse's add_subparsers() object that commands use."""

    def add_parser(self, name: str, **kwargs: Any) -> argparse.ArgumentParser:
        """Add the parser of one command."""


def command(subparsers: Subparsers, name: str, examples: str, description: str = "") -> argparse.ArgumentParser:
    """Add a command with its help, its *examples* and --json."""
    return _added(subparsers, name, COMMANDS[name], examples, description, json_default=False)


def action(actions: Subparsers, name: str, summary: str, examples: str) -> argparse.ArgumentParser:
    """Add an action of a command: --json may stand before or after the action's name."""
    # SUPPRESS keeps the value that the command's parser has set.
    return _added(actions, name, summary, examples, "", json_default=argparse.SUPPRESS)


def _added(
    subparsers: Subparsers, name: str, summary: str, examples: str, description: str, *, json_default: Any
) -> argparse.ArgumentParser:
    parser = subparsers.add_parser(
        name,
        help=summary,
        description=description or f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", default=json_default, help="print one JSON document")
    return parser


def add_records(parser: argparse.ArgumentParser) -> None:
    """Add the argument for measured records, which :mod:`firsttouch.cli.record_inputs` reads."""
    parser.add_argument(
        "records",
        nargs="+",
        type=Path,
        metavar="RECORDS_OR_DIR",
        help="records (JSON lines or Parquet), folders or stores of them, campaigns, ReFrame's run reports",
    )


def add_topology(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose a topology."""
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--xml", type=Path, metavar="FILE", help="an hwloc XML file instead of this host")
    source.add_argument(
        "--fsroot", type=Path, metavar="DIR", help="a stored file-system root (sys/, proc/), or its tarball"
    )


def topology(args: argparse.Namespace) -> Topology:
    """Return the topology that the options choose."""
    from firsttouch.host.topology import load  # noqa: PLC0415 - see the package

    return load(xml=args.xml, fsroot=args.fsroot)


def add_backend(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose the backend of the measured programs."""
    from firsttouch.execution import backends  # noqa: PLC0415 - see the package

    parser.add_argument(
        "--backend",
        choices=backends.NAMES,
        default="",
        help="where the programs come from (default: the partition's backend)",
    )
    parser.add_argument("--image", default="", type=_absolute, metavar="PATH", help="the backend's image or view")


def add_reservation(parser: argparse.ArgumentParser) -> None:
    """Add the option for the reservation in which --drain may drain hosts."""
    parser.add_argument(
        "--reservation",
        default=os.environ.get("SLURM_JOB_RESERVATION", ""),
        metavar="R",
        help="with --drain: also drain hosts in this reservation (default: the job's)",
    )


def _absolute(text: str) -> str:
    return text and str(Path(text).absolute())


def size(text: str) -> int:
    """Return a size in bytes, such as 5.1GB."""
    try:
        return parse_bytes(text)
    except BadInput as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def seconds(text: str) -> float:
    """Return a time limit in seconds: a number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds above 0")
    return value


def numbers(text: str) -> frozenset[int]:
    """Return a list of numbers such as 0-3,8, with one number at least."""
    from firsttouch.host.cpusets import parse_list  # noqa: PLC0415 - see the package

    try:
        members = parse_list(text)
    except BadInput as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not members:
        raise argparse.ArgumentTypeError("the list is empty")
    return members


def positive(text: str) -> int:
    """Return a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of at least 1")
    return int(text)


def print_json(document: Any) -> None:
    """Print the command's one JSON document."""
    print(json.dumps(document, indent=2, sort_keys=False))


def print_files(files: Iterable[Path]) -> None:
    """Print the names of written files, except devices and pipes: one may be the standard output."""
    from firsttouch.records import atomic_files  # noqa: PLC0415 - see the package

    for file in files:
        if not atomic_files.is_stream(file):
            print(file)


def state(result: Result, *, production: bool) -> str:
    """Return in a few words whether the placement of a run held. *production*: it was run for its output."""
    if production and result.unverified:
        return f"the output is complete, its placement is unverified: {result.unverified}"
    return f"INVALID: {result.misplaced}" if result.misplaced else "placement verified"


def add_host(parser: argparse.ArgumentParser) -> None:
    """Add the option to share this host with other runs and measurements."""
    parser.add_argument(
        "--share-host", action="store_true", help="do not wait for other runs and measurements on this host"
    )


def holding(args: argparse.Namespace, *, shared: bool = False) -> contextlib.AbstractContextManager[None]:
    """Hold this host as host_lock.measuring does, unless it is to be shared."""
    from firsttouch.execution import host_lock  # noqa: PLC0415 - see the package

    return contextlib.nullcontext() if args.share_host else host_lock.measuring(say, shared=shared)
