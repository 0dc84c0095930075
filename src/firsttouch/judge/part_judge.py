# SPDX-License-Identifier: Apache-2.0
"""Judges the parts of all hosts, and the metrics that the parts do not explain."""

from __future__ import annotations

import itertools
import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from firsttouch.judge import constants, levels, questions, updates
from firsttouch.judge.findings import FAIL, PASS, SUSPECT, UNDECIDED
from firsttouch.judge.levels import SeriesLosses, Timeline
from firsttouch.judge.questions import Answer, TwoGroups
from firsttouch.judge.updates import Update
from firsttouch.records.groups import Bools, Floats, Ints, mean_of_hosts, middles, of_hosts
from firsttouch.records.parts import Series, series
from firsttouch.records.samples_table import SamplesTable
from firsttouch.records.sessions import Sessions
from firsttouch.statistics import chance_of_change

#: The questions, by number.
SIBLINGS, OWN = range(2)


class Prepared(Struct, frozen=True):
    """The levels of a series of parts, before hosts are compared."""

    losses: SeriesLosses
    timeline: Timeline
    #: The sessions that are used.
    counted: Bools
    #: By host: its newest session, whether it is bad in this one only (it is not counted then), and whether it is
    #: far beyond its limit there.
    newest: Ints
    awaiting: Bools
    #: The limit that a host exceeded in one session by so much that it fails (NaN: it did not).
    sudden: Floats
    updates: Sequence[Update]
    #: How much more all hosts lost at the time of each session than now, and the same with each host's updates.
    trend: Floats
    shared: NDArray[np.float32]

    @property
    def prior(self) -> float:
        """The deviation that is expected between good hosts."""
        usual, spread = constants.PRIOR_SPREAD, self.losses.spread
        return max(math.sqrt((usual**2 + 2 * spread**2) / 3) if spread else usual, self.losses.noise)


class Judged(Prepared, frozen=True, dict=True):
    """The answers about one series: a value per host.

    *words* are numbers, *question* is the number of the one that decided.
    """

    series: Series
    words: NDArray[np.uint8]
    question: NDArray[np.uint8]
    answers: tuple[Answer, Answer]
    #: The hosts that are bad again and again: their usual loss in bad sessions, the limit, and how often.
    intermittent: Mapping[int, tuple[float, float, str]]
    groups: TwoGroups | None
    #: The deviation of good hosts.
    deviation: float
    #: The hosts (numbers) whose loss another part explains, with a note.
    explained: dict[int, str] = {}

    @property
    def level(self) -> Floats:
        """The loss now."""
        return self.timeline.level

    @cached_property
    def sight(self) -> Floats:
        """The smallest loss that a question would have seen, for each host."""
        return np.minimum(*(answer.sight for answer in self.answers))

    def answer(self, host: int) -> tuple[float, float]:
        """Return loss and limit of the question that decided about a host."""
        of = self.answers[int(self.question[host])]
        return float(of.loss[host]), float(of.limit[host])


