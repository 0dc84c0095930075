# SPDX-License-Identifier: Apache-2.0
"""What a host reaches now and reached before, and verdicts by promise, siblings and own level kept apart."""

import datetime
import math
import random
from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from test_verdict import rates

from firsttouch.judge import host_level, samples_table
from firsttouch.judge.case_judge import FAIL, PASS, SUSPECT
from firsttouch.judge.judging import judge, judged
from firsttouch.judge.sprt import Groups
from firsttouch.records.schema import Record, read, to_frame
from firsttouch.systems.definition import Undescribed

DAY = datetime.timedelta(days=1)


def stretch(*sessions):
    """Return the number of sessions before the last change of a host; a session is a list of values."""
    values = np.array([v for session in sessions for v in session])
    numbers = np.repeat(np.arange(len(sessions)), [len(session) for session in sessions])
    return int(host_level.newest(Groups(values, np.array([len(values)])), numbers, numbers).before[0])


def last_change(means, sizes, error):
    """Return the number of sessions before the last change of a host, by the definition."""
    variances = [error.session**2 + 1.5 * error.repetition**2 / size for size in sizes]
    begin, count = 0, len(means)
    while True:
        clearest, place = 0.0, None
        for middle in range(begin + 1, count):
            sides = []
            for side in (range(begin, middle), range(middle, count)):
                weight = sum(1 / variances[n] for n in side)
                sides.append((sum(means[n] / variances[n] for n in side) / weight, 1 / weight))
            (before, of_before), (after, of_after) = sides
            clear = round(abs(after - before) / math.sqrt(of_before + of_after), 9)
            if clear >= max(clearest, 3.5):
                clearest, place = clear, middle
        if place is None:
            return begin
        begin = place


@given(st.integers(0, 10**6), st.sampled_from([1e-3, 1.0, 1e9]))
def test_the_last_change_is_that_of_the_definition(seed, unit):
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 9, 12)
    error = host_level.Errors(rng.choice([0.0025, 0.02]), rng.choice([0.0025, 0.01]), 0.01, 0.01, 5.0)
    sizes = rng.integers(1, 4, counts.sum())
    deviation = math.hypot(error.session, error.repetition)
    noise = rng.choice([0.1, 1.0]) * rng.standard_normal(len(sizes))
    steps = rng.choice([0, 1], len(sizes), p=[0.8, 0.2]) * rng.uniform(-6, 6, len(sizes))
    means = math.log(unit) + deviation * (noise + steps.cumsum())
    ends = np.cumsum(counts)
    sessions = host_level.Sessions(means, sizes, np.cumsum(sizes) - sizes, counts)
    expected = [
        last_change(means[end - count : end], sizes[end - count : end], error)
        for end, count in zip(ends.tolist(), counts.tolist(), strict=True)
    ]
    assert host_level.changes(sessions, error).tolist() == expected


