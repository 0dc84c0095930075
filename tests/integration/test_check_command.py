# SPDX-License-Identifier: Apache-2.0
"""``firsttouch check``: it ends in time with what it knows, and only a fail is a proof against the host."""

import contextlib
import json
import os
import select
import subprocess
import sys
from dataclasses import asdict

import pytest

from firsttouch import cli, paths
from firsttouch.campaign import host_check
from firsttouch.clock import Clock
from firsttouch.host import topology
from firsttouch.records import schema
from firsttouch.systems import definition

PROBE = topology.probe_program()


def system_file(folder, **facts):
    """Write the file of a system like this host, with other *facts*; return its path."""
    host = topology.load()
    nodes, pus = len(host.numa_nodes), len(host.pus)
    usual = {
        "source": "order",
        "processor": "x",
        "packages": 1,
        "numa_nodes": nodes,
        "cores_per_numa_node": pus // nodes,
        "threads_per_core": 1,
        "memory_per_numa_node": f"{host.numa_nodes[0].memory_bytes} B",
    }
    data = {"name": "checked", "description": "x", "hostnames": ["x"], "facts": {**usual, **facts}}
    data |= {"partitions": [{"name": "p", "scheduler": "local"}], "references": []}
    file = folder / "checked.yaml"
    file.write_text(json.dumps(data))
    return file


@pytest.fixture
def probe(tmp_path):
    """Return a function that writes a probe which does as asked for the aspects of memory."""

    def write(commands):
        file = tmp_path / "probe"
        measuring = f'case "$1" in bandwidth|latency|correctness|cores) {commands} ;; esac'
        file.write_text(f'#!/bin/sh\n{measuring}\nexec {PROBE} "$@"\n')
        file.chmod(0o755)
        return {"FIRSTTOUCH_PROBE": str(file)}

    return write


def test_this_host_is_measured_and_judged_by_a_reference(firsttouch, tmp_path, probe):
    file = system_file(tmp_path)
    small = probe(f'exec {PROBE} "$@" --sanity')
    done = firsttouch(
        "check",
        "--seconds",
        "3600",
        "--share-host",
        "--system",
        file,
        "--records",
        tmp_path / "r.jsonl",
        "--json",
        **small,
    )
    document = json.loads(done.stdout)
    assert document["in_time"]
    assert document["not_measured"] == []
    records = schema.read(tmp_path / "r.jsonl")
    assert {"bandwidth", "latency"} <= {r.check for r in records}
    assert {r.system for r in records} == {"checked"}
    assert len(document["measured"]) >= 2 * len(topology.load().cpu_nodes)


def test_a_wrong_fact_fails_the_host(firsttouch, tmp_path, probe):
    file = system_file(tmp_path, numa_nodes=len(topology.load().numa_nodes) + 1)
    done = firsttouch("check", "--share-host", "--system", file, **probe("exit 3"))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "NUMA nodes: 1" in done.stdout.replace(str(len(topology.load().numa_nodes)), "1").splitlines()[-1]


class UntilThere(Clock):
    """A clock whose time is over as soon as a file exists."""

    def __init__(self, file):
        self._file, self._later = file, 0.0

    def monotonic(self):
        self._later += 10.0 if self._file.exists() and self._file.stat().st_size else 0.0
        return self._later


def test_a_probe_that_hangs_is_killed_and_what_it_owes_is_known(tmp_path, probe, monkeypatch):
    # The program under test never ends by itself; the command must not wait for it.
    file = tmp_path / "pid"
    for name, value in probe(f"echo $$ > {file}; exec tail -f /dev/null").items():
        monkeypatch.setenv(name, value)
    argv = [sys.executable, "-m", "firsttouch", "check", "--measuring", "--share-host"]
    checked = host_check.follow([*argv, "--system", str(system_file(tmp_path))], 5.0, UntilThere(file))
    assert checked.status is None
    assert checked.state.left[0] == "known answers of all PUs"
    with contextlib.suppress(ProcessLookupError):  # it has ended already
        handle = os.pidfd_open(int(file.read_text()))
        assert select.select([handle], [], [], 60.0)[0] == [handle]
        os.close(handle)


