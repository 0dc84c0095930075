# SPDX-License-Identifier: Apache-2.0
"""The aligners of the 2018 study: their commands, blocked input, and programs that write several files."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from blocked_fastq import block
from factories.fastq_files import text, write
from factories.genomes import scenario
from firsttouch.genomics import aligners, launch
from firsttouch.genomics.fastq import inspect
from firsttouch.genomics.sinks import AlignOutput

PROGRAM = Path(__file__).parents[1] / "factories" / "blocked_aligner.py"
TEXT = f"""
program = "{PROGRAM}"
version = {{ argv = ["{PROGRAM}", "--version"], pattern = 'version (\\S+)' }}
index.argv = ["false", "{{reference}}", "{{index}}"]
index.files = [".i"]
index.mapped.words = ["--mapped"]

[align]
single = [["{PROGRAM}", "--threads", "{{threads}}", "--index", "{{index}}", "{{reads}}", OPTIONS], JOIN]
paired = [["{PROGRAM}", "--threads", "{{threads}}", "--index", "{{index}}", "{{reads}}", "{{reads2}}", OPTIONS],
          JOIN]
in_order = false
same = "exact"
batch_reads = 3

[memory]
instance = "20 MB"
thread = "1 MB"
""".replace(
    "OPTIONS", '"--size", "200", "--records", "3", "--outputs", "11", "--out", "{scratch}/out.sam"'
).replace("JOIN", """["sh", "-c", 'cat "$0".part?.sam "$0".part??.sam', "{scratch}/out"]""")
#: 31 records in 11 blocks of single reads or 16 of pairs; the last block has one.
RECORDS = [[f"@r{n} of 31", "ACGT" * (1 + n % 4), "+", "IIII" * (1 + n % 4)] for n in range(31)]


@pytest.mark.parametrize("mates", [1, 2])
def test_blocked_reads_and_several_outputs(tmp_path, mates):
    (tmp_path / "idx.i").touch()
    plain = [write(tmp_path / f"{n}.fq", text(RECORDS)) for n in range(mates)]
    files = [tmp_path / f"{n}.blocked.fq" for n in range(mates)]
    block(inspect(plain), files, block_bytes=200, per_block=3)
    program = aligners.parse("x-blocked", TEXT, "x.toml")
    work = replace(launch.prepare(program, tmp_path / "idx", files), summed=True)
    sums = []
    for instances in (1, 3):
        result = launch.run(work, scenario(instances), AlignOutput(tmp_path / "out.sam", "sam"), timeout=100)
        lines = (tmp_path / "out.sam").read_text().splitlines()
        names = [line.split("\t")[0] for line in lines if line[0] != "@"]
        assert names == [f"r{n}" for n in range(31) for _ in range(mates)]
        sums.append(result.alignments.sums.exact)
    assert len(set(sums)) == 1
    assert not [f for f in tmp_path.iterdir() if f.is_dir()]


VARIANTS = ("tinythread", "tbb-spin", "tbb-standard", "tbb-queuing", "deferred", "batched", "blocked", "striped")


@pytest.mark.parametrize("family", ["bowtie-2018", "bowtie2-2018", "hisat-2018"])
def test_the_commands_of_the_study(family, aligners_of_studies):
    """Langmead et al. 2018, supplementary note 1: options and programs of each configuration."""
    base = aligners.aligner(family.removesuffix("-2018"))
    for variant in VARIANTS:
        aligner = aligners.aligner(f"{family}-{variant}")
        # Only the study's HISAT is known to map its index.
        assert aligner.index.mapped.words == (("--mm",) if base.index.mapped.words or base.name == "hisat" else ())
        assert (aligner.index_of, aligner.index.version) == (base.name, base.index.version)
        assert aligner.summary == base.summary
        program = {"deferred": "parsing", "batched": "parsing"}.get(variant, variant)
        each = 70 if base.name == "bowtie" else 44  # reads of 50 bases, of 100
        in_blocks = variant in {"blocked", "striped"}
        assert aligner.batch.records == (each if in_blocks else 0)
        for mates in (1, 2):
            step, join = aligner.steps(mates)
            assert join[0] == ("sh" if variant == "striped" else "cat")
            reads = ("r1", "r2")[:mates]
            argv = aligner.argv(step, index=Path("i"), reads=reads, threads=7, batch_bases=9, scratch=Path("tmp"))
            words = " ".join(argv)
            assert {aligner.program, argv[0], aligner.version_command.argv[0]} == {f"{family}-{program}"}
            assert " -I 250 -X 800 " in words
            assert "tmp/out.sam" in argv
            assert ("--no-temp-splicesite" in argv) == (base.name == "hisat")
            assert (f"--block-bytes 12288 --reads-per-block {each}" in words) == in_blocks
            assert ("--num-outputs 16" in words) == (variant == "striped")
            batch = {"deferred": "1", "batched": "32"}.get(variant)
            assert batch is None or argv[-2:] == ["--reads-per-batch", batch]
        assert aligner.origin.endswith("_paper_v2" if variant[0] != "t" else ("_v1", "_v2"))
        assert not aligner.align.in_order
