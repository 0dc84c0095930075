# SPDX-License-Identifier: Apache-2.0
"""Shares of checked reads: equal as whole batches allow, all reads once and in turn, or repeated."""

import itertools

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from factories.fastq_files import BATCHES, GOOD, common, fastq, layout, packed, text, write
from firsttouch.errors import CannotHere
from firsttouch.genomics import division
from firsttouch.genomics.division import repeated_division, static_division
from firsttouch.genomics.fastq import inspect
from firsttouch.genomics.read_stream import ReadStream
from firsttouch.genomics.reads import BatchRule


@pytest.fixture
def small(monkeypatch):
    """Small parts, so that a few records are many of them."""
    monkeypatch.setattr(division, "PART_BYTES", 300)


def parts_of(reads, divided):
    """Return the text of each part for each pipe."""
    parts = []
    with ReadStream(
        [list(map(str, reads.files))], interleaved=reads.interleaved, rule=reads.batches.rule, division=divided
    ) as stream:
        begins = True
        for piece in stream:
            if begins:
                parts.append([b""] * len(piece.data))
            assert piece.part == len(parts) - 1
            parts[-1] = [a + bytes(b) for a, b in zip(parts[-1], piece.data, strict=True)]
            begins = piece.last
    assert begins
    return parts


@given(
    records=fastq(mates=2),
    layouts=st.lists(layout(), min_size=2, max_size=2),
    form=st.sampled_from(("single", "files", "interleaved")),
    batch=BATCHES,
    instances=st.integers(1, 5),
    gz=st.sampled_from((False, False, False, True)),
)
@common(40)
def test_all_is_dealt_once_and_in_order(tmp_path, small, *, records, layouts, form, batch, instances, gz):
    if form == "interleaved":
        data = [layouts[0]([r for pair in zip(*records, strict=True) for r in pair])]
    else:
        data = [written(r) for written, r in zip(layouts, records, strict=True)]
    files = [write(tmp_path / f"{n}.fq", packed(d, 3) if gz else d) for n, d in enumerate(data)]
    files, mates = (files[:1], 1) if form == "single" else (files, 2)
    reads = inspect(files, batch, interleaved=form == "interleaved")
    if reads.batches.count < instances:
        with pytest.raises(CannotHere, match=f" {instances} instances"):
            static_division(reads, instances)
        return
    divided = static_division(reads, instances)
    counts = list(divided.parts)
    begins = [0, *itertools.accumulate(counts)]
    assert begins[-1] == len(records[0])
    assert set(begins) <= set(reads.batches.records.tolist())
    assert len(counts) >= instances
    parts = parts_of(reads, divided)
    for mate in range(mates):
        expected = [text(records[mate][a:b]) for a, b in itertools.pairwise(begins)]
        assert [part[mate] for part in parts] == expected
    assert len(counts) % instances == 0
    marks = [reads.batches.records.tolist().index(begin) for begin in begins]
    shares = [0] * instances
    for number, (a, b) in enumerate(itertools.pairwise(marks)):
        shares[number % instances] += b - a
    assert max(shares) - min(shares) <= 1


@pytest.mark.parametrize("part_bytes", [1 << 20, 500])
def test_shares_are_as_equal_as_batches_allow(tmp_path, monkeypatch, part_bytes):
    monkeypatch.setattr(division, "PART_BYTES", part_bytes)
    reads = inspect([write(tmp_path / "r.fq", text([["@r", "A" * 10, "+", "I" * 10]] * 1000))], BatchRule(100))

    def shares(instances):
        counts = static_division(reads, instances).parts
        return [sum(counts[number::instances]) for number in range(instances)]

    assert shares(4) == [250] * 4
    assert sorted(set(shares(8))) == [120, 130]
    assert len(shares(100)) == 100
    reason = (
        "too few for 101 instances .* batches of 100 bases, .* 10,000 bases in 1,000 reads fill 100; .*-bases 49$"
    )
    with pytest.raises(CannotHere, match=reason):
        static_division(reads, 101)
    with pytest.raises(CannotHere, match=r"3 records .* 4 instances"):
        static_division(inspect([write(tmp_path / "few.fq", text(GOOD))]), 4)


@given(
    records=fastq(mates=2),
    batch=st.sampled_from((0, 0, 100, 400)),
    instances=st.integers(1, 4),
    each=st.integers(1, 40),
    gz=st.sampled_from((False,) * 7 + (True,)),
)
@common(15)
def test_reads_are_repeated(tmp_path, small, *, records, batch, instances, each, gz):
    """Each instance gets the records that batches allow, and all parts together are consecutive."""
    if gz:  # each repetition of a file starts a program
        instances, each = min(instances, 2), min(each, 2 * len(records[0]))
    files = [write(tmp_path / f"{n}.fq", packed(text(r), 2) if gz else text(r)) for n, r in enumerate(records)]
    reads = inspect(files, BatchRule(batch))
    largest = max(b - a for a, b in itertools.pairwise(reads.batches.records.tolist()))
    try:
        divided = repeated_division(reads, instances, each)
    except CannotHere:
        # An instance would have no batch.
        assert each < 2 * largest
        reject()
    at = 0
    for part, count in zip(parts_of(reads, divided), divided.parts, strict=True):
        for mate, of_mate in enumerate(records):
            assert part[mate] == text([of_mate[n % len(of_mate)] for n in range(at, at + count)])
        at += count
        assert at % len(records[0]) in reads.batches.records
    assert abs(at - instances * each) <= largest
    smallest = min(b - a for a, b in itertools.pairwise(reads.batches.records.tolist()))
    for number in range(instances):
        share = sum(divided.parts[number::instances])
        # Batches of one size give equal shares; others give shares with equal numbers of batches.
        assert largest > smallest or abs(share - each) <= largest
