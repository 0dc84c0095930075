# SPDX-License-Identifier: Apache-2.0
"""The search of `firsttouch advise` on stored times: the scenario that it chooses in each cell, and the cost.

Times are read from a CSV file with the columns of the published tables; memory options are a suffix of the policy
(``original+thp``). A simulated trial uses a thousandth of the
reads, costs that part of the scenario's mean time, and returns it with the stored error as noise. The search gets
the trials only, neither means nor errors. It sees no name except the policy's, which says whether pages are spread
evenly.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct
from tabulate import tabulate

import csv_rows
from firsttouch.advice.auto import BUDGET
from firsttouch.advice.costs import ModelledScenario
from firsttouch.advice.posterior import Prior, Trial, prior
from firsttouch.advice.search import Rules, SearchResult, search
from firsttouch.errors import BadInput, one_line
from firsttouch.scenarios import memory_options
from firsttouch.scenarios.placement import extent_of, name_of
from firsttouch.scenarios.policies import policies

TIMES = Path(__file__).resolve().parents[1] / "studies/published/lenis2017_execution_times.csv"
COLUMNS = ("aligner", "system", "dataset", "instances", "threads_per_instance", "policy", "mean_s", "error_pct")
#: The error (percent) of scenarios in a cell without any errors.
USUAL_ERROR = 5.0
#: Limits of times (a microsecond to 30 years) and errors (percent), so that squares do not overflow.
LEAST_SECONDS, MOST_SECONDS = 1e-6, 1e9
MOST_ERROR = 1e4
#: Instances, threads of each, policy, and memory options.
_Scenario = tuple[int, int, str, tuple[str, ...]]


class Row(Struct, frozen=True):
    """One scenario's stored time: the mean in *seconds*, and the *error* of a run as a part of it."""

    instances: int
    threads: int
    policy: str
    seconds: float
    error: float
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The scenario's name."""
        return name_of(self.instances, self.threads, self.policy) + memory_options.suffix(self.options)


class Cell(Struct, frozen=True):
    """The scenarios of one aligner on one system and dataset that use the most threads, in a fixed order."""

    aligner: str
    system: str
    dataset: str
    rows: tuple[Row, ...]

    @property
    def default(self) -> Row | None:
        """The default run: one instance, policy original, no memory options."""
        usual = (r for r in self.rows if r.instances == 1 and r.policy == "original" and not r.options)
        return next(usual, None)


def read(file: Path) -> list[Cell]:
    """Return the cells of *file*, in the order of their first lines; raises BadInput with file, line and fix.

    Only the scenarios of a cell that use the most threads in total are kept: the others belong to scaling studies.
    A missing error is the median of the cell's.
    """
    columns, lines = csv_rows.read(file)
    if missing := [c for c in COLUMNS if c not in columns]:
        raise BadInput(f"no column {', '.join(missing)}: needed are {', '.join(COLUMNS)}", file=file, line=1)
    if not lines:
        raise BadInput("no times below the first line", file=file, line=1)
    grouped: dict[tuple[str, str, str], dict[_Scenario, tuple[float, float | None]]] = {}
    for line in lines:
        try:
            key, scenario, time = _parsed(line.cells)
            cell = grouped.setdefault(key, {})
            if scenario in cell:
                what = f"{scenario[0]} x {scenario[1]} {scenario[2]}{memory_options.suffix(scenario[3])}"
                raise BadInput(f"a second time of {what} for {', '.join(key)}: remove one")
        except BadInput as error:
            raise BadInput(str(error), file=file, line=line.line) from error
        cell[scenario] = time
    return [Cell(*key, _rows(times)) for key, times in grouped.items()]


