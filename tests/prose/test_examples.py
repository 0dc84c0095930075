# SPDX-License-Identifier: Apache-2.0
"""The parser accepts the examples of README.md and the manual; tests/unit/test_cli.py tests the help's."""

import re
import shlex

import pytest

import documented
from firsttouch import cli

PARSER = cli.parser()
SHOWN = [command for page in documented.PAGES for command in documented.commands(page)]
# extend.md adds files that the parser does not know here; its commands run where the files were added.
EXAMPLES = [(c.place, c.text) for c in SHOWN if c.text.startswith("firsttouch ") and c.page.name != "extend.md"]
#: A job script passes its arguments to the command.
JOBS = [(c.place, c.text) for c in SHOWN if c.text.startswith("sbatch ")]


@pytest.mark.parametrize(("where", "line"), EXAMPLES, ids=[f"{w}: {li}" for w, li in EXAMPLES])
def test_an_example_is_a_command_line(where, line):
    _, *argv = shlex.split(line.split("|")[0].split(">")[0])
    assert callable(PARSER.parse_args(argv).run)


@pytest.mark.parametrize(("where", "line"), JOBS)
def test_a_submission_is_a_command_line(where, line):
    script = next(word for word in shlex.split(line) if word.endswith(".sbatch"))
    assert (documented.ROOT / script).is_file()
    kind = script.removeprefix("slurm/").removesuffix(".sbatch")
    (command,) = re.findall(
        r'^exec "\$\{firsttouch\[@\]\}" ([a-z ]+)', (documented.ROOT / script).read_text(), re.M
    )
    given = shlex.split(line)[shlex.split(line).index(script) + 1 :]
    assert PARSER.parse_args([*command.split(), *given]).kind == kind
