# SPDX-License-Identifier: Apache-2.0
"""Real aligners read the same reads from the padded form."""

import shutil
import subprocess

import pytest

from factories.genomes import records
from firsttouch.genomics.fastq import inspect
from firsttouch.genomics.padded_fastq import block

#: Pairs of reads in the tests, which fill more than ten blocks.
PAIRS = 2000
#: The commands with which each builds an index and aligns a pair of files.
ALIGNERS = {
    "bwa": (["bwa", "index", "-p", "i", "ref.fa"], ["bwa", "mem", "-v", "1", "-K", "100000", "i", "{1}", "{2}"]),
    "bowtie2": (
        ["bowtie2-build", "-q", "ref.fa", "i"],
        ["bowtie2", "-p", "1", "-x", "i", "-1", "{1}", "-2", "{2}"],
    ),
    "bowtie": (
        ["bowtie-build", "-q", "ref.fa", "i"],
        ["bowtie", "-S", "-p", "1", "-x", "i", "-1", "{1}", "-2", "{2}"],
    ),
    "hisat2": (["hisat2-build", "-q", "ref.fa", "i"], ["hisat2", "-p", "1", "-x", "i", "-1", "{1}", "-2", "{2}"]),
}


@pytest.mark.parametrize("name", ALIGNERS)
def test_alignments_of_the_blocked_form(name, lambda_work, tmp_path):
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not on PATH")
    _, files, reference = lambda_work
    shutil.copy(reference, tmp_path / "ref.fa")
    for mate, file in enumerate(files, 1):
        (tmp_path / f"plain{mate}.fq").write_bytes(b"".join(records(file)[:PAIRS]))
    plain = [tmp_path / f"plain{mate}.fq" for mate in (1, 2)]
    blocked = [tmp_path / f"blocked{mate}.fq" for mate in (1, 2)]
    result = block(inspect(plain), blocked)
    assert result.blocks > 10
    build, align = ALIGNERS[name]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True, timeout=200)
    outputs = []
    for pair in (plain, blocked):
        argv = [{"{1}": pair[0], "{2}": pair[1]}.get(word, word) for word in align]
        done = subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True, timeout=200)
        outputs.append([line for line in done.stdout.splitlines() if line[:1] != b"@" or line[3:4] != b"\t"])
    assert len(outputs[0]) >= 2 * result.blocks
    assert outputs[0] == outputs[1]
