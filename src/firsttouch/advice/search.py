# SPDX-License-Identifier: Apache-2.0
"""The search for the best scenario: candidates, aspects measured before, and the next trial."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from firsttouch.advice.posterior import Aspects, Belief, Candidate, Floats, Load, Prior, Trial, update
from firsttouch.errors import RunFailed
from firsttouch.host.topology import Topology
from firsttouch.records.schema import Record
from firsttouch.scenarios.memory_fit import bank_bytes
from firsttouch.scenarios.placement import Scenario
from firsttouch.scenarios.policies import policy

# ----------------------------------------------------------------------
# The host's measured aspects, as the prior takes them: from records, or from the firmware's distances.


def aspects(host: Topology, records: Iterable[Record] = ()) -> Aspects:
    """Return the aspects of *host*: of its *records*, or (the latencies' ratio only) of its firmware's table."""
    valid = [r for r in records if r.status == "valid"]
    return Aspects(_latency_ratio(valid) or _firmware(host), _contention(valid))


def _latency_ratio(records: Iterable[Record]) -> float | None:
    """Return the median remote over the median local latency, of the largest arrays.

    Only what one program measured in one way compares: of several, those are taken that have most remote pairs.
    """
    found: dict[tuple[str, ...], dict[tuple[int, int], tuple[int, float]]] = defaultdict(dict)
    for r in records:
        nodes, bank = r.parameters.get("pu_nodes"), r.parameters.get("bank")
        size = r.parameters.get("size_bytes")
        if r.metric != "random_latency" or not isinstance(nodes, list) or len(nodes) != 1:
            continue
        way = found[tuple(str(r.parameters.get(name)) for name in ("program", "stride_bytes", "order", "pages"))]
        if isinstance(bank, int) and isinstance(size, int) and size >= way.get((nodes[0], bank), (0, 0))[0]:
            way[nodes[0], bank] = (size, r.value)
    pairs = max(found.values(), key=lambda way: sum(node != bank for node, bank in way), default={})
    local = [value for (node, bank), (_, value) in pairs.items() if node == bank]
    remote = [value for (node, bank), (_, value) in pairs.items() if node != bank]
    return statistics.median(remote) / statistics.median(local) if local and remote else None


def _firmware(host: Topology) -> float | None:
    if not host.distances:
        return None
    nodes = host.data_nodes
    remote = [host.distance(a, b) / host.distance(a, a) for a, b in itertools.permutations(nodes, 2)]
    return statistics.mean(remote) if remote else None


def _contention(records: Iterable[Record]) -> float | None:
    """Return by how much a thread's bandwidth falls per doubling of threads, from half of them to all."""
    series: dict[tuple[str, ...], dict[int, float]] = defaultdict(dict)
    for r in records:
        threads = r.parameters.get("threads")
        if r.metric == "thread_bandwidth" and isinstance(threads, int):
            rest = (
                f"{k}={v}"
                for k, v in sorted(r.parameters.items())
                if k not in {"threads", "pus", "pu_nodes", "array_bytes"}
            )
            series[tuple(rest)][threads] = r.value
    falls = []
    for one in series.values():
        most = max(one)
        fewer = min((t for t in one if 2 * t >= most and t < most), default=0)
        if fewer and min(one[fewer], one[most]) > 0:
            falls.append(math.log(one[fewer] / one[most]) / math.log2(most / fewer))
    return statistics.median(falls) if falls else None


# ----------------------------------------------------------------------
# The scenarios of a plan as the model sees them.


def candidates(scenarios: Sequence[Scenario]) -> list[Candidate]:
    """Return the candidates of *scenarios*, in their order."""
    return [_candidate(s) for s in scenarios]


def index_banks(host: Topology, index_bytes: int) -> float:
    """Return how many of the host's banks an index of that size fills."""
    return index_bytes / max(1.0, statistics.median(bank_bytes(host, n) for n in host.data_nodes))


def default(scenarios: Sequence[Scenario]) -> int:
    """Return the number of the default run: one instance of the most threads, with nothing asked for.

    Raises ValueError where there is none.
    """
    single = [i for i, s in enumerate(scenarios) if s.instances == 1 and not s.placements[0].numactl]
    return max(single, key=lambda i: scenarios[i].threads)


def _candidate(scenario: Scenario) -> Candidate:
    first = scenario.placements[0]
    users = Counter(n for p in scenario.placements for n in p.numa_nodes)
    return Candidate(
        scenario.name,
        scenario.instances,
        scenario.threads,
        scenario.policy,
        spread=policy(scenario.policy).pages[first.extent] == "even",
        banks=len(first.numa_nodes),
        sharing=statistics.mean(users.values()),
    )


# ----------------------------------------------------------------------
# Which trial next: the one that is expected to bring most for what it costs, within the budget.
#
# The value of a trial is its knowledge gradient (Frazier, Powell and Dayanik 2009, for correlated beliefs): by
# how much the best expected time is expected to fall. As one trial of a noisy scenario seldom changes a choice,
# repeats of it are looked at as well (Frazier and Powell 2010, "KG(*)"), each for its cost.

#: The advice is taken to serve so many runs: trials are over when no trial is worth its cost to all of them.
RUNS = 10
#: Numbers of repeats that are looked at.
REPEATS = np.array([1.0, 2.0, 4.0, 8.0])
#: The budget must hold if the recommended scenario is so many standard deviations faster than expected, and the
#: next trial so many slower.
SURE_TIME, SURE_COST = 2.0, 1.0
#: Part of the budget that is kept back all the same.
KEPT = 0.08
#: Where the standard normal distribution is looked at, and how much each point weighs.
_POINTS = np.linspace(-4.0, 4.0, 81)
_WEIGHTS = np.exp(-(_POINTS**2) / 2) / np.exp(-(_POINTS**2) / 2).sum()

Stop = Literal["settled", "budget", "alone"]


@dataclass(frozen=True)
class Outcome:
    """How a search ended: what is believed, all trials of each candidate, and why no other one was made.

    *stop*: ``settled``, no trial is worth its cost; ``budget``, none fits; ``alone``, there is one candidate.
    """

    belief: Belief
    trials: tuple[tuple[Trial, ...], ...]
    stop: Stop


@dataclass(frozen=True)
class Rules:
    """What a trial is: the *fraction* of the reads, the *load* that comes with each, and the *budget*.

    *budget* is a part of the whole run of the scenario that will be recommended.
    """

    fraction: float
    budget: float
    load: Load = field(default_factory=Load)


def search(
    prior: Prior,
    run: Callable[[int], Trial | None],
    rules: Rules,
    *,
    trials: Sequence[Sequence[Trial]] | None = None,
    out: Iterable[int] = (),
    spent: Callable[[Sequence[Sequence[Trial]]], float] | None = None,
    told: Callable[[Belief], None] | None = None,
) -> Outcome:
    """Spend the budget on the trials that tell most, and return what is believed then.

    *run* makes a trial of a candidate, or returns None where that one is out (it failed, or its placement did
    not hold), as those of *out* are. *trials* are those made before; *spent* says how many seconds are gone
    (default: the trials' own). Raises RunFailed where all are out.
    """
    made = [list(own) for own in trials] if trials else [[] for _ in prior.mean]
    gone = np.zeros(len(made), bool)
    gone[list(out)] = True
    spent = spent or seconds_of
    while True:
        if not any(made):
            chosen = int(np.argmin(np.where(gone, np.inf, prior.mean)))
        else:
            belief = update(prior, made, rules.load)
            if told:
                told(belief)
            own = math.fsum(t.fraction for t in made[belief.best])
            choice = _next(belief, rules, spent(made), own, gone)
            if isinstance(choice, int):
                chosen = choice
            elif len(made[belief.best]) == 1:
                # One lucky trial must not decide; a second one costs little, by what the first one told.
                chosen = belief.best
            else:
                return Outcome(belief, tuple(map(tuple, made)), choice)
        trial = run(chosen)
        if trial is None:
            gone[chosen] = True
            made[chosen] = []
            if gone.all():
                raise RunFailed("no scenario is left that could be tried")
        else:
            made[chosen].append(trial)


def seconds_of(trials: Sequence[Sequence[Trial]]) -> float:
    """Return the seconds of all trials."""
    return math.fsum(t.seconds for own in trials for t in own)


def _next(belief: Belief, rules: Rules, spent: float, own: float, out: np.ndarray) -> int | Stop:
    """Return the candidate to be tried next, or why there is none."""
    if (~out).sum() == 1:
        return "alone"
    best = belief.best
    whole = math.exp(belief.mean[best])
    log_sd = math.sqrt(max(0.0, float(belief.covariance[best, best])))
    # The part that went on the recommended scenario itself is known, however long its whole run takes.
    allowed = (
        own * whole + (rules.budget - own) * whole * math.exp(-SURE_TIME * log_sd) - KEPT * rules.budget * whole
    )
    cost, dear = costs(belief, rules)
    fits = ~out & (spent + dear <= allowed)
    if not fits.any():
        return "budget"
    worth = (_gains(belief, rules, out) * whole / (REPEATS[:, None] * cost)).max(axis=0)
    chosen = int(np.argmax(np.where(fits, worth, -1.0)))
    if worth[chosen] * RUNS >= 1:
        return chosen
    return "settled" if (worth[~out] * RUNS < 1).all() else "budget"


def costs(belief: Belief, rules: Rules) -> tuple[Floats, Floats]:
    """Return the seconds that a trial of each candidate is expected to take, and those it hardly exceeds."""
    load, fraction = rules.load, rules.fraction
    c, best = belief.covariance, belief.best
    variance = np.maximum(0.0, np.diag(c) + c[best, best] - 2 * c[:, best])
    mean = load.seconds + fraction * np.exp(belief.mean + variance / 2)
    high = load.seconds + load.sd * SURE_COST + fraction * np.exp(belief.mean + SURE_COST * np.sqrt(variance))
    return mean, high


def _gains(belief: Belief, rules: Rules, out: np.ndarray) -> Floats:
    """Return by what part the best expected time is expected to fall (r x m), by repeats and candidate."""
    c, count = belief.covariance, len(belief.mean)
    seconds = rules.load.seconds + rules.fraction * np.exp(belief.mean)
    # Of a trial that mostly loads, little is told about the work.
    noise = belief.noise * (seconds / (rules.fraction * np.exp(belief.mean))) ** 2
    own = np.diag(c) + noise / REPEATS[:, None]
    change = c / np.sqrt(own)[:, :, None]  # r x m (tried) x m (what it says of)
    mean = np.tile(np.where(belief.tried & ~out, belief.mean, np.inf), (count, 1))
    np.fill_diagonal(mean, belief.mean)  # who is tried may be recommended then
    least = (mean[None, :, :, None] + change[:, :, :, None] * _POINTS).min(axis=2) @ _WEIGHTS
    gains: Floats = belief.mean[belief.best] - least
    return gains