class TestChanges:
    GOOD = ([100.0, 101.0], [99.5, 100.5], [100.2, 99.8], [100.1, 100.9], [99.4, 100.0], [100.3, 100.2])

    def test_a_steady_host_did_not_change(self):
        assert stretch(*self.GOOD) == 0
        assert stretch([100.0]) == 0
        assert stretch([100.0], [100.0]) == 0

    @pytest.mark.parametrize("level", [0.85, 0.95, 1.1])
    def test_another_level_begins_a_stretch_on_whichever_side_it_is(self, level):
        later = [[level * v for v in session] for session in self.GOOD[:3]]
        assert stretch(*self.GOOD, *later) == len(self.GOOD)

    def test_the_last_of_several_changes_counts(self):
        bad = [[0.8 * v for v in session] for session in self.GOOD]
        assert stretch(*self.GOOD, *bad, *self.GOOD[:2]) == 2 * len(self.GOOD)

    def test_one_disturbed_session_is_forgotten(self):
        assert stretch(*self.GOOD, [80.0, 81.0], *self.GOOD) > len(self.GOOD)

    def test_zeros_have_no_level(self):
        assert stretch([0.0], [5.0], [0.0]) == 0

    def test_what_all_hosts_have_in_common_is_no_error(self):
        rng = np.random.default_rng(1)
        values = np.concatenate(
            [100 * f * (1 + 0.002 * rng.standard_normal(3)) for _ in range(9) for f in (1, 0.9)]
        )
        groups, session = Groups(values, np.full(9, 6)), np.tile(np.repeat([0, 1], 3), 9)
        newest = host_level.newest(groups, session, session)
        assert newest.errors.session < 0.005
        assert (newest.before == 1).all()


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

    def test_a_bad_level_that_moves_stays_bad(self):
        assert verdicts([*[1.0] * 12, 0.85, 0.85, 0.9, 0.9, 0.86])["n0"].verdict == "fail"

    def test_a_host_that_gets_better_is_not_bad(self):
        assert verdicts([*[0.94] * 12, *[1.0] * 6])["n0"].verdict == "pass"

    def test_four_sessions_are_no_level(self):
        after = verdicts([*[1.0] * 4, *[0.94] * 4])
        assert "own level" not in after["n0"].line()

    def test_what_most_hosts_lose_is_no_fault_of_one(self):
        records = history([1.0] * 20)
        slower = [replace(r, samples=(r.samples[0] * (0.9 if r.time > "2026-01-15" else 1),)) for r in records]
        assert {v.verdict for v in judge(slower, Undescribed("s"))} == {"pass"}

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

    def test_a_host_that_returns_to_its_former_level_has_lost_little(self):
        better = [*[1.0] * 12, *[1.02] * 12]
        assert verdicts([*better, *[0.99] * 12], error=0.002)["n0"].verdict == "pass"
        assert verdicts([*better, *[0.9] * 12], error=0.002)["n0"].verdict == "fail"

    @pytest.mark.parametrize("count", [1, 3, 12])
    def test_more_repetitions_blame_no_good_host(self, count):
        for seed in range(5):
            words = {v.verdict for v in verdicts([1.0] * 6, count=count, seed=seed).values()}
            assert "fail" not in words


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

    def test_other_processors_end_the_own_level(self):
        records = history([*[1.0] * 12, *[0.94] * 4])
        processors = configured([*[{**BOARD, "processors": "p"}] * 12, *[{**BOARD, "processors": "q"}] * 4])
        models = [*configured([BOARD] * 12), *configured([BOARD] * 16, model="y")[12:]]
        for configurations in (processors, models):
            assert judge([*records, *configurations], Undescribed("s"))[0].verdict == "pass"

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
        assert run_cli("config", "replaced", *arguments).status == 0
        (written,) = read(file)
        assert (written.host, written.system, written.metric) == ("n0", "s", "replaced")
        assert written.parameters == stated.parameters

    def test_the_new_board_has_an_own_level_and_siblings_too(self):
        levels = [*[1.0] * 12, *[0.94] * 8, *[0.87] * 4]
        parts = configured([*[BOARD] * 12, *[{"board": "b"}] * 12])
        verdict = judge([*history(levels), *parts], Undescribed("s"))[0]
        assert verdict.verdict == "fail"
        assert "below its own level of 13 to 20 January 2026, 8 sessions (" in verdict.findings[0].why
        levels = [*[1.0] * 12, *[0.6] * 3]
        records = [*history(levels, count=3), *configured([*[BOARD] * 12, *[{"board": "b"}] * 3])]
        verdict = judge(records, Undescribed("s"))[0]
        assert verdict.verdict == "fail"
        assert "below the fleet" in verdict.findings[0].why


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

    @pytest.mark.parametrize("hours", [0, 24])
    def test_an_update_of_all_hosts_at_once_or_one_after_the_other_blinds_nobody(self, hours):
        records = history([1.0] * 30, hosts=10, spread=0.01)
        begin = datetime.datetime(2026, 1, 10, tzinfo=datetime.UTC)
        begins = {f"n{i}": (begin + datetime.timedelta(hours=i * hours)).isoformat() for i in range(10)}
        slower = [replace(r, samples=(r.samples[0] * (0.8 if r.time > begins[r.host] else 1),)) for r in records]
        before, after = (judge(of, Undescribed("s"))[1].visible[0] for of in (records, slower))
        assert after == pytest.approx(before, rel=0.3)

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


def test_a_noisy_host_does_not_fail_by_its_calmest_period():
    """One host in ten is three times as noisy as the others. The best of 24 sessions are calm ones."""
    rng = np.random.default_rng(7)
    noise = np.where(np.arange(400) % 10 == 0, 0.03, 0.01)[:, None, None]
    values = 100 * np.exp(0.01 * rng.standard_normal((400, 60, 1)) + noise * rng.standard_normal((400, 60, 24)))
    words = judged_sessions(values).words.reshape(60, 400)
    assert np.count_nonzero((words == FAIL).any(axis=0)) <= 2


def test_good_hosts_with_more_noise_than_others_do_not_fail_by_their_own_levels():
    """A best period is also the quietest one. All sessions of a host show its noise."""
    rng = np.random.default_rng(5)
    noise = np.where(np.arange(300) < 60, 0.09, 0.03)[:, None, None]
    values = 100 * np.exp(0.01 * rng.standard_normal((300, 20, 1)) + noise * rng.standard_normal((300, 20, 52)))
    slow = np.arange(50, 70)
    values[slow, 7, -6:] *= 0.5
    words = judged_sessions(values).words.reshape(20, 300)
    assert np.all(words[7, slow] == FAIL)
    words[:, slow] = PASS
    assert np.count_nonzero((words == FAIL).any(axis=0)) == 0


