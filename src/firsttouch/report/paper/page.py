# SPDX-License-Identifier: Apache-2.0
"""The page with claims, tables and figures of the papers, computed from the published tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import firsttouch
from firsttouch.benchmarks.studies import Study
from firsttouch.report.model import Table
from firsttouch.report.paper import claims, sheets, tables
from firsttouch.report.paper.claims import Outcome

#: The files of :func:`build`.
FILES = ("index.html", "claims.json")
#: Cells per claim on the page; claims.json has all of them.
_CELLS = 4


def outcomes(folder: Path) -> tuple[list[Study], sheets.Sheets, list[Outcome]]:
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
    from firsttouch.report import pages  # noqa: PLC0415 - templates only where a page is written
    from firsttouch.report.paper import figures  # noqa: PLC0415

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
                [(table, of.planned, of.note) for table, of in tables.tables(study, published)],
            )
            for study in studies
        ],
        "sources": [source for study in studies for source in study.references],
    }
    text = json.dumps(document(results), indent=1, sort_keys=True) + "\n"
    return {"index.html": pages.html(facts, "paper.html.j2"), "claims.json": text}, results


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
