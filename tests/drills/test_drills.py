# SPDX-License-Identifier: Apache-2.0
"""Drills: a fault goes in at one end of the main path, and the right word comes out at every other end."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import modelled_host
import pytest
from job import Cluster, Completed
from table import FLEETS, STORED, Drill, drills

from firsttouch import paths
from firsttouch.records import schema
from firsttouch.records.catalogue import checks

NHC = 'die() { echo "died: ${*:2}"; exit "$1"; }; . "$0"; HOSTNAME=$1; check_firsttouch; exit $?'
CAMPAIGN = "validate-77"


class Drilled:
    """A fleet after its job, and what each place says of its hosts."""

    def __init__(self, name: str, folder: Path) -> None:
        plan = FLEETS[name]
        hosts = [f"n{number}" for number in range(1, plan.hosts + 1)]
        free = iter(hosts)
        self.hosts_of = {drill.name: [next(free) for _ in range(drill.hosts)] for drill in plan.drills}
        self.good = list(free)
        self.drill_of = {host: drill for drill in plan.drills for host in self.hosts_of[drill.name]}
        fleet = modelled_host.Fleet(faults={host: drill.fault for host, drill in self.drill_of.items()})
        self.cluster = Cluster(folder, fleet, hosts, effort=plan.effort, facts=plan.facts)
        steps = (f"--step={step}" for step in plan.steps)
        # The result of an earlier campaign is replaced.
        (folder / "verdicts").mkdir()
        for host in hosts:
            word = "pass" if host in self.drill_of else "fail"
            (folder / "verdicts" / host).write_text(f"{word} 1000000000 {host} modelled of an earlier campaign\n")
        self.job = self.cluster.job(77, CAMPAIGN, "--max-repetitions=5", *steps)
        self.campaign = folder / "campaigns" / CAMPAIGN

    def call(self, *argv: object) -> Completed:
        return self.cluster.call(*argv)

    @cached_property
    def collected(self) -> Completed:
        return self.call("campaign", "collect", CAMPAIGN)

    @cached_property
    def validated(self) -> Completed:
        return self.call("validate", "--system", "modelled", self.campaign, "--json")

    @cached_property
    def drained(self) -> Completed:
        return self.call("validate", "--system", "modelled", self.campaign, "--drain", "--dry-run")

    @cached_property
    def excluded(self) -> Completed:
        _ = self.collected
        return self.call("fleet", "exclude", "--why")

    @cached_property
    def verdicts(self) -> dict[str, dict[str, Any]]:
        """The verdicts that ``firsttouch validate`` prints, by host."""
        return {verdict["host"]: verdict for verdict in json.loads(self.validated.out)["hosts"]}

    @cached_property
    def lines(self) -> dict[str, str]:
        """The lines that the job prints, by host."""
        output = "\n".join(task.out for task in self.job.values())
        return dict(re.findall(r"^verdict (\S+) (.*)", output, re.MULTILINE))

    @cached_property
    def records(self) -> list[schema.Record]:
        with self.cluster.environment():
            return schema.collect([self.campaign / "hosts"])

    def read(self, name: str) -> str:
        _ = self.collected
        return (self.campaign / "report" / name).read_text()


_drilled: dict[str, Drilled] = {}


@pytest.fixture(scope="module")
def fleets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a function that gives a fleet after its job, measured when it is first asked for."""

    def drilled(name: str) -> Drilled:
        if name not in _drilled:
            _drilled[name] = Drilled(name, tmp_path_factory.mktemp("drill"))
        return _drilled[name]

    yield drilled
    _drilled.clear()


def _cases() -> list[Any]:
    """Return the drills as parameters."""
    return [
        pytest.param(fleet, drill, id=f"{fleet}-{drill.name}".replace(" ", "_"))
        for fleet, plan in FLEETS.items()
        for drill in plan.drills
    ]


