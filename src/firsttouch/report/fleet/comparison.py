# SPDX-License-Identifier: Apache-2.0
"""The report of two campaigns compared, before and after something was changed."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate

import firsttouch
from firsttouch.report import DOCUMENT
from firsttouch.report.document import SCHEMA
from firsttouch.report.fleet import change_rows, pages
from firsttouch.report.fleet.change_rows import HEADER
from firsttouch.report.fleet.changes import CONFIDENCE, FEWEST, NEGLIGIBLE, ORDER, WITHIN, Change, Comparison, Host
from firsttouch.report.text import clean, count

#: Lines of a terminal or a ticket.
_SHORT = 20
#: How wide a terminal's columns of hosts are.
_WIDTHS = [24, 8, 48, 32, 32]
_LOST = 40


@dataclass(frozen=True)
class Compared:
    """The *document* of a comparison, and its table for a terminal."""

    document: dict[str, Any]
    rows: Sequence[Sequence[str]]
    hosts: Sequence[Sequence[str]]

    def table(self) -> str:
        """Return the line that counts, the worst hosts, and the changes that have to be looked at first."""
        worst = [[clean(cell) for cell in row] for row in self.hosts[:_SHORT]]
        first = [tabulate(worst, change_rows.HOSTS, "simple", disable_numparse=True, maxcolwidths=_WIDTHS)]
        shown = [r[:8] for r in self.rows if r[1] != "unchanged"][:_SHORT]
        body = [tabulate(shown, HEADER[:8], "simple", disable_numparse=True)] if shown else []
        return "\n\n".join([self.document["line"], *(first if worst else []), *body])


def build(
    found: Comparison, out: Path, *, names: tuple[str, str], generated: datetime.datetime | None = None
) -> Compared:
    """Write the report of a comparison into the existing folder *out*; *names* are those of the two campaigns."""
    stated = (generated or datetime.datetime.now(datetime.UTC)).isoformat(timespec="seconds")
    counts = {word: sum(c.word == word for c in found.changes) for word in ORDER}
    told = ", ".join(f"{n} {w}" for w, n in counts.items() if n) or "none to compare"
    line = (
        f"{count(len(found.changes), 'metric')} of {count(found.hosts, 'host')} in both: {told}. {_unlike(found)}"
    )
    title = f"What changed from {clean(names[0])} to {clean(names[1])}"
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
        "hosts": [_host(one) for one in found.changed],
        "changes": [_machine(one) for one in found.changes],
    }
    facts: dict[str, Any] = {
        "title": title,
        "generated": stated,
        "version": firsttouch.__version__,
        "line": line,
        "counts": counts,
    }
    hosts = change_rows.hosts(found.changed)
    facts |= {
        "lost": lost,
        "short": _SHORT,
        "hosts": hosts,
        "hosts_header": change_rows.HOSTS,
        **shown(found.changes),
    }
    rows = [row.cells for row in facts["rows"]]
    (out / "index.html").write_text(pages.html("compare.html.j2", facts), encoding="utf-8")
    (out / "summary.md").write_text(pages.ticket("compare.md.j2", facts), encoding="utf-8")
    text = json.dumps(machine, indent=1, sort_keys=True, allow_nan=False) + "\n"
    (out / "summary.json").write_text(text, encoding="utf-8")
    return Compared(machine, rows, hosts)


def _unlike(found: Comparison) -> str:
    """Return the sentence that counts hosts that changed unlike the others, with the worst one."""
    if not found.changed:
        return "No single host changed unlike the others." if found.hosts >= FEWEST else ""
    changed = sum(bool(h.changes) for h in found.changed)
    lost = sum(bool(h.lost) for h in found.changed)
    new = sum(bool(h.new) for h in found.changed)
    parts = [f"{count(changed, 'host')} changed unlike the others"] if changed else []
    parts += [f"{count(lost, 'host')} lost metrics that others have"] if lost else []
    parts += [f"{count(new, 'host')} {'has' if new == 1 else 'have'} new metrics"] if new else []
    worst = found.changed[0]
    what = [f"{worst.changes[0][0].name} {change_rows.percent(worst.changes[0][1])}"] if worst.changes else []
    what += [f"{count(len(worst.lost), 'metric')} gone"] if worst.lost else []
    told = f"; the worst is {worst.name}: {', '.join(what)}" if what else ""
    return f"{', '.join(parts)}{told}."


def _host(one: Host) -> dict[str, Any]:
    return {
        "host": one.name,
        "changes": [{"metric": case.name, "change": size} for case, size in one.changes],
        "lost": [case.name for case in one.lost],
        "new": [case.name for case in one.new],
    }


def shown(changes: Sequence[Change]) -> dict[str, Any]:
    """Return what changes.html.j2 wants."""
    return {
        "rows": change_rows.rows(changes),
        "header": HEADER,
        "in_short": change_rows.in_short(changes),
        "short_header": change_rows.IN_SHORT,
        "signs": change_rows.SIGNS,
        "confidence": CONFIDENCE,
        "fewest": FEWEST,
        "negligible": NEGLIGIBLE,
        "within": WITHIN,
    }


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
