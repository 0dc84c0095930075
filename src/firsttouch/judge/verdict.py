# SPDX-License-Identifier: Apache-2.0
"""The parts of a verdict: a finding for each metric of a host, and the host's verdict with its evidence."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from msgspec import Struct

from firsttouch.documents import attributes
from firsttouch.errors import first_of
from firsttouch.host.host_lists import named
from firsttouch.judge import constants
from firsttouch.records.cases import Case, by_key
from firsttouch.statistics import as_fraction
from firsttouch.systems.expectation import SUSPECTED, Expectation, deciding
from firsttouch.systems.references import Reference
from firsttouch.units import number, percent, quantity

Word = Literal["pass", "undecided", "suspect", "invalid", "fail"]
#: From good to bad. Undecided: the measurements do not decide yet. Suspect: beyond the spread of good hosts, but
#: short of a fail; or something is missing.
ORDER: Sequence[Word] = ("pass", "undecided", "suspect", "invalid", "fail")
#: The text instead of a cause if no rule matches a fail.
NO_CAUSE = "no known signature"
#: What a low part is compared with.
EXPECTED = "expected"
#: A verdict with at least this sight (a fraction) is not called blind.
_SEEN = 0.06
_TWO = "nothing shows which group is right: `firsttouch baseline --hosts` learns from one of them"
_KINDS = "two kinds of hosts, or {count} bad ones: look for what they share"
#: How many findings the line of a host shows.
_NAMED = 2
_NOTHING = (
    "nothing was judged: system {system} has no reference for any of the {unjudged} measured metrics, and "
    f"a comparison of hosts needs {constants.FEWEST_HOSTS} or more that have them"
)


def worst(words: Iterable[Word]) -> Word:
    """Return the worst of some verdicts; undecided without any, as nothing was judged."""
    return max(words, key=ORDER.index, default="undecided")


class PartFinding(Struct, frozen=True):
    """The answer of one question about a part of a host, by its metrics of one *kind*.

    *loss* is the loss against *question* (its siblings, its own level, the promise), *limit* the largest loss of a
    good host, and *sight* the smallest loss that would have been seen (logarithms). *sessions* and *repetitions*
    are the evidence (0: unknown); the loss began at *since* (a date; "": unknown). *note* has further reasons.
    """

    part: str
    kind: str
    word: Word
    question: str
    loss: float
    limit: float
    sight: float
    sessions: int
    repetitions: int
    since: str = ""
    note: str = ""
    #: The part's name without its place, with its kind; whether it stands for all parts of the name.
    series: str = ""
    is_together: bool = False
    #: The times of the last session before the loss and of the first with it (ms since 1970); (): unknown.
    between: tuple[int, ...] = ()

    @classmethod
    def from_expectation(cls, stated: Expectation) -> PartFinding:
        """Return the finding of a part whose expected level is known: it never fails a host."""
        sign = -1 if stated.kind == "latency" else 1
        loss, limit = (sign * math.log(stated.expected / value) for value in (stated.reaches, stated.limit))
        word: Word = "pass" if stated.answer == "as expected" else "suspect"
        series = f"{stated.part.split()[0]} {stated.kind}"
        rests = (loss, limit, limit, 0, 0)
        return cls(stated.part, stated.kind, word, EXPECTED, *rests, note=stated.basis, series=series)

    def text(self) -> str:
        """Return the finding as one line."""
        limit, size = 100 * as_fraction(self.limit), f"{100 * as_fraction(self.loss):.1f} % worse"
        if self.loss < 0:
            size = f"{percent(math.expm1(-self.loss))} better"
        times = f"{self.sessions} session{'s' * (self.sessions != 1)}"
        times += f" of {self.repetitions} repetition{'s' * (self.repetitions != 1)}"
        parts = [f"{self.part}: {self.kind} {size} than {self.question}"]
        if math.isfinite(self.limit):
            is_limit = self.word == "fail" or self.question == EXPECTED
            parts[0] += f" ({'limit' if is_limit else 'fails beyond'} {limit:.1f} %)"
        since = f"since {self.since}" if self.since else ""
        return ", ".join(filter(None, [*parts, times if self.sessions else "", since, self.note]))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; losses are fractions."""
        stated = attributes(self, "part", "kind", "word", "question", "sessions", "repetitions", "since", "note")
        for name in ("loss", "limit", "sight"):
            value = getattr(self, name)
            stated[name] = as_fraction(value) if math.isfinite(value) else None
        return {**stated, "text": self.text()}


