# SPDX-License-Identifier: Apache-2.0
"""Levels learnt from a fleet, how certain verdicts by them are, and the system file that stores them."""

import datetime
import json
import random
import re
import statistics
from typing import ClassVar

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from test_verdict import LIMITS, document_of, rates, system_of

from factories.fleet_records import learn
from firsttouch.judge import baseline, fleet_level, samples_table, sprt
from firsttouch.judge.fleet_level import divided
from firsttouch.judge.judging import judge, judged, undecided, undecided_cases
from firsttouch.judge.sprt import Groups
from firsttouch.judge.statistics import beyond_chance
from firsttouch.judge.verdict import ORDER
from firsttouch.records.schema import append
from firsttouch.systems.definition import Undescribed, load


@pytest.fixture(autouse=True)
def systems(tmp_path, monkeypatch):
    """Lets commands find the systems in the folder of the test."""
    monkeypatch.setenv("FIRSTTOUCH_SYSTEMS", str(tmp_path))


def repetitions(hosts=40, count=4, error=0.01, spread=0.0, seed=1, **levels):
    """Return the repetitions of each host; *levels* gives the level of some hosts (n3=0.9), others have 1."""
    rng = random.Random(seed)  # noqa: S311
    own = {f"n{i}": levels.get(f"n{i}", 1 + rng.gauss(0, spread)) for i in range(hosts)}
    return {host: [100 * level * (1 + rng.gauss(0, error)) for _ in range(count)] for host, level in own.items()}


def weight(losses, limit, error):
    """Return the evidence of some repetitions."""
    return sprt.weights(np.array(losses), limit, error).sum()


def baseline_of(records, system):
    """Return the references that *records* teach about *system*."""
    return baseline.learnt(samples_table.of_records(records), system)


class TestLearn:
    def test_bad_hosts_are_left_out_and_named_up_to_almost_half_of_all(self):
        bad = {f"n{i}": 0.7 for i in range(16)}
        level = learn(repetitions(**bad), "higher")
        assert set(level.outliers) == set(bad)
        assert level.value == pytest.approx(100, rel=0.005)
        assert level.outliers["n3"] == pytest.approx(-0.3, abs=0.02)
        assert level.hosts == 24

    def test_a_small_difference_between_equal_hosts_is_no_outlier(self):
        assert learn({f"n{i}": [125.7 + (i == 3) / 10] for i in range(9)}, "neither").outliers == {}

    def test_error_is_of_a_repetition_and_spread_of_hosts(self):
        alike = learn(repetitions(error=0.02, count=6), "higher")
        # What is surely chance is no difference between hosts, and what may be one is counted.
        assert alike.spread < 0.02 / 6**0.5
        assert 0.01 < alike.error < 0.04
        unlike = learn(repetitions(hosts=100, error=0.002, spread=0.02), "higher")
        assert 0.01 < unlike.spread < 0.03
        # The spread among good hosts fails none of them.
        assert unlike.limit > statistics.NormalDist().inv_cdf(1 - fleet_level.TAIL) * unlike.spread > 0.025
        assert alike.limit == pytest.approx(0.025)

    def test_noise_asks_for_more_repetitions_and_they_are_enough(self):
        few = learn(repetitions(error=0.1, count=3), "higher")
        assert few.more_repetitions > 0
        assert learn(repetitions(error=0.1, count=3 + 2 * few.more_repetitions), "higher").more_repetitions == 0
        assert learn(repetitions(error=0.005, count=3), "higher").more_repetitions == 0

    @pytest.mark.parametrize("wrong", [{}, {"n1": [1.0]}, {f"n{i}": [] for i in range(9)}])
    def test_too_few_hosts_are_no_fleet(self, wrong):
        assert learn(wrong, "higher") is None

    def test_a_value_of_zero_is_not_learnt(self):
        assert learn({f"n{i}": [float(i)] for i in range(9)}, "higher") is None

    @settings(max_examples=20, deadline=None)
    @given(st.dictionaries(st.text(max_size=3), st.lists(st.floats(1e-3, 1e6), max_size=4), max_size=12))
    def test_anything_is_learnt_or_not_without_an_error(self, values_by_host):
        level = learn(values_by_host, "neither")
        if level is not None:
            values = [v for host_values in values_by_host.values() for v in host_values]
            assert min(values) <= level.value * 1.0001
            assert level.value <= max(values) * 1.0001
            assert level.limit > 0 < level.error
            assert level.hosts + len(level.outliers) == sum(
                bool(host_values) for host_values in values_by_host.values()
            )


