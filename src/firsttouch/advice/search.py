# SPDX-License-Identifier: Apache-2.0
"""The search for the fastest scenario: the model's input from a host and its plan, and the choice of each trial.

The next trial is the one with the largest knowledge gradient per second. The knowledge gradient of a trial is the
expected fall of the least expected time that the trial causes (Frazier, Powell and Dayanik, The knowledge-gradient
policy for correlated normal beliefs, INFORMS Journal on Computing 21, 2009). One trial of a noisy scenario rarely
changes the choice, so the gradient per trial of 2, 4 and 8 repeats is considered too (KG(*): Frazier and Powell,
Paradoxes in learning and the marginal value of information, Decision Analysis 7, 2010).
"""

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

#: The advice is assumed to serve this many runs: a trial is worth its cost if all of them together save as much.
RUNS = 10
#: Numbers of repeats of a trial that are considered.
REPEATS = np.array([1.0, 2.0, 4.0, 8.0])
#: The budget must hold even if the recommended scenario is this many standard deviations faster than expected, and
#: the next trial this many slower.
SURE_TIME, SURE_COST = 2.0, 1.0
#: Part of the budget that is never spent.
KEPT = 0.08
#: Points and weights for expectations over the standard normal distribution.
_POINTS = np.linspace(-4.0, 4.0, 81)
_WEIGHTS = np.exp(-(_POINTS**2) / 2) / np.exp(-(_POINTS**2) / 2).sum()

Stop = Literal["settled", "budget", "alone"]


# ----------------------------------------------------------------------
# The model's input


def aspects(host: Topology, records: Iterable[Record] = ()) -> Aspects:
    """Return the aspects of *host* by its *records*, or the latency ratio by the firmware's distances."""
    valid = [r for r in records if r.status == "valid"]
    return Aspects(_latency_ratio(valid) or _firmware_ratio(host), _contention(valid))


def _latency_ratio(records: Iterable[Record]) -> float | None:
    """Return the median remote over the median local latency of the largest arrays.

    Only latencies that one program measured in one way are comparable: the way with most remote pairs is used.
    """
    ways: dict[tuple[str, ...], dict[tuple[int, int], tuple[int, float]]] = defaultdict(dict)
    for r in records:
        nodes, bank = r.parameters.get("pu_nodes"), r.parameters.get("bank")
        size = r.parameters.get("size_bytes")
        if r.metric != "random_latency" or not isinstance(nodes, list) or len(nodes) != 1:
            continue
        way = ways[tuple(str(r.parameters.get(name)) for name in ("program", "stride_bytes", "order", "pages"))]
        if isinstance(bank, int) and isinstance(size, int) and size >= way.get((nodes[0], bank), (0, 0))[0]:
            way[nodes[0], bank] = (size, r.value)
    pairs = max(ways.values(), key=lambda way: sum(node != bank for node, bank in way), default={})
    local = [value for (node, bank), (_, value) in pairs.items() if node == bank]
    remote = [value for (node, bank), (_, value) in pairs.items() if node != bank]
    return statistics.median(remote) / statistics.median(local) if local and remote else None


def _firmware_ratio(host: Topology) -> float | None:
    if not host.distances:
        return None
    nodes = host.data_nodes
    remote = [host.distance(a, b) / host.distance(a, a) for a, b in itertools.permutations(nodes, 2)]
    return statistics.mean(remote) if remote else None


def _contention(records: Iterable[Record]) -> float | None:
    """Return the fall of a thread's log bandwidth per doubling of threads, from half of the threads to all."""
    varying = {"threads", "pus", "pu_nodes", "array_bytes"}
    series: dict[tuple[str, ...], dict[int, float]] = defaultdict(dict)
    for r in records:
        threads = r.parameters.get("threads")
        if r.metric == "thread_bandwidth" and isinstance(threads, int):
            key = tuple(f"{k}={v}" for k, v in sorted(r.parameters.items()) if k not in varying)
            series[key][threads] = r.value
    falls = []
    for bandwidths in series.values():
        most = max(bandwidths)
        fewer = min((t for t in bandwidths if 2 * t >= most and t < most), default=0)
        if fewer and min(bandwidths[fewer], bandwidths[most]) > 0:
            falls.append(math.log(bandwidths[fewer] / bandwidths[most]) / math.log2(most / fewer))
    return statistics.median(falls) if falls else None


def candidates(scenarios: Sequence[Scenario]) -> list[Candidate]:
    """Return the candidates of *scenarios*, in their order."""
    return [_candidate(s) for s in scenarios]


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


def index_banks(host: Topology, index_bytes: int) -> float:
    """Return how many of the host's banks an index of *index_bytes* fills."""
    return index_bytes / max(1.0, statistics.median(bank_bytes(host, n) for n in host.data_nodes))


def default(scenarios: Sequence[Scenario]) -> int:
    """Return the number of the default run: one instance with the most threads and no placement.

    Raises ValueError if there is none.
    """
    single = [i for i, s in enumerate(scenarios) if s.instances == 1 and not s.placements[0].numactl]
    return max(single, key=lambda i: scenarios[i].threads)


# ----------------------------------------------------------------------
# The search


