# SPDX-License-Identifier: Apache-2.0
"""``firsttouch system check-aligner`` with a good file (the manual has minimap2's) and with wrong ones."""

import json
import sys

import pytest
from tests.factories import held_programs
from tests.factories.genomes import part_of_lambda

FILE = """\
program = "odd"
version = { argv = ["odd", "version"], pattern = '(\\S+)' }
[index]
argv = ["odd", "index", "{index}", "{reference}"]
files = [".i"]
[align]
single = [["odd", "align", "{index}", "{threads}", "{reads}"]]
paired = [["odd", "align", "{index}", "{threads}", "{reads}", "{reads2}"]]
in_order = true
same = "exact"
[memory]
instance = "MEMORY"
thread = "1 MB"
"""
#: An aligner without an index, whose alignments have a position that an expression of the read's number states.
ODD = """\
import sys

command, *rest = sys.argv[1:]
if command == "version":
    print("1.0")
elif command == "index":
    open(rest[0] + ".i", "w").close()
else:
    held = bytes([1]) * (64 << 20)
    mates = [open(name).read().split("\\n")[:-1] for name in rest[2:]]
    print("@SQ\\tSN:x\\tLN:100000000")
    for number in range(0, len(mates[0]), 4):
        for mate, lines in enumerate(mates):
            name = lines[number][1:].split()[0].removesuffix(f"/{mate + 1}")
            flag = 0 if len(mates) == 1 else 1 | 64 << mate
            length = f"{len(lines[number + 1])}M"
            bases, qualities = lines[number + 1], lines[number + 3]
            print(name, flag, "x", POSITION, 60, length, "*", 0, 0, bases, qualities, sep="\\t")
    sys.stdout.flush()
    HOLD
"""


@pytest.fixture
def dataset(data_store, tmp_path, monkeypatch):
    """Makes ``lambda`` a dataset of its first 500 pairs, which have batches for two instances."""
    (tmp_path / "datasets").mkdir()
    part_of_lambda(tmp_path / "datasets", 500, batch_bases=5_000)
    monkeypatch.setenv("FIRSTTOUCH_DATASETS", str(tmp_path / "datasets"))


@pytest.fixture
def odd(stand_in, tmp_path, dataset):
    """Returns a function that writes the aligner and its file, and returns the file."""

    def make(position, memory="100 MB"):
        (tmp_path / "odd.py").write_text(
            ODD.replace("POSITION", position).replace("HOLD", held_programs.python_wait(tmp_path))
        )
        stand_in("odd", f'exec "{sys.executable}" "{tmp_path}/odd.py" "$@"')
        file = tmp_path / "odd.toml"
        file.write_text(FILE.replace("MEMORY", memory))
        return file

    return make


@pytest.fixture
def checked(run_here, held_go_on):
    """Returns a function that checks a file, and returns the command's end and the error of each step."""

    def check(file):
        done = run_here("system", "check-aligner", file, "--json")
        return done, {step["step"]: step["error"] for step in json.loads(done.stdout)["steps"]}

    return check


def test_alignments_that_depend_on_instances_and_memory_beyond_what_the_file_states_fail(odd, checked):
    done, errors = checked(odd("1 + number", memory="10 MB"))
    assert done.returncode == 1, done
    # One of two instances with --dynamic may get all batches.
    failed = {step for step, error in errors.items() if error and not step.endswith("--dynamic")}
    assert failed == {"single, 2 instances", "paired, 2 instances", "memory"}
    assert "the alignments differ from those of 1 instance" in errors["single, 2 instances"]
    assert "the alignments differ from those of 1 instance" in errors["paired, 2 instances"]
    assert "raise memory.instance or memory.thread" in errors["memory"]


def test_alignments_that_depend_on_nothing_pass(odd, checked):
    done, errors = checked(odd("1"))
    assert (done.returncode, {*errors.values()}) == (0, {""}), done


def test_an_aligner_that_fails_is_a_failed_step(odd, checked):
    done, errors = checked(odd("1 / 0"))
    assert done.returncode == 1
    assert "ZeroDivisionError" in errors["run"]


def test_a_wrong_file_is_listed_with_its_error_and_an_absent_program_is_no_error(tmp_path, run_here):
    assert run_here("system", "aligners").returncode == 0
    (tmp_path / "aligners").mkdir()
    (tmp_path / "aligners" / "wrong.toml").write_text("program = 1\n")
    absent = 'base = "bowtie2"\nprogram = "absent"\nhomepage = "https://example.org"\n'
    (tmp_path / "aligners" / "absent.toml").write_text(absent)
    done = run_here("system", "aligners", "--json", FIRSTTOUCH_SITE=str(tmp_path))
    rows = {row["name"]: row for row in json.loads(done.stdout)["aligners"]}
    assert (done.returncode, "wrong.toml:1: " in rows["wrong"]["error"]) == (2, True)
    assert rows["bwa-mem"]["version"]
    assert rows["absent"]["error"] == "'absent' is not on PATH: install it from https://example.org"


def test_a_wrong_file_and_an_unknown_name_are_bad_input(tmp_path, run_here):
    (tmp_path / "wrong.toml").write_text("program = 1\n")
    done = run_here("system", "check-aligner", tmp_path / "wrong.toml")
    assert (done.returncode, "wrong.toml:1: " in done.stderr) == (2, True)
    done = run_here("system", "check-aligner", "bwa-men")
    assert (done.returncode, "bwa-mem" in done.stderr) == (2, True)
