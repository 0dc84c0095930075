# SPDX-License-Identifier: Apache-2.0
"""What a host reaches now and reached before, and verdicts by promise, siblings and own level kept apart."""

import datetime
import random
from collections import Counter

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace
from test_verdict import rates

from firsttouch.judge import samples_table
from firsttouch.judge.case_judge import FAIL, PASS, SUSPECT
from firsttouch.judge.judging import judge, judged
from firsttouch.records.schema import Record, read, to_frame
from firsttouch.systems.definition import Undescribed

DAY = datetime.timedelta(days=1)


def history(levels, *, hosts=12, spread=0.03, error=0.005, count=1, seed=1):
    """Return the records of a fleet, a session a day: *levels* are those of host n0, the others stay at theirs."""
    rng = random.Random(seed)  # noqa: S311
    natural = [1 + rng.gauss(0, spread) for _ in range(hosts)]
    records = []
    for day, level in enumerate(levels):
        begin = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + day * DAY
        for host, own in enumerate(natural):
            values = [100 * own * (level if host == 0 else 1) * (1 + rng.gauss(0, error)) for _ in range(count)]
            for number, record in enumerate(rates(*values, host=f"n{host}")):
                records.append(replace(record, time=(begin + datetime.timedelta(minutes=number)).isoformat()))
    return records


def verdicts(levels, **options):
    return {verdict.host: verdict for verdict in judge(history(levels, **options), Undescribed("s"))}


class TestOwnLevel:
    def test_a_host_fails_in_the_third_session_below_its_own_level(self):
        good = [1.0] * 12
        assert verdicts(good)["n0"].verdict == "pass"
        words = [verdicts([*good, *[0.94] * bad])["n0"].verdict for bad in (1, 2, 3, 8)]
        assert words[0] in {"undecided", "suspect"}
        assert words[2:] == ["fail", "fail"]
        after = verdicts([*good, *[0.94] * 3])
        assert {v.verdict for host, v in after.items() if host != "n0"} == {"pass"}
        finding = after["n0"].findings[0]
        assert "below its own level of 1 to 12 January 2026, 12 sessions (" in finding.why
        assert finding.why.endswith("3 repetitions, certain")
        assert finding.reference.value == pytest.approx(finding.values[0] / 0.94, rel=0.01)

    def test_a_repaired_host_passes_at_once(self):
        bad = [*[1.0] * 12, *[0.85] * 10]
        assert verdicts(bad)["n0"].verdict == "fail"
        assert verdicts([*bad, 1.0])["n0"].verdict == "pass"

    def test_a_host_that_gets_better_is_not_bad(self):
        assert verdicts([*[0.94] * 12, *[1.0] * 6])["n0"].verdict == "pass"

    @pytest.mark.parametrize("seed", range(4))
    def test_an_update_that_slows_hosts_differently_is_no_fault_of_those_it_slows_most(self, seed):
        rng = random.Random(100 + seed)  # noqa: S311
        after = {f"n{i}": 0.77 * (1 + rng.uniform(-0.02, 0.02)) for i in range(32)}
        records = history([1.0] * 20, hosts=32, seed=seed)
        slower = [
            replace(r, samples=(r.samples[0] * (after[r.host] if r.time > "2026-01-12" else 1),)) for r in records
        ]
        assert {v.verdict for v in judge(slower, Undescribed("s"))} <= {"pass", "undecided", "suspect"}
        after["n5"] = 0.77 * 0.88
        slower = [
            replace(r, samples=(r.samples[0] * (after[r.host] if r.time > "2026-01-12" else 1),)) for r in records
        ]
        assert [v.host for v in judge(slower, Undescribed("s")) if v.verdict == "fail"] == ["n5"]


BOARD = {"board": "a", "interfaces": "1 2"}


def configured(parts, model="x", minutes=0):
    """Return a configuration of n0 a day with these *parts* ({}: they cannot be read)."""
    begin = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(minutes=minutes)
    what = ("configuration", "settings", "1", "neither", (1.0,))
    settings = {"settings": {"cpu.model": model}, "provenance": {}}
    return [
        Record(
            *what,
            parameters={**settings, "parts": of_day},
            host="n0",
            system="s",
            time=(begin + day * DAY).isoformat(),
        )
        for day, of_day in enumerate(parts)
    ]


