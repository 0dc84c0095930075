# SPDX-License-Identifier: Apache-2.0
"""Judges samples by a system's references and by the fleet, all hosts of a metric at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from firsttouch.benchmarks.kernel_settings import BUSY
from firsttouch.judge import samples_table, sprt
from firsttouch.judge.causes import Signs, causes
from firsttouch.judge.fleet_level import FEWEST_HOSTS, Divided, divided, level
from firsttouch.judge.samples_table import Case, SamplesTable
from firsttouch.judge.sprt import Bools, Floats, Groups, Ints
from firsttouch.judge.verdict import ORDER, Finding, HostVerdict, Word, compared, natural
from firsttouch.records.schema import Better, Record
from firsttouch.systems.facts import Facts
from firsttouch.systems.references import Reference

# ----------------------------------------------------------------------
# What a reference says of passes: better direction, and never by a single noisy pass.
#
# A verdict is about now. The passes of the newest session decide; older sessions add their evidence as long as
# nothing changed between them (:func:`newest`). Better than the tolerance is never a fail, but something is
# wrong with the measurement or with the reference.

#: Words as numbers, from good to bad.
PASS, SUSPECT, INVALID, FAIL = range(len(ORDER))
#: More repetitions than these are not counted.
_MANY = 999


@dataclass(frozen=True)
class Said:
    """What a reference says of groups of passes, oldest first.

    *words* are numbers, *evidence* is NaN where no error of a pass is known. *newest* is how many of the newest
    passes of each group the verdict rests on, *more* how many further repetitions decide a suspect one (0: none
    would).
    """

    words: NDArray[np.uint8]
    evidence: Floats
    newest: Ints
    more: Ints


def say(passes: Groups, new: Bools, better: Better, reference: Reference, *, exact: bool) -> Said:
    """Return what *reference* says of each group; *new* marks passes that begin a session.

    An *exact* value is read and not measured: the last one decides. Of others the passes since the last change
    decide. Where no error of a pass is known, they are counted: outside in at least two passes and in all of them
    is a fail, outside in less than half of them a pass, anything between is suspect.
    """
    bad, good = outside(passes.values, better, reference)
    sides = [] if exact else weights(passes.values, better, reference)
    if exact:
        kept = np.ones_like(passes.counts)
    elif sides:
        kept, evidence = _heavier(passes, new, sides)
    else:
        kept = newest(Groups(np.where(bad, 1.0, -1.0), passes.counts), new, 1.0)
    recent = last(passes, kept)
    passes = Groups(passes.values[recent], kept)
    counted = passes.sums(bad[recent].astype(np.int64))
    words = np.full(len(passes), PASS, dtype=np.uint8)
    more = np.zeros(len(passes), dtype=np.int64)
    if exact:
        words[counted > 0] = FAIL
    elif sides:
        words[evidence > 0] = SUSPECT
        words[evidence >= sprt.FAIL_AT] = FAIL
        more = repetitions(evidence, kept)
    else:
        words[2 * counted >= kept] = SUSPECT
        words[(counted == kept) & (counted > 1)] = FAIL
        more = np.where(kept == 1, 1, 2 * counted - kept + 1)
    more[words != SUSPECT] = 0
    if reference.line and good.any():
        mostly = 2 * passes.sums(good[recent].astype(np.int64)) >= kept
        words[mostly & (words == PASS)] = SUSPECT
    return Said(words, evidence if sides else np.full(len(passes), np.nan), kept, more)


def _heavier(passes: Groups, new: Bools, sides: Sequence[Floats]) -> tuple[Ints, Floats]:
    """Return how many passes count, and their evidence, of the side (each as weights) that speaks more against."""
    kept, evidence = np.zeros_like(passes.counts), np.full(len(passes), -np.inf)
    for side in sides:
        mine = newest(Groups(side, passes.counts), new, sprt.CHANGED)
        chosen = last(passes, mine)
        total = Groups(side[chosen], mine).sums(side[chosen])
        heavier = total > evidence
        kept[heavier], evidence[heavier] = mine[heavier], total[heavier]
    return kept, evidence


def outside(values: Floats, better: Better, reference: Reference) -> tuple[Bools, Bools]:
    """Return which values are worse than *reference* allows, and which are better than it allows."""
    low, high = _beyond(values, reference)
    return {"higher": (low, high), "lower": (high, low)}.get(better, (low | high, np.zeros_like(low)))


def weights(values: Floats, better: Better, reference: Reference) -> list[Floats]:
    """Return the evidence of each value, for each side that may be worse; none where a pass's error is unknown."""
    if reference.error is None:
        return []
    changes = values / reference.value - 1
    sides = []
    if better != "lower" and reference.lower:
        sides.append(sprt.weights(-changes, -reference.lower, reference.error))
    if better != "higher" and reference.upper:
        sides.append(sprt.weights(changes, reference.upper, reference.error))
    return sides


