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
    """Return the changes of the hosts from what is expected, their numbers, and what that is."""
    known = ranks.judged.passes
    where = known.groups(case)
    changes = ranks.judged.change[where]
    there = np.isfinite(changes)
    return changes[there], known.host[where][there].tolist(), ranks.reference(case)


def _row(ranks: Ranks, case: int) -> tuple[str, ...]:
    changes, hosts, reference = _values(ranks, case)
    known = ranks.judged.passes
    one = known.cases[case]
    bad = np.count_nonzero(ranks.judged.words[known.groups(case)])
    if not len(changes) or reference is None:
        return (one.name, str(len(hosts)), *[""] * 6, str(bad), "")
    low, first, middle, last, high = np.quantile(changes, (0, 0.05, 0.5, 0.95, 1)).tolist()
    shown = [number(reference.value * (1 + x)) for x in (low, first, middle, last, high)]
    worst = int(np.argmax([worse(x, one.better) for x in (low, high)]))
    at = int(np.argmin(changes) if worst == 0 else np.argmax(changes))
    named = f"{known.hosts[hosts[at]]} ({100 * float(changes[at]):+.1f} %)"
    return (one.name, str(len(hosts)), quantity(reference.value, one.unit), *shown, str(bad), named)


def _drawn(ranks: Ranks, case: int, name: str) -> Spread:
    changes, hosts, reference = _values(ranks, case)
    known = ranks.judged.passes
    one = known.cases[case]
    where = known.groups(case)
    words = np.bincount(ranks.judged.words[where], minlength=len(ORDER)).tolist()
    told = [f"{n} {w}" for w, n in zip(ORDER, words, strict=True) if n]
    sentences = [f"{count(where.stop - where.start, 'host')}: {', '.join(told)}."]
    if reference is None or not len(changes):
        return Spread(one.name, sentences, Markup(""))
    limit = max(abs(reference.lower or 0.0), abs(reference.upper or 0.0))
    expected = f"Expected {quantity(reference.value, one.unit)} within {percent(limit)} ({reference.source})."
    order = np.argsort([-worse(float(c), one.better) for c in changes], kind="stable")
    beyond = [i for i in order.tolist() if worse(float(changes[i]), one.better) > limit]
    outliers = [f"{known.hosts[hosts[i]]} ({100 * float(changes[i]):+.1f} %)" for i in beyond]
    if outliers:
        sentences.append(f"Outside: {listed(outliers, most=_NAMED)}.")
    sentences.append(expected)
    return Spread(one.name, sentences, _histogram(changes, limit, one.better, name, (one.name, *sentences)))


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
