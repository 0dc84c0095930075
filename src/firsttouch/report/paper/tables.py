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
    groups,
    printed,
)
from firsttouch.report.speedups import Key, pivot

# ----------------------------------------------------------------------
# Lenis and Senar 2017: tables A1 to D2 (A3 to D10 of the thesis), and table 2.

_HEADS = ("Mean (s)", "Error (%)")


def execution_times(sheets: Sheets) -> list[Table]:
    """Return the tables of execution times in the order of the article, one per system."""
    runs = groups(sheets["times"], ("table",))
    result = []
    for name, letter in ALIGNERS.values():
        result += [_policies(f"{letter}1", name, system, runs[f"{letter}1",]) for system in SYSTEMS]
        result.append(_partitions(f"{letter}2", name, runs[f"{letter}2",]))
    return result


def _caption(table: str, what: str) -> str:
    return f"Table {table} (thesis: {THESIS[table]}). Execution times for {what}"


def _cell(run: Row) -> tuple[str, str]:
    return printed(run["mean_s"]), printed(run["error_pct"])


def _policies(table: str, name: str, system: str, runs: Sequence[Row]) -> Table:
    head = SYSTEMS[system]
    selected = [r for r in runs if r["system"] == system]
    return pivot(
        _caption(table, f"{name} using different memory allocation policies: {head}"),
        corner=("Threads",),
        rows=list(dict.fromkeys((str(r["threads"]),) for r in selected)),
        columns=[(head, dataset, policy.capitalize()) for dataset in DATASETS for policy in POLICIES],
        cells={((str(r["threads"]),), (head, r["dataset"], r["policy"].capitalize())): _cell(r) for r in selected},
        heads=_HEADS,
    )


def _partitions(table: str, name: str, runs: Sequence[Row]) -> Table:
    ordered = sorted(runs, key=lambda r: (POLICIES.index(r["policy"]), r["instances"]))
    return pivot(
        _caption(table, f"{name} using data partitioning"),
        corner=("Name", "Threads"),
        rows=list(dict.fromkeys(map(_scenario_name, ordered))),
        columns=[(head, dataset) for head in SYSTEMS.values() for dataset in DATASETS],
        cells={(_scenario_name(r), (SYSTEMS[r["system"]], r["dataset"])): _cell(r) for r in runs},
        heads=_HEADS,
    )


def _scenario_name(run: Row) -> Key:
    return run["scenario"], str(run["threads_per_instance"])


def scenarios(sheets: Sheets) -> Table:
    """Return table 2 (thesis: 5.2) as planned: which scenarios fit into memory, and which were run."""
    ran = {(r["aligner"], r["scenario"]): r["table"] for r in sheets["times"]}
    rows: list[tuple[str, ...]] = []
    for aligner, (name, _) in ALIGNERS.items():
        planned = {s: {f.name: f for f in claims.whole_host(aligner, s, sheets)} for s in SYSTEMS}
        first = planned["amd-opteron"]
        for policy in map(str.capitalize, POLICIES):
            for scenario in first.values():
                if not scenario.name.endswith(policy) or not 1 < scenario.instances <= claims.most_run(sheets):
                    continue
                shape = f"{scenario.instances} x {scenario.threads}t"
                table = ran.get((aligner, scenario.name), "no")
                fits = [f.reason or "fits" for s in SYSTEMS if (f := planned[s].get(scenario.name))]
                rows.append((name, shape, policy, scenario.name, table, *fits))
    memory = (f"{head} memory" for head in SYSTEMS.values())
    return Table(
        "Table 2 (thesis: 5.2). Instances for each aligner: planned from the systems' facts and the index sizes "
        "of table 1 (thesis: 5.1)",
        ("Aligner", "#Inst x Threads", "Policy", "Name", "In table", *memory),
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
    peaks = groups(sheets["main_peaks"], ("table",))
    tables = [_peak_table(caption, peaks[table,], ("Th", "Krd/s")) for table, caption in TITLES.items()]
    return [*tables, _peak_table(_S2, sheets["peaks"], ("Th", "Krd/s", "Whole human (min)"))]


def _peak_table(caption: str, rows: Sequence[Row], heads: Key) -> Table:
    cells: dict[tuple[Key, Key], tuple[str, ...]] = {}
    for rivals in groups(rows, ("aligner", "system", "reads")).values():
        values = [r["peak_kreads_per_s"] for r in rivals]
        for row in rivals:
            place = 1 + sum(value > row["peak_kreads_per_s"] for value in values)
            mark = f" ({place})" if place <= 2 and len(rivals) > 1 else ""
            texts = [str(row["threads_at_peak"]), f"{row['peak_kreads_per_s']:,.2f}{mark}"]
            if len(heads) > len(texts):
                texts.append(f"{row['whole_human_40x_min']:,.2f}")
            cells[_configuration(row), (MACHINES[row["system"]], row["reads"].capitalize())] = tuple(texts)
    return pivot(
        caption + _MARKED,
        corner=("Aligner", "Configuration"),
        rows=list(dict.fromkeys(map(_configuration, rows))),
        columns=[(machine, reads.capitalize()) for machine in MACHINES.values() for reads in READS],
        cells=cells,
        heads=heads,
    )


def _configuration(row: Row) -> Key:
    return row["aligner"], row["configuration"]
