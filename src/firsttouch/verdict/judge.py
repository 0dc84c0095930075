# SPDX-License-Identifier: Apache-2.0
"""Judges passes by a system's references and by the fleet, all hosts of a metric at once.

Where the error of a pass is known, the verdict says how sure it is. What a verdict rests on is told of the hosts
that are asked for, so that a large fleet costs no more than its columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from firsttouch.records import Record
from firsttouch.systems import Facts, Reference
from firsttouch.verdict import rules, sure, table
from firsttouch.verdict.causes import Signs, causes
from firsttouch.verdict.columns import Floats, Groups, Ints
from firsttouch.verdict.fleet import level
from firsttouch.verdict.model import ORDER, Finding, HostVerdict, natural
from firsttouch.verdict.passes import Case, Passes, case_of

#: A metric is measured this often before it stays as it is, and this often where its error is known and one more
#: pass makes the verdict surer.
_MOST_TOLD = 3
MOST_PASSES = 12
_NO_REFERENCE, _NO_PLACEMENT = "no reference", "its placement did not hold"


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
    there is the *word* as a number (see :data:`firsttouch.verdict.rules.PASS`), which of the two references
    decided (*by*; 2: none), the *evidence* (NaN: no error of a pass is known) and the *change*: the median of its
    valid passes as a relative difference from what is expected (NaN: nothing is). *missing* is what should have
    been measured of a host and was not, with the reason.
    """

    passes: Passes
    system: Judging
    expected: Sequence[tuple[Reference | None, Reference | None]]
    words: NDArray[np.uint8]
    by: NDArray[np.uint8]
    evidence: Floats
    change: Floats
    missing: Mapping[str, Sequence[str]]

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
        unsaid = (self.by == _NONE) & (self.words == rules.PASS)
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
            return rules.SUSPECT
        some = np.flatnonzero(self.counts[number, : len(ORDER)])
        found = int(some[-1]) if len(some) else rules.SUSPECT
        return max(found, rules.SUSPECT) if self.missing.get(host) or self.absent[number] else found

    @cached_property
    def losses(self) -> Floats:
        """How much worse than expected each group is, as a fraction: 0 of one that passes, 1 at most."""
        better = np.array([c.better for c in self.passes.cases])[self.passes.case]
        worse = np.where(better == "higher", -self.change, self.change)
        worse[better == "neither"] = np.abs(worse[better == "neither"])
        return np.where(self.words > rules.PASS, np.clip(np.nan_to_num(worse), 0.0, 1.0), 0.0)

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
        parts = [f"{counted[rules.PASS]} of {sum(counted[:-1])} judged metrics pass"]
        parts += [f"{count} {ORDER[i]}" for i, count in enumerate(counted[:-1]) if count and i != rules.PASS]
        parts += [f"{lost} missing"] if lost else []
        return f"verdict {host} {ORDER[self.word(host)]}: {'; '.join(parts)}"

    def groups(self, host: str) -> NDArray[np.intp]:
        """Return the groups of a host, by case."""
        number = self.number.get(host)
        begins, order = self.passes.of_host
        return order[:0] if number is None else order[begins[number] : begins[number + 1]]

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
        for i, number in enumerate(numbers):
            case = known.cases[number]
            part = slice(begins[i], begins[i] + counts[i])
            values = tuple(known.value[part][known.valid[part]].tolist())
            reference = None if by[i] == _NONE else self.expected[number][by[i]]
            word, evidence = ORDER[words[i]], None if math.isnan(weighed[i]) else weighed[i]
            if not values:
                why = known.reasons[known.reason[part.stop - 1]] or _NO_PLACEMENT
            elif reference is None:
                why = _NO_REFERENCE
            else:
                why = rules.why(values, case.better, reference, word, evidence)
            naming = (case.check, case.metric, case.parameters, case.unit)
            yield Finding(*naming, values, reference, word, why, evidence, better=case.better)


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
    found = judged(table.of_records(records, system.name), system, missing=missing)
    return [found.of(host) for host in found.hosts]


