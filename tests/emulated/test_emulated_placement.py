# SPDX-License-Identifier: Apache-2.0
"""Every planned placement holds on real NUMA nodes, and the verdict detects a wrong one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from firsttouch.benchmarks.cases import topology_of
from firsttouch.datasets.fetch import get
from firsttouch.genomics import launch
from firsttouch.genomics.aligners import aligner
from firsttouch.host.topology import read_host
from firsttouch.scenarios.memory_fit import Need
from firsttouch.scenarios.placement import plan
from firsttouch.systems.definition import load
from study_files import study

from .guest import Guest

INSIDE = Path(__file__).with_name("inside.py")
#: On each bank: a little more than the pages (4 KiB) from which on the verdict judges evenness.
MEBIBYTES = 5
PAIRS = 32
CACHED_MEBIBYTES = 32
PAGES_PER_MIB = 256


def run(guest: Guest, *orders: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Return the results of inside.py for each order."""
    file = guest.shared / "orders.json"
    file.write_text(json.dumps(orders))
    done = guest.run([sys.executable, INSIDE, file], timeout=600, check=True)
    return list(json.loads(done.text))


def pages(actual: dict[str, Any]) -> dict[int, int]:
    return {int(n): c for n, c in actual["pages"].items()}


def checked(results: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return results by the names of their scenarios, with and without the threads.

    Pages and affinities are checked here again, independently of the program's own verdict, which is under test.
    """
    named = {result["scenario"]["name"]: result for result in results}
    for name, result in named.items():
        assert result["misplaced"] == [""] * len(result["found"]), name
        several = result["scenario"]["instances"] > 1
        for asked, actual in zip(result["scenario"]["placements"], result["found"], strict=True):
            assert set(actual["pus"]) <= set(asked["pus"]), name
            total = sum(pages(actual).values())
            inside = {n: pages(actual).get(n, 0) for n in asked["numa_nodes"]}
            if several or asked["policy"] == "interleave":
                assert sum(inside.values()) >= 0.95 * total, name
        for asked, own in zip(result["scenario"]["placements"], result.get("own", ()), strict=False):
            if asked["policy"] == "interleave":
                # The memory that the program touched; its interpreter's many small mappings are not even.
                touched = pages(own)
                mean = sum(touched.values()) / len(asked["numa_nodes"])
                assert set(touched) == set(asked["numa_nodes"]), name
                assert all(abs(count - mean) <= 0.02 * mean for count in touched.values()), (name, touched)
    return named | {re.sub(r"x\d+-", "x-", name): result for name, result in named.items()}


@pytest.mark.parametrize("guest", ["amd-opteron"], indirect=True)
def test_scenarios_of_both_studies_lie_where_they_should(guest: Guest, touch: Path) -> None:
    """Those of table 5.2 of the thesis that differ in kind, and a configuration of the study of thread scaling."""
    names = ["8x-bound", "4x-interleave", "1x-interleave"]
    nodes, pus = len(guest.machine.nodes), sum(guest.machine.pus)
    each = pus // nodes
    facts = replace(load("amd-opteron").facts, cores_per_numa_node=(each,) * nodes, threads_per_core=1, pus=pus)
    host = topology_of(facts)
    cases, _ = study("scaling2018").cases(host, threads=[each, pus], patterns=["BWA-MEM"], reads=["paired"])
    names += [case.scenario for case in cases]
    (placed,) = run(guest, {"scenarios": names, "touch": [str(touch), MEBIBYTES]})
    results = checked(placed)
    assert [case.threads for case in cases] == [each, pus]
    for case in cases:
        (actual,) = results[case.scenario]["found"]
        assert (actual["threads"], actual["held"]) == (case.threads, list(range(pus)))
    for number, actual in enumerate(results["8x-bound"]["found"]):
        assert set(pages(actual)) == {number}
        assert actual["pus"] == list(guest.machine.pus_of(number))
    for asked in results["4x-interleave"]["scenario"]["placements"]:
        a, b = asked["numa_nodes"]
        # The two dies of one package, never two NUMA nodes at two hops.
        assert guest.machine.distances[a][b] == 16
        assert a // 2 == b // 2
    assert set(pages(results["1x-interleave"]["found"][0])) == set(range(8))


#: Scenario, the words before each instance's argv, and the text that the verdict on one instance must have.
WRONG = [
    # Pinned a second time, to fewer PUs than there are threads.
    ("2x-bound", ["taskset", "-c", "0"], "pins them as well|threads may run on PUs"),
    ("2x-bound", ["likwid-pin", "-q", "-c", "0"], "pins them as well|threads may run on PUs"),
    # Outside of its PU-set.
    ("2x-interleave", ["taskset", "-c", "0-7"], "threads may run on PUs"),
    # On another bank, and under another policy.
    ("2x-bound", ["numactl", "--membind=2"], "outside"),
    ("1x-default", ["numactl", "--interleave=all"], "memory policy is interleave"),
]


ALIGNED = ["2x-interleave+interleaved-index", "4x-bound+node-index"]
CACHED = ["1x-default", "2x-bound"]
BATCH_BASES = 2_000


class Small(NamedTuple):
    """The results of the orders for the machine "small", and the checksum of one instance's alignments here."""

    wrong: list[dict[str, Any]]
    aligned: list[dict[str, Any]]
    cached: list[dict[str, Any]]
    uncached: list[dict[str, Any]]
    sha256: str


@pytest.fixture(scope="module")
def small(guest: Guest, touch: Path, tmp_path_factory: pytest.TempPathFactory) -> Small:
    """Run all orders for the machine "small" in one process, whose start takes longer than some of them."""
    wrong = {"scenarios": [[scenario, *wrap] for scenario, wrap, _ in WRONG], "touch": [str(touch), MEBIBYTES]}
    data = get("lambda")
    reads = [guest.shared / f"{number}.fq" for number, _ in enumerate(data.reads, start=1)]
    for file, few in zip(data.reads, reads, strict=True):
        few.write_text("".join(file.read_text().splitlines(keepends=True)[: 4 * PAIRS]))
    index = guest.shared / "index"
    program = shutil.which("bwa")
    assert program, "bwa is not on PATH: apt-get install bwa"
    subprocess.run([program, "index", "-p", index, data.reference], check=True, capture_output=True)
    aligned = {"index": str(index), "reads": [str(file) for file in reads], "batch_bases": BATCH_BASES}
    # A file of the host's root, below the guest's overlay, is in the guest's page cache when it is read. The
    # guest's mount of the shared folder keeps nothing that is read.
    cached, uncached = tmp_path_factory.mktemp("cached") / "index", guest.shared / "file"
    cached.write_bytes(bytes(CACHED_MEBIBYTES << 20))
    uncached.write_bytes(bytes(4 << 20))
    results = run(
        guest,
        wrong,
        {"scenarios": ALIGNED, "align": aligned},
        {"scenarios": CACHED, "cache": str(cached)},
        {"scenarios": CACHED[1:], "cache": str(uncached)},
    )
    work = replace(launch.prepare(aligner("bwa-mem"), index, reads, BATCH_BASES), summed=True)
    here = plan(read_host(), Need(index_use="loaded"), policies="usual")
    alone = launch.run(work, here.scenario("1x-default"), None)
    return Small(*results, alone.alignments.sums.exact)


@pytest.mark.parametrize("guest", ["small"], indirect=True)
def test_a_wrong_placement_is_caught(small: Small) -> None:
    for (_, wrap, reason), result in zip(WRONG, small.wrong, strict=True):
        verdicts = [verdict for verdict in result["misplaced"] if verdict]
        assert verdicts, (wrap, result["found"])
        assert any(re.search(reason, verdict) for verdict in verdicts), (wrap, verdicts)


def check_copies(results: dict[str, Any]) -> None:
    """Check that copies of the index are complete, on the NUMA nodes of their instances, and mapped by these."""
    sizes = set()
    for name, result in results.items():
        option = name.partition("+")[2]
        for node, actual in enumerate(result["found"]):
            index = actual["memory"]["index"]
            assert index["mapped"], name
            copy = {int(n): count for n, count in index["copy_pages"].items()}
            assert {int(n) for n in index["mapped_pages"]} <= set(copy)
            sizes.add(sum(copy.values()))
            if option == "node-index":
                assert set(copy) == {node}, (name, copy)
            else:
                assert set(copy) == {n for p in result["scenario"]["placements"] for n in p["numa_nodes"]}
                assert max(copy.values()) - min(copy.values()) <= 4, (name, copy)
    assert len(sizes) == 1, f"pages of the copies: {sizes}"


@pytest.mark.parametrize("guest", ["small"], indirect=True)
def test_bwa_lies_where_it_should_and_gives_the_same_alignments(small: Small) -> None:
    """The alignments equal one instance's on this host, outside of the guest."""
    results = checked(small.aligned)
    check_copies(results)
    assert {result["sha256"] for result in results.values()} == {small.sha256}


@pytest.mark.parametrize("guest", ["small"], indirect=True)
def test_an_index_is_cached_where_the_state_says(small: Small) -> None:
    size = CACHED_MEBIBYTES * PAGES_PER_MIB
    for name, states in zip(CACHED, small.cached, strict=True):
        assert {states[state]["reason"] for state in ("local", "interleave", "cold")} == {""}, (name, states)
        assert pages(states["local"]) == {0: size}, name
        shares = pages(states["interleave"])
        assert sorted(shares) == [0, 1, 2, 3], name
        assert all(abs(share - size // 4) < size // 16 for share in shares.values()), (name, shares)
        assert states["cold"]["cached"] == 0, name
    (states,) = small.uncached
    assert "does not use the page cache: use as-is" in states["local"]["reason"]


@pytest.mark.parametrize("guest", ["tiers", "unequal"], indirect=True)
def test_awkward_machines_carry_all_that_is_planned_for_them(guest: Guest, touch: Path) -> None:
    (placed,) = run(guest, {"touch": [str(touch), MEBIBYTES]})
    results = checked(placed)
    described = guest.machine
    allowed = set(described.allowed_nodes or described.nodes)
    for name, result in results.items():
        for asked in result["scenario"]["placements"]:
            assert set(asked["numa_nodes"]) <= {n for n in allowed if described.memory[n]}, name
            assert not set(asked["pus"]) & set(described.offline_pus), name
            assert set(asked["pus"]) <= {pu for n in allowed for pu in described.pus_of(n)}, name
    if described.name == "tiers":  # HBM is next to NUMA node 0 only
        assert [set(pages(own)) for own in results["2x-fast"]["own"]] == [{2}, {1}]
    else:
        assert not any("tier" in name for name in results)