class Fleet(Struct, frozen=True, dict=True):
    """The judged series of a table, and the metrics alone.

    *cases* are the numbers of the judged cases, *case_levels* a row for each with the loss of each host now
    (NaN: not measured) relative to the median host, and *centres* the level of that one (logarithms). *alone*
    marks metrics that are bad beyond the loss of their part, with *alone_limits*.
    """

    table: SamplesTable
    sessions: Sessions
    series: list[Judged]
    cases: Ints
    case_levels: NDArray[np.float32]
    centres: Floats
    noise: Floats
    repetitions: NDArray[np.float32]
    #: The first session of each case on each host without a change since then, the variance that chance adds to
    #: its level, and whether it rests on one session or on two repetitions only.
    case_begins: NDArray[np.int32]
    case_variances: NDArray[np.float32]
    is_brief: NDArray[np.bool_]
    alone: NDArray[np.uint8]
    alone_limits: Floats

    @cached_property
    def series_of(self) -> Mapping[int, Judged]:
        """The judged part of each case, by its number."""
        single = (judged for judged in self.series if not judged.series.is_together)
        return {number: judged for judged in single for number in judged.series.cases}

    @cached_property
    def places(self) -> Mapping[str, int]:
        """How many places each series of single parts has, by its pattern."""
        return Counter(judged.series.pattern for judged in self.series if judged.series.part.place)

    def are_bad(self, place: int, hosts: Ints, level: Floats, limit: Floats, begin: Ints) -> Bools:
        """Return on which *hosts* nearly all repetitions of a case since session *begin* are bad.

        They lose half of *limit* beyond *level*; each of two loses all of it. The last two sessions are enough.
        """
        table, number = self.table, int(self.cases[place])
        rows, owner = table.rows_of_each(table.group(number, hosts))
        session = self.sessions.place[table.host_sessions[hosts][owner] + table.ordinal[rows]]
        is_used = table.valid[rows] & table.judged[rows] & (table.value[rows] > 0) & (session >= begin[owner])
        rows, session, owner = rows[is_used], session[is_used], owner[is_used]
        losses = table.cases[number].loss_sign * np.log(table.value[rows]) - self.centres[place]
        losses -= self.series_of[number].shared[session]
        visit = np.cumsum(np.append(0, (np.diff(owner) != 0) | (np.diff(session) != 0)))[: len(owner)]
        last = np.zeros(len(hosts), dtype=np.int64)
        last[owner] = visit
        is_late = visit > last[owner] - constants.BAD_SESSIONS
        used, late = (np.bincount(owner[at], minlength=len(hosts)) for at in (slice(None), is_late))
        is_bad = losses > level[owner] + limit[owner] * np.where(used[owner] == 2, 1.0, 0.5)
        bad, both = (np.bincount(owner[at], minlength=len(hosts)) for at in (is_bad, is_bad & is_late))
        are_bad: Bools = (used > 1) & ((bad >= 0.75 * used) | (both == late))
        return are_bad


def judge_parts(table: SamplesTable, cases: Sequence[int], *, fleet: bool) -> Fleet:
    """Return the answers of the parts of all hosts, by the *cases* with these numbers (one direction is good)."""
    sessions = Sessions.from_table(table)
    all_series = series({number: table.cases[number] for number in cases})
    tests, count = max(1, len(all_series)), len(cases)
    shape = count, sessions.hosts
    result = Fleet(
        *(table, sessions, [], np.array(sorted(cases), dtype=np.int64)),
        case_levels=np.full(shape, np.nan, dtype=np.float32),
        centres=np.full(count, np.nan),
        noise=np.full(count, np.nan),
        repetitions=np.full(shape, np.nan, dtype=np.float32),
        case_begins=np.full(shape, -1, dtype=np.int32),
        case_variances=np.full(shape, np.nan, dtype=np.float32),
        is_brief=np.zeros(shape, dtype=np.bool_),
        alone=np.full(shape, PASS, dtype=np.uint8),
        alone_limits=np.full(count, np.inf),
    )
    single = [part for part in all_series if not part.is_together]
    losses = {part: _series_losses(result, part) for part in single}
    without_trend = {part: of.loss - _trend(of.loss, sessions) for part, of in losses.items() if fleet}
    events = updates.events(without_trend, sessions)
    prepared_of: dict[Series, Prepared] = {}
    nothing = np.broadcast_to(0.0, len(sessions.number))
    for part in single:
        of_part = [event for event in events if part in event.changes]
        shift = sum((event.shift(part, sessions) for event in of_part), start=nothing)
        updated = [event.update([part], sessions) for event in of_part]
        prepared = prepared_of[part] = _prepare(losses.pop(part), sessions, tests, shift, updated, fleet=fleet)
        places = np.searchsorted(result.cases, part.cases)
        level = mean_of_hosts(prepared.losses.loss, prepared.counted, sessions.host, sessions.hosts)
        result.case_levels[places] += level.astype(np.float32)
        result.case_begins[places] = np.maximum(result.case_begins[places], prepared.timeline.begin)
    replaced = _replaced([*prepared_of.values()]) if prepared_of else np.zeros(sessions.hosts, dtype=np.bool_)
    of_all = [p for p in prepared_of.values() if fleet and np.isfinite(p.timeline.level).all()]
    divisions = [questions.two_groups(p.timeline.level, p.prior) for p in of_all]
    generation = questions.generations([two for two in divisions if two and not two.is_minority])
    for part in (s for s in all_series if s.is_together):
        members = [s for s in prepared_of if (s.part.name, s.kind) == (part.part.name, part.kind)]
        losses_of_all = levels.together([prepared_of[s].losses for s in members])
        updated = [event.update(members, sessions) for event in events if event.changes.keys() & {*members}]
        together = _prepare(losses_of_all, sessions, tests, nothing, updated, fleet=fleet)
        trend = together.trend + np.mean([prepared_of[s].trend for s in members], axis=0)
        prepared_of[part] = replace(together, trend=trend)
    for part in all_series:
        prepared_of[part].timeline.best[replaced] = np.nan  # Other parts have another level.
        result.series.append(_judge(part, prepared_of[part], sessions, generation, tests, fleet=fleet))
    usual = middles(result.case_levels.T)
    result.case_levels[:] -= usual[:, None]
    result.centres[:] += usual
    for judged in result.series if fleet else ():
        _await_repetitions(result, judged)
    _explain(result.series)
    if fleet and sessions.hosts >= constants.FEWEST_HOSTS:
        _judge_alone(result)
    return result


