# SPDX-License-Identifier: Apache-2.0
"""The parser accepts the examples of ``--help``, README.md and the manual."""

import argparse
import re
import shlex

import pytest

import documented
from firsttouch import cli

pytestmark = pytest.mark.unit


def lines(text):
    """Return the command lines in *text*, without the comments behind them."""
    shown = re.findall(r"^ {2,}(firsttouch .*)$", text, re.MULTILINE)
    return [re.split(r" {3,}| {2,}#", line)[0].strip() for line in shown]


def helps(parser=None, name="firsttouch"):
    """Return all commands and subcommands, each with its parser."""
    parser = parser or cli.parser()
    parsers = [(name, parser)]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub, below in action.choices.items():
                parsers += helps(below, f"{name} {sub}")
    return parsers


HELPS = helps()
EXAMPLES = [(name, line) for name, parser in HELPS for line in lines(parser.epilog or "")]
SHOWN = [command for page in documented.PAGES for command in documented.commands(page)]
# extend.md adds files that the parser does not know here; its commands run where the files were added.
EXAMPLES += [(c.place, c.text) for c in SHOWN if c.text.startswith("firsttouch ") and c.page.name != "extend.md"]
#: A job script passes its arguments to the command.
JOBS = [(c.place, c.text) for c in SHOWN if c.text.startswith("sbatch ")]


@pytest.mark.parametrize(("where", "line"), EXAMPLES, ids=[f"{w}: {li}" for w, li in EXAMPLES])
def test_an_example_is_a_command_line(where, line):
    _, *argv = shlex.split(line.split("|")[0].split(">")[0])
    assert callable(cli.parser().parse_args(argv).run)


@pytest.mark.parametrize(("where", "line"), JOBS)
def test_a_submission_is_a_command_line(where, line):
    script = next(word for word in shlex.split(line) if word.endswith(".sbatch"))
    assert (documented.ROOT / script).is_file()
    kind = script.removeprefix("slurm/").removesuffix(".sbatch")
    (command,) = re.findall(
        r'^exec "\$\{firsttouch\[@\]\}" ([a-z ]+)', (documented.ROOT / script).read_text(), re.M
    )
    given = shlex.split(line)[shlex.split(line).index(script) + 1 :]
    assert cli.parser().parse_args([*command.split(), *given]).kind == kind


def test_every_command_has_examples():
    commands = {name: bool(lines(parser.epilog or "")) for name, parser in HELPS[1:]}
    assert [n for n, has in commands.items() if not has and not commands.get(n.rpartition(" ")[0])] == []
