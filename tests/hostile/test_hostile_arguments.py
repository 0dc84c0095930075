"""Hostile input: arguments."""

import pytest

from hostile import VM, Case

CASES = [
    Case("no command", [], 2, "the following arguments are required: COMMAND"),
    Case("unknown command", ["measure-all"], 2, "invalid choice"),
    Case("no such records", ["report", "nowhere", "-o", "out"], 2, "nowhere: no such file or folder"),
    Case("process", ["validate", "--system", "local", str(VM)], 3, "suspect", process=True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_hostile_arguments(case, hostile):
    hostile(case)
