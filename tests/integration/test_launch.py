# SPDX-License-Identifier: Apache-2.0
"""Real bwa: many instances give the output of one, for all reads and batches."""

import gzip
import hashlib
import itertools
import os
import re
import subprocess

import pytest
from msgspec.structs import replace

from factories import genomes
from factories.genomes import repeats, scenario
from factories.processes import open_descriptors
from firsttouch.errors import CannotHere, RunFailed
from firsttouch.genomics import dealing, launch
from firsttouch.genomics.aligners import aligner
from firsttouch.genomics.collecting import Collector
from firsttouch.genomics.dealing import Dealer
from firsttouch.genomics.sinks import AlignOutput
from firsttouch.scenarios.placement import Placement

BWA = aligner("bwa-mem")
BATCH = 6_000


def prepare(prefix, files, batch=None, *, aligner_used=BWA, **options):
    """Prepare a run whose alignments are summed into a checksum."""
    return replace(launch.prepare(aligner_used, prefix, files, batch), **{"summed": True, **options})


def exact(work, *rest):
    return launch.run(work, *rest, timeout=100).alignments.sums.exact


@pytest.fixture(scope="module")
def few(lambda_work, tmp_path_factory):
    """Returns the index and the first 350 pairs."""
    prefix, reads, _ = lambda_work
    return prefix, genomes.first(350, reads, tmp_path_factory.mktemp("few"))


def by_bwa_alone(prefix, files):
    """Return the checksum of the alignments of bwa without firsttouch."""
    argv = ["bwa", "mem", "-v", "1", "-t", "2", "-K", str(BATCH), prefix, *files]
    done = subprocess.run(argv, capture_output=True, check=True)
    return hashlib.sha256(b"".join(li for li in done.stdout.splitlines(True) if li[:1] != b"@")).hexdigest()


@pytest.mark.parametrize("paired", [True, False])
def test_the_output_does_not_depend_on_instances(few, tmp_path, paired):
    prefix, files = few
    files = files[: 1 + paired]
    work = prepare(prefix, files, BATCH)
    assert work.reads.batches.count >= 5
    expected = by_bwa_alone(prefix, files)
    texts = []
    for instances, threads in ((1, 2), (2, 1), (4, 2), (5, 1)):
        out = tmp_path / f"{instances}.sam"
        result = launch.run(work, scenario(instances, threads), AlignOutput(out, "sam"), timeout=100)
        assert result.alignments.sums.exact == expected, (instances, threads)
        assert result.alignments.primary == 350 * len(files)
        assert len(result.outcomes) == instances
        texts.append([li for li in out.read_text().splitlines() if not li.startswith("@PG")])
    assert all(t == texts[0] for t in texts)
    assert [f.suffix for f in tmp_path.iterdir()] == [".sam"] * 4


@pytest.mark.parametrize("batch", [1, 12_345])
def test_batches_are_those_of_bwa(few, batch):
    """bwa prints the number of sequences that it reads at a time."""
    prefix, files = few
    argv = ["bwa", "mem", "-v", "3", "-t", "2", "-K", str(batch), prefix, *files]
    log = subprocess.run(argv, capture_output=True, text=True, check=True).stderr
    counts = [int(n) for n in re.findall(r"^\[M::process\] read (\d+) sequences", log, re.MULTILINE)]
    starts = prepare(prefix, files, batch).reads.batches.records
    assert [2 * (b - a) for a, b in itertools.pairwise(starts)] == counts


def test_the_output_does_not_depend_on_instances_where_places_are_equally_good(tmp_path):
    reference, mates = repeats(tmp_path, 300)
    BWA.build_index(reference, tmp_path / "idx", tmp_path / "log")
    work = prepare(tmp_path / "idx", genomes.written(tmp_path, mates), BATCH)
    sums = [launch.run(work, scenario(n), None, timeout=100).alignments.sums for n in (1, 2, 4)]
    # bwa mem chooses among equally good places by the number of the read within its run, and every instance counts
    # from 0. Without such places in this genome the test would prove nothing.
    assert len({s.exact for s in sums}) > 1
    assert len({s.common for s in sums}) == 1


