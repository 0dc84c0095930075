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

from firsttouch.judge import constants, levels
from firsttouch.records.groups import Bools, Floats, Ints, by_size, mean_of_hosts, middles
from firsttouch.records.parts import Series
from firsttouch.records.sessions import Sessions
from firsttouch.statistics import FloatOrFloats, as_logarithm

#: The most updates in one table, and the rounds in which the hosts and the sizes of one are estimated.
_MOST_UPDATES, _ROUNDS = 8, 3
#: The sessions on each side of an update that show its size.
_NEAR = 2 * constants.STABLE_SESSIONS


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
    return (change <= as_logarithm(constants.PASS_SIGHT)) | (hosts > constants.MOST_BAD * of)


class Event(Struct, frozen=True):
    """One update of a fleet.

    *since* is the first week (:attr:`Sessions.weeks`) of each host with it, or their number for a host without it.
    *changes* are its size (a loss) in each series, and the deviation of this size between hosts beyond noise.
    """

    since: Ints
    changes: Mapping[Series, tuple[float, float]]

    def shift(self, series: Series, sessions: Sessions) -> Floats:
        """Return how much more a series lost by the update in each session than most hosts lose by it now."""
        weeks, _, week = sessions.weeks
        is_usual = 2 * np.count_nonzero(self.since < len(weeks)) > sessions.hosts
        shift: Floats = self.changes[series][0] * ((week >= self.since[sessions.host]) - np.float64(is_usual))
        return shift

    def update(self, members: Sequence[Series], sessions: Sessions) -> Update:
        """Return the update of one series or several, with the time in which nine tenths of its hosts got it."""
        weeks, first, _ = sessions.weeks
        hosts = np.flatnonzero(self.since < len(weeks))
        begin = int(np.quantile(self.since[hosts], 0.05, method="lower"))
        end = int(np.quantile(self.since[hosts], 0.95, method="higher"))
        sizes = [self.changes.get(series, (0.0, 0.0)) for series in members]
        times = sessions.time[[first[begin - 1], first[end]]].tolist()
        return Update(hosts, *np.mean(sizes, axis=0).tolist(), *times)


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
            steps = _shared(mean, self.sessions)
            candidates += [(-clearness, share, mean / size) for size, share, clearness in steps]
        for _, share, size in sorted(candidates, key=lambda candidate: candidate[0]):
            changes: Mapping[Series, tuple[float, float]] = {}
            of_event = size
            for _ in range(_ROUNDS):
                since = _since(of_event, share, self.sessions)
                if not (changes := self.changes(since)):
                    break
                of_event = self._size({s: (change, self.noises[s]) for s, (change, _) in changes.items()})
            if changes:
                return Event(since, changes)
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
                if len(both) < constants.UPDATED_HOSTS:
                    continue
                differences = (after - before)[both]
                sizes[place] = np.median(differences)
                variance = self.noises[series] ** 2 * float(np.mean(1 / counts[0][both] + 1 / counts[1][both]))
                deviation = float(np.median(np.abs(differences - sizes[place]))) / constants.NORMAL_MEDIAN
                # A median has the error of a mean times the root of pi / 2.
                errors[place] = math.sqrt(math.pi / 2 * max(variance, deviation**2) / len(both))
                deviations[place] = math.sqrt(max(deviation**2 - variance, 0.0))
            if _is_clear(sizes, errors):
                measured = np.flatnonzero(np.isfinite(sizes)).tolist()
                changes |= {members[p]: (float(sizes[p]), float(deviations[p])) for p in measured}
        return changes


def _shared(loss: Floats, sessions: Sessions) -> Iterator[tuple[float, float, float]]:
    """Yield steps that hosts made by about the same amount: its size, the share of the hosts, how clear it is.

    An update has many hosts, or a few with exactly the same loss, that were like the others before (a repair
    is not an update).
    """
    noise = _noise(loss, sessions)
    sums, counts = levels.by_week(_without_brief(loss, noise, sessions), sessions)
    hosts, measured = np.arange(sessions.hosts), counts.any(axis=1)
    if counts.shape[1] < 2 or not measured.any():
        return
    steps = levels.Steps.of_cells(sums, counts)
    clearness = steps.clearness(np.full(len(hosts), noise))
    at = np.argmax(clearness, axis=1)
    size = steps.change[hosts, at]
    is_clear = (clearness[hosts, at] > constants.CLEAR_STEP) & (np.abs(size) > constants.LEAST_LOSS)
    at = np.where(is_clear, at, counts.shape[1] - 1)
    before = sums.cumsum(axis=1)[hosts, at] / np.maximum(counts.cumsum(axis=1)[hosts, at], 1)
    usual, count = float(np.median(before[measured])), int(np.count_nonzero(measured))
    for sign in (1.0, -1.0):
        stepped = np.flatnonzero(is_clear & (sign * size > 0))
        if len(stepped) < constants.UPDATED_HOSTS:
            continue
        middle = float(np.median(size[stepped]))
        typical = float(np.median(np.abs(size[stepped] - middle))) / constants.NORMAL_MEDIAN
        is_equal = typical <= max(noise * 0.8, constants.EQUAL_STEPS * abs(middle))
        is_new = abs(float(np.median(before[stepped])) - usual) < abs(middle) / 2
        is_wide = len(stepped) >= constants.UPDATED_SHARE * (1 if is_equal else 2) * count
        if is_new and is_wide and may_be_update(middle, len(stepped), count):
            yield middle, len(stepped) / count, len(stepped) * abs(middle) / noise


