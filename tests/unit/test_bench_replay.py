# SPDX-License-Identifier: Apache-2.0
"""Advice from stored times: within its budget, near the best, independent of names and units."""

import math
import runpy
import sys
from pathlib import Path

import advise
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from replay import COLUMNS, TIMES, Cell, read, replay

from firsttouch.errors import BadInput

CELLS = read(TIMES)
BUDGET = 0.03


def test_the_published_cells_are_those_of_64_threads():
    assert len(CELLS) == 16
    assert {r.instances * r.threads for c in CELLS for r in c.rows} == {64}
    assert {len(c.rows) for c in CELLS} == {6, 10}
    assert all(c.default is not None for c in CELLS)


def test_choices_are_near_the_best_and_within_the_budget():
    replays = [replay(cell, seed, BUDGET) for cell in CELLS for seed in range(4)]
    assert all(0 < f.spent <= BUDGET for f in replays)
    logs = [math.log(f.row.seconds / f.best.seconds) for f in replays]
    # These are 64 runs of 1600; bench/advise.py's table has the targets for all of them.
    assert math.exp(sum(logs) / len(logs)) <= 1.01


def test_advice_does_no_harm_where_the_default_run_is_the_best():
    fastest = [min(r.seconds for r in cell.rows) for cell in CELLS]
    cells = [
        replace(c, rows=tuple(replace(r, seconds=0.98 * s if r is c.default else 100 * r.seconds) for r in c.rows))
        for c, s in zip(CELLS, [100 * s for s in fastest], strict=True)
    ]
    kept = [advise.advised(cell, 0.1, seed, BUDGET) is cell.default for cell in cells for seed in range(2)]
    assert sum(kept) >= 31


def chosen(cells, seed):
    return [
        (replay(c, seed, BUDGET).row.name, len(sum(replay(c, seed, BUDGET).outcome.trials, ()))) for c in cells
    ]


@settings(max_examples=8, deadline=None)
@given(st.permutations(range(3)), st.floats(1e-3, 1e3), st.integers(0, 10**6), st.sampled_from(CELLS))
def test_names_and_units_change_nothing(order, factor, seed, cell):
    names = [(cell.aligner, cell.system, cell.dataset)[i] for i in order]
    other = Cell(*names, tuple(replace(r, seconds=r.seconds * factor) for r in cell.rows))
    assert chosen([other], seed) == chosen([cell], seed)


def test_the_measured_options_are_found_within_the_budget():
    """On the times of real programs (tests/golden/README.md), the choice is nearly the best of all options."""
    cells = read(Path(__file__).parents[1] / "golden/options_times.csv")
    assert [len(cell.rows) for cell in cells] == [7, 7, 6]
    replays = [replay(cell, seed, BUDGET) for cell in cells for seed in range(20)]
    assert all(f.spent <= BUDGET for f in replays)
    ratios = [f.row.seconds / f.best.seconds for f in replays]
    assert sum(ratios) / len(ratios) <= 1.01
    assert max(ratios) <= 1.03
    # The default run is 12 to 59 % slower than the best options.
    assert all(cell.default.seconds / min(r.seconds for r in cell.rows) > 1.12 for cell in cells)


def test_options_are_a_suffix_of_the_policy(tmp_path):
    file = tmp_path / "t.csv"
    policies = ("original", "original+THP", "original+mimalloc+thp", "interleave")
    file.write_text("\n".join([HEAD, *(f"a,s,d,1,8,{p},{10 - i},1" for i, p in enumerate(policies))]) + "\n")
    (cell,) = read(file)
    names = {r.name: r.seconds for r in cell.rows}
    expected = {"default": 10, "default+thp": 9, "default+thp+mimalloc": 8, "interleave": 7}
    assert names == {f"1x8-{name}": seconds for name, seconds in expected.items()}
    assert cell.default.name == "1x8-default"
    file.write_text(file.read_text() + "a,s,d,1,8,original+thp,9,1\n")
    with pytest.raises(BadInput, match=r"1 x 8 original\+thp"):
        read(file)


def test_the_benchmark_prints_the_choice_in_each_cell(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["replay.py", "--seed", "5"])
    runpy.run_path(replay.__code__.co_filename, run_name="__main__")
    _, _, *lines = capsys.readouterr().out.splitlines()
    chosen = [replay(cell, 5, BUDGET) for cell in CELLS]
    assert [line.split()[:4] for line in lines] == [
        [c.cell.aligner, c.cell.system, c.cell.dataset, c.row.name] for c in chosen
    ]
    assert [float(line.split()[4]) for line in lines] == [pytest.approx(c.row.seconds, abs=0.005) for c in chosen]


HEAD = ",".join(COLUMNS)
GOOD = "a,s,d,1,8,original,10.5,1.0"


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", 1, "no column aligner"),
        (HEAD + "\n", 1, "no times below"),
        (f"{HEAD}\n{GOOD}\na,s,d,1,8\n", 3, "not 8 values"),
        (f"{HEAD}\n{GOOD.replace('10.5', '1e308')}\n", 2, "mean_s is '1e308': seconds above 0, from 1e-06 to"),
        (f"{HEAD}\n{GOOD.replace('1.0', '-1')}\n", 2, "error_pct is '-1': percent"),
        (f"{HEAD}\n{GOOD.replace(',1,8', ',0,8')}\n", 2, "instances is '0'"),
        (f"{HEAD}\n{GOOD.replace('original', '')}\n", 2, "policy is empty"),
        (f"{HEAD}\n{GOOD}\n\n{GOOD.replace('10.5', '11')}\n", 4, "a second time of 1 x 8 original for a, s, d"),
        (f"{HEAD}\n{GOOD.replace('original', 'original+thb')}\n", 2, "policy is 'original+thb': no memory option"),
        (f'{HEAD}\n"a,s,d,1\n', 2, "not CSV"),
    ],
)
def test_bad_files(tmp_path, text, line, reason):
    file = tmp_path / "t.csv"
    file.write_text(text)
    with pytest.raises(BadInput) as error:
        read(file)
    assert (error.value.file, error.value.line) == (file, line)
    assert reason in str(error.value)
