# SPDX-License-Identifier: Apache-2.0
"""Judges samples by a system's references, by the fleet, and by each host's own best level.

Three questions are kept apart: is a host below what was promised (the system's reference), is it unlike its
siblings beyond their natural spread (:mod:`firsttouch.judge.fleet_level`), and is it unlike itself in its best
stable period (:mod:`firsttouch.judge.host_level`)? It fails if one of them is certain.

A verdict describes the host now: the repetitions since its last change decide. A single noisy repetition never
decides. A value better than the tolerance is never a fail, but the measurement or the reference is wrong.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from firsttouch.judge import event_limits, samples_table, sprt
from firsttouch.judge.case_judge import (
    FAIL,
    FLEET,
    NONE,
    PASS,
    SUSPECT,
    SYSTEM,
    UNDECIDED,
    CaseJudge,
    Verdicts,
    pooled_judges,
    verdict_rows,
)
from firsttouch.judge.drift import Configuration, latest
from firsttouch.judge.findings import Findings
from firsttouch.judge.fleet_level import Divided
from firsttouch.judge.samples_table import SamplesTable
from firsttouch.judge.sprt import Bools, Groups
from firsttouch.judge.statistics import beyond_chance
from firsttouch.judge.verdict import HostVerdict
from firsttouch.records.schema import Record
from firsttouch.systems.references import Reference

if TYPE_CHECKING:
    from firsttouch.systems.definition import System

#: The fewest metrics that fail a host together, and their least share of its metrics.
_BAD_TOGETHER, _BAD_SHARE = 3, 1 / 3
#: The fewest rows of a table whose cases are judged by several threads, and the most of these.
_LARGE, _THREADS = 1 << 20, 8
#: How often a metric is measured before its verdict is final: without a known error, and with one.
_MOST_WITHOUT_ERROR = 3
MOST_REPETITIONS = 12


@dataclass(frozen=True)
class Undescribed:
    """A system without a file: only its fleet judges."""

    name: str
    facts: None = None

    def reference(self, *_: object) -> None:
        """Return None: there is no reference."""

    def fact(self, *_: object) -> None:
        """Return None: there are no facts."""


def judge(
    records: Iterable[Record], system: System | Undescribed, *, missing: Mapping[str, Sequence[str]] | None = None
) -> list[HostVerdict]:
    """Return the verdict of every host that has records of *system*, or that is among *missing*, by name.

    *missing* names, by host, what should have been measured and was not. A case that judges some hosts and that
    another host lacks is missing there, too. A metric without a reference, or with one without the error of a
    repetition, is judged by what the majority of the hosts reach, if there are enough hosts.
    """
    records = list(records)
    samples = samples_table.of_records(records, system.name)
    verdicts = judged(samples, system, missing=missing, configurations=lambda: latest(records))
    return [verdicts.of(host) for host in verdicts.hosts]


def judged(
    samples: SamplesTable,
    system: System | Undescribed,
    *,
    missing: Mapping[str, Sequence[str]] | None = None,
    fleet: bool = True,
    configurations: Callable[[], Mapping[str, Configuration]] = dict,
) -> Findings:
    """Return the verdicts of *samples*, all of *system*, in columns; without *fleet*, only references judge.

    *configurations* returns the newest configuration of each host, to name causes.
    """
    verdicts, now = verdict_rows(len(samples.counts), PASS, NONE), samples.valid.copy()
    judging = _Judging(samples, system, fleet=fleet)
    references: list[tuple[Reference | None, Reference | None]] = []
    divisions: dict[int, Divided] = {}
    visible: dict[int, float] = {}
    owns: dict[int, Reference] = {}
    intermittent: dict[int, str] = {}
    awaiting_session: set[int] = set()
    for number, case in enumerate(judging.cases()):
        groups = samples.groups(number)
        verdicts[groups], now[samples.rows_of(groups)] = case.verdicts, case.now
        references.append(case.references)
        owns |= {groups.start + group: reference for group, reference in case.own_references.items()}
        awaiting_session |= {groups.start + group for group in case.awaiting_session}
        intermittent |= {groups.start + group: text for group, text in case.intermittent.items()}
        if case.visible is not None:
            visible[number] = case.visible
        if case.divided is not None:
            divisions[number] = case.divided
    words, evidence = verdicts["words"], verdicts["evidence"]
    words[(words == UNDECIDED) & beyond_chance(evidence, samples.host, sprt.CHANCE)] = SUSPECT
    words[list(intermittent)], verdicts["more"][list(intermittent)] = SUSPECT, 0
    bad_together = _bad_together(samples, verdicts, now)
    words[bad_together], verdicts["more"][bad_together] = FAIL, 0
    return Findings(
        samples,
        system,
        references,
        words=words.copy(),
        by=verdicts["by"].copy(),
        evidence=evidence.copy(),
        more=verdicts["more"].copy(),
        counts_now=now,
        missing=missing or {},
        divided=divisions,
        own=owns,
        visible=visible,
        intermittent=intermittent,
        awaiting_session=awaiting_session,
        configurations=configurations,
    )


class _Case(NamedTuple):
    """The verdicts of a case, and which of its rows count *now*. Groups are numbered within the case.

    *references* are those of the system and of the fleet. *own_references* are the references of hosts that no
    common one has judged, *intermittent* the texts about hosts that are bad now and then, *awaiting_session* the
    groups that fail unless the next session is good, *visible* is the smallest loss that is found.
    """

    verdicts: Verdicts
    now: Bools
    references: tuple[Reference | None, Reference | None]
    own_references: Mapping[int, Reference] = {}
    intermittent: Mapping[int, str] = {}
    awaiting_session: Sequence[int] = ()
    visible: float | None = None
    divided: Divided | None = None


class _Judging:
    """Judges the cases of some samples, each alone but for the spreads that the metrics of few hosts share."""

    def __init__(self, samples: SamplesTable, system: System | Undescribed, *, fleet: bool) -> None:
        self._samples, self._system, self._fleet = samples, system, fleet
        self._events = event_limits.EventLimits(samples)
        metrics = sum(not case.exact and event_limits.limit_of(case) is None for case in samples.cases)
        self._metrics = max(1, metrics)
        self._pooled = pooled_judges(samples, self._metrics) if fleet else {}

    def cases(self) -> Iterator[_Case]:
        """Yield the verdicts of each case. Those of a large table are judged by several threads."""
        numbers = range(len(self._samples.cases))
        threads = min(len(os.sched_getaffinity(0)), _THREADS) if len(self._samples.value) >= _LARGE else 1
        if threads == 1:
            yield from map(self._case, numbers)
            return
        with ThreadPoolExecutor(threads) as pool:
            yield from pool.map(self._case, numbers)

    def _case(self, number: int) -> _Case:
        samples, case = self._samples, self._samples.cases[number]
        groups = samples.groups(number)
        if limit := event_limits.limit_of(case):
            limited = self._events.judge(number, limit)
            verdicts = verdict_rows(len(limited.words), PASS, NONE)
            verdicts["words"] = limited.words
            # A count of zero proves nothing: only an exceeded limit sets *by*.
            verdicts["by"][limited.words > PASS] = SYSTEM
            return _Case(verdicts, limited.now, (event_limits.reference(case, limit), None))
        stated = self._system.reference(case.check, case.metric, case.parameters)
        judge = self._pooled.pop(number, None) or CaseJudge(case, samples, groups, self._metrics)
        judge.own = stated
        if self._fleet:
            judge.learn()
        verdicts, now = judge.judge()
        if stated is None and (stated := self._system.fact(case.check, case.metric)) is not None:
            # Facts fail a host. That it has what they state makes no host good.
            by_fact = judge.judge_by(SYSTEM, stated)[0]
            fails = by_fact["words"] == FAIL
            verdicts[fails] = by_fact[fails]
        intermittent = judge.intermittent(verdicts["words"])
        verdicts["by"][list(intermittent)] = FLEET
        return _Case(
            verdicts,
            now,
            (stated, judge.fleet),
            judge.own_references,
            intermittent,
            judge.awaiting_session,
            None if judge.level is None else judge.level.visible,
            judge.divided,
        )


def _bad_together(samples: SamplesTable, verdicts: Verdicts, now: Bools) -> Bools:
    """Return the groups that fail because many metrics of a host, or of one check of it, are bad in a few samples.

    A disturbance hits a repetition now and then. Repetitions of different metrics are measured one after the
    other, so together they are as many looks at the host as repetitions of one metric would be.
    """
    words, evidence, more = verdicts["words"], verdicts["evidence"], verdicts["more"]
    together = np.zeros(len(words), dtype=np.bool_)
    counts = Groups(samples.value, samples.counts).sums(now.astype(np.int64))
    # What good hosts differ by nature, and the groups of a divided fleet, ask for no further repetitions.
    bad = (words == SUSPECT) & (evidence >= -math.log(sprt.CHANCE)) & (counts > 1) & (more > 0)
    if not bad.any():
        return together
    numbers = {name: number for number, name in enumerate(dict.fromkeys(case.check for case in samples.cases))}
    check = np.array([numbers[case.check] for case in samples.cases])[samples.case]
    host, weighed = samples.host.astype(np.int64), np.isfinite(evidence)
    for key, size in (
        (host * len(numbers) + check, len(numbers) * len(samples.hosts)),
        (host, len(samples.hosts)),
    ):
        of_host = np.bincount(key[bad], minlength=size)
        many = (of_host >= _BAD_TOGETHER) & (of_host >= _BAD_SHARE * np.bincount(key[weighed], minlength=size))
        together |= bad & many[key]
    return together


# ----------------------------------------------------------------------
# What to measure again


def undecided(
    host_records: Iterable[Record], system: System | Undescribed, most: int = MOST_REPETITIONS
) -> dict[str, int]:
    """Return the keys of one host's cases that its references leave undecided and another repetition may decide.

    These are undecided, suspect or unsure cases with fewer than *most* repetitions, and those that were only
    measured while other processes used the host. Each has the number of its repetitions that count: disturbed
    ones and those from before the host's last change do not.
    """
    verdicts = judged(samples_table.of_records(host_records, system.name), system, fleet=False)
    table = verdicts.samples
    counts = Groups(table.value, table.counts).sums(verdicts.counts_now.astype(np.int64))
    enough = counts >= np.where(np.isnan(verdicts.evidence), _MOST_WITHOUT_ERROR, most)
    exact = np.array([case.exact for case in table.cases], dtype=np.bool_)[table.case]
    groups = np.flatnonzero(verdicts.disturbed | (verdicts.unsure & ~enough & ~exact))
    return {table.cases[table.case[group]].key: int(counts[group]) for group in groups}


def undecided_cases(verdicts: Findings, host: str, most: int = MOST_REPETITIONS) -> dict[str, int]:
    """Return the keys of the cases of a *host* that one more repetition may decide, with their repetitions so far.

    These have fewer than *most* repetitions and are undecided, suspect or unsure, were only measured while other
    processes used the host, or cannot be compared with the fleet yet.
    """
    table, groups = verdicts.samples, verdicts.groups(host)
    is_count = np.array([table.cases[number].unit == "1" for number in table.case[groups]], dtype=np.bool_)
    unknown = (verdicts.by[groups] == NONE) & ~is_count
    wanted = verdicts.unsure[groups] | unknown | verdicts.disturbed[groups]
    of_events = np.array([event_limits.limit_of(table.cases[n]) is not None for n in table.case[groups]], np.bool_)
    groups = groups[wanted & ~of_events & (table.counts[groups] < most)]
    return {table.cases[table.case[group]].key: int(table.counts[group]) for group in groups}
