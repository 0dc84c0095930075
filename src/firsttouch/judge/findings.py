# SPDX-License-Identifier: Apache-2.0
"""The findings of a fleet: one table with a row per host and case, which every page and every export reads.

A row has the measured value, the expected one and its limits, all in the unit of its case, and the
verdict with its evidence. Sentences are composed only for the requested hosts (:meth:`Findings.verdict`).
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from firsttouch.host.host_lists import natural
from firsttouch.judge import constants
from firsttouch.judge.causes import Symptoms, causes
from firsttouch.judge.verdict import ORDER, Divided, Finding, HostSummary, HostVerdict, PartFinding
from firsttouch.records.cases import Case
from firsttouch.records.drift import Configuration, Drift, changed_settings, drift
from firsttouch.records.groups import Bools, Floats, Ints, group_medians, group_sums
from firsttouch.records.samples_table import SamplesTable
from firsttouch.records.sessions import DAY
from firsttouch.statistics import as_fraction, seven_digits
from firsttouch.systems.expectation import Expectation
from firsttouch.systems.references import FACTS, Reference
from firsttouch.units import day, quantity, text_range

if TYPE_CHECKING:
    from firsttouch.judge.part_judge import Fleet
    from firsttouch.systems.definition import System, Undescribed

#: The verdicts as numbers, from good to bad.
PASS, UNDECIDED, SUSPECT, INVALID, FAIL = range(len(ORDER))
#: The numbers of the deciding reference: the system's, the fleet's, or none.
SYSTEM, FLEET, NONE = range(3)
#: A metric is overdue if most siblings have measured it this number of usual session intervals later.
_MISSED = 3
_ABSENT, _OVERDUE = "other hosts were judged by it", "last measured on {}, other hosts still are"
_NO_REFERENCE, _NO_PLACEMENT = "no reference", "its placement did not hold"
_DISTURBED = "disturbed: other processes used {busy:.2g} PUs; measure it again"


class CommonLoss(Struct, frozen=True):
    """*hosts*, out of *count*, lost about the same share (*loss*) of the same number of *metrics*."""

    hosts: Sequence[str]
    count: int
    metrics: int
    loss: float

    @property
    def text(self) -> str:
        """The loss as one sentence, the same one everywhere."""
        share = f"{100 * self.loss:.0f} %" if self.loss >= 0.01 else "1 % or less"
        return (
            f"{len(self.hosts)} of {self.count} hosts lost about {share} of the same metrics: "
            "an update, or references that are out of date; no host is held"
        )


class Findings(Struct, frozen=True, dict=True):
    """The findings of the hosts of a *system*.

    A row stands for a host and a case, like a group of *samples*, and has the same number. A part below its host's
    own level is a finding in *parts* only. :mod:`firsttouch.judge.judging` fills the columns.
    """

    samples: SamplesTable
    system: System | Undescribed
    #: The metrics that judged each part in each session.
    fleet: Fleet
    #: By host: the measurements that are missing, with the reason.
    missing: Mapping[str, Sequence[str]]
    #: Returns the newest configuration of each host; called only if a host is suspect or fails.
    configurations: Callable[[], Mapping[str, Configuration]]
    #: By row: its verdict, the reference that decided (2: none), and whether another repetition may decide.
    words: NDArray[np.uint8]
    by: NDArray[np.uint8]
    wanted: Bools
    #: By repetition: whether it is used.
    counts_now: Bools
    #: By the number of the case: the references of the system and of the fleet.
    references: list[tuple[Reference | None, Reference | None]]
    #: By the number of the host: findings about parts, and the parts whose sight is too wide.
    parts: dict[int, list[PartFinding]] = field(default_factory=dict)
    blind: dict[int, dict[str, float]] = field(default_factory=dict)
    #: Lines about hosts that changed together, and groups of hosts.
    updates: list[str] = field(default_factory=list)
    divided: list[Divided] = field(default_factory=list)
    #: By the number of the host, the levels that its parts should reach; in large fleets only low ones.
    expected: dict[int, tuple[Expectation, ...]] = field(default_factory=dict)

    def of_decider(self, attribute: str, rows: slice | NDArray[np.integer]) -> Floats:
        """Return a number of the reference that decided each of *rows*; NaN if none did, or if it has none."""
        numbers = np.full((len(self.samples.cases), NONE + 1), np.nan)
        for case, references in enumerate(self.references):
            for by, reference in enumerate(references):
                if reference is not None and (number := getattr(reference, attribute)) is not None:
                    numbers[case, by] = number
        column: Floats = numbers[self.samples.case[rows], self.by[rows]]
        return column

    def _repetitions(self, groups: NDArray[np.integer]) -> tuple[Ints, Ints]:
        """Return the used repetitions of some rows, and the place of each one's row among these."""
        repetitions, place = self.samples.rows_of_each(groups)
        is_used = self.counts_now[repetitions]
        return repetitions[is_used], place[is_used]

    def medians(self, groups: NDArray[np.integer]) -> Floats:
        """Return the median of the used repetitions of some rows (NaN: none is used)."""
        return self.used(groups)[0]

    def used(self, groups: NDArray[np.integer]) -> tuple[Floats, Ints, Ints]:
        """Return the median of the used repetitions of some rows, their number, and the number of sessions."""
        repetitions, place = self._repetitions(groups)
        n, session = np.bincount(place, minlength=len(groups)), self.samples.ordinal[repetitions]
        medians = np.full(len(n), np.nan)
        medians[n > 0] = seven_digits(group_medians(self.samples.value[repetitions], n[n > 0]))
        is_first = np.append(True, (place[1:] != place[:-1]) | (session[1:] != session[:-1]))[: len(place)]
        return medians, n, np.bincount(place[is_first], minlength=len(groups))

    def relative(self, values: Floats, rows: slice | NDArray[np.integer]) -> Floats:
        """Return *values* of some rows relative to their expected ones, less 1 (NaN: not comparable)."""
        expected = self.of_decider("value", rows)
        expected[~((expected > 0) & ~self.of_events[self.samples.case[rows]])] = np.nan
        change = np.divide(values, expected, out=expected)
        change -= 1
        return change

    @cached_property
    def losses(self) -> Floats:
        """How much worse than expected each row is, from 0 (and for a pass) to 1."""
        signs = np.array([-1 if case.better == "higher" else 1 for case in self.samples.cases], dtype=np.int8)
        is_neither = np.array([case.better == "neither" for case in self.samples.cases], dtype=np.bool_)
        losses, bad = np.zeros(len(self.words)), np.flatnonzero(self.words != PASS)
        case, changes = self.samples.case[bad], self.relative(self.medians(bad), bad)
        of_bad = np.where(is_neither[case], np.abs(changes), changes * signs[case])
        losses[bad] = np.clip(np.nan_to_num(of_bad), 0.0, 1.0)
        return losses

    @cached_property
    def _drift(self) -> Drift:
        """How the configurations of the hosts differ."""
        return drift({host: c for host, c in self.newest_configurations.items() if host in self.number})

    @cached_property
    def newest_configurations(self) -> Mapping[str, Configuration]:
        """The newest configuration of each host."""
        return self.configurations()

    def _changed_settings(self, host: str, parts: Sequence[PartFinding]) -> Iterator[str]:
        """Yield the settings that changed when the loss of a bad part began, as a possible cause."""
        spans = {part.between for part in parts if part.between and part.word in {"suspect", "fail"}}
        for after, before in sorted(spans):
            if changed := changed_settings(self.newest_configurations, [host], after, before):
                when = text_range(day(after), day(before))
                yield f"changed setting: {'; '.join(changed)}, when the loss began ({when})"

    @cached_property
    def hosts(self) -> list[str]:
        """All hosts by name: the ones with repetitions, and the ones with missing measurements."""
        return sorted({*self.samples.hosts, *self.missing})

    @cached_property
    def number(self) -> Mapping[str, int]:
        """The number of each host that has repetitions."""
        return {name: i for i, name in enumerate(self.samples.hosts)}

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """The number of groups of each host by word; the last column is the number of unjudged groups."""
        column = np.where((self.by == NONE) & (self.words == PASS), np.uint8(len(ORDER)), self.words)
        counts = np.zeros((len(self.samples.hosts), len(ORDER) + 1), dtype=np.int64)
        for groups, _ in self.samples.by_case():
            counts[self.samples.host[groups], column[groups]] += ~self._quiet[groups]
        return counts

    @cached_property
    def deciding_cases(self) -> NDArray[np.bool_]:
        """Which cases judge at least one host. Cases of events exist only on hosts with events."""
        return (group_sums(self.by != NONE, self.samples.of_case[:-1]) > 0) & ~self.of_events

    @cached_property
    def of_events(self) -> Bools:
        """Which cases count events."""
        return np.array([case.limit is not None for case in self.samples.cases], np.bool_)

    @cached_property
    def _quiet(self) -> Bools:
        """Which groups are events that did not happen, or within the limit; these are not counted as metrics."""
        quiet: Bools = (self.by == NONE) & self.of_events[self.samples.case]
        return quiet

    @cached_property
    def _lacking(self) -> Bools:
        """Which cases (columns) each host lacks, among those that most hosts have and that judge some host.

        A host that has not measured a case for several sessions lacks it, too, unless this is true of most hosts.
        """
        samples, hosts = self.samples, len(self.samples.hosts)
        measured_by = np.diff(samples.of_case)
        proofs = np.array([bool(case.limit and case.limit.is_proof) for case in samples.cases], dtype=np.bool_)
        lacking = np.tile((self.deciding_cases | proofs) & (2 * measured_by > hosts), (hosts, 1))
        # Wrong answers have other cases than right ones, so a host with either has not missed the check.
        checks = np.array([case.check for case in samples.cases])
        for case in np.flatnonzero(proofs).tolist():
            of_check = (checks == checks[case])[samples.case]
            lacking[samples.host[of_check], case] = False
        for case in range(len(samples.cases)):
            groups = samples.groups(case)
            host, newest = samples.host[groups], samples.newest(groups)
            usual = np.median(newest) if self.deciding_cases[case] else 0
            is_overdue = newest + (_MISSED - 0.5) * self.fleet.sessions.interval <= usual
            lacking[host, case] = is_overdue & (newest + DAY < self.host_newest[host])
        return lacking

    @cached_property
    def absent(self) -> Ints:
        """How many cases each host lacks that most hosts have."""
        absent: Ints = self._lacking.sum(axis=1, dtype=np.int64)
        return absent

    @cached_property
    def _worst(self) -> NDArray[np.intp]:
        """The worst verdict of each host's metrics and of the comparison's coverage, as a number."""
        is_present = self.counts[:, : len(ORDER)] > 0
        last = len(ORDER) - 1 - np.argmax(is_present[:, ::-1], axis=1)
        worst = np.where(is_present.any(axis=1), last, UNDECIDED)
        for number in self.blind:
            worst[number] = max(worst[number], UNDECIDED)
        for number, findings in self.parts.items():
            worst[number] = max(worst[number], *(ORDER.index(part.word) for part in findings))
        return worst

    def word(self, host: str) -> int:
        """Return the verdict of a host as its place in :data:`ORDER`."""
        number = self.number.get(host)
        if number is None:
            return SUSPECT
        worst = int(self._worst[number])
        return max(worst, SUSPECT) if self.missing.get(host) or self.absent[number] else worst

    @cached_property
    def common_loss(self) -> CommonLoss | None:
        """The loss against the system's references that most hosts share, None without one."""
        groups = np.flatnonzero((self.words > UNDECIDED) & (self.losses > 0) & (self.by == SYSTEM))
        return _common_loss(self.samples, groups, self.losses[groups])

    @cached_property
    def host_losses(self) -> Floats:
        """The largest loss of a metric or a part of each host that has repetitions (0: all pass)."""
        losses: Floats = np.zeros(len(self.samples.hosts))
        for groups, _ in self.samples.by_case():
            host = self.samples.host[groups]
            losses[host] = np.fmax(losses[host], self.losses[groups])
        for number, findings in self.parts.items():
            losses[number] = max(losses[number], *(as_fraction(f.loss) for f in findings))
        return losses

    @cached_property
    def host_newest(self) -> Ints:
        """The time of the newest repetition of each host that has some (ms since 1970, 0: unknown)."""
        newest = np.zeros(len(self.samples.hosts), dtype=np.int64)
        for groups, _ in self.samples.by_case():
            host = self.samples.host[groups]
            newest[host] = np.maximum(newest[host], self.samples.newest(groups))
        return newest

    @cached_property
    def by_severity(self) -> Sequence[str]:
        """All hosts, the worst first: by the verdict, then by the largest loss (1 if something is missing).

        The number of losses is ignored: many small ones are not worse than a large one.
        """

        def severity(host: str) -> tuple[int, float, object]:
            number = self.number.get(host)
            is_incomplete = number is None or self.missing.get(host) or self.absent[number]
            return -self.word(host), -1.0 if is_incomplete else -float(self.host_losses[number]), natural(host)

        return sorted(self.hosts, key=severity)

    def summary(self, host: str) -> HostSummary:
        """Return the verdict of a host in numbers."""
        number = self.number.get(host)
        counts = [0] * (len(ORDER) + 1) if number is None else self.counts[number].tolist()
        return HostSummary(
            host,
            self.system.name,
            ORDER[self.word(host)],
            counts={word: count for word, count in zip(ORDER, counts, strict=False) if count},
            unjudged=counts[-1],
            missing=len(self.missing.get(host, ())) + (0 if number is None else int(self.absent[number])),
            loss=0.0 if number is None else float(self.host_losses[number]),
            newest=0 if number is None else int(self.host_newest[number]),
        )

    def notes(self) -> list[str]:
        """Return the lines about the fleet: updates, losses and low parts that hosts share, and two groups."""
        shared = [self.common_loss.text] if self.common_loss else []
        lows = (dict.fromkeys((e.part, e.kind) for e in of if e.answer == "low") for of in self.expected.values())
        (part, count), *_ = Counter(itertools.chain.from_iterable(lows)).most_common(1) or [(("", ""), 0)]
        if count >= constants.FEWEST_HOSTS and 2 * count > len(self.samples.hosts):
            low = f"{count} of {len(self.samples.hosts)} hosts are low in {', '.join(part)}"
            shared.append(f"{low}: a fault that they share, or a setting of their firmware")
        return [*self.updates, *shared, *(two.text for two in self.divided)]

    def groups(self, host: str) -> NDArray[np.intp]:
        """Return the groups of a host, by case."""
        number = self.number.get(host)
        return np.empty(0, dtype=np.intp) if number is None else self.samples.groups_of_host(number)

    def verdict(self, host: str, *, brief: bool = False) -> HostVerdict:
        """Return the verdict of one host with its evidence; if *brief*, metrics that pass are only counted."""
        groups = self.groups(host)
        settings = self.samples.settings.get(host, {})
        measured = groups[~self._quiet[groups]]
        judged = measured[(self.by[measured] != NONE) | (self.words[measured] != PASS)]
        shown = judged[self.words[judged] != PASS] if brief else judged
        findings = tuple(self._findings(shown))
        absent_cases = self.absent_cases(host)
        slow = self.word(host) in {SUSPECT, FAIL}
        usual, modules = self._drift.modules(host, lambda name: self.word(name) == PASS) if slow else ({}, ())
        missing = [(case.check, case.parameters) for case in absent_cases]
        last_of = {
            self.samples.cases[self.samples.case[group]].key: _OVERDUE.format(day(int(self.samples.newest(group))))
            for group in groups[self._lacking[self.samples.host[groups], self.samples.case[groups]]].tolist()
        }
        sessions = 0 if host not in self.number else self.samples.session_count(self.number[host])
        replaced = self.samples.replaced.get(host) if sessions < constants.STABLE_SESSIONS else None
        parts = self.parts.get(self.number.get(host, -1), ())
        symptoms = Symptoms(
            *(findings, parts, settings, self.system.facts, missing, usual, modules, self.fleet.places),
            judged=partial(self._findings, judged),
        )
        return HostVerdict(
            host,
            self.system.name,
            findings,
            len(measured) - len(judged),
            (
                *self.missing.get(host, ()),
                *(f"{case.title}: {last_of.get(case.key, _ABSENT)}" for case in absent_cases),
            ),
            (*self._changed_settings(host, parts), *causes(symptoms)) if slow else (),
            visible=self._visible(host),
            blind=self.blind.get(self.number.get(host, -1), {}),
            sight=self.system.sight or constants.PASS_SIGHT,
            summary=self.summary(host),
            replaced=f"{replaced.text}: older sessions do not count" if replaced else "",
            sessions=sessions,
            parts=tuple(parts),
            expected=self.expected.get(self.number.get(host, -1), ()),
            passing=len(judged) - len(shown),
        )

    def _visible(self, host: str) -> tuple[float, float] | None:
        """Return the sight of the median part of a host, and of the worst part."""
        if (number := self.number.get(host)) is None:
            return None
        sights = (judged.sight[number] for judged in self.fleet.series if not judged.series.is_together)
        losses = [as_fraction(sight) for sight in sights if math.isfinite(sight)]
        return (float(np.median(losses)), max(losses)) if losses else None

    def absent_cases(self, host: str) -> list[Case]:
        """Return the cases that a measured *host* lacks and that most hosts have."""
        lacking = self._lacking[self.number[host]] if host in self.number else ()
        return [self.samples.cases[number] for number in np.flatnonzero(lacking).tolist()]

    def _findings(self, groups: NDArray[np.intp]) -> Iterator[Finding]:
        """Yield the finding of each group."""
        samples = self.samples
        used, (medians, n, _) = samples.values(self._repetitions(groups)[0]).tolist(), self.used(groups)
        of_groups = (column[groups] for column in (samples.case, self.by, self.words))
        columns = (groups, *of_groups, medians, n.cumsum())
        whose = (f"the reference of {self.system.name}", "the fleet", "")  # SYSTEM, FLEET, NONE
        begin = 0
        for group, of_case, by, verdict, value, end in zip(*(c.tolist() for c in columns), strict=True):
            case, word, values, begin = samples.cases[of_case], ORDER[verdict], tuple(used[begin:end]), end
            reference, why = None if by == NONE else self.references[of_case][by], ""
            if word == "invalid":
                values, why = (), _invalid(samples, slice(group, group + 1))
            elif reference is None:
                why = _NO_REFERENCE
            elif reference.source == FACTS:
                amounts = [quantity(v, case.unit) for v in (values[-1], reference.value)]
                why = f"this host has {amounts[0]}, {self.system.name} has {amounts[1]}"
            elif self.of_events[of_case] and (limit := case.limit):
                allowed = f"{limit.most:g}{' per hour' if limit.per_hour else ''}"
                why = f"{sum(values):g} while it was measured, at most {allowed}"
            yield Finding(case, values, reference, word, why, value if values else None, whose[by])


