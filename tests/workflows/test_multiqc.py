# SPDX-License-Identifier: Apache-2.0
"""The real MultiQC: runs as its sections, and what aligners print."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from factories import genomes, summaries
from factories.processes import captured
from firsttouch.cli import run_command
from firsttouch.cli.run_command import Aligned, multiqc_section


def data_of(multiqc: Path, logs: Path, out: Path) -> dict[str, Any]:
    """Return the data of MultiQC's report on a folder, which it writes to *out*."""
    done = captured([multiqc, "--no-ansi", "--strict", "-o", out, logs], timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads((out / "multiqc_data" / "multiqc_data.json").read_text()))


def test_multiqc_shows_runs(multiqc: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for sample, seconds in (("patient1", 21.5), ("patient2", 22.5)):
        run = {"seconds": seconds, "scenario": {"name": "2x-interleave"}, "placement": "verified"}
        (tmp_path / "in" / f"{sample}_mqc.json").write_text(multiqc_section(Aligned(run, sample)))
    general = json.dumps(data_of(multiqc, tmp_path / "in", tmp_path / "out")["report_general_stats_data"])
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
            (logs / f"{name}_{form}.log").write_text(captured(words, check=True).stderr)
    return commands, logs


@pytest.fixture
def run_in(run_here: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[[int, list[str]], str]:
    """Returns a function that runs a command in N instances, and returns its standard error."""

    def run(instances: int, words: list[str]) -> str:
        monkeypatch.setattr(run_command, "_scenario", lambda *_: genomes.scenario(instances))
        done = run_here("run", "--share-host", "--progress=text", "--", *words)
        assert done.returncode == 0, done
        return str(done.stderr)

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
    modules = data_of(multiqc, logs, tmp_path / "out")["report_saved_raw_data"]
    for sample in commands:
        # MultiQC takes hisat2's old layout for one of Bowtie 2.
        name = "hisat2" if "new" in sample else "bowtie2" if sample[:7] in {"bowtie2", "hisat2_"} else "bowtie1"
        numbers = modules[f"multiqc_{name}"]
        assert any(numbers[sample].values()), sample
        for instances in (1, 3):
            assert numbers[f"{sample}.in{instances}"] == numbers[sample]
