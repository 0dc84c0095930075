# SPDX-License-Identifier: Apache-2.0
"""The table of the page Install says of every command whether it needs the extra ``report``, as the code does."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType

import documented
from documented import ROOT
from firsttouch import cli, tools


def names(code: CodeType) -> set[str]:
    """Return the names that a function and its inner functions use."""
    return {*code.co_names, *(n for c in code.co_consts if isinstance(c, CodeType) for n in names(c))}


def called(function: FunctionType) -> Iterator[FunctionType]:
    """Yield the functions of the package that a function may call by a name, or as an attribute of a module."""
    used = names(function.__code__)
    imported = [importlib.import_module(name) for name in used if name.startswith("firsttouch")]
    values = [value for place in (function.__globals__, *map(vars, imported)) for value in map(place.get, used)]
    modules = [value for value in values if isinstance(value, ModuleType)]
    for value in [*values, *(vars(module).get(name) for module in modules for name in used)]:
        if isinstance(value, FunctionType) and value.__module__.startswith("firsttouch"):
            yield value


def needs_report(run: FunctionType) -> bool:
    """Return whether what a command calls may end in the demand for the extra."""
    seen, to_follow = {run}, [run]
    while to_follow:
        new = {*called(to_follow.pop())} - seen
        if tools.require_report in new:
            return True
        seen |= new
        to_follow += new
    return False


def test_the_table_says_which_commands_need_the_extra() -> None:
    page = (ROOT / "docs" / "howto" / "install.md").read_text(encoding="utf-8")
    table = page.split("### What each command needs\n")[1].split("\n\n")[0]
    light, extra = set[str](), set[str]()
    for commands, packages in re.findall(r"^\| (`.*?) \| (.*?) \|", table, re.MULTILINE):
        assert packages in {"light", "`report`"}, packages
        named = {text.partition(" -")[0] for text in re.findall(r"`([^`]+)`", commands)}
        (light if packages == "light" else extra).update(named)
    assert {name.partition(" ")[0] for name in light | extra} == {*cli.COMMANDS}
    for name, command in documented.actions(cli.parser([*cli.COMMANDS])):
        is_needed = needs_report(command.get_default("run"))
        assert {name, name.partition(" ")[0]} & (extra if is_needed else light), (name, is_needed)
