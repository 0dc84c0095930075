# SPDX-License-Identifier: Apache-2.0
"""``firsttouch study`` with a real aligner: a study that is killed and continued, and bad input before any run."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from blocked_fastq import block
from factories.fastq_files import GOOD, text, write
from factories.processes import started, wait_until
from firsttouch.benchmarks import studies
from firsttouch.campaign import campaigns, state
from firsttouch.campaign.study import Choice, Planner
from firsttouch.genomics.fastq import inspect
from firsttouch.host import topology
from firsttouch.records import schema

PUS = len(topology.load().allowed_pus)
STUDY = """\
title = "A small study"
reads = ["unpaired", "paired"]
threads = [1, 2]
repetitions = 1
time_limit = "20 min"

[family."Bowtie 2"]
aligner = "{aligner}"
reads_per_thread = {{ unpaired = 1500, paired = 1000 }}
source = "https://example.org/aligner"
tags = {{ release = "v2.5" }}

[[configuration]]
name = "one process"
families = ["Bowtie 2"]
scenario = "1x{{threads}}-unbound"
build = "release"

[[configuration]]
name = "MP baseline"
families = ["Bowtie 2"]
scenario = "{{processes}}x{{each}}-unbound+shared"
threads_each = 16
"""
#: The aligner, which waits as long as there is a FIFO if a step of the campaign has ended.
HELD = """\
grep -qs '"measured"' {folder}/hosts/*/steps.jsonl && [ -p {fifo} ] && read -r line <{fifo}
exec {aligner} "$@"
"""


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Returns the folder of a site with a study of bowtie2, and one of a program that nobody has."""
    folder = tmp_path / "site" / "studies"
    folder.mkdir(parents=True)
    (folder / "small.toml").write_text(STUDY.format(aligner="bowtie2"))
    (folder / "other.toml").write_text(STUDY.format(aligner="absent"))
    (folder / "wrong.toml").write_text(STUDY.format(aligner="bowtie2").replace("time_limit", "time_limt"))
    own = tmp_path / "site" / "aligners" / "absent.toml"
    own.parent.mkdir()
    text = (Path(campaigns.paths.PACKAGE) / "genomics" / "aligners" / "snap.toml").read_text()
    own.write_text(text.replace("snap-aligner", "absent-aligner"))
    monkeypatch.setenv("FIRSTTOUCH_SITE", str(tmp_path / "site"))
    monkeypatch.setenv("FIRSTTOUCH_OUT", str(tmp_path / "out"))
    monkeypatch.setenv("FIRSTTOUCH_EFFORT", "smoke")
    return folder


def ends(folder):
    """Return how often each step of a campaign ended well, on any host."""
    entries = [e for journal in campaigns.read(folder).hosts() for e in journal.entries(whole=True)]
    return Counter(e.step for e in entries if e.state == "measured")


@pytest.mark.skipif(PUS < 2, reason="the study has two threads")
def test_a_killed_study_continues_with_its_missing_runs(run_here, small, data_store, tmp_path, stand_in):
    folder = tmp_path / "c"
    options = ("study", "run", "small", "--unpaired", "--threads", "1,2", "--campaign", folder)
    shown = run_here(*options, "--dry-run", "--json")
    steps = [step["name"] for step in json.loads(shown.stdout)["steps"]]
    assert len(steps) == 4
    assert not folder.exists()
    # After the first step the aligner waits.
    os.mkfifo(tmp_path / "held")
    aligner = shutil.which("bowtie2-align-s")
    stand_in("bowtie2-align-s", HELD.format(folder=folder, fifo=tmp_path / "held", aligner=aligner))
    program = Path(sys.executable).with_name("firsttouch")
    with started([program, *options], stderr=subprocess.DEVNULL, start_new_session=True) as job:
        wait_until((folder / "campaign.json").exists, "the campaign")
        wait_until(lambda: ends(folder) or job.poll() is not None, "the end of a step", seconds=240)
        os.killpg(job.pid, 9)
    before = ends(folder)
    assert sum(before.values()) == 1
    (tmp_path / "held").unlink()
    # Without the options that chose its runs it keeps them.
    done = run_here("study", "run", "small", "--campaign", folder)
    assert done.returncode == 0, done.stderr
    # A wrong file of the site disturbs no report.
    assert done.stderr.count("wrong.toml:5: unknown key 'time_limt'") == 1
    assert ends(folder) == Counter(steps)
    assert state.state(campaigns.read(folder)).whole
    assert (folder / "report" / "index.html").is_file()
    (journal,) = campaigns.read(folder).hosts()
    # All runs of a block follow one another, or a drift of the host would favour a configuration.
    blocks = [e.step.rpartition(".")[0] for e in journal.entries(whole=True) if e.step in steps]
    assert blocks == sorted(blocks, key=blocks.index)

    records = [r for r in schema.collect([folder / "hosts"]) if r.check == "weak_scaling"]
    assert {(r.status, r.metric) for r in records} == {("valid", "throughput")}
    parameters = [
        (p["scenario"], p["instances"] * p["threads"], p["reads"]) for p in (r.parameters for r in records)
    ]
    # Reads per thread are constant.
    assert {(threads, reads) for _, threads, reads in parameters} == {(1, 1500), (2, 3000)}
    assert sorted({name for name, _, _ in parameters if "shared" in name}) == (
        ["1Inst_Unbound_1t+shared", "2Inst_Unbound+shared"] if PUS == 2 else ["1Inst_Unbound_1t+shared"]
    )
    wrong = run_here("study", "run", "small", "--campaign", folder, "--threads", "1")
    assert (wrong.returncode, "this campaign has other steps" in wrong.stderr) == (2, True)


@pytest.mark.parametrize(
    ("argv", "ends"),
    [
        (("smal",), (2, "no study 'smal': there are ")),
        (("wrong",), (2, "wrong.toml:5: unknown key 'time_limt'")),
        (("small", "--threads", "4000"), (2, f"--threads 4000: this host has {PUS} PUs")),
        (("small", "--configuration", "two"), (2, "no configuration 'two': there are one process, MP baseline")),
        (("small", "--dataset", "lamda"), (2, "no dataset 'lamda'")),
        (("small", "--index", "x", "--dataset", "lambda"), (2, "--dataset brings indexes and reads")),
        (
            ("small", "--index", "bowtie3=x", "--reads", "/dev/null"),
            (2, "--index bowtie3=x: no family 'bowtie3': there are Bowtie 2"),
        ),
        (
            ("small", "--index", "/absent/x", "--reads", "/dev/null"),
            (2, "/absent/x.1.bt2: no index of bowtie2 there"),
        ),
        (("small", "--step", "*.9t.*"), (2, "no step '*.9t.*'")),
        (("lenis2017", "--configuration", "BOWTIE2", "--reads-per-thread", "9"), (2, "align all reads once")),
        (("other",), (3, "not installed: absent: `firsttouch study show other` says what they are built from")),
        (("other", "--only-installed"), (2, "nothing of study other can run here")),
    ],
)
def test_bad_input_is_one_line_before_any_run(run_cli, small, tmp_path, argv, ends):
    status, message = ends
    done = run_cli("study", "run", *argv)
    lines = [line for line in done.err.splitlines() if "left out" not in line or "error" in line]
    assert (done.status, done.out, len(lines)) == (status, "", 1), done
    assert message in lines[0]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("per_block", "reason"),
    [
        (None, "it reads blocks: give files in blocks with --reads"),
        (40, "blocks of 12288 bytes with 44 records are needed"),
        (44, ""),
    ],
)
def test_configurations_that_read_blocks_are_left_out_without_them(tmp_path, capsys, per_block, reason):
    """A block of the study holds 44 records."""
    reads = None
    if per_block:
        plain = write(tmp_path / "plain.fq", text(GOOD * 40))
        reads = tmp_path / "r.fq"
        block(inspect([plain]), [reads], per_block=per_block)
    scaling = studies.study("scaling2018")
    cases, _ = scaling.cases(topology.load(), threads=[1], patterns=["Bowtie 2"], reads=["unpaired"])
    choice = Choice(reads=reads)
    left = Planner(scaling, choice)._with_blocks(cases)
    assert len(cases) - len(left) == (2 if reason else 0)
    lines = [line for line in capsys.readouterr().err.splitlines() if "left out" in line]
    assert [line.partition(": left out: ")[0] for line in lines] == (
        ["Bowtie 2: L-parsing; Bowtie 2: L-parsing, 16 outputs"] if reason else []
    )
    assert all(reason in line for line in lines)


def test_show_names_what_a_missing_program_is_built_from(run_cli, small):
    text = run_cli("study", "show", "other").out
    assert "absent: 'absent-aligner' is not on PATH" in " ".join(text.split())
    assert "https://example.org/aligner v2.5" in text
    document = json.loads(run_cli("study", "show", "other", "--json").out)
    assert [c["missing"] != "" for c in document["configurations"]] == [True, True]
    assert document["time_limit"] == 1200


def test_list_names_a_wrong_file_and_lists_the_others(run_cli, small):
    done = run_cli("study", "list")
    assert done.status == 2
    assert "wrong.toml:5: unknown key" in done.err
    assert {"lenis2017", "other", "scaling2018", "small"} <= set(done.out.split())