class TestSure:
    def test_one_repetition_never_fails_a_host(self):
        for count in range(1, sprt.FEWEST_TO_FAIL):
            assert weight([0.99] * count, 0.025, 0.001) < sprt.FAIL_AT
        assert weight([0.99] * sprt.FEWEST_TO_FAIL, 0.025, 0.001) >= sprt.FAIL_AT
        # One good repetition is enough if repetitions hardly differ.
        assert weight([0.0], 0.025, 0.005) <= sprt.PASS_AT

    @settings(deadline=None)
    @given(st.lists(st.floats(-0.5, 0.9), min_size=1), st.floats(0.005, 0.2), st.floats(0.001, 0.3))
    def test_more_loss_is_more_evidence(self, losses, limit, error):
        worse = weight([loss + 0.01 for loss in losses], limit, error)
        assert worse >= weight(losses, limit, error)
        assert 0.5 <= sprt.certainty(worse) <= 1

    def test_disturbed_repetitions_delay_the_verdict_but_do_not_falsify_it(self):
        rng = random.Random(2)  # noqa: S311
        calm = [rng.gauss(0, 0.02) for _ in range(500)]
        disturbed = [loss + (0.4 if rng.random() < 0.1 else 0) for loss in calm]
        middle = sum(disturbed) / 500
        plain = sprt.fitted(calm, 0.02, 0.05)
        careful = sprt.fitted([loss - middle for loss in disturbed], 0.02, 0.05)
        assert careful > plain == pytest.approx(0.02, rel=0.5)
        alarms = 0
        for _ in range(300):
            evidence = 0.0
            while sprt.PASS_AT < evidence < sprt.FAIL_AT:
                loss = rng.gauss(0, 0.02) + (0.4 if rng.random() < 0.1 else 0) - middle
                evidence += weight([loss], 0.025, careful)
            alarms += evidence >= sprt.FAIL_AT
        assert alarms == 0


def fleet(hosts=20, count=5, **levels):
    """Return the records of a fleet."""
    values_by_host = repetitions(hosts, count, **levels)
    return [r for host, values in values_by_host.items() for r in rates(*values, host=host)]


class TestFleet:
    def test_a_slow_host_fails_by_the_fleet_without_any_reference(self, tmp_path):
        system = system_of(tmp_path)
        verdicts = {v.host: v for v in judge(fleet(n7=0.95), system)}
        assert verdicts.pop("n7").verdict == "fail"
        assert {v.verdict for v in verdicts.values()} == {"pass"}

    @pytest.mark.parametrize(
        ("values", "word"),
        [
            ([80.0, *[100.0] * 11], "pass"),
            ([80.0, 100.0] * 6, "undecided"),
            ([80.0, 100.0] * 5 + [80.0] * 2, "undecided"),
        ],
    )
    def test_a_host_that_is_slow_in_half_of_its_repetitions_does_not_pass(self, tmp_path, values, word):
        """Good repetitions weigh more than as many bad ones, but the median lies outside of the limit."""
        records = [r for r in fleet(count=12) if r.host != "n7"] + rates(*values, host="n7")
        verdicts = {v.host: v.verdict for v in judge(records, system_of(tmp_path))}
        assert verdicts.pop("n7") == word
        assert set(verdicts.values()) == {"pass"}

    def test_a_slow_host_is_undecided_after_one_repetition(self, tmp_path):
        verdicts = {v.host: v for v in judge(fleet(count=1, n7=0.9), system_of(tmp_path))}
        assert verdicts.pop("n7").verdict == "undecided"
        assert {v.verdict for v in verdicts.values()} == {"pass"}
        assert verdicts["n1"].findings[0].to_dict()["certainty"] > 0.9

    def test_faster_than_the_fleet_is_no_fault(self, tmp_path):
        verdicts = {v.host: v.verdict for v in judge(fleet(n7=1.2), system_of(tmp_path))}
        assert set(verdicts.values()) == {"pass"}

    def test_a_missing_value_and_invalid_ones_do_not_touch_others(self, tmp_path):
        records = [r for r in fleet(n7=0.9) if r.host != "n3"]
        records += rates(10.0, host="n3", status="invalid", reason="pages elsewhere")
        verdicts = {v.host: v.verdict for v in judge(records, system_of(tmp_path))}
        assert (verdicts.pop("n7"), verdicts.pop("n3")) == ("fail", "invalid")
        assert set(verdicts.values()) == {"pass"}

    def test_the_worse_of_reference_and_fleet_counts(self, tmp_path):
        entry = {"check": "bandwidth", "metric": "copy_bandwidth", "value": "60 GB/s", "source": "order"}
        system = system_of(tmp_path, {**entry, "tolerance": LIMITS["higher"]})
        verdicts = {v.host: v for v in judge(fleet(n7=0.9), system)}
        assert verdicts["n7"].verdict == "fail"
        assert verdicts["n7"].evidence[0].startswith("possible cause: slower memory on all NUMA nodes")
        assert "below the fleet" in verdicts["n7"].evidence[1]

    def test_a_learnt_reference_says_when_to_measure_again(self, tmp_path):
        entry = {"check": "bandwidth", "metric": "copy_bandwidth", "value": "100 GB/s", "source": "fleet"}
        system = system_of(tmp_path, {**entry, "tolerance": {"lower": "-2.5 %"}, "error": "0.5 %"})
        assert undecided(rates(94.0), system)
        assert not undecided(rates(94.0), system, 1)
        assert undecided(rates(94.0, 94.0, 94.0), system)
        assert not undecided(rates(*[94.0] * 5), system)
        assert not undecided(rates(100.0), system)
        (verdict,) = judge(rates(94.0, 100.0, 100.0), system)
        assert verdict.verdict == "pass"