def test_few_siblings_that_differ_by_chance_hide_no_loss():
    rng = np.random.default_rng(7)
    failed = 0
    for _ in range(60):
        values = 1 + 0.01 * rng.standard_normal((4, 10, 1)) + 0.02 * rng.standard_normal((4, 10, 30))
        values[0, :5, -6:] *= 0.75
        words = judged_sessions(100 * values).words.reshape(10, 4)
        failed += np.count_nonzero(words[:5, 0] == FAIL)
        assert not (words[:, 1:] == FAIL).any()
    assert failed >= 297  # of 300


def test_many_bad_metrics_fail_a_host_after_two_repetitions():
    rng = random.Random(5)  # noqa: S311
    records = [
        record
        for bank in range(6)
        for host in range(12)
        for record in rates(
            *(100 * (0.7 if host == 0 and bank < 4 else 1) * (1 + rng.gauss(0, 0.003)) for _ in range(2)),
            host=f"n{host}",
            parameters={"pu_nodes": [0], "bank": bank},
        )
    ]
    words = {v.host: v.verdict for v in judge(records, Undescribed("s"))}
    assert words.pop("n0") == "fail"
    assert set(words.values()) == {"pass"}


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

    def test_hosts_that_were_retired_before_an_update_do_not_know_what_is_good(self):
        rng = np.random.default_rng(2)
        values = 30 * (1 + 0.01 * rng.standard_normal((48, 1, 1))) * (1 + 0.005 * rng.standard_normal((48, 30, 2)))
        values[:, 20:] *= 0.94
        values[40, :] *= 0.8
        words, verdicts = fleet_words(values, dict.fromkeys(range(12, 48), range(16)))
        assert (words["fail"], verdicts["n040"].verdict) == (1, "fail")
        # It is compared with what the others reached at that time.
        finding = verdicts["n040"].findings[0]
        assert finding.values[-1] / finding.reference.value == pytest.approx(0.8, abs=0.04)

    @pytest.mark.parametrize("interval", [1, 10])
    def test_a_host_that_is_measured_more_often_than_all_others_is_no_fleet(self, interval):
        rng = np.random.default_rng(3)
        failed = 0
        for _ in range(5):
            levels = 1 + 0.01 * rng.standard_normal((8, 1, 1))
            values = (
                30
                * levels
                * (1 + 0.004 * rng.standard_normal((8, 300, 1)))
                * (1 + 0.01 * rng.standard_normal((8, 300, 3)))
            )
            values[0, 150:] *= 0.92
            chosen = {host: range(0, 300, interval if host == 0 else 30) for host in range(8)}
            failed += fleet_words(values, chosen)[1]["n000"].verdict == "fail"
        assert failed == 5


