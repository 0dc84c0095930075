# SPDX-License-Identifier: Apache-2.0
"""The native probe: built from source, run with small sizes, refused, interrupted and misplaced."""

import contextlib
import itertools
import json
import os
import platform
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from factories import huge_pages, topologies
from factories.native_probe import SOURCE, built_once
from factories.processes import captured, wait_until
from factories.stored_roots import hybrid_root, numa_root
from firsttouch.benchmarks import probe
from firsttouch.host import topology
from firsttouch.host.topology import DEVICE_MEMORY, load
from firsttouch.paths import ROOT

pytestmark = [pytest.mark.usefixtures("quiet_host"), pytest.mark.timeout(300, func_only=True)]

HOST = load()
NODE, BANK = HOST.cpu_nodes[0], HOST.memory_nodes[0]
PUS = HOST.usable_pus(NODE)
TWO_PUS = pytest.mark.skipif(len(PUS) < 2, reason="needs two PUs")
MEASURED = probe.ASPECTS[1:]
INTERVALS = runpy.run_path(str(ROOT / "bench" / "repetitions.py"))["intervals"]


@pytest.fixture
def run(native_probe):
    """Returns a function that runs the probe and gives its result; argv may begin with another program."""

    def call(*argv, before=()):
        return captured([*before, native_probe, *argv], stdin=subprocess.DEVNULL, timeout=120)

    return call


def document(done, status=0):
    assert done.returncode == status, done
    return json.loads(done.stdout)


@pytest.mark.parametrize("aspect", MEASURED)
def test_every_aspect_in_small(run, aspect):
    measured = document(run(aspect, "--sanity"))
    assert measured["status"] == "complete"
    assert measured["count"] == len(measured["results"]) > 0
    for result in measured["results"]:
        assert (result["status"], result["reason"], result["partial"]) == ("valid", "", False)
        # Wrong answers are counted, not repeated.
        assert len(result["samples"]) == (1 if aspect == "correctness" else 2)
        assert result["value"] == pytest.approx(sum(result["samples"]) / len(result["samples"]))
        assert result["pus_found"] == result["pus"]
        assert len(result["pus"]) == result["threads"]
        pages = result["pages"]
        assert pages["verified"]
        assert set(pages["found"]) == set(map(str, result["banks"]))
        assert sum(pages["found"].values()) * measured["host"]["page_bytes"] == result["memory_bytes"]
    assert measured["most_memory_bytes"] >= max(r["memory_bytes"] for r in measured["results"])


@pytest.mark.parametrize("aspect", probe.ASPECTS)
def test_lines_say_what_the_document_says(run, aspect):
    options = [] if aspect == "topology" else ["--sanity", f"--banks={BANK}"]
    whole = document(run(aspect, *options))
    lines = [json.loads(line) for line in run(aspect, *options, "--jsonl").stdout.splitlines()]
    assert [line["type"] for line in lines] == ["begin", *["result"] * whole["count"], "end"]
    # The memory of a virtual machine may change at any moment.
    for node in (*lines[0]["host"]["numa_nodes"], *whole["host"]["numa_nodes"]):
        assert node.pop("memory_bytes") > 0
    assert lines[0]["host"] == whole["host"]
    for line, result in zip(lines[1:-1], whole["results"], strict=True):
        # Only PUs that waited for other processes, or of which a hypervisor took time, are said to have lost it.
        assert line.keys() - {"type", "waited", "stolen_s"} == result.keys() - {"waited", "stolen_s"}


def test_no_device_is_looked_for(run):
    """A virtual machine has a block device or a network card; reading PCI devices took most of the time."""
    shown = run("topology", "--xml").stdout
    assert 'type="PU"' in shown
    assert not any(f'type="{kind}"' in shown for kind in ("Bridge", "PCIDev", "OSDev"))


@pytest.mark.parametrize("option", ["--json", "--xml"])
def test_a_machine_that_hwloc_makes_up_is_refused(native_probe, option, monkeypatch):
    for name in topologies.SMALL_CACHES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HWLOC_SYNTHETIC", "numa:2 pu:2")
    done = captured([native_probe, "topology", option])
    assert (done.returncode, done.stdout) == (3, "")
    assert "another machine" in done.stderr


