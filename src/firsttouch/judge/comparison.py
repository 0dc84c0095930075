# SPDX-License-Identifier: Apache-2.0
"""Compares two campaigns of the same hosts: direction, size and certainty of each change.

Each host is compared with itself, so differences between hosts cancel. Repetitions and sessions are weighed as in
verdicts, so a single host with enough repetitions can decide. Several hosts are pooled
(:func:`firsttouch.judge.questions.spread_of`), and hosts that changed unlike the others are named. Values that are
read or counted, such as wrong answers, decide at once. A measured value that changed to 0 or from 0 does, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from firsttouch.host.host_lists import natural
from firsttouch.judge import constants, event_limits, questions
from firsttouch.judge.levels import case_losses, session_noise
from firsttouch.records.cases import Case, by_key
from firsttouch.records.groups import Bools, Floats, Ints, of_hosts
from firsttouch.records.samples_table import SamplesTable
from firsttouch.records.sessions import Sessions
from firsttouch.statistics import student_quantile

Word = Literal["worse", "better", "changed", "undecided", "unchanged"]
#: In order of urgency.
ORDER: Sequence[Word] = ("worse", "changed", "better", "undecided", "unchanged")
CONFIDENCE = 0.99
#: Smaller changes of many hosts are not named, even if they are certain. Changes of fewer hosts must be larger, up
#: to :data:`LEAST_LOSS` for one host, because the sessions of a host differ anyway.
NEGLIGIBLE = 0.005
#: The most degrees of freedom of two priors: the noise of all cases of a metric for the noise of one case, and the
#: noise for the spread of hosts.
_POOLED = 8.0


class MetricChange(Struct, frozen=True):
    """The change of a metric: its medians *before* and *after* (in the unit of the case) on a number of *hosts*.

    *size* is the relative change (1: from 0), with the :data:`CONFIDENCE` interval *low* to *high*. *unlike* are
    the hosts that changed unlike most, with their changes. *needs* states how to decide an undecided change.
    """

    case: Case
    hosts: int
    before: float
    after: float
    size: float
    low: float
    high: float
    unlike: Sequence[tuple[str, float]]
    word: Word = "undecided"
    needs: str = ""
    #: The smallest change (a fraction) that would have been certain in 95 % of cases; NaN: none.
    floor: float = math.nan


class Host(Struct, frozen=True):
    """A host in both campaigns that changed unlike the other hosts.

    *changes* are its unusual changes, the worst first; *lost* and *new* are the metrics that only this host lost
    or gained.
    """

    name: str
    changes: Sequence[tuple[Case, float]]
    lost: Sequence[Case]
    new: Sequence[Case]

    @property
    def worst(self) -> tuple[float, int, int]:
        """The size of its worst change (1 for a lost metric), and its numbers of lost and of changed metrics."""
        worst = max((case.worsening(size) for case, size in self.changes), default=0.0)
        return (max(worst, float(bool(self.lost))), len(self.lost), len(self.changes))


class Comparison(Struct, frozen=True):
    """All changes in order of urgency, and the hosts and cases that only one of the two campaigns has.

    *changed* are the hosts that changed unlike the others, the worst first. *busy* are hosts that one campaign
    measured only while other processes used them; their values show no change.
    """

    changes: Sequence[MetricChange]
    hosts: int
    changed: Sequence[Host]
    busy: Sequence[str]
    hosts_of_one: tuple[Sequence[str], Sequence[str]]
    cases_of_one: tuple[Sequence[str], Sequence[str]]


class _Side(Struct, frozen=True):
    """A case in a campaign: the *level* of each host (NaN: none), and how often it was measured.

    The level is a loss, or a value that is read or counted. *variance* is between sessions (NaN: a host has only
    one), *noise* within a session (NaN: nothing was repeated), from *steps* differences. *is_busy* marks the hosts
    that were measured only while other processes used them, *is_zero* those that measured only 0 (no loss).
    """

    level: Floats
    repetitions: Floats
    is_busy: Bools
    is_zero: Bools
    variance: float = math.nan
    noise: float = math.nan
    steps: int = 0


def compare(before: SamplesTable, after: SamplesTable) -> Comparison:
    """Compare the valid samples of two campaigns."""
    shared = sorted({*before.hosts} & {*after.hosts})
    tables = [(t, Sessions.from_table(t), np.searchsorted(t.hosts, shared)) for t in (before, after)]
    numbers = [{(case.system, case.key): n for n, case in enumerate(t.cases)} for t in (before, after)]
    lost: dict[str, list[Case]] = {}
    new: dict[str, list[Case]] = {}
    pairs: list[tuple[Case, Sequence[_Side]]] = []
    alone: tuple[list[str], list[str]] = ([], [])
    for key in {**numbers[0], **numbers[1]}:
        places = [of_side.get(key) for of_side in numbers]
        case = next(t[0].cases[n] for t, n in zip(tables, places, strict=True) if n is not None)
        sides = [_side(*t, n) for t, n in zip(tables, places, strict=True)]
        if limit := case.limit:
            sides = _with_zeros(case, limit.most, sides, tables)
        had, has = (np.isfinite(side.level) | side.is_zero for side in sides)
        if not (had & has).any():
            alone[places[0] is None].append(case.title)
            continue
        for by_host, is_changed in ((lost, had & ~has), (new, has & ~had)):
            for host in np.flatnonzero(is_changed).tolist():
                by_host.setdefault(shared[host], []).append(case)
        pairs.append((case, sides))
    changes = [
        _counted(case, shared, sides)
        if event_limits.is_exact(case)
        else _measured(case, shared, sides, noise, len(pairs))
        for (case, sides), noise in zip(pairs, _noises(pairs), strict=True)
    ]
    is_busy = np.any([side.is_busy for _, sides in pairs for side in sides], axis=0)
    exact = event_limits.is_exact
    return Comparison(
        changes=sorted(changes, key=lambda c: (ORDER.index(c.word), not exact(c.case), -abs(c.size), c.case.name)),
        hosts=len(shared),
        changed=_hosts(changes, lost, new),
        busy=[shared[host] for host in np.flatnonzero(is_busy).tolist()],
        hosts_of_one=(sorted({*before.hosts} - {*shared}), sorted({*after.hosts} - {*shared})),
        cases_of_one=alone,
    )


def _with_zeros(
    case: Case, most: float, sides: Sequence[_Side], tables: Sequence[tuple[SamplesTable, Sessions, Ints]]
) -> list[_Side]:
    """Return *sides* with 0 where only the other one has the case, but other records would show its events.

    More events than *most* are a change even without such records before them.
    """
    had, has = (side.level for side in sides)
    is_counted = []
    for samples, _, hosts in tables:
        cases = [number for number, other in enumerate(samples.cases) if event_limits.would_count(other, case)]
        is_counted.append(np.isin(hosts, [host for number in cases for host in samples.good(number)[2].tolist()]))
    has_new = np.isfinite(has) & (is_counted[0] | (has > most))
    gaps = (np.isnan(had) & has_new, np.isnan(has) & np.isfinite(had) & is_counted[1])
    return [replace(s, level=np.where(gap, 0.0, s.level)) for s, gap in zip(sides, gaps, strict=True)]


def _side(samples: SamplesTable, sessions: Sessions, hosts: Ints, number: int | None) -> _Side:
    """Return the levels of a case, None if *samples* do not have it, on *hosts* (numbers)."""
    count = sessions.hosts
    level, none = np.full(count, np.nan), np.zeros(len(hosts), dtype=np.bool_)
    if number is None:
        return _Side(level[hosts], np.zeros(len(hosts)), none, none)
    values, counts, which = samples.good(number)
    if event_limits.is_exact(samples.cases[number]):
        # A single wrong answer decides, whatever the number of right ones.
        is_counted = samples.cases[number].limit is not None
        ends = np.cumsum(counts)
        level[which] = np.maximum.reduceat(values, ends - counts) if is_counted else values[ends - 1]
        return _Side(level[hosts], np.ones(len(hosts)), none, none)
    losses = case_losses(samples, sessions, number)
    host = sessions.host[losses.session]
    level = of_hosts(losses.loss, host, count)
    is_busy = np.isfinite(level) & (np.bincount(host, ~losses.is_disturbed, minlength=count) == 0)
    of_sessions = np.full(len(sessions.number), np.nan)
    of_sessions[losses.session] = losses.loss
    return _Side(
        level[hosts],
        np.bincount(host, losses.count, minlength=count).astype(np.float64)[hosts],
        is_busy[hosts],
        np.isin(hosts, which) & np.isnan(level[hosts]),
        session_noise(of_sessions, sessions)[0] ** 2 * len(np.unique(host)) / max(len(host), 1),
        max(losses.noise, losses.step / math.sqrt(12)) ** 2,
        int((losses.count - 1).sum()),
    )


def _noises(pairs: Sequence[tuple[Case, Sequence[_Side]]]) -> list[tuple[float, float]]:
    """Return the variance of a repetition of each case, by all cases of its metric, and its freedom."""
    metrics: dict[tuple[str, str], int] = {}
    metric = np.array([metrics.setdefault((case.check, case.metric), len(metrics)) for case, _ in pairs], int)
    steps = np.array([sum(side.steps for side in sides) for _, sides in pairs], float)
    squares = np.array([sum(side.steps * side.noise for side in sides if side.steps) for _, sides in pairs], float)
    all_steps, all_squares = np.bincount(metric, steps)[metric], np.bincount(metric, squares)[metric]
    # Neighbouring differences share a repetition.
    of_all = np.minimum(_POOLED, all_steps / 2)
    freedom = of_all + steps / 2
    with np.errstate(invalid="ignore"):
        variance = np.maximum((of_all * all_squares / all_steps + squares / 2) / freedom, constants.LEAST_NOISE**2)
    variance = np.where(all_steps > 0, variance, constants.PRIOR_NOISE**2)
    freedom = np.where(all_steps > 0, freedom, constants.PRIOR_FREEDOM)
    return [*zip(variance.tolist(), freedom.tolist(), strict=True)]


def _word(case: Case, *, is_worse: bool) -> Word:
    """Return the word of a change that is certain."""
    return "changed" if case.better == "neither" else "worse" if is_worse else "better"


def _counted(case: Case, names: Sequence[str], sides: Sequence[_Side]) -> MetricChange:
    """Return the change of a case that is read or counted: a single host decides."""
    both = np.flatnonzero(np.isfinite(sides[0].level) & np.isfinite(sides[1].level))
    before, after = (side.level[both] for side in sides)
    limit = case.limit
    # A change from 0 is relative to the value after it (1: up).
    base = np.where(before == 0, np.abs(after), before)
    sizes = np.divide(after - before, base, out=np.zeros_like(base), where=base != 0)
    is_apart = np.abs(after - before) > (limit.most if limit else 0.0)
    is_worse = is_apart & (case.worsening(after - before) > 0)
    chosen = is_worse if is_worse.any() else is_apart
    shown = chosen if chosen.any() else np.ones(len(both), dtype=np.bool_)
    is_named = limit is not None or not chosen.all()
    unlike = [(names[both[i]], float(sizes[i])) for i in np.flatnonzero(chosen & is_named).tolist()]
    was, now, size = (float(np.median(values[shown])) for values in (before, after, sizes))
    low, high = float(sizes.min()), float(sizes.max())
    word: Word = _word(case, is_worse=bool(is_worse.any())) if chosen.any() else "unchanged"
    return MetricChange(case, len(both), was, now, size, low, high, unlike, word)


def _measured(
    case: Case, names: Sequence[str], sides: Sequence[_Side], noise: tuple[float, float], tests: int
) -> MetricChange:
    """Return the change of a measured case; *noise* is the variance of a repetition with its freedom."""
    both = np.isfinite(sides[0].level) & np.isfinite(sides[1].level)
    if not both.any():
        values = [np.where(side.is_zero, 0.0, np.exp(case.loss_sign * side.level)) for side in sides]
        return _counted(case, names, [replace(s, level=v) for s, v in zip(sides, values, strict=True)])
    calm = both & ~sides[0].is_busy & ~sides[1].is_busy
    places = np.flatnonzero(calm if calm.any() else both)
    before, after = (side.level[places] for side in sides)
    count, losses, sign = len(places), after - before, case.loss_sign
    # The variance of sessions is NaN if there is only one.
    variance = sum(np.fmax(noise[0] / side.repetitions[places], side.variance) for side in sides)
    # Sessions of good hosts differ, too.
    usual = max(float(np.median(variance)), (constants.PRIOR_SPREAD / 2) ** 2 if count > 1 else 0.0)
    freedom = noise[1] if count < constants.FEWEST_HOSTS else min(noise[1], _POOLED)
    spread = questions.spread_of(losses, math.sqrt(usual), freedom)
    centre, good = spread.centre, max(int(np.count_nonzero(spread.good)), 1)
    error = spread.deviation / math.sqrt(good)
    width = student_quantile((1 - CONFIDENCE) / 2, spread.freedom) * error
    size, low, high = (math.expm1(sign * end) for end in (centre, centre - sign * width, centre + sign * width))
    least = max(NEGLIGIBLE, constants.LEAST_LOSS / math.sqrt(good))
    limit, _, floor = questions.limits(error, spread.freedom, 2 * tests, least)
    was_zero, is_zero = (side.is_zero for side in sides)
    unlike = [(names[i], -1.0) for i in np.flatnonzero(is_zero & np.isfinite(sides[0].level)).tolist()]
    unlike += [(names[i], 1.0) for i in np.flatnonzero(was_zero & np.isfinite(sides[1].level)).tolist()]
    if count >= constants.FEWEST_HOSTS:
        beyond = questions.limits(spread.of_another, spread.freedom, tests * count, constants.LEAST_LOSS)[0]
        far = np.abs(losses - centre)
        order = [i for i in np.argsort(-far).tolist() if far[i] > beyond]
        unlike += [(names[places[i]], math.expm1(sign * losses[i])) for i in order]
    was, now = (float(np.exp(sign * np.median(levels[spread.good]))) for levels in (before, after))
    word: Word = "unchanged" if abs(centre) + width <= constants.LEAST_LOSS else "undecided"
    if abs(centre) > limit:
        word = _word(case, is_worse=centre > 0)
    if not calm.any():
        return MetricChange(case, count, was, now, size, low, high, unlike, "undecided", "an idle host")
    needs = "more repetitions" if word == "undecided" else ""
    return MetricChange(case, count, was, now, size, low, high, unlike, word, needs, math.expm1(floor))


def _hosts(
    changes: Sequence[MetricChange], lost: Mapping[str, Sequence[Case]], new: Mapping[str, Sequence[Case]]
) -> list[Host]:
    """Return the hosts that changed unlike the others, the worst first."""
    unlike = [(host, change.case, size) for change in changes for host, size in change.unlike]
    unlike.sort(key=lambda c: (-c[1].worsening(c[2]), c[1].name))
    of = {host: [c[1:] for c in of_host] for host, of_host in by_key(unlike, lambda c: c[0]).items()}
    hosts = [Host(name, of.get(name, ()), lost.get(name, ()), new.get(name, ())) for name in {*of, *lost, *new}]
    return sorted(sorted(hosts, key=lambda h: natural(h.name)), key=lambda h: h.worst, reverse=True)