def _series_losses(fleet: Fleet, part: Series) -> SeriesLosses:
    """Return the losses of a series, and fill the rows of its cases."""
    sessions = fleet.sessions
    cases = [levels.case_losses(fleet.table, sessions, number) for number in part.cases]
    losses, rows = levels.series_losses(cases, sessions)
    places = np.searchsorted(fleet.cases, part.cases)
    for place, case, row in zip(places.tolist(), cases, rows, strict=True):
        level, variance, sizes, begin = _since_change(row - losses.loss, sessions)
        fleet.case_levels[place], fleet.case_variances[place], fleet.case_begins[place] = level, variance, begin
        fleet.repetitions[place, sessions.host[case.session]] = case.count
        # Of many metrics, a few are disturbed twice by chance.
        is_single = ~(fleet.repetitions[place] > 1)
        fleet.is_brief[place] = (sizes == 1) | ((sizes <= constants.BAD_SESSIONS) & is_single)
        fleet.noise[place] = case.noise
    fleet.centres[places] = losses.centres
    return losses


def _prepare(
    losses: SeriesLosses, sessions: Sessions, tests: int, shift: Floats, updated: Sequence[Update], *, fleet: bool
) -> Prepared:
    """Return the levels of a series without its trend and the *shift* by the updates that its hosts have."""
    trend = _trend(losses.loss - shift, sessions) if fleet else np.broadcast_to(0.0, len(losses.loss))
    shared = np.broadcast_to(np.float32(0), len(losses.loss))
    if shift.any() or trend.any():
        shared = (shift + trend).astype(np.float32)
        losses = replace(losses, loss=losses.loss - shared)
    timeline = levels.timeline(losses.loss, sessions, losses.noise)
    counted = np.isfinite(losses.loss) & (np.arange(len(losses.loss)) >= timeline.begin[sessions.host])
    counted &= sessions.current & (timeline.begin[sessions.host] >= 0)
    newest = levels.newest_of(np.arange(len(losses.loss)), counted, sessions, -1)
    awaiting, sudden = _awaiting(timeline, losses.loss, sessions, newest, tests)
    counted[newest[awaiting]] = False
    return Prepared(*(losses, timeline, counted, newest, awaiting, sudden, updated, trend, shared))


