# SPDX-License-Identifier: Apache-2.0
"""Which hosts are due: the order, and what logs and Slurm say."""

import json
import time

import pytest

from factories.clocks import ManualClock
from factories.stores import log_verdict
from firsttouch import cli
from firsttouch.fleet import actions, tending
from firsttouch.systems.definition import load


@pytest.fixture
def site(tmp_path, monkeypatch, stand_in):
    """A site whose Slurm does not answer; returns a function that logs verdicts: (age in days, verdict)."""
    monkeypatch.setenv("FIRSTTOUCH_OUT", str(tmp_path))
    monkeypatch.setenv("FIRSTTOUCH_SITE", str(tmp_path / "site"))
    monkeypatch.setenv("FIRSTTOUCH_EFFORT", "smoke")
    for tool in ("sinfo", "squeue", "sacct", "scontrol"):
        stand_in(tool, "exit 1")

    def logged(host, *verdicts, system="amd-opteron"):
        for age, word in verdicts:
            log_verdict(tmp_path, host, word, 86400 * age, system)

    return logged


def due(capsys, *argv, status=1):
    assert cli.main(["fleet", "due", "--system", "amd-opteron", *argv, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def test_why_hosts_are_due_by_the_log(site, capsys):
    site("fresh", (1, "pass"))
    site("old", (9, "pass"))
    site("older", (10, "pass"))
    site("bad", (40, "pass"), (1.1, "fail"))
    site("doubtful", (2.1, "suspect"))
    site("just", (0.9, "fail"))
    site("other", (90, "pass"), system="else")
    plan = due(capsys)
    assert {h["host"]: h["reason"] for h in plan["hosts"]} == {
        "doubtful": "last verdict 2.1 d ago",
        "bad": "last verdict 26.4 h ago",
        "older": "last verdict 10.0 d ago",
        "old": "last verdict 9.0 d ago",
    }
    assert [h["host"] for h in plan["hosts"]] == ["doubtful", "bad", "older", "old"]
    assert "Slurm's states" in plan["note"]
    assert [h["host"] for h in due(capsys, "--max-age", "12h")["hosts"]][-1] == "fresh"
    plan = due(capsys, "--hosts", "old,new[1-2],just,fresh", "--count", "4")
    assert [h["host"] for h in plan["hosts"]] == ["new1", "new2", "old", "fresh"]
    plan = due(capsys, "--hosts", "old,new[1-2]", "--count", "1")
    assert ([h["host"] for h in plan["hosts"]], plan["later"]) == (["new1"], 2)
    assert cli.main(["fleet", "due", "--system", "amd-opteron", "--why"]) == 1
    assert "last verdict 9.0 d ago" in capsys.readouterr().out
    assert cli.main(["fleet", "due", "--system", "amd-opteron", "--hosts", "new[1-3],just", "--count", "2"]) == 1
    assert capsys.readouterr().out == "new[1-2]\n"


def test_without_slurm_the_hosts_of_the_log_are_due(site, capsys, monkeypatch, tmp_path):
    site("old", (9, "pass"))
    monkeypatch.setenv("PATH", str(tmp_path))
    plan = due(capsys, status=0)
    assert plan["hostlist"] == "old"
    assert "'sinfo' is not on PATH" in plan["note"]


def test_hosts_that_slurm_does_not_offer_are_left_out(site, capsys, stand_in, tmp_path):
    site("n1", (20, "pass"))
    states = [
        "n1 idle",
        "n2 idle+drain",
        "n3 allocated+maintenance",
        "n4 mixed",
        "n5 idle",
        "n6 down+not_responding",
    ]
    stand_in("sinfo", f"printf '%s\\n' {' '.join(map(repr, states))}")
    jobs = ["PENDING|n4|", "RUNNING||n[5-6]", "PENDING||"]
    stand_in("squeue", f"printf '%s\\n' {' '.join(map(repr, jobs))}")
    reservations = ["ReservationName=a Nodes=n7 State=ACTIVE", "ReservationName=b Nodes=n1 State=INACTIVE"]
    stand_in("scontrol", f"printf '%s\\n' {' '.join(map(repr, reservations))}")
    (tmp_path / "fleet").mkdir()
    held = actions.Actions()
    held.end(held.begin("hold", "n8", reason="new DIMM"))
    held.begin("hold", "n9", reason="slow")
    held.end(held.begin("hold", "n1", reason="slow"))
    held.end(held.begin("release", "n1"))
    plan = due(capsys, "--hosts", "n[1-9]", status=0)
    assert [h["host"] for h in plan["hosts"]] == ["n1"]
    assert plan["left_out"] == {
        **{"n2": "drain", "n3": "maintenance", "n6": "down and not_responding"},
        **{"n4": "has a pending job", "n5": "has a running job"},
        # Slurm shows these in the states of the hosts after some seconds only.
        **{"n7": "reserved", "n8": "held", "n9": "held"},
    }


def test_a_host_becomes_due_as_time_goes_by(site):
    site("n1", (0, "pass"))
    site("n2", (0, "fail"))
    clock, system = ManualClock(date=time.time()), load("amd-opteron")
    due_hosts = []
    for _ in range(9):
        plan = tending.due(system, ["n1", "n2"], clock=clock)
        due_hosts.append([candidate.host for candidate in plan.hosts])
        clock.sleep(86400)
    # A fail is repeated after a day, a pass after a week.
    assert due_hosts[0] == []
    assert due_hosts[1:7] == [["n2"]] * 6
    assert {*due_hosts[8]} == {"n1", "n2"}


def test_bad_input_is_one_line(site, capsys, stand_in):
    stand_in("sinfo", "echo c1 idle")
    for tool in ("squeue", "scontrol"):
        stand_in(tool, "true")
    for argv in ((), ("--hosts", "n[1-"), ("--count", "0"), ("--max-age", "0h"), ("--max-age", "soon")):
        with pytest.raises(SystemExit) if argv and argv[0] != "--hosts" else pytest.MonkeyPatch.context():
            assert cli.main(["fleet", "due", "--system", "amd-opteron", *argv]) == 2
        assert capsys.readouterr().err.count("\n") == 1
