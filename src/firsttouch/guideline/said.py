# SPDX-License-Identifier: Apache-2.0
"""An advice in words and as JSON: what to use, what it gains, and why every other scenario is dropped."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import firsttouch
from firsttouch.guideline.belief import Belief
from firsttouch.guideline.live import Advice
from firsttouch.records import Record

#: Names the document, so that a report knows a stored advice; raise SCHEMA when a key changes its meaning.
DOCUMENT = "firsttouch advice"
SCHEMA = 1

#: Half the width of a 90 % interval of a normal distribution, in standard deviations.
Z90 = 1.645
#: What ended the trials, in words.
STOPS = {
    "settled": "no further trial is worth its cost",
    "budget": "no further trial that is worth its cost fits the budget",
    "alone": "one scenario is left",
    "short": "the reads are too few for a trial: this is the rule of thumb alone",
}


def interval(mean: float, sd: float) -> dict[str, float]:
    """Return median, and 90 % interval, of the exponential of a normal distribution."""
    low, high = math.exp(mean - Z90 * sd), math.exp(mean + Z90 * sd)
    return {"expected": math.exp(mean), "low": low, "high": high}


def seconds(belief: Belief, number: int) -> dict[str, float]:
    """Return what is expected of the whole time (s) of one scenario."""
    return interval(float(belief.mean[number]), math.sqrt(max(0.0, float(belief.covariance[number, number]))))


def reason(advice: Advice, number: int) -> str:
    """Return why a scenario is not the recommended one."""
    if number in advice.dropped:
        return advice.dropped[number]
    if advice.belief is None:
        return "expected to be slower, not tried"
    count = len(advice.trials[number])
    ratio = interval(*advice.belief.ratio(number, advice.best))
    tried = f"after {count} trial{'s' if count > 1 else ''}" if count else "not tried, expected"
    times = f"{ratio['expected']:.2f} x the time ({ratio['low']:.2f} to {ratio['high']:.2f})"
    return f"{tried}: {times}"


def place() -> dict[str, Any]:
    """Return what a stored advice begins with: host, system, partition and time are those of a record made now."""
    told = ("host", "system", "partition", "time")
    now = {f.name: f.default_factory() for f in fields(Record) if f.name in told and callable(f.default_factory)}
    return {"document": DOCUMENT, "schema": SCHEMA, "firsttouch": firsttouch.__version__, **now}


def document(advice: Advice, default: int, infeasible: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """Return the JSON object of an advice; *default* is the number of the default run."""
    belief = advice.belief
    gain = interval(*belief.ratio(default, advice.best)) if belief else None
    rows = []
    for number, scenario in enumerate(advice.scenarios):
        best = number == advice.best
        rows.append(
            {
                "name": scenario.name,
                "instances": scenario.instances,
                "threads": scenario.threads,
                "policy": scenario.policy,
                "trials": len(advice.trials[number]),
                "seconds": seconds(belief, number) if belief else None,
                "state": "recommended" if best else "failed" if number in advice.dropped else "dropped",
                "reason": "" if best else reason(advice, number),
            }
        )
    rows += [{"name": n, "trials": 0, "seconds": None, "state": "infeasible", "reason": r} for n, r in infeasible]
    return {
        "recommended": advice.scenarios[advice.best].name,
        "default": advice.scenarios[default].name,
        "predicted_s": seconds(belief, advice.best) if belief else None,
        "gain": gain,
        "interval": 0.9,
        "stop": advice.stop,
        "budget": {
            "fraction": advice.budget,
            "seconds": advice.seconds,
            "spent_s": advice.spent,
            "within": advice.spent <= advice.seconds if belief else True,
        },
        "scenarios": rows,
    }


def lines(found: dict[str, Any]) -> list[str]:
    """Return the advice of a :func:`document` as lines of text."""
    gain, predicted, budget = found["gain"], found["predicted_s"], found["budget"]
    said = [f"use {found['recommended']}"]
    if predicted:
        said.append(f"predicted: {_spread(predicted, ' s')}")
    if gain and found["recommended"] != found["default"]:
        said.append(f"times as fast as the default run {found['default']}: {_spread(gain, '')}")
    if predicted:
        over = "" if budget["within"] else ", OVER the budget: the run is too short to be advised on at this price"
        said.append(
            f"spent: {budget['spent_s']:.3g} s of {budget['seconds']:.3g} s "
            f"({budget['fraction']:.1%} of the predicted run){over}"
        )
    said.append(f"trials ended: {STOPS[found['stop']]}")
    return said


def _spread(value: dict[str, float], unit: str) -> str:
    return f"{value['expected']:.3g}{unit} ({value['low']:.3g} to {value['high']:.3g}{unit}, 90 % interval)"
