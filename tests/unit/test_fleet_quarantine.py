# SPDX-License-Identifier: Apache-2.0
"""Quarantine by the rules and by hand, with a stand-in for Slurm that keeps nodes and reservations in files.

Also which hosts are due: the order, and what logs and Slurm say.
"""

import json
import os
import select
import subprocess
import sys
import time

import pytest

from factories.clocks import ManualClock
from factories.stores import log_verdict
from factories.systems import system_file
from firsttouch import cli
from firsttouch.campaign import campaigns
from firsttouch.campaign.journal import Entry, now
from firsttouch.campaign.leases import Holder, Leases
from firsttouch.errors import BadInput
from firsttouch.execution import slurm
from firsttouch.fleet import actions, exclusion, site_settings, tending
from firsttouch.fleet.actions import Actions
from firsttouch.records.schema import Record
from firsttouch.systems.definition import load

#: nodes/NAME has a node's state and reason, reservations/NAME a reservation; "refusal" answers all changes.
SCONTROL = """
S={folder}
case "$1" in create|delete|update)
  echo "$*" >>$S/changes
  [ -f $S/refusal ] && {{ cat $S/refusal >&2; exit 1; }};;
esac
case "$*" in
  "--oneliner show reservation") cat $S/reservations/* 2>/dev/null || echo "No reservations in the system";;
  "--oneliner show reservation "*) cat $S/reservations/$4;;
  "--oneliner show node "*) [ -f $S/nodes/$4 ] || {{ echo "Node $4 not found" >&2; exit 1; }}
    echo "NodeName=$4 $(cat $S/nodes/$4)";;
  create*) name=${{2#reservation=}}; echo "ReservationName=$name Nodes=${{3#nodes=}} State=ACTIVE" \
    >$S/reservations/$name;;
  delete*) rm $S/reservations/${{2#reservation=}};;
  update*resume) echo "State=IDLE" >$S/nodes/${{2#nodename=}};;
  update*) echo "State=IDLE+DRAIN Reason=${{4#reason=}}" >$S/nodes/${{2#nodename=}};;
esac"""
SETTINGS = "hold: {{act: {act}, max_out: {max_out}, effort: smoke, steps: [topology]}}\n"


class Slurm:
    """The stand-in's files, the site's settings, and the log of verdicts."""

    def __init__(self, folder):
        self.folder = folder
        for name in ("nodes", "reservations", "site", "out/verdicts/log"):
            (folder / name).mkdir(parents=True)
        for name in ("n1", "n2", "n3", "n4"):
            self.node(name, "IDLE")

    def node(self, name, state, reason=""):
        (self.folder / "nodes" / name).write_text(f"State={state} Reason={reason}\n")

    def settings(self, act="true", max_out="100 %", more=""):
        text = SETTINGS.format(act=act, max_out=max_out)
        (self.folder / "site" / "fleet.yaml").write_text(text + more)

    def verdict(self, host, word="fail", *, age=60.0, now=None, system="local", source="c-1"):
        evidence = {"reason": "copy: 12 GB/s, $(id)", "source": source, "now": now}
        log_verdict(self.folder / "out", host, word, age, system, **evidence)

    @property
    def reserved(self):
        return sorted(file.name for file in (self.folder / "reservations").iterdir())

    @property
    def changes(self):
        file = self.folder / "changes"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def fake(tmp_path, stand_in, own_folders):
    """A site that acts, with four idle hosts; tests of hosts are submitted and wait."""
    stand_in("scontrol", SCONTROL.format(folder=tmp_path))
    stand_in("sinfo", f"for n in {tmp_path}/nodes/*; do echo ${{n##*/}} idle; done")
    stand_in("sbatch", f"echo $* >>{tmp_path}/jobs; wc -l <{tmp_path}/jobs")
    jobs = f"[ -e {tmp_path}/ended ] || for j in $(seq $(wc -l <{tmp_path}/jobs)); do echo $j PENDING 0; done"
    stand_in("squeue", f'case "$*" in *--name*) ;; *) [ -f {tmp_path}/jobs ] && {jobs};; esac')
    stand_in("sacct", "exit 0")
    stand_in("scancel", f"echo $* >>{tmp_path}/cancelled")
    slurm_files = Slurm(tmp_path)
    slurm_files.settings()
    return slurm_files


