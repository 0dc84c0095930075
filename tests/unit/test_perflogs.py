# SPDX-License-Identifier: Apache-2.0
"""Records from ReFrame's performance logs: two forms, what cannot be read, and a slow host among eight."""

from __future__ import annotations

import json
import random

import pytest

from factories.processes import REFRAME, captured
from firsttouch.records import perflogs
from firsttouch.records.cases import Case

#: ReFrame 4: all variables of a check in a row, and a row for each.
WIDE = (
    "result|job_completion_time|job_nodelist|name|environ|num_tasks|partition|system|"
    "triad_value|triad_unit|triad_lower_thres|wait_value|wait_unit|wait_upper_thres\n"
    "pass|2026-11-29T17:17:56+00:00|n1|Stream %size=2 ~lab:cpu|gnu|1|cpu|lab|90.5|GB/s|-0.1|3|us|None\n"
    "pass|2026-11-29T17:17:56+00:00|n1,n2|Stream %size=2|gnu|2|cpu|lab|90.5|GB/s|-0.1|3|us|None\n"
    "pass|2026-11-29T17:17:56+00:00|n1|a text with | in it|gnu|1|cpu|lab|90.5|GB/s|-0.1|3|us|None\n"
)
COLUMNS = ("job_completion_time", "display_name", "job_nodelist", "perf_var", "perf_value", "perf_unit")
LONG = "|".join(f"check_{name}" for name in COLUMNS) + "\n"


def test_the_forms_of_reframe_4(tmp_path):
    folder = tmp_path / "lab" / "cpu"
    folder.mkdir(parents=True)
    (folder / "old.log").write_text("2020-10-07T10:06:48+01:00|reframe 3.2|IMB on a:b using c|jobid=8|r=2|MB/s\n")
    (folder / "Stream.log").write_text(WIDE)
    (folder / "probe.log").write_text(f"{LONG}2026-11-29T17:17:56+01:00|latency %pu_node=0|n1|idle|90|ns\n")
    records, unread, several = perflogs.read([tmp_path])
    triad, wait, idle = records
    assert (triad.host, triad.value, triad.unit, triad.better) == ("n1", 90.5, "GB/s", "higher")
    assert triad.parameters == {"test": "%size=2", "environ": "gnu", "num_tasks": "1"}
    assert (wait.metric, wait.better) == ("wait", "lower")
    assert (idle.check, idle.system, idle.partition) == ("log.latency", "lab", "cpu")
    assert idle.time == "2026-11-29T16:17:56.000+00:00"
    assert several == 2
    lines = [f"{folder / name}: not a row of a performance log" for name in ("Stream.log:4", "old.log:1")]
    assert [str(u.error) for u in unread] == lines


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "fast"])
def test_a_value_that_is_no_amount_is_named_and_lets_no_host_pass(run_cli, tmp_path, value):
    log = tmp_path / "lab" / "cpu" / "Stream.log"
    log.parent.mkdir(parents=True)
    rows = [f"2026-11-29T17:17:56+00:00|Stream|n{host}|triad|{90 + host / 10}|GB/s\n" for host in range(8)]
    log.write_text(LONG + "".join(rows) + f"2026-11-30T17:17:56+00:00|Stream|n3|triad|{value}|GB/s\n")
    done = run_cli("validate", "--system", "lab", "--perflogs", tmp_path)
    assert (done.status, f"left out: {log}:10: " in done.err, value.strip("-") in done.err) == (2, True, True), (
        done
    )
    assert "pass" not in {line.split()[2] for line in done.out.splitlines() if line.startswith("verdict ")}


