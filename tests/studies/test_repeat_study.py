# SPDX-License-Identifier: Apache-2.0
"""A study repeated on this host with a real aligner, its results next to published values, and bad input."""

import csv
import sys
from pathlib import Path

import pytest

import repeat_study
import study_files
from factories.processes import captured
from firsttouch import paths
from firsttouch.host import topology
from firsttouch.records.schema import Record
from paper import published_tables
from repeat_study import Run
from study_files import Case

PUS = len(topology.load().allowed_pus)
STUDY = """\
title = "A small study"
reads = ["unpaired", "paired"]
threads = [1, 2]
repetitions = 1
time_limit = "{limit}"

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

[[table]]
name = "T1"
title = "Both"
"""


@pytest.fixture
def small(tmp_path, data_store, aligners_of_studies):
    """Returns a function that writes the file of a small study of an aligner."""

    def make(aligner="bowtie2", limit="20 min"):
        file = tmp_path / "small.toml"
        file.write_text(STUDY.format(aligner=aligner, limit=limit))
        return file

    return make


def rows(file):
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.skipif(PUS < 2, reason="the study has two threads")
def test_a_study_is_repeated_and_continues_with_its_missing_runs(small, tmp_path):
    out, file = tmp_path / "out", small()
    argv = ["make", "-s", "-o", "setup", "study", f"BIN={Path(sys.executable).parent}", f"STUDY={file}"]

    def repeated(options):
        done = captured(
            [*argv, f"ARGS=-o {out} --unpaired --dataset lambda --threads 1,2 {options}"],
            cwd=paths.ROOT,
            timeout=250,
        )
        assert done.returncode == 0, done.stderr
        return done

    first = repeated("--configuration 'one process'")
    assert first.stderr.count(": measured") == 2
    assert f"results: {out}" in first.stdout
    assert repeated("").stderr.count(": measured") == 2
    runs = rows(out / "runs.csv")
    assert [(r["configuration"], r["threads"], r["status"]) for r in runs] == [
        (name, threads, "valid") for name in ("one process", "MP baseline") for threads in "12"
    ]
    assert {r["scenario"] for r in runs} >= {"1x1-unbound", "1x2-unbound", "1x1-unbound+shared"}
    compared = rows(out / "compared.csv")
    assert [(r["table"], r["configuration"], r["reads"]) for r in compared] == [
        ("T1", name, "unpaired") for name in ("one process", "MP baseline")
    ]
    (record,) = repeat_study.schema.read(out / "records" / "bowtie-2.unpaired.2t.one-process.jsonl")
    assert (record.check, record.parameters["reads"], record.metric) == ("weak_scaling", 3000, "throughput")


def test_a_run_over_the_limit_is_omitted(small, tmp_path, stand_in, capsys):
    stand_in("bowtie2-align-s", 'case "$*" in *version*) echo "version 2.5";; *) exec sleep 100;; esac')
    argv = (
        str(small(limit="0.5 s")),
        "--unpaired",
        "--threads",
        "1",
        "--only",
        "one*",
        "-o",
        str(tmp_path / "out"),
    )
    for message in ("one-process: omitted: ", ""):
        assert repeat_study.main(argv) == 0
        assert message in capsys.readouterr().err
    assert rows(tmp_path / "out" / "runs.csv") == []


@pytest.mark.parametrize(
    ("argv", "ends"),
    [
        (("smal",), (2, "no study 'smal': there are ")),
        (("{file}", "--threads", "4000"), (2, f"--threads 4000: this host has {PUS} PUs")),
        (("{file}", "--configuration", "two"), (2, "no configuration 'two': there are one process, MP baseline")),
        (("{file}", "--dataset", "lamda"), (2, "no dataset 'lamda'")),
        (("{file}", "--index", "x", "--dataset", "lambda"), (2, "--dataset brings indexes and reads")),
        (("{file}", "--index", "b=x", "--reads", "r.fq"), (2, "--index b=x: no family 'b': there are Bowtie 2")),
        (("{file}", "--index", "/absent/x", "--reads", "r.fq"), (2, "/absent/x.1.bt2: no index of bowtie2")),
        (("lenis2017", "--only", "BOWTIE2", "--reads-per-thread", "9"), (2, "align all reads once")),
        (("{file}", "absent"), (3, "not installed: bowtie-2018-tbb-spin; --only-installed leaves them out")),
        (("{file}", "absent", "--only-installed"), (2, "nothing of study small can run here")),
    ],
)
def test_bad_input_is_reported_before_any_run(small, tmp_path, capsys, argv, ends):
    status, message = ends
    absent = "absent" in argv
    file = small("bowtie-2018-tbb-spin") if absent else small()
    words = [word.format(file=file) for word in argv if word != "absent"]
    assert repeat_study.main([*words, "-o", str(tmp_path / "out")]) == status
    err = capsys.readouterr().err
    assert message in err.splitlines()[-1]
    if absent:
        assert "The study built it from https://example.org/aligner v2.5" in err
    assert not (tmp_path / "out").exists()


def test_results_are_beside_the_published_values(aligners_of_studies):
    def run(name, place, threads, value, reads="unpaired"):
        study = study_files.study(name)
        family, configuration = place.split(": ")
        case = Case(study.families[family], study.configurations[configuration], reads, threads, "")
        return Run(case, Record("weak_scaling", "throughput", "kreads/s", "higher", (value,), {}, host="n1"))

    def compared(name, runs, pus):
        study = study_files.study(name)
        sheets = published_tables.read(study_files.FOLDER / "published", [study])
        return repeat_study.compared(study, runs, sheets, pus)

    runs = [run("scaling2018", "Bowtie 2: B-parsing", t, 10.0 * t, "paired") for t in (1, 2)]
    by_table = {row["table"]: row for row in compared("scaling2018", runs, 2)}
    assert list(by_table) == ["T3", "T4", "S2"]
    # The peak; pairs count once.
    assert (by_table["T3"]["threads"], by_table["T3"]["here"]) == (2, "10 kreads/s")
    assert {"skylake", "broadwell", "knl"} <= by_table["S2"].keys()
    # A quarter of all PUs is compared with a quarter of the published system's.
    (row,) = compared("lenis2017", [run("lenis2017", "BOWTIE2: Original", 2, 3.0)], 8)
    assert row["amd-opteron NA12878"].endswith("(16 threads)")
    assert row["amd-opteron NA12878"].startswith("339.21 ")