def fleet(*argv):
    return cli.main(["fleet", *argv])


def tended(clock):
    """Do one pass at the time of a clock; return what it said."""
    lines = []
    with actions.hold_lock(wait=True, clock=clock) as (journal, lock):
        tending.Round(journal, lock, site_settings.load(), lines.append).tend()
    return lines


def listed():
    return [excluded.host for excluded in exclusion.exclusions(Actions(), site_settings.load()).hosts]


def done(host=None):
    return [(a.host, a.what) for a in Actions().lines if a.state == "done" and host in {None, a.host}]


def test_a_site_that_only_observes_changes_nothing(fake, capsys):
    fake.settings(act="false")
    fake.verdict("n1")
    fake.verdict("n2", age=8 * 86400)
    fake.verdict("n3", "suspect")
    for _ in range(3):
        assert fleet("tend") == 0
        captured = capsys.readouterr()
        assert not {"n2", "n3"} & set(captured.out.split())
        assert "n1 would be held: copy: 12 GB/s" in captured.out
        assert "the rules only observe" in captured.err
    assert fake.changes == []
    assert done() == []
    fake.settings(act="true")
    assert fleet("tend") == 0
    assert fake.reserved == ["firsttouch-n1"]


def test_hosts_are_held_in_order_up_to_the_limit_and_tested_in_their_reservations(fake, capsys):
    fake.settings(max_out="50 %")
    for age, host in enumerate(("n3", "n2", "n1")):
        fake.verdict(host, age=1000 - age)
    fake.verdict("n4", "pass")
    for _ in range(2):
        assert fleet("tend", "--json") == 0
        assert fake.reserved == ["firsttouch-n2", "firsttouch-n3"]
        document = json.loads(capsys.readouterr().out)
        limit = "2 of 4 hosts of local are out of service by these rules, and hold.max_out is 50 %"
        assert document["lines"][-1] == f"1 more hosts are not held: {limit}"
    jobs = (fake.folder / "jobs").read_text().splitlines()
    assert len(jobs) == 2
    assert "--nodelist=n3" in jobs[0]
    assert "--reservation=firsttouch-n3" in jobs[0]
    assert fleet("status", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["hosts"]
    assert [(row["host"], row["state"], row["source"]) for row in rows] == [
        (h, "held", "c-1") for h in ("n2", "n3")
    ]
    assert rows[0]["next"] == "0 of 2 passes, test 1 is job 2"


@pytest.mark.parametrize("host", ["ALL", "n[1-4]", "n9"])
def test_what_is_not_one_host_of_slurm_is_never_reserved(fake, host, capsys):
    fake.verdict(host)
    assert fleet("tend") == 0
    assert fake.changes == []
    assert fleet("hold", host.replace("[1-4]", ""), "--system", "local") in {1, 2}
    assert not [change for change in fake.changes if change.startswith("create")]


def test_what_an_admin_set_is_left_alone(fake, capsys):
    for host in ("n1", "n2", "n3"):
        fake.verdict(host)
    fake.node("n1", "IDLE+DRAIN", "fan of psu 2")
    fake.node("n2", "DOWN", "no power")
    (fake.folder / "reservations" / "burnin").write_text("ReservationName=burnin Nodes=n[3-4] State=ACTIVE\n")
    assert fleet("tend") == 0
    output = capsys.readouterr().out
    assert "n1: fail, and not held: it is DRAIN: fan of psu 2" in output
    assert "n2: fail, and not held: it is DOWN: no power" in output
    assert "n3: fail, and not held: it is in the reservation burnin" in output
    assert fleet("hold", "n3") == 2
    assert "n3 is in the reservation burnin, so it is left alone" in capsys.readouterr().err
    assert fake.changes == []


def test_a_reservation_that_somebody_deleted_is_not_made_again(fake, capsys):
    fake.verdict("n1")
    assert fleet("tend") == 0
    (fake.folder / "reservations" / "firsttouch-n1").unlink()
    for _ in range(2):
        assert fleet("tend") == 0
    assert fake.reserved == []
    assert done("n1")[-1] == ("n1", "returned")
    assert (fake.folder / "cancelled").read_text().split() == ["1"]
    # A newer fail holds it again after the cool-down only.
    fake.verdict("n1", age=-5)
    assert fleet("tend") == 0
    assert "n1: fail, and not held: it cools down for 24.0 h more" in capsys.readouterr().out
    assert fake.reserved == []


def test_a_drain_of_somebody_else_ends_the_hold_and_a_resume_the_drain(fake):
    fake.verdict("n1")
    assert fleet("tend") == 0
    fake.node("n1", "IDLE+DRAIN", "I look at it")
    assert fleet("tend") == 0
    assert fake.reserved == []
    assert "I look at it" in (fake.folder / "nodes" / "n1").read_text()
    assert listed() == ["n1"]
    fake.node("n1", "IDLE")
    assert listed() == ["n1"]
    assert fleet("tend") == 0
    assert fake.reserved == ["firsttouch-n1"]
    journal = Actions()
    journal.note("drain", "n2", reason="slow")
    fake.node("n2", "IDLE")
    assert fleet("tend") == 0
    assert done("n2")[-1] == ("n2", "returned")


def test_a_repaired_host_that_somebody_drains_before_it_passes_stays_listed(fake):
    fake.verdict("n1")
    assert fleet("tend") == 0
    journal = Actions()
    journal.end(journal.begin("drain", "n1", reason="slow"))
    fake.node("n1", "IDLE+DRAIN", "firsttouch: slow; hold-n1")
    assert fleet("tend") == 0
    assert fleet("hold", "n1", "--system", "local", "--reason", "new DIMM") == 0
    fake.node("n1", "IDLE+DRAIN", "alice: RMA")
    assert fleet("tend") == 0
    assert (fake.reserved, listed()) == ([], ["n1"])
    fake.node("n1", "IDLE")
    assert listed() == ["n1"]


@pytest.mark.parametrize("before", ["", "alice: fan"])
def test_a_drain_of_somebody_else_ends_a_hold_by_hand_but_not_one_that_began_drained(fake, before):
    fake.node("n1", "IDLE+DRAIN" if before else "IDLE", before)
    assert fleet("hold", "n1", "--system", "local", "--reason", "new DIMM") == 0
    assert fleet("tend") == 0
    assert fake.reserved == ["firsttouch-n1"]
    fake.node("n1", "IDLE+DRAIN", "alice: RMA")
    assert fleet("tend") == 0
    assert (fake.reserved, (fake.folder / "cancelled").read_text().split()) == ([], ["1"])
    assert "alice: RMA" in (fake.folder / "nodes" / "n1").read_text()
    assert listed() == []


def test_a_release_that_was_interrupted_after_a_drain_of_somebody_else_leaves_the_verdict(fake):
    fake.verdict("n1")
    assert fleet("hold", "n1") == 0
    fake.node("n1", "IDLE+DRAIN", "alice: fan")
    # Slurm has not executed it.
    Actions().begin("release", "n1", hand=True, reason="drained by somebody else", drained="alice: fan")
    assert fleet("tend") == 0
    assert (fake.reserved, listed()) == ([], ["n1"])


def test_status_fails_if_slurm_does_not_answer(fake, stand_in, run_cli):
    assert run_cli("fleet", "status").status == 0
    stand_in("scontrol", "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1")
    status = run_cli("fleet", "status")
    assert (status.status, status.out) == (1, "no host is held\n")
    assert "the reservations in Slurm are unknown" in status.err


def test_a_host_that_we_drained_is_resumed_only_in_its_reservation(fake, capsys):
    fake.node("n1", "IDLE+DRAIN", "firsttouch: slow; c-1")
    fake.node("n2", "IDLE+DRAIN", "fan")
    assert fleet("hold", "n[1-2]", "--system", "local", "--reason", "new DIMM") == 0
    assert "n2 is DRAIN: fan: its test waits until somebody resumes it" in capsys.readouterr().out
    assert [change.split()[:2] for change in fake.changes] == [
        ["create", "reservation=firsttouch-n1"],
        ["update", "nodename=n1"],
        ["create", "reservation=firsttouch-n2"],
    ]
    assert fleet("hold", "n1") == 2
    assert "n1 is held already: new DIMM" in capsys.readouterr().err
    assert fleet("release", "n[1-3]") == 2
    assert "n3 is not held" in capsys.readouterr().err
    assert fake.reserved == []


def test_a_user_without_rights_gets_one_line(fake, capsys):
    (fake.folder / "refusal").write_text("Error creating the reservation: Invalid user id\n")
    fake.verdict("n1")
    fake.verdict("n2")
    assert fleet("tend") == 1
    assert capsys.readouterr().err.splitlines() == [
        "firsttouch: error: n1: only an operator or administrator of Slurm may hold, release and drain hosts "
        "(scontrol: Error creating the reservation: Invalid user id)"
    ]
    assert len(fake.changes) == 1


def test_a_hold_that_slurm_did_not_answer_has_an_owner(fake, capsys):
    """The controller made the reservation, but its answer got lost."""
    text = "slurm_create_reservation error: Socket timed out on send/recv operation"
    (fake.folder / "refusal").write_text(f"{text}\n")
    fake.verdict("n1")
    assert fleet("tend") == 1
    assert text in capsys.readouterr().err
    (fake.folder / "refusal").unlink()
    slurm.reserve("firsttouch-n1", "n1", "root")
    assert fleet("status") == 0
    assert fleet("tend") == 0
    assert done("n1") == [("n1", "hold"), ("n1", "test")]
    assert sum(change.startswith("create") for change in fake.changes) == 2


def test_a_damaged_journal_stops_everything(fake, capsys):
    fake.verdict("n1")
    assert fleet("tend") == 0
    file = fake.folder / "out" / "fleet" / "actions.jsonl"
    file.write_text(file.read_text().replace('"hold"', '"held"', 1))
    assert fleet("tend") == 2
    assert "actions.jsonl:1: not a line of the journal of actions" in capsys.readouterr().err
    with pytest.raises(BadInput):
        Actions()


def test_times_of_the_future_do_not_count(fake):
    clock, ahead = ManualClock(), ManualClock(date=ManualClock().time() + 84 * 86400)
    (fake.folder / "out" / "fleet").mkdir()
    journal = Actions(clock=ahead)
    for host in ("n1", "n2"):
        journal.end(journal.begin("hold", host, system="local", reason="slow"))
        journal.end(journal.begin("release", host, reason="2 tests in a row passed"))
    journal.end(journal.begin("drain", "n2", system="local", reason="slow"))
    fake.node("n2", "IDLE+DRAIN", "firsttouch: slow; c-1")
    for host in ("n1", "n4"):
        fake.verdict(host, now=clock.time())
    tended(clock)
    assert fake.reserved == ["firsttouch-n1", "firsttouch-n4"]
    # A host that was held after a drain of the future is not taken for one that was drained in its hold.
    fake.node("n2", "IDLE")
    slurm.reserve("firsttouch-n2", "n2", "root")
    journal = Actions(clock=clock)
    journal.end(journal.begin("hold", "n2", system="local", reason="new DIMM", hand=True))
    tended(clock)
    assert "firsttouch-n2" in fake.reserved
    assert Actions(clock=clock).lives["n2"].hold is not None


@pytest.mark.parametrize("length", [3, 76, 200])
def test_the_campaign_of_a_test_has_a_name_that_is_one(fake, length):
    host, clock = "n" * length, ManualClock()
    fake.node(host, "IDLE")
    fake.verdict(host, now=clock.time())
    tended(clock)
    (test,) = Actions(clock=clock).lives[host].tests
    assert campaigns.find_campaign(test.campaign).name == test.campaign


def test_what_was_interrupted_ends_as_slurm_says(fake):
    journal = Actions()
    (fake.folder / "out" / "fleet").mkdir()
    journal.begin("hold", "n1", reason="by hand", system="local", hand=True)
    journal.begin("hold", "n2", reason="fails", system="local")
    slurm.reserve("firsttouch-n2", "n2", "root")
    assert fleet("tend") == 0
    ends = {a.host: a.state for a in Actions().lines if a.what == "hold" and a.state != "intent"}
    # A person's hold that Slurm had not executed is executed; the rules' hold had been.
    assert ends == {"n1": "done", "n2": "done"}
    assert fake.reserved == ["firsttouch-n1", "firsttouch-n2"]
    assert sum(change.startswith("create") for change in fake.changes) == 2


def test_two_passes_at_once_do_not_both_act(fake, capsys):
    fake.verdict("n1")
    with actions.hold_lock(wait=True):
        assert fleet("tend") == 0
        assert "another process acts on hosts: nothing is done" in capsys.readouterr().err
        assert fake.changes == []
    # A command of Slurm that outlives its pass keeps the lock.
    script = "import os, subprocess, sys; from firsttouch.fleet import actions\n"
    script += "with actions.hold_lock(wait=True) as (_, lock):\n"
    fifo = fake.folder / "end"
    os.mkfifo(fifo)
    script += f"    p = subprocess.Popen(['cat', {str(fifo)!r}], pass_fds=[lock], stdout=subprocess.DEVNULL)\n"
    script += "    print(p.pid, flush=True); os._exit(9)\n"
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=False)
    command = os.pidfd_open(int(done.stdout))
    assert fleet("tend") == 0
    assert fake.changes == []
    fifo.write_text("")
    select.select([command], [], [])  # until it ends
    os.close(command)
    assert fleet("tend") == 0
    assert len(fake.changes) == 1


