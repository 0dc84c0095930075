# SPDX-License-Identifier: Apache-2.0
"""The papers' page: complete, well-formed, self-contained, and reproducible."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from factories.drawings import local, tree
from firsttouch.report.document import Cell
from firsttouch.units import percent
from paper.published_tables import pivot


@pytest.fixture(scope="module")
def page(papers: Path) -> str:
    return (papers / "index.html").read_text(encoding="utf-8")


def test_the_folder_holds_the_page_and_the_claims(papers: Path, page: str) -> None:
    assert {f.name for f in papers.iterdir()} == {"index.html", "claims.json"}
    document = json.loads((papers / "claims.json").read_text(encoding="utf-8"))
    text = "".join(tree(page).itertext())
    for outcome in document["outcomes"]:
        assert outcome["says"].split(" ")[-1] in text
    assert f"{document['agree']} statements that agree" in text
    assert len(page) < 15e6


def test_every_table_of_the_papers_is_there(page: str) -> None:
    captions = ["".join(e.itertext()) for e in tree(page).iter() if local(e) == "caption"]
    article = ["A1", "A2", "B1", "B2", "C1", "C2", "D1", "D2"]
    thesis = ["A3", "A4", "B5", "B6", "C7", "C8", "D9", "D10"]
    for number, thesis_number in zip(article, thesis, strict=True):
        assert any(c.startswith(f"Table {number} (thesis: {thesis_number}).") for c in captions), number
    for start in ("Table 2 (thesis: 5.2)", "Table 2. ", "Table 3. ", "Table 4. ", "Table S2. "):
        assert any(c.startswith(start) for c in captions), start


def test_every_figure_of_the_papers_is_there(page: str) -> None:
    figures = {e.get("id"): e for e in tree(page).iter() if local(e) == "figure"}
    wanted = [f"lenis2017-figure-{place}" for place in range(4, 13)] + [
        f"scaling2018-figure-{p}" for p in ("3", "4", "5", "s1", "s2", "s4")
    ]
    assert list(figures) == wanted
    for name, figure in figures.items():
        drawings = [e for e in figure.iter() if local(e) == "svg"]
        assert len(drawings) == (4 if str(name).startswith("lenis2017") else 9)
        words = "".join(figure.itertext())
        assert "How to read it" in words
        assert ("published as numbers" in words) == str(name).startswith("scaling2018")
        for drawing in drawings:
            assert drawing.get("role") == "img"
            texts = {local(e): e.text for e in drawing if local(e) in {"title", "desc"}}
            assert all(texts[part] for part in ("title", "desc"))


def test_a_pivot_has_its_headings_above_their_columns() -> None:
    table = pivot(
        "caption",
        corner=("row",),
        rows=[("1",), ("2",)],
        columns=[("A", "x"), ("A", "y"), ("B", "x")],
        cells={(("1",), ("A", "y")): (5, 6), (("2",), ("B", "x")): (7, Cell(0.08, percent))},
        heads=("v", "e"),
    )
    assert table.groups == ((("", 1), ("A", 4), ("B", 2)), (("", 1), ("x", 2), ("y", 2), ("x", 2)))
    assert table.header == ("row", "v", "e", "v", "e", "v", "e")
    assert table.texts == [("1", "", "", "5", "6", "", ""), ("2", "", "", "", "", "7", "8.0 %")]
    # A column is one of numbers if it has any.
    assert table.numeric == frozenset({3, 4, 5, 6})
