# SPDX-License-Identifier: Apache-2.0
"""The search for the fastest scenario: which trial to run next.

The next trial is the one with the largest knowledge gradient per second. A trial's knowledge gradient is how much
it is expected to lower the least expected time (Frazier, Powell and Dayanik, The knowledge-gradient policy for
correlated normal beliefs, INFORMS Journal on Computing 21, 2009). One trial of a noisy scenario rarely changes the
choice, so the gradient per trial of 2, 4 and 8 repeats is considered too (KG(*): Frazier and Powell, Paradoxes in
learning and the marginal value of information, Decision Analysis 7, 2010).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct, field

from firsttouch.advice.posterior import Belief, Floats, Load, Prior, Trial, update
from firsttouch.errors import RunFailed

#: Advice is assumed to serve this many runs: a trial is worth its cost if they save as much in total.
RUNS = 10
#: The considered numbers of repeats of a trial.
REPEATS = np.array([1.0, 2.0, 4.0, 8.0])
#: The budget must hold even if the recommended scenario is faster than expected, and the next trial slower, by
#: this number of standard deviations.
SURE_TIME, SURE_COST = 2.0, 1.0
#: Part of the budget that is never spent.
KEPT = 0.08
#: Points and weights for expectations over the standard normal distribution.
_POINTS = np.linspace(-4.0, 4.0, 81)
_WEIGHTS = np.exp(-(_POINTS**2) / 2) / np.exp(-(_POINTS**2) / 2).sum()

Stop = Literal["settled", "budget", "alone"]


class SearchResult(Struct, frozen=True):
    """The result of a search: the posterior, the trials of each candidate, and why the search stopped.

    *stop* is ``settled`` (no trial is worth its cost), ``budget`` (no worthwhile trial fits the budget) or
    ``alone`` (one candidate is left).
    """

    belief: Belief
    trials: tuple[tuple[Trial, ...], ...]
    stop: Stop


class Rules(Struct, frozen=True):
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
    out: Collection[int] = (),
    spent: Callable[[Sequence[Sequence[Trial]]], float] | None = None,
    on_update: Callable[[Belief], None] | None = None,
) -> SearchResult:
    """Spend the budget on trials and return the posterior.

    *run* makes a trial of a candidate; None drops the candidate (it failed, or its placement did not hold).
    Candidates without a trial that are in *out*, now or later, are dropped as well. *trials* are earlier trials.
    *spent* returns the seconds spent (default: the sum of the trials), and *on_update* gets each posterior. Raises
    RunFailed if all candidates are dropped.
    """
    times = [list(own) for own in trials] if trials else [[] for _ in prior.mean]
    failed: set[int] = set()
    spent = spent or seconds_of
    while True:
        dropped = np.array([i in failed or (i in out and not own) for i, own in enumerate(times)])
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
                # One lucky trial must not decide; the first trial has shown that a second one costs little.
                chosen = belief.best
            else:
                return SearchResult(belief, tuple(map(tuple, times)), choice)
        trial = run(chosen)
        if trial is None:
            failed.add(chosen)
            times[chosen] = []
            if not any(times) and all(i in failed or i in out for i in range(len(times))):
                raise RunFailed("every scenario was dropped")
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
    # Trials of the recommended scenario cost the same part of its run, regardless of its length.
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
    """Return how much trials are expected to lower the least expected log time (repeats x candidates).

    r trials of candidate i change the means by K e_i / sqrt(K_ii + noise_i / r) Z, Z standard normal (Frazier et
    al. 2009, section 2.2). The result is min_j mean_j - E[min_j (mean_j + change_j)] over the candidates j that
    are tried then.
    """
    c, count = belief.covariance, len(belief.mean)
    seconds = rules.load.seconds + rules.fraction * np.exp(belief.mean)
    # The more of a trial's time is load, the larger is its noise relative to its work.
    noise = belief.noise * (seconds / (rules.fraction * np.exp(belief.mean))) ** 2
    observed = np.diag(c) + noise / REPEATS[:, None]
    # Only tried candidates can be recommended: those with a trial, and the candidate of this trial.
    others = np.flatnonzero(belief.tried & ~dropped)
    scale = np.sqrt(observed)[:, :, None]  # repeats x candidate that is tried
    change = np.concatenate([c[None, :, others] / scale, np.diag(c)[None, :, None] / scale], axis=2)
    mean = np.column_stack([np.tile(belief.mean[others], (count, 1)), belief.mean])
    least = (mean[None, :, :, None] + change[:, :, :, None] * _POINTS).min(axis=2) @ _WEIGHTS
    gradients: Floats = belief.mean[belief.best] - least
    return gradients
