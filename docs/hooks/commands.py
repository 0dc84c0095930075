# SPDX-License-Identifier: Apache-2.0
"""The command reference: what --help of every command says, of the parsers themselves."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from firsttouch import cli

PAGE = "commands.md"
_INTRODUCTION = """\
# Commands
Made of the program's own `--help`. Every command takes `--json` (one document on standard output, messages on
standard error) and ends with 0 if all is well, 1 if a program or a verdict failed, 2 for bad input, 3 if something
needed is missing here.
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page."""
    files.append(File.generated(config, PAGE, content=page()))
    return files


def page() -> str:
    """Return the page as Markdown."""
    columns = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100"  # argparse takes the width of the help from it
    try:
        parts = [_INTRODUCTION]
        for name, parser in commands(cli.parser(), "firsttouch"):
            parts.append(
                f"{'#' * min(4, 1 + len(name.split()))} {name}\n\n```text\n{parser.format_help().rstrip()}\n```\n"
            )
    finally:
        if columns is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = columns
    return "\n".join(parts)


def commands(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield a command and the ones below it, each with its parser."""
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below, its_parser in action.choices.items():
                yield from commands(its_parser, f"{name} {below}")