class TestReplaced:
    @pytest.mark.parametrize(
        ("since", "word"),
        [
            (BOARD, "fail"),
            ({"board": "b", "interfaces": "1 2"}, "pass"),
            ({"board": "a", "interfaces": "3 4"}, "fail"),  # other cards on the same board
            ({"interfaces": "2 3"}, "fail"),
            ({"interfaces": "3 4"}, "pass"),
            ({**BOARD, "processors": "p"}, "fail"),  # they could not be read before
            ({}, "fail"),
        ],
    )
    def test_another_board_ends_the_own_level(self, since, word):
        records = history([*[1.0] * 12, *[0.94] * 4])
        words = {
            minutes: {v.host: v for v in judge([*records, *configured(parts, minutes=minutes)], Undescribed("s"))}
            for minutes in (0, 30)
            for parts in [[*[BOARD] * 12, *[since] * 4]]
        }
        assert {verdicts["n0"].verdict for verdicts in words.values()} == {word}
        assert {v.verdict for verdicts in words.values() for h, v in verdicts.items() if h != "n0"} == {"pass"}
        sentence = "since a time between 2026-01-12 00:30 and 2026-01-13 00:30 UTC: older sessions do not count"
        assert (sentence in words[30]["n0"].line()) == (word == "pass")

    def test_a_person_may_state_it(self, tmp_path, run_cli):
        records = history([*[1.0] * 12, *[0.94] * 4])
        stated = replace(
            configured([{}])[0], metric="replaced", parameters={"reason": "new board"}, time="2026-01-12T12:00:00"
        )
        for parts in ([], configured([BOARD] * 16)):
            verdict = judge([*records, *parts, stated], Undescribed("s"))[0]
            assert verdict.verdict == "pass"
            assert "another board or other processors since a time between 2026-01-12 " in verdict.line()
        file = tmp_path / "replaced.jsonl"
        arguments = ("n0", "--system", "s", "--records", file, "--reason", "new board")
        assert run_cli("fleet", "replaced", *arguments).status == 0
        (written,) = read(file)
        assert (written.host, written.system, written.metric) == ("n0", "s", "replaced")
        assert written.parameters == stated.parameters


class TestIntermittent:
    def test_a_host_that_is_bad_now_and_then_is_suspect(self):
        levels = [0.7 if day % 5 == 3 else 1.0 for day in range(30)]
        verdict = verdicts(levels, hosts=16, spread=0.01)["n0"]
        assert verdict.verdict == "suspect"
        assert "intermittent: 6 of 30 repetitions are " in verdict.line()
        assert "in 6 of 30 sessions" in verdict.line()

    def test_one_bad_period_is_none(self):
        levels = [0.7 if 5 <= day < 11 else 1.0 for day in range(30)]
        assert verdicts(levels, hosts=16, spread=0.01)["n0"].verdict == "pass"


class TestBlindness:
    def test_few_unlike_hosts_say_which_losses_they_would_have_missed(self):
        line = verdicts([1.0], hosts=8, spread=0.015, count=5)["n1"].line()
        assert "the comparison with the fleet sees losses of " in line
        assert line.endswith(", its own level is not known yet (1 of 5 sessions)")
        old = verdicts([1.0] * 5, hosts=8, spread=0.015, count=5)["n1"].line()
        assert "sees losses of " in old
        assert "own level" not in old

    def test_many_alike_hosts_see_small_losses(self):
        assert "sees losses" not in verdicts([1.0], hosts=40, spread=0.004, count=5)["n1"].line()


def judged_sessions(values):
    """Return the findings of an array host x metric x session, weekly sessions of one repetition."""
    hosts, metrics, sessions = values.shape
    listed = [replace(rates(1.0)[0], parameters={"pu_nodes": [0], "bank": bank}) for bank in range(metrics)]
    begin = datetime.datetime(2026, 1, 5, tzinfo=datetime.UTC)
    times = [begin + 7 * week * DAY for week in range(sessions)]
    host, session, _ = (index.ravel() for index in np.indices((hosts, sessions, metrics)))
    frame = pl.concat([to_frame(listed)] * (hosts * sessions)).with_columns(
        host=pl.Series([f"n{number:04d}" for number in range(hosts)], dtype=pl.Categorical).gather(host),
        time=pl.Series(times).gather(session),
        value=values.transpose(0, 2, 1).ravel(),
    )
    return judged(samples_table.of_frames([frame]), Undescribed("s"))


@pytest.mark.parametrize("noise", [0.01, 0.05])
def test_good_hosts_with_many_metrics_do_not_fail_by_their_own_levels(noise):
    """One of 2,000 good hosts may. Each of 60,000 series has a best period, and a worst end."""
    rng = np.random.default_rng(4)
    values = 100 * np.exp(0.01 * rng.standard_normal((1000, 60, 1)) + noise * rng.standard_normal((1000, 60, 12)))
    slow = np.arange(0, 1000, 50)
    values[slow, 7, -4:] *= 1 - 6 * noise
    words = judged_sessions(values).words.reshape(60, 1000)
    assert np.mean(words[7, slow] == FAIL) > 0.9
    words[:, slow] = PASS
    assert np.count_nonzero(words == FAIL) == 0
    assert np.count_nonzero((words == SUSPECT).any(axis=0)) < 5


