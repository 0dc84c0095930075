# SPDX-License-Identifier: Apache-2.0
"""What ``firsttouch run -- ALIGNER`` prints on standard error: what the real aligner prints for the whole run."""

import re
import shutil
import subprocess
import sys

import pytest

from factories import genomes, summaries
from firsttouch import cli
from firsttouch.advice import aligning


@pytest.fixture(scope="module")
def lanes(tmp_path_factory):
    """Returns the reference, and the files of each mate."""
    return summaries.lanes(tmp_path_factory.mktemp("lanes"))


@pytest.fixture(scope="module", params=[(name, mates) for name in summaries.OPTIONS for mates in (1, 2)], ids=str)
def command(request, lanes, tmp_path_factory):
    """Returns a function that makes a command for the lanes or other files, and its standard error by hand."""
    name, mates = request.param
    index = genomes.built(genomes.installed(summaries.OPTIONS[name][0]), lanes[0], tmp_path_factory)

    def make(*files):
        words = summaries.command(name, index, *(files or lanes[1:])[:mates])
        return words, subprocess.run(words, capture_output=True, text=True, check=True).stderr

    return make


@pytest.fixture
def placed(capfd, monkeypatch):
    """Returns a function that runs a command in so many instances, and returns the lines of standard error."""
    def run(instances, words, *options, status=0):
        monkeypatch.setattr(aligning, "_scenario", lambda *_: genomes.scenario(instances))
        argv = ["run", "--share-host", *map(str, options), "--", *map(str, words)]
        monkeypatch.setattr(sys, "argv", ["firsttouch", *argv])
        capfd.readouterr()
        assert cli.main(argv) == status
        return capfd.readouterr().err

    return run


@pytest.mark.parametrize("instances", [1, 2, 3])
def test_the_summary_is_that_of_the_whole_run(placed, command, instances):
    words, expected = command()
    assert re.search("align", expected, re.IGNORECASE)
    *lines, last = placed(instances, words, "--progress=text").splitlines(keepends=True)
    assert f" under {instances}Inst_Original: " in last
    assert "".join(lines) == expected


def test_instances_without_reads(placed, command, lanes, tmp_path):
    files = [[tmp_path / f"{mate}.fq"] for mate in (1, 2)]
    for (file,), (lane, *_) in zip(files, lanes[1:], strict=True):
        file.write_bytes(genomes.records(lane)[1])
    words, expected = command(*files)
    *lines, _, last = placed(3, words).splitlines(keepends=True)
    assert "2 of 3 instances got no reads: there are too few" in last
    assert "".join(lines) == expected


#: Aligners that go on after a line of another version, and after one that is cut.
@pytest.mark.parametrize("script", ["sed 's/of these/of them/'", "sed 's/aligned 0 times/did not align/'"])
def test_a_summary_that_is_not_known_is_not_printed(placed, lanes, stand_in, tmp_path_factory, script):
    index = genomes.built(genomes.installed("bowtie2"), lanes[0], tmp_path_factory)
    real = shutil.which("bowtie2-align-s")
    stand_in("bowtie2-align-s", f'{{ {real} "$@" 2>&1 >&3 | {script} >&2; }} 3>&1')
    stand_in("bowtie2", f'exec {shutil.which("bowtie2")} "$@"')
    lines = placed(2, summaries.command("bowtie2", index, lanes[1])).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(
        "the summary of bowtie2 is left out, with all messages that differ between its inst"
    )
    assert " under 2Inst_Original: 1,000 reads" in lines[1]


@pytest.fixture
def hisat2_index(lanes, tmp_path_factory):
    """Returns the index of hisat2."""
    return genomes.built(genomes.installed("hisat2"), lanes[0], tmp_path_factory)


@pytest.mark.parametrize("layout", ["hisat2", "hisat2-new"])
def test_a_file_for_the_summary(placed, lanes, hisat2_index, tmp_path, layout):
    by_hand, file = tmp_path / "hand.txt", tmp_path / "placed.txt"
    words = summaries.command(layout, hisat2_index, *lanes[1:])
    subprocess.run([*words, "--summary-file", by_hand], capture_output=True, check=True)
    expected = by_hand.read_text()
    for instances in (1, 2):
        assert expected in placed(instances, [*words, "--summary-file", file])
        assert file.read_text() == expected
        file.unlink()


def test_files_for_the_summary_that_are_refused(placed, lanes, hisat2_index, tmp_path):
    file = tmp_path / "none" / "s.txt"
    words = summaries.command("hisat2", hisat2_index, *lanes[1:])
    assert "s.txt: cannot be written" in placed(2, [*words, "--summary-file", file], status=2)
    error = placed(2, [*words, "--summary-file", lanes[1][0]], status=2)
    assert "this output is an input too" in error
    argv = [*words, "--summary-file", tmp_path / "s.txt"]
    error = placed(2, argv, "--resume", "-o", tmp_path / "o.sam", status=2)
    assert "--resume and " in error
    assert "an aligner that is stopped leaves no summary" in error
    assert list(tmp_path.iterdir()) == []
