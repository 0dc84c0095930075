# SPDX-License-Identifier: Apache-2.0
"""The examples of ``--help`` and README.md: command lines that the parser takes."""

import argparse
import re
import shlex
from pathlib import Path

import pytest

from firsttouch import cli

pytestmark = pytest.mark.unit

README = Path(__file__).resolve().parents[2] / "README.md"


def lines(text):
    """Return the command lines that *text* shows, without what is said of them behind."""
    found = re.findall(r"^ {2,}(firsttouch .*)$", text, re.MULTILINE)
    return [re.split(r" {3,}| {2,}#", line)[0].strip() for line in found]


def helps(parser=None, name="firsttouch"):
    """Return (command, its parser) of all commands and subcommands."""
    parser = parser or cli.parser()
    found = [(name, parser)]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub, below in action.choices.items():
                found += helps(below, f"{name} {sub}")
    return found


HELPS = helps()
EXAMPLES = [(name, line) for name, parser in HELPS for line in lines(parser.epilog or "")]
EXAMPLES += [("README.md", line) for line in lines(README.read_text())]


@pytest.mark.parametrize(("where", "line"), EXAMPLES, ids=[f"{w}: {li}" for w, li in EXAMPLES])
def test_an_example_is_a_command_line(where, line):
    _, *argv = shlex.split(line.split("|")[0].split(">")[0])
    assert callable(cli.parser().parse_args(argv).run)


def test_every_command_has_examples():
    commands = {name: bool(lines(parser.epilog or "")) for name, parser in HELPS[1:]}
    assert [n for n, has in commands.items() if not has and not commands.get(n.rpartition(" ")[0])] == []
