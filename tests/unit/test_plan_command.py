# SPDX-License-Identifier: Apache-2.0
"""What `firsttouch plan` says in words, and the sizes of indexes that it takes."""

import json

import pytest

from factories.topologies import host_of
from firsttouch.cli import plan as command
from firsttouch.genomics import aligners

GIB = 2**30


def server(nodes, cpus, smt=1, gib=64):
    """Return a host with *nodes* NUMA nodes of *cpus* CPUs each, *smt* of a core."""
    pus = ((i // smt, i // cpus, i // cpus) for i in range(nodes * cpus))
    return host_of(pus, dict.fromkeys(range(nodes), gib * GIB))


@pytest.fixture
def planned(run_cli, monkeypatch):
    """Return a function that plans for a server and returns status, standard output and messages."""

    def run(host, *argv):
        monkeypatch.setattr(command, "load", lambda **_: host)
        return run_cli("plan", "--aligner", "bwa-mem", *argv)

    return run


def test_a_scenario_in_words(planned):
    status, out, _ = planned(server(8, 16), "--index-size", "5.1GB")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert status == 0
    assert "1 x 128 threads not bound to CPUs 1 x 7.32 GiB of 512 GiB" in lines
    assert "2 x 64 threads bound to 4 NUMA nodes each 2 x 6.13 GiB of 512 GiB" in lines
    assert "8 x 16 threads bound to 1 NUMA node each 8 x 5.23 GiB of 512 GiB" in lines
    assert "16 x 8 threads bound to 8 CPUs of 1 NUMA node each 16 x 5.09 GiB of 512 GiB" in lines
    assert any(line.startswith("8x16-bound, 8x16-local") for line in lines)


@pytest.mark.parametrize("host", [server(8, 16), server(2, 64), server(1, 128)])
def test_a_host_with_128_cpus_fits_on_a_screen(planned, host):
    _, out, _ = planned(host, "--index-size", "5.1GB")
    assert len(out.splitlines()) <= 60
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("argv", [(), ("--json",)])
def test_nothing_fits(planned, argv):
    status, out, err = planned(server(2, 4), "--index-size", "500TB", *argv)
    assert status == 3
    assert err.startswith("firsttouch: cannot be done here: no scenario can be run: 1x1-default: instance 0 needs")
    assert len(err.splitlines()) == 1
    if argv:
        document = json.loads(out)
        assert document["scenarios"] == []
        assert document["infeasible"]
    else:
        assert out == ""


def test_the_size_of_the_index_files_counts(planned, tmp_path):
    prefix = tmp_path / "hg"
    status, _, err = planned(server(2, 4), "--index", prefix)
    assert (status, err) == (
        2,
        f"firsttouch: error: {prefix}.amb: no index of bwa-mem: build it with `firsttouch data index`\n",
    )
    for file in aligners.aligner("bwa-mem").index_paths(prefix):
        file.write_bytes(bytes(1 << 20))
    size = aligners.aligner("bwa-mem").index_bytes(prefix)
    assert planned(server(2, 4), "--index", prefix) == planned(server(2, 4), "--index-size", str(size))
    assert planned(server(2, 4), "--index", f"{prefix}.sa") == planned(server(2, 4), "--index", prefix)
    assert "index of size 0" not in planned(server(2, 4), "--index", prefix)[1]
    assert "--index-size the plan assumes" in planned(server(2, 4))[1]


def test_a_dataset_must_be_there(planned, monkeypatch, tmp_path):
    monkeypatch.setenv("FIRSTTOUCH_DATA", str(tmp_path))
    status, out, err = planned(server(2, 4), "--dataset", "lambda")
    assert (status, out) == (3, "")
    assert err == "firsttouch: error: lambda is not in the store: get it with `firsttouch data get lambda`\n"
    assert list(tmp_path.iterdir()) == []


def test_one_size_of_the_index(planned):
    status, _, err = planned(server(2, 4), "--dataset", "lambda", "--index-size", "1GB")
    assert status == 2
    assert "not allowed with argument" in err