class Finding(Struct, frozen=True):
    """The verdict of one *case* of one host.

    *values* are the repetitions that are used, oldest first, and *value* is their median, in the unit of the
    case. The *reason* is "" if it is the distance from the *reference*, which is the value of *whose*.
    """

    case: Case
    values: tuple[float, ...]
    reference: Reference | None
    verdict: Word
    reason: str
    value: float | None = None
    whose: str = ""

    @property
    def why(self) -> str:
        """The reason of the verdict as text."""
        if self.reason or self.value is None or self.reference is None:
            return self.reason
        text = _distance(self.value, len(self.values), self.reference, self.whose)
        is_too_good = self.verdict == "suspect" and bool(self.reference.line)
        return f"{text}, better than it can be: a wrong measurement or reference" if is_too_good else text

    @property
    def loss(self) -> float:
        """How much worse the value is than expected (a fraction, below 0: better; 0.0 if that is unknown)."""
        if self.value is None or self.reference is None or self.reference.value <= 0:
            return 0.0
        return self.case.worsening(self.value / self.reference.value - 1)

    def text(self) -> str:
        """Return the evidence as one line; limits and repetitions are in :meth:`to_dict`."""
        return f"{self.case.title}: {self.why}"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            **attributes(self.case, "check", "metric", "unit"),
            "case": self.case.parameters,
            "value": self.value,
            "passes": list(self.values),
            "reference": self.reference and attributes(self.reference, "value", "minimum", "maximum", "source"),
            "verdict": self.verdict,
            "why": self.why,
        }


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings by their word and their loss in percent; others keep their order."""
    return sorted(findings, key=lambda f: (ORDER.index(f.verdict), round(f.loss, 2)), reverse=True)


class HostSummary(Struct, frozen=True):
    """The verdict of a host in numbers, which exports read.

    *counts* are its metrics by verdict, *unjudged* those without a reference, *missing* those that it lacks.
    *loss* is the largest one of a metric that does not pass (a fraction), *newest* the time of the newest
    repetition (ms since 1970, 0: unknown).
    """

    host: str
    system: str
    verdict: Word
    counts: Mapping[Word, int]
    unjudged: int
    missing: int
    loss: float = 0.0
    newest: int = 0


class Divided(Struct, frozen=True):
    """Two groups of hosts by name that some *parts*, each with its kind, divide, the one furthest *apart* first.

    *apart* is the difference in that part, as a fraction.
    """

    better: tuple[str, ...]
    worse: tuple[str, ...]
    parts: Sequence[str]
    apart: float

    @property
    def text(self) -> str:
        """The groups as one sentence."""
        sides = (f"{len(hosts)} hosts ({named(hosts)})" for hosts in (self.better, self.worse))
        is_minority = len(self.worse) <= constants.MOST_BAD * (len(self.better) + len(self.worse))
        which = _KINDS.format(count=len(self.worse)) if is_minority else _TWO
        return (
            f"two groups, {' and '.join(sides)}: {first_of(self.parts, 1)}, {percent(self.apart)} apart; {which}"
        )


class HostVerdict(Struct, frozen=True, dict=True):
    """The verdict of a *host*: the worst of its *findings* and of the findings of its *parts*.

    A host never passes if something is missing, nothing was judged, or the comparison with the fleet sees too
    little.
    """

    host: str
    system: str
    #: The metrics that were judged, without those that are only counted (*passing*).
    findings: tuple[Finding, ...]
    #: The number of metrics without a reference.
    unjudged: int
    #: The measurements that are missing, with the reason.
    missing: tuple[str, ...]
    #: The possible causes of a fail: those whose signatures the host has.
    causes: tuple[str, ...] = ()
    #: The smallest losses (fractions) that are seen: of the median part, and of the worst.
    visible: tuple[float, float] | None = None
    #: The parts of which too small losses would not be seen, with the smallest loss that would be; and the loss
    #: that a pass needs to see.
    blind: Mapping[str, float] = {}
    sight: float = constants.PASS_SIGHT
    #: The same in numbers, for exports.
    summary: HostSummary | None = None
    #: The number of sessions with the present parts (None: unknown), and a line if some were replaced lately.
    sessions: int | None = None
    replaced: str = ""
    parts: tuple[PartFinding, ...] = ()
    #: The levels that parts should reach without references and other hosts.
    expected: tuple[Expectation, ...] = ()
    passing: int = 0

    @cached_property
    def verdict(self) -> Word:
        """The host's verdict."""
        words: list[Word] = ["pass"] if self.passing else []
        of_findings = worst([*words, *(f.verdict for f in self.findings), *(part.word for part in self.parts)])
        of_blind: Word = "undecided" if self.blind else of_findings
        return worst([of_findings, of_blind, "suspect" if self.missing else of_findings])

    @property
    def is_judged(self) -> bool:
        """Whether anything but the expected level of its parts was judged."""
        return bool(self.findings or self.passing) or any(part.question != EXPECTED for part in self.parts)

    @cached_property
    def bad_parts(self) -> list[PartFinding]:
        """The parts that are not as they should be, the worst first."""
        return sorted(self.parts, key=lambda part: (ORDER.index(part.word), part.loss), reverse=True)

    @cached_property
    def bad(self) -> list[tuple[Word, str]]:
        """The word and the text of each part and each metric that does not pass, the worst of both first."""
        metrics = worst_first(f for f in self.findings if f.verdict != "pass")
        lines = [*((p.word, p.text()) for p in self.bad_parts), *((f.verdict, f.text()) for f in metrics)]
        return sorted(lines, key=lambda line: -ORDER.index(line[0]))

    @cached_property
    def findings_evidence(self) -> list[str]:
        """The findings that are not a pass, the worst and surest first, and the missing measurements."""
        lines = [f"{word}: {text}" for word, text in self.bad]
        # Measurements that are missing for one reason share a line.
        for reason, texts in by_key(self.missing, lambda text: text.rpartition(": ")[2]).items():
            names = [text.removesuffix(reason).removesuffix(": ") for text in texts]
            lines.append(f"missing: {first_of(names, 1)}: {reason}" if all(names) else f"missing: {reason}")
        if self._is_blind:
            lines.append(f"undecided: {blind_text(self.blind, self.sight)}")
        # For a host that was not measured only the reason is shown.
        elif not self.is_judged and (self.unjudged or not self.missing):
            stated = deciding(self.expected)
            if stated is not None and stated.answer not in SUSPECTED:
                is_good = stated.answer == "as expected"
                lines.append(f"undecided: {'without references: ' * is_good}{stated.text()}")
            if stated is None or stated.answer == "unknown":
                lines.append(_NOTHING.format(system=self.system, unjudged=self.unjudged))
        return lines

    @cached_property
    def evidence(self) -> list[str]:
        """The possible causes and the lines of :attr:`findings_evidence`."""
        first, others = self.findings_evidence[:1], self.findings_evidence[1:]
        return [*first, *(f"possible cause: {cause}" for cause in self.causes), *others]

    def reason(self) -> str:
        """Return why the host does not pass in one short line, for Slurm's ``reason=`` and for lists.

        It is the worst and surest finding, and for a fail the name of the possible cause; or else why the host is
        undecided or the missing results; an empty string if it passes.
        """
        if self.verdict == "pass":
            return ""
        if not self.bad:
            return next(iter(self.evidence), "")
        others = f"; {len(self.bad) - 1} more" if len(self.bad) > 1 else ""
        cause = f"possible cause: {self.causes[0].split(':')[0]}" if self.causes else self.cause
        return f"{self.bad[0][1]}{others}{cause and f'; {cause}'}"

    @property
    def cause(self) -> str:
        """Return the possible causes of a fail, or that no cause has its signature."""
        return "; ".join(self.causes) or (NO_CAUSE if self.verdict == "fail" else "")

    def line(self) -> str:
        """Return the one-line verdict."""
        return f"verdict {self.host} {self.verdict}: {self.outcome()}"

    def outcome(self) -> str:
        """Return the one-line verdict without its word: how many metrics pass, and the worst evidence."""
        parts = [line.removeprefix(f"{self.verdict}: ") for line in self.evidence[:_NAMED]]
        parts += [f"and {len(self.evidence) - _NAMED} more"] if len(self.evidence) > _NAMED else []
        parts += [NO_CAUSE] if self.cause == NO_CAUSE else []
        # Of a bad part, each metric may pass.
        passed = self.passing + sum(f.verdict == "pass" for f in self.findings)
        judged = self.passing + len(self.findings)
        if judged and (passed < judged or not self.bad):
            parts.append(f"{passed} of {judged} judged metrics pass")
        if self.unjudged and judged:
            parts.append(f"{self.unjudged} of {judged + self.unjudged} measured metrics were not judged")
        return "; ".join([*parts, *filter(None, (self.replaced, self._sight))])

    @property
    def _is_blind(self) -> bool:
        """Whether the comparison with the fleet leaves the host undecided."""
        return bool(self.blind) and self.verdict == "undecided"

    @property
    def _sight(self) -> str:
        """Which losses would be seen, "" if even small ones, which the own level shows once it is known."""
        if self.visible is None or self.visible[0] <= _SEEN or self._is_blind:
            return ""
        usual, largest = (f"{100 * min(loss, 1):.0f} %" for loss in self.visible)
        text = f"losses of {usual} and more would be seen"
        text += f" ({largest} in the worst part)" if largest != usual else ""
        if self.sessions is not None and self.sessions < constants.STABLE_SESSIONS:
            text += f", its own level is not known yet ({self.sessions} of {constants.STABLE_SESSIONS} sessions)"
        return text

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            **attributes(self, "host", "system", "verdict", "causes", "evidence", "unjudged", "missing"),
            "line": self.line(),
            "parts": [part.to_dict() for part in self.bad_parts],
            "expected": [expectation.to_dict() for expectation in self.expected],
            "findings": [f.to_dict() for f in self.findings],
            "reason": self.reason(),
            "visible_loss": self.visible and {"median": self.visible[0], "largest": self.visible[1]},
        }


