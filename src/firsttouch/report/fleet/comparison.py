# SPDX-License-Identifier: Apache-2.0
"""The report of two campaigns compared, before and after something was changed."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape
from tabulate import tabulate

import firsttouch
from firsttouch.report import DOCUMENT
from firsttouch.report.document import SCHEMA
from firsttouch.report.fleet import pages
from firsttouch.report.fleet.changes import CONFIDENCE, FEWEST, NEGLIGIBLE, ORDER, WITHIN, Change, Comparison
from firsttouch.report.text import clean, count, quantity

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
#: Changes that are drawn, and lines of a terminal or a ticket.
_DRAWN, _SHORT = 40, 20
#: Height of a row, width of the drawing and of the names in it (px).
_ROW, _WIDTH, _NAMES = 18, 900, 520
_LOST = 40


@dataclass(frozen=True)
class Compared:
    """The *document* of a comparison, and its table for a terminal."""

    document: dict[str, Any]
    rows: Sequence[Sequence[str]]

    def table(self) -> str:
        """Return the line that counts, and the changes that have to be looked at first."""
        shown = [r[:8] for r in self.rows if r[1] != "unchanged"][:_SHORT]
        body = [tabulate(shown, HEADER[:8], "simple", disable_numparse=True)] if shown else []
        return "\n\n".join([self.document["line"], *body])


def build(
    found: Comparison, out: Path, *, names: tuple[str, str], generated: datetime.datetime | None = None
) -> Compared:
    """Write the report of a comparison into the existing folder *out*; *names* are those of the two campaigns."""
    stated = (generated or datetime.datetime.now(datetime.UTC)).isoformat(timespec="seconds")
    rows = [_row(one) for one in found.changes]
    counts = {word: sum(c.word == word for c in found.changes) for word in ORDER}
    told = ", ".join(f"{n} {w}" for w, n in counts.items() if n) or "none to compare"
    line = f"{count(len(found.changes), 'metric')} of {count(found.hosts, 'host')} in both: {told}."
    title = f"{clean(names[0])} and {clean(names[1])} compared"
    lost = _lost(found, names)
    machine = {
        "document": DOCUMENT,
        "schema": SCHEMA,
        "kind": "comparison",
        "firsttouch": firsttouch.__version__,
        "title": title,
        "generated": stated,
        "line": line,
        "counts": counts,
        "missing": [{"what": what, "reason": why} for what, why in lost],
        "changes": [_machine(one) for one in found.changes],
    }
    facts: dict[str, Any] = {
        "title": title,
        "generated": stated,
        "version": firsttouch.__version__,
        "line": line,
        "counts": counts,
    }
    facts |= {"lost": lost, "header": HEADER, "rows": rows, "drawing": _drawing(found.changes), "short": _SHORT}
    facts |= {"confidence": CONFIDENCE, "fewest": FEWEST, "negligible": NEGLIGIBLE, "within": WITHIN}
    (out / "index.html").write_text(pages.html("compare.html.j2", facts), encoding="utf-8")
    (out / "summary.md").write_text(pages.ticket("compare.md.j2", facts), encoding="utf-8")
    text = json.dumps(machine, indent=1, sort_keys=True, allow_nan=False) + "\n"
    (out / "summary.json").write_text(text, encoding="utf-8")
    return Compared(machine, rows)


def _row(one: Change) -> tuple[str, ...]:
    between = "too few hosts" if one.low is None else f"{_percent(one.low)} to {_percent(one.high or 0.0)}"
    p = "below 1e-6" if one.p < 1e-6 else f"{one.p:.2g}"
    unlike = ", ".join(f"{host} ({_percent(size)})" for host, size in one.unlike)
    unit = one.case.unit
    values = quantity(one.before, unit), quantity(one.after, unit)
    return (one.case.name, one.word, *values, _percent(one.size), between, p, str(one.hosts), unlike)


def _percent(fraction: float) -> str:
    return f"{100 * fraction:+.2f} %"


def _machine(one: Change) -> dict[str, Any]:
    return {
        "metric": one.case.name,
        "unit": one.case.unit,
        "better": one.case.better,
        "verdict": one.word,
        "hosts": one.hosts,
        "before": one.before,
        "after": one.after,
        "change": one.size,
        "low": one.low,
        "high": one.high,
        "p": one.p,
        "unlike": [{"host": host, "change": size} for host, size in one.unlike],
    }


def _lost(found: Comparison, names: tuple[str, str]) -> list[tuple[str, str]]:
    """Return what only one of the campaigns has, hosts first."""
    lost = []
    for hosts, there, other in ((found.only_before, *names), (found.only_after, *reversed(names))):
        lost += [(host, f"in {there}, not in {other}") for host in hosts[:_LOST]]
        if len(hosts) > _LOST:
            lost.append((count(len(hosts) - _LOST, "more host"), f"in {there}, not in {other}"))
    for cases, there, other in ((found.cases_before, *names), (found.cases_after, *reversed(names))):
        lost += [(case, f"no host has it in both: in {there}, not in {other}") for case in cases[:_LOST]]
        if len(cases) > _LOST:
            lost.append((count(len(cases) - _LOST, "more metric"), f"in {there}, not in {other}"))
    return lost


def _drawing(changes: Sequence[Change]) -> Markup:
    """Return the intervals of the changes that are decided: a row each, 0 in the middle."""
    shown = [c for c in changes if c.word in {"worse", "better", "changed"}][:_DRAWN]
    if not shown:
        return Markup("")
    reach = max(max(abs(c.low or 0.0), abs(c.high or 0.0)) for c in shown) * 1.05
    height = _ROW * len(shown) + 20
    half = (_WIDTH - _NAMES) / 2
    middle = _WIDTH - half
    parts = [f'<line class="middle" x1="{middle}" x2="{middle}" y1="0" y2="{height - 18}"/>']
    for i, one in enumerate(shown):
        y = i * _ROW + _ROW / 2
        low, high, at = (middle + x / reach * half for x in (one.low or 0.0, one.high or 0.0, one.size))
        kind = {"worse": "out", "better": "in"}.get(one.word, "other")
        name = one.case.name if len(one.case.name) < 80 else one.case.name[:77] + "..."
        parts.append(f'<text class="end" x="{_NAMES - 8}" y="{y + 4:.1f}">{escape(clean(name))}</text>')
        parts.append(
            f'<rect class="{kind}" x="{low:.1f}" y="{y - 3:.1f}" width="{max(1.0, high - low):.1f}" height="6"/>'
        )
        parts.append(f'<circle class="{kind}" cx="{at:.1f}" cy="{y:.1f}" r="4"/>')
    axis = [
        (middle - half, "", f"{-100 * reach:.3g} %"),
        (middle, "middle", "0"),
        (_WIDTH, "end", f"+{100 * reach:.3g} %"),
    ]
    parts += [f'<text class="{kind}" x="{x}" y="{height - 4}">{text}</text>' for x, kind, text in axis]
    title = f"Intervals of the {count(len(shown), 'largest change')}"
    desc = "; ".join(f"{c.case.name}: {c.word}, {_percent(c.size)}" for c in shown)
    head = f'<title id="changest">{title}</title><desc id="changesd">{escape(clean(desc))}</desc>'
    # Every text in it is escaped above, the rest are numbers.
    return Markup(  # noqa: S704
        f'<svg class="spread" role="img" aria-labelledby="changest changesd" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}">{head}{"".join(parts)}</svg>'
    )
