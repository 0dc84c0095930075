# SPDX-License-Identifier: Apache-2.0
"""Which hosts are due: the order, the budget, and what logs, Slurm and earlier submissions say."""

import datetime
import json
import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factories.clocks import ManualClock
from firsttouch import cli
from firsttouch.campaign import campaigns, journal
from firsttouch.fleet import actions, screening
from firsttouch.fleet.site_settings import Screening
from firsttouch.records.schema import Record
from firsttouch.systems.definition import load

HOST = st.tuples(
    st.floats(0, 2000) | st.just(math.inf),
    st.floats(0, 30),
    st.sampled_from([0.0, 0.02, 0.5, 0.9]),
    st.floats(0.1, 9),
)


@settings(deadline=None)
@given(st.lists(HOST, min_size=1, max_size=60), st.floats(1, 1000), st.floats(0, 300))
def test_the_order_and_the_budget(fleet, max_age, budget):
    age, incidents, doubt, cost = (np.array(column) for column in zip(*fleet, strict=True))
    rate = screening.rates(incidents, np.full(len(fleet), 1000.0))
    with np.errstate(invalid="ignore"):
        hours = np.where(np.isinf(age), math.inf, screening.bad_hours(age, rate, doubt))
    order, fitting = screening.chosen(age, hours, cost, max_age, budget)
    assert cost[order[:fitting]].sum() <= budget * (1 + 1e-6)
    assert fitting == len(order) or cost[order[: fitting + 1]].sum() > budget
    assert len(set(order)) == len(order)
    # All hosts over the highest age come first, the oldest first; then the most bad hours per node hour.
    over = age[order] > max_age
    assert over.sum() == (age > max_age).sum()
    assert list(over) == sorted(over, reverse=True)
    assert list(age[order][over]) == sorted(age[order][over], reverse=True)
    worth = (hours / cost)[order][~over]
    assert all(np.diff(worth) <= 0)
    assert all(worth >= screening.WORTH)
    # Deterministic, whatever the budget was.
    assert list(screening.chosen(age, hours, cost, max_age, math.inf)[0]) == list(order)


@settings(deadline=None)
@given(st.floats(1e-7, 0.1), st.floats(0, 5000), st.floats(0, 0.99), st.floats(0, 5000))
def test_the_model_is_monotone(rate, age, doubt, more):
    def of(function, *values):
        return float(function(*(np.array([v]) for v in values))[0])

    for function in (screening.probability, screening.bad_hours):
        assert of(function, age, rate, doubt) <= of(function, age + more, rate, doubt) + 1e-6
        assert of(function, age, rate, doubt) <= of(function, age, 2 * rate, doubt) + 1e-6
    assert (
        -1e-6
        <= of(screening.bad_hours, age, rate, doubt)
        <= age * of(screening.probability, age, rate, doubt) + 1e-6
    )
    # For small rates: rate x age^2 / 2.
    if rate * age < 0.01 and age > 1:
        assert of(screening.bad_hours, age, rate, 0.0) == pytest.approx(rate * age**2 / 2, rel=0.01, abs=1e-6)


def test_a_host_s_own_record_counts_more_than_its_fleet_s():
    exposure = np.full(100, 4000.0)
    incidents = np.zeros(100)
    incidents[:2] = 10, 1
    rate = screening.rates(incidents, exposure)
    assert rate[0] > 3 * rate[1] > 3 * rate[2] > 0
    assert rate[0] == pytest.approx(10 / 4000, rel=0.3)
    assert float(screening.rates(np.zeros(1), np.zeros(1))[0]) == pytest.approx(1 / screening.FIRST_MTBI)


