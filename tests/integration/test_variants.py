# SPDX-License-Identifier: Apache-2.0
"""Variants of a real aligner: its index, and its records, in batches of other sizes."""

import pytest
from msgspec.structs import replace

from factories.genomes import built, installed, scenario
from firsttouch.genomics import aligners, launch


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
