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
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from firsttouch.benchmarks.kernel_settings import BUSY
from firsttouch.judge import event_limits, fleet_level, host_level, samples_table, sprt
from firsttouch.judge.causes import Symptoms, causes
from firsttouch.judge.common_loss import CommonLoss, common_loss
from firsttouch.judge.drift import Configuration, Drift, drift, latest
from firsttouch.judge.fleet_level import FEWEST_HOSTS, LOSS, Divided, Level, divided, level
from firsttouch.judge.samples_table import BANK_BANDWIDTH, SamplesTable
from firsttouch.judge.sprt import Bools, Floats, Groups, Ints
from firsttouch.judge.statistics import student_quantile
from firsttouch.judge.verdict import ORDER, Finding, HostVerdict, Word, compared, figure, natural
from firsttouch.records.schema import Better, Record
from firsttouch.systems.cases import Case
from firsttouch.systems.references import FACTS, Reference

if TYPE_CHECKING:
    from firsttouch.systems.definition import System

#: The verdicts as numbers, from good to bad.
PASS, UNDECIDED, SUSPECT, INVALID, FAIL = range(len(ORDER))
#: The number of the reference that decided: the system's, the fleet's, the host's own level, or none.
_SYSTEM, _FLEET, _OWN, _NONE = range(4)
#: Two groups of hosts are further apart than this many times what hosts wander from session to session.
_APART = 3.0
#: What most hosts have lost is stated if it is at least this share.
_COMMON = 0.005
#: Deviations of good hosts beyond which a host does not pass if chance hides a loss.
_UNUSUAL = 3.0
#: A host is intermittent if it was bad now and then, this many times at least. It is repaired if as many good
#: sessions as it has had since are less likely than this.
_FEWEST_BAD_RUNS, _REPAIRED = 3, 0.1
#: The fewest metrics that fail a host together, and their least share of its metrics.
_BAD_TOGETHER, _BAD_SHARE = 3, 1 / 3
#: The largest fleet whose metrics are taken together to learn how far good hosts differ.
_POOLED_HOSTS = 64
#: The largest number of further repetitions that is counted.
_MANY = 999
#: How often a metric is measured before its verdict is final: without a known error, and with one.
_MOST_WITHOUT_ERROR = 3
MOST_REPETITIONS = 12
_NO_REFERENCE, _NO_PLACEMENT = "no reference", "its placement did not hold"
_TWO = "nothing shows which group is right: `firsttouch baseline --hosts` learns from one of them"
_OF_TWO = ", the host is in the worse of two groups of hosts"
#: Metrics that are stated as shares of the theoretical bandwidth of a bank, with their verbs.
_OF_THEORY = {"saturation_bandwidth": "saturates", "peak_bandwidth": "reaches its peak"}
_DISTURBED = "disturbed: other processes used {busy:.2g} PUs; measure it again"


# ----------------------------------------------------------------------
# The verdict of one reference on groups of repetitions


#: The verdict of a group of repetitions, one column of :class:`Judged` per field.
_VERDICT = np.dtype([("words", "u1"), ("by", "u1"), ("more", "i4"), ("evidence", "f8")], align=True)
_Verdicts = NDArray[np.void]


def _verdicts(count: int, word: int, by: int, more: int = 0) -> _Verdicts:
    """Return *count* equal verdicts without evidence."""
    return np.full(count, np.array((word, by, more, np.nan), dtype=_VERDICT))


def _test(samples: Groups, better: Better, reference: Reference, by: int, *, exact: bool) -> _Verdicts:
    """Return the verdict of *reference* on each group of repetitions, oldest first.

    *by* is the number of the reference. The last of *exact* values decides: they are read and not measured.
    Otherwise all repetitions decide, by their evidence if the error of a repetition is known. If not, they are
    counted: outside in all of at least two is a fail, outside in less than half of them a pass, and anything
    between is undecided. Which undecided groups are suspect depends on all metrics of a host
    (:func:`firsttouch.judge.sprt.beyond_chance`).
    """
    bad, good = _outside(samples.values, better, reference)
    verdicts = _verdicts(len(samples), PASS, by)
    words, more = verdicts["words"], verdicts["more"]
    sides = _evidence_by_side(samples.values, better, reference)
    counted = samples.counts
    if exact:
        words[bad[samples.ends]] = FAIL
    elif sides:
        evidence = np.maximum.reduce([samples.sums(side) for side in sides])
        _decide(verdicts, evidence, counted, reference)
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