def newest(evidence: Groups, new: Bools, least: float) -> Ints:
    """Return how many of the newest passes of each group count: those since the last change.

    The *evidence* of a group's passes is oldest first, *new* marks those that begin a session. A host changed
    before a session where the passes from there on speak for one side and those before for the other, with *least*
    each. The clearest such place cuts the older passes off, and the rest is looked at again.

    Over any number of sessions, the evidence that speaks wrongly against a good host reaches *e* with a
    probability of exp(-e) at most (J. Ville, Etude critique de la notion de collectif, 1939), so a long history
    blames no more good hosts than a single campaign.
    """
    found = evidence.counts.copy()
    several = evidence.sums(new.astype(np.int64)) > 0
    if not several.any():
        return found
    chosen = evidence.chosen(several)
    breaks = Groups(new[np.repeat(several, evidence.counts)].astype(float), chosen.counts)
    kept = chosen.counts.copy()
    for (which, rows), (_, marks) in zip(chosen.blocks(), breaks.blocks(), strict=True):
        after = np.cumsum(rows[:, ::-1], axis=1)[:, ::-1]
        begin = np.zeros(len(rows), dtype=np.int64)
        columns, every = np.arange(rows.shape[1]), np.arange(len(rows))
        while True:
            before = after[every, begin][:, None] - after
            clear = np.round(np.minimum(np.abs(after), np.abs(before)), 9)
            clear[(marks == 0) | (columns <= begin[:, None]) | (after * before >= 0)] = 0
            # The newest of equally clear ones.
            place = rows.shape[1] - 1 - np.argmax(clear[:, ::-1], axis=1)
            changed = clear[every, place] >= least
            if not changed.any():
                break
            begin[changed] = place[changed]
        kept[which] = rows.shape[1] - begin
    found[several] = kept
    return found


def last(passes: Groups, kept: Ints) -> Bools:
    """Return which passes are among the last ones of their group, *kept* of each."""
    if (kept == passes.counts).all():
        return np.ones(len(passes.values), dtype=np.bool_)
    place = np.arange(len(passes.values)) - np.repeat(passes.begins, passes.counts)
    return place >= np.repeat(passes.counts - kept, passes.counts)


def repetitions(evidence: Floats, counts: Ints) -> Ints:
    """Return how many more repetitions like these (*counts* so far) make a fail of *evidence* above 0."""
    positive = np.maximum(evidence, 1e-9)
    more = np.ceil(counts * (sprt.FAIL_AT - evidence) / positive)
    return np.clip(more, 1, _MANY).astype(np.int64)


def _beyond(values: Floats, reference: Reference) -> tuple[Bools, Bools]:
    minimum, maximum = reference.minimum, reference.maximum
    none = np.zeros(len(values), dtype=np.bool_)
    return none if minimum is None else values < minimum, none if maximum is None else values > maximum


def reason_for(
    values: Sequence[float], better: Better, reference: Reference, word: Word, *, evidence: float | None, more: int
) -> str:
    """Return the evidence of a verdict as a text; *word*, *evidence* and *more* are what :func:`say` says."""
    minimum, maximum = reference.minimum, reference.maximum
    limits = [f"at least {minimum:.4g}"] if minimum is not None else []
    limits += [f"at most {maximum:.4g}"] if maximum is not None else []
    text = compared(values, reference, f"{' and '.join(limits) or 'any value'}; {reference.source}")
    if evidence is not None:
        text += f"; {sprt.certainty_text(evidence)}"
        fine = evidence <= 0
    else:
        low = sum(minimum is not None and v < minimum for v in values)
        high = sum(maximum is not None and v > maximum for v in values)
        bad = {"higher": low, "lower": high, "neither": low + high}[better]
        fine = 2 * bad < len(values)
        if not fine and word == "suspect":
            text += f"; outside in {bad} of {len(values)} repetitions"
    if fine and word == "suspect":
        text += "; better than it can be: a wrong measurement or reference"
    if more:
        text += f"; {again(more)}"
    return text