def _parsed(line: Mapping[str, str]) -> tuple[tuple[str, str, str], _Scenario, tuple[float, float | None]]:
    text = {c: line[c].strip() for c in COLUMNS}
    for column in ("aligner", "system", "dataset", "policy"):
        if not text[column]:
            raise BadInput(f"{column} is empty")
    counts = []
    for column in ("instances", "threads_per_instance"):
        value = text[column]
        if not (value.isascii() and value.isdecimal() and len(value) < 10 and int(value) >= 1):
            raise BadInput(f"{column} is '{value}': a whole number of at least 1")
        counts.append(int(value))
    seconds = _number(text["mean_s"])
    if seconds is None or not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        limits = f"from {LEAST_SECONDS:g} to {MOST_SECONDS:g}"
        raise BadInput(f"mean_s is '{text['mean_s']}': seconds above 0, {limits}")
    error = _number(text["error_pct"]) if text["error_pct"] else None
    if text["error_pct"] and (error is None or not 0 <= error <= MOST_ERROR):
        limits = f"from 0 to {MOST_ERROR:g}, or nothing if unknown"
        raise BadInput(f"error_pct is '{text['error_pct']}': percent, {limits}")
    key = (text["aligner"], text["system"], text["dataset"])
    policy, _, suffix = text["policy"].lower().partition("+")
    try:
        names = memory_options.parse_suffix(suffix)
    except BadInput as wrong:
        raise BadInput(f"policy is '{text['policy']}': {wrong}") from wrong
    return key, (counts[0], counts[1], policy, names), (seconds, error)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _rows(times: Mapping[_Scenario, tuple[float, float | None]]) -> tuple[Row, ...]:
    most = max(instances * threads for instances, threads, *_ in times)
    kept = {s: t for s, t in sorted(times.items()) if s[0] * s[1] == most}
    errors = sorted(e for _, e in kept.values() if e is not None)
    usual = errors[len(errors) // 2] if errors else USUAL_ERROR
    return tuple(
        Row(*scenario[:3], seconds, (usual if error is None else error) / 100, scenario[3])
        for scenario, (seconds, error) in kept.items()
    )


# ----------------------------------------------------------------------
# The replay

#: A trial's part of the reads.
FRACTION = 0.001
#: Noise never makes a run shorter than this part of its mean.
_LEAST = 0.05
#: Least number of banks of a host, because the tables do not have it.
_BANKS = 4


class Chosen(Struct, frozen=True):
    """The choice in a cell: its row, the best row, and what was *spent* as a part of the chosen row's time."""

    cell: Cell
    seed: int
    row: Row
    best: Row
    spent: float
    outcome: SearchResult


class Simulated:
    """Simulated trials; the noise of a scenario's n-th trial depends on *seed*, scenario and n only.

    *cost* is the sum of their mean seconds.
    """

    def __init__(self, rows: Sequence[Row], seed: int) -> None:
        self._rows = rows
        self._noise = [np.random.default_rng([seed, number]) for number in range(len(rows))]
        self.cost = 0.0

    def trial(self, number: int) -> Trial:
        """Make a trial of scenario *number* and add its cost."""
        row = self._rows[number]
        self.cost += FRACTION * row.seconds
        noise = max(_LEAST, 1 + row.error * self._noise[number].standard_normal())
        return Trial(FRACTION, FRACTION * row.seconds * noise)


def expected(rows: Sequence[Row]) -> Prior:
    """Return the prior of a cell's rows; the tables have neither a topology nor the size of an index.

    The number of replicas that were run shows how many fitted: fewer than banks if the index is larger than a
    bank.
    """
    most = max(r.instances for r in rows)
    banks = max(_BANKS, most)
    index_banks = banks / (1.5 * most) if most < banks else 0.5
    all_policies = policies()

    def candidate(row: Row) -> ModelledScenario:
        policy = all_policies.get(row.policy)
        spread = policy is not None and policy.pages[extent_of(row.instances)] == "even"
        own_banks = max(1, banks // row.instances)
        return ModelledScenario(
            row.name,
            row.instances,
            row.threads,
            row.policy,
            spread=spread,
            banks=own_banks,
            options=row.options,
            copies=_copies(row),
        )

    return prior([candidate(row) for row in rows], index_banks)


def _copies(row: Row) -> int:
    """Return the copies of the index, 0 if each instance has one or if their number is unknown."""
    index = memory_options.option_of_kind(row.options, "index")
    return 0 if index is None or index.copies in {"own", "node"} else 1


def replay(cell: Cell, seed: int, budget: float) -> Chosen:
    """Return the method's choice in *cell* within *budget*, a part of the chosen scenario's time."""
    simulated = Simulated(cell.rows, seed)
    outcome = search(expected(cell.rows), simulated.trial, Rules(FRACTION, budget))
    row = cell.rows[outcome.belief.best]
    best = min(cell.rows, key=lambda r: r.seconds)
    return Chosen(cell, seed, row, best, simulated.cost / row.seconds, outcome)


def table(chosen: Sequence[Chosen]) -> str:
    """Return the table of the choices."""
    rows = [
        (
            *map(one_line, (c.cell.aligner, c.cell.system, c.cell.dataset, c.row.name)),
            c.row.seconds,
            *(c.row.seconds / c.best.seconds, c.cell.default and c.cell.default.seconds / c.row.seconds),
            f"{c.spent:.2%}",
        )
        for c in chosen
    ]
    heads = ("aligner", "system", "dataset", "chosen", "s", "/ best", "default /", "spent")
    return tabulate(rows, heads, floatfmt=("", "", "", "", ".2f", ".3f", ".2f"), missingval="-")


def main() -> None:
    """Print the choice in each cell of a file."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument(
        "times", type=Path, nargs="?", default=TIMES, help="a CSV file (default: published times)"
    )
    options.add_argument("--seed", type=int, default=0, help="of the noise")
    args = options.parse_args()
    print(table([replay(cell, args.seed, BUDGET) for cell in read(args.times)]))


if __name__ == "__main__":
    main()
