# SPDX-License-Identifier: Apache-2.0
"""The memory policies: those of the thesis, and files that are not whole."""

import pytest

from firsttouch import policies
from firsttouch.errors import BadInput

pytestmark = pytest.mark.unit

WHOLE = """\
[one]
title = "t"
whole = []
part = ["{bind}"]
mode = { whole = "default", part = "bind" }
pages = { whole = "anywhere", part = "inside" }
tolerance = 0.1
"""


@pytest.mark.parametrize(
    ("name", "whole", "part"),
    [
        ("original", (), ("--cpunodebind=1", "--membind=1,3")),
        ("localalloc", ("--localalloc",), ("--cpunodebind=1", "--localalloc")),
        ("interleave", ("--interleave=all",), ("--cpunodebind=1", "--interleave=1,3")),
    ],
)
def test_policies_of_the_thesis(name, whole, part):
    policy = policies.policy(name)
    assert policy.numactl("whole", bind="--cpunodebind=1", numa_nodes="1,3") == whole
    assert policy.numactl("part", bind="--cpunodebind=1", numa_nodes="1,3") == part


def test_their_order_and_an_unknown_one():
    assert list(policies.policies())[:3] == ["original", "localalloc", "interleave"]
    with pytest.raises(BadInput, match="no policy 'best': there are original, localalloc"):
        policies.policy("best")


def test_a_whole_file():
    assert policies.parse(WHOLE, "p.toml")["one"].part == ("{bind}",)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('title = "t"\n', ""),
        ("tolerance = 0.1", "tolerance = 0.1\nother = 1"),
        ('"inside"', '"somewhere"'),
        ('mode = { whole = "default", part', 'mode = { part2 = "default", part'),
        ("tolerance = 0.1", "tolerance = "),
        ("[one]", "one = 3\n[two]"),
        ('mode = { whole = "default", part = "bind" }', "mode = 3"),
        ('pages = { whole = "anywhere", part = "inside" }', 'pages = "inside"'),
        ("tolerance = 0.1", 'tolerance = "much"'),
        ("whole = []", 'whole = "--localalloc"'),
        ('"{bind}"', '"{binding}"'),
        ('"{bind}"', '"{bind"'),
    ],
)
def test_what_is_not_whole_is_refused_with_its_file(old, new):
    assert old in WHOLE
    with pytest.raises(BadInput, match=r"^p\.toml: "):
        policies.parse(WHOLE.replace(old, new, 1), "p.toml")