@pytest.mark.parametrize(("options", "status"), [([], 0), (["--strict"], 3)])
def test_what_was_not_measured_in_time_is_named(monkeypatch, capsys, options, status):
    state = host_check.State(None, [], ["a", "b", "c", "d", "e"], [])
    monkeypatch.setattr(host_check, "follow", lambda *_: host_check.Checked(state, None))
    assert cli.main(["check", "--seconds", "50", *options]) == status
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.endswith("not measured in 50 s: a, b, c and 2 more")


def test_a_probe_that_fails_is_no_proof(firsttouch, tmp_path, probe):
    broken = probe("echo 'firsttouch-probe: error: no memory here' >&2; exit 3")
    done = firsttouch("check", "--share-host", "--system", system_file(tmp_path), **broken)
    assert done.returncode == 3
    assert "no memory here" in done.stdout


@pytest.mark.parametrize("wrong", [["--seconds", "4"], ["--seconds", "x"], ["--system", "no-such-system"]])
def test_bad_input_is_one_line(firsttouch, wrong):
    done = firsttouch("check", *wrong)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1


class Late(Clock):
    """A clock on which each look is ten seconds later than the one before."""

    def __init__(self):
        self._now = 0.0

    def monotonic(self):
        self._now += 10
        return self._now


def test_nothing_is_known_if_the_time_is_over_before_the_first_line():
    checked = host_check.follow(["tail", "-f", "/dev/null"], 0.0, Late())
    assert checked == host_check.Checked(None, None)


def test_the_last_whole_line_counts():
    states = [host_check.State(None, [], [title], []) for title in ("a", "b", "c")]
    first, second, third = (json.dumps(asdict(state)) for state in states)
    output = f"{first}\n{second}\n{third[:20]}"
    checked = host_check.follow(["printf", "%s", output], host_check.started() + 1e6)
    assert checked == host_check.Checked(states[1], 0)


def test_the_narrowest_reference_is_measured_first(tmp_path):
    node = topology.load().cpu_nodes[0]
    data = json.loads(system_file(tmp_path).read_text())
    for check, metric, unit, share in (
        ("bandwidth", "copy_bandwidth", "GB/s", "-9 %"),
        ("latency", "random_latency", "ns", "5 %"),
    ):
        side = "lower" if check == "bandwidth" else "upper"
        where = {"pu_nodes": [node], "bank": 0}
        reference = {"check": check, "metric": metric, "parameters": where, "value": f"10 {unit}"}
        data["references"].append({**reference, "tolerance": {side: share}, "source": "order"})
    (tmp_path / "checked.yaml").write_text(json.dumps(data))
    ordered = host_check.steps(topology.load(), definition.load(tmp_path / "checked.yaml"))
    assert [step.aspect for step in ordered[:4]] == ["correctness", "cores", "latency", "bandwidth"]


@pytest.mark.parametrize(("status", "healthy"), [(0, True), (1, False), (2, True), (3, True)])
def test_the_prolog_drains_a_host_that_fails_only(tmp_path, status, healthy):
    for name, text in (
        ("firsttouch", f"echo measured; echo 'verdict n1 fail: it is slow'; exit {status}"),
        ("scontrol", f'printf "%s\\n" "$@" > {tmp_path}/scontrol.txt'),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURMD_NODENAME": "n1"}
    done = subprocess.run(
        [paths.ROOT / "slurm" / "prolog.sh"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == (0 if healthy else 1)
    assert (tmp_path / "scontrol.txt").exists() != healthy
    if not healthy:
        words = (tmp_path / "scontrol.txt").read_text().splitlines()
        assert words == ["update", "NodeName=n1", "State=DRAIN", "Reason=firsttouch: verdict n1 fail: it is slow"]
