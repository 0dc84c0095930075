# SPDX-License-Identifier: Apache-2.0
"""The placements of the aspects: PU-sets and banks, and their split into runs of the probe."""

import math
import runpy
from collections import Counter
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from firsttouch.benchmarks import measure, probe, profiles, programs
from firsttouch.benchmarks.cases import Cases, topology_of
from firsttouch.benchmarks.profiles import efforts
from firsttouch.errors import BadInput
from firsttouch.paths import ROOT
from firsttouch.systems.definition import load

OPTERON = topology_of(load("amd-opteron").facts)


def host_of(packages, nodes):
    """Return a host of packages with N NUMA nodes each, of one core; other packages are farther."""
    count = packages * nodes
    return topology_of(
        SimpleNamespace(
            numa_node_numbers=list(range(count)),
            package_of_numa_node=[node // nodes for node in range(count)],
            cores_per_numa_node=[1] * count,
            threads_per_core=1,
            memory_per_numa_node=[1 << 34] * count,
            distances=[
                [10 if a == b else 12 if a // nodes == b // nodes else 32 for b in range(count)]
                for a in range(count)
            ],
        )
    )


@settings(deadline=None)
@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from(["all", "ends"]), st.sets(st.integers(0, 7), min_size=1))
def test_every_placement_is_in_one_run(size, extent, banks):
    """Each pair of PU-set and bank is in one run; a run has all PU-sets of one size on its NUMA nodes."""
    thorough = replace(profiles.efforts()["full"], banks=extent)
    sets = programs.sets_of(OPTERON, range(8), [size])
    measured = []
    for sets_of_run, targets in programs.rows(OPTERON, sets, sorted(banks), thorough):
        nodes_of_run = sorted({node for nodes in sets_of_run for node in nodes})
        assert sorted(sets_of_run) == list(combinations(nodes_of_run, size))
        measured += [(nodes, bank) for nodes in sets_of_run for bank in targets]
    wanted = [(s, b) for s in sets for b in thorough.banks_of(OPTERON, s, sorted(banks))]
    assert sorted(measured) == sorted(wanted)


@pytest.mark.parametrize("size", [0, 9])
def test_sizes_that_there_are_not(size):
    with pytest.raises(BadInput, match=f"--set-sizes: {size}.*8 NUMA"):
        programs.sets_of(OPTERON, range(8), [size])


@pytest.mark.parametrize("threads", [0, 65])
def test_numbers_of_threads_that_there_are_not(threads):
    with pytest.raises(BadInput, match=f"{threads} threads: .*64 PUs"):
        next(measure.measure(OPTERON, measure.AspectRequest("contention", threads=[1, threads])))


@pytest.mark.parametrize(
    ("packages", "nodes", "counts"),
    [
        (1, 8, {1: 8, 2: 28, 4: 70, 8: 1}),
        (2, 8, {1: 16, 2: 8, 4: 4, 8: 2, 16: 1}),
        (3, 8, {1: 24, 2: 12, 4: 6, 8: 3, 16: 1, 24: 1}),
        (1, 13, {1: 13, 2: 78, 4: 3, 8: 1, 13: 1}),
    ],
)
def test_the_pu_sets_of_hosts_with_many_numa_nodes_are_few(packages, nodes, counts):
    host = host_of(packages, nodes)
    sets = Cases(host, profiles.efforts()["full"]).pu_sets
    assert Counter(map(len, sets)) == counts
    assert len(set(sets)) == len(sets)
    for size in counts:
        members = [node for members in sets if len(members) == size for node in members]
        if packages > 1:  # the groups are disjoint, and of neighbours
            assert len(set(members)) == len(members)
            of_package = [len({node // nodes for node in group}) for group in sets if len(group) == size]
            assert set(of_package) == {-(-size // nodes)}
    messages = []
    measure._say_plan(host, sets, host.memory_nodes, profiles.chosen_effort(), messages.append)
    assert messages[0].startswith(f"{len(sets) * packages * nodes:,} placements of {len(sets)} PU-sets and ")
    left_out = [size for size, count in counts.items() if count < math.comb(packages * nodes, size)]
    assert len(messages) == 1 + len(left_out)
    for size, text in zip(left_out, messages[1:], strict=True):
        all_sets = math.comb(packages * nodes, size)
        assert text.startswith(f"of {all_sets:,} PU-sets of {size} NUMA nodes, {counts[size]} ")
    # The sets of a size are measured by runs of the probe, which measures all sets among the nodes that it gets.
    runs = list(programs.rows(host, sets, host.memory_nodes, profiles.efforts()["full"]))
    assert sum(len(members) for members, _ in runs) == len(sets)


def test_set_sizes_are_those_of_the_pu_sets():
    for name, effort in profiles.efforts().items():
        cases = Cases(OPTERON, effort)
        assert cases.set_sizes() == sorted({len(s) for s in cases.pu_sets}), name
    assert Cases(OPTERON, profiles.efforts()["full"]).set_sizes() == [1, 2, 4, 8]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (measure.AspectRequest("topology", program="stream"), "stream does not measure topology: nothing can"),
        (measure.AspectRequest("contention", program="lmbench"), "firsttouch-probe can"),
    ],
)
def test_a_program_that_cannot(asked, reason):
    with pytest.raises(BadInput, match=reason):
        asked.by()


@pytest.mark.parametrize("aspect", ["topology", "cores", "correctness"])
def test_an_aspect_that_is_measured_once_takes_no_repetitions(aspect):
    with pytest.raises(BadInput, match=f"^{aspect} .*--repetitions 5"):
        measure.AspectRequest(aspect, repetitions=5).check()
    measure.AspectRequest(aspect).check()


@pytest.fixture
def runs(monkeypatch):
    """The NUMA nodes of each run of the probe, which measures nothing."""
    nodes = []

    def follow(aspect, options, *, say):
        nodes.append([word for word in options if word.startswith(("--pu-nodes", "--banks"))])
        return iter(())

    monkeypatch.setattr(probe, "follow", follow)
    return nodes


def test_stores_are_measured_on_all_banks_that_were_asked_for(runs):
    asked = measure.AspectRequest("stores", pu_nodes=[1], banks=[0, 7])
    assert list(measure.measure(OPTERON, asked, say=str)) == [[], []]
    assert sorted(runs) == [["--pu-nodes=1", "--banks=0"], ["--pu-nodes=1", "--banks=7"]]


@pytest.mark.parametrize("effort", ["smoke", "quick"])
@pytest.mark.parametrize(("aspect", "ends"), [("contention", "2,7"), ("latency", "0,7"), ("bandwidth", "0,7")])
def test_a_low_effort_leaves_out_no_bank_that_was_asked_for(monkeypatch, runs, effort, aspect, ends):
    monkeypatch.setenv(profiles.VARIABLE, effort)
    messages = []
    for banks in ([0, 1, 2, 3], None):
        asked = measure.AspectRequest(aspect, pu_nodes=None if aspect == "contention" else [0], banks=banks)
        assert list(measure.measure(OPTERON, asked, say=messages.append)) == []
    assert [options[1] for options in runs] == ["--banks=0-3", f"--banks={ends}"]
    if aspect == "bandwidth":
        assert [text.partition(",")[0] for text in messages] == [
            "4 placements of 1 PU-sets and 4 banks",
            "2 placements of 1 PU-sets and 8 banks",
        ]


@pytest.mark.parametrize(("effort", "options"), [("full", ["--banks", "0-7"]), ("quick", []), ("smoke", [])])
def test_all_banks_are_named_where_the_effort_measures_all(effort, options):
    assert Cases(OPTERON, profiles.efforts()[effort]).bank_options() == options


# ----------------------------------------------------------------------
# The command's messages about repetitions


def test_every_aspect_has_a_test_of_reframe():
    names = [test.name for benchmark in measure.aspects().values() for test in benchmark.tests]
    assert len(names) == len(set(names))
    for aspect, benchmark in measure.aspects().items():
        assert benchmark.tests or (ROOT / "reframe" / f"{aspect}.py").is_file()


# ----------------------------------------------------------------------
# The cases of the methodology on a system, from its facts and an effort


def cases(effort="full", **facts):
    opteron = load("amd-opteron").facts
    return Cases(topology_of(replace(opteron, **facts)), efforts()[effort])


def test_weak_scaling_is_one_process_and_processes_of_16_threads():
    assert cases().weak_scaling() == [
        *(f"1x{t}-default" for t in (8, 16, 32, 48)),
        "1x64-default",
        *("2x16-unbound", "3x16-unbound", "4x16-unbound"),
    ]
    assert cases("quick").weak_scaling() == []


# ----------------------------------------------------------------------
# The rule that ends the probe's repetitions: what its simulation shows, and what the manual says about it


BENCH = runpy.run_path(str(ROOT / "bench" / "repetitions.py"))


@pytest.mark.parametrize("count", [5, 6, 9, 10, 20, 100])
def test_the_interval_has_its_level(count):
    """Without looking repeatedly, the interval misses the median with at most twice the probability of a tail."""
    tail = sum(math.comb(count, k) for k in range(BENCH["outside"](count) + 1)) / 2**count
    assert tail <= (1 / 32 if count == 5 else 1 / 64)
    samples = np.random.default_rng(count).exponential(size=(4000, count))
    medians, widths = BENCH["intervals"](samples)
    assert np.mean(np.abs(medians - math.log(2)) <= widths * medians) >= 1 - 2 * tail - 0.01
