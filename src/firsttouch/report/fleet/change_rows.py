# SPDX-License-Identifier: Apache-2.0
"""How the page of a comparison shows changes: in short for each metric, and a row with a bar for each case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from firsttouch.report.fleet.changes import ORDER, Change, Host, Word
from firsttouch.report.fleet.names import names
from firsttouch.report.text import listed, quantity
from firsttouch.verdict.passes import Case

#: What stands before a word, so that no colour has to be seen.
SIGNS: Mapping[Word, str] = {
    "worse": "\N{BLACK DOWN-POINTING TRIANGLE}",
    "changed": "\N{BLACK DIAMOND}",
    "better": "\N{BLACK UP-POINTING TRIANGLE}",
    "undecided": "?",
    "unchanged": "=",
}
HEADER = (
    "metric",
    "verdict",
    "before",
    "after",
    "change",
    "99 % interval",
    "p",
    "hosts",
    "hosts unlike the others",
)
IN_SHORT = ("metric", "what changed", "by how much (medians)", "how sure")
HOSTS = ("host", "metrics that changed", "the worst of them", "metrics that are gone", "new metrics")
_WIDTH, _HEIGHT = 120, 16
#: Hosts or metrics that a cell names.
_NAMED = 5
_DECIDED = frozenset({"worse", "changed", "better"})
_KINDS: Mapping[Word, str] = {"worse": "out", "better": "in"}


@dataclass(frozen=True)
class Row:
    """A change as *cells* by HEADER, with its *word* and its *bar*."""

    cells: Sequence[str]
    word: Word
    bar: Markup


def rows(changes: Sequence[Change]) -> list[Row]:
    """Return a row for each change, in the same order."""
    called = names([c.case for c in changes]).of
    ends = [x for c in changes for x in (c.size, c.low, c.high) if x is not None]
    reach = max((abs(x) for x in ends), default=0.0) * 1.05 or 1.0
    return [Row(_cells(c, name), c.word, _bar(c, reach)) for c, name in zip(changes, called, strict=True)]


def in_short(changes: Sequence[Change]) -> list[tuple[Word, Sequence[str]]]:
    """Return a row by IN_SHORT for each metric of a check, with its worst word, what has to be looked at first."""
    found: dict[tuple[str, str], list[Change]] = {}
    for one in changes:
        found.setdefault((one.case.check, one.case.metric), []).append(one)
    made = [(min((c.word for c in some), key=ORDER.index), key, some) for key, some in found.items()]
    made.sort(key=lambda item: (ORDER.index(item[0]), -max(abs(c.size) for c in item[2])))
    return [(word, (" ".join(key), *_said(word, some))) for word, key, some in made]


def hosts(changed: Sequence[Host]) -> list[tuple[str, ...]]:
    """Return a row by HOSTS for each host that changed unlike the others."""
    cases = {id(case): case for host in changed for case in (*(c for c, _ in host.changes), *host.lost, *host.new)}
    called = dict(zip(cases, names(list(cases.values())).of, strict=True))

    def named(some: Sequence[Case]) -> str:
        told = listed([called[id(case)] for case in some], most=2)
        return f"{len(some)}: {told}" if some else ""

    rows: list[tuple[str, ...]] = []
    for host in changed:
        worst = [f"{called[id(case)]} {percent(size)}" for case, size in host.changes]
        number = str(len(host.changes)) if host.changes else ""
        rows.append((host.name, number, listed(worst, most=3), named(host.lost), named(host.new)))
    return rows


def percent(fraction: float) -> str:
    """Return a change in percent, with its sign."""
    return f"{100 * fraction:+.2f} %"


def _said(word: Word, some: Sequence[Change]) -> Iterator[str]:
    counts = {w: sum(c.word == w for c in some) for w in ORDER}
    told = [f"{w} {n}" for w, n in counts.items() if n]
    yield f"{word} in all {len(some)} cases" if len(told) == 1 else f"{', '.join(told)} of {len(some)} cases"
    mine = [c for c in some if c.word == word]
    low, high = min(c.size for c in mine), max(c.size for c in mine)
    yield percent(low) if percent(low) == percent(high) else f"{percent(low)} to {percent(high)}"
    yield _p(max(c.p for c in mine)) if word in _DECIDED else ""


def _p(p: float) -> str:
    return "p below 1e-6" if p < 1e-6 else f"p at most {p:.2g}"


def _cells(one: Change, name: str) -> tuple[str, ...]:
    between = "too few hosts" if one.low is None else f"{percent(one.low)} to {percent(one.high or 0.0)}"
    p = "below 1e-6" if one.p < 1e-6 else f"{one.p:.2g}"
    unlike = listed([f"{host} ({percent(size)})" for host, size in one.unlike], most=_NAMED)
    values = quantity(one.before, one.case.unit), quantity(one.after, one.case.unit)
    return (name, one.word, *values, percent(one.size), between, p, str(one.hosts), unlike)


def _bar(one: Change, reach: float) -> Markup:
    """Return the change and its interval as a drawing: no change in the middle, better to the right.

    It is there for the eye alone, as the row says the same in words.
    """
    side = -1 if one.case.better == "lower" else 1
    middle = _WIDTH / 2
    low, high, at = (
        middle + side * x / reach * (middle - 5)
        for x in (one.size if one.low is None else one.low, one.size if one.high is None else one.high, one.size)
    )
    kind = _KINDS.get(one.word, "other")
    left, width = min(low, high), max(1.0, abs(high - low))
    # All of these are numbers, or words of ours.
    return Markup(  # noqa: S704
        f'<svg class="change" aria-hidden="true" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'height="{_HEIGHT}"><line class="middle" x1="{middle}" x2="{middle}" y1="0" y2="{_HEIGHT}"/>'
        f'<line class="{kind}" x1="{middle}" x2="{at:.1f}" y1="8" y2="8"/>'
        f'<rect class="{kind}" x="{left:.1f}" y="4" width="{width:.1f}" height="8"/>'
        f'<circle class="{kind}" cx="{at:.1f}" cy="8" r="4"/></svg>'
    )
