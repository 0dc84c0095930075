# SPDX-License-Identifier: Apache-2.0
"""Levels learnt from a fleet, how certain verdicts by them are, and the system file that stores them."""

import datetime
import json
import random
import re
from typing import ClassVar

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from test_verdict import LIMITS, document_of, rates, system_of

from factories.fleet_records import learn
from firsttouch.judge import baseline, samples_table
from firsttouch.judge.fleet_level import divided
from firsttouch.judge.judging import judge, judged
from firsttouch.judge.sprt import Groups
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

    @pytest.mark.parametrize("wrong", [{}, {"n1": [1.0]}, {f"n{i}": [] for i in range(9)}])
    def test_too_few_hosts_are_no_fleet(self, wrong):
        assert learn(wrong, "higher") is None

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


class TestWords:
    def test_the_stated_number_of_repetitions_decides(self, tmp_path):
        verdicts = {v.host: v for v in judge(fleet(count=1, n7=0.9), system_of(tmp_path))}
        assert verdicts["n7"].verdict == "undecided"
        assert f"1 repetition, needs about {verdicts['n7'].more} more repetitions" in verdicts["n7"].line()
        again = {v.host: v for v in judge(fleet(count=1 + verdicts["n7"].more, n7=0.9), system_of(tmp_path))}
        assert (again["n7"].verdict, again["n7"].more) == ("fail", 0)

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