def _invalid(samples: SamplesTable, group: slice) -> str:
    """Return why no repetition of a group's newest session is used."""
    rows = samples.rows_of(group)
    if limit := samples.cases[samples.case[group.start]].limit:
        exceeding = np.flatnonzero(~samples.valid[rows] & (samples.value[rows] > limit.most))
        row = rows.start + int(exceeding[-1])
        return f"{samples.value[row]:g}, in a record that is invalid: {samples.reason_of(row)}"
    session, valid = samples.session(group), samples.valid[rows]
    if not valid[session == session[-1]].any():
        return samples.reason_of(rows.stop - 1) or _NO_PLACEMENT
    if not (samples.value[rows][valid & (session == session[-1])] > 0).any():
        return "it measured 0: measure it again"
    return _DISTURBED.format(busy=0 if samples.busy_pus is None else samples.busy_pus[rows][valid].max())


def _common_loss(table: SamplesTable, groups: NDArray[np.intp], losses: Floats) -> CommonLoss | None:
    """Return the loss that most hosts share in some bad *groups* of the *table*, None without one.

    A metric is common if it is bad on more than half of the hosts that have it. A host shares a loss if at least
    half of its bad metrics are common, with a loss within half of the metric's median.
    """
    hosts = len(table.hosts)
    cases = table.case[groups]
    having = np.diff(table.of_case)
    losing = np.bincount(cases, minlength=len(table.cases))
    common = (losing >= constants.UPDATED_HOSTS) & (2 * losing > having)
    medians = np.zeros(len(table.cases))
    for case in np.flatnonzero(common):
        medians[case] = np.median(losses[cases == case])
    is_similar = common[cases] & (np.abs(losses - medians[cases]) <= medians[cases] / 2)
    numbers = table.host[groups]
    total = np.bincount(numbers, minlength=len(table.hosts))
    similar = np.bincount(numbers[is_similar], minlength=len(table.hosts))
    chosen = np.flatnonzero((similar > 0) & (2 * similar >= total))
    if len(chosen) < constants.UPDATED_HOSTS or 2 * len(chosen) <= hosts:
        return None
    shared = is_similar & np.isin(numbers, chosen)
    names = [table.hosts[number] for number in chosen.tolist()]
    return CommonLoss(names, hosts, len(np.unique(cases[shared])), float(np.median(losses[shared])))