def _trend(loss: Floats, sessions: Sessions) -> Floats:
    """Return how much more all hosts lost at the time of each session than now: by a season, or a drift.

    It is the median of the hosts; 0.0 if they changed by different amounts, by little, or in a step, which is an
    update.
    """
    is_measured = np.isfinite(loss) & sessions.current
    weeks, _, week = sessions.weeks
    since = np.full((sessions.hosts, len(weeks)), np.nan, dtype=np.float32)
    since[sessions.host[is_measured], week[is_measured]] = loss[is_measured]
    since -= levels.newest_of(loss, is_measured, sessions, math.nan)[:, None]
    measured = np.flatnonzero(np.isfinite(since).sum(axis=0) >= max(constants.FEWEST_HOSTS, sessions.hosts / 2))
    middle = middles(since[:, measured])
    deviations = middles(np.abs(since[:, measured] - middle)) / constants.NORMAL_MEDIAN
    largest = max(np.abs(np.diff(middle)).max(initial=0.0), deviations.max(initial=0.0))
    if np.abs(middle).max(initial=0.0) <= max(3 * largest, constants.LEAST_LOSS):
        return np.broadcast_to(0.0, len(loss))
    trend: Floats = np.interp(weeks, weeks[measured], middle)[week]
    return trend


def _since_change(beyond: Floats, sessions: Sessions) -> tuple[Floats, Floats, Ints, Ints]:
    """Return the mean of the values of each host since its last change, and the variance of this mean.

    Third, the number of sessions since then (:data:`STABLE_SESSIONS` without a change), and the first one (-1).
    """
    _, noise, freedom = levels.session_noise(beyond, sessions)
    (sums, counts), (weeks, _, week) = levels.by_week(beyond, sessions), sessions.weeks
    since, hosts = np.zeros(sessions.hosts, dtype=np.int64), np.arange(sessions.hosts)
    cells: tuple[Floats, Ints] = sums, counts
    while len(weeks) > 1 and len(hosts):
        clearness = levels.Steps.of_cells(*cells).clearness(noise[hosts])
        is_change = chance_of_change(clearness.max(axis=1), freedom, len(weeks)) <= constants.CHANGE_TAIL
        hosts, place = hosts[is_change], 1 + np.argmax(clearness[is_change], axis=1)
        since[hosts] = place
        is_since = np.arange(len(weeks)) >= place[:, None]
        sums[hosts], counts[hosts] = cells = sums[hosts] * is_since, counts[hosts] * is_since
    size = counts.sum(axis=1)
    begin = np.full(sessions.hosts, -1)
    later = np.flatnonzero((since > 0)[sessions.host] & (week >= since[sessions.host]) & np.isfinite(beyond))[::-1]
    begin[sessions.host[later]] = later
    mean = np.divide(sums.sum(axis=1), size, out=np.full(len(size), np.nan), where=size > 0)
    variance = np.nan_to_num(noise) ** 2 / np.maximum(size, 1)
    return mean, variance, np.where(since > 0, size, constants.STABLE_SESSIONS).astype(np.int64), begin


def _replaced(series_of_host: Sequence[Prepared]) -> Bools:
    """Return which hosts have other parts: most series changed at once, for better and worse."""
    changes = np.nan_to_num([p.timeline.change for p in series_of_host])
    begins = np.where(changes != 0, [p.timeline.begin for p in series_of_host], -1)
    changes[begins < begins.max(axis=0) - 1] = 0.0
    up, down, count = (changes > 0).sum(axis=0), (changes < 0).sum(axis=0), len(series_of_host)
    is_mixed: Bools = (up + down >= max(3, count / 2)) & (np.minimum(up, down) >= max(1, count / 5))
    return is_mixed


