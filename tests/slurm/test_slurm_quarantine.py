# SPDX-License-Identifier: Apache-2.0
"""The life of a bad and of a repaired host in a real Slurm, while the processes that act are killed at random."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from slurm_site import Site

SETTINGS = """\
mail: root
hold:
  act: true
  passes: 2
  effort: smoke
  repetitions: 1
  steps: [bandwidth-1]
  sbatch: [--time=5]
"""
#: A pass is killed when the journal has got up to MOST lines by it, at most PAUSE seconds later.
MOST, PAUSE = 4, 0.08
#: The passes that are killed at least.
KILLED = 3


class Fleet:
    """A site whose fleet.yaml holds bad hosts, and the passes that do so."""

    def __init__(self, site: Site, folder: Path, seed: int) -> None:
        self.site = site
        (folder / "site").mkdir()
        self.settings = folder / "site" / "fleet.yaml"
        self.settings.write_text(SETTINGS)
        site.env["FIRSTTOUCH_SITE"] = str(folder / "site")
        self.chance = random.Random(seed)  # noqa: S311 - no secret
        self.kills = self.killed_tests = 0

    def tend(self) -> str:
        """Do one pass, and return what it printed."""
        done = self.site.call("fleet", "tend")
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def killed(self, *argv: str) -> None:
        """Begin a pass, or another action, and kill it at a random moment; the first ones at their first line."""
        root = Path(__file__).parents[2]
        command = [str(Path(sys.executable).with_name("firsttouch")), "fleet", *(argv or ("tend",))]
        env = {**self.site.slurm.env, **self.site.env}
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, env=env, cwd=root, **quiet)  # type: ignore[call-overload]
        before = self.length()
        # A fast host ends most passes before a random moment.
        lines, pause = (
            (1, 0.0) if self.kills <= KILLED else (self.chance.randint(1, MOST), self.chance.uniform(0, PAUSE))
        )
        while process.poll() is None and self.length() < before + lines:
            time.sleep(0.001)
        time.sleep(pause)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            self.kills += 1
        process.wait()

    def kill_a_test(self) -> bool:
        """Kill the process that measures in a test of a held host, and return whether one ran."""
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:  # it has just ended
                continue
            if b"campaign" in words and any(
                w.startswith(bytes(self.site.folder)) and b"/hold-" in w for w in words
            ):
                os.kill(int(folder.name), signal.SIGKILL)
                self.killed_tests += 1
                return True
        return False

    def wait_for_test(self, host: str, *, kill: bool) -> None:
        """Wait for the end of a host's newest test, which is killed while it runs if so asked."""
        jobs = [a["job"] for a in self.actions(host) if a.get("job")]
        if kill and jobs:
            self.site.slurm.until(
                lambda: self.kill_a_test() or not self.site.job_state(jobs[-1]), f"job {jobs[-1]} to measure"
            )
        if jobs:
            self.site.slurm.ends(jobs[-1])

    def length(self) -> int:
        """Return the number of lines of the journal."""
        file = self.site.folder / "fleet" / "actions.jsonl"
        return file.read_bytes().count(b"\n") if file.exists() else 0

    def actions(self, host: str = "") -> list[dict[str, Any]]:
        """Return the lines of the journal of actions."""
        file = self.site.folder / "fleet" / "actions.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [line for line in lines if host in {"", line["host"]}]

    def done(self, host: str) -> list[str]:
        """Return what was done to a host, in order."""
        whats = ("hold", "drain", "release", "resume", "returned")
        return [a["what"] for a in self.actions(host) if a["state"] == "done" and a["what"] in whats]

    def reservations(self) -> set[str]:
        text = self.site.slurm.ask("scontrol", "-o", "show", "reservation")
        return set(re.findall(r"ReservationName=(\S+)", text))

    def out_of_service(self) -> set[str]:
        """Return the hosts that are reserved or drained in Slurm."""
        reserved = {name.removeprefix("firsttouch-") for name in self.reservations()}
        return reserved | set(self.site.slurm.ask("sinfo", "-h", "-N", "-t", "drain", "-o", "%N").split())

    def orderly(self) -> None:
        """Check that every reservation has an owner in the journal, and that nothing is done twice."""
        owned = {
            f"firsttouch-{a['host']}" for a in self.actions() if a["what"] == "hold" and a["state"] == "intent"
        }
        assert self.reservations() <= owned
        ends = Counter((a["id"], a["what"]) for a in self.actions() if a["state"] == "done")
        assert set(ends.values()) <= {1}, ends
        jobs = self.site.slurm.ask("sacct", "-nPX", "-S", "now-1hours", "-o", "JobName,JobIDRaw").splitlines()
        names = Counter(line.split("|")[0] for line in jobs if re.match("firsttouch-[0-9a-f]{8}[|]", line))
        assert set(names.values()) <= {1}, names

    def live(self, host: str, until: str, *, kills: int) -> None:
        """Let passes run, *kills* of them killed, until the last action on a host is *until*."""
        deadline, limit = time.monotonic() + 300, self.kills + kills
        while self.done(host)[-1:] != [until]:
            assert time.monotonic() < deadline, self.actions(host)
            before = self.length()
            if self.kills < limit:
                self.killed()
            else:
                self.tend()
            if self.length() == before:
                # A test waits or runs. The first one of each hold is killed.
                kill = self.killed_tests < min(1, kills) and self.kills > limit - kills
                self.wait_for_test(host, kill=kill)
            self.orderly()