def campaigns(*weeks, host="n1", interval=datetime.timedelta(days=7), **fields):
    """Return the records of a host's campaigns; the values of a campaign are a minute apart."""
    begin = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    records = []
    for week, values in enumerate(weeks):
        for number, record in enumerate(rates(*values, host=host, **fields)):
            time = begin + week * interval + datetime.timedelta(minutes=number)
            records.append(replace(record, time=time.isoformat()))
    return records


def noisy(level, *, seed, error=0.01, count=6):
    rng = random.Random(seed)  # noqa: S311
    return [level * (1 + rng.gauss(0, error)) for _ in range(count)]


class TestNow:
    """A verdict is about the host as it is now, however long its history is."""

    @pytest.fixture
    def learnt(self, tmp_path):
        entry = {"check": "bandwidth", "metric": "copy_bandwidth", "value": "100 GB/s", "source": "fleet"}
        return system_of(tmp_path, {**entry, "tolerance": {"lower": "-2.5 %"}, "error": "1 %"})

    @pytest.fixture
    def ordered(self, tmp_path):
        entry = {"check": "bandwidth", "metric": "copy_bandwidth", "value": "100 GB/s", "source": "order"}
        return system_of(tmp_path, {**entry, "tolerance": LIMITS["higher"]})

    @staticmethod
    def words(system, *weeks, **fields):
        """Return the verdict after each campaign."""
        ends = range(1, len(weeks) + 1)
        return [judge(campaigns(*weeks[:end], **fields), system)[0].verdict for end in ends]

    @pytest.mark.parametrize(
        ("system", "interval"), [("learnt", datetime.timedelta(days=7)), ("ordered", datetime.timedelta(hours=3))]
    )
    def test_a_host_that_goes_bad_fails_at_once_and_one_that_is_repaired_passes_at_once(
        self, system, interval, request
    ):
        levels = [*[100] * 10, *[50] * 4, *[100] * 2, 50]
        weeks = [noisy(level, seed=i) for i, level in enumerate(levels)]
        expected = [*["pass"] * 10, *["fail"] * 4, *["pass"] * 2, "fail"]
        assert self.words(request.getfixturevalue(system), *weeks, interval=interval) == expected

    def test_the_evidence_is_from_the_newest_campaign(self, learnt):
        weeks = [noisy(level, seed=i) for i, level in enumerate([*[100] * 9, 50])]
        (verdict,) = judge(campaigns(*weeks), learnt)
        (finding,) = verdict.findings
        assert finding.values == tuple(weeks[-1])
        assert re.search(r"(49|50)\.?\d* GB/s, \d\d\.\d % below .* \(100\), 6 repetitions, certain", finding.why)

    def test_campaigns_of_one_repetition_add_up_until_the_host_changes(self, learnt, ordered):
        weeks = [[100.0]] * 10 + [[50.0]] * 6 + [[100.0]] * 2
        assert self.words(learnt, *weeks)[9:] == [
            "pass",
            "suspect",  # half of the speed is missing
            "suspect",  # the third session below its own level is certain
            *["fail"] * 4,
            *["pass"] * 2,
        ]
        assert self.words(ordered, *weeks)[9:] == ["pass", "suspect", *["fail"] * 5, *["pass"] * 2]

    def test_a_noisy_metric_needs_its_history_and_changes_later(self, tmp_path):
        entry = {"check": "bandwidth", "metric": "copy_bandwidth", "value": "100 GB/s", "source": "fleet"}
        system = system_of(tmp_path, {**entry, "tolerance": {"lower": "-2.5 %"}, "error": "5 %"})
        good = [noisy(100, seed=i, error=0.05, count=3) for i in range(20)]
        bad = [noisy(95, seed=100 + i, error=0.05, count=3) for i in range(40)]
        words = self.words(system, *good, *bad)
        assert words[4:20] == ["pass"] * 16
        assert words[-1] == "fail"
        assert words.index("fail") < 50

    def test_a_disturbed_repetition_changes_nothing(self, learnt):
        weeks = [[100.0, 100.2, 80.0, 99.9, 100.1, 100.0]] * 3
        assert self.words(learnt, *weeks) == ["pass"] * 3

    def test_a_job_that_was_requeued_after_hours_is_one_verdict(self, learnt):
        parts = [[50.0] * 3, [50.0] * 3]
        assert self.words(learnt, *parts, interval=datetime.timedelta(hours=5)) == ["suspect", "fail"]

    def test_good_hosts_are_not_blamed_however_long_their_history_is(self, learnt):
        rng = random.Random(4)  # noqa: S311
        records = [
            r
            for weeks in range(1, 61)
            for r in campaigns(*(noisy(100, seed=rng.random(), count=2) for _ in range(weeks)), host=f"n{weeks}")
        ]
        words = [verdict.verdict for verdict in judge(records, learnt)]
        assert set(words) <= {"pass", "undecided"}
        assert words.count("undecided") <= 2

    def test_a_fleet_is_compared_as_it_is_now(self, tmp_path):
        hosts = {f"n{i}": noisy(94 if i != 7 else 70, seed=i) for i in range(20)}
        records = [
            r for i, host in enumerate(hosts) for r in campaigns(noisy(100, seed=50 + i), hosts[host], host=host)
        ]
        verdicts = {v.host: v.verdict for v in judge(records, system_of(tmp_path))}
        assert verdicts.pop("n7") == "fail"
        assert set(verdicts.values()) == {"pass"}

    def test_invalid_newest_repetitions_make_the_verdict_invalid(self, ordered):
        records = [
            *campaigns([100.0] * 3),
            *rates(100.0, status="invalid", reason="pages elsewhere", day="2026-02-01"),
        ]
        (verdict,) = judge(records, ordered)
        assert (verdict.verdict, verdict.findings[0].why) == ("invalid", "pages elsewhere")

    def test_settings_are_the_latest_ones_in_any_order_of_records(self, ordered):
        look = {
            "check": "topology",
            "metric": "frequency_share",
            "unit": "1",
            "better": "neither",
            "parameters": {},
        }
        records = [*rates(0.5, **look), *rates(1.0, **look, day="2026-01-02"), *rates(1.0, 1.0, day="2026-01-02")]
        for some in (records, records[::-1]):
            assert samples_table.of_records(some).settings == {"n1": {"frequency_share": 1.0}}
            assert judge(some, ordered)[0].causes == ()


