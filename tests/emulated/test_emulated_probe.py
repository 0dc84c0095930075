# SPDX-License-Identifier: Apache-2.0
"""The native probe on several NUMA nodes: the placements that it measures, and their verification."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from firsttouch.benchmarks import probe

from .guest import Guest

#: Speeds of an emulated machine mean nothing, so short measurements are enough.
SHORT = ["--sanity", "--quiet"]
#: Of all arrays that are compared with their banks: to touch a page takes longer than to measure it.
FEW_PAGES = ["--array-bytes=256KiB"]


def run(guest: Guest, native_probe: Path, *argv: str, before: tuple[str, ...] = ()) -> dict[str, Any]:
    done = guest.run([*before, native_probe, *argv], timeout=600)
    assert done.returncode == 0, done.error_text
    return dict(json.loads(done.text))


def pu_nodes(guest: Guest) -> list[int]:
    allowed = guest.machine.allowed_nodes or guest.machine.nodes
    return [n for n in allowed if set(guest.machine.pus_of(n)) - set(guest.machine.offline_pus)]


def banks(guest: Guest) -> list[int]:
    return [n for n in (guest.machine.allowed_nodes or guest.machine.nodes) if guest.machine.memory[n]]


def checked(guest: Guest, native_probe: Path, *argv: str, before: tuple[str, ...] = ()) -> dict[str, Any]:
    """Run the probe; compare the placements that it verified with the machine's description."""
    document = run(guest, native_probe, *argv, before=before)
    assert (document["status"], document["invalid"]) == ("complete", 0)
    offline = set(guest.machine.offline_pus)
    for result in document["results"]:
        # The threads that load the walker's bank may run on any NUMA node.
        working = pu_nodes(guest) if "loaders" in result else result["pu_nodes"]
        inside = {p for n in working for p in guest.machine.pus_of(n)} - offline
        assert set(result["pus_found"]) <= inside
        assert len(set(result["pus_found"])) == result["threads"]
        pages = {int(n): count for n, count in result["pages"]["found"].items()}
        assert set(pages) == set(result["banks"]) <= set(banks(guest))
        assert max(pages.values()) - min(pages.values()) <= 1
    return document


@pytest.mark.parametrize("guest", ["small", "tiers", "unequal"], indirect=True)
def test_every_aspect_on_every_placement(guest: Guest, native_probe: Path) -> None:
    nodes, data = pu_nodes(guest), banks(guest)
    topology = run(guest, native_probe, "topology")["host"]
    assert {n["number"]: set(n["usable_pus"]) for n in topology["numa_nodes"] if n["usable_pus"]} == {
        n: set(guest.machine.pus_of(n)) - set(guest.machine.offline_pus) for n in nodes
    }
    assert [n["number"] for n in topology["numa_nodes"] if n["data"]] == data
    assert tuple(map(tuple, topology["distances"])) == guest.machine.distances

    latency = checked(guest, native_probe, "latency", *SHORT)
    assert [(r["pu_nodes"][0], r["banks"][0]) for r in latency["results"]] == [(n, b) for b in data for n in nodes]

    kernel = ("--kernels=triad", "--instructions=plain", "--interleave=first/all")
    bandwidth = checked(guest, native_probe, "bandwidth", *SHORT, *FEW_PAGES, *kernel)
    sizes = sorted({1, 2, 4, len(nodes)} & set(range(1, len(nodes) + 1)))
    sets = [list(s) for size in sizes for s in combinations(nodes, size)]
    targets = [[b] for b in data] + [[data[0], b] for b in data[1:]] + ([data] if len(data) > 2 else [])
    assert [(r["pu_nodes"], r["banks"]) for r in bandwidth["results"]] == [(s, t) for t in targets for s in sets]
    assert {r["policy"] for r in bandwidth["results"] if len(r["banks"]) > 1} == {"interleave"}

    contention = checked(guest, native_probe, "contention", *SHORT, *FEW_PAGES)
    assert {r["banks"][0] for r in contention["results"]} == set(data)
    usable = {n["number"]: n["usable_pus"] for n in topology["numa_nodes"]}
    assert max(r["threads"] for r in contention["results"]) == sum(map(len, usable.values()))
    # Threads come from the nearest NUMA nodes first, as in figure 3.6.
    for result in contention["results"]:
        if result["threads"] > 2:
            near = sorted(nodes, key=lambda n, b=result["banks"][0]: guest.machine.distances[n][b])
            assert result["pu_nodes"] == near

    load = ("--read-shares=0.75", "--rates=1", "--sizes=256KiB")
    loaded = checked(guest, native_probe, "loaded-latency", *SHORT, *FEW_PAGES, *load)
    assert {r["banks"][0] for r in loaded["results"]} == set(data)
    pairs = {n: ["local", "outgoing"] if len(usable[n]) > 1 else [] for n in nodes}
    loads = {(load, n) for n, here in pairs.items() for load in here} | {("incoming", n) for n in nodes}
    assert {(r["load"], r["pu_nodes"][0]) for r in loaded["results"]} == loads
    for result in loaded["results"]:
        node, (chaser, *loaders) = result["pu_nodes"][0], result["pus_found"]
        others = set(nodes) - {node} if result["load"] == "incoming" else {node}
        assert chaser in usable[node]
        assert {n for n in nodes if set(usable[n]) & set(loaders)} == others
        assert (result["load_bank"] == result["banks"][0]) == (result["load"] != "outgoing")


