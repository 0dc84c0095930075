# SPDX-License-Identifier: Apache-2.0
"""Judges samples by a system's references, by the fleet, and by each host's own best level.

There are three separate questions: is a part below its promised level (the system's references), is it unlike its
siblings, and is it unlike itself in its best stable period (:mod:`firsttouch.judge.part_judge`)? One certain
answer fails a host. Counts, wrong answers and other exact values decide at once.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from firsttouch.host.host_lists import natural
from firsttouch.judge import constants, event_limits, history, questions
from firsttouch.judge.findings import FAIL, FLEET, INVALID, NONE, PASS, SUSPECT, SYSTEM, UNDECIDED, Findings
from firsttouch.judge.part_judge import OWN, SIBLINGS, Fleet, Judged, judge_parts
from firsttouch.judge.verdict import ORDER, Divided, HostVerdict, PartFinding
from firsttouch.paths import LOCAL
from firsttouch.records import samples_table
from firsttouch.records.cases import Case
from firsttouch.records.drift import Configuration, latest
from firsttouch.records.groups import Bools, Floats, Ints, group_medians, group_sums
from firsttouch.records.parts import kind_of, part_of
from firsttouch.records.samples_table import SamplesTable
from firsttouch.records.schema import Record
from firsttouch.statistics import as_fraction, as_logarithm, beyond_limits, out_of_limits, student_quantile
from firsttouch.systems.expectation import IDLE, SUSPECTED, Expectation, HostParts, settled
from firsttouch.systems.references import Reference
from firsttouch.units import day

if TYPE_CHECKING:
    from firsttouch.systems.definition import System, Undescribed


#: The texts of the comparisons in the questions about parts, by number; and the text for references.
_COMPARED_WITH = ("its siblings", "its own level")
_PROMISED = "what was promised"
#: Of a larger fleet, only some hosts are compared with their processors' model (7 ms each, 800 cases). If most of
#: these are low in the same part, all are.
MOST_EXPECTED, _SOME = 64, 8
_AWAITING = "in one session after good ones: it fails if the next one shows this, too"


def judge(
    records: Iterable[Record], system: System | Undescribed, *, missing: Mapping[str, Sequence[str]] | None = None
) -> list[HostVerdict]:
    """Return the verdict of every host that has records of *system*, or that is among *missing*, by name.

    *missing* names, by host, the measurements that are missing. A case that judges hosts and that most
    hosts have is missing on the others, too.
    """
    records = list(records)
    samples = samples_table.of_records(records, system.name)
    verdicts = judged(samples, system, missing=missing, configurations=lambda: latest(records))
    return [verdicts.verdict(host) for host in verdicts.hosts]


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
    measured = [n for n, case in enumerate(samples.cases) if not event_limits.is_exact(case)]
    of_parts = judge_parts(samples, measured, fleet=fleet)
    rows = len(samples.counts)
    words, by = np.full(rows, PASS, dtype=np.uint8), np.full(rows, NONE, dtype=np.uint8)
    columns = words, by, np.zeros(rows, dtype=np.bool_), samples.valid.copy()
    references: list[tuple[Reference | None, Reference | None]] = [(None, None)] * len(samples.cases)
    findings = Findings(samples, system, of_parts, missing or {}, configurations, *columns, references)
    judging = _Judging(findings, is_fleet=(is_fleet := fleet and len(samples.hosts) >= constants.FEWEST_HOSTS))
    judging.exact_values()
    judging.measured_values()
    # That facts agree does not make a host good of which nothing else was judged.
    is_fact = np.array([case.exact for case in samples.cases], dtype=np.bool_)[samples.case] & (by != SYSTEM)
    has_more = np.bincount(samples.host[(by != NONE) & ~is_fact], minlength=len(samples.hosts)) > 0
    by[is_fact & (words == PASS) & ~has_more[samples.host]] = NONE
    _expect(findings, is_fleet=is_fleet)
    return findings


def _expect(findings: Findings, *, is_fleet: bool) -> None:
    """Fill in the level that parts of each host should reach. Low and impossible levels never fail a host."""
    hosts = len(findings.samples.hosts)
    asked: Sequence[int] = range(hosts)
    if hosts > MOST_EXPECTED:
        of_asked = _expected(findings, range(0, hosts, hosts // _SOME), is_fleet=is_fleet)
        lows = Counter((e.part, e.kind) for of in of_asked for e in of if e.answer == "low")
        asked = asked if 2 * max(lows.values(), default=0) > len(of_asked) else ()
    expected = dict(zip(asked, _expected(findings, asked, is_fleet=is_fleet), strict=True))
    low_parts = {(e.part, e.kind) for of in expected.values() for e in of if e.answer in SUSPECTED}
    for number, of in expected.items():
        findings.expected[number] = tuple(of)
        # A busy host that is as slow as low ones may be low, too.
        for stated in (e for e in of if e.needs == IDLE and (e.part, e.kind) in low_parts):
            doubtful = replace(PartFinding.from_expectation(stated), word="undecided", note=IDLE)
            findings.parts.setdefault(number, []).append(doubtful)
        worded = findings.parts.get(number, [])
        bad = {(part.part, part.kind) for part in worded if part.word in {"suspect", "fail"}}
        low = (e for e in of if e.answer in SUSPECTED and (e.part, e.kind) not in bad)
        if added := [*map(PartFinding.from_expectation, low)]:
            findings.parts[number] = [*worded, *added]


def _expected(findings: Findings, numbers: Sequence[int], *, is_fleet: bool) -> list[list[Expectation]]:
    """Return the levels that parts of some hosts should reach; of ratios, only low ones that most hosts share."""
    samples, configurations = findings.samples, findings.newest_configurations
    # The facts of the system local were drafted from the host that reads the records.
    facts = None if findings.system.name == LOCAL else findings.system.facts
    promised = {
        part_of(case).text
        for case, (reference, _) in zip(samples.cases, findings.references, strict=True)
        if reference is not None and kind_of(case) == "bandwidth"
    }
    settings = [c.settings if (c := configurations.get(samples.hosts[n])) else {} for n in numbers]
    hosts = [
        HostParts(samples, findings.medians(samples.groups_of_host(number)), number, facts, of_host)
        for number, of_host in zip(numbers, settings, strict=True)
    ]
    ratios = [[*settled(questions.ratios(host))] for host in hosts]
    lows = Counter((e.part, e.kind) for of_host in ratios for e in of_host if e.answer == "low")
    used = [[e for e in of if not is_fleet or 2 * lows[e.part, e.kind] > len(hosts)] for of in ratios]
    stated = ([*settled(parts.from_sources()), *of] for parts, of in zip(hosts, used, strict=True))
    # References take precedence over levels of the processor's model, and over ratios.
    return [
        [e for e in of if e.kind != "bandwidth" or e.part not in promised or e.answer == "impossible"]
        for of in stated
    ]


def explain(findings: Findings, host: int) -> list[PartFinding]:
    """Return the answer of each question about each part of a host (a number), good ones included."""
    answers: dict[tuple[str, str, str], PartFinding] = {}
    for judged in findings.fleet.series:
        for question, answer in zip(_COMPARED_WITH, judged.answers, strict=True):
            loss, limit = float(answer.loss[host]), float(answer.limit[host])
            if math.isfinite(loss):
                word = FAIL if loss > limit else SUSPECT if loss > answer.unusual[host] else PASS
                # A change is not a fail if another part, an update or a single repetition explains it.
                word = min(word, int(judged.words[host]))
                note = judged.explained.get(host, "") if loss > answer.unusual[host] else ""
                if judged.losses.is_disturbed[host] and word != PASS:
                    word, note = INVALID, f"disturbed: {IDLE}"
                finding = _finding(findings.fleet, judged, host, question, loss, limit, word, note)
                answers[finding.part, finding.kind, question] = replace(finding, sight=float(answer.sight[host]))
    # The finding names a decision of references, two groups, or a single session.
    answers |= {(f.part, f.kind, f.question): f for f in findings.parts.get(host, ())}
    expected = [PartFinding.from_expectation(e) for e in findings.expected.get(host, ()) if e.answer != "unknown"]
    return [*({(f.part, f.kind, f.question): f for f in expected} | answers).values()]


class _Judging:
    """Fills the columns of *findings*."""

    def __init__(self, findings: Findings, *, is_fleet: bool) -> None:
        self._findings, self._samples, self._system = findings, findings.samples, findings.system
        self._fleet, self._is_fleet = findings.fleet, is_fleet
        self._tests = max(1, len(self._fleet.cases))
        self._sight = as_logarithm(self._system.sight or constants.PASS_SIGHT)

    def exact_values(self) -> None:
        """Judge values that are counted or read, of which one is sufficient."""
        events = event_limits.EventLimits(self._samples)
        for number, case in enumerate(self._samples.cases):
            if limit := case.limit:
                groups = self._samples.groups(number)
                words, now = events.judge(number, limit)
                self._findings.words[groups] = words
                # A count of zero is not a proof: only an exceeded limit sets *by*.
                self._findings.by[groups][words > PASS] = SYSTEM
                self._findings.counts_now[self._samples.rows_of(groups)] = now
                stated = case.check, case.metric, case.parameters, limit.most, None, 0.0, case.unit
                self._findings.references[number] = Reference(*stated, "metrics.toml", 0), None
            elif case.exact:
                self._exact(number)

    # ------------------------------------------------------------------
    # Exact values are read from the host, so one is sufficient

    def _exact(self, number: int) -> None:
        samples, case = self._samples, self._samples.cases[number]
        groups = samples.groups(number)
        rows, counts = samples.rows_of(groups), samples.counts[groups]
        ends = np.cumsum(counts) - 1
        values, valid = samples.values(rows)[ends], samples.valid[rows][ends]
        judged = samples.judged[rows][ends]
        system = self._system.reference(case.check, case.metric, case.parameters)
        fleet = self._usual(case, values[valid & judged]) if self._is_fleet else None
        words, by = self._findings.words[groups], self._findings.by[groups]
        if fleet is not None:
            by[:] = FLEET
            words[out_of_limits(values, case.better, fleet.minimum, fleet.maximum)[0]] = FAIL
        fact = self._system.fact(case.check, case.metric) if system is None else None
        if (reference := system or fact) is not None:
            bad, good = out_of_limits(values, case.better, reference.minimum, reference.maximum)
            bad, good = bad & judged, good & judged & bool(reference.line)
            # Facts can fail a host, but agreeing with them does not make it good.
            decides = judged & ((words == PASS) | bad) if system else bad
            by[decides], words[decides] = SYSTEM, PASS
            words[bad], words[good & ~bad] = FAIL, np.maximum(words[good & ~bad], SUSPECT)
        words[~valid] = INVALID
        # The newest value decides, and is the one to show.
        is_older = np.repeat(words == FAIL, counts)
        is_older[ends] = False
        self._findings.counts_now[rows][is_older] = False
        self._drop_invalid(number)
        self._findings.references[number] = (reference, fleet)

    def _usual(self, case: Case, values: Floats) -> Reference | None:
        """Return the value that more than half of the hosts have: good hosts do not differ in exact values."""
        if len(values) < constants.FEWEST_HOSTS or values.min() <= 0:
            return None
        usual = float(np.median(values)) if case.unit != "1" else statistics.mode(np.sort(values).tolist())
        limit = 0.0 if case.unit == "1" else constants.LEAST_LOSS
        near = int(np.count_nonzero(np.abs(values / usual - 1) <= limit))
        if 2 * near <= len(values):
            return None
        return _learnt(case, usual, limit, f"{near} of {len(values)} hosts of this fleet")

    def _drop_invalid(self, number: int) -> None:
        """Exclude all repetitions of an invalid value."""
        groups = self._samples.groups(number)
        if (is_invalid := self._findings.words[groups] == INVALID).any():
            repetitions = np.repeat(is_invalid, self._samples.counts[groups])
            self._findings.counts_now[self._samples.rows_of(groups)][repetitions] = False

    # ------------------------------------------------------------------
    # Measured values, judged by parts

    def measured_values(self) -> None:
        """Judge the metrics and parts of hosts."""
        findings, fleet = self._findings, self._fleet
        excess: dict[int, tuple[Floats, Floats]] = {}
        for place, number in enumerate(fleet.cases.tolist()):
            judged = fleet.series_of[number]
            disturbed = self._count_now(number, judged, fleet.case_begins[place])
            self._case_by_fleet(number, place, judged)
            groups = self._samples.groups(number)
            words, host = findings.words[groups], self._samples.host[groups]
            # Good values of a busy host pass if a reference or idle hosts show what is good.
            shows_good = np.isfinite(judged.answers[SIBLINGS].loss[host]) | (not self._is_fleet)
            if beyond := self._case_by_reference(number, place):
                excess[place], shows_good[:] = beyond, True
            is_bad = (words > PASS) | (judged.words[host] > PASS)
            words[judged.losses.is_disturbed[host] & is_bad | disturbed & ~shows_good] = INVALID
            findings.wanted[groups] |= (words == INVALID) & (disturbed | self._is_fleet | (place in excess))
            self._drop_invalid(number)
        for judged in fleet.series:
            self._together(judged, excess)
            self._part_findings(judged)
        if not self._is_fleet and not (findings.by != NONE).any():
            findings.blind.clear()  # no group was judged
        findings.divided.extend(_divided(fleet, self._samples))
        findings.updates.extend(change.text() for change in history.updates(findings))

    def _count_now(self, number: int, judged: Judged, begins_of: Ints) -> Bools:
        """Mark the repetitions to use: those since the last change, and only undisturbed ones if there are any.

        Return which groups have only disturbed ones in their newest session.
        """
        samples = self._samples
        groups = samples.groups(number)
        rows, counts = samples.rows_of(groups), samples.counts[groups]
        begins, ordinal = np.cumsum(counts) - counts, samples.ordinal[rows]
        begin = self._fleet.sessions.number[np.maximum(np.maximum(judged.timeline.begin, begins_of), 0)]
        since = np.maximum(begin - samples.host_sessions, 0).astype(ordinal.dtype)[samples.host[groups]]
        usable = samples.valid[rows] & (samples.value[rows] > 0)
        now = usable & (ordinal >= np.repeat(since, counts))
        in_newest = usable & (ordinal == np.repeat(ordinal[begins + counts - 1], counts))
        is_measured = np.logical_or.reduceat(in_newest, begins)
        is_disturbed = np.zeros(len(counts), dtype=np.bool_)
        if samples.busy_pus is not None:
            is_idle = ~samples.is_busy(rows)
            is_disturbed = is_measured & ~np.logical_or.reduceat(in_newest & is_idle, begins)
            has_calm = np.logical_or.reduceat(now & is_idle, begins)
            now &= is_idle | ~np.repeat(has_calm, counts)
        self._findings.counts_now[rows] = now
        # At least one repetition of the newest session must be used.
        self._findings.words[groups][~is_measured] = INVALID
        return is_disturbed

    def _case_by_fleet(self, number: int, place: int, judged: Judged) -> None:
        """Judge a metric by its siblings: it shares its part's verdict if its loss is half of the part's."""
        samples, fleet, case = self._samples, self._fleet, self._samples.cases[number]
        groups = samples.groups(number)
        host = samples.host[groups]
        siblings, usual = judged.answers[SIBLINGS], float(fleet.centres[place])
        words = self._findings.words[groups]
        # More repetitions help only if the limit is wide because of noise, not because hosts differ.
        helps = judged.timeline.noise**2 / np.maximum(judged.timeline.size, 1) > 0.05 * judged.deviation**2
        helps |= (judged.timeline.size == 1) & (judged.losses.repetitions < constants.MOST_WITHOUT_NOISE)
        finite, alone_limit = siblings.limit[np.isfinite(siblings.limit)], float(fleet.alone_limits[place])
        limit = float(np.median(finite)) if len(finite) else math.inf
        if self._is_fleet and math.isfinite(limit) and not math.isnan(usual):
            value = math.exp(case.loss_sign * usual)
            count = int(np.count_nonzero(np.isfinite(siblings.loss)))
            fine = int(np.count_nonzero(siblings.loss <= siblings.limit))
            of = f"{fine} of {count} hosts of this fleet"
            usual_value = _learnt(case, value, as_fraction(min(limit, alone_limit)), of)
            self._findings.references[number] = None, usual_value
            self._findings.by[groups][np.isfinite(siblings.loss[host]) & (words != INVALID)] = FLEET
        alone, loss = fleet.alone[place, host], siblings.loss[host]
        with np.errstate(invalid="ignore"):
            shows = ~(fleet.case_levels[place, host] < 0.5 * loss)
            unseen = np.isfinite(judged.level) & ~(judged.sight <= self._sight)
            part = np.where((judged.question[host] == SIBLINGS) & shows, judged.words[host], PASS)
        is_impossible = fleet.case_levels[place, host] < -math.log(constants.IMPOSSIBLE)
        word = np.maximum(np.maximum(part, alone), np.where(is_impossible, SUSPECT, PASS))
        is_bad = (word > PASS) & (words != INVALID)
        words[is_bad] = word[is_bad]
        open_ = ((judged.words == UNDECIDED) | (judged.words == SUSPECT) | (unseen & self._is_fleet))[host]
        open_ |= (alone == UNDECIDED) | (alone == SUSPECT)
        self._findings.wanted[groups] = open_ & helps[host]

    # ------------------------------------------------------------------
    # Promised levels

    def _case_by_reference(self, number: int, place: int) -> tuple[Floats, Floats] | None:
        """Judge a case by the system's reference; return each host's excess over the tolerance and its error."""
        samples, case = self._samples, self._samples.cases[number]
        reference = self._system.reference(case.check, case.metric, case.parameters)
        fact = None if reference else self._system.fact(case.check, case.metric)
        if (stated := reference or fact) is None:
            return None
        excess, errors = (np.full(len(samples.hosts), np.nan) for _ in range(2))
        groups, limits = samples.groups(number), (stated.minimum, stated.maximum)
        rows, counts, host = samples.rows_of(groups), samples.counts[groups], samples.host[groups]
        words, by = self._findings.words[groups], self._findings.by[groups]
        self._findings.references[number] = (stated, self._findings.references[number][1])
        begins = np.cumsum(counts) - counts
        may_judge = samples.judged[rows][begins + counts - 1] & (words != INVALID)
        if reference is not None:
            by[may_judge & (words == PASS)] = SYSTEM
        values, now = samples.values(rows), self._findings.counts_now[rows]
        # Older good sessions do not hide a fault that only the newest session shows.
        session, is_outside = samples.session(groups), out_of_limits(values, case.better, *limits)[0]
        newest = now & (session == np.repeat(session[begins + counts - 1], counts))
        of_newest = group_sums(newest, begins)
        is_bad_now = (of_newest > 1) & (group_sums(newest & is_outside, begins) == of_newest)
        now &= newest | ~np.repeat(is_bad_now, counts)
        self._findings.counts_now[rows] = now
        n = np.add.reduceat(now.astype(np.int64), begins)
        may_judge &= n > 0
        median = np.full(len(counts), np.nan)
        median[n > 0] = group_medians(values[now], n[n > 0])
        with np.errstate(all="ignore"):
            bad, good = out_of_limits(median, case.better, *limits)
            outside = group_sums(now & is_outside, begins)
            # The noise of a repetition: from the reference or the prior, and from the hosts.
            prior, noise = stated.error or constants.PRIOR_NOISE, np.nan_to_num(self._fleet.noise[place])
            squares = constants.PRIOR_FREEDOM * prior**2 + (n - 1) * noise**2
            freedom = constants.PRIOR_FREEDOM + np.maximum(n - 1, 0)
            error = np.sqrt(squares / freedom / n)
        over = beyond_limits(median, case.better, *limits)
        excess[host[may_judge]], errors[host[may_judge]] = over[may_judge], error[may_judge]
        # A reference states the noise of many hosts.
        limit = student_quantile(constants.FAIL_TAIL / self._tests, 1e6 if stated.error else freedom) * error
        fails = bad & may_judge & (n > 1) & (outside == n)
        # Without a known noise, all repetitions decide.
        fails &= True if stated.error is None else (over > limit) | (n > constants.MOST_WITHOUT_NOISE + 1)
        word = np.where(fails, FAIL, np.where(bad & may_judge & (reference is not None), UNDECIDED, PASS))
        worse = word > words
        words[worse], by[worse] = word[worse], SYSTEM
        better = good & may_judge & ~bad & (words < SUSPECT) & bool(stated.line)
        words[better], by[better] = SUSPECT, SYSTEM
        if stated.error is not None:  # noise may hide on which side of the limit a host is
            self._findings.wanted[groups] |= may_judge & (words < SUSPECT) & (np.abs(over) < 2 * error)
        self._findings.wanted[groups] |= (words == UNDECIDED) & (by == SYSTEM)
        return excess, errors

    def _together(self, judged: Judged, excess: Mapping[int, tuple[Floats, Floats]]) -> None:
        """Let metrics of a part fail together if each is below its promised level."""
        places = [p for p in np.searchsorted(self._fleet.cases, judged.series.cases).tolist() if p in excess]
        if not places:
            return
        numbers, findings = self._fleet.cases[places], self._findings
        over, errors = (np.array(of_cases) for of_cases in zip(*map(excess.__getitem__, places), strict=True))
        counts = np.isfinite(over).sum(axis=0)
        with np.errstate(all="ignore"):
            mean, error = np.nansum(over, axis=0) / counts, np.sqrt(np.nansum(errors**2, axis=0)) / counts
            limit = student_quantile(constants.FAIL_TAIL / self._tests, constants.PRIOR_FREEDOM + counts) * error
            is_low = (counts >= 3) & (mean > limit) & ((over > 0).sum(axis=0) >= 0.75 * counts)
        allowed = as_logarithm(self._tolerance(judged.series.cases))
        for host in np.flatnonzero(counts).tolist():
            has_reference = np.isfinite(over[:, host])
            rows = np.array([self._samples.group(n, host) for n in numbers[has_reference].tolist()], dtype=np.intp)
            if is_low[host]:
                low = rows[(over[has_reference, host] > 0) & (findings.words[rows] != INVALID)]
                low = low[findings.words[low] != FAIL]
                findings.words[low], findings.by[low] = FAIL, SYSTEM
            fails = np.count_nonzero((findings.words[rows] == FAIL) & (findings.by[rows] == SYSTEM))
            # The series of all parts of a name is bad if most of its parts are.
            if fails >= (0.75 if judged.series.is_together else 0.5) * counts[host] and fails:
                self._add(judged, host, _PROMISED, float(mean[host]) + allowed, allowed, FAIL)

    def _tolerance(self, cases: Sequence[int]) -> float:
        """Return the mean tolerance of the references of some cases (numbers) on the bad side."""
        stated = ((self._samples.cases[n].better, self._findings.references[n][0]) for n in cases)
        sides = [(better, -(r.lower or 0.0), r.upper or 0.0) for better, r in stated if r is not None]
        tolerances = [{"higher": low, "lower": high}.get(better, max(low, high)) for better, low, high in sides]
        return float(np.mean(tolerances)) if tolerances else 0.0

    def _add(  # noqa: PLR0917
        self, judged: Judged, host: int, question: str, loss: float, limit: float, word: int, note: str = ""
    ) -> None:
        """Add a finding about a part, unless it has a worse one."""
        findings = self._findings.parts.setdefault(host, [])
        worse = {(f.part, f.kind) for f in findings if ORDER.index(f.word) >= word}
        if (judged.series.part.text, judged.series.kind) not in worse:
            findings.append(_finding(self._fleet, judged, host, question, loss, limit, word, note))

    # ------------------------------------------------------------------
    # Parts of hosts

    def _part_findings(self, judged: Judged) -> None:
        for host in np.flatnonzero((judged.words > PASS) & ~judged.losses.is_disturbed).tolist():
            loss, limit = judged.answer(host)
            number = int(judged.question[host])
            word, note = int(judged.words[host]), ""
            if number == OWN and judged.awaiting[host]:
                loss = loss if loss > limit else float(judged.timeline.last[host] - judged.level[host])
                limit = float(judged.sudden[host]) if word == FAIL else limit
                note = _AWAITING if word == SUSPECT else ""
            elif number == OWN and word == UNDECIDED:
                loss, limit = max(u.change for u in judged.updates if host in u.hosts), math.inf
                note = "with other hosts at the time: an update, or a fault that they share"
            elif judged.groups and word == UNDECIDED:
                note = f"one of two groups of hosts, {100 * as_fraction(judged.groups.apart):.0f} % apart"
            elif word < FAIL and loss > limit:
                note = "in too few repetitions to fail: measure it again"
            self._add(judged, host, _COMPARED_WITH[number], loss, limit, word, note)
        for host, (loss, limit, note) in judged.intermittent.items():
            self._add(judged, host, "its other sessions", loss, limit, SUSPECT, note)
        if judged.series.is_together:
            return
        by_system = [self._findings.references[number][0] is not None for number in judged.series.cases]
        if all(by_system) or (not self._is_fleet and any(by_system)):
            return
        with np.errstate(invalid="ignore"):
            sees = judged.sight <= self._sight
        for host in np.flatnonzero(np.isfinite(judged.level) & ~sees).tolist():
            self._findings.blind.setdefault(host, {})[judged.series.title] = as_fraction(float(judged.sight[host]))


def _finding(  # noqa: PLR0917
    fleet: Fleet, judged: Judged, host: int, question: str, loss: float, limit: float, word: int, note: str = ""
) -> PartFinding:
    part = judged.series.part
    between: tuple[int, ...] = ()
    if judged.timeline.before[host] >= 0 and question != _PROMISED:
        between = tuple(fleet.sessions.time[[judged.timeline.before[host], judged.timeline.begin[host]]].tolist())
    return PartFinding(
        *(part.text, judged.series.kind, ORDER[word], question, loss, limit, float(judged.sight[host])),
        int(judged.timeline.size[host]),
        round(float(np.nan_to_num(judged.losses.repetitions[host], nan=1.0))),
        day(between[1]) if between else "",
        note=note,
        series=judged.series.pattern,
        is_together=not part.place,
        between=between,
    )


def _divided(fleet: Fleet, samples: SamplesTable) -> list[Divided]:
    """Return the groups of hosts that parts show, sorted by the number of parts."""
    pairs: dict[tuple[tuple[str, ...], tuple[str, ...]], list[tuple[float, str]]] = {}
    for judged in fleet.series:
        if judged.groups is not None:
            sides = (np.isfinite(judged.level) & ~judged.groups.worse, judged.groups.worse)
            better, worse = (tuple(sorted(np.array(samples.hosts)[side].tolist(), key=natural)) for side in sides)
            pair = (worse, better) if (worse, better) in pairs else (better, worse)
            pairs.setdefault(pair, []).append((as_fraction(judged.groups.apart), judged.series.title))
    return [
        Divided(better, worse, [title for _, title in sorted(parts, reverse=True)], max(parts)[0])
        for (better, worse), parts in sorted(pairs.items(), key=lambda item: -len(item[1]))
    ]


def _learnt(case: Case, value: float, limit: float, source: str) -> Reference:
    return Reference(case.check, case.metric, case.parameters, value, -limit, limit, case.unit, source, 0, None)


def undecided_cases(verdicts: Findings, host: str, most: int = constants.MOST_REPETITIONS) -> dict[str, int]:
    """Return the keys of the cases of a *host* that one more repetition may decide, with their repetitions so far.

    They have fewer than *most* repetitions and belong to a part that is undecided or suspect, was measured only
    while other processes used the host, or has too wide a sight.
    """
    table, groups = verdicts.samples, verdicts.groups(host)
    groups = groups[verdicts.wanted[groups] & (table.counts[groups] < most)]
    return {table.cases[table.case[group]].key: int(table.counts[group]) for group in groups}
