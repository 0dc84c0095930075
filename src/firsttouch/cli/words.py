# SPDX-License-Identifier: Apache-2.0
"""What the words of a command line stand for: ``run -- COMMAND``, and the commands of earlier releases."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from firsttouch.execution.progress import say

#: Options of earlier releases that are actions of a command now.
_ACTIONS = {
    ("advise", "--list"): "advice list",
    ("advise", "--forget"): "advice forget",
    ("stage", "--list"): "staged list",
    ("stage", "--drop"): "staged drop",
}


def resolved(given: Sequence[str]) -> list[str]:
    """Return the command line that *given* stands for, and say if it has a command of an earlier release.

    ``run`` with a command behind ``--`` is ``align`` or ``exec``, by what the command is.
    """
    words = list(given)
    end = words.index("--") if "--" in words else len(words)
    own, behind = words[:end], words[end:]
    match own[:1]:
        case ["run"] if behind and not any(word.partition("=")[0] == "--aligner" for word in own):
            from firsttouch.genomics.command_line import calls_aligner  # noqa: PLC0415 - only `run` needs it

            return ["align" if calls_aligner(behind[1:]) else "exec", *own[1:], *behind]
        case ["probe"]:
            say("firsttouch: `firsttouch probe ASPECT OPTIONS` is `firsttouch measure ASPECT -- OPTIONS` now")
            return _probe(words[1:])
        case ["record"]:
            say("firsttouch: `firsttouch record` is `firsttouch exec` now, and --scenario its first argument")
            return [*_record(own), *behind]
    for (command, option), new in _ACTIONS.items():
        if own[:1] == [command] and option in own:
            say(f"firsttouch: `firsttouch {command} {option}` is `firsttouch {new}` now")
            own.remove(option)
            return [*new.split(), *own[1:], *behind]
    return words


def _probe(words: Sequence[str]) -> list[str]:
    """Return the command line of `measure` for the words behind ``probe``, whose options stood in any order."""
    if not words or {"-h", "--help"} & {words[0]}:
        return ["measure", "--help"]
    options = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    flags = [options.add_argument(name, action="store_true") for name in ("--json", "--share-host")]
    values = [options.add_argument(name) for name in ("--records", "--system")]
    try:
        parsed, rest = options.parse_known_args([*words])
    except argparse.ArgumentError:  # an option without its value, which `measure` reports
        return ["measure", *words]
    given = [action.option_strings[0] for action in flags if getattr(parsed, action.dest)]
    given += [
        f"{action.option_strings[0]}={value}"
        for action in values
        if (value := getattr(parsed, action.dest)) is not None
    ]
    return ["measure", *rest[:1], *given, "--", *rest[1:]]


def _record(words: Sequence[str]) -> list[str]:
    """Return *words*, ``record`` and its options, as those of `exec`."""
    rest, scenario = list(words[1:]), []
    for number, word in enumerate(rest):
        name, sign, value = word.partition("=")
        if name == "--scenario" and (sign or rest[number + 1 :]):
            scenario = [value if sign else rest[number + 1]]
            del rest[number : number + (1 if sign else 2)]
            break
    return ["exec", *scenario, *rest]