def again(more: int) -> str:
    """Return how many more repetitions decide, as a text."""
    count = f"over {_MANY - 1}" if more >= _MANY else str(more)
    return f"{count} more {'repetition decides' if more == 1 else 'repetitions decide'}"


# ----------------------------------------------------------------------
# Judges passes by a system's references and by the fleet, all hosts of a metric at once.
#
# Where the error of a pass is known, the verdict says how sure it is. What a verdict rests on is told of the
# hosts that are asked for, so that a large fleet costs no more than its columns.

#: A metric is measured this often before it stays as it is, and this often where its error is known and one more
#: pass makes the verdict surer.
_MOST_TOLD = 3
MOST_PASSES = 12
_NO_REFERENCE, _NO_PLACEMENT = "no reference", "its placement did not hold"
_TWO = "nothing tells which group is right: `firsttouch baseline --hosts` learns from one of them"
_OF_TWO = "; the host is of the worse one of two groups of hosts"
_DISTURBED = "disturbed: {busy:.2g} PUs were busy with something else; measure it again"


class Judging(Protocol):
    """What judges: a system, or what stands for one that no file describes (without references and facts)."""

    @property
    def name(self) -> str:
        """The system's name."""

    @property
    def facts(self) -> Facts | None:
        """What is known of its hosts."""

    def reference(self, check: str, metric: str, parameters: Mapping[str, object]) -> Reference | None:
        """Return what is expected of a metric."""


@dataclass(frozen=True)
class Undescribed:
    """A system that no file describes: its fleet alone judges."""

    name: str
    facts: None = None

    def reference(self, *_: object) -> None:
        """There is none."""


