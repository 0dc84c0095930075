# SPDX-License-Identifier: Apache-2.0
"""Finds updates: steps that many hosts have at once or in waves, in most places of a class of parts.

Noise hides the step of one host in one part, so an update is first seen in the mean of all parts of a class. Then
it is estimated as one event: its size in each part is the median of its hosts, and which hosts have it, and since
when, follows from all parts together. Its size is taken off the losses of its hosts before these are judged.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from firsttouch.judge import levels
from firsttouch.judge.constants import (
    FEWEST_HOSTS,
    LEAST_LOSS,
    LEAST_NOISE,
    MOST_BAD,
    NORMAL_MEDIAN,
    PASS_SIGHT,
    STABLE_SESSIONS,
    UPDATED_HOSTS,
    UPDATED_SHARE,
)
from firsttouch.judge.levels import Stretches
from firsttouch.records.groups import Bools, Floats, Ints, mean_of_hosts, middles, of_hosts
from firsttouch.records.parts import Series
from firsttouch.records.sessions import Sessions
from firsttouch.statistics import FloatOrFloats, as_logarithm

#: The most updates in one table, and the rounds in which the hosts and the sizes of one are estimated.
_MOST_UPDATES, _ROUNDS = 8, 3
#: A class of parts has an update if its size is this number of standard errors from zero.
_CLEAR = 4.0
#: The sessions on each side of an update that show its size.
_NEAR = 2 * STABLE_SESSIONS
#: The share of hosts that have a change of their own near an update, and the deviation of its size (in updates).
_OWN_SHARE, _OWN_CHANGE = 0.01, 3.0


class Update(Struct, frozen=True):
    """Hosts (numbers) whose level changed together by *change* (a loss).

    It happened between the times *after* and *before* (ms since 1970).
    """

    hosts: Ints
    change: float
    deviation: float
    after: int
    before: int


def may_be_update(change: FloatOrFloats, hosts: Ints | int, of: int) -> Bools | bool:
    """Return whether an update may cost some *hosts* *of* a number this *change*: a fifth only if most lose it."""
    return (change <= as_logarithm(PASS_SIGHT)) | (hosts > MOST_BAD * of)


def waves(times: Ints, changes: Floats, interval: float) -> Iterator[Ints]:
    """Yield the indexes of changes of a few hosts or more in one direction, without a pause of 1.6 *interval*."""
    for sign in (1.0, -1.0):
        places = np.flatnonzero(sign * np.nan_to_num(changes) > 0)
        places = places[np.argsort(times[places], kind="stable")]
        for wave in np.split(places, np.flatnonzero(np.diff(times[places]) > 1.6 * interval) + 1):
            if len(wave) >= UPDATED_HOSTS:
                yield wave


def updates(timeline: Stretches, sessions: Sessions, changes: Floats) -> list[Update]:
    """Return the hosts that changed together, at once or in waves, by about the same amount in one direction.

    *changes* are the changes of each host since the stretch before its newest one (NaN: none). An update has many
    hosts, or a few with exactly the same loss, that were like the others before (a repair is not an update).
    """
    result = []
    measured = np.flatnonzero(np.isfinite(timeline.level))
    usual = float(np.median((timeline.level - np.nan_to_num(changes))[measured])) if len(measured) else 0.0
    for members in waves(sessions.time[timeline.begin], changes, sessions.interval):
        sizes = changes[members]
        middle = float(np.median(sizes))
        near = sizes[np.abs(sizes) < 2 * abs(middle)]
        noise = float(np.median(timeline.noise[members])) * 0.8
        typical = float(np.median(np.abs(sizes - middle))) / NORMAL_MEDIAN
        deviation = max(float(near.std()), typical)
        is_equal = typical <= max(noise, 0.15 * abs(middle))
        if len(members) < UPDATED_SHARE * (1 if is_equal else 2) * len(measured):
            continue
        before = float(np.median(timeline.level[members] - sizes))
        if abs(before - usual) < abs(middle) / 2 and may_be_update(middle, len(members), len(measured)):
            times = sessions.time[timeline.before[members]].min(), sessions.time[timeline.begin[members]].max()
            result.append(Update(members, middle, deviation, *map(int, times)))
    return result


def last_changes(timeline: Stretches, loss: Floats, sessions: Sessions) -> Floats:
    """Return how much each host lost at its last change (NaN: no change)."""
    earlier = np.flatnonzero(np.isfinite(loss) & (timeline.before >= 0)[sessions.host])
    earlier = earlier[earlier < timeline.begin[sessions.host[earlier]]]
    host = sessions.host[earlier]
    ends = np.cumsum(np.bincount(host, minlength=sessions.hosts))
    is_late = np.arange(len(host)) >= ends[host] - 2 * STABLE_SESSIONS
    changes: Floats = timeline.level - of_hosts(loss[earlier[is_late]], host[is_late], sessions.hosts)
    return changes


def newest_changes(timeline: Stretches, loss: Floats, sessions: Sessions, newest: Ints) -> tuple[Floats, Floats]:
    """Return how much each host lost in its *newest* session, with the deviation by noise."""
    place = np.arange(len(loss))
    is_earlier = np.isfinite(loss) & sessions.current & (place < newest[sessions.host])
    is_earlier &= place >= timeline.begin[sessions.host]
    change = np.where(newest >= 0, loss[newest], np.nan)
    change -= of_hosts(loss[is_earlier], sessions.host[is_earlier], sessions.hosts)
    # What changed in the newest session is not noise; if no host has two earlier ones, the change of most is.
    noise = levels.session_noise(np.where(place < newest[sessions.host], loss, np.nan), sessions)[1]
    noise = noise if np.isfinite(noise).any() else np.full_like(noise, levels.session_noise(loss, sessions)[0])
    return change, noise * np.sqrt(1 + 1 / np.maximum(timeline.size - 1, 1))


def newest_updates(timeline: Stretches, loss: Floats, sessions: Sessions) -> Iterator[Update]:
    """Yield the updates of the newest sessions, which need more hosts: a single session is less clear."""
    newest = np.full(sessions.hosts, -1)
    is_measured = np.isfinite(loss) & sessions.current
    newest[sessions.host[is_measured]] = np.flatnonzero(is_measured)
    change, deviation = newest_changes(timeline, loss, sessions, newest)
    measured = np.count_nonzero(np.isfinite(change))
    for sign in (1.0, -1.0):
        hosts = np.flatnonzero(sign * np.nan_to_num(change) > np.maximum(_CLEAR * deviation, LEAST_LOSS))
        if len(hosts) >= max(UPDATED_HOSTS, 2 * UPDATED_SHARE * measured):
            size = float(np.median(change[hosts]))
            if may_be_update(size, len(hosts), int(measured)):
                times = sessions.time[newest[hosts] - 1].min(), sessions.time[newest[hosts]].max()
                yield Update(hosts, size, 0.0, *map(int, times))


def usual_losses(loss: Floats, sessions: Sessions) -> tuple[Ints, Floats, Floats]:
    """Return how much more the median host lost in each week than now, and the deviation of hosts from it.

    The first column has the weeks, of which only those are returned in which most hosts were measured.
    """
    is_measured = np.isfinite(loss) & sessions.current
    weeks, _, week = sessions.weeks
    since = np.full((sessions.hosts, len(weeks)), np.nan, dtype=np.float32)
    since[sessions.host[is_measured], week[is_measured]] = loss[is_measured]
    now = np.full(sessions.hosts, np.nan)
    now[sessions.host[is_measured]] = loss[is_measured]
    since -= now[:, None]
    measured = np.flatnonzero(np.isfinite(since).sum(axis=0) >= max(FEWEST_HOSTS, sessions.hosts / 2))
    middle = middles(since[:, measured])
    return measured, middle, middles(np.abs(since[:, measured] - middle)) / NORMAL_MEDIAN


def common_steps(loss: Floats, sessions: Sessions) -> Iterator[Update]:
    """Yield the steps of the median host from one week to the next."""
    measured, middle, deviations = usual_losses(loss, sessions)
    steps, first = np.diff(middle), sessions.weeks[1]
    usual = float(np.median(np.abs(steps))) / NORMAL_MEDIAN if len(steps) else 0.0
    error = math.sqrt(math.pi / sessions.hosts) * float(deviations.max(initial=0.0))
    for at in np.flatnonzero(np.abs(steps) > max(_CLEAR * max(usual, error), LEAST_LOSS)).tolist():
        times = sessions.time[first[measured[at : at + 2]]].tolist()
        yield Update(np.arange(sessions.hosts), float(steps[at]), 0.0, *times)


class Event(Struct, frozen=True):
    """One update of a fleet.

    *since* is the first week (:attr:`Sessions.weeks`) of each host with it, or their number for a host without it.
    *changes* are its size (a loss) in each series, and the deviation of this size between hosts beyond noise.
    """

    since: Ints
    changes: Mapping[Series, tuple[float, float]]
    after: int
    before: int

    @classmethod
    def dated(cls, since: Ints, changes: Mapping[Series, tuple[float, float]], sessions: Sessions) -> Event:
        """Return an event with the time in which nine tenths of its hosts got it."""
        weeks, first, _ = sessions.weeks
        of_hosts_with_it = since[since < len(weeks)]
        begin = int(np.quantile(of_hosts_with_it, 0.05, method="lower"))
        end = int(np.quantile(of_hosts_with_it, 0.95, method="higher"))
        return cls(since, changes, int(sessions.time[first[begin - 1]]), int(sessions.time[first[end]]))

    def shift(self, series: Series, sessions: Sessions) -> Floats:
        """Return how much more a series lost by the update in each session than most hosts lose by it now."""
        weeks, _, week = sessions.weeks
        is_usual = 2 * np.count_nonzero(self.since < len(weeks)) > sessions.hosts
        shift: Floats = self.changes[series][0] * ((week >= self.since[sessions.host]) - np.float64(is_usual))
        return shift

    def update(self, series: Series, sessions: Sessions) -> Update:
        """Return the update of one series."""
        return self.mean_update([series], sessions)

    def mean_update(self, members: Sequence[Series], sessions: Sessions) -> Update:
        """Return the update of several series together."""
        hosts = np.flatnonzero(self.since < len(sessions.weeks[0]))
        sizes = [self.changes.get(series, (0.0, 0.0)) for series in members]
        change, deviation = np.mean(sizes, axis=0).tolist()
        return Update(hosts, change, deviation, self.after, self.before)


def events(losses: Mapping[Series, Floats], sessions: Sessions) -> list[Event]:
    """Return the updates of a fleet by the *losses* of series in each session."""
    noises = {series: levels.session_noise(row, sessions)[0] for series, row in losses.items()}
    classes: dict[tuple[str, str], list[Series]] = defaultdict(list)
    for series, noise in noises.items():
        if math.isfinite(noise):
            classes[series.part.name, series.kind].append(series)
    search, listed = _Search(dict(losses), noises, [*classes.values()], sessions), list[Event]()
    for _ in range(_MOST_UPDATES):
        if (event := search.clearest()) is None:
            break
        search.add(event, -1)
        listed.append(event)
        for _ in range(_ROUNDS if len(listed) > 1 else 0):
            listed = [*search.estimated_again(listed)]
    return listed


class _Search(Struct, frozen=True):
    """The losses of the series of each class (*rows*), without the updates that were found, and their *noises*."""

    rows: dict[Series, Floats]
    noises: Mapping[Series, float]
    classes: Sequence[Sequence[Series]]
    sessions: Sessions

    def add(self, event: Event, sign: int) -> None:
        """Add an update to the losses, or take it off."""
        for series in event.changes:
            self.rows[series] = self.rows[series] + sign * event.shift(series, self.sessions)

    def estimated_again(self, listed: Sequence[Event]) -> Iterator[Event]:
        """Yield updates that were found with their sizes without the others, if these leave any."""
        for event in listed:
            self.add(event, 1)
            again = replace(event, changes=self.changes(event.since))
            self.add(again, -1)
            if again.changes:
                yield again

    def clearest(self) -> Event | None:
        """Return the update that hosts show most clearly, None without one."""
        candidates = []
        for members in self.classes:
            usual = float(np.median([self.noises[s] for s in members]))  # No single part decides.
            mean = self._size({s: (1.0, max(self.noises[s], usual)) for s in members})
            timeline = levels.stretches(mean, self.sessions, LEAST_NOISE)
            noise = float(np.median(timeline.noise))
            listed = updates(timeline, self.sessions, last_changes(timeline, mean, self.sessions))
            listed += newest_updates(timeline, mean, self.sessions)
            for update in listed or common_steps(mean, self.sessions):
                candidates.append((len(update.hosts) * abs(update.change) / noise, update, mean / update.change))
        for _, update, size in sorted(candidates, key=lambda candidate: -candidate[0]):
            changes: Mapping[Series, tuple[float, float]] = {}
            of_event = size
            for _ in range(_ROUNDS):
                since = _since(of_event, update, self.sessions)
                if not (changes := self.changes(since)):
                    break
                of_event = self._size({s: (change, self.noises[s]) for s, (change, _) in changes.items()})
            if changes:
                return Event.dated(since, changes, self.sessions)
        return None

    def _size(self, of_series: Mapping[Series, tuple[float, float]]) -> Floats:
        """Return the size of an update in each session (NaN: not measured) by its size in series, and their noise.

        It is the weighted least squares estimate, in which the update has size 1.
        """
        sums, weights = (np.zeros(len(self.sessions.number)) for _ in range(2))
        for series, (change, noise) in of_series.items():
            is_measured = np.isfinite(self.rows[series])
            sums[is_measured] += change / noise**2 * self.rows[series][is_measured]
            weights[is_measured] += change**2 / noise**2
        size: Floats = np.divide(sums, weights, out=np.full(len(sums), np.nan), where=weights > 0)
        return size

    def changes(self, since: Ints) -> dict[Series, tuple[float, float]]:
        """Return the size of an update and its deviation between hosts, in each series of classes that have it."""
        weeks, _, week = self.sessions.weeks
        host, hosts = self.sessions.host, self.sessions.hosts
        distance = week - since[host]
        has_it = self.sessions.current & (since < len(weeks))[host] & (np.abs(distance + 0.5) < _NEAR)
        sides = has_it & (distance < 0), has_it & (distance >= 0)
        changes: dict[Series, tuple[float, float]] = {}
        for members in self.classes:
            sizes, errors, deviations = (np.full(len(members), np.nan) for _ in range(3))
            for place, series in enumerate(members):
                row = self.rows[series]
                before, after = (mean_of_hosts(row, side, host, hosts) for side in sides)
                counts = [np.bincount(host[side & np.isfinite(row)], minlength=hosts) for side in sides]
                both = np.flatnonzero(np.minimum(*counts))
                if len(both) < UPDATED_HOSTS:
                    continue
                differences = (after - before)[both]
                sizes[place] = np.median(differences)
                variance = self.noises[series] ** 2 * float(np.mean(1 / counts[0][both] + 1 / counts[1][both]))
                deviation = float(np.median(np.abs(differences - sizes[place]))) / NORMAL_MEDIAN
                # The error of a median is that of a mean times the root of pi / 2.
                errors[place] = math.sqrt(math.pi / 2 * max(variance, deviation**2) / len(both))
                deviations[place] = math.sqrt(max(deviation**2 - variance, 0.0))
            if _is_clear(sizes, errors):
                measured = np.flatnonzero(np.isfinite(sizes)).tolist()
                changes |= {members[p]: (float(sizes[p]), float(deviations[p])) for p in measured}
        return changes


def _since(size: Floats, update: Update, sessions: Sessions) -> Ints:
    """Return the first week of each host with an update, by its *size* in each session: 1, or 0 without it.

    The share of the hosts that each week updates is estimated together with the probability that it updated each
    host (A. P. Dempster et al., Maximum likelihood from incomplete data via the EM algorithm, 1977). A host may
    have a change of its own instead: this is taken off, and the host is looked at again.
    """
    weeks, _, week = sessions.weeks
    noise, hosts = levels.session_noise(size, sessions)[0], np.arange(sessions.hosts)
    is_measured = np.isfinite(size) & sessions.current
    at = sessions.host[is_measured] * len(weeks) + week[is_measured]
    columns = [np.bincount(at, of, len(hosts) * len(weeks)) for of in (size[is_measured], None)]
    sums, counts = np.reshape(columns, (2, len(hosts), -1))
    begin, end = np.rint(np.array([update.after, update.before]) / sessions.interval)
    shares = np.where((weeks[1:] >= begin) & (weeks[1:] <= end + 1), len(update.hosts) / len(hosts), 0.0)
    shares, deviation = np.append(shares / max(np.count_nonzero(shares), 1), 1 - shares.max(initial=0.0)), 0.25
    for _ in range(2):
        # The change of each host in each week from the second one on.
        sum_before, before = (of.cumsum(axis=1)[:, :-1] for of in (sums, counts))
        since = counts.sum(axis=1, keepdims=True) - before
        is_known = (before > 0) & (since > 0)
        before, since = np.maximum(before, 1), np.maximum(since, 1)
        change = np.where(
            is_known, (sums.sum(axis=1, keepdims=True) - sum_before) / since - sum_before / before, 0.0
        )
        variance = noise**2 * (1 / before + 1 / since)
        # The logarithms of likelihood ratios to no change: of one of the host's own, and of the update.
        none, wide = _log_density(change, variance), variance + _OWN_CHANGE**2
        its_own = np.where(
            is_known, _log_density(change, wide) - none + math.log(_OWN_SHARE / len(weeks)), -np.inf
        )
        for _ in range(20):
            exact, coarse = (_log_density(change - 1, of + deviation**2) for of in (variance, wide))
            gains = np.where(is_known, np.logaddexp(exact, coarse + math.log(_OWN_SHARE)) - none, 0.0)
            gains = np.hstack([gains, np.zeros((len(hosts), 1))]) + np.log(np.maximum(shares, 0.1 / len(hosts)))
            gains = np.hstack([gains, its_own])
            chances = np.exp(gains - gains.max(axis=1, keepdims=True))
            chances /= chances.sum(axis=1, keepdims=True)
            with_it, own = chances[:, : len(weeks) - 1], chances[:, len(weeks) :]
            shares = np.append(with_it, 1 - with_it.sum(axis=1, keepdims=True), axis=1)[counts.any(axis=1)].mean(
                axis=0
            )
            is_likely = (with_it > 0.5) & is_known
            if is_likely.any():
                spread = (float(np.median(np.abs(change[is_likely] - 1))) / NORMAL_MEDIAN) ** 2
                deviation = math.sqrt(max(spread - float(np.median(variance[is_likely])), 1e-4))
        with_own = np.flatnonzero(own.sum(axis=1) > 0.5)
        place = np.argmax(own[with_own], axis=1)
        is_later = np.arange(len(weeks)) > place[:, None]
        sums[with_own] -= change[with_own, place][:, None] * counts[with_own] * is_later
    likely = 1 + np.argmax(with_it, axis=1) if len(weeks) > 1 else hosts
    return np.where(with_it.sum(axis=1) > 0.5, likely, len(weeks))


def _log_density(values: Floats, variance: Floats) -> Floats:
    """Return the logarithm of the density of normal values with a mean of 0, without a constant."""
    density: Floats = -(values**2 / variance + np.log(variance)) / 2
    return density


def _is_clear(sizes: Floats, errors: Floats) -> bool:
    """Return whether parts of a class have an update: their mean is not chance, and most have about as much."""
    is_measured = np.isfinite(sizes)
    sizes, errors = sizes[is_measured], errors[is_measured]
    if not len(sizes):
        return False
    weights = np.maximum(errors, np.median(errors)) ** -2.0
    mean = float(np.average(sizes, weights=weights))
    order = np.argsort(sizes * np.sign(mean))
    middle = int(np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2 * (1 - 1e-9)))
    is_common = sizes[order][middle] * np.sign(mean) > abs(mean) / 2
    return bool(is_common and abs(mean) > max(_CLEAR / math.sqrt(weights.sum()), LEAST_LOSS / 5))
