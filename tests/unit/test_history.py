# SPDX-License-Identifier: Apache-2.0
"""Changes of the parts of hosts over time, and hosts that fail again and again."""

import datetime
import itertools
import json

import numpy as np
import pytest
from msgspec.structs import replace

from firsttouch.fleet import verdict_log
from firsttouch.fleet.verdict_log import Logged
from firsttouch.judge import history
from firsttouch.judge.judging import judged
from firsttouch.judge.verdict import HostVerdict
from firsttouch.records import drift, samples_table, store
from firsttouch.records.cases import Case
from firsttouch.records.samples_table import SamplesTable
from firsttouch.records.schema import Record
from firsttouch.report import inputs, pages
from firsttouch.report.document import Table
from firsttouch.systems.definition import Undescribed

DAY = 86_400_000
START = 20_500 * DAY  # 2026-02-16


def changes_of(values, days=30):
    """Return the changes of an array metric x host x session; each metric shows the memory of one bank."""
    metrics, hosts, sessions = values.shape
    series, rows = metrics * hosts, values.size
    table = SamplesTable(
        hosts=[f"n{h}" for h in range(hosts)],
        cases=[
            Case("s", "bandwidth", "copy_bandwidth", {"pu_nodes": [n], "bank": n}, "GB/s", "higher")
            for n in range(metrics)
        ],
        case=np.repeat(np.arange(metrics, dtype=np.int32), hosts),
        host=np.tile(np.arange(hosts, dtype=np.int32), metrics),
        counts=np.full(series, sessions),
        session_times=np.tile(START + np.arange(sessions) * days * DAY, hosts),
        host_sessions=np.arange(hosts) * sessions,
        event_times={},
        settings={},
        replaced={},
        replaced_of={},
        value=values.ravel(),
        valid=np.ones(rows, dtype=np.bool_),
        judged=np.ones(rows, dtype=np.bool_),
        reason=np.zeros(rows, dtype=np.uint8),
        ordinal=np.tile(np.arange(sessions, dtype=np.uint16), series),
        busy_pus=None,
        reasons=[""],
    )
    return history.changes(judged(table, Undescribed("s")))


@pytest.fixture
def fleet():
    """Four metrics of 20 hosts in 16 sessions: 1 % noise."""
    return 50 * (1 + 0.01 * np.random.default_rng(3).standard_normal((4, 20, 16)))


class TestSingleHosts:
    def test_a_step_has_its_date_direction_size_part_and_host(self, fleet):
        fleet[1, 7, 9:] *= 0.918
        (change,) = changes_of(fleet)
        assert (change.hosts, change.part, change.worse) == (["n7"], "memory of bank 1, bandwidth", True)
        assert change.change == pytest.approx(-0.082, abs=0.015)
        assert (change.after, change.before) == (START + 8 * 30 * DAY, START + 9 * 30 * DAY)
        assert change.when == "2026-10-14 to 2026-11-13"
        assert change.to_dict()["hosts"] == ["n7"]

    def test_disturbed_sessions_are_not_a_change(self, fleet):
        fleet[0, 3, 5] *= 0.5
        fleet[1, 4, 7:9] *= 0.7
        fleet[2, 5, -2:] *= 0.7
        fleet[3, 6, :2] *= 0.7
        assert changes_of(fleet) == []

    def test_a_host_that_broke_and_was_repaired_changed_twice(self, fleet):
        fleet[2, 11, 4:10] *= 0.85
        newest, oldest = changes_of(fleet)
        assert (newest.worse, oldest.worse) == (False, True)
        assert newest.after > oldest.before

    def test_parts_that_change_together_are_one_line(self, fleet):
        fleet[:3, 7, 9:] *= np.array([0.95, 0.9, 0.93])[:, None]
        (change,) = changes_of(fleet)
        assert len(change.others) == 3


class TestFleets:
    def test_many_hosts_at_once_are_one_line(self, fleet):
        fleet[1, ::2, 9:] *= 0.96
        (change,) = changes_of(fleet)
        assert {*change.hosts} == {f"n{h}" for h in range(0, 20, 2)}
        assert (change.of, change.who) == (20, "10 of 20 hosts")

    def test_a_host_that_fell_at_another_time_has_its_own_line(self, fleet):
        fleet[1, :15, 9:] *= 0.94
        fleet[1, 17, 5:] *= 0.9
        first, second = changes_of(fleet)
        assert (len(first.hosts), second.hosts) == (15, ["n17"])

    def test_a_host_that_fell_far_more_at_the_time_has_its_own_line(self, fleet):
        fleet[1, :15, 9:] *= 0.94
        fleet[1, 17, 9:] *= 0.7
        _, second = changes_of(fleet)
        assert (second.hosts, second.change) == (["n17"], pytest.approx(-0.3, abs=0.02))


def record(day, hour, value, status="valid", host="n0", **more):
    return Record(
        *("bandwidth", "copy_bandwidth", "GB/s", "higher", (value,)),
        parameters={"pu_nodes": [0], "bank": 0},
        host=host,
        system="s",
        time=f"2026-{1 + day // 28:02d}-{1 + day % 28:02d}T{hour:02d}:00:00.000+00:00",
        status=status,
        reason="" if status == "valid" else "misplaced",
        **more,
    )