@dataclass(frozen=True)
class Judged:
    """The verdicts of a fleet in columns.

    *expected* are the references that judge each case: the system's and the fleet's. Of each group of *passes*
    there is the *word* as a number (see :data:`firsttouch.judge.judging.PASS`), which of the two references
    decided (*by*; 2: none), the *evidence* (NaN: no error of a pass is known), the *change*: the median of the
    passes that count as a relative difference from what is expected (NaN: nothing is), and how many *more* passes
    would decide what is suspect (0: none would). *counts_now* tells of each pass whether it counts: it is valid,
    and newer than the last change of its host. *missing* is what should have been measured of a host and was not,
    with the reason. *divided* has, by the number of its case, each metric of which hosts form two groups: those of
    the worse one are suspect, as nothing tells which group is right (see :meth:`notes` for lines to print).
    """

    passes: SamplesTable
    system: Judging
    expected: Sequence[tuple[Reference | None, Reference | None]]
    words: NDArray[np.uint8]
    by: NDArray[np.uint8]
    evidence: Floats
    change: Floats
    more: Ints
    counts_now: Bools
    missing: Mapping[str, Sequence[str]]
    divided: Mapping[int, Divided]

    @cached_property
    def hosts(self) -> list[str]:
        """All hosts by name: those with passes, and those of which something is missing."""
        return sorted({*self.passes.hosts, *self.missing})

    @cached_property
    def number(self) -> Mapping[str, int]:
        """The number of each host that has passes."""
        return {name: i for i, name in enumerate(self.passes.hosts)}

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Groups of each host that has passes, by word, and in the last column those without one."""
        unsaid = (self.by == _NONE) & (self.words == PASS)
        column = np.where(unsaid, np.uint8(len(ORDER)), self.words)
        width = len(ORDER) + 1
        found = np.bincount(self.passes.host * width + column, minlength=len(self.passes.hosts) * width)
        return found.reshape(-1, width)

    @cached_property
    def judging(self) -> NDArray[np.bool_]:
        """Which cases some host was judged by."""
        return np.bincount(self.passes.case[self.by != _NONE], minlength=len(self.passes.cases)) > 0

    @cached_property
    def absent(self) -> Ints:
        """How many of these each host (of those with passes) has no pass of."""
        mine = self.passes.host[self.judging[self.passes.case]]
        return np.count_nonzero(self.judging) - np.bincount(mine, minlength=len(self.passes.hosts))

    def word(self, host: str) -> int:
        """Return the number of a host's verdict."""
        number = self.number.get(host)
        if number is None:
            return SUSPECT
        some = np.flatnonzero(self.counts[number, : len(ORDER)])
        found = int(some[-1]) if len(some) else SUSPECT
        return max(found, SUSPECT) if self.missing.get(host) or self.absent[number] else found

    @cached_property
    def losses(self) -> Floats:
        """How much worse than expected each group is, as a fraction: 0 of one that passes, 1 at most."""
        better = np.array([c.better for c in self.passes.cases])[self.passes.case]
        worse = np.where(better == "higher", -self.change, self.change)
        worse[better == "neither"] = np.abs(worse[better == "neither"])
        return np.where(self.words > PASS, np.clip(np.nan_to_num(worse), 0.0, 1.0), 0.0)

    @cached_property
    def _worst(self) -> Floats:
        """The largest loss of each host that has passes."""
        found = np.zeros(len(self.passes.hosts))
        np.maximum.at(found, self.passes.host, self.losses)
        return found

    def severity(self, host: str) -> tuple[int, float]:
        """Return what sorts hosts by how bad they are: the verdict, then the largest loss (1: something is gone).

        Many small losses are not worse than a large one, so how many there are does not count.
        """
        number = self.number.get(host)
        gone = number is None or self.missing.get(host) or self.absent[number]
        return self.word(host), 1.0 if gone else float(self._worst[number])

    def by_severity(self) -> list[str]:
        """Return all hosts, the worst first."""
        return sorted(self.hosts, key=lambda host: (*(-x for x in self.severity(host)), natural(host)))

    def line(self, host: str) -> str:
        """Return the one-line verdict of a host without its evidence."""
        number = self.number.get(host)
        counted = [0] * (len(ORDER) + 1) if number is None else self.counts[number].tolist()
        lost = len(self.missing.get(host, ())) + (0 if number is None else int(self.absent[number]))
        parts = [f"{counted[PASS]} of {sum(counted[:-1])} judged metrics pass"]
        parts += [f"{count} {ORDER[i]}" for i, count in enumerate(counted[:-1]) if count and i != PASS]
        parts += [f"{lost} missing"] if lost else []
        return f"verdict {host} {ORDER[self.word(host)]}: {'; '.join(parts)}"

    def notes(self) -> list[str]:
        """Return what there is to tell of the fleet and not of one host: a line for each division of its hosts.

        Metrics that divide hosts alike share a line, which shows the one with the largest difference.
        """
        alike: dict[tuple[tuple[str, ...], ...], list[int]] = {}
        for number, two in self.divided.items():
            # Which group is the better one may differ from metric to metric.
            alike.setdefault(tuple(sorted((tuple(two.better), tuple(two.worse)))), []).append(number)
        lines = []
        for numbers in sorted(alike.values(), key=len, reverse=True):
            number = max(numbers, key=lambda n: self.divided[n].apart)
            case, two = self.passes.cases[number], self.divided[number]
            count = "1 metric" if len(numbers) == 1 else f"{len(numbers)} metrics"
            lines.append(f"two groups of hosts in {count}: {case.name}: {two.text(case.unit)}; {_TWO}")
        return lines

    def groups(self, host: str) -> NDArray[np.intp]:
        """Return the groups of a host, by case."""
        number = self.number.get(host)
        return np.empty(0, dtype=np.intp) if number is None else self.passes.groups_of_host(number)

    def of(self, host: str) -> HostVerdict:
        """Return the verdict of one host with all that it rests on."""
        mine = self.groups(host)
        found = list(self._findings(mine))
        findings = tuple(f for f in found if f.reference or f.verdict != "pass")
        known = self.passes.settings.get(host, {})
        bad = any(f.verdict != "pass" for f in findings)
        return HostVerdict(
            host,
            self.system.name,
            findings,
            len(found) - len(findings),
            (*self.missing.get(host, ()), *self._not_measured(mine)),
            tuple(causes(Signs(findings, known, self.system.facts))) if bad else (),
            described=self.system.facts is not None,
        )

    def _not_measured(self, mine: NDArray[np.intp]) -> Iterator[str]:
        if len(mine):
            lost = self.judging.copy()
            lost[self.passes.case[mine]] = False
            for case in np.flatnonzero(lost).tolist():
                yield f"{self.passes.cases[case].name}: other hosts were judged by it"

    def _findings(self, groups: NDArray[np.intp]) -> Iterator[Finding]:
        """Yield the finding of each group; its reference is None where nothing judges it."""
        known = self.passes
        begins, counts = known.begins[groups].tolist(), known.counts[groups].tolist()
        words, by = self.words[groups].tolist(), self.by[groups].tolist()
        weighed, numbers = self.evidence[groups].tolist(), known.case[groups].tolist()
        more = self.more[groups].tolist()
        for i, number in enumerate(numbers):
            case = known.cases[number]
            part = slice(begins[i], begins[i] + counts[i])
            values = tuple(known.value[part][self.counts_now[part]].tolist())
            reference = None if by[i] == _NONE else self.expected[number][by[i]]
            word, evidence = ORDER[words[i]], None if math.isnan(weighed[i]) else weighed[i]
            if word == "invalid":
                values, why = (), self._invalid(int(groups[i]), part)
            elif reference is None:
                why = _NO_REFERENCE
            else:
                why = reason_for(values, case.better, reference, word, evidence=evidence, more=more[i])
            if word == "suspect" and by[i] == 1 and number in self.divided and not more[i]:
                why += _OF_TWO
            naming = (case.check, case.metric, case.parameters, case.unit)
            yield Finding(*naming, values, reference, word, why, evidence, better=case.better, more=more[i])

    def _invalid(self, group: int, part: slice) -> str:
        """Return why no pass of a group's newest session counts."""
        known = self.passes
        if not known.valid[part.stop - 1]:
            return known.rows["reason"][part.stop - 1] or _NO_PLACEMENT
        busy = known.busy(slice(group, group + 1))
        return _DISTURBED.format(busy=0 if busy is None else busy.max())


