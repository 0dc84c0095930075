# SPDX-License-Identifier: Apache-2.0
"""The page: claims, tables and figures of the papers, from the published tables alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import firsttouch
from firsttouch.report.model import Table
from firsttouch.report.paper import claims, langmead, lenis, sheets
from firsttouch.report.paper.claims import Outcome

#: What :func:`build` writes.
FILES = ("index.html", "claims.json")
#: Cells that a claim's row on the page lists; claims.json has all of them.
_CELLS = 4


def outcomes(tables: Path) -> tuple[sheets.Sheets, list[Outcome]]:
    """Return the published tables in the folder *tables*, and what came of the claims about them."""
    known = sheets.read(tables)
    return known, claims.judge(claims.load(), known)


def document(found: Sequence[Outcome]) -> dict[str, Any]:
    """Return claims.json: every claim with its place, whether it agrees, what was computed, from which cells."""
    return {
        "document": "firsttouch paper claims",
        "firsttouch": firsttouch.__version__,
        "claims": len(found),
        "agree": sum(o.agrees for o in found),
        "disagree": sum(not o.agrees for o in found),
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
            for o in found
        ],
    }


def build(tables: Path) -> tuple[dict[str, str], list[Outcome]]:
    """Return the text of each of FILES, and the outcomes of the claims.

    The same tables give the same bytes. Raises BadInput naming the file and line of a table that is wrong.
    """
    from firsttouch.report import pages  # noqa: PLC0415 - templates only where a page is written
    from firsttouch.report.paper import figures  # noqa: PLC0415 - imports matplotlib

    known, found = outcomes(tables)
    facts = {
        "version": firsttouch.__version__,
        "claims": found,
        "disagreeing": _by_paper("disagree", [o for o in found if not o.agrees]),
        "agreeing": _by_paper("agree", [o for o in found if o.agrees]),
        "papers": _papers(found),
        "sections": [
            ("lenis", "Lenis and Senar 2017, Lenis 2018", figures.figures(known), lenis.tables(known)),
            ("langmead", "Langmead et al. 2018", figures.peak_figures(known), langmead.tables(known)),
        ],
        "scenarios": lenis.scenarios(known),
    }
    text = json.dumps(document(found), indent=1, sort_keys=True) + "\n"
    return {"index.html": pages.html(facts, "paper.html.j2"), "claims.json": text}, found


def _by_paper(verb: str, found: Sequence[Outcome]) -> list[Table]:
    header = ("where", "what it says", "what the tables say", "cells")
    grouped: dict[str, list[tuple[str, ...]]] = {}
    for o in found:
        says = o.claim.says + (f" [{o.claim.note}]" if o.claim.note else "")
        grouped.setdefault(o.claim.paper, []).append((o.claim.where, says, o.found, _listed(o.cells)))
    return [
        Table(f"{paper}: statements that {verb} with its tables ({len(rows)})", header, rows)
        for paper, rows in grouped.items()
    ]


def _listed(cells: Sequence[str]) -> str:
    shown = "; ".join(cells[:_CELLS])
    return f"{shown}; and {len(cells) - _CELLS} more" if len(cells) > _CELLS else shown


def _papers(found: Sequence[Outcome]) -> Table:
    rows: list[tuple[str, ...]] = []
    for paper in dict.fromkeys(o.claim.paper for o in found):
        mine = [o for o in found if o.claim.paper == paper]
        agree = sum(o.agrees for o in mine)
        rows.append((paper, str(len(mine)), str(agree), str(len(mine) - agree)))
    rows.append(("all", *(str(sum(int(row[i]) for row in rows)) for i in (1, 2, 3))))
    header = ("paper", "statements", "agree", "disagree")
    return Table("Statements that a table can confirm or refute", header, rows, frozenset({1, 2, 3}))