def measure(campaign, host, step, rates):
    """Store four repetitions of a host's bandwidths, by bank, as a step of a campaign."""
    journal = campaign.host(host)
    journal.open()
    for repetition in range(4):
        records = [
            Record(
                *("bandwidth", "copy_bandwidth", "GB/s", "higher", (rate * (1 + 0.01 * (repetition % 3 - 1)),)),
                host=host,
                system=campaign.system,
                time=now(),
                parameters={"pu_nodes": [bank], "banks": [bank], "threads": 1, "program": "x", "kernel": "copy"},
            )
            for bank, rate in enumerate(rates)
        ]
        begin, end = journal.add(records)
        journal.write(Entry(step, "measured", now(), host, begin=begin, end=end))
    return journal


def campaign_of(fake, name, hosts, *, system="local"):
    """Store the bandwidths of some hosts as a campaign of the step bandwidth-1."""
    plan = {"system": system, "dataset": "lambda", "aligners": (), "repetitions": 3, "only": ["bandwidth-1"]}
    stored = campaigns.create(campaigns.plan("validate", fake.folder / "out/campaigns" / name, **plan))
    for host, rates in hosts.items():
        measure(stored, host, "bandwidth-1", rates)


@pytest.fixture
def rated(fake, monkeypatch):
    """Eight hosts of a system with a reference; returns a function that sets its value (GB/s)."""
    for number in range(1, 9):
        fake.node(f"n{number}", "IDLE")
    (fake.folder / "systems").mkdir()
    monkeypatch.setenv("FIRSTTOUCH_SYSTEMS", str(fake.folder / "systems"))
    monkeypatch.setenv("FIRSTTOUCH_EFFORT", "smoke")
    partitions = [{"name": "p", "scheduler": "slurm"}]
    reference = {"check": "bandwidth", "metric": "copy_bandwidth", "source": "order"}

    def refer(value):
        references = [{**reference, "value": f"{value} GB/s", "tolerance": {"lower": "-2 %"}}]
        keys = {"hostnames": ["n[1-8]$"], "partitions": partitions, "references": references}
        system_file(fake.folder / "systems", "rated", **keys)

    refer(20)
    return refer


