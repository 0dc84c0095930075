# SPDX-License-Identifier: Apache-2.0
"""``firsttouch run --check`` with programs that hold memory, and as a check of the site."""

import json
import os
import sys
from pathlib import Path

import pytest

from factories.held_programs import python_wait
from factories.host_records import measured
from firsttouch.benchmarks import site_checks
from firsttouch.errors import BadInput

#: Holds memory until it has been sampled.
PROGRAM = f"""\
import os, sys
block = bytes([1]) * (64 << 20)
{python_wait(Path())}
print("rate=1e1\\nrate=12.5 GB/s")
print("threads", os.environ["OMP_NUM_THREADS"], file=sys.stderr)
open("figures.txt", "w").write("rate=7\\n")
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)
    return [sys.executable, str(tmp_path / "program.py")]


PUS = len(os.sched_getaffinity(0))
RATE = {"metric": "rate", "unit": "GB/s", "regex": r"rate=(\S+)"}


def check_file(program, name="ours.yaml", **keys):
    """Writes the file of a check into the working folder, and returns its name."""
    Path(name).write_text(json.dumps({"program": program, **keys}))
    return name


@pytest.mark.usefixtures("held_go_on")
def test_the_last_match_is_the_value_and_the_record_is_one_of_any_report(run_here, program, tmp_path):
    argv = ("--check", check_file(program, **RATE), "--repetitions", 2, "--records", "r.jsonl", "--json")
    done = run_here("run", "1x-interleave", *argv)
    assert done.returncode == 0, done
    (record,) = measured(tmp_path / "r.jsonl")
    assert json.loads(json.dumps(record.to_dict())) == json.loads(done.stdout)
    assert (record.check, record.metric, record.samples, record.better) == ("ours", "rate", (12.5, 12.5), "higher")
    assert (record.status, record.parameters["scenario"]) == ("valid", f"1x{PUS}-interleave")
    assert run_here("report", "r.jsonl", "-o", "out").returncode == 0
    assert "ours" in (tmp_path / "out" / "index.html").read_text()


@pytest.mark.usefixtures("held_go_on")
def test_a_file_and_the_number_of_threads(run_here, program, tmp_path):
    argv = ("run", "--check", check_file(program, **RATE, file="figures.txt"), "--repetitions", 1)
    done = run_here(*argv)
    assert (done.returncode, done.stdout) == (0, "ours rate: 7 GB/s\n"), done
    (tmp_path / "program.py").write_text(PROGRAM.replace("figures.txt", "others.txt"))
    done = run_here(*argv)
    assert (done.returncode, "did not write figures.txt" in done.stderr) == (1, True)
    check_file(program, metric="threads", unit="1", regex=r"threads (\d+)")
    done = run_here(*argv, "--json")
    assert json.loads(done.stdout)["value"] == json.loads(done.stdout)["parameters"]["threads"]


@pytest.mark.parametrize(
    ("words", "keys", "status", "reason"),
    [
        (["true"], {**RATE, "regex": "(a)(b)"}, 2, "has 2 groups"),
        (["true"], {"unit": "GB/s"}, 2, "a regular expression is needed"),
        (["true"], {"scenario": "2x-bound"}, 2, "2 instances"),
        (["not-there"], {}, 3, "'not-there' is not on PATH"),
        (["false"], {}, 1, "ended with status 1"),
        (["true"], RATE, 1, "matches nothing in its output"),
        (["echo", "rate=fast"], RATE, 1, "gives 'fast', which is not a number"),
    ],
)
@pytest.mark.usefixtures("program")  # in its folder
def test_wrong_checks_and_programs_that_fail(run_here, words, keys, status, reason):
    done = run_here("run", "--check", check_file(words, **keys), "--repetitions", "1")
    assert (done.returncode, reason in done.stderr) == (status, True), done
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["", "nowhere"])
def test_a_check_that_is_not_there(run_here, name):
    done = run_here("run", "--check", name)
    assert (done.returncode, f"no check '{name}'" in done.stderr) == (2, True), done


@pytest.mark.usefixtures("held_go_on")
def test_a_check_of_the_site_is_a_file(run_here, program, tmp_path, monkeypatch):
    folder = tmp_path / "site" / "checks"
    folder.mkdir(parents=True)
    (folder / "ours.yaml").write_text(
        f"program: {json.dumps(program)}\nmetric: rate\nunit: GB/s\nregex: 'rate=(\\S+)'\n"
    )
    monkeypatch.setenv("FIRSTTOUCH_SITE", str(tmp_path / "site"))
    assert site_checks.names() == ["ours"]
    done = run_here("run", "--check", "ours", "--repetitions", 1)
    assert (done.returncode, done.stdout) == (0, "ours rate: 12.5 GB/s\n")
    (folder / "wrong.yaml").write_text("program: [x]\nunit: furlong\n")
    with pytest.raises(BadInput, match=r"wrong.yaml:2: unit: 'furlong' "):
        site_checks.load("wrong")
    (folder / "other.yaml").write_text("program: [x]\n\nmetric: rate\n")
    with pytest.raises(BadInput, match=r"other.yaml:1: "):
        site_checks.load("other")