class TestBusy:
    """Repetitions measured while other processes kept the host busy never fail it."""

    LOOK: ClassVar = {
        "check": "topology",
        "metric": "busy_pus",
        "unit": "1",
        "better": "neither",
        "parameters": {},
    }

    def test_a_disturbed_slow_repetition_is_invalid_and_asks_for_another(self, tmp_path):
        records = [*fleet(n7=0.6), *rates(2.0, host="n7", **self.LOOK)]
        verdicts = {v.host: v for v in judge(records, system_of(tmp_path))}
        bad = verdicts.pop("n7")
        assert (bad.verdict, bad.more, bad.causes) == ("invalid", 1, ())
        assert "disturbed: other processes used 2 PUs" in bad.line()
        assert {v.verdict for v in verdicts.values()} == {"pass"}

    def test_a_disturbed_good_repetition_passes_and_a_later_one_decides(self, tmp_path):
        good = {
            v.host: v.verdict for v in judge([*fleet(), *rates(2.0, host="n7", **self.LOOK)], system_of(tmp_path))
        }
        assert set(good.values()) == {"pass"}
        again = [
            *rates(0.0, host="n7", **self.LOOK, day="2026-01-02"),
            *rates(*[60.0] * 5, host="n7", day="2026-01-02"),
        ]
        records = [*fleet(n7=0.6), *rates(2.0, host="n7", **self.LOOK), *again]
        assert {v.host: v.verdict for v in judge(records, system_of(tmp_path))}["n7"] == "fail"

    def test_busy_pus_of_another_day_do_not_count(self, tmp_path):
        records = [*fleet(n7=0.6), *rates(2.0, host="n7", **self.LOOK, day="2025-12-31")]
        assert {v.host: v.verdict for v in judge(records, system_of(tmp_path))}["n7"] == "fail"

    def test_a_busy_host_does_not_excuse_a_wrong_number_of_pus(self, tmp_path):
        pus = {"check": "topology", "metric": "pus", "unit": "1", "better": "neither", "parameters": {}}
        records = [r for i in range(6) for r in rates(64.0 - 8 * (i == 3), host=f"n{i}", **pus)]
        verdicts = {
            v.host: v.verdict for v in judge([*records, *rates(2.0, host="n3", **self.LOOK)], system_of(tmp_path))
        }
        assert verdicts.pop("n3") == "fail"
        assert set(verdicts.values()) == {"pass"}


class TestCounts:
    @pytest.mark.parametrize(("metric", "good", "bad"), [("numa_nodes", 8.0, 7.0), ("pus", 256.0, 255.0)])
    def test_one_repetition_is_enough_for_a_count(self, tmp_path, metric, good, bad):
        fields = {"check": "topology", "metric": metric, "unit": "1", "better": "neither", "parameters": {}}
        records = [r for i in range(8) for r in rates(bad if i == 2 else good, host=f"n{i}", **fields)]
        verdicts = {v.host: v for v in judge(records, system_of(tmp_path))}
        assert verdicts["n2"].verdict == "fail"
        assert f"{bad:g}, " in verdicts["n2"].reason()
        assert {v.verdict for h, v in verdicts.items() if h != "n2"} == {"pass"}

    def test_memory_has_a_tolerance(self, tmp_path):
        fields = {"check": "topology", "metric": "memory", "unit": "GiB", "better": "neither", "parameters": {}}
        sizes = {"n2": 112.0, "n4": 127.5}
        records = [r for i in range(8) for r in rates(sizes.get(f"n{i}", 128.0), host=f"n{i}", **fields)]
        verdicts = {v.host: v.verdict for v in judge(records, system_of(tmp_path))}
        assert verdicts.pop("n2") == "fail"
        assert set(verdicts.values()) == {"pass"}


