# SPDX-License-Identifier: Apache-2.0
"""Judges samples by a system's references and by the fleet, all hosts of a metric at once.

A verdict describes the host now: the repetitions of its newest session decide, and older sessions add their
evidence as long as nothing changed in between (:func:`_since_last_change`). A single noisy repetition never
decides. A value better than the tolerance is never a fail, but the measurement or the reference is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from firsttouch.benchmarks.kernel_settings import BUSY
from firsttouch.judge import event_limits, samples_table, sprt
from firsttouch.judge.causes import Symptoms, causes
from firsttouch.judge.common_loss import CommonLoss, common_loss
from firsttouch.judge.drift import Configuration, Drift, drift, latest
from firsttouch.judge.fleet_level import FEWEST_HOSTS, Divided, divided, level
from firsttouch.judge.samples_table import BANK_BANDWIDTH, SamplesTable
from firsttouch.judge.sprt import Bools, Floats, Groups, Ints
from firsttouch.judge.verdict import ORDER, Finding, HostVerdict, Word, compared, figure, natural
from firsttouch.records.schema import Better, Record
from firsttouch.systems.cases import Case
from firsttouch.systems.references import FACTS, Reference

if TYPE_CHECKING:
    from firsttouch.systems.definition import System

#: The verdicts as numbers, from good to bad.
PASS, UNDECIDED, SUSPECT, INVALID, FAIL = range(len(ORDER))
#: The number of the reference that decided: the system's, the fleet's, or none.
_SYSTEM, _FLEET, _NONE = range(3)
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


def _test(
    samples: Groups, new: Bools, better: Better, reference: Reference, by: int, *, exact: bool
) -> tuple[_Verdicts, Bools]:
    """Return the verdict of *reference* on each group, oldest first, and which repetitions it is based on.

    *new* marks repetitions that begin a session, *by* is the number of the reference. The last of *exact* values
    decides: they are read and not measured. Otherwise the repetitions since the last change decide, by their
    evidence if the error of a repetition is known. If not, they are counted: outside in all of at least two is a
    fail, outside in less than half of them a pass, and anything between is undecided. Which undecided groups are
    suspect depends on all metrics of a host (:func:`firsttouch.judge.sprt.beyond_chance`).
    """
    bad, good = _outside(samples.values, better, reference)
    verdicts = _verdicts(len(samples), PASS, by)
    words, more = verdicts["words"], verdicts["more"]
    sides = _evidence_by_side(samples.values, better, reference)
    if exact:
        counted = np.ones_like(samples.counts)
    elif sides:
        counted, evidence = _heavier_side(samples, new, sides, sprt.CHANGED)
    else:
        counted, _ = _heavier_side(samples, new, [np.where(bad, 1.0, -1.0)], 1.0)
    recent = _last(samples, counted)
    samples = Groups(samples.values[recent], counted)
    outside = samples.sums(bad[recent].astype(np.int64))
    if exact:
        words[outside > 0] = FAIL
    elif sides:
        verdicts["evidence"] = evidence
        words[evidence > 0] = UNDECIDED
        words[evidence >= sprt.FAIL_AT] = FAIL
        # As many as at the present rate, or as decide about the loss that must be detected.
        to_fail = np.ceil(counted * (sprt.FAIL_AT - evidence) / np.maximum(evidence, 1e-9))
        limit = max(abs(end) for end in (reference.lower, reference.upper) if end)
        at_least = sprt.repetitions_to_fail(evidence, limit, reference.error or 0.0)
        more[:] = np.clip(np.minimum(to_fail, at_least), 1, _MANY)
    else:
        words[2 * outside >= counted] = UNDECIDED
        words[(outside == counted) & (outside > 1)] = FAIL
        more[:] = np.where(counted == 1, 1, 2 * outside - counted + 1)
    more[words != UNDECIDED] = 0
    if reference.line and good.any():
        mostly = 2 * samples.sums(good[recent].astype(np.int64)) >= counted
        words[mostly & (words == PASS)] = SUSPECT
    return verdicts, recent


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


def _heavier_side(samples: Groups, new: Bools, sides: Sequence[Floats], least: float) -> tuple[Ints, Floats]:
    """Return how many repetitions count, and their evidence, for the side with more evidence against the host.

    *least* is the evidence of a change (see :func:`_since_last_change`).
    """
    counted, evidence = np.zeros_like(samples.counts), np.full(len(samples), -np.inf)
    for side in sides:
        newest = _since_last_change(Groups(side, samples.counts), new, least)
        recent = side[_last(samples, newest)]
        total = Groups(recent, newest).sums(recent)
        heavier = total > evidence
        counted[heavier], evidence[heavier] = newest[heavier], total[heavier]
    return counted, evidence


def _since_last_change(evidence: Groups, new: Bools, least: float) -> Ints:
    """Return how many of the newest repetitions of each group count: those since the host's last change.

    *evidence* has a value per repetition, oldest first; *new* marks those that begin a session. A host changed
    before a session if the evidence from there on and the evidence before are for opposite sides, at least *least*
    each. The clearest change cuts off the older repetitions, and the rest is searched again.

    Over any number of sessions, the wrong evidence against a good host reaches *e* with a probability of at most
    exp(-e) (J. Ville, Etude critique de la notion de collectif, 1939). A long history blames no more good hosts
    than a single campaign.
    """
    counted = evidence.counts.copy()
    several = evidence.sums(new.astype(np.int64)) > 0
    if not several.any():
        return counted
    chosen = evidence.chosen(several)
    breaks = Groups(new[np.repeat(several, evidence.counts)].astype(float), chosen.counts)
    kept = chosen.counts.copy()
    for (which, rows), (_, marks) in zip(chosen.blocks(), breaks.blocks(), strict=True):
        after = np.cumsum(rows[:, ::-1], axis=1)[:, ::-1]
        begin = np.zeros(len(rows), dtype=np.int64)
        columns, each = np.arange(rows.shape[1]), np.arange(len(rows))
        while True:
            before = after[each, begin][:, None] - after
            clear = np.round(np.minimum(np.abs(after), np.abs(before)), 9)
            clear[(marks == 0) | (columns <= begin[:, None]) | (after * before >= 0)] = 0
            # The newest of equally clear changes.
            place = rows.shape[1] - 1 - np.argmax(clear[:, ::-1], axis=1)
            changed = clear[each, place] >= least
            if not changed.any():
                break
            begin[changed] = place[changed]
        kept[which] = rows.shape[1] - begin
    counted[several] = kept
    return counted


def _last(samples: Groups, counts: Ints) -> Bools:
    """Return which values are among the last ones of their group, *counts* of each."""
    if (counts == samples.counts).all():
        return np.ones(len(samples.values), dtype=np.bool_)
    place = np.arange(len(samples.values)) - np.repeat(samples.begins, samples.counts)
    return place >= np.repeat(samples.counts - counts, samples.counts)


def _reason(
    values: Sequence[float],
    better: Better,
    reference: Reference,
    whose: str,
    *,
    word: Word,
    evidence: float | None,
    more: int,
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
    elif word == "suspect" and fine:
        parts.append("better than it can be: a wrong measurement or reference")
    elif word == "suspect" and evidence is not None and more:
        parts.append(f"over {100 * (1 - sprt.CHANCE):.0f} % certain")
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

    *expected* are the references that judge each case: the system's and the fleet's. Of each group of *samples*
    there are the *words* as numbers (see :data:`PASS`), which of the two references decided (*by*; 2: none), the
    *evidence* (NaN: no error is known), and about how many *more* repetitions would decide an undecided or suspect
    group (0: none would). *counts_now* marks the rows that count: valid, and newer than the host's last change.
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
        return None if by == _NONE else self.expected[int(self.samples.case[group])][by]

    def of_decider(self, attribute: str) -> Floats:
        """Return a number of the reference that decided each group: its value, minimum or maximum; NaN if none."""
        numbers = np.full((len(self.samples.cases), _NONE + 1), np.nan)
        for case, references in enumerate(self.expected):
            for by, reference in enumerate(references):
                if reference is not None and (number := getattr(reference, attribute)) is not None:
                    numbers[case, by] = number
        of_groups: Floats = numbers[self.samples.case, self.by]
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
        )

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
            reference = None if by == _NONE else self.expected[number][by]
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
                why = _reason(values, case.better, reference, whose, word=word, evidence=evidence, more=more)
                if case.metric in _OF_THEORY:
                    why = _of_theory(case.metric, values, reference, theory) + why
            if word == "suspect" and by == _FLEET and number in self.divided and not more:
                why += _OF_TWO
            naming = (case.check, case.metric, case.parameters, case.unit)
            state: Any = {"better": case.better, "more": more, "distinctive": case.distinctive}
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
        judge = _CaseJudge(case, samples, groups, own, fleet=fleet)
        verdicts[groups], now[samples.rows_of(groups)] = judge.judge()
        if own is None and (own := system.fact(case.check, case.metric)) is not None:
            # Facts fail a host. That it has what they state makes no host good.
            by_fact, _ = _CaseJudge(case, samples, groups, own, fleet=False).judge()
            fails = by_fact["words"] == FAIL
            verdicts[groups][fails] = by_fact[fails]
        expected.append((own, judge.fleet))
        if judge.divided is not None:
            divisions[number] = judge.divided
    words, evidence = verdicts["words"], verdicts["evidence"]
    words[(words == UNDECIDED) & sprt.beyond_chance(evidence, samples.host)] = SUSPECT
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
        configurations=configurations,
    )


class _CaseJudge:
    """Judges one case on all hosts that have it. Its columns are those of :class:`Judged`."""

    def __init__(
        self, case: Case, table: SamplesTable, groups: slice, own: Reference | None, *, fleet: bool
    ) -> None:
        self.case, self.own = case, own
        self.hosts = [table.hosts[number] for number in table.host[groups].tolist()]
        rows = table.rows_of(groups)
        self.samples = Groups(table.value[rows], table.counts[groups])
        self.valid, self.session = table.valid[rows], table.session(groups)
        self.last_session = self.session[self.samples.ends]
        self.busy = None if case.exact else table.busy(groups)
        #: Whether references may judge each host, by its last record.
        self.may_judge = table.judged[rows][self.samples.ends]
        self.divided: Divided | None = None
        #: What hosts of the worse group reach, if there are two groups.
        self.worse: Reference | None = None
        learns = fleet and (own is None or own.error is None)
        self.fleet = self._learn(self.valid & table.judged[rows]) if learns else None

    def _kept(self, which: Bools) -> tuple[Groups, Bools]:
        """Return the values of a mask, and which groups have some."""
        if which.all():
            return self.samples, np.ones(len(self.samples), dtype=np.bool_)
        counts = self.samples.sums(which.astype(np.int64))
        return Groups(self.samples.values[which], counts[counts > 0]), counts > 0

    def _learn(self, good: Bools) -> Reference | None:
        """Return a reference learnt from the majority of the hosts, None if it is not known well enough.

        The *good* repetitions of each host's newest session count, or all good ones if these are too few.
        """
        now = good & (self.session == np.repeat(self.last_session, self.samples.counts))
        current, some = self._kept(now)
        if self.case.exact and self.case.unit == "1":
            return self._most_frequent(current)
        names = [host for host, has_some in zip(self.hosts, some, strict=True) if has_some]
        self.divided = divided(current, names, self.case.better)
        if self.divided is not None:
            is_worse = np.isin(names, self.divided.worse)
            self.worse = self._level(current.chosen(is_worse), len(current))
            return self.worse and self._level(current.chosen(np.isin(names, self.divided.better)), len(current))
        reference = self._level(current, len(current))
        if reference is None and (now != good).any():
            all_good, _ = self._kept(good)
            reference = self._level(all_good, len(all_good))
        return reference

    def _level(self, samples: Groups, hosts: int) -> Reference | None:
        """Return what most of some groups, of all *hosts*, reach; None if that is not known well enough."""
        reached = level(samples, [""] * len(samples), self.case.better)
        if reached is None or reached.doubt > reached.limit / 4:
            return None
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
        """Return the worse of the verdicts by the system's reference and by the fleet, and which rows count."""
        now = self.valid.copy()
        lost = self._drop(now)
        verdicts = _verdicts(len(lost), PASS, _NONE if self.fleet is None else _FLEET)
        verdicts["words"][lost], verdicts["more"][lost] = INVALID, 1
        if self.own is not None:
            verdicts["by"][self.may_judge] = _SYSTEM
        for number, reference in ((_SYSTEM, self.own), (_FLEET, self.fleet)):
            if reference is not None:
                others, others_now = self._judge_by(number, reference)
                # Of equal verdicts the system's counts, unless only the fleet's has evidence.
                counts = (others["words"] > verdicts["words"]) | (verdicts["by"] == number)
                unknown = np.isnan(verdicts["evidence"]) & ~np.isnan(others["evidence"])
                counts |= (others["words"] == UNDECIDED) & (verdicts["words"] == UNDECIDED) & unknown
                if number == _SYSTEM:
                    counts &= self.may_judge
                verdicts[counts] = others[counts]
                rows = np.repeat(counts, self.samples.counts)
                now[rows] = others_now[rows]
        return verdicts, now

    def _drop(self, now: Bools) -> Bools:
        """Clear *now* in groups whose newest session has no row in it; return these groups."""
        newest = np.maximum.reduceat(np.where(now, self.session, -1), self.samples.begins)
        lost: Bools = newest < self.last_session
        now[np.repeat(lost, self.samples.counts)] = False
        return lost

    def _judge_by(self, number: int, reference: Reference) -> tuple[_Verdicts, Bools]:
        """Return the verdicts of a reference with this *number*, and which rows they are based on."""
        now = self.valid.copy()
        if self.busy is not None:
            # A value that is good although others used the host counts.
            bad, _ = _outside(self.samples.values, self.case.better, reference)
            now &= ~(bad & (self.busy >= BUSY))
        self._drop(now)
        verdicts = _verdicts(len(self.samples), INVALID, number, more=1)
        samples, some = self._kept(now)
        if len(samples):
            session = self.session[now]
            new = np.diff(session, prepend=session[0]) != 0
            new[samples.begins] = False
            test = partial(_test, samples, new, self.case.better, by=number, exact=self.case.exact)
            judged, recent = test(reference)
            if number == _FLEET and self.worse is not None:
                # A host as good as the worse group does not fail for not being in the better one.
                in_worse = np.isin(self.hosts, self.divided.worse if self.divided else ())[some]
                bad = (judged["words"] == FAIL) | ((judged["words"] == UNDECIDED) & in_worse)
                alike = bad & (test(self.worse)[0]["words"] != FAIL)
                judged["words"][alike], judged["more"][alike] = SUSPECT, 0
            verdicts[some] = judged
            now[now] = recent
        return verdicts, now


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
