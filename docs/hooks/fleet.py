# SPDX-License-Identifier: Apache-2.0
"""The figures of a fleet's pages, of the simulated fleet, with the words of these pages."""

from __future__ import annotations

import functools
from typing import Any

import simulated

from firsttouch.judge import samples_table
from firsttouch.judge.judging import Undescribed, judged
from firsttouch.report.fleet import comparison, figures, fleet_pages
from firsttouch.report.fleet import comparison as changes
from firsttouch.report.fleet.ranks import Ranks

#: Drawings of a kind that are shown.
_SHOWN = 3


def html(name: str) -> str:
    """Return a part of a fleet's page."""
    shown = {"map": _map, "spread": _spread, "history": _history, "changes": _changes}[name]()
    return f'<div class="drawn fleet">{fleet_pages.part(*shown)}</div>'.replace("\n", " ")


@functools.cache
def ranks() -> Ranks:
    """Return the hosts of the simulated fleet, judged by each other."""
    found = samples_table.of_records(simulated.records())
    return Ranks(judged(found, Undescribed("example"), missing=simulated.MISSING))


def _map() -> tuple[str, dict[str, Any]]:
    section = {"heat": figures.heat(ranks()), "shared": ranks().names.shared}
    return "heat.html.j2", {"section": section, **figures.legend()}


def _spread() -> tuple[str, dict[str, Any]]:
    drawn = figures.spreads(ranks())[:_SHOWN]
    section = {"system": "example", "spreads": drawn, "header": figures.HEADER, "metrics": figures.rows(ranks())}
    return "spread.html.j2", {"section": section}


def _history() -> tuple[str, dict[str, Any]]:
    # Of a host whose measurement was wrong there is nothing to see.
    lines = [line for line in figures.lines(ranks()) if line.word != "invalid"][:_SHOWN]
    days = figures.days(ranks())
    return "history.html.j2", {"section": {"days": days, "lines": lines, "failing": len(days.rows)}}


def _changes() -> tuple[str, dict[str, Any]]:
    after = simulated.records(simulated.AFTER, updated=True)
    found = changes.compare(samples_table.of_records(simulated.records()), samples_table.of_records(after))
    return "changes.html.j2", comparison.shown(found.changes)
