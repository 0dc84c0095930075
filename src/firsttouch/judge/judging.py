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
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from firsttouch.judge import event_limits, samples_table, sprt
from firsttouch.judge.case_judge import (
    FAIL,
    FLEET,
    NONE,
    PASS,
    SUSPECT,
    SYSTEM,
    UNDECIDED,
    VERDICT,
    CaseJudge,
    Verdicts,
    lacks_half,
    pooled_judges,
    verdict_rows,
)
from firsttouch.judge.drift import Configuration, latest
from firsttouch.judge.findings import Findings, Measured
from firsttouch.judge.fleet_level import Divided
from firsttouch.judge.samples_table import SamplesTable
from firsttouch.judge.sprt import Bools, Floats, Ints
from firsttouch.judge.statistics import beyond_chance
from firsttouch.judge.verdict import HostVerdict
from firsttouch.records.schema import Record
from firsttouch.systems.references import Reference

if TYPE_CHECKING:
    from firsttouch.systems.definition import System, Undescribed

#: The fewest metrics that fail a host together, and their least share of its metrics.
_BAD_TOGETHER, _BAD_SHARE = 3, 1 / 3
#: The fewest rows of a table whose cases are judged by several threads, and the most of these.
_LARGE, _THREADS = 1 << 20, 8
#: How often a metric is measured before its verdict is final: without a known error, and with one.
_MOST_WITHOUT_ERROR = 3
MOST_REPETITIONS = 12


