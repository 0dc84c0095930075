# SPDX-License-Identifier: Apache-2.0
"""How hosts changed over time: all their passes, of all campaigns."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

from firsttouch.report.fleet.ranks import Ranks, worse
from firsttouch.verdict.columns import Floats
from firsttouch.verdict.model import ORDER

#: Hosts whose passes are drawn, and metrics of each.
MOST_HOSTS, _METRICS = 24, 3
#: Days that the table shows, the last ones.
_DAYS = 14
_WIDTH, _HEIGHT = 330, 124
#: Room (px) above the drawing for what its top means, below it for its bottom and for the days.
_TOP, _BOTTOM = 16, 32
#: How the lines of a drawing look, in the order of its metrics (fleet.css).
_LOOKS = ("solid", "dashed", "dotted")
_DAY = 86_400_000


@dataclass(frozen=True)
class Line:
    """The passes of one host: *sentences* that say what happened, and the drawing."""

    host: str
    word: str
    sentences: Sequence[str]
    svg: Markup


@dataclass(frozen=True)
class Days:
    """Metrics outside their limits, by host and day: a row per host, cells as ``outside of measured``."""

    days: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]


def days(ranks: Ranks) -> Days:
    """Return on which days how many passes of the worst hosts that do not pass were outside."""
    judged = ranks.judged
    known = judged.passes
    every = np.unique(known.time // _DAY)[-_DAYS:].tolist() if len(known.time) else []
    rows = []
    for host in [h for h in ranks.hosts if h in judged.number and ranks.words[h]][:MOST_HOSTS]:
        parts = [_passes(ranks, int(g)) for g in judged.groups(host)]
        day = np.concatenate([times // _DAY for times, _, _ in parts])
        outside = np.concatenate([bad > limit for _, bad, limit in parts])
        cells = []
        for number in every:
            mine = day == number
            total = np.count_nonzero(mine)
            cells.append(f"{np.count_nonzero(outside & mine)} of {total}" if total else "")
        rows.append((host, cells))
    return Days([_date(d * _DAY) for d in every], rows)


def lines(ranks: Ranks) -> list[Line]:
    """Return the drawings of the worst hosts that were measured more than once."""
    judged = ranks.judged
    found: list[Line] = []
    for host in ranks.hosts:
        if len(found) == MOST_HOSTS or ranks.words[host] == 0:
            break
        mine = judged.groups(host)
        mine = mine[(judged.passes.counts[mine] > 1) & np.isfinite(judged.change[mine])]
        if len(mine):
            worst = sorted(mine.tolist(), key=lambda g: (-int(judged.words[g]), -_bad(ranks, g)))
            found.append(_line(ranks, host, worst[:_METRICS], f"line{len(found)}"))
    return found


def _bad(ranks: Ranks, group: int) -> float:
    known = ranks.judged.passes
    return worse(float(ranks.judged.change[group]), known.cases[known.case[group]].better)


def _passes(ranks: Ranks, group: int) -> tuple[np.ndarray, Floats, float]:
    """Return the times of a group's valid passes, how much worse each is, and the limit of that."""
    known = ranks.judged.passes
    case = int(known.case[group])
    begin, size = int(known.begins[group]), int(known.counts[group])
    part = slice(begin, begin + size)
    valid = known.valid[part]
    reference = ranks.reference(case)
    if reference is None or not reference.value:
        return known.time[part][:0], known.value[part][:0], 0.0
    better = known.cases[case].better
    change = known.value[part][valid] / reference.value - 1
    bad = -change if better == "higher" else change if better == "lower" else np.abs(change)
    side = reference.lower if better == "higher" else reference.upper
    return known.time[part][valid], bad, abs(side) if side is not None else np.inf


def _line(ranks: Ranks, host: str, groups: Sequence[int], name: str) -> Line:
    known = ranks.judged.passes
    parts = [(ranks.names.of[int(known.case[g])], *_passes(ranks, g)) for g in groups]
    times = np.concatenate([t for _, t, _, _ in parts])
    first, last = int(times.min()), int(times.max())
    reach = max(0.02, *(float(np.abs(bad).max()) * 1.05 for _, _, bad, _ in parts))
    body, sentences = [], []
    half = (_HEIGHT - _TOP - _BOTTOM) / 2
    middle = _TOP + half
    for i, (metric, when, bad, limit) in enumerate(parts, start=1):
        x = 6 + (when - first) / max(1, last - first) * (_WIDTH - 12)
        y = middle + np.clip(bad / reach, -1, 1) * (half - 3)
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))
        body.append(f'<polyline class="s{i}" points="{points}"/>')
        body += [
            f'<circle class="s{i}" cx="{p.split(",")[0]}" cy="{p.split(",")[1]}" r="2.5"/>' for p in points.split()
        ]
        if limit <= reach and i == 1:
            at = middle + limit / reach * (half - 3)
            body.append(f'<line class="limit" x1="0" x2="{_WIDTH}" y1="{at:.1f}" y2="{at:.1f}"/>')
        moved = f"from {-100 * bad[0]:+.1f} % to {-100 * bad[-1]:+.1f} %"
        sentences.append(f"{_LOOKS[i - 1].capitalize()}: {metric}, {moved} over {len(bad)} passes")
    word = ORDER[ranks.words[host]]
    desc = f"{host}, {_date(first)} to {_date(last)}: " + "; ".join(sentences)
    head = f'<title id="{name}t">{escape(host)}</title><desc id="{name}d">{escape(desc)}</desc>'
    zero = f'<line class="middle" x1="0" x2="{_WIDTH}" y1="{middle}" y2="{middle}"/>'
    axis = f'<text x="0" y="{_HEIGHT - 4}">{_date(first)}</text>'
    axis += f'<text class="end" x="{_WIDTH}" y="{_HEIGHT - 4}">{_date(last)}</text>'
    axis += f'<text x="0" y="10">+{100 * reach:.3g} % better</text>'
    axis += f'<text x="0" y="{_HEIGHT - 18}">{-100 * reach:.3g} % worse</text>'
    svg = (
        f'<svg class="line" role="img" aria-labelledby="{name}t {name}d" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}">{head}{zero}{"".join(body)}{axis}</svg>'
    )
    # Every text in it is escaped above, the rest are numbers.
    return Line(host, word, sentences, Markup(svg))  # noqa: S704


def _date(milliseconds: int) -> str:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC).strftime("%Y-%m-%d")