#: Neither reference judges.
_NONE = 2


def judge(
    records: Iterable[Record], system: Judging, *, missing: Mapping[str, Sequence[str]] | None = None
) -> list[HostVerdict]:
    """Return the verdict of every host that has records of *system*, or that is among *missing*, by name.

    *missing* holds, by host, what should have been measured and was not. What some hosts were measured and
    judged by and another one was not is missing of that one, too. A metric whose reference tells no error of a
    pass, or that has none, is judged by what the majority of the hosts reach, if they are enough.
    """
    found = judged(samples_table.of_records(records, system.name), system, missing=missing)
    return [found.of(host) for host in found.hosts]


def judged(
    passes: SamplesTable,
    system: Judging,
    *,
    missing: Mapping[str, Sequence[str]] | None = None,
    fleet: bool = True,
) -> Judged:
    """Return the verdicts of *passes*, all of *system*, in columns; without *fleet*, only references judge."""
    total = len(passes.counts)
    words, by = np.zeros(total, dtype=np.uint8), np.full(total, _NONE, dtype=np.uint8)
    evidence, change = np.full(total, np.nan), np.full(total, np.nan)
    more, now = np.zeros(total, dtype=np.int64), passes.valid.copy()
    expected, divisions = [], {}
    for number, case in enumerate(passes.cases):
        where = passes.groups(number)
        told = system.reference(case.check, case.metric, case.parameters)
        one = _One(case, passes, where, told, fleet=fleet)
        one.judge()
        words[where], by[where], evidence[where], change[where] = one.words, one.by, one.evidence, one.change
        more[where], now[passes.rows_of(where)] = one.more, one.now
        expected.append((told, one.fleet))
        if one.divided is not None:
            divisions[number] = one.divided
    return Judged(passes, system, expected, words, by, evidence, change, more, now, missing or {}, divisions)