def records_of(values, chosen=None):
    """Return records; *values* are of hosts, weekly sessions and repetitions.

    *chosen* are the sessions that some hosts have (default: all).
    """
    begin = datetime.datetime(2026, 1, 5, tzinfo=datetime.UTC)
    records = []
    for host, sessions in enumerate(values):
        for week in (chosen or {}).get(host, range(len(sessions))):
            session = sessions[week]
            for number, record in enumerate(rates(*map(float, session), host=f"n{host:03d}")):
                time = begin + 7 * week * DAY + datetime.timedelta(minutes=3 * number)
                records.append(replace(record, time=time.isoformat()))
    return records


def fleet_words(values, chosen=None):
    """Return how many hosts have each verdict, and these; the arguments are those of :func:`records_of`."""
    records = records_of(values, chosen)
    verdicts = {v.host: v for v in judge(records, Undescribed("s"))}
    return Counter(v.verdict for v in verdicts.values()), verdicts


class TestUpdates:
    """A change of all hosts is no fault, whoever is measured how often and when."""

    @pytest.mark.parametrize("hosts", [3, 5, 6, 12])
    @pytest.mark.parametrize("change", [0.9, 0.97, 1.06])
    def test_an_update_of_a_small_fleet(self, hosts, change):
        rng = np.random.default_rng(hosts)
        values = (
            30
            * (1 + 0.01 * rng.standard_normal((hosts, 1, 1)))
            * (1 + 0.005 * rng.standard_normal((hosts, 30, 2)))
        )
        values[:, 20:] *= change
        words, _ = fleet_words(values)
        assert words["fail"] == 0

    def test_once_most_hosts_have_an_update_those_that_had_it_first_pass(self):
        rng = np.random.default_rng(1)
        values = 30 * (1 + 0.01 * rng.standard_normal((16, 1, 1))) * (1 + 0.005 * rng.standard_normal((16, 40, 1)))
        for host in range(11):
            values[host, 20 + host :] *= 0.93
        words, _ = fleet_words(values)
        assert words["fail"] == 0
        values[0, 36:] *= 0.9
        assert fleet_words(values)[1]["n000"].verdict == "fail"


class TestOtherModels:
    """Fleets that are unlike the judge's model blame no good host."""

    @pytest.fixture
    def rng(self):
        return np.random.default_rng(0)

    @pytest.mark.parametrize(
        ("usual", "repetitions"), [(29.4, 1), (29.4, 12), (31.5, 1), (31.5, 3), (33.6, 3), (315, 12)]
    )
    def test_rounded_values(self, rng, usual, repetitions):
        words = Counter()
        for _ in range(5):
            levels = usual * (1 + 0.005 * rng.standard_normal((16, 1, 1)))
            values = levels * (1 + 0.004 * rng.standard_normal((16, 1, repetitions)))
            words += fleet_words(np.round(values))[0]
        assert words == {"pass": 80}

    def test_a_value_of_zero_hides_no_other_host(self, rng):
        values = 30 * (1 + 0.01 * rng.standard_normal((20, 4, 5)))
        values[1] *= 0.7
        values[0, 2, 1] = 0
        words, verdicts = fleet_words(values)
        assert words == {"pass": 19, "fail": 1}
        assert verdicts["n001"].verdict == "fail"

    def test_one_bad_session_after_good_ones_is_no_fail(self):
        """Repetitions of a session share its disturbance, so the next session decides; a large loss needs none."""
        rng = np.random.default_rng(5)
        values = 30 * (1 + 0.01 * rng.standard_normal((12, 1, 1))) * (1 + 0.004 * rng.standard_normal((12, 12, 5)))
        values[0, 11] *= 0.9
        words, verdicts = fleet_words(values)
        assert (verdicts["n000"].verdict, words["fail"]) == ("suspect", 0)
        assert (
            "in one session after good ones: it fails if the next one shows this, too" in verdicts["n000"].line()
        )
        values[0, 10] *= 0.9
        assert fleet_words(values)[1]["n000"].verdict == "fail"
        values[0, 10:] /= 0.9
        values[0, 11] *= 0.7
        assert fleet_words(values)[1]["n000"].verdict == "fail"

    def test_a_metric_that_is_measured_no_more_is_missing(self):
        rng = np.random.default_rng(4)
        values = 30 * (1 + 0.01 * rng.standard_normal((12, 1, 1))) * (1 + 0.004 * rng.standard_normal((12, 20, 3)))
        records = records_of(values) + [
            replace(record, parameters={**record.parameters, "bank": 1})
            for record in records_of(values, {0: range(4)})
        ]
        verdicts = {v.host: v for v in judge(records, Undescribed("s"))}
        assert (verdicts["n000"].verdict, verdicts["n001"].verdict) == ("suspect", "pass")
        assert "bank 1: last measured on " in verdicts["n000"].line()