def _judge(
    part: Series, prepared: Prepared, sessions: Sessions, generation: Bools | None, tests: float, *, fleet: bool
) -> Judged:
    """Return the answers about one series."""
    hosts, losses, timeline = sessions.hosts, prepared.losses, prepared.timeline
    with_itself = questions.compared_with_itself(timeline, sessions, losses, prepared.updates, tests)
    siblings, divided, deviation = Answer.none(hosts), None, constants.PRIOR_SPREAD
    if fleet:
        prior = prepared.prior, constants.PRIOR_FREEDOM + (1 if losses.spread else 0)
        siblings, spread, divided = questions.compared_with_siblings(timeline, losses, prior, tests, generation)
        deviation = spread.deviation if spread else prior[0]
    words = np.full(hosts, PASS, dtype=np.uint8)
    question = np.full(hosts, SIBLINGS, dtype=np.uint8)
    for number, answer in ((SIBLINGS, siblings), (OWN, with_itself)):
        with np.errstate(invalid="ignore"):
            word = np.where(answer.loss > answer.unusual, SUSPECT, PASS)
            word = np.where(answer.loss > answer.limit, FAIL, word)
            if number == SIBLINGS:
                word[(answer.loss > constants.DOUBTFUL_LOSS) & (word == PASS)] = UNDECIDED
        more = word > words
        words[more], question[more] = word[more], number
    if divided is not None and divided.is_minority:
        words[divided.worse & (words == PASS)] = UNDECIDED
    awaiting, newest = prepared.awaiting, prepared.newest
    awaiting &= words < SUSPECT
    question[awaiting] = OWN
    words[awaiting] = np.where((np.isfinite(prepared.sudden) & (losses.repetitions > 1))[awaiting], FAIL, SUSPECT)
    timeline.size[awaiting], timeline.begin[awaiting] = 1, newest[awaiting]
    timeline.before[awaiting] = newest[awaiting] - 1
    # Some hosts that changed together have an update, or share a fault.
    doubtful = [update.hosts for update in prepared.updates if update.change > constants.DOUBTFUL_LOSS]
    together = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *doubtful]))
    if len(together) <= constants.MOST_BAD * np.count_nonzero(np.isfinite(timeline.level)):
        together = together[words[together] == PASS]
        words[together], question[together] = UNDECIDED, OWN
    return Judged(
        **asdict(prepared),
        series=part,
        words=words,
        question=question,
        answers=(siblings, with_itself),
        intermittent=_intermittent(losses.loss, sessions, timeline.noise, words) if fleet else {},
        groups=divided,
        deviation=deviation,
    )


def _awaiting(
    timeline: Timeline, loss: Floats, sessions: Sessions, newest: Ints, tests: float
) -> tuple[Bools, Floats]:
    """Return the hosts that are bad in their *newest* session only, beyond what the median host lost in it.

    The limit of those that were stable and are far beyond it follows.
    """
    place = np.arange(len(loss))
    is_earlier = np.isfinite(loss) & sessions.current & (place < newest[sessions.host])
    is_earlier &= place >= timeline.begin[sessions.host]
    change = np.where(newest >= 0, loss[newest], np.nan)
    change -= of_hosts(loss[is_earlier], sessions.host[is_earlier], sessions.hosts)
    # What changed in the newest session is not noise; if no host has two earlier ones, the change of most is.
    noise = levels.session_noise(np.where(place < newest[sessions.host], loss, np.nan), sessions)[1]
    noise = noise if np.isfinite(noise).any() else np.full_like(noise, levels.session_noise(loss, sessions)[0])
    deviation = noise * np.sqrt(1 + 1 / np.maximum(timeline.size - 1, 1))
    limit, _, _ = questions.limits(deviation, timeline.freedom, tests, constants.LEAST_LOSS)
    measured = change[np.isfinite(change)]
    common = max(0.0, float(np.median(measured))) if len(measured) >= constants.FEWEST_HOSTS else 0.0
    with np.errstate(invalid="ignore"):
        is_bad: Bools = change > limit
        timeline.last[is_bad] = (timeline.level + change)[is_bad]
        is_rare = np.count_nonzero(is_bad) <= max(1, constants.UPDATED_SHARE / 2 * len(measured))
        is_bad &= change - common > limit
        sudden_limit = np.maximum(constants.SUDDEN_LIMITS * limit, constants.DOUBTFUL_LOSS)
        is_sudden = is_bad & is_rare & (change - common > sudden_limit)
        is_sudden &= timeline.size > constants.STABLE_SESSIONS
    return is_bad, np.where(is_sudden, sudden_limit, np.nan)


