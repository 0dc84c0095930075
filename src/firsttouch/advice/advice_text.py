# SPDX-License-Identifier: Apache-2.0
"""The advice as a JSON document, as text and as a stored file, ``*advice.json``.

The document says what to use, what it gains, and why every other scenario is not recommended.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import fields

import firsttouch
from firsttouch import documents
from firsttouch.advice.costs import interval
from firsttouch.advice.posterior import Belief
from firsttouch.advice.trials import Advice
from firsttouch.errors import BadInput
from firsttouch.records import atomic_files
from firsttouch.records.schema import Record
from firsttouch.scenarios import memory_options

#: The document's type, by which a report recognizes it; raise SCHEMA when a key changes its meaning.
DOCUMENT = "firsttouch advice"
SCHEMA = 1

#: Why the trials ended.
STOPS = {
    "settled": "no further trial is worth its cost",
    "budget": "no further trial that is worth its cost fits the budget",
    "alone": "one scenario is left",
    "short": "the reads are too few for a trial: only the rule of thumb was used",
}


def reason(advice: Advice, number: int) -> str:
    """Return why scenario *number* is not recommended."""
    if number in advice.dropped:
        return advice.dropped[number]
    if number in advice.needless and not advice.trials[number]:
        return f"not tried: {advice.needless[number]}"
    if advice.belief is None:
        return "expected to be slower, not tried"
    count = len(advice.trials[number])
    ratio = interval(*advice.belief.ratio(number, advice.best))
    tried = f"after {count} trial{'s' if count > 1 else ''}" if count else "not tried, expected"
    times = f"{ratio['expected']:.2f} x the time ({ratio['low']:.2f} to {ratio['high']:.2f})"
    return f"{tried}: {times}"


def header() -> dict[str, Any]:
    """Return the first keys of a stored advice; host, system, partition and time are those of a new record."""
    names = ("host", "system", "partition", "time")
    now = {f.name: f.default_factory() for f in fields(Record) if f.name in names and callable(f.default_factory)}
    return {"document": DOCUMENT, "schema": SCHEMA, "firsttouch": firsttouch.__version__, **now}


def document(
    advice: Advice,
    default: int,
    infeasible: tuple[tuple[str, str], ...],
    refused: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the JSON object of an advice.

    *default* is the number of the default run, *infeasible* has names and reasons of scenarios that were not
    planned, *refused* those of memory options that this host does not support. Scenarios with memory options are
    listed if they were tried.
    """
    belief = advice.belief
    rows = []
    for number, scenario in enumerate(advice.scenarios):
        best = number == advice.best
        if scenario.options and not (best or advice.trials[number]):
            continue
        memory = advice.memory.get(number)
        rows.append(
            {
                "name": scenario.name,
                "instances": scenario.instances,
                "threads": scenario.threads,
                "policy": scenario.policy,
                "memory_options": list(scenario.options),
                "memory": memory and memory.to_dict(),
                "trials": len(advice.trials[number]),
                "seconds": belief.seconds(number) if belief else None,
                "state": "recommended" if best else "failed" if number in advice.dropped else "dropped",
                "reason": "" if best else reason(advice, number),
            }
        )
    rows += [{"name": n, "trials": 0, "seconds": None, "state": "infeasible", "reason": r} for n, r in infeasible]
    return {
        "recommended": advice.scenarios[advice.best].name,
        "default": advice.scenarios[default].name,
        "predicted_s": belief.seconds(advice.best) if belief else None,
        "gain": advice.gain,
        "interval": 0.9,
        "bases": advice.bases,
        "compared": advice.compared,
        "clear": belief is not None and advice.best != default,
        "fastest_in_trials": advice.scenarios[belief.best].name if belief else None,
        "stop": advice.stop,
        "budget": {
            "fraction": advice.budget,
            "seconds": advice.seconds,
            "spent_s": advice.spent,
            "within": advice.spent <= advice.seconds if belief else True,
        },
        "scenarios": rows,
        "memory_options": option_rows(
            belief,
            [s.options for s in advice.scenarios],
            [len(own) for own in advice.trials],
            {**advice.needless, **advice.dropped},
            refused or {},
        ),
    }


def option_rows(
    belief: Belief | None,
    options: Sequence[Sequence[str]],
    trials: Sequence[int],
    reasons: Mapping[int, str],
    refused: Mapping[str, str],
) -> list[dict[str, Any]]:
    """Return a row for each memory option: its trials, and what it brought or why it was not tried.

    *options* are those of each scenario, *trials* their numbers of trials, and *reasons* why some have none.
    *refused* are options that this host does not support.
    """
    rows = []
    for name in memory_options.options():
        users = [i for i, names in enumerate(options) if name in names]
        if not users and name not in refused:
            continue
        tried = any(trials[i] for i in users)
        state, reason = "tried" if tried else "untried", ""
        if name in refused:
            state, reason = "refused", refused[name]
        elif not tried and all(i in reasons for i in users):
            # That of the option alone, without an allocator.
            state, reason = "dropped", reasons[min(users, key=lambda i: len(options[i]))]
        rows.append(
            {
                "name": name,
                "trials": sum(trials[i] for i in users),
                "gain": option_gain(belief, options, name) if belief and tried else None,
                "state": state,
                "reason": reason,
            }
        )
    return rows


