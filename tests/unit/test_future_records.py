# SPDX-License-Identifier: Apache-2.0
"""Records of the future, which a host with a wrong clock wrote, are named and are no session of a host."""

import datetime
import json

import pytest
from msgspec.structs import force_setattr
from test_verdict import COPIES, rates, system_of

from factories.clocks import ManualClock
from firsttouch.clock import SYSTEM_CLOCK
from firsttouch.records.schema import append
from firsttouch.report import inputs

REFERENCE = {**COPIES, "tolerance": {"lower": "-2 %"}}
#: The time of the commands that read the records.
NOW = datetime.datetime(2026, 3, 2, 12, tzinfo=datetime.UTC)


def session(host, age, value):
    """Return a session of five repetitions, that many days ago (negative: in the future)."""
    time = NOW - datetime.timedelta(days=age)
    return rates(*[value] * 5, host=host, day=time.strftime("%Y-%m-%d"))


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    """Hosts whose clocks were a year ahead in one session; returns the file of their records."""
    monkeypatch.setattr(SYSTEM_CLOCK, "time", NOW.timestamp)
    monkeypatch.setenv("FIRSTTOUCH_SYSTEMS", str(tmp_path))
    system_of(tmp_path, REFERENCE)
    records = tmp_path / "records.jsonl"
    append(
        records,
        [
            *session("bad", -365, 10.0),
            *session("bad", 7, 7.0),
            *session("repaired", -365, 7.0),
            *session("repaired", 7, 10.0),
            *session("only", -365, 10.0),
            *session("good", 7, 10.0),
            *session("new", 0, 10.0),
            *session("other", 7, 10.0),
        ],
    )
    return records


def test_a_store_keeps_records_of_the_future(fleet, run_cli, tmp_path):
    kept = tmp_path / "st"
    done = run_cli("store", "append", kept, fleet)
    assert done.out.startswith(f"{len(fleet.read_text().splitlines())} records")
    assert "firsttouch: bad: records are dated " in done.err
    # A store that is appended to another one keeps them as well.
    run_cli("store", "append", tmp_path / "second", kept)
    judged = [run_cli("validate", "--system", "s", given) for given in (fleet, kept, tmp_path / "second")]
    assert len({done.out for done in judged}) == len({done.err for done in judged}) == 1


def test_only_records_of_the_future_are_refused_with_the_reason(fleet, run_cli, tmp_path):
    ahead = tmp_path / "ahead.jsonl"
    ahead.write_text("".join(line for line in fleet.open() if '"host": "only"' in line))
    done = run_cli("report", "--compare", ahead, fleet, "-o", tmp_path / "out")
    assert done.status == 2
    assert done.err.startswith("firsttouch: error: no record counts: only: records are dated ")


def test_the_newest_session_is_never_one_of_the_future(fleet, run_cli, tmp_path):
    done = run_cli("validate", "--system", "s", fleet)
    words = {line.split()[1]: line.split()[2].rstrip(":") for line in done.out.splitlines()}
    assert words == {
        "bad": "fail",
        "repaired": "suspect",
        "only": "suspect",
        "good": "pass",
        "new": "pass",
        "other": "pass",
    }
    sentence = "records are dated 2027-03-02, which is in the future, and are ignored: "
    sentence += "the host's clock was 364 days ahead or more"
    assert done.err.splitlines() == [f"firsttouch: {host}: {sentence}" for host in ("bad", "only", "repaired")]
    assert f"missing: {sentence}" in done.out

    report = run_cli("report", "--system", "s", fleet, "-o", tmp_path / "report")
    assert (report.status, report.err.count(sentence)) == (0, 3)
    assert "clock of bad" in (tmp_path / "report" / "index.html").read_text()
    prometheus = (tmp_path / "report" / "summary.prom").read_text()
    assert 'firsttouch_verdict{host="bad",system="s",verdict="fail"} 1.0' in prometheus
    measured = [line for line in prometheus.splitlines() if line.startswith("firsttouch_measured_timestamp")]
    assert len(measured) == 5
    assert all(float(line.split()[1]) < NOW.timestamp() for line in measured)


def test_a_few_hosts_have_the_same_verdicts(fleet, run_cli, tmp_path):
    few = tmp_path / "few.jsonl"
    append(few, [*session("bad", -365, 10.0), *session("bad", 7, 7.0)])
    assert run_cli("report", "--system", "s", few, "-o", tmp_path / "report").status == 0
    document = json.loads((tmp_path / "report" / "summary.json").read_text())
    assert [verdict["verdict"] for verdict in document["verdicts"]] == ["fail"]
    assert "clock of bad" in [problem["name"] for problem in document["problems"]]


@pytest.mark.parametrize(
    ("time", "counts"),
    [
        ("2023-11-14T22:13:20.000+00:00", True),
        ("2023-11-14T23:00:00.000+00:00", True),  # clocks differ by up to an hour
        ("2023-11-14T23:14:00.000+00:00", False),
        ("2023-11-14T12:00:00.000-12:00", False),
        ("2023-11-15T10:00:00.000+12:00", True),
        ("2023-11-16T00:00:00.000Z", False),
        ("2099-01-01T00:00:00", False),
    ],
)
def test_times_with_any_offset(tmp_path, time, counts):
    records = tmp_path / "records.jsonl"
    append(records, [*rates(1.0), *rates(2.0, day="1999-01-01")])
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    lines[0]["time"] = time
    records.write_text("".join(json.dumps(line) + "\n" for line in lines))
    gathered = inputs.gather([records])
    now = ManualClock(date=datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.UTC).timestamp())
    force_setattr(gathered, "clock", now)
    assert len(gathered.samples().value) == 1 + counts
    assert bool(gathered.ahead("s")) == (not counts)
    if time.startswith("2023-11-14T23:14"):
        assert gathered.ahead("s")["n1"].endswith("the host's clock was 1 hour ahead or more")
    if time.startswith("2023-11-16"):
        assert gathered.ahead("s")["n1"].endswith("the host's clock was 25 hours ahead or more")