def out_of_service(fake):
    drained = [file.name for file in (fake.folder / "nodes").iterdir() if "DRAIN" in file.read_text()]
    return sorted({*drained, *(name.removeprefix("firsttouch-") for name in fake.reserved)})


def hours(fake, clock, count, rates):
    """Let *hours* with two passes go by; tests of held hosts measure their rates. Return all lines."""
    lines = []
    (fake.folder / "ended").touch()
    for _ in range(2 * count):
        for life in Actions(clock=clock).lives.values():
            if life.hold and life.tests and not life.tests[-1].ended:
                measure(campaigns.find_campaign(life.tests[-1].campaign), life.host, "topology", rates)
        lines += tended(clock)
        clock.sleep(1801)
    return lines


SENTENCE = (
    "validate-1: 7 of 8 hosts lost about 4 % of the same metrics: an update, or references that are out of date; "
    "no host is held"
)


@pytest.mark.parametrize("act", ["true", "false"])
def test_no_host_is_held_if_most_of_a_campaign_lost_alike(fake, rated, run_cli, act):
    fake.settings(act=act)
    clock = ManualClock()
    hosts = {f"n{number}": [19.2, 19.2, 19.1, 19.2, 19.2] for number in range(1, 9)}
    hosts["n5"] = [14.4] * 5  # a bad one
    campaign_of(fake, "validate-1", hosts, system="rated")
    for host in hosts:
        fake.verdict(host, now=clock.time(), system="rated", source="validate-1")
    lines = hours(fake, clock, 1, [19.2])
    assert f"8 more hosts are not held: {SENTENCE}" in lines
    assert (fake.changes, out_of_service(fake)) == ([], [])
    for host in hosts:
        fake.verdict(host, age=30, system="rated", source="validate-1")
    status = run_cli("fleet", "status")
    assert (status.status, SENTENCE in status.out) == (0, True)
    assert json.loads(run_cli("fleet", "status", "--json").out)["stops"] == [SENTENCE]
    # New references say which host is bad.
    rated(19.2)
    fake.settings(act="true")
    lines = tended(clock)
    assert "n1: fail, and not held: by the present references its verdict is pass" in lines
    assert out_of_service(fake) == ["n5"]