@pytest.mark.parametrize(("fleet", "drill"), _cases())
def test_the_word_is_right_and_the_part_is_named(fleets: Any, fleet: str, drill: Drill) -> None:
    drilled = fleets(fleet)
    for host in drilled.hosts_of[drill.name]:
        assert re.fullmatch(drill.word, drilled.verdicts[host]["verdict"]), drilled.lines[host]
        assert re.search(drill.part, drilled.lines[host]), drilled.lines[host]


@pytest.mark.parametrize(("fleet", "drill"), [case for case in _cases() if case.values[1].cause])
def test_the_cause_is_named(fleets: Any, fleet: str, drill: Drill) -> None:
    drilled = fleets(fleet)
    for host in drilled.hosts_of[drill.name]:
        names = [cause.partition(":")[0] for cause in drilled.verdicts[host]["causes"]]
        assert names[:1] == [drill.cause], drilled.lines[host]
        assert set(names) <= {drill.cause, *drill.also}, names


@pytest.mark.parametrize(("fleet", "drill"), _cases())
def test_the_fault_moves_the_metrics_that_it_shows(fleets: Any, fleet: str, drill: Drill) -> None:
    """A drill that shows a metric must reach it: its records on this host differ from the good hosts'."""
    drilled = fleets(fleet)
    host = drilled.hosts_of[drill.name][0]
    compared = [record for record in drilled.records if record.host in {host, *drilled.good}]
    for shown in drill.shows:
        check, _, metric = shown.partition(".")
        assert _moves([r for r in compared if (r.check, r.metric) == (check, metric)], host), shown
    verdict = drilled.verdicts[host]
    blamed = {f"{f['check']}.{f['metric']}" for f in verdict["findings"] if f["verdict"] != "pass"}
    absent = {
        shown for shown in drill.shows if shown.rpartition(".")[2].replace("_", " ") in str(verdict["missing"])
    }
    assert set(drill.shows) <= blamed | absent
    assert not verdict["missing"] or set(drill.fault) & {"host", "modules"}, verdict["missing"]


def _moves(records: list[schema.Record], host: str) -> bool:
    """Return whether a case of *host* is beyond all other hosts', or is measured there only."""
    by_case: dict[str, dict[str, list[float]]] = {}
    for record in records:
        key = json.dumps({k: v for k, v in record.parameters.items() if k in NAMED}, sort_keys=True, default=str)
        by_case.setdefault(key, {}).setdefault(record.host, []).append(record.value)
    for hosts in by_case.values():
        if host in hosts:
            value = statistics.median(hosts[host])
            others = [statistics.median(values) for name, values in hosts.items() if name != host]
            if not others or value > max(others) or value < min(others):
                return True
    return False


#: Parameters by which the cases of a metric differ here.
NAMED = {
    "pu_nodes",
    "bank",
    "banks",
    "size_bytes",
    "load",
    "chain",
    "running",
    "pages",
    "kernel",
    "shared",
    "pu",
    "rate",
    "threads",
}


@pytest.mark.parametrize("fleet", FLEETS)
def test_good_hosts_are_not_blamed(fleets: Any, fleet: str) -> None:
    drilled = fleets(fleet)
    words = {host: drilled.verdicts[host]["verdict"] for host in drilled.good}
    assert set(words.values()) <= {"pass", "undecided"}, words
    assert {drilled.job[host].status for host in drilled.good} == {0}


