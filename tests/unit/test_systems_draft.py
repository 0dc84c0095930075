# SPDX-License-Identifier: Apache-2.0
"""System files drafted from topologies: they load and have the topology's facts."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from factories.processes import run_parsed
from factories.topologies import host_of
from firsttouch import paths
from firsttouch.errors import BadInput, Missing
from firsttouch.host.topology import Cache
from firsttouch.systems import draft
from firsttouch.systems.definition import load


def topology(nodes, *, distances=None, model=""):
    """*nodes*: (number, package, cores, threads per core, memory) each."""
    cores = [(number, package, threads) for number, package, count, threads, _ in nodes for _ in range(count)]
    pus = (
        (core, package, number)
        for core, (number, package, threads) in enumerate(cores, start=1)
        for _ in range(threads)
    )
    caches = (Cache(1, 32768, frozenset({0})), Cache(3, 100, frozenset({0, 1})), Cache(0, 0, frozenset()))
    banks = {number: memory for number, *_, memory in nodes}
    return host_of(pus, banks, caches=caches, distances=distances or {}, info={"CPUModel": model})


def loaded(tmp_path, name, text):
    file = tmp_path / f"{name}.yaml"
    file.write_text(text)
    return load(file)


def test_a_regular_host(tmp_path):
    host_topology = topology([(i, 7 + i // 2, 8, 2, 16 * 2**30) for i in range(4)], model="A CPU  ")
    text = draft.draft("site_1", host_topology, host="n-1")
    assert text.startswith("# SPDX-License-Identifier: Apache-2.0\n")
    assert "transfer_rate" in text
    assert 'description: "hosts such as n-1"\n' in text
    system = loaded(tmp_path, "site_1", text)
    facts = system.facts
    assert (facts.processor, facts.packages, facts.numa_nodes, facts.cores, facts.pus) == ("A CPU", 2, 4, 32, 64)
    assert facts.memory_bytes == 64 * 2**30
    assert facts.package_of_numa_node == (0, 0, 1, 1)
    assert facts.theoretical_bandwidth() is None
    assert [(c.level, c.size_bytes, c.pus) for c in facts.caches] == [(1, 32768, 1), (3, 100, 2)]
    assert facts.distances is None
    assert [facts.relation(0, bank) for bank in range(4)] == ["local", "neighbour", None, None]
    assert system.hostnames == (r"n\-1(\..*)?$",)
    assert system.references == ()
    (partition,) = system.partitions
    assert (partition.name, partition.scheduler, partition.max_jobs) == ("default", "local", 1)


@pytest.mark.parametrize("name", ["", "a b", "../x", "1a", "a.yaml", "a\n", "é"])
def test_names_that_reframe_would_not_take(name):
    with pytest.raises(BadInput, match="name"):
        draft.draft(name, topology([(0, 0, 1, 1, 1)]))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    nodes=st.lists(
        st.tuples(
            st.integers(0, 200), st.integers(-1, 5), st.integers(0, 9), st.integers(1, 4), st.integers(0, 2**43)
        ),
        min_size=1,
        max_size=9,
        unique_by=lambda node: node[0],
    ),
    distances=st.booleans(),
    model=st.text(),
    host=st.text(min_size=1).filter(lambda t: t.strip()),
)
def test_every_topology_drafts_a_file_that_loads(tmp_path, nodes, distances, model, host):
    nodes = sorted(nodes)
    # hwloc's topologies have at least one PU.
    nodes[0] = (*nodes[0][:2], max(1, nodes[0][2]), *nodes[0][3:])
    numbers = [n[0] for n in nodes]
    table = {(a, b): 10 + abs(a - b) for a in numbers for b in numbers} if distances else {}
    host_topology = topology(nodes, distances=table, model=model)
    text = draft.draft("any", host_topology, host=host if host.isprintable() else "")
    facts = loaded(tmp_path, "any", text).facts
    assert facts.numa_node_numbers == tuple(numbers)
    assert facts.pus == len(host_topology.pus)
    assert facts.cores_per_numa_node == tuple(n[2] for n in nodes)
    for stated, node in zip(facts.memory_per_numa_node, nodes, strict=True):
        assert abs(stated - node[4]) <= 0.005 * 2**30 + 1
    if distances:
        assert all(
            facts.distances[i][j] == table[a, b] for i, a in enumerate(numbers) for j, b in enumerate(numbers)
        )


@pytest.fixture
def run(capsys, monkeypatch):
    monkeypatch.setattr(draft.topology_module, "read_host", lambda: topology([(0, 0, 2, 1, 2**32)]))

    def run(*argv):
        status = run_parsed("system", *argv)
        return status, *capsys.readouterr()

    return run


def test_draft_command_does_not_overwrite(run, tmp_path):
    target = tmp_path / "mine.yaml"
    assert run("draft", "mine", "-o", target)[0] == 0
    assert load(target).name == "mine"
    target.write_text("precious")
    with pytest.raises(BadInput, match="already exists"):
        run("draft", "mine", "-o", target)
    assert target.read_text() == "precious"
    status, out, _ = run("draft", "mine", "-o", target, "--force", "--json")
    assert status == 0
    assert json.loads(out)["file"] == str(target)
    assert target.read_text() == json.loads(out)["text"]
    assert [f.name for f in tmp_path.iterdir()] == ["mine.yaml"]
    with pytest.raises(BadInput, match="is not a name"):
        run("draft", "../mine", "-o", target)
    with pytest.raises(BadInput, match="cannot be written"):
        run("draft", "mine", "-o", tmp_path / "none" / "mine.yaml")


def test_draft_command_prints(run):
    status, out, err = run("draft", "mine", "-o", "-")
    assert (status, err) == (0, "")
    assert "\nname: mine\n" in out


def test_local_is_any_host(run):
    assert 'hostnames: [".*"]' in run("draft", "local", "-o", "-")[1]


def test_check_command(run, tmp_path):
    good = paths.SYSTEMS / "intel-xeon.yaml"
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: bad\nfoo: 1\n")
    assert run("check", good)[0] == 0
    status, out, err = run("check", good, bad)
    assert status == 2
    assert "intel-xeon: OK" in out
    assert f"{bad}:" in err
    status, out, _ = run("check", bad, good, "--json")
    assert status == 2
    assert [row["error"] is None for row in json.loads(out)["files"]] == [False, True]


def test_list_command(run, monkeypatch, tmp_path):
    monkeypatch.setenv("FIRSTTOUCH_SYSTEMS", str(tmp_path))
    status, out, _ = run("list", "--json")
    rows = {row["name"]: row for row in json.loads(out)["systems"]}
    assert status == 0
    assert rows["amd-opteron"]["references"] > 160
    assert rows["local"]["partitions"] == [{"name": "default", "scheduler": "local"}]
    (tmp_path / "bad.yaml").write_text("name: 1\n")
    status, out, _ = run("list")
    assert status == 2
    assert "bad.yaml:1:" in out
    (tmp_path / "bad.yaml").unlink()

    def missing():
        raise Missing("firsttouch-probe is not there")

    monkeypatch.setattr(draft.topology_module, "read_host", missing)
    if not (paths.SYSTEMS / "local.yaml").exists():
        status, out, _ = run("list")
        assert status == 3
        assert "firsttouch-probe is not there" in out


@pytest.mark.parametrize(("name", "scheduler"), [("site", "slurm"), ("local", "local")])
def test_a_host_of_slurm_is_drafted_for_slurm(name, scheduler, stand_in):
    stand_in("sbatch", "true")
    assert f"    scheduler: {scheduler}\n" in draft.draft_host(name)
