# SPDX-License-Identifier: Apache-2.0
"""The real MultiQC: runs as its sections, and what aligners print."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from factories import genomes, summaries
from firsttouch import cli
from firsttouch.cli import run_command
from firsttouch.cli.run_command import Aligned, multiqc_section


def test_multiqc_shows_runs(multiqc: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for sample, seconds in (("patient1", 21.5), ("patient2", 22.5)):
        run = {"seconds": seconds, "scenario": {"name": "2x-interleave"}, "placement": "verified"}
        (tmp_path / "in" / f"{sample}_mqc.json").write_text(multiqc_section(Aligned(run, sample)))
    argv = [multiqc, "--no-ansi", "--strict", "-o", tmp_path / "out", tmp_path / "in"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads((tmp_path / "out" / "multiqc_data" / "multiqc_data.json").read_text())
    general = json.dumps(data["report_general_stats_data"])
    for value in ("patient1", "patient2", "21.5", "22.5", "verified"):
        assert value in general, value


@pytest.fixture(scope="module")
def aligner_logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, list[str]], Path]:
    """Returns commands of aligners by sample, and the folder with what each prints on standard error by hand."""
    reference, *mates = summaries.lanes(tmp_path_factory.mktemp("lanes"))
    logs = tmp_path_factory.mktemp("plain")
    commands = {}
    for name, (aligner, _) in summaries.OPTIONS.items():
        index = genomes.built(genomes.installed(aligner), reference, tmp_path_factory)
        for form, files in (("single", mates[:1]), ("paired", mates)):
            words = summaries.command(name, index, *files)
            commands[f"{name}_{form}"] = words
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            (logs / f"{name}_{form}.log").write_text(done.stderr)
    return commands, logs


@pytest.fixture
def run_in(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[[int, list[str]], str]:
    """Returns a function that runs a command in N instances, and returns its standard error."""

    def run(instances: int, words: list[str]) -> str:
        monkeypatch.setattr(run_command, "_scenario", lambda *_: genomes.scenario(instances))
        argv = ["run", "--share-host", "--progress=text", "--", *words]
        monkeypatch.setattr(sys, "argv", ["firsttouch", *argv])
        capfd.readouterr()
        assert cli.main(argv) == 0
        return capfd.readouterr().err

    return run


def test_multiqc_reads_the_numbers_of_the_plain_command(
    multiqc: Path,
    aligner_logs: tuple[dict[str, list[str]], Path],
    tmp_path: Path,
    run_in: Callable[[int, list[str]], str],
) -> None:
    commands, plain = aligner_logs
    logs = tmp_path / "logs"
    shutil.copytree(plain, logs)
    for sample, words in commands.items():
        for instances in (1, 3):
            (logs / f"{sample}.in{instances}.log").write_text(run_in(instances, words))
    argv = [multiqc, "--no-ansi", "--strict", "-o", tmp_path / "out", logs]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads((tmp_path / "out" / "multiqc_data" / "multiqc_data.json").read_text())
    modules = data["report_saved_raw_data"]
    for sample in commands:
        # MultiQC takes hisat2's old layout for one of Bowtie 2.
        name = "hisat2" if "new" in sample else "bowtie2" if sample[:7] in {"bowtie2", "hisat2_"} else "bowtie1"
        numbers = modules[f"multiqc_{name}"]
        assert any(numbers[sample].values()), sample
        for instances in (1, 3):
            assert numbers[f"{sample}.in{instances}"] == numbers[sample]
