# SPDX-License-Identifier: Apache-2.0
"""Genomes, reads and scenarios that several tests generate."""

import gzip
import math
import random
import re
from itertools import chain

import pytest

from factories.caches import of_run
from firsttouch import paths
from firsttouch.datasets import fetch
from firsttouch.errors import Missing
from firsttouch.genomics.aligners import aligners
from firsttouch.genomics.aligners import get_index as build
from firsttouch.host.topology import load
from firsttouch.scenarios.placement import Placement, Scenario

#: Pairs in the part of the dataset ``lambda`` that commands run on: enough for runs that are sampled.
PART = 4000
_COMPLEMENT = str.maketrans("ACGT", "TGCA")


def named(fits):
    """Return the names of the aligners whose data file *fits* a test, installed or not."""
    return [name for name, program in sorted(aligners().items()) if fits(program)]


def aligns_pairs(program):
    """Return whether an aligner takes pairs; the others are for long reads."""
    return bool(program.align.paired)


def has_large_batches(program):
    """Return whether an aligner chooses the size of its batches itself."""
    return bool(program.batch.text or program.batch.records)


def installed(name):
    """Return an aligner; skips the test if its program is not installed."""
    chosen = aligners()[name]
    try:
        chosen.version()
    except Missing as error:
        pytest.skip(f"{chosen.name}: {error}")
    return chosen


def phage(folder, count):
    """Return the reference and the first *count* pairs of the dataset ``lambda``, as records of each mate."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRSTTOUCH_DATA", str(folder))
        local = fetch.get("lambda")
    return local.reference, [records(file)[:count] for file in local.reads]


def built(aligner, reference, folders):
    """Return the prefix of the index, built once in a run for each aligner and reference.

    *folders* is tmp_path_factory.
    """
    return build(aligner, reference, of_run(folders, "index"), say=lambda _: None)


def records(file):
    """Return the records of a FASTQ file, gzip or plain, as bytes."""
    data = file.read_bytes()
    lines = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).splitlines(keepends=True)
    return [b"".join(lines[i : i + 4]) for i in range(0, len(lines), 4)]


def part_of_lambda(folder, count, batch_bases):
    """Write a manifest to *folder* that makes ``lambda`` a dataset of its first *count* pairs, in such batches."""
    text = (paths.ROOT / "datasets" / "lambda.toml").read_text()
    part = f'first_reads = {count}\nwhy_unpinned = "a part for tests"'
    text = re.sub(r'(?<=reads_[12]\.fq\.gz"\n)checksum = .*', part, text)
    text = text.replace("reads = 10_000", f"reads = {count}")
    (folder / "lambda.toml").write_text(text.replace("batch_bases = 100_000", f"batch_bases = {batch_bases}"))


def pairs(genome, count, length, rng, apart=(250, 400)):
    """Return *count* pairs of reads of *length* bases, without errors, as records of each mate."""
    mates = [], []
    for n in range(count):
        at, size = rng.randrange(len(genome) - apart[1]), rng.randrange(*apart)
        fragment = genome[at : at + size]
        for out, bases in zip(mates, (fragment, fragment[::-1].translate(_COMPLEMENT)), strict=True):
            out.append(f"@r{n}\n{bases[:length]}\n+\n{'I' * length}\n".encode())
    return list(mates)


def large_batch(program, genome, count):
    """Return the first batch of *program*, and *count* pairs whose mates are further apart: records of each mate.

    The batch ends with 9000 pairs (or has only those); the pairs before them have no base and cost the aligner
    nothing.
    """
    rng = random.Random(2)  # noqa: S311
    near = pairs(genome, min(program.batch.records or 9000, 9000), 36, rng)
    far = pairs(genome, count, 36, rng, apart=(800, 950))
    rest = f"{'N' * 36}\n+\n{'I' * 36}\n"
    text = program.batch.text - sum(map(len, near[0]))
    size = max(program.batch.records, len(near[0]) + math.ceil(text / (len(rest) + len("@n000000\n"))))
    size += -size % (program.batch.records or 1)
    unalignable = [f"@n{n:06}\n{rest}".encode() for n in range(size - len(near[0]))]
    return [[*unalignable, *mate] for mate in near], far


def long_reads(genome, lengths, rng):
    """Return reads of these *lengths* (bases) from both strands of *genome*, with 6 % errors like a nanopore's."""
    out = []
    for number, length in enumerate(lengths):
        at = rng.randrange(len(genome) - length + 1)
        bases = list(genome[at : at + length])
        for place in rng.sample(range(length), length * 6 // 100):
            bases[place] = rng.choice(("", "", "A", "C", "G", "T", 2 * bases[place]))
        text = "".join(bases)
        text = text if rng.random() < 0.5 else text[::-1].translate(_COMPLEMENT)
        out.append(f"@long{number}\n{text}\n+\n{'7' * len(text)}\n".encode())
    return out


def repeats(folder, count):
    """Return a genome (FASTA), half of it repeats with many equally good places, and pairs of its reads."""
    rng = random.Random(1)  # noqa: S311
    unit = "".join(rng.choices("ACGT", k=2000))
    genome = "".join("".join(rng.choices("ACGT", k=2000)) + unit for _ in range(8))
    reference = folder / "repeats.fa"
    reference.write_text(f">g\n{genome}\n")
    return reference, pairs(genome, count, 100, rng)


def written(folder, mates, *, interleaved=False):
    """Write the records of each mate (or both to one file), and return the files."""
    lists = [[*chain(*zip(*mates, strict=True))]] if interleaved else mates
    files = [folder / f"{'both' if interleaved else n}.fq" for n in range(len(lists))]
    for file, of_mate in zip(files, lists, strict=True):
        file.write_bytes(b"".join(of_mate))
    return files


def first(count, reads, folder):
    """Return files in *folder* with the first *count* records of each file of *reads*, under their names."""
    files = [folder / file.name for file in reads]
    for file, whole in zip(files, reads, strict=True):
        file.write_bytes(b"".join(records(whole)[:count]))
    return files


def mixed(folder, count):
    """Return the genomes of :func:`phage` and :func:`repeats` in one file, and *count* pairs of each in turn."""
    (phage_file, real), (repeats_file, generated) = phage(folder, count), repeats(folder, count)
    reference = folder / "mixed.fa"
    reference.write_bytes(phage_file.read_bytes() + repeats_file.read_bytes())
    generated = [[record.replace(b"@r", b"@g", 1) for record in of_mate] for of_mate in generated]
    return reference, [[*chain(*zip(*both, strict=True))] for both in zip(real, generated, strict=True)]


def scenario(instances, threads=1):
    """Return a scenario whose instances may use all PUs of this host, so that it fits any host."""
    host = load()
    pus, bank = tuple(sorted(host.allowed_pus)), host.memory_nodes[0]
    numactl = (f"--physcpubind={','.join(map(str, pus))}", f"--membind={bank}")
    placement = Placement(pus, (bank,), numactl, "original", "part")
    return Scenario(f"{instances}x{threads}-bound", instances, threads, "original", (placement,) * instances)
