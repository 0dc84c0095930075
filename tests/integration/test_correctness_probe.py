# SPDX-License-Identifier: Apache-2.0
"""The probe's correctness aspect on this host: faults of one PU are found, and no other PU is blamed."""

import json
from itertools import chain
from pathlib import Path

import pytest

from firsttouch.benchmarks import correctness, probe
from firsttouch.errors import BadInput
from firsttouch.host import topology
from firsttouch.records import schema


def results(*options):
    """Return the records of a short run with these options."""
    return [*chain.from_iterable(probe.follow("correctness", ["--seconds=0.01", "--array-bytes=1MiB", *options]))]


@pytest.fixture(scope="module")
def works():
    """Return the works that this host has instructions for."""
    return [r.parameters["work"] for r in results() if r.metric == correctness.ANSWERS]


def test_every_work_is_done_by_all_pus_and_every_answer_is_right(works):
    assert {"integer", "floating point", "copy", "compression"} <= {*works}
    records = results()
    assert [r.value for r in records] == [0.0] * len(records)
    assert {r.status for r in records} == {"valid"}
    pus = len(topology.load().allowed_pus)
    assert min(r.parameters["units"] for r in records) >= pus
    for r in (r for r in records if r.metric == correctness.ANSWERS):
        # A fault in one of N answers would have shown with 95 %, because 3 N were computed.
        assert pus <= 2.9 * pus * r.parameters["shows_one_in"] <= r.parameters["units"]
    assert {r.parameters["bank"] for r in records if r.metric == correctness.WORDS} == {
        *topology.load().memory_nodes
    }


@pytest.mark.parametrize(("bit", "period"), [(0, 1), (63, 7)])
def test_a_fault_of_one_pu_is_found_in_each_work_and_no_other_pu_is_blamed(works, bit, period):
    pus = sorted(topology.load().allowed_pus)
    for number, work in enumerate(works):
        pu = pus[number % len(pus)]
        records = results(f"--inject={pu},{work},{bit},{period}")
        wrong = [r for r in records if r.value]
        assert [(r.parameters["work"], r.parameters["pu"]) for r in wrong] == [(work, pu)]
        assert int(wrong[0].parameters["bits"], 16) == 1 << bit
        assert wrong[0].value == wrong[0].parameters["units"] // period
        # Records of a drill judge nobody.
        assert {r.status for r in records} == {"invalid"}


def test_a_wrong_word_of_memory_has_its_bit_and_its_place():
    pu = min(topology.load().allowed_pus)
    records = results(f"--inject={pu},memory,5,1000")
    (word,) = (r for r in records if r.metric == correctness.WORDS and r.value)
    assert int(word.parameters["bits"], 16) == 1 << 5
    assert word.parameters["offset"] % 8 == 0
    # The kernel shows physical addresses to root outside of containers.
    if (address := word.parameters.get("physical_address")) is not None:
        banks = [line.split(" : ") for line in Path("/proc/iomem").read_text(encoding="ascii").splitlines()]
        ranges = [[int(end, 16) for end in ends.split("-")] for ends, what in banks if what == "System RAM"]
        assert any(first <= int(address, 16) <= last for first, last in ranges)
        assert int(address, 16) % 8 == 0


@pytest.mark.parametrize(
    "wrong",
    [
        *("x", "0,integer,64,1", "0,integer,1,0", "0,no-such-work,1,1", "-1,integer,1,1", "+0,integer,1,1"),
        *("1,integer,17", "9999,integer,1,1", "4294967296,integer,1,1", "0,integer,1,-5", "0,integer,1,1,1"),
        "0,integer,1,99999999999999999999",
    ],
)
def test_a_wrong_fault_is_bad_input(wrong):
    with pytest.raises(BadInput):
        list(probe.follow("correctness", [f"--inject={wrong}"]))


def test_the_command_writes_records_and_ends_with_0(run_here, tmp_path):
    done = run_here(
        "measure", "correctness", "--records", tmp_path / "r.jsonl", "--json", FIRSTTOUCH_EFFORT="smoke"
    )
    assert done.returncode == 0, done.stderr
    assert {r["check"] for r in json.loads(done.stdout)} == {"correctness"}
    assert len(schema.read(tmp_path / "r.jsonl")) >= len(json.loads(done.stdout))