@dataclass(frozen=True)
class Outcome:
    """The result of a search: the posterior, the trials of each candidate, and why the search stopped.

    *stop*: ``settled``, no trial is worth its cost; ``budget``, no such trial fits the budget; ``alone``, one
    candidate is left.
    """

    belief: Belief
    trials: tuple[tuple[Trial, ...], ...]
    stop: Stop


@dataclass(frozen=True)
class Rules:
    """The *fraction* of the reads and the *load* of each trial, and the *budget*.

    *budget* is a part of the whole run of the recommended scenario.
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
    on_update: Callable[[Belief], None] | None = None,
) -> Outcome:
    """Spend the budget on trials and return the posterior.

    *run* makes a trial of a candidate; None drops the candidate (it failed, or its placement did not hold).
    Candidates in *out* are dropped from the start. *trials* are earlier trials. *spent* returns the seconds spent
    (default: the sum of the trials), and *on_update* gets each posterior. Raises RunFailed if all candidates are
    dropped.
    """
    times = [list(own) for own in trials] if trials else [[] for _ in prior.mean]
    dropped = np.zeros(len(times), bool)
    dropped[list(out)] = True
    spent = spent or seconds_of
    while True:
        if not any(times):
            chosen = int(np.argmin(np.where(dropped, np.inf, prior.mean)))
        else:
            belief = update(prior, times, rules.load)
            if on_update:
                on_update(belief)
            own = math.fsum(t.fraction for t in times[belief.best])
            choice = _next(belief, rules, spent(times), own, dropped)
            if isinstance(choice, int):
                chosen = choice
            elif len(times[belief.best]) == 1:
                # One lucky trial must not decide, and the first trial shows that a second one costs little.
                chosen = belief.best
            else:
                return Outcome(belief, tuple(map(tuple, times)), choice)
        trial = run(chosen)
        if trial is None:
            dropped[chosen] = True
            times[chosen] = []
            if dropped.all():
                raise RunFailed("no scenario is left that could be tried")
        else:
            times[chosen].append(trial)


def seconds_of(trials: Sequence[Sequence[Trial]]) -> float:
    """Return the seconds of all trials."""
    return math.fsum(t.seconds for own in trials for t in own)


def _next(belief: Belief, rules: Rules, spent: float, own: float, dropped: np.ndarray) -> int | Stop:
    """Return the candidate to try next, or why the search stops.

    *own* is the part of its reads that the best candidate has already been tried on.
    """
    if (~dropped).sum() == 1:
        return "alone"
    best = belief.best
    whole = math.exp(belief.mean[best])
    log_sd = math.sqrt(max(0.0, float(belief.covariance[best, best])))
    # Trials of the recommended scenario cost the same part of its run, however long that turns out to be.
    fast = whole * math.exp(-SURE_TIME * log_sd)
    allowed = own * whole + (rules.budget - own) * fast - KEPT * rules.budget * whole
    cost, high_cost = costs(belief, rules)
    fits = ~dropped & (spent + high_cost <= allowed)
    if not fits.any():
        return "budget"
    worth = (_knowledge_gradients(belief, rules, dropped) * whole / (REPEATS[:, None] * cost)).max(axis=0)
    chosen = int(np.argmax(np.where(fits, worth, -1.0)))
    if worth[chosen] * RUNS >= 1:
        return chosen
    return "settled" if (worth[~dropped] * RUNS < 1).all() else "budget"


def costs(belief: Belief, rules: Rules) -> tuple[Floats, Floats]:
    """Return the expected seconds of a trial of each candidate, and an upper bound (SURE_COST deviations)."""
    load, fraction = rules.load, rules.fraction
    c, best = belief.covariance, belief.best
    variance = np.maximum(0.0, np.diag(c) + c[best, best] - 2 * c[:, best])
    mean = load.seconds + fraction * np.exp(belief.mean + variance / 2)
    high = load.seconds + load.sd * SURE_COST + fraction * np.exp(belief.mean + SURE_COST * np.sqrt(variance))
    return mean, high


def _knowledge_gradients(belief: Belief, rules: Rules, dropped: np.ndarray) -> Floats:
    """Return the expected fall of the least expected log time (repeats x candidates).

    r trials of candidate i change the means by K e_i / sqrt(K_ii + noise_i / r) Z, Z standard normal (Frazier et
    al. 2009, section 2.2). The result is min_j mean_j - E[min_j (mean_j + change_j)] over the candidates j that
    are tried then.
    """
    c, count = belief.covariance, len(belief.mean)
    seconds = rules.load.seconds + rules.fraction * np.exp(belief.mean)
    # The noise of a trial's time is larger relative to its work, the more of the time is load.
    noise = belief.noise * (seconds / (rules.fraction * np.exp(belief.mean))) ** 2
    observed = np.diag(c) + noise / REPEATS[:, None]
    change = c / np.sqrt(observed)[:, :, None]  # repeats x candidate that is tried x candidate whose mean changes
    mean = np.tile(np.where(belief.tried & ~dropped, belief.mean, np.inf), (count, 1))
    np.fill_diagonal(mean, belief.mean)  # the trial makes its candidate one of the tried
    least = (mean[None, :, :, None] + change[:, :, :, None] * _POINTS).min(axis=2) @ _WEIGHTS
    gradients: Floats = belief.mean[belief.best] - least
    return gradients
