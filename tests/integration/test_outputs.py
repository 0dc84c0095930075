# SPDX-License-Identifier: Apache-2.0
"""Real aligners: neither the division of the reads nor the form of the output changes an alignment."""

import os
import shutil
import threading
import time

import pytest

from factories.genomes import records, scenario, written
from factories.processes import captured
from firsttouch.clock import SYSTEM_CLOCK
from firsttouch.errors import RunFailed
from firsttouch.genomics import launch
from firsttouch.genomics.aligners import aligner
from firsttouch.genomics.sinks import AlignOutput

BWA = aligner("bwa-mem")
BATCH = 12_000


@pytest.fixture(scope="module")
def pairs(lambda_work, tmp_path_factory):
    """Returns the index, the files of the first 700 pairs, and one file with interleaved mates."""
    prefix, reads, _ = lambda_work
    folder = tmp_path_factory.mktemp("pairs")
    mates = [records(f)[:700] for f in reads]
    (both,) = written(folder, mates, interleaved=True)
    return prefix, written(folder, mates), both


@pytest.fixture(scope="module")
def expected(pairs):
    """Returns the output of bwa without firsttouch."""
    prefix, files, _ = pairs
    argv = ["bwa", "mem", "-v", "1", "-t", "2", "-K", str(BATCH), prefix, *files]
    return captured(argv, check=True).stdout.splitlines()


def alignments(lines):
    return [line for line in lines if not line.startswith("@")]


@pytest.mark.parametrize("instances", [1, 2])
def test_interleaved_pairs(pairs, expected, tmp_path, instances):
    prefix, _, both = pairs
    work = launch.prepare(BWA, prefix, [both], BATCH, interleaved=True)
    out = tmp_path / "out.sam"
    launch.run(work, scenario(instances), AlignOutput(out, "sam"), timeout=100)
    assert alignments(out.read_text().splitlines()) == alignments(expected)


def test_an_instance_that_hangs(pairs, tmp_path, stand_in, monkeypatch):
    prefix, files, _ = pairs
    bwa = shutil.which("bwa")
    work = launch.prepare(BWA, prefix, files, BATCH)
    stand_in("bwa", f"[ $# = 0 ] && exec {bwa}\necho now waiting >&2; echo >>{tmp_path}/waiting; exec sleep 1000")
    waiting = tmp_path / "waiting"

    def after_both_wait():
        return time.monotonic() + 100 * (waiting.exists() and len(waiting.read_text()) == 2)

    monkeypatch.setattr(SYSTEM_CLOCK, "monotonic", after_both_wait)
    with pytest.raises(RunFailed, match=r"instance 0: bwa .*100 s .*: now waiting"):
        launch.run(work, scenario(2), AlignOutput(tmp_path / "out.sam", "sam"), timeout=100)
    assert list(tmp_path.glob("*.sam")) == []


def test_outputs_that_are_links_or_pipes(pairs, expected, tmp_path):
    prefix, files, _ = pairs
    work = launch.prepare(BWA, prefix, files, BATCH)
    (tmp_path / "far").mkdir()
    (tmp_path / "out.sam").symlink_to("far/first.sam")
    os.mkfifo(tmp_path / "pipe")
    texts = []
    reader = threading.Thread(target=lambda: texts.append((tmp_path / "pipe").read_text()))
    reader.start()
    launch.run(work, scenario(2), AlignOutput(tmp_path / "pipe", "sam"))
    reader.join(60)
    assert alignments(texts[0].splitlines()) == alignments(expected)
    out = tmp_path / "out.sam"
    launch.run(work, scenario(2), AlignOutput(out, "sam"))
    assert out.is_symlink()
    assert alignments(out.read_text().splitlines()) == alignments(expected)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["far", "out.sam", "pipe"]
    assert [f.name for f in (tmp_path / "far").iterdir()] == ["first.sam"]