class TestWords:
    def test_evidence_has_value_expectation_difference_and_repetitions(self, tmp_path):
        verdicts = {v.host: v for v in judge(fleet(count=6, n7=0.75), system_of(tmp_path))}
        value = r"7\d\.\d GB/s, 2\d\.\d % below the fleet \((100|99\.\d)\)"
        text = f"copy, NUMA 0 to bank 0: {value}, 6 repetitions, certain"
        assert re.fullmatch(f"fail: {text}", verdicts["n7"].evidence[1])
        assert re.fullmatch(f"{text}; possible cause: memory channel missing", verdicts["n7"].reason())
        assert verdicts["n1"].reason() == ""

    def test_the_stated_number_of_repetitions_decides(self, tmp_path):
        verdicts = {v.host: v for v in judge(fleet(count=1, n7=0.9), system_of(tmp_path))}
        assert verdicts["n7"].verdict == "undecided"
        assert f"1 repetition, needs about {verdicts['n7'].more} more repetitions" in verdicts["n7"].line()
        again = {v.host: v for v in judge(fleet(count=1 + verdicts["n7"].more, n7=0.9), system_of(tmp_path))}
        assert (again["n7"].verdict, again["n7"].more) == ("fail", 0)

    @pytest.mark.parametrize(
        ("metric", "level", "word"),
        [
            ("copy_bandwidth", 0.33, "suspect"),
            ("copy_bandwidth", 0.6, "undecided"),
            ("random_latency", 3.0, "suspect"),
        ],
    )
    def test_one_measurement_far_below_agreeing_siblings_is_suspect_and_measured_again(self, metric, level, word):
        unit, better = ("ns", "lower") if metric == "random_latency" else ("GB/s", "higher")
        check = "latency" if unit == "ns" else "bandwidth"
        noise = random.Random(1)  # noqa: S311
        records = [
            r
            for i in range(8)
            for bank in range(30)
            for r in rates(
                100 * (level if (i, bank) == (7, 3) else 1) * (1 + noise.uniform(-0.002, 0.002)),
                host=f"n{i}",
                **{"check": check, "metric": metric, "unit": unit, "better": better},
                parameters={"bank": bank, "pu_nodes": [0], "size_bytes": 1 << 28},
            )
        ]
        findings = judged(samples_table.of_records(records, "s"), Undescribed("s"))
        verdict = findings.of("n7")
        assert verdict.verdict == word
        (finding,) = [f for f in verdict.findings if f.verdict != "pass"]
        assert re.search(
            r", 1 repetition, (half of the speed is missing or more, )?needs about \d more", finding.why
        )
        assert ("half of the speed is missing or more" in finding.why) == (word == "suspect")
        assert [*undecided_cases(findings, "n7")] == [finding.identity.key]
        assert {findings.of(f"n{i}").verdict for i in range(7)} == {"pass"}

    def test_a_pass_that_rests_on_little_says_so(self, tmp_path):
        entry = {"check": "bandwidth", "metric": "copy_bandwidth", "value": "100 GB/s", "source": "order"}
        system = system_of(tmp_path, {**entry, "tolerance": LIMITS["higher"]})
        other = {"check": "contention", "metric": "total_bandwidth"}
        records = [*rates(100.0), *(r for i in range(3) for r in rates(1.0, **other, parameters={"bank": i}))]
        (verdict,) = judge(records, system)
        assert (
            "3 of 4 measured metrics were not judged; this pass is based on less than half of them"
            in verdict.line()
        )

    def test_without_a_system_its_references_are_not_said_to_be_missing(self, tmp_path):
        (verdict,) = judge(rates(1.0), Undescribed("s"))
        assert "has no reference" not in verdict.line()
        assert "--system s" in verdict.line()


class TestSuspect:
    """Evidence short of a fail, on hosts with many metrics."""

    def test_healthy_hosts_with_many_metrics_are_not_suspect(self, tmp_path):
        rng = np.random.default_rng(11)
        levels = 100 * (1 + 0.004 * rng.standard_normal((60, 50)))
        records = [
            record
            for bank, of_hosts in enumerate(levels)
            for host, level in enumerate(of_hosts)
            for record in rates(
                *(level * (1 + 0.02 * rng.standard_normal(3))),
                host=f"n{host}",
                parameters={"pu_nodes": [0], "bank": bank},
            )
        ]
        verdicts = judged(samples_table.of_records(records, "s"), system_of(tmp_path))
        words = [ORDER[verdicts.word(host)] for host in verdicts.hosts]
        assert set(words) == {"pass", "undecided"}

    @pytest.mark.parametrize(
        ("evidence", "beyond"),
        [
            ([4.7], [True]),
            ([4.5], [False]),
            ([9.2, *[-6.0] * 99], [False, *[False] * 99]),
            ([9.3, *[-6.0] * 99], [True, *[False] * 99]),
            ([8.6, 8.6, *[-6.0] * 98], [True, True, *[False] * 98]),
            ([np.nan, 4.7], [False, True]),
            ([], []),
        ],
    )
    def test_the_number_of_metrics_counts(self, evidence, beyond):
        weights, hosts = np.array(evidence, dtype=float), np.zeros(len(evidence), dtype=np.int64)
        assert beyond_chance(weights, hosts, sprt.CHANCE).tolist() == beyond
        # Another host changes nothing.
        both = beyond_chance(np.append(weights, [3.0, 30.0]), np.append(hosts, [1, 1]), sprt.CHANCE)
        assert both.tolist() == [*beyond, False, True]