def judge(
    records: Iterable[Record], system: System | Undescribed, *, missing: Mapping[str, Sequence[str]] | None = None
) -> list[HostVerdict]:
    """Return the verdict of every host that has records of *system*, or that is among *missing*, by name.

    *missing* names, by host, what should have been measured and was not. A case that judges hosts and that most
    hosts have is missing on the others, too. A metric without a reference, or with one without the error of a
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
    judging = _Judging(samples, system, fleet=fleet)
    cases = judging.cases()
    now, is_open = (
        np.concatenate([samples.valid[:0], *(getattr(case, name) for case in cases)])
        for name in ("now", "is_open")
    )
    verdicts = np.concatenate([_NO_VERDICT, *(case.verdicts for case in cases)])
    words, by, more, evidence = (np.ascontiguousarray(verdicts[name]) for name in VERDICT.names or ())
    values = Measured.of(samples, now, is_open)
    numbered = list(zip(samples.of_case.tolist(), cases, strict=False))
    intermittent = {first + group: text for first, case in numbered for group, text in case.intermittent.items()}
    words[(words == UNDECIDED) & beyond_chance(evidence, samples.host, sprt.CHANCE)] = SUSPECT
    words[list(intermittent)], more[list(intermittent)] = SUSPECT, 0
    bad_together = _bad_together(samples, values.n, words, evidence, more)
    words[bad_together], more[bad_together] = FAIL, 0
    findings = Findings(
        samples,
        values,
        system,
        [case.references for case in cases],
        words=words,
        by=by,
        evidence=evidence,
        more=more,
        missing=missing or {},
        divided={number: case.divided for number, case in enumerate(cases) if case.divided is not None},
        own={first + group: own for first, case in numbered for group, own in case.own_references.items()},
        visible={number: case.visible for number, case in enumerate(cases) if case.visible is not None},
        intermittent=intermittent,
        awaiting_session={first + group for first, case in numbered for group in case.awaiting_session},
        configurations=configurations,
    )
    for group in np.flatnonzero(words == UNDECIDED).tolist():
        reference, better = findings.decider(group), samples.cases[samples.case[group]].better
        if reference is not None and lacks_half(float(values.value[group]), better, reference):
            words[group] = SUSPECT
    return findings


_NO_VERDICT = verdict_rows(0, PASS, NONE)


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

    @property
    def is_open(self) -> Bools:
        """Which groups may not pass."""
        is_open: Bools = self.verdicts["words"] > PASS
        is_open[list(self.intermittent)] = True
        return is_open


class _Judging:
    """Judges the cases of some samples, each alone but for the spreads that the metrics of few hosts share."""

    def __init__(self, samples: SamplesTable, system: System | Undescribed, *, fleet: bool) -> None:
        self._samples, self._system, self._fleet = samples, system, fleet
        self._events = event_limits.EventLimits(self._samples)
        metrics = sum(not case.exact and event_limits.limit_of(case) is None for case in samples.cases)
        self._metrics = max(1, metrics)
        # The metrics of a small fleet are judged together.
        self._pooled = pooled_judges(samples, self._metrics) if fleet else {}

    def cases(self) -> list[_Case]:
        """Return the verdicts of all cases. Those of a large table are judged by several threads."""
        numbers = range(len(self._samples.cases))
        threads = min(len(os.sched_getaffinity(0)), _THREADS) if len(self._samples.value) >= _LARGE else 1
        if threads == 1:
            return [*map(self._case, numbers)]
        with ThreadPoolExecutor(threads) as pool:
            return [*pool.map(self._case, numbers)]

    def _case(self, number: int) -> _Case:
        samples = self._samples
        case, groups = samples.cases[number], samples.groups(number)
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
            judge.visible,
            judge.divided,
        )


def _bad_together(
    samples: SamplesTable,
    n: NDArray[np.uint32],
    words: NDArray[np.uint8],
    evidence: Floats,
    more: NDArray[np.int32],
) -> Bools:
    """Return the groups that fail because many metrics of a host, or of one check of it, are bad in a few samples.

    A disturbance hits a repetition now and then. Repetitions of different metrics are measured one after the
    other, so together they are as many looks at the host as repetitions of one metric would be. *n* is the number
    of repetitions that count.
    """
    together = np.zeros(len(words), dtype=np.bool_)
    # What good hosts differ by nature, and the groups of a divided fleet, ask for no further repetitions.
    bad = (words == SUSPECT) & (evidence >= -math.log(sprt.CHANCE)) & (n > 1) & (more > 0)
    if not bad.any():
        return together
    checks = {name: number for number, name in enumerate(dict.fromkeys(case.check for case in samples.cases))}
    check_of = [checks[case.check] for case in samples.cases]
    # How many metrics of each check and host are bad, and how many have evidence. A case has a host once.
    counts = np.zeros((2, len(checks), len(samples.hosts)), dtype=np.int64)
    for number, check in enumerate(check_of):
        groups = samples.groups(number)
        counts[:, check, samples.host[groups]] += (bad[groups], np.isfinite(evidence[groups]))
    of_checks = _are_many(*counts)
    of_all = _are_many(*counts.sum(axis=1))
    bad_groups = np.flatnonzero(bad)
    hosts = samples.host[bad_groups]
    checks_of_bad = np.array(check_of)[samples.case[bad_groups]]
    together[bad_groups] = of_all[hosts] | of_checks[checks_of_bad, hosts]
    return together


def _are_many(bad: Ints, judged: Ints) -> Bools:
    """Return whether so many of some *judged* metrics are *bad* that they fail a host together."""
    many: Bools = (bad >= _BAD_TOGETHER) & (bad >= _BAD_SHARE * judged)
    return many


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
    table, counts = verdicts.samples, verdicts.n
    enough = counts >= np.where(np.isnan(verdicts.evidence), _MOST_WITHOUT_ERROR, most)
    exact = np.array([case.exact for case in table.cases], dtype=np.bool_)[table.case]
    groups = np.flatnonzero(verdicts.disturbed | (verdicts.unsure & ~enough & ~exact))
    return {table.cases[table.case[group]].key: int(counts[group]) for group in groups}


def undecided_cases(verdicts: Findings, host: str, most: int = MOST_REPETITIONS) -> dict[str, int]:
    """Return the keys of the cases of a *host* that one more repetition may decide, with their repetitions so far.

    These have fewer than *most* repetitions and are undecided, suspect or unsure, were only measured while other
    processes used the host, cannot be compared with the fleet yet, or see too little in that comparison.
    """
    table, groups = verdicts.samples, verdicts.groups(host)
    is_count = np.array([table.cases[number].unit == "1" for number in table.case[groups]], dtype=np.bool_)
    unknown = (verdicts.by[groups] == NONE) & ~is_count
    wanted = verdicts.unsure[groups] | unknown | verdicts.disturbed[groups] | verdicts.blind_groups(host)
    of_events = np.array([event_limits.limit_of(table.cases[n]) is not None for n in table.case[groups]], np.bool_)
    groups = groups[wanted & ~of_events & (table.counts[groups] < most)]
    return {table.cases[table.case[group]].key: int(table.counts[group]) for group in groups}