def blind_text(blind: Mapping[str, float], sight: float) -> str:
    """Return which losses of the *blind* parts are not seen, the *sight* that a pass needs, and the remedy."""
    losses = [(loss, "{} ({})".format(*part.rsplit(", ", 1))) for part, loss in blind.items()]
    unseen = [part for loss, part in losses if loss >= 1]
    seen = sorted(((loss, part) for loss, part in losses if loss < 1), reverse=True)
    texts = [f"no loss of {first_of(unseen, _NAMED)}"] if unseen else []
    for loss, _ in seen[:1]:
        texts.append(f"only losses above {100 * loss:.0f} % of {first_of([part for _, part in seen], _NAMED)}")
    help_ = "a reference, more hosts or more sessions would help"
    return f"{' and '.join(texts)} would be seen, and a pass needs {100 * sight:.0f} %: {help_}"


def _distance(value: float, repetitions: int, reference: Reference, whose: str) -> str:
    """Return a value with its expectation: ``23.3 GB/s, 24.8 % below the fleet (31.1), 6 repetitions``."""
    if reference.value:
        change = value / reference.value - 1
        difference = f"{percent(abs(change))} {'below' if change < 0 else 'above'} {whose}"
    else:
        difference = f"{whose} is another"
    times = "1 repetition" if repetitions == 1 else f"{repetitions} repetitions"
    return f"{quantity(value, reference.unit)}, {difference} ({number(reference.value)}), {times}"
