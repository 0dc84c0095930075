# SPDX-License-Identifier: Apache-2.0
"""When parts of hosts changed and by how much, and which hosts fail again and again.

The sessions of each part are divided into stretches by the change detector of verdicts
(:func:`firsttouch.judge.levels.stretches`): the newest change first, then those of the sessions before it. A
change needs three sessions on both sides, so one or two disturbed sessions are not a change. Chance makes any of
the listed changes with a probability of at most :data:`firsttouch.judge.constants.CHANGE_TAIL`. Hosts that change
together are one change, as in a verdict (:func:`firsttouch.judge.questions.updates`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import pairwise, takewhile
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from firsttouch.documents import attributes
from firsttouch.judge import drift, levels, questions
from firsttouch.judge.constants import CHANGE_TAIL, LEAST_LOSS, PRIOR_FREEDOM, STABLE_SESSIONS
from firsttouch.judge.drift import Configuration
from firsttouch.judge.findings import Findings
from firsttouch.judge.groups import Bools, Floats, Groups, Ints
from firsttouch.judge.levels import CaseLosses, Sessions, Stretches
from firsttouch.judge.parts import Series
from firsttouch.judge.samples_table import SamplesTable
from firsttouch.judge.statistics import chance_of_change
from firsttouch.judge.verdict_log import Logged
from firsttouch.records.cases import Case
from firsttouch.records.schema import GAP
from firsttouch.units import day, iso

#: The fewest sessions on each side of a change. On a side with up to twice as many, all of them must show it.
FEWEST_SESSIONS = 3
#: A change that is undone before so many sessions was a disturbance.
_LASTING = 2 * FEWEST_SESSIONS - 1
#: Smaller changes are not listed: no error is known so well.
_LEAST = LEAST_LOSS / 5
#: Settings that are named, and hosts of an update that are looked at to name them.
_NAMED, _LOOKED_AT = 3, 200
#: The fewest verdicts in a row by which a host stays undecided or suspect.
FEWEST_OPEN = 4
_CaseOf = Callable[[int], CaseLosses]


class Change(Struct, frozen=True):
    """A change of one *part* (with its kind of metrics) of *hosts*: of more than one if they changed together.

    It happened after one session and before a later one: *after*, *before* (ms since 1970). *change* is relative,
    *levels* are the values of *case*, which shows the part, before and after. *strength* is the change in standard
    deviations. *others* are the parts that changed at the same time in the same direction. *of* counts the hosts
    that have the part. *causes* are changes of configuration shortly before, as text.
    """

    part: str
    case: Case
    hosts: Sequence[str]
    of: int
    after: int
    before: int
    change: float
    levels: tuple[float, float]
    worse: bool
    strength: float
    others: Sequence[str] = ()
    causes: Sequence[str] = ()

    @property
    def when(self) -> str:
        """The days (UTC) between which it happened, or the day."""
        first, last = day(self.after), day(self.before)
        return last if first == last else f"{first} to {last}"

    @property
    def who(self) -> str:
        """The host, or the number of hosts."""
        return self.hosts[0] if len(self.hosts) == 1 else f"{len(self.hosts)} of {self.of} hosts"

    @property
    def parts(self) -> str:
        """The part, and how many others changed with it."""
        return self.part + (f" and {len(self.others)} more" if self.others else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the change as JSON."""
        return {
            "system": self.case.system,
            **attributes(self, "part", "of", "change", "worse"),
            **{name: list(getattr(self, name)) for name in ("hosts", "levels", "others", "causes")},
            **{"case": self.case.name, "unit": self.case.unit},
            **{"after": iso(self.after), "before": iso(self.before)},
        }


# ----------------------------------------------------------------------
# The changes of each part


