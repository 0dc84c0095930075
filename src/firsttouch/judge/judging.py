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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from firsttouch.judge import event_limits, fleet_level, samples_table, sprt
from firsttouch.judge.case_judge import (
    FAIL,
    FLEET,
    INVALID,
    MOST_COUNTED,
    NONE,
    OWN,
    PASS,
    SUSPECT,
    SYSTEM,
    UNDECIDED,
    CaseJudge,
    Verdicts,
    out_of_limits,
    pooled_judges,
    verdict_rows,
)
from firsttouch.judge.causes import Symptoms, causes
from firsttouch.judge.common_loss import CommonLoss, changed_together, common_loss
from firsttouch.judge.drift import Configuration, Drift, drift, latest
from firsttouch.judge.fleet_level import Divided
from firsttouch.judge.samples_table import BANK_BANDWIDTH, SamplesTable
from firsttouch.judge.sprt import Bools, Floats, Groups, Ints
from firsttouch.judge.statistics import beyond_chance
from firsttouch.judge.verdict import ORDER, Finding, HostVerdict, Word, compared, figure, natural
from firsttouch.records.cases import Case
from firsttouch.records.schema import Better, Record
from firsttouch.systems.references import FACTS, Reference

if TYPE_CHECKING:
    from firsttouch.systems.definition import System

#: The fewest metrics that fail a host together, and their least share of its metrics.
_BAD_TOGETHER, _BAD_SHARE = 3, 1 / 3
#: How often a metric is measured before its verdict is final: without a known error, and with one.
_MOST_WITHOUT_ERROR = 3
MOST_REPETITIONS = 12
_NO_REFERENCE, _NO_PLACEMENT = "no reference", "its placement did not hold"
_TWO = "nothing shows which group is right: `firsttouch baseline --hosts` learns from one of them"
_OF_TWO = ", the host is in the worse of two groups of hosts"
#: Metrics that are stated as shares of the theoretical bandwidth of a bank, with their verbs.
_OF_THEORY = {"saturation_bandwidth": "saturates", "peak_bandwidth": "reaches its peak"}
_DISTURBED = "disturbed: other processes used {busy:.2g} PUs; measure it again"


def _reason(
    values: Sequence[float],
    better: Better,
    reference: Reference,
    whose: str,
    *,
    word: Word,
    evidence: float | None,
    more: int,
    natural_suspicion: bool,
) -> str:
    """Return the reason of a verdict; *word*, *evidence* and *more* are those of :class:`Judged`.

    *whose* value is expected. The certainty of a fail by the sequential test is that of its error rates, and of a
    suspicion that of :func:`firsttouch.judge.statistics.beyond_chance`.
    """
    parts = [compared(values, reference, whose)]
    outside = int(np.count_nonzero(out_of_limits(np.array(values), better, reference)[0]))
    fine = evidence <= 0 if evidence is not None else 2 * outside < len(values)
    if word == "fail":
        parts.append("certain" if evidence is not None or len(values) == 1 else "all outside the limits")
    elif word == "suspect" and fine and reference.line:
        parts.append("better than it can be: a wrong measurement or reference")
    elif word == "suspect" and evidence is not None and more:
        parts.append(f"over {100 * (1 - sprt.CHANCE):.0f} % certain")
    elif word == "suspect" and natural_suspicion:
        parts.append(f"further than {100 * (1 - fleet_level.SUSPECT_TAIL):.0f} % of good hosts by nature")
    elif word == "undecided" and evidence is None:
        parts.append(f"outside the limits in {outside} of {len(values)}")
    if word == "undecided" and more:
        count = f"over {MOST_COUNTED - 1}" if more >= MOST_COUNTED else f"about {more}"
        parts.append(f"needs {count} more {'repetition' if more == 1 else 'repetitions'}")
    return ", ".join(parts)


def _of_theory(metric: str, values: Sequence[float], reference: Reference, theory: float | None) -> str:
    """Return ``saturates at 61 % of theory; this system's reference is 78 to 84 %``, in GB/s without *theory*."""
    ends = [end for end in (reference.minimum, reference.maximum) if end is not None]
    low, high = min([*ends, reference.value]), max([*ends, reference.value])
    median = float(np.median(values))
    whose = "system" if reference.line else "fleet"
    if theory:
        at, of = (
            f"{100 * median / theory:.0f} % of theory",
            f"{100 * low / theory:.0f} to {100 * high / theory:.0f} %",
        )
    else:
        at, of = f"{median:.4g} {reference.unit}", f"{low:.4g} to {high:.4g} {reference.unit}"
    return f"{_OF_THEORY[metric]} at {at}; this {whose}'s reference is {of}; "


