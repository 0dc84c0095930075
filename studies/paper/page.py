# SPDX-License-Identifier: Apache-2.0
"""The page with claims, tables and figures of the papers, computed from the published tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import firsttouch
from firsttouch.benchmarks.studies import Study
from firsttouch.benchmarks.studies import Table as Planned
from firsttouch.report import pages, published_tables
from firsttouch.report.model import Table
from firsttouch.report.published_tables import Sheets
from paper import claims, figures, sheets
from paper.claims import Outcome

#: The files of :func:`build`.
FILES = ("index.html", "claims.json")
TEMPLATE = Path(__file__).with_name("index.html.j2")
#: Cells per claim on the page; claims.json has all of them.
_CELLS = 4


def outcomes(folder: Path) -> tuple[list[Study], Sheets, list[Outcome]]:
    """Return the studies with published values, their tables in *folder*, and the outcomes of the claims."""
    studies = sheets.published()
    published = sheets.read(folder, studies)
    return studies, published, claims.judge(claims.load(), published)


def document(results: Sequence[Outcome]) -> dict[str, Any]:
    """Return claims.json: every claim with its place, whether it agrees, the computed value, and its cells."""
    return {
        "document": "firsttouch paper claims",
        "firsttouch": firsttouch.__version__,
        "claims": len(results),
        "agree": sum(o.agrees for o in results),
        "disagree": sum(not o.agrees for o in results),
        "outcomes": [
            {key: o.claim.body.get(key, "") for key in ("id", "where", "says", "note")}
            | {"paper": o.claim.paper, "agrees": o.agrees, "found": o.found, "cells": list(o.cells)}
            for o in results
        ],
    }


def build(folder: Path) -> tuple[dict[str, str], list[Outcome]]:
    """Return the text of each of FILES, and the outcomes of the claims.

    The same tables give the same bytes. Raises BadInput with the file and line of a wrong table.
    """
    studies, published, results = outcomes(folder)
    facts = {
        "version": firsttouch.__version__,
        "disagreeing": _by_paper("disagree", [o for o in results if not o.agrees]),
        "agreeing": _by_paper("agree", [o for o in results if o.agrees]),
        "papers": _papers(results),
        "sections": [
            (
                study.name,
                study.short,
                figures.figures(study, published),
                [(table, of.planned, of.note) for table, of in tables(study, published)],
            )
            for study in studies
        ],
        "sources": [source for study in studies for source in study.references],
    }
    text = json.dumps(document(results), indent=1, sort_keys=True) + "\n"
    return {"index.html": pages.html(facts, TEMPLATE), "claims.json": text}, results


def _by_paper(verb: str, results: Sequence[Outcome]) -> list[Table]:
    header = ("place", "statement", "published tables", "cells")
    rows: dict[str, list[tuple[str, ...]]] = {}
    for o in results:
        place, says, note = (o.claim.body.get(key, "") for key in ("where", "says", "note"))
        cells = "; ".join(o.cells[:_CELLS])
        cells += f"; and {len(o.cells) - _CELLS} more" if len(o.cells) > _CELLS else ""
        rows.setdefault(o.claim.paper, []).append((place, says + (f" [{note}]" if note else ""), o.found, cells))
    return [
        Table(f"{paper}: statements that {verb} with its tables ({len(of_paper)})", header, of_paper)
        for paper, of_paper in rows.items()
    ]


def _papers(results: Sequence[Outcome]) -> Table:
    papers = dict.fromkeys(o.claim.paper for o in results)
    agreeing = {paper: [o.agrees for o in results if o.claim.paper == paper] for paper in papers}
    agreeing["all"] = [o.agrees for o in results]
    rows = [
        (paper, str(len(agrees)), str(sum(agrees)), str(len(agrees) - sum(agrees)))
        for paper, agrees in agreeing.items()
    ]
    header = ("paper", "statements", "agree", "disagree")
    return Table("Statements that a table can confirm or refute", header, rows, frozenset({1, 2, 3}))


# ----------------------------------------------------------------------
# Tables


def tables(study: Study, sheets: Sheets) -> list[tuple[Table, Planned]]:
    """Return the published tables of a study in the order of its file, each with its description."""
    built: list[tuple[Table, Planned]] = []
    for described in study.tables.values():
        if described.planned:
            built.append((_scenarios(study, described, sheets), described))
        elif described.sheet:
            built += [(table, described) for table in published_tables.tables(study, described, sheets)]
    return built


def _scenarios(study: Study, described: Planned, sheets: Sheets) -> Table:
    """Return the scenarios of several instances as planned: which fit into memory, and which were run."""
    runs = published_tables.rows_of(described, sheets)
    ran = {(r["aligner"], r["scenario"]): r["table"] for r in runs}
    policies = list(dict.fromkeys(r["policy"] for r in runs))
    most = claims.most_run(runs)
    rows: list[tuple[str, ...]] = []
    for family in study.families.values():
        index = claims.index_of(family.published, sheets[described.planned])
        fits_of = {s: {f.name: f for f in claims.whole_host(index, s)} for s in study.systems}
        first = next(iter(fits_of.values()))
        for policy in map(str.capitalize, policies):
            for scenario in first.values():
                if not scenario.name.endswith(policy) or not 1 < scenario.instances <= most:
                    continue
                shape = f"{scenario.instances} x {scenario.threads}t"
                table = ran.get((family.published, scenario.name), "no")
                fits = [f.reason or "fits" for s in study.systems if (f := fits_of[s].get(scenario.name))]
                rows.append((family.name, shape, policy, scenario.name, table, *fits))
    memory = (f"{title} memory" for title, _ in study.systems.values())
    return Table(
        published_tables.caption(described),
        ("Aligner", "#Inst x Threads", "Policy", "Name", "In table", *memory),
        rows,
    )