def test_all_kernels_in_all_instruction_sets_and_stores(run):
    measured = document(run("bandwidth", "--sanity", "--stores", "both", f"--banks={BANK}", "--interleave=none"))
    cases = {(r["instructions"], r["stores"], r["kernel"]) for r in measured["results"]}
    sets = measured["host"]["instructions"]
    here = {"x86_64": {"plain", "sse2", "avx2", "avx512"}, "aarch64": {"plain", "neon", "sve"}}
    assert "plain" in sets
    assert set(sets) <= here[platform.machine()]
    (other,) = here.keys() - {platform.machine()}
    for name in here[other] - {"plain"}:
        assert run("bandwidth", "--sanity", f"--instructions={name}").returncode == 3
    for name in sets:
        stores = ("regular",) if name == "plain" else ("regular", "streaming")
        assert {c for c in cases if c[0] == name} == {
            (name, s, k) for s in stores for k in ("copy", "scale", "add", "triad")
        }
    if platform.machine() == "x86_64":
        assert "sse2" in sets
    small = (
        *("--array-bytes=1MiB", "--max-repetitions=1", "--kernels=copy", f"--banks={BANK}"),
        f"--pu-nodes={NODE}",
    )
    done = run("bandwidth", *small, "--stores=streaming", "--instructions=all", "--interleave=none")
    assert [r["instructions"] for r in document(done)["results"]] == [name for name in sets if name != "plain"]
    assert all(f"{name} streaming: copy " in done.stderr for name in sets if name != "plain")


def test_repetitions_end_at_the_limit_or_when_the_interval_is_narrow(run):
    small = ["--array-bytes=1MiB", "--kernels=triad", f"--banks={BANK}", f"--pu-nodes={NODE}", "--interleave=none"]
    measured = document(
        run("bandwidth", *small, "--min-repetitions=4", "--max-repetitions=7", "--confidence=1e-9")
    )
    (result,) = measured["results"]
    assert (len(result["samples"]), result["ended"]) == (7, "limit")
    assert result["interval"] == pytest.approx(reach(result["samples"]), rel=1e-3)
    (result,) = document(run("bandwidth", *small, "--max-repetitions=1000", "--confidence=0.2"))["results"]
    assert len(result["samples"]) >= 5
    assert result["interval"] == pytest.approx(reach(result["samples"]), rel=1e-3)
    assert (result["interval"] <= 0.2) == (result["ended"] == "narrow")
    # With an interval this narrow it would have ended earlier.
    for count in range(5, len(result["samples"])):
        assert reach(result["samples"][:count]) > 0.2 * 0.999
    (result,) = document(run("bandwidth", *small, "--max-repetitions=3"))["results"]
    assert (len(result["samples"]), result["ended"], result["interval"]) == (3, "limit", None)


def reach(samples):
    """Return the half-width of the interval as the simulation of the rule computes it, relative to the median."""
    return float(INTERVALS(np.array([samples]))[1][0])


def run_prepared(before, *argv, **files):
    """Run *argv* after the shell script *before*, which mounts other files over the kernel's."""
    if os.geteuid() or subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode:
        pytest.skip("only root can mount files over the kernel's")
    values = [f"{name}={value}" for name, value in files.items()]
    return captured(
        ["env", *values, "unshare", "-m", "sh", "-ec", f'{before}\nexec "$@"', "sh", *argv],
        stdin=subprocess.DEVNULL,
        timeout=120,
    )


#: With these, hwloc and the probe take the stored root for this host, and may use all of its PUs and NUMA nodes.
STORED_ROOT = """
rm -rf "$root/proc/self"
mkdir -p "$root/proc/self"
printf 'Cpus_allowed_list:\t0-1023\nMems_allowed_list:\t0-1023\n' >"$root/proc/self/status"
mount --bind "$root/sys" /sys
mount --bind "$root/proc" /proc
export HWLOC_COMPONENTS=linux,stop
"""


