# SPDX-License-Identifier: Apache-2.0
"""Sets of PUs in the notations of the kernel and of hwloc."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttouch.errors import BadInput
from firsttouch.host.cpusets import format_list, parse_hwloc, parse_list

SETS = st.frozensets(st.integers(0, 1100), max_size=70)


def hwloc(members):
    """Write a set as hwloc does: words of 32 bits, the highest first."""
    mask = sum(1 << m for m in members)
    words = []
    while mask or not words:
        words.append(f"0x{mask & 0xFFFFFFFF:08x}")
        mask >>= 32
    return ",".join(reversed(words))


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("", set()),
        ("\n", set()),
        ("0", {0}),
        ("0-3,8\n", {0, 1, 2, 3, 8}),
        ("7,1-2", {1, 2, 7}),
        ("5-5", {5}),
    ],
)
def test_kernel_lists(text, members):
    assert parse_list(text) == members


@pytest.mark.parametrize(
    "text", ["a", "-1", "1-", "-", "3-1", "1 2", "1;2", "0x3", "1-2-3", "1.5", "+1", "1_0", "²", "0-99999999999"]
)
def test_what_is_no_list(text):
    with pytest.raises(BadInput, match="is not a list of numbers"):
        parse_list(text)


@given(SETS)
def test_lists_there_and_back(members):
    text = format_list(members)
    assert parse_list(text) == members
    assert format_list(sorted(members, reverse=True)) == text


@pytest.mark.parametrize(
    ("members", "text"),
    [([], ""), ([3], "3"), ([1, 2], "1-2"), ([8, 0, 1, 2, 3, 3], "0-3,8"), ([0, 2, 4], "0,2,4")],
)
def test_format_list(members, text):
    assert format_list(members) == text


@given(SETS)
def test_bitmaps_there_and_back(members):
    assert parse_hwloc(hwloc(members)) == members


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("0x0", set()),
        ("0x0000010f", {0, 1, 2, 3, 8}),
        ("0x00000001,0x00000000", {32}),
        ("0x80000000,,0x00000001", {0, 95}),  # hwloc leaves empty words out
        ("0x1,,", {64}),
        ("0x1" + "," * 16384, {1 << 19}),  # of a host with as many PUs as the kernel can be built for, and more
    ],
)
def test_hwloc_bitmaps(text, members):
    assert parse_hwloc(text) == members


@pytest.mark.parametrize("text", ["0xf...f", "0-3", "x", "0x", "0xg", "-0x1", "0x1_0"])
def test_what_is_no_bitmap(text):
    with pytest.raises(BadInput, match="not an hwloc bitmap"):
        parse_hwloc(text)
