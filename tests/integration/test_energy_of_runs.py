# SPDX-License-Identifier: Apache-2.0
"""The energy of real programs, counted by a site's command."""

import csv
import json

import pytest

from factories import held_programs
from factories.genomes import PART, records
from factories.processes import write_program
from firsttouch.records.schema import read


def rows(table):
    """Return the rows of a table with a head."""
    with table.open(newline="") as text:
        return [*csv.DictReader(text, delimiter="\t")]


@pytest.fixture
def counted(tmp_path, monkeypatch):
    """Sets FIRSTTOUCH_ENERGY to a command that has counted 250 J more each time."""
    script = f"n=$(cat {tmp_path}/n 2>/dev/null || echo 0); echo $((n + 250)) >{tmp_path}/n; echo $n"
    monkeypatch.setenv("FIRSTTOUCH_ENERGY", str(write_program(tmp_path / "joules", script)))


@pytest.mark.usefixtures("counted")
def test_a_program_states_its_energy(tmp_path):
    program = ("sh", "-c", held_programs.shell_wait(tmp_path))
    records, table = tmp_path / "records.jsonl", tmp_path / "run.tsv"
    argv = ("run", "1Inst_Original", "--idle", "0.01", "--records", records, "--tsv", table, "--")
    done = held_programs.run(tmp_path, *argv, *program)
    assert done.returncode == 0, done.stderr
    assert " s, 250 J (" in done.stderr
    assert " W, idle " in done.stderr
    time, energy = read(records)
    assert (time.metric, energy.metric, energy.unit, energy.better) == ("time", "energy", "J", "lower")
    assert energy.samples == (250.0,)
    assert energy.parameters["energy_source"] == "joules"
    (used,) = energy.placement_found[0]["energy"]
    assert used["idle_watts"] > 0
    assert used["parts"] == {"host": 250.0}
    (row,) = rows(table)
    assert (row["sample"], row["placement"], row["joules"]) == ("sh", "verified", "250.0")
    assert float(row["joules_above_idle"]) == pytest.approx(used["joules_above_idle"], abs=0.001)
    assert row["joules_per_million_reads"] == "NA"


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize("scenario", ["1Inst_Original", "2Inst_Interleave"])
def test_an_aligner_states_its_energy_by_reads(run_here, lambda_work, tmp_path, scenario):
    prefix, reads = lambda_work[0], [tmp_path / file.name for file in lambda_work[1]]
    for file, whole in zip(reads, lambda_work[1], strict=True):
        file.write_bytes(b"".join(records(whole)[:PART]))
    section = tmp_path / "a_mqc.json"
    table = tmp_path / "run.tsv"
    written = ("-o", tmp_path / "out.sam", "--multiqc", section, "--tsv", table)
    argv = ("run", "--json", *written, scenario, "--", "bwa", "mem", "-t", "2", prefix, *reads)
    done = run_here(*argv)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["energy"]["joules"] == 250.0
    if document["reads"]:
        assert document["energy"]["joules_per_million_reads"] == 250e6 / document["reads"]
    assert document["reads"] or scenario == "1Inst_Original"
    columns = json.loads(section.read_text())["data"]["out"]
    assert columns["joules"] == 250.0
    assert (columns["scenario"], columns["placement"]) == (document["scenario"]["name"], "verified")
    (row,) = rows(table)
    assert (row["sample"], row["scenario"], row["joules"]) == ("out", scenario, "250.0")
    assert (row["joules_per_million_reads"] == "NA") == (not document["reads"])


@pytest.mark.usefixtures("counted")
def test_measured_runs_keep_each_runs_energy(run_here, lambda_part, tmp_path):
    records, section = tmp_path / "records.jsonl", tmp_path / "x_mqc.json"
    options = ("--repetitions", "2", "--records", records, "--multiqc", section)
    aligner = ("--aligner", "bwa-mem", "--dataset", "lambda")
    done = run_here("run", "1Inst_Interleave", *aligner, *options, **lambda_part)
    assert done.returncode == 0, done.stderr
    time, energy = read(records)
    assert (time.metric, len(time.samples)) == ("alignment_time", 2)
    assert (energy.check, energy.metric, energy.samples) == (time.check, "energy", (250.0, 250.0))
    used = energy.placement_found[0]["energy"]
    assert [each["joules_per_million_reads"] for each in used] == [250e6 / time.parameters["reads"]] * 2
    energies = json.loads((tmp_path / "x_energy_mqc.json").read_text())
    assert energies["pconfig"]["ylab"] == "Energy (J)"
    assert [*energies["data"]["bwa-mem, lambda"].values()] == [250.0]
    assert [*json.loads(section.read_text())["data"]["bwa-mem, lambda"].values()] == [time.value]


@pytest.mark.usefixtures("counted", "held_go_on")
def test_advice_for_energy_compares_energies_and_is_not_saved(run_here, tmp_path, monkeypatch):
    monkeypatch.setenv("FIRSTTOUCH_ADVICE", str(tmp_path / "advice"))
    program = ("sh", "-c", held_programs.shell_wait(tmp_path))
    argv = ("advise", "--for", "energy", "--options", "none", "--repetitions", "2", "--json", "--", *program)
    done = run_here(*argv)
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)["policies"]}
    original = rows["1Inst_Original"]
    assert (original["joules"], original["seconds"]) == (250.0, None)
    assert set(original["samples"]) == {250.0}
    assert not list(tmp_path.glob("advice/*"))


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--", "touch", "ran"), (3, "no energy can be counted: FIRSTTOUCH_ENERGY=none")),
        (("--aligner", "bwa-mem", "--dataset", "lambda"), (2, "compares whole runs: put the program")),
    ],
)
def test_what_has_no_energy_is_refused_before_it_runs(run_here, tmp_path, monkeypatch, argv, says):
    monkeypatch.chdir(tmp_path)
    done = run_here("advise", "--for", "energy", *argv, FIRSTTOUCH_ENERGY="none")
    (line,) = done.stderr.splitlines()
    assert (done.returncode, says[1] in line) == (says[0], True), line
    assert not (tmp_path / "ran").exists()
