# SPDX-License-Identifier: Apache-2.0
"""How soon bad hosts are detected for how many node hours: `firsttouch fleet due`, a weekly sweep, scavenging.

Method. 10,000 hosts are in service for a year. A host becomes bad after an exponential time, whose mean (MTBI)
falls with the host's incidents. Three regimes of published rates:

- superbench: 10.36 % of the hosts are bad at first, as in the build-out of a cluster; the MTBI of each host falls
  from 719 h before its first incident to 152 h before its 20th, geometrically (Y. Xiong et al., USENIX ATC 2024).
- offenders: 10.36 % of the hosts become bad as often as that; the others as seldom as in the regime frontier.
- frontier: five hosts of 9,408 become bad in a month (N. Hagerty et al., SC 2023 workshops), and repaired ones
  more often by the ratio of the first regime.

A validation takes half a node hour, detects a bad host with the probability DETECTED (1 as for a loss of 5 %, and
0.9), and blames 0.1 of 1,000 good ones (bench/verdict.py). Hosts are busy for 90 % of the time with jobs of 6 h in
the mean; a validation waits for the end of the job. A user notices a bad host in 2 % of the jobs. A detected host
is repaired in a time of which 38.1 % are longer than a day (the first source), and validated before it returns.

- due: the functions of firsttouch.fleet.screening, called once a day, with a highest age of 14 days, or of 7.
- sweep: the hosts in turn; weekly.
- scavenging: every idle host is validated as long as it is idle.

Each at its own cost, and at the cost of another: the budget of due, the period of the sweep, or the share of the
idle time are chosen for that. The cost is that of screening; validations after repairs are not part of it. The
model's constants were chosen by --tune: on other regimes, sizes and seeds. Figures are medians and ranges over the
seeds, of all incidents of the first eleven months.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from firsttouch.fleet import screening
from firsttouch.fleet.screening import Values

YEAR, DAY = 8760.0, 24.0
COST, FALSE_ALARMS = 0.5, 0.1 / 1000
BUSY, JOB, NOTICED = 0.9, 6.0, 0.02
#: Mean hours of a repair, and of the time until a user reports a bad host.
REPAIR, REPORTED = DAY / -math.log(0.381), JOB / BUSY / NOTICED
#: Mean hours for which a host is idle, and the rate (1/h) of idle times that last for a validation.
IDLE = JOB * (1 - BUSY) / BUSY
COMPLETED = math.exp(-COST / IDLE) / (JOB + IDLE)
#: The factor of a host's MTBI after each of its first 19 incidents.
FALL = (152 / 719) ** (1 / 19)
MAX_AGE = 14 * DAY


@dataclass(frozen=True)
class Regime:
    """How often *hosts* become bad: the share *often* with an MTBI of *mtbi* hours, the others of *rare* hours."""

    name: str
    mtbi: float
    rare: float
    often: float
    bad_at_first: float
    hosts: int = 10_000
    hours: float = YEAR
    fall: float = FALL


FRONTIER = 9408 * 30 * DAY / 5
REGIMES = (
    Regime("superbench", 719, 719, 1.0, 0.1036),
    Regime("offenders", 719, FRONTIER, 0.1036, 0.0),
    Regime("frontier", FRONTIER, FRONTIER, 1.0, 0.0),
)
#: Regimes by which the constants were chosen.
TUNING = (
    Regime("a fifth", 2000, 40_000, 0.2, 0.02, 3000, 200 * DAY, 0.97),
    Regime("equal", 5000, 5000, 1.0, 0.02, 3000, 200 * DAY, 0.99),
    Regime("few", 300, 100_000, 0.02, 0.0, 3000, 200 * DAY, 1.0),
)


@dataclass
class Fleet:
    """The hosts of a simulation: what is true of them, and what their log of verdicts says (times in hours)."""

    regime: Regime
    rng: np.random.Generator

    def __post_init__(self) -> None:
        """Begin with hosts without a verdict."""
        count, rng = self.regime.hosts, self.rng
        self.mtbi = np.where(rng.random(count) < self.regime.often, self.regime.mtbi, self.regime.rare)
        self.incidents = np.zeros(count)
        self.onset = np.where(rng.random(count) < self.regime.bad_at_first, 0.0, rng.exponential(self.mtbi))
        self.report = self.onset + rng.exponential(REPORTED, count)
        self.back = np.zeros(count)
        self.last, self.first = np.full(count, -math.inf), np.full(count, math.inf)
        self.faded = np.zeros(count)
        self.cost = 0.0
        self.delays: list[Values] = []
        self.by_users = 0

    def end(self, hosts: np.ndarray, at: Values) -> None:
        """Detect bad *hosts* at some times: they are repaired, validated and back, until they are bad again."""
        measured = self.onset[hosts] < self.regime.hours - 30 * DAY
        self.delays.append((at - self.onset[hosts])[measured])
        self.incidents[hosts] += 1
        self.faded[hosts] += 1
        self.back[hosts] = at + self.rng.exponential(REPAIR, hosts.size)
        fall = self.regime.fall ** np.minimum(self.incidents[hosts], 19)
        self.onset[hosts] = self.back[hosts] + self.rng.exponential(self.mtbi[hosts] * fall)
        self.report[hosts] = self.onset[hosts] + self.rng.exponential(REPORTED, hosts.size)
        self.noted(hosts, self.back[hosts])

    def noted(self, hosts: np.ndarray, at: Values) -> None:
        """Note that *hosts* were validated."""
        self.last[hosts] = at
        self.first[hosts] = np.minimum(self.first[hosts], at)

    def reported(self, until: Values) -> None:
        """Let users report bad hosts *until* a time for each host."""
        hosts = np.flatnonzero(self.report < until)
        self.by_users += int(np.sum(self.onset[hosts] < self.regime.hours - 30 * DAY))
        self.end(hosts, self.report[hosts])

    def validated(self, hosts: np.ndarray, now: float, detected: float) -> None:
        """Validate *hosts* as soon as they are free, unless a user is faster."""
        waiting = np.where(self.rng.random(hosts.size) < BUSY, self.rng.exponential(JOB, hosts.size), 0.0)
        at = np.full(self.regime.hosts, now + DAY)
        at[hosts] = now + waiting
        self.reported(at)
        hosts = hosts[self.back[hosts] <= at[hosts]]
        chance = self.rng.random(hosts.size)
        self.cost += COST * hosts.size
        self.noted(hosts, at[hosts])
        bad = self.onset[hosts] <= at[hosts]
        self.faded[hosts[~bad & (chance < FALSE_ALARMS)]] += 1
        hits = hosts[bad & (chance < detected)]
        self.end(hits, at[hits])


#: Chooses the hosts to validate on a day: the fleet, the time, and the node hours of the day.
Policy = Callable[[Fleet, float, float], np.ndarray]


def due(fleet: Fleet, now: float, budget: float, max_age: float = MAX_AGE) -> np.ndarray:
    """Return what `firsttouch fleet due` lists."""
    free = np.flatnonzero(fleet.back <= now)
    age = now - fleet.last[free]
    exposure = screening.watched(np.maximum(0.0, now - np.minimum(fleet.first[free], now)))
    rate = screening.rates(fleet.faded[free], exposure)
    with np.errstate(invalid="ignore"):
        hours = np.where(np.isinf(age), math.inf, screening.bad_hours(age, rate, np.zeros(free.size)))
    order, fitting = screening.chosen(age, hours, np.full(free.size, COST), max_age, budget)
    return free[order[:fitting]]


def sweep(fleet: Fleet, now: float, budget: float) -> np.ndarray:
    """Return the hosts whose turn it is."""
    free = np.flatnonzero(fleet.back <= now)
    return free[np.argsort(fleet.last[free], kind="stable")[: int(budget / COST)]]


@dataclass(frozen=True)
class Score:
    """Hours from the beginning of an incident to its detection, the share that users met first, and the cost."""

    median: float
    p95: float
    users: float
    node_hours: float
    incidents: int


def simulate(
    regime: Regime, seed: int, detected: float, policy: Policy | None, per_day: float = math.inf
) -> Score:
    """Return the score of a policy with *per_day* node hours; None: scavenging."""
    fleet = Fleet(regime, np.random.default_rng(seed))
    fade = float(screening.faded(np.array([DAY]))[0])
    idle = regime.hosts * (1 - BUSY) * DAY
    share = min(1.0, per_day / idle)
    saved = 0.0
    for day in range(int(regime.hours / DAY)):
        now = day * DAY
        fleet.faded *= fade
        if policy is None:
            _scavenged(fleet, now, share * COMPLETED * detected)
            fleet.cost += share * idle
            continue
        # What is left of a day is for the next one, but never more than a day's budget.
        saved = min(saved, per_day if math.isfinite(per_day) else 0.0)
        hosts = policy(fleet, now, per_day + saved)
        saved += per_day - COST * hosts.size if math.isfinite(per_day) else 0.0
        fleet.validated(hosts, now, detected)
    delays = np.concatenate(fleet.delays)
    total = max(1, delays.size)
    quantiles = np.quantile(delays, [0.5, 0.95]) if delays.size else (math.nan, math.nan)
    node_hours = fleet.cost * YEAR / regime.hours
    return Score(float(quantiles[0]), float(quantiles[1]), fleet.by_users / total, node_hours, delays.size)


def _scavenged(fleet: Fleet, now: float, rate: float) -> None:
    """Detect bad hosts within a day at a *rate* per hour."""
    begin = np.maximum(fleet.onset, now)
    at = begin + fleet.rng.exponential(1 / rate, fleet.regime.hosts)
    fleet.reported(np.minimum(at, now + DAY))
    hosts = np.flatnonzero((at < now + DAY) & (fleet.onset <= at) & (fleet.back <= now))
    fleet.end(hosts, at[hosts])


def weekly(regime: Regime) -> float:
    """Return the node hours per day of a weekly sweep."""
    return regime.hosts * COST / 7


def compared(regime: Regime, seeds: Sequence[int], detected: float) -> dict[str, list[Score]]:
    """Return the scores of each policy by seed."""
    scores: dict[str, list[Score]] = {}
    for seed in seeds:
        own = simulate(regime, seed, detected, due)
        of_due = own.node_hours / 365
        results = {
            "due, own cost": own,
            "sweep, cost of due": simulate(regime, seed, detected, sweep, of_due),
            "scavenging, cost of due": simulate(regime, seed, detected, None, of_due),
            "due of 7 days, own cost": simulate(regime, seed, detected, partial(due, max_age=7 * DAY)),
            "sweep, weekly": simulate(regime, seed, detected, sweep, weekly(regime)),
            "due, cost of the weekly sweep": simulate(regime, seed, detected, due, weekly(regime)),
            "scavenging, cost of the weekly sweep": simulate(regime, seed, detected, None, weekly(regime)),
            "scavenging, own cost": simulate(regime, seed, detected, None),
        }
        for name, score in results.items():
            scores.setdefault(name, []).append(score)
    return scores


def _text(values: Sequence[float], digits: int = 0) -> str:
    values = [value for value in values if not math.isnan(value)] or [math.nan]
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def tune(seeds: Sequence[int]) -> None:
    """Print the mean delay by the model's constants on other regimes than those that are reported."""
    for half_life in (30, 90, 180, 720):
        for shape in (0.1, 0.5, 2.0):
            screening.HALF_LIFE, screening.SHAPE = half_life * DAY, shape
            row = []
            for regime in TUNING:
                scores = [simulate(regime, seed, 1.0, due, weekly(regime)) for seed in seeds]
                row.append(f"{regime.name} {_text([s.median for s in scores])} {_text([s.p95 for s in scores])}")
            print(f"half-life {half_life} d, shape {shape}: {'; '.join(row)}", flush=True)


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="seeds of each regime (default: 10)")
    parser.add_argument("--hosts", type=int, default=10_000, help="hosts (default: 10000)")
    parser.add_argument("--tune", action="store_true", help="compare the model's constants on other regimes")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    if args.tune:
        tune(range(1000, 1000 + args.seeds))
        return
    document: dict[str, dict[str, list[dict[str, float]]]] = {}
    for regime in REGIMES:
        for detected in (1.0, 0.9):
            name = f"{regime.name}, {detected:.0%} detected"
            scores = compared(replace(regime, hosts=args.hosts), range(args.seeds), detected)
            document[name] = {policy: [vars(s) for s in of_seeds] for policy, of_seeds in scores.items()}
            if args.json:
                continue
            print(f"{name}: {_text([s.incidents for s in scores['sweep, weekly']])} incidents")
            for policy, of_seeds in scores.items():
                delay, late = _text([s.median for s in of_seeds]), _text([s.p95 for s in of_seeds])
                users = _text([100 * s.users for s in of_seeds], 1)
                cost = _text([s.node_hours / 1000 for s in of_seeds])
                print(f"  {policy}: delay {delay} h, 95 % {late} h, users first {users} %, {cost} k node hours")
    if args.json:
        print(json.dumps(document))


if __name__ == "__main__":
    main()