@pytest.mark.parametrize("guest", ["small"], indirect=True)
def test_pairs_of_pus(guest: Guest, native_probe: Path) -> None:
    """The line is on the bank nearest to the first PU, or on the bank that was asked for."""
    host = run(guest, native_probe, "topology")["host"]
    node_of = {pu: n["number"] for n in host["numa_nodes"] for pu in n["usable_pus"]}
    nearest = {n: min(banks(guest), key=lambda b, n=n: guest.machine.distances[n][b]) for n in pu_nodes(guest)}
    far = banks(guest)[-1]
    for more, bank_of in (((), nearest), ((f"--banks={far}",), dict.fromkeys(nearest, far))):
        document = checked(guest, native_probe, "core-to-core", "--sanity", "--pairs=6", *more)
        assert len(document["results"]) == 6
        for result in document["results"]:
            assert result["banks"] == [bank_of[node_of[result["pus"][0]]]]
            inside = {"core", "cache", "numa-node"} if len(result["pu_nodes"]) == 1 else {"package", "host"}
            assert result["shared"] in inside


@pytest.mark.parametrize("guest", ["small"], indirect=True)
def test_threads_of_locks(guest: Guest, native_probe: Path) -> None:
    """Compact threads fill the nearest NUMA node first; spread ones take a PU of each, where that differs."""
    nodes, bank = pu_nodes(guest), banks(guest)[-1]
    near = sorted(nodes, key=lambda n: guest.machine.distances[n][bank])
    host = run(guest, native_probe, "topology")["host"]
    usable = {n["number"]: n["usable_pus"] for n in host["numa_nodes"]}
    most = sum(map(len, usable.values()))
    document = checked(
        guest, native_probe, "locks", *SHORT, "--batch=2", f"--threads=1,2,{most}", f"--banks={bank}"
    )
    pus = {(r["threads"], r["placement"]): (r["pus"], r["pu_nodes"]) for r in document["results"]}
    assert set(pus) == {(1, "compact"), (2, "compact"), (2, "spread"), (most, "compact")}
    assert pus[1, "compact"] == ([usable[near[0]][0]], near[:1])
    assert pus[2, "compact"] == (usable[near[0]][:2], near[:1])
    assert pus[2, "spread"] == ([usable[n][0] for n in near[:2]], near[:2])
    assert len(document["results"]) == len(pus) * 17


@pytest.mark.parametrize("guest", ["unequal"], indirect=True)
def test_what_the_cpuset_forbids(guest: Guest, native_probe: Path) -> None:
    for option in ("--pu-nodes=0", "--banks=0", "--interleave=0,1"):
        done = guest.run([native_probe, "bandwidth", *SHORT, option])
        assert (done.returncode, done.text) == (2, "")
        assert "that this process may use" in done.error_text
    assert run(guest, native_probe, "bandwidth", *SHORT, "--banks=4")["status"] == "complete"


@pytest.mark.parametrize("guest", ["small"], indirect=True)
def test_huge_pages_of_one_bank(guest: Guest, native_probe: Path) -> None:
    pool = "/sys/devices/system/node/node2/hugepages/hugepages-2048kB/nr_hugepages"
    guest.run(["sh", "-c", f"echo 16 > {pool}"], check=True)
    document = checked(guest, native_probe, "latency", "--pages=huge", "--sizes=8MiB", "--banks=2", "--pu-nodes=0")
    assert [r["pages"]["huge_share"] for r in document["results"]] == [1]
    done = guest.run([native_probe, "latency", "--pages=huge", "--sizes=8MiB", "--banks=1,2"])
    assert (done.returncode, done.text) == (3, "")
    assert "needed on NUMA node 1, where 0 MiB can be had" in done.error_text
    guest.run(["sh", "-c", f"echo 0 > {pool}"], check=True)


