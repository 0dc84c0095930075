# SPDX-License-Identifier: Apache-2.0
"""The page with claims, tables and figures of the papers, computed from the published tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import firsttouch
from firsttouch.report.model import Table
from firsttouch.report.paper import claims, sheets, tables
from firsttouch.report.paper.claims import Outcome

#: The files of :func:`build`.
FILES = ("index.html", "claims.json")
#: Cells per claim on the page; claims.json has all of them.
_CELLS = 4


def outcomes(folder: Path) -> tuple[sheets.Sheets, list[Outcome]]:
    """Return the published tables in *folder*, and the outcomes of the claims."""
    published = sheets.read(folder)
    return published, claims.judge(claims.load(), published)


def document(results: Sequence[Outcome]) -> dict[str, Any]:
    """Return claims.json: every claim with its place, whether it agrees, the computed value, and its cells."""
    return {
        "document": "firsttouch paper claims",
        "firsttouch": firsttouch.__version__,
        "claims": len(results),
        "agree": sum(o.agrees for o in results),
        "disagree": sum(not o.agrees for o in results),
        "outcomes": [
            {
                "id": o.claim.id,
                "paper": o.claim.paper,
                "where": o.claim.where,
                "says": o.claim.says,
                "note": o.claim.note,
                "agrees": o.agrees,
                "found": o.found,
                "cells": list(o.cells),
            }
            for o in results
        ],
    }


def build(folder: Path) -> tuple[dict[str, str], list[Outcome]]:
    """Return the text of each of FILES, and the outcomes of the claims.

    The same tables give the same bytes. Raises BadInput with the file and line of a wrong table.
    """
    from firsttouch.report import pages  # noqa: PLC0415 - templates only where a page is written
    from firsttouch.report.paper import figures  # noqa: PLC0415 - imports matplotlib

    published, results = outcomes(folder)
    facts = {
        "version": firsttouch.__version__,
        "claims": results,
        "disagreeing": _by_paper("disagree", [o for o in results if not o.agrees]),
        "agreeing": _by_paper("agree", [o for o in results if o.agrees]),
        "papers": _papers(results),
        "sections": [
            (
                "lenis",
                "Lenis and Senar 2017, Lenis 2018",
                figures.figures(published),
                tables.execution_times(published),
            ),
            (
                "langmead",
                "Langmead et al. 2018",
                figures.peak_figures(published),
                tables.peak_throughputs(published),
            ),
        ],
        "scenarios": tables.scenarios(published),
    }
    text = json.dumps(document(results), indent=1, sort_keys=True) + "\n"
    return {"index.html": pages.html(facts, "paper.html.j2"), "claims.json": text}, results


def _by_paper(verb: str, results: Sequence[Outcome]) -> list[Table]:
    header = ("place", "statement", "published tables", "cells")
    grouped: dict[str, list[tuple[str, ...]]] = {}
    for o in results:
        says = o.claim.says + (f" [{o.claim.note}]" if o.claim.note else "")
        grouped.setdefault(o.claim.paper, []).append((o.claim.where, says, o.found, _listed(o.cells)))
    return [
        Table(f"{paper}: statements that {verb} with its tables ({len(rows)})", header, rows)
        for paper, rows in grouped.items()
    ]


def _listed(cells: Sequence[str]) -> str:
    shown = "; ".join(cells[:_CELLS])
    return f"{shown}; and {len(cells) - _CELLS} more" if len(cells) > _CELLS else shown


def _papers(results: Sequence[Outcome]) -> Table:
    rows: list[tuple[str, ...]] = []
    for paper in dict.fromkeys(o.claim.paper for o in results):
        agreeing = [o.agrees for o in results if o.claim.paper == paper]
        agree = sum(agreeing)
        rows.append((paper, str(len(agreeing)), str(agree), str(len(agreeing) - agree)))
    rows.append(("all", *(str(sum(int(row[i]) for row in rows)) for i in (1, 2, 3))))
    header = ("paper", "statements", "agree", "disagree")
    return Table("Statements that a table can confirm or refute", header, rows, frozenset({1, 2, 3}))
