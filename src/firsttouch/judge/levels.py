# SPDX-License-Identifier: Apache-2.0
"""The levels of hosts: the losses of each series of a part by session, and the newest stretch without a change.

A loss is a logarithm, above 0 if a value is worse than usual. The steps, each a few array operations:

1. :class:`CaseLosses`: the median of each session of a case, and the noise of a repetition.
2. :func:`series_losses`: the mean loss of the cases of a series in each session, with outlying cases drawn near.
3. :func:`stretches`: the sessions of each host, divided where its level changed (the one change detector).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from firsttouch.judge.constants import (
    BAD_SESSIONS,
    CHANGE_TAIL,
    HUBER,
    LEAST_NOISE,
    NORMAL_MEDIAN,
    PRIOR_FREEDOM,
    PRIOR_NOISE,
    STABLE_SESSIONS,
)
from firsttouch.records.groups import Bools, Floats, Ints, by_size, group_medians, medians, middles, run_begins
from firsttouch.records.samples_table import SamplesTable
from firsttouch.records.sessions import Sessions
from firsttouch.statistics import chance_of_change, decimal_step

#: How many values show whether they are rounded.
_FEW_VALUES = 4096


class CaseLosses(Struct, frozen=True):
    """The sessions of one case: indexes (*session*), the *loss*, the repetitions and the disturbed ones of each.

    *noise* is the standard deviation of a repetition (NaN: none was repeated), *step* the step of rounded values.
    """

    session: Ints
    loss: Floats
    count: Ints
    is_disturbed: Bools
    noise: float
    step: float


def case_losses(table: SamplesTable, sessions: Sessions, case: int) -> CaseLosses:
    """Return the losses of a case in each session. If larger values are better, falling is a loss."""
    groups = table.groups(case)
    rows = table.rows_of(groups)
    value, number = table.value[rows], table.session(groups)
    kept = table.valid[rows] & table.judged[rows] & (value > 0)
    busy = table.is_busy(rows)
    if busy.any():
        # Disturbed repetitions are used only if a session has no others.
        calm = np.unique(number[kept & ~busy])
        kept &= ~busy | ~np.isin(number, calm)
    if not kept.all():
        value, number, busy = value[kept], number[kept], busy[kept]
    if not len(value):
        none = np.zeros(0)
        return CaseLosses(none.astype(np.int64), none, none.astype(np.int64), none.astype(np.bool_), np.nan, 0.0)
    logs = table.cases[case].loss_sign * np.log(value)
    is_repeated = number[1:] == number[:-1]
    firsts = run_begins(number)
    counts = np.diff(firsts, append=len(number))
    loss = group_medians(logs, counts)
    steps = np.abs(np.diff(logs)[is_repeated])
    noise = np.nan
    if len(steps):
        # Rounded values repeat, so half of the differences may be 0.
        noise = max(float(np.median(steps)) / NORMAL_MEDIAN, trimmed_deviation(steps)) / math.sqrt(2)
    if step := decimal_step(value[:_FEW_VALUES]):
        step /= float(np.median(value))
    return CaseLosses(sessions.place[number[firsts]], loss, counts, busy[firsts], noise, step)


def trimmed_deviation(sizes: Floats) -> float:
    """Return the root mean square of *sizes* without the largest twentieth, which may be disturbed.

    Of four or more, at least one is left out, so that the only change of a single host does not hide itself.
    """
    left_out = max(len(sizes) // 20, int(len(sizes) > 3))
    count = max(1, len(sizes) - left_out)
    kept = np.partition(sizes, count - 1)[:count]
    return float(np.sqrt((kept**2).mean()))


class SeriesLosses(Struct, frozen=True):
    """The mean losses of the cases of a series in each session (NaN: not measured).

    *centres* has the level of the median host for each case. *repetitions* is the mean number of repetitions in
    the newest session of each host, and *is_disturbed* whether one of these was. *noise* is the usual deviation of
    a session by its repetitions, *spread* the one between the cases of a host beyond their common loss, and *step*
    the resolution of rounded values.
    """

    loss: Floats
    centres: Sequence[float]
    repetitions: Floats
    is_disturbed: Bools
    noise: float
    spread: float
    step: float


def series_losses(cases: Sequence[CaseLosses], sessions: Sessions) -> SeriesLosses:
    """Return the losses of a series from the losses of its *cases*."""
    size = len(sessions.number)
    rows = np.full((len(cases), size), np.nan, dtype=np.float32)
    counts, noise, repetitions = (np.zeros(size) for _ in range(3))
    disturbed = np.zeros(size, dtype=np.bool_)
    centres = []
    for row, case in zip(rows, cases, strict=True):
        of_host = np.full(sessions.hosts, np.nan)
        of_host[sessions.host[case.session]] = case.loss  # its newest session
        centres.append(float(middles(of_host[:, None])[0]))
        at = case.session if len(case.session) < size else slice(None)
        row[at] = case.loss - centres[-1]
        counts[at] += 1
        repetitions[at] += case.count
        variance = (PRIOR_NOISE if math.isnan(case.noise) else max(case.noise, case.step / math.sqrt(12))) ** 2
        noise[at] += variance / case.count
        disturbed[at] |= case.is_disturbed
    spread, is_measured = 0.0, counts > 0
    with np.errstate(all="ignore"):
        if len(cases) > 1:
            spread = max(spread_within(rows, counts), LEAST_NOISE)
            loss = mean_near(rows, counts, spread)
        else:
            loss = rows[0].astype(np.float64)
        usual = math.sqrt(float(np.median((noise / counts**2)[is_measured]))) if is_measured.any() else 0.0
        return SeriesLosses(
            loss,
            centres,
            newest_of(repetitions / counts, is_measured, sessions, math.nan),
            newest_of(disturbed, is_measured, sessions, 0),
            usual,
            spread,
            max(c.step for c in cases),
        )


def together(members: Sequence[SeriesLosses]) -> SeriesLosses:
    """Return the losses of several parts as one series: each part weighs the same."""
    rows = np.array([m.loss for m in members], dtype=np.float32)
    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        counts = np.count_nonzero(np.isfinite(rows), axis=0)
        spread = max(spread_within(rows, counts), max(m.spread for m in members) / 2)
        return SeriesLosses(
            mean_near(rows, counts, spread),
            (),
            np.nanmean([m.repetitions for m in members], axis=0),
            np.logical_or.reduce([m.is_disturbed for m in members]),
            math.sqrt(float(np.mean([m.noise**2 for m in members])) / len(members)),
            spread,
            max(m.step for m in members),
        )


def newest_of(values: NDArray[Any], measured: Bools, sessions: Sessions, otherwise: float) -> NDArray[Any]:
    """Return the value of the newest *measured* session of each host, *otherwise* for a host without any."""
    newest = np.full(sessions.hosts, otherwise, dtype=values.dtype)
    newest[sessions.host[measured]] = values[measured]
    return newest


def mean_near(rows: NDArray[np.float32], counts: Floats, spread: float) -> Floats:
    """Return the mean of each column with outlying values moved inwards (:data:`HUBER`); NaN for an empty one."""
    mean = np.where(counts > 0, 0.0, np.nan)
    for at in _columns(rows):
        middle = middles(rows[:, at])
        near = np.clip(rows[:, at], middle - HUBER * spread, middle + HUBER * spread)
        mean[at] += np.nansum(near, axis=0, dtype=np.float64) / np.maximum(counts[at], 1)
    return mean


def _columns(rows: NDArray[np.float32]) -> Iterator[slice]:
    """Yield the columns in parts that a processor's caches hold."""
    width = max(1, (1 << 16) // len(rows))
    return (slice(first, first + width) for first in range(0, rows.shape[1], width))


def spread_within(rows: NDArray[np.float32], counts: Floats) -> float:
    """Return the standard deviation of the rows of a column about their common value; *counts* belong to a column.

    The median of the variances equals the median of a chi-square variable (Wilson and Hilferty, 1931), and few
    bad columns do not move it.
    """
    several = np.flatnonzero(counts > 1)
    if not len(several):
        return 0.0
    freedom = counts[several] - 1
    of_several = rows if len(several) == rows.shape[1] else rows[:, several]
    squares = np.empty(len(several))
    for at in _columns(rows):
        near = np.nan_to_num(of_several[:, at]).astype(np.float64)
        squares[at] = np.einsum("ij,ij->j", near, near) - near.sum(axis=0) ** 2 / counts[several[at]]
    variances = np.maximum(squares, 0.0) / freedom
    return math.sqrt(float(np.median(variances / (1 - 2 / (9 * freedom)) ** 3)))


class Stretches(Struct, frozen=True):
    """The levels of each host (rows) in its stretches of sessions without a change.

    *begin* is the first session of the newest stretch of each host, *size* its number of sessions, and *level* the
    host's level in it (NaN: not measured). *best* is the level of the best earlier stable stretch (NaN: none),
    *best_begin* and *best_end* its sessions and *best_size* how many it has. *before* is the last session before
    the newest stretch (-1: none). *last* is the newest session if it differs from the stretch before. *noise* is
    the standard deviation of a session for each host, with *freedom*. *starts* marks the sessions in which a
    host's level changed.
    """

    begin: Ints
    size: Ints
    level: Floats
    best: Floats
    best_begin: Ints
    best_end: Ints
    best_size: Ints
    before: Ints
    last: Floats
    noise: Floats
    freedom: Floats
    starts: Bools

    @property
    def variance(self) -> Floats:
        """The variance that the noise of sessions adds to each level."""
        return self.noise**2 / np.maximum(self.size, 1)


def session_noise(loss: Floats, sessions: Sessions) -> tuple[float, Floats, float]:
    """Return the noise of a session of all hosts, of each host, and its degrees of freedom; NaN: none repeated."""
    measured = np.flatnonzero(np.isfinite(loss) & sessions.current)
    counts = np.bincount(sessions.host[measured], minlength=sessions.hosts)
    return _noise([*by_size(loss[measured], counts)], sessions.hosts)


def _noise(rows_of: Sequence[tuple[Ints, Floats]], hosts: int) -> tuple[float, Floats, float]:
    """Return the noise of a session by the rows of hosts (numbers), see :func:`session_noise`."""
    steps_of = [(which, np.abs(np.diff(rows, axis=1))) for which, rows in rows_of if rows.shape[1] > 1]
    if not steps_of:
        return math.nan, np.full(hosts, np.nan), 0.0
    steps = np.concatenate([steps.ravel() for _, steps in steps_of])
    pooled = max(trimmed_deviation(steps), LEAST_NOISE) / math.sqrt(2)
    noise = np.full(hosts, pooled)
    for which, of_host in steps_of:
        count, own = of_host.shape[1], medians(of_host) / NORMAL_MEDIAN / math.sqrt(2)
        noise[which] = np.maximum(np.sqrt((8 * pooled**2 + count * own**2) / (8 + count)), pooled)
    return pooled, noise, PRIOR_FREEDOM + len(steps) / 2


def stretches(loss: Floats, sessions: Sessions, unrepeated: float) -> Stretches:
    """Return the newest stretch of each host and its best stable one before.

    A stretch has :data:`BAD_SESSIONS` sessions or more, a stable one :data:`STABLE_SESSIONS`. A host's series is
    divided where the difference is clearest, if chance explains it in at most :data:`CHANGE_TAIL` of the hosts;
    then each half is divided in the same way. The noise is *unrepeated* if no host has two sessions.
    """
    hosts, least, stable = sessions.hosts, BAD_SESSIONS, STABLE_SESSIONS
    measured = np.flatnonzero(np.isfinite(loss) & sessions.current)
    counts = np.bincount(sessions.host[measured], minlength=hosts)
    begins = np.cumsum(counts) - counts
    rows_of = [*by_size(loss[measured], counts)]
    pooled, noise, freedom = _noise(rows_of, hosts)
    noise = np.full(hosts, unrepeated) if math.isnan(pooled) else noise
    freedom = max(freedom, PRIOR_FREEDOM)
    numbers = [np.full(hosts, -1, dtype=np.int64) for _ in range(4)]
    values_of = [np.full(hosts, np.nan) for _ in range(3)]
    result = Stretches(
        begin=numbers[0],
        size=counts.copy(),
        level=values_of[0],
        best=values_of[1],
        best_begin=numbers[1],
        best_end=numbers[2],
        best_size=np.zeros(hosts, dtype=np.int64),
        before=numbers[3],
        last=values_of[2],
        noise=noise,
        freedom=np.full(hosts, freedom),
        starts=np.zeros(len(loss), dtype=np.bool_),
    )
    present = np.flatnonzero(counts)
    result.begin[present] = measured[begins[present]]
    for which, rows in rows_of:
        size = rows.shape[1]
        middle = medians(rows)
        reach = 3 * np.where(np.isnan(noise[which]), np.inf, noise[which])
        near = np.clip(rows, (middle - reach)[:, None], (middle + reach)[:, None]) if size > 2 else rows
        # Among few sessions, a disturbed one makes the noise look large.
        result.level[which] = middle if least < size < stable else near.mean(axis=1)
        if size <= least:
            continue
        clearest = _clearest(rows, noise[which], freedom, least)[1]
        is_changed = clearest <= CHANGE_TAIL
        changed = np.flatnonzero(is_changed)
        if len(changed):
            places = begins[which[changed], None] + np.arange(size)
            _divide(result, which[changed], rows[changed], measured[places], least, stable)
        alone = np.flatnonzero(~is_changed)
        result.last[which[alone]] = rows[alone, -1] if size > stable else np.nan
    return result


def _clearest(rows: Floats, noise: Floats, freedom: float, least: int) -> tuple[Ints, Floats]:
    """Return where each of *rows* is divided most clearly, and the probability that chance causes this."""
    size = rows.shape[1]
    first = np.arange(least, size - least + 1)
    if not len(first):
        return np.zeros(len(rows), dtype=np.int64), np.ones(len(rows))
    sums = np.cumsum(rows, axis=1)
    # The difference of both means in standard deviations, but for the noise, which is the same for a row.
    distance = np.abs(sums[:, least - 1 : size - least] - sums[:, -1:] * (first / size))
    distance *= np.sqrt(size / (first * (size - first)))
    place = np.argmax(distance, axis=1)
    clearest = distance[np.arange(len(rows)), place] / noise
    # Nearer than three deviations, chance is more probable than the limit.
    chance, is_far = np.ones(len(rows)), np.flatnonzero(clearest > 3)
    chance[is_far] = chance_of_change(clearest[is_far], np.full(len(is_far), freedom), len(first))
    return first[place], chance


def _divided(rows: Floats, noise: Floats, freedom: float, least: int) -> Bools:
    """Return the first sessions of the stretches of *rows*, a mask of the same shape."""
    begins = np.zeros(rows.shape, dtype=np.bool_)
    begins[:, 0] = True
    # A single disturbed session is not a change, the newest one included.
    low, high = np.minimum(rows[:, :-1], rows[:, 1:]), np.maximum(rows[:, :-1], rows[:, 1:])
    middle = np.clip(rows[:, 2:], low[:, :-1], high[:, :-1])
    middle = np.hstack([middle[:, :1], middle, middle[:, -1:]])
    # The parts to divide, by their size: their rows and where they begin.
    parts = {rows.shape[1]: [(np.arange(len(rows)), np.zeros(len(rows), dtype=np.int64))]}
    while parts and (size := max(parts)) >= 2 * least:
        row, begin = (np.concatenate(column) for column in zip(*parts.pop(size), strict=True))
        values = middle[row[:, None], begin[:, None] + np.arange(size)]
        first, chance = _clearest(values, noise[row], freedom, least)
        row, begin, first = (column[chance <= CHANGE_TAIL] for column in (row, begin, first))
        begins[row, begin + first] = True
        for start, length in ((begin, first), (begin + first, size - first)):
            for of_size in np.flatnonzero(np.bincount(length)).tolist():
                parts.setdefault(of_size, []).append((row[length == of_size], start[length == of_size]))
    return begins


def _divide(  # noqa: PLR0917
    result: Stretches, which: Ints, rows: Floats, sessions: Ints, least: int, stable: int
) -> None:
    """Set the stretches of hosts (numbers) whose level changed, by their losses and *sessions*, a row each."""
    begins = _divided(rows, result.noise[which], float(result.freedom[which[0]]), least)
    size = rows.shape[1]
    starts = np.flatnonzero(begins)
    row, begin = np.divmod(starts, size)
    result.starts[sessions[row, begin][begin > 0]] = True
    counts = np.diff(starts, append=rows.size)
    levels = group_medians(rows.ravel(), counts)
    newest = np.flatnonzero(np.diff(row, append=len(rows)))
    first = begin[newest]
    result.begin[which], result.size[which] = sessions[np.arange(len(rows)), first], counts[newest]
    # Two sessions: the better one, as the other may be disturbed.
    result.level[which] = np.where(counts[newest] > 2, levels[newest], np.minimum(rows[:, -1], rows[:, -2]))
    result.last[which] = np.where(counts[newest] > stable, rows[:, -1], np.nan)
    result.before[which] = np.where(first > 0, sessions[np.arange(len(rows)), first - 1], -1)
    is_earlier = counts >= stable
    is_earlier[newest] = False
    earlier = np.flatnonzero(is_earlier)
    earlier = earlier[np.lexsort((begin[earlier], levels[earlier], row[earlier]))]
    best = earlier[run_begins(row[earlier])]
    of_best = which[row[best]]
    result.best[of_best], result.best_size[of_best] = levels[best], counts[best]
    result.best_begin[of_best] = sessions[row[best], begin[best]]
    result.best_end[of_best] = sessions[row[best], begin[best] + counts[best] - 1]
