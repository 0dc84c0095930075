# SPDX-License-Identifier: Apache-2.0
"""The verdict on one host as its rules define it: by densities and by enumeration, one repetition at a time.

It shares nothing with firsttouch.judge. What a fleet reaches is not computed here: the reference that decided is
given (test_judging_columns.py tests how levels are learnt).
"""

import datetime
import math
import statistics
from typing import NamedTuple

from firsttouch.benchmarks.kernel_settings import BUSY

#: The probabilities of a false alarm and of an overlooked loss, and the fewest repetitions for a fail.
FALSE_ALARM, OVERLOOKED, FEWEST = 1e-7, 2e-3, 5
FAIL, PASS = math.log((1 - OVERLOOKED) / FALSE_ALARM), math.log(OVERLOOKED / (1 - FALSE_ALARM))
#: The largest share of good hosts with a suspect metric.
CHANCE = 0.01
HOUR = datetime.timedelta(hours=1)


class Expected(NamedTuple):
    """A verdict, the values it rests on, its evidence (None if no error is known), and repetitions it needs."""

    word: str
    values: tuple[float, ...] = ()
    evidence: float | None = None
    more: int = 1


class Host:
    """The records of one host."""

    def __init__(self, records):
        self.records = records
        times = {instant(r) for r in records}
        self.begins = [t for t in times if not any(t - HOUR <= other < t for other in times)]

    def cases(self):
        """Return the cases that were measured: check, metric and bank."""
        return {key(r) for r in self.records if r.metric != "busy_pus"}

    def session(self, time):
        """Return when the session of this time began: nothing was recorded in the hour before."""
        return max(t for t in self.begins if t <= time)

    def is_emulated(self, case):
        """Return whether the newest record of a case is an emulated one, which no stated reference judges."""
        newest = max((r for r in self.records if key(r) == case), key=lambda r: (instant(r), r.value))
        return not newest.judged

    def is_busy(self, time):
        """Return whether other processes used the host when it was last looked at in this session."""
        seen = [r for r in self.records if r.metric == "busy_pus" and instant(r) <= time]
        before = [r for r in seen if self.session(instant(r)) == self.session(time)]
        return bool(before) and max(before, key=lambda r: (instant(r), r.value)).value >= BUSY

    def was_busy(self):
        """Return whether other processes used the host at any of its records."""
        return any(self.is_busy(instant(r)) for r in self.records)

    def verdict(self, case, reference, counted):
        """Return the verdict of *reference* on a *case* from its newest values, *counted* of them.

        Which values are newer than the host's last change is given, too (test_host_level.py tests that).
        """
        samples = sorted((r for r in self.records if key(r) == case), key=lambda r: (instant(r), r.value))
        newest = self.session(instant(samples[-1]))
        better, exact = samples[-1].better, samples[-1].check == "topology"
        valid = [
            r
            for r in samples
            if r.status == "valid"
            and not (not exact and is_outside(r.value, better, reference) and self.is_busy(instant(r)))
        ]
        if not any(self.session(instant(r)) == newest for r in valid):
            return Expected("invalid")
        values = tuple(r.value for r in valid[-counted:])
        if exact:
            word = "fail" if is_outside(values[-1], better, reference) else "pass"
            return better_than_possible(Expected(word, values, None, 0), better, reference)
        if reference.error is not None:
            return better_than_possible(by_evidence(values, better, reference), better, reference)
        signs = [1.0 if is_outside(v, better, reference) else -1.0 for v in values]
        word = by_count(signs)
        more = 0
        while not any(by_count(signs + [sign] * more) != "undecided" for sign in (1.0, -1.0)):
            more += 1
        return better_than_possible(Expected(word, values, None, more), better, reference)

    def begins_a_session(self, case, counted):
        """Return whether the newest *counted* valid values begin with a session, disturbed ones left out."""
        valid = sorted(
            (r for r in self.records if key(r) == case and r.status == "valid"),
            key=lambda r: (instant(r), r.value),
        )
        sessions = [self.session(instant(r)) for r in valid]
        kept = sessions[-counted:]
        before = [s for s, r in zip(sessions, valid, strict=True) if not self.is_busy(instant(r))]
        return (
            counted >= len(before)
            or before[-counted - 1] != kept[0]
            or any(map(self.is_busy, map(instant, valid)))
        )