def _decide(verdicts: _Verdicts, evidence: Floats, counts: Ints, reference: Reference) -> None:
    """Set the verdicts that follow from the *evidence* of some repetitions (*counts*) of each group."""
    limit = max(abs(end) for end in (reference.lower, reference.upper) if end)
    words, more = verdicts["words"], verdicts["more"]
    verdicts["evidence"] = evidence
    words[evidence > 0] = UNDECIDED
    words[evidence >= sprt.FAIL_AT] = FAIL
    # As many as at the present rate, or as decide about the loss that must be detected.
    to_fail = np.ceil(counts * (sprt.FAIL_AT - evidence) / np.maximum(evidence, 1e-9))
    more[:] = np.clip(
        np.minimum(to_fail, sprt.repetitions_to_fail(evidence, limit, reference.error or 0.0)), 1, _MANY
    )
    more[words != UNDECIDED] = 0


def _outside(values: Floats, better: Better, reference: Reference) -> tuple[Bools, Bools]:
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
    suspicion that of :func:`firsttouch.judge.sprt.beyond_chance`.
    """
    parts = [compared(values, reference, whose)]
    outside = int(np.count_nonzero(_outside(np.array(values), better, reference)[0]))
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
        count = f"over {_MANY - 1}" if more >= _MANY else f"about {more}"
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
    the group, the host's own level if the host is worse than that. Of each group of *samples* there are the
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
        unjudged = (self.by == _NONE) & (self.words == PASS)
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
        counts = np.bincount(self.samples.case[self.by != _NONE], minlength=len(self.samples.cases))
        return (counts > 0) & ~self._of_events

    @cached_property
    def _of_events(self) -> Bools:
        """Which cases count events."""
        return np.array([event_limits.limit_of(case) is not None for case in self.samples.cases], np.bool_)

    @cached_property
    def _quiet(self) -> Bools:
        """Which groups are of events that did not happen, or not too often: they count as no metric."""
        quiet: Bools = (self.by == _NONE) & self._of_events[self.samples.case]
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
        if by == _OWN:
            return self.own[group]
        return None if by == _NONE else self.expected[int(self.samples.case[group])][by]

    def of_decider(self, attribute: str) -> Floats:
        """Return a number of the reference that decided each group: its value, minimum or maximum; NaN if none."""
        numbers = np.full((len(self.samples.cases), _NONE + 1), np.nan)
        for case, references in enumerate(self.expected):
            for by, reference in enumerate(references):
                if reference is not None and (number := getattr(reference, attribute)) is not None:
                    numbers[case, by] = number
        of_groups: Floats = numbers[self.samples.case, self.by]
        for group, own in self.own.items():
            if self.by[group] == _OWN and (number := getattr(own, attribute)) is not None:
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
        return self._relative(np.where(self.by == _NONE, np.nan, values[self.samples.case]))

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
        worst = [int(self.words[groups][self.by[groups] == by].max(initial=PASS)) for by in (_SYSTEM, _FLEET)]
        return fleet if worst[_FLEET] > worst[_SYSTEM] else system

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
        return common_loss(self, worse_than=UNDECIDED, reference=_SYSTEM)

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
        """Return the lines about the fleet: a loss that most hosts share, and its divisions into two groups.

        Metrics that divide the hosts alike share a line, which shows the one with the largest difference.
        """
        alike: dict[tuple[tuple[str, ...], ...], list[int]] = {}
        for number, two in self.divided.items():
            # Which group is the better one may differ from metric to metric.
            alike.setdefault(tuple(sorted((tuple(two.better), tuple(two.worse)))), []).append(number)
        lines = [self.common_loss.text] if self.common_loss else []
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
        by_fleet = groups[self.by[groups] == _FLEET]
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
                learnt = by == _FLEET or reference.source.startswith("fleet")
                whose = "the fleet" if learnt else f"the reference of {self.system.name}"
                whose = f"its {reference.source}" if by == _OWN else whose
                is_intermittent = group in self.intermittent
                state: Any = {"word": "pass" if is_intermittent else word, "evidence": evidence, "more": more}
                natural_suspicion = by == _FLEET and number not in self.divided
                why = _reason(values, case.better, reference, whose, **state, natural_suspicion=natural_suspicion)
                if is_intermittent:
                    why += f", {self.intermittent[group]}"
                if case.metric in _OF_THEORY:
                    why = _of_theory(case.metric, values, reference, theory) + why
            if word == "suspect" and by == _FLEET and number in self.divided and not more:
                why += _OF_TWO
            naming = (case.check, case.metric, case.parameters, case.unit)
            state = {"better": case.better, "more": more, "distinctive": case.distinctive}
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
    verdicts, now = _verdicts(len(samples.counts), PASS, _NONE), samples.valid.copy()
    expected: list[tuple[Reference | None, Reference | None]] = []
    divisions, events = {}, event_limits.EventLimits(samples)
    visible: dict[int, float] = {}
    owns: dict[int, Reference] = {}
    intermittent: dict[int, str] = {}
    metrics = sum(not case.exact and event_limits.limit_of(case) is None for case in samples.cases)
    judges = _pooled(samples, max(1, metrics)) if fleet and len(samples.hosts) <= _POOLED_HOSTS else {}
    for number, case in enumerate(samples.cases):
        groups = samples.groups(number)
        if limit := event_limits.limit_of(case):
            limited = events.judge(number, limit)
            verdicts["words"][groups] = limited.words
            # That nothing happened makes no host good.
            verdicts["by"][groups][limited.words > PASS] = _SYSTEM
            now[samples.rows_of(groups)] = limited.now
            expected.append((event_limits.reference(case, limit), None))
            continue
        own = system.reference(case.check, case.metric, case.parameters)
        judge = judges.pop(number, None) or _CaseJudge(case, samples, groups, max(1, metrics))
        judge.own = own
        if fleet:
            judge.learn()
        verdicts[groups], now[samples.rows_of(groups)] = judge.judge()
        if own is None and (own := system.fact(case.check, case.metric)) is not None:
            # Facts fail a host. That it has what they state makes no host good.
            by_fact = judge.judge_by(_SYSTEM, own)[0]
            fails = by_fact["words"] == FAIL
            verdicts[groups][fails] = by_fact[fails]
        expected.append((own, judge.fleet))
        owns |= {groups.start + group: reference for group, reference in judge.own_levels.items()}
        for group, text in judge.intermittent(verdicts["words"][groups]).items():
            intermittent[groups.start + group] = text
            verdicts["by"][groups.start + group] = _FLEET
        if judge.level is not None:
            visible[number] = judge.level.visible
        if judge.divided is not None:
            divisions[number] = judge.divided
    words, evidence = verdicts["words"], verdicts["evidence"]
    words[(words == UNDECIDED) & sprt.beyond_chance(evidence, samples.host)] = SUSPECT
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


def _bad_together(samples: SamplesTable, verdicts: _Verdicts, now: Bools) -> Bools:
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


def _pooled(samples: SamplesTable, metrics: int) -> dict[int, _CaseJudge]:
    """Return the judges of the cases of a small fleet, which know the spread of all metrics of their kind."""
    judges = {
        number: _CaseJudge(case, samples, samples.groups(number), metrics)
        for number, case in enumerate(samples.cases)
        if not case.exact and event_limits.limit_of(case) is None
    }
    reached = [((j.case.check, j.case.metric), j.reached(), j.host_numbers) for j in judges.values()]
    spreads = fleet_level.pooled_spreads(reached, len(samples.hosts))
    for judge, spread in zip(judges.values(), spreads, strict=True):
        judge.spread = spread
    return judges


class _CaseJudge:
    """Judges one case on all hosts that have it. Its columns are those of :class:`Judged`."""

    def __init__(self, case: Case, table: SamplesTable, groups: slice, metrics: int) -> None:
        self.case, self.table, self.groups, self.metrics = case, table, groups, metrics
        #: The system's reference and the fleet's, what the fleet reaches, and the spread if metrics are pooled.
        self.own: Reference | None = None
        self.fleet: Reference | None = None
        self.level: Level | None = None
        self.spread: tuple[float, float] | None = None
        #: By the number of the group within the case, the own level of each host that is worse than that.
        self.own_levels: dict[int, Reference] = {}
        rows = table.rows_of(groups)
        self.samples = Groups(table.value[rows], table.counts[groups])
        self.valid, self.session, self.times = table.valid[rows], table.session(groups), table.time[rows]
        #: What a level can be learnt from: values of 0 are none, if others are above 0.
        self.positive = self.samples.values > 0
        if case.exact or not self.positive.any():
            self.positive = np.ones_like(self.valid)
        self.may_use = self.valid & table.judged[rows] & self.positive
        self.last_session = self.session[self.samples.ends]
        self.busy = None if case.exact else table.busy(groups)
        #: Whether references may judge each host, by its last record.
        self.may_judge = table.judged[rows][self.samples.ends]
        self.divided: Divided | None = None
        #: What hosts of the worse group reach, if there are two groups.
        self.worse: Reference | None = None

    @cached_property
    def hosts(self) -> list[str]:
        """The name of each group's host."""
        return [self.table.hosts[number] for number in self.table.host[self.groups].tolist()]

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
        newest = host_level.newest(samples, self.session[now], self.times[now])
        if not newest.before.any():
            return newest, self.valid, some, now
        # Disturbed rows from the begin of the stretch on belong to it.
        first = np.zeros(len(self.samples), dtype=np.int64)
        places = np.flatnonzero(now)[newest.sessions.begins]
        first[some] = places[newest.sessions.starts + newest.before]
        since: Bools = np.arange(len(now)) >= np.repeat(first, self.samples.counts)
        return newest, self.valid & since, some, now

    def _kept(self, which: Bools) -> tuple[Groups, Bools]:
        """Return the values of a mask, and which groups have some."""
        if which.all():
            return self.samples, np.ones(len(self.samples), dtype=np.bool_)
        counts = self.samples.sums(which.astype(np.int64))
        return Groups(self.samples.values[which], counts[counts > 0]), counts > 0

    @cached_property
    def _current(self) -> tuple[Groups, Bools]:
        """The repetitions that teach what the fleet reaches: those since each host's last change."""
        return self._kept(self.may_use & self._stretches[1])

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
        names = [host for host, has_some in zip(self.hosts, some, strict=True) if has_some]
        self.divided = divided(current, names, self.case.better)
        newest = self._stretches[0]
        if (
            self.divided
            and newest
            and newest.errors.freedom
            and self.divided.apart < _APART * newest.errors.wander
        ):
            self.divided = None  # all hosts wander that far
        if self.divided is not None:
            is_worse = np.isin(names, self.divided.worse)
            self.worse = self._reference_of(current.chosen(is_worse), len(current), None)
            better = current.chosen(np.isin(names, self.divided.better))
            self.fleet = self.worse and self._reference_of(better, len(current), None)
            if self.fleet is None:  # the groups are too small to know their spreads, and still apart
                values, limit = self.divided.values, min(self.divided.apart / 2, 0.5)
                source = f"{len(self.divided.better)} of {len(current)} hosts of this fleet"
                self.fleet = self._reference(values[0], limit, source, None)
                self.worse = self._reference(values[1], limit, source, None)
        else:
            self.fleet = self._reference_of(current, len(current), self.spread)

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
        )
        if reached is None or reached.doubt > reached.limit / 4:
            return None
        self.level = reached
        source = f"{reached.hosts} of {hosts} hosts of this fleet"
        return self._reference(reached.value, reached.limit, source, reached.error)

    def _most_frequent(self, samples: Groups) -> Reference | None:
        """Return the count that more than half of the hosts have: good hosts do not differ in one."""
        if len(samples) < FEWEST_HOSTS or samples.values.min() <= 0:
            return None
        values, hosts = np.unique(samples.values[samples.ends], return_counts=True)
        most = int(hosts.argmax())
        if 2 * hosts[most] <= len(samples):
            return None
        source = f"{hosts[most]} of {len(samples)} hosts of this fleet"
        return self._reference(float(values[most]), 0.0, source, None)

    def _reference(self, value: float, limit: float, source: str, error: float | None) -> Reference:
        case = self.case
        limits = (-limit, limit)
        return Reference(case.check, case.metric, case.parameters, value, *limits, case.unit, source, 0, error)

    def judge(self) -> tuple[_Verdicts, Bools]:
        """Return the worst of the verdicts by the system, the fleet and the own level, and which rows count."""
        now = self.valid & self._stretches[1]
        lost = self._drop(now)
        verdicts = _verdicts(len(lost), PASS, _NONE if self.fleet is None else _FLEET)
        verdicts["words"][lost], verdicts["more"][lost] = INVALID, 1
        if self.own is not None:
            verdicts["by"][self.may_judge] = _SYSTEM
        for number, reference in ((_SYSTEM, self.own), (_FLEET, self.fleet)):
            if reference is not None:
                others, others_now = self.judge_by(number, reference)
                # Of equal verdicts the system's counts, unless only the fleet's has evidence.
                counts = (others["words"] > verdicts["words"]) | (verdicts["by"] == number)
                unknown = np.isnan(verdicts["evidence"]) & ~np.isnan(others["evidence"])
                counts |= (others["words"] == UNDECIDED) & (verdicts["words"] == UNDECIDED) & unknown
                if number == _SYSTEM:
                    counts &= self.may_judge
                verdicts[counts] = others[counts]
                rows = np.repeat(counts, self.samples.counts)
                now[rows] = others_now[rows]
        self._judge_by_own_levels(verdicts, now)
        return verdicts, now

    def _drop(self, now: Bools) -> Bools:
        """Clear *now* in groups whose newest session has no row in it; return these groups."""
        newest = np.maximum.reduceat(np.where(now, self.session, -1), self.samples.begins)
        lost: Bools = newest < self.last_session
        now[np.repeat(lost, self.samples.counts)] = False
        return lost

    def _undisturbed(self, reference: Reference, rows: slice = slice(None)) -> Bools:
        """Return which of some *rows* are valid, and not bad by *reference* while others used the host.

        A value that is good although others used the host counts.
        """
        valid = self.valid[rows]
        if self.busy is None:
            return valid.copy()
        bad, _ = _outside(self.samples.values[rows], self.case.better, reference)
        undisturbed: Bools = valid & ~(bad & (self.busy[rows] >= BUSY))
        return undisturbed

    def judge_by(self, number: int, reference: Reference) -> tuple[_Verdicts, Bools]:
        """Return the verdicts of a reference with this *number*, and which rows they are based on."""
        now = self._undisturbed(reference) & self._stretches[1]
        self._drop(now)
        verdicts = _verdicts(len(self.samples), INVALID, number, more=1)
        samples, some = self._kept(now)
        if len(samples):
            better, exact = self.case.better, self.case.exact
            judged = _test(samples, better, reference, number, exact=exact)
            if number == _FLEET and self.worse is not None:
                # A host as good as the worse group does not fail for not being in the better one.
                in_worse = np.isin(self.hosts, self.divided.worse if self.divided else ())[some]
                bad = (judged["words"] == FAIL) | in_worse
                by_worse = _test(samples, better, self.worse, number, exact=exact)
                of_group = bad & (by_worse["words"] != FAIL)
                judged["words"][of_group], judged["more"][of_group] = SUSPECT, 0
            elif number == _FLEET and self.level is not None and self.level.unusual < self.level.limit:
                self._judge_unusual(judged, samples, reference, self.level)
            verdicts[some] = judged
            self._add_older(verdicts, now, reference)
        return verdicts, now

    def _add_older(self, verdicts: _Verdicts, now: Bools, reference: Reference) -> None:
        """Add the sessions before a change that are evidence against a host, too: its bad level may have moved.

        The repetitions since the change must speak against the host by themselves.
        """
        newest, _, some, _ = self._stretches
        if newest is None or reference.error is None or self.case.exact:
            return
        groups = np.flatnonzero(some)[newest.before > 0]
        evidence = verdicts["evidence"][groups]
        is_open = (evidence >= sprt.CHANGED) & (evidence < sprt.FAIL_AT) & (verdicts["words"][groups] != INVALID)
        for group in groups[is_open].tolist():
            rows = slice(int(self.samples.begins[group]), int(self.samples.ends[group]) + 1)
            counted = self._undisturbed(reference, rows)
            session = self.session[rows][counted]
            starts = np.flatnonzero(np.diff(session, prepend=-1))
            sides = _evidence_by_side(self.samples.values[rows][counted], self.case.better, reference)
            sums = np.maximum.reduce([np.cumsum(side[::-1])[::-1][starts] for side in sides])
            begin = int(np.argmax(sums))
            if sums[begin] <= verdicts["evidence"][group]:
                continue
            verdict = _verdicts(1, PASS, int(verdicts["by"][group]))
            count = np.array([len(session) - starts[begin]])
            _decide(verdict, sums[[begin]], count, reference)
            verdicts[group] = verdict[0]
            counted[np.flatnonzero(counted)[: starts[begin]]] = False
            now[rows] = counted

    def _judge_unusual(self, judged: _Verdicts, samples: Groups, reference: Reference, reached: Level) -> None:
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
            verdicts = _verdicts(len(samples), PASS, _FLEET)
            _decide(verdicts, evidence, samples.counts, narrow)
            is_open = (verdicts["words"] >= UNDECIDED) & (judged["words"] == PASS)
            if limit == reached.unusual:
                surely = (verdicts["words"] == FAIL) & (judged["words"] < FAIL)
                verdicts["words"][surely] = SUSPECT
                is_open |= surely
            else:
                verdicts["words"][is_open] = UNDECIDED
                verdicts["more"][is_open] = min(reached.more_repetitions, _MANY)
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
        # Bad for the fleet and for the host: some good hosts are always nearer to the limit than others.
        medians = np.repeat(self.samples.medians(), self.samples.counts)
        narrow = replace(self.fleet, value=1.0)
        is_bad = _outside(self.samples.values, self.case.better, self.fleet)[0] & valid
        is_bad &= _outside(self.samples.values / np.where(medians > 0, medians, 1.0), self.case.better, narrow)[0]
        bad, total = (self.samples.sums(rows.astype(np.int64)) for rows in (is_bad, valid))
        candidates = np.flatnonzero((bad >= _FEWEST_BAD_RUNS) & (words < SUSPECT) & (2 * bad < total))
        if not len(candidates):
            return {}
        rates, texts = bad / np.maximum(total, 1), {}
        # A quarter of the hosts may be intermittent, too.
        usual = rates <= np.quantile(rates, 0.75)
        tail = math.log(fleet_level.SUSPECT_TAIL / self.metrics)
        for group in candidates.tolist():
            # One bad repetition more, so that siblings without any are not taken for perfect.
            siblings = usual & (np.arange(len(bad)) != group)
            others = (float(bad[siblings].sum()) + 1) / (float(total[siblings].sum()) + 1)
            rate = float(rates[group])
            if rate <= others or -total[group] * _divergence(rate, others) > tail:
                continue
            rows = slice(int(self.samples.begins[group]), int(self.samples.ends[group]) + 1)
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
                    f"{100 * losses.min():.0f} to {100 * losses.max():.0f} % worse than the fleet, "
                    f"in {len(places)} of {len(bad_sessions)} sessions"
                )
        return texts

    def _judge_by_own_levels(self, verdicts: _Verdicts, now: Bools) -> None:
        """Let hosts that changed be judged by their best stable period, too."""
        newest, current, some, calm = self._stretches
        if newest is None or self.case.better == "neither":
            return
        changed = np.flatnonzero(newest.before >= host_level.STABLE_SESSIONS)
        if not len(changed):
            return
        numbers, rows_of_samples = np.flatnonzero(some), np.flatnonzero(calm)
        sign = -1.0 if self.case.better == "lower" else 1.0
        times = self.times[rows_of_samples]
        tail = fleet_level.TAIL / self.metrics
        for place in changed.tolist():
            group = int(numbers[place])
            if not self.may_judge[group]:
                continue
            own = newest.own_level(place, lower_is_better=sign < 0)
            error = max(own.error, newest.errors.repetition)
            # A host that was like this before, and is not bad, is back at one of its levels.
            limit = LOSS if own.has_returned else LOSS / 2
            limit = max(limit, student_quantile(tail, own.freedom) * own.uncertainty)
            common, changes = 0.0, newest.sibling_changes(place, times, own)
            if changes is not None:
                common = min(0.0, changes.centre * sign) * sign
                wide = math.sqrt(1 + 1 / changes.hosts)
                limit = max(limit, student_quantile(tail, changes.freedom) * wide * changes.deviation)
            period = self._period(times, own)
            if abs(common) >= _COMMON:
                period += f" less {100 * abs(common):.1f} % that most hosts have lost since"
            reference = replace(
                self._reference(own.value * math.exp(common), limit, period, error),
                lower=-limit if sign > 0 else None,
                upper=limit if sign < 0 else None,
            )
            rows = slice(int(self.samples.begins[group]), int(self.samples.ends[group]) + 1)
            after = np.arange(rows.start, rows.stop) > rows_of_samples[own.last_row]
            verdict, counted = self._by_own_level(rows, after, current[rows], reference)
            if verdict["words"][0] > verdicts["words"][group]:
                verdicts[group] = verdict[0]
                now[rows] = counted
                self.own_levels[group] = reference

    def _by_own_level(
        self, rows: slice, after: Bools, current: Bools, reference: Reference
    ) -> tuple[_Verdicts, Bools]:
        """Return the verdict of an own level on a host, and which of its *rows* count.

        *after* marks the rows after the period, *current* those since the last change. A host that is bad now was
        so for the newest sessions that are most evidence together, whether its bad level changed or not.
        """
        verdict = _verdicts(1, PASS, _OWN)
        samples, session = self.samples.values[rows], self.session[rows]
        counted = self._undisturbed(reference, rows) & after
        if not (counted & current).any() or session[counted][-1] < session[-1]:
            return verdict, counted
        (side,) = _evidence_by_side(samples[counted], self.case.better, reference)
        # Sessions are independent of each other, and repetitions of one are not.
        first = np.diff(session[counted], prepend=-1) != 0
        side[first & (side > 0)] *= sprt.FEWEST_TO_FAIL / sprt.FEWEST_SESSIONS_TO_FAIL
        newest = current[counted]
        if side[newest].sum() > 0:
            sums = np.where(first, np.cumsum(side[::-1])[::-1], -np.inf)
            begin = int(np.argmax(sums))
        else:
            begin = int(np.flatnonzero(newest)[0])
        counted[np.flatnonzero(counted)[:begin]] = False
        evidence, count = np.array([side[begin:].sum()]), np.array([len(side) - begin])
        _decide(verdict, evidence, count, reference)
        return verdict, counted

    @staticmethod
    def _period(times: Ints, own: host_level.OwnLevel) -> str:
        """Return the own level in words: ``own level of 3 to 21 October 2025, 19 sessions``."""
        first, last = (datetime.fromtimestamp(times[row] / 1000, UTC) for row in (own.first_row, own.last_row))
        begin = f"{first.day} {first:%B}" if first.year == last.year else f"{first.day} {first:%B %Y}"
        if first.year == last.year and first.month == last.month:
            begin = f"{first.day}"
        return f"own level of {begin} to {last.day} {last:%B %Y}, {own.sessions} sessions"


def _divergence(rate: float, other: float) -> float:
    """Return the Kullback-Leibler divergence of two probabilities of an event."""
    return rate * math.log(rate / other) + ((1 - rate) * math.log((1 - rate) / (1 - other)) if rate < 1 else 0.0)


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
    unknown = (verdicts.by[groups] == _NONE) & ~is_count
    wanted = verdicts.unsure[groups] | unknown | verdicts.disturbed[groups]
    of_events = np.array([event_limits.limit_of(table.cases[n]) is not None for n in table.case[groups]], np.bool_)
    groups = groups[wanted & ~of_events & (table.counts[groups] < most)]
    return {table.cases[table.case[group]].key: int(table.counts[group]) for group in groups}
