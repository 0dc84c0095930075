# SPDX-License-Identifier: Apache-2.0
"""The benchmark of memory options: its hash join against a join in Python."""

import re
import subprocess

import pytest

from firsttouch import paths

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


def test_a_wrong_call_of_the_hash_join(hash_join):
    for words in ([], ["heap", "1", "1", "1"], ["table", "0", "1", "1"], ["rows", "1", "1", "257"]):
        done = subprocess.run([hash_join, *words], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.split(":")[0]) == (2, "usage")
