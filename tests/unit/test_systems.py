# SPDX-License-Identifier: Apache-2.0
"""The shipped systems: their facts and relations, and a reference for every published figure."""

import csv
import tomllib
from collections import Counter
from itertools import product
from pathlib import Path
from unittest.mock import ANY

import pytest
from msgspec.structs import replace

from firsttouch import paths
from firsttouch.benchmarks.cases import topology_of
from firsttouch.errors import BadInput
from firsttouch.systems.definition import available, load, mismatch

TABLE = paths.ROOT / "studies" / "published" / "lenis2017_execution_times.csv"
ROWS = list(csv.DictReader(TABLE.open()))
FIRSTTOUCH = {"NA12878": "na12878", "GCAT": "gcat", "gem": "gem3"}


@pytest.fixture(scope="module")
def amd():
    return load("amd-opteron")


@pytest.fixture(scope="module")
def intel():
    return load("intel-xeon")


def test_available_names_the_shipped_systems_and_local():
    assert {"amd-opteron", "intel-xeon", "local"} <= set(available())


def test_formula_3_1(amd, intel):
    assert amd.facts.theoretical_bandwidth() == pytest.approx(51.2e9, abs=1e6)
    assert intel.facts.theoretical_bandwidth() == pytest.approx(42.6e9, abs=0.1e9)
    for system in (amd, intel):
        reference = system.reference("topology", "theoretical_bandwidth", {"source": "SMBIOS", "channels": 4})
        assert system.reference("topology", "theoretical_bandwidth", {"source": "facts of the system"}) is None
        low, high = (reference.value * (1 + t) for t in (reference.lower, reference.upper))
        assert low <= system.facts.theoretical_bandwidth() / 1e9 <= high


def test_topology_references_are_the_facts(amd):
    assert amd.reference("topology", "numa_nodes", {}).as_tuple() == (8.0, 0.0, 0.0, "1")
    assert amd.reference("topology", "pus", {}).value == 64
    memory = amd.reference("topology", "memory", {})
    assert (memory.value, memory.unit, memory.upper) == (128.0, "GiB", None)


@pytest.mark.parametrize("name", ["amd-opteron", "intel-xeon"])
def test_every_published_time_is_a_reference(name):
    system = load(name)
    rows = [row for row in ROWS if row["system"] == name]
    assert len(rows) == 160
    for row in rows:
        parameters = {
            "aligner": FIRSTTOUCH.get(row["aligner"], row["aligner"]),
            "dataset": FIRSTTOUCH[row["dataset"]],
            "instances": int(row["instances"]),
            "threads": int(row["threads_per_instance"]),
            "policy": row["policy"],
            "scenario": "any: not part of the table",
        }
        for check in ("scaling", "placement"):
            reference = system.reference(check, "alignment_time", parameters)
            assert reference.value == float(row["mean_s"])
            assert reference.upper == pytest.approx(max(0.05, 0.03 * float(row["error_pct"])))
            assert (reference.lower, reference.unit) == (None, "s")
            assert reference.source == f"Article, table {row['table']}"


def test_times_of_other_cases_are_unknown(amd):
    case = {"aligner": "bwa-mem", "dataset": "gcat", "instances": 1, "threads": 64, "policy": "original"}
    assert amd.reference("placement", "alignment_time", case).value == 376.32
    for key, other in (("dataset", "lambda"), ("threads", 63), ("policy", "preferred-many"), ("aligner", "gem")):
        assert amd.reference("placement", "alignment_time", case | {key: other}) is None
        assert amd.reference("placement", "alignment_time", {k: case[k] for k in case if k != key}) is None
    assert amd.reference("latency", "alignment_time", case) is None


def stream(system, pu_node, bank, **other):
    program = {"program": "stream", "stores": "compiler"}
    parameters = {**program, "threads": 8, "pu_nodes": [pu_node], "bank": bank, **other}
    return system.reference("bandwidth", "copy_bandwidth", parameters)


