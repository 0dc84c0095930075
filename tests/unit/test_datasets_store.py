# SPDX-License-Identifier: Apache-2.0
"""Streams: what is unpacked is all of it, what is cut is cut at reads, what is damaged is seen."""

import gzip
import hashlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttouch.datasets.store import Corrupt, cut_reads, unpacked, write


def fastq(count: int, length: int = 20) -> bytes:
    return b"".join(b"@r%d\n%s\n+\n%s\n" % (i, b"ACGT" * (length // 4), b"@" * length) for i in range(count))


def content(folder: Path, data: bytes) -> bytes:
    """Return what a file with these *data* holds."""
    file = folder / "file"
    file.write_bytes(data)
    return b"".join(unpacked(file, "unpacking", lambda *_: None))


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[i : i + size] for i in range(0, len(data), size)]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=300), max_size=4), st.integers(0, 3))
def test_members_with_padding(
    tmp_path_factory: pytest.TempPathFactory, members: list[bytes], padding: int
) -> None:
    packed = b"".join(gzip.compress(member) + b"\0" * padding for member in members)
    assert content(tmp_path_factory.mktemp("packed"), packed) == b"".join(members)


def test_what_is_not_gzip_passes(tmp_path: Path) -> None:
    assert content(tmp_path, b">a\n\x1f\x8bAC\n") == b">a\n\x1f\x8bAC\n"


@pytest.mark.parametrize("lost", [1, 4, 8, 9, 100])
def test_a_truncated_gzip_is_seen(tmp_path: Path, lost: int) -> None:
    packed = gzip.compress(hashlib.sha256(b"x").digest() * 50 + b"ACGT" * 99)
    with pytest.raises(Corrupt, match="truncated"):
        content(tmp_path, packed[: max(2, len(packed) - lost)])


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 200), st.integers(1, 40), st.integers(1, 25))
def test_cuts_are_at_reads(count: int, size: int, first: int, truncate: int) -> None:
    data = fastq(count)
    if first > count:
        with pytest.raises(Corrupt, match=f" {count} .* {first}"):
            list(cut_reads(pieces(data, size), first, truncate))
        return
    lines = data.split(b"\n")[: 4 * first]
    for part in (1, 3):
        lines[part::4] = [line[:truncate] for line in lines[part::4]]
    cut = b"".join(cut_reads(pieces(data, size), first, truncate))
    assert cut == b"\n".join(lines) + b"\n"
    assert b"".join(cut_reads(pieces(data, size), None, None)) == data


def test_a_read_that_stops_in_the_middle_is_seen_when_cutting() -> None:
    with pytest.raises(Corrupt, match="bases and qualities"):
        list(cut_reads([fastq(3)[:-5]], None, 10))
    with pytest.raises(Corrupt, match="incomplete"):
        list(cut_reads([fastq(3)[:-25]], None, 10))


@settings(deadline=None)
@given(st.integers(1, 50), st.integers(1, 300))
def test_facts_of_reads(tmp_path_factory: pytest.TempPathFactory, count: int, size: int) -> None:
    target = tmp_path_factory.mktemp("reads") / "r.fq"
    data = fastq(count)
    facts = write(pieces(data, size), target, "reads")
    assert target.read_bytes() == data
    assert (facts.records, facts.read_length, facts.size) == (count, 20, len(data))
    assert facts.sha256 == hashlib.sha256(data).hexdigest()


@settings(deadline=None)
@given(st.lists(st.integers(0, 200), min_size=1, max_size=9), st.integers(1, 50))
def test_facts_of_a_reference(tmp_path_factory: pytest.TempPathFactory, lengths: list[int], size: int) -> None:
    data = b"".join(b">chr%d a>b\n%s\n" % (i, b"A" * length) for i, length in enumerate(lengths))
    facts = write(pieces(data, size), tmp_path_factory.mktemp("ref") / "a.fa", "reference")
    assert (facts.records, facts.read_length) == (len(lengths), None)


def test_a_fastq_may_lack_its_last_newline(tmp_path: Path) -> None:
    assert write([fastq(5)[:-1]], tmp_path / "r.fq", "reads").records == 5


def test_the_last_read_may_be_without_a_base() -> None:
    data = fastq(1) + b"@empty\n\n+\n\n"
    assert b"".join(cut_reads([data + b"\n\n\n"], None, 5)).endswith(b"@empty\n\n+\n\n")


def test_a_page_is_no_reference(tmp_path: Path) -> None:
    with pytest.raises(Corrupt, match="not a FASTA file"):
        write([b"<html>"], tmp_path / "a.fa", "reference")