def _intermittent(
    loss: Floats, sessions: Sessions, noise: Floats, words: NDArray[np.uint8]
) -> dict[int, tuple[float, float, str]]:
    """Return the hosts that are good in most sessions, were bad in several periods, and lately again."""
    measured = np.flatnonzero(np.isfinite(loss) & sessions.current)
    host = sessions.host[measured]
    counts = np.bincount(host, minlength=sessions.hosts)
    if counts.max(initial=0) <= constants.STABLE_SESSIONS:
        return {}
    # The middle of the sessions that are good if up to constants.MOST_BAD of them are bad.
    usual = of_hosts(loss[measured], host, sessions.hosts, quantile=(1 - constants.MOST_BAD) / 2)
    clear = float(np.maximum(4 * np.median(noise), constants.LEAST_LOSS))
    losses = loss[measured] - usual[host]
    bad = np.bincount(host[losses > clear], minlength=sessions.hosts)
    result: dict[int, tuple[float, float, str]] = {}
    # A property that most hosts have is not a fault of one.
    often = constants.INTERMITTENT_SESSIONS * (1 + float(np.median(bad[counts > 0])))
    for number in np.flatnonzero((bad >= often) & (words < SUSPECT)).tolist():
        of_host = losses[host == number]
        is_bad = of_host > clear
        since = len(of_host) - 1 - int(np.flatnonzero(is_bad)[-1])
        # A bad period ends where the host is good again.
        is_clear = is_bad[is_bad | (of_host < clear / 2)]
        periods = np.count_nonzero(np.diff(is_clear.astype(np.int8), prepend=0) == 1)
        if periods > 1 and (1 - bad[number] / counts[number]) ** since > 0.1:
            note = f"intermittent: bad in {bad[number]} of {counts[number]} sessions"
            result[number] = float(np.median(of_host[is_bad])), clear, note
    return result


def _may_explain(cause: Series, effect: Series) -> bool:
    """Return whether the loss of one part makes another lose as much."""
    (name, place), at = (effect.part.name, effect.part.place), cause.part.place
    if cause.part.name == "clock":
        is_slowed = effect.kind in {"latency", "slowest accesses", "bandwidth"} and name != "clock"
        return is_slowed and at[:1] in {(), place[:1]}
    is_end = not place or at == place[1:]
    return name == "link" and (cause.part.name, cause.kind) == ("memory", effect.kind) and is_end


def _explain(judged: Sequence[Judged]) -> None:
    """Let a part be good if the loss of another part explains its loss.

    Links end at the memory of a bank, caches and memory's latency follow the clock, and all parts of a name
    together are named only if no single one is.
    """
    for effect, cause in itertools.product(judged, judged):
        if not _may_explain(cause.series, effect.series):
            continue
        for host in np.flatnonzero((cause.words >= SUSPECT) & (effect.words > PASS)).tolist():
            loss, _ = effect.answer(host)
            if not loss > 1.3 * max(cause.answer(host)[0], cause.answers[0].loss[host]) + constants.LEAST_LOSS:
                effect.words[host], effect.explained[host] = PASS, f"explained by {cause.series.part.text}"
    # All parts of a name: named if most of them, or no single one, are as bad, and else the single ones.
    for j in judged:
        if not j.series.is_together:
            continue
        name, worst = (j.series.part.name, j.series.kind), np.maximum(j.words, SUSPECT)
        single = np.array([o.words for o in judged if (o.series.part.name, o.series.kind) == name and o is not j])
        is_shown = (single.max(axis=0) >= worst) & (np.mean(single >= SUSPECT, axis=0) < 0.75)
        hosts = np.flatnonzero((j.words > PASS) & is_shown)
        j.words[hosts] = PASS
        j.explained.update(dict.fromkeys(hosts.tolist(), "explained by single parts"))