def option_gain(belief: Belief, options: Sequence[Sequence[str]], name: str) -> dict[str, float] | None:
    """Return how many times as fast the best scenario with an option is as the best without; None if untried.

    Only tried scenarios count. *options* are those of each scenario.
    """
    groups = [
        [i for i, names in enumerate(options) if belief.tried[i] and (name in names) == has]
        for has in (True, False)
    ]
    if not all(groups):
        return None
    best, without = (min(group, key=lambda i: float(belief.mean[i])) for group in groups)
    return interval(*belief.ratio(without, best))


def lines(document: dict[str, Any]) -> list[str]:
    """Return the advice of a :func:`document` as lines of text."""
    gain, predicted, budget = document["gain"], document["predicted_s"], document["budget"]
    best = next(row for row in document["scenarios"] if row["state"] == "recommended")
    text = [f"use {best['name']}"]
    if predicted:
        text.append(f"predicted: {_spread(predicted, ' s')}")
    if gain and document["recommended"] != document["default"]:
        text.append(f"times as fast as the default run {document['default']}: {_spread(gain, '')}")
    if predicted:
        over = "" if budget["within"] else ", OVER the budget: the run is too short for trials within it"
        text.append(
            f"trials took {budget['spent_s']:.3g} s; the budget was {budget['seconds']:.3g} s "
            f"({100 * budget['fraction']:.3g} % of the predicted run){over}"
        )
    fastest = document["fastest_in_trials"]
    if fastest and fastest != document["recommended"]:
        text.append(f"{fastest} was the fastest in trials, but that may be chance: the simpler scenario is used")
    if predicted and not document["compared"]:
        text.append(f"only {best['name']} was tried, so nothing was compared: no advice is saved")
    text.append(f"trials ended: {STOPS[document['stop']]}")
    return [*text, *option_lines(document["memory_options"])]


def option_lines(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return what each memory option brought as lines of text, from its rows in a :func:`document`."""
    text = []
    for row in rows:
        if row["gain"]:
            text.append(f"{row['name']}: {_spread(row['gain'], '')} times as fast as the best scenario without it")
        elif row["reason"]:
            reason = row["reason"].removeprefix("memory option ").removeprefix(f"{row['name']}: ")
            text.append(f"{row['name']}: not tried: {reason}")
    return text


def _spread(value: dict[str, float], unit: str) -> str:
    return f"{value['expected']:.3g}{unit} ({value['low']:.3g} to {value['high']:.3g}{unit}, 90 % interval)"


# ----------------------------------------------------------------------
# Stored advice

#: Suffix of the names of files with an advice.
SUFFIX = "advice.json"

#: Seconds, or a ratio of them: within these limits the quotient of any two is finite.
_Number = Annotated[float, Meta(ge=1e-100, le=1e100)]


class _Interval(Struct, forbid_unknown_fields=True):
    expected: _Number
    low: _Number
    high: _Number


class _Row(Struct):
    name: str
    state: Literal["recommended", "dropped", "failed", "infeasible"]
    reason: str
    trials: Annotated[int, Meta(ge=0, lt=2**31)]
    seconds: _Interval | None


class _Option(Struct):
    name: str
    gain: _Interval | None


class _Document(Struct):
    """The part of a :func:`document` that a report needs."""

    host: str
    system: str
    time: str
    aligner: str
    recommended: str
    default: str
    stop: str
    dataset: str | None
    gain: _Interval | None
    predicted_s: _Interval | None
    scenarios: list[_Row]
    memory_options: list[_Option]


def _refuse(error: BadInput) -> None:
    raise error


def find(paths: Iterable[Path], on_unread: Callable[[BadInput], object] = _refuse) -> list[dict[str, Any]]:
    """Return the advice of all files ``*advice.json`` among *paths* and below its folders, in this order.

    *on_unread* is called with the error of such a file that has other contents; the default raises it.
    """
    documents_read = []
    for path in paths:
        files = filter(Path.is_file, sorted(path.rglob(f"*{SUFFIX}"))) if path.is_dir() else [path]
        for file in files:
            if file.name.endswith(SUFFIX):
                try:
                    documents_read.append(read(file))
                except BadInput as error:
                    on_unread(error)
    return documents_read


def read(file: Path) -> dict[str, Any]:
    """Return the document in *file*; raises BadInput if it is not an advice."""
    what, again = (
        "an advice file",
        f"write it again with `firsttouch advise … --save {file.name}`, or rename the file",
    )
    return documents.read_json(file, what, document=DOCUMENT, schema=SCHEMA, form=_Document, again=again)


def write(document: dict[str, Any], file: Path) -> None:
    """Write an advice to *file* atomically; raises BadInput if it cannot be written."""
    try:
        atomic_files.write(file, json.dumps(document, indent=2) + "\n", creates=True)
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror}", file=file) from error


def check(file: Path) -> None:
    """Raise BadInput if an advice could not be written to *file*; called before any long work."""
    if not file.name.endswith(SUFFIX):
        raise BadInput(f"the name must end in {SUFFIX}, so that a report finds it", file=file)
    atomic_files.check_place(file, creates=True)
