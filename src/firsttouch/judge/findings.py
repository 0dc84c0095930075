# SPDX-License-Identifier: Apache-2.0
"""The findings of a fleet: one table with a row per host and case, which every page and every export reads.

A row has the value that was measured, what is expected and its limits, all in the unit of its case, and the
verdict with its evidence. Sentences are composed only for the hosts that are asked for (:meth:`Findings.of`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from firsttouch.judge import event_limits
from firsttouch.judge.causes import Symptoms, causes
from firsttouch.judge.common_loss import CommonLoss, common_loss
from firsttouch.judge.constants import STABLE_SESSIONS
from firsttouch.judge.drift import Configuration, Drift, drift
from firsttouch.judge.statistics import as_fraction
from firsttouch.judge.verdict import (
    ORDER,
    Divided,
    Expectation,
    Finding,
    HostSummary,
    HostVerdict,
    PartFinding,
    Word,
    blind_text,
    compared,
    natural,
)
from firsttouch.records.cases import Case
from firsttouch.records.groups import Bools, Floats, Ints, group_medians, group_sums
from firsttouch.records.samples_table import BANK_BANDWIDTH, SamplesTable
from firsttouch.systems.references import FACTS, Reference
from firsttouch.units import day, percent, quantity, quantity_range

if TYPE_CHECKING:
    import polars as pl

    from firsttouch.judge.part_judge import Fleet
    from firsttouch.systems.definition import System, Undescribed

#: The verdicts as numbers, from good to bad.
PASS, UNDECIDED, SUSPECT, INVALID, FAIL = range(len(ORDER))
#: The number of the reference that decided: the system's, the fleet's, or none.
SYSTEM, FLEET, NONE = range(3)
#: What decided a row, in words, by its number.
DECIDERS = ("system", "fleet", "none")
#: A metric is overdue if most siblings have measured it in so many sessions since.
_MISSED = 3
_DAY = 86_400_000
_NO_REFERENCE, _NO_PLACEMENT = "no reference", "its placement did not hold"
#: How many hosts are looked at to see whether most measured a case again.
_SAMPLED = 256
#: Metrics that are stated as shares of the theoretical bandwidth of a bank, with their verbs.
_OF_THEORY = {"saturation_bandwidth": "saturates", "peak_bandwidth": "reaches its peak"}
_DISTURBED = "disturbed: other processes used {busy:.2g} PUs; measure it again"


# ----------------------------------------------------------------------
# Sentences


def _reason(value: float, repetitions: int, reference: Reference, whose: str, word: Word) -> str:
    """Return the reason of a verdict; *whose* value is expected."""
    parts = [compared(value, repetitions, reference, whose)]
    if word == "suspect" and reference.line:
        parts.append("better than it can be: a wrong measurement or reference")
    return ", ".join(parts)


def _of_theory(metric: str, value: float, reference: Reference, theory: float | None) -> str:
    """Return ``saturates at 61.2 % of theory; this system's reference is 78.0 % to 84.0 %``.

    Without *theory*, the theoretical bandwidth, all values are in GB/s.
    """
    whose = "system" if reference.line else "fleet"
    at = f"{percent(value / theory)} of theory" if theory else quantity(value, reference.unit)
    of = quantity_range(*reference.ends, reference.unit, theory)
    return f"{_OF_THEORY[metric]} at {at}; this {whose}'s reference is {of}; "


# ----------------------------------------------------------------------
# The findings of all hosts


class Findings(Struct, frozen=True, dict=True):
    """The findings of the hosts of a *system*.

    A row stands for a host and a case, as a group of *samples* does, and has the same number. A part that is
    unlike its host's own level is a finding of *parts* alone. :mod:`firsttouch.judge.judging` fills the columns.
    """

    samples: SamplesTable
    system: System | Undescribed
    #: What was judged of each part in each session; None: nothing was measured.
    fleet: Fleet | None
    #: By host: what should have been measured and was not, with the reason.
    missing: Mapping[str, Sequence[str]]
    #: Returns the newest configuration of each host; called only if a host is suspect or fails.
    configurations: Callable[[], Mapping[str, Configuration]]
    #: By row: its verdict, the reference that decided (2: none), its loss as a multiple of the limit (NaN: not
    #: compared), and whether another repetition may decide.
    words: NDArray[np.uint8]
    by: NDArray[np.uint8]
    evidence: Floats
    wanted: Bools
    #: By repetition: whether it counts.
    counts_now: Bools
    #: By the number of the case: the reference of the system and that of the fleet.
    references: list[tuple[Reference | None, Reference | None]]
    #: By the number of the host: findings about parts, and the parts of which too small losses would not be seen.
    parts: dict[int, list[PartFinding]] = field(default_factory=dict)
    blind: dict[int, dict[str, float]] = field(default_factory=dict)
    #: Lines about hosts that changed together, and groups of hosts.
    updates: list[str] = field(default_factory=list)
    divided: list[Divided] = field(default_factory=list)
    #: By the number of the host, what its parts should reach; none of a large fleet.
    expected: dict[int, tuple[Expectation, ...]] = field(default_factory=dict)

    @classmethod
    def blank(
        cls,
        samples: SamplesTable,
        system: System | Undescribed,
        fleet: Fleet | None,
        missing: Mapping[str, Sequence[str]],
        configurations: Callable[[], Mapping[str, Configuration]],
    ) -> Findings:
        """Return findings in which every row passes and nothing decided."""
        count = len(samples.counts)
        words, by = np.full(count, PASS, dtype=np.uint8), np.full(count, NONE, dtype=np.uint8)
        columns = words, by, np.full(count, np.nan), np.zeros(count, dtype=np.bool_), samples.valid.copy()
        none: tuple[None, None] = (None, None)
        return cls(samples, system, fleet, missing, configurations, *columns, [none] * len(samples.cases))

    @cached_property
    def table(self) -> pl.DataFrame:
        """The findings, one row per host and case.

        ===================  =========================================================================
        ``case``, ``host``   their numbers in *samples*
        ``value``            the median of the repetitions that count (NaN: none does)
        ``n``, ``sessions``  the number of these repetitions and of their sessions
        ``newest``           the time of the newest repetition (ms since 1970, 0: unknown)
        ``by``, ``word``     the numbers of what decided and of the verdict
        ``expected``         what the reference that decided expects (NaN: none decided)
        ``minimum``          its lower limit, and ``maximum`` its upper one (NaN: none)
        ``change``           ``value`` relative to ``expected``, less 1 (NaN: not comparable)
        ``loss``             how much worse that is, from 0 (and for a pass) to 1
        ``evidence``         the loss as a multiple of its limit
        ===================  =========================================================================
        """
        return self.part(slice(0, len(self.words)))

    def part(self, rows: slice) -> pl.DataFrame:
        """Return some consecutive *rows* of :attr:`table`."""
        import polars as pl  # noqa: PLC0415 - a large import

        expected, minimum, maximum = (self._of_decider(name, rows) for name in ("value", "minimum", "maximum"))
        columns: dict[str, NDArray[Any]] = {
            "case": self.samples.case[rows],
            "host": self.samples.host[rows],
            "value": self.value[rows],
            "n": self.n[rows],
            "sessions": self._sessions[rows],
            "newest": self.newest[rows],
            "by": self.by[rows],
            "word": self.words[rows],
            "expected": expected,
            "minimum": minimum,
            "maximum": maximum,
            "change": self.change[rows],
            "loss": self.losses[rows],
            "evidence": self.evidence[rows],
        }
        return pl.DataFrame(columns)

    def _of_decider(self, attribute: str, rows: slice) -> Floats:
        """Return a number of the reference that decided each of *rows*; NaN if none did, or if it has none."""
        numbers = np.full((len(self.samples.cases), NONE + 1), np.nan)
        for case, references in enumerate(self.references):
            for by, reference in enumerate(references):
                if reference is not None and (number := getattr(reference, attribute)) is not None:
                    numbers[case, by] = number
        column: Floats = numbers[self.samples.case[rows], self.by[rows]]
        return column

    @cached_property
    def value(self) -> Floats:
        """The column ``value`` of the table."""
        is_measured, medians = self.n > 0, np.full(len(self.n), np.nan)
        medians[is_measured] = group_medians(self.samples.value[self.counts_now], self.n[is_measured])
        return medians

    @cached_property
    def n(self) -> Ints:
        """The column ``n`` of the table."""
        return group_sums(self.counts_now, self.samples.begins)

    @cached_property
    def newest(self) -> Ints:
        """The column ``newest`` of the table."""
        newest: Ints = self.samples.time[self.samples.begins + self.samples.counts - 1]
        return newest

    @property
    def _sessions(self) -> Ints:
        """The column ``sessions`` of the table."""
        session, row = self.samples.sessions_of_rows[self.counts_now], np.repeat(np.arange(len(self.n)), self.n)
        is_first = (np.diff(session, prepend=-1) != 0) | (np.diff(row, prepend=-1) != 0)
        counts: Ints = np.bincount(row[is_first], minlength=len(self.n))
        return counts

    @cached_property
    def change(self) -> Floats:
        """The column ``change`` of the table."""
        expected = self._of_decider("value", slice(0, len(self.words)))
        expected[~((expected > 0) & ~self._of_events[self.samples.case])] = np.nan
        change = np.divide(self.value, expected, out=expected)
        change -= 1
        return change

    @cached_property
    def losses(self) -> Floats:
        """The column ``loss`` of the table."""
        signs = np.array([-1 if case.better == "higher" else 1 for case in self.samples.cases], dtype=np.int8)
        is_neither = np.array([case.better == "neither" for case in self.samples.cases], dtype=np.bool_)
        losses: Floats = self.change * signs[self.samples.case]
        np.abs(losses, out=losses, where=is_neither[self.samples.case])
        np.nan_to_num(losses, copy=False)
        losses[self.words == PASS] = 0.0
        return np.clip(losses, 0.0, 1.0, out=losses)

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
    def deciding_cases(self) -> NDArray[np.bool_]:
        """Which cases judge at least one host.

        Cases of events are known of those hosts only on which there were some.
        """
        counts = np.bincount(self.samples.case[self.by != NONE], minlength=len(self.samples.cases))
        return (counts > 0) & ~self._of_events

    @cached_property
    def expected_cases(self) -> NDArray[np.bool_]:
        """Which of the :attr:`deciding_cases` every host should have: most hosts have them.

        What only some hosts have measured was not planned for the others.
        """
        hosts = np.bincount(self.samples.case, minlength=len(self.samples.cases))
        return self.deciding_cases & (2 * hosts > len(self.samples.hosts))

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
    def overdue(self) -> NDArray[np.intp]:
        """The groups that their hosts have no repetition of any more, although most siblings still have.

        Most siblings have measured such a case several times since, and the host has measured others.
        """
        samples = self.samples
        last = self.newest
        old = np.flatnonzero((last + _DAY < self.host_newest[samples.host]) & self.deciding_cases[samples.case])
        cases = np.unique(samples.case[old]).tolist()
        overdue: list[int] = []
        for case in cases:
            groups = samples.groups(case)
            siblings = range(groups.start, groups.stop, max(1, (groups.stop - groups.start) // _SAMPLED))
            begins = [
                samples.time[samples.rows_of(sibling)][np.diff(samples.session(sibling), prepend=-1) != 0]
                for sibling in (slice(group, group + 1) for group in siblings)
            ]
            for group in old[samples.case[old] == case].tolist():
                since = [np.count_nonzero(of_sibling > last[group] + _DAY) for of_sibling in begins]
                if np.median(since) >= _MISSED:
                    overdue.append(group)
        return np.array(overdue, dtype=np.intp)

    @cached_property
    def absent(self) -> Ints:
        """How many of the expected cases each host lacks, and how many of its cases are overdue."""
        hosts, count = self.samples.host, len(self.samples.hosts)
        present = np.bincount(hosts[self.expected_cases[self.samples.case]], minlength=count)
        overdue = np.bincount(hosts[self.overdue], minlength=count)
        return np.count_nonzero(self.expected_cases) - present + overdue

    @cached_property
    def disturbed(self) -> Bools:
        """Which measured groups are invalid only because other processes used the host."""
        is_invalid: Bools = (self.words == INVALID) & ~self._of_events[self.samples.case]
        return is_invalid & (group_sums(self.samples.valid, self.samples.begins) > 0)

    def blind_parts(self, host: str) -> Mapping[str, float]:
        """Return the parts for which a *host* cannot pass, with the smallest loss of each that would be seen."""
        number = self.number.get(host)
        return {} if number is None else self.blind.get(number, {})

    @cached_property
    def _worst(self) -> NDArray[np.intp]:
        """The worst verdict of each host's metrics and of what the comparison sees, as a number."""
        is_present = self.counts[:, : len(ORDER)] > 0
        last = len(ORDER) - 1 - np.argmax(is_present[:, ::-1], axis=1)
        worst = np.where(is_present.any(axis=1), last, UNDECIDED)
        for number in self.blind:
            worst[number] = max(worst[number], UNDECIDED)
        for number, findings in self.parts.items():
            worst[number] = max(worst[number], *(ORDER.index(part.word) for part in findings))
        return worst

    def word(self, host: str) -> int:
        """Return the number of a host's verdict."""
        number = self.number.get(host)
        if number is None:
            return SUSPECT
        worst = int(self._worst[number])
        return max(worst, SUSPECT) if self.missing.get(host) or self.absent[number] else worst

    def decider(self, group: int) -> Reference | None:
        """Return the reference that decided a group, None if none did."""
        by = int(self.by[group])
        return None if by == NONE else self.references[int(self.samples.case[group])][by]

    def reference(self, case: int) -> Reference | None:
        """Return the reference that pages compare all hosts with: the one that decided the worst verdict."""
        system, fleet = self.references[case]
        if system is None or fleet is None:
            return system or fleet
        groups = self.samples.groups(case)
        worst = [int(self.words[groups][self.by[groups] == by].max(initial=PASS)) for by in (SYSTEM, FLEET)]
        return fleet if worst[FLEET] > worst[SYSTEM] else system

    @cached_property
    def _case_values(self) -> Floats:
        """What the :meth:`reference` of each case expects; NaN if there is none, or no change can be stated."""
        references = map(self.reference, range(len(self.samples.cases)))
        values = np.array([reference.value if reference else np.nan for reference in references], dtype=float)
        return np.where((values > 0) & ~self._of_events, values, np.nan)

    def from_reference(self, rows: slice | NDArray[np.intp]) -> Floats:
        """Return the relative difference of the values of *rows* from the :meth:`reference` of their cases.

        All hosts are compared with the same value, so these can be drawn and counted together. NaN: not judged.
        """
        expected = np.where(self.by[rows] == NONE, np.nan, self._case_values[self.samples.case[rows]])
        differences: Floats = self.value[rows] / expected - 1
        return differences

    @cached_property
    def common_loss(self) -> CommonLoss | None:
        """The loss against the system's references that most hosts share, None if there is none."""
        groups = self._lossy(UNDECIDED)
        groups = groups[self.by[groups] == SYSTEM]
        return common_loss(self.samples, groups, self.losses[groups])

    def _lossy(self, worse_than: int) -> NDArray[np.intp]:
        """Return the rows that have a loss and a verdict whose number is larger than *worse_than*."""
        return np.flatnonzero((self.words > worse_than) & (self.losses > 0))

    @cached_property
    def host_losses(self) -> Floats:
        """The largest loss of a metric or a part of each host that has repetitions (0: all pass)."""
        losses = np.zeros(len(self.samples.hosts))
        np.maximum.at(losses, self.samples.host, self.losses)
        for host, findings in self.parts.items():
            losses[host] = max(losses[host], *(as_fraction(f.loss) for f in findings))
        return losses

    @cached_property
    def host_newest(self) -> Ints:
        """The time of the newest repetition of each host that has some (ms since 1970, 0: unknown)."""
        newest = np.zeros(len(self.samples.hosts), dtype=np.int64)
        np.maximum.at(newest, self.samples.host, self.newest)
        return newest

    @cached_property
    def by_severity(self) -> Sequence[str]:
        """All hosts, the worst first: by the verdict, then by the largest loss (1 if something is missing).

        The number of losses does not count: many small ones are not worse than a large one.
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

    def line(self, host: str) -> str:
        """Return the one-line verdict of a host without its evidence."""
        summary, of_parts = self.summary(host), self.parts.get(self.number.get(host, -1), ())
        parts = [f"{summary.counts.get('pass', 0)} of {sum(summary.counts.values())} judged metrics pass"]
        parts += [f"{count} {word}" for word, count in summary.counts.items() if word != "pass"]
        parts += [f"{summary.missing} missing"] if summary.missing else []
        parts += [max(of_parts, key=lambda p: (ORDER.index(p.word), p.loss)).text()] if of_parts else []
        blind = self.blind_parts(host) if summary.verdict == "undecided" else {}
        parts += [blind_text(blind)] if blind else []
        return f"verdict {host} {summary.verdict}: {'; '.join(parts)}"

    def notes(self) -> list[str]:
        """Return the lines about the fleet: updates, losses that hosts share, and two groups of hosts."""
        shared = [self.common_loss.text] if self.common_loss else []
        return [*self.updates, *shared, *(two.text for two in self.divided)]

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
        absent_cases = self.absent_cases(host)
        slow = self.word(host) in {SUSPECT, FAIL}
        usual, modules = self._drift.modules(host, lambda name: self.word(name) == PASS) if slow else ({}, ())
        missing = [(case.check, case.parameters) for case in absent_cases]
        sessions = int(self.samples.sessions[groups].max(initial=0))
        parts = self.parts.get(self.number.get(host, -1), ())
        places = self.fleet.places if self.fleet else {}
        symptoms = Symptoms(findings, parts, settings, self.system.facts, missing, usual, modules, places)
        return HostVerdict(
            host,
            self.system.name,
            findings,
            len(metrics) - len(findings),
            (
                *self.missing.get(host, ()),
                *(f"{case.title}: other hosts were judged by it" for case in absent_cases),
                *self._overdue_texts(groups),
            ),
            tuple(causes(symptoms)) if slow else (),
            visible=self._visible(host),
            blind=self.blind_parts(host),
            loss=float(self.host_losses[self.number[host]]) if host in self.number else 0.0,
            newest=int(self.host_newest[self.number[host]]) if host in self.number else 0,
            replaced=self._replaced(host, sessions),
            sessions=sessions,
            parts=tuple(parts),
            expected=self.expected.get(self.number.get(host, -1), ()),
        )

    def _replaced(self, host: str, sessions: int) -> str:
        """Return a line about a host's new board or processors, unless *sessions* with them are enough."""
        if host not in self.samples.replaced or sessions >= STABLE_SESSIONS:
            return ""
        replacement = self.samples.replaced[host]
        before, since = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (replacement.before, replacement.since))
        return (
            f"another board or other processors since a time between {before:%Y-%m-%d %H:%M} and "
            f"{since:%Y-%m-%d %H:%M} UTC: older sessions do not count"
        )

    def _visible(self, host: str) -> tuple[float, float] | None:
        """Return the smallest losses that are seen: of the median part of a host, and of the worst."""
        number = self.number.get(host)
        if number is None or self.fleet is None:
            return None
        sights = [float(judged.sight[number]) for judged in self.fleet.series if not judged.series.is_together]
        losses = [as_fraction(sight) for sight in sights if math.isfinite(sight)]
        return (float(np.median(losses)), max(losses)) if losses else None

    def absent_cases(self, host: str) -> list[Case]:
        """Return the expected cases that a measured *host* lacks."""
        if not len(groups := self.groups(host)):
            return []
        is_absent = self.expected_cases.copy()
        is_absent[self.samples.case[groups]] = False
        return [self.samples.cases[number] for number in np.flatnonzero(is_absent).tolist()]

    def _overdue_texts(self, groups: NDArray[np.intp]) -> Iterator[str]:
        """Yield which cases of a host are overdue, and since when."""
        samples = self.samples
        for group in groups[np.isin(groups, self.overdue)].tolist():
            last = day(int(self.newest[group]))
            yield f"{samples.cases[samples.case[group]].title}: last measured on {last}, other hosts still are"

    def _findings(self, groups: NDArray[np.intp], theory: float | None) -> Iterator[Finding]:
        """Yield the finding of each group; its reference is None if nothing judges it.

        *theory* is the theoretical bandwidth of one bank (GB/s).
        """
        samples = self.samples
        groups = groups[~self._quiet[groups]]
        columns = samples.case, self.by, self.words, self.evidence, self.value
        lists = (column[groups].tolist() for column in columns)
        for group, of_case, by, verdict, weight, value in zip(groups.tolist(), *lists, strict=True):
            case, word, of_group = samples.cases[of_case], ORDER[verdict], slice(group, group + 1)
            rows = samples.rows_of(of_group)
            values = tuple(samples.value[rows][self.counts_now[rows]].tolist())
            reference = self.decider(group)
            evidence = None if math.isnan(weight) else weight
            if word == "invalid":
                values, why = (), _invalid(samples, of_group)
            elif reference is None:
                why = _NO_REFERENCE
            elif reference.source == FACTS:
                amounts = [quantity(v, case.unit) for v in (values[-1], reference.value)]
                why = f"this host has {amounts[0]}, {self.system.name} has {amounts[1]}"
            elif limit := event_limits.limit_of(case):
                why = event_limits.reason(values, limit)
            else:
                learnt = by == FLEET or reference.source.startswith("fleet")
                whose = "the fleet" if learnt else f"the reference of {self.system.name}"
                why = _reason(value, len(values), reference, whose, word)
                if case.metric in _OF_THEORY:
                    why = _of_theory(case.metric, value, reference, theory) + why
            yield Finding(case, values, reference, word, why, evidence, value if values else None)


def _invalid(samples: SamplesTable, group: slice) -> str:
    """Return why no repetition of a group's newest session counts."""
    rows = samples.rows_of(group)
    if limit := event_limits.limit_of(samples.cases[samples.case[group.start]]):
        exceeding = np.flatnonzero(~samples.valid[rows] & (samples.value[rows] > limit.most))
        row = rows.start + int(exceeding[-1])
        return f"{samples.value[row]:g}, in a record that is invalid: {samples.reason_of(row)}"
    session, valid = samples.session(group), samples.valid[rows]
    if not valid[session == session[-1]].any():
        return samples.reason_of(rows.stop - 1) or _NO_PLACEMENT
    if not (samples.value[rows][valid & (session == session[-1])] > 0).any():
        return "it measured 0: measure it again"
    return _DISTURBED.format(busy=0 if samples.busy_pus is None else samples.busy_pus[rows][valid].max())
