# SPDX-License-Identifier: Apache-2.0
"""The tables of the papers in their layout: A1 to D2 and 2 of the article, 2 to 4 and S2 of the second one."""

from __future__ import annotations

from collections.abc import Sequence

from firsttouch.report.model import Table
from firsttouch.report.paper import claims
from firsttouch.report.paper.sheets import (
    ALIGNERS,
    DATASETS,
    MACHINES,
    POLICIES,
    READS,
    SYSTEMS,
    THESIS,
    Row,
    Sheets,
    printed,
)
from firsttouch.report.speedups import Key, pivot

# ----------------------------------------------------------------------
# Lenis and Senar 2017: tables A1 to D2 (A3 to D10 of the thesis), and table 2.

_HEADS = ("Mean (s)", "Error (%)")


def execution_times(sheets: Sheets) -> list[Table]:
    """Return the tables of execution times in the order of the article, one per system."""
    result = []
    for aligner, (name, letter) in ALIGNERS.items():
        runs = [r for r in sheets["times"] if r.text("aligner") == aligner]
        result += [_policies(f"{letter}1", name, system, runs) for system in SYSTEMS]
        result.append(_partitions(f"{letter}2", name, runs))
    return result


def _caption(table: str, what: str) -> str:
    return f"Table {table} (thesis: {THESIS[table]}). Execution times for {what}"


def _cell(run: Row) -> tuple[str, str]:
    return printed(run.number("mean_s")), printed(run.number("error_pct"))


def _policies(table: str, name: str, system: str, runs: list[Row]) -> Table:
    head = SYSTEMS[system]
    selected = [r for r in runs if r.text("table") == table and r.text("system") == system]
    return pivot(
        _caption(table, f"{name} using different memory allocation policies: {head}"),
        corner=("Threads",),
        rows=[(t,) for t in dict.fromkeys(r.text("threads") for r in selected)],
        columns=[(head, dataset, policy.capitalize()) for dataset in DATASETS for policy in POLICIES],
        cells={
            ((r.text("threads"),), (head, r.text("dataset"), r.text("policy").capitalize())): _cell(r)
            for r in selected
        },
        heads=_HEADS,
    )


def _partitions(table: str, name: str, runs: list[Row]) -> Table:
    selected = sorted((r for r in runs if r.text("table") == table), key=_order)
    return pivot(
        _caption(table, f"{name} using data partitioning"),
        corner=("Name", "Threads"),
        rows=list(dict.fromkeys(_scenario_name(r) for r in selected)),
        columns=[(head, dataset) for head in SYSTEMS.values() for dataset in DATASETS],
        cells={(_scenario_name(r), (SYSTEMS[r.text("system")], r.text("dataset"))): _cell(r) for r in selected},
        heads=_HEADS,
    )


def _scenario_name(run: Row) -> tuple[str, str]:
    return run.text("scenario"), run.text("threads_per_instance")


def _order(run: Row) -> tuple[int, float]:
    return POLICIES.index(run.text("policy")), run.number("instances") or 0.0


def scenarios(sheets: Sheets) -> Table:
    """Return table 2 (thesis: 5.2) as planned: which scenarios fit into memory, and which were run."""
    ran = {(r.text("aligner"), r.text("scenario")): r.text("table") for r in sheets["times"]}
    rows = []
    for aligner, (name, _) in ALIGNERS.items():
        planned = {s: {f.name: f for f in claims.whole_host(aligner, s, sheets)} for s in SYSTEMS}
        first = planned["amd-opteron"]
        for policy in POLICIES:
            for scenario in (f for f in first.values() if f.name.endswith(policy.capitalize())):
                if not 1 < scenario.instances <= claims.most_run(sheets):
                    continue
                fits = [f.reason or "fits" for s in SYSTEMS if (f := planned[s].get(scenario.name))]
                shape = f"{scenario.instances} x {scenario.threads}t"
                rows.append(
                    (
                        name,
                        shape,
                        policy.capitalize(),
                        scenario.name,
                        ran.get((aligner, scenario.name), "no"),
                        *fits,
                    )
                )
    return Table(
        "Table 2 (thesis: 5.2). Instances for each aligner: planned from the systems' facts and the index sizes "
        "of table 1 (thesis: 5.1)",
        (
            "Aligner",
            "#Inst x Threads",
            "Policy",
            "Name",
            "In table",
            *(f"{head} memory" for head in SYSTEMS.values()),
        ),
        rows,
    )


# ----------------------------------------------------------------------
# Langmead et al. 2018: tables 2 to 4 and S2.

#: Table -> its title.
TITLES = {
    "T2": "Table 2. Peak throughputs for four lock types and the multiprocessing baseline",
    "T3": "Table 3. Peak throughputs for three parsing strategies and the multiprocessing baseline",
    "T4": "Table 4. Peak throughputs for B-parsing, L-parsing (1 and 16 outputs), the MP baseline and BWA-MEM",
}
_S2 = "Table S2. Peak throughputs for all experimental series, and minutes for a 40x human genome"
#: The marks replace the colours of the papers.
_MARKED = " ((1) and (2): highest and second highest of the aligner)"


def peak_throughputs(sheets: Sheets) -> list[Table]:
    """Return tables 2, 3, 4 and S2; a cell has the threads at the peak and thousands of reads per second."""
    peaks = [
        _peak_table(caption, [r for r in sheets["main_peaks"] if r.text("table") == table], ("Th", "Krd/s"))
        for table, caption in TITLES.items()
    ]
    return [*peaks, _peak_table(_S2, sheets["peaks"], ("Th", "Krd/s", "Whole human (min)"))]


def _peak_table(caption: str, rows: Sequence[Row], heads: Key) -> Table:
    places = _places(rows)
    cells: dict[tuple[Key, Key], tuple[str, ...]] = {}
    for row in rows:
        mark = f" ({place})" if (place := places[row.label]) else ""
        texts = [row.text("threads_at_peak"), f"{row.number('peak_kreads_per_s') or 0.0:,.2f}{mark}"]
        if len(heads) > len(texts):
            texts.append(f"{row.number('whole_human_40x_min') or 0.0:,.2f}")
        cells[_configuration(row), (MACHINES[row.text("system")], row.text("reads").capitalize())] = tuple(texts)
    return pivot(
        caption + _MARKED,
        corner=("Aligner", "Configuration"),
        rows=list(dict.fromkeys(map(_configuration, rows))),
        columns=[(machine, reads.capitalize()) for machine in MACHINES.values() for reads in READS],
        cells=cells,
        heads=heads,
    )


def _configuration(row: Row) -> Key:
    return row.text("aligner"), row.text("configuration")


def _places(rows: Sequence[Row]) -> dict[str, int]:
    """Return 1 for the highest peak of an aligner, system and kind of reads, 2 for the next, 0 for others."""
    places: dict[str, int] = {}
    for row in rows:
        rivals = [
            r.number("peak_kreads_per_s") or 0.0
            for r in rows
            if all(r.text(c) == row.text(c) for c in ("aligner", "system", "reads"))
        ]
        place = 1 + sum(value > (row.number("peak_kreads_per_s") or 0.0) for value in rivals)
        places[row.label] = place if place <= 2 and len(rivals) > 1 else 0
    return places