class TestOtherModels:
    """Fleets that are unlike the judge's model blame no good host."""

    @pytest.fixture
    def rng(self):
        return np.random.default_rng(0)

    @pytest.mark.parametrize("step", [0.03, 0.1])
    def test_values_in_steps(self, rng, step):
        words, _ = fleet_words(30 * (1 + step * np.round(0.5 * rng.standard_normal((60, 26, 1)))))
        assert words["fail"] == 0
        assert words["suspect"] <= 1

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

    def test_a_loss_of_rounded_values(self, rng):
        values = 31.5 * (1 + 0.005 * rng.standard_normal((16, 1, 6)))
        values[3] *= 0.85
        words, verdicts = fleet_words(np.round(values))
        assert words == {"pass": 15, "fail": 1}
        assert verdicts["n003"].verdict == "fail"

    def test_hosts_of_which_most_are_near_each_other_by_chance_in_one_of_the_metrics(self, rng):
        """Copies to one bank would blame four hosts, but the other metrics of the check show the spread."""
        levels = 0.02 * rng.standard_normal((2, 4, 16))
        levels[0, 1] = 0.02 * np.array([-2.1, -2.0, -1.9, -1.8, 1.2, 1.3, 1.5, *np.linspace(-0.12, 0.12, 9)])
        records = []
        for kernel, of_kernel in zip(("copy", "triad"), levels, strict=True):
            for bank, of_bank in enumerate(of_kernel):
                values = 30 * (1 + of_bank[:, None, None] + 0.004 * rng.standard_normal((16, 7, 3)))
                case = {"kernel": kernel, "pu_nodes": [bank], "bank": bank}
                records += [replace(r, metric=f"{kernel}_bandwidth", parameters=case) for r in records_of(values)]
        words = Counter(v.verdict for v in judge(records, Undescribed("s")))
        assert words["fail"] == 0

    def test_more_data_in_coarse_steps(self, rng):
        levels = 1 + 0.015 * rng.standard_normal((24, 1, 1))
        values = levels * (1 + 0.01 * rng.standard_normal((24, 26, 3)))
        words, _ = fleet_words(100 * np.round(values / 0.05) * 0.05)
        assert words["fail"] == 0

    def test_levels_that_are_drawn_anew_at_times(self, rng):
        words = Counter()
        for _ in range(8):
            drawn = 1 + 0.02 * rng.standard_normal((24, 26))
            level = np.take_along_axis(drawn, np.cumsum(rng.random((24, 26)) < 0.05, axis=1), axis=1)
            words += fleet_words(100 * level[..., None] * (1 + 0.005 * rng.standard_normal((24, 26, 3))))[0]
        assert words["fail"] <= 2

    @pytest.mark.parametrize("repetitions", [1, 6])
    def test_sessions_of_two_levels(self, rng, repetitions):
        boosted = 1 + 0.04 * (rng.random((30, 26, 1)) < 0.3)
        words, _ = fleet_words(30 * boosted * (1 + 0.005 * rng.standard_normal((30, 26, repetitions))))
        assert words == {"pass": 30}

    def test_a_decline_that_all_hosts_share(self, rng):
        level = 30 * (1 + 0.01 * rng.standard_normal((16, 1, 1))) * (1 - 0.004 * np.arange(40))[None, :, None]
        words, verdicts = fleet_words(level * (1 + 0.01 * rng.standard_normal((16, 40, 2))))
        # Of hosts that decline for ever no level is known well.
        assert words == {"undecided": 16}
        assert "sees only losses above 3" in verdicts["n001"].line()

    def test_a_value_of_zero_hides_no_other_host(self, rng):
        values = 30 * (1 + 0.01 * rng.standard_normal((20, 4, 5)))
        values[1] *= 0.7
        values[0, 2, 1] = 0
        words, verdicts = fleet_words(values)
        assert words == {"pass": 19, "fail": 1}
        assert verdicts["n001"].verdict == "fail"

    @pytest.mark.parametrize("repetitions", [3, 12, 24])
    def test_an_intermittent_host_is_found_at_any_number_of_repetitions(self, rng, repetitions):
        values = 30 * (1 + 0.01 * rng.standard_normal((16, 1, 1)))
        values = values * (1 + 0.01 * rng.standard_normal((16, 26, repetitions)))
        bad = rng.random((26, repetitions)) < 0.2
        values[0] *= np.where(bad, 1 - rng.uniform(0.15, 0.3, bad.shape), 1)
        words, verdicts = fleet_words(values)
        assert (words["suspect"], words["fail"]) == (1, 0)
        assert "intermittent" in verdicts["n000"].line()

    def test_half_of_eight_hosts_are_told_as_a_group(self, rng):
        levels = 1 + 0.003 * rng.standard_normal((8, 1, 1))
        levels[:4] *= 0.7
        words, verdicts = fleet_words(30 * levels * (1 + 0.01 * rng.standard_normal((8, 6, 5))))
        assert words == {"pass": 4, "suspect": 4}
        assert "the host is in the worse of two groups of hosts" in verdicts["n000"].line()

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

    @pytest.mark.parametrize("hosts", [6, 8])
    def test_a_host_far_off_hides_in_no_small_fleet(self, hosts):
        failed = 0
        for seed in range(20):
            rng = np.random.default_rng(seed)
            levels = 1 + 0.01 * rng.standard_normal((hosts, 1, 1))
            levels[0] *= 0.5
            verdict = fleet_words(30 * levels * (1 + 0.006 * rng.standard_normal((hosts, 4, 5))))[1][
                "n000"
            ].verdict
            assert verdict != "pass"
            failed += verdict == "fail"
        assert failed >= 18

    @pytest.mark.parametrize("sessions", [1, 2, 3])
    @pytest.mark.parametrize("spread", [0.0, 0.004])
    def test_alike_hosts_see_a_tenth_after_few_sessions(self, sessions, spread):
        """Two sessions show how far sessions differ badly, and do not make the fleet blind."""
        rng = np.random.default_rng(8)
        levels = 1 + spread * rng.standard_normal((16, 1, 1))
        levels[0] *= 0.9
        words, verdicts = fleet_words(100 * levels * (1 + 0.01 * rng.standard_normal((16, sessions, 6))))
        assert (words, verdicts["n000"].verdict) == ({"pass": 15, "fail": 1}, "fail")

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

    def test_a_fleet_that_hides_everything_says_so(self, rng):
        levels = 1 + 0.003 * rng.standard_normal((6, 1, 1))
        levels[:3] *= 0.7
        _, verdicts = fleet_words(30 * levels * (1 + 0.01 * rng.standard_normal((6, 6, 5))))
        assert (
            "undecided: the comparison with the fleet sees no loss in bandwidth, and a pass needs 20 %: "
            "a reference, more hosts or more repetitions would help"
        ) in verdicts["n000"].line()