MADE_UP = {"two NUMA nodes": numa_root, "three cores": hybrid_root}


@pytest.mark.parametrize("host", [*MADE_UP, "partial-cpuset", "hybrid", "gpu-memory", "offline-node"])
def test_the_probe_and_python_see_the_same_host(native_probe, tmp_path, host):
    root = MADE_UP[host](tmp_path / "root") if host in MADE_UP else topologies.stored_root(host, tmp_path)
    command = [sys.executable, "-m", "firsttouch", "topology", "--json"]
    ours = document(run_prepared(STORED_ROOT, native_probe, "topology", root=root))["host"]
    theirs = document(run_prepared(STORED_ROOT, *command, root=root, FIRSTTOUCH_PROBE=native_probe))
    banks = {n["number"]: (n["memory_bytes"], n["data"], sorted(n["usable_pus"])) for n in ours["numa_nodes"]}
    data = {
        n["index"]: bool(n["memory_bytes"]) and n["subtype"] not in DEVICE_MEMORY for n in theirs["numa_nodes"]
    }
    assert banks == {
        n["index"]: (n["memory_bytes"], data[n["index"]], n["usable_pus"]) for n in theirs["numa_nodes"]
    }
    assert ours["cache_bytes"] == max((size for _, size in theirs["caches"]), default=0)
    if len(banks) > 1:
        assert ours["distances"] == theirs["distances"]
    stored = {n.index: n.memory_bytes for n in load(fsroot=root).numa_nodes}
    assert stored == {n: memory for n, (memory, _, _) in banks.items()}
    if host == "gpu-memory":
        assert [n for n, (_, data, _) in banks.items() if not data] == list(range(250, 256))


@TWO_PUS
def test_numa_nodes_of_one_pu_have_no_contention_of_two_threads_and_no_local_load(native_probe, tmp_path):
    nodes = tmp_path / "sys/devices/system/node"
    for number in range(2):
        for name, text in (("cpulist", PUS[number]), ("cpumap", f"{1 << PUS[number]:x}"), ("distance", "10 10")):
            (nodes / f"node{number}").mkdir(parents=True, exist_ok=True)
            (nodes / f"node{number}/{name}").write_text(f"{text}\n")
        (nodes / f"node{number}/meminfo").write_text(f"Node {number} MemTotal: 4194304 kB\nMemFree: 4194304 kB\n")
    cache = nodes / "node0/memory_side_cache/index1"
    cache.mkdir(parents=True)
    for name, text in (("size", 1 << 30), ("line_size", 64), ("indexing", 0)):
        (cache / name).write_text(f"{text}\n")
    (nodes / "online").write_text("0-1\n")
    before = 'mount --bind "$nodes" /sys/devices/system/node\nexport HWLOC_COMPONENTS=linux,stop'
    done = run_prepared(before, native_probe, "loaded-latency", "--sanity", "--banks=0", nodes=nodes)
    assert "left out: local load of NUMA node 1, bank 0: the NUMA node has no second PU to use" in done.stderr
    results = document(done)["results"]
    assert {(r["load"], r["pu_nodes"][0], *r["pus"]) for r in results} == {
        ("incoming", 0, PUS[0], PUS[1]),
        ("incoming", 1, PUS[1], PUS[0]),
    }
    argv = [native_probe, "contention", "--banks=0", "--array-bytes=1MiB", "--max-repetitions=2"]
    done = run_prepared(before, *argv, "--threads=2", nodes=nodes)
    assert (done.returncode, "none here has two PUs" in done.stderr) == (3, True), done
    done = run_prepared(before, *argv, nodes=nodes)
    assert "contention of two threads is left out: no NUMA node has two PUs to use" in done.stderr
    results = json.loads(done.stdout)["results"]
    assert {r["threads"] for r in results} == {1}
    # The bank has a memory-side cache that holds all of the array.
    assert {r["measures"] for r in results} == {"memory-side cache"}


