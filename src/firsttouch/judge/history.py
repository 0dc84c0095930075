# SPDX-License-Identifier: Apache-2.0
"""When metrics of hosts changed, by how much, and how surely: change points of all series of a fleet at once.

A series is what one host reached for one metric, one value (the median) per session. Binary segmentation
(A. J. Scott, M. Knott, A cluster analysis method for grouping means, 1974) divides the logarithms of a series
where the means of both sides differ most, in standard deviations, and then divides both sides. Before, each value
is drawn towards the median of five neighbours: a change needs three sessions on both sides, and a disturbed
session or two are none.

The error of a session is pooled over the hosts of a metric, because a dozen sessions of one host do not show it. A
host with more noise than the others counts with its own. The probability that chance makes such a change in any of
the series is at most the stated one (Bonferroni). Many hosts that change together are one change of the fleet.

A verdict asks another question: whether the host is good now, after a single session
(:mod:`firsttouch.judge.judging`). It takes a host for changed as soon as sessions are evidence for opposite sides
of a limit. A change here is one of level, whether it crosses a limit or not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise, takewhile
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from firsttouch.judge import drift
from firsttouch.judge.drift import Configuration
from firsttouch.judge.samples_table import SamplesTable
from firsttouch.judge.groups import Bools, Floats, Groups, Ints, medians
from firsttouch.judge.statistics import NORMAL_MEDIAN, binomial_tail, chance_of_change
from firsttouch.judge.verdict_log import Logged
from firsttouch.records.cases import Case
from firsttouch.records.schema import GAP
from firsttouch.units import Better, percent

#: The fewest sessions on each side of a change: half of the window of the running median, and the middle.
FEWEST_SESSIONS = 3
#: A change that is undone before so many sessions is a disturbance.
_LASTING = 2 * FEWEST_SESSIONS - 1
#: Up to so many sessions between two changes, or before or after one, all of them must show it.
_SHORT = 2 * FEWEST_SESSIONS
#: The largest probability that any change of the listed ones is due to chance, and that of a certain one.
CHANCE, CERTAIN = 0.01, 1e-4
#: The probability up to which a change of a single series counts as one host's vote for a change of the fleet.
VOTE = 0.01
#: The fewest hosts of a change of the fleet, and their least share.
FEWEST_HOSTS, SHARE = 5, 0.1
#: The largest ratio of the change of a host to that of the fleet, and of the latter to the former.
_FACTOR = 2.5
#: The fewest rows of the cases whose temporary tables are in memory at a time.
_PIECE = 1 << 21
#: Smaller changes are not listed: neither are they of use, nor is any error known that well.
LEAST = 0.005
#: Standard deviations that a value may be away from the median of its neighbours.
_NEAR = 2.5
#: A host's own error counts if it is this many times that of the fleet: a few sessions overstate it as often.
_NOISY = 1.3
#: The fewest differences of sessions from which the error of a case is learnt. Otherwise all cases of the metric
#: are taken together.
_POOLED = 100
#: Degrees of freedom of an error per difference of sessions: neighbouring differences share a session, and a
#: median is less efficient than a mean.
_FREEDOM = 0.25
#: About how many values at a time, so that temporary tables stay small.
_AT_ONCE = 1 << 19


# ----------------------------------------------------------------------
# The series of a table


class Series(Struct, frozen=True, dict=True):
    """What hosts reached over time: a group per host and case, a value and a time (ms since 1970) per session.

    *case* and *host* are the numbers of each group.
    """

    case: Ints
    host: Ints
    values: Groups
    times: Ints

    @classmethod
    def of(cls, samples: SamplesTable, chosen: slice | None = None) -> Series:
        """Return the medians of the sessions of some consecutive groups, of valid repetitions only."""
        chosen = chosen or slice(0, len(samples.counts))
        rows, counts = samples.rows_of(chosen), samples.counts[chosen]
        groups = np.repeat(np.arange(chosen.start, chosen.stop, dtype=np.int32), counts)
        session, value, time = samples.sessions_of_rows[rows], samples.value[rows], samples.time[rows]
        good = samples.valid[rows] & (value > 0)
        if not good.all():
            groups, session, value, time = groups[good], session[good], value[good], time[good]
        new = np.ones(len(groups), dtype=np.bool_)
        new[1:] = (groups[1:] != groups[:-1]) | (session[1:] != session[:-1])
        begins = np.flatnonzero(new)
        of_session = Groups(value, np.diff(begins, append=len(value)))
        group = groups[begins]
        firsts = np.flatnonzero(np.diff(group, prepend=-1))
        counts = np.diff(firsts, append=len(group))
        medians = of_session.medians if len(of_session) else value
        which = group[firsts]
        return cls(
            samples.case[which].astype(np.int64),
            samples.host[which].astype(np.int64),
            Groups(medians, counts),
            time[begins],
        )

    @cached_property
    def logarithms(self) -> Groups:
        """The logarithms of the values."""
        return Groups(np.log(self.values.values), self.values.counts)


def _errors(series: Series, cases: Sequence[Case]) -> tuple[Floats, Floats]:
    """Return the error of a session of each series, as a fraction, and its degrees of freedom."""
    values, counts = series.logarithms.values, series.values.counts
    inner = np.ones(len(values), dtype=np.bool_)
    inner[series.values.begins] = False
    steps = np.abs(np.diff(values, prepend=0.0))[inner]
    group = np.repeat(np.arange(len(counts)), counts)[inner]
    own = np.zeros(len(counts))
    several = counts > 1
    own[several] = Groups(steps, counts[several] - 1).medians
    pooled, freedom = np.zeros(len(counts)), np.ones(len(counts))
    of_case = series.case[group]
    number = np.bincount(of_case, minlength=len(cases))
    # Rows are sorted by case.
    ends = np.cumsum(number)
    metrics: dict[tuple[str, str], list[int]] = {}
    for case, end in enumerate(ends.tolist()):
        if number[case] >= _POOLED:
            of = slice(*np.searchsorted(series.case, (case, case + 1)).tolist())
            pooled[of], freedom[of] = medians(steps[end - number[case] : end]), _FREEDOM * number[case]
        elif number[case]:
            metrics.setdefault((cases[case].check, cases[case].metric), []).append(case)
    for alike in metrics.values():
        some = steps[np.isin(of_case, alike)]
        chosen = np.isin(series.case, alike)
        pooled[chosen], freedom[chosen] = medians(some), _FREEDOM * len(some)
    scale = 1 / NORMAL_MEDIAN / math.sqrt(2)
    # A metric that repeats exactly still has the error of its digits.
    return np.maximum(np.maximum(pooled, own / _NOISY) * scale, LEAST / 10), np.maximum(freedom, 1.0)


# ----------------------------------------------------------------------
# The changes of each series

#: See :func:`_levels`.
_Levels = tuple[Ints, Ints, Floats, Ints]


class Columns(Struct, frozen=True):
    """Changes in columns: *case*, *host*, and the times between which each happened (ms since 1970).

    *earliest* and *latest* are one session farther. *change* is relative, *levels* are those before and after.
    *chance* is the probability that chance makes such a change in one stable series.
    """

    case: Ints
    host: Ints
    after: Ints
    before: Ints
    earliest: Ints
    latest: Ints
    change: Floats
    levels: Floats
    chance: Floats

    def __len__(self) -> int:
        return len(self.case)

    def part(self, which: Bools | Ints) -> Columns:
        """Return the changes of a mask or an index."""
        return Columns(*(getattr(self, name)[which] for name in self.__struct_fields__))

    @classmethod
    def joined(cls, parts: Sequence[Columns]) -> Columns:
        """Return the changes of several *parts*, of which there is at least one."""
        return cls(*(np.concatenate([getattr(p, name) for p in parts]) for name in cls.__struct_fields__))


def columns(series: Series, cases: Sequence[Case], chance: float) -> Columns:
    """Return the changes that chance makes with a probability of at most *chance* in a stable series."""
    error, freedom = _errors(series, cases)
    parts = [_none()]
    counts = series.values.counts
    for size in np.unique(counts[counts >= 2 * FEWEST_SESSIONS]).tolist():
        for groups in _whole_cases(np.flatnonzero(counts == size), series.case, _AT_ONCE // size):
            parts.append(_of_equal(series, groups, (error[groups], freedom[groups]), chance))
    listed = Columns.joined(parts)
    return listed.part(np.lexsort((listed.after, listed.host, listed.case)))


def _whole_cases(groups: Ints, case: Ints, most: int) -> Iterator[Ints]:
    """Yield *most* of some *groups* at a time, or all of a case: what is learnt of a case needs all of its groups.

    *case* is that of each group, ascending.
    """
    ends = np.flatnonzero(np.diff(case[groups], append=-1)) + 1
    begin = 0
    while begin < len(groups):
        place = max(*np.searchsorted(ends, (begin, begin + most), side="right") - (0, 1))
        yield groups[begin : (begin := int(ends[place]))]


def _none() -> Columns:
    whole, real = np.empty(0, dtype=np.int64), np.empty(0)
    return Columns(whole, whole, whole, whole, whole, whole, real, np.empty((0, 2)), real)


def _of_equal(series: Series, groups: Ints, errors: tuple[Floats, Floats], chance: float) -> Columns:
    """Return the changes of *groups* of equal size; *errors* are those of :func:`_errors`."""
    error, freedom = errors
    size = int(series.values.counts[groups[0]])
    begins = series.values.begins[groups]
    raw = series.logarithms.values[begins[:, None] + np.arange(size)]
    values = _near_neighbours(raw, error)
    rows, places = _places(values, error, freedom, chance)
    if not len(rows):
        return _none()
    case = series.case[groups]
    error = error * _excess(values, error, rows, places, case)
    some = np.unique(rows)
    rows, places = _places(values[some], error[some], freedom[some], chance)
    rows, places = _lasting(values, some[rows], places)
    levels = _, counts, means, at = _levels(values, rows, places)
    step = means[at] - means[at - 1]
    deviation = np.sqrt(1 / counts[at] + 1 / counts[at - 1]) * error[rows]
    possible = np.maximum(counts[at] + counts[at - 1] - 2 * FEWEST_SESSIONS + 1, 1)
    probability = chance_of_change(np.abs(step) / deviation, freedom[rows], possible)
    off = raw - np.repeat(means, counts).reshape(raw.shape)
    disturbed = _shares(off / error[:, None], case)[case[rows]]
    probability = np.maximum(probability, _disturbance(raw, levels, error[rows], disturbed))
    kept = (probability <= chance) & (np.abs(np.expm1(step)) >= LEAST)
    rows, places, at, step, probability = rows[kept], places[kept], at[kept], step[kept], probability[kept]
    first, where = begins[rows], begins[rows] + places
    times = series.times
    return Columns(
        case[rows],
        series.host[groups[rows]],
        times[where - 1],
        times[where],
        times[np.maximum(where - 2, first)],
        times[np.minimum(where + 1, first + size - 1)],
        np.expm1(step),
        np.exp(np.stack([means[at - 1], means[at]], axis=1)),
        probability,
    )


def _shares(off: Floats, case: Ints) -> Floats:
    """Return the share of sessions far below and far above their level, a row per case; *off* is in errors."""
    number = np.bincount(case) * off.shape[1]
    low, high = (np.bincount(case, (sign * off > _NEAR).sum(axis=1)) for sign in (-1, 1))
    few = number < _POOLED
    for counted in (low, high, number):
        counted[few] = counted[few].sum()
    # One more, as one that was not seen is not impossible.
    shares: Floats = (np.stack([low, high], axis=1) + 1) / np.maximum(number, 1)[:, None]
    return shares


def _disturbance(raw: Floats, levels: _Levels, error: Floats, shares: Floats) -> Floats:
    """Return the probability that each change is only disturbed sessions on its shorter side.

    *error* is that of a session of each, *shares* are those of disturbed sessions far below and far above.
    """
    starts, counts, means, at = levels
    side = np.where(counts[at] <= counts[at - 1], at, at - 1)
    other = np.where(side == at, at - 1, at)
    sizes = counts[side]
    ends = np.cumsum(sizes)
    rows = np.repeat(starts[side] - ends + sizes, sizes) + np.arange(sizes.sum())
    of_side = Groups(raw.ravel()[rows], sizes)
    step = means[side] - means[other]
    # Means are of values that were drawn near. Two sessions that are much worse make no bad one of a third.
    hidden = np.abs(of_side.medians - means[other]) - np.abs(step) if len(sizes) else step
    limit = np.maximum(np.abs(step), np.minimum(hidden, 4 * _NEAR * error)) / 2
    away = (of_side.values - np.repeat(means[other], sizes)) * np.repeat(np.sign(step), sizes)
    number = of_side.sums((away > np.repeat(limit, sizes)).astype(np.int64)) if len(sizes) else sizes
    probability = np.minimum(2 * binomial_tail(number, sizes, np.where(step < 0, shares[:, 0], shares[:, 1])), 1.0)
    # Disturbances come in bursts: two of them are not a change that lasts.
    probability[(sizes <= _SHORT) & (number < sizes)] = 1.0
    return probability


def _levels(values: Floats, rows: Ints, places: Ints) -> _Levels:
    """Return where levels begin in all *values*, their sizes, their means, and which follow a change."""
    size = values.shape[1]
    begins_level = np.zeros(values.shape, dtype=np.bool_)
    begins_level[:, 0] = True
    begins_level[rows, places] = True
    starts = np.flatnonzero(begins_level)
    counts = np.diff(starts, append=values.size)
    means = np.add.reduceat(values.ravel(), starts) / counts
    return starts, counts, means, np.searchsorted(starts, rows * size + places)


def _excess(values: Floats, error: Floats, rows: Ints, places: Ints, case: Ints) -> Floats:
    """Return by which factor the error of each row is larger than assumed, as errors may have long tails.

    It is the root mean square of what the changes leave over, in units of *error*, for all rows of a *case*. Cases
    with few sessions are taken together.
    """
    _, counts, means, _ = _levels(values, rows, places)
    left = ((values.ravel() - np.repeat(means, counts)) ** 2).reshape(values.shape).sum(axis=1) / error**2
    freedom = values.shape[1] - 1 - np.bincount(rows, minlength=len(values))
    of_case, number = np.bincount(case, left), np.bincount(case, freedom)
    few = number < _POOLED
    of_case[few], number[few] = of_case[few].sum(), max(1, number[few].sum())
    factor: Floats = np.sqrt(np.maximum(of_case / number, 1.0))[case]
    return factor


def _lasting(values: Floats, rows: Ints, places: Ints) -> tuple[Ints, Ints]:
    """Return the changes without those that are undone before :data:`_LASTING` sessions: these were disturbed."""
    order = np.lexsort((places, rows))
    rows, places = rows[order], places[order]
    while len(rows):
        _, _, means, at = _levels(values, rows, places)
        first, again, last = means[at - 1][:-1], means[at][:-1], means[at][1:]
        short = (np.diff(rows) == 0) & (np.diff(places) < _LASTING)
        # Back to where it was, up to half of the way.
        undone = short & (np.abs(last - first) < np.abs(again - first) / 2)
        undone[1:] &= ~undone[:-1]
        if not undone.any():
            break
        dropped = np.zeros(len(rows), dtype=np.bool_)
        dropped[:-1] |= undone
        dropped[1:] |= undone
        rows, places = rows[~dropped], places[~dropped]
    return rows, places


def _near_neighbours(values: Floats, error: Floats) -> Floats:
    """Return *values* (a row per series), each drawn towards the median of five neighbours.

    At the ends the neighbours are the first or the last five.
    """
    width = min(2 * FEWEST_SESSIONS - 1, values.shape[1])
    windows = np.lib.stride_tricks.sliding_window_view(values, width, axis=1)
    inner = medians(windows)
    begin = FEWEST_SESSIONS - 1
    end = values.shape[1] - inner.shape[1] - begin
    middle = np.concatenate(
        [np.repeat(inner[:, :1], begin, axis=1), inner, np.repeat(inner[:, -1:], end, axis=1)], axis=1
    )
    far = (_NEAR * error)[:, None]
    near: Floats = np.minimum(np.maximum(values, middle - far), middle + far)
    return near


def _places(values: Floats, error: Floats, freedom: Floats, chance: float) -> tuple[Ints, Ints]:
    """Return the rows and the places of the changes of *values*: the number of the first session after each."""
    size = values.shape[1]
    rows, places = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    # The parts to divide, by their number of sessions: their rows and where they begin.
    parts: dict[int, list[tuple[Ints, Ints]]] = {size: [(np.arange(len(values)), np.zeros(len(values), np.int64))]}
    while parts:
        count = max(parts)
        row, begin = (np.concatenate(column) for column in zip(*parts.pop(count), strict=True))
        if count < 2 * FEWEST_SESSIONS:
            break
        whole = count == size and len(row) == len(values)
        part = values if whole else values[row[:, None], begin[:, None] + np.arange(count)]
        sums = np.cumsum(part, axis=1)
        sizes = np.arange(FEWEST_SESSIONS, count - FEWEST_SESSIONS + 1)
        left = sums[:, sizes - 1]
        # The difference of the means of both sides, in standard deviations of one value.
        apart = np.abs(sums[:, -1:] * (sizes / count) - left) * np.sqrt(count / (sizes * (count - sizes)))
        best = np.argmax(apart, axis=1)
        distance = apart[np.arange(len(row)), best] / error[row]
        divided = np.flatnonzero(chance_of_change(distance, freedom[row], len(sizes)) <= chance)
        row, begin, before = row[divided], begin[divided], sizes[best[divided]]
        rows.append(row)
        places.append(begin + before)
        for side, start in ((before, begin), (count - before, begin + before)):
            for length in np.unique(side).tolist():
                parts.setdefault(length, []).append((row[side == length], start[side == length]))
    return np.concatenate(rows), np.concatenate(places)


# ----------------------------------------------------------------------
# The changes of hosts and of the fleet


class Change(Struct, frozen=True):
    """One change of a metric of *hosts*: more than one if they changed together.

    It happened after one session and before the next: *after*, *before* (ms since 1970; medians of the hosts).
    *change* is relative, *levels* are the values before and after in the unit of *case*. *chance* is the
    probability that chance makes any such change in all the series. *others* are the further cases that changed
    at the same time in the same direction. *of* counts the hosts that have the metric. *causes* are changes of
    configuration shortly before, as text.
    """

    case: Case
    hosts: Sequence[str]
    of: int
    after: int
    before: int
    change: float
    levels: tuple[float, float]
    chance: float
    others: Sequence[Case] = ()
    causes: Sequence[str] = ()

    @property
    def worse(self) -> bool | None:
        """Whether the hosts are worse since then; None if neither direction is better."""
        return None if self.case.better == "neither" else _is_worse(self.change, self.case.better)

    @property
    def certainty(self) -> str:
        """The certainty as text."""
        return "certain" if self.chance <= CERTAIN else f"{percent(1 - self.chance)} sure"

    @property
    def when(self) -> str:
        """The days (UTC) between which it happened, or the day."""
        first, last = day(self.after), day(self.before)
        return f"on {last}" if first == last else f"between {first} and {last}"

    @property
    def who(self) -> str:
        """The host, or the number of hosts with the first of them."""
        return self.hosts[0] if len(self.hosts) == 1 else f"{len(self.hosts)} of {self.of} hosts"

    @property
    def metrics(self) -> str:
        """The metric, and how many others changed with it."""
        return self.case.title + (f" and {len(self.others)} more" if self.others else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the change as JSON."""
        return {
            "system": self.case.system,
            "check": self.case.check,
            "metric": self.case.metric,
            "parameters": dict(self.case.parameters),
            "unit": self.case.unit,
            "hosts": list(self.hosts),
            "of": self.of,
            "after": iso(self.after),
            "before": iso(self.before),
            "change": self.change,
            "levels": list(self.levels),
            "worse": self.worse,
            "chance": self.chance,
            "alike": [case.name for case in self.others],
            "causes": list(self.causes),
        }


