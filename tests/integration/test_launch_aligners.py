# SPDX-License-Identifier: Apache-2.0
"""Every installed aligner gives the alignments of one instance in every scenario."""

import random
import re

import pytest
from msgspec.structs import replace

from factories import genomes
from factories.genomes import aligns_pairs, built, long_reads, mixed, named, scenario
from firsttouch.errors import BadInput, CannotHere
from firsttouch.genomics import launch
from firsttouch.genomics.sinks import AlignOutput

BATCH_BASES = 10_000
COUNT = 300


@pytest.fixture(scope="module", params=named(aligns_pairs))
def installed(request):
    """Returns each aligner whose program is installed."""
    return genomes.installed(request.param)


@pytest.fixture(scope="module")
def genome(tmp_path_factory):
    """Returns a reference with many equally good places, and pairs of which half are real."""
    return mixed(tmp_path_factory.mktemp("mixed"), COUNT // 2)


def names(lines, mates):
    """Return the names of primary records, with the mate for paired reads; mate 1 of each pair is first.

    Some programs omit /1 and /2, and some print the mapped mate first.
    """
    fields = [line.split("\t", 2)[:2] for line in lines]
    reads = [(n.removesuffix("/1").removesuffix("/2"), int(f) & 0x80) for n, f in fields if not int(f) & 0x900]
    return [read for at in range(0, len(reads), mates) for read in sorted(reads[at : at + mates])]


@pytest.mark.parametrize("form", ["single", "files", "interleaved"])
def test_the_output_is_that_of_one_instance(installed, genome, form, tmp_path, tmp_path_factory):
    reference, mates = genome
    mates = mates[:1] if form == "single" else mates
    files = genomes.written(tmp_path, mates, interleaved=form == "interleaved")
    prefix = built(installed, reference, tmp_path_factory)
    work = launch.prepare(installed, prefix, files, BATCH_BASES, interleaved=form == "interleaved")
    work = replace(work, summed=True)
    expected = [
        (r.split(b"\n")[0][1:].split()[0].decode(), n) for p in zip(*mates, strict=True) for n, r in enumerate(p)
    ]
    expected = [(n.removesuffix("/1").removesuffix("/2"), 0x80 * mate) for n, mate in expected]
    whole = None
    for instances, threads in ((1, 2), (2, 1), (3, 2)):
        out = tmp_path / f"{instances}.sam"
        if instances > work.reads.batches.count:
            with pytest.raises(CannotHere, match="too few for"):
                launch.run(work, scenario(instances, threads), AlignOutput(out, "sam"), timeout=100)
            assert installed.batch.records
            continue
        result = launch.run(work, scenario(instances, threads), AlignOutput(out, "sam"), timeout=100)
        lines = [line for line in out.read_text().splitlines() if line[:1] != "@" or line[3:4] != "\t"]
        assert names(lines, len(mates)) == expected
        whole = whole or result.alignments.sums
        assert result.alignments.sums.common == whole.common
        assert len(result.outcomes) == instances
        assert all(o.peak_bytes > 0 for o in result.outcomes)


@pytest.fixture(scope="module")
def nanopore(tmp_path_factory):
    """Returns a genome (FASTA), a file of its reads of 1 to 100 kb and one of 1 Mb, and their names."""
    rng = random.Random(3)  # noqa: S311
    folder = tmp_path_factory.mktemp("nanopore")
    genome = "".join(rng.choices("ACGT", k=1_200_000))
    (folder / "genome.fa").write_text(f">g\n{genome}\n")
    lengths = [round(1000 * 100 ** rng.random()) for _ in range(14)]
    lengths.insert(11, 1_000_000)
    reads = long_reads(genome, lengths, rng)
    (folder / "reads.fq").write_bytes(b"".join(reads))
    return folder / "genome.fa", folder / "reads.fq", [read.split(b"\n")[0][1:].decode() for read in reads]


@pytest.mark.parametrize("installed", named(lambda program: not program.align.paired), indirect=True)
def test_long_reads(installed, nanopore, tmp_path, tmp_path_factory):
    reference, reads, expected = nanopore
    prefix = built(installed, reference, tmp_path_factory)
    work = replace(launch.prepare(installed, prefix, [reads]), summed=True)
    sums, spans = set(), []
    for instances, threads in ((1, 2), (2, 1), (3, 1)):
        out = tmp_path / f"{instances}.sam"
        result = launch.run(work, scenario(instances, threads), AlignOutput(out, "sam"), timeout=100)
        sums.add(result.alignments.sums.exact)
        lines = [line for line in out.read_text().splitlines() if line[:1] != "@" or line[3:4] != "\t"]
        assert [name for name, _ in names(lines, 1)] == expected
        spans.append(sum(int(n) for n in re.findall(r"(\d+)[MD]", lines[11].split("\t", 6)[5])))
    assert len(sums) == 1
    assert min(spans) > 950_000
    with pytest.raises(BadInput, match=f"{installed.name} .*single reads"):
        launch.prepare(installed, prefix, [reads, reads])