class _One:
    """One case of all hosts that have it, and the verdict of each: what :class:`Judged` holds of all cases."""

    def __init__(
        self, case: Case, passes: SamplesTable, where: slice, told: Reference | None, *, fleet: bool
    ) -> None:
        self.case, self.told = case, told
        self.hosts = passes.host[where]
        part = passes.rows_of(where)
        self.every = Groups(passes.value[part], passes.counts[where])
        self.valid, self.session = passes.valid[part], passes.session(where)
        self.busy = None if case.exact else passes.busy(where)
        may = passes.judged[part]
        # A system's reference judges a host that may be judged as it was found last.
        self.may = may[self.every.begins + self.every.counts - 1]
        learns = fleet and (told is None or told.error is None)
        self.divided: Divided | None = None
        #: What hosts of the worse group reach, where there are two.
        self.worse: Reference | None = None
        self.fleet = self._learn(self.valid & may, passes.hosts) if learns else None
        total = len(self.every)
        self.words, self.by = np.full(total, PASS, dtype=np.uint8), np.full(total, _NONE, dtype=np.uint8)
        self.evidence, self.change = np.full(total, np.nan), np.full(total, np.nan)
        self.more, self.now = np.zeros(total, dtype=np.int64), self.valid.copy()

    def _kept(self, which: Bools) -> tuple[Groups, Bools]:
        """Return those passes, and the groups that have some."""
        if which.all():
            return self.every, np.ones(len(self.every), dtype=np.bool_)
        counts = self.every.sums(which.astype(np.int64))
        return Groups(self.every.values[which], counts[counts > 0]), counts > 0

    def _learn(self, which: Bools, hosts: Sequence[str]) -> Reference | None:
        """Return what to expect by the fleet's majority, if it tells.

        That is what its hosts reach now, in the newest session of each; where these passes are too few, in all.
        """
        last = self.session[self.every.begins + self.every.counts - 1]
        now = which & (self.session == np.repeat(last, self.every.counts))
        good, some = self._kept(now)
        if self.case.exact and self.case.unit == "1":
            return self._most_frequent(good)
        names = [hosts[number] for number in self.hosts[some].tolist()]
        self.divided = divided(good, names, self.case.better)
        if self.divided is not None:
            of_worse = np.isin(names, self.divided.worse)
            self.worse = self._level(good.chosen(of_worse), len(good))
            return self.worse and self._level(good.chosen(np.isin(names, self.divided.better)), len(good))
        found = self._level(good, len(good))
        if found is None and (now != which).any():
            good, _ = self._kept(which)
            found = self._level(good, len(good))
        return found

    def _level(self, good: Groups, hosts: int) -> Reference | None:
        """Return what most of some groups of all *hosts* reach, None where that is not known well enough."""
        found = level(good, [""] * len(good), self.case.better)
        if found is None or found.doubt > found.limit / 4:
            return None
        source = f"{found.hosts} of {hosts} hosts of this fleet"
        return self._reference(found.value, found.limit, source, found.error)

    def _most_frequent(self, good: Groups) -> Reference | None:
        """Return the count that more than half of the hosts have: good hosts do not differ in one."""
        if len(good) < FEWEST_HOSTS or good.values.min() <= 0:
            return None
        values, hosts = np.unique(good.values[good.begins + good.counts - 1], return_counts=True)
        most = int(hosts.argmax())
        if 2 * hosts[most] <= len(good):
            return None
        return self._reference(float(values[most]), 0.0, f"{hosts[most]} of {len(good)} hosts of this fleet", None)

    def _reference(self, value: float, limit: float, source: str, error: float | None) -> Reference:
        learnt = (value, -limit, limit, self.case.unit, source, 0, error)
        return Reference(self.case.check, self.case.metric, self.case.parameters, *learnt)

    def judge(self) -> None:
        """Judge all groups: by the system's reference and by the fleet, of which the worse counts."""
        if not self.told:
            self.by[:] = _NONE if self.fleet is None else 1
        else:
            self.by[:] = np.where(self.may, 0, _NONE if self.fleet is None else 1)
        lost = self._drop(self.now)
        self.words[lost], self.more[lost] = INVALID, 1
        everybody = np.ones(len(self.every), dtype=np.bool_)
        for number, reference, meant in ((0, self.told, self.may), (1, self.fleet, everybody)):
            if reference is not None:
                self._by(number, reference, meant)

    def _drop(self, now: Bools) -> Bools:
        """Return the groups whose newest session has none of the passes *now*, none of which count any more."""
        number = np.where(now, self.session, -1)
        newest = np.maximum.reduceat(number, self.every.begins)
        lost: Bools = newest < self.session[self.every.begins + self.every.counts - 1]
        now[np.repeat(lost, self.every.counts)] = False
        return lost

    def _by(self, number: int, reference: Reference, meant: Bools) -> None:
        """Judge the groups *meant* by a reference, the *number* of which is noted where it counts."""
        now = self.valid.copy()
        if self.busy is not None:
            # Who is good enough in spite of others is good.
            bad, _ = outside(self.every.values, self.case.better, reference)
            now &= ~(bad & (self.busy >= BUSY))
        self._drop(now)
        words = np.full(len(self.every), INVALID, dtype=np.uint8)
        evidence, more, change = np.full(len(words), np.nan), np.ones(len(words), dtype=np.int64), None
        known, some = self._kept(now)
        if len(known):
            session = self.session[now]
            new = np.zeros(len(session), dtype=np.bool_)
            new[1:] = np.diff(session) != 0
            new[known.begins] = False
            said = say(known, new, self.case.better, reference, exact=self.case.exact)
            if number == 1 and self.worse is not None:
                # A host as good as the worse group is not bad for being no member of the better one.
                other = say(known, new, self.case.better, self.worse, exact=self.case.exact)
                alike = (said.words == FAIL) & (other.words != FAIL)
                said.words[alike], said.more[alike] = SUSPECT, 0
            words[some], evidence[some], more[some] = said.words, said.evidence, said.more
            recent = last(known, said.newest)
            if reference.value:
                change = np.full(len(words), np.nan)
                change[some] = Groups(known.values[recent], said.newest).medians() / reference.value - 1
            now[now] = recent
        # The worse of the two counts, of equal ones the system's.
        counts = meant & ((words > self.words) | (self.by == number))
        self.words[counts], self.by[counts] = words[counts], number
        self.evidence[counts], self.more[counts] = evidence[counts], more[counts]
        self.change[counts] = np.nan if change is None else change[counts]
        which = np.repeat(counts, self.every.counts)
        self.now[which] = now[which]


