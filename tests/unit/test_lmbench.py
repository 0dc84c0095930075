# SPDX-License-Identifier: Apache-2.0
"""lat_mem_rd: how it is started, and that only a whole, sane curve is a result."""

import pytest

from firsttouch.benchmarks import lmbench
from firsttouch.benchmarks.lmbench import MIB, argv, largest_bytes, parse
from firsttouch.errors import Missing, RunFailed


@pytest.fixture
def text(golden):
    return golden("lat_mem_rd_random.txt")


def test_argv(stand_in):
    program = str(stand_in("lat_mem_rd", "exit 0"))
    assert argv(largest_bytes=64 * MIB, random=True) == [program, "-W", "0", "-N", "1", "-t", "64", "256"]
    assert argv(largest_bytes=MIB // 2, random=False) == [program, "-W", "0", "-N", "1", "1", "256"]


def test_it_is_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(lmbench, "Path", lambda _: tmp_path)
    with pytest.raises(Missing, match="non-free"):
        lmbench.program()


@pytest.mark.parametrize(
    ("cache", "bank", "size"),
    [
        (0, 16 << 30, 64),
        (6 * MIB, 16 << 30, 64),
        (32 * MIB, 16 << 30, 128),
        (37486592, 7476568064, 128),
        (256 * MIB, 2 << 30, 512),
        (32 * MIB, 256 * MIB, 64),
        (32 * MIB, 1000, 1),
    ],
)
def test_the_last_size_is_past_the_cache_and_within_the_bank(cache, bank, size):
    assert largest_bytes(cache, bank) == size * MIB


def edited(text, line, new):
    lines = text.splitlines()
    lines[line] = new(lines[line])
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "value", ["0.000", "-1.000", "nan", "inf", "", "x", "1e3", "1.0.0", "123456.789", "0.010", "12.34", "12.3456"]
)
@pytest.mark.parametrize("line", [1, 12, -1])
def test_a_latency_that_is_none(text, value, line):
    broken = edited(text.strip(), line, lambda old: f"{old.split()[0]} {value}")
    with pytest.raises(RunFailed, match="lat_mem_rd"):
        parse(broken, largest_bytes=64 * MIB)


@pytest.mark.parametrize("line", [1, 2, 20, -1])
def test_sizes_that_do_not_ascend(text, line):
    for size in ("0.00000", "0.00049", "99.00000", "-1.00000"):
        broken = edited(text.strip(), line, lambda old, size=size: f"{size} {old.split()[1]}")
        if broken != text.strip() + "\n":
            with pytest.raises(RunFailed, match="lat_mem_rd"):
                parse(broken, largest_bytes=64 * MIB)


@pytest.mark.parametrize(
    "broken",
    [
        *("", "\n", "lat_mem_rd: out of memory\n", '"stride=256\n', '"stride=\n0.00049 1.000\n64.00000 1.000\n'),
        *("0.00049 1.000\n64.00000 1.000\n", '"stride=256\n64.00000 1.000\n'),
        '"stride=256\n0.00049 1.000\n64.00000 2.000\n0.00098 1.000\n',
        '"stride=256\n0.00049 1.000\nKilled\n64.00000 2.000\n',
        '"stride=256\n0.00049 1.000\n64.00000 2.000\n64.00000 3.000\n',
    ],
)
def test_what_is_no_curve(broken):
    with pytest.raises(RunFailed, match="lat_mem_rd"):
        parse(broken, largest_bytes=64 * MIB)


def test_a_curve_that_ends_elsewhere(text):
    with pytest.raises(RunFailed, match=r"67108864.* 134217728 bytes"):
        parse(text, largest_bytes=128 * MIB)
