# SPDX-License-Identifier: Apache-2.0
"""The pipelines of contrib/workflows/ with the real engines, called as docs/howto/workflows.md shows.

They align two samples into sorted BAM files with indexes and count the reads. In the first run of an engine, the
aligner fails for one sample; the second run aligns that sample and repeats nothing else.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml
from pipeline_site import PAIRS, Site

import documented
from factories.processes import wait_until
from firsttouch.paths import ROOT

PAGE = ROOT / "docs" / "howto" / "workflows.md"
HERE = Path(__file__).parent
SNAKEMAKE = ROOT / "contrib" / "workflows" / "snakemake" / "firsttouch" / "run"
MODULE = ROOT / "contrib" / "workflows" / "nextflow" / "modules" / "firsttouch" / "run"
PUS = sorted(os.sched_getaffinity(0))
#: Small batches, so that each instance gets some.
BWA = "-K 100000 -Y"


def blocks(language: str) -> list[str]:
    """Return the code blocks of the page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def shown(program: str) -> list[list[str]]:
    """Return the words behind *program* of the commands that the page shows."""
    lines = [shlex.split(command.text) for command in documented.commands(PAGE)]
    return [words[1:] for words in lines if words[0] == program]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, lambda_work) -> dict[str, list[str]]:
    """The sorted alignments of the plain command, by sample."""
    prefix, reads, reference = lambda_work
    site = Site.create(tmp_path_factory.mktemp("plain"), reads, reference)
    alignments = {}
    for sample in "ab":
        group = f"@RG\\tID:{sample}\\tSM:{sample}"
        files = [f"reads/{sample}_{mate}.fastq.gz" for mate in (1, 2)]
        done = site.run("bwa", "mem", "-t", 2, *BWA.split(), "-R", group, prefix, *files)
        alignments[sample] = sorted(line for line in done.stdout.splitlines() if line[0] != "@")
    return alignments


def table(file: Path) -> list[dict[str, str]]:
    """Return the rows of a table with a head."""
    with file.open(newline="") as text:
        return [*csv.DictReader(text, delimiter="\t")]


def assert_complete(site: Site, folder: str, plain: dict[str, list[str]]) -> None:
    """Check the alignments, order, index, read group and counts of both samples."""
    for sample, alignments in plain.items():
        file = f"{folder}/{sample}.bam"
        header = site.run("samtools", "view", "-H", file).stdout
        assert "SO:coordinate" in header
        assert f"@RG\tID:{sample}\tSM:{sample}\n" in header
        assert (site.folder / f"{file}.bai").is_file()
        same = sorted(site.run("samtools", "view", file).stdout.splitlines()) == alignments
        assert same, f"the alignments of {sample} differ from the plain command's"
        counts = (site.folder / folder / f"{sample}.flagstat").read_text()
        assert f"\n{2 * PAIRS} + 0 primary\n" in counts


def test_a_job_script(site: Site, slurm: dict[str, str]) -> None:
    """With a share of the host: the instances stay on the PUs of the job."""
    (script,) = blocks("bash")
    (site.folder / "align.sbatch").write_text(script.replace("--exclusive ", ""))
    assert site.run("bwa", "index", "genome.fa").returncode == 0
    done = site.run("sbatch", "--cpus-per-task=1", "--output=log", "align.sbatch", "a", **slurm)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: not site.run("squeue", "--noheader", **slurm).stdout, "the job to end")
    assert (site.folder / "a.flagstat").is_file(), (site.folder / "log").read_text()
    assert f"\n{2 * PAIRS} + 0 primary\n" in (site.folder / "a.flagstat").read_text()
    assert "1x1-default, 1 x 1 threads" in site.run("samtools", "view", "-H", "a.bam").stdout
    assert [len(pus) for pus in site.affinities()] == [1]