def changes(
    findings: Findings, configurations: Mapping[str, Sequence[Configuration]] | None = None
) -> list[Change]:
    """Return the changes of the parts of all hosts: those of many hosts first, then the newest first.

    *configurations* are those of each host, oldest first (:func:`firsttouch.judge.drift.sequences`).
    """
    fleet, samples = findings.fleet, findings.samples
    if fleet is None or np.bincount(fleet.sessions.host, minlength=1).max() < 2 * FEWEST_SESSIONS:
        return []
    listed: list[Change] = []
    for judged in fleet.series:
        if all(samples.cases[number].better == "neither" for number in judged.series.cases):
            continue
        case_of = cache(partial(levels.case_losses, samples, fleet.sessions))
        tests, least = len(fleet.series) * len(samples.hosts), max(_LEAST, judged.step)
        steps = _Steps.detect(judged.loss, fleet.sessions, tests, least)
        if steps is not None:
            listed += steps.changes(samples, judged.series, case_of)
    listed = sorted(_together(listed), key=lambda c: (len(c.hosts) == 1, -c.before, -abs(c.change)))
    return [replace(c, causes=_causes(c, configurations)) for c in listed] if configurations else listed


class _Steps(Struct, frozen=True):
    """The changes of a series by *host* and time, between the sessions *last* and *middle*.

    The level was the same from the session *begin* until *last*, and is *level* from *middle* until before *end*.
    *size* is the loss of each change, *strength* this loss in standard deviations, and *is_sure* whether chance
    does not even explain it in one of all series. *newest* are the present stretches, *of* counts the hosts that
    have the part.
    """

    sessions: Sessions
    host: Ints
    begin: Ints
    last: Ints
    middle: Ints
    end: Ints
    level: Floats
    size: Floats
    strength: Floats
    is_sure: Bools
    newest: Stretches
    of: int

    @classmethod
    def detect(cls, loss: Floats, sessions: Sessions, tests: int, least: float) -> _Steps | None:
        """Return the changes of a series with some losses; None if it was not measured in two sessions."""
        pooled, noise, freedom = levels.session_noise(loss, sessions)
        if np.isnan(pooled):
            return None
        freedom = max(freedom, PRIOR_FREEDOM)
        is_begin, earlier = np.zeros(len(loss), dtype=np.bool_), loss
        newest: Stretches | None = None
        while True:
            timeline = levels.stretches(earlier, sessions, noise, freedom, FEWEST_SESSIONS, STABLE_SESSIONS)
            newest = newest or timeline
            if not (timeline.before >= 0).any():
                break
            is_begin[timeline.begin[timeline.before >= 0]] = True
            before = np.where(timeline.before >= 0, timeline.begin, 0)
            earlier = np.where(np.arange(len(loss)) < before[sessions.host], earlier, np.nan)
        measured = np.flatnonzero(np.isfinite(loss) & sessions.current)
        host, values = sessions.host[measured], loss[measured]
        is_first = np.diff(host, prepend=-1) != 0
        is_start = is_first | is_begin[measured]
        while True:
            starts = np.flatnonzero(is_start)
            sizes, of_host = np.diff(starts, append=len(measured)), host[starts]
            level = Groups(values, sizes).medians
            short = (of_host[:-2] == of_host[2:]) & (sizes[1:-1] < _LASTING)
            is_back = np.abs(level[2:] - level[:-2]) < np.abs(level[1:-1] - level[:-2]) / 2
            undone = np.flatnonzero(short & is_back) + 1
            if not len(undone):
                break
            undone = undone[np.diff(undone, prepend=-1) > 1]
            is_start[starts[undone]] = is_start[starts[undone + 1]] = False
        place = np.flatnonzero(np.diff(of_host) == 0) + 1
        size = level[place] - level[place - 1]
        deviation = noise[of_host[place]] * np.sqrt(1 / sizes[place] + 1 / sizes[place - 1])
        strength = np.abs(size) / deviation
        degrees = np.full(len(place), freedom)
        chance = chance_of_change(strength, degrees, sizes[place] + sizes[place - 1])
        kept = (chance <= CHANGE_TAIL) & (np.abs(size) >= least)
        for side in (place, place - 1):
            middle = np.full(len(starts), np.nan)
            middle[side] = (level[place] + level[place - 1]) / 2
            toward = np.zeros(len(starts))
            toward[side] = np.sign(level[side] - middle[side])
            shows = (values - np.repeat(middle, sizes)) * np.repeat(toward, sizes) > 0
            count = np.add.reduceat(shows.astype(np.int64), starts)[side]
            kept &= count >= np.where(sizes[side] <= 2 * FEWEST_SESSIONS, sizes[side], 0.75 * sizes[side])
        place = place[kept]
        begin, end = measured[starts], measured[starts + sizes - 1]
        return cls(
            *(sessions, of_host[place], begin[place - 1], end[place - 1], begin[place], end[place] + 1),
            *(level[place], size[kept], strength[kept], chance[kept] * tests <= CHANGE_TAIL, newest),
            int(np.count_nonzero(is_first)),
        )

    def changes(self, samples: SamplesTable, part: Series, case_of: _CaseOf) -> Iterator[Change]:
        """Yield the changes, one for all hosts that changed together."""
        free = np.ones(len(self.host), dtype=np.bool_)
        for chosen in self._updates(free):
            free[chosen] = False
            yield from self._change(samples, part, case_of, chosen)
        for number in np.flatnonzero(free & self.is_sure).tolist():
            yield from self._change(samples, part, case_of, np.array([number]))

    def _updates(self, free: Bools) -> Iterator[Ints]:
        """Yield the numbers of the changes that hosts have together, of those that are still *free*."""
        numbers = np.arange(len(self.host))
        time, interval = self.sessions.time[self.middle], self.sessions.interval
        counts = np.bincount(self.host, minlength=self.sessions.hosts)
        # The newest change of each host, then the one before it.
        back = np.cumsum(counts)[self.host] - 1 - numbers
        for turn in range(int(back.max(initial=-1)) + 1):
            of_turn = numbers[(back == turn) & free]
            size, begin, level = np.full(len(counts), np.nan), self.newest.begin.copy(), self.newest.level.copy()
            size[self.host[of_turn]], begin[self.host[of_turn]] = self.size[of_turn], self.middle[of_turn]
            level[self.host[of_turn]] = self.level[of_turn]
            timeline = replace(self.newest, begin=begin, level=level)
            for update in questions.updates(timeline, self.sessions, size):
                first, last = self.sessions.time[[update.begin, update.end]]
                near = free & (time >= first - interval) & (time <= last + interval)
                # A host that changed by far more has a change of its own.
                ratio = self.size / update.change
                yield numbers[near & (ratio > 0) & (ratio < 2)]

    def _change(self, samples: SamplesTable, part: Series, case_of: _CaseOf, chosen: Ints) -> Iterator[Change]:
        """Yield the change with some numbers; none if no case was measured before and after it."""
        looked_at, time = chosen[:_LOOKED_AT].tolist(), self.sessions.time
        size = float(np.median(self.size[chosen]))
        shown: tuple[float, Case, tuple[float, float]] | None = None
        for number in part.cases:
            of_case, case = case_of(number), samples.cases[number]
            sign = case.loss_sign
            values = []
            for begin, end in ((self.begin, self.last + 1), (self.middle, self.end)):
                ends = [np.searchsorted(of_case.session, (begin[n], end[n])).tolist() for n in looked_at]
                medians = [np.median(of_case.loss[first:last]) for first, last in ends if first < last]
                values += [float(np.exp(sign * np.median(medians)))] if medians else []
            if len(values) == 2:
                # The case that changed most like the part shows it.
                away = abs(sign * float(np.log(values[1] / values[0])) - size)
                if shown is None or away < shown[0]:
                    shown = away, case, (values[0], values[1])
        if shown is not None:
            yield Change(
                part=part.title,
                case=shown[1],
                hosts=tuple(sorted(samples.hosts[h] for h in np.unique(self.host[chosen]).tolist())),
                of=self.of,
                after=int(time[self.last[chosen]].min()),
                before=int(time[self.middle[chosen]].max()),
                change=float(np.expm1(shown[1].loss_sign * size)),
                levels=shown[2],
                worse=size > 0,
                strength=float(np.median(self.strength[chosen])) * len(chosen) ** 0.5,
            )