def test_stream_on_amd_for_all_64_pairs(amd):
    relations = {(a, b): amd.facts.relation(a, b) for a in range(8) for b in range(8)}
    for (a, b), relation in relations.items():
        distance = amd.facts.distances[a][b]
        if a == b:
            assert (relation, distance) == ("local", 10)
        elif a // 2 == b // 2:
            assert (relation, distance) == ("neighbour", 16)
        elif distance == 22:
            assert relation == "farthest"
        else:
            assert (relation, distance) == ("near", 16)
        expected = {"local": 11.0, "neighbour": 5.7, "farthest": 11 / 5.25}.get(relation)
        reference = stream(amd, a, b)
        if expected is None:
            assert reference is None
        else:
            assert reference.value == pytest.approx(expected, rel=1e-3)
            assert (reference.lower, reference.upper, reference.unit) == (-0.15, None, "GB/s")
    assert Counter(relations.values()) == {"local": 8, "neighbour": 8, "near": 28, "farthest": 20}


def test_the_probes_matrix_is_judged_as_streams(amd, intel):
    probe = {"program": "firsttouch-probe", "policy": "membind", "pages": "base", "instructions": "avx2"}
    for system, nodes in ((amd, 8), (intel, 4)):
        for a, b in product(range(nodes), repeat=2):
            of_stream, of_probe = stream(system, a, b), stream(system, a, b, **probe, stores="regular")
            assert (of_probe and replace(of_probe, parameters=ANY)) == of_stream
    # STREAM's references do not cover streaming stores, and the thesis has no interleaved data on one PU-set.
    assert stream(amd, 0, 0, **probe, stores="streaming") is None
    interleaved = {**probe, "stores": "regular", "threads": 8, "pu_nodes": [0], "banks": [0, 1]}
    assert amd.reference("bandwidth", "copy_bandwidth", interleaved) is None


def test_unknown_names_say_which_there_are(monkeypatch, tmp_path):
    with pytest.raises(BadInput, match=r"'amd': .*amd-.*, local"):
        load("amd")
    with pytest.raises(BadInput, match="cannot be read"):
        load(tmp_path / "amd.yaml")
    monkeypatch.setenv("FIRSTTOUCH_SYSTEMS", str(tmp_path / "none"))
    with pytest.raises(BadInput, match="no such folder"):
        available()


def test_a_folder_of_the_site_comes_first(monkeypatch, tmp_path):
    other = tmp_path / "one"
    other.mkdir()
    text = (paths.SYSTEMS / "amd-opteron.yaml").read_text()
    (other / "mine.yaml").write_text(text.replace("name: amd-opteron", "name: mine", 1))
    (other / "amd-opteron.yaml").write_text(text.replace("128 GiB DDR3", "ours", 1))
    monkeypatch.setenv("FIRSTTOUCH_SYSTEMS", f"{other}:{tmp_path}")
    assert load("mine").path == other / "mine.yaml"
    assert "ours" in load("amd-opteron").description
    assert load("intel-xeon").path == paths.SYSTEMS / "intel-xeon.yaml"
    assert Path(other / "mine.yaml") == available()["mine"]


def test_the_emulated_opteron_has_the_systems_distances():
    file = paths.ROOT / "tests" / "emulated" / "machines" / "amd-opteron.toml"
    emulated = tomllib.loads(file.read_text())["distances"]
    assert [list(row) for row in load("amd-opteron").facts.distances] == emulated


def test_a_host_that_is_not_the_systems_is_named_in_one_line(amd, intel):
    opteron, xeon = topology_of(amd.facts), topology_of(intel.facts)
    assert mismatch(amd, opteron) == mismatch(intel, xeon) == ""
    small = replace(opteron, numa_nodes=opteron.numa_nodes[:1])
    assert mismatch(amd, small) == "this host has 1 NUMA node, amd-opteron has 8"
    assert mismatch(amd, xeon) == "this host has 4 NUMA nodes, amd-opteron has 8"
    # Another number of PUs and other numbers of NUMA nodes change the plan as well.
    assert mismatch(intel, replace(xeon, pus=xeon.pus[:32])) == "this host has 32 PUs, intel-xeon has 64"
    sparse = tuple(replace(n, index=2 * n.index) for n in xeon.numa_nodes)
    message = mismatch(intel, replace(xeon, numa_nodes=sparse))
    assert message == "this host has NUMA nodes 0,2,4,6, intel-xeon has 0,1,2,3"
    # PUs that this job may not use count, too.
    assert mismatch(amd, replace(opteron, allowed_pus=frozenset({0}))) == ""