def _judge_alone(fleet: Fleet) -> None:
    """Judge metrics alone, after the losses of their parts are removed."""
    numbers, case_levels = fleet.cases, fleet.case_levels
    # The common loss of all cases is removed by their plain mean: it has no tails that the others do not have.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        single = {
            judged.series: np.searchsorted(numbers, judged.series.cases) for judged in fleet.series_of.values()
        }
        of_all = {series: np.nanmean(case_levels[places], axis=0) for series, places in single.items()}
    for place, number in enumerate(numbers.tolist()):
        judged = fleet.series_of[number]
        cases = len(judged.series.cases)
        if cases == 1:
            continue
        shared = of_all[judged.series]
        level = case_levels[place] - (shared if cases > 2 else np.where(judged.words >= SUSPECT, shared, 0.0))
        measured = np.flatnonzero(np.isfinite(level))
        if len(measured) < constants.FEWEST_HOSTS:
            continue
        prior = math.hypot(judged.losses.spread, judged.deviation if cases == 2 else 0.0)
        weight = min(20.0, max(constants.PRIOR_FREEDOM, 0.6 * (cases - 1) * len(measured)))
        prior, step = max(prior, 0.25 * constants.PRIOR_SPREAD), judged.losses.step
        spread = questions.spread_of(level[measured], prior, weight, step)
        # A metric is bad by itself, too, and hosts of an update are compared with each other.
        losses = np.minimum(level - spread.centre, case_levels[place])
        # A case that changed lately is known from fewer sessions.
        variance = fleet.case_variances[place]
        added = np.maximum(np.nan_to_num(variance) - np.nanmedian(variance[measured]), 0.0)
        for update in (u for u in judged.updates if len(u.hosts) >= constants.UPDATED_HOSTS):
            losses[update.hosts] -= max(float(np.median(losses[update.hosts])), 0.0)
            added[update.hosts] += update.deviation**2
        wide, least = np.sqrt(spread.of_another**2 + added), max(constants.LEAST_LOSS, 1.5 * step)
        fail, unusual, _ = questions.limits(wide, spread.freedom, 2.0 * len(numbers), least)
        fleet.alone_limits[place] = float(np.median(fail[measured]))
        with np.errstate(invalid="ignore"):
            # Several hosts that changed are an update that only this metric shows.
            begins, is_unusual = fleet.case_begins[place], losses > unusual
            is_changed = is_unusual & (begins > judged.timeline.begin)
            fewest = max(constants.UPDATED_HOSTS, constants.UPDATED_SHARE * len(measured))
            is_changed &= np.count_nonzero(is_changed) >= fewest
            hosts = np.flatnonzero(is_unusual)
            is_bad = fleet.are_bad(place, hosts, np.zeros(len(hosts)), unusual[hosts], begins[hosts])
            is_bad &= ~is_changed[hosts]
            words = np.where((losses > fail) & ~fleet.is_brief[place], FAIL, SUSPECT)[hosts]
            fleet.alone[place, hosts] = np.where(is_bad, words, UNDECIDED)


def _await_repetitions(fleet: Fleet, judged: Judged) -> None:
    """Let no host of a few sessions fail by a single repetition of a metric, or of all metrics."""
    awaiting, timeline = judged.awaiting, judged.timeline
    all_places = np.searchsorted(fleet.cases, judged.series.cases)
    fails = (judged.words == FAIL) & (judged.timeline.size < constants.STABLE_SESSIONS)
    fails &= (judged.question == SIBLINGS) | awaiting
    for host in np.flatnonzero(fails).tolist():
        places = all_places[np.isfinite(fleet.case_levels[all_places, host])]
        own, of_cases = fleet.case_levels[places, host], places
        size, limit = float(timeline.last[host] - timeline.level[host]) / 2, 0.0
        if not awaiting[host]:
            size, limit = 0.0, judged.answer(host)[1]
            of_cases, own = places[own > limit / 2], np.zeros(len(places))
        begin, of_host = timeline.begin[[host]], zip(of_cases.tolist(), own[:, None] + size, strict=False)
        all_limits = np.array([limit])
        lasting = [fleet.are_bad(p, np.array([host]), level, all_limits, begin)[0] for p, level in of_host]
        is_single = judged.timeline.size[host] == 1 and not judged.losses.repetitions[host] > 1
        # Of a host of another generation, no metric may be worse than of the median host.
        if is_single or (lasting and 2 * sum(lasting) <= len(lasting)):
            judged.words[host] = SUSPECT if len(all_places) > 2 else UNDECIDED