def _together(listed: Iterable[Change]) -> list[Change]:
    """Return one change, the surest, for all parts that changed on the same hosts, at the same time and alike.

    What a single host changed by less than an update that includes it belongs to the update.
    """
    events: dict[tuple[str, bool], list[tuple[Change, list[str]]]] = {}
    for change in sorted(listed, key=lambda c: (len(c.hosts) == 1, -c.strength)):
        hosts = {*change.hosts}
        of_hosts = events.setdefault((change.hosts[0] if len(hosts) == 1 else "", change.worse), [])
        of_updates = events.get(("", change.worse), []) if len(hosts) == 1 else []
        for first, others in (*of_hosts, *of_updates):
            common, most = len(hosts.intersection(first.hosts)), max(len(hosts), len(first.hosts))
            is_within = common == len(hosts) and abs(change.change) < abs(first.change)
            is_at_once = change.after <= first.before and first.after <= change.before
            if is_at_once and (2 * common >= most or is_within):
                others.append(change.part)
                break
        else:
            of_hosts.append((change, []))
    return [
        replace(first, others=tuple(dict.fromkeys(p for p in others if p != first.part)))
        for of_hosts in events.values()
        for first, others in of_hosts
    ]


def _causes(change: Change, configurations: Mapping[str, Sequence[Configuration]]) -> tuple[str, ...]:
    """Return the settings that changed at the same time, on most hosts of an update."""
    hosts = [host for host in change.hosts if host in configurations][:_LOOKED_AT]
    counts: Counter[str] = Counter()
    for host in hosts:
        # A new configuration is recorded in the first session that has it.
        for old, new in pairwise(configurations[host]):
            if change.after < new.time <= change.before + GAP:
                apart = drift.differences(host, old, host, new)
                counts.update(f"{name} {a} -> {b}" for name, (a, b) in apart.items())
    common = [text for text, count in sorted(counts.items()) if 2 * count > len(hosts)]
    more = [f"{len(common) - _NAMED} more settings"] if len(common) > _NAMED else []
    return (*common[:_NAMED], *more)


