# SPDX-License-Identifier: Apache-2.0
"""Runs of scenarios, and their speed-ups over the default run (thesis, section 5.3), with their intervals.

Hosts differ, so every time is compared with the default run of the same host: hosts are the blocks of a block
design, so the level of a host cancels (R. A. Fisher, The design of experiments, 1935; D. C. Montgomery, Design and
analysis of experiments, chapter 4).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from firsttouch.records.schema import Record
from firsttouch.report.model import whole
from firsttouch.report.text import clean, count
from firsttouch.scenarios.placement import name_of
from firsttouch.statistics import student_quantile


class Interval(Struct, frozen=True):
    """A value, such as a speed-up, with the ends of its interval (unknown: from 0 to infinity)."""

    value: float
    low: float = 0.0
    high: float = math.inf

    @property
    def bounded(self) -> bool:
        """Whether the ends are known."""
        return self.high < math.inf

    @property
    def clear(self) -> bool:
        """Whether a gain is certain: the whole interval is above 1."""
        return self.low > 1

    def over(self, other: Interval) -> Interval:
        """Return the ratio to *other*, whose interval encloses the ratio of any two values."""
        return Interval(self.value / other.value, self.low / other.high, self.high / other.low)

    def to_dict(self) -> dict[str, float | None]:
        """Return the JSON form; unknown ends are None."""
        ends = (self.low, self.high) if self.bounded else (None, None)
        return {"value": self.value, "low": ends[0], "high": ends[1]}


# ----------------------------------------------------------------------
# Runs.

#: The policy of the default run, without a request to the operating system.
DEFAULT_POLICY = "original"
METRIC = "alignment_time"


def pool_samples(records: Sequence[Record]) -> Record:
    """Return the latest of *records* of one run (of both checks, any batch size) with the samples of all."""
    latest = max(records, key=lambda r: r.time)
    return replace(latest, samples=tuple(s for r in records for s in r.samples))


def scenario(record: Record) -> str:
    """Return the scenario's name, such as ``2x32-bound``."""
    p = record.parameters
    name = p.get("scenario") or name_of(whole(record, "instances"), whole(record, "threads"), str(p["policy"]))
    return clean(str(name))


def shape(record: Record) -> str:
    """Return instances and threads as in the thesis: ``2 x 32 threads``."""
    threads = whole(record, "threads")
    instances = whole(record, "instances")
    return count(threads, "thread") if instances == 1 else f"{instances} x {count(threads, 'thread')}"


def policy_rank(policy: str) -> tuple[bool, str]:
    """Return a sort key: the default policy first, the others alphabetically."""
    return (policy != DEFAULT_POLICY, policy)


def repetitions(record: Record) -> Interval:
    """Return the median and the range of a record's repetitions."""
    return Interval(record.value, min(record.samples), max(record.samples))


def speedup(run: Record, baseline: Record) -> Interval | None:
    """Return how many times faster *run* is than *baseline*; None if a time is not positive."""
    times = repetitions(run), repetitions(baseline)
    return times[1].over(times[0]) if min(t.low for t in times) > 0 else None


# ----------------------------------------------------------------------
# Gains of scenarios that several hosts measured.

#: The gain of the default run.
SAME = Interval(1.0, 1.0, 1.0)
CONFIDENCE = 0.95

Scenario = TypeVar("Scenario", bound=Hashable)
#: The seconds of each repetition (or seconds per read), by host.
Times = Mapping[str, Sequence[float]]


def gains(times: Mapping[Scenario, Times], default: Scenario) -> dict[Scenario, Interval]:
    """Return the gain of every scenario with its simultaneous interval (:data:`CONFIDENCE`).

    Every host of *times* has the *default*, and all times are above 0. The gain of a scenario is the geometric
    mean over its hosts of the ratio of the geometric means (default / scenario). The variance of a gain is the
    larger of two: of repetitions, pooled over all hosts and scenarios, and of a scenario's gain between hosts,
    pooled over the scenarios of several hosts. Student's t allows for the number of comparisons with one control
    (C. W. Dunnett, A multiple comparison procedure for comparing several treatments with a control, 1955; here by
    Bonferroni's inequality).

    With a single repetition and host the noise is unknown, and so are the ends.
    """
    means = {s: {h: float(np.mean(np.log(some))) for h, some in of_host.items()} for s, of_host in times.items()}
    base = means[default]
    ratios = {s: {h: base[h] - mean for h, mean in of.items()} for s, of in means.items() if s != default}
    level = 1 - (1 - CONFIDENCE) / max(1, len(ratios))
    repeated, of_repeated = _pooled_variance(
        [np.log(some).tolist() for of_host in times.values() for some in of_host.values()]
    )
    between, of_between = _pooled_variance([list(of_host.values()) for of_host in ratios.values()])
    result = {default: SAME}
    for scenario, of_host in ratios.items():
        gain = float(np.mean(list(of_host.values())))
        hosts = len(of_host)
        parts = sum(1 / len(times[default][h]) + 1 / len(times[scenario][h]) for h in of_host)
        variances = [(repeated * parts / hosts**2, of_repeated), (between / hosts, of_between)]
        variance, freedom = max((v for v in variances if v[1]), default=(0.0, 0))
        if not freedom:
            result[scenario] = Interval(math.exp(gain))
            continue
        half = math.sqrt(variance) * student_quantile((1 - level) / 2, freedom)
        result[scenario] = Interval(math.exp(gain), math.exp(gain - half), math.exp(gain + half))
    return result


def _pooled_variance(groups: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Return the pooled variance within groups, and its degrees of freedom (0: no group has two values)."""
    freedom = sum(len(values) - 1 for values in groups)
    squares = sum(float(np.sum(np.square(np.array(values) - np.mean(values)))) for values in groups)
    return (squares / freedom if freedom else 0.0), freedom