def test_hosts_are_held_and_released_by_hand_and_an_admin_may_take_them_back(fleet: Fleet) -> None:
    site, slurm = fleet.site, fleet.site.slurm
    site.hold("n1")
    held = site.call("fleet", "hold", "n[1-2]", "--system", "rated", "--reason", "new DIMM")
    assert held.returncode == 0, held.stderr
    assert fleet.reservations() == {"firsttouch-n1", "firsttouch-n2"}
    rows = json.loads(site.call("fleet", "status", "--json").stdout)["hosts"]
    assert [(row["host"], row["state"], row["reason"]) for row in rows] == [
        ("n1", "held", "new DIMM"),
        ("n2", "held", "new DIMM"),
    ]
    # Slurm shows the reservations in the states of the hosts some seconds later.
    due = json.loads(site.call("fleet", "due", "--system", "rated", "--hosts", "n[1-3]", "--json").stdout)
    assert ([host["host"] for host in due["hosts"]], set(due["left_out"])) == (["n3"], {"n1", "n2"})
    jobs = [test["job"] for row in rows for test in row["tests"]]
    site.runs(jobs[0])
    # Its test runs, and Slurm keeps a reservation that a job uses.
    released = site.call("fleet", "release", "n1")
    assert released.returncode == 0, released.stderr
    site.release("n1")
    slurm.ask("scancel", jobs[1])
    slurm.until(lambda: not slurm.ask("squeue", "-h").strip(), "the end of all jobs")
    slurm.ask("scontrol", "delete", "reservation=firsttouch-n2")
    assert "n2: released by somebody else" in fleet.tend()
    assert (fleet.done("n1"), fleet.done("n2")) == (["hold", "release"], ["hold", "returned"])
    assert fleet.reservations() == set()
    fleet.orderly()


def test_a_drain_of_an_admin_ends_a_hold_by_hand_but_not_one_that_began_drained(fleet: Fleet) -> None:
    site, slurm = fleet.site, fleet.site.slurm
    slurm.ask("scontrol", "update", "nodename=n3", "state=drain", "reason=alice: fan")
    assert site.call("fleet", "hold", "n3", "--system", "rated", "--reason", "new fan").returncode == 0
    fleet.tend()
    assert fleet.reservations() == {"firsttouch-n3"}
    slurm.ask("scontrol", "update", "nodename=n3", "state=resume")
    slurm.ask("scontrol", "update", "nodename=n3", "state=drain", "reason=alice: RMA")
    assert "n3 is released: drained by somebody else: alice: RMA" in fleet.tend()
    assert fleet.reservations() == set()
    assert slurm.node("n3")["Reason"].startswith("alice: RMA")
    slurm.ask("scontrol", "update", "nodename=n3", "state=resume")
    fleet.orderly()


@pytest.fixture
def fleet(shimmed: Site, tmp_path: Path) -> Any:
    held = Fleet(shimmed, tmp_path, seed=20)
    yield held
    for name in held.reservations():
        shimmed.slurm.ask("scancel", "--user=root")
        shimmed.slurm.until(lambda: not shimmed.slurm.ask("squeue", "-h").strip(), "the end of all jobs")
        shimmed.slurm.ask("scontrol", "delete", f"reservation={name}")


