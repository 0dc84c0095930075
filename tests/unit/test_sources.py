# SPDX-License-Identifier: Apache-2.0
"""Gzip files: of one member and of many, from anywhere; those that are cut or damaged are refused."""

import functools
import gzip
import random
import zlib

import pytest

from factories.fastq_files import GOOD, bgzf, nothing_stays, packed, text, write
from firsttouch.errors import BadInput
from firsttouch.genomics import sources as module
from firsttouch.genomics.division import parts_between
from firsttouch.genomics.fastq import inspect
from firsttouch.genomics.reads import BatchRule


@functools.cache
def records(count):
    """Return reads as they come from a sequencer: hard to pack, unlike a repeated one."""
    rng = random.Random(count)  # noqa: S311
    return [
        [f"@r{n}", "".join(rng.choices("ACGT", k=100)), "+", "".join(rng.choices("FFFF:,#", k=100))]
        for n in range(count)
    ]


KINDS = {
    "one": lambda data: gzip.compress(data, 4),
    "fast": lambda data: gzip.compress(data, 1),
    "stored": lambda data: gzip.compress(data, 0),
    "two": lambda data: packed(data, 2),
    "many": lambda data: packed(data, 500) + gzip.compress(b""),
    "blocks": bgzf,
}


@pytest.mark.parametrize("kind", KINDS)
def test_parts_of_the_unpacked(tmp_path, kind):
    """Large enough for several places to start from; 7 MB of reads are 2 to 3 MB of gzip."""
    data = text(records(2000)) * 16
    # By what is in it, not by its name.
    file = write(tmp_path / "r.fq", KINDS[kind](data))
    reads = inspect([file], BatchRule(100_000))
    assert (reads.records, reads.as_is) == (32_000, False)
    parts = parts_between(reads, [0, 1, len(reads.batches.records) // 2, len(reads.batches.records) - 1])
    stretches = [(part.begins, min(part.records, 5000)) for part in parts]
    with nothing_stays(), module.mate_lines(reads, stretches, 0) as lines:
        read = list(lines)
    for (begin,), count in stretches:
        stretch, read = b"".join(read[: 4 * count]), read[4 * count :]
        assert stretch == data[begin : begin + len(stretch)]
    assert not read
    # Whatever its name: not all aligners unpack gzip, and not all that do go by the name.
    write(tmp_path / "r.fq.gz", file.read_bytes())
    assert not inspect([tmp_path / "r.fq.gz"]).as_is


@pytest.mark.parametrize("kind", KINDS)
def test_truncated_or_damaged(tmp_path, kind):
    data = text(records(400))
    whole = KINDS[kind](data)
    assert inspect([write(tmp_path / "r.fq.gz", whole)]).records == 400
    rng = random.Random(0)  # noqa: S311
    cuts = {2, len(whole) // 2, len(whole) - 1, len(whole) - 8}
    if kind in {"one", "many", "blocks"}:  # the members of the others begin and end like the members of "one"
        cuts |= {9, 12, 20, len(whole) - 4, len(whole) - 9}
    for cut in sorted(cuts | set(rng.sample(range(3, len(whole)), 1))):
        file = write(tmp_path / "r.fq.gz", whole[:cut])
        if kind in {"two", "many", "blocks"} and _whole_members(whole[:cut]):
            continue  # nothing tells that there was more
        with pytest.raises(BadInput, match=rf"^{file}(:\d+)?: (record \d+|no reads)") as error:
            inspect([file])
        assert "truncated or damaged" in str(error.value)
    for at in rng.sample(range(10, len(whole) - 8), 2):
        damaged = bytearray(whole)
        damaged[at] ^= 0x55
        if _whole_members(bytes(damaged)):
            continue  # in a header, where it does no harm
        file = write(tmp_path / "r.fq.gz", bytes(damaged))
        with pytest.raises(BadInput, match=rf"^{file}"):
            inspect([file])


def _whole_members(data):
    try:
        gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return False
    return True


@pytest.mark.parametrize("gz", [False, True])
def test_lines_of_one_mate(tmp_path, gz):
    """Of interleaved pairs with CR LF, from the second pair on, and of a file whose last line has no end."""
    records = [[name, *lines] for name, *lines in GOOD * 20 for _ in range(2)]
    records = [[f"{r[0]}/{1 + n % 2}", *r[1:]] for n, r in enumerate(records)]
    pairs = text(records, "\r\n")[:-2]
    file = write(tmp_path / "r.fq", packed(pairs) if gz else pairs)
    reads = inspect([file], interleaved=True)
    (part,) = parts_between(reads, [1, reads.records])
    for mate in range(2):
        with nothing_stays(), module.mate_lines(reads, [(part.begins, part.records)], mate) as lines:
            assert b"".join(lines) == text(records[2 + mate :: 2])
    write(file, b"other")
    with pytest.raises(BadInput, match=f"^{file}: .*changed"), module.mate_lines(reads, [([0], 1)], 0) as lines:
        next(lines)


def test_nothing_stays_after_an_error(tmp_path):
    good = text(records(2500)) * 8
    bad = gzip.compress(good + text([["@x", "AC", "+", "I"]]) + good, 1)
    files = [write(tmp_path / name, bad) for name in ("r1.fq.gz", "r2.fq.gz")]
    with nothing_stays(), pytest.raises(BadInput, match="record 20001 has 2 bases"):
        inspect(files)