def undecided(host_records: Iterable[Record], system: Judging, most: int = MOST_PASSES) -> dict[str, int]:
    """Return the cases of one host that its references leave undecided and that one more pass may decide.

    These are cases that are suspect or unsure after fewer than *most* passes, and those that were only measured
    while others kept the host busy. Each has the number of its passes that count: disturbed passes and those from
    before the last change of the host decide nothing.
    """
    result = judged(samples_table.of_records(host_records, system.name), system, fleet=False)
    passes, cases = result.passes, {}
    for group, number in enumerate(passes.case.tolist()):
        part = passes.rows_of(slice(group, group + 1))
        word, evidence = ORDER[result.words[group]], float(result.evidence[group])
        count = int(np.count_nonzero(result.counts_now[part]))
        unsure = word == "suspect" or sprt.PASS_AT < evidence < sprt.FAIL_AT
        enough = count >= (_MOST_TOLD if math.isnan(evidence) else most)
        if _is_disturbed(result, group) or (unsure and not enough and not passes.cases[number].exact):
            cases[passes.cases[number].name] = count
    return cases


def undecided_cases(found: Judged, host: str, most: int = MOST_PASSES) -> dict[str, int]:
    """Return the passes so far, fewer than *most*, of each case of a *host* that one more pass may decide.

    These are cases that are suspect or unsure, that were only measured while others kept the host busy, or that
    the fleet's hosts cannot be compared by yet.
    """
    passes, names = found.passes, {}
    for group in found.groups(host).tolist():
        case, count = passes.cases[int(passes.case[group])], int(passes.counts[group])
        word, weighed = ORDER[found.words[group]], float(found.evidence[group])
        unknown = found.by[group] == _NONE and case.unit != "1"
        unsure = word == "suspect" or sprt.PASS_AT < weighed < sprt.FAIL_AT
        if count < most and (unsure or unknown or _is_disturbed(found, group)):
            names[case.name] = count
    return names


def _is_disturbed(result: Judged, group: int) -> bool:
    """Tell whether a group is invalid only because others kept its host busy."""
    part = result.passes.rows_of(slice(group, group + 1))
    return ORDER[result.words[group]] == "invalid" and bool(result.passes.valid[part].any())
