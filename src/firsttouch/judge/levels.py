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

from firsttouch.judge import constants
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
        noise = max(float(np.median(steps)) / constants.NORMAL_MEDIAN, trimmed_deviation(steps)) / math.sqrt(2)
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

    loss: NDArray[Any]
    centres: Sequence[float]
    repetitions: Floats
    is_disturbed: Bools
    noise: float
    spread: float
    step: float


def series_losses(cases: Sequence[CaseLosses], sessions: Sessions) -> tuple[SeriesLosses, NDArray[np.float32]]:
    """Return the losses of a series from the losses of its *cases*, and a row for each of these.

    A row has the loss in each session, less the level of the median host.
    """
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
        of_one = constants.PRIOR_NOISE if math.isnan(case.noise) else max(case.noise, case.step / math.sqrt(12))
        noise[at] += of_one**2 / case.count
        disturbed[at] |= case.is_disturbed
    spread, is_measured = 0.0, counts > 0
    with np.errstate(all="ignore"):
        if len(cases) > 1:
            spread = max(spread_within(rows, counts), constants.LEAST_NOISE)
            loss = mean_near(rows, counts, spread)
        else:
            loss = rows[0]
        usual = math.sqrt(float(np.median((noise / counts**2)[is_measured]))) if is_measured.any() else 0.0
        newest = newest_of(repetitions / counts, is_measured, sessions, math.nan)
        is_disturbed = newest_of(disturbed, is_measured, sessions, 0)
        step = max(c.step for c in cases)
    return SeriesLosses(loss, centres, newest, is_disturbed, usual, spread, step), rows


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


def mean_near(rows: NDArray[np.float32], counts: Floats, spread: float) -> NDArray[Any]:
    """Return the mean of each column with outlying values moved inwards (:data:`HUBER`); NaN for an empty one."""
    mean = np.where(counts > 0, 0.0, np.nan)
    for at in _columns(rows):
        middle = middles(rows[:, at])
        near = np.clip(rows[:, at], middle - constants.HUBER * spread, middle + constants.HUBER * spread)
        mean[at] += np.nansum(near, axis=0, dtype=np.float64) / np.maximum(counts[at], 1)
    return mean.astype(np.float32)


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
    """The sessions of all hosts, divided where the level of a host changed: columns, by *host* and time.

    *first* and *last* are sessions, *size* is the number of measured ones, and *level* the loss in them.
    """

    host: Ints
    first: Ints
    last: Ints
    size: Ints
    level: Floats


class Timeline(Struct, frozen=True):
    """The newest stretch of each host (a row), and its best stable one before.

    *begin* is the first session of the newest stretch, *size* its number of sessions, and *level* the host's level
    in it (NaN: not measured). *before* is the last session of the stretch before (-1: none), and *change* how much
    was lost since then. *best* is the level of the best earlier stable stretch (NaN: none), *best_begin* and
    *best_end* its sessions and *best_size* how many it has. *last* is the newest session if it differs from the
    stretch before. *noise* is the standard deviation of a session for each host, with *freedom*.
    """

    stretches: Stretches
    begin: Ints
    size: Ints
    level: Floats
    before: Ints
    change: Floats
    best: Floats
    best_begin: Ints
    best_end: Ints
    best_size: Ints
    last: Floats
    noise: Floats
    freedom: float

    @property
    def variance(self) -> Floats:
        """The variance that the noise of sessions adds to each level."""
        return self.noise**2 / np.maximum(self.size, 1)


class Steps(Struct, frozen=True):
    """The *change* of rows of values at each column from the second one on: the mean since, less the one before.

    Its variance is the variance of a value divided by *weight* (0: the change is unknown).
    """

    change: Floats
    weight: Floats

    @classmethod
    def of_cells(cls, sums: Floats, counts: Floats | Ints) -> Steps:
        """Return the steps of values by their sums and counts in each cell."""
        sums, counts = (column.cumsum(axis=1) for column in (sums, counts))
        share = counts[:, :-1] / np.maximum(counts[:, -1:], 1)
        weight = share * (counts[:, -1:] - counts[:, :-1])
        change = share * sums[:, -1:] - sums[:, :-1]
        return cls(np.divide(change, weight, out=np.zeros_like(change), where=weight > 0), weight)

    def clearness(self, noise: Floats) -> Floats:
        """Return the sizes of all changes in standard deviations, by the *noise* of a value of each row."""
        clearness: Floats = np.abs(self.change) * (np.sqrt(self.weight) / noise[:, None])
        return clearness


def by_week(loss: Floats, sessions: Sessions) -> tuple[Floats, Ints]:
    """Return the sums of the losses of each host (row) in each week, and their numbers."""
    weeks, _, week = sessions.weeks
    measured = np.flatnonzero(np.isfinite(loss) & sessions.current)
    cell, shape = sessions.host[measured] * len(weeks) + week[measured], (sessions.hosts, len(weeks))
    sums: Floats = np.bincount(cell, loss[measured], math.prod(shape)).astype(np.float64)
    counts: Ints = np.bincount(cell, minlength=math.prod(shape))
    return sums.reshape(shape), counts.reshape(shape)