def test_a_bad_host_is_listed_until_it_is_released(fleet: Fleet) -> None:
    site, slurm = fleet.site, fleet.site.slurm
    site.rates(n2=0.6)
    site.validated("n1", "n2", "n3", system="rated", campaign="first")
    # Users read this list before the rules act: sbatch accepts it, and the job runs on all other hosts.
    assert site.call("fleet", "exclude").stdout == "n2\n"
    listed = json.loads(site.call("fleet", "exclude", "--json").stdout)
    assert [(host["host"], host["why"], host["system"]) for host in listed["hosts"]] == [("n2", "fail", "rated")]
    assert "worse than" in listed["hosts"][0]["reason"]
    others = len(slurm.names) - 1
    job = site.sbatch("--exclude=n2", f"--nodes={others}", "--exclusive", "--wrap", "true")
    assert slurm.ends(job) == {job: ("COMPLETED", "0:0")}

    fleet.tend()
    listed = json.loads(site.call("fleet", "exclude", "--json").stdout)
    assert [(host["host"], host["why"]) for host in listed["hosts"]] == [("n2", "held")]
    assert site.call("fleet", "release", "n2", "--reason", "new DIMM").returncode == 0
    fleet.tend()
    assert site.call("fleet", "exclude").stdout == "\n"
    job = site.sbatch("--exclude=", f"--nodes={others + 1}", "--exclusive", "--wrap", "true")
    assert slurm.ends(job) == {job: ("COMPLETED", "0:0")}
    fleet.orderly()


def bad_and_repaired(fleet: Fleet, kills: int) -> None:
    """Let n5 fail, be held, fail again and be drained; then repair it, test it again and release it."""
    site = fleet.site
    site.rates(n5=0.6)
    site.validated("n5", system="rated", campaign="first")
    assert [host for host, verdict in site.verdicts().items() if verdict == "fail"] == ["n5"]
    fleet.settings.write_text(SETTINGS.replace("act: true", "act: false"))
    assert "n5 would be held" in fleet.tend()
    fleet.settings.write_text(SETTINGS)
    assert fleet.reservations() == set()

    # A job that runs on the host goes on, and the host's test waits for its end.
    running, fifo = site.occupy("n5")
    fleet.live("n5", "hold", kills=1)
    assert site.job_state(running) == "RUNNING"
    # A job that waits for the host by its name waits until the host is released.
    waiting = site.sbatch("--nodelist=n5", "--wrap", "true")
    reason = site.slurm.ask("squeue", "-h", "-j", waiting, "-o", "%T %r").strip()
    assert reason.startswith("PENDING"), reason
    fifo.write_text("")
    assert site.slurm.ends(running) == {running: ("COMPLETED", "0:0")}
    fleet.live("n5", "release", kills=kills // 2)
    assert site.job_state(waiting) == "PENDING"
    site.slurm.ask("scontrol", "update", f"jobid={waiting}", "reqnodelist=n6X")
    assert site.slurm.ends(waiting) == {waiting: ("COMPLETED", "0:0")}
    assert fleet.done("n5") == ["hold", "drain", "release"]
    assert fleet.reservations() == set()
    assert "DRAIN" in site.slurm.node("n5")["State"]
    assert re.match(r"firsttouch: .*; hold-n5-", site.slurm.node("n5")["Reason"])

    site.rates()
    while len(fleet.done("n5")) == 3:
        fleet.killed("hold", "n5", "--reason", "new DIMM")
        fleet.orderly()
    fleet.live("n5", "release", kills=kills // 2)
    assert fleet.done("n5") == ["hold", "drain", "release", "hold", "resume", "release"], fleet.actions("n5")
    results = [a["verdict"] for a in fleet.actions("n5") if a["what"] == "result"]
    assert [word for word in results if word in {"fail", "pass"}][:2] == ["fail", "pass"]
    assert results.count("fail") == 1
    # The first two passes in a row end the hold. A test that was killed, perhaps the second, interrupts the row.
    rows = list(itertools.pairwise(results))
    assert rows.index(("pass", "pass")) == len(rows) - 1, results
    assert fleet.reservations() == set()
    site.slurm.until(lambda: site.slurm.node("n5")["State"] == "IDLE", "n5 to be in service")
    fleet.tend()
    assert {a["host"] for a in fleet.actions()} == {"n5"}


def test_a_bad_host_is_drained_and_a_repaired_one_released(fleet: Fleet) -> None:
    bad_and_repaired(fleet, kills=6)
    assert fleet.kills >= KILLED
