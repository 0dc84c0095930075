# SPDX-License-Identifier: Apache-2.0
"""Judges one case on all hosts: by the system's reference, by what the fleet reaches, and by own levels.

The verdicts of a case are columns with a row for each host (:data:`VERDICT`).
:mod:`firsttouch.judge.judging` joins those of all cases.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from itertools import compress
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from firsttouch.benchmarks.kernel_settings import BUSY
from firsttouch.judge import event_limits, fleet_level, host_level, sprt
from firsttouch.judge.fleet_level import FEWEST_HOSTS, LOSS, Divided, Level, divided, level, separated
from firsttouch.judge.samples_table import SamplesTable
from firsttouch.judge.sprt import Bools, Floats, Groups, Ints
from firsttouch.judge.statistics import HUBER, binomial_tail, chance_of_change, student_quantiles
from firsttouch.judge.verdict import ORDER
from firsttouch.records.cases import Case
from firsttouch.systems.references import Reference
from firsttouch.units import Better, percent, percent_range

#: The verdicts as numbers, from good to bad.
PASS, UNDECIDED, SUSPECT, INVALID, FAIL = range(len(ORDER))
#: The number of the reference that decided: the system's, the fleet's, the host's own level, or none.
SYSTEM, FLEET, OWN, NONE = range(4)
#: Two groups of hosts are further apart than this many times what hosts wander from session to session.
_APART = 3.0
#: What most hosts have lost is stated if it is at least this share.
_COMMON = 0.005
#: Deviations of good hosts beyond which a host does not pass if chance hides a loss.
_UNUSUAL = 3.0
#: A host is intermittent if it was bad now and then, this many times at least. It is repaired if as many good
#: sessions as it has had since are less likely than this.
_FEWEST_BAD_RUNS, _REPAIRED = 3, 0.1
#: A smaller loss after a stable period may be a disturbance of one session; more repetitions of it tell nothing.
_SUDDEN = 0.2
#: A policy: a host that lacks this share of the speed in a few repetitions is suspect if that is so many times the
#: limit or more. A disturbed repetition of a good host loses up to 30 % (bench/simulated_fleets.py).
_HALF, _FAR = 0.5, 4.0
#: The largest fleet whose metrics are taken together to learn how far good hosts differ.
_POOLED_HOSTS = 64
#: The largest number of further repetitions that is counted.
MOST_COUNTED = 999


# ----------------------------------------------------------------------
# The verdict of one reference on groups of repetitions


#: The verdict of a group of repetitions, one column of :class:`Findings` per field.
VERDICT = np.dtype([("words", "u1"), ("by", "u1"), ("more", "i4"), ("evidence", "f8")], align=True)
Verdicts = NDArray[np.void]


def verdict_rows(count: int, word: int, by: int, more: int = 0) -> Verdicts:
    """Return *count* equal verdicts without evidence."""
    return np.full(count, np.array((word, by, more, np.nan), dtype=VERDICT))


def _test(samples: Groups, better: Better, reference: Reference, by: int, *, exact: bool) -> Verdicts:
    """Return the verdict of *reference* on each group of repetitions, oldest first.

    *by* is the number of the reference. The last of *exact* values decides: they are read and not measured.
    Otherwise all repetitions decide, by their evidence if the error of a repetition is known. If not, they are
    counted: outside in all of at least two is a fail, outside in less than half of them a pass, and anything
    between is undecided. So is a pass by evidence if the median is outside. Which undecided groups are suspect
    depends on all metrics of a host (:func:`firsttouch.judge.statistics.beyond_chance`).
    """
    bad, good = out_of_limits(samples.values, better, reference)
    verdicts = verdict_rows(len(samples), PASS, by)
    words, more = verdicts["words"], verdicts["more"]
    sides = _evidence_by_side(samples.values, better, reference)
    counted = samples.counts
    if exact:
        words[bad[samples.ends]] = FAIL
    elif sides:
        evidence = np.maximum.reduce([samples.sums(side) for side in sides])
        _decide(verdicts, evidence, counted, _widest(reference), reference.error or 0.0)
        # A good repetition may weigh more than a bad one, but a host whose median is outside does not pass.
        outside = samples.sums(bad.astype(np.int64))
        for group in np.flatnonzero((2 * outside >= counted) & (words == PASS)).tolist():
            end = samples.ends[group] + 1
            median = np.median(samples.values[end - counted[group] : end], keepdims=True)
            if out_of_limits(median, better, reference)[0][0]:
                words[group], more[group] = UNDECIDED, 1
    else:
        outside = samples.sums(bad.astype(np.int64))
        words[2 * outside >= counted] = UNDECIDED
        words[(outside == counted) & (outside > 1)] = FAIL
        more[:] = np.where(counted == 1, 1, 2 * outside - counted + 1)
        more[words != UNDECIDED] = 0
    if reference.line and good.any():
        mostly = good[samples.ends] if exact else 2 * samples.sums(good.astype(np.int64)) >= counted
        words[mostly & (words == PASS)] = SUSPECT
    return verdicts


def _widest(reference: Reference) -> float:
    """Return the larger one of the limits of a *reference*, a fraction."""
    return max((abs(end) for end in (reference.lower, reference.upper) if end), default=0.0)


def lacks_half(value: float, better: Better, reference: Reference) -> bool:
    """Return whether *value* lacks half of the expected speed or more, and is far outside of the limits."""
    if better == "neither" or value <= 0 or reference.value <= 0:
        return False
    share = value / reference.value if better == "higher" else reference.value / value
    return share <= 1 - _HALF and abs(value / reference.value - 1) >= _FAR * _widest(reference)


def _decide(
    verdicts: Verdicts, evidence: Floats, counts: Ints, limit: float | Floats, error: float | Floats
) -> None:
    """Set the verdicts that follow from the *evidence* of some repetitions (*counts*) of each group.

    *limit* and *error* are those of its reference.
    """
    words, more = verdicts["words"], verdicts["more"]
    verdicts["evidence"] = evidence
    words[evidence > 0] = UNDECIDED
    words[evidence >= sprt.FAIL_AT] = FAIL
    # As many as at the present rate, or as decide about the loss that must be detected.
    to_fail = np.ceil(counts * (sprt.FAIL_AT - evidence) / np.maximum(evidence, 1e-9))
    more[:] = np.clip(np.minimum(to_fail, sprt.repetitions_to_fail(evidence, limit, error)), 1, MOST_COUNTED)
    more[words != UNDECIDED] = 0


def out_of_limits(values: Floats, better: Better, reference: Reference) -> tuple[Bools, Bools]:
    """Return which values are worse than *reference* allows, and which are better than it allows."""
    minimum, maximum = reference.minimum, reference.maximum
    none = np.zeros(len(values), dtype=np.bool_)
    low = none if minimum is None else values < minimum
    high = none if maximum is None else values > maximum
    return {"higher": (low, high), "lower": (high, low)}.get(better, (low | high, none))


def _evidence_by_side(values: Floats, better: Better, reference: Reference) -> list[Floats]:
    """Return the evidence of each value for each side that may be worse; an empty list if no error is known."""
    if reference.error is None:
        return []
    changes = values / reference.value - 1
    sides = []
    if better != "lower" and reference.lower:
        sides.append(sprt.weights(-changes, -reference.lower, reference.error))
    if better != "higher" and reference.upper:
        sides.append(sprt.weights(changes, reference.upper, reference.error))
    return sides


def _strongest(sides: list[Floats], counted: Bools, session: Ints) -> tuple[Ints, Floats]:
    """Return where the newest sessions begin that are most evidence together in each row, and all such sums.

    *sides* are the evidence of each repetition for each side that may be worse, *counted* those that count. The
    sums are those of each repetition and all newer ones.
    """
    sums = np.maximum.reduce([np.cumsum(np.where(counted, side, 0.0)[:, ::-1], axis=1)[:, ::-1] for side in sides])
    return np.argmax(np.where(_firsts(counted, session), sums, -np.inf), axis=1), sums


class _Reached(NamedTuple):
    """The own levels of some groups: values, limits, and errors of a session.

    The *uncertainty* is that of a level, relative, and *freedom* its degrees of freedom.
    """

    value: Floats
    limit: Floats
    error: Floats
    uncertainty: Floats
    freedom: Floats

    def part(self, which: Ints) -> _Reached:
        """Return the own levels of groups with these places."""
        return _Reached(*(column[which] for column in self))

    def evidence_bounds(self, losses: Floats, sessions: Ints, possible: Ints, tail: float) -> Floats:
        """Return the most that *losses* since a level may be as evidence.

        They are logarithms, a row per group (NaN: does not count), of a number of *sessions*. The level has an
        error, too, and these sessions are those of all *possible* ones that are furthest from it. So their
        distance is evidence by the probability that chance makes it, without a limit if that is at most *tail*.
        """
        error = self.error[:, None]
        with np.errstate(all="ignore"):
            middle = np.nanmedian(losses, axis=1, keepdims=True)
            # A single session may be disturbed.
            loss = np.nanmean(np.clip(losses, middle - HUBER * error, middle + HUBER * error), axis=1)
        distance = loss / np.hypot(self.uncertainty, self.error / np.sqrt(sessions))
        # Half of the changes are gains.
        chance = chance_of_change(np.maximum(distance, 0.0), self.freedom, possible / 2)
        return np.where(chance > tail, -np.log(np.maximum(chance, tail)), np.inf)


def _firsts(counted: Bools, session: Ints) -> Bools:
    """Return which *counted* repetitions are the first ones of their *session* in each row."""
    latest = np.maximum.accumulate(np.where(counted, session, -1), axis=1)
    firsts: Bools = counted & (np.insert(latest[:, :-1], 0, -1, axis=1) != session)
    return firsts


# ----------------------------------------------------------------------
# The judge of a case


def is_small(hosts: Sequence[str]) -> bool:
    """Return whether so few hosts show the spread of a metric badly, and all metrics of its kind are needed."""
    return len(hosts) <= _POOLED_HOSTS


def pooled_judges(samples: SamplesTable, metrics: int) -> dict[int, CaseJudge]:
    """Return the judges of the cases of a small fleet, which know the spread of all metrics of their check.

    Of a large fleet there are none: its hosts show the spread of each metric.
    """
    if not is_small(samples.hosts):
        return {}
    judges = {
        number: CaseJudge(case, samples, samples.groups(number), metrics)
        for number, case in enumerate(samples.cases)
        if not case.exact and event_limits.limit_of(case) is None
    }
    reached = [(j.case.check, j.reached(), j.host_numbers) for j in judges.values()]
    spreads = fleet_level.pooled_spreads(reached, len(samples.hosts))
    for judge, spread in zip(judges.values(), spreads, strict=True):
        judge.spread = spread
    return judges


class CaseJudge:
    """Judges one case on all hosts that have it. Its columns are those of :class:`Findings`."""

    def __init__(self, case: Case, table: SamplesTable, groups: slice, metrics: int) -> None:
        self.case, self.table, self.groups, self.metrics = case, table, groups, metrics
        #: The system's reference and the fleet's, what the fleet reaches, and the spread if metrics are pooled.
        self.own: Reference | None = None
        self.fleet: Reference | None = None
        self.level: Level | None = None
        #: The smallest loss that the comparison with the fleet finds (1: none). None: too few hosts to compare.
        self.visible: float | None = None
        self.spread: tuple[float, float] | None = None
        #: By the number of the group within the case, the reference of hosts that no common one has judged: their
        #: own level, or what the fleet reached before an update.
        self.own_references: dict[int, Reference] = {}
        #: The numbers of the groups that fail unless the next session is good.
        self.awaiting_session: list[int] = []
        rows = table.rows_of(groups)
        self.samples = Groups(table.value[rows], table.counts[groups])
        self.valid, self.session, self.times = table.valid[rows], table.session(groups), table.time[rows]
        #: What a level can be learnt from: values of 0 are none, if others are above 0.
        self.positive = self.samples.values > 0
        if case.exact or not self.positive.any():
            self.positive = np.ones_like(self.valid)
        self.may_use = self.valid & table.judged[rows] & self.positive
        self.last_session = self.session[self.samples.ends]
        #: The first session of each host with its present board and processors (0: all are).
        self.firsts: Ints = table.first_sessions[table.host[groups]]
        self.busy = None if case.exact else table.busy(groups)
        #: Whether references may judge each host, by its last record.
        self.may_judge = table.judged[rows][self.samples.ends]
        self.divided: Divided | None = None
        #: What hosts of the worse group reach, if there are two groups.
        self.worse: Reference | None = None

    @cached_property
    def hosts(self) -> list[str]:
        """The name of each group's host."""
        hosts: list[str] = self.table.names[self.table.host[self.groups]].tolist()
        return hosts

    @cached_property
    def _stretches(self) -> tuple[host_level.Newest | None, Bools, Bools, Bools]:
        """The newest stretches without a change, the rows from their begins on, the groups and rows that have one.

        Disturbed repetitions do not change a host, unless it has no others.
        """
        now = self.valid & self.positive
        if self.busy is not None:
            calm = now & (self.busy < BUSY)
            now = np.where(np.repeat(self.samples.sums(calm.astype(np.int64)) > 0, self.samples.counts), calm, now)
        samples, some = self._kept(now)
        if self.case.exact or not len(samples):
            return None, self.valid, some, now
        newest = host_level.newest(samples, self.session[now], self.times[now], self.firsts[some])
        if not newest.before.any():
            return newest, self.valid, some, now
        # Disturbed rows from the begin of the stretch on belong to it.
        first = np.zeros(len(self.samples), dtype=np.int64)
        places = np.flatnonzero(now)[newest.sessions.begins]
        first[some] = places[newest.sessions.starts + newest.before]
        since: Bools = np.arange(len(now)) >= np.repeat(first, self.samples.counts)
        return newest, self.valid & since, some, now

    @cached_property
    def _least(self) -> float:
        """The least difference that rounded values can tell; 0 if they are not rounded."""
        return fleet_level.rounding_limit(self._kept(self.positive)[0])

    @cached_property
    def _updates_since(self) -> Floats:
        """How most hosts changed since each host was measured for the last time (the change of a logarithm)."""
        newest, _, some, counted = self._stretches
        since = np.zeros(len(self.samples))
        if newest is not None and newest.updates:
            last = np.full(len(since), np.iinfo(np.int64).max)
            sizes = self.samples.sums(counted.astype(np.int64))[some]
            last[some] = self.times[counted][np.cumsum(sizes) - 1]
            for time, change in newest.updates:
                since[last < time] += change
        return since

    def _kept(self, which: Bools) -> tuple[Groups, Bools]:
        """Return the values of a mask, and which groups have some."""
        if which.all():
            return self.samples, np.ones(len(self.samples), dtype=np.bool_)
        counts = self.samples.sums(which.astype(np.int64))
        return Groups(self.samples.values[which], counts[counts > 0]), counts > 0

    @cached_property
    def _current(self) -> tuple[Groups, Bools]:
        """The repetitions that teach what the fleet reaches: those since each host's last change.

        Hosts that were not measured since an update do not know.
        """
        updated = np.repeat(self._updates_since == 0, self.samples.counts)
        return self._kept(self.may_use & self._stretches[1] & updated)

    @cached_property
    def host_numbers(self) -> NDArray[np.int32]:
        """The numbers of the hosts that :attr:`_current` has repetitions of."""
        numbers: NDArray[np.int32] = self.table.host[self.groups][self._current[1]]
        return numbers

    def reached(self) -> fleet_level.HostLevels | None:
        """Return the levels of the hosts that have repetitions."""
        current, _ = self._current
        return fleet_level.host_levels(current) if len(current) else None

    def learn(self) -> None:
        """Learn a reference from the majority of the hosts, if it is known well enough."""
        current, some = self._current
        if self.case.exact and self.case.unit == "1":
            self.fleet = self._most_frequent(current)
            return
        names = self.hosts if some.all() else list(compress(self.hosts, some.tolist()))
        self.divided = self._lasting(divided(current, names, self.case.better, self._least))
        if self.divided is None:
            self.fleet = self._reference_of(current, len(current), self.spread)
            # A limit that is narrower than the loss to detect hides no group.
            if self.level is None or self.level.limit > LOSS:
                groups = separated(current, names, self.case.better, self.metrics, self._least)
                self.divided = self._lasting(groups)
        if self.divided is not None and self.fleet is None:
            is_worse = np.isin(names, self.divided.worse)
            self.worse = self._reference_of(current.chosen(is_worse), len(current), None)
            better = current.chosen(np.isin(names, self.divided.better))
            self.fleet = self.worse and self._reference_of(better, len(current), None)
            if self.fleet is None:  # the groups are too small to know their spreads, and still apart
                values, limit = self.divided.values, min(self.divided.apart / 2, 0.5)
                source = f"{len(self.divided.better)} of {len(current)} hosts of this fleet"
                self.visible, self.fleet = limit, self._reference(values[0], limit, source, None)
                self.worse = self._reference(values[1], limit, source, None)

    def _lasting(self, groups: Divided | None) -> Divided | None:
        """Return two groups of hosts, None if all wander that far from session to session."""
        newest = self._stretches[0]
        if groups and newest and newest.sessions.counts.max() > 2 and groups.apart < _APART * newest.errors.wander:
            return None
        return groups

    def _reference_of(self, samples: Groups, hosts: int, spread: tuple[float, float] | None) -> Reference | None:
        """Return what most of some groups, of all *hosts*, reach; None if that is not known well enough."""
        newest = self._stretches[0]
        reached = level(
            samples,
            [""] * len(samples),
            self.case.better,
            metrics=self.metrics,
            spread=spread,
            session=newest.session_variance if newest else (0.0, 1.0),
            least=self._least,
        )
        if reached is None:
            return None
        self.visible = min(reached.visible, 1.0)
        if reached.doubt > reached.limit / 4:
            self.visible = 1.0
            return None
        self.level = reached
        if self.visible == 1:  # what cannot find any loss compares nothing
            return None
        source = f"{reached.hosts} of {hosts} hosts of this fleet"
        return self._reference(reached.value, reached.limit, source, reached.error)

    def _most_frequent(self, samples: Groups) -> Reference | None:
        """Return the count that more than half of the hosts have: good hosts do not differ in one."""
        if len(samples) < FEWEST_HOSTS or samples.values.min() <= 0:
            return None
        values, hosts = np.unique(samples.values[samples.ends], return_counts=True)
        mode = int(hosts.argmax())
        if 2 * hosts[mode] <= len(samples):
            return None
        source = f"{hosts[mode]} of {len(samples)} hosts of this fleet"
        return self._reference(float(values[mode]), 0.0, source, None)

    def _reference(self, value: float, limit: float, source: str, error: float | None) -> Reference:
        case = self.case
        limits = (-limit, limit)
        return Reference(case.check, case.metric, case.parameters, value, *limits, case.unit, source, 0, error)

    def judge(self) -> tuple[Verdicts, Bools]:
        """Return the worst of the verdicts by the system, the fleet and the own level, and which rows count."""
        now = self.valid & self._stretches[1]
        without_newest = self._drop(now)
        verdicts = verdict_rows(len(without_newest), PASS, NONE if self.fleet is None else FLEET)
        verdicts["words"][without_newest], verdicts["more"][without_newest] = INVALID, 1
        if self.own is not None:
            verdicts["by"][self.may_judge] = SYSTEM
        for number, reference in ((SYSTEM, self.own), (FLEET, self.fleet)):
            if reference is not None:
                others, others_now = self.judge_by(number, reference)
                # Of equal verdicts the system's counts, unless only the fleet's has evidence.
                counts = (others["words"] > verdicts["words"]) | (verdicts["by"] == number)
                unknown = np.isnan(verdicts["evidence"]) & ~np.isnan(others["evidence"])
                counts |= (others["words"] == UNDECIDED) & (verdicts["words"] == UNDECIDED) & unknown
                if number == SYSTEM:
                    counts &= self.may_judge
                verdicts[counts] = others[counts]
                rows = np.repeat(counts, self.samples.counts)
                now[rows] = others_now[rows]
        self._judge_by_own_levels(verdicts, now)
        self._await_sessions(verdicts, now)
        return verdicts, now

    def _await_sessions(self, verdicts: Verdicts, now: Bools) -> None:
        """Let hosts that were good for a stable period fail in the second bad session, unless they lost much.

        Repetitions of one session share its disturbance.
        """
        newest, _, some, _ = self._stretches
        if newest is None or self.case.exact:
            return
        is_first = np.zeros(len(verdicts), dtype=np.bool_)
        is_first[some] = newest.has_period & (newest.sessions.counts - newest.before == 1)
        for group in np.flatnonzero(is_first & (verdicts["words"] == FAIL)).tolist():
            is_by_system = verdicts["by"][group] == SYSTEM
            reference = self.own if is_by_system else self.own_references.get(group, self.fleet)
            rows = self.samples.rows(group)
            values, session, valid = self.samples.values[rows], self.session[rows], self.valid[rows]
            value = float(np.median(values[now[rows]]))
            if reference is None or abs(value / reference.value - 1) >= _SUDDEN:
                continue
            is_previous = valid & (session == session[valid & (session < session[-1])][-1])
            previous = np.array([np.median(values[is_previous])])
            if not out_of_limits(previous, self.case.better, reference)[0].any():
                verdicts["words"][group], verdicts["more"][group] = SUSPECT, 0
                self.awaiting_session.append(group)

    def _drop(self, now: Bools) -> Bools:
        """Clear *now* in groups whose newest session has no row in it; return these groups."""
        newest = np.maximum.reduceat(np.where(now, self.session, -1), self.samples.begins)
        without_newest: Bools = newest < self.last_session
        now[np.repeat(without_newest, self.samples.counts)] = False
        return without_newest

    def _undisturbed(self, reference: Reference) -> Bools:
        """Return which rows are valid, and not bad by *reference* while others used the host.

        A value that is good although others used the host counts.
        """
        if self.busy is None:
            return self.valid
        bad, _ = out_of_limits(self.samples.values, self.case.better, reference)
        undisturbed: Bools = self.valid & ~(bad & (self.busy >= BUSY))
        return undisturbed

    def judge_by(self, number: int, reference: Reference) -> tuple[Verdicts, Bools]:
        """Return the verdicts of a reference with this *number*, and which rows they are based on."""
        now = self._undisturbed(reference) & self._stretches[1]
        self._drop(now)
        verdicts = verdict_rows(len(self.samples), INVALID, number, more=1)
        samples, some = self._kept(now)
        if len(samples):
            better, exact = self.case.better, self.case.exact
            judged = _test(samples, better, reference, number, exact=exact)
            if number == FLEET and self.worse is not None:
                # A host as good as the worse group does not fail for not being in the better one.
                in_worse = np.isin(self.hosts, self.divided.worse if self.divided else ())[some]
                bad = (judged["words"] == FAIL) | in_worse
                by_worse = _test(samples, better, self.worse, number, exact=exact)
                of_group = bad & (by_worse["words"] != FAIL)
                judged["words"][of_group], judged["more"][of_group] = SUSPECT, 0
            elif number == FLEET and self.level is not None and self.level.unusual < self.level.limit:
                self._judge_unusual(judged, samples, reference, self.level)
            if number == FLEET and self.worse is None and self.divided is not None:
                hidden = np.isin(self.hosts, self.divided.worse)[some] & (judged["words"] == PASS)
                judged["words"][hidden], judged["more"][hidden] = SUSPECT, 0
                if not hidden.any():  # a fault of each is likelier than another kind of hosts
                    self.divided = None
            verdicts[some] = judged
            self._add_older(verdicts, now, reference)
            if number == FLEET:
                self._forgive_updates(verdicts, now, reference)
        return verdicts, now

    def _forgive_updates(self, verdicts: Verdicts, now: Bools, reference: Reference) -> None:
        """Compare hosts last measured before an update with what the fleet reached then, unless that is worse.

        A host that was bad before the update stays bad.
        """
        for group in np.flatnonzero((self._updates_since != 0) & (verdicts["words"] > PASS)).tolist():
            rows = self.samples.rows(group)
            values = self.samples.values[rows][now[rows]]
            if not len(values):
                continue
            change = self._updates_since[group]
            since = f"before a change of {percent(abs(change))} that most hosts have made since"
            before = replace(
                reference, value=reference.value * math.exp(-change), source=f"{reference.source}, {since}"
            )
            of_host = Groups(values, np.array([len(values)]))
            verdict = _test(of_host, self.case.better, before, FLEET, exact=self.case.exact)[0]
            if verdict["words"] <= verdicts["words"][group]:
                verdicts[group] = verdict
                self.own_references[group] = before

    def _add_older(self, verdicts: Verdicts, now: Bools, reference: Reference) -> None:
        """Add the sessions before a change that are evidence against a host, too: its bad level may have moved.

        The repetitions since the change must speak against the host by themselves.
        """
        newest, _, some, _ = self._stretches
        if newest is None or reference.error is None or self.case.exact:
            return
        groups = np.flatnonzero(some)[newest.before > 0]
        evidence = verdicts["evidence"][groups]
        is_open = (evidence >= sprt.CHANGED) & (evidence < sprt.FAIL_AT) & (verdicts["words"][groups] != INVALID)
        undisturbed = self._undisturbed(reference)
        groups = groups[is_open]
        for places, rows in self._blocks(groups):
            which = groups[places]
            counted = undisturbed[rows] & (self.session[rows] >= self.firsts[which, None])
            sides = _evidence_by_side(self.samples.values[rows], self.case.better, reference)
            begin, sums = _strongest(sides, counted, self.session[rows])
            strongest = sums[np.arange(len(rows)), begin]
            counted &= np.arange(rows.shape[1]) >= begin[:, None]
            is_more = strongest > verdicts["evidence"][which]
            judged = verdicts[which]
            _decide(judged, strongest, counted.sum(axis=1), _widest(reference), reference.error)
            verdicts[which[is_more]] = judged[is_more]
            now[rows[is_more]] = counted[is_more]

    def _blocks(self, groups: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Yield the places of those of *groups* that have the same number of repetitions, and the rows of each."""
        counts, begins = self.samples.counts[groups], self.samples.begins[groups]
        for size in np.unique(counts).tolist():
            places = np.flatnonzero(counts == size)
            yield places, begins[places, None] + np.arange(size)

    def _judge_unusual(self, judged: Verdicts, samples: Groups, reference: Reference, reached: Level) -> None:
        """Make hosts suspect that are surely beyond what most good hosts differ by, and short of a fail.

        Nature may hide what they have lost. As long as repetitions are few, it is open whether a host is unusual,
        and where chance hides a loss, a host that is worse than the loss to detect does not pass.
        """
        limits = [reached.unusual]
        if reached.more_repetitions:
            limits.append(min(reached.unusual, max(LOSS, _UNUSUAL * reached.spread)))
        for limit in limits:
            narrow = replace(reference, lower=-limit, upper=limit)
            sides = _evidence_by_side(samples.values, self.case.better, narrow)
            evidence = np.maximum.reduce([samples.sums(side) for side in sides])
            verdicts = verdict_rows(len(samples), PASS, FLEET)
            _decide(verdicts, evidence, samples.counts, _widest(narrow), narrow.error or 0.0)
            is_open = (verdicts["words"] >= UNDECIDED) & (judged["words"] == PASS)
            if limit == reached.unusual:
                surely = (verdicts["words"] == FAIL) & (judged["words"] < FAIL)
                verdicts["words"][surely] = SUSPECT
                is_open |= surely
            else:
                verdicts["words"][is_open] = UNDECIDED
                verdicts["more"][is_open] = min(reached.more_repetitions, MOST_COUNTED)
            judged[is_open] = verdicts[is_open]

    def intermittent(self, words: NDArray[np.uint8]) -> dict[int, str]:
        """Return how often hosts were bad that are good most of the time, by the number of the group.

        Good hosts are bad now and then, too, when something disturbs them. A host is intermittent if it is bad in
        more repetitions than its siblings' rate explains (Chernoff's bound of the binomial tail), several times
        with good sessions in between, and lately.
        """
        newest = self._stretches[0]
        if self.fleet is None or self.fleet.error is None or newest is None or not newest.sessions.several.any():
            return {}
        limit = -(self.fleet.lower or 0.0)
        valid = self.may_use if self.busy is None else self.may_use & (self.busy < BUSY)
        valid = valid & (self.session >= np.repeat(self.firsts, self.samples.counts))
        # Bad for the fleet and for the host: some good hosts are always nearer to the limit than others.
        is_bad = out_of_limits(self.samples.values, self.case.better, self.fleet)[0] & valid
        if not ((self.samples.sums(is_bad.astype(np.int64)) >= _FEWEST_BAD_RUNS) & (words < SUSPECT)).any():
            return {}
        medians = np.repeat(self.samples.medians, self.samples.counts)
        narrow = replace(self.fleet, value=1.0)
        is_bad &= out_of_limits(
            self.samples.values / np.where(medians > 0, medians, 1.0), self.case.better, narrow
        )[0]
        bad, total = (self.samples.sums(rows.astype(np.int64)) for rows in (is_bad, valid))
        candidates = np.flatnonzero((bad >= _FEWEST_BAD_RUNS) & (words < SUSPECT) & (2 * bad < total))
        if not len(candidates):
            return {}
        rates, texts = bad / np.maximum(total, 1), {}
        # A quarter of the hosts may be intermittent, too.
        usual = rates <= np.quantile(rates, 0.75)
        tail = fleet_level.SUSPECT_TAIL / self.metrics
        for group in candidates.tolist():
            # One bad repetition more, so that siblings without any are not taken for perfect.
            siblings = usual & (np.arange(len(bad)) != group)
            others = (float(bad[siblings].sum()) + 1) / (float(total[siblings].sum()) + 1)
            if binomial_tail(bad[group], total[group], np.array(others)) > tail:
                continue
            rows = self.samples.rows(group)
            session = self.session[rows][valid[rows]]
            starts = np.flatnonzero(np.diff(session, prepend=-1))
            bad_sessions = np.logical_or.reduceat(is_bad[rows][valid[rows]], starts)
            runs = int(np.count_nonzero(np.diff(is_bad[rows][valid[rows]].astype(np.int64), prepend=0) == 1))
            places = np.flatnonzero(bad_sessions)
            if len(places) < _FEWEST_BAD_RUNS:
                continue
            share = (len(places) - 1) / max(int(places[-1] - places[0]), 1)
            values = self.samples.values[rows][valid[rows]]
            span = slice(int(starts[places[0]]), int(starts[places[-1]]) + 1)
            between = values[span][~is_bad[rows][valid[rows]][span]]
            if not len(between) or abs(float(np.median(between)) / self.fleet.value - 1) > limit / 2:
                continue  # it was not good in between
            is_repaired = (1 - share) ** (len(bad_sessions) - 1 - int(places[-1])) < _REPAIRED
            if runs >= _FEWEST_BAD_RUNS and not is_repaired:
                losses = np.abs(self.samples.values[rows][is_bad[rows]] / self.fleet.value - 1)
                texts[group] = (
                    f"intermittent: {int(bad[group])} of {int(total[group])} repetitions are "
                    f"{percent_range(losses.min(), losses.max())} worse than the fleet, "
                    f"in {len(places)} of {len(bad_sessions)} sessions"
                )
        return texts

    def _judge_by_own_levels(self, verdicts: Verdicts, now: Bools) -> None:
        """Let hosts that changed be judged by their best stable period, too."""
        newest, current, some, calm = self._stretches
        if newest is None or self.case.better == "neither":
            return
        sign = -1.0 if self.case.better == "lower" else 1.0
        numbers = np.flatnonzero(some)
        places = newest.may_be_worse(LOSS / 2, sign)
        places = places[self.may_judge[numbers[places]]]
        if not len(places):
            return
        groups, tail = numbers[places], fleet_level.TAIL / self.metrics
        levels = newest.own_levels(places, lower_is_better=sign < 0)
        # A host that was like this before, and is not bad, is back at one of its levels.
        least = np.maximum(np.where(levels.has_returned, LOSS, LOSS / 2), self._least)
        limits = np.maximum(least, student_quantiles(tail, levels.freedom) * levels.uncertainty)
        errors = np.maximum(levels.error, newest.errors.repetition)
        commons = np.zeros(len(groups))
        last_rows = np.flatnonzero(calm)[levels.last_row]
        reached = _Reached(levels.value, limits, errors, levels.uncertainty, levels.freedom)
        judged, counted = self._by_own_levels(groups, last_rows, current, reached)
        candidates = np.flatnonzero(judged["words"] > verdicts["words"][groups])
        changes = newest.sibling_changes(levels, candidates, sign)
        changed_together = candidates[[of_siblings is not None for of_siblings in changes]]
        if len(changed_together):
            of_siblings = [
                (c.limit(tail), min(0.0, c.spread.centre * sign) * sign, c.spread.deviation) for c in changes if c
            ]
            widened, commons[changed_together], natural = np.array(of_siblings).T
            limits[changed_together] = np.maximum(limits[changed_together], widened)
            reached = _Reached(
                levels.value[changed_together] * np.exp(commons[changed_together]),
                limits[changed_together],
                errors[changed_together],
                np.hypot(levels.uncertainty[changed_together], natural),
                levels.freedom[changed_together],
            )
            judged[changed_together], again = self._by_own_levels(
                groups[changed_together], last_rows[changed_together], current, reached
            )
            rows = self._rows_of(groups[changed_together])
            counted[rows] = again[rows]
        worse = candidates[judged["words"][candidates] > verdicts["words"][groups[candidates]]]
        verdicts[groups[worse]] = judged[worse]
        rows = self._rows_of(groups[worse])
        now[rows] = counted[rows]
        for place in worse.tolist():
            value, limit = levels.value[place] * math.exp(commons[place]), float(limits[place])
            period = self._period(levels, place)
            if abs(commons[place]) >= _COMMON:
                period += f" less {percent(abs(commons[place]))} that most hosts have lost since"
            reference = self._reference(float(value), limit, period, float(errors[place]))
            is_lower = self.case.better == "lower"
            reference = replace(reference, lower=None if is_lower else -limit, upper=limit if is_lower else None)
            self.own_references[int(groups[place])] = reference

    def _rows_of(self, groups: Ints) -> Bools:
        """Return which rows are of *groups*."""
        chosen = np.zeros(len(self.samples), dtype=np.bool_)
        chosen[groups] = True
        return np.repeat(chosen, self.samples.counts)

    def _by_own_levels(
        self, groups: Ints, last_rows: Ints, current: Bools, reached: _Reached
    ) -> tuple[Verdicts, Bools]:
        """Return the verdicts of own levels on *groups*, and which rows of these count.

        *last_rows* are those of the stable periods, *current* marks the rows since the last change. A host that is
        bad now was so for the newest sessions that are most evidence together, whether its bad level changed or
        not.
        """
        sign = -1.0 if self.case.better == "lower" else 1.0
        verdicts, used = verdict_rows(len(groups), PASS, OWN), np.zeros(len(current), dtype=np.bool_)
        for which, rows in self._blocks(groups):
            level = reached.part(which)
            value, limit, error = level.value[:, None], level.limit[:, None], level.error[:, None]
            samples, session = self.samples.values[rows], self.session[rows]
            counted = self.valid[rows] & (rows > last_rows[which, None])
            if self.busy is not None:
                bad = sign * samples < sign * value * (1 - sign * limit)
                counted &= ~(bad & (self.busy[rows] >= BUSY))
            newest = counted & current[rows]
            side = sprt.weights(-sign * (samples / value - 1), limit, error)
            # Sessions are independent of each other, and repetitions of one are not.
            side[_firsts(counted, session) & (side > 0)] *= sprt.FEWEST_TO_FAIL / sprt.FEWEST_SESSIONS_TO_FAIL
            is_bad = np.where(newest, side, 0.0).sum(axis=1) > 0
            strongest, sums = _strongest([side], counted, session)
            begin = np.where(is_bad, strongest, np.argmax(newest, axis=1))
            counted &= np.arange(rows.shape[1]) >= begin[:, None]
            evidence = sums[np.arange(len(which)), begin]
            against = np.flatnonzero(evidence > 0)
            losses = np.where(counted, -sign * np.log(samples / value), np.nan)[against]
            sessions, possible = (
                _firsts(each, session)[against].sum(axis=1) for each in (counted, self.valid[rows])
            )
            tail = fleet_level.TAIL / self.metrics
            bounds = level.part(against).evidence_bounds(losses, sessions, possible, tail)
            evidence[against] = np.minimum(evidence[against], bounds)
            judged = verdict_rows(len(which), PASS, OWN)
            _decide(judged, evidence, counted.sum(axis=1), limit[:, 0], error[:, 0])
            # The newest session decides.
            decides = (newest & (session == session[:, -1:])).any(axis=1)
            verdicts[which[decides]], used[rows] = judged[decides], counted
        return verdicts, used

    @staticmethod
    def _period(levels: host_level.OwnLevels, place: int) -> str:
        """Return an own level in words: ``own level of 3 to 21 October 2025, 19 sessions``."""
        times = (levels.first_time[place], levels.last_time[place])
        first, last = (datetime.fromtimestamp(int(time) / 1000, UTC) for time in times)
        begin = f"{first.day} {first:%B}" if first.year == last.year else f"{first.day} {first:%B %Y}"
        if first.year == last.year and first.month == last.month:
            begin = f"{first.day}"
        return f"own level of {begin} to {last.day} {last:%B %Y}, {levels.sessions[place]} sessions"