def in_cgroup(folder, group, limit, *argv):
    """Run *argv* in a cgroup of this name with a limit of memory, whose files are in *folder*."""
    (folder / f"fs{group}").mkdir(parents=True, exist_ok=True)
    (folder / "fs/cgroup.controllers").write_text("")
    for name, text in (("memory.max", limit), ("memory.current", 0), ("memory.stat", "inactive_file 0")):
        (folder / f"fs{group}/{name}").write_text(f"{text}\n")
    (folder / "group").write_text(f"0::{group}\n")
    before = 'mount --bind "$folder/fs" /sys/fs/cgroup\nmount --bind "$folder/group" /proc/$$/cgroup'
    return run_prepared(before, *argv, folder=folder)


def test_the_limit_of_a_cgroup_whose_path_is_long(native_probe, tmp_path):
    group = (tmp_path, "".join(f"/{'pod' * 30}{i}" for i in range(8)), 300 << 20)
    assert len(group[1]) > 700
    done = in_cgroup(*group, native_probe, "bandwidth", "--array-bytes=200MB", "--kernels=copy")
    assert (done.returncode, "where 281 MiB can be had" in done.stderr) == (3, True), done
    done = in_cgroup(*group, native_probe, "topology", "--xml")
    assert topology.parse_xml(done.stdout).memory_limit_bytes == 300 << 20


@pytest.mark.parametrize("argv", [["bandwidth"], ["latency"], ["loaded-latency"], ["contention"], ["tails"]])
def test_caches_are_not_measured_as_memory_where_memory_is_short(native_probe, tmp_path, argv):
    caches = json.loads(subprocess.run([native_probe, "topology"], capture_output=True, check=True).stdout)["host"]
    done = in_cgroup(tmp_path, "/small", caches["all_caches_bytes"] + (20 << 20), native_probe, *argv)
    assert done.returncode == 3
    assert "too few to measure memory behind caches" in done.stderr


def test_latency_of_a_small_cycle_is_less_than_of_a_large_one(run):
    """Caches and prefetchers must not serve a random cycle far larger than the caches (1 ns instead of 100)."""
    measured = document(run("latency", "--sizes=4KiB,memory", f"--banks={BANK}", f"--pu-nodes={NODE}"))
    small, large = (r["value"] for r in measured["results"])
    assert 5 * small < large


@pytest.mark.parametrize("order", ["random", "paged", "sequential"])
@pytest.mark.parametrize("size", ["1024", "4160", "266304", "1MiB"])
def test_cycles_of_odd_sizes(run, order, size):
    small = (f"--banks={BANK}", f"--pu-nodes={NODE}", "--max-repetitions=3")
    (result,) = document(run("latency", f"--sizes={size}", f"--order={order}", *small))["results"]
    assert result["status"] == "valid"
    assert result["order"] == order
    assert result["metric"] == ("sequential_latency" if order == "sequential" else "random_latency")


