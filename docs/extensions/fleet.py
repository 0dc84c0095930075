# SPDX-License-Identifier: Apache-2.0
"""Example parts of fleet reports, drawn by the program for the simulated fleet."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import simulated

from firsttouch.judge import history as judge_history
from firsttouch.judge.comparison import compare
from firsttouch.judge.judging import judged
from firsttouch.records import samples_table
from firsttouch.report import forms, pages
from firsttouch.report.document import Block
from firsttouch.report.fleet import comparison, figures
from firsttouch.report.fleet.figures import Ranks
from firsttouch.systems.definition import Undescribed

#: How many drawings of a kind are shown.
_SHOWN = 3


def html(name: str) -> str:
    """Return a part of a fleet report."""
    blocks = {"map": _map, "timeline": _timeline, "changes": _changes}[name]()
    return f'<div class="drawn fleet">{forms.part(blocks)}</div>'.replace("\n", " ")


@functools.cache
def ranks() -> Ranks:
    """Return the hosts of the simulated fleet, compared with each other."""
    table = samples_table.of_records(simulated.records())
    return Ranks(judged(table, Undescribed("rome"), missing=simulated.MISSING))


def _map() -> Sequence[Block]:
    return figures.heat(ranks())


def _timeline() -> Sequence[Block]:
    records = [*simulated.records(), *simulated.records(simulated.AFTER, updated=True)]
    table = samples_table.of_records(records)
    changes = judge_history.changes(judged(table, Undescribed("rome")))
    return pages.history(changes[:_SHOWN])


def _changes() -> Sequence[Block]:
    before = samples_table.of_records(simulated.records())
    after = samples_table.of_records(simulated.records(simulated.AFTER, updated=True))
    changes = compare(before, after).changes
    return comparison.change_blocks(comparison.short_table(changes), comparison.change_table(changes))