def two_kinds(hosts=40, apart=0.09, **others):
    """Return the levels of a fleet in which every other host is slower."""
    return {f"n{i}": 1 - apart if i % 2 else 1.0 for i in range(hosts)} | others


class TestDivided:
    def test_two_groups_are_named_with_their_hosts_and_the_worse_one_is_suspect(self, tmp_path):
        records = fleet(hosts=40, **two_kinds(n7=0.7, n8=0.6))
        judgement = judged(samples_table.of_records(records), system_of(tmp_path))
        (groups,) = judgement.divided.values()
        assert set(groups.better) == {f"n{i}" for i in range(0, 40, 2)} - {"n8"}
        assert {"n1", "n3", "n39"} <= set(groups.worse)
        assert groups.apart == pytest.approx(0.09, abs=0.01)
        (note,) = judgement.notes()
        assert note.startswith("two groups of hosts in 1 metric: copy, NUMA 0 to bank 0: ")
        assert "(n[0,2,4" in note
        verdicts = {v.host: v for v in map(judgement.of, judgement.hosts)}
        assert (verdicts["n7"].verdict, verdicts["n8"].verdict) == ("fail", "fail")
        assert {verdicts[f"n{i}"].verdict for i in (0, 2, 38)} == {"pass"}
        assert {verdicts[f"n{i}"].verdict for i in (1, 3, 39)} == {"suspect"}
        assert "the worse of two groups of hosts" in verdicts["n1"].line()

    @pytest.mark.parametrize("hosts", [8, 20, 300])
    def test_hosts_that_differ_evenly_are_one_group(self, hosts):
        for seed in range(40):
            assert not self.is_divided(repetitions(hosts, 3, spread=0.02, seed=seed))

    @pytest.mark.parametrize("hosts", [20, 60, 300])
    @pytest.mark.parametrize("apart", [0.08, 0.1])
    def test_two_large_groups_are_found_despite_outliers(self, hosts, apart):
        for seed in range(5):
            odd = {"n4": 0.5, "n5": 0.7} if hosts > 20 else {}
            assert self.is_divided(repetitions(hosts, 3, error=0.005, seed=seed, **two_kinds(hosts, apart, **odd)))

    def test_halves_whose_hosts_differ_by_nature_are_found(self):
        for seed in range(10):
            rng = random.Random(seed)  # noqa: S311
            levels = {host: level * (1 + rng.gauss(0, 0.008)) for host, level in two_kinds(40, 0.06).items()}
            assert self.is_divided(repetitions(40, 15, seed=seed, **levels))

    def test_hosts_outside_a_clear_majority_fail(self, tmp_path):
        bad = {f"n{i}": 0.9 for i in range(12)}
        judgement = judged(
            samples_table.of_records(fleet(hosts=40, count=6, error=0.005, **bad)), system_of(tmp_path)
        )
        (note,) = judgement.notes()
        assert note.startswith(
            "12 of 40 hosts are about 10.2 % worse than the others (n[0-11]; copy, NUMA 0 to bank 0)"
        )
        other = fleet(hosts=40, count=6, error=0.005, **bad | {"n11": 0.7})
        (note,) = judged(samples_table.of_records(other), system_of(tmp_path)).notes()
        assert note.startswith("11 of 40 hosts are about 10.2 % worse than the others (n[0-10]; ")
        assert {host: judgement.of(host).verdict for host in judgement.hosts} == {
            f"n{i}": "fail" if i < 12 else "pass" for i in range(40)
        }

    @pytest.mark.parametrize(("hosts", "bad", "share"), [(12, 4, 0.88), (16, 6, 0.9), (16, 6, 0.92)])
    def test_bad_hosts_that_a_wide_limit_hides_are_named_by_the_gap_between_them_and_the_others(
        self, hosts, bad, share, tmp_path
    ):
        """Ten fleets each: the limit alone, which a few good hosts make wide, passes all bad hosts of some."""
        by_gap = 0
        for seed in range(10):
            rng = random.Random(seed)  # noqa: S311
            levels = {f"n{i}": (share if i < bad else 1) * (1 + rng.gauss(0, 0.01)) for i in range(hosts)}
            judgement = judged(
                samples_table.of_records(fleet(hosts=hosts, error=0.002, seed=seed, **levels)), system_of(tmp_path)
            )
            words = {host: judgement.of(host).verdict for host in judgement.hosts}
            assert {words[f"n{i}"] for i in range(bad)} <= {"fail", "suspect"}
            assert {words[f"n{i}"] for i in range(bad, hosts)} <= {"pass", "undecided"}
            if judgement.divided:
                by_gap += 1
                suspect = next(host for host, word in words.items() if word == "suspect")
                assert f"one of {bad} hosts that are apart from the others" in judgement.of(suspect).line()
                assert f"two kinds of hosts, or {bad} bad ones" in judgement.notes()[-1]
        assert by_gap

    @pytest.mark.parametrize("hosts", [8, 16, 50])
    def test_good_hosts_of_any_nature_have_no_gap(self, hosts):
        rng = np.random.default_rng(3)
        names = [f"n{i}" for i in range(hosts)]
        natures = (rng.standard_normal, rng.standard_exponential, lambda n: rng.uniform(-2, 2, n))
        apart = sum(
            fleet_level.separated(Groups(100 + 3 * nature(hosts), np.ones(hosts, dtype=int)), names, "higher", 10)
            is not None
            for nature in natures
            for _ in range(200)
        )
        assert apart <= 2

    @staticmethod
    def is_divided(values_by_host):
        groups = Groups(
            np.concatenate([np.array(v) for v in values_by_host.values()]),
            np.array([len(v) for v in values_by_host.values()]),
        )
        return divided(groups, list(values_by_host), "higher") is not None

    def test_a_baseline_names_both_groups_and_learns_from_the_hosts_of_the_option(self, tmp_path, run_cli):
        document_of(tmp_path)
        append(tmp_path / "r.jsonl", fleet(hosts=40, error=0.005, **two_kinds()))
        argv = ("baseline", "--system", "s", tmp_path / "r.jsonl")
        before = (tmp_path / "s.yaml").read_text()
        done = run_cli(*argv)
        assert done.status == 2
        assert "two groups of hosts" in done.err
        assert "n[0,2,4" in done.err
        assert (tmp_path / "s.yaml").read_text() == before
        worse = ",".join(f"n{i}" for i in range(1, 40, 2))
        done = run_cli(*argv, "--hosts", worse)
        assert done.status == 0, done.err
        (learnt,) = [r for r in load(tmp_path / "s.yaml").references if r.error]
        assert learnt.value == pytest.approx(91, rel=0.01)
        assert "fleet of 20 hosts" in learnt.source
        for wrong in ("", "n[0", "n[0-99999999999]", "other", "@all"):
            done = run_cli(*argv, "--hosts", wrong)
            assert (done.status, len(done.err.splitlines())) == (2, 1), wrong

    def test_a_baseline_reports_a_larger_detectable_loss(self, tmp_path, run_cli):
        document_of(tmp_path)
        append(tmp_path / "r.jsonl", fleet(hosts=60, error=0.002, spread=0.011))
        done = run_cli("baseline", "--system", "s", tmp_path / "r.jsonl")
        assert done.status == 0, done.err
        assert re.search(r"1 of 1 references find only a larger loss than 5.0%: up to [45]\.\d%", done.out)
        fleet_baseline = baseline_of(fleet(hosts=60, error=0.002, spread=0.03), _without_references())
        assert not fleet_baseline.learnt
        assert "only a loss of 1" in next(iter(fleet_baseline.not_learnt.values()))


