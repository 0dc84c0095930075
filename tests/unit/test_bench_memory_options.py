# SPDX-License-Identifier: Apache-2.0
"""The benchmark of memory options: its hash join against a join in Python, and a short run of it."""

import re
import subprocess
import sys

import memory_options as bench
import pytest
import replay

from firsttouch import paths
from firsttouch.scenarios import memory_options

BENCH = paths.ROOT / "bench"
LIMIT = 1 << 64


@pytest.fixture(scope="module")
def hash_join(tmp_path_factory):
    program = tmp_path_factory.mktemp("hash_join") / "hash_join"
    flags = ["-O2", "-std=c11", "-Wall", "-Wextra", "-Werror", "-pthread"]
    subprocess.run(["cc", *flags, BENCH / "hash_join.c", "-o", program], check=True)
    return program


def mix(x):
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % LIMIT
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % LIMIT
    return x ^ (x >> 31)


@pytest.mark.parametrize("way", ["table", "rows"])
@pytest.mark.parametrize("threads", ["1", "3"])
def test_the_hash_join_looks_every_key_up(hash_join, way, threads):
    argv = [hash_join, way, "1", "5000", threads]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    rows = int(re.match(r"(\d+) rows, 5000 lookups", done.stdout)[1])
    numbers = [mix(LIMIT - 1 - i) % (2 * rows) for i in range(5000)]
    assert f"checksum {sum(n for n in numbers if n < rows):016x}\n" in done.stdout


def test_every_option_runs_beside_a_default_run(tmp_path):
    order = []

    def launch(option, output):
        order.append(option)
        output.write_text("b\na\n" if len(order) % 2 else "a\nb\n")
        number = float(len(order))
        return bench.Run(number, number, number, 0, 1, "", "not obtained" if option == "+b" else "")

    series = bench.Series("x", launch, tmp_path)
    series.measure(2, lambda _: ["+a", "+b", "+c"])
    first, second = ["+a", "+b", "", "+c", ""], ["+c", "+b", "", "+a", ""]
    assert order == ["", "", *first, *second]
    for option, pairs in series.pairs.items():
        for default, run in pairs:
            assert (order[int(run.user) - 1], order[int(default.user) - 1]) == (option, "")
            assert abs(run.user - default.user) == 1
    assert {option: bench.state(pairs) for option, pairs in series.pairs.items()} == {
        "+a": "verified",
        "+b": "2 of 2 not obtained",
        "+c": "verified",
    }


def test_a_short_run(monkeypatch, tmp_path, capsys):
    if reason := memory_options.refusal(("thp",)):
        pytest.skip(reason)
    name, times = "hash join, small blocks", tmp_path / "times.csv"
    monkeypatch.setitem(bench.JOINS, name, ("rows", "32", "500000", "{threads}"))
    words = ["--effort", "quick", "--program", name, "--option", "+thp", "--share-host", "--times", str(times)]
    monkeypatch.setattr(sys, "argv", ["memory_options.py", *words])
    bench.main()
    printed = capsys.readouterr().out
    assert re.search(r"^\+thp +\d.* MiB of .* MiB +verified$", printed, re.MULTILINE), printed
    (cell,) = replay.read(times)
    assert [row.options for row in cell.rows] == [(), ("thp",)]
