# SPDX-License-Identifier: Apache-2.0
"""The command line: ``firsttouch COMMAND``. One file per command in commands/."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence

from firsttouch import __version__
from firsttouch.errors import CANNOT_HERE, CannotHere, FirstTouchError

COMMANDS = (
    "topology",
    "probe",
    "plan",
    "index",
    "reads",
    "run",
    "advise",
    "measure",
    "characterize",
    "inside",
    "campaign",
    "validate",
    "baseline",
    "store",
    "report",
    "paper",
    "data",
    "system",
)
DESCRIPTION = """\
Validates NUMA hosts and tells their users how to run memory-bound programs on them.

Every command takes --json (one JSON document on standard output; messages go to standard error) and ends with
0 if all is well, 1 if a program or a verdict failed, 2 for bad input, 3 if something needed is missing here."""


def parser(commands: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """Return the parser with *commands*."""
    top = argparse.ArgumentParser(
        prog="firsttouch", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("--version", action="version", version=f"firsttouch {__version__}")
    subparsers = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in commands:
        importlib.import_module(f"firsttouch.commands.{name}").register(subparsers)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    # A terminated command cleans up as an interrupted one does.
    signal.signal(signal.SIGTERM, _interrupt)
    given = sys.argv[1:] if argv is None else list(argv)
    try:
        return _run(given)
    except CannotHere as error:
        print(f"{CANNOT_HERE}{error}", file=sys.stderr)
        return error.exit_status
    except FirstTouchError as error:
        print(f"firsttouch: error: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print("firsttouch: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output is gone (`firsttouch plan | head`): nobody is left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"firsttouch: error: {where}{error.strerror or error}", file=sys.stderr)
        return 2


def _run(given: Sequence[str]) -> int:
    # One command is a quarter of a second faster to load than all of them.
    commands = given[:1] if given and given[0] in COMMANDS else COMMANDS
    try:
        with _no_idle_threads():
            made = parser(commands)
        args = made.parse_args(given)
        return int(args.run(args))
    finally:
        # Here, where a reader that is gone is no traceback: at Python's own end it is one.
        sys.stdout.flush()


@contextlib.contextmanager
def _no_idle_threads() -> Iterator[None]:
    """Let numpy, loaded within, start no thread for each PU: nothing here uses its linear algebra.

    The programs that are measured see the environment as it was.
    """
    name = "OPENBLAS_NUM_THREADS"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