def session_noise(loss: Floats, sessions: Sessions) -> tuple[float, Floats, float]:
    """Return the noise of a session of all hosts, of each host, and its degrees of freedom; NaN: none repeated."""
    hosts, measured = sessions.hosts, np.flatnonzero(np.isfinite(loss) & sessions.current)
    counts = np.bincount(sessions.host[measured], minlength=hosts)
    rows_of = by_size(loss[measured], counts)
    steps_of = [(which, np.abs(np.diff(rows, axis=1))) for which, rows in rows_of if rows.shape[1] > 1]
    if not steps_of:
        return math.nan, np.full(hosts, np.nan), constants.PRIOR_FREEDOM
    steps = np.concatenate([steps.ravel() for _, steps in steps_of])
    pooled = max(trimmed_deviation(steps), constants.LEAST_NOISE) / math.sqrt(2)
    noise = np.full(hosts, pooled)
    # A change is one of few steps, but not noise.
    for which, of_host in ((which, steps) for which, steps in steps_of if steps.shape[1] > 2):
        count, own = of_host.shape[1], medians(of_host) / constants.NORMAL_MEDIAN / math.sqrt(2)
        noise[which] = np.maximum(np.sqrt((8 * pooled**2 + count * own**2) / (8 + count)), pooled)
    return pooled, noise, constants.PRIOR_FREEDOM + len(steps) / 2


def timeline(loss: Floats, sessions: Sessions, unrepeated: float) -> Timeline:
    """Return the stretches of each host: the newest one, and the best stable one before.

    A stretch has :data:`BAD_SESSIONS` sessions or more, a stable one :data:`STABLE_SESSIONS`. The noise is
    *unrepeated* if no host has two sessions.
    """
    hosts, measured = sessions.hosts, np.flatnonzero(np.isfinite(loss) & sessions.current)
    values, host = loss[measured], sessions.host[measured]
    pooled, noise, freedom = session_noise(loss, sessions)
    noise = np.full(hosts, unrepeated) if math.isnan(pooled) else noise
    starts = np.flatnonzero(_starts(values, host, noise, freedom))
    counts, of_host = np.diff(starts, append=len(values)), host[starts]
    level = np.full(len(starts) + 1, np.nan)
    for which, rows in by_size(values, counts):
        size, reach = rows.shape[1], 3 * noise[of_host[which]]
        # Of two sessions, the worse one may be disturbed.
        middle = rows.min(axis=1) if size == constants.BAD_SESSIONS else medians(rows)
        near = np.clip(rows, (middle - reach)[:, None], (middle + reach)[:, None]).mean(axis=1)
        # Among few sessions, a disturbed one makes the noise look large.
        level[which] = middle if constants.BAD_SESSIONS < size < constants.STABLE_SESSIONS else near
    # The stretch of a host without one is the last, which is empty.
    newest, previous, best = (np.full(hosts, -1) for _ in range(3))
    newest[of_host] = np.arange(len(starts))
    later = np.flatnonzero(np.diff(of_host, prepend=-1) == 0)
    previous[of_host[later]] = later - 1
    earlier = np.setdiff1d(np.flatnonzero(counts >= constants.STABLE_SESSIONS), newest)
    earlier = earlier[np.argsort(-level[earlier], kind="stable")]
    best[of_host[earlier]] = earlier
    first, last = (np.append(measured[at], -1) for at in (starts, starts + counts - 1))
    size = np.append(counts, 0)
    return Timeline(
        Stretches(of_host, first[:-1], last[:-1], counts, level[:-1]),
        begin=first[newest],
        size=size[newest],
        level=level[newest],
        before=last[previous],
        change=level[newest] - level[previous],
        best=level[best],
        best_begin=first[best],
        best_end=last[best],
        best_size=size[best],
        last=np.where(size[newest] > constants.STABLE_SESSIONS, loss[last[newest]], np.nan),
        noise=noise,
        freedom=freedom,
    )


def _starts(values: Floats, host: Ints, noise: Floats, freedom: float) -> Bools:
    """Return the first values of stretches, a mask.

    The values of a host are divided where the change is clearest, if chance explains it in at most
    :data:`CHANGE_TAIL` of the hosts; then each half is divided in the same way.
    """
    is_start = np.append(True, np.diff(host) != 0)[: len(host)]
    begins = np.flatnonzero(is_start)
    sizes = np.diff(begins, append=len(values))
    # A single disturbed session is not a change, the newest one included.
    low, high = np.minimum(values[:-1], values[1:]), np.maximum(values[:-1], values[1:])
    middle = values.copy()
    middle[1:-1] = np.clip(values[2:], low[:-1], high[:-1])
    several = begins[sizes > 2], begins[sizes > 2] + sizes[sizes > 2] - 1
    middle[several[0]], middle[several[1]] = middle[several[0] + 1], middle[several[1] - 1]
    # What to divide, by its size.
    parts = {size: [begins[sizes == size]] for size in np.flatnonzero(np.bincount(sizes)).tolist()}
    while parts and (size := max(parts)) >= 2 * constants.BAD_SESSIONS:
        begin = np.concatenate(parts.pop(size))
        rows, places = middle[begin[:, None] + np.arange(size)], size - 2 * constants.BAD_SESSIONS + 1
        steps = Steps.of_cells(rows, np.ones((1, size), dtype=np.int64))
        clearness = steps.clearness(noise[host[begin]])[:, constants.BAD_SESSIONS - 1 :][:, :places]
        first, clearest = np.argmax(clearness, axis=1) + constants.BAD_SESSIONS, clearness.max(axis=1)
        is_change = chance_of_change(clearest, freedom, places) <= constants.CHANGE_TAIL
        begin, first = begin[is_change], first[is_change]
        is_start[begin + first] = True
        for start, length in ((begin, first), (begin + first, size - first)):
            for of_size in np.flatnonzero(np.bincount(length)).tolist():
                parts.setdefault(of_size, []).append(start[length == of_size])
    return is_start
