# SPDX-License-Identifier: Apache-2.0
"""The order of hosts on the page of a fleet, and the words for changes."""

import pytest
from msgspec.structs import replace

from firsttouch.host.host_lists import natural
from firsttouch.judge.comparison import Comparison, Host, MetricChange
from firsttouch.records.cases import Case
from firsttouch.report.fleet import comparison


def case(metric="copy_bandwidth", better="higher", **parameters):
    return Case("s", "bandwidth", metric, parameters, "GB/s", better)


def change(word, size, low, high, *, better="higher", **parameters):
    return MetricChange(case(better=better, **parameters), 20, 10.0, 10 * (1 + size), size, low, high, (), word)


def test_hosts_are_sorted_as_people_count():
    hosts = ["", "7", "n1", "n1-2", "n9", "n10", "n10a", "x"]
    assert sorted({*hosts}, key=natural) == hosts


class TestChanges:
    def test_a_metric_is_told_by_its_worst_word_and_only_cases_of_that_word_give_the_size(self):
        some = [
            change("unchanged", 0.001, -0.002, 0.002, bank=0),
            change("worse", -0.10, -0.12, -0.08, bank=1),
            change("worse", -0.20, -0.22, -0.18, bank=2),
        ]
        table = comparison.short_table(some)
        assert table.texts == [("copy", "worse 2, unchanged 1 of 3 cases", "-20.0 % to -10.0 %", "")]
        assert table.cells[0][1].tone == "nowrap word-worse"

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
        result = Comparison((), 9, [host], (), ((), ()), ((), ()))
        example = "such as" if says.endswith("(better)") else "the worst is"
        assert f"; {example} n1: copy {says}." in comparison._unlike(result)

    def test_an_undecided_change_says_what_would_decide_it(self):
        undecided = replace(change("undecided", 0.05, -0.1, 0.2), needs="12 hosts", floor=6.604)
        (row,) = comparison.change_table([undecided]).texts
        assert (row[1], row[5]) == ("undecided: would have seen 660.4 %; needs 12 hosts", "-10.0 % to +20.0 %")