CHECKS = """\
import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import parameter, performance_function, sanity_function


@rfm.simple_test
class Stream(rfm.RunOnlyRegressionTest):
    size = parameter([2])
    valid_systems = valid_prog_environs = ["*"]
    executable = "echo"
    reference = {"lab:cpu": {"triad": (90, -0.1, None, "GB/s")}}

    @sanity_function
    def ran(self):
        return True

    @performance_function("GB/s")
    def triad(self):
        return 90.5
"""
SITE = """\
site_configuration = {
    "systems": [{"name": "lab", "hostnames": [".*"], "partitions": [
        {"name": "cpu", "scheduler": "local", "launcher": "local", "environs": ["builtin"]}]}],
    "environments": [{"name": "builtin"}],
    "storage": [{"enable": True, "sqlite_db_file": "./results.db"}],
    "logging": [{"handlers_perflog": [{
        "type": "filelog", "prefix": "%(check_system)s/%(check_partition)s", "level": "info", "basedir": "../logs",
        "format": "%(check_job_completion_time)s|%(check_display_name)s|%(check_environ)s|%(check_num_tasks)s"
        "|%(check_job_nodelist)s|%(check_perfvalues)s",
        "format_perfvars": "%(check_perf_value)s|%(check_perf_unit)s|%(check_perf_lower_thres)s|",
        "datefmt": "%FT%T%:z",
    }]}],
}
"""


def test_stored_sessions_of_reframe_give_what_its_logs_give(tmp_path):
    """Neither the host nor the number of a repetition that ReFrame adds to a name makes another case."""
    (tmp_path / "checks.py").write_text(CHECKS)
    (tmp_path / "site.py").write_text(SITE)
    argv = [REFRAME, "-C", "site.py", "--prefix", "out", "-c", "checks.py", "-r"]
    for option in ("--repeat=2", "--distribute=all"):
        done = captured([*argv, option], cwd=tmp_path, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
    records, unread, several = perflogs.read([tmp_path / "results.db"])
    logged, *_ = perflogs.read([tmp_path / "logs"])
    assert (len(records), unread, several) == (3, [], 0)
    assert [Case.from_record(r) for r in records] == 3 * [Case.from_record(logged[0])]
    (triad,) = {(r.check, r.metric, r.value, r.unit, r.better, r.system, r.partition) for r in records}
    assert triad == ("log.Stream", "triad", 90.5, "GB/s", "higher", "lab", "cpu")
    assert {r.parameters["test"] for r in records} == {"%size=2"}
    assert [(r.host, r.time[:19]) for r in records] == [(r.host, r.time[:19]) for r in logged]
    # A folder's database repeats its logs.
    assert len(perflogs.read([tmp_path])[0]) == len(logged)
    (tmp_path / "broken.db").write_bytes((tmp_path / "results.db").read_bytes()[:5000])
    (problem,) = perflogs.read([tmp_path / "broken.db"])[1]
    assert "broken.db: " in str(problem.error)


@pytest.mark.parametrize(
    ("unit", "better"),
    [
        *((unit, "higher") for unit in ("Mbytes/sec", "ns/day", "Gflops")),
        *((unit, "lower") for unit in ("hour/ns", "usec", "t[usec]")),
        *((unit, "neither") for unit in ("%", "kB")),
    ],
)
def test_which_values_are_better_follows_from_the_unit(unit, better):
    assert perflogs._better(unit, "None", "None") == better
    assert perflogs._better(unit, "-0.1", "None") == "higher"


def test_a_slow_host_is_found_and_no_log_drains(run_cli, tmp_path):
    random.seed(1)
    speeds = {f"n{host}": 90 if host < 8 else 81 for host in range(1, 9)}
    lines = [
        f"2026-{month:02}-01T12:00:00+00:00|Stream|{host}|triad|{speed * random.gauss(1, 0.004)}|GB/s\n"
        for month in range(1, 7)
        for host, speed in speeds.items()
    ]
    folder = tmp_path / "lab" / "cpu"
    folder.mkdir(parents=True)
    (folder / "Stream.log").write_text(LONG + "".join(lines))
    done = run_cli("validate", "--system", "lab", "--perflogs", tmp_path, "--json")
    words = {host["host"]: host["verdict"] for host in json.loads(done.out)["hosts"]}
    assert words.pop("n8") == "fail"
    assert "fail" not in words.values()
    assert done.status == 1
    done = run_cli("validate", "--system", "lab", "--perflogs", tmp_path, "--drain")
    assert (done.status, "--perflogs with --drain" in done.err) == (2, True)