@pytest.mark.parametrize("fleet", FLEETS)
def test_every_place_says_the_same_word(fleets: Any, fleet: str) -> None:
    drilled = fleets(fleet)
    words = {host: verdict["verdict"] for host, verdict in drilled.verdicts.items()}
    bad = {host for host, word in words.items() if word in {"fail", "invalid"}}
    worst = 1 if bad else 4 if "suspect" in words.values() else 0

    # The job: its lines and, on each host, its exit status. srun returns the highest.
    assert {host: line.split()[0].rstrip(":") for host, line in drilled.lines.items()} == words
    assert max(task.status for task in drilled.job.values()) == worst
    assert {host for host, task in drilled.job.items() if task.status} == {
        host for host, word in words.items() if word in {"fail", "invalid", "suspect"}
    }
    # Judging the records again, and collecting them.
    assert drilled.validated.status == drilled.collected.status == worst
    # The report: page and data.
    (system,) = json.loads(drilled.read("summary.json"))["systems"]
    summary = {host["host"]: host["verdict"] for host in system["hosts"]}
    assert summary == words
    page = " ".join(re.sub("<[^>]+>", " ", drilled.read("index.html")).split())
    assert set(re.findall(r"✕ fail (n\d+)\b", page)) == bad
    # The verdict file that NHC reads.
    nhc = {host: _nhc(drilled.cluster.folder / "verdicts", host) for host in words}
    assert {host for host, status in nhc.items() if status} == {h for h, w in words.items() if w == "fail"}
    # Draining and avoiding.
    assert set(re.findall(r"nodename=(\S+)", drilled.drained.out)) == {h for h, w in words.items() if w == "fail"}
    listed = dict(re.findall(r"^(n\d+) +(\w+)", drilled.excluded.out, re.MULTILINE))
    assert listed == {host: word for host, word in words.items() if word in {"fail", "suspect"}}


@pytest.mark.parametrize("fleet", FLEETS)
def test_every_place_gives_the_same_reason(fleets: Any, fleet: str) -> None:
    """The job's last line, the verdict file and the collected report name the same cause, or none."""
    drilled = fleets(fleet)
    overview = drilled.collected.out
    for host in drilled.drill_of:
        causes = [cause.partition(":")[0] for cause in drilled.verdicts[host]["causes"]]
        line = re.findall(rf"^- verdict {host} .*", overview, re.MULTILINE)[0]
        of_job = (drilled.campaign / "hosts" / host / "verdict").read_text()
        for text in (drilled.lines[host], line, of_job):
            assert ("possible cause" in text) == bool(causes), (causes, text)
            assert not causes or causes[0] in text, (causes, text)


SLOW = {f"memory {bank}": {"bandwidth": 0.6} for bank in range(4)}
UNREAD = {"modules": {"unreadable": 1}}


@pytest.mark.parametrize(
    ("fault", "facts", "status", "answer", "text"),
    [
        pytest.param({}, {}, 0, "as expected", "a loss of 1", id="good"),
        pytest.param(SLOW, {}, 4, "low", "memory of bank", id="slow-memory"),
        pytest.param({"modules": {"CPU1 DIMM_G1": 0}}, {}, 4, "low", "modules of package 1", id="absent-module"),
        pytest.param(SLOW | UNREAD, {"memory": ""}, 0, "unknown", "as root once", id="unread-modules"),
    ],
)
def test_one_host_is_as_expected_low_or_unknown(  # noqa: PLR0917
    tmp_path: Path, fault: Any, facts: dict[str, str], status: int, answer: str, text: str
) -> None:
    fleet = modelled_host.Fleet(faults={"n1": fault})
    cluster = Cluster(tmp_path, fleet, ["n1"], effort="smoke", facts=facts)
    (tmp_path / "verdicts").mkdir()
    steps = ("--step=topology", "--step=bandwidth-1", "--step=loaded-latency")
    assert cluster.job(77, CAMPAIGN, *steps)["n1"].status == status
    campaign = tmp_path / "campaigns" / CAMPAIGN
    validated = cluster.call("validate", "--system", "modelled", campaign)
    assert (validated.status, text in validated.out) == (status, True), validated.out
    assert cluster.call("report", campaign, "-o", tmp_path / "page").status == 0
    assert f">Memory speed of n1: {answer}</h2>" in (tmp_path / "page" / "index.html").read_text()