@pytest.mark.parametrize("guest", ["small"], indirect=True)
def test_pages_that_are_moved_away_are_an_error(guest: Guest, native_probe: Path) -> None:
    """Another program migrates the process during the measurement, as numactl's migratepages does."""
    options = "bandwidth --array-bytes=4MiB --banks=1 --pu-nodes=1 --interleave=none --kernels=triad --jsonl"
    repeat = "--min-repetitions=30 --max-repetitions=30 --pages=base"
    touched = "grep -q ' N1=[0-9][0-9][0-9][0-9]' /proc/$!/numa_maps"
    wait = f"while kill -0 $! && ! {touched}; do :; done"
    move = "kill -STOP $!; migratepages $! 1 3; kill -CONT $!"  # it waits for its pages to be moved
    script = f"{native_probe} {options} {repeat} & {wait}; {move}; wait $!"
    done = guest.run(["sh", "-c", script], timeout=300)
    assert done.returncode == 1, done.error_text
    report = probe.Report()
    report.take(done.text.encode())
    assert report.status == "invalid"
    assert "pages are on NUMA node" in report.reason


@pytest.mark.parametrize("guest", ["amd-opteron"], indirect=True)
def test_the_thesis_placements_of_eight_nodes(guest: Guest, native_probe: Path) -> None:
    """64, 224 and 560 placements (section 3.4); --prune measures one of each group of equivalent placements."""
    short = [*SHORT, "--kernels=copy", "--instructions=plain", "--interleave=none", "--prune"]
    for size, number in ((1, 64), (2, 224), (4, 560)):
        document = checked(guest, native_probe, "bandwidth", *short, f"--set-sizes={size}")
        assert document["placements"] == number
        covered = [(tuple(r["pu_nodes"]), tuple(r["banks"])) for r in document["results"]]
        covered += [
            (tuple(s["pu_nodes"]), tuple(s["banks"])) for r in document["results"] for s in r["stands_for"]
        ]
        assert len(covered) == len(set(covered)) == number
        for result in document["results"]:
            for other in result["stands_for"]:
                matching = [
                    sorted(guest.machine.distances[n][p["banks"][0]] for n in p["pu_nodes"])
                    for p in (result, other)
                ]
                assert matching[0] == matching[1]
        # A NUMA node is local, one hop or two hops away.
        assert size != 1 or len(document["results"]) == 3


@pytest.mark.parametrize("guest", ["unequal"], indirect=True)
def test_a_bank_full_of_page_cache_can_be_measured(guest: Guest, native_probe: Path, tmp_path: Path) -> None:
    """The page cache fills every bank of a host in use, and the kernel frees such memory at once."""
    with (tmp_path / "large").open("wb") as file:
        file.truncate(160 << 20)
    guest.run(["taskset", "-c", "4", "cp", tmp_path / "large", "/dev/null"], check=True, timeout=300)
    meminfo = guest.run(["cat", "/sys/devices/system/node/node2/meminfo"], check=True).text
    assert int(re.search(r"MemFree: *(\d+)", meminfo)[1]) < 16 << 10, meminfo
    document = checked(guest, native_probe, "bandwidth", *SHORT, "--array-bytes=8MiB", "--banks=2", "--pu-nodes=2")
    assert document["most_memory_bytes"] >= 24 << 20


@pytest.mark.parametrize("guest", ["small"], indirect=True)
def test_the_memory_limit_of_a_cgroup(guest: Guest, native_probe: Path) -> None:
    """40 of 384 MiB may be used on each bank: the probe uses less, and is not killed.

    Arrays of that size would fit into the caches that the machine claims to have, so they must be asked for.
    """
    enter = (
        "mkdir -p $0 && echo 41943040 > $0/memory.max && echo 0 > $0/memory.swap.max; echo $$ > $0/cgroup.procs;"
    )
    limited = ("sh", "-c", f'{enter} exec "$@"', "/sys/fs/cgroup/probe")
    short = ("bandwidth", "--kernels=copy", "--banks=1", "--pu-nodes=1", "--max-repetitions=3")
    document = checked(guest, native_probe, *short, "--array-bytes=4MiB", before=limited)
    assert 8 << 20 < document["most_memory_bytes"] < 40 << 20
    done = guest.run([*limited, native_probe, *short])
    assert (done.returncode, done.text) == (3, "")
    assert "too few to measure memory behind caches" in done.error_text
    done = guest.run([*limited, native_probe, *short, "--array-bytes=16MiB"])
    assert (done.returncode, done.text) == (3, "")
    assert "48 MiB are needed on NUMA node 1" in done.error_text
