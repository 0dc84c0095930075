# SPDX-License-Identifier: Apache-2.0
"""Tables A1 to D2 of the article (A3 to D10 of the thesis) and table 2, in their layout."""

from __future__ import annotations

from firsttouch.report.model import Table
from firsttouch.report.paper import claims
from firsttouch.report.paper.sheets import ALIGNERS, DATASETS, POLICIES, SYSTEMS, THESIS, Row, Sheets, printed
from firsttouch.report.speedups import pivot

_HEADS = ("Mean (s)", "Error (%)")


def tables(sheets: Sheets) -> list[Table]:
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
    rows_of_table = [r for r in runs if r.text("table") == table and r.text("system") == system]
    return pivot(
        _caption(table, f"{name} using different memory allocation policies: {head}"),
        corner=("Threads",),
        rows=[(t,) for t in dict.fromkeys(r.text("threads") for r in rows_of_table)],
        columns=[(head, dataset, policy.capitalize()) for dataset in DATASETS for policy in POLICIES],
        cells={
            ((r.text("threads"),), (head, r.text("dataset"), r.text("policy").capitalize())): _cell(r)
            for r in rows_of_table
        },
        heads=_HEADS,
    )


def _partitions(table: str, name: str, runs: list[Row]) -> Table:
    rows_of_table = sorted((r for r in runs if r.text("table") == table), key=_order)
    return pivot(
        _caption(table, f"{name} using data partitioning"),
        corner=("Name", "Threads"),
        rows=list(dict.fromkeys(_scenario(r) for r in rows_of_table)),
        columns=[(head, dataset) for head in SYSTEMS.values() for dataset in DATASETS],
        cells={(_scenario(r), (SYSTEMS[r.text("system")], r.text("dataset"))): _cell(r) for r in rows_of_table},
        heads=_HEADS,
    )


def _scenario(run: Row) -> tuple[str, str]:
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
