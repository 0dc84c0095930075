# SPDX-License-Identifier: Apache-2.0
"""How a metric is distributed over the hosts: a drawing with the outliers named, or a line of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

from firsttouch.report.fleet.ranks import Ranks, worse
from firsttouch.report.text import count, listed, number, percent, quantity
from firsttouch.systems import Reference
from firsttouch.verdict import sure
from firsttouch.verdict.columns import Floats
from firsttouch.verdict.model import ORDER

#: Metrics that are drawn; the others have a line in the table.
MOST_DRAWN = 24
#: Outliers that are named.
_NAMED = 6
_BINS, _WIDTH, _HEIGHT = 41, 330, 96
HEADER = ("metric", "hosts", "expected", "lowest", "5 %", "median", "95 %", "highest", "not pass", "worst host")


@dataclass(frozen=True)
class Spread:
    """A metric over the hosts: its *name*, *sentences* that say it, and the drawing."""

    name: str
    sentences: Sequence[str]
    svg: Markup


def spreads(ranks: Ranks) -> list[Spread]:
    """Return the distributions of the metrics that stand out most."""
    return [_drawn(ranks, case, f"spread{i}") for i, case in enumerate(ranks.cases[:MOST_DRAWN])]


def rows(ranks: Ranks) -> list[tuple[str, ...]]:
    """Return a line of the table for each metric that hosts are judged by, in the same order."""
    return [_row(ranks, case) for case in ranks.cases]


def _values(ranks: Ranks, case: int) -> tuple[Floats, list[int], Reference | None]:
    """Return the changes of the hosts from what is expected, their groups of passes, and what that is."""
    known = ranks.judged.passes
    where = known.groups(case)
    changes = ranks.judged.change[where]
    there = np.isfinite(changes)
    groups = np.arange(where.start, where.stop)[there]
    return changes[there], groups.tolist(), ranks.reference(case)


def _row(ranks: Ranks, case: int) -> tuple[str, ...]:
    changes, groups, reference = _values(ranks, case)
    known = ranks.judged.passes
    one = known.cases[case]
    bad = np.count_nonzero(ranks.judged.words[known.groups(case)])
    if not len(changes) or reference is None:
        return (one.name, str(len(groups)), *[""] * 6, str(bad), "")
    low, first, middle, last, high = np.quantile(changes, (0, 0.05, 0.5, 0.95, 1)).tolist()
    shown = [number(reference.value * (1 + x)) for x in (low, first, middle, last, high)]
    worst = int(np.argmax([worse(x, one.better) for x in (low, high)]))
    at = int(np.argmin(changes) if worst == 0 else np.argmax(changes))
    named = f"{known.hosts[known.host[groups[at]]]} ({100 * float(changes[at]):+.1f} %)"
    return (one.name, str(len(groups)), quantity(reference.value, one.unit), *shown, str(bad), named)


def _drawn(ranks: Ranks, case: int, name: str) -> Spread:
    changes, groups, reference = _values(ranks, case)
    known = ranks.judged.passes
    one = known.cases[case]
    called = ranks.names.of[case]
    where = known.groups(case)
    words = np.bincount(ranks.judged.words[where], minlength=len(ORDER)).tolist()
    told = [f"{n} {w}" for w, n in zip(ORDER, words, strict=True) if n]
    sentences = [f"{count(where.stop - where.start, 'host')}: {', '.join(told)}."]
    if reference is None or not len(changes):
        return Spread(called, [*sentences, *_invalid(ranks, where)], Markup(""))
    limit = max(abs(reference.lower or 0.0), abs(reference.upper or 0.0))
    expected = f"Expected {quantity(reference.value, one.unit)} within {percent(limit)} ({reference.source})."
    order = np.argsort([-worse(float(c), one.better) for c in changes], kind="stable")
    bad = ranks.judged.words[groups] > 0
    beyond = [i for i in order.tolist() if bad[i] or worse(float(changes[i]), one.better) > limit]
    outliers = [_outlier(ranks, groups[i], float(changes[i]), reference) for i in beyond]
    if outliers:
        sentences.append(f"Outside: {listed(outliers, most=_NAMED)}.")
    sentences += _invalid(ranks, where)
    sentences.append(expected)
    return Spread(called, sentences, _histogram(changes, limit, one.better, name, (called, *sentences)))


def _outlier(ranks: Ranks, group: int, change: float, reference: Reference) -> str:
    """Return a host with its value, how far that is from what is expected, its verdict, and how sure that is."""
    judged = ranks.judged
    value = quantity(reference.value * (1 + change), judged.passes.cases[judged.passes.case[group]].unit)
    evidence = float(judged.evidence[group])
    certain = f", {sure.told(evidence)}" if np.isfinite(evidence) else ""
    word = ORDER[judged.words[group]]
    return f"{judged.passes.hosts[judged.passes.host[group]]} {value} ({100 * change:+.1f} %, {word}{certain})"


def _invalid(ranks: Ranks, where: slice) -> list[str]:
    """Return which hosts have no valid pass, as a sentence."""
    judged = ranks.judged
    wrong = np.flatnonzero(judged.words[where] == ORDER.index("invalid")) + where.start
    hosts = [judged.passes.hosts[judged.passes.host[group]] for group in wrong.tolist()]
    return [f"Invalid: {listed(hosts, most=_NAMED)}."] if hosts else []


def _histogram(changes: Floats, limit: float, better: str, name: str, told: Sequence[str]) -> Markup:
    """Return hosts by their change: bars (their heights as square roots, that a single host is seen)."""
    reach = max(2 * limit, float(np.abs(changes).max()) * 1.02, 0.01)
    reach = min(reach, 1.0)
    counts, edges = np.histogram(np.clip(changes, -reach, reach), bins=_BINS, range=(-reach, reach))
    tops = np.sqrt(counts / max(1, counts.max())) * (_HEIGHT - 22)
    width = _WIDTH / _BINS
    bars = []
    for i, top in enumerate(tops.tolist()):
        if top:
            middle = float(edges[i] + edges[i + 1]) / 2
            kind = "out" if worse(middle, better) > limit else "in"
            y, x = _HEIGHT - 18 - top, i * width
            bars.append(
                f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width - 1:.1f}" height="{top:.1f}"/>'
            )
    sides = {"higher": (-limit,), "lower": (limit,), "neither": (-limit, limit)}[better]
    lines = [_line(_WIDTH * (0.5 + at / 2 / reach), "limit") for at in sides if abs(at) <= reach]
    axis = f'<text x="0" y="{_HEIGHT - 4}">{-100 * reach:.3g} %</text>'
    axis += f'<text class="middle" x="{_WIDTH / 2}" y="{_HEIGHT - 4}">expected</text>'
    axis += f'<text class="end" x="{_WIDTH}" y="{_HEIGHT - 4}">+{100 * reach:.3g} %</text>'
    head = f'<title id="{name}t">{escape(told[0])}</title><desc id="{name}d">{escape(" ".join(told[1:]))}</desc>'
    body = "".join([*bars, _line(_WIDTH / 2, "middle"), *lines, axis])
    # Every text in it is escaped above, the rest are numbers.
    return Markup(  # noqa: S704
        f'<svg class="spread" role="img" aria-labelledby="{name}t {name}d" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}">{head}{body}</svg>'
    )


def _line(x: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{_HEIGHT - 18}"/>'
