# SPDX-License-Identifier: Apache-2.0
"""``firsttouch check``: it ends in time with what it knows, and only a fail is a proof against the host."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from firsttouch import paths
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
        measuring = f'case "$1" in bandwidth|latency) {commands} ;; esac'
        file.write_text(f'#!/bin/sh\n{measuring}\nexec {PROBE} "$@"\n')
        file.chmod(0o755)
        return {"FIRSTTOUCH_PROBE": str(file)}

    return write


def test_this_host_is_measured_and_judged_by_a_reference(firsttouch, tmp_path, probe):
    file = system_file(tmp_path)
    small = probe(f'exec {PROBE} "$@" --sanity')
    done = firsttouch("check", "--system", file, "--records", tmp_path / "r.jsonl", "--json", **small)
    document = json.loads(done.stdout)
    assert document["in_time"]
    assert document["not_measured"] == []
    records = schema.read(tmp_path / "r.jsonl")
    assert {"bandwidth", "latency"} <= {r.check for r in records}
    assert {r.system for r in records} == {"checked"}
    assert len(document["measured"]) >= 2 * len(topology.load().cpu_nodes)


def test_a_wrong_fact_fails_the_host(firsttouch, tmp_path, probe):
    file = system_file(tmp_path, numa_nodes=len(topology.load().numa_nodes) + 1)
    done = firsttouch("check", "--system", file, **probe("exit 3"))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "NUMA nodes: 1" in done.stdout.replace(str(len(topology.load().numa_nodes)), "1").splitlines()[-1]


def test_a_probe_that_hangs_is_killed_and_what_it_owes_is_named(firsttouch, tmp_path, probe):
    # The program under test never ends by itself; the command must not wait for it.
    hung = probe(f"echo $$ > {tmp_path}/pid; exec tail -f /dev/null")
    done = firsttouch("check", "--seconds", "5", "--system", system_file(tmp_path), "--json", **hung)
    document = json.loads(done.stdout)
    assert (done.returncode, document["in_time"]) == (0, False)
    assert document["not_measured"][0] == f"bandwidth of NUMA node {topology.load().cpu_nodes[0]} to bank 0"
    pid = int((tmp_path / "pid").read_text())
    assert not Path(f"/proc/{pid}/cmdline").exists() or b"tail" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    strict = firsttouch("check", "--seconds", "5", "--strict", "--system", system_file(tmp_path), **hung)
    assert strict.returncode == 3
    assert "not measured in 5 s" in strict.stdout.splitlines()[-1]


def test_a_probe_that_fails_is_no_proof(firsttouch, tmp_path, probe):
    broken = probe("echo 'firsttouch-probe: error: no memory here' >&2; exit 3")
    done = firsttouch("check", "--system", system_file(tmp_path), **broken)
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
    script = 'import sys; sys.stdout.write(\'{"a": 1}\\n{"a": 2}\\n{"a"\'); sys.stdout.flush()'
    checked = host_check.follow(["python3", "-c", script], host_check.started() + 1e6)
    assert checked == host_check.Checked({"a": 2}, 0)


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
    assert [step.aspect for step in ordered[:3]] == ["correctness", "latency", "bandwidth"]


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