def settings(day, host, **values):
    """Return the record of a host's configuration."""
    (changed,) = [replace(record(day, 1, 1.0, host=host), check="configuration", metric="settings")]
    return replace(changed, unit="1", better="neither", parameters={"settings": values})


@pytest.fixture(scope="module")
def updated():
    """Records of 12 hosts in 11 sessions: new firmware before the eighth, and n3 falls before the fourth."""
    rng = np.random.default_rng(5)
    records = []
    for host, session in itertools.product(range(12), range(11)):
        level = 50 * (0.95 if session > 6 else 1) * (0.85 if host == 3 and session > 2 else 1)
        value = level * (1 + 0.004 * rng.standard_normal())
        records.append(record(14 * session, 2, value, host=f"n{host}"))
        version = "2.6" if session > 6 else "2.4"
        records.append(
            settings(14 * session, f"n{host}", **{"firmware.version": version, "kernel.release": "6.1"})
        )
    return records


def changes_of_records(records):
    table = samples_table.of_records(records)
    return history.changes(judged(table, Undescribed("s"), configurations=lambda: drift.latest(records)))


class TestRecords:
    def test_settings_that_changed_at_the_same_time_are_named(self, updated):
        listed = changes_of_records(updated)
        assert [(len(c.hosts) > 1, c.causes) for c in listed] == [
            (True, ["firmware.version 2.4 -> 2.6"]),
            (False, []),
        ]
        assert listed[1].hosts == ["n3"]
        assert listed[1].change == pytest.approx(-0.16, abs=0.02)

    def test_a_report_lists_changes_and_the_command_offenders(self, updated, tmp_path, run_cli, monkeypatch):
        store.append(tmp_path / "store", updated)
        done = run_cli("report", tmp_path / "store", "-o", tmp_path / "report")
        assert done.status == 0, done.err
        assert "of 12 hosts" in done.out
        assert "firmware.version" in done.out
        suspect = HostVerdict("n5", "s", (), 0, ("its job ended",))
        for time in range(verdict_log.FEWEST_OPEN):
            verdict_log.append(suspect, 1e9 + time, "c", tmp_path / "results" / "verdicts" / "log")
        monkeypatch.setenv("FIRSTTOUCH_OUT", str(tmp_path / "results"))
        done = run_cli("fleet", "history", "--json")
        assert done.status == 0, done.err
        (offender,) = json.loads(done.out)["repeat_offenders"]
        assert (offender["host"], offender["open_verdicts"]) == ("n5", verdict_log.FEWEST_OPEN)
        assert f"open {verdict_log.FEWEST_OPEN} times" in run_cli("fleet", "history").out

    def test_older_records_are_left_out_and_old_files_are_not_read(self, tmp_path):
        now = datetime.datetime.now(datetime.UTC)
        for days in (50, 20, 1):
            time = (now - datetime.timedelta(days=days)).isoformat(timespec="milliseconds")
            file = store.append(tmp_path, [replace(record(1, 2, 10.0), time=time)])
            if days == 50:
                store.values_of(file).write_bytes(b"PAR1")
        for days, files, rows in ((60, 1, 2), (30, 0, 2), (19, 0, 1), (0.5, 0, 0)):
            gathered = inputs.gather([tmp_path], days * 86_400)
            assert (len(gathered.samples().value), len(gathered.unread)) == (rows, files)

    def test_a_page_shows_them(self, updated):
        (changes,) = [block for block in pages.history(changes_of_records(updated)) if isinstance(block, Table)]
        assert len(changes.rows) == 2
        assert "firmware.version 2.4 -> 2.6" in changes.rows[0][-1]


class TestOffenders:
    def test_hosts_that_failed_again(self):
        def log(host, words):
            return [Logged(100.0 + i, host, "s", word, f"reason {i}", "c") for i, word in enumerate(words)]

        words = {
            "n1": ["fail", "fail", "pass", "pass"],
            "n2": ["fail", "pass", "fail", "invalid", "pass"],
            "n3": ["fail", "pass", "suspect", "fail", "pass", "fail"],
            "n4": ["pass", "suspect", "fail"],
            "n5": [],
        }
        offenders = verdict_log.repeat_offenders({host: log(host, listed) for host, listed in words.items()})
        assert [(o.host, o.fails, o.verdicts, o.verdict) for o in offenders] == [
            ("n3", 3, 6, "fail"),
            ("n2", 2, 5, "pass"),
        ]
        assert offenders[0].reason == "reason 5"

    def test_hosts_that_stay_undecided(self):
        def log(host, *metrics):
            words = [("undecided", f"undecided: {m}: 30 % below") if m else ("pass", "") for m in metrics]
            return [Logged(100.0 + i, host, "s", word, reason, "c") for i, (word, reason) in enumerate(words)]

        logs = {
            "n1": log("n1", "copy", "", "copy", "copy", "copy", "copy"),
            "n2": log("n2", "copy", "copy", "copy"),
            "n3": log("n3", "copy", "triad", "copy", "triad"),
            "n4": log("n4", "copy", "copy", "copy", "copy", ""),
        }
        (offender,) = verdict_log.repeat_offenders(logs)
        assert (offender.host, offender.fails, offender.open_verdicts, offender.first) == ("n1", 0, 4, 102.0)
        assert offender.reason == "undecided: copy: 30 % below"