def _without_brief(loss: Floats, noise: float, sessions: Sessions) -> Floats:
    """Return losses without brief changes of a host: it was disturbed, or repaired, and is as before."""
    result, measured = loss.copy(), np.flatnonzero(np.isfinite(loss) & sessions.current)
    counts = np.bincount(sessions.host[measured], minlength=sessions.hosts)
    begins = np.cumsum(counts) - counts
    for which, rows in by_size(loss[measured], counts):
        cleaned, size = rows.copy(), rows.shape[1]
        for length in range(1, constants.BAD_SESSIONS + 1):
            for first in range(1, size - length):
                left, right, at = cleaned[:, first - 1], cleaned[:, first + length], slice(first, first + length)
                middle = (left + right)[:, None] / 2
                is_away = np.abs(cleaned[:, at] - middle).min(axis=1) > constants.CLEAR_STEP * noise
                is_brief = is_away & (np.abs(left - right) < constants.CLEAR_STEP * noise)
                cleaned[is_brief, at] = middle[is_brief]
        result[measured[begins[which, None] + np.arange(size)]] = cleaned
    return result


def _noise(loss: Floats, sessions: Sessions) -> float:
    """Return the noise of a session; a step of all hosts in one week is not noise."""
    sums, counts = levels.by_week(loss, sessions)
    usual = middles(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))
    noise, _, _ = levels.session_noise(loss - usual[sessions.weeks[2]], sessions)
    return math.inf if math.isnan(noise) else noise


def _since(size: Floats, share: float, sessions: Sessions) -> Ints:
    """Return the first week of each host with an update, by its *size* in each session: 1, or 0 without it.

    The *share* of the hosts that each week updates is estimated together with the probability that it updated each
    host (A. P. Dempster et al., Maximum likelihood from incomplete data via the EM algorithm, 1977). A host may
    have a separate change instead. That change is taken off, and the host is examined once more.
    """
    weeks, hosts = sessions.weeks[0], np.arange(sessions.hosts)
    noise = _noise(size, sessions)
    sums, counts = levels.by_week(_without_brief(size, noise, sessions), sessions)
    shares, deviation = np.append(np.full(len(weeks) - 1, share / len(weeks)), 1 - share), 0.25
    for _ in range(2):
        steps = levels.Steps.of_cells(sums, counts)
        change, is_known = steps.change, steps.weight > 0
        variance = noise**2 / np.where(is_known, steps.weight, 1.0)
        # The logarithms of the likelihood ratios of a separate change, and of the update, to no change.
        none, wide = _log_density(change, variance), variance + constants.OWN_CHANGE**2
        its_own = _log_density(change, wide) - none + math.log(constants.OWN_SHARE / len(weeks))
        its_own = np.where(is_known, its_own, -np.inf)
        for _ in range(20):
            exact, coarse = (_log_density(change - 1, of + deviation**2) for of in (variance, wide))
            gains = np.where(is_known, np.logaddexp(exact, coarse + math.log(constants.OWN_SHARE)) - none, 0.0)
            gains = np.hstack([gains, np.zeros((len(hosts), 1))]) + np.log(np.maximum(shares, 0.1 / len(hosts)))
            gains = np.hstack([gains, its_own])
            chances = np.exp(gains - gains.max(axis=1, keepdims=True))
            chances /= chances.sum(axis=1, keepdims=True)
            with_it, own = chances[:, : len(weeks) - 1], chances[:, len(weeks) :]
            shares = with_it[counts.any(axis=1)].mean(axis=0)
            shares = np.append(shares, 1 - shares.sum())
            is_likely = (with_it > 0.5) & is_known
            if is_likely.any():
                spread = (float(np.median(np.abs(change[is_likely] - 1))) / constants.NORMAL_MEDIAN) ** 2
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
    least = max(constants.CLEAR_STEP / math.sqrt(weights.sum()), constants.LEAST_LOSS / 5)
    return bool(is_common and abs(mean) > least)