# ----------------------------------------------------------------------
# The verdicts of all hosts


@dataclass(frozen=True)
class Undescribed:
    """A system without a file: only its fleet judges."""

    name: str
    facts: None = None

    def reference(self, *_: object) -> None:
        """Return None: there is no reference."""

    def fact(self, *_: object) -> None:
        """Return None: there are no facts."""


@dataclass(frozen=True)
class Judged:
    """The verdicts of a fleet in columns.

    *expected* are the references that judge each case: the system's and the fleet's. *own* has, by the number of
    the group, the host's own reference: its own level if the host is worse than that, or what the fleet reached
    before an update that the host has not been measured since. Of each group of *samples* there are the
    *words* as numbers (see :data:`PASS`), which of the three references decided (*by*; 3: none), the *evidence*
    (NaN: no error is known), and about how many *more* repetitions would decide an undecided or suspect group
    (0: none would). *counts_now* marks the rows that count: valid, and newer than the host's last change. By the
    number of the case, *visible* is the smallest loss that a comparison with the fleet finds. By the number of the
    group, *intermittent* says how often a host was bad that is good in most repetitions.
    The :attr:`value` of each group and its :attr:`change` follow from these. *missing* names, by host, what should
    have been measured and was not, with the reason. *divided* has, by the number of its case, each metric in which
    the hosts form two groups. Hosts of the worse group are suspect, as nothing shows which group is right.

    Reasons are composed only for the hosts that are asked for (:meth:`of`), so that a large fleet stays cheap.
    """

    samples: SamplesTable
    system: System | Undescribed
    expected: Sequence[tuple[Reference | None, Reference | None]]
    words: NDArray[np.uint8]
    by: NDArray[np.uint8]
    evidence: Floats
    more: Ints
    counts_now: Bools
    missing: Mapping[str, Sequence[str]]
    divided: Mapping[int, Divided]
    own: Mapping[int, Reference]
    visible: Mapping[int, float]
    intermittent: Mapping[int, str]
    #: Returns the newest configuration of each host; called only if a host is suspect or fails.
    configurations: Callable[[], Mapping[str, Configuration]] = dict

    @cached_property
    def _drift(self) -> Drift:
        """How the configurations of the hosts differ."""
        return drift({host: c for host, c in self.configurations().items() if host in self.number})

    @cached_property
    def hosts(self) -> list[str]:
        """All hosts by name: those with repetitions, and those of which something is missing."""
        return sorted({*self.samples.hosts, *self.missing})

    @cached_property
    def number(self) -> Mapping[str, int]:
        """The number of each host that has repetitions."""
        return {name: i for i, name in enumerate(self.samples.hosts)}

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """The number of groups of each host by word; the last column counts those that nothing judges."""
        unjudged = (self.by == NONE) & (self.words == PASS)
        column = np.where(unjudged, np.uint8(len(ORDER)), self.words)
        width = len(ORDER) + 1
        cells = (self.samples.host * width + column)[~self._quiet]
        counts = np.bincount(cells, minlength=len(self.samples.hosts) * width)
        return counts.reshape(-1, width)

    @cached_property
    def judging(self) -> NDArray[np.bool_]:
        """Which cases judge at least one host, and should be known of every host.

        Cases of events are known of those hosts only on which there were some.
        """
        counts = np.bincount(self.samples.case[self.by != NONE], minlength=len(self.samples.cases))
        return (counts > 0) & ~self._of_events

    @cached_property
    def _of_events(self) -> Bools:
        """Which cases count events."""
        return np.array([event_limits.limit_of(case) is not None for case in self.samples.cases], np.bool_)

    @cached_property
    def _quiet(self) -> Bools:
        """Which groups are of events that did not happen, or not too often: they count as no metric."""
        quiet: Bools = (self.by == NONE) & self._of_events[self.samples.case]
        return quiet

    @cached_property
    def absent(self) -> Ints:
        """How many of these cases each host has no repetition of."""
        present = self.samples.host[self.judging[self.samples.case]]
        return np.count_nonzero(self.judging) - np.bincount(present, minlength=len(self.samples.hosts))

    @cached_property
    def unsure(self) -> Bools:
        """Which groups are undecided or suspect, or have too little evidence for either verdict."""
        open_: Bools = (self.words == UNDECIDED) | (self.words == SUSPECT)
        return open_ | ((self.evidence > sprt.PASS_AT) & (self.evidence < sprt.FAIL_AT))

    @cached_property
    def disturbed(self) -> Bools:
        """Which groups are invalid only because other processes used the host."""
        valid = Groups(self.samples.value, self.samples.counts).sums(self.samples.valid.astype(np.int64))
        invalid: Bools = self.words == INVALID
        return invalid & (valid > 0)

    def word(self, host: str) -> int:
        """Return the number of a host's verdict."""
        number = self.number.get(host)
        if number is None:
            return SUSPECT
        some = np.flatnonzero(self.counts[number, : len(ORDER)])
        worst = int(some[-1]) if len(some) else UNDECIDED
        return max(worst, SUSPECT) if self.missing.get(host) or self.absent[number] else worst

    @cached_property
    def value(self) -> Floats:
        """The median of the repetitions of each group that count, in the unit of its case; NaN if none counts."""
        samples = self.samples
        counts = Groups(samples.value, samples.counts).sums(self.counts_now.astype(np.int64))
        medians = np.full(len(counts), np.nan)
        if counts.any():
            medians[counts > 0] = Groups(samples.value[self.counts_now], counts[counts > 0]).medians()
        return medians

    def decider(self, group: int) -> Reference | None:
        """Return the reference that decided a group, None if none did."""
        by = int(self.by[group])
        if by in {OWN, FLEET} and group in self.own:
            return self.own[group]
        return None if by == NONE else self.expected[int(self.samples.case[group])][by]

    def of_decider(self, attribute: str) -> Floats:
        """Return a number of the reference that decided each group: its value, minimum or maximum; NaN if none."""
        numbers = np.full((len(self.samples.cases), NONE + 1), np.nan)
        for case, references in enumerate(self.expected):
            for by, reference in enumerate(references):
                if reference is not None and (number := getattr(reference, attribute)) is not None:
                    numbers[case, by] = number
        of_groups: Floats = numbers[self.samples.case, self.by]
        for group, own in self.own.items():
            if self.by[group] in {OWN, FLEET} and (number := getattr(own, attribute)) is not None:
                of_groups[group] = number
        return of_groups

    @cached_property
    def change(self) -> Floats:
        """The relative difference of each group's value from what its reference expects; NaN if none decided."""
        return self._relative(self.of_decider("value"))

    @cached_property
    def deviation(self) -> Floats:
        """The relative difference of each group's value from the :meth:`reference` of its case.

        All hosts are compared with the same value, so these can be drawn and counted together. NaN: not judged.
        """
        references = map(self.reference, range(len(self.samples.cases)))
        values = np.array([reference.value if reference else np.nan for reference in references], dtype=float)
        return self._relative(np.where(self.by == NONE, np.nan, values[self.samples.case]))

    def _relative(self, expected: Floats) -> Floats:
        """Return the relative difference of each value from *expected*; the number of events has none."""
        comparable = (expected > 0) & ~self._of_events[self.samples.case]
        return self.value / np.where(comparable, expected, np.nan) - 1

    def reference(self, case: int) -> Reference | None:
        """Return the reference that pages compare all hosts with: the one that decided the worst verdict."""
        system, fleet = self.expected[case]
        if system is None or fleet is None:
            return system or fleet
        groups = self.samples.groups(case)
        worst = [int(self.words[groups][self.by[groups] == by].max(initial=PASS)) for by in (SYSTEM, FLEET)]
        return fleet if worst[FLEET] > worst[SYSTEM] else system

    @cached_property
    def losses(self) -> Floats:
        """How much worse than expected each group is, as a fraction from 0 (a pass) to 1."""
        better = np.array([c.better for c in self.samples.cases])[self.samples.case]
        worse = np.where(better == "higher", -self.change, self.change)
        worse[better == "neither"] = np.abs(worse[better == "neither"])
        return np.where(self.words > PASS, np.clip(np.nan_to_num(worse), 0.0, 1.0), 0.0)

    @cached_property
    def common_loss(self) -> CommonLoss | None:
        """The loss against the system's references that most hosts share, None if there is none."""
        return common_loss(self, worse_than=UNDECIDED, reference=SYSTEM)

    def by_severity(self) -> list[str]:
        """Return all hosts, the worst first: by the verdict, then by the largest loss (1 if something is missing).

        The number of losses does not count: many small ones are not worse than a large one.
        """
        largest = np.zeros(len(self.samples.hosts))
        np.maximum.at(largest, self.samples.host, self.losses)

        def severity(host: str) -> tuple[int, float, object]:
            number = self.number.get(host)
            gone = number is None or self.missing.get(host) or self.absent[number]
            return -self.word(host), -1.0 if gone else -float(largest[number]), natural(host)

        return sorted(self.hosts, key=severity)

    def line(self, host: str) -> str:
        """Return the one-line verdict of a host without its evidence."""
        number = self.number.get(host)
        counts = [0] * (len(ORDER) + 1) if number is None else self.counts[number].tolist()
        lost = len(self.missing.get(host, ())) + (0 if number is None else int(self.absent[number]))
        parts = [f"{counts[PASS]} of {sum(counts[:-1])} judged metrics pass"]
        parts += [f"{count} {ORDER[i]}" for i, count in enumerate(counts[:-1]) if count and i != PASS]
        parts += [f"{lost} missing"] if lost else []
        return f"verdict {host} {ORDER[self.word(host)]}: {'; '.join(parts)}"

    def notes(self) -> list[str]:
        """Return the lines about the fleet: losses that hosts share, and its divisions into two groups.

        Metrics that divide the hosts alike share a line, which shows the one with the largest difference.
        """
        alike: dict[tuple[tuple[str, ...], ...], list[int]] = {}
        for number, two in self.divided.items():
            # Which group is the better one may differ from metric to metric.
            alike.setdefault(tuple(sorted((tuple(two.better), tuple(two.worse)))), []).append(number)
        shared = self.common_loss.text if self.common_loss else changed_together(self, worse_than=UNDECIDED)
        lines = [shared] if shared else []
        for numbers in sorted(alike.values(), key=len, reverse=True):
            number = max(numbers, key=lambda n: self.divided[n].apart)
            case, two = self.samples.cases[number], self.divided[number]
            count = "1 metric" if len(numbers) == 1 else f"{len(numbers)} metrics"
            lines.append(f"two groups of hosts in {count}: {case.title}: {two.text(case.unit)}; {_TWO}")
        return lines

    def groups(self, host: str) -> NDArray[np.intp]:
        """Return the groups of a host, by case."""
        number = self.number.get(host)
        return np.empty(0, dtype=np.intp) if number is None else self.samples.groups_of_host(number)

    def of(self, host: str) -> HostVerdict:
        """Return the verdict of one host with its evidence."""
        groups = self.groups(host)
        settings = self.samples.settings.get(host, {})
        metrics = list(self._findings(groups, settings.get(BANK_BANDWIDTH)))
        findings = tuple(f for f in metrics if f.reference or f.verdict != "pass")
        lost = self._lost(groups)
        slow = any(f.verdict in {"suspect", "fail"} for f in findings)
        modules = self._drift.modules(host, lambda name: self.word(name) == PASS) if slow else None
        missing = [(case.check, case.parameters) for case in lost]
        symptoms = Symptoms(findings, settings, self.system.facts, missing, modules)
        return HostVerdict(
            host,
            self.system.name,
            findings,
            len(metrics) - len(findings),
            (*self.missing.get(host, ()), *(f"{case.title}: other hosts were judged by it" for case in lost)),
            tuple(causes(symptoms)) if slow else (),
            described=self.system.facts is not None,
            visible=self._visible(groups),
        )

    def _visible(self, groups: NDArray[np.intp]) -> tuple[float, float] | None:
        """Return the smallest losses that the fleet's comparison finds: of the median metric and of the worst."""
        by_fleet = groups[self.by[groups] == FLEET]
        losses = [
            self.visible[number] for number in self.samples.case[by_fleet].tolist() if number in self.visible
        ]
        return (float(np.median(losses)), max(losses)) if losses else None

    def _lost(self, groups: NDArray[np.intp]) -> list[Case]:
        """Return the cases that judge other hosts and that a measured host lacks."""
        if not len(groups):
            return []
        lost = self.judging.copy()
        lost[self.samples.case[groups]] = False
        return [self.samples.cases[number] for number in np.flatnonzero(lost).tolist()]

    def _findings(self, groups: NDArray[np.intp], theory: float | None) -> Iterator[Finding]:
        """Yield the finding of each group; its reference is None if nothing judges it.

        *theory* is the theoretical bandwidth of one bank (GB/s).
        """
        samples, groups = self.samples, groups[~self._quiet[groups]]
        columns = samples.case, self.by, self.words, self.evidence, self.more, samples.begins, samples.counts
        lists = (column[groups].tolist() for column in columns)
        for group, number, by, verdict, weight, more, begin, count in zip(groups.tolist(), *lists, strict=True):
            case, word, rows = samples.cases[number], ORDER[verdict], slice(begin, begin + count)
            values = tuple(samples.value[rows][self.counts_now[rows]].tolist())
            reference = self.decider(group)
            evidence = None if math.isnan(weight) else weight
            if word == "invalid":
                values, why = (), self._invalid(group, rows)
            elif reference is None:
                why = _NO_REFERENCE
            elif reference.source == FACTS:
                why = f"this host has {figure(values[-1])}, {self.system.name} has {figure(reference.value)}"
            elif limit := event_limits.limit_of(case):
                why = event_limits.reason(values, limit)
            else:
                learnt = by == FLEET or reference.source.startswith("fleet")
                whose = "the fleet" if learnt else f"the reference of {self.system.name}"
                whose = f"its {reference.source}" if by == OWN else whose
                is_intermittent = group in self.intermittent
                state: Any = {"word": "pass" if is_intermittent else word, "evidence": evidence, "more": more}
                natural_suspicion = by == FLEET and number not in self.divided
                why = _reason(values, case.better, reference, whose, **state, natural_suspicion=natural_suspicion)
                if is_intermittent:
                    why += f", {self.intermittent[group]}"
                if case.metric in _OF_THEORY:
                    why = _of_theory(case.metric, values, reference, theory) + why
            if word == "suspect" and by == FLEET and number in self.divided and not more:
                why += _OF_TWO
            naming = (case.check, case.metric, case.parameters, case.unit)
            state = {"better": case.better, "more": more, "title": case.title}
            yield Finding(*naming, values, reference, word, why, evidence, **state)

    def _invalid(self, group: int, rows: slice) -> str:
        """Return why no repetition of a group's newest session counts."""
        groups = slice(group, group + 1)
        session, valid = self.samples.session(groups), self.samples.valid[rows]
        if not valid[session == session[-1]].any():
            return self.samples.rows["reason"][rows.stop - 1] or _NO_PLACEMENT
        busy = self.samples.busy(groups)
        return _DISTURBED.format(busy=0 if busy is None else busy[valid].max())


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
) -> Judged:
    """Return the verdicts of *samples*, all of *system*, in columns; without *fleet*, only references judge.

    *configurations* returns the newest configuration of each host, to name causes.
    """
    verdicts, now = verdict_rows(len(samples.counts), PASS, NONE), samples.valid.copy()
    expected: list[tuple[Reference | None, Reference | None]] = []
    divisions, events = {}, event_limits.EventLimits(samples)
    visible: dict[int, float] = {}
    owns: dict[int, Reference] = {}
    intermittent: dict[int, str] = {}
    metrics = sum(not case.exact and event_limits.limit_of(case) is None for case in samples.cases)
    judges = pooled_judges(samples, max(1, metrics)) if fleet else {}
    for number, case in enumerate(samples.cases):
        groups = samples.groups(number)
        if limit := event_limits.limit_of(case):
            limited = events.judge(number, limit)
            verdicts["words"][groups] = limited.words
            # That nothing happened makes no host good.
            verdicts["by"][groups][limited.words > PASS] = SYSTEM
            now[samples.rows_of(groups)] = limited.now
            expected.append((event_limits.reference(case, limit), None))
            continue
        own = system.reference(case.check, case.metric, case.parameters)
        judge = judges.pop(number, None) or CaseJudge(case, samples, groups, max(1, metrics))
        judge.own = own
        if fleet:
            judge.learn()
        verdicts[groups], now[samples.rows_of(groups)] = judge.judge()
        if own is None and (own := system.fact(case.check, case.metric)) is not None:
            # Facts fail a host. That it has what they state makes no host good.
            by_fact = judge.judge_by(SYSTEM, own)[0]
            fails = by_fact["words"] == FAIL
            verdicts[groups][fails] = by_fact[fails]
        expected.append((own, judge.fleet))
        owns |= {groups.start + group: reference for group, reference in judge.own_references.items()}
        for group, text in judge.intermittent(verdicts["words"][groups]).items():
            intermittent[groups.start + group] = text
            verdicts["by"][groups.start + group] = FLEET
        if judge.level is not None:
            visible[number] = judge.level.visible
        if judge.divided is not None:
            divisions[number] = judge.divided
    words, evidence = verdicts["words"], verdicts["evidence"]
    words[(words == UNDECIDED) & beyond_chance(evidence, samples.host, sprt.CHANCE)] = SUSPECT
    words[list(intermittent)], verdicts["more"][list(intermittent)] = SUSPECT, 0
    bad_together = _bad_together(samples, verdicts, now)
    words[bad_together], verdicts["more"][bad_together] = FAIL, 0
    return Judged(
        samples,
        system,
        expected,
        words=words,
        by=verdicts["by"],
        evidence=evidence,
        more=verdicts["more"],
        counts_now=now,
        missing=missing or {},
        divided=divisions,
        own=owns,
        visible=visible,
        intermittent=intermittent,
        configurations=configurations,
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


def undecided_cases(verdicts: Judged, host: str, most: int = MOST_REPETITIONS) -> dict[str, int]:
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
