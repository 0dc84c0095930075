# SPDX-License-Identifier: Apache-2.0
"""The command reference: the help texts of all commands, taken from the argument parser."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from unittest import mock

from firsttouch import cli


def markdown() -> str:
    """Return a section for each command, with its help text."""
    top = cli.parser()
    with mock.patch.dict(os.environ, COLUMNS="100"):  # argparse takes the width of the help from it
        helps = [(name, parser.format_help()) for name, parser in commands(top, "firsttouch")]
        helps.insert(1, ("firsttouch help --all", top.format_all()))
    return "\n".join(
        f"{'#' * min(4, 1 + _words(name))} {name}\n\n```text\n{text.rstrip()}\n```\n" for name, text in helps
    )


def _words(name: str) -> int:
    """Return the number of words of a command without its options."""
    return sum(not word.startswith("-") for word in name.split())


def commands(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield *name* with its parser, then its subcommands with theirs."""
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subcommand, subparser in action.choices.items():
                yield from commands(subparser, f"{name} {subcommand}")
