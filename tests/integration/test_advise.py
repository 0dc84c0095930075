# SPDX-License-Identifier: Apache-2.0
"""``firsttouch advise`` with real programs: trials, the run that follows, interrupts, and programs of any kind."""

import json
import re
import shutil
import sys

import pytest

import documented
from factories.held_programs import python_wait
from firsttouch.host.topology import load
from firsttouch.scenarios.placement import plan

NAMES = {s.name for s in plan(load()).scenarios}


@pytest.fixture(scope="module")
def many(lambda_work, tmp_path_factory):
    """Returns the options of a run that is long enough for trials."""
    prefix, reads, _ = lambda_work
    folder = tmp_path_factory.mktemp("many")
    options = ["--aligner=bwa-mem", f"--index={prefix}", "--batch-bases=100000"]
    for name, file in zip(("reads", "reads2"), reads, strict=True):
        (folder / file.name).write_bytes(file.read_bytes())
        options.append(f"--{name}={folder / file.name}")
    return options


@pytest.fixture
def scratch(tmp_path):
    """Returns an empty folder for temporary files, which must be empty after the test."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    yield folder
    # The file of the host lock stays by design.
    assert [f.name for f in folder.iterdir() if f.suffix != ".lock"] == []


def alignments(file):
    return [li for li in file.read_text().splitlines() if not li.startswith("@")]


def test_advice_holds_together_and_can_be_followed(run_here, many, tmp_path, scratch):
    done = run_here("advise", *many, "--budget=1", "--json", TMPDIR=scratch)
    assert done.returncode == 0, done
    document = json.loads(done.stdout)
    rows = {r["name"]: r for r in document["scenarios"]}
    assert {n for n, r in rows.items() if r["state"] != "infeasible" and not r.get("memory_options")} == NAMES
    assert all(r["trials"] for r in rows.values() if r.get("memory_options"))
    assert {"thp", "mimalloc", "jemalloc", "tcmalloc"} <= {r["name"] for r in document["memory_options"]}
    best = rows[document["recommended"]]
    assert (best["state"], best["reason"]) == ("recommended", "")
    assert best["trials"] >= 2
    assert all(r["reason"] for r in rows.values() if r is not best)
    low, middle, high = (document["predicted_s"][k] for k in ("low", "expected", "high"))
    assert 0 < low < middle < high
    assert document["gain"]["low"] <= document["gain"]["expected"] <= document["gain"]["high"]
    assert document["budget"]["fraction"] == 1
    assert document["budget"]["spent_s"] > 0
    (best,) = [row for row in document["scenarios"] if row["state"] == "recommended"]
    assert best["name"] == document["recommended"]
    assert f"use {best['name']}" in done.stderr
    out, plain = tmp_path / "out.sam", tmp_path / "plain.sam"
    assert run_here("run", best["name"], *many, "-o", out).returncode == 0
    assert run_here("run", "1x-default", *many, "-o", plain).returncode == 0
    assert alignments(out) == alignments(plain)


def test_advice_as_text(run_here, many, scratch):
    done = run_here("advise", *many[:4], "--budget=1", "--", "-Y", TMPDIR=scratch)
    assert done.returncode == 0, done
    assert all(name in done.stdout for name in NAMES)
    tutorial = documented.ROOT / "docs" / "tutorials" / "bwa-mem.md"
    (shown,) = [c for c in documented.commands(tutorial) if c.output and "--budget 1" in c.text]
    assert shown.unprinted(done.stderr + done.stdout) == [], done.stderr + done.stdout


def test_an_aligner_that_breaks(run_here, many, stand_in, scratch):
    bwa = shutil.which("bwa")
    stand_in("bwa", f"[ $# = 0 ] && exec {bwa}\necho broken >&2; exit 9")
    done = run_here("advise", *many, TMPDIR=scratch)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no scenario can be tried: bwa ended with status 9: broken" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--reads", "/nowhere.fq"], "/nowhere.fq"),
        (["--index", "/nowhere"], "no index of bwa-mem: build it"),
        (["--policies", "interleave"], "--policies must include 'original'"),
        (["--policies", "best"], "no policy 'best'"),
        (["--", "-t", "3"], "-t behind --: use --threads"),
    ],
)
def test_bad_input_is_said_at_once(run_cli, many, options, reason):
    done = run_cli("advise", *many, *options)
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1), done
    assert reason in done.err


@pytest.mark.usefixtures("held_go_on")
def test_a_program_under_the_policies(run_here, tmp_path, scratch, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(scratch))
    runs = tmp_path / "runs"
    program = f"print(1, file=open({str(runs)!r}, 'a'))\nblock = bytes([1]) * 20_000_000\n{python_wait(tmp_path)}"
    done = run_here("advise", "--repetitions=2", "--json", "--", sys.executable, "-c", program)
    assert done.returncode == 0, done
    document = json.loads(done.stdout)
    assert {"original"} <= {p["policy"] for p in document["policies"]} <= {"original", "localalloc", "interleave"}
    valid = [p for p in document["policies"] if p["status"] == "valid"]
    assert document["runs"] == len(runs.read_text().splitlines())
    # The first run reads the program from the disk, so its time is not among the samples.
    announced, expected = re.findall(
        r"up to about (\d+) (?:times|runs, about \d+ (?:s|min|h) left$)", done.stderr, re.M
    )
    assert done.stderr.startswith("the program runs up to about")
    assert done.stderr.count("warm-up, not used") == 1
    assert int(announced) == int(expected) + 1 >= 3
    (original,) = (p for p in valid if p["policy"] == "original")
    assert len(original["samples"]) == len(re.findall(r"1x\d+-default \(", done.stderr)) - 1 > 0
    assert document["recommended"] in {p["policy"] for p in valid}


def test_programs_that_fail_or_are_not_there(run_here, scratch):
    done = run_here("advise", "--", "false", TMPDIR=scratch)
    assert (done.returncode, done.stdout) == (1, "")
    assert "false ended with status 1" in done.stderr
    done = run_here("advise", "--", "no-such-program", TMPDIR=scratch)
    assert done.returncode == 3
    assert "'no-such-program' is not on PATH" in done.stderr
    done = run_here("advise", "--timeout=0.5", "--", "sleep", "60", TMPDIR=scratch)
    assert done.returncode == 1
    assert "did not end within 0.5 s" in done.stderr