@pytest.fixture
def site(tmp_path, monkeypatch, stand_in):
    """A site without Slurm; returns a function that logs verdicts: (age in days, verdict)."""
    monkeypatch.setenv("FIRSTTOUCH_OUT", str(tmp_path))
    monkeypatch.setenv("FIRSTTOUCH_SITE", str(tmp_path / "site"))
    monkeypatch.setenv("FIRSTTOUCH_EFFORT", "smoke")
    for tool in ("sinfo", "squeue", "sacct", "scontrol"):
        stand_in(tool, "exit 1")
    (tmp_path / "verdicts" / "log").mkdir(parents=True)

    def logged(host, *verdicts, system="amd-opteron"):
        lines = [
            {
                "time": time.time() - 86400 * age,
                "host": host,
                "system": system,
                "verdict": word,
                "reason": "",
                "source": "c",
            }
            for age, word in verdicts
        ]
        file = tmp_path / "verdicts" / "log" / f"{host}.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))

    return logged


def due(capsys, *argv, status=0):
    assert cli.main(["fleet", "due", "--system", "amd-opteron", *argv, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def test_why_hosts_are_due_by_the_log(site, capsys):
    site("fresh", (1, "pass"))
    site("old", (9, "pass"))
    site("bad", (1.1, "fail"))
    site("doubtful", (1.1, "suspect"))
    site("just", (0.9, "fail"))
    site("thrice", (9, "fail"), (6, "suspect"), (3.9, "fail"))
    site("again", (60, "fail"), (59, "pass"), (40, "fail"), (39, "fail"), (38, "pass"), (6, "pass"))
    site("other", (90, "pass"), system="else")
    plan = due(capsys)
    assert {h["host"]: h["reasons"] for h in plan["hosts"]} == {
        "old": ["last verdict 9.0 d ago"],
        "bad": ["fail"],
        "doubtful": ["suspect"],
        "again": ["failed 2 times"],
    }
    assert plan["hosts"][0]["host"] == "old"
    assert plan["fresh"] == 3
    assert "without Slurm's states" in plan["notes"][0]
    plan = due(capsys, "--hosts", "old,new[1-2]", "--node-hours", "2h")
    assert [h["host"] for h in plan["hosts"]] == ["new1", "new2"]
    assert (plan["later"], plan["over_age"]) == (1, 1)
    assert cli.main(["fleet", "due", "--system", "amd-opteron"]) == 0
    assert "last verdict 9.0 d ago" in capsys.readouterr().out


def test_a_changed_configuration_since_the_last_verdict_is_a_reason(site, capsys, tmp_path):
    def configured(host, age, kernel):
        day = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=age)
        settings = {"settings": {"kernel.release": kernel}}
        more = {"host": host, "system": "amd-opteron", "time": day.isoformat(timespec="milliseconds")}
        return Record("configuration", "settings", "1", "neither", (1.0,), settings, **more)

    for host in ("n1", "n2", "n3"):
        site(host, (6, "pass"))
    records = [configured("n1.site", 7, "6.1"), configured("n1.site", 5, "6.2"), configured("n2", 8, "6.1")]
    records += [configured("n2", 7, "6.2"), configured("n3", 5, "6.2")]
    file = tmp_path / "records.jsonl"
    file.write_text("".join(json.dumps(r.to_dict()) + "\n" for r in records))
    plan = due(capsys, str(file))
    assert {h["host"]: h["reasons"] for h in plan["hosts"]} == {"n1": ["changed configuration"]}


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
    jobs = ["7|PENDING|2020-01-01T00:00:00|n4||Priority", "8|RUNNING|yesterday||n[5-6]|None"]
    stand_in("squeue", f"printf '%s\\n' {' '.join(map(repr, jobs))} '9|PENDING|N/A|||x'")
    stand_in("sbatch", f'echo "$*" >>{tmp_path}/calls; echo 7')
    reservations = ["ReservationName=a Nodes=n7 State=ACTIVE", "ReservationName=b Nodes=n1 State=INACTIVE"]
    stand_in("scontrol", f"printf '%s\\n' {' '.join(map(repr, reservations))}")
    (tmp_path / "fleet").mkdir()
    held = actions.Actions()
    held.end(held.begin("hold", "n8", reason="new DIMM"))
    held.begin("hold", "n9", reason="slow")
    held.end(held.begin("hold", "n1", reason="slow"))
    held.end(held.begin("release", "n1"))
    plan = due(capsys, "--hosts", "n[1-9]")
    assert [h["host"] for h in plan["hosts"]] == ["n1"]
    assert plan["left_out"] == {
        **{"n2": "drain", "n3": "maintenance", "n6": "down and not_responding"},
        # Slurm shows these in the states of the hosts after some seconds only.
        **{"n7": "reserved", "n8": "held", "n9": "held"},
    }
    assert set(plan["busy"]) == {"n4", "n5"}
    assert [line.split(",")[0] for line in plan["late"]] == ["n4: job 7 is pending"]
    # Submitted, the host's node hours count from then on.
    assert due(capsys, "--hosts", "n1", "--submit", "--node-hours", "1h")["jobs"] == ["7"]
    first = (tmp_path / "calls").read_text().splitlines()[0]
    assert "--nodelist=n1 " in first
    assert " --nice=10000 " in first
    plan = due(capsys, "--hosts", "n1", "--submit", "--node-hours", "1h")
    assert (plan["hosts"], plan["spent"], plan["jobs"]) == ([], 1.0, [])
    assert len(due(capsys, "--hosts", "n1", "--node-hours", "2h")["hosts"]) == 1


def test_a_host_becomes_due_as_time_goes_by(site):
    site("n1", (0, "pass"))
    site("n2", (0, "fail"))
    clock, system = ManualClock(date=time.time()), load("amd-opteron")
    due_hosts = []
    for _ in range(9):
        plan = screening.due(system, Screening(), ["n1", "n2"], clock=clock)
        due_hosts.append([candidate.host for candidate in plan.hosts])
        clock.sleep(86400)
    # A fail is repeated after a day, a pass after a week.
    assert due_hosts[0] == []
    assert due_hosts[1:7] == [["n2"]] * 6
    assert {*due_hosts[8]} == {"n1", "n2"}


def test_the_budget_counts_hosts_whose_submitter_was_killed_and_no_refused_ones(site, tmp_path):
    plan = {"system": "amd-opteron", "dataset": "lambda", "aligners": (), "repetitions": 1, "only": ["topology"]}
    campaign = campaigns.create(campaigns.plan("validate", tmp_path / "campaigns" / "screening-x", **plan))
    journal.note_without_job(campaign.folder, ["n1", "n2", "n3"], "its job was not submitted")
    journal.note(campaign.folder, "5", 1, ["n1"])
    journal.note_without_job(campaign.folder, ["n2"], "no such host")
    now = time.time()
    assert screening.spent_hours("amd-opteron", now - 3600, 0.5) == 1.0
    assert screening.spent_hours("amd-opteron", now + 60, 0.5) == 0.0
    assert screening.spent_hours("intel-xeon", now - 3600, 0.5) == 0.0
    assert screening.node_hours("amd-opteron") == 1.0
    own = campaign.host("n1")
    own.open()
    own.write(journal.Entry("topology", "measured", journal.now(), "n1", seconds=1800.0))
    assert screening.node_hours("amd-opteron") == 0.5


def test_bad_input_is_one_line(site, capsys, stand_in):
    stand_in("sinfo", "echo c1 idle")
    for tool in ("squeue", "scontrol"):
        stand_in(tool, "true")
    for argv in ((), ("--hosts", "n[1-"), ("--node-hours", "-3h"), ("--max-age", "0h"), ("--max-age", "soon")):
        with pytest.raises(SystemExit) if argv and argv[0] != "--hosts" else pytest.MonkeyPatch.context():
            assert cli.main(["fleet", "due", "--system", "amd-opteron", *argv]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_jobs_give_way_as_the_site_says():
    assert screening.sbatch_options(Screening()) == ["--nice=10000"]
    own = Screening(qos="scavenger", partition="all", nice=0, sbatch=("--time=1:00:00",))
    assert screening.sbatch_options(own) == ["--qos=scavenger", "--partition=all", "--time=1:00:00"]
