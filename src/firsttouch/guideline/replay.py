# SPDX-License-Identifier: Apache-2.0
"""The method against stored times: what it would have chosen, and what that would have cost.

A trial takes at least a thousandth of the reads, costs that part of the scenario's mean time, and is seen with
the stored error as noise. The method sees only that: neither means nor errors, and no name of anything but a
policy, of which it is known whether it spreads pages evenly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from firsttouch.guideline.belief import Trial
from firsttouch.guideline.prior import Candidate, Prior, prior
from firsttouch.guideline.search import Outcome, Rules, search
from firsttouch.guideline.tables import Cell, Row
from firsttouch.policies import Extent, policies

#: A trial's part of the reads.
FRACTION = 0.001
#: No noise makes a run shorter than this part of its mean.
_LEAST = 0.05
#: Banks that a host has at least, where nothing says how many.
_BANKS = 4


@dataclass(frozen=True)
class Chosen:
    """What was chosen in a cell: its row, the best row, and what was spent, as a part of the chosen's time."""

    cell: Cell
    seed: int
    row: Row
    best: Row
    spent: float
    outcome: Outcome

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of ``advise --replay --json``."""
        return {
            "aligner": self.cell.aligner,
            "system": self.cell.system,
            "dataset": self.cell.dataset,
            "seed": self.seed,
            "chosen": self.row.name,
            "chosen_s": self.row.seconds,
            "best_s": self.best.seconds,
            "spent": self.spent,
        }


class Simulated:
    """Trials of stored times; the noise of a scenario's n-th trial depends on *seed*, scenario and n only."""

    def __init__(self, rows: Sequence[Row], seed: int) -> None:
        self._rows = rows
        self._noise = [np.random.default_rng([seed, number]) for number in range(len(rows))]
        self.cost = 0.0

    def trial(self, number: int) -> Trial:
        """Make a trial of one scenario, and add what it costs."""
        row = self._rows[number]
        self.cost += FRACTION * row.seconds
        seen = row.seconds * max(_LEAST, 1 + row.error * self._noise[number].standard_normal())
        return Trial(FRACTION, FRACTION * seen)


def extent(instances: int) -> Extent:
    """Return what each of so many instances has of the host."""
    return "whole" if instances == 1 else "part"


def expected(rows: Sequence[Row]) -> Prior:
    """Return what is expected of the rows of a cell: the tables have no topology and no size of an index.

    How many replicas were run says how many there was room for: of an index that is larger than a bank, fewer
    than there are banks.
    """
    most = max(r.instances for r in rows)
    banks = max(_BANKS, most)
    index_banks = banks / (1.5 * most) if most < banks else 0.5
    known = policies()
    candidates = [
        Candidate(
            row.name,
            row.instances,
            row.threads,
            row.policy,
            spread=row.policy in known and known[row.policy].pages[extent(row.instances)] == "even",
            banks=max(1, banks // row.instances),
        )
        for row in rows
    ]
    return prior(candidates, index_banks)


def replay(cell: Cell, seed: int, budget: float) -> Chosen:
    """Return what the method chooses in *cell*, within *budget* of the chosen scenario's time."""
    simulated = Simulated(cell.rows, seed)
    outcome = search(expected(cell.rows), simulated.trial, Rules(FRACTION, budget))
    row = cell.rows[outcome.belief.best]
    best = min(cell.rows, key=lambda r: r.seconds)
    return Chosen(cell, seed, row, best, simulated.cost / row.seconds, outcome)