def _nhc(folder: Path, host: str) -> int:
    """Return the exit status of NHC's check on a host."""
    check = paths.ROOT / "slurm" / "nhc" / "firsttouch.nhc"
    env = {"FIRSTTOUCH_VERDICTS": str(folder), "PATH": os.environ["PATH"]}
    return subprocess.run(["bash", "-c", NHC, check, host], env=env, check=False, capture_output=True).returncode


# ----------------------------------------------------------------------
# Metrics that no campaign measures: measured by hand, kept in a store, judged there.


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """A cluster whose hosts have appended their own measurements of five sessions to a store."""
    hosts = [f"n{number}" for number in range(1, 9)]
    faults = {host: drill.fault for host, drill in zip(hosts, STORED, strict=False)}
    cluster = Cluster(tmp_path_factory.mktemp("stored"), modelled_host.Fleet(faults=faults), hosts)
    for session in range(5):
        for host in hosts:
            file = cluster.folder / f"{host}.{session}.jsonl"
            for argv in (("cores",), ("cores", "--sustain", "60"), ("locks", "--threads", "1,32")):
                done = cluster.call("measure", *argv, "--records", file, host=host)
                assert done.status == 0, done.err
            schema.append(file, [_aligned(cluster, host, session, metric) for metric in ALIGNED])
            done = cluster.call("store", "append", cluster.folder / "store", file, host=host)
            assert done.status == 0, done.err
    return cluster


#: The metrics of an aligner's runs: check, name, unit, direction, and what a good host reaches.
ALIGNED = (
    ("placement", "alignment_time", "s", "lower", 40.0, {"dataset": "lambda"}),
    ("scaling", "alignment_time", "s", "lower", 80.0, {"dataset": "lambda"}),
    ("weak_scaling", "throughput", "kreads/s", "higher", 900.0, {"dataset": "lambda", "reads_per_thread": 1000}),
)


def _aligned(cluster: Cluster, host: str, session: int, of: tuple[Any, ...]) -> schema.Record:
    """Return the record of an aligner's run whose time the model gives."""
    check, metric, unit, better, usual, more = of
    factor = cluster.fleet.host(host).part("program", "time")
    level = 1 + 0.001 * (int(host[1:]) % 5) + 0.002 * (session - 2)
    value = usual * level * (factor if better == "lower" else 1 / factor)
    parameters = {
        "aligner": "bwa-mem",
        "scenario": "4x-local",
        "instances": 4,
        "threads": 8,
        "policy": "local",
        **more,
    }
    return schema.Record(
        check, metric, unit, better, (value,), parameters, host=host, system="modelled", partition="all"
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("drill", STORED, ids=lambda drill: drill.name.replace(" ", "_"))
def test_a_store_of_own_measurements_gives_the_word(store: Cluster, drill: Drill) -> None:
    done = store.call("validate", "--system", "modelled", store.folder / "store", "--json")
    verdicts = {verdict["host"]: verdict for verdict in json.loads(done.out)["hosts"]}
    host = f"n{STORED.index(drill) + 1}"
    assert re.fullmatch(drill.word, verdicts[host]["verdict"]), verdicts[host]
    assert done.status == 1
    worse = {f"{f['check']}.{f['metric']}" for f in verdicts[host]["findings"] if f["verdict"] == drill.word}
    assert set(drill.shows) <= worse
    if drill.cause:
        assert verdicts[host]["causes"][0].startswith(drill.cause)
    failing = {name for name, verdict in verdicts.items() if verdict["verdict"] == "fail"}
    assert failing == {f"n{number}" for number, _ in enumerate(STORED, start=1)}


def test_each_judged_metric_has_a_drill() -> None:
    judged = {f"{name}.{metric}" for name, check in checks().items() for metric in check.metrics}
    assert {shown for drill in drills().values() for shown in drill.shows} == judged
    # Names are unique.
    assert len(drills()) == len(STORED) + sum(len(fleet.drills) for fleet in FLEETS.values())
