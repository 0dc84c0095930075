# SPDX-License-Identifier: Apache-2.0
"""Example parts of fleet reports, drawn by the program for the simulated fleet."""

from __future__ import annotations

import functools
from typing import Any

import simulated

from firsttouch.judge import history as judge_history
from firsttouch.judge import samples_table
from firsttouch.judge.judging import Undescribed, judged
from firsttouch.report import pages
from firsttouch.report.fleet import comparison, figures, history
from firsttouch.report.fleet.ranks import Ranks

#: How many drawings of a kind are shown.
_SHOWN = 3


def html(name: str) -> str:
    """Return a part of a fleet report."""
    template, values = {
        "map": _map,
        "spread": _spread,
        "timeline": _timeline,
        "changes": _changes,
    }[name]()
    return f'<div class="drawn fleet">{pages.html(values, template)}</div>'.replace("\n", " ")


@functools.cache
def ranks() -> Ranks:
    """Return the hosts of the simulated fleet, compared with each other."""
    table = samples_table.of_records(simulated.records())
    return Ranks(judged(table, Undescribed("example"), missing=simulated.MISSING))


def _map() -> tuple[str, dict[str, Any]]:
    section = {"heat": figures.heat(ranks())}
    return "heat.html.j2", {"section": section, **figures.legend()}


def _spread() -> tuple[str, dict[str, Any]]:
    spreads = figures.spreads(ranks())[:_SHOWN]
    section = {"system": "example", "spreads": spreads, "header": figures.HEADER, "metrics": figures.rows(ranks())}
    return "spread.html.j2", {"section": section}


def _timeline() -> tuple[str, dict[str, Any]]:
    records = [*simulated.records(), *simulated.records(simulated.AFTER, updated=True)]
    table = samples_table.of_records(records)
    changes = judge_history.changes(table)
    section = history.of_fleet(table, history.History(changes[:_SHOWN]), "example-change")
    return "timeline.html.j2", {"timeline": section}


def _changes() -> tuple[str, dict[str, Any]]:
    before = samples_table.of_records(simulated.records())
    after = samples_table.of_records(simulated.records(simulated.AFTER, updated=True))
    return "changes.html.j2", comparison.shown(comparison.compare(before, after).changes)
