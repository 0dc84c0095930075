# SPDX-License-Identifier: Apache-2.0
"""The papers' tables built from the published values, cell by cell, and the papers' claims about them."""

from __future__ import annotations

import ast
import csv
import shutil
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttouch.errors import BadInput
from firsttouch.report.document import Table
from paper import __main__ as paper
from paper import claims, page, sheets
from paper.claims import Outcome
from paper.published_tables import Sheets
from study_files import study

TIMES = "lenis2017_execution_times.csv"
PEAKS = "langmead2018_peak_throughput.csv"
MAIN = "langmead2018_peak_tables.csv"


def read(folder: Path = paper.TABLES) -> Sheets:
    return sheets.read(folder, sheets.published())


@pytest.fixture(scope="module")
def published() -> Sheets:
    return read()


def built(name: str, published: Sheets) -> list[Table]:
    """Return the tables of a study with published values."""
    return [table for table, described in page.tables(study(name), published) if not described.planned]


@pytest.fixture(scope="module")
def judged(published: Sheets) -> dict[str, Outcome]:
    return {o.claim.id: o for o in claims.judge(claims.load(), published)}


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(paper.TABLES, tmp_path / "published"))


def rows(name: str) -> list[dict[str, str]]:
    with (paper.TABLES / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def cells(table: Table) -> dict[tuple[str, ...], str]:
    """Return the cells of a grouped table by the names of their row and the headings of their column."""
    above: list[list[str]] = [[] for _ in table.header]
    for group in table.groups:
        ends = list(accumulate(columns for _, columns in group))
        assert ends[-1] == len(table.header)
        for column, headings in enumerate(above):
            headings.append(next(name for (name, _), end in zip(group, ends, strict=True) if column < end))
    corner = min(table.numeric)
    return {
        (*row[:corner], *above[i], table.header[i]): row[i]
        for row in table.texts
        for i in range(corner, len(table.header))
    }


def titled(tables: list[Table], start: str) -> list[Table]:
    matching = [t for t in tables if t.caption.startswith(start)]
    assert matching, start
    return matching


def test_every_published_time_is_in_its_table(published: Sheets) -> None:
    tables = built("lenis2017", published)
    assert len(tables) == 12  # two systems of four tables of policies, and four tables of partitions
    seen = 0
    heads = {"amd-opteron": "AMD", "intel-xeon": "INTEL"}
    for row in rows(TIMES):
        system, policy = heads[row["system"]], row["policy"].capitalize()
        if row["table"].endswith("1"):
            key: tuple[str, ...] = (row["threads_per_instance"], system, row["dataset"], policy)
        else:
            key = (f"{row['instances']}Inst_{policy}", row["threads_per_instance"], system, row["dataset"])
        (table_cells,) = [
            c for t in titled(tables, f"Table {row['table']} ") if (*key, "Mean (s)") in (c := cells(t))
        ]
        assert float(table_cells[*key, "Mean (s)"]) == float(row["mean_s"])
        assert table_cells[*key, "Error (%)"] == ("" if not row["error_pct"] else f"{float(row['error_pct']):.2f}")
        seen += 2
    assert seen == 640
    assert seen == sum(bool(text) for t in tables for text in cells(t).values())


def test_every_published_peak_is_in_its_table(published: Sheets) -> None:
    tables = built("scaling2018", published)
    assert len(tables) == 4
    cells_by_table = {t.caption.split(".")[0]: cells(t) for t in tables}
    machines = {"skylake": "Skylake (96 threads)", "broadwell": "Broadwell (112 threads)"}
    peaks = [{**row, "table": "S2"} for row in rows(PEAKS)] + rows(MAIN)
    for row in peaks:
        machine = machines.get(row["system"], "KNL (272 threads)")
        key = (row["aligner"], row["configuration"], machine, row["reads"].capitalize())
        table = cells_by_table[f"Table {row['table'].removeprefix('T')}"]
        assert table[*key, "Th"] == row["threads_at_peak"]
        shown = table[*key, "Krd/s"].split(" (")[0].replace(",", "")
        assert float(shown) == float(row["peak_kreads_per_s"])
        if row["table"] == "S2":
            minutes = table[*key, "Whole human (min)"].replace(",", "")
            assert float(minutes) == float(row["whole_human_40x_min"])
    assert len(peaks) == 222 + 240


def test_scenarios_are_checked_against_memory(published: Sheets) -> None:
    tables = page.tables(study("lenis2017"), published)
    (table,) = [table for table, described in tables if described.planned]
    amd = {(row[0], row[3]): (row[4], row[5]) for row in table.texts}
    assert amd["BOWTIE2", "8Inst_Original"] == ("A2", "fits")
    assert amd["BWA-MEM", "8Inst_Interleave"] == ("no", "fits")
    assert amd["GEM", "4Inst_Original"] == ("no", "fits")
    assert amd["SNAP", "2Inst_Localalloc"] == ("D2", "fits")
    assert "one cached copy of the index file" in amd["SNAP", "4Inst_Original"][1]
    # Every scenario of table 2 fits both systems.
    run = [row for row in table.texts if row[4] != "no"]
    assert len(run) == 7 + 7 + 3 + 3
    assert all(row[5:] == ("fits", "fits") for row in run)


def test_claims_agree_and_disagree(judged: dict[str, Outcome]) -> None:
    agree = [o for o in judged.values() if o.agrees]
    assert len(judged) >= 100
    assert len(agree) >= 60
    assert len(judged) - len(agree) >= 30
    exact_ids = {"conclusion-bowtie2-5x", "mp-best-in-10-of-18", "l-striped-best-in-11", "table-4-is-in-s2"}
    assert {*exact_ids, "snap-two-instances-at-most"} <= {o.claim.id for o in agree}
    assert all(o.cells for o in judged.values() if getattr(o.claim.body, "cells", None) != {})


@pytest.mark.parametrize(
    ("claim", "actual", "cell"),
    [
        (
            "conclusion-gem-5x",
            "6.795x (paper: 5x)",
            "C2 gem, amd-opteron, NA12878, 2Inst_Interleave (2 x 32): 90.68",
        ),
        ("no-partitioned-run-beats-interleave", "true in 1 of 8 cases (paper: in none)", "90.68, against C1 gem"),
        ("thesis-hypertransport", "20.8 GB/s (paper: 20.6 GB/s)", "5.2"),
        ("spin-lock-26-hours", "18.35 h (paper: 26 h)", "1100.87"),
        ("gem-two-instances-at-most", "gem: up to 4 instances by memory", "gem: 15 GB"),
    ],
)
def test_known_disagreements(judged: dict[str, Outcome], claim: str, actual: str, cell: str) -> None:
    outcome = judged[claim]
    assert not outcome.agrees
    assert outcome.found.startswith(actual)
    assert any(cell in text for text in outcome.cells)


@pytest.mark.parametrize(
    ("change", "claim", "agrees"),
    [
        # With 190.68 s no partitioned run of GEM would be better than interleave alone (127.24 s).
        ((TIMES, "2,32,interleave,90.68", "2,32,interleave,190.68"), "no-partitioned-run-beats-interleave", True),
        # 616.17 / 123.2 = 5.0
        ((TIMES, "2,32,interleave,90.68", "2,32,interleave,123.2"), "gem-instances-interleave-5x", True),
        ((TIMES, "8,8,original,104.52", "8,8,original,204.52"), "conclusion-bowtie2-5x", False),
        (
            (MAIN, "T4,BWA-MEM,default,knl,paired,232,19.93", "T4,BWA-MEM,default,knl,paired,232,19.94"),
            "table-4-is-in-s2",
            False,
        ),
        (("lenis2018_aligners.csv", "gem,3.0,15.0", "gem,3.0,31.0"), "gem-two-instances-at-most", True),
    ],
)
def test_another_cell_gives_another_outcome(
    copied: Path, judged: dict[str, Outcome], change: tuple[str, str, str], claim: str, agrees: bool
) -> None:
    file, old, new = change
    text = (copied / file).read_text(encoding="utf-8")
    assert text.count(old) == 1
    (copied / file).write_text(text.replace(old, new), encoding="utf-8")
    (outcome,) = claims.judge([c for c in claims.load() if c.id == claim], read(copied))
    assert outcome.agrees is agrees
    assert judged[claim].agrees is not agrees


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("mean_s", "mean", ":1: no column mean_s"),
        ("620.37", "fast", ":2: column mean_s: 'fast' is not a number"),
        ("620.37", "", ":2: column mean_s is empty"),
        ("", "", ":322: A1 bowtie2, amd-opteron, NA12878, 1Inst_Original (1 x 8): line 2 has it already"),
        (None, "", ":1: no rows"),
    ],
)
def test_a_table_that_is_wrong_is_named_with_its_line(
    copied: Path, capsys: pytest.CaptureFixture[str], old: str | None, new: str, reason: str
) -> None:
    file = copied / TIMES
    head, first, *_ = lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    text = "".join(lines).replace(old, new, 1) if old else "".join([*lines, first]) if old == "" else head
    file.write_text(text, encoding="utf-8")
    out = copied.parent / "out"
    assert paper.main(["-o", str(out), "--tables", str(copied)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{TIMES}{reason}" in line
    assert not out.exists()


def test_a_folder_without_the_tables_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert paper.main(["-o", str(tmp_path / "out"), "--tables", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot be read" in line


CLAIM = """paper = "A paper"
[[claim]]
id = "one"
where = "section 1"
says = "Something."
kind = "compare"
sheet = "times"
select = { threads = 64 }
each = ["aligner"]
left = { take = "min" }
right = { take = "max" }
relation = "<"
expect = "all"
"""


def test_a_claim_is_read() -> None:
    (claim,) = claims.parse(CLAIM, "x.toml")
    assert (claim.id, claim.paper, claim.error("").line) == ("one", "A paper", 2)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('relation = "<"\n', "", "x.toml:2: key 'relation' is missing in claim[0]"),
        ('right = { take = "max" }\n', "", "x.toml:2: needs bound"),
        ('expect = "all"', 'expect = "all"\nverdict = "fine"', "x.toml:14: unknown key 'verdict'"),
        ('paper = "A paper"', "paper = A paper", "x.toml:1: not TOML"),
    ],
)
def test_a_claim_that_is_wrong_is_named_with_its_line(old: str, new: str, reason: str) -> None:
    assert old in CLAIM
    with pytest.raises(BadInput) as raised:
        claims.parse(CLAIM.replace(old, new), "x.toml")
    assert reason in str(raised.value)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("threads = 64", "cores = 64", "there is no column 'cores'"),
        ("threads = 64", "threads = 65", "it matches no cells"),
        ('left = { take = "min" }', "left = {}", "both match, select one"),
        ('sheet = "times"', 'sheet = "times"\ncolumn = "policy"', "column policy holds no numbers"),
    ],
)
def test_a_claim_that_fits_no_cells_is_named_with_its_line(
    published: Sheets, old: str, new: str, reason: str
) -> None:
    with pytest.raises(BadInput) as raised:
        claims.judge(claims.parse(CLAIM.replace(old, new), "x.toml"), published)
    assert str(raised.value).startswith("x.toml:2: claim 'one': ")
    assert reason in str(raised.value)


NUMBERS = st.floats(-1e6, 1e6).map(lambda v: round(v, 3))
FORMULAS = st.recursive(
    st.one_of(NUMBERS.map(abs).map(str), st.sampled_from(["a", "b"])),
    lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from("+-*"), inner),
    max_leaves=8,
)


@given(FORMULAS, NUMBERS, NUMBERS)
def test_formulas_are_pythons_arithmetic(formula: str, a: float, b: float) -> None:
    expected = eval(compile(ast.parse(formula, mode="eval"), "formula", "eval"), {"a": a, "b": b})  # noqa: S307
    assert claims.evaluate(formula, {"a": a, "b": b}) == pytest.approx(expected, rel=1e-12, abs=1e-9)


@pytest.mark.parametrize("formula", ["open('x')", "a.real", "c + 1", "a **", "a ** 2", "1 / 0", "'a'", "[a]", ""])
def test_a_formula_is_nothing_but_arithmetic(formula: str) -> None:
    with pytest.raises(BadInput, match="formula"):
        claims.evaluate(formula, {"a": 1.0})


# ----------------------------------------------------------------------
# A further study with published values