def test_reads_for_each_thread_are_repeated(few, stand_in):
    """The time until an aligner begins to read is the loading time of the index."""
    prefix, files = few
    bwa = subprocess.run(["which", "bwa"], capture_output=True, text=True, check=True).stdout.strip()
    stand_in("bwa", f'[ $# = 0 ] && exec {bwa}\nsleep 1\nexec {bwa} "$@"')
    work = replace(prepare(prefix, files, BATCH), per_thread=450, summed=False)
    for instances, threads in ((1, 1), (1, 2), (2, 2)):
        result = launch.run(work, scenario(instances, threads), None, timeout=100)
        assert abs(result.alignments.primary / 2 - 450 * instances * threads) <= BATCH / 200
        assert result.alignments.mapped_fraction > 0.9
        assert 0 < result.aligning <= result.seconds - 0.9
    with pytest.raises(CannotHere, match=r"3 records .* 27"):
        launch.run(replace(work, per_thread=3), scenario(2), None)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this process may use one PU only")
@pytest.mark.parametrize("work_of", [(dealing.Feed, "_write"), (Dealer, "deal"), (Collector, "collect")])
def test_the_launcher_works_on_pus_that_no_instance_uses(few, tmp_path, monkeypatch, work_of):
    """Even while samtools, which may use the PUs of the instances, takes the output."""
    prefix, files = few
    allowed = os.sched_getaffinity(0)
    used = min(allowed)
    bound = replace(scenario(1), placements=(Placement((used,), (0,), (), "original", "whole"),))
    owner, name = work_of
    method, seen = getattr(owner, name), []

    def watched(*arguments):
        seen.append(os.sched_getaffinity(0))
        return method(*arguments)

    monkeypatch.setattr(owner, name, watched)
    packed = [tmp_path / f"{file.name}.gz" for file in files]
    for file, target in zip(files, packed, strict=True):
        target.write_bytes(gzip.compress(file.read_bytes(), 1))
    output = AlignOutput(tmp_path / "out.bam", "bam", sort=True)
    result = launch.run(prepare(prefix, packed, BATCH, summed=False), bound, output, timeout=100)
    assert result.reads == 700
    assert (tmp_path / "out.bam.bai").exists()
    assert result.launcher_seconds > 0
    assert seen
    assert all(pus == allowed - {used} for pus in seen)
    assert os.sched_getaffinity(0) == allowed


def test_too_few_batches(few):
    prefix, files = few
    work = prepare(prefix, files)
    with pytest.raises(CannotHere, match=r" 2 instances .*10,000,000 bases, .* 700 reads .* 1; "):
        launch.run(work, scenario(2), None)


@pytest.mark.parametrize("instances", [1, 3])
@pytest.mark.parametrize(
    "broken",
    [
        ("exit 7", "ended with status 7"),
        ('{bwa} "$@" | head -n 100', r"instance 0: bwa-mem aligned \d+ of \d+ reads"),
        ('{bwa} "$@" | head -c 30000', "not a SAM record"),
        ('{bwa} "$@" | head -n 50; kill -9 $$', "signal SIGKILL"),
        ("{bwa} \"$@\" | sed 's/^r1.*/nonsense/'", "not a SAM record"),
        ("{bwa} \"$@\" | awk '/^@/ || ++n % 2'", r"instance 0: bwa-mem aligned \d+ of \d+ reads"),
        ("exit 0", r"instance 0: bwa-mem aligned 0 of \d+ reads"),
        ('head -c 10 "$(eval echo \\${{$#}})" > /dev/null; exit 0', r"instance 0: bwa-mem aligned 0 of \d+ reads"),
    ],
)
def test_an_aligner_that_fails_leaves_no_output(few, tmp_path, stand_in, broken, instances):
    script, reason = broken
    prefix, files = few
    bwa = subprocess.run(["which", "bwa"], capture_output=True, text=True, check=True).stdout.strip()
    work = prepare(prefix, files, BATCH)
    stand_in("bwa", f"[ $# = 0 ] && exec {bwa}\n" + script.format(bwa=bwa))
    folder = tmp_path / "output"
    folder.mkdir()
    before = open_descriptors()
    with pytest.raises(RunFailed, match=reason):
        launch.run(work, scenario(instances), AlignOutput(folder / "out.sam", "sam"), timeout=100)
    assert list(folder.iterdir()) == []
    assert open_descriptors() <= before