def day(milliseconds: int) -> str:
    """Return the day (UTC) of a time (ms since 1970)."""
    return iso(milliseconds)[:10]


def iso(milliseconds: int) -> str:
    """Return a time (ms since 1970) in ISO 8601 (UTC)."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")


def _is_worse(change: float, better: Better) -> bool:
    return (change < 0) == (better == "higher")


def changes(
    samples: SamplesTable, configurations: Mapping[str, Sequence[Configuration]] | None = None
) -> list[Change]:
    """Return the changes of the fleet: those of many hosts first, then the newest first.

    *configurations* are those of each host, oldest first (:func:`firsttouch.judge.drift.sequences`).
    """
    votes, of_case = [_none()], np.zeros(len(samples.cases), dtype=np.int64)
    if samples.counts.max(initial=0) >= 2 * FEWEST_SESSIONS:
        for groups in _in_pieces(samples):
            series = Series.of(samples, groups)
            long = series.values.counts >= 2 * FEWEST_SESSIONS
            of_case += np.bincount(series.case[long], minlength=len(of_case))
            votes.append(columns(series, samples.cases, VOTE))
    extent = Extent(samples.hosts, samples.cases, of_case)
    return with_causes(merged(Columns.joined(votes), extent), configurations or {})


def _in_pieces(samples: SamplesTable) -> Iterator[slice]:
    """Yield the groups of all cases, those of as many cases at a time as keeps temporary tables small."""
    begin = 0
    for case in range(len(samples.cases)):
        end, last = int(samples.of_case[case + 1]), case + 1 == len(samples.cases)
        rows = samples.rows_of(slice(begin, end))
        if end > begin and (last or rows.stop - rows.start >= _PIECE):
            yield slice(begin, end)
            begin = end


class Extent(Struct, frozen=True):
    """What was looked at: *hosts* and *cases*, and the number of *series* with enough sessions, also by case."""

    hosts: Sequence[str]
    cases: Sequence[Case]
    of_case: Ints

    @property
    def series(self) -> int:
        """The number of series with enough sessions."""
        return int(self.of_case.sum())


def merged(votes: Columns, extent: Extent) -> list[Change]:
    """Return the changes of the fleet and of single hosts from all *votes* (see :func:`columns`)."""
    of_fleet, rest = _of_fleet(votes, extent)
    single = rest.part(rest.chance * extent.series <= CHANCE)
    single = single.part(np.argsort(single.chance, kind="stable"))
    of_hosts = [
        Change(
            extent.cases[case],
            (extent.hosts[host],),
            1,
            after,
            before,
            change,
            (low, high),
            chance * extent.series,
        )
        for case, host, after, before, change, (low, high), chance in zip(
            single.case.tolist(),
            single.host.tolist(),
            single.after.tolist(),
            single.before.tolist(),
            single.change.tolist(),
            single.levels.tolist(),
            single.chance.tolist(),
            strict=True,
        )
    ]
    listed = [*_by_time(of_fleet), *_by_time(of_hosts)]
    return sorted(listed, key=lambda c: (len(c.hosts) == 1, -c.before, -abs(c.change)))


def _by_time(listed: Iterable[Change]) -> list[Change]:
    """Return one change for all metrics that changed on the same hosts, at the same time, in the same direction.

    It is that of the metric with the surest change; of equally sure ones, that with the largest.
    """
    together: dict[tuple[object, ...], list[tuple[Change, list[Case]]]] = {}
    for change in sorted(listed, key=lambda c: (max(c.chance, 1e-12), -abs(c.change))):
        fleet = len(change.hosts) > 1
        events = together.setdefault(
            (change.case.system, "" if fleet else change.hosts[0], fleet, change.worse), []
        )
        for first, others in events:
            if change.after < first.before and first.after < change.before and _mostly(change, first):
                others.append(change.case)
                break
        else:
            events.append((change, []))
    return [replace(first, others=tuple(others)) for events in together.values() for first, others in events]


def _mostly(change: Change, other: Change) -> bool:
    """Return whether two changes are of mostly the same hosts."""
    common = len({*change.hosts}.intersection(other.hosts))
    return 2 * common >= max(len(change.hosts), len(other.hosts))


def _of_fleet(votes: Columns, extent: Extent) -> tuple[list[Change], Columns]:
    """Return the changes of many hosts at once, and the *votes* that are not part of one."""
    listed: list[Change] = []
    free = np.ones(len(votes), dtype=np.bool_)
    number_of_cases = max(1, int(np.count_nonzero(extent.of_case)))
    direction = votes.change > 0
    ends = np.searchsorted(votes.case, np.arange(len(extent.cases) + 1))
    for case in np.flatnonzero(np.diff(ends) >= FEWEST_HOSTS).tolist():
        hosts = int(extent.of_case[case])
        fewest = max(FEWEST_HOSTS, math.ceil(SHARE * hosts))
        for up in (False, True):
            while True:
                which = np.arange(ends[case], ends[case + 1])
                which = which[free[which] & (direction[which] == up)]
                which = _alike(votes, _at_once(votes, which))
                # A host has one vote.
                _, first = np.unique(votes.host[which], return_index=True)
                chance = number_of_cases * float(binomial_tail(*np.array([[len(first)], [hosts], [VOTE / 2]]))[0])
                if len(first) < fewest or chance > CHANCE:
                    break
                change = votes.part(which[first])
                listed.append(_common(change, extent, case, hosts, chance))
                free[which] = False
                rest = np.arange(ends[case], ends[case + 1])
                rest = rest[free[rest] & (direction[rest] == up)]
                free[rest[_belong(votes.part(rest), change)]] = False
    return listed, votes.part(free)


def _at_once(votes: Columns, which: Ints) -> Ints:
    """Return those of some votes that may have happened at the same moment: the moment with the most of them."""
    if not len(which):
        return which
    moments = np.concatenate([votes.earliest[which], votes.latest[which]])
    steps = np.repeat([1, -1], len(which))
    order = np.lexsort((steps, moments))  # an end counts before a begin
    moment = moments[order][np.argmax(np.cumsum(steps[order]))]
    chosen: Ints = which[(votes.earliest[which] <= moment) & (votes.latest[which] > moment)]
    return chosen


def _alike(votes: Columns, which: Ints) -> Ints:
    """Return those of some votes whose change is about the median one: a host that fell far has another reason."""
    size = np.abs(votes.change[which])
    middle = np.median(size) if len(which) else 0.0
    alike: Ints = which[(size <= _FACTOR * middle) & (middle <= _FACTOR * size)]
    return alike


def _belong(votes: Columns, change: Columns) -> Bools:
    """Return which *votes* are the *change* of many hosts, with a date that noise has moved by some sessions."""
    pace = float(np.median(change.latest - change.earliest)) / 3
    size, middle = np.abs(votes.change), float(np.median(np.abs(change.change)))
    near: Bools = np.abs(votes.before - np.median(change.before)) <= FEWEST_SESSIONS * pace
    return near & (size <= _FACTOR * middle) & (middle <= _FACTOR * size)


def _common(votes: Columns, extent: Extent, case: int, of: int, chance: float) -> Change:
    """Return the change of many hosts as one."""
    low, high = np.median(votes.levels, axis=0).tolist()
    return Change(
        extent.cases[case],
        tuple(sorted(extent.hosts[h] for h in votes.host.tolist())),
        of,
        int(np.median(votes.after)),
        int(np.median(votes.before)),
        float(np.median(votes.change)),
        (low, high),
        chance,
    )


# ----------------------------------------------------------------------
# Changes of configuration, and hosts that fail again and again

#: Settings that are named, and hosts of a change of the fleet whose settings are looked at.
_NAMED, _LOOKED_AT = 3, 200


def with_causes(listed: Sequence[Change], configurations: Mapping[str, Sequence[Configuration]]) -> list[Change]:
    """Return changes with the settings that changed at the same time, on most hosts of a change of the fleet."""
    return [replace(c, causes=_causes(c, configurations)) for c in listed] if configurations else [*listed]


def _causes(change: Change, configurations: Mapping[str, Sequence[Configuration]]) -> tuple[str, ...]:
    hosts = [host for host in change.hosts if host in configurations][:_LOOKED_AT]
    counts: Counter[str] = Counter()
    for host in hosts:
        # A new configuration is recorded in the first session that has it.
        changed = [
            drift.differences(host, old, host, new)
            for old, new in pairwise(configurations[host])
            if change.after < new.time <= change.before + GAP
        ]
        counts.update({f"{name} {a} -> {b}" for names in changed for name, (a, b) in names.items()})
    common = [text for text, count in sorted(counts.items()) if 2 * count > len(hosts)]
    more = [f"{len(common) - _NAMED} more settings"] if len(common) > _NAMED else []
    return (*common[:_NAMED], *more)


class Offender(Struct, frozen=True):
    """A *host* of a *system* that failed again after it had passed, or that stays undecided or suspect.

    *fails* counts the times that it began to fail, *open_verdicts* the newest verdicts in a row that are undecided
    or suspect for the same metric (0: fewer than :data:`FEWEST_OPEN`), out of all *verdicts*. *first* and *last*
    are the verdicts that count (s since 1970). *reason* is that of the last one, *verdict* the newest verdict.
    """

    host: str
    system: str
    fails: int
    open_verdicts: int
    verdicts: int
    first: float
    last: float
    reason: str
    verdict: str


#: The fewest verdicts in a row by which a host stays undecided or suspect.
FEWEST_OPEN = 4


def repeat_offenders(logs: Mapping[str, Sequence[Logged]]) -> list[Offender]:
    """Return the hosts that failed, passed, and failed again, and those that stay undecided or suspect.

    The most frequent are first; *logs* are by host.
    """
    offenders = []
    for host, lines in logs.items():
        decided = [line for line in lines if line.verdict in {"pass", "fail"}]
        begins = [
            line
            for i, line in enumerate(decided)
            if line.verdict == "fail" and (not i or decided[i - 1].verdict == "pass")
        ]
        fails = [begins[0], *(line for line in decided if line.verdict == "fail")] if len(begins) > 1 else []
        newest = [
            line
            for line in takewhile(lambda line: line.verdict in {"undecided", "suspect"}, reversed(lines))
            if _metric(line) == _metric(lines[-1])
        ]
        still_open = newest[::-1] if len(newest) >= FEWEST_OPEN else []
        if counted := still_open or fails:
            first, last = counted[0], counted[-1]
            number = len(begins) if fails else 0
            figures = (number, len(still_open), len(lines), first.time, last.time)
            offenders.append(Offender(host, last.system, *figures, last.reason, lines[-1].verdict))
    return sorted(offenders, key=lambda o: (-o.fails, -o.open_verdicts, -o.last, o.host))


def _metric(line: Logged) -> str:
    """Return the metric of a reason: ``undecided: METRIC: why``."""
    return ": ".join(line.reason.split(": ")[1:2])
