# SPDX-License-Identifier: Apache-2.0
"""The order of hosts on the page of a fleet, and the words for changes."""

import xml.etree.ElementTree as ET

import pytest

from factories.drawings import extent
from firsttouch.judge.comparison import Change, Comparison, Host
from firsttouch.judge.verdict import natural
from firsttouch.records.cases import Case
from firsttouch.report.fleet import comparison


def case(metric="copy_bandwidth", better="higher", **parameters):
    return Case("s", "bandwidth", metric, parameters, "GB/s", better)


def change(word, size, low, high, *, p=1e-9, better="higher", **parameters):
    return Change(case(better=better, **parameters), 20, 10.0, 10 * (1 + size), size, low, high, p, (), word)


def test_hosts_are_sorted_as_people_count():
    hosts = ["", "7", "n1", "n1-2", "n9", "n10", "n10a", "x"]
    assert sorted({*hosts}, key=natural) == hosts


class TestChanges:
    def test_a_metric_is_told_by_its_worst_word_and_only_cases_of_that_word_give_the_size(self):
        some = [
            change("unchanged", 0.001, -0.002, 0.002, p=1.0, bank=0),
            change("worse", -0.10, -0.12, -0.08, p=1e-4, bank=1),
            change("worse", -0.20, -0.22, -0.18, p=1e-9, bank=2),
        ]
        table = comparison.short_table(some)
        assert table.texts == [
            (
                "copy",
                "worse 2, unchanged 1 of 3 cases",
                "-20.0 % to -10.0 %",
                "p at most 0.0001",
            )
        ]
        assert table.cells[0][1].tone == "nowrap word-worse"

    @pytest.mark.parametrize(
        ("better", "size", "word", "right"),
        [
            ("higher", 0.1, "better", True),
            ("higher", -0.1, "worse", False),
            ("lower", 0.1, "worse", False),
            ("lower", -0.1, "better", True),
            ("neither", 0.1, "changed", True),
        ],
    )
    def test_a_bar_goes_to_the_right_for_what_is_better(self, better, size, word, right):
        low, high = sorted((0.8 * size, 1.2 * size))
        (row,) = comparison.change_table([change(word, size, low, high, better=better)]).cells
        assert row[4].value == size
        bar = ET.fromstring(row[1].drawing)  # noqa: S314
        axis = next(e for e in bar if e.tag == "path")
        parts = {e.get("class"): e for e in bar if e.get("class")}
        spans = [extent(e) for e in (axis, parts["size"], parts["interval"])]
        ((middle, *_), (at_left, _, at_right, _), (left, _, end, _)) = spans
        at = (at_left + at_right) / 2
        assert (at > middle) == right
        assert left < at < end
        assert 0 < left < end < 2 * middle

    @pytest.mark.parametrize(
        ("better", "size", "says"),
        [
            ("higher", 0.0991, "+9.9 % (better)"),
            ("lower", 0.0451, "+4.5 % (worse)"),
            ("lower", -0.0451, "-4.5 % (better)"),
            ("neither", 0.05, "+5.0 %"),
        ],
    )
    def test_a_hosts_change_says_whether_it_is_for_the_better(self, better, size, says):
        host = Host("n1", [(case(better=better), size)], (), ())
        ((name, _, worst, *_),) = comparison.host_table([host]).texts
        assert (name, worst) == ("n1", f"copy {says}")
        result = Comparison((), 9, [host], (), (), (), ())
        example = "such as" if says.endswith("(better)") else "the worst is"
        assert f"; {example} n1: copy {says}." in comparison._unlike(result)

    def test_too_few_hosts_have_a_row_too(self):
        (row,) = comparison.change_table([change("undecided", 0.5, None, None, p=0.5)]).texts
        assert row[5] == "too few hosts"
        assert comparison.short_table([change("undecided", 0.5, None, None, p=0.5)]).texts[0][3] == ""
        (nothing,) = comparison.change_table([change("unchanged", 0.0, 0.0, 0.0, p=1.0)]).cells
        assert "nan" not in nothing[1].drawing