@huge_pages.needed()
def test_huge_pages(run):
    enabled = (ROOT / "/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    done = run("latency", "--sizes=8MiB", "--pages=thp", f"--banks={BANK}", f"--pu-nodes={NODE}")
    if "[never]" in enabled:
        assert done.returncode == 3
    else:
        (result,) = document(done)["results"]
        assert (result["pages"]["asked"], result["pages"]["huge_share"]) == ("thp", 1)
    (result,) = document(run("latency", "--sizes=8MiB", f"--banks={BANK}", f"--pu-nodes={NODE}"))["results"]
    assert (result["pages"]["asked"], result["pages"]["huge_share"]) == ("base", 0)


@TWO_PUS
def test_curves_of_loaded_latency(run):
    """The loaders reach the rates, and a share of 50 % moves more than loads only: lines are written back."""
    options = [
        "--loads=local",
        f"--pu-nodes={NODE}",
        f"--banks={BANK}",
        "--rates=0.5,0.5,0",
        "--max-repetitions=2",
    ]
    measured = document(run("loaded-latency", *options, "--array-bytes=64MB", "--sizes=64MiB"))
    curves = {}
    for result in measured["results"]:
        assert (result["status"], result["load_bank"]) == ("valid", BANK)
        assert result["loaders"] == len(result["pus"]) - 1
        curves.setdefault(result["read_share"], {}).setdefault(result["metric"], {})[result["rate"]] = result
    assert list(curves) == [1, 0.75, 0.5]
    loads = []
    for metrics in curves.values():
        assert [list(points) for points in metrics.values()] == [[0, 0.5, 1]] * 2
        idle = metrics["load_bandwidth"][0]
        # Without a load, the traffic is the chaser's, a line per step. A busy host may wake a loader late.
        line = measured["host"]["line_bytes"]
        for rate, latency in zip(idle["samples"], metrics["loaded_latency"][0]["samples"], strict=True):
            assert rate * latency == pytest.approx(line, rel=0.1)
        loads += [
            load / idle["value"] for rate, point in metrics["load_bandwidth"].items() for load in point["samples"]
        ]
    # A busy host may give the loader no time during one point, but not during all.
    assert max(loads) > 2


BROKEN = {
    "reads half of the lines": ("i < unchanged; i += 4 * WIDTH", "i < unchanged; i += 8 * WIDTH"),
    "stores what was there": ("*place = value + one;", "*place = value;"),
    "does not use what it reads": ("sums[j] += value;", "(void)value;"),
}


def broken_probe(native_probe, folder, name, right, wrong):
    """Build the probe with a change of one of its files, and otherwise of the objects that it was built of."""
    text = (SOURCE / "src" / name).read_text()
    assert right in text
    file = folder / Path(name).name
    file.write_text(text.replace(right, wrong))
    objects = {f for f in (native_probe.parent / "CMakeFiles").rglob("*.o") if f.name != f"{file.name}.o"}
    argv = ["gcc", "-D_GNU_SOURCE", "-O1", "-I", (SOURCE / "src" / name).parent, file, *objects]
    subprocess.run([*argv, "-o", folder / "probe", "-lhwloc", "-lm", "-lpthread"], check=True)
    return folder / "probe"


@TWO_PUS
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_a_load_that_does_not_do_its_work_is_invalid(native_probe, tmp_path):
    for change in BROKEN.values():
        broken = broken_probe(native_probe, tmp_path, "kernels/load.c", *change)
        done = captured([broken, "loaded-latency", "--sanity", "--loads=local"])
        assert done.returncode == 1, done.stderr
        assert "the values that the loaders read or stored are wrong" in done.stderr


@TWO_PUS
def test_under_an_affinity(run):
    shown = run("topology", "--xml", before=["taskset", "-c", str(PUS[1])])
    assert topology.parse_xml(shown.stdout).allowed_pus == {PUS[1]}
    measured = document(run("bandwidth", "--sanity", before=["taskset", "-c", str(PUS[1])]))
    assert {tuple(r["pus"]) for r in measured["results"]} == {(PUS[1],)}
    done = run("loaded-latency", "--sanity", before=["taskset", "-c", str(PUS[1])])
    assert (done.returncode, done.stdout) == (3, "")
    assert "no load can be made here; local load of NUMA node" in done.stderr


@TWO_PUS
def test_core_to_core(run):
    measured = document(run("core-to-core", "--sanity", "--pairs=all", f"--banks={BANK}"))
    nodes = {pu: n["number"] for n in measured["host"]["numa_nodes"] for pu in n["usable_pus"]}
    pairs = [tuple(sorted(r["pus"])) for r in measured["results"]]
    assert sorted(pairs) == list(itertools.combinations(sorted(nodes), 2))
    for result in measured["results"]:
        assert set(result["pu_nodes"]) == {nodes[pu] for pu in result["pus"]}
        assert (result["banks"], result["pairs"]) == ([BANK], result["pairs_of"])
    done = run("core-to-core", before=["taskset", "-c", str(PUS[1])])
    assert (done.returncode, "needs two PUs" in done.stderr) == (3, True), done


def test_locks(run):
    """Each lock with each way to parse, but blocks are all that can be taken without a lock."""
    options = ("--sanity", "--batch=2,5", "--work=0,2us", "--block-bytes=1000", "--record-bytes=150")
    done = run("locks", *options)
    measured = document(done)
    # Cases take turns, so none of them is complete before the last repetition of all.
    lines = [line.split(":")[0] for line in done.stderr.splitlines()]
    assert lines[0] == "locks compact, 1 threads, 32 cases"
    cases = [
        (r["lock"], r["parsing"], r["batch"], r["work_ns"], r["threads"], r["placement"])
        for r in measured["results"]
    ]
    assert len(set(cases)) == len(cases) == measured["placements"]
    sizes = {"original": (1,), "deferred": (1,), "batched": (2, 5), "blocked": (6,)}
    ways = {("atomic", "blocked", 6)}
    ways |= {(k, p, n) for k in ("spin", "ticket", "mutex", "queue") for p, batch in sizes.items() for n in batch}
    assert {case[:3] for case in cases} == ways
    assert {case[3] for case in cases} == {0, 2000}
    threads = {case[4] for case in cases}
    assert {1, len([p for n in measured["host"]["numa_nodes"] for p in n["usable_pus"]])} <= threads
    for result in measured["results"]:
        assert (result["metric"], result["unit"], result["banks"]) == ("lock_records", "records/s", [BANK])
        assert ("block_bytes" in result) == (result["parsing"] == "blocked")
        assert ("waiting" in result) == (result["lock"] != "atomic")
        assert 0 <= result.get("waiting", 0) + result.get("holding", 0) < 1.000001
        # Of the work alone, a thread does 500,000 per second.
        assert result["value"] * result["work_ns"] * 1e-9 <= 1.2 * result["threads"]
    done = run("locks", "--sanity", "--threads=2", before=["taskset", "-c", str(PUS[0])])
    assert (done.returncode, "it can be 1 to 1" in done.stderr) == (2, True), done


BROKEN_LOCKS = {
    "lock.c": (
        "while (atomic_exchange_explicit(&lock->state.taken, true, memory_order_acquire))",
        "while (false)",
    ),
    "fastq.c": ("['G'] = 6", "['G'] = 7"),
}


@TWO_PUS
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("name", BROKEN_LOCKS)
def test_records_of_a_lock_or_parser_that_is_broken_are_invalid(native_probe, tmp_path, name):
    """A lock that does not exclude, or a wrong parser."""
    broken = broken_probe(native_probe, tmp_path, name, *BROKEN_LOCKS[name])
    argv = ["locks", "--sanity", "--seconds=0.05", "--locks=spin,queue", "--threads=2", "--parsings=deferred"]
    done = captured([broken, *argv])
    assert done.returncode == 1, done.stderr
    spin, queue = json.loads(done.stdout)["results"]
    assert (spin["status"], spin["reason"]) == ("invalid", "not every record was handed out once")
    assert (queue["status"] == "valid") == (name == "lock.c")


REFUSED = [
    ("", "no aspect"),
    ("speed", "there is no aspect 'speed'"),
    ("latency --foo", "no such option"),
    ("latency --sizes 100", "less than 16 lines"),
    ("latency --pages 2M", "is not one of base, thp, huge"),
    ("bandwidth --interleave 0,777", "there is no NUMA node 777"),
    ("bandwidth --kernels copy,sum", "'sum' is not one of"),
    ("bandwidth fast", "one word too many"),
    ("loaded-latency --sizes 16KiB,1MiB", "--sizes: loaded-latency takes one size"),
    (f"loaded-latency --rates {','.join(['0.5'] * 63)}", "more than 62 rates"),
    ("locks --locks spin,atomic --parsings original,batched", "--parsings must have blocked"),
    ("locks --work 1us,fast", "'fast' is not a time from 0 to 10ms"),
]


@pytest.mark.parametrize(("argv", "reason"), REFUSED)
def test_bad_input_is_one_line(run, argv, reason):
    done = run(*argv.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("firsttouch-probe: error: ")
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("aspect", ["bandwidth", "contention", "loaded-latency"])
def test_more_memory_than_there_is(run, aspect):
    size = str(load().node(BANK).memory_bytes)  # a virtual machine may get memory while tests run
    done = run(aspect, "--array-bytes", size, f"--banks={BANK}")
    assert (done.returncode, done.stdout) == (3, "")
    assert "can be had" in done.stderr
    done = run("latency", "--sizes", size, f"--banks={BANK}")
    assert (done.returncode, done.stdout) == (3, "")


def test_no_huge_pages(run):
    nodes = (ROOT / "/sys/devices/system/node").glob("node*/hugepages/*/free_hugepages")
    if any(int(file.read_text()) for file in nodes):
        pytest.skip("this host has free huge pages")
    done = run("latency", "--pages=huge")
    assert (done.returncode, done.stdout) == (3, "")
    assert "no huge page is free" in done.stderr


REFUSE = """
import ctypes, os, struct, sys
number, error = int(sys.argv[1]), int(sys.argv[2])
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50000 | error), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = struct.pack("HxxxxxxQ", len(rules), ctypes.addressof(code))
prctl = ctypes.CDLL(None, use_errno=True).prctl
assert prctl(38, 1, 0, 0, 0) == 0
assert prctl(22, 2, program) == 0, ctypes.get_errno()
os.execv(sys.argv[3], sys.argv[3:])
"""
NUMBERS = {"x86_64": {"mbind": 237, "move_pages": 279}, "aarch64": {"mbind": 235, "move_pages": 239}}


@pytest.mark.parametrize("call", ["mbind", "move_pages"])
def test_a_container_that_forbids_placement(run, call):
    """With a seccomp filter as in containers, the real kernel answers EPERM."""
    number = NUMBERS[platform.machine()][call]
    done = run("bandwidth", "--sanity", before=[sys.executable, "-c", REFUSE, str(number), "1"])
    assert done.returncode == 3
    assert f"{call}: Operation not permitted" in done.stderr
    assert "seccomp" in done.stderr
    measured = json.loads(done.stdout)
    assert (measured["status"], measured["results"]) == ("failed", [])
    assert call in measured["reason"]


def test_a_kernel_without_numa(run):
    """With ENOSYS on one NUMA node, nothing can be placed or verified, and the result states it."""
    if len(HOST.numa_nodes) > 1:
        pytest.skip("this host has several NUMA nodes")
    numbers = NUMBERS[platform.machine()]
    refuse = [[sys.executable, "-c", REFUSE, str(numbers[call]), "38"] for call in ("mbind", "move_pages")]
    measured = document(run("latency", "--sanity", before=[*refuse[0], *refuse[1]]))
    assert [r["pages"]["verified"] for r in measured["results"]] == [False]


#: The CPU time of a thread in which it has touched its memory and done some repetitions on 256 MB, but not 1000.
BUSY = 0.1


def seconds_of_threads(pid):
    """Return the CPU time of each thread of a process that it started itself."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            if task.name != str(pid):
                yield (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def started(native_probe):
    """Returns a function that starts a probe that would take minutes, and waits until its threads measure."""
    running = []

    def start(*options):
        argv = [
            *(native_probe, "bandwidth", "--array-bytes=256MB", "--min-repetitions=1000"),
            "--max-repetitions=1000",
        ]
        argv += [f"--banks={BANK}", f"--pu-nodes={NODE}", "--interleave=none", *options]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        running.append(process)
        wait_until(lambda: sum(s >= BUSY for s in seconds_of_threads(process.pid)) >= len(PUS), "busy threads")
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle(started, number):
    process = started("--jsonl")
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    report = probe.Report()
    assert report.take(out.encode()) == []
    assert report.status == "partial"
    assert signal.strsignal(number) in report.reason
    assert "what had been measured is printed" in err.splitlines()[-1]
    for result in map(json.loads, out.splitlines()[1:-1]):
        assert (result["partial"], result["ended"], result["status"]) == (True, "signal", "valid")


@TWO_PUS
def test_a_thread_that_is_moved_is_an_error(native_probe):
    argv = [native_probe, "bandwidth", "--array-bytes=64MB", "--min-repetitions=300", "--max-repetitions=300"]
    argv += [f"--banks={BANK}", f"--pu-nodes={NODE}", "--interleave=none", "--kernels=triad"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        moved, tasks = False, []
        # Repeatedly: the threads that touch the memory start first, those that measure later.
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(FileNotFoundError):
                tasks = [int(t) for t in os.listdir(f"/proc/{process.pid}/task")]  # noqa: PTH208
            for task in tasks:
                # Bind the thread of the second PU to the first, where it continues.
                with contextlib.suppress(ProcessLookupError):
                    if task != process.pid and os.sched_getaffinity(task) == {PUS[1]}:
                        os.sched_setaffinity(task, {PUS[0]})
                        moved = True
            time.sleep(0.01)
        out, err = process.communicate(timeout=120)
    assert moved
    assert process.returncode == 1
    measured = json.loads(out)
    assert measured["status"] == "invalid"
    assert {r["status"] for r in measured["results"]} == {"invalid"}
    assert f"the thread of PU {PUS[1]} is not bound to it alone" in err


@pytest.mark.parametrize("option", ["--json", "--xml"])
def test_output_that_cannot_be_written(native_probe, option):
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [native_probe, "topology", option], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert "standard output cannot be written: No space left" in done.stderr


@pytest.mark.parametrize("sanitize", ["address,undefined", "thread"])
def test_sanitizers_find_nothing(sanitize):
    program = built_once(sanitize=sanitize)
    for argv in (
        ["topology"],
        ["topology", "--xml"],
        ["latency", "--sanity", "--order=random,paged,sequential", "--sizes=16KiB,300000"],
        ["bandwidth", "--sanity", "--stores=both"],
        ["contention", "--sanity"],
        ["loaded-latency", "--sanity", "--rates=1e-12,0.5"],
        ["core-to-core", "--sanity", f"--banks={BANK}"],
        ["locks", "--sanity", "--batch=3", "--record-bytes=200", "--block-bytes=1000", "--array-bytes=40000"],
        ["cores", "--sanity", f"--inject={PUS[0]}"],
        ["cores", "--sustain=0.1"],
        ["tails", "--sanity"],
        ["tails", "--accesses=1024", "--sizes=1MiB", "--array-bytes=1MiB", "--max-repetitions=2"],
        ["correctness", "--sanity", f"--inject={PUS[0]},copy,3,2"],
        ["bandwidth", "--set-sizes=777"],
        ["bandwidth", "--interleave=0,777/all"],
    ):
        done = captured([program, *argv], timeout=250)
        expected = 2 if "777" in argv[-1] else 1 if "--inject" in argv[-1] else 0
        assert done.returncode == expected, done.stderr
        assert "anitizer" not in done.stderr
        assert "runtime error" not in done.stderr


@pytest.mark.skipif(shutil.which("clang") is None, reason="clang is not installed")
def test_clang_builds_it_as_well():
    program = built_once(compiler="clang")
    done = subprocess.run([program, "bandwidth", "--sanity", "--stores=both"], capture_output=True, check=False)
    assert done.returncode == 0, done


def test_the_help_of_an_aspect_has_the_options_that_it_accepts(run):
    def options(text):
        return dict(re.findall(r"^  --([a-z-]+)(?: |\[=)?(\S*)", text, re.MULTILINE))

    whole = options(run("--help").stdout)
    for aspect in probe.ASPECTS:
        shown = run(aspect, "--help")
        assert (shown.returncode, shown.stderr) == (0, "")
        assert f"  firsttouch-probe {aspect} --" in shown.stdout
        own = options(shown.stdout)
        assert own.items() <= whole.items()
        for option in whole.keys() - own.keys():
            done = run(aspect, f"--{option}", *(["1"] if whole[option] else []))
            assert f"--{option} is not an option of {aspect}" in done.stderr
        for option in own.keys() - {"help"}:
            # The rest ends the run before anything is measured.
            done = run(aspect, f"--{option}", *(["x"] if own[option] else []), "--nosuch")
            assert "is not an option of" not in done.stderr
            assert done.returncode == 2