# ----------------------------------------------------------------------
# Hosts that fail again and again


class Offender(Struct, frozen=True):
    """A *host* of a *system* that failed again after it had passed, or that stays undecided or suspect.

    *fails* counts the times that it began to fail, *open_verdicts* the newest verdicts in a row that are undecided
    or suspect for the same part (0: fewer than :data:`FEWEST_OPEN`), out of all *verdicts*. *first* and *last*
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


def repeat_offenders(logs: Mapping[str, Sequence[Logged]]) -> list[Offender]:
    """Return the hosts that failed, passed, and failed again, and those that stay undecided or suspect.

    The most frequent are first; *logs* are by host.
    """
    offenders = []
    for host, lines in logs.items():
        decided = [line for line in lines if line.verdict in {"pass", "fail"}]
        fails = [line for line in decided if line.verdict == "fail"]
        words = ["pass", *(line.verdict for line in decided)]
        begins = sum(pair == ("pass", "fail") for pair in pairwise(words))
        newest = list(takewhile(lambda line: line.verdict in {"undecided", "suspect"}, reversed(lines)))
        newest = [line for line in newest if _subject(line) == _subject(newest[0])]
        still_open = newest[::-1] if len(newest) >= FEWEST_OPEN else []
        if counted := still_open or (fails if begins > 1 else []):
            figures = (begins if begins > 1 else 0, len(still_open), len(lines), counted[0].time, counted[-1].time)
            offenders.append(Offender(host, counted[-1].system, *figures, counted[-1].reason, lines[-1].verdict))
    return sorted(offenders, key=lambda o: (-o.fails, -o.open_verdicts, -o.last, o.host))


def _subject(line: Logged) -> str:
    """Return the part or metric of a reason: ``undecided: PART: why``."""
    return ": ".join(line.reason.split(": ")[1:2])