def judged(
    passes: Passes, system: Judging, *, missing: Mapping[str, Sequence[str]] | None = None, fleet: bool = True
) -> Judged:
    """Return the verdicts of *passes*, all of *system*, in columns; without *fleet*, only references judge."""
    total = len(passes.counts)
    words, by = np.zeros(total, dtype=np.uint8), np.full(total, _NONE, dtype=np.uint8)
    evidence, change = np.full(total, np.nan), np.full(total, np.nan)
    expected = []
    for number, case in enumerate(passes.cases):
        where = passes.groups(number)
        part = passes.passes(where)
        told = system.reference(case.check, case.metric, case.parameters)
        one = _One(case, passes, where, part, told, fleet=fleet)
        words[where], by[where], evidence[where], change[where] = one.judged()
        expected.append((told, one.fleet))
    return Judged(passes, system, expected, words, by, evidence, change, missing or {})


class _One:
    """One case of all hosts that have it."""

    def __init__(
        self, case: Case, passes: Passes, where: slice, part: slice, told: Reference | None, *, fleet: bool
    ) -> None:
        self.case, self.told = case, told
        self.hosts = passes.host[where]
        self.every = Groups(passes.value[part], passes.counts[where])
        self.valid = passes.valid[part]
        may = passes.judged[part]
        # A system's reference judges a host that may be judged as it was found last.
        self.may = may[self.every.begins + self.every.counts - 1]
        learns = fleet and (told is None or told.error is None)
        self.fleet = self._learn(self._kept(self.valid & may)[0], passes.hosts) if learns else None

    def _kept(self, which: NDArray[np.bool_]) -> tuple[Groups, NDArray[np.bool_]]:
        """Return those passes, and the groups that have some."""
        if which.all():
            return self.every, np.ones(len(self.every), dtype=np.bool_)
        counts = self.every.sums(which.astype(np.int64))
        return Groups(self.every.values[which], counts[counts > 0]), counts > 0

    def _learn(self, good: Groups, hosts: Sequence[str]) -> Reference | None:
        """Return what to expect by the fleet's majority, if it tells."""
        found = level(good, hosts, self.case.better)
        if found is None or found.doubt > found.limit / 4:
            return None
        source = f"{found.hosts} of {len(good)} hosts of this fleet"
        learnt = (found.value, -found.limit, found.limit, self.case.unit, source, 0, found.error)
        return Reference(self.case.check, self.case.metric, self.case.parameters, *learnt)

    def judged(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8], Floats, Floats]:
        """Return words, which reference decided, evidence and change of each host."""
        known, some = self._kept(self.valid)
        total = len(self.every)
        first = np.where(self.may & (self.told is not None), 0, 1 if self.fleet is not None else _NONE)
        words = np.where(some, rules.PASS, rules.INVALID).astype(np.uint8)
        by, evidence, change = first.astype(np.uint8), np.full(total, np.nan), np.full(total, np.nan)
        if not len(known):
            return words, by, evidence, change
        for number, reference, meant in ((0, self.told, self.may[some]), (1, self.fleet, None)):
            if reference is None:
                continue
            said = rules.say(known, self.case.better, reference)
            # The worse of the two counts, of equal ones the system's.
            new = np.ones(len(known), dtype=np.bool_) if meant is None else meant
            counts = new & ((said.words > words[some]) | (by[some] == number))
            at = np.flatnonzero(some)[counts]
            words[at], by[at], evidence[at] = said.words[counts], number, said.evidence[counts]
        middles = known.medians()
        for number, reference in ((0, self.told), (1, self.fleet)):
            if reference is not None and reference.value:
                chosen = by[some] == number
                change[np.flatnonzero(some)[chosen]] = middles[chosen] / reference.value - 1
        return words, by, evidence, change


def undecided(passes: Sequence[Record], system: Judging, most: int = MOST_PASSES) -> bool:
    """Tell whether the passes of one case, *most* at most, leave it suspect or unsure, and one more may decide."""
    found = judged(table.of_records(passes), system, fleet=False)
    for number, weighed in zip(found.words.tolist(), found.evidence.tolist(), strict=True):
        if ORDER[number] == "suspect" or sure.PASS_AT < weighed < sure.FAIL_AT:
            return len(passes) < (_MOST_TOLD if np.isnan(weighed) else most)
    return False


def cases(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Yield the passes of each case of one host's records."""
    grouped: dict[str, list[Record]] = {}
    for record in records:
        case = case_of(record.check, record.parameters)
        grouped.setdefault(repr((record.check, record.metric, sorted(case.items()))), []).append(record)
    yield from grouped.values()
