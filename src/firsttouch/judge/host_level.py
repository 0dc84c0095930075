# SPDX-License-Identifier: Apache-2.0
"""What hosts reach now and reached before: the newest stretch without a change, and a host's own best level.

A value is the level of the system, plus what the host differs for ever, plus what the session differs, plus what
the repetition differs. The two latter errors are estimated from all hosts of a case. A host changed before a
session if the means of the repetitions before and after differ by more than these errors. The repetitions before
the last change say nothing about the host as it is now, on whichever side of a limit they are; they are the
history against which the host is compared with itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from firsttouch.judge import natural_spread
from firsttouch.judge.natural_spread import Spread
from firsttouch.judge.sprt import Bools, Floats, Groups, Ints, medians, quantiles
from firsttouch.judge.statistics import NORMAL_MEDIAN, student_quantile

#: A host changed if its means before and after differ by this many standard errors. A change by chance does no
#: harm: the repetitions since decide alone, and fewer of them.
_CHANGED = 3.5
#: The fewest differences from which an error is learnt, and the error of a session if there are fewer.
_FEWEST_STEPS, _USUAL_SESSION_ERROR = 5, 0.01
#: No error is smaller than this.
_LEAST_ERROR = 0.0025
#: Degrees of freedom per session: a median is less efficient than a mean.
_FREEDOM = 0.4
#: The share of a host's sessions that lie nearer to its median than its tail, and that of a normal distribution.
_TAIL, _TAIL_OF_NORMAL = 0.9, 1.645
#: A host's own error counts if it is this many times that of the fleet: a few sessions overstate it as often.
_NOISY = 1.3
#: The error that a host's steps show may be too large by this share, divided by the root of their number.
_DOUBT = 2.0
#: The largest number of siblings that show what hosts have in common.
_SIBLINGS = 100
#: The largest number of moments at which hosts may have changed together, and the sessions that show it on each
#: side of one.
_MOMENTS, _AROUND = 400, 3
#: Hosts have changed for good if they are this many times nearer to their levels before and since than to one.
_UPDATED = 3.0
#: The fewest hosts of a fleet in which one does not matter for what all have in common.
_MANY_HOSTS = 20
_DAY = 86_400_000
#: The fewest hosts that show what they have in common, and the fewest siblings that show if they changed, too.
_FEWEST_HOSTS, _FEWEST_SIBLINGS = 5, 2
#: Deviations of a variance up to which it may be chance.
_BY_CHANCE = 3.0
#: The fewest sessions of a stable period.
STABLE_SESSIONS = 5


#: A change that most hosts made at a time (ms since 1970), and by how much (the change of a logarithm).
Update = tuple[int, float]


class Errors(Struct, frozen=True):
    """Relative standard deviations within a host: of a *repetition* in a session, and of a *session* of a host.

    *step* is that of a session mean from the next one, and *wander* that of session means around the host's level,
    slow drift included, with its degrees of *freedom*.
    """

    repetition: float
    session: float
    step: float
    wander: float
    freedom: float


class Sessions(Struct, frozen=True, dict=True):
    """The sessions of each group of samples: *means* of logarithms, *sizes* and *begins* (the first row of each).

    *counts* is the number of sessions of each group.
    """

    means: Floats
    sizes: Ints
    begins: Ints
    counts: Ints

    @classmethod
    def of(cls, samples: Groups, session: Ints) -> Sessions:
        """Return the sessions of *samples*, whose values are above 0; *session* has a number for each of them."""
        new = np.ones(len(samples.values), dtype=np.bool_)
        new[1:] = session[1:] != session[:-1]
        new[samples.begins] = True
        begins = np.flatnonzero(new)
        sizes = np.diff(begins, append=len(new))
        logs = Groups(np.log(samples.values), sizes)
        return cls(logs.medians, sizes, begins, samples.sums(new.astype(np.int64)))

    @cached_property
    def starts(self) -> Ints:
        """The first session of each group."""
        return np.cumsum(self.counts) - self.counts

    @property
    def several(self) -> Bools:
        """Which groups have more than one session."""
        return self.counts > 1


def errors(samples: Groups, sessions: Sessions) -> Errors:
    """Return the errors within hosts, pooled over all groups.

    The means of *sessions* are without the changes that most hosts have in common.
    """
    repetition = None
    if sessions.sizes.max() > 1:
        logs = Groups(np.log(samples.values), sessions.sizes)
        repetition = _deviation([np.diff(rows, axis=1) for _, rows in logs.blocks() if rows.shape[1] > 1])
    of_group = Groups(sessions.means, sessions.counts)
    total = _deviation([np.diff(rows, axis=1) for _, rows in of_group.blocks() if rows.shape[1] > 1])
    size = float(sessions.sizes.mean())
    freedom = max(_FREEDOM * float((sessions.counts - 1).sum()), 1.0)
    if total is None:  # a usual error counts as if it were learnt from the fewest differences
        session, freedom = _USUAL_SESSION_ERROR, float(_FEWEST_STEPS)
    elif repetition is None:
        session = total
    else:
        session = math.sqrt(max(0.0, total**2 - 1.5 * repetition**2 / size))
    within = math.hypot(session, (repetition or 0.0) / math.sqrt(size))
    step = max(within if total is None else total, _LEAST_ERROR)
    return Errors(repetition or 0.0, max(session, _LEAST_ERROR), step, max(within, _LEAST_ERROR), freedom)


def _with_wander(error: Errors, sessions: Sessions, before: Ints) -> Errors:
    """Return *error* with the deviation of sessions from the level of a host.

    Few hosts have a level before and a level since their last change, and many have one. What looks like changes
    of many is how far hosts wander, unless it is much further: an update, for example, reaches one host after the
    other.
    """
    changed, means = before > 0, Groups(sessions.means, sessions.counts)
    divided, steady = means.chosen(changed), _distances(means.chosen(~changed))
    parts = np.column_stack([before[changed], divided.counts - before[changed]])
    wander, count = _wander([*steady, *_distances(Groups(divided.values, parts.ravel()))])
    if np.count_nonzero(sessions.counts > STABLE_SESSIONS) >= _FEWEST_HOSTS:
        whole, of_whole = _wander([*steady, *_distances(divided)])
        if whole <= _UPDATED * wander:
            wander, count = whole, of_whole
    if count < _FEWEST_STEPS:
        return error
    return replace(error, wander=max(error.wander, wander), freedom=_FREEDOM * count)


def _distances(parts: Groups) -> list[Floats]:
    """Return how far sessions are from the level of their part, in blocks of parts with as many sessions."""
    return [np.abs(rows - medians(rows)[:, None]) for _, rows in parts.blocks() if rows.shape[1] > 2]


def _wander(around: list[Floats]) -> tuple[float, float]:
    """Return how far sessions typically are from the level of their part, and how many sessions show it.

    *around* are the distances of some parts (see :func:`_distances`).
    """
    around = sorted(around, key=lambda rows: rows.shape[1])
    if not around:
        return 0.0, 0.0
    count = sum(weight * rows.size for weight, rows in zip(_weights(around), around, strict=True))
    middle = _median(around) / NORMAL_MEDIAN
    # Hosts with two levels, or values in steps, are mostly at one of them. Most hosts count, not a few bad ones.
    tails = np.concatenate([quantiles(distances, _TAIL) for distances in around])
    return max(middle, float(np.median(tails)) / _TAIL_OF_NORMAL), count


def _without_common_changes(sessions: Sessions, times: Ints) -> tuple[Sessions, Sessions, list[Update]]:
    """Return the sessions without the changes that most hosts made at the same time, such as an update.

    The first are without changes that are clear on each host, the second also without those that are clear in the
    median of all hosts. The changes of the first follow. *times* are those of the sessions.
    """
    updates: list[Update] = []
    if len(sessions.counts) < _FEWEST_HOSTS or not sessions.several.any():
        return sessions, sessions, updates
    chosen = sampled(len(sessions.counts))
    lengths = sessions.counts[chosen][:, None]
    # A row for each host, and further places for those with fewer sessions than others.
    inside = np.arange(lengths.max()) < lengths
    places = np.where(inside, sessions.starts[chosen][:, None] + np.arange(lengths.max()), 0)
    moments = np.unique(times[places[inside]])[1:]
    if len(moments) > _MOMENTS:
        moments = moments[np.linspace(0, len(moments) - 1, _MOMENTS).astype(np.int64)]
    if not len(moments):
        return sessions, sessions, updates
    means, on_each = sessions.means.copy(), None
    # The sessions of each host that are before and after each moment.
    middles = np.array(
        [np.searchsorted(times[row[:length]], moments) for row, (length,) in zip(places, lengths, strict=True)]
    )
    lows, highs = np.maximum(middles - _AROUND, 0), np.minimum(middles + _AROUND, lengths)
    shown = (middles > 0) & (middles < lengths)
    # Hosts that are not measured any more, or not yet, do not vote.
    voters = np.minimum((middles > 0).sum(axis=0), (middles < lengths).sum(axis=0))
    enough = shown.sum(axis=0) >= np.maximum(_FEWEST_HOSTS, voters / 2)
    if not enough.any():
        return sessions, sessions, updates
    # The standard error of a median of normal values is 1.25 times that of their mean.
    of_median = min(1.0, 1.25 / math.sqrt(len(chosen)))
    moments, shown = moments[enough], shown[:, enough]
    lows, middles, highs = lows[:, enough], middles[:, enough], highs[:, enough]
    while True:
        sums = np.zeros((len(places), places.shape[1] + 1))
        np.cumsum(means[places], axis=1, out=sums[:, 1:])
        low, middle, high = (np.take_along_axis(sums, ends, axis=1) for ends in (lows, middles, highs))
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = (high - middle) / (highs - middles) - (middle - low) / (middles - lows)
        common = _shown_medians(steps, shown)
        scatter = float(medians(np.abs(steps - common)[shown])) / NORMAL_MEDIAN
        largest = int(np.argmax(np.abs(common)))
        clear = _CHANGED * max(scatter, _LEAST_ERROR)
        if on_each is None and abs(common[largest]) < clear:
            on_each = replace(sessions, means=means.copy())
        if on_each is not None and abs(common[largest]) < of_median * clear:
            return on_each, replace(sessions, means=means), updates
        means[times >= moments[largest]] -= common[largest]
        if on_each is None:
            updates.append((int(moments[largest]), float(common[largest])))


def _shown_medians(steps: Floats, shown: Bools) -> Floats:
    """Return the median of each column without what is not *shown*; something of each column is."""
    ordered, count = np.sort(np.where(shown, steps, np.inf), axis=0), shown.sum(axis=0)
    columns = np.arange(steps.shape[1])
    result: Floats = (ordered[(count - 1) // 2, columns] + ordered[count // 2, columns]) / 2
    return result


def sampled(hosts: int) -> Ints:
    """Return the numbers of the hosts, of all *hosts*, that show what all have in common."""
    return np.unique(np.linspace(0, hosts - 1, _SIBLINGS).astype(np.int64))


def _deviation(steps: list[Floats]) -> float | None:
    """Return the standard deviation of values from differences of neighbours, None if there are few.

    *steps* are blocks with a row per host or session.
    """
    if sum(rows.size for rows in steps) < _FEWEST_STEPS:
        return None
    return _median([np.abs(rows) for rows in steps]) / NORMAL_MEDIAN / math.sqrt(2)


def _weights(blocks: list[Floats]) -> list[float]:
    """Return the weight of the values of each block of rows (ascending widths): a row of many weighs no more.

    So a host that is measured much more often than the others does not count as most hosts.
    """
    widths, ends = [rows.shape[1] for rows in blocks], np.cumsum([len(rows) for rows in blocks])
    middle = np.searchsorted(ends, [(ends[-1] - 1) // 2, ends[-1] // 2], side="right")
    widest = float(widths[middle[0]] + widths[middle[1]])
    return [min(1.0, widest / width) for width in widths]


def _median(blocks: list[Floats]) -> float:
    """Return the median of blocks of rows, with the weights of :func:`_weights`."""
    values = np.concatenate([rows.ravel() for rows in blocks])
    of_blocks = _weights(blocks)
    if min(of_blocks) == 1:
        return float(medians(values))
    weights = np.repeat(of_blocks, [rows.size for rows in blocks])
    order = np.argsort(values)
    sums = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(sums, sums[-1] / 2)])


def changes(sessions: Sessions, error: Errors) -> Ints:
    """Return the number of sessions of each group before its last change (0: it did not change).

    The clearest change cuts off the older sessions, and the rest is searched again.
    """
    before = np.zeros(len(sessions.counts), dtype=np.int64)
    if not sessions.several.any():
        return before
    means, sizes = Groups(sessions.means, sessions.counts), Groups(sessions.sizes.astype(float), sessions.counts)
    for (which, rows), (_, of_sessions) in zip(means.blocks(), sizes.blocks(), strict=True):
        if rows.shape[1] > 1:
            before[which] = _last_change(rows, of_sessions, error)
    return before


def _last_change(rows: Floats, sizes: Floats, error: Errors) -> Ints:
    """Return the number of sessions before the last change of each row of session means."""
    count = rows.shape[1]
    # A session of a few repetitions weighs less than one of many.
    weights = 1 / (error.session**2 + np.maximum(error.repetition, _LEAST_ERROR) ** 2 * 1.5 / sizes)
    # A column for each row of session means, as numpy is slow on short rows.
    total, moment = np.zeros((2, count + 1, len(rows)))
    squares = np.zeros(len(rows))
    for place, (weight, mean) in enumerate(zip(weights.T, rows.T, strict=True)):
        np.add(total[place], weight, out=total[place + 1])
        of_place = weight * mean
        np.add(moment[place], of_place, out=moment[place + 1])
        squares += of_place * mean
    begins, places = np.zeros(len(rows), dtype=np.int64), np.arange(1, count)[:, None]
    # The rows that are still divided. The square of the clearest change is at most the sum of squares in a row.
    within = squares - moment[-1] ** 2 / total[-1]
    divided = np.flatnonzero(~(within < 0.999 * _CHANGED**2))
    with np.errstate(divide="ignore", invalid="ignore"):
        while len(divided):
            begin, of_total, of_moment = begins[divided], total.take(divided, 1), moment.take(divided, 1)
            older, newer = of_total[1:-1] - total[begin, divided], of_total[-1] - of_total[1:-1]
            mean_before = (of_moment[1:-1] - moment[begin, divided]) / older
            mean_after = (of_moment[-1] - of_moment[1:-1]) / newer
            clear = np.abs(mean_after - mean_before) / np.sqrt(1 / older + 1 / newer)
            clear[(places <= begin) | ~np.isfinite(clear)] = 0.0
            clear = np.round(clear, 9)
            changed = clear.max(axis=0) >= _CHANGED
            divided = divided[changed]
            # The newest of equally clear changes.
            begins[divided] = count - 1 - np.argmax(clear[::-1, changed], axis=0)
    return begins


class OwnLevels(Struct, frozen=True):
    """The best stable period of each of some *groups* before its last change.

    *value* is its level, *sessions* the number of its sessions, *first_time* and *last_time* are the times of the
    first and the last one (ms since 1970), *last_row* is its last sample. *error* is the relative deviation of a
    session from a level. *uncertainty* is that of the level, together with the part of *error* that lasts for more
    than a session, and *freedom* its degrees of freedom.
    *has_returned* says that the host was stable as it is now before the period.
    """

    groups: Ints
    value: Floats
    sessions: Ints
    first_time: Ints
    last_time: Ints
    last_row: Ints
    error: Floats
    uncertainty: Floats
    freedom: Floats
    has_returned: Bools


class _Siblings(Struct, frozen=True):
    """The sessions of the *hosts* (numbers of groups) that show what all have in common.

    Each session has its host (*owners*: places in *hosts*), time, mean and whether its host is now as it was then.
    """

    hosts: Ints
    owners: Ints
    times: Ints
    means: Floats
    is_now: Bools

    def others(self, group: int) -> _Siblings:
        """Return the sessions of other hosts than *group*."""
        rows = self.hosts[self.owners] != group
        return _Siblings(self.hosts, self.owners[rows], self.times[rows], self.means[rows], self.is_now[rows])


class SiblingChanges(Struct, frozen=True):
    """How siblings changed: most of them (*spread*), and those that got better than they ever were.

    The latter are the *share* of all and *count*, and *jump* is their root mean square.
    """

    spread: Spread
    jump: float
    share: float
    count: int

    def limit(self, tail: float) -> float:
        """Return the change that a good host exceeds with the probability *tail*."""
        wide = math.sqrt(1 + 1 / self.spread.hosts)
        limit = student_quantile(tail, self.spread.freedom) * wide * self.spread.deviation
        if not self.count:
            return limit
        return max(limit, student_quantile(min(tail / self.share, 0.5), self.count) * self.jump)


class Newest(Struct, frozen=True, dict=True):
    """The newest stretch without a change of each of some groups of samples.

    *rows* marks the samples of the stretches, *times* are those of the *sessions* (ms since 1970), and *before* is
    the number of sessions of each group before its stretch. *of_other_parts* of these are of a board or processors
    that the host has not any more. *updates* are the changes that most hosts made at the
    same time, and *steady* are the means of the sessions without these.
    """

    rows: Bools
    sessions: Sessions
    times: Ints
    before: Ints
    of_other_parts: Ints
    errors: Errors
    updates: Sequence[Update]
    steady: Floats

    @property
    def session_variance(self) -> tuple[float, float]:
        """The variance that a level of one session has beyond one that is the mean of these stretches.

        Its degrees of freedom follow.
        """
        variance = max(self.errors.session, self.errors.wander) ** 2 * (
            1 - float((1 / (self.sessions.counts - self.before)).mean())
        )
        return variance, self.errors.freedom

    @cached_property
    def _siblings(self) -> _Siblings:
        hosts = sampled(len(self.sessions.counts))
        counts, before = self.sessions.counts[hosts], self.before[hosts]
        rows = _rows(self.sessions.starts[hosts], counts)
        # What siblings reach now: those that an update has reached later than this host have changed, too.
        # A single session may be a disturbance.
        first_now = np.where(counts - before > 1, before, 0)
        is_now = np.arange(len(rows)) >= np.repeat(np.cumsum(counts) - counts + first_now, counts)
        owners = np.repeat(np.arange(len(hosts)), counts)
        return _Siblings(hosts, owners, self.times[rows], self.sessions.means[rows], is_now)

    @property
    def has_period(self) -> Bools:
        """Which groups have enough sessions before their stretch for a stable period of their present parts."""
        has_period: Bools = self.before - self.of_other_parts >= STABLE_SESSIONS
        return has_period

    def may_be_worse(self, loss: float, sign: float) -> Ints:
        """Return the groups with a best stable period that may have lost more than *loss* since.

        Better is more for a *sign* of 1, and less for -1.
        """
        has_period = self.has_period
        if not has_period.any():
            return np.empty(0, dtype=np.int64)
        goodness = Groups(sign * self.steady, self.sessions.counts).chosen(has_period)
        before = self.before[has_period]
        places = np.arange(len(goodness.values)) - np.repeat(goodness.begins, goodness.counts)
        is_before = places < np.repeat(before, goodness.counts)
        is_own = is_before & (places >= np.repeat(self.of_other_parts[has_period], goodness.counts))
        best = np.maximum.reduceat(np.where(is_own, goodness.values, -np.inf), goodness.begins)
        now = Groups(goodness.values[~is_before], goodness.counts - before).medians
        return np.flatnonzero(has_period)[best - now > loss]

    def sibling_changes(self, levels: OwnLevels, places: Ints, sign: float) -> list[SiblingChanges | None]:
        """Return how siblings' levels changed since the periods of *levels* at *places* (changes of logarithms).

        Better is more for a *sign* of 1, and less for -1. An update changes all hosts, but not by the same amount:
        vector instructions, for example, lower the clock of each processor differently. The deviation is without
        the chance of the siblings' sessions. None: few siblings were measured in the period and now.
        """
        groups, first, last = levels.groups[places], levels.first_time[places], levels.last_time[places]
        now = self.sessions.starts[groups] + self.before[groups]
        # Hosts are measured at other times of a day or a week: what is nearer to the change is after it.
        change = (self.times[now - 1] + self.times[now]) // 2
        around = np.maximum((last - first) // np.maximum(levels.sessions[places] - 1, 1), 1)
        periods = np.column_stack([first - around, last + around, change])
        if len(self.sessions.counts) < _MANY_HOSTS:
            of_groups = zip(groups.tolist(), periods.tolist(), strict=True)
            return [self._changes(self._siblings.others(group), period, sign) for group, period in of_groups]
        # A host among many does not matter, and hosts that are measured at about the same times share the result.
        keys = np.column_stack([first // around, last // around, change // around, around // _DAY])
        _, firsts, shared = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        changes = [self._changes(self._siblings, period, sign) for period in periods[firsts].tolist()]
        return [changes[number] for number in shared.ravel().tolist()]

    def _changes(self, siblings: _Siblings, period: Sequence[int], sign: float) -> SiblingChanges | None:
        """Return how *siblings* changed; *period* is its begin and end and the change after it (ms since 1970)."""
        begin, end, change = period
        owners, times, means = siblings.owners, siblings.times, siblings.means
        later = times > change
        then = (times >= begin) & (times <= end) & ~later
        later &= siblings.is_now
        size = len(siblings.hosts)
        counts = np.array([np.bincount(owners[rows], minlength=size) for rows in (then, later)])
        both: Bools = np.all(counts > 0, axis=0)
        if np.count_nonzero(both) < _FEWEST_SIBLINGS:
            return None
        # Medians, as some sessions around a period are on the other side of a change.
        before, since = (
            Groups(means[rows & both[owners]], of_host[both]).medians
            for rows, of_host in zip((then, later), counts, strict=True)
        )
        chance = self.errors.step**2 * float((1 / counts[:, both]).sum(axis=0).mean())
        spread = natural_spread.spread_of(since - before)
        variance = natural_spread.variance_without(spread.deviation, spread.freedom, chance)
        # The cube root of a variance is about normal (E. B. Wilson and M. M. Hilferty, 1931).
        part = 2 / (9 * spread.freedom)
        if spread.deviation**2 <= chance * (1 - part + _BY_CHANCE * math.sqrt(part)) ** 3:
            variance = 0.0
        spread = replace(spread, deviation=math.sqrt(variance))
        # Hosts whose level is drawn anew now and then get better as often as worse, and bad ones do not.
        earlier = Groups(sign * means[~later & both[owners]], np.bincount(owners[~later], minlength=size)[both])
        best = earlier.apply(lambda rows: quantiles(rows, _TAIL))
        gains = sign * (since - before - spread.centre)
        clear = _CHANGED * self.errors.step * np.sqrt((1 / counts[:, both]).sum(axis=0))
        jumps = gains[(gains > clear) & (sign * since - best > clear / 2)]
        if len(jumps) < _FEWEST_SIBLINGS:
            return SiblingChanges(spread, 0.0, 0.0, 0)
        return SiblingChanges(spread, float(np.sqrt((jumps**2).mean())), len(jumps) / len(gains), len(jumps))

    def own_levels(self, groups: Ints, *, lower_is_better: bool) -> OwnLevels:
        """Return the best stable periods of *groups* before their last change.

        They have :data:`STABLE_SESSIONS` sessions or more before. The period is the best run of so many, extended
        by neighbours at its level.
        """
        others = self.of_other_parts[groups]
        offsets, before = self.sessions.starts[groups] + others, self.before[groups] - others
        of_all = -self.sessions.means if lower_is_better else self.sessions.means
        first, last = np.empty_like(before), np.empty_like(before)
        # The worst level of the stable sessions before the period.
        worst = np.empty(len(groups))
        steps = np.maximum(self.errors.step, self._own_steps(groups))
        reach, earliest = 4 * np.maximum(self.errors.wander, steps), STABLE_SESSIONS - 1
        for size in np.unique(before).tolist():
            which = np.flatnonzero(before == size)
            each, places = np.arange(len(which)), np.arange(size)
            goodness = of_all[offsets[which, None] + places]
            # Four of five sessions reach a level. One session may be disturbed, or better by luck.
            windows = np.sort(np.lib.stride_tricks.sliding_window_view(goodness, STABLE_SESSIONS, axis=1), axis=2)
            best, medians = np.argmax(windows[:, :, 1], axis=1), windows[:, :, STABLE_SESSIONS // 2]
            away = np.abs(goodness - medians[each, best][:, None]) > reach[which, None]
            left, right = places < best[:, None], places > best[:, None] + earliest
            first[which] = np.where(away & left, places, -1).max(axis=1) + 1
            last[which] = np.where(away & right, places, size).min(axis=1) - 1
            is_earlier = places[: medians.shape[1]] < first[which, None] - earliest
            worst[which] = np.where(is_earlier, medians, np.inf).min(axis=1)
        period = _stretches_of(of_all, offsets + first, last - first + 1)
        sizes_since = self.sessions.counts[groups] - others - before
        level, since = period.medians, _stretches_of(of_all, offsets + before, sizes_since).medians
        distances = Groups(np.abs(period.values - np.repeat(level, period.counts)), period.counts)
        own_error = np.maximum(
            distances.medians / NORMAL_MEDIAN,
            distances.apply(lambda rows: quantiles(rows, _TAIL)) / _TAIL_OF_NORMAL,
        )
        error = np.maximum(np.maximum(self.errors.wander, own_error / _NOISY), steps)
        lasting = np.sqrt(np.maximum(0.0, error**2 - self.errors.step**2))
        begins, sizes = self.sessions.begins, self.sessions.sizes
        return OwnLevels(
            groups=groups,
            value=np.exp(-level if lower_is_better else level),
            sessions=period.counts,
            first_time=self.times[offsets + first],
            last_time=self.times[offsets + last],
            last_row=begins[offsets + last] + sizes[offsets + last] - 1,
            error=error,
            uncertainty=np.hypot(lasting, self.errors.step / math.sqrt(STABLE_SESSIONS)),
            freedom=np.maximum(period.counts - 1.0, self.errors.freedom),
            has_returned=worst < (level + since) / 2,
        )

    def _own_steps(self, groups: Ints) -> Floats:
        """Return the deviation of a session from the next one that the host of each of *groups* has at least.

        All its sessions show it, and not only those of a period that was chosen among them. That from one side of
        the last change to the other one does not.
        """
        starts, counts = self.sessions.starts[groups], self.sessions.counts[groups]
        sizes = np.abs(np.diff(self.steady, append=np.nan))
        sizes[starts + self.before[groups] - 1] = np.nan
        steps = _stretches_of(sizes, starts, counts - 1)
        # NaN is sorted last.
        middles = steps.apply(lambda rows: medians(np.sort(rows, axis=1)[:, :-1]))
        return middles / NORMAL_MEDIAN / math.sqrt(2) / (1 + _DOUBT / np.sqrt(counts - 2))


def _stretches_of(values: Floats, begins: Ints, counts: Ints) -> Groups:
    """Return *counts* of *values* from each of *begins* on."""
    return Groups(values[_rows(begins, counts)], counts)


def _rows(begins: Ints, counts: Ints) -> Ints:
    """Return the numbers of *counts* rows from each of *begins* on."""
    rows: Ints = np.repeat(begins - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    return rows


def newest(samples: Groups, session: Ints, times: Ints, firsts: Ints | None = None) -> Newest:
    """Return the newest stretches of *samples*, oldest first.

    *session* numbers the session of each sample, *times* are those of the samples. *firsts* are the numbers of the
    first session of each group's host with its present parts: another board is a change.
    """
    if samples.values.min() > 0:
        sessions = Sessions.of(samples, session)
        steady, in_median, updates = _without_common_changes(sessions, times[sessions.begins])
        error = errors(samples, in_median)
        before = changes(sessions, error)
        error = _with_wander(error, steady, before)
    else:  # counts and differences have no relative changes
        sessions = Sessions.of(Groups(np.ones(len(samples.values)), samples.counts), session)
        error, before = (
            Errors(0.0, _LEAST_ERROR, _LEAST_ERROR, _LEAST_ERROR, float(_FEWEST_STEPS)),
            np.zeros(len(samples), dtype=np.int64),
        )
        updates, steady = [], sessions
    of_other_parts = np.zeros(len(samples), dtype=np.int64)
    if firsts is not None and firsts.any():
        is_old = session[sessions.begins] < np.repeat(firsts, sessions.counts)
        of_other_parts = np.add.reduceat(is_old.astype(np.int64), sessions.starts)
        of_other_parts[of_other_parts == sessions.counts] = 0  # not measured since
        before = np.maximum(before, of_other_parts)
    rows = np.ones(len(samples.values), dtype=np.bool_)
    if before.any():
        firsts = sessions.begins[sessions.starts + before]
        rows = np.arange(len(rows)) >= np.repeat(firsts, samples.counts)
    return Newest(rows, sessions, times[sessions.begins], before, of_other_parts, error, updates, steady.means)
