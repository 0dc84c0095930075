# SPDX-License-Identifier: Apache-2.0
"""Real aligners read the same reads from the padded form."""

import subprocess

import pytest

from blocked_fastq import block
from factories.genomes import built, installed, records
from firsttouch.genomics.fastq import inspect

#: Pairs of reads in the tests, which fill more than ten blocks.
PAIRS = 600
#: The command with which each aligns a pair of files.
ALIGNERS = {
    "bwa-mem": ["bwa", "mem", "-v", "1", "-K", "100000", "{0}", "{1}", "{2}"],
    "bowtie2": ["bowtie2", "-p", "1", "-x", "{0}", "-1", "{1}", "-2", "{2}"],
    "bowtie": ["bowtie", "-S", "-p", "1", "-x", "{0}", "-1", "{1}", "-2", "{2}"],
    "hisat2": ["hisat2", "-p", "1", "-x", "{0}", "-1", "{1}", "-2", "{2}"],
}


@pytest.mark.parametrize("name", ALIGNERS)
def test_alignments_of_the_blocked_form(name, lambda_work, tmp_path, tmp_path_factory):
    _, files, reference = lambda_work
    index = built(installed(name), reference, tmp_path_factory)
    plain = [tmp_path / f"plain{mate}.fq" for mate in (1, 2)]
    for file, source in zip(plain, files, strict=True):
        file.write_bytes(b"".join(records(source)[:PAIRS]))
    blocked = [tmp_path / f"blocked{mate}.fq" for mate in (1, 2)]
    result = block(inspect(plain), blocked)
    assert result.blocks > 10
    outputs = []
    for pair in (plain, blocked):
        argv = [word.format(index, *pair) for word in ALIGNERS[name]]
        done = subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True, timeout=200)
        outputs.append([line for line in done.stdout.splitlines() if line[:1] != b"@" or line[3:4] != b"\t"])
    assert len(outputs[0]) >= 2 * result.blocks
    assert outputs[0] == outputs[1]
