# SPDX-License-Identifier: Apache-2.0
"""The advice as a JSON document and as text.

The document names the scenario to use, its gain, and why every other scenario is not recommended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import fields

import firsttouch
from firsttouch.advice.costs import interval
from firsttouch.advice.posterior import Belief
from firsttouch.advice.trials import Advice
from firsttouch.records.schema import Record
from firsttouch.scenarios import memory_options

#: The type of the document, and its version: increment it when a key changes its meaning.
DOCUMENT = "firsttouch advice"
SCHEMA = 1

#: Why the trials ended.
STOPS = {
    "settled": "no further trial is worth its cost",
    "budget": "no further worthwhile trial fits the budget",
    "alone": "one scenario is left",
    "short": "too few reads for a trial: only the rule of thumb was used",
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
    """Return the first keys of a document, with host, system, partition and time as in a new record."""
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
    planned, *refused* the memory options that this host does not support. Scenarios with memory options are
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
        "least_reads": advice.least_reads,
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
    """Return a row for each memory option: its trials, and its gain or the reason why it was not tried.

    *options* are the options of each scenario, *trials* the numbers of trials, *reasons* why some have none.
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
            # The effect of the option alone, without an allocator.
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
    """Return the speed-up of the best scenario with an option over the best one without it; None if untried.

    Only tried scenarios are included. *options* are the options of each scenario.
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
        over = "" if budget["within"] else ", OVER the budget, because the run is too short"
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
    """Return the gain of each memory option as lines of text, from its rows in a :func:`document`."""
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
