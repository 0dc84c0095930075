# SPDX-License-Identifier: Apache-2.0
"""``firsttouch --print-completion SHELL``: the script by which a shell completes commands, names and files."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterator
from pathlib import Path


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script for a *shell*, with the names in this installation."""
    import shtab  # noqa: PLC0415 - only for this option

    names = _names()
    for action in _actions(parser):
        shown = str(action.metavar)
        if shown in names and not action.choices:
            action.choices = list(names[shown]())
        elif isinstance(action.choices, dict) and not isinstance(action, argparse._SubParsersAction):
            action.choices = list(action.choices)  # shtab mistakes a mapping for sub-commands
        elif action.type is Path:
            action.complete = shtab.DIRECTORY if shown in {"DIR", "STORE"} else shtab.FILE  # type: ignore[attr-defined]
    return str(shtab.complete(parser, shell))


def _names() -> dict[str, Callable[[], Collection[str]]]:
    """Return by placeholder of an argument the functions that list its possible names."""
    from firsttouch.datasets import manifest  # noqa: PLC0415 - see script
    from firsttouch.genomics import aligners  # noqa: PLC0415
    from firsttouch.systems import definition  # noqa: PLC0415

    return {
        "SYSTEM": definition.available,
        "ALIGNER": aligners.names,
        "DATASET": manifest.files,
    }


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from _actions(subparser)
