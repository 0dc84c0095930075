# SPDX-License-Identifier: Apache-2.0
"""Variants of aligners: batches of a real one, blocked input, and programs that write several files."""

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from blocked_fastq import block
from factories.fastq_files import text, write
from factories.genomes import built, installed, scenario
from firsttouch.errors import BadInput, CannotHere, RunFailed
from firsttouch.genomics import aligners, launch
from firsttouch.genomics.aligners import Blocks
from firsttouch.genomics.fastq import inspect
from firsttouch.genomics.sinks import AlignOutput

PROGRAM = Path(__file__).parents[1] / "factories" / "blocked_aligner.py"
TEXT = f"""
program = "{PROGRAM}"
version = {{ argv = ["{PROGRAM}", "--version"], pattern = 'version (\\S+)' }}
index.argv = ["false", "{{reference}}", "{{index}}"]
index.files = [".i"]
only_variants = true

[align]
single = [["{PROGRAM}", "--threads", "{{threads}}", "--index", "{{index}}", "{{reads}}"]]
paired = [["{PROGRAM}", "--threads", "{{threads}}", "--index", "{{index}}", "{{reads}}", "{{reads2}}"]]
in_order = true
same = "exact"
files = true

[memory]
instance = "20 MB"
thread = "1 MB"

[variants.blocked]
words = ["--size", "{{block_bytes}}", "--records", "{{block_reads}}", "--outputs", "{{outputs}}",
         "--out", "{{scratch}}/o.sam"]
blocked = {{ bytes = 200, reads = 3 }}
outputs = {{ file = "{{scratch}}/o.part{{output}}.sam", number = 3 }}
"""
#: 31 records in 11 blocks of single reads or 16 of pairs; the last block has one.
RECORDS = [[f"@r{n} of 31", "ACGT" * (1 + n % 4), "+", "IIII" * (1 + n % 4)] for n in range(31)]


@pytest.fixture
def blocked(tmp_path):
    """Returns a function that prepares a run of the stand-in with reads of so many mates."""
    program = aligners.family("x", TEXT, "x.toml")["x-blocked"]
    (tmp_path / "idx.i").touch()

    def make(mates, **fields):
        plain = [write(tmp_path / f"{n}.fq", text(RECORDS)) for n in range(mates)]
        files = [tmp_path / f"{n}.blocked.fq" for n in range(mates)]
        block(inspect(plain), files, block_bytes=200, per_block=program.blocks.reads)
        return replace(launch.prepare(program, tmp_path / "idx", files), **fields)

    return make


@pytest.mark.parametrize("mates", [1, 2])
def test_blocked_reads_and_several_outputs(blocked, tmp_path, mates):
    work = blocked(mates, summed=True)
    sums = []
    for instances in (1, 3):
        result = launch.run(work, scenario(instances), AlignOutput(tmp_path / "out.sam", "sam"), timeout=100)
        lines = (tmp_path / "out.sam").read_text().splitlines()
        names = [line.split("\t")[0] for line in lines if line[0] != "@"]
        assert names == [f"r{n}" for n in range(31) for _ in range(mates)]
        sums.append(result.alignments.sums.exact)
    assert len(set(sums)) == 1
    assert not [f for f in tmp_path.iterdir() if f.is_dir()]


@pytest.mark.parametrize("mates", [1, 2])
def test_whole_blocks_are_repeated(blocked, mates):
    work = blocked(mates, per_thread=40)
    for instances in (1, 3):
        result = launch.run(work, scenario(instances), None, timeout=100)
        # As near as whole blocks allow; an incomplete block in between would fail the program.
        assert abs(result.alignments.primary - instances * mates * 40) <= 2 * mates * 3
        assert 0 < result.aligning < result.seconds
    parameters = launch.records(work, scenario(1), [result], dataset="")[0].parameters
    assert (parameters["block_bytes"], parameters["reads_per_block"]) == (200, 3)


def test_reads_without_a_whole_block_cannot_be_repeated(blocked, tmp_path):
    work = blocked(1)
    few = write(tmp_path / "few.fq", text(RECORDS[:2]))
    few = launch.prepare(work.aligner, work.index, [few])
    with pytest.raises(CannotHere, match="2 records do not fill a block of 3: use more reads"):
        launch.run(replace(few, per_thread=5), scenario(1), None, timeout=100)


def test_wrong_uses_are_reported_before_any_run(blocked, tmp_path):
    work = blocked(1)
    plain = tmp_path / "0.fq"
    with pytest.raises(BadInput, match=r"0\.fq: record 4 begins at byte 90 instead of 200, but blocks of 200"):
        launch.prepare(work.aligner, work.index, [plain])
    with pytest.raises(BadInput, match="with 4 records are needed"):
        launch.prepare(replace(work.aligner, blocks=Blocks(200, 4)), work.index, work.reads.files)
    with pytest.raises(BadInput, match="x-blocked takes no --dynamic: it reads files"):
        launch.check_dynamic(work.aligner, 1)
    lost = replace(work.aligner, output="{scratch}/{output}.sam")
    with pytest.raises(RunFailed, match="instance 0: x-blocked did not write 1"):
        launch.run(replace(work, aligner=lost), scenario(1), None, timeout=100)


@pytest.fixture(scope="module")
def of_lambda(lambda_work, tmp_path_factory):
    """Returns Bowtie 2's index of the lambda phage, and the first 600 pairs."""
    _, files, reference = lambda_work
    folder = tmp_path_factory.mktemp("variants")
    heads = []
    for file in files:
        heads.append(folder / f"{len(heads)}.fq")
        heads[-1].write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:2400]))
    return built(installed("bowtie2"), reference, tmp_path_factory), heads


def test_batches_of_a_release(of_lambda):
    """A variant has the index and the records of its aligner."""
    prefix, files = of_lambda
    sums = set()
    for name, words, each in (
        ("bowtie2", [], scenario(1)),
        ("bowtie2-deferred", ["--reads-per-batch", "1"], scenario(2)),
        ("bowtie2-batched", ["--reads-per-batch", "32"], scenario(1, 2)),
    ):
        work = replace(launch.prepare(aligners.aligner(name), prefix, files), summed=True)
        result = launch.run(work, each, None, timeout=100)
        sums.add(result.alignments.sums.exact)
        argv = result.outcomes[0].job.argv
        assert argv[len(argv) - len(words) :] == words
    assert len(sums) == 1


@pytest.mark.parametrize("mates", [1, 2])
def test_a_program_of_2018_reads_blocks(of_lambda, tmp_path, mates):
    program = replace(aligners.aligner("bowtie2-2018-striped"), blocks=Blocks(12288, 18))
    if shutil.which(program.program) is None:
        pytest.skip(f"{program.program} is not on PATH: {program.origin}")
    prefix, files = of_lambda
    outs = [tmp_path / f"{n}.fq" for n in range(mates)]
    block(inspect(files[:mates]), outs, per_block=18)
    work = replace(launch.prepare(program, prefix, outs), summed=True)
    sums = {
        launch.run(work, each, None, timeout=100).alignments.sums.exact for each in (scenario(1, 2), scenario(2))
    }
    assert len(sums) == 1


def test_the_command_line(of_lambda, tmp_path, run_cli, monkeypatch):
    prefix, (reads, _) = of_lambda
    run = ("run", "1x1-unbound", "--index", prefix, "--reads", reads, "-o", tmp_path / "o.sam", "--aligner")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    status, _, err = run_cli(*run, "bowtie2-2018-blocked")
    assert (status, err.count("\n")) == (3, 1)
    assert "'bowtie2-2018-blocked' is not on PATH: install it from https://" in err