@pytest.mark.skipif(len(PUS) < 2, reason="two instances need two PUs")
def test_snakemake(site: Site, snakemake: Path, plain: dict[str, list[str]]) -> None:
    usual, with_profile = shown("snakemake")
    for file in documented.read(PAGE):
        if isinstance(file, documented.Written):
            (site.folder / file.path).parent.mkdir()
            (site.folder / file.path).write_text(file.text)
    # An executor on the command line is used instead of the profile's, which needs Slurm.
    options = ["--executor", "local", "--cores", 2, "--config", f"bwa={BWA}"]
    options.append("firsttouch=2x-bound")
    site.break_down(after=0)
    done = site.run(snakemake, *with_profile, *options)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Error in rule firsttouch_align" in done.stderr
    assert "out of memory" in (site.folder / "logs/b.log").read_text()
    assert not (site.folder / "mapped/b.bam").exists()
    first = (site.folder / "mapped/a.bam").stat().st_mtime_ns
    site.repair()

    done = site.run(snakemake, *usual, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (site.folder / "mapped/a.bam").stat().st_mtime_ns == first
    assert_complete(site, "mapped", plain)
    (shown_paste,) = shown("paste")
    (site.folder / "pasted.tsv").write_text(site.run("paste", *shown_paste).stdout)
    (row,) = table(site.folder / "pasted.tsv")
    assert float(row["s"]) >= float(row["seconds"]) > 0
    assert (row["sample"], row["scenario"]) == ("a", "2x1-bound")
    # See the page for the chosen scenario.
    ((_, *words),) = shown("samtools")
    assert "2x1-bound, 2 x 1 threads" in site.run("samtools", "view", *words).stdout


def test_the_wrapper_writes_cram(site: Site, snakemake: Path) -> None:
    (site.folder / "Snakefile").write_text(f"""\
rule cram:
    input:
        reads="reads/a_1.fastq.gz",
        reference="the genome.fa",
    output:
        "my alignments/a.cram",
        "my alignments/a.cram.crai",
        multiqc="my alignments/a_mqc.json",
    params:
        command="bwa mem genome.fa reads/a_1.fastq.gz",
        extra="--output-threads 1",
    wrapper:
        "file:{SNAKEMAKE}"
""")
    assert site.run("bwa", "index", "genome.fa").returncode == 0
    (site.folder / "genome.fa").rename(site.folder / "the genome.fa")
    done = site.run(snakemake, "--cores", 1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (site.folder / "my alignments/a.cram.crai").is_file()
    assert "seconds" in json.loads((site.folder / "my alignments/a_mqc.json").read_text())["data"]["a"]
    counts = site.run("samtools", "flagstat", "my alignments/a.cram").stdout
    assert f"\n{PAIRS} + 0 primary\n" in counts


def test_nextflow(site: Site, nextflow: Path, slurm: dict[str, str], plain: dict[str, list[str]]) -> None:
    """The tasks of the second run are jobs of Slurm with a share of the host."""
    usual, with_config = shown("nextflow")
    (config,) = (text for text in blocks("groovy") if text.startswith("// slurm.config"))
    (site.folder / "slurm.config").write_text(config)
    # No host is listed, and Slurm gets the option of the page without one.
    (avoid,) = re.findall(r"`(clusterOptions = \{ .* \})`", PAGE.read_text())
    (site.folder / "out" / "verdicts" / "log").mkdir(parents=True)
    avoid = avoid.replace("--exclusive ", "")
    share = f"process {{ withName: FIRSTTOUCH_RUN {{ cpus = 1; memory = 1.GB; {avoid} }} }}\n"
    often = "executor { pollInterval = '200 ms'; queueStatInterval = '1 s' }\n"
    (site.folder / "share.config").write_text(share + often)
    command = f"bwa mem -t {{threads}} {BWA} -R '@RG\\tID:{{id}}\\tSM:{{id}}' {{index}}/genome {{reads}}"
    options = ["-c", "share.config", "--command", command]
    site.break_down(after=0)
    done = site.run(nextflow, *usual, *options)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Error executing process > 'FIRSTTOUCH_RUN (b)'" in done.stdout
    assert "out of memory" in done.stdout
    site.affinities()
    site.repair()

    results = {"FIRSTTOUCH_OUT": str(site.folder / "out")}
    done = site.run(nextflow, *with_config, *options, "-resume", **slurm, **results)
    assert done.returncode == 0, done.stdout + done.stderr
    scripts = [file.read_text() for file in (site.folder / "work").rglob(".command.run")]
    assert any("#SBATCH --exclude=\n" in script for script in scripts)
    steps = re.findall(r"(\w+) process > FIRSTTOUCH_RUN \((\w)\)", done.stdout)
    assert sorted(steps) == [("Cached", "a"), ("Submitted", "b")]
    assert [len(pus) for pus in site.affinities()] == [1]
    assert_complete(site, "results", plain)
    rows = {row["sample"]: row for row in table(site.folder / "results/firsttouch.tsv")}
    assert {*rows} == {"a", "b"}
    assert all(row["placement"] for row in rows.values())
    versions = yaml.safe_load((site.folder / "results/versions.yml").read_text())
    assert versions["firsttouch"] == site.run("firsttouch", "--version").stdout.split()[1]
    assert set(versions) == {"firsttouch", "samtools"}


def test_the_page_shows_the_files_of_the_pipelines() -> None:
    (snakemake,) = re.findall(r"^snakemake==(\d+)", (HERE / "snakemake.lock").read_text(), re.MULTILINE)
    (nextflow,) = re.findall(r"<version>(\d+\.\d+)\.", (HERE / "nextflow.xml").read_text())
    assert f"with Snakemake {snakemake}, Nextflow {nextflow} and" in PAGE.read_text()
    assert blocks("python")[0] in (SNAKEMAKE / "test" / "Snakefile").read_text()
    assert blocks("groovy")[0] in (MODULE.parents[2] / "main.nf").read_text()


def test_the_module_s_own_tests(site: Site, nextflow: Path) -> None:
    if shutil.which("nf-test") is None:
        pytest.skip("nf-test is not on PATH, and no package registry has it")
    shutil.copytree(MODULE.parents[2], site.folder, dirs_exist_ok=True)
    (site.folder / "bwa").mkdir()
    assert site.run("bwa", "index", "-p", "bwa/genome", "genome.fa").returncode == 0
    (site.programs / "nextflow").symlink_to(nextflow)
    done = site.run("nf-test", "test")
    assert done.returncode == 0, done.stdout
