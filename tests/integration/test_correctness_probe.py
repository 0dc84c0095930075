# SPDX-License-Identifier: Apache-2.0
"""The probe's correctness aspect on this host: faults of one PU are found, and no other PU is blamed."""

import json
from pathlib import Path

import pytest

from factories.processes import write_program
from firsttouch.benchmarks import correctness, probe
from firsttouch.errors import BadInput
from firsttouch.host import topology
from firsttouch.judge.judging import judge
from firsttouch.records import schema
from firsttouch.systems.definition import Undescribed


def results(*options):
    """Return the records of a short run with these options."""
    return [r for r in probe.run("correctness", ["--seconds=0.01", "--array-bytes=1MiB", *options]).records() if r]


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
        # A fault in one of so many answers would have shown with 95 %: three times as many were given.
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
        probe.run("correctness", [f"--inject={wrong}"])


def test_the_command_writes_records_and_ends_with_0(run_here, tmp_path):
    done = run_here(
        "measure", "correctness", "--records", tmp_path / "r.jsonl", "--json", FIRSTTOUCH_EFFORT="smoke"
    )
    assert done.returncode == 0, done.stderr
    assert {r["check"] for r in json.loads(done.stdout)} == {"correctness"}
    assert len(schema.read(tmp_path / "r.jsonl")) >= len(json.loads(done.stdout))


# ----------------------------------------------------------------------
# Programs whose output is compared

PUS = sorted(topology.load().allowed_pus)


@pytest.fixture
def program(tmp_path):
    """Return a program that runs a shell script, whose variable ``pu`` is the PU that it may use."""

    def write(text):
        file = tmp_path / "program"
        write_program(file, f'pu=$(sed -n "s/^Cpus_allowed_list:[[:space:]]*//p" /proc/self/status)\n{text}')
        return str(file)

    return write


def test_a_program_that_prints_the_same_on_all_pus_blames_none(run_here, program):
    done = run_here("measure", "correctness", "--compare-output", f"{program('echo 42')} 'a b'", "--json")
    (record,) = json.loads(done.stdout)
    assert (done.returncode, record["value"], record["status"]) == (0, 0.0, "valid")
    assert record["parameters"]["units"] == 3 * len(PUS)
    assert record["parameters"]["work"].endswith("/program 'a b'")


@pytest.mark.skipif(len(PUS) < 2, reason="one PU has no other to be compared with")
@pytest.mark.parametrize("fault", ["echo 43", "exit 3"])
def test_a_pu_with_another_output_or_status_fails_the_host(run_here, program, tmp_path, fault):
    once = f"if [ $pu = {PUS[-1]} ] && mkdir {tmp_path}/done 2>/dev/null; then {fault}; else echo 42; fi"
    done = run_here("measure", "correctness", "--compare-output", program(once), "--json")
    (record,) = json.loads(done.stdout)
    assert (done.returncode, record["value"], record["parameters"]["pu"]) == (1, 1.0, PUS[-1])
    verdicts = judge([schema.from_dict(record)], Undescribed("local"))
    assert [v.verdict for v in verdicts] == ["fail"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("cat /proc/sys/kernel/random/uuid", "differs from run to run"),
        pytest.param(
            "echo $pu", "use more PUs", marks=pytest.mark.skipif(len(PUS) < 2, reason="one PU has no other")
        ),
    ],
)
def test_without_a_majority_no_pu_is_blamed(run_here, program, text, why):
    done = run_here("measure", "correctness", "--compare-output", program(text), "--json")
    (record,) = json.loads(done.stdout)
    assert (done.returncode, record["status"]) == (1, "invalid")
    assert why in record["reason"]
    assert "pu" not in record["parameters"]


@pytest.mark.parametrize(
    ("command", "status", "why"),
    [
        ("false", 1, "false ended with status 1"),
        ("true", 1, "true printed nothing on standard output"),
        ("no-such-program", 3, "no-such-program"),
        ("a 'b", 2, "No closing quotation"),
        (" ", 2, "no program is named"),
    ],
)
def test_a_program_that_cannot_be_compared_is_one_line(run_here, command, status, why):
    done = run_here("measure", "correctness", "--compare-output", command)
    assert done.returncode == status
    assert why in done.stderr.strip().splitlines()[-1]