def key(record):
    bank = None if record.check == "topology" else record.parameters["bank"]
    return record.check, record.metric, bank


def instant(record):
    return datetime.datetime.fromisoformat(record.time)


def is_outside(value, better, reference):
    """Return whether a value is worse than the tolerance."""
    below = reference.minimum is not None and value < reference.minimum
    above = reference.maximum is not None and value > reference.maximum
    return (below and better != "lower") or (above and better != "higher")


def better_than_possible(expected, better, reference):
    """Return a pass as suspect if at least half of its values are better than a stated tolerance."""
    if expected.word != "pass" or not reference.line or better == "neither":
        return expected
    opposite = {"higher": "lower", "lower": "higher"}[better]
    too_good = sum(is_outside(v, opposite, reference) for v in expected.values)
    return expected._replace(word="suspect") if 2 * too_good >= len(expected.values) else expected


def by_count(signs):
    """Return the verdict without a known error: *signs* are 1 for values outside and -1 for those within."""
    outside = signs.count(1.0)
    if len(signs) > 1 and outside == len(signs):
        return "fail"
    return "pass" if 2 * outside < len(signs) else "undecided"


def evidence_of(loss, limit, error):
    """Return the bounded logarithm of how much likelier a loss of twice the limit is than none."""
    deviation = max(error, limit / 20)
    without, with_loss = (-(((loss - mean) / deviation) ** 2) / 2 for mean in (0, 2 * limit))
    return max(PASS, min(with_loss - without, FAIL / FEWEST))


def by_evidence(values, better, reference):
    """Return the verdict of the sequential test in the direction with more evidence against the host."""
    directions = []
    if better != "lower" and reference.lower:
        directions.append((-1, -reference.lower))
    if better != "higher" and reference.upper:
        directions.append((1, reference.upper))
    total = max(
        math.fsum(evidence_of(sign * (v / reference.value - 1), limit, reference.error) for v in values)
        for sign, limit in directions
    )
    if total <= 0 and is_outside(statistics.median(values), better, reference):
        return Expected("undecided", values, total, 1)
    if total >= FAIL or total <= 0:
        return Expected("fail" if total > 0 else "pass", values, total, 0)
    # As many more as at the present rate, or as a host needs that loses twice the limit.
    limit = max(limit for _, limit in directions)
    lossy = statistics.NormalDist(2 * limit, reference.error or 1e-12)
    each = statistics.fmean(
        evidence_of(lossy.inv_cdf((i + 0.5) / 500), limit, reference.error) for i in range(500)
    )
    rates = total / len(values), each
    return Expected("undecided", values, total, min(999, *(math.ceil((FAIL - total) / rate) for rate in rates)))


def with_suspects(findings):
    """Return the verdicts of a host's metrics; undecided ones that chance does not explain are suspect.

    exp(evidence) is an e-value. One of m is beyond chance if some k of them are at least m / (k CHANCE), and it is
    among these (Wang and Ramdas, 2022).
    """
    weighed = [f.evidence for f in findings.values() if f.evidence is not None]

    def is_beyond(evidence):
        bounds = [math.log(len(weighed) / (k * CHANCE)) for k in range(1, len(weighed) + 1)]
        return any(
            evidence >= bound and sum(e >= bound for e in weighed) >= k for k, bound in enumerate(bounds, start=1)
        )

    return {
        case: f._replace(word="suspect") if f.word == "undecided" and f.evidence and is_beyond(f.evidence) else f
        for case, f in findings.items()
    }


def with_bad_together(findings):
    """Return the verdicts of a host's metrics; many suspect ones of a check, or of all, are fails.

    Many are three or more, and at least a third of those with evidence. Each has two repetitions or more, and
    evidence that only one good host in a hundred has.
    """

    def is_bad(finding):
        beyond = finding.evidence and finding.evidence >= -math.log(CHANCE)
        return finding.word == "suspect" and beyond and finding.more > 0

    fails = set()
    for check in [None, *{case[0] for case in findings}]:
        weighed = {c: f for c, f in findings.items() if f.evidence is not None and check in {None, c[0]}}
        bad = {c for c, f in weighed.items() if is_bad(f) and len(f.values) > 1}
        fails |= bad if len(bad) >= 3 and 3 * len(bad) >= len(weighed) else set()
    return {c: f._replace(word="fail", more=0) if c in fails else f for c, f in findings.items()}