class TestBaseline:
    def test_the_file_that_is_written_judges_the_next_host(self, tmp_path, run_cli):
        document_of(tmp_path)
        file = tmp_path / "s.yaml"
        before = file.read_text()
        records = tmp_path / "records.jsonl"
        append(records, fleet(n7=0.8))
        argv = ("baseline", "--system", "s", records)
        done = run_cli(*argv)
        assert done.status == 0, done.err
        assert re.search(r"left out: n7: copy, NUMA 0 to bank 0: \d+\.\d % below the others\n", done.out)
        system = load(file)
        (learnt,) = [r for r in system.references if r.error]
        assert learnt.value == pytest.approx(100, rel=0.01)
        assert "fleet of 19 hosts" in learnt.source
        assert system.reference("bandwidth", "copy_bandwidth", {"pu_nodes": [0], "bank": 0}) == learnt
        assert judge(rates(*[95.0] * 5, host="new"), system)[0].verdict == "fail"
        assert judge(rates(100.5, host="new"), system)[0].verdict == "pass"
        # A second run replaces the learnt references and leaves all else unchanged.
        once = file.read_text()
        assert run_cli(*argv).status == 0
        assert file.read_text() == once
        assert yaml.safe_load(baseline.without(once)) == yaml.safe_load(before)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["records.jsonl", "s.yaml"]

    @pytest.mark.parametrize(
        "text",
        [
            "a: 1\nreferences: []\n",
            "a: 1\n",
            "references:\n  - {x: 1}\nb: 2\n",
            "references: []\nb: 2\n",
            "references:\n  # none\n  - {x: 1}  # one\n\n# end\n",
        ],
    )
    def test_other_content_of_the_file_stays(self, text):
        fleet_baseline = baseline_of(fleet(), _without_references())
        written = baseline.put(text, fleet_baseline)
        old, new = yaml.safe_load(text), yaml.safe_load(written)
        assert new.pop("references")[1:] == (old.pop("references", None) or [])
        assert old == new
        again = yaml.safe_load(baseline.without(written))
        assert (again.pop("references") or []) == (yaml.safe_load(text).get("references") or [])
        assert again == old

    @pytest.mark.parametrize("text", ['GB/s", check: "x', "x\ny: z", "*a", "}]", "x # y", "\x1b\x85\u2028"])
    def test_no_text_of_a_record_is_a_key_of_the_file(self, text):
        records = [replace(r, unit=text, parameters={**r.parameters, "kernel": text}) for r in fleet()]
        (reference,) = yaml.safe_load(baseline.put("a: 1\n", baseline_of(records, _without_references())))[
            "references"
        ]
        assert reference["value"].endswith(f" {text}")
        assert reference["parameters"]["kernel"] == text
        assert reference.keys() == {"check", "metric", "parameters", "value", "tolerance", "error", "source"}

    def test_references_of_the_file_are_not_learnt(self, tmp_path):
        entry = {"check": "bandwidth", "metric": "copy_bandwidth", "value": "60 GB/s", "source": "order"}
        same = {"pu_nodes": [0], "bank": 0}
        system = system_of(tmp_path, {**entry, "parameters": same, "tolerance": LIMITS["higher"]})
        fleet_baseline = baseline_of(fleet(), system)
        assert not fleet_baseline.learnt
        assert "already has a reference for it" in next(iter(fleet_baseline.not_learnt.values()))

    def test_the_throughput_of_aligners_is_learnt(self, tmp_path, run_cli):
        document_of(tmp_path)
        case = {"aligner": "bwa-mem", "dataset": "lambda", "instances": 2, "threads": 1, "policy": "Original"}
        records = [
            replace(r, check="weak_scaling", metric="throughput", unit="kreads/s", parameters=case)
            for r in fleet(n7=0.8)
        ]
        append(tmp_path / "records.jsonl", records)
        argv = ("baseline", "--system", "s", tmp_path / "records.jsonl")
        done = run_cli(*argv)
        assert done.status == 0, done.err
        (learnt,) = [r for r in load(tmp_path / "s.yaml").references if r.error]
        assert (learnt.unit, learnt.value) == ("kreads/s", pytest.approx(100, rel=0.01))

    def test_only_the_ends_of_a_curve_are_learnt(self):
        sizes = (4096, 65536, 1 << 20, 1 << 27)
        fields = {"check": "latency", "metric": "random_latency", "unit": "ns", "better": "lower"}
        records = []
        for size in sizes:
            for host, values in repetitions(seed=size).items():
                case = {"pu_nodes": [0], "bank": 0, "size_bytes": size}
                records += rates(*values, host=host, parameters=case, **fields)
        fleet_baseline = baseline_of(records, _without_references())
        assert sorted(reference.case.parameters["size_bytes"] for reference in fleet_baseline.learnt) == [
            sizes[0],
            sizes[-1],
        ]

    def test_nothing_learnt_is_an_error_that_says_why(self, tmp_path, run_cli):
        document_of(tmp_path)
        records = tmp_path / "records.jsonl"
        append(records, fleet(hosts=3))
        before = (tmp_path / "s.yaml").read_text()
        done = run_cli("baseline", "--system", "s", records)
        assert (done.status, "3 hosts have it, 5 are needed" in done.err) == (2, True)
        assert (tmp_path / "s.yaml").read_text() == before

    def test_no_text_of_a_record_reaches_the_terminal(self, tmp_path, run_cli):
        document_of(tmp_path)
        text = "\x1b]0;x\a\x9b\r\nforged"
        records = [
            replace(r, host=r.host + text, parameters={**r.parameters, "kernel": text}) for r in fleet(n7=0.8)
        ]
        few = [replace(r, metric="triad_bandwidth", host=r.host) for r in records[:3]]
        append(tmp_path / "r.jsonl", records + few)
        done = run_cli("baseline", "--system", "s", tmp_path / "r.jsonl")
        assert done.status == 0, done.err
        assert "left out: n7" in done.out
        assert "not learnt: " in done.out
        assert not {*"\x1b\a\x9b\r"} & {*done.out}
        assert not [line for line in done.out.splitlines() if line.startswith("forged")]

    def test_json_has_all(self, tmp_path, run_cli):
        document_of(tmp_path)
        append(tmp_path / "r.jsonl", fleet(n7=0.8))
        argv = ("baseline", "--system", "s", tmp_path / "r.jsonl", "--json", "-o", tmp_path / "new.yaml")
        done = run_cli(*argv)
        document = json.loads(done.out)
        assert (document["hosts"], len(document["references"]), list(document["outliers"])) == (20, 1, ["n7"])
        assert (tmp_path / "new.yaml").is_file()


def _without_references():
    class System:
        def reference(self, *_):
            return None

    return System()


def test_a_loss_of_zero_is_refused(run_cli, tmp_path):
    done = run_cli("baseline", "--system", "s", tmp_path, "--loss", "0")
    assert (done.status, "no loss" in done.err or "not a loss" in done.err) == (2, True)
