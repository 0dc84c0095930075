# SPDX-License-Identifier: Apache-2.0
"""Quantities with units."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttouch.errors import BadInput
from firsttouch.records.catalogue import checks
from firsttouch.units import UNITS, format_bytes, number, parse, parse_bytes, signed_percent


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *(("4096", 4096), ("0", 0), ("5.1GB", 5_100_000_000), ("16 GiB", 16 * 2**30), (" 1.5  kB ", 1500)),
        *(("1e3 B", 1000), ("2TiB", 2**41), ("5.1G", 5_100_000_000), ("16 Gi", 16 * 2**30), ("512K", 512_000)),
        *(("512k", 512_000), ("4Ki", 4096)),
    ],
)
def test_sizes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text",
    [
        *("", "GB", "-1 GB", "5,1 GB", "5 gb", "5 Gb", "5 GB/s", "5 s", "nan B", "5 g", "5 GI", "inf B"),
        *("1 GB x", "1.GB", "."),
    ],
)
def test_what_is_no_size(text):
    with pytest.raises(BadInput, match=r"bytes: .*B, kB"):
        parse_bytes(text)


def test_each_unit_of_a_metric_is_a_unit():
    assert {unit for check in checks().values() for unit in [m.unit for m in check.metrics.values()]} - {
        "1"
    } <= UNITS.keys()


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        *(("1600 MT/s", "transfers per second", 1.6e9), ("5.2GT/s", "transfers per second", 5.2e9)),
        *(("20 ns", "seconds", 2e-8), ("2 h", "seconds", 7200), ("12.8 GB/s", "bytes per second", 12.8e9)),
        ("2.3 GHz", "hertz", 2.3e9),
    ],
)
def test_other_dimensions(text, dimension, value):
    assert parse(text, dimension) == pytest.approx(value)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        *((0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (16 * 2**30, "16 GiB")),
        *((999.6 * 2**20, "1000 MiB"), (1000 * 2**20, "1000 MiB"), (5000 * 2**40, "5000 TiB")),
    ],
)
def test_format_bytes(size, text):
    assert format_bytes(size) == text


@given(st.integers(0, 2**60))
def test_format_bytes_reads_back_within_its_digits(size):
    text = format_bytes(size)
    assert "e" not in text
    assert parse_bytes(text) == pytest.approx(size, rel=0.006)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((23.28, "23.3"), (31.04, "31.0"), (31.0, "31"), (99.96, "100"), (7.0, "7"), (9.996, "10.0")),
        *((1.5, "1.50"), (0.0123, "0.0123"), (12345.6, "12346"), (2e6, "2.00e+06"), (0.0004, "4.00e-04")),
        (0.0, "0"),
    ],
)
def test_values_have_three_digits_and_whole_ones_no_point(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("change", "text"),
    [(0.0991, "+9.9 %"), (-0.249, "-24.9 %"), (0.0, "0.0 %"), (-0.0004, "0.0 %"), (0.0004, "0.0 %")],
)
def test_changes_have_a_sign_and_one_decimal(change, text):
    assert signed_percent(change) == text
