# SPDX-License-Identifier: Apache-2.0
"""The probe on arm64: its kernels in QEMU's user mode, and every aspect on an emulated machine with NUMA nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from firsttouch.benchmarks import probe
from firsttouch.errors import Missing
from firsttouch.tools import run_tool

from . import arm64

KERNELS = ("copy", "scale", "add", "triad")
#: Options of an aspect on the machine. All loads of loaded-latency would take minutes: one thread of the emulator
#: runs all PUs in turn, and loading threads never wait.
OPTIONS = {
    "bandwidth": ["--stores=both", "--kernels=copy"],
    "locks": ["--batch=2"],
    "loaded-latency": ["--pu-nodes=0", "--banks=0", "--loads=local", "--read-shares=0.5", "--rates=0.5"],
    "tails": ["--pu-nodes=0", "--banks=0"],
}
#: The banks of an aspect, if they are not all.
BANKS = {"loaded-latency": {0}, "core-to-core": {0, 1}, "locks": {0}, "cores": {0}, "tails": {0}}


@pytest.fixture(scope="module")
def tree() -> Path:
    """The unpacked packages; the tests are skipped, with the reason, where they cannot be had."""
    try:
        return arm64.packages()
    except Missing as error:
        pytest.skip(f"no arm64 machine: {error}")


@pytest.mark.parametrize(
    ("cpu", "sets", "preferred"),
    [
        ("max,sve=off", ["plain", "neon"], "neon"),
        ("max,sve128=on", ["plain", "neon", "sve"], "neon"),
        ("max,sve256=on,sve384=on", ["plain", "neon", "sve"], "sve"),
        ("max,sve2048=on,sve-default-vector-length=256", ["plain", "neon", "sve"], "sve"),
    ],
)
def test_kernels_of_a_processor(tree: Path, cpu: str, sets: list[str], preferred: str) -> None:
    """The probe checks the values of all array elements: vectors of any length must leave none out."""
    small = ["--array-bytes=64KiB", "--max-repetitions=2", "--interleave=none", "--quiet"]

    def measured(*options: str) -> dict[str, Any]:
        done = run_tool(["qemu-aarch64", "-cpu", cpu, str(arm64.probe(tree)), "bandwidth", *small, *options])
        assert (done.returncode, done.stderr) == (0, "")
        return dict(json.loads(done.stdout))

    document = measured("--instructions=all", "--stores=both")
    assert document["host"]["instructions"] == sets
    cases = {(r["instructions"], r["stores"], r["kernel"]) for r in document["results"] if r["status"] == "valid"}
    kinds = {
        (s, stores) for s in sets for stores in ("regular", "streaming") if (s, stores) != ("plain", "streaming")
    }
    assert cases == {(*kind, kernel) for kind in kinds for kernel in KERNELS}
    assert {r["instructions"] for r in measured()["results"]} == {preferred}


@pytest.fixture(scope="module")
def documents(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The output of every aspect of the probe on the machine, which boots once."""
    commands = {aspect: [aspect, "--sanity", "--quiet", *OPTIONS.get(aspect, ())] for aspect in probe.ASPECTS}
    commands["topology"] = ["topology"]
    return arm64.run(tree, tmp_path_factory.mktemp("arm64"), commands)


def test_the_probe_sees_the_machine(documents: dict[str, dict[str, Any]]) -> None:
    machine, host = arm64.MACHINE, documents["topology"]["host"]
    assert tuple(map(tuple, host["distances"])) == machine.distances
    assert [tuple(n["usable_pus"]) for n in host["numa_nodes"]] == [
        tuple(machine.pus_of(n)) for n in machine.nodes
    ]
    assert all(n["data"] for n in host["numa_nodes"])
    assert host["instructions"] == ["plain", "neon", "sve"]


@pytest.mark.parametrize("aspect", probe.ASPECTS[1:])
def test_every_placement_holds(documents: dict[str, dict[str, Any]], aspect: str) -> None:
    machine, document = arm64.MACHINE, documents[aspect]
    assert (document["status"], document["invalid"]) == ("complete", 0)
    assert {bank for r in document["results"] for bank in r["banks"]} == BANKS.get(aspect, set(machine.nodes))
    for result in document["results"]:
        pages = result["pages"]
        assert (result["status"], pages["verified"]) == ("valid", True)
        assert result["pus_found"] == result["pus"]
        counts = {int(node): count for node, count in pages["found"].items()}
        assert set(counts) == set(result["banks"])
        assert max(counts.values()) - min(counts.values()) <= 1
        if aspect in {"latency", "bandwidth"}:
            assert set(result["pus"]) <= {pu for node in result["pu_nodes"] for pu in machine.pus_of(node)}
    if aspect == "bandwidth":
        kinds = {(r["instructions"], r["stores"]) for r in document["results"]}
        assert {("sve", "streaming"), ("neon", "streaming")} <= kinds