def test_a_collecting_job_drains_no_host_if_most_lost_alike(fake, rated, run_cli):
    campaign_of(fake, "validate-1", {f"n{number}": [19.2] * 5 for number in range(1, 9)}, system="rated")
    done = run_cli("campaign", "collect", "validate-1", "--drain")
    assert (done.status, fake.changes) == (1, [])
    assert f"no host is drained: {SENTENCE.replace('validate-1: 7 of 8', '8 of 8')}" in done.err


def test_a_host_that_was_held_before_the_others_lost_alike_is_released(fake, rated):
    clock = ManualClock()
    campaign_of(fake, "validate-1", {"n1": [19.2] * 5}, system="rated")
    fake.verdict("n1", now=clock.time(), system="rated", source="validate-1")
    tended(clock)
    assert out_of_service(fake) == ["n1"]
    campaign_of(fake, "validate-1", {f"n{number}": [19.2] * 5 for number in range(2, 9)}, system="rated")
    lines = hours(fake, clock, 1, [19.2])
    assert out_of_service(fake) == []
    assert any(
        line.startswith("n1 is released: 8 of 8 hosts lost about 4 % of the same metrics") for line in lines
    )


def test_without_references_a_test_is_compared_with_the_campaign_that_blamed_the_host(fake, monkeypatch):
    monkeypatch.setenv("FIRSTTOUCH_EFFORT", "smoke")
    campaign_of(fake, "due", {f"n{i}": [20.0 + 0.01 * i] for i in range(8)})
    campaign_of(fake, "hold-slow", {"n7": [12.0]})
    campaign_of(fake, "hold-slower", {"n7": [12.0]})
    campaign_of(fake, "hold-good", {"n7": [20.0]})
    word, reason, _ = tending.verdict_of("n7", "hold-slow", "due")
    assert (word, "bandwidth 40.1 % worse than its siblings" in reason) == ("fail", True), reason
    assert tending.verdict_of("n7", "hold-good", "due")[0] == "pass"
    # Earlier tests add their repetitions.
    assert tending.verdict_of("n7", "hold-slower", "due", ["hold-slow", "removed"])[0] == "fail"
    assert tending.verdict_of("n7", "hold-good", "no-such")[0] not in {"pass", "fail"}
    # Hosts that differ by up to 14 % cannot show that one has lost nothing.
    campaign_of(fake, "unlike", {f"n{i}": [20.0 - 0.4 * i] for i in range(8)})
    assert tending.verdict_of("n7", "hold-good", "unlike")[0] == "undecided"
    assert tending.verdict_of("n1", "hold-good", "due") == ("", "its job measured nothing", 0.0)
    assert tending.verdict_of("n7", "removed", "due")[0] == ""


def test_a_test_that_its_host_did_not_survive_passes_nothing(fake, rated):
    campaign_of(fake, "hold-dead", {"n7": [20.0]}, system="rated")
    assert tending.verdict_of("n7", "hold-dead", "due")[0] == "pass"
    claims = campaigns.find_campaign("hold-dead").folder / "claims"
    lease = Leases(claims, Holder("n7", "71", 0)).take("n7")
    word, reason, _ = tending.verdict_of("n7", "hold-dead", "due")
    assert (word, "it stopped answering after" in reason) == ("suspect", True)
    lease.release()
    assert tending.verdict_of("n7", "hold-dead", "due")[0] == "pass"


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
